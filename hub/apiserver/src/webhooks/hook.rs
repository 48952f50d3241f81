//! What a configuration says of each of its webhooks, read once and ready for every write.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use karmada_meta::labels::{LabelSelector, Selector};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::conditions::Conditions;

/// What a configuration that says nothing gets.
const TIMEOUT_SECONDS: u64 = 10;

/// One webhook.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The name of its configuration.
    pub(crate) configuration: String,
    /// Its own.
    pub(crate) name: String,
    pub(crate) rules: Vec<Rule>,
    /// Only what the rules name, not the same resource in another version.
    pub(crate) exact: bool,
    /// A call that fails is as good as none.
    pub(crate) ignores_failures: bool,
    /// It may be called though nothing is stored.
    pub(crate) dry_run: bool,
    /// It is called again when somebody changed what it had seen.
    pub(crate) reinvoked: bool,
    pub(crate) timeout: Duration,
    pub(crate) namespaces: Result<Selector, String>,
    pub(crate) objects: Result<Selector, String>,
    pub(crate) conditions: Conditions,
    /// The first version of AdmissionReview in its list that is known: `v1` or `v1beta1`.
    pub(crate) review_version: Option<&'static str>,
    pub(crate) client: Client,
    /// PEM, or why there is none.
    pub(crate) authorities: Result<Option<Arc<[u8]>>, String>,
}

/// Which requests a webhook is for. `*` stands for all.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(deserialize_with = "or_default")]
    pub(crate) operations: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) api_versions: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) resources: Vec<String>,
    pub(crate) scope: Option<String>,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Url(String),
    Service { namespace: String, name: String, port: u16, path: String },
    Nowhere,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    rules: Vec<Rule>,
    failure_policy: Option<String>,
    match_policy: Option<String>,
    namespace_selector: Option<LabelSelector>,
    object_selector: Option<LabelSelector>,
    side_effects: Option<String>,
    timeout_seconds: Option<u64>,
    reinvocation_policy: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    admission_review_versions: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    match_conditions: Vec<RawCondition>,
    #[serde(default)]
    client_config: RawClient,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCondition {
    expression: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawClient {
    url: Option<String>,
    service: Option<RawService>,
    ca_bundle: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawService {
    namespace: String,
    name: String,
    path: Option<String>,
    port: Option<u16>,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

/// The webhooks of a configuration, in their order.
///
/// # Errors
/// What cannot be read. A stored configuration has been validated, so that this is a mistake of ours.
pub(crate) fn read(configuration: &Value) -> Result<Vec<Hook>, serde_json::Error> {
    let name = karmada_meta::object::name(configuration);
    let raw: Option<Vec<Raw>> = Deserialize::deserialize(&configuration["webhooks"])?;
    Ok(raw.unwrap_or_default().into_iter().map(|raw| Hook::new(name, raw)).collect())
}

impl Hook {
    fn new(configuration: &str, raw: Raw) -> Self {
        let selector = |selector: Option<LabelSelector>| {
            selector.unwrap_or_default().to_selector().map_err(|error| error.to_string())
        };
        let known = |version: &String| match version.as_str() {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        };
        let client = raw.client_config;
        let authorities = match client.ca_bundle.as_deref() {
            None | Some("") => Ok(None),
            Some(bundle) => BASE64_STANDARD
                .decode(bundle)
                .map(|pem| Some(pem.into()))
                .map_err(|error| format!("clientConfig.caBundle is not base64: {error}")),
        };
        Self {
            configuration: configuration.to_owned(),
            name: raw.name,
            rules: raw.rules,
            exact: raw.match_policy.as_deref() == Some("Exact"),
            ignores_failures: raw.failure_policy.as_deref() == Some("Ignore"),
            dry_run: matches!(raw.side_effects.as_deref(), Some("None" | "NoneOnDryRun")),
            reinvoked: raw.reinvocation_policy.as_deref() == Some("IfNeeded"),
            timeout: Duration::from_secs(raw.timeout_seconds.unwrap_or(TIMEOUT_SECONDS)),
            namespaces: selector(raw.namespace_selector),
            objects: selector(raw.object_selector),
            conditions: Conditions::compile(raw.match_conditions.into_iter().map(|c| c.expression)),
            review_version: raw.admission_review_versions.iter().find_map(known),
            client: match (client.service, client.url) {
                (Some(service), _) => Client::Service {
                    namespace: service.namespace,
                    name: service.name,
                    port: service.port.unwrap_or(443),
                    path: service.path.unwrap_or_default(),
                },
                (None, Some(url)) => Client::Url(url),
                (None, None) => Client::Nowhere,
            },
            authorities,
        }
    }
}
