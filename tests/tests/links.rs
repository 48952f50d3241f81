//! Links that swallow, reset or crawl, under real processes: a TCP relay stands between each agent and its hub.
//!
//! In process, with more of them and longer: `in_process/links.rs`.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::{env, fs, net::SocketAddr, process::Command, time::Duration};

use karmada_client::{Patch, Rest};
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, cluster_path, condition},
    link::{Mode, Slow, Stalls},
    process::{agent_status, own_address},
    samples::{self, config_map, config_map_path, selector, works_path},
    wait::{END, PATIENCE, SOON, eventually, gone, throughout, until},
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

/// Without its hub, and on another node: it has another folder, and what was kept is on the member. Whoever ended it let it give its
/// Lease up.
#[tokio::test]
async fn an_agent_whose_pod_is_moved_to_another_node_goes_on_without_its_hub() {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let mut options = Options::impatient();
    options.agent.push("--state=secrets".to_owned());
    let Some(mut fleet) = Fleet::start("moved", 1, &binaries, options).await else { return };
    fleet.create_namespace().await;
    let clusters = [fleet.members[0].name.clone()];
    let policy = samples::deployment_policy("web", &[&clusters[0]]);
    fleet.create([policy, samples::deployment("web", 2)]).await;
    let path = samples::deployment_path(&fleet.namespace, "web");
    let there = fleet.dir.path().join("other-node");
    let member = &mut fleet.members[0];
    let is_there = |object: &Value| object["spec"]["replicas"] == 2;
    until(&member.api, &path, "there", PATIENCE, is_there).await;
    member.link.set(Mode::Refuse);
    assert!(member.agent.terminate(END).await.is_some());
    member.api.delete(&path, &json!({})).await.expect("somebody deletes it");
    gone(&member.api, &path, PATIENCE).await;
    member.agent.set_arg("--state-dir=", format!("--state-dir={}", there.display()));
    let begun = tokio::time::Instant::now();
    member.agent.spawn().expect("an agent starts without a hub");
    until(&member.api, &path, "there again", SOON, is_there).await;
    println!("back {:?} after the start on another node without a hub (2 s at most)", begun.elapsed());
    member.link.set(Mode::Pass);
    let change = json!({"spec": {"replicas": 3}});
    fleet.api.patch(&path, Patch::Merge, &change).await.expect("a Deployment is patched");
    until(&fleet.members[0].api, &path, "changed", PATIENCE, |o| o["spec"]["replicas"] == 3).await;
    fleet.clean_up().await;
}

/// Says to a test that the mounts that it makes are its own.
const OWN_MOUNTS: &str = "KARMADA_TEST_OWN_MOUNTS";

/// A card that has gone read-only, and one that is full.
#[test]
fn a_folder_that_cannot_be_written_is_gone_on_with() {
    let within = |then: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", then]).arg(env::current_exe().unwrap());
        command.env(OWN_MOUNTS, "1").env_remove("KARMADA_TEST_MEMBERS");
        command
    };
    match within("mount -t tmpfs none /mnt").output() {
        Ok(made) if made.status.success() => {}
        Ok(made) => {
            let why = String::from_utf8_lossy(&made.stderr).into_owned();
            return eprintln!(
                "a_folder_that_cannot_be_written_is_gone_on_with: skipped, nothing can be mounted here: {why}"
            );
        }
        Err(error) => {
            return eprintln!(
                "a_folder_that_cannot_be_written_is_gone_on_with: skipped, there is no unshare: {error}"
            );
        }
    }
    let test = "exec \"$0\" --ignored --exact with_mounts_of_its_own --nocapture";
    assert!(within(test).status().unwrap().success());
}

