//! Agents of earlier versions: what they asked their hub is asked again of this one. A recording of this version is made by
//! `RECORD_AGENT=1 cargo test -p karmada-tests --test in_process skew`.

use std::{fs, time::Duration};

use karmada_api::consts::subject;
use karmada_apiserver::authn::UserInfo;
use karmada_core::{
    names,
    upgrade::{Version, with_hub},
};
use karmada_tests::{
    inprocess::{PATIENCE, World},
    samples::{deployment, deployment_policy, policy_path, works_path},
    skew::{Line, Recorder, folder},
};
use serde_json::{Value, json};

use crate::deployment_path;

pub(crate) const CLUSTER: &str = "shop-17";
const OURS: &str = env!("CARGO_PKG_VERSION");

/// What happens on the hub, in this order.
const MARKS: [&str; 3] = ["placed", "changed", "gone"];

/// How many replicas there are from a mark on.
pub(crate) fn replicas(mark: &str) -> i64 {
    match mark {
        "placed" => 1,
        "changed" => 3,
        "reconnected" => 5,
        "restarted" => 4,
        other => panic!("{other:?} stands for nothing"),
    }
}

/// Does what a mark stands for, and waits until the cluster's Works say so.
pub(crate) async fn happens(world: &World, mark: &str) {
    match mark {
        "placed" => world.create([deployment("web", 1), deployment_policy("web", &[CLUSTER])]).await,
        "gone" => {
            let policy = policy_path(World::NAMESPACE, "propagationpolicies", "web");
            world.api().delete(&policy, &json!({})).await.unwrap();
            world.api().delete(&deployment_path("web"), &json!({})).await.unwrap();
        }
        mark => {
            let scale = json!({"spec": {"replicas": replicas(mark)}});
            world.api().patch(&deployment_path("web"), karmada_client::Patch::Merge, &scale).await.unwrap();
        }
    }
    let is = |works: &Value| {
        let all = works["items"].as_array().cloned().unwrap_or_default();
        let webs = all.iter().filter(|work| {
            work.pointer("/spec/workload/manifests/0/kind").is_some_and(|kind| kind == "Deployment")
        });
        let mut webs = webs.peekable();
        match mark {
            "placed" => webs.peek().is_some(),
            // Its agent has the last word about that.
            "gone" => webs.all(|work| work["metadata"]["deletionTimestamp"].is_string()),
            mark => webs
                .any(|work| work["spec"]["workload"]["manifests"][0]["spec"]["replicas"] == replicas(mark)),
        }
    };
    world.hub_until(&works_path(CLUSTER), mark, PATIENCE, is).await;
}

/// An agent's life, as it asks for it.
async fn recorded() -> Vec<Line> {
    let mut world = World::start(970, 0).await;
    let recorder = Recorder::default();
    let listener = recorder.clone();
    world.instead = Some(Box::new(move |hub, _| listener.listen(&hub)));
    world.join(CLUSTER).await;
    world.ready(CLUSTER, PATIENCE).await;
    for mark in MARKS {
        recorder.mark(mark);
        happens(&world, mark).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    world.stop_agent(0).await;
    world.stop().await;
    recorder.lines()
}

/// Asks a hub of this version what an agent has asked; what was refused.
async fn replayed(lines: &[Line]) -> Vec<String> {
    let world = World::start(971, 0).await;
    let agent = world.api_as(UserInfo::new(names::agent_user(CLUSTER), [subject::AGENTS]));
    let mut refused = Vec::new();
    for line in lines {
        match line {
            Line::Mark(mark) => happens(&world, mark).await,
            Line::Asked(asked) => {
                let (code, why) = asked.ask(&agent).await;
                if code >= 400 {
                    refused.push(format!("{} {}: {code} {why}", asked.method, asked.path));
                }
                // The hub has to do its part in between: the namespace of a cluster's Works, for instance.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    world.stop().await;
    refused
}

#[tokio::test(start_paused = true)]
async fn what_this_version_asks_is_recorded_and_taken_again() {
    let lines = recorded().await;
    let asked = |method: &str, path: &str| {
        lines.iter().any(
            |line| matches!(line, Line::Asked(asked) if asked.method == method && asked.path.contains(path)),
        )
    };
    for (method, path) in [
        ("POST", "/clusters"),
        ("PUT", "/clusters/shop-17/status"),
        ("PATCH", "/karmada/renewals/shop-17"),
        ("GET", "/works"),
        ("POST", "/leases"),
    ] {
        assert!(asked(method, path), "{method} {path} is not in the recording of {} lines", lines.len());
    }
    if std::env::var_os("RECORD_AGENT").is_some() {
        let text: String =
            lines.iter().map(|line| format!("{}\n", serde_json::to_string(line).unwrap())).collect();
        fs::create_dir_all(folder()).unwrap();
        fs::write(folder().join(format!("agent-{OURS}.jsonl")), text).unwrap();
    }
    assert_eq!(replayed(&lines).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn agents_of_two_minor_versions_back_are_understood() {
    let ours: Version = OURS.parse().unwrap();
    let mut seen = 0;
    for file in fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let Some(version) = name.strip_prefix("agent-") else { continue };
        let version: Version = version.parse().unwrap();
        if with_hub(&version, &ours).is_some() {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() > 10, "{name} is no recording of an agent's life");
        assert_eq!(replayed(&lines).await, Vec::<String>::new(), "an agent of {version}");
        seen += 1;
    }
    assert!(seen > 0, "there is no recording of a version that this hub supports");
}
