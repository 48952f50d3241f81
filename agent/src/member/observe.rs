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

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_api::consts::{annotation, label};
use karmada_client::{Event, Resource, Rest, Wake, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_interpreter::{Health, Interpreter, health, reflect_status, rules::Operation};
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::drift::fingerprint;
use crate::works::{desired::ObjectId, report::Seen};

/// What is kept of an object on the member.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sight {
    pub(crate) uid: String,
    /// The Work that its annotations name, if that is one of this cluster's.
    pub(crate) work: Option<String>,
    /// See [`fingerprint`].
    pub(crate) fingerprint: u64,
    /// It has a deletion timestamp.
    pub(crate) going: bool,
    pub(crate) seen: Seen,
}

impl Sight {
    /// Looks at an object.
    pub(crate) fn of(object: &Value, execution_namespace: &str) -> Self {
        let named = object::annotation(object, annotation::WORK_NAMESPACE) == Some(execution_namespace);
        let work = if named { object::annotation(object, annotation::WORK_NAME) } else { None };
        Self {
            uid: object::uid(object).to_owned(),
            work: work.map(str::to_owned),
            fingerprint: fingerprint(object),
            going: object::deletion_timestamp(object).is_some(),
            seen: look(object),
        }
    }
}

/// What an object says of itself, for its Work's status.
fn look(object: &Value) -> Seen {
    Seen { status: reflect_status(object), health: health(object), ..Seen::default() }
}

/// Whether users' rules say what an object says of itself.
fn by_rule(interpreter: &Interpreter, object: &Value) -> bool {
    interpreter.is_customized(object, Operation::InterpretStatus)
        || interpreter.is_customized(object, Operation::InterpretHealth)
}

/// The same as [`Sight::of`], by users' rules. A rule that fails says nothing about the health, and leaves the status
/// as it was reported `before`.
pub(crate) async fn sight(
    interpreter: &Interpreter,
    object: &Value,
    execution_namespace: &str,
    before: Option<Seen>,
) -> Sight {
    let mut sight = Sight::of(object, execution_namespace);
    if by_rule(interpreter, object) {
        sight.seen.status = interpreter.reflect_status(object).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a user's rule fails: the status is not reported");
            sight.seen.reflect_error = Some(error.to_string());
            before.and_then(|seen| seen.status)
        });
        sight.seen.health = interpreter.health(object).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a user's rule fails: the health is not known");
            sight.seen.health_error = Some(error.to_string());
            Health::Unknown
        });
    }
    sight
}

#[derive(Debug, Default)]
struct Inner {
    sights: BTreeMap<ObjectId, Sight>,
    /// Objects by the Work they name.
    by_work: BTreeMap<String, BTreeSet<ObjectId>>,
    watches: BTreeMap<(String, String), CancellationToken>,
    /// Kinds whose first list was had.
    synced: BTreeSet<(String, String)>,
}

impl Inner {
    fn set(&mut self, id: &ObjectId, sight: Sight) -> Option<Sight> {
        if let Some(work) = &sight.work {
            self.by_work.entry(work.clone()).or_default().insert(id.clone());
        }
        let old = self.sights.insert(id.clone(), sight);
        if let Some(before) = old.as_ref().and_then(|o| o.work.clone())
            && self.sights.get(id).and_then(|s| s.work.as_ref()) != Some(&before)
        {
            self.unlink(&before, id);
        }
        old
    }

    fn remove(&mut self, id: &ObjectId) -> Option<Sight> {
        let old = self.sights.remove(id)?;
        if let Some(work) = &old.work {
            self.unlink(work, id);
        }
        Some(old)
    }

    fn unlink(&mut self, work: &str, id: &ObjectId) {
        if let Some(ids) = self.by_work.get_mut(work) {
            ids.remove(id);
            if ids.is_empty() {
                self.by_work.remove(work);
            }
        }
    }
}

