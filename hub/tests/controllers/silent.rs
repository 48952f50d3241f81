//! Endpoints of providers of which nothing is known for a while, and what is wrong with those that are.

use std::time::Duration;

use http::Method;
use karmada_client::Rest;
use karmada_core::services::{Asked, multi as core, slices};
use karmada_meta::object;
use karmada_objects::kinds::{
    CLUSTERS, MULTI_CLUSTER_SERVICES, NAMESPACES, PROPAGATION_POLICIES, SERVICE_EXPORTS, SERVICE_IMPORTS,
    SERVICES, WORKS,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    common::{Member, World, condition, configmap, policy},
    exporting::{GROUP, export, import, on},
    multi::{brought, is_brought, marker, multi, service, slice, tell, tell_for, three},
};

const EXPORT: Asked = Asked { export: true, multi_cluster: false };

/// The hub's first minute is everybody's grace.
const GRACE: Duration = Duration::from_secs(70);

/// A MultiClusterService that asks for endpoints of silent providers to be withdrawn.
fn withdrawing(providers: &[&str], consumers: &[&str], after: &str) -> Value {
    let mut asks = multi(providers, consumers);
    object::set_annotation(&mut asks, "multiclusterservice.karmada.io/withdraw-after", after);
    asks
}

fn stale(multi: &Value) -> &str {
    condition(multi, "EndpointsStale")["message"].as_str().unwrap_or_default()
}

async fn is_stale(world: &World, is: impl Fn(&str) -> bool) {
    world.becomes("what is stale", &MULTI_CLUSTER_SERVICES, "default", "web", |multi| is(stale(multi))).await;
}

/// Works of somebody else's that have both names of a provider's slice on a consumer.
async fn take_names(world: &World, consumer: &str, provider: &str, slice: &str) {
    for name in [core::dispatched_name(provider, slice), core::other_name(provider, slice)] {
        let work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": core::dispatched_work("default", &name), "namespace": format!("karmada-es-{consumer}")},
            "spec": {"workload": {"manifests": [configmap("default", "somebodys")]}},
        });
        world.create(&WORKS, work).await;
    }
}

/// The hub itself works on it: when it does not answer, nothing is known of its Pods.
#[tokio::test(start_paused = true)]
async fn endpoints_of_a_member_that_does_not_answer_the_hub_are_those_of_a_silent_provider() {
    let world = World::start().await;
    let (two, three) = (world.join("m2", json!({})).await, world.join("m3", json!({})).await);
    let _alive = world.alive(&["m2", "m3"]);
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "p"},
        "spec": {
            "syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1", "insecureSkipTLSVerification": true,
            "secretRef": {"namespace": "karmada-cluster", "name": "p"},
        },
    });
    world.create(&CLUSTERS, cluster).await;
    world.post_ready_for("p", "True", "ClusterReady").await;
    world.until("its namespace", || world.get(&NAMESPACES, "", "karmada-es-p")).await;
    let pushed = Member { rest: Rest::new(world.embedded.client()), name: "p".to_owned() };
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, withdrawing(&["p", "m2"], &["m3"], "5s")).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-m2", &marker()).await }).await;
    tell(&pushed, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    is_brought(&world, &three, &[("m2-web-1", 1), ("p-web-1", 1)]).await;
    sleep(GRACE).await;

    // It was not well for a while before, which is no silence.
    world.post_ready_for("p", "False", "ClusterNotReady").await;
    sleep(Duration::from_secs(20)).await;
    is_stale(&world, str::is_empty).await;
    let transition = world.get(&CLUSTERS, "", "p").await.expect("it is there");
    let since = condition(&transition, "Ready")["lastTransitionTime"].clone();
    world
        .report(&CLUSTERS, "", "p", |cluster| {
            cluster["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "reason": "ClusterNotReachable",
                "message": "", "lastTransitionTime": since}]);
        })
        .await;
    is_stale(&world, |message| message.contains("p (since")).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(brought(&three).await, [("m2-web-1".to_owned(), 1), ("p-web-1".to_owned(), 1)]);
    is_brought(&world, &three, &[("m2-web-1", 1), ("p-web-1", 0)]).await;
    // The other falls silent, too: what is left may be dead.
    world.post_ready("m2", "Unknown").await;
    is_brought(&world, &three, &[("m2-web-1", 1), ("p-web-1", 1)]).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(brought(&three).await, [("m2-web-1".to_owned(), 1), ("p-web-1".to_owned(), 1)]);
    world.post_ready_for("p", "True", "ClusterReady").await;
    is_brought(&world, &three, &[("m2-web-1", 0), ("p-web-1", 1)]).await;
    is_stale(&world, |message| message.contains("m2 (since") && !message.contains("p (since")).await;
    world.stop().await;
}

