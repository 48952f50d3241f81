//! New versions of agents, by wave, with agents that are faked by what they write.

use std::{collections::BTreeMap, time::Duration};

use karmada_client::{Patch, Resource};
use karmada_objects::kinds::{CLUSTERS, CONFIG_MAPS, NAMESPACES};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::common::{Member, World, condition};

const OFFER: &str = "hub.karmada.io/agent-upgrade";
const REPORT: &str = "agent.karmada.io/upgrade";
const VERSION: &str = "agent.karmada.io/version";
const SECOND: Duration = Duration::from_secs(1);

/// An agent that takes versions, and says this of one.
async fn says(world: &World, member: &Member, version: &str, about: Option<Value>) {
    let mut report = json!({"mode": "on", "way": "Deployment"});
    if let Some(about) = about {
        report["about"] = about;
    }
    let patch = json!({"metadata": {"annotations": {REPORT: report.to_string(), VERSION: version}}});
    world.rest.patch(&CLUSTERS.object(None, &member.name), Patch::Merge, &patch).await.expect("reported");
}

async fn fleet(world: &World, count: usize) -> Vec<Member> {
    let mut members = Vec::new();
    for at in 0..count {
        let member = world.join(&format!("m{at}"), json!({})).await;
        says(world, &member, "0.1.0", None).await;
        members.push(member);
    }
    // The hub has heard all of them: those that were away when their turn came would take a version beside the others.
    for moment in 0..4 {
        for member in &members {
            member.renew(moment).await;
        }
        sleep(SECOND * 10).await;
    }
    for member in &members {
        let is_heard = |cluster: &Value| condition(cluster, "StatusStale").is_null();
        world.becomes("it is heard", &CLUSTERS, "", &member.name, is_heard).await;
    }
    members
}

async fn ask(world: &World, waves: &str, gate: &str) {
    let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
    let _ = world.rest.post(&NAMESPACES.collection(None), &system).await;
    let now = karmada_meta::time::Time::now(&world.env).to_string();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "agent-upgrade", "namespace": "karmada-system"},
        "data": {"version": "0.1.1", "requested": now, "waves": waves, "gate": gate},
    });
    world.create(&CONFIG_MAPS, object).await;
}

async fn status(world: &World) -> String {
    let object = world.get(&CONFIG_MAPS, "karmada-system", "agent-upgrade").await.expect("it is there");
    object["data"]["status"].as_str().unwrap_or_default().to_owned()
}

