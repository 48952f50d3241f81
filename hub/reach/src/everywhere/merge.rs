//! One list out of those of several members.
//!
//! Each item says where it is from by the annotation [`annotation::QUERY_FROM_CLUSTER`], in a search by
//! [`annotation::CACHED_FROM_CLUSTER`] as with Karmada, and Tables by a column beside.
//!
//! A member may be anybody's. What it answers is never taken apart further than to mark it, so that it takes no more memory
//! than a few times its bytes; and what most members have answered is the form of the whole, so that none of them decides by
//! itself what is shown of the others.

use std::{collections::HashMap, fmt, hash::Hash};

use karmada_api::consts::annotation;
use karmada_core::search::Versions;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{json, value::RawValue};

/// The column by which a Table says where rows are from, as `karmadactl get` calls it.
const COLUMN: &str = "Cluster";
/// The most columns of a Table. Rows of others are written under them, with a cell for each.
const COLUMNS: usize = 128;
/// The largest object that is marked.
const LARGEST: usize = 8 << 20;
/// What is marked may be so many times what was answered, and this much more.
const GROWTH: usize = 4;
const SLACK: usize = 64 << 10;
/// The longest resourceVersion that is passed on. Those of API servers have some twenty digits.
const REVISION: usize = 64;

/// What a member has answered.
#[derive(Debug)]
pub(super) struct Portion {
    form: Form,
    revision: String,
    columns: Vec<Column>,
    /// Items or rows, marked, with commas between.
    text: Vec<u8>,
}

/// Which resourceVersion the whole has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// None.
    None,
    /// That of each cluster ([`Versions`]).
    Each,
}

/// What has to be the same for one list to be made of several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Form {
    api_version: String,
    kind: String,
}

impl Form {
    fn is_table(&self) -> bool {
        self.kind == "Table"
    }
}

/// A column of a Table: its name, and the whole of it.
#[derive(Debug)]
struct Column {
    name: String,
    text: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Meta,
    #[serde(borrow, default)]
    items: Option<&'a RawValue>,
    #[serde(borrow, default)]
    column_definitions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    rows: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    resource_version: String,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow, default)]
    cells: Option<&'a RawValue>,
    #[serde(borrow, default)]
    conditions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

/// The most that is made of answers of so many bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn at_most(bytes: usize) -> usize {
    // Each of four may have its slack, and a row may be moved under more columns than it has.
    (bytes * GROWTH + 4 * SLACK) * 4
}

/// Reads a member's answer.
///
/// # Errors
/// When it is no list.
pub(super) fn read(cluster: &str, bytes: &[u8]) -> Result<Portion, String> {
    read_as(annotation::QUERY_FROM_CLUSTER, cluster, bytes)
}

/// The same, where another annotation says where items are from.
///
/// # Errors
/// When it is no list.
pub(super) fn read_as(from: &str, cluster: &str, bytes: &[u8]) -> Result<Portion, String> {
    let no_list = |error: serde_json::Error| format!("it is no list: {error}");
    let Sound = serde_json::from_slice(bytes).map_err(no_list)?;
    let read: Read<'_> = serde_json::from_slice(bytes).map_err(no_list)?;
    let form = Form { api_version: read.api_version, kind: read.kind };
    let revision = read.metadata.resource_version;
    if revision.len() > REVISION {
        return Err(format!("its resourceVersion has more than {REVISION} bytes"));
    }
    let columns = if form.is_table() {
        columns(read.column_definitions)?
    } else if form.kind.ends_with("List") {
        Vec::new()
    } else {
        return Err(format!("it is no list, but of kind {:?}", form.kind));
    };
    let most = bytes.len().saturating_mul(GROWTH).saturating_add(SLACK);
    let mut text = Vec::with_capacity(bytes.len());
    let mut add = |part: &str| {
        if !text.is_empty() {
            text.push(b',');
        }
        match form.is_table() {
            true => row(&mut text, part, (from, cluster), columns.len())?,
            false => mark(&mut text, part, (from, cluster))?,
        }
        match text.len() > most {
            true => Err("it is made of more parts than its size lets one expect".to_owned()),
            false => Ok(()),
        }
    };
    // Lists of nothing may have null here.
    if let Some(parts) = if form.is_table() { read.rows } else { read.items } {
        each(parts, |part| add(part.get()))?;
    }
    Ok(Portion { form, revision, columns, text })
}

