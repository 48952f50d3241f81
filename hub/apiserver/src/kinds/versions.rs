//! The order of versions of a group.

use std::cmp::Ordering;

/// Kubernetes' order of versions, the most wanted first: stable before beta before alpha, newer before older, anything
/// that is not `v<number>[alpha|beta<number>]` last and by name.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// `(stability, major, minor)`.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, tail) = rest.split_at(digits);
    let major = number(major)?;
    if tail.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (0, minor),
        _ => return None,
    };
    Some((stability, major, number(minor)?))
}

fn number(digits: &str) -> Option<u64> {
    (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}
