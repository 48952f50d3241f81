//! Which clusters an affinity means.

use std::collections::BTreeSet;

use karmada_api::{
    cluster::Cluster,
    policy::{ClusterAffinity, ClusterAffinityTerm, NodeSelectorRequirement, Placement},
};
use karmada_meta::labels::{LabelSelector, Selector};

/// Whether a cluster is meant: not excluded, and all that is given holds: names, labels, fields. An affinity that
/// gives nothing means every cluster; one whose selector cannot be read means none (validation refuses it).
pub fn matches(affinity: &ClusterAffinity, cluster: &Cluster) -> bool {
    Compiled::new(affinity).matches(cluster)
}

/// An affinity made ready to be held against many clusters.
#[derive(Debug)]
pub struct Compiled<'a> {
    names: BTreeSet<&'a str>,
    exclude: BTreeSet<&'a str>,
    labels: Labels,
    fields: &'a [NodeSelectorRequirement],
}

#[derive(Debug)]
enum Labels {
    Any,
    These(Selector),
    Unreadable,
}

impl<'a> Compiled<'a> {
    /// Reads an affinity once.
    pub fn new(affinity: &'a ClusterAffinity) -> Self {
        let labels = match affinity.label_selector.as_ref().map(LabelSelector::to_selector) {
            None => Labels::Any,
            Some(Ok(selector)) => Labels::These(selector),
            Some(Err(_)) => Labels::Unreadable,
        };
        Self {
            names: affinity.cluster_names.iter().map(String::as_str).collect(),
            exclude: affinity.exclude.iter().map(String::as_str).collect(),
            labels,
            fields: affinity
                .field_selector
                .as_ref()
                .map(|s| s.match_expressions.as_slice())
                .unwrap_or_default(),
        }
    }

    /// The only clusters that it can mean, if it names any.
    pub fn names(&self) -> Option<&BTreeSet<&'a str>> {
        (!self.names.is_empty()).then_some(&self.names)
    }

    /// Whether a cluster is meant.
    pub fn matches(&self, cluster: &Cluster) -> bool {
        self.refusal(cluster).is_none()
    }

    /// What of the affinity does not hold for a cluster; `None` where it is meant.
    pub fn refusal(&self, cluster: &Cluster) -> Option<Part> {
        let name = name_of(cluster);
        if self.exclude.contains(name) {
            return Some(Part::Excluded);
        }
        if !self.names.is_empty() && !self.names.contains(name) {
            return Some(Part::Names);
        }
        let labelled = match &self.labels {
            Labels::Any => true,
            Labels::Unreadable => false,
            Labels::These(selector) => {
                let labels = cluster.metadata.labels.as_ref();
                selector.matches_with(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
            }
        };
        if !labelled {
            return Some(Part::Labels);
        }
        let field = self.fields.iter().find(|requirement| !field_matches(requirement, cluster));
        field.map(|requirement| Part::Field(requirement.key.clone()))
    }
}

/// A part of an affinity that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// `exclude` names the cluster.
    Excluded,
    /// `clusterNames` does not.
    Names,
    /// `labelSelector`.
    Labels,
    /// `fieldSelector`, by this field.
    Field(String),
}

/// Which clusters a placement may mean, whichever of its affinities is taken.
#[derive(Debug)]
pub struct Reach<'a> {
    /// Nothing where all clusters are meant.
    affinities: Option<Vec<Compiled<'a>>>,
}

impl<'a> Reach<'a> {
    /// Reads a placement once.
    pub fn new(placement: &'a Placement) -> Self {
        let all = affinities(placement);
        Self { affinities: all.map(|all| all.into_iter().map(Compiled::new).collect()) }
    }

    /// Whether any of the affinities means a cluster.
    pub fn means(&self, cluster: &Cluster) -> bool {
        self.affinities.as_ref().is_none_or(|all| all.iter().any(|affinity| affinity.matches(cluster)))
    }
}

/// The clusters that a placement names, if it can mean no others, whatever their labels and fields.
pub fn names(placement: &Placement) -> Option<BTreeSet<&str>> {
    let all = affinities(placement)?;
    let named = all.iter().all(|affinity| !affinity.cluster_names.is_empty());
    named.then(|| all.into_iter().flat_map(|affinity| &affinity.cluster_names).map(String::as_str).collect())
}

/// All affinities of a placement; nothing where it has none, and all clusters are meant.
fn affinities(placement: &Placement) -> Option<Vec<&ClusterAffinity>> {
    fn of(term: &ClusterAffinityTerm) -> impl Iterator<Item = &ClusterAffinity> {
        let overflow = term.overflow_affinities.iter().map(|overflow| &overflow.affinity);
        [&term.affinity].into_iter().chain(overflow)
    }
    if placement.cluster_affinities.is_empty() {
        return placement.cluster_affinity.as_ref().map(|affinity| vec![affinity]);
    }
    Some(placement.cluster_affinities.iter().flat_map(of).collect())
}

/// A cluster's name; empty for an object without one.
pub fn name_of(cluster: &Cluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or_default()
}

