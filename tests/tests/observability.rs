//! What hub and agents show of themselves: `/metrics` and logs, scraped from real processes.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

use std::{collections::BTreeSet, fs, net::SocketAddr, path::Path};

use karmada_client::Patch;
use karmada_telemetry::metrics::Figures;
use karmada_tests::{
    figures::{figures, scrape},
    fleet::{Binaries, Fleet, Options, cluster_path},
    monitoring,
    process::own_address,
    samples::{
        self, config_map, config_map_path, config_map_policy, deployment, deployment_path, deployment_policy,
        policy, selector,
    },
    wait::{END, PATIENCE, eventually, gone, until},
};
use serde_json::{Value, json};

/// A family, some labels, and what their sum is at least.
type Least<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

/// Heartbeats so fast that a test sees many of them, and a monitor that does not wait for long.
fn fast() -> Options {
    let mut options = Options::impatient();
    options.hub.push("--log-format=json".to_owned());
    options.agent.push("--log-format=json".to_owned());
    options
}

async fn fleet(test: &str, members: usize, options: Options) -> Option<Fleet> {
    let fleet = Fleet::start(test, members, &Binaries::in_one(env!("CARGO_BIN_EXE_fleet")), options).await?;
    fleet.create_namespace().await;
    Some(fleet)
}

async fn hub(fleet: &Fleet) -> Figures {
    figures(&fleet.api).await
}

/// Gives a member's agent a page, which takes a restart.
async fn with_page(fleet: &mut Fleet, member: usize) -> SocketAddr {
    let address = own_address();
    let agent = &mut fleet.members[member].agent;
    agent.terminate(END).await.expect("the agent ends");
    agent.set_arg("--metrics-bind-address=", format!("--metrics-bind-address={address}"));
    agent.spawn().expect("it starts");
    address
}

/// Waits until a figure of the hub's is as wanted.
async fn hub_shows(
    fleet: &Fleet,
    what: &str,
    name: &str,
    labels: &[(&str, &str)],
    is: impl Fn(Option<f64>) -> bool,
) {
    eventually(what, PATIENCE, || async {
        let value = hub(fleet).await.sum(name, labels);
        if is(value) { Ok(()) } else { Err(format!("{name}{labels:?} is {value:?}")) }
    })
    .await;
}

