//! How long to wait before trying again.
//!
//! The growing delays are `backon`'s (which stands in for the unmaintained `backoff`); the jitter is drawn from
//! [`Env`], so that a seed decides it.

use std::{fmt, time::Duration};

use backoff::BackoffBuilder;
use karmada_env::Env;

/// The bounds of a delay. Constants of this type carry the reason for their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The first delay, before jitter.
    pub min: Duration,
    /// No delay is longer than this.
    pub max: Duration,
    /// Where within the delay the jitter may land.
    pub jitter: Jitter,
}

/// How a delay is spread, so that many who failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Anywhere from zero to the delay: for crowds that were cut off at one moment.
    Full,
    /// From half of the delay to the delay: where trying at once would be pointless.
    Half,
}

impl Policy {
    /// A policy that draws from half of the delay to the delay.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, jitter: Jitter::Half }
    }

    /// A policy that draws from zero to the delay.
    pub const fn full(min: Duration, max: Duration) -> Self {
        Self { min, max, jitter: Jitter::Full }
    }

    fn delays(&self) -> backoff::ExponentialBackoff {
        backoff::ExponentialBuilder::new()
            .with_min_delay(self.min)
            .with_max_delay(self.max)
            .with_factor(2.0)
            .without_max_times()
            .build()
    }
}

/// Delays that double from [`Policy::min`] to [`Policy::max`] until [`Backoff::reset`].
pub struct Backoff {
    policy: Policy,
    delays: backoff::ExponentialBackoff,
    failures: u32,
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff").field("policy", &self.policy).field("failures", &self.failures).finish()
    }
}

impl Backoff {
    /// A backoff that has seen no failure yet.
    pub fn new(policy: Policy) -> Self {
        Self { delays: policy.delays(), policy, failures: 0 }
    }

    /// How long to wait after one more failure.
    pub fn next(&mut self, env: &Env) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let delay = self.delays.next().unwrap_or(self.policy.max).min(self.policy.max);
        let micros = delay.as_micros().min(u128::from(u64::MAX - 1)) as u64;
        let floor = match self.policy.jitter {
            Jitter::Full => 0,
            Jitter::Half => micros / 2,
        };
        Duration::from_micros(floor + env.below(micros - floor + 1))
    }

    /// Failures since the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether there are twice as many failures as when this was last so: what goes on failing for days is worth so many lines
    /// in a log.
    pub fn has_doubled(&self) -> bool {
        self.failures.is_power_of_two()
    }

    /// Starts again from the shortest delay.
    pub fn reset(&mut self) {
        if self.failures > 0 {
            self.delays = self.policy.delays();
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use karmada_env::ManualClock;

    use super::*;

    fn env(seed: u64) -> Env {
        Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), seed)
    }

    #[test]
    fn delays_double_up_to_the_longest_and_start_again_after_a_reset() {
        let policy = Policy::new(Duration::from_millis(100), Duration::from_secs(2));
        let mut backoff = Backoff::new(policy);
        for ceiling in [100, 200, 400, 800, 1600, 2000, 2000, 2000] {
            let (low, high) = (Duration::from_millis(ceiling / 2), Duration::from_millis(ceiling));
            let delay = backoff.next(&env(ceiling));
            assert!((low..=high).contains(&delay), "{delay:?} is not within {low:?} to {high:?}");
        }
        assert_eq!(backoff.failures(), 8);
        backoff.reset();
        assert!(backoff.next(&env(1)) <= Duration::from_millis(100));
    }

    #[test]
    fn full_jitter_reaches_below_half() {
        let policy = Policy::full(Duration::from_secs(1), Duration::from_secs(1));
        let env = env(3);
        let delays: Vec<_> = (0..100).map(|_| Backoff::new(policy).next(&env)).collect();
        assert!(delays.iter().any(|d| *d < Duration::from_millis(300)));
        assert!(delays.iter().all(|d| *d <= Duration::from_secs(1)));
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let env = env(4);
        let mut backoff = Backoff::new(Policy::new(Duration::from_millis(5), Duration::from_secs(30)));
        assert!((0..1000).map(|_| backoff.next(&env)).all(|d| d <= Duration::from_secs(30)));
    }
}
