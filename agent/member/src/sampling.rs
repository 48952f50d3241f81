//! What a workload's Pods use, for whoever scales it above: its scale, its Pods, and what the member's metrics APIs say, summed up
//! ([`karmada_core::autoscale`]).
//!
//! ```text
//!   Question ─▶ scale ─▶ Pods of its selector ─┐
//!                        metrics.k8s.io ───────┼─▶ sums by class ─▶ Report
//!                        custom, external ─────┘
//! ```
//!
//! It only reads, and each metric that cannot be had says why.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_client::{
    Error, Resource, Rest,
    rest::{path_segment, query_value},
};
use karmada_core::autoscale::{
    hpa::{Metric, Shared},
    metrics::Target,
    question::{Question, selector_text},
    report::{Report, Sample},
    sample::{self, Asked, Measured},
};
use karmada_env::Env;
use karmada_meta::{gvk::GroupVersionKind, quantity::Quantity, time::Time};
use serde_json::Value;
use tokio::time::timeout;

use crate::{discovery::Discovery, scope::Scope, works::desired::ObjectId};

/// A member that does not answer in this time has not answered.
const ANSWERS: Duration = Duration::from_secs(20);
/// Of more Pods the list comes in pages; one of fewer the server has at hand.
const PAGE: usize = 500;
/// No workload has more Pods than this.
const PODS: usize = 20_000;

/// Samples workloads of a member.
#[derive(Clone, Debug)]
pub struct Sampler {
    pub(crate) rest: Rest,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) scope: Scope,
    pub(crate) env: Env,
}

/// A workload as it stands.
struct Workload<'a> {
    question: &'a Question,
    selector: String,
    pods: Vec<Value>,
    running: i64,
}

impl Sampler {
    /// What is to be told of a workload now. The Work's generation is the caller's to say.
    pub async fn sample(&self, question: &Question) -> Report {
        let mut report = match timeout(ANSWERS, self.look(question)).await {
            Ok(Ok(report)) => report,
            Ok(Err(why)) => Report::failed(&why),
            Err(_) => Report::failed("the member does not answer in time"),
        };
        report.at = Time::now(&self.env).to_string();
        report
    }

    async fn look(&self, question: &Question) -> Result<Report, String> {
        let Question { namespace, target, .. } = question;
        let what = format!("{} {namespace}/{}", target.kind, target.name);
        let kind = GroupVersionKind::from_api_version(&target.api_version, target.kind.as_str())
            .ok_or_else(|| format!("{:?} is no apiVersion", target.api_version))?;
        let id = ObjectId {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            namespace: namespace.clone(),
            name: target.name.clone(),
        };
        if !self.scope.reaches(&id) {
            return Err(format!("the agent does not work in namespace {namespace}"));
        }
        let resource = self.resource(&kind).await?;
        let scale = self.rest.get(&resource.subresource(Some(namespace), &target.name, "scale")).await;
        let scale = scale.map_err(|error| match error.is_absence_of(&target.name) {
            true => format!("{what} is not there"),
            false => format!("the scale of {what}: {error}"),
        })?;
        let count = |path: &str| scale.pointer(path).and_then(Value::as_i64).unwrap_or_default();
        let (spec_replicas, status_replicas) = (count("/spec/replicas"), count("/status/replicas"));
        let selector =
            scale.pointer("/status/selector").and_then(Value::as_str).unwrap_or_default().to_owned();
        if selector.is_empty() {
            return Err(format!("the scale of {what} is missing a selector"));
        }
        let by_pods = |metric: &Result<Metric, String>| {
            !matches!(
                metric,
                Ok(Metric::External { target: Shared::Average(_), .. }
                    | Metric::Object { target: Shared::Average(_), .. })
            )
        };
        let pods = match question.metrics.iter().any(by_pods) {
            true => self.pods(namespace, &selector, spec_replicas).await.map_err(|e| format!("Pods: {e}"))?,
            false => Vec::new(),
        };
        let workload = Workload { question, selector, pods, running: status_replicas };
        // One list for all resources.
        let mut measured: Option<Result<Value, String>> = None;
        let mut metrics = Vec::with_capacity(question.metrics.len());
        for metric in &question.metrics {
            let sampled = match metric {
                Err(why) => Err(why.clone()),
                Ok(metric) => self.metric(&workload, metric, &mut measured).await,
            };
            metrics.push(sampled.unwrap_or_else(|why| Sample::failed(&why)));
        }
        Ok(Report { spec_replicas, status_replicas, metrics, ..Report::default() })
    }

