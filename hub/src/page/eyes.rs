//! What the controllers know of clusters, as rows of the page.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use karmada_api::{
    conditions::{self, Condition},
    consts::{
        condition, extension,
        taint::{NO_SCHEDULE, UNSCHEDULABLE},
    },
};
use karmada_core::{
    health::Ready,
    judge::{
        Sighting,
        words::{self, Known, State, Told},
    },
};
use karmada_meta::time::Time;
use karmada_ui::{
    rows::{Row, clipped, flag},
    views,
};
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::{
    accounts::stages::Count,
    controllers::context::Context,
    known::{heads::ClusterHead, index::Page as Indexed},
};

/// How many passes over all clusters go by between two looks at their agents' certificates.
const CERTIFICATES: u32 = 30;

/// The controllers' knowledge, while they run. Clones see the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Eyes(Arc<RwLock<Weak<Context>>>);

impl Eyes {
    /// These controllers run from now on.
    pub(crate) fn open(&self, context: &Arc<Context>) {
        *self.0.write() = Arc::downgrade(context);
    }

    /// What they know, if they run.
    pub(super) fn context(&self) -> Option<Arc<Context>> {
        self.0.read().upgrade()
    }
}

/// What a Cluster says of itself that matters to a row.
#[derive(Clone, Debug)]
struct Fixed {
    head: Arc<ClusterHead>,
    born: Time,
    deleting: Option<Time>,
    ready: Ready,
    reason: Box<str>,
    since: Option<Time>,
    stale: Option<Time>,
    flags: u8,
    region: Arc<str>,
    link: Arc<str>,
    kubernetes: Arc<str>,
    agent: Arc<str>,
}

impl Fixed {
    fn of(head: &Arc<ClusterHead>) -> Self {
        let cluster = &head.cluster;
        let find = |type_: &str| conditions::find(head.conditions(), type_);
        let holds = |type_: &str| find(type_).is_some_and(|found| found.status.as_str() == "True");
        let at = |found: Option<&Condition>| found.map(|found| found.last_transition_time);
        let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
            time.as_ref().map(|time| Time::from_timestamp(time.0))
        };
        let ready = find(condition::READY);
        let spec = &cluster.spec;
        let cordoned =
            spec.taints.iter().any(|taint| taint.key == UNSCHEDULABLE && taint.effect == NO_SCHEDULE);
        let agent = head.annotation(extension::VERSION).unwrap_or_default();
        let skewed = words::skew(agent, env!("CARGO_PKG_VERSION")).is_some();
        let flags = [
            (cordoned, flag::CORDONED),
            (holds(extension::EVICTIONS_HELD), flag::EVICTIONS_HELD),
            (head.holds_removals(), flag::REMOVALS_HELD),
            (holds(extension::CHANGES_HELD), flag::CHANGES_HELD),
            (skewed, flag::SKEW),
        ];
        Self {
            born: time(&cluster.metadata.creation_timestamp)
                .unwrap_or_else(|| Time::from_system(std::time::UNIX_EPOCH)),
            deleting: time(&cluster.metadata.deletion_timestamp),
            ready: head.ready(),
            reason: ready.map(|ready| ready.reason.as_str()).unwrap_or_default().into(),
            since: at(ready),
            stale: at(find(extension::STATUS_STALE)),
            flags: flags.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum(),
            region: clipped(&spec.region),
            link: clipped(head.annotation(extension::LINK).unwrap_or_default()),
            kubernetes: clipped(
                cluster.status.as_ref().map(|status| status.kubernetes_version.as_str()).unwrap_or_default(),
            ),
            agent: clipped(agent),
            head: head.clone(),
        }
    }

    fn known<'a>(&'a self, sighting: &Sighting, blind: bool, hub_began: Time) -> Known<'a> {
        let windows = self.head.annotation(extension::LINK_WINDOWS).filter(|_| sighting.scheduled);
        Known {
            born: self.born,
            deleting: self.deleting,
            ready: self.ready,
            reason: &self.reason,
            since: self.since,
            heard: sighting.heard,
            stale: self.stale,
            grace: sighting.grace,
            held_until: sighting.held_until,
            windows,
            blind,
            hub_began,
        }
    }
}

