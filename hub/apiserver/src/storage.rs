//! How objects lie in the store, and how answers are put together around them without being encoded again.
//!
//! The stored value is the object as JSON, without `metadata.resourceVersion` (the store knows it), always beginning
//! with apiVersion, kind and metadata. What selectors, the garbage collector and the namespace deleter ask for is
//! projected into a [`Header`] in memory once, when the object is written or loaded:
//!
//! ```text
//!   {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a",…},"data":{…}}
//!                                                    ^meta_start  ^meta_end
//!   object  {"kind":K,"apiVersion":V,"metadata":{"resourceVersion":"7",  + bytes[meta_start..]
//!   item                           {"metadata":{"resourceVersion":"7",  + bytes[meta_start..]
//!   partial {"kind":"PartialObjectMetadata",…,"metadata":{…             + bytes[meta_start..meta_end] + }
//! ```
//!
//! The served version is thus a prefix: custom resources of several versions need no re-encoding either.

mod labels;
mod texts;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use bytes::{Bytes, BytesMut};
use karmada_meta::sums::Sum;
use karmada_store::{Account, Entry, Key, Project, Revision, Store};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

pub use self::{labels::Labels, texts::Texts};
use crate::{
    identity::REPORTED_BY,
    kinds::{Kind, rules},
    quota::{EVENTS, StorageQuota},
};

/// Among the fields of an event that are kept: the cluster whose agent has told it.
const REPORTER: &str = "metadata.annotations[agent.karmada.io/reported-by]";
/// Where requests for certificates are stored.
pub(crate) const REQUESTS: &str = "certificates.k8s.io/certificatesigningrequests";

/// The store of an API server.
pub type ApiStore = Store<Projection>;
/// An object in the store.
pub type Object = Entry<Header>;

/// What is kept in memory of each object beside its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// See [`Lasting`]; what it has is read as if it stood here.
    lasting: Arc<Lasting>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Where the first member of metadata begins.
    pub meta_start: u32,
    /// Just behind the closing brace of metadata.
    pub meta_end: u32,
    /// Where metadata ends for those who do without managedFields.
    pub lean_end: u32,
    /// What tells the object from others, once somebody has asked.
    pub told: Told,
    /// Whether nothing but its status has changed by its last change, once somebody has asked.
    pub reported: Reported,
}

/// What most changes of an object leave as it is: versions that follow each other have it in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// The uids in `metadata.ownerReferences`.
    pub owners: Box<[Box<str>]>,
    /// `metadata.finalizers`.
    pub finalizers: Box<[Box<str>]>,
    /// Values of the fields that selectors may name, in the order of the kind's rules; built-in kinds only.
    pub fields: Texts,
}

impl Deref for Header {
    type Target = Lasting;

    fn deref(&self) -> &Lasting {
        &self.lasting
    }
}

/// Whether something is so, found out when somebody asks, and kept. It follows from the rest, as [`Told`] does.
#[derive(Debug, Default)]
pub struct Reported(AtomicU8);

impl Reported {
    const NO: u8 = 1;
    const YES: u8 = 2;

    /// What was found out.
    pub fn get(&self) -> Option<bool> {
        Some(self.0.load(Ordering::Relaxed)).filter(|known| *known != 0).map(|known| known == Self::YES)
    }

    /// What was found out, or is now.
    pub fn get_or(&self, find_out: impl FnOnce() -> bool) -> bool {
        self.get().unwrap_or_else(|| {
            let is = find_out();
            self.0.store(if is { Self::YES } else { Self::NO }, Ordering::Relaxed);
            is
        })
    }
}

impl Clone for Reported {
    fn clone(&self) -> Self {
        Self(AtomicU8::new(self.0.load(Ordering::Relaxed)))
    }
}

impl PartialEq for Reported {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reported {}

/// A [`Sum`] that is made when somebody asks, and kept. It follows from the rest, so that any two are equal.
#[derive(Debug, Default)]
pub struct Told(AtomicU64);

impl Told {
    /// The sum, if it was made.
    pub fn get(&self) -> Option<Sum> {
        Some(self.0.load(Ordering::Relaxed)).filter(|sum| *sum != 0).map(Sum)
    }

