//! Fights over an object: somebody on the member changes it back as often as it is corrected. A person does that once or
//! twice; a controller or another deployer does it for ever, and each round restarts Pods.
//!
//! ```text
//!   corrected, and changed at once ... six times within a minute ─▶ a fight: corrected ever more seldom
//!                      changed ─▶ waits 2 s … 3 min ─▶ corrected ─▶ changed ─▶ ...
//!                                                      corrected ─▶ left alone for 90 s ─▶ over
//! ```
//!
//! Pure: the clock and chance come in. What is remembered is of objects that were corrected lately, and bounded for each.

use std::time::Duration;

use karmada_client::{Backoff, Policy};
use karmada_env::Env;

/// More corrections than this within [`MINUTE`] are a fight.
const FREE: usize = 5;
const MINUTE: Duration = Duration::from_secs(60);

/// Between corrections in a fight.
const PAUSE: Policy = Policy::new(Duration::from_secs(2), LONGEST);

/// The longest pause: so long at most stays an object wrong after the other has stopped.
pub(crate) const LONGEST: Duration = Duration::from_secs(180);

/// An object that was left as it was corrected for so long is fought over no more.
const PEACE: Duration = Duration::from_secs(90);

/// What is remembered of the corrections of one object.
#[derive(Debug, Default)]
pub(crate) struct Fight {
    /// [`Env::now`] of the corrections within the last minute, [`FREE`] and one at most.
    recent: Vec<Duration>,
    contest: Option<Contest>,
}

/// A fight that is under way.
#[derive(Debug)]
struct Contest {
    pause: Backoff,
    /// Of the last correction.
    corrected: Duration,
    /// No correction before this.
    not_before: Duration,
    /// The object was changed after the last correction.
    is_changed: bool,
    /// Who is on the other side, for a sentence.
    by: String,
}

impl Fight {
    /// The object was found changed, by these.
    pub(crate) fn changed(&mut self, now: Duration, by: String) {
        self.end(now);
        if let Some(contest) = &mut self.contest {
            contest.is_changed = true;
            contest.by = by;
        }
    }

    /// It was corrected. Answers whether a fight has begun by that; `by` is who had changed it.
    pub(crate) fn corrected(&mut self, env: &Env, by: String) -> bool {
        let now = env.now();
        self.recent.retain(|then| now.saturating_sub(*then) < MINUTE);
        if self.recent.len() > FREE {
            self.recent.remove(0);
        }
        self.recent.push(now);
        let begins = self.contest.is_none() && self.recent.len() > FREE;
        if begins {
            self.contest = Some(Contest {
                pause: Backoff::new(PAUSE),
                corrected: now,
                not_before: now,
                is_changed: false,
                by,
            });
        }
        if let Some(contest) = &mut self.contest {
            contest.corrected = now;
            contest.not_before = now + contest.pause.next(env);
            contest.is_changed = false;
        }
        begins
    }

    /// For how long no correction is to be made.
    pub(crate) fn pause(&self, now: Duration) -> Option<Duration> {
        let contest = self.contest.as_ref()?;
        Some(contest.not_before.saturating_sub(now)).filter(|pause| !pause.is_zero())
    }

    /// The object is as it was left. When to look whether the fight is over, if there is one.
    pub(crate) fn rests(&mut self, now: Duration) -> Option<Duration> {
        if let Some(contest) = &mut self.contest {
            // They have put it right themselves.
            contest.is_changed = false;
        }
        self.end(now);
        let contest = self.contest.as_ref()?;
        Some((contest.corrected + PEACE).saturating_sub(now))
    }

    /// Who is on the other side, while there is a fight.
    pub(crate) fn by(&self) -> Option<&str> {
        self.contest.as_ref().map(|contest| contest.by.as_str())
    }

