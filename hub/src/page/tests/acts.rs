//! What the page compares, and what its buttons begin, with clusters that say they are there.

use karmada_api::consts::extension;

use super::*;

const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings";
const POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/default";

/// The hub with m1 and m2, which are ready and take ConfigMaps and Deployments; and a session of who may do everything.
async fn two(world: World) -> (World, String) {
    for name in ["m1", "m2"] {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"syncMode": "Pull"}});
        world.admin.post(CLUSTERS_PATH, &cluster).await.expect("a cluster");
        let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
            "lastTransitionTime": Time::now(&Env::system())});
        let status = json!({"status": {"conditions": [ready], "apiEnablements": [
            {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]},
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]}});
        world.say(name, &status).await;
    }
    let root = world.log_in("root").await;
    (world, root)
}

fn policy(selector: Value, placement: Value) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "p"},
        "spec": {"resourceSelectors": [selector], "placement": placement}})
}

/// The one application that there is, by its binding.
async fn binding(world: &World, cookie: &str) -> String {
    let all = world.until("/ui/api/apps", cookie, |found| found["of"] == 1).await;
    all["apps"][0]["binding"].as_str().expect("a name").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_gets_is_compared_with_the_template() {
    let (world, root) = two(World::start().await).await;
    let selector = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "till"});
    let overrides = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "taxes"},
        "spec": {"resourceSelectors": [selector], "overrideRules": [{"targetCluster": {"clusterNames": ["m2"]},
            "overriders": {"plaintext": [
                {"path": "/data/tax", "operator": "replace", "value": "25"},
                {"path": "/data/own", "operator": "add", "value": "x"}]}}]}});
    world.admin.post(&format!("{POLICIES}/overridepolicies"), &overrides).await.expect("an override");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "till"},
        "data": {"tax": "19", "city": "Bonn"}});
    world.admin.post("/api/v1/namespaces/default/configmaps", &map).await.expect("a template");
    let both = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}});
    world
        .admin
        .post(&format!("{POLICIES}/propagationpolicies"), &policy(selector, both))
        .await
        .expect("a policy");
    let binding = binding(&world, &root).await;
    let own = format!("/ui/api/difference?scope=namespaced&namespace=default&binding={binding}");
    let of = |cluster: &str| format!("{own}&cluster={cluster}");

    let mut got = world.until(&of("m2"), &root, |found| found["of"] == 2).await;
    let rows = got["differences"].as_array_mut().expect("a list");
    rows.sort_by_key(|row| row["path"].to_string());
    assert_eq!(
        got,
        json!({"cluster": "m2", "of": 2, "policies": ["taxes"], "differences": [
            {"what": "added", "path": "/data/own", "template": "", "cluster": "x"},
            {"what": "changed", "path": "/data/tax", "template": "19", "cluster": "25"},
        ]})
    );
    let same = world.until(&of("m1"), &root, |_| true).await;
    assert_eq!(same, json!({"cluster": "m1", "of": 0, "policies": [], "differences": []}));

    // Who may read the binding and the template sees nothing of what clusters get: that is in Works.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"},
        "rules": [{"apiGroups": ["work.karmada.io"], "resources": ["resourcebindings"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "looker"}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    world.admin.post(&format!("{rbac}/clusterroles"), &role).await.expect("a role");
    world.admin.post(&format!("{rbac}/clusterrolebindings"), &bound).await.expect("a binding of it");
    let (looker, guest) = (world.log_in("looker").await, world.log_in("guest").await);
    let app = format!("/ui/api/app?scope=namespaced&namespace=default&binding={binding}");
    world.until(&app, &looker, |_| true).await;
    for (uri, who, code, why) in [
        (of("m2"), &looker, 403, "works"),
        (of("m2"), &guest, 403, "guest"),
        (of("m3"), &root, 404, "m3"),
        (own.clone(), &root, 400, "cluster"),
        (of("m2").replace(&binding, "nothing"), &root, 404, "nothing"),
    ] {
        let (found, said) = world.get(&uri, who).await;
        assert!(found == code && said["message"].to_string().contains(why), "{uri}: {found} {said}");
    }
    world.stop.cancel();
}

/// How many replicas each cluster is to have.
fn wanted(app: &Value) -> Vec<(String, u64)> {
    let copies = app["copies"].as_array().into_iter().flatten().filter(|copy| copy["wanted"] == true);
    copies
        .filter_map(|copy| Some((copy["cluster"].as_str()?.to_owned(), copy["desired"].as_u64()?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_buttons_begin_moves() {
    let (world, root) = two(World::start().await).await;
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": pod}});
    world.admin.post("/apis/apps/v1/namespaces/default/deployments", &web).await.expect("a template");
    let weight = |name: &str| json!({"targetCluster": {"clusterNames": [name]}, "weight": 1});
    let divided = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}, "replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": [weight("m1"), weight("m2")]}}});
    let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    world
        .admin
        .post(&format!("{POLICIES}/propagationpolicies"), &policy(selector, divided))
        .await
        .expect("a policy");
    let binding = binding(&world, &root).await;
    let app = format!("/ui/api/app?scope=namespaced&namespace=default&binding={binding}");
    let at = |m1: u64, m2: u64| -> Vec<(String, u64)> {
        [("m1", m1), ("m2", m2)]
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|(name, n)| (name.to_owned(), n))
            .collect()
    };
    world.until(&app, &root, |app| wanted(app) == at(1, 1)).await;
    let headers: Vec<_> = PAGE.iter().copied().chain([("cookie", root.as_str())]).collect();
    let press = async |uri: &str| {
        let (code, begun) = read(world.send("POST", uri, &headers, Value::Null).await).await;
        assert_eq!(code, 200, "{uri}: {begun}");
        begun
    };

    // Drained, all of it is at the other, and the hub says what leaves and why.
    let begun = press("/ui/api/drain?cluster=m2").await;
    assert_eq!((&begun["moving"], &begun["cannotMove"]), (&json!(1), &json!(0)), "{begun}");
    assert!(begun["objects"][0]["object"].as_str().is_some_and(|object| object.contains("web")), "{begun}");
    let drained = world.until(&app, &root, |app| wanted(app) == at(2, 0)).await;
    let leaving = drained["copies"].as_array().expect("copies").iter().find(|copy| copy["cluster"] == "m2");
    assert_eq!(leaving.map(|copy| &copy["leaving"]["reason"]), Some(&json!("ClusterDrained")), "{drained}");
    let view = world.get("/ui/api/cluster?name=m2", &root).await.1;
    assert_eq!(view["told"]["cordoned"], true);

    // It has left, and the cluster takes things again: nothing comes back before somebody asks for it.
    press("/ui/api/cordon?cluster=m2&on=false").await;
    let left = json!({"spec": {"gracefulEvictionTasks": null}});
    let path = format!("{BINDINGS}/{binding}");
    let left = world.admin.patch(&path, Patch::Merge, &left).await.expect("it has left");
    let noted = &left["metadata"]["annotations"][extension::EVICTED_FROM];
    assert_eq!(noted, "m2", "whoever ends its eviction: {left}");
    let looked = async {
        loop {
            let live = world.admin.get(&path).await.expect("the binding");
            let seen = live["status"]["schedulerObservedGeneration"].as_i64();
            if seen >= left["metadata"]["generation"].as_i64() {
                return live;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let rests = timeout(LIMIT, looked).await.expect("the scheduler has looked at it");
    assert_eq!(rests["spec"]["clusters"], json!([{"name": "m1", "replicas": 2}]));
    let rests = world.until(&app, &root, |app| app["leaving"] == 0).await;
    assert_eq!(wanted(&rests), at(2, 0));
    let begun = press("/ui/api/failback?cluster=m2").await;
    assert_eq!(begun["moving"], 1, "{begun}");
    assert!(
        begun["workloadRebalancer"].as_str().is_some_and(|name| name.starts_with("failback-")),
        "{begun}"
    );
    world.until(&app, &root, |app| wanted(app) == at(1, 1)).await;
    world.stop.cancel();
}

/// What would be held, and for how long, is judged by this hub's settings.
#[tokio::test(flavor = "multi_thread")]
async fn what_if_goes_by_the_hubs_own_settings() {
    let mut config = HubConfig::default();
    config.evictions.failover_after = Duration::from_secs(77);
    (config.judge.brake.least, config.judge.brake.share) = (1, 0.0);
    config.judge.brake.timeout = Duration::from_secs(90);
    let (world, root) = two(World::of(None, config).await).await;
    let uri = "/ui/api/what-if?lose=m1";
    let supposed = world.until(uri, &root, |found| found["assumed"]["hubSettings"] == true).await;
    assert_eq!(supposed["assumed"]["failoverEvictionTimeoutSeconds"], 77, "{supposed}");
    assert_eq!(supposed["brake"], json!({"lost": 1, "of": 2, "atMostSeconds": 90}));
    world.stop.cancel();
}
