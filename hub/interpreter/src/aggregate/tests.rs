use serde_json::json;

use super::*;

fn now() -> Time {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn template(api_version: &str, kind: &str, status: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "n", "generation": 5},
        "spec": {}, "status": status,
    })
}

/// Reports of the clusters c1, c2, … in order; null for none.
fn items(reports: &[Value]) -> Vec<AggregatedStatusItem> {
    reports
        .iter()
        .enumerate()
        .map(|(i, report)| AggregatedStatusItem {
            cluster_name: format!("c{}", i + 1),
            status: Some(report.clone()).filter(|r| !r.is_null()),
            ..Default::default()
        })
        .collect()
}

/// Aggregates, and holds that doing so again changes nothing.
fn aggregated(api_version: &str, kind: &str, status: &Value, reports: &[Value]) -> Option<Value> {
    let mut value = template(api_version, kind, status);
    if kind == "Service" {
        value["spec"]["type"] = "LoadBalancer".into();
    }
    let before = value.clone();
    let changed = aggregate_status(&mut value, &items(reports), now());
    assert_eq!(changed, value != before, "{kind}: {reports:?}");
    let settled = value.clone();
    assert!(!aggregate_status(&mut value, &items(reports), now()), "{kind}: not settled: {value}");
    assert_eq!(value, settled);
    changed.then(|| value["status"].take())
}

#[test]
fn counts_are_added_and_the_generation_waits_for_every_member() {
    let report = |replicas: i64, template: i64, generation: i64, observed: i64| {
        json!({"replicas": replicas, "readyReplicas": replicas, "generation": generation,
               "observedGeneration": observed, "resourceTemplateGeneration": template})
    };
    for (what, old, reports, expected) in [
        (
            "all up to date",
            json!({}),
            vec![report(1, 5, 1, 1), report(2, 5, 3, 3)],
            Some(json!({"replicas": 3, "readyReplicas": 3, "observedGeneration": 5})),
        ),
        (
            "one has the old template",
            json!({"observedGeneration": 4}),
            vec![report(1, 5, 1, 1), report(2, 4, 3, 3)],
            Some(json!({"replicas": 3, "readyReplicas": 3, "observedGeneration": 4})),
        ),
        (
            "one has not looked at its object yet",
            json!({}),
            vec![report(1, 5, 2, 1)],
            Some(json!({"replicas": 1, "readyReplicas": 1})),
        ),
        (
            "one has not reported",
            json!({"observedGeneration": 4, "replicas": 1, "readyReplicas": 1}),
            vec![report(1, 5, 1, 1), Value::Null],
            None,
        ),
        (
            "counts that went are taken out, other fields stay",
            json!({"replicas": 3, "unavailableReplicas": 1, "observedGeneration": 5, "conditions": [1]}),
            vec![report(3, 5, 1, 1)],
            Some(json!({"replicas": 3, "readyReplicas": 3, "observedGeneration": 5, "conditions": [1]})),
        ),
        (
            "a malformed report counts as nothing",
            json!({"observedGeneration": 4}),
            vec![json!({"replicas": "x"})],
            None,
        ),
    ] {
        assert_eq!(aggregated("apps/v1", "Deployment", &old, &reports), expected, "{what}");
    }
    // Nothing placed anywhere: what there is, is up to date.
    assert_eq!(
        aggregated("apps/v1", "Deployment", &json!({"replicas": 3, "observedGeneration": 4}), &[]),
        Some(json!({"observedGeneration": 5}))
    );
}

