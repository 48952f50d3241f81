//! Which policy an object belongs to.
//!
//! A template has at most one policy. The PropagationPolicies of its namespace come first, then the cluster-wide ones,
//! and among each the higher priority, the closer match (by name, by labels, by kind alone), the smaller name. Once
//! claimed it stays with its policy for as long as that is there and selects it, unless another preempts it:
//!
//! ```text
//!   claimed by ╲ preempted by   PropagationPolicy          ClusterPropagationPolicy
//!   PropagationPolicy           of a higher priority       never
//!   ClusterPropagationPolicy    of any priority            of a higher priority
//! ```

mod explain;

use std::{cmp::Reverse, collections::BTreeMap};

use karmada_api::{
    consts::{annotation, label},
    policy::{
        ClusterPropagationPolicy, Placement, PreemptionBehavior, PropagationPolicy, PropagationSpec,
        ResourceSelector, WorkloadAffinityTerm,
    },
    work::WorkloadAffinityGroups,
};
use karmada_meta::{object, time::Time};
use serde_json::Value;

pub use self::explain::{Standing, standing};

/// What a selector looks at in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// Empty for what is cluster scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl Subject {
    /// The subject that an object is.
    pub fn of(object: &Value) -> Self {
        Self {
            api_version: object::api_version(object).to_owned(),
            kind: object::kind(object).to_owned(),
            namespace: object::namespace(object).to_owned(),
            name: object::name(object).to_owned(),
            labels: object::label_map(object),
        }
    }
}

/// The same, of somebody else's: for whoever holds many objects against many policies.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// `apps/v1`.
    pub api_version: &'a str,
    /// `Deployment`.
    pub kind: &'a str,
    /// Empty for what is cluster scoped.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

impl<'a> From<&'a Subject> for View<'a> {
    fn from(subject: &'a Subject) -> Self {
        let Subject { api_version, kind, namespace, name, labels } = subject;
        Self { api_version, kind, namespace, name, labels }
    }
}

/// How closely a selector means an object; the closer, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// All objects of the kind.
    Kind,
    /// Those with certain labels.
    Labels,
    /// This one, by its name.
    Name,
}

/// How closely one selector means an object, if it does. A name makes the labels irrelevant. A label selector that
/// cannot be read means nothing (validation refuses it).
pub fn selects<'a>(selector: &ResourceSelector, subject: impl Into<View<'a>>) -> Option<Match> {
    let subject = subject.into();
    let kind = selector.api_version == subject.api_version && selector.kind == subject.kind;
    if !kind || !(selector.namespace.is_empty() || selector.namespace == subject.namespace) {
        return None;
    }
    if !selector.name.is_empty() {
        return (selector.name == subject.name).then_some(Match::Name);
    }
    match &selector.label_selector {
        None => Some(Match::Kind),
        Some(labels) => labels.selects(subject.labels).then_some(Match::Labels),
    }
}

/// How closely the closest of some selectors means an object.
pub fn closest<'a>(selectors: &[ResourceSelector], subject: impl Into<View<'a>>) -> Option<Match> {
    let subject = subject.into();
    selectors.iter().filter_map(|selector| selects(selector, subject)).max()
}

