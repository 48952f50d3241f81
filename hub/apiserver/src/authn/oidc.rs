//! ID tokens of an issuer that an operator has named: OpenID Connect, by kube-apiserver's `--oidc-*` rules.
//!
//! ```text
//!   issuer/.well-known/openid-configuration ─► jwks_uri ─► keys ◄─ a request's token: issuer, audience, time, claims ─► user
//!        (a task, every few minutes, and soon after a token names a key that is not known)
//! ```
//!
//! No request waits for the issuer: a token by a key that is not known yet is refused, and the key is there for the next try.
//! While the issuer is away the keys that are known go on.
//!
//! # What differs
//!
//! Users and groups whose names begin with `system:`, prefix included, are the server's own: such a user is refused, such a
//! group left out. kube-apiserver takes both from an issuer that runs without prefixes. Distributed claims are not followed.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use futures::future::BoxFuture;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use karmada_env::{Env, Secret};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    epochs::Hold,
    jose::{ALGORITHMS, Look, PublicKey},
    known::{By, CREDENTIAL_ID, Known, RefusedToken},
    verified::Verified,
};
use crate::identity::UserInfo;

pub mod login;
#[cfg(test)]
mod tests;

/// Keys are fetched again after this.
const REFRESH: Duration = Duration::from_secs(300);
/// Never sooner than this, whatever is asked for or has failed.
const LEAST: Duration = Duration::from_secs(10);
/// So long does a token that was found good do without a look at its key, which the issuer may have taken back.
const TRUSTED: Duration = Duration::from_secs(10);
/// Tokens that are not valid yet by so much are taken, as by kube-apiserver.
const EARLY: Duration = Duration::from_secs(300);
/// The most keys of an issuer.
const MOST_KEYS: usize = 64;
/// With so many of them a signature is tried that says of none that it is its own: each try costs a stranger nothing.
const MOST_TRIES: usize = 8;
/// The most groups of a user.
const MOST_GROUPS: usize = 1024;
/// What names begin with that no issuer gives.
const RESERVED: &str = "system:";

/// What an operator says about an issuer.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Its URL, as its tokens have it.
    pub issuer: String,
    /// Whom tokens have to be for.
    pub client_id: String,
    /// The claim that is the user's name.
    pub username_claim: String,
    /// What user names begin with. Empty: the issuer and `#`, unless the claim is `email`. `-`: nothing.
    pub username_prefix: String,
    /// The claim that lists the user's groups; empty: none.
    pub groups_claim: String,
    /// What groups begin with.
    pub groups_prefix: String,
    /// Claims that have to have these values.
    pub required: BTreeMap<String, String>,
    /// The algorithms that signatures may be of; none: RS256.
    pub algorithms: Vec<String>,
    /// What this server shows the issuer when somebody logs in; nothing for a public client.
    pub client_secret: Option<Arc<Secret>>,
    /// What is asked for beside `openid` when somebody logs in.
    pub scopes: Vec<String>,
}

/// What asks an issuer: bounded in time and size.
pub trait IssuerClient: Send + Sync + fmt::Debug {
    /// The answer at a URL.
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Vec<u8>, String>>;

    /// The answer to a form at a URL, from whoever has this name and secret, if any.
    fn post<'a>(
        &'a self,
        url: &'a str,
        form: String,
        as_whom: Option<(&'a str, &'a Secret)>,
    ) -> BoxFuture<'a, Result<Vec<u8>, String>>;
}

/// An issuer, and the keys of it that are known.
pub struct Oidc {
    settings: Settings,
    algorithms: Vec<Algorithm>,
    keys: ArcSwapOption<Vec<PublicKey>>,
    /// Where people log in, if it says so.
    endpoints: ArcSwapOption<login::Endpoints>,
    /// A token has named a key that is not known.
    wanted: Notify,
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oidc").field("issuer", &self.settings.issuer).finish_non_exhaustive()
    }
}

impl Oidc {
    /// An issuer of which no key is known yet.
    ///
    /// # Errors
    /// What is wrong with a setting; it begins with the flag of kube-apiserver's that stands for it.
    pub fn new(mut settings: Settings) -> Result<Self, String> {
        let Settings { issuer, client_id, .. } = &settings;
        let uri: http::Uri =
            issuer.parse().map_err(|error| format!("--oidc-issuer-url: {issuer:?} is not a URL: {error}"))?;
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        if uri.scheme_str() != Some("https") || authority.is_empty() || authority.contains('@') {
            return Err(format!("--oidc-issuer-url: {issuer:?} has to be https://HOST[:PORT][/PATH]"));
        }
        if uri.query().is_some() || issuer.contains('#') {
            return Err(format!("--oidc-issuer-url: {issuer:?} may have no query and no fragment"));
        }
        if client_id.is_empty() {
            return Err("--oidc-client-id is needed with --oidc-issuer-url".to_owned());
        }
        if settings.username_claim.is_empty() {
            "sub".clone_into(&mut settings.username_claim);
        }
        settings.username_prefix = match settings.username_prefix.as_str() {
            "-" => String::new(),
            "" if settings.username_claim != "email" => format!("{}#", settings.issuer),
            prefix => prefix.to_owned(),
        };
        if settings.algorithms.is_empty() {
            settings.algorithms.push("RS256".to_owned());
        }
        let known = |name: &String| {
            let known = ALGORITHMS.iter().find(|(known, _)| known == name).map(|(_, algorithm)| *algorithm);
            let all = ALGORITHMS.map(|(name, _)| name).join(", ");
            known.ok_or_else(|| format!("--oidc-signing-algs: {name:?} is none of {all}"))
        };
        let algorithms = settings.algorithms.iter().map(known).collect::<Result<_, _>>()?;
        Ok(Self {
            settings,
            algorithms,
            keys: ArcSwapOption::empty(),
            endpoints: ArcSwapOption::empty(),
            wanted: Notify::new(),
        })
    }

