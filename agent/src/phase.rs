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
    /// The Cluster was deleted on the hub. Ends with the process.
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

    /// Moves on. `Removed` is the end: nothing leads out of it.
    pub(crate) fn set(&self, phase: Phase) {
        self.0.send_if_modified(|current| {
            if *current == phase || *current == Phase::Removed {
                return false;
            }
            match &phase {
                Phase::Refused(why) => tracing::error!(%why, "this agent may not register"),
                Phase::Removed => tracing::warn!(
                    "the Cluster was deleted on the hub: nothing is applied or reported any more; what runs here \
                     stays; restart the agent to register again"
                ),
                other => tracing::info!(from = current.as_str(), to = other.as_str(), "phase"),
            }
            *current = phase;
            true
        });
    }

    /// Waits until the agent is at work.
    pub(crate) async fn active(&self) {
        let mut phase = self.0.subscribe();
        if phase.wait_for(|phase| *phase == Phase::Active).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
