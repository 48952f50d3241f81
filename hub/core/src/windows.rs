//! Maintenance windows: the times of the week at which changes may be made, as people write them.
//!
//! ```text
//!   Mon-Fri 22:00-05:00 Europe/Berlin; Sat,Sun 00:00-24:00 Europe/Berlin
//!   └days──┘└from─until┘└zone────────┘
//! ```
//!
//! Days are names or ranges of names, with commas; without them every day is meant, and without a zone UTC. The day is that
//! on which a window opens: one that ends before it begins goes on into the next day. Hours are those of clocks on a wall, so
//! a window follows summer time; an hour that a clock skips is taken as the one after it. Zones are those of the IANA
//! database that the program was built with, so that hub and edge read them alike, and a machine needs none.

use std::{fmt, time::SystemTime};

use jiff::{
    Timestamp,
    civil::{Date, DateTime, Time as Clock},
    tz::TimeZone,
};
use karmada_meta::time::Time;

/// More windows than this are a mistake.
const MOST: usize = 32;
/// So is a text of more bytes.
const LONGEST: usize = 1024;

/// All days, from Monday on.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// See the module.
#[derive(Clone, Debug)]
pub struct Windows(Vec<Window>);

#[derive(Clone, Debug)]
struct Window {
    /// Of the week, from Monday on.
    days: [bool; 7],
    from: Clock,
    /// None for the end of the day.
    until: Option<Clock>,
    zone: TimeZone,
}

/// How windows stand at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// One is open, so long at least.
    Open(Time),
    /// None is, before this.
    Shut(Time),
}

/// Why a text says nothing about windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; wanted are windows like Mon-Fri 22:00-05:00 Europe/Berlin, with semicolons between them",
            self.0
        )
    }
}

impl Windows {
    /// Reads them.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let wrong = |why: String| Unreadable(why);
        if text.len() > LONGEST {
            return Err(wrong(format!("{} bytes are more than {LONGEST}", text.len())));
        }
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let windows: Result<Vec<Window>, String> = parts.map(Window::parse).collect();
        let windows = windows.map_err(wrong)?;
        match windows.len() {
            0 => Err(wrong("there is no window".to_owned())),
            1..=MOST => Ok(Self(windows)),
            many => Err(wrong(format!("{many} windows are more than {MOST}"))),
        }
    }

    /// Whether one is open, and when that changes.
    pub fn at(&self, now: SystemTime) -> Stand {
        let now = Time::from_system(now).timestamp();
        let spans = || self.0.iter().flat_map(move |window| window.around(now));
        let open = spans().filter(|(from, until)| *from <= now && now < *until);
        if let Some(until) = open.map(|(_, until)| until).max() {
            return Stand::Open(Time::from_timestamp(until));
        }
        let opens = spans().map(|(from, _)| from).filter(|from| now < *from).min();
        // Each window opens every week; only at the end of time there is none to come.
        Stand::Shut(Time::from_timestamp(opens.unwrap_or(Timestamp::MAX)))
    }
}

impl Windows {
    /// Since when one has been open, if one is; windows that touch are one. Of one that is always open, for a day at least.
    pub fn open_since(&self, now: SystemTime) -> Option<Time> {
        let now = Time::from_system(now).timestamp();
        let mut spans: Vec<_> = self.0.iter().flat_map(|window| window.around(now)).collect();
        spans.retain(|(from, _)| *from <= now);
        spans.sort_unstable();
        let mut open: Option<(Timestamp, Timestamp)> = None;
        for (from, until) in spans {
            open = match open {
                Some((since, end)) if from <= end => Some((since, end.max(until))),
                _ => Some((from, until)),
            };
        }
        open.filter(|(_, until)| now < *until).map(|(since, _)| Time::from_timestamp(since))
    }
}

