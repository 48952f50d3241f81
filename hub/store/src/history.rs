//! The recent changes, in order, found by scope; and which of them are forgotten when.
//!
//! ```text
//!   works           e7 e9 e11              the oldest of a resource go when they are too old,
//!     karmada-es-a  e7 e11                 those of the heaviest part of the heaviest one when all are too much;
//!       nginx       e11                    a watcher reads only what is in its scope
//! ```
//!
//! Each resource is trimmed by itself, so that what changes all the time (Leases) does not push out what changes
//! seldom and is resumed from after a day (Works). Where there is too much, each [`part`] of it is trimmed by itself, so
//! that an agent that writes much shortens its own history, and not that of others. How far a resource is trimmed, and a
//! part of it that is trimmed further, is kept: what nothing was forgotten of can be watched from its beginning. Whoever
//! watches more than a part can do so from where all of it is there.

mod within;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_set},
    iter::{Peekable, Rev},
    sync::Arc,
    time::Duration,
};

use self::within::{InNamespace, first_after};
use crate::{
    engine::Forget,
    entry::Event,
    key::{Key, Revision},
    scope::Scope,
};

/// Events taken from one part before others are looked at again.
const RUN: usize = 8;
/// Parts that are looked at for one that may forget.
const LOOK: usize = 8;

type Events<H> = VecDeque<Arc<Event<H>>>;
type ByWeight = BTreeSet<(usize, Arc<str>)>;
type Heaviest<'a> = Rev<btree_set::Iter<'a, (usize, Arc<str>)>>;

/// Whose part of a resource a key is in: that of its namespace, at cluster scope that of its name.
pub(crate) fn part(namespace: &Arc<str>, name: &str) -> Arc<str> {
    if namespace.is_empty() { format!("/{name}").into() } else { namespace.clone() }
}

/// An event of a resource.
struct Slot<H> {
    /// The monotonic time at which it was added.
    at: Duration,
    revision: Revision,
    /// None: its part was trimmed further than the resource.
    event: Option<Arc<Event<H>>>,
}

struct InResource<H> {
    slots: VecDeque<Slot<H>>,
    /// Slots without an event. The first has one, and no more than half of all have none.
    holes: usize,
    namespaces: BTreeMap<Arc<str>, InNamespace<H>>,
    weights: BTreeMap<Arc<str>, usize>,
    heaviest: ByWeight,
    bytes: usize,
}

impl<H> Default for InResource<H> {
    fn default() -> Self {
        Self {
            slots: VecDeque::new(),
            holes: 0,
            namespaces: BTreeMap::new(),
            weights: BTreeMap::new(),
            heaviest: BTreeSet::new(),
            bytes: 0,
        }
    }
}

impl<H> InResource<H> {
    /// The events of a part.
    fn of_part(&self, part: &str) -> Option<&Events<H>> {
        match part.strip_prefix('/') {
            Some(name) => match self.namespaces.get("")? {
                InNamespace::Cluster(names) => names.get(name),
                InNamespace::Namespace { .. } => None,
            },
            None => self.namespaces.get(part)?.events(),
        }
    }

    /// A part weighs more, or less.
    fn weigh(&mut self, part: Arc<str>, change: impl FnOnce(usize) -> usize) {
        let before = self.weights.get(&part).copied().unwrap_or(0);
        let after = change(before);
        self.heaviest.remove(&(before, part.clone()));
        if after == 0 {
            self.weights.remove(&part);
            return;
        }
        self.heaviest.insert((after, part.clone()));
        self.weights.insert(part, after);
    }

    /// Takes the first event of a part out of everything but the slots.
    fn leave(&mut self, event: &Event<H>) {
        let (key, weight) = (event.key(), event.weight());
        self.bytes -= weight;
        self.weigh(part(&key.namespace, &key.name), |before| before - weight);
        let Some(namespace) = self.namespaces.get_mut(&key.namespace) else { return };
        if namespace.leave(event) {
            self.namespaces.remove(&key.namespace);
        }
    }

