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
//! **What is kept.** The identity (the member's id, the cluster's name, the term); each Work as it was told, with the
//! status that it had then; users' rules; of each object that was applied what tells that it is as we left it. Not what is
//! still to be reported: a Work's status is looked at anew when the hub is there, and a Work that was carried out to its
//! end is carried out again, which finds nothing to do. The fence's ledger stays where another agent reads it.
//!
//! **When.** A change is kept before it is acted on, so that a restart never goes back behind what was done: neither to
//! an older version of a Work, nor to one that was deleted. Changes that come together are one commit. What was applied is
//! kept a little later: if that is lost, an object is looked at and applied once more. While nothing changes nothing is written.
//!
//! **Whose it is.** It counts only if it is of this member (the uid of its `kube-system`), of this cluster, and of the last
//! term of the member's Lease: if another agent has acted since and has not written here, what it did is not in it. It is
//! read and written only while the Lease is held; whoever stands aside forgets.
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
//! the same disk and does not encrypt it at rest, who has that disk. In Secrets of the member they lie as the Secrets
//! that were applied do.

mod contents;
mod engine;
mod key;
mod log;
mod seal;
mod secrets;
mod stage;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use karmada_client::{Backoff, Event, Policy, Rest, Wake, WorkQueue, latest};
use karmada_core::names::fnv64a;
use karmada_env::Env;
use karmada_interpreter::Interpreter;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

pub use contents::Sort;
pub use engine::Memory;

pub(crate) use contents::Applied;

use contents::{About, Contents, work_key};
use engine::{Engine, Folder, Unread, Unwritten};
use key::{Site, Unready, key_name};
use seal::{pack, unpack};
use secrets::Secrets;
use stage::{Open, Staged, staged};

use crate::{
    apply::Applier,
    rights::Rights,
    rules::Heard,
    works::desired::{Desired, DesiredWork, ObjectId},
};

/// What is kept, by key.
pub(crate) type Entries = BTreeMap<String, Vec<u8>>;

/// A key's value from now on; none if it has none any more.
pub(crate) type Change = (String, Option<Vec<u8>>);

/// While the member does not answer.
const RETRY: Policy = Policy::full(Duration::from_millis(250), Duration::from_secs(5));

/// How soon it is tried again to keep a state that could not be kept.
const ANEW: Duration = Duration::from_secs(60);

/// How long records of what was applied wait for others.
const GATHER_FILE: Duration = Duration::from_secs(2);
const GATHER_SECRETS: Duration = Duration::from_secs(300);

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
pub type Trouble = (&'static str, String);

/// Objects of which other things are known than is kept.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    objects: Mutex<BTreeSet<ObjectId>>,
    wake: Wake,
}

impl Dirty {
    pub(crate) fn mark(&self, id: &ObjectId) {
        self.objects.lock().insert(id.clone());
        self.wake.wake();
    }
}

#[derive(Debug, Default)]
struct Inner {
    open: Option<Open>,
    /// Users' rules, as this process has heard them.
    rules: BTreeMap<String, Vec<u8>>,
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
    pub(crate) desired: Arc<Desired>,
    pub(crate) interpreter: Arc<Interpreter>,
    pub(crate) rules: Arc<Heard>,
    pub(crate) queue: WorkQueue<String>,
    pub(crate) dirty: Arc<Dirty>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    parts: Parts,
    inner: tokio::sync::Mutex<Inner>,
    /// What was kept has been recalled, or there is nothing.
    ready: latest::Sender<bool>,
    trouble: Mutex<Option<Trouble>>,
    /// A state is to be begun anew.
    anew: Wake,
}

impl State {
    pub(crate) fn new(parts: Parts) -> Self {
        let ready = latest::Sender::new(parts.place == Place::Nowhere);
        Self { parts, inner: Default::default(), ready, trouble: Mutex::default(), anew: Wake::new() }
    }

