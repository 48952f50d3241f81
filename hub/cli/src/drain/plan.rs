//! What draining a cluster means for one object: whether it can go elsewhere, and how far it is. Pure.

use std::collections::BTreeSet;

use karmada_api::{
    conditions, consts::extension::FAILOVER_COMPLETE, policy::DEFAULT_SCHEDULER, work::TargetCluster,
};
use karmada_core::{
    evict::{self, Left},
    fleet::Fleet,
    place::{self, Request, Trigger},
    suppose::{self, Moved},
};
use karmada_interpreter::{Runs, ready};
use karmada_meta::text;
use serde_json::{Value, json};

use super::super::placed::{Bound, Groups};

/// What is to be done about one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// It goes to these clusters.
    Move(Vec<TargetCluster>),
    /// It is on its way already.
    UnderWay,
    /// It goes where what refers to it goes.
    Follow,
    /// Nothing runs of it, and no other cluster takes it: it may stay.
    Leave(String),
    /// It runs a Pod on every node there, and no other cluster takes it: its Pods stay for as long as the nodes do.
    Daemons(String),
    /// It runs, and cannot go without being missed.
    Stuck(String),
}

/// What is to be done about an object when a cluster is drained; `fleet` has that cluster cordoned.
pub(super) fn plan(bound: &Bound, groups: &Groups, fleet: &Fleet, cluster: &str) -> Plan {
    let is_there = bound.placed().iter().any(|target| target.name == cluster);
    if !is_there {
        return if leaves(bound, cluster) { Plan::UnderWay } else { Plan::Follow };
    }
    let Some(placement) = &bound.spec.placement else { return Plan::Follow };
    let stuck = |why: String| match bound.runs() {
        Runs::Replicas | Runs::Pods => Plan::Stuck(why),
        Runs::Unknown => {
            Plan::Stuck(format!("{why} (what runs of a {} is not known)", bound.spec.resource.kind))
        }
        Runs::OnEveryNode => Plan::Daemons(why),
        Runs::Nothing => Plan::Leave(why),
    };
    if bound.spec.suspension.as_ref().is_some_and(|suspension| suspension.scheduling == Some(true)) {
        return stuck("its scheduling is suspended".into());
    }
    if !bound.spec.scheduler_name.is_empty() && bound.spec.scheduler_name != DEFAULT_SCHEDULER {
        return stuck(format!("scheduler {:?} places it, not this hub", bound.spec.scheduler_name));
    }
    let peers = groups.peers_of(bound);
    let request = bound.request(&bound.spec, fleet, &peers);
    match suppose::leave(&request, &BTreeSet::from([cluster])) {
        Moved::Stays => Plan::Follow,
        Moved::To(clusters) => {
            // What is worked out again whenever a cluster changes would come back as soon as it has left.
            let mut spec = bound.spec.clone();
            spec.clusters.clone_from(&clusters);
            let after = Request { spec: &spec, ..request };
            let returns = place::goes_back(&spec, Some(Trigger::Recomputed))
                && place::schedule(&after)
                    .is_ok_and(|d| d.clusters.iter().any(|target| target.name == cluster));
            if returns && !placement.cluster_tolerations.is_empty() {
                return stuck(
                    "its policy tolerates the taint of a cordoned cluster: it would come back".into(),
                );
            }
            Plan::Move(clusters)
        }
        Moved::Short { left, why, .. } => stuck(match left {
            Some(Left::Replicas(left)) => {
                format!("{left} of {} replicas have no place: {why}", bound.spec.replicas)
            }
            Some(Left::Clusters(_)) | None => why,
        }),
    }
}

/// Whether an object is leaving a cluster.
fn leaves(bound: &Bound, cluster: &str) -> bool {
    bound.spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == cluster)
}

/// How far an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has left.
    Gone,
    /// It waits for this.
    Waits(String),
    /// It was given back, and why.
    Back(String),
}

/// How far an object is that is leaving a cluster; nothing is left of one whose binding is gone.
pub(super) fn progress(bound: Option<&Bound>, cluster: &str) -> Progress {
    let Some(bound) = bound else { return Progress::Gone };
    if bound.placed().iter().any(|target| target.name == cluster) {
        return Progress::Back(
            trouble(bound).unwrap_or_else(|| "the scheduler has placed it there again".into()),
        );
    }
    if !leaves(bound, cluster) {
        let there = bound.status.aggregated_status.iter().any(|item| item.cluster_name == cluster);
        return if there {
            Progress::Waits(format!("its copy on {cluster} to be removed"))
        } else {
            Progress::Gone
        };
    }
    if let Some(why) = trouble(bound) {
        return Progress::Waits(format!("a cluster that can take it: {why}"));
    }
    if bound.placed().is_empty() || evict::missing(&bound.spec).is_some() {
        return Progress::Waits("the scheduler".into());
    }
    let waiting: Vec<_> = bound.placed().iter().filter_map(|target| waits_for(bound, target)).collect();
    Progress::Waits(match waiting.as_slice() {
        // Everything is well: the hub is about to end the eviction, unless it does not hear of the cluster.
        [] => format!("the hub to remove its copy on {cluster}, which has to report for that"),
        waiting => waiting.join(", "),
    })
}

