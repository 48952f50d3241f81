//! Durations as Karmada's flags and annotations take them: `40s`, `1m30s`, `500ms`.

use std::time::Duration;

/// The most that Go has: 292 years.
const LONGEST: Duration = Duration::from_nanos(i64::MAX as u64);

/// Parses Go's notation, without a sign.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration like 40s, 1m30s or 500ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(bad()),
        };
        rest = &rest[unit..];
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| bad())?;
        total = total.checked_add(part).ok_or_else(bad)?;
    }
    match total {
        _ if text.is_empty() => Err(bad()),
        // Sums of a moment and a longer time may have no number.
        total if total > LONGEST => {
            Err(format!("{text} is longer than {}, the longest that Go knows", format(LONGEST)))
        }
        total => Ok(total),
    }
}

/// Writes a duration in Go's notation, to the millisecond: `1h0m5s`, `40s`, `1.5s`.
pub fn format(length: Duration) -> String {
    let (seconds, millis) = (length.as_secs(), length.subsec_millis());
    let fraction =
        if millis == 0 { String::new() } else { format!(".{millis:03}").trim_end_matches('0').to_owned() };
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}{fraction}s"),
        (0, minutes) => format!("{minutes}m{rest}{fraction}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_notation() {
        let rows = [
            ("0", Some(0)),
            ("40s", Some(40_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("", None),
            ("40", None),
            ("-5s", None),
            ("5 s", None),
            ("1e9h", None),
            ("2562047h", Some(9_223_369_200_000)),
            ("2562048h", None),
            ("18446744073709551615s", None),
            ("5y", None),
            ("s", None),
            (".s", None),
        ];
        for (text, millis) in rows {
            assert_eq!(parse(text).ok(), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for (millis, want) in [
            (0, "0s"),
            (40_000, "40s"),
            (90_000, "1m30s"),
            (5_400_000, "1h30m0s"),
            (1_500, "1.5s"),
            (60_020, "1m0.02s"),
        ] {
            let length = Duration::from_millis(millis);
            assert_eq!(format(length), want);
            assert_eq!(parse(want), Ok(length));
        }
    }
}