/// Makes rows of all clusters, again and again: of what has not changed since the last time nothing is read anew.
#[derive(Debug)]
pub(super) struct Rows {
    fixed: BTreeMap<String, Fixed>,
    certificates: BTreeMap<Arc<str>, (Time, bool)>,
    passes: u32,
    hub_began: Time,
}

impl Rows {
    pub(super) fn new(hub_began: Time) -> Self {
        Self { fixed: BTreeMap::new(), certificates: BTreeMap::new(), passes: 0, hub_began }
    }

    /// All rows, in the order of names.
    pub(super) fn all(&mut self, context: &Context) -> Vec<Row> {
        if self.passes.is_multiple_of(CERTIFICATES)
            && let Some(epochs) = &context.epochs
        {
            let ends = epochs.ends(context.env.wall()).into_iter();
            self.certificates =
                ends.map(|(name, until, soon)| (name, (Time::from_system(until), soon))).collect();
        }
        self.passes = self.passes.wrapping_add(1);
        let blind = context.accounts.judgement.is_blind();
        let mut before = std::mem::take(&mut self.fixed);
        let mut rows = Vec::with_capacity(before.len());
        for page in context.known.clusters.pages(None) {
            self.page(context, &page, blind, &mut before, &mut rows);
        }
        rows
    }

    fn page(
        &mut self,
        context: &Context,
        page: &Indexed<ClusterHead>,
        blind: bool,
        before: &mut BTreeMap<String, Fixed>,
        rows: &mut Vec<Row>,
    ) {
        let names = || page.iter().map(|(key, _)| key.name.as_str());
        let (mut sightings, mut counts) = (Vec::with_capacity(page.len()), Vec::with_capacity(page.len()));
        context.accounts.judgement.sightings(names(), |sighting| sightings.push(sighting));
        context.accounts.stages.of(names(), |count| counts.push(count));
        for (((key, head), sighting), count) in page.iter().zip(&sightings).zip(&counts) {
            let fixed = before.remove(&key.name).filter(|fixed| Arc::ptr_eq(&fixed.head, head));
            let fixed = fixed.unwrap_or_else(|| Fixed::of(head));
            rows.push(self.row(context, &key.name, &fixed, sighting, *count, blind));
            self.fixed.insert(key.name.clone(), fixed);
        }
    }

    fn row(
        &self,
        context: &Context,
        name: &str,
        fixed: &Fixed,
        sighting: &Sighting,
        count: Count,
        blind: bool,
    ) -> Row {
        let now = context.env.wall();
        let known = fixed.known(sighting, blind, self.hub_began);
        let told = words::tell(&known, now);
        let certificate = self.certificates.get(name);
        let fenced = has_stopped(&told, Some(told.at), count, Time::from_system(now));
        let flags = fixed.flags
            | if sighting.held_until.is_some() { flag::HELD } else { 0 }
            | if fenced { flag::FENCED } else { 0 }
            | if certificate.is_some_and(|(_, soon)| *soon) { flag::CERTIFICATE } else { 0 };
        Row {
            name: name.into(),
            told: Row::told(&known, told),
            flags,
            region: fixed.region.clone(),
            link: fixed.link.clone(),
            kubernetes: fixed.kubernetes.clone(),
            agent: fixed.agent.clone(),
            certificate: certificate.map(|(until, _)| *until),
            waiting: count.waiting,
            failed: count.failed,
        }
    }
}

/// Whether what may run in one place only has stopped there by the cluster's own clock: it is silent, and was heard as long ago
/// as its fence is.
fn has_stopped(told: &Told, heard: Option<Time>, count: Count, now: Time) -> bool {
    let passed = |heard| views::fenced_at(heard, count.fence) <= now;
    told.state == State::Silent && count.fenced > 0 && heard.is_some_and(passed)
}

