//! What stands in the place of the Lease where the hub runs the agent itself: no other process speaks for the cluster, so
//! nobody is to be told that this one is there. Whether the member is, its Cluster's condition Ready says.
//!
//! What is fenced is confirmed in the same way. On such a member nobody is left who would stop it while the hub is away or
//! cannot reach it, so the hub begins nothing fenced elsewhere before it can.

use std::{sync::Arc, time::Duration};

use karmada_member::{
    Fence,
    rights::{Claim, Rights, Standing, moment},
};

/// Speaks for a cluster in the hub's own process.
pub(crate) struct Presence {
    pub(crate) rights: Rights,
    pub(crate) fence: Arc<Fence>,
    /// How often what is fenced is confirmed.
    pub(crate) every: Duration,
}

impl Presence {
    /// Speaks for it for as long as there is a Cluster that is ours, and the member's Lease is not another's.
    pub(crate) async fn run(self) {
        let Self { rights, fence, every } = self;
        loop {
            rights.registered().await;
            rights.when(Standing::may_claim_hub).await;
            fence.renewed(moment(rights.env()), None);
            rights.hub_is(Claim::Held);
            tokio::select! {
                biased;
                () = rights.withdrawn() => {}
                () = rights.when(|standing| !standing.may_claim_hub()) => {}
                () = tokio::time::sleep(every.min(fence.shortest().map_or(every, |after| after / 3))) => {}
            }
        }
    }
}
