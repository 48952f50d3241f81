//! What the hub asks a cluster to sample: a Work with the FederatedHPA, of which nothing is applied.
//!
//! ```text
//!   FederatedHPA ─ work ─▶ Work on each cluster of its workload ─▶ its agent: Question ─ sample ─▶ Report in the Work's status
//! ```
//!
//! Of the FederatedHPA the Work says what is scaled and by what: bounds and behaviour are the hub's, and may change without a
//! word to anybody.

use std::time::Duration;

use karmada_api::{
    KarmadaKind,
    autoscaling::{API_VERSION, CrossVersionObjectReference, FEDERATED_HPA, GROUP},
    consts::{extension, label},
    work::Work,
};
use karmada_meta::object;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{hpa::Metric, report::METRICS, sample::Settings};
use crate::{names, work};

/// How a cluster samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// So often.
    pub every: Duration,
    /// What counts of Pods that have just begun.
    pub settings: Settings,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { every: Duration::from_secs(15), settings: Settings::default() }
    }
}

/// As an annotation says it, in milliseconds.
#[derive(Serialize, Deserialize)]
struct Said {
    every: u64,
    initialization: u64,
    readiness: u64,
}

/// Nobody is asked more often, or less often.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

impl Sampling {
    fn text(self) -> String {
        let milli = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let Self { every, settings: Settings { initialization, readiness } } = self;
        json!(Said {
            every: milli(every),
            initialization: milli(initialization),
            readiness: milli(readiness)
        })
        .to_string()
    }

    fn read(text: &str) -> Option<Self> {
        let Said { every, initialization, readiness } = serde_json::from_str(text).ok()?;
        let every = Duration::from_millis(every).clamp(EVERY.0, EVERY.1);
        let (initialization, readiness) =
            (Duration::from_millis(initialization), Duration::from_millis(readiness));
        Some(Self { every, settings: Settings { initialization, readiness } })
    }
}

/// The name of the Work that asks a cluster.
pub fn work_name(namespace: &str, name: &str) -> String {
    names::work_name(FEDERATED_HPA, namespace, name)
}

/// What of a FederatedHPA decides what a cluster is asked.
pub fn asked(hpa: &Value) -> [&Value; 2] {
    [&hpa["spec"]["scaleTargetRef"], &hpa["spec"]["metrics"]]
}

/// Whom a Work asks, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asking<'a> {
    /// The cluster.
    pub cluster: &'a str,
    /// Since when it is heard: one that has been away is asked anew, since what it has said before is of another time.
    pub since: Option<&'a str>,
    /// The generation of the Work whose answer is old, if the same is asked once more.
    pub anew: Option<i64>,
}

/// The Work that asks a cluster. `existing` is the one that is there.
pub fn work(
    hpa: &Value,
    asking: Asking<'_>,
    sampling: Sampling,
    existing: Option<&Value>,
    new_id: &str,
) -> Value {
    let (namespace, name) = (object::namespace(hpa), object::name(hpa));
    let mut work = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": Work::API_VERSION, "kind": Work::KIND,
            "metadata": {
                "name": work_name(namespace, name), "namespace": names::execution_namespace(asking.cluster),
            },
            "spec": {},
        })
    });
    if object::label(&work, label::WORK_ID).is_none_or(str::is_empty) {
        object::set_label(&mut work, label::WORK_ID, new_id);
    }
    object::set_annotation(&mut work, extension::FEDERATED_HPA_NAMESPACE, namespace);
    object::set_annotation(&mut work, extension::FEDERATED_HPA_NAME, name);
    let [target, metrics] = asked(hpa);
    let mut manifest = json!({
        "apiVersion": API_VERSION, "kind": FEDERATED_HPA,
        "metadata": {"name": name, "namespace": namespace, "uid": object::uid(hpa)},
        "spec": {"scaleTargetRef": target, "metrics": metrics},
    });
    if sampling != Sampling::default() {
        object::set_annotation(&mut manifest, extension::SAMPLING, sampling.text());
    }
    if let Some(since) = asking.since {
        object::set_annotation(&mut manifest, extension::HEARD_SINCE, since);
    }
    let known = existing.and_then(anew);
    let mut finish = |anew: Option<i64>| {
        let mut manifest = manifest.clone();
        if let Some(anew) = anew {
            object::set_annotation(&mut manifest, extension::ASKED, anew.to_string());
        }
        work::finish(&mut work, manifest);
        work.pointer(MANIFEST) == existing.and_then(|work| work.pointer(MANIFEST))
    };
    // Where something else is asked every answer is new.
    let is_same = finish(known);
    let anew = match existing {
        Some(_) if is_same => known.max(asking.anew),
        Some(_) => None,
        None => asking.anew,
    };
    if anew != known {
        finish(anew);
    }
    work["spec"]["suspendDispatching"] = json!(true);
    work
}

