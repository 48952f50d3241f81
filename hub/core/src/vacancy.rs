//! Whether a Namespace on a member may go: only when nothing lives in it but what every Namespace has by itself.
//!
//! What counts are objects that stand for themselves. One that has an owner goes with it, and its owner, if it is in
//! the same Namespace, is looked at itself.
//!
//! A Namespace that stays is released, and its Work goes, as the Namespace on the hub does. What is left to see is a
//! condition of the Cluster, [`extension::NAMESPACES_RELEASED`]: it names such Namespaces until they go, or are wanted
//! again. Its message is the record, too: an agent that starts goes on from there.

use std::{collections::BTreeMap, fmt};

use karmada_api::{
    conditions::{self, Condition},
    consts::extension,
};
use karmada_meta::{object, time::Time};
use serde_json::Value;

use crate::members::{self, Owner};

/// API groups whose objects are records or views of others: nobody put them there.
const RECORDS: [&str; 7] = [
    "events.k8s.io",
    "discovery.k8s.io",
    "coordination.k8s.io",
    "metrics.k8s.io",
    "custom.metrics.k8s.io",
    "external.metrics.k8s.io",
    "packages.operators.coreos.com",
];

/// The same of the core group.
const CORE_RECORDS: [&str; 2] = ["Event", "Endpoints"];

/// What a cluster puts into every Namespace of its own accord.
const BY_ITSELF: [(&str, &str); 4] = [
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ConfigMap", "istio-ca-root-cert"),
    ("ServiceAccount", "default"),
];

/// On a Secret with a token: the service account it is for.
const TOKEN_OF: &str = "kubernetes.io/service-account.name";

/// How many objects a message names.
const NAMED: usize = 5;

/// Whether objects of a kind can keep a Namespace at all.
pub fn counts(group: &str, kind: &str) -> bool {
    !(RECORDS.contains(&group) || group.is_empty() && CORE_RECORDS.contains(&kind))
}

/// Which objects the hub takes away again: those that carry the marks of a Work that it has. What an earlier life of the
/// hub has left, before it was restored from an older copy, is nobody's now, and stays.
#[derive(Clone, Copy)]
pub struct Ours<'a> {
    /// The cluster's execution namespace.
    pub execution_namespace: &'a str,
    /// Whether there is a Work of that name, be it on its way out.
    pub has_work: &'a (dyn Fn(&str) -> bool + Sync),
}

/// What was found in a Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupants {
    /// What the hub put there and is still there, and what is on its way out: it will go.
    going: Vec<String>,
    /// What others put there.
    others: Vec<String>,
}

/// What is to be done about a Namespace that the hub wants gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vacancy {
    /// Nothing lives in it.
    Empty,
    /// Only what will go by itself; the text names it.
    Emptying(String),
    /// Something of others; the text names it.
    Occupied(String),
}

impl Occupants {
    /// Takes note of an object, of which metadata are enough.
    pub fn see(&mut self, kind: &str, object: &Value, ours: Ours<'_>) {
        let name = object::name(object);
        let token = kind == "Secret" && object::annotation(object, TOKEN_OF) == Some("default");
        if token || BY_ITSELF.contains(&(kind, name)) {
            return;
        }
        let text = format!("{kind} {name}");
        let going = object::deletion_timestamp(object).is_some()
            || !object::owner_references(object).is_empty()
            || ours.is(object);
        if going { self.going.push(text) } else { self.others.push(text) }
    }

    /// Whether something of others was found: then the rest does not matter.
    pub fn occupied(&self) -> bool {
        !self.others.is_empty()
    }

    /// What follows.
    pub fn judge(&self) -> Vacancy {
        let named = |all: &[String]| {
            let more = all.len().saturating_sub(NAMED);
            let mut text = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            if more > 0 {
                text.push_str(&format!(" and {more} more"));
            }
            text
        };
        if !self.others.is_empty() {
            Vacancy::Occupied(named(&self.others))
        } else if self.going.is_empty() {
            Vacancy::Empty
        } else {
            Vacancy::Emptying(named(&self.going))
        }
    }
}

/// Namespaces that a member keeps although the hub deleted its own, each with the reason.
pub type Released = BTreeMap<String, String>;

/// How many of them the condition names.
const LISTED: usize = 100;

/// The Cluster's condition that tells of them; none when there are none.
pub fn released_condition(released: &Released, now: Time) -> Option<Condition> {
    let entry = |(name, why): (&String, &String)| format!("{name}: {}", why.replace(';', ","));
    let listed: Vec<_> = released.iter().take(LISTED).map(entry).collect();
    let reason = extension::NAMESPACE_RELEASED;
    let condition = Condition::new(extension::NAMESPACES_RELEASED, true, reason, listed.join("; "), now);
    (!listed.is_empty()).then_some(condition)
}

