//! What is seen of our objects on the member: one watch per kind that some Work holds, of labelled objects only.
//!
//! ```text
//!   kinds that Works hold ─▶ Observer::watch(kind) ─▶ Watcher (label karmada.io/managed=true) ─▶ Sight per object
//!                                                                                                   │ changed, gone
//!                                                              queue of Works ◀─ the Work it names ─┘
//! ```
//!
//! Of an object stays what decides: uid, fingerprint of our fields, what the interpreter reads of its status. That an
//! object left a watch only says that it is not selected any more; whoever acts on that asks the member first.
//!
//! Answers to what is written show objects, too: see [`super::sights`]. What is missed all the same ends with the next
//! full list ([`COMPARE`]).

use std::{collections::BTreeSet, future::poll_fn, panic::resume_unwind, sync::Arc, time::Duration};

use karmada_api::consts::label;
use karmada_client::{
    Event, Resource, Rest, Wake, WatchConfig,
    kept::{self, Kept, Shelf},
    watch::{self, Keeping},
};
use karmada_env::Env;
use karmada_interpreter::Interpreter;
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::{JoinError, JoinSet};

use super::{
    discovery::Apis,
    scope::Scope,
    sights::{Kind, Place, Sight, Sights, by_rule, is_news, sight},
};
use crate::{revision::Revision, works::desired::ObjectId};

/// After so long, and up to half of it more, everything that is watched is listed and compared anew.
const COMPARE: Duration = Duration::from_secs(4 * 3600);

/// A watch that the member has refused for so long is told of.
const REFUSED: Duration = Duration::from_secs(60);

/// What an observer asks of the rest of the agent.
pub(crate) struct Ways {
    /// Called with the name of a Work of which something was seen.
    pub(crate) notice: Box<dyn Fn(&str) + Send + Sync>,
    /// Whether a version of a kind is served, as far as is known, and some Work holds it.
    pub(crate) in_use: Box<dyn Fn(&Resource) -> bool + Send + Sync>,
}

/// Keeps the watches and what they see.
pub(crate) struct Observer {
    member: Rest,
    /// Where what answers have shown has its place.
    answers: Shelf,
    env: Env,
    execution_namespace: String,
    scope: Scope,
    wake: Wake,
    /// Given when the member has turned out to be another.
    another: Wake,
    ways: Arc<Ways>,
    interpreter: Arc<Interpreter>,
    inner: Arc<Mutex<Sights>>,
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.inner.lock();
        f.debug_struct("Observer")
            .field("objects", &inner.sights.len())
            .field("kinds", &inner.watches.len())
            .finish()
    }
}

impl Observer {
    pub(crate) fn new(
        member: Rest,
        env: Env,
        execution_namespace: String,
        scope: Scope,
        wake: Wake,
        ways: Ways,
        interpreter: Arc<Interpreter>,
    ) -> Self {
        Self {
            answers: member.shelf().all(),
            member,
            env,
            execution_namespace,
            scope,
            wake,
            another: Wake::new(),
            ways: Arc::new(ways),
            interpreter,
            inner: Arc::default(),
            tasks: Mutex::new(JoinSet::new()),
        }
    }

    pub(crate) fn get(&self, id: &ObjectId) -> Option<Sight> {
        self.inner.lock().sights.get(id).map(|sight| sight.value().clone())
    }

    /// Objects whose annotations name a Work.
    pub(crate) fn of_work(&self, work: &str) -> Vec<ObjectId> {
        self.inner.lock().of_work(work).cloned().collect()
    }

    /// Whether absence of an object of this kind means anything yet.
    pub(crate) fn synced(&self, group: &str, kind: &str) -> bool {
        let inner = self.inner.lock();
        let of_kind = |place: &Place| place.kind.0 == group && place.kind.1 == kind;
        let mut watches = inner.watches.iter().filter(|(place, _)| of_kind(place)).peekable();
        watches.peek().is_some() && watches.all(|(_, watched)| watched.synced)
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().sights.len()
    }

