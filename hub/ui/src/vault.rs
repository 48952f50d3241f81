//! What somebody is known by for a while: the ids of sessions, and of addresses that are good for one use.
//!
//! | | after its last use | at most | of one user | of all |
//! |---|---|---|---|---|
//! | [`SESSIONS`] | 30 min | 12 h | 8 | 4,096 |
//! | [`TICKETS`] | 60 s | 60 s | 4 | 256 |
//!
//! Either ends with the credential that it was opened by. Who opens one too many ends their own that was used least of late;
//! where there are too many of all, it is whoever has the most. An id is kept as its digest alone, and so is found in a time
//! that tells nothing of others.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use karmada_env::{Env, Secret};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

/// For how long, and how many.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// It ends when it was not used for so long.
    pub idle: Duration,
    /// It ends after so long.
    pub most: Duration,
    /// So many may one have.
    pub each: usize,
    /// So many may there be.
    pub all: usize,
}

/// Of sessions.
pub const SESSIONS: Terms =
    Terms { idle: Duration::from_mins(30), most: Duration::from_hours(12), each: 8, all: 4096 };

/// Of addresses that are good for one use.
pub const TICKETS: Terms =
    Terms { idle: Duration::from_secs(60), most: Duration::from_secs(60), each: 4, all: 256 };

/// The longest id that is looked at; one is 64 characters long.
const LONGEST: usize = 128;

/// For how long the credential of somebody holds.
#[derive(Clone, Debug)]
pub struct Holds {
    /// Ends when it is taken back.
    pub ended: CancellationToken,
    /// When it ends at the latest.
    pub until: SystemTime,
}

/// What an id stands for.
#[derive(Clone, Debug)]
pub struct Found<T> {
    /// What was put in.
    pub what: T,
    /// For how long it holds, if it is used.
    pub holds: Holds,
}

struct Entry<T> {
    whose: String,
    found: Found<T>,
    /// Monotonic.
    begun: Duration,
    used: Duration,
}

/// See the module.
pub struct Vault<T> {
    terms: Terms,
    env: Env,
    entries: Mutex<BTreeMap<[u8; 32], Entry<T>>>,
}

impl<T> fmt::Debug for Vault<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault")
            .field("terms", &self.terms)
            .field("entries", &self.entries.lock().len())
            .finish()
    }
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        // What goes on by it ends with it.
        self.found.holds.ended.cancel();
    }
}

fn digest(id: &str) -> [u8; 32] {
    Sha256::digest(id).into()
}

impl<T: Clone> Vault<T> {
    /// Nothing is in it.
    pub fn new(terms: Terms, env: Env) -> Self {
        Self { terms, env, entries: Mutex::default() }
    }