/// What stands in Clusters is from before: the one that is said to be silent may be back, and the other gone.
#[tokio::test(start_paused = true)]
async fn a_hub_that_has_just_started_withdraws_nothing() {
    let (world, one, two, three) = three().await;
    let alive = world.alive(&["m1", "m2", "m3"]);
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, withdrawing(&["m1", "m2"], &["m3"], "30s")).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-m2", &marker()).await }).await;
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 1)]).await;
    sleep(GRACE).await;
    world.post_ready("m1", "Unknown").await;
    sleep(Duration::from_secs(5)).await;
    drop(alive);
    let world = world.restart_after(async |_| sleep(Duration::from_secs(120)).await).await;
    let three = Member { rest: world.agent("m3"), name: "m3".to_owned() };
    let alive = world.alive(&["m3"]);
    let both = [("m1-web-1".to_owned(), 1), ("m2-web-1".to_owned(), 1)];
    // Until long after it is known that m2 is silent.
    for second in 0..120 {
        assert_eq!(brought(&three).await, both, "{second} s after the start");
        sleep(Duration::from_secs(1)).await;
    }
    let cluster = world.get(&CLUSTERS, "", "m2").await.expect("it is there");
    assert_eq!(condition(&cluster, "Ready")["status"], "Unknown");
    let again = (alive, world.alive(&["m2"]));
    sleep(Duration::from_secs(10)).await;
    world.post_ready("m2", "True").await;
    is_brought(&world, &three, &[("m1-web-1", 0), ("m2-web-1", 1)]).await;
    // What is withdrawn stays so over a restart.
    drop(again);
    let world = world.restart().await;
    let three = Member { rest: world.agent("m3"), name: "m3".to_owned() };
    let _alive = world.alive(&["m2", "m3"]);
    for second in 0..90 {
        assert_eq!(brought(&three).await[0], ("m1-web-1".to_owned(), 0), "{second} s after the start");
        sleep(Duration::from_secs(1)).await;
    }
    world.stop().await;
}

/// Another provider's endpoints are of no use where they are not.
#[tokio::test(start_paused = true)]
async fn nothing_is_withdrawn_where_nothing_else_is() {
    let (world, one, two, three) = three().await;
    let four = world.join("m4", json!({})).await;
    let _alive = world.alive(&["m1", "m2", "m3", "m4"]);
    take_names(&world, "m4", "m2", "web-1").await;
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, withdrawing(&["m1", "m2"], &["m2", "m3", "m4"], "5s")).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-m2", &marker()).await }).await;
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 1)]).await;
    is_brought(&world, &four, &[("m1-web-1", 1)]).await;
    sleep(GRACE).await;
    world.post_ready("m1", "Unknown").await;
    is_brought(&world, &three, &[("m1-web-1", 0), ("m2-web-1", 1)]).await;
    // It has its own.
    is_brought(&world, &two, &[("m1-web-1", 0)]).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(brought(&four).await, [("m1-web-1".to_owned(), 1)], "the last ones there");
    // When the name is free, the other's come, and these are withdrawn there, too.
    for name in [core::dispatched_name("m2", "web-1"), core::other_name("m2", "web-1")] {
        let name = core::dispatched_work("default", &name);
        world.delete(&WORKS, "karmada-es-m4", &name).await.expect("deleted");
    }
    let touch = |multi: &mut Value| object::set_annotation(multi, "a", "b");
    world.change(&MULTI_CLUSTER_SERVICES, "default", "web", touch).await;
    is_brought(&world, &four, &[("m1-web-1", 0), ("m2-web-1", 1)]).await;
    // Back, all at once.
    world.post_ready("m1", "True").await;
    for member in [&three, &four] {
        is_brought(&world, member, &[("m1-web-1", 1), ("m2-web-1", 1)]).await;
    }
    world.stop().await;
}

