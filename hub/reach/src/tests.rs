//! A client, the hub's part and a member, each at its end of a connection.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr};

use axum::body::to_bytes;
use futures::future::ready;
use http::{HeaderName, Method, header};
use hyper::{body::Incoming, service::service_fn};
use karmada_api::cluster::{Cluster, LocalSecretReference};
use karmada_apiserver::authn::UserInfo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;

/// What a member does with a request.
type Acts = fn(Request<Body>) -> BoxFuture<'static, Response<Body>>;

/// Serves on a port of the loopback, over connections that may change their protocol.
pub(crate) async fn serve(
    acts: impl Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acts = acts.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = acts(request.map(Body::new));
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    address
}

/// One Cluster, and its Secrets.
struct One {
    cluster: Cluster,
    secrets: BTreeMap<&'static str, Value>,
}

impl Registry for One {
    fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>> {
        let found = (Some(name) == self.cluster.metadata.name.as_deref()).then(|| self.cluster.clone());
        Box::pin(ready(Ok(found)))
    }

    fn secret(&self, namespace: &str, name: &str) -> BoxFuture<'_, Result<Option<Value>, Status>> {
        let found = self.secrets.get(name).filter(|_| namespace == "karmada-cluster").cloned();
        Box::pin(ready(Ok(found)))
    }

    fn clusters(&self) -> BoxFuture<'_, Result<Vec<String>, Status>> {
        Box::pin(ready(Ok(self.cluster.metadata.name.clone().into_iter().collect())))
    }

    fn searched<'a>(&'a self, _: &'a Place, _: Turn) -> BoxFuture<'a, Result<Option<Vec<String>>, Status>> {
        Box::pin(ready(Ok(None)))
    }

    fn own<'a>(&'a self, _: &'a UserInfo, _: Request<Body>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(ready(Err(Status::internal("nobody is asked"))))
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(ready(Err(Status::internal("nobody can be called"))))
    }
}

fn one(endpoint: &str) -> One {
    let mut cluster = Cluster::new("m", Default::default());
    cluster.spec.api_endpoint = endpoint.to_owned();
    let reference =
        LocalSecretReference { namespace: "karmada-cluster".into(), name: "m-impersonator".into() };
    cluster.spec.impersonator_secret_ref = Some(reference);
    cluster.spec.sync_mode = karmada_api::cluster::ClusterSyncMode::Push;
    let token = json!({"data": {"token": "dG9rZW4="}});
    One { cluster, secrets: BTreeMap::from([("m-impersonator", token)]) }
}

/// A hub before this member, as a client finds it: the path is the member's.
async fn hub(one: One) -> SocketAddr {
    let reach = Arc::new(Reach::new(Arc::new(one), 100, Env::system()));
    serve(move |request| {
        let reach = reach.clone();
        Box::pin(async move {
            let call = Call {
                user: UserInfo::new("jane", ["dev"]),
                asked_by: "jane".to_owned(),
                name: "m".to_owned(),
                path: request.uri().path().to_owned(),
                request,
                audit_id: "id-1".to_owned(),
                held: Arc::new(()),
                ends: Box::pin(std::future::pending()),
            };
            reach.carry(call).await.unwrap_or_else(|status| {
                let mut response = Response::new(Body::from(serde_json::to_vec(&status).unwrap()));
                *response.status_mut() = StatusCode::from_u16(status.code).unwrap();
                response
            })
        })
    })
    .await
}

async fn hub_before(acts: Acts) -> SocketAddr {
    let member = serve(acts).await;
    hub(one(&format!("http://{member}/prefix"))).await
}

pub(crate) async fn ask(hub: SocketAddr, request: Request<Body>) -> (StatusCode, Value) {
    let client: legacy::Client<_, Body> =
        legacy::Client::builder(TokioExecutor::new()).build(legacy::connect::HttpConnector::new());
    let (mut parts, body) = request.into_parts();
    parts.uri = format!("http://{hub}{}", parts.uri).parse().unwrap();
    let answer = client.request(Request::from_parts(parts, body)).await.unwrap();
    let status = answer.status();
    let body = to_bytes(Body::new(answer.into_body()), 1 << 20).await.unwrap();
    (
        status,
        serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into())),
    )
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// Answers what it was asked.
fn mirror(request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
    Box::pin(async move {
        let (parts, body) = request.into_parts();
        let headers: Vec<String> = parts
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        let body = to_bytes(body, 1 << 20).await.unwrap();
        let seen = json!({
            "method": parts.method.as_str(), "uri": parts.uri.to_string(), "headers": headers, "bytes": body.len(),
        });
        Response::new(Body::from(seen.to_string()))
    })
}

