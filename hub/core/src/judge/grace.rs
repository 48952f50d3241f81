//! How long one cluster may be silent: by its annotation, by what its link is used to, and by its agent's word.
//!
//! A silence is the time between two signs of life that the hub saw all of. An *ordinary* silence is one that was
//! reached three times within a day: twice is chance. The grace is twice the longest ordinary silence, not below the
//! hub's own grace and not above the most that the operator allows (`--cluster-monitor-max-grace-period`, ten minutes;
//! set to the hub's grace, it turns learning off). Longer silences than that are outages and teach nothing. The user's
//! word (`cluster.karmada.io/grace-period` on the Cluster) goes before all of it; one that cannot be read is said to be
//! so, and the link's history counts.
//!
//! An agent says by `spec.leaseDurationSeconds` of its Lease for how long it may be silent, and renews every quarter of
//! that, or every half at most. The grace is never below it: the cluster would be lost and found between two renewals.
//! A user who asks for less on the Cluster gets it, down to half of what the Lease says and to twice the period of the
//! hub's looks. An agent cannot make the hub wait as long as it likes: what is beyond `--cluster-max-lease-duration` (ten
//! minutes) is not honoured. Settings that do not go together are named: by the condition, and once in the log.
//!
//! What is kept of a link is the three longest silences of each of the last 24 hours, and of a good link nothing.
//!
#![doc = include_str!("grace.md")]

use std::{collections::BTreeMap, fmt, time::Duration};

use karmada_api::consts::lease;
use karmada_meta::duration;

/// How often a silence must have been reached to be ordinary; so many are kept of each hour.
const TIMES: usize = 3;

/// How many hours are remembered, the present one included.
const HOURS: i64 = 25;

/// An hour, by which silences are sorted.
const HOUR: u64 = 3600;

/// The grace is the longest ordinary silence so many times over.
const FACTOR: u32 = 2;

/// No cluster can be granted more by its annotation.
const MOST_ANNOTATED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Between what a grace stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The hub's grace (`--cluster-monitor-grace-period`).
    pub least: Duration,
    /// The most that is learnt (`--cluster-monitor-max-grace-period`).
    pub most: Duration,
    /// The most that an agent is believed (`--cluster-max-lease-duration`).
    pub most_promised: Duration,
    /// How often clusters are looked at (`--cluster-monitor-period`).
    pub period: Duration,
}

impl Settings {
    /// The default of [`Settings::most`].
    pub const MOST: Duration = Duration::from_secs(600);
    /// The default of [`Settings::most_promised`].
    pub const MOST_PROMISED: Duration = Duration::from_secs(600);
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            least: lease::MONITOR_GRACE,
            most: Self::MOST,
            most_promised: Self::MOST_PROMISED,
            period: lease::MONITOR_PERIOD,
        }
    }
}

/// What is said about one cluster's grace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said<'a> {
    /// By its user: the Cluster's annotation.
    pub annotation: Option<&'a str>,
    /// By its agent: `leaseDurationSeconds` of its Lease.
    pub lease: Option<Duration>,
}

/// Where a grace comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is the hub's.
    Default,
    /// The Cluster's annotation says so.
    Annotated,
    /// From the link's history, with its longest ordinary silence.
    Learnt(Duration),
    /// The Cluster's annotation is this and cannot be read; the grace is what it would be without it.
    Invalid(String),
}

impl Source {
    /// The reason of the condition that tells of it; none for the hub's own grace.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::Annotated => Some("GraceAnnotated"),
            Self::Learnt(_) => Some("GraceLearnt"),
            Self::Invalid(_) => Some("GraceInvalid"),
        }
    }
}

/// The reasons of the condition that say that settings do not go together.
pub const AT_ODDS: [&str; 3] = ["GraceInvalid", RAISED, TOO_LONG];
const RAISED: &str = "GraceRaised";
const TOO_LONG: &str = "LeaseTooLong";

/// What raised a grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// The agent's Lease is good for so long.
    Lease(Duration),
    /// The hub looks so often.
    Period(Duration),
}

/// Settings of a hub and an agent that do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The grace would have been so long, which is too short.
    Raised(Duration, Floor),
    /// The agent's Lease is good for so long, and the hub honours less: so much.
    TooLong(Duration, Duration),
}

/// How long a cluster may be silent, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grace {
    /// How long.
    pub length: Duration,
    /// Why, but for what [`Grace::conflict`] changed.
    pub source: Source,
    /// What does not go together, and changed the length or should have.
    pub conflict: Option<Conflict>,
}

