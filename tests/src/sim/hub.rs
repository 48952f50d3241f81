//! What the hub decides, told to the ledger: one task per collection, for as long as a hub runs.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::{consts::taint, policy::PurgeMode};
use karmada_client::{Event, Rest, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_meta::object;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{
    driver::LOST,
    ledger::{Cause, Ledger},
    scalers, stranger,
};
use crate::{fleet::condition, inprocess::World};

/// Watches a hub until dropped, as long as which a user sets back what its clock scales.
pub(super) fn observe(client: &kube::Client, env: &Env, ledger: &Arc<Ledger>) -> JoinSet<()> {
    ledger.hub_is_gone();
    let mut tasks = JoinSet::new();
    let bindings = format!("/apis/work.karmada.io/v1alpha2/namespaces/{}/resourcebindings", World::NAMESPACE);
    let templates = format!("/apis/apps/v1/namespaces/{}/deployments", World::NAMESPACE);
    let crons =
        format!("/apis/autoscaling.karmada.io/v1alpha1/namespaces/{}/cronfederatedhpas", World::NAMESPACE);
    let scaled = [(templates, template as fn(&Ledger, &Value)), (crons, cron)];
    let scaled = scaled.into_iter().filter(|_| ledger.is_scaled());
    let usual = [
        (bindings, binding as fn(&Ledger, &Value)),
        ("/apis/cluster.karmada.io/v1alpha1/clusters".to_owned(), cluster),
    ];
    for (path, tell) in usual.into_iter().chain(scaled) {
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
        let mut watcher = Watcher::new(client.clone(), WatchConfig::new(path), env.clone(), parse);
        let ledger = ledger.clone();
        tasks.spawn(async move {
            loop {
                if let Event::Upsert(object) = watcher.next().await {
                    tell(&ledger, &object);
                }
            }
        });
    }
    if ledger.is_timed() {
        tasks.spawn(scalers::edit(Rest::new(client.clone()), ledger.clone()));
    }
    tasks
}

fn template(ledger: &Ledger, template: &Value) {
    if let Some(replicas) = template["spec"]["replicas"].as_i64() {
        ledger.templated(object::name(template), replicas);
    }
}

fn cron(ledger: &Ledger, cron: &Value) {
    ledger.struck(&cron["status"]);
}

fn binding(ledger: &Ledger, binding: &Value) {
    let allowed = names(&binding["spec"]["placement"]["clusterAffinity"]["clusterNames"]);
    let name = binding["spec"]["resource"]["name"].as_str().unwrap_or_default();
    let tasks = binding["spec"]["gracefulEvictionTasks"].as_array().into_iter().flatten();
    let leaving = tasks.filter_map(|task| Some((number(task["fromCluster"].as_str()?)?, cause(task))));
    ledger.placed(name, targets(binding), &allowed.collect(), leaving.collect());
}

/// What an eviction task says.
fn cause(task: &Value) -> Cause {
    let lost = [taint::UNREACHABLE, taint::NOT_READY, LOST];
    let message = task["message"].as_str().unwrap_or_default();
    Cause {
        lost: lost.iter().any(|taint| message.contains(taint)),
        purge: PurgeMode::deserialize(&task["purgeMode"]).unwrap_or_default(),
    }
}

fn cluster(ledger: &Ledger, cluster: &Value) {
    // Whether another machine that has the name is heard is not asked.
    if let Some(member) = number(object::name(cluster)).filter(|_| !stranger::is_of(cluster)) {
        ledger.cluster(member, condition(cluster, "Ready").unwrap_or("none"));
    }
}

/// Where a binding is scheduled, with how many replicas.
pub(super) fn targets(binding: &Value) -> BTreeMap<usize, i64> {
    let targets = binding["spec"]["clusters"].as_array().into_iter().flatten();
    targets
        .filter_map(|target| {
            Some((number(target["name"].as_str()?)?, target["replicas"].as_i64().unwrap_or(0)))
        })
        .collect()
}

/// Members by their names.
pub(super) fn names(list: &Value) -> impl Iterator<Item = usize> {
    list.as_array().into_iter().flatten().filter_map(|name| number(name.as_str()?))
}

/// The number of `member1` is 0.
pub(super) fn number(name: &str) -> Option<usize> {
    name.strip_prefix("member")?.parse::<usize>().ok()?.checked_sub(1)
}
