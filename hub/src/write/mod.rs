//! How anything is written to the API: single objects, Works, claims of policies, and Events.

pub(crate) mod claiming;
pub(crate) mod events;
pub mod objects;
pub(crate) mod works;
