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
//! Answers to what is written show objects, too, and may come after events that are newer. So a sight carries its
//! revision, and an answer counts only if the watch has not come as far ([`is_news`]). What is missed all the same ends
//! with the next full list ([`COMPARE`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
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
use crate::{
    revision::Revision,
    works::{desired::ObjectId, report::Seen},
};

/// After so long, and up to half of it more, everything that is watched is listed and compared anew.
const COMPARE: Duration = Duration::from_secs(4 * 3600);

/// What is kept of an object on the member.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) uid: String,
    pub(crate) revision: Revision,
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
            revision: Revision::of(object),
            work: work.map(str::to_owned),
            fingerprint: fingerprint(object),
            going: object::deletion_timestamp(object).is_some(),
            seen: look(object),
        }
    }

    /// Whether there is anything to do about the difference between two sights.
    fn differs(&self, other: &Self) -> bool {
        self.uid != other.uid
            || self.work != other.work
            || self.fingerprint != other.fingerprint
            || self.going != other.going
            || self.seen != other.seen
    }
}

/// Whether an answer shows something that is not known yet: neither by the watch, which has come as far as `watched`, nor
/// by a later answer. The watch may know that the object is gone.
fn is_news(answer: &Sight, known: Option<&Sight>, watched: Revision) -> bool {
    !answer.revision.is_within(watched)
        && !known.is_some_and(|known| answer.revision.is_within(known.revision))
}

/// Whether what the watch tells is older than what an answer has shown. Then the watch is about to tell that, too.
fn is_overtaken(event: &Sight, known: Option<&Sight>) -> bool {
    known.is_some_and(|known| event.revision.is_before(known.revision))
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

/// A group and a kind.
type Kind = (String, String);

/// The watch of a kind.
#[derive(Debug)]
struct Watched {
    /// Tells it from others of the kind, before and after.
    id: u64,
    stop: CancellationToken,
    /// The first list was had.
    synced: bool,
    /// How far it has come: whatever happened to objects of the kind up to here is known.
    revision: Revision,
}

#[derive(Debug, Default)]
struct Inner {
    sights: BTreeMap<ObjectId, Sight>,
    /// Objects by the Work they name.
    by_work: BTreeMap<String, BTreeSet<ObjectId>>,
    watches: BTreeMap<Kind, Watched>,
    /// Watches that were begun.
    begun: u64,
}

impl Inner {
    /// Begins a watch, if there is none.
    fn begin(&mut self, kind: &Kind) -> Option<(u64, CancellationToken)> {
        if self.watches.contains_key(kind) {
            return None;
        }
        self.begun += 1;
        let (id, stop) = (self.begun, CancellationToken::new());
        let watched = Watched { id, stop: stop.clone(), synced: false, revision: Revision::UNKNOWN };
        self.watches.insert(kind.clone(), watched);
        Some((id, stop))
    }

    fn end(&mut self, kind: &Kind) {
        if let Some(watched) = self.watches.remove(kind) {
            watched.stop.cancel();
        }
    }

    /// Objects of a kind.
    fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = (&ObjectId, &Sight)> {
        self.sights.iter().filter(|(id, _)| id.group == kind.0 && id.kind == kind.1)
    }

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
        let inner = self.inner.lock();
        inner.watches.get(&(group.to_owned(), kind.to_owned())).is_some_and(|watched| watched.synced)
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().sights.len()
    }

    /// Takes in what an answer of the member showed, unless something newer is known of the object. Answers what is.
    pub(crate) fn note(&self, id: &ObjectId, answer: Sight) -> Sight {
        let mut inner = self.inner.lock();
        // A kind that is not watched would be remembered for ever.
        let Some(watched) = inner.watches.get(&(id.group.clone(), id.kind.clone())) else { return answer };
        if is_news(&answer, inner.sights.get(id), watched.revision) {
            inner.set(id, answer.clone());
            return answer;
        }
        inner.sights.get(id).cloned().unwrap_or(answer)
    }

    /// Watches a kind from now on.
    pub(crate) fn watch(&self, resource: &Resource) {
        let kind = (resource.group.clone(), resource.kind.clone());
        let Some((watch, stop)) = self.inner.lock().begin(&kind) else { return };
        let config = WatchConfig::new(resource.collection(None))
            .labels(format!("{}={}", label::MANAGED, label::MANAGED_VALUE))
            .wake(&self.wake)
            .relist(COMPARE);
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
        let follower =
            Follower { watcher, watch, kind, inner, notice, interpreter, namespace: namespace_of_rules };
        let task = follower.follow();
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
        let kinds: Vec<Kind> =
            inner.watches.keys().filter(|(group, kind)| changed(group, kind)).cloned().collect();
        for kind in kinds {
            inner.end(&kind);
        }
    }

    /// Stops the watches of kinds that no Work holds any more.
    pub(crate) fn keep_only(&self, kinds: &BTreeSet<Kind>) {
        let mut inner = self.inner.lock();
        let idle: Vec<_> = inner.watches.keys().filter(|kind| !kinds.contains(*kind)).cloned().collect();
        for kind in idle {
            inner.end(&kind);
            let gone: Vec<_> = inner.of_kind(&kind).map(|(id, _)| id.clone()).collect();
            for id in gone {
                inner.remove(&id);
            }
        }
    }
}

