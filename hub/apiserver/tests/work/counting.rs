//! What a request costs, counted: for the tests of work of any server.

use std::{any::Any, time::Duration};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use karmada_apiserver::{ApiServer, authn::UserInfo};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

pub(crate) const JSON: &str = "application/json";

/// kube-apiserver's limit for one request, less some room for what is around the awkward part.
const LIMIT: usize = (3 << 20) - (64 << 10);
/// The sizes by whose work growth is judged.
const SMALL: usize = LIMIT / 64;
const LARGE: usize = LIMIT / 16;
/// How much more work four times the body may be: 4 · log(4n) / log n, and a little.
const GROWTH: u64 = 6;
/// How much memory a body may take at a time, as a multiple of its size: the gate lets in as much as that allows.
const SPREAD: usize = 100;
/// How much work there may be for each byte and each doubling.
const PER_BYTE: u64 = 4;

/// A request.
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) media: &'static str,
    pub(crate) accept: &'static str,
    /// Who asks, and of which group.
    pub(crate) user: (&'static str, &'static str),
    pub(crate) body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(
        method: &'static str,
        path: impl Into<String>,
        media: &'static str,
        body: impl Into<Vec<u8>>,
    ) -> Self {
        let user = ("admin", "system:masters");
        Self { method, path: path.into(), media, accept: JSON, user, body: body.into() }
    }

    pub(crate) fn json(method: &'static str, path: impl Into<String>, body: &Value) -> Self {
        Self::new(method, path, JSON, body.to_string())
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path, JSON, Vec::new())
    }
}

/// Requests of which the last one is measured, for bodies of about so many bytes.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The answer; 0 where it depends on the size.
    pub(crate) code: u16,
    /// Whether it is also sent at the limit.
    pub(crate) whole: bool,
    pub(crate) make: fn(usize) -> Vec<Call>,
}

/// A row at all sizes.
pub(crate) const fn row(name: &'static str, code: u16, make: fn(usize) -> Vec<Call>) -> Row {
    Row { name, code, whole: true, make }
}

/// A row that only growth is judged of.
pub(crate) const fn growth(name: &'static str, code: u16, make: fn(usize) -> Vec<Call>) -> Row {
    Row { name, code, whole: false, make }
}

/// Elements of about `each` bytes that make up `bytes`.
pub(crate) fn list(bytes: usize, each: usize, element: impl Fn(usize) -> String) -> String {
    let mut out = String::with_capacity(bytes);
    for i in 0..bytes / each {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&element(i));
    }
    out
}

/// A number whose text stands before that of all smaller ones.
pub(crate) fn down(i: usize) -> usize {
    9_999_999 - i
}

/// A server on one thread, and what lives as long.
pub(crate) struct Server {
    pub(crate) runtime: Runtime,
    pub(crate) api: ApiServer,
    _kept: Box<dyn Any>,
    _shutdown: DropGuard,
}

impl Server {
    /// What `start` makes, which ends with its token.
    pub(crate) fn run<K: Any>(start: impl AsyncFnOnce(CancellationToken) -> (ApiServer, K)) -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let shutdown = CancellationToken::new();
        let (api, kept) = runtime.block_on(start(shutdown.clone()));
        Self { runtime, api, _kept: Box::new(kept), _shutdown: shutdown.drop_guard() }
    }

    pub(crate) async fn send_async(&self, call: Call) -> (u16, String) {
        let request = Request::builder().method(call.method).uri(&call.path).header("accept", call.accept);
        let mut request = request.header("content-type", call.media).body(Body::from(call.body)).unwrap();
        request.extensions_mut().insert(UserInfo::new(call.user.0, [call.user.1]));
        let response = self.api.service().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned())
    }

    pub(crate) fn send(&self, call: Call) -> (u16, String) {
        self.runtime.block_on(self.send_async(call))
    }

    /// Waits until a collection is served.
    pub(crate) fn serves(&self, path: &str) {
        self.runtime.block_on(async {
            while self.send_async(Call::get(path)).await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
}

/// What a row costs at a size.
fn cost(row: &Row, bytes: usize, start: fn() -> Server) -> u64 {
    let server = start();
    let mut calls = (row.make)(bytes);
    let last = calls.pop().unwrap();
    for call in calls {
        let path = call.path.clone();
        let (code, text) = server.send(call);
        assert!(code < 300, "{}: to prepare, {path}: {code} {text}", row.name);
    }
    let (sent, begun, steps) = (last.body.len(), processor(), karmada_meta::effort::spent());
    let mut answer = (0, String::new());
    let allocated = allocation_counter::measure(|| answer = server.send(last));
    let steps = karmada_meta::effort::spent() - steps;
    let most = (sent * SPREAD) as u64;
    assert!(
        !row.whole || bytes < LIMIT || allocated.bytes_max < most,
        "{}: {} bytes at once",
        row.name,
        allocated.bytes_max
    );
    let work = allocated.count_total + allocated.bytes_total / 64 + steps;
    if std::env::var_os("WORK_TIMES").is_some() {
        let took = processor().saturating_sub(begun) / 1_000_000;
        println!(
            "{:<34} {sent:>8} bytes {took:>7} ms, {:>4} MB at once, {work:>11} = {:>9} allocations {:>11} bytes \
             {steps:>9} steps: {} {}",
            row.name,
            allocated.bytes_max >> 20,
            allocated.count_total,
            allocated.bytes_total,
            answer.0,
            answer.1.chars().take(if answer.0 == row.code { 0 } else { 200 }).collect::<String>()
        );
    } else {
        // What is valid at that size still is more than one object may take in the store.
        let too_large = bytes == LIMIT && answer.0 == 413;
        assert!(
            too_large || row.code == 0 || answer.0 == row.code,
            "{}: {} {}",
            row.name,
            answer.0,
            answer.1
        );
    }
    work
}

/// Nanoseconds of the processor that this thread has had; 0 where the system does not tell.
pub(crate) fn processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

fn chosen(rows: &'static [Row]) -> impl Iterator<Item = &'static Row> {
    let only = std::env::var("WORK_ROW").unwrap_or_default();
    rows.iter().filter(move |row| row.name.contains(&only))
}

/// Rows whose work grows more than with the body.
pub(crate) fn growing(rows: &'static [Row], start: fn() -> Server) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in chosen(rows) {
        let (small, large) = (cost(row, SMALL, start), cost(row, LARGE, start));
        assert!(small > 0, "{}: something is counted", row.name);
        if large > GROWTH * small {
            wrong.push(format!("{}: {small} for {SMALL} bytes, {large} for {LARGE}", row.name));
        }
    }
    wrong
}

/// Rows whose work at the limit is too much.
pub(crate) fn too_much(rows: &'static [Row], start: fn() -> Server) -> Vec<String> {
    let most = PER_BYTE * LIMIT as u64 * u64::from(LIMIT.ilog2());
    let mut wrong = Vec::new();
    for row in chosen(rows).filter(|row| row.whole) {
        let work = cost(row, LIMIT, start);
        if work > most {
            wrong.push(format!("{}: {work} where {most} is the most", row.name));
        }
    }
    wrong
}
