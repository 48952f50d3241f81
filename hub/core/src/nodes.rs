//! Nodes of a member cluster, as far as room is concerned.

pub mod report;

use std::collections::BTreeMap;

use karmada_api::cluster::Taint;
use karmada_meta::quantity::Quantity;
use serde::{Deserialize, Serialize};

/// The resource that stands for the number of pods.
pub(crate) const PODS: &str = "pods";

/// A node's free resources, and who may run there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name; empty where several nodes are told as one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How many nodes are like this one; 0 counts as one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: i64,
    /// allocatable − requested, pods included.
    #[serde(default)]
    pub free: BTreeMap<String, Quantity>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

fn is_zero(count: &i64) -> bool {
    *count == 0
}