    /// The live events from a place on.
    fn live(&self, from: usize) -> impl Iterator<Item = (Duration, &Arc<Event<H>>)> {
        self.slots.range(from..).filter_map(|slot| Some((slot.at, slot.event.as_ref()?)))
    }

    /// Holes cost as little as what is there.
    fn tidy(&mut self) {
        while self.slots.pop_front_if(|slot| slot.event.is_none()).is_some() {
            self.holes -= 1;
        }
        if self.holes > self.slots.len() / 2 {
            self.slots.retain(|slot| slot.event.is_some());
            self.holes = 0;
        }
    }
}

/// How far a resource is trimmed.
#[derive(Clone, Debug, Default)]
struct OfResource {
    /// Everything up to here is forgotten,
    all: Revision,
    /// and of some part everything up to there:
    furthest: Revision,
    /// the parts of which more is than of all, by name and by how far.
    parts: BTreeMap<Arc<str>, Revision>,
    order: BTreeSet<(Revision, Arc<str>)>,
}

/// How far resources are trimmed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trimmed {
    /// Of every resource everything up to here is forgotten.
    base: Revision,
    resources: BTreeMap<Arc<str>, OfResource>,
}

impl Trimmed {
    /// As it was kept: [`Forget::mark`] and how far.
    pub(crate) fn new(base: Revision, marks: impl IntoIterator<Item = (Arc<str>, Revision)>) -> Self {
        let mut trimmed = Self { base, resources: BTreeMap::new() };
        for (mark, up_to) in marks {
            let (resource, part) = Forget::of_mark(&mark);
            trimmed.mark(&resource, part.as_ref(), up_to);
        }
        trimmed
    }

    /// As it is kept: where the log of every resource begins, and where that of some does.
    pub(crate) fn marks(&self) -> (Revision, Vec<(Arc<str>, Revision)>) {
        let mut marks = Vec::new();
        for (resource, of) in &self.resources {
            let mark = |part: Option<Arc<str>>, up_to| {
                let forget = Forget { resource: resource.clone(), part, up_to, revisions: Vec::new() };
                (forget.mark(), up_to)
            };
            if of.all > Revision::ZERO {
                marks.push(mark(None, of.all));
            }
            marks.extend(of.parts.iter().map(|(part, up_to)| mark(Some(part.clone()), *up_to)));
        }
        (self.base, marks)
    }

    /// What was forgotten beside that.
    pub(crate) fn forget(&mut self, forget: &[Forget]) {
        forget.iter().for_each(|forget| self.mark(&forget.resource, forget.part.as_ref(), forget.up_to));
    }

    fn mark(&mut self, resource: &Arc<str>, part: Option<&Arc<str>>, up_to: Revision) {
        let of = self.resources.entry(resource.clone()).or_default();
        of.furthest = of.furthest.max(up_to);
        match part {
            None => of.all = of.all.max(up_to),
            Some(part) => {
                let before = of.parts.get(part).copied().unwrap_or_default();
                of.order.remove(&(before, part.clone()));
                of.order.insert((before.max(up_to), part.clone()));
                of.parts.insert(part.clone(), before.max(up_to));
            }
        }
        while let Some((_, part)) = of.order.first().filter(|(revision, _)| *revision <= of.all) {
            of.parts.remove(part);
            of.order.pop_first();
        }
    }

    /// What was forgotten last.
    pub(crate) fn furthest(&self) -> Revision {
        self.resources.values().map(|of| of.furthest).fold(self.base, Revision::max)
    }

    /// Of a resource nothing is forgotten after this.
    fn of(&self, resource: &str) -> Revision {
        self.resources.get(resource).map_or(self.base, |of| self.base.max(of.furthest))
    }

    fn of_part(&self, resource: &str, part: &str) -> Revision {
        let Some(of) = self.resources.get(resource) else { return self.base };
        let part = of.parts.get(part).copied().unwrap_or_default();
        self.base.max(of.all).max(part)
    }

