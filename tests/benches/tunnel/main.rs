//! Members that are reached by a tunnel: what it costs, how fast it is, and what it does to leases and Works.
//!
//!     cargo bench -p karmada-tests --bench tunnel [-- --binaries DIR] [--only idle,first,throughput,gives-way,many]
//!
//! One hub, one agent and one stand-in member with a kubelet's front, all on this machine; for `many` as many agents and members
//! as are asked for. Nothing is asserted.

use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use karmada_client::{
    Event, Kubeconfig, Rest, WatchConfig, Watcher,
    link::{Io, direct},
};
use karmada_env::Env;
use karmada_meta::time::MicroTime;
use karmada_tests::{
    bench::{
        self, Common, Report, now, percentile,
        report::{mb, ms, seconds},
        resident, until,
    },
    fleet::{Binaries, Fleet, Member, Options, cluster_path, server_of},
    kubelet,
    link::{Mode, Slow},
    samples,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{sleep, timeout},
};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Bytes of a tunnel that nobody uses.
    Idle,
    /// Until the first byte of an answer is there.
    First,
    /// A large answer, and a large session.
    Throughput,
    /// Leases and Works on a thin link that a stream takes all of.
    GivesWay,
    /// Memory of a hub with many agents, of which some have sessions.
    Many,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common<Figure>,
    /// Seconds for which a thin link is measured, once free and once full.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Agents for `many`, each beside a member of its own.
    #[arg(long, default_value_t = 1_000)]
    agents: usize,
    /// And sessions, on as many members as there are.
    #[arg(long, default_value_t = 200)]
    sessions: usize,
}

/// 256 kbit/s and 300 ms there and back, before which a router keeps ten seconds of what one connection sends: if a stream
/// were to fill that, a lease would come ten seconds late.
const THIN: Slow = Slow {
    latency: Duration::from_millis(150),
    bytes_per_second: 32_000,
    queue: Duration::from_secs(10),
    stalls: None,
};
/// A session that says back what it hears.
const ATTACH: &str = "/api/v1/namespaces/default/pods/p/attach?stdin=true";
const UPGRADE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: AAAA\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-protocol: v5.channel.k8s.io\r\n";
/// When a Work counts as lost.
const LOST: Duration = Duration::from_secs(60);
/// Before memory is looked at.
const SETTLE: Duration = Duration::from_secs(10);

fn main() {
    let args = Args::parse();
    bench::print(2, measure(&args, args.common.binaries()));
}

async fn measure(args: &Args, binaries: Binaries) -> Report {
    let mut report = Report::new();
    let mut bed = None;
    for figure in args.common.figures() {
        if *figure == Figure::Many {
            bed = None;
            many(args, &binaries, &mut report).await;
            continue;
        }
        let bed = match &bed {
            Some(bed) => bed,
            None => bed.insert(Bed::new(&binaries).await),
        };
        match figure {
            Figure::Idle => bed.idle(&mut report).await,
            Figure::First => bed.first(&mut report).await,
            Figure::Throughput => bed.throughput(&mut report).await,
            Figure::GivesWay => bed.gives_way(args, &mut report).await,
            Figure::Many => {}
        }
    }
    report
}

struct Bed {
    fleet: Fleet,
    proxy: String,
    /// The member without a hub between.
    straight: Rest,
}

/// A large answer, or one without end.
fn log(query: &str) -> String {
    format!("/api/v1/namespaces/default/pods/p/log?{query}")
}

impl Bed {
    async fn new(binaries: &Binaries) -> Self {
        let options = options(&["--cluster-lease-duration=4s"], false);
        let fleet = Fleet::start("tunnels", 1, binaries, options).await.expect("a fleet");
        let member = &fleet.members[0];
        front(&fleet, member).await;
        let proxy = format!("{}/proxy", cluster_path(&member.name));
        let straight = karmada_tests::fleet::rest(&member.kubeconfig);
        fleet.create_namespace().await;
        Self { fleet, proxy, straight }
    }

    async fn get(&self, path: &str) -> Duration {
        let start = now();
        self.fleet
            .api
            .get_text(&format!("{}{path}", self.proxy))
            .await
            .expect("an answer through the tunnel");
        start.elapsed()
    }

