//! What members say themselves of the copies that the hub knows of, where there is a way to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use karmada_api::{
    cluster::{Cluster, ClusterSyncMode},
    conditions::{self, ConditionStatus},
    consts::{condition, extension, label},
};
use karmada_client::rest::query_value;
use karmada_core::{
    copies::Copy,
    links::Link,
    ways::{Wanted, Ways},
};
use karmada_interpreter::health;
use karmada_meta::{object, text};
use karmada_objects::discovery::Served;
use serde_json::Value;
use tokio::time::timeout;

use super::prefix;
use crate::{ask::Server, shown::drop_managed_fields};

/// So many members are asked, and at a time.
const MOST: usize = 50;
const AT_ONCE: usize = 16;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many objects are asked of one.
const OBJECTS: usize = 500;
/// The most that is said of one that has not answered.
const WORDS: usize = 200;

/// Copies of which their members have told.
pub(crate) type Live = BTreeSet<(String, String, String)>;

/// By which a copy is found there.
pub(crate) fn key(copy: &Copy) -> (String, String, String) {
    let text = str::to_owned;
    (copy.cluster.clone(), text(object::namespace(&copy.manifest)), text(object::name(&copy.manifest)))
}

/// Whether there is a way to a member, as far as its Cluster says.
fn reachable(cluster: &Cluster) -> bool {
    let ways = Ways::of(cluster);
    let tunnel = ways.is_offered && ways.wanted != Wanted::No;
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions::find(conditions, condition::READY).map(|ready| ready.status);
    let heard = match cluster.spec.sync_mode {
        // The hub itself has asked it lately.
        ClusterSyncMode::Push => ready == Some(ConditionStatus::True),
        ClusterSyncMode::Pull => ready.is_some_and(|ready| ready != ConditionStatus::Unknown),
    };
    heard && (ways.is_dialled || tunnel)
}

/// Whether a member is asked over a link whose bytes are paid for: by a tunnel, which its agent would have to dial.
fn is_paid_for(cluster: &Cluster) -> bool {
    let spec = &cluster.spec;
    let link = cluster.metadata.annotations.as_ref().and_then(|all| all.get(extension::LINK));
    let link = link.and_then(|link| link.parse::<Link>().ok());
    spec.sync_mode == ClusterSyncMode::Pull && link.is_some_and(|link| link.terms().reports.is_some())
}

/// Brings copies up to date by what members say; which. `named`: clusters that are asked whatever that costs.
pub(crate) async fn freshen(
    server: &Server,
    served: &Served,
    namespace: Option<&str>,
    (clusters, named): (&BTreeMap<String, Cluster>, &[String]),
    copies: &mut [Copy],
) -> Live {
    let of_copies: BTreeSet<&String> = copies.iter().map(|copy| &copy.cluster).collect();
    let (mut asked, mut dear) = (Vec::new(), Vec::new());
    for name in of_copies {
        let Some(cluster) = clusters.get(name).filter(|cluster| reachable(cluster)) else { continue };
        let is_dear = is_paid_for(cluster) && !named.contains(name);
        let list = if is_dear { &mut dear } else { &mut asked };
        list.push(name.clone());
    }
    if !dear.is_empty() {
        eprintln!(
            "karmada-hub: these clusters are shown as last known, since their links are paid for by the byte: {}. To ask one, name \
             it by --clusters",
            text::line(&dear.join(", "), WORDS)
        );
    }
    if asked.len() > MOST {
        eprintln!(
            "karmada-hub: {MOST} of {} clusters are asked, the others shown as last known: name some by --clusters",
            asked.len()
        );
        asked.truncate(MOST);
    }
    let collection = served.resource.collection(namespace);
    let managed = query_value(&format!("{}={}", label::MANAGED, label::MANAGED_VALUE));
    let query = format!("{collection}?limit={OBJECTS}&labelSelector={managed}");
    let rest = server.objects.rest();
    let asking = stream::iter(asked).map(|name| {
        let query = &query;
        async move {
            let Ok(prefix) = prefix(&name) else { return (name, Err("its name is none".to_owned())) };
            let path = format!("{prefix}{query}");
            let answer = timeout(PATIENCE, rest.get(&path)).await;
            let answer = match answer {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
            };
            (name, answer)
        }
    });
    let mut asking = std::pin::pin!(asking.buffer_unordered(AT_ONCE));
    let mut live = Live::new();
    while let Some((cluster, answer)) = asking.next().await {
        match answer {
            Ok(list) => live.extend(take(&cluster, list, copies)),
            Err(why) => {
                eprintln!(
                    "karmada-hub: cluster {cluster} is shown as last known: {}",
                    text::line(&why, WORDS)
                );
            }
        }
    }
    live
}

