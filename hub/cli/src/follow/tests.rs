//! A server that answers by a script: each test plays the answers to one list after the other, and looks at what is
//! printed.

use clap::Parser;
use karmada_client::Resource;
use serde_json::json;

use super::*;
use crate::args::{Args, Command, GetArgs};

fn args(line: &str) -> GetArgs {
    match Args::try_parse_from(line.split_whitespace()).unwrap().command {
        Command::Get(get) => get,
        other => panic!("{other:?}"),
    }
}

fn served() -> Served {
    Served {
        resource: Resource::new("", "v1", "configmaps", "ConfigMap", true),
        singular: "configmap".to_owned(),
        short_names: Vec::new(),
        verbs: Vec::new(),
    }
}

/// The Table of some rows: name, version, a cell.
fn table(version: &str, rows: &[(&str, &str, &str)]) -> Bytes {
    let row = |(name, version, data): &(&str, &str, &str)| json!({"cells": [name, data], "object": {"metadata": {"name": name, "namespace": "n", "resourceVersion": version}}});
    let rows: Vec<Value> = rows.iter().map(row).collect();
    let definitions = json!([{"name": "Name", "format": "name"}, {"name": "Data"}]);
    let metadata = json!({"resourceVersion": version});
    json!({"kind": "Table", "metadata": metadata, "columnDefinitions": definitions, "rows": rows})
        .to_string()
        .into()
}

fn frame(event: &str, row: (&str, &str, &str)) -> Vec<u8> {
    let mut object: Value = serde_json::from_slice(&table(row.1, &[row])).unwrap();
    object["columnDefinitions"] = Value::Null;
    json!({"type": event, "object": object}).to_string().into_bytes()
}

/// Takes in answers and remembers what would be printed.
struct Run<'a> {
    follower: Follower<'a>,
    shown: Shown,
    printed: String,
}

impl<'a> Run<'a> {
    fn new(target: &'a Target<'a>, line: &str) -> Self {
        Self {
            follower: Follower::new(target),
            shown: Shown::new(&args(line), target.served),
            printed: String::new(),
        }
    }

    fn list(&mut self, bytes: &Bytes) -> Result<(), String> {
        let news = self.follower.list(bytes, self.shown.is_table()).map_err(|trouble| match trouble {
            Trouble::Again(why)
            | Trouble::Over(Failure::Failed(why) | Failure::Usage(why) | Failure::Answered { why, .. }) => {
                why
            }
            Trouble::Over(Failure::Ended(code)) => format!("exit code {code}"),
        })?;
        self.print(news);
        Ok(())
    }

    fn frame(&mut self, line: &[u8]) -> Result<bool, String> {
        match self.follower.frame(line, self.shown.is_table()) {
            Ok(Frame::News(news)) => {
                self.print(news);
                Ok(true)
            }
            Ok(Frame::Gone) => Ok(false),
            Err(Trouble::Again(why)) => Err(why),
            Err(Trouble::Over(failure)) => panic!("{failure:?}"),
        }
    }

    fn print(&mut self, news: News) {
        for (event, document) in news {
            self.printed += &self.shown.text(event, document).unwrap();
        }
    }

    fn printed(&mut self) -> String {
        std::mem::take(&mut self.printed)
    }
}

fn target(served: &Served) -> Target<'_> {
    Target { served, namespace: Some("n"), name: None, selectors: Vec::new(), changes_only: false }
}

#[test]
fn what_is_there_and_then_a_line_per_change() {
    let served = served();
    let target = target(&served);
    let mut run = Run::new(&target, "h get cm -w");
    run.list(&table("5", &[("a", "3", "1"), ("b", "4", "2")])).unwrap();
    assert_eq!(run.printed(), "NAME   DATA\na      1\nb      2\n");
    assert_eq!(run.follower.version, "5");
    assert!(run.frame(&frame("MODIFIED", ("a", "6", "3"))).unwrap());
    assert!(run.frame(&frame("DELETED", ("b", "7", "2"))).unwrap());
    assert!(run.frame(&frame("ADDED", ("c", "8", "0"))).unwrap());
    assert_eq!(run.printed(), "a      3\nb      2\nc      0\n");
    assert!(run.frame(&frame("BOOKMARK", ("", "20", ""))).unwrap());
    assert_eq!((run.printed().as_str(), run.follower.version.as_str()), ("", "20"));
}