impl Grace {
    /// The reason of the condition that tells of it; none where there is nothing to tell.
    pub fn reason(&self) -> Option<&'static str> {
        match (&self.source, self.conflict) {
            (_, Some(Conflict::TooLong(..))) => Some(TOO_LONG),
            (Source::Invalid(_), _) => self.source.reason(),
            (_, Some(Conflict::Raised(..))) => Some(RAISED),
            (source, None) => source.reason(),
        }
    }
}

impl fmt::Display for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = duration::format(self.length);
        if let Some(conflict) = self.conflict {
            write!(f, "the cluster may be silent for {length}")?;
            match (conflict, &self.source) {
                (Conflict::Raised(from, Floor::Lease(lease)), Source::Annotated) => write!(
                    f,
                    ": its annotation asks for {}, less than half of the {} for which its agent's Lease is good \
                     (leaseDurationSeconds); ask for more, or give the agent a shorter --cluster-lease-duration",
                    duration::format(from),
                    duration::format(lease)
                ),
                (Conflict::Raised(from, Floor::Lease(_)), _) => write!(
                    f,
                    ", as long as its agent's Lease is good (leaseDurationSeconds), where the hub would wait for {}; give \
                     the hub a longer --cluster-monitor-grace-period, or the agent a shorter --cluster-lease-duration",
                    duration::format(from)
                ),
                (Conflict::Raised(from, Floor::Period(period)), _) => write!(
                    f,
                    ": its annotation asks for {}, and the hub looks every {} (--cluster-monitor-period); ask for more, or \
                     let the hub look more often",
                    duration::format(from),
                    duration::format(period)
                ),
                (Conflict::TooLong(lease, honoured), _) => write!(
                    f,
                    ": its agent's Lease is good for {} (leaseDurationSeconds), and the hub honours {} at most \
                     (--cluster-max-lease-duration); give the agent a shorter --cluster-lease-duration, or the cluster may \
                     count as lost between two renewals",
                    duration::format(lease),
                    duration::format(honoured)
                ),
            }?;
            return match &self.source {
                Source::Invalid(text) => write!(f, "; its annotation {text:?} is no duration like 3m"),
                _ => Ok(()),
            };
        }
        match &self.source {
            Source::Default => write!(f, "the cluster may be silent for {length}, as any"),
            Source::Annotated => write!(f, "the cluster may be silent for {length}, by its annotation"),
            Source::Learnt(longest) => {
                let longest = duration::format(*longest);
                write!(f, "the cluster may be silent for {length}: its link is used to silences of {longest}")
            }
            Source::Invalid(text) => {
                write!(
                    f,
                    "the cluster may be silent for {length}; its annotation {text:?} is no duration like 3m"
                )
            }
        }
    }
}

/// What is remembered of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silences {
    /// By the hour in which they ended, the longest first.
    hours: BTreeMap<i64, Vec<Duration>>,
}

impl Silences {
    /// A silence ended. `now` is monotonic.
    pub fn ended(&mut self, silence: Duration, now: Duration, settings: &Settings) {
        if silence * FACTOR <= settings.least || silence > settings.most {
            return;
        }
        let hour = hour(now);
        self.keep(hour, silence);
        self.hours.retain(|kept, _| *kept > hour - HOURS);
    }

    /// What another hub had learnt, so long ago.
    pub fn recall(&mut self, ordinary: Duration, ago: Duration, now: Duration, settings: &Settings) {
        let then = hour(now) - hour(ago);
        if ordinary <= settings.most && then > hour(now) - HOURS {
            for _ in 0..TIMES {
                self.keep(then, ordinary);
            }
        }
    }

    fn keep(&mut self, hour: i64, silence: Duration) {
        let kept = self.hours.entry(hour).or_default();
        let place = kept.partition_point(|other| *other >= silence);
        kept.insert(place, silence);
        kept.truncate(TIMES);
    }

    /// The longest silence that was reached often enough, and the age of the hour in which it last was.
    pub fn ordinary(&self, now: Duration) -> Option<Duration> {
        let oldest = hour(now) - HOURS;
        let recent = self.hours.range(oldest + 1..).flat_map(|(_, kept)| kept);
        let mut longest: Vec<_> = recent.copied().collect();
        longest.sort_unstable_by(|a, b| b.cmp(a));
        longest.get(TIMES - 1).copied()
    }

