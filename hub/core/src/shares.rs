//! What crosses tunnels on a link whose bytes are paid for: one budget, of which no user has all.
//!
//! Each user has half of it as a share, and is refused when that is used up, whatever others have left. Whoever is within
//! their share is let in as long as the tunnels altogether do not owe what there is in an hour: one user, with all they may
//! use and owe, does not come there.
//!
//! Everything counts for the whole, and for a user what can be told to be theirs.

use std::{collections::BTreeMap, time::Duration};

use crate::links::Budget;

/// A user has this part of an hour's bytes.
const SHARE: u64 = 2;
/// So many users are told apart. Names come from the hub, which may make up any number of them.
const USERS: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct Shares {
    all: Budget,
    /// An hour's bytes were owed, and not half of that is made up for yet.
    overdrawn: bool,
    /// As a user has it who has used nothing.
    unused: Budget,
    users: BTreeMap<String, Budget>,
}

/// What lacks, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// The user has used up their share.
    Share(Duration),
    /// Tunnels owe so much that nobody is let in.
    All(Duration),
}

impl Short {
    /// How long it lasts if nothing else is used.
    pub fn wait(self) -> Duration {
        let (Self::Share(wait) | Self::All(wait)) = self;
        wait
    }
}

impl Shares {
    /// So many bytes in an hour, in all.
    pub fn new(hourly: u64, now: Duration) -> Self {
        Self {
            all: Budget::new(hourly, now),
            overdrawn: false,
            unused: Budget::new(hourly / SHARE, now),
            users: BTreeMap::new(),
        }
    }

    /// The same for an agent that has just started: nothing is there yet. What was used before is not
    /// known, and whoever can have the agent restarted is not to get what may go at once by that.
    pub fn begun(hourly: u64, now: Duration) -> Self {
        let (all, unused) = (Budget::empty(hourly, now), Budget::empty(hourly / SHARE, now));
        Self { all, unused, ..Self::new(hourly, now) }
    }

    /// Takes bytes that have crossed, for whomever.
    pub fn spend(&mut self, bytes: u64, now: Duration) {
        self.all.spend(bytes, now);
    }

    /// Says of bytes that they were this user's.
    pub fn charge(&mut self, user: &str, bytes: u64, now: Duration) {
        if let Some(share) = self.users.get_mut(user) {
            share.spend(bytes, now);
            return;
        }
        if self.users.len() >= USERS {
            // Whoever has most left loses least by being forgotten.
            let most = self.users.iter().max_by_key(|(_, share)| share.left(now));
            if let Some(most) = most.map(|(user, _)| user.clone()) {
                self.users.remove(&most);
            }
        }
        let mut share = self.unused.clone();
        share.spend(bytes, now);
        self.users.insert(user.to_owned(), share);
    }

    fn owed(&mut self, user: &str, now: Duration) -> (u64, Duration) {
        match self.users.get_mut(user) {
            Some(share) => share.owed(now),
            None => self.unused.clone().owed(now),
        }
    }

    /// Whether a user may begin something.
    ///
    /// # Errors
    /// What lacks.
    pub fn ask(&mut self, user: &str, now: Duration) -> Result<(), Short> {
        if let Some(wait) = self.overdrawn(now) {
            return Err(Short::All(wait));
        }
        let wait = self.owed(user, now).1;
        if wait.is_zero() { Ok(()) } else { Err(Short::Share(wait)) }
    }

    /// Whether what a user has begun ends: they owe as much as their share of an hour.
    pub fn is_cut(&mut self, user: &str, now: Duration) -> bool {
        self.owed(user, now).0 >= self.unused.hourly()
    }

    /// For how long there is no tunnel at all, since an hour's bytes are owed: until half of that is made up for. What it
    /// takes to dial would otherwise be owed again at once, and whoever is let in would be cut off.
    pub fn overdrawn(&mut self, now: Duration) -> Option<Duration> {
        let (owed, wait) = self.all.owed(now);
        let hourly = self.all.hourly();
        if owed >= hourly {
            self.overdrawn = true;
        } else if owed <= hourly / 2 {
            self.overdrawn = false;
        }
        self.overdrawn.then(|| wait.saturating_sub(self.all.takes(hourly / 2)))
    }

