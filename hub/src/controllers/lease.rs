//! The lease monitor: clusters that stop giving a sign of life become Unknown, and taints follow conditions.
//!
//! ```text
//!   Leases ──▶ Judge (core::judge) ── every period ──▶ Ready=Unknown, StatusStale, … ─┐
//!                    │                                 history of the link            ├─▶ Clusters ──▶ taints
//!                    └─▶ evictions held: event, metric                                │                  │
//!   agents ── Ready=True/False ───────────────────────────────────────────────────────┘                  ▼
//!                                                                                                   scheduler
//! ```
//!
//! Only the judgement waits for a tick. A condition that an agent posts moves the taints as soon as it is seen, so
//! that a cluster that is back is of use at once. A tick writes nothing itself: a thousand clusters that vanish must
//! not make the next one late.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::{
    cluster::Taint,
    conditions::{self, Condition, ConditionStatus},
    consts::{component, condition, event, extension, namespace},
};
use karmada_client::{Error, WorkQueue, latest, watch::Health};
use karmada_core::{
    health::{Expired, Ready},
    judge::{self, Record, brake, flaps, grace},
    taints,
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part,
    key::{self, Key},
    kinds::CLUSTERS,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{accounts::judgement::has_renewed, known::heads::ClusterHead};

/// How many clusters are written at a time.
const WORKERS: usize = 4;

/// Judges clusters by their Leases.
pub(crate) struct LeaseMonitor {
    context: Arc<Context>,
    pending: Arc<Mutex<Pending>>,
    queue: WorkQueue<String>,
}

/// What the last ticks decided and is not written yet.
#[derive(Default)]
struct Pending {
    /// Who is lost, with the condition that was judged.
    expired: BTreeMap<String, (Expired, Ready)>,
    /// What is to be remembered of links.
    records: BTreeMap<String, Option<Record>>,
    /// Why evictions were held at the last tick: as in [`judge::Verdict`].
    held: Causes,
}

/// Why evictions are held, by either brake.
type Causes = [Option<brake::Cause>; 2];

/// What is said when brakes have changed.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// This one is on now, or for another cause.
    Held(usize),
    /// This one is off, and the other is not.
    Released(usize),
    /// Both are off.
    Resumed,
}

/// What is to be said of brakes that were so and are so now.
fn news(before: Causes, now: Causes) -> Vec<Said> {
    let changed = (0..now.len()).filter(|&which| before[which] != now[which]);
    let mut news: Vec<_> = changed
        .map(|which| match now[which] {
            Some(_) => Said::Held(which),
            None if now == [None; 2] => Said::Resumed,
            None => Said::Released(which),
        })
        .collect();
    news.dedup();
    news
}

