//! Who has been here lately with a good credential, and from where.
//!
//! Before a certificate is seen only an address is known. Where good ones were seen, there is a share for as many as were
//! seen there: who floods from behind the same address has to take that share first, and gets no more by it than a fleet
//! of that size would.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{
    origin::Origin,
    pace::{Bucket, Rate},
};

/// A digest of what a client has proven to have: of its certificate's public key, or of the user of its token.
pub(super) type Key = [u8; 32];

/// Keys that are remembered; the ones not seen for longest are forgotten first.
const KEYS: usize = 32_768;
/// For how long.
const LATELY: Duration = Duration::from_secs(24 * 3600);
/// Of a key, the origins it was seen at last: one stolen key makes no more places than these known.
const ORIGINS_OF_A_KEY: usize = 4;
/// How often handshakes of one key cost it nothing.
const RETURNS: Rate = Rate { per_second: 1.0, burst: 64.0 };

/// Handshakes of an origin with so many keys. An agent comes back once a second at most.
fn share(keys: usize) -> Rate {
    let keys = keys as f64;
    Rate { per_second: keys.clamp(4.0, 400.0), burst: (keys * 8.0).clamp(16.0, 1_024.0) }
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    keys: BTreeMap<Key, Seen>,
    /// By when they were seen.
    order: BTreeMap<u64, Key>,
    origins: BTreeMap<Origin, Known>,
    next: u64,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    order: u64,
    /// The last ones, the newest at the end.
    origins: Vec<Origin>,
    returns: Bucket,
}

#[derive(Debug)]
struct Known {
    keys: usize,
    turns: Bucket,
}

impl Memory {
    /// A client from this origin has shown this.
    pub(super) fn remember(&mut self, key: Key, origin: Origin, now: Instant) {
        self.forget(now);
        let order = self.next;
        self.next += 1;
        let seen = self.keys.entry(key).or_insert_with(|| Seen {
            at: now,
            order,
            origins: Vec::with_capacity(1),
            returns: Bucket::full(RETURNS, now),
        });
        self.order.remove(&seen.order);
        self.order.insert(order, key);
        (seen.at, seen.order) = (now, order);
        if let Some(there) = seen.origins.iter().position(|known| *known == origin) {
            seen.origins.remove(there);
            seen.origins.push(origin);
            return;
        }
        seen.origins.push(origin);
        let left = (seen.origins.len() > ORIGINS_OF_A_KEY).then(|| seen.origins.remove(0));
        let known = self
            .origins
            .entry(origin)
            // Empty: or one key that moves about would find a full one wherever it goes.
            .or_insert_with(|| Known { keys: 0, turns: Bucket::empty(now) });
        known.keys += 1;
        if let Some(left) = left {
            self.leave(left);
        }
        if self.keys.len() > KEYS {
            self.drop_oldest();
        }
    }

    /// How many were seen lately at this origin.
    pub(super) fn keys_at(&mut self, origin: Origin, now: Instant) -> usize {
        self.forget(now);
        self.origins.get(&origin).map_or(0, |known| known.keys)
    }

    /// Takes a turn of the share of this origin, if there is one at once.
    pub(super) fn turn(&mut self, origin: Origin, now: Instant) -> bool {
        let known = self.origins.get_mut(&origin);
        known.is_some_and(|known| known.turns.take(share(known.keys), now, Duration::ZERO).is_some())
    }

    /// Whether a turn that ended with this key is given back; to the share of the origin it is given here.
    pub(super) fn returns(&mut self, key: &Key, origin: Origin, now: Instant) -> bool {
        let Some(seen) = self.keys.get_mut(key) else { return false };
        let returned = seen.returns.take(RETURNS, now, Duration::ZERO).is_some();
        if returned && let Some(known) = self.origins.get_mut(&origin) {
            known.turns.give(share(known.keys), now);
        }
        returned
    }

