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
//!
//! | a token | is |
//! |---|---|
//! | of the file that an operator has named ([`static_tokens`]) | asked for first |
//! | in the form of a bootstrap token ([`bootstrap`]) | judged by its Secret |
//! | signed, and says that it was issued here ([`accounts`]) | a service account's, judged by what it is bound to |
//! | signed, and says that it is of the issuer that an operator has named ([`oidc`]) | judged by that one's keys |
//!
//! A signed token is for somebody: its audiences. Whoever has been found good is remembered by the token's digest, so that a
//! request costs a digest and no signature; what ends it ends that too.
//!
//! What is kept of the store for it ([`Stored`]) is as new as the store: the answer of whoever ends a credential comes when
//! it no longer holds. No decision waits for anything.

pub mod accounts;
pub mod bootstrap;
pub mod browser;
pub mod epochs;
mod jose;
pub mod oidc;
pub mod refusals;
pub mod static_tokens;
mod verified;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use karmada_env::Env;
use karmada_meta::{duration, time::Time};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use x509_parser::{
    extensions::ParsedExtension,
    prelude::{FromDer, X509Certificate},
};

use self::{
    accounts::{Bonds, ISSUER, ServiceAccounts},
    bootstrap::BootstrapTokens,
    epochs::{End, Epochs, Hold, Validity},
    oidc::Oidc,
    verified::{TokenDigest, Verified, VerifiedTokens},
};
use crate::{
    follow::Derived,
    pki::{CLUSTER_UNIT, EPOCH_UNIT},
    storage::ApiStore,
};

pub use self::static_tokens::{TokenFileError, Tokens};

pub use crate::identity::{
    AGENT_PREFIX, AGENTS, ANONYMOUS, AUTHENTICATED, GENERATES_FOR, LEAVING, MONITORING, RBAC_GENERATOR,
    RETURNING, UNAUTHENTICATED, UserInfo, agent_cluster, generator_cluster,
};

/// What says by which credential somebody has authenticated.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Where certificates are asked for.
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The longest token that is looked at. Those of service accounts have a kilobyte or two, those of issuers with hundreds of
/// groups some more. Of a client without a certificate the listener takes no more than that with all other headers, so that this
/// bounds those of a client with one, and of a listener with other limits.
pub(crate) const LONGEST_TOKEN: usize = 16 * 1024;

/// What whoever shows nothing may read beside health and version, wherever an authoriser lets them: the ConfigMap by which
/// a machine finds the authority of this server before it knows any, as kubeadm and `karmadactl register` do.
pub const CLUSTER_INFO: ClusterInfo = ClusterInfo { namespace: "kube-public", name: "cluster-info" };

/// Where a ConfigMap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
}

