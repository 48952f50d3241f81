//! After the storm: hub, Works and members agree, and nothing moves any more.

use std::{collections::BTreeMap, time::Duration};

use karmada_client::Rest;
use karmada_env::Env;
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    value_of,
    writers::{State, Template},
};
use crate::{
    fleet::{Fleet, condition},
    samples::works_path,
    wait::eventually,
};

/// How long it may take until everything agrees. Generous: agents that were just killed start from nothing.
const LIMIT: Duration = Duration::from_secs(270);

/// How long nothing may move for it to be calm.
const STILL: Duration = Duration::from_millis(1500);

/// What is there: collection and name, to value.
type Picture = BTreeMap<String, String>;

/// Waits until everything agrees with the templates and stays so. Answers how long it took.
///
/// # Panics
/// When it does not come to that, with what differs.
pub(super) async fn wait(fleet: &Fleet, templates: &[Template]) -> Duration {
    let env = Env::system();
    let start = env.now();
    let wanted: Picture = templates
        .iter()
        .filter_map(|t| match t.settled() {
            State::Is(value) => Some((t.title(), value.clone())),
            State::Absent => None,
        })
        .collect();
    for member in &fleet.members {
        fleet.ready_within(&member.name, LIMIT).await;
    }
    let last: Mutex<(Duration, Vec<String>)> = Mutex::default();
    eventually("hub, Works and members to agree and be still", LIMIT, || async {
        let seen = agreement(fleet, &wanted).await?;
        let mut last = last.lock();
        if last.1 != seen {
            *last = (env.now(), seen);
        }
        if env.now() - last.0 >= STILL { Ok(()) } else { Err("they agree, and still move".to_owned()) }
    })
    .await;
    env.now() - start
}

/// Whether all agree: versions of everything if so, what differs if not.
async fn agreement(fleet: &Fleet, wanted: &Picture) -> Result<Vec<String>, String> {
    let mut versions = Vec::new();
    let ours = |object: &Value| !value_of(object).is_empty();
    let compare = |place: &str, got: Vec<(String, String)>| {
        let picture: Picture = got.iter().cloned().collect();
        if picture.len() != got.len() {
            return Err(format!("{place}: something is there twice: {got:?}"));
        }
        differences(wanted, &picture).map_or(Ok(()), |difference| Err(format!("{place}: {difference}")))
    };
    let apis = std::iter::once(("the hub", &fleet.api));
    for (place, api) in apis.chain(fleet.members.iter().map(|m| (m.name.as_str(), &m.api))) {
        let mut got = Vec::new();
        for (scope, group) in [("configmaps", "/api/v1"), ("deployments", "/apis/apps/v1")] {
            let path = format!("{group}/namespaces/{}/{scope}", fleet.namespace);
            for object in list(api, &path).await?.iter().filter(|o| ours(o)) {
                versions.push(version(place, object));
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                got.push((format!("{scope}/{name}"), value_of(object)));
            }
        }
        compare(place, got)?;
    }
    for member in &fleet.members {
        let mut got = Vec::new();
        for work in list(&fleet.api, &works_path(&member.name)).await? {
            let manifests = work.pointer("/spec/workload/manifests").and_then(Value::as_array);
            for manifest in manifests.into_iter().flatten().filter(|m| ours(m)) {
                versions.push(version(&member.name, &work));
                if condition(&work, "Applied") != Some("True") {
                    return Err(format!("not applied: {}", version(&member.name, &work)));
                }
                let kind = manifest["kind"].as_str().unwrap_or_default().to_lowercase();
                let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
                got.push((format!("{kind}s/{name}"), value_of(manifest)));
            }
        }
        compare(&format!("Works of {}", member.name), got)?;
    }
    let bindings = format!("/apis/work.karmada.io/v1alpha2/namespaces/{}/resourcebindings", fleet.namespace);
    let got = list(&fleet.api, &bindings).await?;
    let titles = got.iter().map(|binding| {
        let of = &binding["spec"]["resource"];
        let kind = of["kind"].as_str().unwrap_or_default().to_lowercase();
        let title = format!("{kind}s/{}", of["name"].as_str().unwrap_or_default());
        let value = wanted.get(&title).cloned().unwrap_or_default();
        (title, value)
    });
    compare("bindings", titles.collect())?;
    versions.extend(got.iter().map(|b| version("bindings", b)));
    Ok(versions)
}

async fn list(api: &Rest, path: &str) -> Result<Vec<Value>, String> {
    let mut list = api.get(path).await.map_err(|e| e.to_string())?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn version(place: &str, object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{place} {} {} {}", metadata["name"], metadata["uid"], metadata["resourceVersion"])
}

/// The first few differences.
fn differences(wanted: &Picture, got: &Picture) -> Option<String> {
    let missing = wanted
        .iter()
        .filter(|(title, value)| got.get(*title) != Some(value))
        .map(|(title, value)| format!("{title} is {:?} and should be {value:?}", got.get(title)));
    let surplus =
        got.keys().filter(|title| !wanted.contains_key(*title)).map(|t| format!("{t} should not be"));
    let all: Vec<String> = missing.chain(surplus).take(6).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
