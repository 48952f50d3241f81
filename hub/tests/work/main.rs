//! What the largest and most awkward bodies of the hub's own kinds cost, counted and not timed: what Karmada's definitions
//! and the hub's admission add to the work of the API server, which has a test like this of its own (`apiserver/tests/work`).
//!
//! `WORK_TIMES=1 cargo test -p karmada-hub --test work -- --nocapture` prints what each row took of the processor beside it.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

#[path = "../../apiserver/tests/work/counting.rs"]
mod counting;
mod rows;

use std::time::{Duration, SystemTime};

use karmada_env::{Env, ManualClock};
use karmada_hub::engine::embedded::Embedded;
use karmada_store::engine::memory::Memory;
use serde_json::json;

use counting::{Call, Server};
use rows::ROWS;

fn start() -> Server {
    let server = Server::run(async |shutdown| {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
        let embedded = Embedded::start(Memory::new(), &Env::seeded(clock, 7), shutdown).await.unwrap();
        (embedded.server().clone(), embedded)
    });
    for collection in [rows::CLUSTERS, rows::WORKS, rows::POLICIES] {
        server.serves(collection);
    }
    let namespace = json!({"metadata": {"name": "karmada-es-m1"}});
    assert_eq!(server.send(Call::json("POST", "/api/v1/namespaces", &namespace)).0, 201);
    server
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

#[test]
fn every_kind_with_rules_of_its_own_has_a_row() {
    for kind in [
        "Work",
        "ResourceBinding",
        "Cluster",
        "PropagationPolicy",
        "OverridePolicy",
        "ClusterTaintPolicy",
        "FederatedResourceQuota",
        "CronFederatedHPA",
        "FederatedHPA",
        "MultiClusterService",
        "MultiClusterIngress",
        "ResourceInterpreterCustomization",
        "template",
    ] {
        let of_it = |row: &counting::Row| row.name.split(':').next() == Some(kind);
        assert!(ROWS.iter().any(of_it), "{kind}");
    }
}
