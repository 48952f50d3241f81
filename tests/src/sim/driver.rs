//! Carries a plan out on a fleet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_agent::{Memory, Phase, Place};
use karmada_api::{consts::extension, policy::PurgeMode};
use karmada_client::{Error, Patch, Rest};
use karmada_core::{evict, judge::flaps};
use karmada_env::{Random, SplitMix};
use karmada_hub::HubConfig;
use karmada_meta::{object, time::Time};
use karmada_store::engine;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    agree::disagreement,
    hub,
    ledger::{GRACE, Ledger, value_of},
    member,
    plan::{Act, Cut, Keeps, Plan, Scaler, Spread, Want},
    scalers, services, stranger,
};
use crate::{
    fleet::{cluster_path, collection},
    ground::Ground,
    inprocess::{AgentRun, Wire, World},
    kubesim,
    link::{Mode, Slow},
    samples,
};

/// How long after the last fault everything may take to agree. The longest waits in there: a connection that is given
/// up after 17 s and dialed anew, 60 s in which a hub that has just started judges nobody, 97 s until a watch that is
/// silent is opened anew, and a member that has to be well for 30 s. One that was lost three times is held out for longer.
const AGREEMENT: Duration = Duration::from_secs(240);

/// The key of users' taints.
pub(super) const TAINT: &str = "upgrade";

/// The key of the taint that a ClusterTaintPolicy puts on clusters that are lost.
pub(super) const LOST: &str = "shop.io/lost";

/// What templates carry to be long.
const BULK: &str = "shop.io/bulk";

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(3);

/// How often agents look at their clusters. Rarer than usual: it is most of what a quiet fleet does, and decides little.
const STATUS: Duration = Duration::from_secs(20);

/// What a user who is refused waits before trying again.
const AGAIN: Duration = Duration::from_secs(4);

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Kinds of faults that took effect.
    pub fired: BTreeSet<&'static str>,
    /// From the last fault's end until everything agreed.
    pub agreed_after: Duration,
    /// Time that passed in the fleet.
    pub lived: Duration,
}

/// A fleet on which a plan is carried out.
pub(super) struct Driver {
    world: World,
    ledger: Arc<Ledger>,
    observers: JoinSet<()>,
    members: JoinSet<()>,
    copy: Option<Vec<u8>>,
    /// The same, if the hub is to use its revisions a second time.
    snapshot: Option<engine::Memory>,
    rewinds: bool,
    services: bool,
    /// Members whose agents' state is lost when they are killed.
    forgetful: BTreeSet<usize>,
    modes: Vec<Mode>,
    /// Second agents, by member, and how they reach the hub.
    seconds: BTreeMap<usize, (AgentRun, Wire)>,
    /// Machines that have members' names, by member, and what they say of themselves.
    strangers: BTreeMap<usize, Value>,
    /// Members that have their names back: one that has only heard that its Cluster was deleted is started again.
    given_back: BTreeSet<usize>,
    fired: BTreeSet<&'static str>,
    /// What users wished for while something of that name was on its way out; they do so again.
    again: Mutex<BTreeSet<String>>,
    /// Members that had been taken out when their agents were to start.
    unstarted: BTreeSet<usize>,
}

