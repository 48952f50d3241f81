//! Sums by which two sides find out in what their copies of a collection differ, before anything large is sent.
//!
//! ```text
//!   object ─▶ Sum: all that it says, whoever wrote it and in whatever order its fields stand
//!   name ───▶ place ─▶ bucket at a depth: its first so many bits
//!   bucket:   the Sums of the objects in it, added up
//! ```
//!
//! A bucket of which both sides have the same is the same on both, but for one chance in 2^64. One that differs is looked
//! into at the next depth, where it is sixteen. The sums are SHA-256's, so that nobody who may write one object can make up
//! for a change of another.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// How many bits more the next depth has.
pub const STEP: u32 = 4;

/// The depth beyond which nobody looks.
pub const DEEPEST: u32 = 16;

/// How many buckets at most are asked for by name at a time.
pub const MOST: usize = 256;

/// What tells one copy of an object from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sum(pub u64);

impl Sum {
    /// Of all that an object says but its status, its resourceVersion, and who has written what of it.
    pub fn wanted(object: &Value) -> Self {
        let mut hash = Sha256::new();
        for (key, value) in sorted(object) {
            match (key.as_str(), value) {
                ("status", _) => {}
                ("metadata", Value::Object(metadata)) => {
                    hash.update(b"metadata");
                    let said = metadata
                        .iter()
                        .filter(|(key, _)| !matches!(key.as_str(), "resourceVersion" | "managedFields"));
                    write_members(&mut hash, said.collect(), Nothing::LeftOut);
                }
                _ if is_nothing(value) => {}
                // What a manifest says stands as it is: `emptyDir: {}` is more than nothing.
                _ => {
                    write_text(&mut hash, key);
                    write(&mut hash, value, Nothing::Kept);
                }
            }
        }
        Self::of(hash)
    }

    /// The same with a status.
    pub fn with(self, status: &Value) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0.to_be_bytes());
        match status {
            Value::Null => write_members(&mut hash, Vec::new(), Nothing::LeftOut),
            status => write(&mut hash, status, Nothing::LeftOut),
        }
        Self::of(hash)
    }

    /// Of all that an object says.
    pub fn told(object: &Value) -> Self {
        Self::wanted(object).with(&object["status"])
    }

    fn of(hash: Sha256) -> Self {
        let digest: [u8; 32] = hash.finalize().into();
        Self(first(&digest))
    }
}

fn first(digest: &[u8; 32]) -> u64 {
    digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn sorted(value: &Value) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = value.as_object().into_iter().flatten().collect();
    members.sort_by_key(|(key, _)| *key);
    members
}

/// What becomes of members that say nothing: null, `{}` and `[]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nothing {
    /// One writer has them where another leaves them out.
    LeftOut,
    Kept,
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn write_members(hash: &mut Sha256, mut members: Vec<(&String, &Value)>, nothing: Nothing) {
    members.sort_by_key(|(key, _)| *key);
    hash.update(b"{");
    for (key, value) in members {
        if nothing == Nothing::Kept || !is_nothing(value) {
            write_text(hash, key);
            write(hash, value, nothing);
        }
    }
    hash.update(b"}");
}

/// With its length, so that no text runs into the next.
fn write_text(hash: &mut Sha256, text: &str) {
    hash.update(b"\"");
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}

