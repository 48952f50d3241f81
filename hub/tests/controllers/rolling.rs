//! Changes that go out in waves: what is kept for that, and until when.

use std::time::Duration;

use karmada_client::Patch;
use karmada_core::rollout;
use karmada_meta::object;
use karmada_objects::kinds::{PROPAGATION_POLICIES, RESOURCE_BINDINGS, SECRETS};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    common::{World, deployment, deployments, policy},
    exporting::on,
};

const ROLLOUT: &str = "policy.karmada.io/rollout";
const WAVES: &str = "50%; 100%";

fn binding() -> String {
    RESOURCE_BINDINGS.object(Some("default"), "web-deployment")
}

async fn annotate(world: &World, path: &str, key: &str, value: Option<&str>) {
    let change = json!({"metadata": {"annotations": {key: value}}});
    world.rest.patch(path, Patch::Merge, &change).await.expect("written");
}

/// The policy asks for waves, or for none any more.
async fn ask(world: &World, waves: Option<&str>) {
    annotate(world, &PROPAGATION_POLICIES.object(Some("default"), "web"), ROLLOUT, waves).await;
}

/// How many revisions are kept.
async fn kept(world: &World) -> usize {
    let all = world.list(&SECRETS, Some("default")).await;
    all.iter().filter(|secret| secret["type"] == "hub.karmada.io/revision").count()
}

/// A binding whose rollout has a state, and what that needs is kept.
async fn stands(world: &World, what: &str) {
    let has = |binding: &Value| rollout::State::read(binding).is_ok_and(|state| state.is_some());
    world.becomes(what, &RESOURCE_BINDINGS, "default", "web-deployment", has).await;
    world.settle().await;
    assert_eq!(kept(world).await, 1, "{what}");
}

async fn world() -> World {
    let world = World::start().await;
    for name in ["m1", "m2"] {
        world.join(name, json!({})).await;
    }
    world.create(&deployments(), deployment("web", 1)).await;
    let mut policy = policy("web", "apps/v1", "Deployment", "web", on(&["m1", "m2"]));
    object::set_annotation(&mut policy, ROLLOUT, WAVES);
    world.create(&PROPAGATION_POLICIES, policy).await;
    stands(&world, "it is kept").await;
    world
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_stays_while_somebody_may_ask_for_waves_again() {
    let world = world().await;
    // Nobody asks for waves, and that they end is not written yet.
    world.asked.cut(Some(&binding()));
    ask(&world, None).await;
    annotate(&world, &binding(), ROLLOUT, None).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(kept(&world).await, 1, "it has not ended");
    ask(&world, Some(WAVES)).await;
    annotate(&world, &binding(), ROLLOUT, Some(WAVES)).await;
    world.asked.cut(None);
    sleep(Duration::from_secs(30)).await;
    stands(&world, "it goes on").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_goes_when_it_has_ended_and_not_what_is_kept_since() {
    let world = world().await;
    ask(&world, None).await;
    let none = |binding: &Value| object::annotation(binding, rollout::STATE).is_none();
    world.becomes("it has ended", &RESOURCE_BINDINGS, "default", "web-deployment", none).await;
    assert_eq!(kept(&world).await, 0);
    ask(&world, Some(WAVES)).await;
    stands(&world, "it is kept again").await;
    // A hub has stopped between the end and that, and waves are asked for again.
    annotate(&world, &binding(), rollout::STATE, Some(rollout::ENDED)).await;
    stands(&world, "it begins anew").await;
    world.stop().await;
}
