//! Reading and writing JSON by path.

use serde_json::{Map, Value};

/// The value at a path of object keys.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// The text at a path; empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a path; 0 when there is none.
pub(crate) fn int(value: &Value, path: &[&str]) -> i64 {
    at(value, path).and_then(Value::as_i64).unwrap_or(0)
}

/// The list at a path; empty when there is none.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Sets the value at a path, making the objects on the way; a value of another type that stands in the way is
/// replaced.
pub(crate) fn set(value: &mut Value, path: &[&str], new: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut here = value;
    for key in parents {
        here = as_map(here).entry(*key).or_insert_with(|| Value::Object(Map::new()));
    }
    as_map(here).insert((*last).to_owned(), new);
}

/// Takes away the value at a path.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    parents.iter().try_fold(value, |value, key| value.get_mut(key))?.as_object_mut()?.shift_remove(*last)
}

/// Takes away the value at a path, and then every object on the way up, to `keep` levels from the top, that this
/// leaves empty.
pub(crate) fn remove_and_tidy(value: &mut Value, path: &[&str], keep: usize) {
    if remove(value, path).is_none() {
        return;
    }
    for depth in (keep + 1..path.len()).rev() {
        let parent = &path[..depth];
        if at(value, parent).and_then(Value::as_object).is_none_or(|map| !map.is_empty()) {
            return;
        }
        remove(value, parent);
    }
}

/// The value as an object, which it becomes if it is none.
fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("invariant: made an object above")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn set_makes_the_way() {
        let mut value = json!({"spec": 3});
        set(&mut value, &["spec", "template", "x"], json!(1));
        assert_eq!(value, json!({"spec": {"template": {"x": 1}}}));
    }

    #[test]
    fn tidying_stops_at_what_is_kept_and_at_what_is_full() {
        let mut value = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}});
        remove_and_tidy(&mut value, &["spec", "selector", "matchLabels", "a"], 1);
        assert_eq!(value, json!({"spec": {}}));
        let mut value = json!({"spec": {"selector": {"matchLabels": {"a": "b"}, "other": 1}}});
        remove_and_tidy(&mut value, &["spec", "selector", "matchLabels", "a"], 1);
        assert_eq!(value, json!({"spec": {"selector": {"other": 1}}}));
        remove_and_tidy(&mut value, &["spec", "no", "such"], 0);
        assert_eq!(value, json!({"spec": {"selector": {"other": 1}}}));
    }
}
