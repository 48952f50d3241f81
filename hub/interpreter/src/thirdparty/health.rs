//! Whether an object of another project does its job.

use karmada_meta::object;
use serde_json::Value;

use crate::{
    Field,
    fields::{at, int, list, text},
};

/// How a kind's health shows.
#[derive(Clone, Copy)]
pub(crate) enum Judge {
    /// It is there.
    Always,
    /// As a Deployment: the status is about the object as it is, all replicas are updated, and all updated ones
    /// available.
    Rollout,
    /// As a DaemonSet, with the daemons wanted in the status.
    Daemons,
    /// The condition `Ready` is true, for one of these reasons.
    Ready(&'static [&'static str]),
    /// As [`Judge::Ready`], but a field `status.ready` goes first.
    ReadyField(&'static [&'static str]),
    /// There are conditions, and none says `Failed`.
    NotFailed,
    /// A text of the status is there, and none of these.
    Not(Field, &'static [&'static str]),
    /// A text of the status is one of these.
    In(Field, &'static [&'static str]),
    /// Something of the kind's own.
    Own(fn(&Value) -> bool),
}

impl Judge {
    pub(super) fn judge(self, value: &Value) -> bool {
        let status = |field: &str| int(value, &["status", field]);
        let observed = || status("observedGeneration") == object::generation(value);
        match self {
            Self::Always => true,
            Self::Rollout => {
                let updated = status("updatedReplicas");
                let wanted = at(value, &["spec", "replicas"]).and_then(Value::as_i64);
                observed()
                    && wanted.is_none_or(|wanted| updated >= wanted)
                    && status("availableReplicas") >= updated
            }
            Self::Daemons => {
                let updated = status("updatedNumberScheduled");
                observed()
                    && updated >= status("desiredNumberScheduled")
                    && status("numberAvailable") >= updated
            }
            Self::Ready(reasons) => is_true(value, "Ready", reasons),
            Self::ReadyField(reasons) => match at(value, &["status", "ready"]).and_then(Value::as_bool) {
                Some(ready) => ready,
                None => is_true(value, "Ready", reasons),
            },
            Self::NotFailed => {
                !list(value, &["status", "conditions"]).is_empty() && !is_true(value, "Failed", &[])
            }
            Self::Not(path, bad) => {
                let word = text(value, path);
                !word.is_empty() && !bad.contains(&word)
            }
            Self::In(path, good) => good.contains(&text(value, path)),
            Self::Own(judge) => judge(value),
        }
    }
}

/// Whether a condition is true, for one of these reasons; for any where none is named.
fn is_true(value: &Value, kind: &str, reasons: &[&str]) -> bool {
    list(value, &["status", "conditions"]).iter().any(|c| {
        text(c, &["type"]) == kind
            && text(c, &["status"]) == "True"
            && (reasons.is_empty() || reasons.contains(&text(c, &["reason"])))
    })
}