impl Window {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_hours = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        let (days, hours, zone) = match words.as_slice() {
            [hours] if is_hours(hours) => (None, *hours, "UTC"),
            [hours, zone] if is_hours(hours) => (None, *hours, *zone),
            [days, hours] => (Some(*days), *hours, "UTC"),
            [days, hours, zone] => (Some(*days), *hours, *zone),
            _ => return Err(format!("{text:?} is no window")),
        };
        let days = days.map_or(Ok([true; 7]), read_days)?;
        let (from, until) =
            hours.split_once('-').ok_or_else(|| format!("{hours:?} are no hours like 22:00-05:00"))?;
        let from = read_clock(from)?.ok_or_else(|| format!("{hours:?} begins at the end of a day"))?;
        let until = read_clock(until)?;
        if until == Some(from) {
            return Err(format!("{hours:?} has no length: a whole day is 00:00-24:00"));
        }
        let zone = TimeZone::get(zone).map_err(|_| format!("{zone:?} is no time zone that is known"))?;
        Ok(Self { days, from, until, zone })
    }

    /// When it is open, for more than a week from yesterday on: one that has opened yesterday may be open yet.
    fn around(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> + '_ {
        let today = now.to_zoned(self.zone.clone()).date();
        let mut day = today.yesterday().ok();
        let days = std::iter::from_fn(move || {
            let this = day?;
            day = this.tomorrow().ok();
            Some(this)
        });
        days.take(10).filter(move |day| self.opens_on(*day)).filter_map(move |day| self.span(day))
    }

    fn opens_on(&self, day: Date) -> bool {
        usize::try_from(day.weekday().to_monday_zero_offset()).is_ok_and(|at| self.days[at])
    }

    /// When it is open if it opens on a day.
    fn span(&self, day: Date) -> Option<(Timestamp, Timestamp)> {
        let begin = day.to_datetime(self.from);
        let end = match self.until {
            Some(until) if until > self.from => day.to_datetime(until),
            until => day.tomorrow().ok()?.to_datetime(until.unwrap_or_default()),
        };
        let length = end.duration_since(begin);
        let at = |when: DateTime| Some(when.to_zoned(self.zone.clone()).ok()?.timestamp());
        let (begin, end) = (at(begin)?, at(end)?);
        // One that begins in an hour that is skipped, and ends after it, would end before it has begun.
        Some((begin, if end > begin { end } else { begin.checked_add(length).ok()? }))
    }
}

/// `Mon-Fri`, `Sat,Sun`, `*`.
fn read_days(text: &str) -> Result<[bool; 7], String> {
    let mut days = [false; 7];
    let day = |name: &str| {
        let known = DAYS.iter().position(|known| known.eq_ignore_ascii_case(name));
        known.ok_or_else(|| format!("{name:?} is no day: they are Mon, Tue, Wed, Thu, Fri, Sat and Sun"))
    };
    for part in text.split(',') {
        let (from, until) = match part.split_once('-') {
            _ if part == "*" => (0, 6),
            Some((from, until)) => (day(from)?, day(until)?),
            None => (day(part)?, day(part)?),
        };
        // A range may go over the end of the week.
        let length = (until + 7 - from) % 7;
        for at in 0..=length {
            days[(from + at) % 7] = true;
        }
    }
    Ok(days)
}

