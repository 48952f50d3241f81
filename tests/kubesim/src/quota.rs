//! What ResourceQuotas say of a namespace's use, as a pure function.
//!
//! Counted are pods and what they ask for. Nothing is refused: that a member keeps to its quota is the member's matter.

use karmada_meta::{object::namespace, quantity::Quantity};
use serde_json::{Map, Value, json};

use super::plan::{Action, Resource, is_active, request, status};

/// The quota controller. `pods` are all pods that there are.
pub fn resource_quota(quota: &Value, pods: &[&Value]) -> Vec<Action> {
    let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
    let there: Vec<&Value> =
        pods.iter().copied().filter(|pod| namespace(pod) == namespace(quota) && is_active(pod)).collect();
    let used: Map<String, Value> = hard
        .keys()
        .map(|resource| {
            let used = match resource.strip_prefix("requests.").unwrap_or(resource) {
                "pods" | "count/pods" => Quantity::from_value(there.len() as i64),
                name => there.iter().fold(Quantity::zero(), |sum, pod| sum + request(pod, name)),
            };
            (resource.clone(), json!(used.to_string()))
        })
        .collect();
    let wanted = Map::from_iter([("hard".to_owned(), json!(hard)), ("used".to_owned(), json!(used))]);
    status(Resource::ResourceQuotas, quota, &wanted).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_in_the_namespace_is_counted() {
        let pod = |namespace: &str, phase: &str, cpu: &str| {
            json!({
                "metadata": {"name": "p", "namespace": namespace},
                "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]},
                "status": {"phase": phase},
            })
        };
        let pods = [
            pod("shop", "Running", "1"),
            pod("shop", "Pending", "500m"),
            pod("shop", "Succeeded", "4"),
            pod("x", "Running", "4"),
        ];
        let quota = json!({"metadata": {"name": "q", "namespace": "shop"},
                           "spec": {"hard": {"cpu": "3", "requests.memory": "1Gi", "pods": "5"}}});
        let actions = resource_quota(&quota, &pods.iter().collect::<Vec<_>>());
        let [Action::Patch { patch, status: true, .. }] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!(patch["status"]["used"], json!({"cpu": "1500m", "requests.memory": "0", "pods": "2"}));
        assert_eq!(patch["status"]["hard"], quota["spec"]["hard"]);
        let mut told = quota;
        told["status"] = patch["status"].clone();
        assert_eq!(resource_quota(&told, &pods.iter().collect::<Vec<_>>()), [], "nothing new");
    }
}
