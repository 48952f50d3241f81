//! The recent changes, in order, found by scope; and which of them are forgotten when.
//!
//! ```text
//!   works           e7 e9 e11              trimmed from the left, each resource by itself
//!     karmada-es-a  e7 e11                 the same events by namespace within it,
//!       nginx       e11                    and by name: a watcher reads only what is in its scope
//! ```
//!
//! Each resource is trimmed by itself, so that what changes all the time (Leases) does not push out what changes
//! seldom and is resumed from after a day (Works). How far a resource is trimmed is kept for ever: a resource of
//! which nothing was forgotten can be watched from its beginning.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::{engine::Forget, entry::Event, key::Revision, scope::Scope};

/// Events taken from one resource before others are looked at again.
const RUN: usize = 8;

type Events<H> = VecDeque<Arc<Event<H>>>;

struct InNamespace<H> {
    events: Events<H>,
    names: BTreeMap<Arc<str>, Events<H>>,
}

struct InResource<H> {
    /// With the monotonic time at which each was added.
    events: VecDeque<(Duration, Arc<Event<H>>)>,
    namespaces: BTreeMap<Arc<str>, InNamespace<H>>,
    bytes: usize,
}

/// How far resources are trimmed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trimmed {
    /// Of every resource everything up to here is forgotten,
    pub(crate) base: Revision,
    /// and of these everything up to there.
    pub(crate) resources: BTreeMap<Arc<str>, Revision>,
}

impl Trimmed {
    /// Everything of a resource up to here is forgotten.
    pub(crate) fn of(&self, resource: &str) -> Revision {
        self.resources.get(resource).map_or(self.base, |revision| self.base.max(*revision))
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
    /// When the changes kept weigh more than this, the oldest of a resource are forgotten: of the one that weighs most,
    /// counting the part of its time that its oldest has used up;
    pub bytes: usize,
    /// but none that is younger than this,
    pub least: Duration,
    /// unless all together weigh more than this: then the oldest of the heaviest resource.
    pub most: usize,
}

impl<H> History<H> {
    pub(crate) fn new(trimmed: Trimmed) -> Self {
        Self { resources: BTreeMap::new(), trimmed, len: 0, bytes: 0 }
    }

    /// Everything of a resource up to here is forgotten.
    pub(crate) fn compacted(&self, resource: &str) -> Revision {
        self.trimmed.of(resource)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, event: Arc<Event<H>>, now: Duration) {
        let (key, weight) = (event.key(), event.weight());
        let resource = self.resources.entry(key.resource.clone()).or_insert_with(|| InResource {
            events: VecDeque::new(),
            namespaces: BTreeMap::new(),
            bytes: 0,
        });
        let namespace = resource
            .namespaces
            .entry(key.namespace.clone())
            .or_insert_with(|| InNamespace { events: VecDeque::new(), names: BTreeMap::new() });
        namespace.names.entry(key.name.clone()).or_default().push_back(event.clone());
        namespace.events.push_back(event.clone());
        resource.bytes += weight;
        self.bytes += weight;
        self.len += 1;
        resource.events.push_back((now, event));
    }

    /// What the limits ask to forget, in a step of about `step` events.
    pub(crate) fn plan(&self, limits: &HistoryLimits, now: Duration, step: usize) -> Vec<Forget> {
        let mut plan = Plan { bytes: self.bytes, left: step, resources: Vec::new() };
        for (name, resource) in &self.resources {
            let age = (limits.age)(name);
            let mut candidate = Candidate { name, resource, age, taken: 0, bytes: resource.bytes };
            while plan.left > 0 && candidate.oldest(now).is_some_and(|at| at > age) {
                plan.take(&mut candidate);
            }
            plan.resources.push(candidate);
        }
        while plan.left > 0 && plan.bytes > limits.bytes {
            let old = |c: &Candidate<'_, H>| c.oldest(now).filter(|at| *at > limits.least);
            // A resource that changes seldom costs little and is resumed from late: it stays.
            let used_up = |c: &Candidate<'_, H>| {
                let age = c.age.as_secs_f64().max(f64::MIN_POSITIVE);
                old(c).map_or(-1.0, |at| c.bytes as f64 * (at.as_secs_f64() / age))
            };
            let first = plan.resources.iter_mut().max_by(|a, b| used_up(a).total_cmp(&used_up(b)));
            let Some(mut candidate) = first.filter(|c| old(c).is_some()).copied() else { break };
            plan.run(&mut candidate, limits.bytes, |c| old(c).is_some());
        }
        while plan.left > 0 && plan.bytes > limits.most {
            let heaviest = plan.resources.iter().max_by_key(|c| c.bytes);
            let Some(mut candidate) = heaviest.filter(|c| c.oldest(now).is_some()).copied() else { break };
            plan.run(&mut candidate, limits.most, |c| c.oldest(now).is_some());
        }
        plan.resources.iter().filter_map(Candidate::forget).collect()
    }