    /// The grace of a cluster with this link, of which this is said.
    pub fn grace(&self, said: Said<'_>, now: Duration, settings: &Settings) -> Grace {
        let mut grace = self.without_lease(said.annotation, now, settings);
        // A user may ask for less than the agent does, but not for less than it takes to hear of it at all.
        let annotated = grace.source == Source::Annotated;
        let due = match said.lease.unwrap_or_default() {
            lease if annotated => lease / 2,
            lease => lease,
        };
        let looks = if annotated { 2 * settings.period } else { Duration::ZERO };
        let (from, honoured) = (grace.length, due.min(settings.most_promised));
        grace.length = from.max(honoured).max(looks);
        grace.conflict = match said.lease {
            Some(lease) if grace.length < due => Some(Conflict::TooLong(lease, settings.most_promised)),
            Some(lease) if grace.length > from && honoured >= looks => {
                Some(Conflict::Raised(from, Floor::Lease(lease)))
            }
            _ if grace.length > from => Some(Conflict::Raised(from, Floor::Period(settings.period))),
            _ => None,
        };
        grace
    }

    fn without_lease(&self, annotation: Option<&str>, now: Duration, settings: &Settings) -> Grace {
        let learnt = || match self.ordinary(now) {
            Some(longest) if FACTOR * longest > settings.least && settings.most > settings.least => {
                // Whole seconds: what is shown is what is meant.
                let length = Duration::from_secs((FACTOR * longest).as_secs_f64().ceil() as u64);
                let source = Source::Learnt(longest);
                Grace { length: length.min(settings.most), source, conflict: None }
            }
            _ => Grace { length: settings.least, source: Source::Default, conflict: None },
        };
        match annotation.map(|text| (text, duration::parse(text))) {
            None => learnt(),
            Some((_, Ok(length))) if !length.is_zero() && length <= MOST_ANNOTATED => {
                Grace { length, source: Source::Annotated, conflict: None }
            }
            Some((text, _)) => Grace { source: Source::Invalid(text.to_owned()), ..learnt() },
        }
    }
}

