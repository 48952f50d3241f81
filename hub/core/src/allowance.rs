//! What the ResourceQuotas of a member cluster still allow its namespaces, as far as room is concerned.
//!
//! An agent tells of them in few bytes: what is left is rounded down, so that a pod more or less is often no news. Which
//! quotas count, and of which resources, is as in Karmada's estimator; places for pods count, too.

use std::collections::BTreeMap;

use karmada_meta::{
    object,
    quantity::{Format, Quantity},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::nodes::PODS;

/// The longest report, in bytes.
pub const LIMIT: usize = 4096;

/// What the hub reads at most: a report of some later agent may be longer.
const READ_LIMIT: usize = 64 << 10;

/// What is left, by namespace.
pub type Allowances = BTreeMap<String, Vec<Allowance>>;

/// What one ResourceQuota leaves to its namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allowance {
    /// hard − used, by the names that pods ask by.
    pub free: BTreeMap<String, Quantity>,
    /// The priority classes that it is for; empty for all pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Classes>,
}

/// Some priority classes, as a ResourceQuota names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    /// In, NotIn, Exists or DoesNotExist.
    pub operator: String,
    /// Their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Classes {
    fn hold(&self, class: &str) -> bool {
        let named = self.values.iter().any(|value| value == class);
        match self.operator.as_str() {
            "In" => !class.is_empty() && named,
            "NotIn" => class.is_empty() || !named,
            "Exists" => !class.is_empty(),
            "DoesNotExist" => class.is_empty(),
            _ => false,
        }
    }
}

impl Allowance {
    /// Reads a ResourceQuota; nothing for one that says nothing about the room for pods.
    pub fn of(quota: &Value) -> Option<Self> {
        let free = free(&quota["status"]);
        if free.is_empty() {
            return None;
        }
        let list = |path: &str| quota.pointer(path).and_then(Value::as_array).into_iter().flatten();
        let scopes = list("/spec/scopes").filter_map(Value::as_str);
        let selectors = list("/spec/scopeSelector/matchExpressions");
        let mut scoped = false;
        let mut classes = Vec::new();
        for (scope, is) in scopes
            .map(|scope| (scope, Some(Classes { operator: "Exists".to_owned(), values: Vec::new() })))
            .chain(selectors.map(|selector| {
                (selector["scopeName"].as_str().unwrap_or_default(), Classes::deserialize(selector).ok())
            }))
        {
            scoped = true;
            classes.extend(is.filter(|_| scope == "PriorityClass"));
        }
        // Whether other scopes hold of a pod nobody can tell by what a binding says of it.
        (!scoped || !classes.is_empty()).then_some(Self { free, classes })
    }

    /// Whether it counts for pods of a priority class; empty for those without one.
    pub(crate) fn is_for(&self, class: &str) -> bool {
        self.classes.is_empty() || self.classes.iter().any(|classes| classes.hold(class))
    }
}

/// What is left of what pods ask for. A resource that is limited by two names has what is left of both.
fn free(status: &Value) -> BTreeMap<String, Quantity> {
    let amount = |list: &str, name: &str| Quantity::deserialize(status[list].get(name)?).ok();
    let mut free = BTreeMap::<String, Quantity>::new();
    for name in status["hard"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()) {
        let asked = name.strip_prefix("requests.").unwrap_or(name);
        let asked = if asked == "count/pods" { PODS } else { asked };
        let extended =
            asked.contains('/') && !asked.starts_with("count/") && !asked.contains("kubernetes.io/");
        if name.starts_with("limits.") || !(["cpu", "memory", PODS].contains(&asked) || extended) {
            continue;
        }
        let (Some(hard), Some(used)) = (amount("hard", name), amount("used", name)) else { continue };
        let left = if used < hard { rounded(asked, hard - used) } else { Quantity::zero() };
        let least = free.entry(asked.to_owned()).or_insert(left);
        *least = left.min(*least);
    }
    free
}

/// Rounded down to two digits, where it is not little anyway.
fn rounded(name: &str, free: Quantity) -> Quantity {
    fn down(value: i64) -> i64 {
        let mut step = 1;
        while value / step >= 100 {
            step *= 10;
        }
        value / step * step
    }
    const MI: i64 = 1 << 20;
    match name {
        "cpu" => Quantity::from_milli(down(free.milli())),
        "memory" if free.value() >= MI => {
            Quantity::from_value(down(free.value() / MI).saturating_mul(MI)).with_format(Format::BinarySi)
        }
        _ => Quantity::from_value(down(free.value())),
    }
}

/// A report of ResourceQuotas, each with its namespace. None if there are none. What makes it too long is left out: those that
/// come last, by namespace.
pub fn write<'a>(quotas: impl IntoIterator<Item = (&'a str, &'a Allowance)>) -> Option<String> {
    let mut all = BTreeMap::<&str, Vec<&Allowance>>::new();
    for (namespace, allowance) in quotas {
        all.entry(namespace).or_default().push(allowance);
    }
    let mut told = String::from("{");
    for (namespace, allowances) in all {
        let Ok(entry) = serde_json::to_string(&BTreeMap::from([(namespace, allowances)])) else { continue };
        let entry = &entry[1..entry.len() - 1];
        if told.len() + entry.len() + 2 <= LIMIT {
            if told.len() > 1 {
                told.push(',');
            }
            told.push_str(entry);
        }
    }
    told.push('}');
    (told.len() > 2).then_some(told)
}

