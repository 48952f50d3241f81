use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_OPERATIONS, PatchError, json_patch, merge_patch};

fn document() -> Value {
    json!({"data": {"k": "v", "a/b": 1}, "list": [1, 2, 3]})
}

#[test]
fn json_patches() {
    // (operations, result or nothing if the patch is rejected)
    let rows = [
        (json!([]), Some(document())),
        (
            json!([{"op": "add", "path": "/data/n", "value": 1}]),
            Some(json!({"data": {"k": "v", "a/b": 1, "n": 1}, "list": [1, 2, 3]})),
        ),
        (
            json!([{"op": "replace", "path": "/data/a~1b", "value": 2}]),
            Some(json!({"data": {"k": "v", "a/b": 2}, "list": [1, 2, 3]})),
        ),
        (json!([{"op": "remove", "path": "/data"}]), Some(json!({"list": [1, 2, 3]}))),
        (
            json!([{"op": "add", "path": "/list/-", "value": 4}]),
            Some(json!({"data": {"k": "v", "a/b": 1}, "list": [1, 2, 3, 4]})),
        ),
        (
            json!([{"op": "remove", "path": "/list/-1"}]),
            Some(json!({"data": {"k": "v", "a/b": 1}, "list": [1, 2]})),
        ),
        (json!([{"op": "replace", "path": "", "value": {}}]), Some(json!({}))),
        (
            json!([{"op": "add", "path": "data/x", "value": 1}]),
            Some(json!({"data": {"k": "v", "a/b": 1}, "list": [1, 2, 3], "x": 1})),
        ),
        (
            json!([{"op": "move", "from": "/data/k", "path": "/k"}, {"op": "copy", "from": "/k", "path": "/l"}]),
            Some(json!({"data": {"a/b": 1}, "list": [1, 2, 3], "k": "v", "l": "v"})),
        ),
        (
            json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "remove", "path": "/data"}]),
            Some(json!({"list": [1, 2, 3]})),
        ),
        (json!([{"op": "test", "path": "/data/none", "value": null}]), Some(document())),
        (json!([{"op": "test", "path": "/data/k", "value": "w"}]), None),
        (json!([{"op": "remove", "path": "/none"}]), None),
        (json!([{"op": "remove", "path": "/list/9"}]), None),
        (
            json!([{"op": "replace", "path": "/none", "value": 1}]),
            Some(json!({"data": {"k": "v", "a/b": 1}, "list": [1, 2, 3], "none": 1})),
        ),
        (json!([{"op": "replace", "path": "/none/deep", "value": 1}]), None),
        (json!([{"op": "replace", "path": "/list/9", "value": 1}]), None),
        (json!([{"op": "add", "path": "/none/deep", "value": 1}]), None),
        (json!([{"op": "frobnicate", "path": "/data"}]), None),
        (json!([{"op": "add", "path": "/data/k"}]), None),
        (json!([{"op": "remove", "path": "data"}]), None),
        (json!([3]), None),
    ];
    for (operations, wanted) in rows {
        match (json_patch(&document(), &operations), wanted) {
            (Ok(got), Some(wanted)) => assert_eq!(got, wanted, "{operations}"),
            (Err(PatchError::Rejected(_)), None) => {}
            (got, wanted) => panic!("{operations}: {got:?}, not {wanted:?}"),
        }
    }
}

#[test]
fn what_is_no_json_patch() {
    let error = json_patch(&document(), &json!({"op": "add"})).unwrap_err();
    assert_eq!(
        error,
        PatchError::BadRequest(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
                .to_owned()
        )
    );
    let long: Value = (0..=MAX_OPERATIONS).map(|_| json!({"op": "remove", "path": "/x"})).collect();
    assert_eq!(
        json_patch(&document(), &long).unwrap_err().to_string(),
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn merge_patches() {
    let rows = [
        (json!({}), document()),
        (
            json!({"data": {"k": null, "m": {"x": null, "y": 1}}}),
            json!({"data": {"a/b": 1, "m": {"y": 1}}, "list": [1, 2, 3]}),
        ),
        (json!({"list": [4]}), json!({"data": {"k": "v", "a/b": 1}, "list": [4]})),
        (json!({"data": null, "list": {"x": 1}}), json!({"list": {"x": 1}})),
    ];
    for (patch, wanted) in rows {
        assert_eq!(merge_patch(&document(), &patch), wanted, "{patch}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<i8>().prop_map(|i| json!(i)),
        "[a-c/~-]{0,4}".prop_map(|s| json!(s))
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("op|path|from|value|[a-c]", inner, 0..4).prop_map(|m| json!(m)),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_panics(document in any_json(), patch in any_json(), path in "[/~a-c0-2-]{0,8}", op in "add|remove|replace|move|copy|test") {
        let _ = merge_patch(&document, &patch);
        let _ = json_patch(&document, &patch);
        let _ = json_patch(&document, &json!([{"op": op, "path": path, "from": path, "value": patch}]));
    }

    #[test]
    fn a_merge_patch_holds_after_it(document in any_json(), patch in any_json()) {
        let once = merge_patch(&document, &patch);
        prop_assert_eq!(merge_patch(&once, &patch), once);
    }
}
