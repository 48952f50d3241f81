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
    /// The sorts that have not been heard of, in words.
    pub fn missing(&self) -> Vec<&'static str> {
        let sorts = [
            (&self.scripts, "ResourceInterpreterCustomizations"),
            (&self.services, "ResourceInterpreterWebhookConfigurations"),
        ];
        sorts.into_iter().filter(|(heard, _)| !heard.load(Ordering::Acquire)).map(|(_, sort)| sort).collect()
    }

    /// Whether all rules that there are are known.
    pub fn all(&self) -> bool {
        self.scripts.load(Ordering::Acquire) && self.services.load(Ordering::Acquire)
    }
}
