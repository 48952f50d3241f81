//! Custom resources: definitions and what is served of them.
//!
//! ```text
//!   definition ──► definition.rs  is it valid?           crate::structural  is its schema usable?
//!        │
//!        ├──────► status.rs      which names it got, whether it is established
//!        │
//!        └──────► kinds_of ──► Kind + CustomShape ──► crate::structural (compiled: fills, judges)
//! ```
//!
//! Everything here is a pure function of definitions and objects, but for `served.rs`, which keeps what the stored
//! definitions come to, and `schemas.rs`, which keeps since when they have been so. Their status is written by the controller `definitions`.
//!
//! Not here: conversion webhooks are refused where they would be called.

pub mod definition;
mod parts;
pub(crate) mod schemas;
pub(crate) mod served;
mod shape;
pub mod status;

use std::{cmp::Ordering, sync::Arc};

use karmada_meta::object;
use serde_json::{Value, json};

pub use self::shape::CustomShape;
use self::{
    definition::{storage_version, versions},
    parts::{list, text},
};
use crate::kinds::{
    Column, Custom, Kind, KindSpec, ScalePaths, Subresource, rules as kind_rules, versions as order,
};

/// Where definitions are stored.
pub(crate) const STORAGE: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Verbs of a custom resource, in the order of kube-apiserver's discovery.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// What is served of a definition: one kind for each served version once its names are accepted, none before.
pub fn kinds_of(definition: &Value) -> Vec<Kind> {
    if !status::is_true(definition, "Established") {
        return Vec::new();
    }
    let served = versions(definition).iter().filter(|v| v["served"] == json!(true));
    served.filter_map(|v| kind_of(definition, text(v, "/name"))).collect()
}

/// The kind by which stored objects are read, whether or not any version is served; `None` for a definition without a
/// storage version.
pub fn any_kind(definition: &Value) -> Option<Kind> {
    kind_of(definition, storage_version(definition))
}

/// The kind of one version of a definition, served or not; `None` if there is no such version.
pub fn kind_of(definition: &Value, version: &str) -> Option<Kind> {
    let spec = versions(definition).iter().find(|v| text(v, "/name") == version)?;
    let group = text(definition, "/spec/group");
    // Until they are accepted the wanted names stand in, for kinds that are installed with the server.
    let accepted = |field: &str| match text(definition, &format!("/status/acceptedNames/{field}")) {
        "" => text(definition, &format!("/spec/names/{field}")).to_owned(),
        name => name.to_owned(),
    };
    let strings = |field: &str| -> Vec<String> {
        let names = list(definition, &format!("/status/acceptedNames/{field}"));
        names.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let scale = spec.pointer("/subresources/scale").filter(|v| v.is_object());
    let scale = scale.and_then(|v| serde_json::from_value::<ScalePaths>(v.clone()).ok());
    let has_status = spec.pointer("/subresources/status").is_some_and(Value::is_object);
    let kind_name = accepted("kind");
    let subresource = |name: &str, kind: &str, group: &str, version: &str| Subresource {
        name: name.to_owned(),
        kind: kind.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
    };
    let mut subresources = Vec::new();
    if has_status {
        subresources.push(subresource("status", &kind_name, "", ""));
    }
    if scale.is_some() {
        subresources.push(subresource("scale", "Scale", "autoscaling", "v1"));
    }
    let columns = list(spec, "/additionalPrinterColumns").iter();
    let columns: Vec<Column> = columns.filter_map(|c| serde_json::from_value(c.clone()).ok()).collect();
    let selectable = list(spec, "/selectableFields").iter();
    let selectable = selectable.map(|f| text(f, "/jsonPath").trim_start_matches('.').to_owned()).collect();
    let schema = Arc::new(spec.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_else(|| json!({})));
    let custom = Custom {
        definition: object::name(definition).into(),
        storage_version: storage_version(definition).into(),
        schema: Arc::clone(&schema),
        columns,
        scale: scale.clone(),
        generation: object::generation(definition),
        schemas: None,
        deprecation: deprecation(definition, spec, group, version, &kind_name),
    };
    let row = KindSpec {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: accepted("plural"),
        kind: kind_name,
        namespaced: text(definition, "/spec/scope") == "Namespaced",
        singular: accepted("singular"),
        short_names: strings("shortNames"),
        categories: strings("categories"),
        verbs: VERBS.map(str::to_owned).to_vec(),
        subresources,
    };
    let keeps_unknown = definition.pointer("/spec/preserveUnknownFields") == Some(&json!(true));
    let stored =
        versions(definition).iter().find(|v| v["storage"] == json!(true) && text(v, "/name") != version);
    let stored = stored.and_then(|v| v.pointer("/schema/openAPIV3Schema"));
    let shape = CustomShape::new(&schema, stored, scale, keeps_unknown);
    let mut kind = Kind::new(row, kind_rules::custom(has_status, selectable), Arc::new(shape), Some(custom));
    kind.list_kind = accepted("listKind").into();
    Some(kind)
}

/// What a user of a deprecated version is told: the definition's own words, or which version to go to.
fn deprecation(definition: &Value, spec: &Value, group: &str, version: &str, kind: &str) -> Option<String> {
    if spec["deprecated"] != json!(true) {
        return None;
    }
    let own = text(spec, "/deprecationWarning");
    if !own.is_empty() {
        return Some(own.to_owned());
    }
    let better = versions(definition)
        .iter()
        .filter(|v| v["served"] == json!(true) && v["deprecated"] != json!(true))
        .map(|v| text(v, "/name"))
        .filter(|name| order::compare(name, version) == Ordering::Less)
        .min_by(|a, b| order::compare(a, b));
    let advice = better.map(|name| format!("; use {group}/{name} {kind}")).unwrap_or_default();
    Some(format!("{group}/{version} {kind} is deprecated{advice}"))
}
