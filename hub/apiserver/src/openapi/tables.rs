//! What schemas are made of, in the words of one version of OpenAPI or the other.

use serde_json::{Map, Value, json};

use super::{descriptions::Descriptions, facts::Facts};

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Swagger 2.
    V2,
    /// OpenAPI 3.
    V3,
}

impl Dialect {
    /// A reference to a definition.
    pub(crate) fn reference(self, name: &str) -> Value {
        Value::Object(self.reference_map(name))
    }

    /// As [`Dialect::reference`], open for more.
    pub(crate) fn reference_map(self, name: &str) -> Map<String, Value> {
        let place = match self {
            Self::V2 => "definitions",
            Self::V3 => "components/schemas",
        };
        Map::from_iter([("$ref".to_owned(), json!(format!("#/{place}/{name}")))])
    }
}

/// What schemas are made of beside the table of types.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// How fields are treated.
    pub(crate) facts: Facts,
    /// What they are for; empty where that is left out.
    pub(crate) descriptions: Descriptions,
}

impl Tables {
    /// Reads what documents of a dialect need.
    pub(crate) fn read(dialect: Dialect) -> Self {
        let descriptions = match dialect {
            Dialect::V2 => Descriptions::default(),
            Dialect::V3 => Descriptions::read(),
        };
        Self { facts: Facts::read(), descriptions }
    }

    /// Whether anything is described.
    pub(crate) fn has_descriptions(&self) -> bool {
        self.descriptions.of_head("kind").is_some()
    }

    /// The schema of `kind` or `apiVersion`.
    pub(crate) fn head(&self, field: &str) -> Value {
        let mut schema = json!({"type": "string"});
        if let Some(text) = self.descriptions.of_head(field) {
            schema["description"] = json!(text);
        }
        schema
    }
}
