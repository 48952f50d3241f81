//! What is derived from stored objects is in force although whoever wrote them is gone before the answer.

use std::{sync::Arc, time::Duration};

use karmada_apiserver::limits::Limits;
use karmada_store::engine::{Batch, Engine, EngineError, Found, Image, Keep, memory::Memory};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{MAPS, Server, config_map, crds, webhooks};

/// Whether writes to the disk go on, and how many wait.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    moved: Condvar,
}

impl Gate {
    fn close(&self, closed: bool) {
        self.state.lock().0 = closed;
        self.moved.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        while state.0 {
            self.moved.wait(&mut state);
        }
        state.1 -= 1;
    }

    async fn until_one_waits(&self) {
        let waits = async {
            while self.state.lock().1 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waits).await.unwrap();
    }
}

/// A disk that can be held, so that something can happen in the middle of a commit.
#[derive(Clone, Debug, Default)]
struct Disk(Memory, Arc<Gate>, Renewals);

/// What holds up only that everything is written anew.
#[derive(Clone, Debug, Default)]
struct Renewals(Arc<Gate>);

impl Engine for Disk {
    fn location(&self) -> String {
        self.0.location()
    }

    fn load(&mut self, keep: Keep<'_>) -> Result<Image, EngineError> {
        self.0.load(keep)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.1.pass();
        self.0.write(batch)
    }

    fn reopen(&mut self) -> Result<Found, EngineError> {
        self.0.reopen()
    }

    fn renew(&mut self, image: Image) -> Result<(), EngineError> {
        self.2.0.pass();
        self.0.renew(image)
    }

    fn blocks(&self) -> bool {
        true
    }
}

impl Disk {
    /// Sends a request and drops it while its write is on the way to the disk, as a reset stream or a deadline does.
    async fn send_and_drop(&self, server: &Server, method: &str, path: &str, body: &Value) {
        self.1.close(true);
        let headers = &[("content-type", "application/json")];
        let mut request = Server::request(method, path, headers, body.to_string().into_bytes());
        request.extensions_mut().insert(Server::admin());
        let sent = tokio::spawn(server.api.service().oneshot(request));
        self.1.until_one_waits().await;
        sent.abort();
        assert!(sent.await.unwrap_err().is_cancelled());
        self.1.close(false);
    }
}

