//! What is not there for now, and what is not known yet: nothing is taken for gone, and nothing overwritten, for that.

use std::time::Duration;

use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{Running, WEB, World, config_map, deployment, eventually, namespace};

const SECOND: Duration = Duration::from_secs(1);
const THING: &str = "/apis/example.com/v1/namespaces/default/things/t";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
const NO_PAGE: &str = "404 page not found\n";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
                 "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

/// A member that has a thing, by a Work.
async fn with_a_thing() -> (World, Running) {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.member.post(definitions, &definition()).await.unwrap();
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing",
                       "metadata": {"name": "t", "namespace": "default"}, "spec": {"x": 1}});
    world.work("w", &[thing]).await;
    world.applied("w").await;
    (world, agent)
}

/// What the member says that it serves, with other versions of the things' group.
async fn discovered(world: &World, versions: Value) -> String {
    let bytes = world.member.get_bytes("/apis", AGGREGATED).await.unwrap();
    let mut apis: Value = serde_json::from_slice(&bytes).unwrap();
    let groups = apis["items"].as_array_mut().unwrap();
    groups.retain(|group| group["metadata"]["name"] != "example.com");
    if !versions.is_null() {
        groups.push(json!({"metadata": {"name": "example.com"}, "versions": versions}));
    }
    apis.to_string()
}

async fn has_work(world: &World) -> bool {
    world.hub.get(&World::work_path("w")).await.is_ok()
}

/// Deletes the Work while the member answers as it was told to, and sees to it that nothing is let go before it answers
/// well again.
async fn waits_until_it_is_told(world: &World) {
    // The agent looks every ten seconds.
    sleep(SECOND * 25).await;
    world.delete_work("w").await;
    for _ in 0..90 {
        sleep(SECOND).await;
        assert!(
            has_work(world).await,
            "the Work is let go although nobody knows whether the object is there"
        );
    }
    world.member_wire.pass();
    assert!(!world.is_missing(THING).await);
    eventually(SECOND * 120, "the object goes", async || world.is_missing(THING).await).await;
    eventually(SECOND * 30, "the Work goes", async || !has_work(world).await).await;
}

#[tokio::test(start_paused = true)]
async fn an_aggregated_api_that_is_away_is_waited_for() {
    let (world, agent) = with_a_thing().await;
    let stale = discovered(&world, json!([{"version": "v1", "freshness": "Stale", "resources": []}])).await;
    world.member_wire.answer("GET /apis$", 200, stale);
    world.member_wire.answer("GET /apis/example.com", 503, "service unavailable\n");
    waits_until_it_is_told(&world).await;
    agent.stop().await;
}

/// A kube-apiserver that has just started knows of no definition yet.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_serve_its_definitions_yet_is_waited_for() {
    let (world, agent) = with_a_thing().await;
    let without = discovered(&world, Value::Null).await;
    world.member_wire.answer("GET /apis/example.com", 404, NO_PAGE);
    world.member_wire.answer("GET /apis$", 200, without);
    waits_until_it_is_told(&world).await;
    agent.stop().await;
}

/// Whatever stands between answers 404.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_found_is_no_object_that_is_gone() {
    let (world, agent) = with_a_thing().await;
    world.member_wire.answer("GET /apis/example.com", 404, NO_PAGE);
    waits_until_it_is_told(&world).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_gone_has_no_objects() {
    let (world, agent) = with_a_thing().await;
    world.member.delete(DEFINITION, &json!({})).await.unwrap();
    eventually(SECOND * 10, "the kind goes", async || {
        world.member.get(THING).await.is_err_and(|error| error.is_not_found())
    })
    .await;
    sleep(SECOND * 25).await;
    world.delete_work("w").await;
    eventually(SECOND * 60, "the Work goes", async || !has_work(&world).await).await;
    agent.stop().await;
}

/// What holds it is looked for on the member, and the hub is asked when there is something to be decided.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_empty_is_looked_at_ever_more_seldom() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[namespace("shop")]).await;
    world.applied("w").await;
    let path = "/api/v1/namespaces/shop/configmaps/c";
    let mut held = config_map("shop", "c", "1");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    world.member.post("/api/v1/namespaces/shop/configmaps", &held).await.unwrap();
    world.member.delete(path, &json!({})).await.unwrap();
    world.delete_work("w").await;
    eventually(SECOND * 10, "it says what it waits for", async || {
        world.condition("w", "NamespaceRemoved").await.1.contains("ConfigMap c")
    })
    .await;
    sleep(SECOND * 5).await;
    let asked = || {
        let hub = world.wire.count("GET /apis/work.karmada.io") + world.wire.count("GET /api/v1/namespaces");
        (hub, world.member_wire.count("GET /api/v1/namespaces/shop/configmaps"))
    };
    let before = asked();
    sleep(SECOND * 600).await;
    let after = asked();
    assert!(after.0 - before.0 <= 3, "the hub was asked {} times, watches included", after.0 - before.0);
    assert!((10..=30).contains(&(after.1 - before.1)), "the member was {} times", after.1 - before.1);
    let free = json!({"metadata": {"finalizers": null}});
    world.member.patch(path, Patch::Merge, &free).await.unwrap();
    eventually(SECOND * 40, "the Work goes", async || !has_work(&world).await).await;
    eventually(SECOND * 40, "the Namespace goes", async || {
        let live = world.member.get("/api/v1/namespaces/shop").await;
        live.map_or(true, |live| live["metadata"]["deletionTimestamp"].is_string())
    })
    .await;
    agent.stop().await;
}

