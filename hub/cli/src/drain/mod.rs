//! `karmada-hub drain`: what runs on a cluster moves to others, and serves throughout.
//!
//! ```text
//!   cordon ─▶ every binding there: can it go? ─▶ an eviction task ─▶ the hub places it, waits until the new copies are
//!                    │                                               healthy, removes the old one
//!                    └▶ no: it is left as it is, and told
//! ```
//!
//! The tasks are what the taint manager would write, in the user's name: the hub carries them out whether it evicts by
//! itself or not, and goes on when this command ends. None is written where nothing else can take the object, and no old
//! copy is removed before the new ones are healthy, unless the user says so.

mod plan;

use std::{collections::BTreeMap, time::Duration};

use karmada_api::{consts::extension, policy::PurgeMode, work::TargetCluster};
use karmada_core::{
    evict::{self, Cause, Eviction},
    fleet::Fleet,
    health::Ready,
    suppose,
};
use karmada_env::Env;
use karmada_meta::time::{Time, human_duration};
use karmada_objects::{Part, bindings, scope::BindingKey};
use serde_json::{Value, json};

use self::plan::{Plan, Progress, plan, progress};
use super::{
    Failure,
    args::DrainArgs,
    ask::Server,
    cordon,
    explain::places,
    known,
    placed::{self, Bound, Groups},
    print, progress as shown,
    told::{Told, one_line},
};

/// Between two looks at the bindings that are moving.
const LOOK: Duration = Duration::from_millis(500);
/// How long a copy without a healthy successor waits, unless the user names a time: as long as a task can say.
const FOR_EVER: i32 = i32::MAX;

/// How a cluster is drained.
#[derive(Clone, Copy, Debug)]
pub(super) struct How<'a> {
    pub cluster: &'a str,
    /// An old copy goes after this time, whatever the new ones are like.
    pub grace: Option<Duration>,
    /// What no other cluster can take leaves, too.
    pub force: bool,
    pub dry_run: bool,
}

/// Who is told what comes of each object: a line for people, and the same for programs.
pub(super) type Say<'a> = dyn FnMut(&str, Value) -> Result<(), Failure> + Send + 'a;

/// What has been begun.
#[derive(Debug)]
pub(super) struct Begun {
    /// What leaves the cluster.
    pub moving: Vec<(BindingKey, String)>,
    /// What cannot, and why.
    pub stuck: Vec<String>,
}

/// Cordons a cluster, and has everything leave that can.
pub(super) async fn start(server: &Server, how: How<'_>, say: &mut Say<'_>) -> Result<Begun, Failure> {
    let cluster = how.cluster;
    let done = cordon::cordoned(server, cluster, how.dry_run).await?;
    let dry = if how.dry_run { " (dry run)" } else { "" };
    let word = if done { "cordoned" } else { "already cordoned" };
    let first = json!({"cluster": cluster, "result": word, "dryRun": how.dry_run});
    say(&format!("{cluster} cluster {word}{dry}"), first)?;
    let all = look(server, cluster).await?;
    if all.silent {
        let line = format!(
            "{cluster} is not heard of: copies there are removed when it reports again, whatever has moved until then"
        );
        say(&line, json!({"cluster": cluster, "result": "not heard of"}))?;
    }
    begin(server, &all, how, say).await
}

/// Moves what runs on a cluster elsewhere.
pub(super) async fn run(args: DrainArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let (cluster, told) = (args.name.as_str(), args.told);
    let how = How { cluster, grace: args.grace_period, force: args.force, dry_run: args.dry_run };
    let Begun { moving, stuck } = start(&server, how, &mut |line, value| told.say(line, &value)).await?;
    if args.dry_run {
        return finish(told, cluster, moving.len(), &stuck, "would move");
    }
    if !args.wait || moving.is_empty() {
        if !moving.is_empty() && !told.is_json() {
            print(&format!(
                "The hub goes on by itself; `karmada-hub drain {cluster} --wait` shows how far it is.\n"
            ))?;
        }
        return finish(told, cluster, moving.len(), &stuck, "moving");
    }
    let waiting = follow(&server, cluster, moving, told, &env);
    let waiting = async {
        match args.timeout.filter(|timeout| !timeout.is_zero()) {
            None => waiting.await,
            Some(timeout) => tokio::time::timeout(timeout, waiting).await.unwrap_or_else(|_| {
                Err(Failure::failed(format!(
                    "{cluster} is not drained after {}; the hub goes on by itself, and `karmada-hub drain {cluster} --wait` \
                     shows how far it is",
                    human_duration(timeout)
                )))
            }),
        }
    };
    let back = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {
            return Err(Failure::failed(format!(
                "interrupted; what is moving goes on, and {cluster} stays cordoned: `karmada-hub uncordon {cluster}` lets \
                 objects come to it again, `karmada-hub failback --cluster {cluster}` brings back what has left"
            )));
        }
        back = waiting => back?,
    };
    let (count, back) = back;
    let stuck: Vec<_> = stuck.into_iter().chain(back).collect();
    finish(told, cluster, count, &stuck, "moved")
}

