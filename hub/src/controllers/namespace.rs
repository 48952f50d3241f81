//! Namespaces: provided on every cluster, so that what is placed there finds its own.
//!
//! A Work of a Namespace belongs to the Namespace and goes with it (owner reference). A cluster that has a Namespace
//! of that name already keeps it: the manifest says `overwrite`, the agent adopts it, and releases it at the end.

use std::sync::Arc;

use karmada_api::consts::{annotation, component, event, extension, label};
use karmada_client::{Error, WorkQueue};
use karmada_core::{names, overrides, select::Subject, work as core_work};
use karmada_meta::object;
use karmada_objects::{key::Key, kinds::NAMESPACES};
use serde_json::{Value, json};
use std::fmt;
use tokio_util::sync::CancellationToken;

use super::{Next, binding::overriding, work};
use crate::{
    known::{Known, heads::TemplateHead},
    metrics::HubFigures,
    write::{
        Writer,
        works::{self, Made, Maker},
    },
};

/// How many Works are made at a time.
const WORKERS: usize = 4;
/// How long a Work that is somebody else's, or on its way out, is given before it is looked at again.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// One Namespace on one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    namespace: String,
    cluster: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.namespace, self.cluster)
    }
}

/// Provides Namespaces on clusters.
pub(crate) struct NamespaceController {
    writer: Arc<Writer>,
    queue: WorkQueue<Place>,
}

impl NamespaceController {
    /// A controller that hears of Namespaces, Clusters, Works and cluster-wide overrides from now on.
    pub(crate) fn new(writer: &Arc<Writer>, figures: &HubFigures) -> Self {
        let queue: WorkQueue<Place> = WorkQueue::new(writer.env.clone());
        let (shared, places) = (Arc::downgrade(writer), queue.clone());
        writer.known.namespaces.listen(move |change| {
            let Some(writer) = shared.upgrade() else { return };
            match names::cluster_of_namespace(&change.key.name) {
                // A cluster can take Works once it has its execution namespace.
                Some(cluster) => everywhere(&writer.known, Some(cluster), None, &places),
                None => everywhere(&writer.known, None, Some(&change.key.name), &places),
            }
        });
        let (shared, places) = (Arc::downgrade(writer), queue.clone());
        writer.known.clusters.listen(move |change| {
            let labels = |head: &Arc<crate::known::heads::ClusterHead>| head.cluster.metadata.labels.clone();
            if change.old.map(labels) != change.new.map(labels)
                && let Some(writer) = shared.upgrade()
            {
                everywhere(&writer.known, Some(&change.key.name), None, &places);
            }
        });
        let (shared, places) = (Arc::downgrade(writer), queue.clone());
        writer.known.works.listen(move |change| {
            let Some(writer) = shared.upgrade() else { return };
            let last = change.last();
            let news = change.new.is_none_or(|new| {
                change.differs(|head| &head.content) && !writer.written.is_ours(change.key, new.content)
            });
            if last.binding.is_some() || last.owner.is_empty() || !news {
                return;
            }
            let owner = writer.known.namespaces.all().into_iter().find(|(_, head)| head.uid == last.owner);
            if let (Some((key, _)), Some(cluster)) =
                (owner, names::cluster_of_namespace(&change.key.namespace))
            {
                places.add(Place { namespace: key.name, cluster: cluster.to_owned() });
            }
        });
        let (shared, places) = (Arc::downgrade(writer), queue.clone());
        writer.known.overrides.cluster.listen(move |_| {
            if let Some(writer) = shared.upgrade() {
                everywhere(&writer.known, None, None, &places);
            }
        });
        let shared = Arc::downgrade(writer);
        writer.known.works.listen(move |change| {
            let Some(released) = change.new.and_then(|head| head.released.as_deref()) else { return };
            // A hub that starts finds what was told before.
            if change.old.is_some_and(|old| old.released.as_deref() != Some(released))
                && let Some(writer) = shared.upgrade()
            {
                let (name, words) = released;
                let about = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                // An agent may not say so itself: it tells only of its own objects.
                let reason = extension::NAMESPACE_RELEASED;
                writer.warning(component::NAMESPACE_SYNC, &about, reason, words.as_str());
            }
        });
        figures.queue("namespace", &queue);
        Self { writer: writer.clone(), queue }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.writer.known.clusters.synced().await;
        self.writer.known.namespaces.synced().await;
        self.writer.known.works.synced().await;
        self.writer.known.overrides.synced().await;
        work("namespace", &self.queue, WORKERS, &stop, |place: Place| self.reconcile(place)).await;
    }

