//! Every row of what an agent may write, and every kind.

use karmada_api::consts::{extension, finalizer, label};
use serde_json::json;

use super::*;

mod events;

const CLUSTER_KIND: &str = "cluster.karmada.io/Cluster";

fn write<'a>(kind: &'a str, act: Act, namespace: &'a str, old: Option<&'a Value>) -> Write<'a> {
    Write { cluster: "m1", act, kind, subresource: "", namespace, old, uid: None, has_template: false }
}

/// What becomes of a write: `yes`, `kept` (with a warning), or `no`.
fn outcome(kind: &str, act: Act, namespace: &str, old: Option<&Value>, new: &Value) -> &'static str {
    let mut object = new.clone();
    match judge(&write(kind, act, namespace, old), &mut object) {
        Err(errors) => {
            assert!(!errors.is_empty());
            "no"
        }
        Ok(warnings) if warnings.is_empty() => "yes",
        Ok(_) => "kept",
    }
}

/// A Cluster with a value at a pointer, registered or as the platform has made it.
fn cluster(id: &str, pointer: &str, value: Value) -> Value {
    let mut cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
    if !id.is_empty() {
        cluster["spec"]["id"] = id.into();
    }
    let (part, field) = pointer.split_once('.').expect("part.field");
    if !value.is_null() {
        cluster[part][field] = value;
    }
    cluster
}

