//! What must hold of whatever comes from outside: one function for each parser, over bytes that mean nothing yet.
//!
//! ```text
//!   cargo fuzz (hub/fuzz) ─┐
//!                          ├─► property(bytes) ─► Source ─► values, texts ─► parser ─► what must hold, or a panic
//!   proptest (tests below) ┘
//! ```
//!
//! Built for tests and with the feature `fuzzing` alone. Each function looks for more than a panic: what was read and is
//! written is read as the same, what is done twice changes nothing the second time, what comes out is bounded by what went
//! in.

mod shown;
mod source;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use http::Method;
use karmada_meta::{fields::FieldSelector, labels::Selector, quantity::Quantity};
use karmada_smd::{
    ApplyOptions, Managed, Operation, PathElement, Set, TypeRef, UpdateOptions, apply as apply_config,
    json_patch as patch_json, merge_patch as patch_merge, owned_by, strategic_merge, update,
};
use serde_json::{Value, json};

pub use self::shown::{cel, tables, webhook_answer};
use self::source::Source;
use crate::{
    authn, body, brief, builtin,
    builtin::{BuiltIn, protobuf::Envelope},
    carried, certificates, crd,
    findings::Findings,
    kinds::{Kind, Kinds},
    limits::Limits,
    negotiate::{self, Endpoint},
    options::{DeleteOptions, ListOptions, Write, WriteOptions},
    registry::list,
    request::{Query, RequestInfo},
    service,
    shape::Shape,
    sums, watch,
};

/// What is served without definitions.
static BUILTIN: LazyLock<Kinds> = LazyLock::new(|| Kinds::new(builtin::kinds()));

/// What panics if the bytes break it.
pub type Property = fn(&[u8]);

/// Every property, by the name of its target.
pub const PROPERTIES: &[(&str, Property)] = &[
    ("apply", apply),
    ("body", body),
    ("certificate_request", certificate_request),
    ("cel", cel),
    ("continue_token", continue_token),
    ("definition", definition),
    ("field_paths", field_paths),
    ("json_patch", json_patch),
    ("merge_patch", merge_patch),
    ("protobuf", protobuf),
    ("quantity", quantity),
    ("request", request),
    ("selectors", selectors),
    ("strategic_merge", strategic_merge_patch),
    ("tables", tables),
    ("token", token),
    ("webhook_answer", webhook_answer),
];

/// Whether a value holds a fraction, of which serde_json does not read the last digit right.
fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(list) => list.iter().any(has_fraction),
        Value::Object(map) => map.values().any(has_fraction),
        _ => false,
    }
}

/// How much a value is, for what must not grow.
fn size(value: &Value) -> usize {
    value.to_string().len()
}

/// JSON and YAML bodies.
pub fn body(data: &[u8]) {
    let mut findings = Findings::default();
    if let Ok(value) = body::json(data, &mut findings) {
        let theirs: Value = serde_json::from_slice(data).expect("what we read is JSON");
        assert_eq!(value, theirs, "and means what it means to others");
        assert!(!body::is_too_deep(&value));
        let written = value.to_string();
        let again = body::json(written.as_bytes(), &mut Findings::default());
        if has_fraction(&value) {
            assert!(again.is_ok(), "what is written is read");
            return;
        }
        assert_eq!(again.as_ref(), Ok(&value), "what is written is read");
        if value.is_object() {
            let yaml = body::yaml(written.as_bytes(), &mut Findings::default());
            assert_eq!(yaml, Ok(value), "JSON is YAML");
        }
    }
    if let Ok(value) = body::yaml(data, &mut Findings::default()) {
        assert!(!body::is_too_deep(&value), "{value}");
        // Aliases repeat what they name; that has an end.
        assert!(size(&value) < 64 << 20);
        let again = body::json(value.to_string().as_bytes(), &mut Findings::default());
        assert!(again == Ok(value.clone()) || has_fraction(&value), "{value}");
    }
}

