//! What was asked for, what was seen, and what of it was wrong.
//!
//! The ledger is told of each act of the driver before it is done, of every change of an object on a member, and of
//! what the hub decides. It keeps, for every workload and member, whether anybody has given a reason for the workload
//! to leave that member or to shrink there. Nothing may go without one. A reason holds for as long as it stands, and
//! after that until it has been carried out or everything has come to agree.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use karmada_api::policy::PurgeMode;
use karmada_meta::{object, time::Time};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    member,
    plan::{Scaler, Spread, Want},
    scalers::{self, Scaled},
    services::stays,
};

/// How long after the end of a disturbance a cluster may still turn Unknown because of it: the grace and a look.
const ECHO: Duration = Duration::from_secs(46);

/// How long an agent that runs again may take to stop what it should have stopped meanwhile, Pods included.
const AWAKE: Duration = Duration::from_secs(10).saturating_add(ENDING);

/// How long Pods of what may run on one member only take to end.
pub(super) const ENDING: Duration = Duration::from_secs(6);

/// How long a copy that is to go waits for its replacement.
pub(super) const GRACE: Duration = Duration::from_secs(60);

/// What users want now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// The workloads whose templates are there.
    pub wants: BTreeMap<String, Want>,
    /// Members that have left.
    pub left: BTreeSet<usize>,
    /// Members whose names other machines have.
    pub taken: BTreeSet<usize>,
    /// Members from which users drive everything.
    pub tainted: BTreeSet<usize>,
}

impl Intent {
    /// Where a workload may be.
    pub fn clusters(&self, name: &str) -> BTreeSet<usize> {
        let clusters = self.wants.get(name).map(|want| want.clusters.clone()).unwrap_or_default();
        clusters.into_iter().filter(|member| !self.is_away(*member)).collect()
    }

    /// Whether the hub's Cluster of that name is not this member's.
    pub fn is_away(&self, member: usize) -> bool {
        self.left.contains(&member) || self.taken.contains(&member)
    }

    /// Whether there is a reason for a workload not to be on a member.
    fn unwanted(&self, name: &str, member: usize) -> bool {
        let Some(want) = self.wants.get(name) else { return true };
        let few = want.spread.divides() && want.replicas < want.clusters.len() as i64;
        few || !want.clusters.contains(&member) || self.is_away(member)
    }
}

/// An object on a member, as it was last seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its uid.
    pub uid: String,
    /// `spec.replicas`; of ConfigMaps 0.
    pub replicas: i64,
    /// Those that are ready.
    pub ready: i64,
    /// The status that was given last: generation, replicas and ready ones.
    told: (i64, i64, i64),
    /// Whether it carries what its template says, and nothing that somebody made of it on the member.
    pub value: String,
}

/// Why a workload leaves a cluster, by its eviction task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// Because the cluster is lost.
    pub(super) lost: bool,
    /// What becomes of the copy there.
    pub(super) purge: PurgeMode,
}

/// An eviction that the hub has begun.
#[derive(Clone, Copy, Debug)]
struct Evicted {
    since: Duration,
    cause: Cause,
    /// A user has said that the copy may go.
    confirmed: bool,
    /// The fewest replicas that users have wanted since: it may have been over before they wanted more.
    least: i64,
}

/// A member whose name another machine has.
#[derive(Debug, Default)]
struct Taken {
    /// Whether it has it already: until then the member's own Cluster is on its way out, and its agent may hear that.
    is: bool,
    /// What the member had been told to take away before.
    going: BTreeSet<String>,
    /// What it had been told to have.
    wanted: BTreeSet<String>,
}

