//! Roles and their bindings.

use karmada_meta::path::{FieldError, Path};
use serde_json::Value;

use super::parts::{IMMUTABLE, list, text};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn create(kind: &str, object: &Value) -> Vec<FieldError> {
    match kind {
        "Role" | "ClusterRole" => rules(object, kind == "Role"),
        "RoleBinding" => binding(object, &["Role", "ClusterRole"], true),
        "ClusterRoleBinding" => binding(object, &["ClusterRole"], false),
        _ => Vec::new(),
    }
}

fn rules(object: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in list(object, "/rules").iter().enumerate() {
        let path = Path::new("rules").index(index);
        if list(rule, "/verbs").is_empty() {
            errors.push(FieldError::required(&path.child("verbs"), "verbs must contain at least one value"));
        }
        let urls = list(rule, "/nonResourceURLs");
        let at = path.child("nonResourceURLs");
        if !urls.is_empty() {
            if namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(&at, urls.to_vec(), detail));
            }
            if ["/apiGroups", "/resources", "/resourceNames"].iter().any(|f| !list(rule, f).is_empty()) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(&at, urls.to_vec(), detail));
            }
            continue;
        }
        if list(rule, "/apiGroups").is_empty() {
            let detail = "resource rules must supply at least one api group";
            errors.push(FieldError::required(&path.child("apiGroups"), detail));
        }
        if list(rule, "/resources").is_empty() {
            let detail = "resource rules must supply at least one resource";
            errors.push(FieldError::required(&path.child("resources"), detail));
        }
    }
    errors
}

fn binding(object: &Value, kinds: &[&str], namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = Path::new("roleRef");
    let group = text(object, "/roleRef/apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported(&role.child("apiGroup"), group, &[GROUP]));
    }
    let kind = text(object, "/roleRef/kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(&role.child("kind"), kind, kinds));
    }
    if text(object, "/roleRef/name").is_empty() {
        errors.push(FieldError::required(&role.child("name"), ""));
    }
    for (index, subject) in list(object, "/subjects").iter().enumerate() {
        let path = Path::new("subjects").index(index);
        if text(subject, "/name").is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        let group = text(subject, "/apiGroup");
        match text(subject, "/kind") {
            "ServiceAccount" => {
                if !group.is_empty() {
                    errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[""]));
                }
                if !namespaced && text(subject, "/namespace").is_empty() {
                    errors.push(FieldError::required(&path.child("namespace"), ""));
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[GROUP]));
                }
            }
            other => {
                let known = ["ServiceAccount", "User", "Group"];
                errors.push(FieldError::not_supported(&path.child("kind"), other, &known));
            }
        }
    }
    errors
}

/// A binding keeps its role; who wants another makes another binding.
pub(super) fn binding_update(object: &Value, old: &Value) -> Option<FieldError> {
    let (new, old) = (object.get("roleRef"), old.get("roleRef"));
    (new != old)
        .then(|| FieldError::invalid(&Path::new("roleRef"), new.cloned().unwrap_or_default(), IMMUTABLE))
}
