//! Semantic versions.

use std::{cmp::Ordering, rc::Rc};

use super::Answer;
use crate::value::Val;

/// A version, after semver.org 2.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Semver {
    numbers: [u64; 3],
    pre: Vec<String>,
}

fn number(text: &str) -> Option<u64> {
    (text == "0" || !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

impl Semver {
    fn parse(text: &str, lenient: bool) -> Option<Self> {
        let text = if lenient { text.strip_prefix('v').unwrap_or(text) } else { text };
        let (text, build) = text.split_once('+').map_or((text, None), |(t, b)| (t, Some(b)));
        let (core, pre) = text.split_once('-').map_or((text, None), |(t, p)| (t, Some(p)));
        let word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if build.is_some_and(|b| !b.split('.').all(word)) {
            return None;
        }
        let pre: Vec<String> = pre.map(|p| p.split('.').map(str::to_owned).collect()).unwrap_or_default();
        let numeric = |w: &str| w.bytes().all(|b| b.is_ascii_digit());
        if pre.iter().any(|w| !word(w) || (numeric(w) && number(w).is_none())) {
            return None;
        }
        let mut parts: Vec<&str> = core.split('.').collect();
        if lenient {
            while parts.len() < 3 {
                parts.push("0");
            }
        }
        let lean = |part: &&str| {
            let part = if lenient { part.trim_start_matches('0') } else { part };
            number(if part.is_empty() { "0" } else { part })
        };
        let blank = parts.iter().any(|p| p.is_empty());
        let numbers: Vec<u64> = parts.iter().map(lean).collect::<Option<_>>()?;
        Some(Self { numbers: numbers.try_into().ok().filter(|_| !blank)?, pre })
    }

    /// Which one comes first.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let part = |a: &String, b: &String| match (number(a), number(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.cmp(b),
        };
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self
                .pre
                .iter()
                .zip(&other.pre)
                .map(|(a, b)| part(a, b))
                .find(|o| o.is_ne())
                .unwrap_or_else(|| self.pre.len().cmp(&other.pre.len())),
        })
    }
}

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
