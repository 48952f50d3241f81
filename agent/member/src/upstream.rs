//! What a member half asks of whoever wants something of it, and tells them: an agent's hub half, or a hub that holds the
//! member half itself.

use std::{fmt::Debug, time::Duration};

use futures::future::BoxFuture;
use karmada_api::{conditions::Condition, work::WorkStatus};
use karmada_client::{EventKind, ObjectRef};
use serde_json::Value;

use crate::works::desired::DesiredWork;

/// A question got no answer. Nothing follows from that.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Unanswered {
    cause: String,
    pause: Option<Duration>,
}

impl Unanswered {
    /// Why there is no answer.
    pub fn because(cause: impl std::fmt::Display) -> Self {
        Self { cause: cause.to_string(), pause: None }
    }

    /// How long whoever was asked wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        self.pause
    }
}

impl From<karmada_client::Error> for Unanswered {
    fn from(error: karmada_client::Error) -> Self {
        Self { pause: error.retry_after(), ..Self::because(error) }
    }
}

/// An answer, or none.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Unanswered>>;

/// A Work as it is now. There is no default: that a Work is not there is for whoever has looked to say.
#[derive(Debug)]
pub struct Live {
    /// The revision that the hub was at, if it is a number.
    pub revision: Option<u64>,
    /// None if there is none of that name.
    pub work: Option<Value>,
}

/// See the module. What is told is taken at once, and goes out when it can.
pub trait Upstream: Send + Sync + Debug {
    /// Reads a Work now: before something is taken away for what it says.
    fn work<'a>(&'a self, name: &'a str) -> Answer<'a, Live>;

    /// Whether a Work is there to stay, now.
    fn wants<'a>(&'a self, name: &'a str) -> Answer<'a, bool>;

    /// Whether all Works of this cluster are about to go because their namespace is.
    fn namespace_is_going(&self) -> Answer<'_, bool>;

    /// Whether the Cluster is being deleted, as far as is known.
    fn cluster_is_going(&self) -> bool;

    /// What the Cluster says of removals that are confirmed, as far as is known: see [`crate::RemovalRule`].
    fn confirmed_removals(&self) -> Option<String>;

    /// Whether the Cluster has a condition that is true, as far as is known.
    fn shows(&self, condition: &str) -> bool;

    /// A Work's status is now this; `old` is the one that was known.
    fn report(&self, work: &DesiredWork, old: &WorkStatus, status: WorkStatus);

    /// A Work that is being deleted is carried out: it may be let go.
    fn finished(&self, work: &DesiredWork);

    /// Conditions that a Work is to have before it goes.
    fn last_words<'a>(&'a self, work: &'a DesiredWork, conditions: &'a [Condition]) -> Answer<'a, ()>;

    /// Something for people to know.
    fn event(&self, about: &ObjectRef, kind: EventKind, reason: &str, message: String);
}

impl dyn Upstream {
    pub(crate) fn normal(&self, about: &ObjectRef, reason: &str, message: impl Into<String>) {
        self.event(about, EventKind::Normal, reason, message.into());
    }

    pub(crate) fn warning(&self, about: &ObjectRef, reason: &str, message: impl Into<String>) {
        self.event(about, EventKind::Warning, reason, message.into());
    }
}
