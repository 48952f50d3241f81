//! Fencing: what may run in one place only stops by itself where nobody can tell it to.
//!
//! A template or its policy asks for it (`work.karmada.io/fence-after: 2m`). The agent notes when the hub last confirmed
//! anything, as of the moment at which it *asked*, so that the hub cannot have heard of it earlier. When that is T ago,
//! it scales the workload to nothing. The hub waits T and a skew (30 s) from when it last heard of the cluster before it
//! makes a copy elsewhere: the copy that is left has stopped by then.
//!
//! ```text
//!   agent asks ─▶ hub hears ── … silence … ──▶ agent: asked + T: stops     hub: heard + T + skew: new copy
//!        └── earlier than ──┘                       └────────── earlier than, by the skew ──────┘
//! ```
//!
//! An agent that slept finds that the wall clock went on while the monotonic one stood still: the longer of the two
//! counts. One that has just started knows only what was written down on the member, by the wall clock; a clock that
//! says that this is yet to come is not believed, and nor is nothing. The workload runs again when the hub has taken a
//! renewal of the Lease and, asked *after* that, still wants the Work. A hub that gives up on a copy marks the Work
//! *before* it looks at the Lease a last time. So one of the two sees the other.
//!
//! A hub that was made anew of an older copy does not know where things have gone since. An agent that finds itself
//! talking to one ([`history`](super::history)) begins nothing fenced for T and the skew: a copy that runs elsewhere is not
//! what that hub wants, and has stopped by then. An agent that first hears of this member after that cannot tell.
//!
//! A machine on which nothing runs, the agent included, stops nothing; the skew is for an agent that is being restarted.
//!
//! The agent:
//!
#![doc = include_str!("fence.md")]
//!
//! The hub:
//!
#![doc = include_str!("fence-hub.md")]

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_meta::{
    duration, object,
    path::{FieldError, Path},
};
use serde_json::{Value, json};

/// By how much longer the hub waits than the agent, unless the operator says (`--fence-skew`): clocks that run at
/// different rates, an agent that is restarted, a member that takes its time to stop something.
pub const SKEW: Duration = Duration::from_secs(30);

/// The shortest time that can be asked for; an agent gives a sign of life every ten seconds.
pub const LEAST: Duration = Duration::from_secs(30);

/// What an object, a template or a policy asks for: after how long without contact it stops. Nothing for what says
/// nothing, or what cannot be read ([`problem`] tells).
pub fn after(object: &Value) -> Option<Duration> {
    read(object::annotation(object, extension::FENCE_AFTER)?).ok()
}

/// What a Work has its cluster do: the shortest fence of its manifests. Nothing where none has one.
pub fn of_work(work: &Value) -> Option<Duration> {
    let manifests = work.pointer("/spec/workload/manifests").and_then(Value::as_array);
    manifests.into_iter().flatten().filter_map(after).min()
}

/// What is wrong with the annotation, if something is.
pub fn problem(object: &Value) -> Option<FieldError> {
    refusal(object::annotation(object, extension::FENCE_AFTER)?)
}

/// What is wrong with what the annotation says.
pub fn refusal(text: &str) -> Option<FieldError> {
    let path = Path::new("metadata").child("annotations").key(extension::FENCE_AFTER);
    read(text).err().map(|why| {
        let wanted = format!("{why}; wanted is a duration of {} or more, like 2m", duration::format(LEAST));
        FieldError::invalid(&path, text, wanted)
    })
}

/// Reads what an annotation says.
///
/// # Errors
/// When it is no duration, or too short a one.
pub fn read(text: &str) -> Result<Duration, String> {
    let length = duration::parse(text)?;
    if length < LEAST {
        return Err(format!(
            "{text} is less than {}, which a link that is good may be silent",
            duration::format(LEAST)
        ));
    }
    Ok(length)
}

/// How long ago the hub last confirmed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// By the agent's monotonic clock; unknown to an agent that has had no contact since it started.
    pub monotonic: Option<Duration>,
    /// By the wall clock; unknown where nothing was written down, or where that is yet to come.
    pub wall: Option<Duration>,
}

/// Whether an agent stops what may run for `after` without contact.
pub fn is_overdue(contact: Contact, after: Duration) -> bool {
    match (contact.monotonic, contact.wall) {
        (Some(monotonic), wall) => monotonic.max(wall.unwrap_or_default()) >= after,
        (None, Some(wall)) => wall >= after,
        (None, None) => true,
    }
}

/// What it takes to stop an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// This merge patch.
    Patch(Value),
    /// It has been stopped.
    Already,
    /// Nothing does: a kind of which there is no less.
    Impossible,
}

