//! The hub on somebody else's API server: `serve --kubeconfig`, in real processes, over a kubesim that knows no Karmada
//! kinds. What it admits is for webhooks to say; where they stay out of it, whatever it is sent.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod admission;
mod migrating;
mod moving;
mod reaching;
mod stock;
mod terms;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
    time::Duration,
};

use karmada_client::{Patch, Rest};
use karmada_tests::{
    fleet::{Engine, Fleet, Options, cluster_path, condition, file, rest, server_of, start_hub},
    link::{Link, Mode},
    samples::{
        article, binding_path, config_map, config_map_path, config_map_policy, deployment_path, policy_path,
        works_path,
    },
    wait::{END, PATIENCE, eventually, gone, throughout, until},
};
use serde_json::{Value, json};

use stock::{Hub, Stock, binaries, quick};

async fn stock_fleet(test: &str, members: usize, hub: Vec<String>) -> Option<Fleet> {
    let options = Options { engine: Engine::Stock, hub, ..Options::default() };
    let fleet = Fleet::start(test, members, &binaries(), options).await?;
    fleet.create_namespace().await;
    Some(fleet)
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("every stored object has a uid").to_owned()
}

async fn holder(api: &Rest) -> Result<String, String> {
    let lease = api.get(&lease_path("karmada-hub")).await.map_err(|e| e.to_string())?;
    match lease["spec"]["holderIdentity"].as_str() {
        Some(holder) if !holder.is_empty() => Ok(holder.to_owned()),
        _ => Err("nobody".to_owned()),
    }
}

fn lease_path(name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases/{name}")
}

fn rolled_out(replicas: i64) -> impl Fn(&Value) -> bool {
    move |o| {
        let status = &o["status"];
        status["observedGeneration"] == o["metadata"]["generation"]
            && ["replicas", "readyReplicas"]
                .iter()
                .all(|field| status[field].as_i64().unwrap_or(0) == replicas)
    }
}

/// The uid of an object on a member, once it is there.
async fn placed(api: &Rest, path: &str) -> String {
    uid(&until(api, path, "on the member", PATIENCE, |_| true).await)
}

/// Whether an object is the one that it was.
async fn is_still(api: &Rest, path: &str, before: &str) -> Result<(), String> {
    let object = api.get(path).await.map_err(|e| e.to_string())?;
    if uid(&object) == before { Ok(()) } else { Err(format!("{path} was made again")) }
}