impl Driver {
    /// A fleet as the plan has it, with nothing wanted yet.
    pub(super) async fn new(plan: &Plan, ground: Arc<Ground>, ledger: Arc<Ledger>) -> Self {
        let mut world = World::on(plan.seed, ground, settings(plan)).await;
        world.status_interval = STATUS;
        // As is the default: who doubts older hubs has tests of their own.
        world.doubt_older_hubs = false;
        let mut members = JoinSet::new();
        let config = kubesim::Config { workloads: false, nodes: 0, ..kubesim::Config::default() };
        for n in 0..plan.members {
            let place = match plan.keeps.get(n) {
                None | Some(Keeps::Nothing) => Place::Nowhere,
                Some(Keeps::All | Keeps::UntilKilled) => Place::Memory(Memory::default()),
            };
            world.join_with(&format!("member{}", n + 1), &config, place).await;
            let member = &world.members[n];
            let (client, env) = (member.sim.admin(), member.machine.env().clone());
            member::furnish(&member.api, &env).await;
            members.spawn(member::deployments(n, client.clone(), env.clone(), ledger.clone()));
            members.spawn(member::pods(n, client.clone(), env.clone(), ledger.clone()));
            members.spawn(member::config_maps(n, client.clone(), env.clone(), ledger.clone()));
            if plan.services {
                members.spawn(services::run(n, client.clone(), env.clone(), ledger.clone()));
            }
            if plan.wants.contains_key(scalers::FEDERATED) {
                scalers::furnish(&member.api).await;
                members.spawn(scalers::pods(member.api.clone(), env, ledger.clone()));
            }
            if plan.wants.contains_key(scalers::MEMBERS) {
                members.spawn(kubesim::autoscale::run(member.api.clone(), World::NAMESPACE));
            }
        }
        ledger.wants(|intent| {
            let scaled = plan.wants.iter().filter(|(_, want)| want.scaler.is_some());
            intent.wants.extend(scaled.map(|(name, want)| (name.clone(), want.clone())));
        });
        let observers = hub::observe(world.api().client(), world.env(), &ledger);
        let modes = vec![Mode::Pass; plan.members];
        let namespace = samples::namespace(World::NAMESPACE);
        world.api().post("/api/v1/namespaces", &namespace).await.expect("a namespace");
        if plan.taint_policy {
            let path = "/apis/policy.karmada.io/v1alpha1/clustertaintpolicies";
            world.api().post(path, &taint_policy()).await.expect("a ClusterTaintPolicy");
        }
        Self {
            world,
            ledger,
            observers,
            members,
            copy: None,
            snapshot: None,
            rewinds: plan.rewinds,
            services: plan.services,
            forgetful: (0..plan.members)
                .filter(|n| plan.keeps.get(*n) == Some(&Keeps::UntilKilled))
                .collect(),
            modes,
            seconds: BTreeMap::new(),
            strangers: BTreeMap::new(),
            given_back: BTreeSet::new(),
            fired: BTreeSet::new(),
            again: Mutex::default(),
            unstarted: BTreeSet::new(),
        }
    }

    /// Lives through a plan. Ends early when the ledger has found something wrong.
    pub(super) async fn run(mut self, plan: &Plan) -> Outcome {
        let wrong = self.ledger.wrong.clone();
        let lived = async {
            for (path, object) in services::objects().iter().filter(|_| plan.services) {
                self.world.api().post(path, object).await.expect("a user may make it");
            }
            for (name, want) in &plan.wants {
                self.set(name, want).await;
            }
            self.agree("at first").await;
            let begin = Instant::now();
            // Users whom the hub did not answer, in order.
            let mut waiting: Vec<&Act> = Vec::new();
            for (at, act) in &plan.acts {
                sleep_until(begin + *at).await;
                if act.is_users() {
                    waiting.push(act);
                } else {
                    self.act(act).await;
                }
                if self.answers() {
                    for act in waiting.drain(..) {
                        self.act(act).await;
                    }
                }
            }
            let after = self.agree("after the storm").await;
            // And everything is still done that is asked for.
            let wants = self.ledger.intent().wants;
            for (name, want) in wants {
                let then = match want.scaler {
                    None => Want { replicas: want.replicas % 6 + 1, ..want },
                    Some(Scaler::Federated) => {
                        self.ledger.scaled(|scaled, _| scaled.load = 10);
                        continue;
                    }
                    Some(Scaler::Cron { .. }) => Want {
                        replicas: scalers::SUSPENDED,
                        scaler: Some(Scaler::Cron { suspended: true }),
                        ..want
                    },
                    Some(Scaler::Members { .. }) => {
                        Want { scaler: Some(Scaler::Members { hpas: 0 }), ..want }
                    }
                };
                self.set(&name, &then).await;
            }
            self.agree("in the end").await;
            after
        };
        let agreed_after = tokio::select! {
            biased;
            () = wrong.cancelled() => Duration::ZERO,
            after = lived => after,
        };
        let outcome = Outcome { fired: self.fired.clone(), agreed_after, lived: self.ledger.now() };
        self.observers.shutdown().await;
        self.members.shutdown().await;
        if self.ledger.verdict().is_empty() {
            self.world.stop().await;
        }
        outcome
    }