    /// Forgets what was planned.
    pub(crate) fn trim(&mut self, forget: &[Forget]) {
        for Forget { resource: name, up_to, .. } in forget {
            while let Some(resource) = self.resources.get_mut(name)
                && let Some((_, event)) = resource.events.pop_front_if(|(_, e)| e.revision() <= *up_to)
            {
                let weight = event.weight();
                resource.bytes -= weight;
                self.bytes -= weight;
                self.len -= 1;
                self.leave_scopes(&event);
            }
            self.trimmed.resources.insert(name.clone(), *up_to);
        }
    }

    /// Takes the oldest event of a resource out of the narrower scopes: it is the first in each of them.
    fn leave_scopes(&mut self, event: &Event<H>) {
        let key = event.key();
        let Some(resource) = self.resources.get_mut(&key.resource) else { return };
        if let Some(namespace) = resource.namespaces.get_mut(&key.namespace) {
            namespace.events.pop_front();
            if let Some(events) = namespace.names.get_mut(&key.name) {
                events.pop_front();
                if events.is_empty() {
                    namespace.names.remove(&key.name);
                }
            }
            if namespace.events.is_empty() {
                resource.namespaces.remove(&key.namespace);
            }
        }
        if resource.events.is_empty() {
            self.resources.remove(&key.resource);
        }
    }

    /// The first event in scope after a revision.
    pub(crate) fn next_in(&self, scope: &Scope, after: Revision) -> Option<&Arc<Event<H>>> {
        fn first_after<H>(events: &Events<H>, after: Revision) -> Option<&Arc<Event<H>>> {
            events.get(events.partition_point(|e| e.revision() <= after))
        }
        let resource = self.resources.get(&scope.resource)?;
        let (namespace, name) = match (&scope.namespace, &scope.name) {
            (None, name) => {
                let first = resource.events.partition_point(|(_, e)| e.revision() <= after);
                let mut events = resource.events.range(first..).map(|(_, event)| event);
                return events.find(|e| name.as_ref().is_none_or(|name| e.key().name == *name));
            }
            (Some(namespace), name) => (resource.namespaces.get(namespace)?, name),
        };
        match name {
            None => first_after(&namespace.events, after),
            Some(name) => first_after(namespace.names.get(name)?, after),
        }
    }

    /// The events of a resource after a revision, newest first.
    pub(crate) fn back_to(&self, resource: &str, revision: Revision) -> impl Iterator<Item = &Arc<Event<H>>> {
        let events =
            self.resources.get(resource).into_iter().flat_map(|resource| resource.events.iter().rev());
        events.map(|(_, event)| event).take_while(move |e| e.revision() > revision)
    }
}

/// A resource that may have to forget.
struct Candidate<'a, H> {
    name: &'a Arc<str>,
    resource: &'a InResource<H>,
    age: Duration,
    /// So many of its oldest are to go;
    taken: usize,
    /// so much is left then.
    bytes: usize,
}

impl<H> Clone for Candidate<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Candidate<'_, H> {}

impl<H> Candidate<'_, H> {
    /// The age of its oldest event.
    fn oldest(&self, now: Duration) -> Option<Duration> {
        self.resource.events.get(self.taken).map(|(at, _)| now.saturating_sub(*at))
    }

    fn forget(&self) -> Option<Forget> {
        let revisions: Vec<Revision> =
            self.resource.events.iter().take(self.taken).map(|(_, e)| e.revision()).collect();
        let up_to = *revisions.last()?;
        Some(Forget { resource: self.name.clone(), up_to, revisions })
    }
}

/// What is to be forgotten, while it is found out.
struct Plan<'a, H> {
    bytes: usize,
    left: usize,
    resources: Vec<Candidate<'a, H>>,
}

impl<H> Plan<'_, H> {
    fn take(&mut self, candidate: &mut Candidate<'_, H>) {
        let Some((_, event)) = candidate.resource.events.get(candidate.taken) else { return };
        let weight = event.weight();
        candidate.taken += 1;
        candidate.bytes -= weight;
        self.bytes -= weight;
        self.left -= 1;
    }

    /// Takes some of one resource, while it may be and while there is more than `limit`.
    fn run(
        &mut self,
        candidate: &mut Candidate<'_, H>,
        limit: usize,
        may: impl Fn(&Candidate<'_, H>) -> bool,
    ) {
        for _ in 0..RUN.min(self.left) {
            if self.bytes <= limit || !may(candidate) {
                break;
            }
            self.take(candidate);
        }
        if let Some(kept) = self.resources.iter_mut().find(|c| Arc::ptr_eq(c.name, candidate.name)) {
            (kept.taken, kept.bytes) = (candidate.taken, candidate.bytes);
        }
    }
}
