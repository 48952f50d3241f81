//! What was last said to be wanted, kept beyond the process: so that an agent that starts goes on at once, and needs no hub
//! for what it was told before.
//!
//! ```text
//!   hub ─▶ pull ─▶ Member::take_in ─▶ State: written, and on the disk ─▶ Desired ─▶ queue ─▶ Executor
//!   hub ─▶ rules ─▶ Member::keep_rules ─▶ │                                ▲
//!          Applier: what was written ───▶ │ (soon after)                   │
//!                                         └── at the start: recalled ──────┘
//! ```
//!
//! **What is kept.** The identity (of the member, the cluster, and the agents' Lease); each Work as it was told, with the
//! status that it had then; users' rules; when the Cluster lets changes be made, and of a Work of which a change waits the
//! version that was in force; of each object that was applied what tells that it is as we left it; what is known of removals
//! that are held. Not what is still to be reported of Works: a Work's status is looked at anew when the hub is there, and a
//! Work that was carried out to its end is carried out again, which finds nothing to do. Whoever is above keeps notes: which
//! hub it was, and events that it has not heard. The fence's ledger stays where another agent reads it.
//!
//! **When.** A change is kept before it is acted on, so that a restart never goes back behind what was done: neither to
//! an older version of a Work, nor to one that was deleted. Changes that come together are one commit. What was applied is
//! kept a little later: if that is lost, an object is looked at and applied once more. Which status the hub has of a Work is
//! kept once an hour, and at the end: if that is lost, the hub tells the Work once more. While nothing changes nothing is written.
//!
//! **Whose it is, and how new.** It counts only if it is of this member (the uid of its `kube-system`) and of this cluster,
//! and only what is as new as the agents' Lease on the member says ([`stamp`], [`crate::note`]): an older copy that was put
//! in its place, or one from before another agent acted, is not gone on with. Whoever acts by what it cannot keep says so
//! there first. It is read and written only while the Lease is held; whoever stands aside forgets. Where the member keeps no
//! Leases nobody can tell, and nothing is kept.
//!
//! **A folder that can only be read**, since its disk has gone read-only, is gone on with, and so is one whose disk is full: what
//! the hub says anew ends that, since it cannot be kept; what may be lost without harm, of objects that were applied and events,
//! does not.
//!
//! **A place that does not answer** is waited for, but not for long: after 20 s the agent goes on without, and tries again
//! later. Where there is no room for all, the longest Works are left out: they are not healed before the hub is heard.
//!
//! **What it is good for.** What was recalled belongs to a life of the hub that is over ([`crate::Desired`]): by it objects are
//! put back as they were wanted, and nothing is ever deleted, nothing reported, and nothing fenced begun. The hub's first list
//! takes its place.
//!
//! **Where** ([`Place`]). In a folder, a log of our own ([`log`]): it writes what changed and two sectors, where redb copies
//! pages of 4 KiB on the way to its roots and keeps a cache, and the hub's store a history for watchers that nobody here
//! needs. In memory stays where each record is, 100 bytes or so. Without a volume, Secrets of the member ([`secrets`]).
//! Whatever is not as it was written, a file that was cut off anywhere or has one byte flipped, is noticed, set aside,
//! told ([`State::trouble`]) and written anew from what the hub says.
//!
//! **Who can read it.** Works hold Secrets. In a folder values are compressed and sealed by AES-256-GCM with a key that lies
//! elsewhere: in a Secret of the member, or in `--state-key-file`. That stops whoever has the folder, its disk or a backup
//! without the key; names of keys (of Works and objects) and sizes can be read. It does not stop who may read Secrets of
//! `karmada-system` on the member, root on the machine while the agent runs, nor, where the member keeps its own data on
//! the same disk and does not encrypt it at rest, who has that disk. The credential for the hub that `join` keeps in the same
//! folder is not sealed: whoever has the folder can speak to the hub as this agent. In Secrets of the member they lie as the Secrets
//! that were applied do, and whoever may write Secrets in that Namespace can have anything applied with the agent's rights.

