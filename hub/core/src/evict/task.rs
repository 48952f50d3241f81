//! Eviction tasks in bindings: how they are written and taken out. On JSON, so that fields newer than ours survive.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::{
    consts::{extension::EVICTED_FROM, reason},
    policy::{FailoverBehavior, PurgeMode},
    work::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster},
};
use karmada_meta::{names, object, time::Time};
use serde_json::{Value, json};

use super::{Cause, Settings};

/// An eviction that begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction<'a> {
    /// The cluster that is left.
    pub cluster: &'a str,
    /// Why.
    pub cause: Cause,
    /// Who decided it.
    pub producer: &'a str,
    /// Why, for people.
    pub message: String,
    /// What becomes of the old copy.
    pub purge_mode: PurgeMode,
    /// What the new copy inherits.
    pub preserved: BTreeMap<String, String>,
}

/// The limit of a task's message.
const MESSAGE_LIMIT: usize = 1024;

/// Takes a cluster off a binding and writes down that its copy is to go. `spec` is what stands in `binding`. Whether the
/// binding had the cluster.
pub fn begin(binding: &mut Value, spec: &ResourceBindingSpec, eviction: &Eviction<'_>, now: Time) -> bool {
    let Some(target) = spec.clusters.iter().find(|target| target.name == eviction.cluster) else {
        return false;
    };
    remove(binding, "clusters", |entry| entry["name"] == eviction.cluster);
    if spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == eviction.cluster) {
        return true;
    }
    let application = spec.failover.as_ref().and_then(|failover| failover.application.as_ref());
    let graceful = eviction.purge_mode == PurgeMode::Gracefully && eviction.cause == Cause::Application;
    let mut message = eviction.message.clone();
    let end = (0..=MESSAGE_LIMIT.min(message.len())).rev().find(|at| message.is_char_boundary(*at));
    message.truncate(end.unwrap_or_default());
    let task = GracefulEvictionTask {
        from_cluster: eviction.cluster.to_owned(),
        purge_mode: Some(eviction.purge_mode),
        replicas: (target.replicas > 0).then_some(target.replicas),
        reason: match eviction.cause {
            Cause::NoExecute | Cause::Failover => reason::TAINT_UNTOLERATED.to_owned(),
            Cause::Application => reason::APPLICATION_FAILURE.to_owned(),
        },
        message,
        producer: eviction.producer.to_owned(),
        grace_period_seconds: application
            .filter(|_| graceful)
            .and_then(|application| application.grace_period_seconds),
        suppress_deletion: (eviction.purge_mode == PurgeMode::Never).then_some(true),
        preserved_label_state: eviction.preserved.clone(),
        creation_timestamp: Some(now),
        clusters_before_failover: spec.clusters.iter().map(|target| target.name.clone()).collect(),
    };
    let spec = object::ensure_map(binding, "spec");
    let tasks = spec.entry("gracefulEvictionTasks").or_insert_with(|| json!([]));
    if let Some(tasks) = tasks.as_array_mut() {
        tasks.push(json!(task));
    }
    true
}

/// Takes a task out of a binding: the copy on that cluster may go. The binding remembers the cluster.
pub fn end(binding: &mut Value, cluster: &str) -> bool {
    let ended = remove(binding, "gracefulEvictionTasks", |task| task["fromCluster"] == cluster);
    if ended {
        let mut left = evicted_from(binding);
        if names::is_cluster_name(cluster) {
            left.insert(cluster.to_owned());
        }
        set_evicted_from(binding, &left);
    }
    ended
}

/// Writes down what a binding has left where somebody else takes tasks out of it: whoever does so without giving the cluster
/// back says that the copy there may go, as [`end`] does. Of a name that no cluster can have nothing is noted: with a comma in it, it
/// would stand for others.
pub fn remember(old: &Value, binding: &mut Value) {
    let named = |binding: &Value, list: &str, field: &str| -> BTreeSet<String> {
        let entries = binding["spec"][list].as_array().into_iter().flatten();
        entries.filter_map(|entry| entry[field].as_str()).map(str::to_owned).collect()
    };
    let mut ended = named(old, "gracefulEvictionTasks", "fromCluster");
    ended.retain(|cluster| names::is_cluster_name(cluster));
    let kept = [("gracefulEvictionTasks", "fromCluster"), ("clusters", "name")];
    for (list, field) in kept {
        for cluster in named(binding, list, field) {
            ended.remove(&cluster);
        }
    }
    let mut left = evicted_from(binding);
    let before = left.len();
    left.extend(ended);
    if left.len() > before {
        set_evicted_from(binding, &left);
    }
}

