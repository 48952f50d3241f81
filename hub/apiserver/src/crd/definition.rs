//! CustomResourceDefinitions themselves: their defaults, what the server sets in them, and what makes one invalid.
//!
//! kube-apiserver checks definitions in an older, internal form, in which what all versions share stands once
//! (`spec.validation`, `spec.subresources`, `spec.additionalPrinterColumns`). Its error paths come from there and so do
//! ours: [`Shared`] says where a piece of a version stands.

use std::collections::HashSet;

use karmada_meta::{
    jsonpath::JsonPath,
    names, object,
    path::{FieldError, Path},
};
use serde_json::{Value, json};

use super::{
    parts::{list, text},
    status,
};
use crate::structural::{self, rules::field_path};

/// The finalizer that keeps a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Groups that belong to Kubernetes want this annotation.
const APPROVAL: &str = "api-approved.kubernetes.io";
/// The most fields that objects may be selected by.
const MAX_SELECTABLE: usize = 8;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// The versions of a definition.
pub(super) fn versions(definition: &Value) -> &[Value] {
    list(definition, "/spec/versions")
}

/// The version objects are stored in; empty if there is none.
pub(super) fn storage_version(definition: &Value) -> &str {
    versions(definition).iter().find(|v| v["storage"] == json!(true)).map_or("", |v| text(v, "/name"))
}

/// Fills in the names that follow from others, and the conversion.
pub fn default(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        for (field, value) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
            let missing = names.get(field).and_then(Value::as_str).unwrap_or_default().is_empty();
            if missing && !kind.is_empty() {
                names.insert(field.to_owned(), Value::String(value));
            }
        }
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({"strategy": "None"});
    }
    if let Some(service) =
        conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut)
    {
        service.entry("port").or_insert(json!(443));
    }
}

/// What the server sets in a definition that is written: its storage version counts as stored in from now on.
pub fn prepare(definition: &mut Value) {
    let storage = storage_version(definition).to_owned();
    if storage.is_empty() || list(definition, "/status/storedVersions").iter().any(|v| v == &storage) {
        return;
    }
    let status = &mut definition["status"];
    if !status.is_object() {
        *status =
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null});
    }
    match &mut status["storedVersions"] {
        Value::Array(stored) => stored.push(Value::String(storage)),
        other => *other = json!([storage]),
    }
}

/// What happens to a definition when its deletion begins: it waits for its objects to go.
pub fn prepare_delete(definition: &mut Value, now: &str) {
    let mut finalizers: Vec<String> = object::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|f| f == CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
        object::set_meta(definition, "finalizers", json!(finalizers));
    }
    status::set_condition(
        definition,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        now,
    );
}

/// What is wrong with a new definition, metadata aside.
pub fn validate_create(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, group, plural) =
        (object::name(definition), text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    if name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(&Path::new("metadata").child("name"), name, detail));
    }
    errors.extend(validate_spec(definition));
    errors.extend(validate_stored_versions(definition));
    if is_protected(group) && object::annotation(definition, APPROVAL).is_none() {
        let path = Path::new("metadata").child("annotations").key(APPROVAL);
        let detail = format!(
            "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::required(&path, detail));
    }
    errors.extend(validate_preserving(definition, None));
    errors
}

/// What is wrong with an update of a definition, metadata aside.
pub fn validate_update(definition: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
    if subresource == "status" {
        return validate_stored_versions(definition);
    }
    let mut errors = validate_spec(definition);
    let established = status::is_true(old, "Established");
    let immutable: &[&str] = if established {
        &["/spec/scope", "/spec/names/kind", "/spec/group", "/spec/names/plural"]
    } else {
        &["/spec/group", "/spec/names/plural"]
    };
    for pointer in immutable {
        if definition.pointer(pointer) != old.pointer(pointer) {
            let path = Path::new(pointer.trim_start_matches('/').replace('/', "."));
            errors.push(FieldError::invalid(&path, text(definition, pointer), "field is immutable"));
        }
    }
    errors.extend(validate_stored_versions(definition));
    errors.extend(validate_preserving(definition, Some(old)));
    errors
}

fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Which pieces all versions share, so that they stand at the top of `spec` in the internal form.
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Shared {
    fn of(versions: &[Value]) -> Self {
        let same = |field: &str| versions.windows(2).all(|pair| pair[0].get(field) == pair[1].get(field));
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }

    /// The versions as kube-apiserver's messages show them.
    fn dump(&self, versions: &[Value]) -> Value {
        if versions.is_empty() {
            return Value::Null;
        }
        let show = |version: &Value, field: &str, shared: bool| {
            if shared { Value::Null } else { version.get(field).cloned().unwrap_or_default() }
        };
        versions
            .iter()
            .map(|v| {
                json!({
                    "Name": text(v, "/name"),
                    "Served": v["served"] == json!(true),
                    "Storage": v["storage"] == json!(true),
                    "Deprecated": v["deprecated"] == json!(true),
                    "DeprecationWarning": v.get("deprecationWarning"),
                    "Schema": show(v, "schema", self.schema),
                    "Subresources": show(v, "subresources", self.subresources),
                    "AdditionalPrinterColumns": show(v, "additionalPrinterColumns", self.columns),
                    "SelectableFields": show(v, "selectableFields", self.selectable),
                })
            })
            .collect()
    }
}

fn validate_spec(definition: &Value) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let mut errors = Vec::new();
    let group = text(definition, "/spec/group");
    let group_at = spec.child("group");
    if group.is_empty() {
        errors.push(FieldError::required(&group_at, ""));
    } else if let Err(detail) = names::dns1123_subdomain(group) {
        errors.push(FieldError::invalid(&group_at, group, detail));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(&group_at, group, "should be a domain with at least one dot"));
    }
    match text(definition, "/spec/scope") {
        "" => errors.push(FieldError::required(&spec.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => {
            errors.push(FieldError::not_supported(&spec.child("scope"), other, &["Cluster", "Namespaced"]));
        }
    }
    let all = versions(definition);
    let shared = Shared::of(all);
    errors.extend(validate_versions(definition, all, &shared));
    errors.extend(validate_names(definition));
    if let Some(first) = all.first() {
        if shared.schema {
            errors.extend(validate_version_schema(first, &spec.child("validation")));
        }
        if shared.subresources {
            errors.extend(validate_subresources(first, &spec.child("subresources")));
        }
        if shared.columns {
            errors.extend(validate_columns(first, &spec.child("additionalPrinterColumns")));
        }
        if shared.selectable {
            errors.extend(validate_selectable(first, &spec.child("selectableFields")));
        }
    }
    errors.extend(validate_conversion(definition));
    errors
}

fn validate_versions(definition: &Value, all: &[Value], shared: &Shared) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let mut errors = Vec::new();
    let has_schema = |v: &Value| v.pointer("/schema/openAPIV3Schema").is_some_and(Value::is_object);
    for (index, version) in all.iter().enumerate() {
        if !has_schema(version) {
            let path = spec.child("versions").index(index).child("schema").child("openAPIV3Schema");
            errors.push(FieldError::required(&path, ""));
        }
    }
    for (index, version) in all.iter().enumerate() {
        let path = spec.child("versions").index(index);
        let name = text(version, "/name");
        if let Err(detail) = names::dns1035_label(name) {
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
        if version["deprecated"] != json!(true) && !text(version, "/deprecationWarning").is_empty() {
            let path = path.child("deprecationWarning");
            let detail = "can only be set for deprecated versions";
            errors.push(FieldError::invalid(&path, text(version, "/deprecationWarning"), detail));
        }
        if !shared.schema {
            errors.extend(validate_version_schema(version, &path.child("schema")));
        }
        if !shared.subresources {
            errors.extend(validate_subresources(version, &path.child("subresources")));
        }
        if !shared.columns {
            errors.extend(validate_columns(version, &path.child("additionalPrinterColumns")));
        }
        if !shared.selectable {
            errors.extend(validate_selectable(version, &path.child("selectableFields")));
        }
    }
    let names: std::collections::BTreeSet<&str> = all.iter().map(|v| text(v, "/name")).collect();
    if names.len() != all.len() {
        errors.push(FieldError::invalid(
            &spec.child("versions"),
            shared.dump(all),
            "must contain unique version names",
        ));
    }
    if all.iter().filter(|v| v["storage"] == json!(true)).count() != 1 {
        let written = definition.pointer("/spec/versions").is_some_and(Value::is_array);
        let shown = if all.is_empty() && written { json!([]) } else { shared.dump(all) };
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(&spec.child("versions"), shown, detail));
    }
    // The internal form repeats the first version's name at the top.
    if let Some(first) = all.first().map(|v| text(v, "/name"))
        && let Err(detail) = names::dns1035_label(first)
    {
        errors.push(FieldError::invalid(&spec.child("version"), first, detail));
    }
    errors
}

