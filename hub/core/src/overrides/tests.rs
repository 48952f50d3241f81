use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::affinity::tests::cluster;

fn member(name: &str) -> Cluster {
    cluster(name, json!({"site": name}), json!({"region": "eu"}), json!({}))
}

fn policy(name: &str, spec: Value) -> OverridePolicy {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})).unwrap()
}

fn cluster_policy(name: &str, spec: Value) -> ClusterOverridePolicy {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn web() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"replicas": 2, "template": {"spec": {
            "initContainers": [{"name": "init", "image": "registry.example.com/shop/init:v1"}],
            "containers": [
                {"name": "web", "image": "registry.example.com/shop/web:v1.2", "command": ["serve"], "args": ["--color=blue", "-v"]},
                {"name": "side", "image": "side"},
            ],
        }}},
    })
}

/// The manifest after one rule with these overriders.
fn after(overriders: Value) -> Result<Value, String> {
    let mut manifest = web();
    let policy = policy("p", json!({"overrideRules": [{"overriders": overriders}]}));
    apply(&mut manifest, &member("m"), &[], &[policy]).map_err(|e| e.to_string())?;
    Ok(manifest)
}

fn at(manifest: &Value, path: &str) -> Value {
    manifest.pointer(path).cloned().unwrap_or_default()
}

#[test]
fn each_overrider_changes_its_place() {
    let web = "/spec/template/spec/containers/0";
    let table = [
        (
            "plaintext",
            json!({"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 5}]}),
            "/spec/replicas".to_owned(),
            json!(5),
        ),
        (
            "image",
            json!({"imageOverrider": [{"component": "Registry", "operator": "replace", "value": "m.example.com"}]}),
            format!("{web}/image"),
            json!("m.example.com/shop/web:v1.2"),
        ),
        (
            "init image",
            json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "v2"}]}),
            "/spec/template/spec/initContainers/0/image".into(),
            json!("registry.example.com/shop/init:v2"),
        ),
        (
            "only the image meant",
            json!({"imageOverrider": [{"predicate": {"path": format!("{web}/image")}, "component": "Tag", "operator": "replace", "value": "v2"}]}),
            "/spec/template/spec/containers/1/image".into(),
            json!("side"),
        ),
        (
            "command add",
            json!({"commandOverrider": [{"containerName": "web", "operator": "add", "value": ["--edge"]}]}),
            format!("{web}/command"),
            json!(["serve", "--edge"]),
        ),
        (
            "command of another",
            json!({"commandOverrider": [{"containerName": "x", "operator": "add", "value": ["--edge"]}]}),
            format!("{web}/command"),
            json!(["serve"]),
        ),
        (
            "command made",
            json!({"commandOverrider": [{"containerName": "side", "operator": "add", "value": ["run"]}]}),
            "/spec/template/spec/containers/1/command".into(),
            json!(["run"]),
        ),
        (
            "args remove",
            json!({"argsOverrider": [{"containerName": "web", "operator": "remove", "value": ["-v", "-x"]}]}),
            format!("{web}/args"),
            json!(["--color=blue"]),
        ),
        (
            "label add",
            json!({"labelsOverrider": [{"operator": "add", "value": {"site": "edge"}}]}),
            "/metadata/labels".into(),
            json!({"app": "web", "site": "edge"}),
        ),
        (
            "label replace only what is there",
            json!({"labelsOverrider": [{"operator": "replace", "value": {"app": "w", "site": "edge"}}]}),
            "/metadata/labels".into(),
            json!({"app": "w"}),
        ),
        (
            "label remove",
            json!({"labelsOverrider": [{"operator": "remove", "value": {"app": ""}}]}),
            "/metadata/labels".into(),
            json!(null),
        ),
        (
            "annotation add",
            json!({"annotationsOverrider": [{"operator": "add", "value": {"a/b": "c"}}]}),
            "/metadata/annotations".into(),
            json!({"a/b": "c"}),
        ),
        (
            "annotation remove nothing",
            json!({"annotationsOverrider": [{"operator": "remove", "value": {"a/b": "c"}}]}),
            "/metadata/annotations".into(),
            json!(null),
        ),
        (
            "plaintext after images",
            json!({"plaintext": [{"path": format!("{web}/image"), "operator": "replace", "value": "last"}], "imageOverrider": [{"component": "Tag", "operator": "replace", "value": "v2"}]}),
            format!("{web}/image"),
            json!("last"),
        ),
    ];
    for (message, overriders, path, want) in table {
        let got = after(overriders).unwrap_or_else(|e| panic!("{message}: {e}"));
        assert_eq!(at(&got, &path), want, "{message}");
    }
}

