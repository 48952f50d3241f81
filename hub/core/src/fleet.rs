//! The clusters as placement looks at them: by name, with what every binding asks of them worked out once.
//!
//! A [`Member`] is made when its Cluster changes and shared from then on; a [`Fleet`] is the list of all of them at one
//! moment. Ten thousand bindings that are placed in a row read the same list, and none of them copies a Cluster.

use std::{
    collections::BTreeMap,
    collections::BTreeSet,
    hash::Hasher,
    sync::{Arc, LazyLock},
};

use fnv::FnvHasher;
use karmada_api::{
    cluster::{ApiEnablement, Cluster, ResourceModel, ResourceSummary},
    consts::extension,
    models::default_resource_models,
};
use karmada_meta::quantity::Quantity;

use crate::{
    affinity,
    allowance::{self, Allowances},
    nodes::{Node, PODS, report},
};

/// An amount of one resource, in the two units that division goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// In whole units, rounded up.
    pub(crate) value: i64,
    /// In thousandths.
    pub(crate) milli: i64,
}

impl From<Quantity> for Amount {
    fn from(quantity: Quantity) -> Self {
        Self { value: quantity.value(), milli: quantity.milli() }
    }
}

/// How many nodes of each grade have room, and what each grade is certain to have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grades {
    /// The number of nodes, by the place of the grade.
    pub(crate) counts: Vec<i64>,
    /// Where each grade begins, by resource; a grade that does not speak of it has none. One for all clusters that keep the
    /// usual models: a binding is held against all of them in a row, and what lies apart has to be fetched from memory.
    pub(crate) begins: Arc<Begins>,
}

type Begins = BTreeMap<String, Vec<Option<Amount>>>;

/// Amounts by the names of resources. Pods, which everything asks for, stand in front.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Amounts {
    pods: Option<Amount>,
    others: BTreeMap<String, Amount>,
}

impl Amounts {
    pub(crate) fn get(&self, name: &str) -> Option<&Amount> {
        if name == PODS { self.pods.as_ref() } else { self.others.get(name) }
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Amount> {
        if name == PODS { self.pods.as_mut() } else { self.others.get_mut(name) }
    }
}

impl FromIterator<(String, Amount)> for Amounts {
    fn from_iter<T: IntoIterator<Item = (String, Amount)>>(all: T) -> Self {
        let mut others: BTreeMap<_, _> = all.into_iter().collect();
        Self { pods: others.remove(PODS), others }
    }
}

/// One cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    cluster: Arc<Cluster>,
    /// It is neither on its way out nor has it taints: most are so.
    pub(crate) plain: bool,
    /// Stands for the list of APIs: members with equal marks serve the same ones.
    pub(crate) apis: u64,
    /// allocatable − allocated − allocating of each resource that is allocatable; `None` before anything was reported.
    pub(crate) left: Option<Amounts>,
    /// Its nodes by grade, where they were counted.
    pub(crate) grades: Option<Grades>,
    /// What is free on each of its nodes, where that is known.
    nodes: Vec<Node>,
    /// What the ResourceQuotas of its namespaces leave.
    pub(crate) allowances: Allowances,
}

impl Member {
    /// What placement looks at in a Cluster.
    pub fn new(cluster: Arc<Cluster>) -> Self {
        let summary = cluster.status.as_ref().and_then(|status| status.resource_summary.clone());
        let annotations = cluster.metadata.annotations.as_ref();
        let nodes =
            annotations.and_then(|all| report::read(all.get(extension::NODES)?).ok()).unwrap_or_default();
        let allowances =
            annotations.and_then(|all| allowance::read(all.get(extension::QUOTAS)?).ok()).unwrap_or_default();
        Self::with_summary(cluster, summary.as_ref()).with_nodes(nodes).with_allowances(allowances)
    }

    /// The same, with the resources that the cluster has reported beside a Cluster that is kept without them.
    pub fn with_summary(cluster: Arc<Cluster>, summary: Option<&ResourceSummary>) -> Self {
        let status = cluster.status.as_ref();
        let apis = mark(status.map(|status| status.api_enablements.as_slice()).unwrap_or_default());
        let left = summary.map(left);
        let grades = summary.and_then(|summary| grades(summary, &cluster.spec.resource_models));
        let plain = cluster.metadata.deletion_timestamp.is_none() && cluster.spec.taints.is_empty();
        Self { cluster, plain, apis, left, grades, nodes: Vec::new(), allowances: Allowances::new() }
    }

    /// The same cluster, with what is free on each of its nodes.
    #[must_use]
    pub fn with_nodes(self, nodes: Vec<Node>) -> Self {
        Self { nodes, ..self }
    }

    /// The same cluster, with what the ResourceQuotas of its namespaces leave.
    #[must_use]
    pub fn with_allowances(self, allowances: Allowances) -> Self {
        Self { allowances, ..self }
    }

    /// The Cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Its name.
    pub fn name(&self) -> &str {
        affinity::name_of(&self.cluster)
    }

    /// What is free on each of its nodes; empty where that is not known.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

/// All clusters at one moment, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet(Vec<Arc<Member>>);

impl Fleet {
    /// Clusters in any order.
    pub fn new(members: impl IntoIterator<Item = Arc<Member>>) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_by(|a, b| a.name().cmp(b.name()));
        members.dedup_by(|a, b| a.name() == b.name());
        Self(members)
    }

