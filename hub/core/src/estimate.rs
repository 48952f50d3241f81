//! How many more replicas a cluster has room for.
//!
//! ```text
//!   free places for pods ─┐
//!   nodes one by one, or  ├─▶ the least of them, and what it was ─▶ Estimate
//!   grades of nodes, or   │
//!   the sum of all nodes ─┘
//! ```
//!
//! What is known decides: nodes where their free resources are reported, else the grades (`resourceModels` and
//! `allocatableModelings`), else the sum. The sum can promise what no single node can hold; that is why grades exist.
//! Nowhere is there more room than the ResourceQuotas of the object's namespace leave ([`crate::allowance`]).
//! What was placed a moment ago is in no report yet: [`outstanding`] keeps the account of it, and takes it off.

mod less;
pub mod outstanding;

use std::{collections::BTreeMap, fmt};

use karmada_api::{
    policy::NodeSelectorRequirement,
    work::{Component, NodeClaim, NodeSelector, ReplicaRequirements},
};
use karmada_meta::quantity::Quantity;

use crate::{
    fleet::{Amount, Grades, Member},
    nodes::{Node, PODS},
    taints,
};

/// More than any cluster has room for: what is asked of a cluster for objects that have no replicas.
pub const UNLIMITED: i64 = i32::MAX as i64;

/// What there is least of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit<'a> {
    /// Nothing limits.
    None,
    /// A resource.
    Resource(&'a str),
    /// Nodes of a grade that is certain to have room for a replica.
    LargeNodes,
    /// No grade is certain to have as much of this resource as a replica asks for.
    NoGrade(&'a str),
    /// No node has the labels and taints that the replicas ask for.
    NoNode,
    /// The cluster has not reported its resources.
    NotReported,
    /// The ResourceQuotas of the object's namespace leave no more of this resource.
    Quota(&'a str),
    /// It cannot be reached, and what is to be moved needs a place that can.
    OutOfReach,
}

impl fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("nothing"),
            Self::Resource(name) => f.write_str(name),
            Self::LargeNodes => f.write_str("large enough nodes"),
            Self::NoGrade(name) => write!(f, "no grade of nodes is certain to have enough {name}"),
            Self::NoNode => f.write_str("no node has the labels and taints that replicas ask for"),
            Self::NotReported => f.write_str("resources not reported"),
            Self::Quota(name) => write!(f, "a ResourceQuota of its namespace for {name}"),
            Self::OutOfReach => f.write_str("it cannot be reached"),
        }
    }
}

/// The room a cluster has for replicas of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate<'a> {
    /// How many more fit.
    pub replicas: i64,
    /// What there is least of.
    pub limit: Limit<'a>,
}

impl<'a> Estimate<'a> {
    /// Room for anything.
    pub const UNLIMITED: Self = Self { replicas: UNLIMITED, limit: Limit::None };

    /// No room, for this reason.
    pub(crate) const fn none(limit: Limit<'a>) -> Self {
        Self { replicas: 0, limit }
    }

    fn least(self, other: Self) -> Self {
        if other.replicas < self.replicas { other } else { self }
    }
}

/// What is asked of every cluster: read once, held against each.
#[derive(Clone, Debug, Default)]
pub struct Ask<'a> {
    /// What is asked of each resource, where something is.
    requests: Vec<(&'a str, Amount)>,
    /// Places for pods.
    pods: i64,
    claim: Option<&'a NodeClaim>,
    /// Whether one node has to hold all of it.
    together: bool,
    /// Whose ResourceQuotas it counts against; empty for what has no namespace.
    namespace: &'a str,
    /// What counts against them.
    shares: Vec<Share<'a>>,
}

/// Pods of one priority class.
#[derive(Clone, Debug)]
struct Share<'a> {
    class: &'a str,
    pods: i64,
    /// What each asks for.
    requests: Option<&'a BTreeMap<String, Quantity>>,
}