/// The end of what has none.
fn forever() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 38)
}

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
    validity: Validity,
    key: [u8; 32],
    /// The epoch in which it was issued, which matters for agents.
    epoch: u64,
    /// The cluster whose agent's roles may be made by it.
    generates_for: Option<String>,
    /// How it refers to its authority; empty if it does not.
    authority: Vec<u8>,
    /// Ends when that is trusted no more.
    held: CancellationToken,
    /// Whether that is another API server's ([`crate::delegate`]).
    elsewhere: bool,
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
        let (mut epoch, mut generates_for) = (0, None);
        for unit in subject.iter_organizational_unit().map(text) {
            let unit = unit?;
            if let Some(number) = unit.strip_prefix(EPOCH_UNIT) {
                epoch = number.parse().map_err(|_| format!("its epoch {number:?} is no number"))?;
            }
            if let Some(cluster) = unit.strip_prefix(CLUSTER_UNIT).filter(|_| name == RBAC_GENERATOR) {
                generates_for = Some(cluster.to_owned());
            }
        }
        let at = |time: x509_parser::time::ASN1Time| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
        };
        let certified = certificate.validity();
        let authority = certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
            _ => None,
        });
        let digest: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
        let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={digest}")])]);
        Ok(Self {
            user: UserInfo { extra, ..UserInfo::new(name, groups) },
            validity: Validity { from: at(certified.not_before), until: at(certified.not_after) },
            key: Sha256::digest(certificate.public_key().raw).into(),
            epoch,
            generates_for,
            authority: authority.unwrap_or_default(),
            held: CancellationToken::new(),
            elsewhere: false,
        })
    }

    /// The same, signed by an authority of another API server: what this one keeps of its own says nothing about it.
    #[must_use]
    pub fn of_elsewhere(self) -> Self {
        Self { epoch: 0, generates_for: None, elsewhere: true, ..self }
    }

    /// Whether another API server's authority has signed it.
    pub(crate) fn is_of_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// How it refers to its authority; empty if it does not.
    pub(crate) fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// The same, for as long as this is not cancelled.
    pub(crate) fn held_by(self, held: CancellationToken) -> Self {
        Self { held, ..self }
    }

    /// What ends when its authority is trusted no more.
    pub(crate) fn held(&self) -> CancellationToken {
        self.held.clone()
    }

    /// When it ends.
    pub(crate) fn until(&self) -> SystemTime {
        self.validity.until
    }

    /// Whom it names, whether it still holds or not.
    pub(crate) fn user(&self) -> &UserInfo {
        &self.user
    }

    /// Whose connections are counted together with this one's: a certificate that was revoked must not take the places of
    /// the one that came after it.
    pub(crate) fn identity(&self) -> String {
        match (&self.generates_for, self.epoch) {
            _ if self.elsewhere => format!("{} of the API server", self.user.name),
            (Some(cluster), _) => format!("{} for {cluster}", self.user.name),
            (None, 0) => self.user.name.clone(),
            (None, epoch) => format!("{} of epoch {epoch}", self.user.name),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_agent(cluster: &str, epoch: u64) -> Self {
        let user = UserInfo::new(format!("{AGENT_PREFIX}{cluster}"), [AGENTS]);
        let key = Sha256::digest(format!("{cluster} {epoch}")).into();
        let validity = Validity { from: SystemTime::UNIX_EPOCH, until: SystemTime::UNIX_EPOCH };
        Self {
            user,
            validity,
            key,
            epoch,
            generates_for: None,
            authority: Vec::new(),
            held: CancellationToken::new(),
            elsewhere: false,
        }
    }

    /// A digest of its public key.
    pub(crate) fn key(&self) -> [u8; 32] {
        self.key
    }
}

/// Turns what a request shows into a user. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authenticator {
    tokens: Arc<Tokens>,
    accounts: Option<Arc<ServiceAccounts>>,
    oidc: Option<Arc<Oidc>>,
    /// Whom tokens are for that this server takes.
    audiences: Arc<[String]>,
    verified: Arc<VerifiedTokens>,
    stored: Stored,
    /// For how long an agent whose certificate has ended may ask for another by it.
    grace: Duration,
    env: Env,
}

/// What is kept of the store to know who is who. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Which certificates of agents count.
    pub epochs: Arc<Epochs>,
    /// The tokens of those who have nothing else yet.
    pub bootstrap: Arc<BootstrapTokens>,
    /// What tokens of service accounts are bound to; nothing where there is no store.
    pub bonds: Option<Arc<Bonds>>,
}

impl Stored {
    /// Of a store, as new as whoever follows [`Stored::derived`] keeps it.
    pub(crate) fn of(store: ApiStore) -> Self {
        Self { bonds: Some(Arc::new(Bonds::new(store))), ..Self::default() }
    }

    /// All of it, for the follower.
    pub(crate) fn derived(&self) -> Vec<Arc<dyn Derived>> {
        let mut derived: Vec<Arc<dyn Derived>> = vec![self.epochs.clone(), self.bootstrap.clone()];
        derived.extend(self.bonds.clone().map(|bonds| bonds as Arc<dyn Derived>));
        derived
    }
}

/// A token that holds.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    /// Whose it is.
    pub(crate) known: Known,
    /// Of those that it was asked to be for, those that it is for.
    pub(crate) audiences: Vec<String>,
}

/// The audiences that a token is for and that are asked for, if not `own`.
///
/// # Errors
/// When there are none, in kube-apiserver's words.
fn common(token: &[String], asked: Option<&[&str]>, own: &[String]) -> Result<Vec<String>, String> {
    let wanted: Vec<&str> = asked.map_or_else(|| own.iter().map(String::as_str).collect(), <[&str]>::to_vec);
    let both: Vec<String> = token.iter().filter(|one| wanted.contains(&one.as_str())).cloned().collect();
    if !both.is_empty() {
        return Ok(both);
    }
    let list = |names: Vec<&str>| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ");
    let (token, wanted) = (list(token.iter().map(String::as_str).collect()), list(wanted));
    Err(format!("token audiences [{token}] is invalid for the target audiences [{wanted}]"))
}

