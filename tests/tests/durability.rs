//! What a hub as a process survives: a disk without space, and its own loss.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use karmada_client::{Error, Rest};
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, file, rest, server_of},
    process::Process,
    samples::{self, config_map_path},
    wait::{PATIENCE, eventually, until},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const FLEET: &str = env!("CARGO_BIN_EXE_fleet");

/// Around the largest that one object may be.
const LARGE: usize = 900 << 10;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn karmada_hub(args: &[&str]) -> Output {
    Command::new(FLEET).arg("karmada-hub").args(args).env_remove("KUBECONFIG").output().expect("it runs")
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A hub whose files cannot grow beyond what [`Hub::limit`] says: to it, that is a full disk.
struct Hub {
    dir: TempDir,
    process: Process,
}

impl Hub {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let data = format!("--data-dir={}", dir.path().join("data").display());
        // A write beyond the limit is to be an error, and not a signal that ends the process.
        let args = ["-c", "trap '' XFSZ; exec \"$@\"", "sh", FLEET, "karmada-hub", "serve"];
        let args =
            args.into_iter().chain([data.as_str(), "--listen=127.0.0.1:0"]).chain(flags.iter().copied());
        let process = Process::start(dir.path(), "hub", Path::new("/bin/sh"), args).expect("it starts");
        let mut hub = Self { dir, process };
        hub.up().await;
        // The next start comes back to where clients look for it.
        let address = server_of(&hub.data().join("admin.kubeconfig"));
        hub.process.set_arg("--listen=", format!("--listen={address}"));
        hub
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    async fn up(&self) -> Rest {
        let kubeconfig = self.data().join("admin.kubeconfig");
        file(&kubeconfig).await;
        let api = rest(&kubeconfig);
        eventually("the hub to be ready", PATIENCE, || async { api.get_text("/readyz").await }).await;
        api
    }

    /// No file of the hub's may become larger than this. `false` where nobody can say so.
    fn limit(&self, bytes: Option<u64>) -> bool {
        let size = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let pid = self.process.pid().expect("it runs");
        let args = [format!("--pid={pid}"), format!("--fsize={size}:unlimited")];
        Command::new("prlimit").args(args).status().is_ok_and(|status| status.success())
    }

    fn store_size(&self) -> u64 {
        fs::metadata(self.data().join("store.redb")).expect("a store").len()
    }
}

fn large(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "x".repeat(LARGE)}})
}

async fn names(api: &Rest) -> Vec<String> {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = api.get_bytes(MAPS, accept).await.expect("reads go on");
    let list: Value = serde_json::from_slice(&list).expect("JSON");
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    list["items"].as_array().into_iter().flatten().map(name).filter(|name| name.starts_with("m-")).collect()
}

/// Creates large objects until one is refused. Answers the names of those that were taken, and what was said.
async fn fill(api: &Rest) -> (Vec<String>, Error) {
    let mut taken = Vec::new();
    for n in 0..200 {
        let name = format!("m-{n:03}");
        match api.post(MAPS, &large(&name)).await {
            Ok(_) => taken.push(name),
            Err(error) => return (taken, error),
        }
    }
    panic!("180 MB went where there is no space for them")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_writes_alone_and_only_for_as_long() {
    let mut hub = Hub::start().await;
    let api = hub.up().await;
    api.post(MAPS, &samples::config_map("m-0", "small")).await.expect("there is space");
    if !hub.limit(Some(hub.store_size() + (6 << 20))) {
        eprintln!("skipped: there is no prlimit here with which a disk can be made full");
        return;
    }
    let (mut taken, error) = fill(&api).await;
    taken.insert(0, "m-0".to_owned());
    let said = error.to_string();
    let data = hub.data().display().to_string();
    assert!(said.contains(&data) && said.contains("full"), "it says what is full: {said}");
    assert_eq!(error.code(), Some(507), "{said}");

    // Reads go on, with everything that was acknowledged and nothing by half; health says what is wrong.
    assert_eq!(names(&api).await, taken);
    let refused = api.post(MAPS, &samples::config_map("m-late", "x")).await.expect_err("it is still full");
    assert_eq!(refused.code(), Some(507), "{refused}");
    let ready = api.get_text("/readyz?verbose").await.expect_err("it is not ready").to_string();
    assert!(ready.contains("[-]store failed: its disk is full"), "{ready}");
    api.get_text("/livez").await.expect("a start would not help");
    let log = fs::read_to_string(hub.dir.path().join("hub.log")).expect("a log");
    let told = log.lines().filter(|line| line.contains("takes no writes until")).count();
    assert_eq!(told, 1, "told once:\n{log}");

    // A start finds the same, whether or not it has space.
    hub.process.kill();
    hub.process.spawn().expect("it starts");
    let api = hub.up().await;
    assert_eq!(names(&api).await, taken);

    // And with space again, nobody has to do anything.
    assert!(hub.limit(Some(hub.store_size() + (4 << 20))));
    let further = (0..200).map(|n| large(&format!("m-z{n:03}")));
    for object in further {
        match api.post(MAPS, &object).await {
            Ok(created) => taken.push(created["metadata"]["name"].as_str().unwrap_or_default().to_owned()),
            Err(error) => {
                assert_eq!(error.code(), Some(507), "{error}");
                break;
            }
        }
    }
    assert!(hub.limit(None));
    eventually("the hub to take writes", PATIENCE, || async {
        api.post(MAPS, &samples::config_map("m-zzz", "again")).await.map_err(|e| e.to_string())
    })
    .await;
    api.get_text("/readyz").await.expect("it is ready");
    taken.push("m-zzz".to_owned());
    // Of the one that was refused it was not known; it is there whole or not at all.
    let found = names(&api).await;
    assert!(found.iter().filter(|name| !taken.contains(name)).count() <= 1, "{found:?}");
    assert!(taken.iter().all(|name| found.contains(name)), "{found:?}");
    assert!(hub.process.terminate(PATIENCE).await.is_some_and(|status| status.success()));
}

/// A text that nothing makes shorter.
fn noise(bytes: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58).to_le_bytes()[0])
    };
    (0..bytes).map(|_| next()).collect()
}

