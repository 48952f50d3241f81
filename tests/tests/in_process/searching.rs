//! What is searched on members that no hub can dial: their agents tell of it.

use std::time::Duration;

use karmada_agent::tunnel::{Limits, Mode as Tunnel};
use karmada_api::consts::{extension, subject};
use karmada_apiserver::authn::UserInfo;
use karmada_client::{Patch, Rest};
use karmada_core::links::Link;
use karmada_meta::object;
use karmada_tests::{
    fleet::cluster_path,
    inprocess::{PATIENCE, World},
    link::Mode,
    wait::eventually,
};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;

const REGISTRIES: &str = "/apis/search.karmada.io/v1alpha1/resourceregistries";
const CACHE: &str = "/apis/search.karmada.io/v1alpha1/search/cache/api/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOUR: Duration = Duration::from_secs(3600);
/// Agents begin to tell within a minute.
const SOON: Duration = Duration::from_secs(180);

fn registry(kinds: &[&str]) -> Value {
    let selectors: Vec<Value> = kinds.iter().map(|kind| json!({"apiVersion": "v1", "kind": kind})).collect();
    json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry", "metadata": {"name": "r"},
        "spec": {"targetCluster": {}, "resourceSelectors": selectors}})
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

/// What a search finds.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// `cluster/name=value` of what tests have made, how old that is, and how many warnings there are.
    These(Vec<String>, Option<u64>, usize),
    No(u16),
}

async fn search(api: &Rest, plural: &str) -> Found {
    let request = http::Request::get(format!("{CACHE}/{plural}")).body(Body::empty()).unwrap();
    let answer = api.client().send(request).await.unwrap();
    let (head, body) = answer.into_parts();
    if !head.status.is_success() {
        return Found::No(head.status.as_u16());
    }
    let age = head.headers.get("age").map(|age| age.to_str().unwrap().parse().unwrap());
    let warnings = head.headers.get_all("warning").iter().count();
    let list: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
    let told = |one: &Value| {
        let cluster = object::annotation(one, "resource.karmada.io/cached-from-cluster").unwrap_or("-");
        let name = object::name(one);
        Some(format!("{cluster}/{name}={}", one["data"]["key"].as_str()?))
    };
    let mut all: Vec<String> = list["items"].as_array().unwrap().iter().filter_map(told).collect();
    all.sort();
    Found::These(all, age, warnings)
}

async fn finds(world: &World, what: &str, plural: &str, want: &[&str]) {
    finds_within(world, what, plural, want, SOON).await;
}