/// What somebody is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By nothing, or by being in this process.
    Nothing,
    /// A client certificate.
    Certificate,
    /// A bearer token.
    Token,
}

impl By {
    /// A word for what ended while it was used, as a label.
    pub(crate) fn ended(self) -> &'static str {
        if self == Self::Token { "token_ended" } else { "certificate_revoked" }
    }
}

/// Who asks, and for how long what they have shown holds.
#[derive(Clone, Debug)]
pub struct Known {
    /// Who.
    pub user: UserInfo,
    /// What they have shown.
    pub by: By,
    /// What else ends what they have begun; nothing for static tokens, and for those who show nothing.
    pub hold: Option<Hold>,
}

/// Why something that was shown does not hold. For the log and the figures: the client is told nothing but 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// The certificate of this user has expired: the user, and when and what that means.
    #[error("the certificate of {0} has expired{1}")]
    Expired(String, String),
    /// The certificate of this user was ended before its time.
    #[error("the certificate of {0} holds no more: {1}")]
    Ended(String, End),
    /// The certificate is not one that our authority signed for a client.
    #[error("client certificate: {0}")]
    Certificate(Arc<str>),
    /// The bearer token does not hold.
    #[error("{0}")]
    Token(RefusedToken),
}

/// Why a bearer token does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct RefusedToken {
    /// Whose it is, if that was proved.
    user: Option<String>,
    /// A word for it.
    reason: &'static str,
    why: String,
}

impl RefusedToken {
    /// It is nobody's.
    pub(crate) fn unknown() -> Self {
        Self { user: None, reason: "token_unknown", why: "the bearer token is not known".to_owned() }
    }

    /// It says that it is somebody's, and does not prove it.
    fn strange(why: impl Into<String>) -> Self {
        Self { user: None, reason: "token_unproved", why: why.into() }
    }

    /// It was this user's.
    fn ended(user: &str, reason: &'static str, why: impl Into<String>) -> Self {
        Self { user: Some(user.to_owned()), reason, why: why.into() }
    }

    /// For one who may ask about the tokens of others, as kube-apiserver puts it.
    pub(crate) fn for_review(&self) -> String {
        match self.reason {
            "token_unknown" => "invalid bearer token".to_owned(),
            _ => format!("[invalid bearer token, {}]", self.why),
        }
    }
}

impl Unauthenticated {
    /// A word for it, as a label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Expired(..) => "certificate_expired",
            Self::Ended(..) => "certificate_revoked",
            Self::Certificate(why) if why.contains("UnknownIssuer") => "certificate_unknown_authority",
            Self::Certificate(why) if why.contains("certificate expired") => "certificate_expired",
            Self::Certificate(_) => "certificate_refused",
            Self::Token(refused) => refused.reason,
        }
    }

    /// Whether it was a certificate that the authority signed.
    pub fn is_of_certificate(&self) -> bool {
        matches!(self, Self::Expired(..) | Self::Ended(..))
    }
}

impl Known {
    /// The same, if it is good for what is asked: whoever comes back after the end of a certificate may ask for another, and
    /// for nothing else.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn good_for(self, path: &str) -> Result<Self, Unauthenticated> {
        let within = path.strip_prefix(REQUESTS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if self.user.extra.contains_key(RETURNING) && !within {
            let what = ", and is good for nothing but to ask for another one".to_owned();
            return Err(Unauthenticated::Expired(self.user.name, what));
        }
        Ok(self)
    }
}

impl Unauthenticated {
    /// Whose it was, if that was proved.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Expired(user, _) | Self::Ended(user, _) => Some(user),
            Self::Certificate(_) => None,
            Self::Token(refused) => refused.user.as_deref(),
        }
    }
}

/// What one method makes of a request: a user, or nothing that it could look at.
pub(crate) type Method = Result<Option<Known>, Unauthenticated>;

impl Authenticator {
    /// Certificates are judged by `env`'s time of day.
    pub fn new(tokens: Tokens, env: Env) -> Self {
        Self {
            tokens: Arc::new(tokens),
            accounts: None,
            oidc: None,
            audiences: Arc::new([ISSUER.to_owned()]),
            verified: Arc::default(),
            stored: Stored::default(),
            grace: Duration::ZERO,
            env,
        }
    }

    /// The same, who takes tokens of service accounts and has them issued.
    #[must_use]
    pub fn with_service_accounts(self, accounts: Arc<ServiceAccounts>) -> Self {
        // What was found good by the keys of before is looked at again.
        let verified = Arc::default();
        Self { audiences: accounts.audiences().into(), accounts: Some(accounts), verified, ..self }
    }

