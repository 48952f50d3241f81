//! Users' own rules for what the fields of a kind mean: which there are, and whom they concern when they change.

pub(crate) mod customizations;
pub(crate) mod hooks;
