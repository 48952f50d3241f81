//! Who asks: from a client certificate or a bearer token to a [`UserInfo`].
//!
//! ```text
//!   listener ──► Peer (what the TLS handshake showed) ─┐
//!                                                       ├─► Authenticator ──► UserInfo, or 401
//!   Authorization: Bearer … ───────────────────────────┘
//!   client in process ─────────────────────────────────────────────────────► UserInfo
//! ```
//!
//! The methods are a union, in Kubernetes' order: the certificate first, then the token. The first that holds says who
//! asks; one that does not hold is not the end while another may. Nothing shown is `system:anonymous`. Something shown
//! and nothing that holds is a 401 also where anonymous requests are let in, so that a client with an expired
//! certificate learns of it. A certificate is looked at again on every request, for connections outlive certificates.

pub mod epochs;
pub(crate) mod refusals;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use karmada_env::Env;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

use self::epochs::{End, Epochs, Hold};
use crate::pki::EPOCH_UNIT;

pub use crate::identity::{
    AGENT_PREFIX, AGENTS, ANONYMOUS, AUTHENTICATED, LEAVING, MONITORING, UNAUTHENTICATED, UserInfo,
    agent_cluster,
};

/// What says by which credential somebody has authenticated.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// What the client showed in the TLS handshake. Travels as a request extension from the listener to where requests are
/// authenticated.
#[derive(Clone, Debug, Default)]
pub enum Peer {
    /// Nothing.
    #[default]
    None,
    /// A certificate that our authority signed.
    Certificate(Arc<PeerCertificate>),
    /// A certificate that does not hold; the reason is for the log.
    Refused(Arc<str>),
}

/// A verified client certificate.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    user: UserInfo,
    not_after: SystemTime,
    key: [u8; 32],
    /// The epoch in which it was issued, which matters for agents.
    epoch: u64,
}

impl PeerCertificate {
    /// Reads user (CN) and groups (every O) out of a certificate whose chain has been verified.
    ///
    /// # Errors
    /// What is wrong with it, for the log.
    pub fn from_der(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().map(str::to_owned).map_err(|e| format!("its subject: {e}"))
        };
        let subject = certificate.subject();
        let name = match subject.iter_common_name().next() {
            Some(attribute) => text(attribute)?,
            None => return Err("its subject has no common name".to_owned()),
        };
        if name.is_empty() || name == ANONYMOUS {
            return Err(format!("its common name {name:?} cannot be a user's"));
        }
        let groups = subject.iter_organization().map(text).collect::<Result<Vec<_>, _>>()?;
        let mut epoch = 0;
        for unit in subject.iter_organizational_unit().map(text) {
            if let Some(number) = unit?.strip_prefix(EPOCH_UNIT) {
                epoch = number.parse().map_err(|_| format!("its epoch {number:?} is no number"))?;
            }
        }
        let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
        let digest: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
        let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={digest}")])]);
        Ok(Self {
            user: UserInfo { extra, ..UserInfo::new(name, groups) },
            not_after: SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds),
            key: Sha256::digest(certificate.public_key().raw).into(),
            epoch,
        })
    }

    /// Whom it names, whether it still holds or not.
    pub(crate) fn user(&self) -> &UserInfo {
        &self.user
    }

    /// Whose connections are counted together with this one's: a certificate that was revoked must not take the places of
    /// the one that came after it.
    pub(crate) fn identity(&self) -> String {
        match self.epoch {
            0 => self.user.name.clone(),
            epoch => format!("{} of epoch {epoch}", self.user.name),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_agent(cluster: &str, epoch: u64) -> Self {
        let user = UserInfo::new(format!("{AGENT_PREFIX}{cluster}"), [AGENTS]);
        let key = Sha256::digest(format!("{cluster} {epoch}")).into();
        Self { user, not_after: SystemTime::UNIX_EPOCH, key, epoch }
    }

    /// A digest of its public key.
    pub(crate) fn key(&self) -> [u8; 32] {
        self.key
    }
}

/// Bearer tokens and their users. Only digests are kept, so that a lookup tells nothing of a token by its time.
#[derive(Clone, Default)]
pub struct Tokens {
    users: BTreeMap<[u8; 32], UserInfo>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("count", &self.users.len()).finish()
    }
}

/// A token file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A line has not the form `token,user,uid[,"group,group"]`.
    #[error("{}, line {line}: expected token,user,uid[,\"group,group\"]", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
}

