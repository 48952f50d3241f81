//! One page with everything on it, held against the table of what is documented.

use std::{collections::BTreeMap, time::SystemTime};

use karmada_client::failures::Reason;
use karmada_env::ManualClock;
use karmada_meta::gvk::GroupVersionKind;
use karmada_objects::scope::{BindingKey, Scope};
use karmada_telemetry::metrics::{Figures, Kind, read};
use serde_json::json;

use super::*;

/// Every family of the controllers' part: name, kind, labels. What stands here is what dashboards rely on.
const DOCUMENTED: [(&str, Kind, &[&str]); 54] = [
    ("binding_sync_work_duration_seconds", Kind::Histogram, &["result"]),
    ("cluster_cpu_allocatable_number", Kind::Gauge, &["member_cluster"]),
    ("cluster_cpu_allocated_number", Kind::Gauge, &["member_cluster"]),
    ("cluster_memory_allocatable_bytes", Kind::Gauge, &["member_cluster"]),
    ("cluster_memory_allocated_bytes", Kind::Gauge, &["member_cluster"]),
    ("cluster_node_number", Kind::Gauge, &["member_cluster"]),
    ("cluster_pod_allocatable_number", Kind::Gauge, &["member_cluster"]),
    ("cluster_pod_allocated_number", Kind::Gauge, &["member_cluster"]),
    ("cluster_ready_node_number", Kind::Gauge, &["member_cluster"]),
    ("cluster_ready_state", Kind::Gauge, &["member_cluster"]),
    ("cronfederatedhpa_process_duration_seconds", Kind::Histogram, &["result"]),
    ("cronfederatedhpa_rule_process_duration_seconds", Kind::Histogram, &["result"]),
    ("eviction_kind_total", Kind::Gauge, &["member_cluster", "resource_kind"]),
    ("eviction_processing", Kind::Counter, &["name", "result"]),
    ("eviction_processing_latency_seconds", Kind::Histogram, &["name"]),
    ("eviction_queue_depth", Kind::Gauge, &["name"]),
    ("federatedhpa_process_duration_seconds", Kind::Histogram, &["result"]),
    ("federatedhpa_pull_metrics_duration_seconds", Kind::Histogram, &["metricType", "result"]),
    ("karmada_hub_cluster_grace_seconds", Kind::Gauge, &["member_cluster"]),
    ("karmada_hub_cluster_held_out", Kind::Gauge, &["member_cluster"]),
    ("karmada_hub_cluster_recent_losses", Kind::Gauge, &["member_cluster"]),
    ("karmada_hub_cluster_status_stale", Kind::Gauge, &["member_cluster"]),
    ("karmada_hub_clusters", Kind::Gauge, &["state"]),
    ("karmada_hub_clusters_held_out", Kind::Gauge, &[]),
    ("karmada_hub_endpointslices", Kind::Gauge, &["state"]),
    ("karmada_hub_evictions_held", Kind::Gauge, &["reason"]),
    ("karmada_hub_evictions_postponed", Kind::Counter, &["reason"]),
    ("karmada_hub_fence_waits", Kind::Gauge, &[]),
    ("karmada_hub_index_visits", Kind::Counter, &["index"]),
    ("karmada_hub_lease_age_seconds", Kind::Gauge, &["member_cluster"]),
    ("karmada_hub_propagation_duration_seconds", Kind::Histogram, &["operation"]),
    ("karmada_hub_propagation_pending", Kind::Gauge, &[]),
    ("karmada_hub_propagation_unmeasured", Kind::Counter, &[]),
    ("karmada_hub_push_spared_answers", Kind::Counter, &["result"]),
    ("karmada_hub_push_starts", Kind::Counter, &[]),
    ("karmada_hub_push_watch_failures", Kind::Counter, &["reason", "resource"]),
    ("karmada_hub_rollouts", Kind::Gauge, &["phase"]),
    ("karmada_hub_sample_age_seconds", Kind::Gauge, &["member_cluster"]),
    ("karmada_hub_samples", Kind::Gauge, &["state"]),
    ("karmada_hub_watch_failures", Kind::Counter, &["reason", "resource"]),
    ("karmada_scheduler_e2e_scheduling_duration_seconds", Kind::Histogram, &["result", "schedule_type"]),
    ("karmada_scheduler_queue_incoming_bindings", Kind::Counter, &["event"]),
    ("karmada_scheduler_schedule_attempts", Kind::Counter, &["result", "schedule_type"]),
    ("karmada_workqueue_delayed", Kind::Gauge, &["name"]),
    ("policy_apply_attempts", Kind::Counter, &["result"]),
    ("resource_apply_policy_duration_seconds", Kind::Histogram, &["result"]),
    ("resource_match_policy_duration_seconds", Kind::Histogram, &[]),
    ("workqueue_adds", Kind::Counter, &["name"]),
    ("workqueue_depth", Kind::Gauge, &["name"]),
    ("workqueue_longest_running_processor_seconds", Kind::Gauge, &["name"]),
    ("workqueue_queue_duration_seconds", Kind::Histogram, &["name"]),
    ("workqueue_retries", Kind::Counter, &["name"]),
    ("workqueue_unfinished_work_seconds", Kind::Gauge, &["name"]),
    ("workqueue_work_duration_seconds", Kind::Histogram, &["name"]),
];

