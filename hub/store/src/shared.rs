//! What readers, watchers and the writer share: one lock around the current state, the history and the watchers.
//!
//! Readers hold it for a lookup or to copy a root; the writer holds it to publish a batch that is already
//! durable. So nobody ever sees a revision without everything before it: who lists at revision N and watches from
//! there has missed nothing.

use parking_lot::{Mutex, RwLock};

use crate::{
    boot::Boots,
    error::Compacted,
    history::History,
    key::Revision,
    state::{Snapshot, State},
    store::Writes,
    watch::Registry,
};

/// Snapshots of earlier revisions that were made lately: the next page of the same list is likely to want one.
const KEPT_SNAPSHOTS: usize = 4;

pub(crate) struct Core<H> {
    pub(crate) state: State<H>,
    pub(crate) history: History<H>,
    pub(crate) watchers: Registry,
    /// Everything up to here survives a crash.
    pub(crate) durable: Revision,
    pub(crate) closed: bool,
    pub(crate) failed: Option<std::sync::Arc<str>>,
    pub(crate) writes: Writes,
}

impl<H> Core<H> {
    pub(crate) fn compacted(&self, asked: Revision) -> Compacted {
        Compacted { asked, oldest: self.history.compacted(), current: self.state.revision() }
    }
}

pub(crate) struct Shared<H> {
    pub(crate) core: RwLock<Core<H>>,
    pub(crate) boots: Boots,
    past: Mutex<Vec<Snapshot<H>>>,
}

impl<H> Shared<H> {
    pub(crate) fn new(state: State<H>, history: History<H>, durable: Revision, boots: Boots) -> Self {
        let watchers = Registry::default();
        let core = Core {
            state,
            history,
            watchers,
            durable,
            closed: false,
            failed: None,
            writes: Writes::default(),
        };
        Self { core: RwLock::new(core), boots, past: Mutex::new(Vec::new()) }
    }

    /// Lets go of earlier snapshots that history does not reach any more.
    pub(crate) fn forget_snapshots(&self, compacted: Revision) {
        self.past.lock().retain(|snapshot| snapshot.revision() >= compacted);
    }

    /// The state as it was at a revision, made from today's by taking back what happened since.
    pub(crate) fn snapshot_at(&self, revision: Revision) -> Result<Snapshot<H>, Compacted> {
        let (mut state, since) = {
            let core = self.core.read();
            if revision == core.state.revision() {
                return Ok(Snapshot::new(core.state.clone()));
            }
            let lost = self.boots.lost_relaxed(revision);
            if revision < core.history.compacted() || revision > core.state.revision() || lost {
                return Err(core.compacted(revision));
            }
            if let Some(kept) = self.past.lock().iter().find(|s| s.revision() == revision) {
                return Ok(kept.clone());
            }
            (core.state.clone(), core.history.back_to(revision).cloned().collect::<Vec<_>>())
        };
        since.iter().for_each(|event| state.undo(event));
        state.set_revision(revision);
        let snapshot = Snapshot::new(state);
        let mut past = self.past.lock();
        if past.len() == KEPT_SNAPSHOTS {
            past.remove(0);
        }
        past.push(snapshot.clone());
        Ok(snapshot)
    }
}
