//! The main stories on real processes: a hub, members, agents. Members are stand-ins, or real clusters where
//! `KARMADA_TEST_MEMBERS` names some; no test here can tell, but the one that needs a network between their Pods.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

use std::{path::Path, time::Duration};

use karmada_client::{Patch, Rest};
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, cluster_path, condition},
    link::Mode,
    process::Process,
    samples::{
        self, article, binding_path, config_map, config_map_path, config_map_policy, deployment_path,
        deployment_policy, policy_path, selector, works_path,
    },
    wait::{END, PATIENCE, SOON, eventually, gone, throughout, until},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

async fn fleet(test: &str, members: usize) -> Option<Fleet> {
    fleet_with(test, members, Options::default()).await
}

async fn fleet_with(test: &str, members: usize, options: Options) -> Option<Fleet> {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let fleet = Fleet::start(test, members, &binaries, options).await?;
    fleet.create_namespace().await;
    Some(fleet)
}

fn names(fleet: &Fleet) -> Vec<&str> {
    fleet.members.iter().map(|m| m.name.as_str()).collect()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("every stored object has a uid").to_owned()
}

async fn table(api: &Rest, path: &str) -> Vec<Vec<Value>> {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = api.get_bytes(path, accept).await.expect("a table");
    let table: Value = serde_json::from_slice(&table).expect("JSON");
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row["cells"].as_array().cloned().unwrap_or_default()).collect()
}

