//! The [`Shape`] of a custom resource: its compiled schema at work.

use std::sync::Arc;

use karmada_meta::{
    labels::validate_labels,
    names,
    path::{FieldError, Path},
};
use karmada_smd::schema::TypeRef;
use serde_json::{Map, Value};

use crate::{
    findings::Findings,
    kinds::ScalePaths,
    shape::Shape,
    structural::{
        fill,
        rules::Rules,
        schema::{Additional, Schema},
        validate,
    },
};

/// Fields of metadata, as ObjectMeta has them.
const METADATA: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// What is known of the objects of one version of a definition.
#[derive(Debug)]
pub struct CustomShape {
    schema: Schema,
    /// The schema of the version that is stored, if that is another one.
    storage: Option<Schema>,
    merge: TypeRef,
    scale: Option<ScalePaths>,
    rules: Option<Arc<Rules>>,
    /// `spec.preserveUnknownFields` of an old definition: nothing is pruned.
    keeps_unknown: bool,
}

impl CustomShape {
    /// Compiles `openAPIV3Schema` of the version, and of the stored one if that is another.
    pub fn new(
        schema: &Value,
        storage: Option<&Value>,
        scale: Option<ScalePaths>,
        keeps_unknown: bool,
    ) -> Self {
        Self {
            schema: Schema::compile(schema),
            storage: storage.map(Schema::compile),
            merge: karmada_smd::schema::from_structural(schema),
            scale,
            rules: Rules::compile(schema).map(Arc::new),
            keeps_unknown,
        }
    }

    fn judge(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::validate(object, old, &self.schema, &Path::root());
        if let Some(scale) = &self.scale {
            errors.extend(replicas_errors(object, &scale.spec_replicas_path));
            errors.extend(replicas_errors(object, &scale.status_replicas_path));
        }
        // Visiting needs no change; the clone is of objects with embedded ones only.
        if has_embedded(&self.schema) {
            let mut copy = object.clone();
            fill::embedded(&mut copy, &self.schema, &mut |object, path| {
                errors.extend(embedded_errors(object, &Path::new(path)));
            });
        }
        errors.extend(validate::duplicates(object, &self.schema, &Path::root()));
        errors
    }
}

impl Shape for CustomShape {
    fn decode(&self, object: &mut Value, findings: &mut Findings) -> Result<(), String> {
        if !self.keeps_unknown {
            for path in fill::prune(object, &self.schema) {
                findings.unknown(&path);
            }
            fill::embedded(object, &self.schema, &mut |embedded, path| {
                let Some(metadata) = embedded.get_mut("metadata").and_then(Value::as_object_mut) else {
                    return;
                };
                metadata.retain(|key, _| {
                    let known = METADATA.contains(&key.as_str());
                    if !known && !findings.is_full() {
                        findings.unknown(&format!("{path}.metadata.{key}"));
                    }
                    known
                });
            });
        }
        fill::drop_nulls(object, &self.schema);
        Ok(())
    }

    fn default(&self, object: &mut Value) {
        fill::default(object, &self.schema);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        self.judge(object, None)
    }

    fn validate_update(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        if subresource != "status" {
            return self.judge(object, Some(old));
        }
        // Only the status changed, so only it is judged; its errors are named from there, as kube-apiserver's are.
        match (object.get("status"), self.schema.properties.get("status")) {
            (Some(status), Some(schema)) => {
                validate::validate(status, old.get("status"), schema, &Path::new("status"))
            }
            _ => Vec::new(),
        }
    }

    fn rules(&self) -> Option<&Arc<Rules>> {
        self.rules.as_ref()
    }

    fn schema(&self) -> &TypeRef {
        &self.merge
    }

    fn is_stored_form(&self) -> bool {
        self.storage.is_none()
    }

    fn freshen(&self, object: &mut Value) {
        let schema = self.storage.as_ref().unwrap_or(&self.schema);
        if !self.keeps_unknown {
            fill::prune(object, schema);
        }
        fill::drop_nulls(object, schema);
        fill::default(object, schema);
    }

    /// Converting changes the apiVersion alone, which the registry writes; but each side has only what its own version
    /// knows.
    fn to_served(&self, mut object: Value) -> Value {
        if self.storage.is_some() && !self.keeps_unknown {
            fill::prune(&mut object, &self.schema);
            fill::drop_nulls(&mut object, &self.schema);
        }
        object
    }

    fn to_stored(&self, mut object: Value) -> Value {
        if let Some(schema) = self.storage.as_ref().filter(|_| !self.keeps_unknown) {
            fill::prune(&mut object, schema);
        }
        object
    }
}

fn has_embedded(schema: &Schema) -> bool {
    let additional = match &schema.additional {
        Some(Additional::Schema(schema)) => has_embedded(schema),
        _ => false,
    };
    schema.embedded
        || additional
        || schema.properties.values().any(has_embedded)
        || schema.items.as_deref().is_some_and(has_embedded)
}

