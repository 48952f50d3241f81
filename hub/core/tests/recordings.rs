//! What this crate decides, held against what a stock Karmada left behind (`shared/karmada/recordings`, beside the
//! repository). Without the recordings there is nothing to compare and the tests pass.

use std::{collections::BTreeMap, path::PathBuf};

use karmada_api::{
    cluster::Cluster,
    consts::{annotation, label},
    policy::{ClusterPropagationPolicy, OverridePolicy, PropagationPolicy},
    work::{ClusterResourceBinding, ResourceBinding, ResourceBindingStatus, Work},
};
use karmada_core::{
    admit::{self, Verb},
    aggregate,
    attach::{self, Attach, Need},
    fleet::Fleet,
    names, overrides,
    overrides::Applied,
    place::{self, Request},
    select::{self, Policy, Subject},
    work,
};
use karmada_meta::object;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The objects of a recording by the line that says how they were read; lists are taken apart.
fn recording(name: &str) -> Option<BTreeMap<String, Vec<Value>>> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/karmada/recordings").join(name);
    let text = std::fs::read_to_string(path).ok()?;
    let mut documents = BTreeMap::new();
    for document in text.split("\n---\n").skip(1) {
        let (title, body) = document.split_once('\n').expect("a title line");
        let value: Value = serde_saphyr::from_str(body).expect("a YAML document");
        let items = value["items"].as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        documents.insert(title.trim_start_matches("# ").to_owned(), items);
    }
    Some(documents)
}

fn typed<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("the recorded object fits its type")
}

/// The cluster that everything in the recordings fits on. On member1 a pod ran already, so member2 is the roomier and
/// stands first wherever room was looked at.
fn cluster(name: &str) -> Cluster {
    let resources = |kinds: &[&str]| {
        kinds.iter().map(|kind| json!({"name": kind.to_lowercase(), "kind": kind})).collect::<Vec<_>>()
    };
    typed(&json!({
        "metadata": {"name": name}, "spec": {"syncMode": "Pull"},
        "status": {"resourceSummary": {"allocatable": {"pods": "500"}, "allocated": {"pods": if name == "member1" { "1" } else { "0" }}},
            "apiEnablements": [
            {"groupVersion": "apps/v1", "resources": resources(&["Deployment"])},
            {"groupVersion": "v1", "resources": resources(&["Service", "ConfigMap", "Secret", "ServiceAccount"])},
            {"groupVersion": "rbac.authorization.k8s.io/v1", "resources": resources(&["ClusterRole"])},
        ]},
    }))
}

/// What of a Work we write: everything but what the API server adds and the agent reports.
fn written(work: &Value) -> Value {
    let mut work = work.clone();
    for field in ["creationTimestamp", "generation", "resourceVersion", "uid"] {
        object::remove_meta(&mut work, field);
    }
    work.as_object_mut().expect("an object").shift_remove("status");
    work
}

fn id(work: &Value) -> String {
    object::label(work, label::WORK_ID).expect("a recorded Work has its id").to_owned()
}

/// The template of a Work: the one whose uid its manifest names.
fn template<'a>(objects: impl IntoIterator<Item = &'a Value>, work: &Value) -> Option<&'a Value> {
    let manifest = &work["spec"]["workload"]["manifests"][0];
    let uid = object::annotation(manifest, annotation::TEMPLATE_UID)?;
    objects
        .into_iter()
        .find(|object| object::uid(object) == uid && object::kind(object) == object::kind(manifest))
}