    /// Keeps the keys current until `shutdown`.
    pub async fn follow(
        self: Arc<Self>,
        client: Arc<dyn IssuerClient>,
        env: Env,
        shutdown: CancellationToken,
    ) {
        let mut failing = None;
        loop {
            let fetched = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                fetched = self.fetch(&*client) => fetched,
            };
            let pause = match fetched {
                Ok(count) => {
                    if failing.take().is_some() {
                        tracing::info!(
                            issuer = self.settings.issuer,
                            keys = count,
                            "the issuer answers again"
                        );
                    }
                    REFRESH
                }
                Err(why) => {
                    // The same is not said every few seconds.
                    if failing.as_ref() != Some(&why) {
                        let known = self.keys.load().as_ref().map_or(0, |keys| keys.len());
                        tracing::warn!(
                            issuer = self.settings.issuer,
                            why,
                            known,
                            "cannot fetch the issuer's keys"
                        );
                        failing = Some(why);
                    }
                    env.jitter(LEAST, 0.5)
                }
            };
            let again = async {
                tokio::time::sleep(LEAST).await;
                tokio::select! {
                    () = tokio::time::sleep(pause.saturating_sub(LEAST)) => {}
                    () = self.wanted.notified() => {}
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = again => {}
            }
        }
    }

    /// Fetches the keys; how many can be used.
    async fn fetch(&self, client: &dyn IssuerClient) -> Result<usize, String> {
        let issuer = &self.settings.issuer;
        let about = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let about = json_at(client, &about).await?;
        let named = about["issuer"].as_str().unwrap_or_default();
        if named != issuer {
            return Err(format!("its configuration names another issuer, {named:?}"));
        }
        let jwks = about["jwks_uri"].as_str().filter(|uri| uri.starts_with("https://"));
        let jwks = jwks.ok_or("its configuration names no jwks_uri that begins with https://")?;
        let keys = self.read_keys(&json_at(client, jwks).await?)?;
        let count = keys.len();
        self.keys.store(Some(Arc::new(keys)));
        self.endpoints.store(login::Endpoints::of(&about).map(Arc::new));
        Ok(count)
    }

    /// The keys of a set that can be used here.
    fn read_keys(&self, set: &Value) -> Result<Vec<PublicKey>, String> {
        let keys = set["keys"].as_array().ok_or("its key set has no list of keys")?;
        if keys.len() > MOST_KEYS {
            return Err(format!("its key set has {} keys, and may have {MOST_KEYS}", keys.len()));
        }
        Ok(keys.iter().filter_map(|key| self.read_key(key)).collect())
    }

    fn read_key(&self, key: &Value) -> Option<PublicKey> {
        let text = |field: &str| key[field].as_str().unwrap_or_default();
        if !matches!(text("use"), "" | "sig") {
            return None;
        }
        let (decoding, fits): (_, fn(Algorithm) -> bool) = match (text("kty"), text("crv")) {
            ("RSA", _) => (DecodingKey::from_rsa_components(text("n"), text("e")), |algorithm| {
                algorithm.family() == AlgorithmFamily::Rsa
            }),
            ("EC", "P-256") => (DecodingKey::from_ec_components(text("x"), text("y")), |algorithm| {
                algorithm == Algorithm::ES256
            }),
            ("EC", "P-384") => (DecodingKey::from_ec_components(text("x"), text("y")), |algorithm| {
                algorithm == Algorithm::ES384
            }),
            _ => return None,
        };
        let named = ALGORITHMS.iter().find(|(name, _)| *name == text("alg")).map(|(_, algorithm)| *algorithm);
        if !text("alg").is_empty() && named.is_none() {
            return None;
        }
        let algorithms: Vec<Algorithm> = self
            .algorithms
            .iter()
            .copied()
            .filter(|algorithm| fits(*algorithm) && named.is_none_or(|named| named == *algorithm))
            .collect();
        let id = key["kid"].as_str().map(str::to_owned);
        decoding.ok().filter(|_| !algorithms.is_empty()).map(|key| PublicKey::new(id, key, algorithms))
    }

    /// Whether a token says that it is of this issuer.
    pub(super) fn is_ours(&self, look: &Look) -> bool {
        look.issuer == self.settings.issuer
    }

