//! What a member's nodes offer and its pods ask for. Of each node and pod only figures are kept.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::{
    cluster::{AllocatableModeling, NodeSummary, ResourceModel, ResourceSummary, Taint},
    consts::taint::{NO_EXECUTE, NO_SCHEDULE},
};
use karmada_client::{
    Event, Rest, Wake, WatchConfig,
    kept::{self, Kept},
    watch::{Index, Keeping},
};
use karmada_core::nodes::Node as Room;
use karmada_env::Env;
use karmada_meta::quantity::Quantity;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::pods::{Pod, PodId, Pods};

type Quantities = BTreeMap<String, Quantity>;

/// Resources that decide a node's grade.
const GRADED: [&str; 4] = ["cpu", "memory", "storage", "ephemeral-storage"];

/// What is kept of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    ready: bool,
    allocatable: Quantities,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
}

impl Node {
    fn of(node: &Value) -> Self {
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let ready = conditions.filter(|c| c["type"] == "Ready").any(|c| c["status"] == "True");
        let allocatable = quantities(node.pointer("/status/allocatable"));
        let labels = karmada_meta::object::labels(node);
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let labels = labels.into_iter().flatten().filter_map(text).collect();
        Self { ready, allocatable, labels, taints: taints(node) }
    }

    /// Bytes beyond itself.
    fn elsewhere(&self) -> usize {
        let taint = |taint: &Taint| {
            size_of::<Taint>() + kept::text(&taint.key) + kept::text(&taint.value) + kept::text(&taint.effect)
        };
        kept::quantities(&self.allocatable)
            + kept::texts(&self.labels)
            + self.taints.iter().map(taint).sum::<usize>()
    }
}

/// Taints that keep pods away. When they came is no news.
fn taints(node: &Value) -> Vec<Taint> {
    let listed = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    listed
        .filter_map(|taint| Taint::deserialize(taint).ok())
        .filter(|taint| [NO_SCHEDULE, NO_EXECUTE].contains(&taint.effect.as_str()))
        .map(|taint| Taint { time_added: None, ..taint })
        .collect()
}

fn quantities(map: Option<&Value>) -> Quantities {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.parse().ok()?))).collect()
}

fn add(sum: &mut Quantities, more: &Quantities) {
    for (name, quantity) in more {
        *sum.entry(name.clone()).or_default() += *quantity;
    }
}

fn without_zeros(mut quantities: Quantities) -> Quantities {
    quantities.retain(|_, quantity| !quantity.is_zero());
    quantities
}

/// Figures of a member's nodes and pods.
#[derive(Debug, Default)]
pub struct Figures {
    nodes: Index<String, Kept<Node>>,
    pods: Index<PodId, Kept<Pod>>,
}

impl Figures {
    /// Both lists were had: zero means none.
    pub fn synced(&self) -> bool {
        self.nodes.synced() && self.pods.synced()
    }

    pub fn nodes(&self) -> NodeSummary {
        let ready = self.nodes.iter().filter(|(_, node)| node.ready).count();
        NodeSummary { total_num: count(self.nodes.len()), ready_num: count(ready) }
    }

    /// Allocatable, allocating and allocated; with the grades of nodes if there are models. A resource of which there is
    /// nothing is left out, as in the recordings.
    pub fn resources(&self, models: Option<&[ResourceModel]>) -> ResourceSummary {
        let (mut allocatable, mut allocating, mut allocated) =
            <(Quantities, Quantities, Quantities)>::default();
        for (_, node) in self.nodes.iter() {
            add(&mut allocatable, &node.allocatable);
        }
        let mut used: BTreeMap<&str, Quantities> = BTreeMap::new();
        for (_, pod) in self.pods.iter().filter(|(_, pod)| !pod.ended) {
            let sum = if pod.node.is_empty() { &mut allocating } else { &mut allocated };
            add(sum, &pod.requests);
            *sum.entry("pods".into()).or_default() += Quantity::from_value(1);
            if models.is_some() && !pod.node.is_empty() {
                let on_node = used.entry(&pod.node).or_default();
                add(on_node, &pod.requests);
                *on_node.entry("pods".into()).or_default() += Quantity::from_value(1);
            }
        }
        ResourceSummary {
            allocatable: without_zeros(allocatable),
            allocating: without_zeros(allocating),
            allocated: without_zeros(allocated),
            allocatable_modelings: models.map(|models| self.grades(models, &used)).unwrap_or_default(),
        }
    }

