//! Users' own rules for what the fields of a kind mean: watched, and handed to the interpreter whenever they change.
//!
//! What was decided by a rule is decided anew when it changes: the Works of the kind's bindings and the sums in their
//! templates.

use std::{fmt, sync::Arc};

use karmada_api::config::ResourceInterpreterCustomizationSpec;
use karmada_interpreter::rules::Rules;
use karmada_meta::gvk::GroupVersionKind;
use karmada_objects::scope::BindingKey;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;

use crate::rules::{UserRules, hooks};

/// A customization in full: there are few of them. Nothing of one that cannot be read.
pub(crate) type Customization = Option<ResourceInterpreterCustomizationSpec>;

type Listener = Box<dyn Fn(&GroupVersionKind) + Send + Sync>;

/// Who wants to know of which kinds the rules are others now.
#[derive(Default)]
pub(crate) struct RuleChanges(RwLock<Vec<Listener>>);

impl fmt::Debug for RuleChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleChanges").field("listeners", &self.0.read().len()).finish()
    }
}

impl RuleChanges {
    /// Hears every kind whose rules change later.
    pub(crate) fn listen(&self, listener: impl Fn(&GroupVersionKind) + Send + Sync + 'static) {
        self.0.write().push(Box::new(listener));
    }

    /// Tells everybody.
    pub(crate) fn tell(&self, kind: &GroupVersionKind) {
        for listener in self.0.read().iter() {
            listener(kind);
        }
    }
}

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
pub(crate) fn listen(rules: &Arc<UserRules>, changed: impl Fn(BindingKey) + Send + Sync + 'static) {
    let weak = Arc::downgrade(rules);
    rules.customizations.listen(move |_| {
        let Some(rules) = weak.upgrade() else { return };
        let all = rules.customizations.all().into_iter();
        let scripts = Rules::new(all.filter_map(|(key, spec)| Some((key.name, spec.as_ref().clone()?))));
        let before = rules.interpreter.replace(scripts);
        let now = rules.interpreter.rules();
        let kinds = now.changed(&before);
        if kinds.is_empty() {
            return;
        }
        for kind in
            kinds.iter().filter_map(|(version, kind)| GroupVersionKind::from_api_version(version, *kind))
        {
            hooks::look_again(&rules, &kind, &changed);
        }
    });
}
