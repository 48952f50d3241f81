//! What a day costs on a link that is paid for by the byte: one cluster, a hub, and a day of paused time each.
//!
//!     cargo bench -p karmada-tests --bench days [-- --only quiet,away,failing,change,again,return,dead,alone] [--hours N]
//!         [--works N] [--link lan|cellular|satellite|scheduled] [--stock]
//!
//! Bytes are counted on the agent's wire, TLS included, and TCP's own left out. Times are virtual: what must be waited for, and
//! nothing that a processor takes. Nothing is asserted.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use karmada_agent::{Memory, Phase, Place};
use karmada_client::Patch;
use karmada_core::links::Link;
use karmada_env::{Random as _, SplitMix};
use karmada_tests::{
    bench::{Report, figures},
    fleet::condition,
    inprocess::{PATIENCE, World},
    kubesim::Config,
    link::Mode,
    samples,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Nothing happens.
    Quiet,
    /// The link swallows everything, and comes back.
    Away,
    /// A Work cannot be carried out.
    Failing,
    /// One object is changed.
    Change,
    /// The agent ends, and starts again.
    Again,
    /// It was away for an hour, and some objects have changed.
    Return,
    /// The link is dead until that is noticed, and back until all is well.
    Dead,
    /// The agent starts without the hub, and something is missing.
    Alone,
}

/// How often a link goes down for [`Figure::Dead`].
const HOLES: usize = 20;

/// How many objects change in an hour away.
const CHANGED: usize = 10;

#[derive(Clone, Debug, Parser)]
struct Args {
    /// Only these figures.
    #[arg(long, value_delimiter = ',', value_name = "FIGURE,...")]
    only: Vec<Figure>,
    /// How long a day is.
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// Works that the cluster has besides.
    #[arg(long, default_value_t = 20)]
    works: usize,
    /// What kind of link the agent is told that it has.
    #[arg(long)]
    link: Option<Link>,
    /// To the agent the hub is as a stock kube-apiserver is: it packs nothing, and knows nothing of ours.
    #[arg(long)]
    stock: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let report = runtime.expect("a runtime").block_on(measure(&args));
    print!("{report}");
}

async fn measure(args: &Args) -> Report {
    let mut report = Report::new();
    let day = Duration::from_secs(args.hours * 3600);
    for figure in figures(&args.only) {
        let mut world = world(args).await;
        let wire = world.members[0].wire.clone();
        let begin = wire.bytes();
        let kept = match &world.members[0].state.place {
            Place::Memory(memory) => memory.written(),
            _ => (0, 0),
        };
        let since = |(up, down): (u64, u64)| {
            let (sent, received) = wire.bytes();
            format!("{:.1} KB up, {:.1} KB down", (sent - up) as f64 / 1e3, (received - down) as f64 / 1e3)
        };
        match figure {
            Figure::Quiet => {
                sleep(day).await;
                let (sent, received) = wire.bytes();
                let rate = (sent + received - begin.0 - begin.1) as f64 / day.as_secs_f64();
                let measured = format!("{}: {rate:.1} B/s", since(begin));
                let aim = match args.link {
                    Some(Link::Lan) => "25 B/s",
                    Some(Link::Satellite) => "3 B/s",
                    _ => "50 B/s",
                };
                report.add(format!("{} quiet hours", args.hours), measured, aim, "");
                if let Place::Memory(memory) = &world.members[0].state.place {
                    let (writes, bytes) = memory.written();
                    let (writes, bytes) = (writes - kept.0, bytes - kept.1);
                    let measured = format!("{writes} times, {:.1} KB", bytes as f64 / 1e3);
                    report.add("the agent's state was written meanwhile", measured, "5 MB a day", "");
                }
            }
            Figure::Away => {
                wire.set(Mode::BlackHole);
                sleep(day).await;
                report.add(format!("{} hours away, sent in vain", args.hours), since(begin), "", "");
                let begin = wire.bytes();
                wire.set(Mode::Pass);
                sleep(Duration::from_secs(60)).await;
                report.add("the first minute after that", since(begin), "", "");
            }
            Figure::Failing => {
                let manifest = json!({
                    "apiVersion": "shop.io/v1", "kind": "Till", "metadata": {"name": "till", "namespace": World::NAMESPACE},
                    "spec": {"lanes": 3},
                });
                let work = json!({
                    "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                    "metadata": {"name": "failing", "namespace": "karmada-es-member1",
                                 "finalizers": ["karmada.io/execution-controller"]},
                    "spec": {"workload": {"manifests": [manifest]}},
                });
                let path = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-member1/works";
                world.api().post(path, &work).await.expect("a Work");
                sleep(day).await;
                report.add(
                    format!("{} hours with a Work of a kind that is not served", args.hours),
                    since(begin),
                    "",
                    "of a kind that is not served",
                );
            }
            Figure::Change => {
                change(&world, 1).await;
                sleep(AFTER).await;
                let all = wire.bytes();
                let aim = if args.stock { "9 KB" } else { "5 KB" };
                let on = if args.stock { " on a stock server" } else { "" };
                let figure = format!("one ConfigMap of 2 KB changed{on}, until 20 s later");
                let measured = since(begin);
                sleep(AFTER).await;
                let idle = wire.bytes();
                let sum = |(up, down): (u64, u64)| (up + down) as f64 / 1e3;
                let net = sum(all) - sum(begin) - (sum(idle) - sum(all));
                report.add(figure, format!("{measured}: {net:.1} KB without what crosses anyway"), aim, "");
                report.add("20 s in which nothing happens", since(all), "", "");
            }
            Figure::Again => {
                world.stop_agent(0).await;
                let begin = wire.bytes();
                world.start_agent(0);
                sleep(AFTER).await;
                report.add(format!("a start with {} Works kept", args.works), since(begin), "5 KB", "");
            }
            Figure::Return => {
                wire.set(Mode::BlackHole);
                sleep(Duration::from_secs(60)).await;
                change(&world, CHANGED).await;
                sleep(Duration::from_secs(3600)).await;
                let begin = wire.bytes();
                wire.set(Mode::Pass);
                sleep(Duration::from_secs(60)).await;
                let what = format!("an hour away, {CHANGED} of {} Works changed", args.works);
                report.add(what, since(begin), "40 KB", "the agent ran on");
                world.stop_agent(0).await;
                change(&world, CHANGED).await;
                sleep(Duration::from_secs(3600)).await;
                let begin = wire.bytes();
                world.start_agent(0);
                sleep(Duration::from_secs(60)).await;
                report.add("the same, the agent was not running", since(begin), "40 KB", "");
            }
            Figure::Dead => {
                let (mut dead, mut back) = (Vec::new(), Vec::new());
                for n in 0..HOLES {
                    let (noticed, well) = hole(&world, n).await;
                    dead.push(noticed);
                    back.push(well);
                }
                let aim = if args.link == Some(Link::Lan) { "8 s" } else { "17 s" };
                report.add("a link is dead until that is noticed, median / most", times(dead), aim, "");
                report.add("a link is back until all is well, median / most", times(back), "1 s", "");
            }
            Figure::Alone => {
                let path = samples::config_map_path(World::NAMESPACE, "c0");
                wire.set(Mode::Refuse);
                world.kill_agent(0).await;
                let api = world.members[0].api.clone();
                let before = api.delete(&path, &json!({})).await.expect("it is deleted");
                world.start_agent(0);
                let begun = Instant::now();
                world
                    .member_until(0, &path, "back", PATIENCE, |object| {
                        object["metadata"]["uid"] != before["metadata"]["uid"]
                    })
                    .await;
                let took = format!("{:.2} s", begun.elapsed().as_secs_f64());
                report.add("an agent starts without the hub until what is missing is back", took, "2 s", "");
            }
        }
        world.stop().await;
    }
    report
}

