//! Arithmetic and quantities.

use std::{cmp::Ordering, rc::Rc};

use karmada_meta::quantity::Quantity;

use super::{Answer, no_overload};
use crate::value::Val;

const OVERFLOW: &str = "integer overflow";
const UNSIGNED: &str = "unsigned integer overflow";
const TIMES: &str = "timestamp overflow";

fn whole<'a>(n: Option<i64>) -> Answer<'a> {
    n.map(Val::Int).ok_or_else(|| OVERFLOW.to_owned())
}

fn natural<'a>(n: Option<u64>) -> Answer<'a> {
    n.map(Val::Uint).ok_or_else(|| UNSIGNED.to_owned())
}

fn span<'a>(n: Option<i64>) -> Answer<'a> {
    n.map(Val::Duration).ok_or_else(|| "duration overflow".to_owned())
}

fn moment<'a>(at: jiff::Timestamp, by: Option<i64>) -> Answer<'a> {
    let moved = by.and_then(|n| at.checked_add(jiff::SignedDuration::from_nanos(n)).ok());
    moved.map(Val::Time).ok_or_else(|| TIMES.to_owned())
}

/// The operators on numbers and times.
pub(super) fn arithmetic<'a>(name: &str, args: &[Val<'a>]) -> Answer<'a> {
    match (name, args) {
        ("-_", [Val::Int(a)]) => whole(a.checked_neg()),
        ("-_", [Val::Double(a)]) => Ok(Val::Double(-a)),
        ("_+_", [Val::Int(a), Val::Int(b)]) => whole(a.checked_add(*b)),
        ("_-_", [Val::Int(a), Val::Int(b)]) => whole(a.checked_sub(*b)),
        ("_*_", [Val::Int(a), Val::Int(b)]) => whole(a.checked_mul(*b)),
        ("_/_", [Val::Int(_), Val::Int(0)]) | ("_/_", [Val::Uint(_), Val::Uint(0)]) => {
            Err("division by zero".to_owned())
        }
        ("_%_", [Val::Int(_), Val::Int(0)]) | ("_%_", [Val::Uint(_), Val::Uint(0)]) => {
            Err("modulus by zero".to_owned())
        }
        ("_/_", [Val::Int(a), Val::Int(b)]) => whole(a.checked_div(*b)),
        ("_%_", [Val::Int(a), Val::Int(b)]) => whole(a.checked_rem(*b)),
        ("_+_", [Val::Uint(a), Val::Uint(b)]) => natural(a.checked_add(*b)),
        ("_-_", [Val::Uint(a), Val::Uint(b)]) => natural(a.checked_sub(*b)),
        ("_*_", [Val::Uint(a), Val::Uint(b)]) => natural(a.checked_mul(*b)),
        ("_/_", [Val::Uint(a), Val::Uint(b)]) => natural(a.checked_div(*b)),
        ("_%_", [Val::Uint(a), Val::Uint(b)]) => natural(a.checked_rem(*b)),
        ("_+_", [Val::Double(a), Val::Double(b)]) => Ok(Val::Double(a + b)),
        ("_-_", [Val::Double(a), Val::Double(b)]) => Ok(Val::Double(a - b)),
        ("_*_", [Val::Double(a), Val::Double(b)]) => Ok(Val::Double(a * b)),
        ("_/_", [Val::Double(a), Val::Double(b)]) => Ok(Val::Double(a / b)),
        ("_+_", [Val::Duration(a), Val::Duration(b)]) => span(a.checked_add(*b)),
        ("_-_", [Val::Duration(a), Val::Duration(b)]) => span(a.checked_sub(*b)),
        ("_+_", [Val::Time(at), Val::Duration(by)] | [Val::Duration(by), Val::Time(at)]) => {
            moment(*at, Some(*by))
        }
        ("_-_", [Val::Time(at), Val::Duration(by)]) => moment(*at, by.checked_neg()),
        ("_-_", [Val::Time(a), Val::Time(b)]) => {
            span(i64::try_from(a.as_nanosecond() - b.as_nanosecond()).ok())
        }
        _ => no_overload(),
    }
}

/// A number as a quantity.
fn quantity_of(value: &Val<'_>) -> Option<Quantity> {
    match value {
        Val::Quantity(q) => Some(**q),
        Val::Int(n) => Quantity::parse(&n.to_string()).ok(),
        _ => None,
    }
}

/// The quantity library.
pub(super) fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    let made = |q: Quantity| Val::Quantity(Rc::new(q));
    Some(match (name, args) {
        ("quantity", [Val::Text(text)]) => Quantity::parse(text).map(made).map_err(|_| {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned()
        }),
        ("isQuantity", [Val::Text(text)]) => Ok(Val::Bool(Quantity::parse(text).is_ok())),
        ("sign", [Val::Quantity(q)]) => Ok(Val::Int(match (**q).cmp(&Quantity::default()) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })),
        ("isInteger", [Val::Quantity(q)]) => Ok(Val::Bool(integer(q).is_some())),
        ("asInteger", [Val::Quantity(q)]) => {
            integer(q).map(Val::Int).ok_or_else(|| "cannot convert value to integer".to_owned())
        }
        #[allow(clippy::cast_precision_loss, reason = "approximate by name")]
        ("asApproximateFloat", [Val::Quantity(q)]) => Ok(Val::Double(match integer(q) {
            Some(n) => n as f64,
            None => q.milli() as f64 / 1000.0,
        })),
        ("add", [Val::Quantity(a), b]) => {
            quantity_of(b).map(|b| made(**a + b)).ok_or_else(|| crate::value::NO_OVERLOAD.to_owned())
        }
        ("sub", [Val::Quantity(a), b]) => {
            quantity_of(b).map(|b| made(**a - b)).ok_or_else(|| crate::value::NO_OVERLOAD.to_owned())
        }
        ("isGreaterThan", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Bool(a > b)),
        ("isLessThan", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Bool(a < b)),
        ("compareTo", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Int(a.cmp(b) as i64)),
        _ => return None,
    })
}

/// The number itself, if it is a whole one.
fn integer(q: &Quantity) -> Option<i64> {
    let n = q.value();
    (Quantity::parse(&n.to_string()).ok()? == *q).then_some(n)
}
