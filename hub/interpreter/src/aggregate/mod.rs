//! The members' reports added up into the template's status, so that one look at the template tells of all.
//!
//! Only the fields that are added up are written; whatever else stands in the template's status stays. A template is
//! touched only when something changed.

mod addresses;
mod job;

use std::collections::BTreeSet;

use karmada_api::work::AggregatedStatusItem;
use karmada_meta::{object, time::Time};
use serde_json::{Map, Value, json};

use crate::{
    Native,
    fields::{at, int, list, text},
    reflect::{Fields, Write, counts, has_generations, says_something},
    thirdparty,
};

/// Adds the members' reports up into the status of their template. `items` are the binding's
/// `status.aggregatedStatus`; `now` is the time of conditions that arise (a Job's end). Answers whether the template
/// changed.
///
/// Kinds without a rule are left alone: nobody knows how to add them up.
pub fn aggregate_status(template: &mut Value, items: &[AggregatedStatusItem], now: Time) -> bool {
    let Some(native) = Native::of(template) else { return thirdparty::aggregate(template, items, now) };
    match native {
        Native::Job => job::aggregate(template, items, now),
        Native::CronJob => cron_job(template, items),
        Native::Service if text(template, &["spec", "type"]) != "LoadBalancer" => false,
        Native::Service | Native::Ingress => addresses::aggregate(template, items),
        Native::Pod => pod(template, items),
        Native::PersistentVolume => {
            // The first of these that any member reports.
            phase(template, items, &["Failed", "Pending", "Available", "Bound", "Released"])
        }
        // Karmada takes a claim without a report for bound; here it counts as pending.
        Native::PersistentVolumeClaim => phase(template, items, &["Lost", "Pending", "Bound"]),
        _ => match counts(native) {
            Some(fields) => sums(template, items, native, fields),
            None => false,
        },
    }
}

/// The reports that are there.
pub(crate) fn reports(items: &[AggregatedStatusItem]) -> impl DoubleEndedIterator<Item = (&str, &Value)> {
    items.iter().filter_map(|item| Some((item.cluster_name.as_str(), item.status.as_ref()?)))
}

/// Sums of counts. `observedGeneration` becomes the template's generation when every member's report is about the
/// latest template, and stays as it was until then: `kubectl rollout status` waits for it.
fn sums(template: &mut Value, items: &[AggregatedStatusItem], native: Native, fields: Fields) -> bool {
    let mut changes = Vec::new();
    for (field, write) in fields {
        changes.push((*field, count(sum(items, field), *write)));
    }
    if has_generations(native) {
        let generation = object::generation(template);
        if items.iter().all(|item| item.status.as_ref().is_some_and(|s| up_to_date(s, generation))) {
            changes.push(("observedGeneration", count(generation, Write::IfSet)));
        }
    }
    if native == Native::PodDisruptionBudget {
        changes.push(("disruptedPods", Some(disrupted_pods(items)).filter(says_something)));
    }
    write(template, changes)
}

/// The sum of a count over all reports.
pub(crate) fn sum(items: &[AggregatedStatusItem], field: &str) -> i64 {
    reports(items).fold(0, |sum: i64, (_, status)| sum.saturating_add(int(status, &[field])))
}

/// A count as it is written, if it is.
fn count(count: i64, write: Write) -> Option<Value> {
    (write == Write::Always || count != 0).then(|| count.into())
}

/// Whether a report is about the latest object on the member, and that object about the latest template.
pub(crate) fn up_to_date(status: &Value, template_generation: i64) -> bool {
    int(status, &["observedGeneration"]) >= int(status, &["generation"])
        && int(status, &["resourceTemplateGeneration"]) >= template_generation
}

/// Pods that are about to go, by `cluster/pod`.
fn disrupted_pods(items: &[AggregatedStatusItem]) -> Value {
    let mut pods = Map::new();
    for (cluster, status) in reports(items) {
        let those = at(status, &["disruptedPods"]).and_then(Value::as_object);
        for (name, time) in those.into_iter().flatten() {
            pods.insert(format!("{cluster}/{name}"), time.clone());
        }
    }
    Value::Object(pods)
}

/// All running Jobs and the latest times.
fn cron_job(template: &mut Value, items: &[AggregatedStatusItem]) -> bool {
    let active: Vec<Value> =
        reports(items).flat_map(|(_, status)| list(status, &["active"]).iter().cloned()).collect();
    let latest = |field: &str| {
        let times = reports(items).filter_map(|(_, status)| text(status, &[field]).parse::<Time>().ok());
        times.max().map(|time| Value::String(time.to_string()))
    };
    let changes = vec![
        ("active", Some(Value::Array(active)).filter(says_something)),
        ("lastScheduleTime", latest("lastScheduleTime")),
        ("lastSuccessfulTime", latest("lastSuccessfulTime")),
    ];
    write(template, changes)
}

/// The least phase of all members, and the state of all their containers.
fn pod(template: &mut Value, items: &[AggregatedStatusItem]) -> bool {
    let Some(phase) = first_phase(items, &["Failed", "Pending", "Running", "Succeeded"]) else {
        return false;
    };
    let containers = |field: &str| {
        let statuses: Vec<Value> = reports(items)
            .flat_map(|(_, status)| list(status, &[field]))
            .map(|container| {
                // Only these two say something about more than one pod; the rest is Go's zero values.
                let ready = container.get("ready").and_then(Value::as_bool).unwrap_or(false);
                let state = container.get("state").cloned().unwrap_or_else(|| json!({}));
                json!({
                    "image": "", "imageID": "", "lastState": {}, "name": "", "ready": ready,
                    "restartCount": 0, "state": state,
                })
            })
            .collect();
        Some(Value::Array(statuses)).filter(says_something)
    };
    let changes = vec![
        ("phase", Some(phase.into())),
        ("containerStatuses", containers("containerStatuses")),
        ("initContainerStatuses", containers("initContainerStatuses")),
    ];
    write(template, changes)
}

fn phase(template: &mut Value, items: &[AggregatedStatusItem], order: &[&'static str]) -> bool {
    match first_phase(items, order) {
        Some(phase) => write(template, vec![("phase", Some(phase.into()))]),
        None => false,
    }
}

/// The first phase of `order` that a member reports; a member without a report counts as pending.
fn first_phase(items: &[AggregatedStatusItem], order: &[&'static str]) -> Option<&'static str> {
    let phases: BTreeSet<&str> = items
        .iter()
        .map(|item| item.status.as_ref().map_or("Pending", |status| text(status, &["phase"])))
        .collect();
    order.iter().find(|phase| phases.contains(**phase)).copied()
}

/// Writes fields into the template's status, or takes them out. Answers whether that changed anything.
pub(crate) fn write(template: &mut Value, changes: Vec<(&str, Option<Value>)>) -> bool {
    let old = template.get("status").and_then(Value::as_object);
    let same = |field: &str, new: Option<&Value>| match (old.and_then(|o| o.get(field)), new) {
        (None, None) => true,
        // A zero that is written and one that is left out are the same.
        (Some(old), None) => *old == 0 || !says_something(old),
        (None, Some(new)) => *new == 0,
        (Some(old), Some(new)) => old == new,
    };
    if changes.iter().all(|(field, new)| same(field, new.as_ref())) {
        return false;
    }
    let mut status = old.cloned().unwrap_or_default();
    for (field, new) in changes {
        match new {
            Some(value) => status.insert(field.to_owned(), value),
            None => status.shift_remove(field),
        };
    }
    status.sort_keys();
    crate::fields::set(template, &["status"], Value::Object(status));
    true
}

#[cfg(test)]
mod tests;