/// The hub's slice is one for all that import it.
#[tokio::test(start_paused = true)]
async fn what_a_silent_cluster_exports_stays_and_is_withdrawn_if_somebody_asks() {
    let (world, one, two, three) = three().await;
    let _alive = world.alive(&["m1", "m2", "m3"]);
    for (name, kind, clusters) in
        [("exports", "ServiceExport", &["m1", "m2"][..]), ("imports", "ServiceImport", &["m3"][..])]
    {
        world.create(&PROPAGATION_POLICIES, policy(name, GROUP, kind, "", on(clusters))).await;
    }
    world.create(&SERVICE_EXPORTS, export()).await;
    world.create(&SERVICE_IMPORTS, import()).await;
    for member in [&one, &two] {
        world.until("it exports", || member.work("ServiceExport", "web")).await;
    }
    tell_for(&one, &slice("web-1", &["10.0.0.1"]), EXPORT).await.expect("told");
    tell_for(&two, &slice("web-1", &["10.0.1.1"]), EXPORT).await.expect("told");
    let ready = async |cluster: &str| {
        let slice = three.manifest("EndpointSlice", &format!("imported-{cluster}-web-1")).await?;
        Some(slices::ready(&slice).len())
    };
    let are = async |first: usize, second: usize| {
        let is = || async {
            (ready("m1").await == Some(first) && ready("m2").await == Some(second)).then_some(())
        };
        world.until(&format!("m3 has {first} and {second} endpoints"), is).await;
    };
    are(1, 1).await;
    sleep(GRACE).await;
    let says = async |is: fn(&str) -> bool| {
        world.becomes("what is stale", &SERVICE_EXPORTS, "default", "web", |export| is(stale(export))).await
    };
    world.post_ready("m1", "Unknown").await;
    says(|message| message.contains("m1 (since") && !message.contains("m2")).await;
    sleep(Duration::from_secs(20)).await;
    are(1, 1).await;
    let after = |after: &'static str| {
        move |import: &mut Value| {
            object::set_annotation(import, "multiclusterservice.karmada.io/withdraw-after", after)
        }
    };
    world.change(&SERVICE_IMPORTS, "default", "web", after("soon")).await;
    world.event("web", "InvalidAnnotation", "multiclusterservice.karmada.io/withdraw-after").await;
    world.change(&SERVICE_IMPORTS, "default", "web", after("2s")).await;
    are(0, 1).await;
    world.post_ready("m1", "True").await;
    sleep(Duration::from_secs(3)).await;
    are(0, 1).await;
    are(1, 1).await;
    says(str::is_empty).await;
    // Never the last ones.
    tell_for(&two, &slice("web-1", &[]), EXPORT).await.expect("told");
    are(1, 0).await;
    world.post_ready("m1", "Unknown").await;
    sleep(Duration::from_secs(15)).await;
    are(1, 0).await;
    tell_for(&two, &slice("web-1", &["10.0.1.9"]), EXPORT).await.expect("told");
    are(0, 1).await;
    world.settle().await;
    world.asked.forget();
    world.settle().await;
    assert_eq!(world.asked.written(), Vec::<String>::new(), "at rest nothing is written");
    sleep(Duration::from_secs(60)).await;
    let read = world.asked.count(&Method::GET, &["/endpointslices/imported-m1-web-1"]);
    assert_eq!(read, 0, "nor is what is withdrawn read");
    world.stop().await;
}

