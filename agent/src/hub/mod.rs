//! The hub half: our Cluster, our Lease, our status, our Works and what became of them. With the verbs that a registered
//! Karmada agent has: PUT for Cluster status and Lease; others only where they may fail without harm.

pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod credential;
mod half;
mod heard;
pub(crate) mod heartbeat;
pub(crate) mod join;
mod known;
mod listing;
mod measured;
pub(crate) mod origin;
pub(crate) mod outbox;
mod outlines;
mod presence;
mod pull;
pub(crate) mod register;
pub(crate) mod reporter;
pub(crate) mod rules;
mod samples;
mod searched;
pub(crate) mod services;
mod slices;
pub(crate) mod spending;
mod telling;
pub(crate) mod upstream;
pub(crate) mod watch;

use karmada_client::Resource;

pub(crate) use half::{HubHalf, Parts, Ways};

/// The Cluster kind.
pub(crate) fn clusters() -> Resource {
    Resource::new("cluster.karmada.io", "v1alpha1", "clusters", "Cluster", false)
}
