use karmada_api::cluster::Cluster;
use proptest::{
    prelude::{Just, prop, prop_assert, prop_assert_eq, prop_oneof, proptest},
    strategy::Strategy as Prop,
};
use serde_json::{Value, json};

use super::*;
use crate::affinity::tests::cluster;

fn apis() -> Value {
    json!([{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}])
}

fn enabled() -> Value {
    json!({"apiEnablements": apis()})
}

/// A cluster with that many cores and as many places for pods.
fn roomy(name: &str, spec: Value, cores: i64) -> Cluster {
    let cores = cores.to_string();
    let status =
        json!({"apiEnablements": apis(), "resourceSummary": {"allocatable": {"cpu": cores, "pods": cores}}});
    cluster(name, json!({}), spec, status)
}

fn clusters() -> Vec<Cluster> {
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}], "region": "eu"});
    vec![
        cluster("b", json!({"tier": "edge"}), json!({"region": "eu"}), enabled()),
        cluster("a", json!({}), json!({}), enabled()),
        cluster("old", json!({"tier": "edge"}), json!({}), json!({})),
        cluster("tainted", json!({}), taint, enabled()),
    ]
}

fn spec(placement: Value, extra: Value) -> ResourceBindingSpec {
    let mut spec = json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "n"},
        "replicas": 3,
        "placement": placement,
    });
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

type Placed = Result<Vec<(String, i32)>, String>;

fn placed_on(fleet: &Fleet, placement: Value, extra: Value) -> Placed {
    let spec = spec(placement, extra);
    let decision = schedule(&Request::new(&spec, fleet)).map_err(|e| format!("{}: {e}", e.reason()))?;
    Ok(decision.clusters.into_iter().map(|target| (target.name, target.replicas)).collect())
}

fn placed(placement: Value, extra: Value) -> Placed {
    placed_on(&Fleet::of(clusters()), placement, extra)
}

fn ok(list: &[(&str, i32)]) -> Placed {
    Ok(list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect())
}

fn divided(preference: Value) -> Value {
    let mut scheduling = json!({"replicaSchedulingType": "Divided"});
    for (key, value) in preference.as_object().unwrap() {
        scheduling[key] = value.clone();
    }
    json!({"replicaScheduling": scheduling})
}

fn dynamic() -> Value {
    divided(
        json!({"replicaDivisionPreference": "Weighted", "weightPreference": {"dynamicWeight": "AvailableReplicas"}}),
    )
}

fn aggregated() -> Value {
    divided(json!({"replicaDivisionPreference": "Aggregated"}))
}

fn with(mut placement: Value, key: &str, value: Value) -> Value {
    placement[key] = value;
    placement
}

fn core() -> Value {
    json!({"resourceRequest": {"cpu": "1"}})
}

#[test]
fn placements_are_followed() {
    let weights = divided(json!({"replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": [
            {"targetCluster": {"clusterNames": ["a"]}, "weight": 1},
            {"targetCluster": {"clusterNames": ["b"]}, "weight": 2}]}}));
    let tolerant = json!({"clusterTolerations": [{"key": "k", "operator": "Exists"}]});
    let table = [
        ("everywhere it can run", json!({}), json!({}), ok(&[("a", 3), ("b", 3)])),
        ("tolerated", tolerant, json!({}), ok(&[("a", 3), ("b", 3), ("tainted", 3)])),
        ("it may stay, and where it is comes first", json!({}), json!({"clusters": [{"name": "tainted"}, {"name": "old"}]}),
            ok(&[("old", 3), ("tainted", 3), ("a", 3), ("b", 3)])),
        ("excluded", json!({"clusterAffinity": {"exclude": ["a"]}}), json!({}), ok(&[("b", 3)])),
        ("by labels", json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "edge"}}}}), json!({}), ok(&[("b", 3)])),
        ("divided", weights.clone(), json!({}), ok(&[("a", 1), ("b", 2)])),
        ("too few to divide", weights.clone(), json!({"replicas": 1}), ok(&[("b", 1)])),
        ("nothing to divide", weights.clone(), json!({"replicas": 0}), ok(&[("a", 0), ("b", 0)])),
        ("a workload without replicas", weights, json!({"replicas": 0, "replicaRequirements": {}}), ok(&[])),
        ("evicted", json!({}), json!({"gracefulEvictionTasks": [{"fromCluster": "a", "reason": "R", "producer": "P"}]}), ok(&[("b", 3)])),
        ("all of them", json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1}]}), json!({}), ok(&[("a", 3), ("b", 3)])),
        ("at most one", json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}), json!({}), ok(&[("a", 3)])),
        ("at most one, where it is", json!({"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]}),
            json!({"clusters": [{"name": "b", "replicas": 3}]}), ok(&[("b", 3)])),
        ("too few clusters", json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 3}]}), json!({}),
            Err("SchedulerError: failed to select clusters: the number of feasible clusters is less than spreadConstraint.MinGroups: 2 of 3".into())),
        ("of several parts, everywhere", dynamic(), json!({"components": [{"name": "x", "replicas": 1}, {"name": "y", "replicas": 2}]}),
            ok(&[("a", 0), ("b", 0)])),
        ("of several parts, where it runs", dynamic(), json!({"clusters": [{"name": "b", "replicas": 3}],
            "components": [{"name": "x", "replicas": 1}, {"name": "y", "replicas": 2}]}), ok(&[("b", 0)])),
    ];
    for (message, placement, extra, want) in table {
        assert_eq!(placed(placement, extra), want, "{message}");
    }
}

