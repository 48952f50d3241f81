//! What became of a binding on its clusters, gathered from its Works.

use std::collections::BTreeMap;

use karmada_api::{
    conditions::{self, Condition, ConditionStatus},
    consts::{condition, extension::STATUS_STALE, reason},
    work::{
        AggregatedStatusItem, ManifestStatus, ObjectReference, ResourceBindingSpec, ResourceBindingStatus,
        ResourceHealth, Work, WorkStatus,
    },
};
use karmada_meta::{object, parse_api_version, text, time::Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{delete, names};

/// What a Work says of its object, as far as it is gathered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Whether it is applied.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    applied: bool,
    /// If not, why.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// If so, what its objects report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<ManifestStatus>,
}

impl Report {
    /// What a Work's status says; nothing where nobody has looked at the Work yet.
    pub fn of(status: Option<&WorkStatus>) -> Option<Self> {
        let status = status.filter(|status| !status.conditions.is_empty())?;
        let applied = conditions::find(&status.conditions, condition::APPLIED);
        Some(match applied {
            Some(applied) if applied.status == ConditionStatus::True => {
                Self { applied: true, message: String::new(), statuses: status.manifest_statuses.clone() }
            }
            other => {
                let message = other.map(|condition| condition.message.clone()).unwrap_or_default();
                Self { applied: false, message, statuses: Vec::new() }
            }
        })
    }
}

impl Report {
    /// What its one object reports, if it is applied.
    pub fn applied_status(&self) -> Option<&Value> {
        self.statuses.first()?.status.as_ref().filter(|_| self.applied)
    }
}

/// What Works say, by their clusters. Those that are being deleted do not count, and one that is in no execution
/// namespace says nothing.
pub fn reports<'a>(works: impl IntoIterator<Item = &'a Work>) -> Vec<(String, Report)> {
    let alive = works.into_iter().filter(|work| work.metadata.deletion_timestamp.is_none());
    let report = |work: &Work| {
        let cluster = names::cluster_of_namespace(work.metadata.namespace.as_deref()?)?;
        Some((cluster.to_owned(), Report::of(work.status.as_ref()).unwrap_or_default()))
    };
    alive.filter_map(report).collect()
}

/// The status of a binding with what its Works say now, by their clusters: `aggregatedStatus` and the FullyApplied
/// condition.
pub fn status(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    reports: impl IntoIterator<Item = (String, Report)>,
    now: Time,
) -> ResourceBindingStatus {
    let items = items(&spec.resource, reports);
    let mut status = status.clone();
    conditions::set(&mut status.conditions, fully_applied(spec, &items, now), now);
    status.aggregated_status = items;
    status
}

/// Says of clusters that have fallen silent (`silent`: since when) that what their items hold is old: their health is
/// not known any more, their message says since when, and so does the condition StatusStale of the binding, whose
/// `lastTransitionTime` is the earliest of these. Times are named, not ages, so that nothing is written while nothing
/// changes.
pub fn mark_stale(status: &mut ResourceBindingStatus, silent: &BTreeMap<String, Time>) {
    let mut since = Vec::new();
    for item in &mut status.aggregated_status {
        let Some(at) = silent.get(&item.cluster_name) else { continue };
        since.push((*at, item.cluster_name.clone()));
        item.health = Some(ResourceHealth::Unknown);
        if item.applied {
            item.applied_message =
                format!("no sign of life since {at}; what is reported is from before that");
        }
    }
    since.sort();
    let Some((first, _)) = since.first() else {
        conditions::remove(&mut status.conditions, STATUS_STALE);
        return;
    };
    let named: Vec<_> =
        since.iter().take(NAMED).map(|(at, cluster)| format!("{cluster} since {at}")).collect();
    let more = match since.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "no sign of life from {}{more}; what is reported of them is from before that",
        named.join(", ")
    );
    let stale = Condition::new(STATUS_STALE, true, "NotReported", message, *first);
    // Its time is the clusters', and moves with them.
    let differs = conditions::find(&status.conditions, STATUS_STALE) != Some(&stale);
    if differs {
        conditions::remove(&mut status.conditions, STATUS_STALE);
        conditions::set(&mut status.conditions, stale, *first);
    }
}

/// How many silent clusters a condition names.
const NAMED: usize = 10;

/// One item per Work, by cluster name.
pub fn items(
    resource: &ObjectReference,
    reports: impl IntoIterator<Item = (String, Report)>,
) -> Vec<AggregatedStatusItem> {
    let mut items: Vec<_> =
        reports.into_iter().map(|(cluster, report)| item(resource, cluster, report)).collect();
    items.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
    bound(&mut items);
    items
}

