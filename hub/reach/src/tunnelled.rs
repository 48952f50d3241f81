//! A member behind NAT, its agent, and the hub's part: what crosses a tunnel between them.

use std::{
    convert::Infallible,
    io::Write as _,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    time::SystemTime,
};

use axum::body::to_bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{future::ready, stream};
use hyper::{body::Incoming, service::service_fn};
use karmada_api::{
    cluster::{Cluster, ClusterSyncMode, LocalSecretReference},
    consts::extension,
};
use karmada_apiserver::authn::CREDENTIAL_ID;
use karmada_core::spent::SPENT;
use karmada_env::ManualClock;
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};

use super::{tests::serve, *};

/// A Cluster whose agent serves a tunnel, which the platform wants though somebody has said where its API is: nobody is there.
struct Behind(mpsc::UnboundedSender<String>, Arc<Agents>);

impl Registry for Behind {
    fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>> {
        let mut cluster = Cluster::new(name, Default::default());
        cluster.spec.sync_mode = ClusterSyncMode::Pull;
        cluster.spec.api_endpoint = "https://127.0.0.1:1".to_owned();
        let (namespace, secret) = ("karmada-cluster".to_owned(), format!("{name}-impersonator"));
        cluster.spec.impersonator_secret_ref = Some(LocalSecretReference { namespace, name: secret });
        let annotations =
            [extension::TUNNEL, extension::TUNNEL_WANTED].map(|key| (key.to_owned(), "full".to_owned()));
        cluster.metadata.annotations = Some(annotations.into());
        Box::pin(ready(Ok(Some(cluster))))
    }

    fn clusters(&self) -> BoxFuture<'_, Result<Vec<String>, Status>> {
        Box::pin(ready(Ok(vec!["m".to_owned()])))
    }

    fn searched<'a>(&'a self, _: &'a Place, _: Turn) -> BoxFuture<'a, Result<Option<Vec<String>>, Status>> {
        Box::pin(ready(Ok(None)))
    }

    fn own<'a>(&'a self, _: &'a UserInfo, _: Request<Body>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(ready(Err(Status::internal("nobody is asked"))))
    }

    fn agent(&self, _: &str) -> String {
        self.1.name.lock().clone()
    }

    fn secret(&self, _: &str, _: &str) -> BoxFuture<'_, Result<Option<Value>, Status>> {
        Box::pin(ready(Ok(Some(json!({"data": {"token": "dG9rZW4="}})))))
    }

    fn call<'a>(&'a self, _: &'a str, number: &'a str) -> BoxFuture<'a, Result<(), Status>> {
        let sent = self.0.send(number.to_owned());
        Box::pin(ready(sent.map_err(|_| Status::internal("its agent has gone"))))
    }
}

/// A list that compresses well.
fn list() -> String {
    let maps: Vec<Value> = (0..1000)
        .map(
            |n| json!({"metadata": {"namespace": "n", "name": format!("map-{n}")}, "data": {"key": "value"}}),
        )
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"}, "items": maps})
        .to_string()
}