    /// Takes in what an answer of the member showed, unless something newer is known of the object. Answers what is.
    pub(crate) fn note(&self, id: &Arc<ObjectId>, answer: Sight) -> Sight {
        let mut inner = self.inner.lock();
        // A kind that is not watched would be remembered for ever.
        let namespace = self.scope.place_of(&id.namespace).to_owned();
        let place = Place { kind: (id.group.clone(), id.kind.clone()), namespace };
        let Some(watched) = inner.watches.get(&place) else { return answer };
        let known = inner.sights.get(id).map(|known| known.value());
        if is_news(&answer, known, watched.revision) {
            // Where there is no room the watch has lost the kind, or is about to.
            if let Ok(kept) = Kept::new(answer.clone(), answer.elsewhere(id), &self.answers) {
                inner.set(id, kept);
            }
            return answer;
        }
        known.cloned().unwrap_or(answer)
    }

    /// The member was asked for an object and has shown a state that is older than one that was `known` before: it is
    /// another than it was, or was restored from an older copy.
    pub(crate) fn doubt(&self, known: Option<&Sight>, shown: &Sight) {
        if known.is_some_and(|known| known.uid == shown.uid && shown.revision.is_before(known.revision)) {
            self.member_is_another();
        }
    }

    /// The member's revisions do not compare with those that were seen: everything is listed anew.
    pub(crate) fn member_is_another(&self) {
        tracing::warn!("the member is another than it was: everything is listed anew");
        // At once: one object that has turned out so is enough.
        self.inner.lock().begin_histories();
        self.another.wake();
    }

    /// Watches a kind from now on, in this version unless it is watched in another that is in use.
    pub(crate) fn watch(&self, resource: &Resource) {
        for namespace in self.scope.places(resource) {
            let place = Place { kind: (resource.group.clone(), resource.kind.clone()), namespace };
            let other = match self.inner.lock().watches.get(&place) {
                Some(watched) if watched.resource == *resource => continue,
                Some(watched) => Some(watched.resource.clone()),
                None => None,
            };
            if !other.is_some_and(|other| (self.ways.in_use)(&other)) {
                self.begin(place, resource);
            }
        }
    }

    /// The member serves this now: watches of versions that it does not serve go on in others.
    pub(crate) fn serves(&self, apis: &Apis) {
        let others: Vec<(Place, Resource)> = {
            let inner = self.inner.lock();
            let lost = inner.watches.iter().filter(|(_, watched)| {
                let Resource { group, version, kind, .. } = &watched.resource;
                apis.resource(group, version, kind).is_none()
                    && !apis.missing.contains(&watched.resource.api_version())
            });
            let preferred = |place: &Place| apis.preferred(&place.kind.0, &place.kind.1).cloned();
            lost.filter_map(|(place, _)| Some((place.clone(), preferred(place)?))).collect()
        };
        for (place, resource) in others {
            tracing::info!(kind = %place.kind.1, namespace = %place.namespace, version = %resource.version, "watched in another version: the member serves the former no more");
            self.begin(place, &resource);
        }
    }

    /// Kinds whose watches the member has refused for long, and what it says.
    pub(crate) fn failing(&self) -> Vec<(String, Arc<str>)> {
        let (inner, now) = (self.inner.lock(), self.env.now());
        let refused = inner.watches.iter().filter_map(|(place, watched)| {
            let (since, why) = watched.refused.as_ref()?;
            let long = now.saturating_sub(*since) >= REFUSED;
            let (api_version, kind) = (watched.resource.api_version(), &watched.resource.kind);
            let namespace = match place.namespace.as_str() {
                "" => String::new(),
                namespace => format!(" in namespace {namespace}"),
            };
            long.then(|| (format!("{api_version}, Kind={kind}{namespace}"), why.clone()))
        });
        refused.collect()
    }

