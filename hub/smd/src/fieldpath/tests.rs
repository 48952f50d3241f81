use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Path, PathElement, Scalar, Set};

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[abc]".prop_map(|f| PathElement::field(&f)),
        (0..3i64)
            .prop_map(|p| PathElement::key([("port", Scalar::from(p * 40)), ("name", Scalar::from("x"))])),
        "[ab]".prop_map(|v| PathElement::Value(Scalar::from(v.as_str()))),
        (0..2i64).prop_map(PathElement::Index),
    ]
}

fn paths() -> impl Strategy<Value = BTreeSet<Path>> {
    vec(vec(element(), 1..4), 0..12).prop_map(|paths| paths.into_iter().map(Path).collect())
}

fn set(paths: &BTreeSet<Path>) -> Set {
    Set::from_paths(paths.iter().cloned())
}

fn model(set: &Set) -> BTreeSet<Path> {
    set.paths().into_iter().collect()
}

proptest! {
    #[test]
    fn a_set_is_its_paths(a in paths()) {
        let s = set(&a);
        prop_assert_eq!(s.len(), a.len());
        prop_assert!(a.iter().all(|p| s.has(&p.0)));
        prop_assert_eq!(model(&s), a);
    }

    #[test]
    fn the_algebra_is_that_of_sets(a in paths(), b in paths()) {
        let (x, y) = (set(&a), set(&b));
        prop_assert_eq!(model(&x.union(&y)), a.union(&b).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(model(&x.intersection(&y)), a.intersection(&b).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(model(&x.difference(&y)), a.difference(&b).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        let mut rest = x.clone();
        prop_assert_eq!(rest.subtract(&y), !a.is_disjoint(&b));
        prop_assert_eq!(rest, x.difference(&y));
        let below = |p: &Path| b.iter().any(|q| p.0.starts_with(&q.0));
        let rest: BTreeSet<Path> = a.iter().filter(|p| !below(p)).cloned().collect();
        prop_assert_eq!(model(&x.recursive_difference(&y)), rest);
    }

    #[test]
    fn laws_hold(a in paths(), b in paths()) {
        let (x, y) = (set(&a), set(&b));
        prop_assert_eq!(x.union(&y), y.union(&x));
        prop_assert_eq!(&x.union(&x), &x);
        prop_assert!(x.difference(&x).is_empty());
        prop_assert_eq!(x.difference(&y).union(&x.intersection(&y)), x);
    }

    #[test]
    fn leaves_are_what_nothing_else_begins_with(a in paths()) {
        let leaf = |p: &&Path| !a.iter().any(|q| q != *p && q.0.starts_with(&p.0));
        prop_assert_eq!(model(&set(&a).leaves()), a.iter().filter(leaf).cloned().collect::<BTreeSet<_>>());
    }

    #[test]
    fn fields_v1_is_read_as_it_was_written(a in paths()) {
        let json = set(&a).to_fields_v1();
        let text = json.to_string();
        let again = Set::from_fields_v1(&serde_json::from_str(&text).unwrap()).unwrap();
        prop_assert_eq!(&again, &set(&a));
        prop_assert_eq!(again.to_fields_v1().to_string(), text);
    }

    #[test]
    fn any_json_is_read_or_refused(text in "\\PC{0,40}", key in "[fkvi.x]:?\\PC{0,12}") {
        if let Ok(value) = serde_json::from_str(&text) {
            let _ = Set::from_fields_v1(&value);
        }
        let _ = Set::from_fields_v1(&json!({key: {}}));
    }
}

#[test]
fn canonical_order_is_dot_fields_keys_values_indexes_and_numbers_are_numbers() {
    let fields = json!({
        "i:1": {}, "v:\"b\"": {}, "v:10": {}, "v:9": {}, "v:true": {},
        "k:{\"port\":443}": {"f:port": {}}, "k:{\"port\":80}": {"f:port": {}, ".": {}}, "f:z": {}, "f:a": {"f:x": {}}
    });
    let set = Set::from_fields_v1(&fields).unwrap();
    assert_eq!(
        set.to_fields_v1().to_string(),
        concat!(
            r#"{"f:a":{"f:x":{}},"f:z":{},"k:{\"port\":80}":{".":{},"f:port":{}},"k:{\"port\":443}":{"f:port":{}},"#,
            r#""v:9":{},"v:10":{},"v:\"b\"":{},"v:true":{},"i:1":{}}"#
        )
    );
    assert_eq!(
        set.to_lines(),
        ".z\n[port=80]\n[=9]\n[=10]\n[=\"b\"]\n[=true]\n[1]\n.a.x\n[port=80].port\n[port=443].port\n"
    );
}

#[test]
fn what_is_read() {
    let read = |v: Value| Set::from_fields_v1(&v).map(|s| s.to_fields_v1());
    // Keys are sorted by name, an element of a later kind is skipped, a node that holds nothing else goes with it.
    assert_eq!(read(json!({"k:{\"b\":1,\"a\":2}": {}})), Ok(json!({"k:{\"a\":2,\"b\":1}": {}})));
    assert_eq!(read(json!({"x:new": {}, "f:a": {}})), Ok(json!({"f:a": {}})));
    assert_eq!(read(json!({"f:a": {"x:new": {}}})), Ok(json!({})));
    assert_eq!(read(json!({".": {}, "f:a:b": {}})), Ok(json!({"f:a:b": {}})));
    for bad in [
        json!("x"),
        json!(null),
        json!({"f:a": 1}),
        json!({"k:x": {}}),
        json!({"v:": {}}),
        json!({"i:x": {}}),
        json!({"fa": {}}),
    ] {
        assert!(read(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn the_empty_path_is_in_no_set() {
    let mut set = Set::new();
    set.insert(&[]);
    assert!(set.is_empty() && !set.has(&[]));
}
