//! FederatedHPA: how many replicas a workload is to have on all its clusters, by what their agents report.
//!
//! ```text
//!   member: scale, Pods, samples ─ sample ─▶ Report ─▶ status of a Work
//!   hub:    Reports, silent clusters ─ propose ─▶ the highest of all metrics ─ behavior ─▶ spec.replicas
//! ```
//!
//! A cluster that is silent has its replicas as Pods that nobody has measured, and as long as one is, nothing is scaled down. So it
//! is with one that cannot measure a metric, for that metric.

use karmada_api::autoscaling::CrossVersionObjectReference;
use karmada_meta::{
    path::{FieldError, Path},
    quantity::Quantity,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    behavior::{Behavior, Rules},
    metrics::{Proposal, Scale, Sums, Target, Tolerance, calibration},
    report::{Report, Sample},
    trust::{self, Given},
};

/// What is scaled, by what, and how far.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// A workload of the hub.
    pub scale_target_ref: CrossVersionObjectReference,
    /// At least so many; one, if nothing is said.
    pub min_replicas: Option<i32>,
    /// At most so many.
    pub max_replicas: i32,
    /// As Kubernetes has them.
    pub metrics: Vec<Value>,
    /// How fast.
    pub behavior: Option<Behavior>,
}

/// A metric by which is scaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// What Pods use of a resource, or one of their containers does.
    Resource { name: String, container: Option<String>, target: Target },
    /// What Pods say of themselves.
    Pods { name: String, selector: Option<Value>, target: i64 },
    /// What an object says, for all Pods, or for each of them its share.
    Object { of: Value, name: String, selector: Option<Value>, target: Shared },
    /// What somebody else says.
    External { name: String, selector: Option<Value>, target: Shared },
}

/// The target of one value for all Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// It is to stay there.
    Value(i64),
    /// So much for each Pod.
    Average(i64),
}

impl Metric {
    /// Reads one.
    ///
    /// # Errors
    /// The reason of a condition, and why.
    pub fn read(metric: &Value) -> Result<Self, (&'static str, String)> {
        let kind = metric["type"].as_str().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let selector = |source: &Value| source["metric"].get("selector").filter(|s| s.is_object()).cloned();
        match kind {
            "Resource" | "ContainerResource" => {
                let container = kind == "ContainerResource";
                let source = &metric[if container { "containerResource" } else { "resource" }];
                let failed =
                    if container { "FailedGetContainerResourceMetric" } else { "FailedGetResourceMetric" };
                let target = pod_target(&source["target"]).map_err(|why| (failed, why))?;
                let container = container.then(|| text(&source["container"]));
                Ok(Self::Resource { name: text(&source["name"]), container, target })
            }
            "Pods" => {
                let source = &metric["pods"];
                let target =
                    amount(&source["target"], "averageValue").map_err(|why| ("FailedGetPodsMetric", why))?;
                Ok(Self::Pods { name: text(&source["metric"]["name"]), selector: selector(source), target })
            }
            "Object" => {
                let source = &metric["object"];
                let target = shared(&source["target"]).map_err(|why| ("FailedGetObjectMetric", why))?;
                let (of, name) = (source["describedObject"].clone(), text(&source["metric"]["name"]));
                Ok(Self::Object { of, name, selector: selector(source), target })
            }
            "External" => {
                let source = &metric["external"];
                let target = shared(&source["target"]).map_err(|why| ("FailedGetExternalMetric", why))?;
                Ok(Self::External {
                    name: text(&source["metric"]["name"]),
                    selector: selector(source),
                    target,
                })
            }
            other => Err(("InvalidMetricSourceType", format!("unknown metric source type {other:?}"))),
        }
    }

    /// What it is called where people read why something was scaled.
    pub fn title(&self) -> String {
        match self {
            Self::Resource { name, container, target } => {
                let of = match container {
                    Some(container) => format!("{name} container resource {{}} of {container}"),
                    None => format!("{name} resource {{}}"),
                };
                let what = match target {
                    Target::Utilization(_) => "utilization (percentage of request)",
                    Target::Average(_) => "metric",
                };
                of.replace("{}", what)
            }
            Self::Pods { name, .. } => format!("pods metric {name}"),
            Self::Object { of, name, .. } => {
                format!("{} metric {name}", of["kind"].as_str().unwrap_or_default())
            }
            Self::External { name, .. } => format!("external metric {name}"),
        }
    }

