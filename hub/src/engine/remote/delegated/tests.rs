use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::SystemTime,
};

use axum::body::{Body, to_bytes};
use futures::future::join_all;
use http::{Request, Response, header};
use karmada_apiserver::{
    authn::{AGENT_PREFIX, AGENTS, Authenticator, Peer, PeerCertificate, Tokens},
    authz::Coarse,
    carried::{Call, Carried, CarriedPath, Carrier, Ways},
    front::{Front, PathService},
    limits::Limits,
    listener::RemoteAddr,
    paths::{Paths, TUNNEL},
    pki::Pki,
};
use karmada_env::{Env, ManualClock};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::*;

const PROXY: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api";
const HOUR: Duration = Duration::from_secs(3600);

/// What the server is asked, by what kind of review, and whether it answers.
#[derive(Default)]
struct Server {
    tokens: AtomicUsize,
    rights: AtomicUsize,
    /// What it says instead of an answer, by path.
    fails: Mutex<Option<(&'static str, u16)>>,
}

/// Who may what, as RBAC would have it.
const RIGHTS: [&str; 8] = [
    "jane get clusters/proxy m",
    "jane create clusters/proxy m",
    "boss get clusters/proxy m",
    "boss impersonate users jane",
    "boss impersonate groups dev",
    "joe impersonate users jane",
    "system:karmada:agent:m get clusters m",
    "admin get /karmada-hub/tunnel",
];

impl Server {
    fn answer(&self, path: &str, review: &Value) -> (u16, Value) {
        if let Some((fails, code)) = *self.fails.lock()
            && path == fails
        {
            let reason = if code == 403 { "Forbidden" } else { "InternalError" };
            return (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason,
                       "message": "the hub's user at its server"}),
            );
        }
        let spec = &review["spec"];
        if path == reviews::TOKENS {
            self.tokens.fetch_add(1, Ordering::Relaxed);
            let status = match spec["token"].as_str().unwrap_or_default().strip_prefix("token-of-") {
                Some(name) => json!({"authenticated": true, "user": {"username": name, "groups": ["dev"]}}),
                None => json!({"user": {}, "error": "invalid bearer token"}),
            };
            return (201, json!({"status": status}));
        }
        assert_eq!(path, reviews::ACCESS);
        self.rights.fetch_add(1, Ordering::Relaxed);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let wanted = match &spec["resourceAttributes"] {
            Value::Null => {
                let path = &spec["nonResourceAttributes"];
                format!("{} {}", text(&path["verb"]), text(&path["path"]))
            }
            of => {
                let sub = text(&of["subresource"]);
                let slash = if sub.is_empty() { "" } else { "/" };
                format!("{} {}{slash}{sub} {}", text(&of["verb"]), text(&of["resource"]), text(&of["name"]))
            }
        };
        let asked = format!("{} {wanted}", text(&spec["user"]));
        (201, json!({"status": {"allowed": RIGHTS.contains(&asked.as_str()), "reason": "by the table"}}))
    }

    fn client(self: &Arc<Self>) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(Body::new(body), 1 << 20).await.unwrap();
                // It takes a while.
                tokio::time::sleep(Duration::from_millis(50)).await;
                let (code, answer) = server.answer(parts.uri.path(), &serde_json::from_slice(&body).unwrap());
                let built = Response::builder().status(code).header("content-type", "application/json");
                Ok::<_, std::convert::Infallible>(built.body(Body::from(answer.to_string())).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }
}

/// Says who asks.
struct Echo;

impl Carrier for Echo {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        Box::pin(
            async move { Ok(Response::new(Body::from(format!("{} by {}", call.user.name, call.asked_by)))) },
        )
    }
}

struct World {
    server: Arc<Server>,
    service: PathService,
    pkis: [Pki; 2],
    clock: ManualClock,
    _dirs: [tempfile::TempDir; 2],
}

