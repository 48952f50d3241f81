//! The link against a real HTTP server over in-memory wires that can be cut, swallow or refuse, under paused time.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kube::client::Body;
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    sync::mpsc,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt};

use super::*;
use crate::{Kubeconfig, latest, testing::env};

/// What the wires between the link and its server do with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Fine,
    /// Bytes vanish, connections seem to open: a black hole.
    Swallow,
    /// 4 kB/s towards the server, behind a buffer that takes in everything at once.
    Slow,
    /// Nobody is there.
    Refuse,
    /// Something in between sends everybody to a page where somebody is to log in.
    Portal,
    /// Something in between answers with a certificate of its own.
    Impostor,
}

#[derive(Clone)]
struct Server {
    weather: latest::Sender<Weather>,
    acceptor: TlsAcceptor,
    impostor: TlsAcceptor,
    dials: Arc<AtomicUsize>,
    /// Cancelled to make every connection say GOAWAY.
    drain: Arc<Mutex<CancellationToken>>,
    config: Endpoint,
}

/// A server's side of TLS, with its certificate.
fn shows(alpn: &[&str]) -> (TlsAcceptor, rcgen::Certificate) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["hub.test".into()]).unwrap().self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    tls.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    (TlsAcceptor::from(Arc::new(tls)), certificate)
}

fn server(alpn: &[&str]) -> Server {
    let (acceptor, certificate) = shows(alpn);
    let ca = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, certificate.pem());
    let text = format!(
        "clusters: [{{name: k, cluster: {{server: 'https://hub.test/prefix', certificate-authority-data: {ca}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nusers: [{{name: u, user: {{token: secret}}}}]"
    );
    Server {
        weather: latest::Sender::new(Weather::Fine),
        acceptor,
        impostor: shows(alpn).0,
        dials: Arc::default(),
        drain: Arc::default(),
        config: Kubeconfig::parse("test", &text).unwrap().endpoint(None).unwrap(),
    }
}

impl Server {
    fn link(&self) -> Link {
        let config = LinkConfig::new(self.config.clone(), "test/1");
        Link::new(LinkConfig { dialer: Arc::new(self.clone()), ..config }, env(11))
    }

    fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    fn go_away(&self) {
        std::mem::take(&mut *self.drain.lock()).cancel();
    }

    /// `/echo` answers with what it saw, `/watch` sends a line each second, `/mute` never answers, `/count` says how long
    /// the body was.
    async fn answer(request: Request<Incoming>) -> Result<Response<ServerBody>, Infallible> {
        let header =
            |name| request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
        let (sender, receiver) = mpsc::channel(1);
        let path = request.uri().path().to_owned();
        let mut line =
            format!("{:?} {path} {} {}", request.version(), header("authorization"), header("user-agent"));
        if path.ends_with("/count") {
            line = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len()).to_string();
        }
        if path.ends_with("/mute") {
            std::future::pending::<()>().await;
        }
        tokio::spawn(async move {
            let mut count = 0;
            while sender
                .send(if path.ends_with("/watch") { format!("{count}") } else { line.clone() })
                .await
                .is_ok()
                && path.ends_with("/watch")
            {
                count += 1;
                sleep(Duration::from_secs(1)).await;
            }
        });
        Ok(Response::new(StreamBody::new(
            futures::stream::unfold(receiver, async |mut receiver| {
                let text: String = receiver.recv().await?;
                Some((Ok(Frame::data(Bytes::from(text))), receiver))
            })
            .boxed(),
        )))
    }
}

type ServerBody = StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

