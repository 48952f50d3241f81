//! Deployments and what else makes pods.

use indexmap::IndexSet;
use karmada_meta::{
    labels::LabelSelector,
    object,
    path::{FieldError, Path},
};
use serde_json::{Map, Value, json};

use super::{
    parts::{
        IMMUTABLE, count_or_percent, immutable, is_set, list, not_more_than_all, not_negative_in, number,
        text,
    },
    pod,
};

/// CronJobs name their Jobs by a suffix of eleven characters.
const MAX_CRON_JOB_NAME: usize = 63 - 11;

/// `spec.selector`, present and able to select.
fn selector(object: &Value, kind: &str) -> Vec<FieldError> {
    let path = Path::new("spec").child("selector");
    let Some(value) = object.pointer("/spec/selector").filter(|v| !v.is_null()) else {
        return vec![FieldError::required(&path, "")];
    };
    let Ok(selector) = serde_json::from_value::<LabelSelector>(value.clone()) else {
        return vec![FieldError::invalid(&path, value.clone(), "invalid label selector")];
    };
    let mut errors = selector.validate(&path);
    if selector.is_empty() {
        errors.push(FieldError::invalid(
            &path,
            value.clone(),
            format!("empty selector is invalid for {kind}"),
        ));
    }
    errors
}

/// The template, and whether the selector finds what is made from it.
fn template(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec").child("template");
    let mut errors = Vec::new();
    let labels = object.pointer("/spec/template/metadata/labels");
    if !finds_template(object) {
        let shown = labels.cloned().unwrap_or_default();
        let at = path.child("metadata").child("labels");
        errors.push(FieldError::invalid(&at, shown, "`selector` does not match template `labels`"));
    }
    errors.extend(pod::template(object.pointer("/spec/template"), &path));
    errors
}

fn finds_template(object: &Value) -> bool {
    let selector = match object.pointer("/spec/selector") {
        None | Some(Value::Null) => return false,
        Some(value) => serde_json::from_value::<LabelSelector>(value.clone()).ok().map(|s| s.to_selector()),
    };
    match selector {
        Some(Ok(selector)) => {
            let labels = object.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
            selector.matches_with(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str))
        }
        // An error of its own.
        _ => true,
    }
}

/// Pods of these kinds are made anew when they end.
fn restarts_always(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec").child("template").child("spec");
    let mut errors = Vec::new();
    let policy = text(object, "/spec/template/spec/restartPolicy");
    if !policy.is_empty() && policy != "Always" {
        errors.push(FieldError::not_supported(&path.child("restartPolicy"), policy, &["Always"]));
    }
    if is_set(object.pointer("/spec/template/spec/activeDeadlineSeconds")) {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(FieldError::forbidden(&path.child("activeDeadlineSeconds"), detail));
    }
    errors
}

pub(super) fn deployment(object: &Value) -> Vec<FieldError> {
    let mut errors = not_negative_in(object, &["replicas"]);
    errors.extend(selector(object, "deployment"));
    errors.extend(template(object));
    errors.extend(restarts_always(object));
    errors.extend(strategy(object));
    errors.extend(not_negative_in(
        object,
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
    ));
    let ready = number(object, "/spec/minReadySeconds").unwrap_or(0);
    if let Some(deadline) = number(object, "/spec/progressDeadlineSeconds").filter(|d| *d >= 0 && *d <= ready)
    {
        let path = Path::new("spec").child("progressDeadlineSeconds");
        errors.push(FieldError::invalid(&path, deadline, "must be greater than minReadySeconds"));
    }
    errors
}

/// A strategy as messages show it.
fn shown_strategy(kind: &str) -> Value {
    json!({"Type": kind, "RollingUpdate": null})
}