/// Takes in the events of one kind, and gives notice of the Works they touch.
struct Follower {
    watcher: Watcher<(ObjectId, Sight, Option<Value>)>,
    watch: u64,
    kind: Kind,
    inner: Arc<Mutex<Inner>>,
    notice: Notice,
    interpreter: Arc<Interpreter>,
    namespace: String,
}

impl Follower {
    async fn follow(mut self) {
        let mut listed: Option<BTreeSet<ObjectId>> = None;
        loop {
            let mut event = self.watcher.next().await;
            if let Event::Upsert((id, seen, Some(whole))) = &mut event {
                let before = self.inner.lock().sights.get(id).map(|sight| sight.seen.clone());
                *seen = sight(&self.interpreter, whole, &self.namespace, before).await;
            }
            let revision = self.watcher.revision().map_or(Revision::UNKNOWN, Revision::read);
            let touched = {
                let mut inner = self.inner.lock();
                let Some(watched) = inner.watches.get_mut(&self.kind).filter(|w| w.id == self.watch) else {
                    return;
                };
                // A list that is under way has not come anywhere yet.
                if listed.is_none() || matches!(event, Event::Synced) {
                    watched.revision = revision;
                }
                inner.take_in(&self.kind, event, &mut listed)
            };
            for work in &touched {
                (self.notice)(work);
            }
        }
    }
}