/// What is shown with a request.
#[derive(Clone, Copy, Debug)]
enum By {
    Nothing,
    Token(&'static str),
    /// Signed by the server's authority, or by the hub's own.
    Certificate(&'static str, &'static str, bool),
    Refused,
}

impl World {
    fn start() -> Self {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + 1000 * HOUR);
        let env = Env::seeded(clock.clone(), 1);
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let pkis = dirs.each_ref().map(|dir| Pki::open_or_create(dir.path(), &[], &env).unwrap());
        let server = Arc::<Server>::default();
        let mut tokens = Tokens::new();
        tokens.insert("own-token", UserInfo::new("jane", ["system:masters"]));
        let front = Front::new(Arc::new(Coarse), Limits::default(), env.clone());
        front.authenticate_by(Authenticator::new(tokens, env));
        front.delegate_to(Arc::new(Delegated::new(Rest::new(server.client()))));
        let proxy = Carried {
            group: "cluster.karmada.io",
            version: "v1alpha1",
            resource: "clusters",
            subresource: "proxy",
            kind: "ClusterProxyOptions",
            by: Arc::new(Echo),
        };
        let tunnels = CarriedPath { path: TUNNEL, by: Arc::new(Echo) };
        let ways = Ways { subresources: vec![proxy], paths: vec![tunnels], stops: CancellationToken::new() };
        let service = PathService::new(Arc::new(front), Paths::default()).carrying(ways);
        Self { server, service, pkis, clock, _dirs: dirs }
    }

