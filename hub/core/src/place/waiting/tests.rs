use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::affinity::tests::cluster;

const S: Duration = Duration::from_secs(1);

fn fleet(rooms: &[(&str, i64)]) -> Arc<Fleet> {
    anew(&Fleet::default(), rooms)
}

/// The clusters with other room; those of the same room are the same.
fn anew(before: &Fleet, rooms: &[(&str, i64)]) -> Arc<Fleet> {
    let member = |(name, cpu): &(&str, i64)| {
        let taints = json!([{"key": "cordoned", "effect": "NoSchedule"}]);
        let spec = if name.starts_with("tainted") { json!({"taints": taints}) } else { json!({}) };
        let member = Member::new(Arc::new(cluster(name, json!({}), spec, status(*cpu))));
        let old = before.members().iter().find(|old| ***old == member);
        old.cloned().unwrap_or_else(|| Arc::new(member))
    };
    Arc::new(Fleet::new(rooms.iter().map(member)))
}

fn status(cpu: i64) -> Value {
    json!({
        "resourceSummary": {"allocatable": {"cpu": cpu.to_string(), "pods": "1000"}},
        "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}],
    })
}

fn spec(on: Value) -> ResourceBindingSpec {
    serde_json::from_value(json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "n"}, "replicas": 100,
        "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        "placement": {"clusterAffinity": {"clusterNames": on},
                      "replicaScheduling": {"replicaSchedulingType": "Divided",
                                            "replicaDivisionPreference": "Aggregated"}},
    }))
    .unwrap()
}

fn short(short: i64) -> PlaceError {
    PlaceError::Unschedulable { message: "x".into(), short }
}

#[test]
fn only_those_are_woken_that_have_gained_what_they_lack() {
    let mut waiting = Waiting::default();
    let mut now = fleet(&[("a", 10), ("b", 10)]);
    waiting.look(&now, S);
    for (key, on, lacks) in [("any", json!([]), 5), ("on b", json!(["b"]), 5), ("much", json!([]), 50)] {
        assert!(waiting.refused(&key, 1, &spec(on), &short(lacks), &now, S).is_some());
    }
    assert!(
        waiting.refused(&"quota", 1, &spec(json!([])), &PlaceError::Quota("q".into()), &now, S).is_some()
    );
    assert_eq!(
        waiting.refused(&"none", 1, &spec(json!([])), &PlaceError::NoFit(Default::default()), &now, S),
        None
    );
    let table: [(&[(&str, i64)], &[&str]); 7] = [
        (&[("a", 14), ("b", 10)], &[]),
        (&[("a", 10), ("b", 10)], &[]),
        (&[("a", 14), ("b", 11)], &["any"]),
        (&[("a", 14), ("b", 14)], &[]),
        (&[("a", 1), ("b", 15)], &["on b"]),
        (&[("a", 1), ("b", 68)], &[]),
        (&[("a", 1), ("b", 70)], &["much"]),
    ];
    for (rooms, want) in table {
        now = anew(&now, rooms);
        let woken: Vec<_> = waiting.look(&now, S).into_iter().map(|(key, _)| key).collect();
        assert_eq!(woken, want, "{rooms:?}");
    }
    let woken = waiting.may_use_more("quota".., |key| *key == "quota", false, S);
    assert_eq!(woken, [("quota", Duration::ZERO)]);
}

#[test]
fn what_is_lost_where_nothing_can_go_hides_no_room() {
    let mut waiting = Waiting::default();
    let mut now = fleet(&[("a", 10), ("b", 10), ("tainted", 500)]);
    waiting.look(&now, S);
    let (all, mut one) = (spec(json!([])), spec(json!([])));
    let placement = one.placement.as_mut().unwrap();
    placement.spread_constraints = serde_json::from_value(json!([
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1},
    ]))
    .unwrap();
    waiting.refused(&"all", 1, &all, &short(5), &now, S);
    waiting.refused(&"one of them", 1, &one, &short(5), &now, S);
    assert_eq!(waiting.placements.len(), 2);
    let table: [(&[(&str, i64)], &[&str]); 4] = [
        (&[("a", 10), ("b", 10), ("tainted", 900)], &[]),
        (&[("a", 10), ("b", 10), ("tainted", 0)], &[]),
        // Another one is chosen now; both together have no more room.
        (&[("a", 15), ("b", 5), ("tainted", 0)], &["one of them"]),
        (&[("a", 15), ("b", 10), ("tainted", 0)], &["all"]),
    ];
    for (rooms, want) in table {
        now = anew(&now, rooms);
        let woken: Vec<_> = waiting.look(&now, S).into_iter().map(|(key, _)| key).collect();
        assert_eq!(woken, want, "{rooms:?}");
    }
    waiting.end(&"all");
    waiting.end(&"one of them");
    assert!(waiting.placements.is_empty());
}

