//! HorizontalPodAutoscalers that go to members with what they scale.

use crate::common::{Member, World, deployment, deployments, override_policy, policy};
use karmada_apiserver::authn::UserInfo;
use karmada_client::{Resource, Rest};
use karmada_hub::HubConfig;
use karmada_meta::object;
use karmada_objects::kinds::{OVERRIDE_POLICIES, PROPAGATION_POLICIES, RESOURCE_BINDINGS, WORKS};
use serde_json::{Value, json};

const MARK: &str = "resourcetemplate.karmada.io/retain-replicas";

fn autoscalers() -> Resource {
    Resource::new("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true)
}

fn autoscaler(name: &str, target: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minReplicas": 3, "maxReplicas": 9,
                 "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
    })
}

async fn world() -> World {
    World::start_with(HubConfig { hpa_scale_targets: true, ..HubConfig::default() }).await
}

async fn marked(world: &World, what: &str, name: &str, is: bool) {
    let has = |d: &Value| (object::label(d, MARK) == Some("true")) == is;
    world.becomes(what, &deployments(), "default", name, has).await;
}

#[tokio::test(start_paused = true)]
async fn what_an_autoscaler_scales_is_marked_while_one_does() {
    let world = world().await;
    let of = |name: &str, kind: &str| policy(name, "autoscaling/v2", kind, "", json!({}));
    world.create(&PROPAGATION_POLICIES, of("hpas", "HorizontalPodAutoscaler")).await;
    world.create(&autoscalers(), autoscaler("one", "web")).await;
    world.create(&autoscalers(), autoscaler("two", "web")).await;
    for name in ["web", "other", "by-hand"] {
        let mut made = deployment(name, 1);
        let path = deployments().collection(Some("default"));
        let user = UserInfo::new("alice", ["system:masters"]);
        let kubectl = Rest::new(world.embedded.server().client(user, "kubectl/v1.36.2"));
        if name == "by-hand" {
            object::set_label(&mut made, MARK, "true");
        }
        kubectl.post(&path, &made).await.expect("created");
    }
    let p = policy("deployments", "apps/v1", "Deployment", "", json!({}));
    world.create(&PROPAGATION_POLICIES, p).await;
    marked(&world, "one that comes after its autoscalers", "web", true).await;
    world.delete(&autoscalers(), "default", "one").await.expect("deleted");
    world.settle().await;
    marked(&world, "the other one is there", "web", true).await;
    // One that was there before the hub is listed, and an object of a list does not say its kind.
    let world = world.restart().await;
    world.settle().await;
    marked(&world, "the other one is still there", "web", true).await;
    world
        .change(&autoscalers(), "default", "two", |hpa| {
            hpa["spec"]["scaleTargetRef"]["name"] = json!("other");
        })
        .await;
    marked(&world, "it points elsewhere", "web", false).await;
    marked(&world, "there", "other", true).await;

    // What happens while no hub is there.
    let world = world
        .restart_after(async |rest| {
            let path = autoscalers().object(Some("default"), "two");
            rest.delete(&path, &json!({})).await.expect("deleted");
        })
        .await;
    marked(&world, "its autoscaler is gone", "other", false).await;
    marked(&world, "a user's mark stays", "by-hand", true).await;
    world.stop().await;
}

/// What the agent of a member reports of the Deployment, which has so many replicas there.
async fn report(world: &World, member: &Member, replicas: i64) {
    report_of(world, member, replicas, 0).await;
}

