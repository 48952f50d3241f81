//! Conditions: typed statements on an object, with the time at which each last changed its state.

use karmada_meta::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{reasons, schema, serde_util::words};

words! {
    /// Whether a condition holds.
    #[derive(Default)]
    ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not.
        False = "False",
        /// Nobody can tell.
        #[default]
        Unknown = "Unknown",
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// One aspect of an object's observed state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about.
    #[serde(rename = "type")]
    #[schemars(schema_with = "schema::condition_type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// The generation of the object that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub observed_generation: Option<i64>,
    /// When the status last changed.
    #[schemars(schema_with = "schema::date_time")]
    pub last_transition_time: Time,
    /// Why, in one CamelCase word.
    #[schemars(schema_with = "schema::condition_reason")]
    pub reason: String,
    /// Why, for people.
    #[schemars(extend("maxLength" = 32768))]
    pub message: String,
}

impl Condition {
    /// A condition; `now` stands unless [`set`] finds the same state already there.
    ///
    /// # Panics
    /// In debug builds, if the reason is not in [`reasons::REASONS`]: people would not find it in the reference.
    pub fn new(
        type_: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: &'static str,
        message: impl Into<String>,
        now: Time,
    ) -> Self {
        let type_ = type_.into();
        debug_assert!(
            reasons::is_known(&type_, reason),
            "hub/api/src/reasons.rs has no reason {reason} of the condition {type_}"
        );
        Self {
            type_,
            status: status.into(),
            observed_generation: None,
            last_transition_time: now,
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of a type is there and True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == ConditionStatus::True)
}

/// Puts a condition in the place of the one of its type, or at the end. Its transition time is `now` only when the
/// status differs from what was there, else the old one. Answers whether anything changed.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition, now: Time) -> bool {
    new.last_transition_time = now;
    let Some(old) = conditions.iter_mut().find(|c| c.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time = old.last_transition_time;
    }
    let changed = *old != new;
    *old = new;
    changed
}

/// Takes the condition of a type away. Answers whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|c| c.type_ != type_);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::from_system(std::time::UNIX_EPOCH + std::time::Duration::from_secs(second))
    }

    /// (status before, status after) → (changed, transition time moved)
    #[test]
    fn the_transition_time_follows_the_status_alone() {
        use ConditionStatus::{False, True, Unknown};
        for (before, after, message, changed, moved) in [
            (True, True, "same", false, false),
            (True, True, "other", true, false),
            (True, False, "same", true, true),
            (Unknown, True, "same", true, true),
            (False, Unknown, "other", true, true),
        ] {
            let mut conditions = vec![
                Condition::new("Applied", true, "AppliedSuccessful", "", at(1)),
                Condition::new("Ready", before, "ClusterReady", "same", at(1)),
            ];
            let new = Condition::new("Ready", after, "ClusterReady", message, at(9));
            assert_eq!(set(&mut conditions, new, at(9)), changed, "{before} to {after}, {message}");
            let ready = find(&conditions, "Ready").unwrap();
            assert_eq!(ready.last_transition_time, at(if moved { 9 } else { 1 }), "{before} to {after}");
            assert_eq!((ready.status, ready.message.as_str()), (after, message));
            assert_eq!(conditions.len(), 2);
        }
    }

    #[test]
    fn a_new_condition_goes_to_the_end_and_can_be_removed() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, Condition::new("Ready", true, "ClusterReady", "", at(1)), at(5)));
        assert_eq!(conditions[0].last_transition_time, at(5), "the time is the caller's now");
        assert!(is_true(&conditions, "Ready"));
        assert!(!is_true(&conditions, "Applied"));
        assert!(remove(&mut conditions, "Ready"));
        assert!(!remove(&mut conditions, "Ready"));
    }

    #[test]
    fn a_condition_is_written_in_kubernetes_form() {
        let condition = Condition::new("Applied", false, "AppliedFailed", "no", at(0));
        assert_eq!(
            serde_json::to_value(condition).unwrap(),
            serde_json::json!({
                "type": "Applied", "status": "False", "lastTransitionTime": "1970-01-01T00:00:00Z",
                "reason": "AppliedFailed", "message": "no",
            })
        );
    }
}
