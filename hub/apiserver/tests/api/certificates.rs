//! Machines that join: from a bootstrap token to a certificate.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_apiserver::{
    authn::{Peer, PeerCertificate},
    certificates::Certifier,
    pki::Pki,
};
use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData as _, SanType};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tempfile::TempDir;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;

/// A request of user `cf-user` in group `cf-group`.
pub(crate) const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIZ01JR0hBZ0VBTUNVeEVUQVBCZ05WQkFvTUNHTm1MV2R5YjNWd01SQXdEZ1lEVlFRRERBZGpaaTExYzJWeQpNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUVaUFhieUF1L0F3elE1VGdFZENtRlVmS05rcDcyCldhZ0lyeFZjVmpKc1BNc0J2SEJwL0kwdU9wSW1ieGxuaTFQZE9oMzFsSjBaYko5NjdKQXRyVy83UWFBQU1Bb0cKQ0NxR1NNNDlCQU1DQTBnQU1FVUNJUUNIcE4vREE0WmRXUVc1cUJxRXcxRkJ6SUIxeHFKWjFaWjdBcVRGQlgrUwp4UUlnVkU1ekZ1bUJMWTZteGZpZGwxRHpudFZ6cXhRa3JtQlNJelNvWk1wM3FwOD0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const TOKENS: &str = "/api/v1/namespaces/kube-system/secrets";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const AGENTS: &str = "system:karmada:agents";

/// A server that signs.
async fn signing() -> (Server, TempDir) {
    let server = Server::start().await;
    let dir = TempDir::new().unwrap();
    let pki = Pki::open_or_create(dir.path(), &[], &Env::seeded(server.clock.clone(), 3)).unwrap();
    server.api.certify_by(Certifier::new(pki.signer().unwrap(), "https://hub.example.com:6443"));
    (server, dir)
}

fn joiner() -> UserInfo {
    UserInfo::new("system:bootstrap:abcdef", ["system:bootstrappers", "system:bootstrappers:hub:m1"])
}

fn agent(cluster: &str) -> UserInfo {
    UserInfo::new(format!("system:karmada:agent:{cluster}"), [AGENTS])
}

/// The same, who has shown a certificate of an epoch.
fn agent_of_epoch(cluster: &str, epoch: u64) -> UserInfo {
    let extra = [("hub.karmada.io/credential-epoch".to_owned(), vec![epoch.to_string()])];
    UserInfo { extra: extra.into(), ..agent(cluster) }
}

/// The record of the credentials of m1.
fn record(epoch: u64) -> Value {
    let annotations = json!({"hub.karmada.io/credential-epoch": epoch.to_string()});
    json!({"metadata": {"name": "agent.m1", "annotations": annotations}})
}

const RECORDS: &str = "/api/v1/namespaces/karmada-cluster/secrets";

fn request_of(key: &KeyPair, name: &str, group: &str, san: Option<&str>) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = san.map(|san| SanType::DnsName(san.try_into().unwrap())).into_iter().collect();
    STANDARD.encode(params.serialize_request(key).unwrap().pem().unwrap())
}

fn body(name: &str, request: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"request": request, "signerName": CLIENT,
        "usages": ["digital signature", "client auth"]}})
}

async fn token(server: &Server, annotations: Value) {
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef", "annotations": annotations},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true", "expiration": "2025-06-16T00:00:00Z",
            "auth-extra-groups": "system:bootstrappers:hub:m1"}});
    let made = server.call("POST", TOKENS, secret).await;
    assert_eq!(made.code, 201, "{made:?}");
}

async fn ask(server: &Server, user: UserInfo, body: &Value) -> Answer {
    let asked = server.send(Some(user), "POST", PATH, "application/json", body).await;
    assert_eq!(asked.code, 201, "{asked:?}");
    let name = body["metadata"]["name"].as_str().unwrap();
    server.until(&format!("{PATH}/{name}"), |answer| answer.body["status"] != json!({})).await
}

fn decided(answer: &Answer) -> (&str, &str) {
    let text = |field: &str| answer.body["status"]["conditions"][0][field].as_str().unwrap_or_default();
    (text("type"), text("message"))
}