/// As a kube-apiserver answers a list: compressed for whoever accepts that.
fn member(request: &Request<Incoming>) -> Response<Body> {
    if request.uri().path() != "/api/v1/configmaps" {
        return Response::new(Body::from("0123456789"));
    }
    if request.headers().get(header::ACCEPT_ENCODING).is_none_or(|accepted| accepted != "gzip") {
        return Response::new(Body::from(list()));
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(list().as_bytes()).unwrap();
    let mut answer = Response::new(Body::from(packed.finish().unwrap()));
    answer.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    answer
}

/// What the member's agents are told, and how often one was called.
#[derive(Default)]
struct Agents {
    /// Tells the one at present apart from others.
    name: Mutex<String>,
    calls: AtomicUsize,
    /// The next connection breaks off when the hub has let it in, and it dials once more.
    is_lost: AtomicBool,
    /// The one that broke off has ended on the hub, too.
    is_ended: AtomicBool,
    /// A tunnel breaks off.
    breaks: Notify,
    /// It says goodbye, and takes nothing more.
    leaves: Notify,
    /// How often it was asked for something.
    asked: AtomicUsize,
    /// It refuses whoever asks, with this in [`SPENT`].
    spent: Mutex<Option<&'static str>>,
    /// It does not come, and says so by this.
    declines: Mutex<Option<&'static str>>,
    /// The lines of [`LOG`], for the first that asks.
    lines: Mutex<Option<mpsc::UnboundedReceiver<Bytes>>>,
}

const LOG: &str = "/api/v1/namespaces/n/pods/p/log";
/// What is sent to this nobody reads.
const REFUSED: &str = "/refused";

/// Lines as they come, without an end.
fn follows(lines: mpsc::UnboundedReceiver<Bytes>) -> Response<Body> {
    let lines = stream::unfold(lines, |mut lines| async move {
        let line = lines.recv().await?;
        Some((Ok::<_, Infallible>(line), lines))
    });
    Response::new(Body::from_stream(lines))
}

/// As an agent refuses whose budget is used up.
fn refuses(told: &'static str) -> Response<Body> {
    let status = Spent::of(told).unwrap().status();
    let seconds = status.details.as_ref().unwrap().retry_after_seconds;
    Response::builder()
        .status(429)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::RETRY_AFTER, seconds)
        .header(SPENT, told)
        .body(Body::from(serde_json::to_vec(&status).unwrap()))
        .unwrap()
}

/// Comes by a number.
async fn comes(door: std::net::SocketAddr, number: &str) -> Response<Incoming> {
    let io = TokioIo::new(TcpStream::connect(door).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let comes = Request::get(extension::TUNNEL_PATH)
        .header(header::HOST, "hub")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, tunnel::PROTOCOL)
        .header(tunnel::NUMBER, number);
    sender.send_request(comes.body(Body::empty()).unwrap()).await.unwrap()
}