    fn begin(&self, place: Place, resource: &Resource) {
        let (watch, stop) = self.inner.lock().begin(&place, resource.clone());
        let within = Some(place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let config = WatchConfig::new(resource.collection(within))
            .labels(format!("{}={}", label::MANAGED, label::MANAGED_VALUE))
            .wake(&self.wake)
            .anew(&self.another)
            .relist(COMPARE);
        let (api_version, namespace) = (resource.api_version(), self.execution_namespace.clone());
        let (group, name_of_kind) = place.kind.clone();
        let (interpreter, rules) = (Arc::clone(&self.interpreter), Arc::clone(&self.interpreter));
        let namespace_of_rules = namespace.clone();
        let read = move |text: &str| {
            let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
            // Items of a list do not say what they are.
            value["apiVersion"] = api_version.clone().into();
            value["kind"] = name_of_kind.clone().into();
            let id = ObjectId {
                group: group.clone(),
                kind: name_of_kind.clone(),
                namespace: object::namespace(&value).to_owned(),
                name: object::name(&value).to_owned(),
            };
            let sight = Sight::of(&value, &namespace);
            // What takes a script is looked at where one can wait for it.
            let whole = by_rule(&rules, &value).then_some(value);
            Ok((Arc::new(id), (sight, whole)))
        };
        let elsewhere = |id: &Arc<ObjectId>, (sight, whole): &(Sight, Option<Value>)| {
            sight.elsewhere(id) + whole.as_ref().map_or(0, kept::json)
        };
        let watcher = Keeping::new(self.member.clone(), config, self.env.clone(), read, elsewhere);
        let mut follower = Follower {
            watcher,
            watch,
            place,
            inner: Arc::clone(&self.inner),
            ways: Arc::clone(&self.ways),
            env: self.env.clone(),
            interpreter,
            namespace: namespace_of_rules,
        };
        // It is ten thousand bytes, and would have room twice where it is waited for beside something else.
        let task = Box::pin(async move { follower.follow().await });
        self.tasks.lock().spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Looks after the watches until they are stopped. A watch that panics ends the agent as any other part would: what
    /// it no longer sees would stay as it is, and nobody would know.
    pub(crate) async fn run(&self) {
        // Whoever waits for a set that is empty is not told when it no longer is.
        self.tasks.lock().spawn(std::future::pending());
        while let Some(ended) = poll_fn(|context| self.tasks.lock().poll_join_next(context)).await {
            if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
                resume_unwind(panic);
            }
        }
        std::future::pending().await
    }

    /// Stops every watch, for good.
    pub(crate) fn stop(&self) {
        self.tasks.lock().abort_all();
    }

    /// Looks anew at all objects of some kinds, by group and kind: other rules say what is seen of them. What was seen
    /// stays until then.
    pub(crate) fn look_anew(&self, changed: impl Fn(&str, &str) -> bool) {
        let mut inner = self.inner.lock();
        let changed = |place: &&Place| changed(&place.kind.0, &place.kind.1);
        let places: Vec<Place> = inner.watches.keys().filter(changed).cloned().collect();
        for place in places {
            inner.end(&place);
        }
    }

    /// Stops the watches of kinds that no Work holds any more.
    pub(crate) fn keep_only(&self, kinds: &BTreeSet<Kind>) {
        let mut inner = self.inner.lock();
        let is_idle = |place: &&Place| !kinds.contains(&place.kind);
        let idle: Vec<_> = inner.watches.keys().filter(is_idle).cloned().collect();
        for place in idle {
            inner.end(&place);
            let gone: Vec<_> = inner.of_place(&place).map(|(id, _)| Arc::clone(id)).collect();
            for id in gone {
                inner.remove(&id);
            }
        }
    }
}

/// Takes in the events of one kind, and gives notice of the Works they touch.
struct Follower {
    watcher: Keeping<Arc<ObjectId>, (Sight, Option<Value>)>,
    watch: u64,
    place: Place,
    inner: Arc<Mutex<Sights>>,
    ways: Arc<Ways>,
    env: Env,
    interpreter: Arc<Interpreter>,
    namespace: String,
}

impl Follower {
    async fn follow(&mut self) {
        let mut listed: Option<BTreeSet<Arc<ObjectId>>> = None;
        let (mut health, mut history) = (self.watcher.health(), self.watcher.history());
        loop {
            let event = tokio::select! {
                biased;
                event = self.watcher.next() => event,
                Ok(()) = health.changed() => {
                    let health = health.borrow_and_update().clone();
                    self.is_doing(&health);
                    continue;
                }
            };
            let Some(event) = event else {
                listed = None;
                let mut inner = self.inner.lock();
                if inner.watches.get(&self.place).is_none_or(|watched| watched.id != self.watch) {
                    return;
                }
                inner.lose(&self.place);
                continue;
            };
            let event = match event {
                Event::Init => Event::Init,
                Event::Synced => Event::Synced,
                Event::Upsert((id, seen)) => {
                    let seen = self.look(&id, seen).await;
                    Event::Upsert((id, seen))
                }
                Event::Delete((id, seen)) => {
                    let last = seen.map(|(sight, _)| sight, |_| 0);
                    Event::Delete((id, last))
                }
            };
            let revision = self.watcher.revision().map_or(Revision::UNKNOWN, Revision::read);
            let touched = {
                let mut inner = self.inner.lock();
                let Some(watched) = inner.watches.get_mut(&self.place).filter(|w| w.id == self.watch) else {
                    return;
                };
                // A list that is under way has not come anywhere yet.
                if listed.is_none() || matches!(event, Event::Synced) {
                    watched.revision = revision;
                }
                if std::mem::replace(&mut history, self.watcher.history()) != self.watcher.history() {
                    inner.begin_history(&self.place);
                }
                inner.take_in(&self.place, event, &mut listed)
            };
            for work in &touched {
                (self.ways.notice)(work);
            }
        }
    }