    /// Puts something in for a user, whose credential holds for so long; without an end if there is none. Answers the id.
    pub fn put(&self, whose: &str, what: T, credential: Option<Holds>) -> Secret {
        let (now, wall) = (self.env.now(), self.env.wall());
        let most = wall + self.terms.most;
        let holds = match credential {
            // What is cancelled here is this one's end, not the credential's.
            Some(holds) => Holds { ended: holds.ended.child_token(), until: holds.until.min(most) },
            None => Holds { ended: CancellationToken::new(), until: most },
        };
        let id = Secret::new();
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| self.stands(entry, now, wall));
        while entries.values().filter(|entry| entry.whose == whose).count() >= self.terms.each {
            remove_oldest(&mut entries, |entry| entry.whose == whose);
        }
        while entries.len() >= self.terms.all {
            // Whoever has the most gives way: many logins of one do not end another's.
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for entry in entries.values() {
                *counts.entry(&entry.whose).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(whose, _)| whose.to_owned());
            remove_oldest(&mut entries, |entry| most.as_deref() == Some(&*entry.whose));
        }
        let entry = Entry { whose: whose.to_owned(), found: Found { what, holds }, begun: now, used: now };
        entries.insert(digest(id.expose()), entry);
        id
    }

    fn stands(&self, entry: &Entry<T>, now: Duration, wall: SystemTime) -> bool {
        let Holds { ended, until } = &entry.found.holds;
        !ended.is_cancelled()
            && wall < *until
            && now.saturating_sub(entry.begun) < self.terms.most
            && now.saturating_sub(entry.used) < self.terms.idle
    }

    /// What an id stands for. It is used by that.
    pub fn get(&self, id: &str) -> Option<Found<T>> {
        self.find(id, true)
    }

    /// What an id stands for. It is not used by that: somebody's program asks, and not somebody.
    pub fn peek(&self, id: &str) -> Option<Found<T>> {
        self.find(id, false)
    }

    fn find(&self, id: &str, uses: bool) -> Option<Found<T>> {
        if id.len() > LONGEST {
            return None;
        }
        let (key, now, wall) = (digest(id), self.env.now(), self.env.wall());
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&key)?;
        if !self.stands(entry, now, wall) {
            entries.remove(&key);
            return None;
        }
        if uses {
            entry.used = now;
        }
        Some(entry.found.clone())
    }

    /// What an id stands for, which it does no longer.
    pub fn take(&self, id: &str) -> Option<T> {
        let what = self.get(id)?.what;
        // Of two who come at a time one has it.
        self.entries.lock().remove(&digest(id)).map(|_| what)
    }

    /// Ends all that has had its time. Whoever holds anything open by it has to be told, though nobody asks.
    pub fn sweep(&self) {
        let (now, wall) = (self.env.now(), self.env.wall());
        self.entries.lock().retain(|_, entry| self.stands(entry, now, wall));
    }

    /// Ends all of which something else than time says so. It is asked about each without anybody waiting for it here.
    pub fn end_those(&self, over: impl Fn(&T) -> bool) {
        let all: Vec<_> =
            self.entries.lock().iter().map(|(key, entry)| (*key, entry.found.what.clone())).collect();
        for (key, _) in all.iter().filter(|(_, what)| over(what)) {
            self.entries.lock().remove(key);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// By whom there is one, and how many of each.
    pub fn users(&self) -> BTreeMap<String, usize> {
        let mut users = BTreeMap::new();
        for entry in self.entries.lock().values() {
            *users.entry(entry.whose.clone()).or_default() += 1;
        }
        users
    }
}

fn remove_oldest<T>(entries: &mut BTreeMap<[u8; 32], Entry<T>>, of: impl Fn(&Entry<T>) -> bool) {
    let oldest = entries.iter().filter(|(_, entry)| of(entry)).min_by_key(|(_, entry)| entry.used);
    if let Some(key) = oldest.map(|(key, _)| *key) {
        entries.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use karmada_env::ManualClock;

    use super::*;

    fn vault(terms: Terms) -> (Vault<u32>, ManualClock) {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        (Vault::new(terms, Env::seeded(clock.clone(), 0)), clock)
    }

    #[test]
    fn a_session_ends_when_it_is_not_used_and_after_half_a_day() {
        let (vault, clock) = vault(SESSIONS);
        let idle = vault.put("a", 1, None);
        let busy = vault.put("a", 2, None);
        let open = vault.get(idle.expose()).unwrap().holds.ended;
        for minutes in 1..12 * 60 {
            clock.advance(Duration::from_mins(1));
            assert_eq!(vault.get(busy.expose()).map(|found| found.what), Some(2), "{minutes}");
        }
        assert!(vault.get(idle.expose()).is_none() && open.is_cancelled());
        clock.advance(Duration::from_mins(1));
        assert!(vault.get(busy.expose()).is_none());
        assert!(vault.is_empty());
        assert!(vault.get(&"x".repeat(1 << 20)).is_none() && vault.get("").is_none());
    }

    #[test]
    fn a_page_that_is_only_open_does_not_use_it() {
        let (vault, clock) = vault(SESSIONS);
        let id = vault.put("a", 1, None);
        for _ in 0..29 {
            clock.advance(Duration::from_mins(1));
            assert!(vault.peek(id.expose()).is_some());
        }
        let open = vault.peek(id.expose()).unwrap().holds.ended;
        clock.advance(Duration::from_mins(1));
        assert!(vault.peek(id.expose()).is_none() && open.is_cancelled());
    }

    #[test]
    fn what_is_over_for_another_reason_ends() {
        let (vault, _) = vault(SESSIONS);
        let ids = [1, 2, 3].map(|n| vault.put("a", n, None));
        let open = vault.peek(ids[1].expose()).unwrap().holds.ended;
        vault.end_those(|n| *n == 2);
        assert_eq!(ids.map(|id| vault.peek(id.expose()).is_some()), [true, false, true]);
        assert!(open.is_cancelled());
    }

    #[test]
    fn it_ends_with_its_credential_and_the_credential_not_with_it() {
        let (vault, clock) = vault(SESSIONS);
        let credential = Holds {
            ended: CancellationToken::new(),
            until: SystemTime::UNIX_EPOCH + Duration::from_secs(90),
        };
        let first = vault.put("a", 1, Some(credential.clone()));
        assert_eq!(vault.take(first.expose()), Some(1));
        assert!(!credential.ended.is_cancelled());
        let (second, third) = (vault.put("a", 2, Some(credential.clone())), vault.put("b", 3, None));
        let open = vault.get(second.expose()).unwrap().holds;
        credential.ended.cancel();
        assert!(open.ended.is_cancelled() && vault.get(second.expose()).is_none());
        let short = vault.put("a", 4, Some(Holds { ended: CancellationToken::new(), ..credential }));
        clock.advance(Duration::from_secs(89));
        assert!(vault.get(short.expose()).is_some());
        clock.advance(Duration::from_secs(1));
        vault.sweep();
        assert!(vault.get(short.expose()).is_none() && vault.get(third.expose()).is_some());
    }

    #[test]
    fn tickets_are_good_once_and_for_a_minute() {
        let (vault, clock) = vault(TICKETS);
        let (one, late) = (vault.put("a", 1, None), vault.put("a", 2, None));
        assert_eq!((vault.take(one.expose()), vault.take(one.expose())), (Some(1), None));
        clock.advance(Duration::from_secs(60));
        assert_eq!(vault.take(late.expose()), None);
    }

    #[test]
    fn who_opens_too_many_ends_their_own() {
        let (vault, clock) = vault(Terms { each: 2, all: 3, ..SESSIONS });
        let open = |whose| {
            clock.advance(Duration::from_secs(1));
            vault.put(whose, 0, None)
        };
        let (a, b) = (open("a"), open("b"));
        let [c, d] = [open("a"), open("a")];
        let is = |id: &Secret| vault.get(id.expose()).is_some();
        assert_eq!([is(&a), is(&b), is(&c), is(&d)], [false, true, true, true]);
        clock.advance(Duration::from_secs(1));
        assert!(is(&c) && is(&d));
        vault.put("z", 0, None);
        let one_each = ["a", "b", "z"].map(|whose| (whose.into(), 1));
        assert_eq!(
            vault.users(),
            BTreeMap::from(one_each),
            "whoever has the most gives way, and nobody else"
        );
    }
}
