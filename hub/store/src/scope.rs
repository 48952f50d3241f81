//! What can be watched: a resource, a namespace of it, or one object.

use std::sync::Arc;

use crate::key::Key;

/// What a watcher wants to hear of.
///
/// Objects at cluster scope have the empty namespace: to watch one of them by name, name that namespace too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// The resource.
    pub resource: Arc<str>,
    /// One namespace only.
    pub namespace: Option<Arc<str>>,
    /// One name only.
    pub name: Option<Arc<str>>,
}

impl Scope {
    /// A whole resource.
    pub fn resource(resource: impl Into<Arc<str>>) -> Self {
        Self { resource: resource.into(), namespace: None, name: None }
    }

    /// One namespace of a resource.
    pub fn namespace(resource: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::resource(resource) }
    }

    /// One object.
    pub fn object(key: &Key) -> Self {
        Self {
            resource: key.resource.clone(),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
        }
    }

    /// Whether a key is in scope.
    pub fn contains(&self, key: &Key) -> bool {
        self.resource == key.resource
            && self.namespace.as_ref().is_none_or(|ns| *ns == key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
    }
}
