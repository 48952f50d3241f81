//! Our Cluster as the hub has it: one object, all of it.
//!
//! It is ours by the id in its spec, the uid of the member's `kube-system` Namespace. One that was deleted, and made again
//! by another machine, is not; so its uid is looked at on every new connection, before anything of the hub's is believed.
//!
//! Its status is most of it, and most of its changes are reports of our own. So the watch asks for metadata alone, and
//! the object is fetched only when it has a revision that we have not made.
//!
//! It also notices that the hub is another one than it was, restored from an older copy, also by an etcd whose revisions
//! then come a second time: an answer is older than what was known when it was asked for ([`Fence::went_back`]). A Cluster
//! that was made anew is no such sign, but a reason to list everything on the hub anew.

mod kept;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use karmada_client::{
    Backoff, Error, Event, Policy, Rest, Wake, WatchConfig, latest, rest::METADATA, watch::share::Source,
};
use karmada_env::Env;
use karmada_member::{
    Fence, Holds,
    revision::Revision,
    rights::{Registration, Rights},
};
use karmada_meta::object;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

pub(crate) use self::kept::Kept;
use self::kept::without_managed_fields;
use super::{clusters, origin::Trust, watch::HubWatch};
use crate::tunnel::dial::Call;

/// How long a change may rest before the Cluster is read: changes come in groups, and the watch often tells of a
/// report of ours before its answer does.
const SETTLE: Duration = Duration::from_millis(250);

/// Between attempts to read the Cluster.
const FETCH: Policy = Policy::full(Duration::from_secs(1), Duration::from_secs(30));

/// How often it is asked whether there is a Cluster of ours again.
const ASK_AGAIN: Duration = Duration::from_secs(120);

/// The hub's Cluster object, newest known state.
#[derive(Debug)]
pub(crate) struct ClusterView {
    hub: Rest,
    name: String,
    rights: Rights,
    /// Whether the hub is believed.
    trust: Arc<Trust>,
    /// The member's id, once it is known.
    id: OnceLock<String>,
    /// The Cluster has been seen to be ours since the last connection was made.
    sure: AtomicBool,
    /// The hub has shown it with a time of deletion: then somebody wants it gone.
    leaving: AtomicBool,
    /// Hears when the hub turns out to be another.
    fence: Arc<Fence>,
    /// Hears when the Cluster lets changes be made.
    holds: Arc<Holds>,
    current: latest::Sender<Option<Arc<Kept>>>,
    /// What it says of tunnels.
    calls: latest::Sender<Option<Call>>,
    /// In which life of the hub that was heard of.
    life: AtomicU64,
    /// The newest metadata of a state that was not fetched yet.
    unseen: Mutex<Option<Value>>,
}

impl ClusterView {
    /// One that shows the Cluster in `current`.
    pub(crate) fn new(
        hub: Rest,
        name: String,
        (rights, trust): (Rights, Arc<Trust>),
        (fence, holds): (Arc<Fence>, Arc<Holds>),
        current: latest::Sender<Option<Arc<Kept>>>,
    ) -> Self {
        Self {
            hub,
            name,
            rights,
            trust,
            id: OnceLock::new(),
            sure: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            fence,
            holds,
            current,
            calls: latest::Sender::new(None),
            life: AtomicU64::new(0),
            unseen: Mutex::new(None),
        }
    }

    /// The member's id is this. Says so if it was another before.
    pub(crate) fn meets_member(&self, id: &str) -> Option<Arc<str>> {
        let stranger = self.rights.meets_member(id);
        if stranger.is_none() {
            // The one that it registers with.
            let _ = self.id.set(id.to_owned());
        }
        stranger
    }

    /// A watch of something on the hub.
    pub(crate) fn watch<T: 'static>(
        &self,
        config: WatchConfig,
        env: Env,
        project: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> HubWatch<T> {
        HubWatch::new(self.hub.clone(), config, env, Arc::clone(&self.fence), project)
    }

    pub(crate) fn path(&self) -> String {
        clusters().object(None, &self.name)
    }