/// Protobuf bodies of every kind that has messages.
pub fn protobuf(data: &[u8]) {
    const KINDS: [(&str, &str, &str); 8] = [
        ("", "v1", "Pod"),
        ("", "v1", "Secret"),
        ("", "v1", "Event"),
        ("apps", "v1", "Deployment"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("coordination.k8s.io", "v1", "Lease"),
        ("networking.k8s.io", "v1", "NetworkPolicy"),
        ("", "v1", "DeleteOptions"),
    ];
    let mut source = Source::new(data);
    let (group, version, kind) = *source.one_of(&KINDS);
    let rest = source.rest();
    // As it comes, and as the raw part of an envelope that is well-formed.
    let mut wrapped = b"k8s\0\x12".to_vec();
    let mut length = rest.len();
    while length >= 0x80 {
        wrapped.push(length as u8 | 0x80);
        length >>= 7;
    }
    wrapped.push(length as u8);
    wrapped.extend_from_slice(rest);
    for bytes in [rest, &wrapped] {
        let Ok(envelope) = Envelope::open(bytes) else { continue };
        let Ok(object) = envelope.object((group, version, kind)) else { continue };
        // A message may end many times in a few bytes; each end is an empty object, and no more than that.
        assert!(size(&object) < 4096 + 2048 * bytes.len(), "{} bytes of {}", size(&object), bytes.len());
        if envelope.head() == json!({}) && kind != "DeleteOptions" {
            let mut decoded = object.clone();
            let mut findings = Findings::default();
            if BuiltIn::new(group, version, kind).decode(&mut decoded, &mut findings).is_ok() {
                assert!(findings.0.is_empty(), "{findings:?} of {object}");
            }
        }
    }
}

/// JSON patches, by bytes and by way of differences.
pub fn json_patch(data: &[u8]) {
    let mut source = Source::new(data);
    let (before, after) = (source.object(4), source.object(4));
    let difference = serde_json::to_value(json_patch::diff(&before, &after)).expect("a patch is JSON");
    let patched = patch_json(&before, &difference);
    assert_eq!(patched.as_ref(), Ok(&after), "{difference}");
    let operations = source.operations();
    let weight = size(&operations) + size(&before);
    if let Ok(patched) = patch_json(&before, &operations) {
        let limit = weight + karmada_smd::patch::MAX_COPIED + 64;
        assert!(size(&patched) <= limit, "{} bytes of {weight}", size(&patched));
        let only_tests = operations.as_array().is_some_and(|list| list.iter().all(|op| op["op"] == "test"));
        if only_tests {
            assert_eq!(patched, before, "a test changes nothing");
        }
    }
}

/// Merge patches.
pub fn merge_patch(data: &[u8]) {
    let mut source = Source::new(data);
    let (before, patch) = (source.object(4), source.value(4));
    let once = patch_merge(&before, &patch);
    assert_eq!(patch_merge(&once, &patch), once, "twice is once");
    assert!(size(&once) <= size(&before) + size(&patch) + 8);
    fn has_null(value: &Value) -> bool {
        value.as_object().is_some_and(|map| map.values().any(|v| v.is_null() || has_null(v)))
    }
    if !has_null(&before) {
        assert!(!has_null(&once), "null removes: {once}");
    }
}

/// A Deployment as it would be stored, if it is one.
fn stored(mut object: Value) -> Option<Value> {
    BuiltIn::new("apps", "v1", "Deployment").decode(&mut object, &mut Findings::default()).ok()?;
    Some(object)
}

/// Whether no two elements of a list are, or are called, the same: then a merge knows which is meant.
fn is_unambiguous(value: &Value) -> bool {
    let key = |item: &Value| {
        let name = item.get("name").or_else(|| item.get("containerPort"));
        name.unwrap_or(item).to_string()
    };
    match value {
        Value::Array(list) => {
            let keys: BTreeSet<String> = list.iter().map(key).collect();
            keys.len() == list.len() && list.iter().all(is_unambiguous)
        }
        Value::Object(map) => map.values().all(is_unambiguous),
        _ => true,
    }
}

/// Strategic merge patches of a Deployment.
pub fn strategic_merge_patch(data: &[u8]) {
    let mut source = Source::new(data);
    let schema = TypeRef::builtin("apps", "v1", "Deployment").expect("the table has it");
    let (Some(before), mut patch) = (stored(source.deployment()), source.deployment()) else { return };
    let plain = source.below(2) == 0;
    if plain {
        patch = stored(patch.clone()).unwrap_or(patch);
    } else {
        source.directives(&mut patch);
    }
    assert_eq!(strategic_merge(&before, &json!({}), &schema), Ok(before.clone()), "nothing changes nothing");
    if let Ok(once) = strategic_merge(&before, &patch, &schema) {
        assert!(size(&once) <= size(&before) + size(&patch) + 8, "{once}");
        let whole = stored(patch.clone()).as_ref() == Some(&patch);
        if plain && whole && is_unambiguous(&before) && is_unambiguous(&patch) {
            let again = strategic_merge(&once, &patch, &schema);
            assert_eq!(again, Ok(once), "without directives twice is once");
        }
    }
    let (odd, patch) = (source.object(5), source.object(5));
    let _ = strategic_merge(&odd, &patch, &schema);
}

/// Server-side apply over objects of others, also with managed fields that make no sense.
pub fn apply(data: &[u8]) {
    let mut source = Source::new(data);
    let schema = match source.below(3) {
        0 => TypeRef::deduced(),
        1 => TypeRef::builtin("", "v1", "ConfigMap").expect("the table has it"),
        _ => TypeRef::builtin("apps", "v1", "Deployment").expect("the table has it"),
    };
    let reset = Set::default();
    let writer = |manager| UpdateOptions {
        manager,
        api_version: "apps/v1",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        reset_fields: &reset,
    };
    let applier = |manager, force| ApplyOptions {
        manager,
        api_version: "apps/v1",
        subresource: "",
        now: "2026-01-01T00:00:01Z",
        force,
        reset_fields: &reset,
    };
    let Some(live) = stored(source.deployment()) else { return };
    let mut live = update(None, &live, &schema, &writer("w"));
    if source.below(4) == 0 {
        live["metadata"]["managedFields"] = source.value(6);
    }
    let config = source.deployment();
    for force in [false, true] {
        let Ok(once) = apply_config(Some(&live), &config, &schema, &applier("x", force)) else { continue };
        let managed = Managed::of(&once).expect("what is written is read");
        if managed.is_empty() {
            // Nobody owns any of it, so the next apply is a first one again.
            continue;
        }
        assert_eq!(managed.encode(), once["metadata"]["managedFields"]);
        let twice = apply_config(Some(&once), &config, &schema, &applier("x", false));
        assert_eq!(twice.as_ref().ok(), Some(&once), "what was applied is as it is to be");
        // Leaving everything out gives everything up.
        let empty = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}});
        let gone =
            apply_config(Some(&once), &empty, &schema, &applier("x", false)).expect("nothing conflicts");
        assert!(owned_by(&gone, "x", Operation::Apply).is_empty());
    }
}

