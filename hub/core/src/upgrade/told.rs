//! What hub and agent say to each other about versions, each in an annotation of the Cluster.

use std::{fmt, str::FromStr, time::Duration};

use karmada_meta::{text, time::Time};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Program;
use crate::names::fnv64a;

/// No annotation is longer.
const LONGEST: usize = 8 << 10;
/// Nor does an agent give a longer reason.
const REASON: usize = 512;

/// So many agents begin in a second at most, of those that are offered a version together: each fetches an image.
const STARTS: usize = 10;
/// Nobody waits longer for its turn than so many seconds.
const LONGEST_TURN: u64 = 15 * 60;

/// What the hub offers the agent of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The version.
    pub version: String,
    /// When its first wave began: an agent that has gone back from this offer waits for another.
    pub begun: Time,
    /// The image. Without it: the agent's own image with the version as its tag.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The programs, for an agent that is no Pod: it takes the one for its machine. They are none for an agent that is a Pod, which
    /// is given an image alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Program>,
    /// The agent is to go back from the version to what was before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    /// A person has asked for it, knowing that it is older than what runs: no agent takes an older version without that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub downgrade: bool,
    /// Over so many seconds those that are offered it together spread their starts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spread: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What an agent's owner lets be done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing.
    #[default]
    Off,
    /// It takes a new version in a maintenance window only: never where there is none.
    Windows,
    /// It takes one whenever changes may be made.
    On,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "windows" => Ok(Self::Windows),
            "on" => Ok(Self::On),
            _ => Err(format!("{text:?} is none of off, windows and on")),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Windows => "windows",
            Self::On => "on",
        })
    }
}

/// How an agent is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// It is a Pod of a Deployment, whose image it changes.
    Deployment,
    /// It is a program on a machine, which an installed one starts in its stead.
    Program,
}

/// How an agent stands to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stands {
    /// It takes it when it may.
    Waiting,
    /// The new version is being fetched, or is on trial.
    Trying,
    /// The new version is there to stay.
    Committed,
    /// The new version was not well, and what was before is there again.
    Returned,
    /// It does not take it.
    Refused,
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What its owner lets be done.
    pub mode: Mode,
    /// How it is installed.
    pub way: Way,
    /// The version that it says something about; nothing if it was offered none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
}

/// What an agent says about an offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its version.
    pub version: String,
    /// And its time.
    pub begun: Time,
    /// How the agent stands to it.
    pub stands: Stands,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// It waits for nothing but itself: its turn, the hub, its program. Nobody at the cluster holds it back, and it begins as soon as
    /// it can. Agents of before say nothing of that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begins: bool,
}

impl Offer {
    /// Reads an annotation.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(text: &str) -> Result<Self, String> {
        read(text)
    }

    /// As it stands in the annotation.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Over how many seconds so many clusters spread their starts.
    pub fn spread_of(clusters: usize) -> u64 {
        u64::try_from(clusters / STARTS).map_or(LONGEST_TURN, |seconds| seconds.min(LONGEST_TURN))
    }

    /// How long a cluster waits for its turn from when nothing else holds it up: many become free at once when a wave or a window
    /// begins, or a link comes back.
    pub fn turn(&self, cluster: &str) -> Duration {
        let seed = format!("{} {cluster}", self.begun);
        let spread = u128::from(self.spread.min(LONGEST_TURN)) * 1000;
        let place = (u128::from(mixed(fnv64a(seed.as_bytes()))) * spread) >> 64;
        Duration::from_millis(u64::try_from(place).unwrap_or_default())
    }
}

/// Spreads what differs in its last bits over all of them.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

impl Report {
    /// Reads an annotation; an agent that says something else says nothing.
    pub fn read(text: &str) -> Option<Self> {
        let mut report: Self = read(text).ok()?;
        if let Some(about) = &mut report.about {
            // It is shown on the terminals of the hub's operators.
            about.why = text::line(&about.why, REASON);
        }
        Some(report)
    }

    /// As it stands in the annotation.
    pub fn write(&self) -> String {
        let mut report = self.clone();
        if let Some(about) = &mut report.about
            && about.why.len() > REASON
        {
            about.why = about.why.chars().take(REASON / 4).collect();
        }
        serde_json::to_string(&report).unwrap_or_default()
    }