    /// What is seen of an object, by users' rules where there are any.
    async fn look(&mut self, id: &ObjectId, seen: Kept<(Sight, Option<Value>)>) -> Kept<Sight> {
        let ruled = match &seen.1 {
            Some(whole) => {
                let before = self.inner.lock().sights.get(id).map(|sight| sight.seen.clone());
                Some(Box::pin(sight(&self.interpreter, whole, &self.namespace, before)).await)
            }
            None => None,
        };
        seen.map(|(sight, _)| ruled.unwrap_or(sight), |sight| sight.elsewhere(id))
    }

    /// Takes in how the watch is doing.
    fn is_doing(&self, health: &watch::Health) {
        let mut inner = self.inner.lock();
        let Some(watched) = inner.watches.get_mut(&self.place).filter(|w| w.id == self.watch) else { return };
        watched.refused = match (&health.error, health.code) {
            (None, _) => None,
            (Some(why), Some(403 | 404)) => {
                let since = watched.refused.as_ref().map_or_else(|| self.env.now(), |(since, _)| *since);
                Some((since, why.clone()))
            }
            // A link that is away says nothing about it.
            _ => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it sees no more would stay as it is on the member, and nobody would know.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_panics_ends_whoever_looks_after_it() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let mut foreseen: Vec<http::Response<kube::client::Body>> = Vec::new();
            Ok::<_, std::io::Error>(foreseen.remove(0))
        });
        let member = Rest::new(kube::Client::new(service, "default"));
        let env = Env::seeded(karmada_env::ManualClock::new(std::time::SystemTime::UNIX_EPOCH), 0);
        let ways = Ways { notice: Box::new(|_| ()), in_use: Box::new(|_| true) };
        let interpreter = Arc::new(Interpreter::new(env.clone()));
        let observer = Arc::new(Observer::new(
            member,
            env,
            "karmada-es-m".to_owned(),
            Scope::Everywhere,
            Wake::new(),
            ways,
            interpreter,
        ));
        let running = tokio::spawn({
            let observer = Arc::clone(&observer);
            async move { observer.run().await }
        });
        observer.watch(&Resource::new("apps", "v1", "deployments", "Deployment", true));
        let ended = tokio::time::timeout(Duration::from_secs(60), running).await.expect("it ends");
        assert!(ended.expect_err("it does not end well").is_panic());
    }
}
