//! The reference of metrics: what is on the pages of a hub and an agent that have everything on, with the sentences that stand
//! there, and the labels that each family may have.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use karmada_telemetry::metrics::{Figures, Kind};
use karmada_tests::{
    figures::{figures, scrape},
    fleet::{Binaries, Fleet, Options},
    process::own_address,
    wait::{END, PATIENCE, eventually},
};

use crate::reference::{cell, page};

/// The families that have labels, and which. All others are one series, but for a histogram's `le`.
const LABELS: [(&str, &str); 69] = [
    ("apiserver_admission_webhook_request", "name, type, operation, code, rejected"),
    ("apiserver_audit_error", "plugin"),
    ("apiserver_audit_level", "level"),
    ("apiserver_current_inflight_requests", "request_kind"),
    ("apiserver_current_inqueue_requests", "request_kind"),
    ("apiserver_encryption_config_controller_automatic_reloads", "status"),
    ("apiserver_longrunning_requests", "group, version, resource, verb"),
    ("apiserver_request", "verb, group, resource, code"),
    ("apiserver_request_duration_seconds", "verb"),
    ("apiserver_storage_objects", "resource"),
    ("apiserver_storage_transformation_operations", "transformation_type, status"),
    ("binding_sync_work_duration_seconds", "result"),
    ("cluster_cpu_allocatable_number", "member_cluster"),
    ("cluster_cpu_allocated_number", "member_cluster"),
    ("cluster_memory_allocatable_bytes", "member_cluster"),
    ("cluster_memory_allocated_bytes", "member_cluster"),
    ("cluster_node_number", "member_cluster"),
    ("cluster_pod_allocatable_number", "member_cluster"),
    ("cluster_pod_allocated_number", "member_cluster"),
    ("cluster_ready_node_number", "member_cluster"),
    ("cluster_ready_state", "member_cluster"),
    ("cluster_sync_status_duration_seconds", "member_cluster"),
    ("cronfederatedhpa_process_duration_seconds", "result"),
    ("cronfederatedhpa_rule_process_duration_seconds", "result"),
    ("eviction_kind_total", "member_cluster, resource_kind"),
    ("eviction_processing", "name, result"),
    ("eviction_processing_latency_seconds", "name"),
    ("eviction_queue_depth", "name"),
    ("federatedhpa_process_duration_seconds", "result"),
    ("federatedhpa_pull_metrics_duration_seconds", "result, metricType"),
    ("karmada_agent_hub_watch_failures", "resource, reason"),
    ("karmada_agent_member_watch_failures", "resource, reason"),
    ("karmada_apiserver_refused_requests", "reason"),
    ("karmada_apiserver_unauthenticated_requests", "reason"),
    ("karmada_build_info", "git_version, compiler, platform"),
    ("karmada_hub_agent_certificate_expiration_timestamp_seconds", "member_cluster"),
    ("karmada_hub_certificate_expiration_timestamp_seconds", "certificate"),
    ("karmada_hub_cluster_grace_seconds", "member_cluster"),
    ("karmada_hub_cluster_held_out", "member_cluster"),
    ("karmada_hub_cluster_recent_losses", "member_cluster"),
    ("karmada_hub_cluster_status_stale", "member_cluster"),
    ("karmada_hub_clusters", "state"),
    ("karmada_hub_connections_ended", "reason"),
    ("karmada_hub_endpointslices", "state"),
    ("karmada_hub_evictions_held", "reason"),
    ("karmada_hub_evictions_postponed", "reason"),
    ("karmada_hub_handshakes", "class"),
    ("karmada_hub_index_visits", "index"),
    ("karmada_hub_last_backup_timestamp_seconds", "engine"),
    ("karmada_hub_lease_age_seconds", "member_cluster"),
    ("karmada_hub_member_bytes", "user"),
    ("karmada_hub_propagation_duration_seconds", "operation"),
    ("karmada_hub_push_spared_answers", "result"),
    ("karmada_hub_push_watch_failures", "resource, reason"),
    ("karmada_hub_rollouts", "phase"),
    ("karmada_hub_sample_age_seconds", "member_cluster"),
    ("karmada_hub_samples", "state"),
    ("karmada_hub_search_parts", "from"),
    ("karmada_hub_tunnel_bytes", "cluster, direction"),
    ("karmada_hub_tunnel_calls", "outcome"),
    ("karmada_hub_watch_failures", "resource, reason"),
    ("karmada_scheduler_e2e_scheduling_duration_seconds", "result, schedule_type"),
    ("karmada_scheduler_queue_incoming_bindings", "event"),
    ("karmada_scheduler_schedule_attempts", "result, schedule_type"),
    ("karmada_store_bytes", "resource"),
    ("karmada_store_encryption_key", "key, writes"),
    ("karmada_store_encryption_rewrites", "status"),
    ("karmada_store_refused_writes", "quota"),
    ("policy_apply_attempts", "result"),
];

