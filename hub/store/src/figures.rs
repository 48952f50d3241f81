//! What the writer counts.

use std::time::Duration;

/// Upper bounds, in milliseconds, of the times by which [`Writes::syncs`] counts; a last one takes the rest.
pub const SYNC_BOUNDS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// What the writer did since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Changes that were made durable.
    pub changes: u64,
    /// Bytes of keys and values in them.
    pub bytes: u64,
    /// Batches, each with one sync, by how long they took: see [`SYNC_BOUNDS`].
    pub syncs: [u64; SYNC_BOUNDS.len() + 1],
    /// How long they took together.
    pub sync_time: Duration,
}

impl Writes {
    /// One more batch.
    pub(crate) fn add(&mut self, changes: usize, bytes: usize, took: Duration) {
        self.changes += changes as u64;
        self.bytes += bytes as u64;
        let slot = SYNC_BOUNDS.iter().position(|bound| took <= Duration::from_millis(*bound));
        self.syncs[slot.unwrap_or(SYNC_BOUNDS.len())] += 1;
        self.sync_time += took;
    }
}

/// Commits that a limit did not allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// That of the whole store,
    pub whole: u64,
    /// and those of accounts.
    pub accounts: u64,
}
