//! Whether, and when, an object has to leave a cluster for its taints.

use std::time::Duration;

use karmada_api::{
    cluster::{Cluster, Taint},
    consts::taint::{NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE},
    policy::{ClusterTaintPolicySpec, Toleration},
};
use karmada_meta::time::Time;

use super::{Cause, Settings};
use crate::{
    health::Ready,
    taint_policy,
    taints::{self, Tolerated},
};

/// When an object has to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Never, as things are.
    Never,
    /// After this time, if nothing changes.
    In(Duration),
    /// Now.
    Now {
        /// Why.
        cause: Cause,
        /// The taint, on one line.
        taint: String,
    },
}

/// The cause for which a taint may drive an object away; `None` for one that only keeps new ones away. `failover`: the
/// object's policy has `failover.cluster`. The taints that the hub itself puts on for a condition count as NoExecute
/// where failover was asked for.
fn cause_of(taint: &Taint, failover: bool, settings: &Settings) -> Option<Cause> {
    let lost = [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
    match taint.effect.as_str() {
        NO_EXECUTE if settings.no_execute || failover => Some(Cause::NoExecute),
        NO_SCHEDULE if lost && (settings.cluster_failover || failover) => Some(Cause::Failover),
        _ => None,
    }
}

/// Whether taints may drive anything away, so that it is worth looking at the objects there.
pub fn waits_for(taints: &[Taint]) -> bool {
    let every = Settings { no_execute: true, cluster_failover: true, ..Settings::default() };
    taints.iter().any(|taint| cause_of(taint, true, &every).is_some())
}

/// The taints of a cluster that stand for what its conditions say now. A condition changes a moment before the taints
/// that follow from it, and what was lost with a cluster that is back is not to leave it in that moment.
pub fn standing<'a>(
    cluster: &Cluster,
    ready: Ready,
    policies: impl IntoIterator<Item = &'a ClusterTaintPolicySpec>,
    now: Time,
) -> Vec<Taint> {
    let there = &cluster.spec.taints;
    let by_condition = taints::for_condition(there, ready, now);
    let by_policy = taint_policy::taints(cluster, policies, now);
    let stays = |wanted: &Option<Vec<Taint>>, taint: &Taint| {
        wanted.as_ref().is_none_or(|wanted| wanted.contains(taint))
    };
    there.iter().filter(|taint| stays(&by_condition, taint) && stays(&by_policy, taint)).cloned().collect()
}

/// Whether an object has to leave a cluster. `failover`: its policy has `failover.cluster`; `lasted`: how long a taint
/// has been there.
///
/// As in Kubernetes a taint that no toleration matches drives away at once, one that is tolerated for some seconds when
/// the fewest of them are over, one that is tolerated without a limit never. A lost cluster that no toleration speaks
/// of is given `settings.failover_after`.
pub fn due(
    taints: &[Taint],
    tolerations: &[Toleration],
    failover: bool,
    settings: &Settings,
    mut lasted: impl FnMut(&Taint) -> Duration,
) -> Due {
    let mut due = Due::Never;
    for taint in taints {
        let Some(cause) = cause_of(taint, failover, settings) else { continue };
        let as_executed = Taint { effect: NO_EXECUTE.to_owned(), ..taint.clone() };
        let patience = match taints::tolerated(&as_executed, tolerations) {
            Tolerated::No if cause == Cause::Failover => settings.failover_after,
            Tolerated::No => Duration::ZERO,
            Tolerated::For(patience) => patience,
            Tolerated::Always => continue,
        };
        let left = patience.saturating_sub(if patience.is_zero() { Duration::ZERO } else { lasted(taint) });
        due = match due {
            // What a user has said comes before what the hub concludes.
            Due::Now { cause: found, taint } if found <= cause || !left.is_zero() => {
                Due::Now { cause: found, taint }
            }
            _ if left.is_zero() => Due::Now { cause, taint: taints::display(taint) },
            Due::In(other) => Due::In(other.min(left)),
            _ => Due::In(left),
        };
    }
    due
}

#[cfg(test)]
mod tests {
    use karmada_api::conditions::Condition;
    use serde_json::{Value, json};

    use super::*;

    fn taint(key: &str, effect: &str) -> Taint {
        Taint::new(key, effect)
    }

