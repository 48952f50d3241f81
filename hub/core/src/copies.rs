//! The copies of objects on all clusters, as their Works tell of them: no member has to be reachable for that, and what
//! is known carries its age.

use karmada_api::{
    cluster::{Cluster, ClusterSyncMode},
    conditions::{self, ConditionStatus},
    consts::{condition, extension},
    work::{ResourceHealth, WorkStatus},
};
use karmada_meta::{object, parse_api_version, time::Time};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::names;

/// Whether a member's object is under the hub's management: the ADOPTION of karmadactl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It is: the agent has applied it, or tells of its status.
    Yes,
    /// It is not: it could not be applied, so that what the member has (if anything) is its own.
    No,
    /// The cluster has not said anything yet.
    NotYet,
}

impl Adoption {
    /// As it stands in a table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "Y",
            Self::No => "N",
            Self::NotYet => "-",
        }
    }
}

/// One object on one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// The cluster.
    pub cluster: String,
    /// What the cluster was told to hold.
    pub manifest: Value,
    /// What it reports of the object's status; null where it has reported none.
    pub status: Value,
    /// Whether the object does its job; nothing where that was not reported.
    pub health: Option<ResourceHealth>,
    /// Whether the present manifest was applied; nothing before the first attempt.
    pub applied: Option<bool>,
    /// What the agent says about applying it, if that did not succeed.
    pub message: String,
    /// Whether the Work is being deleted: the copy is about to go.
    pub leaving: bool,
}

impl Copy {
    /// A Namespace that a cluster keeps although the hub has deleted its own.
    pub fn released(cluster: &str, name: &str, why: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            manifest: json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            status: Value::Null,
            health: None,
            applied: Some(false),
            message: format!("released: {why}"),
            leaving: false,
        }
    }

    /// Whether the object is under the hub's management.
    pub fn adoption(&self) -> Adoption {
        // An agent reports the state of what is its own only.
        match (self.applied, self.health.is_some() || !self.status.is_null()) {
            (Some(true), _) | (_, true) => Adoption::Yes,
            (Some(false), false) => Adoption::No,
            (None, false) => Adoption::NotYet,
        }
    }
}

/// The copies that one Work makes of the objects that are asked for. A Work outside of execution namespaces makes none.
pub fn of_work(work: &Value, asked_for: impl Fn(&Value) -> bool) -> Vec<Copy> {
    let Some(cluster) = names::cluster_of_namespace(object::namespace(work)) else { return Vec::new() };
    let manifests = work.pointer("/spec/workload/manifests").and_then(Value::as_array);
    let wanted: Vec<_> = manifests.into_iter().flatten().filter(|manifest| asked_for(manifest)).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let status = WorkStatus::deserialize(&work["status"]).unwrap_or_default();
    let applied = conditions::find(&status.conditions, condition::APPLIED);
    let leaving = object::deletion_timestamp(work).is_some();
    let copy = |manifest: &Value| {
        let state = status.manifest_statuses.iter().find(|state| {
            let group = parse_api_version(object::api_version(manifest)).map(|(group, _)| group);
            let id = &state.identifier;
            group.as_deref() == Some(&id.group)
                && id.kind == object::kind(manifest)
                && id.namespace == object::namespace(manifest)
                && id.name == object::name(manifest)
        });
        let failed = applied.filter(|applied| applied.status != ConditionStatus::True);
        // It is as it was, and another version waits.
        let held = conditions::find(&status.conditions, extension::CHANGES_HELD);
        Copy {
            cluster: cluster.to_owned(),
            manifest: manifest.clone(),
            status: state.and_then(|state| state.status.clone()).unwrap_or_default(),
            health: state.and_then(|state| state.health),
            applied: applied.map(|applied| applied.status == ConditionStatus::True),
            message: failed.or(held).map(|said| said.message.clone()).unwrap_or_default(),
            leaving,
        }
    };
    wanted.into_iter().map(copy).collect()
}

/// How fresh what is known of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// Its last sign of life, by the hub's clock where that is known; nothing if there was none.
    pub at: Option<Time>,
    /// Whether it has fallen silent since: what it says now may be something else.
    pub stale: bool,
}

impl Knowledge {
    /// What a Cluster and its agent's Lease say; the Lease may be unknown (no right to read it, never made). A Work of
    /// a cluster that is not there any more is as old as anything can be.
    ///
    /// The server's note of the Lease's last write is taken before the agent's own `renewTime`: clocks on the edge run
    /// wrong. In push mode there is no Lease: the hub itself sees the member `now`, or has not since its condition says so.
    pub fn of(cluster: Option<&Cluster>, lease: Option<&Value>, now: Time) -> Self {
        let Some(cluster) = cluster else { return Self { at: None, stale: true } };
        let conditions = cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let ready = conditions::find(conditions, condition::READY);
        if cluster.spec.sync_mode == ClusterSyncMode::Push {
            let lost = ready.filter(|ready| ready.status != ConditionStatus::True);
            let since = lost.map(|lost| lost.last_transition_time);
            return Self {
                at: since.or_else(|| ready.map(|_| now)),
                stale: since.is_some() || ready.is_none(),
            };
        }
        let stale = ready.is_none_or(|ready| ready.status == ConditionStatus::Unknown);
        let lost = ready.filter(|_| stale).map(|ready| ready.last_transition_time);
        Self { at: lease.and_then(renewed).or(lost), stale }
    }
}

