//! Resident memory, of hub and agent.

use karmada_client::Rest;
use karmada_tests::{
    bench::{Report, median, report::mb, resident, until},
    samples,
};
use serde_json::{Value, json};

use crate::bed::Bed;

/// The hub, before and after a burst.
pub(crate) async fn hub(bed: &Bed, report: &mut Report) {
    let (mut idle, mut after) = (Vec::new(), Vec::new());
    for _ in 0..bed.args.runs {
        let fleet = bed.fleet(2).await;
        idle.push(resident(&fleet.hub));
        bed.burst(&fleet).await;
        bed.settle().await;
        after.push(resident(&fleet.hub));
    }
    report.add(
        format!(
            "control plane resident memory, idle / after the burst of {}, median of {}",
            bed.args.burst, bed.args.runs
        ),
        format!("{} / {}", mb(median(idle)), mb(median(after))),
        "≤ 40 / ≤ 80 MB",
        "758 / 1,130 MB",
    );
}

/// An agent with nothing to do, and with its share of objects on a member that has much else.
pub(crate) async fn agent(bed: &Bed, report: &mut Report) {
    let (mut idle, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..bed.args.runs {
        let fleet = bed.fleet(1).await;
        let member = &fleet.members[0];
        idle.push(resident(&member.agent));
        foreign_pods(&member.api, bed.args.pods).await;
        bed.burst(&fleet).await;
        bed.settle().await;
        busy.push(resident(&member.agent));
    }
    report.add(
        format!(
            "agent resident memory, idle / with {} objects beside {} foreign Pods, median of {}",
            bed.args.burst, bed.args.pods, bed.args.runs
        ),
        format!("{} / {}", mb(median(idle)), mb(median(busy))),
        "≤ 12 / ≤ 20 MB",
        "59 / 74 MB",
    );
}

/// Pods as somebody else runs them on a member; of the size that Pods have.
pub(crate) async fn foreign_pods(api: &Rest, count: usize) {
    api.post("/api/v1/namespaces", &samples::namespace("foreign")).await.expect("a namespace");
    let nodes = api.get("/api/v1/nodes").await.expect("nodes");
    let node = nodes.pointer("/items/0/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let env: Vec<Value> = (0..12)
        .map(|n| json!({ "name": format!("SETTING_{n}"), "value": format!("the value of {n}") }))
        .collect();
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:1.2.3"), "env": env,
            "ports": [{ "containerPort": 8080 }],
            "resources": { "requests": { "cpu": "1m", "memory": "1Mi" } },
            "readinessProbe": { "httpGet": { "path": "/ready", "port": 8080 } },
        })
    };
    let path = "/api/v1/namespaces/foreign/pods";
    for n in 0..count {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("foreign-{n}"), "labels": { "app": "foreign", "number": n.to_string() } },
            "spec": { "nodeName": node, "containers": [container("web"), container("sidecar")] },
        });
        api.post(path, &pod).await.expect("a Pod is created");
    }
    // The member gives them a status; that is over before anything is measured.
    until("the Pods to be there", || async {
        let list = api.get(path).await.unwrap_or_default();
        list["items"].as_array().map_or(0, Vec::len) >= count
    })
    .await;
}
