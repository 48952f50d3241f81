//! Where an agent is in its life. One value, published; every loop looks at it.

use std::sync::Arc;

use karmada_client::latest;

/// Where an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Looks for the hub, the member, or its Cluster.
    Joining,
    /// May not go on, and why. Tried again now and then: somebody may resolve it.
    Refused(Arc<str>),
    /// Another agent of this name is at work.
    StandingBy,
    /// At work.
    Active,
    /// The Cluster was deleted on the hub. What runs here is kept as it is; whether there is a Cluster again is asked now
    /// and then.
    Removed,
}

impl Phase {
    /// A word for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Refused(_) => "refused",
            Self::StandingBy => "standing-by",
            Self::Active => "active",
            Self::Removed => "removed",
        }
    }

    /// Whether there is no Cluster, or one that is another's.
    pub(crate) fn is_withdrawn(&self) -> bool {
        matches!(self, Self::Removed | Self::Refused(_))
    }
}

/// The phase, to be set by the loops that decide and awaited by the others.
#[derive(Clone, Debug)]
pub(crate) struct Phases(latest::Sender<Phase>);

impl Phases {
    pub(crate) fn new() -> Self {
        Self(latest::Sender::new(Phase::Joining))
    }

    pub(crate) fn subscribe(&self) -> latest::Receiver<Phase> {
        self.0.subscribe()
    }

    pub(crate) fn is_active(&self) -> bool {
        *self.0.borrow() == Phase::Active
    }

    /// Whether there is no Cluster of ours.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.0.borrow().is_withdrawn()
    }

    /// Moves on. Nobody is at work, or stands by, while there is no Cluster: that comes first ([`Phase::Joining`]).
    pub(crate) fn set(&self, phase: Phase) {
        self.0.send_if_modified(|current| {
            let follows = matches!(phase, Phase::Active | Phase::StandingBy) && current.is_withdrawn();
            if *current == phase || follows {
                return false;
            }
            match &phase {
                Phase::Refused(why) => tracing::error!(%why, "this agent may not work for this Cluster"),
                Phase::Removed => tracing::warn!(
                    "the Cluster was deleted on the hub: nothing new is applied, and nothing deleted or reported any \
                     more; what runs here is kept as it is; restart the agent to register again"
                ),
                other => tracing::info!(from = current.as_str(), to = other.as_str(), "phase"),
            }
            *current = phase;
            true
        });
    }

    /// There is a Cluster of ours: if there was none, everything that takes one begins anew.
    pub(crate) fn rejoin(&self) {
        if self.is_withdrawn() {
            self.set(Phase::Joining);
        }
    }

    /// Waits until there is no Cluster of ours any more.
    pub(crate) async fn withdrawn(&self) {
        self.when(Phase::is_withdrawn).await;
    }

    /// Waits until there may be a Cluster of ours.
    pub(crate) async fn joined(&self) {
        self.when(|phase| !phase.is_withdrawn()).await;
    }

    /// Waits until what is known to be wanted may be kept so: that goes on when there is no Cluster any more.
    pub(crate) async fn keeping(&self) {
        self.when(|phase| *phase == Phase::Active || phase.is_withdrawn()).await;
    }

    async fn when(&self, is: impl FnMut(&Phase) -> bool) {
        let mut phase = self.0.subscribe();
        if phase.wait_for(is).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the agent is at work.
    pub(crate) async fn active(&self) {
        self.when(|phase| *phase == Phase::Active).await;
    }
}