/// What a new copy lacks; nothing where it is healthy.
fn waits_for(bound: &Bound, target: &TargetCluster) -> Option<String> {
    let item = bound.status.aggregated_status.iter().find(|item| item.cluster_name == target.name);
    let Some(item) = item else { return Some(format!("{} to apply it", target.name)) };
    if !item.applied {
        let why = if item.applied_message.is_empty() {
            String::new()
        } else {
            format!(" ({})", text::line(&item.applied_message, WORDS))
        };
        return Some(format!("{} to apply it{why}", target.name));
    }
    if evict::takes_over(&bound.status, target) {
        return None;
    }
    let of = &bound.spec.resource;
    let object =
        json!({"apiVersion": of.api_version, "kind": of.kind, "spec": {"replicas": target.replicas}});
    let status = item.status.clone().unwrap_or(Value::Null);
    let counted = ready(&object, &status, item.health).unwrap_or_else(|| "not reported".into());
    Some(format!("{} to be healthy ({counted})", target.name))
}

/// How much of what others say is shown of each object, in bytes.
const WORDS: usize = 1024;

/// Why an eviction does not get on, as the hub says it.
fn trouble(bound: &Bound) -> Option<String> {
    let failing = |type_| {
        conditions::find(&bound.status.conditions, type_)
            .filter(|condition| condition.status == conditions::ConditionStatus::False)
    };
    let condition =
        failing(FAILOVER_COMPLETE).or_else(|| failing(karmada_api::consts::condition::SCHEDULED))?;
    Some(text::line(&condition.message, WORDS))
}

#[cfg(test)]
mod tests {
    use karmada_api::{
        cluster::{Cluster, Taint},
        consts::taint::{NO_SCHEDULE, UNSCHEDULABLE},
    };
    use karmada_objects::scope::Scope;

    use super::*;

