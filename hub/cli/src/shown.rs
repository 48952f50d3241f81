//! How objects are shown by what a user asked for: a row of the server's Table, a name, a document.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use karmada_objects::discovery::Served;
use serde_json::{Value, json};

use super::{
    Failure,
    args::{GetArgs, Output},
    table::{Columns, Printer},
};

/// What a Table is asked for with; a server that has none to give answers with plain objects.
pub(super) const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// What stands before the slash of a name: `deployment.apps`.
pub(super) fn kind_name(served: &Served) -> String {
    match served.resource.group.as_str() {
        "" => served.singular.clone(),
        group => format!("{}.{group}", served.singular),
    }
}

pub(super) fn name_line(kind: &str, object: &Value) -> String {
    format!("{kind}/{}\n", object["metadata"]["name"].as_str().unwrap_or_default())
}

pub(super) fn columns(args: &GetArgs, served: &Served) -> Columns {
    Columns {
        wide: args.output == Output::Wide,
        namespace: args.all_namespaces && served.resource.namespaced,
        kind_prefix: false,
        event: args.output_watch_events,
    }
}

/// How what a watch brings is shown.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    output: Output,
    printer: Printer,
    kind: String,
    managed_fields: bool,
    events: bool,
    first: bool,
}

impl Shown {
    pub(super) fn new(args: &GetArgs, served: &Served) -> Self {
        let kind = kind_name(served);
        Self {
            output: args.output,
            printer: Printer::new(columns(args, served), &kind, !args.no_headers),
            kind,
            managed_fields: args.show_managed_fields,
            events: args.output_watch_events,
            first: true,
        }
    }

    /// What the server is asked for.
    pub(super) fn accept(&self) -> &'static str {
        if self.is_table() { AS_TABLE } else { "application/json" }
    }

    pub(super) fn is_table(&self) -> bool {
        self.output.is_table()
    }

    /// The text for one object that has come, changed or gone.
    pub(super) fn text(&mut self, event: &str, document: Value) -> Result<String, Failure> {
        let is_first = std::mem::replace(&mut self.first, false);
        match self.output {
            Output::Table | Output::Wide => Ok(self.printer.print(&document, event)),
            Output::Name => Ok(name_line(&self.kind, &document)),
            Output::Yaml | Output::Json => {
                let mut document = document;
                if !self.managed_fields {
                    drop_managed_fields(&mut document);
                }
                if self.events {
                    document = json!({"type": event, "object": document});
                }
                let text = written(document, self.output)?;
                let between = if self.output == Output::Yaml && !is_first { "---\n" } else { "" };
                Ok(format!("{between}{text}"))
            }
        }
    }

    /// Prints it at once. A break says that nobody reads any more.
    pub(super) fn print(&mut self, event: &str, document: Value) -> Result<ControlFlow<()>, Failure> {
        let text = self.text(event, document)?;
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            Err(error) => Err(Failure::failed(error)),
        }
    }
}

/// Names only, for a server that gives objects where a Table was asked for.
pub(super) fn plain_table(answer: Value) -> Value {
    let metadata = answer["metadata"].clone();
    let rows: Vec<Value> = items(vec![answer])
        .into_iter()
        .map(|object| json!({"cells": [object["metadata"]["name"]], "object": {"metadata": object["metadata"]}}))
        .collect();
    let definitions = json!([{"name": "Name", "format": "name"}]);
    json!({"kind": "Table", "metadata": metadata, "columnDefinitions": definitions, "rows": rows})
}

/// The objects of answers that are lists or single objects.
pub(super) fn items(answers: Vec<Value>) -> Vec<Value> {
    answers
        .into_iter()
        .flat_map(|mut answer| match answer.get_mut("items").map(Value::take) {
            Some(Value::Array(mut items)) => {
                // Items of a list go without apiVersion and kind on the wire.
                let api_version = answer["apiVersion"].clone();
                let kind = answer["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
                for item in &mut items {
                    if item.get("kind").is_none() {
                        item["apiVersion"] = api_version.clone();
                        item["kind"] = kind.clone().into();
                    }
                }
                items
            }
            _ => vec![answer],
        })
        .collect()
}

pub(super) fn drop_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
}

/// A document in the form that was asked for, its keys sorted, with a line end.
pub(super) fn written(mut document: Value, output: Output) -> Result<String, Failure> {
    document.sort_all_objects();
    let mut text = match output {
        Output::Json => serde_json::to_string_pretty(&document).map_err(Failure::failed)?,
        _ => serde_saphyr::to_string(&document).map_err(Failure::failed)?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
