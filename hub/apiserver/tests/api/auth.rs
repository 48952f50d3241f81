//! Who asks, as whom, and what they may know of it.

use std::sync::Arc;

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Request;
use karmada_apiserver::{
    authn::{
        Authenticator, Peer, Tokens, UserInfo,
        accounts::{self, ServiceAccounts},
    },
    authz::{Attributes, Authorizer, Decision},
    pki::Pki,
};
use karmada_env::Env;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Answer, MAPS, Server, config_map, define};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAY_I: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const MAY_THEY: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

fn agent() -> UserInfo {
    UserInfo::new("system:karmada:agent:m1", ["system:karmada:agents"])
}

fn may(verb: &str, resource: &str, namespace: &str) -> Value {
    json!({"spec": {"resourceAttributes": {
        "verb": verb, "resource": resource, "group": "work.karmada.io", "namespace": namespace}}})
}

#[tokio::test(start_paused = true)]
async fn everyone_may_ask_who_they_are_and_what_they_may() {
    let server = Server::start().await;
    let ask = async |user: UserInfo, path: &str, body: Value| {
        server.send(Some(user), "POST", path, "application/json", &body).await
    };
    let who = ask(agent(), WHO, json!({})).await;
    assert_eq!(who.code, 201);
    assert_eq!(who.body["status"]["userInfo"]["username"], "system:karmada:agent:m1");
    for (namespace, allowed) in [("karmada-es-m1", true), ("karmada-es-m2", false)] {
        let answer = ask(agent(), MAY_I, may("list", "works", namespace)).await;
        assert_eq!((answer.code, &answer.body["status"]["allowed"]), (201, &json!(allowed)), "{namespace}");
    }
    let rules = ask(agent(), RULES, json!({"spec": {"namespace": "karmada-es-m1"}})).await;
    assert!(rules.body["status"]["resourceRules"].to_string().contains("\"works\""), "{rules:?}");
    let admins = ask(Server::admin(), RULES, json!({"spec": {"namespace": "default"}})).await;
    for (rules, incomplete) in [(&rules, true), (&admins, false)] {
        assert_eq!(rules.body["status"]["incomplete"], incomplete, "{rules:?}");
        let why = rules.body["status"]["evaluationError"].as_str().unwrap_or_default();
        assert_eq!(why.contains("CertificateSigningRequests"), incomplete, "{why}");
    }
    assert_eq!(ask(agent(), RULES, json!({"spec": {}})).await.code, 400);
    assert_eq!(ask(agent(), MAY_THEY, may("list", "works", "n")).await.code, 403);
    assert_eq!(ask(UserInfo::anonymous(), WHO, json!({})).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn an_administrator_asks_for_others() {
    let server = Server::start().await;
    let mut review = may("list", "works", "karmada-es-m1");
    review["spec"]["user"] = json!("system:karmada:agent:m1");
    let allowed = server.call("POST", MAY_THEY, review.clone()).await;
    assert_eq!((allowed.code, &allowed.body["status"]), (201, &json!({"allowed": false})), "groups count");
    review["spec"]["groups"] = json!(["system:karmada:agents"]);
    let allowed = server.call("POST", MAY_THEY, review.clone()).await;
    assert_eq!(allowed.body["status"], json!({"allowed": true}));
    review["spec"]["resourceAttributes"]["group"] = json!("cluster.karmada.io");
    review["spec"]["resourceAttributes"]["resource"] = json!("clusters");
    let selector = json!({"requirements": [{"key": "metadata.name", "operator": "In", "values": ["m1"]}]});
    for (selector, allowed) in [(Value::Null, false), (selector, true)] {
        review["spec"]["resourceAttributes"]["fieldSelector"] = selector;
        let answer = server.call("POST", MAY_THEY, review.clone()).await;
        assert_eq!(answer.body["status"]["allowed"], allowed, "{answer:?}");
    }
    review["metadata"] = json!({"name": "x"});
    let refused = server.call("POST", MAY_THEY, review).await;
    assert_eq!(refused.code, 422, "nothing is stored under a name: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_known_by_whoever_the_server_was_told_of() {
    let server = Server::start().await;
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let mut tokens = Tokens::new();
    tokens.insert("secret", UserInfo::new("u", ["g"]));
    server.api.authenticate_by(Authenticator::new(tokens, Env::system()));
    for (token, audiences, known) in
        [("secret", json!([]), true), ("secret", json!(["elsewhere"]), false), ("other", json!([]), false)]
    {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        let answer = server.call("POST", path, review).await;
        assert_eq!(answer.code, 201);
        assert_eq!(answer.body["status"]["authenticated"] == true, known, "{answer:?}");
    }
    assert_eq!(server.call("POST", path, json!({"spec": {}})).await.code, 400);
}

/// The answer to one who shows a token and no certificate.
async fn show(server: &Server, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let token = format!("Bearer {token}");
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let mut request = Server::request(method, path, &headers, body.to_string().into_bytes());
    request.extensions_mut().insert(Peer::None);
    server.answer(request).await
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_token_holds_as_long_as_its_secret_does() {
    let server = Server::start().await;
    let env = Env::seeded(server.clock.clone(), 7);
    server.api.authenticate_by(Authenticator::new(Tokens::new(), env));
    let (secrets, token) = ("/api/v1/namespaces/kube-system/secrets", "abcdef.0123456789abcdef");
    let ask = async || show(&server, token, "POST", WHO, &json!({})).await;
    assert_eq!(ask().await.code, 401, "there is none yet");
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": "2025-06-15T16:00:00Z",
            "usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:hub:m1"}});
    let made = server.call("POST", secrets, secret).await;
    assert_eq!(made.code, 201, "{made:?}");
    // Whoever has the answer finds it in force.
    let who = ask().await;
    assert_eq!(
        (who.code, &who.body["status"]["userInfo"]),
        (
            201,
            &json!({"username": "system:bootstrap:abcdef",
        "groups": ["system:bootstrappers", "system:bootstrappers:hub:m1", "system:authenticated"]})
        )
    );
    assert_eq!(show(&server, "abcdef.fedcba9876543210", "POST", WHO, &json!({})).await.code, 401);
    assert_eq!(show(&server, token, "GET", secrets, &Value::Null).await.code, 403, "it may ask for little");
    // Nobody learns from an answer what was wrong, or that there is such a token.
    let long = format!("abcdef.{}", "0123456789abcdef".repeat(512));
    let wrong = show(&server, "fedcba.0123456789abcdef", "POST", WHO, &json!({})).await;
    for malformed in [
        "abcdef",
        "abcdef.",
        ".0123456789abcdef",
        "abcdef.0123456789abcde",
        "abcdef.0123456789abcdef0",
        "abcdef.0123456789abcdef.0",
        "ABCDEF.0123456789abcdef",
        "abcdef.0123456789ABCDEF",
        "abcdef 0123456789abcdef",
        "..",
        "a.b.c",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06bWFzdGVycyJ9.",
        &long,
    ] {
        let refused = show(&server, malformed, "POST", WHO, &json!({})).await;
        assert_eq!((refused.code, &refused.body), (401, &wrong.body), "{malformed:.60}");
    }
    let review =
        server.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": token}}));
    assert_eq!(review.await.body["status"]["user"]["username"], "system:bootstrap:abcdef");

    let path = format!("{secrets}/bootstrap-token-abcdef");
    let usage = |value: &str| json!({"stringData": {"usage-bootstrap-authentication": value}});
    for (value, code) in [("false", 401), ("true", 201)] {
        assert_eq!(server.patch(&path, "merge", usage(value)).await.code, 200);
        assert_eq!(ask().await.code, code, "{value}");
    }
    server.clock.advance(std::time::Duration::from_secs(3_600));
    assert_eq!(ask().await.code, 401, "it has expired");
    server.patch(&path, "merge", json!({"stringData": {"expiration": ""}})).await;
    assert_eq!(ask().await.code, 201, "it does not end");
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code, 200);
    assert_eq!(ask().await.code, 401, "it has gone");
}