    fn cluster(name: &str) -> Cluster {
        let taints = if name == "old" { vec![Taint::new(UNSCHEDULABLE, NO_SCHEDULE)] } else { Vec::new() };
        serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {"syncMode": "Pull", "taints": taints},
            "status": {"apiEnablements": [
                {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
            ]},
        }))
        .unwrap()
    }

    fn bound(spec: &Value, status: &Value) -> Bound {
        let mut full = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"},
            "replicas": 2, "clusters": [{"name": "old", "replicas": 2}], "placement": {},
        });
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let binding =
            json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": full, "status": status});
        Bound::read(Scope::Namespaced, &binding).map_err(|_| "unreadable").unwrap()
    }

    #[test]
    fn what_can_go_goes() {
        let fleet = Fleet::of(["old", "new", "other"].map(cluster));
        let one = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
        let only = json!({"clusterAffinity": {"clusterNames": ["old"]}});
        let all = json!([{"name": "old", "replicas": 2}, {"name": "new", "replicas": 2}, {"name": "other", "replicas": 2}]);
        let everything = json!([{"operator": "Exists"}]);
        let to = |names: &[&str]| Plan::Move(names.iter().map(|name| TargetCluster::new(*name, 2)).collect());
        let table = [
            ("a spare", json!({"placement": {"spreadConstraints": one}}), to(&["new"])),
            (
                "on all of them",
                json!({"clusters": all}),
                Plan::Stuck(
                    "no other cluster can take it: every other cluster that may have it has it".into(),
                ),
            ),
            (
                "suspended",
                json!({"suspension": {"scheduling": true}}),
                Plan::Stuck("its scheduling is suspended".into()),
            ),
            (
                "nothing runs of it",
                json!({"replicas": 0, "clusters": all}),
                Plan::Leave(
                    "no other cluster can take it: every other cluster that may have it has it".into(),
                ),
            ),
            ("no placement", json!({"placement": null}), Plan::Follow),
            (
                "under way",
                json!({"clusters": [], "gracefulEvictionTasks": [{"fromCluster": "old", "reason": "R", "producer": "P"}]}),
                Plan::UnderWay,
            ),
            (
                "would come back",
                json!({"placement": {"clusterTolerations": everything}, "clusters": [{"name": "old", "replicas": 2}]}),
                Plan::Stuck(
                    "its policy tolerates the taint of a cordoned cluster: it would come back".into(),
                ),
            ),
        ];
        for (message, spec, want) in table {
            assert_eq!(
                plan(&bound(&spec, &json!(null)), &Groups::default(), &fleet, "old"),
                want,
                "{message}"
            );
        }
        let stuck =
            plan(&bound(&json!({"placement": only}), &json!(null)), &Groups::default(), &fleet, "old");
        assert!(matches!(&stuck, Plan::Stuck(why) if why.contains("new: no, it is not named")), "{stuck:?}");
    }

    #[test]
    fn what_runs_is_not_passed_over() {
        let fleet = Fleet::of(["old", "new"].map(cluster));
        let why = "its scheduling is suspended";
        let stuck = Plan::Stuck(why.into());
        let leave = Plan::Leave(why.into());
        let pods = json!({"resourceRequest": {"cpu": "1"}});
        let table = [
            ("apps/v1", "Deployment", json!({"replicas": 1}), stuck.clone()),
            ("apps/v1", "Deployment", json!({}), leave.clone()),
            ("batch/v1", "CronJob", json!({}), stuck.clone()),
            ("apps/v1", "DaemonSet", json!({}), Plan::Daemons(why.into())),
            ("v1", "ConfigMap", json!({}), leave.clone()),
            ("v1", "Service", json!({}), leave.clone()),
            ("rbac.authorization.k8s.io/v1", "Role", json!({}), leave.clone()),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({}), leave),
            (
                "example.io/v1",
                "Database",
                json!({}),
                Plan::Stuck(format!("{why} (what runs of a Database is not known)")),
            ),
            ("example.io/v1", "Database", json!({"replicaRequirements": pods}), stuck),
        ];
        for (api_version, kind, spec, want) in table {
            let mut full = json!({
                "resource": {"apiVersion": api_version, "kind": kind, "namespace": "shop", "name": "it", "uid": "u"},
                "replicas": 0, "clusters": [{"name": "old"}], "suspension": {"scheduling": true},
            });
            for (key, value) in spec.as_object().unwrap() {
                full[key] = value.clone();
            }
            let got = plan(&bound(&full, &json!(null)), &Groups::default(), &fleet, "old");
            assert_eq!(got, want, "{kind} {spec}");
        }
    }

    #[test]
    fn how_far_it_is() {
        let task = json!([{"fromCluster": "old", "reason": "R", "producer": "P"}]);
        let moving = json!({"clusters": [{"name": "new", "replicas": 2}], "gracefulEvictionTasks": task});
        let item = |name: &str, applied: bool, health: &str, ready: i32| json!({"clusterName": name, "applied": applied, "health": health, "status": {"readyReplicas": ready}});
        let waits = |text: &str| Progress::Waits(text.into());
        let scheduled = |status: &str| {
            json!([{"type": "Scheduled", "status": status, "reason": "R", "message": "no room",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let old = item("old", true, "Healthy", 2);
        let table = [
            (
                "to be placed",
                json!({"clusters": [], "gracefulEvictionTasks": task}),
                json!({}),
                waits("the scheduler"),
            ),
            (
                "no place",
                json!({"clusters": [], "gracefulEvictionTasks": task}),
                json!({"conditions": scheduled("False")}),
                waits("a cluster that can take it: no room"),
            ),
            ("placed", moving.clone(), json!({"aggregatedStatus": [old]}), waits("new to apply it")),
            (
                "starting",
                moving.clone(),
                json!({"aggregatedStatus": [item("new", true, "Unhealthy", 1), old]}),
                waits("new to be healthy (1/2)"),
            ),
            (
                "healthy",
                moving,
                json!({"aggregatedStatus": [item("new", true, "Healthy", 2), old]}),
                waits("the hub to remove its copy on old, which has to report for that"),
            ),
            (
                "being removed",
                json!({"clusters": [{"name": "new", "replicas": 2}]}),
                json!({"aggregatedStatus": [item("new", true, "Healthy", 2), old]}),
                waits("its copy on old to be removed"),
            ),
            (
                "gone",
                json!({"clusters": [{"name": "new", "replicas": 2}]}),
                json!({"aggregatedStatus": [item("new", true, "Healthy", 2)]}),
                Progress::Gone,
            ),
            ("back", json!({}), json!({}), Progress::Back("the scheduler has placed it there again".into())),
        ];
        for (message, spec, status, want) in table {
            assert_eq!(progress(Some(&bound(&spec, &status)), "old"), want, "{message}");
        }
        assert_eq!(progress(None, "old"), Progress::Gone);
    }
}
