//! How often strangers may have what costs us arithmetic.
//!
//! ```text
//!   of a known origin ──► its own bucket, by how many keys are known there ─┐ empty
//!   any other ──────────────────────────────────────────────────────────────┴► has its origin been here lately?
//!                                                       no: newcomers' bucket     yes: the crowd's bucket
//! ```
//!
//! Whoever floods is soon of the crowd, and waits there with others like him. Newcomers do not notice him. A turn that
//! ends with a good certificate is given back, so that a fleet that comes home all at once is not slowed.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::origin::Origin;

/// So many a second on average, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    pub(super) burst: f64,
}

/// Handshakes of origins that have had few lately, all together.
const NEWCOMERS: Rate = Rate { per_second: 400.0, burst: 256.0 };
/// Of all others. With newcomers' it is what strangers can have of us: at a fifth of a millisecond each, a tenth of two
/// cores.
const CROWD: Rate = Rate { per_second: 800.0, burst: 256.0 };
/// What makes an origin a newcomer's: no more than this.
const FEW: Rate = Rate { per_second: 1.0, burst: 16.0 };
/// How long one waits for a turn. Longer lines would serve no one more, only later.
const WAIT: Duration = Duration::from_millis(500);
/// Origins whose turns are counted. Beyond it everybody is of the crowd until some are forgotten, which takes as long as
/// it takes to fill a bucket: 16 s.
const ORIGINS: usize = 16_384;

/// Tokens, as many as time has brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        Self { tokens: rate.burst, at: now }
    }

    pub(super) fn empty(now: Instant) -> Self {
        Self { tokens: 0.0, at: now }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate.per_second).min(rate.burst);
        self.at = self.at.max(now);
    }

    /// Takes a token, and says how long it is until it is there; none if that is longer than `most`.
    pub(super) fn take(&mut self, rate: Rate, now: Instant, most: Duration) -> Option<Duration> {
        self.refill(rate, now);
        let left = self.tokens - 1.0;
        let wait = Duration::try_from_secs_f64((-left / rate.per_second).max(0.0)).ok()?;
        (wait <= most).then(|| {
            self.tokens = left;
            wait
        })
    }

    pub(super) fn give(&mut self, rate: Rate, now: Instant) {
        self.refill(rate, now);
        self.tokens = (self.tokens + 1.0).min(rate.burst);
    }

    fn is_full(&mut self, rate: Rate, now: Instant) -> bool {
        self.refill(rate, now);
        self.tokens >= rate.burst
    }
}

/// From which bucket a turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Of an origin where good credentials were seen lately.
    Known,
    Newcomer,
    Crowd,
}

impl Class {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Newcomer => "newcomer",
            Self::Crowd => "crowd",
        }
    }
}

/// The turns of those of whom nothing is known.
#[derive(Debug)]
pub(super) struct Paces {
    newcomers: Bucket,
    crowd: Bucket,
    origins: BTreeMap<Origin, Bucket>,
    swept: Instant,
}

