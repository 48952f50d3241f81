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

use super::{PlaceError, ask, goes_as_set, retry_after};
use crate::{
    affinity::Reach,
    estimate::Ask,
    fleet::{Fleet, Member},
};

/// How long after it was refused a second time, although there seemed to be room, a binding is woken again; and the
/// longest of these times, which double.
const APART: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// Of so many clusters that changed at once each is held against what a placement means. Of more it is taken that all are
/// meant: who is woken for nothing is woken less often the next time.
const CLOSELY: usize = 8;

/// What a replica asks for, or a set of components that go together.
#[derive(Clone, Debug)]
struct Wanted {
    requirements: Option<ReplicaRequirements>,
    components: Vec<Component>,
    set: bool,
    /// The same as text: many ask for the same.
    text: Arc<str>,
}

impl Wanted {
    fn of(spec: &ResourceBindingSpec, placement: &Placement) -> Option<Box<Self>> {
        ask(spec, placement)?;
        let set = goes_as_set(spec, placement);
        let requirements = spec.replica_requirements.clone().filter(|_| !set);
        let components = if set { spec.components.clone() } else { Vec::new() };
        let text = serde_json::to_string(&(&requirements, &components)).unwrap_or_default().into();
        Some(Box::new(Self { requirements, components, set, text }))
    }

    fn room(&self, member: &Member) -> i64 {
        let ask =
            if self.set { Ask::set(&self.components) } else { Ask::replica(self.requirements.as_ref()) };
        ask.room(member).replicas
    }
}

/// What a binding waits for.
#[derive(Clone, Debug)]
enum Lack {
    /// Room for so many more replicas than there were; so many it has gained since.
    Room { wanted: Box<Wanted>, placement: Arc<Placement>, short: i64, gained: i64 },
    /// That its namespace may use more.
    Quota,
    /// Nothing that somebody hears of.
    Time,
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
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), fleet: Arc::default() }
    }
}

impl<K: Ord + Clone> Waiting<K> {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A binding was placed, or is gone.
    pub fn end(&mut self, key: &K) {
        self.entries.remove(key);
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
        let before = self.entries.remove(key).filter(|entry| entry.generation == generation);
        let (attempts, wakings) = before
            .map_or((0, 0), |entry| (entry.attempts, entry.wakings.saturating_add(u32::from(entry.woken))));
        let attempts = attempts.saturating_add(1);
        let wait = retry_after(error, attempts)?;
        let apart = match wakings.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => APART.0.saturating_mul(1 << doublings.min(30)).min(APART.1),
        };
        let mut lack = Lack::of(spec, error);
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

/// By how much the room of each of the clusters that changed has grown, for those that ask for the same.
type Known = BTreeMap<Arc<str>, Vec<i64>>;

impl Lack {
    fn of(spec: &ResourceBindingSpec, error: &PlaceError) -> Self {
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
        match wanted {
            Some((wanted, placement)) => {
                Self::Room { wanted, placement: Arc::new(placement.clone()), short, gained: 0 }
            }
            None => Self::Time,
        }
    }

    /// Takes in what has changed, or takes it `back`. Whether that may be enough now.
    fn hear(&mut self, changes: &[Changed<'_>], known: &mut Known, back: bool) -> bool {
        let Self::Room { wanted, placement, short, gained } = self else { return false };
        if changes.is_empty() {
            return *gained >= *short;
        }
        if !known.contains_key(&wanted.text) {
            let grown = |(old, new): &Changed<'_>| wanted.room(new) - old.map_or(0, |old| wanted.room(old));
            known.insert(wanted.text.clone(), changes.iter().map(grown).collect());
        }
        let grown = known.get(&wanted.text).map(Vec::as_slice).unwrap_or_default();
        let sum: i64 = if changes.len() > CLOSELY {
            grown.iter().copied().filter(|grown| (*grown > 0) != back).fold(0, i64::saturating_add)
        } else {
            let reach = Reach::new(placement);
            let of = changes.iter().zip(grown).filter(|(_, grown)| **grown != 0);
            of.filter(|((_, new), _)| reach.means(new.cluster()))
                .map(|(_, grown)| *grown)
                .fold(0, i64::saturating_add)
        };
        *gained = if back { gained.saturating_sub(sum) } else { gained.saturating_add(sum) };
        gained >= short
    }
}

/// A cluster as it was, if it was there, and as it is.
type Changed<'a> = (Option<&'a Member>, &'a Member);

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
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::affinity::tests::cluster;

