//! Service accounts: their tokens, issued and judged.
//!
//! ```text
//!   POST serviceaccounts/NAME/token ─► issue ─► signed by the first key of pki/service-account.pem
//!   a request with a token ─► whose? for whom? signed by any of the keys? until when? ─► bonds ─► user
//!   Secret of type kubernetes.io/service-account-token ─► the controller fill_secrets ─► a token without an end
//! ```
//!
//! Claims, users and groups are kube-apiserver's, so that whoever reads such tokens elsewhere, by
//! `/.well-known/openid-configuration` and `/openid/v1/jwks`, finds what they expect. Keys are of the curve P-256 (ES256).

mod bonds;
mod claims;
mod issue;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use jsonwebtoken::{Algorithm, DecodingKey};
use karmada_env::Env;
use karmada_store::Key;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use self::{
    bonds::{Bond, Bound, NODES, PODS},
    claims::{Claims, LEGACY_ISSUER, LegacyClaims, Reference},
};
use super::{
    jose::{self, Look, PublicKey},
    known::{By, Known, RefusedToken, common, forever},
    verified::Verified,
};
use crate::pki::SigningKey;

pub use self::{
    bonds::Bonds,
    claims::{GROUP, USER_PREFIX, user_name},
};
pub(crate) use self::{
    bonds::{ACCOUNTS, SECRETS},
    issue::Asked,
};

/// Who issues tokens, and whom those are for that name nobody: kube-apiserver's default.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The type of a Secret that holds a token.
pub const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
/// Clocks may differ by so much, as for kube-apiserver.
const LEEWAY: Duration = Duration::from_secs(60);

/// What an operator may say about tokens of service accounts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who issues them: the first is written into tokens, all are believed.
    pub issuers: Vec<String>,
    /// Whom this server is: tokens for others do not let in here. None: the issuers.
    pub audiences: Vec<String>,
    /// The longest that a token may hold; none: as long as it is asked for.
    pub longest: Option<Duration>,
    /// Where others find the keys.
    pub jwks_uri: String,
    /// The authority of this server as PEM, for those who find a token in a Secret.
    pub ca_pem: String,
    /// Until when tokens hold that were issued, shared with whoever comes after this one.
    pub ends: Arc<TokenEnds>,
}

/// Until when the tokens hold that were signed with each key, in seconds since 1970: before that the key is needed.
#[derive(Debug, Default)]
pub struct TokenEnds(Mutex<BTreeMap<String, i64>>);

impl TokenEnds {
    /// A token of this key holds until then.
    pub fn note(&self, key: &str, end: i64) {
        let mut ends = self.0.lock();
        match ends.get_mut(key) {
            Some(known) => *known = end.max(*known),
            None => drop(ends.insert(key.to_owned(), end)),
        }
    }

    /// By key.
    pub fn all(&self) -> BTreeMap<String, i64> {
        self.0.lock().clone()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            issuers: vec![ISSUER.to_owned()],
            audiences: Vec::new(),
            longest: None,
            jwks_uri: "https://127.0.0.1:6443/openid/v1/jwks".to_owned(),
            ca_pem: String::new(),
            ends: Arc::default(),
        }
    }
}

/// Who issues and judges tokens of service accounts.
pub struct ServiceAccounts {
    settings: Settings,
    keys: Vec<(SigningKey, PublicKey)>,
}

impl fmt::Debug for ServiceAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccounts").field("issuers", &self.settings.issuers).finish_non_exhaustive()
    }
}

/// Who issues tokens, once somebody does.
#[derive(Debug, Default)]
pub(crate) struct CurrentIssuer {
    current: ArcSwapOption<ServiceAccounts>,
    pub(crate) changed: Notify,
}

impl CurrentIssuer {
    /// Who issues tokens now.
    pub(crate) fn get(&self) -> Option<Arc<ServiceAccounts>> {
        self.current.load_full()
    }

    /// It is this one from now on.
    pub(crate) fn set(&self, issuer: Option<Arc<ServiceAccounts>>) {
        self.current.store(issuer);
        self.changed.notify_waiters();
    }
}

/// What a token says that was signed by one of the keys.
enum Said {
    Issued(Box<Claims>),
    Legacy(LegacyClaims),
}

impl ServiceAccounts {
    /// Signs by the first key, and trusts all of them.
    pub fn new(mut settings: Settings, keys: Vec<SigningKey>) -> Self {
        if settings.issuers.is_empty() {
            settings.issuers.push(ISSUER.to_owned());
        }
        if settings.audiences.is_empty() {
            settings.audiences.clone_from(&settings.issuers);
        }
        let public = |key: SigningKey| {
            let [x, y] = key.coordinates();
            let decoding = DecodingKey::from_ec_components(&x, &y).ok()?;
            let public = PublicKey::new(Some(key.id().to_owned()), decoding, vec![Algorithm::ES256]);
            Some((key, public))
        };
        Self { settings, keys: keys.into_iter().filter_map(public).collect() }
    }

    /// Whom this server is.
    pub fn audiences(&self) -> &[String] {
        &self.settings.audiences
    }

