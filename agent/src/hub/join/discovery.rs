//! What a hub publishes about itself, and whether it is to be believed. Pure.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::hmac;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Invitation, JoinError, KeyDigest};

/// Where it stands, for anyone to read.
pub(crate) const PATH: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// What is known of a hub once its token's signature and its authority's digest fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discovered {
    /// PEM of the authorities whose keys have the digests that we were given: whom the peer must be certified by.
    pub(crate) pinned: String,
    /// PEM of all that the hub names, to be believed when the peer is.
    pub(crate) authorities: String,
    /// The host that it says it has.
    pub(crate) host: Option<String>,
}

/// Judges the ConfigMap.
pub(crate) fn judge(answer: &[u8], invitation: &Invitation) -> Result<Discovered, JoinError> {
    let Invitation { hub, token, cluster, .. } = invitation;
    let garbled = |why: String| JoinError::Garbled { hub: hub.clone(), why };
    let map: Value =
        serde_json::from_slice(answer).map_err(|error| garbled(format!("it is no JSON: {error}")))?;
    let field = |name: &str| map["data"][name].as_str();
    let text = field("kubeconfig").ok_or_else(|| garbled("it has no data.kubeconfig".to_owned()))?;
    let id = token.id.clone();
    match field(&format!("jws-kubeconfig-{id}")) {
        None => return Err(JoinError::NotSigned { hub: hub.clone(), id, cluster: cluster.clone() }),
        Some(jws) if !is_signed(jws, text, &id, &token.secret) => {
            return Err(JoinError::Forged { hub: hub.clone(), id });
        }
        Some(_) => {}
    }
    let config: Value =
        serde_saphyr::from_str(text).map_err(|_| garbled("data.kubeconfig is no YAML".to_owned()))?;
    let named = &config["clusters"][0]["cluster"];
    let data = named["certificate-authority-data"].as_str().unwrap_or_default();
    let pem = STANDARD.decode(data).map_err(|error| garbled(format!("its authority: {error}")))?;
    let authorities = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| garbled(format!("its authority: {error}")))?;
    let (mut pinned, mut found) = (String::new(), Vec::new());
    for authority in &authorities {
        let (_, certificate) = X509Certificate::from_der(authority)
            .map_err(|error| garbled(format!("its authority: {error}")))?;
        let digest = KeyDigest::of(certificate.public_key().raw);
        if invitation.authorities.contains(&digest) {
            pinned.push_str(&armoured(authority));
        }
        found.push(digest);
    }
    if pinned.is_empty() {
        let wanted: Vec<_> = invitation.authorities.iter().map(KeyDigest::to_string).collect();
        return Err(JoinError::OtherAuthority { hub: hub.clone(), found, wanted: wanted.join(" or ") });
    }
    let host = named["server"].as_str().and_then(|server| server.parse::<http::Uri>().ok());
    let host =
        host.and_then(|uri| Some(uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned()));
    let authorities = authorities.iter().map(armoured).collect();
    Ok(Discovered { pinned, authorities, host })
}

/// The authorities that a hub publishes, as PEM, for whoever trusts it already: without token and digest. Nothing if there
/// is none that can be read.
pub(crate) fn authorities(answer: &[u8]) -> Option<String> {
    let map: Value = serde_json::from_slice(answer).ok()?;
    let config: Value = serde_saphyr::from_str(map["data"]["kubeconfig"].as_str()?).ok()?;
    let data = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str()?;
    let pem = STANDARD.decode(data).ok()?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.ok().filter(|all| !all.is_empty() && all.len() == digests(&pem).len())?;
    Some(all.iter().map(armoured).collect())
}

/// The digests of the keys of authorities, as PEM; of those that can be read.
pub(crate) fn digests(pem: &[u8]) -> Vec<KeyDigest> {
    let all = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    all.filter_map(|der| Some(KeyDigest::of(X509Certificate::from_der(&der).ok()?.1.public_key().raw)))
        .collect()
}

