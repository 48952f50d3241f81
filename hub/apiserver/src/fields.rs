//! Who owns which field: the registry's side of structured merge.

use karmada_meta::{
    object,
    status::{FIELD_MANAGER_CONFLICT, Status, StatusCause},
};
use karmada_smd::{ApplyError, ApplyOptions, Set, UpdateOptions};
use serde_json::Value;

use crate::kinds::Kind;

/// How many conflicts are told, and how many bytes of them; the first is told whole.
const MOST_CONFLICTS: usize = 1_000;
const MOST_BYTES: usize = 256 << 10;

/// Fields that an endpoint resets, and that its writers therefore do not come to own.
fn reset_fields(kind: &Kind, subresource: &str) -> Set {
    let paths: Vec<&str> = match subresource {
        "" | "scale" => kind.rules.reset.iter().map(String::as_str).collect(),
        "status" if kind.custom.is_none() && kind.gvr.resource == "deployments" => {
            vec!["spec", "metadata.labels"]
        }
        "status" if kind.custom.is_some() => vec!["spec", "metadata"],
        "status" => vec!["spec"],
        _ => Vec::new(),
    };
    Set::of_fields(&paths)
}

/// `new` with the managed fields that follow from changing `live` into it by anything but apply.
pub(crate) fn update(
    kind: &Kind,
    live: Option<&Value>,
    new: &Value,
    manager: &str,
    subresource: &str,
    now: &str,
) -> Value {
    let reset = reset_fields(kind, subresource);
    let options =
        UpdateOptions { manager, api_version: &kind.api_version, subresource, now, reset_fields: &reset };
    if kind.custom.is_some() {
        return karmada_smd::update(live, new, kind.shape.schema(), &options);
    }
    // What Go writes out as null of a whole object is nobody's; what stands so in a new element of a list is.
    let live = live.map(without_nulls);
    let managed = karmada_smd::update(live.as_ref(), &without_nulls(new), kind.shape.schema(), &options);
    let mut new = new.clone();
    match managed.pointer("/metadata/managedFields") {
        Some(entries) => object::set_meta(&mut new, "managedFields", entries.clone()),
        None => {
            object::remove_meta(&mut new, "managedFields");
        }
    }
    new
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        other => other.clone(),
    }
}

/// `live` with `config` applied, managed fields included.
///
/// # Errors
/// 409 with one cause per field for conflicts, 500 for a configuration that does not fit the schema.
pub(crate) fn apply(
    kind: &Kind,
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    subresource: &str,
    force: bool,
    now: &str,
) -> Result<Value, Status> {
    let reset = reset_fields(kind, subresource);
    let options = ApplyOptions {
        manager,
        api_version: &kind.api_version,
        subresource,
        force,
        now,
        reset_fields: &reset,
    };
    karmada_smd::apply(live, config, kind.shape.schema(), &options).map_err(apply_error)
}

/// The answer to a configuration that was not applied.
pub(crate) fn apply_error(error: ApplyError) -> Status {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let mut bytes = 0;
            let cause = |conflict: karmada_smd::Conflict| StatusCause {
                reason: FIELD_MANAGER_CONFLICT.to_owned(),
                message: conflict.message(),
                field: conflict.path.to_string(),
            };
            let told = conflicts.into_iter().take(MOST_CONFLICTS).map(cause).take_while(|cause| {
                let begun = bytes;
                bytes += cause.message.len() + cause.field.len();
                begun <= MOST_BYTES
            });
            Status::apply_conflict(told.collect())
        }
        ApplyError::BadRequest(message) => Status::bad_request(message),
        ApplyError::Invalid(message) => Status::unclassified(message),
    }
}
