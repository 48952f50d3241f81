//! The hub at one end, a member at the other, all in memory.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt as _, StreamExt as _};
use http::HeaderName;
use http_body_util::StreamBody;
use hyper::{body::Frame, service::service_fn};
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex},
    task::JoinHandle,
};

use super::*;

mod ends;

/// What the member has seen, and how many of its connections are open.
#[derive(Default)]
struct Seen {
    heads: Mutex<Vec<(String, HeaderMap)>>,
    open: latest::Sender<usize>,
    /// How many the agent has.
    dialled: latest::Sender<usize>,
    /// What it says in one of [`SAID`].
    says: Mutex<Option<HeaderValue>>,
    /// It warns more than a tunnel carries.
    warns: AtomicBool,
}

/// What is passed on of an answer, and of one by which a session begins.
const SAID: [&str; 2] = ["etag", "sec-websocket-protocol"];

/// What asks for something that takes nothing.
const STUCK: &str = "stuck";

/// A member that answers with its own path; to logs with lines without end, and to `/version` never.
struct Stand(Arc<Seen>);

impl Door for Stand {
    fn dial(&self) -> BoxFuture<'_, Result<Box<dyn Io>, String>> {
        let (near, far) = duplex(4096);
        let seen = self.0.clone();
        tokio::spawn(async move {
            let open = Open::new(&seen.open);
            let service = service_fn(move |request: Request<Incoming>| {
                let seen = seen.clone();
                async move {
                    let said = SAID[usize::from(request.uri().path().ends_with("/exec"))];
                    let says = seen.says.lock().clone();
                    let warns = seen.warns.load(Ordering::Relaxed);
                    let mut answer = member(request, seen).await?;
                    answer.headers_mut().extend(says.map(|says| (HeaderName::from_static(said), says)));
                    for _ in 0..if warns { 10 } else { 0 } {
                        let warning = HeaderValue::from_bytes("警".repeat(120).as_bytes()).unwrap();
                        answer.headers_mut().append("warning", warning);
                    }
                    Ok::<_, Infallible>(answer)
                }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(far), service)
                .with_upgrades()
                .await;
            drop(open);
        });
        let dialled = Dialled(near, Open::new(&self.0.dialled));
        futures::future::ready(Ok(Box::new(dialled) as Box<dyn Io>)).boxed()
    }

    fn token(&self) -> BoxFuture<'_, Result<String, String>> {
        futures::future::ready(Ok("secret".to_owned())).boxed()
    }

    fn prefix(&self) -> &str {
        "/k8s"
    }

    fn host(&self) -> &str {
        "member:6443"
    }
}