#[tokio::test]
#[ignore = "a_folder_that_cannot_be_written_is_gone_on_with starts it with mounts of its own"]
async fn with_mounts_of_its_own() {
    assert!(env::var_os(OWN_MOUNTS).is_some(), "this is for mounts of its own");
    let Some(mut fleet) = fleet("unwritable", 1).await else { return };
    let path = config_map_path(&fleet.namespace, "vanishes");
    fleet.create([config_map("vanishes", "before")]).await;
    let (address, card) = (own_address(), fleet.dir.path().join("card"));
    let member = &mut fleet.members[0];
    value_is(&member.api, &path, "before", PATIENCE).await;
    assert!(member.agent.terminate(END).await.is_some());
    let mount = |args: &[&str]| {
        let done = Command::new("mount").args(args).arg(&card).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    fs::create_dir(&card).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=1m", "none"]);
    member.agent.set_arg("--state-dir=", format!("--state-dir={}", card.display()));
    let health = format!("--health-probe-bind-address={address}");
    member.agent.set_arg("--health-probe-bind-address=", health);
    member.agent.spawn().unwrap();
    let is_kept = async |kept: bool| {
        eventually("what was wanted to be kept, or why it is not", PATIENCE, || async {
            let status = agent_status(address).await?;
            let is_told = status["troubles"].to_string().contains("the agent's state: ");
            let is_there = status["counts"]["applied"] != 0 && card.join("state.log").exists();
            if is_there && is_told != kept { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    };
    is_kept(true).await;
    fleet.members[0].link.set(Mode::Refuse);
    for damage in ["read-only", "read-only", "full", "full"] {
        let member = &mut fleet.members[0];
        // A power cut, and it is the same agent, as its folder says.
        member.agent.kill();
        match damage {
            "full" => {
                mount(&["-o", "remount,rw,size=1m", "none"]);
                let fill = vec![0; 4096];
                let mut file = fs::File::options().create(true).append(true).open(card.join("fill")).unwrap();
                while std::io::Write::write_all(&mut file, &fill).is_ok() {}
            }
            _ => mount(&["-o", "remount,ro", "none"]),
        }
        member.api.delete(&path, &json!({})).await.expect("somebody deletes it");
        let begun = tokio::time::Instant::now();
        member.agent.spawn().unwrap();
        value_is(&member.api, &path, "before", SOON).await;
        println!("back {:?} after the start with a card that is {damage} (2 s at most)", begun.elapsed());
        if damage == "read-only" {
            is_kept(false).await;
        }
        // What was applied is to be kept meanwhile, and cannot be: that ends nothing.
        let lease = format!(
            "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases/karmada-agent-{}",
            member.name
        );
        throughout("what was kept to count", Duration::from_secs(4), || async {
            let lease = member.api.get(&lease).await.map_err(|e| e.to_string())?;
            match lease["metadata"]["annotations"]["agent.karmada.io/state"].as_str() {
                Some(said) if said.contains('/') => Ok(()),
                said => Err(format!("{said:?}")),
            }
        })
        .await;
    }
    let member = &mut fleet.members[0];
    fs::remove_file(card.join("fill")).unwrap();
    member.agent.kill();
    member.agent.spawn().unwrap();
    member.link.set(Mode::Pass);
    is_kept(true).await;
    set_value(&fleet.api, &path, "after").await;
    value_is(&fleet.members[0].api, &path, "after", PATIENCE).await;
    fleet.members[0].agent.kill();
    let done = Command::new("umount").arg(&card).status().unwrap();
    assert!(done.success());
    fleet.clean_up().await;
}

async fn phase_is(address: SocketAddr, phase: &str) {
    eventually(&format!("an agent to be {phase}"), PATIENCE, || async {
        let status = agent_status(address).await?;
        let may = status["rights"]["apply"] == true;
        if status["phase"] == phase && may == (phase == "active") { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// With one folder the second process ends at once; with a folder of its own it stands by, and acts when the first has ended. With a
/// copy of the folder, which makes the two one agent, the first gives way.
#[tokio::test]
async fn of_two_processes_of_one_cluster_one_acts() {
    let Some(mut fleet) = fleet("twice", 1).await else { return };
    let dir = fleet.dir.path().to_owned();
    let at = |name: &str| dir.join(name);
    let path = config_map_path(&fleet.namespace, "drifts");
    fleet.create([config_map("drifts", "before")]).await;
    let first = uid(&value_is(&fleet.members[0].api, &path, "before", PATIENCE).await);
    let heals = async |api: &Rest| {
        set_value(api, &path, "wrong").await;
        assert_eq!(uid(&value_is(api, &path, "before", PATIENCE).await), first, "nothing is made anew");
    };

    let member = &mut fleet.members[0];
    let folder = at(&format!("{}-state", member.name));
    let instance = fs::read_to_string(folder.join("instance")).unwrap();
    let mut second = member.agent.another(&dir, "second", &[]).unwrap();
    let ended = second.exit(END).await.expect("it ends by itself");
    assert_eq!(ended.code(), Some(1));
    let log = second.log_tail(20);
    assert!(log.contains("another agent uses") && log.contains("give this one a folder of its own"), "{log}");
    assert_eq!(fs::read_to_string(folder.join("instance")).unwrap(), instance);
    assert!(!folder.join("state.log.damaged").exists() && member.agent.is_running());
    heals(&member.api).await;

    // A folder of its own.
    let (here, there) = (own_address(), own_address());
    let health = |address: SocketAddr| {
        ("--health-probe-bind-address=", format!("--health-probe-bind-address={address}"))
    };
    let kept = ("--state-dir=", format!("--state-dir={}", at("second-state").display()));
    let mut second = member.agent.another(&dir, "second", &[health(there), kept]).unwrap();
    phase_is(there, "standing-by").await;
    heals(&member.api).await;
    phase_is(there, "standing-by").await;
    assert!(member.agent.terminate(END).await.is_some());
    phase_is(there, "active").await;
    heals(&member.api).await;
    let (prefix, arg) = health(here);
    member.agent.set_arg(prefix, arg);
    member.agent.spawn().unwrap();
    phase_is(here, "standing-by").await;
    heals(&member.api).await;
    assert!(second.terminate(END).await.is_some());
    phase_is(here, "active").await;
    heals(&member.api).await;

    // A copy of the folder.
    fs::create_dir(at("copy")).unwrap();
    for file in fs::read_dir(&folder).unwrap().flatten() {
        fs::copy(file.path(), at("copy").join(file.file_name())).unwrap();
    }
    let kept = ("--state-dir=", format!("--state-dir={}", at("copy").display()));
    let mut second = member.agent.another(&dir, "second", &[health(there), kept]).unwrap();
    phase_is(here, "standing-by").await;
    phase_is(there, "active").await;
    assert!(
        member.agent.log_tail(usize::MAX).contains("its folder (--state-dir) was copied"),
        "{}",
        member.agent.log_tail(50)
    );
    heals(&member.api).await;
    assert!(second.terminate(END).await.is_some());
    phase_is(here, "active").await;
    heals(&member.api).await;
    fleet.clean_up().await;
}

/// Says to a test that the network namespace that it runs in is its own.
const OWN_NETWORK: &str = "KARMADA_TEST_OWN_NETWORK";

/// The kernel itself loses what goes between agent and hub, or resets it: with its own timers, and its own repetitions.
#[test]
fn the_kernel_cuts_a_link() {
    let within = |then: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", &format!("ip link set lo up && {then}")]);
        command.arg(env::current_exe().unwrap());
        command.env(OWN_NETWORK, "1").env_remove("KARMADA_TEST_MEMBERS");
        command
    };
    match within("iptables --list --numeric").output() {
        Ok(made) if made.status.success() => {}
        Ok(made) => {
            let why = String::from_utf8_lossy(&made.stderr).into_owned();
            return eprintln!(
                "the_kernel_cuts_a_link: skipped, no network namespace with iptables can be made here: {why}"
            );
        }
        Err(error) => return eprintln!("the_kernel_cuts_a_link: skipped, there is no unshare: {error}"),
    }
    let test = "exec \"$0\" --ignored --exact in_a_network_of_its_own --nocapture";
    assert!(within(test).status().unwrap().success());
}

/// Adds or deletes a rule of the kernel's.
fn rule(what: &str, rule: &str) {
    let done =
        Command::new("iptables").args(["--wait", what, "INPUT"]).args(rule.split(' ')).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test]
#[ignore = "the_kernel_cuts_a_link starts it in a network namespace of its own"]
async fn in_a_network_of_its_own() {
    if env::var_os(OWN_NETWORK).is_none() {
        return eprintln!("in_a_network_of_its_own: skipped, this is everybody's");
    }
    let Some(mut fleet) = fleet("kernel", 1).await else { return };
    let path = config_map_path(&fleet.namespace, "drifts");
    fleet.create([config_map("drifts", "0")]).await;
    let member = &mut fleet.members[0];
    let first = uid(&value_is(&member.api, &path, "0", PATIENCE).await);
    let health = own_address();
    member.agent.terminate(END).await.expect("it ends when asked");
    member.agent.set_arg("--health-probe-bind-address=", format!("--health-probe-bind-address={health}"));
    member.agent.set_arg("--link=", "--link=lan");
    member.agent.spawn().unwrap();
    let port = member.link.address().port();
    let connected = async |is: bool| {
        eventually(&format!("the agent to be connected: {is}"), PATIENCE, || async {
            let status = agent_status(health).await?;
            if status["hub"]["connected"] == is { Ok(()) } else { Err(status["hub"].to_string()) }
        })
        .await;
    };
    connected(true).await;
    let cuts = [
        format!("-p tcp --sport {port} -j DROP"),
        format!("-p tcp --dport {port} -j REJECT --reject-with tcp-reset"),
    ];
    for (n, cut) in cuts.iter().enumerate() {
        let (before, after) = (n.to_string(), (n + 1).to_string());
        rule("--append", cut);
        connected(false).await;
        let member = &fleet.members[0];
        set_value(&member.api, &path, "wrong").await;
        value_is(&member.api, &path, &before, SOON).await;
        set_value(&fleet.api, &path, &after).await;
        rule("--delete", cut);
        connected(true).await;
        assert_eq!(uid(&value_is(&member.api, &path, &after, SOON).await), first);
        fleet.ready(&member.name).await;
    }
    fleet.clean_up().await;
}
