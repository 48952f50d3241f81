//! How fast, how small: the main job measured on real processes, in release.
//!
//!     cargo bench -p karmada-tests --bench main_job [-- --samples N] [--burst N] [--idle SECONDS]
//!
//! A hub, two stand-in members and their agents run on this machine, each agent behind a proxy that counts its bytes.
//! Figures and the machine they were taken on are printed; nothing is asserted. The binaries are built by a `cargo
//! build` of their own, so that no test-only feature is in what is measured.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use clap::Parser;
use karmada_client::{Event, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_tests::{
    fleet::{Binaries, Fleet, Options},
    process::Process,
    wait::eventually,
};
use serde_json::{Value, json};

#[derive(Parser)]
struct Args {
    /// ConfigMaps for the latency figure, one after the other.
    #[arg(long, default_value_t = 300)]
    samples: usize,
    /// ConfigMaps of the burst.
    #[arg(long, default_value_t = 300)]
    burst: usize,
    /// Seconds over which an idle link is counted.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A stopwatch: a bench measures the real clock.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    let args = Args::parse();
    let binaries = build();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(&args, &binaries));
}

fn build() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--manifest-path"])
        .arg(&manifest)
        .args(["-p", "karmada-hub", "-p", "karmada-agent", "-p", "karmada-tests"])
        .args(["--bin", "karmada-hub", "--bin", "karmada-agent", "--bin", "kubesim"])
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the binaries do not build");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    target.join("release")
}

struct Figures(Vec<(String, String)>);

impl Figures {
    fn add(&mut self, what: impl Into<String>, value: impl Into<String>) {
        let (what, value) = (what.into(), value.into());
        println!("{what:<62} {value}");
        self.0.push((what, value));
    }
}

async fn run(args: &Args, folder: &Path) {
    let mut figures = Figures(Vec::new());
    machine(&mut figures);
    let binaries = Binaries::in_folder(folder);
    figures.add("hub start until /readyz, empty data directory, median of 5", hub_start(&binaries).await);

    let Some(fleet) = Fleet::start("bench", 2, &binaries, Options::default()).await else { return };
    fleet.create_namespace().await;
    let start: Vec<u64> = fleet.members.iter().map(|m| m.link.bytes().0 + m.link.bytes().1).collect();
    figures.add("bytes of an agent's start until Ready, both directions", format!("{start:?}"));
    fleet
        .create([json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "name": "all" },
            "spec": {
                "resourceSelectors": [{ "apiVersion": "v1", "kind": "ConfigMap" }],
                "placement": { "clusterAffinity": { "clusterNames": ["member1", "member2"] } },
            },
        })])
        .await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    memory(&mut figures, &fleet, "idle");
    idle_bytes(&mut figures, &fleet, args.idle).await;
    latency(&mut figures, &fleet, args.samples).await;
    burst(&mut figures, &fleet, args.burst).await;
    memory(&mut figures, &fleet, "after latency and burst");
}

fn machine(figures: &mut Figures) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .unwrap_or("")
        .trim_start_matches([' ', '\t', ':']);
    let cores = cpu.lines().filter(|l| l.starts_with("processor")).count();
    figures.add("machine", format!("{cores} x {model}"));
    let mut file = tempfile::tempfile().expect("a temporary file");
    let times = sorted((0..100).map(|_| sync_once(&mut file)).collect());
    figures.add("fdatasync of 4 KiB, median of 100", ms(times[times.len() / 2]));
}

fn sync_once(file: &mut File) -> Duration {
    let start = now();
    file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).expect("the disk takes a write");
    start.elapsed()
}

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort();
    times
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

fn mib(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "not running".into(), |b| format!("{:.1} MiB", b as f64 / f64::from(1 << 20)))
}