#[test]
fn every_field_of_a_cluster_is_in_the_table() {
    let secret = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
    let foreign = json!({"namespace": "kube-system", "name": "m1"});
    // field, a value, another one; may it be set by create, on a Cluster that the platform has made, later when nothing
    // is there, later instead of the other?
    let rows = [
        ("metadata.labels", json!({"tier": "a"}), json!({"tier": "b"}), "yes", "no", "no", "no"),
        ("metadata.labels", json!({"cluster.karmada.io/x": "a"}), json!({}), "no", "no", "no", "no"),
        ("metadata.labels", json!({"topology.kubernetes.io/zone": "a"}), json!({}), "no", "no", "no", "no"),
        ("metadata.annotations", json!({"note": "a"}), json!({"note": "b"}), "yes", "no", "no", "no"),
        (
            "metadata.annotations",
            json!({extension::NODES: "a"}),
            json!({extension::NODES: "b"}),
            "yes",
            "yes",
            "yes",
            "yes",
        ),
        (
            "metadata.annotations",
            json!({extension::QUOTAS: "a"}),
            json!({extension::QUOTAS: "b"}),
            "yes",
            "yes",
            "yes",
            "yes",
        ),
        (
            "metadata.annotations",
            json!({extension::TUNNEL: "full"}),
            json!({extension::TUNNEL: "read-only"}),
            "yes",
            "yes",
            "yes",
            "yes",
        ),
        (
            "metadata.annotations",
            json!({extension::TUNNEL_WANTED: "full"}),
            json!({}),
            "no",
            "no",
            "no",
            "no",
        ),
        ("metadata.annotations", json!({extension::TUNNEL_CALL: "1"}), json!({}), "no", "no", "no", "no"),
        (
            "metadata.annotations",
            json!({}),
            json!({extension::SEARCH_COPIES: "true"}),
            "yes",
            "yes",
            "yes",
            "yes",
        ),
        ("metadata.annotations", json!({extension::SEARCHED: "[]"}), json!({}), "no", "no", "no", "no"),
        (
            "metadata.annotations",
            json!({extension::AGENT_UPGRADE: "{}"}),
            json!({extension::AGENT_UPGRADE: "{\"mode\":\"on\"}"}),
            "yes",
            "yes",
            "yes",
            "yes",
        ),
        ("metadata.annotations", json!({extension::AGENT_OFFER: "{}"}), json!({}), "no", "no", "no", "no"),
        (
            "metadata.annotations",
            json!({extension::LINK_WINDOWS: "02:00-04:00"}),
            json!({extension::LINK_WINDOWS: "00:00-24:00"}),
            "yes",
            "no",
            "no",
            "no",
        ),
        (
            "metadata.labels",
            json!({extension::LINK_WINDOWS: "02:00-04:00"}),
            json!({}),
            "no",
            "no",
            "no",
            "no",
        ),
        ("metadata.annotations", json!({extension::GRACE_PERIOD: "24h"}), json!({}), "no", "no", "no", "no"),
        ("metadata.annotations", json!({extension::LINK_HISTORY: "{}"}), json!({}), "no", "no", "no", "no"),
        ("metadata.finalizers", json!(["a/b"]), json!([]), "no", "no", "no", "no"),
        ("metadata.finalizers", json!([finalizer::CLUSTER]), json!([]), "yes", "no", "no", "no"),
        (
            "metadata.ownerReferences",
            json!([{"kind": "Cluster", "name": "m2"}]),
            json!([]),
            "no",
            "no",
            "no",
            "no",
        ),
        ("spec.apiEndpoint", json!("https://a"), json!("https://b"), "yes", "yes", "kept", "kept"),
        ("spec.insecureSkipTLSVerification", json!(true), json!(false), "yes", "yes", "kept", "kept"),
        ("spec.proxyURL", json!("http://a"), json!("http://b"), "yes", "yes", "kept", "kept"),
        ("spec.proxyHeader", json!({"a": "b"}), json!({"a": "c"}), "yes", "yes", "kept", "kept"),
        ("spec.secretRef", secret("m1"), json!(null), "yes", "yes", "kept", "kept"),
        ("spec.secretRef", secret("m2"), secret("m1"), "no", "no", "no", "no"),
        ("spec.secretRef", foreign, secret("m1"), "no", "no", "no", "no"),
        ("spec.impersonatorSecretRef", secret("m1-impersonator"), json!(null), "yes", "yes", "kept", "kept"),
        ("spec.impersonatorSecretRef", secret("m2-impersonator"), json!(null), "no", "no", "no", "no"),
        ("spec.provider", json!("a"), json!("b"), "yes", "yes", "kept", "kept"),
        ("spec.region", json!("a"), json!("b"), "yes", "yes", "kept", "kept"),
        ("spec.zone", json!("a"), json!("b"), "yes", "yes", "kept", "kept"),
        ("spec.zones", json!(["a"]), json!(["b"]), "yes", "yes", "kept", "kept"),
        ("spec.taints", json!([{"key": "a", "effect": "NoSchedule"}]), json!([]), "yes", "no", "no", "no"),
        ("spec.resourceModels", json!([{"grade": 0}]), json!([{"grade": 1}]), "yes", "no", "no", "no"),
        ("spec.syncMode", json!("Push"), json!("Pull"), "no", "no", "no", "no"),
        ("spec.somethingNew", json!("a"), json!("b"), "no", "no", "no", "no"),
    ];
    let tested: Vec<&str> = rows.iter().map(|row| row.0).collect();
    for (field, value, other, create, takeover, later, instead) in rows {
        let new = |id: &str| cluster(id, field, value.clone());
        let act =
            |act: Act, old: Option<Value>, new: Value| outcome(CLUSTER_KIND, act, "", old.as_ref(), &new);
        let bare = |id: &str| cluster(id, field, Value::Null);
        assert_eq!(act(Act::Create, None, new("u")), create, "{field} {value}: create");
        assert_eq!(act(Act::Update, Some(bare("")), new("u")), takeover, "{field} {value}: take over");
        assert_eq!(act(Act::Update, Some(bare("u")), new("u")), later, "{field} {value}: later");
        let from = cluster("u", field, other.clone());
        assert_eq!(act(Act::Update, Some(from), new("u")), instead, "{field} {value} instead of {other}");
        // Of a cluster in push mode an agent writes nothing.
        let own = if value == "Push" { "no" } else { "yes" };
        assert_eq!(act(Act::Update, Some(new("u")), new("u")), own, "{field} {value}: as it was");
        assert_eq!(act(Act::Delete, Some(new("u")), new("u")), own, "{field} {value}: leaving");
    }
    // What the platform has set is not overwritten by taking over either.
    let set = cluster("", "spec.region", json!("eu"));
    assert_eq!(
        outcome(CLUSTER_KIND, Act::Update, "", Some(&set), &cluster("u", "spec.region", json!("us"))),
        "kept"
    );
    for row in CLUSTER {
        let name = format!("{}.{}", row.part, row.field);
        assert!(name == "spec.id" || tested.contains(&&*name), "{name} has no row in this test");
    }
}