/// The most that the status of one cluster's object may take of a binding, in bytes of JSON. Real ones have a few hundred.
pub const STATUS_EACH: usize = 256 << 10;
/// The most for those of all clusters of a binding, which is stored, and sent to whoever watches it, as one object. On a
/// stock server that object has to fit etcd's 1.5 MiB.
pub const STATUS_ALL: usize = 1 << 20;
/// The same for the messages of what was not applied.
const MESSAGE_EACH: usize = 4 << 10;
const MESSAGE_ALL: usize = 256 << 10;
/// A text in a status with more than this is no phase or number.
const SHORT: usize = 64;
/// How the message of a cluster begins whose status is not there at all.
const OMITTED: &str = "status omitted";

/// Cuts down what is too much. An agent writes it, and what a binding and its template hold counts for nobody's quota.
/// Numbers and phases stay: readiness is summed up from them. They go only where they alone would be too much.
fn bound(items: &mut [AggregatedStatusItem]) {
    let messages = items.iter().map(|item| item.applied_message.len()).collect();
    let longest = share(messages, MESSAGE_EACH, MESSAGE_ALL);
    for item in items.iter_mut().filter(|item| item.applied_message.len() > longest) {
        let end = item.applied_message.floor_char_boundary(longest);
        item.applied_message.truncate(end);
        item.applied_message.push_str("… (the rest is in the Work)");
    }
    if bound_statuses(items, "status shortened to its numbers", |status| Some(numbers(status))) {
        bound_statuses(items, OMITTED, |_| None);
    }
}

/// Has every status give way that is larger than its share. Answers whether any did.
fn bound_statuses(
    items: &mut [AggregatedStatusItem],
    what: &str,
    less: impl Fn(&Value) -> Option<Value>,
) -> bool {
    let size = |status| object::json_length(status, usize::MAX);
    let sizes: Vec<usize> = items.iter().map(|item| item.status.as_ref().map_or(0, size)).collect();
    let most = share(sizes.clone(), STATUS_EACH, STATUS_ALL);
    let mut any = false;
    for (item, size) in items.iter_mut().zip(sizes).filter(|(_, size)| *size > most) {
        any = true;
        item.status = item.status.as_ref().and_then(&less);
        item.applied_message = format!(
            "{what}: its {size} bytes exceed the {most} that are shown of each cluster; see the Work in {}",
            names::execution_namespace(&item.cluster_name)
        );
    }
    any
}

