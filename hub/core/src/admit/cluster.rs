//! Cluster.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::{
    cluster::{Cluster, LocalSecretReference, ResourceModel, Taint},
    consts::taint,
    models::default_resource_models,
};
use karmada_meta::{
    names, object,
    path::{FieldError, Path},
};
use serde_json::{Value, json};

use super::{shape::Shape, shown};

pub(super) const SHAPE: Shape = Shape {
    required: &[
        "spec.syncMode",
        "spec.taints[*].key",
        "spec.taints[*].effect",
        "spec.resourceModels[*].ranges",
    ],
    words: &[
        ("spec.syncMode", &["Pull", "Push"]),
        ("spec.taints[*].effect", &[taint::NO_SCHEDULE, taint::PREFER_NO_SCHEDULE, taint::NO_EXECUTE]),
    ],
};

/// Sets what a cluster leaves open: the grades of its nodes, the time of taints that evict, zones.
pub(super) fn default(obj: &mut Value, now: &str) {
    if !obj["spec"].is_object() {
        return;
    }
    let spec = object::ensure_map(obj, "spec");
    let models =
        spec.get_mut("resourceModels").and_then(Value::as_array_mut).filter(|models| !models.is_empty());
    match models {
        None => drop(spec.insert("resourceModels".into(), shown(&default_resource_models()))),
        Some(models) => standardize(models),
    }
    for taint in spec.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten() {
        if taint["effect"] == taint::NO_EXECUTE
            && let Some(taint) = taint.as_object_mut()
        {
            taint.entry("timeAdded").or_insert(now.into());
        }
    }
    let zone = spec.get("zone").and_then(Value::as_str).unwrap_or_default().to_owned();
    let zones = spec.get("zones").and_then(Value::as_array).map_or(0, Vec::len);
    if !zone.is_empty() && zones == 0 {
        spec.shift_remove("zone");
        spec.insert("zones".into(), json!([zone]));
    }
}

/// Sorts grades and opens the first downwards and the last upwards, so that every node has one.
fn standardize(models: &mut [Value]) {
    models.sort_by_key(|model| model["grade"].as_i64().unwrap_or_default());
    let set = |model: Option<&mut Value>, field: &str, value: &str| {
        let ranges = model.and_then(|model| model.get_mut("ranges")).and_then(Value::as_array_mut);
        for range in ranges.into_iter().flatten().filter_map(Value::as_object_mut) {
            range.insert(field.into(), value.into());
        }
    };
    set(models.first_mut(), "min", "0");
    set(models.last_mut(), "max", &i64::MAX.to_string());
}

/// Checks a cluster.
pub(super) fn validate(old: Option<&Value>, cluster: &Cluster) -> Result<Vec<String>, Vec<FieldError>> {
    let spec = &cluster.spec;
    let path = Path::new("spec");
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let name_path = Path::new("metadata").child("name");
    // Who has joined goes on.
    let wrong =
        if old.is_none() { names::joining_name_errors(name) } else { names::cluster_name_errors(name) };
    let mut errors: Vec<_> = wrong.into_iter().map(|e| FieldError::invalid(&name_path, name, e)).collect();
    if !spec.api_endpoint.is_empty() {
        errors.extend(endpoint_error(&spec.api_endpoint, &path.child("apiEndpoint")));
    }
    if !spec.proxy_url.is_empty() {
        let scheme = spec.proxy_url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !["http", "https", "socks5"].contains(&scheme) {
            let detail = format!("unsupported scheme {scheme:?}, must be http, https, or socks5");
            errors.push(FieldError::invalid(&path.child("proxyURL"), spec.proxy_url.as_str(), detail));
        }
    }
    errors.extend(secret_errors(spec.secret_ref.as_ref(), &path.child("secretRef")));
    errors.extend(secret_errors(spec.impersonator_secret_ref.as_ref(), &path.child("impersonatorSecretRef")));
    errors.extend(taint_errors(&spec.taints, &path.child("taints")));
    errors.extend(model_errors(&spec.resource_models, &path.child("resourceModels")));
    if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) }
}

