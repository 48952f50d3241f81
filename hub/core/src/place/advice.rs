//! What a person can do about a placement: one sentence for each thing that stands in the way.

use std::collections::BTreeMap;

use karmada_api::consts::taint;

use super::{Explained, Outcome, PlaceError, Reason};

/// How many clusters a sentence names.
const NAMED: usize = 5;

/// What would let an object onto the clusters that refuse it, most of them first; and what to do where nothing could be
/// decided at all. `kind` is the object's.
pub fn advice(explained: &Explained, kind: &str) -> Vec<String> {
    let mut lines = Vec::new();
    match &explained.result {
        Err(PlaceError::Unschedulable { .. }) => lines.push(
            "Ask for fewer replicas or smaller requests, make room on the clusters that can take it, or let more clusters \
             take it."
                .to_owned(),
        ),
        Err(PlaceError::Select(_)) => lines.push(
            "Lower minGroups in spec.placement.spreadConstraints, or let more clusters take it.".to_owned(),
        ),
        Err(PlaceError::Nothing(_) | PlaceError::NoFit(_)) if explained.verdicts.is_empty() => {
            lines.push("Join a cluster, or give the policy a placement.".to_owned());
        }
        _ => {}
    }
    let mut by_remedy = BTreeMap::<String, Vec<&str>>::new();
    for verdict in &explained.verdicts {
        if let Outcome::Refused(reason) = &verdict.outcome
            && let Some(remedy) = remedy(reason, kind)
        {
            by_remedy.entry(remedy).or_default().push(&verdict.cluster);
        }
    }
    let mut remedies: Vec<_> = by_remedy.into_iter().collect();
    remedies.sort_by_key(|(_, clusters)| std::cmp::Reverse(clusters.len()));
    lines.extend(remedies.into_iter().map(|(remedy, clusters)| {
        let first = clusters.first().copied().unwrap_or_default();
        format!("For {}: {}", names(&clusters), remedy.replace("CLUSTER", first))
    }));
    lines
}

/// What lets an object onto a cluster that refuses it for a reason.
fn remedy(reason: &Reason, kind: &str) -> Option<String> {
    Some(match reason {
        Reason::Affinity => {
            "let spec.placement.clusterAffinity mean it, or give the Cluster the names, labels or fields that are asked for."
                .to_owned()
        }
        Reason::Taint(text) if is_of(text, taint::UNSCHEDULABLE) => {
            "it is cordoned; `karmada-hub uncordon CLUSTER` ends that.".to_owned()
        }
        Reason::Taint(text) if is_of(text, taint::UNREACHABLE) => {
            "its agent is not heard of; see that it runs and reaches the hub.".to_owned()
        }
        Reason::Taint(text) if is_of(text, taint::NOT_READY) => {
            "its agent says that the cluster is not healthy, or has not said anything yet; see to the cluster.".to_owned()
        }
        Reason::Taint(text) => format!(
            "tolerate {text} in spec.placement.clusterTolerations, or take it off: `karmada-hub taint CLUSTER {}-`.",
            without_value(text)
        ),
        Reason::Api => format!("install what serves {kind} there; its agent tells of new APIs by itself."),
        Reason::NoField(field) => {
            format!("set its {field}, or take it out of spec.placement.spreadConstraints.")
        }
        Reason::GroupElsewhere | Reason::GroupThere => {
            "move the other objects of its group, or change spec.placement.workloadAffinity.".to_owned()
        }
        Reason::Evicting => {
            "it is being moved away from there; it may come back when its gracefulEvictionTask is done.".to_owned()
        }
        Reason::Left => {
            "it was moved away from there; a WorkloadRebalancer (`karmada-hub failback`) lets it go back.".to_owned()
        }
        Reason::Deleting => return None,
    })
}

/// Whether a taint as it is displayed has a key.
fn is_of(taint: &str, key: &str) -> bool {
    taint.strip_prefix(key).is_some_and(|rest| rest.starts_with([':', '=']) || rest.is_empty())
}

/// `key=value:effect` as `key:effect`.
fn without_value(taint: &str) -> String {
    match (taint.split_once('='), taint.rsplit_once(':')) {
        (Some((key, _)), Some((_, effect))) => format!("{key}:{effect}"),
        _ => taint.to_owned(),
    }
}

fn names(clusters: &[&str]) -> String {
    match clusters.len().checked_sub(NAMED).filter(|more| *more > 0) {
        None => clusters.join(", "),
        Some(more) => format!("{} and {more} more", clusters[..NAMED].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{NoFit, Verdict};

    fn refused(cluster: &str, reason: Reason) -> Verdict {
        Verdict {
            cluster: cluster.into(),
            outcome: Outcome::Refused(reason),
            rule: String::new(),
            observed: String::new(),
        }
    }

    #[test]
    fn every_reason_has_its_remedy() {
        let taint = |text: &str| Reason::Taint(text.into());
        let table = [
            (Reason::Affinity, "For a: let spec.placement.clusterAffinity mean it"),
            (taint("cluster.karmada.io/unschedulable:NoSchedule"), "`karmada-hub uncordon a`"),
            (taint("cluster.karmada.io/unreachable:NoSchedule"), "its agent is not heard of"),
            (taint("cluster.karmada.io/not-ready:NoSchedule"), "not healthy"),
            (
                taint("gpu=a100:NoExecute"),
                "tolerate gpu=a100:NoExecute in spec.placement.clusterTolerations, or take it off: `karmada-hub taint a gpu:NoExecute-`",
            ),
            (Reason::Api, "install what serves CloneSet there"),
            (Reason::NoField("region".into()), "set its region"),
            (Reason::GroupThere, "workloadAffinity"),
            (Reason::Evicting, "gracefulEvictionTask"),
            (Reason::Left, "WorkloadRebalancer"),
        ];
        for (reason, want) in table {
            let nowhere = NoFit::default();
            let explained = Explained {
                result: Err(PlaceError::NoFit(nowhere)),
                groups: Vec::new(),
                verdicts: vec![refused("a", reason.clone()), refused("b", Reason::Deleting)],
            };
            let lines = advice(&explained, "CloneSet");
            assert_eq!(lines.len(), 1, "{reason:?}: {lines:?}");
            assert!(lines[0].contains(want), "{reason:?}: {lines:?}");
        }
    }

    #[test]
    fn the_most_common_comes_first_and_names_are_few() {
        let mut verdicts: Vec<_> = (0..7).map(|i| refused(&format!("c{i}"), Reason::Affinity)).collect();
        verdicts.push(refused("x", Reason::Api));
        let explained =
            Explained { result: Err(PlaceError::Select("few".into())), groups: Vec::new(), verdicts };
        let lines = advice(&explained, "Pod");
        assert!(lines[0].starts_with("Lower minGroups"), "{lines:?}");
        assert!(lines[1].starts_with("For c0, c1, c2, c3, c4 and 2 more: let"), "{lines:?}");
        assert!(lines[2].starts_with("For x: install"), "{lines:?}");
    }
}
