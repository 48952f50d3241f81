//! How much is told of requests that were refused: so much of each who asks, so that nobody fills the log by asking.

use std::{collections::BTreeMap, time::Duration};

/// What may be told at once of somebody who has authenticated, and of all strangers together, in bytes.
const MOST: u64 = 16 << 20;
/// What is added in a second: less than 200 MB in a day.
const RATE: u64 = 2 << 10;
/// Of so many it is known what was told; the others share what strangers have.
const USERS: usize = 1024;

/// What is left of what may be told.
#[derive(Debug)]
struct Left {
    bytes: u64,
    at: Duration,
    /// Requests that were not told since.
    untold: u64,
}

impl Left {
    fn fill(&mut self, now: Duration) {
        let gone = now.saturating_sub(self.at);
        self.bytes = self.bytes.saturating_add(gone.as_millis() as u64 * RATE / 1000).min(MOST);
        self.at = now;
    }
}

/// What is left, by user; of strangers under no name. By the clock that is never set.
#[derive(Debug, Default)]
pub(crate) struct Allowances {
    users: BTreeMap<String, Left>,
}

/// Whether a refusal is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is, and so many before it were not.
    Yes(u64),
    /// It is not; whether it is the first of those.
    No(bool),
}

impl Allowances {
    /// Takes from what is left of a user (of strangers: none) what telling of one refusal needs.
    pub(crate) fn take(&mut self, user: Option<&str>, bytes: u64, now: Duration) -> Told {
        let mut user = user.unwrap_or_default();
        if !self.users.contains_key(user) && self.users.len() >= USERS {
            // Who has been quiet for long is as one of whom nothing is known.
            self.users.retain(|_, left| {
                left.fill(now);
                left.bytes < MOST || left.untold > 0
            });
            if self.users.len() >= USERS {
                user = "";
            }
        }
        let left = match self.users.get_mut(user) {
            Some(left) => left,
            None => self.users.entry(user.to_owned()).or_insert(Left { bytes: MOST, at: now, untold: 0 }),
        };
        left.fill(now);
        match left.bytes.checked_sub(bytes) {
            Some(rest) => {
                left.bytes = rest;
                Told::Yes(std::mem::take(&mut left.untold))
            }
            None => {
                left.untold += 1;
                Told::No(left.untold == 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_their_own_and_it_grows_again() {
        let mut all = Allowances::default();
        let at = Duration::from_secs;
        let rows = [
            (Some("a"), MOST, 0, Told::Yes(0)),
            (Some("a"), 1, 0, Told::No(true)),
            (Some("a"), 1, 0, Told::No(false)),
            (Some("b"), 1, 0, Told::Yes(0)),
            (None, MOST, 0, Told::Yes(0)),
            (None, 1, 0, Told::No(true)),
            (Some("a"), RATE, 1, Told::Yes(2)),
            (Some("a"), 1, 1, Told::No(true)),
            (Some("a"), MOST, 1_000_000, Told::Yes(1)),
        ];
        for (user, bytes, now, want) in rows {
            assert_eq!(all.take(user, bytes, at(now)), want, "{user:?} {bytes} at {now}");
        }
    }

    #[test]
    fn there_is_a_bound_to_whom_is_remembered() {
        let mut all = Allowances::default();
        for user in 0..2 * USERS {
            all.take(Some(&user.to_string()), MOST / 2, Duration::ZERO);
        }
        assert!(all.users.len() <= USERS + 1, "{}", all.users.len());
        assert_eq!(all.take(Some("late"), 1, Duration::ZERO), Told::No(false), "with the strangers");
        // They have been quiet for hours.
        assert_eq!(all.take(Some("later"), 1, Duration::from_secs(100_000)), Told::Yes(0));
        assert!(all.users.len() < 10, "{}", all.users.len());
    }
}
