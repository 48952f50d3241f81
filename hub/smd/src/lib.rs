//! Structured merge as pure functions: field paths, server-side apply, strategic merge, schema tables.
//!
//! Everything here works on plain JSON values and has no clock and no I/O. Its behaviour is that of Kubernetes 1.36
//! (structured-merge-diff v6, managedfields, strategicpatch), message texts included.
//!
//! ```text
//!   fieldpath   paths into an object, sets of them          schema     what is a list of named elements, a set, a leaf
//!       └───────────────┬───────────────────────────────────────┘
//!                     typed      validate, merge, compare, field set, remove, extract
//!                       │
//!   managed ──────── apply       apply and update: a new object and who owns what of it       ownership   for appliers
//!
//!   strategic   strategic merge patch, with a table of its own        patch   JSON patch, merge patch
//!   scale       managed fields of a Scale and of its parent           nulls   what a decoder makes of null
//! ```

mod apply;
pub mod fieldpath;
mod gotext;
mod lastapplied;
pub mod managed;
mod nulls;
mod ownership;
pub mod patch;
pub mod scale;
pub mod schema;
pub mod strategic;
#[cfg(test)]
mod testing;
mod typed;

pub use apply::{
    ANCIENT_CHANGES, ApplyError, ApplyOptions, BEFORE_FIRST_APPLY, Conflict, MAX_UPDATE_MANAGERS,
    UpdateOptions, apply, conflict_message, update, update_in_place,
};
pub use fieldpath::{Path, PathElement, Set};
pub use gotext::print as go_text;
pub use managed::{Managed, Manager, Operation, is_reset, keep_times};
pub use nulls::decode_nulls;
pub use ownership::{adopted, adoption_patch, owned_by, project};
pub use patch::{PatchError, json_patch, merge_patch};
pub use schema::TypeRef;
pub use strategic::strategic_merge;
