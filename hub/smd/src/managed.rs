//! `metadata.managedFields`: who owns which fields, and since when.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::fieldpath::{DecodeError, Set};

/// With so many entries an object takes no further applier. No object has as many owners; what the entries say of each
/// other is worked out for every write.
pub const MAX_MANAGERS: usize = 1_000;
/// The longest list that is read. Writers are few, but no applier.
const MOST_READ: usize = 2 * MAX_MANAGERS;

/// How a manager came to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply: it owns what its last configuration said, and leaving a field out removes it.
    Apply,
    /// By any other write: it owns what it changed.
    Update,
}

impl Operation {
    /// As it stands in `managedFields`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who owns fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    /// The version in which its set is written, such as `apps/v1`.
    pub api_version: String,
    /// Empty for the object itself.
    pub subresource: String,
}

impl Manager {
    /// Whether two are the same manager: an applier is the same in every version.
    pub fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The text by which Kubernetes knows a manager; what it sorts conflicts by.
    pub fn identity(&self) -> String {
        let mut map = Map::new();
        let version = if self.operation == Operation::Apply { "" } else { &self.api_version };
        let fields = [
            ("manager", self.name.as_str()),
            ("operation", self.operation.as_str()),
            ("apiVersion", version),
            ("subresource", &self.subresource),
        ];
        for (key, value) in fields {
            if !value.is_empty() {
                map.insert(key.to_owned(), Value::from(value));
            }
        }
        Value::Object(map).to_string()
    }
}

impl std::fmt::Display for Manager {
    /// As conflicts name it: `"m" with subresource "status" using apps/v1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", Value::from(self.name.as_str()))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", Value::from(self.subresource.as_str()))?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub manager: Manager,
    pub set: Set,
    /// RFC 3339; none for an apply that changed nothing but owners.
    pub time: Option<String>,
    pub(crate) source: Source,
}

/// The place of an entry in the list that it was read from, as long as it is as it was there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Source(pub(crate) Option<usize>);

impl PartialEq for Source {
    /// Where an entry came from makes it no other entry.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Source {}

impl Entry {
    /// What a manager owns since when.
    pub fn new(manager: Manager, set: Set, time: Option<String>) -> Self {
        Self { manager, set, time, source: Source::default() }
    }

    /// Takes fields from the manager.
    pub(crate) fn lose(&mut self, set: &Set) {
        if self.set.subtract(set) {
            self.source = Source::default();
        }
    }
}

/// All managers of an object; of each there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    pub(crate) entries: Vec<Entry>,
}

impl Managed {
    /// The managers of an object; none if it has no `managedFields`.
    ///
    /// # Errors
    /// An entry is malformed: whoever sends such is to be ignored, not obeyed in part.
    pub fn of(object: &Value) -> Result<Self, DecodeError> {
        Self::decode(object.pointer("/metadata/managedFields"))
    }

