//! Bindings that could not be placed as asked, and when each is tried again.
//!
//! ```text
//!   refused: so many replicas lack room ─▶ Waiting ◀─ clusters' room changes: what of it is room for these?
//!                                             │
//!       what it gained since is not enough ───┼─── it is: its next turn, a second to five minutes after its last
//!                 nothing                     ▼
//!                                     tried again: placed, or refused and further apart
//! ```
//!
//! There may be ten thousand of them, and the room of some cluster changes every second. A look at one that goes by what
//! changed costs less than a microsecond, a placement a thousand times that.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
    sync::Arc,
    time::Duration,
};

use karmada_api::{
    policy::Placement,
    work::{Component, ReplicaRequirements, ResourceBindingSpec},
};

use super::{PlaceError, applied_placement, ask, goes_as_set, parts, retry_after, serves_kind};
use crate::{
    affinity::Reach,
    estimate::Ask,
    fleet::{Fleet, Member},
    taints,
};

/// How long after it was refused a second time, although there seemed to be room, a binding is woken again; and the
/// longest of these times, which double.
const APART: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// Of so many clusters that changed at once each is held against what a placement means. Of more it is taken that all are
/// meant: who is woken for nothing is woken less often the next time.
const CLOSELY: usize = 8;

/// Of so many clusters that changed last a binding knows by how much each has grown, where that matters.
const KNOWN: usize = 8;

/// What a replica asks for, or a set of components that go together.
#[derive(Clone, Debug)]
struct Wanted {
    requirements: Option<ReplicaRequirements>,
    components: Vec<Component>,
    set: bool,
    /// The kind of the object, which a cluster has to serve.
    api_version: String,
    kind: String,
    namespace: String,
    /// The same as text: many ask for the same.
    text: Arc<str>,
}

impl Wanted {
    fn of(spec: &ResourceBindingSpec, placement: &Placement) -> Option<Box<Self>> {
        ask(spec, placement)?;
        let set = goes_as_set(spec, placement);
        let requirements = spec.replica_requirements.clone().filter(|_| !set);
        let components = if set { parts::wanted(spec) } else { Vec::new() };
        let (api_version, kind) = (spec.resource.api_version.clone(), spec.resource.kind.clone());
        let namespace = spec.resource.namespace.clone();
        let text = serde_json::to_string(&(&requirements, &components, &api_version, &kind, &namespace));
        let text = text.unwrap_or_default().into();
        Some(Box::new(Self { requirements, components, set, api_version, kind, namespace, text }))
    }

    fn room(&self, member: &Member) -> i64 {
        let ask =
            if self.set { Ask::set(&self.components) } else { Ask::replica(self.requirements.as_ref()) };
        ask.within(&self.namespace).room(member).replicas
    }

    /// The room of a cluster that the placement means; none on one that takes nothing new.
    fn usable(&self, member: &Member, placement: &Placement, reach: &Reach<'_>) -> i64 {
        let cluster = member.cluster();
        let takes = cluster.metadata.deletion_timestamp.is_none()
            && taints::untolerated(&cluster.spec.taints, &placement.cluster_tolerations, None).is_none()
            && serves_kind(cluster, &self.api_version, &self.kind)
            && reach.means(cluster);
        if takes { self.room(member) } else { 0 }
    }
}

/// By how much the room of clusters has grown since a binding was refused.
#[derive(Clone, Debug, Default)]
struct Gained {
    sum: i64,
    /// Where not all clusters are taken together, what one has lost is nothing that another has to make up for. Of those
    /// that have changed last, the latest at the end.
    by: Vec<(Box<str>, i64)>,
}

impl Gained {
    fn add(&mut self, cluster: &str, grown: i64, together: bool) {
        if together {
            self.sum = self.sum.saturating_add(grown);
            return;
        }
        let mut known = match self.by.iter().position(|(name, _)| **name == *cluster) {
            Some(at) => self.by.remove(at),
            None => {
                if self.by.len() == KNOWN {
                    let (_, grown) = self.by.remove(0);
                    self.sum = self.sum.saturating_add(grown.max(0));
                }
                (cluster.into(), 0)
            }
        };
        known.1 = known.1.saturating_add(grown);
        self.by.push(known);
    }

    fn all(&self) -> i64 {
        self.by.iter().map(|(_, grown)| (*grown).max(0)).fold(self.sum, i64::saturating_add)
    }
}

/// What a binding waits for.
#[derive(Clone, Debug)]
enum Lack {
    /// Room for more replicas than there were.
    Room(Box<Short>),
    /// That its namespace may use more.
    Quota,
    /// Nothing that somebody hears of.
    Time,
}

/// How much room a binding lacks.
#[derive(Clone, Debug)]
struct Short {
    wanted: Box<Wanted>,
    placement: Arc<Placement>,
    /// Where it is: it may stay there, and grow, whatever the cluster takes of others.
    there: Vec<Box<str>>,
    /// Whether all clusters that take it are taken together; otherwise some are chosen.
    together: bool,
    /// It lacks room for so many replicas.
    short: i64,
    gained: Gained,
}