    /// Waits until everything agrees, and says how long that took.
    async fn agree(&mut self, when: &str) -> Duration {
        let begin = Instant::now();
        let (mut said, mut held) = (String::new(), false);
        loop {
            let told = disagreement(&self.world, &self.ledger, self.services).await;
            let Err(missing) = told else {
                self.ledger.tell(format!("everything agrees {when}"));
                self.ledger.settled();
                return begin.elapsed();
            };
            let kind: String = missing.chars().take(30).collect();
            if said != kind {
                self.ledger.tell(format!("not yet: {missing}"));
                said = kind;
            }
            self.confirm().await;
            self.confirm_what_agents_ask().await;
            self.wish_again().await;
            for member in self.given_back.clone() {
                self.register_again(member).await;
            }
            // When the hold ends something else may be under way.
            held |= missing.contains(extension::FLAPPING);
            let patience = if held { AGREEMENT + flaps::Settings::default().first } else { AGREEMENT };
            if begin.elapsed() > patience {
                self.ledger.accuse(format!("no agreement {when} within {patience:?}: {missing}"));
            }
            sleep(LOOK).await;
        }
    }

    /// Does what the conditions of Clusters ask for: a hub that was restored counts, and so do removals of much at once.
    async fn confirm_what_agents_ask(&self) {
        let api = self.world.api();
        let Ok(list) = api.get("/apis/cluster.karmada.io/v1alpha1/clusters").await else { return };
        for cluster in list["items"].as_array().into_iter().flatten() {
            let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array);
            for condition in conditions.into_iter().flatten() {
                let (kind, message) = (condition["type"].as_str(), condition["message"].as_str());
                let said = match kind {
                    Some(extension::HUB_OLDER) => {
                        let now = Time::now(self.world.env()).to_string();
                        (extension::CONFIRM_HUB, now)
                    }
                    Some(extension::REMOVALS_HELD) => {
                        let id = message.and_then(|message| message.rsplit_once('=')).map(|(_, id)| id);
                        (extension::CONFIRM_REMOVALS, id.unwrap_or_default().to_owned())
                    }
                    _ => continue,
                };
                let name = object::name(cluster);
                self.ledger.tell(format!("a user confirms on {name} by {}", said.0));
                let change = json!({"metadata": {"annotations": {said.0: said.1}}});
                // With the next look, if somebody else was faster.
                let _ = api.patch(&cluster_path(name), Patch::Merge, &change).await;
            }
        }
    }

    /// Lets what workloads have left behind until a user says otherwise go.
    async fn confirm(&self) {
        let api = self.world.api();
        let path = format!("/apis/work.karmada.io/v1alpha2/namespaces/{}/resourcebindings", World::NAMESPACE);
        let Ok(list) = api.get(&path).await else { return };
        for mut binding in list["items"].as_array().cloned().unwrap_or_default() {
            let name = binding["spec"]["resource"]["name"].as_str().unwrap_or_default().to_owned();
            let path = samples::binding_path(World::NAMESPACE, object::name(&binding));
            let tasks = binding.pointer_mut("/spec/gracefulEvictionTasks").and_then(Value::as_array_mut);
            let mut waits = false;
            for task in tasks.into_iter().flatten().filter(|task| task["suppressDeletion"] == true) {
                task["suppressDeletion"] = false.into();
                waits = true;
            }
            if waits {
                self.ledger.tell(format!("a user lets go what {name} has left behind"));
                self.ledger.confirms(&name);
                // Somebody else was faster: with the next look.
                let _ = api.put(&path, &binding).await;
            }
        }
    }

    async fn act(&mut self, act: &Act) {
        if !self.applies(act) {
            if let Act::StartAgent(member) = act
                && self.world.members[*member].agent.is_none()
            {
                self.unstarted.insert(*member);
            }
            return;
        }
        if let Act::Ail(name) = act
            && !self.ledger.fails(name)
        {
            return;
        }
        self.fired.extend(act.kind());
        self.ledger.tell(format!("{act:?}"));
        let reaches = |act: &Act| match act {
            Act::Cut(m, _) | Act::Pause(m) | Act::StopAgent(m, _) | Act::Stall(m, _) | Act::Take(m) => {
                Some((*m, true))
            }
            Act::Mend(m) | Act::Resume(m) | Act::StartAgent(m) | Act::Flow(m) | Act::GiveBack(m) => {
                Some((*m, false))
            }
            _ => None,
        };
        if let Some((member, begins)) = reaches(act) {
            self.ledger.disturb(member, begins);
        }
        match act {
            Act::PauseHub => self.ledger.hub_stands_still(true),
            Act::ResumeHub => self.ledger.hub_stands_still(false),
            Act::Pause(member) | Act::StopAgent(member, _) => self.ledger.sleeps(*member, true),
            Act::Resume(member) | Act::StartAgent(member) => self.ledger.sleeps(*member, false),
            _ => {}
        }
        self.scalers_hear(act);
        match act {
            Act::Cut(member, cut) => self.link(*member, mode(*cut)),
            Act::Mend(member) => self.link(*member, Mode::Pass),
            Act::HubClock(by) => self.world.machine.jump(*by),
            Act::Clock(member, by) => self.world.members[*member].machine.jump(*by),
            Act::PauseHub => {
                self.world.machine.pause();
                self.links();
            }
            Act::ResumeHub => {
                self.world.machine.resume();
                self.links();
            }
            Act::Pause(member) => {
                self.world.members[*member].machine.pause();
                self.links();
            }
            Act::Resume(member) => {
                self.world.members[*member].machine.resume();
                self.links();
            }
            Act::StallHub(collection) => self.world.machine.gate().stall(Some(collection)),
            Act::FlowHub => self.world.machine.gate().stall(None),
            Act::Stall(member, collection) => self.world.members[*member].wire.gate.stall(Some(collection)),
            Act::Flow(member) => self.world.members[*member].wire.gate.stall(None),
            Act::Unserve(member) => self.world.members[*member].machine.gate().unserve(Some("apps")),
            Act::Serve(member) => self.world.members[*member].machine.gate().unserve(None),
            Act::StopHub => {
                self.observers.shutdown().await;
                self.world.stop_hub().await;
            }
            Act::StartHub => {
                self.world.start_hub().await;
                self.observe();
            }
            Act::Backup => {
                let going = going(&self.world.api()).await;
                self.copy = Some(self.world.copy());
                self.snapshot = self.rewinds.then(|| self.world.snapshot());
                self.ledger.backup(going);
            }
            Act::Restore => self.restore().await,
            Act::StopAgent(member, kill) => {
                if *kill {
                    self.world.kill_agent(*member).await;
                    let place = &mut self.world.members[*member].state.place;
                    if self.forgetful.contains(member) && *place != Place::Nowhere {
                        *place = Place::Memory(Memory::default());
                    }
                } else {
                    self.world.stop_agent(*member).await;
                }
            }
            Act::StartAgent(member) => self.world.start_agent(*member),
            Act::Set(name, want) => self.set(name, want).await,
            Act::Delete(name) => self.delete(name).await,
            Act::Drift(member, name) => {
                self.ledger.drifts(*member, name);
                let patch = json!({ "spec": { "replicas": 9 }, "data": { "key": "drift" } });
                let _ = self.world.members[*member]
                    .api
                    .patch(&path(&self.ledger, name), Patch::Merge, &patch)
                    .await;
            }
            Act::Lose(member, name) => {
                self.ledger.loses(*member, name);
                let _ = self.world.members[*member].api.delete(&path(&self.ledger, name), &json!({})).await;
            }
            Act::Taint(member) | Act::Untaint(member) => {
                let on = matches!(act, Act::Taint(_));
                self.ledger.taints(*member, on);
                self.taint(*member, on).await;
            }
            Act::Sicken(member) => self.ledger.sickens(*member, true),
            Act::Heal(member) => self.ledger.sickens(*member, false),
            // Done already.
            Act::Ail(_) => {}
            Act::Cure(name) => self.ledger.recovers(name),
            Act::Lag(member, millis) => {
                self.world.members[*member].machine.gate().delay(Duration::from_millis(*millis));
            }
            Act::Prompt(member) => self.world.members[*member].machine.gate().delay(Duration::ZERO),
            Act::Second(member) => {
                let wire = self.world.wire(&format!("member{}", member + 1));
                let run = self.world.second_agent(*member, &wire);
                self.seconds.insert(*member, (run, wire));
                self.links();
            }
            Act::EndSecond(member, kill) => self.end_second(*member, *kill).await,
            Act::Forge(member) => services::forge(&self.world, *member).await,
            // Told already.
            Act::Load(_) => {}
            Act::Take(member) => self.take(*member).await,
            Act::GiveBack(member) => self.give_back(*member).await,
            Act::Leave(member) => {
                self.end_second(*member, false).await;
                let (api, name) = (self.world.api(), format!("member{}", member + 1));
                self.ledger.wants(|intent| {
                    intent.left.insert(*member);
                });
                insist("DELETE of a cluster", || async {
                    api.delete(&cluster_path(&name), &json!({})).await
                })
                .await;
            }
        }
    }

    /// Tells what scalers are judged by.
    fn scalers_hear(&self, act: &Act) {
        self.ledger.scaled(|scaled, now| match act {
            Act::Cut(member, Cut::Partition | Cut::LoseUp | Cut::Refuse)
            | Act::StopAgent(member, _)
            | Act::Pause(member) => scaled.silences(*member, true, now),
            Act::Mend(member) | Act::StartAgent(member) | Act::Resume(member) => {
                scaled.silences(*member, false, now);
            }
            Act::HubClock(by) => scaled.jumps(*by),
            Act::Second(_) => scaled.second(),
            Act::Load(load) => scaled.load = *load,
            _ => {}
        });
    }

    /// A member's Cluster is deleted, and another machine waits for its name.
    async fn take(&mut self, member: usize) {
        let (api, path) = (self.world.api(), cluster_path(&format!("member{}", member + 1)));
        let mut cluster = insist("GET of a cluster", || async { api.get(&path).await }).await;
        for condition in cluster["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["status"] = "True".into();
        }
        self.ledger.takes(member);
        insist("DELETE of a cluster", || async { api.delete(&path, &json!({})).await }).await;
        self.strangers.insert(member, cluster["status"].take());
        self.observers.shutdown().await;
        self.observe();
    }

    /// The other machine is switched off, and its Cluster deleted.
    async fn give_back(&mut self, member: usize) {
        self.strangers.remove(&member);
        self.observers.shutdown().await;
        self.observe();
        let (api, path) = (self.world.api(), cluster_path(&format!("member{}", member + 1)));
        insist("DELETE of another's cluster", || async {
            match api.get(&path).await {
                Ok(cluster) if stranger::is_of(&cluster) => api.delete(&path, &json!({})).await,
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(Value::Null),
            }
        })
        .await;
        self.ledger.gives_back(member);
        self.given_back.insert(member);
    }

    /// Whether the hub answers users.
    fn answers(&self) -> bool {
        self.world.is_running() && !self.world.machine.is_paused()
    }

    /// Whether something can be done now.
    fn applies(&self, act: &Act) -> bool {
        let runs = |member: usize| self.world.members[member].agent.is_some();
        match act {
            Act::StopAgent(member, _) => runs(*member),
            // Whoever takes a cluster out takes its agent down.
            Act::StartAgent(member) => !runs(*member) && !self.ledger.intent().left.contains(member),
            Act::Second(member) => !self.ledger.intent().left.contains(member),
            Act::Restore => self.copy.is_some() && self.answers(),
            Act::Backup => self.answers(),
            Act::Drift(member, name) | Act::Lose(member, name) => {
                self.ledger.intent().clusters(name).contains(member)
                    && self.ledger.on(*member, name).is_some()
            }
            Act::Delete(name) => self.ledger.intent().wants.contains_key(name),
            Act::GiveBack(member) => self.strangers.contains_key(member),
            Act::Taint(member) | Act::Untaint(member) => !self.ledger.intent().left.contains(member),
            _ => true,
        }
    }

    async fn end_second(&mut self, member: usize, kill: bool) {
        match self.seconds.remove(&member) {
            Some((run, _)) if kill => run.kill().await,
            Some((run, _)) => run.stop().await,
            None => {}
        }
    }

    fn observe(&mut self) {
        self.observers = hub::observe(self.world.api().client(), self.world.env(), &self.ledger);
        for (member, status) in self.strangers.clone() {
            let (api, env, ledger) = (self.world.api(), self.world.env().clone(), self.ledger.clone());
            self.observers.spawn(async move { stranger::live(api, env, &ledger, member, &status).await });
        }
    }

    fn link(&mut self, member: usize, mode: Mode) {
        self.modes[member] = mode;
        self.links();
    }

    /// A link does what its fault says unless one of its ends stands still.
    fn links(&self) {
        for (member, mode) in self.world.members.iter().zip(&self.modes) {
            let held = self.world.machine.is_paused() || member.machine.is_paused();
            member.wire.set(if held { Mode::Hold } else { *mode });
        }
        for (member, (_, wire)) in &self.seconds {
            let held = self.world.machine.is_paused() || self.world.members[*member].machine.is_paused();
            wire.set(if held { Mode::Hold } else { Mode::Pass });
        }
    }

    async fn restore(&mut self) {
        let Some(copy) = self.copy.clone() else { return };
        self.observers.shutdown().await;
        self.ledger.restored();
        match self.snapshot.clone() {
            // It may be restored once more.
            Some(snapshot) => self.world.rewind_hub(snapshot.as_it_is()).await,
            None => self.world.restore_hub(&copy).await,
        }
        self.observe();
        for member in 0..self.world.members.len() {
            let left = self.ledger.intent().left.contains(&member);
            if !left {
                self.register_again(member).await;
            }
            if !left && self.unstarted.remove(&member) {
                self.ledger.disturb(member, false);
                self.ledger.sleeps(member, false);
                self.world.start_agent(member);
            }
        }
    }

    /// A Cluster that was deleted is registered again by whoever restarts its agent.
    async fn register_again(&mut self, member: usize) {
        let agent = self.world.members[member].agent.as_ref();
        if agent.is_some_and(|agent| *agent.handle.phase().borrow() == Phase::Removed) {
            self.world.stop_agent(member).await;
            self.world.start_agent(member);
        }
    }

    async fn set(&self, name: &str, want: &Want) {
        let api = self.world.api();
        self.ledger.wants(|intent| {
            intent.wants.insert(name.to_owned(), want.clone());
        });
        let (beside, gone) = scalers::beside(name, want, self.world.members.len());
        for object in gone {
            let path = samples::path(&object, World::NAMESPACE);
            insist("a user's deletion", || async {
                match api.delete(&path, &json!({})).await {
                    Err(error) if error.is_not_found() => Ok(Value::Null),
                    answer => answer,
                }
            })
            .await;
        }
        self.ledger.scaled(|scaled, _| scaled.user_writes(name, want.replicas));
        for object in beside.into_iter().chain([template(name, want), policy(name, want)]) {
            let path = collection(&object, World::NAMESPACE);
            let live = insist("a user's wish", || async {
                match api.post(&path, &object).await {
                    Err(error) if error.is_already_exists() => {
                        api.patch(&samples::path(&object, World::NAMESPACE), Patch::Merge, &object).await
                    }
                    answer => answer,
                }
            })
            .await;
            if object::deletion_timestamp(&live).is_some() {
                self.again.lock().insert(name.to_owned());
            }
        }
    }

    /// Lets users wish again for what may have gone since.
    async fn wish_again(&self) {
        let names = std::mem::take(&mut *self.again.lock());
        let wants = self.ledger.intent().wants;
        for name in names {
            if let Some(want) = wants.get(&name) {
                self.set(&name, want).await;
            }
        }
    }

    async fn taint(&self, member: usize, on: bool) {
        let (api, path) = (self.world.api(), cluster_path(&format!("member{}", member + 1)));
        insist("a user's taint", || async {
            let mut cluster = api.get(&path).await?;
            let mut taints = cluster["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.retain(|taint| taint["key"] != TAINT);
            if on {
                taints.push(json!({ "key": TAINT, "effect": "NoExecute" }));
            }
            cluster["spec"]["taints"] = json!(taints);
            api.put(&path, &cluster).await
        })
        .await;
    }

    async fn delete(&self, name: &str) {
        let api = self.world.api();
        let Some(want) = self.ledger.intent().wants.remove(name) else { return };
        self.ledger.wants(|intent| {
            intent.wants.remove(name);
        });
        for object in [template(name, &want), policy(name, &want)] {
            let path = samples::path(&object, World::NAMESPACE);
            insist("a user's deletion", || async {
                match api.delete(&path, &json!({})).await {
                    Err(error) if error.is_not_found() => Ok(Value::Null),
                    answer => answer,
                }
            })
            .await;
        }
    }
}

