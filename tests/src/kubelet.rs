//! What a stand-in member lacks: somebody who runs commands, has logs and ports. Requests for anything else go on to the
//! stand-in.
//!
//! `exec` runs programs of this machine, over WebSocket as kubectl ≥ 1.31 speaks it (`v5.channel.k8s.io`); `attach` says back
//! the bytes that it gets; `portforward` reaches ports of this machine, as kube's clients ask for them; `log` has lines without end if it is followed, and else `limitBytes` of them, or a few.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, header};
use http_body_util::{BodyExt as _, Empty, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use karmada_client::Rest;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

type Body = UnsyncBoxBody<Bytes, kube::Error>;

/// The channels that both ends speak.
const PROTOCOL: &str = "v5.channel.k8s.io";
/// Channels of a session.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
/// What a frame is.
const BINARY: u8 = 2;
const GOODBYE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// The longest message that is taken.
const LONGEST: usize = 1 << 20;

/// Stands before a member; answers at which address, without TLS and for anybody.
///
/// # Panics
/// When there is no port to be had.
pub async fn before(member: &Rest) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
    let address = listener.local_addr().expect("it has one");
    let client = member.client().clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let client = client.clone();
            let service = service_fn(move |request| answer(client.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    address
}

/// By which it is reached.
pub fn kubeconfig(front: SocketAddr) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "m",
        "clusters": [{"name": "m", "cluster": {"server": format!("http://{front}")}}],
        "users": [{"name": "m", "user": {}}],
        "contexts": [{"name": "m", "context": {"cluster": "m", "user": "m"}}],
    })
}

/// Whether a command runs that a session has started in this process.
pub fn running(command: &str) -> bool {
    RUNNING.lock().iter().any(|one| one == command)
}

static RUNNING: Mutex<Vec<String>> = Mutex::new(Vec::new());

