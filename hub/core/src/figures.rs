//! What Clusters and Works say in numbers, for whoever shows them. Read from JSON, since only a few fields matter.

use karmada_api::consts::{condition, reason};
use karmada_meta::quantity::Quantity;
use serde_json::Value;

/// A Cluster in numbers. What its agent has not reported is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFigures {
    /// How it is.
    pub state: ClusterState,
    /// Whether its condition Ready is True, leaving or not.
    pub ready: bool,
    /// Whether its member is known to live: its agent is heard or, where the hub itself works on it, it answers the hub.
    pub answers: bool,
    nodes: Option<f64>,
    ready_nodes: Option<f64>,
    allocatable: Resources,
    allocated: Resources,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Resources {
    cpu: Option<f64>,
    memory: Option<f64>,
    pods: Option<f64>,
}

/// How a Cluster is, for counting: each is in one state, so that they add up to the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterState {
    /// Nothing has ever been heard of it.
    #[default]
    NotJoined,
    /// It is heard, and its own API is well.
    Ready,
    /// It is heard, and says that its own API is not well.
    NotReady,
    /// It has not been heard within its grace.
    Unknown,
    /// It is being deleted.
    Leaving,
}

impl ClusterState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Ready, Self::NotReady, Self::Unknown, Self::NotJoined, Self::Leaving];

    /// As the label `state` of `karmada_hub_clusters` has it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not_ready",
            Self::Unknown => "unknown",
            Self::NotJoined => "not_joined",
            Self::Leaving => "leaving",
        }
    }

    /// Whether its agent has been heard within its grace.
    pub fn is_heard(self) -> bool {
        matches!(self, Self::Ready | Self::NotReady)
    }

    fn of(cluster: &Value) -> Self {
        if !cluster["metadata"]["deletionTimestamp"].is_null() {
            return Self::Leaving;
        }
        match condition_of(cluster, condition::READY).and_then(|ready| ready["status"].as_str()) {
            None => Self::NotJoined,
            Some("True") => Self::Ready,
            Some("False") => Self::NotReady,
            Some(_) => Self::Unknown,
        }
    }
}

/// A family of figures about clusters: its name, a sentence, and the number.
pub type ClusterFamily = (&'static str, &'static str, fn(&ClusterFigures) -> Option<f64>);

/// The label that says which cluster a figure is about.
pub const MEMBER_CLUSTER: &str = "member_cluster";

/// Karmada's families about clusters, each with the label [`MEMBER_CLUSTER`].
pub const CLUSTER_FAMILIES: [ClusterFamily; 9] = [
    ("cluster_ready_state", "State of the cluster (1 if ready, 0 otherwise).", |c| {
        Some(if c.ready { 1.0 } else { 0.0 })
    }),
    ("cluster_node_number", "Number of nodes in the cluster.", |c| c.nodes),
    ("cluster_ready_node_number", "Number of ready nodes in the cluster.", |c| c.ready_nodes),
    ("cluster_memory_allocatable_bytes", "Allocatable memory in the cluster.", |c| c.allocatable.memory),
    ("cluster_cpu_allocatable_number", "Allocatable CPUs in the cluster.", |c| c.allocatable.cpu),
    ("cluster_pod_allocatable_number", "Allocatable pods in the cluster.", |c| c.allocatable.pods),
    ("cluster_memory_allocated_bytes", "Memory that pods in the cluster ask for.", |c| c.allocated.memory),
    ("cluster_cpu_allocated_number", "CPUs that pods in the cluster ask for.", |c| c.allocated.cpu),
    ("cluster_pod_allocated_number", "Pods in the cluster.", |c| c.allocated.pods),
];

impl ClusterFigures {
    /// Reads a Cluster.
    pub fn of(cluster: &Value) -> Self {
        let status = &cluster["status"];
        let ready = condition_of(cluster, condition::READY);
        let says = |why: &str| ready.is_some_and(|ready| ready["reason"] == why);
        let is_silent = says(reason::STATUS_COLLECTION_FAILED)
            || cluster["spec"]["syncMode"] == "Push" && says(reason::CLUSTER_NOT_REACHABLE);
        let state = ClusterState::of(cluster);
        Self {
            state,
            ready: ready.is_some_and(|ready| ready["status"] == "True"),
            answers: state.is_heard() && !is_silent,
            nodes: status["nodeSummary"]["totalNum"].as_f64(),
            ready_nodes: status["nodeSummary"]["readyNum"].as_f64(),
            allocatable: Resources::of(&status["resourceSummary"]["allocatable"]),
            allocated: Resources::of(&status["resourceSummary"]["allocated"]),
        }
    }
}

