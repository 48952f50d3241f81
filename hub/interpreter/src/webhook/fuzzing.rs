//! What must hold of whatever a service answers.

use serde_json::{Value, json};

use super::Response;
use crate::rules::Operation;

/// An answer is read or refused in words, and what its patch makes is bounded by what it says.
pub fn service_answer(data: &[u8]) {
    let Ok(mut answer) = serde_json::from_slice::<Value>(data) else { return };
    if let Some(response) = answer.get_mut("response").and_then(Value::as_object_mut) {
        response.entry("uid").or_insert_with(|| "u".into());
    }
    let object =
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"list": [1, 2]}});
    for operation in Operation::ALL {
        match Response::read(answer.clone(), "u", operation) {
            Err(why) => assert!(!why.is_empty()),
            Ok(response) => match response.patched(&object) {
                Err(why) => assert!(why.starts_with("response."), "{why}"),
                Ok(patched) => {
                    let most = data.len() + object.to_string().len() + karmada_smd::patch::MAX_COPIED + 64;
                    assert!(patched.to_string().len() <= most, "{patched}");
                }
            },
        }
    }
}
