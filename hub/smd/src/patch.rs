//! JSON patch (RFC 6902) and JSON merge patch (RFC 7386), with the limits and habits of Kubernetes.

use json_patch::PatchOperation;
use karmada_meta::object;
use serde_json::Value;

/// The most operations that one JSON patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// The most bytes that the copies of one JSON patch may add together: a patch that copies what it has copied before grows
/// without an end otherwise. kube-apiserver's limit.
pub const MAX_COPIED: usize = 3 << 20;

/// The deepest that a JSON patch may nest what it changes. Its operations could make a document that no stack holds, each
/// of them by a little.
pub const MAX_DEPTH: usize = 200;

/// The most elements of lists that one JSON patch may shift, and values that it may look at, all operations together: each
/// insert at the head of a long list shifts all of it. A list of a thousand elements may be changed ten thousand times.
pub const MAX_STEPS: usize = 16 << 20;

/// Why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is no patch of its kind: 400.
    #[error("{0}")]
    BadRequest(String),
    /// It has too many operations: 413.
    #[error("{0}")]
    TooLarge(String),
    /// An operation does not hold or cannot be done: 422. Kubernetes says no more than its generic message; the text
    /// here is for logs.
    #[error("{0}")]
    Rejected(String),
    /// The result is not an object of its type: 422, a field error of `patch` with this value and detail.
    #[error(" \"\" is invalid: patch: Invalid value: {}: {detail}", Value::from(value.as_str()))]
    Invalid { value: String, detail: String },
    /// A directive of a strategic merge patch cannot be followed: 500, as Kubernetes has it.
    #[error("{0}")]
    Internal(String),
}

/// Applies a JSON patch: a list of operations, all or none.
///
/// # Errors
/// `BadRequest`, `TooLarge` or `Rejected`.
pub fn json_patch(document: &Value, operations: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = operations else {
        let what = match operations {
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            _ => return Ok(document.clone()),
        };
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {what} into Go value of type jsonpatch.Patch"
        )));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = document.clone();
    let (mut copied, mut steps) = (0, 0);
    for operation in operations {
        let operation = normal(&document, operation)?;
        if operation.get("op").is_some_and(|op| op == "copy") {
            let from = operation.get("from").and_then(Value::as_str).unwrap_or_default();
            copied += document.pointer(from).map_or(0, |value| object::json_length(value, MAX_COPIED));
            if copied > MAX_COPIED {
                return Err(PatchError::TooLarge(format!(
                    "Unable to copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
                )));
            }
        }
        let shifted_now = shifted(&document, &operation);
        steps += shifted_now;
        check_depth(&document, &operation, &mut steps)?;
        karmada_meta::effort::spend(shifted_now);
        if steps > MAX_STEPS {
            return Err(PatchError::TooLarge(format!(
                "The patch changes long lists too often: it would take more than {MAX_STEPS} steps"
            )));
        }
        apply(&mut document, operation)?;
    }
    Ok(document)
}

/// How many elements of lists an operation shifts.
fn shifted(document: &Value, operation: &Value) -> usize {
    let behind = |field: &str| {
        let path = operation.get(field).and_then(Value::as_str)?;
        let (list, last) = path.rsplit_once('/')?;
        let list = document.pointer(list)?.as_array()?;
        Some(list.len().saturating_sub(last.parse().unwrap_or(list.len())))
    };
    match operation.get("op").and_then(Value::as_str) {
        Some("add" | "remove" | "copy") => behind("path").unwrap_or(0),
        Some("move") => behind("path").unwrap_or(0) + behind("from").unwrap_or(0),
        _ => 0,
    }
}

