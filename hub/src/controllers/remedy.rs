//! Remedies: `status.remedyActions` of clusters follows their conditions, as users say ([`karmada_core::remedy`]).

use std::sync::Arc;

use karmada_client::{Error, WorkQueue};
use karmada_core::remedy;
use karmada_meta::object;
use karmada_objects::{Part, key::Key, kinds::CLUSTERS};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    known::heads::{ClusterHead, RemedyHead},
    write::Writer,
};

/// How many clusters are worked on at a time.
const WORKERS: usize = 4;

/// Makes actions follow Remedies.
pub(crate) struct Remedies {
    writer: Arc<Writer>,
    queue: WorkQueue<String>,
}

impl Remedies {
    /// A controller that hears of clusters and Remedies from now on.
    pub(crate) fn new(context: &Context) -> Self {
        let writer = &context.writer;
        let queue: WorkQueue<String> = WorkQueue::new(writer.env.clone());
        let clusters = queue.clone();
        writer.known.clusters.listen(move |change| {
            let said = |head: &Arc<ClusterHead>| {
                let status = head.cluster.status.as_ref();
                status.map(|status| (status.conditions.clone(), status.remedy_actions.clone()))
            };
            if change.new.is_some() && change.old.map(said) != change.new.map(said) {
                clusters.add(change.key.name.clone());
            }
        });
        let (all, concerned) = (writer.known.clusters.clone(), queue.clone());
        writer.known.remedies.listen(move |change| {
            for head in [change.old, change.new].into_iter().flatten() {
                match remedy::named(&head.spec) {
                    Some(names) => names.iter().for_each(|name| concerned.add(name.clone())),
                    None => all.pages(None).flatten().for_each(|(key, _)| concerned.add(key.name.clone())),
                }
            }
        });
        let again = queue.clone();
        context.resync.tell(&writer.known.clusters, move |cluster, _| again.add(cluster.name.clone()));
        context.figures.queue("remedy", &queue);
        Self { writer: writer.clone(), queue }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // With half of the Remedies known, actions would go and come.
        self.writer.known.remedies.synced().await;
        self.writer.known.clusters.synced().await;
        work("remedy", &self.queue, WORKERS, &stop, |name: String| self.reconcile(name)).await;
    }

    async fn reconcile(&self, name: String) -> Result<Next, Error> {
        let known = &self.writer.known;
        let groups = [RemedyHead::ALL.to_owned(), RemedyHead::of_cluster(&name)];
        let remedies: Vec<_> = groups.iter().flat_map(|group| known.remedies.group(group)).collect();
        let key = Key::cluster_scoped(name);
        let Some(head) = known.clusters.get(&key).filter(|head| !head.deleting) else {
            return Ok(Next::Done);
        };
        let wanted = |head: &ClusterHead| {
            remedy::actions(&head.cluster, remedies.iter().map(|(_, remedy)| &remedy.spec))
        };
        let has = |head: &ClusterHead| {
            head.cluster.status.as_ref().map(|status| status.remedy_actions.clone()).unwrap_or_default()
        };
        if wanted(&head) == has(&head) {
            return Ok(Next::Done);
        }
        let change = |live: &mut Value| {
            let head = ClusterHead::project(live);
            let actions = wanted(&head);
            if head.deleting || actions == has(&head) {
                return false;
            }
            let status = object::ensure_map(live, "status");
            if actions.is_empty() {
                status.shift_remove("remedyActions");
            } else {
                status.insert("remedyActions".to_owned(), json!(actions));
            }
            true
        };
        if let Some(live) = self.writer.objects.modify(&CLUSTERS, &key, Part::Status, change).await? {
            tracing::info!(cluster = %key.name, actions = %live["status"]["remedyActions"], "actions follow Remedies");
        }
        Ok(Next::Done)
    }
}
