//! Times as objects carry them, and ages as people read them.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use karmada_env::Env;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time in whole seconds, UTC: `2026-01-02T03:04:05Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

/// A time in microseconds, UTC: `2026-01-02T03:04:05.000000Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(Timestamp);

/// A text that is no RFC 3339 time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a time such as 2026-01-02T03:04:05Z: {why}")]
pub struct InvalidTime {
    text: String,
    why: String,
}

fn parse(text: &str) -> Result<Timestamp, InvalidTime> {
    text.parse().map_err(|e: jiff::Error| InvalidTime { text: text.to_owned(), why: e.to_string() })
}

fn system(at: SystemTime) -> Timestamp {
    // Out of jiff's range (years -9999 to 9999) only when a clock is broken beyond use.
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}

macro_rules! time_type {
    ($name:ident, $unit:ident, $format:literal) => {
        impl $name {
            /// The time of day by `env`.
            pub fn now(env: &Env) -> Self {
                Self::from_system(env.wall())
            }

            /// A system time, cut to this type's precision.
            pub fn from_system(at: SystemTime) -> Self {
                Self::from_timestamp(system(at))
            }

            /// A timestamp, cut to this type's precision.
            pub fn from_timestamp(at: Timestamp) -> Self {
                let round =
                    jiff::TimestampRound::new().smallest(jiff::Unit::$unit).mode(jiff::RoundMode::Floor);
                Self(at.round(round).unwrap_or(at))
            }

            /// As a timestamp.
            pub fn timestamp(self) -> Timestamp {
                self.0
            }

            /// How long ago this was at `now`; zero if it lies ahead.
            pub fn elapsed(self, now: SystemTime) -> Duration {
                Duration::try_from(system(now).duration_since(self.0)).unwrap_or(Duration::ZERO)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidTime;

            fn from_str(text: &str) -> Result<Self, InvalidTime> {
                parse(text).map(Self::from_timestamp)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

time_type!(Time, Second, "{:.0}");
time_type!(MicroTime, Microsecond, "{:.6}");

impl Time {
    /// The second after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(jiff::SignedDuration::from_secs(1)).unwrap_or(self.0))
    }
}

/// A length of time as kubectl prints ages: `45s`, `5m8s`, `3h`, `2d4h`, `1y30d`.
pub fn human_duration(length: Duration) -> String {
    let pair = |a: u64, a_unit: &str, b: u64, b_unit: &str| {
        if b == 0 { format!("{a}{a_unit}") } else { format!("{a}{a_unit}{b}{b_unit}") }
    };
    let seconds = length.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    if seconds < 2 * 60 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if minutes < 3 * 60 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, "d", hours % 24, "h")
    } else if days < 2 * 365 {
        format!("{days}d")
    } else if days < 8 * 365 {
        pair(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

/// The age of something made `at`, as kubectl prints it: `<unknown>` without a time, `<invalid>` if the time lies
/// more than a second ahead.
pub fn human_age(at: Option<Time>, now: SystemTime) -> String {
    let Some(at) = at else { return "<unknown>".to_owned() };
    let span = system(now).duration_since(at.0);
    match Duration::try_from(span) {
        Ok(length) => human_duration(length),
        Err(_) if span.as_secs() > -2 => "0s".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_precision() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_767_323_045_678_901);
        assert_eq!(Time::from_system(at).to_string(), "2026-01-02T03:04:05Z");
        assert_eq!(MicroTime::from_system(at).to_string(), "2026-01-02T03:04:05.678901Z");
        let json = serde_json::to_string(&MicroTime::from_system(SystemTime::UNIX_EPOCH)).unwrap();
        assert_eq!(json, "\"1970-01-01T00:00:00.000000Z\"");
        assert_eq!(
            serde_json::from_str::<MicroTime>(&json).unwrap(),
            MicroTime::from_system(SystemTime::UNIX_EPOCH)
        );
    }

    #[test]
    fn other_spellings_are_read() {
        for text in ["2026-01-02T03:04:05Z", "2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05.9Z"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), "2026-01-02T03:04:05Z");
        }
        for text in ["", "yesterday", "2026-01-02", "2026-13-02T03:04:05Z"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_read_as_kubectls() {
        const M: u64 = 60;
        const H: u64 = 60 * M;
        const D: u64 = 24 * H;
        for (seconds, want) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (5 * M + 8, "5m8s"),
            (10 * M + 8, "10m"),
            (179 * M, "179m"),
            (3 * H, "3h"),
            (7 * H + 59 * M, "7h59m"),
            (8 * H + 59 * M, "8h"),
            (47 * H, "47h"),
            (2 * D, "2d"),
            (2 * D + 4 * H, "2d4h"),
            (8 * D + 4 * H, "8d"),
            (729 * D, "729d"),
            (730 * D, "2y"),
            (731 * D, "2y1d"),
            (8 * 365 * D + 3 * D, "8y"),
        ] {
            assert_eq!(human_duration(Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn ages_need_a_past() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let at = |s| Some(Time::from_system(SystemTime::UNIX_EPOCH + Duration::from_secs(s)));
        assert_eq!(human_age(at(990), now), "10s");
        assert_eq!(human_age(at(1001), now), "0s");
        assert_eq!(human_age(at(1010), now), "<invalid>");
        assert_eq!(human_age(None, now), "<unknown>");
    }
}
