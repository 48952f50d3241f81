//! One change at one JSON pointer, in an object or in a JSON or YAML text inside it.

use json_patch::{
    AddOperation, PatchOperation, RemoveOperation, ReplaceOperation,
    jsonptr::{Pointer, PointerBuf},
};
use karmada_api::policy::OverriderOperator as Operator;
use serde_json::Value;

/// The language of a text that a field overrider changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// One JSON document; written back without whitespace, its keys in their order.
    Json,
    /// One YAML document; comments and anchors are lost, and keys stand in the order of their names, as Karmada writes
    /// them.
    Yaml,
}

/// Why a JSON pointer (RFC 6901) is none, in the words of Karmada's validation.
///
/// # Errors
/// One sentence.
pub fn check_pointer(path: &str) -> Result<(), String> {
    if path.is_empty() || path.starts_with('/') {
        Ok(())
    } else {
        Err("JSON pointer must be empty or start with a \"/\"".into())
    }
}

/// Makes one change. On an error the document is as it was.
///
/// # Errors
/// A sentence that names the path.
pub(super) fn apply(doc: &mut Value, operator: Operator, path: &str, value: &Value) -> Result<(), String> {
    let mut pointer =
        PointerBuf::parse(path).map_err(|e| format!("path {path:?} is not a JSON pointer: {e}"))?;
    if path.contains("/-") {
        pointer = from_the_end(doc, &pointer, operator);
    }
    let value = value.clone();
    let operation = match operator {
        Operator::Add => PatchOperation::Add(AddOperation { path: pointer, value }),
        Operator::Remove => PatchOperation::Remove(RemoveOperation { path: pointer }),
        Operator::Replace => PatchOperation::Replace(ReplaceOperation { path: pointer, value }),
    };
    json_patch::patch(doc, &[operation]).map_err(|_| match operator {
        Operator::Add => format!("cannot add at {path:?}: what should hold it does not exist"),
        Operator::Remove => format!("cannot remove {path:?}: it does not exist"),
        Operator::Replace => format!("cannot replace {path:?}: it does not exist"),
    })
}

/// A pointer whose negative indices into lists, which count from the end (`-1` is the last, or behind it for what is
/// added), are given as positive ones. RFC 6901 does not have them; the library that Karmada uses does. Those that lead
/// nowhere stay.
fn from_the_end(doc: &Value, pointer: &Pointer, operator: Operator) -> PointerBuf {
    let (mut at, mut found) = (Some(doc), PointerBuf::root());
    let last = pointer.count().saturating_sub(1);
    for (place, token) in pointer.tokens().enumerate() {
        let text = token.decoded();
        let back = text.strip_prefix('-').and_then(|count| count.parse::<usize>().ok());
        let end = at
            .and_then(Value::as_array)
            .map(|list| list.len() + usize::from(operator == Operator::Add && place == last));
        match end.zip(back).and_then(|(end, back)| end.checked_sub(back)) {
            Some(index) if back != Some(0) => found.push_back(index),
            _ => found.push_back(token.clone()),
        }
        at = found.back().and_then(|token| step(at?, &token.decoded()));
    }
    found
}

/// What a list or an object has under a name.
fn step<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Array(list) => list.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    }
}

/// Changes the document inside a text and returns the new text.
///
/// # Errors
/// A sentence that says what is not readable or does not exist.
pub(super) fn apply_in_text<'a>(
    text: &str,
    language: Language,
    changes: impl IntoIterator<Item = (Operator, &'a str, &'a Value)>,
) -> Result<String, String> {
    let mut doc: Value = match language {
        Language::Json => serde_json::from_str(text).map_err(|e| format!("the text is not JSON: {e}"))?,
        Language::Yaml => yaml(text).map_err(|e| format!("the text is not YAML: {e}"))?,
    };
    for (operator, path, value) in changes {
        apply(&mut doc, operator, path, value)?;
    }
    match language {
        Language::Json => serde_json::to_string(&doc).map_err(|e| e.to_string()),
        Language::Yaml => {
            doc.sort_all_objects();
            serde_saphyr::to_string(&doc).map_err(|e| e.to_string())
        }
    }
}

/// Reads YAML as Go's `sigs.k8s.io/yaml` does: `0644` is an octal number, and of a key that stands twice the last
/// counts.
fn yaml(text: &str) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    serde_saphyr::from_str_with_options(text, options)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operators_do_as_rfc_6902_says() {
        use Operator::{Add, Remove, Replace};
        let doc = json!({"a": {"b": 1}, "l": [1, 2]});
        let table = [
            ("add a key", Add, "/a/c", json!({"a": {"b": 1, "c": 9}, "l": [1, 2]})),
            ("add over a key", Add, "/a/b", json!({"a": {"b": 9}, "l": [1, 2]})),
            ("insert into a list", Add, "/l/1", json!({"a": {"b": 1}, "l": [1, 9, 2]})),
            ("append to a list", Add, "/l/-", json!({"a": {"b": 1}, "l": [1, 2, 9]})),
            ("replace", Replace, "/l/0", json!({"a": {"b": 1}, "l": [9, 2]})),
            ("remove", Remove, "/a", json!({"l": [1, 2]})),
            ("replace the last", Replace, "/l/-1", json!({"a": {"b": 1}, "l": [1, 9]})),
            ("remove the last but one", Remove, "/l/-2", json!({"a": {"b": 1}, "l": [2]})),
            ("add behind the last", Add, "/l/-1", json!({"a": {"b": 1}, "l": [1, 2, 9]})),
        ];
        for (message, operator, path, want) in table {
            let mut got = doc.clone();
            apply(&mut got, operator, path, &json!(9)).unwrap();
            assert_eq!(got, want, "{message}");
        }
        let failing = [
            ("parent missing", Add, "/x/y"),
            ("not there", Replace, "/a/x"),
            ("not there", Remove, "/a/x"),
            ("index too large", Add, "/l/7"),
            ("index too far back", Remove, "/l/-3"),
            ("no pointer", Add, "a/b"),
        ];
        for (message, operator, path) in failing {
            let mut got = doc.clone();
            let error = apply(&mut got, operator, path, &json!(9)).unwrap_err();
            assert!(error.contains(path), "{message}: {error}");
            assert_eq!(got, doc, "{message}: untouched");
        }
    }

    #[test]
    fn texts_keep_their_order() {
        let nine = json!("edge-2");
        let change = || [(Operator::Replace, "/region", &nine)];
        assert_eq!(
            apply_in_text(r#"{"region":"none","replicas":1}"#, Language::Json, change()).unwrap(),
            r#"{"region":"edge-2","replicas":1}"#
        );
        let yaml = apply_in_text("z: 1\nregion: none\n", Language::Yaml, change()).unwrap();
        assert_eq!(yaml, "region: edge-2\nz: 1\n", "but not those of YAML");
        let yaml = apply_in_text("mode: 0600\nregion: a\nregion: b\n", Language::Yaml, change()).unwrap();
        assert_eq!(yaml, "mode: 384\nregion: edge-2\n", "as Go reads it");
        assert!(apply_in_text("{", Language::Json, change()).unwrap_err().contains("not JSON"));
        assert!(apply_in_text("a: [", Language::Yaml, change()).unwrap_err().contains("not YAML"));
        assert!(apply_in_text("{}", Language::Json, change()).unwrap_err().contains("/region"));
    }
}
