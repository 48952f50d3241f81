//! What would become of an object if clusters were lost, tainted or drained: the decisions that would be made then, made
//! now, on paper.
//!
//! ```text
//!   fleet ─▶ as it would be ─▶ evict::due ─▶ which clusters it leaves ─▶ place::schedule ─▶ where it goes, what is lacking
//! ```

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use karmada_api::{
    cluster::Taint,
    policy::PurgeMode,
    work::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster},
};

use crate::{
    evict::{self, Cause, Due, Left, Settings},
    fleet::{Fleet, Member},
    place::{self, PlaceError, Request},
};

/// What would be otherwise: further taints on clusters, by their names.
pub type Changes = BTreeMap<String, Vec<Taint>>;

/// The fleet as it would be.
pub fn changed(fleet: &Fleet, changes: &Changes) -> Fleet {
    Fleet::new(fleet.members().iter().map(|member| {
        let Some(taints) = changes.get(member.name()) else { return member.clone() };
        let mut cluster = member.cluster().clone();
        for taint in taints {
            cluster.spec.taints.retain(|old| (&old.key, &old.effect) != (&taint.key, &taint.effect));
            cluster.spec.taints.push(taint.clone());
        }
        Arc::new(Member::new(Arc::new(cluster)).with_nodes(member.nodes().to_vec()))
    }))
}

/// A cluster that an object would leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The cluster.
    pub cluster: String,
    /// After which time, if nothing changes.
    pub after: Duration,
    /// Why.
    pub cause: Cause,
    /// What becomes of the copy there.
    pub purge_mode: PurgeMode,
}

/// Where an object would be.
#[derive(Clone, Debug, PartialEq)]
pub enum Moved {
    /// Where it is: it leaves no cluster.
    Stays,
    /// All of it would be there.
    To(Vec<TargetCluster>),
    /// Only so much of it would be there, and why.
    Short {
        /// What would be placed.
        clusters: Vec<TargetCluster>,
        /// What would be lacking; nothing known where not even that can be decided.
        left: Option<Left>,
        /// Why there is no more.
        why: String,
    },
}

/// The clusters that an object would leave for their taints, on a fleet as it would be. Failover counts as on for
/// every object: whether a hub has it on does not show in its API. `fenced`: it may run in one place only.
pub fn leaving(spec: &ResourceBindingSpec, fenced: bool, fleet: &Fleet, settings: &Settings) -> Vec<Leaving> {
    let settings = Settings { no_execute: true, cluster_failover: true, ..*settings };
    let tolerations = spec.placement.as_ref().map(|p| p.cluster_tolerations.as_slice()).unwrap_or_default();
    let failover = evict::asks_for_failover(spec);
    let leave = |target: &TargetCluster| {
        let taints = &fleet.get(&target.name)?.cluster().spec.taints;
        let due = |passed: Duration| evict::due(taints, tolerations, failover, &settings, |_| passed);
        let (after, cause) = match due(Duration::ZERO) {
            Due::Never => return None,
            Due::Now { cause, .. } => (Duration::ZERO, cause),
            Due::In(after) => match due(after) {
                Due::Now { cause, .. } => (after, cause),
                _ => return None,
            },
        };
        let purge_mode = evict::purge_mode(spec.failover.as_ref(), cause, fenced, &settings);
        Some(Leaving { cluster: target.name.clone(), after, cause, purge_mode })
    };
    spec.clusters.iter().filter_map(leave).collect()
}

/// Where an object would go if it left some clusters, by the function that places it.
pub fn leave(request: &Request<'_>, leaves: &BTreeSet<&str>) -> Moved {
    let present = &request.spec.clusters;
    let gone: Vec<_> = present.iter().filter(|target| leaves.contains(target.name.as_str())).collect();
    if gone.is_empty() {
        return Moved::Stays;
    }
    let before: Vec<_> = present.iter().map(|target| target.name.clone()).collect();
    let mut spec = request.spec.clone();
    spec.clusters.retain(|target| !leaves.contains(target.name.as_str()));
    spec.graceful_eviction_tasks.extend(gone.into_iter().map(|target| GracefulEvictionTask {
        from_cluster: target.name.clone(),
        clusters_before_failover: before.clone(),
        ..GracefulEvictionTask::default()
    }));
    let schedule = |spec: &ResourceBindingSpec| place::schedule(&Request { spec, ..*request });
    let error = match schedule(&spec) {
        Ok(decision) => {
            spec.clusters = decision.clusters;
            None
        }
        Err(error) => Some(error),
    };
    let left = evict::missing(&spec);
    if error.is_none() && left.is_none() {
        return Moved::To(spec.clusters);
    }
    let why = match error {
        // What is lacking is clusters: which of the others refuse, and why.
        None | Some(PlaceError::NoFit(_)) => why_no_other(&Request { spec: &spec, ..*request }, leaves),
        Some(error) => error.to_string(),
    };
    Moved::Short { clusters: spec.clusters, left, why }
}

