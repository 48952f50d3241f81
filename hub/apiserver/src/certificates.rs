//! CertificateSigningRequests: who asked, who decides, who signs.
//!
//! ```text
//!   POST certificatesigningrequests ─► store ─► controller: policy ─► approved, signed and counted in one commit
//!                                        ▲                    └─► denied, with the reason
//!   somebody with the right to approve ──┘                    └─► left for somebody with the right to approve
//! ```
//!
//! - [`Requested`] is what stands in a PKCS#10 request.
//! - `policy` decides, as pure functions: which requests are approved without anybody's help, and what is signed at all.
//! - `controller` does what kube-controller-manager's `csrapproving`, `csrsigning` and `csrcleaner` do, for the signer
//!   [`CLIENT_SIGNER`] alone.
//! - `cluster_info` does what its `bootstrapsigner` and `tokencleaner` do.
//! - [`elsewhere`] is the decision for a hub on another API server, where somebody else signs.
//!
//! They work once there is a [`Certifier`] ([`ApiServer::certify_by`](crate::ApiServer::certify_by)).
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

mod cluster_info;
mod controller;
pub mod elsewhere;
mod policy;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use x509_parser::{
    cri_attributes::ParsedCriAttribute, oid_registry, prelude::FromDer, prelude::X509CertificationRequest,
    public_key::PublicKey,
};

pub(crate) use self::policy::generator_request;
use crate::{
    authn::{
        bootstrap::{self, BootstrapTokens},
        epochs,
    },
    identity::UserInfo,
    pki::Signer,
    registry::Registry,
    storage::ApiStore,
};
use karmada_meta::{names::is_cluster_name, object};
use karmada_store::Key;

/// Where they are stored.
pub(crate) const STORAGE: &str = "certificates.k8s.io/certificatesigningrequests";
/// The signer of certificates by which clients show who they are.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// On the Secret of a bootstrap token: the cluster that it is for.
pub const CLUSTER: &str = "hub.karmada.io/cluster";
/// On the Secret of a bootstrap token: how many keys it may still have certified.
pub const USES_LEFT: &str = "hub.karmada.io/uses-left";
/// On the Secret of a bootstrap token: a digest of the key that was certified last.
pub const USED_BY: &str = "hub.karmada.io/used-by";
/// On the Secret of a bootstrap token: when a key was last certified by it.
pub const USED_AT: &str = "hub.karmada.io/used-at";
/// What the group of a token begins with that says which cluster it is for.
pub const CLUSTER_GROUP: &str = "system:bootstrappers:hub:";

/// The group of the tokens that `karmadactl token create` makes if nobody says another one.
pub const ANY_CLUSTER_GROUP: &str = "system:bootstrappers:karmada:default-cluster-token";

/// The longest request that is taken, as it stands in `spec.request`. One of the longest key that is signed has 3 kB.
pub(crate) const LONGEST: usize = 64 * 1024;

/// What a request in PKCS#10 asks for.
#[derive(Clone, Debug)]
pub(crate) struct Requested {
    /// Common names, of which there should be one.
    pub(crate) common_names: Vec<String>,
    /// Organisations: groups.
    pub(crate) organisations: Vec<String>,
    /// Whether its subject has anything else.
    pub(crate) more: bool,
    /// Whether it asks for alternative names.
    pub(crate) names: bool,
    /// What is wrong with its key or the proof of it.
    pub(crate) key_error: Option<String>,
    /// The public key, as SubjectPublicKeyInfo.
    pub(crate) key: Vec<u8>,
}

impl Requested {
    /// Reads `spec.request`.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn read(request: &str) -> Result<Self, String> {
        if request.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
        }
        let pem = STANDARD.decode(request).map_err(|error| format!("it is not base64: {error}"))?;
        let der = CertificateSigningRequestDer::from_pem_slice(&pem)
            .map_err(|_| "it is no PEM of type CERTIFICATE REQUEST".to_owned())?;
        let request = match X509CertificationRequest::from_der(&der) {
            Ok(([], request)) => request,
            Ok(_) => return Err("something stands behind it".to_owned()),
            Err(error) => return Err(format!("it cannot be read: {error}")),
        };
        let info = &request.certification_request_info;
        let (mut common_names, mut organisations, mut more) = (Vec::new(), Vec::new(), false);
        for attribute in info.subject.iter_attributes() {
            let list = if *attribute.attr_type() == oid_registry::OID_X509_COMMON_NAME {
                &mut common_names
            } else if *attribute.attr_type() == oid_registry::OID_X509_ORGANIZATION_NAME {
                &mut organisations
            } else {
                more = true;
                continue;
            };
            list.push(attribute.as_str().map_err(|error| format!("its subject: {error}"))?.to_owned());
        }
        // Wherever it asks for them: another signer may read more than the first list of extensions, and what cannot be read.
        let names = info.iter_attributes().any(|attribute| match attribute.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(asked) => {
                asked.extensions.iter().any(|all| all.oid == oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME)
            }
            _ => attribute.oid == oid_registry::OID_PKCS9_EXTENSION_REQUEST,
        });
        let key_error = match unfit(&info.subject_pki.parsed()) {
            None if request.verify_signature().is_err() => {
                Some("it is not signed by the key that it asks for".to_owned())
            }
            other => other,
        };
        let key = info.subject_pki.raw.to_vec();
        Ok(Self { common_names, organisations, more, names, key_error, key })
    }

    /// A digest of its key.
    pub(crate) fn digest(&self) -> String {
        format!("sha256:{:x}", HexOf(&Sha256::digest(&self.key)))
    }
}