    /// Everything of a key up to here is forgotten.
    pub(crate) fn of_key(&self, key: &Key) -> Revision {
        self.of_part(&key.resource, &part(&key.namespace, &key.name))
    }

    /// In a scope nothing is forgotten after this.
    fn of_scope(&self, scope: &Scope) -> Revision {
        match (&scope.namespace, &scope.name) {
            (Some(namespace), Some(name)) => self.of_part(&scope.resource, &part(namespace, name)),
            (Some(namespace), None) if !namespace.is_empty() => self.of_part(&scope.resource, namespace),
            _ => self.of(&scope.resource),
        }
    }
}

/// The recent changes.
pub(crate) struct History<H> {
    resources: BTreeMap<Arc<str>, InResource<H>>,
    trimmed: Trimmed,
    len: usize,
    bytes: usize,
}

/// How much history is kept.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// Changes of a resource that are older than this are forgotten.
    pub age: fn(&str) -> Duration,
    /// When the changes kept weigh more than this, some of a resource are forgotten: of the one that weighs most, counting
    /// the part of its time that its oldest have used up, the oldest of what weighs most in it (a namespace, at cluster
    /// scope a name);
    pub bytes: usize,
    /// but none that is younger than this,
    pub least: Duration,
    /// unless all together weigh more than this: then the oldest of the heaviest part of the heaviest resource.
    pub most: usize,
}

impl<H> History<H> {
    pub(crate) fn new(trimmed: Trimmed) -> Self {
        Self { resources: BTreeMap::new(), trimmed, len: 0, bytes: 0 }
    }

    /// All of a resource is there after this.
    pub(crate) fn compacted(&self, resource: &str) -> Revision {
        self.trimmed.of(resource)
    }

    /// All of a scope is there after this.
    pub(crate) fn compacted_in(&self, scope: &Scope) -> Revision {
        self.trimmed.of_scope(scope)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How far it is trimmed.
    pub(crate) fn trimmed(&self) -> &Trimmed {
        &self.trimmed
    }

    /// The resources of which there is or was something.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<str>> {
        self.resources.keys().chain(self.trimmed.resources.keys())
    }

