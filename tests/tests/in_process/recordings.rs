//! What a stock Karmada had after named steps, beside what a fleet of ours has after the same steps: bindings, Works,
//! statuses, conditions, labels, annotations, finalizers, field by field. What differs by design is in [`BY_DESIGN`],
//! each with its reason, and nothing stands there that does not differ.

use std::{collections::BTreeSet, fmt::Write as _};

use karmada_client::Patch;
use karmada_tests::{
    fleet::collection,
    inprocess::{PATIENCE, World},
    recordings::{Differences, Document, differences, means, recording},
    samples::{policy_path, works_path},
    wait::gone,
};
use serde_json::{Value, json};

use crate::deployment_path;

/// Fields that differ: the recording (or `*`), the server's kind of thing that was read, the field, the reason.
const BY_DESIGN: &[(&str, &str, &str, &str)] = &[
    ("*", "rb", "*/status/schedulerObservedGeneration", BORN),
    ("cluster-scoped", "crb", "*/status/schedulerObservedGeneration", BORN),
    ("nginx-override", "op", "*/spec/overriders", "Karmada's webhook writes out an empty struct"),
    ("conflict-abort", "work", "*/status/manifestStatuses", "our agent says that it holds none"),
    (
        "*",
        "deploy",
        "*/status/conditions/Progressing/message",
        "the stand-in names its ReplicaSets otherwise",
    ),
    ("*", "deploy", "*/status/terminatingReplicas", "the stand-in is of an older Kubernetes"),
    ("*", "work", NAMESPACES_MARK, ADOPTED),
    (
        "*",
        "work",
        "shop-55c4c4674c/spec/workload/manifests/0/metadata/annotations/work.karmada.io~1conflict-resolution",
        ADOPTED,
    ),
    ("*", "ns", "shop/metadata/annotations/*", ADOPTED),
    ("*", "rb", "*/spec/replicaRequirements/namespace", "quotas of members count without a feature gate"),
    ("*", "rb", "*/status/conditions/PlacementExplained/**", "our condition names the clusters, and why not"),
    ("*", "rb", "*/status/conditions/Scheduled/observedGeneration", "a refusal says which wish it is about"),
];

/// Why generations differ.
const BORN: &str = "a binding is born with its clusters, so it has had one generation less";
/// What a Namespace's Work says of itself.
const NAMESPACES_MARK: &str = "shop-55c4c4674c/spec/workload/manifests/0/metadata/annotations/resourcetemplate.karmada.io~1managed-annotations";
/// Why it says more.
const ADOPTED: &str = "a Namespace that a member has already is adopted, and released in the end";
/// The documents of one recording are compared with the fleet, until they agree.
async fn agrees(world: &World, name: &str, documents: &[Document], used: &mut BTreeSet<usize>) -> String {
    let mut told = String::new();
    for document in documents {
        let Some(path) = document.path() else { continue };
        let api = match world.members.iter().find(|member| member.name == document.server) {
            Some(member) => member.api.clone(),
            None => world.api(),
        };
        let kind = document.asked.split(' ').find(|word| KINDS.contains(word)).unwrap_or_default();
        let compare = || async {
            let live = api.get(&path).await.map_err(|error| error.to_string())?;
            let live = live["items"].as_array().cloned().unwrap_or_else(|| vec![live.clone()]);
            Ok::<_, String>(unexplained(name, kind, differences(&document.objects, &live)))
        };
        // What is under way settles.
        let end = tokio::time::Instant::now() + PATIENCE;
        let (left, explained) = loop {
            match compare().await {
                Ok((left, explained)) if left.is_empty() => break (left, explained),
                Ok(found) if tokio::time::Instant::now() > end => break found,
                Err(error) if tokio::time::Instant::now() > end => panic!("{name}, {path}: {error}"),
                _ => tokio::time::sleep(std::time::Duration::from_millis(500)).await,
            }
        };
        used.extend(explained);
        for (at, (recorded, live)) in left {
            let text = |value: Option<Value>| value.map_or_else(|| "nothing".to_owned(), |v| v.to_string());
            let _ = writeln!(
                told,
                "{name}: {} {}: {at}\n    recorded {}\n    here     {}",
                document.server,
                document.asked,
                text(recorded),
                text(live)
            );
        }
    }
    told
}

