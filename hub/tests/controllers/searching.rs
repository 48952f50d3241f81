//! Agents are asked for what is searched on their members, as long as they tell.

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_meta::object;
use karmada_objects::kinds::CLUSTERS;
use serde_json::json;
use tokio::time::sleep;

use crate::common::{Member, World};

const REGISTRIES: &str = "/apis/search.karmada.io/v1alpha1/resourceregistries";

/// Lets time pass in which an agent renews its Lease.
async fn pass(member: &Member, hours: u32, begun: &mut u32) {
    for _ in 0..hours * 120 {
        *begun += 1;
        member.renew(*begun).await;
        sleep(Duration::from_secs(30)).await;
    }
}

async fn annotations(world: &World) -> [Option<String>; 2] {
    let cluster = world.get(&CLUSTERS, "", "m1").await.expect("a cluster");
    [extension::SEARCH_COPIES, extension::SEARCHED]
        .map(|key| object::annotation(&cluster, key).map(str::to_owned))
}

/// One that knows nothing of copies has taken the place of one that did: an older one, or another program.
#[tokio::test(start_paused = true)]
async fn an_agent_that_tells_nothing_for_hours_is_asked_no_more() {
    let world = World::start().await;
    let registry = json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry", "metadata": {"name": "r"},
        "spec": {"targetCluster": {}, "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]}});
    world.rest.post(REGISTRIES, &registry).await.expect("made");
    let member = world.join("m1", json!({})).await;
    assert_eq!(annotations(&world).await, [None, None], "it has not said that it tells");
    let question = r#"[{"apiVersion":"v1","kind":"ConfigMap"}]"#.to_owned();
    let asked = [Some("true".to_owned()), Some(question)];
    let mut begun = 0;
    for _ in 0..2 {
        // One that tells says it again.
        world
            .change(&CLUSTERS, "", "m1", |cluster| {
                object::set_annotation(cluster, extension::SEARCH_COPIES, "true");
            })
            .await;
        world.until("it is asked", || async { (annotations(&world).await == asked).then_some(()) }).await;
        pass(&member, 5, &mut begun).await;
        assert_eq!(annotations(&world).await, asked, "it may be slow");
        pass(&member, 2, &mut begun).await;
        world.until("no more", || async { (annotations(&world).await == [None, None]).then_some(()) }).await;
    }
    world.stop().await;
}
