//! Credentials of agents as a listener hands them in: certificates of the hub's own authority, judged at each request.

mod dense;
mod measured;
mod register;
mod rights;
mod searching;

use axum::body::Body;
use http::{Method, Request, Response};
use karmada_api::consts::{extension, subject};
use karmada_apiserver::{
    authn::{
        Authenticator, Peer, PeerCertificate, Tokens,
        epochs::{End, Record},
    },
    pki::Pki,
};
use karmada_core::names;
use karmada_env::ManualClock;
use karmada_store::engine::Memory;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use super::*;

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const M1: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A machine under load is slow.
const LIMIT: Duration = Duration::from_secs(30);

/// A hub's API, its authority, and the time by which it judges certificates.
struct World {
    stop: CancellationToken,
    embedded: Embedded,
    admin: Rest,
    pki: Pki,
    env: Env,
    clock: ManualClock,
    _dir: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let stop = CancellationToken::new();
        let (dir, real) = (tempfile::tempdir().expect("a folder"), Env::system());
        let clock = ManualClock::new(real.wall());
        let env = Env::seeded(clock.clone(), 1);
        let pki = Pki::open_or_create(dir.path(), &[], &env).expect("an authority");
        let embedded = Embedded::start(Memory::new(), &real, stop.clone()).await.expect("a hub's API");
        embedded.server().authenticate_by(Authenticator::new(Tokens::new(), env.clone()));
        let admin = Rest::new(embedded.client());
        Self { stop, embedded, admin, pki, env, clock, _dir: dir }
    }

    /// What the agent of m1 shows that has a credential of an epoch.
    fn agent(&self, epoch: u64, validity: Duration) -> Peer {
        let credential = self.pki.issue_agent(&names::agent_user("m1"), subject::AGENTS, epoch, validity);
        let pem = credential.expect("a certificate").certificate_pem;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        Peer::Certificate(Arc::new(PeerCertificate::from_der(&der).expect("a user's")))
    }

    /// The same of the epoch that counts.
    async fn newest(&self) -> Peer {
        let record = self.admin.get(&Record::path("m1")).await.expect("an epoch has ended");
        self.agent(Record::read(&record).expect("a record").epoch, DAY)
    }

    /// What `karmada-hub cluster revoke` does to m1.
    async fn revoke(&self) {
        let there = self.admin.get(&Record::path("m1")).await.ok();
        let record = there.as_ref().map(|there| Record::read(there).expect("a record")).unwrap_or_default();
        let revoked = record.end(End::Revoked, "", self.env.wall()).expect("an epoch");
        let secret = revoked.write("m1", there.clone());
        match there {
            Some(_) => self.admin.put(&Record::path("m1"), &secret).await,
            None => self.admin.post(&Record::collection(), &secret).await,
        }
        .expect("it is revoked");
    }

    async fn send(&self, peer: &Peer, method: Method, path: &str, body: &Value) -> Response<Body> {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let mut request = Request::builder().method(method).uri(path).body(body).expect("a request");
        request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
        request.extensions_mut().insert(peer.clone());
        self.embedded.server().service().oneshot(request).await.expect("an answer")
    }

    /// Code and message of an answer.
    async fn ask(&self, peer: &Peer, method: Method, path: &str, body: &Value) -> (u16, String) {
        let answer = self.send(peer, method, path, body).await;
        let code = answer.status().as_u16();
        let text = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        let value: Value = serde_json::from_slice(&text).unwrap_or_default();
        (code, value["message"].as_str().unwrap_or_default().to_owned())
    }

    async fn get(&self, peer: &Peer) -> (u16, String) {
        self.ask(peer, Method::GET, M1, &Value::Null).await
    }

    async fn register(&self, peer: &Peer) -> (u16, String) {
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
            "spec": {"id": "u1", "syncMode": "Pull"},
        });
        self.ask(peer, Method::POST, CLUSTERS, &cluster).await
    }

    /// Waits until the controllers have taken the Cluster into their care: then its end is theirs, too.
    async fn kept(&self) {
        let waiting = async {
            while self.admin.get(M1).await.expect("it is there")["metadata"]["finalizers"].is_null() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, waiting).await.expect("in time");
    }

    /// Waits until the Cluster has gone.
    async fn gone(&self) {
        let waiting = async {
            while self.admin.get(M1).await.is_ok() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, waiting).await.expect("in time");
    }

    async fn stop(self) {
        self.stop.cancel();
        self.embedded.close().await.expect("all is written");
    }
}

