//! What FederatedHPAs cost a link on which nothing happens.

use std::time::Duration;

use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_tests::{
    bench::{Report, until_all},
    fleet::Fleet,
    kubesim::metrics,
    samples::{deployment, policy, selector, works_path},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bed::{Bed, names, post};

/// A link with FederatedHPAs beside one without.
pub(crate) async fn autoscaling(bed: &Bed, report: &mut Report) {
    let (hpas, clusters) = (bed.args.hpas, bed.args.clusters);
    let fleet = bed.fleet(clusters, hpas).await;
    let all: Vec<&str> = fleet.members.iter().map(|member| member.name.as_str()).collect();
    fleet.create([policy("all", selector("apps/v1", "Deployment", ""), &all)]).await;
    post(&fleet.api, (0..hpas).map(workload), &fleet.namespace).await;
    for member in &fleet.members {
        metrics::install(&member.api).await.expect("a member takes a definition");
        let pods = format!("/api/v1/namespaces/{}/pods", fleet.namespace);
        until_all("Pods", hpas, async || names(&member.api, &pods).await.len()).await;
        let list = member.api.get(&pods).await.expect("Pods are listed");
        let measured = list["items"].as_array().into_iter().flatten().map(uses);
        post(&member.api, measured, &fleet.namespace).await;
    }
    bed.settle().await;
    let without = rates(bed, &fleet).await;
    post(&fleet.api, (0..hpas).map(hpa), &fleet.namespace).await;
    for member in &fleet.members {
        let path = works_path(&member.name);
        until_all("answers", hpas, || answers(&fleet, &path)).await;
    }
    // Until nothing is new any more.
    bed.settle().await;
    sleep(Duration::from_secs(60)).await;
    let with = rates(bed, &fleet).await;
    report.add(
        format!(
            "{hpas} FederatedHPAs of workloads on {clusters} clusters: agent–hub bytes on the socket, idle over {} s, mean of all agents",
            bed.args.idle
        ),
        format!("{with:.1} B/s ({without:.1} before they were made)"),
        "≤ 60 B/s",
        "",
    );
}

/// Bytes a second of an agent's link, both ways.
async fn rates(bed: &Bed, fleet: &Fleet) -> f64 {
    let bytes =
        || fleet.members.iter().map(|member| member.link.bytes()).map(|(up, down)| up + down).sum::<u64>();
    let before = bytes();
    sleep(Duration::from_secs(bed.args.idle)).await;
    (bytes() - before) as f64 / bed.args.idle as f64 / fleet.members.len() as f64
}

fn name(n: usize) -> String {
    format!("app-{n:04}")
}

fn workload(n: usize) -> Value {
    let mut workload = deployment(&name(n), 1);
    workload["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1m"}});
    workload
}

/// What it uses is what it is to use.
fn hpa(n: usize) -> Value {
    json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA", "metadata": {"name": name(n)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name(n)},
            "minReplicas": 1, "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 100}}}],
        },
    })
}

/// What a Pod uses.
fn uses(pod: &Value) -> Value {
    let meta = &pod["metadata"];
    json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": meta["name"], "labels": meta["labels"]},
        "timestamp": Time::now(&Env::system()).to_string(), "window": "10s",
        "containers": [{"name": "nginx", "usage": {"cpu": "1m"}}],
    })
}

/// How many FederatedHPAs a cluster has answered.
async fn answers(fleet: &Fleet, works: &str) -> usize {
    let Ok(list) = fleet.api.get(works).await else { return 0 };
    let works = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let answered = |work: &&Value| {
        work["spec"]["workload"]["manifests"][0]["kind"] == "FederatedHPA"
            && work["status"]["manifestStatuses"].as_array().is_some_and(|all| !all.is_empty())
    };
    works.iter().filter(answered).count()
}
