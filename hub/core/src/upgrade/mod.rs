//! New versions of the agents: which cluster is offered one, when its agent takes it, and when it goes back to the old one.
//!
//! ```text
//!   ConfigMap agent-upgrade ─ request ─▶ what is wanted ─┬─ fleet ─▶ facts of clusters ─▶ rollout::step ─▶ State
//!                                                        │                                                   │
//!   Cluster, by its agent: version, Report ──────────────┘        Cluster, by the hub: Offer ◀───────────────┘
//!
//!   agent:   Offer, holds, windows, its owner's flag ─ agent ─▶ wait, begin, refuse, go back
//!   beside:  Trial: what was there before stays until the new one has proven itself ─ trial ─▶ committed, or returned
//!            Slots: the same for programs, of which one runs at a time ─ slots ─▶ which one is started
//! ```
//!
//! The rules:
//!
//! - The waves, their order and their gate are those of [`rollout`](crate::rollout). A request is a person's act: its order is made of
//!   its own time, and a version that has failed is tried again by another request alone.
//! - The owner of an agent is the limit: an agent that was not told to take new versions says nothing of them, and is passed over.
//! - An offer is one of a time ([`Offer::begun`]). An agent that has gone back from it does not take it again.
//! - A cluster that joins while waves are under way gets the version when it has reached all others. None gets an older version than
//!   it has unless the request says so: the hub offers it to none, and no agent takes it, as a hub that was restored from a backup
//!   knows no better than the backup.
//! - A version that is more than two minor versions away is not taken: what was kept by the old one may not be read by it.
//! - What somebody at the cluster does to the agent's Deployment goes before what the hub wants: a trial gives way, and is no failure.
//! - Those that may begin at the same moment spread their starts ([`Offer::turn`]).
//! - A hub that finds no request to go by takes its offers back when that has been so for minutes, and an agent that is offered nothing
//!   for a while keeps its turn and goes on fetching ([`withdrawal`]).
//! - An agent that is a program takes those from where its owner says, and by the digest that the request names. What is installed
//!   starts it, and is never written; who installs another version is given way.
//! - Whether a new version is well decides the member itself. The hub may be away, and is not asked.

pub mod agent;
pub mod fleet;
mod image;
mod program;
pub mod request;
pub mod slots;
pub mod table;
mod told;
pub mod trial;
mod version;
pub mod withdrawal;
pub mod words;

pub use self::{
    image::{image_is_from, image_prefix, repository},
    program::{Program, is_digest, prefix},
    told::{About, Mode, Offer, Report, Stands, Way},
    version::{Unreadable, Version, next_step, with_hub},
};
