//! Schedules in the notation of Kubernetes' CronJobs, in time zones.
//!
//! ```text
//!   30 2 * * Mon-Fri      @hourly      @every 1h30m
//!   │  │ │ │ └ day of the week, 0 is Sunday
//!   │  │ │ └ month
//!   │  │ └ day of the month
//!   │  └ hour
//!   └ minute
//! ```
//!
//! Where both days are given, one of them suffices. Each time comes once: an hour that a clock skips is taken as the one after
//! it; of one that it shows twice the first is meant, unless the schedule is for every hour.

use jiff::{
    SignedDuration, Timestamp,
    civil::Date,
    tz::{AmbiguousOffset, Offset, TimeZone},
};
use karmada_meta::{duration, time::Time};

/// A text of more bytes is a mistake.
const LONGEST: usize = 1024;
/// Days that are looked at for the next time: leap days are up to eight years apart.
const FAR: usize = 366 * 9;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// When something happens again and again.
#[derive(Clone, Debug)]
pub struct Schedule {
    when: When,
    zone: TimeZone,
}

#[derive(Clone, Debug)]
enum When {
    Every(SignedDuration),
    At(Box<Fields>),
}

/// Bits of the values that are meant.
#[derive(Clone, Debug)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// One of the two fields for days is `*`: both have to fit.
    both_days: bool,
}

