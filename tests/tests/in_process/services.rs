//! Services of one cluster, used in others: with hub, agents, and Pods that come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karmada_api::consts::extension;
use karmada_client::{Patch, Rest};
use karmada_hub::HubConfig;
use karmada_meta::object;
use karmada_tests::{
    fleet,
    inprocess::{PATIENCE, World},
    kubesim::{self, slices},
    link::Mode,
    samples::{self, deployment, deployment_policy, policy, selector},
    wait::{eventually, gone, throughout},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{SECOND, deployment_path, event};

const NS: &str = World::NAMESPACE;

/// Members with Pods that have addresses.
pub(super) async fn world(seed: u64, members: usize) -> (World, JoinSet<()>) {
    let config =
        kubesim::Config { nodes: 2, ending: Duration::from_millis(500), ..kubesim::Config::default() };
    let world = World::configured(seed, members, HubConfig::default(), &config).await;
    let mut running = JoinSet::new();
    for (n, member) in world.members.iter().enumerate() {
        let subnet = u8::try_from(n + 1).unwrap();
        running.spawn(slices::run(member.sim.admin(), member.machine.env().clone(), subnet));
    }
    (world, running)
}

pub(super) fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": NS},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })
}

pub(super) fn multi(providers: &[&str], consumers: &[&str]) -> Value {
    let names = |clusters: &[&str]| clusters.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"name": "web", "namespace": NS},
        "spec": {"types": ["CrossCluster"], "providerClusters": names(providers), "consumerClusters": names(consumers)},
    })
}

pub(super) fn multis() -> String {
    format!("/apis/networking.karmada.io/v1alpha1/namespaces/{NS}/multiclusterservices")
}

pub(super) async fn post(world: &World, path: &str, object: &Value) {
    world.api().post(path, object).await.unwrap_or_else(|error| panic!("POST {path}: {error}"));
}

/// What a member has of slices: by name, of which Service, and where it says that requests are taken.
pub(super) async fn slices_of(api: &Rest) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let list = api.get(&format!("/apis/discovery.k8s.io/v1/namespaces/{NS}/endpointslices")).await.unwrap();
    let slices = list["items"].as_array().cloned().unwrap_or_default();
    slices
        .iter()
        .map(|slice| {
            let of = object::label(slice, "kubernetes.io/service-name").unwrap_or_default().to_owned();
            (object::name(slice).to_owned(), (of, karmada_core::services::slices::ready(slice)))
        })
        .collect()
}

/// Waits until each consumer has just the slices of each other provider, with their endpoints, beside its own.
async fn dispatched(world: &World, what: &str, providers: &[usize], consumers: &[usize], limit: Duration) {
    eventually(&format!("slices, {what}"), limit, || async {
        for (n, member) in world.members.iter().enumerate() {
            let mut want = BTreeMap::new();
            for provider in providers.iter().filter(|provider| consumers.contains(&n) && **provider != n) {
                let from = &world.members[*provider];
                let native = slices_of(&from.api).await;
                let native = native.into_iter().filter(|(name, (of, _))| of == "web" && name == "web-x7k2p");
                want.extend(native.map(|(name, slice)| (format!("{}-{name}", from.name), slice)));
                if want.is_empty() {
                    return Err(format!("{} has no slice yet", from.name));
                }
            }
            let there = slices_of(&member.api).await;
            let there: BTreeMap<_, _> = there.into_iter().filter(|(name, _)| name != "web-x7k2p").collect();
            if there != want {
                return Err(format!("{} has {there:?}, and wanted are {want:?}", member.name));
            }
        }
        Ok(())
    })
    .await;
}

