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
/// What one that is kept takes in memory at most, in bytes. A Cluster with all that it serves takes more.
const SIZE: usize = 64 << 10;
/// What all take at most.
const TOTAL: usize = 2 << 20;
/// What eleven fields of an object take, or fewer: a node of a B-tree. Small objects are nearly all node.
const NODE: usize = 640;
const FIELDS: usize = 11;
/// What a value takes in a list, and what a text takes besides itself.
const VALUE: usize = 32;

/// Recently seen objects.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, (Arc<Value>, usize)>,
    /// What they take together.
    total: usize,
    /// In the order in which they go. A key may be here and its object gone already.
    order: VecDeque<Key>,
}

impl Recent {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.0.lock().objects.get(key).map(|(object, _)| Arc::clone(object))
    }

    pub(super) fn put(&self, key: &Key, object: Value) {
        // Items of a list do not say what they are.
        let left = object.get("kind").and_then(|_| cost(&object, SIZE));
        let mut state = self.0.lock();
        let was_there = state.remove(key);
        let Some(left) = left else { return };
        let takes = SIZE - left;
        state.total += takes;
        state.objects.insert(key.clone(), (Arc::new(object), takes));
        if !was_there {
            state.order.push_back(key.clone());
        }
        while state.order.len() > KEPT || state.total > TOTAL {
            let Some(oldest) = state.order.pop_front() else { break };
            state.remove(&oldest);
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

impl State {
    /// Whether it was there. Its key stays in the order.
    fn remove(&mut self, key: &Key) -> bool {
        let Some((_, takes)) = self.objects.remove(key) else { return false };
        self.total -= takes;
        true
    }
}

/// What is left of `left` after an object; nothing if it is larger.
fn cost(object: &Value, left: usize) -> Option<usize> {
    match object {
        Value::Object(fields) => {
            let left = left.checked_sub(fields.len().div_ceil(FIELDS) * NODE)?;
            fields.iter().try_fold(left, |left, (name, value)| cost(value, left.checked_sub(name.len())?))
        }
        Value::Array(items) => items.iter().try_fold(left, |left, item| cost(item, left.checked_sub(VALUE)?)),
        Value::String(text) => left.checked_sub(text.len() + VALUE),
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
        recent.put(&key(2), object(json!(vec![0; SIZE / VALUE + 1])));
        assert_eq!(recent.get(&key(2)), None);
        recent.put(&key(3), json!({"metadata": {"name": "of a list"}}));
        assert_eq!(recent.get(&key(3)), None);
    }

    #[test]
    fn small_fields_in_great_number_are_large() {
        let resource = json!({"name": "deployments", "kind": "Deployment"});
        let recent = Recent::default();
        recent.put(&key(1), object(json!(vec![&resource; 20])));
        recent.put(&key(2), object(json!(vec![&resource; 120])));
        assert!(recent.get(&key(1)).is_some() && recent.get(&key(2)).is_none());
    }

    #[test]
    fn all_take_no_more_than_they_may_together() {
        let recent = Recent::default();
        let most = TOTAL / (SIZE / 2);
        for n in 0..2 * most {
            recent.put(&key(n), object(json!("x".repeat(SIZE / 2))));
        }
        let state = recent.0.lock();
        let sum: usize = state.objects.values().map(|(_, takes)| takes).sum();
        assert!(state.total == sum && sum <= TOTAL && state.objects.len() >= most - 2, "{sum}");
        assert!(state.objects.contains_key(&key(2 * most - 1)), "the last is there");
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