/// The link swallows everything for a minute and more: how long until the agent knows, and from the link's return until the hub
/// says that all is well.
async fn hole(world: &World, n: usize) -> (Duration, Duration) {
    let member = &world.members[0];
    let agent = member.agent.as_ref().expect("the agent runs");
    // At any time between two renewals.
    sleep(Duration::from_secs(60) + Duration::from_millis(730 * n as u64)).await;
    member.wire.set(Mode::BlackHole);
    let cut = Instant::now();
    while agent.link.is_connected() {
        sleep(Duration::from_millis(10)).await;
    }
    let noticed = cut.elapsed();
    sleep(Duration::from_secs(75) + Duration::from_millis(370 * n as u64)).await;
    member.wire.set(Mode::Pass);
    let back = Instant::now();
    agent.phase("at work", PATIENCE, |phase| *phase == Phase::Active).await;
    // One that was lost so often is held out of new scheduling for a while; that is not what is waited for.
    let is_well = |cluster: &Value| {
        condition(cluster, "Ready") == Some("True")
            && !cluster["spec"]["taints"].to_string().contains("cluster.karmada.io/unreachable")
    };
    world.cluster_until(&member.name, "well", PATIENCE, is_well).await;
    (noticed, back.elapsed())
}

/// The middle and the longest of some times.
fn times(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |n: usize| times.get(n).copied().unwrap_or_default().as_secs_f64();
    format!("{:.2} / {:.2} s", at(times.len() / 2), at(times.len().saturating_sub(1)))
}

/// For how long what is done is counted.
const AFTER: Duration = Duration::from_secs(20);

/// 2 KB that hardly get smaller, other ones each time.
fn text(seed: u64) -> String {
    let random = SplitMix::new(seed);
    std::iter::repeat_with(|| format!("{:016x}", random.next_u64())).take(128).collect()
}

/// Changes so many ConfigMaps.
async fn change(world: &World, count: usize) {
    let api = world.api();
    for n in 0..count {
        let path = samples::config_map_path(World::NAMESPACE, &format!("c{n}"));
        let now = world.env().now().as_millis() as u64;
        let data = json!({"data": {"key": text(now + n as u64)}});
        api.patch(&path, Patch::Merge, &data).await.expect("a change");
    }
}

/// A hub and a member that are settled.
async fn world(args: &Args) -> World {
    let mut world = World::start(7, 0).await;
    (world.link, world.stock) = (args.link, args.stock);
    world.join_with("member1", &Config::default(), Place::Memory(Memory::default())).await;
    world.create([samples::policy("all", samples::selector("v1", "ConfigMap", ""), &["member1"])]).await;
    for n in 0..args.works {
        world.create([samples::config_map(&format!("c{n}"), &text(n as u64))]).await;
    }
    world.ready("member1", PATIENCE).await;
    // Until what was gathered is told.
    sleep(Duration::from_secs(900)).await;
    world
}