/// What would become of an object if a cluster was drained: in one word, where it would be, and why it would not go.
pub(super) fn supposed(
    bound: &Bound,
    groups: &Groups,
    fleet: &Fleet,
    cluster: &str,
) -> (&'static str, Vec<TargetCluster>, String) {
    let stays = || bound.placed().to_vec();
    match plan(bound, groups, fleet, cluster) {
        Plan::Move(clusters) => ("moves", clusters, String::new()),
        Plan::UnderWay => ("moves", stays(), "it is on its way already".to_owned()),
        Plan::Follow => ("follows", stays(), "it goes where what refers to it goes".to_owned()),
        Plan::Leave(why) => ("stays", stays(), format!("nothing of it runs: {why}")),
        Plan::Daemons(why) => ("stays", stays(), why),
        Plan::Stuck(why) => ("stuck", stays(), why),
    }
}

/// What is on a cluster, and everything that is asked to decide where it can go.
struct Around {
    bounds: Vec<Bound>,
    groups: Groups,
    fleet: Fleet,
    /// Whether the cluster does not report.
    silent: bool,
}

async fn look(server: &Server, cluster: &str) -> Result<Around, Failure> {
    let clusters = known::clusters(server).await?;
    known::check_names(&clusters, [&cluster.to_owned()])?;
    let silent = clusters.get(cluster).is_none_or(|live| {
        let conditions = live.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let ready = karmada_api::conditions::find(conditions, karmada_api::consts::condition::READY);
        matches!(Ready::from_status(ready.map(|c| c.status.as_str())), Ready::Unknown | Ready::Never)
    });
    let fleet = Fleet::of(clusters.into_values());
    // A dry run has not cordoned it.
    let cordoned = karmada_api::cluster::Taint::new(
        karmada_api::consts::taint::UNSCHEDULABLE,
        karmada_api::consts::taint::NO_SCHEDULE,
    );
    let fleet = suppose::changed(&fleet, &BTreeMap::from([(cluster.to_owned(), vec![cordoned])]));
    let (mut groups, mut bounds) = (Groups::default(), Vec::new());
    placed::each_binding(server, None, |bound| {
        groups.note(&bound);
        let leaves = bound.spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == cluster);
        if leaves || bound.placed().iter().any(|target| target.name == cluster) {
            bounds.push(bound);
        }
    })
    .await?;
    Ok(Around { bounds, groups, fleet, silent })
}

/// Has everything leave that can, and says of each object what becomes of it. The bindings that are moving, and what
/// cannot.
async fn begin(server: &Server, all: &Around, how: How<'_>, say: &mut Say<'_>) -> Result<Begun, Failure> {
    let cluster = how.cluster;
    let (mut moving, mut stuck, mut meant) = (Vec::new(), Vec::new(), false);
    for bound in &all.bounds {
        let object = bound.object();
        let mut to: Option<Value> = None;
        let (result, line) = match plan(bound, &all.groups, &all.fleet, cluster) {
            Plan::Move(clusters) => {
                if !how.dry_run {
                    // Its agent would wait for that with all of it.
                    if !std::mem::replace(&mut meant, true) {
                        cordon::removals_are_meant(server, cluster).await?;
                    }
                    evict(server, bound, how).await?;
                }
                moving.push((bound.key.clone(), object.clone()));
                to = Some(json!(clusters));
                ("moves", format!("{object}: goes to {}", places(&clusters)))
            }
            Plan::UnderWay => {
                moving.push((bound.key.clone(), object.clone()));
                ("on its way", format!("{object}: is on its way already"))
            }
            Plan::Follow => ("follows", format!("{object}: goes where what refers to it goes")),
            Plan::Leave(why) => ("stays", format!("{object}: stays, nothing of it runs ({why})")),
            Plan::Daemons(why) => (
                "stays",
                format!("{object}: stays, and a {}'s Pods with it ({why})", bound.spec.resource.kind),
            ),
            Plan::Stuck(why) if how.force => {
                if !how.dry_run {
                    // Its agent would wait for that with all of it.
                    if !std::mem::replace(&mut meant, true) {
                        cordon::removals_are_meant(server, cluster).await?;
                    }
                    evict(server, bound, how).await?;
                }
                moving.push((bound.key.clone(), object.clone()));
                ("leaves", format!("{object}: leaves without a place to go: {why}"))
            }
            Plan::Stuck(why) => {
                stuck.push(format!("{object}: {why}"));
                ("cannot move", format!("{object}: CANNOT MOVE: {why}"))
            }
        };
        // What a person reads after the object's name is the why of it.
        let why = line.strip_prefix(&format!("{object}: ")).unwrap_or_default();
        say(&line, json!({"object": object, "result": result, "to": to, "message": why}))?;
    }
    Ok(Begun { moving, stuck })
}