#[tokio::test]
async fn propagation_can_be_measured_at_both_ends() {
    let Some(mut fleet) = fleet("measured", 2, Options::default()).await else { return };
    let page_at = with_page(&mut fleet, 0).await;
    let names: Vec<String> = fleet.members.iter().map(|m| m.name.clone()).collect();
    let clusters: Vec<&str> = names.iter().map(String::as_str).collect();
    let namespace = fleet.namespace.clone();
    let all = policy("everything", selector("v1", "ConfigMap", ""), &clusters);
    fleet
        .create([all, deployment_policy("web", &clusters), config_map("first", "1"), deployment("web", 1)])
        .await;
    for member in &fleet.members {
        let there = |_: &Value| true;
        until(&member.api, &config_map_path(&namespace, "first"), "there", PATIENCE, there).await;
        until(&member.api, &deployment_path(&namespace, "web"), "there", PATIENCE, there).await;
    }

    // What is created from now on is somebody's change, on each member.
    let took = "karmada_hub_propagation_duration_seconds";
    let before = hub(&fleet).await.sum(&format!("{took}_count"), &[("operation", "create")]).unwrap_or(0.0);
    fleet.create((0..5).map(|i| config_map(&format!("object-{i}"), "1"))).await;
    let count = format!("{took}_count");
    hub_shows(&fleet, "ten creations to be measured", &count, &[("operation", "create")], |n| {
        n >= Some(before + 10.0)
    })
    .await;
    let scaled = json!({"spec": {"replicas": 2}});
    fleet.api.patch(&deployment_path(&namespace, "web"), Patch::Merge, &scaled).await.expect("it is scaled");
    hub_shows(&fleet, "two updates to be measured", &count, &[("operation", "update")], |n| n >= Some(2.0))
        .await;
    hub_shows(&fleet, "nothing to be awaited", "karmada_hub_propagation_pending", &[], |n| n == Some(0.0))
        .await;

    let shown = hub(&fleet).await;
    let seconds = shown.sum(&format!("{took}_sum"), &[("operation", "create")]).unwrap();
    let measured = shown.sum(&count, &[("operation", "create")]).unwrap();
    assert!(seconds > 0.0 && seconds / measured < 30.0, "{seconds} s for {measured}");
    // (family, labels, at least)
    let table: [Least<'_>; 19] = [
        ("policy_apply_attempts_total", &[("result", "success")], 7.0),
        ("resource_apply_policy_duration_seconds_count", &[("result", "success")], 7.0),
        ("resource_match_policy_duration_seconds_count", &[], 7.0),
        ("binding_sync_work_duration_seconds_count", &[("result", "success")], 7.0),
        ("karmada_scheduler_schedule_attempts_total", &[("result", "scheduled")], 7.0),
        ("karmada_scheduler_queue_incoming_bindings_total", &[("event", "BindingAdd")], 7.0),
        ("workqueue_adds_total", &[("name", "detector")], 7.0),
        ("workqueue_work_duration_seconds_count", &[("name", "status")], 7.0),
        ("cluster_ready_state", &[], 2.0),
        ("cluster_node_number", &[("member_cluster", &names[0])], 1.0),
        ("cluster_cpu_allocatable_number", &[("member_cluster", &names[1])], 1.0),
        ("apiserver_longrunning_requests", &[("resource", "works")], 3.0),
        ("apiserver_request_total", &[("verb", "POST"), ("resource", "configmaps"), ("code", "201")], 6.0),
        ("apiserver_storage_objects", &[("resource", "works.work.karmada.io")], 14.0),
        ("karmada_store_commit_duration_seconds_count", &[], 14.0),
        ("karmada_store_written_bytes_total", &[], 10_000.0),
        ("karmada_hub_received_bytes_total", &[], 10_000.0),
        ("karmada_hub_connections_open", &[], 2.0),
        ("process_resident_memory_bytes", &[], 1e6),
    ];
    for (family, labels, least) in table {
        let value = shown.sum(family, labels);
        assert!(value >= Some(least), "{family}{labels:?} is {value:?}, not {least}");
    }
    let ages: Vec<f64> = clusters
        .iter()
        .filter_map(|c| shown.value("karmada_hub_lease_age_seconds", &[("member_cluster", c)]))
        .collect();
    assert!(ages.len() == 2 && ages.iter().all(|age| *age < 40.0), "{ages:?}");
    // Nothing is kept or shown per object.
    let values: BTreeSet<&str> =
        shown.samples.iter().flat_map(|s| s.labels.values()).map(String::as_str).collect();
    assert!(!values.iter().any(|value| value.contains("object-") || *value == "web"), "{values:?}");
    assert!(shown.samples.len() < 2_000, "{} series", shown.samples.len());

    let agent = scrape(page_at).await.expect("the agent's page");
    let own: &[(&str, &str)] = &[("member_cluster", &names[0])];
    let table: [Least<'_>; 14] = [
        ("karmada_agent_active", &[], 1.0),
        ("karmada_agent_works", &[], 7.0),
        ("karmada_agent_applies_total", &[], 6.0),
        ("karmada_agent_work_reports_total", &[], 5.0),
        ("karmada_agent_lease_renewals_total", &[], 1.0),
        ("karmada_agent_hub_connected", &[], 1.0),
        ("karmada_agent_hub_received_bytes_total", &[], 5_000.0),
        ("karmada_agent_hub_sent_bytes_total", &[], 1_000.0),
        ("karmada_agent_member_connected", &[], 1.0),
        ("karmada_agent_hub_last_contact_age_seconds", &[], 0.0),
        ("work_sync_workload_duration_seconds_count", &[("result", "success")], 6.0),
        ("cluster_sync_status_duration_seconds_count", own, 1.0),
        ("cluster_ready_state", own, 1.0),
        ("workqueue_adds_total", &[("name", "works")], 6.0),
    ];
    for (family, labels, least) in table {
        let value = agent.sum(family, labels);
        assert!(value >= Some(least), "{family}{labels:?} is {value:?}, not {least}");
    }
    assert!(agent.value("karmada_agent_hub_last_contact_age_seconds", &[]) < Some(40.0));

    // Rules and boards ask for nothing else.
    for (program, page) in [("karmada-hub", &shown), ("karmada-agent", &agent)] {
        let missing = monitoring::missing(program, page);
        assert!(missing.is_empty(), "manifests/monitoring/{program}: {missing:#?}");
    }
    fleet.clean_up().await;
}

