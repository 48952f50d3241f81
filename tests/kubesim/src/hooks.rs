//! Admission webhooks, asked over the network: on a stand-in every configuration is meant.

use bytes::Bytes;
use futures::future::BoxFuture;
use karmada_apiserver::webhooks::{Place, WebhookCaller};
use karmada_client::webhook::{Target, WebhookClient};
use karmada_env::Env;

/// Asks webhooks over the network.
#[derive(Debug)]
pub(crate) struct Hooks(WebhookClient);

impl Hooks {
    pub(crate) fn new(env: &Env) -> Self {
        Self(WebhookClient::new(env.clone()))
    }

    async fn ask(&self, place: &Place, review: Bytes) -> Result<Bytes, String> {
        let address = match &place.dial {
            Some((host, port)) => {
                let found = tokio::net::lookup_host((host.as_str(), *port)).await;
                let first = found.map_err(|error| format!("{host}: {error}"))?.next();
                Some(first.ok_or_else(|| format!("{host} has no address"))?)
            }
            None => None,
        };
        let (url, timeout) = (place.url.as_str(), place.timeout);
        let target = Target { url, address, authorities: place.authorities.as_deref(), timeout };
        self.0.ask(&target, review).await.map_err(|error| error.to_string())
    }
}

impl WebhookCaller for Hooks {
    fn call<'a>(&'a self, place: &'a Place, review: Bytes) -> BoxFuture<'a, Result<Bytes, String>> {
        Box::pin(self.ask(place, review))
    }
}
