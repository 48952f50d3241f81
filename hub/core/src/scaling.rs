//! Templates whose replicas the members' HorizontalPodAutoscalers decide.
//!
//! ```text
//!   HPA with a policy ─▶ its target is marked (label retain-replicas) ─▶ agents leave spec.replicas alone
//!   members' reports ─▶ sum ─▶ spec.replicas of a divided template, once the reports are about it as it is
//! ```
//!
//! What one member reports decides what others are given as well. So no report counts that says more than its cluster can have by
//! what stands on the hub, or that is about a template which the hub has not had yet.
//!
//! Karmada's controllers of the same names are hpa-scale-target-marker and deployment-replicas-syncer.

use karmada_api::{
    consts::{label, manager},
    policy::ReplicaSchedulingType,
    work::{ResourceBindingSpec, ResourceBindingStatus},
};
use karmada_meta::object;
use serde_json::Value;

/// Whether a template carries the mark.
pub fn is_marked(template: &Value) -> bool {
    object::label(template, label::RETAIN_REPLICAS) == Some(label::RETAIN_REPLICAS_VALUE)
}

/// Puts the mark on a template that is scaled by a member, and takes it off again. What a user has set stays. Whether that
/// changed it.
pub fn mark(template: &mut Value, scaled: bool) -> bool {
    if object::deletion_timestamp(template).is_some() || is_marked(template) == scaled {
        return false;
    }
    if scaled {
        object::set_label(template, label::RETAIN_REPLICAS, label::RETAIN_REPLICAS_VALUE);
        return true;
    }
    is_ours(template) && object::remove_label(template, label::RETAIN_REPLICAS).is_some()
}

/// Whether the hub has put the mark there: who has set a field stands in the object.
pub fn is_ours(template: &Value) -> bool {
    let owners = object::meta(template, "managedFields").and_then(Value::as_array).into_iter().flatten();
    let field = format!("f:{}", label::RETAIN_REPLICAS);
    owners
        .filter(|owner| owner["manager"] == manager::CONTROLLER_MANAGER)
        .any(|owner| owner["fieldsV1"]["f:metadata"]["f:labels"].get(&field).is_some())
}

/// How many replicas a HorizontalPodAutoscaler has at most.
pub fn most(autoscaler: &Value) -> i64 {
    // One that says nothing scales nothing: servers refuse it.
    autoscaler["spec"]["maxReplicas"].as_i64().unwrap_or_default()
}

/// Where nobody on the hub says how far members may scale, no cluster has more Pods than Kubernetes is made for.
pub const PODS: i64 = 150_000;

/// What is known of the replicas of a template that is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// Nothing is to be done until something is reported.
    Settled,
    /// The hub has not placed it as it is by now.
    NotPlaced,
    /// So many run, and the template does not say so.
    Are(i64),
    /// A cluster reports more than so many, which is all that it can have. Its report does not count, nor can the sum.
    Beyond {
        /// Which cluster.
        cluster: String,
        /// The most that it can have.
        most: i64,
    },
}