    fn peer(&self, by: By) -> Peer {
        match by {
            By::Nothing | By::Token(_) => Peer::None,
            By::Refused => Peer::Refused("UnknownIssuer".into()),
            By::Certificate(user, group, elsewhere) => {
                let credential = self.pkis[usize::from(elsewhere)].issue_client(user, group, HOUR).unwrap();
                let der = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).unwrap();
                let shown = PeerCertificate::from_der(&der).unwrap();
                Peer::Certificate(Arc::new(if elsewhere { shown.of_elsewhere() } else { shown }))
            }
        }
    }

    async fn ask(&self, method: &str, path: &str, by: By, headers: &[(&str, &str)]) -> (u16, String) {
        self.ask_as(method, path, (&self.peer(by), by), headers).await
    }

    async fn ask_as(
        &self,
        method: &str,
        path: &str,
        (peer, by): (&Peer, By),
        headers: &[(&str, &str)],
    ) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(path);
        if let By::Token(token) = by {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(RemoteAddr("192.0.2.1:1000".parse().unwrap()));
        let response = self.service.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (code, String::from_utf8(text.to_vec()).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_says_who_is_let_in() {
    let world = World::start();
    let agent = |cluster: &str| -> &'static str { format!("{AGENT_PREFIX}{cluster}").leak() };
    let jane = By::Token("token-of-jane");
    let boss = By::Token("token-of-boss");
    let as_jane: &[(&str, &str)] = &[("impersonate-user", "jane")];
    let smuggled: &[(&str, &str)] = &[("x-remote-user", "jane"), ("x-remote-group", "system:masters")];
    for (method, path, by, headers, code, says) in [
        ("GET", PROXY, jane, &[][..], 200, "jane by jane"),
        ("POST", PROXY, jane, &[], 200, "jane by jane"),
        ("DELETE", PROXY, jane, &[], 403, "cannot delete resource"),
        ("GET", PROXY, By::Certificate("jane", "dev", true), &[], 200, "jane by jane"),
        // Nobody, and whoever this hub alone knows.
        ("GET", PROXY, By::Nothing, &[], 401, "Unauthorized"),
        ("GET", PROXY, By::Nothing, smuggled, 401, "Unauthorized"),
        ("GET", TUNNEL, By::Nothing, &[], 401, "Unauthorized"),
        ("GET", PROXY, By::Refused, &[], 401, "Unauthorized"),
        ("GET", PROXY, By::Token("wrong"), &[], 401, "Unauthorized"),
        ("GET", PROXY, By::Token("own-token"), &[], 401, "Unauthorized"),
        ("GET", PROXY, By::Certificate("jane", "system:masters", false), &[], 401, "Unauthorized"),
        // Who has no right, or not to this cluster.
        ("GET", PROXY, By::Token("token-of-joe"), &[], 403, "User \\\"joe\\\" cannot get resource"),
        ("GET", PROXY, By::Token("token-of-joe"), smuggled, 403, "joe"),
        ("GET", "/apis/cluster.karmada.io/v1alpha1/clusters/n/proxy/api", jane, &[], 403, "jane"),
        // As another: who may, and as whom.
        ("GET", PROXY, boss, as_jane, 200, "jane by boss"),
        (
            "GET",
            PROXY,
            boss,
            &[("impersonate-user", "jane"), ("impersonate-group", "dev")],
            200,
            "jane by boss",
        ),
        (
            "GET",
            PROXY,
            boss,
            &[("impersonate-user", "jane"), ("impersonate-group", "system:masters")],
            403,
            "impersonate",
        ),
        ("GET", PROXY, boss, &[("impersonate-user", "joe")], 403, "impersonate"),
        ("GET", PROXY, jane, &[("impersonate-user", "boss")], 403, "impersonate"),
        ("GET", PROXY, By::Token("token-of-joe"), as_jane, 200, "jane by joe"),
        // Tunnels: of an agent that may still read its Cluster.
        ("GET", TUNNEL, By::Certificate(agent("m"), AGENTS, true), &[], 200, "agent:m"),
        ("GET", TUNNEL, By::Certificate(agent("n"), AGENTS, true), &[], 403, "cannot get path"),
        ("GET", TUNNEL, By::Certificate(agent("m"), AGENTS, false), &[], 401, "Unauthorized"),
        ("GET", TUNNEL, By::Certificate(agent("m"), "dev", true), &[], 403, "cannot get path"),
        ("GET", TUNNEL, jane, &[], 403, "cannot get path"),
        // What the hub itself answers is for whom it knows, as ever.
        ("GET", "/healthz", By::Nothing, &[], 200, "ok"),
        ("GET", "/elsewhere", By::Token("own-token"), &[], 404, "not found"),
        ("GET", "/elsewhere", jane, &[], 403, "jane"),
        ("GET", "/elsewhere", By::Certificate("admin", "system:masters", true), &[], 404, "not found"),
    ] {
        let (got, text) = world.ask(method, path, by, headers).await;
        assert!(got == code && text.contains(says), "{method} {path} {by:?} {headers:?}: {got} {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_is_asked_nothing_for_whoever_shows_nothing() {
    let world = World::start();
    for n in 0..3 {
        let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/m{n}/proxy/api");
        assert_eq!(world.ask("GET", &path, By::Nothing, &[]).await.0, 401);
    }
    assert_eq!(world.server.rights.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_ends_and_a_server_that_does_not_answer_lets_nobody_in() {
    let world = World::start();
    let by = By::Certificate("jane", "dev", true);
    let peer = world.peer(by);
    assert_eq!(world.ask_as("GET", PROXY, (&peer, by), &[]).await.0, 200);
    world.clock.advance(2 * HOUR);
    let (code, text) = world.ask_as("GET", PROXY, (&peer, by), &[]).await;
    assert!(code == 401 && text.contains("has expired"), "{code} {text}");
    for (fails, with, code, says) in [
        (reviews::TOKENS, 500, 503, "does not say whose a token is"),
        (reviews::TOKENS, 403, 500, "manifests/hub"),
        (reviews::ACCESS, 500, 503, "does not say whether somebody may"),
        (reviews::ACCESS, 403, 500, "manifests/hub"),
    ] {
        *world.server.fails.lock() = Some((fails, with));
        for headers in [&[][..], &[("impersonate-user", "jane")]] {
            let (got, text) = world.ask("GET", PROXY, By::Token("token-of-jane"), headers).await;
            assert!(got == code && text.contains(says), "{fails} {with}: {got} {text}");
            assert!(!text.contains("at its server"), "that is for the log: {text}");
        }
        *world.server.fails.lock() = None;
        // And it is not remembered.
        let (got, text) = world.ask("GET", PROXY, By::Token("token-of-jane"), &[]).await;
        assert_eq!(got, 200, "{text}");
        tokio::time::advance(LIFE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_is_asked_once_for_many_and_strangers_have_it_asked_little() {
    let world = World::start();
    let jane = By::Token("token-of-jane");
    let all = join_all((0..50).map(|_| world.ask("GET", PROXY, jane, &[]))).await;
    assert!(all.iter().all(|(code, _)| *code == 200), "{all:?}");
    let asked = || (world.server.tokens.load(Ordering::Relaxed), world.server.rights.load(Ordering::Relaxed));
    assert_eq!(asked(), (1, 1));
    tokio::time::advance(LIFE).await;
    assert_eq!(world.ask("GET", PROXY, jane, &[]).await.0, 200);
    assert_eq!(asked(), (2, 2), "a token that was taken back is found out");
    // Strangers with one token after another.
    let tokens: Vec<&'static str> = (0..100).map(|n| &*format!("wrong-{n}").leak()).collect();
    let mut codes = Vec::new();
    for token in tokens {
        codes.push(world.ask("GET", PROXY, By::Token(token), &[]).await.0);
    }
    let sent_away = codes.iter().filter(|code| **code == 429).count();
    assert_eq!(sent_away, 100 - STRANGE.0 as usize, "{codes:?}");
    assert_eq!(asked().0, 2 + STRANGE.0 as usize);
    assert_eq!(world.ask("GET", PROXY, By::Token("token-of-boss"), &[]).await.0, 429, "from the same place");
    // Whoever was known there is asked about all the same.
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::time::advance(LIFE).await;
    for n in 0..STRANGE.0 {
        let token: &'static str = format!("again-{n}").leak();
        assert_eq!(world.ask("GET", PROXY, By::Token(token), &[]).await.0, 401);
    }
    assert_eq!(world.ask("GET", PROXY, By::Token("again"), &[]).await.0, 429);
    assert_eq!(world.ask("GET", PROXY, jane, &[]).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_asked_no_more_for_strangers() {
    let world = World::start();
    *world.server.fails.lock() = Some((reviews::TOKENS, 500));
    let mut codes = Vec::new();
    for n in 0..100 {
        let token: &'static str = format!("wrong-{n}").leak();
        codes.push(world.ask("GET", PROXY, By::Token(token), &[]).await.0);
    }
    let asked = codes.iter().filter(|code| **code == 503).count();
    assert_eq!(asked, STRANGE.0 as usize, "{codes:?}");
    // A token that is good takes nothing from others behind the same address.
    *world.server.fails.lock() = None;
    tokio::time::advance(LIFE).await;
    for n in 0..2 * STRANGE.0 {
        let token: &'static str = format!("token-of-{n}").leak();
        assert_eq!(
            world.ask("GET", PROXY, By::Token(token), &[]).await.0,
            403,
            "it is known, and has no right"
        );
    }
}

#[test]
fn of_good_tokens_those_are_remembered_that_are_used() {
    let key = |of: usize| -> Key { Sha256::digest(of.to_le_bytes()).into() };
    let mut good = Good::default();
    good.add(key(0));
    for n in 1..4 * GOOD {
        good.add(key(n));
        good.add(key(0));
        assert!(good.used.len() <= GOOD && good.order.len() == good.used.len());
    }
    assert!(good.has(&key(0)), "it was used all the time");
    assert!(good.has(&key(4 * GOOD - 1)) && !good.has(&key(1)));
    good.remove(&key(0));
    good.remove(&key(0));
    assert!(!good.has(&key(0)) && good.order.len() == good.used.len());
}
