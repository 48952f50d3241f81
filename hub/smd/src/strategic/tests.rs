use proptest::prelude::*;
use serde_json::{Value, json};

use super::strategic_merge;
use crate::patch::PatchError;
use crate::schema::TypeRef;
use crate::{decode_nulls, merge_patch};

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "finalizers": ["x/a", "x/b", "x/c"]},
    "spec": {"replicas": 0, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [
                {"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                 "ports": [{"name": "http", "containerPort": 80}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}],
                 "args": ["x", "y"]},
                {"name": "d", "image": "j:1"}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}],
            "tolerations": [{"key": "t"}], "nodeSelector": {"n": "1"}}}}})
}

fn schema() -> TypeRef {
    TypeRef::builtin("apps", "v1", "Deployment").unwrap()
}

fn patched(patch: &Value) -> Result<Value, PatchError> {
    strategic_merge(&deployment(), patch, &schema())
}

/// The part of the pod's spec that a patch of it makes.
fn pod(patch: &Value, pointer: &str) -> Value {
    let result = patched(&json!({"spec": {"template": {"spec": patch}}})).unwrap();
    result.pointer(&format!("/spec/template/spec{pointer}")).cloned().unwrap_or_default()
}

fn names(list: &Value) -> String {
    list.as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn lists_are_merged_by_key() {
    let containers = |patch: Value| pod(&json!({"containers": patch}), "/containers");
    let merged = containers(json!([{"name": "c", "image": "i:2"}]));
    assert_eq!(
        (names(&merged).as_str(), &merged[0]["image"], &merged[0]["args"]),
        ("c d", &json!("i:2"), &json!(["x", "y"]))
    );
    for (patch, wanted) in [
        (json!([{"name": "e", "image": "k"}]), "e c d"),
        (json!([{"name": "d", "$patch": "delete"}]), "c"),
        (json!([{"name": "e", "image": "k"}, {"$patch": "replace"}]), "e"),
        (json!([{"name": "d", "image": "k"}, {"name": "e"}]), "c d e"),
        (json!([]), "c d"),
    ] {
        assert_eq!(names(&containers(patch.clone())), wanted, "{patch}");
    }
    let ports = pod(
        &json!({"containers": [{"name": "c", "ports": [{"containerPort": 53, "$patch": "delete"}]}]}),
        "/containers/0/ports",
    );
    assert_eq!(names(&ports), "http");
}

#[test]
fn maps_and_lists_of_one_value() {
    assert_eq!(pod(&json!({"nodeSelector": {"m": "2"}}), "/nodeSelector"), json!({"n": "1", "m": "2"}));
    assert_eq!(
        pod(&json!({"nodeSelector": {"$patch": "replace", "m": "2"}}), "/nodeSelector"),
        json!({"m": "2"})
    );
    assert_eq!(pod(&json!({"nodeSelector": {"$patch": "delete"}}), "/nodeSelector"), json!({}));
    assert_eq!(pod(&json!({"nodeSelector": null}), "/nodeSelector"), json!(null));
    assert_eq!(pod(&json!({"tolerations": [{"key": "u"}]}), "/tolerations"), json!([{"key": "u"}]));
    assert_eq!(
        pod(&json!({"containers": [{"name": "c", "args": ["z"]}]}), "/containers/0/args"),
        json!(["z"])
    );
    assert_eq!(
        pod(&json!({"securityContext": {"runAsUser": null, "fsGroup": 1}}), "/securityContext"),
        json!({"fsGroup": 1})
    );
    let root = patched(&json!({"$patch": "replace", "metadata": {"name": "a"}})).unwrap();
    assert_eq!(root, json!({"metadata": {"name": "a"}}));
}

#[test]
fn order_is_followed() {
    let env = |patch: Value| names(&pod(&json!({"containers": [patch]}), "/containers/0/env"));
    let order = json!([{"name": "B"}, {"name": "A"}, {"name": "C"}]);
    assert_eq!(
        env(json!({"name": "c", "$setElementOrder/env": order, "env": [{"name": "C", "value": "4"}]})),
        "B A C"
    );
    let order = json!([{"name": "C"}, {"name": "B"}]);
    assert_eq!(
        env(json!({"name": "c", "$setElementOrder/env": order, "env": [{"name": "C", "value": "4"}]})),
        "C A B"
    );
    let containers =
        pod(&json!({"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}]}), "/containers");
    assert_eq!(names(&containers), "d c");
}

#[test]
fn retained_keys_replace_the_rest() {
    let volumes = pod(
        &json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "n"}}]}),
        "/volumes",
    );
    assert_eq!(volumes[0], json!({"name": "v", "configMap": {"name": "n"}}));
    let strategy =
        patched(&json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}})).unwrap();
    assert_eq!(strategy["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn lists_of_scalars() {
    let finalizers =
        |patch: Value| patched(&json!({"metadata": patch})).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(json!({"finalizers": ["x/d", "x/a"]})), json!(["x/d", "x/a", "x/b", "x/c"]));
    assert_eq!(finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["x/b"]})), json!(["x/a", "x/c"]));
    let both = json!({"$setElementOrder/finalizers": ["x/c", "x/a"], "$deleteFromPrimitiveList/finalizers": ["x/b"]});
    assert_eq!(finalizers(both), json!(["x/c", "x/a"]));
    assert_eq!(finalizers(json!({"finalizers": null})), json!(null));
}

