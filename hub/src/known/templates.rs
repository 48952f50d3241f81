//! Watches on the kinds of templates: one per kind that somebody asks for, started and ended as that changes.
//!
//! ```text
//!   policies' selectors ─┐
//!   bindings' resources ─┼─▶ wanted kinds ─▶ discovery ─▶ one watch and one index per kind ─▶ listeners
//!   definitions (CRDs) ──┘                  (list, watch, delete?)
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use karmada_client::{Error, Resource, Rest, WatchConfig};
use karmada_core::skip::Skip;
use karmada_env::Env;
use karmada_meta::gvk::GroupVersionKind;
use karmada_objects::discovery::Lookup;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::known::{
    heads::TemplateHead,
    index::{Change, Index, follow},
    shared::Shared,
};

/// What a template must allow: it is listed and watched, and what a policy places can be taken away again.
const VERBS: [&str; 3] = ["list", "watch", "delete"];

type Listener = Box<dyn Fn(&GroupVersionKind, &Change<'_, TemplateHead>) + Send + Sync>;

/// A kind that is watched.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub resource: Resource,
    pub index: Arc<Index<TemplateHead>>,
    stop: CancellationToken,
}

/// All kinds of templates that are watched.
pub(crate) struct Templates {
    watched: RwLock<BTreeMap<GroupVersionKind, Watched>>,
    /// Wanted kinds that the server does not have, or that cannot be templates.
    unserved: RwLock<BTreeSet<GroupVersionKind>>,
    listeners: Arc<RwLock<Vec<Listener>>>,
    lookup: Mutex<Learnt>,
    /// Given whenever the set of watched kinds may have to change.
    changed: Notify,
}

/// What discovery has said since it was last to be forgotten.
#[derive(Default)]
struct Learnt {
    /// Goes up with every [`Templates::forget`]: what was asked for before then is not kept.
    epoch: u64,
    lookup: Lookup,
}

impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Templates").field("watched", &self.watched.read().keys()).finish_non_exhaustive()
    }
}