    /// Reads a `managedFields` list.
    ///
    /// # Errors
    /// An entry has no known operation, no apiVersion, another type of fields, or malformed fields.
    pub fn decode(list: Option<&Value>) -> Result<Self, DecodeError> {
        let mut managed = Self::default();
        let entries = match list {
            None | Some(Value::Null) => return Ok(managed),
            Some(Value::Array(entries)) => entries,
            Some(other) => return Err(DecodeError(format!("expected a list, got {other}"))),
        };
        if entries.len() > MOST_READ {
            return Err(DecodeError(format!("{} entries where {MOST_READ} are read", entries.len())));
        }
        for (i, value) in entries.iter().enumerate() {
            let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(DecodeError("operation must be `Apply` or `Update`".to_owned())),
            };
            if text("apiVersion").is_empty() {
                return Err(DecodeError("apiVersion must not be empty".to_owned()));
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(DecodeError(format!("missing fieldsType in managed fields entry {i}"))),
                other => {
                    return Err(DecodeError(format!(
                        "invalid fieldsType {other:?} in managed fields entry {i}"
                    )));
                }
            }
            let manager = Manager {
                name: text("manager").to_owned(),
                operation,
                api_version: text("apiVersion").to_owned(),
                subresource: text("subresource").to_owned(),
            };
            let set = match value.get("fieldsV1") {
                None | Some(Value::Null) => Set::new(),
                Some(fields) => Set::from_fields_v1(fields)?,
            };
            let time = value.get("time").and_then(Value::as_str).map(str::to_owned);
            managed.put(Entry { manager, set, time, source: Source(Some(i)) });
        }
        Ok(managed)
    }

    /// The list as the API shows it: appliers first, then by time, name, version and subresource.
    pub fn encode(&self) -> Value {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by(|a, b| order(a).cmp(&order(b)));
        Value::Array(entries.into_iter().map(encode_entry).collect())
    }

    /// Writes the list into an object; an empty one is left out.
    pub fn write(&self, object: &mut Value) {
        let Value::Object(object) = object else { return };
        if self.entries.is_empty() {
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                metadata.shift_remove("managedFields");
            }
        } else if let Value::Object(metadata) =
            object.entry("metadata").or_insert_with(|| Value::Object(Map::new()))
        {
            metadata.insert("managedFields".to_owned(), self.encode());
        }
    }

    /// [`write`](Self::write) into the object that these were read from, or a copy of it: what is as it was stays.
    pub(crate) fn write_back(&self, object: &mut Value) {
        let old = object.pointer_mut("/metadata/managedFields").map(std::mem::take);
        let (Some(Value::Array(mut old)), false) = (old, self.entries.is_empty()) else {
            return self.write(object);
        };
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by(|a, b| order(a).cmp(&order(b)));
        let value = |entry: &Entry| match entry.source.0.and_then(|i| old.get_mut(i)) {
            Some(old) => std::mem::take(old),
            None => encode_entry(entry),
        };
        let list: Vec<Value> = entries.into_iter().map(value).collect();
        if let Some(slot) = object.pointer_mut("/metadata/managedFields") {
            *slot = Value::Array(list);
        }
    }

    /// Every entry.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// No one owns anything.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of a manager.
    pub fn get(&self, manager: &Manager) -> Option<&Entry> {
        self.entries.iter().find(|e| e.manager.is(manager))
    }

    /// Sets the entry of a manager.
    pub fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|e| e.manager.is(&entry.manager)) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }

    /// Takes out the entry of a manager.
    pub fn take(&mut self, manager: &Manager) -> Option<Entry> {
        let i = self.entries.iter().position(|e| e.manager.is(manager))?;
        Some(self.entries.remove(i))
    }

    /// Joins the oldest Update entries of each version into one manager until at most `max` are left, so that an
    /// object that many clients write does not grow without end.
    pub(crate) fn cap_updates(&mut self, max: usize, bucket_name: &str) {
        let mut oldest: Vec<Manager> = Vec::new();
        {
            let mut updates: Vec<&Entry> =
                self.entries.iter().filter(|e| e.manager.operation == Operation::Update).collect();
            if updates.len() <= max {
                return;
            }
            updates.sort_by_cached_key(|e| (e.time.clone(), e.manager.identity()));
            oldest.extend(updates.into_iter().map(|e| e.manager.clone()));
        }
        let mut count = oldest.len();
        let mut first_of_version: Vec<Manager> = Vec::new();
        // What goes into the one manager of a version, joined at the end.
        let mut joining: BTreeMap<String, Vec<Set>> = BTreeMap::new();
        for manager in oldest {
            if count <= max {
                break;
            }
            let Some(first) = first_of_version.iter().find(|m| m.api_version == manager.api_version) else {
                first_of_version.push(manager);
                continue;
            };
            let bucket = Manager {
                name: bucket_name.to_owned(),
                operation: Operation::Update,
                api_version: manager.api_version.clone(),
                subresource: String::new(),
            };
            if self.get(&bucket).is_none()
                && let Some(first) = self.take(first)
            {
                self.put(Entry::new(bucket.clone(), first.set, first.time));
            }
            if manager.is(&bucket) {
                continue;
            }
            if let Some(merged) = self.take(&manager) {
                joining.entry(bucket.api_version.clone()).or_default().push(merged.set);
                if let Some(entry) = self.entries.iter_mut().find(|e| e.manager.is(&bucket)) {
                    // The time of what is merged in: it is the younger one.
                    entry.time = merged.time;
                }
                count -= 1;
            }
        }
        for entry in &mut self.entries {
            if entry.manager.operation == Operation::Update
                && entry.manager.name == bucket_name
                && entry.manager.subresource.is_empty()
                && let Some(sets) = joining.remove(&entry.manager.api_version)
            {
                entry.set = Set::union_of(std::iter::once(&entry.set).chain(&sets));
                entry.source = Source::default();
            }
        }
    }
}

