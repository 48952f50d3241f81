//! What any Kubernetes object has, whatever its kind: names, kinds, labels, quantities, times, field paths and
//! the `Status` a server answers with. No I/O, no clock of its own.
//!
//! ```text
//!   gvk ──────────┐                    names ── labels ── fields      what users select by
//!   path ─ status ┴─ what an error     quantity · time                what stands in a field
//!   object           is told as        (accessors over serde_json::Value)
//!   text                               others' words, bounded, for logs and terminals
//!   sums                               in what two copies of a collection differ
//!   renewal                            a Lease renewed in few bytes
//!   pack                               watches in few bytes
//!   way                                what was found on the way to a server
//!   query                              what is asked behind a path
//! ```
//!
//! Objects stay `serde_json::Value` everywhere (a typed struct would drop fields newer than itself), so
//! [`object`] is a set of accessors rather than a type. Message texts are those of kube-apiserver 1.36, since
//! clients and people compare them; the recordings under the conformance suite hold them in place.

pub mod duration;
pub mod effort;
pub mod fields;
pub mod gvk;
pub mod jsonpath;
pub mod labels;
pub mod names;
pub mod object;
pub mod pack;
pub mod path;
pub mod quantity;
pub mod query;
pub mod renewal;
pub mod status;
pub mod sums;
pub mod text;
pub mod time;
pub mod way;
pub mod webhook;

pub use gvk::{
    GroupKind, GroupResource, GroupVersionKind, GroupVersionResource, api_version, parse_api_version,
};
pub use path::{ErrorKind, FieldError, Path};
pub use quantity::Quantity;
pub use status::Status;
pub use time::{MicroTime, Time};

/// Quotes a string the way Go's `%q` does, which is how Kubernetes prints names and values in messages.
pub fn go_quote(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() || (c.is_whitespace() && c != ' ') || c == '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn quoting_is_gos() {
        for (text, want) in [
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a\"b\\", "\"a\\\"b\\\\\""),
            ("\n\t\u{1}\u{7f}", "\"\\n\\t\\x01\\x7f\""),
            ("grüße", "\"grüße\""),
            ("\u{a0}", "\"\\u00a0\""),
        ] {
            assert_eq!(super::go_quote(text), want);
        }
    }
}