#[tokio::test(start_paused = true)]
async fn a_token_lets_the_agent_of_its_cluster_in_once() {
    let (server, _dir) = signing().await;
    server.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "karmada-cluster"}})).await;
    assert_eq!(server.call("POST", RECORDS, record(7)).await.code, 201);
    token(&server, json!({"hub.karmada.io/uses-left": "1"})).await;
    let key = KeyPair::generate().unwrap();
    let request = request_of(&key, "system:karmada:agent:m1", AGENTS, None);
    let made = ask(&server, joiner(), &body("m1-aaaaa", &request)).await;
    assert_eq!(decided(&made).0, "Approved", "{made:?}");
    let pem = STANDARD.decode(made.body["status"]["certificate"].as_str().expect("a certificate")).unwrap();
    let der = CertificateDer::from_pem_slice(&pem).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let units: Vec<_> =
        certificate.subject().iter_organizational_unit().map(|u| u.as_str().unwrap()).collect();
    assert_eq!(units, ["epoch:7"]);
    assert_eq!(certificate.public_key().raw, key.subject_public_key_info());
    let now = 1_750_000_000;
    let validity = certificate.validity();
    assert_eq!(
        (validity.not_before.timestamp() - now, validity.not_after.timestamp() - now),
        (-300, 30 * 24 * 3600)
    );
    let peer = PeerCertificate::from_der(&der).unwrap();
    assert!(matches!(Peer::Certificate(Arc::new(peer)), Peer::Certificate(_)));
    // An answer that was lost: the same key again. Another key is one too many.
    let again = ask(&server, joiner(), &body("m1-bbbbb", &request)).await;
    assert_eq!(decided(&again).0, "Approved");
    let other = request_of(&KeyPair::generate().unwrap(), "system:karmada:agent:m1", AGENTS, None);
    let spent = ask(&server, joiner(), &body("m1-ccccc", &other)).await;
    assert_eq!(decided(&spent).0, "Denied");
    assert!(decided(&spent).1.contains("used as often as it may be"), "{spent:?}");
    let secret = server.call("GET", &format!("{TOKENS}/bootstrap-token-abcdef"), Value::Null).await;
    assert_eq!(secret.body["metadata"]["annotations"]["hub.karmada.io/uses-left"], "0");
    // Its agent renews, and no other asks for it.
    let renewed = ask(&server, agent_of_epoch("m1", 7), &body("m1-ddddd", &other)).await;
    assert!(renewed.body["status"]["certificate"].is_string(), "{renewed:?}");
    let stolen = ask(&server, agent("m2"), &body("m2-eeeee", &other)).await;
    assert!(decided(&stolen).1.contains("the agent of cluster \"m2\" asks for cluster \"m1\""), "{stolen:?}");
    for (method, name) in [("GET", "m2-eeeee"), ("POST", "m2-fffff")] {
        let path = if method == "GET" { format!("{PATH}/{name}") } else { PATH.to_owned() };
        let body = if method == "GET" { Value::Null } else { body(name, &other) };
        let refused = server.send(Some(agent("m1")), method, &path, "application/json", &body).await;
        assert_eq!(refused.code, 403, "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_token_may_not_ask_for_is_denied_with_the_reason() {
    let (server, _dir) = signing().await;
    token(&server, json!({})).await;
    let key = KeyPair::generate().unwrap();
    let m1 = "system:karmada:agent:m1";
    let good = request_of(&key, m1, AGENTS, None);
    let usages = |list: Value| {
        let mut body = body("x", &good);
        body["spec"]["usages"] = list;
        body
    };
    let rows = [
        (
            body("x", &request_of(&key, "system:karmada:agent:m2", AGENTS, None)),
            "is for cluster \"m1\", not for \"m2\"",
        ),
        (
            body("x", &request_of(&key, "system:karmada:agent:rbac-generator", AGENTS, None)),
            "is not agent-rbac-generator- with",
        ),
        (body("x", &request_of(&key, "admin", AGENTS, None)), "is not system:karmada:agent: with"),
        (body("x", &request_of(&key, m1, "dev", None)), "an agent has \"system:karmada:agents\" alone"),
        (body("x", &request_of(&key, m1, AGENTS, Some("hub.example.com"))), "alternative names"),
        (body("x", REQUEST), "is not system:karmada:agent: with"),
        (usages(json!(["client auth", "server auth"])), "invalid usage for client certificate: server auth"),
        (usages(json!(["digital signature"])), "missing required usage"),
    ];
    for (index, (mut body, want)) in rows.into_iter().enumerate() {
        body["metadata"]["name"] = format!("r{index}").into();
        let answer = ask(&server, joiner(), &body).await;
        let (sort, why) = decided(&answer);
        assert_eq!(sort, "Denied", "{want}: {answer:?}");
        assert!(why.contains(want), "{want}: {why}");
        assert!(answer.body["status"].get("certificate").is_none());
    }
    // Who asks for everything does not even get that far.
    let masters = body("masters", &request_of(&key, "x", "system:masters", None));
    let refused = server.send(Some(joiner()), "POST", PATH, "application/json", &masters).await;
    assert_eq!(refused.code, 403, "{refused:?}");
    assert!(
        refused.body["message"]
            .as_str()
            .unwrap()
            .ends_with("signer with system:masters group is not allowed")
    );
    // What nobody has asked by a token waits for people.
    server.call("POST", PATH, body("waits", REQUEST)).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let waits = server.call("GET", &format!("{PATH}/waits"), Value::Null).await;
    assert_eq!(waits.body["status"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_machine_finds_the_server_by_what_its_token_has_signed() {
    let (server, _dir) = signing().await;
    let path = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    token(&server, json!({})).await;
    let signed = server.until(path, |answer| answer.body["data"]["jws-kubeconfig-abcdef"].is_string()).await;
    let shown = server.send(Some(UserInfo::anonymous()), "GET", path, "", &Value::Null).await;
    assert_eq!((shown.code, &shown.body["data"]), (200, &signed.body["data"]));
    let text = shown.body["data"]["kubeconfig"].as_str().unwrap();
    assert!(text.contains("server: \"https://hub.example.com:6443\""), "{text}");
    let jws = shown.body["data"]["jws-kubeconfig-abcdef"].as_str().unwrap();
    // {"alg":"HS256","kid":"abcdef"}
    assert!(jws.starts_with("eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9.."), "{jws}");
    // What somebody breaks is mended.
    server.patch(path, "merge", json!({"data": {"kubeconfig": "x", "jws-kubeconfig-zzzzzz": "y"}})).await;
    let mended = server.until(path, |answer| answer.body["data"] == signed.body["data"]).await;
    assert_eq!(mended.code, 200);
    // Its time is up: it goes, and its signature with it.
    server.clock.advance(Duration::from_secs(48 * 3600));
    server.until(&format!("{TOKENS}/bootstrap-token-abcdef"), |answer| answer.code == 404).await;
    server.until(path, |answer| answer.body["data"].get("jws-kubeconfig-abcdef").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn requests_go_when_nobody_needs_them_any_more() {
    let (server, _dir) = signing().await;
    token(&server, json!({})).await;
    let key = KeyPair::generate().unwrap();
    let signed = request_of(&key, "system:karmada:agent:m1", AGENTS, None);
    ask(&server, joiner(), &body("signed", &signed)).await;
    server.call("POST", PATH, body("waits", REQUEST)).await;
    server.clock.advance(Duration::from_secs(3601));
    server.until_within(70, &format!("{PATH}/signed"), |answer| answer.code == 404).await;
    assert_eq!(server.call("GET", &format!("{PATH}/waits"), Value::Null).await.code, 200);
    server.clock.advance(Duration::from_secs(23 * 3600));
    server.until_within(70, &format!("{PATH}/waits"), |answer| answer.code == 404).await;
}

/// `somebody` may make and patch requests, and nothing else.
async fn somebody(server: &Server) -> UserInfo {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "asks"}, "rules": [{"apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"], "verbs": ["create", "patch"]}]});
    let binding = json!({"metadata": {"name": "asks"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
        "name": "jane"}], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "asks"}});
    assert_eq!(server.call("POST", &format!("{rbac}/clusterroles"), role).await.code, 201);
    assert_eq!(server.call("POST", &format!("{rbac}/clusterrolebindings"), binding).await.code, 201);
    UserInfo::new("jane", ["dev"])
}

