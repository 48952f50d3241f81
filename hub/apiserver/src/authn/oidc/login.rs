//! People log in at the issuer's own page: the authorization code flow with PKCE (RFC 6749, 7636; OpenID Connect Core 3.1).
//!
//! ```text
//!   browser ─ our address ─► to the issuer's page: client, state, nonce, challenge      the browser keeps the attempt
//!   browser ◄─ code, state ─ the issuer's page
//!   browser ─ our address ─► is the state the attempt's? ─ code, verifier ─► the issuer's token endpoint ─► ID token
//! ```
//!
//! Nothing is kept here between the two: the attempt is in the browser, which alone can end it. The ID token that comes of it
//! is judged as any that somebody shows.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use form_urlencoded::{Serializer, byte_serialize};
use jsonwebtoken::dangerous::insecure_decode_claims;
use karmada_env::Secret;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

use super::{IssuerClient, Oidc};

/// The longest code that is taken to the issuer.
const LONGEST: usize = 4096;

/// Where an issuer has people log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoints {
    authorization: String,
    token: String,
}

impl Endpoints {
    /// As its configuration has them.
    pub(super) fn of(about: &Value) -> Option<Self> {
        let url = |field: &str| {
            let text = about[field].as_str()?;
            (text.starts_with("https://") && !text.contains('#')).then(|| text.to_owned())
        };
        Some(Self { authorization: url("authorization_endpoint")?, token: url("token_endpoint")? })
    }
}

/// One try to log in, which the browser keeps that has begun it.
#[derive(Debug)]
pub struct Attempt {
    /// Comes back from the issuer's page.
    state: Secret,
    /// Whoever has it may redeem the code.
    verifier: Secret,
}

impl Default for Attempt {
    fn default() -> Self {
        Self { state: Secret::new(), verifier: Secret::new() }
    }
}

impl Attempt {
    /// What the browser keeps.
    pub fn kept(&self) -> Secret {
        Secret::known(format!("{}.{}", self.state.expose(), self.verifier.expose()))
    }

    /// What a browser has kept, if it is one.
    pub fn read(kept: &str) -> Option<Self> {
        let (state, verifier) = kept.split_once('.')?;
        let is = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is(state) && is(verifier))
            .then(|| Self { state: Secret::known(state), verifier: Secret::known(verifier) })
    }

    /// Whether the issuer's page answers to this one.
    pub fn is_of(&self, state: &str) -> bool {
        bool::from(self.state.expose().as_bytes().ct_eq(state.as_bytes()))
    }

    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.expose()))
    }

    /// Stands in the ID token, so that nobody passes on one of another login.
    fn nonce(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(format!("nonce {}", self.verifier.expose())))
    }
}

impl Oidc {
    /// The host of the issuer, for people.
    pub fn host(&self) -> &str {
        let rest = self.settings.issuer.strip_prefix("https://").unwrap_or_default();
        rest.split('/').next().unwrap_or_default()
    }

    /// Whether people can log in at the issuer's page.
    pub fn has_login(&self) -> bool {
        self.endpoints.load().is_some()
    }

    /// The address of the issuer's page, for a browser that is to come back to `back`.
    pub fn begin(&self, attempt: &Attempt, back: &str) -> Option<String> {
        let endpoints = self.endpoints.load_full()?;
        let scopes: Vec<&str> =
            ["openid"].into_iter().chain(self.settings.scopes.iter().map(String::as_str)).collect();
        let query = Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", back)
            .append_pair("scope", &scopes.join(" "))
            .append_pair("state", attempt.state.expose())
            .append_pair("nonce", &attempt.nonce())
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256")
            .finish();
        let joint = if endpoints.authorization.contains('?') { '&' } else { '?' };
        Some(format!("{}{joint}{query}", endpoints.authorization))
    }

    /// The ID token for a code that the issuer's page gave.
    ///
    /// # Errors
    /// Why there is none, for the log.
    pub async fn redeem(
        &self,
        client: &dyn IssuerClient,
        attempt: &Attempt,
        code: &str,
        back: &str,
    ) -> Result<Secret, String> {
        let endpoints = self.endpoints.load_full().ok_or("the issuer has no token endpoint")?;
        if code.is_empty() || code.len() > LONGEST {
            return Err(format!("a code has 1 to {LONGEST} characters"));
        }
        let (id, secret) = (&self.settings.client_id, &self.settings.client_secret);
        let public = secret.is_none().then_some(("client_id", id.as_str()));
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", back),
            ("code_verifier", attempt.verifier.expose()),
        ];
        let form = Serializer::new(String::new()).extend_pairs(fields.into_iter().chain(public)).finish();
        // RFC 6749, 2.3.1: both are encoded like the parts of a form.
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let shown = secret.as_ref().map(|secret| (encoded(id), Secret::known(encoded(secret.expose()))));
        let as_whom = shown.as_ref().map(|(id, secret)| (id.as_str(), secret));
        let answer = client.post(&endpoints.token, form, as_whom).await?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("the answer of the token endpoint is no JSON: {error}"))?;
        let token = answer["id_token"].as_str().ok_or("the answer of the token endpoint has no id_token")?;
        let claims: Map<String, Value> =
            insecure_decode_claims(token).map_err(|error| format!("the ID token cannot be read: {error}"))?;
        if claims.get("nonce").and_then(Value::as_str) != Some(&attempt.nonce()) {
            return Err("the ID token is of another login".to_owned());
        }
        Ok(Secret::known(token))
    }
}