    /// The reason of the condition when it cannot be had.
    pub fn failed(&self) -> &'static str {
        match self {
            Self::Resource { container: None, .. } => "FailedGetResourceMetric",
            Self::Resource { container: Some(_), .. } => "FailedGetContainerResourceMetric",
            Self::Pods { .. } => "FailedGetPodsMetric",
            Self::Object { .. } => "FailedGetObjectMetric",
            Self::External { .. } => "FailedGetExternalMetric",
        }
    }
}

fn amount(target: &Value, field: &str) -> Result<i64, String> {
    let text = match &target[field] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(format!("the target has no {field}")),
    };
    let amount = text.parse::<Quantity>().map_err(|why| format!("{field}: {why}"))?.milli();
    if amount > 0 { Ok(amount) } else { Err(format!("{field} is not positive")) }
}

fn pod_target(target: &Value) -> Result<Target, String> {
    match target["averageUtilization"].as_i64() {
        Some(percent) if percent > 0 => Ok(Target::Utilization(percent)),
        Some(_) => Err("averageUtilization is not positive".to_owned()),
        None => amount(target, "averageValue").map(Target::Average),
    }
}

fn shared(target: &Value) -> Result<Shared, String> {
    match target.get("value").filter(|value| !value.is_null()) {
        Some(_) => amount(target, "value").map(Shared::Value),
        None => amount(target, "averageValue").map(Shared::Average),
    }
}

/// A cluster that the workload is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster<'a> {
    /// What it was given of it.
    pub given: &'a Given,
    /// For how many replicas it stands: see [`trust::Evidence::weigh`].
    pub replicas: i64,
    /// What it reports; nothing of one that is silent.
    pub report: Option<&'a Report>,
}

/// What one metric asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asks {
    /// How many replicas.
    pub replicas: i64,
    /// As in `status.currentMetrics`.
    pub current: Value,
    /// What it is called.
    pub title: String,
}

/// What all metrics ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The highest; no fewer than there are while something is not known.
    pub replicas: i64,
    /// The highest of those that can be had, whatever is not known.
    pub highest: i64,
    /// Of the one that asks for most.
    pub title: String,
    /// As in `status.currentMetrics`.
    pub current: Vec<Value>,
    /// Of the first metric that cannot be had: reason and message. The others go only up then.
    pub failure: Option<(&'static str, String)>,
    /// Clusters that are heard and cannot measure something, by their place: what, and why. Their Pods count as those of silent
    /// clusters do.
    pub unmeasured: Vec<(usize, String)>,
}

impl Spec {
    /// So far from the target nothing is done: as the FederatedHPA says, or as is usual.
    pub fn tolerance(&self, usual: f64) -> Tolerance {
        let said = |rules: Option<&Rules>| {
            let text = match rules?.tolerance.as_ref()? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let tolerance = text.parse::<Quantity>().ok()?.as_f64();
            (tolerance >= 0.0).then_some(tolerance)
        };
        let behavior = self.behavior.as_ref();
        Tolerance {
            up: said(behavior.and_then(|behavior| behavior.scale_up.as_ref())).unwrap_or(usual),
            down: said(behavior.and_then(|behavior| behavior.scale_down.as_ref())).unwrap_or(usual),
        }
    }
}

/// The template that is scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled {
    /// Its replicas.
    pub current: i64,
    /// The clusters' replicas for each of the template's, by its binding, while the template was changed a moment ago: what
    /// clusters report of that is from before. Else it is what they report, as it is Karmada's.
    pub settling: Option<f64>,
    /// So far from the target nothing is done.
    pub tolerance: Tolerance,
}

/// What clusters say of one metric.
#[derive(Default)]
struct Heard<'a> {
    /// Those that have measured it.
    samples: Vec<(&'a Given, &'a Sample)>,
    /// Those of which nothing is known: silent ones, and such as cannot measure it.
    unknown: Vec<&'a Given>,
    /// Who cannot, by its place, and why.
    cannot: Vec<(usize, &'a str)>,
    /// All replicas are on one cluster.
    alone: bool,
}

