//! The commands that look across clusters, and those that move things between them, on real processes.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

use std::{
    process::{Command, Output},
    time::Duration,
};

use karmada_tests::{
    fleet::{Binaries, Fleet, Options},
    link::Mode,
    samples,
    wait::eventually,
};

const FLEET: &str = env!("CARGO_BIN_EXE_fleet");

/// How long the fleet may take to do what it was told, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn fleet(test: &str, members: usize, options: Options) -> Option<Fleet> {
    Fleet::start(test, members, &Binaries::in_one(FLEET), options).await
}

/// Runs a command of the hub's program against the fleet's hub.
fn hub(fleet: &Fleet, args: &[&str]) -> Output {
    Command::new("timeout")
        .args(["60", FLEET, "karmada-hub"])
        .args(args)
        .arg(format!("--kubeconfig={}", fleet.kubeconfig.display()))
        .env_remove("KUBECONFIG")
        .output()
        .expect("karmada-hub runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command until its output is as wanted.
async fn says(fleet: &Fleet, args: &[&str], what: &str, is: impl Fn(&str) -> bool) -> String {
    eventually(what, PATIENCE, || async {
        let output = hub(fleet, args);
        let shown = text(&output.stdout);
        if output.status.success() && is(&shown) {
            Ok(shown)
        } else {
            Err(format!("{shown}{}", text(&output.stderr)))
        }
    })
    .await
}

/// The cells of the row that begins with these.
fn row(table: &str, begins: &[&str]) -> Option<Vec<String>> {
    let rows = table.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    rows.into_iter()
        .find(|cells| cells.len() >= begins.len() && cells.iter().zip(begins).all(|(a, b)| a == b))
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_seen_on_every_cluster() {
    let Some(fleet) = fleet("copies", 2, Options::impatient()).await else { return };
    let [one, two] = [fleet.members[0].name.clone(), fleet.members[1].name.clone()];
    fleet.create_namespace().await;
    fleet.create(samples::article([&one, &two])).await;
    let config = [samples::config_map("settings", "1"), samples::config_map_policy("settings", &[&two])];
    fleet.create(config).await;

    let n = format!("-n={}", fleet.namespace);
    let is_row = |table: &str, begins: &[&str]| row(table, begins).is_some();
    let table = says(&fleet, &["get", "deploy", "--members", &n], "both copies to be ready", |table| {
        is_row(table, &["nginx", &one, "1/1", "Y"]) && is_row(table, &["nginx", &two, "2/2", "Y"])
    })
    .await;
    let heading: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["NAME", "CLUSTER", "READY", "ADOPTION", "AGE"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    // By kind, by plural with its group, by name, on one cluster, over all namespaces.
    let rows: [(&[&str], usize); 5] = [
        (&["get", "deployments.apps", "nginx", "--members", &n], 2),
        (&["get", "deployment/nginx", "--members", &n, "-C", &two], 1),
        (&["get", "deploy", "--members", "-A", "-l", "app=nginx"], 2),
        (&["get", "cm", "--members", &n], 1),
        (&["get", "ns", &fleet.namespace, "--members"], 2),
    ];
    for (args, count) in rows {
        says(&fleet, args, &format!("{count} rows of {args:?}"), |table| table.lines().count() == count + 1)
            .await;
    }
    let yaml = says(&fleet, &["get", "deploy", "--members", &n, "-o", "json"], "objects", |_| true).await;
    let list: serde_json::Value = serde_json::from_str(&yaml).expect("JSON");
    let copy = &list["items"][1];
    assert_eq!(copy["spec"]["replicas"], 2, "as overridden for the cluster");
    assert_eq!(copy["status"]["readyReplicas"], 2);
    assert_eq!(copy["metadata"]["annotations"]["resource.karmada.io/cached-from-cluster"], two.as_str());

    // A cluster that falls silent is still shown, with the age of what is known.
    fleet.members[0].link.set(Mode::BlackHole);
    says(&fleet, &["get", "deploy", "--members", &n], "stale knowledge", |table| {
        row(table, &["nginx", &one, "1/1", "Y"])
            .is_some_and(|cells| cells.last().is_some_and(|c| c == "(stale)"))
            && row(table, &["nginx", &two, "2/2", "Y"]).is_some_and(|cells| cells.len() == 5)
    })
    .await;
    fleet.members[0].link.set(Mode::Pass);

    // What is not there is said, with a hint where there is one.
    for (args, hint) in [
        (vec!["get", "deploy", "ngin", "--members", &n], "no cluster has deployment.apps \"ngin\""),
        (vec!["get", "deploymnt", "--members", &n], "did you mean deployments.apps"),
        (vec!["get", "deploy", "--members", &n, "-C", "membr1"], "there is no cluster \"membr1\""),
    ] {
        let output = hub(&fleet, &args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{args:?}: {}", text(&output.stderr));
    }
    fleet.clean_up().await;
}
