//! Node ports are given out once each, and are free again when their Service goes, however it does.

use std::collections::BTreeSet;

use karmada_apiserver::limits::Limits;
use karmada_store::engine::memory::Memory;
use serde_json::{Value, json};

use crate::Server;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, kind: &str, ports: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
}

fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service["spec"]["ports"].as_array().unwrap();
    ports.iter().map(|port| port["nodePort"].as_i64().unwrap_or_default()).collect()
}

/// A range of four.
fn narrow() -> Limits {
    Limits { node_ports: "31000-31003".parse().unwrap(), ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn services_that_are_open_to_nodes_get_ports_of_their_own() {
    let server = Server::start().await;
    let mut seen = BTreeSet::new();
    for (name, kind) in [("a", "NodePort"), ("b", "LoadBalancer"), ("c", "NodePort")] {
        let ports = json!([{"name": "web", "port": 80}, {"name": "tls", "port": 443}]);
        let made = server.call("POST", SERVICES, service(name, kind, ports)).await;
        assert_eq!(made.code, 201, "{made:?}");
        // Whoever made it does not own what it was given.
        let owned = made.body["metadata"]["managedFields"].to_string();
        assert!(!owned.contains("nodePort"), "{owned}");
        seen.extend(node_ports(&made.body));
    }
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|port| (30_086..=32_767).contains(port)), "{seen:?}");
    let plain = server.call("POST", SERVICES, service("plain", "ClusterIP", json!([{"port": 80}]))).await;
    assert_eq!(node_ports(&plain.body), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_port_has_one_service_and_a_refusal_names_the_field() {
    let server = Server::start().await;
    let with = |name: &str, port: i64| service(name, "NodePort", json!([{"port": 80, "nodePort": port}]));
    assert_eq!(server.call("POST", SERVICES, with("a", 30_080)).await.code, 201);
    for (body, says) in [
        (
            with("b", 30_080),
            "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated",
        ),
        (
            with("b", 80),
            "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
    ] {
        let refused = server.call("POST", SERVICES, body).await;
        assert_eq!((refused.code, refused.body["message"].as_str()), (422, Some(says)));
    }
    // A dry run takes nothing, and neither does what was refused for something else.
    let tried = server.call("POST", &format!("{SERVICES}?dryRun=All"), with("b", 30_081)).await;
    assert_eq!(tried.code, 201);
    let mut bad = with("b", 30_081);
    bad["spec"]["sessionAffinity"] = "Odd".into();
    assert_eq!(server.call("POST", SERVICES, bad).await.code, 422);
    assert_eq!(server.call("POST", SERVICES, with("b", 30_081)).await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn a_service_keeps_its_ports_until_it_no_longer_has_them() {
    let memory = Memory::new();
    let server = Server::over(memory.clone(), narrow()).await;
    let made = server.call("POST", SERVICES, service("a", "NodePort", json!([{"port": 80}]))).await;
    let own = node_ports(&made.body);
    let at = format!("{SERVICES}/a");
    // An update that does not know of them, and one that asks for one more.
    let same = server.call("PUT", &at, service("a", "NodePort", json!([{"port": 80}]))).await;
    assert_eq!((same.code, node_ports(&same.body)), (200, own.clone()), "{same:?}");
    let more = server
        .patch(
            &at,
            "merge",
            json!({"spec": {"ports": [
        {"name": "", "port": 80, "nodePort": own[0]}, {"name": "tls", "port": 443}]}}),
        )
        .await;
    assert_eq!(more.code, 422, "{more:?}");
    let ports = json!([{"name": "web", "port": 80, "nodePort": own[0]}, {"name": "tls", "port": 443}]);
    let more = server.patch(&at, "merge", json!({"spec": {"ports": ports}})).await;
    assert_eq!((more.code, node_ports(&more.body)[0]), (200, own[0]), "{more:?}");
    // The server knows after a start, too.
    server.shutdown.cancel();
    let server = Server::over(memory, narrow()).await;
    let three = json!([{"name": "x", "port": 1}, {"name": "y", "port": 2}, {"name": "z", "port": 3}]);
    let full = server.call("POST", SERVICES, service("b", "NodePort", three.clone())).await;
    assert_eq!(full.code, 500);
    assert!(full.body["message"].as_str().unwrap().ends_with("failed to allocate a nodePort: range is full"));
    // Closed, it gives them back.
    let closed = server.patch(&at, "merge", json!({"spec": {"type": "ClusterIP"}})).await;
    assert_eq!((closed.code, node_ports(&closed.body)), (200, vec![0, 0]), "{closed:?}");
    assert_eq!(closed.body["spec"].get("externalTrafficPolicy"), None);
    assert_eq!(server.call("POST", SERVICES, service("b", "NodePort", three.clone())).await.code, 201);
    // And gone with its namespace.
    server.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let there = "/api/v1/namespaces/n/services";
    assert_eq!(server.call("POST", there, service("c", "NodePort", json!([{"port": 1}]))).await.code, 201);
    assert_eq!(server.call("DELETE", "/api/v1/namespaces/n", Value::Null).await.code, 200);
    server.until("/api/v1/namespaces/n", |answer| answer.code == 404).await;
    assert_eq!(server.call("POST", SERVICES, service("d", "NodePort", json!([{"port": 1}]))).await.code, 201);
    assert_eq!(server.call("DELETE", &format!("{SERVICES}/b"), Value::Null).await.code, 200);
    assert_eq!(server.call("POST", SERVICES, service("e", "NodePort", three)).await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn many_at_once_never_get_the_same() {
    let limits = Limits { node_ports: "31000-31049".parse().unwrap(), ..Limits::default() };
    let server = Server::limited(limits).await;
    let names: Vec<String> = (0..50).map(|n| format!("s{n}")).collect();
    let make =
        |name: &String| server.call("POST", SERVICES, service(name, "NodePort", json!([{"port": 80}])));
    let made = futures::future::join_all(names.iter().map(make)).await;
    let given: BTreeSet<i64> = made.iter().flat_map(|made| node_ports(&made.body)).collect();
    assert_eq!(given, (31_000..=31_049).collect());
}