#[test]
fn why_nothing_fits_is_said_in_karmadas_words() {
    let nowhere = json!({"clusterAffinity": {"clusterNames": ["nowhere"]}});
    let fleet = Fleet::of(["member1", "member2"].map(|name| cluster(name, json!({}), json!({}), enabled())));
    let binding = spec(nowhere, json!({}));
    let error = schedule(&Request::new(&binding, &fleet)).unwrap_err();
    let message =
        "0/2 clusters are available: 2 cluster(s) did not match the placement cluster affinity constraint.";
    assert_eq!(error.to_string(), message);
    assert!(error.empties());
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let condition = condition(Err(&error), now);
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("NoClusterFit", message));

    let several = json!({"clusterAffinity": {"clusterNames": ["old", "tainted", "nowhere"]}});
    assert_eq!(
        placed(several, json!({})),
        Err("NoClusterFit: 0/4 clusters are available: 1 cluster(s) did not have the API resource, \
             1 cluster(s) had untolerated taint {k:NoSchedule}, \
             2 cluster(s) did not match the placement cluster affinity constraint."
            .into())
    );
    let going = || -> Cluster {
        serde_json::from_value(json!({"spec": {"syncMode": "Pull"}, "status": enabled(),
            "metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        .unwrap()
    };
    let nowhere = "1 cluster(s) did not match the placement cluster affinity constraint";
    let here = cluster("here", json!({}), json!({}), enabled());
    for (what, clusters, expected) in [
        ("none", vec![], "0/0 clusters are available: no cluster exists.".to_owned()),
        ("one that goes", vec![going()], "0/1 clusters are available: no cluster exists.".to_owned()),
        ("its going is no reason", vec![going(), here], format!("0/2 clusters are available: {nowhere}.")),
    ] {
        let none = schedule(&Request::new(&binding, &Fleet::of(clusters))).unwrap_err();
        assert_eq!(
            (none.reason(), none.empties(), none.to_string()),
            ("NoClusterFit", true, expected),
            "{what}"
        );
    }
    let by_zone = json!({"spreadConstraints": [{"spreadByField": "zone", "minGroups": 1, "maxGroups": 1}]});
    let error = placed_on(&fleet, by_zone, json!({})).unwrap_err();
    assert_eq!(error, "NoClusterFit: 0/2 clusters are available: 2 cluster(s) did not have zones property.");
}

#[test]
fn groups_are_tried_in_order_from_the_one_taken() {
    let groups = json!({"clusterAffinities": [
        {"affinityName": "first", "clusterNames": ["nowhere"]},
        {"affinityName": "second", "clusterNames": ["a"]},
        {"affinityName": "third", "clusterNames": ["b"]},
    ]});
    let (binding, fleet) = (spec(groups, json!({})), Fleet::of(clusters()));
    let from = |observed_affinity| {
        schedule(&Request { observed_affinity, ..Request::new(&binding, &fleet) })
            .map(|decision| decision.affinity)
    };
    assert_eq!(from("").as_deref(), Ok("second"));
    assert_eq!(from("third").as_deref(), Ok("third"), "it does not go back");
    assert_eq!(from("unheard of").as_deref(), Ok("second"));
    let mut anew = binding.clone();
    anew.reschedule_triggered_at = Some("2026-01-01T00:00:05Z".parse().unwrap());
    let since = |last: &str| {
        let request = Request {
            observed_affinity: "third",
            last_scheduled: Some(last.parse().unwrap()),
            ..Request::new(&anew, &fleet)
        };
        schedule(&request).unwrap().affinity
    };
    assert_eq!(since("2026-01-01T00:00:01Z"), "second", "asked for since, it begins anew");
    assert_eq!(since("2026-01-01T00:00:06Z"), "third", "that was answered");

    let fleet = Fleet::of([roomy("a", json!({}), 2), roomy("b", json!({}), 9)]);
    let groups = json!([{"affinityName": "small", "clusterNames": ["a"]}, {"affinityName": "large", "clusterNames": ["b"]}]);
    let binding = spec(with(dynamic(), "clusterAffinities", groups), json!({"replicaRequirements": core()}));
    let decision = schedule(&Request::new(&binding, &fleet)).unwrap();
    assert_eq!(decision.affinity, "large", "one without room is no group for it");
}

#[test]
fn replicas_go_where_there_is_room() {
    let fleet = Fleet::of([roomy("a", json!({}), 2), roomy("b", json!({}), 4), roomy("c", json!({}), 12)]);
    let needs = |replicas: i32| json!({"replicas": replicas, "replicaRequirements": core()});
    let there = |replicas: i32, list: &[(&str, i32)]| {
        let targets: Vec<_> = list.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect();
        with(needs(replicas), "clusters", json!(targets))
    };
    let one_cluster =
        with(aggregated(), "spreadConstraints", json!([{"spreadByField": "cluster", "maxGroups": 1}]));
    let table = [
        ("by room", dynamic(), needs(9), ok(&[("a", 1), ("b", 2), ("c", 6)])),
        ("as few as have room", aggregated(), needs(9), ok(&[("c", 9)])),
        ("as few as have room, two", aggregated(), needs(14), ok(&[("b", 4), ("c", 10)])),
        ("where it is first", aggregated(), there(3, &[("a", 1)]), ok(&[("a", 3)])),
        ("growing leaves what runs", dynamic(), there(6, &[("a", 2), ("b", 2)]), ok(&[("a", 2), ("b", 3), ("c", 1)])),
        ("shrinking is in proportion", dynamic(), there(3, &[("a", 2), ("b", 4)]), ok(&[("a", 1), ("b", 2)])),
        ("a cluster that is gone", dynamic(), there(4, &[("a", 1), ("gone", 3)]), ok(&[("a", 1), ("b", 1), ("c", 2)])),
        ("one roomy cluster", one_cluster.clone(), needs(10), ok(&[("c", 10)])),
        ("one, but none is so roomy", one_cluster, needs(13), Err("SchedulerError: failed to select clusters: \
            no enough resource when selecting 1 clusters: the roomiest 1 of 3 have room for 12 of 13 replicas".into())),
        ("too many", dynamic(), needs(30), Err("Unschedulable: failed to assign replicas: failed to scale up: \
            Clusters available replicas 18 are not enough to schedule. 30 are wanted: c has room for 12 (pods), \
            b has room for 4 (pods), a has room for 2 (pods).".into())),
        ("all of them everywhere, the roomiest first", json!({}), needs(1), ok(&[("c", 1), ("b", 1), ("a", 1)])),
    ];
    for (message, placement, extra, want) in table {
        assert_eq!(placed_on(&fleet, placement, extra), want, "{message}");
    }
    let silent = Fleet::of([cluster("a", json!({}), json!({}), enabled())]);
    let error = placed_on(&silent, dynamic(), needs(1)).unwrap_err();
    assert!(error.ends_with("1 are wanted: a has room for 0 (resources not reported)."), "{error}");
}

#[test]
fn a_user_can_ask_for_a_division_from_scratch() {
    let fleet = Fleet::of([roomy("a", json!({}), 0), roomy("b", json!({}), 6)]);
    let at = |text: &str| {
        json!({"replicas": 6, "rescheduleTriggeredAt": text, "replicaRequirements": core(),
        "clusters": [{"name": "a", "replicas": 6}]})
    };
    let scheduled: Time = "2026-01-01T00:00:00Z".parse().unwrap();
    for (text, want) in
        [("2026-01-01T00:00:01Z", vec![("a", 3), ("b", 3)]), ("2025-12-31T00:00:00Z", vec![("a", 6)])]
    {
        let binding = spec(dynamic(), at(text));
        let request = Request { last_scheduled: Some(scheduled), ..Request::new(&binding, &fleet) };
        let decision = schedule(&request).unwrap();
        let got: Vec<_> = decision.clusters.iter().map(|t| (t.name.as_str(), t.replicas)).collect();
        assert_eq!(got, want, "{text}");
    }
}

#[test]
fn overflow_fills_in_order_and_empties_from_the_last() {
    let fleet =
        Fleet::of([roomy("house", json!({}), 4), roomy("near", json!({}), 3), roomy("cloud", json!({}), 50)]);
    let groups = json!([{"affinityName": "own", "clusterNames": ["house"], "overflowAffinities": [
        {"affinityName": "near", "clusterNames": ["near", "house"]},
        {"affinityName": "cloud", "clusterNames": ["cloud"]},
    ]}]);
    let mut now: Vec<(String, i32)> = Vec::new();
    let mut free = vec![("house", 4), ("near", 3), ("cloud", 50)];
    let table: [(i32, &[(&str, i32)]); 5] = [
        (3, &[("house", 3)]),
        (9, &[("house", 4), ("near", 3), ("cloud", 2)]),
        (8, &[("house", 4), ("near", 3), ("cloud", 1)]),
        (5, &[("house", 4), ("near", 1)]),
        (2, &[("house", 2)]),
    ];
    for (replicas, want) in table {
        let fleet = Fleet::of(free.iter().map(|(name, room)| roomy(name, json!({}), *room)));
        let clusters: Vec<_> = now.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect();
        let extra = json!({"replicas": replicas, "replicaRequirements": core(), "clusters": clusters});
        let got = placed_on(&fleet, with(aggregated(), "clusterAffinities", groups.clone()), extra);
        assert_eq!(got, ok(want), "{replicas}");
        now = got.unwrap();
        free = [("house", 4), ("near", 3), ("cloud", 50)]
            .map(|(name, room)| {
                (name, room - i64::from(now.iter().find(|(n, _)| n == name).map_or(0, |(_, n)| *n)))
            })
            .to_vec();
    }
    for (message, extra) in [
        ("no replicas", json!({"replicas": 0})),
        (
            "several kinds of replicas",
            json!({"replicas": 0, "components": [
            {"name": "x", "replicas": 1, "replicaRequirements": core()}, {"name": "y", "replicas": 1}]}),
        ),
    ] {
        let got = placed_on(&fleet, with(aggregated(), "clusterAffinities", groups.clone()), extra);
        assert_eq!(got, ok(&[("house", 0)]), "{message}: nothing overflows");
    }
    let too_many = json!({"replicas": 60, "replicaRequirements": core()});
    let error = placed_on(&fleet, with(dynamic(), "clusterAffinities", groups), too_many).unwrap_err();
    assert!(error.contains("60 are wanted"), "{error}");
}

#[test]
fn objects_of_a_group_go_together_or_apart() {
    let fleet = Fleet::of(["a", "b", "c"].map(|name| cluster(name, json!({}), json!({}), enabled())));
    let on = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let (on_ab, on_b, nowhere) = (on(&["a", "b"]), on(&["b"]), on(&[]));
    let peer = |name, affinity_group, anti_affinity_group, clusters| Peer {
        name,
        affinity_group,
        anti_affinity_group,
        clusters,
    };
    let peers = [
        peer("web", "app=shop", "", &on_ab),
        peer("cart", "app=shop", "ha=1", &on_b),
        peer("new", "app=shop", "", &nowhere),
        peer("other", "app=bank", "ha=2", &on_ab),
    ];
    let table: [(&str, Value, Value, Result<&[&str], &str>); 7] = [
        ("with all of its group", json!({"affinityGroup": "app=shop"}), json!([]), Ok(&["b"])),
        ("the first of a group", json!({"affinityGroup": "app=new"}), json!([]), Ok(&["a", "b", "c"])),
        (
            "where it is it stays",
            json!({"affinityGroup": "app=shop"}),
            json!([{"name": "c"}]),
            Ok(&["c", "b"]),
        ),
        ("apart", json!({"antiAffinityGroup": "ha=1"}), json!([]), Ok(&["a", "c"])),
        ("apart from everyone of it", json!({"antiAffinityGroup": "ha=2"}), json!([]), Ok(&["c"])),
        ("both", json!({"affinityGroup": "app=bank", "antiAffinityGroup": "ha=1"}), json!([]), Ok(&["a"])),
        (
            "against each other",
            json!({"affinityGroup": "app=shop", "antiAffinityGroup": "ha=1"}),
            json!([]),
            Err(
                "0/3 clusters are available: 1 cluster already has workload with the same anti-affinity group, \
                 2 ResourceBinding with the same affinity group does not target this cluster.",
            ),
        ),
    ];
    for (message, groups, clusters, want) in table {
        let binding = spec(json!({}), json!({"workloadAffinityGroups": groups, "clusters": clusters}));
        let got = schedule(&Request { peers: &peers, ..Request::new(&binding, &fleet) });
        let got = got
            .map(|d| d.clusters.into_iter().map(|t| t.name).collect::<Vec<_>>())
            .map_err(|e| e.to_string());
        let want =
            want.map(|names| names.iter().map(|name| (*name).to_owned()).collect()).map_err(str::to_owned);
        assert_eq!(got, want, "{message}");
    }
}

#[test]
fn an_empty_workload_stays_if_wanted() {
    let (binding, fleet) =
        (spec(json!({}), json!({"replicas": 0, "replicaRequirements": {}})), Fleet::of(clusters()));
    assert_eq!(schedule(&Request::new(&binding, &fleet)).unwrap().clusters, []);
    let kept = schedule(&Request { empty_workloads: true, ..Request::new(&binding, &fleet) }).unwrap();
    assert_eq!(kept.clusters.len(), 2);
    let one = spec(divided(json!({})), json!({"replicas": 1}));
    let kept = schedule(&Request { empty_workloads: true, ..Request::new(&one, &fleet) }).unwrap();
    assert_eq!(kept.clusters, [TargetCluster::new("a", 1), TargetCluster::new("b", 0)]);
}

#[test]
fn components_that_go_to_one_cluster_need_room_there() {
    let fleet = Fleet::of([roomy("a", json!({}), 3), roomy("b", json!({}), 9)]);
    let components = json!([{"name": "x", "replicas": 1, "replicaRequirements": core()},
                            {"name": "y", "replicas": 3, "replicaRequirements": core()}]);
    let alone = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]});
    let extra = json!({"replicas": 0, "components": components});
    assert_eq!(
        placed_on(&fleet, alone.clone(), extra),
        ok(&[("b", 0)]),
        "the roomier, though b comes after a"
    );
    let of = |replicas: i64| {
        json!({"replicas": 0, "components": [
            {"name": "x", "replicas": replicas, "replicaRequirements": core()}]})
    };
    assert_eq!(placed_on(&fleet, alone.clone(), of(9)), ok(&[("b", 0)]), "one component is a set, too");
    let error = placed_on(&fleet, alone.clone(), of(10)).unwrap_err();
    assert!(error.contains("no room for all components together"), "{error}");
    let stays = with(of(10), "clusters", json!([{"name": "a", "replicas": 0}]));
    assert_eq!(placed_on(&fleet, alone, stays), ok(&[("a", 0)]), "what is there stays");
}

