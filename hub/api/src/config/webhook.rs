//! `ResourceInterpreterWebhookConfiguration`: what a kind's fields mean, told by a service of the user's.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::kind::karmada_kind;

karmada_kind! {
    /// Names services that tell what the fields of kinds mean. Scripts in a ResourceInterpreterCustomization go before
    /// them, the hub's own rules after them.
    ResourceInterpreterWebhookConfiguration (
        "config.karmada.io"/"v1alpha1", "resourceinterpreterwebhookconfigurations", Cluster
    ) {
        webhooks: Vec<ResourceInterpreterWebhook>,
    }
    short [], categories ["karmada-io"], subresources Absent, columns []
}

/// A service and what it is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterWebhook {
    /// A name with at least three parts: `things.example.com`.
    pub name: String,
    /// Where it is.
    pub client_config: WebhookClientConfig,
    /// What it is asked about. It is asked what any rule matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleWithOperations>,
    /// How long it may take, in seconds: 1 to 30, 10 if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Versions of the question that it understands; `v1alpha1` is the one there is.
    pub interpreter_context_versions: Vec<String>,
}

/// Where a service is. A `service` goes before a `url`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookClientConfig {
    /// `https://host:port/path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
    /// The authorities for its certificate: PEM, in base64. The system's if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes")]
    pub ca_bundle: Option<String>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The path of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its port; 443 if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// Questions about kinds. Everywhere `*` means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleWithOperations {
    /// Questions: `InterpretReplica`, `Retain` and so on.
    pub operations: Vec<String>,
    /// Groups; the empty one is the core group.
    pub api_groups: Vec<String>,
    /// Versions.
    pub api_versions: Vec<String>,
    /// Kinds.
    pub kinds: Vec<String>,
}

fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "byte" })
}