/// Those of queues, and of what is timed by its result, which both pages have.
const MORE: [(&str, &str); 10] = [
    ("karmada_workqueue_delayed", "name"),
    ("resource_apply_policy_duration_seconds", "result"),
    ("work_sync_workload_duration_seconds", "result"),
    ("workqueue_adds", "name"),
    ("workqueue_depth", "name"),
    ("workqueue_longest_running_processor_seconds", "name"),
    ("workqueue_queue_duration_seconds", "name"),
    ("workqueue_retries", "name"),
    ("workqueue_unfinished_work_seconds", "name"),
    ("workqueue_work_duration_seconds", "name"),
];

/// What an agent's page has only once it has happened.
const LATER: [&str; 4] = [
    "karmada_agent_hub_certificate_expiration_timestamp_seconds",
    "karmada_agent_hub_clock_ahead_seconds",
    "karmada_agent_hub_last_contact_age_seconds",
    "karmada_agent_member_last_contact_age_seconds",
];

const AUDIT: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

const ENCRYPTION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{aesgcm: {keys: [{name: key1, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}}, {identity: {}}]
";

fn labels(family: &str) -> &'static str {
    LABELS.iter().chain(&MORE).find(|(name, _)| *name == family).map_or("", |(_, labels)| labels)
}

fn table(page: &Figures, text: &mut String) {
    text.push_str("| Name | Type | Labels | Meaning |\n|---|---|---|---|\n");
    for (name, (kind, help)) in &page.families {
        let told: Vec<&str> = labels(name).split(", ").filter(|label| !label.is_empty()).collect();
        // A hub's page tells of each cluster, an agent's of its own; what has no rows yet tells no labels.
        let unknown: Vec<&str> =
            page.labels_of(name).into_iter().filter(|label| !told.contains(label)).collect();
        assert!(unknown.is_empty(), "{name} has labels that are not in the table: {unknown:?}");
        let (kind, suffix) = match kind {
            Kind::Gauge => ("gauge", ""),
            Kind::Counter => ("counter", "_total"),
            Kind::Histogram => ("histogram", ""),
        };
        let labels: Vec<String> = told.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(text, "| `{name}{suffix}` | {kind} | {} | {} |", labels.join(", "), cell(help));
    }
}

#[tokio::test]
async fn reference_of_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let hub = vec![
        format!("--audit-policy-file={}", file("audit.yaml", AUDIT)),
        format!("--audit-log-path={}", dir.path().join("audit.log").display()),
        format!("--encryption-provider-config={}", file("encryption.yaml", ENCRYPTION)),
    ];
    let options = Options { hub, agent: vec!["--link-budget=1Mi".to_owned()], ..Options::default() };
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let Some(mut fleet) = Fleet::start("docs", 1, &binaries, options).await else { return };
    let address = own_address();
    let agent = &mut fleet.members[0].agent;
    agent.terminate(END).await.expect("the agent ends");
    agent.set_arg("--metrics-bind-address=", format!("--metrics-bind-address={address}"));
    agent.spawn().expect("it starts");
    let agent = eventually("the agent's page to have everything on it", PATIENCE, || async {
        let page = scrape(address).await?;
        match LATER.iter().find(|name| !page.families.contains_key(**name)) {
            Some(missing) => Err(format!("no {missing} yet")),
            None => Ok(page),
        }
    })
    .await;
    let hub = figures(&fleet.api).await;
    let known: BTreeMap<_, _> = hub.families.iter().chain(&agent.families).collect();
    let gone: Vec<_> = LABELS
        .iter()
        .chain(&MORE)
        .map(|(name, _)| name.to_string())
        .filter(|name| !known.contains_key(name))
        .collect();
    assert!(gone.is_empty(), "in the table of labels and on no page: {gone:?}");
    let mut text = String::from(
        "Names without `karmada_` are Karmada's or Kubernetes', and mean the same as there. Histograms have `_bucket`, `_sum` and \
         `_count`.\n\n## The hub\n\n`/metrics` on the hub's port, for whoever has the credentials that \
         `karmada-hub credentials --monitoring` makes. Families about audit and encryption are there while these are on. A hub on a \
         stock API server has `leader_election_master_status` (1 while it leads) and none of the store's figures.\n\n",
    );
    table(&hub, &mut text);
    text.push_str(
        "\n## An agent\n\n`/metrics` on port 8080. Those of the report budget are there if it has one.\n\n",
    );
    table(&agent, &mut text);
    page("metrics.md", "Metrics", &text);
}