/// Field paths and sets of them.
pub fn field_paths(data: &[u8]) {
    let mut source = Source::new(data);
    let fields = source.fields(5);
    if let Ok(set) = Set::from_fields_v1(&fields) {
        let written = set.to_fields_v1();
        let again = Set::from_fields_v1(&written).expect("what is written is read");
        assert_eq!(again, set);
        assert_eq!(again.to_fields_v1(), written);
        assert_eq!(set.union(&set), set);
        assert!(set.difference(&set).is_empty());
        assert!(set.leaves().is_subset(&set));
    }
    let _ = Set::from_fields_v1(&source.value(5));
    let text = source.text();
    if let Ok(Some(element)) = PathElement::decode(&text) {
        assert_eq!(PathElement::decode(&element.encode()), Ok(Some(element)), "{text}");
    }
}

/// Label and field selectors.
pub fn selectors(data: &[u8]) {
    let mut source = Source::new(data);
    let text = source.selector();
    for text in [text.as_str(), &String::from_utf8_lossy(source.rest())] {
        if let Ok(selector) = Selector::parse(text) {
            let written = selector.to_string();
            let again = Selector::parse(&written).unwrap_or_else(|e| panic!("{text:?} as {written:?}: {e}"));
            assert_eq!(again.to_string(), written, "{text:?}");
            let labels = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())].into();
            assert_eq!(again.matches(&labels), selector.matches(&labels), "{text:?}");
        }
        if let Ok(selector) = FieldSelector::parse(text) {
            let written = selector.to_string();
            let again =
                FieldSelector::parse(&written).unwrap_or_else(|e| panic!("{text:?} as {written:?}: {e}"));
            // In what order terms come depends on how they were spelt.
            let terms = |selector: &FieldSelector| {
                let terms =
                    selector.requirements().iter().map(|r| (r.path.clone(), r.negate, r.value.clone()));
                terms.collect::<BTreeSet<_>>()
            };
            assert_eq!(terms(&again), terms(&selector), "{text:?} as {written:?}");
            let value = |path: &str| (path == "a").then(|| "1".to_owned());
            assert_eq!(again.matches(value), selector.matches(value), "{text:?}");
        }
    }
}

