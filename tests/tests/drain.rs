//! The end of a hub under load: whoever was answered was right, and nobody is cut off without being told.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use karmada_client::Kubeconfig;
use karmada_tests::{
    fleet::{Binaries, file, rest, start_hub},
    process::Process,
    wait::{END, PATIENCE, eventually},
};
use serde_json::json;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// One connection, of either protocol.
enum Client {
    Http1(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Http2(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Client {
    async fn connect(kubeconfig: &Path, alpn: &[u8]) -> Self {
        let endpoint = Kubeconfig::load(kubeconfig).and_then(|k| k.endpoint(None)).unwrap();
        let tls = endpoint.tls.unwrap();
        let mut config = (*tls.config).clone();
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(endpoint.server.authority().unwrap().as_str()).await.unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(tls.server_name, stream).await.unwrap();
        if alpn == b"h2" {
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            Self::Http2(sender)
        } else {
            let (sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            Self::Http1(sender)
        }
    }

    async fn send(&mut self, method: &str, path: &str, body: String) -> hyper::Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://hub{path}"))
            .header("host", "hub")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// What a writer saw of the end.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The last answer said so.
    Told,
    /// The connection said so before a request went out.
    GoAway,
    /// Anything else.
    CutOff(String),
}

/// Whether a connection ended in order: by GOAWAY without an error, and with nothing under way.
fn in_order(error: &hyper::Error) -> bool {
    error.is_canceled() || error.is_closed() || format!("{error:?}").contains("NO_ERROR")
}

/// Creates objects until the end; what was answered with success.
async fn write(mut client: Client, name: String, not_ready: Arc<AtomicBool>) -> (Vec<String>, usize, End) {
    let (mut made, mut late) = (Vec::new(), 0);
    for i in 0.. {
        let name = format!("{name}-{i}");
        let body = json!({"metadata": {"name": name}, "data": {"k": "v".repeat(500)}}).to_string();
        let was_not_ready = not_ready.load(Ordering::Relaxed);
        let response = match client.send("POST", MAPS, body).await {
            Ok(response) => response,
            Err(error) if in_order(&error) => return (made, late, End::GoAway),
            Err(error) => return (made, late, End::CutOff(format!("{error:?}"))),
        };
        let told = response.headers().get("connection").is_some_and(|value| value == "close");
        let code = response.status();
        if let Err(error) = response.into_body().collect().await {
            return (made, late, End::CutOff(format!("in an answer: {error:?}")));
        }
        if code == 201 {
            made.push(name);
            late += usize::from(was_not_ready);
        } else if code != 429 && code != 503 {
            return (made, late, End::CutOff(format!("it said {code}")));
        }
        if told {
            return (made, late, End::Told);
        }
    }
    unreachable!("there is always a next number")
}

async fn started(dir: &Path, args: &[&str]) -> Process {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let kubeconfig = dir.join("hub/admin.kubeconfig");
    let _ = std::fs::remove_file(&kubeconfig);
    let hub = start_hub(dir, "hub", &binaries, args.iter().map(|&arg| arg.to_owned()));
    file(&kubeconfig).await;
    let api = rest(&kubeconfig);
    eventually("the hub to be ready", PATIENCE, || api.get(MAPS)).await;
    hub
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_there_and_nobody_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let mut hub = started(dir.path(), &["--shutdown-delay-duration=4s"]).await;
    let kubeconfig = dir.path().join("hub/admin.kubeconfig");
    let not_ready = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for i in 0..8 {
        let alpn: &[u8] = if i % 2 == 0 { b"h2" } else { b"http/1.1" };
        let client = Client::connect(&kubeconfig, alpn).await;
        writers.push(tokio::spawn(write(client, format!("w{i}"), not_ready.clone())));
    }
    let mut watcher = Client::connect(&kubeconfig, b"http/1.1").await;
    let mut watch =
        watcher.send("GET", &format!("{MAPS}?watch=true"), String::new()).await.unwrap().into_body();
    let seen = tokio::spawn(async move {
        let mut frames = 0;
        while let Some(frame) = watch.frame().await {
            frame?;
            frames += 1;
        }
        Ok::<usize, hyper::Error>(frames)
    });
    let mut prober = Client::connect(&kubeconfig, b"h2").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    hub.signal("TERM");
    let code = timeout(PATIENCE, async {
        loop {
            let response = prober.send("GET", "/readyz", String::new()).await.unwrap();
            if response.status() != 200 {
                return response.status();
            }
        }
    });
    assert_eq!(code.await.expect("it stops being ready"), 500);
    not_ready.store(true, Ordering::Relaxed);
    let status = hub.exit(END).await.expect("it ends");
    assert!(status.success(), "{status}");

    let (mut made, mut late) = (Vec::new(), 0);
    for (i, writer) in writers.into_iter().enumerate() {
        let (names, after, end) = timeout(PATIENCE, writer).await.expect("writers end").unwrap();
        assert!(!matches!(end, End::CutOff(_)), "writer {i}: {end:?}");
        assert!(!names.is_empty(), "writer {i} wrote nothing");
        made.extend(names);
        late += after;
    }
    assert!(late > 0, "it goes on answering while it is not ready");
    let frames = timeout(PATIENCE, seen).await.expect("watches end").unwrap();
    assert!(frames.expect("watches end in order") > 0);

    let _hub = started(dir.path(), &[]).await;
    let api = rest(&kubeconfig);
    let list = api.get(MAPS).await.unwrap();
    let there: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    let lost: Vec<&String> = made.iter().filter(|name| !there.contains(&name.as_str())).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), made.len());
    println!("{} objects written, {late} of them while not ready", made.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_twice_it_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut hub = started(dir.path(), &["--shutdown-delay-duration=10m"]).await;
    hub.signal("TERM");
    let api = rest(&dir.path().join("hub/admin.kubeconfig"));
    eventually("it to have been asked", PATIENCE, || async {
        match api.get_text("/readyz").await {
            Err(_) => Ok(()),
            Ok(text) => Err(text),
        }
    })
    .await;
    assert!(hub.is_running(), "it has ten minutes");
    hub.signal("TERM");
    let status = hub.exit(END).await.expect("it ends");
    assert_eq!(status.code(), Some(1));
}