/// The field of an object's spec that stops it, and the value that does.
fn switch(object: &Value) -> Option<(&'static str, Value)> {
    let kind = (object::api_version(object).split('/').next().unwrap_or_default(), object::kind(object));
    match kind {
        ("batch", "Job" | "CronJob") => Some(("suspend", json!(true))),
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => Some(("replicas", json!(0))),
        // Whoever counts replicas there does it here, as the subresource scale has it.
        _ if object.pointer("/spec/replicas").is_some_and(Value::is_number) => Some(("replicas", json!(0))),
        _ => None,
    }
}

/// How an object, as it is on the member, is stopped. `since` is written on it, and what it was like before.
pub fn stop(live: &Value, since: &str) -> Stop {
    let Some((field, off)) = switch(live) else { return Stop::Impossible };
    let now = &live["spec"][field];
    let marked = object::annotation(live, extension::FENCED_SINCE).is_some();
    if marked && *now == off {
        return Stop::Already;
    }
    let mut patch = json!({"spec": {field: off}});
    if !marked {
        let before = json!({field: now}).to_string();
        patch["metadata"]["annotations"] =
            json!({extension::FENCED_SINCE: since, extension::FENCED_FROM: before});
    }
    Stop::Patch(at_this_version(patch, live))
}

/// The merge patch by which an object that was stopped runs as it did before; `None` for one that was not.
pub fn resume(live: &Value) -> Option<Value> {
    object::annotation(live, extension::FENCED_SINCE)?;
    let annotations = json!({extension::FENCED_SINCE: null, extension::FENCED_FROM: null});
    let mut patch = json!({"metadata": {"annotations": annotations}});
    let before = object::annotation(live, extension::FENCED_FROM);
    // One that cannot be read was edited; the manifest says what is to be.
    if let (Some((field, _)), Some(Ok(before))) = (switch(live), before.map(serde_json::from_str::<Value>))
        && let Some(value) = before.get(field)
    {
        patch["spec"] = json!({field: value});
    }
    Some(at_this_version(patch, live))
}

/// Whether an object that was stopped reports that nothing of it runs. What is ending is not counted in most statuses.
pub fn is_reported_still(live: &Value) -> bool {
    let status = &live["status"];
    let is_old = status["observedGeneration"].as_i64().is_some_and(|seen| seen < object::generation(live));
    let none = |field: &str| match &status[field] {
        Value::Array(all) => all.is_empty(),
        count => count.as_i64().unwrap_or(0) == 0,
    };
    !is_old && ["replicas", "active", "terminating"].into_iter().all(none)
}

/// The selector of the Pods that an object runs, in query syntax; none if it does not say.
pub fn selector(live: &Value) -> Option<String> {
    let labels = live.pointer("/spec/selector/matchLabels")?.as_object()?;
    let pairs = labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let all: Vec<String> = pairs.collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// The patch, for nothing but this state of the object.
fn at_this_version(mut patch: Value, live: &Value) -> Value {
    let version = object::resource_version(live);
    if !version.is_empty() {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    patch
}

/// A copy of a fenced object on a cluster that is not wanted there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Whether its cluster reports.
    pub reports: bool,
    /// Whether its Cluster is there at all.
    pub exists: bool,
    /// Whether an agent of its own has been heard, which stops the copy where nobody can tell it to. The hub's, in push mode, does not.
    pub stops: bool,
    /// How long nothing has been heard of it.
    pub silent: Duration,
    /// Whether its Work says that it is unwanted, or is being deleted.
    pub marked: bool,
}

/// Whether a new copy may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It may.
    No,
    /// The copy is taken away by whoever works on its cluster; that it is gone will be seen.
    Gone,
    /// The Work is to be marked first.
    Marked,
    /// So long, if nothing is heard of its cluster.
    For(Duration),
}