impl<'a> Ask<'a> {
    /// One replica.
    pub fn replica(requirements: Option<&'a ReplicaRequirements>) -> Self {
        let requests = requirements.into_iter().flat_map(|needs| &needs.resource_request);
        let mut ask = Self { pods: 1, together: true, ..Self::default() };
        ask.claim = requirements.and_then(|needs| needs.node_claim.as_ref());
        ask.namespace = requirements.map_or("", |needs| needs.namespace.as_str());
        ask.shares = vec![Share {
            class: requirements.map_or("", |needs| needs.priority_class_name.as_str()),
            pods: 1,
            requests: requirements.map(|needs| &needs.resource_request),
        }];
        ask.add(requests.map(|(name, request)| (name.as_str(), *request)).collect());
        ask
    }

    /// A whole set of components: of each as many as its replicas say.
    pub fn set(components: &'a [Component]) -> Self {
        let mut sum = BTreeMap::<&str, Quantity>::new();
        let mut pods = 0;
        let mut shares = Vec::with_capacity(components.len());
        for component in components {
            let times = component.replicas.max(0);
            pods += i64::from(times);
            let needs = component.replica_requirements.as_ref();
            shares.push(Share {
                class: needs.map_or("", |needs| needs.priority_class_name.as_str()),
                pods: times.into(),
                requests: needs.map(|needs| &needs.resource_request),
            });
            let requests = component.replica_requirements.iter().flat_map(|needs| &needs.resource_request);
            for (name, request) in requests {
                *sum.entry(name).or_insert_with(Quantity::zero) += times_of(*request, i64::from(times));
            }
        }
        let mut ask = Self { pods: pods.max(1), shares, ..Self::default() };
        ask.add(sum);
        ask
    }

    /// The same in a namespace, whose ResourceQuotas it counts against.
    #[must_use]
    pub fn within(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }

    fn add(&mut self, requests: BTreeMap<&'a str, Quantity>) {
        let asked = requests.into_iter().filter(|(_, request)| request.value() > 0);
        self.requests = asked.map(|(name, request)| (name, request.into())).collect();
    }