/// The columns of a Table, and that of the cluster.
fn columns(theirs: Option<&RawValue>) -> Result<Vec<Column>, String> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        name: String,
    }
    let mut columns = Vec::new();
    if let Some(theirs) = theirs {
        each(theirs, |column| {
            if columns.len() == COLUMNS {
                return Err(format!("it is a Table of more than {COLUMNS} columns"));
            }
            let Named { name } = from_str(column.get())?;
            columns.push(Column { name, text: column.to_owned() });
            Ok(())
        })?;
    }
    let about = json!({
        "name": COLUMN, "type": "string", "format": "", "description": "The cluster it is from", "priority": 0,
    });
    let text = RawValue::from_string(about.to_string()).map_err(|error| error.to_string())?;
    columns.insert(1.min(columns.len()), Column { name: COLUMN.to_owned(), text });
    Ok(columns)
}

/// Writes a row with its cluster beside, under so many columns.
fn row(out: &mut Vec<u8>, text: &str, (from, cluster): (&str, &str), columns: usize) -> Result<(), String> {
    let Row { cells: theirs, conditions, object } = from_str(text)?;
    let cluster_cell = json!(cluster).to_string();
    let mut cells: Vec<&str> = Vec::new();
    if let Some(theirs) = theirs {
        each(theirs, |cell| {
            // One is the cluster's.
            if cells.len() + 1 >= columns {
                return Err(format!("a row of its Table has more than {} cells", columns - 1));
            }
            cells.push(cell.get());
            Ok(())
        })?;
    }
    if cells.len() + 1 != columns {
        return Err(format!("a row of its Table has {} cells under {} columns", cells.len(), columns - 1));
    }
    cells.insert(1.min(cells.len()), &cluster_cell);
    write_row(out, &cells, conditions, |out| match object {
        Some(object) => mark(out, object.get(), (from, cluster)),
        None => {
            out.extend_from_slice(b"null");
            Ok(())
        }
    })
}

fn write_row(
    out: &mut Vec<u8>,
    cells: &[&str],
    conditions: Option<&RawValue>,
    object: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    out.extend_from_slice(b"{\"cells\":[");
    out.extend_from_slice(cells.join(",").as_bytes());
    if let Some(conditions) = conditions {
        out.extend_from_slice(b"],\"conditions\":");
        out.extend_from_slice(conditions.get().as_bytes());
        out.extend_from_slice(b",\"object\":");
    } else {
        out.extend_from_slice(b"],\"object\":");
    }
    object(out)?;
    out.push(b'}');
    Ok(())
}

/// Writes an object that says from which cluster it is. What it says of that itself does not count.
fn mark(out: &mut Vec<u8>, object: &str, (from, cluster): (&str, &str)) -> Result<(), String> {
    if object.len() > LARGEST {
        return Err(format!("an object has more than {} MiB", LARGEST >> 20));
    }
    let cluster = RawValue::from_string(json!(cluster).to_string()).map_err(|error| error.to_string())?;
    let mut object: Members<'_> = from_str(object)?;
    let mut metadata = object.inner("metadata")?;
    let mut annotations = metadata.inner("annotations")?;
    annotations.set(from, &cluster);
    let annotations = annotations.raw()?;
    metadata.set("annotations", &annotations);
    let metadata = metadata.raw()?;
    object.set("metadata", &metadata);
    object.write(out);
    Ok(())
}

