//! Versions of the programs, and how far two of them may be apart.

use std::{cmp::Ordering, fmt, str::FromStr};

/// So many minor versions may be between two programs that work together, or follow each other.
const SKEW: u64 = 2;
/// No version is longer.
const LONGEST: usize = 64;

/// `0.6.0`, `1.2.3-rc.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    numbers: [u64; 3],
    /// What follows a hyphen; such a version comes before the one without.
    pre: String,
}

/// A text is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no version like 0.6.0")]
pub struct Unreadable(String);

impl Version {
    fn minor(&self) -> (u64, u64) {
        (self.numbers[0], self.numbers[1])
    }

    /// `0.6`.
    pub fn short(&self) -> String {
        format!("{}.{}", self.numbers[0], self.numbers[1])
    }
}

impl FromStr for Version {
    type Err = Unreadable;

    /// A `v` before it is passed over, and so is what follows a plus sign.
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let wrong = || Unreadable(text.chars().take(LONGEST).collect());
        if text.len() > LONGEST {
            return Err(wrong());
        }
        let bare = text.trim().trim_start_matches('v');
        let bare = bare.split_once('+').map_or(bare, |(bare, _)| bare);
        let (numbers, pre) = bare.split_once('-').map_or((bare, None), |(numbers, pre)| (numbers, Some(pre)));
        let mut parts = numbers.split('.').map(|part| {
            let digits = !part.is_empty() && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| digits).ok_or_else(wrong)
        });
        let mut number = || parts.next().ok_or_else(wrong).flatten();
        let numbers = [number()?, number()?, number()?];
        let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
        if parts.next().is_some() || pre.is_some_and(|pre| pre.is_empty() || !pre.bytes().all(fits)) {
            return Err(wrong());
        }
        Ok(Self { numbers, pre: pre.unwrap_or_default().to_owned() })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if self.pre.is_empty() { Ok(()) } else { write!(f, "-{}", self.pre) }
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let pre = || match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => identifiers(&self.pre).cmp(identifiers(&other.pre)),
        };
        self.numbers.cmp(&other.numbers).then_with(pre)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `rc.2` comes before `rc.10`: numbers before words, and by what they count.
fn identifiers(pre: &str) -> impl Iterator<Item = (bool, u64, &str)> {
    pre.split('.').map(|part| match part.parse() {
        Ok(number) => (false, number, ""),
        Err(_) => (true, 0, part),
    })
}

/// Where an agent has to stop on its way from one version to another; nothing if it need not.
pub fn next_step(from: &Version, to: &Version) -> Option<String> {
    let ((major, minor), (to_major, to_minor)) = (from.minor(), to.minor());
    if major != to_major {
        let way =
            if major < to_major { "first to the last minor version of" } else { "there is no way back to" };
        return Some(format!(
            "{} and {} are of different major versions: {way} {}",
            from,
            to,
            major.min(to_major)
        ));
    }
    if minor.abs_diff(to_minor) <= SKEW {
        return None;
    }
    let next = if minor < to_minor { minor + SKEW } else { minor - SKEW };
    Some(format!("from {from} to {to} are more than two minor versions: first to {major}.{next}"))
}

/// Why agents of a version do not go with a hub; nothing if they do.
pub fn with_hub(agents: &Version, hub: &Version) -> Option<String> {
    let (theirs, ours) = (agents.minor(), hub.minor());
    if theirs > ours {
        return Some(format!(
            "agents of {agents} would be newer than the hub, which is {hub}: upgrade the hub first"
        ));
    }
    if theirs.0 != ours.0 || ours.1 - theirs.1 > SKEW {
        let oldest = ours.1.saturating_sub(SKEW);
        return Some(format!(
            "agents of {agents} are too old for the hub, which is {hub}: it supports agents from {}.{oldest} on",
            ours.0
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_read_and_ordered() {
        let sorted =
            ["0.5.9", "0.6.0-alpha", "0.6.0-rc.2", "0.6.0-rc.10", "0.6.0-rc.x", "0.6.0", "0.10.0", "1.0.0"];
        for pair in sorted.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
            assert_eq!(version(pair[0]).to_string(), pair[0]);
        }
        assert_eq!(version("v0.6.0+build.5"), version("0.6.0"));
        for text in
            ["", "0.6", "0.6.0.1", "0.6.x", "0.6.-1", "0.6.0-", "0.6.0-a b", "0..0", "+1.0.0", "latest"]
        {
            let error = text.parse::<Version>().unwrap_err().to_string();
            assert!(error.ends_with("is no version like 0.6.0"), "{text}: {error}");
        }
        assert!("1.0.0000000001".parse::<Version>().is_err());
        assert!(format!("1.0.0-{}", "a".repeat(LONGEST)).parse::<Version>().is_err());
    }

    #[test]
    fn two_minor_versions_are_one_step() {
        let rows = [
            ("0.3.0", "0.5.9", None),
            ("0.5.0", "0.3.0", None),
            ("0.5.0", "0.5.1", None),
            ("0.3.1", "0.6.0", Some("first to 0.5")),
            ("0.6.1", "0.2.0", Some("first to 0.4")),
            ("0.9.0", "1.0.0", Some("first to the last minor version of 0")),
            ("1.0.0", "0.9.0", Some("there is no way back to 0")),
        ];
        for (from, to, want) in rows {
            let got = next_step(&version(from), &version(to));
            match want {
                None => assert_eq!(got, None, "{from} {to}"),
                Some(want) => assert!(got.as_deref().unwrap().ends_with(want), "{from} {to}: {got:?}"),
            }
        }
    }

    #[test]
    fn agents_are_no_newer_than_their_hub_and_two_minor_versions_older_at_most() {
        let rows = [
            ("0.5.0", "0.5.0", None),
            ("0.5.7", "0.5.0", None),
            ("0.3.0", "0.5.0", None),
            ("0.6.0", "0.5.9", Some("upgrade the hub first")),
            ("0.2.9", "0.5.0", Some("from 0.3 on")),
            ("0.9.0", "1.0.0", Some("from 1.0 on")),
        ];
        for (agents, hub, want) in rows {
            let got = with_hub(&version(agents), &version(hub));
            match want {
                None => assert_eq!(got, None, "{agents} {hub}"),
                Some(want) => assert!(got.as_deref().unwrap().ends_with(want), "{agents} {hub}: {got:?}"),
            }
        }
    }
}
