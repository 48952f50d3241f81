//! What was seen of the member's objects, and which of two sights of one counts.
//!
//! Answers to what is written show objects, too, and may come after events that are newer. So a sight carries its
//! revision, and an answer counts only if the watch has not come as far ([`is_news`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::consts::annotation;
use karmada_client::{
    Event, Resource,
    kept::{self, Kept},
};
use karmada_interpreter::{Health, Interpreter, health, reflect_status, rules::Operation};
use karmada_meta::object;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::drift::fingerprint;
use crate::{
    revision::Revision,
    works::{desired::ObjectId, report::Seen},
};

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

    /// Bytes of it and of the names of its object, beyond themselves.
    pub(super) fn elsewhere(&self, id: &ObjectId) -> usize {
        let error = |error: &Option<String>| error.as_deref().map_or(0, kept::text);
        let names = [&id.group, &id.kind, &id.namespace, &id.name].map(|name| kept::text(name));
        let work = self.work.as_deref().map_or(0, kept::text);
        // By its name both are known by each other.
        size_of::<ObjectId>()
            + names.iter().sum::<usize>()
            + 2 * work
            + kept::text(&self.uid)
            + self.seen.status.as_ref().map_or(0, kept::json)
            + error(&self.seen.reflect_error)
            + error(&self.seen.health_error)
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
pub(super) fn is_news(answer: &Sight, known: Option<&Sight>, watched: Revision) -> bool {
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
pub(super) fn by_rule(interpreter: &Interpreter, object: &Value) -> bool {
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
pub(super) type Kind = (String, String);

/// What one watch shows: a kind, in one namespace or by the empty name in all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) namespace: String,
}

impl Place {
    fn holds(&self, id: &ObjectId) -> bool {
        id.group == self.kind.0
            && id.kind == self.kind.1
            && (self.namespace.is_empty() || id.namespace == self.namespace)
    }
}

/// The watch of a kind.
#[derive(Debug)]
pub(super) struct Watched {
    /// In which version.
    pub(super) resource: Resource,
    /// What the member refuses it with, and [`Env::now`] since when.
    pub(super) refused: Option<(Duration, Arc<str>)>,
    /// Tells it from others of the kind, before and after.
    pub(super) id: u64,
    pub(super) stop: CancellationToken,
    /// The first list was had.
    pub(super) synced: bool,
    /// How far it has come: whatever happened to objects of the kind up to here is known.
    pub(super) revision: Revision,
}

#[derive(Debug, Default)]
pub(super) struct Sights {
    /// In boxes: a map has room for more than there are.
    pub(super) sights: BTreeMap<Arc<ObjectId>, Box<Kept<Sight>>>,
    /// Works, with the objects that name them.
    pub(super) by_work: BTreeSet<(String, Arc<ObjectId>)>,
    pub(super) watches: BTreeMap<Place, Watched>,
    /// Watches that were begun.
    pub(super) begun: u64,
}

impl Sights {
    /// Begins a watch, in place of one that there is.
    pub(super) fn begin(&mut self, place: &Place, resource: Resource) -> (u64, CancellationToken) {
        self.end(place);
        self.begun += 1;
        let (id, stop) = (self.begun, CancellationToken::new());
        let watched = Watched {
            resource,
            refused: None,
            id,
            stop: stop.clone(),
            synced: false,
            revision: Revision::UNKNOWN,
        };
        self.watches.insert(place.clone(), watched);
        (id, stop)
    }

    /// The revisions that were seen of a kind do not compare with those that come.
    pub(super) fn begin_history(&mut self, place: &Place) {
        if let Some(watched) = self.watches.get_mut(place) {
            watched.revision = Revision::UNKNOWN;
        }
        for (id, sight) in &mut self.sights {
            if place.holds(id) {
                sight.value_mut().revision = Revision::UNKNOWN;
            }
        }
    }

    /// The same of all kinds.
    pub(super) fn begin_histories(&mut self) {
        self.watches.values_mut().for_each(|watched| watched.revision = Revision::UNKNOWN);
        self.sights.values_mut().for_each(|sight| sight.value_mut().revision = Revision::UNKNOWN);
    }

    pub(super) fn end(&mut self, place: &Place) {
        if let Some(watched) = self.watches.remove(place) {
            watched.stop.cancel();
        }
    }

    /// Objects that a watch shows.
    pub(super) fn of_place(&self, place: &Place) -> impl Iterator<Item = (&Arc<ObjectId>, &Sight)> {
        let of_place = self.sights.iter().filter(|(id, _)| place.holds(id));
        of_place.map(|(id, sight)| (id, sight.value()))
    }

    /// Objects that name a Work.
    pub(super) fn of_work(&self, work: &str) -> impl Iterator<Item = &ObjectId> {
        let from = (work.to_owned(), Arc::<ObjectId>::default());
        self.by_work.range(from..).take_while(move |(of, _)| of == work).map(|(_, id)| &**id)
    }

    pub(super) fn set(&mut self, id: &Arc<ObjectId>, sight: Kept<Sight>) {
        // One and the same for all that is known of the object.
        let known = self.sights.remove_entry(id);
        let (id, old) = known.map_or_else(|| (Arc::clone(id), None), |(id, old)| (id, Some(old)));
        if let Some(before) = old.and_then(|old| old.work.clone())
            && sight.work.as_ref() != Some(&before)
        {
            self.by_work.remove(&(before, Arc::clone(&id)));
        }
        if let Some(work) = &sight.work {
            self.by_work.insert((work.clone(), Arc::clone(&id)));
        }
        self.sights.insert(id, Box::new(sight));
    }

    pub(super) fn remove(&mut self, id: &Arc<ObjectId>) -> Option<Kept<Sight>> {
        let old = *self.sights.remove(id)?;
        if let Some(work) = &old.work {
            self.by_work.remove(&(work.clone(), Arc::clone(id)));
        }
        Some(old)
    }

    /// Nothing is known of a kind any more, nor whether there is any.
    pub(super) fn lose(&mut self, place: &Place) {
        let all: Vec<Arc<ObjectId>> = self.of_place(place).map(|(id, _)| Arc::clone(id)).collect();
        for id in &all {
            self.remove(id);
        }
        if let Some(watched) = self.watches.get_mut(place) {
            (watched.synced, watched.revision) = (false, Revision::UNKNOWN);
        }
    }

    /// Takes in what the watch of a kind tells, and answers the Works that there is something to do about. `listed` has
    /// what the list under way has shown so far.
    pub(super) fn take_in(
        &mut self,
        place: &Place,
        event: Event<(Arc<ObjectId>, Kept<Sight>)>,
        listed: &mut Option<BTreeSet<Arc<ObjectId>>>,
    ) -> BTreeSet<String> {
        let mut touched: BTreeSet<String> = BTreeSet::new();
        match event {
            Event::Init => *listed = Some(BTreeSet::new()),
            Event::Upsert((id, new)) => {
                let old = self.sights.get(&id).map(|old| old.value());
                let overtaken = is_overtaken(&new, old);
                if !overtaken {
                    if old.is_none_or(|old| old.differs(&new)) {
                        touched.extend(new.work.clone());
                        touched.extend(old.and_then(|old| old.work.clone()));
                    }
                    self.set(&id, new);
                }
                // What is not kept is not remembered either.
                if let Some(listed) = listed
                    && self.sights.contains_key(&id)
                {
                    listed.insert(id);
                }
            }
            Event::Delete((id, last)) => {
                if !is_overtaken(&last, self.sights.get(&id).map(|known| known.value())) {
                    let known = self.remove(&id);
                    touched.extend(known.as_ref().unwrap_or(&last).work.clone());
                }
            }
            Event::Synced => {
                let listed = listed.take().unwrap_or_default();
                let Some(watched) = self.watches.get_mut(place) else { return touched };
                let (revision, again) = (watched.revision, std::mem::replace(&mut watched.synced, true));
                // What was made while the list was on its way is not in it.
                let is_gone = |(id, sight): &(&Arc<ObjectId>, &Sight)| {
                    !listed.contains(*id) && !revision.is_before(sight.revision)
                };
                let gone: Vec<_> =
                    self.of_place(place).filter(is_gone).map(|(id, _)| Arc::clone(id)).collect();
                touched
                    .extend(gone.iter().filter_map(|id| self.remove(id)).filter_map(|old| old.work.clone()));
                if again {
                    // Whatever was missed before, and wherever, is found now.
                    touched.extend(self.of_place(place).filter_map(|(_, sight)| sight.work.clone()));
                }
            }
        }
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place { kind: (String::new(), "ConfigMap".to_owned()), namespace: String::new() }
    }

    fn id() -> Arc<ObjectId> {
        let (group, kind) = place().kind;
        Arc::new(ObjectId { group, kind, namespace: "n".to_owned(), name: "c".to_owned() })
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
            let mut inner = Sights::default();
            inner.begin(&place(), Resource::new("", "v1", "configmaps", "ConfigMap", true));
            if let Some(known) = read(known) {
                inner.set(&id(), Kept::nowhere(known));
            }
            let of = (id(), Kept::nowhere(read(of).unwrap()));
            let event = if matches!(told, Here) { Event::Upsert(of) } else { Event::Delete(of) };
            inner.take_in(&place(), event, &mut None);
            let got = inner.sights.get(&id()).map(|sight| (sight.uid.clone(), sight.revision));
            assert_eq!(got, read(want).map(|sight| (sight.uid, sight.revision)), "{known} {want}");
            assert_eq!(inner.by_work.is_empty(), want.is_empty());
            assert_eq!(inner.of_work("w").count(), usize::from(!want.is_empty()));
            assert_eq!(
                inner.of_work("").count() + inner.of_work("v").count() + inner.of_work("w2").count(),
                0
            );
        }
    }

    #[test]
    fn a_list_takes_away_what_it_does_not_have_unless_it_is_newer() {
        for (known, stays) in [("a 5", false), ("a 9", false), ("a 10", true), ("a ?", false)] {
            let mut inner = Sights::default();
            inner.begin(&place(), Resource::new("", "v1", "configmaps", "ConfigMap", true));
            inner.set(&id(), Kept::nowhere(read(known).unwrap()));
            let mut listed = None;
            inner.take_in(&place(), Event::Init, &mut listed);
            inner.watches.get_mut(&place()).unwrap().revision = Revision::read("9");
            let touched = inner.take_in(&place(), Event::Synced, &mut listed);
            assert_eq!((inner.sights.contains_key(&id()), touched.is_empty()), (stays, stays), "{known}");
            // Everything is looked at again with the next list.
            inner.set(&id(), Kept::nowhere(read("a 9").unwrap()));
            for event in [Event::Init, Event::Upsert((id(), Kept::nowhere(sight("a", "9"))))] {
                assert!(inner.take_in(&place(), event, &mut listed).is_empty());
            }
            assert_eq!(inner.take_in(&place(), Event::Synced, &mut listed).len(), 1);
        }
    }
}
