//! Whether a binding has to be scheduled again.

use std::{collections::BTreeSet, time::Duration};

use karmada_api::{
    cluster::{Cluster, ClusterSpec},
    policy::{DEFAULT_SCHEDULER, Placement, ReplicaSchedulingType},
    work::{ResourceBindingSpec, ResourceBindingStatus},
};
use karmada_meta::time::Time;

use super::{PlaceError, parts};
use crate::divide::Strategy;

/// Why a binding is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The placement is not the one that was applied.
    PlacementChanged,
    /// The replicas of its clusters are not those of its template.
    ReplicasChanged,
    /// A user asked for it.
    Requested,
    /// The result depends on nothing but the clusters as they are now (duplicated, without replicas, divided by
    /// static weights), so it is simply worked out again; nothing is written when it comes out the same.
    Recomputed,
    /// A cluster it is on is gone or going.
    ClusterGone,
}

impl Trigger {
    /// Whether somebody asked for another result: a user, by placement, replicas or a WorkloadRebalancer, or an eviction,
    /// by what it took away.
    pub fn is_asked_for(self) -> bool {
        matches!(self, Self::PlacementChanged | Self::ReplicasChanged | Self::Requested)
    }
}

/// Whether a decision may take clusters that the object was evicted from: if somebody asked for one, or where it is not
/// replicas that would move. A division by static weights is worked out again whenever a cluster changes, and would
/// otherwise take replicas back to a cluster that has just returned.
pub fn goes_back(spec: &ResourceBindingSpec, trigger: Option<Trigger>) -> bool {
    let weighted = spec.replicas > 0
        && spec.placement.as_ref().is_some_and(|p| matches!(Strategy::of(p), Strategy::StaticWeights(_)));
    !weighted || trigger.is_some_and(Trigger::is_asked_for)
}

/// Whether, and why, a binding is to be scheduled. `applied`: its annotation `policy.karmada.io/applied-placement`.
/// `gone`: whether the cluster of that name is missing or being deleted.
///
/// Karmada works out again only what is duplicated or has no replicas, and leaves a division by static weights
/// alone until something else changes. We work that out again too, or a cluster that joins would stay empty.
/// A division by room is left alone: what runs stays where it is. A binding whose scheduling is suspended, or which
/// names another scheduler, is nothing to us.
pub fn need_schedule(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    applied: Option<&str>,
    gone: impl Fn(&str) -> bool,
) -> Option<Trigger> {
    let suspended = spec.suspension.as_ref().is_some_and(|suspension| suspension.scheduling == Some(true));
    let others = !spec.scheduler_name.is_empty() && spec.scheduler_name != DEFAULT_SCHEDULER;
    if suspended || others {
        return None;
    }
    let placement = spec.placement.as_ref()?;
    let recomputed = is_recomputed(spec);
    let asked = asked(spec, status.last_scheduled_time);
    let triggers = [
        (
            placement_changed(placement, applied, &status.scheduler_observed_affinity_name),
            Trigger::PlacementChanged,
        ),
        (replicas_changed(spec, placement) || parts::changed(spec), Trigger::ReplicasChanged),
        (asked, Trigger::Requested),
        (spec.clusters.iter().any(|target| gone(&target.name)), Trigger::ClusterGone),
        (recomputed, Trigger::Recomputed),
    ];
    triggers.into_iter().find_map(|(holds, trigger)| holds.then_some(trigger))
}

/// Whether a binding is worked out again whenever clusters change: see [`Trigger::Recomputed`].
pub fn is_recomputed(spec: &ResourceBindingSpec) -> bool {
    let strategy = |placement| Strategy::of(placement);
    spec.placement.as_ref().is_some_and(|placement| {
        spec.replicas == 0 || matches!(strategy(placement), Strategy::Duplicated | Strategy::StaticWeights(_))
    })
}

/// What a change of a cluster can do to bindings that are on it, or may go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stir {
    /// Where something is it may stay, and where it was not taken nothing changes: only what has no place yet may be told
    /// of other reasons.
    Waiting,
    /// The cluster may be another choice than before, for those that are worked out again, too.
    Choice,
    /// It is gone or going, and everybody has to look.
    Gone,
}

