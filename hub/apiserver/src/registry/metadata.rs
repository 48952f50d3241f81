//! The rules of `metadata`, for all kinds.

use std::{collections::HashSet, net::IpAddr};

use karmada_meta::{
    effort::Counted,
    labels::validate_labels,
    names, object,
    path::{FieldError, Path},
};
use serde_json::Value;

use crate::kinds::{Kind, NameRule};

/// Annotations together.
const MAX_ANNOTATIONS: usize = 256 << 10;
/// Of how many second controllers an object is told: each time with all owners.
const SECOND_CONTROLLERS: usize = 8;

/// The longest name where Kubernetes itself has no limit: with its resource and namespace the store's keys have to hold it.
const LONGEST_NAME: usize = 1_024;

fn name_errors(rule: NameRule, name: &str) -> Vec<String> {
    if name.len() > LONGEST_NAME {
        // What else may be wrong with it would be told with all of it.
        return vec![names::max_len_error(LONGEST_NAME)];
    }
    match rule {
        NameRule::Address => address_errors(name),
        NameRule::Subdomain => names::dns1123_subdomain_errors(name),
        NameRule::Label => names::dns1123_label_errors(name),
        NameRule::PathSegment | NameRule::Free => names::path_segment_errors(name),
    }
}

fn address_errors(name: &str) -> Vec<String> {
    match name.parse::<IpAddr>() {
        Err(_) => vec![format!("ParseAddr({name:?}): unable to parse IP")],
        Ok(address) if address.to_string() != name => {
            vec!["must be a canonical format IP address".to_owned()]
        }
        Ok(_) => Vec::new(),
    }
}

/// What is wrong with a new object's metadata.
pub fn validate_create(kind: &Kind, value: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    let prefix = object::generate_name(value);
    if !prefix.is_empty() {
        // The rule is for a name that goes on: a dash may end it here.
        let masked = prefix.strip_suffix('-').map_or_else(|| prefix.to_owned(), |head| format!("{head}a"));
        let at = path.child("generateName");
        errors.extend(
            name_errors(kind.rules.name, &masked).into_iter().map(|m| FieldError::invalid(&at, prefix, m)),
        );
    }
    let at = path.child("name");
    match object::name(value) {
        "" => errors.push(FieldError::required(&at, "name or generateName is required")),
        name => {
            errors.extend(
                name_errors(kind.rules.name, name).into_iter().map(|m| FieldError::invalid(&at, name, m)),
            );
        }
    }
    if kind.namespaced {
        let namespace = object::namespace(value);
        let at = path.child("namespace");
        let wrong = names::dns1123_label_errors(namespace);
        errors.extend(wrong.into_iter().map(|m| FieldError::invalid(&at, namespace, m)));
    }
    errors.extend(common(value));
    errors.extend(finalizer_errors(kind, value));
    errors
}

/// What holds for metadata at any time.
pub(super) fn common(value: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    if object::generation(value) < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&path.child("generation"), object::generation(value), detail));
    }
    let pairs = |map| object::meta(value, map).and_then(Value::as_object).into_iter().flatten();
    let labels = pairs("labels").map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
    errors.extend(validate_labels(labels, &path.child("labels")).into_iter().map(|mut error| {
        // The same rule, told of labels.
        if let Some(rest) = error.detail.strip_prefix("a qualified name must") {
            error.detail = format!("a valid label key must{rest}");
        }
        error
    }));
    let at = path.child("annotations");
    let mut size = 0;
    for (key, value) in pairs("annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        let wrong = names::qualified_name_errors(&key.to_lowercase());
        errors.extend(wrong.into_iter().map(|m| FieldError::invalid(&at, key.as_str(), m)));
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long(&at, MAX_ANNOTATIONS));
    }
    errors.extend(owner_errors(value));
    errors
}