/// What of a status is a number, a phase or the like.
fn numbers(status: &Value) -> Value {
    let short = |value: &Value| match value {
        Value::Array(_) | Value::Object(_) => false,
        Value::String(text) => text.len() <= SHORT,
        _ => true,
    };
    let kept =
        status.as_object().into_iter().flatten().filter(|(key, value)| key.len() <= SHORT && short(value));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Whether a cluster has reported a status that is not there, so that nobody can tell by it how many are ready.
pub fn is_omitted(item: &AggregatedStatusItem) -> bool {
    item.applied && item.status.is_none() && item.applied_message.starts_with(OMITTED)
}

/// The largest size that all may have, no more than `each`, so that those which are no larger take no more than `all`
/// together: it is not the small ones that give way.
fn share(mut sizes: Vec<usize>, each: usize, all: usize) -> usize {
    sizes.sort_unstable();
    let (mut left, mut count) = (all, sizes.len());
    for size in sizes {
        let share = left / count;
        if size > share {
            return share.min(each);
        }
        left -= size;
        count -= 1;
    }
    each
}

/// What one Work says about the object.
fn item(resource: &ObjectReference, cluster_name: String, report: Report) -> AggregatedStatusItem {
    let Report { applied, message, statuses } = report;
    // An agent's words go to people's terminals from here on.
    let applied_message = text::line(&message, usize::MAX);
    let found = statuses.into_iter().find(|status| is_of(status, resource));
    let health = found.as_ref().map_or(Some(ResourceHealth::Unknown), |found| found.health);
    let status = found.and_then(|found| found.status);
    AggregatedStatusItem { cluster_name, status, applied, applied_message, health }
}

/// Whether a manifest's status is the object's. The version does not matter: an override may have changed it.
fn is_of(status: &ManifestStatus, resource: &ObjectReference) -> bool {
    let of = &status.identifier;
    let group = parse_api_version(&resource.api_version).map(|(group, _)| group);
    group.as_deref() == Some(&of.group)
        && of.kind == resource.kind
        && of.namespace == resource.namespace
        && of.name == resource.name
}

/// The FullyApplied condition: every cluster that the binding wants the object on has applied it, and no other
/// cluster still has it.
fn fully_applied(spec: &ResourceBindingSpec, items: &[AggregatedStatusItem], now: Time) -> Condition {
    let wanted = delete::wanted_clusters(spec);
    let complete = !wanted.is_empty()
        && wanted.len() == items.len()
        && items.iter().all(|item| item.applied && wanted.contains(&item.cluster_name));
    let (reason, message) = if complete {
        (reason::FULLY_APPLIED_SUCCESS, reason::FULLY_APPLIED_SUCCESS_MESSAGE)
    } else {
        (reason::FULLY_APPLIED_FAILED, reason::FULLY_APPLIED_FAILED_MESSAGE)
    };
    Condition::new(condition::FULLY_APPLIED, complete, reason, message, now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(cluster: &str, applied: Value, statuses: Value) -> Work {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": format!("karmada-es-{cluster}")},
            "spec": {"workload": {"manifests": []}},
            "status": {"conditions": applied, "manifestStatuses": statuses},
        }))
        .unwrap()
    }

    #[test]
    fn what_silent_clusters_said_is_shown_as_old() {
        let time = |text: &str| text.parse::<Time>().unwrap();
        let mut status: ResourceBindingStatus = serde_json::from_value(json!({"aggregatedStatus": [
            {"clusterName": "a", "applied": true, "health": "Healthy", "status": {"readyReplicas": 1}},
            {"clusterName": "b", "applied": true, "health": "Healthy"},
            {"clusterName": "c", "applied": false, "appliedMessage": "no", "health": "Unknown"},
        ]}))
        .unwrap();
        let fresh = status.clone();
        mark_stale(&mut status, &BTreeMap::new());
        assert_eq!(status, fresh);
        let silent = [("a", "2026-01-01T00:10:00Z"), ("c", "2026-01-01T00:05:00Z")];
        let silent: BTreeMap<_, _> = silent.iter().map(|(name, at)| ((*name).to_owned(), time(at))).collect();
        mark_stale(&mut status, &silent);
        let items: Vec<_> = status
            .aggregated_status
            .iter()
            .map(|item| (item.health, item.status.is_some(), item.applied_message.as_str()))
            .collect();
        let (unknown, healthy) = (Some(ResourceHealth::Unknown), Some(ResourceHealth::Healthy));
        let old = "no sign of life since 2026-01-01T00:10:00Z; what is reported is from before that";
        assert_eq!(items, [(unknown, true, old), (healthy, false, ""), (unknown, false, "no")]);
        let stale = conditions::find(&status.conditions, STATUS_STALE).unwrap();
        assert_eq!(stale.last_transition_time, time("2026-01-01T00:05:00Z"));
        assert!(stale.message.contains("c since 2026-01-01T00:05:00Z, a since"), "{}", stale.message);
        let again = status.clone();
        mark_stale(&mut status, &silent);
        assert_eq!(status, again, "nothing is written while nothing changes");
        mark_stale(&mut status, &BTreeMap::new());
        assert_eq!(conditions::find(&status.conditions, STATUS_STALE), None);
    }

    fn applied(status: &str, message: &str) -> Value {
        json!([{"type": "Applied", "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    fn state(kind: &str, health: &str, ready: i32) -> Value {
        json!({"identifier": {"ordinal": 0, "group": "apps", "version": "v1", "kind": kind, "resource": "",
                              "namespace": "shop", "name": "web"},
               "health": health, "status": {"readyReplicas": ready}})
    }

    fn spec(clusters: &[&str]) -> ResourceBindingSpec {
        let clusters: Vec<_> = clusters.iter().map(|name| json!({"name": name})).collect();
        serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"},
            "clusters": clusters,
        }))
        .unwrap()
    }

    #[test]
    fn works_are_gathered_by_cluster() {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let good = work(
            "b",
            applied("True", ""),
            json!([state("Service", "Unhealthy", 9), state("Deployment", "Healthy", 2)]),
        );
        let bad = work("a", applied("False", "it is not ours"), json!([state("Deployment", "Healthy", 1)]));
        let new = work("c", json!([]), json!([]));
        let got = status(&spec(&["a", "b"]), &ResourceBindingStatus::default(), reports([&good, &bad]), now);
        assert_eq!(
            serde_json::to_value(&got.aggregated_status).unwrap(),
            json!([
                {"clusterName": "a", "appliedMessage": "it is not ours", "health": "Unknown"},
                {"clusterName": "b", "applied": true, "health": "Healthy", "status": {"readyReplicas": 2}},
            ])
        );
        let condition = |clusters: &[&str], works: &[&Work]| {
            let got = status(
                &spec(clusters),
                &ResourceBindingStatus::default(),
                reports(works.iter().copied()),
                now,
            );
            got.conditions[0].reason.clone()
        };
        let table: [(&str, &[&str], &[&Work], &str); 6] = [
            ("all", &["b"], &[&good], "FullyAppliedSuccess"),
            ("one failed", &["a", "b"], &[&good, &bad], "FullyAppliedFailed"),
            ("one to come", &["b", "c"], &[&good], "FullyAppliedFailed"),
            ("one not applied yet", &["b", "c"], &[&good, &new], "FullyAppliedFailed"),
            ("one too many", &["b"], &[&good, &new], "FullyAppliedFailed"),
            ("not scheduled", &[], &[], "FullyAppliedFailed"),
        ];
        for (message, clusters, works, want) in table {
            assert_eq!(condition(clusters, works), want, "{message}");
        }
    }

    #[test]
    fn what_one_cluster_reports_takes_no_more_than_its_share() {
        let reports = |cluster: &str, bytes: usize| {
            let mut state = state("Deployment", "Healthy", 2);
            state["status"] = json!({"readyReplicas": 2, "note": "x".repeat(bytes)});
            work(cluster, applied("True", ""), json!([state]))
        };
        let shown = |works: &[Work]| -> Vec<(bool, String)> {
            let all = items(&spec(&[]).resource, super::reports(works));
            let bytes = serde_json::to_vec(&all).expect("JSON").len();
            assert!(bytes <= STATUS_ALL + MESSAGE_ALL + all.len() * 256, "{bytes}");
            let whole = |item: &AggregatedStatusItem| {
                let status = item.status.as_ref().expect("numbers stay");
                assert_eq!(status["readyReplicas"], 2);
                status.get("note").is_some()
            };
            all.into_iter().map(|item| (whole(&item), item.applied_message)).collect()
        };
        let both = shown(&[reports("a", 3 << 20), reports("b", 200)]);
        assert_eq!((both[0].0, &both[1]), (false, &(true, String::new())));
        let why = &both[0].1;
        assert!(why.contains("3145757 bytes") && why.contains("karmada-es-a"), "{why}");
        // Many that are too much together give way to those that are not.
        let mut many: Vec<_> = (0..100).map(|i| reports(&format!("m{i:03}"), 200 << 10)).collect();
        many.extend((0..100).map(|i| reports(&format!("n{i:03}"), 1000)));
        let many = shown(&many);
        assert!(many[..100].iter().all(|(whole, _)| !whole) && many[100..].iter().all(|(whole, _)| *whole));
        // Thousands of ordinary ones keep the numbers that readiness is summed up from.
        let fleet: Vec<_> = (0..3_000).map(|i| reports(&format!("m{i:04}"), 700)).collect();
        assert!(shown(&fleet).iter().all(|(whole, why)| !whole && why.starts_with("status shortened")));
        // So do messages.
        let bad = work("a", applied("False", &"ä".repeat(1 << 20)), json!([]));
        let message = &items(&spec(&[]).resource, super::reports(&[bad]))[0].applied_message;
        assert!(message.len() < MESSAGE_EACH + 64 && message.ends_with("in the Work)"), "{}", message.len());
        // And they tell no terminal anything.
        let bad = work("a", applied("False", "no\n\u{1b}[2Jroom"), json!([]));
        let message = &items(&spec(&[]).resource, super::reports(&[bad]))[0].applied_message;
        assert_eq!(message, "no \u{fffd}[2Jroom");
        let sizes = |sizes: &[usize]| share(sizes.to_vec(), 10, 40);
        assert_eq!([sizes(&[]), sizes(&[9; 4]), sizes(&[9; 5]), sizes(&[1, 1, 30, 30])], [10, 10, 8, 10]);
        assert_eq!(share(vec![1, 1, 30, 30], 25, 40), 19);
    }

    #[test]
    fn a_status_of_numbers_alone_can_be_too_much_too() {
        let mut state = state("Deployment", "Healthy", 2);
        let fields = (0..60_000).map(|i| (format!("number{i}"), json!(i)));
        state["status"] = Value::Object(fields.collect());
        let item =
            items(&spec(&[]).resource, reports(&[work("a", applied("True", ""), json!([state]))])).remove(0);
        assert!(is_omitted(&item) && item.health == Some(ResourceHealth::Healthy), "{item:?}");
        assert!(!is_omitted(&AggregatedStatusItem { applied: true, ..AggregatedStatusItem::default() }));
    }

    #[test]
    fn what_goes_does_not_count_and_times_stay() {
        let first = "2026-01-02T00:00:00Z".parse().unwrap();
        let later = "2026-01-03T00:00:00Z".parse().unwrap();
        let good = work("b", applied("True", ""), json!([state("Deployment", "Healthy", 2)]));
        let mut going = work("a", applied("True", ""), json!([]));
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let before =
            status(&spec(&["b"]), &ResourceBindingStatus::default(), reports([&good, &going]), first);
        assert_eq!(before.aggregated_status.len(), 1);
        assert_eq!(status(&spec(&["b"]), &before, reports([&good]), later), before, "nothing to write");
    }
}