impl<'a> Heard<'a> {
    fn of(clusters: &[Cluster<'a>], at: usize) -> Self {
        let have = clusters.iter().filter(|cluster| cluster.given.replicas > 0).count();
        let mut heard = Self { alone: have == 1, ..Self::default() };
        for (place, cluster) in clusters.iter().enumerate() {
            match cluster.report.and_then(|report| report.metrics.get(at)) {
                None => heard.unknown.push(cluster.given),
                Some(sample) if sample.error.is_empty() => heard.samples.push((cluster.given, sample)),
                Some(sample) => {
                    heard.unknown.push(cluster.given);
                    heard.cannot.push((place, &sample.error));
                }
            }
        }
        heard
    }

    /// How many Pods there are of which nothing is known.
    fn missing(&self) -> i64 {
        self.unknown.iter().map(|given| given.replicas).fold(0, i64::saturating_add)
    }

    /// The sums of all, as they count and as they were measured.
    fn sums(&self, target: Target, resource: Option<&str>) -> (Sums, Sums) {
        let (mut counted, mut measured) = (Sums::default(), Sums::default());
        let request = |given: &Given| resource.and_then(|resource| given.request(resource));
        for (given, sums) in self.samples.iter().filter_map(|(given, sample)| Some((given, sample.sums?))) {
            let alone = self.alone && given.replicas > 0;
            counted += trust::weighed(sums, target, request(given), alone);
            measured += sums;
        }
        for given in &self.unknown {
            counted.missing += trust::unknown(given.replicas, request(given));
        }
        (counted, measured)
    }

    /// What all of them say together.
    fn value(&self) -> Result<i64, String> {
        let values: Vec<i64> = self.samples.iter().filter_map(|(_, sample)| sample.value).collect();
        match values.is_empty() {
            true => Err("no cluster reports it".to_owned()),
            false => Ok(values.into_iter().fold(0, i64::saturating_add)),
        }
    }

    /// By how many Pods that is to be divided.
    fn ready(&self) -> i64 {
        self.samples.iter().filter_map(|(_, sample)| sample.ready).fold(self.missing(), i64::saturating_add)
    }
}

/// What metrics ask for.
///
/// # Errors
/// When none of them says anything: reason and message.
pub fn propose(
    spec: &Spec,
    scaled: Scaled,
    clusters: &[Cluster<'_>],
) -> Result<Wish, (&'static str, String)> {
    let members = clusters.iter().map(|cluster| cluster.replicas).fold(0, i64::saturating_add);
    let Scaled { current, settling, tolerance } = scaled;
    let calibration = settling.unwrap_or_else(|| calibration(members, current));
    let scale = Scale { current, calibration, tolerance };
    let mut asks: Vec<Asks> = Vec::new();
    let (mut failure, mut unmeasured) = (None, Vec::new());
    for (at, metric) in spec.metrics.iter().enumerate() {
        let asked = Metric::read(metric).and_then(|metric| {
            let heard = Heard::of(clusters, at);
            let asked = ask(&metric, &scale, &heard);
            let cannot = heard.cannot.iter();
            unmeasured.extend(cannot.map(|(place, why)| (*place, format!("{}: {why}", metric.title()))));
            asked.map_err(|why| {
                // Whoever could say something says why it cannot.
                let why = heard.cannot.first().map_or(why, |(_, cannot)| (*cannot).to_owned());
                (metric.failed(), why)
            })
        });
        match asked {
            Ok(asked) => asks.push(asked),
            Err(why) if failure.is_none() => failure = Some(why),
            Err(_) => {}
        }
    }
    let highest = asks.iter().rev().max_by_key(|asked| asked.replicas);
    let Some(highest) = highest else {
        let none = ("FailedGetResourceMetric", "there is no metric".to_owned());
        let (reason, why) = failure.unwrap_or(none);
        let all = spec.metrics.len();
        return Err((reason, format!("invalid metrics ({all} invalid out of {all}), first error is: {why}")));
    };
    let silent = clusters.iter().any(|cluster| cluster.report.is_none());
    let held = failure.is_some() || silent || !unmeasured.is_empty();
    let replicas = if held { highest.replicas.max(current) } else { highest.replicas };
    let title = highest.title.clone();
    let highest = highest.replicas;
    let current = asks.into_iter().map(|asked| asked.current).collect();
    Ok(Wish { replicas, highest, title, current, failure, unmeasured })
}

fn ask(metric: &Metric, scale: &Scale, heard: &Heard<'_>) -> Result<Asks, String> {
    let title = metric.title();
    let milli = |amount: i64| format!("{amount}m");
    let shared = |target: &Shared| match *target {
        Shared::Value(target) => {
            let Proposal { replicas, measured } = scale.by_value(heard.value()?, target, heard.ready())?;
            Ok::<_, String>((replicas, json!({"value": milli(measured)})))
        }
        Shared::Average(target) => {
            let Proposal { replicas, measured } = scale.by_average(heard.value()?, target, heard.ready())?;
            Ok((replicas, json!({"averageValue": milli(measured)})))
        }
    };
    // What people read is what was measured.
    let by_pods = |target: Target, resource: Option<&str>| {
        let (counted, measured) = heard.sums(target, resource);
        let Proposal { replicas, measured: of_counted } = scale.by_pods(&counted, target)?;
        Ok::<_, String>((replicas, target.measured(&measured.ready).unwrap_or(of_counted), measured.ready))
    };
    let named = |name: &str, selector: &Option<Value>| match selector {
        Some(selector) => json!({"name": name, "selector": selector}),
        None => json!({"name": name}),
    };
    let (replicas, current) = match metric {
        Metric::Resource { name, container, target } => {
            let (replicas, measured, ready) = by_pods(*target, Some(name))?;
            let average = milli(ready.usage / ready.pods.max(1));
            let current = match target {
                Target::Utilization(_) => json!({"averageUtilization": measured, "averageValue": average}),
                Target::Average(_) => json!({"averageValue": milli(measured)}),
            };
            let status = match container {
                Some(container) => json!({"type": "ContainerResource",
                    "containerResource": {"name": name, "container": container, "current": current}}),
                None => json!({"type": "Resource", "resource": {"name": name, "current": current}}),
            };
            (replicas, status)
        }
        Metric::Pods { name, selector, target } => {
            let (replicas, measured, _) = by_pods(Target::Average(*target), None)?;
            let metric = named(name, selector);
            (
                replicas,
                json!({"type": "Pods", "pods": {"metric": metric, "current": {"averageValue": milli(measured)}}}),
            )
        }
        Metric::Object { of, name, selector, target } => {
            let (replicas, current) = shared(target)?;
            let metric = named(name, selector);
            (
                replicas,
                json!({"type": "Object", "object": {"describedObject": of, "metric": metric, "current": current}}),
            )
        }
        Metric::External { name, selector, target } => {
            let (replicas, current) = shared(target)?;
            (
                replicas,
                json!({"type": "External", "external": {"metric": named(name, selector), "current": current}}),
            )
        }
    };
    Ok(Asks { replicas, current, title })
}

/// Fills in what a FederatedHPA does not say.
pub fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("minReplicas").is_none_or(Value::is_null) {
        spec.insert("minReplicas".into(), json!(1));
    }
    if spec.get("metrics").is_none_or(|metrics| metrics.as_array().is_none_or(Vec::is_empty)) {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}});
        spec.insert("metrics".into(), json!([cpu]));
    }
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]});
    let down =
        json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
    for (field, defaults) in [("scaleUp", up), ("scaleDown", down)] {
        let rules = behavior.entry(field).or_insert_with(|| json!({}));
        for (key, value) in defaults.as_object().into_iter().flatten() {
            if rules
                .get(key)
                .is_none_or(|known| known.is_null() || known.as_array().is_some_and(Vec::is_empty))
            {
                rules[key] = value.clone();
            }
        }
    }
}