/// `22:00`; nothing for `24:00`, the end of the day.
fn read_clock(text: &str) -> Result<Option<Clock>, String> {
    let wrong = || format!("{text:?} is no time of day like 05:00");
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |digits: &str| {
        let is_number = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
        if is_number { digits.parse::<i8>().map_err(|_| wrong()) } else { Err(wrong()) }
    };
    match (number(hour)?, number(minute)?) {
        (24, 0) => Ok(None),
        (hour, minute) => Clock::new(hour, minute, 0, 0).map(Some).map_err(|_| wrong()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(windows: &str, now: &str) -> String {
        let now = now.parse::<Time>().unwrap();
        match Windows::parse(windows).unwrap().at(SystemTime::from(now.timestamp())) {
            Stand::Open(until) => format!("open {until}"),
            Stand::Shut(until) => format!("shut {until}"),
        }
    }

    #[test]
    fn windows_open_and_shut_on_the_walls_clock() {
        let nights = "Mon-Fri 22:00-05:00 Europe/Berlin";
        // 2026-11-23 is a Monday; Berlin is an hour ahead in winter and two in summer.
        let rows = [
            (nights, "2026-11-23T20:59:59Z", "shut 2026-11-23T21:00:00Z"),
            (nights, "2026-11-23T21:00:00Z", "open 2026-11-24T04:00:00Z"),
            (nights, "2026-11-24T03:59:59Z", "open 2026-11-24T04:00:00Z"),
            (nights, "2026-11-24T04:00:00Z", "shut 2026-11-24T21:00:00Z"),
            // Friday's goes on into Saturday, and then there is none before Monday.
            (nights, "2026-11-28T03:00:00Z", "open 2026-11-28T04:00:00Z"),
            (nights, "2026-11-28T04:00:00Z", "shut 2026-11-30T21:00:00Z"),
            (nights, "2026-11-23T03:00:00Z", "shut 2026-11-23T21:00:00Z"),
            (nights, "2026-07-01T20:00:00Z", "open 2026-07-02T03:00:00Z"),
            ("02:00-04:00", "2026-11-23T01:00:00Z", "shut 2026-11-23T02:00:00Z"),
            ("* 02:00-04:00 UTC", "2026-11-23T04:00:00Z", "shut 2026-11-24T02:00:00Z"),
            ("Sat,Sun 00:00-24:00", "2026-11-28T12:00:00Z", "open 2026-11-29T00:00:00Z"),
            ("sun 00:00-24:00", "2026-11-30T00:00:00Z", "shut 2026-12-06T00:00:00Z"),
            ("Fri-Mon 10:00-11:00", "2026-11-24T10:30:00Z", "shut 2026-11-27T10:00:00Z"),
            // The one that is open longest counts.
            ("10:00-12:00; 11:00-13:00;", "2026-11-23T11:30:00Z", "open 2026-11-23T13:00:00Z"),
            ("10:00-11:00 America/New_York", "2026-11-23T15:30:00Z", "open 2026-11-23T16:00:00Z"),
            ("10:00-11:00 Asia/Kathmandu", "2026-11-23T04:00:00Z", "shut 2026-11-23T04:15:00Z"),
        ];
        for (windows, now, want) in rows {
            assert_eq!(at(windows, now), want, "{windows} at {now}");
        }
    }

    #[test]
    fn summer_time_neither_loses_nor_doubles_a_window() {
        let window = "02:15-02:45 Europe/Berlin";
        // On 2026-03-29 clocks skip from 02:00 to 03:00: the hour after it is meant.
        assert_eq!(at(window, "2026-03-29T00:00:00Z"), "shut 2026-03-29T01:15:00Z");
        assert_eq!(at(window, "2026-03-29T01:20:00Z"), "open 2026-03-29T01:45:00Z");
        // On 2026-10-25 they show it twice: the first is meant.
        assert_eq!(at(window, "2026-10-25T00:20:00Z"), "open 2026-10-25T00:45:00Z");
        assert_eq!(at(window, "2026-10-25T01:20:00Z"), "shut 2026-10-26T01:15:00Z");
        // From an hour that there is not to one that there is: as long as it is on other days.
        assert_eq!(at("02:30-03:00 Europe/Berlin", "2026-03-29T01:30:00Z"), "open 2026-03-29T02:00:00Z");
        let nights = "22:00-05:00 Europe/Berlin";
        assert_eq!(at(nights, "2026-03-28T22:00:00Z"), "open 2026-03-29T03:00:00Z");
        assert_eq!(at(nights, "2026-10-24T21:00:00Z"), "open 2026-10-25T04:00:00Z");
    }

    #[test]
    fn what_is_no_window_is_refused_with_what_is_wrong() {
        let rows = [
            ("", "there is no window"),
            (" ; ", "there is no window"),
            ("Mon", "\"Mon\" is no window"),
            ("Mon 22:00 05:00 Europe/Berlin", "is no window"),
            ("Mon-Fri 22-05", "\"22\" is no time of day"),
            ("Mon 22:00", "are no hours like 22:00-05:00"),
            ("Mo-Fr 22:00-05:00", "\"Mo\" is no day"),
            ("Mon- 22:00-05:00", "\"\" is no day"),
            ("22:00-25:00", "\"25:00\" is no time of day"),
            ("22:60-23:00", "\"22:60\" is no time of day"),
            ("+1:00-02:00", "is no window"),
            ("1:00-02:00", "\"1:00\" is no time of day"),
            ("24:00-02:00", "begins at the end of a day"),
            ("22:00-24:30", "\"24:30\" is no time of day"),
            ("22:00-22:00", "has no length"),
            ("22:00-05:00 Europe/Berlim", "\"Europe/Berlim\" is no time zone"),
            ("22:00-05:00 CET/../x", "is no time zone"),
        ];
        for (text, want) in rows {
            let error = Windows::parse(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text:?}: {error}\n  wanted {want:?}");
            assert!(error.ends_with("with semicolons between them"), "{error}");
        }
        assert!(Windows::parse(&"22:00-05:00;".repeat(MOST)).is_ok());
        assert!(Windows::parse(&"02:00-05:00;".repeat(MOST + 1)).is_err());
        assert!(Windows::parse(&" ".repeat(LONGEST + 1)).is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_shut_opens_when_it_says(text in "[MonFri0-9:;, *-]{0,40}", now in 0u64..4_102_444_800) {
            let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(now);
            if let Ok(windows) = Windows::parse(&text) && let Stand::Shut(opens) = windows.at(now) {
                let then = SystemTime::from(opens.timestamp());
                prop_assert!(then > now);
                prop_assert!(matches!(windows.at(then), Stand::Open(_)));
            }
        }
    }
}
