//! A Lease for which agents of one name contend: on the hub, and on the member.
//!
//! The other's life is judged by changes seen at times of our own clock.

use std::time::Duration;

use karmada_client::lease;
use karmada_meta::object;
use serde_json::Value;

/// The longest Lease of another agent that is waited for: whoever wrote a longer one keeps nobody out for ever.
const LONGEST_RIVAL: Duration = Duration::from_secs(600);

/// Another agent's claim, as it was seen.
#[derive(Debug)]
pub struct Rival {
    instance: String,
    renewed: String,
    /// [`karmada_env::Env::now`] when it was first seen to be so.
    seen: Duration,
}

/// The name of the Lease on the member. Several hubs may have a member each under a name of their own.
pub fn on_member(cluster: &str) -> String {
    format!("karmada-agent-{cluster}")
}

/// A Lease without what the server keeps by itself, which would be most of what a renewal sends.
pub fn bare(mut lease: Value) -> Value {
    for field in ["managedFields", "creationTimestamp"] {
        object::remove_meta(&mut lease, field);
    }
    lease
}

/// What a Lease says in whole seconds: no less than what is meant.
pub fn promised_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// How long another agent's Lease must have stood still before it is taken: for longer than it takes that agent, or this
/// one, to miss one renewal and make the next. An agent renews every quarter of what its Lease is good for, every half at
/// most. What nobody would promise counts as [`LONGEST_RIVAL`].
pub fn patience(interval: Duration, rivals: Option<Duration>) -> Duration {
    let rivals = rivals.unwrap_or_default().min(LONGEST_RIVAL);
    interval.mul_f64(2.5).max(rivals.mul_f64(0.625))
}

/// Whether a Lease that names `holder` may be taken: it is ours, nobody's, or of an agent that has not renewed it for
/// longer than it would have taken to miss one renewal and make the next.
pub fn may_take(
    (holder, lease): (&str, &Value),
    me: &str,
    rival: &mut Option<Rival>,
    now: Duration,
    patience: Duration,
) -> bool {
    if holder.is_empty() || holder == me {
        *rival = None;
        return true;
    }
    let renewed = lease::renew_time(lease);
    match rival {
        Some(known) if known.instance == holder && known.renewed == renewed => {
            now.saturating_sub(known.seen) >= patience
        }
        _ => {
            *rival = Some(Rival { instance: holder.into(), renewed: renewed.into(), seen: now });
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_agent_is_given_its_own_time() {
        // (pause between own renewals, what the other's Lease is good for, patience), in milliseconds
        let rows = [
            (10_000, None, 25_000),
            (10_000, Some(40_000), 25_000),
            (1_000, Some(4_000), 2_500),
            // Started with a shorter lease, beside one that renews every minute.
            (1_000, Some(240_000), 150_000),
            (60_000, Some(4_000), 150_000),
            (10_000, Some(u64::MAX), 375_000),
        ];
        for (interval, rivals, want) in rows {
            let got = patience(Duration::from_millis(interval), rivals.map(Duration::from_millis));
            assert_eq!(got.as_millis(), want, "{interval} {rivals:?}");
        }
    }

    #[test]
    fn a_lease_promises_no_less_than_is_meant() {
        for (millis, seconds) in [(1_000, 1), (1_001, 2), (40_000, 40), (1_900, 2)] {
            assert_eq!(promised_seconds(Duration::from_millis(millis)), seconds);
        }
    }

    #[test]
    fn the_later_agent_stands_by_while_the_other_renews() {
        // (at, holder, renewed at, may take)
        let rows = [
            (0, "", 0, true),
            (0, "me", 0, true),
            (1, "other", 0, false),
            (20, "other", 0, false),
            (25, "other", 20, false),
            (44, "other", 20, false),
            (50, "other", 20, true),
            (51, "third", 20, false),
        ];
        let mut rival = None;
        for (at, holder, renewed, want) in rows {
            let time = format!("2026-01-01T00:00:{renewed:02}.000000Z");
            let lease = json!({"spec": {"renewTime": time}});
            let now = Duration::from_secs(at);
            let got = may_take((holder, &lease), "me", &mut rival, now, Duration::from_secs(25));
            assert_eq!(got, want, "at {at} s, held by {holder:?}, renewed at {renewed}");
        }
    }
}