#[tokio::test]
async fn a_request_goes_as_it_is_in_the_users_name() {
    let hub = hub_before(mirror).await;
    let request = Request::builder()
        .method(Method::PATCH)
        .uri("/api/v1/namespaces/n/pods/p%2Fq?dryRun=All&fieldManager=k%20c")
        .header("content-type", "application/merge-patch+json")
        .header("impersonate-user", "admin")
        .header("connection", "impersonate-user")
        .header("authorization", "Bearer mine")
        .body(Body::from(vec![b' '; 300_000]))
        .unwrap();
    let (code, seen) = ask(hub, request).await;
    assert_eq!(
        (code, seen["method"].as_str(), seen["bytes"].as_u64()),
        (StatusCode::OK, Some("PATCH"), Some(300_000))
    );
    assert_eq!(seen["uri"], "/prefix/api/v1/namespaces/n/pods/p%2Fq?dryRun=All&fieldManager=k%20c");
    let has = |line: &str| seen["headers"].as_array().unwrap().iter().any(|one| one == line);
    for line in
        ["authorization: Bearer token", "impersonate-user: jane", "impersonate-group: dev", "audit-id: id-1"]
    {
        assert!(has(line), "{line}: {seen:#}");
    }
    assert!(!has("impersonate-user: admin") && !has("authorization: Bearer mine"), "{seen:#}");
}

#[tokio::test]
async fn what_is_wrong_is_said_in_karmadas_words() {
    let unlike = |change: &dyn Fn(&mut One)| {
        let mut one = one("http://127.0.0.1:1");
        change(&mut one);
        one
    };
    for (what, one, code, message) in [
        (
            "another",
            unlike(&|one| one.cluster.metadata.name = Some("n".into())),
            404,
            "clusters.cluster.karmada.io \"m\" not found",
        ),
        (
            "no endpoint",
            unlike(&|one| one.cluster.spec.api_endpoint.clear()),
            500,
            "API endpoint of cluster m should not be empty",
        ),
        (
            "no reference",
            unlike(&|one| one.cluster.spec.impersonator_secret_ref = None),
            500,
            "the impersonatorSecretRef of cluster m is nil",
        ),
        (
            "no Secret",
            unlike(&|one| one.secrets.clear()),
            500,
            "failed to get impresonateToken for cluster m: ",
        ),
        (
            "no token",
            unlike(&|one| drop(one.secrets.insert("m-impersonator", json!({})))),
            500,
            "it holds no token",
        ),
        (
            "pull",
            unlike(&|one| {
                one.cluster.spec.api_endpoint.clear();
                one.cluster.spec.sync_mode = karmada_api::cluster::ClusterSyncMode::Pull;
            }),
            503,
            "it is in pull mode",
        ),
        ("nobody there", unlike(&|_| {}), 502, "cluster m: cannot connect: 127.0.0.1:1"),
        (
            "no URL",
            unlike(&|one| one.cluster.spec.api_endpoint = "ftp://x".into()),
            500,
            "spec.apiEndpoint: ",
        ),
        ("no proxy", unlike(&|one| one.cluster.spec.proxy_url = "ftp://x".into()), 500, "spec.proxyURL: "),
    ] {
        let (got, status) = ask(hub(one).await, get("/api")).await;
        let said = status["message"].as_str().unwrap_or_default();
        assert!(got == code && said.contains(message), "{what}: {got} {status:#}");
    }
    let (code, _) = ask(hub(one("http://127.0.0.1:1")).await, get("/api/%2e%2e/x")).await;
    assert_eq!(code, 400);
}

/// A member that agrees to any protocol, and says back what it hears.
fn echo(mut request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.unwrap());
        io.write_all(b"hello ").await.unwrap();
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = io.read(&mut chunk).await {
            io.write_all(&chunk[..read]).await.unwrap();
        }
        let _ = io.shutdown().await;
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", "SPDY/3.1"),
        ("x-stream-protocol-version", "v4.channel.k8s.io"),
    ] {
        response.headers_mut().insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    Box::pin(ready(response))
}

const EXEC: &str = "POST /api/v1/namespaces/n/pods/p/exec?command=sh HTTP/1.1\r\nhost: hub\r\nconnection: Upgrade\r\n\
                    upgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n\r\n";

/// The headers of an answer, read from a socket.
async fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("headers end"));
    }
    String::from_utf8(answer).unwrap().to_ascii_lowercase()
}