/// Takes a task out of a binding and gives it the cluster back, with so many replicas.
pub fn withdraw(binding: &mut Value, cluster: &str, replicas: i32) -> bool {
    let mut before = Value::Null;
    let withdrawn = remove(binding, "gracefulEvictionTasks", |task| {
        let is = task["fromCluster"] == cluster;
        if is {
            before = task["clustersBeforeFailover"].clone();
        }
        is
    });
    if !withdrawn {
        return false;
    }
    let spec = object::ensure_map(binding, "spec");
    // It never left: a cluster that had a copy beside this one, and left after it, left two.
    let beside = |task: &Value| before.as_array().is_some_and(|names| names.contains(&task["fromCluster"]));
    let others = spec.get_mut("gracefulEvictionTasks").and_then(Value::as_array_mut).into_iter().flatten();
    for other in others.filter(|task| beside(task)) {
        if let Some(names) = other.get_mut("clustersBeforeFailover").and_then(Value::as_array_mut)
            && !names.iter().any(|name| name == cluster)
        {
            names.push(json!(cluster));
        }
    }
    let clusters = spec.entry("clusters").or_insert_with(|| json!([]));
    if let Some(clusters) = clusters.as_array_mut()
        && !clusters.iter().any(|target| target["name"] == cluster)
    {
        clusters.push(json!(TargetCluster::new(cluster, replicas)));
    }
    true
}

/// Takes clusters off a binding for which nothing was begun yet.
pub fn give_up(binding: &mut Value, clusters: &[String]) -> bool {
    let given_up = |entry: &Value| clusters.iter().any(|cluster| entry["name"] == cluster.as_str());
    remove(binding, "clusters", given_up)
}

/// Removes what matches from a list of a binding's spec, and the list when nothing is left.
fn remove(binding: &mut Value, list: &str, mut matches: impl FnMut(&Value) -> bool) -> bool {
    let spec = object::ensure_map(binding, "spec");
    let Some(entries) = spec.get_mut(list).and_then(Value::as_array_mut) else { return false };
    let before = entries.len();
    entries.retain(|entry| !matches(entry));
    let (now, empty) = (entries.len(), entries.is_empty());
    if empty {
        spec.remove(list);
    }
    now < before
}