#[test]
fn components_are_given_to_their_cluster_by_name_and_grow_where_there_is_room() {
    let fleet = Fleet::of([roomy("a", json!({}), 3), roomy("b", json!({}), 9)]);
    let alone = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]});
    let parts = |x: i32, y: i32| {
        json!([{"name": "x", "replicas": x, "replicaRequirements": core()},
               {"name": "y", "replicas": y, "replicaRequirements": core()}])
    };
    let given = |x: i32, y: i32| json!([{"name": "x", "replicas": x}, {"name": "y", "replicas": y}]);
    let decide = |placement: &Value, parts: Value, clusters: Value| {
        let spec = spec(placement.clone(), json!({"replicas": 0, "components": parts, "clusters": clusters}));
        let decision = schedule(&Request::new(&spec, &fleet)).map_err(|e| format!("{}: {e}", e.reason()));
        decision.map(|decision| json!(decision.clusters))
    };
    let on_a = |parts: Value| json!([{"name": "a", "components": parts}]);
    let anywhere = json!({"clusterAffinity": {"clusterNames": ["a"]}});
    let one = json!([{"name": "x", "replicas": 2}]);
    for (what, placement, parts, clusters, expected) in [
        ("at first", &alone, parts(1, 2), json!([]), Ok(json!([{"name": "b", "components": given(1, 2)}]))),
        ("it stays, and grows into the room that is left", &alone, parts(1, 4), on_a(given(1, 1)), Ok(on_a(given(1, 4)))),
        ("it shrinks", &alone, parts(1, 0), on_a(given(9, 9)), Ok(on_a(given(1, 0)))),
        (
            "no room for what is added, though another cluster has it for all",
            &alone,
            parts(1, 5),
            on_a(given(1, 1)),
            Err("Unschedulable: failed to assign replicas: insufficient resources for component scale: a has no room for \
                 4 of y more (pods)".to_owned()),
        ),
        ("given by an older hub", &alone, parts(1, 5), json!([{"name": "a"}]), Ok(on_a(given(1, 5)))),
        ("not as a whole", &anywhere, parts(1, 2), json!([]), Ok(json!([{"name": "a"}]))),
        ("one part", &alone, one, json!([]), Ok(json!([{"name": "b"}]))),
    ] {
        assert_eq!(decide(placement, parts, clusters), expected, "{what}");
    }
}

