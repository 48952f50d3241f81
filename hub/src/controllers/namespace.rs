//! Namespaces: provided on every cluster, so that what is placed there finds its own.
//!
//! A Work of a Namespace belongs to the Namespace and goes with it (owner reference). A cluster that has a Namespace
//! of that name already keeps it: the manifest says `overwrite`, the agent adopts it, and releases it at the end. One that a
//! policy places goes everywhere all the same, as under Karmada: where its binding has a Work, by that one.

use std::{fmt, sync::Arc, time::Duration};

use karmada_api::consts::{annotation, component, event};
use karmada_client::{Error, WorkQueue};
use karmada_core::{names, overrides, select::Subject, work as core_work};
use karmada_meta::object;
use karmada_objects::{key::Key, kinds::NAMESPACES};
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use super::{Context, Next, binding::overriding, work};
use crate::{
    known::{
        Known,
        gathered::Gathered,
        heads::{ClusterHead, TemplateHead},
    },
    write::{
        Writer,
        works::{self, Made, Maker},
    },
};

/// How many Works are made at a time.
const WORKERS: usize = 4;
/// How long a Work that is somebody else's, or on its way out, is given before it is looked at again.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long after everything was queued for an override policy it may be queued again.
const PACE: Duration = Duration::from_secs(1);

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
    /// Namespaces, those of clusters among them.
    namespaces: Gathered,
    /// Clusters with other labels, which overrides select by.
    clusters: Gathered,
    overrides: Gathered,
}

impl NamespaceController {
    /// A controller that hears of Namespaces, Clusters, Works and cluster-wide overrides from now on.
    pub(crate) fn new(context: &Context) -> Self {
        let writer = &context.writer;
        let queue: WorkQueue<Place> = WorkQueue::new(writer.env.clone());
        let namespaces = Gathered::keys(&writer.known.namespaces, |_| true);
        let clusters = Gathered::keys(&writer.known.clusters, |change| {
            let labels = |head: &ClusterHead| head.cluster.metadata.labels.clone();
            change.old.map(|old| labels(old)) != change.new.map(|new| labels(new))
        });
        let overrides = Gathered::of(&writer.known.overrides.cluster, PACE, |_| true, |(), _| {});
        let (shared, places) = (Arc::downgrade(writer), queue.clone());
        writer.known.works.listen(move |change| {
            let Some(writer) = shared.upgrade() else { return };
            let last = change.last();
            // What a binding has let go of, or taken away, is provided from now on.
            if let Some(binding) = change.old.and_then(|old| old.binding.as_ref())
                && change.new.is_none_or(|new| new.binding.is_none())
                && let Some(namespace) = works::namespace_of(binding)
                && let Some(cluster) = names::cluster_of_namespace(&change.key.namespace)
            {
                places.add(Place { namespace: namespace.to_owned(), cluster: cluster.to_owned() });
            }
            let news = change.new.is_none_or(|new| {
                change.differs(|head| &head.content) && !writer.written.is_ours(change.key, new.content)
            });
            if last.binding.is_some() || last.owner.is_empty() || !news {
                return;
            }
            let Some(cluster) = names::cluster_of_namespace(&change.key.namespace) else { return };
            for (key, _) in writer.known.namespaces.group(&TemplateHead::of_uid(&last.owner)) {
                places.add(Place { namespace: key.name, cluster: cluster.to_owned() });
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
                let reason = event::NAMESPACE_RELEASED;
                writer.warning(component::NAMESPACE_SYNC, &about, reason, words.as_str());
            }
        });
        let (places, shared) = (queue.clone(), Arc::downgrade(&writer.known));
        context.resync.tell(&writer.known.clusters, move |cluster, _| {
            if let Some(known) = shared.upgrade() {
                on_cluster(&known, &cluster.name, &places);
            }
        });
        context.figures.queue("namespace", &queue);
        Self { writer: writer.clone(), queue, namespaces, clusters, overrides }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.writer.known.clusters.synced().await;
        self.writer.known.namespaces.synced().await;
        self.writer.known.works.synced().await;
        self.writer.known.overrides.synced().await;
        self.namespaces.forget();
        self.clusters.forget();
        self.overrides.forget();
        tokio::select! {
            biased;
            () = work("namespace", &self.queue, WORKERS, &stop, |place: Place| self.reconcile(place)) => {}
            () = self.follow() => {}
        }
    }

    /// Queues everything, and then what changes concern. Runs for ever.
    async fn follow(&self) {
        self.everywhere().await;
        let namespaces = self.namespaces.each(|namespace, ()| {
            match names::cluster_of_namespace(&namespace.name) {
                // A cluster can take Works once it has its execution namespace.
                Some(cluster) => self.on_cluster(cluster),
                None => self.of_namespace(namespace),
            }
        });
        let clusters = self.clusters.each(|cluster, ()| self.on_cluster(&cluster.name));
        let overrides = async {
            loop {
                self.overrides.next().await;
                self.everywhere().await;
            }
        };
        tokio::join!(namespaces, clusters, overrides);
    }

    /// Queues all Namespaces on all clusters.
    async fn everywhere(&self) {
        for page in self.writer.known.clusters.pages(None) {
            for (cluster, _) in page {
                self.on_cluster(&cluster.name);
                yield_now().await;
            }
        }
    }

    /// Queues all Namespaces on one cluster.
    fn on_cluster(&self, cluster: &str) {
        on_cluster(&self.writer.known, cluster, &self.queue);
    }

    /// Queues one Namespace on all clusters.
    fn of_namespace(&self, namespace: &Key) {
        let known = &self.writer.known;
        if known.provides(&namespace.name) {
            for (cluster, _) in known.clusters.pages(None).flatten() {
                let cluster = cluster.name.clone();
                self.queue.add(Place { namespace: namespace.name.clone(), cluster });
            }
        }
    }

    async fn reconcile(&self, place: Place) -> Result<Next, Error> {
        let writer = &self.writer;
        let cluster = writer.known.clusters.get(&Key::cluster_scoped(place.cluster.as_str()));
        let Some(cluster) = cluster.filter(|head| !head.deleting) else { return Ok(Next::Done) };
        let execution = names::execution_namespace(&place.cluster);
        let ready = writer
            .known
            .namespaces
            .get(&Key::cluster_scoped(execution.as_str()))
            .is_some_and(|n| !n.deleting);
        if !ready || !writer.known.provides(&place.namespace) {
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
            Made::Withheld(wait) => Next::After(wait),
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

/// Queues all Namespaces on one cluster.
fn on_cluster(known: &Known, cluster: &str, places: &WorkQueue<Place>) {
    for (key, _) in known.namespaces.group(TemplateHead::OF_USERS) {
        if known.provides(&key.name) {
            places.add(Place { namespace: key.name, cluster: cluster.to_owned() });
        }
    }
}