/// How the plan's hub evicts: sooner and faster than by default, and only if it is to.
fn settings(plan: &Plan) -> HubConfig {
    let evictions = evict::Settings {
        cluster_failover: plan.failover,
        failover_after: Duration::from_secs(20),
        rate: f64::INFINITY,
        grace: GRACE,
        ..evict::Settings::default()
    };
    let hpa_scale_targets = plan.wants.contains_key(scalers::MEMBERS);
    HubConfig { evictions, hpa_scale_targets, ..HubConfig::default() }
}

/// What the hub has told members to take away, and they have not yet: workloads and members.
async fn going(api: &Rest) -> BTreeSet<(String, usize)> {
    let list = api.get("/apis/work.karmada.io/v1alpha1/works").await.expect("a hub that answers lists Works");
    let works = list["items"].as_array().into_iter().flatten();
    let going = works.filter(|work| object::deletion_timestamp(work).is_some());
    going
        .filter_map(|work| {
            let member = hub::number(object::namespace(work).strip_prefix("karmada-es-")?)?;
            let name = work.pointer("/spec/workload/manifests/0/metadata/name")?.as_str()?;
            Some((name.to_owned(), member))
        })
        .collect()
}

/// Tries until it is done.
async fn insist<T, F: Future<Output = Result<T, Error>>>(what: &str, mut attempt: impl FnMut() -> F) -> T {
    let mut last = None;
    for _ in 0..10 {
        match attempt().await {
            Ok(answer) => return answer,
            Err(error) => last = Some(error),
        }
        sleep(AGAIN).await;
    }
    panic!("{what} is not taken: {last:?}");
}