/// The same, about a template that is so many generations ahead of the one that there is.
async fn report_of(world: &World, member: &Member, replicas: i64, ahead: i64) {
    let work = world.until("a Work", || member.work("Deployment", "web")).await;
    let manifest = &work["spec"]["workload"]["manifests"][0];
    let of = object::annotation(manifest, "resourcetemplate.karmada.io/generation");
    let of: i64 = of.and_then(|text| text.parse().ok()).unwrap_or_default();
    let of = of + ahead;
    world
        .report(&WORKS, &member.namespace(), object::name(&work), |work| {
            work["status"] = json!({
                "conditions": [{"type": "Applied", "status": "True", "reason": "AppliedSuccessful",
                                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "manifestStatuses": [{
                    "identifier": {"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment",
                                   "resource": "", "namespace": "default", "name": "web"},
                    "status": {"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
                        "availableReplicas": replicas, "generation": 3, "observedGeneration": 3,
                        "resourceTemplateGeneration": of},
                    "health": "Healthy"}],
            });
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_divided_template_follows_what_its_members_were_scaled_to() {
    let world = world().await;
    let members = [world.join("m1", json!({})).await, world.join("m2", json!({})).await];
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}});
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", divided)).await;
    let mut web = deployment("web", 4);
    object::set_label(&mut web, MARK, "true");
    // A user's own mark, which no autoscaler takes away.
    let path = deployments().collection(Some("default"));
    let user = UserInfo::new("alice", ["system:masters"]);
    let kubectl = Rest::new(world.embedded.server().client(user, "kubectl/v1.36.2"));
    kubectl.post(&path, &web).await.expect("created");
    let replicas = |n: i64| move |d: &Value| d["spec"]["replicas"] == n;
    for member in &members {
        report(&world, member, 2).await;
    }
    world.becomes("as asked", &deployments(), "default", "web", |d| d["status"]["replicas"] == 4).await;
    // One after the other, and again when the template has changed.
    let scaled = || async {
        for member in &members {
            report(&world, member, 3).await;
        }
        world.get(&deployments(), "default", "web").await.filter(|d| d["spec"]["replicas"] == 6)
    };
    world.until("3 and 3", scaled).await;
    world
        .becomes("the binding follows", &RESOURCE_BINDINGS, "default", "web-deployment", |b| {
            b["spec"]["replicas"] == 6
        })
        .await;

    // A user's edit holds until the members have seen it, and one that says nothing holds it up.
    world.change(&deployments(), "default", "web", |d| d["spec"]["replicas"] = json!(10)).await;
    world.settle().await;
    report(&world, &members[0], 3).await;
    world.settle().await;
    world.becomes("m2 is silent", &deployments(), "default", "web", replicas(10)).await;
    report(&world, &members[1], 3).await;
    world.becomes("both have it", &deployments(), "default", "web", replicas(6)).await;
    world.stop().await;
}

/// What one cluster reports is no more than its autoscalers may make of it: the others are given their part of the sum.
#[tokio::test(start_paused = true)]
async fn a_cluster_decides_no_more_than_its_autoscalers_may() {
    let world = world().await;
    let (one, two) = (world.join("m1", json!({})).await, world.join("m2", json!({})).await);
    let mut hpa = autoscaler("web", "web");
    object::set_annotation(&mut hpa, "hpa.karmada.io/follow-workload", "true");
    world.create(&autoscalers(), hpa).await;
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}});
    let mut p = policy("p", "apps/v1", "Deployment", "", divided);
    p["spec"]["propagateDeps"] = json!(true);
    world.create(&PROPAGATION_POLICIES, p).await;
    world.create(&deployments(), deployment("web", 4)).await;
    marked(&world, "an autoscaler scales it", "web", true).await;
    let replicas = |n: i64| move |d: &Value| d["spec"]["replicas"] == n;
    let scaled = async |on_one: i64, on_two: i64| {
        let reported = || async {
            report(&world, &one, on_one).await;
            report(&world, &two, on_two).await;
            world
                .get(&deployments(), "default", "web")
                .await
                .filter(|d| d["spec"]["replicas"] == on_one + on_two)
        };
        world.until(&format!("{on_one} and {on_two}"), reported).await;
    };
    scaled(3, 3).await;
    world.settle().await;
    report(&world, &two, 3).await;
    for ahead in [0, 1_000_000_000] {
        report_of(&world, &one, 2_000_000_000, ahead).await;
        world.settle().await;
        world.becomes("as it was", &deployments(), "default", "web", replicas(6)).await;
    }
    world.event("web", "ReplicasRefused", "cluster m1 reports more than 9 replicas").await;
    let asked = |work: &Value| work["spec"]["workload"]["manifests"][0]["spec"]["replicas"].clone();
    assert_eq!(two.work("Deployment", "web").await.map(|work| asked(&work)), Some(json!(3)));
    scaled(9, 3).await;

    // It may go further where an override says so.
    let mut more = override_policy("o", "m1", "/spec/maxReplicas", json!(30));
    more["spec"]["resourceSelectors"] =
        json!([{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}]);
    world.create(&OVERRIDE_POLICIES, more).await;
    let given = || async {
        let work = one.work("HorizontalPodAutoscaler", "web").await?;
        (work["spec"]["workload"]["manifests"][0]["spec"]["maxReplicas"] == 30).then_some(())
    };
    world.until("m1 may have 30", given).await;
    scaled(30, 3).await;
    // And once the hub lets it, without another word of the cluster's.
    report(&world, &two, 18).await;
    report(&world, &one, 30).await;
    world.settle().await;
    world.becomes("m2 may not", &deployments(), "default", "web", replicas(33)).await;
    world.change(&autoscalers(), "default", "web", |hpa| hpa["spec"]["maxReplicas"] = json!(20)).await;
    world.becomes("m2 may", &deployments(), "default", "web", replicas(48)).await;
    world.stop().await;
}