impl LeaseMonitor {
    /// A monitor that hears the context's Leases and Clusters from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let pending = Arc::<Mutex<Pending>>::default();
        let (ear, judged) = (Arc::downgrade(context), pending.clone());
        context.known.leases.listen(move |change| {
            if let (Some(lease), Some(context)) = (change.new, ear.upgrade()) {
                context.accounts.judgement.renewed(&change.key.name, &lease.renew_time);
            }
            // What was judged before a sign of life holds no more.
            if change.differs(|lease| &lease.renew_time) {
                judged.lock().expired.remove(&change.key.name);
            }
        });
        let queue = WorkQueue::new(context.env.clone());
        let clusters = queue.clone();
        context.known.clusters.listen(move |change| clusters.add(change.key.name.clone()));
        let again = queue.clone();
        context.resync.tell(&context.known.clusters, move |cluster, _| again.add(cluster.name.clone()));
        context.figures.queue("lease", &queue);
        Self { context: context.clone(), pending, queue }
    }

    /// Runs until told to stop. `watching` is the health of the Lease watch.
    pub(crate) async fn run(self, watching: latest::Receiver<Health>, stop: CancellationToken) {
        self.context.known.clusters.synced().await;
        // So that what agents say of their graces counts from the first look on. One without Leases is blind, and may begin.
        let _ = timeout(self.context.accounts.judgement.period(), self.context.known.leases.synced()).await;
        let writing = work("lease", &self.queue, WORKERS, &stop, |name: String| self.write(name));
        let judging = async {
            // The first tick comes at once; the startup grace makes it harmless.
            let mut ticks = interval(self.context.accounts.judgement.period());
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let live = watching.borrow().live;
                self.judge(live);
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = writing => {}
            () = judging => {}
        }
    }

    /// One look at all clusters.
    fn judge(&self, watching: bool) {
        let (judgement, clusters) = (&self.context.accounts.judgement, self.context.known.clusters.all());
        let leases = &self.context.known.leases;
        // Nothing renews a Lease for those that the hub itself works on: what works on them says how they are.
        let (pushed, judged): (Vec<_>, Vec<_>) = clusters
            .iter()
            .map(|(key, head)| (key.name.as_str(), head))
            .partition(|(_, head)| head.is_pushed());
        let lease = |name: &str| leases.get(&Key::new(namespace::CLUSTER, name))?.duration;
        let verdict = judgement.tick(
            watching,
            judged.iter().map(|(name, head)| judge::Cluster {
                name,
                ready: head.ready(),
                grace: grace::Said {
                    annotation: head.annotation(extension::GRACE_PERIOD),
                    lease: lease(name),
                },
                lost_since: head.unknown_since(),
                history: head.annotation(extension::LINK_HISTORY),
                held: brake::held_since(head.conditions()),
                windows: head.annotation(extension::LINK_WINDOWS),
            }),
            pushed.iter().map(|(name, head)| judge::Pushed {
                name,
                answers: head.answers(),
                held: brake::held_since(head.conditions()),
            }),
        );
        for (name, head) in &pushed {
            let opinion = judgement.opinion_of_pushed(name, head.answers());
            if opinion.show(&mut head.conditions().to_vec(), Time::now(&self.context.env)) {
                self.queue.add((*name).to_owned());
            }
        }
        for (name, grace) in &verdict.conflicts {
            let reason = grace.reason().unwrap_or_default();
            tracing::warn!(cluster = %name, reason, "settings of the hub and of the agent do not go together: {grace}");
        }
        let expired: BTreeMap<&str, Expired> =
            verdict.expired.iter().map(|(name, how)| (name.as_str(), *how)).collect();
        let now = Time::now(&self.context.env);
        let mut seen = Vec::with_capacity(judged.len());
        let mut pending = self.pending.lock();
        pending.expired.clear();
        for (name, head) in judged {
            if let Some(how) = expired.get(name) {
                tracing::warn!(cluster = name, reason = how.reason(), "the cluster gives no sign of life");
                pending.expired.insert(name.to_owned(), (*how, head.ready()));
            }
            let opinion = judgement.opinion(name, head.ready());
            let record = judgement.record(name);
            let news = opinion.show(&mut head.conditions().to_vec(), now)
                || flaps::taints(&head.cluster.spec.taints, opinion.held_until.is_some(), now).is_some();
            if news || record.is_some() || expired.contains_key(name) {
                self.queue.add(name.to_owned());
            }
            pending.records.extend(record.map(|record| (name.to_owned(), record)));
            seen.push((name, opinion));
        }
        let causes = verdict.held.each_ref().map(|held| held.as_ref().map(|held| held.cause));
        let opinions = seen.iter().map(|(name, opinion)| (*name, opinion));
        self.context.figures.judged().seen(opinions, causes.into_iter().flatten());
        let news = news(std::mem::replace(&mut pending.held, causes), causes);
        if !news.is_empty() {
            // What one cause held, another may not.
            self.context.accounts.evictions.lift();
        }
        for said in news {
            self.tell_brake(&said, &verdict.held);
        }
    }

    /// Says that evictions stop, or go on.
    fn tell_brake(&self, said: &Said, held: &[Option<brake::Held>; 2]) {
        // The hub has no object of its own; its clusters' namespace is what comes nearest.
        let about =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace::CLUSTER}});
        let writer = &self.context.writer;
        let text = match said {
            Said::Held(which) => {
                let Some(held) = &held[*which] else { return };
                let message = self.context.accounts.judgement.message(held);
                let reason = held.cause.reason();
                tracing::warn!(reason, "evictions are held: {message}");
                let text = format!("{reason}: {message}");
                return writer.warning(component::CLUSTER, &about, event::EVICTIONS_HELD, text);
            }
            Said::Released(which) => {
                let mode = if *which == 0 { "pull" } else { "push" };
                format!("Nothing stands against evictions from lost clusters in {mode} mode.")
            }
            Said::Resumed => "Nothing stands against evictions from lost clusters.".to_owned(),
        };
        tracing::info!("evictions are not held: {text}");
        writer.normal(component::CLUSTER, &about, event::EVICTIONS_RESUMED, text);
    }

    /// Makes a Cluster say what is thought of it: its conditions first, then what follows from them.
    async fn write(&self, name: String) -> Result<Next, Error> {
        self.show(&name).await?;
        self.taint(name).await
    }

    /// Writes the conditions: Unknown if it is lost, and what else there is to say.
    async fn show(&self, name: &str) -> Result<(), Error> {
        let key = Key::cluster_scoped(name);
        let Some(head) = self.context.known.clusters.get(&key) else { return Ok(()) };
        let is_pulled = !head.is_pushed();
        let now = Time::now(&self.context.env);
        let mut expired = self.pending.lock().expired.get(name).copied();
        if expired.is_some()
            && has_renewed(&self.context.accounts, &self.context.writer.objects, name).await?
        {
            // The watch is behind.
            self.pending.lock().expired.remove(name);
            expired = None;
        }
        let revise = |list: &mut Vec<Condition>| {
            let found =
                Ready::from_status(conditions::find(list, condition::READY).map(|c| c.status.as_str()));
            let mut changed = false;
            // The agent may have posted something since it was judged.
            if let Some((how, _)) = expired.filter(|(_, judged)| *judged == found) {
                let unknown = ConditionStatus::Unknown;
                let new = Condition::new(condition::READY, unknown, how.reason(), how.message(), now);
                changed = conditions::set(list, new, now);
            }
            let ready =
                Ready::from_status(conditions::find(list, condition::READY).map(|c| c.status.as_str()));
            // Of what was thought of its link while an agent spoke for it nothing is left.
            let opinion = match is_pulled {
                true => self.context.accounts.judgement.opinion(name, ready),
                false => self.context.accounts.judgement.opinion_of_pushed(name, head.answers_by(list)),
            };
            opinion.show(list, now) || changed
        };
        if !revise(&mut head.conditions().to_vec()) {
            return Ok(());
        }
        let write = |cluster: &mut Value| {
            let Some(mut list) = key::conditions(cluster) else { return false };
            let changed = revise(&mut list);
            if changed {
                cluster["status"]["conditions"] = json!(list);
            }
            changed
        };
        self.context.writer.objects.modify(&CLUSTERS, &key, Part::Status, write).await?;
        if let Some(written) = expired {
            // Once: what the agent posts from now on is newer.
            let expired = &mut self.pending.lock().expired;
            if expired.get(name) == Some(&written) {
                expired.remove(name);
            }
        }
        Ok(())
    }

    /// Makes a cluster's taints follow its condition.
    async fn taint(&self, name: String) -> Result<Next, Error> {
        let key = Key::cluster_scoped(name);
        let Some(head) = self.context.known.clusters.get(&key) else { return Ok(Next::Done) };
        let now = Time::now(&self.context.env);
        let record = self.pending.lock().records.remove(&key.name);
        if record.is_none() && self.wanted_taints(&key.name, &head, now).is_none() {
            return Ok(Next::Done);
        }
        let mut message = None;
        let written = self
            .context
            .writer
            .objects
            .modify(&CLUSTERS, &key, Part::Main, |cluster| {
                message = None;
                let mut changed = record.as_ref().is_some_and(|record| remember(cluster, record.as_ref()));
                if let Some(wanted) = self.wanted_taints(&key.name, &ClusterHead::project(cluster), now) {
                    message = Some(taints::event_message(&wanted));
                    set_taints(cluster, &wanted);
                    changed = true;
                }
                changed
            })
            .await;
        match (written, message) {
            (Ok(Some(cluster)), Some(message)) => {
                tracing::info!(cluster = %key.name, ready = ?head.ready(), taints = %message, "taints follow the cluster's state");
                self.context.writer.normal(
                    component::CLUSTER,
                    &cluster,
                    event::TAINT_CLUSTER_SUCCEED,
                    message,
                );
                Ok(Next::Done)
            }
            (Ok(_), _) => Ok(Next::Done),
            (Err(error), _) => {
                if let Some(record) = record {
                    self.pending.lock().records.entry(key.name.clone()).or_insert(record);
                }
                let reference = json!(*head.cluster);
                let text = format!("Taint cluster failed: {error}.");
                self.context.writer.warning(
                    component::CLUSTER,
                    &reference,
                    event::TAINT_CLUSTER_FAILED,
                    text,
                );
                Err(error)
            }
        }
    }

    /// The taints that a cluster should have, or `None` if it has them: by its condition, and by its comings and goings.
    fn wanted_taints(&self, name: &str, head: &ClusterHead, now: Time) -> Option<Vec<Taint>> {
        let spec = &head.cluster.spec;
        let by_condition = taints::for_condition(&spec.taints, head.ready(), now);
        let held = !head.is_pushed()
            && self.context.accounts.judgement.opinion(name, head.ready()).held_until.is_some();
        flaps::taints(by_condition.as_deref().unwrap_or(&spec.taints), held, now).or(by_condition)
    }
}

