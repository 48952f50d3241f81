//! Time, randomness and ids, handed in as one value.
//!
//! Nothing in this project reads a clock or a random source of its own: it is given an [`Env`]. A process makes
//! one with [`Env::system`]; a test makes one from a clock it moves and a seed, so that the same seed gives the
//! same run.
//!
//! A process' randomness comes from the operating system; a test's follows from its seed. What somebody could gain by
//! guessing it (a token, the id of a session, a nonce) is a [`Secret`], and not an [`Env`]'s to give: keys and serial
//! numbers of certificates come from the crypto provider.
//!
//! Two clocks are told apart. [`Env::now`] is monotonic and only good for differences; [`Env::wall`] is what
//! people read and what goes into objects, and it may jump.

mod secret;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

pub use self::secret::Secret;

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time since a start that the clock chooses.
    fn now(&self) -> Duration;
    /// The time of day.
    fn wall(&self) -> SystemTime;
}

/// Where randomness comes from.
pub trait Random: Send + Sync + 'static {
    /// The next 64 random bits.
    fn next_u64(&self) -> u64;
}

/// The environment of a component: clocks, randomness, ids. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}

/// Letters and digits of generated names: no vowels, nothing easily confused (Kubernetes' `rand` alphabet).
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Env {
    /// An environment of the given parts.
    pub fn new(clock: impl Clock, random: impl Random) -> Self {
        Self { clock: Arc::new(clock), random: Arc::new(random) }
    }

    /// The operating system's clocks and randomness.
    #[expect(clippy::disallowed_methods, reason = "the one place where the real clock is read")]
    pub fn system() -> Self {
        Self::new(SystemClock { start: Instant::now() }, System::default())
    }

    /// A clock of the caller's and a reproducible source of randomness.
    pub fn seeded(clock: impl Clock, seed: u64) -> Self {
        Self::new(clock, SplitMix::new(seed))
    }

    /// Monotonic time. Only differences mean anything.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The time of day.
    pub fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// 64 random bits, for what may be known: jitter, names, ids. See [`Secret`] for what may not.
    pub fn random(&self) -> u64 {
        self.random.next_u64()
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        // The high half of a 128-bit product is uniform enough for jitter and names.
        ((u128::from(self.random()) * u128::from(bound)) >> 64) as u64
    }

    /// A duration drawn evenly from `base` to `base * (1 + fraction)`.
    pub fn jitter(&self, base: Duration, fraction: f64) -> Duration {
        let unit = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
        base + base.mul_f64(fraction.max(0.0) * unit)
    }

    /// Until the next of the instants, `period` apart, that all have in common who ask in the same name: at most `period`. What
    /// is looked at now and then is so looked at together, for each time that an idle program wakes up costs it something, and
    /// those of other names come at other times.
    pub fn beat(&self, name: &str, period: Duration) -> Duration {
        // FNV-1a: the same in each process, and good enough to spread by.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
        let now = (self.now().as_micros() % u128::from(period)) as u64;
        let into = (u128::from(now) + u128::from(hash)) % u128::from(period);
        Duration::from_micros(period - into as u64)
    }

    /// A random (version 4) UUID in its usual lower-case form: for what is told apart by it (objects, requests, runs of
    /// a process, holders of a lease), never for what is let in by it. See [`Secret`].
    pub fn uuid(&self) -> String {
        let (hi, lo) = (self.random(), self.random());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            hi >> 32,
            (hi >> 16) & 0xffff,
            hi & 0xfff,
            0x8000 | ((lo >> 48) & 0x3fff),
            lo & 0xffff_ffff_ffff,
        )
    }

    /// `len` characters that may end a generated object name.
    pub fn name_suffix(&self, len: usize) -> String {
        (0..len).map(|_| char::from(NAME_ALPHABET[self.below(NAME_ALPHABET.len() as u64) as usize])).collect()
    }
}

/// The operating system's clocks.
struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where the real clock is read")]
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The operating system's randomness, some at a time.
#[derive(Default)]
struct System(Mutex<Vec<u8>>);

impl System {
    /// Bytes that are asked for at a time.
    const AT_A_TIME: usize = 512;
}