/// The Namespaces that a Cluster's conditions tell of.
pub fn released(list: &[Condition]) -> Released {
    let condition = conditions::find(list, extension::NAMESPACES_RELEASED);
    let entries = condition.into_iter().flat_map(|condition| condition.message.split("; "));
    entries
        .filter_map(|entry| entry.split_once(": "))
        .map(|(name, why)| (name.to_owned(), why.to_owned()))
        .collect()
}

impl fmt::Debug for Ours<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ours").field(&self.execution_namespace).finish()
    }
}

impl Ours<'_> {
    /// Whether an object was written by the agent for a Work of this cluster, which is there.
    fn is(self, object: &Value) -> bool {
        matches!(members::owner(object, "", ""), Owner::Other { namespace, name }
            if namespace == self.execution_namespace && (self.has_work)(&name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SPACE: &str = "karmada-es-m";

    fn object(name: &str, extra: Value) -> Value {
        let mut object = json!({"metadata": {"name": name, "namespace": "shop"}});
        for (field, value) in extra.as_object().unwrap() {
            object["metadata"][field] = value.clone();
        }
        object
    }

    fn ours(space: &str) -> Value {
        json!({
            "annotations": {"work.karmada.io/namespace": space, "work.karmada.io/name": "w"},
            "managedFields": [{"manager": "karmada-agent", "operation": "Apply"}],
        })
    }

    #[test]
    fn only_what_stands_for_itself_keeps_a_namespace() {
        let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}]});
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let token = json!({"annotations": {"kubernetes.io/service-account.name": "default"}});
        let mut copied = ours(SPACE);
        copied["managedFields"] = json!([{"manager": "kubectl", "operation": "Apply"}]);
        let mut orphan = ours(SPACE);
        orphan["annotations"]["work.karmada.io/name"] = json!("forgotten");
        let empty = || Vacancy::Empty;
        let emptying = |text: &str| Vacancy::Emptying(text.to_owned());
        let occupied = |text: &str| Vacancy::Occupied(text.to_owned());
        let table = [
            (vec![], empty()),
            (vec![("ConfigMap", object("kube-root-ca.crt", json!({})))], empty()),
            (vec![("ServiceAccount", object("default", json!({})))], empty()),
            (vec![("Secret", object("default-token-x", token))], empty()),
            (vec![("Deployment", object("web", ours(SPACE)))], emptying("Deployment web")),
            (vec![("Deployment", object("web", ours("karmada-es-other")))], occupied("Deployment web")),
            (vec![("Deployment", object("web", orphan))], occupied("Deployment web")),
            (vec![("Deployment", object("web", copied))], occupied("Deployment web")),
            (vec![("Pod", object("web-1", owned))], emptying("Pod web-1")),
            (vec![("Pod", object("p", going))], emptying("Pod p")),
            (
                vec![("Deployment", object("web", ours(SPACE))), ("ConfigMap", object("mine", json!({})))],
                occupied("ConfigMap mine"),
            ),
            (
                (1..=7).map(|n| ("ConfigMap", object(&format!("c{n}"), json!({})))).collect(),
                occupied("ConfigMap c1, ConfigMap c2, ConfigMap c3, ConfigMap c4, ConfigMap c5 and 2 more"),
            ),
        ];
        for (objects, want) in table {
            let mut found = Occupants::default();
            for (kind, object) in &objects {
                found.see(kind, object, Ours { execution_namespace: SPACE, has_work: &|work| work == "w" });
            }
            assert_eq!(found.judge(), want, "{objects:?}");
        }
    }

    #[test]
    fn what_was_released_is_told_and_read_again() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(released_condition(&Released::new(), now), None);
        let all: Released =
            [("annex", "something else lives in it: ConfigMap a; b"), ("shop", "it was there before")]
                .into_iter()
                .map(|(name, why)| (name.to_owned(), why.to_owned()))
                .collect();
        let condition = released_condition(&all, now).unwrap();
        let want = "annex: something else lives in it: ConfigMap a, b; shop: it was there before";
        assert_eq!(condition.message, want);
        let read = released(&[condition]);
        assert_eq!(read["annex"], "something else lives in it: ConfigMap a, b");
        assert_eq!(read.keys().collect::<Vec<_>>(), ["annex", "shop"]);
        assert!(released(&[]).is_empty());
    }

    #[test]
    fn records_do_not_count() {
        assert!(counts("", "Pod") && counts("example.com", "Widget"));
        assert!(!counts("", "Event") && !counts("", "Endpoints") && !counts("metrics.k8s.io", "PodMetrics"));
    }
}