/// What is wrong with a FederatedHPA.
pub fn validate(spec: &Spec) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let positive = |field: &str, value: i32, errors: &mut Vec<FieldError>| {
        if value < 1 {
            errors.push(FieldError::invalid(&path.child(field), value, "must be greater than 0"));
        }
    };
    let min = spec.min_replicas.unwrap_or(1);
    positive("minReplicas", min, &mut errors);
    positive("maxReplicas", spec.max_replicas, &mut errors);
    if spec.max_replicas < min {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(&path.child("maxReplicas"), spec.max_replicas, why));
    }
    for (i, metric) in spec.metrics.iter().enumerate() {
        let path = path.child("metrics").index(i);
        let sources = ["object", "pods", "resource", "containerResource", "external"];
        if sources.iter().filter(|source| metric.get(**source).is_some_and(Value::is_object)).count() != 1 {
            errors.push(FieldError::forbidden(
                &path,
                "must populate information for exactly one metric source",
            ));
        }
        if let Err((reason, why)) = Metric::read(metric) {
            let field = if reason == "InvalidMetricSourceType" { path.child("type") } else { path };
            errors.push(FieldError::invalid(&field, metric["type"].clone(), why));
        }
    }
    if let Some(behavior) = &spec.behavior {
        for (field, rules) in [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)] {
            errors.extend(
                rules.iter().flat_map(|rules| self::rules(rules, &path.child("behavior").child(field))),
            );
        }
    }
    errors
}