    /// Why it is not kept, or was not read.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().clone()
    }

    fn troubled(&self, reason: &'static str, why: String) {
        tracing::warn!(cluster = %self.parts.cluster, reason, "the agent's state: {why}");
        *self.trouble.lock() = Some((reason, why));
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
    pub(crate) async fn keep(&self, applier: &Applier) {
        if self.parts.place == Place::Nowhere {
            return std::future::pending().await;
        }
        let rights = &self.parts.rights;
        let mut dirty = self.parts.dirty.wake.listen();
        let mut anew = self.anew.listen();
        loop {
            rights.applying().await;
            let mut again = self.begin(applier).await.then(|| Instant::now() + ANEW);
            self.ready.send_replace(true);
            let mut flush: Option<Instant> = None;
            loop {
                tokio::select! {
                    biased;
                    () = rights.when(|standing| !standing.may_apply()) => break,
                    () = anew.woken() => again = Some(Instant::now() + ANEW),
                    () = at(again) => again = self.begin(applier).await.then(|| Instant::now() + ANEW),
                    () = dirty.woken(), if flush.is_none() => flush = Some(Instant::now() + self.gather()),
                    () = at(flush) => {
                        flush = None;
                        self.flush(applier).await;
                    }
                }
            }
            // Whatever is kept gets old from now on, if another agent acts.
            self.ready.send_replace(false);
            self.inner.lock().await.open = None;
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
            Place::Folder(path, _) => Some(Box::new(Folder::new(path.clone()))),
            Place::Secrets => {
                Some(Box::new(Secrets::new(member.clone(), namespace.clone(), cluster.clone())))
            }
            Place::Memory(memory) => Some(Box::new(memory.clone())),
        }
    }

    /// Reads what is kept, recalls it if nothing newer is known, and keeps what is. Whether it is to be tried again.
    async fn begin(&self, applier: &Applier) -> bool {
        let Some(mut engine) = self.engine() else { return false };
        let mut backoff = Backoff::new(RETRY);
        let (member, seal) = loop {
            match self.site().identify().await {
                Ok(identified) => break identified,
                Err(Unready::Away(error)) => {
                    tracing::debug!(cluster = %self.parts.cluster, %error, "the agent's state waits for the member");
                    tokio::time::sleep(backoff.next(&self.parts.env)).await;
                    if !self.parts.rights.may_apply() {
                        return false;
                    }
                }
                Err(Unready::Refused(why)) => {
                    self.troubled("NotKept", why);
                    return true;
                }
            }
        };
        let mut inner = self.inner.lock().await;
        let entries = match engine.load().await {
            Ok(entries) => entries,
            Err(Unread::Damaged(why)) => {
                self.troubled("Damaged", why);
                Entries::new()
            }
            Err(Unread::Failed(why)) => {
                // It must not be read some other day, when it is old.
                let _ = engine.void().await;
                self.troubled("NotRead", why);
                return true;
            }
        };
        let about = About {
            member,
            cluster: self.parts.cluster.clone(),
            term: self.parts.rights.term(),
            version: About::VERSION,
        };
        let read = if entries.is_empty() {
            Ok(Contents::default())
        } else {
            Contents::read(entries, |name, kept| unpack(seal.as_ref(), name, kept))
                .and_then(|contents| contents.about.may_be_followed_by(&about).map(|()| contents))
        };
        let contents = match read {
            Ok(contents) => contents,
            Err((reason, why)) => {
                if reason == contents::OUT_OF_DATE {
                    tracing::info!(cluster = %self.parts.cluster, "the agent's state is of no use: {why}");
                } else {
                    self.troubled(reason, why);
                }
                let voided = engine.void().await.is_ok();
                // What was set aside is begun anew.
                if !voided || engine.load().await.is_err() {
                    return true;
                }
                Contents::default()
            }
        };
        let mut digests = contents.digests();
        self.recall(contents, applier);
        let about = about.text();
        digests.remove(About::KEY);
        inner.open = Some(Open { engine, seal, digests });
        let mut changes = vec![staged(About::KEY, about)];
        changes.extend(self.behind(&inner));
        self.commit(&mut inner, changes).await;
        inner.open.is_none()
    }

    /// Lets what was kept be known, unless the hub has said what is wanted.
    fn recall(&self, contents: Contents, applier: &Applier) {
        let Parts { desired, interpreter, rules, queue, cluster, .. } = &self.parts;
        let (works, objects) = (contents.works.len(), contents.applied.len());
        contents.rules.recall(interpreter, rules);
        applier.recall(contents.applied);
        let names = desired.recall(contents.works);
        if !names.is_empty() {
            tracing::info!(%cluster, works, objects, "goes on with what was wanted before the start");
        }
        names.into_iter().for_each(|name| queue.add(name));
    }

    /// What is known otherwise than it is kept: what came while nothing could be kept.
    fn behind(&self, inner: &Inner) -> Vec<Staged> {
        let Some(open) = &inner.open else { return Vec::new() };
        let desired = &self.parts.desired;
        let works = desired.all();
        let mut changes: Vec<Staged> = works.iter().filter_map(|work| open.changed(work)).collect();
        if desired.synced() {
            let there: BTreeSet<String> = works.iter().map(|work| work_key(&work.name)).collect();
            let gone = open.digests.keys().filter(|key| contents::is_work(key) && !there.contains(*key));
            changes.extend(gone.map(|key| (key.clone(), None)));
        }
        let rules = inner.rules.iter().filter(|(key, text)| open.differs(key, fnv64a(text)));
        changes.extend(rules.map(|(key, text)| staged(key, text.clone())));
        changes
    }

    /// Takes in what the hub tells of Works: it is kept before it is known.
    pub(crate) async fn take_in(&self, events: Vec<(Event<DesiredWork>, u64)>) {
        let mut inner = self.inner.lock().await;
        let desired = &self.parts.desired;
        if let Some(open) = &inner.open {
            let mut changes = BTreeMap::new();
            for (event, life) in &events {
                match event {
                    Event::Init => {}
                    Event::Upsert(work) => {
                        // Against what is kept, or will be after this.
                        if desired.is_news(work, *life) {
                            match open.changed(work) {
                                Some((key, value)) => drop(changes.insert(key, value)),
                                None => drop(changes.remove(&work_key(&work.name))),
                            }
                        }
                    }
                    Event::Delete(work) => drop(changes.insert(work_key(&work.name), None)),
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
            let changes: Vec<Staged> = changes.into_iter().collect();
            if !changes.is_empty() {
                self.commit(&mut inner, changes).await;
            }
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
        let (key, digest) = (sort.key(), fnv64a(&rules));
        inner.rules.insert(key.to_owned(), rules.clone());
        if inner.open.as_ref().is_some_and(|open| open.differs(key, digest)) {
            self.commit(&mut inner, vec![staged(key, rules)]).await;
        }
    }

    /// Keeps what is known of objects that were applied.
    pub(crate) async fn flush(&self, applier: &Applier) {
        let mut inner = self.inner.lock().await;
        let Some(open) = &inner.open else { return };
        let ids = std::mem::take(&mut *self.parts.dirty.objects.lock());
        let changes = ids.into_iter().filter_map(|id| {
            let (key, value) = (contents::applied_key(&id), applier.applied(&id));
            match value.map(|applied| applied.text()) {
                Some(text) => open.differs(&key, fnv64a(&text)).then(|| staged(&key, text)),
                None => open.digests.contains_key(&key).then_some((key, None)),
            }
        });
        let changes: Vec<Staged> = changes.collect();
        if !changes.is_empty() {
            self.commit(&mut inner, changes).await;
        }
    }

    /// Writes changes for good. While the member that is to keep them does not answer it waits: nothing can be done there
    /// either. Where they are not taken there is no state any more, rather than an old one.
    async fn commit(&self, inner: &mut Inner, changes: Vec<Staged>) {
        let Some(open) = &mut inner.open else { return };
        let packed: Result<Vec<Change>, String> = changes
            .iter()
            .map(|(key, value)| {
                let packed = value.as_ref().map(|(value, _)| pack(open.seal.as_ref(), key, value));
                Ok((key.clone(), packed.transpose()?))
            })
            .collect();
        let mut backoff = Backoff::new(RETRY);
        let refused = loop {
            let written = match &packed {
                Ok(packed) => open.engine.write(packed.clone()).await,
                Err(why) => Err(Unwritten::Refused(why.clone())),
            };
            match written {
                Ok(()) => break None,
                Err(Unwritten::Refused(why)) => break Some(why),
                Err(Unwritten::Away(error)) => {
                    tracing::debug!(cluster = %self.parts.cluster, %error, "the agent's state waits for the member");
                    if !self.parts.rights.may_apply() {
                        inner.open = None;
                        return;
                    }
                    tokio::time::sleep(backoff.next(&self.parts.env)).await;
                }
            }
        };
        let Some(why) = refused else {
            for (key, value) in changes {
                match value {
                    Some((_, digest)) => drop(open.digests.insert(key, digest)),
                    None => drop(open.digests.remove(&key)),
                }
            }
            let mut trouble = self.trouble.lock();
            if trouble.as_ref().is_some_and(|(reason, _)| *reason == "NotKept") {
                *trouble = None;
            }
            return;
        };
        let left = match open.engine.void().await {
            Ok(()) => "it is tried again, and until then a restart without the hub knows nothing",
            Err(_) => "what was kept before could not be taken away either",
        };
        inner.open = None;
        self.troubled("NotKept", format!("{why}; {left}"));
        self.anew.wake();
    }
}

/// Resolves at a time; never, if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
