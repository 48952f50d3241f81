use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Reconciler, compare, extract, field_set, merge_into, remove, validate};
use crate::fieldpath::Set;
use crate::schema::TypeRef;
use crate::schema::{Schema, TypeId};
use crate::testing::{object, schema, widget};

/// What a merge makes; it must say whether that is another value.
fn merge(schema: &Schema, id: TypeId, left: &Value, right: &Value) -> Result<Value, String> {
    let mut merged = left.clone();
    let changed = merge_into(schema, id, &mut merged, right)?;
    assert_eq!(changed, merged != *left, "{left} and {right}");
    Ok(merged)
}

fn lines(set: &Set) -> String {
    set.to_lines().trim_end().replace('\n', " ")
}

#[test]
fn what_is_valid() {
    let ty = schema();
    let valid = |spec| validate(&ty.schema, ty.id, &widget(spec));
    let rows = [
        (json!({"n": 1, "items": [{"name": "a"}], "free": {"x": [{"y": null}]}, "gmap": null}), ""),
        (json!({"n": "x"}), ".spec.n: expected numeric (int or float), got string"),
        (json!({"set": {}}), ".spec.set: expected list, got {}"),
        (json!({"gmap": [1]}), ".spec.gmap: expected map, got [1]"),
        (json!({"zip": 2}), ".spec.zip: field not declared in schema"),
        (
            json!({"items": [{"name": "a", "zip": 2}]}),
            ".spec.items[name=\"a\"].zip: field not declared in schema",
        ),
        (json!({"set": ["a", "b", "a"]}), ".spec.set: duplicate entries for key [=\"a\"]"),
        (
            json!({"ports": [{"port": 1}, {"port": 1, "proto": "TCP"}]}),
            ".spec.ports: duplicate entries for key [port=1,proto=\"TCP\"]",
        ),
        (
            json!({"items": [{"v": 1}]}),
            ".spec.items: element 0: associative list with keys has an element that omits key field \"name\" (and doesn't \
             have default value)",
        ),
        (
            json!({"items": [null]}),
            ".spec.items: element 0: associative list with keys may not have a null element",
        ),
        (
            json!({"set": [[]]}),
            ".spec.set: element 0: not supported: associative list with lists as elements",
        ),
        (
            json!({"atomic": ["x", 3, 4]}),
            "errors:\n  .spec.atomic[1]: expected string, got &value.valueUnstructured{Value:3}\n  \
             .spec.atomic[2]: expected string, got &value.valueUnstructured{Value:4}",
        ),
    ];
    for (spec, error) in rows {
        assert_eq!(valid(spec.clone()).err().unwrap_or_default(), error, "{spec}");
    }
}

#[test]
fn what_a_value_sets() {
    let ty = schema();
    let rows = [
        (json!({"n": 1, "deep": {"a": {"b": 2}}}), ".spec.n .spec.deep.a.b"),
        (json!({"gmap": {"x": "1"}, "amap": {"x": "1"}}), ".spec.amap .spec.gmap.x"),
        (json!({"gmap": {}, "amap": {}, "set": [], "atomic": []}), ".spec.amap .spec.atomic .spec.gmap"),
        (json!({"gmap": null, "n": null, "set": null}), ".spec.gmap .spec.n .spec.set"),
        (json!({"set": ["b", "a"]}), ".spec.set[=\"a\"] .spec.set[=\"b\"]"),
        (
            json!({"ports": [{"port": 1}]}),
            ".spec.ports[port=1,proto=\"TCP\"] .spec.ports[port=1,proto=\"TCP\"].port",
        ),
        (json!({"free": {"a": {"b": 1}, "l": [1]}}), ".spec.free.a .spec.free.l .spec.free.a.b"),
        (json!({"items": [{"name": "a", "v": 1}, {"name": "a"}]}), ".spec.items[name=\"a\"]"),
    ];
    for (spec, wanted) in rows {
        let value = json!({"spec": spec});
        assert_eq!(lines(&field_set(&ty.schema, ty.id, &value)), wanted, "{value}");
    }
}