/// An object of a member's, marked.
///
/// # Errors
/// When it is none.
pub(super) fn object(cluster: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let no_object = |error: serde_json::Error| format!("it is no object: {error}");
    let Sound = serde_json::from_slice(bytes).map_err(no_object)?;
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let mut out = Vec::with_capacity(bytes.len());
    mark(&mut out, text, (annotation::QUERY_FROM_CLUSTER, cluster))?;
    Ok(out)
}

/// What stands in an object, as it came.
#[derive(Default)]
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// What stands within a member; nothing where it is not there. Of several of that name the last counts, as elsewhere.
    fn inner(&self, name: &str) -> Result<Self, String> {
        let last = self.0.iter().rev().find(|(key, _)| key == name);
        match last.filter(|(_, value)| value.get() != "null") {
            Some((_, value)) => from_str(value.get()).map_err(|why| format!("{name}: {why}")),
            None => Ok(Members::default()),
        }
    }

    /// Puts a member where one of that name stands, or behind all.
    fn set(&mut self, name: &str, value: &'a RawValue) {
        let at = self.0.iter().position(|(key, _)| key == name).unwrap_or(self.0.len());
        self.0.retain(|(key, _)| key != name);
        self.0.insert(at.min(self.0.len()), (name.to_owned(), value));
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (at, (key, value)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(json!(key).to_string().as_bytes());
            out.push(b':');
            out.extend_from_slice(value.get().as_bytes());
        }
        out.push(b'}');
    }

    fn raw(&self) -> Result<Box<RawValue>, String> {
        let mut out = Vec::new();
        self.write(&mut out);
        let text = String::from_utf8(out).map_err(|error| error.to_string())?;
        RawValue::from_string(text).map_err(|error| error.to_string())
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// JSON that everybody can read: it nests no deeper than most take, and its numbers are some. What is passed on as it came has
/// not been looked at otherwise, and one part that cannot be read spoils the whole.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Sound;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Sound, E> {
                Ok(Sound)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Sound, E> {
                Ok(Sound)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Sound, E> {
                Ok(Sound)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Sound, E> {
                Ok(Sound)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Sound, E> {
                Ok(Sound)
            }

            fn visit_str<E>(self, _: &str) -> Result<Sound, E> {
                Ok(Sound)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sound, A::Error> {
                while let Some(Sound) = list.next_element()? {}
                Ok(Sound)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sound, A::Error> {
                while let Some((Sound, Sound)) = map.next_entry()? {}
                Ok(Sound)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Shows the parts of a list one after another; null has none.
pub(super) fn each<'a>(
    list: &'a RawValue,
    part: impl FnMut(&'a RawValue) -> Result<(), String>,
) -> Result<(), String> {
    struct Each<F>(F);
    impl<'de, F: FnMut(&'de RawValue) -> Result<(), String>> Visitor<'de> for Each<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
            while let Some(part) = list.next_element()? {
                (self.0)(part).map_err(A::Error::custom)?;
            }
            Ok(())
        }
    }
    let mut parts = serde_json::Deserializer::from_str(list.get());
    parts.deserialize_any(Each(part)).map_err(|error| format!("it is no list: {error}"))
}

fn from_str<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("a part of it cannot be read: {error}"))
}

/// What there is most of; the first of those of which there is the same number.
fn usual<T: Hash + Eq>(all: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: HashMap<T, (usize, usize)> = HashMap::new();
    for (at, one) in all.enumerate() {
        counts.entry(one).or_insert((0, usize::MAX - at)).0 += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(one, _)| one)
}

/// The form that most have: group and version, and kind.
pub(super) fn form(portions: &[(String, Portion)]) -> Option<(String, String)> {
    let form = usual(portions.iter().map(|(_, portion)| &portion.form))?;
    Some((form.api_version.clone(), form.kind.clone()))
}

/// A list of nothing, in this form.
pub(super) fn nothing((api_version, kind): &(String, String), next: Option<&str>) -> Vec<u8> {
    let mut list = json!({"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": ""}});
    if let Some(next) = next {
        list["metadata"]["continue"] = next.into();
    }
    let parts: &[&str] = if kind == "Table" { &["columnDefinitions", "rows"] } else { &["items"] };
    parts.iter().for_each(|part| list[*part] = json!([]));
    list.to_string().into_bytes()
}

/// All of them as one, in the form of most. Of those in another form nothing is taken: which these are.
pub(super) fn join(
    portions: Vec<(String, Portion)>,
    versions: Of,
    next: Option<&str>,
) -> (Vec<u8>, Vec<String>) {
    let mut others = Vec::new();
    let Some(form) = usual(portions.iter().map(|(_, portion)| &portion.form)).cloned() else {
        return (Vec::new(), others);
    };
    let mut all = Vec::new();
    let mut each = Versions::default();
    for (cluster, portion) in portions {
        if portion.form != form {
            others.push(cluster);
            continue;
        }
        each.0.insert(cluster, portion.revision.clone());
        all.push(portion);
    }
    let version = match versions {
        Of::None => String::new(),
        Of::Each => each.text(),
    };
    let mut head =
        json!({"apiVersion": form.api_version, "kind": form.kind, "metadata": {"resourceVersion": version}});
    if let Some(next) = next {
        head["metadata"]["continue"] = next.into();
    }
    let mut bytes = head.to_string().into_bytes();
    bytes.pop();
    let names = |portion: &Portion| portion.columns.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let under = usual(all.iter().map(names)).unwrap_or_default();
    if form.is_table() {
        bytes.extend_from_slice(b",\"columnDefinitions\":[");
        let columns = all.iter().find(|portion| names(portion) == under).map(|portion| &portion.columns);
        let columns: Vec<&str> = columns.into_iter().flatten().map(|column| column.text.get()).collect();
        bytes.extend_from_slice(columns.join(",").as_bytes());
        bytes.extend_from_slice(b"],\"rows\":[");
    } else {
        bytes.extend_from_slice(b",\"items\":[");
    }
    let mut empty = true;
    for portion in all.into_iter().filter(|portion| !portion.text.is_empty()) {
        if !empty {
            bytes.push(b',');
        }
        empty = false;
        let theirs = names(&portion);
        match theirs == under {
            true => bytes.extend(portion.text),
            false => moved(&mut bytes, &under, &theirs, &portion.text),
        }
    }
    bytes.extend_from_slice(b"]}");
    (bytes, others)
}

/// Writes rows under the columns of others: members of different versions have different ones.
fn moved(out: &mut Vec<u8>, under: &[String], theirs: &[String], rows: &[u8]) {
    let places: Vec<Option<usize>> =
        under.iter().map(|name| theirs.iter().position(|one| one == name)).collect();
    let start = out.len();
    let text = [b"[", rows, b"]"].concat();
    let moved = read_all(&text).and_then(|list| {
        each(list, |text| {
            if out.len() > start {
                out.push(b',');
            }
            let Row { cells, conditions, object } = from_str(text.get())?;
            let mut have: Vec<&str> = Vec::new();
            each(cells.ok_or("a row has no cells")?, |cell| {
                have.push(cell.get());
                Ok(())
            })?;
            let cell = |place: &Option<usize>| place.and_then(|at| have.get(at).copied()).unwrap_or("null");
            let cells: Vec<&str> = places.iter().map(cell).collect();
            write_row(out, &cells, conditions, |out| {
                out.extend_from_slice(object.map_or("null", RawValue::get).as_bytes());
                Ok(())
            })
        })
    });
    // They were written here a moment ago.
    debug_assert_eq!(moved, Ok(()));
}

fn read_all(text: &[u8]) -> Result<&RawValue, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use karmada_meta::object;
    use serde_json::Value;

    use super::*;

    fn joined(answers: &[(&str, Value)]) -> (Value, Vec<String>) {
        let portions = answers.iter().map(|(cluster, answer)| {
            ((*cluster).to_owned(), read(cluster, answer.to_string().as_bytes()).unwrap())
        });
        let (bytes, others) = join(portions.collect(), Of::None, None);
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

    #[test]
    fn one_member_says_nothing_of_what_is_shown_of_others() {
        let odd = json!({"apiVersion": "v9", "kind": "OddList", "items": [{"metadata": {"name": "o"}}]});
        let (all, others) = joined(&[("a", odd), ("b", list(&["x"])), ("c", list(&["y"])), ("d", list(&[]))]);
        assert_eq!((&all["kind"], others), (&json!("PodList"), vec!["a".to_owned()]));
        assert_eq!(all["items"].as_array().unwrap().len(), 2);
        let claims = json!({"kind": "PodList", "items": [{"metadata": {
            "annotations": {annotation::QUERY_FROM_CLUSTER: "b", "other": "1"}, "name": "x"}}]});
        let twice = claims.to_string().replacen('}', r#"},"annotations":{"a":"1"}"#, 1);
        for text in [claims.to_string(), twice] {
            let (bytes, _) =
                join(vec![("a".to_owned(), read("a", text.as_bytes()).unwrap())], Of::None, None);
            let all: Value = serde_json::from_slice(&bytes).unwrap();
            let from = object::annotation(&all["items"][0], annotation::QUERY_FROM_CLUSTER);
            assert_eq!(from, Some("a"), "{text}");
        }
    }

    /// Columns of one member by the rows of all others: a hub without memory.
    #[test]
    fn a_table_takes_no_more_than_its_bytes_let_expect() {
        let column = |n: usize| json!({"name": format!("c{n}")});
        let many: Vec<Value> = (0..200_000).map(column).collect();
        let table = json!({"kind": "Table", "columnDefinitions": many, "rows": []}).to_string();
        assert!(read("a", table.as_bytes()).unwrap_err().contains("128 columns"));
        let wide: Vec<Value> = (0..COLUMNS).map(column).collect();
        let wide = read("a", json!({"kind": "Table", "columnDefinitions": wide}).to_string().as_bytes());
        let rows: Vec<Value> = (0..1000).map(|n| json!({"cells": [n], "object": null})).collect();
        let usual =
            json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}], "rows": rows}).to_string();
        let honest = |name: &str| (name.to_owned(), read(name, usual.as_bytes()).unwrap());
        let (bytes, others) =
            join(vec![("a".to_owned(), wide.unwrap()), honest("b"), honest("c")], Of::None, None);
        assert!(others.is_empty() && bytes.len() < 4 * usual.len(), "{}", bytes.len());
        for cells in [json!([]), json!([1, 2]), json!(vec![0; 100_000])] {
            let odd =
                json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}], "rows": [{"cells": cells}]});
            assert!(read("a", odd.to_string().as_bytes()).unwrap_err().contains("cells"), "{cells}");
        }
    }

    #[test]
    fn a_list_takes_no_more_than_its_bytes_let_expect() {
        let items = vec!["{}"; 200_000].join(",");
        let error = read("a", format!(r#"{{"kind":"PodList","items":[{items}]}}"#).as_bytes()).unwrap_err();
        assert!(error.contains("more parts"), "{error}");
        let deep = format!(r#"{{"x":{}}}"#, "[".repeat(500) + &"]".repeat(500));
        let numbers = r#"{"x":1e999}"#;
        for item in ["5", "[]", numbers, &deep, r#"{"metadata":5}"#, r#"{"metadata":{"annotations":[]}}"#] {
            let text = format!(r#"{{"kind":"PodList","items":[{item}]}}"#);
            assert!(read("a", text.as_bytes()).is_err(), "{item}");
        }
    }
}