#[tokio::test]
async fn the_article_on_a_stock_server() {
    let Some(fleet) = stock_fleet("stock", 2, Vec::new()).await else { return };
    let [first, second] = &fleet.members[..] else { panic!("two members") };
    admission::taken_out(&fleet.api).await;
    fleet.create(article([&first.name, &second.name])).await;
    let path = deployment_path(&fleet.namespace, "nginx");
    until(&fleet.api, &path, "rolled out", PATIENCE, rolled_out(3)).await;
    let binding = binding_path(&fleet.namespace, "nginx-deployment");
    until(&fleet.api, &binding, "fully applied", PATIENCE, |b| condition(b, "FullyApplied") == Some("True"))
        .await;
    for (member, replicas) in [(first, 1), (second, 2)] {
        assert_eq!(member.api.get(&path).await.unwrap()["spec"]["replicas"], replicas, "{}", member.name);
    }
    // What admission would have done, controllers did.
    let policy = policy_path(&fleet.namespace, "propagationpolicies", "nginx-propagation");
    let policy = fleet.api.get(&policy).await.expect("the policy");
    let id = &policy["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"];
    assert!(id.as_str().is_some_and(|id| !id.is_empty()), "{policy}");
    assert_eq!(policy["spec"]["schedulerName"], "default-scheduler", "{policy}");
    let template = fleet.api.get(&path).await.unwrap();
    assert_eq!(template["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"], *id);
    let cluster = fleet.api.get(&cluster_path(&first.name)).await.unwrap();
    assert!(cluster["spec"]["resourceModels"].is_array(), "{cluster}");

    // A label that is dropped comes back, and nothing is claimed anew.
    let drop = json!({"metadata": {"labels": {"propagationpolicy.karmada.io/permanent-id": null}}});
    let at = policy_path(&fleet.namespace, "propagationpolicies", "nginx-propagation");
    fleet.api.patch(&at, Patch::Merge, &drop).await.expect("nobody refuses that here");
    until(&fleet.api, &at, "marked again", PATIENCE, |p| {
        p["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"] == *id
    })
    .await;

    // One member under two names: nobody refuses it here, and somebody says so.
    let mut twin = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "twin"},
        "spec": {"syncMode": "Pull", "id": cluster["spec"]["id"]},
    });
    fleet.api.post("/apis/cluster.karmada.io/v1alpha1/clusters", &twin.take()).await.expect("it is taken");
    eventually("an event about the twin", PATIENCE, || async {
        let events = fleet.api.get("/api/v1/namespaces/default/events").await.map_err(|e| e.to_string())?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let about = |e: &&Value| e["reason"] == "DuplicateClusterID" && e["involvedObject"]["name"] == "twin";
        events.iter().find(about).map(|_| ()).ok_or("there is none".to_owned())
    })
    .await;
    fleet.api.delete(&cluster_path("twin"), &json!({})).await.expect("it goes again");

    // An execution namespace that somebody deletes is made again with its Works, and the member keeps everything.
    let before = uid(&first.api.get(&path).await.unwrap());
    let execution = format!("/api/v1/namespaces/karmada-es-{}", first.name);
    let old = uid(&fleet.api.get(&execution).await.expect("the execution namespace"));
    fleet.api.delete(&execution, &json!({})).await.expect("nobody refuses that here");
    let again = async {
        until(&fleet.api, &execution, "made again", PATIENCE, |n| uid(n) != old).await;
        eventually("its Works to be applied", PATIENCE, || async {
            let works = fleet.api.get(&works_path(&first.name)).await.map_err(|e| e.to_string())?;
            let works = works["items"].as_array().cloned().unwrap_or_default();
            let applied = works.iter().filter(|w| condition(w, "Applied") == Some("True")).count();
            if applied >= 2 { Ok(()) } else { Err(format!("{applied} of {}", works.len())) }
        })
        .await;
    };
    let watched = throughout("the member's object", PATIENCE, || is_still(&first.api, &path, &before));
    tokio::select! {
        () = again => {}
        () = watched => panic!("it was not made again"),
    }

    fleet.api.delete(&path, &json!({})).await.expect("the template is deleted");
    for member in &fleet.members {
        gone(&member.api, &path, PATIENCE).await;
    }
    gone(&fleet.api, &binding, PATIENCE).await;
    fleet.clean_up().await;
}