impl Dial for Server {
    fn dial(&self) -> BoxFuture<'static, std::io::Result<(Box<dyn Io>, String)>> {
        let server = self.clone();
        Box::pin(async move {
            sleep(Duration::from_millis(20)).await;
            server.dials.fetch_add(1, Ordering::SeqCst);
            if *server.weather.borrow() == Weather::Refuse {
                return Err(std::io::Error::other("connection refused"));
            }
            let (ours, wire) = duplex(256 << 10);
            let (far, theirs) = duplex(64 << 10);
            let ((r1, w1), (r2, w2)) = (tokio::io::split(wire), tokio::io::split(far));
            for (mut from, mut to, up) in [
                (
                    Box::new(r1) as Box<dyn tokio::io::AsyncRead + Send + Unpin>,
                    Box::new(w2) as Box<dyn tokio::io::AsyncWrite + Send + Unpin>,
                    true,
                ),
                (Box::new(r2), Box::new(w1), false),
            ] {
                let weather = server.weather.subscribe();
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    let mut lost = false;
                    while let Ok(n) = from.read(&mut buffer).await {
                        // What was swallowed is lost, and with it the connection: no byte after it makes sense.
                        lost |= *weather.borrow() == Weather::Swallow;
                        if up && *weather.borrow() == Weather::Slow {
                            sleep(Duration::from_micros(250) * n as u32).await;
                        }
                        if n == 0 && !lost {
                            let _ = to.shutdown().await;
                        }
                        if n == 0 || (!lost && to.write_all(&buffer[..n]).await.is_err()) {
                            break;
                        }
                    }
                    if lost {
                        std::future::pending::<()>().await;
                    }
                });
            }
            let weather = *server.weather.borrow();
            let acceptor = if weather == Weather::Impostor { &server.impostor } else { &server.acceptor };
            let (acceptor, drain) = (acceptor.clone(), server.drain.lock().clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(theirs).await else { return };
                let builder = auto::Builder::new(TokioExecutor::new());
                let answer = service_fn(move |request| async move {
                    let mut answer = Self::answer(request).await?;
                    if weather == Weather::Portal {
                        *answer.status_mut() = http::StatusCode::FOUND;
                        let to = HeaderValue::from_static("https://login.hotel.test/");
                        answer.headers_mut().insert("location", to);
                    }
                    Ok::<_, Infallible>(answer)
                });
                let connection = builder.serve_connection(TokioIo::new(stream), answer).into_owned();
                let mut connection = std::pin::pin!(connection);
                tokio::select! {
                    _ = connection.as_mut() => return,
                    () = drain.cancelled() => connection.as_mut().graceful_shutdown(),
                }
                let _ = connection.await;
            });
            Ok((Box::new(ours) as Box<dyn Io>, "wire".to_owned()))
        })
    }
}

async fn open(link: &Link, path: &str) -> Result<Response<LinkBody>, LinkError> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    link.clone().ready().await?.call(request).await
}

