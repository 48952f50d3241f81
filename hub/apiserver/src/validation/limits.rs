//! LimitRanges: what containers, Pods and claims of a namespace may have.

use std::collections::{BTreeMap, BTreeSet};

use karmada_meta::{
    names,
    path::{FieldError, Path},
    quantity::Quantity,
};
use serde_json::Value;

use super::parts::{list, text};

/// Types without a domain.
const TYPES: &[&str] = &["Pod", "Container", "PersistentVolumeClaim"];
const CONTAINER_RESOURCES: &[&str] = &["cpu", "memory", "ephemeral-storage"];
const RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// A LimitRange.
pub(super) fn limit_range(object: &Value) -> Vec<FieldError> {
    let (mut errors, mut types) = (Vec::new(), BTreeSet::new());
    let path = Path::new("spec").child("limits");
    for (index, item) in list(object, "/spec/limits").iter().enumerate() {
        let path = path.index(index);
        let kind = text(item, "/type");
        errors.extend(type_errors(kind, &path.child("type")));
        if !types.insert(kind) {
            errors.push(FieldError::duplicate(&path.child("type"), kind));
        }
        errors.extend(Item { kind, item, path }.judge());
    }
    errors
}

fn type_errors(kind: &str, path: &Path) -> Vec<FieldError> {
    let wrong = names::qualified_name_errors(kind);
    if !wrong.is_empty() {
        return wrong.into_iter().map(|detail| FieldError::invalid(path, kind, detail)).collect();
    }
    let known = kind.contains('/') || TYPES.contains(&kind);
    let detail = "must be a standard limit type or fully qualified";
    (!known).then(|| FieldError::invalid(path, kind, detail)).into_iter().collect()
}

/// One limit.
struct Item<'a> {
    kind: &'a str,
    item: &'a Value,
    path: Path,
}

/// Amounts by resource.
type Amounts<'a> = BTreeMap<&'a str, Quantity>;

impl<'a> Item<'a> {
    fn judge(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let max = self.amounts("max", &mut errors);
        let min = self.amounts("min", &mut errors);
        let (mut default, mut request) = (Amounts::new(), Amounts::new());
        if self.kind == "Pod" {
            let given = |field: &&str| self.map(field).next().is_some();
            errors.extend(["default", "defaultRequest"].iter().filter(|field| given(field)).map(|field| {
                FieldError::forbidden(&self.path.child(field), "may not be specified when `type` is 'Pod'")
            }));
        } else {
            default = self.amounts("default", &mut errors);
            request = self.amounts("defaultRequest", &mut errors);
        }
        if self.kind == "PersistentVolumeClaim" && ![&min, &max].iter().any(|map| map.contains_key("storage"))
        {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(&self.path.child("limits"), detail));
        }
        let ratio = self.amounts("maxLimitRequestRatio", &mut errors);
        let all = [&max, &min, &default, &request, &ratio];
        let resources: BTreeSet<&str> = all.iter().flat_map(|map| map.keys().copied()).collect();
        for resource in resources {
            let [max, min, default, request, ratio] = all.map(|map| map.get(resource).copied());
            let mut refuse = |field: &str, value: Quantity, detail: String| {
                let path = self.path.child(field).key(resource);
                errors.push(FieldError::invalid(&path, value.to_string(), detail));
            };
            // The first may not be more than the second; the third is told with its field.
            let orders = [
                (("min", min), ("max", max), ("min", min)),
                (("min", min), ("default request", request), ("defaultRequest", request)),
                (("default request", request), ("max", max), ("defaultRequest", request)),
                (("default request", request), ("default limit", default), ("defaultRequest", request)),
                (("min", min), ("default", default), ("default", min)),
                (("default", default), ("max", max), ("default", max)),
            ];
            for ((less, small), (more, large), (field, shown)) in orders {
                if let (Some(small), Some(large), Some(shown)) = (small, large, shown)
                    && small > large
                {
                    let detail = format!("{less} value {small} is greater than {more} value {large}");
                    refuse(field, shown, detail);
                }
            }
            if let Some(ratio) = ratio {
                if ratio.as_f64() < 1.0 {
                    refuse("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
                }
                if let (Some(min), Some(max)) = (min, max)
                    && ratio.as_f64() > max.as_f64() / min.as_f64()
                {
                    let most = max.as_f64() / min.as_f64();
                    let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
                    refuse("maxLimitRequestRatio", ratio, detail);
                }
            }
            if let (Some(default), Some(request), false) = (default, request, may_overcommit(resource))
                && default != request
            {
                let detail = format!(
                    "default value {default} must equal to defaultRequest value {request} in {resource}"
                );
                refuse("defaultRequest", request, detail);
            }
        }
        errors
    }