    pub(crate) fn get(&self) -> Option<Arc<Kept>> {
        self.current.borrow().clone()
    }

    /// Whether the hub at the other end is believed: what is done for good waits for that.
    pub(crate) fn is_believed(&self) -> bool {
        self.trust.is_sure()
    }

    /// Has it asked which one it is. Nobody does so by himself after a connection over which nothing new comes.
    pub(crate) fn wants_belief(&self) {
        self.trust.question.wake();
    }

    pub(crate) fn subscribe(&self) -> latest::Receiver<Option<Arc<Kept>>> {
        self.current.subscribe()
    }

    /// Takes in an answer or an event; an older state of the same object than the known one is ignored, and so is a
    /// Cluster that is not ours: then nothing is to be done for it.
    pub(crate) fn set(&self, cluster: Value) {
        self.take(Arc::new(Kept::of(cluster)));
    }

    fn take(&self, cluster: Arc<Kept>) {
        if let Some(why) = self.foreign(&cluster) {
            self.rights.cluster_is(Registration::Refused(why.into()));
            return;
        }
        self.sure.store(true, Ordering::Release);
        self.rights.cluster_is(Registration::Ours);
        let life = self.fence.life();
        let outlived = self.life.swap(life, Ordering::AcqRel) != life;
        // The answer to a report of ours may come later than the watch has told of something newer.
        let overtaken = !outlived && self.unseen.lock().as_ref().is_some_and(|told| is_older(&cluster, told));
        let mut made_anew = false;
        self.current.send_if_modified(|current| {
            if let Some(known) = current {
                if *known == cluster || (!outlived && is_older(&cluster, known)) {
                    return false;
                }
                made_anew = object::uid(known) != object::uid(&cluster);
            }
            self.leaving.store(object::deletion_timestamp(&cluster).is_some(), Ordering::Release);
            if !overtaken {
                self.says(&cluster);
            }
            *current = Some(cluster);
            true
        });
        if made_anew && !outlived {
            self.fence.list_anew();
        }
    }

    /// Hears what its users and the hub say in it. An older hub's Cluster lacks the hold that somebody has asked for since: what
    /// it says of holds counts once the hub is believed.
    fn says(&self, cluster: &Value) {
        if self.trust.is_sure() {
            self.holds.cluster_is(cluster);
        } else if self.holds.differ(cluster) {
            self.trust.question.wake();
        }
        let call = Some(Call::of(cluster));
        self.calls.send_if_modified(|current| {
            let changed = *current != call;
            if changed {
                current.clone_from(&call);
            }
            changed
        });
    }

    /// The hub is believed: hears what its Cluster says.
    pub(super) fn heed(&self) {
        let (known, unseen) = (self.get(), self.unseen.lock().clone());
        let is_newer =
            |news: &Value| known.as_ref().is_some_and(|known| object::uid(known) == object::uid(news));
        match unseen.filter(is_newer) {
            Some(news) if self.is_behind() => self.says(&news),
            _ => known.iter().for_each(|known| self.says(known)),
        }
    }

    /// What it says of tunnels, and its changes.
    pub(crate) fn calls(&self) -> latest::Receiver<Option<Call>> {
        self.calls.subscribe()
    }

    /// Why a Cluster is not ours, if it is not.
    fn foreign(&self, cluster: &Value) -> Option<String> {
        let ours = self.id.get()?;
        let id = cluster["spec"]["id"].as_str().filter(|id| !id.is_empty() && id != ours)?;
        Some(format!(
            "the hub's Cluster {} has the id {id}, but this member's id is {ours}: it was deleted, and registered anew by \
             another member. Give one of them another --cluster-name, or, if that member is gone, delete the Cluster: \
             kubectl delete cluster {}",
            self.name, self.name
        ))
    }

