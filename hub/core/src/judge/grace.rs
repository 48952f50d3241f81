//! How long one cluster may be silent: by its annotation, or by what its link is used to.
//!
//! A silence is the time between two signs of life that the hub saw all of. An *ordinary* silence is one that was
//! reached three times within a day: twice is chance. The grace is twice the longest ordinary silence, not below the
//! hub's own grace and not above the most that the operator allows (`--cluster-monitor-max-grace-period`, ten minutes;
//! set to the hub's grace, it turns learning off). Longer silences than that are outages and teach nothing. The user's
//! word (`cluster.karmada.io/grace-period` on the Cluster) goes before all of it; one that cannot be read is said to be
//! so, and the link's history counts.
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

/// Between what a learnt grace stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The hub's grace (`--cluster-monitor-grace-period`).
    pub least: Duration,
    /// The most that is learnt (`--cluster-monitor-max-grace-period`).
    pub most: Duration,
}

impl Settings {
    /// The default of [`Settings::most`].
    pub const MOST: Duration = Duration::from_secs(600);
}

impl Default for Settings {
    fn default() -> Self {
        Self { least: lease::MONITOR_GRACE, most: Self::MOST }
    }
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

/// How long a cluster may be silent, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grace {
    /// How long.
    pub length: Duration,
    /// Why.
    pub source: Source,
}

impl fmt::Display for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = duration::format(self.length);
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

    /// The grace of a cluster with this link and this annotation.
    pub fn grace(&self, annotation: Option<&str>, now: Duration, settings: &Settings) -> Grace {
        let learnt = || match self.ordinary(now) {
            Some(longest) if FACTOR * longest > settings.least && settings.most > settings.least => {
                // Whole seconds: what is shown is what is meant.
                let length = Duration::from_secs((FACTOR * longest).as_secs_f64().ceil() as u64);
                Grace { length: length.min(settings.most), source: Source::Learnt(longest) }
            }
            _ => Grace { length: settings.least, source: Source::Default },
        };
        match annotation.map(|text| (text, duration::parse(text))) {
            None => learnt(),
            Some((_, Ok(length))) if !length.is_zero() && length <= MOST_ANNOTATED => {
                Grace { length, source: Source::Annotated }
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
        for [history, annotation, length, why] in table::rows(include_str!("grace.md")) {
            let (mut link, mut now) = (Silences::default(), Duration::ZERO);
            for silence in silences(history) {
                now += Duration::from_secs(silence);
                link.ended(Duration::from_secs(silence), now, &settings);
            }
            let grace = link.grace(Some(annotation).filter(|text| !text.is_empty()), now, &settings);
            let source = match grace.source {
                Source::Default => "default",
                Source::Annotated => "annotated",
                Source::Learnt(_) => "learnt",
                Source::Invalid(_) => "invalid",
            };
            assert_eq!((duration::format(grace.length).as_str(), source), (length, why), "{history}");
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
            let grace = link.grace(None, Duration::from_secs(5), &settings);
            assert_eq!(duration::format(grace.length), want, "{ago} h ago");
        }
    }

    #[test]
    fn learning_can_be_turned_off() {
        let settings = Settings { least: Duration::from_secs(40), most: Duration::from_secs(40) };
        let mut link = Silences::default();
        for n in 0..9 {
            link.ended(Duration::from_secs(35), Duration::from_secs(n * 35), &settings);
        }
        assert_eq!(link.grace(None, Duration::from_secs(300), &settings).source, Source::Default);
    }
}
