//! Replicas on their way: decided on, but not in what their cluster reports.
//!
//! ```text
//!   decided ──▶ on their way ──▶ arrived ──▶ the cluster's next report counts them: forgotten
//!                 │  │   the binding's status has them │
//!                 │  └────────── 5 minutes ────────────┴── a minute, if it reports nothing new ──▶ forgotten
//!                 └── a report counts so many pods more than the one before: forgotten, the oldest first
//! ```
//!
//! Between two reports of an agent the same free room would be given to many bindings otherwise. What a binding has on its
//! way can be read off the binding: what it was assigned, less what its clusters report of it. Only what has arrived
//! since the last report is nowhere but here; it is lost with the hub, and for seconds.
//!
//! Karmada's scheduler keeps such an account (overcommit protection), too, but holds everything until the workload is
//! healthy, when its cluster has long been counting its pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use karmada_api::work::{
    AggregatedStatusItem, Component, ComponentReplicaRequirements, ReplicaRequirements, ResourceBindingSpec,
    ResourceBindingStatus, ResourceHealth, TargetCluster,
};
use serde::Serialize;

/// How long what was decided takes room at most: an object that its member refuses would hold it for ever. Karmada's.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How long what has arrived takes room when its cluster reports nothing new: twice the pause of an agent's reports of
/// single nodes, which come less often than sums.
pub const SETTLING: Duration = Duration::from_secs(60);

/// Replicas that ask for the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// How many of them go together.
    pub replicas: i64,
    /// What each of them asks for.
    pub requirements: ReplicaRequirements,
}

/// What is counted of a binding: a replica, or a set of parts.
#[derive(Clone, Debug)]
struct Unit {
    parts: Arc<[Part]>,
    /// The parts as JSON, by which units are told apart and put in order.
    text: Arc<str>,
}

impl Unit {
    fn of(parts: Vec<Part>) -> Self {
        let text = serde_json::to_string(&parts).expect("parts are plain data");
        Self { parts: parts.into(), text: text.into() }
    }

    /// So many of them, part by part.
    fn times(&self, number: i64) -> impl Iterator<Item = (&Part, i64)> {
        self.parts.iter().map(move |part| (part, part.replicas.saturating_mul(number)))
    }
}

impl PartialEq for Unit {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// How much of a binding a cluster was told to run, and how much of that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    assigned: i64,
    there: i64,
}

/// A binding as the account has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    unit: Unit,
    clusters: BTreeMap<String, Count>,
    /// How much longer what is on its way takes room.
    left: Duration,
}

impl Assigned {
    /// What a binding has assigned to clusters, by its own word; `now` says how long that is ago. `None` for what has no
    /// replicas, or was scheduled so long ago that nothing of it is on its way.
    pub fn of(spec: &ResourceBindingSpec, status: &ResourceBindingStatus, now: SystemTime) -> Option<Self> {
        // One that was born with its clusters has no such time at first.
        let age = status.last_scheduled_time.map_or(Duration::ZERO, |at| at.elapsed(now));
        let left = PATIENCE.saturating_sub(age);
        (!left.is_zero()).then(|| Self::to(spec, &spec.clusters, status, left)).flatten()
    }

    /// The same for clusters that were decided on just now.
    pub fn just_now(
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
        clusters: &[TargetCluster],
    ) -> Option<Self> {
        Self::to(spec, clusters, status, PATIENCE)
    }

