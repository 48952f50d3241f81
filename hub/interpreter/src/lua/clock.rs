//! `os.time` and `os.date`, the two functions of `os` that Karmada leaves to scripts. All times are UTC.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use mlua::{Error, Lua, Result, Table, Value};

/// The table `os` of a script that runs at this time.
pub(super) fn os(lua: &Lua, now: Timestamp) -> Result<Table> {
    let os = lua.create_table()?;
    os.raw_set("time", lua.create_function(move |_, fields: Option<Table>| time(now, fields.as_ref()))?)?;
    os.raw_set(
        "date",
        lua.create_function(move |lua, (format, at): (Option<String>, Option<f64>)| {
            date(lua, now, format.as_deref().unwrap_or("%c"), at)
        })?,
    )?;
    Ok(os)
}

fn time(now: Timestamp, fields: Option<&Table>) -> Result<f64> {
    let Some(fields) = fields else { return Ok(now.as_second() as f64) };
    let field = |name: &str, default: i64| -> Result<i64> {
        Ok(fields.raw_get::<Option<f64>>(name)?.map_or(default, |n| n as i64))
    };
    let (year, month, day) = (field("year", 1970)?, field("month", 1)?, field("day", 1)?);
    let start = i16::try_from(year).ok().and_then(|year| DateTime::new(year, 1, 1, 0, 0, 0, 0).ok());
    let out_of_range = || Error::runtime("os.time: the time is out of range");
    // Fields may run over, as in Go: the 32nd of January is the 1st of February.
    let span = jiff::Span::new()
        .try_months(month - 1)
        .and_then(|s| s.try_days(day - 1))
        .and_then(|s| s.try_hours(field("hour", 12).unwrap_or(12)))
        .and_then(|s| s.try_minutes(field("min", 0).unwrap_or(0)))
        .and_then(|s| s.try_seconds(field("sec", 0).unwrap_or(0)))
        .map_err(|_| out_of_range())?;
    let moment = start.and_then(|start| start.checked_add(span).ok()).ok_or_else(out_of_range)?;
    let moment = moment.to_zoned(TimeZone::UTC).map_err(|_| out_of_range())?;
    Ok(moment.timestamp().as_second() as f64)
}

fn date(lua: &Lua, now: Timestamp, format: &str, at: Option<f64>) -> Result<Value> {
    let at = match at {
        None => now,
        Some(seconds) => Timestamp::from_second(seconds as i64)
            .map_err(|_| Error::runtime("os.date: the time is out of range"))?,
    };
    let moment = at.to_zoned(TimeZone::UTC);
    let format = format.trim_start_matches('!');
    if format.starts_with("*t") {
        let table = lua.create_table()?;
        for (name, value) in [
            ("year", i64::from(moment.year())),
            ("month", moment.month().into()),
            ("day", moment.day().into()),
            ("hour", moment.hour().into()),
            ("min", moment.minute().into()),
            ("sec", moment.second().into()),
            ("wday", i64::from(moment.weekday().to_sunday_zero_offset()) + 1),
            ("yday", moment.day_of_year().into()),
        ] {
            table.raw_set(name, value as f64)?;
        }
        table.raw_set("isdst", false)?;
        return Ok(Value::Table(table));
    }
    let mut out = String::with_capacity(format.len());
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '%').1.then(|| letters.next()).flatten() {
            None => out.push(letter),
            Some(flag) => match spelled(flag) {
                Some(pattern) => out.push_str(&moment.strftime(pattern).to_string()),
                None if flag == '%' => out.push('%'),
                None => out.extend(['%', flag]),
            },
        }
    }
    Ok(Value::String(lua.create_string(out)?))
}

/// A flag as the formatter knows it; Karmada's spellings where they are its own.
fn spelled(flag: char) -> Option<&'static str> {
    Some(match flag {
        'a' => "%a",
        'A' => "%A",
        'b' => "%b",
        'B' => "%B",
        'c' => "%d %b %y %H:%M UTC",
        'd' => "%d",
        'F' => "%Y-%m-%d",
        'H' => "%H",
        'I' => "%I",
        'm' => "%m",
        'M' => "%M",
        'p' => "%p",
        'P' => "%P",
        'S' => "%S",
        'w' => "%w",
        'x' => "%d/%m/%y",
        'X' => "%H:%M:%S",
        'y' => "%y",
        'Y' => "%Y",
        'z' => "+0000",
        'Z' => "UTC",
        _ => return None,
    })
}
