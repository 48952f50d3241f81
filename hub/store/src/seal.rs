//! Values that are not to be read where they are kept.

use std::fmt;

use bytes::Bytes;

use crate::key::Key;

/// Turns values into what stands in files and copies, and back. In memory they are as they are.
///
/// What is kept says by itself whether it was sealed, so that both kinds may lie side by side.
pub trait Seal: fmt::Debug + Send + Sync + 'static {
    /// Whether values of a resource are sealed when they are written.
    fn covers(&self, resource: &str) -> bool;

    /// What is to be kept of a value.
    fn seal(&self, key: &Key, value: &Bytes) -> Bytes;

    /// The value again.
    ///
    /// # Errors
    /// Why it cannot be had; what is wrong and what to do, for the operator.
    fn unseal(&self, key: &Key, kept: Bytes) -> Result<Bytes, String>;
}
