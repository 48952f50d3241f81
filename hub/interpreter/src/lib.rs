//! What the fields of a kind mean: its replicas and what they need, its status and health, what it refers to, what
//! of it may travel. Native rules for Kubernetes' own kinds; other kinds get the general rule of each question.
//! Pure functions on JSON, no I/O.
//!
//! ```text
//!  hub                                                        agent
//!  template ──► replicas, dependencies    (scheduler)         object on the member
//!     │                                                         │
//!     ├──► prune ──► revise_replicas ──► Work ──► retain ──► apply
//!     │                                                         │
//!     ◄── aggregate_status ◄── Work.status ◄── reflect_status, health
//! ```
//!
//! [`Native`] is the table of Kubernetes' own kinds; each module answers one question for all of them. `thirdparty` has
//! the kinds of other projects, as data. Where Karmada's answer and ours differ, the function says so.
//!
//! [`Interpreter`] puts a user's own rules before all these: scripts in Lua, run by `lua` on a thread of its own.
//! [`rules`] finds the script for an object and checks what users write. Questions that no script answers may go to a
//! service of the user's: [`webhook`].

mod aggregate;
mod dependencies;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod health;
mod interpreter;
#[cfg(feature = "lua")]
mod lua;
mod native;
mod prune;
mod ready;
mod reflect;
mod replicas;
mod requests;
mod retain;
pub mod rules;
mod runs;
mod thirdparty;
pub mod webhook;

pub use self::{
    aggregate::aggregate_status,
    dependencies::{DependentObjectReference, dependencies, has_dependencies},
    health::{Health, health},
    interpreter::{Interpreter, RuleError, Unreachable, retained_fields},
    native::Native,
    prune::prune,
    ready::ready,
    reflect::{reflect_status, reports_generations},
    replicas::{
        Replicas, completions, get_components, get_replicas, has_components, revise_completions,
        revise_replicas,
    },
    requests::{pod_requests, pod_template_requests},
    retain::{Field, retain, retain_rules},
    runs::{Runs, runs},
};

/// A field that does not hold what its kind says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field} {problem}")]
pub struct InterpretError {
    /// Kind, namespace and name of the object.
    pub object: String,
    /// The field's path.
    pub field: String,
    /// What is wrong with its value.
    pub problem: String,
}

impl InterpretError {
    fn new(object: &serde_json::Value, field: impl Into<String>, problem: impl Into<String>) -> Self {
        let name = karmada_meta::object::key(object);
        Self {
            object: format!("{} {name}", karmada_meta::object::kind(object)),
            field: field.into(),
            problem: problem.into(),
        }
    }
}