    /// Judges a token of this issuer, for a server that is known by these audiences.
    pub(super) fn judge(
        &self,
        token: &str,
        look: &Look,
        audiences: &[String],
        now: SystemTime,
    ) -> Result<Verified, RefusedToken> {
        let keys = self.keys.load();
        let Some(keys) = keys.as_deref() else {
            self.wanted.notify_one();
            return Err(RefusedToken::strange("oidc: no keys of the issuer have been fetched yet"));
        };
        let mut fitting = keys.iter().filter(|key| key.fits(look)).peekable();
        if fitting.peek().is_none() && self.algorithms.contains(&look.algorithm) {
            self.wanted.notify_one();
            return Err(RefusedToken::strange(
                "oidc: it names a key of the issuer that is not known here yet",
            ));
        }
        let claims: Map<String, Value> = fitting
            .take(MOST_TRIES)
            .find_map(|key| key.open(token, look).ok())
            .ok_or_else(|| RefusedToken::strange("oidc: it was not signed by a key of the issuer"))?;
        let (user, until) = self.read(&claims, now).map_err(|why| {
            let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
            let (reason, why) = why;
            RefusedToken::ended(
                &format!("{}#{subject}", self.settings.issuer),
                reason,
                format!("oidc: {why}"),
            )
        })?;
        // No object stands behind it: it ends by time alone.
        let hold = Hold { ended: CancellationToken::new(), until, leaving: false };
        let known = Known { user, by: By::Token, hold: Some(hold) };
        Ok(Verified { known, audiences: audiences.to_vec(), again: now + TRUSTED })
    }

    /// The user that claims make, and until when.
    fn read(
        &self,
        claims: &Map<String, Value>,
        now: SystemTime,
    ) -> Result<(UserInfo, SystemTime), (&'static str, String)> {
        let Settings { issuer, client_id, username_claim, username_prefix, .. } = &self.settings;
        let text = |claim: &str| claims.get(claim).and_then(Value::as_str);
        let refuse = |why: String| ("token_invalid", why);
        if text("iss") != Some(issuer) {
            return Err(refuse("it is of another issuer".to_owned()));
        }
        let audience = |value: &Value| value.as_str() == Some(client_id);
        let for_us = match claims.get("aud") {
            Some(Value::Array(list)) => list.iter().any(audience),
            Some(one) => audience(one),
            None => false,
        };
        if !for_us {
            return Err(("token_audience", format!("its audience is not {client_id:?}")));
        }
        let until = claims.get("exp").and_then(time).ok_or_else(|| refuse("it has no end".to_owned()))?;
        if now >= until {
            return Err(("token_expired", "it has expired".to_owned()));
        }
        if let Some(begins) = claims.get("nbf").filter(|value| !value.is_null()) {
            let begins = time(begins).ok_or_else(|| refuse("nbf is no time".to_owned()))?;
            if begins > now + EARLY {
                return Err(("token_early", "it is not valid yet".to_owned()));
            }
        }
        for (claim, wanted) in &self.settings.required {
            if text(claim) != Some(wanted) {
                return Err(refuse(format!("its claim {claim:?} is not {wanted:?}, which is required")));
            }
        }
        let name = text(username_claim)
            .filter(|name| !name.is_empty())
            .ok_or_else(|| refuse(format!("its claim {username_claim:?} is no name")))?;
        if username_claim == "email"
            && claims.get("email_verified").is_some_and(|is| *is != Value::Bool(true))
        {
            return Err(refuse("its email is not verified".to_owned()));
        }
        let name = format!("{username_prefix}{name}");
        if name.starts_with(RESERVED) {
            return Err(refuse(format!("{name:?} begins with {RESERVED}, which no issuer may give")));
        }
        let groups = self.groups(claims).map_err(refuse)?;
        let id = text("jti").filter(|id| !id.is_empty()).map(|id| vec![format!("JTI={id}")]);
        let extra = id.map(|id| (CREDENTIAL_ID.to_owned(), id)).into_iter().collect();
        Ok((UserInfo { extra, ..UserInfo::new(name, groups) }, until))
    }

    fn groups(&self, claims: &Map<String, Value>) -> Result<Vec<String>, String> {
        let Settings { groups_claim, groups_prefix, .. } = &self.settings;
        let wrong = || format!("its claim {groups_claim:?} is neither a name nor a list of names");
        let named: Vec<&str> = match claims.get(groups_claim).filter(|_| !groups_claim.is_empty()) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(list)) => {
                list.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        if named.len() > MOST_GROUPS {
            return Err(format!("it has {} groups, and may have {MOST_GROUPS}", named.len()));
        }
        let named = named.into_iter().map(|group| format!("{groups_prefix}{group}"));
        Ok(named.filter(|group| !group.starts_with(RESERVED)).collect())
    }
}

/// A time of a token: seconds, which may have a fraction.
fn time(value: &Value) -> Option<SystemTime> {
    let seconds = value.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
    // The cast stops at the largest there is.
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs((seconds as u64).min(1 << 38)))
}

async fn json_at(client: &dyn IssuerClient, url: &str) -> Result<Value, String> {
    let bytes = client.get(url).await.map_err(|why| format!("{url}: {why}"))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{url}: its answer is not JSON: {error}"))
}