/// Refuses an operation that would nest too deep. Counts the values it looks at.
fn check_depth(document: &Value, operation: &Value, steps: &mut usize) -> Result<(), PatchError> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let value = match text("op") {
        Some("add" | "replace") => operation.get("value"),
        Some("copy" | "move") => text("from").and_then(|from| document.pointer(from)),
        _ => None,
    };
    let place = text("path").map_or(0, |path| path.matches('/').count());
    if value.is_some_and(|value| place + depth(value, steps) > MAX_DEPTH) {
        return Err(PatchError::Rejected(format!("the outcome would nest deeper than {MAX_DEPTH}")));
    }
    Ok(())
}

/// How deep a value nests; 0 for one that holds no others.
fn depth(value: &Value, steps: &mut usize) -> usize {
    *steps += 1;
    match value {
        Value::Array(list) => 1 + list.iter().map(|item| depth(item, steps)).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(|item| depth(item, steps)).max().unwrap_or(0),
        _ => 0,
    }
}

/// An operation whose pointers are as RFC 6901 has them.
fn normal(document: &Value, operation: &Value) -> Result<Value, PatchError> {
    let mut operation = operation.clone();
    for pointer in ["path", "from"] {
        let path = operation.get(pointer).and_then(Value::as_str).map(|path| normal_pointer(document, path));
        if let Some(path) = path
            && let Some(value) = operation.get_mut(pointer)
        {
            *value = Value::from(path?);
        }
    }
    Ok(operation)
}

fn apply(document: &mut Value, operation: Value) -> Result<(), PatchError> {
    // A test for null holds where nothing is.
    if operation.get("op") == Some(&Value::from("test"))
        && operation.get("value").is_none_or(Value::is_null)
        && operation.get("path").and_then(Value::as_str).is_some_and(|path| document.pointer(path).is_none())
    {
        return Ok(());
    }
    // What is not there yet in a map is put there by a replacement, too.
    let operation = if puts_new(document, &operation) { added(operation) } else { operation };
    let operation: PatchOperation =
        serde_json::from_value(operation).map_err(|error| PatchError::Rejected(error.to_string()))?;
    json_patch::patch_unsafe(document, std::slice::from_ref(&operation))
        .map_err(|error| PatchError::Rejected(error.to_string()))
}

/// Whether an operation replaces a member that a map does not have. The library that Kubernetes uses sets it then, and
/// Karmada's own clients rely on that.
fn puts_new(document: &Value, operation: &Value) -> bool {
    let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
    operation.get("op").is_some_and(|op| op == "replace")
        && document.pointer(path).is_none()
        && path.rsplit_once('/').and_then(|(map, _)| document.pointer(map)).is_some_and(Value::is_object)
}

fn added(mut operation: Value) -> Value {
    operation["op"] = Value::from("add");
    operation
}

/// The pointer as the library that Kubernetes uses reads it: what stands before the first slash does not count, and
/// -1 is the last element of a list.
fn normal_pointer(document: &Value, path: &str) -> Result<String, PatchError> {
    if path.is_empty() {
        return Ok(String::new());
    }
    let Some(slash) = path.find('/') else {
        return Err(PatchError::Rejected(format!("pointer {path:?} has no slash")));
    };
    let path = &path[slash..];
    if !path.split('/').any(|token| token.starts_with('-') && token.len() > 1) {
        return Ok(path.to_owned());
    }
    let mut out = String::with_capacity(path.len());
    let mut at = Some(document);
    for token in path[1..].split('/') {
        let parent = at.and_then(Value::as_array);
        let back = token.strip_prefix('-').and_then(|t| t.parse::<usize>().ok());
        let start = out.len();
        out.push('/');
        match (parent, back) {
            (Some(items), Some(back)) if (1..=items.len()).contains(&back) => {
                out.push_str(&(items.len() - back).to_string());
            }
            _ => out.push_str(token),
        }
        at = at.and_then(|value| value.pointer(&out[start..]));
    }
    Ok(out)
}

/// Applies a JSON merge patch: what it says is set, null removes.
pub fn merge_patch(document: &Value, patch: &Value) -> Value {
    let mut document = document.clone();
    json_patch::merge(&mut document, patch);
    document
}

#[cfg(test)]
mod tests;