    /// The sum, made if it was not.
    pub fn get_or(&self, make: impl FnOnce() -> Sum) -> Sum {
        self.get().unwrap_or_else(|| {
            let sum = make();
            self.0.store(sum.0, Ordering::Relaxed);
            sum
        })
    }
}

impl Clone for Told {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl PartialEq for Told {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Told {}

/// Projects stored objects into [`Header`]s.
#[derive(Debug)]
pub struct Projection {
    /// Selectable fields by the resource part of keys.
    selectable: BTreeMap<String, Vec<String>>,
    /// Where it stands among an event's fields by whom it was told.
    reporter: usize,
    quota: StorageQuota,
}

impl Default for Projection {
    fn default() -> Self {
        Self::new(StorageQuota::NONE)
    }
}

impl Projection {
    /// A projection for a store in which agents may store so much.
    pub fn new(quota: StorageQuota) -> Self {
        let mut selectable: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for spec in crate::kinds::built_in_specs() {
            // The stored form of an Event is core's.
            if spec.group == "events.k8s.io" {
                continue;
            }
            let fields = rules::built_in(&spec.group, &spec.resource, false).selectable;
            if !fields.is_empty() {
                selectable.insert(crate::kinds::storage_name(&spec.group, &spec.resource), fields);
            }
        }
        // Last, where no selector looks: whose account they count for.
        selectable.entry(REQUESTS.to_owned()).or_default().push("spec.username".to_owned());
        let events = selectable.entry(EVENTS.to_owned()).or_default();
        let reporter = events.len();
        events.push(REPORTER.to_owned());
        Self { selectable, reporter, quota }
    }

    /// The cluster whose agent has told an event; empty if none has.
    pub(crate) fn teller<'a>(&self, event: &'a Header) -> Option<&'a str> {
        event.fields.get(self.reporter)
    }
}

/// The parts of stored metadata that a header needs.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    uid: Box<str>,
    owner_references: Option<Vec<Owner>>,
    finalizers: Option<Vec<Box<str>>>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Owner {
    uid: Box<str>,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Project for Projection {
    type Header = Header;

    fn project(&self, key: &Key, value: &Bytes) -> Header {
        let Ok(raw) = serde_json::from_slice::<Raw<'_>>(value) else {
            // Written by nothing of ours: shown as an object without metadata rather than taken for corruption.
            tracing::error!(resource = %key.resource, namespace = %key.namespace, name = %key.name,
                "a stored object is not JSON with metadata");
            return Header::default();
        };
        let text = raw.metadata.get();
        let start = text.as_ptr() as usize - value.as_ptr() as usize;
        let meta: Meta<'_> = serde_json::from_str(text).unwrap_or_default();
        let fields = match self.selectable.get(&*key.resource) {
            None => Texts::default(),
            Some(paths) => match serde_json::from_slice::<Value>(value) {
                Ok(object) => paths.iter().map(|path| field(&object, path)).collect(),
                Err(_) => Texts::default(),
            },
        };
        let lasting = Lasting {
            labels: meta.labels.into_iter().flatten().collect(),
            uid: meta.uid,
            owners: meta.owner_references.unwrap_or_default().into_iter().map(|owner| owner.uid).collect(),
            finalizers: meta.finalizers.unwrap_or_default().into(),
            fields,
        };
        Header {
            lasting: Arc::new(lasting),
            deleting: meta.deletion_timestamp.is_some(),
            meta_start: start as u32 + 1,
            meta_end: (start + text.len()) as u32,
            lean_end: (start + lean(text, meta.managed_fields.map(RawValue::get))) as u32,
            told: Told::default(),
            reported: Reported::default(),
        }
    }

    fn share(&self, header: &mut Header, before: &Header) {
        if header.lasting == before.lasting {
            header.lasting = before.lasting.clone();
        }
    }

    fn account(&self, key: &Key, header: &Header) -> Option<Account> {
        if &*key.resource == REQUESTS {
            return StorageQuota::requests(header.fields.iter().last()?);
        }
        self.quota.account(key, || self.teller(header))
    }
}

/// Where the text of metadata ends for those who do without managedFields, which [`encode`] puts last. Text of another
/// origin, in which they stand elsewhere, is not cut.
fn lean(metadata: &str, managed: Option<&str>) -> usize {
    const KEY: &str = "\"managedFields\":";
    let cut = managed.and_then(|managed| {
        let before = metadata.strip_suffix('}')?.strip_suffix(managed)?.strip_suffix(KEY)?;
        Some(before.strip_suffix(',').unwrap_or(before).len())
    });
    cut.unwrap_or(metadata.len() - 1)
}

/// The value of a selectable field as selectors compare it; absent is what Go's zero value shows.
pub fn field(object: &Value, path: &str) -> String {
    let pointer = format!("/{}", path.replace('.', "/"));
    let at = match path {
        // The one selectable name that is not a path.
        "source" => object.pointer("/source/component").or_else(|| object.get("reportingComponent")),
        "reportingComponent" => object.get("reportingComponent"),
        "status.podIPs" => object.pointer("/status/podIPs/0/ip"),
        REPORTER => object.pointer("/metadata/annotations").and_then(|all| all.get(REPORTED_BY)),
        _ => object.pointer(&pointer),
    };
    match at {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(yes)) => yes.to_string(),
        Some(Value::Number(n)) => n.to_string(),
        _ => match path {
            "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
            "status.successful" | "status.replicas" => "0".to_owned(),
            _ => String::new(),
        },
    }
}

