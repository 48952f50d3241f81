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
mod counting;

use std::time::{Duration, SystemTime};

use axum::body::Body;
use http::Request;
use karmada_apiserver::{ApiServer, Registration, authn::UserInfo, open_store};
use karmada_env::{Env, ManualClock};
use karmada_store::engine::memory::Memory;
use serde_json::json;
use tower::ServiceExt as _;

use bodies::ROWS;
use counting::{Call, Server};

fn start() -> Server {
    let server = Server::run(async |shutdown| {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
        let env = Env::seeded(clock, 7);
        let store = open_store(Memory::new(), &env).unwrap();
        let api = ApiServer::new(store, env, Registration::default(), shutdown);
        api.start().await;
        (api, ())
    });
    define(&server);
    server
}

/// A custom resource with a field of each sort.
fn define(server: &Server) {
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
    assert_eq!(server.send(call).0, 201);
    server.serves(bodies::THINGS);
}

#[test]
fn work_grows_with_the_body_and_not_with_its_square() {
    let wrong = counting::growing(ROWS, start);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_largest_bodies_are_within_bounds() {
    let wrong = counting::too_much(ROWS, start);
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
    let server = start();
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
