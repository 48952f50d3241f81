//! What readers, watchers and the writer share: one lock around the current state, the history and the watchers.
//!
//! Readers hold it for a lookup or to copy a root; the writer holds it to publish a batch that is already
//! durable. So nobody ever sees a revision without everything before it: who lists at revision N and watches from
//! there has missed nothing.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use parking_lot::{Mutex, RwLock};

use crate::{
    boot::Boots,
    engine::Forget,
    error::{Compacted, Failure},
    figures::{Refused, Writes},
    history::History,
    key::Revision,
    quota::Used,
    scope::Scope,
    state::{Snapshot, State},
    watchers::Registry,
};

/// Snapshots of earlier revisions that were made lately: the next page of the same list is likely to want one.
const KEPT_SNAPSHOTS: usize = 4;

pub(crate) struct Core<H> {
    pub(crate) state: State<H>,
    /// What the state takes.
    pub(crate) used: Used,
    pub(crate) history: History<H>,
    pub(crate) watchers: Registry,
    /// Everything up to here survives a crash.
    pub(crate) durable: Revision,
    pub(crate) closed: bool,
    /// Why nothing can be written at present.
    pub(crate) failed: Option<Failure>,
    pub(crate) writes: Writes,
    pub(crate) refused: Refused,
}

impl<H> Core<H> {
    pub(crate) fn compacted_in(&self, scope: &Scope, asked: Revision) -> Compacted {
        Compacted { asked, oldest: self.history.compacted_in(scope), current: self.state.revision() }
    }
}

pub(crate) struct Shared<H> {
    pub(crate) core: RwLock<Core<H>>,
    pub(crate) boots: Boots,
    /// Since when the writer waits for its disk.
    pub(crate) at_disk: Mutex<Option<Duration>>,
    /// It writes everything anew, which takes its time.
    pub(crate) rewriting: AtomicBool,
    past: Mutex<Vec<(Arc<str>, Snapshot<H>)>>,
}

impl<H> Shared<H> {
    pub(crate) fn new(state: State<H>, history: History<H>, durable: Revision, boots: Boots) -> Self {
        let watchers = Registry::default();
        let core = Core {
            used: Used::of(&state),
            state,
            history,
            watchers,
            durable,
            closed: false,
            failed: None,
            writes: Writes::default(),
            refused: Refused::default(),
        };
        Self {
            core: RwLock::new(core),
            boots,
            at_disk: Mutex::default(),
            rewriting: AtomicBool::new(false),
            past: Mutex::new(Vec::new()),
        }
    }

    /// Lets go of earlier snapshots that history does not reach any more.
    pub(crate) fn forget_snapshots(&self, forget: &[Forget]) {
        if !forget.is_empty() {
            let gone = |of: &str, at: Revision| forget.iter().any(|f| *f.resource == *of && at < f.up_to);
            self.past.lock().retain(|(resource, snapshot)| !gone(resource, snapshot.revision()));
        }
    }

    /// A resource, or one namespace of it, as it was at a revision, made from today's by taking back what happened since.
    /// Of other namespaces it says nothing then.
    pub(crate) fn snapshot_at(&self, scope: &Scope, revision: Revision) -> Result<Snapshot<H>, Compacted> {
        let resource = &*scope.resource;
        let (mut state, since) = {
            let core = self.core.read();
            if revision == core.state.revision() {
                return Ok(Snapshot::new(core.state.only(resource)));
            }
            if revision < core.history.compacted_in(scope) || revision > core.state.revision() {
                return Err(core.compacted_in(scope, revision));
            }
            let kept = |(of, s): &&(Arc<str>, Snapshot<H>)| **of == *resource && s.revision() == revision;
            if let Some((_, kept)) = self.past.lock().iter().find(kept) {
                return Ok(kept.clone());
            }
            let since: Vec<_> = core.history.back_to(scope, revision).cloned().collect();
            (core.state.only(resource), since)
        };
        since.iter().for_each(|event| state.undo(event));
        state.set_revision(revision);
        let snapshot = Snapshot::new(state);
        if scope.namespace.is_some() {
            return Ok(snapshot);
        }
        let mut past = self.past.lock();
        if past.len() == KEPT_SNAPSHOTS {
            past.remove(0);
        }
        past.push((resource.into(), snapshot.clone()));
        Ok(snapshot)
    }
}
