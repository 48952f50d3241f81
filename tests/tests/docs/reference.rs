//! The pages of `hub/docs/reference`, written from the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use karmada_api::{
    catalogue::{self, Entry},
    consts::event,
    reasons::REASONS,
};

use crate::{
    logs,
    pages::{docs, root},
};

/// Says of a page that nobody should edit it.
const NOTE: &str = "*Generated from the code. Do not edit: change the code, then run* `UPDATE_DOCS=1 cargo test -p karmada-tests \
                    --test docs reference`.\n";

/// Compares a page with what the code says, or writes it if `UPDATE_DOCS` is set.
pub(crate) fn page(name: &str, title: &str, text: &str) {
    let path: PathBuf = docs().join("reference").join(name);
    let wanted = format!("# {title}\n\n{NOTE}\n{}\n", text.trim_end());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &wanted).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    if there == wanted {
        return;
    }
    let differs = there.lines().zip(wanted.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or(there.lines().count().min(wanted.lines().count()));
    panic!(
        "{}: line {} is\n  {}\nand the code says\n  {}\nRun UPDATE_DOCS=1 cargo test -p karmada-tests --test docs reference",
        path.display(),
        line + 1,
        there.lines().nth(line).unwrap_or("(its end)"),
        wanted.lines().nth(line).unwrap_or("(its end)"),
    );
}

/// Text in a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

pub(crate) fn hub() -> Command {
    let mut command = karmada_hub::cli::Args::command();
    command.build();
    command
}

pub(crate) fn agent() -> Command {
    let mut command = karmada_agent::process::command();
    command.build();
    command
}

/// The long flags of both programs, with the hyphens.
pub(crate) fn flags() -> BTreeSet<String> {
    fn add(command: &Command, flags: &mut BTreeSet<String>) {
        for arg in command.get_arguments() {
            let all = arg.get_long_and_visible_aliases().unwrap_or_default();
            flags.extend(all.iter().map(|name| format!("--{name}")));
        }
        command.get_subcommands().for_each(|command| add(command, flags));
    }
    let mut flags = BTreeSet::new();
    add(&hub(), &mut flags);
    add(&agent(), &mut flags);
    flags
}

/// The commands that are written already, with the rows of their tables.
type Written = Vec<(String, BTreeSet<String>)>;

/// A command with all below it: what it is for, how it is called, a table of flags for each heading, what follows in its help.
fn write(command: &Command, written: &mut Written, text: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let _ = writeln!(text, "## {name}\n");
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    if !about.is_empty() {
        let _ = writeln!(text, "{}\n", ended(&about.replace('<', "&lt;")));
    }
    let usage = command.clone().render_usage().to_string();
    let usage =
        usage.trim_start_matches("Usage:").trim().lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let _ = writeln!(text, "```text\n{usage}\n```\n");
    let shown = |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let row = |arg: &Arg| format!("| {} | {} | {} |", called(arg), default(arg), meaning(arg));
    let mut args: Vec<(Option<&str>, String)> =
        command.get_arguments().filter(shown).map(|arg| (arg.get_help_heading(), row(arg))).collect();
    // One that takes all that another does, which is a lot, is not to repeat it.
    let rows: BTreeSet<String> = args.iter().map(|(_, row)| row.clone()).collect();
    let like = written.iter().find(|(_, others)| others.len() > 20 && others.is_subset(&rows));
    if let Some((other, others)) = like {
        let _ = writeln!(
            text,
            "It takes the arguments of `{other}`{}\n",
            if rows == *others { "." } else { ", and:" }
        );
        args.retain(|(_, row)| !others.contains(row));
    }
    let mut headings: Vec<Option<&str>> = Vec::new();
    for (heading, _) in &args {
        if !headings.contains(heading) {
            headings.push(*heading);
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            let _ = writeln!(text, "**{heading}**\n");
        }
        text.push_str("| Argument | Default | Meaning |\n|---|---|---|\n");
        for (_, row) in args.iter().filter(|(of, _)| *of == heading) {
            let _ = writeln!(text, "{row}");
        }
        text.push('\n');
    }
    written.push((name, rows));
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let _ = writeln!(text, "```text\n{}\n```\n", after.to_string().trim_end());
    }
    let shown = |below: &&Command| below.get_name() != "help" && !below.is_hide_set();
    for below in command.get_subcommands().filter(shown) {
        write(below, written, text);
    }
}

/// `-o`, `--output FILE`, or `NAME...`.
fn called(arg: &Arg) -> String {
    let values = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let Some(long) = arg.get_long() else { return format!("`{}`", cell(&values)) };
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    match takes && !values.is_empty() {
        true => format!("{short}`--{long} {}`", values.replace('|', "\\|")),
        false => format!("{short}`--{long}`"),
    }
}

