use serde_json::{Value, json};

use super::*;
use crate::affinity::tests::cluster;

fn enabled() -> Value {
    json!({"apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]})
}

fn fleet() -> Vec<Cluster> {
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
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "n"},
        "replicas": 3,
        "placement": placement,
    });
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn placed(placement: Value, extra: Value) -> Result<Vec<(String, i32)>, String> {
    let (spec, fleet) = (spec(placement, extra), fleet());
    let decision = schedule(&Request::new(&spec, &fleet)).map_err(|e| format!("{}: {e}", e.reason()))?;
    Ok(decision.clusters.into_iter().map(|target| (target.name, target.replicas)).collect())
}

fn ok(list: &[(&str, i32)]) -> Result<Vec<(String, i32)>, String> {
    Ok(list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect())
}

#[test]
fn placements_are_followed() {
    let weights = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": [
            {"targetCluster": {"clusterNames": ["a"]}, "weight": 1},
            {"targetCluster": {"clusterNames": ["b"]}, "weight": 2}]}}});
    let tolerant = json!({"clusterTolerations": [{"key": "k", "operator": "Exists"}]});
    let table = [
        ("everywhere it can run", json!({}), json!({}), ok(&[("a", 3), ("b", 3)])),
        ("tolerated", tolerant, json!({}), ok(&[("a", 3), ("b", 3), ("tainted", 3)])),
        ("it may stay", json!({}), json!({"clusters": [{"name": "tainted"}, {"name": "old"}]}),
            ok(&[("a", 3), ("b", 3), ("old", 3), ("tainted", 3)])),
        ("excluded", json!({"clusterAffinity": {"exclude": ["a"]}}), json!({}), ok(&[("b", 3)])),
        ("by labels", json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "edge"}}}}), json!({}), ok(&[("b", 3)])),
        ("divided", weights.clone(), json!({}), ok(&[("a", 1), ("b", 2)])),
        ("too few to divide", weights.clone(), json!({"replicas": 1}), ok(&[("b", 1)])),
        ("nothing to divide", weights.clone(), json!({"replicas": 0}), ok(&[("a", 0), ("b", 0)])),
        ("a workload without replicas", weights, json!({"replicas": 0, "replicaRequirements": {}}), ok(&[])),
        ("evicted", json!({}), json!({"gracefulEvictionTasks": [{"fromCluster": "a", "reason": "R", "producer": "P"}]}), ok(&[("b", 3)])),
        ("by region", json!({"spreadConstraints": [{"spreadByField": "region", "minGroups": 1}]}), json!({}),
            Err("SchedulerError: spec.placement.spreadConstraints asks for a spread over groups of clusters by region, which is not built yet".into())),
        ("all of them", json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1}]}), json!({}), ok(&[("a", 3), ("b", 3)])),
        ("at most one", json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}), json!({}), ok(&[("a", 3)])),
        ("at most one, where it is", json!({"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]}),
            json!({"clusters": [{"name": "b", "replicas": 3}]}), ok(&[("b", 3)])),
        ("too few clusters", json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 3}]}), json!({}),
            Err("Unschedulable: the number of feasible clusters is less than spreadConstraint.MinGroups: 2 of 3".into())),
        ("by room", json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}), json!({}),
            Err("SchedulerError: spec.placement.replicaScheduling.replicaDivisionPreference asks for a division by the room that clusters have, which is not built yet".into())),
        ("by others", json!({"workloadAffinity": {"affinity": {"groupByLabelKey": "k"}}}), json!({}),
            Err("SchedulerError: spec.placement.workloadAffinity asks for placement by what other objects do, which is not built yet".into())),
    ];
    for (message, placement, extra, want) in table {
        assert_eq!(placed(placement, extra), want, "{message}");
    }
}