#[derive(Clone, Debug)]
struct Entry {
    generation: i64,
    lack: Lack,
    /// How often in a row it was refused.
    attempts: u32,
    /// How often of these although there seemed to be what it lacks.
    wakings: u32,
    /// Its next turn was given, and has not come yet.
    woken: bool,
    /// It is not woken before.
    not_before: Duration,
    /// When it has its turn whatever happens.
    due: Duration,
}

/// Bindings that wait, by their keys.
#[derive(Clone, Debug)]
pub struct Waiting<K> {
    entries: BTreeMap<K, Entry>,
    /// The clusters when they were last looked at.
    fleet: Arc<Fleet>,
    /// The placements of entries by what is written of them: many have the same.
    placements: BTreeMap<String, Arc<Placement>>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), fleet: Arc::default(), placements: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Waiting<K> {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A binding was placed, or is gone.
    pub fn end(&mut self, key: &K) {
        self.take_out(key);
    }

    fn take_out(&mut self, key: &K) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        if let Lack::Room(short) = &entry.lack
            // The map has one, and this entry.
            && Arc::strong_count(&short.placement) == 2
        {
            self.placements.remove(&applied_placement(&short.placement));
        }
        Some(entry)
    }

    fn shared(&mut self, placement: &Placement) -> Arc<Placement> {
        let new = || Arc::new(placement.clone());
        self.placements.entry(applied_placement(placement)).or_insert_with(new).clone()
    }

    /// Whether an attempt at a binding of this generation is made because it waits: nothing else that it depends on has
    /// changed.
    pub fn is_its_turn(&self, key: &K, generation: i64, now: Duration) -> bool {
        let entry = self.entries.get(key).filter(|entry| entry.generation == generation);
        entry.is_some_and(|entry| entry.woken || entry.due <= now)
    }

    /// A binding was refused, with these clusters. When it is tried again, although nothing that it depends on has
    /// changed; nothing for one that does not wait.
    pub fn refused(
        &mut self,
        key: &K,
        generation: i64,
        spec: &ResourceBindingSpec,
        error: &PlaceError,
        fleet: &Arc<Fleet>,
        now: Duration,
    ) -> Option<Duration> {
        if self.entries.is_empty() {
            self.fleet = fleet.clone();
        }
        let before = self.take_out(key).filter(|entry| entry.generation == generation);
        let (attempts, wakings) = before
            .map_or((0, 0), |entry| (entry.attempts, entry.wakings.saturating_add(u32::from(entry.woken))));
        let attempts = attempts.saturating_add(1);
        let wait = retry_after(error, attempts)?;
        let apart = match wakings.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => APART.0.saturating_mul(1 << doublings.min(30)).min(APART.1),
        };
        let mut lack = Lack::of(spec, error, |placement| self.shared(placement));
        // What changed between the last look and this attempt is in it already, and comes again with the next look.
        lack.hear(&changes(&self.fleet, fleet), &mut BTreeMap::new(), true);
        let entry = Entry {
            generation,
            lack,
            attempts,
            wakings,
            woken: false,
            not_before: now + apart,
            due: now + wait,
        };
        self.entries.insert(key.clone(), entry);
        Some(wait)
    }

    /// The clusters are these now. Whom that may help, and how long each has to wait for its turn still.
    pub fn look(&mut self, fleet: &Arc<Fleet>, now: Duration) -> Vec<(K, Duration)> {
        let before = std::mem::replace(&mut self.fleet, fleet.clone());
        if self.entries.is_empty() {
            return Vec::new();
        }
        let changes = changes(&before, fleet);
        let (mut known, mut woken) = (BTreeMap::new(), Vec::new());
        for (key, entry) in &mut self.entries {
            if entry.lack.hear(&changes, &mut known, false) && !entry.woken {
                entry.woken = true;
                woken.push((key.clone(), entry.not_before.saturating_sub(now)));
            }
        }
        woken
    }

    /// The bindings of a range may use more than before. How long each that waits for that has to wait for its turn still;
    /// if somebody `asked` for it, none.
    pub fn may_use_more(
        &mut self,
        range: impl RangeBounds<K>,
        is: impl Fn(&K) -> bool,
        asked: bool,
        now: Duration,
    ) -> Vec<(K, Duration)> {
        let entries = self.entries.range_mut((range.start_bound().cloned(), Bound::Unbounded));
        let mut woken = Vec::new();
        for (key, entry) in entries.take_while(|(key, _)| is(key)) {
            if matches!(entry.lack, Lack::Quota) && (asked || !entry.woken) {
                entry.woken = true;
                let wait = if asked { Duration::ZERO } else { entry.not_before.saturating_sub(now) };
                woken.push((key.clone(), wait));
            }
        }
        woken
    }
}

