//! What a seed has in store: a fleet, what users want on it, and what happens when. All of it is data, made before
//! anything runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use karmada_api::policy::PurgeMode;
use karmada_env::{Random, SplitMix};

use super::scalers;

/// What an agent keeps over its restarts, of what the hub has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Nothing.
    Nothing,
    /// All of it.
    All,
    /// All of it, unless it is killed: its disk goes with it.
    UntilKilled,
}

/// How replicas are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// A ConfigMap: no replicas at all.
    Config,
    /// All of them on each cluster.
    Duplicated,
    /// All of them on one cluster: the others are spare.
    Single,
    /// By static weights, 1:2:1:2….
    Weighted,
    /// By room.
    Dynamic,
    /// On as few clusters as will do.
    Aggregated,
}

impl Spread {
    /// Whether replicas are shared out.
    pub const fn divides(self) -> bool {
        matches!(self, Self::Weighted | Self::Dynamic | Self::Aggregated)
    }
}

/// Who decides how many replicas a workload has, besides users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaler {
    /// A FederatedHPA, by what its Pods use.
    Federated,
    /// A CronFederatedHPA: one number in even minutes and another in odd ones, unless its rules are suspended.
    Cron {
        /// They are.
        suspended: bool,
    },
    /// HorizontalPodAutoscalers on its members.
    Members {
        /// How many on each.
        hpas: u8,
    },
}

/// What a user wants of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// How replicas are spread.
    pub spread: Spread,
    /// How many.
    pub replicas: i64,
    /// Where: members by number, from 0.
    pub clusters: BTreeSet<usize>,
    /// How long its pods take to become ready.
    pub startup: Duration,
    /// Its policy asks that it leave clusters that are lost, and what becomes of the copies there.
    pub purge: Option<PurgeMode>,
    /// Its policy asks that it leave clusters where it is unhealthy.
    pub patience: Option<Patience>,
    /// It may run on one member only, and stops after so many seconds without a word of the hub.
    pub fence: Option<u64>,
    /// Bytes of its template that hardly compress.
    pub bulk: usize,
    /// Who else decides on its replicas.
    pub scaler: Option<Scaler>,
}

/// When a workload leaves a cluster where it does not do its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// After so many seconds.
    pub seconds: u64,
    /// What becomes of the copy there.
    pub purge: PurgeMode,
}

/// A link's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ways, silently.
    Partition,
    /// What comes from the agent is lost.
    LoseUp,
    /// What comes from the hub is lost.
    LoseDown,
    /// Nobody listens.
    Refuse,
    /// Everything comes late, by milliseconds.
    Late(u64),
    /// So many bytes a second pass, each way.
    Narrow(u32),
}