/// Tokens by which a list goes on.
pub fn continue_token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    list::check_token(&text);
    list::check_token(&base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, data));
    let mut source = Source::new(data);
    list::check_start(&source.text(), &source.text());
}

/// Quantities.
pub fn quantity(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(quantity) = Quantity::parse(&text) else { return };
    let written = quantity.to_string();
    let again = Quantity::parse(&written).unwrap_or_else(|e| panic!("{text:?} as {written:?}: {e}"));
    if matches!(quantity.value(), i64::MAX | i64::MIN) {
        // What is more is capped or not by how many digits it is written with, and that may change.
        return;
    }
    // The suffix may be another one: what is no multiple of 1024 is written without.
    assert_eq!(again, quantity, "{text:?} as {written:?}");
}

/// Paths, queries and headers: a line each. What is judged is what is done.
pub fn request(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (path, query_text, header) = (format!("/{}", line()), line(), line());
    let query = Query::parse(query_text);
    for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let info = RequestInfo::parse(&method, &path, &query);
        assert_eq!(info.is_resource, !info.resource.is_empty(), "{path}");
        assert!(info.subresource.is_empty() || !info.name.is_empty(), "{path}");
        service::check_judged(&BUILTIN, &info, &path);
        if let Some(behind) = carried::behind(&info, &path) {
            assert!(path.ends_with(behind) && !info.name.contains('/'), "{path}");
        }
        if let Some(kind) = BUILTIN.by_resource(&info.group, &info.version, &info.resource) {
            let _ = ListOptions::parse(&query, &info, kind, info.verb == "watch");
        }
    }
    brief(&path, query_text);
    let _ = (sums::Within::parse(&query), sums::Asked::parse(&query), watch::bookmarks_every(&query));
    let _ = WriteOptions::parse(&query, Write::Patch { apply: true });
    let _ = DeleteOptions::from_query(&query);
    let limits = Limits::default();
    if let Ok(deadline) = limits.deadline(Some(header), false) {
        assert!(deadline > Duration::ZERO && deadline <= limits.request_timeout);
    }
    let mut headers = http::HeaderMap::new();
    if let Ok(value) = header.parse() {
        headers.insert(http::header::ACCEPT, value);
        let _ = negotiate::accept(&headers, None, false, Endpoint::List);
    }
    if let Ok(path) = karmada_meta::jsonpath::JsonPath::parse(header) {
        let _ = path.first(&json!({"a": [{"b": 1}]}));
    }
}