#[test]
fn the_works_of_the_article_are_karmadas() {
    let Some(documents) = recording("nginx-override.yaml") else { return };
    let deployment = &documents["hub: get deploy nginx"][0];
    let binding: ResourceBinding = typed(&documents["hub: get rb nginx-deployment"][0]);
    let policies: Vec<OverridePolicy> = documents["hub: get op nginx-override"].iter().map(typed).collect();
    for name in ["member1", "member2"] {
        let recorded = &documents[&format!("hub: get work nginx-687f7fb96f -n karmada-es-{name}")][0];
        let mut manifest = deployment.clone();
        let applied = overrides::apply(&mut manifest, &cluster(name), &[], &policies).expect("it applies");
        let built = work::build(&(&binding).into(), manifest, &applied, name, None, || id(recorded));
        assert_eq!(built, written(recorded), "{name}");
        let again = work::build(
            &(&binding).into(),
            {
                let mut manifest = deployment.clone();
                overrides::apply(&mut manifest, &cluster(name), &[], &policies).expect("it applies");
                manifest
            },
            &applied,
            name,
            Some(recorded),
            || unreachable!("the Work has an id"),
        );
        assert_eq!(again, *recorded, "{name}: nothing to write");
        let mut admitted = built.clone();
        admit::admit("work.karmada.io/Work", Verb::Create, None, &mut admitted, &mut String::new, "")
            .expect("good");
        assert_eq!(admitted, built, "{name}: admission has nothing to add");
    }
}

#[test]
fn the_works_of_a_divided_shop_are_karmadas() {
    let Some(documents) = recording("divided-weights-with-dependencies.yaml") else { return };
    let deployment = &documents["hub: get -n shop deploy web"][0];
    let bindings = &documents["hub: get -n shop rb"];
    let recorded = [("member1", 1), ("member2", 2)].into_iter().flat_map(|(name, replicas)| {
        documents[&format!("hub: get -n {}{name} work", names::execution_namespace(""))]
            .iter()
            .map(move |work| (name, replicas, work))
    });
    let mut compared = 0;
    for (name, replicas, recorded) in recorded {
        if template([deployment], recorded).is_none() {
            continue;
        }
        let binding: ResourceBinding = typed(
            bindings.iter().find(|b| object::name(b) == "web-deployment").expect("the binding is recorded"),
        );
        let mut manifest = deployment.clone();
        manifest["spec"]["replicas"] = json!(replicas);
        let rules: Vec<Value> = object::annotation(recorded, annotation::APPLIED_OVERRIDES)
            .map(|text| serde_json::from_str(text).expect("the record is JSON"))
            .unwrap_or_default();
        let policies: Vec<OverridePolicy> = rules
            .iter()
            .map(|rule| {
                typed(&json!({
                    "metadata": {"name": rule["policyName"], "namespace": "shop"},
                    "spec": {"overrideRules": [{"overriders": rule["overriders"]}]},
                }))
            })
            .collect();
        let applied = overrides::apply(&mut manifest, &cluster(name), &[], &policies).expect("it applies");
        let built = work::build(&(&binding).into(), manifest, &applied, name, None, || id(recorded));
        assert_eq!(built, written(recorded), "{name}");
        compared += 1;
    }
    assert_eq!(compared, 2);
}

#[test]
fn namespaces_travel_as_karmadas() {
    let Some(documents) = recording("divided-weights-with-dependencies.yaml") else { return };
    let works = &documents["hub: get -n karmada-es-member1 work"];
    let recorded = works.iter().find(|work| object::name(work) == "shop-55c4c4674c").expect("it is recorded");
    // The Namespace as it stood on the hub, from what its Work says of it.
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "uid": object::owner_references(recorded)[0].uid,
                     "labels": {"kubernetes.io/metadata.name": "shop"}, "resourceVersion": "1"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    });
    let plain = Applied::default();
    assert_eq!(
        work::build_namespace(&namespace, &plain, "member1", None, || id(recorded)),
        written(recorded)
    );
}