async fn finds_within(world: &World, what: &str, plural: &str, want: &[&str], limit: Duration) {
    let want: Vec<String> = want.iter().map(|&text| text.to_owned()).collect();
    eventually(what, limit, || async {
        match search(&world.api(), plural).await {
            Found::These(all, ..) if all == want => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

fn within(deny: &[&str]) -> Limits {
    let deny = deny.iter().map(|text| text.parse().unwrap()).collect();
    Limits { mode: Tunnel::ReadOnly, deny, ..Limits::default() }
}

/// A hub, and two members whose agents tell: one of no ServiceAccounts.
async fn world(seed: u64) -> World {
    let mut world = World::hub_alone(seed).await;
    world.searched = Some(within(&[]));
    world.join("member1").await;
    world.searched = Some(within(&["configmaps"]));
    world.join("member2").await;
    for name in ["member1", "member2"] {
        world.ready(name, PATIENCE).await;
    }
    for (member, name) in [(0, "a"), (0, "b"), (1, "c")] {
        world.members[member].api.post(MAPS, &map(name, "1")).await.unwrap();
    }
    world
}

async fn question(world: &World, cluster: &str) -> Option<String> {
    let cluster = world.api().get(&cluster_path(cluster)).await.unwrap();
    object::annotation(&cluster, extension::SEARCHED).map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn agents_tell_what_is_searched_and_their_owners_let_them() {
    let mut world = world(900).await;
    assert_eq!(question(&world, "member1").await, None);
    world.api().post(REGISTRIES, &registry(&["ConfigMap", "Secret"])).await.unwrap();
    finds(&world, "what there is", "configmaps", &["member1/a=1", "member1/b=1"]).await;
    let asked = question(&world, "member1").await.unwrap();
    assert_eq!(asked, r#"[{"apiVersion":"v1","kind":"ConfigMap"}]"#, "never for Secrets");
    let Found::These(_, age, warnings) = search(&world.api(), "configmaps").await else { panic!() };
    assert_eq!((age, warnings), (Some(0), 1), "member2 has its own mind");
    assert_eq!(search(&world.api(), "secrets").await, Found::No(503));

    let path = |name: &str| format!("{MAPS}/{name}");
    let member = world.members[0].api.clone();
    member.patch(&path("a"), Patch::Merge, &json!({"data": {"key": "2"}})).await.unwrap();
    member.delete(&path("b"), &json!({})).await.unwrap();
    finds(&world, "what has changed", "configmaps", &["member1/a=2"]).await;

    // Who may search, and is no administrator, asks members: nothing of theirs was told with that user's rights.
    let rules = json!([{"apiGroups": ["search.karmada.io"], "resources": ["search/api"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "search"}, "rules": rules});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    world.api().post(&format!("{rbac}/clusterroles"), &role).await.unwrap();
    let binding = json!({"metadata": {"name": "search"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "search"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    world.api().post(&format!("{rbac}/clusterrolebindings"), &binding).await.unwrap();
    let jane = world.api_as(UserInfo::new("jane", ["system:authenticated"]));
    assert_eq!(search(&jane, "configmaps").await, Found::No(503));

    // A hub that begins anew has nothing, and asks nobody again: agents look whether it still has it.
    world.stop_hub().await;
    sleep(Duration::from_secs(3)).await;
    world.start_hub().await;
    finds(&world, "after a restart of the hub", "configmaps", &["member1/a=2"]).await;

    world.stop_agent(0).await;
    member.patch(&path("a"), Patch::Merge, &json!({"data": {"key": "3"}})).await.unwrap();
    world.searched = Some(within(&[]));
    world.start_agent(0);
    finds(&world, "after a restart of the agent", "configmaps", &["member1/a=3"]).await;

    // Its owner denies now what was told.
    world.stop_agent(0).await;
    world.searched = Some(within(&["configmaps"]));
    world.start_agent(0);
    eventually("nothing is kept", SOON, || async {
        match search(&world.api(), "configmaps").await {
            Found::No(503) => Ok(()),
            other => Err(other),
        }
    })
    .await;

    world.api().delete(&format!("{REGISTRIES}/r"), &json!({})).await.unwrap();
    eventually("nothing is asked for any more", PATIENCE, || async {
        question(&world, "member1").await.map_or(Ok(()), Err)
    })
    .await;
    world.api().post(REGISTRIES, &registry(&["Namespace"])).await.unwrap();
    finds(&world, "other kinds", "namespaces", &[]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_silent_cluster_the_last_is_found_with_its_age() {
    let world = world(901).await;
    world.api().post(REGISTRIES, &registry(&["ConfigMap"])).await.unwrap();
    finds(&world, "what there is", "configmaps", &["member1/a=1", "member1/b=1"]).await;
    world.members[0].wire.set(Mode::Cut);
    world.members[0].api.post(MAPS, &map("d", "1")).await.unwrap();
    let old = |all: &[String], age: u64| all == ["member1/a=1", "member1/b=1"] && age >= 40;
    eventually("its age", Duration::from_secs(300), || async {
        match search(&world.api(), "configmaps").await {
            Found::These(all, Some(age), 2) if old(&all, age) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    sleep(HOUR).await;
    let Found::These(_, Some(age), _) = search(&world.api(), "configmaps").await else { panic!() };
    assert!((3600..4500).contains(&age), "{age}");
    world.members[0].wire.set(Mode::Pass);
    finds(&world, "back", "configmaps", &["member1/a=1", "member1/b=1", "member1/d=1"]).await;
    let is_new = || async {
        match search(&world.api(), "configmaps").await {
            Found::These(_, Some(0), 1) => Ok(()),
            other => Err(other),
        }
    };
    eventually("and as new as can be", SOON, is_new).await;
    // With the Cluster goes what was told of it.
    world.api().delete(&cluster_path("member1"), &json!({})).await.unwrap();
    eventually("gone", PATIENCE, || async {
        match search(&world.api(), "configmaps").await {
            Found::No(503) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_bytes_are_paid_for_all_else_goes_first() {
    let mut world = World::hub_alone(902).await;
    world.searched = Some(within(&[]));
    world.link = Some(Link::Satellite);
    world.join("member1").await;
    world.ready("member1", Duration::from_secs(300)).await;
    // Nothing that gets smaller on its way.
    let noise = |n: usize| -> String {
        let mut seed = n as u64 * 7919 + 1;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (seed >> 33) as u8 % 90)
        };
        (0..2000).map(|_| next()).filter(|sign| *sign != '"' && *sign != '\\').collect()
    };
    for n in 0..40 {
        world.members[0].api.post(MAPS, &map(&format!("m{n}"), &noise(n))).await.unwrap();
    }
    let (before, _) = world.members[0].wire.bytes();
    world.api().post(REGISTRIES, &registry(&["ConfigMap"])).await.unwrap();
    sleep(HOUR).await;
    let (after, _) = world.members[0].wire.bytes();
    assert!(after - before < 256 << 10, "{} bytes in an hour", after - before);
    eventually("all of it, in the end", 6 * HOUR, || async {
        match search(&world.api(), "configmaps").await {
            Found::These(all, ..) if all.len() == 40 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    for n in 0..40 {
        let change = json!({"data": {"key": noise(n + 100)}});
        world.members[0].api.patch(&format!("{MAPS}/m{n}"), Patch::Merge, &change).await.unwrap();
    }
    // What waits says so.
    eventually("its age", HOUR, || async {
        match search(&world.api(), "configmaps").await {
            Found::These(_, Some(age), _) if age >= 60 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let masters = UserInfo::new("admin", [subject::MASTERS]);
    eventually("and in the end nothing waits", 6 * HOUR, || async {
        match search(&world.api_as(masters.clone()), "configmaps").await {
            Found::These(_, Some(0), _) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    world.stop().await;
}
