//! From one type to another.

use std::rc::Rc;

use super::Answer;
use crate::{library::time, value::Val};

/// A value as text, as messages show it.
pub(crate) fn show(value: &Val<'_>) -> String {
    match value {
        Val::Text(text) => text.clone().into_owned(),
        Val::Int(n) => n.to_string(),
        Val::Uint(n) => n.to_string(),
        Val::Double(n) => number(*n),
        Val::Bool(b) => b.to_string(),
        Val::Null => "null".to_owned(),
        Val::Duration(n) => time::show_duration(*n),
        Val::Time(at) => at.to_string(),
        Val::Type(name) => name.clone().into_owned(),
        Val::Ip(ip) => ip.to_string(),
        Val::Cidr(cidr) => cidr.to_string(),
        Val::Quantity(q) => q.to_string(),
        other => other.type_name().to_owned(),
    }
}

/// As Go prints a float with `%g`.
fn number(n: f64) -> String {
    if n.is_nan() {
        return "NaN".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if n != 0.0 && !(1e-4..1e21).contains(&n.abs()) {
        let text = format!("{n:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    n.to_string()
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounds are looked at first"
)]
pub(super) fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    let [value] = args else { return None };
    let overflow = || "integer overflow".to_owned();
    let unsigned = || "unsigned integer overflow".to_owned();
    let wrong =
        |value: &Val<'_>, to: &str| format!("type conversion error from '{}' to '{to}'", value.type_name());
    Some(match (name, value) {
        ("bool", Val::Bool(_))
        | ("int", Val::Int(_))
        | ("uint", Val::Uint(_))
        | ("double", Val::Double(_))
        | ("string", Val::Text(_))
        | ("bytes", Val::Bytes(_))
        | ("duration", Val::Duration(_))
        | ("timestamp", Val::Time(_)) => Ok(value.clone()),
        ("bool", Val::Text(text)) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => Err(wrong(value, "bool")),
        },
        ("int", Val::Uint(n)) => i64::try_from(*n).map(Val::Int).map_err(|_| overflow()),
        ("int", Val::Double(n)) => {
            if *n > -9.223_372_036_854_776e18 && *n < 9.223_372_036_854_776e18 {
                Ok(Val::Int(*n as i64))
            } else {
                Err(overflow())
            }
        }
        ("int", Val::Text(text)) => text
            .parse()
            .map(Val::Int)
            .map_err(|_| format!("strconv.ParseInt: parsing {text:?}: invalid syntax")),
        ("int", Val::Time(at)) => Ok(Val::Int(at.as_second())),
        ("int", Val::Duration(n)) => Ok(Val::Int(*n)),
        ("uint", Val::Int(n)) => u64::try_from(*n).map(Val::Uint).map_err(|_| unsigned()),
        ("uint", Val::Double(n)) => {
            if *n >= 0.0 && *n < 1.844_674_407_370_955_2e19 {
                Ok(Val::Uint(*n as u64))
            } else {
                Err(unsigned())
            }
        }
        ("uint", Val::Text(text)) => text
            .parse()
            .map(Val::Uint)
            .map_err(|_| format!("strconv.ParseUint: parsing {text:?}: invalid syntax")),
        ("double", Val::Int(n)) => Ok(Val::Double(*n as f64)),
        ("double", Val::Uint(n)) => Ok(Val::Double(*n as f64)),
        ("double", Val::Text(text)) => text
            .parse()
            .map(Val::Double)
            .map_err(|_| format!("strconv.ParseFloat: parsing {text:?}: invalid syntax")),
        ("string", Val::Bytes(bytes)) => String::from_utf8(bytes.to_vec())
            .map(Val::text)
            .map_err(|_| "invalid UTF-8 in bytes, cannot convert to string".to_owned()),
        (
            "string",
            Val::Bool(_)
            | Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::Time(_)
            | Val::Duration(_)
            | Val::Ip(_)
            | Val::Cidr(_),
        ) => Ok(Val::text(show(value))),
        ("bytes", Val::Text(text)) => Ok(Val::Bytes(Rc::from(text.as_bytes()))),
        ("duration", Val::Text(text)) => time::parse_duration(text)
            .map(Val::Duration)
            .ok_or_else(|| wrong(value, "google.protobuf.Duration")),
        ("duration", Val::Int(n)) => Ok(Val::Duration(*n)),
        ("timestamp", Val::Text(text)) => time::parse_timestamp(text)
            .map(Val::Time)
            .ok_or_else(|| wrong(value, "google.protobuf.Timestamp")),
        ("timestamp", Val::Int(n)) => {
            jiff::Timestamp::from_second(*n).map(Val::Time).map_err(|_| "timestamp overflow".to_owned())
        }
        _ => return None,
    })
}
