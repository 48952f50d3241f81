//! The fields of log lines: those that the code logs are those that are documented.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use karmada_telemetry::fields::FIELDS;

use crate::{
    pages::root,
    reference::{cell, page},
};

/// What begins a log line or a span.
const MACROS: [&str; 11] = [
    "tracing::error!(",
    "tracing::warn!(",
    "tracing::info!(",
    "tracing::debug!(",
    "tracing::trace!(",
    "tracing::event!(",
    "tracing::error_span!(",
    "tracing::warn_span!(",
    "tracing::info_span!(",
    "tracing::debug_span!(",
    "tracing::trace_span!(",
];

/// The fields that come with each line.
const ALWAYS: [(&str, &str); 2] =
    [("level", "how severe it is: ERROR, WARN, INFO, DEBUG or TRACE"), ("timestamp", "when it happened")];

#[test]
fn the_reference_of_log_fields_is_what_the_code_says() {
    let mut all: Vec<_> = FIELDS.iter().chain(&ALWAYS).collect();
    all.sort_unstable();
    let mut text = "The fields of the log lines of both programs. What a field contains does not depend on the line, unless this \
                    says so. [Monitoring](../monitoring.md#logs) has the fields that you need most.\n\n| Field | Meaning |\n|---|---|\n"
        .to_owned();
    for (name, meaning) in all {
        let _ = writeln!(text, "| `{name}` | {} |", cell(meaning));
    }
    page("log-fields.md", "Log fields", &text);
}

#[test]
fn every_field_that_is_logged_is_documented_and_no_other() {
    let mut logged = BTreeMap::<String, PathBuf>::new();
    for folder in ["hub", "agent"] {
        sources(&root().join(folder), &mut |path, text| {
            for field in fields(text) {
                logged.entry(field).or_insert_with(|| path.to_owned());
            }
        });
    }
    assert!(logged.len() > 50, "only {} fields were found: is that how log lines are written?", logged.len());
    let mut known = BTreeSet::new();
    for (name, _) in FIELDS {
        assert!(known.insert(*name), "{name} is documented twice");
    }
    let unknown: Vec<_> = logged
        .iter()
        .filter(|(field, _)| !known.contains(field.as_str()))
        .map(|(field, path)| format!("{field}: {}", path.display()))
        .collect();
    assert!(
        unknown.is_empty(),
        "logged, and not in hub/telemetry/src/fields.rs (use a field that is, or add it with its meaning):\n{}",
        unknown.join("\n")
    );
    let unused: Vec<_> =
        known.iter().filter(|name| **name != "message" && !logged.contains_key(**name)).collect();
    assert!(unused.is_empty(), "in hub/telemetry/src/fields.rs, and not logged any more: {unused:?}");
}

/// Reads all sources below a folder, but for tests' own files.
pub(crate) fn sources(folder: &Path, read: &mut impl FnMut(&Path, &str)) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with("target") && !["tests", "benches", "fuzz"].contains(&&*name) {
                sources(&path, read);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            read(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

/// The names of the fields in all log lines of a source.
fn fields(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for begins in MACROS {
        for (at, _) in source.match_indices(begins) {
            found
                .extend(arguments(&source[at + begins.len()..]).iter().map_while(|one| field(one)).flatten());
        }
    }
    found
}

/// The arguments of a macro, up to its end.
fn arguments(text: &str) -> Vec<String> {
    let (mut all, mut one, mut depth) = (Vec::new(), String::new(), 0);
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        match next {
            '"' => {
                one.push('"');
                while let Some(inner) = chars.next() {
                    one.push(inner);
                    match inner {
                        '\\' => one.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(std::mem::take(&mut one));
                continue;
            }
            _ => {}
        }
        one.push(next);
    }
    all.push(one);
    all
}

/// The name of the field that an argument gives, if it gives one; none of that from the message on.
fn field(argument: &str) -> Option<Option<String>> {
    let argument = argument.trim();
    if argument.starts_with('"') {
        return None;
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let bare = argument.trim_start_matches(['%', '?']);
    let end = bare.find(|c| !is_part(c)).unwrap_or(bare.len());
    let (name, rest) = (&bare[..end], bare[end..].trim_start());
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let is_field = is_name && (rest.is_empty() || (rest.starts_with('=') && !rest.starts_with("==")));
    Some(is_field.then(|| name.to_owned()))
}

#[test]
fn fields_are_found_in_all_their_forms() {
    let source = r#"
        tracing::warn!(cluster = %self.name, %error, ?first, seconds = rest.as_secs(), "a message, with {} and {second}", third);
        tracing::info!(
            user,
            taken = list(a, "b, c = 3"),
            "said"
        );
        tracing::debug!("{}: listening", self.flag);
        tracing::event!(tracing::Level::INFO, last);
    "#;
    let wanted = ["cluster", "error", "first", "last", "seconds", "taken", "user"];
    assert_eq!(fields(source), wanted.map(str::to_owned).into());
}
