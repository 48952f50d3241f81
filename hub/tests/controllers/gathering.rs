//! What many clusters report of one object: it costs by the report, not by the square.

use http::Method;
use karmada_objects::kinds::{PROPAGATION_POLICIES, RESOURCE_BINDINGS};
use serde_json::{Value, json};

use crate::common::{World, condition, deployment, deployments, policy};

#[tokio::test(start_paused = true)]
async fn reports_are_gathered_and_nobody_reads_a_work() {
    const CLUSTERS: usize = 40;
    let world = World::start().await;
    let mut members = Vec::new();
    for n in 0..CLUSTERS {
        members.push(world.join(&format!("m{n:02}"), json!({})).await);
    }
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", json!({}))).await;
    world.create(&deployments(), deployment("web", 1)).await;
    for member in &members {
        world.until("its Work", || member.work("Deployment", "web")).await;
    }
    world.settle().await;
    world.asked.forget();
    for member in &members {
        assert_eq!(member.act().await, 1);
    }
    let ready = |d: &Value| d["status"]["readyReplicas"] == CLUSTERS;
    world.becomes("ready everywhere", &deployments(), "default", "web", ready).await;
    let applied = |b: &Value| condition(b, "FullyApplied")["status"] == "True";
    world.becomes("applied everywhere", &RESOURCE_BINDINGS, "default", "web-deployment", applied).await;
    world.settle().await;
    assert_eq!(world.asked.count(&Method::GET, &["/works/"]), 0, "the index has what Works say");
    let writes = [["/resourcebindings/", "/status"], ["/deployments/", "/status"]];
    let writes = writes.map(|parts| world.asked.count(&Method::PUT, &parts));
    assert!(writes.iter().all(|writes| (2..=6).contains(writes)), "{writes:?} for {CLUSTERS} reports");
    world.stop().await;
}
