//! Links that come and go by the second while both sides change, and whether all agrees when they stay.
//!
//! ```text
//!   user ─ templates, values, places ─▶ hub ◀── wires: 5 to 14 s up, 5 to 9 s down in some way ──▶ agents ─▶ members
//!                                        │                                                  meddler ──▶ objects of ours
//!                                        ▼                                                              and of others
//!           in the end: templates = Works = members' objects; others' objects as they were left; nothing moves any more
//! ```
//!
//! A link that is up for less than it takes to notice that a connection is dead, or to list everything, gets nothing done
//! where progress is not kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use karmada_agent::{Memory, Place};
use karmada_client::Patch;
use karmada_env::{Random, SplitMix};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    kubesim,
    link::Mode,
    samples::{self, condition_of, config_map_path, policy_path, works_path},
};

/// How long a link is up, in seconds.
const UP: (u64, u64) = (5, 14);
/// And down.
const DOWN: (u64, u64) = (5, 9);
/// How long all may take to agree once links stay up.
const AGREE: Duration = Duration::from_secs(120);
/// For how long nothing may move after that.
const STILL: Duration = Duration::from_secs(300);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// How many members there are.
    pub members: usize,
    /// How many templates there may be.
    pub templates: u64,
    /// For how long links come and go.
    pub length: Duration,
}

/// What happened, when all was well.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    flaps: u32,
    wishes: u32,
    meddled: u32,
    lost: u32,
    agreed: Duration,
    bytes: (u64, u64),
    hours: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (up, down) = self.bytes;
        let each = |bytes: u64| bytes as f64 / 1e3 / f64::from(self.flaps.max(1));
        writeln!(f, "links that went down and came back        {} in {:.1} hours", self.flaps, self.hours)?;
        writeln!(f, "changes on the hub, on members            {}, {}", self.wishes, self.meddled)?;
        writeln!(f, "clusters taken for lost                   {} times", self.lost)?;
        writeln!(
            f,
            "bytes for each time, up / down            {:.1} / {:.1} KB, changes included",
            each(up),
            each(down)
        )?;
        writeln!(f, "links stay until all agrees               {:.1} s", self.agreed.as_secs_f64())
    }
}

/// A template: what it says, and on which members it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    value: String,
    members: BTreeSet<usize>,
}

/// What is in a namespace of a member, by name.
type Objects = BTreeMap<String, String>;

struct Soak<'a> {
    plan: &'a Plan,
    world: World,
    random: SplitMix,
    wishes: BTreeMap<String, Wish>,
    /// Objects of others, by member.
    others: Vec<Objects>,
    /// Members whose links are down.
    down: BTreeSet<usize>,
    /// Clusters that are not Ready.
    lost: BTreeSet<usize>,
    summary: Summary,
}

/// Runs a plan, under paused time.
///
/// # Errors
/// What does not agree, or goes on moving.
///
/// # Panics
/// When a fleet does not come up.
pub async fn run(plan: &Plan) -> Result<Summary, String> {
    let mut world = World::start(plan.seed, 0).await;
    for n in 1..=plan.members {
        let place = Place::Memory(Memory::default());
        world.join_with(&format!("member{n}"), &kubesim::Config::default(), place).await;
    }
    for n in 1..=plan.members {
        world.ready(&format!("member{n}"), PATIENCE).await;
    }
    let mut soak = Soak {
        plan,
        world,
        random: SplitMix::new(plan.seed ^ 0x666c_6170),
        wishes: BTreeMap::new(),
        others: vec![Objects::new(); plan.members],
        down: BTreeSet::new(),
        lost: BTreeSet::new(),
        summary: Summary { hours: plan.length.as_secs_f64() / 3600.0, ..Summary::default() },
    };
    soak.flap().await;
    soak.agree().await?;
    soak.rest().await?;
    let summary = soak.summary.clone();
    soak.world.stop().await;
    Ok(summary)
}

