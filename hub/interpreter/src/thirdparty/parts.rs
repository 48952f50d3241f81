//! The parts of an object that has several kinds of replicas.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::work::{Component, ComponentReplicaRequirements, NodeClaim};
use karmada_meta::Quantity;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Field, InterpretError, Replicas,
    fields::{at, int, list, text},
    replicas::pod_requirements,
};

/// Where a kind has its parts.
#[derive(Clone, Copy)]
pub(crate) enum Parts {
    /// It has none.
    None,
    /// By name in an object: `{Worker: {replicas, template}}`. Replicas that are not set are 1, those of these names 0.
    Named(Field, &'static [&'static str]),
    /// In a list of tasks with name, `minAvailable` and template.
    Tasks(Field),
    /// A head and groups of workers.
    Ray(Field),
    /// A job manager and task managers.
    Flink,
    /// A driver and executors.
    Spark,
}

/// The longest name of a part in a binding.
const LONGEST: usize = 32;

impl Parts {
    /// The parts of an object, each with a name of its own.
    pub(super) fn read(self, value: &Value) -> Result<Vec<Component>, InterpretError> {
        self.found(value).map(with_own_names)
    }

    fn found(self, value: &Value) -> Result<Vec<Component>, InterpretError> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Named(path, idle) => {
                let specs = at(value, path).and_then(Value::as_object).into_iter().flatten();
                specs
                    .map(|(name, spec)| {
                        let unset = i64::from(!idle.contains(&name.as_str()));
                        let replicas = number(spec.get("replicas")).unwrap_or(unset);
                        part(value, &name.to_ascii_lowercase(), replicas, spec)
                    })
                    .collect()
            }
            Self::Tasks(path) => list(value, path)
                .iter()
                .map(|task| {
                    let replicas = number(task.get("minAvailable")).unwrap_or(1);
                    part(value, text(task, &["name"]), replicas, task)
                })
                .collect(),
            Self::Ray(path) => {
                let cluster = at(value, path).unwrap_or(&Value::Null);
                let head = cluster.get("headGroupSpec").filter(|head| head.get("template").is_some());
                let head = head.map(|head| part(value, "ray-head", 1, head));
                let workers = list(cluster, &["workerGroupSpecs"]).iter().enumerate().map(|(i, group)| {
                    let numbered = format!("worker-{}", i + 1);
                    let name =
                        Some(text(group, &["groupName"])).filter(|n| !n.is_empty()).unwrap_or(&numbered);
                    part(value, name, int(group, &["replicas"]), group)
                });
                head.into_iter().chain(workers).collect()
            }
            Self::Flink => Ok(flink(value)),
            Self::Spark => Ok(spark(value)),
        }
    }

    /// All parts as one number of replicas that each need as much as the largest: for placing as a whole.
    pub(super) fn together(self, value: &Value) -> Result<Replicas, InterpretError> {
        let parts = self.read(value)?;
        let replicas = parts.iter().map(|part| i64::from(part.replicas)).sum();
        let mut most = ComponentReplicaRequirements::default();
        for needs in parts.into_iter().filter_map(|part| part.replica_requirements) {
            if most.node_claim.is_none() {
                most.node_claim = needs.node_claim;
            }
            if most.priority_class_name.is_empty() {
                most.priority_class_name = needs.priority_class_name;
            }
            for (name, quantity) in needs.resource_request {
                let largest = most.resource_request.entry(name).or_default();
                if quantity > *largest {
                    *largest = quantity;
                }
            }
        }
        let any = most != ComponentReplicaRequirements::default();
        let requirements = any.then(|| karmada_api::work::ReplicaRequirements {
            node_claim: most.node_claim,
            resource_request: most.resource_request,
            priority_class_name: most.priority_class_name,
            ..Default::default()
        });
        Ok(Replicas { replicas, requirements })
    }
}

/// Parts by whose names they can be told apart, and which a binding can hold: where that is not so, their places are added.
/// Karmada leaves such an object without a binding.
fn with_own_names(mut parts: Vec<Component>) -> Vec<Component> {
    let mut taken = BTreeSet::new();
    for (i, part) in parts.iter_mut().enumerate() {
        let mut name = part.name.clone();
        let mut number = i;
        while name.is_empty() || name.len() > LONGEST || taken.contains(&name) {
            number += 1;
            let number = format!("-{number}");
            let room = LONGEST.saturating_sub(number.len());
            let begin = if part.name.is_empty() { "part" } else { part.name.as_str() };
            let end = (0..=room.min(begin.len())).rev().find(|end| begin.is_char_boundary(*end));
            name = format!("{}{number}", &begin[..end.unwrap_or_default()]);
        }
        taken.insert(name.clone());
        part.name = name;
    }
    parts
}

/// A whole number, or a text that is one.
fn number(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    }
}

fn narrow(replicas: i64) -> i32 {
    i32::try_from(replicas).unwrap_or(i32::MAX)
}

/// A part with a pod template.
fn part(object: &Value, name: &str, replicas: i64, spec: &Value) -> Result<Component, InterpretError> {
    let pod = at(spec, &["template", "spec"]).unwrap_or(&Value::Null);
    let needs = pod_requirements(object, pod)?.map(|needs| ComponentReplicaRequirements {
        node_claim: needs.node_claim,
        resource_request: needs.resource_request,
        priority_class_name: needs.priority_class_name,
    });
    Ok(Component { name: name.to_owned(), replicas: narrow(replicas), replica_requirements: needs })
}