impl Inner {
    /// Takes in what the watch of a kind tells, and answers the Works that there is something to do about. `listed` has
    /// what the list under way has shown so far.
    fn take_in(
        &mut self,
        kind: &Kind,
        event: Event<(ObjectId, Sight, Option<Value>)>,
        listed: &mut Option<BTreeSet<ObjectId>>,
    ) -> BTreeSet<String> {
        let mut touched: BTreeSet<String> = BTreeSet::new();
        match event {
            Event::Init => *listed = Some(BTreeSet::new()),
            Event::Upsert((id, new, _)) => {
                if let Some(listed) = listed {
                    listed.insert(id.clone());
                }
                if !is_overtaken(&new, self.sights.get(&id)) {
                    let old = self.set(&id, new.clone());
                    if old.as_ref().is_none_or(|old| old.differs(&new)) {
                        touched.extend(new.work);
                        touched.extend(old.and_then(|old| old.work));
                    }
                }
            }
            Event::Delete((id, last, _)) => {
                if !is_overtaken(&last, self.sights.get(&id)) {
                    touched.extend(self.remove(&id).and_then(|old| old.work).or(last.work));
                }
            }
            Event::Synced => {
                let listed = listed.take().unwrap_or_default();
                let Some(watched) = self.watches.get_mut(kind) else { return touched };
                let (revision, again) = (watched.revision, std::mem::replace(&mut watched.synced, true));
                // What was made while the list was on its way is not in it.
                let is_gone = |(id, sight): &(&ObjectId, &Sight)| {
                    !listed.contains(*id) && !revision.is_before(sight.revision)
                };
                let gone: Vec<_> = self.of_kind(kind).filter(is_gone).map(|(id, _)| id.clone()).collect();
                touched.extend(gone.iter().filter_map(|id| self.remove(id)).filter_map(|old| old.work));
                if again {
                    // Whatever was missed before, and wherever, is found now.
                    touched.extend(self.of_kind(kind).filter_map(|(_, sight)| sight.work.clone()));
                }
            }
        }
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> Kind {
        (String::new(), "ConfigMap".to_owned())
    }

    fn id() -> ObjectId {
        let (group, kind) = kind();
        ObjectId { group, kind, namespace: "n".to_owned(), name: "c".to_owned() }
    }

    fn sight(uid: &str, revision: &str) -> Sight {
        Sight {
            uid: uid.to_owned(),
            revision: Revision::read(revision),
            work: Some("w".to_owned()),
            fingerprint: 0,
            going: false,
            seen: Seen::default(),
        }
    }

    /// `uid revision`, or nothing.
    fn read(text: &str) -> Option<Sight> {
        text.split_once(' ').map(|(uid, revision)| sight(uid, revision))
    }

    #[test]
    fn an_answer_counts_until_the_watch_has_come_as_far() {
        // (answer, what is known, how far the watch is, whether it counts)
        let rows = [
            ("a 5", "", "", true),
            ("a 5", "", "4", true),
            // The watch would have told of it: it is gone since.
            ("a 5", "", "5", false),
            ("a 5", "", "9", false),
            ("a 5", "a 4", "4", true),
            ("a 5", "a 6", "4", false),
            ("a 5", "a 5", "4", false),
            ("b 5", "a 4", "4", true),
            ("a 5", "b 7", "4", false),
            ("a ?", "a 6", "9", true),
            ("a 5", "a ?", "?", true),
        ];
        for (answer, known, watched, counts) in rows {
            let (answer, known) = (read(answer).unwrap(), read(known));
            let row = format!("{answer:?} {known:?} {watched}");
            assert_eq!(is_news(&answer, known.as_ref(), Revision::read(watched)), counts, "{row}");
        }
    }

    #[test]
    fn what_the_watch_tells_counts_unless_an_answer_was_ahead() {
        enum Told {
            Here,
            Gone,
        }
        use Told::{Gone, Here};
        // (what is known, what the watch tells, of which, what is known then)
        let rows = [
            ("a 4", Here, "a 5", "a 5"),
            ("a 6", Here, "a 5", "a 6"),
            ("b 6", Here, "a 5", "b 6"),
            ("a 4", Here, "b 5", "b 5"),
            ("", Here, "a 5", "a 5"),
            ("a ?", Here, "a 5", "a 5"),
            ("a 4", Gone, "a 5", ""),
            ("a 6", Gone, "a 5", "a 6"),
            ("b 6", Gone, "a 5", "b 6"),
        ];
        for (known, told, of, want) in rows {
            let mut inner = Inner::default();
            inner.begin(&kind());
            if let Some(known) = read(known) {
                inner.set(&id(), known);
            }
            let of = (id(), read(of).unwrap(), None);
            let event = if matches!(told, Here) { Event::Upsert(of) } else { Event::Delete(of) };
            inner.take_in(&kind(), event, &mut None);
            let got = inner.sights.get(&id()).map(|sight| (sight.uid.clone(), sight.revision));
            assert_eq!(got, read(want).map(|sight| (sight.uid, sight.revision)), "{known} {want}");
            assert_eq!(inner.by_work.is_empty(), want.is_empty());
        }
    }

    #[test]
    fn a_list_takes_away_what_it_does_not_have_unless_it_is_newer() {
        for (known, stays) in [("a 5", false), ("a 9", false), ("a 10", true), ("a ?", false)] {
            let mut inner = Inner::default();
            inner.begin(&kind());
            inner.set(&id(), read(known).unwrap());
            let mut listed = None;
            inner.take_in(&kind(), Event::Init, &mut listed);
            inner.watches.get_mut(&kind()).unwrap().revision = Revision::read("9");
            let touched = inner.take_in(&kind(), Event::Synced, &mut listed);
            assert_eq!((inner.sights.contains_key(&id()), touched.is_empty()), (stays, stays), "{known}");
            // Everything is looked at again with the next list.
            inner.set(&id(), read("a 9").unwrap());
            for event in [Event::Init, Event::Upsert((id(), sight("a", "9"), None))] {
                assert!(inner.take_in(&kind(), event, &mut listed).is_empty());
            }
            assert_eq!(inner.take_in(&kind(), Event::Synced, &mut listed).len(), 1);
        }
    }
}