/// The failure zones of a cluster; the deprecated single one counts when there is no list.
pub fn zones_of(cluster: &Cluster) -> &[String] {
    match &cluster.spec {
        spec if spec.zones.is_empty() && !spec.zone.is_empty() => std::slice::from_ref(&spec.zone),
        spec => &spec.zones,
    }
}

/// One requirement on `provider`, `region` or `zone`. A cluster has one provider and one region but several zones:
/// `In` asks that one of them is in the list, `NotIn` that none is.
fn field_matches(requirement: &NodeSelectorRequirement, cluster: &Cluster) -> bool {
    fn one(text: &String) -> &[String] {
        if text.is_empty() { &[] } else { std::slice::from_ref(text) }
    }
    let have = match requirement.key.as_str() {
        "provider" => one(&cluster.spec.provider),
        "region" => one(&cluster.spec.region),
        "zone" => zones_of(cluster),
        _ => return false,
    };
    match requirement.operator.as_str() {
        "In" => have.iter().any(|value| requirement.values.contains(value)),
        "NotIn" => !have.iter().any(|value| requirement.values.contains(value)),
        "Exists" => !have.is_empty(),
        "DoesNotExist" => have.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    /// A cluster as it stands in JSON: name, and what else `spec` and `status` hold.
    pub(crate) fn cluster(name: &str, labels: Value, spec: Value, status: Value) -> Cluster {
        let mut full = json!({"syncMode": "Pull"});
        for (key, value) in spec.as_object().into_iter().flatten() {
            full[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "labels": labels}, "spec": full, "status": status,
        }))
        .expect("a cluster")
    }

    #[test]
    fn any_affinity_of_a_placement_counts_and_names_bound_it_where_all_have_them() {
        let two = json!({"clusterAffinities": [
            {"affinityName": "x", "clusterNames": ["a"]},
            {"affinityName": "y", "clusterNames": ["b"],
             "overflowAffinities": [{"affinityName": "z", "clusterNames": ["c"]}]},
        ]});
        let half = json!({"clusterAffinities": [
            {"affinityName": "x", "clusterNames": ["a"]}, {"affinityName": "y", "exclude": ["b"]},
        ]});
        // (what, the placement, those of a, b and c that it means, the clusters that it names)
        let table = [
            ("no affinity", json!({}), "abc", None),
            ("by name", json!({"clusterAffinity": {"clusterNames": ["a"]}}), "a", Some("a")),
            ("all but one", json!({"clusterAffinity": {"exclude": ["a"]}}), "bc", None),
            (
                "named and excluded",
                json!({"clusterAffinity": {"clusterNames": ["a"], "exclude": ["a"]}}),
                "",
                Some("a"),
            ),
            ("groups, and what they overflow to", two, "abc", Some("abc")),
            ("one group without names", half, "ac", None),
        ];
        for (what, placement, means, named) in table {
            let placement = Placement::deserialize(placement).unwrap();
            let reach = Reach::new(&placement);
            let all = ["a", "b", "c"].into_iter();
            let meant: String = all.filter(|n| reach.means(&Cluster::new(*n, Default::default()))).collect();
            assert_eq!(meant, means, "{what}");
            assert_eq!(names(&placement).map(String::from_iter).as_deref(), named, "{what}");
        }
    }

    #[test]
    fn everything_given_must_hold() {
        let m = cluster(
            "m",
            json!({"tier": "edge"}),
            json!({"provider": "p", "region": "eu", "zones": ["a", "b"]}),
            json!({}),
        );
        let bare = cluster("bare", json!({}), json!({"zone": "a"}), json!({}));
        let field = |key: &str, operator: &str, values: Value| json!({"fieldSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
        let table = [
            ("nothing given", json!({}), true, true),
            ("named", json!({"clusterNames": ["m"]}), true, false),
            ("excluded wins", json!({"clusterNames": ["m"], "exclude": ["m"]}), false, false),
            ("labels", json!({"labelSelector": {"matchLabels": {"tier": "edge"}}}), true, false),
            (
                "label expressions",
                json!({"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}}),
                false,
                true,
            ),
            (
                "an unknown operator means none",
                json!({"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Like"}]}}),
                false,
                false,
            ),
            (
                "name and label",
                json!({"clusterNames": ["bare"], "labelSelector": {"matchLabels": {"tier": "edge"}}}),
                false,
                false,
            ),
            ("region in", field("region", "In", json!(["eu", "us"])), true, false),
            ("region not in", field("region", "NotIn", json!(["eu"])), false, true),
            ("provider", field("provider", "In", json!(["p"])), true, false),
            ("all zones in", field("zone", "In", json!(["a", "b", "c"])), true, true),
            ("one of the zones in", field("zone", "In", json!(["b"])), true, false),
            ("no zone in", field("zone", "In", json!(["c"])), false, false),
            ("a zone not in", field("zone", "NotIn", json!(["b"])), false, true),
            ("an unknown field", field("name", "In", json!(["m"])), false, false),
        ];
        for (message, affinity, on_m, on_bare) in table {
            let affinity: ClusterAffinity = serde_json::from_value(affinity).unwrap();
            assert_eq!(matches(&affinity, &m), on_m, "{message} (m)");
            assert_eq!(matches(&affinity, &bare), on_bare, "{message} (bare)");
        }
    }
}
