//! What the hub's listener answers beside, or instead of, an API.

use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use karmada_apiserver::{
    authn::{ANONYMOUS, UserInfo},
    authz::{Attributes, Authorizer, Coarse, Decision, Rights, Target},
    paths::{Paths, READ, figures, pieces, text},
    storage::ApiStore,
};
use karmada_client::{LinkStatus, latest};
use karmada_meta::status::Status;
use karmada_telemetry::metrics::PageSource;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::remote::{
        CONTROLLERS_CHECK, Phase,
        webhooks::{self, Judge, ReviewKey},
    },
    known::watches::Watches,
};

/// Where a hub that runs gives a copy of its store. Nobody but administrators may read it: no role that every server has gives
/// it to anyone else.
pub(in crate::cli) const COPY_PATH: &str = "/karmada-hub/store";

/// Where a load balancer asks which of several hubs leads. Anybody may.
const LEADS: &str = "/leaderz";
/// Load balancers ask by either.
const LOOK: &[Method] = &[Method::GET, Method::HEAD];

/// What stands beside the embedded API: it is ready when `ready` is true too, and gives its store away.
pub(super) fn beside_api(ready: latest::Receiver<bool>, watches: Watches, store: ApiStore) -> Paths {
    // One that fails later is named, and no reason to send agents elsewhere.
    let controllers = move || {
        let ready = *ready.borrow();
        let told = watches.told(ready);
        if ready { Ok(told) } else { Err(told) }
    };
    Paths::default()
        .with_check(CONTROLLERS_CHECK, true, controllers)
        .with(COPY_PATH, READ, move |request| {
            let answer = copy(&store, &request);
            async move { Ok(answer) }
        })
        .long_running()
}

/// Everything that is stored, at one revision, for a backup.
fn copy(store: &ApiStore, request: &Request<Body>) -> Response<Body> {
    let copy = store.copy();
    let user = request.extensions().get::<UserInfo>().map(|user| user.name.as_str());
    tracing::info!(revision = %copy.revision(), user, "the store is being copied");
    pieces("application/octet-stream", copy.into_iter())
}

/// The endpoints of a hub whose API is somebody else's.
#[derive(Clone)]
pub(super) struct Endpoints {
    /// How far the hub is.
    pub(super) phase: latest::Receiver<Phase>,
    /// The link to the API server.
    pub(super) link: LinkStatus,
    /// Where that is.
    pub(super) server: String,
    /// What `/metrics` shows.
    pub(super) page: PageSource,
    /// Not ready once this is cancelled.
    pub(super) leaving: CancellationToken,
}

impl Endpoints {
    /// The paths to answer.
    pub(super) fn paths(self) -> Paths {
        let Self { phase, link, server, page, leaving } = self;
        let paths = leads(Paths::default(), phase.clone(), leaving.clone());
        let connected = move || if link.is_connected() { Ok(String::new()) } else { Err(String::new()) };
        let hub = move || {
            let phase = phase.borrow().clone();
            if phase.is_ready() { Ok(phase.describe()) } else { Err(phase.describe()) }
        };
        let here = move || if leaving.is_cancelled() { Err(String::new()) } else { Ok(String::new()) };
        paths
            .with_check("api-server", true, connected)
            .with_check("hub", true, hub)
            .with_check("shutdown", true, here)
            .with("/version", READ, async |_| Ok(version()))
            .with("/metrics", READ, move |request| {
                let answer = figures(request.headers(), page());
                async move { Ok(answer) }
            })
            .otherwise(&format!(
                "this hub serves health, figures and clusters/NAME/proxy; its API is at {server}\n"
            ))
    }
}

/// These paths, and the one that is well on the hub alone that leads, and goes on to.
fn leads(paths: Paths, phase: latest::Receiver<Phase>, leaving: CancellationToken) -> Paths {
    let answer = move |_: Request<Body>| {
        let phase = phase.borrow().clone();
        let (code, says) = match (phase.leads(), leaving.is_cancelled()) {
            (true, false) => (StatusCode::OK, "ok".to_owned()),
            (true, true) => (StatusCode::SERVICE_UNAVAILABLE, "leading, and about to end".to_owned()),
            (false, _) => (StatusCode::SERVICE_UNAVAILABLE, phase.describe()),
        };
        async move { Ok(text(code, "text/plain; charset=utf-8", says)) }
    };
    paths.with(LEADS, LOOK, answer).of_health()
}