    /// Bytes on the agent's link, both ways.
    fn crossed(&self) -> u64 {
        let (up, down) = self.fleet.members[0].link.bytes();
        up + down
    }

    async fn closed(&self) {
        until("the tunnel to end", || async {
            let page = self.fleet.api.get_text("/metrics").await.unwrap_or_default();
            page.lines().any(|line| line == "karmada_hub_tunnels_open 0")
        })
        .await;
    }

    async fn idle(&self, report: &mut Report) {
        let span = Duration::from_secs(50);
        self.closed().await;
        let before = self.crossed();
        sleep(span).await;
        let without = self.crossed() - before;
        self.get("/version").await;
        sleep(Duration::from_secs(2)).await;
        let before = self.crossed();
        sleep(span).await;
        let open = self.crossed() - before;
        self.closed().await;
        let before = self.crossed();
        sleep(span).await;
        let after = self.crossed() - before;
        let rate = |bytes: u64| bytes as f64 / span.as_secs_f64();
        report.add(
            "the agent's link with leases every second: before a tunnel is used / while it is open and unused, for a minute \
             at most / after that",
            format!("{:.0} / {:.0} / {:.0} B/s", rate(without), rate(open), rate(after)),
            "the same",
            "",
        );
    }

    async fn first(&self, report: &mut Report) {
        for (link, mode, samples) in
            [("loopback", Mode::Pass, 300), ("256 kbit/s, 300 ms", Mode::Slow(THIN), 30)]
        {
            self.closed().await;
            self.fleet.members[0].link.set(mode);
            let opening = self.get("/version").await;
            let (mut through, mut straight) = (Vec::new(), Vec::new());
            for _ in 0..samples {
                through.push(self.get("/version").await);
                let start = now();
                self.straight.get_text("/version").await.expect("an answer of the member");
                straight.push(start.elapsed());
            }
            through.sort();
            straight.sort();
            report.add(
                format!("{link}: a get by the tunnel, p50 / p99; the first, which has it opened; a get of the member beside it"),
                format!(
                    "{} / {}; {}; {} / {}",
                    ms(percentile(&through, 50)),
                    ms(percentile(&through, 99)),
                    ms(opening),
                    ms(percentile(&straight, 50)),
                    ms(percentile(&straight, 99))
                ),
                "one round trip of the link + 5 ms",
                "",
            );
        }
        self.fleet.members[0].link.set(Mode::Pass);
    }

    async fn stream(&self, path: &str, upgrade: &str) -> Box<dyn Io> {
        stream(&self.fleet, &self.proxy, path, upgrade).await
    }

    async fn throughput(&self, report: &mut Report) {
        let megabytes = 300_u64;
        self.get("/version").await;
        let rate =
            |bytes: u64, took: Duration| format!("{:.0} MB/s", bytes as f64 / 1e6 / took.as_secs_f64());
        let large = log(&format!("limitBytes={}", megabytes * 1_000_000));
        let mut stream = self.stream(&large, "").await;
        let (start, mut got, mut chunk) = (now(), 0, vec![0; 256 << 10]);
        while got < megabytes * 1_000_000 {
            let read = stream.read(&mut chunk).await.expect("more of it");
            assert!(read > 0, "it ended after {got} bytes");
            got += read as u64;
        }
        let answer = rate(got, start.elapsed());
        drop(stream);
        let stream = self.stream(ATTACH, UPGRADE).await;
        let (mut from, mut to) = tokio::io::split(stream);
        let whole = 100_000_000_usize;
        let start = now();
        let writing = tokio::spawn(async move {
            let chunk = vec![7; 64 << 10];
            let mut sent = 0;
            while sent < whole {
                let part = chunk.len().min(whole - sent);
                to.write_all(&chunk[..part]).await.expect("it is taken");
                sent += part;
            }
            to.flush().await.expect("it is taken");
            to
        });
        let mut got = 0;
        while got < whole {
            got += from.read(&mut chunk).await.expect("more of it");
        }
        let both = rate(whole as u64, start.elapsed());
        drop(writing.await);
        report.add(
            "loopback: a large answer / a session that says back what it hears, each way",
            format!("{answer} / {both}"),
            "100 MB/s",
            "",
        );
    }

