use karmada_api::consts::{annotation, extension};
use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

/// Admits a new object, with ids `id-1`, `id-2` and so on.
fn create(kind: &str, mut obj: Value) -> Result<(Value, Vec<String>), Vec<String>> {
    let mut ids = 0;
    let mut new_id = || {
        ids += 1;
        format!("id-{ids}")
    };
    match admit(kind, Verb::Create, None, &mut obj, &mut new_id, NOW) {
        Ok(warnings) => Ok((obj, warnings)),
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
    }
}

const PP: &str = "policy.karmada.io/PropagationPolicy";
const CPP: &str = "policy.karmada.io/ClusterPropagationPolicy";
const OP: &str = "policy.karmada.io/OverridePolicy";
const WORK: &str = "work.karmada.io/Work";
const RB: &str = "work.karmada.io/ResourceBinding";
const CTP: &str = "policy.karmada.io/ClusterTaintPolicy";
const CLUSTER: &str = "cluster.karmada.io/Cluster";

fn policy(placement: Value) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "nginx", "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx"}],
            "placement": placement,
        },
    })
}

#[test]
fn policies_get_their_defaults() {
    let (got, warnings) = create(PP, policy(json!({"clusterAffinity": {"clusterNames": ["a"]}}))).unwrap();
    assert_eq!(
        got["spec"],
        json!({
            "resourceSelectors": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx", "namespace": "default"}],
            "placement": {"clusterAffinity": {"clusterNames": ["a"]}},
            "priority": 0, "preemption": "Never", "schedulerName": "default-scheduler", "conflictResolution": "Abort",
        })
    );
    assert_eq!(object::label(&got, label::PROPAGATION_POLICY_ID), Some("id-1"));
    assert_eq!(object::finalizers(&got), [finalizer::PROPAGATION_POLICY]);
    assert!(warnings.is_empty(), "{warnings:?}");

    let (got, _) = create(
        PP,
        policy(json!({
        "spreadConstraints": [{"maxGroups": 2}], "replicaScheduling": {"replicaSchedulingType": "Divided"}})),
    )
    .unwrap();
    assert_eq!(
        got["spec"]["placement"]["spreadConstraints"],
        json!([{"maxGroups": 2, "spreadByField": "cluster", "minGroups": 1}])
    );
    assert_eq!(got["spec"]["placement"]["replicaScheduling"]["replicaDivisionPreference"], "Weighted");

    let (got, _) = create(CPP, policy(json!({}))).unwrap();
    assert!(
        got["spec"]["resourceSelectors"][0].get("namespace").is_none(),
        "a cluster-wide one means all namespaces"
    );
    assert_eq!(object::label(&got, label::CLUSTER_PROPAGATION_POLICY_ID), Some("id-1"));

    let mut failover = policy(json!({}));
    failover["spec"]["propagateDeps"] = json!(true);
    failover["spec"]["failover"] = json!({"application": {"decisionConditions": {}}, "cluster": {}});
    failover["spec"]["newer"] = json!("kept");
    let (got, warnings) = create(PP, failover).unwrap();
    let application = json!({"decisionConditions": {"tolerationSeconds": 300}, "purgeMode": "Gracefully", "gracePeriodSeconds": 600});
    assert_eq!(
        got["spec"]["failover"],
        json!({"application": application, "cluster": {"purgeMode": "Gracefully"}})
    );
    assert_eq!(got["spec"]["newer"], "kept");
    assert!(!warnings.iter().any(|w| w.contains("failover")), "{warnings:?}");

    let mut old = got;
    old["spec"]["failover"] = json!({"application": {"decisionConditions": {}, "purgeMode": "Immediately"}});
    let (got, _) = create(PP, old).unwrap();
    let application = json!({"decisionConditions": {"tolerationSeconds": 300}, "purgeMode": "Directly"});
    assert_eq!(got["spec"]["failover"]["application"], application, "the words of earlier versions");
}