async fn answer(client: kube::Client, mut request: Request<Incoming>) -> Result<Response<Body>, kube::Error> {
    let path = request.uri().path().to_owned();
    let query: Vec<(String, String)> = pairs(request.uri().query().unwrap_or_default());
    if path.ends_with("/log") {
        return Ok(Response::new(log(&query)));
    }
    if path.ends_with("/portforward") {
        let key = request.headers().get("sec-websocket-key").cloned();
        let port = query.iter().find(|(name, _)| name == "ports").and_then(|(_, port)| port.parse().ok());
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            if let (Ok(io), Some(port)) = (upgrade.await, port) {
                let _ = forward(TokioIo::new(io), port).await;
            }
        });
        return Ok(agreed(key.as_ref()));
    }
    if path.ends_with("/attach") || path.ends_with("/exec") {
        let key = request.headers().get("sec-websocket-key").cloned();
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let Ok(io) = upgrade.await else { return };
            let io = TokioIo::new(io);
            if path.ends_with("/attach") {
                let (mut from, mut to) = tokio::io::split(io);
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
                return;
            }
            let command = query.into_iter().filter(|(name, _)| name == "command").map(|(_, word)| word);
            exec(io, command.collect()).await;
        });
        return Ok(agreed(key.as_ref()));
    }
    let (mut head, body) = request.into_parts();
    head.headers.remove("host");
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let answer = client.send(Request::from_parts(head, kube::client::Body::from(body.to_vec()))).await?;
    Ok(answer.map(|body| body.boxed_unsync()))
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let split = query.split('&').filter_map(|pair| pair.split_once('='));
    split.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&digits, 16).unwrap_or(b'%')
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn agreed(key: Option<&HeaderValue>) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let mut key = key.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
    key.extend_from_slice(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let accept = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &key);
    let accept = HeaderValue::from_str(&BASE64_STANDARD.encode(accept)).expect("base64 is a header's value");
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// As fast as they are taken where their bytes are counted, and else ten a second, with times that tell them apart if wanted.
fn log(query: &[(String, String)]) -> Body {
    let value = |name: &str| query.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str());
    let limit: Option<u64> = value("limitBytes").and_then(|text| text.parse().ok());
    let (follows, has_times) = (value("follow") == Some("true"), value("timestamps") == Some("true"));
    let all = if follows { u64::MAX } else { 3 };
    let piece = Bytes::from(b"a line of a log that has nothing to say\n".repeat(400));
    let parts = futures::stream::unfold((limit, all), move |(limit, lines)| {
        let piece = piece.clone();
        async move {
            let (part, state) = match limit {
                Some(0) => return None,
                Some(left) => {
                    let part = piece.slice(..piece.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                    let left = left - part.len() as u64;
                    (part, (Some(left), lines))
                }
                None if lines == 0 => return None,
                None => {
                    if follows {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    let line = if has_times { timed(all - lines) } else { Bytes::from_static(b"line\n") };
                    (line, (None, lines - 1))
                }
            };
            Some((Ok(Frame::data(part)), state))
        }
    });
    StreamBody::new(parts.boxed()).boxed_unsync()
}

/// A line with the time that it would have had.
pub fn timed(nth: u64) -> Bytes {
    let time = jiff::Timestamp::UNIX_EPOCH + Duration::from_millis(100 * nth);
    format!("{time:.9} line\n").into()
}

/// Bytes from and to a port, on the first of two channels; on the second, why there are none.
async fn forward(io: impl AsyncRead + AsyncWrite + Send + 'static, port: u16) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(io);
    let [low, high] = port.to_le_bytes();
    for channel in [0, 1] {
        frame(&mut to, BINARY, &[channel, low, high]).await?;
    }
    let goodbye = 1000_u16.to_be_bytes();
    let stream = match TcpStream::connect(("127.0.0.1", port)).await {
        Ok(stream) => stream,
        Err(error) => {
            frame(&mut to, BINARY, format!("\u{1}{error}").as_bytes()).await?;
            return frame(&mut to, GOODBYE, &goodbye).await;
        }
    };
    let (mut read, mut write) = stream.into_split();
    let hears = async {
        while let Ok((kind, message)) = message(&mut from).await {
            match (kind, message.split_first()) {
                (GOODBYE, _) => return,
                (BINARY, Some((0, rest))) if write.write_all(rest).await.is_err() => return,
                _ => {}
            }
        }
    };
    let speaks = async {
        let mut chunk = vec![0; 16 << 10];
        while let Ok(length @ 1..) = read.read(&mut chunk[1..]).await {
            frame(&mut to, BINARY, &chunk[..=length]).await?;
        }
        frame(&mut to, GOODBYE, &goodbye).await
    };
    tokio::select! {
        () = hears => Ok(()),
        spoken = speaks => spoken,
    }
}

/// The sizes that terminals of sessions were said to have, as they came.
pub fn sizes() -> Vec<String> {
    SIZES.lock().clone()
}

static SIZES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What goes to the client: a frame of this kind.
type Said = (u8, Vec<u8>);

async fn exec(io: impl AsyncRead + AsyncWrite + Send + 'static, command: Vec<String>) {
    let (mut from, mut to) = tokio::io::split(io);
    let (say, mut said) = mpsc::channel::<Said>(4);
    let (input, stdin) = mpsc::channel::<Vec<u8>>(4);
    let killer = Arc::new(Mutex::new(None));
    let runs = tokio::task::spawn_blocking({
        let (say, killer) = (say.clone(), killer.clone());
        move || run(&command, stdin, &say, &killer)
    });
    let hears = async {
        let mut input = Some(input);
        while let Ok((kind, message)) = message(&mut from).await {
            match (kind, message.split_first()) {
                (PING, _) => drop(say.send((PONG, message)).await),
                (GOODBYE, _) => break,
                (BINARY, Some((&STDIN, rest))) if !rest.is_empty() => {
                    if let Some(input) = &input {
                        let _ = input.send(rest.to_vec()).await;
                    }
                }
                (BINARY, Some((&CLOSE, [STDIN]))) => input = None,
                (BINARY, Some((&RESIZE, rest))) => {
                    SIZES.lock().push(String::from_utf8_lossy(rest).into_owned());
                }
                _ => {}
            }
        }
    };
    let speaks = async {
        while let Some((kind, message)) = said.recv().await {
            if frame(&mut to, kind, &message).await.is_err() || kind == GOODBYE {
                break;
            }
        }
    };
    tokio::select! {
        () = speaks => {}
        () = hears => {}
    }
    // Nobody is there any more: nothing runs on.
    let kill = killer.lock().take();
    if let Some(pid) = kill {
        let _ = Command::new("kill").args(["-9", &format!("{pid}")]).status();
    }
    drop((said, say));
    let _ = to.shutdown().await;
    let _ = runs.await;
}

/// Runs a program to its end, and says how that was.
fn run(
    command: &[String],
    mut stdin: mpsc::Receiver<Vec<u8>>,
    say: &mpsc::Sender<Said>,
    killer: &Mutex<Option<u32>>,
) {
    let channel = |channel: u8, bytes: &[u8]| {
        let mut message = vec![channel];
        message.extend_from_slice(bytes);
        say.blocking_send((BINARY, message)).is_ok()
    };
    let words = command.join(" ");
    let (program, arguments) = command.split_first().map_or(("", &[][..]), |(one, rest)| (one, rest));
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let status = match started {
        Err(error) => json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": format!("cannot run {words}: {error}"),
        }),
        Ok(mut child) => {
            *killer.lock() = Some(child.id());
            RUNNING.lock().push(words.clone());
            let (mut to, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
            std::thread::spawn(move || {
                while let Some(bytes) = stdin.blocking_recv() {
                    if to.as_mut().is_none_or(|to| to.write_all(&bytes).is_err()) {
                        return;
                    }
                }
            });
            let copy = |from: Option<&mut dyn Read>, to: u8| {
                let Some(from) = from else { return };
                let mut chunk = [0; 16 << 10];
                while let Ok(read @ 1..) = from.read(&mut chunk) {
                    if !channel(to, &chunk[..read]) {
                        return;
                    }
                }
            };
            let (mut out, mut err) = (out, err);
            std::thread::scope(|scope| {
                scope.spawn(|| copy(err.as_mut().map(|err| err as &mut dyn Read), STDERR));
                copy(out.as_mut().map(|out| out as &mut dyn Read), STDOUT);
            });
            let ended = child.wait();
            *killer.lock() = None;
            let mut running = RUNNING.lock();
            if let Some(at) = running.iter().position(|one| *one == words) {
                running.remove(at);
            }
            drop(running);
            match ended.ok().and_then(|status| status.code()) {
                Some(0) => json!({"metadata": {}, "status": "Success"}),
                code => {
                    let code = code.unwrap_or(137).to_string();
                    json!({
                        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                        "message": format!("command terminated with non-zero exit code: exit status {code}"),
                        "details": {"causes": [{"reason": "ExitCode", "message": code}]},
                    })
                }
            }
        }
    };
    channel(STATUS, status.to_string().as_bytes());
    let _ = say.blocking_send((GOODBYE, 1000_u16.to_be_bytes().to_vec()));
}