#[test]
fn every_cluster_gets_a_verdict() {
    let placement = json!({
        "clusterAffinities": [{"affinityName": "edge", "fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}}],
        "spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}],
    });
    let mut fleet = clusters();
    fleet.push(cluster("second", json!({}), json!({"region": "eu"}), enabled()));
    fleet.push(cluster("silent", json!({}), json!({"region": "eu"}), json!({})));
    let (binding, fleet) = (spec(placement, json!({})), Fleet::of(fleet));
    let explained = explain(&Request::new(&binding, &fleet));
    let lines: Vec<_> = explained.verdicts.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "a: no, its region is \"\" (spec.placement.clusterAffinities[0].fieldSelector)",
            "b: 3 replicas",
            "old: no, its region is \"\" (spec.placement.clusterAffinities[0].fieldSelector)",
            "second: not needed, room for 0 more (limited by resources not reported); those taken come first: b (spec.placement.spreadConstraints)",
            "silent: no, it has reported no APIs, so not apps/v1 Deployment (spec.resourceSelectors)",
            "tainted: no, the taint k:NoSchedule is not tolerated (spec.placement.clusterTolerations)",
        ]
    );
    assert_eq!(explained.result.map(|d| d.affinity).as_deref(), Ok("edge"));
    let missing = ResourceBindingSpec { placement: None, ..binding };
    assert!(explain(&Request::new(&missing, &fleet)).verdicts.is_empty());
}