    fn to(
        spec: &ResourceBindingSpec,
        clusters: &[TargetCluster],
        status: &ResourceBindingStatus,
        left: Duration,
    ) -> Option<Self> {
        let together = spec.components.len() > 1;
        // What is asked for beyond what was given is not on its way.
        let given =
            clusters.iter().map(|target| target.components.as_slice()).find(|given| !given.is_empty());
        let of = |component: &Component| match given {
            None => component.replicas,
            Some(given) => {
                given.iter().find(|part| part.name == component.name).map_or(0, |part| part.replicas)
            }
        };
        let parts: Vec<Part> = match spec.components.as_slice() {
            [] if spec.replicas <= 0 => return None,
            [] => vec![Part {
                replicas: 1,
                requirements: spec.replica_requirements.clone().unwrap_or_default(),
            }],
            components => components
                .iter()
                .map(|component| Part {
                    replicas: if together { i64::from(of(component).max(0)) } else { 1 },
                    requirements: of_component(
                        component.replica_requirements.as_ref(),
                        &spec.resource.namespace,
                    ),
                })
                .collect(),
        };
        let count = |target: &TargetCluster| {
            let assigned = if together { 1 } else { i64::from(target.replicas.max(0)) };
            let reported = status.aggregated_status.iter().find(|item| item.cluster_name == target.name);
            let there = reported.map_or(0, |item| there(item, assigned, together));
            (target.name.clone(), Count { assigned, there })
        };
        let clusters: BTreeMap<_, _> =
            clusters.iter().map(count).filter(|(_, count)| count.assigned > 0).collect();
        Some(Self { unit: Unit::of(parts), clusters, left })
    }

    /// What of it is on its way to each cluster.
    pub fn on_their_way(&self) -> impl Iterator<Item = (&str, Vec<(&Part, i64)>)> {
        self.clusters.iter().filter(|(_, count)| count.there < count.assigned).map(|(cluster, count)| {
            (cluster.as_str(), self.unit.times(count.assigned - count.there).collect())
        })
    }
}

fn of_component(requirements: Option<&ComponentReplicaRequirements>, namespace: &str) -> ReplicaRequirements {
    let namespace = namespace.to_owned();
    let Some(of) = requirements else { return ReplicaRequirements { namespace, ..Default::default() } };
    ReplicaRequirements {
        namespace,
        node_claim: of.node_claim.clone(),
        resource_request: of.resource_request.clone(),
        priority_class_name: of.priority_class_name.clone(),
    }
}

/// How much of what was assigned a cluster says is there: pods that exist, running or not, are in its report.
fn there(item: &AggregatedStatusItem, assigned: i64, together: bool) -> i64 {
    let number = |field: &str| item.status.as_ref().and_then(|status| status[field].as_i64());
    let pods = match (number("replicas"), number("active"), number("succeeded")) {
        _ if together => None,
        (Some(replicas), ..) => Some(replicas),
        // A Job that is through with a pod starts the next one.
        (None, None, None) => None,
        (None, active, succeeded) => Some(active.unwrap_or(0) + succeeded.unwrap_or(0)),
    };
    let all = if item.health == Some(ResourceHealth::Healthy) { assigned } else { 0 };
    pods.unwrap_or(all).clamp(0, assigned)
}

/// What one binding has on its way to one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    count: Count,
    /// How much of it a report has counted before the binding's status told of it.
    counted: i64,
    /// What has arrived, and when.
    arrived: Vec<(i64, Duration)>,
}

impl Held {
    /// What takes room: on its way, or arrived.
    fn units(&self) -> i64 {
        self.on_its_way() + self.arrived.iter().map(|(n, _)| n).sum::<i64>()
    }

    fn on_its_way(&self) -> i64 {
        (self.count.assigned - self.known()).max(0)
    }

    /// What is known to be there, one way or the other.
    fn known(&self) -> i64 {
        self.count.there.max(self.counted)
    }

    /// Notes what a cluster has of it; what was on its way and is there has arrived.
    fn now(&mut self, count: Count, now: Duration) {
        let arrived = (count.there - self.known()).min(self.on_its_way());
        self.counted = self.counted.min(count.assigned);
        if arrived > 0 {
            self.arrived.push((arrived, now));
        }
        self.count = count;
    }
}

#[derive(Clone, Debug)]
struct Entry {
    unit: Unit,
    /// Until when what is on its way takes room.
    until: Duration,
    /// The generation that was decided on, until one that has the decision is heard of.
    decided_on: Option<i64>,
    /// By cluster; only where it takes room, or its status is behind.
    on: BTreeMap<String, Held>,
}

impl Entry {
    /// How many pods one of it is.
    fn pods(&self) -> i64 {
        self.unit.parts.iter().map(|part| part.replicas).sum::<i64>().max(1)
    }
}

