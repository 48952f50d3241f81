//! A Work's status from what became of its manifests: conditions and messages as Karmada writes them.

use karmada_api::{
    conditions::{self, Condition},
    consts::{condition, reason},
    work::{ManifestStatus, ResourceHealth, ResourceIdentifier, WorkStatus},
};
use karmada_meta::time::Time;
use serde_json::Value;

/// What is seen of one object on the member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) status: Option<Value>,
    pub(crate) health: ResourceHealth,
}

/// What became of one manifest.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) identifier: ResourceIdentifier,
    /// Why it is not as it should be.
    pub(crate) error: Option<String>,
    /// The object, if it is there and ours.
    pub(crate) seen: Option<Seen>,
}

/// What became of a Work.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) suspended: bool,
    pub(crate) manifests: Vec<Outcome>,
    /// Objects that left the Work and are still on the member: they stay recorded until they are gone.
    pub(crate) leftovers: Vec<Outcome>,
}

impl Outcomes {
    /// The errors of all manifests as one text, as Go's aggregates print.
    pub(crate) fn error(&self) -> Option<String> {
        let mut errors: Vec<&str> = Vec::new();
        for error in self.manifests.iter().chain(&self.leftovers).filter_map(|m| m.error.as_deref()) {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match errors.as_slice() {
            [] => None,
            [one] => Some((*one).to_owned()),
            many => Some(format!("[{}]", many.join(", "))),
        }
    }

    /// The Work's status, given the one it had.
    pub(crate) fn status(self, old: &WorkStatus, now: Time) -> WorkStatus {
        let mut conditions = old.conditions.clone();
        let (holds, why, message) = if self.suspended {
            (false, reason::SUSPEND_DISPATCHING, reason::SUSPEND_DISPATCHING_MESSAGE)
        } else {
            (true, reason::DISPATCHING, reason::DISPATCHING_MESSAGE)
        };
        conditions::set(
            &mut conditions,
            Condition::new(condition::DISPATCHING, holds, why, message, now),
            now,
        );
        if !self.suspended {
            let total = self.manifests.len();
            let applied = match self.error() {
                None => {
                    let message = reason::APPLIED_SUCCESSFUL_MESSAGE;
                    Condition::new(condition::APPLIED, true, reason::APPLIED_SUCCESSFUL, message, now)
                }
                Some(error) => {
                    let good = self.manifests.iter().filter(|m| m.error.is_none()).count();
                    let message = cut(format!("Failed to apply all manifests ({good}/{total}): {error}"));
                    Condition::new(condition::APPLIED, false, reason::APPLIED_FAILED, message, now)
                }
            };
            conditions::set(&mut conditions, applied, now);
        }
        let seen = self.manifests.into_iter().chain(self.leftovers).filter_map(|outcome| {
            let Outcome { identifier, seen, .. } = outcome;
            seen.map(|seen| ManifestStatus { identifier, status: seen.status, health: Some(seen.health) })
        });
        WorkStatus { conditions, manifest_statuses: seen.collect() }
    }
}

/// The API allows 32768 characters in a condition's message.
fn cut(mut message: String) -> String {
    const LIMIT: usize = 32 << 10;
    if message.len() > LIMIT {
        let end = (0..=LIMIT - 3).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    message
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(second: u64) -> Time {
        Time::from_system(UNIX_EPOCH + Duration::from_secs(second))
    }

    fn outcome(ordinal: i64, error: Option<&str>, seen: bool) -> Outcome {
        let identifier =
            ResourceIdentifier { ordinal, kind: "ConfigMap".into(), ..ResourceIdentifier::default() };
        let seen = seen.then(|| Seen { status: None, health: ResourceHealth::Healthy });
        Outcome { identifier, error: error.map(str::to_owned), seen }
    }

    fn summary(status: &WorkStatus) -> Vec<(String, String, String)> {
        let text = |c: &Condition| (c.type_.clone(), c.status.to_string(), c.message.clone());
        status.conditions.iter().map(text).collect()
    }

    #[test]
    fn messages_are_karmadas() {
        let good = Outcomes { manifests: vec![outcome(0, None, true)], ..Outcomes::default() };
        let status = good.status(&WorkStatus::default(), at(1));
        let dispatching =
            ("Dispatching".into(), "True".into(), "Work is being dispatched to member clusters.".to_owned());
        let applied = ("Applied".into(), "True".into(), "Manifest has been successfully applied".to_owned());
        assert_eq!(summary(&status), [dispatching, applied]);
        assert_eq!(status.manifest_statuses.len(), 1);

        let bad = Outcomes {
            manifests: vec![
                outcome(0, Some("no"), false),
                outcome(1, None, true),
                outcome(2, Some("never"), false),
            ],
            ..Outcomes::default()
        };
        let status = bad.status(&status, at(2));
        assert_eq!(status.conditions[1].message, "Failed to apply all manifests (1/3): [no, never]");
        assert_eq!(status.conditions[1].last_transition_time, at(2));
        assert_eq!(status.conditions[0].last_transition_time, at(1));
        assert_eq!(status.manifest_statuses[0].identifier.ordinal, 1);

        let suspended =
            Outcomes { suspended: true, manifests: vec![outcome(0, None, true)], ..Outcomes::default() };
        let status = suspended.status(&status, at(3));
        assert_eq!(status.conditions[0].reason, "SuspendDispatching");
        assert_eq!(
            status.conditions[1].reason, "AppliedFailed",
            "suspended: what was last applied stays as it was"
        );
    }

    #[test]
    fn one_error_of_many_manifests_is_told_once() {
        let outcomes = Outcomes {
            manifests: (0..50).map(|i| outcome(i, Some("the member is not reachable"), false)).collect(),
            ..Outcomes::default()
        };
        assert_eq!(outcomes.error().as_deref(), Some("the member is not reachable"));
    }
}