/// How many replicas a template has by the reports of its members, which are those of a binding of this `generation`. A
/// report that is about an older template says nothing, nor does one from the middle of a rollout, which has more Pods; one
/// about a newer template than there is cannot be. `most` is how far each cluster's autoscalers may go, by what stands on the
/// hub; what a cluster was given, it may have in any case.
pub fn replicas(
    template: &Value,
    generation: i64,
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    most: impl Fn(&str) -> i64,
) -> Replicas {
    let number = |value: &Value, field: &str| value[field].as_i64().unwrap_or_default();
    let scheduling = spec.placement.as_ref().and_then(|placement| placement.replica_scheduling.as_ref());
    let divided = scheduling.is_some_and(|s| s.replica_scheduling_type == ReplicaSchedulingType::Divided);
    let running = number(&template["status"], "replicas");
    let Some(asked) = template["spec"]["replicas"].as_i64().filter(|asked| *asked != running) else {
        return Replicas::Settled;
    };
    if !is_marked(template) || !divided || running <= 0 || spec.clusters.is_empty() {
        return Replicas::Settled;
    }
    if i64::from(spec.replicas) != asked || status.scheduler_observed_generation != generation {
        return Replicas::NotPlaced;
    }
    let mut sum = 0;
    for target in &spec.clusters {
        let item = status.aggregated_status.iter().find(|item| item.cluster_name == target.name);
        let Some(report) = item.and_then(|item| item.status.as_ref()) else { return Replicas::Settled };
        let current = number(report, "resourceTemplateGeneration") == object::generation(template)
            && number(report, "observedGeneration") >= number(report, "generation");
        let pods = number(report, "replicas");
        if !current || pods < 0 || number(report, "updatedReplicas") != pods {
            return Replicas::Settled;
        }
        let most = i64::from(target.replicas).max(most(&target.name));
        if pods > most {
            return Replicas::Beyond { cluster: target.name.clone(), most };
        }
        sum = i64::saturating_add(sum, pods);
    }
    let all = status.aggregated_status.len() == spec.clusters.len();
    // No template has more.
    let can_be = sum <= i64::from(i32::MAX);
    if all && can_be && sum == running { Replicas::Are(running) } else { Replicas::Settled }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_mark_is_the_hubs_to_take_off_only_if_it_put_it_there() {
        let owned = |manager: &str| {
            json!([{"manager": manager, "fieldsV1": {"f:metadata": {"f:labels": {
                "f:resourcetemplate.karmada.io/retain-replicas": {}}}}}])
        };
        let marked = |owners: Value| {
            json!({"metadata": {"name": "w", "managedFields": owners,
                "labels": {"resourcetemplate.karmada.io/retain-replicas": "true"}}})
        };
        let bare = || json!({"metadata": {"name": "w"}});
        let going = json!({"metadata": {"name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let rows = [
            ("scaled", bare(), true, true, true),
            ("on its way out", going, true, false, false),
            ("by a user before", marked(owned("kubectl")), true, false, true),
            ("not scaled any more", marked(owned("karmada-controller-manager")), false, true, false),
            ("by a user", marked(owned("kubectl")), false, false, true),
            ("by nobody known", marked(json!(null)), false, false, true),
            ("never scaled", bare(), false, false, false),
        ];
        for (what, mut template, scaled, changed, then) in rows {
            assert_eq!((mark(&mut template, scaled), is_marked(&template)), (changed, then), "{what}");
        }
    }

    #[test]
    fn replicas_are_what_reports_about_the_template_as_it_is_add_up_to() {
        let template = |asked: i64, running: i64| {
            json!({"metadata": {"generation": 4, "labels": {"resourcetemplate.karmada.io/retain-replicas": "true"}},
                "spec": {"replicas": asked}, "status": {"replicas": running}})
        };
        let item = |cluster: &str, replicas: i64, updated: i64, of: i64| {
            json!({"clusterName": cluster, "applied": true, "status": {"replicas": replicas, "updatedReplicas": updated,
                "generation": 2, "observedGeneration": 2, "resourceTemplateGeneration": of}})
        };
        let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
        let two = || vec![item("a", 3, 3, 4), item("b", 3, 3, 4)];
        let judge = |template: &Value, placement: &Value, asked: i32, seen: i64, items: Vec<Value>| {
            let spec = serde_json::from_value(json!({
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}, "replicas": asked,
                "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 2}], "placement": placement}))
            .unwrap();
            let status = serde_json::from_value(
                json!({"schedulerObservedGeneration": seen, "aggregatedStatus": items}),
            )
            .unwrap();
            // On b they may go further, by an override.
            replicas(template, 7, &spec, &status, |cluster| if cluster == "b" { 20 } else { 9 })
        };
        let grown = template(4, 6);
        assert_eq!(judge(&grown, &divided, 4, 7, two()), Replicas::Are(6));
        assert_eq!(judge(&template(6, 6), &divided, 6, 7, two()), Replicas::Settled, "it says so");
        assert_eq!(judge(&grown, &json!({}), 4, 7, two()), Replicas::Settled, "duplicated: a user's");
        assert_eq!(judge(&grown, &divided, 2, 7, two()), Replicas::NotPlaced, "its binding is behind");
        assert_eq!(judge(&grown, &divided, 4, 6, two()), Replicas::NotPlaced, "the scheduler is");
        let items = vec![item("a", 3, 3, 4), item("b", 3, 3, 3)];
        assert_eq!(judge(&grown, &divided, 4, 7, items), Replicas::Settled, "a report of an older template");
        let items = vec![item("a", 3, 3, 4), item("b", 3, 1, 4)];
        assert_eq!(judge(&grown, &divided, 4, 7, items), Replicas::Settled, "a rollout");
        assert_eq!(judge(&grown, &divided, 4, 7, vec![item("a", 6, 6, 4)]), Replicas::Settled, "b is silent");
        let three = vec![item("a", 3, 3, 4), item("b", 3, 3, 4), item("c", 0, 0, 4)];
        assert_eq!(judge(&grown, &divided, 4, 7, three), Replicas::Settled, "it leaves a third");
        let items = vec![item("a", 6, 6, 4), item("b", 0, 0, 4)];
        assert_eq!(judge(&grown, &divided, 4, 7, items), Replicas::Are(6), "none on one is all right");
        assert_eq!(
            judge(&template(4, 5), &divided, 4, 7, two()),
            Replicas::Settled,
            "the sum is an older one"
        );
        // What a member reports is not believed of another, nor twice, nor where it cannot be.
        let twice = vec![item("a", 3, 3, 4), item("a", 3, 3, 4)];
        assert_eq!(judge(&grown, &divided, 4, 7, twice), Replicas::Settled, "one of them twice");
        let other = vec![item("a", 3, 3, 4), item("c", 3, 3, 4)];
        assert_eq!(judge(&grown, &divided, 4, 7, other), Replicas::Settled, "one where it is not");
        let negative = vec![item("a", 9, 9, 4), item("b", -3, -3, 4)];
        assert_eq!(judge(&grown, &divided, 4, 7, negative), Replicas::Settled, "fewer than none");
        // Nor more than it can have: its replicas, or what the hub lets autoscalers make of them.
        let beyond = |cluster: &str, most: i64| Replicas::Beyond { cluster: cluster.to_owned(), most };
        let rows = [
            ("as far as they go", (9, 4), (20, 4), Replicas::Are(29)),
            ("further", (10, 4), (3, 4), beyond("a", 9)),
            ("further, the other one", (9, 4), (21, 4), beyond("b", 20)),
            ("beyond everything", (2_000_000_000, 4), (3, 4), beyond("a", 9)),
            ("without overflow", (i64::MAX, 4), (i64::MAX, 4), beyond("a", 9)),
            ("of a template that is to come", (9, 1_000_000_000), (3, 4), Replicas::Settled),
            ("of the next one", (9, 5), (3, 4), Replicas::Settled),
        ];
        for (what, (on_a, of_a), (on_b, of_b), want) in rows {
            let items = vec![item("a", on_a, on_a, of_a), item("b", on_b, on_b, of_b)];
            let grown = template(4, on_a.saturating_add(on_b));
            assert_eq!(judge(&grown, &divided, 4, 7, items), want, "{what}");
        }
        let mut blind = item("b", 3, 3, 4);
        blind["status"] = json!(null);
        assert_eq!(
            judge(&grown, &divided, 4, 7, vec![item("a", 3, 3, 4), blind]),
            Replicas::Settled,
            "no status"
        );
        let mut behind = item("b", 3, 3, 4);
        behind["status"]["observedGeneration"] = json!(1);
        let behind = vec![item("a", 3, 3, 4), behind];
        assert_eq!(judge(&grown, &divided, 4, 7, behind), Replicas::Settled, "its controller is behind");
        // An edit by a user goes back to what runs, and what runs nowhere is a user's.
        assert_eq!(judge(&template(10, 6), &divided, 10, 7, two()), Replicas::Are(6));
        assert_eq!(judge(&template(2, 6), &divided, 2, 7, two()), Replicas::Are(6));
        let none = vec![item("a", 0, 0, 4), item("b", 0, 0, 4)];
        assert_eq!(judge(&template(4, 0), &divided, 4, 7, none), Replicas::Settled, "none runs");
        let mut asks_nothing = grown.clone();
        asks_nothing["spec"] = json!({});
        assert_eq!(judge(&asks_nothing, &divided, 0, 7, two()), Replicas::Settled, "it has no replicas");
        let mut bare = grown;
        bare["metadata"]["labels"] = json!({});
        assert_eq!(judge(&bare, &divided, 4, 7, two()), Replicas::Settled, "not marked");
    }
}