/// What recordings hold that is compared, as kubectl calls it.
const KINDS: [&str; 10] = ["deploy", "cm", "pp", "op", "rb", "work", "crb", "cpp", "clusterrole", "ns"];

/// The differences that nothing explains, and the explanations that were needed.
fn unexplained(name: &str, kind: &str, found: Differences) -> (Differences, BTreeSet<usize>) {
    let mut used = BTreeSet::new();
    let left = found
        .into_iter()
        .filter(|(path, _)| {
            let explains = |(file, of, field, _): &(&str, &str, &str, &str)| {
                (*file == "*" || *file == name) && *of == kind && means(field, path)
            };
            let why = BY_DESIGN.iter().position(explains);
            used.extend(why);
            why.is_none()
        })
        .collect();
    (left, used)
}

/// Creates objects where they say they belong.
async fn apply(world: &World, objects: impl IntoIterator<Item = Value>) {
    for object in objects {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let path = collection(&object, &namespace);
        world.api().post(&path, &object).await.unwrap_or_else(|e| panic!("POST {path}: {e}"));
    }
}

async fn patch(world: &World, path: &str, change: Value) {
    world.api().patch(path, Patch::Merge, &change).await.unwrap_or_else(|e| panic!("PATCH {path}: {e}"));
}

/// The policies of the shop, which the recording shows only by what came of them.
fn of_the_shop() -> [Value; 3] {
    let selector =
        |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name});
    let object = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind,
               "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
    };
    let weight =
        |name: &str, weight: i64| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
    let second = json!({"clusterNames": ["member2"]});
    [
        object(
            "OverridePolicy",
            "web-overrides",
            json!({
                "resourceSelectors": [selector("apps/v1", "Deployment", "web")],
                "overrideRules": [{"targetCluster": second, "overriders": {
                    "imageOverrider": [
                        {"component": "Registry", "operator": "replace", "value": "mirror.edge.example.com"},
                        {"component": "Tag", "operator": "replace", "value": "v1.2-arm"}],
                    "commandOverrider": [{"containerName": "web", "operator": "add", "value": ["--profile=edge"]}],
                    "argsOverrider": [
                        {"containerName": "web", "operator": "remove", "value": ["--color=blue"]},
                        {"containerName": "web", "operator": "add", "value": ["--color=red"]}],
                    "labelsOverrider": [{"operator": "add", "value": {"site": "edge-2"}}],
                    "annotationsOverrider": [{"operator": "add", "value": {"note": "overridden"}}],
                }}],
            }),
        ),
        object(
            "OverridePolicy",
            "config-overrides",
            json!({
                "resourceSelectors": [selector("v1", "ConfigMap", "web-config")],
                "overrideRules": [{"targetCluster": second, "overriders": {"fieldOverrider": [{
                    "fieldPath": "/data/app.json",
                    "json": [{"subPath": "/region", "operator": "replace", "value": "edge-2"}],
                }]}}],
            }),
        ),
        object(
            "PropagationPolicy",
            "web",
            json!({
                "resourceSelectors": [selector("apps/v1", "Deployment", "web"), selector("v1", "Service", "web")],
                "propagateDeps": true,
                "placement": {
                    "clusterAffinity": {"clusterNames": ["member1", "member2"]},
                    "replicaScheduling": {
                        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                        "weightPreference": {"staticWeightList": [weight("member1", 1), weight("member2", 2)]},
                    },
                },
            }),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn the_same_steps_lead_to_karmadas_objects() {
    let names = [
        "conflict-abort",
        "nginx-override",
        "divided-weights-with-dependencies",
        "cluster-scoped",
        "suspended",
        "no-cluster-fits",
        "policy-deleted",
    ];
    let mut recordings = Vec::new();
    for name in names {
        let Some(documents) = recording(&format!("{name}.yaml")) else { return };
        recordings.push((name, documents));
    }
    let [conflict, nginx, shop, scoped, suspended, lonely, deleted] = recordings.as_slice() else {
        panic!("seven recordings")
    };
    let world = World::start(120, 2).await;
    let (mut told, mut used) = (String::new(), BTreeSet::new());
    let check =
        async |told: &mut String, used: &mut BTreeSet<usize>, (name, documents): &(&str, Vec<Document>)| {
            told.push_str(&agrees(&world, name, documents, used).await);
        };

    // The article, while member1 has a Deployment of that name which nobody manages.
    let article = "/apis/apps/v1/namespaces/default/deployments";
    let mut templates: Vec<Value> =
        nginx.1.iter().filter(|d| d.server == "hub").flat_map(Document::applied).collect();
    templates.sort_by_key(|object| object["kind"] != "OverridePolicy");
    let mut seen = BTreeSet::new();
    templates
        .retain(|object| seen.insert((object["kind"].to_string(), object["metadata"]["name"].to_string())));
    let foreign = templates.iter().find(|o| o["kind"] == "Deployment").expect("it is recorded").clone();
    world.members[0].api.post(article, &foreign).await.unwrap();
    apply(&world, templates).await;
    check(&mut told, &mut used, conflict).await;
    let theirs = format!("{article}/nginx");
    world.members[0].api.delete(&theirs, &json!({})).await.unwrap();
    check(&mut told, &mut used, nginx).await;
    for path in [theirs, policy_path("default", "propagationpolicies", "nginx-propagation")] {
        world.delete(&path).await;
        gone(&world.api(), &path, PATIENCE).await;
    }
    for member in ["member1", "member2"] {
        let work = format!("{}/nginx-687f7fb96f", works_path(member));
        gone(&world.api(), &work, PATIENCE).await;
    }

    // A shop, divided by weights, with what it depends on.
    let [web, config, policy] = of_the_shop();
    apply(&world, [web, config]).await;
    let mut seen = BTreeSet::new();
    let mut objects: Vec<Value> =
        shop.1.iter().filter(|d| d.server == "hub").flat_map(Document::applied).collect();
    objects
        .retain(|object| seen.insert((object["kind"].to_string(), object["metadata"]["name"].to_string())));
    objects.retain(|object| object["metadata"]["namespace"] == "shop");
    apply(&world, objects).await;
    apply(&world, [policy]).await;
    check(&mut told, &mut used, shop).await;

    apply(&world, scoped.1.iter().filter(|d| d.server == "hub").flat_map(Document::applied).take(2)).await;
    check(&mut told, &mut used, scoped).await;

    // What is suspended is divided anew and goes nowhere.
    let suspend = json!({"spec": {"suspension": {"dispatching": true}}});
    patch(&world, &policy_path("shop", "propagationpolicies", "web"), suspend).await;
    let binding = karmada_tests::samples::binding_path("shop", "web-deployment");
    world
        .hub_until(&binding, "suspended", PATIENCE, |b| b["spec"]["suspension"]["dispatching"] == true)
        .await;
    patch(&world, &deployment_path("web"), json!({"spec": {"replicas": 6}})).await;
    check(&mut told, &mut used, suspended).await;

    let resume = json!({"spec": {"suspension": null}});
    patch(&world, &policy_path("shop", "propagationpolicies", "web"), resume).await;

    // A policy that names no cluster there is, and its end.
    apply(&world, [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lonely", "namespace": "shop"}, "data": {"a": "b"}}),
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
               "metadata": {"name": "lonely", "namespace": "shop"},
               "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "lonely"}],
                        "placement": {"clusterAffinity": {"clusterNames": ["nowhere"]}}}}),
    ]).await;
    check(&mut told, &mut used, lonely).await;
    let policy = policy_path("shop", "propagationpolicies", "lonely");
    world.delete(&policy).await;
    gone(&world.api(), &policy, PATIENCE).await;
    check(&mut told, &mut used, deleted).await;

    assert!(told.is_empty(), "not as recorded:\n{told}");
    let idle: Vec<_> = (0..BY_DESIGN.len()).filter(|at| !used.contains(at)).map(|at| BY_DESIGN[at]).collect();
    assert!(idle.is_empty(), "these do not differ any more: {idle:?}");
    world.stop().await;
}
