//! Unified authentication: who may reach a cluster through the hub is whom the hub may speak for there.

use std::time::Duration;

use http::Method;
use karmada_core::{impersonate::NAME, names};
use karmada_objects::kinds::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CLUSTERS, WORKS};
use serde_json::{Value, json};

use crate::common::World;

const RBAC: &str = "rbac.authorization.k8s.io";

fn role(name: &str, rule: Value) -> Value {
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]})
}

fn binding(name: &str, role: &str, subjects: Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}, "subjects": subjects,
    })
}

fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "User", "name": name})
}

fn proxy(of: Value) -> Value {
    json!({"verbs": ["*"], "apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "resourceNames": of})
}

fn manifest(work: &Value) -> &Value {
    &work["spec"]["workload"]["manifests"][0]
}

fn names_of<'a>(work: &'a Value, sort: &str) -> Vec<&'a str> {
    let rules = manifest(work)["rules"].as_array().into_iter().flatten();
    let of = rules.filter(|rule| rule["resources"] == json!([sort]));
    of.flat_map(|rule| rule["resourceNames"].as_array().unwrap()).filter_map(Value::as_str).collect()
}

/// The Work with a cluster's ClusterRole, once it names these users.
async fn lets_in(world: &World, cluster: &str, users: &[&str]) -> Value {
    let what = format!("{cluster} lets in {users:?}");
    let is =
        |work: &Value| names_of(work, "users") == users && work["metadata"]["deletionTimestamp"].is_null();
    world.becomes(&what, &WORKS, &format!("karmada-es-{cluster}"), &work_of("ClusterRole"), is).await
}

fn work_of(kind: &str) -> String {
    names::work_name(kind, "", NAME)
}

#[tokio::test(start_paused = true)]
async fn roles_for_clusters_become_roles_on_them() {
    let world = World::start().await;
    for name in ["m1", "m2", "m3"] {
        world.join(name, json!({})).await;
    }
    let refer = async |name: &str, to: Value| {
        world
            .change(&CLUSTERS, "", name, |cluster| cluster["spec"]["impersonatorSecretRef"] = to.clone())
            .await;
    };
    for name in ["m1", "m2"] {
        refer(name, json!({"namespace": "karmada-cluster", "name": format!("{name}-impersonator")})).await;
    }
    let work = lets_in(&world, "m1", &["system:admin"]).await;
    let uid = world.get(&CLUSTERS, "", "m1").await.unwrap()["metadata"]["uid"].clone();
    let meta = &work["metadata"];
    assert_eq!(
        (&meta["ownerReferences"][0]["uid"], &meta["finalizers"]),
        (&uid, &json!(["karmada.io/execution-controller"]))
    );
    assert_eq!(names_of(&work, "groups"), ["system:masters"], "whom cluster-admin is bound to");
    let labels = &manifest(&work)["metadata"]["labels"];
    assert_eq!(
        (&labels["karmada.io/system"], &labels["karmada.io/managed"]),
        (&json!("true"), &json!("true"))
    );
    let bound = world.get(&WORKS, "karmada-es-m1", &work_of("ClusterRoleBinding")).await.unwrap();
    assert_eq!(manifest(&bound)["subjects"][0]["namespace"], "karmada-cluster");
    world.event("m1", "SyncImpersonationConfigSucceed", "Sync impersonation config succeed.").await;
    lets_in(&world, "m2", &["system:admin"]).await;

    // A role that names a cluster is that cluster's business alone.
    let account = json!({"kind": "ServiceAccount", "name": "ci", "namespace": "build"});
    world.create(&CLUSTER_ROLES, role("reach-m1", proxy(json!(["m1", "m9"])))).await;
    world.settle().await;
    world.asked.forget();
    world
        .create(&CLUSTER_ROLE_BINDINGS, binding("reach-m1", "reach-m1", json!([user("jane"), account])))
        .await;
    let work = lets_in(&world, "m1", &["jane", "system:admin"]).await;
    assert_eq!(names_of(&work, "serviceaccounts"), ["ci"]);
    assert_eq!(
        names_of(&work, "groups"),
        ["system:masters", "system:serviceaccounts", "system:serviceaccounts:build"]
    );
    world.settle().await;
    let writes =
        || world.asked.count(&Method::PUT, &["/works/"]) + world.asked.count(&Method::POST, &["/works"]);
    assert_eq!(writes(), 1, "of one cluster one Work is another");

    // One for all clusters is that of all that the hub dials; who was let in before changes nothing.
    world.asked.forget();
    world
        .create(&CLUSTER_ROLE_BINDINGS, binding("more", "cluster-admin", json!([user("system:admin")])))
        .await;
    world.create(&CLUSTER_ROLE_BINDINGS, binding("other", "view", json!([user("joe")]))).await;
    world.settle().await;
    assert_eq!(writes(), 0, "nobody is let in who was not");
    world.create(&CLUSTER_ROLE_BINDINGS, binding("ops", "cluster-proxy-admin", json!([user("ops")]))).await;
    lets_in(&world, "m1", &["jane", "ops", "system:admin"]).await;
    lets_in(&world, "m2", &["ops", "system:admin"]).await;
    assert!(
        world.get(&WORKS, "karmada-es-m3", &work_of("ClusterRole")).await.is_none(),
        "it has no reference"
    );

    // A role that goes takes its subjects along; so does one that opens less.
    world.delete(&CLUSTER_ROLE_BINDINGS, "", "ops").await.unwrap();
    lets_in(&world, "m2", &["system:admin"]).await;
    world.change(&CLUSTER_ROLES, "", "reach-m1", |role| role["rules"][0] = proxy(json!(["m2"]))).await;
    lets_in(&world, "m2", &["jane", "system:admin"]).await;
    lets_in(&world, "m1", &["system:admin"]).await;

    // What somebody makes of a Work is put right, one that is taken away is made again, and all go with the reference.
    let of_m1 = work_of("ClusterRole");
    world
        .change(&WORKS, "karmada-es-m1", &of_m1, |work| {
            work["spec"]["workload"]["manifests"][0]["rules"][0]["resourceNames"] = json!(["mallory"]);
        })
        .await;
    lets_in(&world, "m1", &["system:admin"]).await;
    world.delete(&WORKS, "karmada-es-m1", &of_m1).await.unwrap();
    let free = |work: &mut Value| work["metadata"]["finalizers"] = json!([]);
    world.change(&WORKS, "karmada-es-m1", &of_m1, free).await;
    world
        .within(Duration::from_secs(180), "it is there again", || async {
            world.get(&WORKS, "karmada-es-m1", &of_m1).await
        })
        .await;
    refer("m1", Value::Null).await;
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        let going = |work: &Value| !work["metadata"]["deletionTimestamp"].is_null();
        world.becomes("no longer wanted", &WORKS, "karmada-es-m1", &work_of(kind), going).await;
    }
    world.stop().await;
}
