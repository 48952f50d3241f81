//! MultiClusterServices of the type CrossCluster ([`karmada_core::services::multi`]).
//!
//! ```text
//!   MultiClusterService, Service, clusters ─▶ serve ─▶ markers on providers, the claimed Service, its binding
//!   collected Works ──────────────────────┬▶ dispatch ─▶ Works on consumers
//!   both ─────────────────────────────────┴▶ tell ─▶ conditions
//! ```
//!
//! A provider or consumer that is silent keeps what it has and gets what is new when it is back: its Works wait for it.

mod dispatch;
mod faults;
mod left;
mod tell;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::consts::{component, event, finalizer};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    names,
    services::{ServiceName, multi},
};
use karmada_meta::object;
use karmada_objects::{
    Part,
    key::{self, Key},
    kinds::{MULTI_CLUSTER_SERVICES, RESOURCE_BINDINGS, SERVICES, WORKS},
    scope::BindingKey,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::faults::Faults;
use super::{
    super::{Context, Next, work},
    paces::Paces,
    rooms::Rooms,
    said::Said,
    silence::{self, Silence},
};
use crate::{
    known::heads::{Carries, ClusterHead, MultiHead, SliceHead},
    write::{
        checks,
        works::{self, Made, Maker},
    },
};

/// How many of each are worked on at a time.
const WORKERS: usize = 4;
/// How long something is given that is on its way out, or somebody else's.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who reports.
const COMPONENT: &str = component::MULTI_CLUSTER_SERVICE;

/// Sees to MultiClusterServices.
pub(crate) struct Multi {
    context: Arc<Context>,
    rooms: Arc<Rooms>,
    silence: Arc<Silence>,
    served: WorkQueue<Key>,
    /// Collected Works, by their keys, also such as are gone.
    dispatched: WorkQueue<Key>,
    told: WorkQueue<Key>,
    /// How far those have come that take more than one turn.
    passes: Mutex<BTreeMap<Key, dispatch::Pass>>,
    paces: Paces,
    /// Clusters that are heard, or are not any more.
    heard: WorkQueue<Key>,
    /// What is wrong, by MultiClusterService, with its Service.
    wrong: Mutex<BTreeMap<Key, Wrong>>,
    /// And with what is brought to consumers.
    faults: Mutex<Faults>,
    /// Collected Works that nobody asks for any more, and since when.
    left: Mutex<BTreeMap<Key, Duration>>,
    said: Said,
}

#[derive(Clone, Debug, Default)]
struct Wrong {
    service: Option<String>,
    /// It was looked at.
    served: bool,
    /// It takes very many Works.
    many: bool,
}

fn key_of(service: &ServiceName) -> Key {
    Key::new(service.namespace.as_str(), service.name.as_str())
}

fn name_of(key: &Key) -> ServiceName {
    ServiceName::new(key.namespace.as_str(), key.name.as_str())
}

impl Multi {
    /// A controller that hears the context's MultiClusterServices, Works, clusters and templates from now on.
    pub(crate) fn new(context: &Arc<Context>, rooms: &Arc<Rooms>, silence: &Arc<Silence>) -> Self {
        let queue = |name: &'static str| {
            let queue: WorkQueue<Key> = WorkQueue::new(context.env.clone());
            context.figures.queue(name, &queue);
            queue
        };
        let (served, told) = (queue("multiclusterservice"), queue("multiclusterservice-status"));
        // However much one cluster tells, others have their turn.
        let dispatched: WorkQueue<Key> =
            WorkQueue::with_lanes(context.env.clone(), |key: &Key| &key.namespace);
        context.figures.queue("endpointslice-dispatch", &dispatched);
        let (serve, shared) = (served.clone(), Arc::downgrade(context));
        context.known.multi.listen(move |change| {
            serve.add(change.key.clone());
            if let Some(context) = shared.upgrade().filter(|_| change.old.is_none() || change.new.is_none()) {
                // Their Services are watched while there is one.
                context.known.templates.poke();
            }
        });
        let again = served.clone();
        context.resync.tell(&context.known.multi, move |key, _| again.add(key.clone()));
        let (dispatch, tell, serve) = (dispatched.clone(), told.clone(), served.clone());
        context.known.works.listen(move |change| {
            let differs = change.differs(|head| &head.content) || change.differs(|head| &head.deleting);
            let sides = [change.old, change.new].into_iter().flatten().filter(|_| differs);
            for slice in sides.filter_map(|head| head.slice.as_ref()) {
                match &slice.carries {
                    Carries::Collected if slice.is_dispatched() => dispatch.add(change.key.clone()),
                    Carries::Collected => {}
                    Carries::Dispatched(source) => dispatch.add(source.clone()),
                    Carries::Marker => slice.multi.iter().for_each(|service| serve.add(key_of(service))),
                }
                slice
                    .multi
                    .iter()
                    .for_each(|service| tell.add_after(key_of(service), Duration::from_millis(200)));
            }
        });
        let placed = dispatched.clone();
        rooms.listen(move |work| placed.add(work));
        let (serve, shared) = (served.clone(), Arc::downgrade(context));
        context.known.clusters.listen(move |change| {
            let of = |head: &Arc<ClusterHead>| (head.deleting, head.serves_slices());
            if change.old.map(of) == change.new.map(of) {
                return;
            }
            let Some(context) = shared.upgrade() else { return };
            for group in [MultiHead::ALL.to_owned(), MultiHead::of_cluster(&change.key.name)] {
                context.known.multi.group(&group).into_iter().for_each(|(key, _)| serve.add(key));
            }
        });
        let heard = queue("multiclusterservice-clusters");
        let hear = heard.clone();
        context.known.clusters.listen(move |change| {
            if silence::turns(change) {
                hear.add(change.key.clone());
            }
        });
        let (serve, shared) = (served.clone(), Arc::downgrade(context));
        context.known.templates.listen(move |kind, change| {
            if kind.group.is_empty()
                && kind.kind == "Service"
                && shared.upgrade().is_some_and(|context| context.known.multi.get(change.key).is_some())
            {
                serve.add(change.key.clone());
            }
        });
        let (context, said) = (context.clone(), Said::default());
        let (passes, paces) = (Mutex::default(), Paces::new(context.env.clone()));
        let (wrong, faults, left) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self {
            context,
            rooms: rooms.clone(),
            silence: silence.clone(),
            served,
            dispatched,
            told,
            passes,
            paces,
            heard,
            wrong,
            faults,
            left,
            said,
        }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let known = &self.context.known;
        known.multi.synced().await;
        known.works.synced().await;
        known.clusters.synced().await;
        known.namespaces.synced().await;
        // What is in use has its room.
        known.imported.synced().await;
        tokio::join!(
            work("multiclusterservice", &self.served, WORKERS, &stop, |key: Key| self.serve(key)),
            work("endpointslice-dispatch", &self.dispatched, WORKERS, &stop, |key: Key| self.dispatch(key)),
            work("multiclusterservice-clusters", &self.heard, 1, &stop, |cluster: Key| self.hear(cluster)),
            work("multiclusterservice-status", &self.told, WORKERS, &stop, |key: Key| self.tell(key)),
        );
    }

    /// A cluster is heard, or is not any more: a matter of the Services of which it tells, and of no others.
    async fn hear(&self, cluster: Key) -> Result<Next, Error> {
        let known = &self.context.known;
        let group = SliceHead::of_cluster(&names::execution_namespace(&cluster.name));
        for (work, head) in known.works.group(&group) {
            let Some(service) = head.slice.as_ref().and_then(|slice| slice.multi.as_ref()).map(key_of) else {
                continue;
            };
            let Some(multi) = known.multi.get(&service) else { continue };
            self.told.add(service);
            if multi.withdraw_after.is_some() {
                self.dispatched.add(work);
            }
        }
        Ok(Next::Done)
    }

    /// The clusters that a list of them means, which are there to stay.
    fn clusters(&self, named: Option<BTreeSet<&str>>) -> BTreeSet<String> {
        let clusters = &self.context.known.clusters;
        let stays =
            |name: &&str| clusters.get(&Key::cluster_scoped(*name)).is_some_and(|head| !head.deleting);
        match named {
            Some(names) => names.into_iter().filter(stays).map(str::to_owned).collect(),
            None => {
                let all = clusters.pages(None).flatten();
                all.filter(|(_, head)| !head.deleting).map(|(key, _)| key.name.clone()).collect()
            }
        }
    }

    /// The Works of a MultiClusterService that carry something.
    fn works_of(&self, key: &Key, carries: impl Fn(&SliceHead) -> bool) -> Vec<Key> {
        let works = self.context.known.works.group(&SliceHead::of_multi(&name_of(key)));
        let is = |(_, head): &(Key, Arc<crate::known::heads::WorkHead>)| {
            head.slice.as_ref().is_some_and(|slice| carries(slice))
        };
        works.into_iter().filter(is).map(|(work, _)| work).collect()
    }

    async fn serve(&self, key: Key) -> Result<Next, Error> {
        let objects = &self.context.writer.objects;
        let live = objects.get(&MULTI_CLUSTER_SERVICES, &key).await?;
        let Some(live) = live else {
            self.forget(&key);
            self.said.forget(&key);
            return self.end(&key).await;
        };
        let Some(spec) = key::read::<multi::Spec>(&live, "spec") else { return Ok(Next::Done) };
        if object::deletion_timestamp(&live).is_some() {
            return self.leave(&key, &live).await;
        }
        if !spec.is_cross_cluster() {
            return Ok(Next::Done);
        }
        let finalizer = finalizer::MULTI_CLUSTER_SERVICE;
        let live = if object::finalizers(&live).contains(&finalizer) {
            live
        } else {
            let mut changed = live;
            object::add_finalizer(&mut changed, finalizer);
            if let Err(errors) = checks::own(&MULTI_CLUSTER_SERVICES, None, &mut changed, &self.context.env) {
                tracing::warn!(multiclusterservice = %key, errors = %karmada_meta::path::aggregate(&errors), "it is not as it should be");
                return Ok(Next::Done);
            }
            objects.replace(&MULTI_CLUSTER_SERVICES, &changed).await?
        };
        let providers = self.clusters(multi::Spec::named(&spec.provider_clusters));
        let consumers = self.clusters(multi::Spec::named(&spec.consumer_clusters));
        self.name_missing(&key, &live, &spec);
        let mut next = self.mark(&key, &live, &providers).await?;
        let all: BTreeSet<String> = providers.union(&consumers).cloned().collect();
        let failure = self.propagate(&key, &live, &all).await?;
        let news = {
            let mut wrong = self.wrong.lock();
            let known = wrong.entry(key.clone()).or_default();
            let news = !known.served || known.service != failure;
            (known.service, known.served) = (failure.clone(), true);
            news
        };
        if news {
            self.told.add(key.clone());
        }
        if failure.is_some() {
            next = next.sooner(PATIENCE);
        }
        // Who provides and uses it may have changed.
        self.works_of(&key, |slice| slice.carries != Carries::Marker).into_iter().for_each(|work| {
            let head = self.context.known.works.get(&work);
            match head.as_ref().and_then(|head| head.slice.as_ref()).map(|slice| &slice.carries) {
                Some(Carries::Dispatched(source)) => self.dispatched.add(source.clone()),
                _ => self.dispatched.add(work),
            }
        });
        Ok(next)
    }

    /// Says which clusters cannot take part, when that changes.
    fn name_missing(&self, key: &Key, live: &Value, spec: &multi::Spec) {
        let mut missing = Vec::new();
        for (what, selectors) in
            [("Provider", &spec.provider_clusters), ("Consumer", &spec.consumer_clusters)]
        {
            for name in selectors.iter().map(|cluster| cluster.name.as_str()) {
                let head = self.context.known.clusters.get(&Key::cluster_scoped(name));
                match head {
                    None => missing
                        .push((event::CLUSTER_NOT_FOUND, format!("{what} cluster {name} is not found"))),
                    Some(head) if !head.serves_slices() => missing.push((
                        event::API_INCOMPATIBLE,
                        format!("{what} cluster {name} does not support EndpointSlice"),
                    )),
                    Some(_) => {}
                }
            }
        }
        for (reason, message) in self.said.news(key, missing) {
            self.context.writer.warning(COMPONENT, live, reason, message);
        }
    }

    /// Has providers collect, and no others. A provider that is away hears of it when it is back.
    async fn mark(&self, key: &Key, live: &Value, providers: &BTreeSet<String>) -> Result<Next, Error> {
        let name = multi::marker_name(&name_of(key));
        let mut next = Next::Done;
        for cluster in providers {
            let at = Key::new(names::execution_namespace(cluster), name.as_str());
            if self.context.known.namespaces.get(&Key::cluster_scoped(at.namespace.as_str())).is_none() {
                next = next.sooner(PATIENCE);
                continue;
            }
            let build = |existing: Option<&Value>, id: &str| multi::marker(live, cluster, existing, id);
            let made = works::ensure(&self.context.writer, &at, &Maker::Multi(key), build).await?;
            next = self.heed(next, &at, made);
        }
        for work in self.works_of(key, |slice| slice.carries == Carries::Marker) {
            if names::cluster_of_namespace(&work.namespace).is_none_or(|cluster| !providers.contains(cluster))
            {
                self.delete(&work).await?;
            }
        }
        Ok(next)
    }

    fn heed(&self, next: Next, at: &Key, made: Made) -> Next {
        match made {
            Made::Unchanged | Made::Written => {
                self.said.forget(at);
                next
            }
            Made::Going => next.sooner(PATIENCE),
            Made::Withheld(wait) => next.sooner(wait),
            Made::Taken(why) | Made::TooLarge(why) | Made::Refused(why) => {
                if self.said.is_new(at, &why) {
                    tracing::warn!(work = %at, why, "a Work of a MultiClusterService cannot be made");
                }
                next.sooner(PATIENCE * 12)
            }
        }
    }

    /// Deletes a Work, if it is still there and not on its way out; answers whether it was.
    async fn delete(&self, work: &Key) -> Result<bool, Error> {
        let live = self.context.writer.objects.get(&WORKS, work).await?;
        let Some(live) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            return Ok(false);
        };
        tracing::info!(%work, "no longer wanted");
        self.context.writer.delete_work(&live).await?;
        Ok(true)
    }

    /// Brings the Service to providers and consumers; answers why that cannot be done.
    async fn propagate(
        &self,
        key: &Key,
        live: &Value,
        clusters: &BTreeSet<String>,
    ) -> Result<Option<String>, Error> {
        let objects = &self.context.writer.objects;
        let claim = |template: &mut Value| {
            object::deletion_timestamp(template).is_none() && multi::claim(template, live)
        };
        let Some(template) = objects.modify(&SERVICES, key, Part::Main, claim).await? else {
            return Ok(Some(format!("Service {key} is not there")));
        };
        if object::deletion_timestamp(&template).is_some() {
            return Ok(Some(format!("Service {key} is being deleted")));
        }
        let at = BindingKey::of_template("Service", &key.namespace, &key.name).key;
        let existing = objects.get(&RESOURCE_BINDINGS, &at).await?;
        if let Some(why) =
            existing.as_ref().and_then(|known| karmada_objects::bindings::collision(known, &template))
        {
            return Ok(Some(why));
        }
        if existing.as_ref().is_some_and(|known| object::deletion_timestamp(known).is_some()) {
            return Ok(Some(format!("ResourceBinding {at} is being deleted")));
        }
        let mut wanted = multi::binding(&template, live, clusters, existing.as_ref());
        if existing.as_ref() == Some(&wanted) {
            return Ok(None);
        }
        if let Err(errors) =
            checks::own(&RESOURCE_BINDINGS, existing.as_ref(), &mut wanted, &self.context.env)
        {
            return Ok(Some(karmada_meta::path::aggregate(&errors)));
        }
        match existing {
            Some(_) => objects.replace(&RESOURCE_BINDINGS, &wanted).await?,
            None => objects.create(&RESOURCE_BINDINGS, &wanted).await?,
        };
        Ok(None)
    }

    /// A MultiClusterService is being deleted: first nobody collects any more, then what was collected goes.
    async fn leave(&self, key: &Key, live: &Value) -> Result<Next, Error> {
        if let Next::After(wait) = self.end(key).await? {
            return Ok(Next::After(wait));
        }
        let objects = &self.context.writer.objects;
        let name = name_of(key);
        objects.modify(&SERVICES, key, Part::Main, |template| multi::release(template, &name)).await?;
        let binding = BindingKey::of_template("Service", &key.namespace, &key.name);
        objects
            .modify(&RESOURCE_BINDINGS, &binding.key, Part::Main, |binding| multi::release(binding, &name))
            .await?;
        let uid = object::uid(live).to_owned();
        let release = |live: &mut Value| {
            object::uid(live) == uid && object::remove_finalizer(live, finalizer::MULTI_CLUSTER_SERVICE)
        };
        objects.modify(&MULTI_CLUSTER_SERVICES, key, Part::Main, release).await?;
        self.forget(key);
        Ok(Next::Done)
    }

    /// A MultiClusterService is gone, and what was wrong with it.
    fn forget(&self, key: &Key) {
        self.wrong.lock().remove(key);
        self.faults.lock().forget(key);
    }

    /// Takes away what is there for a MultiClusterService that is not any more. What agents have collected they take back
    /// themselves; that of one that is away goes with its mark, and what a stock one leaves a little later.
    async fn end(&self, key: &Key) -> Result<Next, Error> {
        for work in self.works_of(key, |slice| slice.carries == Carries::Marker) {
            self.delete(&work).await?;
        }
        for work in self.works_of(key, |slice| slice.carries != Carries::Marker) {
            let head = self.context.known.works.get(&work);
            match head.as_ref().and_then(|head| head.slice.as_ref()).map(|slice| slice.carries.clone()) {
                Some(Carries::Collected) => self.dispatched.add(work),
                Some(Carries::Dispatched(source)) => self.dispatched.add(source),
                Some(Carries::Marker) | None => {}
            }
        }
        let left = self.works_of(key, |slice| slice.carries != Carries::Collected).len();
        // They have finalizers of agents that may be away; nothing is left to be done about them here.
        Ok(if left == 0 { Next::Done } else { self.rest(key) })
    }

    /// Whether what is left of a MultiClusterService is on its way out.
    fn rest(&self, key: &Key) -> Next {
        let going = self
            .works_of(key, |slice| slice.carries != Carries::Collected)
            .iter()
            .all(|work| self.context.known.works.get(work).is_none_or(|head| head.deleting));
        if going { Next::Done } else { Next::After(Duration::from_millis(500)) }
    }
}