#[test]
fn what_a_merge_makes() {
    let ty = schema();
    let item = |names: &str| -> Value { names.chars().map(|c| json!({"name": c.to_string()})).collect() };
    let rows = [
        (
            json!({"n": 1, "gmap": {"a": "1"}}),
            json!({"gmap": {"b": "2"}}),
            json!({"n": 1, "gmap": {"a": "1", "b": "2"}}),
        ),
        (json!({"amap": {"a": "1"}}), json!({"amap": {"b": "2"}}), json!({"amap": {"b": "2"}})),
        (json!({"atomic": ["a"]}), json!({"atomic": ["b"]}), json!({"atomic": ["b"]})),
        (json!({"set": ["a", "b"]}), json!({"set": ["c", "b"]}), json!({"set": ["a", "c", "b"]})),
        (json!({"n": 1}), json!({"n": null}), json!({"n": null})),
        (json!({"gmap": {"a": "1"}}), json!({"gmap": null}), json!({"gmap": {"a": "1"}})),
        (json!({"gmap": {"a": "1"}}), json!({"gmap": {}}), json!({"gmap": {"a": "1"}})),
        (
            json!({"free": {"a": [1], "b": {"c": 1}}}),
            json!({"free": {"a": {"x": 1}, "b": 2}}),
            json!({"free": {"a": {"x": 1}, "b": 2}}),
        ),
        (
            json!({"items": [{"name": "a", "v": 1}]}),
            json!({"items": [{"name": "a", "w": 2}]}),
            json!({"items": [{"name": "a", "v": 1, "w": 2}]}),
        ),
        (json!({"items": item("ab")}), json!({"items": item("ca")}), json!({"items": item("cab")})),
        (json!({"items": item("abc")}), json!({"items": item("cba")}), json!({"items": item("cba")})),
        (json!({"items": item("cab")}), json!({"items": item("bd")}), json!({"items": item("cabd")})),
        (json!({"items": item("xax")}), json!({"items": item("a")}), json!({"items": item("xax")})),
        (
            json!({"ports": [{"port": 1, "proto": "TCP"}]}),
            json!({"ports": [{"port": 1, "x": "q"}]}),
            json!({"ports": [{"port": 1, "proto": "TCP", "x": "q"}]}),
        ),
    ];
    for (left, right, wanted) in rows {
        let merged = merge(&ty.schema, ty.id, &widget(left.clone()), &widget(right.clone())).unwrap();
        assert_eq!(merged["spec"], wanted, "{left} and {right}");
    }
    let twice = merge(&ty.schema, ty.id, &widget(json!({})), &widget(json!({"items": [{"v": 1}]})));
    assert!(twice.is_ok(), "what is new is taken as it is");
}

#[test]
fn what_differs() {
    let ty = schema();
    // (left, right, added, modified, removed)
    let rows = [
        (json!({}), json!({"n": 1}), ".spec.n", "", ""),
        (json!({"n": 1}), json!({"n": 2}), "", ".spec.n", ""),
        (json!({"gmap": {"a": "1"}}), json!({}), "", "", ".spec.gmap .spec.gmap.a"),
        (json!({}), json!({"gmap": {}}), ".spec.gmap", "", ""),
        (json!({"gmap": {"a": "1"}}), json!({"gmap": {}}), "", "", ".spec.gmap.a"),
        (json!({"amap": {"a": "1"}}), json!({"amap": {"b": "1"}}), "", ".spec.amap", ""),
        (
            json!({"set": ["a", "b"]}),
            json!({"set": ["b", "c"]}),
            ".spec.set[=\"c\"]",
            "",
            ".spec.set[=\"a\"]",
        ),
        (json!({"set": ["a", "b"]}), json!({"set": ["b", "a"]}), "", "", ""),
        (json!({"set": ["a", "a"]}), json!({"set": ["a"]}), ".spec.set[=\"a\"]", "", ".spec.set[=\"a\"]"),
        (json!({"set": ["a"]}), json!({"set": ["a", "a"]}), ".spec.set[=\"a\"]", "", ".spec.set[=\"a\"]"),
        (json!({"free": {"a": 1}}), json!({"free": {"a": {"b": 1}}}), ".spec.free.a.b", ".spec.free.a", ""),
        (
            json!({"items": [{"name": "a", "v": 1}]}),
            json!({"items": [{"name": "a", "v": 2}, {"name": "b"}]}),
            ".spec.items[name=\"b\"] .spec.items[name=\"b\"].name",
            ".spec.items[name=\"a\"].v",
            "",
        ),
    ];
    for (left, right, added, modified, removed) in rows {
        let c = compare(&ty.schema, ty.id, &widget(left.clone()), &widget(right.clone())).unwrap();
        let got = (lines(&c.added), lines(&c.modified), lines(&c.removed));
        assert_eq!(got, (added.to_owned(), modified.to_owned(), removed.to_owned()), "{left} and {right}");
    }
}

