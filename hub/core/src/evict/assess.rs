//! What becomes of evictions that are under way.
//!
//! | the cluster | its cause | the replacement | then |
//! |---|---|---|---|
//! | is gone from the hub | | | done |
//! | cannot be reached | | | keep, whatever else |
//! | reports | | scheduled, complete, all of it reported healthy, with as many replicas ready as it is to have | done |
//! | reports | has gone | goes to every cluster that is meant, this one included | withdraw |
//! | reports | has gone | not complete, and the scheduler has had its say | withdraw |
//! | reports | a user's NoExecute | the grace period is over | done |
//! | reports | | purged directly; the grace period is over: there is no copy to wait for, nor any report | done |
//! | reports | | complete; the grace period is over; all of it has been healthy for 30 s, or the old copy is not either | done |
//! | reports | | none of these | keep |
//!
//! Of an object that may run in one place only (`judge::fence`) the old copy is stopped or goes before the new one is
//! begun. While some of the new copies are not, and the cause has gone, it is withdrawn, and they are given up; else it
//! is done as soon as its cluster reports (for 30 s, if it is only not ready) and the replacement is complete.
//!
//! `suppressDeletion: true` keeps in any case, `false` (a user has seen to it) is done as soon as the cluster reports.
//! The grace period counts while the cluster reports: one that was silent for a day comes back to a whole one.

use std::time::Duration;

use karmada_api::{
    cluster::{Cluster, Taint},
    conditions::{self, Condition, ConditionStatus},
    consts::{condition as types, extension::FAILOVER_COMPLETE},
    policy::{PurgeMode, SpreadConstraint, SpreadFieldValue},
    work::{
        AggregatedStatusItem, GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus,
        ResourceHealth, TargetCluster,
    },
};
use karmada_meta::time::Time;
use serde_json::Value;

use super::Settings;
use crate::{affinity, aggregate, divide::Strategy, taints};

/// Whether the cause of an eviction is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// No: the taint is gone or tolerated, the application healthy.
    No,
    /// Yes, by what the hub sees: the cluster not ready, the application unhealthy.
    ByTheHub,
    /// Yes: a user's NoExecute taint says so.
    ByTheUser,
}

/// What is known about the cluster of a task.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// There is no such Cluster any more, or the policy does not mean it any more.
    pub gone: bool,
    /// It reports: its Ready condition is True or False.
    pub reachable: bool,
    /// Whether the eviction is still wanted.
    pub wanted: Wanted,
    /// Whether the scheduler would have the cluster again at once ([`returns`]).
    pub returns: bool,
    /// How long the task has been there while the cluster reported.
    pub waited: Duration,
    /// How long the whole replacement has been [`well`] without a break. A cluster that is back shows what it reported
    /// before it went, and has had no time to say otherwise.
    pub well: Duration,
    /// The hub has not heard clusters for long enough: what they have reported may be from before it could.
    pub hearsay: bool,
    /// Of what may run in one place only: the clusters that are to have a copy and for which none was begun.
    pub unbegun: Option<&'a [String]>,
}

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It stays; with the time until its grace period is over, if that may change anything.
    Keep(Option<Duration>),
    /// It is over: the old copy goes.
    Done,
    /// It is taken back: the old copy stays, with so many replicas.
    Withdraw(i32),
}

/// What a placement lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Replicas of a divided object.
    Replicas(i32),
    /// Clusters of a duplicated one, or of one without replicas.
    Clusters(usize),
}

/// What a binding lacks since evictions took clusters off it; `None` when nothing.
pub fn missing(spec: &ResourceBindingSpec) -> Option<Left> {
    let divided = spec.replicas > 0
        && spec.placement.as_ref().is_some_and(|placement| Strategy::of(placement) != Strategy::Duplicated);
    if divided {
        let placed: i64 = spec.clusters.iter().map(|target| i64::from(target.replicas)).sum();
        let left = i32::try_from(i64::from(spec.replicas) - placed).unwrap_or(i32::MAX);
        return (left > 0).then_some(Left::Replicas(left));
    }
    // What it had when the first of them began; a task of another maker counts for the cluster that it names.
    let had =
        spec.graceful_eviction_tasks.iter().map(|task| task.clusters_before_failover.len().max(1)).max();
    let left = had.unwrap_or_default().saturating_sub(spec.clusters.len());
    (left > 0).then_some(Left::Clusters(left))
}