/// What the new copies of a fenced object wait for because of one that is left. `skew`: by how much longer than its agent.
pub fn wait(left: Option<Left>, after: Duration, skew: Duration) -> Wait {
    let Some(left) = left.filter(|left| left.exists) else { return Wait::No };
    if left.reports {
        return Wait::Gone;
    }
    if !left.marked {
        return Wait::Marked;
    }
    if !left.stops {
        return Wait::Gone;
    }
    match after.saturating_add(skew).saturating_sub(left.silent) {
        Duration::ZERO => Wait::No,
        rest => Wait::For(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::table;

    #[test]
    fn the_agents_table_holds() {
        let ago = |text: &str| text.parse().ok().map(Duration::from_secs);
        for [after, monotonic, wall, want] in table::rows(include_str!("fence.md")) {
            // A time that is yet to come is no number of seconds ago.
            let contact = Contact { monotonic: ago(monotonic), wall: ago(wall) };
            let got = if is_overdue(contact, ago(after).unwrap()) { "stops" } else { "runs" };
            assert_eq!(got, want, "{after} {monotonic} {wall}");
        }
    }

    #[test]
    fn nothing_runs_when_the_newest_status_counts_nothing() {
        let live = |status: Value| json!({"metadata": {"generation": 3}, "status": status});
        let table = [
            (json!({}), true),
            (json!({"observedGeneration": 3}), true),
            (json!({"observedGeneration": 2}), false),
            (json!({"observedGeneration": 3, "replicas": 1}), false),
            (json!({"active": 1}), false),
            (json!({"active": [{"name": "j"}]}), false),
            (json!({"active": []}), true),
            (json!({"terminating": 1}), false),
        ];
        for (status, want) in table {
            assert_eq!(is_reported_still(&live(status.clone())), want, "{status}");
        }
        let selects = |selector: Value| super::selector(&json!({"spec": {"selector": selector}}));
        assert_eq!(selects(json!({"matchLabels": {"a": "b", "c": "d"}})).as_deref(), Some("a=b,c=d"));
        assert_eq!(selects(json!({"matchLabels": {}})), None);
        assert_eq!(selects(Value::Null), None);
    }

    #[test]
    fn the_hubs_table_holds() {
        for [after, copy, cluster, silent, want] in table::rows(include_str!("fence-hub.md")) {
            let seconds = |text: &str| Duration::from_secs(text.parse().unwrap());
            let left = (copy != "none").then(|| Left {
                reports: cluster == "reports",
                exists: cluster != "gone",
                stops: cluster != "lost, no agent",
                silent: seconds(silent),
                marked: copy != "unmarked",
            });
            let got = match wait(left, seconds(after), SKEW) {
                Wait::No => "is made".to_owned(),
                Wait::Gone => "waits for the old one to go".to_owned(),
                Wait::Marked => "waits for the mark".to_owned(),
                Wait::For(rest) => format!("waits {}", rest.as_secs()),
            };
            assert_eq!(got, want, "{copy} {cluster} {silent}");
        }
    }

    #[test]
    fn workloads_are_stopped_and_resumed_as_their_kind_has_it() {
        let rows = [
            ("apps/v1", "Deployment", json!({"replicas": 3}), Some(json!({"replicas": 0}))),
            ("apps/v1", "StatefulSet", json!({}), Some(json!({"replicas": 0}))),
            ("batch/v1", "Job", json!({}), Some(json!({"suspend": true}))),
            ("x.io/v1", "App", json!({"replicas": 1}), Some(json!({"replicas": 0}))),
            ("apps/v1", "DaemonSet", json!({}), None),
            ("v1", "ConfigMap", json!({}), None),
        ];
        for (version, kind, spec, want) in rows {
            let live = json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "7"}, "spec": spec});
            let Stop::Patch(patch) = stop(&live, "2026-01-01T00:00:00Z") else {
                assert_eq!((stop(&live, ""), want), (Stop::Impossible, None), "{kind}");
                continue;
            };
            assert_eq!(
                (Some(&patch["spec"]), &patch["metadata"]["resourceVersion"]),
                (want.as_ref(), &json!("7"))
            );
            let mut stopped = live.clone();
            merge(&mut stopped, &patch);
            assert_eq!(stop(&stopped, "later"), Stop::Already, "{kind}");
            // Somebody starts it behind our back: it stays known what it was like.
            let mut started = stopped.clone();
            merge(&mut started, &json!({"spec": {"replicas": 5, "suspend": false}}));
            let Stop::Patch(again) = stop(&started, "later") else { panic!("{kind} runs") };
            assert_eq!(again["metadata"].get("annotations"), None);
            let mut resumed = stopped.clone();
            merge(&mut resumed, &resume(&stopped).unwrap());
            assert_eq!(resumed["spec"], live["spec"], "{kind}");
            assert_eq!(resume(&resumed), None);
        }
    }

    fn merge(into: &mut Value, patch: &Value) {
        for (key, value) in patch.as_object().unwrap() {
            match value {
                Value::Null => drop(into.as_object_mut().unwrap().remove(key)),
                Value::Object(_) => {
                    let fields = into.as_object_mut().unwrap();
                    merge(fields.entry(key).or_insert_with(|| json!({})), value);
                }
                value => into[key] = value.clone(),
            }
        }
    }

    #[test]
    fn what_cannot_be_asked_for_is_told() {
        let object = |text: &str| json!({"metadata": {"annotations": {extension::FENCE_AFTER: text}}});
        assert_eq!(after(&object("2m")), Some(Duration::from_secs(120)));
        for text in ["soon", "5s", "-1m", ""] {
            assert_eq!(after(&object(text)), None);
            assert!(
                problem(&object(text)).is_some_and(|why| why.to_string().contains("fence-after")),
                "{text}"
            );
        }
        assert_eq!(problem(&json!({})), None);
    }
}
