//! Two agents of one name: which of them acts on the member, and which speaks for the cluster.

use std::time::Duration;

use karmada_agent::{Phase, Place, State};
use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{Running, WEB, Wire, World, config_map, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases/karmada-agent-m1";

/// What the ConfigMap says on the member.
async fn value(world: &World) -> Value {
    world.member.get(MAP).await.unwrap()["data"]["v"].clone()
}

async fn drift(world: &World) {
    world.meddle(MAP, json!({"data": {"v": "drift"}})).await.unwrap();
}

/// What an agent has done to the member.
fn deeds(agent: &Running) -> (u64, u64) {
    (agent.handle.stats().applies.get(), agent.handle.stats().fence_stops.get())
}

async fn holder(world: &World) -> Value {
    world.member.get(LEASE).await.unwrap()["spec"]["holderIdentity"].clone()
}

/// What the Lease says of what is kept.
async fn said(world: &World) -> Value {
    world.member.get(LEASE).await.unwrap()["metadata"]["annotations"]["agent.karmada.io/state"].clone()
}

/// A Deployment that may run without the hub's word for a minute.
fn fenced_web() -> Value {
    let mut web = deployment("default", "web", 2);
    web["metadata"]["annotations"] = json!({"work.karmada.io/fence-after": "60s"});
    web
}

/// An agent that acts, and has applied a Work of these manifests, and one that stands by, with its wire to the hub.
async fn two(world: &World, manifests: &[Value]) -> (Running, Running, Wire) {
    let first = world.active_agent().await;
    world.work("w", manifests).await;
    world.applied("w").await;
    let wire = Wire::new();
    let second = world.agent_by(world.config(), &wire, &Wire::new());
    second.phase(Phase::StandingBy).await;
    (first, second, wire)
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_hear_the_hub_gives_way_to_one_that_does() {
    let world = World::new().await;
    let keeps = || State { place: Place::Secrets, ..State::fresh(&world.env) };
    let first = world.agent_with(State { instance: "first".into(), ..keeps() });
    first.phase(Phase::Active).await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    let wire = Wire::new();
    let second = world.agent_between(State { instance: "second".into(), ..keeps() }, &wire, &Wire::new());
    second.phase(Phase::StandingBy).await;

    world.wire.cut();
    timeout(SECOND * 120, second.phase(Phase::Active)).await.expect("it takes over");
    eventually(SECOND * 20, "the first stands by", async || {
        *first.handle.phase().borrow() == Phase::StandingBy
    })
    .await;
    let before = deeds(&first);
    world.work("w", &[config_map("default", "a", "2")]).await;
    eventually(SECOND * 10, "the second carries out what is new", async || value(&world).await == "2").await;
    for _ in 0..5 {
        drift(&world).await;
        eventually(SECOND * 10, "the second heals", async || value(&world).await == "2").await;
        sleep(SECOND * 7).await;
    }
    assert_eq!(deeds(&first), before, "what the first knows is old, and it does nothing");

    // It is no longer wanted when it comes back; and knows what is new when it is.
    world.wire.mend();
    sleep(SECOND * 120).await;
    assert_eq!(*first.handle.phase().borrow(), Phase::StandingBy);
    assert_eq!(*second.handle.phase().borrow(), Phase::Active);
    wire.cut();
    eventually(SECOND * 120, "it is handed back", async || holder(&world).await == "first").await;
    // It is no twin's for whoever has had it before, and what is said of what is kept stands.
    let handed = Instant::now();
    while *first.handle.phase().borrow() != Phase::Active {
        assert_ne!(said(&world).await, "none");
        assert!(handed.elapsed() < SECOND * 15, "it goes on at once");
        sleep(SECOND / 20).await;
    }
    assert_ne!(said(&world).await, "none");
    sleep(SECOND * 60).await;
    assert_eq!(value(&world).await, "2");
    world.work("w", &[config_map("default", "a", "3")]).await;
    eventually(SECOND * 10, "the first carries out what is new", async || value(&world).await == "3").await;
    first.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_no_agent_hears_the_hub_the_one_that_acts_goes_on() {
    let world = World::new().await;
    let (first, second, wire) = two(&world, &[config_map("default", "a", "1")]).await;
    let holds = holder(&world).await;
    world.wire.cut();
    wire.cut();
    sleep(SECOND * 600).await;
    drift(&world).await;
    eventually(SECOND * 10, "it heals", async || value(&world).await == "1").await;
    assert_eq!((deeds(&second), holder(&world).await), ((0, 0), holds));
    world.wire.mend();
    wire.mend();
    sleep(SECOND * 60).await;
    assert_eq!(*first.handle.phase().borrow(), Phase::Active);
    first.stop().await;
    timeout(SECOND * 15, second.phase(Phase::Active)).await.expect("what is given back is taken at once");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_reach_its_member_is_replaced_on_the_hub_too() {
    let world = World::new().await;
    let (first, second, _) = two(&world, &[config_map("default", "a", "1")]).await;
    // The first goes on renewing the hub's Lease for as long as it does not know better.
    world.member_wire.cut();
    timeout(SECOND * 60, async {
        eventually(SECOND * 60, "the member's Lease changes hands", async || {
            world.member.get(LEASE).await.unwrap()["spec"]["leaseTransitions"] == 1
        })
        .await;
    })
    .await
    .unwrap();
    timeout(SECOND * 30, second.phase(Phase::Active)).await.expect("the hub's Lease follows");
    world.work("w", &[config_map("default", "a", "2")]).await;
    eventually(SECOND * 10, "it works", async || value(&world).await == "2").await;
    world.member_wire.mend();
    timeout(SECOND * 60, first.phase(Phase::StandingBy)).await.expect("the first sees that");
    sleep(SECOND * 60).await;
    assert_eq!(*second.handle.phase().borrow(), Phase::Active);
}

#[tokio::test(start_paused = true)]
async fn a_fence_is_kept_by_one_agent() {
    let world = World::new().await;
    let (first, second, _) = two(&world, &[fenced_web()]).await;
    world.wire.cut();
    timeout(SECOND * 120, second.phase(Phase::Active)).await.expect("it takes over");
    eventually(SECOND * 60, "it runs", async || {
        world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 2
    })
    .await;
    let before = deeds(&first);
    for _ in 0..60 {
        sleep(SECOND * 5).await;
        let live = world.member.get(WEB).await.unwrap();
        assert_eq!(live["spec"]["replicas"], 2, "the first does not stop what the second has confirmed");
    }
    assert_eq!(deeds(&first), before);
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_has_left_behind_is_stopped_before_another_copy_may_begin() {
    let world = World::new().await;
    let first = world.active_agent().await;
    world.work("w", &[fenced_web()]).await;
    world.applied("w").await;
    sleep(SECOND * 60).await;
    world.wire.cut();
    let cut = Instant::now();
    sleep(SECOND * 50).await;
    first.task.abort();
    // Made anew on another node: it waits until the first cannot be alive, but not with this.
    let second = world.agent(world.config());
    eventually(SECOND * 60, "stopped", async || {
        world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 0
    })
    .await;
    let after = cut.elapsed();
    assert!(after < SECOND * 85, "the hub begins another copy after 90 s: {after:?}");
    assert_eq!(second.handle.stats().applies.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_may_not_renew_its_lease_any_more_stops_acting() {
    let world = World::new().await;
    let (first, second, _) = two(&world, &[config_map("default", "a", "1")]).await;
    for method in ["GET", "PATCH", "PUT", "POST"] {
        world.member_wire.forbid(format!("{method} /apis/coordination.k8s.io"));
    }
    timeout(SECOND * 120, second.phase(Phase::Active)).await.expect("it takes over");
    let before = deeds(&first);
    world.work("w", &[config_map("default", "a", "2")]).await;
    eventually(SECOND * 10, "the second carries out what is new", async || value(&world).await == "2").await;
    for n in 0..6 {
        drift(&world).await;
        sleep(SECOND * 20).await;
        assert_eq!(value(&world).await, "2", "round {n}");
    }
    assert_eq!(deeds(&first), before);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_may_keep_no_lease_works_as_before() {
    let world = World::new().await;
    world.member_wire.forbid("POST /apis/coordination.k8s.io");
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    sleep(SECOND * 300).await;
    drift(&world).await;
    eventually(SECOND * 10, "it heals", async || value(&world).await == "1").await;
    // With other rights it keeps one.
    world.member_wire.pass();
    eventually(SECOND * 700, "a Lease", async || !world.is_missing(LEASE).await).await;
    assert_eq!(*agent.handle.phase().borrow(), Phase::Active);
    agent.stop().await;
    assert_eq!(holder(&world).await, Value::Null, "given back");
}

/// An account that may get, create and update Leases, as Karmada's own agent's may on the hub.
#[tokio::test(start_paused = true)]
async fn an_agent_that_may_not_patch_its_lease_sends_all_of_it() {
    let world = World::new().await;
    world.member_wire.forbid("PATCH /apis/coordination.k8s.io");
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    for _ in 0..5 {
        sleep(SECOND * 60).await;
        drift(&world).await;
        eventually(SECOND * 10, "it heals", async || value(&world).await == "1").await;
    }
    assert_eq!(*agent.handle.phase().borrow(), Phase::Active);
    assert_eq!(world.member_wire.count("PATCH /apis/coordination.k8s.io"), 1, "it is asked for once");
    agent.stop().await;
    assert_eq!(holder(&world).await, Value::Null, "given back");
}

#[tokio::test(start_paused = true)]
async fn the_members_lease_is_renewed_seldom_and_outlives_its_deletion() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    sleep(SECOND * 60).await;
    let writes =
        || world.member_wire.count("PATCH /apis/coordination") + world.member_wire.count("PUT /apis/coord");
    let before = writes();
    sleep(SECOND * 300).await;
    let times = writes() - before;
    assert!((25..=35).contains(&times), "{times} in five minutes");
    world.member.delete(LEASE, &json!({})).await.unwrap();
    eventually(SECOND * 15, "made anew", async || !world.is_missing(LEASE).await).await;
    // Somebody else's annotation is no reason to give it away.
    world
        .member
        .patch(
            LEASE,
            Patch::Merge,
            &json!({"metadata": {"annotations": {"agent.karmada.io/wanted-by": "x"}}}),
        )
        .await
        .unwrap();
    let holds = holder(&world).await;
    sleep(SECOND * 30).await;
    let lease = world.member.get(LEASE).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], holds);
    assert_eq!(lease["metadata"]["annotations"]["agent.karmada.io/wanted-by"], Value::Null);
    assert_eq!(*agent.handle.phase().borrow(), Phase::Active);
    agent.stop().await;
}

/// A folder that was copied makes two processes one agent.
#[tokio::test(start_paused = true)]
async fn of_two_processes_that_are_one_agent_the_earlier_gives_way() {
    let world = World::new().await;
    let state = State { instance: "copied".into(), ..State::fresh(&world.env) };
    let first = world.agent_with(state.clone());
    first.phase(Phase::Active).await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    let before = world.member.get(MAP).await.unwrap();
    sleep(SECOND * 7).await;
    let second = world.agent_between(state.clone(), &Wire::new(), &Wire::new());
    timeout(SECOND * 30, first.phase(Phase::StandingBy)).await.expect("it notices with its next renewal");
    timeout(SECOND * 30, second.phase(Phase::Active)).await.unwrap();
    let (was, is) = (deeds(&first), deeds(&second));
    for _ in 0..20 {
        drift(&world).await;
        eventually(SECOND * 10, "put right", async || value(&world).await == "1").await;
        sleep(SECOND * 30).await;
        assert_eq!(*first.handle.phase().borrow(), Phase::StandingBy);
    }
    assert_eq!(deeds(&first), was, "it leaves the member alone");
    assert!(deeds(&second).0 >= is.0 + 20);
    // The later one ends without a word: the earlier goes on after a while, and has touched nothing.
    second.kill().await;
    timeout(SECOND * 60, first.phase(Phase::Active)).await.expect("nobody renews the Lease");
    drift(&world).await;
    eventually(SECOND * 10, "put right", async || value(&world).await == "1").await;
    assert_eq!(world.member.get(MAP).await.unwrap()["metadata"]["uid"], before["metadata"]["uid"]);
    // Neither is who was there before, whom a member that was restored from a backup remembers.
    let earlier =
        json!({"metadata": {"annotations": {"agent.karmada.io/process": "2001-01-01T00:00:00.000000Z"}}});
    world.member.patch(LEASE, Patch::Merge, &earlier).await.unwrap();
    for _ in 0..30 {
        sleep(SECOND).await;
        assert_eq!(*first.handle.phase().borrow(), Phase::Active);
    }
    let process =
        &world.member.get(LEASE).await.unwrap()["metadata"]["annotations"]["agent.karmada.io/process"];
    assert_ne!(
        *process, earlier["metadata"]["annotations"]["agent.karmada.io/process"],
        "it is written over"
    );
    // A restart is no twin.
    first.kill().await;
    let again = world.agent_with(state);
    timeout(SECOND * 5, again.phase(Phase::Active)).await.expect("it is recognised as itself");
    again.stop().await;
}
