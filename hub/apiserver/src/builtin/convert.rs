//! Kinds that are served in two forms and stored in one: Events (stored as core's), HorizontalPodAutoscalers (stored as
//! `autoscaling/v2`).

use serde_json::{Map, Value, json};

use super::types;

/// Field names of an Event: in core, in `events.k8s.io`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// How a kind's served form differs from the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    /// `events.k8s.io/v1` over core.
    Event,
    /// `autoscaling/v1` over v2.
    Autoscaler,
}

impl Conversion {
    /// The conversion of a kind, if it needs one.
    pub(super) fn of(group: &str, version: &str, kind: &str) -> Option<Self> {
        match (group, version, kind) {
            ("events.k8s.io", _, "Event") => Some(Self::Event),
            ("autoscaling", "v1", "HorizontalPodAutoscaler") => Some(Self::Autoscaler),
            _ => None,
        }
    }

    /// The type of the stored form, where it says more than the served one.
    pub(super) fn stored_type(self) -> Option<types::TypeId> {
        match self {
            Self::Event => None,
            Self::Autoscaler => types::of_kind("autoscaling", "v2", "HorizontalPodAutoscaler"),
        }
    }

    pub(super) fn to_served(self, object: &mut Value) {
        match self {
            Self::Event => EVENT_FIELDS.iter().for_each(|(core, new)| rename(object, core, new)),
            Self::Autoscaler => {
                if let Some(target) = take_cpu(object, "spec", "metrics", "target") {
                    object["spec"]["targetCPUUtilizationPercentage"] = target;
                }
                if let Some(current) = take_cpu(object, "status", "currentMetrics", "current") {
                    object["status"]["currentCPUUtilizationPercentage"] = current;
                }
            }
        }
    }

    pub(super) fn to_stored(self, object: &mut Value) {
        match self {
            Self::Event => {
                EVENT_FIELDS.iter().for_each(|(core, new)| rename(object, new, core));
                object["apiVersion"] = "v1".into();
            }
            Self::Autoscaler => {
                put_cpu(object, "spec", "targetCPUUtilizationPercentage", "metrics", "target");
                put_cpu(object, "status", "currentCPUUtilizationPercentage", "currentMetrics", "current");
                object["apiVersion"] = "autoscaling/v2".into();
            }
        }
    }
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(map) = object.as_object_mut()
        && let Some(value) = map.remove(from)
    {
        map.insert(to.to_owned(), value);
    }
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

/// The utilisation in the first metric about CPU. What v1 has no field for is not shown there.
fn take_cpu(object: &mut Value, part: &str, list: &str, what: &str) -> Option<Value> {
    let metrics = object.get_mut(part)?.as_object_mut()?.remove(list)?;
    let cpu = metrics.as_array()?.iter().find(|metric| is_cpu(metric))?;
    cpu["resource"][what].get("averageUtilization").cloned()
}

fn put_cpu(object: &mut Value, part: &str, field: &str, list: &str, what: &str) {
    let Some(map) = object.get_mut(part).and_then(Value::as_object_mut) else { return };
    let Some(percent) = map.remove(field).filter(|percent| !percent.is_null()) else { return };
    let mut value = Map::new();
    if what == "target" {
        value.insert("type".to_owned(), "Utilization".into());
    } else {
        value.insert("averageValue".to_owned(), "0".into());
    }
    value.insert("averageUtilization".to_owned(), percent);
    map.insert(list.to_owned(), json!([{"type": "Resource", "resource": {"name": "cpu", what: value}}]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_is_the_same() {
        for (conversion, served) in [
            (
                Conversion::Event,
                json!({"apiVersion": "v1", "regarding": {"name": "x"}, "note": "n", "reportingController": "c"}),
            ),
            (
                Conversion::Autoscaler,
                json!({"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 5, "targetCPUUtilizationPercentage": 50},
                       "status": {"desiredReplicas": 1, "currentCPUUtilizationPercentage": 40}}),
            ),
        ] {
            let mut object = served.clone();
            conversion.to_stored(&mut object);
            assert_ne!(object, served);
            conversion.to_served(&mut object);
            assert_eq!(object, served);
        }
    }
}
