//! What stands in a CertificateSigningRequest: who asks, for what, and what has been decided about it.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::object;
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::{
    cri_attributes::ParsedCriAttribute, oid_registry, prelude::FromDer, prelude::X509CertificationRequest,
    public_key::PublicKey,
};

use crate::identity::UserInfo;

/// Where they are stored.
pub(crate) const STORAGE: &str = crate::storage::REQUESTS;
/// The signer of certificates by which clients show who they are.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

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

pub(super) struct HexOf<'a>(pub(super) &'a [u8]);

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

/// The usages of a request.
pub(crate) fn usages(spec: &Value) -> BTreeSet<&str> {
    spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a request is one for the signer of clients that has neither been denied nor answered.
pub(crate) fn is_open(request: &Value) -> bool {
    let certificate = request.pointer("/status/certificate").and_then(Value::as_str);
    request["spec"]["signerName"] == CLIENT_SIGNER
        && !has(request, "Denied")
        && !has(request, "Failed")
        && certificate.is_none_or(str::is_empty)
}

/// Whether a request has a condition.
pub(crate) fn has(request: &Value, sort: &str) -> bool {
    let conditions = request.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| condition["type"] == sort)
}

/// Adds a condition to a request.
pub(crate) fn add(request: &mut Value, sort: &str, reason: &str, message: &str, now: &str) {
    let condition = json!({"type": sort, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now});
    let status = object::ensure_map(request, "status");
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => conditions.push(condition),
        None => drop(status.insert("conditions".to_owned(), json!([condition]))),
    }
}
