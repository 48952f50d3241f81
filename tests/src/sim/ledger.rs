//! What was asked for, what was seen, and what of it was wrong.
//!
//! The ledger is told of each act of the driver before it is done, of every change of an object on a member, and of
//! what the hub decides. It keeps, for every workload and member, whether anybody has given a reason for the workload
//! to leave that member or to shrink there. Nothing may go without one. A reason holds for as long as it stands, and
//! after that until it has been carried out or everything has come to agree.

mod acts;
mod judged;
mod seen;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use karmada_api::policy::PurgeMode;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    plan::{Scaler, Spread, Want},
    scalers::{self, Scaled},
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
}

/// What a template carries to show which wish it comes from.
pub(super) fn value_of(want: &Want) -> String {
    if want.spread == Spread::Config { format!("{}", want.replicas) } else { String::new() }
}