impl Schedule {
    /// Reads a schedule; the zone is one of the IANA database, or UTC if there is none.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("{} bytes are more than {LONGEST}", text.len()));
        }
        let zone = zone.map_or(Ok(TimeZone::UTC), self::zone)?;
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            return Err("the time zone stands in timeZone, not in the schedule".to_owned());
        }
        let when = match text.strip_prefix('@') {
            Some(word) => described(word)?,
            None => When::At(Box::new(Fields::parse(text)?)),
        };
        let schedule = Self { when, zone };
        let first = schedule.after(Time::from_timestamp(Timestamp::UNIX_EPOCH));
        first.map_or_else(|| Err(format!("{text:?} never comes")), |_| Ok(schedule))
    }

    /// The first time after another.
    pub fn after(&self, time: Time) -> Option<Time> {
        let fields = match &self.when {
            When::Every(pause) => {
                return Some(Time::from_timestamp(time.timestamp().checked_add(*pause).ok()?));
            }
            When::At(fields) => fields,
        };
        let after = time.timestamp();
        let mut day = after.to_zoned(self.zone.clone()).date();
        // A clock that is put back over midnight shows yesterday once more.
        day = day.yesterday().unwrap_or(day);
        for _ in 0..FAR {
            if fields.fits(day)
                && let Some(first) = fields.first(&Day::of(day, &self.zone), after)
            {
                return Some(Time::from_timestamp(first));
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    /// Whether something that was to happen at a time can be this schedule's.
    pub fn has(&self, time: Time) -> bool {
        match self.when {
            When::Every(_) => true,
            When::At(_) => {
                let before = time.timestamp().checked_sub(SignedDuration::from_secs(1));
                before.is_ok_and(|before| self.after(Time::from_timestamp(before)) == Some(time))
            }
        }
    }

    /// Whether a time to come, which was told before, is still this schedule's next.
    pub fn goes_on(&self, told: Time, now: Time) -> bool {
        self.after(now).is_some_and(|next| match self.when {
            When::Every(_) => told <= next,
            When::At(_) => told == next,
        })
    }

    /// The last of its times from `first`, which is one, to `until`.
    pub fn last(&self, first: Time, until: Time) -> Time {
        if let When::Every(pause) = self.when {
            let passed = until.timestamp().duration_since(first.timestamp()).as_secs();
            let whole = (passed / pause.as_secs()).saturating_mul(pause.as_secs());
            let last = first.timestamp().checked_add(SignedDuration::from_secs(whole));
            return last.map_or(first, Time::from_timestamp);
        }
        self.before(until).map_or(first, |last| last.max(first))
    }

    /// The last of its times that is not after another.
    fn before(&self, time: Time) -> Option<Time> {
        let When::At(fields) = &self.when else { return None };
        let until = time.timestamp();
        let mut day = until.to_zoned(self.zone.clone()).date();
        // A clock that is put back over midnight has shown tomorrow before.
        day = day.tomorrow().unwrap_or(day);
        for _ in 0..FAR {
            if fields.fits(day)
                && let Some(last) = fields.last(&Day::of(day, &self.zone), until)
            {
                return Some(Time::from_timestamp(last));
            }
            day = day.yesterday().ok()?;
        }
        None
    }
}

/// A time zone by its name.
///
/// # Errors
/// When there is none of that name.
pub fn zone(name: &str) -> Result<TimeZone, String> {
    // The machine's own says something else on every hub.
    let known = (!name.is_empty() && !name.eq_ignore_ascii_case("local")).then(|| TimeZone::get(name).ok());
    known.flatten().ok_or_else(|| format!("unknown time zone {name}"))
}

fn described(word: &str) -> Result<When, String> {
    let fields = match word {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        _ => {
            let pause = word.strip_prefix("every ").ok_or_else(|| format!("@{word} is no schedule"))?;
            let seconds = duration::parse(pause.trim())?.as_secs().max(1);
            let seconds = i64::try_from(seconds).map_err(|_| format!("{pause} is too long"))?;
            return Ok(When::Every(SignedDuration::from_secs(seconds)));
        }
    };
    Ok(When::At(Box::new(Fields::parse(fields)?)))
}

impl Fields {
    fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts.as_slice() else {
            return Err(format!("expected exactly 5 fields, found {}: {text:?}", parts.len()));
        };
        let (days, all_days) = field(days, (1, 31), &[])?;
        let (weekdays, all_weekdays) = field(weekdays, (0, 6), &WEEKDAYS)?;
        Ok(Self {
            minutes: field(minutes, (0, 59), &[])?.0,
            hours: field(hours, (0, 23), &[])?.0,
            days,
            months: field(months, (1, 12), &MONTHS)?.0,
            weekdays,
            both_days: all_days || all_weekdays,
        })
    }

    fn fits(&self, day: Date) -> bool {
        let has = |bits: u64, at: i8| u32::try_from(at).is_ok_and(|at| bits >> at & 1 == 1);
        let (of_month, of_week) =
            (has(self.days, day.day()), has(self.weekdays, day.weekday().to_sunday_zero_offset()));
        let days = if self.both_days { of_month && of_week } else { of_month || of_week };
        has(self.months, day.month()) && days
    }

    /// The first of a day's times that is after another.
    fn first(&self, day: &Day<'_>, after: Timestamp) -> Option<Timestamp> {
        let seconds = after.as_second();
        let mut best: Option<Timestamp> = None;
        for hour in set(self.hours) {
            if day.latest(hour, 59) <= seconds {
                continue;
            }
            for minute in set(self.minutes).filter(|minute| day.latest(hour, *minute) > seconds) {
                if best.is_some_and(|best| best.as_second() <= day.earliest(hour, minute)) {
                    return best;
                }
                let times = day.times(hour, minute, self.every_hour()).filter(|at| *at > after);
                best = times.chain(best).min();
            }
        }
        best
    }

    /// The last of a day's times that is not after another.
    fn last(&self, day: &Day<'_>, until: Timestamp) -> Option<Timestamp> {
        let seconds = until.as_second();
        let mut best: Option<Timestamp> = None;
        for hour in set(self.hours).rev() {
            if day.earliest(hour, 0) > seconds {
                continue;
            }
            for minute in set(self.minutes).rev().filter(|minute| day.earliest(hour, *minute) <= seconds) {
                if best.is_some_and(|best| best.as_second() >= day.latest(hour, minute)) {
                    return best;
                }
                let times = day.times(hour, minute, self.every_hour()).filter(|at| *at <= until);
                best = times.chain(best).max();
            }
        }
        best
    }

    fn every_hour(&self) -> bool {
        self.hours == (1 << 24) - 1
    }
}

/// The values that bits mean.
fn set(bits: u64) -> impl DoubleEndedIterator<Item = i8> {
    (0..60_i8).filter(move |at| bits >> at & 1 == 1)
}

/// A day in a time zone. What its clocks show is turned into times only where that is asked for: it is looked up, and a schedule
/// may have 1,440 times in a day.
struct Day<'a> {
    date: Date,
    zone: &'a TimeZone,
    /// Its midnight as if it were one of UTC, in seconds since 1970.
    midnight: i64,
    /// How far its clocks are ahead of UTC at least and at most, in seconds.
    ahead: (i64, i64),
}