/// Whoever may write Works of slices may not have a MultiClusterService say something.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_provides_nothing_is_no_silent_provider() {
    let (world, one, two, three) = three().await;
    let _alive = world.alive(&["m1", "m2", "m3"]);
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1"], &["m2", "m3"])).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-m1", &marker()).await }).await;
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    is_brought(&world, &two, &[("m1-web-1", 1)]).await;
    is_brought(&world, &three, &[("m1-web-1", 1)]).await;
    world.settle().await;
    let before = world.get(&MULTI_CLUSTER_SERVICES, "default", "web").await.expect("it is there");
    tell(&three, &slice("web-9", &["10.6.6.6"])).await.expect("it may write Works of slices");
    let work = slices::work_name("default", "web-9");
    world.event(&work, "EndpointSliceRefused", "cluster m3 is no provider").await;
    for _ in 0..2 {
        // At once, and when it falls silent.
        assert_eq!(brought(&two).await, [("m1-web-1".to_owned(), 1)]);
        assert_eq!(brought(&three).await, [("m1-web-1".to_owned(), 1)]);
        assert_eq!(brought(&one).await, []);
        let now = world.get(&MULTI_CLUSTER_SERVICES, "default", "web").await.expect("it is there");
        assert_eq!(now["status"], before["status"]);
        world.post_ready("m3", "Unknown").await;
        world.settle().await;
    }
    world.post_ready("m1", "Unknown").await;
    is_stale(&world, |message| message.contains("m1 (since") && !message.contains("m3")).await;
    // It does not provide it any more, and is silent still.
    world
        .change(&MULTI_CLUSTER_SERVICES, "default", "web", |live| {
            live["spec"] = multi(&["m2"], &["m2"])["spec"].clone();
        })
        .await;
    is_stale(&world, str::is_empty).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_said_as_long_as_it_is() {
    let (world, one, two, three) = three().await;
    let _alive = world.alive(&["m1", "m2", "m3"]);
    take_names(&world, "m3", "m1", "web-1").await;
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1"], &["m2", "m3"])).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-m1", &marker()).await }).await;
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    is_brought(&world, &two, &[("m1-web-1", 1)]).await;
    let says = async |status: &str, part: &str| {
        let is = |multi: &Value| {
            let said = condition(multi, "EndpointSliceDispatched");
            said["status"] == status && said["message"].as_str().is_some_and(|message| message.contains(part))
        };
        world.becomes(&format!("{status}: {part}"), &MULTI_CLUSTER_SERVICES, "default", "web", is).await;
    };
    let consumers = async |names: &[&str]| {
        let change = |live: &mut Value| live["spec"] = multi(&["m1"], names)["spec"].clone();
        world.change(&MULTI_CLUSTER_SERVICES, "default", "web", change).await;
    };
    says("False", "Work karmada-es-m3/").await;
    // Its consumer is none any more.
    consumers(&["m2"]).await;
    says("True", "").await;
    consumers(&["m2", "m3"]).await;
    says("False", "Work karmada-es-m3/").await;
    // Its slice goes.
    let told = WORKS.object(Some("karmada-es-m1"), &slices::work_name("default", "web-1"));
    one.rest.delete(&told, &json!({})).await.expect("deleted");
    says("True", "").await;
    // The same where nobody else has it.
    consumers(&["m3"]).await;
    world.gone(&WORKS, "karmada-es-m1", &slices::work_name("default", "web-1")).await;
    let (_, _) = (two.act().await, three.act().await);
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    says("False", "Work karmada-es-m3/").await;
    one.rest.delete(&told, &json!({})).await.expect("deleted");
    says("True", "").await;
    world.stop().await;
}