/// As Karmada's end-to-end tests have it: from one to another, from both, changed, from all, to all, and both.
#[tokio::test(start_paused = true)]
async fn slices_of_all_providers_are_on_all_other_consumers() {
    let (world, _running) = world(181, 3).await;
    let all = ["member1", "member2", "member3"];
    world.create([deployment("web", 2), deployment_policy("web", &all[..2])]).await;
    post(&world, &format!("/api/v1/namespaces/{NS}/services"), &service()).await;
    /// What it is, providers, consumers, and which members these are.
    type Row<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [usize], &'a [usize]);
    let rows: [Row<'_>; 6] = [
        ("from one to another", &all[..1], &all[1..2], &[0], &[1]),
        ("from both", &all[..2], &all[1..2], &[0, 1], &[1]),
        ("the other way, with one that is not there", &["member2", "nowhere"], &all[..1], &[1], &[0]),
        ("from all, also where there are no Pods", &[], &all[1..2], &[0, 1, 2], &[1]),
        ("to all", &all[..1], &[], &[0], &[0, 1, 2]),
        ("from all to all", &[], &[], &[0, 1, 2], &[0, 1, 2]),
    ];
    post(&world, &multis(), &multi(rows[0].1, rows[0].2)).await;
    for (what, providers, consumers, from, to) in rows {
        let change = json!({"spec": multi(providers, consumers)["spec"]});
        world.api().patch(&format!("{}/web", multis()), Patch::Merge, &change).await.unwrap();
        dispatched(&world, what, from, to, PATIENCE).await;
        // The Service itself keeps its name.
        for member in from.iter().chain(to) {
            let path = format!("/api/v1/namespaces/{NS}/services/web");
            world.member_until(*member, &path, "there", PATIENCE, |_| true).await;
        }
    }
    event(&world, NS, "web", "ClusterNotFound", "Provider cluster nowhere is not found").await;
    event(&world, NS, "web", "SyncServiceSucceed", "Service is propagated to target clusters.").await;
    event(&world, NS, "web", "DispatchEndpointSliceSucceed", "EndpointSlice are dispatched successfully")
        .await;
    // As many as there are Pods, also when that changes.
    let scale = json!({"spec": {"replicas": 4}});
    world.api().patch(&deployment_path("web"), Patch::Merge, &scale).await.unwrap();
    eventually("four endpoints", PATIENCE, || async {
        match slices_of(&world.members[2].api).await.get("member1-web-x7k2p") {
            Some((_, ready)) if ready.len() == 4 => Ok(()),
            other => Err(other.cloned()),
        }
    })
    .await;
    dispatched(&world, "after it was scaled", &[0, 1, 2], &[0, 1, 2], PATIENCE).await;
    // What a cluster has made itself stays when all that goes.
    world.delete(&format!("{}/web", multis())).await;
    dispatched(&world, "none", &[], &[], PATIENCE).await;
    assert!(slices_of(&world.members[0].api).await.contains_key("web-x7k2p"));
    for member in &world.members {
        let none = |works: &Value| {
            let works = works["items"].as_array().into_iter().flatten();
            works.into_iter().all(|work| {
                object::label(work, "endpointslice.karmada.io/managed-by").is_none()
                    && work["spec"]["workload"]["manifests"][0]["kind"] != "EndpointSlice"
            })
        };
        world.hub_until(&samples::works_path(&member.name), "without slices", PATIENCE, none).await;
    }
    world.stop().await;
}

/// A userspace Service proxy on one member, and the Pods that it can reach on others.
struct Proxy<'a> {
    consumer: &'a Rest,
    providers: Vec<&'a Rest>,
    /// When each address was seen alive last.
    alive: BTreeMap<String, Instant>,
    turn: usize,
    good: usize,
    /// Requests that went nowhere: for how long what they were sent to had been gone.
    lost: Vec<(Instant, Duration)>,
    unserved: usize,
}

impl<'a> Proxy<'a> {
    fn new(world: &'a World, consumer: usize, providers: &[usize]) -> Self {
        Self {
            consumer: &world.members[consumer].api,
            providers: providers.iter().map(|n| &world.members[*n].api).collect(),
            alive: BTreeMap::new(),
            turn: 0,
            good: 0,
            lost: Vec::new(),
            unserved: 0,
        }
    }

    /// A client sends a request to a Service.
    async fn request(&mut self, service: &str) {
        let now = Instant::now();
        for provider in &self.providers {
            let pods =
                provider.get(&format!("/api/v1/namespaces/{NS}/pods?labelSelector=app%3Dweb")).await.unwrap();
            for pod in pods["items"].as_array().into_iter().flatten() {
                if let Some(address) = pod.pointer("/status/podIP").and_then(Value::as_str) {
                    self.alive.insert(address.to_owned(), now);
                }
            }
        }
        let slices = slices_of(self.consumer).await;
        let behind: Vec<String> =
            slices.into_values().filter(|(of, _)| of == service).flat_map(|(_, ready)| ready).collect();
        let twice: BTreeSet<&String> = behind.iter().collect();
        assert_eq!(twice.len(), behind.len(), "an endpoint is there twice: {behind:?}");
        self.turn += 1;
        let Some(address) = behind.get(self.turn % behind.len().max(1)) else {
            self.unserved += 1;
            return;
        };
        match self.alive.get(address) {
            Some(seen) if *seen == now => self.good += 1,
            Some(seen) => self.lost.push((now, now - *seen)),
            None => panic!("{address} was never a Pod's"),
        }
    }