impl Random for System {
    fn next_u64(&self) -> u64 {
        const LEN: usize = size_of::<u64>();
        let mut left = self.0.lock();
        if left.len() < LEN {
            left.resize(Self::AT_A_TIME, 0);
            secret::fill(&mut left);
        }
        // What was given out is not kept.
        let rest = left.len() - LEN;
        let number = left[rest..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        left.truncate(rest);
        number
    }
}

/// SplitMix64: small, fast, and every seed gives a full-period sequence. For tests and simulations: whoever sees one number
/// knows all that follow.
#[derive(Debug)]
pub struct SplitMix(AtomicU64);

impl SplitMix {
    /// A sequence that depends on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Random for SplitMix {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A clock that stands still until it is moved.
#[derive(Clone, Debug)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
    epoch: SystemTime,
}

impl ManualClock {
    /// A clock at zero whose wall time is `epoch`.
    pub fn new(epoch: SystemTime) -> Self {
        Self { micros: Arc::default(), epoch }
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        self.micros.fetch_add(by.as_micros() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn wall(&self) -> SystemTime {
        self.epoch + self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(seed: u64) -> Env {
        Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), seed)
    }

    #[test]
    fn a_seed_decides_everything() {
        let (a, b, c) = (fixed(7), fixed(7), fixed(8));
        let first: Vec<_> = (0..5).map(|_| a.uuid()).collect();
        assert_eq!(first, (0..5).map(|_| b.uuid()).collect::<Vec<_>>());
        assert_ne!(first[0], c.uuid());
    }

    /// The state in which a [`SplitMix`] is that gave a number.
    fn state_behind(mut z: u64) -> u64 {
        // Newton's method: each round doubles the bits that are right.
        let inverse =
            |odd: u64| (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))));
        let unshift = |z: u64, by: u32| (0..64 / by).fold(z, |x, _| z ^ (x >> by));
        z = unshift(z, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
        z = unshift(z, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
        unshift(z, 30)
    }

    #[test]
    fn a_process_cannot_be_predicted() {
        let follows = |env: &Env| {
            let seen = env.random();
            SplitMix::new(state_behind(seen)).next_u64() == env.random()
        };
        assert!(follows(&fixed(9)), "as anybody can who sees one number of a test");
        let system = Env::system();
        assert!((0..10).all(|_| !follows(&system)));
        let drawn: std::collections::BTreeSet<u64> = (0..1000).map(|_| system.random()).collect();
        assert_eq!(drawn.len(), 1000, "also across what is drawn at a time");
    }

    #[test]
    fn uuids_are_version_4() {
        let env = fixed(1);
        for _ in 0..100 {
            let id = env.uuid();
            assert_eq!(id.len(), 36, "{id}");
            assert_eq!(&id[14..15], "4", "{id}");
            assert!("89ab".contains(&id[19..20]), "{id}");
        }
    }

    #[test]
    fn numbers_and_jitter_stay_in_bounds() {
        let env = fixed(2);
        assert_eq!(env.below(0), 0);
        for _ in 0..1000 {
            assert!(env.below(7) < 7);
            let d = env.jitter(Duration::from_secs(10), 0.25);
            assert!((Duration::from_secs(10)..=Duration::from_millis(12_500)).contains(&d), "{d:?}");
        }
    }

    #[test]
    fn beats_of_one_name_are_together_and_those_of_others_are_not() {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let env = Env::seeded(clock.clone(), 0);
        let (often, seldom) = (Duration::from_secs(10), Duration::from_secs(60));
        for _ in 0..1000 {
            clock.advance(Duration::from_micros(env.below(30_000_000)));
            let beat = env.beat("a", often);
            assert!(!beat.is_zero() && beat <= often, "{beat:?}");
            clock.advance(env.beat("a", seldom));
            assert_eq!(env.beat("a", often), often, "at one of a minute there is one of ten seconds");
            assert_eq!(env.beat("a", seldom), seldom, "the next one, not the same again");
        }
        let mut drawn: Vec<_> = (0..200).map(|n| env.beat(&format!("member{n}"), often)).collect();
        drawn.sort_unstable();
        assert!(drawn[20] < often / 5 && drawn[180] > often / 5 * 4, "{drawn:?}");
    }

    #[test]
    fn a_manual_clock_moves_both_clocks() {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let env = Env::seeded(clock.clone(), 0);
        clock.advance(Duration::from_secs(3));
        assert_eq!(env.now(), Duration::from_secs(3));
        assert_eq!(env.wall(), SystemTime::UNIX_EPOCH + Duration::from_secs(3));
    }

    #[test]
    fn name_suffixes_use_the_safe_alphabet() {
        let s = fixed(3).name_suffix(64);
        assert!(s.bytes().all(|b| NAME_ALPHABET.contains(&b)), "{s}");
    }
}