    /// How often that fits on a cluster.
    pub fn room(&self, member: &Member) -> Estimate<'a> {
        let Some(left) = &member.left else { return Estimate::none(Limit::NotReported) };
        let places = left.get(PODS).map_or(0, |left| left.value);
        if places <= 0 {
            return Estimate::none(Limit::Resource(PODS));
        }
        let places = Estimate { replicas: (places / self.pods).min(UNLIMITED), limit: Limit::Resource(PODS) };
        let places = places.least(self.allowed(member));
        if self.together && !member.nodes().is_empty() {
            return places.least(self.by_nodes(member.nodes()));
        }
        let graded =
            member.grades.as_ref().filter(|_| self.together).and_then(|grades| self.by_grades(grades));
        places.least(
            graded.unwrap_or_else(|| self.times_in(|name| left.get(name).copied().unwrap_or_default())),
        )
    }

    /// How often the ResourceQuotas of its namespace allow it.
    fn allowed(&self, member: &Member) -> Estimate<'a> {
        let mut least = Estimate::UNLIMITED;
        for allowance in member.allowances.get(self.namespace).into_iter().flatten() {
            let mut sums = BTreeMap::<&str, Quantity>::new();
            for share in self.shares.iter().filter(|share| allowance.is_for(share.class)) {
                for (name, request) in share.requests.into_iter().flatten() {
                    *sums.entry(name).or_default() += times_of(*request, share.pods);
                }
                *sums.entry(PODS).or_default() += Quantity::from_value(share.pods);
            }
            for (name, asked) in sums {
                let asked = Amount::from(asked);
                let Some(free) = allowance.free.get(name).filter(|_| asked.value > 0) else { continue };
                let replicas = goes_into(name, asked, (*free).into());
                least = least.least(Estimate { replicas, limit: Limit::Quota(name) });
            }
        }
        least
    }

    /// How often it goes into what is left.
    fn times_in(&self, left: impl Fn(&str) -> Amount) -> Estimate<'a> {
        let mut least = Estimate::UNLIMITED;
        for (name, request) in &self.requests {
            let fits = goes_into(name, *request, left(name));
            if fits < least.replicas {
                least = Estimate { replicas: fits, limit: Limit::Resource(name) };
            }
        }
        least
    }

    /// The sum over nodes of the grades from the first that is certain to hold a replica; of each node only what its
    /// grade is certain to have. `None` where the grades do not speak of a resource that is asked for: then the sum of
    /// all nodes has to do.
    fn by_grades(&self, grades: &Grades) -> Option<Estimate<'a>> {
        let usable = match self.usable_grades(grades)? {
            Ok(usable) => usable,
            Err(limit) => return Some(Estimate::none(limit)),
        };
        let nodes = usable.into_iter().map(|(place, each)| grades.counts[place].saturating_mul(each));
        let replicas = nodes.fold(0, i64::saturating_add);
        Some(Estimate { replicas: replicas.min(UNLIMITED), limit: Limit::LargeNodes })
    }

    /// The places of the grades that are certain to hold a replica and have nodes, and how many each of those holds.
    fn usable_grades(&self, grades: &Grades) -> Option<Result<Vec<(usize, i64)>, Limit<'a>>> {
        let mut begins = Vec::with_capacity(self.requests.len());
        let mut first = 0;
        for (name, request) in &self.requests {
            let grade = grades.begins.get(*name)?;
            match grade.iter().position(|begin| begin.is_some_and(|begin| begin.milli >= request.milli)) {
                Some(place) => first = first.max(place),
                None => return Some(Err(Limit::NoGrade(name))),
            }
            begins.push((*name, *request, grade));
        }
        let each = |place: usize| {
            let fit = begins.iter().map(|(name, request, grade)| {
                goes_into(name, *request, grade.get(place).copied().flatten().unwrap_or_default())
            });
            fit.min().unwrap_or(UNLIMITED).max(1)
        };
        let nodes = grades.counts.iter().enumerate().skip(first).filter(|(_, count)| **count > 0);
        Some(Ok(nodes.map(|(place, _)| (place, each(place))).collect()))
    }

    /// The sum over the nodes that a replica may run on of how many fit.
    fn by_nodes(&self, nodes: &[Node]) -> Estimate<'a> {
        let (mut replicas, mut open) = (0_i64, false);
        let mut short = BTreeMap::<Limit<'a>, i64>::new();
        // Who says nothing tolerates nothing.
        let nothing = NodeClaim::default();
        let claim = self.claim.unwrap_or(&nothing);
        for node in nodes.iter().filter(|node| may_run(node, claim)) {
            open = true;
            let fit = self.on_node(node);
            *short.entry(fit.limit).or_default() += node.count.max(1);
            replicas = replicas.saturating_add(fit.replicas.saturating_mul(node.count.max(1)));
        }
        if !open {
            return Estimate::none(Limit::NoNode);
        }
        let limit = short.into_iter().max_by_key(|(_, nodes)| *nodes).map_or(Limit::None, |(limit, _)| limit);
        Estimate { replicas: replicas.min(UNLIMITED), limit }
    }

    /// How many fit on one node that a replica may run on.
    fn on_node(&self, node: &Node) -> Estimate<'a> {
        let left = |name: &str| Amount::from(node.free.get(name).copied().unwrap_or_default());
        let places = Estimate { replicas: left(PODS).value.max(0), limit: Limit::Resource(PODS) };
        places.least(self.times_in(left))
    }
}

fn times_of(quantity: Quantity, times: i64) -> Quantity {
    match quantity.milli().checked_mul(times) {
        Some(milli) => Quantity::from_milli(milli),
        None => Quantity::from_value(quantity.value().saturating_mul(times)),
    }
}

/// How often a request goes into what is left: cpu by thousandths, anything else by whole units, as Karmada counts.
fn goes_into(name: &str, request: Amount, left: Amount) -> i64 {
    let (request, left) =
        if name == "cpu" { (request.milli, left.milli) } else { (request.value, left.value) };
    if left <= 0 { 0 } else { left / request.max(1) }
}

