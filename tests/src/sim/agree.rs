//! Whether all that there is agrees: what users want, what the hub has decided, what it has told its agents, what
//! members run and what is reported of it.

use std::collections::{BTreeMap, BTreeSet};

use karmada_client::Rest;
use karmada_meta::{object, time::Time};
use serde_json::Value;

use super::{
    driver::TAINT,
    hub::{names, number, targets},
    ledger::{Intent, Ledger, value_of},
    plan::{Spread, Want},
    scalers, services,
};
use crate::{
    fleet::condition,
    inprocess::World,
    samples::{binding_path, condition_of, config_map_path, deployment_path},
};

/// What does not agree yet: nothing when everything does.
pub(super) async fn disagreement(world: &World, ledger: &Ledger, services: bool) -> Result<(), String> {
    let intent = ledger.intent();
    let (api, members) = (&world.api(), world.members.len());
    clusters(api, members, &intent).await?;
    if services {
        services::disagreement(world, |member| intent.is_away(member)).await?;
    }
    let works = works(api).await?;
    let known: BTreeSet<String> = (0..9).map(|n| format!("w{n}")).collect();
    for name in &known {
        match intent.wants.get(name) {
            Some(want) => workload(world, ledger, &intent, name, want, &works).await?,
            None => {
                if let Some(member) = works.iter().find(|((_, work), _)| work == name).map(|(key, _)| key.0) {
                    return Err(format!("{name} is not wanted and has a Work for member{}", member + 1));
                }
                let forgotten = ledger.forgotten().contains(name);
                let left = |m: &usize| intent.is_away(*m);
                let stays = |m: &usize| ledger.on(*m, name).is_some() && !ledger.is_older(*m, name);
                let there = (0..members).find(|m| !left(m) && stays(m));
                if let Some(member) = there.filter(|_| !forgotten) {
                    return Err(format!("{name} is not wanted and still on member{}", member + 1));
                }
            }
        }
    }
    Ok(())
}

async fn clusters(api: &Rest, members: usize, intent: &Intent) -> Result<(), String> {
    let list = get(api, "/apis/cluster.karmada.io/v1alpha1/clusters").await?;
    let mut seen = BTreeSet::new();
    for cluster in list["items"].as_array().into_iter().flatten() {
        let name = object::name(cluster);
        let Some(member) = number(name) else { continue };
        seen.insert(member);
        let taints = cluster["spec"]["taints"].as_array().into_iter().flatten();
        let hubs = taints.filter(|taint| taint["key"] != TAINT).count();
        if condition(cluster, "Ready") != Some("True") || hubs > 0 {
            return Err(format!("{name} is not Ready, or has taints: {}", cluster["spec"]["taints"]));
        }
    }
    let wanted: BTreeSet<usize> = (0..members).filter(|m| !intent.is_away(*m)).collect();
    if seen != wanted {
        return Err(format!("the hub knows clusters {seen:?}, and there are {wanted:?}"));
    }
    Ok(())
}

/// What Works carry, by member and the workload's name.
async fn works(api: &Rest) -> Result<BTreeMap<(usize, String), Value>, String> {
    let list = get(api, "/apis/work.karmada.io/v1alpha1/works").await?;
    let mut works = BTreeMap::new();
    for work in list["items"].as_array().into_iter().flatten() {
        let cluster = object::namespace(work).strip_prefix("karmada-es-").unwrap_or_default();
        let manifest = work.pointer("/spec/workload/manifests/0").unwrap_or(&Value::Null);
        let kind = object::kind(manifest);
        let ours =
            matches!(kind, "Deployment" | "ConfigMap") && object::namespace(manifest) == World::NAMESPACE;
        if let Some(member) = number(cluster).filter(|_| ours) {
            works.insert((member, object::name(manifest).to_owned()), work.clone());
        }
    }
    Ok(works)
}

