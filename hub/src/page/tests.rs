//! The page behind the hub's API, in one process: who gets in, by what, and what they see.

#![allow(clippy::needless_pass_by_value, reason = "bodies read better where they are sent")]

use std::{sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use futures::future::BoxFuture;
use http::{Request, Response};
use karmada_apiserver::{
    authn::{Authenticator, Peer, PeerCertificate, Tokens, oidc},
    pki::Pki,
};
use karmada_client::{Patch, Rest};
use karmada_env::{Env, ManualClock};
use karmada_meta::time::Time;
use karmada_store::engine::Memory;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::*;
use crate::{HubConfig, engine::embedded::Embedded};

mod acts;

const HOST: (&str, &str) = ("host", "hub.example:6443");
/// What a browser adds where the page itself asks, and what the page adds.
const PAGE: [(&str, &str); 3] = [HOST, ("sec-fetch-site", "same-origin"), ("x-karmada-ui", "1")];
const CLUSTERS_PATH: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
/// A machine under load is slow.
const LIMIT: Duration = Duration::from_secs(60);

struct World {
    stop: CancellationToken,
    embedded: Embedded,
    admin: Rest,
    page: Arc<Page>,
    /// By what certificate the browser connects.
    peer: Peer,
}

impl World {
    async fn start() -> Self {
        Self::with(None).await
    }

    async fn with(issuer: Option<Issuer>) -> Self {
        Self::of(issuer, HubConfig::default()).await
    }

    async fn of(issuer: Option<Issuer>, config: HubConfig) -> Self {
        let (stop, env) = (CancellationToken::new(), Env::system());
        let embedded = Embedded::start(Memory::new(), &env, stop.clone()).await.expect("a hub's API");
        let mut tokens = Tokens::new();
        tokens.insert("root", UserInfo::new("root", ["system:masters"]));
        tokens.insert("looker", UserInfo::new("looker", ["lookers"]));
        tokens.insert("guest", UserInfo::new("guest", ["guests"]));
        tokens.insert("agent", UserInfo::new("system:karmada:agent:m1", ["system:karmada:agents"]));
        embedded.server().authenticate_by(Authenticator::new(tokens, env.clone()));
        let hub = embedded.hub(config, &env).expect("controllers");
        let names = vec!["hub.example".to_owned()];
        let page = Page::new(embedded.server().handle(), names, hub.eyes(), issuer, &env, stop.clone());
        embedded.server().sessions_of(page.sessions());
        embedded.server().add_paths(&page.paths());
        tokio::spawn(hub.run(stop.clone()));
        Self { admin: Rest::new(embedded.client()), stop, embedded, page, peer: Peer::None }
    }

    async fn send(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: Value) -> Response<Body> {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request =
            headers.iter().fold(Request::builder().method(method).uri(uri), |request, (name, value)| {
                request.header(*name, *value)
            });
        let mut request = request.body(body).expect("a request");
        request.extensions_mut().insert(self.peer.clone());
        timeout(LIMIT, self.embedded.server().service().oneshot(request))
            .await
            .expect("in time")
            .expect("an answer")
    }

    /// A cluster's agent says this of it.
    async fn say(&self, cluster: &str, status: &Value) {
        let path = format!("{CLUSTERS_PATH}/{cluster}/status");
        self.admin.patch(&path, Patch::Merge, status).await.expect("its status");
    }

    /// Logs in by a token; the cookie.
    async fn log_in(&self, token: &str) -> String {
        let answer = self.send("POST", "/ui/session", &PAGE, json!({"token": token})).await;
        assert_eq!(answer.status().as_u16(), 200);
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        for part in ["__Host-ui=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        cookie.split(';').next().unwrap().to_owned()
    }

    async fn get(&self, uri: &str, cookie: &str) -> (u16, Value) {
        let headers: Vec<_> = PAGE.iter().copied().chain([("cookie", cookie)]).collect();
        read(self.send("GET", uri, &headers, Value::Null).await).await
    }

    /// Waits until an answer is as wanted.
    async fn until(&self, uri: &str, cookie: &str, is: impl Fn(&Value) -> bool) -> Value {
        let looking = async {
            loop {
                let (code, value) = self.get(uri, cookie).await;
                if code == 200 && is(&value) {
                    return value;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(LIMIT, looking).await.unwrap_or_else(|_| panic!("{uri}: not in time"))
    }
}

async fn read(answer: Response<Body>) -> (u16, Value) {
    let code = answer.status().as_u16();
    let bytes = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gets_in_and_by_what() {
    let world = World::start().await;
    // Files and the login are everybody's, with all that keeps other pages out.
    let document = world.send("GET", "/ui", &[HOST, ("sec-fetch-site", "none")], Value::Null).await;
    assert_eq!(document.status().as_u16(), 200);
    for (name, value) in [
        ("content-security-policy", headers::POLICY),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(document.headers()[name], value, "{name}");
    }
    let file = format!("/ui/a/{}/app.js", assets::digest());
    let file = world.send("GET", &file, &[HOST], Value::Null).await;
    assert_eq!((file.status().as_u16(), &file.headers()["cache-control"]), (200, &FOR_EVER.parse().unwrap()));
    assert_eq!(world.send("GET", "/ui/a/0/app.js", &[HOST], Value::Null).await.status().as_u16(), 404);
    // Not by a name that somebody has bound to this address.
    for host in ["evil.example:6443", "hub.example.evil.example"] {
        assert_eq!(
            world.send("GET", "/ui", &[("host", host)], Value::Null).await.status().as_u16(),
            400,
            "{host}"
        );
    }
    assert_eq!(
        world.send("GET", "/ui", &[("host", "127.0.0.1:6443")], Value::Null).await.status().as_u16(),
        200
    );

    // Nobody, a wrong token, another's page.
    let (code, who) = world.get("/ui/session", "").await;
    assert_eq!((code, &who["user"]), (200, &Value::Null));
    assert_eq!(world.get("/ui/api/fleet", "").await.0, 403);
    for (headers, body, code) in [
        (&PAGE[..], json!({"token": "nonsense"}), 401),
        (&PAGE[..], json!({}), 401),
        (&PAGE[..], json!({"ticket": "nonsense"}), 401),
        (&PAGE[..2], json!({"token": "root"}), 400),
        (&[HOST, ("sec-fetch-site", "cross-site"), ("x-karmada-ui", "1")], json!({"token": "root"}), 400),
    ] {
        let answer = world.send("POST", "/ui/session", headers, body.clone()).await;
        assert!(
            answer.status().as_u16() == code && !answer.headers().contains_key("set-cookie"),
            "{headers:?} {body}"
        );
    }

    // A cookie counts for the page alone, and for nothing but the page.
    let cookie = world.log_in("root").await;
    assert_eq!(world.get("/ui/session", &cookie).await.1["user"], "root");
    let with =
        |headers: &[(&'static str, &'static str)]| -> Vec<(&'static str, &'static str)> { headers.to_vec() };
    for headers in [
        with(&[HOST]),
        with(&PAGE[..2]),
        with(&[HOST, PAGE[2]]),
        with(&[("host", "evil.example"), PAGE[1], PAGE[2]]),
    ] {
        let mut headers: Vec<(&str, &str)> = headers;
        headers.push(("cookie", &cookie));
        let code = world.send("GET", "/ui/api/fleet", &headers, Value::Null).await.status().as_u16();
        assert_eq!(code, 403, "{headers:?}");
    }
    assert_eq!(world.get(CLUSTERS_PATH, &cookie).await.0, 403, "the API takes no cookies");
    assert_eq!(world.get("/ui/api/fleet", &cookie).await.0, 200);

    // An address that is good once, for whoever shows a credential.
    let bearer = [HOST, ("authorization", "Bearer root")];
    let (code, ticket) = read(world.send("POST", "/ui/ticket", &bearer, json!({})).await).await;
    assert_eq!(code, 200);
    let body = json!({"ticket": ticket["ticket"]});
    let first = world.send("POST", "/ui/session", &PAGE, body.clone()).await;
    assert_eq!(first.status().as_u16(), 200);
    assert_eq!(world.send("POST", "/ui/session", &PAGE, body).await.status().as_u16(), 401);
    assert_eq!(world.send("POST", "/ui/ticket", &[HOST], json!({})).await.status().as_u16(), 403);
    // What the page reads would be told of as if nobody stood behind it.
    let as_other = [HOST, ("authorization", "Bearer root"), ("impersonate-user", "guest")];
    for (method, uri) in
        [("GET", "/ui/api/apps"), ("POST", "/ui/api/drain?cluster=m"), ("POST", "/ui/ticket")]
    {
        assert_eq!(world.send(method, uri, &as_other, Value::Null).await.status().as_u16(), 400, "{uri}");
    }
    // The button of a tab where nobody was logged in yet, when somebody is.
    let headers: Vec<_> = PAGE.iter().copied().chain([("cookie", cookie.as_str())]).collect();
    let (code, who) = read(world.send("POST", "/ui/session", &headers, json!({})).await).await;
    assert_eq!((code, &who["user"]), (200, &json!("root")));
    assert_eq!(world.get("/ui/api/fleet", &cookie).await.0, 200);
    // Agents have no business here.
    let agent = world.log_in("agent").await;
    assert_eq!(world.get("/ui/api/fleet", &agent).await.0, 403);

    // Who opened a session by a token has it for as long as the token holds.
    let guest = world.log_in("guest").await;
    assert_eq!(world.get("/ui/session", &guest).await.1["user"], "guest");
    let bearer = [HOST, ("authorization", "Bearer guest")];
    let ticket = read(world.send("POST", "/ui/ticket", &bearer, json!({})).await).await.1["ticket"].clone();
    let answer = world.send("POST", "/ui/session", &PAGE, json!({"ticket": ticket})).await;
    let by_address = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(world.get("/ui/session", &by_address).await.1["user"], "guest");
    let mut tokens = Tokens::new();
    tokens.insert("root", UserInfo::new("root", ["system:masters"]));
    tokens.insert("guest", UserInfo::new("somebody-else", ["guests"]));
    world.embedded.server().authenticate_by(Authenticator::new(tokens, Env::system()));
    for cookie in [&guest, &by_address] {
        assert_eq!(world.get("/ui/session", cookie).await.1["user"], Value::Null);
    }
    assert_eq!(world.get("/ui/api/fleet", &agent).await.0, 403);
    assert_eq!(world.get("/ui/api/fleet", &cookie).await.0, 200);

    // Logged out is out.
    let headers: Vec<_> = PAGE.iter().copied().chain([("cookie", cookie.as_str())]).collect();
    assert_eq!(world.send("DELETE", "/ui/session", &headers, Value::Null).await.status().as_u16(), 200);
    assert_eq!(world.get("/ui/api/fleet", &cookie).await.0, 403);
    world.stop.cancel();
}

/// An issuer whose token endpoint gives what it is told to.
#[derive(Debug, Default)]
struct Elsewhere(parking_lot::Mutex<String>);

impl oidc::IssuerClient for Elsewhere {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        let answer = match url.ends_with("openid-configuration") {
            true => json!({"issuer": "https://id.example", "jwks_uri": "https://id.example/keys",
                "authorization_endpoint": "https://id.example/auth", "token_endpoint": "https://id.example/token"}),
            false => json!({"keys": []}),
        };
        Box::pin(async move { Ok(answer.to_string().into_bytes()) })
    }

    fn post<'a>(
        &'a self,
        _: &'a str,
        _: String,
        _: Option<(&'a str, &'a karmada_env::Secret)>,
    ) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        let answer = json!({"id_token": *self.0.lock()}).to_string();
        Box::pin(async move { Ok(answer.into_bytes()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_log_in_at_their_issuer() {
    let settings = oidc::Settings {
        issuer: "https://id.example".into(),
        client_id: "hub".into(),
        ..oidc::Settings::default()
    };
    let (known, client) =
        (Arc::new(oidc::Oidc::new(settings).expect("an issuer")), Arc::new(Elsewhere::default()));
    let world = World::with(Some(Issuer { oidc: known.clone(), client: client.clone() })).await;
    let navigates = [HOST, ("sec-fetch-site", "cross-site")];
    let from_page = [HOST, ("sec-fetch-site", "same-origin")];
    assert_eq!(world.send("GET", "/ui/login", &from_page, Value::Null).await.status().as_u16(), 404);
    tokio::spawn(known.clone().follow(client.clone(), Env::system(), world.stop.clone()));
    assert_eq!(
        world.until("/ui/session", "", |who| who["issuer"] == "id.example").await["user"],
        Value::Null
    );

    // To the issuer's page, with a cookie that comes back with the browser.
    let header = |answer: &Response<Body>, name: &str| -> Vec<String> {
        answer.headers().get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    let elsewhere = world.send("GET", "/ui/login", &navigates, Value::Null).await;
    assert_eq!(header(&elsewhere, "location"), ["/ui"], "nobody else's page begins a login");
    let sent = world.send("GET", "/ui/login", &from_page, Value::Null).await;
    assert_eq!(sent.status().as_u16(), 303);
    let (address, cookies) = (header(&sent, "location").remove(0), header(&sent, "set-cookie"));
    assert!(cookies[0].contains("; SameSite=Lax") && cookies[0].contains("; HttpOnly"), "{cookies:?}");
    let attempt = cookies[0].split(';').next().unwrap().to_owned();
    let query = address.strip_prefix("https://id.example/auth?").expect("its page").to_owned();
    let of = |key: &str| first(&query, key).expect(key);
    assert_eq!(of("redirect_uri"), "https://hub.example:6443/ui/login/done");

    // Its ID token is one that the hub takes from anybody.
    let part = |value: Value| {
        base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, value.to_string())
    };
    let token =
        format!("{}.{}.c2ln", part(json!({"alg": "RS256"})), part(json!({"iss": "x", "nonce": of("nonce")})));
    let mut tokens = Tokens::new();
    tokens.insert(token.as_str(), UserInfo::new("ada", ["system:masters"]));
    world.embedded.server().authenticate_by(Authenticator::new(tokens, Env::system()));
    *client.0.lock() = token;
    let done = format!("/ui/login/done?code=c&state={}", of("state"));
    for (uri, cookie) in [
        (done.as_str(), ""),
        (&done, "__Host-ui-login=nonsense"),
        ("/ui/login/done?code=c&state=other", &attempt),
        ("/ui/login/done?code=c", &attempt),
        (&format!("{done}&error=access_denied"), &attempt),
    ] {
        let headers = [navigates[0], navigates[1], ("cookie", cookie)];
        let refused = world.send("GET", uri, &headers, Value::Null).await;
        assert_eq!(
            (refused.status().as_u16(), header(&refused, "location")),
            (303, vec!["/ui#login-failed".to_owned()])
        );
        assert!(
            !header(&refused, "set-cookie").iter().any(|cookie| cookie.starts_with("__Host-ui=")),
            "{uri}"
        );
    }
    let headers = [navigates[0], navigates[1], ("cookie", attempt.as_str())];
    let back = world.send("GET", &done, &headers, Value::Null).await;
    assert_eq!((back.status().as_u16(), header(&back, "location")), (303, vec!["/ui".to_owned()]));
    let cookies = header(&back, "set-cookie");
    let session = cookies.iter().find(|cookie| cookie.starts_with("__Host-ui=")).expect("a session");
    assert!(session.contains("; SameSite=Strict"), "{session}");
    assert!(cookies.iter().any(|cookie| cookie.starts_with("__Host-ui-login=;")), "{cookies:?}");
    let session = session.split(';').next().unwrap();
    assert_eq!(world.get("/ui/session", session).await.1["user"], "ada");
    world.stop.cancel();
}

/// Counts what the page's logins write into the log.
#[derive(Clone, Default)]
struct Logged(Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, about: &tracing::Metadata<'_>) -> bool {
        *about.level() <= tracing::Level::INFO && about.target().ends_with("page::issuer")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Everything on one thread, whose log this is.
#[tokio::test]
async fn strangers_do_not_fill_the_log() {
    let lines = Logged::default();
    let _log = tracing::subscriber::set_default(lines.clone());
    let world = World::start().await;
    for n in 0..100 {
        let uri = format!("/ui/login/done?state=s{n}&error=e{n}");
        let cookie = format!("__Host-ui-login=c{n}");
        let answer = world.send("GET", &uri, &[HOST, ("cookie", &cookie)], Value::Null).await;
        assert_eq!(answer.status().as_u16(), 303);
    }
    assert_eq!(lines.0.load(std::sync::atomic::Ordering::Relaxed), 1, "of each sort one");
    world.stop.cancel();
}

/// What somebody shows to whom a certificate was given so long ago, for so long.
fn certified(user: &str, group: &str, ago: Duration, validity: Duration) -> Peer {
    let dir = tempfile::tempdir().expect("a folder");
    let then = Env::seeded(ManualClock::new(Env::system().wall() - ago), 1);
    let pki = Pki::open_or_create(dir.path(), &[], &then).expect("an authority");
    let credential = pki.issue_client(user, group, validity).expect("a certificate");
    let der = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).expect("a certificate");
    Peer::Certificate(Arc::new(PeerCertificate::from_der(&der).expect("a user's")))
}

const HOUR: Duration = Duration::from_secs(3600);

/// Whose browser shows a certificate is offered to log in as who it says; the session is theirs, and ends with it.
#[tokio::test(flavor = "multi_thread")]
async fn people_log_in_by_their_certificate() {
    let mut world = World::start().await;
    world.peer = certified("grace", "system:masters", Duration::ZERO, HOUR);
    let (code, who) = world.get("/ui/session", "").await;
    assert_eq!((code, &who["user"], &who["session"]), (200, &json!("grace"), &json!(false)));

    // As "Log in as grace" does it: the page says nothing, and is who it is.
    let answer = world.send("POST", "/ui/session", &PAGE, json!({})).await;
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let (code, who) = read(answer).await;
    assert_eq!((code, &who["user"], &who["session"]), (200, &json!("grace"), &json!(true)));
    let (_, who) = world.get("/ui/session", &cookie).await;
    assert_eq!((&who["user"], &who["session"]), (&json!("grace"), &json!(true)));
    let until: Time = serde_json::from_value(who["until"].clone()).expect("a time");
    let left = until.timestamp().as_second() - Time::now(&Env::system()).timestamp().as_second();
    assert!(left > 3000 && left <= 3600, "it ends with the certificate, in {left} s");
    assert_eq!(world.get("/ui/api/fleet", &cookie).await.0, 200);

    // No page of somebody else's begins one, though the browser shows the certificate there as well.
    for headers in [
        &[HOST][..],
        &PAGE[..2],
        &[HOST, ("sec-fetch-site", "cross-site"), ("x-karmada-ui", "1")],
        &[("host", "evil.example"), PAGE[1], PAGE[2]],
    ] {
        let answer = world.send("POST", "/ui/session", headers, json!({})).await;
        assert!(
            answer.status().as_u16() == 400 && !answer.headers().contains_key("set-cookie"),
            "{headers:?}: {}",
            answer.status()
        );
    }

    // Who logs in as somebody else is somebody else, whatever certificate is shown.
    let guest = world.log_in("guest").await;
    assert_eq!(world.get("/ui/session", &guest).await.1["user"], "guest");
    // Without the certificate the session goes on; nobody else gets one.
    world.peer = Peer::None;
    assert_eq!(world.get("/ui/session", &cookie).await.1["user"], "grace");
    assert_eq!(world.send("POST", "/ui/session", &PAGE, json!({})).await.status().as_u16(), 401);
    world.stop.cancel();
}

/// A browser shows the certificate that it was once told to, whatever has become of that.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_certificate_keeps_nobody_from_logging_in() {
    let mut world = World::start().await;
    world.peer = Peer::Refused("it has expired".into());
    assert_eq!(world.get("/ui/session", "").await, (200, world.get("/ui/session", "").await.1));
    let cookie = world.log_in("root").await;
    assert_eq!(world.get("/ui/api/fleet", &cookie).await.0, 200);
    // Elsewhere it is what it was.
    assert_eq!(world.send("GET", "/version", &[HOST], Value::Null).await.status().as_u16(), 401);
    assert_eq!(world.send("GET", "/ui/api/fleet", &[HOST], Value::Null).await.status().as_u16(), 401);
    world.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_sees_what_they_may_read() {
    let world = World::start().await;
    let cluster = |name: &str| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
               "metadata": {"name": name, "labels": {"tier": "edge"}}, "spec": {"syncMode": "Pull", "region": "eu-west"}})
    };
    for name in ["m1", "m2"] {
        world.admin.post(CLUSTERS_PATH, &cluster(name)).await.expect("a cluster");
    }
    let (root, guest) = (world.log_in("root").await, world.log_in("guest").await);
    let fleet = world
        .until("/ui/api/fleet", &root, |fleet| fleet["rows"].as_array().is_some_and(|rows| rows.len() == 2))
        .await;
    assert_eq!((&fleet["rows"][0][0], &fleet["rows"][0][4]), (&json!("m1"), &json!("eu-west")));
    let told = usize::try_from(fleet["rows"][0][1].as_u64().unwrap()).unwrap();
    assert_eq!(fleet["templates"][told][0], "new", "nobody has joined by this name");
    let labels = world.get("/ui/api/labels?key=tier", &root).await.1;
    assert_eq!(labels["values"], json!({"m1": "edge", "m2": "edge"}));
    let view = world.get("/ui/api/cluster?name=m1", &root).await.1;
    assert_eq!(
        (&view["name"], &view["told"]["state"], &view["works"]["of"]),
        (&json!("m1"), &json!("new"), &json!(0))
    );
    assert_eq!(world.get("/ui/api/cluster?name=nowhere", &root).await.0, 404);
    assert_eq!(world.get("/ui/api/apps", &root).await.1["apps"], json!([]));
    let hub = world.get("/ui/api/hub", &root).await.1;
    assert!(
        hub["figures"]["apiserver_request_total"].as_f64().is_some_and(|requests| requests > 0.0),
        "{hub}"
    );
    let held = hub["brake"]["held"].as_array().expect("a list of reasons");
    assert!(held.len() == 1 && held[0].as_str().is_some_and(|why| why.contains("just started")), "{held:?}");
    assert_eq!((&hub["counts"]["new"], &hub["changes"]), (&json!(2), &Value::Null));
    assert_eq!((&hub["links"], &hub["silent"]), (&json!([{"link": "", "heard": 0, "of": 2}]), &json!([])));
    assert_eq!(hub["figures"]["karmada_store_accounts_nearly_full"], 0.0);
    // How all stand is counted once for all who look, until the board is another.
    let live = &world.page.live;
    let counting = async { while !Arc::ptr_eq(&live.standing().await, &live.standing().await) {} };
    timeout(LIMIT, counting).await.expect("the same");
    let quota = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": "most", "namespace": "default"}, "spec": {"overall": {"cpu": "4"}}});
    let quotas = "/apis/policy.karmada.io/v1alpha1/namespaces/default/federatedresourcequotas";
    world.admin.post(quotas, &quota).await.expect("a quota");
    let shown = world.get("/ui/api/quotas", &root).await.1;
    assert_eq!(
        (&shown["of"], &shown["items"][0]["quota"], &shown["items"][0]["hard"]),
        (&json!(1), &json!("default/most"), &json!("4"))
    );
    let supposed = world.get("/ui/api/what-if?drain=m1", &root).await;
    assert_eq!((supposed.0, &supposed.1["drained"]), (200, &json!(["m1"])));

    // An application is found by any letters of its namespace, name or kind.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "till", "namespace": "default"}});
    let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "tills", "namespace": "default"},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "till"}], "placement": {}}});
    world.admin.post("/api/v1/namespaces/default/configmaps", &map).await.expect("a template");
    let policies = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
    world.admin.post(policies, &policy).await.expect("a policy");
    for uri in ["/ui/api/apps?q=LT%2FTILL+config", "/ui/api/apps?namespace=default"] {
        let found = world.until(uri, &root, |found| found["of"] == 1).await;
        assert_eq!(
            (&found["apps"][0]["name"], &found["apps"][0]["kind"]),
            (&json!("till"), &json!("ConfigMap"))
        );
    }
    for uri in ["/ui/api/apps?q=tiller", "/ui/api/apps?namespace=elsewhere"] {
        assert_eq!(world.get(uri, &root).await.1["apps"], json!([]), "{uri}");
    }

    // Somebody without rights is told so in the API's words, each time.
    for uri in [
        "/ui/api/fleet",
        "/ui/live",
        "/ui/api/labels",
        "/ui/api/cluster?name=m1",
        "/ui/api/apps",
        "/ui/api/app?scope=namespaced&namespace=a&binding=b",
        "/ui/api/hub",
        "/ui/api/quotas",
    ] {
        let (code, why) = world.get(uri, &guest).await;
        assert!(
            code == 403 && why["message"].as_str().is_some_and(|why| why.contains("guest")),
            "{uri}: {code} {why}"
        );
    }
    assert_eq!(world.get("/ui/api/what-if?lose=m1", &guest).await.0, 403);
    assert_eq!(world.get("/ui/api/explain?kind=deploy&namespace=a&name=b", &guest).await.0, 403);
    // So it is with what the commands answer: what is not there, what cannot be asked, and what one may do in part alone.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"},
        "rules": [{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["get", "list"]}]});
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "looker"}]});
    world.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect("a role");
    world
        .admin
        .post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &bound)
        .await
        .expect("a binding");
    let looker = world.log_in("looker").await;
    world.until("/ui/api/fleet", &looker, |_| true).await;
    for (uri, who, code) in [
        ("/ui/api/what-if?lose=nowhere", &root, 404),
        ("/ui/api/what-if", &root, 400),
        ("/ui/api/what-if?lose=m1", &looker, 403),
        ("/ui/api/explain?kind=configmap&namespace=default&name=nothing", &root, 404),
        ("/ui/api/explain?kind=nonsense&namespace=default&name=nothing", &root, 400),
        ("/ui/api/explain?kind=configmap&namespace=default&name=till", &looker, 403),
    ] {
        let (found, why) = world.get(uri, who).await;
        assert_eq!((found, &why["code"]), (code, &json!(code)), "{uri}: {why}");
    }

    // A change is told to whoever listens, and what is done is done in the user's name.
    let number = fleet["number"].as_u64().unwrap();
    let headers: Vec<_> = PAGE.iter().copied().chain([("cookie", root.as_str())]).collect();
    let listening = world.send("GET", &format!("/ui/live?since={number}"), &headers, Value::Null).await;
    assert_eq!(listening.status().as_u16(), 200);
    let done = world.send("POST", "/ui/api/cordon?cluster=m2&on=true", &headers, Value::Null).await;
    assert_eq!(read(done).await, (200, json!({"cluster": "m2", "cordoned": true, "changed": true})));
    let told = async {
        let mut lines = listening.into_body().into_data_stream();
        let mut all = String::new();
        while let Some(Ok(piece)) = futures::StreamExt::next(&mut lines).await {
            all.push_str(&String::from_utf8_lossy(&piece));
            let rows = all.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let found = rows.flat_map(|line| line["rows"].as_array().cloned().unwrap_or_default());
            if let Some(row) = found.into_iter().find(|row| row[0] == "m2") {
                return row;
            }
        }
        Value::Null
    };
    let row = timeout(LIMIT, told).await.expect("in time");
    assert_eq!(row[3].as_u64().unwrap() & 1, 1, "cordoned: {row}");
    let guests: Vec<_> = PAGE.iter().copied().chain([("cookie", guest.as_str())]).collect();
    let refused = world.send("POST", "/ui/api/cordon?cluster=m1&on=true", &guests, Value::Null).await;
    assert_eq!(refused.status().as_u16(), 403);
    let lookers: Vec<_> = PAGE.iter().copied().chain([("cookie", looker.as_str())]).collect();
    for (uri, headers, code) in [
        ("/ui/api/cordon?cluster=m1&on=true", &lookers, 403),
        ("/ui/api/cordon?cluster=nowhere&on=true", &headers, 404),
        ("/ui/api/cordon?cluster=m1&on=perhaps", &headers, 400),
    ] {
        let (found, why) = read(world.send("POST", uri, headers, Value::Null).await).await;
        assert_eq!(found, code, "{uri}: {why}");
    }
    for what in ["drain", "failback"] {
        let uri = format!("/ui/api/{what}?cluster=m2");
        let (code, begun) = read(world.send("POST", &uri, &headers, Value::Null).await).await;
        assert_eq!((code, &begun["moving"], &begun["objects"]), (200, &json!(0), &json!([])), "{what}");
        let (code, why) = read(world.send("POST", &uri, &guests, Value::Null).await).await;
        assert!(code == 403 && why.to_string().contains("guest"), "{what}: {code} {why}");
        let nowhere = format!("/ui/api/{what}?cluster=nowhere");
        let (code, why) = read(world.send("POST", &nowhere, &headers, Value::Null).await).await;
        assert!(code == 404 && why.to_string().contains("nowhere"), "{what}: {code} {why}");
        // A page of somebody else's cannot have it done.
        let theirs = [HOST, ("sec-fetch-site", "cross-site"), ("cookie", root.as_str())];
        assert_eq!(world.send("POST", &uri, &theirs, Value::Null).await.status().as_u16(), 403);
    }
    assert_eq!(world.page.logged_in.sessions.users().len(), 3);
    world.stop.cancel();
}

