//! Admission webhooks of others, asked over the network.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::future::BoxFuture;
use karmada_api::consts::extension;
use karmada_apiserver::{
    storage::ApiStore,
    webhooks::{Place, WebhookCaller, service_host},
};
use karmada_client::webhook::{Target, WebhookClient};
use karmada_env::Env;
use karmada_meta::object;
use serde_json::Value;

/// Asks webhooks over the network. A configuration may be a template and nothing else: see [`extension::MEMBERS_ONLY`].
#[derive(Debug)]
pub(crate) struct AdmissionClient {
    client: WebhookClient,
}

impl AdmissionClient {
    pub(crate) fn new(env: &Env) -> Self {
        Self { client: WebhookClient::new(env.clone()) }
    }

    async fn ask(&self, place: &Place, review: Bytes) -> Result<Bytes, String> {
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

/// What the author of a configuration is told whose webhooks stand behind Services: on a hub they mostly lead nowhere.
pub(crate) fn unreachable_services(store: &ApiStore, configuration: &Value) -> Vec<String> {
    if is_for_members(configuration) {
        return Vec::new();
    }
    let snapshot = store.snapshot();
    let leads = |namespace: &str, name: &str| {
        let entry = snapshot.find("core/services", namespace, name)?;
        let service: Value = serde_json::from_slice(&entry.value.get()).ok()?;
        service_host(&service).map(drop)
    };
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten().enumerate();
    webhooks
        .filter_map(|(i, webhook)| {
            let service = webhook["clientConfig"].get("service").filter(|service| service.is_object())?;
            let text = |field: &str| service[field].as_str().unwrap_or_default();
            let (namespace, name) = (text("namespace"), text("name"));
            let then = match webhook["failurePolicy"].as_str() {
                Some("Ignore") => "is not asked",
                _ => "refuses everything it is for",
            };
            leads(namespace, name).is_none().then(|| {
                format!(
                    "webhooks[{i}].clientConfig.service: {namespace}/{name} leads nowhere from the hub, so the webhook {then}; \
                     label the configuration {}=true if members alone are meant",
                    extension::MEMBERS_ONLY
                )
            })
        })
        .collect()
}

impl WebhookCaller for AdmissionClient {
    fn call<'a>(&'a self, place: &'a Place, review: Bytes) -> BoxFuture<'a, Result<Bytes, String>> {
        Box::pin(self.ask(place, review))
    }

    fn is_meant(&self, configuration: &Value) -> bool {
        !is_for_members(configuration)
    }

    fn way_out(&self) -> &str {
        "; if members alone are meant, label the configuration webhook.karmada.io/members-only=true"
    }
}

#[cfg(test)]
mod tests {
    use karmada_client::{Patch, Rest};
    use karmada_store::engine::Memory;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::engine::embedded::Embedded;

    #[test]
    fn what_is_for_members_is_not_for_the_hub() {
        let labelled = |value: &str| json!({"metadata": {"labels": {extension::MEMBERS_ONLY: value}}});
        let hub = AdmissionClient::new(&Env::system());
        for (configuration, for_hub) in
            [(labelled("true"), false), (labelled("false"), true), (json!({"metadata": {}}), true)]
        {
            assert_eq!(hub.is_meant(&configuration), for_hub, "{configuration}");
        }
        assert!(hub.way_out().contains(extension::MEMBERS_ONLY));
    }

    #[tokio::test]
    async fn a_configuration_for_members_is_only_kept() {
        let stop = CancellationToken::new();
        let embedded =
            Embedded::start(Memory::new(), &Env::system(), stop.clone()).await.expect("a hub's API");
        let rest = Rest::new(embedded.client());
        let registration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "chart"},
            "webhooks": [{
                "name": "chart.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "default", "name": "chart"}}, "failurePolicy": "Fail",
                "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            }],
        });
        let warnings = unreachable_services(embedded.store(), &configuration);
        assert!(
            warnings[0].contains(
                "default/chart leads nowhere from the hub, so the webhook refuses everything it is for"
            ),
            "{warnings:?}"
        );
        rest.post(registration, &configuration).await.expect("it is kept");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let maps = "/api/v1/namespaces/default/configmaps";
        let refused = rest.post(maps, &map).await.expect_err("nobody can be asked").to_string();
        assert!(
            refused.contains("service \"chart\" not found") && refused.contains(extension::MEMBERS_ONLY),
            "{refused}"
        );
        let label = json!({"metadata": {"labels": {extension::MEMBERS_ONLY: "true"}}});
        let labelled = rest
            .patch(&format!("{registration}/chart"), Patch::Merge, &label)
            .await
            .expect("no webhook is asked about webhooks");
        assert!(unreachable_services(embedded.store(), &labelled).is_empty());
        rest.post(maps, &map).await.expect("nobody is asked");
        stop.cancel();
        embedded.close().await.expect("everything is written");
    }
}
