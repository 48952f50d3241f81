//! Works: what is wanted, carrying it out, and what became of it.

pub(crate) mod desired;
pub(crate) mod notes;
mod plan;
pub(crate) mod report;
pub(crate) mod sync;
pub(crate) mod waits;