    /// What is free on each node that is ready.
    pub fn rooms(&self) -> Vec<Room> {
        let mut used: BTreeMap<&str, Quantities> = BTreeMap::new();
        for (_, pod) in self.pods.iter().filter(|(_, pod)| !pod.ended && !pod.node.is_empty()) {
            let on_node = used.entry(&pod.node).or_default();
            add(on_node, &pod.requests);
            *on_node.entry("pods".into()).or_default() += Quantity::from_value(1);
        }
        let ready = self.nodes.iter().filter(|(_, node)| node.ready);
        let room = |(name, node): (&String, &Kept<Node>)| Room {
            name: name.clone(),
            count: 1,
            free: free(node, used.get(name.as_str())),
            labels: node.labels.clone(),
            taints: node.taints.clone(),
        };
        ready.map(room).collect()
    }

    /// How many nodes of each grade have room. A node without a free place for a pod has none.
    fn grades(
        &self,
        models: &[ResourceModel],
        used: &BTreeMap<&str, Quantities>,
    ) -> Vec<AllocatableModeling> {
        let mut grades: Vec<_> =
            models.iter().map(|model| AllocatableModeling { grade: model.grade, count: 0 }).collect();
        for (name, node) in self.nodes.iter() {
            let free = free(node, used.get(name.as_str()));
            let room = free.get("pods").is_none_or(|pods| !pods.is_zero() && !pods.is_negative());
            if let Some(index) = grade_of(&free, models).filter(|_| room) {
                grades[index].count += 1;
            }
        }
        grades
    }
}

/// What a node's pods leave.
fn free(node: &Node, used: Option<&Quantities>) -> Quantities {
    let mut free = node.allocatable.clone();
    for (resource, quantity) in used.into_iter().flatten() {
        if let Some(left) = free.get_mut(resource) {
            *left -= *quantity;
        }
    }
    free
}

