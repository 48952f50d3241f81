//! What is kept of a rollout.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use karmada_meta::{labels::Selector, time::Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    asked::{self, Asked, Who},
    revision::Revision,
};

/// So many revisions that were stopped are remembered.
const STOPPED: usize = 8;
/// So many clusters that were evicted with the change are kept: an annotation has room for no endless list.
pub(super) const EVICTED: usize = 500;

/// How a rollout stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The revision goes to every cluster.
    #[default]
    Complete,
    /// Waves follow each other.
    Running,
    /// The next wave waits for a person.
    AwaitsApproval,
    /// A person holds it.
    Paused,
    /// The gate was broken, and it waits for a person.
    Breached,
    /// It goes to no more clusters; those that have it keep it.
    Aborted,
    /// Those that had it are given what they had before.
    Returned,
}

/// What goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A revision of a template and its overrides.
    #[default]
    Change,
    /// A version of the agents ([`crate::upgrade`]).
    Agents,
}

impl What {
    /// What its revisions are called.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Change => "revision",
            Self::Agents => "version",
        }
    }

    /// What a cluster reports that was given it.
    pub(super) fn change(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Agents => "version",
        }
    }

    /// What takes people's commands about it.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Change => "karmada-hub rollout",
            Self::Agents => "karmada-hub upgrade",
        }
    }

    fn is_change(&self) -> bool {
        *self == Self::Change
    }
}

/// A wave, as it was decided when the rollout began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// As people wrote it.
    pub name: String,
    /// The labels of its clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// It takes the clusters up to this place in the order of hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upto: Option<Place>,
    /// How many clusters it had.
    pub clusters: usize,
    /// In seconds.
    pub soak: u64,
    /// Whether a person has to let it begin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approve: bool,
    /// When it began; nothing of one that has not, or that was empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<Time>,
    /// How many of its clusters may be changing at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<usize>,
    /// Where that is said: up to which place in the order of hashes it has come, and when it came there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<(Place, Time)>,
}

impl Wave {
    /// How long it is looked at when it is well.
    pub fn soak(&self) -> Duration {
        Duration::from_secs(self.soak)
    }

    /// When the last of its clusters could begin.
    pub(super) fn last_begun(&self) -> Option<Time> {
        self.reach.map(|(_, since)| since).or(self.opened)
    }
}

/// A place in the order of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