/// Whether a replica may run on a node, by labels, affinity and taints.
fn may_run(node: &Node, claim: &NodeClaim) -> bool {
    claim.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && claim.hard_node_affinity.as_ref().is_none_or(|selector| selects(selector, node))
        && taints::untolerated(&node.taints, &claim.tolerations, None).is_none()
}

/// Whether one of the terms holds; an empty term holds for no node.
fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| {
        let said = !term.match_expressions.is_empty() || !term.match_fields.is_empty();
        said && term.match_expressions.iter().all(|e| holds(e, node.labels.get(&e.key).map(String::as_str)))
            && term.match_fields.iter().all(|e| {
                holds(e, (e.key == "metadata.name" && !node.name.is_empty()).then_some(node.name.as_str()))
            })
    })
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|v| v == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = || requirement.values.first().and_then(|v| number(v));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number).zip(bound()).is_some_and(|(value, bound)| value > bound),
        "Lt" => value.and_then(number).zip(bound()).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use karmada_api::models::default_resource_models;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::affinity::tests::cluster;

    fn member(spec: Value, summary: Value) -> Member {
        let status = if summary.is_null() { json!({}) } else { json!({"resourceSummary": summary}) };
        Member::new(Arc::new(cluster("m", json!({}), spec, status)))
    }

    fn needs(requests: Value) -> ReplicaRequirements {
        serde_json::from_value(json!({"resourceRequest": requests})).unwrap()
    }

    fn room(member: &Member, requests: Value) -> (i64, String) {
        let needs = needs(requests);
        let estimate = Ask::replica(Some(&needs)).room(member);
        (estimate.replicas, estimate.limit.to_string())
    }

    #[test]
    fn the_sum_of_all_nodes() {
        let m = member(
            json!({}),
            json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                   "allocated": {"cpu": "1", "memory": "7Gi", "pods": "8"}, "allocating": {"cpu": "500m", "pods": "2"}}),
        );
        let table = [
            ("cpu is short", json!({"cpu": "500m"}), (5, "cpu")),
            ("memory is short", json!({"cpu": "100m", "memory": "300Mi"}), (3, "memory")),
            ("places for pods", json!({"cpu": "1m"}), (100, "pods")),
            ("nothing asked", json!({}), (100, "pods")),
            ("a request of nothing", json!({"cpu": "0", "example.com/gpu": "0"}), (100, "pods")),
            ("what it does not have", json!({"example.com/gpu": "1"}), (0, "example.com/gpu")),
            ("too large", json!({"cpu": "3"}), (0, "cpu")),
        ];
        for (message, requests, (replicas, limit)) in table {
            assert_eq!(room(&m, requests), (replicas, limit.to_owned()), "{message}");
        }
        assert_eq!(Ask::replica(None).room(&m).replicas, 100, "without requirements");
        let silent = member(json!({}), json!(null));
        assert_eq!(Ask::replica(None).room(&silent), Estimate::none(Limit::NotReported));
        let full =
            member(json!({}), json!({"allocatable": {"cpu": "4", "pods": "2"}, "allocated": {"pods": "3"}}));
        assert_eq!(room(&full, json!({})), (0, "pods".into()));
    }

    #[test]
    fn grades_count_what_is_certain() {
        let models = serde_json::to_value(default_resource_models()).unwrap();
        let counts = |list: &[(i32, i32)]| -> Vec<Value> {
            (0..9)
                .map(|grade| {
                    let count = list.iter().find(|(g, _)| *g == grade).map_or(0, |(_, n)| *n);
                    json!({"grade": grade, "count": count})
                })
                .collect()
        };
        let with = |list: &[(i32, i32)]| {
            member(
                json!({"resourceModels": models}),
                json!({"allocatable": {"cpu": "1k", "memory": "1Ti", "pods": "1000"}, "allocatableModelings": counts(list)}),
            )
        };
        // Grade 1 begins at 1 core and 4Gi, grade 2 at 2 and 16Gi, grade 3 at 4 and 32Gi.
        let table = [
            ("two small nodes", with(&[(1, 2)]), json!({"cpu": "500m"}), 4),
            ("the first grade promises nothing", with(&[(0, 9)]), json!({"cpu": "1m"}), 0),
            ("a grade that begins below the request", with(&[(1, 2), (2, 1)]), json!({"cpu": "1500m"}), 1),
            ("memory is short", with(&[(2, 1)]), json!({"cpu": "1m", "memory": "5Gi"}), 3),
            ("larger grades count too", with(&[(1, 1), (3, 2)]), json!({"cpu": "1"}), 9),
            ("larger than any grade", with(&[(8, 9)]), json!({"cpu": "129"}), 0),
            ("another resource: the sum", with(&[(1, 1)]), json!({"example.com/gpu": "1"}), 0),
            ("nothing asked", with(&[(1, 1), (2, 1)]), json!({}), 1000),
        ];
        for (message, member, requests, want) in table {
            assert_eq!(room(&member, requests).0, want, "{message}");
        }
        let unnumbered =
            member(json!({"resourceModels": models}), json!({"allocatable": {"cpu": "4", "pods": "9"}}));
        assert_eq!(room(&unnumbered, json!({"cpu": "1"})).0, 4, "nothing counted yet: the sum");
    }

    #[test]
    fn nodes_one_by_one() {
        let node = |name: &str, free: Value, labels: Value, taints: Value| json!({"name": name, "free": free, "labels": labels, "taints": taints});
        let nodes: Vec<Node> = serde_json::from_value(json!([
            node("a", json!({"cpu": "3", "pods": "10"}), json!({"disk": "ssd", "cores": "8"}), json!([])),
            node("b", json!({"cpu": "1500m", "pods": "10"}), json!({"disk": "hdd"}), json!([{"key": "k", "effect": "NoSchedule"}])),
            node("c", json!({"cpu": "8", "pods": "0"}), json!({}), json!([])),
            {"count": 3, "free": {"cpu": "1", "pods": "4"}, "labels": {"disk": "none"}},
        ]))
        .unwrap();
        let affinity = |expression: Value| json!({"hardNodeAffinity": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
        let table = [
            ("no claim: three on the first, one on each of three like nodes", json!(null), 3 + 3),
            ("the taint", json!({}), 3 + 3),
            ("tolerated", json!({"tolerations": [{"key": "k", "operator": "Exists"}]}), 3 + 1 + 3),
            ("a selector", json!({"nodeSelector": {"disk": "ssd"}}), 3),
            ("In", affinity(json!({"key": "disk", "operator": "In", "values": ["ssd", "hdd"]})), 3),
            ("NotIn", affinity(json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]})), 3),
            ("Exists", affinity(json!({"key": "cores", "operator": "Exists"})), 3),
            ("DoesNotExist", affinity(json!({"key": "cores", "operator": "DoesNotExist"})), 3),
            ("Gt", affinity(json!({"key": "cores", "operator": "Gt", "values": ["4"]})), 3),
            ("Lt", affinity(json!({"key": "cores", "operator": "Lt", "values": ["4"]})), 0),
            ("no term", json!({"hardNodeAffinity": {"nodeSelectorTerms": []}}), 0),
            ("an empty term", json!({"hardNodeAffinity": {"nodeSelectorTerms": [{}]}}), 0),
            (
                "by name",
                json!({"hardNodeAffinity": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}),
                3,
            ),
        ];
        let claimed = |claim: Value| ReplicaRequirements {
            node_claim: serde_json::from_value(claim).unwrap(),
            ..needs(json!({"cpu": "1"}))
        };
        for (message, claim, want) in table {
            assert_eq!(Ask::replica(Some(&claimed(claim))).by_nodes(&nodes).replicas, want, "{message}");
        }
        let nowhere = claimed(json!({"nodeSelector": {"disk": "tape"}}));
        assert_eq!(Ask::replica(Some(&nowhere)).by_nodes(&nodes), Estimate::none(Limit::NoNode));
        let m = member(json!({}), json!({"allocatable": {"cpu": "100", "pods": "100"}})).with_nodes(nodes);
        assert_eq!(room(&m, json!({"cpu": "3"})), (1, "cpu".into()), "one node can, whatever the sum says");
    }

    #[test]
    fn no_more_than_resource_quotas_of_the_namespace_leave() {
        let allowances = serde_json::from_value(json!({"shop": [
            {"free": {"cpu": "3", "pods": "50"}},
            {"free": {"cpu": "1", "memory": "1Gi"}, "classes": [{"operator": "In", "values": ["high"]}]},
        ]}))
        .unwrap();
        let m = member(json!({}), json!({"allocatable": {"cpu": "100", "memory": "64Gi", "pods": "99"}}))
            .with_allowances(allowances);
        let of = |namespace: &str, class: &str, requests: Value| {
            let needs = ReplicaRequirements {
                namespace: namespace.to_owned(),
                priority_class_name: class.to_owned(),
                ..needs(requests)
            };
            let estimate = Ask::replica(Some(&needs)).room(&m);
            (estimate.replicas, estimate.limit.to_string())
        };
        let cpu = "a ResourceQuota of its namespace for cpu".to_owned();
        assert_eq!(of("shop", "", json!({"cpu": "500m"})), (6, cpu.clone()));
        assert_eq!(of("shop", "low", json!({"cpu": "500m", "memory": "1Gi"})), (6, cpu.clone()));
        assert_eq!(of("shop", "high", json!({"cpu": "500m"})), (2, cpu));
        assert_eq!(of("shop", "high", json!({"memory": "2Gi"})).0, 0);
        assert_eq!(of("shop", "", json!({})), (50, "a ResourceQuota of its namespace for pods".to_owned()));
        assert_eq!(of("bank", "", json!({"cpu": "500m"})), (99, "pods".to_owned()));
        let parts: Vec<Component> = serde_json::from_value(json!([
            {"name": "a", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "500m"}, "priorityClassName": "high"}},
            {"name": "b", "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "250m"}}},
        ]))
        .unwrap();
        assert_eq!(Ask::set(&parts).within("shop").room(&m).replicas, 2, "half a core of one by its class");
        assert_eq!(Ask::set(&parts).within("bank").room(&m).replicas, 33);

        let part = |namespace: &str| outstanding::Part {
            replicas: 1,
            requirements: ReplicaRequirements {
                namespace: namespace.to_owned(),
                ..needs(json!({"cpu": "500m"}))
            },
        };
        let (here, there) = (part("shop"), part("bank"));
        let less = m.less([(&here, 2), (&there, 9)]);
        let asked = ReplicaRequirements { namespace: "shop".to_owned(), ..needs(json!({"cpu": "500m"})) };
        assert_eq!(Ask::replica(Some(&asked)).room(&less).replicas, 4, "what is on its way counts");
    }

    #[test]
    fn sets_of_components() {
        let m = member(json!({}), json!({"allocatable": {"cpu": "10", "memory": "64Gi", "pods": "20"}}));
        let components: Vec<Component> = serde_json::from_value(json!([
            {"name": "manager", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}},
            {"name": "worker", "replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}}},
        ]))
        .unwrap();
        assert_eq!(Ask::set(&components).room(&m), Estimate { replicas: 4, limit: Limit::Resource("cpu") });
        assert_eq!(Ask::set(&[]).room(&m).replicas, 20);
    }

    proptest! {
        #[test]
        fn more_room_is_never_less(cpu in 1i64..50, more in 0i64..50, pods in 1i64..50, ask in 1i64..3000) {
            let at = |cpu: i64| {
                let m = member(json!({}), json!({"allocatable": {"cpu": cpu.to_string(), "pods": pods.to_string()}}));
                room(&m, json!({"cpu": format!("{ask}m")})).0
            };
            prop_assert!(at(cpu) <= at(cpu + more));
            prop_assert!(at(cpu) * ask <= cpu * 1000 && at(cpu) <= pods, "no more than there is");
        }
    }
}