#[test]
fn what_is_new_comes_without_directives() {
    let made = strategic_merge(
        &json!({}),
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "labels": {"a": null, "b": "c"}},
            "spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}, "template": {"spec": {
                "$setElementOrder/containers": [{"name": "c"}],
                "containers": [{"name": "c"}, {"name": "d", "$patch": "delete"}]}}}}),
        &schema(),
    );
    let wanted = json!({"metadata": {"labels": {"b": "c"}},
        "spec": {"strategy": {"type": "Recreate"}, "template": {"spec": {"containers": [{"name": "c"}]}}}});
    assert_eq!(made.unwrap(), wanted);
}

#[test]
fn what_cannot_be_followed() {
    let pod = |patch: &Value| patched(&json!({"spec": {"template": {"spec": patch}}})).unwrap_err();
    let internal = |text: &str| PatchError::Internal(text.to_owned());
    assert_eq!(
        pod(&json!({"containers": [{"image": "i:9"}]})),
        internal("map: map[image:i:9] does not contain declared merge key: name")
    );
    assert_eq!(
        pod(&json!({"containers": [{"name": "c", "$patch": "frobnicate"}]})),
        internal("unknown patch type: frobnicate in map: map[$patch:frobnicate name:c]")
    );
    assert_eq!(
        patched(&json!({"$patch": "frobnicate"})).unwrap_err(),
        internal("unknown patch type: frobnicate in map: map[$patch:frobnicate]")
    );
    assert_eq!(
        pod(
            &json!({"$setElementOrder/containers": [{"name": "d"}], "containers": [{"name": "c", "image": "i:3"}]})
        ),
        internal(
            "The order in patch list:\n[map[image:i:3 name:c]]\n doesn't match $setElementOrder list:\n[map[name:d]]\n"
        )
    );
    assert_eq!(
        pod(&json!({"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]})),
        internal("invalid patch format of retainKeys")
    );
    assert_eq!(
        pod(&json!({"$setElementOrder": []})),
        internal("invalid patch format of setElementOrder list")
    );
    assert_eq!(pod(&json!({"containers": [1]})), internal("list element types are not identical"));
}

#[test]
fn what_is_not_of_the_type() {
    for (patch, value, detail) in [
        (
            json!({"spec": {"template": {"spec": {"containers": {"name": "c"}}}}}),
            "map[spec:map[template:map[spec:map[containers:map[name:c]]]]]",
            "cannot restore slice from map",
        ),
        (json!({"spec": "x"}), "map[spec:x]", "cannot restore struct from: string"),
        (
            json!({"metadata": {"labels": [true]}}),
            "map[metadata:map[labels:[true]]]",
            "cannot restore map from slice",
        ),
        (json!({"spec": {"replicas": "2"}}), "map[spec:map[replicas:2]]", "cannot convert string to int64"),
    ] {
        let wanted = PatchError::Invalid { value: value.to_owned(), detail: detail.to_owned() };
        assert_eq!(patched(&patch).unwrap_err(), wanted);
    }
    assert_eq!(
        patched(&json!({"spec": "x"})).unwrap_err().to_string(),
        " \"\" is invalid: patch: Invalid value: \"map[spec:x]\": cannot restore struct from: string"
    );
    assert!(matches!(patched(&json!([])), Err(PatchError::BadRequest(_))));
}

#[test]
fn nulls_are_decoded() {
    let mut object = json!({"data": {"k": null, "l": "v"}, "immutable": null, "metadata": {"finalizers": [null], "labels": null}});
    decode_nulls(&mut object, &TypeRef::builtin("", "v1", "ConfigMap").unwrap());
    assert_eq!(object, json!({"data": {"k": "", "l": "v"}, "metadata": {"finalizers": [""]}}));
}

proptest! {
    /// Where there are no directives and no merged lists, it is a merge patch.
    #[test]
    fn maps_alone_are_merged_as_by_a_merge_patch(
        old in proptest::collection::btree_map("[a-d]", "[xy]", 0..4),
        new in proptest::collection::btree_map("[a-d]", proptest::option::of("[xy]"), 0..4),
        args in proptest::collection::vec("[xy]", 0..3),
    ) {
        let schema = TypeRef::builtin("", "v1", "ConfigMap").unwrap();
        let (original, patch) = (json!({"data": old}), json!({"data": new, "metadata": {"labels": new, "x": args}}));
        prop_assert_eq!(strategic_merge(&original, &patch, &schema).unwrap(), merge_patch(&original, &patch));
    }

    #[test]
    fn no_patch_panics(
        key in "\\$patch|\\$retainKeys|\\$setElementOrder/containers|\\$setElementOrder|\\$deleteFromPrimitiveList/x|containers|nodeSelector",
        value in prop_oneof![Just(json!("replace")), Just(json!([{}])), Just(json!([1, "x"])), Just(json!({"$patch": 1})), Just(json!([{"name": null}]))],
        list in prop_oneof![Just(json!([{"name": "c", "$patch": "delete"}])), Just(json!([[]])), Just(json!(null)), Just(json!([null]))],
    ) {
        let _ = patched(&json!({"spec": {"template": {"spec": {"containers": list, key.clone(): value}}}}));
        let _ = patched(&json!({"spec": {"template": {"spec": {"containers": [{"name": "c", key: value}]}}}}));
    }
}
