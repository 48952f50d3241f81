//! A client that costs as little as one can: it speaks HTTP over one TLS connection, sends bytes that are there already
//! and looks at answers no further than it must. It runs on the cores of the server that it measures.

use std::{net::SocketAddr, path::Path, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use karmada_client::Kubeconfig;
use karmada_tests::fleet::server_of;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Where the server is, and who asks.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    tls: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Target {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        let endpoint = Kubeconfig::load(kubeconfig).and_then(|k| k.endpoint(None));
        let tls = endpoint.expect("a kubeconfig of our own").tls.expect("https");
        Self { address: server_of(kubeconfig), tls: tls.config, name: tls.server_name }
    }

    async fn dial(&self, protocol: &str) -> TlsStream<TcpStream> {
        let mut config = ClientConfig::clone(&self.tls);
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await.expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket");
        TlsConnector::from(Arc::new(config)).connect(self.name.clone(), stream).await.expect("a handshake")
    }

    /// A connection over HTTP/2.
    pub(crate) async fn http2(&self) -> Client {
        let stream = TokioIo::new(self.dial("h2").await);
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.expect("the server speaks HTTP/2");
        Client { sender: Sender::Two(sender), connection: tokio::spawn(async { drop(connection.await) }) }
    }

    /// A connection over HTTP/1.1.
    pub(crate) async fn http1(&self) -> Client {
        let stream = TokioIo::new(self.dial("http/1.1").await);
        let (sender, connection) = http1::handshake(stream).await.expect("the server speaks HTTP/1.1");
        Client { sender: Sender::One(sender), connection: tokio::spawn(async { drop(connection.await) }) }
    }
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// One connection.
pub(crate) struct Client {
    sender: Sender,
    connection: JoinHandle<()>,
}

impl Client {
    async fn send(&mut self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        let answer = match &mut self.sender {
            Sender::One(sender) => sender.send_request(request).await,
            Sender::Two(sender) => sender.send_request(request).await,
        };
        answer.expect("an answer")
    }

    /// The body of an answer, as it comes.
    pub(crate) async fn stream(&mut self, path: &str) -> Incoming {
        let answer = self.send(request(&Method::GET, path, Bytes::new())).await;
        assert_eq!(answer.status(), StatusCode::OK, "GET {path}");
        answer.into_body()
    }

    /// Reads an answer to its end, and tells its length.
    pub(crate) async fn get(&mut self, path: &str) -> usize {
        drain(self.stream(path).await).await
    }

    /// Creates an object.
    pub(crate) async fn post(&mut self, path: &str, object: Bytes) {
        let answer = self.send(request(&Method::POST, path, object)).await;
        assert_eq!(answer.status(), StatusCode::CREATED, "POST {path}");
        drain(answer.into_body()).await;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

async fn drain(mut body: Incoming) -> usize {
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        len += frame.expect("a whole answer").data_ref().map_or(0, Bytes::len);
    }
    len
}

fn request(method: &Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(format!("https://localhost{path}"));
    let builder = builder.header(header::HOST, "localhost").header(header::USER_AGENT, "bench/1");
    let builder = builder.header(header::ACCEPT, "application/json");
    let builder = match body.is_empty() {
        true => builder,
        false => builder.header(header::CONTENT_TYPE, "application/json"),
    };
    builder.body(Full::new(body)).expect("a request of our own")
}