fn validate_names(definition: &Value) -> Vec<FieldError> {
    let path = Path::new("spec").child("names");
    let name = |field: &str| text(definition, &format!("/spec/names/{field}"));
    let mut errors = Vec::new();
    for field in ["plural", "singular", "kind", "listKind"] {
        if name(field).is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        }
    }
    let mut label = |path: Path, value: &str, hint: &str, text: &str| {
        if !text.is_empty()
            && let Err(detail) = names::dns1035_label(text)
        {
            errors.push(FieldError::invalid(&path, value, format!("{hint}{detail}")));
        }
    };
    let mixed = "may have mixed case, but should otherwise match: ";
    label(path.child("plural"), name("plural"), "", name("plural"));
    label(path.child("singular"), name("singular"), "", name("singular"));
    label(path.child("kind"), name("kind"), mixed, &name("kind").to_lowercase());
    label(path.child("listKind"), name("listKind"), mixed, &name("listKind").to_lowercase());
    for field in ["shortNames", "categories"] {
        for (index, value) in list(definition, &format!("/spec/names/{field}")).iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            label(path.child(field).index(index), value, "", value);
        }
    }
    if !name("kind").is_empty() && name("kind") == name("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(&path.child("listKind"), name("listKind"), detail));
    }
    errors
}

fn validate_version_schema(version: &Value, path: &Path) -> Vec<FieldError> {
    match version.pointer("/schema/openAPIV3Schema") {
        Some(schema) if schema.is_object() => {
            structural::validate_schema(schema, &path.child("openAPIV3Schema"))
        }
        _ => Vec::new(),
    }
}

fn validate_subresources(version: &Value, path: &Path) -> Vec<FieldError> {
    let Some(scale) = version.pointer("/subresources/scale").filter(|v| v.is_object()) else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    let fields: [(&str, &[&str], &str); 3] = [
        ("specReplicasPath", &[".spec."], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ];
    for (field, below, detail) in fields {
        let path = path.child("scale").child(field);
        let value = text(scale, &format!("/{field}"));
        if value.is_empty() {
            if field != "labelSelectorPath" {
                errors.push(FieldError::required(&path, ""));
            }
        } else if !value.starts_with('.') {
            errors.push(FieldError::invalid(&path, value, "must be a simple json path starting with ."));
        } else if !below.iter().any(|prefix| value.starts_with(prefix)) {
            errors.push(FieldError::invalid(&path, value, detail));
        } else if value[1..]
            .split('.')
            .any(|part| part.is_empty() || part.contains(['[', ']', '*', '\'', '"']))
        {
            errors.push(FieldError::invalid(
                &path,
                value,
                "must be a simple json path without array notation",
            ));
        }
    }
    errors
}

fn validate_columns(version: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, column) in list(version, "/additionalPrinterColumns").iter().enumerate() {
        let path = path.index(index);
        if text(column, "/name").is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        match text(column, "/type") {
            "" => errors.push(FieldError::required(
                &path.child("type"),
                format!("must be one of {}", COLUMN_TYPES.join(",")),
            )),
            known if COLUMN_TYPES.contains(&known) => {}
            other => errors.push(FieldError::invalid(
                &path.child("type"),
                other,
                format!("must be one of {}", COLUMN_TYPES.join(",")),
            )),
        }
        let format = text(column, "/format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(&path.child("format"), format, detail));
        }
        let expression = text(column, "/jsonPath");
        let path = path.child("JSONPath");
        if expression.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !expression.starts_with('.') {
            errors.push(FieldError::invalid(&path, expression, "must be a simple json path starting with ."));
        } else if let Err(error) = JsonPath::parse(expression) {
            errors.push(FieldError::invalid(&path, expression, format!("is an invalid path: {error}")));
        }
    }
    errors
}

