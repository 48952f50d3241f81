//! What a kind's bodies look like: the one seam between the generic registry and the knowledge of a kind.
//!
//! Built-in kinds have [`crate::builtin::BuiltIn`] (the table of Go types, defaults, validation); custom resources have
//! a shape compiled from their structural schema ([`crate::crd`]). The registry calls, in this order:
//! `decode` → `default` → (admission) → prepare → `validate_create` / `validate_update` → store.

use std::fmt;

use karmada_meta::{path::FieldError, status::Status};
use serde_json::Value;

/// What a decoder noticed that is not an error by itself: `fieldValidation` decides what becomes of it.
/// Each entry is a phrase such as `unknown field "spec.foo"` or `duplicate field "spec.x"`.
#[derive(Clone, Debug, Default)]
pub struct Findings(pub Vec<String>);

impl Findings {
    /// Notes a field that the schema does not have. `path` is dotted: `spec.template.spec.containers[0].foo`.
    pub fn unknown(&mut self, path: &str) {
        self.0.push(format!("unknown field \"{path}\""));
    }

    /// Notes a key that stood twice in the text; the later one counts.
    pub fn duplicate(&mut self, path: &str) {
        self.0.push(format!("duplicate field \"{path}\""));
    }
}

/// The knowledge of one kind in one version. Pure: no time, no I/O.
pub trait Shape: Send + Sync + fmt::Debug {
    /// Brings a body into the form that is stored: unknown fields go (and are noted), nulls that mean "absent" go, a
    /// value of the wrong JSON type is refused (400 for built-in kinds). `apiVersion`, `kind` and the types within
    /// `metadata` have been checked by the caller.
    fn decode(&self, object: &mut Value, findings: &mut Findings) -> Result<(), Status>;

    /// Fills in defaults.
    fn default(&self, object: &mut Value);

    /// What is wrong with a new object, metadata aside.
    fn validate_create(&self, object: &Value) -> Vec<FieldError>;

    /// What is wrong with an update, metadata aside. `subresource` is empty for the main endpoint.
    fn validate_update(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError>;

    /// Warnings for an accepted object.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// How structured merge sees this kind.
    fn schema(&self) -> &karmada_smd::schema::TypeRef;
}