fn mode(cut: Cut) -> Mode {
    match cut {
        Cut::Partition => Mode::BlackHole,
        Cut::LoseUp => Mode::LoseUp,
        Cut::LoseDown => Mode::LoseDown,
        Cut::Refuse => Mode::Refuse,
        Cut::Late(millis) => {
            let latency = Duration::from_millis(millis);
            // As fast as can be said, so that only time decides, and not the length of a certificate's signature.
            Mode::Slow(Slow { latency, bytes_per_second: u32::MAX, ..Slow::EDGE })
        }
        Cut::Narrow(bytes_per_second) => Mode::Slow(Slow { bytes_per_second, ..Slow::EDGE }),
    }
}

fn path(ledger: &Ledger, name: &str) -> String {
    match ledger.intent().wants.get(name) {
        Some(want) => samples::path(&template(name, want), World::NAMESPACE),
        None => samples::config_map_path(World::NAMESPACE, name),
    }
}

fn template(name: &str, want: &Want) -> Value {
    let mut template = match want.spread {
        Spread::Config => samples::config_map(name, &value_of(want)),
        _ => samples::deployment(name, want.replicas),
    };
    scalers::dress(&mut template, want);
    if let Some(seconds) = want.fence {
        object::set_annotation(&mut template, extension::FENCE_AFTER, format!("{seconds}s"));
    }
    if want.bulk > 0 {
        let random = SplitMix::new(want.bulk as u64);
        let words = (0..want.bulk.div_ceil(16)).map(|_| format!("{:016x}", random.next_u64()));
        object::set_annotation(&mut template, BULK, words.collect::<String>());
    }
    template
}

