use karmada_api::consts::subject;
use karmada_apiserver::{
    authn::{Authenticator, Peer, Tokens},
    pki::Credential,
};
use karmada_client::Rest;
use karmada_core::names;
use karmada_env::ManualClock;
use karmada_store::engine::Memory;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use tower::ServiceExt as _;

use super::*;
use crate::engine::embedded::Embedded;

const HOUR: Duration = Duration::from_secs(3600);

struct World {
    rotation: Arc<Rotation>,
    embedded: Embedded,
    rest: Rest,
    clock: ManualClock,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let (dir, real, stop) = (tempfile::tempdir().unwrap(), Env::system(), CancellationToken::new());
        let clock = ManualClock::new(real.wall());
        let env = Env::seeded(clock.clone(), 1);
        let pki = Arc::new(Pki::open_or_create(dir.path(), &[], &env).unwrap());
        let embedded = Embedded::start(Memory::new(), &env, stop.clone()).await.unwrap();
        let settings = Settings { ca_pem: pki.ca_pem(), ..Settings::default() };
        token_ends(&pki, &settings, true, env.wall()).unwrap();
        let accounts = ServiceAccounts::new(settings.clone(), pki.service_account_keys().unwrap());
        let known = Authenticator::new(Tokens::new(), env.clone()).with_service_accounts(Arc::new(accounts));
        embedded.server().authenticate_by(known);
        let url = "https://hub.example.com:6443".to_owned();
        embedded.server().certify_by(Certifier::new(pki.signer().unwrap(), url.clone()));
        let tls = Tls::new(&pki, &env).unwrap();
        let (server, store) = (embedded.server().clone(), embedded.store().clone());
        let lasting = HOUR;
        let rotation = Arc::new(Rotation { pki, tls, server, store, settings, url, lasting, env });
        let rest = Rest::new(embedded.client());
        Self { rotation, embedded, rest, clock, stop, _dir: dir }
    }

    async fn ask(&self, step: Option<Value>) -> Value {
        let request = match &step {
            None => Request::get(PATH).body(Body::empty()),
            Some(step) => Request::post(PATH).body(Body::from(step.to_string())),
        };
        let answer = self.rotation.answer(request.unwrap()).await.unwrap();
        serde_json::from_slice(&to_bytes(answer.into_body(), 1 << 20).await.unwrap()).unwrap()
    }

    async fn step(&self, what: What, force: bool) -> Value {
        self.ask(Some(json!({"what": what.as_str(), "force": force}))).await
    }

    /// The agent of a cluster shows a certificate.
    async fn shows(&self, cluster: &str) -> StatusCode {
        let pki = &self.rotation.pki;
        let credential = pki.issue_agent(&names::agent_user(cluster), subject::AGENTS, 0, HOUR).unwrap();
        self.with(&credential, cluster).await
    }

    async fn with(&self, credential: &Credential, cluster: &str) -> StatusCode {
        let der = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).unwrap();
        let peer =
            Peer::Certificate(Arc::new(karmada_apiserver::authn::PeerCertificate::from_der(&der).unwrap()));
        let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}");
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(peer);
        self.embedded.server().service().oneshot(request).await.unwrap().status()
    }

    async fn token(&self, seconds: i64) -> String {
        let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}});
        let issued: Value = self.rest.post(path, &asked).await.unwrap();
        issued["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Whether a token lets in.
    async fn holds(&self, token: &str) -> bool {
        let request = Request::get("/version").header("authorization", format!("Bearer {token}"));
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer::None);
        self.embedded.server().service().oneshot(request).await.unwrap().status() == StatusCode::OK
    }

    async fn stop(self) {
        self.stop.cancel();
        drop(self.rotation);
        self.embedded.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_old_authority_goes_when_all_clusters_have_left_it() {
    let world = World::start().await;
    for name in ["m1", "m2"] {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"syncMode": "Pull", "id": name}});
        world.rest.post("/apis/cluster.karmada.io/v1alpha1/clusters", &cluster).await.unwrap();
        assert_eq!(world.shows(name).await, StatusCode::OK);
    }
    assert_eq!(world.ask(None).await["authority"]["behind"], json!([]));
    let introduced = world.step(What::Authority, false).await;
    assert_eq!(introduced["authority"]["stage"], "introduced");
    let changed = world.step(What::Authority, false).await;
    assert_eq!((&changed["authority"]["stage"], &changed["refused"]), (&json!("changed"), &Value::Null));
    let behind = json!([{"cluster": "m1", "certificate": "old"}, {"cluster": "m2", "certificate": "old"}]);
    assert_eq!(changed["authority"]["behind"], behind);
    world.shows("m1").await;
    let refused = world.step(What::Authority, false).await;
    assert_eq!(refused["authority"]["stage"], "changed");
    let why = refused["refused"].as_str().unwrap();
    assert!(why.starts_with("1 of 2 clusters have no certificate of the new authority: m2 (old). "), "{why}");
    world.shows("m2").await;
    let done = world.step(What::Authority, false).await;
    assert_eq!((&done["authority"]["stage"], &done["authority"]["other"]), (&json!("settled"), &Value::Null));

    // Who joins finds the one that is left.
    let one = world.rotation.pki.ca_pem();
    let published = async {
        loop {
            let map: Value = world
                .rest
                .get("/api/v1/namespaces/kube-public/configmaps/cluster-info")
                .await
                .unwrap_or_default();
            if map["data"]["kubeconfig"].as_str().is_some_and(|text| text.contains(&STANDARD.encode(&one))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), published).await.expect("cluster-info follows");

    // By force it is done at once.
    for stage in ["introduced", "changed", "settled"] {
        assert_eq!(world.step(What::Authority, true).await["authority"]["stage"], stage);
    }
    world.stop().await;
}

