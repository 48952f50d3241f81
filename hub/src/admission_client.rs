//! Admission webhooks of others, asked over the network: for the embedded API, and for whoever else serves one.

use std::net::SocketAddr;

use futures::future::BoxFuture;
use karmada_api::consts::extension;
use karmada_apiserver::webhooks::{Place, WebhookCaller};
use karmada_client::webhook::{Target, WebhookClient};
use karmada_env::Env;
use karmada_meta::object;
use serde_json::Value;

/// Asks webhooks over the network.
#[derive(Debug)]
pub struct AdmissionClient {
    client: WebhookClient,
    /// Some configurations are templates and nothing else.
    on_a_hub: bool,
}

impl AdmissionClient {
    /// For a server that every configuration is meant for.
    pub fn new(env: &Env) -> Self {
        Self { client: WebhookClient::new(env.clone()), on_a_hub: false }
    }

    /// For a hub, where a configuration may be meant for members alone: see [`extension::MEMBERS_ONLY`].
    pub fn of_hub(env: &Env) -> Self {
        Self { on_a_hub: true, ..Self::new(env) }
    }

    async fn ask(&self, place: &Place, review: &Value) -> Result<Value, String> {
        let address = match &place.dial {
            Some((host, port)) => Some(resolve(host, *port).await?),
            None => None,
        };
        let (url, timeout) = (place.url.as_str(), place.timeout);
        let target = Target { url, address, authorities: place.authorities.as_deref(), timeout };
        self.client.ask(&target, review).await.map_err(|error| error.to_string())
    }
}

async fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    let mut found =
        tokio::net::lookup_host((host, port)).await.map_err(|error| format!("{host}: {error}"))?;
    found.next().ok_or_else(|| format!("{host} has no address"))
}

/// Whether a configuration is meant for members alone.
pub(crate) fn is_for_members(configuration: &Value) -> bool {
    object::label(configuration, extension::MEMBERS_ONLY) == Some("true")
}

impl WebhookCaller for AdmissionClient {
    fn call<'a>(&'a self, place: &'a Place, review: &'a Value) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(self.ask(place, review))
    }

    fn is_meant(&self, configuration: &Value) -> bool {
        !(self.on_a_hub && is_for_members(configuration))
    }

    fn way_out(&self) -> &str {
        match self.on_a_hub {
            true => {
                "; if members alone are meant, label the configuration webhook.karmada.io/members-only=true"
            }
            false => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_for_members_is_not_for_the_hub() {
        let labelled = |value: &str| json!({"metadata": {"labels": {extension::MEMBERS_ONLY: value}}});
        let (hub, other) = (AdmissionClient::of_hub(&Env::system()), AdmissionClient::new(&Env::system()));
        for (configuration, for_hub) in
            [(labelled("true"), false), (labelled("false"), true), (json!({"metadata": {}}), true)]
        {
            assert_eq!(hub.is_meant(&configuration), for_hub, "{configuration}");
            assert!(other.is_meant(&configuration));
        }
        assert!(hub.way_out().contains(extension::MEMBERS_ONLY));
    }
}
