//! Plans that have found a mistake, cut down to what it takes.

use std::{collections::BTreeMap, time::Duration};

use super::{
    plan::{Act, Cut, Plan, Scaler, Spread, Want},
    scalers,
};

/// What each has found, and the plan.
pub fn all() -> Vec<(&'static str, Plan)> {
    vec![
        (
            "an eviction is taken back for a refusal of before another place was found, and the scheduler drops the old copy",
            refused_before(),
        ),
        (
            "a copy of what goes everywhere leaves a cluster that is back, and comes again",
            left_and_came_again(),
        ),
        (
            "an agent that restarts under a restored hub keeps what nobody wants running by its own notes",
            orphaned(),
        ),
        (
            "a hub that starts does not know autoscalers in its list, and takes the mark off what they scale",
            unmarked(),
        ),
        ("a time of a CronFederatedHPA comes again for a clock that is put back a little", struck_twice()),
    ]
}

fn plan(seed: u64, members: usize, wants: &[(&str, Want)], acts: Vec<(u64, Act)>) -> Plan {
    Plan {
        seed,
        members,
        failover: true,
        taint_policy: true,
        rewinds: false,
        services: false,
        keeps: Vec::new(),
        wants: wants.iter().map(|(name, want)| ((*name).to_owned(), want.clone())).collect(),
        acts: acts.into_iter().map(|(at, act)| (Duration::from_secs(at), act)).collect(),
    }
}

fn want(spread: Spread, replicas: i64, clusters: &[usize]) -> Want {
    Want {
        spread,
        replicas,
        clusters: clusters.iter().copied().collect(),
        startup: Duration::from_secs(3),
        purge: None,
        patience: None,
        fence: None,
        bulk: 0,
        scaler: None,
    }
}

fn scaled(scaler: Scaler, spread: Spread) -> Want {
    Want { scaler: Some(scaler), ..want(spread, 4, &[0, 1]) }
}

/// Two autoscalers on each member, and a hub that begins anew.
fn unmarked() -> Plan {
    let want = scaled(Scaler::Members { hpas: 2 }, Spread::Weighted);
    plan(28, 2, &[(scalers::MEMBERS, want)], vec![(10, Act::StopHub), (30, Act::StartHub)])
}

/// The clock is put back just after a full minute.
fn struck_twice() -> Plan {
    let want = scaled(Scaler::Cron { suspended: false }, Spread::Duplicated);
    plan(7, 2, &[(scalers::CRON, want)], vec![(61, Act::HubClock(-10))])
}

/// It is placed while one of its clusters is closed. That one opens while another is lost: as many as before.
fn left_and_came_again() -> Plan {
    let acts = vec![
        (10, Act::Taint(2)),
        (15, Act::Set("w0".to_owned(), want(Spread::Duplicated, 2, &[0, 1, 2]))),
        (40, Act::Cut(0, Cut::Partition)),
        (90, Act::Untaint(2)),
        (115, Act::Mend(0)),
    ];
    plan(818, 3, &[("w1", want(Spread::Single, 1, &[1]))], acts)
}

/// It is moved after the backup, and its agent stops. The restored hub wants it where it was.
fn orphaned() -> Plan {
    let fenced = Want { fence: Some(40), ..want(Spread::Single, 2, &[0, 1]) };
    let acts = vec![
        (5, Act::Backup),
        (10, Act::Taint(0)),
        (30, Act::Untaint(0)),
        (40, Act::Taint(1)),
        (60, Act::Untaint(1)),
        (70, Act::Taint(0)),
        (90, Act::StopAgent(1, true)),
        (91, Act::StopAgent(0, true)),
        (92, Act::Restore),
        (93, Act::StartAgent(1)),
        (94, Act::StartAgent(0)),
        (200, Act::Backup),
    ];
    plan(154, 2, &[("w0", fenced)], acts)
}

/// Driven from the only cluster that the hub knows of, it has nowhere to go. While the hub is down its policy gets
/// another cluster, and the taint goes.
fn refused_before() -> Plan {
    let want = |clusters: &[usize]| want(Spread::Single, 1, clusters);
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
        rewinds: false,
        services: false,
        keeps: Vec::new(),
        wants: BTreeMap::from([("w0".to_owned(), want(&[1]))]),
        acts: acts.into_iter().map(|(at, act)| (Duration::from_secs(at), act)).collect(),
    }
}