/// What happened to a member's way to the hub.
#[derive(Clone, Copy, Debug, Default)]
struct Disturbed {
    now: u32,
    until: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    story: Vec<(Duration, String)>,
    wrong: Vec<String>,
    intent: Intent,
    backup: Option<Intent>,
    /// Workloads that a restored hub does not know, or not as they were.
    forgotten: BTreeSet<String>,
    /// Workloads of which a copy was made since the hub's copy was: a restored hub does not know where.
    copied: BTreeSet<String>,
    /// Workloads of which a copy got more replicas since: a restored hub gives it those of then.
    grown: BTreeSet<String>,
    /// Reasons to leave.
    may_leave: BTreeSet<(String, usize)>,
    /// Reasons to shrink.
    may_shrink: BTreeSet<String>,
    /// Objects that somebody else deletes on a member.
    lost: BTreeSet<(usize, String)>,
    /// Reasons when the hub's copy was made.
    then: (BTreeSet<(String, usize)>, BTreeSet<String>),
    /// What members were told to take away then, and had not yet.
    going: BTreeSet<(String, usize)>,
    /// Copies that were made since.
    made: BTreeSet<(String, usize)>,
    /// Objects that were there when a hub was restored: their members may not believe all that it says of them.
    older: BTreeMap<(usize, String), String>,
    /// Objects that are being deleted, by uid: that has been judged.
    ending: BTreeSet<String>,
    /// Pods by member and workload.
    pods: BTreeMap<(usize, String), BTreeSet<String>>,
    evicted: BTreeMap<(String, usize), Evicted>,
    /// Members from which users have driven workloads.
    driven: BTreeSet<usize>,
    sick: BTreeSet<usize>,
    taken: BTreeMap<usize, Taken>,
    /// Where workloads do not do their job, and since when they do again.
    ailing: BTreeMap<(usize, String), Option<Duration>>,
    objects: BTreeMap<(usize, String), Seen>,
    /// By consumer and provider: the endpoint that stays is there.
    endpoints: BTreeSet<(usize, usize)>,
    /// Members that were away once: what they provide went with their Clusters.
    were_away: BTreeSet<usize>,
    disturbed: BTreeMap<usize, Disturbed>,
    /// Since when the hub's machine stands still.
    hub_still: Option<Duration>,
    /// When somebody on a member changed an object.
    drifted: BTreeMap<(usize, String), Duration>,
    /// Members on which no agent runs, and those on which one does again, since when.
    asleep: BTreeMap<usize, Option<Duration>>,
    ready: BTreeMap<usize, String>,
    bindings: BTreeMap<String, BTreeMap<usize, i64>>,
    /// Those of the hub before, which the next finds.
    found: BTreeMap<String, BTreeMap<usize, i64>>,
    /// A restored hub finds what nobody has noted.
    anew: bool,
    /// What scalers do.
    scaled: Scaled,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    start: Instant,
    state: Mutex<State>,
    /// Cancelled when something is wrong.
    pub wrong: CancellationToken,
}

impl Ledger {
    /// A ledger that begins now.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), state: Mutex::default(), wrong: CancellationToken::new() })
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Writes a line of the story.
    pub fn tell(&self, line: impl Into<String>) {
        let now = self.now();
        self.state.lock().story.push((now, line.into()));
    }

    /// Something is wrong.
    pub fn accuse(&self, what: impl Into<String>) {
        let now = self.now();
        self.state.lock().accuse(now, what.into());
        self.wrong.cancel();
    }

    /// All that happened.
    pub fn story(&self) -> String {
        let mut text = String::new();
        for (at, line) in &self.state.lock().story {
            let _ = writeln!(text, "{:>8.3} s  {line}", at.as_secs_f64());
        }
        text
    }

    /// What was wrong.
    pub fn verdict(&self) -> Vec<String> {
        self.state.lock().wrong.clone()
    }

    /// What is wanted now.
    pub fn intent(&self) -> Intent {
        self.state.lock().intent.clone()
    }

    /// Workloads that may still be on members although nobody wants them: the hub does not know of them.
    pub fn forgotten(&self) -> BTreeSet<String> {
        self.state.lock().forgotten.clone()
    }

    /// Whether an object was there before the hub was restored.
    pub fn is_older(&self, member: usize, name: &str) -> bool {
        let state = self.state.lock();
        let key = (member, name.to_owned());
        state.objects.get(&key).is_some_and(|seen| state.older.get(&key) == Some(&seen.uid))
    }

    /// What is on a member of a workload.
    pub fn on(&self, member: usize, name: &str) -> Option<Seen> {
        self.state.lock().objects.get(&(member, name.to_owned())).cloned()
    }

    /// A user changes what is wanted.
    pub fn wants(&self, change: impl FnOnce(&mut Intent)) {
        let mut state = self.state.lock();
        let before = state.intent.clone();
        change(&mut state.intent);
        let left = state.intent.left.clone();
        state.were_away.extend(left);
        state.reason(&before);
    }