/// The key of an object.
pub fn key(kind: &Kind, namespace: &str, name: &str) -> Key {
    Key { resource: kind.storage.clone(), namespace: namespace.into(), name: name.into() }
}

/// A key by the resource part.
pub(crate) fn key_of(resource: &str, namespace: &str, name: &str) -> Key {
    Key { resource: resource.into(), namespace: namespace.into(), name: name.into() }
}

/// The stored form of an object.
pub fn encode(object: &Value) -> Bytes {
    let empty = Map::new();
    let object = object.as_object().unwrap_or(&empty);
    let mut ordered: Vec<(&str, &Value)> = Vec::with_capacity(object.len());
    for first in ["apiVersion", "kind", "metadata"] {
        if let Some(value) = object.get(first) {
            ordered.push((first, value));
        }
    }
    ordered.extend(
        object
            .iter()
            .filter(|(k, _)| !matches!(k.as_str(), "apiVersion" | "kind" | "metadata"))
            .map(|(k, v)| (k.as_str(), v)),
    );
    let mut out = Vec::with_capacity(512);
    out.push(b'{');
    for (i, (key, value)) in ordered.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_json(&mut out, key);
        out.push(b':');
        match (key, value) {
            ("metadata", Value::Object(meta)) => {
                out.push(b'{');
                let members =
                    meta.iter().filter(|(k, _)| !matches!(k.as_str(), "resourceVersion" | "managedFields"));
                // Last, so that they can be left out of a frame.
                let managed = meta.get_key_value("managedFields");
                for (i, (key, value)) in members.chain(managed).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write_json(&mut out, key);
                    out.push(b':');
                    write_json(&mut out, value);
                }
                out.push(b'}');
            }
            _ => write_json(&mut out, value),
        }
    }
    out.push(b'}');
    // Kept for long: what it grew to in steps would be half again as much.
    out.into_boxed_slice().into()
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("invariant: a JSON value written to memory cannot fail");
}

/// The object as a value, in the given version, with its resourceVersion.
pub fn decode(kind: &Kind, bytes: &Bytes, revision: Revision) -> Value {
    let mut object: Value = serde_json::from_slice(bytes).unwrap_or_else(|_| Value::Object(Map::new()));
    stamp(kind, &mut object, Some(revision));
    object
}

/// Sets what the place of an object says of it: apiVersion, kind and resourceVersion.
pub fn stamp(kind: &Kind, object: &mut Value, revision: Option<Revision>) {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    object["apiVersion"] = Value::from(&*kind.api_version);
    object["kind"] = Value::from(kind.gvk.kind.as_str());
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    if let Some(revision) = revision {
        object["metadata"]["resourceVersion"] = Value::String(revision.to_string());
    }
}

/// How objects of one kind are framed, made once per answer.
#[derive(Clone, Debug)]
pub struct Framer {
    /// `{"kind":…,"apiVersion":…,"metadata":{`
    head: String,
    /// Cut after metadata.
    partial: bool,
    /// Without managedFields.
    lean: bool,
}

impl Framer {
    /// Whole objects.
    pub fn object(kind: &Kind) -> Self {
        Self {
            head: format!(
                "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{{",
                quoted(&kind.gvk.kind),
                quoted(&kind.api_version)
            ),
            partial: false,
            lean: false,
        }
    }

    /// Items of a list: built-in kinds leave kind and apiVersion to the list, custom resources repeat them.
    pub fn item(kind: &Kind) -> Self {
        if kind.custom.is_some() {
            Self::object(kind)
        } else {
            Self { head: "{\"metadata\":{".to_owned(), partial: false, lean: false }
        }
    }