impl Templates {
    /// No kind is watched yet.
    pub(crate) fn new() -> Self {
        Self {
            watched: RwLock::default(),
            unserved: RwLock::default(),
            listeners: Arc::default(),
            lookup: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Hears every later change of every kind.
    pub(crate) fn listen(
        &self,
        listener: impl Fn(&GroupVersionKind, &Change<'_, TemplateHead>) + Send + Sync + 'static,
    ) {
        self.listeners.write().push(Box::new(listener));
    }

    /// The watch of a kind, if there is one.
    pub(crate) fn find(&self, kind: &GroupVersionKind) -> Option<Watched> {
        self.watched.read().get(kind).cloned()
    }

    /// The watches of a kind, one for each of its versions.
    pub(crate) fn versions(&self, group: &str, kind: &str) -> Vec<Watched> {
        let watched = self.watched.read();
        let versions = watched.iter().filter(|(known, _)| known.group == group && known.kind == kind);
        versions.map(|(_, watched)| watched.clone()).collect()
    }

    /// All kinds that are watched.
    pub(crate) fn kinds(&self) -> Vec<(GroupVersionKind, Watched)> {
        self.watched.read().iter().map(|(kind, watched)| (kind.clone(), watched.clone())).collect()
    }

    /// Whether everything that is known of a kind's objects is known: they are all listed, or the server has no
    /// such kind.
    pub(crate) fn is_settled(&self, kind: &GroupVersionKind) -> bool {
        match self.find(kind) {
            Some(watched) => watched.index.is_synced(),
            None => self.is_unserved(kind),
        }
    }

    /// Whether a wanted kind is not served, or cannot be a template.
    pub(crate) fn is_unserved(&self, kind: &GroupVersionKind) -> bool {
        self.unserved.read().contains(kind)
    }

    /// The wanted kinds, or the served ones, may have changed.
    pub(crate) fn poke(&self) {
        self.changed.notify_one();
    }

    /// [`Templates::poke`] after a while.
    pub(crate) fn poke_after(self: &Arc<Self>, delay: Duration, tasks: &TaskTracker) {
        let templates = Arc::downgrade(self);
        tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            if let Some(templates) = templates.upgrade() {
                templates.poke();
            }
        });
    }

    /// Kinds may have come or gone on the server: what discovery has said is not relied on any longer.
    pub(crate) fn forget(&self) {
        let mut learnt = self.lookup.lock();
        learnt.epoch += 1;
        learnt.lookup.forget();
    }

    /// [`Templates::forget`], and the watched kinds are looked at again.
    pub(crate) fn rediscover(&self) {
        self.forget();
        self.poke();
    }

    /// Resolves when [`Templates::poke`] or [`Templates::rediscover`] was called since the last time.
    pub(crate) async fn poked(&self) {
        self.changed.notified().await;
    }

    /// The address of a kind, whether watched or not; nothing if the server does not have it.
    pub(crate) async fn resource(
        &self,
        rest: &Rest,
        kind: &GroupVersionKind,
    ) -> Result<Option<Resource>, Error> {
        if let Some(watched) = self.find(kind) {
            return Ok(Some(watched.resource));
        }
        Ok(self.lookup(rest, kind).await?.map(|served| served.resource))
    }

    async fn lookup(
        &self,
        rest: &Rest,
        kind: &GroupVersionKind,
    ) -> Result<Option<karmada_objects::discovery::Served>, Error> {
        // Not held over the request: two may ask at once, and both learn the same.
        let (epoch, mut lookup) = {
            let mut learnt = self.lookup.lock();
            (learnt.epoch, std::mem::take(&mut learnt.lookup))
        };
        let found = lookup.find(rest, &kind.api_version(), &kind.kind).await;
        let mut learnt = self.lookup.lock();
        if learnt.epoch == epoch {
            learnt.lookup.absorb(lookup);
        }
        found
    }

    /// Makes the watched kinds the `wanted` ones, as far as the server has them. Says which kind could not be looked
    /// up; the others are dealt with all the same.
    pub(crate) async fn watch_only(
        &self,
        wanted: &BTreeSet<GroupVersionKind>,
        skip: &Skip,
        rest: &Rest,
        env: &Env,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<(), (GroupVersionKind, Error)> {
        let mut served = BTreeMap::new();
        let mut failed = None;
        for kind in wanted.iter().filter(|kind| !skip.kind(kind)) {
            match self.lookup(rest, kind).await {
                Ok(Some(found)) if found.supports(&VERBS) => {
                    served.insert(kind.clone(), found.resource);
                }
                Ok(_) => {}
                Err(error) => {
                    // What is watched stays watched: a discovery that fails says nothing about the kind.
                    if let Some(watched) = self.find(kind) {
                        served.insert(kind.clone(), watched.resource);
                    }
                    failed = Some((kind.clone(), error));
                }
            }
        }
        if failed.is_none() {
            *self.unserved.write() =
                wanted.iter().filter(|kind| !served.contains_key(kind)).cloned().collect();
        }
        self.end_others(&served);
        for (kind, resource) in served {
            if !self.watched.read().contains_key(&kind) {
                self.begin(kind, resource, rest, env, tasks, stop);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn end_others(&self, served: &BTreeMap<GroupVersionKind, Resource>) {
        let gone: Vec<_> = {
            let mut watched = self.watched.write();
            let keep = |kind: &GroupVersionKind, w: &Watched| served.get(kind) == Some(&w.resource);
            let gone =
                watched.iter().filter(|(k, w)| !keep(k, w)).map(|(k, w)| (k.clone(), w.clone())).collect();
            watched.retain(|kind, w| keep(kind, w));
            gone
        };
        for (kind, watched) in gone {
            tracing::info!(%kind, "the kind is no longer watched");
            watched.stop.cancel();
        }
    }

    fn begin(
        &self,
        kind: GroupVersionKind,
        resource: Resource,
        rest: &Rest,
        env: &Env,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) {
        tracing::info!(%kind, "the kind is watched");
        let index = Index::keep_recent(TemplateHead::groups);
        let (listeners, heard_kind, of) = (self.listeners.clone(), kind.clone(), kind.clone());
        index.listen(move |change| {
            for listener in listeners.read().iter() {
                listener(&heard_kind, change);
            }
        });
        let stop = stop.child_token();
        let config = WatchConfig::new(resource.collection(None));
        let (_, following) =
            follow(index.clone(), rest.clone(), config, env.clone(), Shared::default(), move |value| {
                TemplateHead::project_as(&of, value)
            });
        // Known before its first object is: whoever hears of one looks the kind up.
        self.watched.write().insert(kind, Watched { resource, index, stop: stop.clone() });
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = following => {}
            }
        });
    }
}