/// Says something at the path of tunnels without coming, and hears the code of the answer.
async fn says(door: std::net::SocketAddr, query: &str) -> u16 {
    let io = TokioIo::new(TcpStream::connect(door).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let says = Request::get(format!("{}?{query}", extension::TUNNEL_PATH)).header(header::HOST, "hub");
    sender.send_request(says.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
}

/// Comes by a number, and serves until it is told to end.
async fn agent(door: std::net::SocketAddr, number: String, agents: Arc<Agents>) {
    let declines = *agents.declines.lock();
    if let Some(told) = declines {
        for (query, code) in [
            (format!("number={number}"), 400),
            (format!("number={number}0&spent={told}"), 409),
            (format!("number={number}&spent={told}"), 200),
        ] {
            assert_eq!(says(door, &query).await, code, "{query}");
        }
        return;
    }
    let mut answer = comes(door, &number).await;
    if agents.is_lost.swap(false, Relaxed) {
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        // Nobody tells the hub.
        let lost = hyper::upgrade::on(answer).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        answer = comes(door, &number).await;
        // The hub keeps but one of them.
        let ends = async { TokioIo::new(lost).read_to_end(&mut Vec::new()).await };
        timeout(Duration::from_secs(5), ends).await.unwrap().unwrap();
        agents.is_ended.store(true, Relaxed);
    }
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    let io = hyper::upgrade::on(answer).await.unwrap();
    let of = agents.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        of.asked.fetch_add(1, Relaxed);
        let spent = *of.spent.lock();
        let lines = of.lines.lock().take_if(|_| request.uri().path() == LOG);
        let answer = match spent {
            Some(told) => refuses(told),
            None => lines.map_or_else(|| member(&request), follows),
        };
        async move {
            // What is sent is taken, as a member takes it.
            if request.uri().path() != REFUSED {
                let _ = to_bytes(Body::new(request.into_body()), 1 << 20).await;
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // Frames with next to nothing in them are counted against half of that; an agent does not count them.
    builder.initial_connection_window_size(64 << 20);
    let serving = builder.serve_connection(io, service);
    tokio::pin!(serving);
    tokio::select! {
        _ = &mut serving => return,
        () = agents.breaks.notified() => return,
        () = agents.leaves.notified() => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = serving.await;
}

/// The hub's part, and the agents.
async fn world() -> (Reach, Arc<Agents>) {
    world_in(Env::system()).await
}

/// The same at this time.
async fn world_in(env: Env) -> (Reach, Arc<Agents>) {
    let (calls, mut numbers) = mpsc::unbounded_channel();
    let agents = Arc::new(Agents::default());
    let reach = Reach::new(Arc::new(Behind(calls, agents.clone())), 100, env);
    let by = reach.tunnels().by;
    let door = serve(move |request| {
        let extra = [(CREDENTIAL_ID.to_owned(), vec!["X509SHA256=0".to_owned()])].into();
        let call = Call {
            user: UserInfo { extra, ..UserInfo::new("system:karmada:agent:m", ["system:karmada:agents"]) },
            asked_by: "system:karmada:agent:m".to_owned(),
            ..call("", request)
        };
        let answer = by.carry(call);
        Box::pin(async move {
            answer.await.unwrap_or_else(|status| {
                let mut refused = Response::new(Body::from(status.message));
                *refused.status_mut() = StatusCode::from_u16(status.code).unwrap();
                refused
            })
        })
    })
    .await;
    let all = agents.clone();
    tokio::spawn(async move {
        while let Some(number) = numbers.recv().await {
            all.calls.fetch_add(1, Relaxed);
            tokio::spawn(agent(door, number, all.clone()));
        }
    });
    (reach, agents)
}

fn call(path: &str, request: Request<Body>) -> Call {
    Call {
        user: UserInfo::new("jane", ["dev"]),
        asked_by: "jane".to_owned(),
        name: "m".to_owned(),
        path: path.to_owned(),
        request,
        audit_id: "id-1".to_owned(),
        held: Arc::new(()),
        ends: Box::pin(std::future::pending()),
    }
}

fn get(path: &str) -> Call {
    call(path, Request::get("/").body(Body::empty()).unwrap())
}

async fn body(answer: Result<Response<Body>, Status>) -> Bytes {
    to_bytes(answer.unwrap().into_body(), 1 << 20).await.unwrap()
}

#[tokio::test]
async fn what_crosses_is_counted_by_cluster_and_user_and_lists_of_all_are_compressed() {
    let (reach, _agents) = world().await;
    let (figures, plain) = (reach.figures().clone(), list().len() as u64);
    let tunnel = |direction: &str| figures.tunnel("m", direction).get();
    let user = || figures.user("jane").get();
    // One cluster by its name: what the client accepts is its own.
    let upload = Request::post("/").body(Body::from(vec![b' '; 5000])).unwrap();
    assert_eq!(body(reach.carry(call("/version", upload)).await).await, "0123456789");
    assert_eq!(user(), 5000 + 10);
    assert!((5000..6000).contains(&tunnel("sent")), "{}", tunnel("sent"));
    let (before, asked) = (tunnel("received"), user());
    assert_eq!(body(reach.carry(get("/api/v1/configmaps")).await).await.len() as u64, plain);
    assert_eq!(user() - asked, plain);
    assert!(tunnel("received") - before > plain);
    // All of them.
    let before = tunnel("received");
    let all = Call { name: "*".to_owned(), ..get("/api/v1/configmaps") };
    let all: Value = serde_json::from_slice(&body(reach.carry(all).await).await).unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 1000);
    let crossed = tunnel("received") - before;
    assert!(crossed > 0 && crossed < plain / 4, "{crossed} of {plain}");
    assert_eq!(figures.tunnel("other", "received").get() + figures.user("joe").get(), 0);
}

#[tokio::test]
async fn what_is_asked_as_a_tunnel_ends_is_asked_by_the_next() {
    let (reach, agents) = world().await;
    let shared = &reach.0;
    // Something was heard on it.
    assert_eq!(body(reach.carry(get("/version")).await).await, "0123456789");
    let way = Box::pin(shared.way("m", None)).await.unwrap();
    let Way::Tunnel(tunnel) = &way else { panic!("its agent serves one") };
    assert!(tunnel.works());
    agents.breaks.notify_one();
    let closed = async {
        while tunnel.works() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), closed).await.unwrap();
    // Whoever was given it just before.
    let bytes = shared.figures.user("jane");
    let session = Arc::new(shared.sessions.begin("jane", "m").unwrap());
    let carriage = Carriage { shared, many: None, name: "m".to_owned(), way, again: None, bytes };
    assert_eq!(body(Box::pin(carriage.carry(get("/version"), session)).await).await, "0123456789");
}

#[tokio::test]
async fn what_an_agent_has_accepted_goes_on_when_it_takes_nothing_more() {
    let (reach, agents) = world().await;
    let open = || {
        let page = karmada_telemetry::metrics::Page::new().with(reach.figures().clone()).render();
        karmada_telemetry::metrics::read(&page).unwrap().value("karmada_hub_tunnels_open", &[])
    };
    let (line, lines) = mpsc::unbounded_channel();
    *agents.lines.lock() = Some(lines);
    let log = reach.carry(get(LOG)).await.unwrap();
    let mut log = log.into_body().into_data_stream();
    let mut next = async |text: &'static str| {
        line.send(Bytes::from_static(text.as_bytes())).unwrap();
        let came = timeout(Duration::from_secs(20), log.next()).await.unwrap();
        assert_eq!(came.unwrap().unwrap(), text);
    };
    next("one").await;
    agents.leaves.notify_one();
    let served_by_the_next = async {
        while agents.calls.load(Relaxed) < 2 {
            assert_eq!(body(reach.carry(get("/version")).await).await, "0123456789");
        }
    };
    timeout(Duration::from_secs(20), served_by_the_next).await.unwrap();
    next("two").await;
    assert_eq!(body(reach.carry(get("/version")).await).await, "0123456789");
    next("three").await;
    assert_eq!((open(), agents.calls.load(Relaxed)), (Some(2.0), 2));
    // Nothing of it is kept when all that it has taken is over.
    drop((line, log));
    let ends = async {
        while open() != Some(1.0) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), ends).await.unwrap();
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_and_ends_nothing_of_others() {
    let (reach, agents) = world().await;
    let (line, lines) = mpsc::unbounded_channel();
    *agents.lines.lock() = Some(lines);
    let mut log = reach.carry(get(LOG)).await.unwrap().into_body().into_data_stream();
    for (name, bytes, query, code) in [
        ("accept", 200 << 10, 0, 431),
        ("accept", 100, 8 << 10, 431),
        ("accept", 7 << 10, 100, 200),
        // The agent would not pass it on.
        ("x-a", 200 << 10, 0, 200),
    ] {
        let request = Request::get(format!("/?a={}", "x".repeat(query))).header(name, "a".repeat(bytes));
        let answer = reach.carry(call("/version", request.body(Body::empty()).unwrap())).await;
        let got = answer.map_or_else(|status| status.code(), |answer| answer.status().as_u16());
        assert_eq!(got, code, "{name} {bytes} {query}");
    }
    line.send(Bytes::from_static(b"one")).unwrap();
    let came = timeout(Duration::from_secs(20), log.next()).await.unwrap();
    assert_eq!(came.unwrap().unwrap(), "one");
    assert_eq!((agents.calls.load(Relaxed), agents.asked.load(Relaxed)), (1, 3));
}

#[tokio::test]
async fn what_is_sent_in_crumbs_ends_nothing_of_others() {
    let (reach, agents) = world().await;
    let (line, lines) = mpsc::unbounded_channel();
    *agents.lines.lock() = Some(lines);
    let mut log = reach.carry(get(LOG)).await.unwrap().into_body().into_data_stream();
    for (method, path) in [("GET", "/version"), ("POST", REFUSED), ("POST", "/version")] {
        // Each for itself, as a client writes them.
        let crumbs = stream::unfold(0, |n| async move {
            tokio::task::yield_now().await;
            (n < 10_000).then(|| (Ok::<_, Infallible>(Bytes::from_static(b"x")), n + 1))
        });
        let request = Request::builder().method(method).uri("/").body(Body::from_stream(crumbs)).unwrap();
        let answer = reach.carry(call(path, request)).await.unwrap();
        assert_eq!(body(Ok(answer)).await, "0123456789", "{method} {path}");
    }
    line.send(Bytes::from_static(b"one")).unwrap();
    let came = timeout(Duration::from_secs(20), log.next()).await.unwrap();
    assert_eq!(came.unwrap().unwrap(), "one");
    assert_eq!(agents.calls.load(Relaxed), 1);
}

/// Of what is remembered of a connection, since something may still come, there is only so much.
#[tokio::test]
async fn what_ends_in_order_is_not_late_and_all_else_is() {
    let (reach, agents) = world().await;
    let Way::Tunnel(tunnel) = Box::pin(reach.0.way("m", None)).await.unwrap() else {
        panic!("its agent serves one")
    };
    let late = async |least: usize| {
        let waits = async {
            while tunnel.late() < least {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(20), waits).await.expect("it is not late");
        tunnel.late()
    };
    let endless = || Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let post =
        |path: &str, body: Body| call(path, Request::builder().method("POST").uri("/").body(body).unwrap());
    for _ in 0..3 {
        assert_eq!(body(reach.carry(get("/version")).await).await, "0123456789");
        assert_eq!(body(reach.carry(post("/version", Body::from("{}"))).await).await, "0123456789");
    }
    assert_eq!(late(0).await, 0);
    // Answered before it was sent.
    assert_eq!(body(reach.carry(post(REFUSED, endless())).await).await, "0123456789");
    assert_eq!(late(1).await, 1);
    // Given up in the middle, and before there was an answer.
    let (_line, lines) = mpsc::unbounded_channel();
    *agents.lines.lock() = Some(lines);
    drop(reach.carry(get(LOG)).await.unwrap());
    assert_eq!(late(2).await, 2);
    let asking = timeout(Duration::from_millis(200), reach.carry(post("/version", endless())));
    assert!(asking.await.is_err());
    assert_eq!(late(3).await, 3);
    // Broken off by its client.
    let parts = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("a bad chunk"))]);
    assert_eq!(reach.carry(post("/version", Body::from_stream(parts))).await.unwrap_err().code(), 502);
    assert_eq!(late(4).await, 4);
    let forgotten = async {
        while tunnel.late() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(2 * sessions::LATE, forgotten).await.expect("it is late for ever");
}

#[tokio::test]
async fn a_connection_that_breaks_before_a_word_was_heard_does_not_spend_the_number() {
    let (reach, agents) = world().await;
    agents.is_lost.store(true, Relaxed);
    let answered = async {
        loop {
            match reach.carry(get("/version")).await {
                Ok(answer) => break body(Ok(answer)).await,
                // It was on its way by the first.
                Err(status) => assert_eq!(status.code(), 502, "{status}"),
            }
        }
    };
    assert_eq!(timeout(Duration::from_secs(20), answered).await.unwrap(), "0123456789");
    assert_eq!(agents.calls.load(Relaxed), 1, "by the same number");
    assert!(agents.is_ended.load(Relaxed));
}

/// Its tunnel breaks off, and the hub has noticed.
async fn breaks(reach: &Reach, agents: &Agents) {
    let Way::Tunnel(tunnel) = Box::pin(reach.0.way("m", None)).await.unwrap() else {
        panic!("its agent serves one")
    };
    agents.breaks.notify_one();
    let closed = async {
        while tunnel.works() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), closed).await.unwrap();
}