/// By how much the room of each of the clusters that changed has grown, for those that ask for the same and have one
/// placement; or whatever the placement, where it is not looked at.
type Known = BTreeMap<(Arc<str>, Option<*const Placement>), Vec<i64>>;

impl Lack {
    fn of(
        spec: &ResourceBindingSpec,
        error: &PlaceError,
        shared: impl FnOnce(&Placement) -> Arc<Placement>,
    ) -> Self {
        let placement = spec.placement.as_ref();
        let wanted = placement.and_then(|placement| Some((Wanted::of(spec, placement)?, placement)));
        let short = match (error, wanted.as_ref()) {
            (PlaceError::Quota(_), _) => return Self::Quota,
            // Of several groups the first speaks; another may need less.
            (PlaceError::Unschedulable { short, .. }, Some((_, placement)))
                if placement.cluster_affinities.len() < 2 =>
            {
                (*short).max(1)
            }
            _ => 1,
        };
        let Some((wanted, placement)) = wanted else { return Self::Time };
        let together = placement.spread_constraints.is_empty()
            && placement.cluster_affinities.len() < 2
            && spec.workload_affinity_groups.is_none()
            && spec.graceful_eviction_tasks.is_empty();
        Self::Room(Box::new(Short {
            wanted,
            placement: shared(placement),
            there: spec.clusters.iter().map(|target| target.name.as_str().into()).collect(),
            together,
            short,
            gained: Gained::default(),
        }))
    }

    /// Takes in what has changed, or takes it `back`. Whether that may be enough now.
    fn hear(&mut self, changes: &[Changed<'_>], known: &mut Known, back: bool) -> bool {
        match self {
            Self::Room(short) => short.hear(changes, known, back),
            Self::Quota | Self::Time => false,
        }
    }
}

impl Short {
    fn hear(&mut self, changes: &[Changed<'_>], known: &mut Known, back: bool) -> bool {
        if changes.is_empty() {
            return self.gained.all() >= self.short;
        }
        let Self { wanted, placement, .. } = self;
        let signed = |grown: i64| if back { grown.saturating_neg() } else { grown };
        if changes.len() > CLOSELY {
            let grown = known.entry((wanted.text.clone(), None)).or_insert_with(|| {
                changes.iter().map(|change| growth(change, |member| wanted.room(member))).collect()
            });
            // What is lost is gained by whoever takes it back.
            let more = grown.iter().map(|grown| signed(*grown)).filter(|grown| *grown > 0);
            self.gained.sum = more.fold(self.gained.sum, i64::saturating_add);
            return self.gained.all() >= self.short;
        }
        let grown = known.entry((wanted.text.clone(), Some(Arc::as_ptr(placement)))).or_insert_with(|| {
            let reach = Reach::new(placement);
            let usable = |member: &Member| wanted.usable(member, placement, &reach);
            changes.iter().map(|change| growth(change, usable)).collect()
        });
        for (change, grown) in changes.iter().zip(grown) {
            let name = change.1.name();
            let grown = if self.there.iter().any(|there| **there == *name) {
                growth(change, |member| wanted.room(member))
            } else {
                *grown
            };
            if grown != 0 {
                self.gained.add(name, signed(grown), self.together);
            }
        }
        self.gained.all() >= self.short
    }
}

/// A cluster as it was, if it was there, and as it is.
type Changed<'a> = (Option<&'a Member>, &'a Member);

fn growth((old, new): &Changed<'_>, room: impl Fn(&Member) -> i64) -> i64 {
    room(new).saturating_sub(old.map_or(0, room))
}

/// The clusters that are not as they were.
fn changes<'a>(before: &'a Fleet, now: &'a Fleet) -> Vec<Changed<'a>> {
    let mut changes = Vec::new();
    let mut before = before.members().iter().peekable();
    for new in now.members() {
        while before.next_if(|old| old.name() < new.name()).is_some() {}
        let old = before.next_if(|old| old.name() == new.name());
        if old.is_none_or(|old| !Arc::ptr_eq(old, new)) {
            changes.push((old.map(|old| &**old), &**new));
        }
    }
    changes
}

/// Whether two sentences differ in numbers alone. What is part of a name is no number.
pub fn says_the_same(a: &str, b: &str) -> bool {
    fn words(text: &str) -> impl Iterator<Item = &str> {
        let inside = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        text.split_inclusive(move |c: char| !inside(c)).map(|word| word.trim_end_matches('.'))
    }
    let is_number = |word: &str| {
        let word = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.parse::<karmada_meta::quantity::Quantity>().is_ok()
    };
    let end = |word: &str| word.chars().next_back().filter(|c| !c.is_ascii_alphanumeric());
    let same = |(a, b): (&str, &str)| a == b || is_number(a) && is_number(b) && end(a) == end(b);
    let (mut a, mut b) = (words(a), words(b));
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(x), Some(y)) if same((x, y)) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests;
