//! The lease monitor: clusters that stop giving a sign of life become Unknown, and taints follow conditions.
//!
//! ```text
//!   Leases ──▶ Monitor (core::health) ── every period ──▶ Ready=Unknown ─┐
//!                                                                        ├─▶ Clusters ──▶ taints ──▶ scheduler
//!   agents ── Ready=True/False ──────────────────────────────────────────┘
//! ```
//!
//! Only the judgement waits for a tick. A condition that an agent posts moves the taints as soon as it is seen, so
//! that a cluster that is back is of use at once.

use std::{sync::Arc, time::SystemTime};

use karmada_api::{
    cluster::{ClusterSyncMode, Taint},
    conditions::{self, Condition, ConditionStatus},
    consts::{component, condition, event},
};
use karmada_client::{Error, WorkQueue, latest, watch::Health};
use karmada_core::{
    health::{Expired, Moment, Monitor, Settings},
    taints,
};
use karmada_env::Env;
use karmada_meta::time::Time;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    kinds::CLUSTERS,
    objects::{Key, Part},
};

/// How many clusters have their taints changed at a time.
const WORKERS: usize = 4;

/// Judges clusters by their Leases.
pub(crate) struct LeaseMonitor {
    context: Arc<Context>,
    monitor: Arc<Mutex<Monitor>>,
    period: std::time::Duration,
    queue: WorkQueue<String>,
}

impl LeaseMonitor {
    /// A monitor that hears the context's Leases and Clusters from now on.
    pub(crate) fn new(context: &Arc<Context>, settings: Settings) -> Self {
        let monitor = Arc::new(Mutex::new(Monitor::new(settings, moment(&context.env))));
        let (ear, env) = (monitor.clone(), context.env.clone());
        context.leases.listen(move |change| {
            if let Some(lease) = change.new {
                ear.lock().renewed(&change.key.name, &lease.renew_time, moment(&env));
            }
        });
        let queue = WorkQueue::new(context.env.clone());
        let clusters = queue.clone();
        context.clusters.listen(move |change| clusters.add(change.key.name.clone()));
        context.figures.queue("lease", &queue);
        Self { context: context.clone(), monitor, period: settings.period, queue }
    }

    /// Runs until told to stop. `watching` is the health of the Lease watch.
    pub(crate) async fn run(self, watching: latest::Receiver<Health>, stop: CancellationToken) {
        self.context.clusters.synced().await;
        let taints = work("lease", &self.queue, WORKERS, &stop, |name: String| self.taint(name));
        let judging = async {
            // The first tick comes at once; the startup grace makes it harmless.
            let mut ticks = interval(self.period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let live = watching.borrow().live;
                self.judge(live).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = taints => {}
            () = judging => {}
        }
    }

    /// One look at all clusters.
    async fn judge(&self, watching: bool) {
        let clusters = self.context.clusters.all();
        let pulled: Vec<_> = clusters
            .iter()
            .filter(|(_, head)| head.cluster.spec.sync_mode == ClusterSyncMode::Pull)
            .map(|(key, head)| (key.name.as_str(), head.ready()))
            .collect();
        let expired = self.monitor.lock().tick(moment(&self.context.env), watching, pulled);
        for (name, how) in expired {
            tracing::warn!(cluster = name, reason = how.reason(), "the cluster gives no sign of life");
            if let Err(error) = self.expire(name, how).await {
                // The next tick finds the same state and tries again.
                tracing::warn!(cluster = name, %error, "could not mark the cluster as unknown");
            }
        }
    }

    async fn expire(&self, name: &str, how: Expired) -> Result<(), Error> {
        let now = Time::now(&self.context.env);
        let seen = self.context.clusters.get(&Key::cluster_scoped(name)).map(|head| head.ready());
        self.context
            .objects
            .modify(&CLUSTERS, &Key::cluster_scoped(name), Part::Status, |cluster| {
                let mut list =
                    Vec::<Condition>::deserialize(&cluster["status"]["conditions"]).unwrap_or_default();
                let unknown = ConditionStatus::Unknown;
                let ready = conditions::find(&list, condition::READY).map(|c| c.status.as_str());
                if Some(karmada_core::health::Ready::from_status(ready)) != seen {
                    // The agent has posted something since it was judged.
                    return false;
                }
                let new = Condition::new(condition::READY, unknown, how.reason(), how.message(), now);
                let changed = conditions::set(&mut list, new, now);
                cluster["status"]["conditions"] = json!(list);
                changed
            })
            .await?;
        Ok(())
    }

    /// Makes a cluster's taints follow its condition.
    async fn taint(&self, name: String) -> Result<Next, Error> {
        let key = Key::cluster_scoped(name);
        let Some(head) = self.context.clusters.get(&key) else { return Ok(Next::Done) };
        let now = Time::now(&self.context.env);
        if taints::for_condition(&head.cluster.spec.taints, head.ready(), now).is_none() {
            return Ok(Next::Done);
        }
        let mut message = None;
        let written = self
            .context
            .objects
            .modify(&CLUSTERS, &key, Part::Main, |cluster| {
                message = None;
                let live = crate::heads::ClusterHead::project(cluster);
                let Some(wanted) = taints::for_condition(&live.cluster.spec.taints, live.ready(), now) else {
                    return false;
                };
                message = Some(taints::event_message(&wanted));
                set_taints(cluster, &wanted);
                true
            })
            .await;
        match (written, message) {
            (Ok(Some(cluster)), Some(message)) => {
                tracing::info!(cluster = %key.name, ready = ?head.ready(), taints = %message, "taints follow the cluster's state");
                self.context.normal(component::CLUSTER, &cluster, event::TAINT_CLUSTER_SUCCEED, message);
                Ok(Next::Done)
            }
            (Ok(_), _) => Ok(Next::Done),
            (Err(error), _) => {
                let reference = json!(*head.cluster);
                let text = format!("Taint cluster failed: {error}.");
                self.context.warning(component::CLUSTER, &reference, event::TAINT_CLUSTER_FAILED, text);
                Err(error)
            }
        }
    }
}

pub(super) fn set_taints(cluster: &mut Value, taints: &[Taint]) {
    let spec = karmada_meta::object::ensure_map(cluster, "spec");
    if taints.is_empty() {
        spec.remove("taints");
    } else {
        spec.insert("taints".to_owned(), json!(taints));
    }
}

fn moment(env: &Env) -> Moment {
    let wall = env.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment { monotonic: env.now(), wall }
}