fn strategy(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec").child("strategy");
    let rolling = object.pointer("/spec/strategy/rollingUpdate").filter(|v| !v.is_null());
    match (text(object, "/spec/strategy/type"), rolling) {
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            vec![FieldError::forbidden(&path.child("rollingUpdate"), detail)]
        }
        ("Recreate", None) => Vec::new(),
        ("RollingUpdate", None) => {
            vec![FieldError::required(
                &path.child("rollingUpdate"),
                "this should be defaulted and never be nil",
            )]
        }
        ("RollingUpdate", Some(rolling)) => {
            let path = path.child("rollingUpdate");
            let (surge, unavailable) = (rolling.get("maxSurge"), rolling.get("maxUnavailable"));
            let mut errors = count_or_percent(unavailable, &path.child("maxUnavailable"));
            errors.extend(count_or_percent(surge, &path.child("maxSurge")));
            let zero =
                |value: Option<&Value>| matches!(value, Some(v) if *v == json!(0) || *v == json!("0%"));
            if zero(surge) && zero(unavailable) {
                let shown = unavailable.cloned().unwrap_or_default();
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(&path.child("maxUnavailable"), shown, detail));
            }
            errors.extend(not_more_than_all(unavailable, &path.child("maxUnavailable")));
            errors
        }
        (other, _) => {
            vec![FieldError::not_supported(&path, shown_strategy(other), &["Recreate", "RollingUpdate"])]
        }
    }
}

pub(super) fn replica_set(object: &Value) -> Vec<FieldError> {
    let mut errors = not_negative_in(object, &["replicas", "minReadySeconds"]);
    errors.extend(selector(object, "deployment"));
    errors.extend(template(object));
    errors.extend(restarts_always(object));
    errors
}

pub(super) fn replication_controller(object: &Value) -> Vec<FieldError> {
    let mut errors = not_negative_in(object, &["minReadySeconds"]);
    let path = Path::new("spec");
    let empty = Map::new();
    let wanted = object.pointer("/spec/selector").and_then(Value::as_object).unwrap_or(&empty);
    if wanted.is_empty() {
        errors.push(FieldError::required(&path.child("selector"), ""));
    }
    errors.extend(not_negative_in(object, &["replicas"]));
    if is_set(object.pointer("/spec/template")) {
        let labels =
            object.pointer("/spec/template/metadata/labels").and_then(Value::as_object).unwrap_or(&empty);
        if !wanted.iter().all(|(key, value)| labels.get(key) == Some(value)) {
            let at = path.child("template").child("metadata").child("labels");
            let shown = Value::Object(labels.clone());
            errors.push(FieldError::invalid(&at, shown, "`selector` does not match template `labels`"));
        }
        errors.extend(pod::template(object.pointer("/spec/template"), &path.child("template")));
        errors.extend(restarts_always(object));
    } else {
        errors.push(FieldError::required(&path.child("template"), ""));
    }
    errors
}

pub(super) fn daemon_set(object: &Value) -> Vec<FieldError> {
    let mut errors = selector(object, "daemonset");
    errors.extend(template(object));
    errors.extend(restarts_always(object));
    errors.extend(not_negative_in(object, &["minReadySeconds", "revisionHistoryLimit"]));
    match text(object, "/spec/updateStrategy/type") {
        "OnDelete" | "RollingUpdate" => {}
        other => {
            let path = Path::new("spec").child("updateStrategy").child("type");
            errors.push(FieldError::not_supported(&path, other, &["OnDelete", "RollingUpdate"]));
        }
    }
    errors
}

pub(super) fn stateful_set(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    match text(object, "/spec/podManagementPolicy") {
        "" => errors.push(FieldError::required(&path.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.push(FieldError::invalid(&path.child("podManagementPolicy"), other, detail));
        }
    }
    match text(object, "/spec/updateStrategy/type") {
        "" => errors.push(FieldError::required(&path.child("updateStrategy"), "")),
        "OnDelete" | "RollingUpdate" => {}
        other => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid(&path.child("updateStrategy"), shown_strategy(other), detail));
        }
    }
    errors.extend(not_negative_in(object, &["replicas", "minReadySeconds"]));
    errors.extend(selector(object, "statefulset"));
    errors.extend(template(&with_claimed_volumes(object)));
    errors.extend(restarts_always(object));
    errors
}