#[tokio::test(start_paused = true)]
async fn nobody_says_who_has_asked_however_a_request_is_made() {
    let forge = |host: &str, _: &Value| {
        assert_eq!(host, "forger");
        let operations = json!([{"op": "add", "path": "/spec/username", "value": "system:karmada:agent:m1"},
            {"op": "add", "path": "/spec/groups", "value": [AGENTS]}]);
        Ok(
            json!({"allowed": true, "patch": STANDARD.encode(operations.to_string()), "patchType": "JSONPatch"}),
        )
    };
    let (server, _dir) = signing().await;
    let outside = webhooks::Outside::plain(forge);
    server.api.call_webhooks(outside.clone());
    let jane = somebody(&server).await;
    let request = request_of(&KeyPair::generate().unwrap(), "system:karmada:agent:m1", AGENTS, None);
    let forged = |name: &str| {
        let mut body = body(name, &request);
        body["apiVersion"] = "certificates.k8s.io/v1".into();
        body["kind"] = "CertificateSigningRequest".into();
        body["spec"]["username"] = "system:karmada:agent:m1".into();
        body["spec"]["groups"] = json!([AGENTS]);
        body["spec"]["uid"] = "u".into();
        body["spec"]["extra"] = json!({"hub.karmada.io/credential-epoch": ["9"]});
        body
    };
    for (name, webhook) in
        [("posted", false), ("applied", false), ("posted-hook", true), ("applied-hook", true)]
    {
        if webhook && name.starts_with("posted") {
            let rules = json!([{"operations": ["CREATE"], "apiGroups": ["certificates.k8s.io"], "apiVersions": ["v1"],
                "resources": ["certificatesigningrequests"]}]);
            let hook = webhooks::webhook("forger", json!({"rules": rules}));
            let hooks = webhooks::configuration("Mutating", "forger", &[hook]);
            assert_eq!(server.call("POST", &webhooks::path("Mutating"), hooks).await.code, 201);
        }
        let made = if name.starts_with("posted") {
            server.send(Some(jane.clone()), "POST", PATH, "application/json", &forged(name)).await
        } else {
            let path = format!("{PATH}/{name}?fieldManager=m");
            server
                .send(Some(jane.clone()), "PATCH", &path, "application/apply-patch+yaml", &forged(name))
                .await
        };
        assert_eq!(made.code, 201, "{name}: {made:?}");
        let spec = &made.body["spec"];
        assert_eq!(
            (&spec["username"], &spec["groups"][0]),
            (&json!("jane"), &json!("dev")),
            "{name}: {spec}"
        );
        assert!(spec.get("uid").is_none() && spec.get("extra").is_none(), "{name}: {spec}");
    }
    // One that is signed comes after them.
    let own = ask(&server, agent("m1"), &body("m1-aaaaa", &request)).await;
    assert_eq!(decided(&own).0, "Approved");
    for name in ["posted", "applied", "posted-hook", "applied-hook"] {
        let waits = server.get(&format!("{PATH}/{name}")).await;
        assert_eq!(waits.body["status"], json!({}), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_lets_nobody_in_once_the_credentials_of_its_cluster_have_ended() {
    let (server, _dir) = signing().await;
    server.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "karmada-cluster"}})).await;
    token(&server, json!({"hub.karmada.io/uses-left": "2"})).await;
    let of = |key: &KeyPair| request_of(key, "system:karmada:agent:m1", AGENTS, None);
    let (one, two) = (of(&KeyPair::generate().unwrap()), of(&KeyPair::generate().unwrap()));
    assert_eq!(decided(&ask(&server, joiner(), &body("m1-aaaaa", &one)).await).0, "Approved");
    let mut ended = record(1_750_000_000);
    ended["metadata"]["annotations"]["hub.karmada.io/credential-issued-by"] = Value::Null;
    assert_eq!(server.patch(&format!("{RECORDS}/agent.m1"), "merge", ended).await.code, 200);
    for (name, request) in [("m1-bbbbb", &one), ("m1-ccccc", &two)] {
        let late = ask(&server, joiner(), &body(name, request)).await;
        assert_eq!(decided(&late).0, "Denied", "{late:?}");
        assert!(decided(&late).1.contains("before the credentials of cluster \"m1\" were ended"), "{late:?}");
    }
    // Its agent's request that came in before, and one by a credential of the epoch that counts.
    let stale = ask(&server, agent("m1"), &body("m1-ddddd", &one)).await;
    assert_eq!(decided(&stale).0, "Denied", "{stale:?}");
    let fresh = ask(&server, agent_of_epoch("m1", 1_750_000_000), &body("m1-eeeee", &one)).await;
    assert_eq!(decided(&fresh).0, "Approved", "{fresh:?}");
    // What an operator makes now is meant for now. Nobody says that it were of later.
    let path = format!("{TOKENS}/bootstrap-token-abcdef");
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code, 200);
    token(&server, json!({"hub.karmada.io/credential-epoch": "99999999999"})).await;
    let annotations = server.get(&path).await.body["metadata"]["annotations"].clone();
    assert_eq!(annotations["hub.karmada.io/credential-epoch"], "1750000000");
    assert_eq!(decided(&ask(&server, joiner(), &body("m1-fffff", &two)).await).0, "Approved");
}