impl Stir {
    /// What became of a cluster; nothing if what has changed is nothing to placement: conditions do not count, taints stand
    /// for them, and so does not how it is reached, which its agent may say anew at any time. What that says of the kinds
    /// that are served is another matter ([`served_otherwise`]).
    pub fn of(old: Option<&Cluster>, new: Option<&Cluster>) -> Option<Self> {
        fn looked_at(cluster: &Cluster) -> impl PartialEq + '_ {
            let ClusterSpec { provider, region, zone, zones, resource_models, .. } = &cluster.spec;
            (&cluster.metadata.labels, [provider, region, zone], zones, resource_models)
        }
        let going = |cluster: &Cluster| cluster.metadata.deletion_timestamp.is_some();
        let (Some(old), Some(new)) = (old, new) else {
            return Some(if new.is_none() { Self::Gone } else { Self::Choice });
        };
        if going(old) != going(new) {
            return Some(Self::Gone);
        }
        let (before, now) = (&old.spec.taints, &new.spec.taints);
        if looked_at(old) != looked_at(new) || before.iter().any(|taint| !now.contains(taint)) {
            Some(Self::Choice)
        } else {
            (before != now).then_some(Self::Waiting)
        }
    }

    /// Whether a binding is to be looked at that is worked out again ([`is_recomputed`]), or waits for a place.
    pub fn concerns(self, recomputed: bool, waits: bool) -> bool {
        match self {
            Self::Waiting => waits,
            Self::Choice => recomputed || waits,
            Self::Gone => true,
        }
    }
}

/// A kind by its apiVersion and its name.
pub type Served<'a> = (&'a str, &'a str);

/// The kinds that not all of these states of a cluster serve: nothing else can be placed otherwise because of the one or
/// the other. What is on a cluster may stay there, whatever it serves.
pub fn served_otherwise<'a>(states: impl IntoIterator<Item = &'a Cluster>) -> BTreeSet<Served<'a>> {
    let mut states = states.into_iter().map(|cluster| {
        let groups = cluster.status.iter().flat_map(|status| &status.api_enablements);
        let kinds = groups.flat_map(|group| {
            group.resources.iter().map(|resource| (group.group_version.as_str(), resource.kind.as_str()))
        });
        kinds.collect::<BTreeSet<_>>()
    });
    let Some(first) = states.next() else { return BTreeSet::new() };
    let (mut all, mut any) = (first.clone(), first);
    for kinds in states {
        all.retain(|kind| kinds.contains(kind));
        any.extend(kinds);
    }
    any.retain(|kind| !all.contains(kind));
    any
}

/// Whether a division from scratch was asked for since the last one. Times are whole seconds: a request of the same
/// second counts, and [`scheduled_time`] is later than every request that was answered.
pub(super) fn asked(spec: &ResourceBindingSpec, last_scheduled: Option<Time>) -> bool {
    spec.reschedule_triggered_at.is_some_and(|at| last_scheduled.is_some_and(|last| at >= last))
}

/// What `status.lastScheduledTime` becomes after a decision at `now` that answered the request `seen`, where the
/// binding asks for `asks` by now: later than what was answered, no later than what was not.
pub fn scheduled_time(now: Time, seen: Option<Time>, asks: Option<Time>) -> Time {
    match asks {
        Some(asks) if seen != Some(asks) => now.min(asks),
        Some(asks) => now.max(asks.next()),
        None => now,
    }
}

/// Whether a placement differs from the one that was applied. Of several groups of clusters only the one that was
/// taken matters. A record that cannot be read counts as different.
pub fn placement_changed(placement: &Placement, applied: Option<&str>, observed_affinity: &str) -> bool {
    let Some(applied) = applied.and_then(|text| serde_json::from_str::<Placement>(text).ok()) else {
        return true;
    };
    if *placement == applied {
        return false;
    }
    let without_groups =
        |placement: &Placement| Placement { cluster_affinities: Vec::new(), ..placement.clone() };
    if without_groups(placement) != without_groups(&applied) || observed_affinity.is_empty() {
        return true;
    }
    let taken = |placement: &Placement| {
        placement.cluster_affinities.iter().find(|term| term.affinity_name == observed_affinity).cloned()
    };
    taken(placement).is_none() || taken(placement) != taken(&applied)
}

/// Whether the replicas of a binding's clusters are not what its template asks for.
fn replicas_changed(spec: &ResourceBindingSpec, placement: &Placement) -> bool {
    let scheduling = placement.replica_scheduling.as_ref();
    match scheduling.map_or(ReplicaSchedulingType::Duplicated, |s| s.replica_scheduling_type) {
        ReplicaSchedulingType::Duplicated => {
            spec.clusters.iter().any(|target| target.replicas != spec.replicas)
        }
        ReplicaSchedulingType::Divided => {
            spec.clusters.iter().map(|target| i64::from(target.replicas)).sum::<i64>()
                != i64::from(spec.replicas)
        }
    }
}