#[test]
fn parts_and_dependencies_of_bindings_are_checked() {
    const RB: &str = "work.karmada.io/ResourceBinding";
    let resource = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": "n"});
    let binding = |components: Value, dependencies: Option<&str>| {
        let mut binding = json!({"metadata": {"name": "b", "namespace": "n"},
                                 "spec": {"resource": resource, "components": components}});
        if let Some(text) = dependencies {
            binding["metadata"]["annotations"] = json!({"resourcebinding.karmada.io/dependencies": text});
        }
        binding
    };
    let part = |name: &str| json!({"name": name, "replicas": 1});
    let said = |new: Value| match create(RB, new) {
        Ok(_) => String::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    };
    let at = "metadata.annotations[resourcebinding.karmada.io/dependencies]: Invalid value: ";
    let good = r#"[{"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": "s"}]"#;
    for (components, dependencies, want) in [
        (json!([part("a"), part("b")]), Some(good), ""),
        (json!([]), Some("null"), ""),
        (
            json!([part("a"), part("a")]),
            None,
            "spec.components[1].name: Invalid value: \"a\": component names must be unique",
        ),
        (
            json!([part("")]),
            None,
            "spec.components[0].name: Invalid value: \"\": component names must be non-empty",
        ),
        (json!([]), Some("{}"), "must be a JSON list of references"),
        (json!([]), Some("[{"), at),
        (json!([]), Some(r#"[{"kind": "Secret", "name": "s"}]"#), "[0].apiVersion must be given"),
        (
            json!([]),
            Some(r#"[{"apiVersion": "v1", "kind": "Secret"}]"#),
            "[0] must have a name or a labelSelector",
        ),
    ] {
        let got = said(binding(components, dependencies));
        assert!(if want.is_empty() { got.is_empty() } else { got.contains(want) }, "{got}, not {want}");
    }
    let old = binding(json!([]), Some("[{"));
    let mut new = old.clone();
    let kept = admit(RB, Verb::Update, Some(&old), &mut new, &mut || "id".into(), "2026-01-01T00:00:00Z");
    assert!(kept.is_ok(), "what stands there already is no new mistake: {kept:?}");
}

#[test]
fn taint_policies_and_preserved_state_are_checked() {
    let ready = json!({"conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"]});
    let lost = json!({"key": "shop.io/lost", "effect": "NoExecute"});
    let taints = |spec: Value| create(CTP, json!({"metadata": {"name": "p"}, "spec": spec}));
    let (_, warnings) = taints(json!({"addOnConditions": [ready], "taints": [lost]})).unwrap();
    assert!(warnings[0].contains("moves everything away"), "{warnings:?}");
    let state = |rule: Value| {
        let mut policy = policy(json!({}));
        policy["spec"]["failover"] = json!({"cluster": {"statePreservation": {"rules": [rule]}}});
        create(PP, policy)
    };
    let good = json!({"aliasLabelName": "shop.io/job", "jsonPath": "{.jobStatus.jobId}"});
    assert!(state(good).is_ok());
    let table = [
        (taints(json!({"taints": []})), "spec.taints"),
        (taints(json!({"taints": [lost, lost]})), "spec.taints[0]"),
        (taints(json!({"taints": [{"key": "a b", "effect": "NoExecute"}]})), "spec.taints[0].key"),
        (taints(json!({"taints": [{"key": "a", "effect": "Never"}]})), "spec.taints[0].effect"),
        (
            taints(
                json!({"taints": [lost], "addOnConditions": [{"conditionType": "Ready", "operator": "Exists", "statusValues": ["True"]}]}),
            ),
            "spec.addOnConditions[0].operator",
        ),
        (
            taints(
                json!({"taints": [lost], "addOnConditions": [{"conditionType": "Ready", "operator": "In", "statusValues": ["Maybe"]}]}),
            ),
            "spec.addOnConditions[0].statusValues[0]",
        ),
        (
            taints(
                json!({"taints": [lost], "targetClusters": {"fieldSelector": {"matchExpressions": [{"key": "colour", "operator": "In", "values": ["x"]}]}}}),
            ),
            "spec.targetClusters.fieldSelector.matchExpressions[0].key",
        ),
        (
            state(json!({"aliasLabelName": "a b", "jsonPath": "{.a}"})),
            "spec.failover.cluster.statePreservation.rules[0].aliasLabelName",
        ),
        (
            state(json!({"aliasLabelName": "a", "jsonPath": "{.a[}"})),
            "spec.failover.cluster.statePreservation.rules[0].jsonPath",
        ),
    ];
    for (got, field) in table {
        let errors = got.unwrap_err();
        assert!(errors.iter().any(|error| error.contains(field)), "{field}: {errors:?}");
    }
}

#[test]
fn admitting_twice_changes_nothing() {
    let cluster = json!({"metadata": {"name": "m"}, "spec": {"syncMode": "Pull", "zone": "z"}});
    let work = json!({"metadata": {"name": "w", "namespace": "karmada-es-m"}, "spec": {"workload": {"manifests": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}}]}}});
    for (kind, obj) in [(PP, policy(json!({"spreadConstraints": [{}]}))), (WORK, work), (CLUSTER, cluster)] {
        let (once, _) = create(kind, obj).unwrap();
        let mut twice = once.clone();
        admit(kind, Verb::Update, Some(&once), &mut twice, &mut || "another".into(), NOW).unwrap();
        assert_eq!(once, twice, "{kind}");
    }
    let mut other = json!({"metadata": {"name": "x"}});
    assert_eq!(
        admit("apps/Deployment", Verb::Create, None, &mut other, &mut || "id".into(), NOW),
        Ok(vec![])
    );
    assert_eq!(other, json!({"metadata": {"name": "x"}}), "not ours to touch");
}

