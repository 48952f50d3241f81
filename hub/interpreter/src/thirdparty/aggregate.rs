//! How the members' reports add up for kinds of other projects.

use karmada_api::work::AggregatedStatusItem;
use karmada_meta::{object, time::Time};
use serde_json::{Map, Value, json};

use super::Known;
use crate::{
    aggregate::{reports, sum, up_to_date, write},
    fields::{list, text},
    reflect::says_something,
};

/// How a field of the status comes from the members' reports.
#[derive(Clone, Copy)]
pub(crate) enum Sum {
    /// Added up.
    Count,
    /// The largest number.
    Max,
    /// What the last cluster says that says anything.
    Last,
    /// What the first cluster says that says anything.
    First,
    /// The earliest time.
    Earliest,
    /// The latest time, or the longest length of time.
    Latest,
    /// The numbers in it, whatever its shape, added up.
    Numbers,
    /// All entries of all lists.
    Lists,
    /// All entries of all objects.
    Maps,
    /// One condition for each type, status and reason, with what each cluster says in its message, as `cluster=message`.
    Conditions,
    /// One condition of each type: the last cluster's.
    ByType,
    /// The conditions that a job is done: when all clusters say so, or one says that it failed. The name of the kind for
    /// messages, and the type and reason of success.
    Done(&'static str, &'static str),
    /// The word that stands last in this list, of those that clusters say.
    Worst(&'static [&'static str]),
    /// Fields of the cluster with the worst word in this field, by this list.
    OfWorst(&'static str, &'static [&'static str]),
    /// The template's generation when all reports are about it.
    Generation,
}

pub(super) fn aggregate(
    known: &Known,
    template: &mut Value,
    items: &[AggregatedStatusItem],
    now: Time,
) -> bool {
    if let ([AggregatedStatusItem { status: Some(status), .. }], true) = (items, known.single) {
        let changed = template.get("status") != Some(status);
        if changed {
            template["status"] = status.clone();
        }
        return changed;
    }
    let mut changes = Vec::with_capacity(known.sums.len());
    for (field, rule) in known.sums {
        if let Some(value) = rule.value(field, template, items, now) {
            changes.push((*field, Some(value).filter(says_something)));
        }
    }
    write(template, changes)
}

impl Sum {
    /// The new value of a field; none when it is to stay as it is.
    fn value(
        self,
        field: &str,
        template: &Value,
        items: &[AggregatedStatusItem],
        now: Time,
    ) -> Option<Value> {
        let said = || {
            reports(items)
                .filter_map(|(_, status)| status.get(field))
                .filter(|v| says_something(v) && *v != "")
        };
        Some(match self {
            Self::Count => sum(items, field).into(),
            Self::Max => said().filter_map(Value::as_i64).max().unwrap_or(0).into(),
            Self::Last => said().next_back().cloned().unwrap_or_default(),
            Self::First => said().next().cloned().unwrap_or_default(),
            Self::Earliest => {
                said().min_by_key(|v| v.as_str().unwrap_or_default()).cloned().unwrap_or_default()
            }
            Self::Latest => {
                let key = |v: &&Value| {
                    let text = v.as_str().unwrap_or_default().to_owned();
                    (seconds(&text), text)
                };
                said().max_by_key(key).cloned().unwrap_or_default()
            }
            Self::Numbers => said().cloned().fold(Value::Null, add),
            Self::Lists => said().filter_map(Value::as_array).flatten().cloned().collect(),
            Self::Maps => Value::Object(
                said().filter_map(Value::as_object).flatten().map(|(k, v)| (k.clone(), v.clone())).collect(),
            ),
            Self::Conditions => Value::Array(merged(field, items)),
            Self::ByType => {
                let mut by_type: Map<String, Value> = Map::new();
                for condition in said().filter_map(Value::as_array).flatten() {
                    by_type.insert(text(condition, &["type"]).to_owned(), condition.clone());
                }
                by_type.sort_keys();
                by_type.into_iter().map(|(_, condition)| condition).collect()
            }
            Self::Done(kind, success) => Value::Array(done(kind, success, template, items, now)),
            Self::Worst(order) => said()
                .max_by_key(|word| rank(order, word.as_str().unwrap_or_default()))
                .cloned()
                .unwrap_or_default(),
            Self::OfWorst(decider, order) => reports(items)
                // The first of several that are as bad.
                .rev()
                .max_by_key(|(_, status)| rank(order, text(status, &[decider])))
                .and_then(|(_, status)| status.get(field))
                .cloned()
                .unwrap_or_default(),
            Self::Generation => {
                let generation = object::generation(template);
                let all =
                    items.iter().all(|item| item.status.as_ref().is_some_and(|s| up_to_date(s, generation)));
                return all.then(|| generation.into());
            }
        })
    }
}

fn rank(order: &[&str], word: &str) -> Option<usize> {
    order.iter().position(|w| *w == word)
}

/// The length of a span like `1h2m3.5s`, in milliseconds; 0 for what is none, as a time is.
fn seconds(text: &str) -> i64 {
    let (mut total, mut number) = (0.0, String::new());
    for c in text.chars() {
        let factor = match c {
            '0'..='9' | '.' => {
                number.push(c);
                continue;
            }
            'h' => 3_600_000.0,
            'm' => 60_000.0,
            's' => 1000.0,
            _ => return 0,
        };
        total += number.parse::<f64>().unwrap_or(0.0) * factor;
        number.clear();
    }
    total as i64
}

/// Adds numbers at the same places.
fn add(total: Value, more: Value) -> Value {
    match (total, more) {
        (Value::Object(mut total), Value::Object(more)) => {
            for (key, value) in more {
                let before = total.get(&key).cloned().unwrap_or_default();
                total.insert(key, add(before, value));
            }
            Value::Object(total)
        }
        (Value::Number(a), Value::Number(b)) => {
            a.as_i64().unwrap_or(0).saturating_add(b.as_i64().unwrap_or(0)).into()
        }
        (Value::Null, more) => more,
        (total, _) => total,
    }
}

fn merged(field: &str, items: &[AggregatedStatusItem]) -> Vec<Value> {
    let mut conditions: Vec<Value> = Vec::new();
    for (cluster, status) in reports(items) {
        // What is no object is no condition.
        for condition in list(status, &[field]).iter().filter(|condition| condition.is_object()) {
            let message = format!("{cluster}={}", text(condition, &["message"]));
            let same = |other: &&mut Value| {
                ["type", "status", "reason"].iter().all(|key| other.get(key) == condition.get(key))
            };
            match conditions.iter_mut().find(same) {
                Some(there) => {
                    there["message"] = format!("{}, {message}", text(there, &["message"])).into();
                }
                None => {
                    let mut condition = condition.clone();
                    condition["message"] = message.into();
                    conditions.push(condition);
                }
            }
        }
    }
    conditions
}

/// Whether a report says that its job ended so.
fn ended(status: &Value, words: &[&str]) -> bool {
    list(status, &["conditions"])
        .iter()
        .any(|c| text(c, &["status"]) == "True" && words.contains(&text(c, &["type"])))
}

fn done(
    kind: &str,
    success: &str,
    template: &Value,
    items: &[AggregatedStatusItem],
    now: Time,
) -> Vec<Value> {
    let failed: Vec<&str> =
        reports(items).filter(|(_, s)| ended(s, &["Failed"])).map(|(cluster, _)| cluster).collect();
    let succeeded = reports(items).filter(|(_, s)| ended(s, &["Succeeded", "Complete", "Completed"])).count();
    let mut conditions = Vec::new();
    let mut condition = |word: &str, reason: String, message: String| {
        // A condition keeps the time at which it arose.
        let before = list(template, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == word);
        let at = before.and_then(|c| c.get("lastTransitionTime")).cloned();
        let at = at.unwrap_or_else(|| now.to_string().into());
        conditions.push(json!({
            "type": word, "status": "True", "reason": reason, "message": message,
            "lastProbeTime": at, "lastTransitionTime": at,
        }));
    };
    if !failed.is_empty() {
        let message = format!("{kind} executed failed in member clusters: {}", failed.join(", "));
        condition("Failed", format!("{kind}Failed"), message);
    }
    if succeeded == items.len() && succeeded > 0 {
        condition(success, "Completed".to_owned(), format!("{kind} completed"));
    }
    conditions
}
