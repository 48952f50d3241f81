//! What a stand-in member lacks: somebody who runs commands, has logs and ports. Requests for anything else go on to the
//! stand-in.
//!
//! `exec` runs programs of this machine, over WebSocket as kubectl ≥ 1.31 speaks it (`v5.channel.k8s.io`), or over SPDY; `attach`
//! says back the bytes that it gets; `portforward` reaches ports of this machine, as kube's clients ask for them, or as kubectl does,
//! by SPDY; `log` has lines without end if it is followed, and else `limitBytes` of them, or a few.
//!
//! A Pod called `old` has a kubelet that knows no WebSockets.

mod spdy;

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
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
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
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};

type Body = UnsyncBoxBody<Bytes, kube::Error>;

/// The channels that both ends speak.
const PROTOCOL: &str = "v5.channel.k8s.io";
/// What they speak without WebSockets, and what kubectl asks for to speak it within one.
const SPDY: &str = "SPDY/3.1";
const TUNNELLED: &str = "SPDY/3.1+portforward.k8s.io";
/// The versions of sessions, and of ports, by SPDY: each the best first.
const SESSIONS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];
const PORTS: &[&str] = &["portforward.k8s.io"];
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

async fn answer(client: kube::Client, request: Request<Incoming>) -> Result<Response<Body>, kube::Error> {
    let path = request.uri().path().to_owned();
    let query: Vec<(String, String)> = pairs(request.uri().query().unwrap_or_default());
    let what = match path.rsplit('/').next() {
        Some("log") => return Ok(Response::new(log(&query))),
        Some("exec") => Some(What::Exec),
        Some("attach") => Some(What::Attach),
        Some("portforward") => Some(What::Ports),
        _ => None,
    };
    if let Some(what) = what {
        return Ok(session(request, what, path.contains("/pods/old/"), query));
    }
    let (mut head, body) = request.into_parts();
    head.headers.remove("host");
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let answer = client.send(Request::from_parts(head, kube::client::Body::from(body.to_vec()))).await?;
    Ok(answer.map(|body| body.boxed_unsync()))
}

/// What connections change their protocol for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Exec,
    Attach,
    Ports,
}

/// Agrees to a session, and has it; or says why not. `old`: its kubelet knows no WebSockets.
fn session(
    mut request: Request<Incoming>,
    what: What,
    old: bool,
    query: Vec<(String, String)>,
) -> Response<Body> {
    let lines = |name: &str| -> Vec<String> {
        let all = request.headers().get_all(name).iter();
        all.filter_map(|line| line.to_str().ok().map(str::to_owned)).collect()
    };
    let is_spdy = lines("upgrade").iter().any(|one| one.eq_ignore_ascii_case(SPDY));
    let is_tunnelled = lines("sec-websocket-protocol").iter().any(|one| one == TUNNELLED);
    let versions = lines("x-stream-protocol-version");
    let key = request.headers().get("sec-websocket-key").cloned();
    let answer = if is_spdy {
        let known = if what == What::Ports { PORTS } else { SESSIONS };
        match known.iter().copied().find(|known| versions.iter().any(|one| one == known)) {
            Some(version) => agreed_to(SPDY, "x-stream-protocol-version", version),
            None => return unknown(known, &versions),
        }
    } else if old {
        return refused("this kubelet knows no WebSockets".to_owned());
    } else {
        agreed(key.as_ref(), if is_tunnelled { TUNNELLED } else { PROTOCOL })
    };
    let is = |name: &str| query.iter().any(|(one, value)| one == name && value == "true");
    let streams = 1 + ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|name| is(name)).count();
    let port = query.iter().find(|(name, _)| name == "ports").and_then(|(_, port)| port.parse::<u16>().ok());
    let command: Vec<String> =
        query.into_iter().filter(|(name, _)| name == "command").map(|(_, word)| word).collect();
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(io) = upgrade.await else { return };
        let io = TokioIo::new(io);
        match what {
            What::Attach => echo(io).await,
            What::Exec if is_spdy => drop(spdy::exec(io, streams, command).await),
            What::Exec => exec(io, command).await,
            What::Ports if is_spdy => drop(spdy::ports(io).await),
            What::Ports if is_tunnelled => drop(spdy::ports(within(io)).await),
            What::Ports => {
                if let Some(port) = port {
                    let _ = forward(io, port).await;
                }
            }
        }
    });
    answer
}

/// Says back what it hears.
async fn echo(io: impl AsyncRead + AsyncWrite) {
    let (mut from, mut to) = tokio::io::split(io);
    let _ = tokio::io::copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
}