/// As in the article: an autoscaler goes where its workload goes, without a policy of its own.
#[tokio::test(start_paused = true)]
async fn an_autoscaler_that_asks_for_it_follows_its_workload() {
    let world = world().await;
    let (one, two) = (world.join("m1", json!({})).await, world.join("m2", json!({})).await);
    let mut p =
        policy("p", "apps/v1", "Deployment", "", json!({"clusterAffinity": {"clusterNames": ["m1"]}}));
    p["spec"]["propagateDeps"] = json!(true);
    world.create(&PROPAGATION_POLICIES, p).await;
    world.create(&deployments(), deployment("web", 3)).await;
    let mut hpa = autoscaler("web", "web");
    object::set_annotation(&mut hpa, "hpa.karmada.io/follow-workload", "true");
    world.create(&autoscalers(), hpa).await;
    world.create(&autoscalers(), autoscaler("stays", "web")).await;
    let kind = "HorizontalPodAutoscaler";
    world.until("it is there", || one.work(kind, "web")).await;
    marked(&world, "members scale it", "web", true).await;
    world
        .becomes("attached", &RESOURCE_BINDINGS, "default", "web-horizontalpodautoscaler", |binding| {
            binding["spec"]["requiredBy"][0]["name"] == "web-deployment"
                && binding["spec"]["placement"].is_null()
        })
        .await;
    assert!(one.work(kind, "stays").await.is_none());
    // With its workload.
    world
        .change(&PROPAGATION_POLICIES, "default", "p", |p| {
            p["spec"]["placement"]["clusterAffinity"] = json!({"clusterNames": ["m2"]});
        })
        .await;
    world.until("it moves", || two.work(kind, "web")).await;
    let gone = || async {
        one.act().await;
        one.work(kind, "web").await.is_none().then_some(())
    };
    world.until("it has left", gone).await;
    // Through a restart, and until nobody asks for it any more.
    let world = world.restart().await;
    let two = Member { rest: world.agent("m2"), name: "m2".to_owned() };
    world.settle().await;
    assert!(two.work(kind, "web").await.is_some());
    world
        .change(&autoscalers(), "default", "web", |hpa| {
            object::remove_annotation(hpa, "hpa.karmada.io/follow-workload");
        })
        .await;
    let gone = || async {
        two.act().await;
        two.work(kind, "web").await.is_none().then_some(())
    };
    world.until("it follows no more", gone).await;
    marked(&world, "nobody scales it there", "web", false).await;
    world.stop().await;
}