    /// `PartialObjectMetadata` of a meta version.
    pub fn partial(version: &str) -> Self {
        Self {
            head: format!(
                "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{{"
            ),
            partial: true,
            lean: false,
        }
    }

    /// The same without managedFields, if so.
    pub fn lean(self, lean: bool) -> Self {
        Self { lean, ..self }
    }

    /// Appends an object as it was at `revision`.
    pub fn write(&self, out: &mut BytesMut, header: &Header, value: &Bytes, revision: Option<Revision>) {
        let (start, meta_end) = (header.meta_start as usize, header.meta_end as usize);
        // The members of metadata up to its brace, and what follows with the brace.
        let members_end = if self.lean { header.lean_end as usize } else { meta_end.saturating_sub(1) };
        let end = if self.partial { meta_end } else { value.len() };
        let members = value.get(start..members_end).unwrap_or_default();
        let rest = value.get(meta_end.saturating_sub(1)..end).unwrap_or(b"}}");
        out.extend_from_slice(self.head.as_bytes());
        if let Some(revision) = revision {
            let comma = if members.is_empty() { "" } else { "," };
            out.extend_from_slice(format!("\"resourceVersion\":\"{revision}\"{comma}").as_bytes());
        }
        out.extend_from_slice(members);
        out.extend_from_slice(rest);
        if self.partial {
            out.extend_from_slice(b"}");
        }
    }

    /// The object alone.
    pub fn frame(&self, header: &Header, value: &Bytes, revision: Option<Revision>) -> Bytes {
        let mut out = BytesMut::with_capacity(value.len() + 128);
        self.write(&mut out, header, value, revision);
        out.freeze()
    }
}

/// Whether two states of an object say the same but for their status, managedFields aside. Where the bytes do not show that
/// they are taken to differ.
pub(crate) fn differ_in_status_alone(before: &Object, after: &Object) -> bool {
    type Said<'a> = (&'a [u8], Vec<(&'a str, &'a str)>);
    fn said<'a>(object: &Object, value: &'a [u8]) -> Option<Said<'a>> {
        let (start, end) = (object.header.meta_start as usize, object.header.lean_end as usize);
        let members: BTreeMap<&str, &RawValue> = serde_json::from_slice(value).ok()?;
        let members = members.into_iter().filter(|(key, _)| !matches!(*key, "metadata" | "status"));
        Some((value.get(start..end)?, members.map(|(key, value)| (key, value.get())).collect()))
    }
    let (was, is) = (before.value.get(), after.value.get());
    said(before, &was).is_some_and(|said_before| said(after, &is) == Some(said_before))
}

