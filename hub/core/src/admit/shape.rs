//! Checks on JSON that come before an object can be read into its type, and so can still name the field.
//!
//! A pattern is a path with `[*]` where a list is: `spec.resourceSelectors[*].kind`.

use karmada_meta::path::{FieldError, Path};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

/// What an object must look like beyond its types.
pub(super) struct Shape {
    /// Fields that must be there and not be empty, if what holds them is there.
    pub(super) required: &'static [&'static str],
    /// Fields that know only certain words, if they are there.
    pub(super) words: &'static [(&'static str, &'static [&'static str])],
}

/// What is wrong with an object's shape.
pub(super) fn check(object: &Value, shape: &Shape) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for pattern in shape.required {
        let (parent, field) = pattern.rsplit_once('.').unwrap_or(("", pattern));
        each(object, parent, &mut |path, value| {
            let found = value.get(field);
            let empty = match found {
                None | Some(Value::Null) => true,
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Array(list)) => list.is_empty(),
                Some(_) => false,
            };
            if empty && value.is_object() {
                errors.push(FieldError::required(&path.child(field), ""));
            }
        });
    }
    for (pattern, words) in shape.words {
        each(object, pattern, &mut |path, value| {
            if value.as_str().is_none_or(|word| !words.contains(&word)) {
                errors.push(FieldError::not_supported(path, value.clone(), words));
            }
        });
    }
    errors
}

/// Reads an object into its type.
///
/// # Errors
/// The first field that does not fit.
pub(super) fn read<T: DeserializeOwned>(object: &Value) -> Result<T, Vec<FieldError>> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let (mut path, mut value) = (Path::root(), Some(object));
        for segment in error.path() {
            (path, value) = match segment {
                Segment::Map { key } => (path.child(key), value.and_then(|v| v.get(key))),
                Segment::Seq { index } => (path.index(*index), value.and_then(|v| v.get(*index))),
                Segment::Enum { .. } | Segment::Unknown => continue,
            };
        }
        vec![FieldError::type_invalid(&path, value.cloned().unwrap_or_default(), error.inner().to_string())]
    })
}

/// Calls `f` for each value that a pattern leads to, with its path. Nulls count as absent.
pub(super) fn each(value: &Value, pattern: &str, f: &mut dyn FnMut(&Path, &Value)) {
    walk(value, &Path::root(), pattern, f);
}

fn walk(value: &Value, path: &Path, pattern: &str, f: &mut dyn FnMut(&Path, &Value)) {
    if value.is_null() {
        return;
    }
    if pattern.is_empty() {
        return f(path, value);
    }
    let (head, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    let (field, list) = head.strip_suffix("[*]").map_or((head, false), |field| (field, true));
    let (Some(value), path) = (value.get(field), path.child(field)) else { return };
    if list {
        for (i, item) in value.as_array().into_iter().flatten().enumerate() {
            walk(item, &path.index(i), rest, f);
        }
    } else {
        walk(value, &path, rest, f);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_its_type_is_named() {
        use karmada_api::policy::PropagationPolicy;
        let rows = [
            (
                json!({"spec": {"resourceSelectors": "all"}}),
                "spec.resourceSelectors: Invalid value: \"all\": ",
            ),
            (
                json!({"spec": {"resourceSelectors": [{"apiVersion": 1}]}}),
                "spec.resourceSelectors[0].apiVersion: ",
            ),
            (json!({"spec": 7}), "spec: Invalid value: 7: "),
        ];
        for (object, start) in rows {
            let errors = read::<PropagationPolicy>(&object).expect_err(start);
            assert!(errors[0].to_string().starts_with(start), "{}", errors[0]);
        }
    }

    #[test]
    fn errors_name_the_field() {
        let shape = Shape {
            required: &["spec.list", "spec.list[*].kind", "spec.maybe.name"],
            words: &[("spec.list[*].mode", &["a", "b"])],
        };
        let texts =
            |object: Value| check(&object, &shape).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(texts(json!({"spec": {"list": [{"kind": "k", "mode": "a"}, {"kind": "k"}]}})).is_empty());
        assert_eq!(texts(json!({"spec": {}})), ["spec.list: Required value"]);
        assert_eq!(
            texts(json!({"spec": {"list": [{"kind": "", "mode": "c"}], "maybe": {}}})),
            [
                "spec.list[0].kind: Required value",
                "spec.maybe.name: Required value",
                r#"spec.list[0].mode: Unsupported value: "c": supported values: "a", "b""#,
            ]
        );
    }
}