    /// Whether the Cluster is ours, as far as the present connection has shown; asks if it has not.
    pub(crate) async fn is_ours(&self, env: &Env) -> bool {
        let mut backoff = Backoff::new(FETCH);
        while !self.sure.load(Ordering::Acquire) {
            match self.meet().await {
                Ok(()) => {}
                Err(error) => {
                    tracing::debug!(cluster = %self.name, %error, "cannot tell whether the Cluster is ours");
                    let asked = error.retry_after().unwrap_or_default();
                    tokio::time::sleep(backoff.next(env).max(asked)).await;
                }
            }
            if self.rights.is_withdrawn() {
                return false;
            }
        }
        !self.rights.is_withdrawn()
    }

    /// It is not sure any more that there is a Cluster of ours.
    pub(crate) fn doubt(&self) {
        self.sure.store(false, Ordering::Release);
    }

    /// There is no Cluster: it was deleted, or the hub is one that never had it, where it is registered again if it is held
    /// for that. What that one knows less is found by whoever hears its Works.
    async fn is_absent(&self) -> Result<(), Error> {
        // Whoever has left, or is about to, is not called back.
        let older = match self.rights.is_withdrawn() || self.leaving.load(Ordering::Acquire) {
            true => None,
            false => self.trust.knows_less().await?,
        };
        match older {
            Some(why) => {
                tracing::warn!(cluster = %self.name, "the hub has no Cluster {}, and may know less than this agent does: {why}. It is registered again", self.name);
                self.rights.cluster_is(Registration::Vacant);
            }
            None => self.rights.cluster_is_gone(),
        }
        Ok(())
    }

    /// Looks whether the Cluster is there and the one that is known, and at its spec if it is not.
    async fn meet(&self) -> Result<(), Error> {
        let before = self.before();
        let bytes = match self.hub.get_bytes(&self.path(), METADATA).await {
            // Not by whatever else answers 404 on the way.
            Err(error) if error.is_absence_of(&self.name) => return self.is_absent().await,
            answer => answer?,
        };
        let news = serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
        self.compare(before, &news);
        if self.get().is_some_and(|known| object::uid(&known) == object::uid(&news)) {
            self.says(&news);
            self.sure.store(true, Ordering::Release);
            return Ok(());
        }
        self.refresh().await.map(drop)
    }

    /// The object, asked for anew if it is known to have changed.
    pub(crate) async fn fresh(&self) -> Result<Arc<Kept>, Error> {
        match self.get() {
            Some(cluster) if !self.is_behind() => Ok(cluster),
            _ => self.refresh().await,
        }
    }

    /// Asks the hub now.
    pub(crate) async fn refresh(&self) -> Result<Arc<Kept>, Error> {
        let cluster = Arc::new(Kept::of(self.ask().await?));
        self.take(Arc::clone(&cluster));
        Ok(cluster)
    }

    async fn ask(&self) -> Result<Value, Error> {
        let before = self.before();
        let cluster = self.hub.get(&self.path()).await?;
        self.compare(before, &cluster);
        Ok(cluster)
    }

    /// The hub's life, and what is known of it, before it is asked something.
    fn before(&self) -> (u64, Option<Arc<Kept>>) {
        let life = self.fence.life();
        (life, self.get().filter(|_| self.life.load(Ordering::Acquire) == life))
    }

    /// Holds an answer against what was known when it was asked for.
    fn compare(&self, (life, known): (u64, Option<Arc<Kept>>), cluster: &Value) {
        if known.is_some_and(|known| is_older(cluster, &known)) {
            self.fence.went_back(life);
        }
    }

