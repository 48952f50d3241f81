//! Plans that have found a mistake, cut down to what it takes.

use std::{collections::BTreeMap, time::Duration};

use super::plan::{Act, Plan, Spread, Want};

/// What each has found, and the plan.
pub fn all() -> Vec<(&'static str, Plan)> {
    vec![(
        "an eviction is taken back for a refusal of before another place was found, and the scheduler drops the old copy",
        refused_before(),
    )]
}

/// Driven from the only cluster that the hub knows of, it has nowhere to go. While the hub is down its policy gets
/// another cluster, and the taint goes.
fn refused_before() -> Plan {
    let want = |clusters: &[usize]| Want {
        spread: Spread::Single,
        replicas: 1,
        clusters: clusters.iter().copied().collect(),
        startup: Duration::from_secs(3),
        purge: None,
        patience: None,
        fence: None,
    };
    let acts = [
        (10, Act::Taint(1)),
        (20, Act::StopHub),
        (30, Act::Set("w0".to_owned(), want(&[0, 1]))),
        (31, Act::Untaint(1)),
        (60, Act::StartHub),
    ];
    Plan {
        seed: 33,
        members: 2,
        failover: false,
        taint_policy: false,
        wants: BTreeMap::from([("w0".to_owned(), want(&[1]))]),
        acts: acts.into_iter().map(|(at, act)| (Duration::from_secs(at), act)).collect(),
    }
}
