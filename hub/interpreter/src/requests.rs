//! What a pod asks for.

use std::collections::BTreeMap;

use karmada_meta::quantity::{Format, Quantity};
use serde::Deserialize;
use serde_json::Value;

use crate::fields::{at, list};

/// Quantities by name of resource.
type Resources = BTreeMap<String, Quantity>;

/// A pod's effective request: the sum over its containers, at least what any one init container asks for, plus
/// the overhead. Resources of which nothing is asked are left out. `spec` is the pod's spec.
pub fn pod_requests(spec: &Value) -> Resources {
    requests(spec, false)
}

/// The request of a pod that is not made yet: as [`pod_requests`], but where a container has a limit and no
/// request the limit counts, as the API server will fill it in.
pub fn pod_template_requests(spec: &Value) -> Resources {
    requests(spec, true)
}

fn requests(spec: &Value, limits: bool) -> Resources {
    let mut total = Resources::new();
    for container in list(spec, &["containers"]) {
        add(&mut total, &container_request(container, limits));
    }
    for container in list(spec, &["initContainers"]) {
        for (name, quantity) in container_request(container, limits) {
            let most = total.entry(name).or_default();
            if quantity > *most {
                *most = quantity;
            }
        }
    }
    add(&mut total, &at(spec, &["overhead"]).map(quantities).unwrap_or_default());
    total.retain(|_, quantity| !quantity.is_zero());
    total.into_iter().map(|(name, quantity)| (name.clone(), quantity.with_format(format_of(&name)))).collect()
}

fn container_request(container: &Value, limits: bool) -> Resources {
    let read = |field| at(container, &["resources", field]).map(quantities).unwrap_or_default();
    let mut request = read("requests");
    if limits {
        for (name, limit) in read("limits") {
            request.entry(name).or_insert(limit);
        }
    }
    request
}

fn add(total: &mut Resources, more: &Resources) {
    for (name, quantity) in more {
        let sum = total.entry(name.clone()).or_default();
        *sum += *quantity;
    }
}

/// Reads quantities; what is none asks for nothing, as no API server lets it through.
fn quantities(value: &Value) -> Resources {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(name, q)| Some((name.clone(), Quantity::deserialize(q).ok()?))).collect()
}

/// How sums of a resource print, whatever suffixes their parts had.
fn format_of(name: &str) -> Format {
    if name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-") {
        Format::BinarySi
    } else {
        Format::DecimalSi
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(spec: &Value, limits: bool) -> Value {
        serde_json::to_value(requests(spec, limits)).unwrap()
    }

    #[test]
    fn containers_add_up_init_containers_set_a_floor() {
        for (what, spec, limits, expected) in [
            ("nothing", json!({"containers": [{"name": "a"}]}), true, json!({})),
            (
                "sum",
                json!({"containers": [
                    {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
                    {"resources": {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1}}},
                ]}),
                true,
                json!({"cpu": "1100m", "memory": "1088Mi", "nvidia.com/gpu": "1"}),
            ),
            (
                "floor and overhead",
                json!({
                    "containers": [{"resources": {"requests": {"cpu": "100m", "memory": "2Gi"}}}],
                    "initContainers": [{"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
                    "overhead": {"cpu": "50m"},
                }),
                true,
                json!({"cpu": "2050m", "memory": "2Gi"}),
            ),
            (
                "a limit stands in for a request",
                json!({"containers": [{"resources": {"limits": {"cpu": "2", "memory": "1Gi"},
                                                     "requests": {"cpu": "1"}}}]}),
                true,
                json!({"cpu": "1", "memory": "1Gi"}),
            ),
            (
                "but not in a pod that exists",
                json!({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}),
                false,
                json!({}),
            ),
            (
                "memory prints in binary",
                json!({"containers": [{"resources": {"requests": {"memory": "1024000"}}}]}),
                true,
                json!({"memory": "1000Ki"}),
            ),
            (
                "zero and nonsense are left out",
                json!({"containers": [{"resources": {"requests": {"cpu": "0", "memory": "much"}}}, 3]}),
                true,
                json!({}),
            ),
        ] {
            assert_eq!(printed(&spec, limits), expected, "{what}");
        }
    }
}
