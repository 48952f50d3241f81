//! What a member's nodes offer and its pods ask for.

use std::collections::BTreeMap;

use karmada_api::cluster::{AllocatableModeling, NodeSummary, ResourceModel, ResourceSummary};
use karmada_meta::{object, quantity::Quantity};
use serde_json::Value;

/// Quantities by resource name.
pub type Resources = BTreeMap<String, Quantity>;

/// The resource that stands for the number of pods.
const PODS: &str = "pods";
/// Resources by which a node can be graded.
const GRADED: [&str; 4] = ["cpu", "memory", "storage", "ephemeral-storage"];

/// What of a Node counts. Small, so that an agent can keep it for every node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// Its condition Ready is True.
    pub ready: bool,
    /// `status.allocatable`.
    pub allocatable: Resources,
}

impl Node {
    /// What counts of a Node as it was read. A quantity that cannot be read is left out.
    pub fn of(node: &Value) -> Self {
        let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        Self {
            name: object::name(node).to_owned(),
            ready: node["status"]["conditions"].as_array().is_some_and(|list| list.iter().any(ready)),
            allocatable: quantities(&node["status"]["allocatable"]),
        }
    }
}

/// What of a Pod counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// The node it runs on; empty while it has none.
    pub node: String,
    /// Its phase is Succeeded or Failed: it needs nothing any more.
    pub finished: bool,
    /// What it asks for, itself included as one pod.
    pub requests: Resources,
}

impl Pod {
    /// What counts of a Pod as it was read: the sum of what its containers ask for, at least what each init
    /// container does, and the overhead.
    pub fn of(pod: &Value) -> Self {
        let asked = |container: &Value| quantities(&container["resources"]["requests"]);
        let list = |field: &str| pod["spec"][field].as_array().into_iter().flatten();
        let mut requests = Resources::new();
        for container in list("containers") {
            add(&mut requests, &asked(container));
        }
        for container in list("initContainers") {
            for (name, quantity) in asked(container) {
                let most = requests.entry(name).or_insert_with(Quantity::zero);
                *most = (*most).max(quantity);
            }
        }
        add(&mut requests, &quantities(&pod["spec"]["overhead"]));
        requests.insert(PODS.into(), Quantity::from_value(1));
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        Self {
            node: pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned(),
            finished: phase == "Succeeded" || phase == "Failed",
            requests,
        }
    }
}

/// How many nodes there are and how many are ready.
pub fn node_summary<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> NodeSummary {
    let mut summary = NodeSummary::default();
    for node in nodes {
        summary.total_num = summary.total_num.saturating_add(1);
        summary.ready_num = summary.ready_num.saturating_add(i32::from(node.ready));
    }
    summary
}

/// The sum of what nodes offer and pods ask for, and how many nodes of each grade have room. Without `models` no
/// grades are counted.
pub fn resource_summary(nodes: &[Node], pods: &[Pod], models: &[ResourceModel]) -> ResourceSummary {
    let mut allocatable = Resources::new();
    for node in nodes {
        add(&mut allocatable, &node.allocatable);
    }
    // A pod that waits for a node or is done has nothing allocated.
    let (mut allocating, mut allocated) = (Resources::new(), Resources::new());
    let mut taken: BTreeMap<&str, Resources> = BTreeMap::new();
    for pod in pods {
        if pod.node.is_empty() {
            add(&mut allocating, &pod.requests);
        } else if !pod.finished {
            add(&mut allocated, &pod.requests);
            add(taken.entry(&pod.node).or_default(), &pod.requests);
        }
    }
    let empty = Resources::new();
    let free = |node: &Node| {
        let mut free = node.allocatable.clone();
        for (name, quantity) in taken.get(node.name.as_str()).unwrap_or(&empty) {
            *free.entry(name.clone()).or_insert_with(Quantity::zero) -= *quantity;
        }
        free
    };
    let allocatable_modelings = modelings(models, nodes.iter().map(free));
    // What is nothing is not listed, as a stock agent's status shows.
    for resources in [&mut allocatable, &mut allocating, &mut allocated] {
        resources.retain(|_, quantity| !quantity.is_zero());
    }
    ResourceSummary { allocatable, allocating, allocated, allocatable_modelings }
}

/// How many nodes fall into each grade, by what they have free. A node without a free place for a pod is left out.
fn modelings(models: &[ResourceModel], nodes: impl Iterator<Item = Resources>) -> Vec<AllocatableModeling> {
    let mut counts: Vec<_> =
        models.iter().map(|model| AllocatableModeling { grade: model.grade, count: 0 }).collect();
    for free in nodes.filter(|free| free.get(PODS).is_some_and(|pods| pods.value() > 0)) {
        if let Some(index) = grade_index(models, &free) {
            counts[index].count = counts[index].count.saturating_add(1);
        }
    }
    counts
}

