//! The Karmada types, labels and conditions, and the definitions (CRDs) generated from them. No I/O.
//!
//! ```text
//!   policy   PropagationPolicy, OverridePolicy and their cluster-wide twins: what a user asks for
//!     │
//!   work     ResourceBinding (one object, its clusters) ──► Work (one cluster's manifests)
//!     │
//!   cluster  Cluster: a member, what it offers and whether it lives
//!   apps     WorkloadRebalancer: place these anew
//!   config   ResourceInterpreterCustomization, …WebhookConfiguration: what a kind's fields mean
//!
//!   kind     what the kinds have in common; crd  turns them into CustomResourceDefinitions
//!   schema   from a Rust type to the structural schema of its definition
//!   consts   every label, annotation, finalizer, taint, condition, reason, event and namespace
//!   catalogue  what people meet of these in conditions and annotations, with a sentence each: the reference
//!   reasons  every reason of a condition, with a sentence each: there are no others
//!   conditions, models   small rules that hub and agent share
//! ```
//!
//! Go's names are kept, in Rust's spelling. A field is an `Option` only where "not given" differs from "empty": an
//! empty string, list or map and a zero that Karmada leaves out mean "not given", as they do there. Fields stand in
//! Karmada's order, because two annotations (applied placement, applied overrides) hold them as JSON text.
//!
//! The definitions live in `manifests/crds`; a test keeps them current, another holds them against Karmada's own.

pub mod apps;
pub mod autoscaling;
pub mod catalogue;
pub mod cluster;
pub mod conditions;
pub mod config;
pub mod consts;
pub mod crd;
pub mod kind;
pub mod models;
pub mod policy;
pub mod reasons;
pub mod remedy;
pub mod schema;
pub mod search;
mod serde_util;
pub mod work;

pub use crd::crds;
pub use kind::KarmadaKind;