impl Tokens {
    /// No tokens: every bearer token is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads Kubernetes' static token file: one `token,user,uid,"group,group"` a line; the groups may be missing.
    ///
    /// # Errors
    /// When the file cannot be read or a line has another form.
    pub fn from_file(path: &Path) -> Result<Self, TokenFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenFileError::Read { path: path.to_path_buf(), source })?;
        let mut tokens = Self::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (token, user) = token_line(line)
                .ok_or_else(|| TokenFileError::Line { path: path.to_path_buf(), line: index + 1 })?;
            tokens.insert(token, user);
        }
        Ok(tokens)
    }

    /// Lets `token` stand for `user`.
    pub fn insert(&mut self, token: &str, user: UserInfo) {
        self.users.insert(Sha256::digest(token).into(), user);
    }

    /// Takes in what another set holds.
    pub fn extend(&mut self, other: Self) {
        self.users.extend(other.users);
    }

    fn get(&self, token: &str) -> Option<&UserInfo> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.users.get(&digest)
    }
}

fn token_line(line: &str) -> Option<(&str, UserInfo)> {
    let mut parts = line.splitn(4, ',').map(str::trim);
    let (token, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    if token.is_empty() || name.is_empty() {
        return None;
    }
    let groups = parts.next().unwrap_or_default().trim_matches('"');
    let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
    Some((token, UserInfo { uid: uid.to_owned(), ..UserInfo::new(name, groups) }))
}

/// Turns what a request shows into a user. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authenticator {
    tokens: Arc<Tokens>,
    epochs: Arc<Epochs>,
    env: Env,
}

/// Who asks, and for how long what they have shown holds.
#[derive(Clone, Debug)]
pub struct Known {
    /// Who.
    pub user: UserInfo,
    /// What else ends what they have begun; nothing for tokens, and for those who show nothing.
    pub hold: Option<Hold>,
}

/// Why something that was shown does not hold. For the log and the figures: the client is told nothing but 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// The certificate of this user has expired.
    #[error("the certificate of {0} has expired")]
    Expired(String),
    /// The certificate of this user was ended before its time.
    #[error("the certificate of {0} holds no more: {1}")]
    Ended(String, End),
    /// The certificate is not one that our authority signed for a client.
    #[error("client certificate: {0}")]
    Certificate(Arc<str>),
    /// The bearer token is nobody's.
    #[error("the bearer token is not known")]
    Token,
}

impl Unauthenticated {
    /// A word for it, as a label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Expired(_) => "certificate_expired",
            Self::Ended(..) => "certificate_revoked",
            Self::Certificate(why) if why.contains("UnknownIssuer") => "certificate_unknown_authority",
            Self::Certificate(why) if why.contains("certificate expired") => "certificate_expired",
            Self::Certificate(_) => "certificate_refused",
            Self::Token => "token_unknown",
        }
    }
}

impl Unauthenticated {
    /// Whose it was, if the authority has signed for them.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Expired(user) | Self::Ended(user, _) => Some(user),
            Self::Certificate(_) | Self::Token => None,
        }
    }
}

/// What one method makes of a request: a user, or nothing that it could look at.
type Method = Result<Option<Known>, Unauthenticated>;

impl Authenticator {
    /// Certificates are judged by `env`'s time of day.
    pub fn new(tokens: Tokens, env: Env) -> Self {
        Self { tokens: Arc::new(tokens), epochs: Arc::default(), env }
    }

    /// The same, judging agents' certificates by these epochs. Without them all count.
    #[must_use]
    pub fn with_epochs(self, epochs: Arc<Epochs>) -> Self {
        Self { epochs, ..self }
    }

    /// The user whose token this is.
    pub fn token(&self, token: &str) -> Option<&UserInfo> {
        self.tokens.get(token)
    }

    /// The user of a request.
    ///
    /// # Errors
    /// When a certificate or token is shown and none of what is shown holds; the first reason.
    pub fn authenticate(&self, peer: &Peer, headers: &http::HeaderMap) -> Result<Known, Unauthenticated> {
        let certificate = match self.by_certificate(peer) {
            Ok(Some(user)) => return Ok(user),
            other => other,
        };
        match (self.by_token(headers), certificate) {
            (Ok(Some(user)), _) => Ok(user),
            (_, Err(why)) | (Err(why), _) => Err(why),
            (Ok(None), Ok(_)) => Ok(Known { user: UserInfo::anonymous(), hold: None }),
        }
    }