#[tokio::test]
async fn what_is_revoked_ends_at_once_also_where_it_is_open() {
    let world = World::start().await;
    let old = world.agent(0, DAY * 365);
    assert_eq!(world.register(&old).await.0, 201);
    let watch = format!("{CLUSTERS}?watch=true&fieldSelector=metadata.name%3Dm1");
    let watching = world.send(&old, Method::GET, &watch, &Value::Null).await;
    assert_eq!(watching.status(), 200);
    let watching = tokio::spawn(async move { axum::body::to_bytes(watching.into_body(), 1 << 20).await });

    let path = Record::path("m1");
    world.revoke().await;
    // The write is answered when it is in force.
    let (code, why) = world.get(&old).await;
    assert_eq!(code, 401);
    assert!(why.contains("system:karmada:agent:m1") && why.contains("revoked"), "{why}");
    let seen = timeout(Duration::from_secs(1), watching).await.expect("the watch has ended").expect("a task");
    assert!(String::from_utf8_lossy(&seen.expect("an end in order")).contains("ADDED"));
    assert_eq!(world.get(&world.newest().await).await.0, 200, "a new one counts");

    // What has ended does not hold again because somebody tidies up.
    let error = world.admin.delete(&path, &json!({})).await.expect_err("it stays");
    assert!(error.is_forbidden() && error.to_string().contains("would hold again"), "{error}");
    let mut back = world.admin.get(&path).await.expect("it is there");
    back["metadata"]["annotations"]["hub.karmada.io/credential-epoch"] = "0".into();
    assert!(world.admin.put(&path, &back).await.expect_err("it stays").is_forbidden());
    assert_eq!(world.get(&old).await.0, 401);
    // An agent has no way to its record.
    assert_eq!(world.ask(&world.newest().await, Method::GET, &path, &Value::Null).await.0, 403);

    let page = world.embedded.server().figures();
    let page = karmada_telemetry::metrics::Page::new().with(page).render();
    assert!(page.contains(r#"unauthenticated_requests_total{reason="certificate_revoked"} 2"#), "{page}");
    world.stop().await;
}

#[tokio::test]
async fn a_certificate_that_ends_ends_what_it_has_begun() {
    let world = World::start().await;
    let short = world.agent(0, DAY);
    assert_eq!(world.register(&short).await.0, 201);
    world.clock.advance(DAY + Duration::from_secs(1));
    let (code, why) = world.get(&short).await;
    assert_eq!(code, 401);
    assert!(why.contains("expired"), "{why}");
    world.stop().await;
}

#[tokio::test]
async fn the_old_credential_of_a_cluster_that_has_gone_registers_nothing() {
    let world = World::start().await;
    let (old, late) = (world.agent(0, DAY * 10), world.agent(0, Duration::from_secs(60)));
    assert_eq!(world.register(&late).await.0, 201);
    let hub = world.embedded.hub(HubConfig::default(), &Env::system()).expect("controllers");
    let running = tokio::spawn(hub.run(world.stop.clone()));
    // Less than a quarter of its certificate's life is left: it is named as soon as somebody looks.
    let until = async |what: &str, is: &dyn Fn(Option<&Value>) -> bool| {
        let waiting = async {
            while !is(world.admin.get(M1).await.ok().as_ref()) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
    };
    until("it is named", &|cluster| {
        let conditions = cluster.and_then(|c| c["status"]["conditions"].as_array());
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == extension::CREDENTIAL_EXPIRING))
    })
    .await;
    let named = karmada_apiserver::authn::epochs::EndingFigures::new(
        world.embedded.server().epochs().clone(),
        world.env.clone(),
    );
    let page = karmada_telemetry::metrics::Page::new().with(named).render();
    assert!(page.contains("karmada_hub_agent_certificates_ending 1"), "{page}");

    assert_eq!(world.ask(&old, Method::DELETE, M1, &json!({})).await.0, 200, "it leaves");
    until("it has gone", &|cluster| cluster.is_none()).await;
    assert_eq!(world.get(&old).await.0, 404, "it may see that");
    let (code, why) = world.register(&old).await;
    assert_eq!(code, 403, "{why}");
    world.clock.advance(Duration::from_secs(3600));
    let (code, why) = world.get(&old).await;
    assert_eq!(code, 401);
    assert!(why.contains("the Cluster was deleted"), "{why}");

    let new = world.newest().await;
    assert_eq!(world.register(&new).await.0, 201, "the platform has given it a new one");
    assert_eq!(world.get(&old).await.0, 401);
    world.stop.cancel();
    running.await.expect("the controllers end").expect("in order");
    world.embedded.close().await.expect("all is written");
}

#[tokio::test]
async fn a_cluster_that_goes_before_the_controllers_have_seen_it_ends_its_credential() {
    let world = World::start().await;
    let old = world.agent(0, DAY * 365);
    assert_eq!(world.register(&old).await.0, 201);
    assert_eq!(world.ask(&old, Method::DELETE, M1, &json!({})).await.0, 200);
    let hub = world.embedded.hub(HubConfig::default(), &Env::system()).expect("controllers");
    let running = tokio::spawn(hub.run(world.stop.clone()));
    world.gone().await;
    let (code, why) = world.register(&old).await;
    assert_eq!(code, 403, "{why}");
    world.stop.cancel();
    running.await.expect("the controllers end").expect("in order");
    world.embedded.close().await.expect("all is written");
}

#[tokio::test]
async fn an_agent_does_not_learn_who_has_its_id() {
    let world = World::start().await;
    let of = |name: &str| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
               "spec": {"id": "u1", "syncMode": "Pull"}})
    };
    world.admin.post(CLUSTERS, &of("elsewhere")).await.expect("the platform makes it");
    let (code, why) = world.register(&world.agent(0, DAY)).await;
    assert_eq!(code, 409, "{why}");
    assert!(why.contains("u1") && !why.contains("elsewhere"), "{why}");
    let told = world.admin.post(CLUSTERS, &of("m1")).await.expect_err("it has a name").to_string();
    assert!(told.contains("elsewhere"), "{told}");
    world.stop().await;
}