/// What takes room on one cluster: whose it is, and summed up, since a thousand bindings often ask for the same.
#[derive(Clone, Debug)]
struct Taken<K> {
    of: BTreeMap<K, (Unit, i64)>,
    /// By the units' texts.
    sums: BTreeMap<Arc<str>, (Unit, i64)>,
}

impl<K: Clone + Ord> Taken<K> {
    /// A binding takes so many units from now on.
    fn set(&mut self, key: &K, unit: &Unit, number: i64) {
        if let Some((unit, number)) = self.of.remove(key)
            && let Some((_, sum)) = self.sums.get_mut(&unit.text)
        {
            *sum -= number;
            if *sum == 0 {
                self.sums.remove(&unit.text);
            }
        }
        if number > 0 {
            self.of.insert(key.clone(), (unit.clone(), number));
            self.sums.entry(unit.text.clone()).or_insert_with(|| (unit.clone(), 0)).1 += number;
        }
    }
}

/// The account of a hub. Times are those of one monotonic clock; keys stand for bindings. Whatever changes it answers
/// with the clusters whose room is another one.
#[derive(Clone, Debug)]
pub struct Ledger<K> {
    entries: BTreeMap<K, Entry>,
    /// By name; those where nothing takes room are not kept.
    clusters: BTreeMap<String, Taken<K>>,
    /// Nothing lapses before.
    next: Duration,
}

impl<K> Default for Ledger<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), clusters: BTreeMap::new(), next: Duration::MAX }
    }
}

impl<K: Clone + Ord> Ledger<K> {
    /// Whether anything is known of a binding.
    pub fn knows(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// A binding of this generation gets what `assigned` says; the watch will bring that later.
    pub fn decided(
        &mut self,
        key: &K,
        generation: i64,
        assigned: Option<&Assigned>,
        now: Duration,
    ) -> BTreeSet<String> {
        let changed = self.set(key, assigned, now);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.decided_on = Some(generation);
        }
        changed
    }

    /// A binding was read. As long as it is one from before a decision, only its clusters' reports are news.
    pub fn heard(
        &mut self,
        key: &K,
        generation: i64,
        assigned: Option<&Assigned>,
        now: Duration,
    ) -> BTreeSet<String> {
        let before = self.entries.get(key).and_then(|entry| entry.decided_on);
        if before.is_none_or(|decided_on| generation > decided_on) {
            return self.set(key, assigned, now);
        }
        let mut changed = BTreeSet::new();
        for (cluster, count) in assigned.iter().flat_map(|assigned| &assigned.clusters) {
            let held = self.entries.get_mut(key).and_then(|entry| entry.on.get_mut(cluster));
            if let Some(held) = held
                && count.there != held.count.there
            {
                held.now(Count { there: count.there.min(held.count.assigned), ..held.count }, now);
                changed.insert(cluster.clone());
            }
        }
        self.settle(key, &changed);
        changed
    }