async fn text(link: &Link, path: &str) -> Result<String, LinkError> {
    let body = open(link, path).await?.into_body().collect().await.unwrap().to_bytes();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

async fn connected(link: &Link) {
    let mut state = link.status().state();
    let is = |state: &LinkState| matches!(state, LinkState::Connected { .. });
    timeout(Duration::from_secs(60), state.wait_for(is))
        .await
        .expect("no connection within a minute")
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn everything_goes_over_one_connection() {
    let server = server(&["h2", "http/1.1"]);
    let link = server.link();
    let watch = open(&link, "/watch").await.unwrap();
    let echoes = futures::future::join_all((0..50).map(|_| text(&link, "/echo?q=1"))).await;
    for echo in echoes {
        assert_eq!(echo.unwrap(), "HTTP/2.0 /prefix/echo Bearer secret test/1");
    }
    drop(watch);
    assert_eq!(server.dials.load(Ordering::SeqCst), 1);
    let status = link.status();
    assert!(status.counters().sent() > 500 && status.counters().received() > 500, "{status:?}");
    assert_eq!(status.counters().connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_is_noticed_and_left_within_seconds_of_its_end() {
    let server = server(&["h2"]);
    let link = server.link();
    let mut body = open(&link, "/watch").await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    server.set(Weather::Swallow);
    let broke =
        timeout(Duration::from_secs(18), async { while body.frame().await.is_some_and(|f| f.is_ok()) {} });
    broke.await.expect("a dead connection must end what it carries");
    sleep(Duration::from_secs(60)).await;
    assert!(!link.status().is_connected());
    server.set(Weather::Fine);
    let back = Instant::now();
    connected(&link).await;
    assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
    assert!(text(&link, "/echo").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_report_on_its_way_puts_off_the_end_by_what_it_takes_on_the_slowest_line() {
    for (slowest, least, most) in [(2 << 10, 11_000, 13_000), (128 << 10, 7_000, 8_000)] {
        let server = server(&["h2"]);
        let patience = Patience {
            ping_after: Duration::from_millis(5400),
            ping_answer: Duration::from_millis(2500),
            slowest,
            ..Patience::default()
        };
        let config = LinkConfig::new(server.config.clone(), "test/1");
        let link = Link::new(LinkConfig { dialer: Arc::new(server.clone()), patience, ..config }, env(11));
        text(&link, "/echo").await.unwrap();
        server.set(Weather::Swallow);
        let begun = Instant::now();
        let request = Request::post("/count").body(Body::from(vec![b'x'; 8 << 10])).unwrap();
        let mut sender = link.clone();
        let report =
            tokio::spawn(async move { sender.ready().await.unwrap().call(request).await.map(|_| ()) });
        while link.status().is_connected() {
            sleep(Duration::from_millis(10)).await;
        }
        let took = begun.elapsed().as_millis();
        assert!((least..=most).contains(&took), "{slowest}: {took} ms");
        assert!(report.await.unwrap().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_into_a_black_hole_takes_the_connection_with_it() {
    let server = server(&["h2"]);
    let link = server.link();
    text(&link, "/echo").await.unwrap();
    server.set(Weather::Swallow);
    let error = text(&link, "/echo").await.unwrap_err();
    assert!(matches!(error, LinkError::Headers { .. }), "{error}");
    server.set(Weather::Fine);
    assert!(text(&link, "/echo").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_to_answer_keeps_its_connection() {
    let server = server(&["h2"]);
    let link = server.link();
    let _watch = open(&link, "/watch").await.unwrap();
    let error = text(&link, "/mute").await.unwrap_err();
    assert_eq!(error.to_string(), "no answer within 13s");
    assert!(link.status().is_connected());
    assert_eq!(server.dials.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_line_gets_the_time_that_its_bytes_take() {
    for protocol in ["h2", "http/1.1"] {
        let server = server(&[protocol]);
        let link = server.link();
        let watch = open(&link, "/watch").await.unwrap();
        server.set(Weather::Slow);
        let begun = Instant::now();
        let upload = async {
            let request = Request::post("/count").body(Body::from(vec![b'x'; 100 << 10])).unwrap();
            let answer = link.clone().ready().await?.call(request).await?;
            Ok::<_, LinkError>(answer.into_body().collect().await.unwrap().to_bytes())
        };
        // What is asked for meanwhile waits behind it.
        let (counted, echo) = tokio::join!(upload, async {
            sleep(Duration::from_secs(1)).await;
            text(&link, "/echo").await
        });
        assert_eq!(counted.unwrap(), "102400", "{protocol}");
        echo.unwrap();
        assert!(begun.elapsed() > Duration::from_secs(25), "{:?}", begun.elapsed());
        assert!(link.status().is_connected());
        assert_eq!(link.status().counters().connections(), if protocol == "h2" { 1 } else { 3 });
        drop(watch);
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_connection_is_not_killed_under_an_upload() {
    let server = server(&["h2"]);
    let link = server.link();
    text(&link, "/echo").await.unwrap();
    server.set(Weather::Slow);
    let request = Request::post("/count").body(Body::from(vec![b'x'; 100 << 10])).unwrap();
    let answer = link.clone().ready().await.unwrap().call(request).await.expect("it takes 26 s");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "102400");
    assert_eq!(server.dials.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_nothing_any_more_is_left_although_it_speaks() {
    let server = server(&["h2"]);
    let link = server.link();
    let _watch = open(&link, "/watch").await.unwrap();
    for _ in 0..2 {
        assert_eq!(server.dials.load(Ordering::SeqCst), 1);
        text(&link, "/mute").await.unwrap_err();
    }
    assert!(text(&link, "/echo").await.is_ok());
    assert_eq!(server.dials.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_stays() {
    let server = server(&["h2"]);
    let link = server.link();
    text(&link, "/echo").await.unwrap();
    let before = link.status().counters().received();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(server.dials.load(Ordering::SeqCst), 1);
    let idle = (link.status().counters().received() - before) as f64 / 3600.0;
    assert!(idle < 10.0, "{idle} bytes a second on an idle connection");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_goes_away_ends_what_it_carries_first() {
    let server = server(&["h2"]);
    let link = server.link();
    let mut old = open(&link, "/watch").await.unwrap().into_body();
    server.go_away();
    sleep(Duration::from_secs(1)).await;
    assert!(text(&link, "/echo").await.is_ok(), "a new request must find a new connection");
    assert_eq!(server.dials.load(Ordering::SeqCst), 2);
    for _ in 0..5 {
        assert!(old.frame().await.expect("the old stream goes on").is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_heard_and_busy_is_dialed_once() {
    let server = server(&["h2"]);
    let link = server.link();
    connected(&link).await;
    sleep(Duration::from_secs(20)).await;
    let dials = || server.dials.load(Ordering::SeqCst);
    // It ends all connections, refuses new ones for a while, and then sees to one handshake after another.
    server.go_away();
    server.set(Weather::Refuse);
    sleep(Duration::from_secs(10)).await;
    server.set(Weather::Swallow);
    let opened = dials();
    sleep(Duration::from_secs(7)).await;
    assert_eq!(dials() - opened, 1, "no second attempt beside one that waits for its turn");
    // But not for ever: it may have gone meanwhile.
    sleep(Duration::from_secs(10)).await;
    assert!(dials() - opened >= 3, "{}", dials() - opened);
    server.set(Weather::Fine);
    connected(&link).await;
}

#[tokio::test(start_paused = true)]
async fn who_takes_a_connection_and_is_slow_with_its_handshake_is_not_dialed_again_at_once() {
    let server = server(&["h2"]);
    server.set(Weather::Swallow);
    let link = server.link();
    sleep(Duration::from_secs(7)).await;
    assert_eq!(server.dials.load(Ordering::SeqCst), 1);
    // But not for ever, and not whatever happens.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(server.dials.load(Ordering::SeqCst), 2);
    link.status().kick();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.dials.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn each_address_is_dialed_before_one_is_dialed_again() {
    let hedge = Patience::default().hedge;
    // The first address takes connections and no more: from the start, or after a good connection that it ended.
    for was_heard in [false, true] {
        let second = server(&["h2"]);
        let first = Server {
            weather: latest::Sender::new(if was_heard { Weather::Fine } else { Weather::Swallow }),
            dials: Arc::default(),
            ..second.clone()
        };
        let ways: Vec<Arc<dyn Dial>> = vec![Arc::new(first.clone()), Arc::new(second.clone())];
        let config = LinkConfig::new(second.config.clone(), "test/1");
        let link = Link::new(LinkConfig { dialer: Arc::new(Turns::new(ways)), ..config }, env(11));
        let dials = || (first.dials.load(Ordering::SeqCst), second.dials.load(Ordering::SeqCst));
        let mut before = 0;
        if was_heard {
            connected(&link).await;
            text(&link, "/echo").await.expect("it works");
            sleep(Duration::from_secs(20)).await;
            assert_eq!(dials(), (1, 0));
            before = 1;
            first.go_away();
            sleep(Duration::from_millis(5)).await;
            first.set(Weather::Swallow);
        }
        let begun = Instant::now();
        sleep(hedge / 2).await;
        assert!(!link.status().is_connected());
        connected(&link).await;
        let took = begun.elapsed();
        assert!(took <= hedge + Duration::from_millis(500), "{was_heard}: {took:?}");
        assert_eq!(dials(), (before + 1, 1), "{was_heard}");
    }
    // Where both are busy neither has a second one to see to before the first has had its time.
    let server = server(&["h2"]);
    server.set(Weather::Swallow);
    let ways: Vec<Arc<dyn Dial>> = vec![Arc::new(server.clone()), Arc::new(server.clone())];
    let config = LinkConfig::new(server.config.clone(), "test/1");
    let _link = Link::new(LinkConfig { dialer: Arc::new(Turns::new(ways)), ..config }, env(11));
    sleep(Duration::from_secs(9)).await;
    assert_eq!(server.dials.load(Ordering::SeqCst), 2);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(server.dials.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_busy_address_is_not_dialed_again_for_what_another_one_refuses() {
    for refuses_first in [true, false] {
        let busy = server(&["h2"]);
        busy.set(Weather::Swallow);
        let gone =
            Server { weather: latest::Sender::new(Weather::Refuse), dials: Arc::default(), ..busy.clone() };
        let mut ways: Vec<Arc<dyn Dial>> = vec![Arc::new(gone.clone()), Arc::new(busy.clone())];
        if !refuses_first {
            ways.reverse();
        }
        let config = LinkConfig::new(busy.config.clone(), "test/1");
        let _link = Link::new(LinkConfig { dialer: Arc::new(Turns::new(ways)), ..config }, env(11));
        sleep(Duration::from_secs(7)).await;
        let dials = || (gone.dials.load(Ordering::SeqCst), busy.dials.load(Ordering::SeqCst));
        assert_eq!(dials(), (1, 1), "{refuses_first}");
        // But not for ever.
        sleep(Duration::from_secs(5)).await;
        assert!(dials().1 > 1, "{refuses_first}: {:?}", dials());
    }
}

/// Over HTTP/1.1 a watch has a connection of its own, on which nobody asks for a sign of life.
#[tokio::test(start_paused = true)]
async fn a_watch_over_http1_ends_with_what_is_found_of_another_connection() {
    let server = server(&["http/1.1"]);
    let link = server.link();
    let mut first = open(&link, "/watch").await.unwrap().into_body();
    let mut second = open(&link, "/watch").await.unwrap().into_body();
    for watch in [&mut first, &mut second] {
        assert!(watch.frame().await.unwrap().is_ok());
    }
    server.set(Weather::Swallow);
    assert!(text(&link, "/echo").await.is_err(), "a renewal, say, finds nobody");
    for watch in [&mut first, &mut second] {
        let ends = async { while watch.frame().await.is_some_and(|frame| frame.is_ok()) {} };
        timeout(Duration::from_secs(20), ends).await.expect("it ends with the other");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_fail_fast_while_nobody_is_there_and_a_kick_tries_at_once() {
    let server = server(&["h2"]);
    server.set(Weather::Refuse);
    let link = server.link();
    sleep(Duration::from_secs(30)).await;
    let begun = Instant::now();
    let error = text(&link, "/echo").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "https://hub.test/prefix cannot be reached: cannot connect: connection refused"
    );
    assert!(begun.elapsed() < Duration::from_millis(1));
    assert!(server.dials.load(Ordering::SeqCst) < 100, "{}", server.dials.load(Ordering::SeqCst));
    let mut woken = link.status().connected().listen();
    server.set(Weather::Fine);
    link.status().kick();
    timeout(Duration::from_millis(100), woken.woken()).await.expect("kicked");
}

#[tokio::test(start_paused = true)]
async fn without_http2_each_request_has_a_connection_and_idle_ones_are_used_again() {
    let server = server(&["http/1.1"]);
    let link = server.link();
    let watches = [open(&link, "/watch").await.unwrap(), open(&link, "/watch").await.unwrap()];
    for _ in 0..20 {
        assert_eq!(text(&link, "/echo").await.unwrap(), "HTTP/1.1 /prefix/echo Bearer secret test/1");
    }
    assert_eq!(server.dials.load(Ordering::SeqCst), 3);
    drop(watches);
    assert!(link.status().is_connected());
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_closes_the_link() {
    let server = server(&["h2"]);
    let link = server.link();
    let status = link.status();
    connected(&link).await;
    drop(link);
    let mut state = status.state();
    timeout(Duration::from_secs(1), state.wait_for(|s| *s == LinkState::Closed))
        .await
        .expect("closed")
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_refused_is_not_dialled() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let endpoint = Endpoint::of_server(&address, None, false, None).unwrap();
    let link = Link::new(LinkConfig::careful(endpoint, "test", |_| Some("refused")), env(11));
    let mut state = link.status().state();
    let told = |state: &LinkState| matches!(state, LinkState::Connecting { error: Some(_), .. });
    match &*state.wait_for(told).await.unwrap() {
        LinkState::Connecting { error: Some(error), .. } => {
            assert!(error.contains("127.0.0.1 is refused"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_server_is_no_answer_and_left_alone() {
    for (weather, says) in [
        (Weather::Portal, "is not the server: it sends us to login.hotel.test (302)"),
        (Weather::Impostor, "what answers there is not the server"),
    ] {
        let server = server(&["h2", "http/1.1"]);
        let link = server.link();
        text(&link, "/echo").await.unwrap();
        server.set(weather);
        server.go_away();
        sleep(Duration::from_secs(1)).await;
        let (dials, end) = (server.dials.load(Ordering::SeqCst), Instant::now() + Duration::from_secs(3600));
        let mut last = String::new();
        while Instant::now() < end {
            match text(&link, "/echo").await {
                Err(error) => last = error.to_string(),
                Ok(text) => panic!("{text} was taken for an answer"),
            }
            sleep(Duration::from_secs(5)).await;
        }
        let dials = server.dials.load(Ordering::SeqCst) - dials;
        assert!(last.contains(says), "{last}");
        assert!((60..140).contains(&dials), "{dials} attempts within an hour");
        server.set(Weather::Fine);
        let back = Instant::now();
        link.status().kick();
        connected(&link).await;
        text(&link, "/echo").await.unwrap();
        assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
    }
}