/// With a full stop, which clap takes away.
fn ended(text: &str) -> String {
    let is_open = text.ends_with(|c: char| c.is_alphanumeric() || matches!(c, ')' | '/' | '"' | '*' | '\''));
    format!("{text}{}", if is_open { "." } else { "" })
}

fn default(arg: &Arg) -> String {
    let values = arg.get_default_values();
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let text = values.iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",");
    if takes && !text.is_empty() { format!("`{}`", text.replace('|', "\\|")) } else { String::new() }
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let values = arg.get_possible_values();
    let mut text = ended(&cell(&help));
    let shown: Vec<String> =
        values.iter().filter(|v| !v.is_hide_set()).map(|v| format!("`{}`", v.get_name())).collect();
    if takes && !shown.is_empty() && shown != ["`true`", "`false`"] {
        let _ = write!(text, "{}One of {}.", if text.is_empty() { "" } else { " " }, shown.join(", "));
    }
    text
}

#[test]
fn reference_of_the_hub_s_flags() {
    let mut text = String::from(
        "Exit codes: 0 done, 1 it failed, 2 wrong arguments (one line on standard error says what). `exec` ends with the exit code \
         of its command.\n\n",
    );
    write(&hub(), &mut Vec::new(), &mut text);
    page("karmada-hub.md", "karmada-hub", &text);
}

#[test]
fn reference_of_the_agent_s_flags() {
    let mut text = String::from(
        "Exit codes: 0 it was asked to stop, or is done; 1 it failed; 2 wrong arguments or configuration (one line on standard error \
         says what).\n\n",
    );
    write(&agent(), &mut Vec::new(), &mut text);
    page("karmada-agent.md", "karmada-agent", &text);
}

#[test]
fn reference_of_events() {
    let mut text = String::from(
        "What hub and agents report as Kubernetes Events. \"Ours\" means that Karmada does not have it. Events are kept for an hour \
         (`--event-ttl`); equal ones are counted.\n\n| About | Reason | What happened |\n|---|---|---|\n",
    );
    let mut rows: Vec<(String, String)> = Vec::new();
    for (reason, meaning) in event::MEANINGS {
        let (about, what) =
            meaning.split_once(':').unwrap_or_else(|| panic!("{reason}: {meaning:?} names no object"));
        rows.push((
            about.trim().to_owned(),
            format!("| {} | `{reason}` | {} |", about.trim(), sentence(what)),
        ));
    }
    rows.sort();
    rows.iter().for_each(|(_, row)| text.push_str(&format!("{row}\n")));
    page("events.md", "Events", &text);
}