#[tokio::test]
async fn definitions_are_installed_and_kept_current() {
    let stock = Stock::start(false).await;
    // Somebody's older definition of Works, with a version and a field of their own and without the hub's newest.
    let text = String::from_utf8(run(&["crds"]).stdout).expect("text");
    let definitions: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let mut works =
        definitions.into_iter().find(|d| d["metadata"]["name"] == "works.work.karmada.io").unwrap();
    let spec = "/schema/openAPIV3Schema/properties/spec/properties";
    let version = &mut works["spec"]["versions"][0];
    let mut other = version.clone();
    let fields = version.pointer_mut(spec).and_then(Value::as_object_mut).expect("fields of the spec");
    fields.remove("preserveResourcesOnDeletion").expect("it is known");
    fields.insert("theirs".into(), json!({"type": "string"}));
    other["name"] = json!("v1beta9");
    other["storage"] = json!(false);
    works["spec"]["versions"].as_array_mut().unwrap().push(other);
    let collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    stock.api.post(collection, &works).await.expect("the old definition");
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "w"},
        "spec": {"theirs": "kept", "workload": {"manifests": []}},
    });
    let at = "/apis/work.karmada.io/v1alpha1/namespaces/default/works";
    eventually("Works to be served", PATIENCE, || stock.api.post(at, &work)).await;

    let mut hub = stock.hub("hub", &[]).await;
    hub.ready().await;
    let now = stock.api.get(&format!("{collection}/works.work.karmada.io")).await.expect("the definition");
    let versions = now["spec"]["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 2, "{now}");
    let fields = versions[0].pointer(spec).expect("fields");
    assert!(
        fields.get("theirs").is_some() && fields.get("preserveResourcesOnDeletion").is_some(),
        "{fields}"
    );
    let kept = stock.api.get(&format!("{at}/w")).await.expect("the Work");
    assert_eq!(kept["spec"]["theirs"], "kept");
    let list = stock.api.get(collection).await.expect("definitions");
    let names: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|d| d["metadata"]["name"].clone()).collect();
    assert_eq!(names.len(), karmada_api::crds().len(), "{names:?}");
    hub.logs("brought up to date").await;

    // Its own listener, and a stop that gives the Lease back. A second start changes nothing.
    let mode = fs::metadata(stock.dir.path().join("hub/monitoring.kubeconfig")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let page = hub.own.get_text("/metrics").await.expect("figures");
    assert!(page.contains("# EOF") || page.contains("# TYPE"), "{page}");
    assert!(hub.own.get("/version").await.expect("a version")["gitVersion"].is_string());
    assert_eq!(hub.own.get_text("/livez").await.expect("alive"), "ok");
    assert!(hub.readyz().await.unwrap().contains("[+]hub ok: leading"));
    let missing = hub.own.get("/api/v1/pods").await.expect_err("it has no API");
    assert!(missing.to_string().contains("its API is at"), "{missing}");
    let version = |d: &Value| d["metadata"]["resourceVersion"].clone();
    let before: Vec<_> = list["items"].as_array().unwrap().iter().map(version).collect();
    assert_eq!(hub.process.terminate(END).await.and_then(|s| s.code()), Some(0), "{}", hub.log());
    assert_eq!(holder(&stock.api).await, Err("nobody".to_owned()));
    for kind in [
        "/apis/apps/v1/namespaces/karmada-system/deployments",
        "/api/v1/namespaces/karmada-system/configmaps",
    ] {
        let left = stock.api.get(kind).await.expect("a list");
        assert_eq!(left["items"], json!([]), "its probes are gone");
    }
    hub.process.spawn().expect("it starts again");
    hub.ready().await;
    let list = stock.api.get(collection).await.expect("definitions");
    let after: Vec<_> = list["items"].as_array().unwrap().iter().map(version).collect();
    assert_eq!(before, after);
    hub.logs("collects garbage and runs no workloads").await;
}

#[tokio::test]
async fn one_of_two_hubs_is_killed() {
    let Some(mut fleet) = stock_fleet("election", 1, quick()).await else { return };
    let first = holder(&fleet.api).await.expect("the first leads");
    let mut other = Hub::start(fleet.dir.path(), "other", &fleet.kubeconfig, &[]).await;
    eventually("the second to stand by", PATIENCE, || async {
        let text = other.readyz().await?;
        if text.contains(&format!("standing by, {first} leads")) { Ok(()) } else { Err(text) }
    })
    .await;
    let member = fleet.members[0].api.clone();
    let name = fleet.members[0].name.clone();
    let path = config_map_path(&fleet.namespace, "settings");
    fleet.create([config_map("settings", "one"), config_map_policy("settings", &[&name])]).await;
    let before = placed(&member, &path).await;
    let works = || async {
        let works = fleet.api.get(&works_path(&name)).await.expect("Works");
        let works = works["items"].as_array().cloned().unwrap_or_default();
        works.iter().map(|w| (w["metadata"]["name"].to_string(), uid(w))).collect::<Vec<_>>()
    };
    let works_before = works().await;

    // Power off for the leader, with work under way.
    let second = config_map_path(&fleet.namespace, "later");
    fleet.hub.kill();
    fleet.create([config_map("later", "two"), config_map_policy("later", &[&name])]).await;
    let taken = eventually("the second to lead", PATIENCE, || async {
        match holder(&fleet.api).await? {
            holder if holder != first => Ok(holder),
            _ => Err("the first still does".to_owned()),
        }
    });
    taken.await;
    placed(&member, &second).await;
    is_still(&member, &path, &before).await.expect("nothing was deleted");
    let works_after = works().await;
    assert!(works_before.iter().all(|work| works_after.contains(work)), "{works_before:?} {works_after:?}");
    assert_eq!(works_after.len(), works_before.len() + 1, "nothing is there twice: {works_after:?}");
    let cluster = fleet.api.get(&cluster_path(&name)).await.unwrap();
    assert_eq!(condition(&cluster, "Ready"), Some("True"), "everybody got fresh grace");

    // A leader that is stopped as by a debugger finds, when it goes on, that another leads, and steps back.
    fleet.hub.spawn().expect("the first starts again");
    let leads = holder(&fleet.api).await.expect("the second leads");
    eventually("the first to stand by", PATIENCE, || async {
        if fleet.hub.log_tail(40).contains(&leads) { Ok(()) } else { Err("not yet") }
    })
    .await;
    other.process.signal("STOP");
    let third = eventually("the first to lead again", PATIENCE, || async {
        match holder(&fleet.api).await? {
            holder if holder != leads => Ok(holder),
            _ => Err("the second still does".to_owned()),
        }
    })
    .await;
    other.process.signal("CONT");
    eventually("the second to stand by again", PATIENCE, || async {
        let text = other.readyz().await?;
        if text.contains(&format!("standing by, {third} leads")) { Ok(()) } else { Err(text) }
    })
    .await;
    let change = json!({"data": {"key": "three"}});
    fleet.api.patch(&path, Patch::Merge, &change).await.expect("a change");
    let object = until(&member, &path, "changed", PATIENCE, |o| o["data"]["key"] == "three").await;
    assert_eq!(uid(&object), before);
    assert_eq!(holder(&fleet.api).await, Ok(third.clone()));

    // One that is asked to stop gives the Lease back, so that nobody has to wait for it to run out.
    let status = fleet.hub.terminate(END).await.expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", fleet.hub.log_tail(20));
    assert_ne!(holder(&fleet.api).await, Ok(third), "nobody has to wait for it");
    eventually("the second to lead", PATIENCE, || async {
        let text = other.readyz().await?;
        if text.contains("[+]hub ok: leading") { Ok(()) } else { Err(text) }
    })
    .await;
    assert!(other.process.is_running());
    fleet.clean_up().await;
}

