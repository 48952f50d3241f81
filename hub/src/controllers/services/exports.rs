//! The EndpointSlices that agents have collected for ServiceExports become the hub's own.
//!
//! A cluster speaks for the Services that it exports: those whose ServiceExport is bound there. What it tells of others changes
//! nothing here.

mod silent;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::consts::{component, event, finalizer};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    names,
    services::{MULTICLUSTER, SERVICE_EXPORT, SERVICE_IMPORT, ServiceName, slices},
};
use karmada_meta::object;
use karmada_objects::{
    Part,
    key::Key,
    kinds::{ENDPOINT_SLICES, WORKS},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    super::{Context, Next, work},
    paces::{self, Paces},
    rooms::Rooms,
    said::Said,
    silence::{self, Silence},
};
use crate::known::heads::{BindingHead, ImportedHead, SliceHead};

/// How many Works are worked on at a time.
const WORKERS: usize = 4;
/// How long a slice that is on its way out is given.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes the hub's slices of exported Services.
pub(crate) struct Exports {
    context: Arc<Context>,
    rooms: Arc<Rooms>,
    silence: Arc<Silence>,
    /// Works, by their keys, also such as are gone.
    queue: WorkQueue<Key>,
    /// Works whose endpoints may be withdrawn, or not any more, by then.
    silent: WorkQueue<Key>,
    /// Clusters that are heard, or are not any more.
    heard: WorkQueue<Key>,
    /// Services whose ServiceExports may have to say something else.
    told: WorkQueue<Key>,
    /// What they say of clusters that are silent.
    stale: Arc<Mutex<BTreeMap<Key, Option<String>>>>,
    paces: Paces,
    said: Said,
}

fn key_of(service: &ServiceName) -> Key {
    Key::new(service.namespace.as_str(), service.name.as_str())
}

/// The Service that a binding's ServiceExport exports.
fn exports(head: &BindingHead) -> Option<ServiceName> {
    let resource = &head.resource;
    let group = resource.api_version.split('/').next().unwrap_or_default();
    (group == MULTICLUSTER && resource.kind == SERVICE_EXPORT)
        .then(|| ServiceName::new(resource.namespace.as_str(), resource.name.as_str()))
}

