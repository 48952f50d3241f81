//! What `manifests/monitoring` says, as far as tests look at it: rules, boards, and which metrics they name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use karmada_telemetry::metrics::{Figures, Kind};
use serde_json::Value;

/// The programs that have rules and a board.
pub const PROGRAMS: [&str; 2] = ["karmada-hub", "karmada-agent"];

/// What Prometheus itself records of every target.
const PROMETHEUS: [&str; 1] = ["up"];
/// Labels that Prometheus gives every series.
const GIVEN: [&str; 3] = ["job", "instance", "le"];
/// Words of the language that are neither functions nor metrics.
const WORDS: [&str; 14] = [
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "inf",
    "nan",
    "atan2",
];
/// After these come names of labels in parentheses.
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// The folder of rules and boards.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/monitoring")
}

/// A rule, as its file has it.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What it records, if it is no alert.
    pub record: Option<String>,
    /// What it is called, if it is one.
    pub alert: Option<String>,
    /// The expression.
    pub expr: String,
    /// All of it.
    pub whole: Value,
}

/// The rules for a program.
///
/// # Panics
/// When the file cannot be read.
pub fn rules(program: &str) -> Vec<Rule> {
    let path = folder().join(format!("{program}.rules.yaml"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: Value =
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let groups = file["groups"].as_array().expect("groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
    let text = |rule: &Value, field: &str| rule[field].as_str().map(str::to_owned);
    rules
        .map(|rule| Rule {
            record: text(rule, "record"),
            alert: text(rule, "alert"),
            expr: text(rule, "expr").expect("an expression"),
            whole: rule.clone(),
        })
        .collect()
}

/// The board of a program.
///
/// # Panics
/// When the file cannot be read.
pub fn board(program: &str) -> Value {
    let path = folder().join(format!("{program}.dashboard.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The expressions of a board, with the titles of their panels, and Grafana's variables filled in.
pub fn board_expressions(program: &str) -> Vec<(String, String)> {
    let board = board(program);
    let panels = board["panels"].as_array().expect("panels").iter();
    panels
        .flat_map(|panel| {
            let title = panel["title"].as_str().unwrap_or_default().to_owned();
            let targets = panel["targets"].as_array().cloned().unwrap_or_default();
            targets.into_iter().map(move |target| {
                let expr = target["expr"].as_str().expect("an expression");
                (title.clone(), expr.replace("$__rate_interval", "5m").replace("$job", program))
            })
        })
        .collect()
}

/// The metrics that an expression names, with the labels by which it picks series of each.
pub fn named(expr: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut named = BTreeMap::<String, BTreeSet<String>>::new();
    let mut rest = expr;
    while let Some(first) = rest.chars().next() {
        if first == '"' || first == '\'' {
            // No string of ours has a quote in it.
            let end = rest[1..].find(first).map_or(rest.len(), |end| end + 2);
            rest = &rest[end..];
        } else if first == '[' {
            rest = rest.find(']').map_or("", |end| &rest[end..]);
        } else if first.is_ascii_digit() {
            // With a unit, perhaps.
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if first.is_ascii_alphabetic() || first == '_' || first == ':' {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            let (name, after) = rest.split_at(rest.find(|c| !word(c)).unwrap_or(rest.len()));
            rest = after;
            let next = after.trim_start();
            if GROUPINGS.contains(&name) && next.starts_with('(') {
                rest = next.find(')').map_or("", |end| &next[end..]);
            } else if !WORDS.contains(&name) && !next.starts_with('(') && !is_grouped(next) {
                let labels = named.entry(name.to_owned()).or_default();
                if let Some(matchers) = next.strip_prefix('{') {
                    let (matchers, after) = matchers.split_once('}').expect("a brace that is closed");
                    labels.extend(matchers.split(',').filter_map(|matcher| {
                        let label = matcher.split(['=', '!']).next()?.trim();
                        (!label.is_empty()).then(|| label.to_owned())
                    }));
                    rest = after;
                }
            }
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    named
}

/// Whether what comes next says by which labels a function sums up: `sum by (job) (…)`.
fn is_grouped(next: &str) -> bool {
    let word = next.find(|c: char| !c.is_ascii_alphabetic()).map_or(next, |end| &next[..end]);
    ["by", "without"].contains(&word) && next[word.len()..].trim_start().starts_with('(')
}

/// The family of a page that a name is of, be it a part of a histogram or a counter's total.
fn family<'a>(page: &'a Figures, name: &'a str) -> Option<&'a str> {
    let parts: [(&str, Option<Kind>); 5] = [
        ("", Some(Kind::Gauge)),
        ("_total", Some(Kind::Counter)),
        ("_bucket", Some(Kind::Histogram)),
        ("_sum", Some(Kind::Histogram)),
        ("_count", Some(Kind::Histogram)),
    ];
    parts.into_iter().find_map(|(suffix, kind)| {
        let stem = name.strip_suffix(suffix)?;
        page.families.get(stem).is_some_and(|(is, _)| Some(*is) == kind).then_some(stem)
    })
}

/// What the rules and the board of a program name that its page does not have, in sentences.
pub fn missing(program: &str, page: &Figures) -> Vec<String> {
    let rules = rules(program);
    let recorded: BTreeSet<&str> = rules.iter().filter_map(|rule| rule.record.as_deref()).collect();
    let of_rules = rules.iter().map(|rule| {
        let name = rule.alert.as_ref().or(rule.record.as_ref());
        (name.cloned().unwrap_or_default(), rule.expr.clone())
    });
    let mut missing = Vec::new();
    for (place, expr) in of_rules.chain(board_expressions(program)) {
        for (name, labels) in named(&expr) {
            if PROMETHEUS.contains(&&*name) || recorded.contains(&*name) {
                continue;
            }
            let Some(family) = family(page, &name) else {
                missing.push(format!("{place}: there is no metric {name}"));
                continue;
            };
            let known = page.labels_of(family);
            // One that has no series yet does not say what labels it will have.
            let strange = labels.iter().filter(|label| {
                !known.is_empty() && !GIVEN.contains(&label.as_str()) && !known.contains(label.as_str())
            });
            missing.extend(strange.map(|label| format!("{place}: {name} has no label {label}")));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_in_expressions() {
        /// An expression, and its metrics with the labels that it asks for.
        type Row<'a> = (&'a str, &'a [(&'a str, &'a [&'a str])]);
        let rows: [Row<'_>; 7] = [
            ("up{job=\"a\"} == 1", &[("up", &["job"])]),
            (
                "histogram_quantile(0.99, sum by (job, le) (rate(a_bucket{job=\"x\", b!~\"y{}\"}[5m])))",
                &[("a_bucket", &["job", "b"])],
            ),
            ("a > on (job, instance) 3 * (b > 0)", &[("a", &[]), ("b", &[])]),
            ("time() - a < 14 * 86400", &[("a", &[])]),
            ("a{} unless on (job) x:y:z offset 5m", &[("a", &[]), ("x:y:z", &[])]),
            ("vector(1)", &[]),
            ("max by(a_b) (c_d) / sum without (e_f) (g_h)", &[("c_d", &[]), ("g_h", &[])]),
        ];
        for (expr, want) in rows {
            let got = named(expr);
            let got: Vec<_> = got.iter().map(|(name, labels)| (name.as_str(), labels.len())).collect();
            let want: Vec<_> = want.iter().map(|(name, labels)| (*name, labels.len())).collect();
            assert_eq!(got, want, "{expr}");
        }
    }
}
