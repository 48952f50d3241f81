//! CronFederatedHPAs. It is 14:13:20 on 2026-09-21 when a world starts.

use std::time::{Duration, SystemTime};

use http::Method;
use karmada_client::{Patch, Resource, Rest};
use karmada_env::{Clock, Env};
use karmada_hub::{HubConfig, HubError};
use karmada_meta::object;
use karmada_objects::kinds::CRON_FEDERATED_HPAS;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::common::{Paused, World, deployment, deployments};

fn autoscalers() -> Resource {
    Resource::new("autoscaling.karmada.io", "v1alpha1", "federatedhpas", "FederatedHPA", true)
}

fn cron(name: &str, target: Value, rules: Value) -> Value {
    json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "CronFederatedHPA",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"scaleTargetRef": target, "rules": rules},
    })
}

fn web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
}

fn rule(name: &str, schedule: &str, replicas: i64) -> Value {
    json!({"name": name, "schedule": schedule, "targetReplicas": replicas})
}

async fn replicas(world: &World) -> i64 {
    let web = world.get(&deployments(), "default", "web").await.expect("it is there");
    web["spec"]["replicas"].as_i64().unwrap_or_default()
}

async fn history(world: &World, name: &str) -> Value {
    let read = world.get(&CRON_FEDERATED_HPAS, "default", name).await.expect("it is there");
    read["status"]["executionHistories"][0].clone()
}