    /// Where objects of a kind are, in the version that is asked for or in another.
    async fn resource(&self, kind: &GroupVersionKind) -> Result<Resource, String> {
        let found = self.discovery.resource(&kind.group, &kind.version, &kind.kind).await;
        if let Some(found) = found.map_err(|error| error.to_string())? {
            return Ok(found);
        }
        let known = self.discovery.known();
        let other = known.and_then(|apis| apis.preferred(&kind.group, &kind.kind).cloned());
        other.ok_or_else(|| format!("the member has no kind {} in {}", kind.kind, kind.api_version()))
    }

    async fn pods(&self, namespace: &str, selector: &str, expected: i64) -> Result<Vec<Value>, Error> {
        let pods = Resource::new("", "v1", "pods", "Pod", true).collection(Some(namespace));
        let path = format!("{pods}?labelSelector={}", query_value(selector));
        if usize::try_from(expected).unwrap_or_default() <= PAGE {
            return self.rest.get(&format!("{path}&resourceVersion=0")).await.map(items);
        }
        let (mut pages, mut all) = (self.rest.pages(path, PAGE), Vec::new());
        while all.len() < PODS
            && let Some(page) = pages.next::<Value>().await?
        {
            all.extend(page.items.iter().map(essence));
        }
        Ok(all)
    }

    async fn metric(
        &self,
        workload: &Workload<'_>,
        metric: &Metric,
        measured: &mut Option<Result<Value, String>>,
    ) -> Result<Sample, String> {
        match metric {
            Metric::Resource { name, container, target } => {
                if measured.is_none() {
                    *measured = Some(self.measured(workload).await);
                }
                let list =
                    measured.as_ref().map_or(Ok(&Value::Null), Result::as_ref).map_err(Clone::clone)?;
                let requests = matches!(target, Target::Utilization(_));
                let asked =
                    Asked { resource: Some(name.as_str()), container: container.as_deref(), requests };
                self.sums(workload, &sample::measured(list, name), asked)
            }
            Metric::Pods { name, selector, .. } => {
                let (namespace, metric) = (&workload.question.namespace, path_segment(name));
                let path = format!("namespaces/{}/pods/*/{metric}", path_segment(namespace));
                let mut query = format!("?labelSelector={}", query_value(&workload.selector));
                if let Some(selector) = selector {
                    query.push_str(&format!(
                        "&metricLabelSelector={}",
                        query_value(&selector_text(selector)?)
                    ));
                }
                let list = self.custom(&format!("{path}{query}")).await?;
                let asked = Asked { resource: None, container: None, requests: false };
                self.sums(workload, &sample::values(&list), asked)
            }
            Metric::Object { of, name, selector, target } => {
                let path = self.object(&workload.question.namespace, of, name).await?;
                let query = match selector {
                    Some(selector) => {
                        format!("?metricLabelSelector={}", query_value(&selector_text(selector)?))
                    }
                    None => String::new(),
                };
                let list = self.custom(&format!("{path}{query}")).await?;
                let value = items(list).first().and_then(amount);
                let value = value.ok_or_else(|| format!("there is no metric {name}"))?;
                Ok(shared(workload, target, value))
            }
            Metric::External { name, selector, target } => {
                let namespace = path_segment(&workload.question.namespace);
                let mut path = format!(
                    "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{}",
                    path_segment(name)
                );
                if let Some(selector) = selector {
                    path.push_str(&format!("?labelSelector={}", query_value(&selector_text(selector)?)));
                }
                let list = self.rest.get(&path).await.map_err(|error| format!("metric {name}: {error}"))?;
                let series = items(list);
                if series.is_empty() {
                    return Err(format!("there is no metric {name}"));
                }
                let values = series.iter().map(amount).collect::<Option<Vec<i64>>>();
                let values =
                    values.ok_or_else(|| format!("metric {name} has a value that is no quantity"))?;
                Ok(shared(
                    workload,
                    target,
                    values.iter().fold(0, |sum, value| i64::saturating_add(sum, *value)),
                ))
            }
        }
    }

    fn sums(
        &self,
        workload: &Workload<'_>,
        measured: &BTreeMap<String, Measured>,
        asked: Asked<'_>,
    ) -> Result<Sample, String> {
        let settings = &workload.question.sampling.settings;
        let sums = sample::sums(&workload.pods, measured, asked, settings, Time::now(&self.env))?;
        Ok(Sample { sums: Some(sums), ..Sample::default() })
    }

    /// What the member's Pods use of resources.
    async fn measured(&self, workload: &Workload<'_>) -> Result<Value, String> {
        let pods = Resource::new("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", true);
        let path = format!(
            "{}?labelSelector={}",
            pods.collection(Some(&workload.question.namespace)),
            query_value(&workload.selector)
        );
        self.rest.get(&path).await.map_err(|error| match error.is_not_found() {
            true => "the member serves no metrics.k8s.io: has it a metrics-server?".to_owned(),
            false => format!("metrics.k8s.io: {error}"),
        })
    }