/// Writes down, or wipes out, what is known of a cluster's link.
fn remember(cluster: &mut Value, record: Option<&Record>) -> bool {
    let text = record.map(|record| json!(record).to_string());
    if object::annotation(cluster, extension::LINK_HISTORY) == text.as_deref() {
        return false;
    }
    match text {
        Some(text) => object::set_annotation(cluster, extension::LINK_HISTORY, text),
        None => {
            object::remove_annotation(cluster, extension::LINK_HISTORY);
        }
    }
    true
}

pub(super) fn set_taints(cluster: &mut Value, taints: &[Taint]) {
    let spec = object::ensure_map(cluster, "spec");
    if taints.is_empty() {
        spec.remove("taints");
    } else {
        spec.insert("taints".to_owned(), json!(taints));
    }
}

#[cfg(test)]
mod tests {
    use karmada_core::judge::brake::Cause;

    use super::*;

    #[test]
    fn of_each_brake_it_is_said_when_it_is_on_and_when_it_is_off() {
        let (started, outage) = (Some(Cause::HubStarted), Some(Cause::MassOutage));
        let rows = [
            ([None, None], [None, None], vec![]),
            ([None, None], [started, None], vec![Said::Held(0)]),
            ([started, None], [outage, None], vec![Said::Held(0)]),
            ([outage, None], [outage, None], vec![]),
            ([outage, None], [outage, outage], vec![Said::Held(1)]),
            ([outage, outage], [outage, None], vec![Said::Released(1)]),
            ([outage, outage], [None, outage], vec![Said::Released(0)]),
            ([outage, None], [None, outage], vec![Said::Released(0), Said::Held(1)]),
            ([None, outage], [None, None], vec![Said::Resumed]),
            ([outage, outage], [None, None], vec![Said::Resumed]),
        ];
        for (before, now, want) in rows {
            assert_eq!(news(before, now), want, "{before:?} {now:?}");
        }
    }
}
