//! Answers in the form of a Table: what is around the cells.

use std::time::SystemTime;

use karmada_env::Env;
use karmada_meta::{
    object,
    path::{FieldError, Path},
    status::Status,
};
use serde_json::{Value, json};

use crate::kinds::Kind;

/// What a row holds beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    /// The metadata.
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

impl Include {
    /// Reads the `includeObject` parameter.
    ///
    /// # Errors
    /// 400 for a value that there is not.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Status> {
        match text {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("Object") => Ok(Self::Object),
            Some("None") => Ok(Self::None),
            Some(other) => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid(&Path::new("includeObject"), other, detail);
                Err(Status::bad_request(format!("Unable to convert to Table as requested: {error}")))
            }
        }
    }
}

fn rows(kind: &Kind, version: &str, include: Include, objects: &[Value], now: SystemTime) -> Vec<Value> {
    let mut rows = table::rows(kind, objects, now);
    for (row, object) in rows.iter_mut().zip(objects) {
        row["object"] = match include {
            Include::None => continue,
            Include::Object => object.clone(),
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": object["metadata"],
            }),
        };
    }
    rows
}

/// A Table of objects. `metadata` is the list's.
pub(crate) fn render(
    kind: &Kind,
    version: &str,
    include: Include,
    objects: &[Value],
    metadata: &Value,
    now: SystemTime,
) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        "columnDefinitions": table::columns(kind),
        "rows": rows(kind, version, include, objects, now),
    })
}

/// A watch that shows Tables of one row.
#[derive(Debug)]
pub(crate) struct TableView {
    version: String,
    include: Include,
    env: Env,
    /// The columns, until they have been sent.
    columns: Option<Value>,
}

impl TableView {
    pub(crate) fn new(kind: &Kind, version: &str, include: Include, env: &Env) -> Self {
        let columns = Some(table::columns(kind));
        Self { version: version.to_owned(), include, env: env.clone(), columns }
    }

    /// The Table of one event; the first one has the columns.
    pub(crate) fn event(&mut self, kind: &Kind, object: &Value) -> Value {
        let rows = rows(kind, &self.version, self.include, std::slice::from_ref(object), self.env.wall());
        self.table(object::resource_version(object), rows)
    }

    /// The Table of a bookmark: a row without cells that carries the bookmark's metadata.
    pub(crate) fn bookmark(&mut self, object: &Value) -> Value {
        let partial = json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": format!("meta.k8s.io/{}", self.version),
            "metadata": object["metadata"],
        });
        let width = self.columns.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
        let row = json!({"cells": vec![Value::Null; width], "object": partial});
        self.table(object::resource_version(object), vec![row])
    }

    fn table(&mut self, revision: &str, rows: Vec<Value>) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": format!("meta.k8s.io/{}", self.version),
            "metadata": {"resourceVersion": revision},
            "columnDefinitions": self.columns.take(),
            "rows": rows,
        })
    }
}

/// Name and age, until the kind's own columns are there.
mod table {
    use std::time::SystemTime;

    use karmada_meta::{object, time::human_age};
    use serde_json::{Value, json};

    use crate::kinds::Kind;

    pub(super) fn columns(_kind: &Kind) -> Value {
        json!([{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
               {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0}])
    }

    pub(super) fn rows(_kind: &Kind, objects: &[Value], now: SystemTime) -> Vec<Value> {
        let cells =
            |o: &Value| json!({"cells": [object::name(o), human_age(object::creation_timestamp(o), now)]});
        objects.iter().map(cells).collect()
    }
}
