//! What clusters have told for the hub's FederatedHPAs, for whoever else asks for the same metric.
//!
//! One value for all Pods is what it is, whoever asks. What Pods use each is not told: agents tell sums.

use karmada_meta::{gvk::GroupVersionKind, object};
use serde_json::Value;

use super::{
    hpa::{Metric, Spec},
    question::{self, selector_text},
    report::Report,
};

/// A metric that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought {
    /// That of an object, by group, kind and name; or an external one.
    pub object: Option<(String, String, String)>,
    /// Its name.
    pub metric: String,
    /// The labels of its series, as in a query.
    pub selector: String,
}

impl Sought {
    /// Where it stands among the metrics of a FederatedHPA.
    pub fn place(&self, spec: &Spec) -> Option<usize> {
        let is_selected = |selector: Option<&Value>| {
            let text = selector.map_or(Ok(String::new()), selector_text);
            text.is_ok_and(|text| text == self.selector)
        };
        let is_meant = |metric: &Value| match (Metric::read(metric), &self.object) {
            (Ok(Metric::External { name, selector, .. }), None) => {
                name == self.metric && is_selected(selector.as_ref())
            }
            (Ok(Metric::Object { of, name, selector, .. }), Some((group, kind, object))) => {
                let text = |field: &str| of[field].as_str().unwrap_or_default();
                let version = if text("apiVersion").is_empty() { "v1" } else { text("apiVersion") };
                let found = GroupVersionKind::from_api_version(version, text("kind"));
                name == self.metric
                    && text("name") == object
                    && found.is_some_and(|found| (&found.group, &found.kind) == (group, kind))
                    && is_selected(selector.as_ref())
            }
            _ => false,
        };
        spec.metrics.iter().position(is_meant)
    }
}

/// What a cluster has told of one of so many metrics by a Work that asks it: a value in thousandths, and when it was sampled.
pub fn value(work: &Value, place: usize, metrics: usize) -> Option<(i64, String)> {
    let report = Report::read(work.pointer("/status/manifestStatuses/0/status")?).ok()?;
    let is_asked =
        report.generation == object::generation(work) || question::anew(work) == Some(report.generation);
    if !is_asked || report.check(metrics).is_err() {
        return None;
    }
    Some((report.metrics.get(place)?.value?, report.at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_metric_is_found_among_those_of_a_federated_hpa() {
        let spec: Spec = serde_json::from_value(json!({"maxReplicas": 9, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
            {"type": "Object", "object": {"describedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "metric": {"name": "hits"}, "target": {"type": "Value", "value": "10"}}},
            {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "web"},
                "metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "10"}}},
            {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
        ]}))
        .unwrap();
        let of =
            |group: &str, kind: &str, name: &str| Some((group.to_owned(), kind.to_owned(), name.to_owned()));
        for (object, metric, selector, want) in [
            (of("apps", "Deployment", "web"), "hits", "", Some(1)),
            (of("", "Service", "web"), "hits", "a=b", Some(2)),
            (of("", "Service", "web"), "hits", "", None),
            (of("apps", "Deployment", "api"), "hits", "", None),
            (of("apps", "Deployment", "web"), "misses", "", None),
            (of("batch", "Deployment", "web"), "hits", "", None),
            (None, "queue", "", Some(3)),
            (None, "queue", "a=b", None),
            (None, "hits", "", None),
        ] {
            let sought = Sought { object, metric: metric.to_owned(), selector: selector.to_owned() };
            assert_eq!(sought.place(&spec), want, "{sought:?}");
        }
    }

    #[test]
    fn a_value_is_told_by_an_answer_to_what_is_asked() {
        let work = |generation: i64, answered: i64, anew: Option<&str>| {
            let mut manifest = json!({"metadata": {}});
            if let Some(anew) = anew {
                object::set_annotation(&mut manifest, "federatedhpa.karmada.io/asked", anew);
            }
            json!({"metadata": {"generation": generation}, "spec": {"workload": {"manifests": [manifest]}},
                "status": {"manifestStatuses": [{"status": {"specReplicas": 1, "statusReplicas": 1, "generation": answered,
                    "at": "2026-11-25T10:00:00Z", "metrics": [{"value": 1500, "ready": 1}, {"error": "none"}]}}]}})
        };
        let told = Some((1500, "2026-11-25T10:00:00Z".to_owned()));
        for (work, place, metrics, want) in [
            (work(3, 3, None), 0, 2, told.clone()),
            (work(4, 3, Some("3")), 0, 2, told),
            (work(4, 3, None), 0, 2, None),
            (work(3, 3, None), 1, 2, None),
            (work(3, 3, None), 0, 1, None),
            (json!({}), 0, 1, None),
        ] {
            assert_eq!(value(&work, place, metrics), want, "{work} {place}");
        }
    }
}