/// With a capital at its begin.
fn sentence(text: &str) -> String {
    let text = cell(text);
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn table(entries: &[Entry], text: &mut String) {
    for entry in entries {
        let _ = writeln!(text, "| {} | `{}` | {} |", cell(entry.on), entry.name, cell(entry.meaning));
    }
}

#[test]
fn reference_of_conditions() {
    let mut text = String::from(
        "Conditions that say how something is wrong are there only while it is so. Find what to do in \
         [Troubleshooting](../troubleshooting.md).\n\n## Types\n\n| On | Condition | What it says |\n|---|---|---|\n",
    );
    table(&catalogue::CONDITIONS, &mut text);
    text.push_str(
        "\n## Reasons\n\nConditions of Kubernetes' own kinds (Namespace, CustomResourceDefinition, CertificateSigningRequest) have \
         Kubernetes' reasons.\n\n| Condition | Reason | Meaning |\n|---|---|---|\n",
    );
    for reason in REASONS {
        let _ = writeln!(text, "| {} | `{}` | {} |", reason.condition, reason.name, cell(reason.meaning));
    }
    text.push_str(
        "\n## Reasons of evictions\n\nThey stand in `spec.gracefulEvictionTasks` of a binding.\n\n| Reason | Meaning |\n|---|---|\n",
    );
    for name in ["reason", "extension"].iter().flat_map(|module| constants(module)) {
        if let Some((_, what)) = name.doc.split_once("n eviction: ") {
            let _ = writeln!(text, "| `{}` | {} |", name.value, sentence(what));
        }
    }
    page("conditions.md", "Conditions", &text);
}

/// A constant of `hub/api/src/consts.rs`.
#[derive(Debug)]
struct Constant {
    constant: String,
    value: String,
    /// Its documentation, with values where it names other constants.
    doc: String,
}

/// The constants with texts of one module there.
fn constants(module: &str) -> Vec<Constant> {
    let source = include_str!("../../../hub/api/src/consts.rs");
    let begin = format!("pub mod {module} {{");
    let (_, rest) = source.split_once(&begin).unwrap();
    let (body, _) = rest.split_once("\n}\n").unwrap();
    // A value may stand on a line of its own.
    let body = body.replace("=\n       ", "=");
    let (mut found, mut doc) = (Vec::<Constant>::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if let Some((constant, value)) =
            line.strip_prefix("pub const ").and_then(|l| l.split_once(": &str = "))
        {
            let value = value.trim_matches(|c| c == '"' || c == ';').to_owned();
            found.push(Constant { constant: constant.to_owned(), value, doc: doc.join(" ") });
            doc.clear();
        } else {
            doc.clear();
        }
    }
    let values: Vec<(String, String)> =
        found.iter().map(|c| (format!("[`{}`]", c.constant), format!("`{}`", c.value))).collect();
    for constant in &mut found {
        for (link, value) in &values {
            constant.doc = constant.doc.replace(link, value);
        }
    }
    found
}

#[test]
fn reference_of_labels_and_annotations() {
    let mut text = String::from(
        "Those that you may write say \"by users\", or are described on the page of their feature. All others are written by hub and \
         agents. Karmada's own names keep Karmada's meaning.\n",
    );
    let mut section = |title: &str, rows: Vec<Constant>| {
        let _ = write!(text, "\n## {title}\n\n| Name | Where, and what it says |\n|---|---|\n");
        for row in rows {
            let _ = writeln!(text, "| `{}` | {} |", row.value, cell(&row.doc));
        }
    };
    let is_key = |c: &Constant| c.value.contains(".io/") || c.value.ends_with(".karmada.io");
    let of = |module: &str| constants(module).into_iter().filter(is_key).collect::<Vec<_>>();
    let sorted = |mut rows: Vec<Constant>| {
        rows.sort_by(|a, b| a.value.cmp(&b.value));
        rows
    };
    section("Annotations of this project", sorted(of("extension")));
    section("Karmada's labels", sorted(of("label")));
    section("Karmada's annotations", sorted(of("annotation")));
    section("Taints", sorted(of("taint")));
    section("Finalizers", sorted(of("finalizer")));
    text.push_str("\n## What the hub notes for itself\n\nNobody else writes these.\n\n| On | Name | Meaning |\n|---|---|---|\n");
    table(&catalogue::INTERNAL, &mut text);
    text.push_str(
        "\n## What an installation writes\n\nManifests, charts and `deploy-agent.sh` write these.\n\n| On | Name | Meaning |\n\
         |---|---|---|\n",
    );
    table(&catalogue::INSTALLED, &mut text);
    page("labels-and-annotations.md", "Labels, annotations, taints and finalizers", &text);
}

/// The keys with `karmada.io` in a text, between quotes of any sort, or before a colon in YAML.
fn keys(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '/');
    let is_key = |word: &&str| {
        word.split_once("karmada.io/").is_some_and(|(group, name)| {
            let ends_well = name.ends_with(|c: char| c.is_ascii_alphanumeric());
            (group.is_empty() || group.ends_with('.')) && ends_well && !name.contains(['/', '.'])
        })
    };
    text.split(|c| !is_part(c)).filter(is_key).collect()
}

#[test]
fn every_key_that_is_written_is_in_the_reference() {
    let page = fs::read_to_string(docs().join("reference/labels-and-annotations.md")).unwrap();
    let known = keys(&page);
    // All of a key, or what several end with, by which they are recognised.
    let is_known = |key: &str| known.iter().any(|known| known.ends_with(key));
    // An API's version, or the name of a definition.
    let is_api = |key: &str| {
        let (group, name) = key.split_once('/').unwrap();
        let is_version = name.starts_with('v') && name[1..].starts_with(|c: char| c.is_ascii_digit());
        is_version
            || karmada_api::crds().iter().any(|crd| crd["metadata"]["name"] == format!("{name}.{group}"))
    };
    let mut unknown = BTreeMap::<String, PathBuf>::new();
    let mut look = |path: &Path, text: &str| {
        // Words of comments and of tests are no keys.
        let code = text.split("mod tests {").next().unwrap_or_default();
        let code =
            code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        for key in keys(&code).into_iter().filter(|key| !is_known(key) && !is_api(key)) {
            unknown.entry(key.to_owned()).or_insert_with(|| path.to_owned());
        }
    };
    for folder in ["hub", "agent"] {
        logs::sources(&root().join(folder), &mut look);
    }
    for manifest in
        ["manifests/agent/deployment.yaml", "manifests/helm/karmada-agent/templates/deployment.yaml"]
    {
        look(manifest.as_ref(), &fs::read_to_string(root().join(manifest)).unwrap());
    }
    assert!(unknown.is_empty(), "in no table of hub/api (consts.rs, catalogue.rs): {unknown:#?}");
}