/// Reads a report.
///
/// # Errors
/// It is longer than any, or not what [`write`] writes.
pub fn read(text: &str) -> Result<Allowances, String> {
    if text.len() > READ_LIMIT {
        return Err(format!("{} bytes are more than {READ_LIMIT}", text.len()));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The namespace of a ResourceQuota, and what it leaves.
pub fn project(quota: &Value) -> (String, Option<Allowance>) {
    (object::namespace(quota).to_owned(), Allowance::of(quota))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn quota(spec: Value, hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q", "namespace": "shop"}, "spec": spec, "status": {"hard": hard, "used": used}})
    }

    #[test]
    fn what_is_left_of_what_pods_ask_for() {
        let rows = [
            ("cpu", json!({"cpu": "300m"}), json!({"cpu": "100m"}), json!({"cpu": "200m"})),
            (
                "two digits",
                json!({"cpu": "8", "memory": "2Gi"}),
                json!({"cpu": "4055m", "memory": "3Mi"}),
                json!({"cpu": "3900m", "memory": "2000Mi"}),
            ),
            (
                "the tighter of two names",
                json!({"cpu": "4", "requests.cpu": "3"}),
                json!({"cpu": "1", "requests.cpu": "1"}),
                json!({"cpu": "2"}),
            ),
            (
                "devices and places",
                json!({"requests.nvidia.com/gpu": "2", "count/pods": "9"}),
                json!({"requests.nvidia.com/gpu": "1", "count/pods": "4"}),
                json!({"nvidia.com/gpu": "1", "pods": "5"}),
            ),
            ("more is used than there is", json!({"cpu": "1"}), json!({"cpu": "2"}), json!({"cpu": "0"})),
            ("not counted yet", json!({"cpu": "1"}), json!({}), json!(null)),
            (
                "nothing about pods",
                json!({"limits.cpu": "1", "secrets": "3", "requests.storage": "1Gi", "count/jobs.batch": "1"}),
                json!({"limits.cpu": "0", "secrets": "0", "requests.storage": "0", "count/jobs.batch": "0"}),
                json!(null),
            ),
        ];
        for (what, hard, used, left) in rows {
            let found = Allowance::of(&quota(json!({}), hard, used));
            assert_eq!(json!(found.map(|found| found.free)), left, "{what}");
        }
    }

    #[test]
    fn a_quota_counts_for_the_priority_classes_that_it_is_for() {
        let one = |operator: &str, values: &[&str]| {
            json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
        };
        let rows = [
            ("all", json!({}), "", Some(true)),
            ("in", one("In", &["high"]), "high", Some(true)),
            ("not in", one("In", &["high"]), "low", Some(false)),
            ("none", one("In", &["high"]), "", Some(false)),
            ("NotIn", one("NotIn", &["high"]), "low", Some(true)),
            ("Exists", json!({"scopes": ["PriorityClass"]}), "low", Some(true)),
            ("Exists, and there is none", one("Exists", &[]), "", Some(false)),
            ("DoesNotExist", one("DoesNotExist", &[]), "", Some(true)),
            ("what nobody can tell", json!({"scopes": ["NotTerminating"]}), "", None),
        ];
        for (what, spec, class, holds) in rows {
            let found = Allowance::of(&quota(spec, json!({"cpu": "1"}), json!({"cpu": "0"})));
            assert_eq!(found.map(|found| found.is_for(class)), holds, "{what}");
        }
    }

    #[test]
    fn a_report_is_bounded_and_read_again() {
        let (namespace, allowance) =
            project(&quota(json!({"scopes": ["PriorityClass"]}), json!({"cpu": "3"}), json!({"cpu": "1"})));
        let allowance = allowance.unwrap();
        let text = write([(namespace.as_str(), &allowance), ("bank", &allowance)]).unwrap();
        assert_eq!(
            text,
            r#"{"bank":[{"free":{"cpu":"2"},"classes":[{"operator":"Exists"}]}],"shop":[{"free":{"cpu":"2"},"classes":[{"operator":"Exists"}]}]}"#
        );
        assert_eq!(read(&text).unwrap()["shop"], std::slice::from_ref(&allowance));
        let many: Vec<_> = (0..1000).map(|i| format!("n{i:04}")).collect();
        let text = write(many.iter().map(|name| (name.as_str(), &allowance))).unwrap();
        assert!(text.len() <= LIMIT && read(&text).unwrap().contains_key("n0000"), "{}", text.len());
        assert_eq!(write([]), None);
        assert!(read("[]").is_err() && read(&" ".repeat(READ_LIMIT + 1)).is_err());
    }
}
