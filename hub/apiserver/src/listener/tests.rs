//! Over real sockets: TLS, both protocols, every kind of identity, and the end.

use futures::FutureExt as _;
use http::StatusCode;
use http_body_util::{BodyExt, Empty, StreamBody};
use karmada_env::Env;
use karmada_meta::status::Status;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    authn::{
        Authenticator, Tokens, UserInfo,
        epochs::{End, Epochs, Record},
    },
    authz::{Attributes, Authorizer, Decision},
    front::{Front, PathService},
    paths::{Paths, READ},
    pki::{Credential, Pki, Stage},
};

/// Long beside what a busy machine lets one wait.
const GRACE: Duration = Duration::from_secs(2);

/// How long anything may take there.
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    address: SocketAddr,
    pki: Pki,
    shutdown: CancellationToken,
    traffic: Arc<Traffic>,
    epochs: Arc<Epochs>,
    tls: Tls,
    done: JoinHandle<()>,
    _dir: TempDir,
}

/// Lets everyone do everything.
#[derive(Debug)]
struct Everyone;

impl Authorizer for Everyone {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allow
    }
}

/// Answers with the user's name; `/stream` with a body that never ends by itself, `/slow` after a while.
async fn answer(request: Request<Body>) -> Result<Response<Body>, Status> {
    let user = request.extensions().get::<UserInfo>().unwrap();
    let text = format!("{} {}", user.name, user.groups.join(","));
    if request.uri().path() == "/slow" {
        tokio::time::sleep(GRACE / 3).await;
    }
    if request.uri().path() == "/never" {
        std::future::pending::<()>().await;
    }
    if request.uri().path() == "/stream" {
        let frames =
            futures::stream::once(async move { Ok::<_, Infallible>(http_body::Frame::data(text.into())) });
        let frames = futures::StreamExt::chain(frames, futures::stream::pending());
        return Ok(Response::new(Body::new(StreamBody::new(frames))));
    }
    Ok(Response::new(Body::from(text)))
}

async fn start() -> Server {
    limited(Limits { drain: GRACE, ..Limits::default() }).await
}

