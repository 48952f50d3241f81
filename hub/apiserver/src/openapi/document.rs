//! Whole documents: paths and definitions of some kinds, written out piece by piece.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    custom,
    gnostic::Message,
    paths::{Names, Paths, Resource},
    published::Published,
    tables::{Dialect, Tables},
};
use crate::{
    builtin::types::{self, TypeId},
    kinds::Kind,
    subresources::is_served,
};

/// The version that documents of built-in kinds give themselves.
const VERSION: &str = "1.36";

/// What a document is made of.
pub(crate) struct Document<'a> {
    dialect: Dialect,
    paths: Paths,
    resources: Vec<Resource<'a>>,
    built_in: Published,
    /// Group, version and kind of definitions.
    kinds: BTreeMap<String, Vec<[&'a str; 3]>>,
    tables: Tables,
}

/// The type of a kind, if it has one.
fn type_of(kind: &Kind) -> Option<TypeId> {
    let gvk = &kind.gvk;
    kind.custom.is_none().then(|| types::of_kind(&gvk.group, &gvk.version, &gvk.kind))?
}

/// The name of a definition that has no type: group backwards, version, kind.
fn reversed(group: &str, version: &str, kind: &str) -> String {
    let group = group.split('.').rev().collect::<Vec<_>>().join(".");
    format!("{group}.{version}.{kind}")
}

impl<'a> Document<'a> {
    /// A document of these kinds.
    pub(crate) fn new(dialect: Dialect, served: impl IntoIterator<Item = &'a Kind>) -> Self {
        let mut built_in = Published::default();
        let mut add = |ty: TypeId| {
            built_in.add(ty);
            Published::name(ty)
        };
        let names = Names {
            delete_options: add(types::request_kind("DeleteOptions")),
            status: add(types::request_kind("Status")),
            patch: String::new(),
        };
        add(types::object_meta());
        let mut kinds: BTreeMap<String, Vec<[&'a str; 3]>> = BTreeMap::new();
        kinds.insert(names.status.clone(), vec![["", "v1", "Status"]]);
        let mut resources = Vec::new();
        for kind in served {
            let (group, version) = (kind.gvr.group.as_str(), kind.gvr.version.as_str());
            let definition = match type_of(kind) {
                Some(ty) => add(ty),
                None => reversed(group, version, &kind.gvk.kind),
            };
            let package = definition.rsplit_once('.').map_or("", |(package, _)| package);
            let list = format!("{package}.{}", kind.list_kind);
            kinds.insert(definition.clone(), vec![[group, version, &kind.gvk.kind]]);
            if kind.has_verb("list") {
                kinds.insert(list.clone(), vec![[group, version, &kind.list_kind]]);
            }
            let options = kinds.entry(names.delete_options.clone()).or_default();
            if !options.iter().any(|known| known[..2] == [group, version]) {
                options.push([group, version, "DeleteOptions"]);
            }
            let subresources = kind.subresources.iter().filter(|sub| is_served(&sub.name)).map(|sub| {
                let gvk = match sub.version.as_str() {
                    "" => [group, version, sub.kind.as_str()],
                    _ => [sub.group.as_str(), sub.version.as_str(), sub.kind.as_str()],
                };
                let named = match types::of_kind(gvk[0], gvk[1], gvk[2]) {
                    Some(ty) => {
                        let name = add(ty);
                        kinds.entry(name.clone()).or_insert_with(|| vec![gvk]);
                        name
                    }
                    None => definition.clone(),
                };
                (sub.name.as_str(), gvk, named, sub.verbs.as_slice())
            });
            let subresources = subresources.collect();
            resources.push(Resource { kind, definition, list, subresources });
        }
        let names = Names { patch: built_in.add_patch(), ..names };
        Self {
            dialect,
            paths: Paths { dialect, names },
            resources,
            built_in,
            kinds,
            tables: Tables::read(dialect),
        }
    }

    /// Every path once: of several kinds at one path, which there are not, the first.
    fn each_path(&self, mut write: impl FnMut(&str, &Value)) {
        for resource in &self.resources {
            for (path, item) in self.paths.of(resource) {
                write(&path, &item);
            }
        }
    }

    fn each_definition(&self, mut write: impl FnMut(&str, &Value)) {
        let mut publish = |name: &str, mut schema: Value| {
            if let Some(kinds) = self.kinds.get(name) {
                let kinds: Vec<Value> = kinds
                    .iter()
                    .map(|[group, version, kind]| json!({"group": group, "version": version, "kind": kind}))
                    .collect();
                schema["x-kubernetes-group-version-kind"] = Value::Array(kinds);
            }
            write(name, &schema);
        };
        for (name, schema) in self.built_in.render(self.dialect, &self.tables) {
            publish(name, schema);
        }
        for resource in &self.resources {
            let kind = resource.kind;
            if type_of(kind).is_none() {
                let open = json!({});
                let schema = kind.custom.as_ref().map_or(&open, |custom| &*custom.schema);
                publish(&resource.definition, custom::definition(schema, self.dialect, &self.tables));
            }
            if kind.has_verb("list") {
                publish(&resource.list, custom::list(resource, self.dialect, &self.tables));
            }
        }
    }

    /// The members of a JSON object.
    fn members(each: impl FnOnce(&mut dyn FnMut(&str, &Value))) -> String {
        let mut text = String::new();
        each(&mut |name, value| {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&Value::from(name).to_string());
            text.push(':');
            text.push_str(&value.to_string());
        });
        text
    }

    /// As JSON.
    pub(crate) fn json(&self) -> String {
        let paths = Self::members(|write| self.each_path(write));
        let definitions = Self::members(|write| self.each_definition(write));
        let security = r#""BearerToken":{"type":"apiKey","name":"authorization","in":"header","description":"Bearer Token authentication"}"#;
        let custom = !self.resources.is_empty() && self.resources.iter().all(|r| r.kind.custom.is_some());
        match self.dialect {
            Dialect::V2 => format!(
                r#"{{"swagger":"2.0","info":{{"title":"Kubernetes","version":"{VERSION}"}},"paths":{{{paths}}},"definitions":{{{definitions}}},"securityDefinitions":{{{security}}},"security":[{{"BearerToken":[]}}]}}"#
            ),
            Dialect::V3 if custom => format!(
                r#"{{"openapi":"3.0.0","info":{{"title":"Kubernetes CRD Swagger","version":"v0.1.0"}},"paths":{{{paths}}},"components":{{"schemas":{{{definitions}}}}}}}"#
            ),
            Dialect::V3 => format!(
                r#"{{"openapi":"3.0.0","info":{{"title":"Kubernetes","version":"{VERSION}"}},"paths":{{{paths}}},"components":{{"schemas":{{{definitions}}},"securitySchemes":{{{security}}}}}}}"#
            ),
        }
    }

    /// As gnostic's protobuf, which there is of Swagger 2 alone.
    pub(crate) fn gnostic(&self) -> Vec<u8> {
        let mut message = Message::default();
        message.head("Kubernetes", VERSION);
        self.each_path(|path, item| message.path(path, item));
        self.each_definition(|name, schema| message.definition(name, schema));
        message.into_bytes()
    }
}
