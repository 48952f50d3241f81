//! Clusters in push mode, of which something is wrong.

use std::time::Duration;

use crate::common::World;
use karmada_apiserver::authn::UserInfo;
use karmada_client::{Patch, Rest};
use karmada_objects::kinds::{CLUSTERS, LEASES, SECRETS};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// One whose member is at a port on which nobody listens.
async fn cluster() -> Value {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m"},
        "spec": {
            "syncMode": "Push", "apiEndpoint": format!("https://127.0.0.1:{port}"), "insecureSkipTLSVerification": true,
            "secretRef": {"namespace": "karmada-cluster", "name": "m"},
        },
    })
}

fn secret(token: &str) -> Value {
    let metadata = json!({"name": "m", "namespace": "karmada-cluster"});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": token}})
}

/// What Ready says, as `status reason message`.
fn ready(cluster: &Value) -> String {
    let all = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    let ready = all.iter().find(|one| one["type"] == "Ready");
    ready.map_or_else(String::new, |one| {
        format!("{} {} {}", text(one, "status"), text(one, "reason"), text(one, "message"))
    })
}

/// Waits until Ready begins so, and says this.
async fn says(world: &World, begins: &str, part: &str) {
    let is = |cluster: &Value| ready(cluster).starts_with(begins) && ready(cluster).contains(part);
    world
        .within(Duration::from_secs(20), &format!("Ready: {begins} … {part}"), || async {
            world.get(&CLUSTERS, "", "m").await.filter(is)
        })
        .await;
}

async fn is_ready(world: &World) {
    let now = "2026-01-02T03:04:05Z";
    let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "", "lastTransitionTime": now});
    let path = format!("{}/status", CLUSTERS.object(None, "m"));
    let status = json!({"status": {"conditions": [ready]}});
    world.rest.patch(&path, Patch::Merge, &status).await.expect("told");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_says_why_nothing_works_on_it() {
    let world = World::start_pushing().await;
    world.create(&CLUSTERS, cluster().await).await;
    says(&world, "False StatusCollectionFailed", "Secret karmada-cluster/m").await;
    world.event("m", "ClusterNotWorkedOn", "Secret karmada-cluster/m").await;
    world.create(&SECRETS, secret("")).await;
    says(&world, "False StatusCollectionFailed", "it holds no token").await;
    let path = SECRETS.object(Some("karmada-cluster"), "m");
    let token = json!({"stringData": {"token": "t"}});
    world.rest.patch(&path, Patch::Merge, &token).await.expect("changed");
    says(&world, "False ClusterNotReachable", "").await;
    // Whoever takes the token away ends what is done by it, whatever was said before.
    is_ready(&world).await;
    world.delete(&SECRETS, "karmada-cluster", "m").await.expect("deleted");
    says(&world, "False StatusCollectionFailed", "Secret karmada-cluster/m").await;
    // So does a Cluster that cannot be used.
    world.create(&SECRETS, secret("t")).await;
    says(&world, "False ClusterNotReachable", "").await;
    let plain = json!({"spec": {"apiEndpoint": "http://member.example"}});
    world.rest.patch(&CLUSTERS.object(None, "m"), Patch::Merge, &plain).await.expect("changed");
    says(&world, "False StatusCollectionFailed", "by https alone").await;
    // Nobody is waited for who is not there.
    let begun = Instant::now();
    world.delete(&CLUSTERS, "", "m").await.expect("deleted");
    world
        .within(Duration::from_secs(60), "it goes", || async {
            world.get(&CLUSTERS, "", "m").await.is_none().then_some(())
        })
        .await;
    assert!(begun.elapsed() < Duration::from_secs(60));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_made_again_is_worked_on_again() {
    let world = World::start_pushing().await;
    for _ in 0..2 {
        world.create(&CLUSTERS, cluster().await).await;
        says(&world, "False StatusCollectionFailed", "Secret karmada-cluster/m").await;
        world.delete(&CLUSTERS, "", "m").await.expect("deleted");
        world.gone(&CLUSTERS, "", "m").await;
    }
    world.stop().await;
}

/// How a member is that the hub itself works on is for that to say: an old Lease, of an agent of before, tells nothing of it.
#[tokio::test(start_paused = true)]
async fn nobody_renews_a_lease_of_a_cluster_in_push_mode() {
    let world = World::start().await;
    let mut other = cluster().await;
    other["metadata"]["name"] = "n".into();
    other["spec"] = json!({"syncMode": "Pull"});
    for cluster in [cluster().await, other] {
        world.create(&CLUSTERS, cluster).await;
    }
    is_ready(&world).await;
    let lease = |name: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "karmada-cluster"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-01-02T03:04:05.000000Z"},
        })
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
    for name in ["m", "n"] {
        world.rest.post(leases, &lease(name)).await.expect("made");
    }
    sleep(Duration::from_secs(150)).await;
    let is = async |name: &str| ready(&world.get(&CLUSTERS, "", name).await.expect("it is there"));
    assert!(is("m").await.starts_with("True ClusterReady"));
    assert!(is("n").await.starts_with("Unknown "), "{}", is("n").await);
    world.stop().await;
}