/// What `kubectl rollout status` waits for, for so many replicas over all clusters.
fn rolled_out(replicas: i64) -> impl Fn(&Value) -> bool {
    move |o| {
        let status = &o["status"];
        status["observedGeneration"] == o["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
                .iter()
                .all(|field| status[field].as_i64().unwrap_or(0) == replicas)
    }
}

async fn value_is(api: &Rest, path: &str, value: &str, limit: Duration) -> Value {
    until(api, path, &format!("of value {value}"), limit, |o| o["data"]["key"] == value).await
}

async fn set_value(api: &Rest, path: &str, value: &str) {
    api.patch(path, Patch::Merge, &json!({ "data": { "key": value } }))
        .await
        .expect("a ConfigMap is patched");
}

/// Deletes the test's namespace on the hub, sees it gone everywhere, and cleans up.
async fn finish(fleet: Fleet) {
    let path = format!("/api/v1/namespaces/{}", fleet.namespace);
    fleet.api.delete(&path, &json!({})).await.expect("the namespace is deleted");
    gone(&fleet.api, &path, PATIENCE).await;
    for member in &fleet.members {
        gone(&member.api, &path, PATIENCE).await;
    }
    fleet.clean_up().await;
}

#[tokio::test]
async fn the_article() {
    let Some(fleet) = fleet("article", 2).await else { return };
    let members = names(&fleet);
    fleet.create(article([members[0], members[1]])).await;
    let path = deployment_path(&fleet.namespace, "nginx");
    let template = until(&fleet.api, &path, "rolled out", PATIENCE, rolled_out(3)).await;
    assert_eq!(template["spec"]["replicas"], 1);
    assert_eq!(table(&fleet.api, &path).await[0][..4], [json!("nginx"), json!("3/1"), json!(3), json!(3)]);
    for (member, replicas) in fleet.members.iter().zip([1, 2]) {
        let object = member.api.get(&path).await.expect("it is on the member");
        assert_eq!(object["spec"]["replicas"], replicas, "{}", member.name);
        let works = fleet.api.get(&works_path(&member.name)).await.expect("Works");
        let work =
            works["items"].as_array().unwrap().iter().find(|w| w.to_string().contains("\"Deployment\""));
        assert_eq!(condition(work.expect("a Work of the Deployment"), "Applied"), Some("True"));
    }
    let binding = binding_path(&fleet.namespace, "nginx-deployment");
    until(&fleet.api, &binding, "fully applied", PATIENCE, |b| condition(b, "FullyApplied") == Some("True"))
        .await;

    let got = std::process::Command::new(env!("CARGO_BIN_EXE_fleet"))
        .args(["karmada-hub", "get", "deploy", "nginx", "-n", &fleet.namespace, "--kubeconfig"])
        .arg(&fleet.kubeconfig)
        .output()
        .expect("karmada-hub get runs");
    let text = String::from_utf8_lossy(&got.stdout);
    assert!(got.status.success() && text.contains("3/1"), "{text}{}", String::from_utf8_lossy(&got.stderr));

    // A new version rolls out, and the template says when it has.
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": "nginx:stable" }] } } } });
    fleet.api.patch(&path, Patch::Strategic, &image).await.expect("a new image");
    let rolled = until(&fleet.api, &path, "rolled out again", PATIENCE, rolled_out(3)).await;
    assert_eq!(rolled["metadata"]["generation"], template["metadata"]["generation"].as_i64().unwrap() + 1);
    for member in &fleet.members {
        let object = member.api.get(&path).await.unwrap();
        assert_eq!(object.pointer("/spec/template/spec/containers/0/image"), Some(&json!("nginx:stable")));
    }

    fleet.api.delete(&path, &json!({})).await.expect("the template is deleted");
    for member in &fleet.members {
        gone(&member.api, &path, PATIENCE).await;
    }
    gone(&fleet.api, &binding, PATIENCE).await;
    finish(fleet).await;
}

/// Policies in full: division by the room that agents report, and why there is none; anew on request; a policy that
/// takes the object from another.
#[tokio::test]
async fn replicas_follow_room_requests_and_policies() {
    let Some(fleet) = fleet("room", 2).await else { return };
    let members = names(&fleet);
    let path = deployment_path(&fleet.namespace, "web");
    let divided = |preference: Value| json!({ "replicaScheduling": preference });
    let mut web = samples::deployment("web", 3);
    let requests = json!({ "requests": { "cpu": "10m" } });
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = requests;
    let mut policy = deployment_policy("web", &members);
    policy["spec"]["placement"]["replicaScheduling"] =
        json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated" });
    fleet.create([web, policy]).await;
    let binding = binding_path(&fleet.namespace, "web-deployment");
    let placed = until(&fleet.api, &binding, "on one cluster", PATIENCE, |b| {
        b["spec"]["clusters"].as_array().is_some_and(|clusters| clusters.len() == 1)
    })
    .await;
    assert_eq!(placed["spec"]["clusters"][0]["replicas"], 3);
    until(&fleet.api, &path, "rolled out", PATIENCE, rolled_out(3)).await;

    // More than all members together have places for.
    let scale = |replicas: i64| json!({ "spec": { "replicas": replicas } });
    fleet.api.patch(&path, Patch::Merge, &scale(1_000_000)).await.expect("scaled");
    let waiting = until(&fleet.api, &binding, "unschedulable", PATIENCE, |b| {
        samples::condition_of(b, "Scheduled").is_some_and(|c| c["reason"] == "Unschedulable")
    })
    .await;
    let message =
        samples::condition_of(&waiting, "Scheduled").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("are not enough to schedule. 1000000 are wanted, 3 are placed: "), "{message}");
    fleet.api.patch(&path, Patch::Merge, &scale(4)).await.expect("scaled");
    until(&fleet.api, &path, "rolled out", PATIENCE, rolled_out(4)).await;

    // Another way of dividing leaves what runs; a wish divides it anew.
    let dynamic = json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                          "weightPreference": { "dynamicWeight": "AvailableReplicas" } });
    let policies = policy_path(&fleet.namespace, "propagationpolicies", "web");
    let placement = json!({ "spec": { "placement": divided(dynamic) } });
    fleet.api.patch(&policies, Patch::Merge, &placement).await.expect("the policy changes");
    until(&fleet.api, &binding, "scheduled by it", PATIENCE, |b| {
        let applied = b["metadata"]["annotations"]["policy.karmada.io/applied-placement"].as_str();
        applied.is_some_and(|applied| applied.contains("AvailableReplicas"))
            && b["status"]["schedulerObservedGeneration"] == b["metadata"]["generation"]
    })
    .await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let wish = json!({
        "apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer",
        "metadata": { "name": fleet.namespace },
        "spec": { "ttlSecondsAfterFinished": 0, "workloads": [
            { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": fleet.namespace, "name": "web" }] },
    });
    let wishes = "/apis/apps.karmada.io/v1alpha1/workloadrebalancers";
    fleet.api.post(wishes, &wish).await.expect("a wish");
    for member in &fleet.members {
        until(&member.api, &path, "of 2 replicas", PATIENCE, |o| o["spec"]["replicas"] == 2).await;
    }
    gone(&fleet.api, &format!("{wishes}/{}", fleet.namespace), PATIENCE).await;

    // A policy of a higher priority takes the object, and its members with it.
    let mut urgent = deployment_policy("urgent", &members[..1]);
    urgent["spec"]["preemption"] = json!("Always");
    urgent["spec"]["priority"] = json!(10);
    urgent["spec"]["resourceSelectors"] = json!([selector("apps/v1", "Deployment", "web")]);
    fleet.create([urgent]).await;
    until(&fleet.members[0].api, &path, "of 4 replicas", PATIENCE, |o| o["spec"]["replicas"] == 4).await;
    gone(&fleet.members[1].api, &path, PATIENCE).await;
    finish(fleet).await;
}

#[tokio::test]
async fn karmadas_own_sample() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/karmada/samples/nginx");
    if !folder.is_dir() {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    }
    let Some(fleet) = fleet("sample", 2).await else { return };
    for file in ["deployment.yaml", "propagationpolicy.yaml", "overridepolicy.yaml"] {
        let mut text = std::fs::read_to_string(folder.join(file)).expect("a sample is read");
        for (theirs, ours) in [("member1", &fleet.members[0].name), ("member2", &fleet.members[1].name)] {
            text = text.replace(theirs, ours);
        }
        fleet.create([serde_saphyr::from_str::<Value>(&text).expect("YAML")]).await;
    }
    let path = deployment_path(&fleet.namespace, "nginx");
    until(&fleet.api, &path, "rolled out", PATIENCE, rolled_out(2)).await;
    assert_eq!(table(&fleet.api, &path).await[0][1], "2/2");
    let labels = |o: &Value| o["metadata"]["labels"].clone();
    let [first, second] = &fleet.members[..] else { panic!("two members") };
    let annotated = |o: &Value| o["metadata"]["annotations"]["env"] == "skoala-stage";
    let object = until(&first.api, &path, "annotated", PATIENCE, annotated).await;
    assert_eq!(object["spec"]["replicas"], 1);
    assert!(labels(&object).get("env").is_none());
    let object = until(&second.api, &path, "labelled", PATIENCE, |o| labels(o)["env"] == "skoala-dev").await;
    assert_eq!(labels(&object)["env-stat"], "skoala-stage");
    assert!(labels(&object).get("bar").is_none(), "replace changes only what is there");
    finish(fleet).await;
}

#[tokio::test]
async fn drift_and_deletions() {
    let Some(fleet) = fleet("drift", 1).await else { return };
    let member = &fleet.members[0];
    let path = config_map_path(&fleet.namespace, "settings");
    fleet.create([config_map("settings", "right"), config_map_policy("settings", &[&member.name])]).await;
    let before = uid(&value_is(&member.api, &path, "right", PATIENCE).await);
    set_value(&member.api, &path, "wrong").await;
    assert_eq!(uid(&value_is(&member.api, &path, "right", SOON).await), before);
    member.api.delete(&path, &json!({})).await.expect("somebody deletes it");
    let after = until(&member.api, &path, "made again", SOON, |o| uid(o) != before).await;
    assert_eq!(after["data"]["key"], "right");

    // A policy that goes leaves everything where it is; a template that goes takes everything with it.
    let before = uid(&after);
    let policy = policy_path(&fleet.namespace, "propagationpolicies", "settings");
    fleet.api.delete(&policy, &json!({})).await.expect("the policy is deleted");
    gone(&fleet.api, &policy, PATIENCE).await;
    throughout("an object whose policy is gone", Duration::from_secs(3), || async {
        let object = member.api.get(&path).await.map_err(|e| e.to_string())?;
        if uid(&object) == before { Ok(()) } else { Err(object.to_string()) }
    })
    .await;
    fleet.api.delete(&path, &json!({})).await.expect("the template is deleted");
    gone(&member.api, &path, PATIENCE).await;
    finish(fleet).await;
}

#[tokio::test]
async fn a_black_hole() {
    let Some(fleet) = fleet_with("hole", 1, Options::impatient()).await else { return };
    let member = &fleet.members[0];
    let at = |name: &str| config_map_path(&fleet.namespace, name);
    for name in ["changed", "removed", "again"] {
        fleet.create([config_map(name, "before"), config_map_policy(name, &[&member.name])]).await;
    }
    let mut uids = Vec::new();
    for name in ["changed", "removed", "again"] {
        uids.push(uid(&value_is(&member.api, &at(name), "before", PATIENCE).await));
    }
    member.link.set(Mode::BlackHole);
    until(&fleet.api, &cluster_path(&member.name), "Unknown and tainted", PATIENCE, |c| {
        condition(c, "Ready") == Some("Unknown")
            && c["spec"].to_string().contains("cluster.karmada.io/unreachable")
    })
    .await;
    set_value(&fleet.api, &at("changed"), "after").await;
    for name in ["removed", "again"] {
        fleet.api.delete(&at(name), &json!({})).await.expect("a template is deleted");
    }
    gone(&fleet.api, &at("again"), PATIENCE).await;
    fleet.create([config_map("again", "after")]).await;
    // Longer than the pings take that find a connection dead.
    throughout("a member behind a black hole", Duration::from_secs(12), || async {
        for (name, before) in ["changed", "removed", "again"].iter().zip(&uids) {
            let object = member.api.get(&at(name)).await.map_err(|e| e.to_string())?;
            if uid(&object) != *before || object["data"]["key"] != "before" {
                return Err(object.to_string());
            }
        }
        Ok(())
    })
    .await;

    member.link.set(Mode::Pass);
    fleet.ready_within(&member.name, SOON).await;
    assert_eq!(uid(&value_is(&member.api, &at("changed"), "after", SOON).await), uids[0]);
    let again = value_is(&member.api, &at("again"), "after", PATIENCE).await;
    assert_eq!(uid(&again), uids[2], "the new content wins without a deletion first");
    gone(&member.api, &at("removed"), PATIENCE).await;
    finish(fleet).await;
}

/// Versions of all Works, and uids and versions of a member's objects that a restart must leave alone.
async fn picture(fleet: &Fleet) -> Vec<String> {
    let mut seen = Vec::new();
    for member in &fleet.members {
        let works = fleet.api.get(&works_path(&member.name)).await.expect("Works");
        let ours = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
        let objects = member.api.get(&ours).await.expect("ConfigMaps");
        for (list, what) in [(works, "work"), (objects, "object")] {
            for item in list["items"].as_array().expect("a list") {
                let metadata = &item["metadata"];
                seen.push(format!(
                    "{what} {} {} {}",
                    metadata["name"], metadata["uid"], metadata["resourceVersion"]
                ));
            }
        }
    }
    seen
}

/// Waits until nothing has been written for a second, and returns the picture.
async fn settled(fleet: &Fleet) -> Vec<String> {
    let last = Mutex::new((tokio::time::Instant::now(), Vec::new()));
    eventually("everything to settle", PATIENCE, || async {
        let now = picture(fleet).await;
        let mut last = last.lock();
        if last.1 != now {
            *last = (tokio::time::Instant::now(), now);
        }
        if last.0.elapsed() > Duration::from_secs(1) {
            Ok(last.1.clone())
        } else {
            Err("things still change")
        }
    })
    .await
}

#[tokio::test]
async fn kill_nine() {
    let Some(mut fleet) = fleet("kill", 2).await else { return };
    let members: Vec<String> = fleet.members.iter().map(|m| m.name.clone()).collect();
    let clusters: Vec<&str> = members.iter().map(String::as_str).collect();
    let at = |name: &str, fleet: &Fleet| config_map_path(&fleet.namespace, name);
    fleet.create([samples::policy("all", selector("v1", "ConfigMap", ""), &clusters)]).await;
    for n in 0..20 {
        fleet.create([config_map(&format!("kept-{n}"), "a")]).await;
    }
    for member in &fleet.members {
        value_is(&member.api, &at("kept-19", &fleet), "a", PATIENCE).await;
    }
    let before = settled(&fleet).await;

    fleet.hub.kill();
    fleet.hub.spawn().expect("the hub starts again");
    for name in &members {
        fleet.ready(name).await;
    }
    assert_eq!(settled(&fleet).await, before, "the hub was killed");
    let path = at("kept-3", &fleet);
    set_value(&fleet.api, &path, "b").await;
    for member in &fleet.members {
        value_is(&member.api, &path, "b", PATIENCE).await;
    }

    let before = settled(&fleet).await;
    fleet.members[0].agent.kill();
    let path = at("kept-4", &fleet);
    set_value(&fleet.api, &path, "b").await;
    fleet.api.delete(&at("kept-5", &fleet), &json!({})).await.expect("a template is deleted");
    value_is(&fleet.members[1].api, &path, "b", PATIENCE).await;
    fleet.members[0].agent.spawn().expect("the agent starts again");
    value_is(&fleet.members[0].api, &path, "b", PATIENCE).await;
    gone(&fleet.members[0].api, &at("kept-5", &fleet), PATIENCE).await;
    let after = settled(&fleet).await;
    let untouched = |all: &[String]| -> Vec<String> {
        all.iter().filter(|line| !line.contains("kept-4") && !line.contains("kept-5")).cloned().collect()
    };
    assert_eq!(untouched(&after), untouched(&before), "an agent was killed");
    finish(fleet).await;
}

async fn ends_in_time(process: &mut Process, what: &str) {
    let ended = process.terminate(END).await;
    let status = ended.unwrap_or_else(|| panic!("{what} did not end after SIGTERM"));
    assert_eq!(status.code(), Some(0), "{what} ended with {status}: {}", process.log_tail(20));
}

#[tokio::test]
async fn sigterm() {
    let Some(mut fleet) = fleet("term", 1).await else { return };
    let name = fleet.members[0].name.clone();
    let path = config_map_path(&fleet.namespace, "settings");
    fleet.create([config_map("settings", "a"), config_map_policy("settings", &[&name])]).await;
    value_is(&fleet.members[0].api, &path, "a", PATIENCE).await;
    // The hub with an agent's watches open; then the agent without a hub.
    ends_in_time(&mut fleet.hub, "the hub").await;
    ends_in_time(&mut fleet.members[0].agent, "an agent without a hub").await;
    // Everything goes on when they are back.
    fleet.members[0].agent.spawn().expect("an agent starts without a hub");
    fleet.hub.spawn().expect("the hub starts again");
    fleet.ready(&name).await;
    set_value(&fleet.api, &path, "b").await;
    value_is(&fleet.members[0].api, &path, "b", PATIENCE).await;
    ends_in_time(&mut fleet.members[0].agent, "an agent").await;
    fleet.members[0].agent.spawn().expect("the agent starts again");
    fleet.ready(&name).await;
    finish(fleet).await;
}

#[tokio::test]
async fn objects_of_many_kinds() {
    let Some(fleet) = fleet("kinds", 1).await else { return };
    let member = &fleet.members[0];
    let clusters = [member.name.as_str()];
    let group = format!("{}.example.com", fleet.namespace);

    // A Secret, written with stringData.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cred" }, "stringData": { "user": "edge" },
    });
    fleet.create([secret, samples::policy("cred", selector("v1", "Secret", "cred"), &clusters)]).await;
    let path = format!("/api/v1/namespaces/{}/secrets/cred", fleet.namespace);
    let seen = until(&member.api, &path, "there", PATIENCE, |_| true).await;
    assert_eq!((&seen["data"]["user"], &seen["type"]), (&json!("ZWRnZQ=="), &json!("Opaque")));
    assert!(seen.get("stringData").is_none());

    // A Service keeps what the member gave it.
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] },
    });
    fleet.create([service, samples::policy("web", selector("v1", "Service", "web"), &clusters)]).await;
    let path = format!("/api/v1/namespaces/{}/services/web", fleet.namespace);
    let before = until(&member.api, &path, "there", PATIENCE, |_| true).await;
    let port = json!({ "spec": { "ports": [{ "port": 80, "name": "http" }] } });
    fleet.api.patch(&path, Patch::Merge, &port).await.expect("the Service is patched");
    let named = |o: &Value| o.pointer("/spec/ports/0/name") == Some(&json!("http"));
    let after = until(&member.api, &path, "named", PATIENCE, named).await;
    assert_eq!(before["spec"]["clusterIP"], after["spec"]["clusterIP"]);

    // A Job completes, and its template says so.
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "once" },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "once", "image": "busybox", "command": ["true"] }],
        } } },
    });
    fleet.create([job, samples::policy("once", selector("batch/v1", "Job", "once"), &clusters)]).await;
    let path = format!("/apis/batch/v1/namespaces/{}/jobs/once", fleet.namespace);
    until(&fleet.api, &path, "complete", PATIENCE, |o| o["status"]["succeeded"] == 1).await;

    // A cluster-scoped object, by a ClusterPropagationPolicy.
    let role = format!("{}-reader", fleet.namespace);
    let cluster_policy = |name: &str, selected: Value| {
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
            "metadata": { "name": name },
            "spec": {
                "resourceSelectors": [selected],
                "placement": { "clusterAffinity": { "clusterNames": clusters } },
            },
        })
    };
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": role },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }],
    });
    let role_policy = cluster_policy(&role, selector("rbac.authorization.k8s.io/v1", "ClusterRole", &role));
    fleet.create([object.clone(), role_policy]).await;
    let role_path = samples::path(&object, "");
    until(&member.api, &role_path, "there", PATIENCE, |o| o["rules"][0]["resources"] == json!(["pods"]))
        .await;

    // A kind of the user's own: its definition, then one of it, found within seconds.
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("widgets.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "size": { "type": "integer" } } },
                } } },
            }],
        },
    });
    let api_version = format!("{group}/v1");
    let definitions =
        selector("apiextensions.k8s.io/v1", "CustomResourceDefinition", &format!("widgets.{group}"));
    fleet
        .create([
            cluster_policy(&format!("{}-widgets", fleet.namespace), definitions),
            samples::policy("widgets", selector(&api_version, "Widget", ""), &clusters),
            definition.clone(),
        ])
        .await;
    let widgets = format!("/apis/{api_version}/namespaces/{}/widgets", fleet.namespace);
    let widget = json!({
        "apiVersion": api_version, "kind": "Widget", "metadata": { "name": "w" }, "spec": { "size": 3, "typo": 1 },
    });
    eventually("the hub to serve Widgets", PATIENCE, || async {
        fleet.api.post(&widgets, &widget).await.map_err(|e| e.to_string())
    })
    .await;
    let seen = until(&member.api, &format!("{widgets}/w"), "there", SOON, |o| o["spec"]["size"] == 3).await;
    assert_eq!(seen["spec"], json!({ "size": 3 }), "what the schema does not know is pruned");

    fleet.api.delete(&format!("{widgets}/w"), &json!({})).await.expect("the Widget is deleted");
    gone(&member.api, &format!("{widgets}/w"), PATIENCE).await;
    for object in [&object, &definition] {
        let path = samples::path(object, "");
        fleet.api.delete(&path, &json!({})).await.expect("it is deleted");
        gone(&member.api, &path, PATIENCE).await;
    }
    finish(fleet).await;
}

