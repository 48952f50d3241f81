//! Reading and building `coordination.k8s.io/v1` Leases, as JSON so that fields we do not know survive a PUT.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::rest::Resource;

/// The Lease kind.
pub fn resource() -> Resource {
    Resource::new("coordination.k8s.io", "v1", "leases", "Lease", true)
}

/// A time as Kubernetes' MicroTime: UTC with six decimals.
pub fn micro_time(time: SystemTime) -> String {
    let timestamp = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    timestamp.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// A time as Kubernetes' Time: UTC in whole seconds.
pub fn second_time(time: SystemTime) -> String {
    let timestamp = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn field<'a>(lease: &'a Value, name: &str) -> Option<&'a Value> {
    lease.get("spec")?.get(name).filter(|v| !v.is_null())
}

/// `spec.holderIdentity`; empty if nobody holds it.
pub fn holder(lease: &Value) -> &str {
    field(lease, "holderIdentity").and_then(Value::as_str).unwrap_or_default()
}

/// `spec.renewTime` as written.
pub fn renew_time(lease: &Value) -> &str {
    field(lease, "renewTime").and_then(Value::as_str).unwrap_or_default()
}

/// `spec.leaseDurationSeconds`.
pub fn duration(lease: &Value) -> Option<Duration> {
    field(lease, "leaseDurationSeconds").and_then(Value::as_u64).map(Duration::from_secs)
}

/// `spec.leaseTransitions`.
pub fn transitions(lease: &Value) -> u64 {
    field(lease, "leaseTransitions").and_then(Value::as_u64).unwrap_or(0)
}

/// An annotation of the Lease.
pub fn annotation<'a>(lease: &'a Value, key: &str) -> Option<&'a str> {
    lease.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Sets one field of the spec.
pub fn set_spec(lease: &mut Value, name: &str, value: Value) {
    entry(lease, "spec").insert(name.into(), value);
}

/// Sets an annotation.
pub fn set_annotation(lease: &mut Value, key: &str, value: &str) {
    let metadata = entry(lease, "metadata");
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(key.into(), value.into());
    }
}

/// A Lease that does not exist yet.
pub fn new(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {},
    })
}

fn entry<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let map = object.as_object_mut().expect("invariant: made an object just above");
    let entry = map.entry(name).or_insert_with(|| json!({}));
    if !entry.is_object() {
        *entry = json!({});
    }
    entry.as_object_mut().expect("invariant: made an object just above")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_api_servers_shape() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_170_972_886_356);
        assert_eq!(micro_time(time), "2026-11-20T10:36:12.886356Z");
        assert_eq!(second_time(time), "2026-11-20T10:36:12Z");
        assert_eq!(micro_time(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn odd_leases_are_read_and_mended() {
        for mut lease in
            [json!(null), json!({"spec": null}), json!({"spec": 3, "metadata": {"annotations": []}})]
        {
            assert_eq!((holder(&lease), renew_time(&lease), transitions(&lease)), ("", "", 0));
            set_spec(&mut lease, "holderIdentity", "me".into());
            set_annotation(&mut lease, "a", "b");
            assert_eq!((holder(&lease), annotation(&lease, "a")), ("me", Some("b")));
        }
    }
}