/// Fields that objects may be selected by.
fn validate_selectable(version: &Value, path: &Path) -> Vec<FieldError> {
    let (mut errors, mut seen) = (Vec::new(), std::collections::BTreeSet::new());
    let nothing = json!({});
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&nothing);
    for (index, field) in list(version, "/selectableFields").iter().enumerate() {
        let at = path.index(index).child("jsonPath");
        let given = text(field, "/jsonPath");
        if given.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let found = if given.contains('[') {
            Err("array notation is not allowed".to_owned())
        } else {
            field_path(given, schema)
        };
        let (found, schema) = match found {
            Ok(found) => found,
            Err(why) => {
                errors.push(FieldError::invalid(&at, given, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if given.split('.').nth(1) == Some("metadata") {
            errors.push(FieldError::invalid(&at, given, "must not point to fields in metadata"));
        }
        if !matches!(text(schema, "/type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.push(FieldError::invalid(&at, given, detail));
        }
        if !seen.insert(found.to_string()) {
            errors.push(FieldError::duplicate(&at, given));
        }
    }
    if seen.len() > MAX_SELECTABLE {
        errors.push(FieldError::too_many(path, seen.len(), MAX_SELECTABLE));
    }
    errors
}

/// Old definitions may keep what no schema knows; new ones say so where it is meant.
fn validate_preserving(definition: &Value, old: Option<&Value>) -> Option<FieldError> {
    let preserves =
        |definition: &Value| definition.pointer("/spec/preserveUnknownFields") == Some(&json!(true));
    (preserves(definition) && !old.is_some_and(preserves)).then(|| {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        FieldError::invalid(&Path::new("spec").child("preserveUnknownFields"), true, detail)
    })
}

fn validate_conversion(definition: &Value) -> Vec<FieldError> {
    let path = Path::new("spec").child("conversion");
    match text(definition, "/spec/conversion/strategy") {
        "" | "None" => {
            let webhook = definition.pointer("/spec/conversion/webhook").filter(|v| v.is_object());
            match webhook {
                Some(_) => vec![FieldError::forbidden(
                    &path.child("webhookClientConfig"),
                    "should not be set when strategy is not set to Webhook",
                )],
                None => Vec::new(),
            }
        }
        "Webhook" => {
            let mut errors = Vec::new();
            if definition.pointer("/spec/conversion/webhook/clientConfig").is_none_or(Value::is_null) {
                let detail = "required when strategy is set to Webhook";
                errors.push(FieldError::required(&path.child("webhookClientConfig"), detail));
            }
            if list(definition, "/spec/conversion/webhook/conversionReviewVersions").is_empty() {
                errors.push(FieldError::required(&path.child("conversionReviewVersions"), ""));
            }
            let served = versions(definition).iter().filter(|v| v["served"] == json!(true)).count();
            if errors.is_empty() && served > 1 {
                // With one served version there is nothing to convert, so such definitions are taken.
                let detail = "this server calls no conversion webhooks; serve one version only";
                errors.push(FieldError::invalid(&path.child("strategy"), "Webhook", detail));
            }
            errors
        }
        other => vec![FieldError::not_supported(&path.child("strategy"), other, &["None", "Webhook"])],
    }
}

fn validate_stored_versions(definition: &Value) -> Vec<FieldError> {
    let path = Path::new("status").child("storedVersions");
    let stored = list(definition, "/status/storedVersions");
    let shown = if stored.is_empty() { Value::Null } else { Value::Array(stored.to_vec()) };
    if stored.is_empty() {
        return vec![FieldError::invalid(&path, shown, "must have at least one stored version")];
    }
    let all = versions(definition);
    let names: HashSet<&str> = all.iter().map(|v| text(v, "/name")).collect();
    let mut errors = Vec::new();
    for (index, version) in stored.iter().enumerate() {
        let name = version.as_str().unwrap_or_default();
        if !names.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(&path.index(index), name, detail));
        }
    }
    let last = all.iter().rfind(|v| v["storage"] == json!(true)).map_or("", |v| text(v, "/name"));
    if !last.is_empty() && !stored.iter().any(|v| v == last) {
        errors.push(FieldError::invalid(&path, shown, format!("must have the storage version {last}")));
    }
    errors
}

#[cfg(test)]
mod tests;