/// A client's next message, whole.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let (mut kind, mut whole) = (0, Vec::new());
    loop {
        let (head, length) = (from.read_u8().await?, from.read_u8().await?);
        let length = match length & 0x7f {
            126 => usize::from(from.read_u16().await?),
            127 => usize::try_from(from.read_u64().await?).unwrap_or(usize::MAX),
            short => usize::from(short),
        };
        if length.saturating_add(whole.len()) > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut mask = [0; 4];
        from.read_exact(&mut mask).await?;
        let mut part = vec![0; length];
        from.read_exact(&mut part).await?;
        part.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        // What is said between the parts of a message stands for itself.
        if head & 0x0f >= GOODBYE {
            return Ok((head & 0x0f, part));
        }
        kind |= head & 0x0f;
        whole.extend_from_slice(&part);
        if head & 0x80 != 0 {
            return Ok((kind, whole));
        }
    }
}

async fn frame(to: &mut (impl AsyncWrite + Unpin), kind: u8, message: &[u8]) -> io::Result<()> {
    let mut frame = vec![0x80 | kind];
    match u16::try_from(message.len()) {
        Ok(short @ 0..=125) => frame.push(short as u8),
        Ok(medium) => {
            frame.push(126);
            frame.extend_from_slice(&medium.to_be_bytes());
        }
        Err(_) => {
            frame.push(127);
            frame.extend_from_slice(&(message.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(message);
    to.write_all(&frame).await?;
    to.flush().await
}
