//! A number that tells whether JSON says the same.
//!
//! The order of keys does not count: a stock API server sorts them, the embedded one keeps them. Digests are
//! compared within one process only and are never stored.

use std::hash::Hasher;

use serde_json::{Map, Value};

/// A 64-bit FNV-1a over a canonical walk of `value`.
pub(crate) fn digest(value: &Value) -> u64 {
    digest_of([value])
}

/// One digest over several values, in their order.
pub(crate) fn digest_of<'a>(values: impl IntoIterator<Item = &'a Value>) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    for value in values {
        walk(&mut hasher, value);
    }
    hasher.finish()
}

/// One digest over several maps, each without the fields named beside it.
pub(crate) fn digest_without<'a>(
    maps: impl IntoIterator<Item = (&'a Map<String, Value>, &'a [&'a str])>,
) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    for (map, omitted) in maps {
        fields(&mut hasher, map.iter().filter(|(name, _)| !omitted.contains(&name.as_str())));
    }
    hasher.finish()
}

/// FNV-1a; the standard library's hashers do not promise the same numbers from one release to the next, and this
/// one is four lines.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Every value starts with a tag of its type and ends with its length, so that no two values walk alike.
fn walk(hasher: &mut Fnv, value: &Value) {
    match value {
        Value::Null => hasher.write(b"n"),
        Value::Bool(b) => hasher.write(if *b { b"t" } else { b"f" }),
        Value::Number(n) => text(hasher, b"#", &n.to_string()),
        Value::String(s) => text(hasher, b"s", s),
        Value::Array(items) => {
            hasher.write(b"[");
            items.iter().for_each(|item| walk(hasher, item));
            hasher.write_usize(items.len());
        }
        Value::Object(map) => fields(hasher, map),
    }
}

fn fields<'a>(hasher: &mut Fnv, map: impl IntoIterator<Item = (&'a String, &'a Value)>) {
    hasher.write(b"{");
    let mut fields: Vec<_> = map.into_iter().collect();
    fields.sort_unstable_by_key(|(name, _)| name.as_str());
    for (name, field) in &fields {
        text(hasher, b"k", name);
        walk(hasher, field);
    }
    hasher.write_usize(fields.len());
}

fn text(hasher: &mut Fnv, tag: &[u8], text: &str) {
    hasher.write(tag);
    hasher.write(text.as_bytes());
    hasher.write_usize(text.len());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_does_not_count_and_all_else_does() {
        let base = json!({"a": 1, "b": {"c": [1, 2], "d": null}});
        let same: Value = serde_json::from_str(r#"{"b":{"d":null,"c":[1,2]},"a":1}"#).unwrap();
        assert_eq!(digest(&base), digest(&same));
        let others = [
            json!({"a": 1, "b": {"c": [2, 1], "d": null}}),
            json!({"a": "1", "b": {"c": [1, 2], "d": null}}),
            json!({"a": 1, "b": {"c": [1, 2]}}),
            json!({"a": 1, "b": {"c": [[1, 2]], "d": null}}),
            json!({"a": 1, "bc": {"": [1, 2], "d": null}}),
        ];
        for other in others {
            assert_ne!(digest(&base), digest(&other), "{other}");
        }
    }
}