/// How long a cluster that is back must go on being not ready before it loses a copy that has not been replaced, and a
/// replacement being well that shows other counts than it is to have.
const SURE: Duration = Duration::from_secs(30);

/// Judges one task of a binding of this `generation`.
pub fn assess(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    generation: i64,
    task: &GracefulEvictionTask,
    facts: &Facts<'_>,
    settings: &Settings,
) -> Outcome {
    if facts.gone {
        return Outcome::Done;
    }
    if !facts.reachable {
        return Outcome::Keep(None);
    }
    match task.suppress_deletion {
        Some(true) => return Outcome::Keep(None),
        Some(false) => return Outcome::Done,
        None => {}
    }
    let placed = status.scheduler_observed_generation == generation && missing(spec).is_none();
    let complete = placed && !spec.clusters.is_empty();
    if let Some(unbegun) = facts.unbegun {
        if facts.wanted == Wanted::No && !unbegun.is_empty() {
            let mut kept = spec.clone();
            kept.clusters.retain(|target| !unbegun.contains(&target.name));
            return Outcome::Withdraw(share(&kept, task));
        }
        // A cluster that is back loses its taints a moment later.
        let sure = match facts.wanted {
            Wanted::ByTheHub if !unbegun.is_empty() => SURE.saturating_sub(facts.waited),
            _ => Duration::ZERO,
        };
        if complete && sure.is_zero() {
            return Outcome::Done;
        }
        if !sure.is_zero() {
            return Outcome::Keep(Some(sure));
        }
    }
    if facts.wanted == Wanted::No && facts.returns {
        return Outcome::Withdraw(share(spec, task));
    }
    if complete && spec.clusters.iter().all(|target| takes_over(status, target)) {
        return Outcome::Done;
    }
    if facts.wanted == Wanted::No && settled(status, generation) && !complete {
        return Outcome::Withdraw(share(spec, task));
    }
    let grace =
        task.grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let left = grace.unwrap_or(settings.grace).saturating_sub(facts.waited);
    if !left.is_zero() {
        return Outcome::Keep(Some(left));
    }
    let purged = task.purge_mode == Some(PurgeMode::Directly);
    let no_worse = complete && !is_healthy(status, &task.from_cluster);
    if facts.wanted == Wanted::ByTheUser || purged {
        return Outcome::Done;
    }
    if no_worse {
        // The old copy may have recovered while no hub listened.
        return if facts.hearsay { Outcome::Keep(Some(SURE)) } else { Outcome::Done };
    }
    if !(complete && well(spec, status)) {
        return Outcome::Keep(None);
    }
    let left = SURE.saturating_sub(facts.well);
    if left.is_zero() { Outcome::Done } else { Outcome::Keep(Some(left)) }
}

/// Whether every cluster of a binding has reported the object healthy, be it of fewer replicas than it is to have.
pub fn well(spec: &ResourceBindingSpec, status: &ResourceBindingStatus) -> bool {
    !spec.clusters.is_empty() && spec.clusters.iter().all(|target| is_healthy(status, &target.name))
}

/// Whether the scheduler would place an object on a cluster again as soon as it is not evicted any more: what is not
/// divided goes to every cluster that is meant, if nothing limits their number. A copy that goes there would come back
/// at once. `taints` are those that will stay ([`standing`](super::standing)).
pub fn returns(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    cluster: &Cluster,
    taints: &[Taint],
    now: Time,
) -> bool {
    let Some(placement) = &spec.placement else { return false };
    let group = placement
        .cluster_affinities
        .iter()
        .find(|term| status.scheduler_observed_affinity_name == term.affinity_name);
    let affinity = group.map(|term| &term.affinity).or(placement.cluster_affinity.as_ref());
    let meant = affinity.is_none_or(|affinity| affinity::matches(affinity, cluster))
        && (placement.cluster_affinities.is_empty() || group.is_some());
    let is_full = |constraint: &SpreadConstraint| {
        constraint.spread_by_field != Some(SpreadFieldValue::Cluster)
            || usize::try_from(constraint.max_groups).is_ok_and(|max| max > 0 && max <= spec.clusters.len())
    };
    let everywhere = spec.replicas == 0 || Strategy::of(placement) == Strategy::Duplicated;
    everywhere
        && meant
        && !placement.spread_constraints.iter().any(is_full)
        && taints::untolerated(taints, &placement.cluster_tolerations, Some(now)).is_none()
}