/// The agent's end of a connection to the member, until it is dropped.
struct Dialled(DuplexStream, #[allow(dead_code, reason = "it counts")] Open);

impl AsyncRead for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Dialled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

type Lines = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

async fn member(request: Request<Incoming>, seen: Arc<Seen>) -> Result<Response<Lines>, Infallible> {
    let line = format!("{} {}", request.method(), request.uri());
    seen.heads.lock().push((line.clone(), request.headers().clone()));
    let path = request.uri().path().to_owned();
    if path.ends_with("/exec") {
        let mut agreed = Response::new(Full::default().boxed_unsync());
        *agreed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        for (name, value) in
            [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-accept", "s")]
        {
            agreed.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let open = Open::new(&seen.open);
        tokio::spawn(async move {
            let is_stuck = request.uri().query().is_some_and(|query| query.contains(STUCK));
            let io = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            if is_stuck {
                std::future::pending::<()>().await;
            }
            let (mut from, mut to) = tokio::io::split(io);
            let _ = tokio::io::copy(&mut from, &mut to).await;
            let _ = to.shutdown().await;
            drop(open);
        });
        return Ok(agreed);
    }
    if path.ends_with("/portforward") {
        let mut refused = Response::new(Full::new(Bytes::from_static(b"unable to upgrade")).boxed_unsync());
        *refused.status_mut() = StatusCode::FORBIDDEN;
        for (name, value) in
            [("x-accepted-stream-protocol-versions", "portforward.k8s.io"), ("set-cookie", "a=b")]
        {
            refused.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        return Ok(refused);
    }
    if path == "/k8s/version" || path.ends_with(STUCK) {
        std::future::pending::<()>().await;
    }
    let body = if path.ends_with("/log") {
        let lines = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok(Frame::data(Bytes::from_static(b"line\n"))), ()))
        });
        StreamBody::new(lines).boxed_unsync()
    } else {
        let sent = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Full::new(Bytes::from(format!("{line} {}", String::from_utf8_lossy(&sent)))).boxed_unsync()
    };
    let mut response = Response::new(body);
    response.headers_mut().insert("set-cookie", HeaderValue::from_static("a=b"));
    response.headers_mut().insert("warning", HeaderValue::from_static("299 - old"));
    if path.ends_with("/unauthorized") {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    Ok(response)
}

/// What was told of requests, in all tests.
static TOLD: Mutex<Vec<Record>> = Mutex::new(Vec::new());

fn keep(record: &Record) {
    record.log();
    TOLD.lock().push(record.clone());
}

/// What is told of the request of this id when it has ended.
async fn told(audit_id: &str) -> Record {
    let telling = async {
        loop {
            let found = TOLD.lock().iter().find(|record| record.audit_id == audit_id).cloned();
            match found {
                Some(record) => return record,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), telling).await;
    told.unwrap_or_else(|_| panic!("nothing is told of {audit_id}"))
}

type Sender = hyper::client::conn::http2::SendRequest<Lines>;

struct Set {
    hub: Sender,
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
    goodbye: Goodbye,
    link: JoinHandle<()>,
}

async fn set(mode: &str) -> Set {
    set_of(mode, Toll::default(), Duration::ZERO).await
}

/// Over a link on which everything takes so long.
async fn set_of(mode: &str, budget: Toll, delay: Duration) -> Set {
    let (near, Far { seen, serving, goodbye, link }) = far(mode, budget, delay);
    let (hub, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    Set { hub, seen, serving, goodbye, link }
}

/// What is at the other end of a link.
struct Far {
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
    goodbye: Goodbye,
    link: JoinHandle<()>,
}

fn far(mode: &str, budget: Toll, delay: Duration) -> (DuplexStream, Far) {
    let seen = Arc::new(Seen::default());
    let limits = Limits { mode: mode.parse().unwrap(), ..Limits::default() };
    let own = vec!["system:serviceaccount:karmada-system:karmada-agent".to_owned()];
    let door = Arc::new(Stand(seen.clone()));
    let tunnel = Arc::new(Tunnel { limits, own, guests: Guests::default(), door, budget, told: keep });
    // The link: bytes cross it until it is cut.
    let ((near, here), (there, far)) = (duplex(64 << 10), duplex(64 << 10));
    let ((from_hub, to_hub), (from_agent, to_agent)) = (tokio::io::split(here), tokio::io::split(there));
    let link = tokio::spawn(async move {
        tokio::select! {
            () = late(from_hub, to_agent, delay) => {}
            () = late(from_agent, to_hub, delay) => {}
        }
    });
    let goodbye = Goodbye::default();
    let serving = tokio::spawn(tunnel.serve(far, goodbye.clone()));
    (near, Far { seen, serving, goodbye, link })
}

/// Carries bytes, each so much later than it came.
async fn late(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, delay: Duration) {
    let (sender, mut parts) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async {
        let mut part = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut part).await {
            let _ = sender.send((Instant::now() + delay, part[..count].to_vec()));
        }
    };
    let write = async {
        while let Some((due, part)) = parts.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&part).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}

fn user(username: &str, groups: &[&str]) -> String {
    let told = serde_json::json!({"username": username, "groups": groups});
    BASE64_URL_SAFE_NO_PAD.encode(told.to_string())
}

fn request(method: &str, path: &str, body: &'static str) -> Request<Lines> {
    Request::builder()
        .method(method)
        .uri(format!("http://member{path}"))
        .header(USER, user("jane", &["dev", "system:authenticated"]))
        .body(Full::new(Bytes::from_static(body.as_bytes())).boxed_unsync())
        .unwrap()
}

impl Set {
    /// Something of john's.
    async fn ask_for(&mut self, path: &str) -> Response<Incoming> {
        self.hub.send_request(of_john(request("GET", path, ""))).await.unwrap()
    }

    async fn ask(&mut self, request: Request<Lines>) -> (u16, HeaderMap, String) {
        let answer = self.hub.send_request(request).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, String::from_utf8_lossy(&body).into_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_is_done_in_the_users_name_alone() {
    let mut set = set("full").await;
    let mut asked = request("POST", "/api/v1/namespaces/n/configmaps?dryRun=All", "{}");
    for (name, value) in [
        ("impersonate-user", "root"),
        ("impersonate-group", "system:masters"),
        ("impersonate-uid", "1"),
        ("impersonate-extra-x", "y"),
        ("authorization", "Bearer mine"),
        ("cookie", "a=b"),
        ("x-remote-user", "root"),
        ("x-http-method-override", "DELETE"),
        ("x-original-url", "/api/v1/secrets"),
        ("accept", "application/json"),
    ] {
        asked.headers_mut().append(name, HeaderValue::from_static(value));
    }
    let (code, headers, body) = set.ask(asked).await;
    assert_eq!((code, body.as_str()), (200, "POST /k8s/api/v1/namespaces/n/configmaps?dryRun=All {}"));
    assert!(!headers.contains_key("set-cookie") && headers.contains_key("warning"), "{headers:?}");
    let (_, sent) = set.seen.heads.lock().remove(0);
    let mut lines: Vec<_> =
        sent.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.retain(|line| !line.starts_with("content-length") && !line.starts_with("transfer-encoding"));
    lines.sort();
    let want = [
        "accept: application/json",
        "authorization: Bearer secret",
        "host: member:6443",
        "impersonate-group: dev",
        "impersonate-user: jane",
    ];
    assert_eq!(lines, want);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_never_reaches_the_member() {
    let mut set = set("read-only").await;
    let with = |told: Option<&str>| {
        let mut asked = request("GET", "/api/v1/pods", "");
        asked.headers_mut().remove(USER);
        if let Some(told) = told {
            asked.headers_mut().append(USER, told.parse().unwrap());
        }
        asked
    };
    let extra = BASE64_URL_SAFE_NO_PAD.encode(r#"{"username":"jane","groups":[],"extra":{"a":["b"]}}"#);
    let mut twice = with(Some(&user("jane", &[])));
    twice.headers_mut().append(USER, user("root", &[]).parse().unwrap());
    for (asked, code, word) in [
        (request("DELETE", "/api/v1/namespaces/n/pods/p", ""), 403, "--tunnel=read-only"),
        (request("GET", "/api/v1/namespaces/n/pods/p/exec?command=ls", ""), 403, "--tunnel=read-only"),
        (request("GET", "/api/v1/namespaces/n/pods/%2e%2e/secrets", ""), 400, ".."),
        (request("GET", "/api/v1//secrets", ""), 400, "slashes"),
        (with(None), 400, USER),
        (twice, 400, USER),
        (with(Some("{}")), 400, USER),
        (with(Some(&extra)), 400, "extra"),
        (with(Some(&user("jane ", &[]))), 400, "jane"),
        (with(Some(&user("jane", &["system:masters"]))), 403, "--tunnel-masters"),
        (
            with(Some(&user("system:serviceaccount:karmada-system:karmada-agent", &[]))),
            403,
            "account of the agent's own",
        ),
        (with(Some(&user("jane", &["system:nodes"]))), 403, "--tunnel-groups"),
        (with(Some(&user("system:kube-scheduler", &[]))), 403, "--tunnel-users"),
        (with(Some(&user("system:serviceaccount:monitoring:prometheus", &[]))), 403, "ServiceAccounts"),
    ] {
        let told = format!("{asked:?}");
        let (answer, _, body) = set.ask(asked).await;
        assert_eq!(answer, code, "{told}: {body}");
        assert!(body.contains(word), "{body}");
    }
    assert!(set.seen.heads.lock().is_empty());
    assert_eq!(set.ask(request("GET", "/api/v1/pods", "")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn the_members_failures_are_not_the_users() {
    let mut set = set("full").await;
    let (code, _, body) = set.ask(request("GET", "/unauthorized", "")).await;
    assert_eq!(code, 502, "{body}");
    let start = Instant::now();
    let (code, _, body) = set.ask(request("GET", "/version", "")).await;
    assert_eq!((code, start.elapsed()), (504, WHOLE), "{body}");
}

#[tokio::test(start_paused = true)]
async fn each_request_is_told_with_who_asked_for_what_and_what_came_of_it() {
    let (mut full, mut reads) = (set("full").await, set("read-only").await);
    let marked = |mut asked: Request<Lines>, id: &'static str| {
        asked.headers_mut().insert("audit-id", HeaderValue::from_static(id));
        asked
    };
    let mut unknown = request("GET", "/api/v1/pods", "");
    unknown.headers_mut().remove(USER);
    let maps = "/api/v1/namespaces/n/configmaps?dryRun=All";
    for (is_full, asked, id, user, verb, uri, code, sent) in [
        (true, request("POST", maps, "{}"), "told-made", "jane", "create", maps, 200, 2),
        (
            true,
            request("GET", "/api/v1/pods?limit=5", ""),
            "told-list",
            "jane",
            "list",
            "/api/v1/pods?limit=5",
            200,
            0,
        ),
        (true, request("GET", "/unauthorized", ""), "told-refused", "jane", "get", "/unauthorized", 502, 0),
        (
            false,
            request("DELETE", "/api/v1/namespaces/n/pods/p", ""),
            "told-denied",
            "jane",
            "delete",
            "/api/v1/namespaces/n/pods/p",
            403,
            0,
        ),
        (true, unknown, "told-unknown", "", "GET", "/api/v1/pods", 400, 0),
    ] {
        let set = if is_full { &mut full } else { &mut reads };
        let (answer, _, body) = set.ask(marked(asked, id)).await;
        assert_eq!(answer, code, "{id}: {body}");
        let want = Record {
            user: user.to_owned(),
            verb: verb.to_owned(),
            uri: uri.to_owned(),
            code,
            bytes: sent + body.len() as u64,
            audit_id: id.to_owned(),
            whole: true,
        };
        assert_eq!(told(id).await, want);
    }
    // A session when it has ended, with what went both ways.
    let answer =
        full.hub.send_request(marked(session("GET", "websocket", EXEC), "told-session")).await.unwrap();
    let (mut from, mut to) = tokio::io::split(TokioIo::new(hyper::upgrade::on(answer).await.unwrap()));
    to.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    from.read_exact(&mut heard).await.unwrap();
    assert!(TOLD.lock().iter().all(|record| record.audit_id != "told-session"), "it goes on");
    to.shutdown().await.unwrap();
    assert_eq!(from.read(&mut heard).await.unwrap(), 0);
    let record = told("told-session").await;
    assert_eq!((record.user.as_str(), record.verb.as_str(), record.uri.as_str()), ("jane", "get", EXEC));
    assert_eq!((record.code, record.bytes, record.whole), (101, 10, true));
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_cut_ends_what_runs_on_it_at_once() {
    let mut set = set("read-only").await;
    let logs = set
        .hub
        .send_request(request("GET", "/api/v1/namespaces/n/pods/p/log?follow=true", ""))
        .await
        .unwrap();
    let mut lines = logs.into_body().into_data_stream();
    for _ in 0..300 {
        assert_eq!(lines.next().await.unwrap().unwrap(), "line\n");
    }
    let mut open = set.seen.open.subscribe();
    assert_eq!(*open.borrow_and_update(), 1);
    let start = Instant::now();
    set.link.abort();
    set.serving.await.unwrap();
    open.wait_for(|open| *open == 0).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    // What was under way may still come; then it breaks off visibly. A body says so again whenever it is asked.
    let end = loop {
        match lines.next().await {
            Some(Ok(_)) => {}
            end => break end,
        }
    };
    assert!(end.is_some_and(|end| end.is_err()));
}

/// A request for a session, as the hub asks for it.
fn session(method: &'static str, protocol: &'static str, path: &str) -> Request<Lines> {
    let mut asked = request("CONNECT", path, "");
    asked.extensions_mut().insert(hyper::ext::Protocol::from_static("karmada-session"));
    for (name, value) in [
        ("karmada-method", method),
        ("karmada-upgrade", protocol),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ("authorization", "Bearer mine"),
    ] {
        asked.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    asked
}

const EXEC: &str = "/api/v1/namespaces/n/pods/p/exec?command=sh";

#[tokio::test(start_paused = true)]
async fn a_session_is_carried_as_bytes_and_ends_with_the_link() {
    let mut set = set("full").await;
    let answer = set.hub.send_request(session("GET", "websocket", EXEC)).await.unwrap();
    let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(header("karmada-status").as_deref(), Some("101"));
    assert_eq!(header("karmada-upgrade").as_deref(), Some("websocket"));
    assert_eq!(header("sec-websocket-accept").as_deref(), Some("s"));
    let (line, sent) = set.seen.heads.lock().remove(0);
    assert_eq!(line, format!("GET /k8s{EXEC}"));
    for (name, value) in [
        ("authorization", "Bearer secret"),
        ("impersonate-user", "jane"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ] {
        assert_eq!(sent.get(name).unwrap(), value, "{name}");
    }
    let (mut from, mut to) = tokio::io::split(TokioIo::new(hyper::upgrade::on(answer).await.unwrap()));
    let said: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut heard = vec![0; said.len()];
    let (wrote, read) = tokio::join!(to.write_all(&said), from.read_exact(&mut heard));
    wrote.unwrap();
    read.unwrap();
    assert!(said == heard, "what came back is what was sent");
    let mut open = set.seen.open.subscribe();
    open.wait_for(|open| *open == 1).await.unwrap();
    let start = Instant::now();
    set.link.abort();
    open.wait_for(|open| *open == 0).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let ended = from.read(&mut [0]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_refused_leaves_no_connection() {
    let mut reads = set("read-only").await;
    let mut full = set("full").await;
    let log = "/api/v1/namespaces/n/pods/p/attach";
    for (is_full, asked, code, word) in [
        (false, session("GET", "websocket", EXEC), 403, "--tunnel=read-only"),
        (true, session("GET", "h2c", EXEC), 400, "websocket"),
        (true, session("DELETE", "websocket", EXEC), 400, "GET or POST"),
        // The member answers, and does not agree.
        (true, session("POST", "SPDY/3.1", log), 502, "status code 200"),
        // It agrees to something else.
        (true, session("POST", "SPDY/3.1", EXEC), 502, "another protocol"),
    ] {
        let told = format!("{asked:?}");
        let set = if is_full { &mut full } else { &mut reads };
        let (answer, headers, body) = set.ask(asked).await;
        assert_eq!(answer, code, "{told}: {body}");
        assert!(body.contains(word) && !headers.contains_key("karmada-status"), "{body}");
    }
    // Who is refused for the version hears which there are.
    let ports = session("POST", "SPDY/3.1", "/api/v1/namespaces/n/pods/p/portforward");
    let (answer, headers, body) = full.ask(ports).await;
    assert_eq!((answer, body.as_str()), (403, "unable to upgrade"));
    let versions = headers.get("x-accepted-stream-protocol-versions").map(HeaderValue::as_bytes);
    assert_eq!(versions, Some(&b"portforward.k8s.io"[..]));
    assert!(!headers.contains_key("set-cookie"), "{headers:?}");
    assert!(reads.seen.heads.lock().is_empty());
    let mut open = full.seen.open.subscribe();
    open.wait_for(|open| *open == 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_keeps_what_nobody_uses() {
    let mut set = set("read-only").await;
    let start = Instant::now();
    tokio::time::sleep(IDLE / 2).await;
    assert_eq!(set.ask(request("GET", "/api/v1/pods", "")).await.0, 200);
    // What lasts is use.
    let logs = set.hub.send_request(request("GET", "/api/v1/namespaces/n/pods/p/log", "")).await.unwrap();
    let mut lines = logs.into_body().into_data_stream();
    for _ in 0..(3 * IDLE.as_secs()) {
        lines.next().await.unwrap().unwrap();
    }
    let used = start.elapsed();
    drop(lines);
    set.serving.await.unwrap();
    let kept = start.elapsed() - used;
    assert!(kept >= IDLE && kept < IDLE + Duration::from_secs(5), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_while_it_ends_goes_on() {
    let delay = Duration::from_secs(2);
    let mut set = set_of("read-only", Toll::default(), delay).await;
    assert_eq!(set.ask(request("GET", "/api/v1/pods", "")).await.0, 200);
    assert!(!set.goodbye.is_said());
    // The agent has had enough for a second, which the hub hears of a second later.
    tokio::time::sleep(IDLE - delay + delay / 2).await;
    let logs = set.hub.send_request(request("GET", "/api/v1/namespaces/n/pods/p/log", "")).await.unwrap();
    let mut lines = logs.into_body().into_data_stream();
    for n in 0..5 * GOODBYE.as_secs() {
        assert!(lines.next().await.is_some_and(|line| line.is_ok()), "it is cut after {n} s");
    }
    assert!(set.goodbye.is_said(), "another tunnel does not end this one");
    let start = Instant::now();
    drop(lines);
    set.serving.await.unwrap();
    assert!(start.elapsed() < GOODBYE + 2 * delay, "{:?}", start.elapsed());
}

/// The same as somebody else.
fn of_john(mut asked: Request<Lines>) -> Request<Lines> {
    asked.headers_mut().insert(USER, user("john", &["dev"]).parse().unwrap());
    asked
}

#[tokio::test(start_paused = true)]
async fn whoever_has_used_up_their_share_asks_nothing_and_others_do() {
    let budget = Toll::full(4 << 20, karmada_env::Env::system());
    let mut set = set_of("full", budget.clone(), Duration::ZERO).await;
    assert_eq!(set.ask(request("GET", "/api/v1/pods", "")).await.0, 200);
    budget.spend(1 << 20);
    budget.share("jane", 0).charge(1 << 20);
    let asked = set.seen.heads.lock().len();
    for asked in [request("GET", "/api/v1/pods", ""), session("GET", "websocket", EXEC)] {
        let (code, headers, body) = set.ask(asked).await;
        assert_eq!(code, 429, "{body}");
        for word in ["--tunnel-budget", "4096 KiB in an hour", "your share"] {
            assert!(body.contains(word), "{body}");
        }
        // 512 KiB and a little more are owed, and 1536 KiB come in an hour.
        let wait: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1200..1215).contains(&wait), "{wait}");
        let told: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(told["details"]["retryAfterSeconds"], wait);
        assert_eq!(headers[SPENT].to_str().unwrap(), format!("share-{wait}-4194304"));
    }
    assert_eq!(set.seen.heads.lock().len(), asked);
    assert_eq!(set.ask(of_john(request("GET", "/api/v1/pods", ""))).await.0, 200);
    // Also for what she may not do at all: the hub sends nothing more of hers.
    let (code, headers, body) = set.ask(request("GET", "/api/v1//pods", "")).await;
    assert!(code == 429 && headers.contains_key(SPENT), "{code}: {body}");
    let (code, ..) = set.ask(of_john(request("GET", "/api/v1//pods", ""))).await;
    assert_eq!(code, 400);
}

#[tokio::test(start_paused = true)]
async fn names_that_are_refused_have_one_share_and_large_heads_are_paid_for() {
    let budget = Toll::full(4 << 20, karmada_env::Env::system());
    let mut set = set_of("read-only", budget, Duration::ZERO).await;
    let accept = "a".repeat(7 << 10);
    let mut codes = Vec::new();
    // 512 KiB may go at once.
    for n in 0..100 {
        let mut asked = request("GET", "/api/v1/pods", "");
        let name = format!("system:serviceaccount:made-up:{n}");
        asked.headers_mut().insert(USER, user(&name, &[]).parse().unwrap());
        asked.headers_mut().insert("accept", accept.parse().unwrap());
        codes.push(set.ask(asked).await.0);
    }
    assert!(codes.starts_with(&[403; 50]) && codes.ends_with(&[429; 20]), "{codes:?}");
    assert_eq!(set.ask(request("GET", "/api/v1/pods", "")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn who_asks_is_paid_for_where_it_crosses() {
    let groups = |count: usize| (0..count).map(|n| format!("cn=group-{n:04},ou=groups")).collect::<Vec<_>>();
    // How often each of these users may ask, in turns, until one of them has used up what may go at once.
    for (users, count, want) in [(1, 60, 600..1400), (2, 60, 150..250), (1, 200, 60..100)] {
        let budget = Toll::full(4 << 20, karmada_env::Env::system());
        let mut set = set_of("full", budget, Duration::ZERO).await;
        let groups = groups(count);
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let asks = (0..2000).map(|n| {
            let mut asked = request("GET", "/api/v1/pods", "");
            let name = format!("user-{}", n % users);
            asked.headers_mut().insert(USER, user(&name, &groups).parse().unwrap());
            asked
        });
        let mut asked = 0;
        for ask in asks {
            if set.ask(ask).await.0 == 429 {
                break;
            }
            asked += 1;
        }
        assert!(want.contains(&(asked / users)), "{users} with {count} groups: {asked}");
    }
}

/// It may be a Pod of the user's own that answers.
#[tokio::test(start_paused = true)]
async fn the_heads_of_answers_are_bounded_and_paid_for() {
    let budget = Toll::full(4 << 20, karmada_env::Env::system());
    let mut set = set_of("full", budget, Duration::ZERO).await;
    let mut lines = set.ask_for("/api/v1/namespaces/n/pods/p/log?follow=true").await.into_body();
    let ports = "/api/v1/namespaces/n/pods/p/portforward";
    let all = || {
        [
            request("GET", "/api/v1/pods", ""),
            session("GET", "websocket", EXEC),
            session("POST", "SPDY/3.1", ports),
        ]
    };
    // What was done is said, with as many warnings as there is room for.
    set.seen.warns.store(true, Ordering::Relaxed);
    let answer = set.hub.send_request(request("GET", "/api/v1/pods", "")).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().get_all("warning").iter().count()), (200, 6));
    set.seen.warns.store(false, Ordering::Relaxed);
    // What takes three bytes each, and one.
    for (sign, count) in [(b'\\', 60_000), (b'\\', 2800), (b'a', 9000)] {
        *set.seen.says.lock() = Some(HeaderValue::from_bytes(&vec![sign; count]).unwrap());
        for asked in all() {
            let told = format!("{count} {asked:?}");
            let (code, headers, body) = set.ask(asked).await;
            assert_eq!(code, 502, "{told}: {body}");
            assert!(body.contains("the headers of its answer take") && body.contains("8192"), "{body}");
            assert!(SAID.iter().all(|name| !headers.contains_key(*name)), "{headers:?}");
        }
    }
    let said = HeaderValue::from_bytes(&[b'\\'; 2500]).unwrap();
    *set.seen.says.lock() = Some(said.clone());
    let mut codes = Vec::new();
    // 512 KiB may go at once.
    for asked in std::iter::repeat_with(all).take(40).flatten() {
        let (code, headers, _) = match asked.uri().path().ends_with("exec") {
            true => {
                let (head, _) = set.hub.send_request(asked).await.unwrap().into_parts();
                (head.status.as_u16(), head.headers, String::new())
            }
            false => set.ask(asked).await,
        };
        assert!(
            code == 429 || SAID.iter().any(|name| headers.get(*name) == Some(&said)),
            "{code} {headers:?}"
        );
        codes.push(code);
    }
    let paid = codes.iter().take_while(|code| **code != 429).count();
    assert!((55..75).contains(&paid) && codes.ends_with(&[429; 20]), "{codes:?}");
    assert_eq!(set.ask(of_john(request("GET", "/api/v1/pods", ""))).await.0, 200);
    for _ in 0..3 {
        assert_eq!(lines.frame().await.unwrap().unwrap().into_data().unwrap(), "line\n");
    }
}

/// Where a link has stood still, what was asked meanwhile and given up comes at once.
#[tokio::test(start_paused = true)]
async fn what_is_given_up_before_it_is_looked_at_ends_nothing() {
    let mut set = set_of("full", Toll::default(), Duration::from_millis(100)).await;
    let mut lines = set.ask_for("/api/v1/namespaces/n/pods/p/log?follow=true").await.into_body();
    for _ in 0..500 {
        let asked = tokio::spawn(set.hub.send_request(request("GET", "/api/v1/pods", "")));
        // It is on its way.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        asked.abort();
    }
    for _ in 0..3 {
        assert_eq!(lines.frame().await.unwrap().unwrap().into_data().unwrap(), "line\n");
    }
    assert_eq!(set.ask(request("GET", "/api/v1/pods", "")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_to_be_refused_is_paid_for_by_whoever_sends_it() {
    let budget = Toll::full(4 << 20, karmada_env::Env::system());
    let mut set = set_of("read-only", budget, Duration::ZERO).await;
    let open = latest::Sender::new(0_usize);
    // 512 KiB may go at once, and of each upload what crosses before anybody can say no.
    for n in 0..(512 << 10) / WINDOW {
        let mut asked = request("POST", "/api/v1/namespaces/n/configmaps", "");
        let upload = Open::new(&open);
        let parts = futures::stream::repeat_with(move || {
            let _ = &upload;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b' '; 1024])))
        });
        *asked.body_mut() = StreamBody::new(parts).boxed_unsync();
        let (code, _, body) = set.ask(asked).await;
        assert_eq!(code, 403, "{n}: {body}");
        // The rest is not sent.
        let mut uploads = open.subscribe();
        let ended = tokio::time::timeout(GOODBYE, uploads.wait_for(|open| *open == 0)).await;
        assert!(ended.is_ok_and(|ended| ended.is_ok()), "{n}: the upload goes on");
    }
    assert_eq!(set.ask(request("GET", "/api/v1/pods", "")).await.0, 429);
    assert_eq!(set.ask(of_john(request("GET", "/api/v1/pods", ""))).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn what_has_begun_goes_on_until_a_share_of_an_hour_is_owed() {
    let budget = Toll::full(4 << 20, karmada_env::Env::system());
    let mut set = set_of("read-only", budget.clone(), Duration::ZERO).await;
    let logs = "/api/v1/namespaces/n/pods/p/log";
    let hers = set.hub.send_request(request("GET", logs, "")).await.unwrap();
    let his = set.hub.send_request(of_john(request("GET", logs, ""))).await.unwrap();
    let (mut hers, mut his) = (hers.into_body().into_data_stream(), his.into_body().into_data_stream());
    assert!(hers.next().await.unwrap().is_ok() && his.next().await.unwrap().is_ok());
    // A quarter of her share of an hour may go at once, and all of it may be owed.
    budget.share("jane", 0).charge(1 << 20);
    for _ in 0..10 {
        assert!(hers.next().await.unwrap().is_ok() && his.next().await.unwrap().is_ok());
    }
    budget.share("jane", 0).charge(3 << 19);
    let ended = async { while hers.next().await.is_some_and(|line| line.is_ok()) {} };
    assert!(tokio::time::timeout(GOODBYE, ended).await.is_ok(), "it goes on");
    assert!(his.next().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_stops_ends_it() {
    let mut set = set("read-only").await;
    let logs = set.hub.send_request(request("GET", "/api/v1/namespaces/n/pods/p/log", "")).await.unwrap();
    let mut open = set.seen.open.subscribe();
    set.serving.abort();
    open.wait_for(|open| *open == 0).await.unwrap();
    assert!(logs.into_body().collect().await.is_err());
}

#[test]
fn who_is_sent_elsewhere_stays_on_the_member() {
    let door = Arc::new(Stand(Arc::default()));
    let limits = Limits::default();
    let (own, guests, budget) = (Vec::new(), Guests::default(), Toll::default());
    let tunnel = Tunnel { limits, own, guests, door, budget, told: Record::log };
    for (to, want) in [
        ("/k8s/api/v1/", Some("/api/v1/")),
        ("https://member:6443/k8s/api?x=/../y", Some("/api?x=/../y")),
        ("https://elsewhere/k8s/api", None),
        ("/api", None),
        ("/k8s//elsewhere", None),
        ("/k8s/../../other/proxy/api", None),
        ("/k8s/%2e%2e/x", None),
        ("/k8s/api%2F..%2fx", None),
        ("/k8s/.\t./x", None),
        ("/k8s/..\\x", None),
    ] {
        assert_eq!(tunnel.inside(to), want, "{to}");
    }
}