#[test]
fn where_a_member_is_dialled_is_said_once_and_whole() {
    // Where the platform has said the address, the agent does not say by which proxy, or that nobody checks who answers.
    let mut there = cluster("", "spec.apiEndpoint", json!("https://a"));
    for id in ["", "u"] {
        there["spec"]["id"] = id.into();
        for (field, value) in [
            ("proxyURL", json!("http://thief")),
            ("proxyHeader", json!({"a": "b"})),
            ("insecureSkipTLSVerification", json!(true)),
            ("apiEndpoint", json!("https://thief")),
        ] {
            let mut new = there.clone();
            new["spec"][field] = value;
            let mut object = new.clone();
            let warnings = judge(&write(CLUSTER_KIND, Act::Update, "", Some(&there)), &mut object).unwrap();
            assert!(!warnings.is_empty(), "{field}");
            assert_eq!(object["spec"].get(field), there["spec"].get(field), "{field}");
        }
    }
}

#[test]
fn whoever_has_an_agents_credential_sends_nobodys_requests_elsewhere() {
    // One that is reached by a tunnel, as it stands after its agent has registered.
    let there = cluster("u", "spec.region", json!("eu"));
    let mut new = there.clone();
    new["spec"]["apiEndpoint"] = "https://thief".into();
    new["spec"]["insecureSkipTLSVerification"] = true.into();
    new["spec"]["proxyURL"] = "http://thief:3128".into();
    let secret = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
    new["spec"]["secretRef"] = secret("m1");
    new["spec"]["impersonatorSecretRef"] = secret("m1-impersonator");
    let warnings = judge(&write(CLUSTER_KIND, Act::Update, "", Some(&there)), &mut new).unwrap();
    assert_eq!((new, warnings.len()), (there, 5), "{warnings:?}");
    // What a stock agent has named when it registered it may take away.
    let named = cluster("u", "spec.impersonatorSecretRef", secret("m1-impersonator"));
    let bare = cluster("u", "spec.region", Value::Null);
    assert_eq!(outcome(CLUSTER_KIND, Act::Update, "", Some(&named), &bare), "yes");
}

#[test]
fn a_cluster_that_the_hub_works_on_is_no_agents() {
    let mut there = cluster("u", "spec.apiEndpoint", json!("https://a"));
    there["spec"]["syncMode"] = "Push".into();
    let mut new = there.clone();
    new["spec"]["apiEndpoint"] = "https://thief".into();
    for (act, subresource) in [(Act::Update, ""), (Act::Update, "status"), (Act::Delete, "")] {
        let write = Write { subresource, ..write(CLUSTER_KIND, act, "", Some(&there)) };
        let errors = judge(&write, &mut new.clone()).unwrap_err();
        assert!(errors[0].detail.contains("the hub itself works on m1"), "{act:?} {subresource}: {errors:?}");
    }
}

#[test]
fn an_id_is_given_once() {
    let of = |id: &str| cluster(id, "spec.none", Value::Null);
    let update = |old: &str, new: &str| outcome(CLUSTER_KIND, Act::Update, "", Some(&of(old)), &of(new));
    assert_eq!(update("", "u"), "yes");
    assert_eq!(update("u", "u"), "yes");
    assert_eq!(update("u", "v"), "no");
    assert_eq!(update("u", ""), "no");
}

#[test]
fn whoever_registers_is_marked_and_nobody_else() {
    let registered = |old: Option<&Value>, id: &str| {
        let mut object = cluster(id, "spec.none", Value::Null);
        let act = if old.is_some() { Act::Update } else { Act::Create };
        judge(&write(CLUSTER_KIND, act, "", old), &mut object).expect("it may");
        let first = object.clone();
        judge(&write(CLUSTER_KIND, act, "", old), &mut object).expect("judged again");
        assert_eq!(object, first);
        has_registered(&object)
    };
    let of = |id: &str| cluster(id, "spec.none", Value::Null);
    assert!(registered(None, "u"));
    assert!(registered(Some(&of("")), "u"), "it has taken over what the platform had made");
    assert!(!registered(Some(&of("u")), "u"), "what the platform has made with its id is as it was");
    let mut reporting = of("u");
    assert!(!has_registered(&reporting));
    reporting["status"] = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
    assert!(!has_registered(&reporting), "that was the hub");
    reporting["status"]["kubernetesVersion"] = "v1.30.0".into();
    assert!(has_registered(&reporting));
    let mut forged = of("u");
    object::set_annotation(&mut forged, extension::REPORTED_BY, "m2");
    assert_eq!(outcome(CLUSTER_KIND, Act::Create, "", None, &forged), "no");
}