    /// What was decided on is not to be: a binding is as `assigned` says, and no more.
    pub fn set(&mut self, key: &K, assigned: Option<&Assigned>, now: Duration) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        let Some(assigned) = assigned else {
            if let Some(entry) = self.entries.get_mut(key) {
                changed.extend(entry.on.keys().cloned());
                entry.on.clear();
            }
            self.settle(key, &changed);
            return changed;
        };
        let until = now + assigned.left;
        let fresh = || Entry { unit: assigned.unit.clone(), until, decided_on: None, on: BTreeMap::new() };
        let entry = self.entries.entry(key.clone()).or_insert_with(fresh);
        entry.decided_on = None;
        if entry.unit != assigned.unit {
            entry.unit = assigned.unit.clone();
            changed.extend(entry.on.keys().cloned());
        }
        for (cluster, held) in &mut entry.on {
            // Where it is not wanted any more, it takes no room either.
            let unwanted = !assigned.clusters.contains_key(cluster);
            if unwanted {
                *held = Held::default();
                changed.insert(cluster.clone());
            }
        }
        for (cluster, count) in &assigned.clusters {
            let held = entry.on.entry(cluster.clone()).or_insert_with(|| {
                // What was there before anything was known of it is in the reports.
                Held { count: Count { assigned: count.there, ..*count }, ..Held::default() }
            });
            if held.count != *count {
                if count.assigned > held.count.assigned {
                    entry.until = until;
                }
                held.now(*count, now);
                changed.insert(cluster.clone());
            }
        }
        self.settle(key, &changed);
        changed
    }

    /// A cluster has reported its resources: they hold what has arrived. If they hold so many pods `more` than before,
    /// the rest of these are taken for what is on its way longest.
    pub fn reported(&mut self, cluster: &str, more: i64) -> bool {
        let keys = self.clusters.get(cluster).into_iter().flat_map(|taken| taken.of.keys());
        let since = |key: &K| self.entries.get(key).map(|entry| entry.until);
        let mut keys: Vec<(Option<Duration>, K)> = keys.map(|key| (since(key), key.clone())).collect();
        keys.sort();
        let (mut more, mut changed) = (more, Vec::new());
        for (_, key) in &keys {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            let pods = entry.pods();
            if let Some(held) = entry.on.get_mut(cluster) {
                let arrived: i64 = std::mem::take(&mut held.arrived).iter().map(|(n, _)| n).sum();
                more -= arrived.saturating_mul(pods);
                if arrived > 0 {
                    changed.push(key.clone());
                }
            }
        }
        for (_, key) in &keys {
            let Some(entry) = self.entries.get_mut(key).filter(|_| more > 0) else { break };
            let pods = entry.pods();
            if let Some(held) = entry.on.get_mut(cluster) {
                let counted = held.on_its_way().min(more / pods);
                if counted > 0 {
                    held.counted = held.known() + counted;
                    more -= counted * pods;
                    changed.push(key.clone());
                }
            }
        }
        for key in &changed {
            self.settle(key, [cluster]);
        }
        !changed.is_empty()
    }

    /// Forgets what has had its time. Looks no more than once a second.
    pub fn lapse(&mut self, now: Duration) -> BTreeSet<String> {
        let mut all_changed = BTreeSet::new();
        if now < self.next {
            return all_changed;
        }
        self.next = Duration::MAX;
        let keys: Vec<K> = self.entries.keys().cloned().collect();
        for key in keys {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let mut changed = BTreeSet::new();
            for (cluster, held) in &mut entry.on {
                let before = held.units();
                held.arrived.retain(|(_, at)| *at + SETTLING > now);
                if entry.until <= now {
                    (held.count, held.counted) = (Count::default(), 0);
                }
                if held.units() != before {
                    changed.insert(cluster.clone());
                }
            }
            self.settle(&key, &changed);
            all_changed.extend(changed);
        }
        self.next = self.next.max(now + Duration::from_secs(1));
        all_changed
    }

    /// What is on its way to a cluster, and what has arrived since its last report.
    pub fn on(&self, cluster: &str) -> impl Iterator<Item = (&Part, i64)> {
        let sums = self.clusters.get(cluster).into_iter().flat_map(|taken| taken.sums.values());
        sums.flat_map(|(unit, number)| unit.times(*number))
    }

    /// Brings what takes room on clusters that have changed in line, and drops what takes no room any more.
    fn settle<C: AsRef<str>>(&mut self, key: &K, changed: impl IntoIterator<Item = C>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        for cluster in changed {
            let cluster = cluster.as_ref();
            let units = entry.on.get(cluster).map_or(0, Held::units);
            let nothing = || Taken { of: BTreeMap::new(), sums: BTreeMap::new() };
            let taken = self.clusters.entry(cluster.to_owned()).or_insert_with(nothing);
            taken.set(key, &entry.unit, units);
            if taken.of.is_empty() {
                self.clusters.remove(cluster);
            }
        }
        entry.on.retain(|_, held| held.units() > 0 || held.counted > held.count.there);
        if entry.on.is_empty() {
            self.entries.remove(key);
            return;
        }
        self.next = self.next.min(entry.until);
        for (_, at) in entry.on.values().flat_map(|held| &held.arrived) {
            self.next = self.next.min(*at + SETTLING);
        }
    }
}