fn order(entry: &Entry) -> (Operation, Option<&str>, &str, &str, &str) {
    let m = &entry.manager;
    (m.operation, entry.time.as_deref(), &m.name, &m.api_version, &m.subresource)
}

fn encode_entry(entry: &Entry) -> Value {
    let mut map = Map::new();
    let mut text = |key: &str, value: &str| {
        if !value.is_empty() {
            map.insert(key.to_owned(), Value::from(value));
        }
    };
    text("manager", &entry.manager.name);
    text("operation", entry.manager.operation.as_str());
    text("apiVersion", &entry.manager.api_version);
    text("time", entry.time.as_deref().unwrap_or_default());
    text("fieldsType", "FieldsV1");
    map.insert("fieldsV1".to_owned(), entry.set.to_fields_v1());
    if !entry.manager.subresource.is_empty() {
        map.insert("subresource".to_owned(), Value::from(entry.manager.subresource.as_str()));
    }
    Value::Object(map)
}

/// Whether a write asks for all managed fields to be forgotten: a list that is empty, or of one empty entry. A write
/// that leaves the list out does not.
pub fn is_reset(object: &Value) -> bool {
    let empty = |v: &Value| v.is_null() || v == "" || v.as_object().is_some_and(Map::is_empty);
    match object.pointer("/metadata/managedFields") {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => true,
            [Value::Object(only)] => only.values().all(empty),
            _ => false,
        },
        _ => false,
    }
}

/// If `new` differs from `old` in the times of its managed fields alone, takes the old times: writing an object as it
/// is must not be a change.
pub fn keep_times(old: &Value, new: &mut Value) {
    const LIST: &str = "/metadata/managedFields";
    let (Some(Value::Array(before)), Some(Value::Array(after))) = (old.pointer(LIST), new.pointer(LIST))
    else {
        return;
    };
    // An entry that got a time may have moved, so entries are matched by who they are of.
    let untimed = |list: &[Value]| -> Vec<String> {
        let mut texts: Vec<String> = list
            .iter()
            .map(|e| {
                let mut e = e.clone();
                if let Value::Object(map) = &mut e {
                    map.shift_remove("time");
                }
                e.to_string()
            })
            .collect();
        texts.sort();
        texts
    };
    if before.len() != after.len() || before == after || untimed(before) != untimed(after) {
        return;
    }
    if equal_but_for_managed_fields(old, new) {
        let before = before.clone();
        if let Some(list) = new.pointer_mut(LIST) {
            *list = Value::Array(before);
        }
    }
}

fn equal_but_for_managed_fields(a: &Value, b: &Value) -> bool {
    let equal = |a: &Value, b: &Value, skip: &str, deeper: &dyn Fn(&Value, &Value) -> bool| match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(k, v)| b.get(k).is_some_and(|w| if k == skip { deeper(v, w) } else { v == w }))
        }
        (a, b) => a == b,
    };
    equal(a, b, "metadata", &|a, b| equal(a, b, "managedFields", &|_, _| true))
}