#[test]
fn what_is_kept_is_as_it_was_and_nobody_elses() {
    let mut old = cluster("u", "spec.region", json!("eu"));
    old["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
    let mut new = old.clone();
    new["spec"]["region"] = "us".into();
    new["spec"]["zones"] = json!(["a"]);
    new["metadata"]["managedFields"] = json!([{"manager": "karmada-agent"}]);
    let warnings = judge(&write(CLUSTER_KIND, Act::Update, "", Some(&old)), &mut new).expect("no refusal");
    assert_eq!(new, old);
    assert_eq!(warnings.len(), 2);
    assert!(
        warnings[0].contains("spec.region") && warnings[0].contains("kubectl edit cluster m1"),
        "{warnings:?}"
    );
}

#[test]
fn refusals_name_the_field_and_who_may() {
    let old = cluster("u", "spec.taints", Value::Null);
    let mut new = cluster("u", "spec.taints", json!([{"key": "a", "effect": "NoExecute"}]));
    new["metadata"]["labels"] = json!({"tier": "gold"});
    let errors = judge(&write(CLUSTER_KIND, Act::Update, "", Some(&old)), &mut new).expect_err("refused");
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2);
    assert!(
        texts[0].contains("metadata.labels[tier]") && texts[0].contains("kubectl label cluster m1"),
        "{texts:?}"
    );
    assert!(texts[1].contains("spec.taints") && texts[1].contains("karmada-hub taint m1"), "{texts:?}");
}

#[test]
fn the_hubs_conditions_stay() {
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status});
    let (stale, held) = (extension::STATUS_STALE, extension::EVICTIONS_HELD);
    let old = json!({"status": {"conditions": [condition("Ready", "True"), condition(stale, "True")], "remedyActions": ["x"]}});
    let mut new = json!({"status": {"kubernetesVersion": "v1", "conditions": [
        condition(stale, "False"), condition(held, "True"), condition("Ready", "False"), condition("Own", "True"),
    ]}});
    let mut asked = write(CLUSTER_KIND, Act::Update, "", Some(&old));
    asked.subresource = "status";
    assert_eq!(judge(&asked, &mut new), Ok(Vec::new()));
    let want = json!({"status": {"kubernetesVersion": "v1", "remedyActions": ["x"], "conditions": [
        condition(stale, "True"), condition("Ready", "False"), condition("Own", "True"),
    ]}});
    assert_eq!(new, want);
    // A report that leaves them out does not remove them, and one that changes nothing is no change.
    let mut new = json!({"status": {"conditions": [condition("Ready", "True")]}});
    assert_eq!(judge(&asked, &mut new), Ok(Vec::new()));
    assert_eq!(new, old);
}

#[test]
fn works_are_let_go_of_and_those_of_collected_slices_are_an_agents_own() {
    let kind = "work.karmada.io/Work";
    let of_hub = json!({
        "metadata": {"name": "w", "finalizers": [finalizer::EXECUTION], "labels": {label::RESOURCE_BINDING_ID: "b"}, "annotations": {"a": "1"}},
        "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap"}]}},
    });
    let collected = json!({
        "metadata": {"name": "w", "finalizers": [finalizer::ENDPOINT_SLICE], "labels": {label::ENDPOINT_SLICE_MANAGED_BY: "ServiceExport"}},
        "spec": {"suspendDispatching": true, "workload": {"manifests": [{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}]}},
    });
    let changed = |object: &Value, pointer: &str, value: Value| {
        let mut object = object.clone();
        *object.pointer_mut(pointer).expect("it is there") = value;
        object
    };
    let gone = |object: &Value| changed(object, "/metadata/finalizers", json!([]));
    let rows = [
        ("let go", Some(&of_hub), gone(&of_hub), "yes"),
        ("as it was", Some(&of_hub), of_hub.clone(), "yes"),
        (
            "a finalizer of another's",
            Some(&of_hub),
            changed(&of_hub, "/metadata/finalizers", json!(["a/b"])),
            "no",
        ),
        ("a label", Some(&of_hub), changed(&of_hub, "/metadata/labels", json!({})), "no"),
        ("an annotation", Some(&of_hub), changed(&of_hub, "/metadata/annotations/a", json!("2")), "no"),
        ("a manifest", Some(&of_hub), changed(&of_hub, "/spec/workload/manifests", json!([])), "no"),
        ("made its own", Some(&of_hub), collected.clone(), "no"),
        ("a new one like the hub's", None, of_hub.clone(), "no"),
        (
            "a new one of anything",
            None,
            changed(&collected, "/spec/workload/manifests/0/kind", json!("Secret")),
            "no",
        ),
        ("collected", None, collected.clone(), "yes"),
        (
            "collected again",
            Some(&collected),
            changed(&collected, "/spec/workload/manifests", json!([])),
            "yes",
        ),
        ("collected, then the hub's", Some(&collected), of_hub.clone(), "no"),
    ];
    for (what, old, new, want) in rows {
        let act = if old.is_some() { Act::Update } else { Act::Create };
        assert_eq!(outcome(kind, act, "karmada-es-m1", old, &new), want, "{what}");
    }
    assert_eq!(outcome(kind, Act::Delete, "karmada-es-m1", Some(&of_hub), &of_hub), "yes");
    assert_eq!(outcome(kind, Act::Create, "karmada-es-m2", None, &collected), "no");
}

