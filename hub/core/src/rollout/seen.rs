//! How a Work's cluster stands to what the Work carries.

use karmada_api::consts::{annotation, condition, extension};
use karmada_meta::object;
use serde_json::Value;

use super::{Copies, Seen};
use crate::stage::{self, Stage};

/// Whether the agent says which generation of the Work it has tried.
pub fn is_named(work: &Value) -> bool {
    let conditions = work.pointer("/status/conditions").and_then(Value::as_array);
    let applied = conditions.into_iter().flatten().find(|condition| condition["type"] == condition::APPLIED);
    applied.and_then(|applied| applied["observedGeneration"].as_i64()).is_some_and(|seen| seen > 0)
}

impl Seen {
    /// What it is worth from an agent that says which generation of a Work it has tried, where it has not yet.
    pub fn unless_named(self, is_named: bool) -> Self {
        match self {
            Self::Well | Self::Unwell if !is_named => Self::Unsaid,
            seen => seen,
        }
    }
}

/// How many copies of a workload there are, for what tells; nothing of another kind, nor of what does not apply.
pub fn copies(work: &Value) -> Option<Copies> {
    if stage::of(work).0 != Stage::Applied {
        return None;
    }
    let status = work.pointer("/status/manifestStatuses/0/status")?;
    // What is none is left out by the API.
    let count = |field: &str| status.get(field).map_or(Some(0), number);
    let (there, updated) = (number(status.get("replicas")?)?, count("updatedReplicas")?);
    Some(Copies {
        available: count("availableReplicas")?,
        there,
        wanted: work.pointer("/spec/workload/manifests/0/spec/replicas").and_then(number),
        updated: updated >= there,
    })
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|count| u32::try_from(count).ok())
}

/// See the module. What was reported of an earlier content says nothing of this one.
pub fn seen(work: &Value) -> Seen {
    let conditions = work.pointer("/status/conditions").and_then(Value::as_array);
    let is_held =
        |condition: &Value| condition["type"] == extension::CHANGES_HELD && condition["status"] == "True";
    // What is not dispatched does not reach it either.
    if conditions.into_iter().flatten().any(is_held) || work["spec"]["suspendDispatching"] == true {
        return Seen::Held;
    }
    match stage::of(work).0 {
        Stage::Waiting => return Seen::Unsaid,
        Stage::Failed => return Seen::Unwell,
        Stage::Applied => {}
    }
    let Some(status) = work.pointer("/status/manifestStatuses/0") else { return Seen::Unsaid };
    let carried = work
        .pointer("/spec/workload/manifests/0")
        .and_then(|manifest| object::annotation(manifest, annotation::TEMPLATE_GENERATION))
        .and_then(|text| text.parse::<i64>().ok());
    let reported = status["status"]["resourceTemplateGeneration"].as_i64();
    // Agents of others do not say which generation of the Work they have applied; a workload says of which template it is.
    let is_of_this = match carried.zip(reported) {
        Some((carried, reported)) => reported >= carried,
        None => is_named(work),
    };
    if !is_of_this {
        return Seen::Unsaid;
    }
    // Of a kind of which nobody can tell, that it is there is all there is to know.
    if status["health"] == "Unhealthy" { Seen::Unwell } else { Seen::Well }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_are_counted_where_they_are_told() {
        let of = |applied: &str, seen: i64, wanted: Value, status: Value| {
            copies(&json!({
                "metadata": {"generation": 2},
                "spec": {"workload": {"manifests": [{"spec": {"replicas": wanted}}]}},
                "status": {
                    "conditions": [{"type": "Applied", "status": applied, "observedGeneration": seen}],
                    "manifestStatuses": [{"status": status}],
                },
            }))
        };
        let some = |available, there, updated| Some(Copies { available, there, wanted: Some(5), updated });
        for (status, want) in [
            (json!({"replicas": 3, "updatedReplicas": 3, "availableReplicas": 2}), some(2, 3, true)),
            (json!({"replicas": 4, "updatedReplicas": 3, "availableReplicas": 4}), some(4, 4, false)),
            (json!({"replicas": 3}), some(0, 3, false)),
            (json!({"replicas": 0}), some(0, 0, true)),
            (json!({"availableReplicas": 1}), None),
            (json!({"replicas": 3, "updatedReplicas": 3, "availableReplicas": -1}), None),
            (json!({"replicas": "3"}), None),
            (json!(null), None),
        ] {
            assert_eq!(of("True", 2, json!(5), status.clone()), want, "{status}");
        }
        let status = json!({"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3});
        assert_eq!(of("True", 2, json!(null), status.clone()).unwrap().wanted, None);
        // What is reported is of what was there before.
        for (applied, seen) in [("False", 2), ("True", 1)] {
            assert_eq!(of(applied, seen, json!(5), status.clone()), None, "{applied} {seen}");
        }
    }

    #[test]
    fn only_what_is_said_of_the_content_counts() {
        let applied = |status: &str, seen: i64| json!({"type": "Applied", "status": status, "observedGeneration": seen});
        let report =
            |health: &str, of: i64| json!([{"health": health, "status": {"resourceTemplateGeneration": of}}]);
        let rows = [
            (json!(null), json!(null), Seen::Unsaid),
            (json!([applied("True", 1)]), report("Healthy", 7), Seen::Unsaid),
            (json!([applied("True", 2)]), report("Healthy", 6), Seen::Unsaid),
            (json!([applied("True", 2)]), json!(null), Seen::Unsaid),
            (json!([applied("True", 2)]), report("Healthy", 7), Seen::Well),
            (json!([applied("True", 2)]), report("Unhealthy", 7), Seen::Unwell),
            (json!([applied("True", 2)]), json!([{"health": "Unknown"}]), Seen::Well),
            // An agent that does not say what it has applied.
            (json!([applied("True", 0)]), json!([{"health": "Unknown"}]), Seen::Unsaid),
            (json!([applied("True", 0)]), report("Healthy", 6), Seen::Unsaid),
            (json!([applied("True", 0)]), report("Healthy", 7), Seen::Well),
            (json!([applied("False", 2)]), report("Healthy", 7), Seen::Unwell),
            (
                json!([applied("True", 1), {"type": "ChangesHeld", "status": "True"}]),
                report("Healthy", 6),
                Seen::Held,
            ),
        ];
        for (conditions, statuses, want) in rows {
            let work = json!({
                "metadata": {"generation": 2},
                "spec": {"workload": {"manifests": [{"metadata": {"annotations": {"resourcetemplate.karmada.io/generation": "7"}}}]}},
                "status": {"conditions": conditions.clone(), "manifestStatuses": statuses},
            });
            assert_eq!(seen(&work), want, "{work}");
            // An agent of ours says nothing of an override before it names the Work's generation.
            let ours = if conditions[0]["observedGeneration"] == 0 { Seen::Unsaid } else { want };
            assert_eq!(seen(&work).unless_named(is_named(&work)), ours, "{work}");
            let mut suspended = work;
            suspended["spec"]["suspendDispatching"] = json!(true);
            assert_eq!(seen(&suspended), Seen::Held);
        }
    }
}