    /// On a member there is a provider's slice, with these endpoints that take requests, or none any more.
    pub(super) fn brought(&self, member: usize, provider: usize, ready: Option<&BTreeSet<String>>) {
        let mut state = self.state.lock();
        let is_there = ready.is_some_and(|ready| ready.contains(&stays(provider)));
        let was_there = match is_there {
            true => !state.endpoints.insert((member, provider)),
            false => state.endpoints.remove(&(member, provider)),
        };
        let may = state.were_away.contains(&member) || state.were_away.contains(&provider);
        drop(state);
        let (consumer, of) = (member + 1, provider + 1);
        self.tell(format!("member{consumer} has of member{of} {ready:?}"));
        if member == provider {
            self.accuse(format!("member{consumer} was brought a slice of its own"));
        } else if was_there && !is_there && !may {
            self.accuse(format!("an endpoint that member{of} has went from member{consumer}: {ready:?}"));
        }
    }

    /// A copy of the hub is made. Members have not yet taken away what is `going`.
    pub fn backup(&self, going: BTreeSet<(String, usize)>) {
        let mut state = self.state.lock();
        state.backup = Some(state.intent.clone());
        state.going = going;
        state.made.clear();
        state.then = (state.may_leave.clone(), state.may_shrink.clone());
        state.copied.clear();
        state.grown.clear();
    }

    /// The hub knows what it knew then, and no more.
    pub fn restored(&self) {
        let mut state = self.state.lock();
        let Some(backup) = state.backup.clone() else { return };
        let before = std::mem::replace(&mut state.intent, backup);
        let names: BTreeSet<String> = before.wants.keys().chain(state.intent.wants.keys()).cloned().collect();
        for name in &names {
            if state.intent.wants.get(name) != before.wants.get(name) {
                state.forgotten.insert(name.clone());
                // It has other replicas now. Where nobody had wanted it then, it stays.
                state.may_shrink.insert(name.clone());
            }
        }
        // No agent deletes what no Work names any more.
        let copied = std::mem::take(&mut state.copied);
        state.forgotten.extend(copied);
        let grown = std::mem::take(&mut state.grown);
        state.may_shrink.extend(grown);
        let (leave, shrink) = state.then.clone();
        state.may_leave.extend(leave);
        state.may_shrink.extend(shrink);
        state.older = state.objects.iter().map(|(key, seen)| (key.clone(), seen.uid.clone())).collect();
        // What has gone and come again since is not what was to go.
        let again: Vec<_> = state.going.intersection(&state.made).cloned().collect();
        for key in again {
            state.may_leave.remove(&key);
        }
        state.evicted.clear();
        state.bindings.clear();
        state.found.clear();
        state.anew = true;
        state.scaled.restored();
    }

    /// Everything agrees: what was a reason once is none any more.
    pub fn settled(&self) {
        let mut state = self.state.lock();
        // What has no place may still be on its way out.
        let intent = state.intent.clone();
        let is_nowhere = |name: &str| intent.clusters(name).is_subset(&intent.tainted);
        state.may_leave.retain(|(name, _)| is_nowhere(name));
        state.may_shrink.clear();
        state.lost.clear();
        state.anew = false;
        state.scaled.incomplete = false;
        state.driven = state.intent.tainted.clone();
    }

    /// Somebody on the member deletes an object.
    pub fn loses(&self, member: usize, name: &str) {
        self.state.lock().lost.insert((member, name.to_owned()));
    }

    /// Somebody on a member changes an object, which will be changed back.
    pub fn drifts(&self, member: usize, name: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        state.may_shrink.insert(name.to_owned());
        state.drifted.insert((member, name.to_owned()), now);
    }

    /// A user drives everything from a member, or not any more.
    pub fn taints(&self, member: usize, on: bool) {
        let mut state = self.state.lock();
        if on {
            state.driven.insert(member);
            state.intent.tainted.insert(member);
        } else {
            state.intent.tainted.remove(&member);
        }
    }

    /// A user deletes a member's Cluster, whose name another machine is to have.
    pub fn takes(&self, member: usize) {
        let mut state = self.state.lock();
        let of = |keys: &mut dyn Iterator<Item = &(String, usize)>| -> BTreeSet<String> {
            keys.filter(|(_, at)| *at == member).map(|(name, _)| name.clone()).collect()
        };
        let going = of(&mut state.may_leave.iter().chain(state.evicted.keys()));
        let wants = state.intent.wants.iter().filter(|(_, want)| want.clusters.contains(&member));
        let mut wanted: BTreeSet<String> = wants.map(|(name, _)| name.clone()).collect();
        wanted.extend(state.objects.keys().filter(|(at, _)| *at == member).map(|(_, name)| name.clone()));
        state.taken.insert(member, Taken { is: false, going, wanted });
        state.were_away.insert(member);
        let before = state.intent.clone();
        state.intent.taken.insert(member);
        state.reason(&before);
    }

