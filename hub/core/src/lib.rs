//! Every decision as a pure function: no I/O, no clock, no randomness of its own. Times, ids and what was read
//! are plain arguments, so that each decision can be tested as a table and shown to whoever asks why.
//!
//! ```text
//!   template ─ select ─▶ policy ─ place ─▶ clusters ─ divide ─▶ replicas
//!                   nodes, fleet, estimate ┘                    rebalance: all of it anew
//!                                                        │
//!   member ◀─ delete, members ◀─ Work ◀─ work ◀─ overrides
//!      │
//!      ├─ status ──▶ Cluster.status          health, judge ─▶ Ready=Unknown, taints, brakes
//!      └─ Work.status ─ gather, aggregate ─▶ binding.status
//!
//!   attach: what objects refer to goes along
//!   quota: what a namespace may use on all clusters together
//!   leave: how a cluster goes
//!   impersonate: in whose names the hub may act on members
//!   admit: what a user may write, and what stands in it afterwards      skip: what is never propagated
//!   rollout: in which waves a change reaches the clusters, and when the next one begins
//!   upgrade: the same for versions of the agents, and when an agent takes one or goes back
//!   hold, windows: when changes wait on a member        links: what kind of link a cluster has, and what follows
//!   ways: how the hub reaches a member
//!   shares: who may have how much of what crosses tunnels there        spent: what is kept of who had too much
//!   services: Services of one cluster in others             autoscale: what is scaled, when
//!   figures: what objects say in numbers                      install_order: which manifest of a Work comes first
//!   doctor: what is wrong with a machine or a way to a server, and what to do
//! ```
//!
//! Objects of users stay JSON values; Karmada's own are typed where a decision reads them, and stay JSON where
//! they are changed, so that a field newer than these types survives.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        clippy::type_complexity,
        reason = "tables of json! literals read better so"
    )
)]

pub mod admit;
pub mod affinity;
pub mod aggregate;
pub mod allowance;
pub mod attach;
pub mod autoscale;
pub mod copies;
pub mod delete;
pub mod divide;
pub mod doctor;
pub mod estimate;
pub mod evict;
pub mod figures;
pub mod fleet;
pub mod gather;
pub mod health;
pub mod hold;
pub mod impersonate;
pub mod install_order;
pub mod judge;
pub mod leave;
pub mod links;
pub mod members;
pub mod names;
pub mod nodes;
pub mod overrides;
pub mod place;
pub mod quota;
pub mod rebalance;
pub mod remedy;
pub mod rollout;
pub mod scaling;
pub mod search;
pub mod select;
pub mod services;
pub mod shares;
pub mod skip;
pub mod spent;
pub mod stage;
pub mod status;
pub mod suppose;
pub mod taint_edits;
pub mod taint_policy;
pub mod taints;
pub mod upgrade;
pub mod vacancy;
pub mod ways;
pub mod windows;
pub mod work;