fn write(hash: &mut Sha256, value: &Value, nothing: Nothing) {
    match value {
        Value::Object(members) => write_members(hash, members.iter().collect(), nothing),
        Value::Array(items) => {
            hash.update(b"[");
            items.iter().for_each(|item| write(hash, item, nothing));
            hash.update(b"]");
        }
        Value::String(text) => write_text(hash, text),
        Value::Number(number) => {
            hash.update(b"#");
            write_text(hash, &number.to_string());
        }
        Value::Bool(true) => hash.update(b"t"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Null => hash.update(b"n"),
    }
}

/// In which bucket of a depth a name lies. Depths beyond the deepest have no more buckets than that.
pub fn bucket(name: &str, depth: u32) -> u32 {
    let digest: [u8; 32] = Sha256::digest(name.as_bytes()).into();
    let place = first(&digest);
    match depth.min(DEEPEST) {
        0 => 0,
        depth => u32::try_from(place >> (u64::BITS - depth)).unwrap_or(u32::MAX),
    }
}

/// What a bucket is sixteen of at the next depth.
pub fn children(bucket: u32) -> impl Iterator<Item = u32> {
    (0..1 << STEP).map(move |child| bucket << STEP | child)
}

/// The sums of a collection at one depth. Empty buckets have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets(BTreeMap<u32, u64>);

impl Buckets {
    /// Adds up objects, by name, at a depth.
    pub fn of<'a>(objects: impl IntoIterator<Item = (&'a str, Sum)>, depth: u32) -> Self {
        let mut buckets = Self::default();
        for (name, sum) in objects {
            buckets.add(bucket(name, depth), sum.0);
        }
        buckets
    }

    /// Adds what is known of a bucket.
    pub fn add(&mut self, bucket: u32, sum: u64) {
        let known = self.0.entry(bucket).or_default();
        *known = known.wrapping_add(sum);
    }

    /// The sum of a bucket; 0 if it is empty.
    pub fn get(&self, bucket: u32) -> u64 {
        self.0.get(&bucket).copied().unwrap_or(0)
    }

    /// Which of some buckets are not the same on another side.
    pub fn differing(&self, other: &Self, among: impl IntoIterator<Item = u32>) -> Vec<u32> {
        among.into_iter().filter(|bucket| self.get(*bucket) != other.get(*bucket)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_is_told_by_what_it_says() {
        let object = json!({"kind": "Work", "metadata": {"name": "a", "uid": "u", "resourceVersion": "7",
            "labels": {"x": "1", "y": "2"}}, "spec": {"a": [1, {"b": null}]}, "status": {"conditions": []}});
        let (wanted, told) = (Sum::wanted(&object), Sum::told(&object));
        let with = |pointer: &str, value: Value| {
            let mut object = object.clone();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value;
            (Sum::wanted(&object) == wanted, Sum::told(&object) == told)
        };
        for (pointer, value, want) in [
            ("/metadata/resourceVersion", json!("8"), (true, true)),
            ("/metadata/managedFields", json!([{"manager": "x"}]), (true, true)),
            ("/metadata/labels", json!({"y": "2", "x": "1"}), (true, true)),
            ("/metadata/annotations", json!({}), (true, true)),
            ("/metadata/annotations", json!({"a": ""}), (false, false)),
            ("/metadata/uid", json!("v"), (false, false)),
            ("/spec/a", json!([1]), (false, false)),
            ("/spec/a", json!([{"b": null}, 1]), (false, false)),
            ("/spec/b", json!(false), (false, false)),
            // `emptyDir: {}` says something.
            ("/spec/b", json!({}), (false, false)),
            ("/spec/a", json!([1, {}]), (false, false)),
            ("/status/conditions", json!([{"type": "Applied"}]), (true, false)),
            ("/status/more", Value::Null, (true, true)),
        ] {
            assert_eq!(with(pointer, value.clone()), want, "{pointer} {value}");
        }
        // No status, and one without anything in it.
        assert_eq!(told, Sum::wanted(&object).with(&Value::Null));
        // No text runs into the next.
        assert_ne!(Sum::told(&json!({"a": ["b", "c"]})), Sum::told(&json!({"a": ["bc"]})));
        assert_ne!(Sum::told(&json!({"ab": "c"})), Sum::told(&json!({"a": "bc"})));
    }

    proptest! {
        /// However two copies differ, what is left at the deepest look has all that differs, and nothing else need be sent.
        #[test]
        fn what_differs_is_found(
            ours in prop::collection::btree_map("[a-e]{1,3}", 0u64..3, 0..60),
            theirs in prop::collection::btree_map("[a-e]{1,3}", 0u64..3, 0..60),
        ) {
            let sum = |of: u64, name: &str| Sum::told(&json!({"name": name, "of": of}));
            let at = |side: &BTreeMap<String, u64>, depth| {
                Buckets::of(side.iter().map(|(name, of)| (name.as_str(), sum(*of, name))), depth)
            };
            let mut among: Vec<u32> = children(0).collect();
            let mut depth = STEP;
            loop {
                let differing = at(&ours, depth).differing(&at(&theirs, depth), among);
                let names = ours.keys().chain(theirs.keys());
                for name in names {
                    let differs = ours.get(name) != theirs.get(name);
                    prop_assert!(!differs || differing.contains(&bucket(name, depth)), "{name} at {depth}");
                }
                if depth == DEEPEST {
                    prop_assert!(ours != theirs || differing.is_empty());
                    break;
                }
                among = differing.into_iter().flat_map(children).collect();
                depth += STEP;
            }
        }
    }
}
