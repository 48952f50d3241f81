//! The Service by which an imported one is used.

use karmada_meta::{names, object};
use serde_json::{Map, Value, json};

use super::{MULTICLUSTER, SERVICE_IMPORT};

/// What the names of derived Services begin with.
pub const DERIVED: &str = "derived-";

/// The name of the Service of an import.
pub fn derived_name(import: &str) -> String {
    format!("{DERIVED}{import}")
}

/// The Service of an import, as it should be. `existing` is the Service of that name, whose addresses are kept. It belongs to the
/// import, so that it goes with it also while no hub is there.
///
/// # Errors
/// Why there can be none.
pub fn derived(import: &Value, existing: Option<&Value>) -> Result<Value, String> {
    let name = derived_name(object::name(import));
    if let Err(why) = names::dns1035_label(&name) {
        return Err(format!("a Service cannot have the name {name:?}: {why}"));
    }
    if let Some(existing) = existing.filter(|existing| !may_be_taken(existing)) {
        return Err(format!(
            "Service {} is there and is somebody else's: give it another name, or delete it",
            object::key(existing)
        ));
    }
    let mut service = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": object::namespace(import)},
            "spec": {"type": "ClusterIP"},
        })
    });
    let owner = json!([{
        "apiVersion": object::api_version(import), "kind": SERVICE_IMPORT, "name": object::name(import),
        "uid": object::uid(import), "controller": true, "blockOwnerDeletion": false,
    }]);
    object::set_meta(&mut service, "ownerReferences", owner);
    let headless = import["spec"]["type"] == "Headless";
    let before = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let ports = import["spec"]["ports"].as_array().into_iter().flatten();
    let ports: Vec<Value> = ports.map(|port| self::port(port, &before)).collect();
    let spec = object::ensure_map(&mut service, "spec");
    spec.insert("type".into(), json!("ClusterIP"));
    spec.insert("ports".into(), json!(ports));
    if headless {
        spec.insert("clusterIP".into(), json!("None"));
    }
    for field in ["sessionAffinity", "sessionAffinityConfig"] {
        match &import["spec"][field] {
            Value::Null if field == "sessionAffinity" && spec.contains_key(field) => {
                spec.insert(field.into(), json!("None"));
            }
            Value::Null => drop(spec.shift_remove(field)),
            value => drop(spec.insert(field.into(), value.clone())),
        }
    }
    Ok(service)
}

/// Whether a Service is there for an import, and goes with it.
pub fn is_of_an_import(service: &Value) -> bool {
    may_be_taken(service) && !object::owner_references(service).is_empty()
}

/// Whether a derived Service has to be made anew: one with an address has it for good, and so has one without.
pub fn is_of_another_type(import: &Value, existing: &Value) -> bool {
    let headless = existing["spec"]["clusterIP"] == "None";
    may_be_taken(existing) && headless != (import["spec"]["type"] == "Headless")
}

/// Who selects Pods is a Service of its own, and who belongs to something else is that one's. Karmada's have neither.
fn may_be_taken(service: &Value) -> bool {
    let selects = service["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    let owners = object::owner_references(service);
    let ours = owners.iter().all(|owner| {
        owner.kind == SERVICE_IMPORT && owner.api_version.split('/').next() == Some(MULTICLUSTER)
    });
    !selects && ours
}

/// A port, with what a server has filled in of it.
fn port(port: &Value, before: &[Value]) -> Value {
    let same = |known: &&Value| known["port"] == port["port"] && known["name"] == port["name"];
    let known = before.iter().find(same).and_then(Value::as_object).cloned();
    let mut made: Map<String, Value> = known.unwrap_or_default();
    for field in ["name", "protocol", "port", "appProtocol"] {
        match &port[field] {
            Value::Null if field == "protocol" => {}
            Value::Null => drop(made.shift_remove(field)),
            value => drop(made.insert(field.into(), value.clone())),
        }
    }
    Value::Object(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(spec: Value) -> Value {
        json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
            "metadata": {"name": "web", "namespace": "demo", "uid": "u"}, "spec": spec})
    }

    #[test]
    fn a_derived_service_is_karmadas_and_goes_with_its_import() {
        let import = import(
            json!({"type": "ClusterSetIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}),
        );
        let made = derived(&import, None).unwrap();
        assert_eq!(made["metadata"]["name"], "derived-web");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(
            made["spec"],
            json!({"type": "ClusterIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]})
        );
        // As a server has it.
        let mut live = made;
        live["spec"] = json!({"type": "ClusterIP", "clusterIP": "10.96.221.156", "sessionAffinity": "None",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80}]});
        assert_eq!(derived(&import, Some(&live)).unwrap(), live, "nothing to write");
        let other = self::import(json!({"type": "ClusterSetIP", "sessionAffinity": "ClientIP",
            "ports": [{"name": "http", "port": 81, "protocol": "TCP", "appProtocol": "h2c"}]}));
        let spec = derived(&other, Some(&live)).unwrap()["spec"].take();
        assert_eq!(
            spec,
            json!({"type": "ClusterIP", "clusterIP": "10.96.221.156", "sessionAffinity": "ClientIP",
            "ports": [{"name": "http", "protocol": "TCP", "port": 81, "appProtocol": "h2c"}]})
        );
        let headless = self::import(json!({"type": "Headless", "ports": []}));
        assert!(is_of_another_type(&headless, &live) && !is_of_another_type(&import, &live));
        assert_eq!(derived(&headless, None).unwrap()["spec"]["clusterIP"], "None");
    }

    #[test]
    fn what_is_somebody_elses_stays() {
        let import = import(json!({"type": "ClusterSetIP", "ports": []}));
        let service = |owners: Value, selector: Value| {
            json!({"metadata": {"name": "derived-web", "namespace": "demo", "ownerReferences": owners},
                "spec": {"selector": selector}})
        };
        let owner =
            |api: &str, kind: &str| json!([{"apiVersion": api, "kind": kind, "name": "web", "uid": "old"}]);
        let rows = [
            (service(json!([]), Value::Null), true, "Karmada's own"),
            (
                service(owner("multicluster.x-k8s.io/v1alpha1", "ServiceImport"), json!({})),
                true,
                "of an import of before",
            ),
            (service(json!([]), json!({"app": "web"})), false, "a user's"),
            (service(owner("apps/v1", "Deployment"), Value::Null), false, "of something else"),
        ];
        for (service, taken, what) in rows {
            assert_eq!(derived(&import, Some(&service)).is_ok(), taken, "{what}");
        }
        let mut long = import;
        long["metadata"]["name"] = json!("a".repeat(56));
        assert!(derived(&long, None).unwrap_err().contains("cannot have the name"));
    }
}