#[test]
fn of_many_clusters_that_grow_one_by_one_none_is_forgotten() {
    let mut gained = Gained::default();
    for n in 0..20 {
        gained.add(&n.to_string(), 2, false);
        gained.add("flaps", if n % 2 == 0 { -100 } else { 100 }, false);
    }
    assert_eq!((gained.all(), gained.by.len()), (40, KNOWN));
}

#[test]
fn what_an_attempt_has_seen_is_not_counted_twice() {
    let mut waiting = Waiting::default();
    let first = fleet(&[("a", 10)]);
    waiting.look(&first, S);
    // It was refused with less than was there at the last look.
    let less = fleet(&[("a", 5)]);
    waiting.refused(&"x", 1, &spec(json!([])), &short(3), &less, S);
    assert_eq!(waiting.look(&anew(&less, &[("a", 7)]), S), []);
    assert_eq!(waiting.look(&fleet(&[("a", 8)]), S).len(), 1);
    // What was there at the last look is there again.
    waiting.refused(&"x", 1, &spec(json!([])), &short(3), &less, S);
    assert_eq!(waiting.look(&fleet(&[("a", 8)]), S).len(), 1);
    // And with more.
    waiting.refused(&"x", 1, &spec(json!([])), &short(3), &fleet(&[("a", 20)]), S);
    assert_eq!(waiting.look(&fleet(&[("a", 22)]), S), []);
    assert_eq!(waiting.look(&fleet(&[("a", 23)]), S).len(), 1);
}

#[test]
fn who_is_woken_in_vain_is_woken_less_often() {
    let mut waiting = Waiting::default();
    let (small, large) = (fleet(&[("a", 1)]), fleet(&[("a", 2)]));
    waiting.look(&small, S);
    let (mut now, mut waits) = (S, Vec::new());
    for _ in 0..8 {
        let again = waiting.refused(&"x", 1, &spec(json!([])), &short(1), &small, now);
        assert_eq!(again, Some(300 * S));
        assert!(!waiting.is_its_turn(&"x", 1, now));
        let wait = waiting.look(&large, now)[0].1;
        assert_eq!(waiting.look(&fleet(&[("a", 3)]), now), [], "once is enough");
        assert!(waiting.is_its_turn(&"x", 1, now + wait) && !waiting.is_its_turn(&"x", 2, now + wait));
        waiting.look(&small, now);
        waits.push(wait.as_secs());
        now += wait;
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    waiting.refused(&"x", 2, &spec(json!([])), &short(1), &small, now);
    assert_eq!(waiting.look(&large, now)[0].1, Duration::ZERO, "what is asked for is another");
    assert!(waiting.is_its_turn(&"x", 2, now));
    waiting.end(&"x");
    assert!(waiting.is_empty() && waiting.look(&small, now).is_empty());
}

#[test]
fn many_clusters_at_once_wake_whom_they_could_help() {
    let names: Vec<String> = (0..20).map(|n| format!("m{n:02}")).collect();
    let with = |room: i64| {
        let rooms: Vec<_> = names.iter().map(|name| (name.as_str(), room)).collect();
        fleet(&rooms)
    };
    let mut waiting = Waiting::default();
    waiting.look(&with(10), S);
    for (key, lacks) in [("x", 30), ("y", 50)] {
        waiting.refused(&key, 1, &spec(json!([])), &short(lacks), &with(10), S);
    }
    let woken = |found: Vec<(&'static str, Duration)>| -> BTreeSet<_> {
        found.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(woken(waiting.look(&with(11), S)), BTreeSet::new());
    assert_eq!(woken(waiting.look(&with(12), S)), BTreeSet::from(["x"]));
    assert_eq!(woken(waiting.look(&with(13), S)), BTreeSet::from(["y"]));
}

#[test]
fn numbers_alone_are_no_news() {
    let table = [
        ("m1 has room for 2 (cpu), 30 are wanted.", "m1 has room for 12 (cpu), 31 are wanted.", true),
        ("m1 has room for 2 (cpu)", "m2 has room for 2 (cpu)", false),
        ("m1 has room for 2 (cpu)", "m1 has room for 2 (pods)", false),
        ("shop-1 has room for 2", "shop-2 has room for 2", false),
        ("requested sum 5, limit 4.", "requested sum 5500m, limit 4.", true),
        ("memory: requested sum 5Gi, limit 4.", "memory: requested sum 7.5Gi, limit 4.", true),
        ("0/3 clusters are available: 3 have taints.", "0/3 clusters are available: 2 have taints.", true),
        ("2 (cpu)", "2 [cpu)", false),
        ("1, 2", "1 2", false),
        ("more", "more 1", false),
        ("", "", true),
    ];
    for (a, b, want) in table {
        assert_eq!(says_the_same(a, b), want, "{a} | {b}");
        assert_eq!(says_the_same(b, a), want, "{b} | {a}");
    }
}
