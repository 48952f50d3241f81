//! One list out of those of several members.
//!
//! Each item says where it is from by the annotation [`annotation::QUERY_FROM_CLUSTER`], and Tables by a column beside.

use karmada_api::consts::annotation;
use karmada_meta::object;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

/// The column by which a Table says where rows are from, as `karmadactl get` calls it.
const COLUMN: &str = "Cluster";

/// What a member has answered.
#[derive(Debug)]
pub(super) struct Portion {
    api_version: String,
    kind: String,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// Items, marked, with commas between.
    Items(Vec<u8>),
    Table {
        columns: Vec<Value>,
        rows: Vec<Value>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    column_definitions: Vec<Value>,
    #[serde(default)]
    rows: Option<Vec<Value>>,
}

/// Reads a member's answer.
///
/// # Errors
/// When it is no list.
pub(super) fn read(cluster: &str, bytes: &[u8]) -> Result<Portion, String> {
    let read: Read<'_> = serde_json::from_slice(bytes).map_err(|error| format!("it is no list: {error}"))?;
    let Read { api_version, kind, items, column_definitions, rows } = read;
    let content = if kind == "Table" {
        let mut rows = rows.unwrap_or_default();
        for row in &mut rows {
            if row["object"].is_object() {
                mark(&mut row["object"], cluster);
            }
            if let Some(cells) = row["cells"].as_array_mut() {
                cells.insert(1.min(cells.len()), json!(cluster));
            }
        }
        let mut columns = column_definitions;
        let about = json!({
            "name": COLUMN, "type": "string", "format": "", "description": "The cluster it is from", "priority": 0,
        });
        columns.insert(1.min(columns.len()), about);
        Content::Table { columns, rows }
    } else if kind.ends_with("List") {
        let mut all = Vec::with_capacity(bytes.len());
        // Lists of nothing may have null here.
        for item in items.unwrap_or_default() {
            let mut item: Value = serde_json::from_str(item.get())
                .map_err(|error| format!("an item cannot be read: {error}"))?;
            mark(&mut item, cluster);
            if !all.is_empty() {
                all.push(b',');
            }
            serde_json::to_writer(&mut all, &item).map_err(|error| error.to_string())?;
        }
        Content::Items(all)
    } else {
        return Err(format!("it is no list, but of kind {kind:?}"));
    };
    Ok(Portion { api_version, kind, content })
}

fn mark(object: &mut Value, cluster: &str) {
    object::set_annotation(object, annotation::QUERY_FROM_CLUSTER, cluster);
}

/// All of them as one, in the form of the first. Of those in another form nothing is taken: which these are.
pub(super) fn join(portions: Vec<(String, Portion)>) -> (Vec<u8>, Vec<String>) {
    let mut others = Vec::new();
    let mut all = portions.into_iter();
    let Some((_, first)) = all.next() else { return (Vec::new(), others) };
    let Portion { api_version, kind, content } = first;
    let bytes = match content {
        Content::Items(items) => {
            let head = json!({"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": ""}})
                .to_string();
            let mut bytes = head.trim_end_matches('}').as_bytes().to_vec();
            // The last brace is that of the metadata.
            bytes.extend_from_slice(b"},\"items\":[");
            bytes.extend(&items);
            let mut empty = items.is_empty();
            for (cluster, portion) in all {
                match portion.content {
                    Content::Items(items)
                        if (&portion.api_version, &portion.kind) == (&api_version, &kind) =>
                    {
                        if !empty && !items.is_empty() {
                            bytes.push(b',');
                        }
                        empty &= items.is_empty();
                        bytes.extend(items);
                    }
                    _ => others.push(cluster),
                }
            }
            bytes.extend_from_slice(b"]}");
            bytes
        }
        Content::Table { columns, mut rows } => {
            for (cluster, portion) in all {
                match portion.content {
                    Content::Table { columns: theirs, rows: more } if portion.api_version == api_version => {
                        rows.extend(under(&columns, &theirs, more));
                    }
                    _ => others.push(cluster),
                }
            }
            let table = json!({
                "apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": ""},
                "columnDefinitions": columns, "rows": rows,
            });
            table.to_string().into_bytes()
        }
    };
    (bytes, others)
}

