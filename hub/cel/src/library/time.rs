//! Durations and points in time.

use jiff::{Timestamp, civil, tz};

/// Units of Go's durations.
const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// As Go's `time.ParseDuration`, in nanoseconds.
#[allow(clippy::cast_possible_truncation, reason = "bounds are looked at first")]
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..end])?;
        total += number * unit;
        rest = &rest[end..];
    }
    (total < 9.223_372_036_854_776e18).then_some((sign * total) as i64)
}

/// As a string of format `duration` may be written: Go's way, or with words (`2 weeks`).
#[allow(clippy::cast_possible_truncation, reason = "bounds are looked at first")]
pub(crate) fn parse_format_duration(text: &str) -> Option<i64> {
    if let Some(n) = parse_duration(text) {
        return Some(n);
    }
    let mut total = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let seconds = match rest[..end].trim_end_matches('s') {
            "ns" | "nano" | "n" => 1e-9,
            "us" | "µs" | "micro" | "u" => 1e-6,
            "ms" | "milli" => 1e-3,
            "" | "sec" | "second" => 1.0,
            "m" | "min" | "minute" => 60.0,
            "h" | "hr" | "hour" => 3600.0,
            "d" | "day" => 86_400.0,
            "w" | "wk" | "week" => 604_800.0,
            _ => return None,
        };
        total += number * seconds * 1e9;
        rest = rest[end..].trim_start();
    }
    (total < 9.223_372_036_854_776e18).then_some(total as i64)
}

/// RFC 3339.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    text.contains(['T', 't']).then(|| text.parse().ok()).flatten()
}

/// A string of format `date` or `date-time`.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let day = || text.parse::<civil::Date>().ok()?.to_zoned(tz::TimeZone::UTC).ok();
    parse_timestamp(text).or_else(|| day().map(|z| z.timestamp()))
}

/// As CEL turns a duration into a string.
#[allow(clippy::cast_precision_loss, reason = "shown in seconds")]
pub(crate) fn show_duration(n: i64) -> String {
    format!("{}s", n as f64 / 1e9)
}

/// Where a clock stands: `+02:00`, `-3:30`, `UTC`, `Europe/Berlin`.
pub(crate) fn zone(text: &str) -> Result<tz::TimeZone, String> {
    if text.is_empty() || matches!(text, "UTC" | "Z") {
        return Ok(tz::TimeZone::UTC);
    }
    let unknown = || format!("unknown time zone {text}");
    let Some((hours, minutes)) = text.split_once(':') else {
        return tz::TimeZone::get(text).map_err(|_| unknown());
    };
    let sign = if hours.starts_with('-') { -1 } else { 1 };
    let hours: i32 = hours.trim_start_matches(['+', '-']).parse().map_err(|_| unknown())?;
    let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
    tz::Offset::from_seconds(sign * (hours * 3600 + minutes * 60))
        .map(tz::TimeZone::fixed)
        .map_err(|_| unknown())
}
