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

use karmada_client::{Patch, Rest};
use karmada_tests::{
    fleet::{Binaries, Fleet, Options},
    link::Mode,
    samples,
    wait::{PATIENCE, eventually, until},
};
use serde_json::{Value, json};

const FLEET: &str = env!("CARGO_BIN_EXE_fleet");

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
    let list: Value = serde_json::from_str(&yaml).expect("JSON");
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

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_explained() {
    let Some(fleet) = fleet("explained", 2, Options::default()).await else { return };
    let [one, two] = [fleet.members[0].name.clone(), fleet.members[1].name.clone()];
    fleet.create_namespace().await;
    let policy = samples::divided_policy("web", &[(&one, 1), (&two, 2)]);
    let idle = samples::policy("idle", samples::selector("apps/v1", "Deployment", "webb"), &[&one]);
    let nowhere = [samples::config_map("lonely", "1"), samples::config_map_policy("lonely", &["atlantis"])];
    fleet.create([samples::deployment("web", 3), policy, idle, samples::config_map("nobodys", "1")]).await;
    fleet.create(nowhere).await;
    let n = format!("-n={}", fleet.namespace);

    let told = says(&fleet, &["explain", "deploy/web", &n], "the placement", |text| {
        text.contains("Decided now: the same") && text.matches("applied, Healthy").count() == 2
    })
    .await;
    println!("{told}");
    let shares = [row(&told, &[&one, "yes", "1"]), row(&told, &[&two, "yes", "2"])];
    assert!(shares.iter().all(Option::is_some), "{told}");
    for part in [
        &format!("PropagationPolicy {}/web has it, by name", fleet.namespace),
        "weight 2 of 3",
        "3 replicas divided by weights",
        "names \"webb\"",
        "What to do:\n  nothing",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // A template whose policy names clusters that are not there, by its namespace and name.
    let lonely = format!("{}/lonely", fleet.namespace);
    let told = says(&fleet, &["explain", &lonely, "-r", "cm"], "why it is nowhere", |text| {
        text.contains("did not match the placement cluster affinity")
    })
    .await;
    println!("{told}");
    assert!(
        told.contains("it is not named") && told.contains("spec.placement.clusterAffinity.clusterNames"),
        "{told}"
    );
    assert!(
        told.contains(&format!("For {one}, {two}: let spec.placement.clusterAffinity mean it")),
        "{told}"
    );
    // Everything of a name: the template and its policy, as JSON.
    let told = says(&fleet, &["explain", &lonely, "-o", "json"], "both", |text| text.starts_with('[')).await;
    let both: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(both.as_array().map(Vec::len), Some(2), "{told}");
    assert_eq!(both[0]["placement"]["verdicts"][0]["verdict"], "no");
    // A template of no policy, and a policy of no template.
    let told = says(&fleet, &["explain", "cm", "nobodys", &n], "no policy", |_| true).await;
    println!("{told}");
    assert!(told.contains("Policy:      none") && told.contains("Write a PropagationPolicy"), "{told}");
    let told = says(&fleet, &["explain", "pp/idle", &n], "an idle policy", |_| true).await;
    println!("{told}");
    assert!(
        told.contains("called \"webb\"; did you mean web?") && row(&told, &[&one, "yes"]).is_some(),
        "{told}"
    );
    // The short form stands in the binding, where kubectl describe shows it.
    let binding = samples::binding_path(&fleet.namespace, "lonely-configmap");
    let short = format!("{one}: no, it is not named");
    until(&fleet.api, &binding, "with a short explanation", PATIENCE, |binding| {
        samples::condition_of(binding, "PlacementExplained")
            .and_then(|condition| condition["message"].as_str())
            .is_some_and(|message| message.contains(&short))
    })
    .await;
    for (args, hint) in [
        (vec!["explain", "deploy/webb", &n], "did you mean web?"),
        (vec!["explain", "wev", &n], "did you mean web?"),
    ] {
        let output = hub(&fleet, &args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{args:?}: {}", text(&output.stderr));
    }
    fleet.clean_up().await;
}

/// The ready replicas of a Deployment on all members together.
async fn ready_everywhere(apis: &[Rest], path: &str) -> i64 {
    let mut sum = 0;
    for api in apis {
        let live = api.get(path).await.unwrap_or_default();
        sum += live.pointer("/status/readyReplicas").and_then(Value::as_i64).unwrap_or(0);
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_cluster_is_served_throughout() {
    let Some(fleet) = fleet("drained", 3, Options::default()).await else { return };
    let names: Vec<&str> = fleet.members.iter().map(|member| member.name.as_str()).collect();
    let [one, two, three] = [names[0], names[1], names[2]];
    fleet.create_namespace().await;
    // Divided 2:1 over two of three clusters by weights, one copy somewhere, one that can be nowhere else, and what
    // belongs to it.
    let web = samples::divided_policy("web", &[(one, 2), (two, 1)]);
    let mut api = samples::deployment_policy("api", &[one]);
    api["spec"]["placement"]["spreadConstraints"] =
        json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
    fleet.create([samples::deployment("web", 3), web, samples::deployment("api", 2), api]).await;
    fleet.create([samples::deployment("pinned", 1), samples::deployment_policy("pinned", &[one])]).await;
    let mut config = samples::config_map_policy("pinned", &[one]);
    config["metadata"]["name"] = "pinned-config".into();
    fleet.create([samples::config_map("pinned", "1"), config]).await;
    let n = format!("-n={}", fleet.namespace);
    says(&fleet, &["get", "deploy", "--members", &n], "everything to run", |table| {
        let is = |begins: &[&str]| row(table, begins).is_some();
        is(&["web", one, "2/2"])
            && is(&["web", two, "1/1"])
            && is(&["api", one, "2/2"])
            && is(&["pinned", one, "1/1"])
    })
    .await;

    // Only now may the one copy go elsewhere: before, the cluster with more room would have had it.
    let policy = samples::policy_path(&fleet.namespace, "propagationpolicies", "api");
    let wider = json!({ "spec": { "placement": { "clusterAffinity": { "clusterNames": [one, three] } } } });
    fleet.api.patch(&policy, Patch::Merge, &wider).await.expect("a wider policy");
    let binding = samples::binding_path(&fleet.namespace, "api-deployment");
    until(&fleet.api, &binding, "placed by the wider policy, where it was", PATIENCE, |binding| {
        let names = binding["spec"]["placement"]["clusterAffinity"]["clusterNames"].as_array();
        names.is_some_and(|names| names.len() == 2)
            && binding["status"]["schedulerObservedGeneration"] == binding["metadata"]["generation"]
            && samples::placed(binding) == [(one.to_owned(), 2)]
    })
    .await;

    // Before: what would happen, without it happening.
    let told =
        says(&fleet, &["what-if", "--taint", &format!("{one}=drain:NoExecute")], "what if", |_| true).await;
    println!("{told}");
    assert!(told.contains("2 would move, 2 would be nowhere"), "{told}");
    let told = says(&fleet, &["what-if", "--lose", one, "-o", "json"], "what if, as JSON", |_| true).await;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert!(told["objects"].as_array().is_some_and(|objects| objects.len() >= 4), "{told}");

    // Service is watched while the cluster is drained.
    let apis: Vec<Rest> = fleet.members.iter().map(|member| member.api.clone()).collect();
    let paths = ["web", "api", "pinned"].map(|name| samples::deployment_path(&fleet.namespace, name));
    let wanted = [3, 2, 1];
    let watching = tokio::spawn(async move {
        let mut least = wanted;
        loop {
            for (path, least) in paths.iter().zip(&mut least) {
                *least = (*least).min(ready_everywhere(&apis, path).await);
            }
            assert_eq!(least, wanted, "web, api and pinned serve as before all the time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let output = hub(&fleet, &["drain", one, "--wait", "--timeout=170s"]);
    let told = text(&output.stdout);
    println!("{told}{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "what is pinned cannot move: {told}");
    assert!(
        told.contains(&format!("{one} cluster cordoned")) && told.contains("2 objects moved, 1 cannot move"),
        "{told}"
    );
    assert!(told.contains("pinned: CANNOT MOVE: no other cluster can take it"), "{told}");
    assert!(told.contains("nothing of it runs"), "{told}");
    assert!(text(&output.stderr).contains("Deployment"), "{}", text(&output.stderr));
    assert!(!watching.is_finished(), "service was kept");
    says(&fleet, &["get", "deploy", "--members", &n], "the new places", |table| {
        let is = |begins: &[&str]| row(table, begins).is_some();
        is(&["web", two, "3/3"])
            && is(&["api", three, "2/2"])
            && is(&["pinned", one, "1/1"])
            && !is(&["web", one])
            && !is(&["api", one])
    })
    .await;
    watching.abort();
    assert!(watching.await.is_err_and(|error| error.is_cancelled()), "service was kept");

    // Nothing comes back by itself, and what is asked to does.
    let told = says(&fleet, &["uncordon", one], "uncordoned", |_| true).await;
    assert_eq!(told, format!("{one} cluster uncordoned\n"));
    let told = says(&fleet, &["failback", "--cluster", one], "failed back", |_| true).await;
    println!("{told}");
    assert!(
        told.contains("web: ") && told.contains("to be placed anew (workloadrebalancer/failback-"),
        "{told}"
    );
    says(&fleet, &["get", "deploy", "--members", &n], "web where it belongs", |table| {
        row(table, &["web", one, "2/2"]).is_some() && row(table, &["web", two, "1/1"]).is_some()
    })
    .await;

    // Taints as kubectl has them.
    let rows: [(&[&str], Option<i32>, &str); 8] = [
        (&["taint", one, "gpu=a100:NoSchedule"], Some(0), "tainted"),
        (&["taint", one, "gpu=h100:NoSchedule"], Some(1), "--overwrite"),
        (&["taint", "clusters", one, "gpu=h100:NoSchedule", "--overwrite"], Some(0), "modified"),
        (&["taint", one, "gpu:NoSchedule-"], Some(0), "untainted"),
        (&["taint", one, "gpu-"], Some(1), "is not there"),
        (&["taint", one, "gpu:Sometimes"], Some(2), "NoSchedule"),
        (&["cordon", "membr1"], Some(1), "there is no cluster \"membr1\""),
        (&["drain", "nowhere-at-all"], Some(1), "there is no cluster"),
    ];
    for (args, code, part) in rows {
        let output = hub(&fleet, args);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), said.contains(part)), (code, true), "{args:?}: {said}");
    }
    fleet.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_explanation_sees_the_room_that_the_scheduler_saw() {
    let Some(fleet) = fleet("room", 2, Options::impatient()).await else { return };
    fleet.create_namespace().await;
    for member in &fleet.members {
        let path = karmada_tests::fleet::cluster_path(&member.name);
        until(&fleet.api, &path, "reported with its nodes", PATIENCE, |cluster| {
            !cluster["metadata"]["annotations"]["agent.karmada.io/nodes"].is_null()
                && !cluster["status"]["resourceSummary"]["allocatable"].is_null()
        })
        .await;
    }
    let heavy = |name: &str, replicas: i64| {
        let mut workload = samples::deployment(name, replicas);
        workload["spec"]["template"]["spec"]["containers"][0]["resources"] =
            json!({ "requests": { "cpu": "100m" } });
        let mut policy = samples::deployment_policy(name, &[]);
        policy["spec"]["placement"] = json!({ "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
        } });
        [workload, policy]
    };
    // More than any cluster has; what the scheduler says of it counts the room of each.
    fleet.create(heavy("huge", 1_000_000)).await;
    let n = format!("-n={}", fleet.namespace);
    let path = samples::binding_path(&fleet.namespace, "huge-deployment");
    eventually("scheduler and explanation to agree", PATIENCE, || async {
        let binding = fleet.api.get(&path).await.map_err(|e| e.to_string())?;
        let scheduled = samples::condition_of(&binding, "Scheduled").ok_or("not scheduled yet")?;
        let said = scheduled["message"].as_str().unwrap_or_default().to_owned();
        let output = hub(&fleet, &["explain", "deploy/huge", &n, "-o", "json"]);
        let told: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        let error = told["placement"]["error"].as_str().unwrap_or_default().to_owned();
        if said.contains("has room for") && said == error { Ok(()) } else { Err(format!("{said} / {error}")) }
    })
    .await;
    fleet.clean_up().await;
}