/// Somebody has stored all that may be: the hub that is killed then comes back with as much, in bounded memory, and goes on as
/// before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_full_comes_back_in_bounded_memory() {
    const QUOTA: u64 = 64 << 20;
    // What the docs ask for: four times the quota. The process itself comes beside it in a build without optimization.
    const MOST: u64 = 4 * QUOTA;
    let mut hub = Hub::start_with(&["--storage-quota=64Mi"]).await;
    let api = hub.up().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template":
        {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    api.post(deployments, &deployment).await.expect("there is room");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    api.post(leases, &lease).await.expect("there is room");
    // Large ones, then such as still fit.
    let mut taken = Vec::new();
    for size in [LARGE, 64 << 10, 4 << 10, 0] {
        let refused = loop {
            let name = format!("m-{:04}", taken.len());
            let data = noise(size, taken.len() as u64);
            match api.post(MAPS, &json!({"metadata": {"name": name}, "data": {"k": data}})).await {
                Ok(_) => taken.push(name),
                Err(error) => break error,
            }
            assert!(taken.len() < 1_000, "it takes whatever comes");
        };
        let said = refused.to_string();
        assert_eq!(refused.code(), Some(507), "{said}");
        assert!(
            said.contains("exceeded quota: the hub stores ") && said.contains("--storage-quota"),
            "{said}"
        );
    }
    let grows = async |api: &Rest| {
        let late = json!({"metadata": {"name": "late"}, "data": {"k": noise(64 << 10, 7)}});
        api.post(MAPS, &late).await.expect_err("it is full").code()
    };
    // What is no growth goes on.
    let goes_on = async |api: &Rest, round: u64| {
        let status = json!({"status": {"replicas": round, "observedGeneration": round}});
        let path = format!("{deployments}/web/status");
        let patched = api.patch(&path, karmada_client::Patch::Merge, &status).await.expect("a status");
        assert_eq!(patched["status"]["replicas"], round);
        let renewed = json!({"spec": {"holderIdentity": format!("holder {round}")}});
        api.patch(&format!("{leases}/l"), karmada_client::Patch::Merge, &renewed).await.expect("a Lease");
    };
    goes_on(&api, 1).await;
    assert_eq!(grows(&api).await, Some(507));
    let before = hub.process.peak();

    hub.process.kill();
    hub.process.spawn().expect("it starts");
    let api = hub.up().await;
    assert_eq!(names(&api).await, taken);
    goes_on(&api, 2).await;
    assert_eq!(grows(&api).await, Some(507));
    let peak = hub.process.peak().expect("the system tells");
    println!(
        "{} objects; at most {} MiB, and {:?} MiB before",
        taken.len(),
        peak >> 20,
        before.map(|b| b >> 20)
    );
    assert!(peak < MOST, "{} MiB", peak >> 20);
    // What is deleted makes room.
    api.delete(&format!("{MAPS}/{}", taken[0]), &json!({})).await.expect("a deletion");
    let again = json!({"metadata": {"name": "m-again"}, "data": {"k": noise(LARGE / 2, 3)}});
    eventually("room again", PATIENCE, || async { api.post(MAPS, &again).await.map_err(|e| e.to_string()) })
        .await;
    assert!(hub.process.terminate(PATIENCE).await.is_some_and(|status| status.success()));
}

