//! Staged rollouts: a change reaches the clusters in waves, each of which waits until the one before is well.
//!
//! ```text
//!   annotations ─ asked ─▶ waves, gate
//!                            │
//!   what is new: a revision ─┴─▶ begin ─▶ State ─┬─ step(members, now) ─▶ State, what to tell, when to look again
//!   commands of people ─────────── command ──────┘                          │
//!                                                                            ▼
//!                                              gets(cluster) ─▶ the new revision, or what it has, or the last whole one
//! ```
//!
//! What is rolled out is only a name here, a [`State::revision`]: for a template and its overrides the [`revision`] module
//! makes one. The rules:
//!
//! - Which clusters are in which wave is decided once: by labels, or by a hash of the cluster's name and the policy's id, up to a
//!   number that is kept for each wave. So the state is small however many clusters there are, a cluster that joins or leaves
//!   moves no other, and every rollout of a policy meets the same clusters first. The last point is what keeps the number of
//!   revisions that clusters may have at once to one more than there are waves, however fast changes follow each other.
//! - A gate asks those clusters only that were heard since they were given the change. One that is silent, or holds changes back,
//!   is neither well nor failed; a wave of which too few were heard waits, and says so.
//! - A cluster whose workload is scaled after it was well with the change is well for as long as a cluster may take to become so, if no
//!   fewer copies are there than then, and all are of the change: those that are being made say nothing about it. Any other illness
//!   is one.
//! - Where only so many of a wave may be changing at once, it comes to its clusters in the order of their hashes. Those that are well,
//!   have failed or cannot say make room for others; one that falls silent after it does so when its time is over. Those that hold
//!   the change back begin together when a window opens that they share: there are no more of them at a time either.
//! - Changed clusters that soon fall silent in larger numbers than unchanged ones may have lost their link by the change: a
//!   breach, if there are enough unchanged ones to tell. Those that wait for their turn are unchanged.
//! - Times are the hub's. Which clusters have not become well yet, and since when, is not kept over a restart: they are given
//!   their time anew. Nor is when each was given the change: then the time of its wave counts. Everything else is.
//! - A cluster never gets a revision that another one has replaced. Until its wave comes it keeps what it has; a new one gets
//!   the last revision that went everywhere.
//! - Nothing but a person begins a revision again that was stopped.
//! - What is not through stays in its waves where the policy asks for none any more, or another policy that does not takes over.

pub mod asked;
mod clocks;
mod evicted;
mod facts;
mod mark;
pub mod revision;
mod seen;
mod state;
mod step;
mod sums;
pub mod words;

use karmada_api::consts::extension;
use karmada_meta::object;
use serde_json::Value;

pub use self::{
    asked::{Asked, Gate},
    clocks::Clocks,
    facts::{Copies, Fact, Member, Seen, Who},
    mark::{mark, marked},
    revision::Revision,
    seen::{copies, is_named, seen},
    state::{Command, Gets, Order, Phase, Place, State, Sure, Wave, What, begin},
    step::{command, step},
    sums::{Stage, Step, Sums, Told},
};

/// On a binding, by the hub: the [`State`].
pub const STATE: &str = "hub.karmada.io/rollout";
/// On a binding, by the hub: its policy asks for no waves any more, and those of the rollout that was not through stay in force.
pub const OUTLIVES: &str = "hub.karmada.io/rollout-outlives-policy";
/// On a Work, by the hub: the revision that it carries, and a digest of the content that is meant.
pub const REVISION: &str = "hub.karmada.io/revision";

/// What stands there instead when a rollout has ended, until what was kept of it is gone.
pub const ENDED: &str = "";

impl State {
    /// What a binding has of it; nothing where none was kept, or it has ended.
    ///
    /// # Errors
    /// Why what is there cannot be read.
    pub fn read(binding: &Value) -> Result<Option<Self>, String> {
        let Some(text) = object::annotation(binding, STATE).filter(|text| *text != ENDED) else {
            return Ok(None);
        };
        let state: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if state.revision.is_empty() || state.open > state.waves.len() {
            return Err("it names no revision, or more waves than there are".to_owned());
        }
        Ok(Some(state))
    }

    /// The revision that a cluster has whose Work says so: what the hub cannot make any more counts as what went everywhere.
    pub fn carried<'a>(&'a self, says: Option<&'a str>) -> &'a str {
        says.filter(|says| self.kept.iter().any(|kept| kept == says)).unwrap_or(&self.base)
    }
}

/// Whether a rollout has ended, and what was kept of it may still be there.
pub fn has_ended(binding: &Value) -> bool {
    object::annotation(binding, STATE) == Some(ENDED)
}

/// Ends the rollout of a binding if nobody asks for waves, or only for those of the rollout until it is through. Whether it did.
pub fn end(binding: &mut Value) -> bool {
    let outlived = object::annotation(binding, OUTLIVES).is_some();
    let asked = object::annotation(binding, extension::ROLLOUT).is_some();
    let left = object::annotation(binding, STATE).is_some_and(|text| text != ENDED);
    if if outlived { outlives(binding) } else { asked || !left } {
        return false;
    }
    if outlived {
        for key in [extension::ROLLOUT, extension::ROLLOUT_GATE, OUTLIVES] {
            object::remove_annotation(binding, key);
        }
    }
    object::set_annotation(binding, STATE, ENDED);
    true
}

/// Whether the waves of a binding stay in force where its policy asks for none: as long as what goes out in them is not through.
/// Otherwise another policy, or one that is edited, would give every cluster what people or the gate have stopped. What cannot be
/// read may have been stopped.
pub fn outlives(binding: &Value) -> bool {
    object::annotation(binding, extension::ROLLOUT).is_some()
        && match State::read(binding) {
            Ok(state) => state.is_some_and(|state| state.phase != Phase::Complete),
            Err(_) => true,
        }
}

#[cfg(test)]
mod tests;
