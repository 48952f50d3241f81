//! Which clusters an affinity means.

use karmada_api::{
    cluster::Cluster,
    policy::{ClusterAffinity, NodeSelectorRequirement},
};

/// Whether a cluster is meant: not excluded, and all that is given holds: names, labels, fields. An affinity that
/// gives nothing means every cluster; one whose selector cannot be read means none (validation refuses it).
pub fn matches(affinity: &ClusterAffinity, cluster: &Cluster) -> bool {
    let name = name_of(cluster);
    let named = |names: &[String]| names.iter().any(|n| n == name);
    if named(&affinity.exclude) || !(affinity.cluster_names.is_empty() || named(&affinity.cluster_names)) {
        return false;
    }
    let labels = affinity.label_selector.as_ref().is_none_or(|selector| {
        let empty = Default::default();
        selector
            .to_selector()
            .is_ok_and(|selector| selector.matches(cluster.metadata.labels.as_ref().unwrap_or(&empty)))
    });
    let fields = affinity
        .field_selector
        .as_ref()
        .is_none_or(|selector| selector.match_expressions.iter().all(|e| field_matches(e, cluster)));
    labels && fields
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
/// `In` asks that all of them are in the list, `NotIn` that none is.
fn field_matches(requirement: &NodeSelectorRequirement, cluster: &Cluster) -> bool {
    let single = |text: &String| if text.is_empty() { Vec::new() } else { vec![text.clone()] };
    let have = match requirement.key.as_str() {
        "provider" => single(&cluster.spec.provider),
        "region" => single(&cluster.spec.region),
        "zone" => zones_of(cluster).to_vec(),
        _ => return false,
    };
    match requirement.operator.as_str() {
        "In" => !have.is_empty() && have.iter().all(|value| requirement.values.contains(value)),
        "NotIn" => !have.iter().any(|value| requirement.values.contains(value)),
        "Exists" => !have.is_empty(),
        "DoesNotExist" => have.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
            ("not all zones in", field("zone", "In", json!(["a"])), false, true),
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
