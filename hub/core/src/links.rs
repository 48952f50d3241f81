//! What kind of link a cluster has to its hub, and what follows from that: how often it gives a sign of life, how long it may be
//! silent, how much it may say.
//!
//! | | lan | cellular | satellite | scheduled |
//! |---|---|---|---|---|
//! | a Lease is good for, and is renewed four times as often | 40 s | 40 s | 10 min | 10 min |
//! | an idle connection is asked for a sign of life after, and given up after so long without one | 5.4 + 2.5 s | 11 + 6 s | 3 min + 30 s | 3 min + 30 s |
//! | an answer is waited for | 13 s | 13 s | 30 s | 30 s |
//! | bytes have the time beside all that which a line takes for them that carries | 128 KiB/s | 2 KiB/s | 2 KiB/s | 2 KiB/s |
//! | the longest pause between attempts to connect | 1 s | 1.5 s | 15 s | 60 s |
//! | an attempt that hangs gets another beside it after | 1 s | 2.5 s | 10 s | 10 s |
//! | a Work's status waits for its successor | 60 ms | 60 ms | 30 s | 30 s |
//! | figures of nodes and Pods are told at most every | 10 s | 10 s | 5 min | 5 min |
//! | reports in an hour | – | – | 256 KiB | 1 MiB |
//! | what crosses tunnels in an hour | – | – | 4 MiB | 16 MiB |
//!
//! On a LAN a dead link is known within eight seconds, also while a report is on its way. On links of which each byte is paid
//! for a renewal is the sign of life: nothing else is sent while nothing happens. `scheduled` is a link that is there at
//! certain times ([`Windows`]); at others its cluster's silence is no loss.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use karmada_meta::time::Time;

use crate::windows::{Stand, Windows};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Bytes cost nothing, and what is silent for seconds is dead.
    Lan,
    /// Carrier NAT, some packets lost, seconds of silence now and then. Holds for any link that is there all the time.
    #[default]
    Cellular,
    /// Half a second each way, and every byte is paid for.
    Satellite,
    /// The same, and only there at certain times.
    Scheduled,
}

/// What follows from a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What the agent's Lease promises.
    pub lease: Duration,
    /// An idle connection is asked for a sign of life after so much silence.
    pub ping_after: Duration,
    /// It is given up when none has come so much later.
    pub ping_answer: Duration,
    /// How long an answer is waited for, beside what its bytes take.
    pub answer: Duration,
    /// What the slowest line carries that is served, in bytes a second: bytes that are on their way have the time beside these that
    /// they take on it.
    pub slowest: u64,
    /// The longest pause between attempts to connect.
    pub redial: Duration,
    /// An attempt that hangs gets another beside it after so long.
    pub hedge: Duration,
    /// How long a Work's status waits for its successor.
    pub gather: Duration,
    /// How often figures are told at most.
    pub figures: Duration,
    /// Bytes of reports in an hour; any number, if there is none.
    pub reports: Option<u64>,
}

impl Terms {
    /// Bytes that may cross tunnels in an hour, in both directions together; any number, if there is none. They have a budget of
    /// their own: whoever looks at a member is not to keep it from telling how it is.
    pub fn tunnels(&self) -> Option<u64> {
        self.reports.map(|bytes| bytes.saturating_mul(TUNNELS))
    }
}

/// So many times what reports may take, tunnels may: one look at a member is worth dozens of reports.
const TUNNELS: u64 = 16;

/// Half of a line at the edge of a cell.
const SLOWEST: u64 = 2 << 10;
/// A megabit a second. Slower ones are no LAN.
const SLOWEST_LAN: u64 = 128 << 10;

