//! CronFederatedHPAs. It is 14:13:20 on 2026-09-21 when a world starts.

use std::time::{Duration, SystemTime};

use http::Method;
use karmada_client::Resource;
use karmada_env::{Clock, Env};
use karmada_hub::HubConfig;
use karmada_objects::kinds::CRON_FEDERATED_HPAS;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
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

/// One that has not heard yet that another leads, whose clock is not quite the same.
#[tokio::test(start_paused = true)]
async fn each_time_is_done_once_while_two_hubs_lead() {
    let begin = Instant::now();
    let world = World::start().await;
    world.create(&deployments(), deployment("web", 1)).await;
    let mut every = rule("up", "*/1 * * * *", 4);
    every["successfulHistoryLimit"] = json!(32);
    world.create(&CRON_FEDERATED_HPAS, cron("web", web(), json!([every]))).await;
    let env = Env::seeded(Behind(Paused(begin)), 12);
    let (other, stop) =
        (world.embedded.hub(HubConfig::default(), &env).expect("usual settings"), CancellationToken::new());
    let other = tokio::spawn(other.run(stop.clone()));
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
    stop.cancel();
    other.await.expect("it does not panic").expect("it ends when asked");
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
