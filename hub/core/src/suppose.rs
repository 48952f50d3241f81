//! What would become of an object if clusters were lost, tainted or drained: the decisions that would be made then, made
//! now, on paper.
//!
//! ```text
//!   fleet ─▶ as it would be ─▶ evict::due ─▶ which clusters it is to leave ─▶ evict::replace ─▶ where it goes, what is
//!                                                                                            lacking, where it stays
//! ```

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use karmada_api::{
    cluster::Taint,
    policy::PurgeMode,
    work::{ResourceBindingSpec, TargetCluster},
};

use crate::{
    evict::{self, Cause, Due, Lack, Left, Settings},
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
        let anew = Member::new(Arc::new(cluster)).with_nodes(member.nodes().to_vec());
        Arc::new(anew.with_allowances(member.allowances.clone()))
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

/// What would become of an object that is to leave clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct Departed {
    /// Where it would be.
    pub moved: Moved,
    /// What it would leave.
    pub leaves: Vec<Leaving>,
    /// The clusters on which it would stay all the same, since no others can take all that is there, and why.
    pub kept: Vec<(String, String)>,
}

/// What would become of an object that is to leave clusters ([`leaving`]), as the hub goes about it: for a user's taint
/// it leaves in any case; lost clusters one after the other, each only if others can take all that is there.
pub fn depart(request: &Request<'_>, mut leaving: Vec<Leaving>) -> Departed {
    leaving.sort_by_key(|leaving| (leaving.after, leaving.cause));
    let (mut leaves, mut kept) = (Vec::<Leaving>::new(), Vec::new());
    for next in leaving {
        if next.cause != Cause::NoExecute {
            let with_next = leaves.iter().chain([&next]).map(|leaving| leaving.cluster.as_str()).collect();
            if let Moved::Short { why, .. } = leave(request, &with_next) {
                kept.push((next.cluster, why));
                continue;
            }
        }
        leaves.push(next);
    }
    let names = leaves.iter().map(|leaving| leaving.cluster.as_str()).collect();
    Departed { moved: leave(request, &names), leaves, kept }
}

/// Where an object would go if it left some clusters whatever becomes of it, by the function that places it.
pub fn leave(request: &Request<'_>, leaves: &BTreeSet<&str>) -> Moved {
    let clusters = request.spec.clusters.iter().map(|target| target.name.as_str());
    let gone: Vec<_> = clusters.filter(|name| leaves.contains(name)).collect();
    if gone.is_empty() {
        return Moved::Stays;
    }
    let schedule = |spec: &ResourceBindingSpec| {
        place::schedule(&Request { spec, ..*request }).map(|decision| decision.clusters)
    };
    let Lack { spec, error } = match evict::replace(request.spec, &gone, schedule) {
        Ok(clusters) => return Moved::To(clusters),
        Err(lack) => *lack,
    };
    let why = match error {
        // What is lacking is clusters: which of the others refuse, and why.
        None | Some(PlaceError::NoFit(_)) => why_no_other(&Request { spec: &spec, ..*request }, leaves),
        Some(error) => error.to_string(),
    };
    let why = format!("no other cluster can take it: {why}");
    Moved::Short { left: evict::missing(&spec), clusters: spec.clusters, why }
}

