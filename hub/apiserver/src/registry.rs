//! The generic registry: what creating, reading, changing and deleting means for every kind alike.
//!
//! ```text
//!   handlers ─► Registry ── rules, shape of the Kind
//!   gc, namespaces, crd ─┘        │
//!                          store (one commit per write) ─► follow ─► kinds, webhooks
//! ```
//!
//! Every write is a loop around one compare-and-swap: read the object, work out the new one as a pure function of it,
//! commit it on condition that nobody was faster, else start over. Nothing here knows HTTP, and nothing here knows a
//! kind except through [`Kind`].

mod admit;
mod ask;
mod certificates;
pub mod create;
pub mod delete;
mod escalation;
pub mod list;
pub mod metadata;
pub mod modify;
pub mod patch;
mod reaching;
pub(crate) mod renewal;
mod rules;
pub mod scale;
pub mod scaling;
mod telling;
pub(crate) mod together;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use karmada_env::Env;
use karmada_meta::{object, status::Status, time::Time};
use karmada_store::{
    Action, CommitError, Committed, Expect, Failure, Guard, Key, Op, Project as _, Purpose, Revision,
};
use serde_json::Value;

pub use crate::caller::{Caller, Target, Warnings};
use crate::{
    admission::Admission,
    audit::Audit,
    authz::ResourceTarget,
    crd::{schemas, served::Served},
    follow::{Derived, Follower},
    heavy::Pool,
    identity::UserInfo,
    kinds::{Kind, Kinds, Schemas},
    node_ports::{NodePorts, PortRange},
    quota,
    storage::{self, ApiStore, Header, Object, Projection},
    webhooks::{self, Hook, Sort, Webhooks},
};

/// Everything that reads and writes objects. Shared by handlers and background controllers.
#[derive(Debug)]
pub struct Registry {
    /// The objects.
    pub store: ApiStore,
    /// Time, randomness, ids.
    pub env: Env,
    /// What is served, and which names definitions have.
    pub(crate) served: Arc<Served>,
    admission: Arc<dyn Admission>,
    pub(crate) webhooks: Arc<Webhooks>,
    node_ports: Arc<NodePorts>,
    /// Keeps those three and whatever else is derived as new as the store.
    pub(crate) follower: Arc<Follower>,
    /// Where work on large objects is done.
    pub(crate) pool: Arc<Pool>,
    projection: Projection,
    /// Who is told of what this server does by itself.
    audit: OnceLock<Arc<Audit>>,
}

/// An object to be shown: as stored, or as it would have been.
#[derive(Clone, Debug)]
pub enum Shown {
    /// As it is in the store.
    Stored(Arc<Object>),
    /// Not in the store: a dry run's, or the last state of what is gone.
    Made {
        /// What the store would project.
        header: Header,
        /// The stored form.
        value: Bytes,
        /// The resourceVersion to show.
        revision: Option<Revision>,
    },
}

impl Shown {
    /// The projection.
    pub fn header(&self) -> &Header {
        match self {
            Self::Stored(object) => &object.header,
            Self::Made { header, .. } => header,
        }
    }

    /// How long the stored form is, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Stored(object) => object.value.len(),
            Self::Made { value, .. } => value.len(),
        }
    }

    /// The stored form.
    pub fn value(&self) -> Bytes {
        match self {
            Self::Stored(object) => object.value.get(),
            Self::Made { value, .. } => value.clone(),
        }
    }

    /// The resourceVersion, if it has one.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            Self::Stored(object) => Some(object.revision),
            Self::Made { revision, .. } => *revision,
        }
    }

    /// The object in a kind's served form.
    pub fn to_value(&self, kind: &Kind) -> Value {
        let mut value = served(kind, &self.value(), self.revision());
        storage::stamp(kind, &mut value, self.revision());
        value
    }
}

/// A stored object in the served form of a kind, without its resourceVersion.
fn served(kind: &Kind, bytes: &Bytes, revision: Option<Revision>) -> Value {
    let value = serde_json::from_slice(bytes).unwrap_or(Value::Null);
    let mut value = kind.serve(value, revision);
    storage::stamp(kind, &mut value, None);
    value
}

/// A write's outcome.
#[derive(Debug)]
pub struct Written {
    /// What to show.
    pub shown: Shown,
    /// The object is new: 201.
    pub created: bool,
}