/// Whether a detached JWS is a token's over a text. Its header may say nothing but what such a one says: neither another
/// algorithm nor another key.
fn is_signed(jws: &str, text: &str, id: &str, secret: &str) -> bool {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let Some(signature) = jws.strip_prefix(&header).and_then(|rest| rest.strip_prefix("..")) else {
        return false;
    };
    let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, format!("{header}.{}", URL_SAFE_NO_PAD.encode(text)).as_bytes(), &signature).is_ok()
}

/// A certificate as PEM.
fn armoured(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in encoded.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Token, *};

    fn authority() -> (String, KeyDigest) {
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
        let digest = KeyDigest::of(X509Certificate::from_der(made.der()).unwrap().1.public_key().raw);
        (made.pem(), digest)
    }

    fn kubeconfig(pem: &str) -> String {
        format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: \"https://hub.example.com:6443\"\n  name: \"\"\n",
            STANDARD.encode(pem)
        )
    }

    fn jws(header: &str, text: &str, secret: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(header);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signed = hmac::sign(&key, format!("{header}.{}", URL_SAFE_NO_PAD.encode(text)).as_bytes());
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(signed))
    }

    const HEADER: &str = r#"{"alg":"HS256","kid":"abcdef"}"#;
    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn only_what_the_token_has_signed_for_the_pinned_authority_is_believed() {
        let (ours, digest) = authority();
        let (other, _) = authority();
        let both = format!("{other}{ours}");
        let text = kubeconfig(&ours);
        let good = jws(HEADER, &text, SECRET);
        let invitation = Invitation {
            hub: "hub:6443".into(),
            token: Token::parse(&format!("abcdef.{SECRET}")).unwrap(),
            authorities: vec![digest],
            cluster: "m1".into(),
            proxy: None,
            others: Vec::new(),
        };
        let map = |text: &str, field: &str, jws: &str| {
            json!({"data": {"kubeconfig": text, field: jws}}).to_string()
        };
        let of_id = "jws-kubeconfig-abcdef";
        let unsigned = format!("{}..", URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"abcdef"}"#));
        let twisted = good.replace("..", ".e30.");
        let (signed_other, signed_both) = (kubeconfig(&other), kubeconfig(&both));
        let rows = [
            (map(&text, of_id, &good), Ok(1)),
            // Nothing of another authority is believed before the peer is.
            (map(&signed_both, of_id, &jws(HEADER, &signed_both, SECRET)), Ok(2)),
            (json!({"data": {"kubeconfig": text}}).to_string(), Err("is not signed by the token abcdef")),
            (map(&text, "jws-kubeconfig-zzzzzz", &good), Err("is not signed by the token abcdef")),
            (map(&text, of_id, ""), Err("is wrong")),
            (map(&text, of_id, &unsigned), Err("is wrong")),
            (map(&text, of_id, &twisted), Err("is wrong")),
            (map(&text, of_id, &jws(HEADER, &text, "0123456789abcdeX")), Err("mistyped")),
            (map(&text, of_id, &jws(r#"{"alg":"HS256","kid":"zzzzzz"}"#, &text, SECRET)), Err("is wrong")),
            (
                map(&text.replace("hub.example", "evil.example"), of_id, &good),
                Err("has changed the cluster-info"),
            ),
            (map(&signed_other, of_id, &jws(HEADER, &signed_other, SECRET)), Err("it is another hub")),
            ("<html>".to_owned(), Err("it is no JSON")),
            ("{}".to_owned(), Err("it has no data.kubeconfig")),
            (map("a: [", of_id, &jws(HEADER, "a: [", SECRET)), Err("is no YAML")),
            (map("a: b", of_id, &jws(HEADER, "a: b", SECRET)), Err("has the key none")),
        ];
        for (answer, want) in rows {
            match (judge(answer.as_bytes(), &invitation), want) {
                (Ok(found), Ok(count)) => {
                    assert_eq!(found.pinned, ours.replace("\r\n", "\n"));
                    assert_eq!(found.authorities.matches("BEGIN").count(), count);
                    assert_eq!(found.host.as_deref(), Some("hub.example.com"));
                }
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}\n{want}"),
                (got, want) => panic!("{answer}: {got:?} {want:?}"),
            }
        }
    }
}
