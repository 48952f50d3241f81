//! What the audit log costs a create: counted, and the processor's time printed beside it (`WORK_TIMES`).

use std::{sync::Arc, time::Duration};

use karmada_apiserver::audit::{
    Audit, Mode, Output,
    log::{Log, Rotation},
    policy::Policy,
    queue::Limits,
};
use karmada_env::Env;
use serde_json::json;

use crate::{
    counting::{Call, processor},
    start,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CREATES: u64 = 500;

/// Allocations, their bytes and nanoseconds of one create, and how many bytes its events have.
fn cost(rule: Option<&str>) -> [u64; 4] {
    let server = start();
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("audit.log");
    let audit = rule.map(|rule| {
        let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rule}]");
        let rotation = Rotation { size: 1 << 30, backups: 0, days: 0 };
        let log = Log::file(&file, rotation, Env::system()).unwrap();
        let output = Output::new("log", Mode::Batch, log, Limits::default(), Env::system()).unwrap();
        let policy = Policy::parse(policy.as_bytes()).unwrap();
        let audit = Arc::new(Audit::new(policy, vec![output], Env::system()));
        server.api.audit_by(audit.clone());
        audit
    });
    let create = |i: u64| {
        let data: serde_json::Map<_, _> =
            (0..20).map(|i| (format!("key-{i}"), json!("a value of some forty bytes, no more"))).collect();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": format!("m-{i}"), "labels": {"app": "shop", "tier": "front"}}});
        assert_eq!(server.send(Call::json("POST", MAPS, &map)).0, 201);
    };
    (0..100).for_each(create);
    let begun = processor();
    let counted = allocation_counter::measure(|| (100..100 + CREATES).for_each(create));
    let took = processor().saturating_sub(begun);
    if let Some(audit) = audit {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(audit.close(Duration::from_secs(60))).unwrap();
    }
    let told = std::fs::metadata(&file).map_or(0, |file| file.len()) / (100 + CREATES);
    [counted.count_total / CREATES, counted.bytes_total / CREATES, took / CREATES, told]
}

#[test]
fn metadata_of_a_create_cost_a_tenth_of_it_at_most() {
    let without = cost(None);
    for (rule, percent) in
        [("{level: Metadata, omitStages: [RequestReceived]}", 10), ("{level: Metadata}", 10)]
    {
        let with = cost(Some(rule));
        if std::env::var_os("WORK_TIMES").is_some() {
            println!("{rule}: allocations, bytes, ns, bytes told: {with:?}, without {without:?}");
        }
        for (with, without) in with.into_iter().zip(without).take(2) {
            assert!(with * 100 <= without * (100 + percent), "{rule}: {with} where {without} were enough");
        }
    }
}
