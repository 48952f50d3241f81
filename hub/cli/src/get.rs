//! `karmada-hub get`: the server's own Table, printed.

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
    shown::{
        AS_TABLE, Shown, columns, drop_managed_fields, items, kind_name, name_line, plain_table, written,
    },
    table::{Columns, Printer},
};

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