#[tokio::test]
async fn a_connection_that_changes_its_protocol_carries_bytes() {
    let hub = hub_before(echo).await;
    let mut stream = TcpStream::connect(hub).await.unwrap();
    // Bytes right behind the request belong to the stream.
    stream.write_all(format!("{EXEC}early ").as_bytes()).await.unwrap();
    let headers = answer(&mut stream).await;
    assert!(headers.starts_with("http/1.1 101 "), "{headers}");
    assert_eq!(headers.matches("\r\nupgrade: spdy/3.1\r\n").count(), 1, "{headers}");
    assert_eq!(headers.matches("\r\nconnection: upgrade\r\n").count(), 1, "{headers}");
    assert!(headers.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{headers}");
    let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let (mut from, mut to) = stream.split();
    let (mut heard, writing) = (Vec::new(), async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let (_, read) = tokio::join!(writing, from.read_to_end(&mut heard));
    read.unwrap();
    assert_eq!(heard.len(), "hello early ".len() + sent.len());
    assert!(heard.starts_with(b"hello early ") && heard.ends_with(&sent[sent.len() - 100..]));
}

#[tokio::test]
async fn a_refused_upgrade_is_passed_on_and_nothing_else_is_one() {
    fn with(code: u16) -> BoxFuture<'static, Response<Body>> {
        let mut response = Response::new(Body::from("why"));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        response.headers_mut().insert(header::LOCATION, "http://elsewhere/".parse().unwrap());
        Box::pin(ready(response))
    }
    for (acts, want) in [
        ((|_| with(403)) as Acts, "http/1.1 403 "),
        ((|_| with(404)) as Acts, "http/1.1 404 "),
        ((|_| with(200)) as Acts, "http/1.1 502 "),
        ((|_| with(302)) as Acts, "http/1.1 502 "),
    ] {
        let hub = hub_before(acts).await;
        let mut stream = TcpStream::connect(hub).await.unwrap();
        stream.write_all(EXEC.as_bytes()).await.unwrap();
        let headers = answer(&mut stream).await;
        assert!(headers.starts_with(want), "{headers}");
    }
}

/// A member that answers each connection's first request with these bytes, and tells what it was asked.
async fn raw(answers: &'static str) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = listener.local_addr().unwrap();
    let (asked, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let asked = asked.clone();
            tokio::spawn(async move {
                let _ = asked.send(answer(&mut stream).await);
                stream.write_all(answers.as_bytes()).await.unwrap();
                // It stays open until the other end has had enough.
                let _ = stream.read_to_end(&mut Vec::new()).await;
                let _ = asked.send("closed".to_owned());
            });
        }
    });
    (hub(one(&format!("http://{member}/prefix"))).await, told)
}

