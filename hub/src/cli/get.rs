//! `karmada-hub get`: the server's own Table, printed.

use karmada_client::{Error, rest::query_value};
use karmada_env::Env;
use serde_json::{Value, json};

use super::{
    Failure,
    args::{GetArgs, Output},
    ask::Server,
    print,
    table::{self, Columns},
};
use crate::discovery::{self, Served};

/// What a Table is asked for with; a server that has none to give answers with plain objects.
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Prints what was asked for.
pub(super) async fn run(args: GetArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    let requests = requests(&args)?;
    let all = discovery::everything(server.objects.rest()).await.map_err(Failure::failed)?;
    let mut printed = 0usize;
    let mut missing = Vec::new();
    for (resource, names) in &requests {
        let served = discovery::resolve(&all, resource).ok_or_else(|| {
            Failure::failed(format!("the server doesn't have a resource type {resource:?}"))
        })?;
        let several = requests.len() > 1;
        let (text, not_found) = one_kind(&server, served, names, &args, several).await?;
        missing.extend(not_found);
        if !text.is_empty() {
            if printed > 0 && matches!(args.output, Output::Table | Output::Wide) {
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
        let query =
            args.selector.as_ref().map(|s| format!("?labelSelector={}", query_value(s))).unwrap_or_default();
        vec![format!("{}{query}", resource.collection(namespace))]
    } else {
        names.iter().map(|name| resource.object(namespace, name)).collect()
    };
    let as_table = matches!(args.output, Output::Table | Output::Wide);
    let mut answers = Vec::new();
    let mut missing = Vec::new();
    for path in paths {
        match fetch(server, &path, as_table).await {
            Ok(answer) => answers.push(answer),
            Err(error) if error.is_not_found() && !names.is_empty() => missing.push(error.to_string()),
            Err(error) => return Err(Failure::failed(error)),
        }
    }
    let kind_name = match resource.group.as_str() {
        "" => served.singular.clone(),
        group => format!("{}.{group}", served.singular),
    };
    let text = match args.output {
        Output::Table | Output::Wide => {
            let columns = Columns {
                wide: args.output == Output::Wide,
                namespace: args.all_namespaces && resource.namespaced,
                kind_prefix: several,
            };
            tables(answers, columns, &kind_name)
        }
        Output::Name => items(answers)
            .iter()
            .map(|o| format!("{kind_name}/{}\n", o["metadata"]["name"].as_str().unwrap_or("")))
            .collect(),
        Output::Yaml | Output::Json => objects(answers, names.len() == 1, args.output)?,
    };
    Ok((text, missing))
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
fn tables(answers: Vec<Value>, columns: Columns, kind: &str) -> String {
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
            table::render(&table, columns, kind)
        }
        _ => String::new(),
    }
}

/// Names only, for a server that gives objects where a Table was asked for.
fn plain_table(answer: Value) -> Value {
    let rows: Vec<Value> = items(vec![answer])
        .into_iter()
        .map(|object| json!({"cells": [object["metadata"]["name"]], "object": {"metadata": object["metadata"]}}))
        .collect();
    json!({"kind": "Table", "columnDefinitions": [{"name": "Name", "format": "name"}], "rows": rows})
}

/// The objects of answers that are lists or single objects.
fn items(answers: Vec<Value>) -> Vec<Value> {
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

/// One object as it is, several as a List; keys sorted, without managed fields.
fn objects(answers: Vec<Value>, single: bool, output: Output) -> Result<String, Failure> {
    let mut objects = items(answers);
    for object in &mut objects {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    let mut document = match objects.pop() {
        None if single => return Ok(String::new()),
        Some(object) if single => object,
        last => {
            objects.extend(last);
            json!({"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {"resourceVersion": ""}})
        }
    };
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
    use crate::cli::args::{Args, Command};

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
        let one = objects(vec![object], true, Output::Yaml).unwrap_or_default();
        assert_eq!(one, "apiVersion: v1\nkind: A\nmetadata:\n  name: x\n");
        let list = json!({"kind": "AList", "apiVersion": "g/v1", "items": [{"metadata": {"name": "x"}}]});
        let several: Value =
            serde_json::from_str(&objects(vec![list], false, Output::Json).unwrap_or_default()).unwrap();
        assert_eq!(
            several["items"][0],
            json!({"apiVersion": "g/v1", "kind": "A", "metadata": {"name": "x"}})
        );
    }

    #[test]
    fn plain_objects_become_a_table_of_names() {
        let list = json!({"kind": "AList", "items": [{"metadata": {"name": "x"}}]});
        assert_eq!(tables(vec![list], Columns::default(), "a"), "NAME\nx\n");
        assert_eq!(tables(vec![json!({"kind": "AList", "items": []})], Columns::default(), "a"), "");
    }
}
