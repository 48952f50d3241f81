//! How the replicas of an object are divided among the clusters it goes to.
//!
//! ```text
//!   placement ──▶ Strategy ─┬─ Duplicated          all of them everywhere
//!                           ├─ StaticWeights       Webster over the weights a user gives
//!                           ├─ AvailableReplicas ┐ Webster over what clusters have room for,
//!                           └─ Aggregated        ┘ moving as little as possible
//! ```

mod dynamic;
mod webster;

use karmada_api::{
    cluster::Cluster,
    policy::{Placement, ReplicaDivisionPreference, ReplicaSchedulingType, StaticClusterWeight},
    work::TargetCluster,
};

pub use self::{
    dynamic::{Mode, Slot, TooLittle, divide_by_room},
    webster::{Share, TieBreak, apportion},
};
use crate::affinity::{self, Compiled};

/// The way of dividing that a placement asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy<'a> {
    /// Every cluster gets all replicas.
    Duplicated,
    /// By the weights of a list; by equal ones when it is empty.
    StaticWeights(&'a [StaticClusterWeight]),
    /// By the replicas that clusters have room for.
    AvailableReplicas,
    /// Into as few clusters as have room.
    Aggregated,
}

impl<'a> Strategy<'a> {
    /// What `spec.replicaScheduling` asks for. Without it, or without a preference in it, the defaults hold that
    /// admission sets: Duplicated, and Weighted.
    pub fn of(placement: &'a Placement) -> Self {
        let Some(scheduling) = &placement.replica_scheduling else { return Self::Duplicated };
        match (scheduling.replica_scheduling_type, scheduling.replica_division_preference) {
            (ReplicaSchedulingType::Duplicated, _) => Self::Duplicated,
            (ReplicaSchedulingType::Divided, Some(ReplicaDivisionPreference::Aggregated)) => Self::Aggregated,
            (ReplicaSchedulingType::Divided, _) => match &scheduling.weight_preference {
                None => Self::StaticWeights(&[]),
                Some(preference) if preference.dynamic_weight.is_some() => Self::AvailableReplicas,
                Some(preference) => Self::StaticWeights(&preference.static_weight_list),
            },
        }
    }
}

/// All replicas everywhere, in the order of the candidates.
pub fn duplicate(candidates: &[&Cluster], replicas: i32) -> Vec<TargetCluster> {
    candidates.iter().map(|cluster| TargetCluster::new(affinity::name_of(cluster), replicas)).collect()
}

/// Replicas by weight. A cluster's weight is the largest of all rules that mean it; one that no rule means gets
/// nothing and is left out. If nothing has a weight, everything weighs the same. The result is by name.
pub fn by_weight(
    candidates: &[&Cluster],
    rules: &[StaticClusterWeight],
    replicas: i32,
    ties: TieBreak,
) -> Vec<TargetCluster> {
    let share = |cluster, votes| Share { name: affinity::name_of(cluster), votes, seats: 0 };
    let mut shares: Vec<_> = candidates
        .iter()
        .zip(weights(candidates, rules))
        .map(|(cluster, weight)| share(cluster, weight))
        .collect();
    shares.retain(|share| share.votes > 0);
    if shares.is_empty() {
        shares = candidates.iter().map(|cluster| share(cluster, 1)).collect();
    }
    targets(apportion(i64::from(replicas), shares, ties))
}

/// The weight that rules give each of some clusters: the largest of those that mean it, or 0.
pub(crate) fn weights(candidates: &[&Cluster], rules: &[StaticClusterWeight]) -> Vec<i64> {
    let rules: Vec<_> = rules.iter().map(|rule| (Compiled::new(&rule.target_cluster), rule.weight)).collect();
    let weight = |cluster: &&Cluster| {
        let meant = rules.iter().filter(|(affinity, _)| affinity.matches(cluster));
        meant.map(|(_, weight)| *weight).max().unwrap_or_default()
    };
    candidates.iter().map(weight).collect()
}

/// The clusters that keep something to run.
pub fn without_empty(targets: Vec<TargetCluster>) -> Vec<TargetCluster> {
    targets.into_iter().filter(|target| target.replicas != 0).collect()
}

/// Seats as targets.
fn targets<'a>(seats: impl IntoIterator<Item = (&'a str, i64)>) -> Vec<TargetCluster> {
    seats
        .into_iter()
        .map(|(name, seats)| TargetCluster::new(name, i32::try_from(seats).unwrap_or(i32::MAX)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::affinity::tests::cluster;

    fn placement(value: Value) -> Placement {
        serde_json::from_value(value).unwrap()
    }

    fn scheduling(value: Value) -> Placement {
        placement(json!({"replicaScheduling": value}))
    }

    #[test]
    fn strategies_are_read_from_placements() {
        use Strategy::{Aggregated, AvailableReplicas, Duplicated, StaticWeights};
        let table = [
            ("nothing said", placement(json!({})), Duplicated),
            ("duplicated", scheduling(json!({"replicaSchedulingType": "Duplicated"})), Duplicated),
            ("divided", scheduling(json!({"replicaSchedulingType": "Divided"})), StaticWeights(&[])),
            (
                "weighted",
                scheduling(
                    json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}),
                ),
                StaticWeights(&[]),
            ),
            (
                "dynamic",
                scheduling(
                    json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                                  "weightPreference": {"dynamicWeight": "AvailableReplicas"}}),
                ),
                AvailableReplicas,
            ),
            (
                "aggregated",
                scheduling(
                    json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}),
                ),
                Aggregated,
            ),
        ];
        for (message, placement, want) in &table {
            assert_eq!(Strategy::of(placement), *want, "{message}");
        }
    }

    #[test]
    fn weights_are_the_largest_of_the_rules() {
        let clusters: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|name| cluster(name, json!({"tier": "edge"}), json!({}), json!({})))
            .collect();
        let candidates: Vec<_> = clusters.iter().collect();
        let rules = |list: Value| serde_json::from_value::<Vec<StaticClusterWeight>>(list).unwrap();
        let named =
            |name: &str, weight: i64| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
        let table: [(&str, Vec<StaticClusterWeight>, i32, &[(&str, i32)]); 6] = [
            ("1:2 as recorded", rules(json!([named("a", 1), named("b", 2)])), 3, &[("a", 1), ("b", 2)]),
            ("1:2 scaled", rules(json!([named("a", 1), named("b", 2)])), 6, &[("a", 2), ("b", 4)]),
            ("a cluster of no rule", rules(json!([named("a", 1)])), 3, &[("a", 3)]),
            (
                "the largest",
                rules(
                    json!([named("a", 1), {"targetCluster": {"labelSelector": {"matchLabels": {"tier": "edge"}}}, "weight": 2}, named("b", 1)]),
                ),
                6,
                &[("a", 2), ("b", 2), ("c", 2)],
            ),
            ("no rules", vec![], 4, &[("a", 2), ("b", 1), ("c", 1)]),
            ("no weight", rules(json!([named("a", 0)])), 3, &[("a", 1), ("b", 1), ("c", 1)]),
        ];
        for (message, rules, replicas, want) in table {
            let got = by_weight(&candidates, &rules, replicas, TieBreak::Ascending);
            let got: Vec<_> = got.iter().map(|target| (target.name.as_str(), target.replicas)).collect();
            assert_eq!(got, want, "{message}");
        }
        let got = without_empty(by_weight(&candidates, &[], 1, TieBreak::Descending));
        assert_eq!(got, [TargetCluster::new("c", 1)]);
        assert_eq!(duplicate(&candidates[..1], 3), [TargetCluster::new("a", 3)]);
    }
}
