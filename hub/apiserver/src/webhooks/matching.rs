//! Whether a webhook is for a write: pure decisions.

use std::sync::Arc;

use karmada_meta::{
    gvk::{GroupVersionKind, GroupVersionResource},
    status::Status,
};
use serde_json::Value;

use super::hook::{Hook, Rule};
use crate::{admission::Operation, kinds::Kind, storage::Object};

/// The group of the configurations themselves, none of which any webhook is asked about: who could mend one otherwise?
const REGISTRATION: &str = "admissionregistration.k8s.io";

/// One write, as far as rules look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) operation: Operation,
    pub(crate) kind: &'a Arc<Kind>,
    pub(crate) subresource: &'a str,
    /// Empty at the cluster scope; of a Namespace its own name.
    pub(crate) namespace: &'a str,
}

impl Subject<'_> {
    fn is_namespace(&self) -> bool {
        is_namespace(self.kind)
    }
}

/// Whether objects of the kind are Namespaces.
pub(crate) fn is_namespace(kind: &Kind) -> bool {
    &*kind.storage == "core/namespaces"
}

/// Whether no webhook is asked about objects of the kind.
pub(crate) fn is_exempt(kind: &Kind) -> bool {
    kind.gvr.group == REGISTRATION
}

/// How AdmissionReviews name an operation.
pub(crate) const fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
    }
}

/// What is read and written at a kind or one of its subresources: a Scale, or the kind itself.
pub(crate) fn spoken(kind: &Kind, subresource: &str) -> GroupVersionKind {
    match kind.subresource(subresource) {
        Some(found) if !found.version.is_empty() => GroupVersionKind {
            group: found.group.clone(),
            version: found.version.clone(),
            kind: found.kind.clone(),
        },
        _ => kind.gvk.clone(),
    }
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|w| w == "*" || w == word)
}

impl Rule {
    fn matches(&self, subject: &Subject<'_>, resource: &GroupVersionResource) -> bool {
        let named = |rule: &String| {
            let (of, sub) = rule.split_once('/').unwrap_or((rule, ""));
            (of == "*" || of == resource.resource) && (sub == "*" || sub == subject.subresource)
        };
        let cluster = subject.is_namespace() || subject.namespace.is_empty();
        let in_scope = match self.scope.as_deref() {
            Some("Namespaced") => !cluster,
            Some("Cluster") => cluster,
            _ => true,
        };
        in_scope
            && has(&self.operations, operation_name(subject.operation))
            && has(&self.api_groups, &resource.group)
            && has(&self.api_versions, &resource.version)
            && self.resources.iter().any(named)
    }
}

/// The kind in whose version a webhook is asked about a write, if its rules are for it. `equivalents` are the kinds
/// under which the same objects are served, the subject's own aside.
pub(crate) fn by_rules(hook: &Hook, subject: &Subject<'_>, equivalents: &[Arc<Kind>]) -> Option<Arc<Kind>> {
    if hook.rules.iter().any(|rule| rule.matches(subject, &subject.kind.gvr)) {
        return Some(subject.kind.clone());
    }
    if hook.exact {
        return None;
    }
    // Earlier rules first.
    hook.rules.iter().find_map(|rule| {
        let kind = equivalents.iter().find(|kind| rule.matches(subject, &kind.gvr))?;
        Some(Arc::clone(kind))
    })
}

/// Whether a webhook's selectors want the write. `namespace_labels` gives the labels of the namespace: of the object
/// itself where that is a Namespace that is created or changed. `objects` are the new and the old one, as labels.
///
/// # Errors
/// What `namespace_labels` says, and a selector that cannot be read.
pub(crate) fn by_selectors<'a>(
    hook: &Hook,
    subject: &Subject<'_>,
    namespace_labels: impl FnOnce() -> Result<NamespaceLabels<'a>, Status>,
    objects: [Option<&Value>; 2],
) -> Result<bool, Status> {
    let has_namespace = !subject.namespace.is_empty() || subject.is_namespace();
    if has_namespace {
        let selector = hook.namespaces.as_ref().map_err(Status::internal)?;
        if !selector.is_empty() {
            let labels = namespace_labels()?;
            if !selector.matches_with(|key| labels.get(key)) {
                return Ok(false);
            }
        }
    }
    let selector = hook.objects.as_ref().map_err(Status::internal)?;
    let selected = |object: &Value| selector.matches_with(|key| label(object, key));
    Ok(selector.is_empty() || objects.into_iter().flatten().any(selected))
}

/// The labels of a namespace.
#[derive(Clone, Debug)]
pub(crate) enum NamespaceLabels<'a> {
    /// Of one that is being written.
    New(&'a Value),
    /// Of one that is there.
    Stored(Arc<Object>),
}

impl NamespaceLabels<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match self {
            Self::New(object) => label(object, key),
            Self::Stored(object) => object.header.labels.get(key),
        }
    }
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

#[cfg(test)]
mod tests;