impl<'a> Day<'a> {
    fn of(date: Date, zone: &'a TimeZone) -> Self {
        let offsets = [(0, 0), (12, 0), (23, 59)].map(|(hour, minute)| {
            let shown = zone.to_ambiguous_timestamp(date.at(hour, minute, 0, 0));
            match shown.offset() {
                AmbiguousOffset::Unambiguous { offset } => [offset, offset],
                AmbiguousOffset::Gap { before, after } | AmbiguousOffset::Fold { before, after } => {
                    [before, after]
                }
            }
        });
        let seconds = || offsets.iter().flatten().map(|offset| i64::from(offset.seconds()));
        let ahead = (seconds().min().unwrap_or_default(), seconds().max().unwrap_or_default());
        let midnight = Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).map_or(0, Timestamp::as_second);
        Self { date, zone, midnight, ahead }
    }

    /// No time at which its clocks show this is before this one.
    fn earliest(&self, hour: i8, minute: i8) -> i64 {
        self.shown(hour, minute) - self.ahead.1
    }

    /// Nor after this one.
    fn latest(&self, hour: i8, minute: i8) -> i64 {
        self.shown(hour, minute) - self.ahead.0
    }

    fn shown(&self, hour: i8, minute: i8) -> i64 {
        self.midnight + i64::from(hour) * 3600 + i64::from(minute) * 60
    }

    /// The times that are meant by what its clocks show: one, or two where they show it `twice` and both are.
    fn times(&self, hour: i8, minute: i8, twice: bool) -> impl Iterator<Item = Timestamp> {
        let shown = self.zone.to_ambiguous_timestamp(self.date.at(hour, minute, 0, 0));
        let twice = twice && matches!(shown.offset(), AmbiguousOffset::Fold { .. });
        let second = if twice { shown.later().ok() } else { None };
        shown.compatible().into_iter().chain(second)
    }
}

/// The values that a field means, as bits, and whether it is `*`.
fn field(text: &str, bounds: (u8, u8), names: &[&str]) -> Result<(u64, bool), String> {
    let (mut bits, mut all) = (0, false);
    for part in text.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let step = match step {
            Some(step) => {
                number(step).filter(|step| *step > 0).ok_or_else(|| format!("{part:?} has no step"))?
            }
            None => 1,
        };
        let value = |text: &str| {
            let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
            let named = named.and_then(|at| u8::try_from(at).ok()).map(|at| at + bounds.0);
            let value = named.or_else(|| number(text));
            value.ok_or_else(|| format!("{text:?} in {part:?} is no value"))
        };
        let (from, until) = match range.split_once('-') {
            _ if range == "*" || range == "?" => {
                all |= step == 1;
                bounds
            }
            Some((from, until)) => (value(from)?, value(until)?),
            // With a step, to the end.
            None => (value(range)?, if part.contains('/') { bounds.1 } else { value(range)? }),
        };
        if from < bounds.0 || until > bounds.1 || from > until {
            return Err(format!("{part:?} is not within {} to {}", bounds.0, bounds.1));
        }
        for at in (from..=until).step_by(usize::from(step)) {
            bits |= 1_u64 << at;
        }
    }
    Ok((bits, all))
}

