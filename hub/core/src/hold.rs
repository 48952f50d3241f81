//! Holds: when changes of the hub's wait on a member, and for what.
//!
//! Somebody at the machine holds them, a Cluster does, a policy, or a Work, for as long as it says so; or one of these has
//! maintenance windows, and none is open. What holds is judged where the changes would be made, by its clock, and so also while
//! the hub is away. Windows that cannot be read hold, too: whoever wrote them did not mean that changes may come at any time.

use std::time::SystemTime;

use karmada_api::consts::extension;
use karmada_meta::{
    object,
    path::{FieldError, Path},
    time::Time,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::windows::{Stand, Windows};

/// No reason that somebody gives is longer than this.
const LONGEST: usize = 256;

/// Who holds changes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Cluster,
    Policy,
    Work,
}

impl Whose {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Policy, Self::Work];

    /// The annotations by which it does: a hold's, and windows'.
    pub const fn keys(self) -> [&'static str; 2] {
        match self {
            Self::Cluster => [extension::HOLD_CLUSTER, extension::WINDOWS_CLUSTER],
            Self::Policy => [extension::HOLD_POLICY, extension::WINDOWS_POLICY],
            Self::Work => [extension::HOLD_WORK, extension::WINDOWS_WORK],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Policy => "policy",
            Self::Work => "Work",
        }
    }
}

/// What one of them asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Why changes are held; none if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// When they may be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<String>,
}

/// What somebody at the machine asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHand {
    pub why: String,
    /// No longer than this.
    pub until: Option<Time>,
}

/// That changes are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// In a word.
    pub reason: &'static str,
    /// In a sentence, without an end. It is the same as long as the same holds.
    pub message: String,
    /// When it may be otherwise, if that is known.
    pub until: Option<Time>,
}

impl Asked {
    /// What annotations ask for.
    pub fn read<'a>(whose: Whose, annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        let [hold, windows] = whose.keys();
        let hold = annotation(hold).map(str::trim).filter(|text| *text != "false");
        Self { hold: hold.map(cut), windows: annotation(windows).map(str::to_owned) }
    }

    /// What an object's do.
    pub fn of(whose: Whose, object: &Value) -> Self {
        Self::read(whose, |key| object::annotation(object, key))
    }

    /// The annotations that ask for it.
    pub fn annotations(&self, whose: Whose) -> Vec<(&'static str, &str)> {
        let said = whose.keys().into_iter().zip([&self.hold, &self.windows]);
        said.filter_map(|(key, text)| Some((key, text.as_deref()?))).collect()
    }

    /// Whether it asks for nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it holds changes back now.
    pub fn held(&self, whose: Whose, now: SystemTime) -> Option<Held> {
        let ([hold, windows], name) = (whose.keys(), whose.name());
        if let Some(why) = &self.hold {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            let message = format!("the {name} holds changes back ({hold}){why}");
            return Some(Held { reason: extension::HELD, message, until: None });
        }
        let text = self.windows.as_ref()?;
        match Windows::parse(text).map(|windows| windows.at(now)) {
            Ok(Stand::Open(_)) => None,
            Ok(Stand::Shut(opens)) => Some(Held {
                reason: extension::OUTSIDE_WINDOWS,
                message: format!(
                    "no maintenance window of the {name} is open ({windows}: {text}) before {opens}"
                ),
                until: Some(opens),
            }),
            Err(why) => Some(Held {
                reason: extension::UNREADABLE_WINDOWS,
                message: format!("the maintenance windows of the {name} ({windows}) cannot be read: {why}"),
                until: None,
            }),
        }
    }
}

impl ByHand {
    /// What the annotations of a Lease ask for. An end that cannot be read is none.
    pub fn read(why: Option<&str>, until: Option<&str>) -> Option<Self> {
        let why = why.map(str::trim).filter(|why| *why != "false")?;
        Some(Self { why: cut(why), until: until.and_then(|until| until.parse().ok()) })
    }