/// Whether the scheduler has had its say about a binding as it is now: has placed it, or refused to. Its refusals name
/// the generation that they are of. One of an earlier generation says nothing: the scheduler has found another place
/// meanwhile, and is about to say so.
pub fn settled(status: &ResourceBindingStatus, generation: i64) -> bool {
    let refused = conditions::find(&status.conditions, types::SCHEDULED).is_some_and(|condition| {
        condition.status == ConditionStatus::False && condition.observed_generation == Some(generation)
    });
    refused || status.scheduler_observed_generation == generation
}

/// The replicas with which a cluster gets its copy back.
fn share(spec: &ResourceBindingSpec, task: &GracefulEvictionTask) -> i32 {
    let had = task.replicas.unwrap_or_default();
    match missing(spec) {
        Some(Left::Replicas(left)) => had.min(left),
        Some(Left::Clusters(_)) | None => had,
    }
}

/// Whether a cluster has reported as many replicas ready as it is to have, where it reports such a number: that the
/// object is healthy may have been said of fewer, before the cluster was given those of another one.
pub fn takes_over(status: &ResourceBindingStatus, target: &TargetCluster) -> bool {
    let item = status.aggregated_status.iter().find(|item| item.cluster_name == target.name);
    if item.is_some_and(aggregate::is_omitted) {
        return false;
    }
    let told = item.and_then(|item| item.status.as_ref());
    let number = |field: &str| told.and_then(|told| told.get(field)).and_then(Value::as_i64);
    let ready = number("readyReplicas").or_else(|| number("availableReplicas"));
    // None of them ready is left out.
    let ready = ready.or_else(|| number("replicas").map(|_| 0));
    is_healthy(status, &target.name) && ready.is_none_or(|ready| ready >= i64::from(target.replicas))
}

/// Whether a cluster has reported the object as applied and healthy.
fn is_healthy(status: &ResourceBindingStatus, cluster: &str) -> bool {
    let item = |item: &&AggregatedStatusItem| item.cluster_name == cluster;
    let item = status.aggregated_status.iter().find(item);
    item.is_some_and(|item| item.applied && item.health == Some(ResourceHealth::Healthy))
}