fn world() -> (ManualClock, HubFigures) {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000));
    (clock.clone(), HubFigures::new(Env::seeded(clock, 7)))
}

fn figures(hub: &HubFigures) -> Figures {
    let text = Page::new().with(hub.clone()).render();
    read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn template(name: &str) -> TemplateKey {
    let kind = GroupVersionKind::from_api_version("apps/v1", "Deployment").unwrap();
    TemplateKey { kind, key: Key::new("shop", name) }
}

fn work(applied: &str, generation: i64) -> serde_json::Value {
    json!({"status": {
        "conditions": [{"type": "Applied", "status": applied}],
        "manifestStatuses": [{"status": {"resourceTemplateGeneration": generation}}],
    }})
}

fn count(hub: &HubFigures, operation: &str) -> Option<f64> {
    figures(hub).value("karmada_hub_propagation_duration_seconds_count", &[("operation", operation)])
}

fn binding(scope: Scope, name: &str) -> BindingKey {
    BindingKey { scope, key: Key::new("shop", name) }
}

fn waiting(cluster: &str, due: bool) -> Waiting {
    Waiting { cluster: cluster.to_owned(), due }
}

#[tokio::test]
async fn everything_on_the_page_is_documented_and_the_other_way_round() {
    let (_, hub) = world();
    let queue: WorkQueue<String> = WorkQueue::new(hub.0.env.clone());
    hub.queue("detector", &queue);
    let cluster = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeSummary": {"totalNum": 1, "readyNum": 1},
        "resourceSummary": {
            "allocatable": {"cpu": "1", "memory": "1", "pods": "1"},
            "allocated": {"cpu": "1", "memory": "1", "pods": "1"},
        },
    }});
    hub.clusters().seen("m", &cluster);
    hub.clusters().renewed("m", "2026-09-21T14:13:20.000000Z", true, &hub.0.env);
    let opinion = karmada_core::judge::Opinion::default();
    hub.judged().seen([("m", &opinion)].into_iter(), None);
    hub.judged().postponed("MinuteBudget");
    hub.evictions().wait(&binding(Scope::Namespaced, "web"), vec![waiting("m", true)]);
    hub.scheduled(true, false, &hub.timer());
    hub.incoming(Incoming::Added);
    hub.scaling().looked(true, Duration::ZERO);
    hub.scaling().pulled("Resource", true, Duration::ZERO);
    hub.scaling().told("m", Duration::ZERO, Duration::ZERO);
    hub.visits("clusters", &Counter::default());
    hub.pushing().failures.count("/apis/apps/v1/deployments", Reason::Silent);
    hub.watch_failures().count("/api/v1/namespaces", Reason::Refused);
    let page = figures(&hub);
    let shown: BTreeMap<_, _> = page
        .families
        .iter()
        .map(|(name, (kind, _))| {
            (name.as_str(), (*kind, page.labels_of(name).into_iter().collect::<Vec<_>>()))
        })
        .collect();
    let documented: BTreeMap<_, _> =
        DOCUMENTED.iter().map(|(name, kind, labels)| (*name, (*kind, labels.to_vec()))).collect();
    assert_eq!(shown, documented);
    assert!(page.families.values().all(|(_, help)| help.ends_with('.')), "each has a sentence");
}

