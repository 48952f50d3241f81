//! Which change of a Lease is a mere renewal. It need not be on disk before it is answered; who holds a Lease must be.

use serde_json::{Map, Value};

use crate::kinds::Kind;

/// Where Leases are stored.
pub(crate) const LEASES: &str = "coordination.k8s.io/leases";

/// Whether nothing but `spec.renewTime` is new, and the time at which its manager wrote it. Pure.
pub(super) fn is_renewal(kind: &Kind, old: &Value, new: &Value) -> bool {
    &*kind.storage == LEASES && renews(old, new)
}

fn renews(old: &Value, new: &Value) -> bool {
    let time = |lease: &Value| lease["spec"]["renewTime"].is_string();
    let managers = |lease: &Value| lease["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let (before, after) = (managers(old), managers(new));
    time(old)
        && time(new)
        && same_but(old, new, &["metadata", "spec"])
        && same_but(&old["spec"], &new["spec"], &["renewTime"])
        && same_but(&old["metadata"], &new["metadata"], &["managedFields", "resourceVersion"])
        && before.len() == after.len()
        && before.iter().zip(&after).all(|(before, after)| same_but(before, after, &["time"]))
}

/// Whether two maps differ in these members alone.
fn same_but(one: &Value, other: &Value, but: &[&str]) -> bool {
    fn others(map: &Map<String, Value>, but: &[&str]) -> usize {
        map.len() - but.iter().filter(|key| map.contains_key(**key)).count()
    }
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return false };
    let same = |(key, value): (&String, &Value)| but.contains(&key.as_str()) || other.get(key) == Some(value);
    others(one, but) == others(other, but) && one.iter().all(same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_time_may_differ() {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "annotations": {"instance": "x"},
                "managedFields": [{"manager": "agent", "time": "1", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
        });
        // What is set where, and whether that is a renewal; nothing: it goes.
        let cases = [
            ("/spec/renewTime", Some(json!("2026-01-01T00:00:10.000000Z")), true),
            ("/spec/renewTime", Some(Value::Null), false),
            ("/spec/renewTime", None, false),
            ("/metadata/resourceVersion", Some(json!("2")), true),
            ("/metadata/managedFields/0/time", Some(json!("2")), true),
            ("/metadata/managedFields/0/manager", Some(json!("other")), false),
            ("/metadata/managedFields/0/fieldsV1", Some(json!({})), false),
            ("/metadata/managedFields", None, false),
            ("/metadata/annotations/instance", Some(json!("y")), false),
            ("/metadata/annotations/more", Some(json!("y")), false),
            ("/metadata/annotations", None, false),
            ("/metadata/labels", Some(json!({})), false),
            ("/spec/holderIdentity", Some(json!("b")), false),
            ("/spec/holderIdentity", None, false),
            ("/spec/leaseTransitions", Some(json!(1)), false),
            ("/spec/leaseDurationSeconds", Some(json!(41)), false),
            ("/status", Some(json!({})), false),
        ];
        for (path, value, want) in cases {
            let mut new = lease.clone();
            let (parent, key) = path.rsplit_once('/').unwrap();
            let parent = new.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            match value {
                Some(value) => parent.insert(key.to_owned(), value),
                None => parent.remove(key),
            };
            assert_eq!(renews(&lease, &new), want, "{path}");
        }
    }
}