const MANIFEST: &str = "/spec/workload/manifests/0";

/// Since when its cluster was heard when a Work asked.
pub fn heard_since(work: &Value) -> Option<&str> {
    object::annotation(work.pointer(MANIFEST)?, extension::HEARD_SINCE)
}

/// The generation of a Work which asked the same, if it asks once more.
pub fn anew(work: &Value) -> Option<i64> {
    object::annotation(work.pointer(MANIFEST)?, extension::ASKED)?.parse().ok()
}

/// The FederatedHPA that a Work's annotations name: namespace and name.
pub fn named(work: &Value) -> Option<(&str, &str)> {
    let text = |key| object::annotation(work, key).filter(|text| !text.is_empty());
    Some((text(extension::FEDERATED_HPA_NAMESPACE)?, text(extension::FEDERATED_HPA_NAME)?))
}

/// Whether a manifest of a Work that is not dispatched asks for samples.
pub fn is_one(group: &str, kind: &str) -> bool {
    (group, kind) == (GROUP, FEDERATED_HPA)
}

/// What a cluster is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where what is scaled is.
    pub namespace: String,
    /// What is scaled.
    pub target: CrossVersionObjectReference,
    /// By what; why not, of a metric that cannot be read.
    pub metrics: Vec<Result<Metric, String>>,
    /// How.
    pub sampling: Sampling,
}

impl Question {
    /// Reads the manifest of a Work.
    ///
    /// # Errors
    /// Why it asks nothing.
    pub fn read(manifest: &Value) -> Result<Self, String> {
        let target = CrossVersionObjectReference::deserialize(&manifest["spec"]["scaleTargetRef"])
            .map_err(|error| format!("spec.scaleTargetRef: {error}"))?;
        let metrics = manifest["spec"]["metrics"].as_array().cloned().unwrap_or_default();
        if metrics.len() > METRICS {
            return Err(format!("spec.metrics: there are {}, and {METRICS} is the most", metrics.len()));
        }
        let sampling = match object::annotation(manifest, extension::SAMPLING) {
            Some(text) => Sampling::read(text)
                .ok_or_else(|| format!("annotation {}: {text:?} says nothing", extension::SAMPLING))?,
            None => Sampling::default(),
        };
        let metrics = metrics.iter().map(|metric| Metric::read(metric).map_err(|(_, why)| why)).collect();
        Ok(Self { namespace: object::namespace(manifest).to_owned(), target, metrics, sampling })
    }
}