#[test]
fn placements_are_recorded_as_karmada_does() {
    let text = r#"{"clusterAffinity":{"clusterNames":["member1","member2"]},"replicaScheduling":{"replicaSchedulingType":"Divided","replicaDivisionPreference":"Weighted","weightPreference":{"staticWeightList":[{"targetCluster":{"clusterNames":["member1"]},"weight":1},{"targetCluster":{"clusterNames":["member2"]},"weight":2}]}}}"#;
    let placement: Placement = serde_json::from_str(text).unwrap();
    assert_eq!(applied_placement(&placement), text);
    assert_eq!(
        event_message(&[TargetCluster::new("a", 1), TargetCluster::new("b", 2)], true),
        "Binding has been scheduled successfully. Result: {a:1, b:2}"
    );
    assert_eq!(
        event_message(&[TargetCluster::new("a", 0)], false),
        "Binding has been scheduled successfully. Result {a:0}"
    );
}

fn any_placement() -> impl Prop<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(divided(json!({}))),
        Just(dynamic()),
        Just(aggregated()),
        Just(with(
            dynamic(),
            "spreadConstraints",
            json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}])
        )),
        Just(with(
            aggregated(),
            "spreadConstraints",
            json!([
            {"spreadByField": "region", "minGroups": 1, "maxGroups": 2}, {"spreadByField": "cluster", "minGroups": 2, "maxGroups": 3}])
        )),
    ]
}