#[tokio::test]
async fn what_an_agent_refuses_for_its_budget_the_hub_refuses_until_there_is_some_again() {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let (reach, agents) = world_in(Env::seeded(clock.clone(), 1)).await;
    let ask = async |user: &str| {
        let user_info = UserInfo::new(user, ["dev"]);
        let call = Call { user: user_info, asked_by: user.to_owned(), ..get("/version") };
        let (head, body) = reach.carry(call).await.unwrap().into_parts();
        for name in [SPENT, "retry-after"] {
            assert!(!head.headers.contains_key(name), "{:?}", head.headers);
        }
        let text = to_bytes(body, 1 << 20).await.unwrap();
        (head.status.as_u16(), String::from_utf8(text.to_vec()).unwrap())
    };
    let says = |told: Option<&'static str>| *agents.spent.lock() = told;
    let count = || (agents.calls.load(Relaxed), agents.asked.load(Relaxed));
    // What one user has used up.
    says(Some("share-1201-4194304"));
    let told = ask("jane").await;
    assert!(told.0 == 429 && told.1.contains("in 21 min") && told.1.contains("1201"), "{told:?}");
    says(None);
    assert_eq!(ask("jane").await, told, "by the hub, in the same words");
    assert_eq!(count(), (1, 1));
    assert_eq!(ask("john").await.0, 200);
    clock.advance(Duration::from_secs(15 * 60));
    assert_eq!((ask("jane").await.0, count()), (200, (1, 3)), "the agent is asked again");
    // What all have used up: no agent is called that would not come.
    says(Some("all-600-4194304"));
    assert_eq!(ask("jane").await.0, 429);
    breaks(&reach, &agents).await;
    says(None);
    for user in ["jane", "john"] {
        let (code, text) = ask(user).await;
        assert!(code == 429 && text.contains("in 10 min"), "{user}: {text}");
    }
    assert_eq!(count(), (1, 4));
    clock.advance(Duration::from_secs(600));
    assert_eq!((ask("john").await.0, count()), (200, (2, 5)));
    // An agent that is there anew may have more.
    says(Some("share-600-4194304"));
    assert_eq!(ask("jane").await.0, 429);
    says(None);
    breaks(&reach, &agents).await;
    assert_eq!(ask("jane").await.0, 429);
    assert_eq!(ask("john").await.0, 200);
    assert_eq!((ask("jane").await.0, count()), (200, (3, 8)));
    assert_eq!((ask("jane").await.0, count()), (200, (3, 9)), "and no less than others");
    // Whoever asks again does so by one request.
    says(Some("share-4800-4194304"));
    assert_eq!(ask("jane").await.0, 429);
    clock.advance(Duration::from_secs(15 * 60));
    let (one, other) = tokio::join!(ask("jane"), ask("jane"));
    assert_eq!((one.0, other.0, count()), (429, 429, (3, 11)));
    says(None);
    // One of which nothing is sent leaves the next its turn.
    clock.advance(Duration::from_secs(15 * 60));
    let long = Request::get(format!("/?a={}", "x".repeat(9 << 10))).body(Body::empty()).unwrap();
    let refused = reach.carry(call("/version", long)).await.unwrap_err();
    assert_eq!((refused.code(), count()), (431, (3, 11)));
    assert_eq!((ask("jane").await.0, count()), (200, (3, 12)));
}

