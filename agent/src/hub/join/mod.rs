//! Joining: from a token and the digest of the hub's authority to a certificate of our own.
//!
//! ```text
//!   anyone on the way                                                        hub
//!        │   TLS with whoever answers ────────────────────────────────────────▶│
//!        │◀──────────────────────────── cluster-info: address, authority, JWS ─│
//!        │   is the JWS by our token?  does the authority's key have our digest?  did it certify this very peer?
//!        │   request for a certificate, with the token ───────────────────────▶│  approver, signer
//!        │◀───────────────────────────────────────────────────── certificate ──│
//! ```
//!
//! Nothing secret is said before the peer of this one connection is proved: it showed its certificate and proved its key
//! when the connection was made, and whose certificate that is is asked when it is known whom to believe. The key is made
//! here and goes nowhere; it is kept before it is used, so that whoever asks again after a crash asks for the same one.
//!
//! - [`Invitation`] is what somebody was given; [`discovery`] judges what the hub publishes, [`request`] what is asked for
//!   and what is answered, both as pure functions; [`journey`] goes the way.

pub(crate) mod discovery;
pub(crate) mod journey;
pub(crate) mod request;

use std::time::Duration;

use karmada_client::{kubeconfig::Address, link::proxy::Proxy};

pub(crate) use journey::Journey;

/// How a cluster gets another token, in every error where that helps.
fn another_token(cluster: &str) -> String {
    format!("make a new one on the hub: karmada-hub token create --cluster {cluster}")
}

/// A bootstrap token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) id: String,
    secret: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Token {
    /// Reads `ID.SECRET`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is = |part: &str, length| {
            part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        match text.trim().split_once('.') {
            Some((id, secret)) if is(id, 6) && is(secret, 16) => {
                Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
            }
            // Never what it is: it may be one with a character too many.
            _ => Err("is no bootstrap token: 6 characters of a-z and 0-9, a dot and 16 more".to_owned()),
        }
    }

    fn whole(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

/// The SHA-256 digest of an authority's public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyDigest([u8; 32]);

/// Digests for people.
fn listed(digests: &[KeyDigest]) -> String {
    let all: Vec<_> = digests.iter().map(KeyDigest::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

impl std::fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl KeyDigest {
    /// Reads `sha256:HEX`, as kubeadm writes it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let hex = text.trim().strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.is_ascii());
        let byte = |at: usize| u8::from_str_radix(hex?.get(2 * at..2 * at + 2)?, 16).ok();
        let mut digest = [0; 32];
        for (at, to) in digest.iter_mut().enumerate() {
            *to = byte(at)
                .ok_or_else(|| format!("{text:?} is not sha256: with 64 hexadecimal digits behind it"))?;
        }
        Ok(Self(digest))
    }

    pub(crate) fn of(key: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, key);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

/// What somebody was given to join by.
#[derive(Clone, Debug)]
pub(crate) struct Invitation {
    /// `HOST:PORT`.
    pub(crate) hub: String,
    pub(crate) token: Token,
    /// One of which the authority's key has.
    pub(crate) authorities: Vec<KeyDigest>,
    pub(crate) cluster: String,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) others: Vec<Address>,
}

impl Invitation {
    /// In a word, to tell it from another; nothing secret.
    pub(crate) fn mark(token: &Token, authorities: &[KeyDigest]) -> String {
        let mut authorities: Vec<_> = authorities.iter().map(KeyDigest::to_string).collect();
        authorities.sort_unstable();
        format!("{} {}", token.id, authorities.join(" "))
    }

    /// Reads `HOST:PORT`, also as a URL.
    pub(crate) fn hub(text: &str) -> Result<String, String> {
        let bare = text.strip_prefix("https://").unwrap_or(text).trim_end_matches('/');
        let wrong = || format!("{text:?} is not HOST:PORT");
        let authority: http::uri::Authority = bare.parse().map_err(|_| wrong())?;
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(wrong());
        }
        Ok(format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(443)))
    }
}

