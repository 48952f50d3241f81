//! Objects of an API, as the hub's controllers and its command line both see them: how kinds and objects are named and
//! found, how what is in them is read, and how single ones are written. Nothing is remembered here.
//!
//! ```text
//!   "deploy", apps/v1 Deployment ──▶ discovery ─┐
//!   Karmada's own kinds ───────────▶ kinds ─────┼─▶ Resource ─┐
//!                                               │             ├─▶ Objects ─▶ karmada_client::Rest
//!   one object: Key, TemplateKey; of either scope: BindingKey, PolicyKey ─┘       │
//!                                                                                 ▼
//!                                      serde_json::Value ─▶ key::read, typed, policies, bindings
//! ```

pub mod bindings;
pub mod discovery;
pub mod key;
pub mod kinds;
mod objects;
pub mod policies;
pub mod scope;
pub mod typed;

pub use objects::{Objects, Part};