/// Writes the task that has an object leave.
async fn evict(server: &Server, bound: &Bound, how: How<'_>) -> Result<(), Failure> {
    let cluster = how.cluster;
    let now = Time::from_system(server.now());
    let grace = how.grace.map_or(if how.force { None } else { Some(FOR_EVER) }, |grace| {
        Some(i32::try_from(grace.as_secs()).unwrap_or(FOR_EVER))
    });
    let mut unreadable = None;
    let begin = |live: &mut Value| {
        let scope = bound.key.scope;
        let spec = match Bound::read(scope, live) {
            Ok(bound) => bound.spec,
            Err(failure) => {
                unreadable = Some(failure);
                return false;
            }
        };
        let eviction = Eviction {
            cluster,
            cause: Cause::NoExecute,
            producer: extension::CLUSTER_DRAIN,
            message: format!("{cluster} is being drained"),
            purge_mode: PurgeMode::Gracefully,
            preserved: BTreeMap::new(),
        };
        let begun = evict::begin(live, &spec, &eviction, now);
        let tasks = live.pointer_mut("/spec/gracefulEvictionTasks").and_then(Value::as_array_mut);
        let task = tasks
            .into_iter()
            .flatten()
            .find(|task| task["fromCluster"] == cluster && task["producer"] == extension::CLUSTER_DRAIN);
        if let Some(task) = task {
            // No taint is the cause, and no taint's going ends it.
            task["reason"] = extension::DRAINED.into();
            if let Some(grace) = grace {
                task["gracePeriodSeconds"] = json!(grace);
            }
        }
        begun
    };
    let written =
        server.objects.modify(bindings::resource(bound.key.scope), &bound.key.key, Part::Main, begin).await;
    written.map_err(|e| server.failure(&e))?;
    unreadable.map_or(Ok(()), Err)
}

/// Shows how far the objects are until all have left or were given back: how many left, and what was given back.
async fn follow(
    server: &Server,
    cluster: &str,
    moving: Vec<(BindingKey, String)>,
    told: Told,
    env: &Env,
) -> Result<(usize, Vec<String>), Failure> {
    let total = moving.len();
    let mut waiting: BTreeMap<BindingKey, (String, Progress)> =
        moving.into_iter().map(|(key, object)| (key, (object, Progress::Gone))).collect();
    let (mut gone, mut back) = (0usize, Vec::new());
    let shown = shown::Progress::new("moved", Some(total as u64), env);
    while !waiting.is_empty() {
        let keys: Vec<_> = waiting.keys().cloned().collect();
        for key in keys {
            let bound = match placed::binding(server, &key).await {
                Ok(bound) => bound,
                // The hub may be restarted meanwhile; it goes on then.
                Err(Failure::Failed(reason) | Failure::Answered { why: reason, .. })
                    if !server.is_connected() =>
                {
                    eprintln!("karmada-hub: {}; trying again", one_line(&reason));
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let now = progress(bound.as_ref(), cluster);
            let Some((object, before)) = waiting.get_mut(&key) else { continue };
            if *before == now && now != Progress::Gone {
                continue;
            }
            let left = total - gone - back.len();
            shown.clear();
            match &now {
                Progress::Gone => {
                    gone += 1;
                    let value =
                        json!({"object": object, "result": "moved", "left": left - 1, "total": total});
                    told.say(&format!("{object}: has left ({} of {total} to go)", left - 1), &value)?;
                }
                Progress::Waits(what) => {
                    let value = json!({"object": object, "result": "waits", "message": what});
                    told.say(&format!("{object}: waits for {what}"), &value)?;
                }
                Progress::Back(why) => {
                    let value = json!({"object": object, "result": "cannot move", "message": why});
                    told.say(&format!("{object}: CANNOT MOVE: {why}"), &value)?;
                    back.push(format!("{object}: {why}"));
                }
            }
            if matches!(now, Progress::Waits(_)) {
                *before = now;
            } else {
                waiting.remove(&key);
            }
        }
        if let Some((object, _)) = waiting.values().next() {
            shown.is_at((total - waiting.len()) as u64, object);
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok((gone, back))
}

/// What it came to. What cannot move is a failure.
fn finish(told: Told, cluster: &str, count: usize, stuck: &[String], word: &str) -> Result<(), Failure> {
    let objects = |count: usize| if count == 1 { "1 object".to_owned() } else { format!("{count} objects") };
    let value = json!({"cluster": cluster, "result": word, "objects": count, "cannotMove": stuck});
    told.say(&format!("{} {word}, {} cannot move", objects(count), stuck.len()), &value)?;
    if stuck.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} cannot leave {cluster} without being missed (let other clusters take them, or --force): {}",
        objects(stuck.len()),
        stuck.join("; ")
    )))
}
