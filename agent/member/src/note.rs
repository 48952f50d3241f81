//! What the member's Lease says of the state that is kept ([`crate::state`]), between the loop that renews the Lease and the
//! state.
//!
//! What is kept lies where it may be exchanged for an older copy, or be left behind while the agent goes on without. The
//! Lease is where all agents of a name meet, and it is written all the time: an annotation of it says what the newest state is,
//! or that there is none. It goes with renewals, and only when it has changed, so that it costs nothing while nothing changes.

use karmada_api::consts::extension::AGENT_STATE;
use karmada_client::{Wake, latest, lease};
use karmada_meta::object;
use serde_json::Value;

/// What the Lease says when what is done is kept nowhere.
pub(crate) const NONE: &str = "none";

/// A time for which one agent has the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    /// The uid of the Lease.
    pub(crate) lease: String,
    /// How often it had changed hands when it came to this agent.
    pub(crate) term: u64,
}

/// See the module. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    says: latest::Sender<Says>,
    /// It is to be written at once.
    pub(crate) urgent: Wake,
}

#[derive(Debug, Default)]
struct Says {
    /// None where the member keeps no Leases.
    tenure: Option<Tenure>,
    /// What the Lease is to say; none to leave it as it is.
    wanted: Option<String>,
    /// What it says, as far as is known.
    written: Option<String>,
}

impl Note {
    /// The Lease is ours, as it was written.
    pub(crate) fn held(&self, lease: &Value) {
        let tenure = Tenure { lease: object::uid(lease).to_owned(), term: lease::transitions(lease) };
        let written = lease::annotation(lease, AGENT_STATE).map(str::to_owned);
        self.says.send_if_modified(|says| {
            let is_news = says.tenure.as_ref() != Some(&tenure) || says.written != written;
            (says.tenure, says.written) = (Some(tenure), written);
            is_news
        });
    }

    /// The member keeps no Lease.
    pub(crate) fn leaseless(&self) {
        self.says.send_if_modified(|says| says.tenure.take().is_some());
    }

    /// The Lease was another agent's, or another: what was to be said of it may be old.
    pub(crate) fn forget(&self) {
        self.says.send_if_modified(|says| says.wanted.take().is_some());
    }

    /// Has a Lease say what it is to say.
    pub(crate) fn fill(&self, lease: &mut Value) {
        if let Some(wanted) = &self.says.borrow().wanted {
            lease::set_annotation(lease, AGENT_STATE, wanted);
        }
    }

    pub(crate) fn tenure(&self) -> Option<Tenure> {
        self.says.borrow().tenure.clone()
    }

    /// What the Lease says.
    pub(crate) fn said(&self) -> Option<String> {
        self.says.borrow().written.clone()
    }

    /// Waits until this agent has the Lease by another tenure.
    pub(crate) async fn other_than(&self, tenure: &Option<Tenure>) {
        self.when(|says| says.tenure != *tenure).await;
    }

    /// Has the Lease say this with its next renewal.
    pub(crate) fn say(&self, text: &str) {
        self.says.send_if_modified(|says| says.wanted.replace(text.to_owned()).as_deref() != Some(text));
    }

    /// The same, and at once. Resolves when it does, or where there is no Lease.
    pub(crate) async fn say_now(&self, text: &str) {
        self.say(text);
        if self.said().as_deref() != Some(text) {
            self.urgent.wake();
        }
        self.when(|says| says.written.as_deref() == Some(text) || says.tenure.is_none()).await;
    }

    async fn when(&self, is: impl Fn(&Says) -> bool) {
        let mut says = self.says.subscribe();
        if says.wait_for(is).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