#[test]
fn texts_inside_fields_are_changed() {
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"},
        "data": {"app.json": r#"{"region":"none","replicas":1}"#, "app.yaml": "region: none\n"},
    });
    let field = |overrider: Value| {
        let mut manifest = config.clone();
        let policy = policy("p", json!({"overrideRules": [{"overriders": {"fieldOverrider": [overrider]}}]}));
        apply(&mut manifest, &member("m"), &[], &[policy]).map(|_| manifest).map_err(|e| e.to_string())
    };
    let change = json!([{"subPath": "/region", "operator": "replace", "value": "edge-2"}]);
    let got = field(json!({"fieldPath": "/data/app.json", "json": change})).unwrap();
    assert_eq!(got["data"]["app.json"], r#"{"region":"edge-2","replicas":1}"#, "as recorded");
    let got = field(json!({"fieldPath": "/data/app.yaml", "yaml": change})).unwrap();
    assert_eq!(got["data"]["app.yaml"].as_str().map(str::trim_end), Some("region: edge-2"));
    assert_eq!(field(json!({"fieldPath": "/data/app.json"})), Ok(config.clone()), "nothing to do");
    for (overrider, why) in [
        (json!({"fieldPath": "/data/none", "json": change}), "\"/data/none\" does not exist"),
        (json!({"fieldPath": "/data", "json": change}), "does not hold a text"),
        (json!({"fieldPath": "/data/app.yaml", "json": change}), "not JSON"),
        (json!({"fieldPath": "/data/app.json", "json": change, "yaml": change}), "exclude each other"),
    ] {
        let error = field(overrider).unwrap_err();
        assert!(error.contains(why) && error.contains("fieldOverrider[0]"), "{error}");
    }
}

