//! What members measure, written anew in the form that its API gives it.
//!
//! Clients read a list as a whole: one time or amount of a member that is none would keep them from what all others have
//! measured. So each is read here, and a member whose measurements cannot be read counts as not heard.

use std::collections::BTreeMap;

use karmada_meta::{duration, quantity::Quantity, time::Time};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{json, value::RawValue};

use super::{asked::Place, merge};

/// A time that RFC 3339 can write: its years have four digits, and no sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub(super) struct Stamp(Time);

impl TryFrom<String> for Stamp {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let time: Time = text.parse().map_err(|error| format!("{error}"))?;
        match time.to_string().starts_with('-') {
            true => Err(format!("{text:?} is before the year 0")),
            false => Ok(Self(time)),
        }
    }
}

impl Stamp {
    /// As it is written.
    pub(super) fn text(self) -> String {
        self.0.to_string()
    }
}

/// A length of time.
#[derive(Deserialize, Serialize)]
#[serde(try_from = "String")]
struct Window(String);

impl TryFrom<String> for Window {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        duration::parse(&text).map(|length| Self(duration::format(length)))
    }
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Container {
    name: String,
    usage: Option<BTreeMap<String, Quantity>>,
}

/// PodMetrics or NodeMetrics.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Usage {
    metadata: Meta,
    timestamp: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Window>,
    #[serde(skip_serializing_if = "Option::is_none")]
    containers: Option<Vec<Container>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<BTreeMap<String, Quantity>>,
}

/// ExternalMetricValue.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    #[serde(default)]
    metric_name: String,
    #[serde(default)]
    metric_labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    timestamp: Option<Stamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<i64>,
    value: Quantity,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(default)]
    kind: String,
    #[serde(borrow, default)]
    items: Option<&'a RawValue>,
}

/// The kind of what is measured, and its version.
#[derive(Clone, Debug)]
pub(super) struct Decoded {
    api_version: String,
    kind: &'static str,
}

impl Decoded {
    /// What comes by this place.
    pub(super) fn at(place: &Place) -> Self {
        let kind = match (place.group.as_str(), place.resource.as_str()) {
            ("external.metrics.k8s.io", _) => "ExternalMetricValue",
            (_, "nodes") => "NodeMetrics",
            _ => "PodMetrics",
        };
        Self { api_version: format!("{}/{}", place.group, place.version), kind }
    }

    /// A list, written anew.
    ///
    /// # Errors
    /// Why it is none, or what of it cannot be read.
    pub(super) fn list(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let list: List<'_> =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no list: {error}"))?;
        let kind = format!("{}List", self.kind);
        if list.kind != kind {
            return Err(format!("it is no {kind}, but of kind {:?}", list.kind));
        }
        let head = json!({"kind": kind, "apiVersion": self.api_version, "metadata": {}}).to_string();
        let mut out = head.into_bytes();
        out.pop();
        out.extend_from_slice(b",\"items\":[");
        let mut is_first = true;
        let mut add = |part: &RawValue| {
            if !std::mem::replace(&mut is_first, false) {
                out.push(b',');
            }
            match self.kind {
                "ExternalMetricValue" => again::<Series>(part.get(), &mut out),
                _ => again::<Usage>(part.get(), &mut out),
            }
        };
        list.items.map_or(Ok(()), |items| merge::each(items, &mut add))?;
        out.extend_from_slice(b"]}");
        Ok(out)
    }

    /// An object, written anew.
    ///
    /// # Errors
    /// What of it cannot be read.
    pub(super) fn object(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let usage: Usage = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
        let mut object = serde_json::to_value(usage).map_err(|error| error.to_string())?;
        (object["kind"], object["apiVersion"]) = (json!(self.kind), json!(self.api_version));
        Ok(object.to_string().into_bytes())
    }
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("what it measures cannot be read: {error}")
}

fn again<T: DeserializeOwned + Serialize>(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let read: T = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    serde_json::to_writer(out, &read).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{super::asked, *};

    #[test]
    fn what_is_measured_is_written_as_clients_read_it() {
        let of = |path: &str| Decoded::at(&asked::place(path).unwrap());
        let (pods, nodes, queue) = (
            of("/apis/metrics.k8s.io/v1beta1/namespaces/n/pods"),
            of("/apis/metrics.k8s.io/v1beta1/nodes"),
            of("/apis/external.metrics.k8s.io/v1beta1/namespaces/n/queue"),
        );
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}}, "timestamp": "2026-11-25T10:00:00Z",
            "window": "15.5s", "containers": [{"name": "c", "usage": {"cpu": "1m", "memory": "3Ki"}}]});
        let node = json!({"metadata": {"name": "n1"}, "timestamp": "2026-11-25T10:00:00Z", "window": "1m0s",
            "usage": {"cpu": "2"}});
        let value = json!({"metricName": "queue", "metricLabels": {"a": "b"}, "timestamp": null, "window": 5, "value": "3"});
        for (what, good, bad) in [
            (&pods, &pod, vec![("timestamp", json!("x")), ("window", json!("x")), ("metadata", json!(5))]),
            (&pods, &pod, vec![("containers", json!([{"name": "c", "usage": {"cpu": "much"}}]))]),
            (&pods, &pod, vec![("timestamp", json!("-000001-01-01T00:00:00Z"))]),
            (&nodes, &node, vec![("usage", json!({"cpu": {}})), ("timestamp", json!(5))]),
            (&queue, &value, vec![("value", json!("x")), ("metricLabels", json!({"a": 5}))]),
        ] {
            let list = |item: &Value| {
                let list = json!({"kind": format!("{}List", what.kind), "items": [good, item]});
                what.list(list.to_string().as_bytes())
            };
            let written: Value = serde_json::from_slice(&list(good).unwrap()).unwrap();
            assert_eq!(written["items"], json!([good, good]));
            assert_eq!(written["apiVersion"], what.api_version);
            for (field, value) in bad {
                let mut item = good.clone();
                item[field] = value;
                assert!(list(&item).is_err(), "{item}");
            }
            assert!(what.list(br#"{"kind": "Table"}"#).is_err_and(|error| error.contains("it is no ")));
        }
        let object: Value =
            serde_json::from_slice(&pods.object(pod.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!((&object["kind"], &object["window"]), (&json!("PodMetrics"), &json!("15.5s")));
        assert!(pods.object(br#"{"timestamp": "x"}"#).is_err());
    }
}
