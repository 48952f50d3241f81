//! What figures are taken on: a data directory full of objects, and a hub that starts on it.

use std::{path::Path, time::Duration};

use karmada_tests::{
    bench::{
        hub::{Folder, Hub},
        stock::Filling,
    },
    fleet::Binaries,
    samples,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Args;

/// The namespace of all templates. It is provided nowhere, so that every Work is a template's.
const NAMESPACE: &str = "shop";

/// What was asked for, and with what.
pub(crate) struct Bed {
    pub(crate) args: Args,
    binaries: Binaries,
}

/// What is in a data directory before the hub starts.
#[derive(Clone, Debug)]
pub(crate) struct Stock {
    pub(crate) clusters: usize,
    /// The number of templates of each policy.
    pub(crate) policies: Vec<usize>,
    /// How many clusters each policy names.
    pub(crate) spread: usize,
    /// What a template is.
    pub(crate) template: fn(&str) -> Value,
}

impl Stock {
    /// The Works that come of it.
    pub(crate) fn works(&self) -> usize {
        self.policies.iter().sum::<usize>() * self.spread
    }

    /// The clusters of a policy: neighbours, each policy behind the one before it.
    pub(crate) fn clusters_of(&self, policy: usize) -> Vec<String> {
        (0..self.spread).map(|n| cluster_name((policy * self.spread + n) % self.clusters)).collect()
    }

    fn policy(&self, policy: usize) -> Value {
        let clusters = self.clusters_of(policy);
        let clusters: Vec<_> = clusters.iter().map(String::as_str).collect();
        let template = (self.template)("");
        let text = |field: &str| template[field].as_str().unwrap_or_default();
        let mut selector = samples::selector(text("apiVersion"), text("kind"), "");
        selector["labelSelector"] = json!({ "matchLabels": { "group": group(policy) } });
        samples::policy(&group(policy), selector, &clusters)
    }

    fn objects(&self) -> impl Iterator<Item = Value> {
        let policies = (0..self.policies.len()).map(|policy| self.policy(policy));
        let of = move |(policy, count): (usize, &usize)| {
            let make = self.template;
            (0..*count).map(move |n| {
                let mut template = make(&format!("{}-{n:05}", group(policy)));
                template["metadata"]["labels"]["group"] = group(policy).into();
                template
            })
        };
        policies.chain(self.policies.iter().enumerate().flat_map(of))
    }
}

/// The name of a cluster.
pub(crate) fn cluster_name(number: usize) -> String {
    format!("c{number:03}")
}

/// The label of a policy's templates, and the policy's name.
fn group(policy: usize) -> String {
    format!("g{policy:03}")
}

/// Where a policy is.
pub(crate) fn policy_path(policy: usize) -> String {
    samples::policy_path(NAMESPACE, "propagationpolicies", &group(policy))
}

impl Bed {
    pub(crate) fn new(args: Args) -> Self {
        Self { binaries: args.common.binaries(), args }
    }

    /// A hub that has just been started on what is in stock.
    pub(crate) async fn hub(&self, name: &str, stock: &Stock) -> Hub {
        let folder = Folder::new(self.args.keep.as_deref(), name);
        if !folder.data().exists() {
            fill(&folder.data(), stock).await;
        }
        Hub::start(folder, &self.binaries, ["--cluster-startup-grace-period=1h".to_owned()]).await
    }

    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(self.args.settle)).await;
    }
}

async fn fill(data: &Path, stock: &Stock) {
    let filling = Filling::open(data).await;
    filling.namespace(NAMESPACE, false).await;
    filling.clusters((0..stock.clusters).map(cluster_name)).await;
    let made = filling.objects(stock.objects(), NAMESPACE).await;
    eprintln!("  {} clusters, {made} policies and templates", stock.clusters);
    filling.close().await;
}