/// What Go's JSON patch library writes: an object that a patch went into has its keys sorted, any other stays as it was.
pub(crate) fn touched_text(value: &Value, before: Option<&Value>, top: bool) -> String {
    let Value::Object(map) = value else { return value.to_string() };
    if !top && before == Some(value) {
        return value.to_string();
    }
    let mut members: Vec<(&String, &Value)> = map.iter().collect();
    members.sort_by(|a, b| a.0.cmp(b.0));
    let members: Vec<String> = members
        .into_iter()
        .map(|(key, value)| {
            let before = before.and_then(|before| before.get(key));
            format!("{}:{}", quoted(key), touched_text(value, before, false))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

/// A string as JSON.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn project(resource: &str, value: &Bytes) -> Header {
        let key = Key { resource: resource.into(), namespace: "n".into(), name: "a".into() };
        Projection::default().project(&key, value)
    }

    #[test]
    fn what_differs_in_status_alone_is_told_from_the_rest() {
        let object = |change: fn(&mut Value)| {
            let mut object = json!({"kind": "Work", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"x": "1"},
                "managedFields": [{"manager": "a"}]}, "spec": {"a": 1}, "status": {"b": 1}});
            change(&mut object);
            let value = encode(&object);
            let header = project("core/configmaps", &value);
            let key = Key { resource: "core/configmaps".into(), namespace: "n".into(), name: "a".into() };
            let revision = Revision::new(1);
            Object { key, value: value.into(), header, revision, create_revision: revision, account: None }
        };
        let before = object(|_| {});
        type Row = (fn(&mut Value), bool);
        let rows: [Row; 7] = [
            (|object| object["status"]["b"] = 2.into(), true),
            (|object| drop(object.as_object_mut().unwrap().remove("status")), true),
            (|object| object["metadata"]["managedFields"] = json!([{"manager": "b"}]), true),
            (|object| object["metadata"]["labels"]["x"] = "2".into(), false),
            (|object| object["metadata"]["generation"] = 2.into(), false),
            (|object| object["spec"]["a"] = 2.into(), false),
            (|object| object["more"] = 2.into(), false),
        ];
        for (change, alone) in rows {
            let after = object(change);
            assert_eq!(differ_in_status_alone(&before, &after), alone, "{after:?}");
        }
    }

    #[test]
    fn a_frame_is_the_object_again() {
        let object = json!({"kind": "Secret", "metadata": {"name": "a", "uid": "u", "labels": {"l": "1"},
            "ownerReferences": [{"uid": "o", "name": "x"}], "finalizers": ["f"], "resourceVersion": "3"},
            "apiVersion": "v1", "type": "Opaque", "data": {}});
        let bytes = encode(&object);
        assert!(bytes.starts_with(b"{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\""));
        let header = project("core/secrets", &bytes);
        assert_eq!(header.labels.get("l"), Some("1"));
        assert_eq!((&*header.uid, &*header.owners[0], &*header.finalizers[0]), ("u", "o", "f"));
        assert_eq!(header.fields.get(0), Some("Opaque"));
        for (framer, want) in [
            (
                Framer {
                    head: "{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{".to_owned(),
                    partial: false,
                    lean: false,
                },
                object.clone(),
            ),
            (
                Framer::partial("v1"),
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}),
            ),
        ] {
            let mut out = BytesMut::new();
            framer.write(&mut out, &header, &bytes, Some(Revision::new(3)));
            let got: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(got, want);
        }
    }

    #[test]
    fn versions_have_in_one_piece_what_they_have_in_common() {
        let object = |labels: Value, deleted: Option<&str>| {
            let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": "a", "uid": "u",
                "labels": labels, "finalizers": ["f"], "deletionTimestamp": deleted}, "data": {}});
            project("core/secrets", &encode(&object))
        };
        let before = object(json!({"l": "1"}), None);
        let (same, other) = (object(json!({"l": "1"}), Some("now")), object(json!({"l": "2"}), None));
        for (after, is_shared) in [(same, true), (other, false)] {
            let mut header = after.clone();
            Projection::default().share(&mut header, &before);
            assert_eq!(header, after, "it says what it said");
            assert_eq!(Arc::ptr_eq(&header.lasting, &before.lasting), is_shared);
        }
    }

    /// There are more of these in memory than of anything else.
    #[test]
    fn an_object_is_small() {
        assert_eq!((size_of::<Object>(), size_of::<Lasting>()), (144, 80));
    }

    #[test]
    fn a_lean_frame_has_no_managed_fields() {
        for meta in [
            json!({"managedFields": [{"manager": "m"}], "name": "a", "annotations": {"x": "\"managedFields\":[]}"}}),
            json!({"name": "a", "uid": "u"}),
            json!({"managedFields": []}),
            json!({}),
        ] {
            let bytes = encode(
                &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}}),
            );
            let header = project("core/configmaps", &bytes);
            let (mut lean, mut partial) = (BytesMut::new(), BytesMut::new());
            let whole = Framer { head: "{\"metadata\":{".to_owned(), partial: false, lean: true };
            whole.write(&mut lean, &header, &bytes, Some(Revision::new(3)));
            Framer::partial("v1").lean(true).write(&mut partial, &header, &bytes, None);
            let mut want = meta.clone();
            want.as_object_mut().unwrap().remove("managedFields");
            let partial: Value = serde_json::from_slice(&partial).unwrap();
            assert_eq!(partial["metadata"], want);
            want["resourceVersion"] = json!("3");
            let lean: Value = serde_json::from_slice(&lean).unwrap();
            assert_eq!((&lean["metadata"], &lean["data"]["k"]), (&want, &json!("v")));
        }
        // Not written by us: they stand before the name, and stay.
        let bytes = Bytes::from_static(br#"{"metadata":{"managedFields":[],"name":"a"}}"#);
        let mut out = BytesMut::new();
        Framer::partial("v1").lean(true).write(&mut out, &project("core/configmaps", &bytes), &bytes, None);
        let object: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(object["metadata"], json!({"managedFields": [], "name": "a"}));
    }
}
