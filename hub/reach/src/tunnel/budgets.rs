//! What is used up of what may cross to members, as their agents have said: asked before a request, and told what came of it.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use karmada_core::spent::{Memory, SPENT, Spent, Turn};
use karmada_env::Env;
use parking_lot::Mutex;

use crate::Registry;

/// See the module.
pub(crate) struct Budgets {
    registry: Arc<dyn Registry>,
    env: Env,
    memory: Mutex<Memory>,
}

/// A request of a user's whom an agent has refused, by which the agent is asked again. Until it is dropped, or for a minute, the
/// user's others are refused; if nothing of it was sent then, the next may ask.
pub(crate) struct Again {
    budgets: Arc<Budgets>,
    cluster: String,
    user: String,
    turn: Turn,
    /// Something of it may have been sent.
    pub(crate) is_sent: bool,
}

impl Drop for Again {
    fn drop(&mut self) {
        if !self.is_sent {
            self.budgets.memory.lock().returns(&self.cluster, &self.user, self.turn);
        }
    }
}

impl Budgets {
    pub(super) fn new(registry: Arc<dyn Registry>, env: Env) -> Self {
        Self { registry, env, memory: Mutex::default() }
    }

    /// Whether a request of this user's is sent to a cluster's agent.
    ///
    /// # Errors
    /// What its agent has said to this user, or of all.
    pub(crate) fn ask(self: &Arc<Self>, cluster: &str, user: &str) -> Result<Option<Again>, Spent> {
        let now = self.env.now();
        let known = self.memory.lock().of(cluster, user, now);
        let turn = known.or_else(|_| {
            // Only now is it worth a look whether who has said it still speaks for the cluster.
            let agent = self.registry.agent(cluster);
            let mut memory = self.memory.lock();
            memory.forget_others(cluster, &agent);
            memory.of(cluster, user, now)
        })?;
        Ok(turn.map(|turn| Again {
            budgets: self.clone(),
            cluster: cluster.to_owned(),
            user: user.to_owned(),
            turn,
            is_sent: false,
        }))
    }

    /// Keeps what an agent answers of it.
    pub(crate) fn hears(
        &self,
        (cluster, user): (&str, &str),
        again: Option<&Again>,
        (code, headers): (StatusCode, &HeaderMap),
    ) {
        let told = headers.get(SPENT).filter(|_| code == StatusCode::TOO_MANY_REQUESTS);
        let told = told.and_then(|told| Spent::of(told.to_str().ok()?));
        match (told, again) {
            (Some(spent), _) => self.keep((cluster, &self.registry.agent(cluster)), user, spent),
            (None, Some(again)) => self.memory.lock().goes(cluster, user, again.turn),
            (None, None) => {}
        }
    }

    /// Keeps what a cluster's agent says to this user.
    pub(super) fn keep(&self, by: (&str, &str), user: &str, spent: Spent) {
        self.memory.lock().keep(by, user, spent, self.env.now());
    }

    /// An agent is there anew, and may have more to use.
    pub(super) fn doubt(&self, cluster: &str) {
        self.memory.lock().doubt(cluster);
    }
}
