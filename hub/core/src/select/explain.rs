//! Why a policy has an object or has not, for people who ask.

use std::fmt;

use karmada_api::policy::{PreemptionBehavior, ResourceSelector};

use super::{Claim, Match, Policy, Subject, may_preempt, means, rank, selects};

/// How a policy stands to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The object is its own, by this closeness.
    Chosen(Match),
    /// It means the object, and another has it; why that one.
    Outranked(Match, String),
    /// It does not mean the object; what of it comes closest, and why that does not.
    NotMeant(String),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = |how: &Match| match how {
            Match::Name => "by name",
            Match::Labels => "by labels",
            Match::Kind => "by kind",
        };
        match self {
            Self::Chosen(closeness) => write!(f, "has it, {}", how(closeness)),
            Self::Outranked(closeness, why) => write!(f, "means it {}, but {why}", how(closeness)),
            Self::NotMeant(why) => write!(f, "does not mean it: {why}"),
        }
    }
}

/// How a policy stands to an object that [`super::choose`] has given to `chosen`.
pub fn standing(
    policy: Policy<'_>,
    subject: &Subject,
    claimed: Option<&Claim>,
    chosen: Option<Policy<'_>>,
) -> Standing {
    let Some(closeness) = means(policy, subject) else {
        return Standing::NotMeant(why_not(policy, subject));
    };
    match chosen {
        Some(chosen) if chosen != policy => {
            Standing::Outranked(closeness, why_other(policy, closeness, chosen, subject, claimed))
        }
        _ => Standing::Chosen(closeness),
    }
}

fn why_not(policy: Policy<'_>, subject: &Subject) -> String {
    if policy.deleting() {
        return "it is being deleted".to_owned();
    }
    if policy.namespaced() && policy.namespace() != subject.namespace {
        return match subject.namespace.as_str() {
            "" => "it is for what is in a namespace, and the object is in none".to_owned(),
            _ => format!("it is for namespace {:?} alone", policy.namespace()),
        };
    }
    let misses = policy.spec().resource_selectors.iter().enumerate().map(|(at, selector)| {
        let (closeness, why) = miss(selector, subject);
        (closeness, at, why)
    });
    match misses.max_by_key(|(closeness, at, _)| (*closeness, std::cmp::Reverse(*at))) {
        Some((_, at, why)) => format!("spec.resourceSelectors[{at}] {why}"),
        None => "it has no spec.resourceSelectors".to_owned(),
    }
}

/// How close a selector that does not mean an object comes to it, and what is in the way.
fn miss(selector: &ResourceSelector, subject: &Subject) -> (u8, String) {
    debug_assert!(selects(selector, subject).is_none(), "it would mean the object");
    if selector.kind != subject.kind {
        return (0, format!("is for {} {}", selector.api_version, selector.kind));
    }
    if selector.api_version != subject.api_version {
        return (
            1,
            format!(
                "is for {} of {}, the object is of {}",
                selector.kind, selector.api_version, subject.api_version
            ),
        );
    }
    if !(selector.namespace.is_empty() || selector.namespace == subject.namespace) {
        return (2, format!("is for namespace {:?}", selector.namespace));
    }
    if !selector.name.is_empty() {
        return (3, format!("names {:?}", selector.name));
    }
    match selector.label_selector.as_ref().map(|labels| labels.to_selector()) {
        Some(Err(error)) => (4, format!("has a labelSelector that cannot be read: {error}")),
        _ => {
            let labels: Vec<_> = subject.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            (4, format!("asks for other labels than {{{}}}", labels.join(", ")))
        }
    }
}

/// Why another policy has an object that this one means, too.
fn why_other(
    policy: Policy<'_>,
    closeness: Match,
    chosen: Policy<'_>,
    subject: &Subject,
    claimed: Option<&Claim>,
) -> String {
    let other = name_of(chosen);
    let holds = claimed.is_some_and(|claim| claim.is(chosen));
    let (here, there) =
        (rank(policy, closeness), rank(chosen, means(chosen, subject).unwrap_or(Match::Kind)));
    if holds && here > there && !may_preempt(policy, closeness, chosen) {
        let why = if policy.spec().preemption != PreemptionBehavior::Always {
            "spec.preemption is Never"
        } else if closeness != Match::Name {
            "only a policy that names an object may preempt"
        } else {
            "its priority is not higher"
        };
        return format!("{other} had claimed it before, and this one does not preempt: {why}");
    }
    if holds && here > there {
        return format!("{other} holds it until this one's preemption is carried out");
    }
    if here.0 != there.0 {
        return format!("{other} is of the object's own namespace, which comes first");
    }
    if here.1 != there.1 {
        return format!("{other} has priority {} over {}", there.1, here.1);
    }
    if here.2 != there.2 {
        return format!("{other} means it more closely");
    }
    format!("{other} comes first by name")
}

