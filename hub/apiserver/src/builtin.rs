//! The shape of built-in kinds: the table of Go types, defaults, what the server sets itself, validation.

mod convert;
mod prepare;
pub(crate) mod protobuf;
pub mod types;
mod warnings;

use std::sync::Arc;

use karmada_meta::path::FieldError;
use karmada_smd::schema::TypeRef;
use serde_json::{Map, Value};

use crate::{
    crd,
    findings::Findings,
    kinds::{Kind, KindSpec, built_in_specs, rules},
    shape::Shape,
};

/// The shape of a kind of Kubernetes' own API.
#[derive(Debug)]
pub struct BuiltIn {
    group: String,
    version: String,
    kind: String,
    ty: Option<types::TypeId>,
    conversion: Option<convert::Conversion>,
    schema: TypeRef,
}

impl BuiltIn {
    /// The shape of a kind. One that the tables do not know is taken as it comes.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            ty: types::of_kind(group, version, kind),
            conversion: convert::Conversion::of(group, version, kind),
            schema: TypeRef::builtin(group, version, kind).unwrap_or_else(TypeRef::deduced),
        }
    }
}

impl BuiltIn {
    fn is_definition(&self) -> bool {
        self.kind == "CustomResourceDefinition" && self.group == "apiextensions.k8s.io"
    }
}

impl Shape for BuiltIn {
    fn decode(&self, object: &mut Value, findings: &mut Findings) -> Result<(), String> {
        let Some(ty) = self.ty else { return Ok(()) };
        let head = take_head(object);
        let decoded = types::decode(ty, object, findings).map_err(|error| error.0)?;
        *object = with_head(head, decoded);
        Ok(())
    }

    fn settle(&self, object: &mut Value) {
        let Some(ty) = self.ty else { return };
        let head = take_head(object);
        let settled = types::settle(ty, object).unwrap_or_else(|| object.take());
        *object = with_head(head, settled);
        prepare::settle(&self.group, &self.kind, object);
    }

    fn default(&self, object: &mut Value) {
        if self.is_definition() {
            crd::definition::default(object);
        }
        crate::defaults::apply(&self.group, &self.version, &self.kind, object);
    }

    fn prepare_create(&self, object: &mut Value) {
        prepare::create(&self.group, &self.kind, object);
        if self.is_definition() {
            crd::definition::prepare(object);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        prepare::update(&self.group, &self.kind, object, old);
        if self.is_definition() {
            crd::definition::prepare(object);
        }
    }

    fn prepare_delete(&self, object: &mut Value, now: &str) {
        prepare::delete(&self.group, &self.kind, object, now);
        if self.is_definition() {
            crd::definition::prepare_delete(object, now);
        }
    }

    fn holds_deletion(&self, object: &Value) -> bool {
        if self.is_definition() {
            // It waits for its objects; beginning its deletion gives it the finalizer that says so.
            return karmada_meta::object::deletion_timestamp(object).is_none();
        }
        self.group.is_empty()
            && self.kind == "Namespace"
            && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        if self.is_definition() {
            return crd::definition::validate_create(object);
        }
        crate::validation::create(&self.group, &self.kind, object)
    }

    fn validate_update(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        if self.is_definition() {
            return crd::definition::validate_update(object, old, subresource);
        }
        crate::validation::update(&self.group, &self.kind, object, old, subresource)
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::of(&self.group, &self.kind, object)
    }

    fn has_messages(&self) -> bool {
        self.ty.is_some()
    }

    fn is_stored_form(&self) -> bool {
        self.conversion.is_none()
    }

    fn to_served(&self, mut object: Value) -> Value {
        if let Some(conversion) = self.conversion {
            conversion.to_served(&mut object);
            self.settle(&mut object);
        }
        object
    }

    fn to_stored(&self, mut object: Value) -> Value {
        if let Some(conversion) = self.conversion {
            conversion.to_stored(&mut object);
            if let Some(ty) = conversion.stored_type() {
                let head = take_head(&mut object);
                let settled = types::settle(ty, &object).unwrap_or_else(|| object.take());
                object = with_head(head, settled);
            }
        }
        object
    }

    fn schema(&self) -> &TypeRef {
        &self.schema
    }
}

/// Takes out what the table of types does not have: kind and apiVersion.
fn take_head(object: &mut Value) -> Map<String, Value> {
    let mut head = Map::new();
    if let Some(map) = object.as_object_mut() {
        for field in ["kind", "apiVersion"] {
            if let Some(value) = map.remove(field) {
                head.insert(field.to_owned(), value);
            }
        }
    }
    head
}

fn with_head(mut head: Map<String, Value>, object: Value) -> Value {
    if let Value::Object(rest) = object {
        head.extend(rest);
    }
    Value::Object(head)
}

/// A kind of Kubernetes' own API.
pub fn kind(spec: KindSpec) -> Arc<Kind> {
    let has_status = spec.subresources.iter().any(|s| s.name == "status");
    let rules = rules::built_in(&spec.group, &spec.resource, has_status);
    let shape = Arc::new(BuiltIn::new(&spec.group, &spec.version, &spec.kind));
    Arc::new(Kind::new(spec, rules, shape, None))
}

/// Every kind of `data/kinds.json`.
pub fn kinds() -> Vec<Arc<Kind>> {
    built_in_specs().into_iter().map(kind).collect()
}