#[tokio::test(start_paused = true)]
async fn a_token_lets_nobody_into_a_cluster_whose_agent_came_after_it() {
    let (server, _dir) = signing().await;
    let names =
        json!({"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"});
    define(&server, "cluster.karmada.io", &names, "Cluster").await;
    token(&server, json!({})).await;
    let of = |key: &KeyPair| request_of(key, "system:karmada:agent:m1", AGENTS, None);
    let (one, two) = (of(&KeyPair::generate().unwrap()), of(&KeyPair::generate().unwrap()));
    let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
    let made = server.call(
        "POST",
        clusters,
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "m1"}}),
    );
    assert_eq!(made.await.code, 201);
    // Made for an agent yet to come.
    assert_eq!(decided(&ask(&server, joiner(), &body("m1-aaaaa", &one)).await).0, "Approved");
    let reported = json!({"status": {"kubernetesVersion": "v1.30.0"}});
    assert_eq!(server.patch(&format!("{clusters}/m1"), "merge", reported).await.code, 200);
    assert_eq!(decided(&ask(&server, joiner(), &body("m1-bbbbb", &one)).await).0, "Approved", "its own key");
    let other = ask(&server, joiner(), &body("m1-ccccc", &two)).await;
    assert_eq!(decided(&other).0, "Denied", "{other:?}");
    assert!(decided(&other).1.contains("before the agent of cluster \"m1\" registered"), "{other:?}");
    // Whoever wants another one makes a token for it.
    assert_eq!(
        server.call("DELETE", &format!("{TOKENS}/bootstrap-token-abcdef"), Value::Null).await.code,
        200
    );
    token(&server, json!({})).await;
    assert_eq!(decided(&ask(&server, joiner(), &body("m1-ddddd", &two)).await).0, "Approved");
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_asks_for_is_small_and_for_clients_and_kept_by_nobody() {
    let (server, _dir) = signing().await;
    let good = request_of(&KeyPair::generate().unwrap(), "system:karmada:agent:m1", AGENTS, None);
    let pem = STANDARD.decode(&good).unwrap();
    let padded = STANDARD.encode([vec![b'\n'; 70 * 1024], pem].concat());
    let with = |part: &str, field: &str, value: Value| {
        let mut body = body("m1-aaaaa", &good);
        body[part][field] = value;
        body
    };
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}]);
    let rows = [
        (with("spec", "request", padded.into()), 422, "spec.request: Too long"),
        (with("spec", "signerName", json!("example.com/x")), 403, "only"),
        (with("metadata", "finalizers", json!(["a.example.com/b"])), 403, "metadata.finalizers"),
        (with("metadata", "ownerReferences", owner), 403, "metadata.ownerReferences"),
        (with("metadata", "annotations", json!({"a": "x".repeat(5000)})), 403, "5001 bytes"),
        (with("metadata", "labels", json!({"a": "x"})), 201, ""),
    ];
    for (index, (mut body, code, part)) in rows.into_iter().enumerate() {
        for user in [joiner(), agent("m1")] {
            body["metadata"]["name"] =
                format!("m1-{}{index}", if user == joiner() { "aaaa" } else { "bbbb" }).into();
            let made = server.send(Some(user), "POST", PATH, "application/json", &body).await;
            assert_eq!(made.code, code, "{part}: {made:?}");
            assert!(part.is_empty() || made.body["message"].as_str().unwrap().contains(part), "{made:?}");
        }
    }
    // Nor does anybody else store what is too long to be a request.
    let mut long = body("long", &"A".repeat(70 * 1024));
    assert_eq!(server.call("POST", PATH, long.clone()).await.code, 422);
    long["spec"]["request"] = good.into();
    long["spec"]["signerName"] = "example.com/x".into();
    assert_eq!(server.call("POST", PATH, long).await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn one_machine_that_asks_on_and_on_keeps_no_other_from_asking() {
    let (server, _dir) = signing().await;
    token(&server, json!({})).await;
    let request = request_of(&KeyPair::generate().unwrap(), "system:karmada:agent:m2", AGENTS, None);
    for (user, prefix, most) in [(joiner(), "t", 1000), (agent("m1"), "m1", 500)] {
        let mut made = 0;
        let refused = loop {
            let body = body(&format!("{prefix}-{made:05}"), &request);
            let answer = server.send(Some(user.clone()), "POST", PATH, "application/json", &body).await;
            if answer.code != 201 {
                break answer;
            }
            made += 1;
            assert!(made < most, "{prefix}: there is an end to it");
        };
        assert_eq!(refused.code, 429, "{refused:?}");
        assert!(
            refused.body["message"].as_str().unwrap().contains("requests for certificates of"),
            "{refused:?}"
        );
        assert!(made > 40, "{prefix}: {made}");
    }
    let renewed = ask(&server, agent("m2"), &body("m2-aaaaa", &request)).await;
    assert_eq!(decided(&renewed).0, "Approved", "{renewed:?}");
    // What was denied goes in ten minutes, and whoever has come to their senses is served.
    server.clock.advance(Duration::from_secs(601));
    server.until_within(70, &format!("{PATH}/m1-00000"), |answer| answer.code == 404).await;
    let own = request_of(&KeyPair::generate().unwrap(), "system:karmada:agent:m1", AGENTS, None);
    let own = ask(&server, agent("m1"), &body("m1-zzzzz", &own)).await;
    assert_eq!(decided(&own).0, "Approved", "{own:?}");
}

#[tokio::test]
async fn the_audit_log_has_who_was_let_in_and_by_what() {
    let (server, _dir) = signing().await;
    let told = audit::Told::over(
        server,
        "omitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [update]}]",
    );
    token(&told.server, json!({"hub.karmada.io/uses-left": "1"})).await;
    let request = request_of(&KeyPair::generate().unwrap(), "system:karmada:agent:m1", AGENTS, None);
    assert_eq!(decided(&ask(&told.server, joiner(), &body("m1-aaaaa", &request)).await).0, "Approved");
    let events = told.all().await;
    let mut told: Vec<String> = Vec::new();
    for event in events.iter().filter(|event| event["user"]["username"] == "system:certificate-controller") {
        let object = |field: &str| event["objectRef"][field].as_str().unwrap_or_default();
        told.push(format!("{} {}/{}", object("resource"), object("name"), object("subresource")));
        assert_eq!(
            (&event["stage"], &event["responseStatus"]["code"]),
            (&json!("ResponseComplete"), &json!(200))
        );
    }
    told.sort();
    let name = "certificatesigningrequests m1-aaaaa";
    assert_eq!(
        told,
        [format!("{name}/approval"), format!("{name}/status"), "secrets bootstrap-token-abcdef/".to_owned()]
    );
    let uris: Vec<&Value> = events.iter().map(|event| &event["requestURI"]).collect();
    let secret = format!("{TOKENS}/bootstrap-token-abcdef");
    assert!(
        uris.contains(&&json!(secret)) && uris.contains(&&json!(format!("{PATH}/m1-aaaaa/status"))),
        "{uris:?}"
    );
}