#[tokio::test]
async fn karmadas_own_controllers_are_not_fought() {
    let stock = Stock::start(true).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
    stock.api.post("/api/v1/namespaces", &namespace).await.expect("the namespace");
    let scheduler = |renewed: u32| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "karmada-scheduler", "namespace": "karmada-system"},
            "spec": {
                "holderIdentity": "stock-scheduler-0", "leaseDurationSeconds": 2,
                "renewTime": format!("2026-01-01T00:00:00.{renewed:06}Z"),
            },
        })
    };
    let path = lease_path("karmada-scheduler");
    stock.api.post(path.rsplit_once('/').unwrap().0, &scheduler(0)).await.expect("a Lease");
    let renew = || async {
        for n in 1..u32::MAX {
            let _ = stock.api.patch(&path, Patch::Merge, &scheduler(n)).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };

    // Left behind by one that was stopped: it stands still, and counts for nothing after a while.
    let mut hub = stock.hub("hub", &[]).await;
    hub.ready().await;
    // This server runs Deployments.
    hub.logs("a Deployment controller works on this API server").await;
    // One that starts while the hub works.
    let ended = tokio::select! {
        status = hub.process.exit(PATIENCE) => status.expect("it ends"),
        () = renew() => unreachable!("it renews for ever"),
    };
    assert_eq!(ended.code(), Some(1), "{}", hub.log());
    let log = hub.log();
    assert!(
        log.contains("Karmada's own karmada-scheduler") && log.contains("--allow-foreign-controllers"),
        "{log}"
    );

    // One that is there already.
    let mut hub = stock.hub("second", &[]).await;
    let ended = tokio::select! {
        status = hub.process.exit(PATIENCE) => status.expect("it ends"),
        () = renew() => unreachable!("it renews for ever"),
    };
    assert_eq!(ended.code(), Some(1), "{}", hub.log());
    let hub = stock.hub("third", &["--allow-foreign-controllers"]).await;
    tokio::select! {
        () = hub.ready() => {}
        () = renew() => unreachable!("it renews for ever"),
    }
}

fn run(args: &[&str]) -> Output {
    Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_fleet"), "karmada-hub"])
        .args(args)
        .env_remove("KUBECONFIG")
        .output()
        .expect("it runs")
}