#[cfg(test)]
mod tests {
    use karmada_meta::time::Time;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn spec(replicas: i64, clusters: &[(&str, i64)]) -> ResourceBindingSpec {
        let clusters: Vec<_> =
            clusters.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect();
        serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": replicas, "clusters": clusters,
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        }))
        .unwrap()
    }

    /// What clusters report: their status, and whether it is healthy.
    fn status(reported: &[(&str, Value, bool)]) -> ResourceBindingStatus {
        let items: Vec<_> = reported
            .iter()
            .map(|(cluster, status, healthy)| {
                let health = if *healthy { "Healthy" } else { "Unhealthy" };
                json!({"clusterName": cluster, "status": status, "health": health})
            })
            .collect();
        serde_json::from_value(
            json!({"aggregatedStatus": items, "lastScheduledTime": "2026-01-01T00:00:00Z"}),
        )
        .unwrap()
    }

    fn assigned(spec: &ResourceBindingSpec, reported: &[(&str, Value, bool)]) -> Option<Assigned> {
        Assigned::just_now(spec, &status(reported), &spec.clusters)
    }

    fn on(ledger: &Ledger<&'static str>, cluster: &str) -> i64 {
        ledger.on(cluster).map(|(_, number)| number).sum()
    }

    fn names(changed: BTreeSet<String>) -> Vec<String> {
        changed.into_iter().collect()
    }

    #[test]
    fn what_is_there_is_counted_by_pods_or_health() {
        let table = [
            ("nothing reported", json!(null), false, 5),
            ("pods exist, not ready", json!({"replicas": 3}), false, 2),
            ("more than assigned, in a rollout", json!({"replicas": 7}), false, 0),
            ("healthy by an older wish", json!({"replicas": 2}), true, 3),
            ("a Job at work", json!({"active": 2, "succeeded": 1}), false, 2),
            ("a kind without numbers, at work", json!({"phase": "Running"}), true, 0),
            ("a kind without numbers, not yet", json!({"phase": "Pending"}), false, 5),
        ];
        for (message, reported, healthy, want) in table {
            let assigned = assigned(&spec(5, &[("a", 5)]), &[("a", reported, healthy)]).unwrap();
            let way: i64 = assigned.on_their_way().flat_map(|(_, parts)| parts).map(|(_, n)| n).sum();
            assert_eq!(way, want, "{message}");
        }
        assert_eq!(assigned(&spec(0, &[("a", 0)]), &[]), None, "no replicas");
    }

    #[test]
    fn parts_go_together() {
        let mut spec = spec(0, &[("a", 0), ("b", 0)]);
        spec.components = serde_json::from_value(json!([
            {"name": "boss", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "2"}}},
            {"name": "hand", "replicas": 3},
        ]))
        .unwrap();
        let assigned = assigned(&spec, &[("a", json!({"replicas": 0}), true)]).unwrap();
        let way: Vec<_> = assigned
            .on_their_way()
            .map(|(cluster, parts)| (cluster, parts.into_iter().map(|(_, n)| n).collect::<Vec<_>>()))
            .collect();
        assert_eq!(way, [("b", vec![1, 3])]);

        let given = json!([{"name": "a", "components": [{"name": "boss", "replicas": 1}, {"name": "hand", "replicas": 2}]}]);
        spec.clusters = serde_json::from_value(given).unwrap();
        let assigned = Assigned::just_now(&spec, &status(&[]), &spec.clusters).unwrap();
        let way: Vec<_> = assigned.on_their_way().flat_map(|(_, parts)| parts).map(|(_, n)| n).collect();
        assert_eq!(way, [1, 2], "not what is asked for beyond what was given");
    }

    #[test]
    fn an_old_decision_takes_no_room() {
        let spec = spec(2, &[("a", 2)]);
        let at = |text: &str| SystemTime::from(text.parse::<Time>().unwrap().timestamp());
        let of = |now| Assigned::of(&spec, &status(&[]), at(now)).is_some();
        assert!(of("2026-01-01T00:00:00Z") && of("2026-01-01T00:04:59Z"));
        assert!(!of("2026-01-01T00:05:00Z"));
        assert!(of("2025-12-31T00:00:00Z"), "a clock that was set back");
        assert!(Assigned::of(&spec, &ResourceBindingStatus::default(), at("2026-01-01T00:00:00Z")).is_some());
    }

    #[test]
    fn from_decision_to_report() {
        let mut ledger = Ledger::default();
        let wanted = spec(5, &[("a", 2), ("b", 3)]);
        assert_eq!(names(ledger.decided(&"x", 1, assigned(&wanted, &[]).as_ref(), SECOND)), ["a", "b"]);
        assert_eq!((on(&ledger, "a"), on(&ledger, "b"), on(&ledger, "c")), (2, 3, 0));
        // The watch is behind.
        let before = spec(5, &[]);
        assert!(ledger.heard(&"x", 1, assigned(&before, &[]).as_ref(), SECOND * 2).is_empty());
        assert!(ledger.heard(&"x", 2, assigned(&wanted, &[]).as_ref(), SECOND * 2).is_empty(), "no news");
        assert!(!ledger.reported("a", 0), "none has arrived");

        let some = [("a", json!({"replicas": 2}), false), ("b", json!({"replicas": 1}), false)];
        ledger.heard(&"x", 2, assigned(&wanted, &some).as_ref(), SECOND * 3);
        assert_eq!((on(&ledger, "a"), on(&ledger, "b")), (2, 3), "there, but in no report yet");
        assert!(ledger.reported("a", 2) && ledger.reported("b", 1));
        assert_eq!((on(&ledger, "a"), on(&ledger, "b")), (0, 2));

        let all = [("a", json!({"replicas": 2}), true), ("b", json!({"replicas": 3}), true)];
        ledger.heard(&"x", 2, assigned(&wanted, &all).as_ref(), SECOND * 10);
        assert!(ledger.lapse(SECOND * 69).is_empty());
        assert_eq!(names(ledger.lapse(SECOND * 70)), ["b"], "it had nothing new to report");
        assert!(!ledger.knows(&"x"));
    }

    #[test]
    fn a_report_may_come_before_the_status() {
        let mut ledger = Ledger::default();
        ledger.decided(&"x", 1, assigned(&spec(3, &[("a", 3)]), &[]).as_ref(), SECOND);
        ledger.decided(&"y", 1, assigned(&spec(2, &[("a", 2)]), &[]).as_ref(), SECOND * 2);
        assert!(ledger.reported("a", 4));
        assert_eq!(on(&ledger, "a"), 1, "the older one is there, and half of the younger");
        let nothing = assigned(&spec(3, &[("a", 3)]), &[]);
        assert!(ledger.heard(&"x", 2, nothing.as_ref(), SECOND * 3).is_empty(), "its status is behind");
        let two = [("a", json!({"replicas": 2}), false)];
        ledger.heard(&"y", 2, assigned(&spec(2, &[("a", 2)]), &two).as_ref(), SECOND * 3);
        assert_eq!(on(&ledger, "a"), 1, "it has arrived");
        assert!(ledger.reported("a", -3), "others have left");
        assert_eq!(on(&ledger, "a"), 0);
        ledger.lapse(SECOND * 302);
        assert!(!ledger.knows(&"x"));
    }

    #[test]
    fn only_what_comes_on_top_takes_room() {
        let mut ledger = Ledger::default();
        let two = [("a", json!({"replicas": 2}), true)];
        assert!(ledger.decided(&"x", 1, assigned(&spec(2, &[("a", 2)]), &two).as_ref(), SECOND).is_empty());
        ledger.decided(&"x", 1, assigned(&spec(5, &[("a", 5)]), &two).as_ref(), SECOND);
        assert_eq!(on(&ledger, "a"), 3);
        ledger.decided(&"x", 2, assigned(&spec(3, &[("a", 3)]), &two).as_ref(), SECOND);
        assert_eq!(on(&ledger, "a"), 1, "scaled down before it was there");
        ledger.decided(&"x", 3, assigned(&spec(3, &[("b", 3)]), &two).as_ref(), SECOND);
        assert_eq!((on(&ledger, "a"), on(&ledger, "b")), (0, 3), "moved");
        ledger.set(&"x", None, SECOND);
        assert_eq!(on(&ledger, "b"), 0, "gone");
        assert!(!ledger.knows(&"x"));
    }

    #[test]
    fn bindings_that_ask_for_the_same_are_summed_up() {
        let mut ledger = Ledger::default();
        let mut larger = spec(1, &[("a", 1)]);
        larger.replica_requirements =
            serde_json::from_value(json!({"resourceRequest": {"cpu": "2"}})).unwrap();
        ledger.decided(&"x", 1, assigned(&spec(2, &[("a", 2)]), &[]).as_ref(), SECOND);
        ledger.decided(&"y", 1, assigned(&spec(3, &[("a", 3)]), &[]).as_ref(), SECOND);
        ledger.decided(&"z", 1, assigned(&larger, &[]).as_ref(), SECOND);
        let numbers =
            |ledger: &Ledger<&'static str>| -> Vec<_> { ledger.on("a").map(|(_, number)| number).collect() };
        assert_eq!(numbers(&ledger), [5, 1]);
        ledger.decided(&"y", 2, assigned(&larger, &[]).as_ref(), SECOND);
        assert_eq!(numbers(&ledger), [2, 2], "one asks for something else now");
    }

    proptest! {
        #[test]
        fn sums_are_what_bindings_take(
            steps in prop::collection::vec((0..5u8, 0..4usize, 0..3i64, 0..4i64, 0..4i64), 1..40),
        ) {
            let (mut ledger, keys) = (Ledger::default(), ["w", "x", "y", "z"]);
            for (at, (step, key, cpu, wanted, there)) in steps.into_iter().enumerate() {
                let (now, key) = (SECOND * (20 * at as u32), &keys[key]);
                let mut spec = spec(wanted + 1, &[("a", wanted), ("b", 1)]);
                spec.replica_requirements =
                    serde_json::from_value(json!({"resourceRequest": {"cpu": cpu.to_string()}})).unwrap();
                let assigned = assigned(&spec, &[("a", json!({"replicas": there}), false)]);
                match step {
                    0 => drop(ledger.decided(key, 1, assigned.as_ref(), now)),
                    1 => drop(ledger.heard(key, 2, assigned.as_ref(), now)),
                    2 => drop(ledger.set(key, None, now)),
                    3 => drop(ledger.reported("a", there)),
                    _ => drop(ledger.lapse(now)),
                }
                for cluster in ["a", "b"] {
                    let mut sums = BTreeMap::new();
                    for entry in ledger.entries.values() {
                        let units = entry.on.get(cluster).map_or(0, Held::units);
                        if units > 0 {
                            *sums.entry(entry.unit.text.clone()).or_insert(0) += units;
                        }
                    }
                    let kept = ledger.clusters.get(cluster).map(|taken| &taken.sums);
                    let kept: BTreeMap<_, _> =
                        kept.into_iter().flatten().map(|(text, (_, number))| (text.clone(), *number)).collect();
                    prop_assert_eq!(kept, sums);
                }
            }
        }
    }

    #[test]
    fn what_never_comes_takes_room_for_a_while() {
        let mut ledger = Ledger::default();
        ledger.decided(&"x", 1, assigned(&spec(2, &[("a", 2)]), &[]).as_ref(), SECOND);
        ledger.decided(&"y", 1, assigned(&spec(1, &[("a", 1)]), &[]).as_ref(), SECOND * 100);
        assert!(ledger.lapse(SECOND * 300).is_empty());
        assert_eq!(names(ledger.lapse(SECOND * 301)), ["a"]);
        assert_eq!(on(&ledger, "a"), 1);
        assert!(ledger.knows(&"y") && !ledger.knows(&"x"));
    }
}