async fn limited(limits: Limits) -> Server {
    let dir = TempDir::new().unwrap();
    let env = Env::system();
    let pki = Pki::open_or_create(dir.path(), &[], &env).unwrap();
    let tls = Tls::new(&pki, &env).unwrap().limited(limits);
    let mut tokens = Tokens::new();
    tokens.insert("secret", UserInfo::new("token-user", ["g"]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, traffic) = (CancellationToken::new(), tls.traffic());
    let front = Front::new(Arc::new(Everyone), crate::limits::Limits::default(), env.clone());
    let epochs = Arc::new(Epochs::default());
    front.authenticate_by(Authenticator::new(tokens, env).with_epochs(epochs.clone()));
    let service = PathService::new(Arc::new(front), Paths::default().with_prefix("/", READ, answer));
    let done = tokio::spawn(serve(listener, tls.clone(), service, shutdown.clone()));
    Server { address, pki, shutdown, traffic, epochs, tls, done, _dir: dir }
}

impl Server {
    async fn connect(
        &self,
        alpn: &[u8],
        credential: Option<&Credential>,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        self.connect_trusting(&self.pki.ca_pem(), alpn, credential).await
    }

    /// Trusting the first certificate of these.
    async fn connect_trusting(
        &self,
        authority: &str,
        alpn: &[u8],
        credential: Option<&Credential>,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match credential {
            None => builder.with_no_client_auth(),
            Some(credential) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(credential.key_pem.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(localhost(), stream).await
    }

    /// A connection from another address of this machine.
    async fn plain_from(&self, last: u8) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    fn agent(&self, name: &str) -> Credential {
        self.pki.issue_client(name, "g", Duration::from_secs(60)).unwrap()
    }

    /// One request over HTTP/2.
    async fn get(&self, credential: Option<&Credential>, token: Option<&str>) -> (StatusCode, String) {
        let stream = self.connect(b"h2", credential).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut request = Request::get("https://localhost/x");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response =
            sender.send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        drop(sender);
        connection.abort();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

/// What a client that speaks TLS says first.
fn hello() -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut hello = Vec::new();
    let mut client = rustls::ClientConnection::new(Arc::new(config), localhost()).unwrap();
    client.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn identities() {
    let server = start().await;
    let agent = server
        .pki
        .issue_client("system:karmada:agent:m1", "system:karmada:agents", Duration::from_secs(60))
        .unwrap();
    let foreign_dir = TempDir::new().unwrap();
    let foreign = Pki::open_or_create(foreign_dir.path(), &[], &Env::system())
        .unwrap()
        .issue_client("admin", "system:masters", Duration::from_secs(60))
        .unwrap();
    let agent_text = "system:karmada:agent:m1 system:karmada:agents,system:authenticated";
    let cases = [
        ("nothing", None, None, 200, "system:anonymous system:unauthenticated"),
        ("a token", None, Some("secret"), 200, "token-user g,system:authenticated"),
        ("a bad token", None, Some("nonsense"), 401, "Unauthorized"),
        ("a certificate", Some(&agent), None, 200, agent_text),
        ("a certificate and a bad token", Some(&agent), Some("nonsense"), 200, agent_text),
        ("a certificate of another authority", Some(&foreign), None, 401, "Unauthorized"),
        ("the same and a token", Some(&foreign), Some("secret"), 200, "token-user g,system:authenticated"),
    ];
    for (what, credential, token, status, text) in cases {
        let (got_status, got_text) = server.get(credential, token).await;
        assert_eq!(got_status, status, "{what}: {got_text}");
        assert!(got_text.contains(text), "{what}: {got_text}");
    }
    server.shutdown.cancel();
    server.done.await.unwrap();
}

#[tokio::test]
async fn http_1_is_served_too_and_open_streams_end_with_the_server() {
    let server = start().await;
    let stream = server.connect(b"http/1.1", None).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request =
        Request::get("/stream").header("host", "localhost").body(Empty::<bytes::Bytes>::new()).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"system:anonymous"));
    server.shutdown.cancel();
    tokio::time::timeout(PATIENCE, server.done)
        .await
        .expect("the server ends within its grace time")
        .unwrap();
    assert!(body.frame().await.is_none_or(|frame| frame.is_err()), "the stream was cut off");
    let _ = connection.await;
}

#[tokio::test]
async fn a_client_that_does_not_speak_tls_harms_no_one() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = start().await;
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    assert_eq!(server.get(None, None).await.0, 200);
}

type H1 = hyper::client::conn::http1::SendRequest<Empty<bytes::Bytes>>;
type H2 = hyper::client::conn::http2::SendRequest<Empty<bytes::Bytes>>;

impl Server {
    async fn http_1(&self) -> (H1, JoinHandle<hyper::Result<()>>) {
        let stream = self.connect(b"http/1.1", None).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        (sender, tokio::spawn(connection))
    }

    async fn http_2(&self) -> (H2, JoinHandle<hyper::Result<()>>) {
        let stream = self.connect(b"h2", None).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        (sender, tokio::spawn(connection))
    }

    /// Waits until a figure of the listener is at least this.
    async fn figure(&self, line: &str) {
        let page = karmada_telemetry::metrics::Page::new().with(self.traffic.clone()).into_source();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if page().contains(line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{line} is not in\n{}", page());
    }
}

fn get(path: &str) -> Request<Empty<bytes::Bytes>> {
    let uri = format!("https://localhost{path}");
    Request::get(uri).header("host", "localhost").body(Empty::new()).unwrap()
}

/// Reads until the other side closes, at most as long as a test may take.
async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    use tokio::io::AsyncReadExt;
    let mut all = Vec::new();
    // A reset is an end as well.
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all));
    let _ = read.await.expect("the server ends it");
    all
}