#[test]
fn what_go_always_writes_is_no_change() {
    let ty = TypeRef::builtin("apps", "v1", "Deployment").unwrap();
    let empty = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let made = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"a": "b"}}, "status": {},
        "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c", "resources": {}}]}}}});
    let c = compare(&ty.schema, ty.id, &empty, &made).unwrap();
    assert_eq!(
        lines(&c.added.union(&c.modified)),
        ".metadata.labels .metadata.labels.a .spec.selector .spec.template.spec.containers[name=\"c\"] \
         .spec.template.spec.containers[name=\"c\"].name .spec.template.spec.containers[name=\"c\"].resources"
    );
    assert!(
        compare(&ty.schema, ty.id, &made, &empty)
            .unwrap()
            .removed
            .has(&crate::Path::of_fields(&["metadata", "labels"]).0)
    );
}

#[test]
fn taking_out() {
    let ty = schema();
    let value = widget(
        json!({"n": 1, "gmap": {"a": "1", "b": "2"}, "items": [{"name": "a", "v": 1, "w": 2}, {"name": "b"}],
        "set": ["a", "b"], "deep": {"a": {"b": 1}}}),
    );
    let set = Set::from_fields_v1(&json!({"f:spec": {"f:n": {}, "f:gmap": {"f:a": {}, "f:zz": {}}, "f:set": {"v:\"a\"": {}},
        "f:items": {"k:{\"name\":\"a\"}": {"f:v": {}}, "k:{\"name\":\"b\"}": {".": {}}}, "f:deep": {"f:a": {"f:b": {}}}}}))
    .unwrap();
    let mut left = value.clone();
    remove(&ty.schema, ty.id, &mut left, &set);
    assert_eq!(left["spec"], json!({"gmap": {"b": "2"}, "items": [{"name": "a", "w": 2}], "set": ["b"]}));
    let taken = extract(&ty.schema, ty.id, &value, &set);
    let wanted = json!({"spec": {"n": 1, "gmap": {"a": "1"}, "items": [{"v": 1}, {}], "set": ["a"], "deep": {"a": {"b": 1}}}});
    assert_eq!(taken, wanted);
}

#[test]
fn a_set_follows_its_schema() {
    let ty = schema();
    let live = widget(json!({"gmap": {"a": "1"}, "set": ["a"], "amap": {"a": "1"}, "atomic": ["x"]}));
    let rows = [
        (json!({"f:amap": {"f:a": {}}}), Some(json!({"f:amap": {}}))),
        (json!({"f:amap": {".": {}, "f:a": {}}}), Some(json!({"f:amap": {}}))),
        (json!({"f:atomic": {"v:\"x\"": {}}}), Some(json!({"f:atomic": {}}))),
        (json!({"f:set": {}}), Some(json!({"f:set": {".": {}, "v:\"a\"": {}}}))),
        (json!({"f:gmap": {}, "f:amap": {}, "f:n": {}, "f:gone": {"f:x": {}}}), None),
    ];
    for (fields, wanted) in rows {
        let set = Set::from_fields_v1(&json!({"f:spec": fields})).unwrap();
        let got = Reconciler::new(&ty.schema, ty.id, &live)
            .reconcile(&set, true)
            .map(|s| s.to_fields_v1()["f:spec"].clone());
        assert_eq!(got, wanted, "{fields}");
    }
    let whole = Set::from_fields_v1(&json!({"f:spec": {"f:set": {}}})).unwrap();
    assert_eq!(Reconciler::new(&ty.schema, ty.id, &live).reconcile(&whole, false), None);
}