impl Soak<'_> {
    fn below(&self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    /// A time between two, in seconds, to the millisecond.
    fn between(&self, (least, most): (u64, u64)) -> Duration {
        Duration::from_millis(least * 1000 + self.below((most - least) * 1000 + 1))
    }

    /// Links come and go, and both sides change, until the time is over. Then links stay.
    async fn flap(&mut self) {
        let begin = Instant::now();
        let end = begin + self.plan.length;
        let mut flips: Vec<Instant> = (0..self.plan.members).map(|_| begin + self.between(UP)).collect();
        let (mut wish, mut meddle) = (begin, begin);
        loop {
            let flip = flips.iter().copied().min().unwrap_or(end);
            let next = flip.min(wish).min(meddle);
            if next >= end {
                break;
            }
            sleep_until(next).await;
            if next == wish {
                self.wish().await;
                wish += Duration::from_millis(300 + self.below(4000));
            } else if next == meddle {
                self.meddle().await;
                meddle += Duration::from_millis(500 + self.below(6000));
            } else if let Some(member) = flips.iter().position(|at| *at == next) {
                flips[member] += self.flip(member);
                self.look().await;
            }
        }
        for member in 0..self.plan.members {
            self.world.members[member].wire.set(Mode::Pass);
        }
        let bytes = self.world.members.iter().map(|member| member.wire.bytes());
        self.summary.bytes = bytes.fold((0, 0), |(up, down), (u, d)| (up + u, down + d));
    }

    /// A link goes down in some way, or comes back; answers for how long.
    fn flip(&mut self, member: usize) -> Duration {
        let wire = &self.world.members[member].wire;
        if self.down.remove(&member) {
            wire.set(Mode::Pass);
            self.summary.flaps += 1;
            return self.between(UP);
        }
        let ways = [Mode::BlackHole, Mode::BlackHole, Mode::LoseUp, Mode::LoseDown, Mode::Refuse, Mode::Hold];
        wire.set(ways[self.below(ways.len() as u64) as usize]);
        self.down.insert(member);
        self.between(DOWN)
    }

    /// Counts the clusters that the hub has begun to take for lost.
    async fn look(&mut self) {
        for (n, member) in self.world.members.iter().enumerate() {
            let Ok(cluster) = self.world.api().get(&cluster_path(&member.name)).await else { continue };
            if condition(&cluster, "Ready") == Some("True") {
                self.lost.remove(&n);
            } else if self.lost.insert(n) {
                self.summary.lost += 1;
            }
        }
    }

    fn name(&self) -> String {
        format!("c{}", self.below(self.plan.templates))
    }

    fn some_members(&self) -> BTreeSet<usize> {
        let mut members: BTreeSet<usize> = (0..self.plan.members).filter(|_| self.below(3) > 0).collect();
        if members.is_empty() {
            members.insert(self.below(self.plan.members as u64) as usize);
        }
        members
    }

    /// A user makes, changes, moves or deletes a template.
    async fn wish(&mut self) {
        let (name, roll) = (self.name(), self.below(10));
        let api = self.world.api();
        let (path, policy) = (
            config_map_path(World::NAMESPACE, &name),
            policy_path(World::NAMESPACE, "propagationpolicies", &name),
        );
        let value = format!("{:016x}", self.random.next_u64());
        let done = match (self.wishes.remove(&name), roll) {
            (None, _) => {
                let members = self.some_members();
                let names = cluster_names(&members);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.world
                    .create([samples::config_map_policy(&name, &names), samples::config_map(&name, &value)])
                    .await;
                self.wishes.insert(name, Wish { value, members });
                Ok(Value::Null)
            }
            (Some(_), 0..=1) => {
                let gone = api.delete(&path, &json!({})).await;
                match gone {
                    Ok(_) => api.delete(&policy, &json!({})).await,
                    error => error,
                }
            }
            (Some(wish), 2..=3) => {
                let members = self.some_members();
                let place = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": cluster_names(&members)}}}});
                self.wishes.insert(name, Wish { members, ..wish });
                api.patch(&policy, Patch::Merge, &place).await
            }
            (Some(wish), _) => {
                let data = json!({"data": {"key": value}});
                self.wishes.insert(name, Wish { value, ..wish });
                api.patch(&path, Patch::Merge, &data).await
            }
        };
        done.expect("the hub takes what a user wants");
        self.summary.wishes += 1;
    }

    /// Somebody on a member changes or deletes what is ours, or has something of their own.
    async fn meddle(&mut self) {
        let member = self.below(self.plan.members as u64) as usize;
        let api = &self.world.members[member].api;
        let path = config_map_path(World::NAMESPACE, &self.name());
        match self.below(4) {
            // What is not there is not changed.
            0 => drop(api.patch(&path, Patch::Merge, &json!({"data": {"key": "meddled"}})).await),
            1 => drop(api.delete(&path, &json!({})).await),
            2 => drop(api.patch(&path, Patch::Merge, &json!({"metadata": {"labels": null}})).await),
            _ => {
                let name = format!("other{}", self.below(4));
                let value = format!("{:x}", self.random.next_u64());
                let path = config_map_path(World::NAMESPACE, &name);
                let data = json!({"data": {"key": value}});
                let written = match api.patch(&path, Patch::Merge, &data).await {
                    Err(error) if error.is_not_found() => {
                        let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
                        api.post(collection, &samples::config_map(&name, &value)).await
                    }
                    written => written,
                };
                // Before the Namespace is there nothing is.
                if written.is_ok() {
                    self.others[member].insert(name, value);
                }
            }
        }
        self.summary.meddled += 1;
    }

    /// Waits until all agrees.
    async fn agree(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        while let Err(why) = self.disagreement().await {
            if begin.elapsed() > AGREE {
                return Err(format!("seed {}: {AGREE:?} after links stay up {why}", self.plan.seed));
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.summary.agreed = begin.elapsed();
        Ok(())
    }

    /// Nothing moves any more, and all still agrees.
    async fn rest(&self) -> Result<(), String> {
        // What was said last may still be on its way.
        sleep(STILL).await;
        let applies = || -> Vec<u64> {
            let agents = self.world.members.iter().filter_map(|member| member.agent.as_ref());
            agents.map(|agent| agent.handle.stats().applies.get()).collect()
        };
        let before = applies();
        sleep(STILL).await;
        if applies() != before {
            return Err(format!(
                "seed {}: agents do not come to rest: {before:?}, {:?}",
                self.plan.seed,
                applies()
            ));
        }
        self.disagreement().await.map_err(|why| format!("seed {}: at rest {why}", self.plan.seed))
    }

    async fn disagreement(&self) -> Result<(), String> {
        let collection = format!("/api/v1/namespaces/{}/configmaps", World::NAMESPACE);
        let api = self.world.api();
        let list = |list: Result<Value, karmada_client::Error>| list.map_err(|error| error.to_string());
        let templates = objects(&list(api.get(&collection).await)?["items"]);
        let wanted: Objects =
            self.wishes.iter().map(|(name, wish)| (name.clone(), wish.value.clone())).collect();
        equal("the hub's templates", &templates, &wanted)?;
        for (n, member) in self.world.members.iter().enumerate() {
            let here: Objects = self
                .wishes
                .iter()
                .filter(|(_, wish)| wish.members.contains(&n))
                .map(|(name, wish)| (name.clone(), wish.value.clone()))
                .collect();
            let works = list(api.get(&works_path(&member.name)).await)?;
            let works: Vec<&Value> = works["items"].as_array().into_iter().flatten().collect();
            for work in &works {
                let is_applied = condition_of(work, "Applied").is_some_and(|c| c["status"] == "True");
                if work["metadata"].get("deletionTimestamp").is_some() || !is_applied {
                    return Err(format!(
                        "{} has a Work {} that is on its way out or not applied",
                        member.name, work["metadata"]["name"]
                    ));
                }
            }
            let manifests = works.iter().filter_map(|work| work.pointer("/spec/workload/manifests/0"));
            let manifests: Value =
                manifests.filter(|manifest| manifest["kind"] == "ConfigMap").cloned().collect();
            equal(&format!("Works of {}", member.name), &objects(&manifests), &here)?;
            let there = match member.api.get(&collection).await {
                Ok(found) => objects(&found["items"]),
                Err(error) => return Err(error.to_string()),
            };
            let mut all = here;
            all.extend(self.others[n].clone());
            equal(&member.name, &there, &all)?;
            let cluster = list(api.get(&cluster_path(&member.name)).await)?;
            if condition(&cluster, "Ready") != Some("True") {
                return Err(format!("{} is not Ready", member.name));
            }
        }
        Ok(())
    }
}

fn cluster_names(members: &BTreeSet<usize>) -> Vec<String> {
    members.iter().map(|n| format!("member{}", n + 1)).collect()
}

/// ConfigMaps by name, but for those that every Namespace has.
fn objects(list: &Value) -> Objects {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list.as_array().into_iter().flatten();
    let named = items.map(|item| (text(&item["metadata"]["name"]), text(&item["data"]["key"])));
    named.filter(|(name, _)| name != "kube-root-ca.crt").collect()
}

fn equal(what: &str, found: &Objects, wanted: &Objects) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    let missing: Vec<_> = wanted.iter().filter(|(name, value)| found.get(*name) != Some(value)).collect();
    let more: Vec<_> = found.iter().filter(|(name, value)| wanted.get(*name) != Some(value)).collect();
    Err(format!("{what}: {missing:?} are wanted, {more:?} are there instead"))
}