/// A policy of either scope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy<'a> {
    /// One for its namespace.
    Namespaced(&'a PropagationPolicy),
    /// One for the whole hub.
    Cluster(&'a ClusterPropagationPolicy),
}

impl<'a> Policy<'a> {
    /// What it says.
    pub fn spec(self) -> &'a PropagationSpec {
        match self {
            Self::Namespaced(policy) => &policy.spec,
            Self::Cluster(policy) => &policy.spec,
        }
    }

    /// Whether it is one for its namespace.
    pub fn namespaced(self) -> bool {
        matches!(self, Self::Namespaced(_))
    }

    /// One of its annotations.
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        let annotations = match self {
            Self::Namespaced(policy) => policy.metadata.annotations.as_ref(),
            Self::Cluster(policy) => policy.metadata.annotations.as_ref(),
        };
        annotations?.get(key).map(String::as_str)
    }

    /// Whether it was made later than an object, by the server's clock; no within the same second.
    pub fn is_younger_than(self, object: &Value) -> bool {
        let born = match self {
            Self::Namespaced(policy) => policy.metadata.creation_timestamp.as_ref(),
            Self::Cluster(policy) => policy.metadata.creation_timestamp.as_ref(),
        };
        born.map(|born| Time::from_timestamp(born.0))
            .zip(object::creation_timestamp(object))
            .is_some_and(|(born, of_object)| born > of_object)
    }

    /// Its namespace; empty for the whole hub.
    pub fn namespace(self) -> &'a str {
        match self {
            Self::Namespaced(policy) => policy.metadata.namespace.as_deref().unwrap_or_default(),
            Self::Cluster(_) => "",
        }
    }

    /// Its name.
    pub fn name(self) -> &'a str {
        match self {
            Self::Namespaced(policy) => policy.metadata.name.as_deref(),
            Self::Cluster(policy) => policy.metadata.name.as_deref(),
        }
        .unwrap_or_default()
    }

    /// Its permanent id; empty before it was admitted.
    pub fn id(self) -> &'a str {
        let labels = match self {
            Self::Namespaced(policy) => policy.metadata.labels.as_ref(),
            Self::Cluster(policy) => policy.metadata.labels.as_ref(),
        };
        labels.and_then(|labels| labels.get(self.id_label())).map_or("", String::as_str)
    }

    /// The label that holds the id, on the policy and on what it has claimed.
    pub fn id_label(self) -> &'static str {
        match self {
            Self::Namespaced(_) => label::PROPAGATION_POLICY_ID,
            Self::Cluster(_) => label::CLUSTER_PROPAGATION_POLICY_ID,
        }
    }

    /// Whether it is being deleted.
    pub fn deleting(self) -> bool {
        match self {
            Self::Namespaced(policy) => policy.metadata.deletion_timestamp.is_some(),
            Self::Cluster(policy) => policy.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The policy that has claimed an object, as the object's labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A PropagationPolicy, by its permanent id.
    Namespaced(String),
    /// A ClusterPropagationPolicy, by its permanent id.
    Cluster(String),
}

impl Claim {
    /// The claim on a template or a binding.
    pub fn of(object: &Value) -> Option<Self> {
        let id = |key| object::label(object, key).filter(|id| !id.is_empty()).map(str::to_owned);
        id(label::PROPAGATION_POLICY_ID)
            .map(Self::Namespaced)
            .or_else(|| id(label::CLUSTER_PROPAGATION_POLICY_ID).map(Self::Cluster))
    }

    /// Whether it is this policy's.
    pub fn is(&self, policy: Policy<'_>) -> bool {
        match (self, policy) {
            (Self::Namespaced(id), Policy::Namespaced(_)) | (Self::Cluster(id), Policy::Cluster(_)) => {
                id == policy.id()
            }
            _ => false,
        }
    }
}

/// Puts a policy's claim on a template or binding, in place of any other. Answers whether that changed anything.
pub fn claim(object: &mut Value, policy: Policy<'_>) -> bool {
    let before = object.clone();
    unclaim(object);
    object::set_label(object, policy.id_label(), policy.id());
    match policy {
        Policy::Namespaced(_) => {
            object::set_annotation(object, annotation::PROPAGATION_POLICY_NAMESPACE, policy.namespace());
            object::set_annotation(object, annotation::PROPAGATION_POLICY_NAME, policy.name());
        }
        Policy::Cluster(_) => {
            object::set_annotation(object, annotation::CLUSTER_PROPAGATION_POLICY_NAME, policy.name());
        }
    }
    *object != before
}

/// Takes every claim off a template or binding. Answers whether there was one.
pub fn unclaim(object: &mut Value) -> bool {
    let mut found = false;
    for key in [label::PROPAGATION_POLICY_ID, label::CLUSTER_PROPAGATION_POLICY_ID] {
        found |= object::remove_label(object, key).is_some();
    }
    for key in [
        annotation::PROPAGATION_POLICY_NAMESPACE,
        annotation::PROPAGATION_POLICY_NAME,
        annotation::CLUSTER_PROPAGATION_POLICY_NAME,
    ] {
        found |= object::remove_annotation(object, key).is_some();
    }
    found
}

/// How closely a policy means an object, if it does: one of a namespace means only what is in it.
pub fn means<'a>(policy: Policy<'_>, subject: impl Into<View<'a>>) -> Option<Match> {
    let subject = subject.into();
    let in_scope = match policy {
        Policy::Namespaced(_) => !subject.namespace.is_empty() && policy.namespace() == subject.namespace,
        Policy::Cluster(_) => true,
    };
    if !in_scope || policy.deleting() {
        return None;
    }
    closest(&policy.spec().resource_selectors, subject)
}

