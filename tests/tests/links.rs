//! Links that swallow, reset or crawl, under real processes: a TCP relay stands between each agent and its hub.
//!
//! In process, with more of them and longer: `in_process/links.rs`.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::time::Duration;

use karmada_client::{Patch, Rest};
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, cluster_path, condition},
    link::{Mode, Slow, Stalls},
    samples::{self, config_map, config_map_path, selector, works_path},
    wait::{PATIENCE, SOON, eventually, gone, throughout, until},
};
use serde_json::{Value, json};

/// A fleet whose hub notices within seconds that an agent is away, and whose ConfigMaps go to all members.
async fn fleet(test: &str, members: usize) -> Option<Fleet> {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let fleet = Fleet::start(test, members, &binaries, Options::impatient()).await?;
    fleet.create_namespace().await;
    let clusters: Vec<&str> = fleet.members.iter().map(|m| m.name.as_str()).collect();
    fleet.create([samples::policy("all", selector("v1", "ConfigMap", ""), &clusters)]).await;
    Some(fleet)
}

async fn value_is(api: &Rest, path: &str, value: &str, limit: Duration) -> Value {
    until(api, path, &format!("of value {value}"), limit, |o| o["data"]["key"] == value).await
}

async fn set_value(api: &Rest, path: &str, value: &str) {
    let change = json!({ "data": { "key": value } });
    api.patch(path, Patch::Merge, &change).await.expect("a ConfigMap is patched");
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("every stored object has a uid").to_owned()
}

/// Waits until templates, Works and every member's objects say the same: these names with these values, and no others.
async fn agree(fleet: &Fleet, wanted: &[(&str, &str)]) {
    let ours = |list: &Value| -> Vec<(String, String)> {
        let mut found: Vec<_> = list
            .as_array()
            .into_iter()
            .flatten()
            .filter(|o| o["kind"] != "Namespace" && o["metadata"]["name"] != "kube-root-ca.crt")
            .map(|o| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (text(&o["metadata"]["name"]), text(&o["data"]["key"]))
            })
            .collect();
        found.sort();
        found
    };
    let mut wanted: Vec<_> = wanted.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    wanted.sort();
    let path = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
    eventually("hub, Works and members to agree", PATIENCE, || async {
        let expect = |place: &str, got: Vec<_>| {
            if got == wanted { Ok(()) } else { Err(format!("{place}: {got:?}")) }
        };
        let hub = fleet.api.get(&path).await.map_err(|e| e.to_string())?;
        expect("the hub", ours(&hub["items"]))?;
        for member in &fleet.members {
            let works = fleet.api.get(&works_path(&member.name)).await.map_err(|e| e.to_string())?;
            let manifests = works["items"].as_array().into_iter().flatten();
            let manifests = manifests.filter_map(|w| w.pointer("/spec/workload/manifests")?.as_array());
            let of_test = |m: &&Value| m["metadata"]["namespace"] == fleet.namespace.as_str();
            let manifests: Value = manifests.flatten().filter(of_test).cloned().collect();
            expect(&format!("Works of {}", member.name), ours(&manifests))?;
            let objects = member.api.get(&path).await.map_err(|e| e.to_string())?;
            expect(&member.name, ours(&objects["items"]))?;
        }
        Ok::<(), String>(())
    })
    .await;
}

/// While the first member's link is down it heals drift and a deletion, and loses nothing; afterwards all agree.
async fn cut_off(test: &str, mode: Mode) {
    let Some(fleet) = fleet(test, 2).await else { return };
    let member = &fleet.members[0];
    let at = |name: &str| config_map_path(&fleet.namespace, name);
    for name in ["drifts", "vanishes", "changed", "removed"] {
        fleet.create([config_map(name, "before")]).await;
    }
    for name in ["drifts", "vanishes", "changed", "removed"] {
        value_is(&member.api, &at(name), "before", PATIENCE).await;
    }
    member.link.set(mode);
    until(&fleet.api, &cluster_path(&member.name), "Unknown and tainted", PATIENCE, |c| {
        condition(c, "Ready") == Some("Unknown")
            && c["spec"].to_string().contains("cluster.karmada.io/unreachable")
    })
    .await;

    // The hub has no part in this: the agent knows what is wanted.
    let before = uid(&member.api.get(&at("drifts")).await.unwrap());
    set_value(&member.api, &at("drifts"), "wrong").await;
    assert_eq!(uid(&value_is(&member.api, &at("drifts"), "before", SOON).await), before);
    let vanished = uid(&member.api.get(&at("vanishes")).await.unwrap());
    member.api.delete(&at("vanishes"), &json!({})).await.expect("somebody deletes it");
    let made = until(&member.api, &at("vanishes"), "made again", SOON, |o| uid(o) != vanished).await;
    assert_eq!(made["data"]["key"], "before");

    set_value(&fleet.api, &at("changed"), "after").await;
    fleet.api.delete(&at("removed"), &json!({})).await.expect("a template is deleted");
    fleet.create([config_map("new", "after")]).await;
    value_is(&fleet.members[1].api, &at("new"), "after", PATIENCE).await;
    gone(&fleet.members[1].api, &at("removed"), PATIENCE).await;
    throughout("a member that is cut off", Duration::from_secs(4), || async {
        for name in ["drifts", "vanishes", "changed", "removed"] {
            let object = member.api.get(&at(name)).await.map_err(|e| format!("{name}: {e}"))?;
            if object["data"]["key"] != "before" {
                return Err(object.to_string());
            }
        }
        Ok(())
    })
    .await;

    member.link.set(Mode::Pass);
    fleet.ready_within(&member.name, SOON).await;
    value_is(&member.api, &at("changed"), "after", SOON).await;
    let all = [("drifts", "before"), ("vanishes", "before"), ("changed", "after"), ("new", "after")];
    agree(&fleet, &all).await;
    assert_eq!(uid(&member.api.get(&at("vanishes")).await.unwrap()), uid(&made), "it was made once");
    fleet.clean_up().await;
}