impl Exports {
    /// A controller that hears the context's Works, bindings, slices, imports and clusters from now on.
    pub(crate) fn new(context: &Arc<Context>, rooms: &Arc<Rooms>, silence: &Arc<Silence>) -> Self {
        let queue: WorkQueue<Key> = WorkQueue::with_lanes(context.env.clone(), |key: &Key| &key.namespace);
        context.figures.queue("endpointslice", &queue);
        let other = |name: &'static str| {
            let queue: WorkQueue<Key> = WorkQueue::new(context.env.clone());
            context.figures.queue(name, &queue);
            queue
        };
        let (heard, told) = (other("serviceexport-clusters"), other("serviceexport-status"));
        let silent = other("serviceexport-silent");
        let (made, tell) = (queue.clone(), told.clone());
        context.known.works.listen(move |change| {
            let differs = change.differs(|head| &head.content) || change.differs(|head| &head.deleting);
            let sides = [change.old, change.new].into_iter().flatten().filter(|_| differs);
            let slices = sides.filter_map(|head| head.slice.as_ref()).filter(|slice| slice.is_exported());
            for slice in slices {
                made.add(change.key.clone());
                let service = slice.export.iter();
                service.for_each(|service| tell.add_after(key_of(service), Duration::from_millis(200)));
            }
        });
        let hear = heard.clone();
        context.known.clusters.listen(move |change| {
            if silence::turns(change) {
                hear.add(change.key.clone());
            }
        });
        let (asked, shared) = (queue.clone(), Arc::downgrade(context));
        context.known.imports.listen(move |change| {
            let differs = change.differs(|head| &head.withdraw_after);
            if let Some(context) = shared.upgrade().filter(|_| differs) {
                let service = ServiceName::new(change.key.namespace.as_str(), change.key.name.as_str());
                let works = context.known.works.group(&SliceHead::of_export(&service));
                works.into_iter().for_each(|(work, _)| asked.add(work));
            }
        });
        let placed = queue.clone();
        rooms.listen(move |work| placed.add(work));
        let stale: Arc<Mutex<BTreeMap<Key, Option<String>>>> = Arc::default();
        let (bound, shared) = (queue.clone(), Arc::downgrade(context));
        let (tell, forget) = (told.clone(), stale.clone());
        context.known.bindings.namespaced.listen(move |change| {
            let Some(service) = exports(change.last()) else { return };
            let differs = change.differs(|head| &head.wanted) || change.differs(|head| &head.deleting);
            if let Some(context) = shared.upgrade().filter(|_| differs) {
                let works = context.known.works.group(&SliceHead::of_export(&service));
                works.into_iter().for_each(|(work, _)| bound.add(work));
                // It may be another one.
                forget.lock().remove(&key_of(&service));
                tell.add(key_of(&service));
            }
        });
        // Whoever takes one away, or changes it, gets it back; one without a Work goes.
        let made = queue.clone();
        context.known.imported.listen(move |change| made.add(change.last().work.clone()));
        let again = queue.clone();
        context.resync.tell(&context.known.imported, move |_, head| again.add(head.work.clone()));
        let paces = Paces::new(context.env.clone());
        let (context, rooms, silence) = (context.clone(), rooms.clone(), silence.clone());
        let said = Said::default();
        Self { context, rooms, silence, queue, silent, heard, told, stale, paces, said }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let known = &self.context.known;
        known.works.synced().await;
        known.bindings.synced().await;
        known.clusters.synced().await;
        known.imported.synced().await;
        known.imports.synced().await;
        tokio::join!(
            work("endpointslice", &self.queue, WORKERS, &stop, |key: Key| self.reconcile(key)),
            work("serviceexport-silent", &self.silent, 1, &stop, |key: Key| self.ask(key)),
            work("serviceexport-clusters", &self.heard, 1, &stop, |cluster: Key| self.hear(cluster)),
            work("serviceexport-status", &self.told, 1, &stop, |key: Key| self.tell(key)),
        );
    }

    /// Whether a cluster exports a Service.
    fn is_exported(&self, cluster: &str, service: &ServiceName) -> bool {
        let name = names::binding_name(SERVICE_EXPORT, &service.name);
        let binding = self.context.known.bindings.namespaced.get(&Key::new(service.namespace.as_str(), name));
        binding.is_some_and(|head| {
            !head.deleting && exports(&head).as_ref() == Some(service) && head.wanted.contains(cluster)
        })
    }

    /// The slices that a Work asks for, and when to ask again; or why it asks for none.
    fn wanted(&self, work: &Value) -> Result<(Vec<Value>, Option<Duration>), String> {
        let nothing = (Vec::new(), None);
        let Some(cluster) = names::cluster_of_namespace(object::namespace(work)) else {
            return Ok(nothing);
        };
        let Some(service) = slices::exported(work) else { return Ok(nothing) };
        if object::deletion_timestamp(work).is_some() || !slices::asked(work).export {
            return Ok(nothing);
        }
        if !self.is_exported(cluster, &service) {
            return Err(format!(
                "cluster {cluster} does not export Service {service}: no ServiceExport of that name is bound there"
            ));
        }
        self.rooms.counts(&self.context, &Key::of(work), (cluster, &service))?;
        let told = slices::told(work, &service)?;
        let (withdrawn, again) = self.withdrawn(&Key::of(work), (cluster, &service));
        let made = |slice: &Value| {
            let name = self.name(&Key::of(work), (cluster, &service), object::name(slice));
            slices::imported(work, &name, &service, slice, withdrawn)
        };
        Ok((told.into_iter().map(made).collect(), again))
    }

    /// The name of the hub's slice: Karmada's, unless that is the slice of another Work. One that has the other name keeps it.
    fn name(&self, work: &Key, (cluster, service): (&str, &ServiceName), slice: &str) -> String {
        let (usual, other) =
            (slices::imported_name(cluster, slice), slices::other_imported_name(cluster, slice));
        let maker = |name: &str| {
            let known = self.context.known.imported.get(&Key::new(service.namespace.as_str(), name));
            known.map(|head| head.work == *work)
        };
        match (maker(&other), maker(&usual)) {
            (Some(true), _) | (_, Some(false)) => other,
            _ => usual,
        }
    }

    async fn reconcile(&self, key: Key) -> Result<Next, Error> {
        let context = &self.context;
        let objects = &context.writer.objects;
        let live = objects.get(&WORKS, &key).await?;
        let made = context.known.imported.group(&key.to_string());
        let (wanted, again) = match live.as_ref().map(|work| self.wanted(work)) {
            None => {
                self.said.forget(&key);
                (Vec::new(), None)
            }
            Some(Ok(wanted)) => wanted,
            Some(Err(why)) => {
                // What was told before goes with its export, and nobody has to hear of it.
                let nothing = made.is_empty();
                if let Some(work) = live.as_ref().filter(|_| nothing && self.said.is_new(&key, &why)) {
                    tracing::warn!(work = %key, why, "what an agent tells of a Service does not count");
                    context.writer.warning(
                        component::ENDPOINT_SLICE,
                        work,
                        event::ENDPOINT_SLICE_REFUSED,
                        why,
                    );
                }
                (Vec::new(), None)
            }
        };
        let names: BTreeSet<&str> = wanted.iter().map(object::name).collect();
        for (slice, head) in made.iter().filter(|(slice, _)| !names.contains(slice.name.as_str())) {
            objects.delete_uid(&ENDPOINT_SLICES, slice, &head.uid).await?;
        }
        let Some(work) = live else { return Ok(Next::Done) };
        let mut next = Next::Done;
        if let Some(wait) = again {
            self.silent.add_after(key.clone(), wait);
        }
        if wanted.is_empty() {
            self.paces.take_back(&key);
        }
        let mut refused = Vec::new();
        for slice in &wanted {
            match self.make(&work, slice).await? {
                Made::Done => {}
                Made::Later(wait) => next = next.sooner(wait),
                Made::Refused(why, again) => {
                    refused.push((event::ENDPOINT_SLICE_REFUSED, why));
                    next = again.map_or(next, |wait| next.sooner(wait));
                }
            }
        }
        if !wanted.is_empty() {
            for (reason, why) in self.said.news(&key, refused) {
                tracing::warn!(work = %key, why, "an EndpointSlice cannot be made of what an agent tells");
                context.writer.warning(component::ENDPOINT_SLICE, &work, reason, why);
            }
        }
        let done = wanted.is_empty()
            && (object::deletion_timestamp(&work).is_some() || !slices::asked(&work).export);
        if done && object::finalizers(&work).contains(&finalizer::ENDPOINT_SLICE) {
            let uid = object::uid(&work).to_owned();
            let release = |live: &mut Value| {
                let ended = object::deletion_timestamp(live).is_some() || !slices::asked(live).export;
                object::uid(live) == uid && ended && object::remove_finalizer(live, finalizer::ENDPOINT_SLICE)
            };
            objects.modify(&WORKS, &key, Part::Main, release).await?;
        }
        Ok(next)
    }

    /// How many clusters import what a Work exports.
    fn importers(&self, work: &Value) -> usize {
        let Some(service) = slices::exported(work) else { return 0 };
        let name = names::binding_name(SERVICE_IMPORT, &service.name);
        let binding = self.context.known.bindings.namespaced.get(&Key::new(service.namespace.as_str(), name));
        binding.map_or(0, |head| head.wanted.len())
    }

    /// Makes a slice what it should be, in its pace: what is written here once goes to all who import it.
    async fn make(&self, from: &Value, wanted: &Value) -> Result<Made, Error> {
        let objects = &self.context.writer.objects;
        let (key, work) = (Key::of(wanted), &Key::of(from));
        let (content, importers) = (paces::content(from), self.importers(from));
        let wait = |lost| self.paces.wait(work, content, importers, lost);
        let Some(mut live) = objects.get(&ENDPOINT_SLICES, &key).await? else {
            let wait = wait(false);
            if !wait.is_zero() {
                return Ok(Made::Later(wait));
            }
            self.paces.begin(work, content, importers);
            return made(objects.create(&ENDPOINT_SLICES, wanted).await);
        };
        if object::deletion_timestamp(&live).is_some() {
            return Ok(Made::Later(PATIENCE));
        }
        if object::label(&live, slices::MANAGED_BY) != Some(slices::IMPORTER) {
            let why = format!(
                "EndpointSlice {key} is there and is somebody else's: give it another name, or delete it"
            );
            return Ok(Made::Refused(why, Some(PATIENCE * 30)));
        }
        if ImportedHead::project(&live).work != *work {
            // It was faster, and the index is about to say so.
            return Ok(Made::Later(Duration::from_millis(200)));
        }
        if live["addressType"] != wanted["addressType"] {
            // It is for good.
            objects.delete(&ENDPOINT_SLICES, &live).await?;
            return Ok(Made::Later(Duration::from_millis(100)));
        }
        let is_lost = paces::is_lost([wanted], [&live]);
        if slices::align(&mut live, wanted) {
            let wait = wait(is_lost);
            if !wait.is_zero() {
                return Ok(Made::Later(wait));
            }
            self.paces.begin(work, content, importers);
            return made(objects.replace(&ENDPOINT_SLICES, &live).await);
        }
        Ok(Made::Done)
    }
}

/// What came of making a slice.
enum Made {
    /// It is as it should be.
    Done,
    /// It is to be looked at again then.
    Later(Duration),
    /// It cannot be made, and why; and when that may be otherwise, if ever.
    Refused(String, Option<Duration>),
}

/// What came of writing one: what is refused is so for good.
fn made(written: Result<Value, Error>) -> Result<Made, Error> {
    match written {
        Ok(_) => Ok(Made::Done),
        Err(error) if error.is_invalid() || error.code() == Some(400) => {
            Ok(Made::Refused(error.to_string(), None))
        }
        Err(error) => Err(error),
    }
}