/// The number at a scale path must be a count.
fn replicas_errors(object: &Value, path: &str) -> Option<FieldError> {
    let value = path.trim_start_matches('.').split('.').try_fold(object, |value, field| value.get(field))?;
    let at = Path::new(path);
    match value.as_i64() {
        None if value.is_null() => None,
        None => Some(FieldError::invalid(&at, value.clone(), "must be an integer")),
        Some(n) if n < 0 => Some(FieldError::invalid(&at, n, "should be a non-negative integer")),
        Some(n) if n > i64::from(i32::MAX) => {
            Some(FieldError::invalid(&at, n, format!("should be less than or equal to {}", i32::MAX)))
        }
        Some(_) => None,
    }
}

/// What every Kubernetes object must have.
fn embedded_errors(object: &Map<String, Value>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion");
    if version.is_empty() {
        errors.push(FieldError::required(&path.child("apiVersion"), ""));
    } else if version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(&path.child("apiVersion"), version, detail));
    }
    if text("kind").is_empty() {
        errors.push(FieldError::required(&path.child("kind"), ""));
    } else if let Err(detail) = names::dns1035_label(&text("kind").to_lowercase()) {
        let detail = format!("may have mixed case, but should otherwise match: {detail}");
        errors.push(FieldError::invalid(&path.child("kind"), text("kind"), detail));
    }
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else { return errors };
    let path = path.child("metadata");
    if let Some(name) = metadata.get("name").and_then(Value::as_str).filter(|n| !n.is_empty()) {
        let wrong = names::path_segment_errors(name);
        errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&path.child("name"), name, detail)));
    }
    let labels = metadata.get("labels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    errors.extend(validate_labels(labels, &path.child("labels")));
    errors
}

#[cfg(test)]
mod tests {
    use karmada_meta::path::aggregate;
    use serde_json::json;

    use super::*;

    #[test]
    fn embedded_objects() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"r": {
            "type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                "spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}}});
        let shape = CustomShape::new(&schema, None, None, false);
        let mut object = json!({"spec": {"r": {"apiVersion": "v1", "kind": "Thing",
            "metadata": {"name": "x", "labels": {"a": "b"}, "nothing": 1}, "spec": {"a": "1", "z": 2}, "top": 1}}});
        let mut findings = Findings::default();
        shape.decode(&mut object, &mut findings).unwrap();
        assert_eq!(
            findings.0,
            [
                "unknown field \"spec.r.spec.z\"",
                "unknown field \"spec.r.top\"",
                "unknown field \"spec.r.metadata.nothing\""
            ]
        );
        assert_eq!(object["spec"]["r"]["metadata"], json!({"name": "x", "labels": {"a": "b"}}));
        assert_eq!(shape.validate_create(&object), []);
        let cases = [
            (json!({"kind": "Thing"}), "spec.r.apiVersion: Required value"),
            (
                json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "Bad Name", "labels": {"a b": "c"}}}),
                "spec.r.metadata.labels: Invalid value: \"a b\": name part must consist",
            ),
        ];
        for (embedded, message) in cases {
            let errors = aggregate(&shape.validate_create(&json!({"spec": {"r": embedded}})));
            assert!(errors.starts_with(message), "{errors}");
        }
    }

    #[test]
    fn replicas_are_counts() {
        let scale = ScalePaths {
            spec_replicas_path: ".spec.replicas".to_owned(),
            status_replicas_path: ".status.replicas".to_owned(),
            label_selector_path: None,
        };
        let shape = CustomShape::new(&json!({"type": "object"}), None, Some(scale), false);
        let cases = [
            (json!({}), ""),
            (json!({"spec": {"replicas": 3}}), ""),
            (
                json!({"spec": {"replicas": -1}}),
                ".spec.replicas: Invalid value: -1: should be a non-negative integer",
            ),
            (
                json!({"spec": {"replicas": 3_000_000_000_u64}}),
                ".spec.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647",
            ),
        ];
        for (object, expected) in cases {
            let errors = shape.validate_create(&object);
            assert_eq!(errors.first().map(ToString::to_string).unwrap_or_default(), expected);
        }
    }

    #[test]
    fn only_what_the_stored_version_knows_is_kept() {
        let schema = |properties: Value| {
            json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": properties}}})
        };
        let (v1, v2) = (
            schema(json!({"n": {"type": "integer"}})),
            schema(json!({"n": {"type": "integer"}, "m": {"type": "integer"}})),
        );
        let shape = CustomShape::new(&v2, Some(&v1), None, false);
        assert!(!shape.is_stored_form());
        assert_eq!(shape.to_stored(json!({"spec": {"n": 1, "m": 2}})), json!({"spec": {"n": 1}}));
        let old = json!({"spec": {"n": 1, "gone": 2, "m": null}});
        assert_eq!(shape.to_served(old.clone()), json!({"spec": {"n": 1}}), "nor is anything else served");
        let keeps = CustomShape::new(&v2, Some(&v1), None, true);
        assert_eq!(keeps.to_served(old.clone()), old);
    }

    #[test]
    fn a_status_is_judged_by_itself() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"p": {"type": "string"}}}}});
        let shape = CustomShape::new(&schema, None, None, false);
        let errors =
            shape.validate_update(&json!({"spec": {"n": "x"}, "status": {"p": 5}}), &json!({}), "status");
        assert_eq!(
            aggregate(&errors),
            r#"status.p: Invalid value: "integer": p in body must be of type string: "integer""#
        );
    }
}