/// The bytes within a WebSocket's messages, as if there were none.
fn within(io: impl AsyncRead + AsyncWrite + Send + 'static) -> DuplexStream {
    let (near, far) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move {
        let (mut from, mut to) = tokio::io::split(io);
        let (mut read, mut write) = tokio::io::split(far);
        let hears = async {
            while let Ok((kind, bytes)) = message(&mut from).await {
                if kind == GOODBYE || kind == BINARY && write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        let speaks = async {
            let mut chunk = vec![0; 16 << 10];
            while let Ok(length @ 1..) = read.read(&mut chunk).await {
                if frame(&mut to, BINARY, &chunk[..length]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = hears => {}
            () = speaks => {}
        }
    });
    near
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

fn agreed(key: Option<&HeaderValue>, protocol: &'static str) -> Response<Body> {
    let mut key = key.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
    key.extend_from_slice(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let accept = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &key);
    let accept = HeaderValue::from_str(&BASE64_STANDARD.encode(accept)).expect("base64 is a header's value");
    let mut response = agreed_to("websocket", "sec-websocket-protocol", protocol);
    response.headers_mut().insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// Agrees to change to a protocol, of which this header says the version.
fn agreed_to(protocol: &'static str, name: &'static str, version: &'static str) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(protocol));
    headers.insert(name, HeaderValue::from_static(version));
    response
}

fn refused(why: String) -> Response<Body> {
    let body = Full::new(Bytes::from(why)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// Refuses a session that the client wants in no version that is known here, as kubelets do.
fn unknown(known: &'static [&'static str], wanted: &[String]) -> Response<Body> {
    let mut response = refused(format!(
        "unable to upgrade: unable to negotiate protocol: client supports {wanted:?}, server accepts {known:?}"
    ));
    for version in known {
        let version = HeaderValue::from_static(version);
        response.headers_mut().append("x-accepted-stream-protocol-versions", version);
    }
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

/// Whoever has a command run.
struct Client {
    say: mpsc::Sender<Said>,
    input: Option<mpsc::Sender<Vec<u8>>>,
}

impl Client {
    /// It says something on a channel.
    async fn says(&mut self, channel: u8, bytes: &[u8]) {
        match channel {
            STDIN if !bytes.is_empty() => {
                if let Some(input) = &self.input {
                    let _ = input.send(bytes.to_vec()).await;
                }
            }
            RESIZE => SIZES.lock().push(String::from_utf8_lossy(bytes).trim_end().to_owned()),
            _ => {}
        }
    }

    /// It has no more input.
    fn ends(&mut self) {
        self.input = None;
    }
}

/// A command that runs for a client.
struct Running {
    killer: Arc<Mutex<Option<u32>>>,
    runs: JoinHandle<()>,
}

impl Running {
    /// Nobody is there any more: nothing runs on. What it says is to be read by nobody by then.
    async fn ends(self) {
        let kill = self.killer.lock().take();
        if let Some(pid) = kill {
            let _ = Command::new("kill").args(["-9", &format!("{pid}")]).status();
        }
        let _ = self.runs.await;
    }
}

fn start(command: Vec<String>) -> (Client, mpsc::Receiver<Said>, Running) {
    let (say, said) = mpsc::channel::<Said>(4);
    let (input, stdin) = mpsc::channel::<Vec<u8>>(4);
    let killer = Arc::new(Mutex::new(None));
    let runs = tokio::task::spawn_blocking({
        let (say, killer) = (say.clone(), killer.clone());
        move || run(&command, stdin, &say, &killer)
    });
    (Client { say, input: Some(input) }, said, Running { killer, runs })
}

async fn exec(io: impl AsyncRead + AsyncWrite, command: Vec<String>) {
    let (from, to) = tokio::io::split(io);
    let (client, said, running) = start(command);
    tokio::select! {
        () = speak(to, said) => {}
        () = hear(from, client) => {}
    }
    running.ends().await;
}

async fn hear(mut from: impl AsyncRead + Unpin, mut client: Client) {
    while let Ok((kind, message)) = message(&mut from).await {
        match (kind, message.split_first()) {
            (PING, _) => drop(client.say.send((PONG, message)).await),
            (GOODBYE, _) => return,
            (BINARY, Some((&CLOSE, [STDIN]))) => client.ends(),
            (BINARY, Some((&channel, bytes))) => client.says(channel, bytes).await,
            _ => {}
        }
    }
}

async fn speak(mut to: impl AsyncWrite + Unpin, mut said: mpsc::Receiver<Said>) {
    while let Some((kind, message)) = said.recv().await {
        if frame(&mut to, kind, &message).await.is_err() || kind == GOODBYE {
            break;
        }
    }
    let _ = to.shutdown().await;
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