    fn map(&self, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let map = self.item.get(field).and_then(Value::as_object).into_iter().flatten();
        map.map(|(key, value)| (key.as_str(), value))
    }

    /// The amounts in a field, whose resources are looked at.
    fn amounts(&self, field: &str, errors: &mut Vec<FieldError>) -> Amounts<'a> {
        let path = self.path.child(field);
        self.map(field)
            .filter_map(|(resource, value)| {
                errors.extend(resource_errors(self.kind, resource, &path.key(resource)));
                Some((resource, Quantity::parse(value.as_str()?).ok()?))
            })
            .collect()
    }
}

fn resource_errors(kind: &str, resource: &str, path: &Path) -> Vec<FieldError> {
    let invalid = |detail: &str| FieldError::invalid(path, resource, detail);
    let wrong = names::qualified_name_errors(resource);
    let mut errors: Vec<FieldError> = wrong.iter().map(|detail| invalid(detail)).collect();
    let plain = !resource.contains('/');
    let huge = is_huge(resource);
    let standard = huge || resource.starts_with("requests.hugepages-") || RESOURCES.contains(&resource);
    if errors.is_empty() && plain && !standard {
        errors.push(invalid("must be a standard resource type or fully qualified"));
    }
    if matches!(kind, "Pod" | "Container") {
        if plain && !huge && !CONTAINER_RESOURCES.contains(&resource) {
            errors.push(invalid("must be a standard resource for containers"));
        } else if !is_native(resource)
            && (resource.starts_with("requests.")
                || !names::qualified_name_errors(&format!("requests.{resource}")).is_empty())
        {
            errors.push(invalid("doesn't follow extended resource name standard"));
        }
    }
    errors
}

fn is_huge(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// Whether Kubernetes itself knows the resource.
fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

fn may_overcommit(resource: &str) -> bool {
    is_native(resource) && !is_huge(resource)
}

#[cfg(test)]
mod tests {
    use karmada_meta::path::aggregate;
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_fit_together() {
        let of = |item: Value| aggregate(&limit_range(&json!({"spec": {"limits": [item]}})));
        let cases = [
            (
                json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}, "default": {"cpu": "1"},
                "defaultRequest": {"cpu": "500m"}, "maxLimitRequestRatio": {"cpu": "4"}}),
                "",
            ),
            (
                json!({"type": "Pod", "max": {"memory": "1Gi", "example.com/gpu": "1", "hugepages-2Mi": "4Mi"}}),
                "",
            ),
            (json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}), ""),
            (json!({"type": ""}), "[spec.limits[0].type: Invalid value: \"\": name part must be non-empty, "),
            (
                json!({"type": "Thing"}),
                "spec.limits[0].type: Invalid value: \"Thing\": must be a standard limit type or fully qualified",
            ),
            (
                json!({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}),
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            ),
            (
                json!({"type": "Container", "min": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}),
                "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
            ),
            (
                json!({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}),
                "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default limit value 1",
            ),
            (
                json!({"type": "Container", "default": {"cpu": "3"}, "max": {"cpu": "2"}}),
                "spec.limits[0].default[cpu]: Invalid value: \"2\": default value 3 is greater than max value 2",
            ),
            (
                json!({"type": "Container", "default": {"example.com/gpu": "2"}, "defaultRequest": {"example.com/gpu": "1"}}),
                "spec.limits[0].defaultRequest[example.com/gpu]: Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 in example.com/gpu",
            ),
            (
                json!({"type": "Pod", "default": {"cpu": "1"}}),
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
            ),
            (
                json!({"type": "PersistentVolumeClaim"}),
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
            ),
            (
                json!({"type": "Container", "max": {"pods": "1"}}),
                "spec.limits[0].max[pods]: Invalid value: \"pods\": must be a standard resource for containers",
            ),
            (
                json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
            ),
            (
                json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "3"}, "min": {"cpu": "1"}, "max": {"cpu": "2"}}),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
            ),
        ];
        for (item, want) in cases {
            let got = of(item.clone());
            assert!(if want.is_empty() { got == "[]" } else { got.starts_with(want) }, "{item}: {got}");
        }
        let twice = json!({"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}});
        assert_eq!(aggregate(&limit_range(&twice)), "spec.limits[1].type: Duplicate value: \"Pod\"");
    }
}
