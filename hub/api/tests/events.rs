//! The table of events' reasons against the programs: all that stands in it is sent, and whatever is sent stands in it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path, out: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            // What tests send is nothing.
            let program = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            out.push((path, program));
        }
    }
}

fn programs() -> Vec<(PathBuf, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut out = Vec::new();
    for folder in ["hub/src", "agent/src", "agent/member/src"] {
        sources(&root.join(folder), &mut out);
    }
    out
}

/// The names that follow `event::`.
fn named(text: &str) -> BTreeSet<&str> {
    let word = |c: char| c.is_ascii_uppercase() || c == '_';
    let rest = text.split("event::").skip(1);
    rest.map(|rest| rest.split(|c: char| !word(c)).next().unwrap_or_default()).collect()
}

#[test]
fn every_reason_in_the_table_is_sent() {
    let table = include_str!("../src/consts.rs");
    let (_, table) = table.split_once("    reasons! {").unwrap();
    let (table, _) = table.split_once("\n    }\n").unwrap();
    let names: Vec<&str> =
        table.lines().filter_map(|line| line.trim().split_once(" = ")).map(|(n, _)| n).collect();
    assert_eq!(names.len(), karmada_api::consts::event::ALL.len(), "each is on a line of its own");
    let programs = programs();
    let sent: BTreeSet<&str> = programs.iter().flat_map(|(_, text)| named(text)).collect();
    let unsent: Vec<_> = names.iter().filter(|name| !sent.contains(**name)).collect();
    assert!(unsent.is_empty(), "nobody sends {unsent:?}");
    let texts: BTreeSet<&str> = karmada_api::consts::event::ALL.iter().copied().collect();
    assert_eq!(texts.len(), names.len(), "no two are the same");
}

#[test]
fn every_event_that_is_sent_is_in_the_table() {
    let mut others = Vec::new();
    for (path, text) in programs() {
        for call in ["recorder.warning(", "recorder.normal(", "writer.warning(", "writer.normal("] {
            for rest in text.split(call).skip(1) {
                let mut depth = 1;
                let end = rest.char_indices().find(|(_, c)| {
                    depth += i32::from(*c == '(') - i32::from(*c == ')');
                    depth == 0
                });
                let arguments = &rest[..end.map_or(rest.len(), |(at, _)| at)];
                // A variable holds one of them, or comes from a list that does.
                let of_table = arguments.contains("event::") || arguments.contains("reason");
                if !of_table {
                    others.push(format!("{}: {call}{arguments})", path.display()));
                }
            }
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}
