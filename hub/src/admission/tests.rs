//! What an agent may write, asked of the API as an agent asks: by every verb and kind of patch, judged on what results.

use std::collections::BTreeSet;

use karmada_api::consts::{extension, finalizer, namespace};
use karmada_apiserver::authn::UserInfo;
use karmada_client::{Error, Patch, Rest};
use karmada_core::names;
use karmada_store::engine::Memory;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::embedded::Embedded;

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const M1: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";

/// A hub's API, its administrator, and the agent of m1.
struct World {
    stop: CancellationToken,
    embedded: Embedded,
    admin: Rest,
    agent: Rest,
}

impl World {
    async fn start() -> Self {
        let stop = CancellationToken::new();
        let embedded =
            Embedded::start(Memory::new(), &Env::system(), stop.clone()).await.expect("a hub's API");
        let agent = UserInfo::new(names::agent_user("m1"), [subject::AGENTS]);
        let admin = Rest::new(embedded.client());
        let agent = Rest::new(embedded.server().client(agent, "karmada-agent/test"));
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-es-m1"}});
        admin.post("/api/v1/namespaces", &namespace).await.expect("its namespace");
        Self { stop, embedded, admin, agent }
    }

    async fn register(&self) {
        self.agent.post(CLUSTERS, &cluster("eu")).await.expect("it registers");
    }

    async fn stop(self) {
        self.stop.cancel();
        self.embedded.close().await.expect("all is written");
    }
}

fn cluster(region: &str) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1", "labels": {"tier": "a"}},
        "spec": {"id": "u1", "syncMode": "Pull", "region": region, "apiEndpoint": "https://m1"},
    })
}

/// One status, as it is reported of a Work's manifests.
fn reported(status: &Value) -> Value {
    let identifier = json!({"ordinal": 0, "version": "v1", "kind": "Bag", "resource": "bags", "name": "bag"});
    json!({"status": {"manifestStatuses": [{"identifier": identifier, "status": {"x": status}}]}})
}

fn too_large(answer: Result<Value, Error>, says: &str, what: &str) {
    let error = answer.expect_err(what);
    assert_eq!(error.code(), Some(413), "{what}: {error}");
    assert!(error.to_string().contains(says), "{what}: {error}");
}

#[tokio::test]
async fn an_agent_has_nothing_stored_that_takes_more_than_its_length_or_that_the_hub_cannot_write() {
    let world = World::start().await;
    world.register().await;
    let work = |name: &str, zeros: usize| {
        let manifest =
            json!({"apiVersion": "a.io/v1", "kind": "Bag", "metadata": {"name": "bag"}, "x": vec![0; zeros]});
        json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name},
            "spec": {"workload": {"manifests": [manifest]}},
        })
    };
    world.admin.post(WORKS, &work("w", 1)).await.expect("a Work");
    let status = format!("{WORKS}/w/status");
    let patch = async |path: &str, body: &Value| world.agent.patch(path, Patch::Merge, body).await;
    too_large(patch(&status, &reported(&json!(vec![0; 70_000]))).await, "values in", "a dense status");
    too_large(patch(&status, &reported(&json!("x".repeat(3 << 19)))).await, "its status", "a long status");
    patch(&status, &reported(&json!(vec![0; 1_000]))).await.expect("a status like any other");
    // Patch by patch it grows beyond any body.
    let cluster = format!("{M1}/status");
    let annotated =
        |bytes: usize| json!({"metadata": {"annotations": {extension::NODES: "n".repeat(bytes)}}});
    patch(M1, &annotated(200 << 10)).await.expect("a report");
    let enablement = |group: usize| {
        let resource = json!({"name": "r".repeat(4_000), "kind": "K"});
        json!({"groupVersion": format!("g{group}/v1"), "resources": vec![resource; 10]})
    };
    let enabled = |groups: usize| {
        let groups: Vec<_> = (0..groups).map(enablement).collect();
        json!({"status": {"apiEnablements": groups}})
    };
    patch(&cluster, &enabled(5)).await.expect("what a member serves");
    too_large(patch(&cluster, &enabled(9)).await, "Cluster m1", "a large Cluster");
    for (pointer, body) in [
        ("status.kubernetesVersion", json!({"status": {"kubernetesVersion": "v".repeat(300)}})),
        (
            "resources[0].name",
            json!({"status": {"apiEnablements":
            [{"groupVersion": "v1", "resources": [{"name": "n".repeat(5_000), "kind": "K"}]}]}}),
        ),
    ] {
        refused(patch(&cluster, &body).await, pointer, pointer);
    }
    // What is there already is no hindrance: for the agent, who takes its finalizer off, and for the hub.
    let mut dense = work("dense", 70_000);
    dense["metadata"]["finalizers"] = json!([finalizer::EXECUTION]);
    world.admin.post(WORKS, &dense).await.expect("an administrator may");
    let free = json!({"metadata": {"finalizers": null}});
    patch(&format!("{WORKS}/dense"), &free).await.expect("it lets go of it");
    world.stop().await;
}