#[tokio::test]
async fn connections_that_ask_for_nothing_are_ended() {
    use tokio::io::AsyncWriteExt;
    let short = Duration::from_secs(1);
    let limits = Limits { handshake: short, headers: short, idle: short, drain: GRACE, ..Limits::default() };
    let server = limited(limits).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut stuck = TcpStream::connect(server.address).await.unwrap();
    stuck.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    assert!(closed(&mut silent).await.is_empty() && closed(&mut stuck).await.is_empty());
    server.figure("karmada_hub_connections_ended_total{reason=\"handshake_took_too_long\"} 2").await;

    let mut speechless = server.connect(b"h2", None).await.unwrap();
    closed(&mut speechless).await;
    server.figure("karmada_hub_connections_ended_total{reason=\"no_request\"} 1").await;

    let mut loris = server.connect(b"http/1.1", None).await.unwrap();
    loris.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ").await.unwrap();
    let answer = closed(&mut loris).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));

    let (mut sender, connection) = server.http_2().await;
    assert_eq!(sender.send_request(get("/x")).await.unwrap().status(), 200);
    tokio::time::timeout(PATIENCE, connection).await.unwrap().unwrap().unwrap();
    server.figure("karmada_hub_connections_ended_total{reason=\"idle\"} 1").await;

    // One that is listened to is not idle.
    let (mut sender, connection) = server.http_2().await;
    let body = sender.send_request(get("/stream")).await.unwrap().into_body();
    tokio::time::sleep(short * 4).await;
    assert!(!connection.is_finished());
    drop(body);
    server.figure("karmada_hub_connections_open 0").await;
}

#[tokio::test]
async fn there_are_so_many_connections_and_no_more() {
    let server = limited(Limits { strangers_per_address: 2, drain: GRACE, ..Limits::default() }).await;
    let known = server.connect(b"h2", Some(&server.agent("a"))).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(known)).await.unwrap();
    let _connection = tokio::spawn(connection);
    // Once it is answered, the certificate has been looked at.
    let _: Response<Incoming> = sender.send_request(get("/x")).await.unwrap();
    let (_one, _two) = (server.plain_from(2).await, server.plain_from(2).await);
    let mut three = server.plain_from(2).await;
    assert!(closed(&mut three).await.is_empty());
    server.figure("karmada_hub_connections_ended_total{reason=\"too_many_of_one_address\"} 1").await;
    server.figure("karmada_hub_connections_open 3").await;
}

#[tokio::test]
async fn requests_with_too_much_before_their_body_are_refused() {
    let server = limited(Limits { header_bytes: 64 << 10, drain: GRACE, ..Limits::default() }).await;
    let long = "x".repeat(200 << 10);
    let with = |name: &str, value: &str| Request::get("/x").header("host", "h").header(name, value);
    let many = (0..200).fold(with("x", "y"), |request, i| request.header(format!("x-{i}"), "y"));
    let cases =
        [("a header", with("x", &long), 431), ("headers", many, 431), ("what is usual", with("x", "y"), 200)];
    for (what, request, code) in cases {
        let (mut sender, connection) = server.http_1().await;
        let response = sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(response.status(), code, "{what}");
        connection.abort();
    }
    let mut raw = server.connect(b"http/1.1", None).await.unwrap();
    let path = "x".repeat(60 << 10);
    let text = format!("GET /{path}?{path} HTTP/1.1\r\nhost: h\r\n\r\n");
    let _ = tokio::io::AsyncWriteExt::write_all(&mut raw, text.as_bytes()).await;
    let answer = closed(&mut raw).await;
    let line = String::from_utf8_lossy(&answer);
    assert!(line.starts_with("HTTP/1.1 4"), "{line}");
    let (mut sender, _connection) = server.http_2().await;
    let mut request = get("/x");
    request.headers_mut().insert("x", "y".repeat(300 << 10).parse().unwrap());
    let refused = sender.send_request(request).await;
    assert!(refused.map_or(true, |response| response.status() == 431));
    assert_eq!(server.get(None, None).await.0, 200);
}

#[tokio::test]
async fn at_the_end_everyone_is_told_and_what_runs_is_answered() {
    let server = start().await;
    let (mut h2, h2_connection) = server.http_2().await;
    let (mut h1, h1_connection) = server.http_1().await;
    let (mut idle, idle_connection) = server.http_1().await;
    assert_eq!(idle.send_request(get("/x")).await.unwrap().status(), 200);
    let running = tokio::spawn(h2.send_request(get("/slow")));
    let running_too = tokio::spawn(h1.send_request(get("/slow")));
    server.figure("karmada_hub_connections_open 3").await;
    tokio::time::sleep(GRACE / 10).await;
    server.shutdown.cancel();
    tokio::time::sleep(GRACE / 10).await;
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody new is let in");
    let late = idle.send_request(get("/x")).await.unwrap();
    assert_eq!((late.status().as_u16(), &late.headers()["connection"]), (200, &"close".parse().unwrap()));
    let last = running_too.await.unwrap().unwrap();
    assert_eq!((last.status().as_u16(), &last.headers()["connection"]), (200, &"close".parse().unwrap()));
    let (_, body) = last.into_parts();
    body.collect().await.unwrap();
    let (_, body) = running.await.unwrap().unwrap().into_parts();
    body.collect().await.unwrap();
    // GOAWAY without an error: the connection ends well.
    drop(h2);
    for connection in [h2_connection, h1_connection, idle_connection] {
        tokio::time::timeout(PATIENCE, connection).await.unwrap().unwrap().unwrap();
    }
    server.done.await.unwrap();
}