    /// By a certificate that still holds. A connection is judged here at each of its requests.
    fn by_certificate(&self, peer: &Peer) -> Method {
        let shown = match peer {
            Peer::None => return Ok(None),
            Peer::Refused(reason) => return Err(Unauthenticated::Certificate(reason.clone())),
            Peer::Certificate(shown) => shown,
        };
        let (now, mut user) = (self.env.wall(), shown.user.clone());
        if now > shown.not_after {
            return Err(Unauthenticated::Expired(user.name));
        }
        let hold = match agent_cluster(&user) {
            None => Hold { ended: CancellationToken::new(), until: shown.not_after, leaving: false },
            Some(cluster) => match self.epochs.judge(cluster, shown.epoch, shown.not_after, now) {
                Ok(hold) => hold,
                Err(how) => return Err(Unauthenticated::Ended(user.name, how)),
            },
        };
        if hold.leaving {
            user.extra.insert(LEAVING.to_owned(), vec!["true".to_owned()]);
        }
        Ok(Some(Known { user, hold: Some(hold) }))
    }

    fn by_token(&self, headers: &http::HeaderMap) -> Method {
        match bearer(headers) {
            None => Ok(None),
            Some(token) => {
                let user = self.tokens.get(token).cloned().ok_or(Unauthenticated::Token)?;
                Ok(Some(Known { user, hold: None }))
            }
        }
    }
}

/// The bearer token of a request. Another scheme, or the scheme without a token, counts as nothing shown.
fn bearer(headers: &http::HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use karmada_env::ManualClock;

    use super::*;

    fn headers(authorization: Option<&str>) -> http::HeaderMap {
        authorization.iter().map(|v| (http::header::AUTHORIZATION, v.parse().unwrap())).collect()
    }

    fn authenticator() -> (Authenticator, ManualClock) {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let mut tokens = Tokens::new();
        tokens.insert("secret", UserInfo::new("u", ["g"]));
        (Authenticator::new(tokens, Env::seeded(clock.clone(), 0)), clock)
    }

    #[test]
    fn tokens() {
        let (authenticator, _) = authenticator();
        let cases = [
            (None, Some(ANONYMOUS)),
            (Some("Bearer secret"), Some("u")),
            (Some("bearer  secret"), Some("u")),
            (Some("Bearer nonsense"), None),
            (Some("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0."), None),
            (Some("Basic eDp5"), Some(ANONYMOUS)),
            (Some("Bearer"), Some(ANONYMOUS)),
        ];
        for (authorization, user) in cases {
            let answer = authenticator.authenticate(&Peer::None, &headers(authorization)).ok();
            assert_eq!(answer.as_ref().map(|u| u.user.name.as_str()), user, "{authorization:?}");
        }
        let user = authenticator.authenticate(&Peer::None, &headers(Some("Bearer secret"))).unwrap();
        assert_eq!(user.user.groups, ["g", AUTHENTICATED]);
    }

    #[test]
    fn methods_are_a_union() {
        let (authenticator, clock) = authenticator();
        let not_after = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        let certificate = Peer::Certificate(Arc::new(PeerCertificate {
            user: UserInfo::new("c", ["g"]),
            not_after,
            key: [0; 32],
            epoch: 0,
        }));
        let refused = Peer::Refused("unknown issuer".into());
        let (good, bad) = (Some("Bearer secret"), Some("Bearer nonsense"));
        let ask = |peer: &Peer, token| match authenticator.authenticate(peer, &headers(token)) {
            Ok(known) => known.user.name,
            Err(why) => why.reason().to_owned(),
        };
        let table = [
            (&Peer::None, None, ANONYMOUS),
            (&Peer::None, bad, "token_unknown"),
            (&certificate, None, "c"),
            // The certificate goes before the token.
            (&certificate, good, "c"),
            (&certificate, bad, "c"),
            (&refused, None, "certificate_refused"),
            (&refused, good, "u"),
            (&refused, bad, "certificate_refused"),
        ];
        for (peer, token, want) in table {
            assert_eq!(ask(peer, token), want, "{peer:?} {token:?}");
        }
        // A certificate ends while its connection lives.
        clock.advance(Duration::from_secs(61));
        for (token, want) in [(None, "certificate_expired"), (good, "u"), (bad, "certificate_expired")] {
            assert_eq!(ask(&certificate, token), want, "{token:?}");
        }
    }

    #[test]
    fn token_files() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("tokens");
        let cases = [
            ("a,u,1,\"g,h\"\n# note\n\n", Ok(("a", vec!["g", "h", AUTHENTICATED]))),
            ("a,u,1\n", Ok(("a", vec![AUTHENTICATED]))),
            ("a,u\n", Err(1)),
            ("a,u,1\n,u,1\n", Err(2)),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, text).unwrap();
            match (Tokens::from_file(&path), expected) {
                (Ok(tokens), Ok((token, groups))) => {
                    assert_eq!(tokens.get(token).unwrap().groups, groups, "{text:?}")
                }
                (Err(TokenFileError::Line { line, .. }), Err(expected)) => {
                    assert_eq!(line, expected, "{text:?}")
                }
                (got, _) => panic!("{text:?}: {got:?}"),
            }
        }
    }
}