/// Writes one ConfigMap after the other until it is stopped; counts what was acknowledged.
async fn write_on(api: Rest, path: String, written: Arc<AtomicU64>, stop: CancellationToken) {
    for n in 0.. {
        if stop.is_cancelled() {
            return;
        }
        if api.post(&path, &samples::config_map(&format!("load-{n}"), "value")).await.is_ok() {
            written.store(n + 1, Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_hub_is_restored_and_its_agents_do_not_notice_more_than_that() {
    let binaries = Binaries::in_one(FLEET);
    let Some(mut fleet) = Fleet::start("restore", 1, &binaries, Options::default()).await else { return };
    fleet.create_namespace().await;
    fleet.create([samples::policy("all", samples::selector("v1", "ConfigMap", "kept"), &["member1"])]).await;
    fleet.create([samples::config_map("kept", "one")]).await;
    let kept = config_map_path(&fleet.namespace, "kept");
    let is = |value: &'static str| move |object: &Value| object["data"]["key"] == value;
    let on_member = until(&fleet.members[0].api, &kept, "there", PATIENCE, is("one")).await;

    // Under writes: what was acknowledged before it began is in it, and of the rest a part without gaps.
    let (written, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
    let maps = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
    let load = tokio::spawn(write_on(fleet.api.clone(), maps.clone(), written.clone(), stop.clone()));
    eventually("some writes", PATIENCE, || async {
        if written.load(Ordering::SeqCst) > 20 { Ok(()) } else { Err("not yet") }
    })
    .await;
    let before = written.load(Ordering::SeqCst);
    let at = |name: &str| fleet.dir.path().join(name);
    let (data, backup, new) = (at("hub"), at("hub.backup"), at("new"));
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let (from_data, to) = (option("data-dir", &data), option("to", &backup));
    let made = tokio::task::spawn_blocking(move || karmada_hub(&["backup", &from_data, &to]));
    let made = made.await.expect("no panic");
    assert!(made.status.success() && says(&made).contains("of a hub that is running"), "{}", says(&made));
    let after = written.load(Ordering::SeqCst) + 1;
    stop.cancel();
    load.await.expect("no panic");
    assert_eq!(fs::metadata(&backup).expect("a file").permissions().mode() & 0o777, 0o600);

    // Later, the hub is lost.
    let patch = json!({"data": {"key": "two"}});
    fleet.api.patch(&kept, karmada_client::Patch::Merge, &patch).await.expect("it is patched");
    until(&fleet.members[0].api, &kept, "changed", PATIENCE, is("two")).await;
    fleet.hub.kill();
    let restored = karmada_hub(&["restore", &option("from", &backup), &option("data-dir", &data)]);
    assert_eq!(restored.status.code(), Some(2), "{}", says(&restored));
    assert!(says(&restored).contains("is not empty"), "{}", says(&restored));
    let restored = karmada_hub(&["restore", &option("from", &backup), &option("data-dir", &new)]);
    assert!(restored.status.success(), "{}", says(&restored));
    fleet.hub.set_arg("--data-dir=", option("data-dir", &new));
    fleet.hub.spawn().expect("the hub starts");

    // The same certificate, the same agent, the same object; the hub's word of then counts when somebody says so.
    let confirm = ["confirm-restore", "--all", &option("kubeconfig", &new.join("admin.kubeconfig"))];
    eventually("it is confirmed", PATIENCE, || async {
        let confirmed = karmada_hub(&confirm);
        if confirmed.status.success() { Ok(()) } else { Err(says(&confirmed)) }
    })
    .await;
    until(&fleet.members[0].api, &kept, "changed back", PATIENCE, is("one")).await;
    fleet.ready("member1").await;
    let now = fleet.members[0].api.get(&kept).await.expect("it is there");
    assert_eq!(now["metadata"]["uid"], on_member["metadata"]["uid"]);
    assert!(fleet.members[0].agent.is_running());
    let list = fleet.api.get(&maps).await.expect("a list");
    let names = list["items"].as_array().into_iter().flatten();
    let mut loads: Vec<u64> = names
        .filter_map(|item| item["metadata"]["name"].as_str()?.strip_prefix("load-")?.parse().ok())
        .collect();
    loads.sort_unstable();
    assert_eq!(loads, (0..loads.len() as u64).collect::<Vec<_>>(), "no gaps");
    assert!((before..=after).contains(&(loads.len() as u64)), "{before} ≤ {} ≤ {after}", loads.len());

    // A hub that is stopped is backed up as well, and its like is the same.
    fleet.hub.terminate(PATIENCE).await.expect("it ends");
    let made = karmada_hub(&["backup", &option("data-dir", &new), &option("to", &backup)]);
    assert!(made.status.success() && says(&made).contains("of a hub that is stopped"), "{}", says(&made));
    let restored = karmada_hub(&["restore", &option("from", &backup), &option("data-dir", &at("third"))]);
    assert!(restored.status.success(), "{}", says(&restored));
    fleet.clean_up().await;
}