fn owner_errors(value: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata").child("ownerReferences");
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    let mut seconds = 0;
    for owner in object::owner_references(value) {
        let mut need = |field: &str, text: &str, detail: &str| {
            if text.is_empty() {
                errors.push(FieldError::invalid(&path.child(field), text, detail));
            }
        };
        need("apiVersion", &owner.api_version, "version must not be empty");
        need("kind", &owner.kind, "must not be empty");
        need("name", &owner.name, "must not be empty");
        need("uid", &owner.uid, "must not be empty");
        if owner.api_version == "v1" && owner.kind == "Event" {
            let shown = serde_json::to_value(&owner).unwrap_or_default();
            errors.push(FieldError::invalid(
                &path,
                shown,
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if owner.controller == Some(true) {
            let this = format!("{}/{}", owner.kind, owner.name);
            match &controller {
                Some(_) if seconds == SECOND_CONTROLLERS => {}
                Some(first) => {
                    seconds += 1;
                    let all = object::meta(value, "ownerReferences").cloned().unwrap_or_default();
                    errors.push(FieldError::invalid(
                        &path,
                        all,
                        format!(
                            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                        ),
                    ));
                }
                None => controller = Some(this),
            }
        }
    }
    errors
}

fn finalizer_errors(kind: &Kind, value: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata").child("finalizers");
    let finalizers = object::finalizers(value);
    let mut errors = Vec::new();
    for name in &finalizers {
        let wrong = names::qualified_name_errors(name);
        errors.extend(wrong.into_iter().map(|m| FieldError::invalid(&path, *name, m)));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(&path, Value::from(finalizers.clone()), detail));
    }
    if kind.custom.is_none() {
        for (i, name) in finalizers.iter().enumerate() {
            if !name.contains('/') && !matches!(*name, "kubernetes" | "orphan" | "foregroundDeletion") {
                let detail = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(FieldError::invalid(&path.index(i), *name, detail));
            }
        }
    }
    errors
}

/// What is wrong with an update's metadata. Kubernetes runs this twice, once for the registry and once for the kind,
/// and shows both: the message once, the causes twice. Callers do likewise.
pub fn validate_update(value: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    if object::deletion_timestamp(old).is_some() {
        let had: HashSet<Counted<&str>> = object::finalizers(old).into_iter().map(Counted).collect();
        let mut added: Vec<&str> =
            object::finalizers(value).into_iter().filter(|f| !had.contains(&Counted(*f))).collect();
        added.sort_unstable();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.push(FieldError::forbidden(&path.child("finalizers"), detail));
        }
    }
    if object::generation(value) < object::generation(old) {
        let detail = "must not be decremented";
        errors.push(FieldError::invalid(&path.child("generation"), object::generation(value), detail));
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (new, old) = (object::meta(value, field), object::meta(old, field));
        if new != old {
            let shown = new.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(&path.child(field), shown, "field is immutable"));
        }
    }
    errors.extend(common(value));
    errors
}

/// Takes repeated owner references out; kube-apiserver warns of each uid that stood twice.
pub fn dedup_owners(value: &mut Value) -> Vec<String> {
    let Some(Value::Array(owners)) = value.pointer_mut("/metadata/ownerReferences") else {
        return Vec::new();
    };
    let repeats: Vec<bool> = {
        let mut seen = HashSet::with_capacity(owners.len());
        owners.iter().map(|owner| !seen.insert(Counted(owner))).collect()
    };
    let (mut warned, mut warnings) = (HashSet::new(), Vec::new());
    let repeated = owners.iter().zip(&repeats).filter(|(_, repeats)| **repeats).map(|(owner, _)| owner);
    for uid in repeated.map(|owner| owner["uid"].as_str().unwrap_or_default()) {
        if warned.insert(uid) {
            warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uid}"
            ));
        }
    }
    let mut repeats = repeats.into_iter();
    owners.retain(|_| !repeats.next().unwrap_or(false));
    warnings
}