/// The policy for an object. `claimed` is the claim that is on it now.
pub fn choose<'a>(
    subject: &Subject,
    claimed: Option<&Claim>,
    policies: impl IntoIterator<Item = Policy<'a>>,
) -> Option<Policy<'a>> {
    let meaning: Vec<_> =
        policies.into_iter().filter_map(|policy| Some((policy, means(policy, subject)?))).collect();
    let best = |candidates: Vec<(Policy<'a>, Match)>| {
        let rank = |(policy, closeness): &(Policy<'a>, Match)| rank(*policy, *closeness);
        candidates.into_iter().max_by_key(rank).map(|(policy, _)| policy)
    };
    let holder = claimed.and_then(|claim| meaning.iter().find(|(policy, _)| claim.is(*policy)));
    let Some((holder, _)) = holder.copied() else { return best(meaning) };
    let preempting = meaning.into_iter().filter(|(policy, how)| may_preempt(*policy, *how, holder)).collect();
    best(preempting).or(Some(holder))
}

/// Where a policy stands among those that mean an object; the greatest has it.
fn rank(policy: Policy<'_>, closeness: Match) -> (bool, i32, Match, Reverse<&str>) {
    (policy.namespaced(), policy.spec().priority, closeness, Reverse(policy.name()))
}

/// Whether a policy takes an object away from the one that holds it. It has to name the object: nobody's objects are
/// taken by accident.
fn may_preempt(policy: Policy<'_>, how: Match, holder: Policy<'_>) -> bool {
    let asks = policy.spec().preemption == PreemptionBehavior::Always && how == Match::Name;
    let higher = policy.spec().priority > holder.spec().priority;
    asks && match (policy.namespaced(), holder.namespaced()) {
        (true, false) => true,
        (false, true) => false,
        _ => higher,
    }
}

/// What the event says when a policy has taken an object from another.
pub fn preemption_message(policy: Policy<'_>, holder: Policy<'_>) -> String {
    let (by, from) = match (policy, holder) {
        (Policy::Namespaced(_), Policy::Namespaced(_)) => ("Propagation", "propagation"),
        (Policy::Namespaced(_), Policy::Cluster(_)) => ("Propagation", "cluster propagation"),
        (Policy::Cluster(_), Policy::Namespaced(_)) => ("Cluster propagation", "propagation"),
        (Policy::Cluster(_), Policy::Cluster(_)) => ("Cluster propagation", "cluster propagation"),
    };
    let place = |policy: Policy<'_>| match policy.namespace() {
        "" => policy.name().to_owned(),
        namespace => format!("{namespace}/{}", policy.name()),
    };
    format!("{by} policy({}) preempted {from} policy({}) successfully", place(policy), place(holder))
}

