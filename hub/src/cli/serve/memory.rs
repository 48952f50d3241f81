//! How much memory there is, and what of it stored objects and requests may take.

use std::fs;

use karmada_apiserver::limits::Limits;

/// etcd's. What is stored is read at every start and stands in every backup: more than that is none of a hub's.
const MOST: u64 = 2 << 30;
/// A hub with less has to be told that it may do with so little.
const LEAST: u64 = 64 << 20;
/// Objects are in memory once, with headers that may weigh as much again; history takes an eighth of what they may; lists
/// and bodies have budgets of their own. So a quarter leaves as much as all of that needs.
const SHARE: u64 = 4;
/// Files that say how much a group of processes may use: cgroup v2, and v1.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// What may be stored where nobody says it, in bytes.
pub(super) fn storage_quota() -> u64 {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    quota_of(LIMITS.iter().map(|path| read(path)), &read("/proc/meminfo"))
}

/// How much memory the hub may use, if that can be seen.
pub(in crate::cli) fn there_is() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let limits = LIMITS.iter().filter_map(|path| read(path).trim().parse::<u64>().ok());
    limits.chain(total(&read("/proc/meminfo"))).min()
}

/// What members' answers may take at most where nobody says it, in bytes: an eighth of what there is.
pub(super) fn answers() -> usize {
    usize::try_from(storage_quota() / 2).unwrap_or(usize::MAX)
}

/// The same of what is kept of members' objects: a quarter of what there is.
pub(super) fn kept() -> usize {
    usize::try_from(storage_quota()).unwrap_or(usize::MAX)
}

/// Limits of requests, smaller where there is little memory: a quarter of it for working on large objects, an eighth for
/// bodies on their way.
pub(super) fn fitted(limits: Limits) -> Limits {
    let share = usize::try_from(storage_quota()).unwrap_or(usize::MAX);
    Limits {
        working_bytes: limits.working_bytes.min(share),
        body_bytes: limits.body_bytes.min(share / 2),
        ..limits
    }
}

/// The quota, of the texts of those files, which are empty where there are none.
fn quota_of(limits: impl IntoIterator<Item = String>, meminfo: &str) -> u64 {
    let limits = limits.into_iter().filter_map(|text| text.trim().parse::<u64>().ok());
    limits.chain(total(meminfo)).min().map_or(MOST, |memory| (memory / SHARE).clamp(LEAST, MOST))
}

/// The machine's memory, as `/proc/meminfo` gives it.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        const MEMINFO: &str = "MemTotal:        4194304 kB\nMemFree:          100000 kB\n";
        let cases = [
            ("a machine of 4 GiB", "", "", MEMINFO, 1 << 30),
            ("a container of 1 GiB on it", "1073741824\n", "", MEMINFO, 256 << 20),
            ("one without a limit", "max\n", "", MEMINFO, 1 << 30),
            ("an old one without a limit", "", "9223372036854771712\n", MEMINFO, 1 << 30),
            ("a large machine", "", "", "MemTotal: 263000000 kB", MOST),
            ("a tiny one", "33554432", "", MEMINFO, LEAST),
            ("nobody knows", "", "", "", MOST),
        ];
        for (case, new, old, meminfo, want) in cases {
            assert_eq!(quota_of([new.to_owned(), old.to_owned()], meminfo), want, "{case}");
        }
    }
}
