//! A hub that knows less than the agent: it was emptied, is another one, or was made anew of an older copy.

use std::time::Duration;

use karmada_agent::{Phase, Place, State};
use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{NAMESPACE, Running, WEB, Wire, World, config_map, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);
const CONFIG: &str = "/api/v1/namespaces/default/configmaps/c";
const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const HISTORY: &str = "GET /karmada/history";

/// An agent that has applied two Works, and keeps them in a folder.
async fn settled(world: &World) -> (Running, State, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::Folder(folder.path().to_owned(), None);
    let state = State { place, ..State::fresh(&world.env) };
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    world.work("web", &[deployment("default", "web", 2)]).await;
    world.work("c", &[config_map("default", "c", "1")]).await;
    world.applied("web").await;
    world.applied("c").await;
    sleep(SECOND * 5).await;
    (agent, state, folder)
}

/// Lets the hub lose a Work, as one does that never had it.
async fn lose(world: &World, name: &str) {
    let path = World::work_path(name);
    world.hub.patch(&path, Patch::Merge, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    world.hub.delete(&path, &json!({})).await.unwrap();
}

/// The hub is another one from now on.
fn is_another(world: &World) {
    let answer = json!({"boot": "another", "revision": 1_000_000, "durable": 1_000_000, "knows": false});
    world.wire.answer(HISTORY, 200, answer.to_string());
}

async fn told(world: &World) -> Option<String> {
    let cluster = world.cluster().await;
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.into_iter().find(|condition| condition["type"] == "HubOlderThanAgent")?;
    condition["message"].as_str().map(str::to_owned)
}

async fn is_told(world: &World) -> String {
    eventually(SECOND * 60, "the Cluster says so", async || told(world).await.is_some()).await;
    told(world).await.unwrap()
}

async fn confirm(world: &World, time: &str) {
    let change = json!({"metadata": {"annotations": {"agent.karmada.io/hub-confirmed": time}}});
    world.hub.patch(CLUSTER, Patch::Merge, &change).await.unwrap();
}

/// What is missing on the member comes back.
async fn heals(world: &World) {
    for path in [WEB, CONFIG] {
        if !world.is_missing(path).await {
            world.member.delete(path, &json!({})).await.unwrap();
        }
        eventually(SECOND * 5, path, async || !world.is_missing(path).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn under_an_emptied_hub_the_member_is_kept_as_it_was() {
    for restarts in [true, false] {
        let world = World::new().await;
        let (agent, state, _folder) = settled(&world).await;
        // A confirmation of before says nothing of what comes.
        confirm(&world, "2026-01-01T00:00:00Z").await;
        sleep(SECOND * 5).await;
        let agent = if restarts {
            agent.stop().await;
            None
        } else {
            world.wire.cut();
            Some(agent)
        };
        lose(&world, "web").await;
        lose(&world, "c").await;
        // And it wants something gone that it has never listed.
        is_another(&world);
        let agent = match agent {
            None => world.agent_with(state.clone()),
            Some(agent) => {
                world.wire.mend();
                agent
            }
        };
        agent.phase(Phase::Active).await;
        world.work("new", &[config_map("default", "new", "1")]).await;
        let names_it = async || told(&world).await.is_some_and(|message| message.contains("(new)"));
        eventually(SECOND * 60, "the Cluster says so", names_it).await;
        let message = is_told(&world).await;
        for part in
            ["2 Works are not there (c, web)", "1 Works were not there any more (new)", "confirm-restore m1"]
        {
            assert!(message.contains(part), "{message}");
        }
        heals(&world).await;
        assert!(world.is_missing("/api/v1/namespaces/default/configmaps/new").await);
        assert!(agent.handle.is_ready() && agent.handle.hub_doubt().is_some());
        // Over restarts, too, without the hub and with it.
        agent.kill().await;
        world.wire.cut();
        let agent = world.agent_with(state.clone());
        heals(&world).await;
        world.wire.mend();
        agent.phase(Phase::Active).await;
        sleep(SECOND * 600).await;
        is_told(&world).await;
        heals(&world).await;
        // Now it counts.
        world.wire.pass();
        confirm(&world, "2026-11-20T00:00:00Z").await;
        eventually(SECOND * 60, "it is over", async || told(&world).await.is_none()).await;
        world.applied("new").await;
        assert!(agent.handle.hub_doubt().is_none());
        assert!(!world.is_missing(WEB).await, "nothing was ever deleted");
        world.delete_work("new").await;
        let gone = async || world.is_missing("/api/v1/namespaces/default/configmaps/new").await;
        eventually(SECOND * 30, "its word counts", gone).await;
        agent.stop().await;
        // And it is the hub that is known from now on.
        let agent = world.agent_with(state).await_a_while().await;
        assert!(agent.handle.hub_doubt().is_none() && told(&world).await.is_none());
        agent.stop().await;
    }
}

/// It does not even have our Cluster, as one that was emptied, or made anew of a backup of before we joined.
#[tokio::test(start_paused = true)]
async fn a_hub_that_never_had_the_cluster_is_no_word_to_leave() {
    let world = World::new().await;
    let (agent, _state, _folder) = settled(&world).await;
    world.wire.cut();
    lose(&world, "web").await;
    lose(&world, "c").await;
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    is_another(&world);
    world.wire.mend();
    let message = is_told_again(&world).await;
    assert!(message.contains("2 Works are not there (c, web)"), "{message}");
    agent.phase(Phase::Active).await;
    heals(&world).await;
    let troubles = agent.handle.troubles();
    assert!(troubles.iter().any(|trouble| trouble.contains("(c, web)")), "{troubles:?}");
    // The one that knows us and has deleted it is obeyed.
    world.wire.pass();
    confirm(&world, "2026-11-20T00:00:00Z").await;
    eventually(SECOND * 60, "it is over", async || told(&world).await.is_none()).await;
    assert!(agent.handle.troubles().is_empty(), "{:?}", agent.handle.troubles());
    sleep(SECOND * 10).await;
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    agent.phase(Phase::Removed).await;
    sleep(SECOND * 300).await;
    assert_eq!(*agent.handle.phase().borrow(), Phase::Removed);
    agent.stop().await;
}

/// A Cluster that was seen to go is not made again, whatever becomes of the hub before it is gone.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_was_about_to_leave_is_not_registered_again() {
    let world = World::new().await;
    let (agent, _state, _folder) = settled(&world).await;
    let finalizers = |names: Value| json!({"metadata": {"finalizers": names}});
    world.hub.patch(CLUSTER, Patch::Merge, &finalizers(json!(["example.com/wait"]))).await.unwrap();
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    sleep(SECOND * 10).await;
    assert_eq!(*agent.handle.phase().borrow(), Phase::Active, "it is there yet");
    world.wire.cut();
    lose(&world, "web").await;
    lose(&world, "c").await;
    world.hub.patch(CLUSTER, Patch::Merge, &finalizers(json!([]))).await.unwrap();
    assert!(world.hub.get(CLUSTER).await.is_err_and(|error| error.is_not_found()));
    is_another(&world);
    world.wire.mend();
    agent.phase(Phase::Removed).await;
    sleep(SECOND * 300).await;
    assert!(world.hub.get(CLUSTER).await.is_err(), "it is not called back");
    agent.stop().await;
}

/// Whoever does not hold for such a hub does not give it the member either: what was wanted last stays so.
#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_doubt_keeps_its_copy_under_an_emptied_hub() {
    let mut world = World::new().await;
    world.doubts = false;
    let (agent, state, _folder) = settled(&world).await;
    world.wire.cut();
    lose(&world, "web").await;
    lose(&world, "c").await;
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    is_another(&world);
    world.wire.mend();
    agent.phase(Phase::Removed).await;
    sleep(SECOND * 300).await;
    assert!(world.hub.get(CLUSTER).await.is_err(), "it does not register");
    heals(&world).await;
    agent.stop().await;
    world.wire.cut();
    let agent = world.agent_with(state);
    heals(&world).await;
    agent.kill().await;
}

/// The right to list Works lies in the Namespace that goes with the Cluster.
#[tokio::test(start_paused = true)]
async fn a_stock_server_that_lets_nothing_be_asked_has_deleted_the_cluster() {
    let world = World::new().await;
    world.wire.answer(HISTORY, 404, "404 page not found\n");
    let (agent, ..) = settled(&world).await;
    let works = format!("GET /apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works?limit=1");
    world.wire.forbid(works);
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    agent.phase(Phase::Removed).await;
    agent.stop().await;
}

/// What the Cluster says, once there is one again.
async fn is_told_again(world: &World) -> String {
    let is_there = async || world.hub.get(CLUSTER).await.is_ok() && told(world).await.is_some();
    eventually(SECOND * 120, "it is registered again, and says so", is_there).await;
    told(world).await.unwrap()
}

/// A hold that somebody has asked for since is not in the backup.
#[tokio::test(start_paused = true)]
async fn a_hub_that_is_not_believed_lifts_no_hold() {
    let world = World::new().await;
    let (agent, _state, _folder) = settled(&world).await;
    let hold = |why: Value| json!({"metadata": {"annotations": {"cluster.karmada.io/hold": why}}});
    let value = async || world.member.get(CONFIG).await.unwrap()["data"]["v"].clone();
    world.hub.patch(CLUSTER, Patch::Merge, &hold(json!("a fair"))).await.unwrap();
    eventually(SECOND * 10, "it holds", async || agent.handle.held().is_some()).await;
    world.work("c", &[config_map("default", "c", "2")]).await;
    sleep(SECOND * 10).await;
    assert_eq!(value().await, "1");
    world.wire.cut();
    world.hub.patch(CLUSTER, Patch::Merge, &hold(Value::Null)).await.unwrap();
    lose(&world, "web").await;
    is_another(&world);
    world.wire.mend();
    is_told(&world).await;
    sleep(SECOND * 120).await;
    assert!(agent.handle.held().is_some(), "its word does not count");
    assert_eq!(value().await, "1");
    // Now it does.
    world.wire.pass();
    confirm(&world, "2026-11-20T00:00:00Z").await;
    eventually(SECOND * 60, "what waited is carried out", async || value().await == "2").await;
    assert!(agent.handle.held().is_none());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_lists_the_same_has_caught_up() {
    let world = World::new().await;
    let (agent, state, _folder) = settled(&world).await;
    agent.stop().await;
    is_another(&world);
    lose(&world, "c").await;
    let agent = world.agent_with(state).await_a_while().await;
    assert!(is_told(&world).await.contains("1 Works are not there (c)"));
    world.member.delete(CONFIG, &json!({})).await.unwrap();
    eventually(SECOND * 5, "healed", async || !world.is_missing(CONFIG).await).await;
    let before = world.member.get(CONFIG).await.unwrap()["metadata"]["uid"].clone();
    // Somebody applies what was lost, under another id.
    world.work("c", &[config_map("default", "c", "1")]).await;
    world.wire.pass();
    eventually(SECOND * 60, "it is over", async || told(&world).await.is_none()).await;
    world.applied("c").await;
    assert_eq!(world.member.get(CONFIG).await.unwrap()["metadata"]["uid"], before);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stock_server_is_judged_by_its_revisions() {
    let world = World::new().await;
    world.wire.answer(HISTORY, 404, "404 page not found\n");
    let (agent, state, _folder) = settled(&world).await;
    agent.stop().await;
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works");
    let mut list: Value = world.hub.get(&works).await.unwrap();
    let agent = world.agent_with(state.clone()).await_a_while().await;
    assert!(told(&world).await.is_none(), "the same");
    agent.stop().await;
    // Its etcd was lost, and has begun anew.
    list["metadata"]["resourceVersion"] = json!("3");
    list["items"] = json!([]);
    world.wire.answer(format!("GET {works}$"), 200, list.to_string());
    let agent = world.agent_with(state);
    agent.phase(Phase::Active).await;
    assert!(is_told(&world).await.contains("it is at revision 3"));
    heals(&world).await;
    agent.kill().await;
}

/// What the Deployment has ready is this from now on: a report.
async fn is_ready(world: &World, replicas: u32) {
    let status = json!({"status": {"replicas": replicas, "readyReplicas": replicas}});
    world.member.patch(&format!("{WEB}/status"), Patch::Merge, &status).await.unwrap();
}

async fn value(world: &World) -> Value {
    world.member.get(CONFIG).await.unwrap()["data"]["v"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_report_that_overtakes_the_question_makes_no_hub_older() {
    for is_stock in [false, true] {
        let world = World::new().await;
        let mut question = HISTORY.to_owned();
        if is_stock {
            world.wire.answer(HISTORY, 404, "404 page not found\n");
            question = format!("GET /apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works");
        }
        let (agent, ..) = settled(&world).await;
        world.wire.withhold(&question);
        world.wire.back.wake();
        let asked = world.wire.count(&question);
        world.work("c", &[config_map("default", "c", "2")]).await;
        eventually(SECOND * 10, "it asks", async || world.wire.count(&question) > asked).await;
        is_ready(&world, 2).await;
        let reports = format!("PATCH {}/status", World::work_path("web"));
        let sent = world.wire.count(&reports);
        eventually(SECOND * 10, "it reports", async || world.wire.count(&reports) > sent).await;
        sleep(SECOND).await;
        world.wire.release();
        eventually(SECOND * 10, "it is believed", async || value(&world).await == "2").await;
        assert_eq!((told(&world).await, agent.handle.hub_doubt()), (None, None), "{is_stock}");
        agent.stop().await;
    }
}

/// A hub that crashes loses renewals of Leases: by that it turns out to be another, and knows no less of Works.
#[tokio::test(start_paused = true)]
async fn a_hub_that_has_crashed_is_no_older_one() {
    let world = World::new().await;
    let (agent, state, _folder) = settled(&world).await;
    // For the ledger to be written.
    sleep(SECOND * 15).await;
    agent.stop().await;
    let path = "/api/v1/namespaces/karmada-system/configmaps/karmada-agent-fence-m1";
    let mut ledger = world.member.get(path).await.unwrap();
    let text = ledger["data"]["fenced.json"].as_str().unwrap();
    let mut said: Value = serde_json::from_str(text).unwrap();
    said["anotherSince"] = json!("2026-11-18T11:06:50Z");
    ledger["data"]["fenced.json"] = json!(said.to_string());
    world.member.put(path, &ledger).await.unwrap();
    let agent = world.agent_with(state).await_a_while().await;
    assert_eq!((told(&world).await, agent.handle.hub_doubt()), (None, None));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_fenced_goes_on_under_a_hub_that_is_not_believed() {
    for restarts in [false, true] {
        let world = World::new().await;
        let (mut agent, state, _folder) = settled(&world).await;
        let mut web = deployment("default", "web", 2);
        web["metadata"]["annotations"] = json!({"work.karmada.io/fence-after": "60s"});
        world.work("web", &[web]).await;
        sleep(SECOND * 30).await;
        if restarts {
            agent.kill().await;
            is_another(&world);
            agent = world.agent_with(state);
        } else {
            is_another(&world);
            world.wire.back.wake();
        }
        lose(&world, "c").await;
        is_told(&world).await;
        // What it has begun anew waits until no copy can be elsewhere.
        sleep(SECOND * if restarts { 180 } else { 0 }).await;
        for _ in 0..60 {
            let live = world.member.get(WEB).await.unwrap();
            assert_eq!(live["spec"]["replicas"], 2, "restarts: {restarts}");
            sleep(SECOND * 5).await;
        }
        assert!(told(&world).await.is_some());
        agent.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_none_stops_nothing() {
    let html = "<html><body>Log in</body></html>";
    let rows = [(200, html), (200, "{}"), (200, "[]"), (401, "no"), (405, html), (400, "what"), (503, html)];
    for (code, body) in rows {
        let world = World::new().await;
        world.wire.answer(HISTORY, code, body);
        let agent = world.active_agent().await;
        world.work("c", &[config_map("default", "c", "1")]).await;
        eventually(SECOND * 60, &format!("{code} {body}"), async || !world.is_missing(CONFIG).await).await;
        assert_eq!(agent.handle.hub_doubt(), None);
        agent.stop().await;
    }
    // One that had not begun to answer is asked again.
    let world = World::new().await;
    world.wire.forbid(HISTORY);
    let (agent, state, _folder) = settled(&world).await;
    world.wire.pass();
    world.wire.back.wake();
    world.work("c", &[config_map("default", "c", "2")]).await;
    eventually(SECOND * 10, "carried out", async || value(&world).await == "2").await;
    agent.stop().await;
    is_another(&world);
    lose(&world, "c").await;
    let agent = world.agent_with(state);
    assert!(is_told(&world).await.contains("it does not know the run"));
    agent.kill().await;
}

#[tokio::test(start_paused = true)]
async fn the_right_hub_is_believed_again_after_a_namesake() {
    let world = World::new().await;
    let (agent, _state, _folder) = settled(&world).await;
    is_another(&world);
    world.wire.back.wake();
    world.work("c", &[config_map("default", "c", "2")]).await;
    is_told(&world).await;
    assert_eq!(value(&world).await, "1");
    sleep(SECOND * 300).await;
    assert!(agent.handle.hub_doubt().is_some());
    world.wire.pass();
    world.wire.back.wake();
    eventually(SECOND * 30, "believed", async || value(&world).await == "2").await;
    eventually(SECOND * 60, "it is over", async || told(&world).await.is_none()).await;
    world.delete_work("c").await;
    eventually(SECOND * 60, "its word counts", async || world.is_missing(CONFIG).await).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_doubted_is_forgotten_when_another_agent_has_acted() {
    let world = World::new().await;
    let (agent, state, _folder) = settled(&world).await;
    agent.stop().await;
    is_another(&world);
    lose(&world, "c").await;
    let first = world.agent_with(state);
    is_told(&world).await;
    let (hub, member) = (Wire::new(), Wire::new());
    let second = world.agent_between(State::fresh(&world.env), &hub, &member);
    second.phase(Phase::StandingBy).await;
    world.wire.cut();
    second.phase(Phase::Active).await;
    eventually(SECOND * 60, "it is over", async || told(&world).await.is_none()).await;
    world.wire.mend();
    eventually(SECOND * 60, "the first stands by", async || {
        *first.handle.phase().borrow() == Phase::StandingBy
    })
    .await;
    second.stop().await;
    first.phase(Phase::Active).await;
    world.work("new", &[config_map("default", "new", "1")]).await;
    world.applied("new").await;
    assert_eq!((told(&world).await, first.handle.hub_doubt()), (None, None));
    first.stop().await;
}

impl Running {
    /// Gives it the time to do what it would.
    async fn await_a_while(self) -> Self {
        self.phase(Phase::Active).await;
        sleep(SECOND * 30).await;
        self
    }
}
