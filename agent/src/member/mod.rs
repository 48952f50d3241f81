//! The member's side: what it serves, what is on it, and how that is changed.

pub(crate) mod apply;
pub(crate) mod config;
pub(crate) mod discovery;
pub(crate) mod drift;
pub(crate) mod ground;
pub(crate) mod health;
pub(crate) mod lease;
pub(crate) mod observe;
pub(crate) mod occupants;
pub(crate) mod quotas;
pub(crate) mod released;
pub(crate) mod served;
pub(crate) mod sights;
pub(crate) mod summary;