#[test]
fn each_kind_adds_up_its_fields() {
    let up = json!({"generation": 1, "observedGeneration": 1, "resourceTemplateGeneration": 5});
    let with = |more: Value| {
        let mut value = up.clone();
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    };
    for (api_version, kind, reports, expected) in [
        (
            "apps/v1",
            "ReplicaSet",
            vec![with(json!({"replicas": 1, "availableReplicas": 1})), with(json!({"replicas": 1}))],
            json!({"replicas": 2, "availableReplicas": 1, "observedGeneration": 5}),
        ),
        (
            "apps/v1",
            "StatefulSet",
            vec![with(
                json!({"replicas": 1, "currentReplicas": 1, "updatedReplicas": 1, "availableReplicas": 0}),
            )],
            json!({"replicas": 1, "currentReplicas": 1, "updatedReplicas": 1, "availableReplicas": 0,
                   "observedGeneration": 5}),
        ),
        (
            "apps/v1",
            "DaemonSet",
            vec![
                with(json!({"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 1})),
                with(json!({"desiredNumberScheduled": 3, "numberMisscheduled": 1, "numberUnavailable": 3})),
            ],
            json!({"desiredNumberScheduled": 5, "currentNumberScheduled": 2, "numberReady": 1,
                   "numberMisscheduled": 1, "numberUnavailable": 3, "observedGeneration": 5}),
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            vec![
                json!({"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 2,
                       "disruptedPods": {"p": "2026-01-01T00:00:00Z"}}),
                json!({"currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 2}),
            ],
            json!({"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 4,
                   "disruptedPods": {"c1/p": "2026-01-01T00:00:00Z"}}),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            vec![json!({"currentReplicas": 2, "desiredReplicas": 3}), json!({"desiredReplicas": 1})],
            json!({"currentReplicas": 2, "desiredReplicas": 4}),
        ),
        (
            "v1",
            "Service",
            vec![
                json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}),
                json!({"loadBalancer": {"ingress": [{"hostname": "lb.example", "ports": [{"port": 80}]}]}}),
            ],
            json!({"loadBalancer": {"ingress": [
                {"hostname": "lb.example", "ports": [{"port": 80}]}, {"ip": "1.1.1.1"}]}}),
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            vec![json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}), Value::Null],
            json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}),
        ),
        (
            "batch/v1",
            "CronJob",
            vec![
                json!({"active": [{"name": "a"}], "lastScheduleTime": "2026-01-01T00:00:00Z"}),
                json!({"active": [{"name": "b"}], "lastScheduleTime": "2026-01-02T00:00:00Z",
                       "lastSuccessfulTime": "2026-01-01T00:00:00Z"}),
            ],
            json!({"active": [{"name": "a"}, {"name": "b"}], "lastScheduleTime": "2026-01-02T00:00:00Z",
                   "lastSuccessfulTime": "2026-01-01T00:00:00Z"}),
        ),
        (
            "v1",
            "Pod",
            vec![
                json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
                    {"name": "a", "ready": true, "restartCount": 3, "state": {"running": {}}}]}),
                Value::Null,
            ],
            json!({"phase": "Pending", "containerStatuses": [
                {"image": "", "imageID": "", "lastState": {}, "name": "", "ready": true, "restartCount": 0,
                 "state": {"running": {}}}]}),
        ),
    ] {
        assert_eq!(aggregated(api_version, kind, &json!({}), &reports), Some(expected), "{kind}");
    }
}

#[test]
fn the_worst_phase_wins() {
    let phases = |list: &[&str]| -> Vec<Value> {
        list.iter().map(|p| if p.is_empty() { Value::Null } else { json!({"phase": p}) }).collect()
    };
    for (kind, reported, expected) in [
        ("Pod", vec!["Running", "Succeeded"], Some("Running")),
        ("Pod", vec!["Running", "Failed"], Some("Failed")),
        ("Pod", vec!["Succeeded"], Some("Succeeded")),
        ("Pod", vec![], None),
        ("Pod", vec!["Strange"], None),
        ("PersistentVolume", vec!["Bound", "Available"], Some("Available")),
        ("PersistentVolume", vec!["Bound", ""], Some("Pending")),
        ("PersistentVolume", vec!["Released"], Some("Released")),
        ("PersistentVolumeClaim", vec!["Bound", "Bound"], Some("Bound")),
        ("PersistentVolumeClaim", vec!["Bound", "Lost", "Pending"], Some("Lost")),
        ("PersistentVolumeClaim", vec!["Bound", ""], Some("Pending")),
        ("PersistentVolumeClaim", vec![], None),
    ] {
        let found = aggregated("v1", kind, &json!({}), &phases(&reported));
        assert_eq!(found.as_ref().map(|s| s["phase"].as_str().unwrap()), expected, "{kind} {reported:?}");
    }
}