/// Something that is done to the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A member's link does this, from now on.
    Cut(usize, Cut),
    /// A member's link is well.
    Mend(usize),
    /// The hub's time of day jumps, by seconds.
    HubClock(i64),
    /// A member's does.
    Clock(usize, i64),
    /// The hub's machine stands still.
    PauseHub,
    /// It goes on.
    ResumeHub,
    /// An agent's machine stands still.
    Pause(usize),
    /// It goes on.
    Resume(usize),
    /// The hub's controllers hear nothing of a collection.
    StallHub(&'static str),
    /// They do again.
    FlowHub,
    /// An agent hears nothing of a collection.
    Stall(usize, &'static str),
    /// It does again.
    Flow(usize),
    /// A member does not serve Deployments, as if it had just started.
    Unserve(usize),
    /// It does again.
    Serve(usize),
    /// The hub stops.
    StopHub,
    /// It starts on what it left.
    StartHub,
    /// A copy of the hub is made.
    Backup,
    /// The hub is lost, and made anew of the copy.
    Restore,
    /// An agent ends: asked to, or where it stands.
    StopAgent(usize, bool),
    /// It starts again.
    StartAgent(usize),
    /// A user changes what is wanted of a workload: its template, its policy or both.
    Set(String, Want),
    /// A user deletes a template, and its policy.
    Delete(String),
    /// Somebody changes an object on a member.
    Drift(usize, String),
    /// Somebody deletes an object on a member.
    Lose(usize, String),
    /// A member leaves.
    Leave(usize),
    /// A user drives everything from a member.
    Taint(usize),
    /// And lets it back.
    Untaint(usize),
    /// On a member nothing new becomes ready.
    Sicken(usize),
    /// It does again, and so does what has waited.
    Heal(usize),
    /// A workload does not do its job any more on the first member that has it.
    Ail(String),
    /// It does again.
    Cure(String),
    /// A member answers its agent late, up to so many milliseconds: watches are ahead of answers.
    Lag(usize, u64),
    /// It answers at once.
    Prompt(usize),
    /// A second agent of a member's name is started, over a link that is well.
    Second(usize),
    /// It ends: asked to, or where it stands.
    EndSecond(usize, bool),
    /// A user deletes a member's Cluster, which cannot be reached, and another machine registers by its name.
    Take(usize),
    /// A user deletes that one, and the member gets its name back.
    GiveBack(usize),
    /// A member's agent tells of a Service that its cluster does not provide.
    Forge(usize),
    /// Pods use so much of what they are to use, in hundredths.
    Load(u8),
}

/// What may be said to have happened to a fleet.
pub const KINDS: [&str; 16] = [
    "partition",
    "one-way loss",
    "clock jump",
    "paused machine",
    "stalled watch",
    "hub restart",
    "hub restore",
    "agent restart",
    "slow link",
    "stale discovery",
    "application failure",
    "user's taint",
    "late answers",
    "second agent",
    "narrow link",
    "name taken",
];

/// Those that a seed has some of; the others have a chance of their own.
const DRAWN: usize = 10;

impl Act {
    /// Whether a user does this, by asking the hub.
    pub const fn is_users(&self) -> bool {
        matches!(
            self,
            Self::Set(..)
                | Self::Delete(_)
                | Self::Leave(_)
                | Self::Taint(_)
                | Self::Untaint(_)
                | Self::Take(_)
                | Self::GiveBack(_)
                | Self::Forge(_)
        )
    }

    /// The kind of fault that this begins, if it does.
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Cut(_, Cut::Partition | Cut::Refuse) => KINDS[0],
            Self::Cut(_, Cut::LoseUp | Cut::LoseDown) => KINDS[1],
            Self::HubClock(_) | Self::Clock(..) => KINDS[2],
            Self::PauseHub | Self::Pause(_) => KINDS[3],
            Self::StallHub(_) | Self::Stall(..) => KINDS[4],
            Self::StopHub => KINDS[5],
            Self::Restore => KINDS[6],
            Self::StopAgent(..) => KINDS[7],
            Self::Cut(_, Cut::Late(_)) => KINDS[8],
            Self::Unserve(_) => KINDS[9],
            Self::Ail(_) => KINDS[10],
            Self::Taint(_) => KINDS[11],
            Self::Lag(..) => KINDS[12],
            Self::Second(_) => KINDS[13],
            Self::Cut(_, Cut::Narrow(_)) => KINDS[14],
            Self::Take(_) => KINDS[15],
            _ => return None,
        })
    }
}

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything else.
    pub seed: u64,
    /// How many members there are.
    pub members: usize,
    /// Whether objects leave clusters that are lost for long.
    pub failover: bool,
    /// Whether a ClusterTaintPolicy drives everything from clusters that are lost.
    pub taint_policy: bool,
    /// Whether a hub that is made anew of a copy uses its revisions a second time, as an etcd that is restored does.
    pub rewinds: bool,
    /// Whether there is a Service that all members provide and use.
    pub services: bool,
    /// What agents keep over restarts, by member; those that are not named keep nothing.
    pub keeps: Vec<Keeps>,
    /// What is wanted at first, by name.
    pub wants: BTreeMap<String, Want>,
    /// What happens, in order of time.
    pub acts: Vec<(Duration, Act)>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failover = if self.failover { ", failover" } else { "" };
        let policy = if self.taint_policy { ", taints by policy" } else { "" };
        let rewinds = if self.rewinds { ", copies without a jump" } else { "" };
        let services = if self.services { ", a Service" } else { "" };
        writeln!(f, "seed {}: {} members{failover}{policy}{rewinds}{services}", self.seed, self.members)?;
        writeln!(f, "  agents keep {:?}", self.keeps)?;
        for (name, want) in &self.wants {
            writeln!(f, "  {name}: {want:?}")?;
        }
        for (at, act) in &self.acts {
            writeln!(f, "  at {:>4} s  {act:?}", at.as_secs())?;
        }
        Ok(())
    }
}

/// Collections that the hub's controllers watch, by how their paths end.
const WATCHED: [&str; 8] = [
    "/leases",
    "/clusters",
    "/works",
    "/resourcebindings",
    "/deployments",
    "/propagationpolicies",
    "/namespaces",
    "/leases",
];