/// A StatefulSet as its Pods will be: each claim template is a volume, in place of one of the same name.
fn with_claimed_volumes(object: &Value) -> Value {
    let mut filled = object.clone();
    let names = list(object, "/spec/volumeClaimTemplates").iter().map(|claim| text(claim, "/metadata/name"));
    if let Some(pod) = filled.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
        let volumes = pod.entry("volumes").or_insert_with(|| json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            let names: IndexSet<&str> = names.filter(|name| !name.is_empty()).collect();
            volumes.retain(|volume| !names.contains(text(volume, "/name")));
            let claimed = |name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
            volumes.extend(names.iter().map(claimed));
        }
    }
    filled
}

/// Of a StatefulSet that exists, only these fields change.
pub(super) fn stateful_set_update(object: &Value, old: &Value) -> Option<FieldError> {
    const MAY_CHANGE: &[&str] = &[
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let rest = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(map) = spec.as_object_mut() {
            map.retain(|field, _| !MAY_CHANGE.contains(&field.as_str()));
        }
        spec
    };
    (rest(object) != rest(old)).then(|| {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                      'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        FieldError::forbidden(&Path::new("spec"), detail)
    })
}

pub(super) fn job(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let manual = object.pointer("/spec/manualSelector") == Some(&Value::Bool(true));
    let uid = object::uid(object);
    match object.pointer("/spec/selector").filter(|v| !v.is_null()) {
        None if manual => errors.push(FieldError::required(&path.child("selector"), "")),
        Some(given) if !manual && !uid.is_empty() => {
            let own = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
            if *given != own {
                let detail = "`selector` not auto-generated";
                errors.push(FieldError::invalid(&path.child("selector"), given.clone(), detail));
            }
        }
        _ => {}
    }
    errors.extend(job_spec(object, "/spec", &path));
    if is_set(object.pointer("/spec/selector")) && !finds_template(object) {
        let shown = object.pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
        let at = path.child("template").child("metadata").child("labels");
        errors.push(FieldError::invalid(&at, shown, "`selector` does not match template `labels`"));
    }
    errors
}

/// What is common to a Job and the one within a CronJob.
fn job_spec(object: &Value, pointer: &str, path: &Path) -> Vec<FieldError> {
    let spec = object.pointer(pointer).unwrap_or(&Value::Null);
    let mut errors = Vec::new();
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    errors.extend(counts.iter().filter_map(|field| super::not_negative(spec.get(field), &path.child(field))));
    match text(spec, "/completionMode") {
        "" | "NonIndexed" => {}
        "Indexed" => {
            if !is_set(spec.get("completions")) {
                let detail = "when completion mode is Indexed";
                errors.push(FieldError::required(&path.child("completions"), detail));
            }
        }
        other => {
            let at = path.child("completionMode");
            errors.push(FieldError::not_supported(&at, other, &["Indexed", "NonIndexed"]));
        }
    }
    errors.extend(pod::template(spec.get("template"), &path.child("template")));
    if !matches!(text(spec, "/template/spec/restartPolicy"), "Never" | "OnFailure") {
        let at = path.child("template").child("spec").child("restartPolicy");
        errors.push(FieldError::required(&at, "valid values: \"OnFailure\", \"Never\""));
    }
    errors
}

/// A Job that exists keeps what decides which pods it has.
pub(super) fn job_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let indexed = text(object, "/spec/completionMode") == "Indexed";
    let together = number(object, "/spec/completions") == number(object, "/spec/parallelism");
    if !(indexed && together) {
        errors.extend(immutable(object, old, "/spec/completions"));
    }
    errors.extend(immutable(object, old, "/spec/selector"));
    // A suspended Job that never ran may still be told where to run.
    let movable =
        old.pointer("/spec/suspend") == Some(&Value::Bool(true)) && !is_set(old.pointer("/status/startTime"));
    let fixed = |object: &Value| {
        let mut template = object.pointer("/spec/template").cloned().unwrap_or_default();
        if movable {
            for field in ["labels", "annotations"] {
                if let Some(metadata) = template.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                    metadata.shift_remove(field);
                }
            }
            if let Some(spec) = template.pointer_mut("/spec").and_then(Value::as_object_mut) {
                for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
                    spec.shift_remove(field);
                }
            }
        }
        template
    };
    if fixed(object) != fixed(old) {
        let shown = object.pointer("/spec/template/spec").cloned().unwrap_or_default();
        let path = Path::new("spec").child("template").child("spec");
        errors.push(FieldError::invalid(&path, shown, IMMUTABLE));
    }
    errors.extend(immutable(object, old, "/spec/completionMode"));
    errors.extend(immutable(object, old, "/spec/podFailurePolicy"));
    errors.extend(immutable(object, old, "/spec/backoffLimitPerIndex"));
    errors
}

