//! What a person at the machine is told, and has in hand, without the hub.

use karmada_agent::{Ask, Outline, Stands};
use karmada_client::Patch;
use serde_json::json;
use tokio::time::{Duration, sleep};

use crate::world::{Running, WEB, World, config_map, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);

fn outline(agent: &Running, all: bool) -> Outline {
    agent.handle.outline(&Ask { limit: 100, after: None, all })
}

fn stands(outline: &Outline) -> Vec<(&str, Stands)> {
    outline.works.iter().map(|row| (row.work.as_str(), row.stands)).collect()
}

#[tokio::test(start_paused = true)]
async fn how_works_stand_is_told_without_the_hub() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("a", &[deployment("default", "web", 2), config_map("default", "c", "hunter2")]).await;
    world.work("b", &[config_map("nowhere", "c", "1"), config_map("default", "d", "1")]).await;
    world.work_with("c", &[config_map("default", "e", "1")], json!({"suspendDispatching": true})).await;
    world.applied("a").await;
    eventually(SECOND * 5, "it is told what fails", async || outline(&agent, false).counts.failing == 1)
        .await;
    let first = outline(&agent, false).works[0].since;
    world.wire.cut();
    sleep(SECOND * 30).await;

    let told = outline(&agent, true);
    assert_eq!(stands(&told), [("a", Stands::Applied), ("b", Stands::Failing), ("c", Stands::Suspended)]);
    assert_eq!(told.works[0].names, ["Deployment default/web", "ConfigMap default/c"]);
    assert!(told.works[1].why.contains("namespaces \"nowhere\" not found"), "{}", told.works[1].why);
    assert_eq!(told.works[1].since, first, "it fails since it first did");
    assert_eq!((told.works[1].applied, told.works[1].objects), (1, 2));
    assert_eq!((told.counts.works, told.counts.applied, told.counts.objects), (3, 1, 5));
    assert!(!serde_json::to_string(&told).unwrap().contains("hunter2"));

    // Page by page, and what is in order only for whoever asks for it.
    let page = agent.handle.outline(&Ask { limit: 1, after: None, all: false });
    assert_eq!((stands(&page), page.next.as_deref()), (vec![("b", Stands::Failing)], Some("b")));
    let page = agent.handle.outline(&Ask { limit: 1, after: page.next, all: false });
    assert_eq!((stands(&page), &page.next), (vec![("c", Stands::Suspended)], &None));

    // What is put right on the member is told, too.
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}});
    world.member.post("/api/v1/namespaces", &made).await.unwrap();
    eventually(SECOND * 5, "it is applied", async || outline(&agent, false).counts.failing == 0).await;
    world.member.patch(WEB, Patch::Merge, &json!({"spec": {"replicas": 9}})).await.unwrap();
    eventually(SECOND * 5, "it is corrected", async || {
        world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 2
    })
    .await;
    assert_eq!(outline(&agent, false).counts.applied, 2);
}