    /// Keys and origins.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.keys.len(), self.origins.len())
    }

    /// Drops a few that were not seen for long: it costs every caller the same.
    fn forget(&mut self, now: Instant) {
        for _ in 0..2 {
            let oldest = self.order.first_key_value().and_then(|(_, key)| self.keys.get(key));
            if oldest.is_some_and(|seen| now.saturating_duration_since(seen.at) > LATELY) {
                self.drop_oldest();
            }
        }
    }

    fn drop_oldest(&mut self) {
        let Some((_, key)) = self.order.pop_first() else { return };
        for origin in self.keys.remove(&key).map(|seen| seen.origins).unwrap_or_default() {
            self.leave(origin);
        }
    }

    fn leave(&mut self, origin: Origin) {
        if let Some(known) = self.origins.get_mut(&origin) {
            known.keys -= 1;
            if known.keys == 0 {
                self.origins.remove(&origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn origin(n: u32) -> Origin {
        Origin::V4(Ipv4Addr::from(n))
    }

    fn key(n: u32) -> Key {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&n.to_be_bytes());
        key
    }

    #[test]
    fn keys_are_remembered_with_the_last_places_they_were_seen_at() {
        let now = Instant::now();
        let mut memory = Memory::default();
        for place in [1, 2, 3, 1, 4, 5] {
            memory.remember(key(1), origin(place), now);
        }
        memory.remember(key(2), origin(5), now);
        let at: Vec<_> = (1..=6).map(|place| memory.keys_at(origin(place), now)).collect();
        assert_eq!(at, [1, 0, 1, 1, 2, 0]);
    }

    #[test]
    fn who_was_not_seen_for_long_is_forgotten() {
        let start = Instant::now();
        let mut memory = Memory::default();
        memory.remember(key(1), origin(1), start);
        memory.remember(key(2), origin(2), start);
        memory.remember(key(2), origin(2), start + LATELY / 2);
        let later = start + LATELY + Duration::from_secs(1);
        assert_eq!((memory.keys_at(origin(1), later), memory.keys_at(origin(2), later)), (0, 1));
        assert_eq!(memory.len(), (1, 1));
        for n in 0..KEYS as u32 * 2 {
            memory.remember(key(n + 10), origin(n), later);
        }
        assert_eq!(memory.len(), (KEYS, KEYS));
        assert_eq!(memory.order.len(), KEYS);
    }

    #[test]
    fn the_share_of_an_origin_grows_with_its_keys_and_is_its_own() {
        let start = Instant::now();
        let turns = |keys: u32, seconds: u64| {
            let mut memory = Memory::default();
            for n in 0..keys {
                memory.remember(key(n), origin(1), start);
            }
            memory.remember(key(9_999), origin(2), start);
            let now = start + Duration::from_secs(seconds);
            let taken = (0..10_000).take_while(|_| memory.turn(origin(1), now)).count();
            assert_eq!(memory.turn(origin(2), now), seconds > 0, "another's is its own");
            assert!(!memory.turn(origin(3), now), "an unknown one has none");
            taken
        };
        let cases = [
            ((1, 0), 0),
            ((1, 2), 8),
            ((1, 3600), 16),
            ((10, 2), 20),
            ((10, 3600), 80),
            ((1_000, 2), 800),
            ((1_000, 3600), 1_024),
        ];
        for ((keys, seconds), want) in cases {
            assert_eq!(turns(keys, seconds), want, "{keys} keys after {seconds} s");
        }
    }

    #[test]
    fn one_key_gets_so_many_turns_back() {
        let now = Instant::now();
        let mut memory = Memory::default();
        memory.remember(key(1), origin(1), now);
        let back = (0..1_000).filter(|_| memory.returns(&key(1), origin(1), now)).count();
        assert_eq!(back as f64, RETURNS.burst);
        assert!(!memory.returns(&key(2), origin(1), now), "an unknown one gets none");
    }
}
