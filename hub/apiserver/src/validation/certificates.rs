//! Requests for certificates.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::{
    names,
    path::{FieldError, Path},
};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, pem::PemObject};
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate, X509CertificationRequest};

use super::parts::{list, number, text};
use crate::certificates::requested::LONGEST;

/// What a certificate may be asked to be for.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// What stays once it has been said.
const DECISIONS: [&str; 3] = ["Approved", "Denied", "Failed"];
/// The shortest life that may be asked for, in seconds.
const SHORTEST: i64 = 600;
/// A DNS subdomain, a slash and the longest name behind it.
const LONGEST_SIGNER: usize = 571;

pub(super) fn create(object: &Value) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let mut errors = Vec::new();
    let request = text(object, "/spec/request");
    if request.len() > LONGEST {
        errors.push(FieldError::too_long(&spec.child("request"), LONGEST));
    } else if let Err(why) = parses(request) {
        errors.push(FieldError::invalid(&spec.child("request"), request, why));
    }
    let usages = list(object, "/spec/usages");
    let at = spec.child("usages");
    if usages.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().enumerate() {
        let usage = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&usage) {
            errors.push(FieldError::not_supported(&at.index(index), usage, USAGES));
        }
        if !seen.insert(usage) {
            errors.push(FieldError::duplicate(&at.index(index), usage));
        }
    }
    let at = spec.child("signerName");
    match text(object, "/spec/signerName") {
        name @ "kubernetes.io/legacy-unknown" => {
            let detail = "the legacy signerName is not allowed via this API version";
            errors.push(FieldError::invalid(&at, name, detail));
        }
        name => errors.extend(signer_name(name, &at)),
    }
    if let Some(seconds) = number(object, "/spec/expirationSeconds").filter(|seconds| *seconds < SHORTEST) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(&spec.child("expirationSeconds"), seconds, detail));
    }
    errors.extend(status(object));
    errors
}

/// Whether it is a request for a certificate. Go's words where Kubernetes has them from there are not repeated.
fn parses(request: &str) -> Result<(), String> {
    let pem = STANDARD.decode(request).map_err(|error| error.to_string())?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem)
        .map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())?;
    match X509CertificationRequest::from_der(&der) {
        Ok(([], _)) => Ok(()),
        Ok(_) => Err("asn1: syntax error: trailing data".to_owned()),
        Err(error) => Err(format!("asn1: {error}")),
    }
}

fn signer_name(name: &str, at: &Path) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(at, "")];
    }
    if name.len() > LONGEST_SIGNER {
        return vec![FieldError::too_long(at, LONGEST_SIGNER)];
    }
    let mut parts = name.split('/');
    let (Some(domain), Some(path), None) = (parts.next(), parts.next(), parts.next()) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return vec![FieldError::invalid(at, name, detail)];
    };
    let mut errors = Vec::new();
    let wrong = names::dns1123_subdomain_errors(domain);
    errors.extend(
        wrong.into_iter().map(|why| FieldError::invalid(at, domain, format!("validating domain: {why}"))),
    );
    if errors.is_empty() && !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(at, domain, detail));
    }
    let wrong = names::dns1123_subdomain_errors(path);
    errors.extend(
        wrong.into_iter().map(|why| FieldError::invalid(at, path, format!("validating label: {why}"))),
    );
    errors
}

/// What is wrong with conditions and certificate.
fn status(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status").child("conditions");
    let (mut errors, mut seen) = (Vec::new(), BTreeSet::new());
    for (index, condition) in list(object, "/status/conditions").iter().enumerate() {
        let at = path.index(index);
        let (sort, status) = (text(condition, "/type"), text(condition, "/status"));
        if sort.is_empty() {
            errors.push(FieldError::required(&at.child("type"), ""));
        }
        let allowed: &[&str] =
            if DECISIONS.contains(&sort) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.push(FieldError::required(&at.child("status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::not_supported(&at.child("status"), status, allowed));
        }
        let other = match sort {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if seen.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&at.child("type"), sort, detail));
        }
        if !seen.insert(sort) {
            errors.push(FieldError::duplicate(&at.child("type"), sort));
        }
    }
    let certificate = text(object, "/status/certificate");
    if let Err(why) = certificates(certificate) {
        errors.push(FieldError::invalid(
            &Path::new("status").child("certificate"),
            "<certificate data>",
            why,
        ));
    }
    errors
}

fn certificates(encoded: &str) -> Result<(), String> {
    if encoded.is_empty() {
        return Ok(());
    }
    let pem = STANDARD.decode(encoded).map_err(|error| error.to_string())?;
    let mut count = 0;
    for der in CertificateDer::pem_slice_iter(&pem) {
        let der = der.map_err(|error| format!("it is no PEM: {error}"))?;
        X509Certificate::from_der(&der).map_err(|error| format!("block {count}: {error}"))?;
        count += 1;
    }
    if count == 0 {
        Err("must contain one or more PEM blocks of type CERTIFICATE".to_owned())
    } else {
        Ok(())
    }
}

/// What is wrong with a change. What has been decided and signed stays, and each endpoint has its own part to say.
pub(super) fn update(object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
    let mut errors = create(object);
    let status = Path::new("status");
    for sort in DECISIONS {
        let count = |object: &Value| {
            list(object, "/status/conditions").iter().filter(|one| text(one, "/type") == sort).count()
        };
        let (before, after) = (count(old), count(object));
        let may_add = match sort {
            "Failed" => subresource == "status",
            _ => subresource == "approval",
        };
        let act = match after.cmp(&before) {
            std::cmp::Ordering::Less => "remove",
            std::cmp::Ordering::Greater if !may_add => "add",
            _ => continue,
        };
        let detail = format!("updates may not {act} a condition of type {sort:?}");
        errors.push(FieldError::forbidden(&status.child("conditions"), detail));
    }
    let (before, after) = (text(old, "/status/certificate"), text(object, "/status/certificate"));
    if before != after && (subresource != "status" || !before.is_empty()) {
        let detail = if before.is_empty() {
            "updates may not set certificate content"
        } else {
            "updates may not modify existing certificate content"
        };
        errors.push(FieldError::forbidden(&status.child("certificate"), detail));
    }
    errors
}
