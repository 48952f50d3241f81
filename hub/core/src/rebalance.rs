//! A user's wish that objects be placed anew (`WorkloadRebalancer`).
//!
//! ```text
//!   spec.workloads ─▶ observe ─▶ each binding: trigger? ─▶ record ─▶ status, how long it stays
//! ```
//!
//! A binding hears of a wish once: what was done is not done again when the list of objects is edited.

use std::time::Duration;

use karmada_api::apps::{
    OBJECT_NOT_FOUND, ObservedWorkload, RebalanceResult, WorkloadRebalancerSpec, WorkloadRebalancerStatus,
    WorkloadReference,
};
use karmada_meta::time::Time;

/// The objects of a wish with what is known of them, by apiVersion, kind, namespace and name. One that left the list
/// is kept if it was done, and forgotten otherwise.
pub fn observe(spec: &WorkloadRebalancerSpec, status: &WorkloadRebalancerStatus) -> Vec<ObservedWorkload> {
    let wanted = |workload: &WorkloadReference| spec.workloads.contains(workload);
    let kept = status
        .observed_workloads
        .iter()
        .filter(|seen| wanted(&seen.workload) || seen.result == Some(RebalanceResult::Successful));
    let mut list: Vec<_> = kept.cloned().collect();
    for workload in &spec.workloads {
        if !list.iter().any(|seen| seen.workload == *workload) {
            list.push(ObservedWorkload { workload: workload.clone(), ..ObservedWorkload::default() });
        }
    }
    let text = |seen: &ObservedWorkload| {
        let WorkloadReference { api_version, kind, namespace, name } = &seen.workload;
        format!("{api_version} {kind} {namespace} {name}")
    };
    list.sort_by_cached_key(text);
    list
}

/// The objects whose bindings are still to be told.
pub fn pending(observed: &[ObservedWorkload]) -> impl Iterator<Item = &WorkloadReference> {
    observed.iter().filter(|seen| seen.result.is_none()).map(|seen| &seen.workload)
}

/// What a binding's `spec.rescheduleTriggeredAt` becomes for a wish made at `wished`: that time, as in Karmada. `None` where
/// it heard of it already.
pub fn trigger(triggered: Option<Time>, wished: Time) -> Option<Time> {
    triggered.is_none_or(|at| wished > at).then_some(wished)
}

/// What a binding's `status.lastScheduledTime` becomes first, where the scheduler's last word is younger than the wish and
/// does not answer it: it would be taken for the answer, and Karmada loses such a wish.
pub fn unanswered(last_scheduled: Option<Time>, wished: Time) -> Option<Time> {
    last_scheduled.filter(|last| *last > wished).map(|_| wished)
}

/// Writes down what became of one object: its binding was told, or is not there.
pub fn record(observed: &mut [ObservedWorkload], workload: &WorkloadReference, found: bool) {
    for seen in observed.iter_mut().filter(|seen| seen.workload == *workload) {
        (seen.result, seen.reason) = if found {
            (Some(RebalanceResult::Successful), String::new())
        } else {
            (Some(RebalanceResult::Failed), OBJECT_NOT_FOUND.to_owned())
        };
    }
}

/// The status of a wish of this generation; `None` if it stands there already. It is finished when nothing is pending,
/// anew whenever it has changed.
pub fn status(
    observed: Vec<ObservedWorkload>,
    generation: i64,
    before: &WorkloadRebalancerStatus,
    now: Time,
) -> Option<WorkloadRebalancerStatus> {
    let done = pending(&observed).next().is_none();
    let status = WorkloadRebalancerStatus {
        observed_workloads: observed,
        observed_generation: generation,
        finish_time: before.finish_time,
    };
    if status == *before {
        return None;
    }
    let finish_time = if done { Some(now) } else { status.finish_time };
    Some(WorkloadRebalancerStatus { finish_time, ..status })
}