    /// The same, who lets agents ask for another certificate for so long after theirs has ended. They prove in the TLS
    /// handshake, anew each time, that they have its key.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// The same, who takes ID tokens of an issuer.
    #[must_use]
    pub fn with_oidc(self, oidc: Arc<Oidc>) -> Self {
        Self { oidc: Some(oidc), ..self }
    }

    /// Who issues tokens of service accounts.
    pub(crate) fn service_accounts(&self) -> Option<&Arc<ServiceAccounts>> {
        self.accounts.as_ref()
    }

    /// The same, judging agents' certificates by these epochs. Without them all count.
    #[must_use]
    pub fn with_epochs(mut self, epochs: Arc<Epochs>) -> Self {
        self.stored.epochs = epochs;
        self
    }

    /// The same, by all that is kept of a store.
    #[must_use]
    pub fn with_stored(self, stored: Stored) -> Self {
        Self { stored, ..self }
    }

    /// Whose token this is; `asked` are whom it has to be for, if not for this server.
    ///
    /// # Errors
    /// When it does not hold.
    pub(crate) fn token(&self, token: &str, asked: Option<&[&str]>) -> Result<Accepted, RefusedToken> {
        if token.len() > LONGEST_TOKEN {
            let why = format!("the bearer token is longer than {LONGEST_TOKEN} bytes");
            return Err(RefusedToken { user: None, reason: "token_too_long", why });
        }
        let (digest, now): (TokenDigest, _) = (Sha256::digest(token).into(), self.env.wall());
        if let Some(user) = self.tokens.get(&digest) {
            return self.for_anybody(Known { user: user.clone(), by: By::Token, hold: None }, asked);
        }
        if let Some(known) = self.stored.bootstrap.judge(token, now) {
            return self.for_anybody(known?, asked);
        }
        let verified = match self.verified.get(&digest, now) {
            Some(verified) => verified,
            None => {
                let verified = Arc::new(self.verify(token, asked)?);
                self.verified.put(digest, verified.clone());
                verified
            }
        };
        let Verified { known, audiences, .. } = &*verified;
        match common(audiences, asked, &self.audiences) {
            Ok(audiences) => Ok(Accepted { known: known.clone(), audiences }),
            Err(why) => Err(RefusedToken::ended(&known.user.name, "token_audience", why)),
        }
    }

    /// A token that names no audience is for this server.
    fn for_anybody(&self, known: Known, asked: Option<&[&str]>) -> Result<Accepted, RefusedToken> {
        match common(&self.audiences, asked, &self.audiences) {
            Ok(audiences) => Ok(Accepted { known, audiences }),
            Err(_) => Err(RefusedToken::unknown()),
        }
    }

