//! How the hub writes to the API: Works, claims of policies, and Events; and what it must pass.

pub(crate) mod checks;
pub(crate) mod claiming;
mod events;
pub(crate) mod works;

use std::{fmt, sync::Arc};

use karmada_client::{EventKind, Rest};
use karmada_env::Env;
use karmada_objects::Objects;
use kube::Client;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{events::Reporter, works::Written};
use crate::known::Known;

/// What writing takes: the API, what is known of it, and a way to tell people.
pub(crate) struct Writer {
    pub(crate) known: Arc<Known>,
    pub(crate) objects: Objects,
    /// What the hub writes into Works and has not heard back.
    pub(crate) written: Arc<Written>,
    pub(crate) env: Env,
    reporter: Reporter,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Writes by `client`; the recorders of events are among `tasks` and end with `stop`.
    pub(crate) fn new(
        client: &Client,
        known: Arc<Known>,
        env: Env,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let reporter = Reporter::new(client, &env, tasks, stop);
        Self {
            known,
            objects: Objects::new(Rest::new(client.clone())),
            written: Arc::default(),
            env,
            reporter,
        }
    }

    /// Reports that something went as it should.
    pub(crate) fn normal(&self, component: &str, object: &Value, reason: &str, message: impl Into<String>) {
        self.reporter.event(component, object, EventKind::Normal, reason, message);
    }

    /// Reports that somebody may want to look.
    pub(crate) fn warning(&self, component: &str, object: &Value, reason: &str, message: impl Into<String>) {
        self.reporter.event(component, object, EventKind::Warning, reason, message);
    }
}
