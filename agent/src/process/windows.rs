//! Being there when the link is.

use std::time::{Duration, SystemTime};

use karmada_core::windows::{Stand, Windows};
use karmada_env::Env;

/// How often it is looked whether an open window has closed.
const LOOK: Duration = Duration::from_secs(10);

/// The longest that is slept before a clock is looked at again.
const NAP: Duration = Duration::from_secs(300);

/// A fleet whose windows open at the same second comes within this, and within a part of a window that is short.
const SPREAD: Duration = Duration::from_secs(60);

/// That part.
const PART: u32 = 10;

/// Tries when the link is to be there.
pub(super) async fn be_there(windows: Windows, kick: impl Fn(), env: Env) {
    // Until a time, on the wall's clock.
    let left = |until: karmada_meta::time::Time| {
        SystemTime::from(until.timestamp()).duration_since(env.wall()).unwrap_or_default()
    };
    loop {
        match windows.at(env.wall()) {
            Stand::Open(_) => tokio::time::sleep(LOOK).await,
            Stand::Shut(until) => {
                // Clocks are set, and machines sleep: it is looked again now and then.
                tokio::time::sleep(left(until).min(NAP)).await;
                if let Stand::Open(until) = windows.at(env.wall()) {
                    let spread = SPREAD.min(left(until) / PART);
                    tokio::time::sleep(Duration::from_micros(env.below(spread.as_micros() as u64 + 1))).await;
                    kick();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use karmada_env::Clock;
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

    struct Tokio(Instant);

    impl Clock for Tokio {
        fn now(&self) -> Duration {
            self.0.elapsed()
        }

        fn wall(&self) -> SystemTime {
            // Ten minutes before eight.
            SystemTime::UNIX_EPOCH + Duration::from_secs(3600 * 500_000 - 600) + self.now()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fleet_does_not_come_at_the_second_at_which_its_windows_open() {
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            let (env, kicked) = (Env::seeded(Tokio(Instant::now()), seed), Mutex::new(Vec::new()));
            let windows = Windows::parse("08:00-08:15").unwrap();
            let kick = || kicked.lock().push(env.now());
            let hours = tokio::time::timeout(Duration::from_secs(3600), be_there(windows, kick, env.clone()));
            assert!(hours.await.is_err());
            let kicked = kicked.into_inner();
            assert_eq!(kicked.len(), 1, "{kicked:?}");
            assert!((600_000..=660_000).contains(&kicked[0].as_millis()), "{kicked:?}");
            seen.insert(kicked[0].as_millis());
        }
        assert!(seen.len() >= 18, "{seen:?}");
    }
}
