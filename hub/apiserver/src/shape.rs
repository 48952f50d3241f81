//! What a kind's bodies look like: the one seam between the generic registry and the knowledge of a kind.
//!
//! Built-in kinds have [`crate::builtin::BuiltIn`] (the table of Go types, defaults, validation); custom resources have
//! a shape compiled from their structural schema ([`crate::crd`]). For a write the registry calls, in this order:
//!
//! ```text
//!   decode → default → (managed fields, admission) → prepare_create / prepare_update → validate_… → store
//! ```
//!
//! Everything here is pure: no time, no I/O.

use std::{fmt, sync::Arc};

use karmada_meta::path::FieldError;
use serde_json::Value;

pub use crate::findings::Findings;
use crate::structural::rules::Rules;

/// The knowledge of one kind in one version.
pub trait Shape: Send + Sync + fmt::Debug {
    /// Brings a body into the form that is stored: unknown fields go (and are noted), nulls that mean "absent" go, a
    /// value of the wrong JSON type is refused. For custom resources `metadata` has been decoded by the caller.
    ///
    /// # Errors
    /// What Go's decoder would say (`json: cannot unmarshal number into Go struct field …`); the caller adds which
    /// object it was and makes it a 400.
    fn decode(&self, object: &mut Value, findings: &mut Findings) -> Result<(), String>;

    /// What storing an object and reading it back does to it (Go's protobuf knows no empty lists). The last step before
    /// an object is compared with the stored one.
    fn settle(&self, _object: &mut Value) {}

    /// Fills in defaults.
    fn default(&self, object: &mut Value);

    /// What the server sets in a new object whatever the client sent (a Namespace's finalizer and phase).
    /// The status has been reset and the generation set where the kind's rules say so.
    fn prepare_create(&self, _object: &mut Value) {}

    /// As [`Shape::prepare_create`], for an update through the main endpoint. Fields of the rules' `reset` have been
    /// taken from `old`.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    /// Changes an object when its deletion begins; its deletionTimestamp has been set. `now` is RFC 3339 in seconds.
    fn prepare_delete(&self, _object: &mut Value, _now: &str) {}

    /// Whether an object that is being deleted must stay although it has no metadata finalizers (a Namespace with
    /// `spec.finalizers`).
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// What is wrong with a new object, metadata aside.
    fn validate_create(&self, object: &Value) -> Vec<FieldError>;

    /// What is wrong with an update, metadata aside. `subresource` is empty for the main endpoint.
    fn validate_update(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError>;

    /// The rules of custom resources, which may take long to look at; none for other kinds.
    fn rules(&self) -> Option<&Arc<Rules>> {
        None
    }

    /// Warnings for an accepted object.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Whether bodies may come in protobuf.
    fn has_messages(&self) -> bool {
        false
    }

    /// How structured merge sees this kind.
    fn schema(&self) -> &karmada_smd::schema::TypeRef;

    /// Whether stored objects are served as they are, apart from apiVersion and kind; otherwise [`Shape::to_served`]
    /// and [`Shape::to_stored`] say how to turn one into the other.
    fn is_stored_form(&self) -> bool {
        true
    }

    /// Brings an object that was stored under an older definition up to this one: as if it had been written today, but that
    /// nobody is told what went.
    fn freshen(&self, _object: &mut Value) {}

    /// The served form of a stored object.
    fn to_served(&self, object: Value) -> Value {
        object
    }

    /// The stored form of a served object.
    fn to_stored(&self, object: Value) -> Value {
        object
    }
}