/// Draws from a seed.
struct Dice(SplitMix);

impl Dice {
    fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one_of<T: Copy>(&self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Some of the members, one at least.
    fn some(&self, members: usize) -> BTreeSet<usize> {
        let mut some: BTreeSet<usize> = (0..members).filter(|_| self.chance(65)).collect();
        if some.is_empty() {
            some.insert(self.below(members as u64) as usize);
        }
        some
    }

    /// How long a fault lasts: a moment, about as long as a cluster may be silent, or much longer.
    fn lasts(&self) -> u64 {
        match self.below(3) {
            0 => self.between(2, 15),
            1 => self.between(25, 60),
            _ => self.between(65, 100),
        }
    }
}

/// Puts acts on a time line, so that no two faults of one thing overlap.
struct Line {
    dice: Dice,
    acts: Vec<(u64, Act)>,
    hub: u64,
    links: Vec<u64>,
    agents: Vec<u64>,
}

/// The storm's length, in seconds. What begins within it may last longer.
const STORM: u64 = 100;

impl Line {
    fn span(&mut self, which: impl Fn(&mut Self) -> &mut u64, begin: Act, lasts: u64, end: Act) {
        let mut free = *which(self);
        self.span_of(&mut free, begin, lasts, end);
        *which(self) = free;
    }

    fn span_of(&mut self, free: &mut u64, begin: Act, lasts: u64, end: Act) {
        let start = self.dice.between(1, STORM).max(*free);
        *free = start + lasts + 1;
        self.acts.push((start, begin));
        self.acts.push((start + lasts, end));
    }

    fn at(&mut self, act: Act) {
        let at = self.dice.between(1, STORM);
        self.acts.push((at, act));
    }

    fn cut(&mut self, member: usize, cut: Cut) {
        let lasts = self.dice.lasts();
        self.span(|line| &mut line.links[member], Act::Cut(member, cut), lasts, Act::Mend(member));
    }

    fn fault(&mut self, kind: &str, members: usize) {
        let member = self.dice.below(members as u64) as usize;
        match kind {
            "partition" => {
                let cut = if self.dice.chance(75) { Cut::Partition } else { Cut::Refuse };
                self.cut(member, cut);
                if self.dice.chance(30) {
                    self.cut((member + 1) % members, cut);
                }
            }
            "one-way loss" => {
                let cut = self.dice.one_of(&[Cut::LoseUp, Cut::LoseDown]);
                self.cut(member, cut);
            }
            "slow link" => {
                let cut = Cut::Late(self.dice.between(20, 1500));
                self.cut(member, cut);
            }
            "clock jump" => {
                for _ in 0..self.dice.between(1, 3) {
                    let by = self.dice.one_of(&[7, 45, 600, 86_400, 40_000_000]) as i64;
                    let by = if self.dice.chance(60) { -by } else { by };
                    let act = if self.dice.chance(50) { Act::HubClock(by) } else { Act::Clock(member, by) };
                    self.at(act);
                }
            }
            "paused machine" => {
                let lasts = self.dice.lasts();
                if self.dice.chance(50) {
                    self.span(|line| &mut line.hub, Act::PauseHub, lasts, Act::ResumeHub);
                } else {
                    self.span(
                        |line| &mut line.agents[member],
                        Act::Pause(member),
                        lasts,
                        Act::Resume(member),
                    );
                }
            }
            "stalled watch" => {
                let lasts = self.dice.lasts();
                if self.dice.chance(70) {
                    let what = self.dice.one_of(&WATCHED);
                    self.span(|line| &mut line.hub, Act::StallHub(what), lasts, Act::FlowHub);
                } else {
                    let stall = Act::Stall(member, "/works");
                    self.span(|line| &mut line.links[member], stall, lasts, Act::Flow(member));
                }
            }
            "stale discovery" => {
                let lasts = self.dice.lasts();
                let mut free = 0;
                self.span_of(&mut free, Act::Unserve(member), lasts, Act::Serve(member));
            }
            "hub restart" => {
                let lasts = self.dice.lasts();
                self.span(|line| &mut line.hub, Act::StopHub, lasts, Act::StartHub);
            }
            "hub restore" => {
                let backup = self.dice.between(0, STORM / 2);
                self.acts.push((backup, Act::Backup));
                let at = self.hub.max(backup + self.dice.between(1, STORM / 2));
                self.hub = at + 2;
                self.acts.push((at, Act::Restore));
            }
            "agent restart" => {
                let (lasts, kill) = (self.dice.lasts(), self.dice.chance(50));
                let stop = Act::StopAgent(member, kill);
                self.span(|line| &mut line.agents[member], stop, lasts, Act::StartAgent(member));
            }
            other => unreachable!("no fault is called {other}"),
        }
    }