    const S: Duration = Duration::from_secs(1);

    fn fleet(rooms: &[(&str, i64)]) -> Arc<Fleet> {
        anew(&Fleet::default(), rooms)
    }

    /// The clusters with other room; those of the same room are the same.
    fn anew(before: &Fleet, rooms: &[(&str, i64)]) -> Arc<Fleet> {
        let member = |(name, cpu): &(&str, i64)| {
            let summary = json!({"allocatable": {"cpu": cpu.to_string(), "pods": "1000"}});
            let member = Member::new(Arc::new(cluster(
                name,
                json!({}),
                json!({}),
                json!({"resourceSummary": summary}),
            )));
            let old = before.members().iter().find(|old| ***old == member);
            old.cloned().unwrap_or_else(|| Arc::new(member))
        };
        Arc::new(Fleet::new(rooms.iter().map(member)))
    }

    fn spec(on: Value) -> ResourceBindingSpec {
        serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "n"}, "replicas": 100,
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "placement": {"clusterAffinity": {"clusterNames": on},
                          "replicaScheduling": {"replicaSchedulingType": "Divided",
                                                "replicaDivisionPreference": "Aggregated"}},
        }))
        .unwrap()
    }

    fn short(short: i64) -> PlaceError {
        PlaceError::Unschedulable { message: "x".into(), short }
    }

    #[test]
    fn only_those_are_woken_that_have_gained_what_they_lack() {
        let mut waiting = Waiting::default();
        let mut now = fleet(&[("a", 10), ("b", 10)]);
        waiting.look(&now, S);
        for (key, on, lacks) in [("any", json!([]), 5), ("on b", json!(["b"]), 5), ("much", json!([]), 50)] {
            assert!(waiting.refused(&key, 1, &spec(on), &short(lacks), &now, S).is_some());
        }
        assert!(
            waiting.refused(&"quota", 1, &spec(json!([])), &PlaceError::Quota("q".into()), &now, S).is_some()
        );
        assert_eq!(
            waiting.refused(&"none", 1, &spec(json!([])), &PlaceError::NoFit(Default::default()), &now, S),
            None
        );
        let table: [(&[(&str, i64)], &[&str]); 7] = [
            (&[("a", 14), ("b", 10)], &[]),
            (&[("a", 10), ("b", 10)], &[]),
            (&[("a", 14), ("b", 11)], &["any"]),
            (&[("a", 14), ("b", 14)], &[]),
            (&[("a", 1), ("b", 15)], &["on b"]),
            (&[("a", 1), ("b", 68)], &[]),
            (&[("a", 1), ("b", 70)], &["much"]),
        ];
        for (rooms, want) in table {
            now = anew(&now, rooms);
            let woken: Vec<_> = waiting.look(&now, S).into_iter().map(|(key, _)| key).collect();
            assert_eq!(woken, want, "{rooms:?}");
        }
        let woken = waiting.may_use_more("quota".., |key| *key == "quota", false, S);
        assert_eq!(woken, [("quota", Duration::ZERO)]);
    }

    #[test]
    fn what_an_attempt_has_seen_is_not_counted_twice() {
        let mut waiting = Waiting::default();
        let first = fleet(&[("a", 10)]);
        waiting.look(&first, S);
        // It was refused with less than was there at the last look.
        let less = fleet(&[("a", 5)]);
        waiting.refused(&"x", 1, &spec(json!([])), &short(3), &less, S);
        assert_eq!(waiting.look(&anew(&less, &[("a", 7)]), S), []);
        assert_eq!(waiting.look(&fleet(&[("a", 8)]), S).len(), 1);
        // What was there at the last look is there again.
        waiting.refused(&"x", 1, &spec(json!([])), &short(3), &less, S);
        assert_eq!(waiting.look(&fleet(&[("a", 8)]), S).len(), 1);
        // And with more.
        waiting.refused(&"x", 1, &spec(json!([])), &short(3), &fleet(&[("a", 20)]), S);
        assert_eq!(waiting.look(&fleet(&[("a", 22)]), S), []);
        assert_eq!(waiting.look(&fleet(&[("a", 23)]), S).len(), 1);
    }

    #[test]
    fn who_is_woken_in_vain_is_woken_less_often() {
        let mut waiting = Waiting::default();
        let (small, large) = (fleet(&[("a", 1)]), fleet(&[("a", 2)]));
        waiting.look(&small, S);
        let (mut now, mut waits) = (S, Vec::new());
        for _ in 0..8 {
            let again = waiting.refused(&"x", 1, &spec(json!([])), &short(1), &small, now);
            assert_eq!(again, Some(300 * S));
            assert!(!waiting.is_its_turn(&"x", 1, now));
            let wait = waiting.look(&large, now)[0].1;
            assert_eq!(waiting.look(&fleet(&[("a", 3)]), now), [], "once is enough");
            assert!(waiting.is_its_turn(&"x", 1, now + wait) && !waiting.is_its_turn(&"x", 2, now + wait));
            waiting.look(&small, now);
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        waiting.refused(&"x", 2, &spec(json!([])), &short(1), &small, now);
        assert_eq!(waiting.look(&large, now)[0].1, Duration::ZERO, "what is asked for is another");
        assert!(waiting.is_its_turn(&"x", 2, now));
        waiting.end(&"x");
        assert!(waiting.is_empty() && waiting.look(&small, now).is_empty());
    }

    #[test]
    fn many_clusters_at_once_wake_whom_they_could_help() {
        let names: Vec<String> = (0..20).map(|n| format!("m{n:02}")).collect();
        let with = |room: i64| {
            let rooms: Vec<_> = names.iter().map(|name| (name.as_str(), room)).collect();
            fleet(&rooms)
        };
        let mut waiting = Waiting::default();
        waiting.look(&with(10), S);
        for (key, lacks) in [("x", 30), ("y", 50)] {
            waiting.refused(&key, 1, &spec(json!([])), &short(lacks), &with(10), S);
        }
        let woken = |found: Vec<(&'static str, Duration)>| -> BTreeSet<_> {
            found.into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(woken(waiting.look(&with(11), S)), BTreeSet::new());
        assert_eq!(woken(waiting.look(&with(12), S)), BTreeSet::from(["x"]));
        assert_eq!(woken(waiting.look(&with(13), S)), BTreeSet::from(["y"]));
    }

    #[test]
    fn numbers_alone_are_no_news() {
        let table = [
            ("m1 has room for 2 (cpu), 30 are wanted.", "m1 has room for 12 (cpu), 31 are wanted.", true),
            ("m1 has room for 2 (cpu)", "m2 has room for 2 (cpu)", false),
            ("m1 has room for 2 (cpu)", "m1 has room for 2 (pods)", false),
            ("shop-1 has room for 2", "shop-2 has room for 2", false),
            ("requested sum 5, limit 4.", "requested sum 5500m, limit 4.", true),
            ("memory: requested sum 5Gi, limit 4.", "memory: requested sum 7.5Gi, limit 4.", true),
            (
                "0/3 clusters are available: 3 have taints.",
                "0/3 clusters are available: 2 have taints.",
                true,
            ),
            ("2 (cpu)", "2 [cpu)", false),
            ("1, 2", "1 2", false),
            ("more", "more 1", false),
            ("", "", true),
        ];
        for (a, b, want) in table {
            assert_eq!(says_the_same(a, b), want, "{a} | {b}");
            assert_eq!(says_the_same(b, a), want, "{b} | {a}");
        }
    }
}
