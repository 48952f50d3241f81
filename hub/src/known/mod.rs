//! What the hub remembers of the API: how kinds are addressed and found, small projections of what is there, and indexes
//! that watches keep current. Nothing here writes.

pub(crate) mod bindings;
mod digest;
pub mod discovery;
pub mod heads;
pub mod index;
pub mod kinds;
pub(crate) mod templates;
