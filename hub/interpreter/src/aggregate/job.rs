//! A Job on several members: done when it is done everywhere, failed when it failed anywhere.

use karmada_api::work::AggregatedStatusItem;
use karmada_meta::time::Time;
use serde_json::{Value, json};

use super::{count, reports, sum, write};
use crate::{
    fields::{at, list, text},
    reflect::{Write, says_something},
};

/// Adds up a Job. One that has finished is never touched again.
///
/// A stock API server takes `Complete` only beside `SuccessCriteriaMet`, `Failed` only beside `FailureTarget` and
/// when nothing is active any more. Karmada passes the two helpers on when the members report them, which older ones
/// do not; here they always come along, and `Failed` waits for the last active pod.
pub(super) fn aggregate(template: &mut Value, items: &[AggregatedStatusItem], now: Time) -> bool {
    let Some(status) = at(template, &["status"]).or(Some(&Value::Null)) else { return false };
    if finished(status).is_some() {
        return false;
    }
    let total = items.len();
    let all = |n: usize| n == total && n > 0;
    let failed: Vec<&str> =
        reports(items).filter(|(_, s)| finished(s) == Some("Failed")).map(|(cluster, _)| cluster).collect();
    let complete = reports(items).filter(|(_, s)| finished(s) == Some("Complete")).count();
    let times = |field: &'static str| {
        reports(items).filter_map(move |(_, s)| text(s, &[field]).parse::<Time>().ok()).collect::<Vec<_>>()
    };
    let (starts, ends) = (times("startTime"), times("completionTime"));
    let active = sum(items, "active");

    let mut conditions = Vec::new();
    let mut condition = |type_: &str, reason: &str, message: &str| {
        let old = list(status, &["conditions"]).iter().find(|c| text(c, &["type"]) == type_);
        conditions.push(match old {
            // One that stands already keeps its times.
            Some(old) if text(old, &["status"]) == "True" => old.clone(),
            _ => json!({
                "type": type_, "status": "True", "lastProbeTime": now, "lastTransitionTime": now,
                "reason": reason, "message": message,
            }),
        });
    };
    if !failed.is_empty() {
        let message = format!("Job executed failed in member clusters {}", failed.join(","));
        condition("FailureTarget", "JobFailed", &message);
        if active == 0 {
            condition("Failed", "JobFailed", &message);
        }
    }
    if all(complete) {
        condition("Complete", "Completed", "Job completed");
        condition(
            "SuccessCriteriaMet",
            "CompletionsReached",
            "All member clusters have met success criteria",
        );
    }

    let old_start = at(status, &["startTime"]).filter(|t| says_something(t)).cloned();
    let earliest = || starts.iter().min().filter(|_| all(starts.len())).map(|t| json!(t));
    let changes = vec![
        ("active", count(active, Write::IfSet)),
        ("completionTime", ends.iter().max().filter(|_| all(ends.len()) && all(complete)).map(|t| json!(t))),
        ("conditions", Some(Value::Array(conditions)).filter(says_something)),
        ("failed", count(sum(items, "failed"), Write::IfSet)),
        ("startTime", old_start.or_else(earliest)),
        ("succeeded", count(sum(items, "succeeded"), Write::IfSet)),
    ];
    write(template, changes)
}

/// How a Job ended, if it did.
fn finished(status: &Value) -> Option<&'static str> {
    list(status, &["conditions"]).iter().filter(|c| text(c, &["status"]) == "True").find_map(|c| {
        match text(c, &["type"]) {
            "Complete" => Some("Complete"),
            "Failed" => Some("Failed"),
            _ => None,
        }
    })
}