impl Place {
    /// A cluster's.
    pub fn of(seed: &str, cluster: &str) -> Self {
        let hash = Sha256::new().chain_update(seed).chain_update([0]).chain_update(cluster).finalize();
        Self(hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

// As text: JSON's numbers are not that long everywhere.
impl Serialize for Place {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

/// How far a change has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// What kind of thing is rolled out.
    #[serde(skip_serializing_if = "What::is_change")]
    pub what: What,
    /// What is rolled out.
    pub revision: String,
    /// What went everywhere last.
    pub base: String,
    /// The revisions of which some cluster may have one; how each is to be made is kept elsewhere.
    pub kept: Vec<String>,
    /// The whole digests of these, as they were when they were kept. Hubs of before have written none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub digests: BTreeMap<String, String>,
    /// How it stands.
    pub phase: Phase,
    /// Why it was stopped, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Whose order of clusters it is.
    pub seed: String,
    /// All waves.
    pub waves: Vec<Wave>,
    /// How many of them have begun.
    pub open: usize,
    /// When the first did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Time>,
    /// Since when the last of these is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub well: Option<Time>,
    /// How many waves a person has let begin.
    #[serde(skip_serializing_if = "is_zero")]
    pub approved: usize,
    /// How many failed, and fell silent, when a person let it go on.
    #[serde(skip_serializing_if = "is_zero")]
    pub accepted_failures: usize,
    #[serde(skip_serializing_if = "is_zero")]
    pub accepted_silent: usize,
    /// How many of the last wave held it back when a person let that go on.
    #[serde(skip_serializing_if = "is_zero")]
    pub accepted_held: usize,
    /// Those that were evicted after they were given the change, with their waves: they count as failed also when they are gone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub evicted: BTreeMap<String, usize>,
    /// What was stopped, and is not begun again by itself: the last ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What says that a revision is the one that was kept.
#[derive(Clone, Copy, Debug)]
pub struct Sure<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its whole digest, where a hub has written it.
    pub whole: Option<&'a str>,
}

impl Sure<'_> {
    /// Whether it is this one, of this object.
    pub fn is(self, revision: &Revision, live: &Value) -> bool {
        revision.is_of(live)
            && revision.digest() == self.name
            && self.whole.is_none_or(|whole| revision.whole_digest() == whole)
    }
}

/// What a cluster is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gets<'a> {
    /// What is rolled out.
    Revision,
    /// What it has.
    Kept(&'a str),
    /// What went everywhere last.
    Base,
}

impl State {
    /// The first of all: what there is goes everywhere, as it did.
    pub fn first(revision: &str, seed: &str) -> Self {
        Self {
            revision: revision.to_owned(),
            base: revision.to_owned(),
            kept: vec![revision.to_owned()],
            seed: seed.to_owned(),
            ..Self::default()
        }
    }

    /// What was, where nobody can say: what follows goes out in waves, and those that wait are left as they are.
    pub fn unknown(seed: &str) -> Self {
        Self { seed: seed.to_owned(), ..Self::default() }
    }

    /// Notes the whole digest of a revision, and forgets those of revisions that are not kept.
    pub fn note(&mut self, name: &str, whole: String) {
        self.digests.insert(name.to_owned(), whole);
        let (kept, base) = (&self.kept, &self.base);
        self.digests.retain(|name, _| kept.contains(name) || name == base);
    }

    /// What is known of a revision that is kept.
    pub fn sure<'a>(&'a self, name: &'a str) -> Sure<'a> {
        Sure { name, whole: self.digests.get(name).map(String::as_str) }
    }

    /// What a cluster of a wave is to have, which that has reached or not ([`Self::reaches`]). `has` is the revision that it has;
    /// nothing of one that has none yet.
    pub fn gets<'a>(&self, (wave, reached): (usize, bool), has: Option<&'a str>) -> Gets<'a> {
        let opened = match self.phase {
            Phase::Complete => return Gets::Revision,
            // What others have is not what was returned.
            Phase::Returned if has.is_none_or(|has| has == self.revision) => return Gets::Base,
            Phase::Returned => false,
            Phase::Running | Phase::AwaitsApproval => wave < self.open && reached,
            Phase::Paused | Phase::Breached | Phase::Aborted => false,
        };
        match has {
            // Also of one whose labels were changed meanwhile.
            Some(has) if has == self.revision => Gets::Revision,
            _ if opened => Gets::Revision,
            Some(has) if self.kept.iter().any(|kept| kept == has) => Gets::Kept(has),
            _ => Gets::Base,
        }
    }

    /// Whether the turn of a cluster of a wave has come, where only so many of the wave may be changing at once. Those before the
    /// last one have come to their ends.
    pub fn reaches(&self, wave: usize, cluster: &str) -> bool {
        let last = self.waves.get(wave).filter(|_| wave + 1 == self.open);
        let Some(last) = last.filter(|last| last.max_concurrency.is_some()) else { return true };
        last.reach.is_some_and(|(reach, _)| Place::of(&self.seed, cluster) <= reach)
    }

    /// Whether no cluster is changed until a person says something, or something newer comes.
    pub fn is_stopped(&self) -> bool {
        !self.is_under_way() && self.phase != Phase::Complete
    }

    /// Whether there is something to look after.
    pub fn is_under_way(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::AwaitsApproval)
    }
}

/// The waves of a rollout, ready to be asked.
#[derive(Debug)]
pub struct Order<'a> {
    seed: &'a str,
    waves: Vec<(Option<Selector>, Option<Place>)>,
}

impl<'a> Order<'a> {
    /// That of a state. Labels that cannot be read, which admission does not let through, select nothing.
    pub fn of(state: &'a State) -> Self {
        let selector = |text: &String| Selector::parse(text).ok();
        let waves = state.waves.iter().map(|wave| (wave.labels.as_ref().and_then(selector), wave.upto));
        Self { seed: &state.seed, waves: waves.collect() }
    }

    /// The wave that takes a cluster.
    pub fn wave(&self, cluster: &str, labels: Option<&BTreeMap<String, String>>) -> usize {
        let (place, none) = (Place::of(self.seed, cluster), BTreeMap::new());
        let takes = |(selector, upto): &(Option<Selector>, Option<Place>)| {
            selector.as_ref().is_some_and(|selector| selector.matches(labels.unwrap_or(&none)))
                || upto.is_some_and(|upto| place <= upto)
        };
        self.waves.iter().position(takes).unwrap_or_else(|| self.waves.len().saturating_sub(1))
    }
}

