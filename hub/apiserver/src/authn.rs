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
mod known;
pub mod oidc;
mod peer;
pub mod refusals;
pub mod static_tokens;
mod verified;

use std::{sync::Arc, time::Duration};

use karmada_env::Env;
use karmada_meta::{duration, time::Time};
use sha2::{Digest, Sha256};

use self::{
    accounts::{Bonds, ISSUER, ServiceAccounts},
    bootstrap::BootstrapTokens,
    epochs::{Epochs, Hold},
    known::common,
    oidc::Oidc,
    verified::{TokenDigest, Verified, VerifiedTokens},
};
use crate::{follow::Derived, storage::ApiStore};

pub use self::{
    known::{By, CREDENTIAL_ID, Known, RefusedToken, Unauthenticated},
    peer::{Peer, PeerCertificate},
    static_tokens::{TokenFileError, Tokens},
};

pub use crate::identity::{
    AGENT_PREFIX, AGENTS, ANONYMOUS, AUTHENTICATED, GENERATES_FOR, LEAVING, MONITORING, RBAC_GENERATOR,
    RETURNING, UNAUTHENTICATED, UserInfo, agent_cluster, generator_cluster,
};

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
    use std::time::SystemTime;

    use karmada_env::ManualClock;
    use tokio_util::sync::CancellationToken;

    use super::{epochs::Validity, *};

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
