//! Health and metrics over plain HTTP, and to whoever is on the machine the status. All of it is looked at when somebody asks.

use std::{
    convert::Infallible,
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use karmada_client::{Backoff, LinkStatus, Policy, link::Identity};
use karmada_env::Env;
use karmada_telemetry::metrics::{PageSource, negotiated};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    Failure,
    status::{self, Sources, Status},
    support::{self, About},
};
use crate::{Handle, Phase, Place, hub::credential::standing::Standing};

/// How long a client may take to say what it wants.
const HEADER_READ: Duration = Duration::from_secs(5);

/// Connections at a time; probes and scrapes are few.
const CONNECTIONS: usize = 16;

/// Between attempts to have an address.
const RETRY: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(30));

/// What the endpoints tell about, from before there is an agent.
#[derive(Default)]
pub(super) struct Stage {
    running: OnceLock<Running>,
    /// What is waited for until then.
    standing: Arc<Standing>,
}

/// An agent that runs.
pub(super) struct Running {
    pub(super) agent: Handle,
    /// Where the hub is, and the link to it.
    pub(super) hub: (Identity, LinkStatus),
    /// The member's.
    pub(super) member: (String, LinkStatus),
    pub(super) standing: Arc<Standing>,
    /// What `/metrics` shows.
    pub(super) page: PageSource,
    /// Where what the hub says is kept.
    pub(super) place: Place,
    /// What goes into a support bundle beside.
    pub(super) about: About,
    pub(super) started: SystemTime,
    pub(super) env: Env,
}

impl Running {
    /// What there is to say to a person at the machine, as far as a query asks for it.
    fn status(&self, query: Option<&str>) -> Result<Status, String> {
        // It may not be known from the beginning.
        let hub = self.hub.0.endpoint().map(|hub| hub.server.to_string()).unwrap_or_default();
        let sources = Sources {
            agent: &self.agent,
            hub: (&hub, &self.hub.1),
            member: (&self.member.0, &self.member.1),
            standing: &self.standing,
            place: &self.place,
            started: self.started,
            env: &self.env,
        };
        Ok(Status::of(&sources, &status::asked(query)?))
    }

    /// What is wrong beside, in words.
    fn words(&self) -> String {
        let beside = self.agent.troubles().into_iter();
        beside.fold(self.standing.words(), |words, more| words + &more + "\n")
    }
}

impl Stage {
    /// Tells what is waited for before there is an agent.
    pub(super) fn new(standing: Arc<Standing>) -> Self {
        Self { standing, ..Self::default() }
    }

    /// The agent runs from now on.
    pub(super) fn runs(&self, running: Running) {
        // Once in a process.
        let _ = self.running.set(running);
    }
}

/// A socket that answers.
#[derive(Debug)]
pub(super) struct Endpoints {
    flag: &'static str,
    address: String,
    /// None as long as the address cannot be had.
    listener: Option<TcpListener>,
}

/// Binds `address:port`, every address for `:port`.
///
/// # Errors
/// As [`TcpListener::bind`]; [`ErrorKind::InvalidInput`] if that is no address.
pub(super) async fn bind(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            // No IPv6 here.
            Err(error) if error.kind() != ErrorKind::AddrInUse => {
                TcpListener::bind(format!("0.0.0.0:{port}")).await
            }
            bound => bound,
        },
        None => TcpListener::bind(address).await,
    }
}

impl Endpoints {
    /// Binds an address; none for `0`. One that cannot be had now, since the network is not up yet or another process has it, is
    /// no reason not to do what the agent is for: it is tried again.
    pub(super) async fn open(flag: &'static str, address: &str) -> Result<Option<Self>, Failure> {
        if address == "0" || address.is_empty() {
            return Ok(None);
        }
        let listener = match bind(address).await {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                return Err(Failure::Usage(format!("{flag} {address}: {error}")));
            }
            Err(error) => {
                tracing::warn!(address, %error, "{flag}: cannot listen yet, trying again");
                None
            }
        };
        Ok(Some(Self { flag, address: address.to_owned(), listener }))
    }

    /// The socket, once it can be had.
    async fn listening(&mut self, env: &Env) -> TcpListener {
        let mut backoff = Backoff::new(RETRY);
        loop {
            if let Some(listener) = self.listener.take() {
                return listener;
            }
            tokio::time::sleep(backoff.next(env)).await;
            self.listener = bind(&self.address).await.ok();
            if self.listener.is_some() {
                tracing::info!(address = self.address, "{}: listening now", self.flag);
            }
        }
    }

    /// Answers until shutdown.
    pub(super) async fn serve(mut self, stage: Arc<Stage>, env: Env, shutdown: CancellationToken) {
        let listener = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            listener = self.listening(&env) => listener,
        };
        let slots = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let (stream, peer) = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Out of descriptors, most likely: let some be freed.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        continue;
                    }
                },
            };
            let (stage, shutdown) = (Arc::clone(&stage), shutdown.clone());
            // Ends with its connection, which a slow client cannot hold for ever, or with the process.
            tokio::spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let stage = Arc::clone(&stage);
                    async move { Ok::<_, Infallible>(answer(&request, &stage, peer)) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_READ)
                    .serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => {}
                    _ = connection => {}
                }
                drop(slot);
            });
        }
    }
}

