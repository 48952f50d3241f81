//! One change at one JSON pointer, in an object or in a JSON or YAML text inside it.

use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, jsonptr::PointerBuf};
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
    let pointer = PointerBuf::parse(path).map_err(|e| format!("path {path:?} is not a JSON pointer: {e}"))?;
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
        Language::Yaml => serde_saphyr::from_str(text).map_err(|e| format!("the text is not YAML: {e}"))?,
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
        assert!(apply_in_text("{", Language::Json, change()).unwrap_err().contains("not JSON"));
        assert!(apply_in_text("a: [", Language::Yaml, change()).unwrap_err().contains("not YAML"));
        assert!(apply_in_text("{}", Language::Json, change()).unwrap_err().contains("/region"));
    }
}