#[tokio::test]
async fn the_old_key_of_tokens_goes_when_they_have_ended() {
    let world = World::start().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    world.rest.post("/api/v1/namespaces/default/serviceaccounts", &account).await.unwrap();
    let old = world.token(7200).await;
    for stage in ["introduced", "changed"] {
        assert_eq!(world.step(What::ServiceAccounts, false).await["serviceAccounts"]["stage"], stage);
        assert!(world.holds(&old).await, "{stage}");
    }
    let new = world.token(36_000).await;
    assert!(
        world.holds(&new).await
            && ServiceAccounts::key_of(new.as_bytes()) != ServiceAccounts::key_of(old.as_bytes())
    );
    let refused = world.step(What::ServiceAccounts, false).await;
    assert!(
        refused["refused"].as_str().unwrap().starts_with("tokens of the old key may hold until "),
        "{refused}"
    );
    world.clock.advance(HOUR * 2 + LEEWAY);
    let done = world.step(What::ServiceAccounts, false).await;
    assert_eq!((&done["serviceAccounts"]["stage"], &done["refused"]), (&json!("settled"), &Value::Null));
    assert!(world.holds(&new).await && !world.holds(&old).await);

    // By force they end at once.
    for stage in ["introduced", "changed", "settled"] {
        assert_eq!(world.step(What::ServiceAccounts, true).await["serviceAccounts"]["stage"], stage);
    }
    assert!(!world.holds(&new).await);
    world.stop().await;
}

#[test]
fn of_tokens_of_before_nothing_is_known_for_a_year() {
    let (dir, env) = (tempfile::tempdir().unwrap(), Env::system());
    let pki = Pki::open_or_create(dir.path(), &[], &env).unwrap();
    let key = pki.service_account_keys().unwrap()[0].id().to_owned();
    let end = |fresh: bool, longest: Option<Duration>| {
        let settings = Settings { longest, ..Settings::default() };
        token_ends(&pki, &settings, fresh, SystemTime::UNIX_EPOCH).unwrap();
        settings.ends.all()[&key]
    };
    assert_eq!(end(true, None), 0);
    assert_eq!(end(false, None), 365 * 86_400);
    assert_eq!(end(false, Some(HOUR)), 3600);
    pki.write_private(&pki.token_ends_file(), &json!({&*key: 77}).to_string()).unwrap();
    assert_eq!(end(false, None), 77);
    pki.write_private(&pki.token_ends_file(), "x").unwrap();
    assert!(token_ends(&pki, &Settings::default(), false, SystemTime::UNIX_EPOCH).is_err());
}