/// How long a finished wish is still to be kept; zero when it is to be deleted, `None` while it stays.
pub fn expires(
    spec: &WorkloadRebalancerSpec,
    status: &WorkloadRebalancerStatus,
    now: Time,
) -> Option<Duration> {
    let keep = u64::try_from(spec.ttl_seconds_after_finished?).unwrap_or_default();
    let finished = status.finish_time?;
    if pending(&status.observed_workloads).next().is_some() {
        return None;
    }
    let since = now.timestamp().duration_since(finished.timestamp());
    Some(Duration::from_secs(keep).saturating_sub(Duration::try_from(since).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn spec(names: &[&str], ttl: Option<i32>) -> WorkloadRebalancerSpec {
        let workloads: Vec<_> = names
            .iter()
            .map(|name| json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name}))
            .collect();
        serde_json::from_value(json!({"workloads": workloads, "ttlSecondsAfterFinished": ttl})).unwrap()
    }

    fn lines(observed: &[ObservedWorkload]) -> Vec<String> {
        let result = |seen: &ObservedWorkload| seen.result.map_or("-", RebalanceResult::as_str);
        observed
            .iter()
            .map(|seen| format!("{} {} {}", seen.workload.name, result(seen), seen.reason))
            .collect()
    }

    #[test]
    fn what_is_done_is_not_done_again() {
        let now = time("2026-01-01T00:00:10Z");
        let first = spec(&["web", "api", "gone"], Some(60));
        let mut observed = observe(&first, &WorkloadRebalancerStatus::default());
        assert_eq!(lines(&observed), ["api - ", "gone - ", "web - "], "by name");
        for workload in pending(&observed.clone()) {
            record(&mut observed, workload, workload.name != "gone");
        }
        let done = status(observed, 1, &WorkloadRebalancerStatus::default(), now).unwrap();
        assert_eq!(
            lines(&done.observed_workloads),
            ["api Successful ", "gone Failed ReferencedBindingNotFound", "web Successful ",]
        );
        assert_eq!(done.finish_time, Some(now));
        let again = observe(&first, &done);
        assert_eq!(pending(&again).count(), 0);
        assert_eq!(status(again, 1, &done, time("2026-01-01T00:00:20Z")), None, "nothing new");

        let edited = observe(&spec(&["cache", "web"], None), &done);
        assert_eq!(
            lines(&edited),
            ["api Successful ", "cache - ", "web Successful "],
            "what failed is forgotten"
        );
        let half = status(edited, 2, &done, time("2026-01-01T00:00:30Z")).unwrap();
        assert_eq!(half.finish_time, done.finish_time, "not finished anew");
    }

    #[test]
    fn a_later_wish_counts() {
        let (early, late) = (time("2026-01-01T00:00:00Z"), time("2026-01-02T00:00:00Z"));
        assert_eq!(trigger(None, early), Some(early));
        assert_eq!(trigger(Some(early), late), Some(late));
        assert_eq!(trigger(Some(late), early), None);
        assert_eq!(trigger(Some(late), late), None);
        assert_eq!(unanswered(Some(late), early), Some(early), "what was placed meanwhile is placed anew");
        assert_eq!(
            [unanswered(Some(early), late), unanswered(Some(late), late), unanswered(None, late)],
            [None; 3]
        );
    }

    #[test]
    fn a_finished_wish_goes_after_its_time() {
        let finished = WorkloadRebalancerStatus {
            finish_time: Some(time("2026-01-01T00:00:00Z")),
            ..WorkloadRebalancerStatus::default()
        };
        let now = time("2026-01-01T00:00:20Z");
        let secs = Duration::from_secs;
        assert_eq!(expires(&spec(&[], Some(60)), &finished, now), Some(secs(40)));
        assert_eq!(expires(&spec(&[], Some(0)), &finished, now), Some(secs(0)));
        assert_eq!(expires(&spec(&[], None), &finished, now), None);
        assert_eq!(expires(&spec(&[], Some(60)), &WorkloadRebalancerStatus::default(), now), None);
    }
}
