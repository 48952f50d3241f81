//! How the hub writes to the API: Works, claims of policies, and Events; and what it must pass.

pub(crate) mod checks;
pub(crate) mod claiming;
mod events;
pub(crate) mod revisions;
pub(crate) mod takings;
pub(crate) mod works;

use std::{fmt, sync::Arc};

use karmada_client::{Error, EventKind, Rest};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::{Objects, kinds::WORKS};
use kube::Client;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{events::Reporter, revisions::Revisions, takings::Takings, works::Written};
use crate::known::Known;

/// What writing takes: the API, what is known of it, and a way to tell people.
pub(crate) struct Writer {
    pub(crate) known: Arc<Known>,
    pub(crate) objects: Objects,
    /// What the hub writes into Works and has not heard back.
    pub(crate) written: Arc<Written>,
    /// What templates were before.
    pub(crate) revisions: Revisions,
    /// What others take away of Works.
    pub(crate) takings: Arc<Takings>,
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
            revisions: Revisions::default(),
            takings: Arc::new(Takings::new(env.clone())),
            env,
            reporter,
        }
    }

    /// Deletes a Work, as it was read, that its maker wants no more.
    pub(crate) async fn delete_work(&self, work: &Value) -> Result<(), Error> {
        let uid = object::uid(work);
        self.takings.ours(uid);
        let deleted = self.objects.delete(&WORKS, work).await;
        if !matches!(deleted, Ok(true)) {
            self.takings.not_ours(uid);
        }
        deleted.map(drop)
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