mod begin;
mod commit;
mod contents;
mod disk;
mod engine;
mod key;
mod log;
mod pace;
mod seal;
mod secrets;
mod stage;
mod stamp;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use karmada_client::{Event, Policy, Rest, Wake, WorkQueue, latest};
use karmada_core::names::fnv64a;
use karmada_env::Env;
use karmada_interpreter::Interpreter;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

pub use contents::Sort;
pub use disk::Disk;
pub use engine::Memory;

use contents::work_key;
use engine::{Engine, Folder};
use key::{Site, key_name};
use pace::Pace;
use secrets::Secrets;
use stage::{Open, Staged, staged};

use crate::{
    applied::Dirty,
    apply::Applier,
    claim::patience,
    holds::Holds,
    note::{NONE, Note, Tenure},
    removals::Removals,
    rights::Rights,
    rules::Heard,
    works::{
        desired::{Desired, DesiredWork, is_another},
        sync::Executor,
    },
};

/// What is kept, by key.
pub(crate) type Entries = BTreeMap<String, Vec<u8>>;

/// A key's value from now on; none if it has none any more.
pub(crate) type Change = (String, Option<Vec<u8>>);

/// While a place does not answer.
const RETRY: Policy = Policy::full(Duration::from_millis(250), Duration::from_secs(5));

/// How long a place that does not answer is waited for, before the agent goes on without.
const PATIENCE: Duration = Duration::from_secs(20);

/// The same once it goes on without.
const LESS: Duration = Duration::from_secs(5);

/// When it is said that it does not answer.
const TOLD: Duration = Duration::from_secs(3);

/// What that does.
const WAITS: &str = "what is known or comes from the hub waits for that, for a while";

/// How long taking away what was kept may take.
const VOIDED: Duration = Duration::from_secs(10);

/// How soon a state that could not be kept, since its place did not answer, is tried again.
const LATER: Duration = Duration::from_secs(30);

/// The same where the right to act has just ended.
const SOON: Duration = Duration::from_secs(1);

/// How long what was wrong with a state is told once it is whole again, and what was set aside stays.
const WHOLE: Duration = Duration::from_secs(600);

/// How often it is kept which statuses the hub has of Works.
const STATUSES: Duration = Duration::from_secs(3600);

/// How long records of what was applied wait for others.
const GATHER_FILE: Duration = Duration::from_secs(2);
const GATHER_SECRETS: Duration = Duration::from_secs(300);

/// One request for a Secret.
const DEADLINE: Duration = Duration::from_secs(20);

/// Where a state is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: an agent that starts knows nothing before it hears the hub.
    #[default]
    Nowhere,
    /// In a folder that nobody else writes; sealed with the key in this file, or with one in a Secret of the member.
    Folder(PathBuf, Option<PathBuf>),
    /// In Secrets of the member.
    Secrets,
    /// In memory that outlives the agent.
    Memory(Memory),
}

/// What may be left of a state when its cluster has left: files of its folder, and Secrets of the member.
pub fn remains(cluster: &str) -> ([&'static str; 3], Vec<String>) {
    let secrets = secrets::names(cluster).chain([key_name(cluster)]).collect();
    ([log::NAME, log::DRAFT, log::ASIDE], secrets)
}

/// Why the state is not kept, or was not read: a word, and a sentence.
///
/// The words: `NotKept` and `NotRead` (its place does not answer, or refuses), `TooLarge` (there is no room for all of it),
/// `Damaged` (all or a part is not as it was written), `Sealed` (by another key), `AnotherMember`, and `AnotherVersion`.
pub type Trouble = (&'static str, String);

#[derive(Debug, Default)]
struct Inner {
    open: Option<Open>,
    /// What was open when the right to act ended.
    parked: Option<Open>,
    /// Users' rules, as this process has heard them.
    rules: BTreeMap<String, Vec<u8>>,
    /// Keys for which there is no room.
    left_out: BTreeSet<String>,
}

/// What a state is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) place: Place,
    pub(crate) member: Rest,
    pub(crate) env: Env,
    pub(crate) cluster: String,
    /// Where Secrets are on the member.
    pub(crate) namespace: String,
    pub(crate) rights: Rights,
    /// How often the hub's Lease is renewed.
    pub(crate) heartbeats: Duration,
    pub(crate) note: Note,
    pub(crate) desired: Arc<Desired>,
    pub(crate) interpreter: Arc<Interpreter>,
    pub(crate) rules: Arc<Heard>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) removals: Arc<Removals>,
    pub(crate) queue: WorkQueue<String>,
    pub(crate) dirty: Arc<Dirty>,
}