/// Somebody writes the object all the time: that is no reason to let go of it.
#[tokio::test(start_paused = true)]
async fn what_is_to_be_preserved_is_not_let_go_with_its_marks_on() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world
        .work_with("w", &[config_map("default", "c", "1")], json!({"preserveResourcesOnDeletion": true}))
        .await;
    world.applied("w").await;
    let path = "/api/v1/namespaces/default/configmaps/c";
    let conflict = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "changed"});
    world.member_wire.answer(format!("PATCH {path}"), 409, conflict.to_string());
    world.delete_work("w").await;
    sleep(SECOND * 60).await;
    assert!(has_work(&world).await, "it still has our marks");
    world.member_wire.pass();
    eventually(SECOND * 120, "the Work goes", async || !has_work(&world).await).await;
    let live = world.member.get(path).await.unwrap();
    assert!(live["metadata"]["labels"].get("karmada.io/managed").is_none(), "{live}");
    agent.stop().await;
}

fn retained(path: &str) -> Value {
    json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization", "metadata": {"name": path},
        "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment"}, "customizations": {"retention": {"luaScript":
            "function Retain(desired, observed) desired.spec.replicas = observed.spec.replicas return desired end"}}},
    })
}

const SCRIPTS: &str = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
const SERVICES: &str = "/apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations";

/// A Deployment that the member's autoscaler has given seven replicas, and no agent.
async fn scaled(world: &World) {
    let agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 1)]).await;
    world.applied("w").await;
    agent.stop().await;
    let scale = format!("{WEB}/scale?fieldManager=hpa");
    world.member.patch(&scale, Patch::Merge, &json!({"spec": {"replicas": 7}})).await.unwrap();
}

async fn replicas(world: &World) -> Value {
    world.member.get(WEB).await.unwrap()["spec"]["replicas"].clone()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_applied_before_users_rules_are_known() {
    for sort in [SCRIPTS, SERVICES] {
        let world = World::new().await;
        scaled(&world).await;
        world.hub.post(SCRIPTS, &retained("r")).await.unwrap();
        world.wire.hold(Some(&format!("GET {sort}")));
        let agent = world.active_agent().await;
        sleep(SECOND * 20).await;
        assert_eq!(replicas(&world).await, 7, "{sort}");
        world.wire.hold(None);
        let image =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
        let mut web = deployment("default", "web", 1);
        web["spec"]["template"] = {
            let mut template = web["spec"]["template"].clone();
            template["spec"]["containers"] = image["spec"]["template"]["spec"]["containers"].clone();
            template
        };
        world.work("w", &[web]).await;
        // Scripts run on a thread that paused time does not wait for.
        eventually(SECOND * 200, "the image arrives", async || {
            let live = world.member.get(WEB).await.unwrap();
            live["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
        })
        .await;
        assert_eq!(replicas(&world).await, 7, "{sort}");
        agent.stop().await;
    }
}

/// A hub that has no such kinds, or does not show them to its agents, has no rules for us; one that has just started
/// may say so, too.
#[tokio::test(start_paused = true)]
async fn a_hub_that_refuses_to_tell_its_rules_is_believed_after_a_while() {
    let world = World::new().await;
    world.wire.answer(format!("GET {SCRIPTS}"), 404, NO_PAGE);
    world.wire.forbid(format!("GET {SERVICES}"));
    let _agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 1)]).await;
    sleep(SECOND * 50).await;
    assert!(
        world.is_missing("/apis/apps/v1/namespaces/default/deployments/web").await,
        "it may have just started"
    );
    world.applied("w").await;
    assert!(world.wire.count(&format!("GET {SCRIPTS}")) > 2);
    assert!(world.wire.count(&format!("GET {SERVICES}")) > 2);
}

#[tokio::test(start_paused = true)]
async fn services_are_asked_for_at_the_start() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    sleep(SECOND).await;
    assert_eq!(world.wire.count(&format!("GET {SERVICES}")), 1);
    sleep(SECOND * 120).await;
    assert_eq!(world.wire.count(&format!("GET {SERVICES}")), 1, "and seldom later");
}

#[tokio::test(start_paused = true)]
async fn a_retain_rule_that_cannot_be_asked_holds_the_object_as_it_is() {
    let world = World::new().await;
    scaled(&world).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hooks = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": {"name": "hooks"},
        "webhooks": [{
            "name": "retain.example.com", "interpreterContextVersions": ["v1alpha1"],
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "rules": [{"operations": ["Retain"], "apiGroups": ["apps"], "apiVersions": ["v1"], "kinds": ["Deployment"]}],
        }],
    });
    world.hub.post(SERVICES, &hooks).await.unwrap();
    let agent = world.active_agent().await;
    // The service is asked over a real connection, for which paused time does not wait.
    let mut told = (String::new(), String::new());
    for _ in 0..3000 {
        told = world.condition("w", "Applied").await;
        if told.0 == "False" {
            break;
        }
        sleep(SECOND).await;
    }
    assert!(told.0 == "False" && told.1.contains("retain.example.com"), "{told:?}");
    sleep(SECOND * 60).await;
    assert_eq!(replicas(&world).await, 7);
    agent.stop().await;
}
