//! What is on disk when a write is answered.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use karmada_apiserver::limits::Limits;
use karmada_store::engine::{Batch, Engine, EngineError, Found, Image, Keep, memory::Memory};
use serde_json::json;

use crate::Server;

/// Counts what is written.
#[derive(Clone, Debug, Default)]
struct Counting(Memory, Arc<AtomicUsize>);

impl Engine for Counting {
    fn location(&self) -> String {
        self.0.location()
    }

    fn load(&mut self, keep: Keep<'_>) -> Result<Image, EngineError> {
        self.0.load(keep)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.write(batch)
    }

    fn reopen(&mut self) -> Result<Found, EngineError> {
        self.0.reopen()
    }

    fn renew(&mut self, image: Image) -> Result<(), EngineError> {
        self.0.renew(image)
    }

    fn blocks(&self) -> bool {
        false
    }
}

/// Of a Lease only renewals may be lost: who holds it is on disk before it is answered.
#[tokio::test(start_paused = true)]
async fn only_renewals_of_a_lease_are_relaxed() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let disk = Counting::default();
    let server = Server::over(disk.clone(), Limits::default()).await;
    // What a server writes when it starts is written then.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let time = |n: u32| format!("2026-01-01T00:00:{n:02}.000000Z");
    let path = format!("{LEASES}/a");
    let patch = async |patch: serde_json::Value| {
        let before = disk.1.load(Ordering::SeqCst);
        assert_eq!(server.patch(&path, "merge", patch).await.code, 200);
        disk.1.load(Ordering::SeqCst) - before
    };
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "one", "renewTime": time(0)}});
    let before = disk.1.load(Ordering::SeqCst);
    assert_eq!(server.call("POST", LEASES, lease).await.code, 201);
    assert_eq!(disk.1.load(Ordering::SeqCst) - before, 1, "a creation");
    assert_eq!(patch(json!({"spec": {"renewTime": time(1)}})).await, 1, "revisions are reserved");
    for n in 2..20 {
        assert_eq!(patch(json!({"spec": {"renewTime": time(n)}})).await, 0, "a renewal");
    }
    let durable = [
        json!({"spec": {"holderIdentity": "two", "renewTime": time(20)}}),
        json!({"metadata": {"annotations": {"agent": "x"}}, "spec": {"renewTime": time(21)}}),
        json!({"metadata": {"annotations": {"agent": "y"}}}),
        json!({"spec": {"leaseDurationSeconds": 40}}),
    ];
    for change in durable {
        assert_eq!(patch(change.clone()).await, 1, "{change}");
    }
    let before = disk.1.load(Ordering::SeqCst);
    assert_eq!(server.call("DELETE", &path, serde_json::Value::Null).await.code, 200);
    assert_eq!(disk.1.load(Ordering::SeqCst) - before, 1, "a deletion");
}

#[tokio::test]
async fn a_client_can_ask_whether_the_store_is_the_one_that_it_knows() {
    let server = Server::start().await;
    let known = server.get("/karmada/history").await.body;
    let (boot, durable) = (known["boot"].as_str().unwrap(), known["durable"].as_u64().unwrap());
    assert!(known.get("knows").is_none() && known["revision"].as_u64().unwrap() >= durable);
    for (boot, revision, knows) in
        [(boot, durable, true), (boot, durable + 1_000_000, false), ("another", 1, false)]
    {
        let answer = server.get(&format!("/karmada/history?boot={boot}&revision={revision}")).await;
        assert_eq!((answer.code, &answer.body["knows"]), (200, &json!(knows)), "{boot} {revision}");
    }
    for query in ["?boot=x", "?revision=1", "?boot=x&revision=y"] {
        assert_eq!(server.get(&format!("/karmada/history{query}")).await.code, 400, "{query}");
    }
}
