//! A hub beside real agents: its memory, what it writes, and one Deployment on all clusters.

use std::time::Duration;

use karmada_tests::{
    bench::{
        Report, computed, now,
        report::{mb, seconds},
        resident, until, written,
    },
    fleet::{Fleet, Options},
    samples::{self, selector},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::Bed;

/// A fleet of each size.
pub(crate) async fn everywhere(bed: &Bed, report: &mut Report) {
    for &agents in &bed.args.agents {
        let options = Options { direct: true, ..Options::default() };
        let fleet = Fleet::start("fleet", agents, &bed.binaries, options).await;
        let fleet = fleet.expect("stand-ins are never too few");
        eprintln!("  {agents} agents are ready");
        at_rest(bed, &fleet, agents, report).await;
        one_deployment(&fleet, agents, report).await;
    }
}

async fn at_rest(bed: &Bed, fleet: &Fleet, agents: usize, report: &mut Report) {
    bed.settle().await;
    let pid = fleet.hub.pid().expect("the hub runs").to_string();
    let (start, bytes, before) = (now(), written(&pid), computed(&pid));
    sleep(Duration::from_secs(bed.args.span)).await;
    let took = start.elapsed().as_secs_f64();
    report.add(
        format!("resident memory of the hub with {agents} idle agents"),
        mb(resident(&fleet.hub)),
        if agents <= 150 { "≤ 60 MB" } else { "≤ 90 MB" },
        "",
    );
    report.add(
        format!("disk writes of the hub with {agents} idle agents"),
        format!(
            "{:.1} KB/s ({:.1} % of a core)",
            (written(&pid) - bytes) as f64 / 1e3 / took,
            (computed(&pid) - before) / took * 100.0
        ),
        if agents <= 150 { "≤ 20 KB/s" } else { "" },
        "",
    );
}

async fn one_deployment(fleet: &Fleet, agents: usize, report: &mut Report) {
    fleet.create_namespace().await;
    let clusters: Vec<&str> = fleet.members.iter().map(|member| member.name.as_str()).collect();
    fleet.create([samples::policy("all", selector("apps/v1", "Deployment", ""), &clusters)]).await;
    // The namespace is there everywhere before the clock starts.
    let last = fleet.members.last().expect("there are members");
    let namespace = format!("/api/v1/namespaces/{}", fleet.namespace);
    until("the namespace to be on the last member", || async { last.api.get(&namespace).await.is_ok() })
        .await;
    sleep(Duration::from_secs(5)).await;
    let pid = fleet.hub.pid().expect("the hub runs").to_string();
    let (start, before) = (now(), computed(&pid));
    fleet.create([samples::deployment("web", 1)]).await;
    let path = samples::deployment_path(&fleet.namespace, "web");
    let wanted = agents as u64;
    let status = async |field: &str| {
        let template = fleet.api.get(&path).await.expect("the template");
        template.pointer(&format!("/status/{field}")).and_then(Value::as_u64).unwrap_or_default()
    };
    until("all to be ready", || async { status("readyReplicas").await >= wanted }).await;
    report.add(
        format!("one Deployment on {agents} clusters with their agents: until all are ready in the template"),
        format!("{} ({:.1} s computed by the hub)", seconds(start.elapsed()), computed(&pid) - before),
        match agents {
            0..=150 => "≤ 2 s",
            151..=300 => "≤ 4 s",
            _ => "≤ 8 s",
        },
        "",
    );
}