    async fn gives_way(&self, args: &Args, report: &mut Report) {
        let fleet = &self.fleet;
        let member = &fleet.members[0];
        let span = Duration::from_secs(args.seconds);
        let policy = samples::policy("all", samples::selector("v1", "ConfigMap", ""), &[&member.name]);
        fleet.create([policy]).await;
        let path = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
        let mut arrivals = arrivals(&member.api, &path);
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{}", member.name);
        let mut rows = Vec::new();
        for (what, streams) in [("free", 0), ("one stream", 1), ("eight streams", 8)] {
            member.link.set(Mode::Pass);
            self.closed().await;
            member.link.set(Mode::Slow(THIN));
            let mut open = Vec::new();
            for _ in 0..streams {
                let mut stream = self.stream(&log("follow=true&limitBytes=1000000000"), "").await;
                open.push(tokio::spawn(async move {
                    let (mut got, mut chunk) = (0_u64, vec![0; 64 << 10]);
                    let _ = timeout(span, async {
                        while let Ok(read @ 1..) = stream.read(&mut chunk).await {
                            got += read as u64;
                        }
                    })
                    .await;
                    got
                }));
            }
            let start = now();
            let renewals = renewals(&fleet.api, &lease, span);
            let works = async {
                let mut times = Vec::new();
                while start.elapsed() < span {
                    let name = format!("{}-{}", what.replace(' ', "-"), times.len());
                    let start = now();
                    fleet.api.post(&path, &samples::config_map(&name, "value")).await.expect("a ConfigMap");
                    let arrived = timeout(LOST, arrival(&mut arrivals, &name)).await;
                    times.push(
                        arrived.unwrap_or_else(|_| panic!("{name} was not there after {LOST:?}")) - start,
                    );
                    sleep(Duration::from_millis(200)).await;
                }
                times
            };
            let (mut leases, mut works) = tokio::join!(renewals, works);
            let mut got = 0;
            for one in open {
                got += one.await.unwrap_or_default();
            }
            leases.sort();
            works.sort();
            rows.push(format!(
                "{what}: {} ({} renewals) / {} ({} Works){}",
                seconds(percentile(&leases, 99)),
                leases.len(),
                seconds(percentile(&works, 99)),
                works.len(),
                if streams > 0 {
                    format!(", {:.0} kbit/s of it taken by streams", got as f64 / 125.0 / span.as_secs_f64())
                } else {
                    String::new()
                },
            ));
        }
        member.link.set(Mode::Pass);
        report.add(
            "256 kbit/s, 300 ms: p99 of a renewal until the hub has it / of a ConfigMap until it is on the member",
            rows.join("; "),
            "twice as long as when it is free, and 1 s",
            "",
        );
    }
}

/// How a fleet with tunnels is started.
fn options(agent: &[&str], direct: bool) -> Options {
    let flags = |flags: &[&str]| flags.iter().map(|&flag| flag.to_owned()).collect::<Vec<_>>();
    let mut all = flags(&["--tunnel=full", "--tunnel-masters"]);
    all.extend(flags(agent));
    let hub = flags(&["--cluster-monitor-grace-period=120s"]);
    Options { agent: all, hub, direct, ..Options::default() }
}

/// Puts a kubelet's front before a member, which its agent takes instead.
async fn front(fleet: &Fleet, member: &Member) {
    let account = "/api/v1/namespaces/karmada-system/serviceaccounts";
    for (path, object) in [
        ("/api/v1/namespaces", samples::namespace("karmada-system")),
        (
            account,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "karmada-agent-tunnel"}}),
        ),
    ] {
        let made = member.api.post(path, &object).await;
        assert!(made.as_ref().is_ok() || made.as_ref().is_err_and(|e| e.is_already_exists()), "{made:?}");
    }
    let front = kubelet::before(&member.api).await;
    let kubeconfig = kubelet::kubeconfig(front);
    std::fs::write(&member.kubeconfig, kubeconfig.to_string()).expect("a kubeconfig is written");
    until("the agent to take the other kubeconfig", || async {
        member.agent.log_tail(200).contains("was replaced by the one in the file")
    })
    .await;
    until("the hub to know of the tunnel", || async {
        let cluster = fleet.api.get(&cluster_path(&member.name)).await.unwrap_or_default();
        cluster["metadata"]["annotations"]["agent.karmada.io/tunnel"] == "full"
    })
    .await;
}