fn policy(name: &str, want: &Want) -> Value {
    let clusters: Vec<String> = want.clusters.iter().map(|m| format!("member{}", m + 1)).collect();
    let names: Vec<&str> = clusters.iter().map(String::as_str).collect();
    let mut policy = match want.spread {
        Spread::Config => samples::config_map_policy(name, &names),
        _ => samples::deployment_policy(name, &names),
    };
    if let Some(mode) = want.purge {
        policy["spec"]["failover"]["cluster"] = json!({ "purgeMode": mode });
    }
    if let Some(patience) = want.patience {
        policy["spec"]["propagateDeps"] = true.into();
        let application = &mut policy["spec"]["failover"]["application"];
        *application = json!({ "decisionConditions": { "tolerationSeconds": patience.seconds },
                               "purgeMode": patience.purge });
        if patience.purge == PurgeMode::Gracefully {
            application["gracePeriodSeconds"] = GRACE.as_secs().into();
        }
    }
    let weights: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(n, name)| json!({ "targetCluster": { "clusterNames": [name] }, "weight": 1 + n % 2 }))
        .collect();
    let scheduling = match want.spread {
        Spread::Config | Spread::Duplicated => return policy,
        Spread::Single => {
            policy["spec"]["placement"]["spreadConstraints"] =
                json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }]);
            return policy;
        }
        Spread::Weighted => json!({ "replicaDivisionPreference": "Weighted",
            "weightPreference": { "staticWeightList": weights } }),
        Spread::Dynamic => json!({ "replicaDivisionPreference": "Weighted",
            "weightPreference": { "dynamicWeight": "AvailableReplicas" } }),
        Spread::Aggregated => json!({ "replicaDivisionPreference": "Aggregated" }),
    };
    policy["spec"]["placement"]["replicaScheduling"] = scheduling;
    policy["spec"]["placement"]["replicaScheduling"]["replicaSchedulingType"] = "Divided".into();
    policy
}

/// Drives everything from clusters that are not heard, until they are.
fn taint_policy() -> Value {
    let ready =
        |values: Value| json!([{ "conditionType": "Ready", "operator": "In", "statusValues": values }]);
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "metadata": { "name": "lost" },
        "spec": {
            "addOnConditions": ready(json!(["Unknown"])), "removeOnConditions": ready(json!(["True"])),
            "taints": [{ "key": LOST, "effect": "NoExecute" }],
        },
    })
}