    /// Judges a signed token.
    fn verify(&self, token: &str, asked: Option<&[&str]>) -> Result<Verified, RefusedToken> {
        let look = jose::look(token).ok_or_else(RefusedToken::unknown)?;
        match (&self.accounts, &self.stored.bonds) {
            (Some(accounts), Some(bonds)) if accounts.is_ours(&look) => {
                accounts.judge(token, &look, asked, bonds, &self.env)
            }
            _ => match &self.oidc {
                Some(oidc) if oidc.is_ours(&look) => {
                    oidc.judge(token, &look, &self.audiences, self.env.wall())
                }
                _ => Err(RefusedToken::unknown()),
            },
        }
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
            (Ok(None), Ok(_)) => Ok(Known { user: UserInfo::anonymous(), by: By::Nothing, hold: None }),
        }
    }

    /// By a certificate that still holds. A connection is judged here at each of its requests.
    pub(crate) fn by_certificate(&self, peer: &Peer) -> Method {
        let shown = match peer {
            Peer::None => return Ok(None),
            Peer::Refused(reason) => return Err(Unauthenticated::Certificate(reason.clone())),
            Peer::Certificate(shown) => shown,
        };
        let (now, mut user, until) = (self.env.wall(), shown.user.clone(), shown.validity.until);
        if shown.held.is_cancelled() {
            return Err(Unauthenticated::Certificate("its authority is trusted no more".into()));
        }
        let is_agents = agent_cluster(&user).is_some() && !shown.elsewhere;
        let comes_back = now > until && is_agents && now <= until + self.grace;
        if now > until && !comes_back {
            let at = Time::from_system(until);
            let over = if !is_agents || self.grace.is_zero() {
                format!(" at {at}")
            } else {
                let grace = duration::format(self.grace);
                format!(
                    " at {at}, and the {grace} are over within which its agent gets another; it has to join again by a token"
                )
            };
            return Err(Unauthenticated::Expired(user.name, over));
        }
        let agent = agent_cluster(&user).filter(|_| is_agents);
        let hold = match (agent, &shown.generates_for) {
            // What goes on without its connection, a session of the page, ends with the authority's trust as well.
            (None, None) => Hold { ended: shown.held(), until, leaving: false },
            (None, Some(cluster)) => match self.stored.epochs.judge_generator(cluster, shown.epoch, until) {
                Ok(hold) => {
                    user.extra.insert(GENERATES_FOR.to_owned(), vec![cluster.clone()]);
                    hold
                }
                Err(how) => return Err(Unauthenticated::Ended(user.name, how)),
            },
            (Some(cluster), _) => match self.stored.epochs.judge(cluster, shown.epoch, shown.validity, now) {
                Ok(hold) => {
                    if !hold.leaving {
                        self.stored.epochs.certified_by(cluster, &shown.authority);
                    }
                    user.extra.insert(epochs::EPOCH.to_owned(), vec![shown.epoch.to_string()]);
                    hold
                }
                Err(how) => return Err(Unauthenticated::Ended(user.name, how)),
            },
        };
        if comes_back {
            user.extra.insert(RETURNING.to_owned(), vec!["true".to_owned()]);
            let hold = Hold { until: until + self.grace, ..hold };
            return Ok(Some(Known { user, by: By::Certificate, hold: Some(hold) }));
        }
        if hold.leaving {
            user.extra.insert(LEAVING.to_owned(), vec!["true".to_owned()]);
        }
        Ok(Some(Known { user, by: By::Certificate, hold: Some(hold) }))
    }

    pub(crate) fn by_token(&self, headers: &http::HeaderMap) -> Method {
        let token = match bearer(headers) {
            None => return Ok(None),
            Some(token) => token.and_then(|token| self.token(token, None)),
        };
        match token {
            Ok(accepted) => Ok(Some(accepted.known)),
            Err(why) => Err(Unauthenticated::Token(why)),
        }
    }
}

/// The bearer token of a request. Another scheme, or the scheme without a token, counts as nothing shown; a token that is
/// no text has been shown, and is nobody's.
pub(crate) fn bearer(headers: &http::HeaderMap) -> Option<Result<&str, RefusedToken>> {
    let value = headers.get(http::header::AUTHORIZATION)?.as_bytes().trim_ascii();
    let (scheme, token) = value.split_at_checked(value.iter().position(|byte| *byte == b' ')?)?;
    let token = token.trim_ascii_start();
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty())
        .then(|| std::str::from_utf8(token).map_err(|_| RefusedToken::unknown()))
}

/// The issuer that a token names, if it has the form of a signed one.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn look_at(token: &str) -> Option<String> {
    jose::look(token).map(|look| look.issuer)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use karmada_env::ManualClock;

    use super::*;

    fn headers(authorization: Option<&str>) -> http::HeaderMap {
        let value = |text: &str| http::HeaderValue::from_bytes(text.as_bytes()).unwrap();
        authorization.iter().map(|text| (http::header::AUTHORIZATION, value(text))).collect()
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
            (Some("Bearer sécret"), None),
            (Some("Bearer \u{a0}"), None),
            (Some("Basic é"), Some(ANONYMOUS)),
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
    fn no_token_is_too_long_to_be_refused() {
        let (authenticator, _) = authenticator();
        let rows = [(LONGEST_TOKEN, "token_unknown"), (LONGEST_TOKEN + 1, "token_too_long")];
        for (length, want) in rows {
            let why = authenticator.token(&"x".repeat(length), None).expect_err("nobody's");
            assert_eq!(why.reason, want, "{length}");
        }
    }

    #[test]
    fn methods_are_a_union() {
        let (authenticator, clock) = authenticator();
        let not_after = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        let certificate = Peer::Certificate(Arc::new(PeerCertificate {
            user: UserInfo::new("c", ["g"]),
            validity: Validity { from: SystemTime::UNIX_EPOCH, until: not_after },
            key: [0; 32],
            epoch: 0,
            generates_for: None,
            authority: Vec::new(),
            held: CancellationToken::new(),
            elsewhere: false,
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
}