/// What becomes of an agent that is offered a version; nothing where it says nothing any more.
type Fate = fn(at: usize, after: Duration) -> Option<(&'static str, bool)>;

/// Plays all agents for some time. Answers how many were ever offered the version, and how many had it at once and were not
/// through, at most.
async fn play(world: &World, members: &[Member], time: Duration, fate: Fate) -> (usize, usize) {
    let begun = Instant::now();
    let (mut offered, mut most): (BTreeMap<usize, (Instant, Value)>, usize) = (BTreeMap::new(), 0);
    let mut said = BTreeMap::new();
    for moment in 100_u32.. {
        if begun.elapsed() >= time {
            break;
        }
        for (at, member) in members.iter().enumerate() {
            let live = world.get(&CLUSTERS, "", &member.name).await.expect("it is there");
            if let Some(text) = live["metadata"]["annotations"][OFFER].as_str() {
                let offer = serde_json::from_str(text).expect("an offer");
                offered.entry(at).or_insert((Instant::now(), offer));
            }
        }
        let mut changing = 0;
        for (at, member) in members.iter().enumerate() {
            let Some((since, offer)) = offered.get(&at) else {
                member.renew(moment).await;
                continue;
            };
            let now = fate(at, since.elapsed());
            changing += usize::from(now.is_none_or(|(stands, _)| stands != "Committed"));
            let Some((stands, begins)) = now else { continue };
            member.renew(moment).await;
            if said.insert(at, now) != Some(now) {
                let mut about = json!({"version": offer["version"], "begun": offer["begun"], "stands": stands, "why": "why"});
                if begins {
                    about["begins"] = json!(true);
                }
                let version = if stands == "Committed" { "0.1.1" } else { "0.1.0" };
                says(world, member, version, Some(about)).await;
            }
        }
        most = most.max(changing);
        sleep(SECOND * 10).await;
    }
    (offered.len(), most)
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cuts_links_goes_no_further_than_so_many_at_once() {
    let world = World::start().await;
    let members = fleet(&world, 100).await;
    ask(&world, "100% maxConcurrency=5", "").await;
    // Each waits for its turn first. Every second one is silent as soon as it has the offer, the others when they have begun.
    let fate = |at: usize, after: Duration| match after.as_secs() {
        _ if at.is_multiple_of(2) => None,
        ..30 => Some(("Waiting", true)),
        30..40 => Some(("Trying", false)),
        _ => None,
    };
    let (offered, most) = play(&world, &members, SECOND * 900, fate).await;
    let text = status(&world).await;
    assert!(text.starts_with("GateBroken: "), "{text}");
    assert!(text.contains("fell silent after they were changed"), "{text}");
    assert_eq!((offered, most), (5, 5), "{text}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_goes_everywhere_so_many_at_once() {
    let world = World::start().await;
    let members = fleet(&world, 30).await;
    ask(&world, "100% maxConcurrency=5 soak=0", "").await;
    let fate = |_, after: Duration| match after.as_secs() {
        ..60 => Some(("Waiting", true)),
        60..90 => Some(("Trying", false)),
        _ => Some(("Committed", false)),
    };
    let (offered, most) = play(&world, &members, SECOND * 1200, fate).await;
    let text = status(&world).await;
    assert!(text.starts_with("Complete: "), "{text}");
    assert_eq!((offered, most), (30, 5), "{text}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_the_hub_has_not_made_is_taken_away() {
    let world = World::start().await;
    let members = fleet(&world, 2).await;
    let evil =
        json!({"version": "0.1.1", "begun": "2026-11-18T10:00:00Z", "image": "evil.example/rootkit:1"});
    let offer = |text: &str| json!({"metadata": {"annotations": {OFFER: text}}});
    let path = CLUSTERS.object(None, &members[0].name);
    // Nothing is asked for. The tests' client is the hub to admission.
    for text in [evil.to_string(), "nothing that can be read".to_owned()] {
        world.rest.patch(&path, Patch::Merge, &offer(&text)).await.expect("written");
        let gone = |cluster: &Value| cluster["metadata"]["annotations"].get(OFFER).is_none();
        world.becomes("the offer is gone", &CLUSTERS, "", &members[0].name, gone).await;
    }
    world.event(&members[0].name, "AgentOfferRemoved", "karmada-hub upgrade agents --to VERSION").await;
    // Also where it cannot be written at once.
    world.asked.cut(Some(&path));
    world.rest.patch(&path, Patch::Merge, &offer(&evil.to_string())).await.expect("written");
    world.settle().await;
    world.asked.cut(None);
    let gone = |cluster: &Value| cluster["metadata"]["annotations"].get(OFFER).is_none();
    world.becomes("the offer is gone", &CLUSTERS, "", &members[0].name, gone).await;
    // Something else is.
    ask(&world, "100%", "").await;
    let made = |cluster: &Value| {
        let text = cluster["metadata"]["annotations"][OFFER].as_str();
        text.is_some_and(|text| text.contains("0.1.1") && !text.contains("evil"))
    };
    for member in &members {
        world.becomes("it is offered", &CLUSTERS, "", &member.name, made).await;
    }
    let path = CLUSTERS.object(None, &members[1].name);
    world.rest.patch(&path, Patch::Merge, &offer(&evil.to_string())).await.expect("written");
    world.becomes("the hub's offer is back", &CLUSTERS, "", &members[1].name, made).await;
    world.event(&members[1].name, "AgentOfferRemoved", "somebody else has written it").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn offers_are_taken_back_only_when_a_request_has_been_refused_for_minutes() {
    let world = World::start().await;
    let members = fleet(&world, 2).await;
    ask(&world, "100%", "").await;
    let offer = |cluster: &Value| cluster["metadata"]["annotations"][OFFER].as_str().map(str::to_owned);
    let is_offered = |cluster: &Value| offer(cluster).is_some();
    let mut offers = Vec::new();
    for member in &members {
        offers.push(offer(&world.becomes("it is offered", &CLUSTERS, "", &member.name, is_offered).await));
    }
    let path = CONFIG_MAPS.object(Some("karmada-system"), "agent-upgrade");
    let waves = async |text: &str| {
        let patch = json!({"data": {"waves": text}});
        world.rest.patch(&path, Patch::Merge, &patch).await.expect("written");
    };
    let refused = |object: &Value| {
        object["data"]["status"].as_str().is_some_and(|text| text.starts_with("Unreadable: waves"))
    };
    let is_refused = async || {
        world.becomes("it is refused", &CONFIG_MAPS, "karmada-system", "agent-upgrade", refused).await
    };
    // Somebody mistypes, and mends it a little later. Twice: what lasts is counted anew.
    for _ in 0..2 {
        waves("10%").await;
        is_refused().await;
        sleep(SECOND * 200).await;
        for (member, made) in members.iter().zip(&offers) {
            let live = world.get(&CLUSTERS, "", &member.name).await.expect("it is there");
            assert_eq!(offer(&live), *made);
        }
        waves("100%").await;
        let goes_on = |object: &Value| !refused(object);
        world.becomes("it goes on", &CONFIG_MAPS, "karmada-system", "agent-upgrade", goes_on).await;
    }
    for (member, made) in members.iter().zip(&offers) {
        let live = world.get(&CLUSTERS, "", &member.name).await.expect("it is there");
        assert_eq!(offer(&live), *made, "nor was it made anew");
    }
    // What somebody else offers meanwhile goes at once, and what the hub has offered when it is time.
    waves("10%").await;
    is_refused().await;
    let evil =
        json!({"version": "0.1.1", "begun": "2026-11-18T10:00:00Z", "image": "evil.example/rootkit:1"});
    let patch = json!({"metadata": {"annotations": {OFFER: evil.to_string()}}});
    world.rest.patch(&CLUSTERS.object(None, &members[0].name), Patch::Merge, &patch).await.expect("written");
    let gone = |cluster: &Value| !is_offered(cluster);
    world.becomes("what is foreign is gone", &CLUSTERS, "", &members[0].name, gone).await;
    world.event(&members[0].name, "AgentOfferRemoved", "somebody else has written it").await;
    let live = world.get(&CLUSTERS, "", &members[1].name).await.expect("it is there");
    assert_eq!(offer(&live), offers[1]);
    sleep(SECOND * 300).await;
    world.becomes("it is offered nothing", &CLUSTERS, "", &members[1].name, gone).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_offer_of_the_hubs_own_is_called_somebody_elses() {
    let world = World::start().await;
    let members = fleet(&world, 5).await;
    ask(&world, "100% soak=0", "").await;
    let fate = |_, after: Duration| match after.as_secs() {
        ..60 => Some(("Waiting", true)),
        _ => Some(("Committed", false)),
    };
    play(&world, &members, SECOND * 300, fate).await;
    let object = CONFIG_MAPS.object(Some("karmada-system"), "agent-upgrade");
    world.rest.delete(&object, &json!({})).await.expect("deleted");
    for member in &members {
        let gone = |cluster: &Value| cluster["metadata"]["annotations"].get(OFFER).is_none();
        world.becomes("its offer is gone", &CLUSTERS, "", &member.name, gone).await;
    }
    world.settle().await;
    let events = Resource::new("", "v1", "events", "Event", true);
    let all = world.list(&events, None).await;
    let foreign = all.iter().filter(|event| event["reason"] == "AgentOfferRemoved");
    assert_eq!(foreign.count(), 0);
    world.stop().await;
}