fn answer<B>(request: &Request<B>, stage: &Stage, peer: SocketAddr) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let not_ready = |why: &str| text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {why}\n"));
    let path = request.uri().path();
    if matches!(path, status::TEXT | status::JSON | support::PATH) {
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        if !status::may_read(Some(peer), host) {
            let why = "this is told on the loopback alone: run karmada-agent status on the machine, or in the Pod\n";
            return text(StatusCode::FORBIDDEN, why);
        }
    }
    match (path, stage.running.get()) {
        ("/healthz" | "/livez", _) => text(StatusCode::OK, "ok"),
        ("/readyz" | "/metrics" | status::TEXT | status::JSON | support::PATH, None) => {
            not_ready(&format!("joining the hub: {}", stage.standing.waiting()))
        }
        ("/readyz", Some(running)) if running.agent.is_ready() => {
            let words =
                request.uri().query().is_some_and(|query| query.split('&').any(|word| word == "verbose"));
            let words = if words { running.words() } else { String::new() };
            text(
                StatusCode::OK,
                if words.is_empty() { "ok".to_owned() } else { format!("ok\n{words}") }.as_str(),
            )
        }
        ("/readyz", Some(running)) => {
            let phase = running.agent.phase().borrow().clone();
            let why = match &phase {
                Phase::Refused(why) => why.to_string(),
                other => format!("{}; hub connected: {}", other.as_str(), running.hub.1.is_connected()),
            };
            not_ready(format!("{why}\n{}", running.words()).trim_end())
        }
        ("/metrics", Some(running)) => {
            let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
            let (kind, page) = negotiated(accept.unwrap_or_default(), (running.page)());
            let mut response = text(StatusCode::OK, &page);
            response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
            response
        }
        (path @ (status::TEXT | status::JSON), Some(running)) => {
            match running.status(request.uri().query()) {
                Ok(status) if path == status::TEXT => text(StatusCode::OK, &status::write(&status)),
                Ok(status) => json(&status),
                Err(why) => text(StatusCode::BAD_REQUEST, &format!("{why}\n")),
            }
        }
        (support::PATH, Some(running)) => text(StatusCode::OK, &running.about.text(&running.agent)),
        _ => text(StatusCode::NOT_FOUND, "there are /healthz, /readyz, /metrics, /status and /status.json\n"),
    }
}

fn json(status: &Status) -> Response<Full<Bytes>> {
    match serde_json::to_string_pretty(status) {
        Ok(body) => {
            let mut response = text(StatusCode::OK, &format!("{body}\n"));
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(error) => {
            text(StatusCode::INTERNAL_SERVER_ERROR, &format!("the status cannot be written: {error}\n"))
        }
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_cannot_be_had_yet_is_waited_for_and_one_that_is_none_is_not() {
        for wrong in ["nonsense", "127.0.0.1", ":port", "127.0.0.1:99999"] {
            let error = Endpoints::open("--flag", wrong).await.unwrap_err();
            assert!(matches!(&error, Failure::Usage(said) if said.contains(wrong)), "{error}");
        }
        assert!(Endpoints::open("--flag", "0").await.unwrap().is_none());
        // An address of nobody's here (RFC 5737), as before DHCP has brought it.
        let away = Endpoints::open("--flag", "192.0.2.1:0").await.unwrap().unwrap();
        assert!(away.listener.is_none());
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let mut later = Endpoints::open("--flag", &address).await.unwrap().unwrap();
        assert!(later.listener.is_none());
        drop(taken);
        let got = later.listening(&Env::system()).await;
        assert_eq!(got.local_addr().unwrap().to_string(), address);
    }

    #[test]
    fn the_status_is_for_whoever_is_on_the_machine() {
        let stage = Stage::default();
        stage.standing.waits("the token is spent".to_owned());
        let rows = [
            ("127.0.0.1:9", "/status", 503),
            ("127.0.0.1:9", "/status.json", 503),
            ("10.0.0.9:9", "/status", 403),
            ("10.0.0.9:9", "/status.json?all", 403),
            ("10.0.0.9:9", "/support.json", 403),
            ("10.0.0.9:9", "/readyz", 503),
            ("10.0.0.9:9", "/healthz", 200),
            ("127.0.0.1:9", "/other", 404),
        ];
        for (peer, path, want) in rows {
            let request = Request::get(path).header(header::HOST, "localhost:10357").body(()).unwrap();
            let answer = answer(&request, &stage, peer.parse().unwrap());
            assert_eq!(answer.status(), want, "{peer} {path}");
        }
    }
}
