//! Clusters whose Works are taken away before them, as `karmadactl unregister` does it, those that `karmadactl unjoin` takes away
//! first, and agents that do not do their part when their Cluster goes.

use std::time::Duration;

use crate::common::{Member, World, cluster, configmap, configmaps, policy};
use karmada_client::{Patch, Rest};
use karmada_meta::object;
use karmada_objects::kinds::{CLUSTERS, NAMESPACES, PROPAGATION_POLICIES, WORKS};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

/// What karmadactl waits for each of the two steps, unless it is told otherwise.
const WAIT: Duration = Duration::from_secs(60);

/// What its client leaves between two requests: five in a second.
const PACE: Duration = Duration::from_millis(200);

/// `karmadactl unregister`, request by request, with the agent's credential. Until there are no Works it deletes each that it
/// finds, once a second; then the Cluster.
async fn unregister(member: &Member) -> Result<(), &'static str> {
    let works = async {
        loop {
            sleep(Duration::from_secs(1)).await;
            let found = member.works().await;
            if found.is_empty() {
                return;
            }
            for work in found {
                let path = WORKS.object(Some(&member.namespace()), object::name(&work));
                match member.rest.delete(&path, &json!({})).await {
                    Err(error) if !error.is_not_found() => panic!("{path}: {error}"),
                    _ => sleep(PACE).await,
                }
            }
        }
    };
    timeout(WAIT, works).await.map_err(|_| "there are Works again and again")?;
    let cluster = CLUSTERS.object(None, &member.name);
    member.rest.delete(&cluster, &json!({})).await.expect("it is there");
    let gone = async {
        while member.rest.get(&cluster).await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(WAIT, gone).await.map_err(|_| "the Cluster does not go")
}

/// `karmadactl unjoin`, request by request, as the hub's administrator: the Cluster is deleted, and looked for once a second.
async fn unjoin(world: &World, name: &str) -> Result<(), &'static str> {
    let path = CLUSTERS.object(None, name);
    world.rest.delete(&path, &json!({})).await.expect("it is there");
    let gone = async {
        loop {
            sleep(Duration::from_secs(1)).await;
            match world.rest.get(&path).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => return,
                Err(error) => panic!("{path}: {error}"),
            }
        }
    };
    timeout(WAIT, gone).await.map_err(|_| "the Cluster does not go")
}

/// What it does then with `--force`: the finalizers go from the Works, from the execution namespace and from the Cluster. What it
/// does not find any more it says to have failed with, and goes on.
async fn force(world: &World, name: &str) {
    let namespace = format!("karmada-es-{name}");
    for mut work in world.list(&WORKS, Some(&namespace)).await {
        if object::remove_finalizer(&mut work, "karmada.io/execution-controller") {
            let path = WORKS.object(Some(&namespace), object::name(&work));
            world.rest.put(&path, &work).await.expect("it lets go");
            sleep(PACE).await;
        }
    }
    if let Some(found) = world.get(&NAMESPACES, "", &namespace).await {
        // The one that it looks for stands in the namespace's spec, and not among these.
        assert!(object::finalizers(&found).is_empty(), "{found}");
    }
    sleep(PACE).await;
    let Some(mut found) = world.get(&CLUSTERS, "", name).await else { return };
    if object::remove_finalizer(&mut found, "karmada.io/cluster-controller") {
        match world.rest.put(&CLUSTERS.object(None, name), &found).await {
            // The hub was at it as well.
            Err(error) if !error.is_conflict() && !error.is_not_found() => panic!("{name}: {error}"),
            _ => {}
        }
    }
}

/// A cluster that the hub works on by itself, with so many ConfigMaps. Here nothing does, so a test says what is let go of.
async fn pushed(world: &World, number: usize) -> Member {
    let mut made = cluster("m", json!({}));
    made["spec"] = json!({
        "syncMode": "Push", "id": "id-of-m", "apiEndpoint": "https://127.0.0.1:1", "insecureSkipTLSVerification": true,
        "secretRef": {"namespace": "karmada-cluster", "name": "m"},
    });
    world.create(&CLUSTERS, made).await;
    world.post_ready_for("m", "True", "ClusterReady").await;
    world.until("its namespace", || world.get(&NAMESPACES, "", "karmada-es-m")).await;
    let member = Member { rest: Rest::new(world.embedded.client()), name: "m".to_owned() };
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "", json!({}))).await;
    for number in 0..number {
        let name = format!("c{number}");
        world.create(&configmaps(), configmap("default", &name)).await;
        world.until("it is placed", || member.work("ConfigMap", &name)).await;
    }
    member.act().await;
    world.settle().await;
    member
}