    /// Whether it holds changes back now.
    pub fn held(&self, now: SystemTime) -> Option<Held> {
        if self.until.is_some_and(|until| Time::from_system(now) >= until) {
            return None;
        }
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        let until = self.until.map(|until| format!(" until {until}")).unwrap_or_default();
        let message = format!("somebody at the machine holds changes back{until} (karmada-agent hold){why}");
        Some(Held { reason: extension::HELD, message, until: self.until })
    }
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// What is wrong with the windows that an object's annotations name.
pub fn problem(whose: Whose, object: &Value) -> Option<FieldError> {
    let [_, key] = whose.keys();
    refusal(whose, object::annotation(object, key)?)
}

/// What is wrong with what such an annotation says.
pub fn refusal(whose: Whose, text: &str) -> Option<FieldError> {
    let [_, key] = whose.keys();
    let path = Path::new("metadata").child("annotations").key(key);
    Windows::parse(text).err().map(|why| FieldError::invalid(&path, text, why.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> SystemTime {
        SystemTime::from(text.parse::<Time>().unwrap().timestamp())
    }

    #[test]
    fn what_holds_is_said() {
        let now = at("2026-11-23T12:00:00Z");
        let rows = [
            (json!({}), None),
            (json!({"policy.karmada.io/hold": "false"}), None),
            // Of somebody else's.
            (json!({"cluster.karmada.io/hold": "x", "work.karmada.io/hold": "x"}), None),
            (
                json!({"policy.karmada.io/hold": ""}),
                Some("Held the policy holds changes back (policy.karmada.io/hold)"),
            ),
            (
                json!({"policy.karmada.io/hold": "stocktaking", "policy.karmada.io/maintenance-windows": "00:00-24:00"}),
                Some("Held the policy holds changes back (policy.karmada.io/hold): stocktaking"),
            ),
            (json!({"policy.karmada.io/maintenance-windows": "11:00-13:00"}), None),
            (
                json!({"policy.karmada.io/maintenance-windows": "22:00-05:00 Europe/Berlin"}),
                Some(
                    "OutsideMaintenanceWindows no maintenance window of the policy is open \
                     (policy.karmada.io/maintenance-windows: 22:00-05:00 Europe/Berlin) before 2026-11-23T21:00:00Z",
                ),
            ),
            (
                json!({"policy.karmada.io/maintenance-windows": "at night"}),
                Some(
                    "UnreadableMaintenanceWindows the maintenance windows of the policy \
                     (policy.karmada.io/maintenance-windows) cannot be read: ",
                ),
            ),
        ];
        for (annotations, want) in rows {
            let object = json!({"metadata": {"annotations": annotations}});
            let held = Asked::of(Whose::Policy, &object).held(Whose::Policy, now);
            let got = held.map(|held| format!("{} {}", held.reason, held.message));
            match want {
                Some(want) if want.ends_with(' ') => assert!(got.unwrap().starts_with(want), "{object}"),
                want => assert_eq!(got.as_deref(), want, "{object}"),
            }
        }
    }

    #[test]
    fn a_hold_by_hand_ends_when_it_says() {
        let read = |why: &str, until: Option<&str>| ByHand::read(Some(why), until);
        assert_eq!(ByHand::read(None, Some("2026-01-01T00:00:00Z")), None);
        assert_eq!(read("false", None), None);
        let hold = read("router", Some("2026-01-01T02:00:00Z")).unwrap();
        let held = hold.held(at("2026-01-01T01:59:59Z")).unwrap();
        assert_eq!(
            held.message,
            "somebody at the machine holds changes back until 2026-01-01T02:00:00Z (karmada-agent hold): router"
        );
        assert_eq!(hold.held(at("2026-01-01T02:00:00Z")), None);
        // What cannot be read ends nothing.
        assert!(read("", Some("soon")).unwrap().held(at("2126-01-01T00:00:00Z")).is_some());
        assert_eq!(read(&"ä".repeat(LONGEST + 1), None).unwrap().why, "ä".repeat(LONGEST));
    }

    #[test]
    fn windows_that_cannot_be_read_are_refused_by_their_path() {
        let object =
            json!({"metadata": {"annotations": {"work.karmada.io/maintenance-windows": "at night"}}});
        let error = problem(Whose::Work, &object).unwrap().to_string();
        assert!(
            error.starts_with("metadata.annotations[work.karmada.io/maintenance-windows]: Invalid value: "),
            "{error}"
        );
        assert!(problem(Whose::Policy, &object).is_none());
    }
}