/// A policy with its kind.
fn name_of(policy: Policy<'_>) -> String {
    match policy {
        Policy::Namespaced(_) => format!("PropagationPolicy {}/{}", policy.namespace(), policy.name()),
        Policy::Cluster(_) => format!("ClusterPropagationPolicy {}", policy.name()),
    }
}

#[cfg(test)]
mod tests {
    use karmada_api::policy::{ClusterPropagationPolicy, PropagationPolicy};
    use serde_json::{Value, json};

    use super::*;

    fn subject() -> Subject {
        Subject::of(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        }))
    }

    fn policy(namespace: &str, name: &str, spec: Value) -> PropagationPolicy {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace,
                         "labels": {"propagationpolicy.karmada.io/permanent-id": name}},
            "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn what_keeps_a_policy_from_an_object() {
        let selecting =
            |selector: Value| json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Pod"}, selector]});
        let of = |extra: Value| {
            let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
            for (key, value) in extra.as_object().unwrap() {
                selector[key] = value.clone();
            }
            selecting(selector)
        };
        let table = [
            ("shop", of(json!({"name": "api"})), "does not mean it: spec.resourceSelectors[1] names \"api\""),
            (
                "shop",
                of(json!({"labelSelector": {"matchLabels": {"app": "api"}}})),
                "does not mean it: spec.resourceSelectors[1] asks for other labels than {app=web}",
            ),
            (
                "shop",
                of(json!({"apiVersion": "apps/v1beta1"})),
                "does not mean it: spec.resourceSelectors[1] is for Deployment of apps/v1beta1, the object is of apps/v1",
            ),
            (
                "shop",
                of(json!({"namespace": "bank"})),
                "does not mean it: spec.resourceSelectors[1] is for namespace \"bank\"",
            ),
            (
                "shop",
                selecting(json!({"apiVersion": "v1", "kind": "Secret"})),
                "does not mean it: spec.resourceSelectors[0] is for v1 Pod",
            ),
            ("bank", of(json!({})), "does not mean it: it is for namespace \"bank\" alone"),
            ("shop", of(json!({})), "has it, by kind"),
            ("shop", of(json!({"name": "web"})), "has it, by name"),
        ];
        for (namespace, spec, want) in table {
            let policy = policy(namespace, "p", spec);
            assert_eq!(standing(Policy::Namespaced(&policy), &subject(), None, None).to_string(), want);
        }
    }

    #[test]
    fn what_another_policy_has_before_it() {
        let all = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let named = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let spec = |selector: &Value, priority: i32, preemption: &str| json!({"resourceSelectors": [selector], "priority": priority, "preemption": preemption});
        let holder = policy("shop", "holder", spec(&all, 0, "Never"));
        let cluster: ClusterPropagationPolicy =
            serde_json::from_value(json!({"metadata": {"name": "all"}, "spec": spec(&named, 9, "Never")}))
                .unwrap();
        let claim = Claim::Namespaced("holder".into());
        let table = [
            (
                policy("shop", "a", spec(&named, 0, "Never")),
                true,
                "holder had claimed it before, and this one does not preempt: spec.preemption is Never",
            ),
            (
                policy("shop", "a", spec(&all, 9, "Always")),
                true,
                "does not preempt: only a policy that names an object",
            ),
            (policy("shop", "z", spec(&all, 0, "Never")), false, "holder comes first by name"),
            (policy("shop", "z", spec(&all, -1, "Never")), false, "holder has priority 0 over -1"),
        ];
        for (policy, claimed, want) in &table {
            let claim = claimed.then_some(&claim);
            let holder = Policy::Namespaced(&holder);
            let got = standing(Policy::Namespaced(policy), &subject(), claim, Some(holder)).to_string();
            assert!(got.contains(want), "{got}");
        }
        let got = standing(Policy::Cluster(&cluster), &subject(), None, Some(Policy::Namespaced(&holder)));
        assert_eq!(
            got.to_string(),
            "means it by name, but PropagationPolicy shop/holder is of the object's own namespace, which comes first"
        );
    }
}
