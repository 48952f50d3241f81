//! How far a Work is on its cluster, as its agent has told it.

use karmada_api::consts::{condition, extension};
use karmada_meta::object;
use serde::Serialize;
use serde_json::Value;

/// How far a Work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The member does not take it.
    Failed,
    /// The agent has not said anything of what it is now.
    Waiting,
    /// It is there.
    Applied,
}

/// How far a Work is, and why no further.
pub fn of(work: &Value) -> (Stage, &str) {
    let conditions = work.pointer("/status/conditions").and_then(Value::as_array);
    let find = |type_: &str| conditions.into_iter().flatten().find(|condition| condition["type"] == type_);
    if let Some(held) = find(extension::CHANGES_HELD).filter(|held| held["status"] == "True") {
        return (Stage::Waiting, held["message"].as_str().unwrap_or_default());
    }
    if object::deletion_timestamp(work).is_some() {
        return (Stage::Waiting, "its removal waits for the agent");
    }
    let Some(applied) = find(condition::APPLIED) else {
        return (Stage::Waiting, "the agent has not reported it yet");
    };
    let seen = applied["observedGeneration"].as_i64().filter(|seen| *seen > 0);
    if seen.is_some_and(|seen| seen < object::generation(work)) {
        return (Stage::Waiting, "changed since the agent reported it");
    }
    match applied["status"] == "True" {
        true => (Stage::Applied, ""),
        false => (Stage::Failed, applied["message"].as_str().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_work_is_as_far_as_its_agent_says() {
        let applied = |status: &str, seen: i64| json!({"type": "Applied", "status": status, "message": "no room", "observedGeneration": seen});
        for (conditions, stage, why) in [
            (json!(null), Stage::Waiting, "the agent has not reported it yet"),
            (json!([applied("True", 2)]), Stage::Applied, ""),
            (json!([applied("True", 1)]), Stage::Waiting, "changed since the agent reported it"),
            (json!([applied("True", 0)]), Stage::Applied, ""),
            (json!([applied("False", 2)]), Stage::Failed, "no room"),
            (
                json!([applied("True", 1), {"type": "ChangesHeld", "status": "True", "message": "window Sat 02:00"}]),
                Stage::Waiting,
                "window Sat 02:00",
            ),
        ] {
            let work = json!({"metadata": {"generation": 2}, "status": {"conditions": conditions}});
            assert_eq!(of(&work), (stage, why), "{conditions}");
        }
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(of(&going).0, Stage::Waiting);
    }
}