/// What the hub itself knows of one cluster, beside its object.
pub(super) fn of_cluster(context: &Context, name: &str, hub_began: Time) -> Option<Value> {
    let head = context.known.clusters.get(&karmada_objects::key::Key::cluster_scoped(name))?;
    let (judgement, now) = (&context.accounts.judgement, context.env.wall());
    let fixed = Fixed::of(&head);
    let mut sighting = None;
    judgement.sightings([name], |found| sighting = Some(found));
    let sighting = sighting?;
    let blind = judgement.is_blind();
    let known = fixed.known(&sighting, blind, hub_began);
    let told: Told = words::tell(&known, now);
    let shown = sighting.heard.or(fixed.stale);
    let mut count = Count::default();
    context.accounts.stages.of([name], |found| count = found);
    let opinion = judgement.opinion(name, fixed.ready);
    let ends = context.epochs.as_ref().map(|epochs| epochs.ends(now)).unwrap_or_default();
    let certificate = ends.into_iter().find(|(of, ..)| &**of == name).map(|(_, until, soon)| {
        let until = Time::from_system(until);
        json!({"until": until, "text": words::certificate(until, soon, now), "soon": soon})
    });
    let fence = (count.fenced > 0).then(|| {
        let at = shown.map(|heard| views::fenced_at(heard, count.fence));
        let stopped = has_stopped(&told, shown, count, Time::from_system(now));
        json!({"works": count.fenced, "seconds": count.fence, "at": at, "stopped": stopped})
    });
    Some(json!({
        "state": told.state.name(), "template": told.template, "at": told.at.timestamp().as_second(),
        "sentence": told.sentence(now), "detail": words::detail(&known, &told, sighting.losses, None),
        "heard": sighting.heard, "shown": shown,
        "grace": {
            "seconds": sighting.grace.as_secs(), "length": words::length(sighting.grace),
            "reason": opinion.grace.as_ref().and_then(|grace| grace.reason()),
            "text": opinion.grace.as_ref().map(ToString::to_string),
        },
        "losses": sighting.losses, "heldUntil": sighting.held_until,
        "strip": judgement.strip(name), "stripSeconds": karmada_core::judge::day::SLOT.as_secs(),
        "recordedSince": hub_began,
        "certificate": certificate, "agent": &*fixed.agent, "hub": env!("CARGO_PKG_VERSION"),
        "skew": words::skew(&fixed.agent, env!("CARGO_PKG_VERSION")),
        "fence": fence, "cordoned": fixed.flags & flag::CORDONED != 0,
    }))
}

/// When these clusters were heard last, in seconds since 1970.
pub(super) fn heard(context: &Context, names: &[String]) -> Value {
    let mut times = serde_json::Map::new();
    let mut next = names.iter();
    context.accounts.judgement.sightings(names.iter().map(String::as_str), |sighting| {
        if let (Some(name), Some(heard)) = (next.next(), sighting.heard) {
            times.insert(name.clone(), heard.timestamp().as_second().into());
        }
    });
    times.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        format!("2026-01-03T{text}Z").parse().unwrap()
    }

    #[test]
    fn conditions_are_flags_while_they_hold() {
        for (type_, bit) in [
            (extension::EVICTIONS_HELD, flag::EVICTIONS_HELD),
            (extension::REMOVALS_HELD, flag::REMOVALS_HELD),
            (extension::CHANGES_HELD, flag::CHANGES_HELD),
            (condition::READY, 0),
        ] {
            for (status, flags) in [("True", bit), ("False", 0), ("Unknown", 0)] {
                let condition = json!({"type": type_, "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-03T14:00:00Z"});
                let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m"},
                    "spec": {"syncMode": "Pull"}, "status": {"conditions": [condition]}});
                let fixed = Fixed::of(&Arc::new(ClusterHead::project(&cluster)));
                assert_eq!(fixed.flags, flags, "{type_} is {status}");
            }
        }
    }

    #[test]
    fn what_is_fenced_has_stopped_when_it_was_silent_for_long_enough() {
        let heard = time("14:00:00");
        for (state, fenced, seconds, now, stopped) in [
            (State::Silent, 1, 120, "14:01:59", false),
            (State::Silent, 1, 120, "14:02:00", true),
            (State::Silent, 0, 120, "15:00:00", false),
            (State::Quiet, 1, 120, "15:00:00", false),
            (State::Ready, 1, 120, "15:00:00", false),
        ] {
            let told = Told { state, at: heard, template: "" };
            let count = Count { fenced, fence: seconds, ..Count::default() };
            assert_eq!(
                has_stopped(&told, Some(heard), count, time(now)),
                stopped,
                "{state:?} {fenced} {now}"
            );
            assert!(!has_stopped(&told, None, count, time(now)), "nobody knows when it was heard");
        }
    }
}
