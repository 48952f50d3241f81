//! `karmada-hub get`: the server's own Table, printed.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use karmada_client::{Error, rest::query_value};
use karmada_env::Env;
use karmada_objects::discovery::{self, Served};
use serde_json::{Value, json};

use super::{
    Failure,
    args::{GetArgs, Output},
    ask::Server,
    follow::{self, Target},
    members, print,
    table::{Columns, Printer},
};

/// What a Table is asked for with; a server that has none to give answers with plain objects.
pub(super) const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Prints what was asked for.
pub(super) async fn run(args: GetArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    let requests = requests(&args)?;
    server.reach().await?;
    let all = discovery::everything(server.objects.rest()).await.map_err(|e| server.failure(&e))?;
    if args.members {
        let find = |(resource, names): &(String, Vec<String>)| Ok((find(&all, resource)?, names.clone()));
        let requests = requests.iter().map(find).collect::<Result<Vec<_>, Failure>>()?;
        return members::run(&server, &requests, &args, &env).await;
    }
    if args.watch || args.watch_only {
        return watch(&server, &all, &requests, &args, &env).await;
    }
    let mut printed = 0usize;
    let mut missing = Vec::new();
    for (resource, names) in &requests {
        let served = find(&all, resource)?;
        let several = requests.len() > 1;
        let (text, not_found) = one_kind(&server, served, names, &args, several).await?;
        missing.extend(not_found);
        if !text.is_empty() {
            if printed > 0 && args.output.is_table() {
                print("\n")?;
            }
            print(&text)?;
            printed += 1;
        }
    }
    if !missing.is_empty() {
        return Err(Failure::failed(missing.join("; ")));
    }
    if printed == 0 {
        // Standard error, as kubectl has it: a script that counts lines must not count this one.
        if args.all_namespaces {
            eprintln!("No resources found");
        } else {
            eprintln!("No resources found in {} namespace.", server.namespace);
        }
    }
    Ok(())
}

/// The kind that a user means, or what it might have been.
pub(super) fn find<'a>(all: &'a [Served], name: &str) -> Result<&'a Served, Failure> {
    discovery::resolve(all, name).ok_or_else(|| {
        let near = discovery::near(all, name);
        let hint =
            if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) };
        Failure::failed(format!("the server doesn't have a resource type {name:?}{hint}"))
    })
}

/// Prints one kind and its changes.
async fn watch(
    server: &Server,
    all: &[Served],
    requests: &[(String, Vec<String>)],
    args: &GetArgs,
    env: &Env,
) -> Result<(), Failure> {
    let [(resource, names)] = requests else {
        return Err(Failure::usage("--watch takes one RESOURCE"));
    };
    if names.len() > 1 {
        return Err(Failure::usage("--watch takes one NAME, or none for all"));
    }
    let served = find(all, resource)?;
    let target = Target {
        served,
        namespace: (!args.all_namespaces).then_some(server.namespace.as_str()),
        name: names.first().map(String::as_str),
        selectors: selectors(args),
        changes_only: args.watch_only,
    };
    follow::run(server, &target, Shown::new(args, served), env).await
}

fn selectors(args: &GetArgs) -> Vec<(&'static str, String)> {
    [("labelSelector", &args.selector), ("fieldSelector", &args.field_selector)]
        .into_iter()
        .filter_map(|(key, selector)| Some((key, selector.clone()?)))
        .collect()
}

/// Kinds and names, from `KIND[,KIND] [NAME...]` or `KIND/NAME...`.
fn requests(args: &GetArgs) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let slashed =
        |text: &str| text.split_once('/').map(|(kind, name)| (kind.to_owned(), vec![name.to_owned()]));
    if args.resource.contains('/') {
        return std::iter::once(&args.resource)
            .chain(&args.names)
            .map(|text| {
                slashed(text).ok_or_else(|| Failure::usage(format!("{text:?} is not of the form KIND/NAME")))
            })
            .collect();
    }
    let kinds: Vec<_> = args.resource.split(',').filter(|kind| !kind.is_empty()).collect();
    if kinds.is_empty() {
        return Err(Failure::usage("RESOURCE is empty"));
    }
    if !args.names.is_empty() && args.all_namespaces {
        return Err(Failure::usage("a NAME cannot be looked up over all namespaces"));
    }
    Ok(kinds.into_iter().map(|kind| (kind.to_owned(), args.names.clone())).collect())
}