#[tokio::test]
async fn a_silent_cluster_is_seen_and_a_removed_one_leaves_no_series() {
    let Some(mut fleet) = fleet("silent", 1, fast()).await else { return };
    let name = fleet.members[0].name.clone();
    let own: &[(&str, &str)] = &[("member_cluster", &name)];
    let (ready, age) = ("cluster_ready_state", "karmada_hub_lease_age_seconds");
    hub_shows(&fleet, "the cluster to be shown as ready", ready, own, |n| n == Some(1.0)).await;
    hub_shows(&fleet, "a fresh lease", age, own, |n| n.is_some_and(|age| age < 10.0)).await;

    fleet.members[0].agent.kill();
    hub_shows(&fleet, "the cluster to be shown as not ready", ready, own, |n| n == Some(0.0)).await;
    let silent = hub(&fleet).await.value(age, own).expect("its lease has an age");
    assert!(silent >= 11.0, "it was silent for the grace period at least: {silent}");
    // The lease goes on to age while nothing happens.
    hub_shows(&fleet, "the lease to age", age, own, |n| n.is_some_and(|age| age > silent)).await;

    fleet.members[0].agent.spawn().expect("it starts");
    hub_shows(&fleet, "the cluster to be ready again", ready, own, |n| n == Some(1.0)).await;
    hub_shows(&fleet, "a fresh lease again", age, own, |n| n.is_some_and(|age| age < 10.0)).await;

    fleet.api.delete(&cluster_path(&name), &json!({})).await.expect("the Cluster is to go");
    gone(&fleet.api, &cluster_path(&name), PATIENCE).await;
    eventually("all series of the cluster to be gone", PATIENCE, || async {
        let shown = hub(&fleet).await;
        let left: Vec<_> = shown.samples.iter().filter(|s| s.labels.values().any(|v| *v == name)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    fleet.clean_up().await;
}

/// The lines of a log that are JSON objects.
fn log(dir: &Path, process: &str) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(format!("{process}.log"))).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[tokio::test]
async fn logs_say_once_what_a_user_made_happen_and_nothing_per_heartbeat() {
    let Some(fleet) = fleet("logs", 1, fast()).await else { return };
    let (member, namespace) = (&fleet.members[0], &fleet.namespace);
    fleet.create([config_map_policy("greeting", &[&member.name]), config_map("greeting", "1")]).await;
    until(&member.api, &config_map_path(namespace, "greeting"), "there", PATIENCE, |_| true).await;
    let binding = samples::binding_path(namespace, "greeting-configmap");
    until(&fleet.api, &binding, "fully applied", PATIENCE, |b| {
        karmada_tests::fleet::condition(b, "FullyApplied") == Some("True")
    })
    .await;
    let (hub_log, agent_log) = ("hub".to_owned(), format!("{}-agent", member.name));
    let about = |line: &Value| {
        line["kind"] == "ConfigMap" && line["name"] == "greeting" && line["namespace"] == namespace.as_str()
    };
    // (process, message, another field and its value, whether it took time)
    let table = [
        (&hub_log, "policy applied", ("policy", "greeting"), true),
        (&hub_log, "scheduled", ("clusters", member.name.as_str()), true),
        (&hub_log, "works written", ("clusters", member.name.as_str()), true),
        (&hub_log, "applied on all its clusters", ("level", "INFO"), false),
        (&agent_log, "carried out", ("cluster", member.name.as_str()), true),
    ];
    for (process, message, (field, value), timed) in table {
        let line = eventually(&format!("{process} to say {message:?}"), PATIENCE, || async {
            let lines = log(fleet.dir.path(), process);
            let line = lines.into_iter().find(|line| line["message"] == message && about(line));
            line.ok_or("not yet")
        })
        .await;
        assert_eq!(line[field], value, "{line}");
        assert_eq!(line["level"], "INFO", "{line}");
        assert_eq!(line["duration_ms"].is_u64(), timed, "{line}");
    }
    // Leases are renewed every second here, and statuses every two.
    // What is said of evictions is about the hub: a busy machine may keep it from its clock for a while.
    let evictions = |line: &Value| line["message"].as_str().is_some_and(|m| m.starts_with("evictions are "));
    let lines = || {
        [&hub_log, &agent_log]
            .map(|process| log(fleet.dir.path(), process).iter().filter(|line| !evictions(line)).count())
    };
    let renewed = |p: &Figures| p.sum("apiserver_request_total", &[("resource", "leases"), ("code", "200")]);
    let (before, beats) = (lines(), renewed(&hub(&fleet).await));
    eventually("five heartbeats", PATIENCE, || async {
        let now = lines();
        let last = [&hub_log, &agent_log].map(|p| log(fleet.dir.path(), p).last().cloned());
        assert_eq!(now, before, "no line per heartbeat: {last:?}");
        let after = renewed(&hub(&fleet).await);
        if after.unwrap_or(0.0) >= beats.unwrap_or(0.0) + 5.0 { Ok(()) } else { Err((beats, after)) }
    })
    .await;
    fleet.clean_up().await;
}

/// A service that takes audit events: what it was sent.
async fn taker() -> (SocketAddr, std::sync::Arc<parking_lot::Mutex<Vec<Value>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, taken) = (listener.local_addr().unwrap(), std::sync::Arc::default());
    let lists: std::sync::Arc<parking_lot::Mutex<Vec<Value>>> = std::sync::Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let lists = lists.clone();
            let take = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let lists = lists.clone();
                async move {
                    assert_eq!(request.uri().path(), "/audit");
                    let body = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
                    lists.lock().push(serde_json::from_slice(&body).unwrap());
                    let answer = hyper::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
                    Ok::<_, hyper::Error>(answer)
                }
            });
            tokio::spawn(async move {
                let io = hyper_util::rt::TokioIo::new(io);
                let server =
                    hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                let _ = server.serve_connection(io, take).await;
            });
        }
    });
    (address, taken)
}