#[tokio::test]
async fn the_old_credential_neither_sees_nor_deletes_the_cluster_that_comes_after() {
    let world = World::start().await;
    let old = world.agent(0, DAY * 365);
    assert_eq!(world.register(&old).await.0, 201);
    let hub = world.embedded.hub(HubConfig::default(), &Env::system()).expect("controllers");
    let running = tokio::spawn(hub.run(world.stop.clone()));
    world.kept().await;
    world.admin.delete(M1, &json!({})).await.expect("the platform deletes it");
    world.gone().await;
    assert_eq!(world.get(&old).await.0, 404, "it may see that");
    let works = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works?watch=true";
    let watching = world.send(&old, Method::GET, works, &Value::Null).await;
    assert_eq!(watching.status(), 200);
    let watching = tokio::spawn(async move { axum::body::to_bytes(watching.into_body(), 1 << 20).await });

    // The platform makes it anew; its new agent has not been there yet.
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
        "spec": {"syncMode": "Pull"},
    });
    world.admin.post(CLUSTERS, &cluster).await.expect("the platform makes it");
    timeout(LIMIT, watching).await.expect("its watch has ended").expect("a task").expect("in order");
    for (method, path) in [
        (Method::GET, M1),
        (Method::DELETE, M1),
        (Method::GET, works),
        (Method::GET, "/api/v1/namespaces/karmada-cluster/secrets/m1"),
    ] {
        let (code, why) = world.ask(&old, method.clone(), path, &Value::Null).await;
        assert_eq!(code, 401, "{method} {path}: {why}");
    }
    assert_eq!(world.get(&world.newest().await).await.0, 200, "the new agent's counts");
    world.stop.cancel();
    running.await.expect("the controllers end").expect("in order");
    world.embedded.close().await.expect("all is written");
}

/// What the platform has made with its id bears no mark of who registered, and what else tells of the agent it can take back.
#[tokio::test]
async fn an_agent_that_takes_back_its_report_leaves_for_good_all_the_same() {
    let world = World::start().await;
    let agent = world.agent(0, DAY * 365);
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
        "spec": {"id": "u1", "syncMode": "Pull"},
    });
    world.admin.post(CLUSTERS, &cluster).await.expect("the platform makes it");
    let hub = world.embedded.hub(HubConfig::default(), &Env::system()).expect("controllers");
    let running = tokio::spawn(hub.run(world.stop.clone()));
    world.kept().await;
    for version in ["v1.36.0", ""] {
        let reporting = async {
            loop {
                let mut report = world.admin.get(M1).await.expect("it is there");
                report["status"] = json!({"kubernetesVersion": version});
                match world.ask(&agent, Method::PUT, &format!("{M1}/status"), &report).await {
                    (200, _) => break,
                    (code, why) => assert_eq!(code, 409, "{why}"),
                }
            }
        };
        timeout(LIMIT, reporting).await.expect("in time");
    }
    assert_eq!(world.ask(&agent, Method::DELETE, M1, &json!({})).await.0, 200);
    world.gone().await;
    let (code, why) = world.register(&agent).await;
    assert_eq!(code, 403, "another region and other labels by a new registration: {why}");
    world.stop.cancel();
    running.await.expect("the controllers end").expect("in order");
    world.embedded.close().await.expect("all is written");
}