/// When a Lease was last written.
fn renewed(lease: &Value) -> Option<Time> {
    let parse = |text: &Value| text.as_str().and_then(|text| text.parse::<Time>().ok());
    let entries = lease.pointer("/metadata/managedFields").and_then(Value::as_array);
    let noted = entries.into_iter().flatten().filter_map(|entry| parse(&entry["time"])).max();
    let renewed = lease.pointer("/spec/renewTime").and_then(parse);
    noted.or(renewed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(cluster: &str, applied: Option<&str>, health: Option<&str>) -> Value {
        let conditions: Vec<_> = applied
            .map(|status| {
                json!({"type": "Applied", "status": status, "reason": "R", "message": "why not",
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .into_iter()
            .collect();
        let states: Vec<_> = health
            .map(|health| {
                json!({"identifier": {"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment",
                                      "resource": "", "namespace": "shop", "name": "web"},
                       "status": {"readyReplicas": 1}, "health": health})
            })
            .into_iter()
            .collect();
        json!({
            "metadata": {"namespace": format!("karmada-es-{cluster}"), "name": "web-1"},
            "spec": {"workload": {"manifests": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"}},
                {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web"}},
            ]}},
            "status": {"conditions": conditions, "manifestStatuses": states},
        })
    }

    #[test]
    fn what_a_work_tells_of_its_copies() {
        let table = [
            ("applied and healthy", Some("True"), Some("Healthy"), Adoption::Yes, ""),
            ("applied, not reported", Some("True"), None, Adoption::Yes, ""),
            ("somebody else's", Some("False"), None, Adoption::No, "why not"),
            ("ours, and the new one is refused", Some("False"), Some("Healthy"), Adoption::Yes, "why not"),
            ("nothing said", None, None, Adoption::NotYet, ""),
        ];
        let deployments = |manifest: &Value| object::kind(manifest) == "Deployment";
        for (message, applied, health, adoption, why) in table {
            let copies = of_work(&work("a", applied, health), deployments);
            assert_eq!(copies.len(), 1, "{message}");
            assert_eq!((copies[0].adoption(), copies[0].message.as_str()), (adoption, why), "{message}");
            assert_eq!(copies[0].cluster, "a");
        }
        assert_eq!(of_work(&work("a", None, None), |_| true).len(), 2);
        assert!(of_work(&json!({"metadata": {"namespace": "shop"}}), |_| true).is_empty());
    }

    #[test]
    fn knowledge_has_an_age() {
        let cluster_of = |mode: &str, ready: &str| -> Cluster {
            serde_json::from_value(json!({
                "metadata": {"name": "a"}, "spec": {"syncMode": mode},
                "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "R", "message": "",
                                           "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .unwrap()
        };
        let (cluster, pushed) =
            (|ready: &str| cluster_of("Pull", ready), |ready: &str| cluster_of("Push", ready));
        let lease = json!({
            "metadata": {"managedFields": [{"time": "2026-01-01T00:05:00Z"}, {"time": "2026-01-01T00:06:00Z"}]},
            "spec": {"renewTime": "1999-01-01T00:00:00.000000Z"},
        });
        let bare = json!({"spec": {"renewTime": "2026-01-01T00:04:00.000000Z"}});
        let time = |text: &str| Some(text.parse::<Time>().unwrap());
        let table = [
            ("alive", Some(cluster("True")), Some(&lease), time("2026-01-01T00:06:00Z"), false),
            (
                "not ready, but it says so",
                Some(cluster("False")),
                Some(&lease),
                time("2026-01-01T00:06:00Z"),
                false,
            ),
            ("silent", Some(cluster("Unknown")), Some(&bare), time("2026-01-01T00:04:00Z"), true),
            ("silent, no Lease", Some(cluster("Unknown")), None, time("2026-01-01T00:00:00Z"), true),
            ("alive, no Lease", Some(cluster("True")), None, None, false),
            ("gone", None, Some(&lease), None, true),
            ("the hub sees it", Some(pushed("True")), None, time("2026-01-01T00:09:00Z"), false),
            ("it does not", Some(pushed("False")), Some(&lease), time("2026-01-01T00:00:00Z"), true),
        ];
        let now = time("2026-01-01T00:09:00Z").unwrap();
        for (message, cluster, lease, at, stale) in table {
            assert_eq!(Knowledge::of(cluster.as_ref(), lease, now), Knowledge { at, stale }, "{message}");
        }
    }
}