impl Resources {
    fn of(list: &Value) -> Self {
        let number = |name: &str| {
            let text = match &list[name] {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            Some(Quantity::parse(&text).ok()?.milli() as f64 / 1e3)
        };
        Self { cpu: number("cpu"), memory: number("memory"), pods: number("pods") }
    }
}

/// What the status of a Work says of what was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Nothing, or that it did not work out.
    NotApplied,
    /// It is applied, whatever generation of the template.
    Applied,
    /// It is applied, and the object's report is about this generation of the template.
    AppliedGeneration(i64),
}

impl Report {
    /// Reads a Work.
    pub fn of(work: &Value) -> Self {
        if condition_of(work, condition::APPLIED).is_none_or(|c| c["status"] != "True") {
            return Self::NotApplied;
        }
        let generation = work.pointer("/status/manifestStatuses/0/status/resourceTemplateGeneration");
        generation.and_then(Value::as_i64).map_or(Self::Applied, Self::AppliedGeneration)
    }
}

fn condition_of<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == type_)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures(cluster: Value) -> Vec<(&'static str, f64)> {
        let figures = ClusterFigures::of(&cluster);
        CLUSTER_FAMILIES.iter().filter_map(|(name, _, value)| Some((*name, value(&figures)?))).collect()
    }

    #[test]
    fn a_member_that_does_not_answer_the_hub_is_not_known_to_live() {
        for (mode, status, reason, answers) in [
            ("Pull", "True", "ClusterReady", true),
            ("Pull", "False", "ClusterNotReachable", true),
            ("Pull", "Unknown", "ClusterStatusUnknown", false),
            ("Push", "True", "ClusterReady", true),
            ("Push", "False", "ClusterNotReady", true),
            ("Push", "False", "ClusterNotReachable", false),
            ("Push", "False", "StatusCollectionFailed", false),
        ] {
            let cluster = json!({"spec": {"syncMode": mode}, "status": {"conditions": [
                {"type": "Ready", "status": status, "reason": reason}]}});
            assert_eq!(ClusterFigures::of(&cluster).answers, answers, "{mode} {status} {reason}");
        }
    }

    #[test]
    fn a_cluster_in_numbers() {
        let cluster = json!({"status": {
            "conditions": [{"type": "CompleteAPIEnablements", "status": "False"}, {"type": "Ready", "status": "True"}],
            "nodeSummary": {"totalNum": 3, "readyNum": 2},
            "resourceSummary": {
                "allocatable": {"cpu": "3500m", "memory": "2Gi", "pods": "110"},
                "allocated": {"cpu": 1, "memory": "512Mi", "pods": "x"},
            },
        }});
        let want = [
            ("cluster_ready_state", 1.0),
            ("cluster_node_number", 3.0),
            ("cluster_ready_node_number", 2.0),
            ("cluster_memory_allocatable_bytes", 2_147_483_648.0),
            ("cluster_cpu_allocatable_number", 3.5),
            ("cluster_pod_allocatable_number", 110.0),
            ("cluster_memory_allocated_bytes", 536_870_912.0),
            ("cluster_cpu_allocated_number", 1.0),
        ];
        assert_eq!(figures(cluster), want);
        assert_eq!(figures(json!({})), [("cluster_ready_state", 0.0)]);
    }

    #[test]
    fn a_cluster_is_in_one_state() {
        let cluster = |ready: Value| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let mut leaving = cluster("True".into());
        leaving["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let rows = [
            (cluster("True".into()), "ready", true),
            (cluster("False".into()), "not_ready", true),
            (cluster("Unknown".into()), "unknown", false),
            (cluster(Value::Null), "not_joined", false),
            (json!({}), "not_joined", false),
            (leaving, "leaving", false),
        ];
        for (cluster, label, heard) in rows {
            let state = ClusterFigures::of(&cluster).state;
            assert_eq!((state.label(), state.is_heard()), (label, heard), "{cluster}");
            assert!(ClusterState::ALL.contains(&state));
        }
    }

    #[test]
    fn reports_about_works() {
        let work = |applied: &str, status: Value| {
            Report::of(&json!({"status": {
                "conditions": [{"type": "Dispatching", "status": "True"}, {"type": "Applied", "status": applied}],
                "manifestStatuses": [{"status": status}],
            }}))
        };
        assert_eq!(Report::of(&json!({})), Report::NotApplied);
        assert_eq!(work("False", json!({"resourceTemplateGeneration": 2})), Report::NotApplied);
        assert_eq!(work("True", json!({"replicas": 1})), Report::Applied);
        assert_eq!(work("True", json!({"resourceTemplateGeneration": 2})), Report::AppliedGeneration(2));
    }
}