#[tokio::test]
async fn clients_that_leave_a_handshake_half_done_hold_nobody_up() {
    use tokio::io::AsyncWriteExt;
    // Nobody's turn comes because others' time is up.
    let limits = Limits { handshake: 2 * PATIENCE, drain: GRACE, ..Limits::default() };
    let server = limited(limits).await;
    let agent = server.agent("a");
    let hello = hello();
    // All that had a permit of the 128 used to wait for their next byte with it.
    let mut held = Vec::new();
    for (last, sent) in [(2, &hello[..1]), (3, &hello[..hello.len() - 1]), (4, &hello[..])] {
        for _ in 0..150 {
            let mut stream = server.plain_from(last).await;
            stream.write_all(sent).await.unwrap();
            held.push(stream);
        }
    }
    server.figure("karmada_hub_connections_strange 450").await;
    let (status, _) = tokio::time::timeout(PATIENCE, server.get(Some(&agent), None)).await.unwrap();
    assert_eq!(status, 200);
    server.figure("karmada_hub_handshakes_total{class=\"crowd\"} 1").await;
    drop(held);
    server.figure("karmada_hub_connections_open 0").await;
    server.figure("karmada_hub_credentials_remembered 1").await;
}

#[tokio::test]
async fn strangers_that_do_nothing_go_for_others_and_who_is_known_stays() {
    let limits = Limits { strangers_per_address: 2, drain: GRACE, ..Limits::default() };
    let server = limited(limits).await;
    let (mut user, user_connection) = server.http_2().await;
    let mut with_token = get("/x");
    with_token.headers_mut().insert("authorization", "Bearer secret".parse().unwrap());
    assert_eq!(user.send_request(with_token).await.unwrap().status(), 200);
    server.figure("karmada_hub_connections_strange 0").await;
    // Strangers from elsewhere: the user's own address is known now.
    let mut one = server.plain_from(2).await;
    let _two = server.plain_from(2).await;
    server.figure("karmada_hub_connections_strange 2").await;
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    let _three = server.plain_from(2).await;
    assert!(closed(&mut one).await.is_empty());
    server.figure("karmada_hub_connections_ended_total{reason=\"made_room\"} 1").await;
    server.figure("karmada_hub_connections_strange 2").await;
    assert!(!user_connection.is_finished());
    assert_eq!(user.send_request(get("/x")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_identity_has_so_many_connections_whatever_their_address() {
    let limits = Limits { connections_per_identity: 2, drain: GRACE, ..Limits::default() };
    let server = limited(limits).await;
    let agent = server.agent("a");
    let connect = async || {
        let stream = server.connect(b"h2", Some(&agent)).await.unwrap();
        let (mut sender, connection): (H2, _) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        sender.ready().await.unwrap();
        (sender, connection)
    };
    let (mut one, one_connection) = connect().await;
    let watching = one.send_request(get("/stream")).await.unwrap();
    let (mut two, two_connection) = connect().await;
    assert_eq!(two.send_request(get("/x")).await.unwrap().status(), 200);
    let (mut three, three_connection) = connect().await;
    let watching_too = three.send_request(get("/stream")).await.unwrap();
    server.figure("karmada_hub_connections_ended_total{reason=\"too_many_of_one_identity\"} 1").await;
    let _ = tokio::time::timeout(PATIENCE, two_connection).await.expect("the idle one goes");
    assert!(!one_connection.is_finished() && !three_connection.is_finished());
    // All are busy: the next one is told nothing, and goes.
    let mut four = server.connect(b"h2", Some(&agent)).await.unwrap();
    closed(&mut four).await;
    server.figure("karmada_hub_connections_ended_total{reason=\"too_many_of_one_identity\"} 2").await;
    let (status, _) = server.get(Some(&server.agent("b")), None).await;
    assert_eq!(status, 200);
    drop((watching, watching_too));
}

#[tokio::test]
async fn connections_end_with_what_was_shown_on_them() {
    let server = start().await;
    let user = "system:karmada:agent:m1";
    let agent = |epoch| {
        let validity = Duration::from_secs(600);
        server.pki.issue_agent(user, "system:karmada:agents", epoch, validity).unwrap()
    };
    let connect = async |credential: &Credential| {
        let stream = server.connect(b"h2", Some(credential)).await.unwrap();
        let (sender, connection): (H2, _) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        (sender, tokio::spawn(connection))
    };
    let old = agent(0);
    let (mut idle, idle_connection) = connect(&old).await;
    assert_eq!(idle.send_request(get("/x")).await.unwrap().status(), 200);
    let (mut busy, busy_connection) = connect(&old).await;
    let watching = busy.send_request(get("/stream")).await.unwrap();
    let revoked = Record::default().end(End::Revoked, "", std::time::SystemTime::UNIX_EPOCH).unwrap();
    let new = agent(revoked.epoch);
    server.epochs.put("m1", revoked);
    let ended =
        |count: usize| format!("karmada_hub_connections_ended_total{{reason=\"credential_ended\"}} {count}");
    server.figure(&ended(2)).await;
    for connection in [idle_connection, busy_connection] {
        let _ = tokio::time::timeout(PATIENCE, connection).await.expect("it goes");
    }
    drop(watching);
    let (mut other, other_connection) = connect(&new).await;
    assert_eq!(other.send_request(get("/x")).await.unwrap().status(), 200);
    // Whoever comes again is told why, and goes.
    let (mut again, again_connection) = connect(&old).await;
    assert_eq!(again.send_request(get("/x")).await.unwrap().status(), 401);
    let _ = tokio::time::timeout(PATIENCE, again_connection).await.expect("it goes");
    server.figure(&ended(3)).await;
    assert!(!other_connection.is_finished());
    assert_eq!(other.send_request(get("/x")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn what_comes_before_a_body_is_small_for_strangers() {
    let server = start().await;
    let agent = server.agent("a");
    let send = async |alpn: &[u8], credential: Option<&Credential>, bytes: usize| {
        let stream = server.connect(alpn, credential).await.unwrap();
        let mut request = get("/x");
        request.headers_mut().insert("x", "y".repeat(bytes).parse().unwrap());
        if alpn == b"h2" {
            let (mut sender, connection): (H2, _) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.map(|response| response.status().as_u16())
        } else {
            let (mut sender, connection): (H1, _) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.map(|response| response.status().as_u16())
        }
    };
    let (token, selector, large) = (12 << 10, 20 << 10, 120 << 10);
    let protocols: [&[u8]; 2] = [b"h2", b"http/1.1"];
    for alpn in protocols {
        let name = String::from_utf8_lossy(alpn);
        assert_eq!(send(alpn, None, token).await.ok(), Some(200), "{name}: a stranger's token");
        let refused = send(alpn, None, selector).await.map_or(true, |code| code == 431);
        assert!(refused, "{name}: a stranger's selector");
        assert_eq!(send(alpn, Some(&agent), large).await.ok(), Some(200), "{name}: an agent's selector");
    }
}

#[tokio::test]
async fn half_a_header_of_each_of_many_strangers_is_not_held() {
    use tokio::io::AsyncWriteExt;
    let (stranger_headers, stranger_bytes) = (64 << 10, 100 << 10);
    let server =
        limited(Limits { stranger_headers, stranger_bytes, drain: GRACE, ..Limits::default() }).await;
    let mut half = b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ".to_vec();
    half.resize(50 << 10, b'y');
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = server.connect(b"http/1.1", None).await.unwrap();
        let _ = stream.write_all(&half).await;
        let _ = stream.flush().await;
        held.push(stream);
    }
    server.figure("karmada_hub_connections_ended_total{reason=\"too_many_bytes_of_strangers\"}").await;
    // Who needs little is served, and who is known as well.
    assert_eq!(server.get(None, None).await.0, 200);
    let (mut sender, _connection) = {
        let stream = server.connect(b"http/1.1", Some(&server.agent("a"))).await.unwrap();
        hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map(|(s, c)| (s, tokio::spawn(c)))
            .unwrap()
    };
    let mut request = get("/x");
    request.headers_mut().insert("x", "y".repeat(90 << 10).parse().unwrap());
    let response: Response<Incoming> = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(held);
    server.figure("karmada_hub_strange_bytes 0").await;
}

#[tokio::test]
async fn requests_that_are_taken_back_before_they_are_answered_end_the_connection() {
    let limits = Limits { streams: 10, drain: GRACE, ..Limits::default() };
    let server = limited(limits).await;
    let (mut sender, connection) = server.http_2().await;
    for _ in 0..100 {
        if sender.ready().await.is_err() {
            break;
        }
        let request = tokio::spawn(sender.send_request(get("/never")));
        // Sent, and seen.
        tokio::time::sleep(Duration::from_millis(20)).await;
        request.abort();
        let _ = request.await;
    }
    let _ = tokio::time::timeout(PATIENCE, connection).await.expect("it is ended");
    server.figure("karmada_hub_connections_ended_total{reason=\"requests_withdrawn\"} 1").await;
}

#[test]
fn a_long_way_to_the_authority_is_not_looked_for() {
    let dir = TempDir::new().unwrap();
    let pki = Pki::open_or_create(dir.path(), &[], &Env::system()).unwrap();
    let tls = Tls::new(&pki, &Env::system()).unwrap();
    let credential = pki.issue_client("a", "g", Duration::from_secs(60)).unwrap();
    let leaf = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).unwrap();
    for (length, good) in [(1, true), (5, true), (6, false), (60, false)] {
        let peer = tls.peer(Some(&vec![leaf.clone(); length]));
        assert_eq!(matches!(peer, Peer::Certificate(_)), good, "{length}: {peer:?}");
    }
}

#[test]
fn whoever_another_server_knows_is_known_as_such_until_its_authorities_change() {
    let dirs = [(); 3].map(|()| TempDir::new().unwrap());
    let [own, other, stranger] =
        dirs.each_ref().map(|dir| Pki::open_or_create(dir.path(), &[], &Env::system()).unwrap());
    let tls = Tls::new(&own, &Env::system()).unwrap();
    // Every authority is named alike.
    let show = |pki: &Pki| {
        let credential = pki.issue_client("a", "g", Duration::from_secs(60)).unwrap();
        let leaf = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes()).unwrap();
        tls.peer(Some(&[leaf]))
    };
    let of = |peer: &Peer| match peer {
        Peer::Certificate(one) if one.is_of_elsewhere() => "elsewhere",
        Peer::Certificate(_) => "own",
        Peer::Refused(_) => "refused",
        Peer::None => "none",
    };
    assert_eq!(of(&show(&other)), "refused", "before it is heard of");
    tls.trust_elsewhere(&other.ca_pem()).unwrap();
    let known = show(&other);
    assert_eq!((of(&known), of(&show(&own)), of(&show(&stranger))), ("elsewhere", "own", "refused"));
    let Peer::Certificate(known) = known else { panic!("it is known") };
    tls.trust_elsewhere(&other.ca_pem()).unwrap();
    assert!(!known.held().is_cancelled(), "nothing has changed");
    assert!(tls.trust_elsewhere("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
    assert!(!known.held().is_cancelled() && of(&show(&other)) == "elsewhere", "what is none changes nothing");
    tls.trust_elsewhere(&stranger.ca_pem()).unwrap();
    assert!(known.held().is_cancelled(), "what was let in ends");
    assert_eq!((of(&show(&other)), of(&show(&stranger))), ("refused", "elsewhere"));
    tls.trust_elsewhere("").unwrap();
    assert_eq!((of(&show(&stranger)), of(&show(&own))), ("refused", "own"));
}

#[test]
fn only_what_says_nothing_of_the_next_connection_is_passed_over() {
    for (error, passed) in [
        (io::Error::from(io::ErrorKind::ConnectionAborted), true),
        (io::Error::from_raw_os_error(24), false),
        (io::Error::from_raw_os_error(23), false),
    ] {
        assert_eq!(is_of_one_client(&error), passed, "{error}");
    }
}

/// Sends bytes over HTTP/1.1 and reads one answer: its head and body.
async fn say(
    stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin),
    bytes: &[u8],
) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream.write_all(bytes).await.ok()?;
    let mut all = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text);
            }
        }
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut all)).await.expect("in time").ok()?;
        if read == 0 {
            return None;
        }
    }
}