/// Rows under the columns of another Table: members of different versions have different ones.
fn under(columns: &[Value], theirs: &[Value], rows: Vec<Value>) -> Vec<Value> {
    let named = |column: &Value| column["name"].clone();
    if columns.iter().map(named).eq(theirs.iter().map(named)) {
        return rows;
    }
    let places: Vec<Option<usize>> =
        columns.iter().map(|column| theirs.iter().position(|one| one["name"] == column["name"])).collect();
    let moved = rows.into_iter().map(|mut row| {
        let cell = |place: &Option<usize>| place.map_or(Value::Null, |place| row["cells"][place].clone());
        let cells: Vec<Value> = places.iter().map(cell).collect();
        row["cells"] = json!(cells);
        row
    });
    moved.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(answers: &[(&str, Value)]) -> (Value, Vec<String>) {
        let portions = answers.iter().map(|(cluster, answer)| {
            ((*cluster).to_owned(), read(cluster, answer.to_string().as_bytes()).unwrap())
        });
        let (bytes, others) = join(portions.collect());
        (serde_json::from_slice(&bytes).unwrap(), others)
    }

    fn list(names: &[&str]) -> Value {
        let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "x"}, "items": items})
    }

    #[test]
    fn lists_become_one() {
        let none = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": null});
        let odd = json!({"apiVersion": "v2", "kind": "PodList", "items": []});
        let (all, others) = joined(&[
            ("a", none.clone()),
            ("b", list(&["x", "y"])),
            ("c", none),
            ("d", list(&["x"])),
            ("e", odd),
        ]);
        assert_eq!(others, ["e"]);
        assert_eq!((&all["kind"], &all["metadata"]), (&json!("PodList"), &json!({"resourceVersion": ""})));
        let items: Vec<(&str, &str)> = all["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                (
                    item["metadata"]["name"].as_str().unwrap(),
                    object::annotation(item, annotation::QUERY_FROM_CLUSTER).unwrap(),
                )
            })
            .collect();
        assert_eq!(items, [("x", "b"), ("y", "b"), ("x", "d")]);
        assert_eq!(joined(&[("a", list(&[]))]).0["items"], json!([]));
    }

    #[test]
    fn tables_become_one_whatever_their_columns() {
        let table = |columns: &[&str], rows: Value| {
            let columns: Vec<Value> = columns.iter().map(|name| json!({"name": name})).collect();
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "columnDefinitions": columns, "rows": rows})
        };
        let row = |cells: Value| json!({"cells": cells, "object": {"metadata": {"name": "p"}}});
        let (all, others) = joined(&[
            ("a", table(&["Name", "Ready", "Age"], json!([row(json!(["p", "1/1", "3d"]))]))),
            ("b", table(&["Name", "Age", "New"], json!([row(json!(["q", "4d", 1]))]))),
            ("c", list(&["x"])),
        ]);
        assert_eq!(others, ["c"]);
        let names: Vec<&Value> =
            all["columnDefinitions"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["Name", "Cluster", "Ready", "Age"]);
        assert_eq!(all["rows"][0]["cells"], json!(["p", "a", "1/1", "3d"]));
        assert_eq!(all["rows"][1]["cells"], json!(["q", "b", null, "4d"]));
        assert_eq!(object::annotation(&all["rows"][1]["object"], annotation::QUERY_FROM_CLUSTER), Some("b"));
    }

    #[test]
    fn what_is_no_list_is_said_to_be_none() {
        for answer in
            [json!({"kind": "Status", "code": 200}), json!([]), json!({"kind": "PodList", "items": 5})]
        {
            assert!(read("m", answer.to_string().as_bytes()).is_err(), "{answer}");
        }
    }
}
