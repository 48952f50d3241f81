//! Whether users' own rules for what the fields of a kind mean are known.

use std::sync::atomic::{AtomicBool, Ordering};

/// Which sorts of rules have been heard of since the start. Nothing is applied before both have: what a rule would retain
/// would be overwritten.
#[derive(Debug, Default)]
pub struct Heard {
    /// Scripts (ResourceInterpreterCustomization).
    pub scripts: AtomicBool,
    /// Services to ask (ResourceInterpreterWebhookConfiguration).
    pub services: AtomicBool,
}

impl Heard {
    /// Whether all rules that there are are known.
    pub fn all(&self) -> bool {
        self.scripts.load(Ordering::Acquire) && self.services.load(Ordering::Acquire)
    }
}
