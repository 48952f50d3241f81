//! ConfigMaps and Secrets.

use base64::{Engine, prelude::BASE64_STANDARD};
use karmada_meta::{
    names, object,
    path::{FieldError, Path},
};
use serde_json::{Map, Value};

use super::parts::text;

/// Of a Secret's or ConfigMap's data, all together.
const MAX_SIZE: usize = 1 << 20;
const MAX_KEY: usize = 253;
const REDACTED: &str = "<secret contents redacted>";
const FROZEN: &str = "field is immutable when `immutable` is set";

fn map<'a>(object: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    object.get(field).and_then(Value::as_object)
}

/// The keys of both kinds may become file names.
fn key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if key.len() > MAX_KEY {
        errors.push(names::max_len_error(MAX_KEY));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(plain) {
        errors.push(names::regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match key {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        key if key.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

fn keys(object: &Value, field: &str) -> Vec<FieldError> {
    let path = Path::new(field);
    let keys = map(object, field).into_iter().flatten().map(|(key, _)| key.as_str());
    keys.flat_map(|key| {
        let path = path.key(key);
        key_errors(key).into_iter().map(move |detail| FieldError::invalid(&path, key, detail))
    })
    .collect()
}

/// Bytes behind base64.
fn decoded_size(map: Option<&Map<String, Value>>) -> usize {
    let values = map.into_iter().flatten().filter_map(|(_, v)| v.as_str());
    values.map(|v| v.len() / 4 * 3 - v.bytes().rev().take_while(|b| *b == b'=').count().min(2)).sum()
}

pub(super) fn config_map(object: &Value) -> Vec<FieldError> {
    let mut errors = keys(object, "data");
    let (data, binary) = (map(object, "data"), map(object, "binaryData"));
    for key in binary.into_iter().flatten().map(|(key, _)| key.as_str()) {
        if data.is_some_and(|data| data.contains_key(key)) {
            let detail = format!("duplicate of key present in data: {key}");
            errors.push(FieldError::invalid(&Path::new("binaryData").key(key), key, detail));
        }
    }
    errors.extend(keys(object, "binaryData"));
    let plain: usize = data.into_iter().flatten().map(|(_, v)| v.as_str().map_or(0, str::len)).sum();
    if plain + decoded_size(binary) > MAX_SIZE {
        errors.push(FieldError::too_long(&Path::root(), MAX_SIZE));
    }
    errors
}

pub(super) fn secret(object: &Value) -> Vec<FieldError> {
    let mut errors = keys(object, "data");
    let data = map(object, "data");
    if decoded_size(data) > MAX_SIZE {
        errors.push(FieldError::too_long(&Path::new("data"), MAX_SIZE));
    }
    let path = Path::new("data");
    let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
    let required = |keys: &[&str]| -> Vec<FieldError> {
        keys.iter().filter(|key| !has(key)).map(|key| FieldError::required(&path.key(key), "")).collect()
    };
    match text(object, "/type") {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if object::annotation(object, name).is_none_or(str::is_empty) {
                errors.push(FieldError::required(&Path::new("metadata").child("annotations").key(name), ""));
            }
        }
        "kubernetes.io/dockercfg" => errors.extend(registry_config(data, ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => errors.extend(registry_config(data, ".dockerconfigjson")),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.extend(required(&["username", "password"]));
        }
        "kubernetes.io/ssh-auth" => errors.extend(required(&["ssh-privatekey"])),
        "kubernetes.io/tls" => errors.extend(required(&["tls.crt", "tls.key"])),
        _ => {}
    }
    errors
}

/// Credentials of an image registry are JSON.
fn registry_config(data: Option<&Map<String, Value>>, key: &str) -> Option<FieldError> {
    let path = Path::new("data").key(key);
    let Some(value) = data.and_then(|data| data.get(key)).and_then(Value::as_str) else {
        return Some(FieldError::required(&path, ""));
    };
    let bytes = BASE64_STANDARD.decode(value).unwrap_or_default();
    let error = serde_json::from_slice::<Map<String, Value>>(&bytes).err()?;
    let detail = if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
    Some(FieldError::invalid(&path, REDACTED, detail))
}

/// What a frozen one may not change, and a Secret never.
pub(super) fn update(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object.get("type") != old.get("type") {
        errors.push(FieldError::invalid(&Path::new("type"), text(object, "/type"), super::IMMUTABLE));
    }
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return errors;
    }
    let same = |field: &str| {
        let filled = |o: &Value| map(o, field).filter(|m| !m.is_empty()).cloned();
        filled(object) == filled(old)
    };
    if object.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(&Path::new("immutable"), FROZEN));
    }
    for field in ["data", "binaryData"] {
        if !same(field) {
            errors.push(FieldError::forbidden(&Path::new(field), FROZEN));
        }
    }
    errors
}
