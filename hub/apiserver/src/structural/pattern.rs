//! Regular expressions of schemas: written for Go's RE2, run by ours.
//!
//! The two differ where a pattern of a definition is likely to notice: `\d`, `\w` and `\s` mean ASCII in RE2, and `[` or
//! `&&` within a class are plain characters there. [`translate`] rewrites these; everything else means the same.

use std::fmt;

/// The largest program of a pattern, in bytes. A few characters make one of any size: `(.{1000}){1000}`.
const MOST_BYTES: usize = 4 << 20;
/// A longer pattern is not even read: what it is parsed into takes hundreds of times its bytes before its program turns out
/// to be too large.
const LONGEST: usize = 128 << 10;
/// A program of this size is small: most are.
const SMALL_BYTES: usize = 64 << 10;
/// What the patterns of one schema may take together, in small programs.
const ROOM: usize = 8 << 10;

/// The patterns of a schema that is to be stored, of which all together have to be compiled at every start.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    used: usize,
}

impl Patterns {
    /// Checks one more pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check(&mut self, source: &str) -> Result<(), String> {
        let wrong = |error| format!("must be a valid regular expression, but isn't: {error}");
        self.used += 1;
        self.spent()?;
        if Pattern::compile_within(source, SMALL_BYTES).is_err() {
            self.used += MOST_BYTES / SMALL_BYTES;
            self.spent()?;
            Pattern::compile(source).map_err(wrong)?;
        }
        Ok(())
    }

    fn spent(&self) -> Result<(), String> {
        if self.used <= ROOM {
            return Ok(());
        }
        Err("is one too many: the regular expressions of this schema are too large together".to_owned())
    }
}

/// A compiled `pattern`.
#[derive(Clone)]
pub struct Pattern {
    source: String,
    engine: Engine,
}

#[derive(Clone)]
enum Engine {
    Text(regex::Regex),
    /// For what needs tables of Unicode that are not built in (`(?i)`): bytes, ASCII only.
    Bytes(regex::bytes::Regex),
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.source)
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(source: &str) -> Result<Self, String> {
        Self::compile_within(source, MOST_BYTES)
    }

    /// Compiles a pattern whose program may take so many bytes.
    fn compile_within(source: &str, bytes: usize) -> Result<Self, String> {
        if source.len() > LONGEST {
            return Err(format!("it has {} bytes, of which it may have {LONGEST}", source.len()));
        }
        let translated = translate(source);
        let engine = match regex::RegexBuilder::new(&translated).size_limit(bytes).build() {
            Ok(regex) => Engine::Text(regex),
            Err(error @ regex::Error::CompiledTooBig(_)) => return Err(error.to_string()),
            Err(error) => regex::bytes::RegexBuilder::new(&translated)
                .unicode(false)
                .size_limit(bytes)
                .build()
                .map(Engine::Bytes)
                .map_err(|_| error.to_string())?,
        };
        Ok(Self { source: source.to_owned(), engine })
    }

    /// The pattern as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether any part of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        match &self.engine {
            Engine::Text(regex) => regex.is_match(text),
            Engine::Bytes(regex) => regex.is_match(text.as_bytes()),
        }
    }
}

/// Rewrites RE2 to our dialect.
fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 16);
    let mut chars = source.chars().peekable();
    // Within a class, and whether its first member (where `]` is plain) is still to come.
    let mut class: Option<bool> = None;
    while let Some(c) = chars.next() {
        if c == '\\' {
            match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some('b') if class.is_none() => out.push_str("(?-u:\\b)"),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            }
            class = class.map(|_| false);
            continue;
        }
        match (class, c) {
            (None, '[') => {
                out.push('[');
                class = Some(true);
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            (None, c) => out.push(c),
            (Some(true), ']') => {
                out.push_str("\\]");
                class = Some(false);
            }
            (Some(_), ']') => {
                out.push(']');
                class = None;
            }
            (Some(_), '[') if chars.peek() == Some(&':') => {
                // A named class such as [:alpha:].
                out.push('[');
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
                class = Some(false);
            }
            (Some(_), c) => {
                if matches!(c, '[' | '&' | '~') {
                    out.push('\\');
                }
                out.push(c);
                class = Some(false);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let cases = [
            ("^[a-z]+$", "abc", true),
            ("^[a-z]+$", "abC", false),
            ("b", "abc", true),
            (r"^\d{2}$", "12", true),
            (r"^\d{2}$", "١٢", false),
            (r"^[\w.-]+$", "a.b-c_1", true),
            (r"^\w+$", "é", false),
            ("^[^a]$", "é", true),
            (r"^\S+$", "a b", false),
            ("^[[]$", "[", true),
            ("^[]a]+$", "]a", true),
            ("^[a&&b]+$", "&ab", true),
            ("^[[:alpha:]]+$", "ab", true),
            ("(?i)^abc$", "ABC", true),
            (r"\bx\b", "a x b", true),
            (r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?$", "a.b/", true),
            (r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE])?$", "1.5Gi", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Pattern::compile(pattern).unwrap().matches(text), expected, "{pattern} on {text}");
        }
        for pattern in ["[", "(", "a{2,1}", "*"] {
            assert!(Pattern::compile(pattern).is_err(), "{pattern}");
        }
        let why = Pattern::compile(&"a".repeat(LONGEST + 1)).unwrap_err();
        assert_eq!(why, "it has 131073 bytes, of which it may have 131072");
    }
}