/// A label selector as it stands in a query.
///
/// # Errors
/// What of it selects nothing that a server knows.
pub fn selector_text(selector: &Value) -> Result<String, String> {
    let mut parts = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten();
        let values = values.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            other => return Err(format!("{other:?} is no operator of a label selector")),
        });
    }
    Ok(parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Target;
    use super::*;

    fn hpa() -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": FEDERATED_HPA,
            "metadata": {"name": "web", "namespace": "demo", "uid": "u", "resourceVersion": "7", "generation": 4},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2, "maxReplicas": 9, "behavior": {"scaleDown": {}},
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
                    {"type": "Moon"},
                ],
            },
            "status": {"desiredReplicas": 3},
        })
    }

    fn m1(since: Option<&str>) -> Asking<'_> {
        Asking { cluster: "m1", since, anew: None }
    }

    #[test]
    fn a_cluster_is_asked_what_is_scaled_and_by_what() {
        let work = work(&hpa(), m1(None), Sampling::default(), None, "id");
        assert_eq!(object::name(&work), work_name("demo", "web"));
        assert_eq!(object::namespace(&work), "karmada-es-m1");
        assert_eq!(named(&work), Some(("demo", "web")));
        assert_eq!(object::finalizers(&work), Vec::<&str>::new(), "nothing of it is to be taken away");
        assert_eq!(work["spec"]["suspendDispatching"], true);
        let manifest = &work["spec"]["workload"]["manifests"][0];
        let fields: Vec<&String> = manifest["spec"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["scaleTargetRef", "metrics"]);
        let question = Question::read(manifest).unwrap();
        assert_eq!((question.namespace.as_str(), question.target.name.as_str()), ("demo", "web"));
        assert_eq!(
            question.metrics[0],
            Ok(Metric::Resource { name: "cpu".into(), container: None, target: Target::Utilization(60) })
        );
        assert!(question.metrics[1].as_ref().unwrap_err().contains("Moon"));
        assert_eq!(question.sampling, Sampling::default());
    }

    #[test]
    fn bounds_are_no_question_and_a_work_that_is_right_stays() {
        let existing = work(&hpa(), m1(None), Sampling::default(), None, "id");
        let mut other = hpa();
        other["spec"]["maxReplicas"] = json!(40);
        assert_eq!(work(&other, m1(None), Sampling::default(), Some(&existing), "new"), existing);
        other["spec"]["metrics"][0]["resource"]["name"] = json!("memory");
        assert_ne!(work(&other, m1(None), Sampling::default(), Some(&existing), "new"), existing);
    }

    /// Its generation is in its spec, so that what was answered before does not count.
    #[test]
    fn a_cluster_that_was_away_is_asked_anew() {
        let ask = |since, existing| work(&hpa(), m1(since), Sampling::default(), existing, "id");
        let first = ask(Some("2026-11-25T10:00:00Z"), None);
        assert_eq!(heard_since(&first), Some("2026-11-25T10:00:00Z"));
        assert_eq!(ask(Some("2026-11-25T10:00:00Z"), Some(&first)), first);
        let again = ask(Some("2026-11-25T11:00:00Z"), Some(&first));
        assert_ne!(again["spec"], first["spec"]);
        assert_eq!(heard_since(&ask(None, None)), None);
        let manifest = &again["spec"]["workload"]["manifests"][0];
        assert_eq!(Question::read(manifest), Question::read(&first["spec"]["workload"]["manifests"][0]));
    }

    /// The same question once more is another generation of its spec; that stays until something else is asked.
    #[test]
    fn the_same_may_be_asked_once_more() {
        let ask = |metric: &str, since, anew, existing: Option<&Value>| {
            let mut hpa = hpa();
            hpa["spec"]["metrics"][0]["resource"]["name"] = json!(metric);
            let asking = Asking { cluster: "m1", since, anew };
            work(&hpa, asking, Sampling::default(), existing, "id")
        };
        let first = ask("cpu", None, None, None);
        assert_eq!(anew(&first), None);
        let once_more = ask("cpu", None, Some(1), Some(&first));
        assert_eq!(anew(&once_more), Some(1));
        assert_ne!(once_more["spec"], first["spec"]);
        let question = |work: &Value| Question::read(work.pointer(MANIFEST).unwrap());
        assert_eq!(question(&once_more), question(&first));
        // What is known stays, also where the index is behind.
        assert_eq!(ask("cpu", None, None, Some(&once_more)), once_more);
        assert_eq!(ask("cpu", None, Some(1), None), once_more);
        assert_eq!(anew(&ask("cpu", None, Some(2), Some(&once_more))), Some(2));
        // Every answer to something else is new.
        assert_eq!(anew(&ask("memory", None, Some(1), Some(&once_more))), None);
        assert_eq!(anew(&ask("cpu", Some("2026-11-25T10:00:00Z"), Some(1), Some(&once_more))), None);
    }

    #[test]
    fn how_it_is_sampled_is_said_where_it_is_not_as_usual() {
        let settings =
            Settings { initialization: Duration::from_secs(60), readiness: Duration::from_millis(1500) };
        let sampling = Sampling { every: Duration::from_secs(5), settings };
        let work = work(&hpa(), m1(None), sampling, None, "id");
        let mut manifest = work["spec"]["workload"]["manifests"][0].clone();
        assert_eq!(Question::read(&manifest).unwrap().sampling, sampling);
        object::set_annotation(
            &mut manifest,
            extension::SAMPLING,
            r#"{"every":0,"initialization":1,"readiness":1}"#,
        );
        assert_eq!(Question::read(&manifest).unwrap().sampling.every, EVERY.0);
        object::set_annotation(&mut manifest, extension::SAMPLING, "soon");
        assert!(Question::read(&manifest).is_err());
    }

    #[test]
    fn selectors_are_written_as_servers_read_them() {
        let rows = [
            (json!({"matchLabels": {"app": "web", "tier": "x"}}), Ok("app=web,tier=x")),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]},
                    {"key": "b", "operator": "Exists"}, {"key": "c", "operator": "DoesNotExist"},
                    {"key": "d", "operator": "NotIn", "values": ["z"]}]}),
                Ok("a in (x,y),b,!c,d notin (z)"),
            ),
            (json!({}), Ok("")),
            (json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}), Err(())),
        ];
        for (selector, want) in rows {
            let text = selector_text(&selector);
            assert_eq!(text.as_deref().map_err(|_| ()), want, "{selector}");
        }
    }
}