/// Why none of the clusters that an object does not leave takes more of it.
fn why_no_other(request: &Request<'_>, leaves: &BTreeSet<&str>) -> String {
    let refused = place::explain(request).verdicts.into_iter().filter(|verdict| {
        matches!(verdict.outcome, place::Outcome::Refused(_)) && !leaves.contains(verdict.cluster.as_str())
    });
    let refused: Vec<_> = refused.collect();
    if refused.is_empty() {
        return "every other cluster that may have it has it".to_owned();
    }
    format!("no other cluster can take it: {}", place::brief(&refused))
}

#[cfg(test)]
mod tests {
    use karmada_api::{
        cluster::Cluster,
        consts::taint::{NO_EXECUTE, NO_SCHEDULE, UNREACHABLE},
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::affinity::tests::cluster;

    fn serving(name: &str) -> Cluster {
        let status = json!({"apiEnablements": [
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
        ]});
        cluster(name, json!({}), json!({}), status)
    }

    fn spec(
        placement: Value,
        replicas: i32,
        clusters: &[(&str, i32)],
        failover: Value,
    ) -> ResourceBindingSpec {
        let clusters: Vec<_> =
            clusters.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect();
        serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"},
            "replicas": replicas, "placement": placement, "clusters": clusters, "failover": failover,
        }))
        .unwrap()
    }

    #[test]
    fn who_leaves_and_when() {
        let fleet = Fleet::of([serving("a"), serving("b")]);
        let of = |taint: Taint| changed(&fleet, &Changes::from([("a".to_owned(), vec![taint])]));
        let lost = of(Taint::new(UNREACHABLE, NO_SCHEDULE));
        let user = of(Taint::new("k", NO_EXECUTE));
        let cordoned = of(Taint::new("k", NO_SCHEDULE));
        let patient = json!({"clusterTolerations": [
            {"key": UNREACHABLE, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": 60},
            {"key": "k", "operator": "Exists"},
        ]});
        let there: &[(&str, i32)] = &[("a", 1), ("b", 1)];
        let direct = json!({"cluster": {"purgeMode": "Directly"}});
        let table = [
            (
                "lost",
                spec(json!({}), 1, there, json!(null)),
                &lost,
                Some((300, Cause::Failover, PurgeMode::Gracefully)),
            ),
            (
                "lost, tolerated for a while",
                spec(patient.clone(), 1, there, json!(null)),
                &lost,
                Some((60, Cause::Failover, PurgeMode::Gracefully)),
            ),
            (
                "a user's taint",
                spec(json!({}), 1, there, direct),
                &user,
                Some((0, Cause::NoExecute, PurgeMode::Directly)),
            ),
            ("a user's taint, tolerated", spec(patient, 1, there, json!(null)), &user, None),
            ("a taint that drives nothing away", spec(json!({}), 1, there, json!(null)), &cordoned, None),
            ("not there", spec(json!({}), 1, &[("b", 1)], json!(null)), &lost, None),
        ];
        for (message, spec, fleet, want) in table {
            let got = leaving(&spec, false, fleet, &Settings::default());
            let want: Vec<_> = want
                .into_iter()
                .map(|(after, cause, purge_mode)| Leaving {
                    cluster: "a".into(),
                    after: Duration::from_secs(after),
                    cause,
                    purge_mode,
                })
                .collect();
            assert_eq!(got, want, "{message}");
        }
    }

    #[test]
    fn where_it_would_go() {
        let fleet = Fleet::of([serving("a"), serving("b"), serving("c")]);
        let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
                                                   "replicaDivisionPreference": "Weighted"}});
        let two =
            json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}]});
        let named = json!({"clusterAffinity": {"clusterNames": ["a", "b"]}});
        let only = json!({"clusterAffinity": {"clusterNames": ["a"]}});
        let target = |list: &[(&str, i32)]| -> Vec<_> {
            list.iter().map(|(name, n)| TargetCluster::new(*name, *n)).collect()
        };
        let go = |spec: &ResourceBindingSpec, from: &[&str]| {
            leave(&Request::new(spec, &fleet), &from.iter().copied().collect())
        };
        let none = json!(null);
        let even: &[(&str, i32)] = &[("a", 2), ("b", 2), ("c", 2)];
        assert_eq!(
            go(&spec(divided, 6, even, none.clone()), &["a"]),
            Moved::To(target(&[("b", 3), ("c", 3)])),
            "lost replicas move"
        );
        assert_eq!(
            go(&spec(two, 1, &[("a", 1), ("b", 1)], none.clone()), &["a"]),
            Moved::To(target(&[("b", 1), ("c", 1)])),
            "a copy has a spare"
        );
        let pair = spec(named, 1, &[("a", 1), ("b", 1)], none.clone());
        assert_eq!(go(&pair, &["c"]), Moved::Stays);
        let Moved::Short { clusters, left, why } = go(&pair, &["a"]) else { panic!("there is no spare") };
        assert_eq!((clusters, left), (target(&[("b", 1)]), Some(Left::Clusters(1))));
        assert!(why.contains("c: no, it is not named"), "{why}");
        let Moved::Short { clusters, why, .. } = go(&spec(only, 1, &[("a", 1)], none), &["a"]) else {
            panic!("there is nothing else")
        };
        assert!(
            clusters.is_empty() && why.starts_with("no other cluster can take it: b: no, it is not named"),
            "{why}"
        );
    }
}
