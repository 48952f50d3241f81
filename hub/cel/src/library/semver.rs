//! Semantic versions.

use std::cmp::Ordering;

/// A version, after semver.org 2.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Semver {
    pub(crate) numbers: [u64; 3],
    pre: Vec<String>,
}

fn number(text: &str) -> Option<u64> {
    (text == "0" || !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

impl Semver {
    pub(crate) fn parse(text: &str, lenient: bool) -> Option<Self> {
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
