//! Objects as YAML that every parser reads alike.
//!
//! Parsers differ in what they take a bare word for (`on`, `1_000`, `0o7`), so every text is quoted, as JSON quotes
//! it. What remains is the layout: block style, one field a line.

use std::fmt::Write as _;

use serde_json::Value;

/// One document, with its separator.
pub fn document(value: &Value) -> String {
    let mut out = String::from("---\n");
    match value {
        Value::Object(map) if !map.is_empty() => block(&mut out, value, 0),
        other => {
            scalar(&mut out, other);
            out.push('\n');
        }
    }
    out
}

/// A map or list that is not empty, from the present column on.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) => {
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 {
                    pad(out, indent);
                }
                self::key(out, key);
                out.push(':');
                nested(out, value, indent);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    pad(out, indent);
                }
                out.push('-');
                match item {
                    Value::Object(map) if !map.is_empty() => {
                        out.push(' ');
                        block(out, item, indent + 2);
                    }
                    Value::Array(items) if !items.is_empty() => {
                        out.push(' ');
                        block(out, item, indent + 2);
                    }
                    other => leaf(out, other),
                }
            }
        }
        other => leaf(out, other),
    }
}

/// The value of a key.
fn nested(out: &mut String, value: &Value, indent: usize) {
    let deeper = match value {
        Value::Object(map) if !map.is_empty() => indent + 2,
        Value::Array(items) if !items.is_empty() => indent,
        other => return leaf(out, other),
    };
    out.push('\n');
    pad(out, deeper);
    block(out, value, deeper);
}

fn leaf(out: &mut String, value: &Value) {
    out.push(' ');
    scalar(out, value);
    out.push('\n');
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Keys of fields are plain words; those of labels, annotations and data may be anything.
fn key(out: &mut String, key: &str) {
    let plain = key.len() > 3
        && key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric())
        && !["true", "false", "null"].contains(&key.to_ascii_lowercase().as_str());
    if plain { out.push_str(key) } else { quoted(out, key) }
}

fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => quoted(out, text),
        // Empty maps and lists, numbers, booleans and null are the same in JSON.
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// JSON's quoting, and beyond it the characters that YAML does not take bare.
fn quoted(out: &mut String, text: &str) {
    for c in Value::from(text).to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_layout_is_kubectls() {
        let object = json!({
            "kind": "ConfigMap", "data": {"a.b": "on", "text": "1\n2\n", "empty": ""},
            "list": [{"name": "x", "ports": [80, 81]}, "y", [1, [2]], {}, []], "none": null, "zero": 0,
        });
        let want = "---\n\
                    kind: \"ConfigMap\"\n\
                    data:\n  \"a.b\": \"on\"\n  text: \"1\\n2\\n\"\n  empty: \"\"\n\
                    list:\n- name: \"x\"\n  ports:\n  - 80\n  - 81\n- \"y\"\n- - 1\n  - - 2\n- {}\n- []\n\
                    none: null\nzero: 0\n";
        assert_eq!(document(&object), want);
        assert_eq!(document(&json!({})), "---\n{}\n");
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "\\PC*".prop_map(Value::from),
            "[ -~\\t\\n\\r\\x00\\x7f\u{85}\u{2028}]{0,12}".prop_map(Value::from),
            proptest::sample::select(vec![
                "on", "no", "~", "1e3", "0x1", "- a", "a: b", "---", "#", "&a", "*a", "!t"
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-zA-Z0-9./_ -]{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in anything()) {
            let object = json!({ "kind": value });
            let text = document(&object);
            let read: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
            prop_assert_eq!(read, vec![object], "{}", text);
        }
    }
}