#[tokio::test]
async fn a_black_hole() {
    cut_off("swallowed", Mode::BlackHole).await;
}

#[tokio::test]
async fn a_link_that_resets() {
    cut_off("reset", Mode::Cut).await;
}

#[tokio::test]
async fn a_link_that_crawls() {
    let Some(fleet) = fleet("crawl", 1).await else { return };
    let member = &fleet.members[0];
    let at = |name: &str| config_map_path(&fleet.namespace, name);
    fleet.create([config_map("small", "before")]).await;
    value_is(&member.api, &at("small"), "before", PATIENCE).await;
    // Ten times faster than the edge of a cell: the test is to end within a minute. It stands still now and then.
    let stalls = Stalls { seed: 1, every: Duration::from_secs(4), longest: Duration::from_millis(1500) };
    let line = Slow { bytes_per_second: 40_000, ..Slow::EDGE };
    member.link.set(Mode::Slow(line.stalling(stalls)));

    // Hexadecimal digits without a pattern: gzip gets them to half, so this takes seven seconds at least.
    let digits = |n: u64| format!("{:016x}", (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    let large: String = (0..32_000).map(digits).collect();
    let (before, start) = (member.link.bytes().1, tokio::time::Instant::now());
    fleet.create([config_map("large", &large)]).await;
    let path = at("large");
    let arrives = until(&member.api, &path, "there", PATIENCE, |_| true);
    let stays_ready = throughout("the cluster", Duration::from_secs(30), || async {
        let cluster = fleet.api.get(&cluster_path(&member.name)).await.map_err(|e| e.to_string())?;
        let taints = cluster["spec"]["taints"].as_array().map_or(0, Vec::len);
        match condition(&cluster, "Ready") {
            Some("True") if taints == 0 => Ok(()),
            other => Err(format!("Ready is {other:?}, {taints} taints")),
        }
    });
    let arrived = async {
        let object = arrives.await;
        let (took, came) = (start.elapsed(), member.link.bytes().1 - before);
        assert_eq!(object["data"]["key"], large);
        let least = Duration::from_secs(came / u64::from(line.bytes_per_second)) / 2;
        assert!(took > least, "{came} bytes in {took:?}: the line is not slow");
        set_value(&fleet.api, &at("small"), "after").await;
        value_is(&member.api, &at("small"), "after", PATIENCE).await;
    };
    tokio::join!(stays_ready, arrived);
    agree(&fleet, &[("small", "after"), ("large", &large)]).await;
    member.link.set(Mode::Pass);
    set_value(&fleet.api, &at("small"), "fast").await;
    value_is(&member.api, &at("small"), "fast", SOON).await;
    fleet.clean_up().await;
}

/// While nothing of the hub can be reached the agent is killed and started again: it goes on with what it was told before.
#[tokio::test]
async fn an_agent_that_starts_without_its_hub_goes_on() {
    let Some(mut fleet) = fleet("alone", 1).await else { return };
    let at = |name: &str| format!("/api/v1/namespaces/{}/configmaps/{name}", fleet.namespace);
    let (vanishes, drifts) = (at("vanishes"), at("drifts"));
    fleet.create([config_map("vanishes", "before"), config_map("drifts", "before")]).await;
    let member = &mut fleet.members[0];
    for path in [&vanishes, &drifts] {
        value_is(&member.api, path, "before", PATIENCE).await;
    }
    member.link.set(Mode::Refuse);
    member.agent.kill();
    set_value(&member.api, &drifts, "wrong").await;
    member.api.delete(&vanishes, &json!({})).await.expect("somebody deletes it");
    let begun = tokio::time::Instant::now();
    member.agent.spawn().expect("an agent starts without a hub");
    for path in [&vanishes, &drifts] {
        value_is(&member.api, path, "before", SOON).await;
    }
    println!("back {:?} after the start of a process without a hub (2 s at most)", begun.elapsed());
    member.link.set(Mode::Pass);
    set_value(&fleet.api, &drifts, "after").await;
    value_is(&fleet.members[0].api, &drifts, "after", PATIENCE).await;
    fleet.clean_up().await;
}
