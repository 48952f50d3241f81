//! What figures are taken on: fleets of processes, and what is created on them.

use std::time::Duration;

use karmada_client::Rest;
use karmada_tests::{
    bench::{now, until},
    fleet::{Binaries, Fleet, Options},
    samples::{self, selector},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::Args;

/// What was asked for, and with what.
pub(crate) struct Bed {
    pub(crate) args: Args,
    pub(crate) binaries: Binaries,
}

impl Bed {
    pub(crate) fn new(args: Args) -> Self {
        Self { binaries: args.common.binaries(), args }
    }

    /// A fleet whose ConfigMaps go to all of its members; at rest.
    pub(crate) async fn fleet(&self, members: usize) -> Fleet {
        let fleet = self.bare_fleet(members).await;
        fleet.create_namespace().await;
        let clusters: Vec<&str> = fleet.members.iter().map(|m| m.name.as_str()).collect();
        fleet.create([samples::policy("all", selector("v1", "ConfigMap", ""), &clusters)]).await;
        self.settle().await;
        fleet
    }

    /// A fleet that has just become Ready, with nothing to do.
    pub(crate) async fn bare_fleet(&self, members: usize) -> Fleet {
        let fleet = Fleet::start("bench", members, &self.binaries, Options::default()).await;
        fleet.expect("stand-ins are never too few")
    }

    /// A fleet whose hub evicts as fast as it can, with a namespace.
    pub(crate) async fn fleet_that_evicts(&self, members: usize) -> Fleet {
        let options = Options { hub: vec!["--resource-eviction-rate=inf".to_owned()], ..Options::default() };
        let fleet = Fleet::start("bench", members, &self.binaries, options).await;
        let fleet = fleet.expect("stand-ins are never too few");
        fleet.create_namespace().await;
        fleet
    }

    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(self.args.settle)).await;
    }

    /// Creates ConfigMaps at once, and waits until all members have them. Answers how long it took until the hub had
    /// taken them, and until the last was there.
    pub(crate) async fn burst(&self, fleet: &Fleet) -> (Duration, Duration) {
        let (count, path) = (self.args.burst, config_maps(fleet));
        let start = now();
        let posts: Vec<_> = (0..count)
            .map(|n| {
                let (api, path) = (fleet.api.clone(), path.clone());
                let object = samples::config_map(&format!("burst-{n}"), "value");
                tokio::spawn(async move { api.post(&path, &object).await })
            })
            .collect();
        for post in posts {
            post.await.expect("a task ends").expect("a ConfigMap is created");
        }
        let created = start.elapsed();
        for member in &fleet.members {
            // Only names: the list of all of them is not what is measured.
            until("the burst to be there", || async { names(&member.api, &path).await >= count }).await;
        }
        (created, start.elapsed())
    }
}

/// Where a fleet's ConfigMaps are.
pub(crate) fn config_maps(fleet: &Fleet) -> String {
    format!("/api/v1/namespaces/{}/configmaps", fleet.namespace)
}

/// How many ConfigMaps of a burst there are.
pub(crate) async fn names(api: &Rest, path: &str) -> usize {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let Ok(list) = api.get_bytes(path, accept).await else { return 0 };
    let list: Value = serde_json::from_slice(&list).unwrap_or_default();
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter(|o| o["metadata"]["name"].as_str().is_some_and(|n| n.starts_with("burst-"))).count()
}