#[test]
fn permanent_ids_are_permanent() {
    let (old, _) = create(PP, policy(json!({}))).unwrap();
    let mut dropped = policy(json!({}));
    admit(PP, Verb::Update, Some(&old), &mut dropped, &mut || "another".into(), NOW).unwrap();
    assert_eq!(object::label(&dropped, label::PROPAGATION_POLICY_ID), Some("id-1"), "it comes back");
    assert!(object::finalizers(&dropped).is_empty(), "only a new one gets its finalizer");

    let mut changed = old.clone();
    object::set_label(&mut changed, label::PROPAGATION_POLICY_ID, "mine");
    changed["spec"]["schedulerName"] = json!("other");
    let errors =
        admit(PP, Verb::Update, Some(&old), &mut changed, &mut || "another".into(), NOW).unwrap_err();
    assert_eq!(errors[0].path.to_string(), "metadata.labels[propagationpolicy.karmada.io/permanent-id]");
    object::set_label(&mut changed, label::PROPAGATION_POLICY_ID, "id-1");
    let errors =
        admit(PP, Verb::Update, Some(&old), &mut changed, &mut || "another".into(), NOW).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        r#"spec.schedulerName: Invalid value: "other": the schedulerName should not be updated"#
    );
}

#[test]
fn what_goes_is_let_go() {
    let mut going = policy(json!({"spreadConstraints": [{"spreadByField": "region"}]}));
    going["metadata"]["deletionTimestamp"] = json!(NOW);
    let before = going.clone();
    assert_eq!(admit(PP, Verb::Update, Some(&before), &mut going, &mut || "id".into(), NOW), Ok(vec![]));
    assert_eq!(going, before);
}