proptest! {
    #[test]
    fn the_order_of_clusters_is_irrelevant(
        rooms in prop::collection::vec(0i64..9, 1..7), turn in 0usize..7, placement in any_placement(), replicas in 0i32..20,
    ) {
        let mut list: Vec<_> = rooms
            .iter()
            .enumerate()
            .map(|(i, room)| roomy(&format!("c{i}"), json!({"region": format!("r{}", i % 3)}), *room))
            .collect();
        let binding = spec(placement, json!({"replicas": replicas, "replicaRequirements": core()}));
        let want = schedule(&Request::new(&binding, &Fleet::of(list.clone())));
        let by = turn % list.len();
        list.rotate_left(by);
        prop_assert_eq!(schedule(&Request::new(&binding, &Fleet::of(list))), want);
    }

    /// Clusters that are named are looked up; those of a label are all looked at.
    #[test]
    fn naming_clusters_decides_as_a_label_on_them_does(
        rooms in prop::collection::vec((0i64..9, prop::bool::ANY, prop::bool::ANY), 1..7), placement in any_placement(),
        replicas in 0i32..20, overflow in prop::bool::ANY,
    ) {
        let list = rooms.iter().enumerate().map(|(i, (room, named, going))| {
            let mut cluster = roomy(&format!("c{i}"), json!({"region": format!("r{}", i % 3)}), *room);
            let labels = [("named".to_owned(), named.to_string())];
            cluster.metadata.labels = Some(labels.into());
            if *going {
                cluster.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
            }
            cluster
        });
        let fleet = Fleet::of(list);
        let named = |wanted: bool| -> Vec<_> {
            rooms.iter().enumerate().filter(|(_, (_, named, _))| *named == wanted).map(|(i, _)| format!("c{i}")).collect()
        };
        let by_label = |wanted: bool| json!({"labelSelector": {"matchLabels": {"named": wanted.to_string()}}});
        // One that is not there is named, too: no names at all would mean everybody.
        let by_name = |wanted: bool| json!({"clusterNames": named(wanted).into_iter().chain(["none".to_owned()]).collect::<Vec<_>>()});
        let decided = |affinity: &dyn Fn(bool) -> Value| {
            let affinity = match overflow {
                false => with(placement.clone(), "clusterAffinity", affinity(true)),
                true => {
                    let mut group = affinity(true);
                    group["affinityName"] = json!("first");
                    let mut second = affinity(false);
                    second["affinityName"] = json!("second");
                    group["overflowAffinities"] = json!([second]);
                    with(placement.clone(), "clusterAffinities", json!([group]))
                }
            };
            let binding = spec(affinity, json!({"replicas": replicas, "replicaRequirements": core()}));
            schedule(&Request::new(&binding, &fleet))
        };
        prop_assert_eq!(decided(&by_name), decided(&by_label));
    }

    #[test]
    fn what_is_placed_is_all_of_it_within_the_room(
        rooms in prop::collection::vec(0i64..9, 1..7), placement in any_placement(), replicas in 0i32..30,
    ) {
        let list = rooms.iter().enumerate().map(|(i, room)| roomy(&format!("c{i}"), json!({"region": format!("r{}", i % 3)}), *room));
        let fleet = Fleet::of(list);
        let binding = spec(placement, json!({"replicas": replicas, "replicaRequirements": core()}));
        if let Ok(decision) = schedule(&Request::new(&binding, &fleet)) {
            let sum: i32 = decision.clusters.iter().map(|target| target.replicas).sum();
            match Strategy::of(binding.placement.as_ref().unwrap()) {
                Strategy::Duplicated => prop_assert!(decision.clusters.iter().all(|t| t.replicas == replicas)),
                strategy => {
                    prop_assert_eq!(sum, replicas);
                    if !matches!(strategy, Strategy::StaticWeights(_)) {
                        for target in &decision.clusters {
                            let at: usize = target.name[1..].parse().unwrap();
                            prop_assert!(i64::from(target.replicas) <= rooms[at]);
                        }
                    }
                }
            }
            // Placing it once more changes nothing.
            let again = ResourceBindingSpec { clusters: decision.clusters.clone(), ..binding.clone() };
            let free: Vec<_> = rooms.iter().enumerate().map(|(i, room)| {
                let taken = decision.clusters.iter().find(|t| t.name == format!("c{i}")).map_or(0, |t| t.replicas);
                roomy(&format!("c{i}"), json!({"region": format!("r{}", i % 3)}), (room - i64::from(taken)).max(0))
            }).collect();
            if let Ok(second) = schedule(&Request::new(&again, &Fleet::of(free))) {
                let sorted = |d: &Decision| { let mut c = d.clusters.clone(); c.sort_by(|a, b| a.name.cmp(&b.name)); c };
                prop_assert_eq!(sorted(&second), sorted(&decision));
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_numbers_there_is_an_answer(
        replicas in proptest::num::i32::ANY, groups in prop::collection::vec(proptest::num::i64::ANY, 4),
        weight in proptest::num::i64::ANY, present in proptest::num::i32::ANY, kind in 0usize..4, field in 0usize..5,
        free in prop::collection::vec("-?[0-9]{1,18}(m|Ei|)", 3), asked in "-?[0-9]{1,18}(m|Ei|)",
    ) {
        let scheduling = [
            json!({"replicaSchedulingType": "Duplicated"}),
            json!({"replicaSchedulingType": "Divided", "weightPreference": {"staticWeightList": [
                {"targetCluster": {"clusterNames": ["a"]}, "weight": weight}, {"targetCluster": {}, "weight": 1}]}}),
            dynamic()["replicaScheduling"].clone(),
            aggregated()["replicaScheduling"].clone(),
        ][kind].clone();
        let by = [json!("cluster"), json!("region"), json!("zone"), json!("provider"), json!(null)][field].clone();
        let placement = json!({"replicaScheduling": scheduling, "spreadConstraints": [
            {"spreadByField": by, "spreadByLabel": if by.is_null() { "tier" } else { "" }, "minGroups": groups[0], "maxGroups": groups[1]},
            {"spreadByField": "cluster", "minGroups": groups[2], "maxGroups": groups[3]},
        ]});
        let fleet = Fleet::of(free.iter().enumerate().map(|(i, free)| {
            let summary = json!({"allocatable": {"cpu": free, "pods": "9999999999"}, "allocatableModelings": [{"grade": 0, "count": present}]});
            let status = json!({"apiEnablements": apis(), "resourceSummary": summary});
            let models = json!([{"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": free}]}]);
            let spec = json!({"region": "r", "provider": "p", "zones": ["x", "y"], "resourceModels": models});
            cluster(&format!("c{i}"), json!({"tier": "edge"}), spec, status)
        }));
        let binding = spec(placement, json!({"replicas": replicas, "clusters": [{"name": "c0", "replicas": present}],
            "replicaRequirements": {"resourceRequest": {"cpu": asked}}}));
        let explained = explain(&Request::new(&binding, &fleet));
        prop_assert_eq!(explained.verdicts.len(), 3);
        if let Err(error) = explained.result {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

/// What leaves a lost cluster goes to no other lost one, which keeps what it has; asked for more by its user, it gets it.
#[test]
fn what_moves_goes_where_somebody_is_heard() {
    let lost = json!({"taints": [{"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"}]});
    let fleet = Fleet::of(vec![roomy("b", lost.clone(), 9), roomy("c", json!({}), 9), roomy("d", lost, 9)]);
    let there = |replicas: i64, tasks: Value| {
        json!({"replicas": replicas, "replicaRequirements": core(), "clusters": [{"name": "b", "replicas": 2}],
               "gracefulEvictionTasks": tasks})
    };
    let task = json!([{"fromCluster": "d", "replicas": 2, "reason": "R", "producer": "P",
                       "clustersBeforeFailover": ["b", "d"]}]);
    for placement in [dynamic(), aggregated()] {
        let moved = placed_on(&fleet, placement.clone(), there(4, task.clone()));
        assert_eq!(moved, ok(&[("b", 2), ("c", 2)]));
    }
    let tolerant = json!([{"operator": "Exists"}]);
    let alone = Fleet::of(vec![roomy(
        "b",
        json!({"taints": [{"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"}]}),
        9,
    )]);
    assert_eq!(placed_on(&alone, aggregated(), there(5, json!([]))), ok(&[("b", 5)]), "its user asks");
    assert!(placed_on(&alone, aggregated(), there(5, task.clone())).is_err());
    let tolerated = with(aggregated(), "clusterTolerations", tolerant);
    assert_eq!(placed_on(&alone, tolerated, there(5, task)), ok(&[("b", 5)]));
}