    /// What there is in an hour, in all.
    pub fn hourly(&self) -> u64 {
        self.all.hourly()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const START: Duration = Duration::from_secs(1000);

    fn shares() -> Shares {
        Shares::new(4096 * KIB, START)
    }

    /// Bytes of a user's that have crossed.
    fn cross(shares: &mut Shares, user: &str, bytes: u64, now: Duration) {
        shares.spend(bytes, now);
        shares.charge(user, bytes, now);
    }

    #[test]
    fn nobody_takes_it_from_everybody() {
        // What jane uses; whether she may ask for more, whether she is cut, and whether john may ask.
        for (used, asks, is_cut) in [
            (0, true, false),
            (500, true, false),
            (512, false, false),
            (2048, false, false),
            (2560, false, true),
        ] {
            let mut shares = shares();
            cross(&mut shares, "jane", used * KIB, START);
            let jane = shares.ask("jane", START);
            assert_eq!((jane.is_ok(), shares.is_cut("jane", START)), (asks, is_cut), "{used} KiB: {jane:?}");
            assert!(matches!(jane, Ok(()) | Err(Short::Share(_))), "{used} KiB: {jane:?}");
            assert_eq!(shares.ask("john", START), Ok(()), "{used} KiB");
            // And has a share of his own.
            cross(&mut shares, "john", 511 * KIB, START);
            assert_eq!(shares.ask("john", START), Ok(()), "{used} KiB");
            assert!(!shares.is_cut("john", START));
        }
    }

    #[test]
    fn a_refusal_says_when_there_is_something_again() {
        let mut shares = shares();
        cross(&mut shares, "jane", 1024 * KIB, START);
        let Err(short) = shares.ask("jane", START) else { panic!("her share is used up") };
        // 512 KiB are owed, and 1536 KiB come in an hour.
        assert!((1200..=1201).contains(&short.wait().as_secs()), "{short:?}");
        let before = START + short.wait() - Duration::from_secs(2);
        assert!(matches!(shares.ask("jane", before), Err(Short::Share(_))));
        assert_eq!(shares.ask("jane", START + short.wait() + Duration::from_secs(1)), Ok(()));
    }

    #[test]
    fn what_was_overdrawn_is_made_up_for_by_half_first() {
        let mut shares = shares();
        shares.spend(1024 * KIB + 4095 * KIB, START);
        assert_eq!((shares.overdrawn(START), shares.ask("john", START)), (None, Ok(())));
        shares.spend(2 * KIB, START);
        let wait = shares.overdrawn(START).unwrap();
        assert_eq!(shares.ask("john", START), Err(Short::All(wait)));
        // 2 MiB come in 40 minutes.
        assert!((2400..=2402).contains(&wait.as_secs()), "{wait:?}");
        // A byte below an hour's is not enough.
        let later = START + Duration::from_secs(60);
        assert!(shares.overdrawn(later).is_some_and(|left| left < wait));
        let then = START + wait + Duration::from_secs(1);
        assert_eq!(shares.overdrawn(then), None);
        // Dialling does not bring it back.
        shares.spend(64 * KIB, then);
        assert_eq!((shares.overdrawn(then), shares.ask("john", then)), (None, Ok(())));
    }

    #[test]
    fn a_restart_gives_nothing() {
        let mut shares = Shares::begun(4096 * KIB, START);
        let after = |seconds| START + Duration::from_secs(seconds);
        assert!(shares.ask("jane", START).is_err());
        // Whoever has not been heard of saves up as well.
        assert_eq!(shares.ask("jane", after(1)), Ok(()));
        cross(&mut shares, "jane", 255 * KIB, after(600));
        assert_eq!((shares.ask("jane", after(600)), shares.ask("john", after(600))), (Ok(()), Ok(())));
        cross(&mut shares, "jane", 2 * KIB, after(600));
        assert!(shares.ask("jane", after(600)).is_err(), "256 KiB have come in ten minutes");
    }

    #[test]
    fn names_that_are_made_up_take_no_room() {
        let mut shares = shares();
        cross(&mut shares, "jane", 600 * KIB, START);
        for n in 0..10 * USERS {
            shares.charge(&format!("user-{n}"), 1, START);
        }
        assert_eq!(shares.users.len(), USERS);
        assert!(shares.ask("jane", START).is_err(), "whoever owes is not forgotten");
    }
}