/// A text that names no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Link::ALL.iter().map(|link| link.name()).collect();
        write!(f, "{:?} is no kind of link: they are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for Unknown {}

impl FromStr for Link {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let known = Self::ALL.into_iter().find(|link| link.name() == text);
        known.ok_or_else(|| Unknown(text.to_owned()))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Link {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Lan, Self::Cellular, Self::Satellite, Self::Scheduled];

    /// How it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lan => "lan",
            Self::Cellular => "cellular",
            Self::Satellite => "satellite",
            Self::Scheduled => "scheduled",
        }
    }

    /// What follows from it.
    pub fn terms(self) -> Terms {
        let seconds = Duration::from_secs;
        let millis = Duration::from_millis;
        let cellular = Terms {
            lease: seconds(40),
            ping_after: seconds(11),
            ping_answer: seconds(6),
            answer: seconds(13),
            slowest: SLOWEST,
            redial: millis(1500),
            hedge: millis(2500),
            gather: millis(60),
            figures: seconds(10),
            reports: None,
        };
        let satellite = Terms {
            lease: seconds(600),
            ping_after: seconds(180),
            ping_answer: seconds(30),
            answer: seconds(30),
            slowest: SLOWEST,
            redial: seconds(15),
            hedge: seconds(10),
            gather: seconds(30),
            figures: seconds(300),
            reports: Some(256 << 10),
        };
        match self {
            // Between two renewals there is one question: it comes so late that the next one would follow a renewal.
            Self::Lan => Terms {
                ping_after: millis(5400),
                ping_answer: millis(2500),
                slowest: SLOWEST_LAN,
                redial: seconds(1),
                hedge: seconds(1),
                ..cellular
            },
            Self::Cellular => cellular,
            Self::Satellite => satellite,
            Self::Scheduled => Terms { redial: seconds(60), reports: Some(1 << 20), ..satellite },
        }
    }
}

/// Whether a sign of life is to be expected of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// At any time.
    Always,
    /// For so long by now.
    For(Duration),
    /// Not before then.
    From(Time),
    /// What is said of its times cannot be read, so at any time.
    Unreadable(String),
}

/// Whether a cluster is to be heard of now, by what is said of the times at which its link is there.
pub fn expected(windows: Option<&str>, now: SystemTime) -> Expected {
    let Some(text) = windows else { return Expected::Always };
    let windows = match Windows::parse(text) {
        Ok(windows) => windows,
        Err(error) => return Expected::Unreadable(error.to_string()),
    };
    match (windows.open_since(now), windows.at(now)) {
        (Some(since), _) => Expected::For(since.elapsed(now)),
        (None, Stand::Shut(until)) => Expected::From(until),
        (None, Stand::Open(_)) => Expected::Always,
    }
}

/// How much a report matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matter {
    /// What is searched on the member.
    Copy,
    /// An event.
    Event,
    /// The status of objects, figures of the cluster.
    Status,
    /// What conditions say.
    Condition,
}

/// Bytes that reports may take: so many within any hour. A part of them is kept for what matters more.
#[derive(Clone, Debug)]
pub struct Budget {
    hourly: u64,
    /// What is left. Below nothing, where a report was larger than all there ever is.
    left: f64,
    at: Duration,
}

/// So much of an hour's bytes may go at once; the rest comes as time goes on, so that no hour has more.
const AT_ONCE: f64 = 0.25;

const HOUR: f64 = 3600.0;

impl Budget {
    /// A full one.
    pub fn new(hourly: u64, now: Duration) -> Self {
        let hourly = hourly.max(1);
        Self { hourly, left: Self::most(hourly), at: now }
    }

    /// One in which nothing is there yet.
    pub fn empty(hourly: u64, now: Duration) -> Self {
        Self { left: 0.0, ..Self::new(hourly, now) }
    }

    fn most(hourly: u64) -> f64 {
        hourly as f64 * AT_ONCE
    }

    fn per_second(&self) -> f64 {
        self.hourly as f64 * (1.0 - AT_ONCE) / HOUR
    }

    /// Of what there is at once, what is left to what matters more.
    fn kept(matter: Matter) -> f64 {
        match matter {
            Matter::Copy => 0.75,
            Matter::Event => 0.5,
            Matter::Status => 0.25,
            Matter::Condition => 0.0,
        }
    }

