//! A server's Table as kubectl prints it.

use karmada_meta::text::{self, printable};
use serde_json::Value;

/// The narrowest column, and the space after the widest cell of one: kubectl's.
const MIN_WIDTH: usize = 6;
const PADDING: usize = 3;
/// The widest cell.
const MAX_WIDTH: usize = 256;

/// Which columns are printed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Columns {
    /// Also those of a priority above zero.
    pub wide: bool,
    /// The namespace first.
    pub namespace: bool,
    /// Each name with its kind in front, as where several kinds are printed.
    pub kind_prefix: bool,
    /// What happened before everything else, of a watch.
    pub event: bool,
}

/// Prints tables one after the other as one: the headings once, and columns never narrower than they were.
#[derive(Clone, Debug)]
pub(super) struct Printer {
    columns: Columns,
    /// What names are prefixed with, if they are.
    kind: String,
    /// The headings are still to be printed.
    headings: bool,
    definitions: Vec<Value>,
    widths: Vec<usize>,
}

impl Printer {
    /// A printer that has printed nothing yet; without `headings` it never prints any.
    pub(super) fn new(columns: Columns, kind: &str, headings: bool) -> Self {
        Self { columns, kind: kind.to_owned(), headings, definitions: Vec::new(), widths: Vec::new() }
    }

    /// The rows of a `Table`, aligned. Of a watch only the first one says which columns there are.
    pub(super) fn print(&mut self, table: &Value, event: &str) -> String {
        if let Some(definitions) = table["columnDefinitions"].as_array().filter(|list| !list.is_empty()) {
            self.definitions.clone_from(definitions);
        }
        let mut lines = Vec::new();
        if std::mem::take(&mut self.headings) {
            lines.push(self.line(
                |definition, _| shown(&text_of(&definition["name"]).to_uppercase()),
                "NAMESPACE",
                "EVENT",
            ));
        }
        for row in table["rows"].as_array().into_iter().flatten() {
            let namespace = row.pointer("/object/metadata/namespace").and_then(Value::as_str);
            let text = |definition: &Value, i: usize| {
                let text = cell(&row["cells"][i]);
                let is_name = definition["format"].as_str() == Some("name");
                if self.columns.kind_prefix && is_name { format!("{}/{text}", self.kind) } else { text }
            };
            lines.push(self.line(text, &shown(namespace.unwrap_or_default()), event));
        }
        align(&lines, &mut self.widths)
    }

    fn line(&self, text: impl Fn(&Value, usize) -> String, namespace: &str, event: &str) -> Vec<String> {
        let shown =
            |definition: &Value| self.columns.wide || definition["priority"].as_i64().unwrap_or(0) == 0;
        let cells = self.definitions.iter().enumerate().filter(|(_, definition)| shown(definition));
        let first = self.columns.event.then(|| event.to_owned());
        let second = self.columns.namespace.then(|| namespace.to_owned());
        let cells = cells.map(|(i, definition)| text(definition, i));
        first.into_iter().chain(second).chain(cells).collect()
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn cell(value: &Value) -> String {
    shown(&text_in(value))
}

/// A text as a cell: none that takes a screen, and none that tells a terminal what to do. What stands in a table may be a member's
/// word.
fn shown(text: &str) -> String {
    let cut = text.char_indices().nth(MAX_WIDTH).is_some();
    let end = if cut { text.char_indices().nth(MAX_WIDTH - 1) } else { None };
    let text = &text[..end.map_or(text.len(), |(at, _)| at)];
    let mut text = printable(text, usize::MAX).replace(['\t', '\n'], " ");
    if cut {
        text.push('…');
    }
    text
}

fn text_in(value: &Value) -> String {
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

/// Columns as wide as their widest cell plus padding, or as they were; the last column is not padded. Every cell is one line that
/// tells a terminal nothing.
pub(super) fn align(lines: &[Vec<String>], widths: &mut Vec<usize>) -> String {
    let safe = |line: &Vec<String>| line.iter().map(|cell| text::line(cell, usize::MAX)).collect::<Vec<_>>();
    let lines: Vec<_> = lines.iter().map(safe).collect();
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    widths.resize(count.max(widths.len()), MIN_WIDTH);
    for (i, width) in widths.iter_mut().enumerate() {
        let widest = lines.iter().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
        *width = (*width).max(widest + PADDING);
    }
    let mut text = String::new();
    for line in &lines {
        for (i, cell) in line.iter().enumerate() {
            let width = if i + 1 == line.len() { 0 } else { widths[i] };
            text.push_str(cell);
            let left = width.saturating_sub(cell.chars().count());
            text.extend(std::iter::repeat_n(' ', left));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(table: &Value, columns: Columns, kind: &str) -> String {
        Printer::new(columns, kind, true).print(table, "")
    }

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
        let columns = Columns { wide: true, namespace: true, kind_prefix: true, event: false };
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

    #[test]
    fn no_cell_takes_a_screen_or_tells_a_terminal_what_to_do() {
        let table = json!({
            "columnDefinitions": [{"name": "A"}, {"name": "B"}],
            "rows": [
                {"cells": ["v".repeat(70_000), "x"]},
                {"cells": ["\u{1b}]0;gone\u{7}\u{1b}[2J\u{202e}ok", "a\tb\r"]},
            ],
        });
        let text = render(&table, Columns::default(), "");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{}…   x", "v".repeat(255)));
        let odd = "\u{fffd}]0;gone\u{fffd}\u{fffd}[2J\u{fffd}ok";
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), [odd, "a", "b\u{fffd}"]);
        // Others print what they have made themselves.
        let wide = align(&[vec!["v".repeat(70_000), "x".to_owned()]], &mut Vec::new());
        assert_eq!(wide.len(), 70_000 + PADDING + 2);
    }

    #[test]
    fn rows_that_come_later_stand_under_the_same_headings() {
        let row = |name: &str, ready: &str| json!({"columnDefinitions": null, "rows": [{"cells": [name, ready], "object": {"metadata": {"namespace": "shop"}}}]});
        let mut first = row("a-long-name", "0/1");
        first["columnDefinitions"] = json!([{"name": "Name"}, {"name": "Ready"}]);
        let columns = Columns { namespace: true, event: true, ..Columns::default() };
        let mut printer = Printer::new(columns, "", true);
        let mut text = printer.print(&first, "ADDED");
        text += &printer.print(&row("b", "1/1"), "MODIFIED");
        text += &printer.print(&row("a-very-very-long-name", "1/1"), "DELETED");
        text += &printer.print(&row("b", "1/1"), "ADDED");
        let want = "EVENT   NAMESPACE   NAME          READY\n\
                    ADDED   shop        a-long-name   0/1\n\
                    MODIFIED   shop        b             1/1\n\
                    DELETED    shop        a-very-very-long-name   1/1\n\
                    ADDED      shop        b                       1/1\n";
        assert_eq!(text, want);
        let mut bare = Printer::new(Columns::default(), "", false);
        assert_eq!(bare.print(&first, ""), "a-long-name   0/1\n");
    }
}