    /// An answer of custom.metrics.k8s.io, in its newest version.
    async fn custom(&self, path: &str) -> Result<Value, String> {
        let ask = async |version: &str| {
            self.rest.get(&format!("/apis/custom.metrics.k8s.io/{version}/{path}")).await
        };
        let answer = match ask("v1beta2").await {
            Err(error) if error.is_not_found() => ask("v1beta1").await,
            answer => answer,
        };
        answer.map_err(|error| format!("custom.metrics.k8s.io: {error}"))
    }

    /// Where a metric of an object is.
    async fn object(&self, namespace: &str, of: &Value, metric: &str) -> Result<String, String> {
        let text = |field: &str| of[field].as_str().unwrap_or_default();
        let version = if text("apiVersion").is_empty() { "v1" } else { text("apiVersion") };
        let kind = GroupVersionKind::from_api_version(version, text("kind"))
            .ok_or_else(|| format!("{version:?} is no apiVersion"))?;
        let (name, metric) = (path_segment(text("name")), path_segment(metric));
        if kind.group.is_empty() && kind.kind == "Namespace" {
            return Ok(format!("namespaces/{name}/metrics/{metric}"));
        }
        let resource = self.resource(&kind).await?;
        // A Resource is written as its plural and its group.
        Ok(match resource.namespaced {
            true => format!("namespaces/{}/{resource}/{name}/{metric}", path_segment(namespace)),
            false => format!("{resource}/{name}/{metric}"),
        })
    }
}

/// One value for all Pods, and how many that is divided by.
fn shared(workload: &Workload<'_>, target: &Shared, value: i64) -> Sample {
    let ready = match target {
        Shared::Value(_) => sample::ready(&workload.pods),
        Shared::Average(_) => workload.running,
    };
    Sample { value: Some(value), ready: Some(ready), ..Sample::default() }
}