/// Takes what a member lists into the copies that it has. One that it does not list stays as it is known: others than ours
/// are not asked for.
fn take(cluster: &str, mut list: Value, copies: &mut [Copy]) -> Live {
    let kind = object::kind(&list).trim_end_matches("List").to_owned();
    let api_version = object::api_version(&list).to_owned();
    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let mut there: BTreeMap<(String, String), Value> = items
        .into_iter()
        .map(|item| ((object::namespace(&item).to_owned(), object::name(&item).to_owned()), item))
        .collect();
    let mut live = Live::new();
    for copy in copies.iter_mut().filter(|copy| copy.cluster == cluster) {
        let (.., namespace, name) = key(copy);
        let Some(mut item) = there.remove(&(namespace, name)) else { continue };
        // Items of a list have neither.
        if let Some(item) = item.as_object_mut() {
            item.entry("apiVersion").or_insert_with(|| api_version.clone().into());
            item.entry("kind").or_insert_with(|| kind.clone().into());
        }
        drop_managed_fields(&mut item);
        copy.health = Some(health(&item));
        copy.status = item.get("status").cloned().unwrap_or_default();
        copy.manifest = item;
        live.insert(key(copy));
    }
    live
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_asked_where_there_is_a_way() {
        let cluster = |mode: &str, endpoint: &str, annotation: Value, ready: &str| -> Cluster {
            serde_json::from_value(json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "m", "annotations": annotation},
                "spec": {"syncMode": mode, "apiEndpoint": endpoint,
                         "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m-impersonator"}},
                "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "r", "message": "",
                                           "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
            }))
            .unwrap()
        };
        let tunnel =
            |wanted: &str| json!({"agent.karmada.io/tunnel": "full", "cluster.karmada.io/tunnel": wanted});
        for (cluster, want) in [
            (cluster("Push", "https://m", json!({}), "True"), true),
            (cluster("Push", "https://m", json!({}), "False"), false),
            (cluster("Pull", "https://m", json!({}), "False"), true),
            (cluster("Pull", "", json!({}), "True"), false),
            (cluster("Pull", "", tunnel("read-only"), "True"), true),
            (cluster("Pull", "", tunnel("off"), "True"), false),
            (cluster("Pull", "", tunnel("full"), "Unknown"), false),
        ] {
            assert_eq!(reachable(&cluster), want, "{cluster:?}");
        }
    }

    #[test]
    fn links_that_are_paid_for_are_known() {
        for (mode, link, want) in [
            ("Pull", Some("satellite"), true),
            ("Pull", Some("scheduled"), true),
            ("Pull", Some("cellular"), false),
            ("Pull", Some("pigeon"), false),
            ("Pull", None, false),
            // The hub asks it all the time.
            ("Push", Some("satellite"), false),
        ] {
            let annotations: BTreeMap<&str, &str> =
                link.map(|link| (extension::LINK, link)).into_iter().collect();
            let cluster = serde_json::from_value(json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "m", "annotations": annotations}, "spec": {"syncMode": mode},
            }));
            assert_eq!(is_paid_for(&cluster.unwrap()), want, "{mode} {link:?}");
        }
    }

    #[test]
    fn what_a_member_says_counts_for_what_it_has() {
        let copy = |cluster: &str, name: &str| Copy {
            cluster: cluster.to_owned(),
            manifest: json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2},
                             "metadata": {"namespace": "shop", "name": name}}),
            status: json!({"readyReplicas": 2}),
            health: None,
            applied: Some(true),
            message: String::new(),
            leaving: false,
        };
        let mut copies = [copy("m", "web"), copy("m", "other"), copy("n", "web")];
        let list = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [{
            "metadata": {"namespace": "shop", "name": "web", "managedFields": []}, "spec": {"replicas": 2},
            "status": {"readyReplicas": 1},
        }]});
        let live = take("m", list, &mut copies);
        assert_eq!(live, Live::from([key(&copies[0])]));
        assert_eq!(copies[0].status, json!({"readyReplicas": 1}));
        assert_eq!(copies[0].manifest["kind"], "Deployment");
        assert!(copies[0].manifest["metadata"].get("managedFields").is_none());
        assert_eq!(copies[1..], [copy("m", "other"), copy("n", "web")]);
    }
}
