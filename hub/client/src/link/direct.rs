//! Connections for one conversation in HTTP/1.1, which may change its protocol: no [`Link`](super::Link) is kept.

use std::{sync::Arc, time::Duration};

use http::Uri;
use tokio_rustls::TlsConnector;

use super::{TcpDialer, dial::Refuses, dialer_by, io::Io, proxy::Proxy};
use crate::{
    kubeconfig::{Credentials, Endpoint, parse_server},
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
        Ok(Self { server, tls, credentials: Credentials::None, namespace: String::new(), proxy })
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

/// An address without what nobody needs to see.
fn shown(server: &Uri) -> String {
    format!("{}:{}", server.host().unwrap_or_default(), server.port_u16().unwrap_or(443))
}
