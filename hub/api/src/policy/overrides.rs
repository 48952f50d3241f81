//! `OverridePolicy` and `ClusterOverridePolicy`: what differs from cluster to cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClusterAffinity, ResourceSelector};
use crate::{
    kind::karmada_kind,
    schema,
    serde_util::{is_default, words},
};

karmada_kind! {
    /// Says what differs, from cluster to cluster, in the objects that it selects in its namespace.
    OverridePolicy ("policy.karmada.io"/"v1alpha1", "overridepolicies", Namespaced) {
        spec: OverrideSpec,
    }
    short ["op"], categories ["karmada-io"], subresources Absent, columns []
}

karmada_kind! {
    /// Says what differs, from cluster to cluster, in the objects that it selects in any namespace or in none.
    ClusterOverridePolicy ("policy.karmada.io"/"v1alpha1", "clusteroverridepolicies", Cluster) {
        spec: OverrideSpec,
    }
    short ["cop"], categories ["karmada-io"], subresources Absent, columns []
}

/// What differs in which objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideSpec {
    /// The objects; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_selectors: Vec<ResourceSelector>,
    /// What differs on which clusters, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub override_rules: Vec<RuleWithCluster>,
    /// Deprecated: use overrideRules. The clusters of the overriders beside it; all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// Deprecated: use overrideRules.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overriders: Overriders,
}

/// What differs on some clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleWithCluster {
    /// The clusters; all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// What differs there.
    pub overriders: Overriders,
}

/// The ways to change an object. They are applied in the order image, command, args, labels, annotations, field,
/// plaintext.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overriders {
    /// Changes of any field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plaintext: Vec<PlaintextOverrider>,
    /// Changes of images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_overrider: Vec<ImageOverrider>,
    /// Changes of containers' commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_overrider: Vec<CommandArgsOverrider>,
    /// Changes of containers' arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args_overrider: Vec<CommandArgsOverrider>,
    /// Changes of labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels_overrider: Vec<LabelAnnotationOverrider>,
    /// Changes of annotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations_overrider: Vec<LabelAnnotationOverrider>,
    /// Changes inside a JSON or YAML text that a field holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub field_overrider: Vec<FieldOverrider>,
}

words! {
    /// What an overrider does.
    OverriderOperator {
        /// Adds a value.
        Add = "add",
        /// Takes a value away.
        Remove = "remove",
        /// Puts a value in the place of another.
        Replace = "replace",
    }
}

words! {
    /// A part of an image's name.
    ImageComponent {
        /// `registry.k8s.io` in `registry.k8s.io/pause:3.10`.
        Registry = "Registry",
        /// `pause` in `registry.k8s.io/pause:3.10`.
        Repository = "Repository",
        /// The tag or digest: `3.10` in `registry.k8s.io/pause:3.10`.
        Tag = "Tag",
    }
}

/// A change of any field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaintextOverrider {
    /// The field, as a JSON pointer.
    pub path: String,
    /// add, remove or replace.
    pub operator: OverriderOperator,
    /// The new value; none for remove.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::any")]
    pub value: Value,
}

/// A change of images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageOverrider {
    /// The one image to change; without it those of all containers of Pods and of the kinds that make them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    /// The part of the name to change.
    pub component: ImageComponent,
    /// add, remove or replace.
    pub operator: OverriderOperator,
    /// The new value; none for remove.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// Picks an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePredicate {
    /// The image's field, as a JSON pointer.
    pub path: String,
}

/// A change of a container's command or arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandArgsOverrider {
    /// The container.
    pub container_name: String,
    /// add or remove.
    #[schemars(extend("enum" = ["add", "remove"]))]
    pub operator: OverriderOperator,
    /// The words that are appended, or taken out wherever they stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value: Vec<String>,
}

/// A change of labels or annotations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelAnnotationOverrider {
    /// add, remove or replace (only keys that are there).
    pub operator: OverriderOperator,
    /// The keys and their values.
    pub value: BTreeMap<String, String>,
}

/// A change inside a text that a field holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldOverrider {
    /// The field, as a JSON pointer.
    pub field_path: String,
    /// Changes if the text is JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json: Vec<FieldPatchOperation>,
    /// Changes if the text is YAML.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yaml: Vec<FieldPatchOperation>,
}

/// One change inside a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldPatchOperation {
    /// The place inside the text, as a JSON pointer.
    pub sub_path: String,
    /// add, remove or replace.
    pub operator: OverriderOperator,
    /// The new value; none for remove.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::any")]
    pub value: Value,
}
