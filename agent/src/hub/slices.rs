//! EndpointSlices of Services that are used in other clusters, from the member to Works on the hub.
//!
//! ```text
//!   Works that ask for Services ─▶ asked ─┐
//!   the member's slices, while any is ────┼─▶ queue, each at its pace ─▶ POST, PUT or DELETE of its Work
//!   own Works on the hub, at the begin ───┘
//! ```
//!
//! A Work goes when nobody asks for its Service any more, or when its slice is gone: a whole list does not have it, and the member
//! says so when it is asked. What an agent has told does not come back to it: the watch of Works leaves it out.

mod checks;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_client::{
    Error, Event, Policy, Resource, Rest, Wake, WatchConfig, WorkQueue,
    kept::{self, Kept},
    rest::query_value,
    wake::Listener,
    watch::{Index, Keeping},
};
use karmada_core::services::{
    Asked, ServiceName,
    collect::Pace,
    slices::{self, Taken},
};
use karmada_env::Env;
use karmada_member::{Asking, Member, rights::Rights};
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{cluster::ClusterView, outbox::works};
use crate::config::AgentConfig;

/// Selects what an agent has collected.
const COLLECTED: &str = "endpointslice.karmada.io/managed-by";
/// Selects everything else.
pub(super) const OTHERS: &str = "!endpointslice.karmada.io/managed-by";

/// Works per page.
const PAGE: usize = 100;
/// Writes under way at a time.
const AT_ONCE: usize = 4;
/// Works come several at a time.
const TOGETHER: Duration = Duration::from_millis(100);
/// When something is looked at again that is on its way out, or may not be done yet.
const PATIENCE: Duration = Duration::from_secs(2);
/// While the hub does not answer, or does not take it.
const RETRY: Policy = Policy::full(Duration::from_millis(500), Duration::from_secs(60));

/// A slice's namespace and name.
type SliceKey = (String, String);

/// A slice as the member has it.
#[derive(Clone, Debug)]
struct Seen {
    service: ServiceName,
    digest: u64,
    taken: Taken,
    slice: Arc<Value>,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        (&self.service, self.digest) == (&other.service, other.digest)
    }
}

impl Seen {
    fn nothing() -> Self {
        Self {
            service: ServiceName::default(),
            digest: 0,
            taken: Taken::default(),
            slice: Arc::new(Value::Null),
        }
    }

    /// Bytes beyond itself.
    fn elsewhere(&self) -> usize {
        let taken = self.taken.texts().map(|one| 2 * size_of::<String>() + kept::text(one));
        kept::json(&self.slice) + taken.sum::<usize>()
    }
}

/// A Work as the hub has it.
#[derive(Clone, Debug)]
struct Held {
    metadata: Value,
    digest: u64,
    asked: Asked,
    service: ServiceName,
}

#[derive(Debug, Default)]
struct State {
    asking: BTreeMap<ServiceName, Asking>,
    slices: Index<SliceKey, Kept<Seen>>,
    held: BTreeMap<SliceKey, Held>,
    paces: BTreeMap<SliceKey, Pace>,
}

impl State {
    fn asked(&self, service: &ServiceName) -> Asked {
        self.asking.get(service).map(|asking| asking.asked).unwrap_or_default()
    }

    /// What there is about some Services.
    fn of(&self, services: &BTreeSet<ServiceName>) -> BTreeSet<SliceKey> {
        let seen = self.slices.iter().filter(|(_, seen)| services.contains(&seen.service));
        let held = self.held.iter().filter(|(_, held)| services.contains(&held.service));
        seen.map(|(key, _)| key.clone()).chain(held.map(|(key, _)| key.clone())).collect()
    }
}

/// What is to be done about a slice.
enum Act {
    /// Nothing, or nothing yet.
    Wait(Option<Duration>),
    Tell(Seen, Asked, Option<Held>),
    /// Its Work goes; if the member has no such slice, where that is to be asked.
    Remove(Held, bool),
}

