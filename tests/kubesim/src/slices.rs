//! Pods' addresses and EndpointSlices of stand-ins, as kubelet and kube-controller-manager make them: for tests that are about
//! Services.
//!
//! A Service with a selector has one slice, also when nothing is behind it, and an endpoint for each Pod with an address.

use std::collections::BTreeMap;

use karmada_client::{Event, Patch, Rest, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_meta::object;
use serde_json::{Value, json};

/// Who makes slices.
const CONTROLLER: &str = "endpointslice-controller.k8s.io";

type Name = (String, String);

/// What there is.
#[derive(Debug, Default)]
struct Known {
    services: BTreeMap<Name, Value>,
    pods: BTreeMap<Name, Value>,
    slices: BTreeMap<Name, Value>,
}

fn name(value: &Value) -> Name {
    (object::namespace(value).to_owned(), object::name(value).to_owned())
}

/// Whether a Pod may be sent requests.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The endpoints of a Service.
fn endpoints(service: &Value, pods: &BTreeMap<Name, Value>) -> Vec<Value> {
    let selector = service["spec"]["selector"].as_object();
    let selects = |pod: &&Value| {
        object::namespace(pod) == object::namespace(service)
            && selector.into_iter().flatten().all(|(key, value)| object::label(pod, key) == value.as_str())
    };
    let endpoint = |pod: &Value| {
        let address = pod.pointer("/status/podIP")?.as_str()?;
        let going = object::deletion_timestamp(pod).is_some();
        Some(json!({
            "addresses": [address], "nodeName": pod["spec"]["nodeName"],
            "conditions": {"ready": is_ready(pod) && !going, "serving": is_ready(pod), "terminating": going},
            "targetRef": {"kind": "Pod", "name": object::name(pod), "namespace": object::namespace(pod)},
        }))
    };
    pods.values().filter(selects).filter_map(endpoint).collect()
}

/// The slice of a Service.
fn slice(service: &Value, pods: &BTreeMap<Name, Value>) -> Value {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let ports: Vec<Value> = ports
        .map(|port| {
            let target =
                port.get("targetPort").filter(|target| target.is_number()).unwrap_or_else(|| &port["port"]);
            let protocol = port.get("protocol").cloned().unwrap_or_else(|| json!("TCP"));
            json!({"name": port["name"].as_str().unwrap_or_default(), "port": target, "protocol": protocol})
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("{}-x7k2p", object::name(service)), "namespace": object::namespace(service),
            "labels": {
                "kubernetes.io/service-name": object::name(service),
                "endpointslice.kubernetes.io/managed-by": CONTROLLER,
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": object::name(service),
                "uid": object::uid(service), "controller": true}],
        },
        "endpoints": endpoints(service, pods), "ports": ports,
    })
}

/// Where a slice differs.
fn differs(known: &Value, wanted: &Value) -> bool {
    ["endpoints", "ports"].iter().any(|field| known[*field] != wanted[*field])
}

/// Runs until it is dropped. Pods get addresses `10.SUBNET.x.y`, no two the same.
pub async fn run(client: kube::Client, env: Env, subnet: u8) {
    let api = Rest::new(client.clone());
    let watch = |path: &str| {
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        Watcher::new(client.clone(), WatchConfig::new(path), env.clone(), parse)
    };
    let mut services = watch("/api/v1/services");
    let mut pods = watch("/api/v1/pods");
    let mut slices = watch("/apis/discovery.k8s.io/v1/endpointslices");
    let (mut known, mut given) = (Known::default(), 0_u16);
    // What was written last: a server may fill in what is not said, and that is no reason to write again.
    let mut written: BTreeMap<Name, Value> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            event = services.next() => take(&mut known.services, event),
            event = pods.next() => take(&mut known.pods, event),
            event = slices.next() => take(&mut known.slices, event),
        }
        let bare = known.pods.values().filter(|pod| {
            pod["status"]["podIP"].is_null() && is_ready(pod) && object::deletion_timestamp(pod).is_none()
        });
        for pod in bare.cloned().collect::<Vec<_>>() {
            given += 1;
            let address = format!("10.{subnet}.{}.{}", given / 250, given % 250 + 1);
            let (namespace, name) = name(&pod);
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
            // Gone meanwhile: the watch tells.
            if let Ok(pod) = api.patch(&path, Patch::Merge, &json!({"status": {"podIP": address}})).await {
                known.pods.insert((namespace, name), pod);
            }
        }
        for service in known.services.values().filter(|service| service["spec"]["selector"].is_object()) {
            let wanted = slice(service, &known.pods);
            let at = name(&wanted);
            let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", at.0);
            let answer = match known.slices.get(&at) {
                None => api.post(&path, &wanted).await,
                Some(_) if written.get(&at).is_none_or(|last| differs(last, &wanted)) => {
                    let change = json!({"endpoints": wanted["endpoints"], "ports": wanted["ports"]});
                    api.patch(&format!("{path}/{}", at.1), Patch::Merge, &change).await
                }
                Some(_) => continue,
            };
            if let Ok(slice) = answer {
                known.slices.insert(at.clone(), slice);
                written.insert(at, wanted);
            }
        }
    }
}

fn take(known: &mut BTreeMap<Name, Value>, event: Event<Value>) {
    match event {
        Event::Upsert(value) => drop(known.insert(name(&value), value)),
        Event::Delete(value) => drop(known.remove(&name(&value))),
        Event::Init => known.clear(),
        Event::Synced => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_pods_that_it_selects() {
        let pod = |name: &str, app: &str, ready: &str, address: Value| {
            let pod = json!({"metadata": {"name": name, "namespace": "demo", "labels": {"app": app}},
                "status": {"podIP": address, "conditions": [{"type": "Ready", "status": ready}]}});
            (super::name(&pod), pod)
        };
        let pods = BTreeMap::from([
            pod("a", "web", "True", json!("10.1.0.1")),
            pod("b", "web", "False", json!("10.1.0.2")),
            pod("c", "web", "True", Value::Null),
            pod("d", "api", "True", json!("10.1.0.4")),
        ]);
        let service = json!({"metadata": {"name": "web", "namespace": "demo"}, "spec": {"selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": 8080}]}});
        let slice = slice(&service, &pods);
        let ready: Vec<&Value> = slice["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|endpoint| &endpoint["conditions"]["ready"])
            .collect();
        assert_eq!(ready, [&json!(true), &json!(false)]);
        assert_eq!(slice["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
    }
}
