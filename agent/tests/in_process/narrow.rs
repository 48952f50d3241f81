//! An agent that works in some namespaces alone, with the rights that `manifests/agent/narrow` gives it and no others.

use std::time::Duration;

use karmada_agent::{AgentConfig, Phase, Scope};
use karmada_apiserver::authn::UserInfo;
use serde_json::{Value, json};

use crate::world::{World, config_map, eventually, namespace};

const SECOND: Duration = Duration::from_secs(1);
const ROLES: [(&str, &str); 3] = [
    ("clusterrole.yaml", include_str!("../../../manifests/agent/narrow/clusterrole.yaml")),
    ("own.yaml", include_str!("../../../manifests/agent/narrow/own.yaml")),
    ("role.yaml", include_str!("../../../manifests/agent/narrow/role.yaml")),
];

/// Applies what the script would.
async fn grant(world: &World, namespaces: &[&str]) {
    for (file, text) in ROLES {
        let each: Vec<String> = match file {
            "role.yaml" => namespaces.iter().map(|name| text.replace("@NAMESPACE@", name)).collect(),
            _ => vec![text.replace("@NAMESPACES@", &namespaces.join(", "))],
        };
        for document in each.iter().flat_map(|text| text.split("\n---\n")) {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            let root = "/apis/rbac.authorization.k8s.io/v1";
            let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
            let path = match object["metadata"]["namespace"].as_str() {
                Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
                None => format!("{root}/{plural}"),
            };
            world.member.post(&path, &object).await.unwrap();
        }
    }
    let text = include_str!("../../../manifests/agent/clusterrolebinding.yaml");
    let binding: Value = serde_saphyr::from_str(text).unwrap();
    world.member.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.unwrap();
}

fn account() -> UserInfo {
    UserInfo::new(
        "system:serviceaccount:karmada-system:karmada-agent-sa",
        ["system:serviceaccounts", "system:serviceaccounts:karmada-system", "system:authenticated"],
    )
}

#[tokio::test(start_paused = true)]
async fn a_narrowed_agent_does_its_part_and_names_what_it_may_not_apply() {
    let world = World::new().await;
    for name in ["kube-system", "karmada-system", "shop", "till"] {
        let made = world.member.post("/api/v1/namespaces", &namespace(name)).await;
        assert!(made.is_ok() || made.is_err_and(|error| error.is_already_exists()), "{name}");
    }
    grant(&world, &["shop", "till"]).await;
    let scope = Scope::named(["shop".to_owned(), "till".to_owned()]).unwrap();
    let config = AgentConfig { scope, resource_modeling: false, ..world.config() };
    let agent = world.agent_as(config, account());
    agent.phase(Phase::Active).await;
    eventually(60 * SECOND, "the cluster is ready", async || world.ready().await == "True").await;

    world
        .work("good", &[namespace("shop"), config_map("shop", "c", "1"), config_map("till", "c", "1")])
        .await;
    world.applied("good").await;
    // Drift is corrected in each.
    for place in ["shop", "till"] {
        let path = format!("/api/v1/namespaces/{place}/configmaps/c");
        world.meddle(&path, json!({"data": {"v": "other"}})).await.unwrap();
        eventually(5 * SECOND, "it is corrected", async || {
            world.member.get(&path).await.unwrap()["data"]["v"] == "1"
        })
        .await;
    }
    // The Namespace is somebody else's, and is not touched.
    let shop = world.member.get("/api/v1/namespaces/shop").await.unwrap();
    assert!(shop["metadata"]["labels"]["karmada.io/managed"].is_null(), "{shop}");

    // Of one Work each object is judged for itself.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
                      "rules": []});
    let outside = [role, config_map("kube-system", "c", "1"), config_map("shop", "d", "1"), namespace("new")];
    world.work("outside", &outside).await;
    eventually(30 * SECOND, "it is said", async || world.condition("outside", "Applied").await.0 == "False")
        .await;
    let (_, message) = world.condition("outside", "Applied").await;
    for want in [
        "(1/4)",
        "ClusterRole r is not applied here: the agent of this cluster works in the namespaces shop, till alone (--namespaces), and it is in no namespace",
        "ConfigMap kube-system/c is not applied here",
        "Namespace new is not applied here",
    ] {
        assert!(message.contains(want), "{want}\n{message}");
    }
    assert!(!world.is_missing("/api/v1/namespaces/shop/configmaps/d").await);

    // What it has never put there keeps no Work from going.
    world.delete_work("outside").await;
    eventually(30 * SECOND, "the Work goes", async || {
        world.hub.get(&World::work_path("outside")).await.is_err()
    })
    .await;
    assert!(world.is_missing("/api/v1/namespaces/shop/configmaps/d").await);
    world.delete_work("good").await;
    eventually(30 * SECOND, "the Work goes", async || {
        world.hub.get(&World::work_path("good")).await.is_err()
    })
    .await;
    assert!(world.is_missing("/api/v1/namespaces/till/configmaps/c").await);
    assert!(!world.is_missing("/api/v1/namespaces/shop").await);
    // Nothing was asked for across the cluster that a narrowed agent may not see.
    for forbidden in
        ["GET /api/v1/pods", "GET /api/v1/nodes", "GET /api/v1/configmaps", "GET /api/v1/resourcequotas"]
    {
        assert_eq!(world.member_wire.count(forbidden), 0, "{forbidden}");
    }
    agent.stop().await;
}
