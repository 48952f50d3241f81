//! A server's Table as kubectl prints it.

use std::fmt::Write;

use serde_json::Value;

/// The narrowest column, and the space after the widest cell of one: kubectl's.
const MIN_WIDTH: usize = 6;
const PADDING: usize = 3;

/// Which columns are printed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Columns {
    /// Also those of a priority above zero.
    pub wide: bool,
    /// The namespace first.
    pub namespace: bool,
    /// Each name with its kind in front, as where several kinds are printed.
    pub kind_prefix: bool,
}

/// The rows of a `Table`, aligned, with a line of headings. `kind` is what names are prefixed with, if they are.
pub(super) fn render(table: &Value, columns: Columns, kind: &str) -> String {
    let definitions = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<usize> = (0..definitions.len())
        .filter(|i| columns.wide || definitions[*i]["priority"].as_i64().unwrap_or(0) == 0)
        .collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut heading: Vec<String> =
        shown.iter().map(|i| definitions[*i]["name"].as_str().unwrap_or_default().to_uppercase()).collect();
    if columns.namespace {
        heading.insert(0, "NAMESPACE".to_owned());
    }
    lines.push(heading);
    for row in table["rows"].as_array().into_iter().flatten() {
        let mut line: Vec<String> = shown
            .iter()
            .map(|i| {
                let text = cell(&row["cells"][*i]);
                let is_name = definitions[*i]["format"].as_str() == Some("name");
                if columns.kind_prefix && is_name { format!("{kind}/{text}") } else { text }
            })
            .collect();
        if columns.namespace {
            let namespace =
                row.pointer("/object/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            line.insert(0, namespace.to_owned());
        }
        lines.push(line);
    }
    align(&lines)
}

fn cell(value: &Value) -> String {
    match value {
        // Nothing at all, as kubectl has it.
        Value::Null => String::new(),
        // A line break inside a cell would break the table; kubectl prints only what stands before it.
        Value::String(text) => match text.split_once('\n') {
            Some((first, _)) => format!("{first}..."),
            None => text.clone(),
        },
        other => other.to_string(),
    }
}

/// Columns as wide as their widest cell plus padding; the last column is not padded.
fn align(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|i| {
            let widest = lines.iter().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
            (widest + PADDING).max(MIN_WIDTH)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        for (i, cell) in line.iter().enumerate() {
            let width = if i + 1 == line.len() { 0 } else { widths[i] };
            // Writing to a String cannot fail.
            let _ = write!(text, "{cell:<width$}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployments() -> Value {
        json!({
            "columnDefinitions": [
                {"name": "Name", "type": "string", "format": "name", "priority": 0},
                {"name": "Ready", "priority": 0}, {"name": "Up-to-date", "priority": 0},
                {"name": "Available", "priority": 0}, {"name": "Age", "priority": 0},
                {"name": "Containers", "priority": 1},
            ],
            "rows": [
                {"cells": ["nginx", "3/1", 3, 3, "5m8s", "nginx"], "object": {"metadata": {"namespace": "default"}}},
            ],
        })
    }

    #[test]
    fn the_articles_table() {
        let want =
            "NAME    READY   UP-TO-DATE   AVAILABLE   AGE\nnginx   3/1     3            3           5m8s\n";
        assert_eq!(render(&deployments(), Columns::default(), ""), want);
    }

    #[test]
    fn wide_with_namespaces_and_kinds() {
        let columns = Columns { wide: true, namespace: true, kind_prefix: true };
        let want = "NAMESPACE   NAME                    READY   UP-TO-DATE   AVAILABLE   AGE    CONTAINERS\n\
                    default     deployment.apps/nginx   3/1     3            3           5m8s   nginx\n";
        assert_eq!(render(&deployments(), columns, "deployment.apps"), want);
    }

    #[test]
    fn short_and_missing_cells() {
        let table = json!({
            "columnDefinitions": [{"name": "A"}, {"name": "B"}, {"name": "C"}],
            "rows": [{"cells": ["x", null, "one\ntwo"]}, {"cells": ["y", true, 1.5]}],
        });
        let want = "A     B      C\nx            one...\ny     true   1.5\n";
        assert_eq!(render(&table, Columns::default(), ""), want);
    }
}