fn number(text: &str) -> Option<u8> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    /// The next times, from the date on that is the same in all.
    fn next(schedule: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(schedule, Some(zone)).unwrap();
        let mut at = time(after);
        std::iter::from_fn(|| {
            at = schedule.after(at)?;
            Some(at.to_string())
        })
        .take(count)
        .collect()
    }

    #[test]
    fn times_are_those_of_kubernetes() {
        // 2026-11-23 is a Monday.
        let rows: [(&str, &str, &str, &[&str]); 16] = [
            (
                "*/15 * * * *",
                "UTC",
                "2026-11-23T10:05:00Z",
                &["2026-11-23T10:15:00Z", "2026-11-23T10:30:00Z"],
            ),
            ("* * * * *", "UTC", "2026-11-23T10:05:00Z", &["2026-11-23T10:06:00Z"]),
            (
                "5/20 0 * * *",
                "UTC",
                "2026-11-23T10:05:00Z",
                &[
                    "2026-11-24T00:05:00Z",
                    "2026-11-24T00:25:00Z",
                    "2026-11-24T00:45:00Z",
                    "2026-11-25T00:05:00Z",
                ],
            ),
            ("0 9 * * Mon-Fri", "Asia/Shanghai", "2026-11-27T01:00:00Z", &["2026-11-30T01:00:00Z"]),
            ("0 9 * * 1-5", "America/New_York", "2026-11-27T00:00:00Z", &["2026-11-27T14:00:00Z"]),
            // Either day suffices, unless one is a star.
            (
                "0 0 13 * Fri",
                "UTC",
                "2026-11-10T00:00:00Z",
                &["2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"],
            ),
            ("0 0 13 * *", "UTC", "2026-11-14T00:00:00Z", &["2026-12-13T00:00:00Z"]),
            ("0 0 ? * 0", "UTC", "2026-11-23T00:00:00Z", &["2026-11-29T00:00:00Z"]),
            // A star with a step is a list.
            (
                "0 0 */10 * Sun",
                "UTC",
                "2026-11-11T00:00:00Z",
                &["2026-11-15T00:00:00Z", "2026-11-21T00:00:00Z"],
            ),
            ("0 0 31 * *", "UTC", "2026-11-01T00:00:00Z", &["2026-12-31T00:00:00Z", "2027-01-31T00:00:00Z"]),
            ("0 0 29 2 *", "UTC", "2026-11-01T00:00:00Z", &["2028-02-29T00:00:00Z"]),
            ("0 0 29 feb *", "UTC", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]),
            (
                "0,30 8-9 1 jan,JUL *",
                "UTC",
                "2026-11-01T00:00:00Z",
                &[
                    "2027-01-01T08:00:00Z",
                    "2027-01-01T08:30:00Z",
                    "2027-01-01T09:00:00Z",
                    "2027-01-01T09:30:00Z",
                    "2027-07-01T08:00:00Z",
                ],
            ),
            ("@hourly", "UTC", "2026-11-23T10:05:00Z", &["2026-11-23T11:00:00Z"]),
            ("@weekly", "UTC", "2026-11-23T10:05:00Z", &["2026-11-29T00:00:00Z"]),
            (
                "@every 1h30m",
                "UTC",
                "2026-11-23T10:05:07Z",
                &["2026-11-23T11:35:07Z", "2026-11-23T13:05:07Z"],
            ),
        ];
        for (schedule, zone, after, want) in rows {
            assert_eq!(next(schedule, zone, after, want.len()), want, "{schedule} in {zone} after {after}");
        }
    }

    #[test]
    fn summer_time_neither_loses_nor_doubles_a_time() {
        let berlin =
            |schedule: &str, after: &str, count: usize| next(schedule, "Europe/Berlin", after, count);
        // On 2026-03-29 clocks skip from 02:00 to 03:00: the hour after it is meant.
        assert_eq!(
            berlin("30 2 * * *", "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]
        );
        // What is there anyway comes once.
        assert_eq!(
            berlin("30 2,3 * * *", "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(
            berlin("*/30 * * * *", "2026-03-29T00:00:00Z", 3),
            ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]
        );
        // On 2026-10-25 they show 02:00 to 03:00 twice: the first is meant, by what is not for every hour.
        assert_eq!(
            berlin("30 2 * * *", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
        assert_eq!(
            berlin("30 * * * *", "2026-10-25T00:00:00Z", 3),
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]
        );
        // Santiago goes over midnight: on 2026-04-05 it is 23:00 on the day before again.
        assert_eq!(
            next("30 23 * * *", "America/Santiago", "2026-04-05T02:00:00Z", 2),
            ["2026-04-05T02:30:00Z", "2026-04-06T03:30:00Z"]
        );
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_what_is_wrong() {
        let rows = [
            ("", "expected exactly 5 fields"),
            ("* * * *", "expected exactly 5 fields, found 4"),
            ("0 * * * * *", "expected exactly 5 fields, found 6"),
            ("60 * * * *", "not within 0 to 59"),
            ("* 24 * * *", "not within 0 to 23"),
            ("* * 0 * *", "not within 1 to 31"),
            ("* * * 13 *", "not within 1 to 12"),
            ("* * * * 7", "not within 0 to 6"),
            ("* * * * Fri-Mon", "not within"),
            ("*/0 * * * *", "has no step"),
            ("*/x * * * *", "has no step"),
            ("1-x * * * *", "is no value"),
            ("a,b * * * *", "is no value"),
            ("* * 31 2 *", "never comes"),
            ("@5minutes", "@5minutes is no schedule"),
            ("@every soon", "is not a duration"),
            ("TZ=Asia/Tokyo 0 4 * * *", "stands in timeZone"),
        ];
        for (text, want) in rows {
            let error = Schedule::parse(text, None).unwrap_err();
            assert!(error.contains(want), "{text:?}: {error}\n  wanted {want:?}");
        }
        for zone in ["", "Local", "Europe/Berlim"] {
            assert!(
                Schedule::parse("* * * * *", Some(zone)).unwrap_err().contains("unknown time zone"),
                "{zone}"
            );
        }
        assert!(Schedule::parse(&"*,".repeat(LONGEST), None).is_err());
    }

    #[test]
    fn the_last_of_those_that_were_missed_is_found() {
        let last = |schedule: &str, first: &str, until: &str| {
            Schedule::parse(schedule, None).unwrap().last(time(first), time(until)).to_string()
        };
        assert_eq!(
            last("*/5 * * * *", "2026-11-23T10:00:00Z", "2026-11-23T10:00:30Z"),
            "2026-11-23T10:00:00Z"
        );
        assert_eq!(
            last("*/5 * * * *", "2026-11-20T10:00:00Z", "2026-11-23T10:12:00Z"),
            "2026-11-23T10:10:00Z"
        );
        assert_eq!(last("0 0 * * *", "2026-11-20T00:00:00Z", "2026-11-23T10:12:00Z"), "2026-11-23T00:00:00Z");
        assert_eq!(last("0 0 1 1 *", "2020-01-01T00:00:00Z", "2026-11-23T10:12:00Z"), "2026-01-01T00:00:00Z");
        assert_eq!(
            last("0 0 29 2 *", "2020-02-29T00:00:00Z", "2027-11-23T10:12:00Z"),
            "2024-02-29T00:00:00Z"
        );
        assert_eq!(last("@every 1h", "2026-11-20T10:00:07Z", "2026-11-23T10:12:00Z"), "2026-11-23T10:00:07Z");
    }

    /// All times of a day, the way that takes longest.
    fn all(fields: &Fields, date: Date, zone: &TimeZone) -> Vec<Timestamp> {
        let day = Day::of(date, zone);
        let clocks = set(fields.hours).flat_map(|hour| set(fields.minutes).map(move |minute| (hour, minute)));
        clocks.flat_map(|(hour, minute)| day.times(hour, minute, fields.every_hour())).collect()
    }

    /// A day has up to 1,440 times, and few of them are looked up.
    #[test]
    fn the_nearest_time_is_that_of_all() {
        // Clocks skip an hour or show one twice, half an hour, two hours, over midnight; a whole day is left out.
        let zones = [
            ("UTC", "2026-03-28"),
            ("Europe/Berlin", "2026-03-28"),
            ("Europe/Berlin", "2026-10-24"),
            ("Australia/Lord_Howe", "2026-04-04"),
            ("Australia/Lord_Howe", "2026-10-03"),
            ("Antarctica/Troll", "2026-03-28"),
            ("Antarctica/Troll", "2026-10-24"),
            ("America/Santiago", "2026-04-03"),
            ("America/Santiago", "2026-09-04"),
            ("Pacific/Apia", "2011-12-28"),
        ];
        for (zone, first) in zones {
            let first: Date = first.parse().unwrap();
            for text in ["* * * * *", "*/7 * * * *", "0,30 0-4,23 * * *", "30 2 * * *", "59 23 * * *"] {
                let schedule = Schedule::parse(text, Some(zone)).unwrap();
                let When::At(fields) = &schedule.when else { panic!("{text} has fields") };
                let days = std::iter::successors(Some(first), |day| day.tomorrow().ok()).take(4);
                let mut times: Vec<Timestamp> =
                    days.flat_map(|day| all(fields, day, &schedule.zone)).collect();
                times.sort_unstable();
                times.dedup();
                let begin = Offset::UTC.to_timestamp(first.at(12, 0, 0, 0)).unwrap();
                for minute in (0..48 * 60).step_by(11) {
                    let now = begin.checked_add(SignedDuration::from_mins(minute)).unwrap();
                    let next = times.iter().find(|at| **at > now).copied().map(Time::from_timestamp);
                    let last = times.iter().rfind(|at| **at <= now).copied().map(Time::from_timestamp);
                    let now = Time::from_timestamp(now);
                    assert_eq!(schedule.after(now), next, "{text} in {zone} after {now}");
                    if last.is_some() {
                        assert_eq!(schedule.before(now), last, "{text} in {zone} before {now}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_the_next_time_is_one(text in "[0-9*/,@a-z -]{0,24}", now in 0i64..4_102_444_800) {
            let now = Time::from_timestamp(Timestamp::from_second(now).unwrap());
            if let Ok(schedule) = Schedule::parse(&text, Some("Europe/Berlin"))
                && let Some(next) = schedule.after(now)
            {
                prop_assert!(next > now);
                prop_assert!(schedule.has(next));
                prop_assert_eq!(schedule.last(next, next), next);
            }
        }
    }
}