#[test]
fn a_load_balancer_that_went_is_taken_out() {
    let old = json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1", "hostname": "c1"}]}});
    assert_eq!(
        aggregated("v1", "Service", &old, &[json!({"loadBalancer": {}})]),
        Some(json!({"loadBalancer": {}}))
    );
    assert_eq!(aggregated("v1", "Service", &json!({}), &[json!({"loadBalancer": {}})]), None);
}

#[test]
fn other_kinds_and_other_services_are_left_alone() {
    let mut service = template("v1", "Service", &json!({"loadBalancer": {}}));
    let reports = items(&[json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}})]);
    assert!(!aggregate_status(&mut service, &reports, now()));
    let mut other = template("example.com/v1", "Thing", &json!({}));
    assert!(!aggregate_status(&mut other, &items(&[json!({"replicas": 1})]), now()));
}

mod jobs {
    use super::*;

    fn ended(how: &str, at: &str) -> Value {
        json!({"succeeded": 1, "startTime": "2026-05-01T00:00:00Z", "completionTime": at,
               "conditions": [{"type": how, "status": "True"}]})
    }

    fn types(status: &Value) -> Vec<&str> {
        list(status, &["conditions"]).iter().map(|c| text(c, &["type"])).collect()
    }

    #[test]
    fn it_runs_until_every_member_is_done() {
        let running = json!({"active": 2, "startTime": "2026-05-02T00:00:00Z"});
        let done = ended("Complete", "2026-05-03T00:00:00Z");
        let status = aggregated("batch/v1", "Job", &json!({}), &[running.clone(), done]).unwrap();
        assert_eq!(status, json!({"active": 2, "succeeded": 1, "startTime": "2026-05-01T00:00:00Z"}));
        // Not all have started: no start time yet.
        let status = aggregated("batch/v1", "Job", &json!({}), &[running, Value::Null]).unwrap();
        assert_eq!(status, json!({"active": 2}));
    }

    #[test]
    fn it_is_complete_when_all_are() {
        let (a, b) = (ended("Complete", "2026-05-03T00:00:00Z"), ended("Complete", "2026-05-04T00:00:00Z"));
        let old = json!({"startTime": "2026-04-01T00:00:00Z", "active": 1});
        let status = aggregated("batch/v1", "Job", &old, &[a, b]).unwrap();
        assert_eq!(types(&status), ["Complete", "SuccessCriteriaMet"]);
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "2026-06-01T00:00:00Z");
        assert_eq!(status["startTime"], "2026-04-01T00:00:00Z", "a start time stays");
        assert_eq!(status["completionTime"], "2026-05-04T00:00:00Z", "the last to end");
        assert_eq!((status.get("active"), &status["succeeded"]), (None, &json!(2)));
    }

    #[test]
    fn it_fails_when_one_does_and_nothing_runs_any_more() {
        let failed = json!({"failed": 1, "conditions": [{"type": "Failed", "status": "True"}]});
        let first =
            aggregated("batch/v1", "Job", &json!({}), &[json!({"active": 1}), failed.clone()]).unwrap();
        assert_eq!(types(&first), ["FailureTarget"]);
        let then = aggregated("batch/v1", "Job", &first, &[json!({}), failed]).unwrap();
        assert_eq!(types(&then), ["FailureTarget", "Failed"]);
        assert_eq!(then["conditions"][1]["message"], "Job executed failed in member clusters c2");
    }

    #[test]
    fn a_finished_one_is_never_touched() {
        let old = ended("Failed", "2026-05-03T00:00:00Z");
        assert_eq!(aggregated("batch/v1", "Job", &old, &[json!({"active": 4})]), None);
        assert_eq!(aggregated("batch/v1", "Job", &json!({}), &[]), None);
    }
}
