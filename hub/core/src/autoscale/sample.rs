//! What a member's Pods are for a metric: ready, not ready yet, or of unknown use. Kubernetes' classes, summed up.

use std::{collections::BTreeMap, time::Duration};

use karmada_meta::{object, quantity::Quantity, time::Time};
use serde_json::Value;

use super::metrics::{Pods, Sums};

/// For how long a Pod's use of cpu counts for little after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`
    pub initialization: Duration,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`
    pub readiness: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { initialization: Duration::from_secs(300), readiness: Duration::from_secs(30) }
    }
}

/// What somebody has measured of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// In thousandths, by container; of what is not measured by container, under no name.
    pub usage: BTreeMap<String, i64>,
    /// When.
    pub at: Time,
    /// Over how long.
    pub window: Duration,
}

/// What a workload's Pods take of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The resource; nothing for another metric.
    pub resource: Option<&'a str>,
    /// Of one container alone.
    pub container: Option<&'a str>,
    /// Whether what Pods ask for counts.
    pub requests: bool,
}

/// What PodMetrics say of a resource, by Pod.
pub fn measured(list: &Value, resource: &str) -> BTreeMap<String, Measured> {
    let read = |pod: &Value| {
        let containers = pod["containers"].as_array()?;
        let usage = |container: &Value| {
            let name = container["name"].as_str()?.to_owned();
            Some((name, container["usage"][resource].as_str()?.parse::<Quantity>().ok()?.milli()))
        };
        // One that lacks a container says nothing.
        let usage = containers.iter().map(usage).collect::<Option<BTreeMap<_, _>>>()?;
        let window = pod["window"].as_str().and_then(|text| karmada_meta::duration::parse(text).ok());
        let measured = Measured {
            usage,
            at: pod["timestamp"].as_str()?.parse().ok()?,
            window: window.unwrap_or_default(),
        };
        Some((object::name(pod).to_owned(), measured))
    };
    list["items"].as_array().into_iter().flatten().filter_map(read).collect()
}

/// What custom metrics say of Pods, by Pod.
pub fn values(list: &Value) -> BTreeMap<String, Measured> {
    let read = |item: &Value| {
        let value = item["value"].as_str()?.parse::<Quantity>().ok()?.milli();
        let at = item["timestamp"].as_str()?.parse().ok()?;
        let window = Duration::from_secs(item["windowSeconds"].as_u64().unwrap_or(60));
        let measured = Measured { usage: BTreeMap::from([(String::new(), value)]), at, window };
        Some((item["describedObject"]["name"].as_str()?.to_owned(), measured))
    };
    list["items"].as_array().into_iter().flatten().filter_map(read).collect()
}

/// Sums up Pods.
///
/// # Errors
/// When a container asks for nothing, and that is what its use is held against.
pub fn sums(
    pods: &[Value],
    measured: &BTreeMap<String, Measured>,
    asked: Asked<'_>,
    settings: &Settings,
    now: Time,
) -> Result<Sums, String> {
    let mut sums = Sums::default();
    for pod in pods {
        let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        if object::deletion_timestamp(pod).is_some() || phase == "Failed" || phase == "Succeeded" {
            continue;
        }
        let requests = match asked.resource.filter(|_| asked.requests) {
            Some(resource) => requests(pod, resource, asked.container)?,
            None => 0,
        };
        let known = measured.get(object::name(pod));
        let usage = known.and_then(|known| match asked.container {
            Some(container) => known.usage.get(container).copied(),
            None => Some(known.usage.values().sum()),
        });
        let class = match (known, usage) {
            _ if phase == "Pending" => &mut sums.unready,
            (Some(known), Some(_)) if asked.resource != Some("cpu") || counts(pod, known, settings, now) => {
                &mut sums.ready
            }
            (Some(_), Some(_)) => &mut sums.unready,
            _ => &mut sums.missing,
        };
        *class += Pods { pods: 1, usage: 0, requests };
        if let (Some(usage), true) = (usage, phase != "Pending") {
            class.usage = class.usage.saturating_add(usage);
        }
    }
    // What those use says nothing yet.
    (sums.unready.usage, sums.missing.usage) = (0, 0);
    Ok(sums)
}

/// Pods that are ready to take requests.
pub fn ready(pods: &[Value]) -> i64 {
    let is = |pod: &&Value| {
        object::deletion_timestamp(pod).is_none()
            && pod.pointer("/status/phase").and_then(Value::as_str) == Some("Running")
            && condition(pod).is_some_and(|(ready, _)| ready)
    };
    i64::try_from(pods.iter().filter(is).count()).unwrap_or(i64::MAX)
}

/// Whether what a Pod uses of cpu tells what it will use.
fn counts(pod: &Value, known: &Measured, settings: &Settings, now: Time) -> bool {
    let started =
        pod.pointer("/status/startTime").and_then(Value::as_str).and_then(|text| text.parse::<Time>().ok());
    let (Some(started), Some((ready, since))) = (started, condition(pod)) else { return false };
    let since = since.unwrap_or(started);
    let after = |time: Time, length: Duration| std::time::SystemTime::from(time.timestamp()) + length;
    let wall = std::time::SystemTime::from(now.timestamp());
    if wall < after(started, settings.initialization) {
        // Its use of the start is not over in what was measured.
        return ready && std::time::SystemTime::from(known.at.timestamp()) >= after(since, known.window);
    }
    ready || std::time::SystemTime::from(since.timestamp()) >= after(started, settings.readiness)
}

fn condition(pod: &Value) -> Option<(bool, Option<Time>)> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
    let since = ready["lastTransitionTime"].as_str().and_then(|text| text.parse().ok());
    Some((ready["status"] == "True", since))
}

fn requests(pod: &Value, resource: &str, only: Option<&str>) -> Result<i64, String> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let mut sum = 0_i64;
    for container in containers {
        let name = container["name"].as_str().unwrap_or_default();
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let request = container["resources"]["requests"][resource].as_str();
        let Some(Ok(request)) = request.map(str::parse::<Quantity>) else {
            return Err(format!(
                "missing request for {resource} in container {name} of Pod {}",
                object::name(pod)
            ));
        };
        sum = sum.saturating_add(request.milli());
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, phase: &str, ready: Option<(&str, &str)>, started: &str) -> Value {
        let conditions = ready
            .map(|(status, since)| json!([{"type": "Ready", "status": status, "lastTransitionTime": since}]));
        json!({"metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}}]},
            "status": {"phase": phase, "startTime": started, "conditions": conditions}})
    }

    fn metrics(names: &[&str], at: &str) -> Value {
        let item = |name: &&str| {
            json!({"metadata": {"name": name}, "timestamp": at, "window": "30s",
            "containers": [{"name": "c", "usage": {"cpu": "250000000n", "memory": "32Mi"}}]})
        };
        json!({"items": names.iter().map(item).collect::<Vec<_>>()})
    }

    const CPU: Asked<'static> = Asked { resource: Some("cpu"), container: None, requests: true };

    #[test]
    fn pods_are_classed_as_kubernetes_does() {
        let long = "2026-11-23T08:00:00Z";
        let now: Time = "2026-11-23T10:00:00Z".parse().unwrap();
        let mut going = pod("going", "Running", Some(("True", long)), long);
        going["metadata"]["deletionTimestamp"] = json!(long);
        // name, its Pod, its class
        let rows = [
            (pod("ok", "Running", Some(("True", long)), long), "ready"),
            (going, ""),
            (pod("failed", "Failed", None, long), ""),
            (pod("pending", "Pending", None, long), "unready"),
            (pod("unknown", "Running", Some(("True", long)), long), "missing"),
            (pod("odd", "Running", None, long), "unready"),
            // In its first five minutes: not ready, or measured over its start.
            (
                pod("young", "Running", Some(("False", "2026-11-23T09:58:00Z")), "2026-11-23T09:58:00Z"),
                "unready",
            ),
            (pod("warm", "Running", Some(("True", "2026-11-23T09:58:00Z")), "2026-11-23T09:57:00Z"), "ready"),
            (
                pod("fresh", "Running", Some(("True", "2026-11-23T09:59:40Z")), "2026-11-23T09:59:00Z"),
                "unready",
            ),
            // Later: it was never ready, or is not any more.
            (pod("never", "Running", Some(("False", "2026-11-23T08:00:10Z")), long), "unready"),
            (pod("lost", "Running", Some(("False", "2026-11-23T09:00:00Z")), long), "ready"),
        ];
        for (pod, want) in rows {
            let name = object::name(&pod).to_owned();
            let known = if name == "unknown" { json!({}) } else { metrics(&[&name], "2026-11-23T10:00:00Z") };
            let sums = sums(&[pod], &measured(&known, "cpu"), CPU, &Settings::default(), now).unwrap();
            let one = [("ready", sums.ready), ("unready", sums.unready), ("missing", sums.missing)];
            let class = one.iter().find(|(_, pods)| pods.pods == 1).map_or("", |(class, _)| class);
            assert_eq!(class, want, "{name}");
        }
    }

    #[test]
    fn sums_are_of_what_counts() {
        let long = "2026-11-23T08:00:00Z";
        let now: Time = "2026-11-23T10:00:00Z".parse().unwrap();
        let pods = ["a", "b", "c"].map(|name| pod(name, "Running", Some(("True", long)), long));
        let known = measured(&metrics(&["a", "b"], "2026-11-23T10:00:00Z"), "cpu");
        let found = sums(&pods, &known, CPU, &Settings::default(), now).unwrap();
        assert_eq!(found.ready, Pods { pods: 2, usage: 500, requests: 1000 });
        assert_eq!(found.missing, Pods { pods: 1, usage: 0, requests: 500 });
        let other = Asked { container: Some("sidecar"), ..CPU };
        let found = sums(&pods, &known, other, &Settings::default(), now).unwrap();
        assert_eq!((found.ready.pods, found.missing.pods), (0, 3));
        let disk = Asked { resource: Some("disk"), ..CPU };
        let why = sums(&pods, &known, disk, &Settings::default(), now).unwrap_err();
        assert_eq!(why, "missing request for disk in container c of Pod a");
        assert_eq!(ready(&pods), 3);
        let custom =
            json!({"items": [{"describedObject": {"name": "a"}, "timestamp": long, "value": "1500m"}]});
        let plain = Asked { resource: None, container: None, requests: false };
        let found = sums(&pods, &values(&custom), plain, &Settings::default(), now).unwrap();
        assert_eq!((found.ready, found.missing.pods), (Pods { pods: 1, usage: 1500, requests: 0 }, 2));
    }
}