fn version() -> Response<Body> {
    let version = json!({
        "gitVersion": concat!("v", env!("CARGO_PKG_VERSION")),
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    text(StatusCode::OK, "application/json", version.to_string())
}

/// Reviews of what users of the API server write.
pub(super) fn reviews(judge: Judge) -> Paths {
    let judge = Arc::new(judge);
    judged(move |request| {
        let judge = judge.clone();
        async move { Ok(judge.answer(request).await) }
    })
}

/// The paths of reviews. What is said of one tells of what the hub alone may read: the server's users are nobody there.
fn judged<F>(answer: impl Fn(Request<Body>) -> F + Clone + Send + Sync + 'static) -> Paths
where
    F: Future<Output = Result<Response<Body>, Status>> + Send + 'static,
{
    webhooks::PREFIXES.into_iter().fold(Paths::default(), |paths, prefix| {
        let paths = paths.with_prefix(prefix, webhooks::METHODS, answer.clone());
        paths.bodies_up_to(webhooks::REVIEW_LIMIT).for_own_users()
    })
}

/// Verbs of those who look for an API here. Who wants to act as another is judged first, by a verb of its own.
const LOOKS: [&str; 3] = ["get", "list", "watch"];

/// As on the embedded engine, and anybody may ask whether this hub leads. Whoever knows the key may have a review judged, as
/// administrators may. Resources there are none:
/// whoever is known and asks for some is told where they are, and not that they are not for them.
#[derive(Debug)]
pub(super) struct WithReviews {
    /// What the server's requests show.
    pub(super) key: ReviewKey,
}

impl Authorizer for WithReviews {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        match attributes.target {
            Target::Path(path)
                if attributes.verb == "post" && webhooks::is_review(path) && self.key.is_in(path) =>
            {
                Decision::Allow
            }
            Target::Path(LEADS) if matches!(attributes.verb, "get" | "head") => Decision::Allow,
            Target::Resource(_) if attributes.user.name != ANONYMOUS && LOOKS.contains(&attributes.verb) => {
                Decision::Allow
            }
            _ => Coarse.authorize(attributes),
        }
    }

    fn authorize_name(&self, attributes: &Attributes<'_>) -> Decision {
        Coarse.authorize_name(attributes)
    }

    fn rights(&self, user: &UserInfo, namespace: &str) -> Rights {
        Coarse.rights(user, namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        net::IpAddr,
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use futures::future::BoxFuture;
    use http::header;
    use karmada_api::consts::subject;
    use karmada_apiserver::{
        ApiServer, Registration,
        authn::{Authenticator, MONITORING, Peer, PeerCertificate, Tokens},
        authz::Authorization,
        delegate::{Delegate, Question},
        front::{Front, PathService},
        limits::Limits,
        open_store,
        pki::Pki,
    };
    use karmada_env::Env;
    use karmada_store::engine::Memory;
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    use tower::ServiceExt as _;

    use super::*;

    fn api(ready: bool) -> ApiServer {
        let env = Env::system();
        let store = open_store(Memory::new(), &env).unwrap();
        let watches = Watches::new(env.clone());
        let authorizer = Authorization::By(Arc::new(Coarse));
        let registration = Registration { authorizer, ..Registration::default() };
        let api = ApiServer::new(store.clone(), env, registration, CancellationToken::new());
        api.add_paths(&beside_api(latest::Sender::new(ready).subscribe(), watches, store));
        api
    }

    fn admin() -> UserInfo {
        UserInfo::new("admin", [subject::MASTERS])
    }

    fn request(method: &str, path: &str, user: Option<UserInfo>, acts_as: Option<&str>) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(name) = acts_as {
            request = request.header("impersonate-user", name);
        }
        let mut request = request.body(Body::empty()).unwrap();
        match user {
            Some(user) => request.extensions_mut().insert(user).map(drop),
            None => request.extensions_mut().insert(Peer::None).map(drop),
        };
        request
    }

    /// Code, whether the answer has an Audit-Id, and its text.
    async fn read(response: Response<Body>) -> (u16, bool, bytes::Bytes) {
        let (code, audited) = (response.status().as_u16(), response.headers().contains_key("audit-id"));
        (code, audited, axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap())
    }

    #[tokio::test]
    async fn only_administrators_may_copy_the_store() {
        let api = api(true);
        let cases = [
            (None, None, 403),
            (Some(UserInfo::new("system:node:a", [subject::AGENTS])), None, 403),
            (Some(UserInfo::new("m", [MONITORING])), None, 403),
            (Some(admin()), None, 200),
            // Whoever acts as another has the rights of that one, here too.
            (Some(admin()), Some("somebody"), 403),
        ];
        for (user, acts_as, code) in cases {
            let response = api.service().oneshot(request("GET", COPY_PATH, user, acts_as)).await.unwrap();
            let (got, audited, body) = read(response).await;
            assert_eq!((got, audited), (code, true), "{acts_as:?}");
            assert_eq!(karmada_store::Incoming::begin(&*body).is_ok(), code == 200);
        }
    }

    #[tokio::test]
    async fn readiness_is_that_of_the_controllers_too() {
        let table = [
            ("all is well", true, "/readyz", 200, "ok"),
            (
                "they are starting",
                false,
                "/readyz",
                500,
                "[-]karmada-controllers failed\nreadyz check failed\n",
            ),
            ("by name", false, "/readyz/karmada-controllers", 500, "[-]karmada-controllers failed"),
            ("by name, well", true, "/readyz/karmada-controllers", 200, "ok"),
            ("not asked", false, "/readyz?exclude=karmada-controllers", 200, "ok"),
            (
                "told at length",
                true,
                "/readyz?verbose",
                200,
                "[+]karmada-controllers ok\nreadyz check passed\n",
            ),
        ];
        for (message, ready, path, code, says) in table {
            let request = request("GET", path, Some(admin()), None);
            let (got, _, text) = read(api(ready).service().oneshot(request).await.unwrap()).await;
            let text = String::from_utf8_lossy(&text);
            assert!(got == code && text.contains(says), "{message}: {got} {text}");
        }
    }

    #[tokio::test]
    async fn a_listener_without_an_api_judges_by_the_same_rules() {
        let paths = Paths::default()
            .with("/metrics", READ, async |_| Ok(text(StatusCode::OK, "text/plain", "figures")))
            .and(judged(async |_| Ok(text(StatusCode::OK, "text/plain", "judged"))))
            .otherwise("its API is elsewhere\n");
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open_or_create(dir.path(), &[], &Env::system()).unwrap();
        let key = ReviewKey::of(&pki);
        let keyed = format!("/mutate-pod/{}", pki.secret("admission reviews"));
        let front = Arc::new(Front::new(Arc::new(WithReviews { key }), Limits::default(), Env::system()));
        let service = PathService::new(front, paths);
        let monitor = || UserInfo::new("m", [MONITORING]);
        let cases = [
            ("GET", "/healthz", None, None, 200),
            ("HEAD", "/healthz", None, None, 200),
            ("GET", "/metrics", None, None, 403),
            ("GET", "/metrics", Some(monitor()), None, 200),
            ("GET", "/metrics", Some(admin()), None, 200),
            ("GET", "/metrics", Some(admin()), Some("somebody"), 403),
            ("GET", "/metrics", Some(monitor()), Some("admin"), 403),
            ("POST", &*keyed, None, None, 200),
            ("GET", &keyed, None, None, 403),
            ("POST", "/mutate-pod", None, None, 403),
            ("POST", &keyed[..keyed.len() - 1], None, None, 403),
            ("POST", "/mutate-pod/", None, None, 403),
            ("POST", "/mutate-pod", Some(monitor()), None, 403),
            ("POST", "/mutate-pod", Some(admin()), None, 200),
            ("POST", "/metrics", None, None, 403),
            ("GET", "/elsewhere", None, None, 403),
            ("GET", "/elsewhere", Some(admin()), None, 404),
            ("GET", "/api/v1/pods", None, None, 403),
            ("GET", "/api/v1/pods", Some(monitor()), None, 404),
            ("GET", "/api/v1/pods?watch=true", Some(monitor()), None, 404),
            ("GET", "/api/v1/pods", Some(monitor()), Some("admin"), 403),
            ("DELETE", "/api/v1/namespaces/a/pods/b", Some(monitor()), None, 403),
        ];
        for (method, path, user, acts_as, code) in cases {
            let response = service.clone().oneshot(request(method, path, user, acts_as)).await.unwrap();
            let (got, audited, text) = read(response).await;
            assert_eq!((got, audited), (code, true), "{method} {path} {acts_as:?}: {text:?}");
            assert_eq!(&*text == b"its API is elsewhere\n", code == 404, "{method} {path}: {text:?}");
        }
    }

    #[tokio::test]
    async fn a_load_balancer_finds_the_hub_that_leads() {
        let phase = latest::Sender::new(Phase::Reaching(String::new()));
        let leaving = CancellationToken::new();
        let dir = tempfile::tempdir().unwrap();
        let key = ReviewKey::of(&Pki::open_or_create(dir.path(), &[], &Env::system()).unwrap());
        // It takes no seat.
        let limits = Limits { reading: 0, ..Limits::default() };
        let front = Arc::new(Front::new(Arc::new(WithReviews { key }), limits, Env::system()));
        let service = PathService::new(front, leads(Paths::default(), phase.subscribe(), leaving.clone()));
        for (is, code, says) in [
            (Phase::Reaching("no route".to_owned()), 503, "no route"),
            (Phase::Installing, 503, "installing"),
            (Phase::StandingBy("hub-2_7".to_owned()), 503, "hub-2_7 leads"),
            (Phase::Starting, 200, "ok"),
            (Phase::Working, 200, "ok"),
        ] {
            phase.send_replace(is.clone());
            for method in ["GET", "HEAD"] {
                let response = service.clone().oneshot(request(method, LEADS, None, None)).await.unwrap();
                let (got, _, text) = read(response).await;
                let text = String::from_utf8_lossy(&text);
                assert!(got == code && text.contains(says), "{method} {is:?}: {got} {text}");
            }
            let response = service.clone().oneshot(request("POST", LEADS, None, None)).await.unwrap();
            assert_eq!(read(response).await.0, 403);
        }
        leaving.cancel();
        let response = service.oneshot(request("GET", LEADS, None, None)).await.unwrap();
        assert_eq!(read(response).await.0, 503, "it is about to end");
    }

    /// The server: it knows a Pod by its token, and counts how often it is asked.
    #[derive(Default)]
    struct Server(AtomicUsize);

    impl Delegate for Server {
        fn whose<'a>(
            &'a self,
            token: &'a str,
            _: Option<IpAddr>,
        ) -> BoxFuture<'a, Result<Option<UserInfo>, Status>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let user = (token == "of-a-pod").then(|| UserInfo::new("system:serviceaccount:a:b", [""; 0]));
            Box::pin(ready(Ok(user)))
        }

        fn judge<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, Result<(Decision, String), Status>> {
            Box::pin(ready(Ok((Decision::NoOpinion, String::new()))))
        }
    }

    #[tokio::test]
    async fn users_of_the_server_have_nothing_judged() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [own, theirs] =
            dirs.each_ref().map(|dir| Pki::open_or_create(dir.path(), &[], &Env::system()).unwrap());
        let key = ReviewKey::of(&own);
        let keyed = format!("/validate-propagationpolicy/{}", own.secret("admission reviews"));
        let server = Arc::new(Server::default());
        let front = Front::new(Arc::new(WithReviews { key }), Limits::default(), Env::system());
        let mut tokens = Tokens::new();
        tokens.insert("of-an-administrator", admin());
        front.authenticate_by(Authenticator::new(tokens, Env::system()));
        front.delegate_to(server.clone());
        let paths = judged(async |_| Ok(text(StatusCode::OK, "text/plain", "judged")));
        let service = PathService::new(Arc::new(front), paths);
        let shown = |pki: &Pki, elsewhere: bool| {
            let credential = pki.issue_client("admin", subject::MASTERS, Duration::from_secs(3600)).unwrap();
            let der = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).unwrap();
            let shown = PeerCertificate::from_der(&der).unwrap();
            Peer::Certificate(Arc::new(if elsewhere { shown.of_elsewhere() } else { shown }))
        };
        let plain = "/validate-propagationpolicy";
        for (path, peer, token, code) in [
            (plain, Peer::None, None, 403),
            (plain, Peer::None, Some("of-a-pod"), 401),
            (plain, Peer::None, Some("of-nobody"), 401),
            (plain, Peer::None, Some("of-an-administrator"), 200),
            (plain, shown(&own, false), None, 200),
            // Who is one on the server alone.
            (plain, shown(&theirs, true), None, 403),
            (&keyed, Peer::None, None, 200),
            // As the server may show itself to webhooks.
            (&keyed, shown(&theirs, true), None, 200),
        ] {
            let mut request = Request::post(path).body(Body::empty()).unwrap();
            request.extensions_mut().insert(peer.clone());
            if let Some(token) = token {
                let bearer = format!("Bearer {token}").parse().unwrap();
                request.headers_mut().insert(header::AUTHORIZATION, bearer);
            }
            let (got, _, text) = read(service.clone().oneshot(request).await.unwrap()).await;
            assert_eq!(got, code, "{path} {peer:?} {token:?}: {text:?}");
        }
        assert_eq!(server.0.load(Ordering::Relaxed), 0, "the server was asked");
    }
}