#[test]
fn single_clusters_are_shown_if_they_are_to_be_and_counted_in_any_case() {
    let (_, hub) = world();
    let cluster = |ready: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
    for (name, ready) in [("a", "True"), ("b", "True"), ("c", "Unknown")] {
        hub.clusters().seen(name, &cluster(ready));
    }
    hub.clusters().seen("d", &json!({}));
    let until = karmada_meta::time::Time::from_system(SystemTime::UNIX_EPOCH);
    let held = karmada_core::judge::Opinion { held_until: Some(until), ..Default::default() };
    hub.judged().seen([("a", &held)].into_iter(), None);
    hub.evictions().wait(&binding(Scope::Namespaced, "web"), vec![waiting("c", true)]);
    for each in [true, false] {
        hub.show_each(each);
        let page = figures(&hub);
        let sums: Vec<_> = ["ready", "not_ready", "unknown", "not_joined", "leaving"]
            .iter()
            .map(|state| page.value("karmada_hub_clusters", &[("state", state)]).unwrap())
            .collect();
        assert_eq!(sums, [2.0, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!(page.value("karmada_hub_clusters_held_out", &[]), Some(1.0));
        assert_eq!(page.value("eviction_queue_depth", &[("name", "binding-eviction")]), Some(1.0));
        let of_single = page.samples.iter().filter(|sample| sample.labels.contains_key("member_cluster"));
        assert_eq!(of_single.count() > 0, each);
    }
    assert!(hub.hears("a") && !hub.hears("c") && !hub.hears("d") && !hub.hears("nobody"));
}

#[test]
fn a_lease_ages_by_the_hubs_clock_and_goes_with_its_cluster() {
    let (clock, hub) = world();
    let age = |hub: &HubFigures, cluster: &str| {
        figures(hub).value("karmada_hub_lease_age_seconds", &[("member_cluster", cluster)])
    };
    let ready = |hub: &HubFigures| figures(hub).value("cluster_ready_state", &[("member_cluster", "m")]);
    assert_eq!((age(&hub, "m"), ready(&hub)), (None, None));
    hub.clusters().seen("m", &json!({}));
    assert_eq!((age(&hub, "m"), ready(&hub)), (None, Some(0.0)), "a cluster that never had a Lease");

    // Seen for the first time, and an hour old by then: 1,790,000,000 is 2026-09-21T14:13:20Z.
    hub.clusters().renewed("m", "2026-09-21T13:13:20.000000Z", true, &hub.0.env);
    clock.advance(Duration::from_secs(5));
    assert_eq!(age(&hub, "m"), Some(3605.0));
    // After that the member's clock does not matter.
    hub.clusters().renewed("m", "1999-01-01T00:00:00.000000Z", false, &hub.0.env);
    clock.advance(Duration::from_secs(7));
    assert_eq!(age(&hub, "m"), Some(7.0));
    hub.clusters().renewed("other", "", true, &hub.0.env);
    assert_eq!(age(&hub, "other"), None, "a Lease without a Cluster is nobody's");

    hub.clusters().gone("m");
    assert_eq!((age(&hub, "m"), ready(&hub)), (None, None));
}

#[test]
fn evictions_wait_and_are_processed_by_cluster_and_kind() {
    let (_, hub) = world();
    let shown = |name: &str, labels: &[(&str, &str)]| figures(&hub).value(name, labels);
    let depth = |queue: &str| shown("eviction_queue_depth", &[("name", queue)]);
    let kinds = |cluster: &str, kind: &str| {
        shown("eviction_kind_total", &[("member_cluster", cluster), ("resource_kind", kind)])
    };
    assert_eq!((depth("binding-eviction"), depth("cluster-binding-eviction")), (Some(0.0), Some(0.0)));
    let (web, pay, crd) = (
        binding(Scope::Namespaced, "web"),
        binding(Scope::Namespaced, "pay"),
        binding(Scope::Cluster, "crd"),
    );
    hub.evictions().wait(&web, vec![waiting("a", true), waiting("b", false)]);
    hub.evictions().wait(&pay, vec![waiting("a", true)]);
    hub.evictions().wait(&crd, vec![waiting("a", false)]);
    assert_eq!((depth("binding-eviction"), depth("cluster-binding-eviction")), (Some(2.0), Some(0.0)));
    assert_eq!((kinds("a", "ResourceBinding"), kinds("b", "ResourceBinding")), (Some(2.0), Some(1.0)));
    assert_eq!(kinds("a", "ClusterResourceBinding"), Some(1.0));
    hub.evictions().wait(&web, Vec::new());
    hub.evictions().processed(Scope::Namespaced, true, Duration::from_millis(3));
    hub.evictions().processed(Scope::Namespaced, false, Duration::from_millis(4));
    assert_eq!((kinds("a", "ResourceBinding"), kinds("b", "ResourceBinding")), (Some(1.0), None));
    let total = |result: &str| {
        shown("eviction_processing_total", &[("name", "binding-eviction"), ("result", result)])
    };
    assert_eq!((total("success"), total("error")), (Some(1.0), Some(1.0)));
    let took = shown("eviction_processing_latency_seconds_sum", &[("name", "binding-eviction")]);
    assert_eq!(took, Some(0.007));
    hub.rest();
    assert_eq!(
        (depth("binding-eviction"), total("success"), kinds("a", "ResourceBinding")),
        (Some(0.0), Some(1.0), None)
    );
}

#[test]
fn a_new_work_counts_with_its_first_report() {
    let (clock, hub) = world();
    let key = Key::new("karmada-es-m", "web");
    hub.template_changed(&template("web"), true);
    clock.advance(Duration::from_millis(3));
    let since = hub.changed_at(&template("web")).unwrap();
    assert!(hub.propagation().expect(&key, None, since));
    assert!(!hub.propagation().expect(&key, None, since), "a second look at the binding changes nothing");
    hub.propagation().settled(&template("web"), Some(since));
    assert_eq!(hub.changed_at(&template("web")), None, "what is written later is not due to this change");
    hub.work_seen(&key, &json!({}));
    hub.work_seen(&key, &work("False", 0));
    assert_eq!(count(&hub, "create"), Some(0.0));
    assert_eq!(figures(&hub).value("karmada_hub_propagation_pending", &[]), Some(1.0));
    clock.advance(Duration::from_millis(4));
    hub.work_seen(&key, &work("True", 0));
    hub.work_seen(&key, &work("True", 0));
    let page = figures(&hub);
    let value = |name: &str| {
        page.value(&format!("karmada_hub_propagation_duration_seconds_{name}"), &[("operation", "create")])
    };
    assert_eq!((value("count"), value("sum")), (Some(1.0), Some(0.007)));
    assert_eq!(page.value("karmada_hub_propagation_pending", &[]), Some(0.0));
}

#[test]
fn a_changed_work_counts_when_its_generation_is_reported() {
    let (clock, hub) = world();
    let key = Key::new("karmada-es-m", "web");
    hub.propagation().expect(&key, Some(3), Duration::ZERO);
    clock.advance(Duration::from_secs(1));
    hub.work_seen(&key, &work("True", 2));
    assert_eq!(count(&hub, "update"), Some(0.0), "that was the generation before");
    hub.propagation().expect(&key, Some(4), Duration::from_secs(1));
    hub.work_seen(&key, &work("True", 3));
    assert_eq!(count(&hub, "update"), Some(0.0), "the newest change is what is waited for");
    hub.work_seen(&key, &work("True", 4));
    assert_eq!((count(&hub, "update"), count(&hub, "create")), (Some(1.0), Some(0.0)));
}

#[test]
fn what_was_held_up_elsewhere_is_not_measured() {
    let (clock, hub) = world();
    hub.template_changed(&template("listed"), false);
    assert_eq!(hub.changed_at(&template("listed")), None);
    hub.template_changed(&template("waits"), true);
    clock.advance(Duration::from_secs(61));
    assert_eq!(hub.changed_at(&template("waits")), None, "its policy came a minute later");
    hub.template_changed(&template("deleted"), true);
    hub.template_changed(&template("deleted"), false);
    assert_eq!(hub.changed_at(&template("deleted")), None);
    let key = Key::new("karmada-es-m", "gone");
    hub.propagation().expect(&key, None, Duration::ZERO);
    hub.propagation().forget(&key);
    hub.work_seen(&key, &work("True", 0));
    assert_eq!(count(&hub, "create"), Some(0.0));
}

#[test]
fn what_is_under_way_is_bounded() {
    let (clock, hub) = world();
    for i in 0..10_005 {
        hub.template_changed(&template(&format!("t{i}")), true);
        hub.propagation().expect(&Key::new("karmada-es-m", format!("w{i}")), None, Duration::ZERO);
    }
    let page = figures(&hub);
    assert_eq!(page.value("karmada_hub_propagation_pending", &[]), Some(10_000.0));
    assert_eq!(page.value("karmada_hub_propagation_unmeasured_total", &[]), Some(10.0));
    clock.advance(Duration::from_secs(120));
    hub.template_changed(&template("fresh"), true);
    assert!(hub.changed_at(&template("fresh")).is_some(), "old changes make room");
}

#[test]
fn after_a_run_counts_stay_and_the_rest_goes() {
    let (_, hub) = world();
    hub.clusters().seen("m", &json!({}));
    hub.queue("detector", &WorkQueue::<String>::new(hub.0.env.clone()));
    hub.applied_policy(true, &hub.timer());
    hub.rest();
    let page = figures(&hub);
    assert_eq!(page.sum("cluster_ready_state", &[]), None);
    assert_eq!(page.sum("workqueue_depth", &[]), None);
    assert_eq!(page.value("policy_apply_attempts_total", &[("result", "success")]), Some(1.0));
}

#[test]
fn what_scales_is_timed_and_how_new_its_samples_are_is_told() {
    let (clock, hub) = world();
    let scaling = hub.scaling();
    let (web, api) = (Key::new("shop", "web"), Key::new("shop", "api"));
    scaling.looked(false, Duration::from_millis(30));
    scaling.pulled("Pods", false, Duration::from_millis(20));
    scaling.looked_at_cron(true, Duration::from_millis(3));
    scaling.ran_rule(false, Duration::from_millis(4));
    scaling.answers(&web, 3, 1);
    scaling.answers(&api, 2, 0);
    scaling.answers(&web, 2, 2);
    let told = |age: u64| scaling.told("m", hub.0.env.now(), Duration::from_secs(age));
    told(0);
    clock.advance(Duration::from_secs(9));
    let value = |name: &str, labels: &[(&str, &str)]| figures(&hub).value(name, labels);
    let took = |name: &str, labels: &[(&str, &str)]| value(&format!("{name}_sum"), labels);
    assert_eq!(took("federatedhpa_process_duration_seconds", &[("result", "error")]), Some(0.03));
    let pods = [("result", "error"), ("metricType", "Pods")];
    assert_eq!(took("federatedhpa_pull_metrics_duration_seconds", &pods), Some(0.02));
    assert_eq!(took("cronfederatedhpa_process_duration_seconds", &[("result", "success")]), Some(0.003));
    assert_eq!(took("cronfederatedhpa_rule_process_duration_seconds", &[("result", "error")]), Some(0.004));
    let samples =
        || ["counted", "silent"].map(|state| value("karmada_hub_samples", &[("state", state)]).unwrap());
    assert_eq!(samples(), [4.0, 2.0]);
    scaling.gone(&web);
    assert_eq!(samples(), [2.0, 0.0]);
    let age = || value("karmada_hub_sample_age_seconds", &[("member_cluster", "m")]);
    assert_eq!(age(), Some(9.0));
    told(10);
    assert_eq!(age(), Some(9.0), "it has told something since");
    told(8);
    assert_eq!(age(), Some(8.0));
    scaling.left("m");
    assert_eq!(age(), None);
}

#[test]
fn slices_of_a_silent_cluster_are_stale() {
    let (_, hub) = world();
    let cluster = |ready: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
    hub.clusters().seen("a", &cluster("True"));
    hub.clusters().seen("b", &cluster("Unknown"));
    let of = ["collected", "stale", "dispatched"];
    let shown =
        || of.map(|state| figures(&hub).value("karmada_hub_endpointslices", &[("state", state)]).unwrap());
    assert_eq!(shown(), [0.0; 3]);
    let (collected, dispatched) = (Some(Brings::Collected), Some(Brings::Dispatched));
    for (cluster, old, new) in [
        ("a", None, collected),
        ("a", None, collected),
        ("b", None, collected),
        ("b", None, dispatched),
        ("a", collected, collected),
    ] {
        hub.slices().changed(cluster, old, new);
    }
    assert_eq!(shown(), [3.0, 1.0, 1.0]);
    hub.clusters().seen("b", &cluster("False"));
    assert_eq!(shown(), [3.0, 0.0, 1.0], "it is heard");
    hub.slices().changed("a", collected, None);
    hub.slices().changed("b", dispatched, None);
    assert_eq!(shown(), [2.0, 0.0, 0.0]);
    hub.rest();
    assert_eq!(shown(), [0.0; 3]);
}
