//! What the commands that look across clusters read first: the Clusters, and how fresh what is known of them is.

use std::collections::BTreeMap;

use karmada_api::{cluster::Cluster, consts::namespace};
use karmada_core::copies::Knowledge;
use karmada_meta::{object, time::Time};
use karmada_objects::{discovery, kinds};
use serde::Deserialize;
use serde_json::Value;

use super::{Failure, ask::Server};

/// All Clusters by name.
pub(super) async fn clusters(server: &Server) -> Result<BTreeMap<String, Cluster>, Failure> {
    let mut all = BTreeMap::new();
    let mut unreadable = None;
    let take = |items: Vec<Value>| {
        for item in items {
            match Cluster::deserialize(&item) {
                Ok(cluster) => drop(all.insert(object::name(&item).to_owned(), cluster)),
                Err(error) => unreadable = Some(format!("Cluster {}: {error}", object::name(&item))),
            }
        }
    };
    server.objects.list(&kinds::CLUSTERS, None, "", take).await.map_err(|e| server.failure(&e))?;
    match unreadable {
        Some(reason) => Err(Failure::failed(reason)),
        None => Ok(all),
    }
}

/// Refuses names that no cluster has, and says which ones may have been meant.
pub(super) fn check_names<'a>(
    clusters: &BTreeMap<String, Cluster>,
    names: impl IntoIterator<Item = &'a String>,
) -> Result<(), Failure> {
    for name in names {
        if !clusters.contains_key(name) {
            return Err(no_such_cluster(name, clusters.keys().map(String::as_str)));
        }
    }
    Ok(())
}

/// What is said when there is no cluster of a name.
pub(super) fn no_such_cluster<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
    Failure::not_found(format!("there is no cluster {name:?}{}", suggestion(name, known)))
}

/// What may have been meant by a name that does not exist, as the end of a sentence.
pub(super) fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match discovery::nearest(name, known).as_slice() {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

/// How fresh what is known of each cluster is. Whoever may not read Leases goes by the Ready conditions.
pub(super) async fn knowledge(
    server: &Server,
    clusters: &BTreeMap<String, Cluster>,
) -> Result<BTreeMap<String, Knowledge>, Failure> {
    let mut leases = BTreeMap::new();
    let take = |items: Vec<Value>| {
        leases.extend(items.into_iter().map(|lease| (object::name(&lease).to_owned(), lease)));
    };
    match server.objects.list(&kinds::LEASES, Some(namespace::CLUSTER), "", take).await {
        Err(error) if !(error.is_forbidden() || error.is_not_found()) => return Err(server.failure(&error)),
        _ => {}
    }
    let now = Time::from_system(server.now());
    let of = |(name, cluster): (&String, &Cluster)| {
        (name.clone(), Knowledge::of(Some(cluster), leases.get(name), now))
    };
    Ok(clusters.iter().map(of).collect())
}