#[tokio::test]
async fn a_cluster_that_is_there_takes_no_ids() {
    let world = World::start().await;
    world.register().await;
    for id in ["theirs", "u2"] {
        let mut again = cluster("eu");
        again["spec"]["id"] = id.into();
        let error = world.agent.post(CLUSTERS, &again).await.expect_err("its name is taken");
        assert!(error.is_already_exists(), "{error}");
    }
    let mut other = cluster("eu");
    (other["metadata"]["name"], other["spec"]["id"]) = ("m2".into(), "theirs".into());
    world.admin.post(CLUSTERS, &other).await.expect("nobody has that id");
    world.stop().await;
    let world = World::start().await;
    let mut long = cluster("eu");
    long["spec"]["id"] = "u".repeat(1 << 10).into();
    refused(world.agent.post(CLUSTERS, &long).await, "spec.id", "an id like no member's");
    world.stop().await;
}

fn refused(answer: Result<Value, Error>, names: &str, what: &str) {
    let error = answer.expect_err(what);
    assert!(error.is_forbidden(), "{what}: {error}");
    assert!(error.to_string().contains(names), "{what}: {error} does not name {names}");
}

#[tokio::test]
async fn what_decides_placement_is_the_platforms_once_a_cluster_has_registered() {
    let world = World::start().await;
    world.register().await;
    let (agent, admin) = (&world.agent, &world.admin);
    let before = admin.get(M1).await.expect("it is there");

    let merges = [
        (json!({"metadata": {"labels": {"tier": "gold"}}}), "metadata.labels[tier]"),
        (json!({"metadata": {"labels": null}}), "metadata.labels[tier]"),
        (json!({"metadata": {"annotations": {extension::GRACE_PERIOD: "24h"}}}), extension::GRACE_PERIOD),
        (json!({"metadata": {"finalizers": ["a/b"]}}), "metadata.finalizers"),
        (json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}), "spec.taints"),
        (json!({"spec": {"resourceModels": null}}), "spec.resourceModels"),
        (json!({"spec": {"syncMode": "Push"}}), "spec.syncMode"),
        (json!({"spec": {"id": "other"}}), "spec.id"),
        (json!({"spec": {"secretRef": {"namespace": "karmada-cluster", "name": "m2"}}}), "spec.secretRef"),
    ];
    for (patch, names) in &merges {
        refused(agent.patch(M1, Patch::Merge, patch).await, names, &patch.to_string());
    }
    let operations = json!([{"op": "replace", "path": "/metadata/labels/tier", "value": "gold"}]);
    refused(agent.patch(M1, Patch::Json, &operations).await, "metadata.labels[tier]", "a JSON patch");
    let applied = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1", "labels": {"tier": "gold"}},
    });
    let forced = format!("{M1}?fieldManager=x&force=true");
    refused(agent.patch(&forced, Patch::Apply, &applied).await, "metadata.labels[tier]", "an apply");
    let mut put = before.clone();
    put["metadata"]["labels"]["tier"] = "gold".into();
    refused(agent.put(M1, &put).await, "metadata.labels[tier]", "a PUT");
    assert_eq!(admin.get(M1).await.expect("it is there"), before, "nothing has changed");

    // What an agent's flags say is written at every start: it must not fail for it.
    let mut put = before.clone();
    put["spec"]["region"] = "us".into();
    put["spec"]["zones"] = json!(["a"]);
    agent.put(M1, &put).await.expect("a stock agent starts anew");
    agent.patch(M1, Patch::Merge, &json!({"spec": {"region": "us"}})).await.expect("ours, too");
    assert_eq!(admin.get(M1).await.expect("it is there"), before, "nothing has changed");

    // Its own it may set, but for where the member's API is, once that is said; and a report of its status changes nothing else.
    let patch = json!({"metadata": {"annotations": {extension::NODES: "[]"}}, "spec": {"apiEndpoint": "https://other"}});
    agent.patch(M1, Patch::Merge, &patch).await.expect("its own");
    let mut report = admin.get(M1).await.expect("it is there");
    report["metadata"]["labels"]["tier"] = "gold".into();
    report["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
    report["status"] = json!({"kubernetesVersion": "v1", "conditions": [
        {"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": extension::EVICTIONS_HELD, "status": "True", "reason": "MassOutage", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]});
    agent.put(&format!("{M1}/status"), &report).await.expect("a report");
    let after = admin.get(M1).await.expect("it is there");
    assert_eq!(
        (&after["metadata"]["labels"], &after["spec"]["taints"]),
        (&before["metadata"]["labels"], &Value::Null)
    );
    assert_eq!(after["metadata"]["annotations"][extension::NODES], "[]");
    assert_eq!(after["spec"]["apiEndpoint"], "https://m1");
    let types: Vec<_> =
        after["status"]["conditions"].as_array().expect("conditions").iter().map(|c| &c["type"]).collect();
    assert_eq!(types, ["Ready"], "the hub's own conditions are not an agent's to set");

    // The platform's own changes stand.
    admin
        .patch(M1, Patch::Merge, &json!({"metadata": {"labels": {"tier": "gold"}}}))
        .await
        .expect("the platform's");
    world.stop().await;
}

#[tokio::test]
async fn an_agent_makes_no_cluster_of_another_name_and_none_with_what_is_never_its_own() {
    let world = World::start().await;
    for (pointer, value, names) in [
        ("/metadata/name", json!("m2"), "m2"),
        ("/metadata/labels", json!({"cluster.karmada.io/x": "y"}), "cluster.karmada.io/x"),
        ("/metadata/finalizers", json!(["a/b"]), "metadata.finalizers"),
        ("/spec/syncMode", json!("Push"), "spec.syncMode"),
    ] {
        let mut cluster = cluster("eu");
        cluster["metadata"]["finalizers"] = json!([]);
        *cluster.pointer_mut(pointer).expect("it is there") = value;
        refused(world.agent.post(CLUSTERS, &cluster).await, names, pointer);
    }
    world.register().await;
    world.agent.delete(M1, &json!({})).await.expect("it leaves with what it joined with");
    world.stop().await;
}

#[tokio::test]
async fn an_agent_carries_works_out_and_writes_none() {
    let world = World::start().await;
    world.register().await;
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": "karmada-es-m1", "finalizers": [finalizer::EXECUTION]},
        "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}]}},
    });
    refused(world.agent.post(WORKS, &work).await, "endpointslice.karmada.io/managed-by", "a Work of its own");
    let path = format!("{WORKS}/w");
    let made = world.admin.post(WORKS, &work).await.expect("the hub's");
    let mut changed = made.clone();
    changed["spec"]["workload"]["manifests"][0]["data"] = json!({"key": "theirs"});
    refused(world.agent.put(&path, &changed).await, "spec: ", "another manifest");
    refused(
        world.agent.patch(&path, Patch::Merge, &json!({"metadata": {"labels": {"a": "b"}}})).await,
        "metadata.labels: ",
        "a label by a patch",
    );
    let status = json!({"status": {"conditions": []}});
    world.agent.patch(&format!("{path}/status"), Patch::Merge, &status).await.expect("its report");
    let mut freed = world.agent.get(&path).await.expect("its Work");
    object::remove_finalizer(&mut freed, finalizer::EXECUTION);
    world.agent.put(&path, &freed).await.expect("it lets go");
    world
        .admin
        .patch(&path, Patch::Merge, &json!({"metadata": {"finalizers": [finalizer::EXECUTION]}}))
        .await
        .unwrap();
    let free = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    world.agent.patch(&path, Patch::Json, &free).await.expect("it lets go by a patch");
    world.stop().await;
}

