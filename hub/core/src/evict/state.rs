//! What a new copy inherits from the state of the old one.

use std::collections::BTreeMap;

use karmada_api::{
    policy::{PurgeMode, StatePreservationRule},
    work::ResourceBindingSpec,
};
use karmada_meta::{jsonpath::JsonPath, names};
use serde_json::Value;

/// Why state cannot be preserved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// There is no status to read it from.
    #[error("the application's status has not been collected from cluster {0} yet")]
    NoStatus(String),
    /// An expression is none.
    #[error("statePreservation: jsonPath {path:?} cannot be read: {why}")]
    Unreadable {
        /// The expression.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The status has no such value.
    #[error("statePreservation: the status has nothing at jsonPath {0:?}")]
    Missing(String),
    /// The value can be no label.
    #[error("statePreservation: {value:?} at jsonPath {path:?} cannot be the value of a label: {why}")]
    NoLabel {
        /// The expression.
        path: String,
        /// What it led to.
        value: String,
        /// What a label must be.
        why: String,
    },
}

/// The labels that rules make of a copy's status on `cluster`. Several values are joined by spaces, as client-go does.
///
/// # Errors
/// What is missing or cannot be a label: a copy without its state might begin from scratch.
pub fn preserve(
    rules: &[StatePreservationRule],
    cluster: &str,
    status: Option<&Value>,
) -> Result<BTreeMap<String, String>, StateError> {
    let mut labels = BTreeMap::new();
    for rule in rules {
        let Some(status) = status.filter(|status| !status.is_null()) else {
            return Err(StateError::NoStatus(cluster.to_owned()));
        };
        let path = JsonPath::parse_template(&rule.json_path)
            .map_err(|why| StateError::Unreadable { path: rule.json_path.clone(), why })?;
        let found = path.all(status);
        if found.is_empty() {
            return Err(StateError::Missing(rule.json_path.clone()));
        }
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let value = found.into_iter().map(text).collect::<Vec<_>>().join(" ");
        if let Err(why) = names::label_value(&value) {
            return Err(StateError::NoLabel { path: rule.json_path.clone(), value, why });
        }
        labels.insert(rule.alias_label_name.clone(), value);
    }
    Ok(labels)
}

/// The labels that a copy on `cluster` inherits. As in Karmada: only an object on one cluster has one state, only the
/// last eviction counts, only one that removed the old copy before has left a state that is not being changed, and
/// a cluster that had the object before knows better.
pub fn inherited<'a>(spec: &'a ResourceBindingSpec, cluster: &str) -> Option<&'a BTreeMap<String, String>> {
    let task = spec.graceful_eviction_tasks.last()?;
    let one = spec.clusters.len() <= 1;
    let moved = !task.clusters_before_failover.iter().any(|before| before == cluster);
    let counts = one && moved && task.purge_mode == Some(PurgeMode::Directly);
    counts.then_some(&task.preserved_label_state).filter(|labels| !labels.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_becomes_labels() {
        let status = json!({"jobStatus": {"jobId": "7f3", "checkpoints": [12, 13], "note": "not a label!"}});
        let table = [
            ("a text", "{.jobStatus.jobId}", Ok("7f3")),
            ("without braces", ".jobStatus.jobId", Ok("7f3")),
            ("a number", "{.jobStatus.checkpoints[-1]}", Ok("13")),
            ("several", "{.jobStatus.checkpoints[*]}", Err("cannot be the value of a label")),
            ("missing", "{.jobStatus.savepoint}", Err("has nothing at")),
            ("no label", "{.jobStatus.note}", Err("cannot be the value of a label")),
            ("no path", "{.jobStatus[}", Err("cannot be read")),
            ("half a brace", "{.jobStatus", Err("cannot be read")),
        ];
        for (message, path, want) in table {
            let rule =
                StatePreservationRule { alias_label_name: "state".to_owned(), json_path: path.to_owned() };
            let got = preserve(&[rule], "a", Some(&status));
            match want {
                Ok(value) => assert_eq!(got.unwrap()["state"], value, "{message}"),
                Err(part) => assert!(got.unwrap_err().to_string().contains(part), "{message}"),
            }
        }
        let rule = StatePreservationRule { alias_label_name: "s".to_owned(), json_path: "{.a}".to_owned() };
        assert_eq!(preserve(&[rule], "a", None), Err(StateError::NoStatus("a".to_owned())));
        assert_eq!(preserve(&[], "a", None), Ok(BTreeMap::new()), "nothing to preserve");
    }

    #[test]
    fn only_one_moved_copy_inherits() {
        let spec = |clusters: &[&str], mode: &str| -> ResourceBindingSpec {
            let clusters: Vec<_> = clusters.iter().map(|name| json!({"name": name})).collect();
            serde_json::from_value(json!({
                "resource": {"apiVersion": "v1", "kind": "C", "name": "c"},
                "clusters": clusters,
                "gracefulEvictionTasks": [{"fromCluster": "a", "reason": "R", "producer": "P", "purgeMode": mode,
                    "preservedLabelState": {"job": "7"}, "clustersBeforeFailover": ["a"]}],
            }))
            .unwrap()
        };
        let table = [
            ("moved", spec(&["b"], "Directly"), "b", true),
            ("back again", spec(&["a"], "Directly"), "a", false),
            ("two copies", spec(&["b", "c"], "Directly"), "b", false),
            ("the old copy goes on", spec(&["b"], "Gracefully"), "b", false),
        ];
        for (message, spec, cluster, want) in table {
            assert_eq!(inherited(&spec, cluster).is_some(), want, "{message}");
        }
    }
}