/// The clusters that a binding has left.
pub fn evicted_from(binding: &Value) -> BTreeSet<String> {
    let names = object::annotation(binding, EVICTED_FROM).unwrap_or_default().split(',');
    names.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Writes down the clusters that a binding has left.
pub fn set_evicted_from(binding: &mut Value, clusters: &BTreeSet<String>) {
    if clusters.is_empty() {
        object::remove_annotation(binding, EVICTED_FROM);
    } else {
        let names: Vec<_> = clusters.iter().map(String::as_str).collect();
        object::set_annotation(binding, EVICTED_FROM, names.join(","));
    }
}

/// Whether a binding's policy asks that it leave clusters that are lost.
pub fn asks_for_failover(spec: &ResourceBindingSpec) -> bool {
    spec.failover.as_ref().is_some_and(|failover| failover.cluster.is_some())
}

/// What becomes of the copy that an eviction leaves behind. Of what may run in one place only (`fenced`) it goes first.
pub fn purge_mode(
    failover: Option<&FailoverBehavior>,
    cause: Cause,
    fenced: bool,
    settings: &Settings,
) -> PurgeMode {
    if fenced {
        return PurgeMode::Directly;
    }
    let failover = failover.cloned().unwrap_or_default();
    let asked = match cause {
        Cause::Application => failover.application.map(|application| application.purge_mode),
        Cause::NoExecute | Cause::Failover => failover.cluster.map(|cluster| cluster.purge_mode),
    };
    asked.unwrap_or(settings.purge_mode)
}

/// The clusters whose copies are removed before new ones are made.
pub fn purged(spec: &ResourceBindingSpec) -> BTreeSet<String> {
    let directly =
        spec.graceful_eviction_tasks.iter().filter(|task| task.purge_mode == Some(PurgeMode::Directly));
    directly.map(|task| task.from_cluster.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    fn binding() -> Value {
        json!({"metadata": {"name": "b"}, "spec": {
            "resource": {"apiVersion": "v1", "kind": "C", "name": "c"}, "replicas": 3, "newer": {"kept": true},
            "clusters": [{"name": "a", "replicas": 1, "newer": 1}, {"name": "b", "replicas": 2}],
            "failover": {"application": {"decisionConditions": {"tolerationSeconds": 5}, "purgeMode": "Gracefully",
                                         "gracePeriodSeconds": 60}, "cluster": {"purgeMode": "Directly"}},
        }})
    }

    fn spec(binding: &Value) -> ResourceBindingSpec {
        ResourceBindingSpec::deserialize(&binding["spec"]).unwrap()
    }

    #[test]
    fn a_task_is_karmadas() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut live = binding();
        let before = spec(&live);
        let mode = |cause| purge_mode(before.failover.as_ref(), cause, false, &Settings::default());
        let eviction = Eviction {
            cluster: "b",
            cause: Cause::Application,
            producer: "P",
            message: "unhealthy for 5 s".to_owned(),
            purge_mode: mode(Cause::Application),
            preserved: BTreeMap::from([("job".to_owned(), "7".to_owned())]),
        };
        assert!(begin(&mut live, &before, &eviction, now));
        assert_eq!(live["spec"]["clusters"], json!([{"name": "a", "replicas": 1, "newer": 1}]));
        assert_eq!(
            live["spec"]["gracefulEvictionTasks"],
            json!([{
                "fromCluster": "b", "purgeMode": "Gracefully", "replicas": 2, "reason": "ApplicationFailure",
                "message": "unhealthy for 5 s", "producer": "P", "gracePeriodSeconds": 60,
                "preservedLabelState": {"job": "7"}, "creationTimestamp": "2026-01-01T00:00:00Z",
                "clustersBeforeFailover": ["a", "b"],
            }])
        );
        assert_eq!(live["spec"]["newer"], json!({"kept": true}));
        assert!(
            !begin(&mut live, &before.clone(), &Eviction { cluster: "c", ..eviction.clone() }, now),
            "not there"
        );
        let taint =
            Eviction { cause: Cause::Failover, cluster: "a", purge_mode: mode(Cause::Failover), ..eviction };
        let between = spec(&live);
        assert!(begin(&mut live, &between, &taint, now));
        let task = &spec(&live).graceful_eviction_tasks[1];
        assert_eq!((task.reason.as_str(), task.grace_period_seconds), ("TaintUntolerated", None));
        assert_eq!(purged(&spec(&live)), BTreeSet::from(["a".to_owned()]));
        assert!(live["spec"].get("clusters").is_none());

        let mut other = live.clone();
        assert!(withdraw(&mut other, "b", 2));
        let task = &spec(&other).graceful_eviction_tasks[0];
        assert_eq!(task.clusters_before_failover, ["a", "b"], "what was taken back had never left");

        // A replacement was never beside what it replaced.
        let mut moved = json!({"spec": {"gracefulEvictionTasks": [
            {"fromCluster": "a", "clustersBeforeFailover": ["a"]}, {"fromCluster": "b", "clustersBeforeFailover": ["b"]},
        ]}});
        assert!(withdraw(&mut moved, "a", 1));
        assert_eq!(moved["spec"]["gracefulEvictionTasks"][0]["clustersBeforeFailover"], json!(["b"]));

        assert!(withdraw(&mut live, "a", 1) && !withdraw(&mut live, "a", 1));
        assert_eq!(live["spec"]["clusters"], json!([{"name": "a", "replicas": 1}]));
        assert!(end(&mut live, "b") && !end(&mut live, "b"));
        assert!(live["spec"].get("gracefulEvictionTasks").is_none());
        assert_eq!(evicted_from(&live), BTreeSet::from(["b".to_owned()]));
        set_evicted_from(&mut live, &BTreeSet::new());
        assert_eq!(object::annotation(&live, EVICTED_FROM), None);
        assert_eq!(purge_mode(None, Cause::NoExecute, false, &Settings::default()), PurgeMode::Gracefully);
    }

    #[test]
    fn who_takes_a_task_out_says_that_the_cluster_is_left() {
        let task = |cluster: &str| json!({"fromCluster": cluster});
        let on = |cluster: &str| json!({"name": cluster, "replicas": 1});
        // (tasks before; tasks, clusters and annotation after; what has been left)
        let rows = [
            (json!([task("b")]), json!({"clusters": [on("a")]}), None, Some("b")),
            (
                json!([task("b")]),
                json!({"gracefulEvictionTasks": null, "clusters": [on("a")]}),
                Some("c"),
                Some("b,c"),
            ),
            (json!([task("b")]), json!({"gracefulEvictionTasks": [task("b")]}), None, None),
            (json!([task("b"), task("c")]), json!({"gracefulEvictionTasks": [task("c")]}), None, Some("b")),
            (json!([task("b")]), json!({"clusters": [on("a"), on("b")]}), None, None),
            (json!([task("b")]), json!({"clusters": [on("a")]}), Some("b"), Some("b")),
            (json!([]), json!({"clusters": [on("a")]}), Some("c"), Some("c")),
            (json!(null), json!({"gracefulEvictionTasks": [task("b")]}), None, None),
            // No cluster is called so.
            (json!([task("b,c")]), json!({"clusters": [on("a")]}), None, None),
            (json!([task("b c"), task(""), task("d")]), json!({"clusters": [on("a")]}), None, Some("d")),
        ];
        for (tasks, spec, noted, want) in rows {
            let old = json!({"metadata": {"name": "b"}, "spec": {"gracefulEvictionTasks": tasks}});
            let mut new = json!({"metadata": {"name": "b"}, "spec": spec});
            if let Some(noted) = noted {
                object::set_annotation(&mut new, EVICTED_FROM, noted);
            }
            remember(&old, &mut new);
            assert_eq!(object::annotation(&new, EVICTED_FROM), want, "{old} {new}");
        }
        let mut binding = json!({"spec": {"gracefulEvictionTasks": [task("b,c")]}});
        assert!(end(&mut binding, "b,c"));
        assert_eq!(object::annotation(&binding, EVICTED_FROM), None);
    }
}