/// Lines of an answer that goes on.
struct Lines(axum::body::BodyDataStream, String);

impl Lines {
    async fn of(world: &World, uri: &str, cookie: &str) -> Self {
        let headers: Vec<_> = PAGE.iter().copied().chain([("cookie", cookie)]).collect();
        let answer = world.send("GET", uri, &headers, Value::Null).await;
        assert_eq!(answer.status().as_u16(), 200, "{uri}");
        Self(answer.into_body().into_data_stream(), String::new())
    }

    async fn next(&mut self) -> Value {
        let reading = async {
            loop {
                if let Some((line, rest)) = self.1.split_once('\n') {
                    let line = serde_json::from_str(line).expect("a line of JSON");
                    self.1 = rest.to_owned();
                    return line;
                }
                let piece =
                    futures::StreamExt::next(&mut self.0).await.expect("it goes on").expect("a piece");
                self.1.push_str(&String::from_utf8_lossy(&piece));
            }
        };
        timeout(LIMIT, reading).await.expect("in time")
    }

    /// Whether something has changed, before so many times of the hub's have been told.
    async fn changes_within(&mut self, mut beats: u32) -> bool {
        loop {
            let line = self.next().await;
            if line["changed"] == true {
                return true;
            }
            beats -= u32::from(!line["now"].is_null());
            if beats == 0 {
                return false;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shows_one_thing_whole_is_told_that_it_has_changed() {
    let world = World::start().await;
    let mut tokens = Tokens::new();
    tokens.insert("root", UserInfo::new("root", ["system:masters"]));
    tokens.insert("looker", UserInfo::new("looker", ["lookers"]));
    tokens.insert("reader", UserInfo::new("reader", ["readers"]));
    world.embedded.server().authenticate_by(Authenticator::new(tokens, Env::system()));
    let (kind, rbac) = ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "look"},
        "rules": [{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["list"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]});
    world.admin.post(&format!("{rbac}/clusterroles"), &role).await.expect("a role");
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "look"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "look"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "lookers"}]});
    world.admin.post(&format!("{rbac}/clusterrolebindings"), &bound).await.expect("a binding of it");
    for name in ["m1", "m2"] {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"syncMode": "Pull"}});
        world.admin.post(CLUSTERS_PATH, &cluster).await.expect("a cluster");
        let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
            "lastTransitionTime": Time::now(&Env::system())});
        let status = json!({"status": {"conditions": [ready],
            "apiEnablements": [{"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]}]}});
        world.say(name, &status).await;
    }
    let (map, policy) = (
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
        |name: &str| {
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": name},
            "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name}],
                "placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}})
        },
    );
    let policies = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
    for name in ["till", "other"] {
        world.admin.post("/api/v1/namespaces/default/configmaps", &map(name)).await.expect("a template");
        world.admin.post(policies, &policy(name)).await.expect("a policy");
    }
    let root = world.log_in("root").await;
    let all = world.until("/ui/api/apps", &root, |found| found["of"] == 2).await;
    let binding = |name: &str| -> String {
        let apps = all["apps"].as_array().expect("a list");
        let app = apps.iter().find(|app| app["name"] == name).expect("it is there");
        app["binding"].as_str().expect("a name").to_owned()
    };
    // Both are placed, and nothing moves any more.
    for name in ["till", "other"] {
        let uri = format!("/ui/api/app?scope=namespaced&namespace=default&binding={}", binding(name));
        world.until(&uri, &root, |app| app["scheduled"] == true && app["copies"][0]["cluster"] == "m1").await;
    }
    let touch = async |name: &str, to: &str| {
        let bindings = "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings";
        let path = format!("{bindings}/{}", binding(name));
        let note = json!({"metadata": {"annotations": {"example.com/note": to}}});
        world.admin.patch(&path, Patch::Merge, &note).await.expect("a change");
    };

    let number = world.get("/ui/api/fleet", &root).await.1["number"].clone();
    let own = format!("scope=namespaced&namespace=default&binding={}&since={number}", binding("till"));
    let mut app = Lines::of(&world, &format!("/ui/live?{own}"), &root).await;
    // It may have changed since it was read; then it rests.
    assert!(app.changes_within(2).await);
    while app.changes_within(1).await {}
    touch("other", "a").await;
    assert!(!app.changes_within(1).await, "another's change is none of it");
    touch("till", "a").await;
    assert!(app.changes_within(3).await);

    // Who may list Clusters, and read no binding, hears nothing of one.
    let looker = world.log_in("looker").await;
    let (code, hub) = world.get("/ui/api/hub", &looker).await;
    assert_eq!((code, hub["figures"]["at"].is_string(), &hub["users"]), (200, true, &Value::Null), "{hub}");
    assert_eq!(world.get("/ui/api/hub", &root).await.1["users"]["looker"], 1);
    let mut not_theirs = Lines::of(&world, &format!("/ui/live?{own}"), &looker).await;
    touch("till", "b").await;
    assert!(!not_theirs.changes_within(2).await);

    // Who may read the binding, and not list Clusters, hears of it, and of no cluster. That is told of what they may read alone.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "read"},
        "rules": [{"apiGroups": ["work.karmada.io"], "resources": ["resourcebindings"], "verbs": ["get"]}]});
    world.admin.post(&format!("{rbac}/namespaces/default/roles"), &role).await.expect("a role");
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "read"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}]});
    let bindings = format!("{rbac}/namespaces/default/rolebindings");
    world.admin.post(&bindings, &bound).await.expect("a binding of it");
    let reader = world.log_in("reader").await;
    let mut theirs = Lines::of(&world, &format!("/ui/live?{own}&watch=m1"), &reader).await;
    assert!(theirs.changes_within(2).await);
    while theirs.changes_within(1).await {}
    touch("till", "c").await;
    loop {
        let line = theirs.next().await;
        assert!(line["number"].is_null() && line["heard"].is_null() && line["again"].is_null(), "{line}");
        if line["changed"] == true {
            break;
        }
    }
    let elsewhere = "scope=namespaced&namespace=elsewhere&binding=till";
    for what in ["", "cluster=m1", "hub=1", elsewhere, "scope=cluster&binding=till"] {
        assert_eq!(world.get(&format!("/ui/live?{what}"), &reader).await.0, 403, "{what}");
    }

    // A cluster, by its own object and by what is meant to run there.
    let mut cluster = Lines::of(&world, &format!("/ui/live?cluster=m1&since={number}"), &root).await;
    let mut beside = Lines::of(&world, &format!("/ui/live?cluster=m2&since={number}"), &root).await;
    assert!(cluster.changes_within(2).await && beside.changes_within(2).await);
    while cluster.changes_within(1).await {}
    while beside.changes_within(1).await {}
    let data = json!({"data": {"a": "b"}});
    let template = "/api/v1/namespaces/default/configmaps/till";
    world.admin.patch(template, Patch::Merge, &data).await.expect("a change");
    assert!(cluster.changes_within(3).await, "a Work of its has changed");
    // Who may list Clusters, and no Works, hears of the Cluster alone; and of none that there is not, whatever has its name.
    let mut no_works = Lines::of(&world, &format!("/ui/live?cluster=m1&since={number}"), &looker).await;
    assert!(no_works.changes_within(2).await);
    while no_works.changes_within(1).await {}
    let mut nowhere = Lines::of(&world, &format!("/ui/live?cluster=nowhere&since={number}"), &root).await;
    let m1 = async || world.admin.get(&format!("{CLUSTERS_PATH}/m1")).await.expect("a cluster");
    for round in 0.. {
        let before = m1().await;
        let data = json!({"data": {"round": round.to_string()}});
        world.admin.patch(template, Patch::Merge, &data).await.expect("a change");
        assert!(cluster.changes_within(5).await, "a Work of its has changed again");
        if !no_works.changes_within(2).await {
            break;
        }
        assert_ne!(before, m1().await, "it has not changed itself");
    }
    assert!(!nowhere.changes_within(1).await);
    let labels = json!({"metadata": {"labels": {"tier": "edge"}}});
    let m2 = format!("{CLUSTERS_PATH}/m2");
    world.admin.patch(&m2, Patch::Merge, &labels).await.expect("a change");
    assert!(beside.changes_within(3).await, "it has changed itself");

    // The hub: its upgrade is told to whoever may read that.
    let fleet = async || world.get("/ui/api/fleet", &root).await.1["number"].clone();
    let number = fleet().await;
    let mut hub = Lines::of(&world, &format!("/ui/live?hub=1&since={number}"), &root).await;
    let mut their_hub = Lines::of(&world, &format!("/ui/live?hub=1&since={number}"), &looker).await;
    assert!(hub.changes_within(2).await && their_hub.changes_within(2).await);
    while hub.changes_within(1).await {}
    let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
    let _ = world.admin.post("/api/v1/namespaces", &system).await;
    let upgrades = "/api/v1/namespaces/karmada-system/configmaps";
    let upgrade = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "agent-upgrade"},
        "data": {"version": env!("CARGO_PKG_VERSION"), "requested": "2026-11-26T01:00:00Z", "waves": "100%"}});
    world.admin.post(upgrades, &upgrade).await.expect("a request");
    assert!(hub.changes_within(5).await, "an upgrade is asked for");
    for round in 0.. {
        while their_hub.changes_within(1).await {}
        let before = fleet().await;
        let data = json!({"data": {"gate": format!("maxFailures={round}")}});
        world.admin.patch(&format!("{upgrades}/agent-upgrade"), Patch::Merge, &data).await.expect("a change");
        if !their_hub.changes_within(2).await {
            break;
        }
        assert_ne!(before, fleet().await, "how clusters stand has changed");
    }

    // What cannot be meant is refused.
    for uri in ["/ui/live?scope=other&binding=b", "/ui/live?scope=namespaced&binding=b"] {
        assert_eq!(world.get(uri, &root).await.0, 400, "{uri}");
    }
    world.stop.cancel();
}

#[test]
fn queries_are_read() {
    for (query, key, want) in [
        ("a=1&b=2", "b", Some("2")),
        ("a=x%2Fy+z", "a", Some("x/y z")),
        ("a=%C3%A9", "a", Some("é")),
        ("a=%zz", "a", Some("%zz")),
        ("a=%", "a", Some("%")),
        ("a", "a", Some("")),
        ("ab=1", "a", None),
    ] {
        assert_eq!(first(query, key).as_deref(), want, "{query}");
    }
}