#[tokio::test]
async fn events_secrets_and_leases_are_about_its_own_cluster() {
    let world = World::start().await;
    world.register().await;
    let event = |name: &str, kind: &str, api_version: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"}, "reason": "R", "message": "m\u{1b}[2J",
            "involvedObject": {"apiVersion": api_version, "kind": kind, "name": "m1"}, "type": "Normal", "source": {"component": "c"},
        })
    };
    let events = "/api/v1/namespaces/default/events";
    let cluster = "cluster.karmada.io/v1alpha1";
    refused(world.agent.post(events, &event("m1.1", "Node", "v1")).await, "involvedObject", "about a Node");
    refused(
        world.agent.post(events, &event("web.1", "Cluster", cluster)).await,
        "metadata.name",
        "another's name",
    );
    let made = world.agent.post(events, &event("m1.1", "Cluster", cluster)).await.expect("about its own");
    assert_eq!(made["message"], "m\u{fffd}[2J");
    let count = json!({"count": 2});
    world.agent.patch(&format!("{events}/m1.1"), Patch::Merge, &count).await.expect("its own again");
    world
        .admin
        .post(events, &event("m1.2", "Cluster", cluster))
        .await
        .expect("the hub's about the same Cluster");
    let again = world.agent.patch(&format!("{events}/m1.2"), Patch::Merge, &count).await;
    assert!(again.is_err_and(|error| error.is_not_found()), "the hub's event");
    let mut marked = event("m1.3", "Cluster", cluster);
    object::set_annotation(&mut marked, extension::REPORTED_BY, "m1");
    let made = world.admin.post(events, &marked).await.expect("the hub's");
    assert_eq!(object::annotation(&made, extension::REPORTED_BY), None, "it does not count for the agent");
    let again = world.agent.patch(&format!("{events}/m1.3"), Patch::Merge, &count).await;
    assert!(again.is_err_and(|error| error.is_not_found()), "what only bears its mark");

    let secrets = format!("/api/v1/namespaces/{}/secrets", namespace::CLUSTER);
    let secret = |type_: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "m1", "namespace": namespace::CLUSTER}, "type": type_});
    refused(
        world.agent.post(&secrets, &secret("bootstrap.kubernetes.io/token")).await,
        "type",
        "a token of the hub's",
    );
    world.agent.post(&secrets, &secret("Opaque")).await.expect("what a stock agent reports");

    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", namespace::CLUSTER);
    let own = object::uid(&world.admin.get(M1).await.expect("it has registered")).to_owned();
    let lease = |owner: &str, uid: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {
            "name": "m1", "namespace": namespace::CLUSTER,
            "ownerReferences": [{"apiVersion": cluster, "kind": "Cluster", "name": owner, "uid": uid}],
        }})
    };
    for (name, uid) in [("m2", own.as_str()), ("m1", "another's")] {
        refused(world.agent.post(&leases, &lease(name, uid)).await, "metadata.ownerReferences", "another's");
    }
    world.agent.post(&leases, &lease("m1", &own)).await.expect("its own");
    world.stop().await;
}