    fn want(&self, members: usize) -> Want {
        let dice = &self.dice;
        let spread = dice.one_of(&[
            Spread::Config,
            Spread::Duplicated,
            Spread::Single,
            Spread::Single,
            Spread::Weighted,
            Spread::Dynamic,
            Spread::Aggregated,
        ]);
        Want {
            spread,
            replicas: dice.between(1, 6) as i64,
            clusters: dice.some(members),
            startup: Duration::from_secs(dice.between(1, 8)),
            purge: None,
            patience: None,
            fence: None,
            bulk: 0,
            scaler: None,
        }
    }

    /// Another wish for a workload of the same kind.
    fn change(&self, want: &Want, members: usize) -> Want {
        let other = self.want(members);
        match (want.spread, self.dice.below(3)) {
            (Spread::Config, _) | (_, 0) => Want { clusters: other.clusters, ..want.clone() },
            (_, 1) => Want { replicas: other.replicas, ..want.clone() },
            (_, _) => Want { replicas: other.replicas, clusters: other.clusters, ..want.clone() },
        }
    }

    fn user(&mut self, wants: &mut BTreeMap<String, Want>, members: usize) {
        let names: Vec<String> = wants.keys().cloned().collect();
        let name = names[self.dice.below(names.len() as u64) as usize].clone();
        let member = self.dice.below(members as u64) as usize;
        match self.dice.below(10) {
            0..=5 => {
                let want = self.change(&wants[&name], members);
                wants.insert(name.clone(), want.clone());
                self.at(Act::Set(name, want));
            }
            6 => self.at(Act::Delete(name)),
            7 => {
                let at = self.dice.between(1, STORM);
                self.acts.push((at, Act::Delete(name.clone())));
                let again = at + self.dice.between(1, 10);
                self.acts.push((again, Act::Set(name.clone(), wants[&name].clone())));
            }
            8 => self.at(Act::Drift(member, name)),
            _ => self.at(Act::Lose(member, name)),
        }
    }
}

impl Line {
    /// A copy of the hub is made while a workload is on its way out of a member whose agent is away. It comes back, and
    /// the hub is lost: of what is there then the copy only knows that it was to go.
    fn comes_back(&mut self, wants: &BTreeMap<String, Want>, members: usize) {
        let member = self.dice.below(members as u64) as usize;
        let names: Vec<&String> =
            wants.iter().filter(|(_, want)| want.clusters.contains(&member)).map(|(name, _)| name).collect();
        if names.is_empty() {
            return;
        }
        let name = names[self.dice.below(names.len() as u64) as usize].clone();
        let at = self.dice.between(1, 30).max(self.agents[member]);
        let restored = (at + self.dice.between(30, 50)).max(self.hub);
        self.agents[member] = at + 7;
        self.hub = restored + 2;
        self.acts.extend([
            (at, Act::StopAgent(member, self.dice.chance(50))),
            (at + 1, Act::Delete(name.clone())),
            (at + 4, Act::Backup),
            (at + 6, Act::StartAgent(member)),
            (at + 14, Act::Set(name.clone(), wants[&name].clone())),
            (restored, Act::Restore),
        ]);
    }
}

/// What a workload's policy asks for when a cluster is lost, and when it fails itself.
type Asks = (Option<PurgeMode>, Option<Patience>);

impl Line {
    /// Workloads that fail, and what their policies say of that, by name.
    fn failures(&mut self, wants: &BTreeMap<String, Want>) -> BTreeMap<String, Asks> {
        let (gracefully, directly) = (PurgeMode::Gracefully, PurgeMode::Directly);
        let patience = |dice: &Dice| Patience {
            // Longer than pods take to start.
            seconds: dice.between(12, 25),
            purge: dice.one_of(&[gracefully, directly, PurgeMode::Never]),
        };
        let mut asks: BTreeMap<String, Asks> = BTreeMap::new();
        for name in wants.keys() {
            let purge = self.dice.one_of(&[None, None, Some(gracefully), Some(directly)]);
            let patience = self.dice.chance(40).then(|| patience(&self.dice));
            asks.insert(name.clone(), (purge, patience));
        }
        let runs = |want: &&Want| want.spread != Spread::Config;
        let moves = |want: &&Want| runs(want) && want.spread != Spread::Duplicated && want.clusters.len() > 1;
        let names = |is: &dyn Fn(&&Want) -> bool| -> Vec<String> {
            wants.iter().filter(|(_, want)| is(want)).map(|(name, _)| name.clone()).collect()
        };
        // Those that have another place, if there are any.
        let able = [names(&moves), names(&runs)].into_iter().find(|able| !able.is_empty());
        if let Some(able) = able.filter(|_| self.dice.chance(45)) {
            let name = able[self.dice.below(able.len() as u64) as usize].clone();
            let (lasts, mut free) = (self.dice.between(10, 90), 0);
            asks.entry(name.clone()).and_modify(|(_, asks)| *asks = Some(patience(&self.dice)));
            self.span_of(&mut free, Act::Ail(name.clone()), lasts, Act::Cure(name));
        }
        asks
    }
}

/// Another machine has a member's name for a while. What its agent heard before it was cut off is another fault's matter,
/// as is a hub that is made anew of a copy, or a second agent of that name.
fn take(dice: &Dice, acts: &mut Vec<(u64, Act)>, members: usize, free: &[u64]) {
    // The last one may leave.
    let member = dice.below(members as u64 - 1) as usize;
    let begin = dice.between(1, STORM / 2).max(free[member] + 1);
    // The hub lets go of what a Cluster has when its agent has not been heard for a while.
    let (heard, gone, noticed) = (dice.between(5, 40), dice.between(60, 90), dice.between(20, 40));
    let taken = dice.chance(60);
    let other = |act: &Act| {
        matches!(act, Act::Restore)
            || matches!(act, Act::Second(m) | Act::Taint(m) | Act::Cut(m, Cut::Narrow(_)) if *m == member)
    };
    if !taken || acts.iter().any(|(_, act)| other(act)) {
        return;
    }
    acts.extend([
        (begin, Act::Cut(member, Cut::Partition)),
        (begin + heard, Act::Take(member)),
        (begin + heard + gone, Act::Mend(member)),
        (begin + heard + gone + noticed, Act::GiveBack(member)),
    ]);
}

/// Workloads that are scaled, each in some of the plans.
fn scaled(dice: &Dice, wants: &mut BTreeMap<String, Want>, acts: &mut Vec<(u64, Act)>, members: usize) {
    let want = |spread, replicas, scaler| Want {
        spread,
        replicas,
        clusters: (0..members).collect(),
        startup: Duration::from_secs(2),
        purge: None,
        patience: None,
        fence: None,
        bulk: 0,
        scaler: Some(scaler),
    };
    if dice.chance(13) {
        let spread =
            dice.one_of(&[Spread::Weighted, Spread::Dynamic, Spread::Duplicated, Spread::Aggregated]);
        wants.insert(scalers::FEDERATED.to_owned(), want(spread, 4, Scaler::Federated));
        let at = dice.between(1, STORM / 2);
        match dice.below(4) {
            0 => {}
            1 => acts.push((at, Act::Load(200))),
            2 => acts.push((at, Act::Load(10))),
            // There is more to take away where silence may do it.
            _ => acts.extend([(at, Act::Load(200)), (at + dice.between(40, 100), Act::Load(10))]),
        }
    }
    if dice.chance(13) {
        let scaler = Scaler::Cron { suspended: false };
        wants.insert(scalers::CRON.to_owned(), want(Spread::Duplicated, 3, scaler));
    }
    if dice.chance(13) {
        let of = |hpas| want(Spread::Weighted, 2 * members as i64, Scaler::Members { hpas });
        wants.insert(scalers::MEMBERS.to_owned(), of(2));
        acts.push((dice.between(1, STORM), Act::Set(scalers::MEMBERS.to_owned(), of(1))));
    }
}

impl Plan {
    /// What this seed has in store.
    pub fn of(seed: u64) -> Self {
        let dice = Dice(SplitMix::new(seed));
        let members = if dice.chance(60) { 2 } else { 3 };
        let (links, agents) = (vec![0; members], vec![0; members]);
        let mut line = Line { dice, acts: Vec::new(), hub: 0, links, agents };
        let mut wants: BTreeMap<String, Want> =
            (0..line.dice.between(2, 3)).map(|n| (format!("w{n}"), line.want(members))).collect();
        let mut kinds = KINDS[..DRAWN].to_vec();
        for _ in 0..line.dice.between(3, 4) {
            let kind = kinds.swap_remove(line.dice.below(kinds.len() as u64) as usize);
            line.fault(kind, members);
        }
        let restores = line.acts.iter().any(|(_, act)| *act == Act::Restore);
        if !restores && line.dice.chance(15) {
            line.comes_back(&wants, members);
        }
        let mut later = wants.clone();
        for _ in 0..line.dice.between(2, 4) {
            line.user(&mut later, members);
        }
        if members > 2 && line.dice.chance(15) {
            line.at(Act::Leave(members - 1));
        }
        let failover = line.dice.chance(60);
        if line.dice.chance(40) {
            let member = line.dice.below(members as u64) as usize;
            let lasts = line.dice.lasts();
            let mut free = 0;
            line.span_of(&mut free, Act::Taint(member), lasts, Act::Untaint(member));
        }
        if line.dice.chance(30) {
            let member = line.dice.below(members as u64) as usize;
            let lasts = line.dice.lasts();
            let mut free = 0;
            line.span_of(&mut free, Act::Sicken(member), lasts, Act::Heal(member));
        }
        let asks = line.failures(&wants);
        let taint_policy = line.dice.chance(25);
        let free: Vec<u64> =
            line.links.iter().zip(&line.agents).map(|(link, agent)| *link.max(agent)).collect();
        let (mut acts, dice) = (line.acts, line.dice);
        let fences: BTreeMap<String, u64> = wants
            .iter()
            .filter(|(_, want)| want.spread == Spread::Single && dice.chance(50))
            .map(|(name, _)| (name.clone(), dice.between(30, 45)))
            .collect();
        let set = acts.iter_mut().filter_map(|(_, act)| match act {
            Act::Set(name, want) => Some((&*name, want)),
            _ => None,
        });
        for (name, want) in set.chain(&mut wants) {
            (want.purge, want.patience) = asks[name];
            want.fence = fences.get(name).copied();
        }
        if dice.chance(40) {
            let (member, by) = (dice.below(members as u64) as usize, dice.between(2000, 9000));
            let begin = dice.between(1, STORM / 2);
            acts.push((begin, Act::Lag(member, by)));
            acts.push((begin + dice.between(30, 100), Act::Prompt(member)));
        }
        if dice.chance(30) {
            let member = dice.below(members as u64) as usize;
            let begin = dice.between(1, STORM / 2);
            acts.push((begin, Act::Second(member)));
            acts.push((begin + dice.between(30, 150), Act::EndSecond(member, dice.chance(50))));
        }
        let rewinds = dice.chance(50);
        if dice.chance(35) {
            let member = dice.below(members as u64) as usize;
            let begin = dice.between(1, STORM / 2);
            // From one at which a status takes longer than a server waits for one that stands still, to 2G.
            let rate = dice.one_of(&[300, 1_000, 4_000]);
            acts.push((begin, Act::Cut(member, Cut::Narrow(rate))));
            acts.push((begin + dice.between(30, 150), Act::Mend(member)));
            let bulky = wants.keys().nth(dice.below(wants.len() as u64) as usize).cloned();
            let bytes = dice.between(10, 60) as usize * 1024;
            let set = acts.iter_mut().filter_map(|(_, act)| match act {
                Act::Set(name, want) => Some((&*name, want)),
                _ => None,
            });
            for (_, want) in set.chain(&mut wants).filter(|(name, _)| Some(*name) == bulky.as_ref()) {
                want.bulk = bytes;
            }
        }
        take(&dice, &mut acts, members, &free);
        let keeps =
            (0..members).map(|_| dice.one_of(&[Keeps::Nothing, Keeps::All, Keeps::UntilKilled])).collect();
        let services = dice.chance(25);
        if services {
            acts.push((dice.between(1, STORM), Act::Forge(dice.between(1, members as u64 - 1) as usize)));
        }
        scaled(&dice, &mut wants, &mut acts, members);
        acts.sort_by_key(|(at, _)| *at);
        let acts = acts.into_iter().map(|(at, act)| (Duration::from_secs(at), act)).collect();
        Self { seed, members, failover, taint_policy, rewinds, services, keeps, wants, acts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_fault_is_in_a_fifth_of_the_plans() {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for seed in 0..300 {
            let kinds: BTreeSet<_> = Plan::of(seed).acts.iter().filter_map(|(_, act)| act.kind()).collect();
            kinds.into_iter().for_each(|kind| *seen.entry(kind).or_default() += 1);
        }
        for kind in KINDS {
            assert!(seen.get(kind).is_some_and(|n| *n >= 60), "{seen:?}");
        }
    }
}