#[test]
fn why_nothing_fits_is_said_in_karmadas_words() {
    let nowhere = json!({"clusterAffinity": {"clusterNames": ["nowhere"]}});
    let clusters: Vec<_> =
        ["member1", "member2"].iter().map(|name| cluster(name, json!({}), json!({}), enabled())).collect();
    let binding = spec(nowhere, json!({}));
    let error = schedule(&Request::new(&binding, &clusters)).unwrap_err();
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
    let none = schedule(&Request::new(&binding, &[])).unwrap_err();
    assert_eq!((none.reason(), none.empties()), ("SchedulerError", false));
}

#[test]
fn groups_are_tried_in_order_from_the_one_taken() {
    let groups = json!({"clusterAffinities": [
        {"affinityName": "first", "clusterNames": ["nowhere"]},
        {"affinityName": "second", "clusterNames": ["a"]},
        {"affinityName": "third", "clusterNames": ["b"]},
    ]});
    let (binding, fleet) = (spec(groups, json!({})), fleet());
    let from = |observed_affinity| {
        schedule(&Request { observed_affinity, ..Request::new(&binding, &fleet) })
            .map(|decision| decision.affinity)
    };
    assert_eq!(from("").as_deref(), Ok("second"));
    assert_eq!(from("third").as_deref(), Ok("third"), "it does not go back");
    assert_eq!(from("unheard of").as_deref(), Ok("second"));
}

#[test]
fn a_division_by_room_uses_it_when_it_is_known() {
    let dynamic = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    let (binding, fleet) = (spec(dynamic, json!({})), fleet());
    let room = Room::from([("a".to_owned(), 2), ("b".to_owned(), 4)]);
    let decision = schedule(&Request { room: Some(&room), ..Request::new(&binding, &fleet) }).unwrap();
    assert_eq!(decision.clusters, [TargetCluster::new("a", 1), TargetCluster::new("b", 2)]);
    assert_eq!(
        event_message(&decision.clusters),
        "Binding has been scheduled successfully. Result: {a:1, b:2}"
    );
    let refused: Vec<_> =
        decision.explanations.iter().map(|e| (e.cluster.as_str(), e.refused.is_some())).collect();
    assert_eq!(refused, [("a", false), ("b", false), ("old", true), ("tainted", true)]);
    assert!(matches!(
        schedule(&Request { room: Some(&Room::new()), ..Request::new(&binding, &fleet) }),
        Err(PlaceError::Unschedulable(_))
    ));
}

#[test]
fn an_empty_workload_stays_if_wanted() {
    let (binding, fleet) = (spec(json!({}), json!({"replicas": 0, "replicaRequirements": {}})), fleet());
    assert_eq!(schedule(&Request::new(&binding, &fleet)).unwrap().clusters, []);
    let kept = schedule(&Request { empty_workloads: true, ..Request::new(&binding, &fleet) }).unwrap();
    assert_eq!(kept.clusters.len(), 2);
}

proptest::proptest! {
    #[test]
    fn the_order_of_clusters_is_irrelevant(turn in 0usize..4, divided: bool, replicas in 0i32..9) {
        let kind = if divided { "Divided" } else { "Duplicated" };
        let binding = spec(json!({"replicaScheduling": {"replicaSchedulingType": kind}}), json!({"replicas": replicas}));
        let mut fleet = fleet();
        let want = schedule(&Request::new(&binding, &fleet)).unwrap();
        fleet.rotate_left(turn);
        proptest::prop_assert_eq!(schedule(&Request::new(&binding, &fleet)).unwrap(), want);
    }
}

#[test]
fn placements_are_recorded_as_karmada_does() {
    let text = r#"{"clusterAffinity":{"clusterNames":["member1","member2"]},"replicaScheduling":{"replicaSchedulingType":"Divided","replicaDivisionPreference":"Weighted","weightPreference":{"staticWeightList":[{"targetCluster":{"clusterNames":["member1"]},"weight":1},{"targetCluster":{"clusterNames":["member2"]},"weight":2}]}}}"#;
    let placement: Placement = serde_json::from_str(text).unwrap();
    assert_eq!(applied_placement(&placement), text);
}