/// See the module.
pub(crate) struct Collector {
    pub(crate) hub: Rest,
    pub(crate) member: Rest,
    pub(crate) env: Env,
    pub(crate) config: Arc<AgentConfig>,
    pub(crate) rights: Rights,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) half: Arc<Member>,
}

impl Collector {
    /// Collects while this agent speaks for the cluster. When the hub may be another it begins anew.
    pub(crate) async fn run(&self) {
        loop {
            self.rights.reporting().await;
            let mut relists = self.half.desired().relists();
            let collecting = Collecting {
                collector: self,
                queue: WorkQueue::with_policy(self.env.clone(), RETRY),
                state: Mutex::default(),
                anew: Wake::new(),
                doubt: Wake::new(),
            };
            tokio::select! {
                biased;
                () = self.rights.when(|standing| !standing.may_report()) => {}
                () = relists.woken() => {}
                () = collecting.run() => {}
            }
        }
    }

    fn collection(&self) -> String {
        works().collection(Some(&self.config.execution_namespace()))
    }

    fn path(&self, held: &Held) -> String {
        works().object(
            Some(&self.config.execution_namespace()),
            object::name(&json!({"metadata": held.metadata})),
        )
    }
}

fn endpoint_slices() -> Resource {
    Resource::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true)
}

impl Held {
    /// Reads a Work that was collected; with the slice that it holds.
    fn of(work: &Value) -> Option<(SliceKey, Self)> {
        if !slices::is_collected(work) || object::deletion_timestamp(work).is_some() {
            return None;
        }
        let slice = work.pointer("/spec/workload/manifests/0")?;
        let key = (object::namespace(slice).to_owned(), object::name(slice).to_owned());
        let service = slices::service(slice)?;
        let mut metadata = work["metadata"].clone();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.shift_remove("managedFields");
        }
        Some((key, Self { metadata, digest: slices::digest(slice), asked: slices::asked(work), service }))
    }
}

/// One course of it, with what it knows.
struct Collecting<'a> {
    collector: &'a Collector,
    queue: WorkQueue<SliceKey>,
    state: Mutex<State>,
    /// The slices are to be listed anew, or not at all.
    anew: Wake,
    /// The hub may not have any more what it was told.
    doubt: Wake,
}