#[test]
fn cluster_scoped_works_are_karmadas() {
    let Some(documents) = recording("cluster-scoped.yaml") else { return };
    let binding: ClusterResourceBinding = typed(&documents["hub: get crb"][0]);
    let role = documents["hub: get clusterrole edge-reader"][0].clone();
    let title = "hub: get -n karmada-es-member2 work -l clusterresourcebinding.karmada.io/permanent-id";
    let recorded = &documents[title][0];
    let built =
        work::build(&(&binding).into(), role.clone(), &Applied::default(), "member2", None, || id(recorded));
    assert_eq!(built, written(recorded));

    let policy: ClusterPropagationPolicy = typed(&documents["hub: get cpp edge-roles"][0]);
    let chosen = select::choose(&Subject::of(&role), None, [Policy::Cluster(&policy)]);
    assert_eq!(chosen.map(Policy::name), Some("edge-roles"));
    let mut unclaimed = role.clone();
    select::unclaim(&mut unclaimed);
    assert!(select::claim(&mut unclaimed, Policy::Cluster(&policy)));
    assert_eq!(unclaimed, role, "the claim is Karmada's");
    let clusters = Fleet::of([cluster("member1"), cluster("member2")]);
    let decision = place::schedule(&Request::new(&binding.spec, &clusters)).expect("it fits");
    assert_eq!(decision.clusters, binding.spec.clusters);
}

#[test]
fn placements_come_out_as_karmadas() {
    let clusters = Fleet::of([cluster("member1"), cluster("member2")]);
    for (file, title) in [
        ("nginx-override.yaml", "hub: get rb nginx-deployment"),
        ("divided-weights-with-dependencies.yaml", "hub: get -n shop rb"),
        ("suspended.yaml", "hub: get -n shop rb web-deployment"),
        ("policy-deleted.yaml", "hub: get -n shop rb"),
    ] {
        let Some(documents) = recording(file) else { return };
        for recorded in &documents[title] {
            let mut binding: ResourceBinding = typed(recorded);
            let Some(placement) = &binding.spec.placement else { continue };
            assert_eq!(
                object::annotation(recorded, annotation::APPLIED_PLACEMENT),
                Some(place::applied_placement(placement).as_str()),
                "{file} {}",
                object::name(recorded)
            );
            let want = std::mem::take(&mut binding.spec.clusters);
            match place::schedule(&Request::new(&binding.spec, &clusters)) {
                Ok(decision) => assert_eq!(decision.clusters, want, "{file} {}", object::name(recorded)),
                Err(error) => {
                    let condition =
                        place::condition(Err(&error), "2026-11-20T10:37:41Z".parse().expect("a time"));
                    assert_eq!(binding.status.expect("a status").conditions, [condition], "{file}");
                }
            }
        }
    }
    let Some(documents) = recording("no-cluster-fits.yaml") else { return };
    let binding: ResourceBinding = typed(&documents["hub: get -n shop rb lonely-configmap"][0]);
    let error =
        place::schedule(&Request::new(&binding.spec, &clusters)).expect_err("it names no cluster there is");
    let condition = place::condition(Err(&error), "2026-11-20T10:37:41Z".parse().expect("a time"));
    assert_eq!(binding.status.expect("a status").conditions, [condition]);
}

#[test]
fn statuses_are_gathered_as_karmadas() {
    let Some(article) = recording("nginx-override.yaml") else { return };
    let Some(conflict) = recording("conflict-abort.yaml") else { return };
    let works = |documents: &BTreeMap<String, Vec<Value>>| -> Vec<Work> {
        documents.iter().filter(|(title, _)| title.contains("get work")).map(|(_, w)| typed(&w[0])).collect()
    };
    let mut second = works(&article);
    second.remove(0);
    let mut aborted = works(&conflict);
    aborted.extend(second);
    for (documents, works) in [(&article, works(&article)), (&conflict, aborted)] {
        let recorded: ResourceBinding = typed(&documents["hub: get rb nginx-deployment"][0]);
        let want = recorded.status.expect("a status");
        let before = ResourceBindingStatus { aggregated_status: Vec::new(), ..want.clone() };
        let now = "2027-01-01T00:00:00Z".parse().expect("a time");
        assert_eq!(aggregate::status(&recorded.spec, &before, aggregate::reports(&works), now), want);
    }
}

