//! Connections for one conversation in HTTP/1.1, which may change its protocol: no [`Link`](super::Link) is kept.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio_rustls::TlsConnector;
use tower::BoxError;

use super::{TcpDialer, dial::Refuses, dialer_by, io::Io, proxy::Proxy};
use crate::{
    kubeconfig::{Credentials, Endpoint, Tls, parse_server},
    tls::{Trust, tls},
};

/// How long a connection may take to be made, TLS included.
const PATIENCE: Duration = Duration::from_secs(10);

impl Endpoint {
    /// A server by its address. `ca`: PEM of authorities to believe instead of the machine's own; `insecure`: any server is
    /// believed.
    ///
    /// # Errors
    /// What is wrong with the address or the authorities.
    pub fn of_server(
        address: &str,
        ca: Option<Vec<u8>>,
        insecure: bool,
        proxy: Option<Proxy>,
    ) -> Result<Self, String> {
        let server = parse_server(address)?;
        let trust = match (insecure, ca) {
            (true, _) => Trust::Anything,
            (false, Some(pem)) => Trust::Roots(pem, "caBundle".to_owned()),
            (false, None) => Trust::System,
        };
        let tls = match server.scheme_str() {
            Some("https") => {
                Some(tls(&server, None, trust, None).map_err(|(field, problem)| match field {
                    Some(field) => format!("{field}: {problem}"),
                    None => problem,
                })?)
            }
            _ => None,
        };
        let (credentials, others) = (Credentials::None, Vec::new());
        Ok(Self { server, tls, credentials, namespace: String::new(), proxy, others })
    }
}

/// A new connection to an endpoint, on which HTTP/1.1 can be spoken; to no address that is refused.
///
/// # Errors
/// Why there is none.
pub async fn connect(endpoint: &Endpoint, refuses: Refuses) -> Result<Box<dyn Io>, String> {
    let connecting = async {
        let (io, peer) = dialer_by(endpoint, |host, port| TcpDialer::new(host, port).careful(refuses))
            .dial()
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        let Some(tls) = &endpoint.tls else { return Ok(io) };
        let mut config = rustls::ClientConfig::clone(&tls.config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TlsConnector::from(Arc::new(config)).connect(tls.server_name.clone(), io).await;
        Ok(Box::new(stream.map_err(|error| format!("TLS with {peer}: {error}"))?) as Box<dyn Io>)
    };
    let late =
        |_| Err(format!("no connection to {} within {} s", shown(&endpoint.server), PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, connecting).await.unwrap_or_else(late)
}

/// An endpoint as somebody reaches it who is nobody there: by what is shown on it, a token beside the requests alone counts.
/// A server judges a client's certificate before its token, and remembers it by a session that is taken up again.
#[must_use]
pub fn as_nobody(endpoint: &Endpoint) -> Endpoint {
    let tls = endpoint.tls.as_ref().map(|tls| {
        let mut config = rustls::ClientConfig::clone(&tls.config);
        config.client_auth_cert_resolver = Arc::new(NoCertificate);
        config.resumption = rustls::client::Resumption::disabled();
        Tls { config: Arc::new(config), server_name: tls.server_name.clone(), certificate: None }
    });
    Endpoint { tls, credentials: Credentials::None, ..endpoint.clone() }
}

/// A server as somebody reaches it who is known by what they show to another: by the same certificate, or the same token.
#[must_use]
pub fn known_as_at(endpoint: Endpoint, other: &Endpoint) -> Endpoint {
    let tls = endpoint.tls.map(|tls| {
        let mut config = rustls::ClientConfig::clone(&tls.config);
        let shown = other.tls.as_ref();
        if let Some(shown) = shown {
            config.client_auth_cert_resolver = Arc::clone(&shown.config.client_auth_cert_resolver);
        }
        config.resumption = rustls::client::Resumption::disabled();
        let certificate = shown.and_then(|shown| shown.certificate.clone());
        Tls { config: Arc::new(config), certificate, ..tls }
    });
    Endpoint { tls, credentials: other.credentials.clone(), ..endpoint }
}

/// What a token or a password says in a header, beside a certificate.
///
/// # Errors
/// Why it cannot be read.
pub fn authorization(credentials: &Credentials) -> Result<Option<HeaderValue>, String> {
    let text = match credentials {
        Credentials::None => return Ok(None),
        Credentials::Token(token) => format!("Bearer {token}"),
        Credentials::TokenFile(file) => {
            let token = std::fs::read_to_string(file);
            let token = token.map_err(|error| format!("{}: {error}", file.display()))?;
            format!("Bearer {}", token.trim())
        }
        Credentials::Basic(user, password) => {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
        }
    };
    let mut value =
        HeaderValue::from_str(&text).map_err(|_| "the credential is none for a header".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// A client that makes a connection for each request, which may change its protocol: for what lasts. The paths that it asks for
/// stand behind `prefix`. It waits for as long as whoever asks.
pub fn client(endpoint: &Endpoint, prefix: &str, user_agent: &'static str) -> kube::Client {
    let endpoint = Arc::new(endpoint.clone());
    let before = format!("{}{prefix}", endpoint.server.path().trim_end_matches('/'));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (endpoint, before) = (Arc::clone(&endpoint), before.clone());
        async move { ask(&endpoint, &before, user_agent, request).await }
    });
    kube::Client::new(service, "default")
}

async fn ask(
    endpoint: &Endpoint,
    before: &str,
    user_agent: &'static str,
    request: Request<Body>,
) -> Result<Response<Incoming>, BoxError> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    parts.uri = format!("{before}{path}").parse()?;
    let host = endpoint.server.authority().map_or("", http::uri::Authority::as_str);
    parts.headers.insert(header::HOST, HeaderValue::from_str(host)?);
    parts.headers.insert(header::USER_AGENT, HeaderValue::from_static(user_agent));
    if let Some(shown) = authorization(&endpoint.credentials)? {
        parts.headers.insert(header::AUTHORIZATION, shown);
    }
    let io = connect(endpoint, |_| None).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
    // Ends with the answer, or with whatever the connection becomes.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection has ended badly");
        }
    });
    Ok(sender.send_request(Request::from_parts(parts, body)).await?)
}

#[derive(Debug)]
struct NoCertificate;

impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// An address without what nobody needs to see.
fn shown(server: &Uri) -> String {
    format!("{}:{}", server.host().unwrap_or_default(), server.port_u16().unwrap_or(443))
}
