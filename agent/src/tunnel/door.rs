//! The member's API, as whoever acts in others' names reaches it.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use karmada_client::{
    Endpoint, Rest,
    link::{Io, direct},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::Door;

/// How long a token is asked for.
const LIFE: Duration = Duration::from_secs(3600);

/// Tokens of the account that may do nothing but act in others' names.
#[derive(Debug)]
pub(super) struct Tokens {
    member: Rest,
    namespace: String,
    account: &'static str,
    /// The newest, and until when it is shown.
    current: Mutex<Option<(String, Instant)>>,
}

impl Tokens {
    pub(super) fn new(member: Rest, namespace: String, account: &'static str) -> Self {
        Self { member, namespace, account, current: Mutex::default() }
    }

    async fn get(&self) -> Result<String, String> {
        if let Some((token, until)) = &*self.current.lock()
            && *until > Instant::now()
        {
            return Ok(token.clone());
        }
        let Self { namespace, account, .. } = self;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let asked = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFE.as_secs()},
        });
        let begun = Instant::now();
        let made = self.member.post(&path, &asked).await.map_err(|error| {
            format!(
                "the agent gets no token of the member's account {namespace}/{account}, which manifests/agent/tunnel.yaml \
                 makes: {error}"
            )
        })?;
        let token = made["status"]["token"].as_str().filter(|token| !token.is_empty());
        let token =
            token.ok_or_else(|| format!("the member made no token of its account {namespace}/{account}"))?;
        // A member may give one for less.
        let life = made["spec"]["expirationSeconds"].as_u64().map_or(LIFE, Duration::from_secs).min(LIFE);
        *self.current.lock() = Some((token.to_owned(), begun + life / 5 * 4));
        Ok(token.to_owned())
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Member {
    /// Without anything by which the agent shows itself.
    endpoint: Endpoint,
    prefix: String,
    host: String,
    tokens: Arc<Tokens>,
}

impl Member {
    pub(super) fn new(endpoint: &Endpoint, tokens: Arc<Tokens>) -> Self {
        let server = &endpoint.server;
        let host = server.authority().map(ToString::to_string).unwrap_or_default();
        let prefix = server.path().trim_end_matches('/').to_owned();
        Self { endpoint: direct::as_nobody(endpoint), prefix, host, tokens }
    }
}

impl Door for Member {
    fn dial(&self) -> BoxFuture<'_, Result<Box<dyn Io>, String>> {
        Box::pin(direct::connect(&self.endpoint, |_| None))
    }

    fn token(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(self.tokens.get())
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn refused(&self) {
        *self.tokens.current.lock() = None;
    }
}