/// What is wrong.
#[derive(Debug, Default)]
struct Troubles {
    /// Now: it ends when something is kept.
    now: Option<Trouble>,
    /// With what was found at the start.
    found: Option<Trouble>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    parts: Parts,
    inner: tokio::sync::Mutex<Inner>,
    /// What was kept has been recalled, or there is nothing; and what is known and not kept was said to be so.
    ready: latest::Sender<bool>,
    troubles: Mutex<Troubles>,
    /// Notes of whoever is above.
    notes: Mutex<BTreeMap<String, Vec<u8>>>,
    /// A state is to be begun anew.
    anew: Wake,
    /// What the folder is on.
    disk: Disk,
}

impl State {
    pub(crate) fn new(parts: Parts) -> Self {
        let ready = latest::Sender::new(false);
        Self {
            parts,
            inner: Default::default(),
            ready,
            troubles: Mutex::default(),
            notes: Mutex::default(),
            anew: Wake::new(),
            disk: Disk::default(),
        }
    }

    /// Why it is not kept, or was not read.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let troubles = self.troubles.lock();
        troubles.now.clone().or_else(|| troubles.found.clone())
    }

    /// Something is wrong now.
    fn is_troubled(&self, reason: &'static str, why: String) {
        let trouble = Some((reason, why));
        let mut troubles = self.troubles.lock();
        if troubles.now != trouble {
            self.warn(&trouble);
            troubles.now = trouble;
        }
    }

    /// Something was wrong with what was found.
    fn was_troubled(&self, reason: &'static str, why: String) {
        let trouble = Some((reason, why));
        self.warn(&trouble);
        self.troubles.lock().found = trouble;
    }

    fn warn(&self, trouble: &Option<Trouble>) {
        if let Some((reason, why)) = trouble {
            tracing::warn!(cluster = %self.parts.cluster, reason, "the agent's state: {why}");
        }
    }

    /// Waits until what was kept has been recalled: before that nothing is done.
    pub(crate) async fn ready(&self) {
        if *self.ready.borrow() {
            return;
        }
        let mut ready = self.ready.subscribe();
        if ready.wait_for(|ready| *ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Keeps the state, while this agent acts on the member. For ever.
    pub(crate) async fn keep(&self, executor: &Executor) {
        let Parts { rights, note, .. } = &self.parts;
        let mut dirty = self.parts.dirty.listen();
        let mut anew = self.anew.listen();
        let mut pace = Pace::default();
        let mut last: Option<Option<Tenure>> = None;
        let mut has_lapsed = false;
        let mut removals = self.parts.removals.keeps();
        loop {
            rights.applying().await;
            let tenure = note.tenure();
            let is_another = last.replace(tenure.clone()).is_some_and(|last| last != tenure);
            let hears = rights.may_report() && !rights.is_unheard_for(patience(self.parts.heartbeats, None));
            if is_another && has_lapsed && !hears {
                // Another agent had the member meanwhile, and may have heard the hub: what is known is old.
                executor.stand_aside();
                self.parts.desired.list_anew();
            }
            let mut again = Box::pin(self.attempt(executor, &mut pace)).await;
            let mut flush: Option<Instant> = None;
            let mut whole = Instant::now() + WHOLE;
            let mut statuses = Instant::now() + self.parts.env.jitter(STATUSES, 0.5);
            loop {
                tokio::select! {
                    biased;
                    () = rights.when(|standing| !standing.may_apply()) => {
                        has_lapsed = true;
                        break;
                    }
                    () = note.other_than(&tenure) => {
                        has_lapsed = false;
                        break;
                    }
                    () = anew.woken() => {
                        let pause = if *self.ready.borrow() { pace.next() } else { SOON };
                        again = Some(Instant::now() + pause);
                    }
                    () = at(again) => again = Box::pin(self.attempt(executor, &mut pace)).await,
                    () = removals.woken() => self.keep_removals().await,
                    () = dirty.woken(), if flush.is_none() => flush = Some(Instant::now() + self.gather()),
                    () = at(flush) => {
                        flush = None;
                        self.flush(&executor.applier).await;
                    }
                    () = sleep_until(statuses) => {
                        self.keep_statuses().await;
                        statuses = Instant::now() + STATUSES;
                    }
                    () = sleep_until(whole) => {
                        self.tidy().await;
                        whole = Instant::now() + WHOLE;
                    }
                }
            }
            let mut inner = self.inner.lock().await;
            self.park(&mut inner);
        }
    }

    /// What is kept may get old from now on. Nothing is done before it is open again.
    fn park(&self, inner: &mut Inner) {
        self.ready.send_replace(false);
        if let Some(open) = inner.open.take() {
            inner.parked = Some(open);
        }
    }

    /// Tries to have a state, for so long at most, and lets everything else begin. Answers when to try again.
    async fn attempt(&self, executor: &Executor, pace: &mut Pace) -> Option<Instant> {
        let begun = self.begin_patiently(executor).await;
        let inner = self.inner.lock().await;
        if inner.open.is_some() {
            self.ready.send_replace(true);
            pace.kept(Instant::now());
            return None;
        }
        let knows = !self.parts.desired.is_empty() || !inner.rules.is_empty();
        let is_lost = begun == Begun::Lost || knows && !self.renounce().await;
        self.ready.send_replace(!is_lost);
        let pause = match begun {
            _ if is_lost => SOON,
            Begun::Nowhere => return None,
            Begun::Refused => pace.next(),
            _ => LATER,
        };
        Some(Instant::now() + pause)
    }

    /// Says on the member's Lease that what is done from now on is not kept. False if the right to act ended first.
    async fn renounce(&self) -> bool {
        let Parts { note, rights, .. } = &self.parts;
        tokio::select! {
            biased;
            () = note.say_now(NONE) => true,
            () = rights.when(|standing| !standing.may_apply()) => false,
        }
    }

    fn gather(&self) -> Duration {
        if self.parts.place == Place::Secrets { GATHER_SECRETS } else { GATHER_FILE }
    }

    fn site(&self) -> Site<'_> {
        let Parts { place, member, cluster, namespace, .. } = &self.parts;
        Site { place, member, cluster, namespace }
    }

    fn engine(&self) -> Option<Box<dyn Engine>> {
        let Parts { member, namespace, cluster, .. } = &self.parts;
        match &self.parts.place {
            Place::Nowhere => None,
            Place::Folder(path, _) => Some(Box::new(Folder::new(path.clone(), self.disk.clone()))),
            Place::Secrets => {
                let member = member.with_deadline(DEADLINE);
                Some(Box::new(Secrets::new(member, namespace.clone(), cluster.clone())))
            }
            Place::Memory(memory) => Some(Box::new(memory.clone())),
        }
    }

    /// Versions of Works that are in force while others wait, as far as they came or went since this was last asked.
    fn in_force(&self, open: &Open) -> Vec<Staged> {
        let holds = &self.parts.holds;
        let change = |name: String| {
            let key = contents::force_key(&name);
            match holds.in_force(&name) {
                Some(work) => open.differs(&key, work.digest()).then(|| stage::in_force(&work)),
                None => open.digests.contains_key(&key).then_some((key, None)),
            }
        };
        holds.take_touched().into_iter().filter_map(change).collect()
    }

    /// Takes in what the hub tells of Works: it is kept before it is known.
    pub(crate) async fn take_in(&self, events: Vec<(Event<DesiredWork>, u64)>) {
        let mut inner = self.inner.lock().await;
        let desired = &self.parts.desired;
        if let Some(open) = &inner.open {
            let mut changes = BTreeMap::new();
            // Whose name one was told of last.
            let mut named: BTreeMap<&str, &str> = BTreeMap::new();
            for (event, life) in &events {
                match event {
                    Event::Init => {}
                    Event::Upsert(work) => {
                        // Against what is kept, or will be after this.
                        if desired.is_news(work, *life) {
                            named.insert(&work.name, &work.uid);
                            match open.changed(work) {
                                Some((key, value)) => drop(changes.insert(key, value)),
                                None => {
                                    changes.remove(&work_key(&work.name));
                                    if desired
                                        .get(&work.name)
                                        .is_some_and(|known| known.status() != work.status())
                                    {
                                        desired.is_unkept(&work.name);
                                    }
                                }
                            }
                        }
                    }
                    Event::Delete(work) => {
                        let is_another = match named.get(work.name.as_str()) {
                            Some(uid) => is_another(uid, &work.uid),
                            None => desired.is_anothers(work),
                        };
                        if !is_another {
                            changes.insert(work_key(&work.name), None);
                        }
                    }
                    Event::Synced => {
                        let listed = desired.listed();
                        let gone = open.digests.keys().filter_map(|key| {
                            let name = contents::work_of(key)?;
                            (!listed.contains(name)).then(|| (key.clone(), None))
                        });
                        changes.extend(gone);
                    }
                }
            }
            changes.retain(|key, value| value.is_some() || open.digests.contains_key(key));
            // With the change that waits, so that no restart comes in between.
            changes.extend(self.in_force(open));
            if !changes.is_empty() {
                changes.extend(self.notes(open));
            }
            self.commit(&mut inner, changes.into_iter().collect(), PATIENCE).await;
        } else if events.iter().any(|(event, _)| !matches!(event, Event::Init)) {
            self.go_without().await;
        }
        for (event, life) in events {
            for work in desired.apply(event, life) {
                self.parts.queue.add(work);
            }
        }
    }

    /// Keeps users' rules of a sort, as the hub has them, before they are followed.
    pub(crate) async fn keep_rules(&self, sort: Sort, rules: Vec<u8>) {
        let mut inner = self.inner.lock().await;
        inner.rules.insert(sort.key().to_owned(), rules.clone());
        self.keep_value(&mut inner, sort.key(), rules).await;
    }

    /// Keeps a note of whoever is above under a name.
    pub(crate) async fn keep_note(&self, name: &str, text: Vec<u8>) {
        let mut inner = self.inner.lock().await;
        self.keep_note_sometime(name, text.clone());
        self.keep_value(&mut inner, &contents::note_key(name), text).await;
    }

    /// The same with the next change of Works.
    pub(crate) fn keep_note_sometime(&self, name: &str, text: Vec<u8>) {
        self.notes.lock().insert(name.to_owned(), text);
    }

    /// There is no such note any more.
    pub(crate) fn forget_note(&self, name: &str) {
        self.notes.lock().remove(name);
    }

    /// Notes that are other than they are kept.
    fn notes(&self, open: &Open) -> Vec<Staged> {
        let notes = self.notes.lock();
        let keyed = notes.iter().map(|(name, text)| (contents::note_key(name), text));
        keyed
            .filter(|(key, text)| open.differs(key, fnv64a(text)))
            .map(|(key, text)| staged(&key, text.clone()))
            .collect()
    }

    /// The note of that name, if there is one; known once this is [`State::ready`].
    pub(crate) fn note(&self, name: &str) -> Option<Vec<u8>> {
        self.notes.lock().get(name).cloned()
    }

    async fn keep_value(&self, inner: &mut Inner, key: &str, text: Vec<u8>) {
        match &inner.open {
            Some(open) if open.differs(key, fnv64a(&text)) => {
                self.commit(inner, vec![staged(key, text)], PATIENCE).await
            }
            Some(_) => {}
            None => self.go_without().await,
        }
    }

    /// Has Works written anew when the hub tells of them next, however little they change: their revisions are of a
    /// history that is over.
    pub(crate) async fn outlive(&self) {
        let mut inner = self.inner.lock().await;
        if let Some(open) = &mut inner.open {
            let works = open.digests.iter_mut().filter(|(key, _)| contents::is_work(key));
            works.for_each(|(_, digest)| *digest ^= 1);
        }
    }

    /// Something is about to be known that cannot be kept. What is not acted on yet may still be.
    async fn go_without(&self) {
        if *self.ready.borrow() && !self.renounce().await {
            self.ready.send_replace(false);
            self.anew.wake();
        }
    }

    /// Keeps what the Cluster says about changes; nothing where it never said anything.
    pub(crate) async fn keep_holds(&self) {
        let (key, asks) = (Sort::Holds.key(), self.parts.holds.cluster_asks());
        let inner = self.inner.lock().await;
        let is_kept = inner.open.as_ref().is_some_and(|open| open.digests.contains_key(key));
        let is_known = is_kept || inner.rules.contains_key(key);
        drop(inner);
        if is_known || !asks.is_none() {
            self.keep_rules(Sort::Holds, serde_json::to_vec(&asks).unwrap_or_default()).await;
        }
    }

    /// Keeps what is known of removals that are held.
    async fn keep_removals(&self) {
        let mut inner = self.inner.lock().await;
        if inner.open.is_some()
            && let Some(record) = self.parts.removals.outdated()
        {
            let changes = vec![staged(contents::REMOVALS, contents::removals_text(&record))];
            self.commit(&mut inner, changes, PATIENCE).await;
        }
    }

    /// Keeps which statuses the hub has of Works, where it has others than were kept: so that it need not tell them after a
    /// restart.
    pub(crate) async fn keep_statuses(&self) {
        let mut inner = self.inner.lock().await;
        let Some(open) = &inner.open else { return };
        let works = self.parts.desired.take_unkept();
        let is_kept = |work: &Arc<DesiredWork>| !open.differs(&work_key(&work.name), work.digest());
        let changes = works.iter().filter(|work| is_kept(work)).map(|work| stage::work(work)).collect();
        self.commit(&mut inner, changes, PATIENCE).await;
    }

    /// Keeps what is known of objects that were applied.
    pub(crate) async fn flush(&self, applier: &Applier) {
        let mut inner = self.inner.lock().await;
        let ids = self.parts.dirty.take();
        // Whatever is open again begins with all of them.
        let Some(open) = &inner.open else { return };
        let changes = ids.into_iter().filter_map(|id| {
            let (key, value) = (contents::applied_key(&id), applier.applied(&id));
            match value.map(|applied| applied.text()) {
                Some(text) => open.differs(&key, fnv64a(&text)).then(|| staged(&key, text)),
                None => open.digests.contains_key(&key).then_some((key, None)),
            }
        });
        let mut changes: Vec<Staged> = changes.collect();
        changes.extend(self.in_force(open));
        if let Some(record) = self.parts.removals.outdated() {
            changes.push(staged(contents::REMOVALS, contents::removals_text(&record)));
        }
        self.commit(&mut inner, changes, PATIENCE).await;
    }

    /// Lets what was wrong at the start be over, when it has been made good.
    async fn tidy(&self) {
        let mut inner = self.inner.lock().await;
        let Some(open) = inner.open.as_mut().filter(|_| self.parts.desired.synced()) else { return };
        open.engine.tidy().await;
        self.troubles.lock().found = None;
    }
}

/// What came of an attempt to have a state.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Begun {
    /// It is open.
    Open,
    /// There is to be none.
    Nowhere,
    /// Its place does not answer, and why.
    Away(String),
    /// Its place does not take it; that was said.
    Refused,
    /// The right to act has ended.
    Lost,
}

/// Resolves at a time; never, if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