/// An agent of before that still runs makes its Lease again.
#[tokio::test(start_paused = true)]
async fn the_lease_of_an_agent_of_before_is_deleted_as_often_as_it_is_made() {
    let world = World::start_pushing().await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "m", "namespace": "karmada-cluster"}, "spec": {"holderIdentity": "before"},
    });
    let make = async || world.create(&LEASES, lease.clone()).await;
    make().await;
    world.create(&SECRETS, secret("t")).await;
    world.create(&CLUSTERS, cluster().await).await;
    for _ in 0..2 {
        world
            .within(Duration::from_secs(90), "it is deleted", || async {
                world.get(&LEASES, "karmada-cluster", "m").await.is_none().then_some(())
            })
            .await;
        make().await;
    }
    // Not that of an agent that has the cluster now.
    let pull = json!({"spec": {"syncMode": "Pull"}});
    world.rest.patch(&CLUSTERS.object(None, "m"), Patch::Merge, &pull).await.expect("changed");
    sleep(Duration::from_secs(150)).await;
    assert!(world.get(&LEASES, "karmada-cluster", "m").await.is_some());
    world.stop().await;
}

/// When the hub's own way to them is away, all stop to answer at once.
#[tokio::test(start_paused = true)]
async fn clusters_that_stop_to_answer_together_are_not_left() {
    let world = World::start().await;
    let names: Vec<_> = (0..4).map(|n| format!("m{n}")).collect();
    let say = async |name: &str, status: &str, reason: &str| {
        let at = "2026-01-02T03:04:05Z";
        let ready = json!({"type": "Ready", "status": status, "reason": reason, "message": "", "lastTransitionTime": at});
        let path = format!("{}/status", CLUSTERS.object(None, name));
        let status = json!({"status": {"conditions": [ready]}});
        world.rest.patch(&path, Patch::Merge, &status).await.expect("told");
    };
    for name in &names {
        let mut cluster = cluster().await;
        cluster["metadata"]["name"] = name.as_str().into();
        world.create(&CLUSTERS, cluster).await;
        say(name, "True", "ClusterReady").await;
    }
    sleep(Duration::from_secs(30)).await;
    for name in &names {
        say(name, "False", "ClusterNotReachable").await;
    }
    let held = |cluster: &Value| {
        let all = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|one| one["type"] == "EvictionsHeld" && one["reason"] == "MassOutage")
    };
    for name in &names {
        let says = || async { world.get(&CLUSTERS, "", name).await.filter(|cluster| held(cluster)) };
        world.within(Duration::from_secs(30), "evictions are held", says).await;
    }
    for name in &names {
        say(name, "True", "ClusterReady").await;
    }
    for name in &names {
        let says = || async { world.get(&CLUSTERS, "", name).await.filter(|cluster| !held(cluster)) };
        world.within(Duration::from_secs(30), "nothing is held", says).await;
    }
    world.stop().await;
}

/// Whoever may cordon and label a cluster may not have its token sent to themselves.
#[tokio::test(start_paused = true)]
async fn where_tokens_go_is_for_those_to_say_who_may_read_them() {
    let world = World::start().await;
    world.create(&CLUSTERS, cluster().await).await;
    let user = UserInfo::new("jane", ["system:authenticated"]);
    let jane = Rest::new(world.embedded.server().client(user, "kubectl"));
    let grant = async |name: &str, rule: Value| {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let meta = json!({"name": name});
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta, "rules": [rule],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        });
        world.rest.post(&format!("{rbac}/clusterroles"), &role).await.expect("a role");
        world.rest.post(&format!("{rbac}/clusterrolebindings"), &binding).await.expect("a binding");
    };
    grant(
        "jane-edits",
        json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["get", "patch"]}),
    )
    .await;
    let path = CLUSTERS.object(None, "m");
    let taint = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "metadata": {"labels": {"a": "b"}}});
    jane.patch(&path, Patch::Merge, &taint).await.expect("she may");
    let moved = json!({"spec": {"apiEndpoint": "https://evil.example"}});
    let refused = jane.patch(&path, Patch::Merge, &moved).await.expect_err("the token would go there");
    assert!(refused.is_forbidden() && refused.to_string().contains("Secret karmada-cluster/m"), "{refused}");
    grant(
        "jane-reads",
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["m"], "verbs": ["get"]}),
    )
    .await;
    jane.patch(&path, Patch::Merge, &moved).await.expect("she could send it there herself");
    world.stop().await;
}