/// The place of a node's grade: the smallest, over the graded resources of the models, of the last range that
/// begins at or below what is free.
fn grade_index(models: &[ResourceModel], free: &Resources) -> Option<usize> {
    let none = Quantity::zero();
    let last = |resource: &&str| {
        let begins: Vec<_> = models
            .iter()
            .map(|model| model.ranges.iter().find(|range| range.name == **resource).map(|range| range.min))
            .collect();
        if begins.iter().all(Option::is_none) {
            return None;
        }
        let quantity = free.get(*resource).unwrap_or(&none);
        Some(begins.iter().rposition(|min| min.is_some_and(|min| min <= *quantity)).unwrap_or_default())
    };
    GRADED.iter().filter_map(last).min()
}

fn add(sum: &mut Resources, more: &Resources) {
    for (name, quantity) in more {
        *sum.entry(name.clone()).or_insert_with(Quantity::zero) += *quantity;
    }
}

fn quantities(map: &Value) -> Resources {
    let entries = map.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), serde_json::from_value(value.clone()).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use karmada_api::models::default_resource_models;
    use serde_json::json;

    use super::*;

    fn node(name: &str, cpu: &str, memory: &str) -> Node {
        Node::of(&json!({
            "metadata": {"name": name},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": cpu, "memory": memory, "pods": "10", "ephemeral-storage": "100Gi"},
            },
        }))
    }

    fn pod(node: &str, phase: &str, cpu: &str) -> Pod {
        Pod::of(&json!({
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]},
            "status": {"phase": phase},
        }))
    }

    fn texts(resources: &Resources) -> Vec<String> {
        resources.iter().map(|(name, quantity)| format!("{name}={quantity}")).collect()
    }

    #[test]
    fn requests_are_kubernetes() {
        let requests = Pod::of(&json!({"spec": {
            "containers": [{"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}, {"resources": {"requests": {"cpu": "200m"}}}, {}],
            "initContainers": [{"resources": {"requests": {"cpu": "250m", "memory": "2Gi"}}}],
            "overhead": {"cpu": "10m"},
        }}))
        .requests;
        assert_eq!(texts(&requests), ["cpu=310m", "memory=2Gi", "pods=1"]);
        assert_eq!(texts(&Pod::of(&json!({})).requests), ["pods=1"]);
    }

    #[test]
    fn sums_go_where_the_pods_are() {
        let nodes = [node("a", "16", "64Gi"), node("b", "4", "8Gi")];
        let pods = [
            pod("a", "Running", "500m"),
            pod("a", "Running", "500m"),
            pod("b", "Succeeded", "1"),
            pod("", "Pending", "2"),
        ];
        let summary = resource_summary(&nodes, &pods, &default_resource_models());
        assert_eq!(
            texts(&summary.allocatable),
            ["cpu=20", "ephemeral-storage=200Gi", "memory=72Gi", "pods=20"]
        );
        assert_eq!(texts(&summary.allocated), ["cpu=1", "memory=128Mi", "pods=2"]);
        assert_eq!(texts(&summary.allocating), ["cpu=2", "memory=64Mi", "pods=1"]);
        let idle = resource_summary(&nodes, &[], &[]);
        assert!(idle.allocated.is_empty());
        assert!(idle.allocatable_modelings.is_empty());
        assert_eq!(node_summary(&nodes), NodeSummary { total_num: 2, ready_num: 2 });
    }

    #[test]
    fn nodes_are_graded_by_their_scarcest_resource() {
        let grades = |nodes: &[Node], pods: &[Pod]| {
            let summary = resource_summary(nodes, pods, &default_resource_models());
            let found: Vec<_> = summary
                .allocatable_modelings
                .iter()
                .filter(|m| m.count > 0)
                .map(|m| (m.grade, m.count))
                .collect();
            assert_eq!(summary.allocatable_modelings.len(), 9);
            found
        };
        assert_eq!(
            grades(&[node("a", "16", "64Gi")], &[]),
            [(4, 1)],
            "64Gi begins grade 4, 16 cores grade 5"
        );
        assert_eq!(grades(&[node("a", "16", "64Gi")], &[pod("a", "Running", "1")]), [(3, 1)], "as recorded");
        assert_eq!(grades(&[node("a", "100m", "1Gi")], &[]), [(0, 1)]);
        assert_eq!(grades(&[node("a", "500", "2Ti")], &[]), [(8, 1)]);
        let full: Vec<_> = (0..10).map(|_| pod("a", "Running", "1m")).collect();
        assert_eq!(
            grades(&[node("a", "16", "64Gi"), node("b", "16", "64Gi")], &full),
            [(4, 1)],
            "a is full, b is not"
        );
    }
}