fn times(history: &Value, field: &str) -> Vec<String> {
    let done = history[field].as_array().cloned().unwrap_or_default();
    done.iter().map(|one| one["scheduleTime"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_scaled_at_each_time_once() {
    let world = World::start().await;
    world.create(&deployments(), deployment("web", 1)).await;
    world.create(&CRON_FEDERATED_HPAS, cron("web", web(), json!([rule("up", "*/1 * * * *", 4)]))).await;
    let told =
        |cron: &Value| cron["status"]["executionHistories"][0]["nextExecutionTime"] == "2026-09-21T14:14:00Z";
    world.becomes("it says when it is due", &CRON_FEDERATED_HPAS, "default", "web", told).await;
    assert_eq!(replicas(&world).await, 1);
    sleep(Duration::from_secs(45)).await;
    assert_eq!(replicas(&world).await, 4);
    // A user's word counts until the next time.
    world.change(&deployments(), "default", "web", |web| web["spec"]["replicas"] = json!(2)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(replicas(&world).await, 2);
    world.asked.forget();
    sleep(Duration::from_secs(35)).await;
    assert_eq!(replicas(&world).await, 4);
    assert_eq!(world.asked.count(&Method::PUT, &["deployments/web/scale"]), 1);
    assert_eq!(world.asked.count(&Method::PUT, &["cronfederatedhpas/web/status"]), 1);
    sleep(Duration::from_secs(180)).await;
    let done = history(&world, "web").await;
    assert_eq!(
        times(&done, "successfulExecutions"),
        ["2026-09-21T14:18:00Z", "2026-09-21T14:17:00Z", "2026-09-21T14:16:00Z"]
    );
    assert_eq!(done["successfulExecutions"][0]["appliedReplicas"], 4);

    // A rule that rests is not due, and is not made up for.
    world
        .change(&CRON_FEDERATED_HPAS, "default", "web", |cron| {
            cron["spec"]["rules"][0]["suspend"] = json!(true)
        })
        .await;
    world.change(&deployments(), "default", "web", |web| web["spec"]["replicas"] = json!(3)).await;
    sleep(Duration::from_secs(150)).await;
    assert_eq!(replicas(&world).await, 3);
    assert_eq!(history(&world, "web").await["nextExecutionTime"], Value::Null);
    world
        .change(&CRON_FEDERATED_HPAS, "default", "web", |cron| {
            cron["spec"]["rules"][0]["suspend"] = json!(false)
        })
        .await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(replicas(&world).await, 3);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(replicas(&world).await, 4);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_due_while_no_hub_was_there_is_done_once_if_it_is_not_long_ago() {
    let world = World::start().await;
    world.create(&deployments(), deployment("web", 1)).await;
    let rules = json!([{"name": "up", "schedule": "20,40,42,45 * * * *", "targetReplicas": 4}]);
    world.create(&CRON_FEDERATED_HPAS, cron("web", web(), rules)).await;
    let told =
        |cron: &Value| cron["status"]["executionHistories"][0]["nextExecutionTime"] == "2026-09-21T14:20:00Z";
    world.becomes("it says when it is due", &CRON_FEDERATED_HPAS, "default", "web", told).await;
    let world = world.restart_after(async |_| sleep(Duration::from_secs(10 * 60)).await).await;
    world
        .becomes("the one at 14:20", &deployments(), "default", "web", |web| web["spec"]["replicas"] == 4)
        .await;
    world.settle().await;
    assert_eq!(times(&history(&world, "web").await, "successfulExecutions"), ["2026-09-21T14:20:00Z"]);
    // Another start finds it done.
    world.change(&deployments(), "default", "web", |web| web["spec"]["replicas"] = json!(2)).await;
    let world = world.restart().await;
    world.settle().await;
    assert_eq!(replicas(&world).await, 2);
    // Of 14:40, 14:42 and 14:45 the last is done, and what is long ago is told.
    let world = world.restart_after(async |_| sleep(Duration::from_secs(25 * 60)).await).await;
    world
        .becomes("the one at 14:45", &deployments(), "default", "web", |web| web["spec"]["replicas"] == 4)
        .await;
    let world = world.restart_after(async |_| sleep(Duration::from_secs(50 * 60)).await).await;
    world.change(&deployments(), "default", "web", |web| web["spec"]["replicas"] = json!(2)).await;
    world.settle().await;
    let done = history(&world, "web").await;
    assert_eq!(times(&done, "successfulExecutions"), ["2026-09-21T14:45:00Z", "2026-09-21T14:20:00Z"]);
    assert_eq!(times(&done, "failedExecutions"), ["2026-09-21T15:20:00Z"], "{done}");
    assert_eq!(done["nextExecutionTime"], "2026-09-21T15:40:00Z");
    assert_eq!(replicas(&world).await, 2);
    world.stop().await;
}

/// A clock that is two seconds behind the world's.
struct Behind(Paused);

impl Clock for Behind {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall(&self) -> SystemTime {
        self.0.wall() - Duration::from_secs(2)
    }
}

/// Another hub that leads as well, whose clock is two seconds behind.
struct Other {
    runs: JoinHandle<Result<(), HubError>>,
    stop: CancellationToken,
}

impl Other {
    fn start(world: &World, begin: Instant) -> Self {
        let env = Env::seeded(Behind(Paused(begin)), 12);
        let hub = world.embedded.hub(HubConfig::default(), &env).expect("usual settings");
        let stop = CancellationToken::new();
        Self { runs: tokio::spawn(hub.run(stop.clone())), stop }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.runs.await.expect("it does not panic").expect("it ends when asked");
    }
}

/// One that has not heard yet that another leads, whose clock is not quite the same.
#[tokio::test(start_paused = true)]
async fn each_time_is_done_once_while_two_hubs_lead() {
    let begin = Instant::now();
    let world = World::start().await;
    world.create(&deployments(), deployment("web", 1)).await;
    let mut every = rule("up", "*/1 * * * *", 4);
    every["successfulHistoryLimit"] = json!(32);
    world.create(&CRON_FEDERATED_HPAS, cron("web", web(), json!([every]))).await;
    let other = Other::start(&world, begin);
    // It is 14:14:01, and a second before 14:14 by the other's clock.
    sleep(Duration::from_secs(41).saturating_sub(begin.elapsed())).await;
    for _ in 0..3 {
        assert_eq!(replicas(&world).await, 4);
        world.change(&deployments(), "default", "web", |web| web["spec"]["replicas"] = json!(2)).await;
        sleep(Duration::from_secs(55)).await;
        assert_eq!(replicas(&world).await, 2, "a user's word counts until the next time");
        sleep(Duration::from_secs(5)).await;
    }
    let done = history(&world, "web").await;
    let times = times(&done, "successfulExecutions");
    let want =
        ["2026-09-21T14:17:00Z", "2026-09-21T14:16:00Z", "2026-09-21T14:15:00Z", "2026-09-21T14:14:00Z"];
    assert_eq!(times, want);
    assert_eq!(done["failedExecutions"], Value::Null, "{done}");
    other.stop().await;
    world.stop().await;
}

/// A world with a Deployment of one that is scaled to four at each full minute, and a second after the first of them, of which
/// writes to a path that ends so were lost.
async fn begun(lost: &str) -> World {
    begun_by("*/1 * * * *", lost).await
}

/// The same by another schedule that has 14:14.
async fn begun_by(schedule: &str, lost: &str) -> World {
    let begin = Instant::now();
    let world = World::start().await;
    world.create(&deployments(), deployment("web", 1)).await;
    world.create(&CRON_FEDERATED_HPAS, cron("web", web(), json!([rule("up", schedule, 4)]))).await;
    let told =
        |cron: &Value| cron["status"]["executionHistories"][0]["nextExecutionTime"] == "2026-09-21T14:14:00Z";
    world.becomes("it says when it is due", &CRON_FEDERATED_HPAS, "default", "web", told).await;
    world.asked.cut(Some(lost));
    sleep(Duration::from_secs(41).saturating_sub(begin.elapsed())).await;
    world
}

async fn edit(rest: &Rest, change: Value) {
    let path = deployments().object(Some("default"), "web");
    rest.patch(&path, Patch::Merge, &change).await.expect("a user may edit it");
}

/// The hub has scaled, and is lost before it says so: what a user sets then is the last word.
#[tokio::test(start_paused = true)]
async fn a_time_that_was_done_is_not_done_again_because_nobody_knows() {
    for restarts in [false, true] {
        let mut world = begun("cronfederatedhpas/web/status").await;
        assert_eq!(replicas(&world).await, 4, "{restarts}");
        let seven = json!({"spec": {"replicas": 7}});
        if restarts {
            world = world.restart_after(async |rest| edit(&rest, seven).await).await;
        } else {
            edit(&world.rest, seven).await;
            sleep(Duration::from_secs(3)).await;
            world.asked.cut(None);
        }
        let done = || async {
            let done = history(&world, "web").await;
            (times(&done, "successfulExecutions") == ["2026-09-21T14:14:00Z"]).then_some(())
        };
        world.within(Duration::from_secs(40), "it is known", done).await;
        assert_eq!(replicas(&world).await, 7, "{restarts}");
        // Until the next time.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(replicas(&world).await, 4, "{restarts}");
        world.stop().await;
    }
}

/// The same, and the next one comes when the time is too long ago to be made up for: what was done is not said to be missed.
#[tokio::test(start_paused = true)]
async fn a_time_that_was_done_is_not_said_to_be_missed() {
    for (lost, done) in [("cronfederatedhpas/web/status", true), ("deployments/web/scale", false)] {
        let world = begun_by("14 14 * * *", lost).await;
        assert_eq!(replicas(&world).await, if done { 4 } else { 1 });
        let world = world.restart_after(async |_| sleep(Duration::from_secs(11 * 60)).await).await;
        let told = |cron: &Value| {
            cron["status"]["executionHistories"][0]["nextExecutionTime"] == "2026-09-22T14:14:00Z"
        };
        world.becomes("it is told", &CRON_FEDERATED_HPAS, "default", "web", told).await;
        let history = history(&world, "web").await;
        let (right, wrong) = match done {
            true => ("successfulExecutions", "failedExecutions"),
            false => ("failedExecutions", "successfulExecutions"),
        };
        assert_eq!(times(&history, right), ["2026-09-21T14:14:00Z"], "{history}");
        assert_eq!(history[wrong], Value::Null, "{history}");
        assert_eq!(replicas(&world).await, if done { 4 } else { 1 });
        world.stop().await;
    }
}

/// The hub is lost when it has said what it begins, and has not scaled: the next one does, and once.
#[tokio::test(start_paused = true)]
async fn a_time_that_was_begun_is_done() {
    for edited in [json!({}), json!({"spec": {"minReadySeconds": 3}})] {
        let world = begun("deployments/web/scale").await;
        assert_eq!(replicas(&world).await, 1);
        let told = world.get(&CRON_FEDERATED_HPAS, "default", "web").await.expect("it is there");
        let begun = object::annotation(&told, "cronfederatedhpa.karmada.io/begun").expect("it says so");
        assert!(begun.contains("2026-09-21T14:14:00Z"), "{begun}");
        let world = world.restart_after(async |rest| edit(&rest, edited).await).await;
        world.becomes("scaled", &deployments(), "default", "web", |web| web["spec"]["replicas"] == 4).await;
        world.settle().await;
        assert_eq!(times(&history(&world, "web").await, "successfulExecutions"), ["2026-09-21T14:14:00Z"]);
        world.stop().await;
    }
}

/// The hub is lost when it has said what it begins, and the target is changed twice before the next one looks: nobody can tell
/// whether it was scaled and set back.
#[tokio::test(start_paused = true)]
async fn a_time_of_which_nobody_knows_what_became_is_said_to_be_so() {
    let world = begun("deployments/web/scale").await;
    let edits = [json!({"spec": {"minReadySeconds": 3}}), json!({"spec": {"minReadySeconds": 4}})];
    let world = world
        .restart_after(async |rest| {
            for edited in edits {
                edit(&rest, edited).await;
            }
        })
        .await;
    let told = || async {
        let history = history(&world, "web").await;
        let failed = times(&history, "failedExecutions") == ["2026-09-21T14:14:00Z"];
        (failed && times(&history, "successfulExecutions").is_empty()).then_some(())
    };
    world.within(Duration::from_secs(40), "it is told", told).await;
    assert_eq!(replicas(&world).await, 1);
    world.stop().await;
}

/// The history is limited to nothing, and another hub, which leads as well, is two seconds behind.
#[tokio::test(start_paused = true)]
async fn a_time_that_failed_is_tried_once_also_where_nothing_is_remembered() {
    let begin = Instant::now();
    let world = World::start().await;
    let mut every = rule("up", "*/1 * * * *", 4);
    every["failedHistoryLimit"] = json!(0);
    world.create(&CRON_FEDERATED_HPAS, cron("web", web(), json!([every]))).await;
    let other = Other::start(&world, begin);
    // Until 14:16:50.
    sleep(Duration::from_secs(210).saturating_sub(begin.elapsed())).await;
    let tried = world.asked.count(&Method::GET, &["deployments/web/scale"]);
    assert_eq!(tried, 3, "at 14:14, 14:15 and 14:16");
    assert_eq!(history(&world, "web").await["failedExecutions"], Value::Null);
    world.event("web", "ScaleFailed", "2026-09-21T14:16:00Z").await;
    other.stop().await;
    world.stop().await;
}

/// Of rules that are due together each is said to be done before the next is begun.
#[tokio::test(start_paused = true)]
async fn what_is_due_together_is_done_one_after_the_other() {
    let world = World::start().await;
    world.create(&deployments(), deployment("web", 1)).await;
    let rules = json!([rule("one", "15 14 * * *", 4), rule("two", "15 14 * * *", 5)]);
    world.create(&CRON_FEDERATED_HPAS, cron("web", web(), rules)).await;
    sleep(Duration::from_secs(90)).await;
    world.asked.forget();
    sleep(Duration::from_secs(20)).await;
    let written = world.asked.written();
    let ends = written.iter().filter_map(|path| {
        ["web/scale", "web/status", "cronfederatedhpas/web"].into_iter().find(|end| path.ends_with(end))
    });
    let once = ["cronfederatedhpas/web", "web/scale", "web/status"];
    assert_eq!(ends.collect::<Vec<_>>(), [once, once].concat(), "{written:?}");
    assert_eq!(replicas(&world).await, 5);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn bounds_are_set_and_what_cannot_be_scaled_is_told() {
    let world = World::start().await;
    let hpa = json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": web(), "minReplicas": 1, "maxReplicas": 1},
    });
    world.create(&autoscalers(), hpa).await;
    let of = |name: &str| json!({"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA", "name": name});
    let rules = json!([{"name": "r", "schedule": "*/1 * * * *", "targetMinReplicas": 2, "targetMaxReplicas": 8,
        "failedHistoryLimit": 1}]);
    world.create(&CRON_FEDERATED_HPAS, cron("bounds", of("web"), rules.clone())).await;
    world.create(&CRON_FEDERATED_HPAS, cron("nobody", of("gone"), rules)).await;
    sleep(Duration::from_secs(130)).await;
    let hpa = world.get(&autoscalers(), "default", "web").await.expect("it is there");
    assert_eq!((&hpa["spec"]["minReplicas"], &hpa["spec"]["maxReplicas"]), (&json!(2), &json!(8)));
    let done = history(&world, "bounds").await;
    assert_eq!(done["successfulExecutions"][0]["appliedMinReplicas"], 2);
    assert_eq!(done["successfulExecutions"][0]["appliedMaxReplicas"], 8);
    let failed = history(&world, "nobody").await;
    assert_eq!(times(&failed, "failedExecutions"), ["2026-09-21T14:15:00Z"]);
    let message = failed["failedExecutions"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("FederatedHPA default/gone cannot be scaled"), "{message}");
    let odd = cron("odd", web(), json!([rule("r", "@5minutes", 1)]));
    let path = CRON_FEDERATED_HPAS.collection(Some("default"));
    let refused = world.rest.post(&path, &odd).await.expect_err("no schedule").to_string();
    assert!(
        refused.contains("spec.rules[0].schedule") && refused.contains("invalid cron format"),
        "{refused}"
    );
    world.stop().await;
}