/// Why none of the clusters that an object does not leave takes more of it.
fn why_no_other(request: &Request<'_>, leaves: &BTreeSet<&str>) -> String {
    let refused = place::explain(request).verdicts.into_iter().filter(|verdict| {
        matches!(verdict.outcome, place::Outcome::Refused(_)) && !leaves.contains(verdict.cluster.as_str())
    });
    let refused: Vec<_> = refused.collect();
    if refused.is_empty() {
        "every other cluster that may have it has it".to_owned()
    } else {
        place::brief(&refused)
    }
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
        assert!(why.starts_with("no other cluster can take it: c: no, it is not named"), "{why}");
        let Moved::Short { clusters, why, .. } = go(&spec(only, 1, &[("a", 1)], none), &["a"]) else {
            panic!("there is nothing else")
        };
        assert!(
            clusters.is_empty() && why.starts_with("no other cluster can take it: b: no, it is not named"),
            "{why}"
        );
    }

    #[test]
    fn lost_clusters_are_left_only_for_others_that_take_everything() {
        let with_room = |name: &str, free: i64| {
            let mut cluster = serving(name);
            let status = cluster.status.get_or_insert_default();
            status.resource_summary = serde_json::from_value(json!({
                "allocatable": {"cpu": "100", "memory": "100Gi", "pods": 100},
                "allocated": {"cpu": "0", "memory": "0", "pods": 100 - free},
            }))
            .unwrap();
            cluster
        };
        let fleet =
            Fleet::of([("a", 98), ("b", 0), ("c", 1), ("d", 0)].map(|(name, free)| with_room(name, free)));
        let packed = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
                                                  "replicaDivisionPreference": "Aggregated"}});
        let only = json!({"clusterAffinity": {"clusterNames": ["a"]}});
        let two = json!({"clusterAffinity": {"clusterNames": ["a", "b", "c"]},
                         "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}]});
        let (lost, user) = (Taint::new(UNREACHABLE, NO_SCHEDULE), Taint::new("k", NO_EXECUTE));
        let pair: &[(&str, i32)] = &[("a", 2), ("b", 2)];
        let table: [(&str, &Value, &[(&str, i32)], &[(&str, &Taint)], &str); 9] = [
            ("room for one of two", &packed, pair, &[("a", &lost)], "stays; kept a"),
            ("room for one of one", &packed, &[("a", 1), ("b", 2)], &[("a", &lost)], "b:2 c:1; left a"),
            ("a user asks", &packed, pair, &[("a", &user)], "short b:2; left a"),
            ("pinned", &only, &[("a", 4)], &[("a", &lost)], "stays; kept a"),
            ("pinned, a user asks", &only, &[("a", 4)], &[("a", &user)], "short ; left a"),
            ("lost, and a user asks", &only, &[("a", 4)], &[("a", &lost), ("a", &user)], "short ; left a"),
            ("not there", &only, &[("a", 4)], &[("b", &lost)], "stays"),
            (
                "both lost, and room for one copy",
                &two,
                &[("a", 1), ("b", 1)],
                &[("a", &lost), ("b", &lost)],
                "b:2 c:2; left a; kept b",
            ),
            (
                "what a user takes is first, and what is lacking then keeps the lost",
                &two,
                &[("a", 1), ("b", 1)],
                &[("a", &lost), ("b", &user), ("c", &lost)],
                "short a:2; left b; kept a",
            ),
        ];
        for (message, placement, clusters, taints, want) in table {
            let mut changes = Changes::new();
            for (name, taint) in taints {
                changes.entry((*name).to_owned()).or_default().push((*taint).clone());
            }
            let replicas = clusters.iter().map(|(_, n)| n).sum();
            let spec = spec(placement.clone(), replicas, clusters, json!(null));
            let fleet = changed(&fleet, &changes);
            let leaving = leaving(&spec, false, &fleet, &Settings::default());
            let Departed { moved, leaves, kept } = depart(&Request::new(&spec, &fleet), leaving);
            let list = |clusters: &[TargetCluster]| {
                let each = clusters.iter().map(|target| format!("{}:{}", target.name, target.replicas));
                each.collect::<Vec<_>>().join(" ")
            };
            let mut got = match &moved {
                Moved::Stays => "stays".to_owned(),
                Moved::To(clusters) => list(clusters),
                Moved::Short { clusters, .. } => format!("short {}", list(clusters)),
            };
            leaves.iter().for_each(|leaving| got += &format!("; left {}", leaving.cluster));
            kept.iter().for_each(|(cluster, _)| got += &format!("; kept {cluster}"));
            assert_eq!(got, want, "{message}: {moved:?}");
            let why = |why: &str| why.starts_with("no other cluster can take it: ");
            assert!(kept.iter().all(|(_, text)| why(text)), "{message}: {kept:?}");
        }
    }
}