/// The text for one kind, and a line for each name that is not there.
async fn one_kind(
    server: &Server,
    served: &Served,
    names: &[String],
    args: &GetArgs,
    several: bool,
) -> Result<(String, Vec<String>), Failure> {
    let namespace = (!args.all_namespaces).then_some(server.namespace.as_str());
    let resource = &served.resource;
    let paths: Vec<String> = if names.is_empty() {
        let query: Vec<_> =
            selectors(args).iter().map(|(key, value)| format!("{key}={}", query_value(value))).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        vec![format!("{}{query}", resource.collection(namespace))]
    } else {
        names.iter().map(|name| resource.object(namespace, name)).collect()
    };
    let mut answers = Vec::new();
    let mut missing = Vec::new();
    for path in paths {
        match fetch(server, &path, args.output.is_table()).await {
            Ok(answer) => answers.push(answer),
            Err(error) if error.is_not_found() && !names.is_empty() => missing.push(error.to_string()),
            Err(error) => return Err(server.failure(&error)),
        }
    }
    let kind_name = kind_name(served);
    let text = match args.output {
        Output::Table | Output::Wide => {
            let columns = Columns { kind_prefix: several, ..columns(args, served) };
            tables(answers, Printer::new(columns, &kind_name, !args.no_headers))
        }
        Output::Name => items(answers).iter().map(|object| name_line(&kind_name, object)).collect(),
        Output::Yaml | Output::Json => objects(answers, names.len() == 1, args)?,
    };
    Ok((text, missing))
}

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

fn columns(args: &GetArgs, served: &Served) -> Columns {
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

async fn fetch(server: &Server, path: &str, as_table: bool) -> Result<Value, Error> {
    let rest = server.objects.rest();
    if !as_table {
        return rest.get(path).await;
    }
    let bytes = rest.get_bytes(path, AS_TABLE).await?;
    serde_json::from_slice(&bytes).map_err(|error| Error::Answer {
        method: http::Method::GET,
        path: path.to_owned(),
        cause: error.to_string(),
    })
}

/// Several answers become one table; an answer without rows none.
fn tables(answers: Vec<Value>, mut printer: Printer) -> String {
    let mut merged: Option<Value> = None;
    for answer in answers {
        let mut table = if answer["kind"] == "Table" { answer } else { plain_table(answer) };
        match &mut merged {
            None => merged = Some(table),
            Some(merged) => {
                if let (Some(rows), Some(more)) =
                    (merged["rows"].as_array_mut(), table["rows"].as_array_mut())
                {
                    rows.append(more);
                }
            }
        }
    }
    match merged {
        Some(table) if table["rows"].as_array().is_some_and(|rows| !rows.is_empty()) => {
            printer.print(&table, "")
        }
        _ => String::new(),
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

fn drop_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
}

/// One object as it is, several as a List; keys sorted, without managed fields unless they were asked for.
fn objects(answers: Vec<Value>, single: bool, args: &GetArgs) -> Result<String, Failure> {
    let mut objects = items(answers);
    if !args.show_managed_fields {
        objects.iter_mut().for_each(drop_managed_fields);
    }
    let document = match objects.pop() {
        None if single => return Ok(String::new()),
        Some(object) if single => object,
        last => {
            objects.extend(last);
            json!({"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {"resourceVersion": ""}})
        }
    };
    written(document, args.output)
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn args(line: &str) -> GetArgs {
        match Args::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Get(get) => get,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kinds_and_names() {
        let rows = [
            ("h get deploy", "deploy:"),
            ("h get deploy a b", "deploy:a,b"),
            ("h get rb,works", "rb: works:"),
            ("h get deploy/a svc/b", "deploy:a svc:b"),
        ];
        for (line, want) in rows {
            let got: Vec<_> = requests(&args(line))
                .unwrap_or_default()
                .into_iter()
                .map(|(kind, names)| format!("{kind}:{}", names.join(",")))
                .collect();
            assert_eq!(got.join(" "), want, "{line}");
        }
        for line in ["h get deploy/a b", "h get ,", "h get deploy a -A"] {
            assert!(matches!(requests(&args(line)), Err(Failure::Usage(_))), "{line}");
        }
    }

    #[test]
    fn one_object_and_several() {
        let object =
            json!({"kind": "A", "metadata": {"name": "x", "managedFields": [1]}, "apiVersion": "v1"});
        let one = |line: &str| objects(vec![object.clone()], true, &args(line)).unwrap_or_default();
        assert_eq!(one("h get a x -o yaml"), "apiVersion: v1\nkind: A\nmetadata:\n  name: x\n");
        assert!(one("h get a x -o yaml --show-managed-fields").contains("managedFields"));
        let list = json!({"kind": "AList", "apiVersion": "g/v1", "items": [{"metadata": {"name": "x"}}]});
        let several: Value =
            serde_json::from_str(&objects(vec![list], false, &args("h get a -o json")).unwrap_or_default())
                .unwrap();
        assert_eq!(
            several["items"][0],
            json!({"apiVersion": "g/v1", "kind": "A", "metadata": {"name": "x"}})
        );
    }

    #[test]
    fn plain_objects_become_a_table_of_names() {
        let list = json!({"kind": "AList", "items": [{"metadata": {"name": "x"}}]});
        let printer = || Printer::new(Columns::default(), "a", true);
        assert_eq!(tables(vec![list], printer()), "NAME\nx\n");
        assert_eq!(tables(vec![json!({"kind": "AList", "items": []})], printer()), "");
    }
}