#[test]
fn what_cannot_be_applied_changes_nothing_and_says_where() {
    let good = json!({"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 5}]});
    let bad = json!({"plaintext": [
        {"path": "/spec/paused", "operator": "add", "value": true},
        {"path": "/spec/nope", "operator": "remove"},
    ]});
    let policy = policy("web", json!({"overrideRules": [{"overriders": good}, {"overriders": bad}]}));
    let mut manifest = web();
    let error = apply(&mut manifest, &member("m"), &[], &[policy]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "OverridePolicy(shop/web): spec.overrideRules[1].overriders.plaintext[1]: \
         cannot remove \"/spec/nope\": it does not exist"
    );
    assert_eq!(manifest, web(), "not even the first rule");
    for (overriders, why) in [
        (
            json!({"imageOverrider": [{"predicate": {"path": "/spec/x"}, "component": "Tag", "operator": "remove"}]}),
            "imageOverrider[0]: \"/spec/x\" does not exist",
        ),
        (
            json!({"imageOverrider": [{"component": "Repository", "operator": "remove"}]}),
            "not an image reference",
        ),
        (
            json!({"plaintext": [{"path": "/metadata/name", "operator": "replace", "value": "x"}]}),
            "metadata.name would become \"x\"",
        ),
        (
            json!({"plaintext": [{"path": "/apiVersion", "operator": "replace", "value": "example.com/v1"}]}),
            "apiVersion would become \"example.com/v1\"",
        ),
        (
            json!({"plaintext": [{"path": "", "operator": "replace", "value": 1}]}),
            "apiVersion would become \"\"",
        ),
        (
            json!({"plaintext": [{"path": "/kind", "operator": "replace", "value": "Pod"}]}),
            "kind would become \"Pod\"",
        ),
    ] {
        let error = after(overriders).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn rules_reach_the_clusters_they_mean() {
    let rule = |target: Value, value: i32| json!({"targetCluster": target, "overriders": {"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": value}]}});
    let table = [
        ("by name", rule(json!({"clusterNames": ["m"]}), 5), 5, 2),
        ("by label", rule(json!({"labelSelector": {"matchLabels": {"site": "n"}}}), 5), 2, 5),
        (
            "by field",
            rule(
                json!({"fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}}),
                5,
            ),
            5,
            5,
        ),
        ("excluded", rule(json!({"exclude": ["m"]}), 5), 2, 5),
        ("everywhere", rule(json!(null), 5), 5, 5),
    ];
    for (message, rule, on_m, on_n) in table {
        let policy = [policy("p", json!({"overrideRules": [rule]}))];
        for (name, want) in [("m", on_m), ("n", on_n)] {
            let mut manifest = web();
            let applied = apply(&mut manifest, &member(name), &[], &policy).unwrap();
            assert_eq!(manifest["spec"]["replicas"], want, "{message} on {name}");
            assert_eq!(applied.namespaced.len(), usize::from(want == 5), "{message} on {name}");
        }
    }
    let old = json!({"targetCluster": {"clusterNames": ["m"]}, "overriders": {"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 7}]}});
    let mut manifest = web();
    apply(&mut manifest, &member("m"), &[], &[policy("p", old)]).unwrap();
    assert_eq!(manifest["spec"]["replicas"], 7, "the old spelling");
}

#[test]
fn the_namespace_and_the_closest_have_the_last_word() {
    let say = |value: &str, selectors: Value| {
        json!({"resourceSelectors": selectors, "overrideRules": [
            {"overriders": {"labelsOverrider": [{"operator": "add", "value": {"last": value, value: "was here"}}]}}]})
    };
    let kind = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let name = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]);
    let other = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet"}]);
    let cluster_wide = [cluster_policy("a", say("cluster", name.clone()))];
    let namespaced = [
        policy("z", say("kind-z", kind.clone())),
        policy("a", say("name", name)),
        policy("b", say("kind-b", kind)),
        policy("c", say("other", other)),
    ];
    let mut manifest = web();
    let applied = apply(&mut manifest, &member("m"), &cluster_wide, &namespaced).unwrap();
    assert_eq!(at(&manifest, "/metadata/labels/last"), "name");
    assert_eq!(at(&manifest, "/metadata/labels/other"), json!(null));
    let names: Vec<_> = applied.namespaced.iter().map(|rule| rule.policy_name.as_str()).collect();
    assert_eq!(names, ["b", "z", "a"]);
    let keys: Vec<_> = applied.annotations().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [annotation::APPLIED_CLUSTER_OVERRIDES, annotation::APPLIED_OVERRIDES]);

    let mut role = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let everything = policy(
        "p",
        json!({"overrideRules": [{"overriders": {"labelsOverrider": [{"operator": "add", "value": {"a": "b"}}]}}]}),
    );
    assert_eq!(apply(&mut role, &member("m"), &[], &[everything]).unwrap(), Applied::default());
}

#[test]
fn the_record_is_karmadas() {
    let recorded = r#"[{"policyName":"web-overrides","overriders":{"imageOverrider":[{"component":"Registry","operator":"replace","value":"mirror.edge.example.com"},{"component":"Tag","operator":"replace","value":"v1.2-arm"}],"commandOverrider":[{"containerName":"web","operator":"add","value":["--profile=edge"]}],"argsOverrider":[{"containerName":"web","operator":"remove","value":["--color=blue"]},{"containerName":"web","operator":"add","value":["--color=red"]}],"labelsOverrider":[{"operator":"add","value":{"site":"edge-2"}}],"annotationsOverrider":[{"operator":"add","value":{"note":"overridden"}}]}}]"#;
    let rules: Value = serde_json::from_str(recorded).unwrap();
    let policy = policy("web-overrides", json!({"overrideRules": [{"overriders": rules[0]["overriders"]}]}));
    let mut manifest = web();
    let applied = apply(&mut manifest, &member("m"), &[], &[policy]).unwrap();
    assert_eq!(applied.annotations(), [(annotation::APPLIED_OVERRIDES, recorded.to_owned())]);
    let container = at(&manifest, "/spec/template/spec/containers/0");
    assert_eq!(container["image"], "mirror.edge.example.com/shop/web:v1.2-arm");
    assert_eq!(container["args"], json!(["-v", "--color=red"]));
}

fn overriders() -> impl Strategy<Value = Value> {
    prop_oneof![
        ("[a-z]{1,3}", "[a-z]{1,3}")
            .prop_map(|(k, v)| json!({"labelsOverrider": [{"operator": "replace", "value": {k: v}}]})),
        ("[a-z]{1,3}", "[a-z]{1,3}")
            .prop_map(|(k, v)| json!({"annotationsOverrider": [{"operator": "add", "value": {k: v}}]})),
        "[a-z]{1,3}".prop_map(
            |v| json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": v}]})
        ),
        (0i32..9).prop_map(
            |n| json!({"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": n}]})
        ),
        "[a-z]{1,3}".prop_map(
            |v| json!({"argsOverrider": [{"containerName": "web", "operator": "remove", "value": [v, "-v"]}]})
        ),
    ]
}

proptest! {
    #[test]
    fn setting_twice_is_setting_once(overriders in overriders()) {
        let policy = policy("p", json!({"overrideRules": [{"overriders": overriders}]}));
        let mut once = web();
        apply(&mut once, &member("m"), &[], std::slice::from_ref(&policy)).unwrap();
        let mut twice = once.clone();
        apply(&mut twice, &member("m"), &[], &[policy]).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn the_order_of_policies_is_irrelevant(rules in prop::collection::vec(overriders(), 1..5)) {
        let mut policies: Vec<_> = rules
            .iter()
            .enumerate()
            .map(|(i, rule)| policy(&format!("p{i}"), json!({"overrideRules": [{"overriders": rule}]})))
            .collect();
        let mut forwards = web();
        let a = apply(&mut forwards, &member("m"), &[], &policies).unwrap();
        policies.reverse();
        let mut backwards = web();
        let b = apply(&mut backwards, &member("m"), &[], &policies).unwrap();
        prop_assert_eq!((forwards, a), (backwards, b));
    }

    #[test]
    fn what_no_rule_means_stays(overriders in overriders()) {
        let policy = policy("p", json!({"overrideRules": [{"targetCluster": {"clusterNames": ["other"]}, "overriders": overriders}]}));
        let mut manifest = web();
        let applied = apply(&mut manifest, &member("m"), &[], &[policy]).unwrap();
        prop_assert_eq!((manifest, applied), (web(), Applied::default()));
    }
}