/// A part whose resources stand in fields of its own. `pod` says which nodes it may run on.
fn sized(name: &str, replicas: i64, resources: BTreeMap<String, Quantity>, pod: &Value) -> Component {
    let claim = NodeClaim {
        hard_node_affinity: at(
            pod,
            &["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"],
        )
        .and_then(|v| Deserialize::deserialize(v).ok()),
        node_selector: pod
            .get("nodeSelector")
            .and_then(|v| Deserialize::deserialize(v).ok())
            .unwrap_or_default(),
        tolerations: pod
            .get("tolerations")
            .and_then(|v| Deserialize::deserialize(v).ok())
            .unwrap_or_default(),
    };
    Component {
        name: name.to_owned(),
        replicas: narrow(replicas),
        replica_requirements: Some(ComponentReplicaRequirements {
            node_claim: (claim != NodeClaim::default()).then_some(claim),
            resource_request: resources,
            priority_class_name: text(pod, &["priorityClassName"]).to_owned(),
        }),
    }
}

fn quantity(value: &Value, path: &[&str]) -> Option<Quantity> {
    Quantity::deserialize(at(value, path)?).ok()
}

fn flink(value: &Value) -> Vec<Component> {
    let pod = at(value, &["spec", "podTemplate", "spec"]).unwrap_or(&Value::Null);
    let part = |name: &str, field: &str, replicas: i64| {
        let resources = ["cpu", "memory"].iter().filter_map(|resource| {
            Some(((*resource).to_owned(), quantity(value, &["spec", field, "resource", resource])?))
        });
        sized(name, replicas, resources.collect(), pod)
    };
    let managers = number(at(value, &["spec", "jobManager", "replicas"])).unwrap_or(1);
    let workers = number(at(value, &["spec", "taskManager", "replicas"])).unwrap_or_else(|| {
        let parallelism = number(at(value, &["spec", "job", "parallelism"]));
        let slots = number(at(value, &["spec", "flinkConfiguration", "taskmanager.numberOfTaskSlots"]));
        match (parallelism, slots) {
            (Some(parallelism), Some(slots)) if slots > 0 && parallelism > 0 => (parallelism - 1) / slots + 1,
            _ => 1,
        }
    });
    vec![part("jobmanager", "jobManager", managers), part("taskmanager", "taskManager", workers)]
}

/// Bytes in a mebibyte.
const MI: f64 = 1024.0 * 1024.0;

fn spark(value: &Value) -> Vec<Component> {
    // Spark's own factors: less beside Java than beside Python, R and, for Karmada, Scala.
    let usual = if text(value, &["spec", "type"]).eq_ignore_ascii_case("java") { 0.1 } else { 0.4 };
    let factor = at(value, &["spec", "memoryOverheadFactor"])
        .and_then(|f| f.as_f64().or_else(|| f.as_str()?.parse().ok()))
        .unwrap_or(usual);
    let part = |name: &str, replicas: i64| {
        let spec = at(value, &["spec", name]).unwrap_or(&Value::Null);
        let memory = java_bytes(text(spec, &["memory"]));
        let overhead = match text(spec, &["memoryOverhead"]) {
            "" => (memory * factor).max(384.0 * MI),
            given => java_bytes(given),
        };
        let mut resources = BTreeMap::new();
        if let Some(cores) = quantity(spec, &["cores"]) {
            resources.insert("cpu".to_owned(), cores);
        }
        // In whole mebibytes; less than one is in kibibytes.
        let total = memory + overhead;
        let text_of = if total >= MI {
            format!("{}Mi", (total / MI).floor())
        } else {
            format!("{}Ki", (total / 1024.0).ceil().max(1.0))
        };
        if let Ok(bytes) = Quantity::parse(&text_of) {
            resources.insert("memory".to_owned(), bytes);
        }
        let (gpu, number) = (text(spec, &["gpu", "name"]), int(spec, &["gpu", "quantity"]));
        if !gpu.is_empty() && number > 0 {
            resources.insert(gpu.to_owned(), Quantity::from_value(number));
        }
        sized(name, replicas, resources, spec)
    };
    let mut executors = number(at(value, &["spec", "executor", "instances"])).unwrap_or(1);
    if at(value, &["spec", "dynamicAllocation", "enabled"]).and_then(Value::as_bool) == Some(true) {
        for field in ["initialExecutors", "minExecutors"] {
            executors = executors.max(number(at(value, &["spec", "dynamicAllocation", field])).unwrap_or(1));
        }
    }
    vec![part("driver", 1), part("executor", executors)]
}

/// An amount of memory in Java's notation (`512m`, `1.5g`), in bytes; 0 for what is none.
fn java_bytes(text: &str) -> f64 {
    let lower = text.to_ascii_lowercase();
    let digits = lower.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = lower.split_at(digits);
    let power = match unit.trim_end_matches('b') {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => 0,
    };
    number.parse::<f64>().unwrap_or(0.0) * 1024_f64.powi(power)
}