/// What is written in few bytes stands for the renewal of one Lease, and for nothing else.
fn brief(path: &str, query: &str) {
    let uri = format!("{path}?{query}");
    let Ok(request) = http::Request::patch(&uri).body(axum::body::Body::empty()) else { return };
    let path = request.uri().path().to_owned();
    let (long, is_brief) = brief::expand(request);
    if !is_brief {
        return assert_eq!(long.uri().path(), path);
    }
    let info = RequestInfo::parse(long.method(), long.uri().path(), &Query::default());
    assert_eq!((info.verb.as_str(), info.resource.as_str()), ("patch", "leases"), "{uri}");
    assert_eq!(info.namespace, crate::identity::CLUSTER_NAMESPACE, "{uri}");
    assert_eq!(path.strip_prefix(karmada_meta::renewal::PREFIX), Some(info.name.as_str()), "{uri}");
    assert!(info.subresource.is_empty() && long.uri().query().is_none(), "{uri}");
}

/// Bearer tokens, before anything of them has been proved: any text, and two values as header and claims.
pub fn token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = authn::look_at(&text);
    let Ok(Value::Array(parts)) = serde_json::from_slice(data) else { return };
    let encode = |part: &Value| {
        base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, part.to_string())
    };
    let token: Vec<String> = parts.iter().map(encode).collect();
    if let Some(issuer) = authn::look_at(&token.join(".")) {
        assert_eq!(parts[1]["iss"], issuer, "{text}");
        assert!(parts[0]["alg"].is_string() && parts.len() == 3, "{text}");
    }
}

/// Requests for certificates in DER, as their PEM.
pub fn certificate_request(data: &[u8]) {
    certificates::requested::check_request(data);
}

/// The kind of a definition with this schema and these columns, if the definition is valid.
fn thing(schema: &Value, columns: &[Value]) -> Option<Arc<Kind>> {
    let mut version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    if !columns.is_empty() {
        version["additionalPrinterColumns"] = json!(columns);
    }
    let mut definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version]}});
    let shape = BuiltIn::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let bytes = Bytes::from(definition.to_string());
    body::json(&bytes, &mut Findings::default()).ok()?;
    shape.decode(&mut definition, &mut Findings::default()).ok()?;
    shape.default(&mut definition);
    if !shape.validate_create(&definition).is_empty() {
        return None;
    }
    definition["status"] = json!({"acceptedNames": definition["spec"]["names"],
        "conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v1"]});
    crd::kinds_of(&definition).into_iter().next().map(Arc::new)
}

/// Definitions, and what is made of objects by them.
pub fn definition(data: &[u8]) {
    let mut source = Source::new(data);
    // What is valid is served, and does not depend on the order of things.
    let Some(kind) = thing(&source.schema(4), &[]) else { return };
    for _ in 0..3 {
        let mut object = source.object(4);
        object["apiVersion"] = json!("example.com/v1");
        object["kind"] = json!("Thing");
        object["metadata"] = json!({"name": "a"});
        if kind.shape.decode(&mut object, &mut Findings::default()).is_err() {
            continue;
        }
        let mut again = object.clone();
        let mut findings = Findings::default();
        kind.shape.decode(&mut again, &mut findings).expect("what was decoded can be decoded");
        assert_eq!((&again, findings.0.len()), (&object, 0), "pruning twice is pruning once");
        kind.shape.default(&mut object);
        let mut again = object.clone();
        kind.shape.default(&mut again);
        assert_eq!(again, object, "defaulting twice is defaulting once");
        let errors = kind.shape.validate_create(&object);
        if errors.is_empty() {
            assert!(kind.shape.validate_update(&object, &object, "").is_empty(), "what is valid stays valid");
        }
    }
}