pub(super) fn cron_job(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let name = object::name(object);
    if name.len() > MAX_CRON_JOB_NAME {
        let detail = format!("must be no more than {MAX_CRON_JOB_NAME} characters");
        errors.push(FieldError::invalid(&Path::new("metadata").child("name"), name, detail));
    }
    let schedule = text(object, "/spec/schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(&path.child("schedule"), ""));
    } else if let Err(detail) = schedule_fields(schedule) {
        errors.push(FieldError::invalid(&path.child("schedule"), schedule, detail));
    }
    errors.extend(time_zone(object, &path.child("timeZone")));
    errors.extend(not_negative_in(object, &["startingDeadlineSeconds"]));
    let policy = text(object, "/spec/concurrencyPolicy");
    errors.extend(super::parts::one_of(
        policy,
        &["Allow", "Forbid", "Replace"],
        &path.child("concurrencyPolicy"),
    ));
    errors.extend(not_negative_in(object, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"]));
    let at = path.child("jobTemplate").child("spec");
    errors.extend(job_spec(object, "/spec/jobTemplate/spec", &at));
    errors
}

/// The name of a time zone, `UTC` among them; `Local` would be whose?
fn time_zone(object: &Value, path: &Path) -> Option<FieldError> {
    let zone = object.pointer("/spec/timeZone")?.as_str()?;
    let detail = match zone {
        "" => "must be nil or non-empty string".to_owned(),
        _ if zone.eq_ignore_ascii_case("local") => "unknown time zone Local".to_owned(),
        _ if jiff::tz::TimeZone::get(zone).is_ok() => return None,
        _ => format!("unknown time zone {zone}"),
    };
    Some(FieldError::invalid(path, zone, detail))
}

/// Five fields of numbers, ranges, steps and names; or a name such as `@daily`.
fn schedule_fields(schedule: &str) -> Result<(), String> {
    if let Some(name) = schedule.strip_prefix('@') {
        let known = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];
        return if known.contains(&name) || name.strip_prefix("every ").is_some() {
            Ok(())
        } else {
            Err(format!("unrecognized descriptor: {schedule}"))
        };
    }
    if schedule.contains("TZ=") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    for (field, (low, high)) in fields.iter().zip(bounds) {
        for part in field.split(',') {
            schedule_part(part, low, high)?;
        }
    }
    Ok(())
}

const NAMES: [&str; 19] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "sun", "mon", "tue",
    "wed", "thu", "fri", "sat",
];

fn schedule_part(part: &str, low: u32, high: u32) -> Result<(), String> {
    let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
    let number = |text: &str| {
        if NAMES.contains(&text.to_lowercase().as_str()) {
            return Ok(low);
        }
        text.parse::<u32>().map_err(|_| {
            format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
        })
    };
    if let Some(step) = step
        && number(step)? == 0
    {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    if matches!(range, "*" | "?") {
        return Ok(());
    }
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    if first < low {
        return Err(format!("beginning of range ({first}) below minimum ({low}): {part}"));
    }
    if last > high && !(high == 6 && last == 7) {
        return Err(format!("end of range ({last}) above maximum ({high}): {part}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-mar sun", "@daily", "@every 5m", "0 0 1 1 0"] {
            assert_eq!(schedule_fields(good), Ok(()), "{good}");
        }
        let cases = [
            ("often", "expected exactly 5 fields, found 1: [often]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@often", "unrecognized descriptor: @often"),
        ];
        for (schedule, message) in cases {
            assert_eq!(schedule_fields(schedule).unwrap_err(), message);
        }
    }
}