/// A connection to the hub on which a member is asked something.
async fn stream(fleet: &Fleet, proxy: &str, path: &str, upgrade: &str) -> Box<dyn Io> {
    let endpoint = Kubeconfig::load(&fleet.kubeconfig).and_then(|k| k.endpoint(None)).expect("a kubeconfig");
    let mut stream = direct::connect(&endpoint, |_| None).await.expect("the hub");
    let host = server_of(&fleet.kubeconfig);
    let request = format!("GET {proxy}{path} HTTP/1.1\r\nhost: {host}\r\n{upgrade}\r\n");
    stream.write_all(request.as_bytes()).await.expect("the hub hears");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("headers end"));
    }
    let head = String::from_utf8_lossy(&head);
    assert!(head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

/// What sessions take of a hub beside many agents.
async fn many(args: &Args, binaries: &Binaries, report: &mut Report) {
    let fleet = Fleet::start("sessions", args.agents, binaries, options(&[], true)).await.expect("a fleet");
    let reached: Vec<&Member> = fleet.members.iter().take(args.sessions).collect();
    for member in &reached {
        front(&fleet, member).await;
    }
    sleep(SETTLE).await;
    let idle = resident(&fleet.hub);
    let mut open = Vec::new();
    for number in 0..args.sessions {
        let member = reached[number % reached.len()];
        let proxy = format!("{}/proxy", cluster_path(&member.name));
        let mut session = stream(&fleet, &proxy, ATTACH, UPGRADE).await;
        // Something has gone both ways.
        session.write_all(&[7; 64 << 10]).await.expect("it is taken");
        session.read_exact(&mut vec![0; 64 << 10]).await.expect("it comes back");
        open.push(session);
    }
    sleep(SETTLE).await;
    let with = resident(&fleet.hub);
    report.add(
        format!(
            "{} agents with tunnels, {} sessions on {} of them: resident memory of the hub above that with the agents alone",
            args.agents,
            open.len(),
            reached.len()
        ),
        format!("{} ({} in all)", mb(with.saturating_sub(idle)), mb(with)),
        "≤ 150 MB",
        "",
    );
}

/// How long each renewal took from when the agent wrote it until the hub had it.
async fn renewals(hub: &Rest, lease: &str, span: Duration) -> Vec<Duration> {
    let (collection, name) = lease.rsplit_once('/').expect("a path");
    let field = format!("metadata.name={name}");
    let config = WatchConfig::new(collection).fields(&field);
    let project = |text: &str| {
        let object: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Ok(object["spec"]["renewTime"].as_str().unwrap_or_default().to_owned())
    };
    let mut watcher = Watcher::new(hub.client().clone(), config, Env::system(), project);
    let (mut times, mut first) = (Vec::new(), true);
    let _ = timeout(span, async {
        loop {
            if let Event::Upsert(written) = watcher.next().await {
                let at: MicroTime = written.parse().expect("a time");
                let late = at.elapsed(Env::system().wall());
                // What was there before says nothing.
                if !std::mem::take(&mut first) {
                    times.push(late);
                }
            }
        }
    })
    .await;
    times
}

/// Names of objects as they appear.
fn arrivals(api: &Rest, path: &str) -> UnboundedReceiver<(String, Instant)> {
    let (sender, receiver) = unbounded_channel();
    let project = |text: &str| {
        let object: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Ok(object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    };
    let mut watcher = Watcher::new(api.client().clone(), WatchConfig::new(path), Env::system(), project);
    tokio::spawn(async move {
        loop {
            if let Event::Upsert(name) = watcher.next().await
                && sender.send((name, now())).is_err()
            {
                return;
            }
        }
    });
    receiver
}

async fn arrival(arrivals: &mut UnboundedReceiver<(String, Instant)>, name: &str) -> Instant {
    loop {
        let (arrived, at) = arrivals.recv().await.expect("a watch never ends");
        if arrived == name {
            return at;
        }
    }
}