    /// The other machine has the name now.
    pub(super) fn is_a_stranger(&self, member: usize) {
        let now = self.now();
        let mut state = self.state.lock();
        let Some(taken) = state.taken.get_mut(&member).filter(|taken| !taken.is) else { return };
        taken.is = true;
        state.tell(now, format!("another machine has the name of member{}", member + 1));
    }

    /// It has not any more. What the member had of what is not placed there again, nobody takes away.
    pub fn gives_back(&self, member: usize) {
        let mut state = self.state.lock();
        state.taken.remove(&member);
        let there: Vec<String> =
            state.objects.keys().filter(|(at, _)| *at == member).map(|(_, name)| name.clone()).collect();
        state.forgotten.extend(there);
        let before = state.intent.clone();
        state.intent.taken.remove(&member);
        state.reason(&before);
    }

    /// Nothing new becomes ready on a member, or it does again.
    pub fn sickens(&self, member: usize, is: bool) {
        let mut state = self.state.lock();
        if is {
            state.sick.insert(member)
        } else {
            state.sick.remove(&member)
        };
    }

    /// Whether nothing new becomes ready on a member.
    pub(super) fn is_sick(&self, member: usize) -> bool {
        self.state.lock().sick.contains(&member)
    }

    /// A workload does not do its job any more on the first member that has it. Whether there is one.
    pub fn fails(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.objects.keys().find(|(_, other)| other == name).cloned() else { return false };
        state.ailing.insert(at, None);
        true
    }

    /// A workload does its job again.
    pub fn recovers(&self, name: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        let here = state.ailing.iter_mut().filter(|((_, other), _)| other == name);
        here.for_each(|(_, until)| *until = Some(now));
    }

    /// Whether a workload fails on a member.
    pub(super) fn ails(&self, member: usize, name: &str) -> bool {
        self.state.lock().ailing.get(&(member, name.to_owned())) == Some(&None)
    }

    /// How long a workload's pods take to become ready.
    pub(super) fn startup(&self, name: &str) -> Duration {
        self.state.lock().startup(name)
    }

    /// A user says that the copies which a workload has left behind may go.
    pub(super) fn confirms(&self, name: &str) {
        let mut state = self.state.lock();
        let of = state.evicted.iter_mut().filter(|((other, _), _)| other == name);
        of.for_each(|(_, evicted)| evicted.confirmed = true);
    }

    /// No agent runs on a member from now on, or one does again.
    pub fn sleeps(&self, member: usize, begins: bool) {
        let until = (!begins).then(|| self.now());
        self.state.lock().asleep.insert(member, until);
    }

    /// A member's way to the hub is disturbed from now on, or not any more.
    pub fn disturb(&self, member: usize, begins: bool) {
        let now = self.now();
        let mut state = self.state.lock();
        let it = state.disturbed.entry(member).or_default();
        it.now = if begins { it.now + 1 } else { it.now.saturating_sub(1) };
        it.until = Some(now);
    }

    /// The hub's machine stands still from now on, or goes on: what it had begun to write when it stopped, and what was
    /// over meanwhile, it knows only then.
    pub fn hub_stands_still(&self, begins: bool) {
        let now = self.now();
        let mut state = self.state.lock();
        let since = if begins { state.hub_still.replace(now) } else { state.hub_still.take() };
        let Some(since) = since.filter(|_| !begins) else { return };
        for it in state.disturbed.values_mut().filter(|it| it.until.is_some_and(|until| until >= since)) {
            it.until = Some(now);
        }
    }

