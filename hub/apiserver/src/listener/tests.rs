//! Over real sockets: TLS, both protocols, every kind of identity, and the end.

use http::StatusCode;
use http_body_util::{BodyExt, Empty, StreamBody};
use karmada_env::Env;
use rustls::{ClientConfig, pki_types::ServerName};
use rustls_pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::*;
use crate::{authn::Tokens, pki::Credential};

const GRACE: Duration = Duration::from_millis(300);

struct Server {
    address: SocketAddr,
    pki: Pki,
    shutdown: CancellationToken,
    done: JoinHandle<()>,
    _dir: TempDir,
}

/// Answers with the user's name; `/stream` with a body that never ends by itself.
async fn answer(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let user = request.extensions().get::<UserInfo>().unwrap();
    let text = format!("{} {}", user.name, user.groups.join(","));
    if request.uri().path() == "/stream" {
        let frames =
            futures::stream::once(async move { Ok::<_, Infallible>(http_body::Frame::data(text.into())) });
        let frames = futures::StreamExt::chain(frames, futures::stream::pending());
        return Ok(Response::new(Body::new(StreamBody::new(frames))));
    }
    Ok(Response::new(Body::from(text)))
}

async fn start() -> Server {
    let dir = TempDir::new().unwrap();
    let env = Env::system();
    let pki = Pki::open_or_create(dir.path(), &[], &env).unwrap();
    let tls = Tls::new(&pki, &env).unwrap();
    let mut tokens = Tokens::new();
    tokens.insert("secret", UserInfo::new("token-user", ["g"]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let done = tokio::spawn(serve_and_drain(
        listener,
        tls,
        Authenticator::new(tokens, env),
        tower::service_fn(answer),
        shutdown.clone(),
        GRACE,
    ));
    Server { address, pki, shutdown, done, _dir: dir }
}

impl Server {
    async fn connect(
        &self,
        alpn: &[u8],
        credential: Option<&Credential>,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pki.ca_pem().as_bytes()).unwrap()).unwrap();
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
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
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
    tokio::time::timeout(GRACE * 20, server.done)
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