fn items(list: Value) -> Vec<Value> {
    match list {
        Value::Object(mut list) => match list.shift_remove("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// What a metric says, in thousandths.
fn amount(item: &Value) -> Option<i64> {
    item["value"].as_str()?.parse::<Quantity>().ok().map(|value| value.milli())
}

/// What of a Pod is looked at.
fn essence(pod: &Value) -> Value {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let containers: Vec<Value> = containers
        .map(|container| {
            serde_json::json!({
                "name": container["name"],
                "resources": {"requests": container["resources"]["requests"]},
            })
        })
        .collect();
    let status = &pod["status"];
    serde_json::json!({
        "metadata": {
            "name": pod["metadata"]["name"], "deletionTimestamp": pod["metadata"]["deletionTimestamp"],
        },
        "spec": {"containers": containers},
        "status": {
            "phase": status["phase"], "startTime": status["startTime"], "conditions": status["conditions"],
        },
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A member that answers by these paths, which it notes when it is asked.
    fn sampler(answers: Vec<(&'static str, Value)>) -> (Sampler, Arc<parking_lot::Mutex<Vec<String>>>) {
        let asked = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let answers = Arc::new(answers);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (noted, answers) = (Arc::clone(&noted), Arc::clone(&answers));
            async move {
                let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
                noted.lock().push(path.clone());
                let fits =
                    |known: &str| path == known || known.contains("/namespaces/") && path.starts_with(known);
                let found = answers.iter().find(|(known, _)| fits(known));
                let (code, body) = match found {
                    Some((_, body)) => (200, body.clone()),
                    None => (
                        404,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                            "reason": "NotFound", "message": "there is no such thing"}),
                    ),
                };
                let response = Response::builder().status(code).header("content-type", "application/json");
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, Infallible>(response.body(body).unwrap())
            }
        });
        let rest = Rest::new(kube::Client::new(service, "default"));
        let env = Env::system();
        let discovery = Arc::new(Discovery::new(rest.clone(), env.clone()));
        (Sampler { rest, discovery, scope: Scope::Everywhere, env }, asked)
    }

    fn discovered() -> Vec<(&'static str, Value)> {
        let served = |group: &str, version: &str, plural: &str, kind: &str| {
            json!({"metadata": {"name": group}, "versions": [{"version": version, "resources": [
                {"resource": plural, "responseKind": {"group": group, "version": version, "kind": kind},
                 "scope": "Namespaced", "singularResource": "", "verbs": ["get"]}]}]})
        };
        let list = |items: Vec<Value>| json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items});
        vec![
            (
                "/apis/apps/v1/namespaces/demo/deployments/web/scale",
                json!({
                "spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "app=web"}}),
            ),
            ("/apis", list(vec![served("apps", "v1", "deployments", "Deployment")])),
            ("/api", list(vec![served("", "v1", "services", "Service")])),
        ]
    }

    fn question(metrics: &Value) -> Question {
        Question::read(&json!({
            "metadata": {"name": "web", "namespace": "demo"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "metrics": metrics},
        }))
        .unwrap()
    }

    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    }

    #[tokio::test]
    async fn a_workload_is_summed_up_by_all_its_metrics() {
        let used = |name: &str| {
            json!({"metadata": {"name": name}, "timestamp": "2026-11-25T10:00:00Z", "window": "30s",
                "containers": [{"name": "c", "usage": {"cpu": "200m"}}]})
        };
        let series = |value: &str| json!({"value": value, "timestamp": "2026-11-25T10:00:00Z"});
        let hits =
            json!({"describedObject": {"name": "web-1"}, "value": "3", "timestamp": "2026-11-25T10:00:00Z"});
        let mut answers = vec![
            (
                "/api/v1/namespaces/demo/pods?labelSelector=app%3Dweb&resourceVersion=0",
                json!({"items": [pod("web-1"), pod("web-2")]}),
            ),
            (
                "/apis/metrics.k8s.io/v1beta1/namespaces/demo/pods?labelSelector=app%3Dweb",
                json!({"items": [used("web-1")]}),
            ),
            (
                "/apis/custom.metrics.k8s.io/v1beta1/namespaces/demo/pods/*/hits?labelSelector=app%3Dweb&metricLabelSelector=a%3Db",
                json!({"items": [hits]}),
            ),
            (
                "/apis/custom.metrics.k8s.io/v1beta2/namespaces/demo/services/front/rate",
                json!({"items": [series("7500m")]}),
            ),
            (
                "/apis/external.metrics.k8s.io/v1beta1/namespaces/demo/queue?labelSelector=q%3Dx",
                json!({"items": [series("30"), series("12")]}),
            ),
        ];
        answers.extend(discovered());
        let (sampler, asked) = sampler(answers);
        let cpu =
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}});
        let memory =
            json!({"type": "Resource", "resource": {"name": "memory", "target": {"averageUtilization": 50}}});
        let question = question(&json!([
            cpu,
            {"type": "Pods", "pods": {"metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}}, "target": {"averageValue": "1"}}},
            {"type": "Object", "object": {"describedObject": {"apiVersion": "v1", "kind": "Service", "name": "front"},
                "metric": {"name": "rate"}, "target": {"value": "5"}}},
            {"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"q": "x"}}}, "target": {"averageValue": "5"}}},
            memory,
            {"type": "External", "external": {"metric": {"name": "../../secrets"}, "target": {"averageValue": "5"}}},
        ]));
        let report = sampler.sample(&question).await;
        assert_eq!((report.error.as_str(), report.spec_replicas, report.status_replicas), ("", 2, 2));
        let sums = |at: usize| report.metrics[at].sums.unwrap();
        assert_eq!((sums(0).ready.usage, sums(0).missing.pods, sums(0).missing.requests), (200, 1, 500));
        assert_eq!((sums(1).ready.usage, sums(1).missing.pods), (3000, 1));
        assert_eq!((report.metrics[2].value, report.metrics[2].ready), (Some(7500), Some(2)));
        assert_eq!((report.metrics[3].value, report.metrics[3].ready), (Some(42_000), Some(2)));
        assert!(report.metrics[4].error.starts_with("missing request for memory"), "{:?}", report.metrics[4]);
        assert!(!report.metrics[5].error.is_empty());
        let asked = asked.lock();
        let lists =
            asked.iter().filter(|path| path.contains("metrics.k8s.io/v1beta1/namespaces/demo/pods?")).count();
        assert_eq!(lists, 1, "one list for both resources: {asked:?}");
        assert!(asked.iter().any(|path| path.contains("/..%2F..%2Fsecrets")), "{asked:?}");
    }

    #[tokio::test]
    async fn what_cannot_be_sampled_says_why() {
        let cpu =
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}]);
        let roots = discovered().split_off(1);
        let (there, _) = sampler(roots.clone());
        let report = there.sample(&question(&cpu)).await;
        assert!(report.error.contains("Deployment demo/web"), "{}", report.error);
        let mut answers = vec![("/api/v1/namespaces/demo/pods", json!({"items": [pod("web-1")]}))];
        answers.extend(discovered());
        let (there, _) = sampler(answers);
        let report = there.sample(&question(&cpu)).await;
        assert!(report.metrics[0].error.contains("has it a metrics-server?"), "{report:?}");
        let mut narrow = sampler(discovered()).0;
        narrow.scope = Scope::named(["shop".to_owned()]).unwrap();
        let report = narrow.sample(&question(&cpu)).await;
        assert_eq!(report.error, "the agent does not work in namespace demo");
    }
}