    /// An object is there or has changed. How long its pods take to start.
    pub(super) fn present(&self, member: usize, kind: &str, object: &Value) -> Duration {
        let now = self.now();
        let mut state = self.state.lock();
        let name = object::name(object).to_owned();
        let replicas = object["spec"]["replicas"].as_i64().unwrap_or(0);
        let value = object["data"]["key"].as_str().unwrap_or_default().to_owned();
        let startup = state.startup(&name);
        if kind == "ConfigMap" && !name.starts_with('w') {
            return startup;
        }
        let key = (member, name.clone());
        let known = state.objects.get(&key).cloned();
        match &known {
            Some(known) if known.uid == object::uid(object) => {
                if known.replicas != replicas {
                    state.tell(
                        now,
                        format!("member{}: {name} {} → {replicas} replicas", member + 1, known.replicas),
                    );
                }
                if replicas > known.replicas {
                    state.grown.insert(name.clone());
                }
                let stopped = replicas == 0 && state.fence(&name).is_some() || state.shrinks(&name);
                // Static weights are a user's word on what each cluster has of those that there are.
                let weighted = state.intent.wants.get(&name).is_some_and(|w| w.spread == Spread::Weighted);
                let by_weight = weighted
                    && state.bindings.get(&name).and_then(|there| there.get(&member)) == Some(&replicas);
                if replicas < known.replicas
                    && !stopped
                    && !by_weight
                    && !state.may_shrink.contains(&name)
                    && !state.leaves(&name, member)
                {
                    state.accuse(
                        now,
                        format!("{name} shrinks on member{} and nobody asked for that", member + 1),
                    );
                    self.wrong.cancel();
                }
            }
            _ => {
                if state.taken.get(&member).is_some_and(|taken| taken.is && !taken.wanted.contains(&name)) {
                    let whose = format!("{name} comes to member{}, whose name another has", member + 1);
                    state.accuse(now, whose);
                    self.wrong.cancel();
                }
                state.copied.insert(name.clone());
                state.made.insert((name.clone(), member));
                // An agent was in the midst of it when the hub was lost.
                let placed = state.bindings.get(&name).is_some_and(|there| there.contains_key(&member));
                if state.anew && !placed {
                    state.forgotten.insert(name.clone());
                }
                state.tell(now, format!("member{}: {name} is there, {replicas} replicas", member + 1));
            }
        }
        let same = known.filter(|known| known.uid == object::uid(object));
        if let Some(known) = same.as_ref().filter(|_| object::deletion_timestamp(object).is_some()) {
            let lost = state.lost.contains(&key);
            if state.ending.insert(known.uid.clone())
                && !lost
                && !state.goes_rightly(now, &name, member, known)
            {
                self.wrong.cancel();
            }
        }
        let (ready, told) = same.map_or((0, (0, 0, 0)), |known| (known.ready, known.told));
        let uid = object::uid(object).to_owned();
        state.objects.insert(key, Seen { uid, replicas, ready: ready.min(replicas), told, value });
        if let Err(why) = state.fenced(now, &name) {
            state.accuse(now, why);
            self.wrong.cancel();
        }
        startup
    }

    /// Whether a workload may run on one member only.
    pub(super) fn is_fenced(&self, name: &str) -> bool {
        self.state.lock().fence(name).is_some()
    }

    /// A Pod of a workload is there, or has ended.
    pub(super) fn pod(&self, member: usize, name: &str, pod: &str, is: bool) {
        let now = self.now();
        let mut state = self.state.lock();
        let key = (member, name.to_owned());
        let pods = state.pods.entry(key).or_default();
        if is && pods.insert(pod.to_owned()) {
            if let Err(why) = state.fenced(now, name) {
                state.accuse(now, why);
                self.wrong.cancel();
            }
        } else if !is && pods.remove(pod) {
            state.tell(now, format!("member{}: a Pod of {name} has ended", member + 1));
        }
    }

    /// The status that a Deployment is to have, if it has another one.
    pub(super) fn status(
        &self,
        member: usize,
        name: &str,
        generation: i64,
        wanted: i64,
        ready: i64,
    ) -> Option<Value> {
        let mut state = self.state.lock();
        let seen = state.objects.get_mut(&(member, name.to_owned()))?;
        let told = (generation, wanted, ready);
        if seen.told == told {
            return None;
        }
        (seen.told, seen.ready) = (told, ready);
        Some(member::status(generation, wanted, ready))
    }

    /// An object is gone.
    pub(super) fn absent(&self, member: usize, _kind: &str, name: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        let key = (member, name.to_owned());
        let Some(gone) = state.objects.remove(&key) else { return };
        state.tell(now, format!("member{}: {name} is gone", member + 1));
        if state.lost.remove(&key) {
            return;
        }
        let judged = state.ending.remove(&gone.uid);
        if !judged && !state.goes_rightly(now, name, member, &gone) {
            self.wrong.cancel();
        }
        if !state.intent.unwanted(name, member) {
            state.may_leave.remove(&(name.to_owned(), member));
        }
    }