#[test]
fn a_lost_watch_repeats_nothing_and_loses_nothing() {
    let served = served();
    let target = target(&served);
    let mut run = Run::new(&target, "h get cm -w --output-watch-events");
    run.list(&table("5", &[("a", "3", "1"), ("b", "4", "2"), ("c", "5", "3")])).unwrap();
    run.printed();
    // The same frame again, as a server may send it after a watch from an earlier version.
    run.frame(&frame("MODIFIED", ("a", "6", "9"))).unwrap();
    run.frame(&frame("MODIFIED", ("a", "6", "9"))).unwrap();
    run.frame(&frame("DELETED", ("c", "7", "3"))).unwrap();
    run.frame(&frame("DELETED", ("c", "7", "3"))).unwrap();
    assert_eq!(run.printed(), "MODIFIED   a      9\nDELETED    c      3\n");

    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}});
    assert!(!run.frame(gone.to_string().as_bytes()).unwrap());
    assert!(run.follower.version.is_empty(), "a list comes next");
    run.list(&table("30", &[("a", "6", "9"), ("d", "28", "4")])).unwrap();
    assert_eq!(run.printed(), "ADDED      d      4\nDELETED    b      2\n", "a is as it was");
    assert_eq!(run.follower.version, "30");
}

#[test]
fn errors_within_a_watch() {
    let served = served();
    let target = target(&served);
    let mut run = Run::new(&target, "h get cm -w");
    run.list(&table("5", &[])).unwrap();
    let error = json!({"type": "ERROR", "object": {"code": 500, "message": "etcd is away"}});
    assert_eq!(run.frame(error.to_string().as_bytes()), Err("etcd is away".to_owned()));
    assert!(run.frame(b"{").is_err());
    assert_eq!(run.follower.version, "5", "it goes on where it was");
}

#[test]
fn one_name_has_to_be_there() {
    let served = served();
    let target = Target { name: Some("x"), ..target(&served) };
    assert_eq!(
        Run::new(&target, "h get cm x -w").follower.path(&[("watch", "true")]),
        "/api/v1/namespaces/n/configmaps?fieldSelector=metadata.name%3Dx&watch=true"
    );
    let mut run = Run::new(&target, "h get cm x -w");
    assert_eq!(run.list(&table("5", &[])), Err("configmaps \"x\" not found".to_owned()));
    let mut run = Run::new(&target, "h get cm x -w");
    run.list(&table("5", &[("x", "1", "1")])).unwrap();
    run.follower.version.clear();
    run.list(&table("9", &[])).unwrap();
    assert_eq!(run.printed(), "NAME   DATA\nx      1\nx      1\n", "it may go later");
}

#[test]
fn only_what_changes() {
    let served = served();
    let target = Target { changes_only: true, ..target(&served) };
    let mut run = Run::new(&target, "h get cm --watch-only");
    run.list(&table("5", &[("a", "3", "1")])).unwrap();
    assert_eq!(run.printed(), "");
    run.frame(&frame("DELETED", ("a", "6", "1"))).unwrap();
    assert_eq!(run.printed(), "NAME   DATA\na      1\n");
}

#[test]
fn documents_in_other_forms() {
    let served = served();
    let target = target(&served);
    let object = |version: &str| json!({"metadata": {"name": "a", "namespace": "shop", "resourceVersion": version, "managedFields": []}});
    let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "3"}, "items": [object("2")]});
    let list = Bytes::from(list.to_string());
    let change = json!({"type": "MODIFIED", "object": object("4")}).to_string();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: shop\n";
    let rows = [
        ("h get cm -w -o name", "configmap/a\n", "configmap/a\n".to_owned()),
        ("h get cm -w -o yaml", yaml, "---\nmetadata:\n  name: a\n  namespace: shop\n".to_owned()),
    ];
    for (line, first, then) in rows {
        let mut run = Run::new(&target, line);
        run.list(&list).unwrap();
        let printed = run.printed();
        assert!(printed.starts_with(first), "{line}: {printed}");
        run.frame(change.as_bytes()).unwrap();
        let printed = run.printed();
        assert!(printed.starts_with(&then), "{line}: {printed}");
    }
    let mut run = Run::new(&target, "h get cm -w -o json --output-watch-events");
    run.list(&list).unwrap();
    let printed: Value = serde_json::from_str(&run.printed()).unwrap();
    assert_eq!((&printed["type"], &printed["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    assert!(printed["object"]["metadata"]["managedFields"].is_null());
}
