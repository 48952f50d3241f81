//! Users' own rules for what the fields of a kind mean: watched, and handed to the interpreter whenever they change.
//!
//! What was decided by a rule is decided anew when it changes: the Works of the kind's bindings and the sums in their
//! templates.

use std::sync::Arc;

use karmada_api::config::ResourceInterpreterCustomizationSpec;
use karmada_interpreter::rules::Rules;
use karmada_meta::gvk::GroupVersionKind;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    context::Context,
    heads::{BindingHead, BindingKey},
};

/// A customization in full: there are few of them. Nothing of one that cannot be read.
pub(crate) type Customization = Option<ResourceInterpreterCustomizationSpec>;

/// Reads a customization.
pub(crate) fn project(value: &Value) -> Customization {
    let read = ResourceInterpreterCustomizationSpec::deserialize(&value["spec"]);
    read.inspect_err(|error| {
        let name = karmada_meta::object::name(value);
        tracing::warn!(name, %error, "the ResourceInterpreterCustomization cannot be read");
    })
    .ok()
}

/// Keeps the interpreter's rules those of the customizations, and calls `changed` with each binding of a kind whose
/// rules are others now.
pub(crate) fn listen(context: &Arc<Context>, changed: impl Fn(BindingKey) + Send + Sync + 'static) {
    let weak = Arc::downgrade(context);
    context.customizations.listen(move |_| {
        let Some(context) = weak.upgrade() else { return };
        let all = context.customizations.all().into_iter();
        let rules = Rules::new(all.filter_map(|(key, spec)| Some((key.name, spec.as_ref().clone()?))));
        let before = context.interpreter.replace(rules);
        let now = context.interpreter.rules();
        let kinds = now.changed(&before);
        if kinds.is_empty() {
            return;
        }
        for (scope, index) in context.bindings.both() {
            for kind in
                kinds.iter().filter_map(|(version, kind)| GroupVersionKind::from_api_version(version, *kind))
            {
                for (key, _) in index.group(&BindingHead::of_kind(&kind)) {
                    changed(BindingKey { scope, key });
                }
            }
        }
    });
}
