//! Which columns a kind has, and where the cells of custom ones come from.

use std::{collections::BTreeMap, sync::LazyLock, time::SystemTime};

use karmada_meta::jsonpath::JsonPath;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{cells, parts::age_of};
use crate::kinds::{Column, Kind};

/// ObjectMeta's own words, which stand in every Table.
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// A heading.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Heading {
    pub(super) name: String,
    r#type: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    priority: i64,
}

impl Heading {
    fn new(name: &str, r#type: &str, format: &str) -> Self {
        Self {
            name: name.to_owned(),
            r#type: r#type.to_owned(),
            format: format.to_owned(),
            description: String::new(),
            priority: 0,
        }
    }

    fn definition(&self) -> Value {
        let description = match (self.description.as_str(), self.name.as_str()) {
            ("", "Name") => NAME,
            ("", "Age" | "Created At") => CREATED,
            (own, _) => own,
        };
        json!({
            "name": self.name, "type": self.r#type, "format": self.format, "description": description,
            "priority": self.priority,
        })
    }
}

/// `group/version/Kind` (core for the empty group) to headings.
static BUILT_IN: LazyLock<BTreeMap<String, Vec<Heading>>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/table-columns.json"))
        .expect("invariant: data/table-columns.json is read by a test")
});

/// The columns of a kind.
#[derive(Debug)]
pub(super) struct Columns {
    headings: Vec<Heading>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Cells by the kind's name (`apps/Deployment`) and the heading.
    BuiltIn(String),
    /// Cells by path, behind the name.
    Custom(Vec<CustomCell>),
}

#[derive(Debug)]
struct CustomCell {
    path: Option<JsonPath>,
    kind: CellType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellType {
    String,
    Integer,
    Number,
    Boolean,
    Date,
}

impl Columns {
    pub(super) fn of(kind: &Kind) -> Self {
        match &kind.custom {
            Some(custom) => Self::custom(&custom.columns),
            None => {
                let group = if kind.gvk.group.is_empty() { "core" } else { &kind.gvk.group };
                let key = format!("{group}/{}/{}", kind.gvk.version, kind.gvk.kind);
                let headings = BUILT_IN.get(&key).cloned().unwrap_or_else(|| {
                    vec![Heading::new("Name", "string", "name"), Heading::new("Created At", "date", "")]
                });
                Self { headings, source: Source::BuiltIn(format!("{group}/{}", kind.gvk.kind)) }
            }
        }
    }

    fn custom(columns: &[Column]) -> Self {
        let mut headings = vec![Heading::new("Name", "string", "name")];
        let mut cells = Vec::new();
        if columns.is_empty() {
            headings.push(Heading::new("Age", "date", ""));
            cells.push(CustomCell {
                path: JsonPath::parse(".metadata.creationTimestamp").ok(),
                kind: CellType::Date,
            });
        }
        for column in columns {
            let description = if column.description.is_empty() {
                format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
            } else {
                column.description.clone()
            };
            headings.push(Heading {
                name: column.name.clone(),
                r#type: column.r#type.clone(),
                format: column.format.clone(),
                description,
                priority: column.priority,
            });
            cells.push(CustomCell {
                path: JsonPath::parse(&column.json_path).ok(),
                kind: match column.r#type.as_str() {
                    "integer" => CellType::Integer,
                    "number" => CellType::Number,
                    "boolean" => CellType::Boolean,
                    "date" => CellType::Date,
                    _ => CellType::String,
                },
            });
        }
        Self { headings, source: Source::Custom(cells) }
    }

    pub(super) fn definitions(&self) -> Value {
        self.headings.iter().map(Heading::definition).collect()
    }

    pub(super) fn cells(&self, object: &Value, now: SystemTime) -> Vec<Value> {
        match &self.source {
            Source::BuiltIn(kind) => {
                self.headings.iter().map(|heading| cells::cell(kind, &heading.name, object, now)).collect()
            }
            Source::Custom(cells) => {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
                std::iter::once(name).chain(cells.iter().map(|cell| cell.value(object, now))).collect()
            }
        }
    }
}

impl CustomCell {
    /// What is missing, or of another type than the column, is null.
    fn value(&self, object: &Value, now: SystemTime) -> Value {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)) else { return Value::Null };
        match (self.kind, value) {
            (_, Value::Null) => Value::Null,
            (CellType::String, Value::String(_)) => value.clone(),
            (CellType::String, other) => Value::String(other.to_string()),
            (CellType::Integer, Value::Number(n)) => match (n.as_i64(), n.as_f64()) {
                (Some(n), _) => json!(n),
                (None, Some(n)) => json!(n as i64),
                _ => Value::Null,
            },
            (CellType::Number, Value::Number(_)) | (CellType::Boolean, Value::Bool(_)) => value.clone(),
            (CellType::Date, Value::String(time)) => {
                json!(age_of(time, now).unwrap_or_else(|| "<invalid>".to_owned()))
            }
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_read() {
        assert!(BUILT_IN.len() > 50);
        let deployment: Vec<&str> = BUILT_IN["apps/v1/Deployment"].iter().map(|h| h.name.as_str()).collect();
        assert_eq!(
            deployment,
            ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"]
        );
        let name = BUILT_IN["core/v1/ConfigMap"][0].definition();
        assert_eq!(name["description"], NAME);
        assert_eq!(name["format"], "name");
    }
}
