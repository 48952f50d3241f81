//! Is the member's API well?

use karmada_api::{
    conditions::{Condition, ConditionStatus},
    consts::{condition, reason},
};
use karmada_client::Rest;
use karmada_meta::time::Time;
use std::time::Duration;

/// How long a look may take; shorter than the interval between looks.
const LOOK: Duration = Duration::from_secs(7);

/// What a look at the API came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Ready,
    /// It answers, but not with "ok".
    NotReady,
    NotReachable,
}

impl Health {
    /// Asks `/readyz`, or `/healthz` on servers that do not know it.
    pub(crate) async fn ask(member: &Rest) -> Self {
        let member = member.with_deadline(LOOK);
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
    pub(crate) fn condition(self, now: Time) -> Condition {
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
pub(crate) struct Threshold {
    success: Duration,
    failure: Duration,
    /// What was seen last, and since when.
    seen: Option<(ConditionStatus, Duration)>,
}

impl Threshold {
    pub(crate) fn new(success: Duration, failure: Duration) -> Self {
        Self { success, failure, seen: None }
    }

    /// What to tell, given what the hub has and what was seen now.
    pub(crate) fn adjust(&mut self, on_hub: Option<&Condition>, seen: Condition, now: Duration) -> Condition {
        let since = match self.seen {
            None => {
                self.seen = Some((seen.status, now));
                return seen;
            }
            Some((status, since)) if status == seen.status => since,
            Some(_) => {
                self.seen = Some((seen.status, now));
                now
            }
        };
        let threshold = if seen.status == ConditionStatus::True { self.success } else { self.failure };
        match on_hub {
            Some(current) if current.status != seen.status && now.saturating_sub(since) < threshold => {
                current.clone()
            }
            _ => seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: ConditionStatus) -> Condition {
        Condition::new("Ready", status, "R", "", Time::from_system(std::time::UNIX_EPOCH))
    }

    #[test]
    fn a_change_has_to_last_but_the_first_look_does_not() {
        use ConditionStatus::{False, True, Unknown};
        let second = Duration::from_secs;
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
        let mut threshold = Threshold::new(second(30), second(30));
        for (at, on_hub, seen, told) in rows {
            let on_hub = on_hub.map(ready);
            let got = threshold.adjust(on_hub.as_ref(), ready(seen), second(at));
            assert_eq!(got.status, told, "at {at} s");
        }
    }
}