/// The first wait of a binding that could not be placed as asked, and the longest, even if no cluster tells of more
/// room. (When one does, it is tried at once, and after that less and less often: [`super::Waiting`]. Karmada, which does
/// not listen for that, tries every ten seconds.)
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// When a binding that could not be placed is tried again, although nothing it depends on has changed; `attempts`
/// counts those that failed. What no cluster fits, or without any cluster, waits for a change.
pub fn retry_after(error: &PlaceError, attempts: u32) -> Option<Duration> {
    match error {
        PlaceError::NoFit(_) | PlaceError::Nothing(_) => None,
        PlaceError::Unschedulable { .. } | PlaceError::Quota(_) => Some(BACKOFF.1),
        PlaceError::Select(_) => {
            let doublings = attempts.saturating_sub(1).min(30);
            Some(BACKOFF.0.saturating_mul(1 << doublings).min(BACKOFF.1))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_a_change_of_a_cluster_stirs() {
        let cluster = |value: Value| -> Cluster {
            let mut full = json!({"metadata": {"name": "m"}, "spec": {"syncMode": "Pull"}});
            for (path, value) in value.as_object().unwrap() {
                full[path] = value.clone();
            }
            serde_json::from_value(full).unwrap()
        };
        let spec = |taints: &[&str]| {
            let taints: Vec<_> =
                taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
            json!({"spec": {"syncMode": "Pull", "taints": taints}})
        };
        let labelled = json!({"metadata": {"name": "m", "labels": {"a": "b"}}});
        let going = json!({"metadata": {"name": "m", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let region = json!({"spec": {"syncMode": "Pull", "region": "eu"}});
        let proxied =
            json!({"spec": {"syncMode": "Pull", "proxyURL": "http://p", "apiEndpoint": "https://m"}});
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let serving = |kinds: &[&str]| {
            let resources: Vec<_> = kinds.iter().map(|kind| json!({"name": "x", "kind": kind})).collect();
            json!({"status": {"apiEnablements": [{"groupVersion": "v1", "resources": resources}]}})
        };
        let table = [
            ("it joins", None, Some(json!({})), Some(Stir::Choice)),
            ("it is gone", Some(json!({})), None, Some(Stir::Gone)),
            ("it is going", Some(json!({})), Some(going), Some(Stir::Gone)),
            ("labels", Some(json!({})), Some(labelled), Some(Stir::Choice)),
            ("a field", Some(json!({})), Some(region), Some(Stir::Choice)),
            ("how it is reached", Some(json!({})), Some(proxied), None),
            ("a taint comes", Some(spec(&["a"])), Some(spec(&["a", "b"])), Some(Stir::Waiting)),
            ("a taint goes", Some(spec(&["a", "b"])), Some(spec(&["b"])), Some(Stir::Choice)),
            ("one for another", Some(spec(&["a"])), Some(spec(&["b"])), Some(Stir::Choice)),
            ("a condition", Some(json!({"status": {}})), Some(ready), None),
            ("what its agent says that it serves", Some(serving(&["A"])), Some(serving(&["B"])), None),
        ];
        for (what, old, new, want) in table {
            let (old, new) = (old.map(cluster), new.map(cluster));
            assert_eq!(Stir::of(old.as_ref(), new.as_ref()), want, "{what}");
        }
        assert!(Stir::Waiting < Stir::Choice && Stir::Choice < Stir::Gone, "several changes are the largest");

        let states = [&["A", "B"] as &[_], &["A", "C"], &["A", "B"]].map(|kinds| cluster(serving(kinds)));
        let otherwise: Vec<_> = served_otherwise(&states).into_iter().collect();
        assert_eq!(otherwise, [("v1", "B"), ("v1", "C")], "though it is as it was");
        assert!(served_otherwise(&states[..1]).is_empty() && served_otherwise([]).is_empty());
    }

    #[test]
    fn an_answered_request_is_earlier_than_its_answer() {
        let time = |second: u8| format!("2026-01-01T00:00:0{second}Z").parse::<Time>().unwrap();
        let table = [
            ("nobody asked", 5, None, None, 5),
            ("asked in the same second", 5, Some(5), Some(5), 6),
            ("asked by a clock ahead of ours", 5, Some(8), Some(8), 9),
            ("asked long ago", 5, Some(1), Some(1), 5),
            ("asked while it was decided", 5, None, Some(4), 4),
            ("asked again while it was decided", 5, Some(1), Some(5), 5),
        ];
        for (what, now, seen, asks, expected) in table {
            let at = scheduled_time(time(now), seen.map(time), asks.map(time));
            assert_eq!(at, time(expected), "{what}");
            let spec = ResourceBindingSpec {
                reschedule_triggered_at: asks.map(time),
                ..ResourceBindingSpec::default()
            };
            assert_eq!(asked(&spec, Some(at)), seen != asks, "{what}: asked for still");
        }
    }

    #[test]
    fn what_fails_is_tried_less_and_less_often() {
        let select = PlaceError::Select("x".into());
        let waits: Vec<_> =
            (0..6).filter_map(|n| retry_after(&select, n)).map(|wait| wait.as_secs()).collect();
        assert_eq!(waits, [1, 1, 2, 4, 8, 16]);
        assert_eq!(retry_after(&select, u32::MAX), Some(BACKOFF.1));
        assert_eq!(
            retry_after(&PlaceError::Unschedulable { message: "x".into(), short: 1 }, 1),
            Some(BACKOFF.1)
        );
        assert_eq!(retry_after(&PlaceError::NoFit(Default::default()), 1), None);
        assert_eq!(retry_after(&PlaceError::Nothing("x".into()), 1), None);
    }

    fn trigger(spec: Value, status: Value, applied: Option<&str>) -> Option<Trigger> {
        let mut full = json!({"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "n"}});
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let spec = serde_json::from_value(full).unwrap();
        let status = serde_json::from_value(status).unwrap();
        need_schedule(&spec, &status, applied, |name| name == "gone")
    }

    #[test]
    fn something_has_to_have_changed() {
        let dynamic = json!({"replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
        }});
        let applied = dynamic.to_string();
        let at = |names: &[(&str, i32)]| {
            names.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect::<Vec<_>>()
        };
        let spec = |extra: Value| {
            let mut spec =
                json!({"placement": dynamic, "replicas": 3, "clusters": at(&[("a", 1), ("b", 2)])});
            for (key, value) in extra.as_object().unwrap() {
                spec[key] = value.clone();
            }
            spec
        };
        let scheduled = json!({"lastScheduledTime": "2026-01-01T00:00:00Z"});
        let duplicated = json!({"clusterAffinity": {"clusterNames": ["a"]}});
        let table = [
            ("nothing", spec(json!({})), scheduled.clone(), Some(applied.as_str()), None),
            ("never applied", spec(json!({})), json!({}), None, Some(Trigger::PlacementChanged)),
            ("unreadable", spec(json!({})), json!({}), Some("{"), Some(Trigger::PlacementChanged)),
            ("another placement", spec(json!({})), json!({}), Some("{}"), Some(Trigger::PlacementChanged)),
            (
                "scaled",
                spec(json!({"replicas": 4})),
                json!({}),
                Some(&applied),
                Some(Trigger::ReplicasChanged),
            ),
            (
                "asked for",
                spec(json!({"rescheduleTriggeredAt": "2026-01-01T00:00:01Z"})),
                scheduled.clone(),
                Some(&applied),
                Some(Trigger::Requested),
            ),
            (
                "asked for in the same second",
                spec(json!({"rescheduleTriggeredAt": "2026-01-01T00:00:00Z"})),
                scheduled.clone(),
                Some(&applied),
                Some(Trigger::Requested),
            ),
            (
                "asked for before",
                spec(json!({"rescheduleTriggeredAt": "2025-01-01T00:00:01Z"})),
                scheduled,
                Some(&applied),
                None,
            ),
            (
                "a cluster is gone",
                spec(json!({"clusters": at(&[("gone", 3)])})),
                json!({}),
                Some(&applied),
                Some(Trigger::ClusterGone),
            ),
            (
                "duplicated",
                json!({"placement": duplicated, "replicas": 1, "clusters": at(&[("a", 1)])}),
                json!({}),
                Some(r#"{"clusterAffinity":{"clusterNames":["a"]}}"#),
                Some(Trigger::Recomputed),
            ),
            ("suspended", spec(json!({"suspension": {"scheduling": true}})), json!({}), None, None),
            ("another scheduler's", spec(json!({"schedulerName": "mine"})), json!({}), None, None),
            ("no placement", json!({"replicas": 1}), json!({}), None, None),
        ];
        for (message, spec, status, applied, want) in table {
            assert_eq!(trigger(spec, status, applied), want, "{message}");
        }
    }

    #[test]
    fn of_the_groups_only_the_one_taken_matters() {
        let placement = |second: &str| -> Placement {
            serde_json::from_value(json!({"clusterAffinities": [
                {"affinityName": "first", "clusterNames": ["a"]},
                {"affinityName": "second", "clusterNames": [second]},
            ]}))
            .unwrap()
        };
        let applied = crate::place::applied_placement(&placement("b"));
        let table = [
            ("the same", placement("b"), "second", false),
            ("the other changed", placement("c"), "first", false),
            ("the one taken changed", placement("c"), "second", true),
            ("none taken", placement("c"), "", true),
            ("it is gone", placement("c"), "third", true),
        ];
        for (message, placement, observed, want) in table {
            assert_eq!(placement_changed(&placement, Some(&applied), observed), want, "{message}");
        }
    }
}