#[tokio::test]
async fn bad_input_is_told() {
    let Some(fleet) = fleet("bad", 1).await else { return };
    let member = &fleet.members[0];
    let policies =
        format!("/apis/policy.karmada.io/v1alpha1/namespaces/{}/propagationpolicies", fleet.namespace);
    let mut weight = deployment_policy("web", &[&member.name]);
    weight["spec"]["placement"]["replicaScheduling"] = json!({
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": { "staticWeightList": [
            { "targetCluster": { "clusterNames": [member.name] }, "weight": -1 },
        ] },
    });
    let mut operator = deployment_policy("web", &[&member.name]);
    operator["spec"]["placement"]["clusterTolerations"] = json!([{ "key": "a", "operator": "Perhaps" }]);
    let mut selects = deployment_policy("web", &[&member.name]);
    selects["spec"]["resourceSelectors"][0]["labelSelector"] =
        json!({ "matchExpressions": [{ "key": "a", "operator": "Perhaps" }] });
    let mut shape = deployment_policy("web", &[&member.name]);
    shape["spec"]["resourceSelectors"] = "everything".into();
    let rows = [
        (weight, "spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight"),
        (operator, "spec.placement.clusterTolerations[0].operator"),
        (selects, "spec.resourceSelectors[0].labelSelector.matchExpressions[0].operator"),
        (shape, "spec.resourceSelectors"),
    ];
    for (policy, field) in rows {
        let error = fleet.api.post(&policies, &policy).await.expect_err(field);
        assert!(error.is_invalid() || error.code() == Some(400), "{field}: {error}");
        assert!(error.to_string().contains(field), "{field}: {error}");
    }

    // An override that cannot be applied, and a cluster that does not exist, are told by conditions and events.
    fleet.create([config_map("nowhere", "a"), config_map_policy("nowhere", &["no-such-cluster"])]).await;
    let binding = binding_path(&fleet.namespace, "nowhere-configmap");
    until(&fleet.api, &binding, "unscheduled", PATIENCE, |b| condition(b, "Scheduled") == Some("False"))
        .await;
    let events = format!("/api/v1/namespaces/{}/events", fleet.namespace);
    until(&fleet.api, &events, "with ScheduleBindingFailed", PATIENCE, |list| {
        list.to_string().contains("ScheduleBindingFailed")
    })
    .await;

    // What the member will not have is told by the Work, and by an event.
    let namespace = format!("karmada-es-{}", member.name);
    let mut manifest = config_map("Not_A_Name", "a");
    manifest["metadata"]["namespace"] = fleet.namespace.as_str().into();
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": { "name": "refused", "namespace": namespace },
        "spec": { "workload": { "manifests": [manifest] } },
    });
    fleet.api.post(&works_path(&member.name), &work).await.expect("a Work is created");
    let path = format!("{}/refused", works_path(&member.name));
    let seen =
        until(&fleet.api, &path, "not applied", PATIENCE, |w| condition(w, "Applied") == Some("False")).await;
    assert!(seen["status"].to_string().contains("Not_A_Name"), "{seen}");
    fleet.api.delete(&path, &json!({})).await.expect("the Work is deleted");
    gone(&fleet.api, &path, PATIENCE).await;

    let error = fleet.api.delete(&format!("/api/v1/namespaces/{namespace}"), &json!({})).await;
    assert!(
        error.as_ref().is_err_and(|e| e.is_forbidden()),
        "an execution namespace is not deleted: {error:?}"
    );
    finish(fleet).await;
}

