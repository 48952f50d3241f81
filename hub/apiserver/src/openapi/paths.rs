//! The operations on a resource, as both dialects describe them.
//!
//! What clients read here: whether a kind is patched with `fieldValidation` and `dryRun`, in which formats, and which
//! kind a path is of. So each operation stands with its parameters written out, as even old clients understand.

use serde_json::{Map, Value, json};

use super::tables::Dialect;
use crate::kinds::Kind;

/// Names of the definitions that operations refer to.
#[derive(Debug)]
pub(crate) struct Names {
    /// `meta/v1` DeleteOptions.
    pub(crate) delete_options: String,
    /// `meta/v1` Status.
    pub(crate) status: String,
    /// `meta/v1` Patch.
    pub(crate) patch: String,
}

/// What an operation is of.
struct Subject<'a> {
    /// Group, version and kind that are read and written there.
    gvk: (&'a str, &'a str, &'a str),
    /// Its definition.
    definition: &'a str,
    /// The definition of a list of these.
    list: &'a str,
}

/// A kind, with the names of its definitions.
#[derive(Debug)]
pub(crate) struct Resource<'a> {
    /// The kind.
    pub(crate) kind: &'a Kind,
    /// Its definition.
    pub(crate) definition: String,
    /// The definition of its list.
    pub(crate) list: String,
    /// Subresources that are served: name, group, version, kind, definition, verbs.
    pub(crate) subresources: Vec<(&'a str, [&'a str; 3], String, &'a [String])>,
}

const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];
const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];

/// What is answered.
const PRODUCES: [&str; 2] = ["application/json", "application/yaml"];

/// One operation: verb of discovery, method, action, beginning of its id, parameters.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const COLLECTION: &[Row] = &[
    ("list", "get", "list", "list", LIST),
    ("create", "post", "post", "create", WRITE),
    ("deletecollection", "delete", "deletecollection", "deleteCollection", DELETE_COLLECTION),
];
const OBJECT: &[Row] = &[
    ("get", "get", "get", "read", &[]),
    ("update", "put", "put", "replace", WRITE),
    ("patch", "patch", "patch", "patch", PATCH),
    ("delete", "delete", "delete", "delete", DELETE),
];

/// Writes the paths of resources in one dialect.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) dialect: Dialect,
    pub(crate) names: Names,
}

impl Paths {
    /// Every path of a resource, with what can be done there.
    pub(crate) fn of(&self, resource: &Resource<'_>) -> Vec<(String, Value)> {
        let kind = resource.kind;
        let (group, version) = (kind.gvr.group.as_str(), kind.gvr.version.as_str());
        let prefix =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let place = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{prefix}{place}/{}", kind.gvr.resource);
        let object = format!("{collection}/{{name}}");
        let subject = Subject {
            gvk: (group, version, &kind.gvk.kind),
            definition: &resource.definition,
            list: &resource.list,
        };
        let id = |of: &str| {
            let scope = if kind.namespaced { "Namespaced" } else { "" };
            format!("{}{scope}{of}", group_version_id(group, version))
        };
        let mut paths = Vec::new();
        let mut add = |path: String, item: Option<Value>| paths.extend(item.map(|item| (path, item)));
        let verbs = kind.verbs.as_slice();
        if kind.namespaced && kind.has_verb("list") {
            let id = format!("{}{}ForAllNamespaces", group_version_id(group, version), kind.gvk.kind);
            let path = format!("{prefix}/{}", kind.gvr.resource);
            add(path, self.item(kind, &COLLECTION[..1], verbs, &subject, &id, &[]));
        }
        let in_namespace: &[&str] = if kind.namespaced { &["namespace"] } else { &[] };
        add(collection, self.item(kind, COLLECTION, verbs, &subject, &id(&kind.gvk.kind), in_namespace));
        let of_object: Vec<&str> = std::iter::once("name").chain(in_namespace.iter().copied()).collect();
        add(object.clone(), self.item(kind, OBJECT, verbs, &subject, &id(&kind.gvk.kind), &of_object));
        for (name, [group, version, sub_kind], definition, verbs) in &resource.subresources {
            let subject = Subject { gvk: (group, version, sub_kind), definition, list: "" };
            let id = id(&format!("{}{}", kind.gvk.kind, capital(name)));
            add(format!("{object}/{name}"), self.item(kind, OBJECT, verbs, &subject, &id, &of_object));
        }
        paths
    }

    /// One path; nothing if nothing can be done there.
    fn item(
        &self,
        kind: &Kind,
        rows: &[Row],
        verbs: &[String],
        subject: &Subject<'_>,
        id: &str,
        in_path: &[&str],
    ) -> Option<Value> {
        let mut item = Map::new();
        for row in rows.iter().filter(|row| verbs.iter().any(|verb| verb == row.0)) {
            item.insert(row.1.to_owned(), self.operation(kind, row, subject, id));
        }
        if item.is_empty() {
            return None;
        }
        let path = in_path.iter().map(|name| self.parameter(name, "path"));
        item.insert("parameters".to_owned(), path.chain([self.parameter("pretty", "query")]).collect());
        Some(Value::Object(item))
    }

