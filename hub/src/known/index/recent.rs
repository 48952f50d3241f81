//! The whole objects that a watch has brought last: a reconcile that follows a change reads what the change brought,
//! as a controller of Karmada reads its informer, without asking the API for what was in its hands a moment ago.
//!
//! Few and small ones, and none that came in a list: what is not here is read. Nothing else enters than what the watch brings, in its order, so an
//! object here is the newest that the index knows of.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use karmada_objects::key::Key;
use parking_lot::Mutex;
use serde_json::Value;

/// Objects that are kept, at most.
const KEPT: usize = 128;
/// Bytes of text and fields of one that is kept, at most; in memory it is several times that.
const SIZE: usize = 8 * 1024;
/// What a field or an element counts besides its text.
const NODE: usize = 16;

/// Recently seen objects.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, Arc<Value>>,
    /// In the order in which they go. A key may be here and its object gone already.
    order: VecDeque<Key>,
}

impl Recent {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.0.lock().objects.get(key).cloned()
    }

    pub(super) fn put(&self, key: &Key, object: Value) {
        // Items of a list do not say what they are.
        let fits = object.get("kind").is_some() && cost(&object, SIZE).is_some();
        let mut state = self.0.lock();
        if !fits {
            state.objects.remove(key);
            return;
        }
        if state.objects.insert(key.clone(), Arc::new(object)).is_none() {
            state.order.push_back(key.clone());
        }
        while state.order.len() > KEPT {
            if let Some(oldest) = state.order.pop_front() {
                state.objects.remove(&oldest);
            }
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().objects.remove(key);
    }
}

/// What is left of `left` after an object; nothing if it is larger.
fn cost(object: &Value, left: usize) -> Option<usize> {
    match object {
        Value::Object(fields) => fields
            .iter()
            .try_fold(left, |left, (name, value)| cost(value, left.checked_sub(name.len() + NODE)?)),
        Value::Array(items) => items.iter().try_fold(left, |left, item| cost(item, left.checked_sub(NODE)?)),
        Value::String(text) => left.checked_sub(text.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(left),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "a table reads better so")]
    fn object(data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data})
    }

    fn key(n: usize) -> Key {
        Key::new("a", format!("x{n}"))
    }

    #[test]
    fn the_last_of_a_key_counts_and_the_oldest_keys_go() {
        let recent = Recent::default();
        for n in 0..KEPT + 10 {
            recent.put(&key(n), object(json!(n)));
            recent.put(&key(n), object(json!([n, "again"])));
        }
        assert_eq!(recent.get(&key(9)), None);
        assert_eq!(*recent.get(&key(10)).unwrap(), object(json!([10, "again"])));
        recent.forget(&key(10));
        assert_eq!(recent.get(&key(10)), None);
        assert_eq!(recent.0.lock().objects.len(), KEPT - 1);
    }

    #[test]
    fn a_large_object_is_not_kept_and_takes_its_older_form_along() {
        let recent = Recent::default();
        recent.put(&key(1), object(json!("small")));
        recent.put(&key(1), object(json!("x".repeat(SIZE))));
        assert_eq!(recent.get(&key(1)), None);
        recent.put(&key(2), object(json!(vec![0; SIZE / NODE + 1])));
        assert_eq!(recent.get(&key(2)), None);
        recent.put(&key(3), json!({"metadata": {"name": "of a list"}}));
        assert_eq!(recent.get(&key(3)), None);
    }

    #[test]
    fn a_forgotten_key_that_comes_again_is_kept_like_a_new_one() {
        let recent = Recent::default();
        for round in 0..3 {
            recent.put(&key(1), object(json!(round)));
            recent.forget(&key(1));
        }
        recent.put(&key(1), object(json!("last")));
        assert_eq!(*recent.get(&key(1)).unwrap(), object(json!("last")));
    }
}
