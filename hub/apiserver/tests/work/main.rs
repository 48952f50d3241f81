//! What the largest and most awkward bodies cost, counted and not timed: every way in is fed some that once took time in
//! the square of their size, or would in a careless implementation.
//!
//! ```text
//!   a row: body(bytes) ─► the whole server, on one thread ─► work = allocations, their bytes / 64, steps
//!                                                            (steps: comparisons, shifts; karmada_meta::effort)
//! ```
//!
//! Two things are held of each row: four times the body is little more than four times the work, where a square would be
//! sixteen times; and the work of a body at the limit is within a constant times n·log n.
//!
//! `WORK_TIMES=1 cargo test -p karmada-apiserver --test work -- --nocapture` prints what each row took of the processor
//! beside it, which is how rows are found.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

mod audit;
mod bodies;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use karmada_apiserver::{
    ApiServer, Registration, admission::AdmitAll, authn::UserInfo, authz::Authorization, open_store,
};
use karmada_env::{Env, ManualClock};
use karmada_store::engine::memory::Memory;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use bodies::{Call, ROWS, Row};

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

struct Server {
    runtime: Runtime,
    api: ApiServer,
    _shutdown: tokio_util::sync::DropGuard,
}

impl Server {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
        let env = Env::seeded(clock, 7);
        let shutdown = CancellationToken::new();
        let api = runtime.block_on(async {
            let registration = Registration {
                kinds: Vec::new(),
                crds: Vec::new(),
                admission: Arc::new(AdmitAll),
                authorizer: Authorization::Roles,
                derived: Vec::new(),
            };
            let store = open_store(Memory::new(), &env).unwrap();
            let api = ApiServer::new(store, env, registration, shutdown.clone());
            api.start().await;
            api
        });
        let server = Self { runtime, api, _shutdown: shutdown.drop_guard() };
        server.define();
        server
    }

    /// A custom resource with a field of each sort.
    fn define(&self) {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "maps": {"type": "object", "additionalProperties": {"type": "object",
                "additionalProperties": {"type": "integer"}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "n": {"type": "integer"}}}},
            "atomic": {"type": "array", "items": {"type": "integer"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}}});
        let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
        let call = Call::json("POST", bodies::DEFINITIONS, &definition);
        assert_eq!(self.send(call).0, 201);
        self.runtime.block_on(async {
            while self.send_async(Call::get(bodies::THINGS)).await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }

    async fn send_async(&self, call: Call) -> (u16, String) {
        let request = Request::builder().method(call.method).uri(&call.path).header("accept", call.accept);
        let mut request = request.header("content-type", call.media).body(Body::from(call.body)).unwrap();
        request.extensions_mut().insert(UserInfo::new("admin", ["system:masters"]));
        let response = self.api.service().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned())
    }

    fn send(&self, call: Call) -> (u16, String) {
        self.runtime.block_on(self.send_async(call))
    }
}

/// What a row costs at a size.
fn cost(row: &Row, bytes: usize) -> u64 {
    let server = Server::start();
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
fn processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

fn chosen() -> impl Iterator<Item = &'static Row> {
    let only = std::env::var("WORK_ROW").unwrap_or_default();
    ROWS.iter().filter(move |row| row.name.contains(&only))
}

#[test]
fn work_grows_with_the_body_and_not_with_its_square() {
    let mut wrong = Vec::new();
    for row in chosen() {
        let (small, large) = (cost(row, SMALL), cost(row, LARGE));
        assert!(small > 0, "{}: something is counted", row.name);
        if large > GROWTH * small {
            wrong.push(format!("{}: {small} for {SMALL} bytes, {large} for {LARGE}", row.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_largest_bodies_are_within_bounds() {
    let most = PER_BYTE * LIMIT as u64 * u64::from(LIMIT.ilog2());
    let mut wrong = Vec::new();
    for row in chosen().filter(|row| row.whole) {
        let work = cost(row, LIMIT);
        if work > most {
            wrong.push(format!("{}: {work} where {most} is the most", row.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Nobody has a turn yet when this is read, and some of it not even a name.
#[test]
fn what_is_too_much_is_only_looked_at() {
    const LONG: usize = 60 << 10;
    /// Allocations beside those of a short request: of a refusal, and of what is read of a selector before it is too much.
    const FEW: u64 = 100;
    const VALUES: u64 = 6_000;
    let times = |text: &str| text.repeat(LONG / text.len());
    let asked = |query: String| format!("{}?{query}", bodies::MAPS);
    let values = |end: &str| (0..LONG / 6).map(|n| format!("{n:04}{end}")).collect::<Vec<_>>().join(",");
    let server = Server::start();
    let cost = |path: &str, accept: &str, known: bool| {
        let mut request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        if known {
            request.extensions_mut().insert(UserInfo::new("admin", ["system:masters"]));
        }
        let mut code = 0;
        let cost = allocation_counter::measure(|| {
            let response = server.runtime.block_on(server.api.service().oneshot(request)).unwrap();
            code = response.status().as_u16();
        });
        (code, cost)
    };
    let json = "application/json";
    let (types, parameters) = (times("a/b;q=0.1,"), format!("a/b{}", times(";c=d")));
    let forms = [
        ("pairs", asked(times("a&")), json, 400, FEW),
        ("escaped pairs", asked(times("%61=%62&")), json, 400, FEW),
        ("fields", asked(format!("fieldSelector={}", times("ab=,cd=,"))), json, 400, FEW),
        ("labels", asked(format!("labelSelector={}", times("!a,"))), json, 400, VALUES),
        ("values", asked(format!("labelSelector=k+notin+({})", values("x"))), json, 400, VALUES),
        ("wrong values", asked(format!("labelSelector=k+notin+({})", values("_"))), json, 400, VALUES),
        ("parentheses", asked(format!("labelSelector=k+in+{}", times("("))), json, 400, FEW),
        ("media types", asked(String::new()), types.as_str(), 400, FEW),
        ("parameters", asked(String::new()), parameters.as_str(), 400, FEW),
        ("parts", format!("{}/a{}", bodies::MAPS, times("/x")), json, 404, FEW),
    ];
    for known in [false, true] {
        // What is made once is made.
        cost(bodies::MAPS, json, known);
        let (_, plain) = cost(bodies::MAPS, json, known);
        for (what, path, accept, code, most) in &forms {
            let (code, most) = if known { (*code, *most) } else { (401, FEW) };
            let (answered, cost) = cost(path, accept, known);
            assert_eq!(answered, code, "{what}");
            let (count, bytes) = (cost.count_total, cost.bytes_total);
            assert!(count < plain.count_total + most, "{what}, {code}: {count} allocations");
            assert!(bytes < plain.bytes_total + 12 * LONG as u64, "{what}, {code}: {bytes} bytes");
        }
    }
}

#[test]
fn every_way_in_has_a_row() {
    let has = |what: &str| ROWS.iter().any(|row| row.name.contains(what));
    for way in [
        "create",
        "update",
        "json patch",
        "merge patch",
        "strategic",
        "apply",
        "definition",
        "deletion",
        "selector",
        "protobuf",
        "yaml",
        "table",
        "review",
        "scale",
        "managed fields",
    ] {
        assert!(has(way), "{way}");
    }
}