    /// The hub has decided where a workload is to be.
    pub(super) fn placed(
        &self,
        name: &str,
        clusters: BTreeMap<usize, i64>,
        allowed: &BTreeSet<usize>,
        leaving: BTreeMap<usize, Cause>,
    ) {
        let now = self.now();
        let mut state = self.state.lock();
        for member in clusters.keys().filter(|member| !leaving.contains_key(member)) {
            let key = (name.to_owned(), *member);
            let directly = state.evicted.remove(&key).is_some_and(|evicted| {
                evicted.cause.purge == PurgeMode::Directly
                    && (!evicted.cause.lost || state.fence(name).is_some())
            });
            if directly {
                // It had begun to go when that was taken back.
                state.may_leave.insert(key);
            }
        }
        let going: BTreeSet<usize> = leaving.keys().copied().collect();
        for (member, mut cause) in leaving {
            let key = (name.to_owned(), member);
            // One that answers and is not well is not lost: its user may say what becomes of what is there.
            cause.lost &= state.ready.get(&member).is_none_or(|ready| ready != "False");
            if !state.evicted.contains_key(&key) {
                state.tell(now, format!("hub: {name} is to leave member{}, {}", member + 1, cause.purge));
                let least = state.intent.wants.get(name).map_or(0, |want| want.replicas);
                state.evicted.insert(key, Evicted { since: now, cause, confirmed: false, least });
            }
        }
        if name == scalers::MEMBERS && clusters.len() < state.intent.clusters(name).len() {
            state.scaled.incomplete = true;
        }
        state.concludes(now, name, &clusters, &going);
        let known = state.bindings.get(name).cloned();
        if known.as_ref() == Some(&clusters) {
            return;
        }
        // What a hub finds when it starts it has not decided: its policy may have changed a moment before it ended.
        let decided = known.is_some() || !state.anew;
        let known = known.or_else(|| state.found.remove(name)).unwrap_or_default();
        if known != clusters {
            let text: Vec<String> = clusters.iter().map(|(m, n)| format!("member{}={n}", m + 1)).collect();
            state.tell(now, format!("hub: {name} goes to {}", text.join(" ")));
            let is_outside = |m: &&usize| decided && !known.contains_key(*m) && !allowed.contains(*m);
            for member in clusters.keys().filter(is_outside) {
                state.accuse(now, format!("{name} is placed on member{}, outside of its policy", member + 1));
                self.wrong.cancel();
            }
        }
        state.bindings.insert(name.to_owned(), clusters);
    }

    /// The hub has another opinion of a cluster.
    pub(super) fn cluster(&self, member: usize, ready: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        let before = state.ready.insert(member, ready.to_owned());
        if before.as_deref() == Some(ready) {
            return;
        }
        state.tell(now, format!("hub: member{} is Ready={ready}", member + 1));
        let disturbed = state.disturbed.get(&member).copied().unwrap_or_default();
        let echo = disturbed.until.is_some_and(|until| now <= until + ECHO);
        // Of one that has left a restored hub may know still.
        let left = state.intent.is_away(member);
        let calm = disturbed.now == 0 && !echo && !left;
        if before.as_deref() == Some("True") && ready == "Unknown" && calm {
            state.accuse(now, format!("member{} was never out of reach and is taken for lost", member + 1));
            self.wrong.cancel();
        }
    }

    /// Whether anything is scaled.
    pub(super) fn is_scaled(&self) -> bool {
        self.state.lock().intent.wants.values().any(|want| want.scaler.is_some())
    }

    /// Whether something is scaled by the clock.
    pub(super) fn is_timed(&self) -> bool {
        let is = |want: &Want| want.scaler == Some(Scaler::Cron { suspended: false });
        self.state.lock().intent.wants.get(scalers::CRON).is_some_and(is)
    }

    /// How much Pods use, in hundredths of what they are to use.
    pub(super) fn load(&self) -> u8 {
        self.state.lock().scaled.load
    }

    /// Tells what scalers are judged by.
    pub(super) fn scaled(&self, tell: impl FnOnce(&mut Scaled, Duration)) {
        let now = self.now();
        tell(&mut self.state.lock().scaled, now);
    }

    /// A template on the hub has so many replicas.
    pub(super) fn templated(&self, name: &str, replicas: i64) {
        let now = self.now();
        let mut state = self.state.lock();
        let Some(scaler) = state.scaler(name) else { return };
        let on: BTreeSet<usize> = state.bindings.get(name).into_iter().flatten().map(|(at, _)| *at).collect();
        let on = on.into_iter().filter(|member| !state.intent.is_away(*member)).collect();
        let (news, judged) = state.scaled.templated((name, scaler), replicas, &on, now);
        if news {
            state.tell(now, format!("hub: {name} is to have {replicas} replicas"));
            let before = state.intent.clone();
            if let Some(want) = state.intent.wants.get_mut(name) {
                want.replicas = replicas;
            }
            state.reason(&before);
        }
        if let Err(why) = judged {
            state.accuse(now, why);
            self.wrong.cancel();
        }
    }