#[test]
fn bad_policies_are_refused_with_the_field() {
    let expression = |operator: &str| json!([{"key": "region", "operator": operator, "values": ["a"]}]);
    let weights = |weight: i64| {
        json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "weightPreference": {"staticWeightList": [{"targetCluster": {}, "weight": weight}]}}})
    };
    let table = [
        (
            json!({"clusterAffinity": {"labelSelector": {"matchExpressions": expression("Like")}}}),
            r#"spec.placement.clusterAffinity.labelSelector.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator"#,
        ),
        (
            json!({"clusterAffinity": {"fieldSelector": {"matchExpressions": expression("Gt")}}}),
            r#"spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].operator: Invalid value: "Gt": unsupported operator "Gt", must be In or NotIn"#,
        ),
        (
            json!({"clusterAffinity": {"fieldSelector": {"matchExpressions": [{"key": "name", "operator": "In", "values": ["a"]}]}}}),
            r#"spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].key: Invalid value: "name": unsupported key "name", must be provider, region, or zone"#,
        ),
        (
            json!({"clusterAffinities": [{"affinityName": "a"}, {"affinityName": "a"}]}),
            r#"spec.placement.clusterAffinities[1].affinityName: Invalid value: "a": each affinity term in a policy must have a unique name"#,
        ),
        (
            json!({"clusterAffinities": [{}]}),
            "spec.placement.clusterAffinities[0].affinityName: Required value",
        ),
        (
            json!({"clusterTolerations": [{"key": "k", "operator": "Like"}]}),
            r#"spec.placement.clusterTolerations[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists""#,
        ),
        (
            weights(-1),
            "spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight: Invalid value: -1: should be greater than or equal to 1",
        ),
        (
            weights(0),
            "spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight: Invalid value: 0: should be greater than or equal to 1",
        ),
        (
            json!({"replicaScheduling": {"replicaSchedulingType": "Split"}}),
            r#"spec.placement.replicaScheduling.replicaSchedulingType: Unsupported value: "Split": supported values: "Duplicated", "Divided""#,
        ),
        (
            json!({"spreadConstraints": [{"spreadByField": "planet"}]}),
            r#"spec.placement.spreadConstraints[0].spreadByField: Unsupported value: "planet": supported values: "cluster", "region", "zone", "provider""#,
        ),
        (
            json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 3, "maxGroups": 2}]}),
            "maxGroups lower than minGroups is not allowed",
        ),
        (
            json!({"spreadConstraints": [{"spreadByField": "region", "minGroups": 1}]}),
            "the cluster spread constraint must be enabled",
        ),
    ];
    for (placement, want) in table {
        let errors = create(PP, policy(placement.clone())).expect_err(want);
        assert!(errors.iter().any(|e| e.contains(want)), "{placement}: {errors:#?}");
    }

    let overflow = |extra: Value, scheduling: Value| {
        let mut term = json!({"affinityName": "own", "clusterNames": ["a"], "overflowAffinities": [{"affinityName": "cloud", "clusterNames": ["b"]}]});
        for (key, value) in extra.as_object().unwrap() {
            term[key] = value.clone();
        }
        create(PP, policy(json!({"clusterAffinities": [term], "replicaScheduling": scheduling}))).map_err(
            |errors| {
                errors
                    .into_iter()
                    .map(|e| e.split(" value: ").last().unwrap_or_default().to_owned())
                    .collect::<Vec<_>>()
            },
        )
    };
    let aggregated = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let twice =
        json!([{"affinityName": "own", "clusterNames": ["b"]}, {"affinityName": "b"}, {"affinityName": "b"}]);
    for (extra, scheduling, wants) in [
        (json!({}), aggregated.clone(), vec![]),
        (
            json!({}),
            json!({"replicaSchedulingType": "Divided"}),
            vec!["together with dynamic weight or aggregated scheduling"],
        ),
        (json!({"clusterNames": []}), aggregated.clone(), vec!["together with the inline ClusterAffinity"]),
        (json!({"overflowAffinities": twice}), aggregated, vec!["must be unique", "must be unique"]),
    ] {
        let got = overflow(extra, scheduling).err().unwrap_or_default();
        assert_eq!(got.len(), wants.len(), "{got:?}");
        assert!(got.iter().zip(&wants).all(|(got, want)| got.contains(want)), "{got:?}");
    }
    let both = json!({"affinity": {"groupByLabelKey": "app"}, "antiAffinity": {"groupByLabelKey": "app"}});
    let errors = create(PP, policy(json!({"workloadAffinity": both}))).unwrap_err().join("; ");
    let at = "spec.placement.workloadAffinity.antiAffinity.groupByLabelKey: Invalid value: \"app\"";
    assert!(errors.starts_with(at), "{errors}");
    let bad = policy(json!({"workloadAffinity": {"affinity": {"groupByLabelKey": "a b"}}}));
    let errors = create(PP, bad).unwrap_err().join("; ");
    assert!(
        errors
            .starts_with("spec.placement.workloadAffinity.affinity.groupByLabelKey: Invalid value: \"a b\""),
        "{errors}"
    );

    let spec = |change: fn(&mut Value)| {
        let mut policy = policy(json!({}));
        change(&mut policy["spec"]);
        create(PP, policy).unwrap_err().join("; ")
    };
    assert_eq!(spec(|s| s["resourceSelectors"] = json!([])), "spec.resourceSelectors: Required value");
    assert_eq!(
        spec(|s| s["resourceSelectors"][0]["kind"] = json!(null)),
        "spec.resourceSelectors[0].kind: Required value"
    );
    assert!(
        spec(|s| s["resourceSelectors"][0]["labelSelector"] = json!({"matchLabels": {"a b": "c"}}))
            .starts_with("spec.resourceSelectors[0].labelSelector.matchLabels: Invalid value: \"a b\"")
    );
    assert!(
        spec(|s| s["suspension"] =
            json!({"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["a"]}}))
        .contains("suspension dispatching cannot co-exist")
    );
    assert!(spec(|s| {
        s["preemption"] = json!("Always");
        s["resourceSelectors"][0]["name"] = json!("");
    })
    .starts_with("spec.resourceSelectors[0].name: Invalid value: \"\": name cannot be empty if preemption is Always"));
    assert!(spec(|s| *s = json!("nonsense")).starts_with("spec: Invalid value"));
    assert!(spec(|s| s["priority"] = json!("high")).contains("invalid type"));
}

#[test]
fn what_has_no_effect_is_said() {
    let warned = |placement: Value, want: &str| {
        let (_, warnings) = create(PP, policy(placement)).unwrap();
        assert!(warnings.iter().any(|w| w.contains(want)), "{want}: {warnings:?}");
    };
    warned(
        json!({"spreadConstraints": [{"spreadByField": "cluster"}], "replicaScheduling": {"replicaSchedulingType": "Divided"}}),
        "no effect on a division by static weights",
    );
    let mut elsewhere = policy(json!({}));
    elsewhere["spec"]["resourceSelectors"][0]["namespace"] = json!("shop");
    elsewhere["spec"]["schedulerName"] = json!("mine");
    let mut same = elsewhere.clone();
    let update = admit(PP, Verb::Update, Some(&elsewhere), &mut same, &mut || "id".into(), NOW);
    assert_eq!(update.as_ref().map(Vec::len), Ok(2), "what stood there already may stay: {update:?}");
}

#[test]
fn policies_of_a_namespace_select_there_alone() {
    let text = "spec.resourceSelectors[0].namespace: Invalid value: \"shop\": must be the policy's own namespace \"default\"";
    let mut elsewhere = policy(json!({}));
    elsewhere["spec"]["resourceSelectors"][0]["namespace"] = json!("shop");
    assert_eq!(create(PP, elsewhere.clone()).unwrap_err(), [text]);
    elsewhere["metadata"].as_object_mut().unwrap().remove("namespace");
    assert!(create(CPP, elsewhere).is_ok(), "a cluster-wide one selects anywhere");
    let selectors = json!([{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop"}]);
    let rules = json!([{"overriders": {}}]);
    let elsewhere = override_policy(json!({"resourceSelectors": selectors, "overrideRules": rules}));
    assert_eq!(create(OP, elsewhere).unwrap_err(), [text]);
}

fn override_policy(spec: Value) -> Value {
    json!({"metadata": {"name": "o", "namespace": "default"}, "spec": spec})
}

#[test]
fn override_policies_are_checked() {
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let rule = |overriders: Value| {
        override_policy(
            json!({"resourceSelectors": selectors, "overrideRules": [{"overriders": overriders}]}),
        )
    };
    let (got, warnings) = create(
        OP,
        rule(json!({"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 2}]})),
    )
    .unwrap();
    assert_eq!(got["spec"]["resourceSelectors"][0]["namespace"], "default");
    assert!(warnings.is_empty());
    let old = json!({"targetCluster": {"clusterNames": ["m"]}, "overriders": {"plaintext": [{"path": "/a", "operator": "remove"}]}});
    let (_, warnings) = create(OP, override_policy(old)).unwrap();
    assert!(warnings[0].contains("deprecated"));

    let at = "spec.overrideRules[0].overriders";
    let table = [
        (
            json!({"plaintext": [{"path": "/a", "operator": "set"}]}),
            format!(
                r#"{at}.plaintext[0].operator: Unsupported value: "set": supported values: "add", "remove", "replace""#
            ),
        ),
        (
            json!({"plaintext": [{"path": "a", "operator": "add", "value": 1}]}),
            format!(
                r#"{at}.plaintext[0].path: Invalid value: "a": JSON pointer must be empty or start with a "/""#
            ),
        ),
        (
            json!({"imageOverrider": [{"component": "Digest", "operator": "add", "value": "x"}]}),
            format!(r#"{at}.imageOverrider[0].component: Unsupported value: "Digest""#),
        ),
        (
            json!({"imageOverrider": [{"component": "Tag", "operator": "replace"}]}),
            format!("{at}.imageOverrider[0].value: Required value"),
        ),
        (
            json!({"imageOverrider": [{"predicate": {"path": "x"}, "component": "Tag", "operator": "remove"}]}),
            format!("{at}.imageOverrider[0].predicate.path: Invalid value: \"x\""),
        ),
        (
            json!({"commandOverrider": [{"containerName": "c", "operator": "replace"}]}),
            format!(
                r#"{at}.commandOverrider[0].operator: Unsupported value: "replace": supported values: "add", "remove""#
            ),
        ),
        (
            json!({"labelsOverrider": [{"operator": "add", "value": {"a": "b c"}}]}),
            format!("{at}.labelsOverrider[0].value: Invalid value: \"b c\""),
        ),
        (
            json!({"fieldOverrider": [{"fieldPath": "/d", "json": [{"subPath": "/a", "operator": "add"}]}]}),
            format!(
                "{at}.fieldOverrider[0].json[0].value: Required value: value is required for add or replace operation"
            ),
        ),
        (
            json!({"fieldOverrider": [{"fieldPath": "/d"}]}),
            format!(
                "{at}.fieldOverrider[0]: Invalid value: {{\"fieldPath\":\"/d\"}}: FieldOverrider must have either JSON or YAML set"
            ),
        ),
        (
            json!({"fieldOverrider": [{"fieldPath": "/d", "yaml": [{"subPath": "/a", "operator": "remove", "value": 1}]}]}),
            format!(
                "{at}.fieldOverrider[0].yaml[0].value: Invalid value: 1: value is not allowed for remove operation"
            ),
        ),
    ];
    for (overriders, want) in table {
        let errors = create(OP, rule(overriders)).expect_err(&want);
        assert!(errors.iter().any(|e| e.starts_with(&want)), "{want}: {errors:#?}");
    }
    let both = json!({"targetCluster": {}, "overrideRules": [{"overriders": {}}]});
    assert!(
        create(OP, override_policy(both)).unwrap_err()[0]
            .contains("overrideRules and targetCluster can't co-exist")
    );
}

#[test]
fn works_are_stamped() {
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "c", "namespace": "n", "uid": "u", "labels": {"b": "1"}, "annotations": {"a": "2"}}, "status": {}});
    let work = |manifest: Value| {
        json!({"metadata": {"name": "w", "namespace": "karmada-es-m"},
        "spec": {"workload": {"manifests": [manifest]}}})
    };
    let (got, warnings) = create(WORK, work(manifest)).unwrap();
    assert!(warnings.is_empty());
    assert_eq!(object::label(&got, label::WORK_ID), Some("id-1"));
    assert_eq!(
        got["spec"]["workload"]["manifests"][0],
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "c", "namespace": "n",
            "labels": {"b": "1", label::WORK_ID: "id-1"},
            "annotations": {
                "a": "2",
                annotation::MANAGED_ANNOTATIONS: "a,resourcetemplate.karmada.io/managed-annotations,resourcetemplate.karmada.io/managed-labels",
                annotation::MANAGED_LABELS: "b,work.karmada.io/permanent-id",
            },
        }})
    );
    let errors = create(WORK, work(json!({"kind": "ConfigMap", "metadata": {}}))).unwrap_err();
    assert_eq!(
        errors,
        [
            "spec.workload.manifests[0].apiVersion: Required value",
            "spec.workload.manifests[0].metadata.name: Required value"
        ]
    );
    let mut astray = work(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}));
    astray["metadata"]["namespace"] = json!("default");
    assert_eq!(create(WORK, astray).unwrap().1.len(), 1);
}

#[test]
fn bindings_are_checked() {
    let binding = |clusters: Value| {
        json!({"metadata": {"name": "b", "namespace": "n"}, "spec": {
        "resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "c"}, "clusters": clusters}})
    };
    let (got, _) = create(RB, binding(json!([]))).unwrap();
    assert_eq!(object::label(&got, label::RESOURCE_BINDING_ID), Some("id-1"));
    assert_eq!(
        create(RB, binding(json!([{"name": "a"}, {"name": "a", "replicas": -1}]))).unwrap_err(),
        [
            r#"spec.clusters[1].name: Duplicate value: "a""#,
            "spec.clusters[1].replicas: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
    let errors = create(RB, json!({"metadata": {"name": "b"}, "spec": {}})).unwrap_err();
    assert_eq!(errors, ["spec.resource: Required value"]);

    let mut old = got.clone();
    old["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "a", "reason": "R", "producer": "P"}]);
    let mut left = got;
    admit(RB, Verb::Update, Some(&old), &mut left, &mut || "id".into(), NOW).unwrap();
    assert_eq!(
        object::annotation(&left, extension::EVICTED_FROM),
        Some("a"),
        "a user has ended its eviction"
    );
}

#[test]
fn a_binding_is_for_one_object_of_its_own_namespace() {
    const CRB: &str = "work.karmada.io/ClusterResourceBinding";
    let binding = |namespace: &str, api_version: &str, kind: &str, of: &str, name: &str| {
        json!({"metadata": {"name": "b", "namespace": namespace, "labels": {
            label::RESOURCE_BINDING_ID: "id", label::CLUSTER_RESOURCE_BINDING_ID: "id"}},
            "spec": {"resource": {"apiVersion": api_version, "kind": kind, "namespace": of, "name": name, "uid": "u"}}})
    };
    let new = |kind: &str, new: Value| create(kind, new).err().unwrap_or_default().join("; ");
    let elsewhere = r#"spec.resource.namespace: Invalid value: "": must be the binding's own namespace "n""#;
    assert_eq!(new(RB, binding("n", "v1", "ConfigMap", "", "c")), elsewhere);
    assert_eq!(
        new(RB, binding("n", "v1", "Secret", "kube-system", "c")),
        r#"spec.resource.namespace: Invalid value: "kube-system": must be the binding's own namespace "n""#
    );
    assert_eq!(
        new(CRB, binding("", "v1", "Secret", "n", "c")),
        r#"spec.resource.namespace: Invalid value: "n": must be the binding's own namespace """#
    );
    assert_eq!(new(CRB, binding("", "rbac.authorization.k8s.io/v1", "ClusterRole", "", "c")), "");

    let old = binding("n", "apps/v1", "Deployment", "n", "c");
    let update = |mut new: Value| {
        let mut new_id = || "id".to_owned();
        let errors =
            admit(RB, Verb::Update, Some(&old), &mut new, &mut new_id, NOW).err().unwrap_or_default();
        errors.iter().map(|error| error.path.to_string()).collect::<Vec<_>>()
    };
    for (new, want) in [
        (binding("n", "apps/v1", "Deployment", "n", "c"), vec![]),
        (binding("n", "apps/v1beta1", "Deployment", "n", "c"), vec![]),
        (binding("n", "v1", "Secret", "n", "c"), vec!["spec.resource.apiVersion", "spec.resource.kind"]),
        (binding("n", "apps/v1", "Deployment", "m", "c"), vec!["spec.resource.namespace"]),
        (binding("n", "apps/v1", "Deployment", "n", "d"), vec!["spec.resource.name"]),
        (binding("n", "a/b/c", "Deployment", "n", "c"), vec!["spec.resource.apiVersion"]),
    ] {
        assert_eq!(update(new.clone()), want, "{new}");
    }
    // Another incarnation of the object, as the detector says it.
    let mut reborn = old.clone();
    reborn["spec"]["resource"]["uid"] = json!("v");
    reborn["spec"]["resource"]["resourceVersion"] = json!("7");
    assert_eq!(update(reborn), Vec::<String>::new());
    // What is there from before stays writable.
    let astray = binding("n", "v1", "Secret", "kube-system", "c");
    let mut same = astray.clone();
    same["spec"]["replicas"] = json!(2);
    assert!(admit(RB, Verb::Update, Some(&astray), &mut same, &mut || "id".to_owned(), NOW).is_ok());
}

fn cluster(spec: Value) -> Value {
    json!({"metadata": {"name": "m"}, "spec": spec})
}

#[test]
fn clusters_get_grades_times_and_zones() {
    let (got, _) = create(
        CLUSTER,
        cluster(json!({"syncMode": "Pull", "zone": "z", "taints": [
        {"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]})),
    )
    .unwrap();
    let spec = &got["spec"];
    assert_eq!(object::finalizers(&got), [finalizer::CLUSTER], "no deletion comes before it");
    assert_eq!(spec["resourceModels"].as_array().map(Vec::len), Some(9));
    assert_eq!(
        spec["taints"],
        json!([{"key": "a", "effect": "NoExecute", "timeAdded": NOW}, {"key": "b", "effect": "NoSchedule"}])
    );
    assert_eq!((spec.get("zone"), &spec["zones"]), (None, &json!(["z"])));

    let range = |min: &str, max: &str| json!([{"name": "cpu", "min": min, "max": max}]);
    let (got, _) = create(
        CLUSTER,
        cluster(json!({"syncMode": "Push", "resourceModels": [
        {"grade": 1, "ranges": range("2", "4")}, {"grade": 0, "ranges": range("1", "2")}]})),
    )
    .unwrap();
    assert_eq!(
        got["spec"]["resourceModels"],
        json!([
        {"grade": 0, "ranges": range("0", "2")}, {"grade": 1, "ranges": range("2", "9223372036854775807")}])
    );
}

#[test]
fn bad_clusters_are_refused() {
    let range = |min: &str, max: &str| json!([{"name": "cpu", "min": min, "max": max}]);
    let models = |second: Value| json!({"syncMode": "Pull", "resourceModels": [{"grade": 0, "ranges": range("0", "2")}, second]});
    let table = [
        (json!({}), "spec.syncMode: Required value"),
        (
            json!({"syncMode": "Both"}),
            r#"spec.syncMode: Unsupported value: "Both": supported values: "Pull", "Push""#,
        ),
        (
            json!({"syncMode": "Pull", "apiEndpoint": "https://"}),
            "spec.apiEndpoint: Invalid value: \"https://\": host must be provided",
        ),
        (json!({"syncMode": "Pull", "apiEndpoint": "https://me@h"}), "user information is not permitted"),
        (
            json!({"syncMode": "Pull", "proxyURL": "ftp://h"}),
            r#"unsupported scheme "ftp", must be http, https, or socks5"#,
        ),
        (
            json!({"syncMode": "Pull", "secretRef": {"namespace": "n", "name": ""}}),
            "spec.secretRef.name: Required value",
        ),
        (
            json!({"syncMode": "Pull", "taints": [{"key": "k", "effect": "Never"}]}),
            "spec.taints[0].effect: Unsupported value",
        ),
        (
            json!({"syncMode": "Pull", "taints": [{"key": "a b", "effect": "NoSchedule"}]}),
            "spec.taints[0].key: Invalid value: \"a b\"",
        ),
        (
            json!({"syncMode": "Pull", "taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule"}]}),
            "spec.taints[1]: Duplicate value",
        ),
        (
            models(json!({"grade": 0, "ranges": range("2", "4")})),
            "spec.resourceModels[1].grade: Duplicate value: 0",
        ),
        (models(json!({"grade": 1, "ranges": range("3", "4")})), "contiguous and non-overlapping"),
        (
            models(json!({"grade": 1, "ranges": [{"name": "memory", "min": "1", "max": "2"}]})),
            "the same in all models",
        ),
    ];
    for (spec, want) in table {
        let errors = create(CLUSTER, cluster(spec)).expect_err(want);
        assert!(errors.iter().any(|e| e.contains(want)), "{want}: {errors:#?}");
    }
    let named =
        |name: &str| create(CLUSTER, json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull"}}));
    for name in ["", "Member", "a.b", &"a".repeat(49)] {
        assert!(named(name).unwrap_err()[0].starts_with("metadata.name: Invalid value"), "{name:?}");
    }
    assert!(named(&"a".repeat(48)).is_ok());
    let refused = named("m1-impersonator").expect_err("a Secret of m1 bears that name");
    assert!(refused[0].contains("belongs to the Cluster m1"), "{refused:?}");
    let there = json!({"metadata": {"name": "m1-impersonator"}, "spec": {"syncMode": "Pull"}});
    let kept = admit(CLUSTER, Verb::Update, Some(&there), &mut there.clone(), &mut String::new, NOW);
    assert!(kept.is_ok(), "who has joined goes on: {kept:?}");
}

#[test]
fn one_member_has_one_name() {
    let others = [("a", "id-a"), ("b", "")];
    assert!(
        duplicate_id("c", "id-a", others)
            .unwrap()
            .starts_with("the same cluster has been registered with name a")
    );
    assert_eq!(duplicate_id("a", "id-a", others), None, "itself");
    assert_eq!(duplicate_id("c", "", others), None, "no id is no identity");
    assert_eq!(duplicate_id("c", "id-c", others), None);
}

#[test]
fn protected_objects_stay() {
    let protected = json!({"metadata": {"labels": {label::DELETION_PROTECTED: "Always"}}});
    assert!(refuse_deletion(&protected).unwrap().ends_with(label::DELETION_PROTECTED));
    assert_eq!(refuse_deletion(&json!({"metadata": {"labels": {label::DELETION_PROTECTED: "Never"}}})), None);
}

#[test]
fn annotations_of_ours_are_read_when_they_are_written() {
    use karmada_api::consts::extension::{
        FAILBACK_AFTER, FENCE_AFTER, ROLLOUT, ROLLOUT_GATE, WINDOWS_CLUSTER, WINDOWS_POLICY, WINDOWS_WORK,
    };
    let annotated = |mut obj: Value, key: &str, value: &str| {
        object::set_annotation(&mut obj, key, value);
        obj
    };
    let template = || json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    let mut cluster_wide = policy(json!({}));
    cluster_wide["kind"] = json!("ClusterPropagationPolicy");
    cluster_wide["metadata"] = json!({"name": "nginx"});
    let table = [
        ("apps/Deployment", template(), FENCE_AFTER, "2m", None),
        ("apps/Deployment", template(), FENCE_AFTER, "soon", Some("\"soon\" is not a duration like 40s")),
        ("apps/Deployment", template(), FENCE_AFTER, "5s", Some("a duration of 30s or more, like 2m")),
        ("/ConfigMap", template(), FENCE_AFTER, "", Some("is not a duration")),
        ("apps/Deployment", template(), FAILBACK_AFTER, "soon", None),
        (PP, policy(json!({})), FENCE_AFTER, "1h", None),
        (PP, policy(json!({})), FENCE_AFTER, "1d", Some("a duration of 30s or more, like 2m")),
        (PP, policy(json!({})), FAILBACK_AFTER, "10m", None),
        (PP, policy(json!({})), ROLLOUT, "10%; 100%", None),
        (PP, policy(json!({})), ROLLOUT, "10%", Some("the last wave must be 100%; write waves like")),
        (
            PP,
            policy(json!({})),
            ROLLOUT_GATE,
            "maxFailures=some",
            Some("\"some\" is no maxFailures; write settings"),
        ),
        (PP, policy(json!({})), FAILBACK_AFTER, "ten minutes", Some("is not a duration like 40s")),
        (PP, policy(json!({})), WINDOWS_POLICY, "Mon-Fri 22:00-05:00 Europe/Berlin", None),
        (PP, policy(json!({})), WINDOWS_POLICY, "at night", Some("\"at\" is no day")),
        (CLUSTER, cluster(json!({"syncMode": "Pull"})), WINDOWS_CLUSTER, "22-05", Some("is no time of day")),
        // It is a Work's own that counts there; what a policy says has been taken, or is held against it.
        (CLUSTER, cluster(json!({"syncMode": "Pull"})), WINDOWS_WORK, "at night", None),
        (CPP, cluster_wide, FAILBACK_AFTER, "-1m", Some("is not a duration like 40s")),
    ];
    for (kind, obj, key, value, want) in table {
        let obj = annotated(obj, key, value);
        match (create(kind, obj.clone()), want) {
            (Ok(_), None) => {}
            (Err(errors), Some(part)) => {
                let field = format!("metadata.annotations[{key}]: Invalid value: {value:?}: ");
                assert!(errors.len() == 1 && errors[0].starts_with(&field), "{errors:?}");
                assert!(errors[0].contains(part), "{errors:?}");
                let mut later = obj.clone();
                object::set_label(&mut later, "a", "b");
                let updated = admit(kind, Verb::Update, Some(&obj), &mut later, &mut || "id".into(), NOW);
                assert!(updated.is_ok(), "what was there does not hold up other changes: {updated:?}");
                object::set_annotation(&mut later, key, format!("{value}!"));
                assert!(admit(kind, Verb::Update, Some(&obj), &mut later, &mut || "id".into(), NOW).is_err());
            }
            (got, want) => panic!("{kind} {key} {value}: {got:?}, not {want:?}"),
        }
    }
}