#[tokio::test]
async fn a_member_sends_nobody_elsewhere_and_nobody_away() {
    let empty = "content-length: 0\r\n\r\n";
    let here = "location: /apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/\r\n";
    for (status, line, want, says) in [
        ("301 Moved", "location: /prefix/api/v1/\r\n", "http/1.1 301 ", here),
        ("308 Moved", "location: /prefix/api/v1/\r\n", "http/1.1 308 ", here),
        ("302 Found", "location: http://elsewhere/\r\n", "http/1.1 502 ", ""),
        ("307 Found", "location: //elsewhere/x\r\n", "http/1.1 502 ", ""),
        ("302 Found", "location: /admin\r\n", "http/1.1 502 ", ""),
        ("302 Found", "location: /prefix/../../n/proxy/api\r\n", "http/1.1 502 ", ""),
        ("307 Found", "location: /prefix/%2e%2e/x\r\n", "http/1.1 502 ", ""),
        ("304 Not Modified", "etag: x\r\n", "http/1.1 304 ", "etag: x\r\n"),
        ("401 Unauthorized", "www-authenticate: Bearer\r\n", "http/1.1 502 ", ""),
        ("101 Switching", "connection: upgrade\r\nupgrade: h2c\r\n", "http/1.1 502 ", ""),
    ] {
        let text: &'static str = format!("HTTP/1.1 {status}\r\n{line}{empty}").leak();
        let (hub, _told) = raw(text).await;
        let mut stream = TcpStream::connect(hub).await.unwrap();
        stream.write_all(b"GET /api/v1 HTTP/1.1\r\nhost: hub\r\n\r\n").await.unwrap();
        let headers = answer(&mut stream).await;
        assert!(headers.starts_with(want) && headers.contains(says), "{status}: {headers}");
    }
    for (method, status, want) in [
        ("DELETE", "307 Found", "http/1.1 502 "),
        ("POST", "308 Moved", "http/1.1 502 "),
        ("POST", "303 See Other", "http/1.1 303 "),
        ("HEAD", "307 Found", "http/1.1 307 "),
    ] {
        let text: &'static str =
            format!("HTTP/1.1 {status}\r\nlocation: /prefix/api/v1/pods/x\r\n{empty}").leak();
        let (hub, _told) = raw(text).await;
        let mut stream = TcpStream::connect(hub).await.unwrap();
        let asked = format!("{method} /api/v1 HTTP/1.1\r\nhost: hub\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(asked.as_bytes()).await.unwrap();
        let headers = answer(&mut stream).await;
        assert!(headers.starts_with(want), "{method} {status}: {headers}");
    }
}

#[tokio::test]
async fn a_session_is_asked_for_on_a_connection_of_its_own() {
    let (hub, mut told) = raw("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
    let mut stream = TcpStream::connect(hub).await.unwrap();
    stream.write_all(EXEC.as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await.starts_with("http/1.1 403 "));
    assert!(told.recv().await.unwrap().starts_with("post /prefix/api/v1/namespaces/n/pods/p/exec"));
    assert_eq!(told.recv().await.as_deref(), Some("closed"), "nothing else goes there");
    // Another protocol than was asked for.
    let other = "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    let (hub, _told) = raw(other).await;
    let mut stream = TcpStream::connect(hub).await.unwrap();
    stream.write_all(EXEC.as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await.starts_with("http/1.1 502 "));
}

#[tokio::test]
async fn what_is_still_sent_when_the_answer_has_ended_breaks_off() {
    let (hub, mut told) = raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let mut stream = TcpStream::connect(hub).await.unwrap();
    let begun = "POST /api/v1/x HTTP/1.1\r\nhost: hub\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n";
    stream.write_all(begun.as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await.starts_with("http/1.1 200 "));
    told.recv().await.unwrap();
    assert_eq!(told.recv().await.as_deref(), Some("closed"));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_seen_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = listener.local_addr().unwrap();
    let (broken, breaks) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer(&mut stream).await;
        let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nline\n\r\n";
        stream.write_all(begun.as_bytes()).await.unwrap();
        let _ = breaks.await;
    });
    let hub = hub(one(&format!("http://{member}"))).await;
    let mut stream = TcpStream::connect(hub).await.unwrap();
    let request = "GET /api/v1/namespaces/n/pods/p/log?follow=true HTTP/1.1\r\nhost: hub\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let headers = answer(&mut stream).await;
    assert!(headers.starts_with("http/1.1 200 "), "{headers}");
    let mut chunk = [0; "5\r\nline\n\r\n".len()];
    stream.read_exact(&mut chunk).await.unwrap();
    drop(broken);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"", "no end in order");
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_its_time() {
    let endless = || Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>());
    for (until, want) in [(Some(WHOLE), WHOLE), (None, SILENT)] {
        let begun = Instant::now();
        let read = to_bytes(
            Body::from_stream(watched(
                endless(),
                until.map(|until| begun + until),
                Box::pin(std::future::pending()),
            )),
            1,
        )
        .await;
        assert!(read.is_err());
        assert_eq!(begun.elapsed(), want);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_tunnel_hears_that_it_is_to_end() {
    /// Its agent serves a tunnel, is called, and never comes.
    struct Silent;

    impl Registry for Silent {
        fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>> {
            let mut cluster = Cluster::new(name, Default::default());
            cluster.spec.sync_mode = karmada_api::cluster::ClusterSyncMode::Pull;
            let tunnel = (karmada_api::consts::extension::TUNNEL.to_owned(), "full".to_owned());
            cluster.metadata.annotations = Some(BTreeMap::from([tunnel]));
            Box::pin(ready(Ok(Some(cluster))))
        }

        fn clusters(&self) -> BoxFuture<'_, Result<Vec<String>, Status>> {
            Box::pin(ready(Ok(Vec::new())))
        }

        fn searched<'a>(
            &'a self,
            _: &'a Place,
            _: Turn,
        ) -> BoxFuture<'a, Result<Option<Vec<String>>, Status>> {
            Box::pin(ready(Ok(None)))
        }

        fn own<'a>(
            &'a self,
            _: &'a UserInfo,
            _: Request<Body>,
        ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
            Box::pin(ready(Err(Status::internal("nobody is asked"))))
        }

        fn secret(&self, _: &str, _: &str) -> BoxFuture<'_, Result<Option<Value>, Status>> {
            Box::pin(ready(Ok(None)))
        }

        fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), Status>> {
            Box::pin(ready(Ok(())))
        }
    }

    let reach = Reach::new(Arc::new(Silent), 100, Env::system());
    for (ends_after, code, says, took) in [(3, 503, ENDING, 3), (60, 504, "its log says why", 10)] {
        let begun = Instant::now();
        let call = Call {
            user: UserInfo::new("jane", ["dev"]),
            asked_by: "jane".to_owned(),
            name: format!("m{code}"),
            path: "/api".to_owned(),
            request: get("/api"),
            audit_id: "id-1".to_owned(),
            held: Arc::new(()),
            ends: Box::pin(tokio::time::sleep(Duration::from_secs(ends_after))),
        };
        let status = reach.carry(call).await.unwrap_err();
        assert!(status.code() == code && status.message.contains(says), "{status}");
        assert_eq!(begun.elapsed().as_secs(), took);
    }
}