    /// Everything there is, resource by resource.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<Event<H>>> {
        self.resources.values().flat_map(|resource| resource.live(0).map(|(_, event)| event))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, event: Arc<Event<H>>, now: Duration) {
        let (key, weight) = (event.key(), event.weight());
        let resource = self.resources.entry(key.resource.clone()).or_default();
        let namespace = resource
            .namespaces
            .entry(key.namespace.clone())
            .or_insert_with(|| InNamespace::new(&key.namespace));
        namespace.push(event.clone());
        resource.weigh(part(&key.namespace, &key.name), |before| before + weight);
        resource.bytes += weight;
        self.bytes += weight;
        self.len += 1;
        let revision = event.revision();
        resource.slots.push_back(Slot { at: now, revision, event: Some(event) });
    }

    /// What the limits ask to forget, in a step of about `step` events.
    pub(crate) fn plan(&self, limits: &HistoryLimits, now: Duration, step: usize) -> Vec<Forget> {
        let (mut bytes, mut left, mut forget) = (self.bytes, step, Vec::new());
        let mut resources = Vec::with_capacity(self.resources.len());
        for (name, resource) in &self.resources {
            let mut candidate = Candidate::new(name, resource);
            let age = (limits.age)(name);
            let old = resource.live(0).take_while(|(at, _)| now.saturating_sub(*at) > age);
            let mut revisions = Vec::new();
            for (_, event) in old.take(left) {
                revisions.push(event.revision());
                bytes -= candidate.take(&part(&event.key().namespace, &event.key().name));
            }
            left -= revisions.len();
            if let Some(&up_to) = revisions.last() {
                forget.push(Forget { resource: name.clone(), part: None, up_to, revisions });
            }
            candidate.old = forget.last().filter(|f| f.resource == *name).map(|f| f.up_to);
            resources.push(candidate);
        }
        let parts = self.resources.values().map(|resource| resource.weights.len()).sum();
        let phases = [(limits.bytes, Some(limits.least)), (limits.most, None)];
        for (limit, least) in phases {
            while left > 0 && bytes > limit {
                let heaviest = resources.iter_mut().filter_map(|candidate| {
                    let (part, at) = candidate.target(now, least, bytes / std::cmp::max(parts, 1))?;
                    // A resource that changes seldom costs little and is resumed from late: it stays.
                    let age = (limits.age)(candidate.name).as_secs_f64().max(f64::MIN_POSITIVE);
                    let used_up = if least.is_some() { at.as_secs_f64() / age } else { 1.0 };
                    Some((candidate.bytes as f64 * used_up, candidate, part))
                });
                let Some((_, candidate, part)) = heaviest.max_by(|a, b| a.0.total_cmp(&b.0)) else { break };
                for _ in 0..RUN.min(left) {
                    let may = candidate.oldest(&part, now).is_some_and(|at| least.is_none_or(|l| at > l));
                    if bytes <= limit || !may {
                        break;
                    }
                    bytes -= candidate.take(&part);
                    left -= 1;
                }
            }
        }
        forget.extend(resources.iter().flat_map(Candidate::forget));
        forget
    }

    /// Forgets what was planned.
    pub(crate) fn trim(&mut self, forget: &[Forget]) {
        for Forget { resource: name, part, up_to, .. } in forget {
            if let Some(resource) = self.resources.get_mut(name) {
                let (len, bytes) = (resource.slots.len() - resource.holes, resource.bytes);
                match part {
                    None => {
                        while let Some(slot) = resource.slots.pop_front_if(|slot| slot.revision <= *up_to) {
                            match slot.event {
                                Some(event) => resource.leave(&event),
                                None => resource.holes -= 1,
                            }
                        }
                    }
                    Some(part) => {
                        let first = |resource: &InResource<H>| resource.of_part(part)?.front().cloned();
                        while let Some(event) = first(resource).filter(|event| event.revision() <= *up_to) {
                            if let Ok(at) =
                                resource.slots.binary_search_by_key(&event.revision(), |slot| slot.revision)
                                && resource.slots[at].event.take().is_some()
                            {
                                resource.holes += 1;
                            }
                            resource.leave(&event);
                        }
                    }
                }
                resource.tidy();
                self.len -= len - (resource.slots.len() - resource.holes);
                self.bytes -= bytes - resource.bytes;
                if resource.slots.is_empty() {
                    self.resources.remove(name);
                }
            }
            self.trimmed.mark(name, part.as_ref(), *up_to);
        }
    }

    /// The first event in scope after a revision.
    pub(crate) fn next_in(&self, scope: &Scope, after: Revision) -> Option<&Arc<Event<H>>> {
        let resource = self.resources.get(&scope.resource)?;
        let in_all = || {
            let first = resource.slots.partition_point(|slot| slot.revision <= after);
            resource.live(first).map(|(_, event)| event).find(|event| scope.contains(event.key()))
        };
        match (&scope.namespace, &scope.name) {
            (None, _) => in_all(),
            (Some(namespace), None) if namespace.is_empty() => in_all(),
            (Some(namespace), None) => first_after(resource.namespaces.get(namespace)?.events()?, after),
            (Some(namespace), Some(name)) => resource.namespaces.get(namespace)?.next_of(name, after),
        }
    }

    /// The events of a resource after a revision, newest first; of one namespace where the scope has one.
    pub(crate) fn back_to(&self, scope: &Scope, revision: Revision) -> impl Iterator<Item = &Arc<Event<H>>> {
        let resource = self.resources.get(&scope.resource);
        let of_namespace = scope.namespace.as_ref().filter(|namespace| !namespace.is_empty());
        let part = of_namespace.and_then(|namespace| resource?.namespaces.get(namespace));
        let whole = resource.filter(|_| of_namespace.is_none());
        let slots = whole.into_iter().flat_map(|resource| resource.slots.iter().rev());
        let all =
            slots.take_while(move |slot| slot.revision > revision).filter_map(|slot| slot.event.as_ref());
        let some = part.and_then(InNamespace::events).into_iter().flat_map(|events| events.iter().rev());
        all.chain(some.take_while(move |event| event.revision() > revision))
    }
}