    /// Whether there is nothing to be remembered.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        self.contest.is_none() && self.recent.iter().all(|then| now.saturating_sub(*then) >= MINUTE)
    }

    /// Ends a fight in which the last correction has stood for long enough.
    fn end(&mut self, now: Duration) {
        let stood = |contest: &Contest| !contest.is_changed && now.saturating_sub(contest.corrected) >= PEACE;
        if self.contest.as_ref().is_some_and(stood) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::SystemTime,
    };

    use karmada_env::Clock;

    use super::*;

    #[derive(Clone, Default)]
    struct Hand(Arc<AtomicU64>);

    impl Clock for Hand {
        fn now(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + self.now()
        }
    }

    impl Hand {
        fn move_on(&self, by: Duration) {
            self.0.fetch_add(by.as_micros() as u64, Ordering::Relaxed);
        }
    }

    fn corrections(every: Duration, count: usize) -> (Fight, Env, Hand, Vec<bool>) {
        let clock = Hand::default();
        let (env, mut fight) = (Env::seeded(clock.clone(), 7), Fight::default());
        let begun = (0..count).map(|_| {
            clock.move_on(every);
            fight.changed(env.now(), "x".to_owned());
            fight.corrected(&env, "x".to_owned())
        });
        let begun = begun.collect();
        (fight, env, clock, begun)
    }

    #[test]
    fn six_corrections_within_a_minute_are_a_fight_and_five_are_not() {
        let second = Duration::from_secs(1);
        // (every, corrections, at which a fight begins)
        let rows = [
            (second, 5, None),
            (second, 6, Some(5)),
            (second * 11, 6, Some(5)),
            (second * 12, 40, None),
            (second * 60, 40, None),
        ];
        for (every, count, begins) in rows {
            let (fight, .., begun) = corrections(every, count);
            assert_eq!(begun.iter().position(|begun| *begun), begins, "{every:?} {count}");
            assert_eq!(fight.by().is_some(), begins.is_some());
            assert!(fight.recent.len() <= FREE + 1);
        }
    }

    #[test]
    fn pauses_grow_to_minutes_and_a_fight_lasts_as_long_as_the_other_fights() {
        let (mut fight, env, clock, _) = corrections(Duration::from_secs(1), 6);
        let mut pauses = Vec::new();
        for round in 0..20 {
            // They are at it at once; the correction comes when it may.
            clock.move_on(Duration::from_millis(100));
            fight.changed(env.now(), format!("round {round}"));
            let pause = fight.pause(env.now()).unwrap();
            assert!(pause <= LONGEST, "{pause:?}");
            pauses.push(pause);
            clock.move_on(pause);
            assert_eq!(fight.pause(env.now()), None);
            fight.changed(env.now(), format!("round {round}"));
            assert!(!fight.corrected(&env, String::new()), "it is under way");
            assert_eq!(fight.by(), Some(format!("round {round}").as_str()));
        }
        assert!(pauses[0] < Duration::from_secs(3), "{pauses:?}");
        assert!(pauses[19] > Duration::from_secs(80), "{pauses:?}");
    }

    #[test]
    fn a_fight_is_over_when_a_correction_has_stood() {
        let (mut fight, env, clock, _) = corrections(Duration::from_secs(1), 6);
        assert_eq!(fight.rests(env.now()), Some(PEACE));
        clock.move_on(PEACE - Duration::from_secs(1));
        assert_eq!(fight.rests(env.now()), Some(Duration::from_secs(1)));
        assert!(!fight.is_over(env.now()));
        clock.move_on(Duration::from_secs(1));
        assert_eq!(fight.rests(env.now()), None);
        assert!(fight.is_over(env.now()) && fight.by().is_none());
        // The next change is a person's, for all that is known.
        fight.changed(env.now(), "x".to_owned());
        assert_eq!(fight.pause(env.now()), None);
    }

    #[test]
    fn while_it_stays_changed_nothing_is_over() {
        let (mut fight, env, clock, _) = corrections(Duration::from_secs(1), 6);
        fight.changed(env.now(), "x".to_owned());
        clock.move_on(PEACE * 4);
        fight.changed(env.now(), "x".to_owned());
        assert!(fight.by().is_some());
    }
}
