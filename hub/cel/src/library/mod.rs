//! Values of CEL's libraries, without the functions by which rules use them.

pub(crate) mod net;
pub(crate) mod semver;
pub(crate) mod time;