async fn workload(
    world: &World,
    ledger: &Ledger,
    intent: &Intent,
    name: &str,
    want: &Want,
    works: &BTreeMap<(usize, String), Value>,
) -> Result<(), String> {
    let (api, members) = (&world.api(), world.members.len());
    ledger.unfinished(want, Time::now(world.env()))?;
    let candidates = intent.clusters(name);
    let free: BTreeSet<usize> = candidates.difference(&intent.tainted).copied().collect();
    if free.is_empty() {
        // Where it stays, or that it goes, is up to those who put the taints on.
        return Ok(());
    }
    let config = want.spread == Spread::Config;
    let kind = if config { "configmap" } else { "deployment" };
    let binding = get(api, &binding_path(World::NAMESPACE, &format!("{name}-{kind}"))).await?;
    let policy: BTreeSet<usize> =
        names(&binding["spec"]["placement"]["clusterAffinity"]["clusterNames"]).collect();
    if policy != want.clusters {
        return Err(format!(
            "the binding of {name} goes by a policy for {policy:?}, not {:?}",
            want.clusters
        ));
    }
    let tasks = binding["spec"]["gracefulEvictionTasks"].as_array().map_or(0, Vec::len);
    if tasks > 0 {
        return Err(format!("{name} still has eviction tasks: {}", binding["spec"]["gracefulEvictionTasks"]));
    }
    let targets = targets(&binding);
    let there: BTreeSet<usize> = targets.keys().copied().collect();
    // One that has no other place may stay where it is, or go.
    let full = there.is_superset(&free) && there.is_subset(&candidates);
    let right = match want.spread {
        Spread::Config => full,
        Spread::Duplicated => full && targets.values().all(|n| *n == want.replicas),
        Spread::Single => {
            there.len() == 1 && there.is_subset(&free) && targets.values().all(|n| *n == want.replicas)
        }
        _ => there.is_subset(&free) && targets.values().sum::<i64>() == want.replicas,
    };
    if !right {
        return Err(format!("{name} is to be {want:?} and is scheduled to {targets:?}"));
    }
    for member in (0..members).filter(|m| !intent.is_away(*m)) {
        let wanted = targets.get(&member);
        let work = works.get(&(member, name.to_owned()));
        let on = ledger.on(member, name);
        let at = format!("{name} on member{}", member + 1);
        let Some(wanted) = wanted else {
            if work.is_some() {
                return Err(format!("{at} is not scheduled and has a Work"));
            }
            if on.is_some() && !ledger.forgotten().contains(name) && !ledger.is_older(member, name) {
                return Err(format!("{at} is not scheduled and still there"));
            }
            continue;
        };
        let Some(work) = work else { return Err(format!("{at} has no Work")) };
        if object::deletion_timestamp(work).is_some()
            || object::annotation(work, karmada_api::consts::extension::UNWANTED_SINCE).is_some()
        {
            return Err(format!("{at} has a Work on its way out"));
        }
        if condition_of(work, "Applied").is_none_or(|c| c["status"] != "True") {
            return Err(format!("{at} is not said to be applied: {}", work["status"]["conditions"]));
        }
        let Some(on) = on else { return Err(format!("{at} is not there")) };
        let replicas = match want.spread {
            Spread::Config => 0,
            _ if scalers::is_members(want) => on.replicas,
            _ => *wanted,
        };
        if on.replicas != replicas || on.ready != replicas || on.value != value_of(want) {
            return Err(format!("{at} is to have {replicas} replicas of {:?} and is {on:?}", value_of(want)));
        }
        let path = if config {
            config_map_path(World::NAMESPACE, name)
        } else {
            deployment_path(World::NAMESPACE, name)
        };
        let live = get(&world.members[member].api, &path).await?;
        let cluster = &world.members[member].name;
        reported(&live, &work["status"]["manifestStatuses"][0])
            .map_err(|e| format!("the Work of {at} {e}"))?;
        let items = binding["status"]["aggregatedStatus"].as_array().into_iter().flatten();
        let item = items.into_iter().find(|item| item["clusterName"] == cluster.as_str());
        reported(&live, item.unwrap_or(&Value::Null)).map_err(|e| format!("the binding of {at} {e}"))?;
    }
    if !config {
        let template = get(api, &deployment_path(World::NAMESPACE, name)).await?;
        let ready = template["status"]["readyReplicas"].as_i64().unwrap_or(0);
        let sum = targets.values().sum::<i64>();
        scalers::marked(&template, want)?;
        let observed = template["status"]["observedGeneration"] == template["metadata"]["generation"];
        if ready != sum || !observed {
            return Err(format!("{name} is reported as {} of {sum}", template["status"]));
        }
    } else {
        get(api, &config_map_path(World::NAMESPACE, name)).await?;
    }
    Ok(())
}

/// Whether what the hub shows of an object is what the member has.
fn reported(live: &Value, shown: &Value) -> Result<(), String> {
    let status = karmada_interpreter::reflect_status(live).unwrap_or(Value::Null);
    let health = serde_json::to_value(karmada_interpreter::health(live)).map_err(|e| e.to_string())?;
    if shown["status"] != status || shown["health"] != health {
        return Err(format!("says {shown}, and it is {health}: {status}"));
    }
    Ok(())
}

async fn get(api: &Rest, path: &str) -> Result<Value, String> {
    api.get(path).await.map_err(|error| format!("GET {path}: {error}"))
}
