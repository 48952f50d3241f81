//! `ResourceInterpreterCustomization`: what a kind's fields mean, told by a user in Lua. Those that ask a service stand
//! in [`webhook`].

pub mod webhook;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, karmada_kind};

karmada_kind! {
    /// Tells what the fields of a kind mean, with scripts. It goes before every other rule.
    ResourceInterpreterCustomization (
        "config.karmada.io"/"v1alpha1", "resourceinterpretercustomizations", Cluster
    ) {
        spec: ResourceInterpreterCustomizationSpec,
    }
    short ["ric"], categories ["karmada-io"], subresources Empty, columns [
        Column::text("TARGET-API-VERSION", ".spec.target.apiVersion"),
        Column::text("TARGET-KIND", ".spec.target.kind"),
        Column::age("AGE"),
    ]
}

/// A kind and the rules for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterCustomizationSpec {
    /// The kind.
    pub target: CustomizationTarget,
    /// The rules.
    pub customizations: CustomizationRules,
}

/// A kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationTarget {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// Rules, each a script with one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationRules {
    /// `Retain(desiredObj, observedObj)`: the desired object with what the member may decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Script>,
    /// `GetReplicas(desiredObj)`: the number of replicas and what each of them needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_resource: Option<Script>,
    /// `GetComponents(desiredObj)`: the parts of an object that has several kinds of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_resource: Option<Script>,
    /// `ReviseReplica(desiredObj, desiredReplica)`: the object with another number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_revision: Option<Script>,
    /// `ReflectStatus(observedObj)`: what of the status is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reflection: Option<Script>,
    /// `AggregateStatus(desiredObj, statusItems)`: the object with the reports of all clusters in its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_aggregation: Option<Script>,
    /// `InterpretHealth(observedObj)`: whether the object does its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_interpretation: Option<Script>,
    /// `GetDependencies(desiredObj)`: what the object refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency_interpretation: Option<Script>,
}

/// A script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Script {
    /// Lua 5.1 that defines the function.
    pub lua_script: String,
}
