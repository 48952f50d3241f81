//! A custom resource with every kind of list and map, and values of it.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::schema::TypeRef;

/// The kind that [`object`] makes.
pub(crate) fn schema() -> TypeRef {
    TypeRef::from_structural(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "n": {"type": "integer"},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {
                    "name": {"type": "string"}, "v": {"type": "integer"}, "w": {"type": "integer"},
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "proto"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "proto": {"type": "string", "default": "TCP"}, "x": {"type": "string"}}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "atomic": {"type": "array", "items": {"type": "string"}},
            "amap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "gmap": {"type": "object", "additionalProperties": {"type": "string"}},
            "deep": {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "integer"}}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"p": {"type": "string"}}},
    }}))
}

/// An object of that kind with this spec.
pub(crate) fn widget(spec: impl Into<Value>) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec.into()})
}

fn distinct<K: Ord + Clone>(key: fn(&Value) -> K) -> impl Fn(Vec<Value>) -> Value {
    move |items| {
        let mut seen = std::collections::BTreeSet::new();
        Value::Array(items.into_iter().filter(|item| seen.insert(key(item))).collect())
    }
}

fn optional(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    Value::Object(fields.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?))).collect::<Map<_, _>>())
}

fn words(max: usize) -> impl Strategy<Value = Value> {
    vec("[a-d]".prop_map(Value::from), 0..max).prop_map(distinct(Value::to_string))
}

fn string_map() -> impl Strategy<Value = Value> {
    btree_map("[a-c]", "[xy]", 0..3).prop_map(|m| json!(m))
}

fn item() -> impl Strategy<Value = Value> {
    ("[a-d]", option::of(0..2), option::of(0..2), option::weighted(0.3, words(3))).prop_map(
        |(name, v, w, tags)| {
            optional(vec![
                ("name", Some(json!(name))),
                ("v", v.map(Value::from)),
                ("w", w.map(Value::from)),
                ("tags", tags),
            ])
        },
    )
}

fn port() -> impl Strategy<Value = Value> {
    (0..3, option::of(prop_oneof![Just("TCP"), Just("UDP")]), option::of("[xy]")).prop_map(
        |(port, proto, x)| {
            optional(vec![
                ("port", Some(json!(port))),
                ("proto", proto.map(Value::from)),
                ("x", x.map(Value::from)),
            ])
        },
    )
}

fn free() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![(0..2).prop_map(Value::from), words(2), Just(json!({}))];
    leaf.prop_recursive(2, 6, 3, |inner| btree_map("[a-c]", inner, 0..3).prop_map(|m| json!(m)))
        .prop_map(|v| if v.is_object() { v } else { json!({"a": v}) })
}

/// A spec that is often partly like another one.
pub(crate) fn spec() -> impl Strategy<Value = Value> {
    let often = |s: BoxedStrategy<Value>| option::weighted(0.4, s);
    (
        often((0..3).prop_map(Value::from).boxed()),
        often(vec(item(), 0..4).prop_map(distinct(|i| i["name"].to_string())).boxed()),
        often(
            vec(port(), 0..4)
                .prop_map(distinct(|i| {
                    (i["port"].to_string(), i["proto"].as_str().unwrap_or("TCP").to_owned())
                }))
                .boxed(),
        ),
        often(words(4).boxed()),
        often(words(3).boxed()),
        often(string_map().boxed()),
        often(string_map().boxed()),
        often((0..2).prop_map(|b| json!({"a": {"b": b}})).boxed()),
        often(free().boxed()),
    )
        .prop_map(|(n, items, ports, set, atomic, amap, gmap, deep, free)| {
            optional(vec![
                ("n", n),
                ("items", items),
                ("ports", ports),
                ("set", set),
                ("atomic", atomic),
                ("amap", amap),
                ("gmap", gmap),
                ("deep", deep),
                ("free", free),
            ])
        })
}

/// An object with such a spec.
pub(crate) fn object() -> impl Strategy<Value = Value> {
    spec().prop_map(widget)
}