    /// What a CronFederatedHPA says that it has done.
    pub(super) fn struck(&self, status: &Value) {
        let now = self.now();
        let mut state = self.state.lock();
        if let Err(why) = state.scaled.cron(status) {
            state.accuse(now, why);
            self.wrong.cancel();
        }
    }

    /// What scalers have to do yet.
    pub(super) fn unfinished(&self, want: &Want, now: Time) -> Result<(), String> {
        self.state.lock().scaled.unfinished(want, now)
    }

    /// What the hub said is no longer known: it has stopped.
    pub(super) fn hub_is_gone(&self) {
        let mut state = self.state.lock();
        let bindings = std::mem::take(&mut state.bindings);
        state.found.extend(bindings);
        state.ready.clear();
    }
}

impl State {
    fn tell(&mut self, now: Duration, line: String) {
        self.story.push((now, line));
    }

    fn accuse(&mut self, now: Duration, what: String) {
        self.story.push((now, format!("WRONG: {what}")));
        self.wrong.push(what);
    }

    fn startup(&self, name: &str) -> Duration {
        self.intent.wants.get(name).map_or(Duration::from_secs(1), |want| want.startup)
    }

    fn fence(&self, name: &str) -> Option<u64> {
        self.intent.wants.get(name).and_then(|want| want.fence)
    }

    /// Whether a workload that may run on one member only does. A member without an agent stops nothing, and nobody knows
    /// of one that has left.
    fn fenced(&self, now: Duration, name: &str) -> Result<(), String> {
        if self.fence(name).is_none() {
            return Ok(());
        }
        let wanted = self.objects.iter().filter(|(at, seen)| at.1 == name && seen.replicas > 0);
        let ending = self.pods.iter().filter(|(at, pods)| at.1 == name && !pods.is_empty());
        let members: BTreeSet<usize> =
            wanted.map(|((member, _), _)| *member).chain(ending.map(|((member, _), _)| *member)).collect();
        let excused = |member: &usize| {
            let slept = self.asleep.get(member);
            let slept = slept.is_some_and(|until| until.is_none_or(|until| now <= until + AWAKE));
            let drifted = self.drifted.get(&(*member, name.to_owned()));
            let drifted = drifted.is_some_and(|at| now <= *at + AWAKE);
            slept || drifted || self.intent.is_away(*member)
        };
        if members.len() < 2 || members.iter().any(excused) {
            return Ok(());
        }
        let members: Vec<String> = members.iter().map(|member| format!("member{}", member + 1)).collect();
        Err(format!("{name} may run once only and runs on {}", members.join(" and ")))
    }

    /// Whether somebody has asked for the deletion of an object, or it is an eviction that keeps service. Says so if not.
    fn goes_rightly(&mut self, now: Duration, name: &str, member: usize, gone: &Seen) -> bool {
        let others = self.taken.get(&member).filter(|taken| taken.is);
        if others.is_some_and(|taken| !taken.going.contains(name)) {
            if self.fence(name).is_some() {
                return true;
            }
            self.accuse(now, format!("{name} was deleted on member{}, whose name another has", member + 1));
            return false;
        }
        if self.leaves(name, member) {
            return true;
        }
        let Err(why) = self.evicts(now, name, member, gone) else { return true };
        self.accuse(now, format!("{name} was deleted on member{} and {why}", member + 1));
        false
    }

    fn leaves(&self, name: &str, member: usize) -> bool {
        let by_scaling = self.intent.wants.get(name).is_some_and(|want| want.spread.divides());
        self.may_leave.contains(&(name.to_owned(), member)) || by_scaling && self.shrinks(name)
    }

    fn scaler(&self, name: &str) -> Option<Scaler> {
        self.intent.wants.get(name).and_then(|want| want.scaler)
    }

    /// Whether somebody else than a user may have taken replicas away.
    fn shrinks(&self, name: &str) -> bool {
        self.scaler(name).is_some_and(|scaler| self.scaled.shrinks(scaler))
    }