impl Registry {
    /// A registry over a store that serves the given native kinds, and keeps `derived` up to date beside its own.
    pub fn new(
        store: ApiStore,
        env: Env,
        native: Vec<Arc<Kind>>,
        admission: Arc<dyn Admission>,
        derived: Vec<Arc<dyn Derived>>,
        ports: PortRange,
    ) -> Self {
        let (served, webhooks) = (Arc::new(Served::new(native)), Arc::new(Webhooks::default()));
        let node_ports = Arc::new(NodePorts::new(ports));
        let own: [Arc<dyn Derived>; 3] = [served.clone(), webhooks.clone(), node_ports.clone()];
        let follower = Arc::new(Follower::new(store.clone(), own.into_iter().chain(derived).collect()));
        let projection = Projection::default();
        Self {
            store,
            env,
            served,
            admission,
            webhooks,
            node_ports,
            follower,
            pool: Arc::default(),
            projection,
            audit: OnceLock::new(),
        }
    }

    /// The kinds served now.
    pub fn kinds(&self) -> Arc<Kinds> {
        self.served.kinds()
    }

    /// Whether the schemas of a kind are still those that are stored.
    fn is_current(&self, kind: &Kind) -> bool {
        let holds =
            |schemas: &Schemas| self.store.get(&schemas.key).is_some_and(|o| o.revision == schemas.since);
        kind.schemas().is_none_or(holds)
    }

    /// A kind as it is served by the schemas of now.
    async fn kind_now(&self, kind: &Kind) -> Result<Arc<Kind>, Status> {
        self.follower.reached(self.store.revision()).await;
        let gvr = &kind.gvr;
        let now = self.kinds().by_resource(&gvr.group, &gvr.version, &gvr.resource).cloned();
        now.ok_or_else(Status::no_such_resource)
    }