#[tokio::test]
async fn an_agent_that_does_not_come_says_why_and_is_not_called_until_then() {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let (reach, agents) = world_in(Env::seeded(clock.clone(), 1)).await;
    *agents.declines.lock() = Some("all-600-4194304");
    let refused = reach.carry(get("/version")).await.unwrap_err();
    assert!(refused.code() == 429 && refused.details.is_none(), "{refused:?}");
    *agents.declines.lock() = None;
    let again = reach.carry(get("/version")).await.unwrap();
    assert_eq!((again.status().as_u16(), agents.calls.load(Relaxed)), (429, 1));
    let told = to_bytes(again.into_body(), 1 << 20).await.unwrap();
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(
        (&told["message"], &told["details"]["retryAfterSeconds"]),
        (&json!(refused.message), &json!(600))
    );
    clock.advance(Duration::from_secs(600));
    assert_eq!(body(reach.carry(get("/version")).await).await, "0123456789");
    assert_eq!(agents.calls.load(Relaxed), 2);
}

/// Whoever has stolen a credential may say that nothing is left for hours.
#[tokio::test]
async fn what_an_agent_has_said_of_its_budget_is_forgotten_with_its_credentials() {
    let (reach, agents) = world().await;
    let ask = async || {
        let answer = reach.carry(get("/version")).await;
        answer.map_or_else(|status| status.code(), |answer| answer.status().as_u16())
    };
    // When it is called.
    *agents.declines.lock() = Some("all-7200-4194304");
    assert_eq!(ask().await, 429);
    *agents.declines.lock() = None;
    assert_eq!((ask().await, agents.calls.load(Relaxed)), (429, 1), "by the hub");
    *agents.name.lock() = "revoked".to_owned();
    assert_eq!((ask().await, agents.calls.load(Relaxed)), (200, 2));
    // And when it is asked.
    *agents.spent.lock() = Some("share-7200-4194304");
    assert_eq!(ask().await, 429);
    *agents.spent.lock() = None;
    let asked = agents.asked.load(Relaxed);
    assert_eq!((ask().await, agents.asked.load(Relaxed)), (429, asked), "by the hub");
    *agents.name.lock() = "of another Cluster".to_owned();
    assert_eq!((ask().await, agents.asked.load(Relaxed)), (200, asked + 1));
}