#[test]
fn policies_are_admitted_as_karmadas() {
    let Some(documents) = recording("nginx-override.yaml") else { return };
    let Some(scoped) = recording("cluster-scoped.yaml") else { return };
    for (kind, recorded) in [
        ("policy.karmada.io/PropagationPolicy", &documents["hub: get pp nginx-propagation"][0]),
        ("policy.karmada.io/ClusterPropagationPolicy", &scoped["hub: get cpp edge-roles"][0]),
        ("policy.karmada.io/OverridePolicy", &documents["hub: get op nginx-override"][0]),
        ("cluster.karmada.io/Cluster", &documents["hub: get cluster member1"][0]),
    ] {
        // What the user sent stands in kubectl's annotation; an agent sends a Cluster without grades.
        let sent = object::annotation(recorded, annotation::LAST_APPLIED).map(serde_json::from_str);
        let mut object: Value = sent.map_or_else(
            || {
                let mut cluster = recorded.clone();
                cluster["spec"].as_object_mut().expect("a spec").shift_remove("resourceModels");
                cluster
            },
            |sent| sent.expect("JSON"),
        );
        let label =
            recorded["metadata"]["labels"].as_object().and_then(|labels| labels.values().next()).cloned();
        let mut new_id = || label.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        admit::admit(kind, Verb::Create, None, &mut object, &mut new_id, "2026-11-20T10:35:31Z")
            .expect("good");
        let mut want = recorded["spec"].clone();
        // Karmada's webhook writes out an empty struct.
        if want["overriders"] == json!({}) {
            want.as_object_mut().expect("a spec").shift_remove("overriders");
        }
        assert_eq!(object["spec"], want, "{kind}");
        assert_eq!(object["metadata"]["labels"], recorded["metadata"]["labels"], "{kind}");
        if !kind.ends_with("Cluster") {
            assert_eq!(object::finalizers(&object), object::finalizers(recorded), "{kind}");
        }
    }
}

#[test]
fn the_articles_policy_claims_its_deployment() {
    let Some(documents) = recording("nginx-override.yaml") else { return };
    let deployment = &documents["hub: get deploy nginx"][0];
    let policy: PropagationPolicy = typed(&documents["hub: get pp nginx-propagation"][0]);
    let chosen = select::choose(&Subject::of(deployment), None, [Policy::Namespaced(&policy)]);
    assert_eq!(chosen.map(Policy::name), Some("nginx-propagation"));
    let mut object = deployment.clone();
    assert!(!select::claim(&mut object, Policy::Namespaced(&policy)), "it carries the claim already");
    let binding = &documents["hub: get rb nginx-deployment"][0];
    assert_eq!(names::binding_name("Deployment", "nginx"), object::name(binding));
}

#[test]
fn the_bindings_of_dependencies_are_karmadas() {
    let Some(documents) = recording("divided-weights-with-dependencies.yaml") else { return };
    let bindings = &documents["hub: get -n shop rb"];
    let named = |name: &str| bindings.iter().find(|binding| object::name(binding) == name).expect("recorded");
    let workload = named("web-deployment");
    let spec: ResourceBinding = typed(workload);
    let need = Need::of(workload, &spec.spec);
    for (kind, name) in [("ConfigMap", "web-config"), ("Secret", "web-cred"), ("ServiceAccount", "web")] {
        let recorded = named(&names::binding_name(kind, name));
        let resource = &recorded["spec"]["resource"];
        let dependency = json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "namespace": "shop", "uid": resource["uid"],
                         "resourceVersion": resource["resourceVersion"]},
        });
        let Attach::Create(mut made) =
            attach::attach(None, &dependency, std::slice::from_ref(&need), |_| false)
        else {
            panic!("{name}: it has to be made");
        };
        let id = object::label(recorded, label::RESOURCE_BINDING_ID).expect("an id").to_owned();
        admit::admit(
            "work.karmada.io/ResourceBinding",
            Verb::Create,
            None,
            &mut made,
            &mut || id.clone(),
            "",
        )
        .expect("good");
        assert_eq!(made, written(recorded), "{name}");
        let again = attach::attach(Some(recorded), &dependency, std::slice::from_ref(&need), |_| false);
        assert_eq!(again, Attach::Nothing, "{name}: nothing to write");
    }
}
