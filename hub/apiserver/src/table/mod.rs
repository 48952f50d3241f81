//! Table answers: what `kubectl get` shows, worked out by the server.
//!
//! ```text
//!   Kind ──► columns.rs  headings (built-in: data/table-columns.json; custom: printer columns)
//!   object ► cells.rs    cells of built-in kinds        karmada_meta::jsonpath  cells of custom columns
//! ```

mod cells;
mod columns;
mod network;
mod parts;
mod pods;

use std::{sync::Arc, time::SystemTime};

use karmada_env::Env;
use karmada_meta::status::Status;
use serde_json::{Value, json};

use self::columns::Columns;
use crate::kinds::Kind;

/// How much of the object stands beside a row's cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the query parameter `includeObject`.
    ///
    /// # Errors
    /// 400 for a value it does not have.
    pub fn parse(value: Option<&str>) -> Result<Self, Status> {
        Ok(match value {
            None | Some("" | "Metadata") => Self::Metadata,
            Some("None") => Self::None,
            Some("Object") => Self::Object,
            Some(other) => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                     'Metadata', 'Object', 'None', or empty"
                )));
            }
        })
    }
}

/// A Table of objects. `version` is that of meta.k8s.io, `metadata` the list's; `now` is what ages are counted to.
pub fn render(
    kind: &Kind,
    version: &str,
    include: Include,
    objects: impl IntoIterator<Item = Value>,
    metadata: &Value,
    now: SystemTime,
) -> String {
    let columns = Columns::of(kind);
    let mut text = table(version, metadata, &columns.definitions(), &[]).to_string();
    // The end of the list without rows, and of the whole. Rows are written one by one: a tree of all takes far more memory
    // than their text.
    let end = text.split_off(text.len() - "]}".len());
    for (i, object) in objects.into_iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        text.push_str(&row(&columns, version, include, &object, now).to_string());
    }
    text + &end
}

fn table(version: &str, metadata: &Value, definitions: &Value, rows: &[Value]) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn row(columns: &Columns, version: &str, include: Include, object: &Value, now: SystemTime) -> Value {
    let shown = match include {
        Include::None => Value::Null,
        Include::Object => object.clone(),
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": format!("meta.k8s.io/{version}"),
            "metadata": object.get("metadata"),
        }),
    };
    json!({"cells": columns.cells(object, now), "object": shown})
}

/// The view of a watch: each event holds a Table of one row, and only the first has the headings.
#[derive(Debug)]
pub struct TableView {
    columns: Columns,
    version: String,
    include: Include,
    env: Env,
    headed: bool,
}

impl TableView {
    /// A view of objects of one kind; ages are counted by `env`'s time of day.
    pub fn new(kind: &Arc<Kind>, version: &str, include: Include, env: &Env) -> Self {
        Self {
            columns: Columns::of(kind),
            version: version.to_owned(),
            include,
            env: env.clone(),
            headed: false,
        }
    }

    /// The Table for an event's object.
    pub fn event(&mut self, _kind: &Kind, object: &Value) -> Value {
        let definitions = if self.headed { Value::Null } else { self.columns.definitions() };
        self.headed = true;
        self.one_row(object, &definitions)
    }

    /// The Table for a bookmark. It has a row too: only there is room for the annotation that ends a streaming list.
    pub fn bookmark(&self, object: &Value) -> Value {
        self.one_row(object, &Value::Null)
    }

    fn one_row(&self, object: &Value, definitions: &Value) -> Value {
        let revision = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        let row = row(&self.columns, &self.version, self.include, object, self.env.wall());
        table(&self.version, &json!({"resourceVersion": revision}), definitions, &[row])
    }
}

#[cfg(test)]
mod tests;