#[tokio::test]
async fn a_webhook_is_called_although_whoever_wrote_it_is_gone() {
    let disk = Disk::default();
    let server = Server::over(disk.clone(), Limits::default()).await;
    let outside = webhooks::Outside::plain(|_, _| Ok(json!({"allowed": false})));
    server.api.call_webhooks(outside.clone());
    let body = webhooks::configuration("Validating", "c", &[webhooks::webhook("guard", json!({}))]);
    disk.send_and_drop(&server, "POST", &webhooks::path("Validating"), &body).await;
    server.until(&format!("{}/c", webhooks::path("Validating")), |a| a.code == 200).await;
    // Nothing else is ever written to the configurations.
    let refused = tokio::time::timeout(Duration::from_secs(20), async {
        for n in 0.. {
            let answer = server.call("POST", MAPS, config_map(&format!("m{n}"))).await;
            if answer.code == 400 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        unreachable!("the numbers do not end")
    });
    let refused = refused.await.expect("the configuration is stored, so the webhook is called");
    assert!(refused.body["message"].as_str().unwrap().contains("guard.example.com"), "{refused:?}");
}

#[tokio::test]
async fn a_schema_counts_although_whoever_wrote_it_is_gone() {
    let disk = Disk::default();
    let server = Server::over(disk.clone(), Limits::default()).await;
    let mut definition = crds::definition();
    assert_eq!(server.call("POST", crds::DEFINITIONS, definition.clone()).await.code, 201);
    let path = format!("{}/widgets.example.com", crds::DEFINITIONS);
    let stored = server.until(&path, |a| a.body["status"]["conditions"].is_array()).await;
    server.until(crds::WIDGETS, |a| a.code == 200).await;
    definition["metadata"] = stored.body["metadata"].clone();
    for version in 0..2 {
        let schema = &mut definition["spec"]["versions"][version]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"]["properties"]["added"] = json!({"type": "string"});
    }
    disk.send_and_drop(&server, "PUT", &path, &definition).await;
    server.until(&path, |a| a.body["metadata"]["generation"] == 2).await;
    // The definition is settled: what writes it anew would hide what this is about.
    let kept = tokio::time::timeout(Duration::from_secs(20), async {
        for n in 0.. {
            let widget = json!({"metadata": {"name": format!("w{n}")}, "spec": {"added": "x"}});
            if server.call("POST", crds::WIDGETS, widget).await.body["spec"]["added"] == "x" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    kept.await.expect("the new schema is stored, so it is no longer pruned by the old one");
}

/// A disk that does not answer holds up writes alone, and is named.
#[tokio::test]
async fn a_disk_that_hangs_is_told_by_readiness() {
    let disk = Disk::default();
    let server = Server::over(disk.clone(), Limits::default()).await;
    disk.1.close(true);
    let body = config_map("m").to_string().into_bytes();
    let mut request = Server::request("POST", MAPS, &[("content-type", "application/json")], body);
    request.extensions_mut().insert(Server::admin());
    let written = tokio::spawn(server.api.service().oneshot(request));
    disk.1.until_one_waits().await;
    assert_eq!(server.get("/readyz").await.code, 200, "it has just begun");
    server.clock.advance(Duration::from_secs(11));
    let ready = server.get("/readyz?verbose").await;
    assert_eq!(ready.code, 500);
    let said = "[-]store failed: its disk has not answered for 11 s, writes wait for it";
    assert!(ready.body.as_str().is_some_and(|text| text.contains(said)), "{ready:?}");
    assert_eq!(server.get(MAPS).await.code, 200, "reads go on");
    assert_eq!(server.get("/livez").await.code, 200, "a start would not help");
    disk.1.close(false);
    assert_eq!(written.await.unwrap().unwrap().status(), 201);
    assert_eq!(server.get("/readyz").await.code, 200);
}

/// A create that is behind the end of its namespace in the writer's queue, though it came when nothing had ended.
#[tokio::test]
async fn nothing_slips_into_a_namespace_while_it_begins_to_end() {
    let disk = Disk::default();
    let server = Server::over(disk.clone(), Limits::default()).await;
    server.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/f"]}});
    assert_eq!(server.call("POST", maps, held).await.code, 201);
    let send = async |method: &str, path: &str, body: Vec<u8>| {
        let mut request = Server::request(method, path, &[("content-type", "application/json")], body);
        request.extensions_mut().insert(Server::admin());
        let sent = tokio::spawn(server.api.service().oneshot(request));
        // On this thread, until it waits for the writer.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        [sent]
    };
    disk.1.close(true);
    let [before] = send("POST", MAPS, config_map("before").to_string().into_bytes()).await;
    disk.1.until_one_waits().await;
    let [end] = send("DELETE", "/api/v1/namespaces/n", Vec::new()).await;
    let [late] = send("POST", maps, config_map("late").to_string().into_bytes()).await;
    disk.1.close(false);
    assert_eq!(before.await.unwrap().unwrap().status(), 201);
    assert_eq!(end.await.unwrap().unwrap().status(), 200);
    assert_eq!(late.await.unwrap().unwrap().status(), 403);
    assert_eq!(server.get(&format!("{maps}/late")).await.code, 404);
}

/// As when a key is changed: it takes minutes where much is stored, and nobody is to be sent elsewhere for that.
#[tokio::test]
async fn a_server_is_ready_while_everything_is_written_anew() {
    let clock =
        karmada_env::ManualClock::new(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
    let disk = Disk::default();
    let store =
        karmada_apiserver::open_store(disk.clone(), &karmada_env::Env::seeded(clock.clone(), 7)).unwrap();
    let authorizer = karmada_apiserver::authz::Authorization::Roles;
    let server = Server::with(store.clone(), clock, Limits::default(), authorizer).await;
    disk.2.0.close(true);
    let rewriting = tokio::spawn(async move { store.rewrite().await });
    disk.2.0.until_one_waits().await;
    for (seconds, code, said) in [
        (61, 200, "[+]store ok: everything is being written anew for 61 s, writes wait for it"),
        (600, 500, "[-]store failed: its disk has not answered for 661 s, writes wait for it"),
    ] {
        server.clock.advance(Duration::from_secs(seconds));
        let ready = server.get("/readyz?verbose").await;
        assert_eq!(ready.code, code, "{ready:?}");
        assert!(ready.body.as_str().is_some_and(|text| text.contains(said)), "{ready:?}");
    }
    disk.2.0.close(false);
    rewriting.await.unwrap().unwrap();
    assert_eq!(server.get("/readyz").await.code, 200);
}
