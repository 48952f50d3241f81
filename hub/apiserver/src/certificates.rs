//! CertificateSigningRequests: who asked, who decides, who signs.
//!
//! ```text
//!   POST certificatesigningrequests ─► store ─► controller: policy ─► approved, signed and counted in one commit
//!                                        ▲                    └─► denied, with the reason
//!   somebody with the right to approve ──┘                    └─► left for somebody with the right to approve
//! ```
//!
//! - `requested` is what stands in a request.
//! - `policy` decides, as pure functions: which requests are approved without anybody's help, and what is signed at all.
//! - [`elsewhere`] is the decision for a hub on another API server, where somebody else signs.
//! - The controller `certificates` does what kube-controller-manager's `csrapproving`, `csrsigning` and `csrcleaner` do, for
//!   the signer [`CLIENT_SIGNER`] alone; `cluster_info` does what its `bootstrapsigner` and `tokencleaner` do.
//!
//! The controllers work once there is a [`Certifier`] ([`ApiServer::certify_by`](crate::ApiServer::certify_by)).
//!
//! # A bootstrap token for one cluster
//!
//! | on the token's Secret | |
//! |---|---|
//! | annotation [`CLUSTER`], or without it a group `system:bootstrappers:hub:NAME` (`karmadactl token create --groups`) | the cluster whose agent may join by it |
//! | annotation [`USES_LEFT`] | how many keys it may still have certified; without it any number until it ends |
//! | annotation [`USED_BY`] | the key that was certified last: it may ask again, if an answer was lost |
//! | annotation [`USED_AT`] | when that was; ten minutes after its last use nobody gets in by the token |
//! | annotation [`EPOCH`](crate::authn::epochs::EPOCH), which the server writes | which credentials of the cluster counted when the token was made: it ends with them |
//!
//! A token that is older than the registration of the cluster's agent lets that agent's key in and no other, unless it says
//! itself that it may be used once more.
//!
//! A token of Karmada's group ([`ANY_CLUSTER_GROUP`], what `karmadactl token create` makes) that is for no cluster is for the
//! first one that is asked for by it, if nobody else can mean that name: there is no Cluster so called, no other token is for
//! it, and the token is newer than the end of the credentials of any before. From then on it is as one that was made for it.
//! While a Cluster is being deleted no token lets anybody in by its name. Any other token that is for no cluster lets nobody in by itself: what is asked by it waits for somebody who approves it.
//!
//! # What `karmadactl register` asks for
//!
//! Two certificates: one of the user [`RBAC_GENERATOR`](crate::identity::RBAC_GENERATOR), to make the agent's roles with, and
//! the agent's. The first is for the cluster that the name of its request says (`agent-rbac-generator-NAME` and five
//! characters), which the server writes into the certificate; it lasts for ten minutes, and what it is good for says
//! [`crate::authz::generator`]. A token's uses are counted by the second.

pub mod elsewhere;
pub(crate) mod policy;
pub(crate) mod requested;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use karmada_meta::{names::is_cluster_name, object};
use karmada_store::Key;
use serde_json::Value;
use tokio::sync::Notify;

pub use self::requested::CLIENT_SIGNER;
pub(crate) use self::requested::{STORAGE, date, requested_by};
pub use crate::authn::bootstrap::{ANY_CLUSTER_GROUP, CLUSTER, CLUSTER_GROUP, USED_AT, USED_BY, USES_LEFT};
use crate::{
    authn::{
        bootstrap::{self, SECRETS},
        epochs,
    },
    pki::Signer,
    storage::ApiStore,
};

/// Writes into the Secret of a bootstrap token that is being made which credentials of its cluster count now. What it says
/// itself holds if that is less: it may have been made elsewhere, and earlier.
pub(crate) fn date_token(secret: &mut Value, store: &ApiStore) {
    let Some(cluster) = bootstrap::cluster(secret).filter(|cluster| is_cluster_name(cluster)) else { return };
    let key = Key::new(SECRETS, epochs::NAMESPACE, epochs::Record::name(&cluster));
    let record = store.get(&key).and_then(|record| serde_json::from_slice(&record.value.get()).ok());
    let now =
        record.map_or(0, |record: Value| epochs::Record::read(&record).map_or(0, |record| record.epoch));
    let said = object::annotation(secret, epochs::EPOCH).and_then(|epoch| epoch.parse().ok());
    if now > 0 || said.is_some() {
        object::set_annotation(secret, epochs::EPOCH, said.unwrap_or(now).min(now).to_string());
    }
}

/// What signs, and where whoever joins finds this server.
#[derive(Debug)]
pub struct Certifier {
    pub(crate) signer: Signer,
    pub(crate) server: String,
    /// How long a certificate lasts for which nobody has said.
    pub(crate) usual: Duration,
    /// Whether it decides what is signed, too.
    pub(crate) approves: bool,
}

impl Certifier {
    /// Signs by `signer`; others reach the server at the URL `server`.
    pub fn new(signer: Signer, server: impl Into<String>) -> Self {
        Self { signer, server: server.into(), usual: policy::USUAL, approves: true }
    }

    /// The same, which signs what others have approved, as kube-controller-manager does.
    #[must_use]
    pub fn approving_nothing(self) -> Self {
        Self { approves: false, ..self }
    }

    /// The same, whose certificates last so long if nobody asks for another life.
    #[must_use]
    pub fn lasting(self, usual: Duration) -> Self {
        Self { usual, ..self }
    }
}

/// The certifier of now, if there is one.
#[derive(Debug, Default)]
pub(crate) struct CurrentCertifier {
    pub(crate) current: ArcSwapOption<Certifier>,
    pub(crate) changed: Notify,
}

impl CurrentCertifier {
    /// It is this one from now on.
    pub(crate) fn set(&self, certifier: Certifier) {
        self.current.store(Some(Arc::new(certifier)));
        self.changed.notify_waiters();
    }
}
