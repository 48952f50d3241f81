//! Events that the hub has not heard, kept beyond the process: rarely, since they are written where disks wear out, and few.
//! What is told twice for that is counted twice.

use std::{sync::Arc, time::Duration};

use karmada_client::{Recorder, Waiting};
use karmada_env::Env;
use karmada_member::{Member, rights::Rights};
use parking_lot::Mutex;

/// The name of the note.
const NOTE: &str = "events";

/// So many are kept.
const MOST: usize = 64;

/// How often it is looked whether there is something to keep.
const LOOK: Duration = Duration::from_secs(60);

/// A hub that was not heard for so long is away.
const AWAY: Duration = Duration::from_secs(60);
/// The same when the process ends.
const AWAY_AT_THE_END: Duration = Duration::from_secs(15);

/// The least time between two writes of what waits.
const SELDOM: Duration = Duration::from_secs(1800);

/// How long the state may take until it is known what was kept.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) recorder: Recorder,
    pub(super) member: Arc<Member>,
    pub(super) rights: Rights,
    pub(super) cluster: String,
    pub(super) env: Env,
    /// What is kept, and [`Env::now`] since when.
    pub(super) kept: Mutex<(Vec<Waiting>, Option<Duration>)>,
}

impl Telling {
    /// Lets be told what was kept before the start. Before the recorder writes anything.
    pub(super) async fn recall(&self) {
        if tokio::time::timeout(PATIENCE, self.member.recalled()).await.is_err() {
            return;
        }
        let Some(note) = self.member.note(NOTE) else { return };
        match serde_json::from_slice::<Vec<Waiting>>(&note) {
            Ok(waiting) => {
                self.kept.lock().0.clone_from(&waiting);
                self.recorder.recall(waiting);
            }
            Err(error) => tracing::warn!(%error, "events that were kept cannot be read"),
        }
    }

    /// Keeps them, for ever.
    pub(super) async fn keep(&self) {
        loop {
            tokio::time::sleep(self.env.beat(&self.cluster, LOOK)).await;
            self.look(AWAY).await;
        }
    }

    /// The process ends.
    pub(super) async fn end(&self) {
        let waiting = self.recorder.waiting(MOST);
        if self.rights.is_unheard_for(AWAY_AT_THE_END) && waiting != self.kept.lock().0 {
            self.write(waiting).await;
        }
    }

    async fn look(&self, away: Duration) {
        let waiting = self.recorder.waiting(MOST);
        let now = self.env.now();
        let (kept, since) = self.kept.lock().clone();
        if self.rights.is_unheard_for(away) {
            let is_due = since.is_none_or(|since| now.saturating_sub(since) >= SELDOM);
            if is_due && waiting != kept {
                self.write(waiting).await;
            }
        } else if !kept.is_empty() && !kept.iter().any(|one| waiting.contains(one)) {
            // All of it was told.
            self.write(Vec::new()).await;
        }
    }

    async fn write(&self, waiting: Vec<Waiting>) {
        match serde_json::to_vec(&waiting) {
            Ok(text) => {
                self.member.keep_note(NOTE, text).await;
                *self.kept.lock() = (waiting, Some(self.env.now()));
            }
            Err(error) => tracing::warn!(%error, "events cannot be kept"),
        }
    }
}