/// What the hub does for a cluster in push mode, so often: it takes down what is to go.
async fn lets_go(member: &Member, pause: Duration) {
    loop {
        sleep(pause).await;
        member.act().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_in_push_mode_unjoins_when_what_it_has_is_taken_down() {
    for pause in [Duration::from_millis(20), Duration::from_secs(7)] {
        let world = World::start().await;
        let member = pushed(&world, 20).await;
        let done = tokio::select! {
            done = unjoin(&world, "m") => done,
            () = lets_go(&member, pause) => unreachable!("it works for ever"),
        };
        assert_eq!(done, Ok(()), "what takes {pause:?}");
        world.gone(&NAMESPACES, "", "karmada-es-m").await;
        assert_eq!(world.list(&configmaps(), Some("default")).await.len(), 20, "templates stay");
        world.stop().await;
    }
}

/// The hub itself would wait for ten minutes.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_lets_go_of_nothing_unjoins_by_force() {
    let world = World::start().await;
    let member = pushed(&world, 3).await;
    let begun = Instant::now();
    assert_eq!(unjoin(&world, "m").await, Err("the Cluster does not go"));
    let works = member.works().await;
    let goes = |work: &Value| object::deletion_timestamp(work).is_some();
    assert!(works.len() >= 3 && works.iter().all(goes), "{works:?}");
    force(&world, "m").await;
    world.gone(&CLUSTERS, "", "m").await;
    world.gone(&NAMESPACES, "", "karmada-es-m").await;
    let waited = begun.elapsed();
    assert!(waited < 2 * WAIT, "{waited:?}");
    assert_eq!(world.list(&configmaps(), Some("default")).await.len(), 3, "templates stay");
    world.stop().await;
}

/// A cluster with so many ConfigMaps in a Namespace of their own, all of them applied.
async fn placed(world: &World, number: usize) -> Member {
    let member = world.join("m", json!({})).await;
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    world.create(&NAMESPACES, shop).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "", json!({}))).await;
    for number in 0..number {
        world.create(&configmaps(), configmap("default", &format!("c{number}"))).await;
    }
    world
        .until("all are placed", || async { (member.works().await.len() == number + 1).then_some(()) })
        .await;
    member.act().await;
    world.settle().await;
    member
}