#[tokio::test]
async fn what_cannot_be_used_is_refused() {
    let stock = Stock::start(false).await;
    let at = |name: &str| stock.dir.path().join(name).display().to_string();
    let good = stock.kubeconfig.display().to_string();
    fs::write(at("garbage"), "{ not: [yaml").expect("a file is written");
    let data = at("data");
    let serve = |args: &[&str]| {
        let all = [&["serve", "--data-dir", &data, "--listen=127.0.0.1:0"], args].concat();
        let output = run(&all);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (missing, garbage) = (at("missing"), at("garbage"));
    let table: [(&[&str], &str); 7] = [
        (&["--kubeconfig", &missing], "missing"),
        (&["--kubeconfig", &garbage], "not a kubeconfig"),
        (&["--kubeconfig", &good, "--context", "nowhere"], "no context named \"nowhere\""),
        (&["--context", "nowhere"], "--kubeconfig"),
        (
            &["--kubeconfig", &good, "--leader-elect-lease-duration=5s"],
            "must be longer than the renew deadline",
        ),
        (&["--kubeconfig", &good, "--skipped-propagating-namespaces=("], "not a regular expression"),
        (&["--kubeconfig", &good, "--leader-elect-retry-period=soon"], "--leader-elect-retry-period"),
    ];
    for (args, says) in table {
        let (code, error) = serve(args);
        assert_eq!(code, Some(2), "{args:?}: {error}");
        let line = error.lines().find(|line| line.starts_with("karmada-hub:")).unwrap_or_default();
        assert!(line.contains(says), "{args:?}: {error}");
    }
    for args in [&["export"][..], &["export", "--data-dir", &missing], &["export", "--kubeconfig", &missing]]
    {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }

    // A user that the server does not know, and one that it gives no rights.
    for (name, user, says) in [
        ("stranger", json!({"token": "wrong"}), "does not accept the credentials"),
        ("powerless", json!({}), "may not install definitions on the API server"),
    ] {
        let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(&good).unwrap()).expect("YAML");
        config["users"][0]["user"] = user;
        fs::write(at(name), config.to_string()).expect("a file is written");
        let (code, error) = serve(&["--kubeconfig", &at(name)]);
        assert_eq!(code, Some(1), "{name}: {error}");
        assert!(error.lines().any(|l| l.starts_with("karmada-hub:") && l.contains(says)), "{name}: {error}");
    }

    // A hub is no engine for a hub.
    let embedded = start_hub(stock.dir.path(), "embedded", &binaries(), Vec::new());
    let admin = stock.dir.path().join("embedded/admin.kubeconfig");
    file(&admin).await;
    eventually("the embedded hub to be ready", PATIENCE, || async {
        rest(&admin).get_text("/readyz/karmada-controllers").await.map_err(|e| e.to_string())
    })
    .await;
    let (code, error) = serve(&["--kubeconfig", &admin.display().to_string()]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("leads to a karmada-hub"), "{error}");
    // Nor is a data directory that is in use anything to export from.
    let data = stock.dir.path().join("embedded").display().to_string();
    let output = run(&["export", "--data-dir", &data]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--kubeconfig"), "{output:?}");
    let live = run(&["export", "--kubeconfig", &admin.display().to_string()]);
    assert!(
        live.status.success() && String::from_utf8_lossy(&live.stdout).contains("10-definitions.yaml"),
        "{live:?}"
    );
    drop(embedded);
}

#[tokio::test]
async fn a_server_that_is_away_is_waited_for() {
    let stock = Stock::start(false).await;
    let link = Link::open(server_of(&stock.kubeconfig)).await.expect("a free port");
    link.set(Mode::Refuse);
    let through = stock.dir.path().join("through.kubeconfig");
    let direct = server_of(&stock.kubeconfig).to_string();
    let text = fs::read_to_string(&stock.kubeconfig).unwrap().replace(&direct, &link.address().to_string());
    fs::write(&through, text).unwrap();
    let mut hub = Hub::start(stock.dir.path(), "hub", &through, &[]).await;
    hub.logs("cannot work with the API server yet, trying again").await;
    let why = hub.readyz().await.expect_err("it is not ready");
    assert!(why.contains("[-]api-server") || why.contains("500"), "{why}");
    assert_eq!(hub.own.get_text("/livez").await.expect("alive"), "ok");
    link.set(Mode::Pass);
    hub.ready().await;
    // And when it goes away later, the hub leads no more, and does again when it is back.
    link.set(Mode::BlackHole);
    hub.logs("no longer leading; controllers are stopped").await;
    hub.readyz().await.expect_err("it is not ready");
    link.set(Mode::Pass);
    hub.ready().await;
    assert!(hub.process.is_running());
}
