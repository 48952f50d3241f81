//! Everything at once, in an order that a seed decides: Works come, change and go, people meddle with the member, the
//! link is cut, the agent is stopped and killed. In the end the member holds what the hub wants, and nothing else of
//! the hub's.

use std::{collections::BTreeMap, time::Duration};

use karmada_agent::Phase;
use karmada_client::Rest;
use karmada_env::{Env, ManualClock};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{World, config_map, eventually};

const WORKS: u64 = 4;
const OBJECTS: u64 = 4;
const STEPS: usize = 70;
const SELECTED: &str = "/api/v1/configmaps?labelSelector=karmada.io%2Fmanaged%3Dtrue";

/// What the hub wants: by Work, the objects and their values.
type Wanted = BTreeMap<u64, BTreeMap<String, String>>;

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/default/configmaps/{name}")
}

async fn on_member(member: &Rest) -> BTreeMap<String, String> {
    let list = member.get(SELECTED).await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    items.map(|item| (text(&item["metadata"]["name"]), text(&item["data"]["v"]))).collect()
}

async fn storm(seed: u64) {
    let world = World::new().await;
    let dice = Env::seeded(ManualClock::new(std::time::UNIX_EPOCH), seed);
    let foreign = world
        .member
        .post("/api/v1/namespaces/default/configmaps", &config_map("default", "foreign", "1"))
        .await;
    let foreign = foreign.unwrap();
    let mut wanted = Wanted::new();
    let mut agent = world.agent(world.config());
    let mut cut = false;
    let mut log = Vec::new();
    for step in 0..STEPS {
        let (work, object) = (dice.below(WORKS), dice.below(OBJECTS));
        let (name, victim) = (format!("w{work}"), path(&format!("w{work}-{object}")));
        let roll = dice.below(12);
        log.push(format!("{roll}:{name}/{object}"));
        match roll {
            0..=3 => {
                let terminating = match world.hub.get(&World::work_path(&name)).await {
                    Ok(work) => work["metadata"].get("deletionTimestamp").is_some(),
                    Err(_) => false,
                };
                if !terminating {
                    let objects: BTreeMap<String, String> = (0..OBJECTS)
                        .filter(|i| *i == object || dice.below(2) == 0)
                        .map(|i| (format!("w{work}-{i}"), format!("{step}")))
                        .collect();
                    let manifests: Vec<Value> =
                        objects.iter().map(|(name, value)| config_map("default", name, value)).collect();
                    world.work(&name, &manifests).await;
                    wanted.insert(work, objects);
                }
            }
            4 => {
                if wanted.remove(&work).is_some() {
                    world.delete_work(&name).await;
                }
            }
            5 => drop(world.meddle(&victim, json!({"data": {"v": "meddled"}})).await),
            6 => drop(world.meddle(&victim, json!({"metadata": {"labels": null}})).await),
            7 => drop(world.member.delete(&victim, &json!({})).await),
            8 if cut => {
                world.wire.mend();
                cut = false;
            }
            8 => {
                world.wire.cut();
                cut = true;
            }
            9 => {
                if dice.below(2) == 0 {
                    agent.stop().await;
                } else {
                    agent.task.abort();
                    drop(agent);
                }
                agent = world.agent(world.config());
            }
            _ => sleep(Duration::from_millis(dice.below(20_000))).await,
        }
    }
    world.wire.mend();
    agent.phase(Phase::Active).await;
    let want: BTreeMap<String, String> = wanted.into_values().flatten().collect();
    let log = log.join(" ");
    eventually(Duration::from_secs(120), &format!("seed {seed}: {want:?} after {log}"), async || {
        on_member(&world.member).await == want
    })
    .await;
    // And it stays so.
    let applies = agent.handle.stats().applies.get();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(on_member(&world.member).await, want, "seed {seed}");
    assert_eq!(agent.handle.stats().applies.get(), applies, "seed {seed}: it does not come to rest");
    assert_eq!(world.member.get(&path("foreign")).await.unwrap(), foreign, "seed {seed}");
    let works = world.hub.get(World::work_path("").trim_end_matches('/')).await.unwrap();
    let terminating = works["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|w| w["metadata"].get("deletionTimestamp").is_some());
    assert_eq!(terminating.count(), 0, "seed {seed}: a Work was not let go");
}

#[tokio::test(start_paused = true)]
async fn whatever_happened_the_member_ends_as_the_hub_wants_it() {
    for seed in 0..3 {
        storm(seed).await;
    }
}
