//! Karmada's groups: all are there from the start, and Remedies do what they say.

use crate::common::{World, condition};
use karmada_client::Resource;
use karmada_meta::object;
use karmada_objects::kinds::{CLUSTERS, REMEDIES};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn all_of_karmadas_groups_are_served_from_the_start() {
    let world = World::start().await;
    let served = [
        ("apps.karmada.io", "v1alpha1", "workloadrebalancers"),
        ("autoscaling.karmada.io", "v1alpha1", "cronfederatedhpas federatedhpas"),
        ("cluster.karmada.io", "v1alpha1", "clusters"),
        (
            "config.karmada.io",
            "v1alpha1",
            "resourceinterpretercustomizations resourceinterpreterwebhookconfigurations",
        ),
        ("multicluster.x-k8s.io", "v1alpha1", "serviceexports serviceimports"),
        ("networking.karmada.io", "v1alpha1", "multiclusteringresses multiclusterservices"),
        (
            "policy.karmada.io",
            "v1alpha1",
            "clusteroverridepolicies clusterpropagationpolicies clustertaintpolicies federatedresourcequotas \
             overridepolicies propagationpolicies",
        ),
        ("remedy.karmada.io", "v1alpha1", "remedies"),
        ("search.karmada.io", "v1alpha1", "resourceregistries"),
        ("work.karmada.io", "v1alpha1", "works"),
        ("work.karmada.io", "v1alpha2", "clusterresourcebindings resourcebindings"),
    ];
    for (group, version, resources) in served {
        let list = world.rest.get(&format!("/apis/{group}/{version}")).await.expect("served");
        let names = list["resources"].as_array().into_iter().flatten().filter_map(|r| r["name"].as_str());
        let mut names: Vec<_> = names.filter(|name| !name.contains('/')).collect();
        names.sort_unstable();
        assert_eq!(names.join(" "), resources, "{group}");
    }
    // What nothing acts on yet is kept as it was written.
    let kept = [
        ("multicluster.x-k8s.io", "serviceexports", "ServiceExport", json!({})),
        (
            "autoscaling.karmada.io",
            "federatedhpas",
            "FederatedHPA",
            json!({"spec": {"minReplicas": 1, "maxReplicas": 3,
                            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                                         "target": {"type": "Utilization", "averageUtilization": 50}}}]}}),
        ),
        (
            "networking.karmada.io",
            "multiclusterservices",
            "MultiClusterService",
            json!({"spec": {"types": ["CrossCluster"], "ports": [{"port": 80}]}}),
        ),
    ];
    for (group, plural, kind, mut object) in kept {
        let resource = Resource::new(group, "v1alpha1", plural, kind, true);
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = kind.into();
        object["metadata"] = json!({"name": "web", "namespace": "default"});
        world.create(&resource, object.clone()).await;
        let live = world.get(&resource, "default", "web").await.expect("it is kept");
        assert_eq!(live.get("spec"), object.get("spec"), "{kind}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn remedies_are_taken_while_conditions_ask_for_them() {
    const RESOLVES: &str = "ServiceDomainNameResolutionReady";
    let world = World::start().await;
    world.join("m", json!({})).await;
    world.join("n", json!({})).await;
    // As an agent on each node says it, without a reason.
    let resolves = async |status: &str| {
        world
            .report(&CLUSTERS, "", "m", |cluster| {
                let list = cluster["status"]["conditions"].as_array_mut().expect("there are some");
                list.retain(|condition| condition["type"] != RESOLVES);
                list.push(json!({"type": RESOLVES, "status": status, "reason": "", "message": "",
                                 "lastTransitionTime": "2026-09-21T13:46:40Z"}));
            })
            .await;
    };
    let acts = async |name: &str, want: Value| {
        let is = |cluster: &Value| cluster["status"].get("remedyActions").unwrap_or(&Value::Null) == &want;
        world.becomes("the actions", &CLUSTERS, "", name, is).await
    };
    let remedy = |name: &str, spec: Value| json!({"apiVersion": "remedy.karmada.io/v1alpha1", "kind": "Remedy", "metadata": {"name": name}, "spec": spec});
    let lost = json!([{"clusterConditionMatch": {
        "conditionType": RESOLVES, "operator": "Equal", "conditionStatus": "False"}}]);
    let control = remedy(
        "control",
        json!({"clusterAffinity": {"clusterNames": ["m"]}, "decisionMatches": lost,
                                           "actions": ["TrafficControl"]}),
    );
    world.create(&REMEDIES, control).await;
    resolves("False").await;
    let cluster = acts("m", json!(["TrafficControl"])).await;
    assert_eq!(condition(&cluster, "Ready")["status"], "True", "the rest of its status stays");
    // Without matches at once, and everywhere; each action once, in order.
    world.create(&REMEDIES, remedy("all", json!({"actions": ["TrafficControl", "Alarm"]}))).await;
    acts("m", json!(["Alarm", "TrafficControl"])).await;
    acts("n", json!(["Alarm", "TrafficControl"])).await;
    world.delete(&REMEDIES, "", "all").await.expect("deleted");
    acts("n", Value::Null).await;
    acts("m", json!(["TrafficControl"])).await;
    resolves("True").await;
    acts("m", Value::Null).await;
    resolves("False").await;
    acts("m", json!(["TrafficControl"])).await;
    world.delete(&REMEDIES, "", "control").await.expect("deleted");
    acts("m", Value::Null).await;
    let bad = remedy(
        "bad",
        json!({"decisionMatches": [{"clusterConditionMatch": {
        "conditionType": RESOLVES, "operator": "Like", "conditionStatus": "False"}}]}),
    );
    let refused = world.rest.post(&REMEDIES.collection(None), &bad).await.expect_err("no such operator");
    assert!(
        refused.to_string().contains("spec.decisionMatches[0].clusterConditionMatch.operator"),
        "{refused}"
    );
    world.stop().await;
}

/// Nobody here acts on it, so nothing of the hub's is on it.
#[tokio::test(start_paused = true)]
async fn a_multi_cluster_ingress_is_kept_as_it_is() {
    let world = World::start().await;
    let ingresses = Resource::new(
        "networking.karmada.io",
        "v1alpha1",
        "multiclusteringresses",
        "MultiClusterIngress",
        true,
    );
    let path = |path_type: &str, service: &str| json!([{"path": "/", "pathType": path_type, "backend": {"service": {"name": service, "port": {"number": 80}}}}]);
    let ingress = |paths: Value| {
        json!({
            "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterIngress",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"rules": [{"host": "shop.example.com", "http": {"paths": paths}}]},
        })
    };
    let wanted = ingress(path("Prefix", "web"));
    let created = world.create(&ingresses, wanted.clone()).await;
    assert_eq!(created["spec"], wanted["spec"]);
    world.settle().await;
    let live = world.get(&ingresses, "default", "web").await.expect("it is there");
    assert_eq!(live, created, "nobody writes it");
    assert_eq!((object::finalizers(&live), live.get("status")), (vec![], None));
    // Whoever acts on it writes its status.
    let address = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    world.report(&ingresses, "default", "web", |live| live["status"] = address.clone()).await;
    let refused = [
        (path("prefix", "web"), "spec.rules[0].http.paths[0].pathType"),
        (path("Prefix", ""), "spec.rules[0].http.paths[0].backend"),
        (json!([]), "spec.rules[0].http.paths"),
    ];
    for (paths, field) in refused {
        let mut odd = world.get(&ingresses, "default", "web").await.expect("it is there");
        odd["spec"] = ingress(paths)["spec"].clone();
        let error = world.rest.put(&ingresses.object(Some("default"), "web"), &odd).await.expect_err(field);
        assert!(error.is_invalid() && error.to_string().contains(field), "{field}: {error}");
    }
    world.settle().await;
    let last = world.get(&ingresses, "default", "web").await.expect("it is there");
    assert_eq!((&last["spec"], &last["status"]), (&wanted["spec"], &address));
    world.delete(&ingresses, "default", "web").await.expect("deleted");
    world.gone(&ingresses, "default", "web").await;
    world.stop().await;
}