impl Collecting<'_> {
    async fn run(&self) {
        let desired = self.collector.half.desired();
        let mut changes = desired.services_change();
        let mut lists = desired.lists();
        let asking = loop {
            match desired.services() {
                Some(asking) => break asking,
                None => changes.woken().await,
            }
            lists = desired.lists();
        };
        self.state.lock().asking = asking;
        // Most members are asked for none.
        Box::pin(self.collect(changes, lists)).await;
    }

    /// Collects, once something is asked for.
    async fn collect(&self, mut changes: Listener, mut lists: u64) {
        let desired = self.collector.half.desired();
        self.recall().await;
        let follow = async {
            loop {
                changes.woken().await;
                sleep(TOGETHER).await;
                changes.clear();
                if std::mem::replace(&mut lists, desired.lists()) != lists {
                    // What has happened before it is not known.
                    self.doubt.wake();
                }
                if let Some(asking) = desired.services() {
                    self.ask(asking);
                }
            }
        };
        let reporters = futures::future::join_all((0..AT_ONCE).map(|_| self.report()));
        let mut back = self.collector.config.hub_back.listen();
        let hurry = async {
            loop {
                back.woken().await;
                self.queue.retry_all_now();
            }
        };
        tokio::select! {
            () = follow => {}
            () = hurry => {}
            () = self.keep_checking() => {}
            () = self.follow_slices() => {}
            _ = reporters => {}
        }
    }

    /// Learns what the hub has of it.
    async fn recall(&self) {
        let mut backoff = karmada_client::Backoff::new(RETRY);
        loop {
            match self.list().await {
                Ok(held) => {
                    let mut state = self.state.lock();
                    held.keys().for_each(|key| self.queue.add(key.clone()));
                    state.held = held;
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "collected slices cannot be listed yet");
                    let pause =
                        backoff.next(&self.collector.env).max(error.retry_after().unwrap_or_default());
                    sleep(pause).await;
                }
            }
        }
    }

    async fn list(&self) -> Result<BTreeMap<SliceKey, Held>, Error> {
        let mut pages = self.collector.hub.pages(self.collected(), PAGE).or_anew();
        let mut held = BTreeMap::new();
        while let Some(page) = pages.next::<Value>().await? {
            if page.is_first {
                held.clear();
            }
            held.extend(page.items.iter().filter_map(Held::of));
        }
        Ok(held)
    }

    /// The list of what the hub has of it.
    fn collected(&self) -> String {
        format!("{}?labelSelector={}", self.collector.collection(), query_value(COLLECTED))
    }

    /// Other Services are asked for, or by others.
    fn ask(&self, asking: BTreeMap<ServiceName, Asking>) {
        let mut state = self.state.lock();
        let names: BTreeSet<ServiceName> = asking.keys().chain(state.asking.keys()).cloned().collect();
        let differ = |name: &ServiceName| asking.get(name) != state.asking.get(name);
        let differing: BTreeSet<ServiceName> = names.into_iter().filter(differ).collect();
        let is_new = differing.iter().any(|name| !state.asking.contains_key(name));
        let is_anothers = |name: &ServiceName| {
            let (before, now) = (state.asking.get(name), asking.get(name));
            before.zip(now).is_some_and(|(before, now)| before.asked == now.asked)
        };
        if differing.iter().any(is_anothers) {
            // Between the first and the other nobody has asked, and the hub may have taken back what was told.
            self.doubt.wake();
        }
        let was_empty = state.asking.is_empty();
        state.asking = asking;
        state.of(&differing).into_iter().for_each(|key| self.queue.add(key));
        // Slices are kept of what was asked for alone.
        if is_new || was_empty || state.asking.is_empty() {
            drop(state);
            self.anew.wake();
        }
    }

    /// Watches the member's slices while a Service is asked for.
    async fn follow_slices(&self) {
        let mut anew = self.anew.listen();
        loop {
            {
                let mut state = self.state.lock();
                state.slices = Index::new();
            }
            let services: BTreeSet<ServiceName> = self.state.lock().asking.keys().cloned().collect();
            if services.is_empty() {
                anew.woken().await;
                continue;
            }
            let config = WatchConfig::new(endpoint_slices().collection(None))
                .labels(slices::NATIVE)
                .wake(&self.collector.config.member_back);
            let parse = move |text: &str| -> Result<(SliceKey, Option<Seen>), String> {
                let slice: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
                let key = (object::namespace(&slice).to_owned(), object::name(&slice).to_owned());
                let service = slices::service(&slice).filter(|service| services.contains(service));
                let seen = service.map(|service| Seen {
                    service,
                    digest: slices::digest(&slice),
                    taken: Taken::of(&slice),
                    slice: Arc::new(slice),
                });
                Ok((key, seen))
            };
            let member = self.collector.member.clone();
            let elsewhere = |(namespace, name): &SliceKey, seen: &Option<Seen>| {
                4 * (kept::text(namespace) + kept::text(name)) + seen.as_ref().map_or(0, Seen::elsewhere)
            };
            let mut watcher = Keeping::new(member, config, self.collector.env.clone(), parse, elsewhere);
            loop {
                tokio::select! {
                    biased;
                    () = anew.woken() => break,
                    event = watcher.next() => match event {
                        Some(event) => self.take(event),
                        None => self.lose(),
                    },
                }
            }
        }
    }

    /// Nothing is known of the slices any more.
    fn lose(&self) {
        let mut state = self.state.lock();
        state.slices.lose();
        state.paces.clear();
    }

    /// Takes in what the watch of slices tells.
    fn take(&self, event: Event<(SliceKey, Kept<Option<Seen>>)>) {
        let mut state = self.state.lock();
        let is_end = matches!(event, Event::Synced);
        let touched: Option<SliceKey> = match &event {
            Event::Upsert((key, _)) | Event::Delete((key, _)) => Some(key.clone()),
            Event::Init | Event::Synced => None,
        };
        let before = touched.as_ref().and_then(|key| state.slices.get(key)).map(|seen| seen.taken.clone());
        let changed = match event {
            Event::Init => state.slices.apply(Event::Init),
            Event::Synced => state.slices.apply(Event::Synced),
            Event::Upsert((key, seen)) => match seen.transpose() {
                Some(seen) => state.slices.apply(Event::Upsert((key, seen))),
                None => state.slices.apply(Event::Delete((key, Kept::nowhere(Seen::nothing())))),
            },
            // Whoever deletes, what is deleted is told by its key.
            Event::Delete((key, _)) => {
                state.slices.apply(Event::Delete((key, Kept::nowhere(Seen::nothing()))))
            }
        };
        let now = self.collector.env.now();
        for key in changed {
            let taken = state.slices.get(&key).map(|seen| seen.taken.clone()).unwrap_or_default();
            let lost = is_end || before.as_ref().is_some_and(|before| taken.lacks(before));
            let pace = state.paces.entry(key.clone()).or_default();
            pace.changed(now, lost);
            let wait = pace.wait(now).unwrap_or_default();
            self.queue.add_after(key, wait);
        }
        if is_end {
            // Now it is known which are gone.
            state.held.keys().for_each(|key| self.queue.add(key.clone()));
        }
    }

    async fn report(&self) {
        while let Some(key) = self.queue.next().await {
            match Box::pin(self.look(&key)).await {
                Ok(wait) => {
                    let again = (*key).clone();
                    key.done();
                    if let Some(wait) = wait {
                        self.queue.add_after(again, wait);
                    }
                }
                Err(error) => {
                    if error.is_unreachable() || self.queue.failures(&key) > 0 {
                        tracing::debug!(namespace = %key.0, slice = %key.1, %error, "a slice is told later");
                    } else {
                        tracing::warn!(namespace = %key.0, slice = %key.1, %error, "the hub does not take a slice");
                    }
                    key.retry_after(error.retry_after());
                }
            }
        }
    }

    fn decide(&self, key: &SliceKey) -> Act {
        let (now, rights) = (self.collector.env.now(), &self.collector.rights);
        let mut state = self.state.lock();
        let held = state.held.get(key).cloned();
        let seen = state.slices.get(key).map(|seen| seen.value().clone());
        let service = seen.as_ref().map(|seen| &seen.service);
        let service = service.or_else(|| held.as_ref().map(|held| &held.service));
        let asked = service.map(|service| state.asked(service)).unwrap_or_default();
        match (seen, held) {
            (None, None) => {
                state.paces.remove(key);
                Act::Wait(None)
            }
            (_, Some(_)) if !rights.may_delete() && asked.is_none() => Act::Wait(Some(PATIENCE)),
            (_, Some(held)) if asked.is_none() => Act::Remove(held, false),
            (_, None) if asked.is_none() => Act::Wait(None),
            (None, Some(_)) if !state.slices.synced() || !rights.may_delete() => Act::Wait(Some(PATIENCE)),
            (None, Some(held)) => Act::Remove(held, true),
            (Some(seen), held) => {
                let pace = state.paces.entry(key.clone()).or_default();
                match &held {
                    Some(held)
                        if (held.digest, held.asked, &held.service)
                            == (seen.digest, asked, &seen.service) =>
                    {
                        pace.settled();
                        return Act::Wait(None);
                    }
                    Some(held) if held.asked != asked => {}
                    _ => {
                        if let Some(wait) = pace.wait(now).filter(|wait| !wait.is_zero()) {
                            return Act::Wait(Some(wait));
                        }
                    }
                }
                pace.told(now);
                Act::Tell(seen, asked, held)
            }
        }
    }

    /// Does what is to be done about a slice; answers when to look again.
    async fn look(&self, key: &SliceKey) -> Result<Option<Duration>, Error> {
        let going =
            self.collector.view.get().is_some_and(|cluster| object::deletion_timestamp(&cluster).is_some());
        if going {
            // The hub takes back all that it has of this cluster.
            return Ok(None);
        }
        match self.decide(key) {
            Act::Wait(wait) => Ok(wait),
            Act::Tell(seen, asked, held) => {
                let told = self.tell(key, &seen, asked, held).await;
                if !matches!(told, Ok(None)) {
                    self.state
                        .lock()
                        .paces
                        .entry(key.clone())
                        .or_default()
                        .changed(self.collector.env.now(), true);
                }
                told
            }
            Act::Remove(held, ask) => self.remove(key, &held, ask).await,
        }
    }

    async fn tell(
        &self,
        key: &SliceKey,
        seen: &Seen,
        asked: Asked,
        held: Option<Held>,
    ) -> Result<Option<Duration>, Error> {
        let Collector { hub, env, config, .. } = self.collector;
        let existing = held.as_ref().map(|held| {
            json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": held.metadata, "spec": {}})
        });
        let mut work =
            slices::collected(&seen.slice, &config.cluster, asked, existing.as_ref(), || env.uuid());
        let written = match &held {
            Some(held) => hub.put_for_revision(&self.collector.path(held), &work).await,
            None => hub.post_for_revision(&self.collector.collection(), &work).await,
        };
        match written {
            Ok(revision) => {
                object::set_meta(&mut work, "resourceVersion", revision);
                if let Some((key, held)) = Held::of(&work) {
                    self.state.lock().held.insert(key, held);
                }
                Ok(None)
            }
            Err(error)
                if error.is_conflict()
                    || error.is_already_exists()
                    || (held.is_some() && error.is_not_found()) =>
            {
                self.read_anew(key, object::name(&work)).await
            }
            Err(error) => Err(error),
        }
    }

    /// Somebody else has written a Work, or has it; answers when to look again.
    async fn read_anew(&self, key: &SliceKey, name: &str) -> Result<Option<Duration>, Error> {
        let path = works().object(Some(&self.collector.config.execution_namespace()), name);
        let (held, wait) = match self.collector.hub.get(&path).await {
            Ok(work) if object::deletion_timestamp(&work).is_some() => (None, PATIENCE),
            Ok(work) => match Held::of(&work) {
                Some((_, held)) => (Some(held), Duration::ZERO),
                None => {
                    tracing::warn!(work = name, namespace = %key.0, slice = %key.1, "a Work of that name is the hub's, and the slice cannot be told");
                    (None, RETRY_TAKEN)
                }
            },
            Err(error) if error.is_absence_of(name) => (None, Duration::ZERO),
            Err(error) => return Err(error),
        };
        let mut state = self.state.lock();
        match held {
            Some(held) => drop(state.held.insert(key.clone(), held)),
            None => drop(state.held.remove(key)),
        }
        Ok(Some(wait.max(Duration::from_millis(1))))
    }

    async fn remove(&self, key: &SliceKey, held: &Held, ask: bool) -> Result<Option<Duration>, Error> {
        if ask {
            let path = endpoint_slices().object(Some(&key.0), &key.1);
            match self.collector.member.get(&path).await {
                Err(error) if error.is_absence_of(&key.1) => {}
                // One that is another Service's now is not this one's.
                Ok(slice) if slices::service(&slice).as_ref() == Some(&held.service) => {
                    return Ok(Some(PATIENCE));
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        let metadata = &held.metadata;
        let options = json!({"preconditions": {"resourceVersion": metadata["resourceVersion"]}});
        let path = self.collector.path(held);
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        match self.collector.hub.delete(&path, &options).await {
            Err(error) if error.is_conflict() => self.read_anew(key, &name).await,
            Err(error) if !error.is_absence_of(&name) => Err(error),
            _ => {
                let mut state = self.state.lock();
                state.held.remove(key);
                if state.slices.get(key).is_none() {
                    state.paces.remove(key);
                }
                Ok(None)
            }
        }
    }
}

/// A name that is taken may be free later.
const RETRY_TAKEN: Duration = Duration::from_secs(60);
