//! Functions of semantic versions.

use std::rc::Rc;

use super::Answer;
use crate::{library::semver::Semver, value::Val};

pub(super) fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    let lenient = matches!(args.get(1), Some(Val::Bool(true)));
    let of = |index: usize| args.get(index).and_then(|v| if let Val::Semver(v) = v { Some(v) } else { None });
    let count = |n: u64| Val::Int(i64::try_from(n).unwrap_or(i64::MAX));
    Some(Ok(match (name, args.first()?) {
        ("semver", Val::Text(text)) => match Semver::parse(text, lenient) {
            Some(version) => Val::Semver(Rc::new(version)),
            None => return Some(Err(format!("invalid semantic version {text:?}"))),
        },
        ("isSemver", Val::Text(text)) => Val::Bool(Semver::parse(text, lenient).is_some()),
        ("major", Val::Semver(v)) => count(v.numbers[0]),
        ("minor", Val::Semver(v)) => count(v.numbers[1]),
        ("patch", Val::Semver(v)) => count(v.numbers[2]),
        ("isGreaterThan", Val::Semver(v)) => Val::Bool(v.compare(of(1)?).is_gt()),
        ("isLessThan", Val::Semver(v)) => Val::Bool(v.compare(of(1)?).is_lt()),
        ("compareTo", Val::Semver(v)) => Val::Int(v.compare(of(1)?) as i64),
        _ => return None,
    }))
}
