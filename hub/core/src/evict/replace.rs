//! Whether others can take what a binding has on some clusters: worked out before it leaves them.

use karmada_api::work::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster};

use super::missing;

/// What a binding would lack without some of its clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct Lack<E> {
    /// The binding then, with all that found a place.
    pub spec: ResourceBindingSpec,
    /// Why nothing was placed, if nothing was.
    pub error: Option<E>,
}

/// Where a binding would be if it left some of its clusters, by whoever places it. The hub begins an eviction that no
/// user has asked for only if this is `Ok`: all of it, or it stays as it is.
///
/// # Errors
/// What would be lacking, if anything would.
pub fn replace<E>(
    spec: &ResourceBindingSpec,
    leaves: &[&str],
    schedule: impl FnOnce(&ResourceBindingSpec) -> Result<Vec<TargetCluster>, E>,
) -> Result<Vec<TargetCluster>, Box<Lack<E>>> {
    let mut after = without(spec, leaves);
    let error = match schedule(&after) {
        Ok(clusters) => {
            after.clusters = clusters;
            None
        }
        Err(error) => Some(error),
    };
    if error.is_none() && !after.clusters.is_empty() && missing(&after).is_none() {
        return Ok(after.clusters);
    }
    Err(Box::new(Lack { spec: after, error }))
}

/// A binding that has left clusters, and knows of it by its tasks, as [`begin`](super::begin) would have it.
fn without(spec: &ResourceBindingSpec, leaves: &[&str]) -> ResourceBindingSpec {
    let before: Vec<_> = spec.clusters.iter().map(|target| target.name.clone()).collect();
    let mut after = spec.clone();
    after.clusters.retain(|target| !leaves.contains(&target.name.as_str()));
    for target in spec.clusters.iter().filter(|target| leaves.contains(&target.name.as_str())) {
        if spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == target.name) {
            continue;
        }
        after.graceful_eviction_tasks.push(GracefulEvictionTask {
            from_cluster: target.name.clone(),
            replicas: (target.replicas > 0).then_some(target.replicas),
            clusters_before_failover: before.clone(),
            ..GracefulEvictionTask::default()
        });
    }
    after
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn all_of_it_or_what_is_lacking() {
        let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
        let binding = |placement: &Value, tasks: Value| -> ResourceBindingSpec {
            serde_json::from_value(json!({
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "replicas": 4,
                "placement": placement, "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 2}],
                "gracefulEvictionTasks": tasks,
            }))
            .unwrap()
        };
        let task = json!([{"fromCluster": "c", "reason": "R", "producer": "P", "clustersBeforeFailover": ["a", "b", "c"]}]);
        let table: [(&str, Value, Value, Result<&[i32], &str>, bool); 6] = [
            ("all replicas", divided.clone(), json!([]), Ok(&[2, 2]), true),
            ("one replica has no place", divided.clone(), json!([]), Ok(&[2, 1]), false),
            ("nobody has room", divided, json!([]), Err("no room"), false),
            ("as many copies", json!({}), json!([]), Ok(&[4, 4]), true),
            ("a copy less", json!({}), json!([]), Ok(&[4]), false),
            ("a copy of an earlier eviction is lacking still", json!({}), task, Ok(&[4, 4]), false),
        ];
        for (message, placement, tasks, placed, want) in table {
            let spec = binding(&placement, tasks.clone());
            let before = spec.graceful_eviction_tasks.len();
            let schedule = |spec: &ResourceBindingSpec| {
                let names: Vec<_> = spec.clusters.iter().map(|target| target.name.as_str()).collect();
                assert_eq!(names, ["b"], "{message}");
                assert_eq!(spec.graceful_eviction_tasks.len(), before + 1, "{message}");
                let placed = placed.map_err(str::to_owned)?.iter().enumerate();
                Ok(placed.map(|(n, replicas)| TargetCluster::new(format!("m{n}"), *replicas)).collect())
            };
            let got: Result<_, Box<Lack<String>>> = replace(&spec, &["a", "elsewhere"], schedule);
            assert_eq!(got.is_ok(), want, "{message}");
            if let Err(lack) = got {
                assert_eq!(lack.error.is_some(), placed.is_err(), "{message}");
            }
        }
    }
}