proptest! {
    #[test]
    fn an_object_is_as_itself(a in object()) {
        let ty = schema();
        let (s, id) = (&ty.schema, ty.id);
        prop_assert_eq!(validate(s, id, &a), Ok(()));
        prop_assert_eq!(&compare(s, id, &a, &a).unwrap(), &super::Comparison::default());
        prop_assert_eq!(&merge(s, id, &a, &a).unwrap(), &a);
        prop_assert_eq!(&merge(s, id, &a, &widget(json!({}))).unwrap(), &a);
        prop_assert_eq!(&merge(s, id, &widget(json!({})), &a).unwrap(), &a);
    }

    #[test]
    fn a_merge_has_all_of_both_and_nothing_else(a in object(), b in object()) {
        let ty = schema();
        let (s, id) = (&ty.schema, ty.id);
        let merged = merge(s, id, &a, &b).unwrap();
        prop_assert_eq!(validate(s, id, &merged), Ok(()));
        let of_b = field_set(s, id, &b);
        // A merge again changes nothing, and on what b sets leaves it agrees with b.
        prop_assert_eq!(&merge(s, id, &merged, &b).unwrap(), &merged);
        let changed = compare(s, id, &b, &merged).unwrap();
        let leaves = of_b.leaves();
        let shells = leaves.intersection(&changed.added.union(&changed.modified)).union(&leaves.intersection(&changed.removed));
        // Only what was empty in b can have content now.
        shells.for_each(&mut |path| {
            let shell = extract(s, id, &b, &Set::from_paths([crate::Path(path.to_vec())]));
            assert!(shell.to_string().contains("{}") || shell.to_string().contains("[]"), "{shell}");
        });
    }

    #[test]
    fn the_comparison_accounts_for_every_leaf(a in object(), b in object()) {
        let ty = schema();
        let (s, id) = (&ty.schema, ty.id);
        let c = compare(s, id, &a, &b).unwrap();
        let back = compare(s, id, &b, &a).unwrap();
        prop_assert_eq!(&c.added, &back.removed);
        prop_assert_eq!(&c.modified, &back.modified);
        // What only b sets was added or stands in an empty place of a.
        let only_b = field_set(s, id, &b).difference(&field_set(s, id, &a)).leaves();
        let seen = c.added.union(&c.modified);
        only_b.for_each(&mut |path| {
            let shell = extract(s, id, &b, &Set::from_paths([crate::Path(path.to_vec())]));
            assert!(seen.has(path) || shell.to_string().contains("{}"), "{shell} in {c:?}");
        });
    }

    #[test]
    fn removing_what_a_value_sets_leaves_nothing(a in object()) {
        let ty = schema();
        let set = field_set(&ty.schema, ty.id, &a).with_named_fields(&ty.schema, Some(ty.id));
        let mut left = a;
        remove(&ty.schema, ty.id, &mut left, &set);
        let left = left.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        prop_assert!(left.iter().all(|k| k == "spec"), "{:?}", left);
    }

    #[test]
    fn what_is_extracted_says_what_the_whole_said(a in object()) {
        let ty = schema();
        let own = field_set(&ty.schema, ty.id, &a);
        let taken = extract(&ty.schema, ty.id, &a, &own);
        let lost = compare(&ty.schema, ty.id, &a, &taken).unwrap();
        prop_assert!(lost.added.is_empty() && lost.modified.is_empty());
        prop_assert_eq!(field_set(&ty.schema, ty.id, &taken), own);
    }
}