/// Called with the name of a Work of which something was seen.
type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// Keeps the watches and what they see.
pub(crate) struct Observer {
    member: Rest,
    env: Env,
    execution_namespace: String,
    wake: Wake,
    notice: Notice,
    interpreter: Arc<Interpreter>,
    inner: Arc<Mutex<Inner>>,
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
        wake: Wake,
        notice: impl Fn(&str) + Send + Sync + 'static,
        interpreter: Arc<Interpreter>,
    ) -> Self {
        Self {
            member,
            env,
            execution_namespace,
            wake,
            notice: Arc::new(notice),
            interpreter,
            inner: Arc::default(),
            tasks: Mutex::new(JoinSet::new()),
        }
    }

    pub(crate) fn get(&self, id: &ObjectId) -> Option<Sight> {
        self.inner.lock().sights.get(id).cloned()
    }

    /// Objects whose annotations name a Work.
    pub(crate) fn of_work(&self, work: &str) -> Vec<ObjectId> {
        self.inner.lock().by_work.get(work).map(|ids| ids.iter().cloned().collect()).unwrap_or_default()
    }

    /// Whether absence of an object of this kind means anything yet.
    pub(crate) fn synced(&self, group: &str, kind: &str) -> bool {
        self.inner.lock().synced.contains(&(group.to_owned(), kind.to_owned()))
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().sights.len()
    }

    /// Takes in what an answer of the member showed, before the watch does.
    pub(crate) fn note(&self, id: &ObjectId, sight: Sight) {
        // A kind that is not watched would be remembered for ever.
        let mut inner = self.inner.lock();
        if inner.watches.contains_key(&(id.group.clone(), id.kind.clone())) {
            inner.set(id, sight);
        }
    }

    /// Watches a kind from now on.
    pub(crate) fn watch(&self, resource: &Resource) {
        let kind = (resource.group.clone(), resource.kind.clone());
        let stop = {
            let mut inner = self.inner.lock();
            if inner.watches.contains_key(&kind) {
                return;
            }
            let stop = CancellationToken::new();
            inner.watches.insert(kind.clone(), stop.clone());
            stop
        };
        let config = WatchConfig::new(resource.collection(None))
            .labels(format!("{}={}", label::MANAGED, label::MANAGED_VALUE))
            .wake(&self.wake);
        let (api_version, namespace) = (resource.api_version(), self.execution_namespace.clone());
        let (group, name_of_kind) = kind.clone();
        let (interpreter, rules) = (Arc::clone(&self.interpreter), Arc::clone(&self.interpreter));
        let namespace_of_rules = namespace.clone();
        let watcher = Watcher::new(self.member.client().clone(), config, self.env.clone(), move |text| {
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
            Ok((id, sight, whole))
        });
        let (inner, notice) = (Arc::clone(&self.inner), Arc::clone(&self.notice));
        let task = follow(watcher, kind, inner, notice, interpreter, namespace_of_rules);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Stops every watch, for good.
    pub(crate) fn stop(&self) {
        self.tasks.lock().abort_all();
    }

    /// Looks anew at all objects of some kinds, by group and kind: other rules say what is seen of them. What was seen
    /// stays until then.
    pub(crate) fn look_anew(&self, changed: impl Fn(&str, &str) -> bool) {
        let mut inner = self.inner.lock();
        let kinds: Vec<_> =
            inner.watches.keys().filter(|(group, kind)| changed(group, kind)).cloned().collect();
        for kind in kinds {
            if let Some(stop) = inner.watches.remove(&kind) {
                stop.cancel();
            }
            inner.synced.remove(&kind);
        }
    }

    /// Stops the watches of kinds that no Work holds any more.
    pub(crate) fn keep_only(&self, kinds: &BTreeSet<(String, String)>) {
        let mut inner = self.inner.lock();
        let idle: Vec<_> = inner.watches.keys().filter(|kind| !kinds.contains(*kind)).cloned().collect();
        for kind in idle {
            if let Some(stop) = inner.watches.remove(&kind) {
                stop.cancel();
            }
            inner.synced.remove(&kind);
            let gone: Vec<_> =
                inner.sights.keys().filter(|id| id.group == kind.0 && id.kind == kind.1).cloned().collect();
            for id in gone {
                inner.remove(&id);
            }
        }
    }
}

/// Takes in the events of one kind, and gives notice of the Works they touch.
async fn follow(
    mut watcher: Watcher<(ObjectId, Sight, Option<Value>)>,
    kind: (String, String),
    inner: Arc<Mutex<Inner>>,
    notice: Notice,
    interpreter: Arc<Interpreter>,
    namespace: String,
) {
    let mut listed: Option<BTreeSet<ObjectId>> = None;
    loop {
        let mut event = watcher.next().await;
        if let Event::Upsert((id, seen, Some(whole))) = &mut event {
            let before = inner.lock().sights.get(id).map(|sight| sight.seen.clone());
            *seen = sight(&interpreter, whole, &namespace, before).await;
        }
        let mut touched: BTreeSet<String> = BTreeSet::new();
        {
            let mut inner = inner.lock();
            if !inner.watches.contains_key(&kind) {
                return;
            }
            match event {
                Event::Init => listed = Some(BTreeSet::new()),
                Event::Upsert((id, sight, _)) => {
                    if let Some(listed) = &mut listed {
                        listed.insert(id.clone());
                    }
                    let new = sight.clone();
                    let old = inner.set(&id, sight);
                    if old.as_ref() != Some(&new) {
                        touched.extend(new.work);
                        touched.extend(old.and_then(|old| old.work));
                    }
                }
                Event::Delete((id, last, _)) => {
                    touched.extend(inner.remove(&id).and_then(|old| old.work).or(last.work));
                }
                Event::Synced => {
                    inner.synced.insert(kind.clone());
                    let listed = listed.take().unwrap_or_default();
                    let of_kind = |id: &&ObjectId| id.group == kind.0 && id.kind == kind.1;
                    let gone: Vec<_> = inner
                        .sights
                        .keys()
                        .filter(of_kind)
                        .filter(|id| !listed.contains(*id))
                        .cloned()
                        .collect();
                    touched.extend(gone.iter().filter_map(|id| inner.remove(id)).filter_map(|old| old.work));
                }
            }
        }
        for work in &touched {
            notice(work);
        }
    }
}