    fn operation(&self, kind: &Kind, row: &Row, subject: &Subject<'_>, id: &str) -> Value {
        let (verb, method, action, begin, parameters) = *row;
        let (group, version, name) = subject.gvk;
        let gvk = json!({"group": group, "version": version, "kind": name});
        let (body, answer) = match verb {
            "list" => (None, subject.list),
            "create" | "update" => (Some((subject.definition, true)), subject.definition),
            "patch" => (Some((self.names.patch.as_str(), true)), subject.definition),
            "delete" | "deletecollection" => {
                (Some((self.names.delete_options.as_str(), false)), self.names.status.as_str())
            }
            _ => (None, subject.definition),
        };
        let codes: &[(&str, &str)] = match verb {
            "create" => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            "update" | "patch" => &[("200", "OK"), ("201", "Created")],
            "delete" => &[("200", "OK"), ("202", "Accepted")],
            _ => &[("200", "OK")],
        };
        let consumes: Vec<&str> = match verb {
            "patch" if kind.custom.is_some() => {
                vec![
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/apply-patch+yaml",
                ]
            }
            "patch" => vec![
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ],
            _ => vec!["*/*"],
        };
        let mut responses: Map<String, Value> =
            codes.iter().map(|(code, text)| ((*code).to_owned(), self.response(text, answer))).collect();
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        let mut parameters: Vec<Value> =
            parameters.iter().map(|parameter| self.parameter(parameter, "query")).collect();
        let mut operation = Map::from_iter([
            ("tags".to_owned(), json!([tag(&kind.gvr.group, &kind.gvr.version)])),
            ("operationId".to_owned(), json!(format!("{begin}{id}"))),
            ("responses".to_owned(), Value::Object(responses)),
            ("x-kubernetes-action".to_owned(), json!(action)),
            ("x-kubernetes-group-version-kind".to_owned(), gvk),
        ]);
        match self.dialect {
            Dialect::V2 => {
                operation.insert("consumes".to_owned(), json!(consumes));
                operation.insert("produces".to_owned(), json!(PRODUCES));
                operation.insert("schemes".to_owned(), json!(["https"]));
                if let Some((definition, required)) = body {
                    let mut body = json!({"name": "body", "in": "body",
                        "schema": self.dialect.reference(definition)});
                    if required {
                        body["required"] = json!(true);
                    }
                    parameters.push(body);
                }
            }
            Dialect::V3 => {
                if let Some((definition, required)) = body {
                    let content: Map<String, Value> = consumes
                        .iter()
                        .map(|media| {
                            ((*media).to_owned(), json!({"schema": self.dialect.reference(definition)}))
                        })
                        .collect();
                    let mut body = json!({"content": content});
                    if required {
                        body["required"] = json!(true);
                    }
                    operation.insert("requestBody".to_owned(), body);
                }
            }
        }
        debug_assert!(matches!(method, "get" | "put" | "post" | "delete" | "patch"));
        if !parameters.is_empty() {
            operation.insert("parameters".to_owned(), Value::Array(parameters));
        }
        Value::Object(operation)
    }

    fn response(&self, text: &str, definition: &str) -> Value {
        let schema = self.dialect.reference(definition);
        match self.dialect {
            Dialect::V2 => json!({"description": text, "schema": schema}),
            Dialect::V3 => {
                let content: Map<String, Value> =
                    PRODUCES.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
                json!({"description": text, "content": content})
            }
        }
    }

    fn parameter(&self, name: &str, place: &str) -> Value {
        let ty = match name {
            "allowWatchBookmarks"
            | "force"
            | "ignoreStoreReadErrorWithClusterBreakingPotential"
            | "orphanDependents"
            | "sendInitialEvents"
            | "watch" => "boolean",
            "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
            _ => "string",
        };
        let mut parameter = json!({"name": name, "in": place});
        if place == "path" {
            parameter["required"] = json!(true);
        }
        match self.dialect {
            Dialect::V2 => {
                parameter["type"] = json!(ty);
                parameter["uniqueItems"] = json!(true);
            }
            Dialect::V3 => parameter["schema"] = json!({"type": ty, "uniqueItems": true}),
        }
        parameter
    }
}

/// `rbac.authorization.k8s.io` and `v1` as operations are named: `RbacAuthorizationV1`.
pub(crate) fn group_version_id(group: &str, version: &str) -> String {
    format!("{}{}", group_id(group), capital(version))
}

/// A group as operations are named.
pub(crate) fn group_id(group: &str) -> String {
    match group.strip_suffix(".k8s.io").unwrap_or(group) {
        "" => "Core".to_owned(),
        name => name.split(['.', '-']).map(capital).collect(),
    }
}

fn tag(group: &str, version: &str) -> String {
    let id = group_id(group);
    let mut letters = id.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_lowercase).collect();
    format!("{first}{}_{version}", letters.as_str())
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