/// The condition of a binding that cannot leave a cluster as it should, or has found no other for it: `held` says why an
/// eviction does not begin. `None` when all is well.
pub fn condition(
    spec: &ResourceBindingSpec,
    held: Option<(&'static str, &str)>,
    generation_seen: bool,
    now: Time,
) -> Option<Condition> {
    let from: Vec<_> = spec.graceful_eviction_tasks.iter().map(|task| task.from_cluster.as_str()).collect();
    let (reason, message) = match (held, missing(spec)) {
        (Some((reason, message)), _) => (reason, message.to_owned()),
        (None, Some(left)) if !from.is_empty() && generation_seen => {
            let left = match left {
                Left::Replicas(left) => format!("{left} of {} replicas", spec.replicas),
                Left::Clusters(left) => format!("{left} of the clusters that it had"),
            };
            let text = format!("evicted from {}: no other cluster can take {left}", from.join(", "));
            ("TooFewClusters", text)
        }
        _ => return None,
    };
    Some(Condition::new(FAILOVER_COMPLETE, false, reason, message, now))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const FACTS: Facts<'static> = Facts {
        gone: false,
        reachable: true,
        wanted: Wanted::ByTheHub,
        returns: false,
        waited: Duration::from_secs(10),
        well: Duration::from_secs(30),
        hearsay: false,
        unbegun: None,
    };

    fn spec(replicas: i32, divided: bool, clusters: &[(&str, i32)], task: Value) -> ResourceBindingSpec {
        let clusters: Vec<_> =
            clusters.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect();
        let placement = if divided {
            json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}})
        } else {
            json!({})
        };
        let mut full = json!({"fromCluster": "lost", "replicas": 2, "reason": "R", "producer": "P",
                              "clustersBeforeFailover": ["kept", "lost"]});
        for (field, value) in task.as_object().unwrap() {
            full[field] = value.clone();
        }
        serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": replicas, "placement": placement, "clusters": clusters, "gracefulEvictionTasks": [full],
        }))
        .unwrap()
    }

    /// What the scheduler has said of generation `said`, and agents of the object.
    fn status(said: i64, scheduled: bool, items: &[(&str, &str)]) -> ResourceBindingStatus {
        let items: Vec<_> = items
            .iter()
            .map(|(name, health)| match *health {
                "" => json!({"clusterName": name, "applied": true}),
                health => json!({"clusterName": name, "applied": true, "health": health}),
            })
            .collect();
        let mut condition = json!({"type": "Scheduled", "status": if scheduled { "True" } else { "False" }, "reason": "R",
                                   "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        if !scheduled {
            condition["observedGeneration"] = json!(said);
        }
        let seen = if scheduled { said } else { said - 1 };
        serde_json::from_value(json!({
            "schedulerObservedGeneration": seen, "aggregatedStatus": items, "conditions": [condition],
        }))
        .unwrap()
    }

    #[test]
    fn what_runs_in_one_place_only_is_given_up_or_taken_back_at_once() {
        let placed = spec(3, true, &[("kept", 1), ("new", 2)], json!({}));
        let seen = status(2, true, &[]);
        let new = ["new".to_owned()];
        let back = Facts { unbegun: Some(&new), wanted: Wanted::No, ..FACTS };
        let sure = Facts { waited: Duration::from_secs(30), ..FACTS };
        let none: &[String] = &[];
        let table = [
            ("back, none begun", back, Outcome::Withdraw(2)),
            ("away", Facts { reachable: false, ..back }, Outcome::Keep(None)),
            (
                "back, its taints are still there",
                Facts { wanted: Wanted::ByTheHub, ..back },
                Outcome::Keep(Some(Duration::from_secs(20))),
            ),
            ("back, and stays not ready", Facts { unbegun: Some(&new), ..sure }, Outcome::Done),
            ("a user asks", Facts { wanted: Wanted::ByTheUser, ..back }, Outcome::Done),
            ("back, the other has begun", Facts { unbegun: Some(none), ..back }, Outcome::Done),
        ];
        for (message, facts, want) in table {
            let task = &placed.graceful_eviction_tasks[0];
            assert_eq!(assess(&placed, &seen, 2, task, &facts, &Settings::default()), want, "{message}");
        }
    }

    #[test]
    fn what_goes_everywhere_stays_where_it_would_come_back_to() {
        let mut cluster = Cluster::default();
        cluster.metadata.name = Some("lost".to_owned());
        let keep = [Taint { key: "cordon".into(), effect: "NoSchedule".into(), ..Taint::default() }];
        let now: Time = "2026-01-01T00:01:00Z".parse().unwrap();
        let tainted = [Taint {
            time_added: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            ..Taint::new("k", "NoExecute")
        }];
        let for_seconds = |seconds: i64| json!({"clusterTolerations": [{"operator": "Exists", "tolerationSeconds": seconds}]});
        let max = |max: i64| json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": max}]);
        let group = |name: &str| json!([{"affinityName": "a", "clusterNames": [name]}]);
        let table = [
            ("everywhere", json!({}), &[][..], true),
            ("a taint that stays", json!({}), &keep[..], false),
            ("tolerated", json!({"clusterTolerations": [{"operator": "Exists"}]}), &keep[..], true),
            ("tolerated for a while", for_seconds(61), &tainted[..], true),
            ("tolerated for long enough", for_seconds(60), &tainted[..], false),
            ("another cluster", json!({"clusterAffinity": {"clusterNames": ["kept"]}}), &[][..], false),
            ("room for a third", json!({"spreadConstraints": max(3)}), &[][..], true),
            ("no more than there are", json!({"spreadConstraints": max(2)}), &[][..], false),
            ("by region", json!({"spreadConstraints": [{"spreadByField": "region"}]}), &[][..], false),
            ("its group", json!({"clusterAffinities": group("lost")}), &[][..], true),
            ("not its group", json!({"clusterAffinities": group("kept")}), &[][..], false),
        ];
        for (what, placement, taints, want) in table {
            let mut spec = spec(3, false, &[("kept", 3), ("new", 3)], json!({}));
            spec.placement = Some(serde_json::from_value(placement).unwrap());
            let mut status = status(2, true, &[("kept", "Healthy"), ("new", "Healthy")]);
            status.scheduler_observed_affinity_name = "a".to_owned();
            assert_eq!(returns(&spec, &status, &cluster, taints, now), want, "{what}");
        }
        let divided = spec(3, true, &[("kept", 1), ("new", 2)], json!({}));
        assert!(!returns(&divided, &status(2, true, &[]), &cluster, &[], now), "replicas do not move back");

        let (full, well) = (spec(3, false, &[("kept", 3), ("new", 3)], json!({})), status(2, true, &[]));
        let back = Facts { returns: true, wanted: Wanted::No, ..FACTS };
        let task = &full.graceful_eviction_tasks[0];
        assert_eq!(assess(&full, &well, 2, task, &back, &Settings::default()), Outcome::Withdraw(2));
    }

    fn counted(mut status: ResourceBindingStatus, cluster: &str, told: Value) -> ResourceBindingStatus {
        let item = status.aggregated_status.iter_mut().find(|item| item.cluster_name == cluster);
        item.unwrap().status = Some(told);
        status
    }

    #[test]
    fn the_old_copy_goes_when_the_new_one_stands() {
        let full: &[(&str, i32)] = &[("kept", 1), ("new", 2)];
        let part: &[(&str, i32)] = &[("kept", 1)];
        let well: &[(&str, &str)] = &[("kept", "Healthy"), ("new", "Healthy")];
        let both: &[(&str, &str)] = &[("kept", "Healthy"), ("new", "Healthy"), ("lost", "Healthy")];
        let none = json!({});
        let minute = Duration::from_secs(60);
        let over = Duration::from_secs(600);
        let wait = Outcome::Keep(Some(Duration::from_secs(590)));
        let no = Facts { wanted: Wanted::No, ..FACTS };
        let user = Facts { wanted: Wanted::ByTheUser, waited: over, ..FACTS };
        let late = Facts { waited: over, ..FACTS };
        let away = Facts { reachable: false, ..FACTS };
        let two = |clusters| spec(3, true, clusters, none.clone());
        let table = [
            ("all healthy", two(full), status(2, true, well), FACTS, Outcome::Done),
            ("the scheduler has not seen it", two(full), status(1, true, well), FACTS, wait),
            (
                "one unhealthy",
                two(full),
                status(2, true, &[("kept", "Healthy"), ("new", "Unhealthy")]),
                FACTS,
                wait,
            ),
            (
                "one unknown",
                two(full),
                status(2, true, &[("kept", "Healthy"), ("new", "Unknown")]),
                FACTS,
                wait,
            ),
            (
                "one without health",
                two(full),
                status(2, true, &[("kept", "Healthy"), ("new", "")]),
                FACTS,
                wait,
            ),
            (
                "healthy with the replicas of before",
                two(full),
                counted(status(2, true, well), "new", json!({"replicas": 1, "readyReplicas": 1})),
                FACTS,
                wait,
            ),
            (
                "healthy, none ready",
                two(full),
                counted(status(2, true, well), "new", json!({"replicas": 2})),
                FACTS,
                wait,
            ),
            (
                "healthy with all replicas",
                two(full),
                counted(status(2, true, well), "new", json!({"replicas": 2, "readyReplicas": 2})),
                FACTS,
                Outcome::Done,
            ),
            (
                "healthy with fewer for long: an override, say",
                two(full),
                counted(status(2, true, well), "new", json!({"replicas": 1, "readyReplicas": 1})),
                late,
                Outcome::Done,
            ),
            (
                "the same, and only just",
                two(full),
                counted(status(2, true, both), "new", json!({"replicas": 1, "readyReplicas": 1})),
                Facts { well: Duration::from_secs(1), ..late },
                Outcome::Keep(Some(Duration::from_secs(29))),
            ),
            ("nothing is well anywhere", two(full), status(2, true, &[]), late, Outcome::Done),
            (
                "the same, as far as was reported before the hub could hear anybody",
                two(full),
                status(2, true, &[]),
                Facts { hearsay: true, ..late },
                Outcome::Keep(Some(Duration::from_secs(30))),
            ),
            (
                "a user asks, whatever was reported",
                two(full),
                status(2, true, &[]),
                Facts { hearsay: true, ..user },
                Outcome::Done,
            ),
            ("one silent", two(full), status(2, true, &[("kept", "Healthy")]), FACTS, wait),
            ("nowhere to go", two(&[]), status(2, true, &[]), FACTS, wait),
            ("replicas are missing", two(part), status(2, true, well), FACTS, wait),
            ("all healthy, cluster away", two(full), status(2, true, well), away, Outcome::Keep(None)),
            (
                "away for ever",
                two(full),
                status(2, true, well),
                Facts { waited: over, ..away },
                Outcome::Keep(None),
            ),
            (
                "the Cluster is gone",
                two(part),
                status(1, true, &[]),
                Facts { gone: true, ..away },
                Outcome::Done,
            ),
            ("back, and nothing took over", two(part), status(2, false, &[]), no, Outcome::Withdraw(2)),
            ("back, refused before there was a place", two(full), status(1, false, well), no, wait),
            ("back, the scheduler has not looked", two(part), status(1, true, &[]), no, wait),
            ("back, the others have come", two(full), status(2, true, &[]), no, wait),
            ("back, the others are well", two(full), status(2, true, well), no, Outcome::Done),
            ("time is up, a user asks", two(part), status(2, false, &[]), user, Outcome::Done),
            ("time is up, nothing took over", two(part), status(2, false, &[]), late, Outcome::Keep(None)),
            (
                "time is up, nothing took over, and nothing was left to wait for",
                spec(3, true, part, json!({"purgeMode": "Directly"})),
                status(2, false, &[]),
                late,
                Outcome::Done,
            ),
            (
                "time is up, none is well",
                two(full),
                status(2, true, &[("lost", "Unhealthy")]),
                late,
                Outcome::Done,
            ),
            (
                "time is up, the old one is well",
                two(full),
                status(2, true, &[("lost", "Healthy"), ("new", "Unhealthy")]),
                late,
                Outcome::Keep(None),
            ),
            (
                "its own grace",
                spec(3, true, full, json!({"gracePeriodSeconds": 70})),
                status(2, true, &[]),
                FACTS,
                Outcome::Keep(Some(minute)),
            ),
            (
                "never",
                spec(3, true, full, json!({"suppressDeletion": true})),
                status(2, true, well),
                late,
                Outcome::Keep(None),
            ),
            (
                "a user says so",
                spec(3, true, part, json!({"suppressDeletion": false})),
                status(1, true, &[]),
                FACTS,
                Outcome::Done,
            ),
            (
                "duplicated, one too few",
                spec(2, false, part, none.clone()),
                status(2, true, well),
                FACTS,
                wait,
            ),
            (
                "duplicated, replaced",
                spec(2, false, full, none.clone()),
                status(2, true, well),
                FACTS,
                Outcome::Done,
            ),
            (
                "duplicated, back",
                spec(2, false, part, none.clone()),
                status(2, true, well),
                no,
                Outcome::Withdraw(2),
            ),
            (
                "without replicas",
                spec(0, false, &[("new", 0), ("kept", 0)], none.clone()),
                status(2, true, well),
                FACTS,
                Outcome::Done,
            ),
            (
                "without replicas, nowhere",
                spec(0, false, &[], none.clone()),
                status(2, true, &[]),
                FACTS,
                wait,
            ),
        ];
        for (message, spec, status, facts, want) in table {
            let task = &spec.graceful_eviction_tasks[0];
            let got = assess(&spec, &status, 2, task, &facts, &Settings::default());
            assert_eq!(got, want, "{message}");
        }
    }

    #[test]
    fn what_finds_no_place_is_told() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let short = spec(3, true, &[("kept", 1)], json!({}));
        let text = |spec: &ResourceBindingSpec, held, seen| {
            condition(spec, held, seen, now).map(|c| format!("{}: {}", c.reason, c.message))
        };
        assert_eq!(
            text(&short, None, true).unwrap(),
            "TooFewClusters: evicted from lost: no other cluster can take 2 of 3 replicas"
        );
        assert_eq!(text(&short, None, false), None, "nobody has looked yet");
        let duplicated = spec(2, false, &[("kept", 2)], json!({}));
        assert!(text(&duplicated, None, true).unwrap().ends_with("1 of the clusters that it had"));
        assert_eq!(text(&spec(3, true, &[("kept", 3)], json!({})), None, true), None);
        assert_eq!(text(&short, Some(("EvictionRate", "too many")), true).unwrap(), "EvictionRate: too many");
    }
}
