//! ClusterTaintPolicies: taints follow the conditions of clusters, as users say ([`karmada_core::taint_policy`]).

use std::{sync::Arc, time::Duration};

use karmada_api::consts::{component, event};
use karmada_client::{Error, WorkQueue};
use karmada_core::{taint_policy, taints};
use karmada_meta::time::Time;
use karmada_objects::{Part, key::Key, kinds::CLUSTERS};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, lease::set_taints, work};
use crate::{known::heads::ClusterHead, write::Writer};

/// How many clusters are worked on at a time.
const WORKERS: usize = 4;
/// Clusters come in swarms when a policy changes.
const SOON: Duration = Duration::ZERO;

/// Makes taints follow policies.
pub(crate) struct TaintPolicies {
    writer: Arc<Writer>,
    queue: WorkQueue<String>,
}

impl TaintPolicies {
    /// A controller that hears of clusters and policies from now on.
    pub(crate) fn new(context: &Context) -> Self {
        let writer = &context.writer;
        let queue: WorkQueue<String> = WorkQueue::new(writer.env.clone());
        let clusters = queue.clone();
        writer.known.clusters.listen(move |change| {
            let conditions =
                |head: &Arc<ClusterHead>| head.cluster.status.as_ref().map(|s| s.conditions.clone());
            if change.new.is_some() && change.old.map(conditions) != change.new.map(conditions) {
                clusters.add(change.key.name.clone());
            }
        });
        let (all, policies) = (writer.known.clusters.clone(), queue.clone());
        writer.known.taint_policies.listen(move |change| {
            // What a policy has put on stays when it is deleted.
            if change.new.is_some() {
                for (cluster, _) in all.all() {
                    policies.add_after(cluster.name, SOON);
                }
            }
        });
        let again = queue.clone();
        context.resync.tell(&writer.known.clusters, move |cluster, _| again.add(cluster.name.clone()));
        context.figures.queue("cluster-taint-policy", &queue);
        Self { writer: writer.clone(), queue }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // Policies have their say in the order of their ages.
        self.writer.known.taint_policies.synced().await;
        self.writer.known.clusters.synced().await;
        work("cluster-taint-policy", &self.queue, WORKERS, &stop, |name: String| self.reconcile(name)).await;
    }

    async fn reconcile(&self, name: String) -> Result<Next, Error> {
        let mut policies: Vec<_> =
            self.writer.known.taint_policies.all().into_iter().map(|(_, head)| head).collect();
        policies.sort_by(|a, b| a.born.cmp(&b.born));
        let key = Key::cluster_scoped(name);
        let Some(head) = self.writer.known.clusters.get(&key) else { return Ok(Next::Done) };
        let now = Time::now(&self.writer.env);
        let wanted = |head: &ClusterHead| {
            taint_policy::taints(&head.cluster, policies.iter().map(|head| &head.policy.spec), now)
        };
        if wanted(&head).is_none() {
            return Ok(Next::Done);
        }
        let mut message = None;
        let change = |live: &mut serde_json::Value| {
            message = None;
            let Some(taints) = wanted(&ClusterHead::project(live)) else { return false };
            message = Some(format!(
                "Update Cluster({}) with taints({}) succeed",
                key.name,
                taints::listed(&taints)
            ));
            set_taints(live, &taints);
            true
        };
        let written = self.writer.objects.modify(&CLUSTERS, &key, Part::Main, change).await;
        match (written, message) {
            (Ok(Some(cluster)), Some(message)) => {
                tracing::info!(cluster = %key.name, %message, "taints follow policies");
                let component = component::CLUSTER_TAINT_POLICY;
                self.writer.normal(component, &cluster, event::TAINT_CLUSTER_SUCCEED, message);
                Ok(Next::Done)
            }
            (Ok(_), _) => Ok(Next::Done),
            (Err(error), _) => {
                let about = serde_json::json!(*head.cluster);
                let component = component::CLUSTER_TAINT_POLICY;
                self.writer.warning(component, &about, event::TAINT_CLUSTER_FAILED, error.to_string());
                Err(error)
            }
        }
    }
}