    async fn reconcile(&self, place: Place) -> Result<Next, Error> {
        let writer = &self.writer;
        let Some(head) = writer.known.namespaces.get(&Key::cluster_scoped(place.namespace.as_str())) else {
            return Ok(Next::Done);
        };
        let cluster = writer.known.clusters.get(&Key::cluster_scoped(place.cluster.as_str()));
        let Some(cluster) = cluster.filter(|head| !head.deleting) else { return Ok(Next::Done) };
        let execution = names::execution_namespace(&place.cluster);
        let ready = writer
            .known
            .namespaces
            .get(&Key::cluster_scoped(execution.as_str()))
            .is_some_and(|n| !n.deleting);
        if !ready || !provided(&writer.known, &place.namespace, &head) {
            return Ok(Next::Done);
        }
        let Some(live) =
            writer.objects.get(&NAMESPACES, &Key::cluster_scoped(place.namespace.as_str())).await?
        else {
            return Ok(Next::Done);
        };
        if object::deletion_timestamp(&live).is_some() {
            return Ok(Next::Done);
        }
        let (manifest, applied) = match self.manifest(&live, &cluster.cluster) {
            Ok(overridden) => overridden,
            Err(why) => {
                let text = format!("Apply override policy for cluster({}) failed: {why}", place.cluster);
                writer.warning(component::OVERRIDE_MANAGER, &live, event::APPLY_OVERRIDE_POLICY_FAILED, text);
                return Ok(Next::Done);
            }
        };
        let key = Key::new(execution, names::work_name("Namespace", "", &place.namespace));
        let made = works::ensure(writer, &key, &Maker::Namespace(object::uid(&live)), |existing, id| {
            core_work::build_namespace(&manifest, &applied, &place.cluster, existing, || id.to_owned())
        })
        .await?;
        Ok(match made {
            Made::Unchanged | Made::Written => Next::Done,
            // A binding that carries the Namespace itself does what is to be done here.
            Made::Taken(why) => {
                tracing::debug!(%place, why, "the Namespace is provided otherwise");
                Next::Done
            }
            Made::Going => Next::After(PATIENCE),
            Made::TooLarge(why) | Made::Refused(why) => {
                let text = format!("Failed to provide the namespace on cluster({}): {why}", place.cluster);
                writer.warning(component::NAMESPACE_SYNC, &live, event::SYNC_WORK_FAILED, text);
                Next::Done
            }
        })
    }

    /// The Namespace as a cluster gets it, with the metadata that its Work's stamps are taken from, and which overrides
    /// it has seen.
    fn manifest(
        &self,
        live: &Value,
        cluster: &karmada_api::cluster::Cluster,
    ) -> Result<(Value, overrides::Applied), String> {
        let mut manifest = live.clone();
        let uid = object::uid(live).to_owned();
        karmada_interpreter::prune(&mut manifest);
        let (policies, _) = overriding(&self.writer.known, &Subject::of(live));
        let applied =
            overrides::apply(&mut manifest, cluster, &policies, &[]).map_err(|error| error.to_string())?;
        object::set_meta(&mut manifest, "uid", uid);
        if object::annotation(&manifest, annotation::CONFLICT_RESOLUTION).is_none() {
            let overwrite = annotation::CONFLICT_RESOLUTION_OVERWRITE;
            object::set_annotation(&mut manifest, annotation::CONFLICT_RESOLUTION, overwrite);
        }
        Ok((manifest, applied))
    }
}

/// Whether a Namespace goes to all clusters by itself: not the hub's own, not one whose label forbids it, and not
/// one that a policy places.
fn provided(known: &Known, name: &str, head: &TemplateHead) -> bool {
    let claimed = [label::PROPAGATION_POLICY_ID, label::CLUSTER_PROPAGATION_POLICY_ID];
    !head.deleting
        && !claimed.iter().any(|key| head.labels.contains_key(*key))
        && !known.skip.auto_provision(name, |key| head.labels.get(key).map(String::as_str))
}

/// Queues one Namespace on all clusters, or all Namespaces on one cluster, or all on all.
fn everywhere(known: &Known, cluster: Option<&str>, namespace: Option<&str>, places: &WorkQueue<Place>) {
    let clusters = match cluster {
        Some(cluster) => vec![cluster.to_owned()],
        None => known.clusters.all().into_iter().map(|(key, _)| key.name).collect(),
    };
    for (key, head) in known.namespaces.all() {
        if namespace.is_some_and(|wanted| wanted != key.name) || !provided(known, &key.name, &head) {
            continue;
        }
        for cluster in &clusters {
            places.add(Place { namespace: key.name.clone(), cluster: cluster.clone() });
        }
    }
}