    /// What it says about an offer of this version and time.
    pub fn on(&self, version: &str, begun: Time) -> Option<&About> {
        self.about.as_ref().filter(|about| about.version == version && about.begun == begun)
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    match text.len() {
        ..=LONGEST => serde_json::from_str(text).map_err(|error| error.to_string()),
        long => Err(format!("{long} bytes are more than {LONGEST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_back_and_bounded() {
        let begun: Time = "2026-11-26T01:00:00Z".parse().unwrap();
        let offer = Offer {
            version: "0.6.0".to_owned(),
            begun,
            image: String::new(),
            programs: Vec::new(),
            returns: false,
            downgrade: false,
            spread: 0,
        };
        assert!(!offer.write().contains("spread") && !offer.write().contains("downgrade"));
        assert_eq!(Offer::read(&offer.write()), Ok(offer.clone()));
        let older = Offer { downgrade: true, ..offer };
        assert_eq!(Offer::read(&older.write()), Ok(older));
        let about = About {
            version: "0.6.0".to_owned(),
            begun,
            stands: Stands::Returned,
            why: "ü".repeat(REASON),
            begins: false,
        };
        let report = Report { mode: Mode::Windows, way: Way::Deployment, about: Some(about) };
        let text = report.write();
        assert!(text.len() < 2 * REASON && text.contains("\"mode\":\"windows\""), "{text}");
        let read = Report::read(&text).unwrap();
        assert_eq!(read.on("0.6.0", begun).unwrap().stands, Stands::Returned);
        assert_eq!(read.on("0.6.1", begun), None);
        assert_eq!(read.on("0.6.0", begun.next()), None);
        assert_eq!(Report::read("{\"mode\":\"always\"}"), None);
        let mut hostile = report;
        hostile.about.as_mut().unwrap().why = "x\nComplete: y\u{1b}[2J".to_owned();
        let why = Report::read(&hostile.write()).unwrap().about.unwrap().why;
        assert!(why.starts_with("x Complete: y") && !why.contains(char::is_control), "{why:?}");
        assert!(
            Offer::read(&format!("{{\"version\":\"{}\"}}", "9".repeat(LONGEST)))
                .unwrap_err()
                .contains("more than")
        );
    }

    #[test]
    fn agents_of_before_and_after_are_understood() {
        let about = |more: &str| {
            let about = r#"{"version":"0.6.0","begun":"2026-11-26T01:00:00Z","stands":"Waiting","why":"w""#;
            Report::read(&format!(r#"{{"mode":"on","way":"Deployment","about":{about}{more}}}}}"#))
                .and_then(|report| report.about)
                .map(|about| about.begins)
        };
        for (more, want) in [
            ("", Some(false)),
            (r#","begins":false"#, Some(false)),
            (r#","begins":true"#, Some(true)),
            (r#","begins":true,"later":{"x":1}"#, Some(true)),
        ] {
            assert_eq!(about(more), want, "{more}");
        }
        // What is not so is not said, so that a hub of before reads what it knows.
        let begun = "2026-11-26T01:00:00Z".parse().unwrap();
        for begins in [false, true] {
            let about =
                About { version: "0.6.0".into(), begun, stands: Stands::Waiting, why: String::new(), begins };
            let text = Report { mode: Mode::On, way: Way::Program, about: Some(about) }.write();
            assert_eq!(text.contains("begins"), begins, "{text}");
            assert!(text.contains(r#""stands":"Waiting""#), "{text}");
        }
    }

    #[test]
    fn starts_are_spread_over_a_time_that_fits_their_number() {
        for (clusters, seconds) in [(0, 0), (9, 0), (20, 2), (5_000, 500), (1_000_000, 900)] {
            assert_eq!(Offer::spread_of(clusters), seconds);
        }
        let begun = "2026-11-26T01:00:00Z".parse().unwrap();
        let offer = Offer {
            version: "0.6.0".into(),
            begun,
            image: String::new(),
            programs: Vec::new(),
            returns: false,
            downgrade: false,
            spread: 500,
        };
        let mut in_each = [0; 50];
        for cluster in 0..5_000 {
            let turn = offer.turn(&format!("member{cluster}"));
            in_each[usize::try_from(turn.as_secs() / 10).unwrap()] += 1;
        }
        assert!(in_each.iter().all(|begin| (60..150).contains(begin)), "{in_each:?}");
        let near = Offer { spread: 0, ..offer.clone() };
        assert_eq!(near.turn("member1"), Duration::ZERO);
        let hostile = Offer { spread: u64::MAX, ..offer };
        assert!(hostile.turn("member1") <= Duration::from_secs(LONGEST_TURN));
    }
}
