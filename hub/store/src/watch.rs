//! Watchers: cursors into the history, woken by what happens in their scope and by nothing else.
//!
//! A watcher has no queue. Publishing an event sets the `pending` revision of every cursor in scope that has none
//! and wakes it; the watcher then reads from the history, one event after the other. So a slow watcher costs
//! nobody anything, and one whose unread events were trimmed away sees that its `pending` revision is gone. A
//! watcher of a quiet namespace has nothing pending and stays good for ever, however far history moves on.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    entry::Event,
    error::{Compacted, WatchEnd},
    key::Revision,
    scope::Scope,
    shared::Shared,
    watchers::Cursor,
};

/// A watcher. Made by [`crate::Store::watch`]; ends when dropped.
pub struct Watch<H> {
    shared: Arc<Shared<H>>,
    cursor: Arc<Cursor>,
    scope: Scope,
    id: u64,
    /// Everything up to here has been read.
    seen: Revision,
}

impl<H> fmt::Debug for Watch<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("scope", &self.scope).field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl<H> Watch<H> {
    /// Starts watching after `from`.
    pub(crate) fn start(shared: Arc<Shared<H>>, scope: Scope, from: Revision) -> Result<Self, Compacted> {
        let cursor = Arc::new(Cursor { pending: AtomicU64::new(0), from, wake: Notify::new() });
        let id = {
            let mut core = shared.core.write();
            if from < core.history.compacted_in(&scope) {
                return Err(core.compacted_in(&scope, from));
            }
            let first = core.history.next_in(&scope, from).map_or(0, |e| e.revision().get());
            cursor.pending.store(first, Ordering::Release);
            core.watchers.add(&scope, cursor.clone())
        };
        Ok(Self { shared, cursor, scope, id, seen: from })
    }

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event<H>>>, WatchEnd> {
        let core = self.shared.core.read();
        let pending = Revision::new(self.cursor.pending.load(Ordering::Acquire));
        if pending == Revision::ZERO {
            self.seen = self.seen.max(core.state.revision());
            return if core.closed { Err(WatchEnd::Closed) } else { Ok(None) };
        }
        // Where the scope has several parts, one may have been trimmed beyond what is next in another.
        let whole = core.history.compacted_in(&self.scope) < pending;
        let event = match core.history.next_in(&self.scope, self.seen) {
            Some(event) if whole && event.revision() == pending => event.clone(),
            _ => return Err(core.compacted_in(&self.scope, self.seen).into()),
        };
        self.seen = pending;
        let following = core.history.next_in(&self.scope, pending).map_or(0, |e| e.revision().get());
        self.cursor.pending.store(following, Ordering::Release);
        Ok(Some(event))
    }

    /// The next event. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> Result<Arc<Event<H>>, WatchEnd> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            self.cursor.wake.notified().await;
        }
    }

    /// Everything in scope up to this revision has been read: what a bookmark may say.
    pub fn revision(&mut self) -> Revision {
        let core = self.shared.core.read();
        if self.cursor.pending.load(Ordering::Acquire) == 0 {
            self.seen = self.seen.max(core.state.revision());
        }
        self.seen
    }

    /// What is watched.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl<H> Drop for Watch<H> {
    fn drop(&mut self) {
        self.shared.core.write().watchers.remove(&self.scope, self.id);
    }
}