    /// The largest report about this that never takes what is kept for others.
    pub fn largest(hourly: u64, matter: Matter) -> u64 {
        ((1.0 - Self::kept(matter)) * Self::most(hourly.max(1))) as u64
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * self.per_second()).min(Self::most(self.hourly));
        self.at = self.at.max(now);
    }

    /// Takes bytes that have gone already.
    pub fn spend(&mut self, bytes: u64, now: Duration) {
        self.fill(now);
        self.left -= bytes as f64;
    }

    /// What has gone beyond all there was, and in how long that is made up for.
    pub fn owed(&mut self, now: Duration) -> (u64, Duration) {
        self.fill(now);
        if self.left >= 1.0 {
            return (0, Duration::ZERO);
        }
        let wait = Duration::try_from_secs_f64((1.0 - self.left) / self.per_second());
        ((-self.left).max(0.0) as u64, wait.unwrap_or(Duration::MAX).max(Duration::from_millis(1)))
    }

    /// Takes bytes for a report.
    ///
    /// # Errors
    /// For how long it has to wait.
    pub fn take(&mut self, bytes: u64, matter: Matter, now: Duration) -> Result<(), Duration> {
        self.fill(now);
        let most = Self::most(self.hourly);
        // One that is larger than all there ever is goes when all of it is there.
        let wanted = (bytes as f64 + Self::kept(matter) * most).min(most);
        if self.left >= wanted {
            self.left -= bytes as f64;
            return Ok(());
        }
        let wait = (wanted - self.left) / self.per_second();
        Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX).max(Duration::from_millis(1)))
    }

    /// What is left.
    pub fn left(&self, now: Duration) -> u64 {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        (self.left + passed * self.per_second()).clamp(0.0, Self::most(self.hourly)) as u64
    }

    /// What there is in an hour.
    pub fn hourly(&self) -> u64 {
        self.hourly
    }

    /// In how long so many bytes are there again.
    pub fn takes(&self, bytes: u64) -> Duration {
        Duration::try_from_secs_f64(bytes as f64 / self.per_second()).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn each_is_named_and_its_terms_go_together() {
        for link in Link::ALL {
            assert_eq!(link.to_string().parse(), Ok(link));
            let Terms { lease, ping_after, ping_answer, answer, redial, .. } = link.terms();
            let renewal = lease / 4;
            // A link that dies is known before the Lease ends, and before a second renewal is due.
            assert!(ping_after + ping_answer < 2 * renewal && renewal + answer < lease, "{link}");
            assert!(redial < lease / 4, "{link}");
            // Nothing is asked where renewals tell as much; on a LAN once in between.
            assert!(ping_after > renewal || link == Link::Lan && ping_after * 2 > renewal, "{link}");
        }
        assert_eq!(
            "modem".parse::<Link>().unwrap_err().to_string(),
            "\"modem\" is no kind of link: they are lan, cellular, satellite, scheduled"
        );
        // With a report of 12 KB on its way.
        let Terms { ping_after, ping_answer, slowest, .. } = Link::Lan.terms();
        let report = Duration::from_millis(12_000 * 1000 / slowest);
        assert!(ping_after + ping_answer + report <= Duration::from_secs(8));
    }

    #[test]
    fn a_cluster_is_expected_while_its_link_is_to_be_there() {
        let at = |text: &str| SystemTime::from(text.parse::<Time>().unwrap().timestamp());
        let seconds = |n| Expected::For(Duration::from_secs(n));
        let nights = Some("02:00-04:00 Europe/Berlin");
        for (windows, now, want) in [
            (None, "2026-11-24T12:00:00Z", Expected::Always),
            (nights, "2026-11-24T01:30:00Z", seconds(1800)),
            (nights, "2026-11-24T01:00:00Z", seconds(0)),
            (nights, "2026-11-24T03:00:00Z", Expected::From("2026-11-25T01:00:00Z".parse().unwrap())),
            // Two windows that touch are one.
            (Some("01:00-02:00; 02:00-03:00"), "2026-11-24T02:30:00Z", seconds(5400)),
        ] {
            assert_eq!(expected(windows, at(now)), want, "{windows:?} {now}");
        }
        assert!(matches!(expected(Some("at night"), at("2026-11-24T12:00:00Z")), Expected::Unreadable(_)));
        let Expected::For(length) = expected(Some("00:00-24:00"), at("2026-11-24T12:00:00Z")) else {
            panic!()
        };
        assert!(length >= Duration::from_secs(36 * 3600), "{length:?}");
    }

    #[test]
    fn what_matters_more_goes_when_the_rest_waits() {
        let now = Duration::from_secs(1000);
        let mut budget = Budget::new(256 * KIB, now);
        // 64 KiB at once, of which half is for more than events, and of that half for more than what is searched.
        assert_eq!(Budget::largest(256 * KIB, Matter::Copy), 16 * KIB);
        assert_eq!(budget.clone().take(16 * KIB, Matter::Copy, now), Ok(()));
        let mut less = budget.clone();
        assert_eq!(less.take(KIB, Matter::Event, now), Ok(()));
        assert!(less.take(16 * KIB, Matter::Copy, now).is_err());
        assert_eq!(budget.take(32 * KIB, Matter::Event, now), Ok(()));
        assert!(budget.take(1, Matter::Event, now).is_err());
        assert_eq!(budget.take(16 * KIB, Matter::Status, now), Ok(()));
        assert!(budget.take(1, Matter::Status, now).is_err());
        assert_eq!(budget.take(16 * KIB, Matter::Condition, now), Ok(()));
        let wait = budget.take(KIB, Matter::Condition, now).unwrap_err();
        assert!((18..=20).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!(budget.take(KIB, Matter::Condition, now + wait), Ok(()));
        assert_eq!(budget.left(now + wait), 0);
    }

    #[test]
    fn one_that_is_larger_than_all_goes_and_is_paid_for_afterwards() {
        let mut budget = Budget::new(40 * KIB, Duration::ZERO);
        assert_eq!(budget.take(30 * KIB, Matter::Status, Duration::ZERO), Ok(()));
        let wait = budget.take(1, Matter::Condition, Duration::ZERO).unwrap_err();
        assert!((2390..=2410).contains(&wait.as_secs()), "{wait:?}");
    }

    #[test]
    fn what_has_gone_already_is_owed() {
        let mut budget = Budget::new(64 * KIB, Duration::ZERO);
        assert_eq!(budget.owed(Duration::ZERO), (0, Duration::ZERO));
        budget.spend(16 * KIB + 48 * KIB, Duration::ZERO);
        let (owed, wait) = budget.owed(Duration::ZERO);
        assert_eq!(owed, 48 * KIB);
        assert!((3600..=3601).contains(&wait.as_secs()), "{wait:?}");
        let half = budget.owed(Duration::from_secs(1800)).0;
        assert!((24 * KIB - 1..=24 * KIB).contains(&half), "{half}");
        assert_eq!(budget.owed(wait + Duration::from_secs(1)), (0, Duration::ZERO));
        let tunnels = Link::ALL.map(|link| link.terms().tunnels());
        assert_eq!(tunnels, [None, None, Some(4096 * KIB), Some(16384 * KIB)]);
    }

    proptest! {
        /// No hour has more than was said, whatever is asked for when, but for one that is larger than all there is at once.
        #[test]
        fn no_hour_has_more(asked in prop::collection::vec((0u64..400, 1u64..8_000), 1..300)) {
            let mut budget = Budget::new(32_000, Duration::ZERO);
            let (mut now, mut taken) = (Duration::ZERO, Vec::new());
            for (pause, bytes) in asked {
                now += Duration::from_secs(pause);
                if budget.take(bytes, Matter::Condition, now).is_ok() {
                    taken.push((now, bytes));
                }
            }
            for (at, _) in &taken {
                let within = |then: &Duration| *then >= *at && *then < *at + Duration::from_secs(3600);
                let sum: u64 = taken.iter().filter(|(then, _)| within(then)).map(|(_, bytes)| bytes).sum();
                prop_assert!(sum <= 32_001, "{sum} bytes in the hour from {at:?}");
            }
        }
    }
}