async fn hub_start(binaries: &Binaries) -> String {
    let mut times = Vec::new();
    for _ in 0..5 {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .expect("a free port")
            .port();
        let start = now();
        let args = [
            "serve".to_owned(),
            format!("--data-dir={}", dir.path().join("hub").display()),
            format!("--listen=127.0.0.1:{port}"),
        ];
        let mut hub = Process::start(dir.path(), "hub", &binaries.hub.0, args).expect("the hub starts");
        let http = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .timeout(Duration::from_secs(2))
            .build()
            .expect("a client");
        loop {
            match http.get(format!("https://127.0.0.1:{port}/readyz")).send().await {
                Ok(answer) if answer.status().is_success() => break,
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
            assert!(hub.is_running(), "the hub ended: {}", hub.log_tail(20));
        }
        times.push(start.elapsed());
    }
    ms(sorted(times)[2])
}

fn memory(figures: &mut Figures, fleet: &Fleet, when: &str) {
    figures.add(format!("hub resident memory, {when}"), mib(fleet.hub.resident()));
    for member in &fleet.members {
        figures.add(format!("agent resident memory, {}, {when}", member.name), mib(member.agent.resident()));
    }
}

async fn idle_bytes(figures: &mut Figures, fleet: &Fleet, seconds: u64) {
    let before: Vec<_> = fleet.members.iter().map(|m| m.link.bytes()).collect();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    for (member, before) in fleet.members.iter().zip(before) {
        let after = member.link.bytes();
        let (up, down) = (after.0 - before.0, after.1 - before.1);
        figures.add(
            format!("bytes on the socket, {}, idle over {seconds} s", member.name),
            format!("{:.1} B/s ({up} up, {down} down)", (up + down) as f64 / seconds as f64),
        );
    }
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": "value" } })
}

/// Names of ConfigMaps as they appear on a member.
async fn arrivals(
    fleet: &Fleet,
    member: usize,
    sender: tokio::sync::mpsc::UnboundedSender<(String, Instant)>,
) {
    let path = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
    let client = fleet.members[member].api.client().clone();
    let mut watcher = Watcher::new(client, WatchConfig::new(path), Env::system(), |text| {
        let object: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Ok(object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    });
    tokio::spawn(async move {
        loop {
            if let Event::Upsert(name) = watcher.next().await
                && sender.send((name, now())).is_err()
            {
                return;
            }
        }
    });
}

async fn latency(figures: &mut Figures, fleet: &Fleet, samples: usize) {
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    arrivals(fleet, 0, sender).await;
    let path = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
    let mut times = Vec::new();
    for n in 0..samples {
        let name = format!("one-{n}");
        let start = now();
        fleet.api.post(&path, &config_map(&name)).await.expect("a ConfigMap is created");
        let arrived = tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                match seen.recv().await {
                    Some((there, at)) if there == name => return at,
                    Some(_) => {}
                    None => std::process::exit(1),
                }
            }
        });
        times.push(arrived.await.expect("a ConfigMap arrives within 20 s") - start);
    }
    let times = sorted(times);
    let at = |p: usize| ms(times[(times.len() * p / 100).min(times.len() - 1)]);
    figures.add(
        format!("one ConfigMap from hub to member, {samples} samples"),
        format!("p50 {}, p99 {}, max {}", at(50), at(99), ms(times[times.len() - 1])),
    );
}

async fn burst(figures: &mut Figures, fleet: &Fleet, count: usize) {
    let path = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
    let start = now();
    let posts = (0..count).map(|n| {
        let (api, path) = (fleet.api.clone(), path.clone());
        tokio::spawn(async move { api.post(&path, &config_map(&format!("burst-{n}"))).await })
    });
    for post in posts.collect::<Vec<_>>() {
        post.await.expect("a task ends").expect("a ConfigMap is created");
    }
    let created = start.elapsed();
    eventually("the burst to be applied", Duration::from_secs(120), || async {
        for member in &fleet.members {
            let list = member.api.get(&path).await.map_err(|e| e.to_string())?;
            let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            let there = items
                .iter()
                .filter(|o| o["metadata"]["name"].as_str().is_some_and(|n| n.starts_with("burst-")))
                .count();
            if there < count {
                return Err(format!("{}: {there} of {count}", member.name));
            }
        }
        Ok(())
    })
    .await;
    figures.add(
        format!("{count} ConfigMaps to two members, all applied"),
        format!(
            "{:.2} s (created on the hub after {:.2} s)",
            start.elapsed().as_secs_f64(),
            created.as_secs_f64()
        ),
    );
}