fn hour(at: Duration) -> i64 {
    i64::try_from(at.as_secs() / HOUR).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::judge::table;

    fn silences(text: &str) -> impl Iterator<Item = u64> {
        text.split(',').map(str::trim).flat_map(|part| {
            let (times, length) = part.split_once(" x ").unwrap_or(("1", part));
            std::iter::repeat_n(length.parse().unwrap(), times.parse().unwrap())
        })
    }

    #[test]
    fn the_table_holds() {
        let settings = Settings::default();
        for [history, annotation, lease, length, why] in table::rows(include_str!("grace.md")) {
            let (mut link, mut now) = (Silences::default(), Duration::ZERO);
            for silence in silences(history) {
                now += Duration::from_secs(silence);
                link.ended(Duration::from_secs(silence), now, &settings);
            }
            let said = Said {
                annotation: Some(annotation).filter(|text| !text.is_empty()),
                lease: lease.parse().ok().map(Duration::from_secs),
            };
            let grace = link.grace(said, now, &settings);
            let source = match (&grace.source, grace.conflict) {
                (_, Some(Conflict::TooLong(..))) => "lease too long",
                (Source::Invalid(_), _) => "invalid",
                (_, Some(Conflict::Raised(_, Floor::Lease(_)))) => "raised for the lease",
                (_, Some(Conflict::Raised(_, Floor::Period(_)))) => "raised for the period",
                (Source::Default, None) => "default",
                (Source::Annotated, None) => "annotated",
                (Source::Learnt(_), None) => "learnt",
            };
            assert_eq!(
                (duration::format(grace.length).as_str(), source),
                (length, why),
                "{history} | {annotation} | {lease}"
            );
            assert_eq!(grace.reason().is_none(), why == "default", "what is not the hub's is told");
            let at_odds = grace.reason().is_some_and(|reason| AT_ODDS.contains(&reason));
            assert_eq!(at_odds, !["default", "annotated", "learnt"].contains(&why), "{history}");
        }
    }

    #[test]
    fn little_is_kept() {
        let (mut link, settings) = (Silences::default(), Settings::default());
        for minute in 0..100_000_u64 {
            link.ended(Duration::from_secs(30 + minute % 7), Duration::from_secs(60 * minute), &settings);
        }
        assert!(link.hours.values().map(Vec::len).sum::<usize>() <= TIMES * HOURS as usize);
    }

    #[test]
    fn what_was_learnt_is_recalled_until_it_is_old() {
        let settings = Settings::default();
        for (ago, want) in [(0, "2m10s"), (23, "2m10s"), (26, "40s")] {
            let mut link = Silences::default();
            link.recall(
                Duration::from_secs(65),
                Duration::from_secs(ago * HOUR),
                Duration::from_secs(5),
                &settings,
            );
            let grace = link.grace(Said::default(), Duration::from_secs(5), &settings);
            assert_eq!(duration::format(grace.length), want, "{ago} h ago");
        }
    }

    #[test]
    fn learning_can_be_turned_off() {
        let settings = Settings { most: Duration::from_secs(40), ..Settings::default() };
        let mut link = Silences::default();
        for n in 0..9 {
            link.ended(Duration::from_secs(35), Duration::from_secs(n * 35), &settings);
        }
        assert_eq!(link.grace(Said::default(), Duration::from_secs(300), &settings).source, Source::Default);
    }

    #[test]
    fn messages_name_both_sides() {
        let settings = Settings { least: Duration::from_secs(8), ..Settings::default() };
        let rows = [
            (
                Said { lease: Some(Duration::from_secs(40)), annotation: None },
                "the cluster may be silent for 40s, as long as its agent's Lease is good (leaseDurationSeconds), where the \
                 hub would wait for 8s; give the hub a longer --cluster-monitor-grace-period, or the agent a shorter \
                 --cluster-lease-duration",
            ),
            (
                Said { lease: Some(Duration::from_secs(40)), annotation: Some("12") },
                "the cluster may be silent for 40s, as long as its agent's Lease is good (leaseDurationSeconds), where the \
                 hub would wait for 8s; give the hub a longer --cluster-monitor-grace-period, or the agent a shorter \
                 --cluster-lease-duration; its annotation \"12\" is no duration like 3m",
            ),
            (
                Said { lease: Some(Duration::from_secs(40)), annotation: Some("12s") },
                "the cluster may be silent for 20s: its annotation asks for 12s, less than half of the 40s for which its \
                 agent's Lease is good (leaseDurationSeconds); ask for more, or give the agent a shorter \
                 --cluster-lease-duration",
            ),
            (
                Said { lease: Some(Duration::from_secs(4)), annotation: Some("1s") },
                "the cluster may be silent for 10s: its annotation asks for 1s, and the hub looks every 5s \
                 (--cluster-monitor-period); ask for more, or let the hub look more often",
            ),
            (
                Said { lease: Some(Duration::from_secs(86_400)), annotation: None },
                "the cluster may be silent for 10m0s: its agent's Lease is good for 24h0m0s (leaseDurationSeconds), and the \
                 hub honours 10m0s at most (--cluster-max-lease-duration); give the agent a shorter \
                 --cluster-lease-duration, or the cluster may count as lost between two renewals",
            ),
        ];
        for (said, want) in rows {
            let grace = Silences::default().grace(said, Duration::ZERO, &settings);
            assert_eq!(grace.to_string(), want);
        }
    }

    proptest! {
        /// Whatever an agent writes: its cluster is given what it says, or all that the hub honours, and no more than
        /// the most of everything that counts.
        #[test]
        fn an_agent_is_believed_within_bounds(
            lease in prop_oneof![0_u64..2_000, any::<u64>()],
            annotation in proptest::option::of(1_u64..2_000),
            least in 2_u64..1_000,
            ordinary in 0_u64..900,
        ) {
            let settings = Settings { least: Duration::from_secs(least), ..Settings::default() };
            let mut link = Silences::default();
            for _ in 0..TIMES {
                link.ended(Duration::from_secs(ordinary), Duration::ZERO, &settings);
            }
            let text = annotation.map(|seconds| format!("{seconds}s"));
            let said = Said { annotation: text.as_deref(), lease: Some(Duration::from_secs(lease)) };
            let grace = link.grace(said, Duration::ZERO, &settings);
            let without = link.grace(Said { lease: None, ..said }, Duration::ZERO, &settings);
            let honoured = Duration::from_secs(lease).min(settings.most_promised);
            let least = if annotation.is_some() { honoured / 2 } else { honoured };
            prop_assert!(grace.length >= least, "it is heard before it is lost");
            prop_assert!(grace.length >= without.length, "a promise only adds");
            prop_assert!(grace.length <= without.length.max(settings.most_promised));
            prop_assert!(grace.length == without.length || grace.conflict.is_some(), "what changes is named");
            prop_assert!(!grace.to_string().is_empty());
        }
    }
}
