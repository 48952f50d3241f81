//! What is stored is bounded, by agent and in all, and what frees room goes on.

use http::header::CONTENT_TYPE;
use karmada_apiserver::{
    authn::UserInfo, authz::Authorization, limits::Limits, open_store_within, quota::StorageQuota,
};
use karmada_env::{Env, ManualClock};
use karmada_store::{Options, engine::memory::Memory};
use serde_json::{Value, json};

use crate::{Answer, MAPS, Server, config_map};

const QUOTA: StorageQuota = StorageQuota { whole: 400_000, agent: 100_000, agent_events: 40_000 };
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";

fn agent(cluster: &str) -> UserInfo {
    UserInfo::new(format!("system:karmada:agent:{cluster}"), ["system:karmada:agents"])
}

async fn over(memory: &Memory, quota: StorageQuota) -> Server {
    let clock = ManualClock::new(std::time::SystemTime::UNIX_EPOCH);
    let store =
        open_store_within(memory.clone(), &Env::seeded(clock.clone(), 7), Options::default().history, quota);
    let limits = Limits { storage: quota, ..Limits::default() };
    let server = Server::with(store.unwrap(), clock, limits, Authorization::Roles).await;
    for namespace in ["karmada-es-a", "karmada-es-b", "karmada-cluster"] {
        let body = json!({"metadata": {"name": namespace}});
        let answer = server.call("POST", "/api/v1/namespaces", body).await;
        assert!(matches!(answer.code, 201 | 409), "{answer:?}");
    }
    server
}

async fn by(server: &Server, user: UserInfo, method: &str, path: &str, body: Value) -> Answer {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let headers = [(CONTENT_TYPE.as_str(), media)];
    server.send_body(user, method, path, &headers, body.to_string().into_bytes()).await
}

async fn event(server: &Server, user: UserInfo, namespace: &str, about: &str, name: &str) -> Answer {
    let of = if namespace == "default" { "" } else { namespace };
    let body = json!({
        "metadata": {"name": name, "namespace": namespace}, "message": "x".repeat(1000), "reason": "R",
        "involvedObject": {"kind": "Cluster", "apiVersion": "cluster.karmada.io/v1alpha1", "name": about, "namespace": of},
        "source": {"component": "karmada-agent"}, "type": "Normal",
    });
    by(server, user, "POST", &format!("/api/v1/namespaces/{namespace}/events"), body).await
}

