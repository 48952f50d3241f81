//! What nobody must be able to guess: tokens, ids of sessions, nonces.
//!
//! They are of a type of their own and come from the operating system, never from an [`Env`](crate::Env), whose randomness
//! a test decides by its seed. Whoever needs a secret in a test that is the same in every run is handed one by the test
//! ([`Secret::known`]), so that it stands in the signature where one could be known.

use std::fmt;

/// Bytes of randomness in a secret.
const BYTES: usize = 32;

/// A secret in the form in which it is shown and sent: letters and digits. Prints as nothing.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A new one, of 256 bits from the operating system.
    #[expect(clippy::new_without_default, reason = "two are never equal, so none is a default")]
    pub fn new() -> Self {
        let mut bytes = [0; BYTES];
        fill(&mut bytes);
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// One that is known already: shown by somebody, read from a file, or chosen by a test.
    pub fn known(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for whoever it is meant for.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether somebody has shown this secret. Takes as long whatever is right of what was shown.
    pub fn is(&self, shown: &str) -> bool {
        let (own, shown) = (self.0.as_bytes(), shown.as_bytes());
        own.len() == shown.len() && own.iter().zip(shown).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Fills a buffer from the operating system.
pub(crate) fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes)
        .expect("invariant: the operating system has randomness once it has started a process");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_new_and_not_printed() {
        let (one, other) = (Secret::new(), Secret::new());
        assert_eq!(one.expose().len(), 2 * BYTES);
        assert!(one.is(one.expose()) && !one.is(other.expose()));
        assert!(!format!("{one:?}").contains(one.expose()));
    }

    #[test]
    fn only_all_of_it_is_it() {
        let secret = Secret::known("abc");
        for (shown, is) in [("abc", true), ("abd", false), ("ab", false), ("abcd", false), ("", false)] {
            assert_eq!(secret.is(shown), is, "{shown}");
        }
    }
}
