//! A request for a certificate, and what the hub makes of it. Pure, but for the key.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Where requests are made.
pub(crate) const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const GROUP: &str = "system:karmada:agents";

/// A key that never leaves this place.
pub(crate) struct Key(KeyPair);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A new one, by the crypto provider.
    pub(crate) fn new() -> Result<Self, String> {
        KeyPair::generate().map(Self).map_err(|error| format!("a key cannot be made: {error}"))
    }

    /// One that was kept.
    pub(crate) fn read(pem: &str) -> Result<Self, String> {
        KeyPair::from_pem(pem)
            .map(Self)
            .map_err(|error| format!("the key that was kept cannot be read: {error}"))
    }

    /// To be kept.
    pub(crate) fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A name that follows from it, of 12 characters.
    pub(crate) fn short(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.0.subject_public_key_info());
        digest.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a certificate, as PEM, is over this key.
    fn is_of(&self, pem: &str) -> bool {
        let Ok(der) = CertificateDer::from_pem_slice(pem.as_bytes()) else { return false };
        let Ok((_, certificate)) = X509Certificate::from_der(&der) else { return false };
        certificate.public_key().raw == self.0.subject_public_key_info()
    }
}

/// The request by which the agent of a cluster asks for its certificate.
pub(crate) fn body(name: &str, cluster: &str, key: &Key) -> Result<Value, String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, GROUP);
    params.distinguished_name.push(DnType::CommonName, karmada_core::names::agent_user(cluster));
    let made = params.serialize_request(&key.0).and_then(|request| request.pem());
    let pem = made.map_err(|error| format!("a request cannot be made: {error}"))?;
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(pem), "signerName": SIGNER, "usages": ["digital signature", "client auth"],
        },
    }))
}

/// What has become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The certificate, as PEM.
    Issued(String),
    /// It is refused; why.
    Refused(String),
    /// Nothing yet; whether somebody has approved it.
    Pending { approved: bool },
}

/// Reads what has become of a request.
pub(crate) fn outcome(request: &Value, key: &Key) -> Outcome {
    let conditions = request.pointer("/status/conditions").and_then(Value::as_array);
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
    for condition in conditions {
        if matches!(condition["type"].as_str(), Some("Denied" | "Failed")) {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            let (reason, message) = (text("reason"), text("message"));
            return Outcome::Refused(if message.is_empty() { reason.to_owned() } else { message.to_owned() });
        }
    }
    let encoded = request.pointer("/status/certificate").and_then(Value::as_str).unwrap_or_default();
    if encoded.is_empty() {
        return Outcome::Pending {
            approved: conditions.iter().any(|condition| condition["type"] == "Approved"),
        };
    }
    let pem = STANDARD.decode(encoded).ok().and_then(|pem| String::from_utf8(pem).ok());
    match pem.filter(|pem| key.is_of(pem)) {
        Some(pem) => Outcome::Issued(pem),
        None => Outcome::Refused(
            "what it has signed is no certificate over the key that was asked for".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_who_we_are_and_what_comes_of_it_is_read() {
        let key = Key::new().unwrap();
        let asked = body("m1-abcde", "m1", &key).unwrap();
        let pem = STANDARD.decode(asked["spec"]["request"].as_str().unwrap()).unwrap();
        let der = rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(&pem).unwrap();
        let (_, read) = x509_parser::certification_request::X509CertificationRequest::from_der(&der).unwrap();
        let subject = read.certification_request_info.subject.to_string();
        assert_eq!(subject, "O=system:karmada:agents, CN=system:karmada:agent:m1");
        assert!(Key::read(&key.pem()).unwrap().pem() == key.pem());

        let certificate = |key: &Key| {
            let made = CertificateParams::new(vec![]).unwrap().self_signed(&key.0).unwrap();
            STANDARD.encode(made.pem())
        };
        let status = |status: Value| json!({"status": status});
        let condition = |sort: &str| json!({"conditions": [{"type": sort, "reason": "R", "message": "why"}]});
        let other = Key::new().unwrap();
        assert_eq!(outcome(&json!({}), &key), Outcome::Pending { approved: false });
        assert_eq!(outcome(&status(condition("Approved")), &key), Outcome::Pending { approved: true });
        for sort in ["Denied", "Failed"] {
            assert_eq!(outcome(&status(condition(sort)), &key), Outcome::Refused("why".to_owned()));
        }
        assert!(matches!(
            outcome(&status(json!({"certificate": certificate(&key)})), &key),
            Outcome::Issued(_)
        ));
        for wrong in [certificate(&other), "%".to_owned(), STANDARD.encode("x")] {
            assert!(
                matches!(outcome(&status(json!({"certificate": wrong})), &key), Outcome::Refused(_)),
                "{wrong}"
            );
        }
    }
}