    /// Evictions that the hub has ended well may be carried out from now on, whatever happens until the member hears of it.
    fn concludes(
        &mut self,
        now: Duration,
        name: &str,
        clusters: &BTreeMap<usize, i64>,
        going: &BTreeSet<usize>,
    ) {
        let over: Vec<usize> = self
            .evicted
            .keys()
            .filter(|(other, member)| {
                other == name && !going.contains(member) && !clusters.contains_key(member)
            })
            .map(|(_, member)| *member)
            .collect();
        for member in over {
            let key = (member, name.to_owned());
            let Some(seen) = self.objects.get(&key) else { continue };
            if self.evicts(now, name, member, seen).is_ok() {
                self.may_leave.insert((name.to_owned(), member));
            }
        }
    }

    /// Whether an eviction that the hub has begun may end so: service is kept.
    fn evicts(&self, now: Duration, name: &str, member: usize, gone: &Seen) -> Result<(), String> {
        let Some(evicted) = self.evicted.get(&(name.to_owned(), member)) else {
            return Err("nobody asked for that".to_owned());
        };
        // What may run once only stops before it runs elsewhere.
        if evicted.confirmed || self.fence(name).is_some() {
            return Ok(());
        }
        match evicted.cause.purge {
            PurgeMode::Never => return Err("was to stay until a user says otherwise".to_owned()),
            // What a lost cluster has is not removed first: nobody could. With the time it is what the user asked for.
            PurgeMode::Directly if !evicted.cause.lost || now >= evicted.since + GRACE => return Ok(()),
            PurgeMode::Directly | PurgeMode::Gracefully => {}
        }
        let Some(want) = self.intent.wants.get(name) else { return Ok(()) };
        let is_other = |at: &(usize, String)| at.1 == name && at.0 != member;
        let others: i64 =
            self.objects.iter().filter(|(at, _)| is_other(at)).map(|(_, seen)| seen.ready).sum();
        let copies = match want.spread {
            Spread::Duplicated => self.intent.clusters(name).len() as i64,
            _ => 1,
        };
        let enough = (copies * evicted.least).min(others + gone.ready);
        let by_user = self.driven.contains(&member);
        let grace = now >= evicted.since + GRACE;
        // Duplicated and driven from one of its places by a user, there may be no other place.
        let nowhere = by_user && (want.spread == Spread::Duplicated || self.intent.clusters(name).len() < 2);
        // That it does its job again may not be known yet.
        let failed = self.ailing.get(&(member, name.to_owned()));
        let failed = failed.is_some_and(|until| until.is_none_or(|until| now <= until + ECHO));
        // With the time, copies that are well are enough, by the count that they know of.
        let is_well = |member: &usize| {
            let seen = self.objects.get(&(*member, name.to_owned()));
            seen.is_some_and(|seen| seen.ready > 0 && seen.ready >= seen.replicas)
        };
        let there = self.bindings.get(name).filter(|there| !there.is_empty());
        let all_well = there.is_some_and(|there| there.keys().all(is_well));
        if others >= enough || (grace && (by_user || failed || all_well)) || nowhere {
            return Ok(());
        }
        Err(format!("of {enough} replicas that were ready {others} are left"))
    }

    /// Notes the reasons that a change of mind is for leaving and shrinking.
    fn reason(&mut self, before: &Intent) {
        let away = |intent: &Intent| (intent.left.clone(), intent.taken.clone());
        // A cluster that is taken out takes its replicas with it.
        self.scaled.incomplete |= away(before) != away(&self.intent);
        let names: BTreeSet<String> = before.wants.keys().chain(self.intent.wants.keys()).cloned().collect();
        for name in names {
            let (old, new) = (before.wants.get(&name), self.intent.wants.get(&name));
            let members: BTreeSet<usize> =
                old.into_iter().chain(new).flat_map(|want| want.clusters.iter().copied()).collect();
            let divides = new.is_some_and(|want| want.spread.divides());
            let changed = old != new || away(before) != away(&self.intent);
            for member in members {
                // Division may leave a cluster without replicas when anything about it changes.
                if self.intent.unwanted(&name, member) || (changed && divides) {
                    self.may_leave.insert((name.clone(), member));
                }
            }
            if changed {
                let replicas = new.map_or(0, |want| want.replicas);
                let of_it = self.evicted.iter_mut().filter(|((other, _), _)| *other == name);
                of_it.for_each(|(_, evicted)| evicted.least = evicted.least.min(replicas));
                self.may_shrink.insert(name);
            }
        }
    }
}

/// What a template carries to show which wish it comes from.
pub(super) fn value_of(want: &Want) -> String {
    if want.spread == Spread::Config { format!("{}", want.replicas) } else { String::new() }
}