/// A resource that may have to forget.
struct Candidate<'a, H> {
    name: &'a Arc<str>,
    resource: &'a InResource<H>,
    /// So much is left of it.
    bytes: usize,
    /// Its parts by weight that nobody has looked at,
    rest: Peekable<Heaviest<'a>>,
    /// and the others, with what is left of them,
    open: ByWeight,
    /// and how many of their oldest are to go, too old or not, with what these weigh.
    taken: BTreeMap<Arc<str>, (usize, usize)>,
    /// What is too old, up to here, is forgotten of all parts.
    old: Option<Revision>,
}

impl<'a, H> Candidate<'a, H> {
    fn new(name: &'a Arc<str>, resource: &'a InResource<H>) -> Self {
        let rest = resource.heaviest.iter().rev().peekable();
        Self {
            name,
            resource,
            bytes: resource.bytes,
            rest,
            open: BTreeSet::new(),
            taken: BTreeMap::new(),
            old: None,
        }
    }

    /// The heaviest part that may forget, and the age of its oldest event: one that weighs no less than all parts of all
    /// resources do on average, since the others have not made it too much. `least`: it is older than that.
    fn target(
        &mut self,
        now: Duration,
        least: Option<Duration>,
        average: usize,
    ) -> Option<(Arc<str>, Duration)> {
        // The heaviest stand at the end of `open`, and all in `rest` weigh less than some of them, or are next.
        let enough = |open: &ByWeight, next: &(usize, Arc<str>)| {
            open.iter().rev().take(LOOK).filter(|part| *part > next).count() == LOOK
        };
        while let Some(next) = self.rest.next_if(|next| !enough(&self.open, next)) {
            if self.taken.contains_key(&next.1) {
                continue;
            }
            self.open.insert(next.clone());
            if self.open.len().is_multiple_of(LOOK) {
                break;
            }
        }
        let heavy = self.open.iter().rev().take(LOOK).filter(|(weight, _)| *weight > 0 && *weight >= average);
        let found = heavy.filter_map(|(_, part)| Some((part.clone(), self.oldest(part, now)?)));
        found.into_iter().find(|(_, at)| least.is_none_or(|least| *at > least))
    }

    /// The age of the oldest event of a part.
    fn oldest(&self, part: &Arc<str>, now: Duration) -> Option<Duration> {
        let (taken, _) = self.taken.get(part).copied().unwrap_or_default();
        let event = self.resource.of_part(part)?.get(taken)?;
        let at = self.resource.slots.binary_search_by_key(&event.revision(), |slot| slot.revision).ok()?;
        Some(now.saturating_sub(self.resource.slots[at].at))
    }

    /// Takes the oldest event of a part that was looked at. Answers what it weighs.
    fn take(&mut self, part: &Arc<str>) -> usize {
        let (taken, gone) = self.taken.entry(part.clone()).or_default();
        let Some(event) = self.resource.of_part(part).and_then(|events| events.get(*taken)) else { return 0 };
        let weight = event.weight();
        let before = self.resource.weights.get(part).map_or(0, |whole| whole - *gone);
        *taken += 1;
        *gone += weight;
        self.open.remove(&(before, part.clone()));
        self.open.insert((before - weight, part.clone()));
        self.bytes -= weight;
        weight
    }

    fn forget(&self) -> Vec<Forget> {
        let parts = self.taken.iter().filter_map(|(part, (taken, _))| {
            let events = self.resource.of_part(part)?.iter().take(*taken);
            let old = |revision: &Revision| self.old.is_some_and(|old| *revision <= old);
            let revisions: Vec<_> = events.map(|event| event.revision()).filter(|r| !old(r)).collect();
            let up_to = *revisions.last()?;
            Some(Forget { resource: self.name.clone(), part: Some(part.clone()), up_to, revisions })
        });
        parts.collect()
    }
}
