//! Is the member's API well?

use karmada_api::{
    conditions::{Condition, ConditionStatus},
    consts::{condition, reason},
};
use karmada_client::Rest;
use karmada_meta::time::Time;
use std::time::Duration;

/// How long a look may take; shorter than the interval between looks.
pub const LOOK: Duration = Duration::from_secs(7);

/// What a look at the API came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// It answers, but not with "ok".
    NotReady,
    NotReachable,
}

impl Health {
    /// Asks `/readyz`, or `/healthz` on servers that do not know it.
    pub async fn ask(member: &Rest) -> Self {
        let member = member.with_deadline(LOOK).small();
        let mut answer = member.get_text("/readyz").await;
        if answer.as_ref().is_err_and(|error| error.code() == Some(404)) {
            answer = member.get_text("/healthz").await;
        }
        match answer {
            Ok(_) => Self::Ready,
            Err(error) => {
                tracing::warn!(%error, "the member is not well");
                if error.is_unreachable() { Self::NotReachable } else { Self::NotReady }
            }
        }
    }

    /// As a condition.
    pub fn condition(self, now: Time) -> Condition {
        let (holds, reason, message) = match self {
            Self::Ready => (true, reason::CLUSTER_READY, reason::CLUSTER_READY_MESSAGE),
            Self::NotReady => (false, reason::CLUSTER_NOT_READY, reason::CLUSTER_NOT_READY_MESSAGE),
            Self::NotReachable => {
                (false, reason::CLUSTER_NOT_REACHABLE, reason::CLUSTER_NOT_REACHABLE_MESSAGE)
            }
        };
        Condition::new(condition::READY, holds, reason, message, now)
    }
}

/// Keeps Ready from flapping: a change is told only after it has held for a while. What is seen first is told at once,
/// and so is what was seen all along while the hub came to think otherwise.
#[derive(Debug)]
pub struct Threshold {
    success: Duration,
    failure: Duration,
    /// What was seen last, and when it had changed to that; never, if it was so at the first look.
    seen: Option<(ConditionStatus, Option<Duration>)>,
}

impl Threshold {
    pub fn new(success: Duration, failure: Duration) -> Self {
        Self { success, failure, seen: None }
    }

    /// What to tell, given what the hub has and what was seen now. Asking again changes nothing: what the hub did not
    /// take is told anew.
    pub fn adjust(&mut self, on_hub: Option<&Condition>, seen: Condition, now: Duration) -> Condition {
        let changed = match self.seen {
            None => None,
            Some((status, changed)) if status == seen.status => changed,
            Some(_) => Some(now),
        };
        self.seen = Some((seen.status, changed));
        let threshold = if seen.status == ConditionStatus::True { self.success } else { self.failure };
        let young = changed.is_some_and(|changed| now.saturating_sub(changed) < threshold);
        match on_hub {
            Some(current) if young && current.status != seen.status => current.clone(),
            _ => seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: ConditionStatus) -> Condition {
        Condition::new("Ready", status, "ClusterReady", "", Time::from_system(std::time::UNIX_EPOCH))
    }

    #[test]
    fn a_change_has_to_last_but_the_first_look_does_not() {
        use ConditionStatus::{False, True, Unknown};
        // (at, on the hub, seen, told)
        let rows = [
            (0, None, False, False),
            (10, Some(False), True, False),
            (30, Some(False), True, False),
            (40, Some(False), True, True),
            (50, Some(True), False, True),
            (60, Some(True), True, True),
            (70, Some(True), False, True),
            (99, Some(True), False, True),
            (100, Some(True), False, False),
            (200, Some(False), True, False),
            (260, Some(False), True, True),
            // The hub lost sight of us while all was well here: told at once.
            (400, Some(Unknown), True, True),
        ];
        judged(&rows);
        // The hub did not take what the first look brought, and lost sight of a young agent.
        judged(&[
            (0, Some(Unknown), True, True),
            (0, Some(Unknown), True, True),
            (2, Some(True), True, True),
            (20, Some(Unknown), True, True),
        ]);
    }

    fn judged(rows: &[(u64, Option<ConditionStatus>, ConditionStatus, ConditionStatus)]) {
        let second = Duration::from_secs;
        let mut threshold = Threshold::new(second(30), second(30));
        for &(at, on_hub, seen, told) in rows {
            let on_hub = on_hub.map(ready);
            let got = threshold.adjust(on_hub.as_ref(), ready(seen), second(at));
            assert_eq!(got.status, told, "at {at} s");
        }
    }
}