/// Reports until there is no room left; how many there was room for.
async fn fill(server: &Server, cluster: &str) -> usize {
    for n in 0..500 {
        let namespace = if n % 2 == 0 { "default".to_owned() } else { format!("karmada-es-{cluster}") };
        let answer = event(server, agent(cluster), &namespace, cluster, &format!("{cluster}.{n}")).await;
        if answer.code != 201 {
            assert_eq!(
                (answer.code, &answer.body["reason"]),
                (507, &json!("InsufficientStorage")),
                "{answer:?}"
            );
            let message = answer.body["message"].as_str().unwrap();
            assert!(message.contains(&format!("events of agent {cluster} takes")), "{message}");
            assert!(message.contains("--agent-storage-quota"), "{message}");
            return n;
        }
    }
    panic!("events have no end");
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_bound_and_nobody_else_for_it() {
    let memory = Memory::new();
    let server = over(&memory, QUOTA).await;
    let took = fill(&server, "a").await;
    assert!((10..40).contains(&took), "{took} of about 1.7 kB each");
    // What it wrote in either place counts, so neither is open; what it has may shrink.
    for namespace in ["default", "karmada-es-a"] {
        assert_eq!(event(&server, agent("a"), namespace, "a", "a.more").await.code, 507);
    }
    let path = "/api/v1/namespaces/default/events/a.0";
    let less = by(&server, agent("a"), "PATCH", path, json!({"message": "short", "count": 2})).await;
    assert_eq!(less.code, 200, "{less:?}");
    let others = by(&server, agent("b"), "PATCH", path, json!({"count": "x"})).await;
    assert_eq!(others.code, 404, "another agent learns nothing of it: {others:?}");
    // What users tell about another's Cluster, more than that may, takes none of its room.
    for n in 0..30 {
        let answer = event(&server, Server::admin(), "default", "b", &format!("b.user-{n}")).await;
        assert_eq!(answer.code, 201, "{answer:?}");
    }
    // The others, and the platform in its stead, go on; so does its own Lease.
    assert_eq!(event(&server, agent("b"), "default", "b", "b.0").await.code, 201);
    assert_eq!(event(&server, Server::admin(), "karmada-es-a", "a", "a.hub").await.code, 201);
    let lease =
        json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40}});
    assert_eq!(by(&server, agent("a"), "POST", LEASES, lease).await.code, 201);
    let renewal = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    assert_eq!(by(&server, agent("a"), "PATCH", &format!("{LEASES}/a"), renewal).await.code, 200);
    let page = server.get("/metrics").await.body.to_string();
    assert!(page.contains("karmada_store_refused_writes_total{quota=\\\"agent\\\"} 3"), "{page}");
    assert!(page.contains("karmada_store_accounts_nearly_full 1"), "{page}");
    // What it tells about a template beside that counts, too.
    let shop = json!({"metadata": {"name": "shop"}});
    assert_eq!(server.call("POST", "/api/v1/namespaces", shop).await.code, 201);
    for (cluster, code) in [("a", 507), ("b", 201)] {
        let told = json!({
            "metadata": {"name": format!("web.{cluster}"), "namespace": "shop",
                "annotations": {"agent.karmada.io/reported-by": cluster}},
            "involvedObject": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "web", "namespace": "shop"},
            "message": "x".repeat(1000), "reason": "R", "source": {"component": "karmada-agent"}, "type": "Normal",
        });
        let answer = by(&server, agent(cluster), "POST", "/api/v1/namespaces/shop/events", told).await;
        assert_eq!(answer.code, code, "{answer:?}");
    }

    // It is the same after a restart, until something goes.
    server.shutdown.cancel();
    let server = over(&memory, QUOTA).await;
    assert_eq!(event(&server, agent("a"), "default", "a", "a.later").await.code, 507);
    for n in [2, 4, 6] {
        let path = format!("/api/v1/namespaces/default/events/a.{n}");
        assert_eq!(server.call("DELETE", &path, Value::Null).await.code, 200);
    }
    assert_eq!(event(&server, agent("a"), "default", "a", "a.later").await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn a_full_hub_takes_what_frees_room() {
    let memory = Memory::new();
    let server = over(&memory, QUOTA).await;
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(server.call("POST", DEPLOYMENTS, deployment).await.code, 201);
    let map = |n: usize| {
        let mut map = config_map(&format!("m{n}"));
        map["data"] = json!({"k": "x".repeat(10_000)});
        map
    };
    let mut made = 0;
    let full = loop {
        let answer = server.call("POST", MAPS, map(made)).await;
        if answer.code != 201 {
            break answer;
        }
        made += 1;
    };
    assert_eq!((full.code, &full.body["reason"]), (507, &json!("InsufficientStorage")), "{full:?}");
    assert!(full.body["message"].as_str().unwrap().contains("--storage-quota"), "{full:?}");
    // Agents have been out of room for longer, so that the platform had some.
    assert_eq!(event(&server, agent("b"), "default", "b", "b.0").await.code, 507);

    let status = json!({"status": {"observedGeneration": 1, "replicas": 3}});
    let status = server.patch(&format!("{DEPLOYMENTS}/d/status"), "merge", status).await;
    assert_eq!(status.code, 200, "{status:?}");
    let more = json!({"data": {"more": "x".repeat(11_000)}});
    assert_eq!(server.patch(&format!("{MAPS}/m0"), "merge", more).await.code, 507, "it grows");
    let ready = server.get("/readyz?verbose").await;
    assert_eq!(ready.code, 200, "reads, deletions and status go on");
    let said = ready.body.to_string();
    assert!(said.contains("storage-quota ok") && said.contains("% of 400000 bytes are used"), "{said}");

    // A lowered quota keeps nobody from starting, and from making it smaller.
    server.shutdown.cancel();
    let server = over(&memory, StorageQuota { whole: 300_000, ..QUOTA }).await;
    assert_eq!(server.call("POST", MAPS, map(made)).await.code, 507);
    for n in 0..made / 2 {
        assert_eq!(server.call("DELETE", &format!("{MAPS}/m{n}"), Value::Null).await.code, 200);
    }
    assert_eq!(server.call("POST", MAPS, map(made)).await.code, 201);
}