/// The groups of objects that a placement puts an object into, by the values of its labels.
pub fn affinity_groups(
    placement: &Placement,
    labels: &BTreeMap<String, String>,
) -> Option<WorkloadAffinityGroups> {
    let asked = placement.workload_affinity.as_ref()?;
    let group = |term: Option<&WorkloadAffinityTerm>| {
        let key = term.map(|term| &term.group_by_label_key)?;
        labels.get(key).map(|value| format!("{key}={value}"))
    };
    let groups = WorkloadAffinityGroups {
        affinity_group: group(asked.affinity.as_ref()).unwrap_or_default(),
        anti_affinity_group: group(asked.anti_affinity.as_ref()).unwrap_or_default(),
    };
    (groups != WorkloadAffinityGroups::default()).then_some(groups)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn subject() -> Subject {
        Subject::of(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "nginx", "namespace": "default", "labels": {"app": "nginx"}},
        }))
    }

    fn selector(extra: Value) -> ResourceSelector {
        let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        for (key, value) in extra.as_object().unwrap() {
            selector[key] = value.clone();
        }
        serde_json::from_value(selector).unwrap()
    }

    #[test]
    fn the_younger_is_told_by_the_second() {
        let object = json!({"metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"}});
        for (second, want) in [(4, false), (5, false), (6, true)] {
            let metadata = json!({"name": "p", "creationTimestamp": format!("2026-01-02T03:04:0{second}Z")});
            let spec = json!({"resourceSelectors": []});
            let policy: PropagationPolicy =
                serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
            assert_eq!(Policy::Namespaced(&policy).is_younger_than(&object), want, "{second}");
        }
    }

    #[test]
    fn selectors_mean_by_name_then_labels_then_kind() {
        let labels = |key: &str| json!({"labelSelector": {"matchLabels": {key: "nginx"}}});
        let table = [
            ("kind", json!({}), Some(Match::Kind)),
            ("namespace", json!({"namespace": "default"}), Some(Match::Kind)),
            ("another namespace", json!({"namespace": "shop"}), None),
            ("name", json!({"name": "nginx"}), Some(Match::Name)),
            ("another name", json!({"name": "web"}), None),
            ("labels", labels("app"), Some(Match::Labels)),
            ("other labels", labels("tier"), None),
            ("an empty label selector", json!({"labelSelector": {}}), Some(Match::Labels)),
            (
                "a name ignores labels",
                json!({"name": "nginx", "labelSelector": {"matchLabels": {"a": "b"}}}),
                Some(Match::Name),
            ),
            ("another version", json!({"apiVersion": "apps/v1beta1"}), None),
            ("another kind", json!({"kind": "StatefulSet"}), None),
            (
                "an unknown operator",
                json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}),
                None,
            ),
        ];
        for (message, extra, want) in table {
            assert_eq!(selects(&selector(extra), &subject()), want, "{message}");
        }
    }

    fn policy<T: serde::de::DeserializeOwned>(kind: &str, name: &str, priority: i32, selector: Value) -> T {
        let id_label = format!("{}.karmada.io/permanent-id", kind.to_lowercase());
        let mut selector = selector;
        selector["apiVersion"] = json!("apps/v1");
        selector["kind"] = json!("Deployment");
        serde_json::from_value(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "default", "labels": {id_label: format!("id-{name}")}},
            "spec": {"priority": priority, "resourceSelectors": [selector]},
        }))
        .unwrap()
    }

    #[test]
    fn the_first_policy_is_the_closest() {
        let pp = |name, priority, selector| {
            policy::<PropagationPolicy>("PropagationPolicy", name, priority, selector)
        };
        let by_kind = pp("a-kind", 0, json!({}));
        let by_name = pp("z-name", 0, json!({"name": "nginx"}));
        let by_name_too = pp("y-name", 0, json!({"name": "nginx"}));
        let important = pp("z-important", 1, json!({}));
        let other = pp("other", 9, json!({"name": "web"}));
        let cpp = policy::<ClusterPropagationPolicy>(
            "ClusterPropagationPolicy",
            "all",
            99,
            json!({"name": "nginx"}),
        );
        let cluster = Policy::Cluster(&cpp);
        let table: [(&str, Vec<Policy<'_>>, Option<&str>); 6] = [
            ("nobody", vec![Policy::Namespaced(&other)], None),
            ("closer", vec![Policy::Namespaced(&by_kind), Policy::Namespaced(&by_name)], Some("z-name")),
            ("by name", vec![Policy::Namespaced(&by_name), Policy::Namespaced(&by_name_too)], Some("y-name")),
            (
                "priority",
                vec![Policy::Namespaced(&by_name), Policy::Namespaced(&important)],
                Some("z-important"),
            ),
            ("namespace before hub", vec![cluster, Policy::Namespaced(&by_kind)], Some("a-kind")),
            ("hub alone", vec![cluster, Policy::Namespaced(&other)], Some("all")),
        ];
        for (message, policies, want) in table {
            let backwards: Vec<_> = policies.iter().rev().copied().collect();
            assert_eq!(choose(&subject(), None, policies).map(Policy::name), want, "{message}");
            assert_eq!(
                choose(&subject(), None, backwards).map(Policy::name),
                want,
                "{message}, the other way"
            );
        }
    }

    #[test]
    fn a_claim_holds_while_the_policy_means_the_object() {
        let mut mine: PropagationPolicy = policy("PropagationPolicy", "mine", 0, json!({}));
        let better: PropagationPolicy = policy("PropagationPolicy", "better", 9, json!({"name": "nginx"}));
        let mut template = json!({"metadata": {"name": "nginx", "labels": {"app": "nginx"}}});
        assert!(claim(&mut template, Policy::Namespaced(&mine)));
        assert!(!claim(&mut template, Policy::Namespaced(&mine)), "nothing new");
        assert_eq!(object::annotation(&template, annotation::PROPAGATION_POLICY_NAME), Some("mine"));
        let held = Claim::of(&template);
        assert_eq!(held, Some(Claim::Namespaced("id-mine".into())));

        let name = |mine: &PropagationPolicy| {
            let policies = [Policy::Namespaced(mine), Policy::Namespaced(&better)];
            choose(&subject(), held.as_ref(), policies).map(|policy| policy.name().to_owned())
        };
        assert_eq!(name(&mine).as_deref(), Some("mine"), "no preemption");
        mine.spec.resource_selectors[0].name = "web".into();
        assert_eq!(name(&mine).as_deref(), Some("better"), "it does not mean the object any more");
        mine.spec.resource_selectors[0].name = String::new();
        mine.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(name(&mine).as_deref(), Some("better"), "it is going");

        assert!(unclaim(&mut template));
        assert_eq!(template, json!({"metadata": {"name": "nginx", "labels": {"app": "nginx"}}}));
        assert!(!unclaim(&mut template));
    }

    fn preempting<T: serde::de::DeserializeOwned>(
        kind: &str,
        name: &str,
        priority: i32,
        selector: Value,
    ) -> T {
        let mut value = serde_json::to_value(policy::<Value>(kind, name, priority, selector)).unwrap();
        value["spec"]["preemption"] = json!("Always");
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_object_is_taken_only_as_the_table_says() {
        let (pp, cpp) = ("PropagationPolicy", "ClusterPropagationPolicy");
        let named = || json!({"name": "nginx"});
        let mine: PropagationPolicy = policy(pp, "mine", 5, named());
        let all: ClusterPropagationPolicy = policy(cpp, "all", 5, named());
        let higher: PropagationPolicy = preempting(pp, "higher", 6, named());
        let highest: PropagationPolicy = preempting(pp, "highest", 7, named());
        let equal: PropagationPolicy = preempting(pp, "equal", 5, named());
        let lower: PropagationPolicy = preempting(pp, "lower", -1, named());
        let meek: PropagationPolicy = policy(pp, "meek", 9, named());
        let vague: PropagationPolicy = preempting(pp, "vague", 9, json!({}));
        let wide: ClusterPropagationPolicy = preempting(cpp, "wide", 9, named());
        let wide_equal: ClusterPropagationPolicy = preempting(cpp, "wide-equal", 5, named());
        let (n, c) = (Policy::Namespaced, Policy::Cluster);
        let table: [(&str, Policy<'_>, Vec<Policy<'_>>, &str); 12] = [
            ("higher", n(&mine), vec![n(&higher)], "higher"),
            ("the highest of several", n(&mine), vec![n(&higher), n(&highest)], "highest"),
            ("equal", n(&mine), vec![n(&equal)], "mine"),
            ("lower", n(&mine), vec![n(&lower)], "mine"),
            ("it does not ask", n(&mine), vec![n(&meek)], "mine"),
            ("it does not name the object", n(&mine), vec![n(&vague)], "mine"),
            ("a wide one from a namespace's", n(&mine), vec![c(&wide)], "mine"),
            ("a namespace's from a wide one, whatever its priority", c(&all), vec![n(&lower)], "lower"),
            ("a wide one from a wide one", c(&all), vec![c(&wide)], "wide"),
            ("a wide one of the same priority", c(&all), vec![c(&wide_equal)], "all"),
            ("the namespace's first", c(&all), vec![c(&wide), n(&lower)], "lower"),
            ("nobody asks", c(&all), vec![n(&meek)], "all"),
        ];
        for (message, holder, others, want) in table {
            let claim = match holder {
                Policy::Namespaced(_) => Claim::Namespaced(holder.id().to_owned()),
                Policy::Cluster(_) => Claim::Cluster(holder.id().to_owned()),
            };
            for turn in 0..=others.len() {
                let mut all = others.clone();
                all.insert(turn, holder);
                assert_eq!(choose(&subject(), Some(&claim), all).map(Policy::name), Some(want), "{message}");
            }
        }
        assert_eq!(
            preemption_message(n(&higher), n(&mine)),
            "Propagation policy(default/higher) preempted propagation policy(default/mine) successfully"
        );
        assert_eq!(
            preemption_message(n(&higher), c(&all)),
            "Propagation policy(default/higher) preempted cluster propagation policy(all) successfully"
        );
        assert_eq!(
            preemption_message(c(&wide), c(&all)),
            "Cluster propagation policy(wide) preempted cluster propagation policy(all) successfully"
        );
    }

    #[test]
    fn groups_are_named_by_label_and_value() {
        let labels =
            BTreeMap::from([("app".to_owned(), "shop".to_owned()), ("ha".to_owned(), "1".to_owned())]);
        let groups = |affinity: Value| {
            let placement: Placement = serde_json::from_value(json!({"workloadAffinity": affinity})).unwrap();
            affinity_groups(&placement, &labels).map(|g| (g.affinity_group, g.anti_affinity_group))
        };
        let term = |key: &str| json!({"groupByLabelKey": key});
        assert_eq!(groups(json!({"affinity": term("app")})), Some(("app=shop".into(), String::new())));
        assert_eq!(
            groups(json!({"affinity": term("app"), "antiAffinity": term("ha")})),
            Some(("app=shop".into(), "ha=1".into()))
        );
        assert_eq!(
            groups(json!({"affinity": term("tier")})),
            None,
            "a template without the label is in no group"
        );
        assert_eq!(affinity_groups(&Placement::default(), &labels), None);
    }

    proptest! {
        #[test]
        fn the_order_of_policies_is_irrelevant(
            priorities in prop::collection::vec(-2i32..3, 1..6), named in prop::collection::vec(any::<bool>(), 6)
        ) {
            let policies: Vec<PropagationPolicy> = priorities
                .iter()
                .enumerate()
                .map(|(i, priority)| {
                    let selector = if named[i] { json!({"name": "nginx"}) } else { json!({}) };
                    policy("PropagationPolicy", &format!("p{i}"), *priority, selector)
                })
                .collect();
            let forwards = choose(&subject(), None, policies.iter().map(Policy::Namespaced));
            let backwards = choose(&subject(), None, policies.iter().rev().map(Policy::Namespaced));
            prop_assert_eq!(forwards.map(Policy::name), backwards.map(Policy::name));
            let best = forwards.unwrap().spec().priority;
            prop_assert_eq!(best, *priorities.iter().max().unwrap());
        }
    }
}