/// The collector finds owners by their uids: under the name of its Cluster an agent could hold up anybody's deletion.
#[test]
fn an_owner_is_the_cluster_by_its_uid() {
    let lease = |uid: &str| {
        let owner = json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": "m1", "uid": uid}]);
        json!({"metadata": {"name": "m1", "ownerReferences": owner}})
    };
    let kind = "coordination.k8s.io/Lease";
    // the owner's uid, the Cluster's, as far as that is known; what was there before; whether it may be
    for (said, there, before, may) in [
        ("u", Some("u"), None, true),
        ("v", Some("u"), None, false),
        ("", Some(""), None, true),
        ("v", Some(""), None, false),
        ("v", Some("u"), Some("v"), true),
        ("v", None, None, true),
    ] {
        let old = before.map(lease);
        let act = if old.is_some() { Act::Update } else { Act::Create };
        let write = Write { uid: there, ..write(kind, act, "karmada-cluster", old.as_ref()) };
        assert_eq!(judge(&write, &mut lease(said)).is_ok(), may, "{said} {there:?} {before:?}");
    }
}

#[test]
fn leases_and_secrets_are_its_own_and_plain() {
    let owner = |name: &str| json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": name, "uid": "u"}]);
    let of = |name: &str, owners: Value| json!({"metadata": {"name": name, "ownerReferences": owners}});
    let typed = |type_: &str| json!({"metadata": {"name": "m1"}, "type": type_});
    let rows = [
        ("coordination.k8s.io/Lease", of("m1", owner("m1")), "yes"),
        ("coordination.k8s.io/Lease", of("m2", json!([])), "no"),
        ("coordination.k8s.io/Lease", of("m1", owner("m2")), "no"),
        (
            "coordination.k8s.io/Lease",
            of("m1", json!([{"apiVersion": "v1", "kind": "Namespace", "name": "m1"}])),
            "no",
        ),
        ("coordination.k8s.io/Lease", json!({"metadata": {"name": "m1", "finalizers": ["a/b"]}}), "no"),
        ("/Secret", of("m1", owner("m1")), "yes"),
        ("/Secret", of("m1-impersonator", json!([])), "yes"),
        ("/Secret", of("m2", json!([])), "no"),
        ("/Secret", typed("Opaque"), "yes"),
        ("/Secret", typed("kubernetes.io/service-account-token"), "no"),
        ("/Secret", typed("bootstrap.kubernetes.io/token"), "no"),
        ("/ConfigMap", of("m1", json!([])), "no"),
        ("apps/Deployment", of("m1", json!([])), "no"),
    ];
    for (kind, object, want) in rows {
        assert_eq!(outcome(kind, Act::Create, "karmada-cluster", None, &object), want, "{kind} {object}");
    }
}

#[test]
fn who_is_an_agent() {
    let rows: [(&str, &[&str], Option<&str>); 7] = [
        ("system:karmada:agent:m1", &["system:karmada:agents"], Some("m1")),
        ("system:karmada:agent:m1", &["other"], None),
        ("system:karmada:agent:", &["system:karmada:agents"], None),
        ("system:karmada:agent:m1", &["system:karmada:agents", "system:masters"], None),
        ("system:serviceaccount:karmada-system:karmada-agent-m1", &[], Some("m1")),
        ("system:serviceaccount:default:karmada-agent-m1", &[], None),
        ("system:serviceaccount:karmada-system:other", &[], None),
    ];
    for (name, groups, cluster) in rows {
        assert_eq!(cluster_of_user(name, groups), cluster, "{name} {groups:?}");
    }
}