    /// Follows the object, and tells when it was deleted.
    pub(crate) async fn follow(&self, env: Env, wake: Wake, fed: Option<Source>) {
        let mut connected = wake.listen();
        let config = WatchConfig::new(clusters().collection(None))
            .fields(format!("metadata.name={}", self.name))
            .metadata_only()
            .wake(&wake)
            .fed(fed);
        let mut watcher = self.watch(config, env.clone(), news);
        let mut backoff = Backoff::new(FETCH);
        let mut listed = false;
        // When to ask for the object as it is now.
        let mut fetch: Option<Instant> = None;
        loop {
            let wait = async {
                match fetch {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = connected.woken() => self.doubt(),
                event = watcher.next() => match event {
                    Event::Init => listed = false,
                    Event::Upsert(news) if object::name(&news) == self.name => {
                        listed = true;
                        if self.get().is_some_and(|known| object::uid(&known) == object::uid(&news)) {
                            self.says(&news);
                            if object::deletion_timestamp(&news).is_some() {
                                self.leaving.store(true, Ordering::Release);
                            }
                        }
                        *self.unseen.lock() = Some(news);
                        if self.is_behind() {
                            if self.is_anew() {
                                self.doubt();
                            }
                            fetch = Some(Instant::now() + SETTLE);
                        }
                    }
                    Event::Upsert(_) => {}
                    Event::Delete(gone) if object::name(&gone) != self.name => {}
                    Event::Synced if listed => {}
                    Event::Delete(_) | Event::Synced => {
                        // The question is whether it is there at all.
                        self.doubt();
                        *self.unseen.lock() = None;
                        fetch = self.fetch(&mut backoff, &env).await;
                    }
                },
                // Whoever found that out does not ask again.
                () = self.rights.withdrawn(), if fetch.is_none() => {
                    fetch = Some(Instant::now() + env.jitter(ASK_AGAIN, 0.5));
                }
                () = wait => {
                    let unsure = self.unseen.lock().is_none();
                    // Meanwhile the answer to a report of our own may have brought it.
                    let wanted = unsure || self.is_behind() || self.rights.is_withdrawn();
                    fetch = if wanted { self.fetch(&mut backoff, &env).await } else { None };
                }
            }
        }
    }

    /// Whether the watch told of a Cluster that was made anew.
    fn is_anew(&self) -> bool {
        let unseen = self.unseen.lock();
        let known = self.get();
        matches!((&*unseen, &known), (Some(news), Some(known)) if object::uid(news) != object::uid(known))
    }

    /// Whether the watch told of a state that is not known here.
    fn is_behind(&self) -> bool {
        if self.life.load(Ordering::Acquire) != self.fence.life() {
            return true;
        }
        let unseen = self.unseen.lock();
        let Some(news) = unseen.as_ref() else { return false };
        self.current.borrow().as_deref().is_none_or(|known| {
            let same = object::uid(news) == object::uid(known)
                && object::resource_version(news) == object::resource_version(known);
            !same && !is_older(news, known)
        })
    }

    /// Asks for the object: before a deletion is believed, and for what has changed. Answers when to ask again.
    async fn fetch(&self, backoff: &mut Backoff, env: &Env) -> Option<Instant> {
        let asked = match self.ask().await {
            Ok(cluster) => {
                self.set(cluster);
                Ok(())
            }
            Err(error) if error.is_absence_of(&self.name) => self.is_absent().await,
            Err(error) => Err(error),
        };
        match asked {
            Ok(()) => {}
            Err(error) => {
                let pause = backoff.next(env).max(error.retry_after().unwrap_or_default());
                if backoff.has_doubled() {
                    tracing::warn!(cluster = %self.name, %error, "cannot read the Cluster");
                } else {
                    tracing::debug!(cluster = %self.name, %error, "cannot read the Cluster");
                }
                return Some(Instant::now() + pause);
            }
        }
        backoff.reset();
        self.rights.is_withdrawn().then(|| Instant::now() + env.jitter(ASK_AGAIN, 0.5))
    }
}

/// What is heard of an object: its metadata, also where all of it is told.
fn news(text: &str) -> Result<Value, String> {
    #[derive(Deserialize)]
    struct News {
        #[serde(default)]
        metadata: Value,
    }
    let News { metadata } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut news = json!({"metadata": metadata});
    without_managed_fields(&mut news);
    Ok(news)
}

/// Whether a state of an object was overtaken by another: an answer may be faster than the watch.
fn is_older(cluster: &Value, known: &Value) -> bool {
    object::uid(cluster) == object::uid(known) && Revision::of(cluster).is_before(Revision::of(known))
}
