//! How a store is run.

use std::time::Duration;

use crate::{history::HistoryLimits, value::Dictionary};

/// How a store is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much history is kept.
    pub history: HistoryLimits,
    /// Whether updates of this resource may be relaxed ([`crate::Op::relaxed`]): they are shown at once and written
    /// within `flush`. History of such a resource ends with the run.
    pub relaxed: fn(&str) -> bool,
    /// For how long relaxed updates may be unwritten; of a value that is updated often, only the last one is written.
    /// Without a writer thread (see [`crate::engine`]) they are written with the next commit after that time, or by
    /// [`crate::Store::flush`].
    pub flush: Duration,
    /// The largest value, in bytes.
    pub max_value: usize,
    /// What the current values may take together, in bytes, by [`crate::Used`]; 0: anything.
    pub quota: u64,
    /// Of which resources values are kept packed in memory, and what they have in common; nothing: as they are. For those of which
    /// there are many, and of which each is read seldom.
    pub packs: fn(&str) -> Option<&'static Dictionary>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // An hour lets a client come back from most outages without listing everything again, ten minutes from
            // any restart; the bytes are what history may cost in memory, and about as much on disk. A store that
            // is written to so fast that ten minutes do not fit the larger figure keeps what fits.
            history: HistoryLimits {
                age: |_| Duration::from_secs(3600),
                bytes: 32 << 20,
                least: Duration::from_secs(600),
                most: 256 << 20,
            },
            relaxed: |_| false,
            flush: Duration::from_secs(60),
            // A request body may have 3 MiB, and patches make more of it; the server and its controllers add managed fields,
            // finalizers and the like.
            max_value: 5 * 1024 * 1024,
            quota: 0,
            packs: |_| None,
        }
    }
}
