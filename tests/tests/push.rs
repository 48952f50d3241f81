//! Members in push mode: joined by one command, worked on by the hub, and let go of.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::{path::Path, process::Command, time::Duration};

use karmada_client::Rest;
use karmada_core::services::slices;
use karmada_env::Env;
use karmada_tests::{
    fleet::{self, Binaries, Fleet, Options, cluster_path, condition, file, server_of, start_stock},
    kubesim::metrics,
    link::{Link, Mode},
    samples,
    wait::{PATIENCE, eventually, gone, until},
};
use serde_json::{Value, json};

/// Runs a command of the hub's program.
fn hub(fleet: &Fleet, args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fleet"))
        .arg("karmada-hub")
        .args(args)
        .arg(format!("--kubeconfig={}", fleet.kubeconfig.display()))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

async fn ready(fleet: &Fleet, name: &str, wanted: &str) {
    eventually(&format!("{name} to be Ready {wanted}"), PATIENCE, || async {
        let cluster = fleet.api.get(&cluster_path(name)).await.map_err(|error| error.to_string())?;
        match condition(&cluster, "Ready") {
            Some(is) if is == wanted => Ok(()),
            _ => Err(format!("{:#}\n{}", cluster["status"]["conditions"], fleet.logs())),
        }
    })
    .await;
}

/// The hub does what an agent would: it tells of slices that are used elsewhere, and of what Pods use.
async fn tells_of_services_and_use(fleet: &Fleet, member: &Rest) {
    let namespace = &fleet.namespace;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]},
    });
    let multi = json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService", "metadata": {"name": "web"},
        "spec": {"types": ["CrossCluster"], "providerClusters": [{"name": "m"}]},
    });
    fleet.create([service, multi]).await;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-abcde", "labels": {(slices::SERVICE_NAME): "web"}},
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    member.post(&path, &slice).await.unwrap();
    let told = format!("{}/{}", samples::works_path("m"), slices::work_name(namespace, "web-abcde"));
    let has = |work: &Value| {
        work["spec"]["workload"]["manifests"][0]["endpoints"][0]["addresses"] == json!(["10.0.0.1"])
    };
    until(&fleet.api, &told, "told", PATIENCE, has).await;

    metrics::install(member).await.unwrap();
    let hpa = json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "AverageValue", "averageValue": "100m"}}}],
        },
    });
    fleet.create([hpa]).await;
    let env = Env::system();
    eventually("three replicas", 2 * PATIENCE, || async {
        let measured = metrics::measure(member, &env, (namespace, "web"), |_| 150).await;
        measured.map_err(|error| error.to_string())?;
        let web = fleet.api.get(&samples::deployment_path(namespace, "web")).await;
        match web.map_err(|error| error.to_string())?["spec"]["replicas"].as_i64() {
            Some(3) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_works_on_a_member_that_joins_by_push() {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let mut options = Options::impatient();
    let soon = ["status-update-frequency", "failure-threshold", "success-threshold"];
    options.hub.extend(soon.map(|what| format!("--cluster-{what}=1s")));
    let Some(fleet) = Fleet::start("push", 0, &binaries, options).await else { return };
    let dir: &Path = fleet.dir.path();
    let (_process, config) = start_stock(dir, "m", &binaries, true);
    file(&config).await;
    let member = fleet::rest(&config);
    eventually("the member", PATIENCE, || async {
        member.get("/version").await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    // The hub reaches it by a link that can be cut.
    let direct = server_of(&config);
    let link = Link::open(direct).await.unwrap();
    let text = std::fs::read_to_string(&config).unwrap();
    let via = dir.join("via.kubeconfig");
    std::fs::write(&via, text.replace(&direct.to_string(), &link.address().to_string())).unwrap();
    let via = via.display().to_string();
    let join = ["join", "m", "--cluster-kubeconfig", &via, "--cluster-region=eu"];
    let (done, said) = hub(&fleet, &join);
    assert!(done && said.contains("cluster(m) is joined successfully"), "{said}");
    let (done, said) = hub(&fleet, &join);
    assert!(!done && said.contains("or the cluster name m has been registered"), "{said}");
    ready(&fleet, "m", "True").await;
    let cluster = fleet.api.get(&cluster_path("m")).await.unwrap();
    assert_eq!((&cluster["spec"]["syncMode"], &cluster["spec"]["region"]), (&json!("Push"), &json!("eu")));
    for secret in ["m", "m-impersonator"] {
        let path = format!("/api/v1/namespaces/karmada-cluster/secrets/{secret}");
        let secret = fleet.api.get(&path).await.unwrap();
        assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], cluster["metadata"]["uid"]);
    }
    // It watches nothing on the hub beside what that watches in any case, and renews no Lease.
    let page = fleet.api.get_text("/metrics").await.unwrap();
    for resource in ["works", "clusters"] {
        let label = format!("resource=\"{resource}\"");
        let open = page
            .lines()
            .find(|row| row.starts_with("apiserver_longrunning_requests{") && row.contains(&label))
            .unwrap_or_default();
        assert!(open.ends_with(" 1"), "{open}");
    }
    let lease = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/m";
    assert!(fleet.api.get(lease).await.is_err_and(|error| error.is_not_found()));
    // A Deployment arrives, and what becomes of it comes back.
    fleet.create_namespace().await;
    fleet.create([samples::deployment_policy("web", &["m"]), samples::deployment("web", 2)]).await;
    let path = samples::deployment_path(&fleet.namespace, "web");
    until(&member, &path, "there", PATIENCE, |_| true).await;
    let all_ready = |web: &Value| web["status"]["readyReplicas"] == 2;
    until(&fleet.api, &path, "ready in the template", PATIENCE, all_ready).await;
    // Events are told under the name of Karmada's controller for members of either mode.
    let events = format!("/api/v1/namespaces/{}/events", fleet.namespace);
    let is_told = |event: &Value| {
        event["reason"] == "SyncSucceed"
            && event["source"]["component"] == "execution-controller"
            && event["involvedObject"]["name"] == "web"
    };
    until(&fleet.api, &events, "an event of the template", PATIENCE, |list| {
        list["items"].as_array().is_some_and(|all| all.iter().any(is_told))
    })
    .await;
    // Whom the hub lets through it may speak for on the member, by the roles that it has made there.
    let inside = format!("{}/proxy/api/v1/namespaces/kube-system", cluster_path("m"));
    until(&fleet.api, &inside, "reached through the hub", PATIENCE, |namespace| {
        namespace["kind"] == "Namespace"
    })
    .await;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/karmada-impersonator";
    let role = member.get(role).await.unwrap();
    assert_eq!(role["rules"][0]["resourceNames"], json!(["system:admin"]), "{role:#}");
    let copies = ["get", "deploy", "--members", "-n", &fleet.namespace];
    let (done, said) = hub(&fleet, &copies);
    assert!(done && said.contains("live") && said.contains("2/2"), "{said}");
    let (_, said) = hub(&fleet, &[&copies[..], &["--cached"]].concat());
    assert!(!said.contains("live") && said.contains("2/2"), "{said}");
    // What is changed by hand is put right.
    let scaled = json!({"spec": {"replicas": 5}});
    member.patch(&path, karmada_client::Patch::Merge, &scaled).await.unwrap();
    until(&member, &path, "scaled back", PATIENCE, |web| web["spec"]["replicas"] == 2).await;
    tells_of_services_and_use(&fleet, &member).await;
    // A member that cannot be reached is said to be so, and worked on again when it can.
    link.set(Mode::Refuse);
    ready(&fleet, "m", "False").await;
    let (_, said) = hub(&fleet, &copies);
    assert!(!said.contains("live") && said.contains("web"), "as last known: {said}");
    link.set(Mode::Pass);
    ready(&fleet, "m", "True").await;
    // A token that counts no more is replaced by one that does, in the Secret alone.
    let secret = "/api/v1/namespaces/karmada-cluster/secrets/m";
    let token = fleet.api.get(secret).await.unwrap()["data"]["token"].clone();
    let data = |token: &Value| json!({"data": {"token": token}});
    let wrong = json!("d3Jvbmc=");
    fleet.api.patch(secret, karmada_client::Patch::Merge, &data(&wrong)).await.unwrap();
    ready(&fleet, "m", "False").await;
    fleet.api.patch(secret, karmada_client::Patch::Merge, &data(&token)).await.unwrap();
    ready(&fleet, "m", "True").await;
    // Whoever names the hub, or any other cluster, as the member loses nothing, there or on the hub.
    let itself = fleet.kubeconfig.display().to_string();
    let wrong = ["unjoin", "m", "--cluster-kubeconfig", &itself];
    let (done, said) = hub(&fleet, &wrong);
    assert!(!done && said.contains("Nothing has been deleted"), "{said}");
    let cluster = fleet.api.get(&cluster_path("m")).await.unwrap();
    assert_eq!(cluster["metadata"]["deletionTimestamp"], Value::Null);
    let namespace = "/api/v1/namespaces/karmada-cluster";
    let refused = fleet.api.delete(namespace, &json!({})).await;
    assert!(refused.is_err_and(|error| error.is_forbidden()), "the Secrets of all clusters are in it");
    // It leaves as it has come.
    let unjoin = ["unjoin", "m", "--cluster-kubeconfig", &via, "--wait=120s"];
    let (done, said) = hub(&fleet, &unjoin);
    assert!(done && said.contains("cluster(m) is unjoined successfully"), "{said}\n{}", fleet.logs());
    gone(&member, &path, Duration::from_secs(1)).await;
    gone(&member, "/api/v1/namespaces/karmada-cluster/serviceaccounts/karmada-m", Duration::from_secs(1))
        .await;
    gone(&member, namespace, PATIENCE).await;
    gone(&fleet.api, secret, PATIENCE).await;
    // The Cluster is gone, and says no more which one its member was.
    let (done, said) = hub(&fleet, &wrong);
    assert!(!done && said.contains("Nothing has been deleted") && said.contains("--cluster-id"), "{said}");
    // Where hub and member are one, the hub keeps its namespace.
    let system = fleet.api.get("/api/v1/namespaces/kube-system").await.unwrap();
    let id = format!("--cluster-id={}", system["metadata"]["uid"].as_str().unwrap());
    let (done, said) = hub(&fleet, &[&wrong[..], &[id.as_str()]].concat());
    assert!(done && said.contains("stays") && said.contains("it is the hub's own"), "{said}");
    let kept = fleet.api.get(namespace).await.unwrap();
    assert_eq!(kept["metadata"]["deletionTimestamp"], Value::Null);
}
