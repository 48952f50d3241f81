//! Health and metrics over plain HTTP. Figures are read when somebody asks.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use karmada_client::LinkStatus;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::ProcessError;
use crate::{Handle, Phase};

/// How long a client may take to say what it wants.
const HEADER_READ: Duration = Duration::from_secs(5);

/// Connections at a time; probes and scrapes are few.
const CONNECTIONS: usize = 16;

/// What the endpoints tell about.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub(super) agent: Handle,
    pub(super) hub: LinkStatus,
    pub(super) member: LinkStatus,
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
    pub(super) async fn serve(self, sources: Arc<Sources>, shutdown: CancellationToken) {
        let slots = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let stream = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // Out of descriptors, most likely: let some be freed.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        continue;
                    }
                },
            };
            let (sources, shutdown) = (Arc::clone(&sources), shutdown.clone());
            // Ends with its connection, which a slow client cannot hold for ever, or with the process.
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let sources = Arc::clone(&sources);
                    async move { Ok::<_, Infallible>(answer(&request, &sources)) }
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

fn answer(request: &Request<Incoming>, sources: &Sources) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match request.uri().path() {
        "/healthz" | "/livez" => text(StatusCode::OK, "ok"),
        "/readyz" if sources.agent.is_ready() => text(StatusCode::OK, "ok"),
        "/readyz" => {
            let phase = sources.agent.phase().borrow().clone();
            let why = match &phase {
                Phase::Refused(why) => why.to_string(),
                other => format!("{}; hub connected: {}", other.as_str(), sources.hub.is_connected()),
            };
            text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {why}\n"))
        }
        "/metrics" => {
            let mut response = text(StatusCode::OK, &metrics(sources));
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
            response
        }
        _ => text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n"),
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn metrics(sources: &Sources) -> String {
    let mut registry = Registry::with_prefix("karmada_agent");
    registry.register_collector(Box::new(sources.clone()));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = encode(&mut text, &registry);
    text
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (agent, stats) = (&self.agent, self.agent.stats());
        let counters = [
            ("syncs", "Works carried out, each time.", stats.syncs.get()),
            ("sync_errors", "Failures to carry out a Work or an object of one.", stats.sync_errors.get()),
            ("applies", "Objects written on the member.", stats.applies.get()),
            ("corrections", "Objects that had been changed behind the hub's back.", stats.corrections.get()),
            ("deletions", "Objects deleted on the member.", stats.deletions.get()),
            ("work_reports", "Work statuses written to the hub.", stats.work_reports.get()),
            ("cluster_reports", "Cluster statuses written to the hub.", stats.cluster_reports.get()),
            ("lease_renewals", "Lease renewals.", stats.renewals.get()),
            ("lease_renewal_errors", "Lease renewals that failed.", stats.renewal_errors.get()),
            ("events_dropped", "Events that were lost.", agent.events_dropped()),
            ("hub_received_bytes", "Bytes read from the hub's sockets.", self.hub.counters().received()),
            ("hub_sent_bytes", "Bytes written to the hub's sockets.", self.hub.counters().sent()),
            ("hub_connections", "Connections made to the hub.", self.hub.counters().connections()),
            (
                "member_received_bytes",
                "Bytes read from the member's sockets.",
                self.member.counters().received(),
            ),
            ("member_sent_bytes", "Bytes written to the member's sockets.", self.member.counters().sent()),
            ("member_connections", "Connections made to the member.", self.member.counters().connections()),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let active = *agent.phase().borrow() == Phase::Active;
        let gauges = [
            ("active", "1 while the agent is at work.", i64::from(active)),
            (
                "hub_connected",
                "1 while there is a connection to the hub.",
                i64::from(self.hub.is_connected()),
            ),
            (
                "member_connected",
                "1 while there is one to the member.",
                i64::from(self.member.is_connected()),
            ),
            ("works", "Works that the hub wants here.", number(agent.works())),
            ("objects", "Objects on the member that are watched.", number(agent.objects())),
            ("works_queued", "Works that wait to be carried out.", number(agent.queued())),
            ("reports_pending", "Reports that the hub has not taken yet.", number(agent.unreported())),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