fn rules(rules: &Rules, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = rules.stabilization_window_seconds.filter(|seconds| !(0..=3600).contains(seconds))
    {
        let why = "must be between 0 and 3600";
        errors.push(FieldError::invalid(&path.child("stabilizationWindowSeconds"), seconds, why));
    }
    let words = ["Disabled", "Max", "Min"];
    if let Some(select) = rules.select_policy.as_deref().filter(|select| !words.contains(select)) {
        errors.push(FieldError::not_supported(&path.child("selectPolicy"), select, &words));
    }
    if let Some(tolerance) = &rules.tolerance {
        let text = tolerance.as_str().map_or_else(|| tolerance.to_string(), str::to_owned);
        if text.parse::<Quantity>().map_or(true, |tolerance| tolerance.as_f64() < 0.0) {
            let why = "must be a quantity that is not negative, such as 0.05 or 50m";
            errors.push(FieldError::invalid(&path.child("tolerance"), tolerance.clone(), why));
        }
    }
    if rules.policies.is_empty() {
        errors.push(FieldError::required(&path.child("policies"), "must specify at least one Policy"));
    }
    for (i, policy) in rules.policies.iter().enumerate() {
        let path = path.child("policies").index(i);
        if !["Pods", "Percent"].contains(&policy.kind.as_str()) {
            errors.push(FieldError::not_supported(
                &path.child("type"),
                policy.kind.as_str(),
                &["Pods", "Percent"],
            ));
        }
        if policy.value <= 0 {
            errors.push(FieldError::invalid(&path.child("value"), policy.value, "must be greater than zero"));
        }
        if !(1..=1800).contains(&policy.period_seconds) {
            let why = "must be between 1 and 1800";
            errors.push(FieldError::invalid(&path.child("periodSeconds"), policy.period_seconds, why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Pods;
    use super::*;

    fn spec(metrics: Value) -> Spec {
        serde_json::from_value(json!({"maxReplicas": 50, "metrics": metrics})).unwrap()
    }

    fn cpu(percent: i64) -> Value {
        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
    }

    /// A cluster with so many Pods that are all ready, and that use so much of a thousand each.
    fn report(pods: i64, each: i64) -> Report {
        let ready = Pods { pods, usage: pods * each, requests: pods * 1000 };
        let sample = Sample { sums: Some(Sums { ready, ..Sums::default() }), ..Sample::default() };
        Report { spec_replicas: pods, status_replicas: pods, metrics: vec![sample], ..Report::default() }
    }

    fn wish(
        spec: &Spec,
        current: i64,
        clusters: &[(i64, Option<Report>)],
    ) -> Result<Wish, (&'static str, String)> {
        let given: Vec<Given> = clusters.iter().map(|(replicas, _)| given(*replicas)).collect();
        let clusters: Vec<_> =
            given.iter().zip(clusters).map(|(given, (_, report))| of(given, report.as_ref())).collect();
        let scaled = Scaled { current, settling: None, tolerance: spec.tolerance(0.1) };
        propose(spec, scaled, &clusters)
    }

    fn of<'a>(given: &'a Given, report: Option<&'a Report>) -> Cluster<'a> {
        let replicas = report.map_or(given.replicas, |report| report.spec_replicas.min(given.replicas));
        Cluster { given, replicas, report }
    }

    fn given(replicas: i64) -> Given {
        let requests = std::sync::Arc::new([("cpu".to_owned(), 1000)].into());
        Given { replicas, surge: 1, requests, retains: false }
    }

    #[test]
    fn clusters_are_one_workload() {
        let spec = spec(json!([cpu(50)]));
        let rows = [
            ("divided", 4, vec![(2, Some(report(2, 900))), (2, Some(report(2, 600)))], 6),
            ("divided, down", 6, vec![(3, Some(report(3, 100))), (3, Some(report(3, 200)))], 2),
            ("duplicated", 3, vec![(3, Some(report(3, 750))), (3, Some(report(3, 750)))], 5),
            ("one has none", 4, vec![(4, Some(report(4, 1000))), (0, Some(report(0, 0)))], 8),
            ("one is silent", 4, vec![(2, Some(report(2, 10))), (2, None)], 4),
            ("one of many is silent", 10, vec![(9, Some(report(9, 1))), (1, None)], 10),
            ("one is silent that has none", 4, vec![(4, Some(report(4, 10))), (0, None)], 4),
            ("one is silent, the other busy", 4, vec![(2, Some(report(2, 2000))), (2, None)], 8),
        ];
        for (what, current, clusters, want) in rows {
            assert_eq!(wish(&spec, current, &clusters).unwrap().replicas, want, "{what}");
        }
        let said = wish(&spec, 4, &[(4, Some(report(4, 900)))]).unwrap();
        assert_eq!(said.title, "cpu resource utilization (percentage of request)");
        assert_eq!(
            said.current,
            [
                json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 90, "averageValue": "900m"}}})
            ]
        );
        let (reason, why) = wish(&spec, 4, &[(4, None)]).unwrap_err();
        assert_eq!(reason, "FailedGetResourceMetric");
        assert!(
            why.starts_with("invalid metrics (1 invalid out of 1), first error is: did not receive metrics"),
            "{why}"
        );
    }

    /// What clusters report of a template that has just been scaled is from before that.
    #[test]
    fn a_change_that_has_not_arrived_counts_once() {
        let spec = spec(json!([cpu(50)]));
        let heard = report(4, 1000);
        let eight = given(8);
        let clusters = [of(&eight, Some(&heard))];
        let wish = |settling| {
            let scaled = Scaled { current: 8, settling, tolerance: spec.tolerance(0.1) };
            propose(&spec, scaled, &clusters).unwrap().replicas
        };
        assert_eq!((wish(Some(1.0)), wish(None)), (8, 16));
        let heard = report(8, 250);
        let four = given(4);
        let clusters = [of(&four, Some(&heard))];
        let wish = |settling| {
            let scaled = Scaled { current: 4, settling, tolerance: spec.tolerance(0.1) };
            propose(&spec, scaled, &clusters).unwrap().replicas
        };
        assert_eq!(
            (wish(Some(1.0)), wish(None)),
            (4, 4),
            "what runs beyond what was given is not taken away twice"
        );
    }

    /// What one of ten Pods may say moves the other nine little.
    #[test]
    fn one_cluster_does_not_outweigh_the_others() {
        let spec = spec(json!([cpu(50)]));
        let ask = |clusters: &[(i64, Option<Report>)]| wish(&spec, 10, clusters).unwrap().replicas;
        let others = |each: i64| (9, Some(report(9, each)));
        let forged = |pods: i64, usage: i64, requests: i64, spec_replicas: i64| {
            let mut report = report(pods, 0);
            report.spec_replicas = spec_replicas;
            report.metrics[0].sums.as_mut().unwrap().ready = Pods { pods, usage, requests };
            (1, Some(report))
        };
        // No more Pods than two are counted: see Report::within.
        let rows = [
            ("as it is", forged(1, 500, 1000, 1), 10..=10),
            ("use beyond everything", forged(1, 1 << 60, 1000, 1), 13..=13),
            ("use and requests beyond everything", forged(1, 1 << 60, 1 << 60, 1), 11..=11),
            ("no use", forged(1, 0, 1000, 1), 10..=10),
            ("no use of requests that nobody makes", forged(1, 0, 40_000, 1), 10..=10),
            ("requests of nothing", forged(1, 1 << 60, 0, 1), 10..=10),
            ("requests of next to nothing", forged(1, 1 << 60, 1, 1), 13..=13),
            ("more replicas than it was given", forged(2, 1000, 2000, 2), 10..=10),
            ("no replicas", forged(0, 0, 0, 0), 10..=10),
        ];
        for (what, forged, want) in rows {
            let replicas = ask(&[others(500), forged]);
            assert!(want.contains(&replicas), "{what}: {replicas}");
        }
        // Of a template that says nothing each Pod has one voice, whatever its cluster says that it asks for.
        let unknown = Given { requests: std::sync::Arc::default(), ..given(1) };
        let (nine, heard) = (Given { replicas: 9, ..unknown.clone() }, report(9, 500));
        for (usage, requests, want) in [(500, 1000, 10..=10), (0, 1 << 60, 9..=9), (1 << 60, 1, 13..=13)] {
            let forged = forged(1, usage, requests, 1).1.unwrap();
            let clusters = [of(&nine, Some(&heard)), of(&unknown, Some(&forged))];
            let scaled = Scaled { current: 10, settling: None, tolerance: spec.tolerance(0.01) };
            let replicas = propose(&spec, scaled, &clusters).unwrap().replicas;
            assert!(want.contains(&replicas), "{usage} of {requests}: {replicas}");
        }
        let said = wish(&spec, 10, &[others(500), forged(1, 5000, 1000, 1)]).unwrap().current;
        assert_eq!(said[0]["resource"]["current"]["averageUtilization"], 95, "people read what was measured");
    }

    /// One that has all replicas outweighs nobody: what comes of it is Karmada's.
    #[test]
    fn a_cluster_that_is_alone_counts_with_all_that_it_uses() {
        let spec = spec(json!([cpu(60)]));
        let ask = |clusters: &[(i64, Option<Report>)]| wish(&spec, 1, clusters).unwrap().replicas;
        let (six_times, idle) = (Some(report(1, 6000)), Some(report(0, 0)));
        let rows = [
            ("one", vec![(1, six_times.clone())], 10),
            ("the others have none", vec![(1, six_times.clone()), (0, idle), (0, None)], 10),
            ("another has some", vec![(1, six_times), (1, Some(report(1, 600)))], 3),
            // Pods that it was not given are no reason to believe it more.
            ("one that has none says so", vec![(1, Some(report(1, 600))), (0, Some(report(1, 1 << 40)))], 5),
        ];
        for (what, clusters, want) in rows {
            assert_eq!(ask(&clusters), want, "{what}");
        }
    }

    /// One without a metrics-server is for that metric as one that is silent.
    #[test]
    fn a_cluster_that_cannot_measure_holds_nobody_back() {
        let queue = json!({"type": "Object", "object": {"describedObject": {"kind": "Queue"}, "metric": {"name": "length"},
            "target": {"type": "AverageValue", "averageValue": "10"}}});
        let spec = spec(json!([cpu(50), queue]));
        let with = |first: Sample, second: Sample| {
            let report = report(4, 0);
            (4, Some(Report { metrics: vec![first, second], ..report }))
        };
        let used = |each: i64| report(4, each).metrics.remove(0);
        let length = |value: i64| Sample { value: Some(value * 1000), ready: Some(4), ..Sample::default() };
        let cannot = || Sample::failed("has it a metrics-server?");
        let ask = |one: (Sample, Sample), two: (Sample, Sample)| {
            wish(&spec, 8, &[with(one.0, one.1), with(two.0, two.1)])
        };
        let up = ask((used(2000), length(0)), (cannot(), length(0))).unwrap();
        assert_eq!((up.replicas, up.failure), (16, None));
        let why = "cpu resource utilization (percentage of request): has it a metrics-server?";
        assert_eq!(up.unmeasured, [(1, why.to_owned())]);
        let down = ask((used(10), length(0)), (cannot(), length(0))).unwrap();
        assert_eq!((down.replicas, down.failure), (8, None));
        let shared = ask((used(500), length(160)), (used(500), cannot())).unwrap();
        assert_eq!((shared.replicas, shared.unmeasured.len()), (16, 1));
        let half = ask((cannot(), length(160)), (cannot(), length(0))).unwrap();
        let failed = ("FailedGetResourceMetric", "has it a metrics-server?".to_owned());
        assert_eq!((half.replicas, half.failure), (16, Some(failed)));
        let none = ask((cannot(), cannot()), (cannot(), cannot())).unwrap_err();
        assert!(none.1.ends_with("first error is: has it a metrics-server?"), "{none:?}");
    }

    #[test]
    fn each_direction_has_its_tolerance() {
        let with = |behavior: Value| -> Spec {
            serde_json::from_value(json!({"maxReplicas": 50, "metrics": [cpu(50)], "behavior": behavior}))
                .unwrap()
        };
        let tight = with(json!({"scaleUp": {"tolerance": "0.01"}, "scaleDown": {"tolerance": "300m"}}));
        assert_eq!(tight.tolerance(0.1), Tolerance { up: 0.01, down: 0.3 });
        assert_eq!(with(json!({})).tolerance(0.1), Tolerance { up: 0.1, down: 0.1 });
        let ask = |spec: &Spec, each: i64| wish(spec, 10, &[(10, Some(report(10, each)))]).unwrap().replicas;
        assert_eq!((ask(&tight, 530), ask(&with(json!({})), 530)), (11, 10));
        assert_eq!((ask(&tight, 360), ask(&with(json!({})), 360)), (10, 8));
        let wrong = with(
            json!({"scaleUp": {"tolerance": "-1", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}]}}),
        );
        assert!(validate(&wrong)[0].to_string().contains("spec.behavior.scaleUp.tolerance"));
    }

    #[test]
    fn the_highest_counts_and_one_that_fails_holds() {
        let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "500m"}}});
        let queue = json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}});
        let spec = spec(json!([cpu(50), memory, queue]));
        let with = |memory: i64, queue: Sample| {
            let mut report = report(4, 100);
            let mut second = report.metrics[0].clone();
            second.sums.as_mut().unwrap().ready.usage = memory;
            report.metrics.extend([second, queue]);
            vec![(4, Some(report))]
        };
        let value = |value: i64| Sample { value: Some(value * 1000), ready: Some(4), ..Sample::default() };
        let ask = |clusters: Vec<(i64, Option<Report>)>| wish(&spec, 4, &clusters).unwrap();
        assert_eq!(ask(with(400, value(30))).replicas, 1);
        let said = ask(with(4000, value(30)));
        assert_eq!((said.replicas, said.title.as_str()), (8, "memory resource metric"));
        let said = ask(with(400, value(300)));
        assert_eq!(
            (said.replicas, said.title.as_str(), said.current.len()),
            (10, "external metric queue", 3)
        );
        let broken = Sample { error: "no such metric".into(), ..Sample::default() };
        let said = ask(with(400, broken.clone()));
        assert_eq!(
            (said.replicas, said.failure),
            (4, Some(("FailedGetExternalMetric", "no such metric".to_owned())))
        );
        assert_eq!(ask(with(4000, broken)).replicas, 8);
    }

    #[test]
    fn defaults_are_karmadas() {
        let mut hpa = json!({"spec": {"maxReplicas": 3, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}}});
        default(&mut hpa);
        assert_eq!(hpa["spec"]["minReplicas"], 1);
        assert_eq!(hpa["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        let up = &hpa["spec"]["behavior"]["scaleUp"];
        assert_eq!(
            (&up["stabilizationWindowSeconds"], up["policies"].as_array().unwrap().len()),
            (&json!(0), 2)
        );
        let down = &hpa["spec"]["behavior"]["scaleDown"];
        assert_eq!(
            (&down["stabilizationWindowSeconds"], &down["policies"][0]["value"]),
            (&json!(60), &json!(100))
        );
        let mut bare = json!({"spec": {"maxReplicas": 3}});
        default(&mut bare);
        assert_eq!(bare["spec"].get("behavior"), None);
        let read: Spec = serde_json::from_value(hpa["spec"].clone()).unwrap();
        assert_eq!(validate(&read), []);
    }

    #[test]
    fn what_cannot_be_scaled_by_is_refused() {
        let rows = [
            (json!({"minReplicas": 0, "maxReplicas": 3}), "spec.minReplicas: Invalid value: 0"),
            (json!({"maxReplicas": 0}), "spec.maxReplicas: Invalid value: 0"),
            (json!({"minReplicas": 4, "maxReplicas": 3}), "must be greater than or equal to `minReplicas`"),
            (json!({"maxReplicas": 3, "metrics": [{"type": "Resource"}]}), "exactly one metric source"),
            (
                json!({"maxReplicas": 3, "metrics": [{"type": "Moon", "pods": {}}]}),
                "spec.metrics[0].type: Invalid value: \"Moon\"",
            ),
            (
                json!({"maxReplicas": 3, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 0}}}]}),
                "not positive",
            ),
            (
                json!({"maxReplicas": 3, "behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601, "policies": [{"type": "Pods", "value": 0, "periodSeconds": 1801}]}}}),
                "must be between 1 and 1800",
            ),
            (
                json!({"maxReplicas": 3, "behavior": {"scaleDown": {"policies": []}}}),
                "must specify at least one Policy",
            ),
        ];
        for (value, want) in rows {
            let errors = validate(&serde_json::from_value(value).unwrap());
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert!(text.contains(want), "{text}\n wanted {want}");
        }
    }
}