/// Programs that answer and ask, by HTTP and UDP. `KARMADA_TEST_AGNHOST` names another copy of the image.
fn agnhost() -> String {
    std::env::var("KARMADA_TEST_AGNHOST")
        .unwrap_or_else(|_| "registry.k8s.io/e2e-test-images/agnhost:2.47".to_owned())
}

/// Pods of real clusters that share a flat network. Stand-ins have Pods without any.
#[tokio::test]
async fn a_client_in_one_cluster_reaches_a_service_of_another() {
    if std::env::var_os("KARMADA_TEST_MEMBERS").is_none_or(|named| named.is_empty()) {
        eprintln!(
            "services: skipped, it needs two real members whose Pods reach each other, and KARMADA_TEST_MEMBERS names none"
        );
        return;
    }
    let Some(fleet) = fleet("services", 2).await else { return };
    let [provider, consumer] = &fleet.members[..] else { panic!("two members") };
    let namespace = &fleet.namespace;
    let container = |name: &str, args: &[String]| json!({ "name": name, "image": agnhost(), "args": args });
    let mut echo = samples::deployment("echo", 2);
    let args = ["netexec", "--http-port=8080", "--udp-port=8081"].map(str::to_owned);
    echo["spec"]["template"]["spec"]["containers"] = json!([container("echo", &args)]);
    fleet.create([echo, deployment_policy("echo", &[&provider.name])]).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "echo", "namespace": namespace },
        "spec": { "selector": { "app": "echo" }, "ports": [
            { "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" },
            { "name": "udp", "port": 81, "targetPort": 8081, "protocol": "UDP" }] },
    });
    fleet.api.post(&format!("/api/v1/namespaces/{namespace}/services"), &service).await.expect("a Service");
    let multi = json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": { "name": "echo", "namespace": namespace },
        "spec": { "types": ["CrossCluster"], "providerClusters": [{ "name": provider.name }],
                  "consumerClusters": [{ "name": consumer.name }] },
    });
    let multis = format!("/apis/networking.karmada.io/v1alpha1/namespaces/{namespace}/multiclusterservices");
    fleet.api.post(&multis, &multi).await.expect("a MultiClusterService");
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let brought = |list: &Value, want: usize| {
        let slices = list["items"].as_array().into_iter().flatten();
        let brought = slices.filter(|slice| {
            slice["metadata"]["annotations"]["endpointslice.karmada.io/provision-cluster"] == *provider.name
        });
        brought.map(|slice| karmada_core::services::slices::ready(slice).len()).sum::<usize>() == want
    };
    until(&consumer.api, &slices, "with two endpoints of the provider", PATIENCE, |list| brought(list, 2))
        .await;

    // A client there, by the Service's name.
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    for (name, port, protocol) in [("tcp", 80, "tcp"), ("udp", 81, "udp")] {
        let to = format!("echo.{namespace}.svc.cluster.local:{port}");
        let args = ["connect".to_owned(), to, "--timeout=10s".to_owned(), format!("--protocol={protocol}")];
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
            "spec": { "restartPolicy": "OnFailure", "containers": [container("client", &args)] },
        });
        consumer.api.post(&pods, &pod).await.expect("a client");
        until(&consumer.api, &format!("{pods}/{name}"), "done", PATIENCE * 3, |pod| {
            pod["status"]["phase"] == "Succeeded"
        })
        .await;
    }
    let scale = json!({ "spec": { "replicas": 3 } });
    fleet.api.patch(&deployment_path(namespace, "echo"), Patch::Merge, &scale).await.expect("scaled");
    until(&consumer.api, &slices, "with three endpoints", PATIENCE, |list| brought(list, 3)).await;
    fleet.api.delete(&format!("{multis}/echo"), &json!({})).await.expect("deleted");
    until(&consumer.api, &slices, "with none of the provider", PATIENCE, |list| brought(list, 0)).await;
    finish(fleet).await;
}
