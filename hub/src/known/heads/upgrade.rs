//! The request for a version of the agents.

use std::collections::BTreeMap;

use karmada_api::consts::extension;
use karmada_core::{rollout, upgrade::request};
use karmada_meta::object;
use serde_json::Value;

/// What the hub remembers of the ConfigMap: all that is no answer of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UpgradeHead {
    data: BTreeMap<String, String>,
    command: Option<String>,
    state: Option<String>,
}

impl UpgradeHead {
    /// Projects the ConfigMap.
    pub(crate) fn project(value: &Value) -> Self {
        let data = value["data"].as_object().into_iter().flatten();
        let data = data.filter(|(key, _)| *key != request::STATUS);
        let annotation = |key: &str| object::annotation(value, key).map(str::to_owned);
        Self {
            data: data
                .map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned()))
                .collect(),
            command: annotation(extension::ROLLOUT_COMMAND),
            state: annotation(rollout::STATE),
        }
    }
}