    /// Sends one every 100 ms for so long.
    async fn send(&mut self, service: &str, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() < end {
            self.request(service).await;
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The longest that something had been gone that a request was sent to, from then on.
    fn longest(&self, from: Instant) -> Duration {
        self.lost.iter().filter(|(at, _)| *at >= from).map(|(_, gone)| *gone).max().unwrap_or_default()
    }
}

/// Gives the Pods of a Deployment another template.
async fn roll(world: &World, version: &str) {
    let change = json!({"spec": {"template": {"metadata": {"labels": {"version": version}}}}});
    world.api().patch(&deployment_path("web"), Patch::Merge, &change).await.unwrap();
}

/// The same on the member itself, where the hub is not heard.
async fn roll_there(world: &World, member: usize, name: &str) {
    let api = &world.members[member].api;
    let pods = api.get(&format!("/api/v1/namespaces/{NS}/pods?labelSelector=app%3D{name}")).await.unwrap();
    for pod in pods["items"].as_array().into_iter().flatten() {
        let path = format!("/api/v1/namespaces/{NS}/pods/{}", object::name(pod));
        api.delete(&path, &json!({})).await.unwrap();
        sleep(2 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_reaches_pods_of_another_cluster_while_they_roll_and_their_link_is_lost() {
    let (mut world, _running) = world(182, 2).await;
    world.create([deployment("web", 4), deployment_policy("web", &["member1"])]).await;
    post(&world, &format!("/api/v1/namespaces/{NS}/services"), &service()).await;
    post(&world, &multis(), &multi(&["member1"], &["member2"])).await;
    dispatched(&world, "at first", &[0], &[1], PATIENCE).await;
    sleep(5 * SECOND).await;

    // While they roll a request may meet one that has just gone, for as long as a word of that takes.
    let begin = Instant::now();
    let mut proxy = Proxy::new(&world, 1, &[0]);
    proxy.send("web", 5 * SECOND).await;
    assert_eq!((proxy.lost.len(), proxy.unserved), (0, 0));
    roll(&world, "2").await;
    proxy.send("web", 30 * SECOND).await;
    assert!(proxy.longest(begin) <= 2 * SECOND + SECOND / 4, "{:?}", proxy.longest(begin));
    assert!(proxy.good > 300 && proxy.unserved == 0, "{} good, {} unserved", proxy.good, proxy.unserved);

    // The link is lost for a minute, and all its Pods are others meanwhile: those of before stay, and nothing else goes.
    let before = slices_of(&world.members[1].api).await;
    world.members[0].wire.set(Mode::BlackHole);
    let cut = Instant::now();
    roll_there(&world, 0, "web").await;
    proxy.send("web", 55 * SECOND).await;
    assert_eq!(slices_of(&world.members[1].api).await, before);
    world.members[0].wire.set(Mode::Pass);
    let mended = Instant::now();
    proxy.send("web", 30 * SECOND).await;
    assert!(proxy.longest(cut) <= (mended - cut) + 10 * SECOND, "{:?}", proxy.longest(cut));
    let again = Instant::now();
    proxy.send("web", 10 * SECOND).await;
    assert_eq!(proxy.longest(again), Duration::ZERO, "all is known again");
    drop(proxy);
    dispatched(&world, "after it came back", &[0], &[1], 5 * SECOND).await;

    // Ten minutes of silence, with the hub and both agents restarted in it.
    let before = slices_of(&world.members[1].api).await;
    world.members[0].wire.set(Mode::BlackHole);
    sleep(60 * SECOND).await;
    // A rollout is under way when they are.
    roll_there(&world, 0, "web").await;
    sleep(50 * SECOND).await;
    world.stop_agent(1).await;
    world.start_agent(1);
    world.stop_hub().await;
    roll_there(&world, 0, "web").await;
    world.start_hub().await;
    world.stop_agent(0).await;
    world.start_agent(0);
    roll_there(&world, 0, "web").await;
    sleep(460 * SECOND).await;
    assert_eq!(slices_of(&world.members[1].api).await, before, "no live endpoint leaves a consumer");
    let stale = |multi: &Value| {
        samples::condition_of(multi, "EndpointsStale")
            .is_some_and(|said| said["message"].as_str().is_some_and(|m| m.contains("member1 (since")))
    };
    world.hub_until(&format!("{}/web", multis()), "that it is stale", PATIENCE, stale).await;
    roll_there(&world, 0, "web").await;
    world.members[0].wire.set(Mode::Pass);
    world.ready("member1", PATIENCE * 2).await;
    dispatched(&world, "all agree", &[0], &[1], 5 * SECOND).await;
    let mut proxy = Proxy::new(&world, 1, &[0]);
    proxy.send("web", 10 * SECOND).await;
    assert_eq!((proxy.lost.len(), proxy.unserved), (0, 0));
    drop(proxy);
    world.stop().await;
}

/// Has the first member's slice have these endpoints, and answers after what time the second one's has them.
async fn told(world: &World, addresses: &[&str]) -> Duration {
    let collection = format!("/apis/discovery.k8s.io/v1/namespaces/{NS}/endpointslices");
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-abcde", "namespace": NS, "labels": {"kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    slice["endpoints"] = endpoints.into();
    let (provider, consumer) = (&world.members[0].api, &world.members[1].api);
    let begun = Instant::now();
    match provider.get(&format!("{collection}/web-abcde")).await {
        Ok(live) => {
            slice["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            provider.put(&format!("{collection}/web-abcde"), &slice).await.unwrap();
        }
        Err(_) => drop(provider.post(&collection, &slice).await.unwrap()),
    }
    let want: BTreeSet<String> = addresses.iter().map(|address| (*address).to_owned()).collect();
    let name = "member1-web-abcde";
    while slices_of(consumer).await.get(name).is_none_or(|(_, ready)| *ready != want) {
        assert!(begun.elapsed() < PATIENCE, "the consumer has not got {addresses:?}");
        sleep(Duration::from_millis(1)).await;
    }
    begun.elapsed()
}

/// In virtual time, which passes only where somebody waits.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_lost_waits_for_nothing_on_its_way() {
    let soon = Duration::from_millis(50);
    let world = World::configured(188, 2, HubConfig::default(), &kubesim::Config::default()).await;
    post(&world, &format!("/api/v1/namespaces/{NS}/services"), &service()).await;
    post(&world, &multis(), &multi(&["member1"], &["member2"])).await;
    for member in [0, 1] {
        let path = format!("/api/v1/namespaces/{NS}/services/web");
        world.member_until(member, &path, "there", PATIENCE, |_| true).await;
    }
    told(&world, &["10.0.0.1", "10.0.0.2"]).await;
    sleep(10 * SECOND).await;
    let came = told(&world, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    assert!(came >= SECOND && came < SECOND + soon, "what comes is gathered for a second: {came:?}");
    // Although it has just been told of.
    let went = told(&world, &["10.0.0.1", "10.0.0.2"]).await;
    assert!(went < soon, "{went:?}");
    sleep(10 * SECOND).await;
    let went = told(&world, &["10.0.0.1"]).await;
    assert!(went < soon, "{went:?}");
    let went = told(&world, &[]).await;
    assert!(went < soon, "{went:?}");
    // What comes after so much waits, but no longer than a slice rests and it is gathered.
    let came = told(&world, &["10.0.0.4"]).await;
    assert!(came >= 3 * SECOND - soon && came < 3 * SECOND + soon, "{came:?}");
    world.stop().await;
}

/// Who asks that endpoints of silent clusters are withdrawn does not mean an outage of most: then the hub may be the one that is
/// cut off.
#[tokio::test(start_paused = true)]
async fn a_mass_outage_withdraws_nothing() {
    let (world, _running) = world(184, 5).await;
    world.create([deployment("web", 2), deployment_policy("web", &["member1", "member2"])]).await;
    post(&world, &format!("/api/v1/namespaces/{NS}/services"), &service()).await;
    let mut asks = multi(&["member1", "member2"], &["member3"]);
    object::set_annotation(&mut asks, "multiclusterservice.karmada.io/withdraw-after", "10s");
    post(&world, &multis(), &asks).await;
    dispatched(&world, "at first", &[0, 1], &[2], PATIENCE).await;
    // The hub's first minute is everybody's grace.
    sleep(90 * SECOND).await;
    let before = slices_of(&world.members[2].api).await;
    assert_eq!(before["member1-web-x7k2p"].1.len(), 2);
    let lost = [0, 3, 4];
    lost.iter().for_each(|member| world.members[*member].wire.set(Mode::BlackHole));
    let held = |cluster: &Value| fleet::condition(cluster, extension::EVICTIONS_HELD) == Some("True");
    world.cluster_until("member1", "lost with others", PATIENCE * 2, held).await;
    let same = async || match slices_of(&world.members[2].api).await {
        there if there == before => Ok(()),
        there => Err(there),
    };
    throughout("all endpoints stay", 180 * SECOND, same).await;
    // The others come back: the one that is left is a loss like any other.
    lost[1..].iter().for_each(|member| world.members[*member].wire.set(Mode::Pass));
    let takes = async |count: usize| {
        eventually(&format!("{count} endpoints"), PATIENCE * 3, || async {
            let there = slices_of(&world.members[2].api).await;
            match there.get("member1-web-x7k2p") {
                Some((_, ready)) if ready.len() == count => Ok(()),
                _ => Err(there),
            }
        })
        .await;
    };
    takes(0).await;
    assert_eq!(slices_of(&world.members[2].api).await["member2-web-x7k2p"].1.len(), 2);
    world.members[0].wire.set(Mode::Pass);
    takes(2).await;
    world.stop().await;
}

/// One that is heard and one that is not.
#[tokio::test(start_paused = true)]
async fn consumers_leave_the_fleet_and_nothing_of_them_stays() {
    let (mut world, _running) = world(185, 4).await;
    world.create([deployment("web", 2), deployment_policy("web", &["member1"])]).await;
    post(&world, &format!("/api/v1/namespaces/{NS}/services"), &service()).await;
    post(&world, &multis(), &multi(&["member1"], &["member2", "member3", "member4"])).await;
    dispatched(&world, "at first", &[0], &[1, 2, 3], PATIENCE).await;
    let native = slices_of(&world.members[0].api).await;
    world.members[1].wire.set(Mode::BlackHole);
    world.stop_agent(1).await;
    sleep(120 * SECOND).await;
    let brought = |member: usize| {
        let api = &world.members[member].api;
        async move { slices_of(api).await.get("member1-web-x7k2p").map(|(_, ready)| ready.len()) }
    };
    assert_eq!(brought(1).await, Some(2), "offline it keeps what it has");
    for member in ["member2", "member3"] {
        let cluster = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{member}");
        world.delete(&cluster).await;
        gone(&world.api(), &cluster, PATIENCE * 10).await;
        gone(&world.api(), &format!("/api/v1/namespaces/karmada-es-{member}"), PATIENCE).await;
    }
    eventually("the one that was heard to have nothing of it", PATIENCE, || async {
        match brought(2).await {
            None => Ok(()),
            there => Err(there),
        }
    })
    .await;
    assert_eq!((brought(3).await, slices_of(&world.members[0].api).await), (Some(2), native));
    world.delete(&format!("{}/web", multis())).await;
    gone(&world.api(), &format!("{}/web", multis()), PATIENCE).await;
    world.stop().await;
}

/// A Deployment of two, whose Service the first member exports and the second one imports.
pub(super) async fn export(world: &World) {
    let definitions: Vec<Value> = karmada_api::crds()
        .into_iter()
        .filter(|crd| crd["spec"]["group"] == "multicluster.x-k8s.io")
        .collect();
    assert_eq!(definitions.len(), 2);
    for member in &world.members {
        for definition in &definitions {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            member.api.post(path, definition).await.unwrap();
        }
    }
    let of = |kind: &str| json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "web", "namespace": NS}});
    let mut import = of("ServiceImport");
    import["spec"] =
        json!({"type": "ClusterSetIP", "ports": [{"port": 80, "protocol": "TCP", "name": "http"}]});
    let group = "multicluster.x-k8s.io/v1alpha1";
    world
        .create([
            deployment("web", 2),
            deployment_policy("web", &["member1"]),
            policy("service", selector("v1", "Service", "web"), &["member1"]),
            policy("export", selector(group, "ServiceExport", "web"), &["member1"]),
            policy("import", selector(group, "ServiceImport", "web"), &["member2"]),
        ])
        .await;
    post(world, &format!("/api/v1/namespaces/{NS}/services"), &service()).await;
    post(world, &shared("serviceexports"), &of("ServiceExport")).await;
    post(world, &shared("serviceimports"), &import).await;
}

/// Where exports and imports are.
pub(super) fn shared(plural: &str) -> String {
    format!("/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{NS}/{plural}")
}

#[tokio::test(start_paused = true)]
async fn what_a_cluster_exports_is_imported_elsewhere_and_leaves_nothing_behind() {
    let (mut world, _running) = world(183, 3).await;
    export(&world).await;
    let derived = format!("/api/v1/namespaces/{NS}/services/derived-web");
    world.member_until(1, &derived, "there", PATIENCE, |_| true).await;
    event(
        &world,
        NS,
        "web",
        "SyncDerivedServiceSucceed",
        "Sync derived service for serviceImport(web) succeed.",
    )
    .await;
    let imported = async |count: usize| {
        eventually("an imported slice", PATIENCE, || async {
            let there = slices_of(&world.members[1].api).await;
            match there.get("imported-member1-web-x7k2p") {
                Some((of, ready)) if of == "derived-web" && ready.len() == count => Ok(()),
                _ => Err(there),
            }
        })
        .await;
    };
    imported(2).await;
    let mut proxy = Proxy::new(&world, 1, &[0]);
    proxy.send("derived-web", 3 * SECOND).await;
    assert!(proxy.good > 20 && proxy.lost.is_empty());
    drop(proxy);
    let scale = json!({"spec": {"replicas": 3}});
    world.api().patch(&deployment_path("web"), Patch::Merge, &scale).await.unwrap();
    imported(3).await;

    // It is not heard for a while in which all its Pods are others, and hub and agents are restarted.
    let before = slices_of(&world.members[1].api).await;
    world.members[0].wire.set(Mode::BlackHole);
    sleep(60 * SECOND).await;
    roll_there(&world, 0, "web").await;
    world.stop_agent(1).await;
    world.start_agent(1);
    world.stop_hub().await;
    sleep(10 * SECOND).await;
    world.start_hub().await;
    world.stop_agent(0).await;
    world.start_agent(0);
    sleep(120 * SECOND).await;
    assert_eq!(slices_of(&world.members[1].api).await, before, "nothing leaves who imports it");
    world.members[0].wire.set(Mode::Pass);
    world.ready("member1", PATIENCE * 2).await;
    eventually("all agree", 5 * SECOND, || async {
        let (from, to) = (slices_of(&world.members[0].api).await, slices_of(&world.members[1].api).await);
        let (native, there) = (&from["web-x7k2p"].1, &to["imported-member1-web-x7k2p"].1);
        if native == there { Ok(()) } else { Err(format!("{native:?} and {there:?}")) }
    })
    .await;

    // The provider is lost for good, and taken out while it cannot be heard.
    world.members[0].wire.set(Mode::BlackHole);
    world.stop_agent(0).await;
    sleep(120 * SECOND).await;
    assert!(slices_of(&world.members[1].api).await.contains_key("imported-member1-web-x7k2p"));
    world.delete("/apis/cluster.karmada.io/v1alpha1/clusters/member1").await;
    eventually("no imported slice", PATIENCE * 10, || async {
        let there = slices_of(&world.members[1].api).await;
        if there.is_empty() { Ok(()) } else { Err(there) }
    })
    .await;
    let hub =
        world.api().get(&format!("/apis/discovery.k8s.io/v1/namespaces/{NS}/endpointslices")).await.unwrap();
    assert_eq!(hub["items"], json!([]));
    world.delete(&format!("{}/web", shared("serviceimports"))).await;
    let gone = |list: &Value| {
        list["items"].as_array().is_some_and(|all| all.iter().all(|s| object::name(s) != "derived-web"))
    };
    world.member_until(1, &format!("/api/v1/namespaces/{NS}/services"), "without it", PATIENCE, gone).await;
    world.hub_until(&format!("/api/v1/namespaces/{NS}/services"), "without it", PATIENCE, gone).await;
    world.stop().await;
}
