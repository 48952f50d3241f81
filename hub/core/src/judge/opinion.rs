//! What people are to see of the judgement on one cluster: conditions that are there only while there is something to
//! say.
//!
//! | condition | reason | says |
//! |---|---|---|
//! | `LinkGrace` | `GraceAnnotated`, `GraceLearnt`, `GraceInvalid` | its grace is not the hub's |
//! | | `GraceRaised`, `LeaseTooLong` | settings of the hub and of its agent do not go together |
//! | `LinkScheduled` | `LinkWindows` | its link is there at certain times alone; at others its silence is no loss |
//! | | `LinkWindowsInvalid` | what is said of these times cannot be read |
//! | `LinkFlapping` | `HeldOut` | it comes and goes, and gets nothing new for a while |
//! | `StatusStale` | `NotReported` | since `lastTransitionTime` nothing has been heard; all figures are older |
//! | `EvictionsHeld` | `MassOutage` | it is lost with many others, and nothing is moved away |
//!
//! Messages name times, not ages, so that nothing is written while nothing changes.
//!
//! When a status is stale, and since when (seconds ago; a hub that has just started has not heard of anybody). It follows
//! the cluster's grace (`--cluster-monitor-grace-period`, or its own); the metric is `karmada_hub_lease_age_seconds`.
//!
#![doc = include_str!("stale.md")]

use karmada_api::{
    conditions::{self, Condition, ConditionStatus},
    consts::{condition, extension},
};
use karmada_meta::time::Time;

use super::{brake::Cause, grace::Grace};

/// The judgement on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opinion {
    /// How long it may be silent.
    pub grace: Option<Grace>,
    /// At which times its link is there, if not always; or why what is said of them cannot be read.
    pub schedule: Option<Result<String, String>>,
    /// Until when it is held out of new scheduling.
    pub held_until: Option<Time>,
    /// Losses that count at present.
    pub losses: usize,
    /// What is known of it is from a time when it still reported.
    pub stale: bool,
    /// When it was last heard of, if this hub knows.
    pub heard: Option<Time>,
    /// Nothing is evicted from it because of a mass outage.
    pub evictions_held: bool,
}

/// The conditions that are ours to set and to remove.
const OURS: [&str; 5] = [
    extension::LINK_GRACE,
    extension::LINK_SCHEDULED,
    extension::LINK_FLAPPING,
    extension::STATUS_STALE,
    extension::EVICTIONS_HELD,
];

impl Opinion {
    /// Makes a Cluster's conditions say it. Answers whether anything changed.
    pub fn show(&self, list: &mut Vec<Condition>, now: Time) -> bool {
        let wanted = self.conditions(list, now);
        let mut changed = false;
        for type_ in OURS {
            if !wanted.iter().any(|condition| condition.type_ == type_) {
                changed |= conditions::remove(list, type_);
            }
        }
        for new in wanted {
            let at = new.last_transition_time;
            changed |= conditions::set(list, new, at);
        }
        changed
    }

    fn conditions(&self, list: &[Condition], now: Time) -> Vec<Condition> {
        let holds = |type_: &str, reason: &'static str, message: String, at: Time| {
            Condition::new(type_, ConditionStatus::True, reason, message, at)
        };
        let mut wanted = Vec::new();
        if let Some(grace) = &self.grace
            && let Some(reason) = grace.reason()
        {
            wanted.push(holds(extension::LINK_GRACE, reason, grace.to_string(), now));
        }
        match &self.schedule {
            Some(Ok(windows)) => {
                let message = format!("its link is there {windows}; at other times its silence is no loss");
                wanted.push(holds(extension::LINK_SCHEDULED, "LinkWindows", message, now));
            }
            Some(Err(why)) => {
                let annotation = extension::LINK_WINDOWS;
                let message = format!("the annotation {annotation} counts for nothing: {why}");
                wanted.push(holds(extension::LINK_SCHEDULED, "LinkWindowsInvalid", message, now));
            }
            None => {}
        }
        if let Some(until) = self.held_until {
            let message =
                format!("the cluster was lost too often of late; nothing new is placed on it until {until}");
            wanted.push(holds(extension::LINK_FLAPPING, "HeldOut", message, now));
        }
        if self.stale {
            // Said once: a later hub does not know better.
            let stale = conditions::find(list, extension::STATUS_STALE).cloned().unwrap_or_else(|| {
                let ready = conditions::find(list, condition::READY).map(|ready| ready.last_transition_time);
                let since = self.heard.or(ready).unwrap_or(now);
                let message = format!(
                    "no sign of life since {since}; what is reported of the cluster is from before that"
                );
                holds(extension::STATUS_STALE, "NotReported", message, since)
            });
            wanted.push(stale);
        }
        if self.evictions_held {
            let message = "many clusters vanished with this one; nothing is moved away until some are back";
            wanted.push(holds(
                extension::EVICTIONS_HELD,
                Cause::MassOutage.reason(),
                message.to_owned(),
                now,
            ));
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::judge::{grace::Source, table};

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn nothing() -> Opinion {
        Opinion::default()
    }

    #[test]
    fn the_table_holds() {
        let now = time("2026-01-01T01:00:00Z");
        let ago = |seconds: &str| {
            let seconds = seconds.parse::<u64>().ok()?;
            Some(Time::from_system(
                std::time::SystemTime::from(now.timestamp()) - Duration::from_secs(seconds),
            ))
        };
        for [ready, since, heard, before, want] in table::rows(include_str!("stale.md")) {
            let status: ConditionStatus = serde_json::from_value(serde_json::json!(ready)).unwrap();
            let mut list =
                vec![Condition::new(condition::READY, status, "ClusterReady", "", ago(since).unwrap())];
            list.extend(
                ago(before).map(|at| Condition::new(extension::STATUS_STALE, true, "NotReported", "", at)),
            );
            let opinion = Opinion { stale: ready == "Unknown", heard: ago(heard), ..nothing() };
            opinion.show(&mut list, now);
            let got = conditions::find(&list, extension::STATUS_STALE).map(|c| c.last_transition_time);
            assert_eq!(got, ago(want), "{ready} {since} {heard} {before}");
        }
    }

    #[test]
    fn conditions_come_and_go_and_others_stay() {
        let now = time("2026-01-01T00:01:00Z");
        let ready =
            Condition::new(condition::READY, ConditionStatus::Unknown, "ClusterStatusUnknown", "", now);
        let mut list = vec![ready.clone()];
        assert!(!nothing().show(&mut list, now));
        let all = Opinion {
            grace: Some(Grace {
                length: Duration::from_secs(130),
                source: Source::Learnt(Duration::from_secs(65)),
                conflict: None,
            }),
            held_until: Some(time("2026-01-01T00:06:00Z")),
            stale: true,
            heard: Some(time("2026-01-01T00:00:15Z")),
            evictions_held: true,
            ..nothing()
        };
        assert!(all.show(&mut list, now));
        assert!(!all.show(&mut list, time("2026-01-01T00:02:00Z")), "nothing changes while nothing changes");
        let stale = conditions::find(&list, extension::STATUS_STALE).unwrap();
        assert_eq!(stale.last_transition_time, time("2026-01-01T00:00:15Z"));
        let reasons: Vec<_> = list.iter().skip(1).map(|c| c.reason.as_str()).collect();
        assert_eq!(reasons, ["GraceLearnt", "HeldOut", "NotReported", "MassOutage"]);
        assert!(nothing().show(&mut list, now));
        assert_eq!(list, [ready]);
    }
}