impl Paces {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            newcomers: Bucket::full(NEWCOMERS, now),
            crowd: Bucket::full(CROWD, now),
            origins: BTreeMap::new(),
            swept: now,
        }
    }

    /// A turn, and how long it is until then; none if too many have asked.
    pub(super) fn take(&mut self, origin: Origin, now: Instant) -> Option<(Class, Duration)> {
        if self.is_newcomer(origin, now)
            && let Some(wait) = self.newcomers.take(NEWCOMERS, now, WAIT)
        {
            return Some((Class::Newcomer, wait));
        }
        self.crowd.take(CROWD, now, WAIT).map(|wait| (Class::Crowd, wait))
    }

    /// Whether the origin has asked seldom. Asking counts, whatever comes of it.
    fn is_newcomer(&mut self, origin: Origin, now: Instant) -> bool {
        if self.origins.len() >= ORIGINS && !self.origins.contains_key(&origin) {
            if now.saturating_duration_since(self.swept) >= Duration::from_secs(1) {
                self.swept = now;
                self.origins.retain(|_, bucket| !bucket.is_full(FEW, now));
            }
            if self.origins.len() >= ORIGINS {
                return false;
            }
        }
        let bucket = self.origins.entry(origin).or_insert_with(|| Bucket::full(FEW, now));
        bucket.take(FEW, now, Duration::ZERO).is_some()
    }

    /// Gives a turn back.
    pub(super) fn give(&mut self, origin: Origin, class: Class, now: Instant) {
        match class {
            Class::Known => return,
            Class::Newcomer => self.newcomers.give(NEWCOMERS, now),
            Class::Crowd => self.crowd.give(CROWD, now),
        }
        if let Some(bucket) = self.origins.get_mut(&origin) {
            bucket.give(FEW, now);
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

    #[test]
    fn a_bucket_gives_what_time_has_brought() {
        let rate = Rate { per_second: 2.0, burst: 3.0 };
        let start = Instant::now();
        let mut bucket = Bucket::full(rate, start);
        let mut take = |at: u64, most: u64| {
            let now = start + Duration::from_millis(at);
            bucket.take(rate, now, Duration::from_millis(most)).map(|wait| wait.as_millis())
        };
        let cases = [
            ("three at once", 0, 0, Some(0)),
            ("three at once", 0, 0, Some(0)),
            ("three at once", 0, 0, Some(0)),
            ("and no fourth", 0, 0, None),
            ("but to who waits", 0, 500, Some(500)),
            ("a line", 0, 600, None),
            ("which moves", 500, 500, Some(500)),
            ("time is not had twice", 500, 499, None),
            ("nor is more kept than the bucket holds", 60_000, 0, Some(0)),
            ("nor is more kept than the bucket holds", 60_000, 0, Some(0)),
            ("nor is more kept than the bucket holds", 60_000, 0, Some(0)),
            ("nor is more kept than the bucket holds", 60_000, 499, None),
            ("a clock that goes back brings nothing", 59_000, 499, None),
        ];
        for (what, at, most, want) in cases {
            assert_eq!(take(at, most), want, "{what}");
        }
    }

    #[test]
    fn a_flood_is_held_to_its_rate_and_newcomers_do_not_notice() {
        let start = Instant::now();
        let mut paces = Paces::new(start);
        let (mut granted, seconds) = (0_u32, 60);
        for i in 0..seconds * 5_000 {
            let now = start + Duration::from_micros(200) * i;
            granted += u32::from(paces.take(origin(i % 3), now).is_some());
            if i % 100 == 0 {
                let newcomer = paces.take(origin(1_000 + i), now);
                assert_eq!(newcomer, Some((Class::Newcomer, Duration::ZERO)), "after {i}");
            }
        }
        let most = CROWD.burst + CROWD.per_second * (f64::from(seconds) + 0.5);
        let of_newcomers = 3.0 * (FEW.burst + FEW.per_second * f64::from(seconds));
        assert!(f64::from(granted) <= most + of_newcomers + 1.0, "{granted}");
        assert!(f64::from(granted) >= CROWD.per_second * f64::from(seconds - 1), "{granted}");
    }

    #[test]
    fn what_ends_well_is_given_back() {
        let now = Instant::now();
        let mut paces = Paces::new(now);
        for i in 0..10_000 {
            let (class, wait) = paces.take(origin(1), now).expect("a turn");
            assert_eq!((class, wait), (Class::Newcomer, Duration::ZERO), "{i}");
            paces.give(origin(1), class, now);
        }
    }

    #[test]
    fn so_many_origins_are_counted_and_no_more() {
        let start = Instant::now();
        let mut paces = Paces::new(start);
        for i in 0..200_000 {
            paces.take(origin(i), start + Duration::from_micros(20) * i);
        }
        assert_eq!(paces.origins.len(), ORIGINS);
        let later = start + Duration::from_secs(60);
        assert_eq!(paces.take(origin(999_999), later), Some((Class::Newcomer, Duration::ZERO)));
        assert_eq!(paces.origins.len(), 1);
    }
}