    /// The authority of this server as PEM.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.settings.ca_pem
    }

    fn issuer(&self) -> &str {
        self.settings.issuers.first().map_or(ISSUER, String::as_str)
    }

    /// `/.well-known/openid-configuration`
    pub(crate) fn discovery(&self) -> Value {
        json!({
            "issuer": self.issuer(),
            "jwks_uri": self.settings.jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// `/openid/v1/jwks`
    pub(crate) fn key_set(&self) -> Value {
        let key = |(key, _): &(SigningKey, PublicKey)| {
            let [x, y] = key.coordinates();
            json!({"use": "sig", "kty": "EC", "kid": key.id(), "crv": "P-256", "alg": "ES256", "x": x, "y": y})
        };
        json!({"keys": self.keys.iter().map(key).collect::<Vec<_>>()})
    }

    /// Whether a token says that it was issued here.
    pub(super) fn is_ours(&self, look: &Look) -> bool {
        look.issuer == LEGACY_ISSUER || self.settings.issuers.contains(&look.issuer)
    }

    /// Judges a token that says that it was issued here; `asked` are whom it has to be for, if not for this server.
    pub(super) fn judge(
        &self,
        token: &str,
        look: &Look,
        asked: Option<&[&str]>,
        bonds: &Bonds,
        env: &Env,
    ) -> Result<Verified, RefusedToken> {
        let said = self.open(token, look)?;
        let (user, audiences, until, bond) = match &said {
            Said::Issued(claims) => {
                let user = claims.user();
                // Those without an audience are for this server.
                let aud = if claims.aud.is_empty() { self.audiences() } else { &claims.aud };
                common(aud, asked, self.audiences())
                    .map_err(|why| RefusedToken::ended(&user.name, "token_audience", why))?;
                let until = claims
                    .until(env.wall())
                    .map_err(|(reason, why)| RefusedToken::ended(&user.name, reason, why))?;
                (user, aud.to_vec(), until, claims.bond())
            }
            Said::Legacy(claims) => {
                let user = claims::user(&claims.namespace, &claims.name, &claims.uid);
                common(self.audiences(), asked, self.audiences())
                    .map_err(|why| RefusedToken::ended(&user.name, "token_audience", why))?;
                if claims.sub != user.name {
                    return Err(RefusedToken::ended(&user.name, "token_invalid", "sub claim is invalid"));
                }
                (user, self.audiences().to_vec(), forever(), claims.bond(token))
            }
        };
        let ended = |why: String| RefusedToken::ended(&user.name, "token_revoked", why);
        let mut hold = bonds.hold(bond).map_err(ended)?;
        hold.until = hold.until.min(until);
        if env.wall() >= hold.until {
            return Err(ended("what it is bound to has been deleted".to_owned()));
        }
        let known = Known { user, by: By::Token, hold: Some(hold) };
        Ok(Verified { known, audiences, again: forever() })
    }

    /// What a token says, if one of the keys has signed it.
    fn open(&self, token: &str, look: &Look) -> Result<Said, RefusedToken> {
        for (_, key) in self.keys.iter().filter(|(_, key)| key.fits(look)) {
            let opened = match look.issuer == LEGACY_ISSUER {
                true => key.open(token, look).map(Said::Legacy),
                false => key.open(token, look).map(|claims| Said::Issued(Box::new(claims))),
            };
            if let Ok(said) = opened {
                return Ok(said);
            }
        }
        Err(RefusedToken::strange("it was not signed by a key of this server"))
    }

    /// The keys that are trusted, by what tokens call them; the first signs.
    pub fn key_ids(&self) -> Vec<String> {
        self.keys.iter().map(|(key, _)| key.id().to_owned()).collect()
    }

    /// What a token calls the key that signed it.
    pub fn key_of(token: &[u8]) -> Option<String> {
        jose::look(std::str::from_utf8(token).ok()?)?.key
    }

    /// Signs what stands in a Secret.
    fn sign_secret(&self, claims: &LegacyClaims) -> Result<String, String> {
        self.sign(claims)
    }

    fn sign<T: serde::Serialize>(&self, claims: &T) -> Result<String, String> {
        let (key, _) = self.keys.first().ok_or("there is no key to sign with")?;
        jose::sign(claims, key.id(), key.pkcs8()).map_err(|error| error.to_string())
    }
}

fn bound(resource: &str, namespace: &str, reference: &Reference) -> Bound {
    Bound { key: Key::new(resource, namespace, reference.name.as_str()), uid: reference.uid.clone() }
}

impl Claims {
    /// When the token ends.
    ///
    /// # Errors
    /// When it has, or has not begun: a word and a sentence for it.
    fn until(&self, now: SystemTime) -> Result<SystemTime, (&'static str, &'static str)> {
        let at = |seconds: i64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(1 << 38))
        };
        let until = at(self.exp) + LEEWAY;
        if now >= until {
            return Err(("token_expired", "service account token has expired"));
        }
        if at(self.nbf) > now + LEEWAY || at(self.iat) > now + LEEWAY {
            return Err(("token_early", "service account token is not valid yet"));
        }
        Ok(until)
    }

    /// What the token is bound to. A Pod brings its node along, which is only told.
    fn bond(&self) -> Bond {
        let own = &self.own;
        let in_namespace = |resource, reference| bound(resource, &own.namespace, reference);
        let other = match (&own.pod, &own.secret, &own.node) {
            (Some(pod), _, _) => Some(in_namespace(PODS, pod)),
            (None, Some(secret), _) => Some(in_namespace(SECRETS, secret)),
            (None, None, Some(node)) => Some(bound(NODES, "", node)),
            (None, None, None) => None,
        };
        Bond { account: in_namespace(ACCOUNTS, &own.serviceaccount), other, copy: None }
    }
}

impl LegacyClaims {
    /// The Secret that a token stands in is what it is bound to.
    fn bond(&self, token: &str) -> Bond {
        let named = |name: &str, uid: &str| Reference { name: name.to_owned(), uid: uid.to_owned() };
        Bond {
            account: bound(ACCOUNTS, &self.namespace, &named(&self.name, &self.uid)),
            other: Some(bound(SECRETS, &self.namespace, &named(&self.secret, ""))),
            copy: Some(Sha256::digest(token).into()),
        }
    }
}