    /// Resolves when kinds come or go after this call.
    pub fn kinds_changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.served.changed()
    }

    /// The time in the form of objects.
    pub fn now(&self) -> String {
        Time::now(&self.env).to_string()
    }

    /// The object as it is now.
    pub fn lookup(&self, target: &Target<'_>) -> Option<Arc<Object>> {
        self.store.get(&target.key())
    }

    /// The object as it is now, in the served form of its kind, with its resourceVersion.
    pub fn read(&self, target: &Target<'_>) -> Option<Value> {
        self.lookup(target).map(|object| self.value_of(target.kind, &object))
    }

    /// A stored object in the served form of a kind, with its resourceVersion.
    pub fn value_of(&self, kind: &Kind, object: &Object) -> Value {
        let mut value = served(kind, &object.value.get(), Some(object.revision));
        storage::stamp(kind, &mut value, Some(object.revision));
        value
    }

    /// The stored form of an object.
    fn encode(kind: &Kind, value: Value) -> Bytes {
        if kind.shape.is_stored_form() {
            storage::encode(&value)
        } else {
            storage::encode(&kind.shape.to_stored(value))
        }
    }

    /// An object that is not in the store.
    fn made(&self, target: &Target<'_>, value: Bytes, revision: Option<Revision>) -> Shown {
        let header = self.projection.project(&target.key(), &value);
        Shown::Made { header, value, revision }
    }

    /// The webhooks that may be for a write, if there are any.
    fn hooks(&self, caller: &Caller<'_>, kind: &Kind, sort: Sort) -> Option<Vec<Arc<Hook>>> {
        let hooks = self.webhooks.of(sort)?;
        (!caller.internal && !webhooks::is_exempt(kind)).then_some(hooks)
    }

    /// Tells this log of what is done here by nobody's request. The first that is named stays.
    pub(crate) fn audit_by(&self, audit: Arc<Audit>) {
        let _ = self.audit.set(audit);
    }

    /// Tells of what this server itself has done. Events that go by their age are not worth a word.
    fn tell(&self, user: &UserInfo, agent: &str, verb: &str, key: &Key, subresource: &str) {
        let Some(audit) = self.audit.get().filter(|_| &*key.resource != "core/events") else { return };
        let kinds = self.kinds();
        let Some(kind) = kinds.iter().find(|kind| kind.storage == key.resource) else { return };
        let (namespace, name) = (&*key.namespace, &*key.name);
        let target = ResourceTarget {
            group: &kind.gvr.group,
            resource: &kind.gvr.resource,
            subresource,
            namespace,
            name,
            fields: None,
        };
        audit.tell_own(user, agent, verb, &target, &kind.gvr.version);
    }

    /// Commits one operation of a caller. `Ok(None)`: someone else was faster.
    async fn commit(
        &self,
        caller: &Caller<'_>,
        op: Op,
        purpose: Purpose,
    ) -> Result<Option<Arc<Object>>, Status> {
        self.commit_if(caller, Vec::new(), op, purpose).await
    }

    /// The same under conditions. `Ok(None)` also when one does not hold.
    async fn commit_if(
        &self,
        caller: &Caller<'_>,
        guards: Vec<Guard>,
        op: Op,
        purpose: Purpose,
    ) -> Result<Option<Arc<Object>>, Status> {
        let (Action::Put(value) | Action::Delete(value)) = &op.action;
        let size = value.len();
        let begun = self.pool.run(size, || self.begin(caller, guards, op, purpose)).await?;
        self.conclude(caller, begun).await
    }

    /// Does what a commit takes in proportion to what is written: in one job with what makes that, so that nothing is waited for
    /// between looking at an object and writing it. Nothing is committed yet.
    fn begin<'a>(&'a self, caller: &Caller<'_>, guards: Vec<Guard>, op: Op, purpose: Purpose) -> Begun<'a> {
        // A hub that is full has to start, too.
        let purpose = if caller.internal { Purpose::Upkeep } else { purpose };
        let terms = quota::terms(caller.user, &op.key.resource, purpose);
        // Whoever is judged has come by a request, which is told of.
        let own = (caller.authorizer.is_none() && self.audit.get().is_some()).then(|| {
            let verb = match (&op.action, op.expect) {
                (Action::Delete(_), _) => "delete",
                (Action::Put(_), Expect::Absent) => "create",
                (Action::Put(_), _) => "update",
            };
            (verb, op.key.clone())
        });
        // What it is answered with is the last one's.
        let ops = schemas::beside(&self.store, &op).into_iter().chain([op]).collect();
        Begun { own, commit: self.store.commit_if(guards, ops, terms).boxed() }
    }

    /// Commits what has begun.
    async fn conclude(&self, caller: &Caller<'_>, begun: Begun<'_>) -> Result<Option<Arc<Object>>, Status> {
        let Begun { own, commit } = begun;
        match commit.await {
            Ok(mut committed) => {
                if let Some((verb, key)) = own {
                    self.tell(caller.user, caller.agent, verb, &key, "");
                }
                let entry = committed.entries.pop();
                if let Some(entry) =
                    entry.as_ref().filter(|entry| self.follower.concerns(&entry.key.resource))
                {
                    // Whoever is told of the write is told that it counts. It does so without them, too.
                    self.follower.reached(entry.revision).await;
                }
                Ok(entry)
            }
            Err(CommitError::Conflict { .. } | CommitError::Unmet { .. }) => Ok(None),
            Err(CommitError::Quota(exceeded)) => Err(quota::refusal(&exceeded)),
            Err(CommitError::TooLarge { .. }) => Err(Status::too_large("the object does not fit the store")),
            // The store has logged it, once for all that it refuses.
            Err(CommitError::Io(Failure { full: true, cause })) => {
                let what = "the hub's disk is full; make space, and it takes writes again by itself";
                Err(Status::insufficient_storage(format!("{what}: {cause}")))
            }
            Err(CommitError::Io(Failure { full: false, cause })) => {
                Err(Status::internal(format!("the hub's disk takes no writes at present: {cause}")))
            }
            Err(error) => {
                tracing::error!(%error, "a write failed");
                Err(Status::service_unavailable(error.to_string()))
            }
        }
    }
}

/// A commit that is prepared.
struct Begun<'a> {
    /// What is told of it.
    own: Option<(&'static str, Key)>,
    commit: BoxFuture<'a, Result<Committed<Header>, CommitError<Header>>>,
}

/// Whether deleting an object has begun.
pub fn is_deleting(value: &Value) -> bool {
    object::deletion_timestamp(value).is_some()
}

/// The number in a resourceVersion; absent and "0" are `None`.
///
/// # Errors
/// Go's words for what is no number, as kube-apiserver answers it: a 500 without a reason.
pub fn parse_version(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<u64>() {
        Ok(0) => Ok(None),
        Ok(version) => Ok(Some(version)),
        Err(_) => Err(Status::unclassified(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))),
    }
}

/// The version that a request to read names.
///
/// # Errors
/// As [`parse_version`], with the parameter's name.
pub(crate) fn parse_asked(text: &str) -> Result<Option<u64>, Status> {
    parse_version(text).map_err(|status| {
        Status::unclassified(format!("resourceVersion: Invalid value: {text:?}: {}", status.message))
    })
}