/// Why a cluster has not joined. Each says what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinError {
    #[error(
        "the hub {hub} cannot be reached: {cause}. Check the address and the port, DNS, firewall and proxy: karmada-agent doctor \
             with the same arguments checks each of them"
    )]
    Unreachable { hub: String, cause: String },
    #[error(
        "{hub} answers {code} instead of its cluster-info: is a karmada-hub at this address? (A stock kube-apiserver has no \
             cluster-info before manifests/hub/join-rbac.yaml is applied)"
    )]
    NoHub { hub: String, code: u16 },
    #[error("the cluster-info of {hub} cannot be used: {why}")]
    Garbled { hub: String, why: String },
    #[error("the cluster-info of {hub} is not signed by the token {id}: the token has expired or was deleted, or somebody on the \
             way has taken the signature out; {}", another_token(.cluster))]
    NotSigned { hub: String, id: String, cluster: String },
    #[error(
        "the signature of the token {id} on the cluster-info of {hub} is wrong: the part of the token after the dot is \
             mistyped, or somebody on the way has changed the cluster-info"
    )]
    Forged { hub: String, id: String },
    #[error(
        "the authority of {hub} has the key {}, and --ca-cert-hash says {wanted}: it is another hub, or somebody on the \
             way pretends to be it", listed(.found)
    )]
    OtherAuthority { hub: String, found: Vec<KeyDigest>, wanted: String },
    #[error(
        "the server that answers at {hub} is not certified by the hub's authority: {why}; somebody on the way pretends to be \
             the hub"
    )]
    NotCertified { hub: String, why: String },
    #[error(
        "the certificate of {hub} is for none of the names {names}; start the hub with the name by which members reach it: \
             karmada-hub serve --advertise HOST"
    )]
    OtherName { hub: String, names: String },
    #[error("{0}")]
    Clock(String),
    #[error("the hub does not take the token {id}: it has expired or was deleted; {}", another_token(.cluster))]
    TokenRefused { id: String, cluster: String },
    #[error("the hub refuses a certificate for cluster {cluster}: {why}")]
    Denied { cluster: String, why: String },
    #[error(
        "the request {name} for a certificate waits for somebody who approves it, since the token is for no cluster: \
             kubectl certificate approve {name}"
    )]
    Waits { name: String },
    #[error(
        "the request {name} for a certificate is approved, and nobody signs it: is the signer of the hub at work \
             (karmada-hub, or kube-controller-manager with --cluster-signing-cert-file)?"
    )]
    NotIssued { name: String },
    #[error("the hub answers {code} to the request for a certificate: {message}")]
    Answered { code: u16, message: String },
    #[error("there is no token to join by: {0}")]
    NoToken(String),
    #[error("cannot keep the credential: {0}")]
    Kept(String),
}

impl JoinError {
    /// For how long it may pass by itself; nobody who waits for an answer is kept longer.
    pub(crate) fn may_pass_within(&self) -> Duration {
        match self {
            Self::Waits { .. } => Duration::MAX,
            Self::Unreachable { .. } | Self::NotIssued { .. } => Duration::from_secs(30),
            // A hub that is just starting, and one that has much to do.
            Self::NoHub { code, .. } | Self::Answered { code, .. }
                if matches!(code, 404 | 409 | 429 | 500..) =>
            {
                Duration::from_secs(30)
            }
            // A token that was just made is in a moment.
            Self::NotSigned { .. } => Duration::from_secs(3),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_read_or_refused() {
        assert_eq!(Token::parse(" abcdef.0123456789abcdef\n").unwrap().whole(), "abcdef.0123456789abcdef");
        for wrong in
            ["", "abcdef", "abcde.0123456789abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef0"]
        {
            let why = Token::parse(wrong).unwrap_err();
            assert!(wrong.is_empty() || !why.contains(wrong), "{why}");
        }
        let hex = "0f".repeat(32);
        assert_eq!(KeyDigest::parse(&format!("sha256:{hex}")).unwrap().to_string(), format!("sha256:{hex}"));
        for wrong in [
            hex.clone(),
            format!("sha256:{}", &hex[1..]),
            format!("sha256:{}zz", &hex[2..]),
            "sha256:é".repeat(9),
        ] {
            assert!(KeyDigest::parse(&wrong).is_err(), "{wrong}");
        }
        let rows = [
            ("hub:6443", Some("hub:6443")),
            ("https://hub.example.com:6443/", Some("hub.example.com:6443")),
            ("hub", Some("hub:443")),
            ("[::1]:1", Some("[::1]:1")),
            ("", None),
            ("u@hub", None),
            ("http://hub", None),
            ("a b", None),
        ];
        for (text, want) in rows {
            assert_eq!(Invitation::hub(text).ok().as_deref(), want, "{text}");
        }
        assert!(!format!("{:?}", Token::parse("abcdef.0123456789abcdef")).contains("0123456789"));
    }
}