    /// A fleet of these Clusters.
    pub fn of(clusters: impl IntoIterator<Item = Cluster>) -> Self {
        Self::new(clusters.into_iter().map(|cluster| Arc::new(Member::new(Arc::new(cluster)))))
    }

    /// Every cluster, by name.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.0
    }

    /// The same clusters, of which some are known anew, or for the first time, and others are gone.
    #[must_use]
    pub fn with(&self, anew: impl IntoIterator<Item = Arc<Member>>, gone: &BTreeSet<String>) -> Self {
        let mut members = self.0.clone();
        members.retain(|member| gone.is_empty() || !gone.contains(member.name()));
        let known = members.len();
        for member in anew {
            match members[..known].binary_search_by(|known| known.name().cmp(member.name())) {
                Ok(at) => members[at] = member,
                Err(_) => members.push(member),
            }
        }
        if members.len() > known {
            return Self::new(members);
        }
        Self(members)
    }

    /// The cluster of a name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        let at = self.0.binary_search_by(|member| member.name().cmp(name)).ok()?;
        Some(&self.0[at])
    }
}

fn left(summary: &ResourceSummary) -> Amounts {
    let left = |(name, allocatable): (&String, &Quantity)| {
        let mut free = *allocatable;
        for taken in [&summary.allocated, &summary.allocating] {
            if let Some(taken) = taken.get(name) {
                free -= *taken;
            }
        }
        (name.clone(), free.into())
    };
    summary.allocatable.iter().map(left).collect()
}

fn grades(summary: &ResourceSummary, models: &[ResourceModel]) -> Option<Grades> {
    let counts: Vec<_> = summary.allocatable_modelings.iter().map(|m| i64::from(m.count)).collect();
    if counts.is_empty() {
        return None;
    }
    /// The models that clusters have unless somebody gives them others.
    static USUAL: LazyLock<(Vec<ResourceModel>, Arc<Begins>)> = LazyLock::new(|| {
        let models = default_resource_models();
        let begins = Arc::new(begins(&models));
        (models, begins)
    });
    let begins = if models == USUAL.0 { Arc::clone(&USUAL.1) } else { Arc::new(begins(models)) };
    Some(Grades { counts, begins })
}

fn begins(models: &[ResourceModel]) -> Begins {
    let mut begins = Begins::new();
    for (grade, model) in models.iter().enumerate() {
        for range in &model.ranges {
            let begins = begins.entry(range.name.clone()).or_insert_with(|| vec![None; models.len()]);
            begins[grade] = Some(range.min.into());
        }
    }
    begins
}

fn mark(apis: &[ApiEnablement]) -> u64 {
    let mut hasher = FnvHasher::default();
    for group in apis {
        hasher.write(group.group_version.as_bytes());
        for resource in &group.resources {
            hasher.write_u8(0);
            hasher.write(resource.kind.as_bytes());
        }
        hasher.write_u8(1);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::affinity::tests::cluster;

    #[test]
    fn clusters_stand_by_name_and_once() {
        let status = json!({"resourceSummary": {
            "allocatable": {"cpu": "4", "pods": "110"}, "allocated": {"cpu": "1500m"},
            "allocating": {"cpu": "500m", "memory": "1Gi"},
        }});
        let one = |name: &str| cluster(name, json!({}), json!({}), status.clone());
        let fleet = Fleet::of([one("b"), one("a"), one("b")]);
        let names: Vec<_> = fleet.members().iter().map(|member| member.name()).collect();
        assert_eq!(names, ["a", "b"]);
        let left = fleet.get("b").unwrap().left.clone().unwrap();
        assert_eq!(left.get("cpu"), Some(&Amount { value: 2, milli: 2000 }));
        assert_eq!(left.get("pods"), Some(&Amount { value: 110, milli: 110_000 }));
        assert_eq!(left.get("memory"), None, "nothing of it is allocatable");
        assert_eq!(fleet.get("c"), None);
    }

    #[test]
    fn clusters_come_go_and_change() {
        let one = |name: &str, label: &str| {
            Arc::new(Member::new(Arc::new(cluster(name, json!({"l": label}), json!({}), json!({})))))
        };
        let before = Fleet::new([one("b", "1"), one("d", "1"), one("f", "1")]);
        let gone = BTreeSet::from(["d".to_owned(), "x".to_owned()]);
        let after = before.with([one("f", "2"), one("e", "2"), one("a", "2")], &gone);
        assert_eq!(after, Fleet::new([one("a", "2"), one("b", "1"), one("e", "2"), one("f", "2")]));
        assert_eq!(before.with([one("b", "2")], &BTreeSet::new()).members()[0], one("b", "2"));
    }

    #[test]
    fn lists_of_apis_are_told_apart() {
        let serving = |kinds: &[&str]| {
            let resources: Vec<_> = kinds.iter().map(|kind| json!({"name": "x", "kind": kind})).collect();
            let status = json!({"apiEnablements": [{"groupVersion": "v1", "resources": resources}]});
            Member::new(Arc::new(cluster("a", json!({}), json!({}), status))).apis
        };
        assert_eq!(serving(&["Pod", "Secret"]), serving(&["Pod", "Secret"]));
        assert_ne!(serving(&["Pod", "Secret"]), serving(&["Pod"]));
        assert_ne!(serving(&["Pod", "Secret"]), serving(&["PodSecret"]));
    }
}
