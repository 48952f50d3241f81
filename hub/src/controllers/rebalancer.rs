//! WorkloadRebalancers: a user asks that some objects be placed anew.
//!
//! Each names objects; their bindings are told when the wish was made ([`karmada_core::rebalance`]), and the scheduler
//! divides them from scratch. The wish records what became of each object, and goes when its time is over.

use std::{fmt, sync::Arc};

use karmada_api::apps::{WorkloadRebalancerSpec, WorkloadRebalancerStatus, WorkloadReference};
use karmada_client::{Error, WorkQueue};
use karmada_core::rebalance;
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part, bindings,
    key::{self, Key},
    kinds::WORKLOAD_REBALANCERS,
    scope::BindingKey,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Next, work};
use crate::{metrics::HubFigures, write::Writer};

/// How many wishes are worked on at a time.
const WORKERS: usize = 2;

/// A wish, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish(Key);

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

/// Has objects placed anew.
pub(crate) struct Rebalancer {
    writer: Arc<Writer>,
    queue: WorkQueue<Wish>,
}

impl Rebalancer {
    /// A controller that hears of wishes from now on.
    pub(crate) fn new(writer: &Arc<Writer>, figures: &HubFigures) -> Self {
        let queue: WorkQueue<Wish> = WorkQueue::new(writer.env.clone());
        figures.queue("workload-rebalancer", &queue);
        let wishes = queue.clone();
        writer.known.rebalancers.listen(move |change| {
            if change.differs(|generation| generation) {
                wishes.add(Wish(change.key.clone()));
            }
        });
        Self { writer: writer.clone(), queue }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        work("workload-rebalancer", &self.queue, WORKERS, &stop, |wish: Wish| self.reconcile(wish)).await;
    }

    async fn reconcile(&self, Wish(key): Wish) -> Result<Next, Error> {
        let objects = &self.writer.objects;
        let live = objects.get(&WORKLOAD_REBALANCERS, &key).await?;
        let Some(live) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            return Ok(Next::Done);
        };
        let (Some(spec), Some(before)) = (
            key::read::<WorkloadRebalancerSpec>(&live, "spec"),
            key::read::<WorkloadRebalancerStatus>(&live, "status"),
        ) else {
            return Ok(Next::Done);
        };
        let Some(wished) = object::creation_timestamp(&live) else { return Ok(Next::Done) };
        let mut observed = rebalance::observe(&spec, &before);
        let mut failed = None;
        let pending: Vec<_> = rebalance::pending(&observed).cloned().collect();
        for workload in pending {
            match self.trigger(&workload, wished).await {
                Ok(found) => rebalance::record(&mut observed, &workload, found),
                // The others are told all the same; this one when it is tried again.
                Err(error) => failed = Some(error),
            }
        }
        let now = Time::now(&self.writer.env);
        let status = rebalance::status(observed, object::generation(&live), &before, now);
        if let Some(status) = &status {
            let write = |live: &mut Value| {
                let written = json!(status);
                let changed = live["status"] != written;
                live["status"] = written;
                changed
            };
            objects.modify(&WORKLOAD_REBALANCERS, &key, Part::Status, write).await?;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        match rebalance::expires(&spec, status.as_ref().unwrap_or(&before), now) {
            None => Ok(Next::Done),
            Some(left) if !left.is_zero() => Ok(Next::After(left)),
            Some(_) => {
                objects.delete_uid(&WORKLOAD_REBALANCERS, &key, object::uid(&live)).await?;
                Ok(Next::Done)
            }
        }
    }

    /// Tells an object's binding when the wish was made. Whether there is one.
    async fn trigger(&self, workload: &WorkloadReference, wished: Time) -> Result<bool, Error> {
        let key = BindingKey::of_template(&workload.kind, &workload.namespace, &workload.name);
        let time = |at: &Value| at.as_str().and_then(|at| at.parse().ok());
        let heard = |live: &Value| rebalance::trigger(time(&live["spec"]["rescheduleTriggeredAt"]), wished);
        let (objects, resource) = (&self.writer.objects, bindings::resource(key.scope));
        let reopen = |live: &mut Value| {
            let last = time(&live["status"]["lastScheduledTime"]);
            let Some(at) = heard(live).and_then(|_| rebalance::unanswered(last, wished)) else {
                return false;
            };
            live["status"]["lastScheduledTime"] = json!(at);
            true
        };
        objects.modify(resource, &key.key, Part::Status, reopen).await?;
        let mut found = false;
        let tell = |live: &mut Value| {
            found = true;
            let Some(at) = heard(live) else { return false };
            object::ensure_map(live, "spec").insert("rescheduleTriggeredAt".into(), json!(at));
            true
        };
        objects.modify(resource, &key.key, Part::Main, tell).await?;
        Ok(found)
    }
}
