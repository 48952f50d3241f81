//! Health and metrics over plain HTTP, and to whoever is on the machine the status. All of it is looked at when somebody asks.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use karmada_client::LinkStatus;
use karmada_env::Env;
use karmada_telemetry::metrics::{PageSource, negotiated};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    ProcessError,
    status::{self, Sources, Status},
    support::{self, About},
};
use crate::{Handle, Phase, Place, hub::credential::standing::Standing};

/// How long a client may take to say what it wants.
const HEADER_READ: Duration = Duration::from_secs(5);

/// Connections at a time; probes and scrapes are few.
const CONNECTIONS: usize = 16;

/// What the endpoints tell about, from before there is an agent.
#[derive(Default)]
pub(super) struct Stage {
    running: OnceLock<Running>,
    /// What is waited for until then.
    waits: Mutex<String>,
}

/// An agent that runs.
pub(super) struct Running {
    pub(super) agent: Handle,
    /// The hub's address, and the link to it.
    pub(super) hub: (String, LinkStatus),
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
        let sources = Sources {
            agent: &self.agent,
            hub: (&self.hub.0, &self.hub.1),
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
    /// What is waited for; answers whether that is new.
    pub(super) fn waits(&self, what: String) -> bool {
        let mut waits = self.waits.lock();
        let is_new = *waits != what;
        *waits = what;
        is_new
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
    listener: TcpListener,
}

impl Endpoints {
    /// Binds `address:port`, every address for `:port`; none for `0`.
    pub(super) async fn bind(flag: &str, address: &str) -> Result<Option<Self>, ProcessError> {
        if address == "0" || address.is_empty() {
            return Ok(None);
        }
        let bound = match address.strip_prefix(':') {
            Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
                // No IPv6 here.
                Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
                    TcpListener::bind(format!("0.0.0.0:{port}")).await
                }
                bound => bound,
            },
            None => TcpListener::bind(address).await,
        };
        let listener = bound.map_err(|error| ProcessError::Usage(format!("{flag} {address}: {error}")))?;
        Ok(Some(Self { listener }))
    }

    /// Answers until shutdown.
    pub(super) async fn serve(self, stage: Arc<Stage>, shutdown: CancellationToken) {
        let slots = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let (stream, peer) = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                accepted = self.listener.accept() => match accepted {
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
            not_ready(&format!("joining the hub: {}", stage.waits.lock()))
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

    #[test]
    fn the_status_is_for_whoever_is_on_the_machine() {
        let stage = Stage::default();
        stage.waits("the token is spent".to_owned());
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
