//! Functions of durations and points in time.

use super::Answer;
use crate::{library::time::zone, value::Val};

pub(super) fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    if let (Val::Duration(n), "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds") =
        (args.first()?, name)
    {
        return Some(Ok(Val::Int(match name {
            "getHours" => n / 3_600_000_000_000,
            "getMinutes" => n / 60_000_000_000,
            "getSeconds" => n / 1_000_000_000,
            _ => n / 1_000_000 % 1000,
        })));
    }
    let (at, place) = match args {
        [Val::Time(at)] => (at, ""),
        [Val::Time(at), Val::Text(place)] => (at, &**place),
        _ => return None,
    };
    let at = match zone(place) {
        Ok(zone) => at.to_zoned(zone).datetime(),
        Err(unknown) => return Some(Err(unknown)),
    };
    Some(Ok(Val::Int(match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return None,
    })))
}