#[tokio::test]
async fn a_connection_goes_on_behind_a_body_that_nobody_read_or_says_that_it_ends() {
    let server = start().await;
    let agent = server.agent("a");
    let small = "x".repeat(100 << 10);
    let large = "x".repeat(300 << 10);
    let with = |line: &str, headers: &str, body: &str| {
        format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
    };
    let token = "authorization: Bearer nonsense\r\n";
    for (credential, request, code, goes_on) in [
        (Some(&agent), with("GET /x", "", &small), 200, true),
        (None, with("POST /x", token, &small), 401, true),
        (Some(&agent), with("POST /x", "", "{}"), 405, true),
        (Some(&agent), with("PUT /x", "impersonate-uid: u\r\n", &small), 400, true),
        (Some(&agent), with("GET /x", "", &large), 200, false),
        (None, with("POST /x", token, &large), 401, false),
        // The body never comes, and is not waited for: the client wants to be asked, or is slow.
        (
            Some(&agent),
            with("GET /x", "expect: 100-continue\r\n", "").replace("length: 0", "length: 9"),
            200,
            false,
        ),
        (None, with("POST /x", token, "").replace("length: 0", "length: 9"), 401, false),
    ] {
        let mut stream = server.connect(b"http/1.1", credential).await.unwrap();
        let answer = say(&mut stream, request.as_bytes()).await.expect("an answer");
        let line = &request[..request.len().min(80)];
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{line}: {answer}");
        assert_eq!(answer.contains("connection: close"), !goes_on, "{line}: {answer}");
        if goes_on {
            // What was read for nothing is held against no stranger.
            server.figure("karmada_hub_strange_bytes 0").await;
        }
        let next = say(&mut stream, b"GET /y HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert_eq!(next.is_some(), goes_on, "{line}: {next:?}");
    }
}

#[tokio::test]
async fn the_authority_changes_and_nobody_is_cut_off_before_the_old_one_goes() {
    let server = start().await;
    let (first, old) = (server.pki.ca_pem(), server.agent("old"));
    let step = || {
        let stage = server.pki.step_authority().unwrap();
        server.tls.trust(&server.pki).unwrap();
        stage
    };
    let stream = server.connect(b"h2", Some(&old)).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get("https://localhost/stream").body(Empty::<bytes::Bytes>::new()).unwrap();
    let mut watch = sender.send_request(request).await.unwrap().into_body();
    assert!(watch.frame().await.unwrap().is_ok(), "a watch");

    for stage in [Stage::Introduced, Stage::Changed] {
        assert_eq!(step(), stage);
        assert_eq!(
            server.get(Some(&old), None).await,
            (StatusCode::OK, "old g,system:authenticated".to_owned()),
            "{stage:?}"
        );
        assert!(
            server.connect_trusting(&first, b"h2", Some(&old)).await.is_ok(),
            "{stage:?}: knows the old one alone"
        );
        let new = server.agent("new");
        assert_eq!(
            server.get(Some(&new), None).await,
            (StatusCode::OK, "new g,system:authenticated".to_owned()),
            "{stage:?}"
        );
    }
    let new = server.agent("new");
    assert!(watch.frame().now_or_never().is_none(), "the watch goes on");
    assert_eq!(step(), Stage::Settled);
    let ended =
        tokio::time::timeout(PATIENCE, async { while let Some(Ok(_)) = watch.frame().await {} }).await;
    assert!(ended.is_ok(), "what the old one let in ends");
    let _ = connection.await;
    assert_eq!(server.get(Some(&old), None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(server.get(Some(&new), None).await.0, StatusCode::OK);
    assert!(server.connect_trusting(&first, b"h2", None).await.is_err());
    server.shutdown.cancel();
    server.done.await.unwrap();
}