/// Who waits for the webhook has posted, when it is answered, that it came and what came of it.
#[tokio::test]
async fn audit_events_are_posted_to_a_webhook() {
    let (address, taken) = taker().await;
    let dir = tempfile::tempdir().unwrap();
    let (policy, config) = (dir.path().join("policy"), dir.path().join("webhook"));
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [create], resources: [{group: '', resources: [configmaps]}]}]").unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{address}/audit'}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]"
    );
    fs::write(&config, text).unwrap();
    let mut options = Options::impatient();
    options.hub.extend([
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-webhook-config-file={}", config.display()),
        "--audit-webhook-mode=blocking".to_owned(),
    ]);
    let Some(fleet) = fleet("audit-webhook", 0, options).await else { return };
    fleet.create([config_map("told", "a")]).await;
    let lists = taken.lock().clone();
    let events: Vec<&Value> = lists.iter().flat_map(|list| list["items"].as_array().unwrap()).collect();
    let stages: Vec<&str> = events
        .iter()
        .filter(|event| event["requestURI"] == format!("/api/v1/namespaces/{}/configmaps", fleet.namespace))
        .map(|event| event["stage"].as_str().unwrap())
        .collect();
    assert_eq!(stages, ["RequestReceived", "ResponseComplete"], "{lists:?}");
    assert!(lists.iter().all(|list| list["kind"] == "EventList"), "{lists:?}");
}
