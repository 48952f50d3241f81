//! One look at a FederatedHPA: what is known of its workload and its clusters ─▶ how many replicas, and what people are told.
//!
//! Reasons and messages are Karmada's, which are Kubernetes'.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    behavior::{Bounds, History, Why},
    hpa::{Cluster, Scaled, Spec, propose},
    question::Sampling,
};

/// How FederatedHPAs are seen to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// `--horizontal-pod-autoscaler-sync-period`, and what counts of Pods that have just begun.
    pub sampling: Sampling,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`
    pub downscale: Duration,
    /// `--horizontal-pod-autoscaler-tolerance`
    pub tolerance: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { sampling: Sampling::default(), downscale: Duration::from_secs(300), tolerance: 0.1 }
    }
}

/// What a condition of a FederatedHPA says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its type.
    pub kind: &'static str,
    /// Whether it is so.
    pub holds: bool,
    /// Why, in a word.
    pub reason: &'static str,
    /// And in a sentence.
    pub message: String,
}

impl Said {
    /// What a condition says.
    pub fn new(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, holds, reason, message: message.into() }
    }
}

/// Whether replicas can be read and written.
pub const ABLE: &str = "AbleToScale";
/// Whether there are metrics to scale by.
pub const ACTIVE: &str = "ScalingActive";
/// Whether bounds or policies hold something back.
pub const LIMITED: &str = "ScalingLimited";

/// What is known.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The FederatedHPA.
    pub spec: &'a Spec,
    /// The template's replicas.
    pub current: i64,
    /// See [`Scaled::settling`].
    pub settling: Option<f64>,
    /// The clusters that the workload is on.
    pub clusters: &'a [Cluster<'a>],
}

/// What comes of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The replicas that the template is to have.
    pub replicas: i64,
    /// Why it is to have others than it has.
    pub rescale: Option<String>,
    /// What conditions say.
    pub said: Vec<Said>,
    /// `status.currentMetrics`, if they were computed.
    pub metrics: Option<Vec<Value>>,
    /// Clusters that are heard and cannot measure something, by their place in the view: what, and why.
    pub unmeasured: Vec<(usize, String)>,
    /// Events that warn.
    pub warnings: Vec<(&'static str, String)>,
}

/// When so many looks have failed altogether, what was asked for meanwhile is not known.
const LOOKS: u32 = 4;

/// Looks at a FederatedHPA at a moment of a clock that only goes forward.
pub fn look(view: View<'_>, history: &mut History, settings: &Settings, now: Duration) -> Outcome {
    let View { spec, current, settling, clusters } = view;
    let (min, max) = (i64::from(spec.min_replicas.unwrap_or(1)), i64::from(spec.max_replicas));
    let got = Said::new(
        ABLE,
        true,
        "SucceededGetScale",
        "the HPA controller was able to get the target's current scale",
    );
    if current == 0 && min != 0 {
        let why = "scaling is disabled since the replica count of the target is zero";
        let said = vec![got, Said::new(ACTIVE, false, "ScalingDisabled", why)];
        return Outcome { said, ..Outcome::default() };
    }
    let bound = match current {
        _ if current > max => Some((max, "Current number of replicas above Spec.MaxReplicas")),
        _ if current < min => Some((min, "Current number of replicas below Spec.MinReplicas")),
        _ => None,
    };
    if let Some((replicas, why)) = bound {
        return Outcome { replicas, rescale: Some(why.to_owned()), said: vec![got], ..Outcome::default() };
    }
    history.resumes(now, current, settings.sampling.every * LOOKS);
    let scaled = Scaled { current, settling, tolerance: spec.tolerance(settings.tolerance) };
    let wish = propose(spec, scaled, clusters);
    let none_runs =
        clusters.iter().filter_map(|cluster| cluster.report).all(|report| report.spec_replicas == 0);
    let wish = match wish {
        Ok(wish) => wish,
        Err((reason, why)) => {
            let why = if none_runs { NONE.to_owned() } else { why };
            history.hold(now, current);
            return unable(current, got, None, reason, why);
        }
    };
    // As Kubernetes has it: one that asks for what there is does so although another fails.
    if let Some((reason, why)) = wish.failure.clone().filter(|_| wish.highest < current) {
        history.hold(now, current);
        let (invalid, all) = (spec.metrics.len() - wish.current.len(), spec.metrics.len());
        let why = format!("invalid metrics ({invalid} invalid out of {all}), first error is: {why}");
        let unable = unable(current, got, Some(wish.current), reason, why);
        return Outcome { unmeasured: wish.unmeasured, ..unable };
    }
    let found = format!("the HPA was able to successfully calculate a replica count from {}", wish.title);
    let bounds = Bounds { min, max };
    let outcome =
        history.decide(now, spec.behavior.as_ref(), settings.downscale, bounds, (current, wish.replicas));
    let mut said = vec![got, Said::new(ACTIVE, true, "ValidMetricFound", found)];
    let of = |kind, holds, (reason, message): Why| Said::new(kind, holds, reason, message);
    said.push(of(ABLE, true, outcome.able));
    said.push(of(LIMITED, outcome.limited.0, outcome.limited.1));
    let rescale = match outcome.replicas {
        replicas if replicas == current => None,
        replicas if replicas > current && wish.replicas <= current => {
            Some("the minimum is higher".to_owned())
        }
        replicas if replicas > current => Some(format!("{} above target", wish.title)),
        _ => Some("All metrics below target".to_owned()),
    };
    let (metrics, unmeasured) = (Some(wish.current), wish.unmeasured);
    Outcome { replicas: outcome.replicas, rescale, said, metrics, unmeasured, warnings: Vec::new() }
}

const NONE: &str =
    "failed to get replicas in any of clusters, possibly because all of clusters are not ready";

fn unable(
    current: i64,
    got: Said,
    metrics: Option<Vec<Value>>,
    reason: &'static str,
    why: String,
) -> Outcome {
    let message = format!("the HPA was unable to compute the replica count: {why}");
    Outcome {
        replicas: current,
        said: vec![got, Said::new(ACTIVE, false, reason, message)],
        metrics,
        warnings: vec![(reason, why.clone()), ("FailedComputeMetricsReplicas", why)],
        ..Outcome::default()
    }
}

/// `status` of a FederatedHPA, but for its conditions. `last` is the status that it has.
pub fn status(
    last: &Value,
    generation: i64,
    (current, outcome): (i64, &Outcome),
    scaled_at: Option<&str>,
) -> Value {
    let mut status = last.as_object().cloned().unwrap_or_default();
    status.insert("observedGeneration".into(), json!(generation));
    status.insert("currentReplicas".into(), json!(current));
    status.insert("desiredReplicas".into(), json!(outcome.replicas));
    if let Some(metrics) = &outcome.metrics {
        status.insert("currentMetrics".into(), json!(metrics));
    }
    if let Some(at) = scaled_at {
        status.insert("lastScaleTime".into(), json!(at));
    }
    Value::Object(status)
}

#[cfg(test)]
mod tests {
    use super::super::{
        metrics::{Pods, Sums},
        report::{Report, Sample},
        trust::Given,
    };
    use super::*;

    fn four() -> Given {
        let requests = std::sync::Arc::new([("cpu".to_owned(), 1000)].into());
        Given { replicas: 4, surge: 1, requests, retains: false }
    }

    fn spec(more: Value) -> Spec {
        let mut spec = json!({"minReplicas": 2, "maxReplicas": 10, "metrics": [{"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]});
        more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        serde_json::from_value(spec).unwrap()
    }

    fn report(pods: i64, each: i64) -> Report {
        let ready = Pods { pods, usage: pods * each, requests: pods * 1000 };
        let sample = Sample { sums: Some(Sums { ready, ..Sums::default() }), ..Sample::default() };
        Report { spec_replicas: pods, status_replicas: pods, metrics: vec![sample], ..Report::default() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn word<'a>(outcome: &'a Outcome, kind: &str) -> (bool, &'a str) {
        outcome
            .said
            .iter()
            .rfind(|said| said.kind == kind)
            .map_or((false, ""), |said| (said.holds, said.reason))
    }

    #[test]
    fn a_look_says_what_is_done_and_why() {
        let busy = report(4, 900);
        let idle = report(4, 100);
        let zero = report(0, 0);
        // spec, replicas, what is heard, ─▶ replicas, why, AbleToScale, ScalingActive, ScalingLimited
        let rows = [
            (
                "up",
                json!({}),
                4,
                Some(&busy),
                8,
                Some("cpu resource utilization (percentage of request) above target"),
                "ReadyForNewScale",
                (true, "ValidMetricFound"),
                (false, "DesiredWithinRange"),
            ),
            (
                "up to the most",
                json!({"maxReplicas": 6}),
                4,
                Some(&busy),
                6,
                Some("cpu resource utilization (percentage of request) above target"),
                "ReadyForNewScale",
                (true, "ValidMetricFound"),
                (true, "TooManyReplicas"),
            ),
            (
                "down, but lately more was asked for",
                json!({}),
                4,
                Some(&idle),
                4,
                None,
                "ScaleDownStabilized",
                (true, "ValidMetricFound"),
                (false, "DesiredWithinRange"),
            ),
            (
                "above the most",
                json!({"maxReplicas": 3}),
                4,
                Some(&busy),
                3,
                Some("Current number of replicas above Spec.MaxReplicas"),
                "SucceededGetScale",
                (false, ""),
                (false, ""),
            ),
            (
                "below the least",
                json!({"minReplicas": 5}),
                4,
                None,
                5,
                Some("Current number of replicas below Spec.MinReplicas"),
                "SucceededGetScale",
                (false, ""),
                (false, ""),
            ),
            (
                "none",
                json!({}),
                0,
                Some(&busy),
                0,
                None,
                "SucceededGetScale",
                (false, "ScalingDisabled"),
                (false, ""),
            ),
            (
                "silent",
                json!({}),
                4,
                None,
                4,
                None,
                "SucceededGetScale",
                (false, "FailedGetResourceMetric"),
                (false, ""),
            ),
            (
                "no Pods",
                json!({}),
                4,
                Some(&zero),
                4,
                None,
                "SucceededGetScale",
                (false, "FailedGetResourceMetric"),
                (false, ""),
            ),
        ];
        for (what, more, current, heard, replicas, why, able, active, limited) in rows {
            let mut history = History::resume(at(1000), current, None);
            let spec = spec(more);
            let four = four();
            let clusters = [Cluster {
                given: &four,
                replicas: heard.map_or(4, |report| report.spec_replicas),
                report: heard,
            }];
            let view = View { spec: &spec, current, settling: None, clusters: &clusters };
            let outcome = look(view, &mut history, &Settings::default(), at(1015));
            assert_eq!((outcome.replicas, outcome.rescale.as_deref()), (replicas, why), "{what}");
            assert_eq!(word(&outcome, ABLE).1, able, "{what}");
            assert_eq!((word(&outcome, ACTIVE), word(&outcome, LIMITED)), (active, limited), "{what}");
        }
    }

    #[test]
    fn what_fails_is_told_and_changes_nothing() {
        let spec = spec(json!({"metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
            {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        ]}));
        let (four, mut heard) = (four(), report(4, 300));
        heard.metrics.push(Sample::failed("no such metric"));
        let clusters = [Cluster { given: &four, replicas: 4, report: Some(&heard) }];
        let view = View { spec: &spec, current: 4, settling: None, clusters: &clusters };
        let outcome = look(view, &mut History::default(), &Settings::default(), at(1));
        assert_eq!((outcome.replicas, outcome.rescale.as_deref()), (4, None));
        assert_eq!(word(&outcome, ACTIVE), (false, "FailedGetPodsMetric"));
        let why = "invalid metrics (1 invalid out of 2), first error is: no such metric";
        assert_eq!(
            outcome.warnings,
            [("FailedGetPodsMetric", why.to_owned()), ("FailedComputeMetricsReplicas", why.to_owned())]
        );
        heard.metrics[0] = report(4, 900).metrics.remove(0);
        let clusters = [Cluster { given: &four, replicas: 4, report: Some(&heard) }];
        let view = View { spec: &spec, current: 4, settling: None, clusters: &clusters };
        let outcome = look(view, &mut History::default(), &Settings::default(), at(1));
        assert_eq!(
            (outcome.replicas, word(&outcome, ACTIVE)),
            (8, (true, "ValidMetricFound")),
            "up all the same"
        );
    }

    /// What is not known for a while empties no window.
    #[test]
    fn a_silence_takes_nothing_away_sooner() {
        let spec = spec(json!({"metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
            {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        ]}));
        let both = |each: i64, hits: Option<i64>| {
            let mut report = report(10, each);
            let mut second = report.metrics[0].clone();
            match hits {
                Some(each) => {
                    second.sums.as_mut().unwrap().ready = Pods { pods: 10, usage: 10 * each, requests: 0 }
                }
                None => second = Sample::failed("no such metric"),
            }
            report.metrics.push(second);
            report
        };
        let (idle, busy, fails) = (both(100, Some(1000)), both(500, Some(1000)), both(500, None));
        let (falls, silent) = (both(100, None), None);
        let ten = Given { replicas: 10, ..four() };
        // What is heard from second 15 to 330, and whether metrics say something then; nothing where nobody looks.
        let rows = [
            ("all clusters are silent", Some(silent), false),
            ("one metric fails, the other asks for what there is", Some(Some(&fails)), true),
            ("one metric fails, the other asks for fewer", Some(Some(&falls)), false),
            ("it cannot be looked at", None, false),
        ];
        for (what, meanwhile, counts) in rows {
            let (mut history, settings) = (History::default(), Settings::default());
            let mut look = |seconds: u64, report: Option<&Report>| {
                let clusters = [Cluster { given: &ten, replicas: 10, report }];
                let view = View { spec: &spec, current: 10, settling: None, clusters: &clusters };
                let outcome = look(view, &mut history, &settings, at(seconds));
                (outcome.replicas, word(&outcome, ACTIVE).0)
            };
            assert_eq!(look(0, Some(&busy)), (10, true), "{what}");
            if let Some(heard) = meanwhile {
                for seconds in (15..=330).step_by(15) {
                    assert_eq!(look(seconds, heard), (10, counts), "{what}, at {seconds}");
                }
            }
            assert_eq!(
                look(345, Some(&idle)),
                (10, true),
                "{what}: the window begins when something is known"
            );
            let (last, then) =
                (if meanwhile.is_some() { 615 } else { 630 }, if meanwhile.is_some() { 630 } else { 645 });
            for seconds in (360..=last).step_by(15) {
                assert_eq!(look(seconds, Some(&idle)), (10, true), "{what}, at {seconds}");
            }
            assert_eq!(look(then, Some(&idle)), (2, true), "{what}: after the window");
        }
    }

    #[test]
    fn a_status_keeps_what_was_not_computed() {
        let last = json!({"currentMetrics": [1], "lastScaleTime": "then", "desiredReplicas": 2});
        let outcome = Outcome { replicas: 5, ..Outcome::default() };
        let status = status(&last, 7, (4, &outcome), None);
        assert_eq!(
            status,
            json!({"currentMetrics": [1], "lastScaleTime": "then", "desiredReplicas": 5, "observedGeneration": 7,
                "currentReplicas": 4})
        );
    }
}