fn accounts(server: &Server) -> Authenticator {
    let (dir, env) = (tempfile::TempDir::new().unwrap(), Env::seeded(server.clock.clone(), 7));
    let pki = Pki::open_or_create(dir.path(), &[], &env).unwrap();
    let settings = accounts::Settings { ca_pem: pki.ca_pem(), ..accounts::Settings::default() };
    let accounts = ServiceAccounts::new(settings, pki.service_account_keys().unwrap());
    Authenticator::new(Tokens::new(), env).with_service_accounts(Arc::new(accounts))
}

#[tokio::test(start_paused = true)]
async fn a_service_account_gets_a_token_that_ends_with_it() {
    let server = Server::start().await;
    let (path, account) = ("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "a"}}));
    assert_eq!(server.call("POST", path, account.clone()).await.code, 201);
    let token_path = format!("{path}/a/token");
    let request = json!({"spec": {"expirationSeconds": 600}});
    assert_eq!(server.call("POST", &token_path, request.clone()).await.code, 404, "nobody issues tokens yet");
    assert_eq!(server.get("/openid/v1/jwks").await.code, 404);
    server.api.authenticate_by(accounts(&server));
    let made = server.call("POST", &token_path, request.clone()).await;
    assert_eq!((made.code, &made.body["kind"]), (201, &json!("TokenRequest")), "{made:?}");
    assert_eq!(made.body["metadata"]["managedFields"][0]["subresource"], "token");
    let token = made.body["status"]["token"].as_str().unwrap().to_owned();
    let ask = async || show(&server, &token, "POST", WHO, &json!({})).await;
    let who = ask().await;
    assert_eq!(who.body["status"]["userInfo"]["username"], "system:serviceaccount:default:a", "{who:?}");
    assert_eq!(show(&server, &token, "GET", MAPS, &Value::Null).await.code, 403);
    assert_eq!(show(&server, &token, "POST", &token_path, &request).await.code, 403, "it issues none itself");
    let review = json!({"spec": {"token": token, "audiences": ["elsewhere"]}});
    let review = server.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    let why = r#"[invalid bearer token, token audiences ["https://kubernetes.default.svc.cluster.local"] is invalid for the target audiences ["elsewhere"]]"#;
    assert_eq!(review.body["status"], json!({"user": {}, "error": why}));
    let keys = server.get("/openid/v1/jwks").await;
    assert_eq!((keys.code, &keys.body["keys"][0]["kty"]), (200, &json!("EC")), "{keys:?}");
    let about = server.get("/.well-known/openid-configuration").await;
    assert_eq!(about.body["id_token_signing_alg_values_supported"], json!(["ES256"]), "{about:?}");

    // Whoever has the answer finds it in force, and what was begun has ended.
    let allowed = Server::judged(Arc::new(Everyone)).await;
    allowed.api.authenticate_by(accounts(&allowed));
    assert_eq!(allowed.call("POST", path, account).await.code, 201);
    let made = allowed.call("POST", &token_path, request).await;
    let own = made.body["status"]["token"].as_str().unwrap().to_owned();
    let watched = format!("{path}?watch=1&resourceVersion=0");
    let mut watch =
        Server::request("GET", &watched, &[("authorization", &format!("Bearer {own}"))], Vec::new());
    watch.extensions_mut().insert(Peer::None);
    let watching = allowed.api.service().oneshot(watch).await.unwrap();
    assert_eq!(watching.status(), 200);
    assert_eq!(allowed.call("DELETE", &format!("{path}/a"), Value::Null).await.code, 200);
    let body = axum::body::to_bytes(watching.into_body(), usize::MAX);
    let body = tokio::time::timeout(std::time::Duration::from_secs(5), body).await;
    assert!(body.expect("the watch ends").is_ok());
    assert_eq!(show(&allowed, &own, "GET", MAPS, &Value::Null).await.code, 401);
    assert_eq!(server.call("DELETE", &format!("{path}/a"), Value::Null).await.code, 200);
    assert_eq!(ask().await.code, 401);
}

#[derive(Debug)]
struct Everyone;

impl Authorizer for Everyone {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allow
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_for_a_token_is_filled_and_goes_with_its_account() {
    let server = Server::start().await;
    let (accounts_path, secrets) =
        ("/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/secrets");
    let secret = |name: &str, account: &str| {
        json!({"metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token"})
    };
    server.call("POST", accounts_path, json!({"metadata": {"name": "a"}})).await;
    // One from before there was anybody to issue tokens.
    assert_eq!(server.call("POST", secrets, secret("early", "a")).await.code, 201);
    server.api.authenticate_by(accounts(&server));
    assert_eq!(server.call("POST", secrets, secret("late", "a")).await.code, 201);
    assert_eq!(server.call("POST", secrets, secret("stray", "nobody")).await.code, 201);
    let mut tokens = Vec::new();
    for name in ["early", "late"] {
        let path = format!("{secrets}/{name}");
        let filled = server.until(&path, |answer| answer.body["data"]["token"].is_string()).await;
        let data = |field: &str| {
            let bytes = STANDARD.decode(filled.body["data"][field].as_str().unwrap()).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert!(data("ca.crt").contains("BEGIN CERTIFICATE") && data("namespace") == "default");
        assert!(filled.body["metadata"]["annotations"]["kubernetes.io/service-account.uid"].is_string());
        let who = show(&server, &data("token"), "POST", WHO, &json!({})).await;
        assert_eq!(who.body["status"]["userInfo"]["username"], "system:serviceaccount:default:a", "{who:?}");
        tokens.push(data("token"));
    }
    server.until(&format!("{secrets}/stray"), |answer| answer.code == 404).await;
    // A token is the one that its Secret holds.
    let changed = json!({"data": {"token": STANDARD.encode("other")}});
    assert_eq!(server.patch(&format!("{secrets}/early"), "merge", changed).await.code, 200);
    assert_eq!(show(&server, &tokens[0], "POST", WHO, &json!({})).await.code, 401);
    assert_eq!(show(&server, &tokens[1], "POST", WHO, &json!({})).await.code, 201);
    server.call("DELETE", &format!("{accounts_path}/a"), Value::Null).await;
    assert_eq!(show(&server, &tokens[1], "POST", WHO, &json!({})).await.code, 401);
    server.until(&format!("{secrets}/late"), |answer| answer.code == 404).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_acts_as_another_has_the_rights_of_that_one() {
    let server = Server::start().await;
    let ask = async |user: UserInfo, name: &str, path: &str| {
        server.send_with(user, "GET", path, &[("impersonate-user", name)]).await
    };
    let refused = ask(Server::admin(), "u", MAPS).await;
    assert_eq!(refused.code, 403);
    let why = r#"configmaps is forbidden: User "u" cannot list resource "configmaps" in API group "" in the namespace "default""#;
    assert_eq!(refused.body["message"], why);
    assert_eq!(ask(Server::admin(), "u", "/version").await.code, 200);
    let agents = ask(agent(), "admin", "/version").await;
    assert_eq!(agents.code, 403, "agents act as nobody: {agents:?}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_request_says_who_made_it() {
    let server = Server::start().await;
    let request = json!({"metadata": {"name": "r"}, "spec": {"request": crate::certificates::REQUEST, "username": "somebody else",
        "signerName": "example.com/s", "usages": ["client auth"]}});
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made = server.call("POST", path, request).await;
    assert_eq!(made.body["spec"]["username"], "admin", "{made:?}");
    let changed = server.patch(&format!("{path}/r"), "merge", json!({"spec": {"username": "x"}})).await;
    assert_eq!((changed.code, &changed.body["spec"]["username"]), (200, &json!("admin")));
}

/// Whatever the agent of one cluster asks for, nothing of another one is shown or changed.
#[tokio::test(start_paused = true)]
async fn an_agent_gets_nothing_of_another_cluster_however_it_asks() {
    let server = Server::start().await;
    let names =
        json!({"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"});
    define(&server, "cluster.karmada.io", &names, "Cluster").await;
    let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
    for name in ["m1", "m2"] {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name}, "spec": {"mark": format!("of-{name}")}});
        assert_eq!(server.call("POST", clusters, cluster).await.code, 201);
    }
    let version = |server: &Server| {
        let kinds = server.api.kinds();
        let kind = kinds.by_resource("cluster.karmada.io", "v1alpha1", "clusters").unwrap();
        let key = karmada_apiserver::storage::key(kind, "", "m2");
        server.api.registry().store.get(&key).map(|object| object.revision)
    };
    let before = version(&server);
    let root = "/apis/cluster.karmada.io/v1alpha1";
    let paths = [
        "/clusters",
        "/clusters/m1",
        "/clusters/m2",
        "/clusters/m%32",
        "/watch/clusters",
        "/watch/clusters/m1",
        "/watch/clusters/m2",
        "/watch/clusters/m2/status",
        "/clusters//m2",
        "//clusters/m2",
        "/clusters/m2/",
        "/clusters/m1/../m2",
        "/clusters/m1%2F..%2Fm2",
        "/namespaces/m1/clusters/m2",
        "/namespaces/m1/clusters",
        "/clusters/m2/status",
        "/clusters/m2/scale",
        "/clusters/m2%00",
    ];
    let selectors = [
        "",
        "fieldSelector=metadata.name%3Dm1",
        "fieldSelector=metadata.name=m2",
        "fieldSelector=metadata.name!%3Dm1",
        "fieldSelector=metadata.name%3Dm1&fieldSelector=metadata.name%3Dm2",
        "fieldSelector=metadata.name%3Dm2&fieldSelector=metadata.name%3Dm1",
        "fieldSelector=metadata.name%3Dm1%2Cmetadata.name%3Dm2",
        "fieldSelector=metadata.namespace%3Dm1",
        "field%53elector=metadata.name%3Dm2",
        "fieldSelector=metadata.name%3Dm1%5C%2C",
        "fieldSelector=%2C",
        "labelSelector=metadata.name%3Dm1",
        "fieldSelector=metadata.name%3Dm1&resourceVersion=0",
        // `m0`: everything after it.
        "fieldSelector=metadata.name%3Dm1&limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoibTBcdTAwMDAifQ",
        "limit=1",
    ];
    let watches = [
        "",
        "watch=true",
        "watch=0",
        "watch=1&watch=0",
        "watch",
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    ];
    let mut served = 0;
    for path in paths {
        for selector in selectors {
            for watch in watches {
                let uri = format!("{root}{path}?timeoutSeconds=1&{selector}&{watch}");
                for method in ["GET", "HEAD"] {
                    let answer = server.send_with(agent(), method, &uri, &[]).await;
                    assert!(!answer.body.to_string().contains("of-m2"), "{method} {uri}: {answer:?}");
                    served += usize::from(answer.code == 200);
                }
            }
            for method in ["DELETE", "PUT", "PATCH", "POST"] {
                let uri = format!("{root}{path}?{selector}");
                // Its own can be deleted, and is wanted for the rest.
                if method == "DELETE" && matches!(path, "/clusters/m1") {
                    continue;
                }
                let headers = [("content-type", "application/merge-patch+json")];
                let body = br#"{"metadata":{"name":"m2"},"spec":{"mark":"x"}}"#.to_vec();
                let headers =
                    if method == "PATCH" { &headers[..] } else { &[("content-type", "application/json")] };
                server.send_body(agent(), method, &uri, headers, body).await;
                assert_eq!(version(&server), before, "{method} {uri}");
            }
        }
    }
    assert!(served > 50, "what is its own is shown: {served}");
    let uri = format!("{clusters}/m2?watch=true&fieldSelector=metadata.name%3Dm1");
    let refused = server.send_with(agent(), "GET", &uri, &[]).await;
    let why = "fieldSelector metadata.name doesn't match requested name";
    assert_eq!((refused.code, &refused.body["message"]), (400, &json!(why)));
}

/// Everyone may do everything, but only administrators may create.
#[derive(Debug)]
struct MayNotCreate;

impl Authorizer for MayNotCreate {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let admin = attributes.user.in_group("system:masters");
        if admin || attributes.verb != "create" { Decision::Allow } else { Decision::NoOpinion }
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_not_create_does_not_by_changing() {
    let server = Server::judged(Arc::new(MayNotCreate)).await;
    let changer = || UserInfo::new("changer", ["g"]);
    let apply = [("content-type", "application/apply-patch+yaml")];
    let map = |name: &str| config_map(name).to_string().into_bytes();
    let send = async |method: &str, name: &str, query: &str, headers: &[(&str, &str)]| {
        server.send_body(changer(), method, &format!("{MAPS}/{name}{query}"), headers, map(name)).await.code
    };
    assert_eq!(send("PATCH", "a", "?fieldManager=m", &apply).await, 403);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 404);
    assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 201);
    assert_eq!(send("PATCH", "a", "?fieldManager=m&force=true", &apply).await, 200);
    let posted =
        server.send_body(changer(), "POST", MAPS, &[("content-type", "application/json")], map("b")).await;
    assert_eq!(posted.code, 403);
    // A Lease is one of the kinds that a PUT creates.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({"metadata": {"name": "l", "namespace": "default"}, "spec": {}});
    let put =
        async |user: UserInfo| server.send(Some(user), "PUT", leases, "application/json", &lease).await.code;
    assert_eq!(put(changer()).await, 403);
    // Once it is there a PUT is a change, and this one does not say of which version.
    assert_eq!((put(Server::admin()).await, put(changer()).await), (201, 422));
}

#[tokio::test(start_paused = true)]
async fn a_peer_is_authenticated_here_and_what_does_not_hold_is_a_counted_401() {
    let server = Server::start().await;
    let mut tokens = Tokens::new();
    tokens.insert("secret", UserInfo::new("u", ["g"]));
    server.api.authenticate_by(Authenticator::new(tokens, Env::system()));
    let ask = async |peer: Option<Peer>, token: Option<&str>, path: &str| {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut request = request.body(Body::empty()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let response = server.api.service().oneshot(request).await.unwrap();
        assert!(response.headers().contains_key("audit-id"));
        response.status().as_u16()
    };
    let refused = || Some(Peer::Refused("unknown issuer".into()));
    let table = [
        (None, None, "/version", 401),
        (Some(Peer::None), None, "/version", 200),
        (Some(Peer::None), None, "/apis", 403),
        (Some(Peer::None), Some("secret"), "/apis", 200),
        (Some(Peer::None), Some("wrong"), "/version", 401),
        (refused(), None, "/version", 401),
        (refused(), Some("secret"), "/apis", 200),
        (refused(), Some("wrong"), "/apis/made/up/resources", 401),
    ];
    for (peer, token, path, code) in table {
        assert_eq!(ask(peer.clone(), token, path).await, code, "{peer:?} {token:?} {path}");
    }
    let figures = server.get("/metrics").await.body.as_str().unwrap().to_owned();
    for want in [
        "karmada_apiserver_unauthenticated_requests_total{reason=\"certificate_refused\"} 2",
        "karmada_apiserver_unauthenticated_requests_total{reason=\"token_unknown\"} 1",
        "apiserver_request_total{verb=\"GET\",group=\"\",resource=\"\",code=\"401\"} 3",
        "apiserver_request_total{verb=\"LIST\",group=\"other\",resource=\"other\",code=\"401\"} 1",
    ] {
        assert!(figures.contains(want), "{want} in {figures}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_renewal_is_judged_and_carried_out_as_what_it_stands_for() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
    let server = Server::start().await;
    let namespace = json!({"metadata": {"name": "karmada-cluster"}});
    assert_eq!(server.call("POST", "/api/v1/namespaces", namespace).await.code, 201);
    for name in ["a", "b"] {
        let lease = json!({"metadata": {"name": name, "namespace": "karmada-cluster"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}});
        assert_eq!(server.call("POST", LEASES, lease).await.code, 201);
    }
    let agent = || UserInfo::new("system:karmada:agent:a", ["system:karmada:agents", "system:authenticated"]);
    let version = async |name: &str| {
        let lease = server.get(&format!("{LEASES}/{name}")).await;
        lease.body["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    let renew = async |user: UserInfo, method: &str, name: &str, version: &str| {
        let path = format!("/karmada/renewals/{name}?v={version}&t=1795170972886356");
        server.send_body(user, method, &path, &[], Vec::new()).await.code
    };
    let (of_a, of_b) = (version("a").await, version("b").await);
    assert_eq!(renew(agent(), "PATCH", "b", &of_b).await, 403, "another cluster's");
    assert_eq!(renew(UserInfo::new("u", ["g"]), "PATCH", "a", &of_a).await, 403, "a user without rights");
    assert_eq!(renew(agent(), "PATCH", "a", &of_b).await, 409, "not the version that is there");
    assert_eq!(renew(Server::admin(), "PATCH", "c", "1").await, 404);
    for odd in ["x", "-1", ""] {
        assert_eq!(renew(Server::admin(), "PATCH", "a", odd).await, 404, "{odd:?} stands for nothing");
    }
    assert_eq!(renew(Server::admin(), "GET", "a", &of_a).await, 404);
    assert_eq!(version("a").await, of_a);

    assert_eq!(renew(agent(), "PATCH", "a", &of_a).await, 204);
    let lease = server.get(&format!("{LEASES}/a")).await.body;
    assert_eq!(lease["spec"]["renewTime"], "2026-11-20T10:36:12.886356Z");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(renew(agent(), "PATCH", "a", &of_a).await, 409, "it has a new version");
    assert_eq!(version("b").await, of_b);
}