/// The smallest, over the resources that a model speaks of, of the last range that begins at or below what is free.
fn grade_of(free: &Quantities, models: &[ResourceModel]) -> Option<usize> {
    let first = models.first()?;
    let grade = |resource: &str| {
        let free = free.get(resource).copied().unwrap_or_default();
        models
            .iter()
            .rposition(|model| model.ranges.iter().any(|range| range.name == resource && range.min <= free))
            .unwrap_or(0)
    };
    let named = first.ranges.iter().map(|range| range.name.as_str());
    named.filter(|name| GRADED.contains(name)).map(grade).min()
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Keeps the figures current until it is dropped.
pub async fn follow(member: Rest, env: Env, wake: Wake, figures: Arc<Mutex<Figures>>) {
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
    let name = |object: &Value| karmada_meta::object::name(object).to_owned();
    let config = |path: &str| WatchConfig::new(path).wake(&wake);
    let node = move |text: &str| parse(text).map(|node| (name(&node), Node::of(&node)));
    let read = Pods::default();
    let pod = move |text: &str| parse(text).map(|pod| read.read(&pod));
    let (nodes, pods) = (config("/api/v1/nodes"), config("/api/v1/pods"));
    let mut nodes = Keeping::new(member.clone(), nodes, env.clone(), node, |key, node: &Node| {
        2 * kept::text(key) + node.elsewhere()
    });
    let mut pods = Keeping::new(member, pods, env, pod, |_, pod: &Pod| pod.elsewhere());
    loop {
        tokio::select! {
            biased;
            event = nodes.next() => take(&mut figures.lock().nodes, event),
            event = pods.next() => take(&mut figures.lock().pods, event),
        }
    }
}

/// Takes an event in, or that nothing is known any more.
fn take<K: Ord + Clone, V: PartialEq>(index: &mut Index<K, V>, event: Option<Event<(K, V)>>) {
    match event {
        Some(event) => drop(index.apply(event)),
        None => index.lose(),
    }
}

#[cfg(test)]
mod tests {
    use karmada_api::models::default_resource_models;
    use serde_json::json;

    use super::*;

    fn node(ready: bool, cpu: &str, memory: &str, pods: &str) -> Node {
        Node::of(&json!({"status": {
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
        }}))
    }

    fn pod(name: &str, node: &str, phase: &str, cpu: &str) -> (PodId, Pod) {
        Pods::default().read(&json!({
            "metadata": {"uid": format!("{name:0>32}")},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": phase},
        }))
    }

    fn figures() -> Figures {
        let mut figures = Figures::default();
        for (name, node) in [("a", node(true, "16", "64Gi", "2")), ("b", node(false, "2", "64Gi", "1"))] {
            figures.nodes.apply(Event::Upsert((name.to_owned(), Kept::nowhere(node))));
        }
        let pods = [
            pod("1", "a", "Running", "10500m"),
            pod("2", "b", "Running", "0"),
            pod("3", "a", "Succeeded", "9"),
            pod("4", "", "Pending", "1"),
        ];
        for (id, pod) in pods {
            figures.pods.apply(Event::Upsert((id, Kept::nowhere(pod))));
        }
        figures
    }

    fn text(quantities: &Quantities) -> String {
        quantities.iter().map(|(name, q)| format!("{name}={q} ")).collect()
    }

    #[test]
    fn sums_are_those_of_pods_that_take_room() {
        let figures = figures();
        assert_eq!(figures.nodes(), NodeSummary { total_num: 2, ready_num: 1 });
        let resources = figures.resources(None);
        assert_eq!(text(&resources.allocatable), "cpu=18 memory=128Gi pods=3 ");
        assert_eq!(text(&resources.allocated), "cpu=10500m pods=2 ");
        assert_eq!(text(&resources.allocating), "cpu=1 pods=1 ");
        assert!(resources.allocatable_modelings.is_empty());
    }

    #[test]
    fn a_full_node_is_left_out_and_does_not_hide_the_others() {
        let resources = figures().resources(Some(&default_resource_models()));
        let counts: Vec<_> = resources.allocatable_modelings.iter().map(|m| m.count).collect();
        // Node a has 5.5 cores free: grade 3 begins at 4. Node b has no place for a pod.
        assert_eq!(counts, [0, 0, 0, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_nodes_room_is_what_its_pods_leave_and_who_may_come() {
        let mut figures = figures();
        let tainted = Node::of(&json!({
            "metadata": {"labels": {"disk": "ssd"}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
                                {"key": "p", "effect": "PreferNoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4", "pods": "9"}},
        }));
        figures.nodes.apply(Event::Upsert(("c".to_owned(), Kept::nowhere(tainted))));
        let rooms = figures.rooms();
        let names: Vec<_> = rooms.iter().map(|room| room.name.as_str()).collect();
        assert_eq!(names, ["a", "c"], "b is not ready");
        assert_eq!(text(&rooms[0].free), "cpu=5500m memory=64Gi pods=1 ");
        assert_eq!(rooms[1].labels["disk"], "ssd");
        let taints: Vec<_> =
            rooms[1].taints.iter().map(|taint| (taint.key.as_str(), taint.time_added)).collect();
        assert_eq!(taints, [("k", None)]);
    }

    #[test]
    fn nothing_is_reported_of_nothing() {
        let resources = Figures::default().resources(Some(&[]));
        assert_eq!(resources, ResourceSummary::default());
    }
}