/// An event about a Deployment of its namespace.
fn about_deployment(namespace: &str, name: &str, deployment: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace}, "reason": "R", "message": "m",
        "involvedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": deployment},
        "type": "Normal", "source": {"component": "execution-controller"},
    })
}

#[tokio::test]
async fn an_agent_learns_nothing_of_what_it_has_not_told() {
    let world = World::start().await;
    world.register().await;
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    world.admin.post("/api/v1/namespaces", &shop).await.expect("somebody's namespace");
    for namespace in ["shop", "default"] {
        let events = format!("/api/v1/namespaces/{namespace}/events");
        world
            .admin
            .post(&events, &about_deployment(namespace, "web.1", "web"))
            .await
            .expect("the hub's event");
    }
    // Is it there, of which namespace, what does it say: one answer, whatever is asked.
    let test = |message: &str| json!([{"op": "test", "path": "/message", "value": message}]);
    for (namespace, name) in
        [("shop", "web.1"), ("shop", "web.2"), ("nowhere", "web.1"), ("default", "web.1")]
    {
        let path = format!("/api/v1/namespaces/{namespace}/events/{name}");
        let agent = &world.agent;
        let answers = [
            agent.patch(&path, Patch::Merge, &json!({"count": 2})).await,
            agent.patch(&path, Patch::Merge, &json!({"count": "x"})).await,
            agent.patch(&path, Patch::Json, &test("m")).await,
            agent.patch(&path, Patch::Json, &test("n")).await,
            agent.put(&path, &about_deployment(namespace, name, "web")).await,
        ];
        for answer in answers {
            let error = answer.expect_err("it has told no such event");
            let want = format!("events {name:?} not found");
            assert_eq!((error.code(), error.to_string()), (Some(404), want), "{path}");
        }
    }
    let mut refusals = BTreeSet::new();
    for namespace in ["shop", "nowhere"] {
        let events = format!("/api/v1/namespaces/{namespace}/events");
        let told = world.agent.post(&events, &about_deployment(namespace, "web.3", "web")).await;
        let error = told.expect_err("its cluster has no such template");
        assert!(error.is_forbidden(), "{error}");
        refusals.insert(error.to_string());
    }
    assert_eq!(refusals.len(), 1, "whether there is such a namespace makes no difference: {refusals:?}");
    world.stop().await;
}