    #[test]
    fn what_has_no_cause_any_more_drives_nothing_away() {
        let at: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let lost: ClusterTaintPolicySpec = serde_json::from_value(json!({
            "taints": [{"key": "lost", "effect": NO_EXECUTE}],
            "addOnConditions": [{"conditionType": "Ready", "operator": "In", "statusValues": ["Unknown"]}],
            "removeOnConditions": [{"conditionType": "Ready", "operator": "In", "statusValues": ["True"]}],
        }))
        .unwrap();
        let there = [(UNREACHABLE, NO_SCHEDULE), ("lost", NO_EXECUTE), ("mine", NO_EXECUTE)];
        let table: [(&str, &str, bool, &[&str]); 4] = [
            ("lost", "Unknown", true, &[UNREACHABLE, "lost", "mine"]),
            ("back", "True", true, &["mine"]),
            ("back, and not ready", "False", true, &["lost", "mine"]),
            ("back, the policy is gone", "True", false, &["lost", "mine"]),
        ];
        for (message, status, policy, want) in table {
            let mut cluster = Cluster::new("m", Default::default());
            cluster.spec.taints = there.iter().map(|(key, effect)| taint(key, effect)).collect();
            let ready: Condition =
                serde_json::from_value(json!({"type": "Ready", "status": status, "reason": "R",
                "message": "", "lastTransitionTime": at}))
                .unwrap();
            cluster.status = Some(Default::default());
            cluster.status.as_mut().unwrap().conditions = vec![ready];
            let policies = policy.then_some(&lost);
            let got = standing(&cluster, Ready::from_status(Some(status)), policies, at);
            let got: Vec<_> = got.iter().map(|taint| taint.key.as_str()).collect();
            assert_eq!(got, want, "{message}");
        }
    }

    #[test]
    fn taints_and_tolerations_decide() {
        let user = taint("maintenance", NO_EXECUTE);
        let away = taint(UNREACHABLE, NO_SCHEDULE);
        let not_ready = taint(NOT_READY, NO_SCHEDULE);
        let exists = |seconds: Value| json!({"key": "maintenance", "operator": "Exists", "tolerationSeconds": seconds});
        let lost = |seconds: Value| json!({"key": UNREACHABLE, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": seconds});
        let on = Settings::default();
        let off = Settings { no_execute: false, ..on };
        let hub = Settings { cluster_failover: true, ..on };
        let now = |cause| Some((cause, 0));
        let after = |seconds| Some((Cause::Application, seconds));
        // taints, tolerations, policy's failover, settings, lasted, want: the cause or the seconds that are left
        let table = [
            ("no taint", vec![], vec![], true, hub, 900, None),
            ("a user's taint", vec![user.clone()], vec![], false, on, 0, now(Cause::NoExecute)),
            ("turned off", vec![user.clone()], vec![], false, off, 0, None),
            (
                "turned off but for this policy",
                vec![user.clone()],
                vec![],
                true,
                off,
                0,
                now(Cause::NoExecute),
            ),
            ("tolerated for ever", vec![user.clone()], vec![exists(json!(null))], false, on, 900, None),
            ("tolerated for a while", vec![user.clone()], vec![exists(json!(60))], false, on, 20, after(40)),
            (
                "and then no more",
                vec![user.clone()],
                vec![exists(json!(60))],
                false,
                on,
                60,
                now(Cause::NoExecute),
            ),
            ("not at all", vec![user.clone()], vec![exists(json!(-1))], false, on, 0, now(Cause::NoExecute)),
            (
                "the fewest seconds",
                vec![user.clone()],
                vec![exists(json!(60)), exists(json!(30))],
                false,
                on,
                10,
                after(20),
            ),
            (
                "a limit counts beside none",
                vec![user.clone()],
                vec![exists(json!(null)), exists(json!(30))],
                false,
                on,
                10,
                after(20),
            ),
            (
                "one of two is not tolerated",
                vec![user.clone(), taint("other", NO_EXECUTE)],
                vec![exists(json!(null))],
                false,
                on,
                0,
                now(Cause::NoExecute),
            ),
            ("lost, and nobody asked", vec![away.clone()], vec![], false, on, 900, None),
            ("lost, the policy asks", vec![away.clone()], vec![], true, on, 100, after(200)),
            ("lost for long", vec![away.clone()], vec![], true, on, 300, now(Cause::Failover)),
            ("the hub asks", vec![not_ready.clone()], vec![], false, hub, 300, now(Cause::Failover)),
            ("tolerated longer", vec![away.clone()], vec![lost(json!(1000))], true, on, 400, after(600)),
            ("tolerated for ever", vec![away.clone()], vec![lost(json!(null))], true, on, 4000, None),
            (
                "a toleration of NoSchedule says nothing",
                vec![away.clone()],
                vec![json!({"key": UNREACHABLE, "operator": "Exists", "effect": NO_SCHEDULE})],
                true,
                on,
                300,
                now(Cause::Failover),
            ),
            ("other NoSchedule taints", vec![taint("cordoned", NO_SCHEDULE)], vec![], true, hub, 900, None),
            ("the user's word first", vec![away, user], vec![], true, hub, 900, now(Cause::NoExecute)),
        ];
        for (message, taints, tolerations, failover, settings, lasted, want) in table {
            let tolerations: Vec<_> =
                tolerations.into_iter().map(|t| serde_json::from_value(t).unwrap()).collect();
            let got = due(&taints, &tolerations, failover, &settings, |_| Duration::from_secs(lasted));
            let got = match got {
                Due::Never => None,
                Due::In(left) => after(left.as_secs()),
                Due::Now { cause, .. } => now(cause),
            };
            assert_eq!(got, want, "{message}");
        }
        assert!(waits_for(&[not_ready]) && !waits_for(&[taint("cordoned", NO_SCHEDULE)]));
    }
}