/// An agent at work: it renews its Lease and takes down what is to go, over a link on which that takes its time.
async fn agent(member: &Member, pause: Duration) {
    let mut moment = 0;
    let mut renewed = Instant::now();
    loop {
        sleep(pause).await;
        member.act().await;
        let there = member.rest.get(&CLUSTERS.object(None, &member.name)).await.is_ok();
        if there && renewed.elapsed() >= Duration::from_secs(10) {
            (moment, renewed) = (moment + 1, Instant::now());
            member.renew(moment).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_with_works_unregisters() {
    for pause in [Duration::from_millis(20), Duration::from_secs(7)] {
        let world = World::start().await;
        let member = placed(&world, 20).await;
        let done = tokio::select! {
            done = unregister(&member) => done,
            () = agent(&member, pause) => unreachable!("it works for ever"),
        };
        assert_eq!(done, Ok(()), "an agent that takes {pause:?}");
        world.gone(&NAMESPACES, "", "karmada-es-m").await;
        assert_eq!(world.list(&configmaps(), Some("default")).await.len(), 20, "templates stay");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_that_somebody_deletes_comes_back_and_holds_nothing_else_up() {
    let world = World::start().await;
    let member = placed(&world, 3).await;
    let first = member.work("ConfigMap", "c0").await.expect("it is there");
    world.delete(&WORKS, "karmada-es-m", object::name(&first)).await.expect("deleted");
    // Its object is stuck on the member; meanwhile something new is placed, and something else is deleted.
    world.create(&configmaps(), configmap("default", "new")).await;
    world.within(Duration::from_secs(3), "what is new is made", || member.work("ConfigMap", "new")).await;
    member.act().await;
    assert!(member.work("ConfigMap", "c0").await.is_none());
    let again = |work: &Value| object::uid(work) != object::uid(&first);
    world
        .within(Duration::from_secs(15), "it is made again", || async {
            member.work("ConfigMap", "c0").await.filter(again)
        })
        .await;
    world.stop().await;
}

/// A stolen credential, or an agent that is broken: it renews its Lease and lets go of nothing.
#[tokio::test(start_paused = true)]
async fn an_agent_that_lets_go_of_nothing_does_not_hold_its_cluster_for_ever() {
    let world = World::start().await;
    let member = placed(&world, 2).await;
    // What it may make and mark besides is not waited for either: a fence is the hub's, and finalizers are the agent's.
    let within = member.namespace();
    let own = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {
            "name": "own", "namespace": within, "labels": {"endpointslice.karmada.io/managed-by": "x"},
            "finalizers": ["karmada.io/execution-controller"],
        },
        "spec": {"workload": {"manifests": [{
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [],
            "metadata": {
                "name": "s", "namespace": "default", "annotations": {"work.karmada.io/fence-after": "87600h"},
            },
        }]}},
    });
    member.rest.post(&WORKS.collection(Some(&within)), &own).await.expect("it may");
    for mut work in member.works().await {
        object::add_finalizer(&mut work, "karmada.io/endpointslice-controller");
        let path = WORKS.object(Some(&within), object::name(&work));
        member.rest.put(&path, &work).await.expect("it may");
    }
    world.delete(&CLUSTERS, "", "m").await.expect("deleted");
    let begun = Instant::now();
    let mut moment = 0;
    while world.get(&CLUSTERS, "", "m").await.is_some() {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(660), "it is still there after {waited:?}");
        moment += 1;
        member.renew(moment).await;
        sleep(Duration::from_secs(10)).await;
    }
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(600), "it had its time: {waited:?}");
    world.event("m", "RemovedWithoutAgent", "has not let go of 4 Works in time").await;
    let record =
        world.rest.get("/api/v1/namespaces/karmada-cluster/secrets/agent.m").await.expect("a record");
    assert_eq!(object::annotation(&record, "hub.karmada.io/credential-ended"), Some("deleted"));
    world.gone(&NAMESPACES, "", "karmada-es-m").await;
    world.stop().await;
}

/// A link over which one Work goes in nine minutes: what it has is taken down all the same.
#[tokio::test(start_paused = true)]
async fn a_slow_agent_is_waited_for() {
    let world = World::start().await;
    let member = placed(&world, 2).await;
    world.delete(&CLUSTERS, "", "m").await.expect("deleted");
    let mut moment = 0;
    for left in [2, 1, 0] {
        for _ in 0..54 {
            moment += 1;
            member.renew(moment).await;
            sleep(Duration::from_secs(10)).await;
        }
        let works = member.works().await;
        assert_eq!(works.len(), left + 1);
        let mut work = works[0].clone();
        assert!(object::remove_finalizer(&mut work, "karmada.io/execution-controller"));
        let path = WORKS.object(Some(&member.namespace()), object::name(&work));
        member.rest.put(&path, &work).await.expect("it lets go");
    }
    world.gone(&CLUSTERS, "", "m").await;
    world.stop().await;
}

/// The credential of an agent whose cluster the hub takes over, or of somebody who had one in store for the name.
#[tokio::test(start_paused = true)]
async fn an_agent_has_no_business_in_what_the_hub_works_on_by_itself() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "m"}, "stringData": {"token": "t"},
    });
    let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
    world.rest.post(secrets, &secret).await.expect("made");
    let path = format!("{secrets}/m");
    assert!(member.rest.get(&path).await.is_ok(), "its own while it is in pull mode");
    let push = json!({"spec": {
        "syncMode": "Push", "apiEndpoint": "https://m", "secretRef": {"namespace": "karmada-cluster", "name": "m"},
    }});
    let cluster = CLUSTERS.object(None, "m");
    world.rest.patch(&cluster, Patch::Merge, &push).await.expect("the platform turns it");
    // At once, and not when a controller has come round to it.
    let refused = member.rest.get(&path).await.expect_err("the token is the hub's");
    assert!(refused.is_forbidden() && refused.to_string().contains("is in push mode"), "{refused}");
    let works = member.rest.get(&WORKS.collection(Some("karmada-es-m"))).await;
    assert!(works.expect_err("the hub's").is_forbidden());
    assert!(member.rest.get(&cluster).await.is_ok(), "it may see what has become of it");
    let ended = || async {
        let record = world.rest.get(&format!("{secrets}/agent.m")).await.ok()?;
        let how = object::annotation(&record, "hub.karmada.io/credential-ended")?;
        (how == "revoked")
            .then(|| object::annotation(&record, "hub.karmada.io/credential-epoch").map(str::to_owned))
    };
    let epoch = world.within(Duration::from_secs(3), "its credentials end", ended).await;
    world.settle().await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    world.rest.patch(&cluster, Patch::Merge, &label).await.expect("changed");
    world.settle().await;
    assert_eq!(ended().await, Some(epoch), "once");
    world.stop().await;
}