/// Decides which cluster is in which wave. `clusters` are those that the change concerns, with their labels.
fn freeze(
    waves: &[asked::Wave],
    seed: &str,
    clusters: &[(&str, Option<&BTreeMap<String, String>>)],
) -> Vec<Wave> {
    let none = BTreeMap::new();
    let mut left: Vec<(Place, &BTreeMap<String, String>)> =
        clusters.iter().map(|(name, labels)| (Place::of(seed, name), labels.unwrap_or(&none))).collect();
    left.sort_unstable_by_key(|(place, _)| *place);
    let mut frozen = Vec::with_capacity(waves.len());
    for wave in waves {
        let before = left.len();
        let (mut labels, mut upto) = (None, None);
        match &wave.who {
            Who::Labels(text) => {
                if let Ok(selector) = Selector::parse(text) {
                    left.retain(|(_, labels)| !selector.matches(labels));
                }
                labels = Some(text.clone());
            }
            Who::Share(asked::Share::ALL) => {
                left.clear();
                upto = Some(Place(u64::MAX));
            }
            Who::Share(share) => {
                let taken =
                    share.up(clusters.len()).saturating_sub(clusters.len() - left.len()).min(left.len());
                upto = taken.checked_sub(1).map(|last| left[last].0);
                left.drain(..taken);
            }
        }
        frozen.push(Wave {
            name: wave.name.clone(),
            labels,
            upto,
            clusters: before - left.len(),
            soak: wave.soak.as_secs(),
            approve: wave.approve,
            opened: None,
            max_concurrency: wave.max_concurrency,
            reach: None,
        });
    }
    frozen
}

/// A revision is there that was not: what follows on what was.
pub fn begin(
    before: &State,
    revision: &str,
    asked: &Asked,
    seed: &str,
    clusters: &[(&str, Option<&BTreeMap<String, String>>)],
) -> State {
    let mut stopped = before.stopped.clone();
    if matches!(before.phase, Phase::Breached | Phase::Aborted | Phase::Returned) {
        stopped.retain(|known| *known != before.revision);
        stopped.push(before.revision.clone());
        stopped.drain(..stopped.len().saturating_sub(STOPPED));
    }
    let mut kept = before.kept.clone();
    if !kept.iter().any(|kept| kept == revision) {
        kept.push(revision.to_owned());
    }
    let state = State {
        what: before.what,
        revision: revision.to_owned(),
        base: before.base.clone(),
        kept,
        digests: before.digests.clone(),
        seed: seed.to_owned(),
        stopped,
        ..State::default()
    };
    if revision == before.base {
        // What most clusters have, and the others are given back.
        return state;
    }
    let phase = match before.phase {
        _ if state.stopped.iter().any(|stopped| stopped == revision) => Phase::Aborted,
        Phase::Paused => Phase::Paused,
        _ => Phase::Running,
    };
    let why = match phase {
        Phase::Aborted => "this revision was stopped before".to_owned(),
        Phase::Paused => before.why.clone(),
        _ => String::new(),
    };
    State { phase, why, waves: freeze(&asked.waves, seed, clusters), ..state }
}

/// What a person wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// No more clusters are changed for now.
    Pause,
    /// It goes on, with what has failed so far; a wave that waits for it begins; what was stopped begins anew.
    Resume,
    /// No more clusters are changed.
    Abort,
    /// Those that were are given what they had before.
    Return,
}

impl Command {
    /// As it is written.
    pub const ALL: [(&'static str, Self); 4] =
        [("pause", Self::Pause), ("resume", Self::Resume), ("abort", Self::Abort), ("return", Self::Return)];

    /// Reads `WORD [REVISION]`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<(Self, Option<&str>), String> {
        let mut words = text.split_whitespace();
        let word = words.next().unwrap_or_default();
        let command = word.parse()?;
        Ok((command, words.next()))
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(word, _)| *word == text);
        found.map(|(_, command)| *command).ok_or_else(|| {
            let shown: String = text.chars().take(32).collect();
            format!("{shown:?} is none of pause, resume, abort and return")
        })
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.iter().find(|(_, command)| command == self).map_or("", |(word, _)| word);
        f.write_str(word)
    }
}
