//! Works: what the hub wants, carrying it out, and saying what became of it.

pub(crate) mod desired;
pub(crate) mod outbox;
pub(crate) mod report;
pub(crate) mod sync;
pub(crate) mod waits;