/// A host, with a port or without, with a scheme or without.
fn endpoint_error(endpoint: &str, path: &Path) -> Option<FieldError> {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let detail = if authority.is_empty() {
        "host must be provided; desired format: hostname, hostname:port, IP or IP:port"
    } else if authority.contains('@') {
        "user information is not permitted in the URL"
    } else if endpoint.contains('#') {
        "fragments are not permitted in the URL"
    } else if endpoint.contains('?') {
        "query parameters are not permitted in the URL"
    } else if endpoint.contains(|c: char| c.is_whitespace() || c.is_control()) {
        "apiEndpoint must be a valid URL; desired format: hostname, hostname:port, IP or IP:port"
    } else {
        return None;
    };
    Some(FieldError::invalid(path, endpoint, detail))
}

fn secret_errors(secret: Option<&LocalSecretReference>, path: &Path) -> Vec<FieldError> {
    let Some(secret) = secret else { return Vec::new() };
    [("namespace", &secret.namespace), ("name", &secret.name)]
        .into_iter()
        .filter(|(_, value)| value.is_empty())
        .map(|(field, _)| FieldError::required(&path.child(field), ""))
        .collect()
}

fn taint_errors(taints: &[Taint], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, taint) in taints.iter().enumerate() {
        let path = path.index(i);
        let invalid = |field: &str, value: &str, e| FieldError::invalid(&path.child(field), value, e);
        errors.extend(
            names::qualified_name_errors(&taint.key).into_iter().map(|e| invalid("key", &taint.key, e)),
        );
        errors.extend(
            names::label_value_errors(&taint.value).into_iter().map(|e| invalid("value", &taint.value, e)),
        );
        if !seen.insert((&taint.key, &taint.effect)) {
            let mut error = FieldError::duplicate(&path, shown(taint));
            error.detail = "taints must be unique by key and effect pair".into();
            errors.push(error);
        }
    }
    errors
}

/// Grades are numbered without repetition, name the same resources, and each ends where the next begins.
fn model_errors(models: &[ResourceModel], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let resources =
        |model: &ResourceModel| model.ranges.iter().map(|r| r.name.clone()).collect::<BTreeSet<_>>();
    for (i, model) in models.iter().enumerate() {
        let path = path.index(i);
        for (j, range) in model.ranges.iter().enumerate().filter(|(_, range)| range.max <= range.min) {
            let detail = "The max value of each resource must be greater than the min value";
            errors.push(FieldError::invalid(&path.child("ranges").index(j), shown(range), detail));
        }
        let Some(before) = i.checked_sub(1).and_then(|i| models.get(i)) else { continue };
        if before.grade == model.grade {
            errors.push(FieldError::duplicate(&path.child("grade"), model.grade));
        }
        let mut below: BTreeMap<_, _> = BTreeMap::new();
        for range in &before.ranges {
            below.entry(&range.name).or_insert(range);
        }
        if resources(before) != resources(model) {
            let detail = "The number and the names of the resources must be the same in all models";
            errors.push(FieldError::invalid(&path.child("ranges"), shown(&model.ranges), detail));
        }
        for (j, range) in model.ranges.iter().enumerate() {
            if below.get(&range.name).is_some_and(|below| below.max != range.min) {
                let detail = "Model intervals for resources must be contiguous and non-overlapping";
                errors.push(FieldError::invalid(&path.child("ranges").index(j), shown(range), detail));
            }
        }
    }
    errors
}

/// Why a cluster of this name and id cannot join the others: one of them has the id already. The text says how to
/// resolve it. An empty id is nobody's.
pub fn duplicate_id<'a>(
    name: &str,
    id: &str,
    others: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Option<String> {
    let mut others =
        others.into_iter().filter(|(other, other_id)| !id.is_empty() && *other != name && *other_id == id);
    let (other, _) = others.next()?;
    Some(format!(
        "the same cluster has been registered with name {other}: its id is {id}. Use that name, or delete the \
         Cluster {other} before it joins as {name}"
    ))
}

/// The same for an agent, which does not learn who the others are.
pub fn duplicate_id_for_agent(id: &str) -> String {
    format!(
        "the same cluster has been registered with another name: its id is {id}. Use that name; the operators of the hub \
         find it in the hub's log"
    )
}