/// No controller runs here: what is stored counts, though nobody has heard of it.
#[tokio::test]
async fn an_agent_tells_of_a_template_as_soon_as_its_cluster_is_to_have_it() {
    let world = World::start().await;
    world.register().await;
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    world.admin.post("/api/v1/namespaces", &shop).await.expect("somebody's namespace");
    let binding = |name: &str, cluster: &str| {
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": format!("{name}-deployment"), "namespace": "shop"},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name},
                "clusters": [{"name": cluster}],
            },
        })
    };
    let bindings = "/apis/work.karmada.io/v1alpha2/namespaces/shop/resourcebindings";
    for (name, cluster) in [("web", "m1"), ("other", "m2")] {
        world.admin.post(bindings, &binding(name, cluster)).await.expect("it is placed");
    }
    let events = "/api/v1/namespaces/shop/events";
    let other = world.agent.post(events, &about_deployment("shop", "other.1", "other")).await;
    refused(other, "templates that its cluster has", "another cluster's");
    let told = world.agent.post(events, &about_deployment("shop", "web.1", "web")).await.expect("its own");
    assert_eq!(object::annotation(&told, extension::REPORTED_BY), Some("m1"));
    assert_eq!((&told["source"]["host"], &told["reportingInstance"]), (&json!("m1"), &json!("m1")));
    let mut hubs = about_deployment("shop", "web.2", "web");
    hubs["source"]["component"] = "default-scheduler".into();
    refused(world.agent.post(events, &hubs).await, "source.component", "in the scheduler's name");
    let path = format!("{events}/web.1");
    world.agent.patch(&path, Patch::Merge, &json!({"count": 2})).await.expect("it counts its own on");
    let odd = world.agent.patch(&path, Patch::Merge, &json!({"count": "x"})).await;
    assert_eq!(odd.expect_err("no count").code(), Some(422), "of its own it is told all");
    world.stop().await;
}

#[tokio::test]
async fn the_hub_alone_offers_agents_a_version() {
    let world = World::start().await;
    world.register().await;
    let person = UserInfo::new("admin", [subject::MASTERS]);
    let person = Rest::new(world.embedded.server().client(person, "kubectl/test"));
    let offer = |text: Value| json!({"metadata": {"annotations": {extension::AGENT_OFFER: text}}});
    let evil = offer("{\"version\":\"0.1.1\",\"image\":\"evil.example/rootkit:1\"}".into());
    let says = |error: Error| {
        assert_eq!(error.code(), Some(422), "{error}");
        let text = error.to_string();
        assert!(text.contains("karmada-hub upgrade agents --to VERSION"), "{text}");
        assert!(text.contains(extension::AGENT_OFFER), "{text}");
    };
    says(person.patch(M1, Patch::Merge, &evil).await.expect_err("not a person's to write"));
    let mut new = cluster("eu");
    new["metadata"] = json!({"name": "m2", "annotations": evil["metadata"]["annotations"]});
    new["spec"]["id"] = "u2".into();
    says(person.post(CLUSTERS, &new).await.expect_err("nor when the Cluster is new"));
    let _ = world.agent.patch(M1, Patch::Merge, &evil).await;
    let live = world.admin.get(M1).await.expect("it is there");
    assert_eq!(object::annotation(&live, extension::AGENT_OFFER), None, "nor is it the agent's");
    world.admin.patch(M1, Patch::Merge, &evil).await.expect("the hub's");
    // Whoever changes something else is not held up, and whoever takes it off does no harm.
    let label = json!({"metadata": {"labels": {"tier": "gold"}}});
    person.patch(M1, Patch::Merge, &label).await.expect("a label");
    person.patch(M1, Patch::Merge, &offer(Value::Null)).await.expect("taken off");
    world.stop().await;
}