/// Panics if what is read of a request says what does not go together.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_request(der: &[u8]) {
    let pem = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        STANDARD.encode(der)
    );
    match Requested::read(&STANDARD.encode(pem)) {
        Ok(requested) => {
            assert!(!requested.key.is_empty());
            // It names the key alone: a request that names more has the same one.
            assert_eq!(requested.digest().len(), "sha256:".len() + 64);
            let texts = requested.common_names.iter().chain(&requested.organisations);
            assert!(texts.map(String::len).sum::<usize>() <= 2 * der.len());
        }
        Err(why) => assert!(!why.is_empty()),
    }
}

struct HexOf<'a>(&'a [u8]);

impl std::fmt::LowerHex for HexOf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a key is none that is signed.
fn unfit(key: &Result<PublicKey<'_>, x509_parser::error::X509Error>) -> Option<String> {
    let bits = match key {
        Ok(PublicKey::EC(point)) if matches!(point.key_size(), 256 | 384) => return None,
        Ok(PublicKey::RSA(key)) => key.key_size(),
        // Ed25519 has no name of its own there; what it is else does not verify.
        Ok(PublicKey::Unknown(bytes)) if bytes.len() == 32 => return None,
        _ => return Some("its key is none of ECDSA P-256 and P-384, Ed25519 and RSA".to_owned()),
    };
    (!(2048..=4096).contains(&bits))
        .then(|| format!("its RSA key has {bits} bits, which must be 2048 to 4096"))
}

/// Writes into the Secret of a bootstrap token that is being made which credentials of its cluster count now. What it says
/// itself holds if that is less: it may have been made elsewhere, and earlier.
pub(crate) fn date_token(secret: &mut Value, store: &ApiStore) {
    let Some(cluster) = bootstrap::cluster(secret).filter(|cluster| is_cluster_name(cluster)) else { return };
    let key = Key::new(controller::SECRETS, epochs::NAMESPACE, epochs::Record::name(&cluster));
    let record = store.get(&key).and_then(|record| serde_json::from_slice(&record.value.get()).ok());
    let now =
        record.map_or(0, |record: Value| epochs::Record::read(&record).map_or(0, |record| record.epoch));
    let said = object::annotation(secret, epochs::EPOCH).and_then(|epoch| epoch.parse().ok());
    if now > 0 || said.is_some() {
        object::set_annotation(secret, epochs::EPOCH, said.unwrap_or(now).min(now).to_string());
    }
}

/// Writes into a request who made it, which nobody can say but the server.
pub(crate) fn requested_by(request: &mut Value, user: &UserInfo) {
    let spec = object::ensure_map(request, "spec");
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), user.name.as_str().into());
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.as_str().into());
    }
    spec.insert("groups".to_owned(), json!(user.groups));
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
}

/// Dates the conditions of a changed request that say no time. A certificate is not an approver's to give or take.
pub(crate) fn date(new: &mut Value, old: &Value, subresource: &str, now: &str) {
    if subresource == "approval" {
        let status = object::ensure_map(new, "status");
        match old.pointer("/status/certificate") {
            Some(certificate) => status.insert("certificate".to_owned(), certificate.clone()),
            None => status.remove("certificate"),
        };
    }
    let before = old.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let conditions = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        let is_unset = |condition: &Map<String, Value>, field: &str| {
            condition.get(field).and_then(Value::as_str).is_none_or(str::is_empty)
        };
        if is_unset(condition, "lastUpdateTime") {
            condition.insert("lastUpdateTime".to_owned(), now.into());
        }
        if is_unset(condition, "lastTransitionTime") {
            let same = |other: &&Value| {
                ["type", "status"].iter().all(|field| other.get(*field) == condition.get(*field))
            };
            let since = before.iter().find(same).and_then(|other| other.get("lastTransitionTime")).cloned();
            condition.insert("lastTransitionTime".to_owned(), since.unwrap_or_else(|| now.into()));
        }
    }
}

/// What signs, and where whoever joins finds this server.
#[derive(Debug)]
pub struct Certifier {
    signer: Signer,
    server: String,
    /// How long a certificate lasts for which nobody has said.
    usual: Duration,
    /// Whether it decides what is signed, too.
    approves: bool,
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
    current: ArcSwapOption<Certifier>,
    changed: Notify,
}

impl CurrentCertifier {
    /// It is this one from now on.
    pub(crate) fn set(&self, certifier: Certifier) {
        self.current.store(Some(Arc::new(certifier)));
        self.changed.notify_waiters();
    }
}

/// Starts the controllers. They do nothing until there is a certifier.
pub(crate) fn start(
    registry: &Arc<Registry>,
    current: &Arc<CurrentCertifier>,
    bootstrap: &Arc<BootstrapTokens>,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let tokens_known = bootstrap.clone();
    let (registry, current, shutdown) = (registry.clone(), current.clone(), shutdown.clone());
    tasks.spawn(async move {
        let working = async {
            loop {
                let mut changed = std::pin::pin!(current.changed.notified());
                // In line before the look, so that no change falls between.
                changed.as_mut().enable();
                let Some(certifier) = current.current.load_full() else {
                    changed.await;
                    continue;
                };
                let requests =
                    controller::Controller::new(registry.clone(), tokens_known.clone(), certifier.clone());
                let tokens = cluster_info::Publisher::new(registry.clone(), certifier);
                tokio::select! {
                    biased;
                    // What they have begun is whole or did not happen, and the next ones look at everything.
                    () = changed => {}
                    _ = async { tokio::join!(requests.run(), requests.clean(), tokens.run()) } => return,
                }
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = working => {}
        }
    });
}

/// The usages of a request.
fn usages(spec: &Value) -> BTreeSet<&str> {
    spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
