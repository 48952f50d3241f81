//! What all controllers of bindings need to know of the two kinds of bindings.

use karmada_api::{
    consts::{component, finalizer, label},
    work::{ObjectReference, ResourceBindingSpec},
};
use karmada_client::Resource;
use karmada_meta::{gvk::GroupVersionKind, object};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    key::{Key, TemplateKey},
    kinds::{CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS},
    scope::{BindingKey, Scope},
};

/// Our extension: the condition of a binding some of whose Works cannot be made. It is there only while that is so.
pub const WORKS_SYNCED: &str = karmada_api::consts::extension::WORKS_SYNCED;

/// How a scope's bindings are addressed.
pub fn resource(scope: Scope) -> &'static Resource {
    match scope {
        Scope::Namespaced => &RESOURCE_BINDINGS,
        Scope::Cluster => &CLUSTER_RESOURCE_BINDINGS,
    }
}

/// The finalizer that keeps a binding until its Works are dealt with.
pub fn finalizer(scope: Scope) -> &'static str {
    match scope {
        Scope::Namespaced => finalizer::BINDING,
        Scope::Cluster => finalizer::CLUSTER_RESOURCE_BINDING,
    }
}

/// The label with a binding's permanent id, on it and on its Works.
pub fn id_label(scope: Scope) -> &'static str {
    match scope {
        Scope::Namespaced => label::RESOURCE_BINDING_ID,
        Scope::Cluster => label::CLUSTER_RESOURCE_BINDING_ID,
    }
}

/// Who makes Works of a scope's bindings, in events.
pub fn binder(scope: Scope) -> &'static str {
    match scope {
        Scope::Namespaced => component::BINDING,
        Scope::Cluster => component::CLUSTER_RESOURCE_BINDING,
    }
}

/// Who collects status into a scope's bindings, in events.
pub fn collector(scope: Scope) -> &'static str {
    match scope {
        Scope::Namespaced => component::BINDING_STATUS,
        Scope::Cluster => component::CLUSTER_BINDING_STATUS,
    }
}

/// The template that a binding is for, as far as an event needs it.
pub fn template_reference(spec: &ResourceBindingSpec) -> Value {
    let resource = &spec.resource;
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"namespace": resource.namespace, "name": resource.name, "uid": resource.uid},
    })
}

/// The template that a binding is for; nothing if its apiVersion is none.
pub fn template_key(resource: &ObjectReference) -> Option<TemplateKey> {
    let kind = GroupVersionKind::from_api_version(&resource.api_version, resource.kind.as_str())?;
    Some(TemplateKey { kind, key: Key::new(resource.namespace.as_str(), resource.name.as_str()) })
}

/// The same if it is in the binding's own namespace, or in none like the binding. What a binding says otherwise was not
/// refused by an API server without our admission, and has the hub do nothing elsewhere.
pub fn own_template_key(key: &BindingKey, resource: &ObjectReference) -> Option<TemplateKey> {
    template_key(resource).filter(|template| template.key.namespace == key.key.namespace)
}

/// Why a binding of the right name is not this template's: names hold neither group nor capitals nor colons, so two
/// templates may meet in one.
pub fn collision(binding: &Value, template: &Value) -> Option<String> {
    let resource = ObjectReference::deserialize(&binding["spec"]["resource"]).ok()?;
    let group = |api_version: &str| api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let same = group(&resource.api_version) == group(object::api_version(template))
        && resource.kind == object::kind(template)
        && resource.namespace == object::namespace(template)
        && resource.name == object::name(template);
    (!same).then(|| {
        format!(
            "its binding would be {} {}, which is already that of {} {} in {}",
            object::kind(binding),
            object::key(binding),
            resource.kind,
            if resource.namespace.is_empty() {
                resource.name.clone()
            } else {
                format!("{}/{}", resource.namespace, resource.name)
            },
            resource.api_version,
        )
    })
}
