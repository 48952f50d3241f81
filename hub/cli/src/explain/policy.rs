//! A policy: what it selects, who else has that, and which clusters it means.

use std::collections::BTreeMap;

use karmada_api::{
    cluster::Cluster,
    policy::{ClusterAffinity, Placement, ResourceSelector},
    work::{ObjectReference, ResourceBindingSpec},
};
use karmada_core::{
    fleet::Fleet,
    place,
    select::{self, Claim, Policy, Subject},
    skip::Skip,
};
use karmada_meta::{gvk::GroupVersionKind, object};
use karmada_objects::{discovery::Served, policies::PolicyHead};
use serde_json::Value;

use super::{
    super::{Failure, ask::Server, known::suggestion},
    report::{Considered, PlacementReport, PolicyReport},
    target,
    template::{at_odds, name_of},
};

/// Explains a policy.
pub(super) async fn report(
    server: &Server,
    all: &[Served],
    head: &PolicyHead,
    clusters: &BTreeMap<String, Cluster>,
) -> Result<PolicyReport, Failure> {
    let policy = head.policy();
    let scope = policy.namespaced().then(|| policy.namespace());
    let rivals = target::policies(server, scope).await?;
    let mut report = PolicyReport {
        policy: name_of(policy),
        selects: Vec::new(),
        idle: Vec::new(),
        placement: None,
        notes: Vec::new(),
        advice: Vec::new(),
    };
    if let Some(why) = &head.unreadable {
        report.advice.push(format!("The policy cannot be read and selects nothing: {why}"));
        return Ok(report);
    }
    for (at, selector) in policy.spec().resource_selectors.iter().enumerate() {
        let seen = look(server, all, selector, scope).await?;
        let before = report.selects.len();
        let mut names = Vec::new();
        let mut others = 0usize;
        for (subject, claim) in seen.iter().flat_map(|seen| &seen.objects) {
            if select::selects(selector, subject).is_none() || select::means(policy, subject).is_none() {
                names.push(subject.name.as_str());
                others += 1;
                continue;
            }
            report.selects.push(considered(policy, subject, claim.as_ref(), &rivals));
        }
        if report.selects.len() == before {
            report.idle.push(format!(
                "spec.resourceSelectors[{at}]: {}",
                why_idle(selector, seen.as_ref(), &names, others)
            ));
        }
    }
    report.selects.sort_by(|a, b| a.name.cmp(&b.name));
    report.selects.dedup_by(|a, b| a.name == b.name);
    explain_placement(policy, clusters, &mut report);
    Ok(report)
}

/// The objects of a selector's kind in its namespace.
struct Seen {
    /// Why none of them is propagated, if so.
    skipped: bool,
    objects: Vec<(Subject, Option<Claim>)>,
}

/// Reads the objects of a selector's kind; nothing where the hub does not have the kind.
async fn look(
    server: &Server,
    all: &[Served],
    selector: &ResourceSelector,
    scope: Option<&str>,
) -> Result<Option<Seen>, Failure> {
    let served = all.iter().find(|served| {
        served.resource.api_version() == selector.api_version && served.resource.kind == selector.kind
    });
    let Some(served) = served else { return Ok(None) };
    let kind = GroupVersionKind::from_api_version(&selector.api_version, selector.kind.as_str());
    let skip = Skip::default();
    if kind.as_ref().is_some_and(|kind| skip.kind(kind)) {
        return Ok(Some(Seen { skipped: true, objects: Vec::new() }));
    }
    let namespace =
        scope.or_else(|| Some(selector.namespace.as_str()).filter(|namespace| !namespace.is_empty()));
    let mut objects = Vec::new();
    let take = |page: Vec<Value>| {
        for mut value in page {
            // Items of a list go without these on the wire.
            value["apiVersion"] = selector.api_version.as_str().into();
            value["kind"] = selector.kind.as_str().into();
            let (namespace, name) = (object::namespace(&value), object::name(&value));
            let skipped = kind.as_ref().is_some_and(|kind| skip.object(kind, namespace, name));
            if !skipped && !Skip::bootstrapped(&value) {
                objects.push((Subject::of(&value), Claim::of(&value)));
            }
        }
    };
    let listed = server.objects.list(&served.resource, namespace, "", take).await;
    listed.map_err(|e| server.failure(&e))?;
    Ok(Some(Seen { skipped: false, objects }))
}

/// How an object stands that a policy means.
fn considered(
    policy: Policy<'_>,
    subject: &Subject,
    claim: Option<&Claim>,
    rivals: &[PolicyHead],
) -> Considered {
    let name = match subject.namespace.as_str() {
        "" => format!("{} {}", subject.kind, subject.name),
        namespace => format!("{} {namespace}/{}", subject.kind, subject.name),
    };
    let chosen = select::choose(subject, claim, rivals.iter().map(PolicyHead::policy));
    let has = chosen.is_some_and(|chosen| {
        (chosen.namespaced(), chosen.namespace(), chosen.name())
            == (policy.namespaced(), policy.namespace(), policy.name())
    });
    let standing = if has {
        match claim {
            Some(claim) if claim.is(policy) => "is its own".to_owned(),
            _ => "is its own as soon as the hub has looked at it".to_owned(),
        }
    } else {
        format!("is not its own: it {}", select::standing(policy, subject, claim, chosen))
    };
    Considered { name, has, standing }
}

/// Why a selector means nothing.
fn why_idle(selector: &ResourceSelector, seen: Option<&Seen>, names: &[&str], others: usize) -> String {
    let kind = format!("{} {}", selector.api_version, selector.kind);
    let Some(seen) = seen else {
        return format!("the hub has no kind {kind}; install its CustomResourceDefinition there");
    };
    if seen.skipped {
        return format!("objects of {kind} are never propagated");
    }
    if others == 0 {
        return format!("there is no {kind} in the namespaces from which the policy selects");
    }
    if !selector.name.is_empty() {
        let hint = suggestion(&selector.name, names.iter().copied());
        return format!("there is no {kind} called {:?}{hint}", selector.name);
    }
    format!("none of {others} objects of {kind} has the labels that are asked for")
}

/// Which clusters the policy means, for the first kind it selects.
fn explain_placement(policy: Policy<'_>, clusters: &BTreeMap<String, Cluster>, report: &mut PolicyReport) {
    let placement = &policy.spec().placement;
    let first = policy.spec().resource_selectors.first();
    let kind = first.map_or("", |first| &first.kind);
    let spec = ResourceBindingSpec {
        resource: ObjectReference {
            api_version: first.map(|first| first.api_version.clone()).unwrap_or_default(),
            kind: kind.to_owned(),
            ..ObjectReference::default()
        },
        placement: Some(placement.clone()),
        ..ResourceBindingSpec::default()
    };
    let fleet = Fleet::of(clusters.values().cloned());
    let explained = place::explain(&place::Request::new(&spec, &fleet));
    report.notes.extend(unknown_clusters(placement, clusters));
    let placement = PlacementReport::of(&explained, placement, None, |_| String::new());
    report.notes.extend(at_odds(clusters, &placement, &[]));
    report.placement = Some(placement);
    if explained.result.is_err() {
        report.advice.extend(place::advice(&explained, kind));
    }
    if report.selects.is_empty() {
        report
            .advice
            .push("Create the objects, or let spec.resourceSelectors mean those that are there.".into());
    } else if !report.selects.iter().any(|object| object.has) {
        report.advice.push(
            "Other policies have all of it: raise spec.priority, name the objects, or set spec.preemption: Always.".into(),
        );
    }
}

/// How many clusters that do not exist are named one by one.
const UNKNOWN: usize = 20;

/// The clusters that a placement names and that do not exist, with what may have been meant.
fn unknown_clusters(placement: &Placement, clusters: &BTreeMap<String, Cluster>) -> Vec<String> {
    let mut fields: Vec<(String, &ClusterAffinity)> = Vec::new();
    if let Some(affinity) = &placement.cluster_affinity {
        fields.push(("clusterAffinity".to_owned(), affinity));
    }
    for (at, term) in placement.cluster_affinities.iter().enumerate() {
        fields.push((format!("clusterAffinities[{at}]"), &term.affinity));
        let more = term.overflow_affinities.iter().enumerate();
        fields.extend(more.map(|(n, overflow)| {
            (format!("clusterAffinities[{at}].overflowAffinities[{n}]"), &overflow.affinity)
        }));
    }
    let preference = placement.replica_scheduling.as_ref().and_then(|s| s.weight_preference.as_ref());
    let weights = preference.iter().flat_map(|preference| &preference.static_weight_list).enumerate();
    fields.extend(weights.map(|(at, rule)| {
        let list = "replicaScheduling.weightPreference.staticWeightList";
        (format!("{list}[{at}].targetCluster"), &rule.target_cluster)
    }));
    let lists = fields.iter().flat_map(|(field, affinity)| {
        [("clusterNames", &affinity.cluster_names), ("exclude", &affinity.exclude)]
            .map(|(list, names)| (format!("spec.placement.{field}.{list}"), names))
    });
    let unknown: Vec<(String, &String)> = lists
        .flat_map(|(field, names)| {
            names.iter().filter(|name| !clusters.contains_key(*name)).map(move |name| (field.clone(), name))
        })
        .collect();
    let more = unknown.len().checked_sub(UNKNOWN).filter(|more| *more > 0);
    let said = unknown.iter().take(UNKNOWN).map(|(field, name)| {
        let near = suggestion(name, clusters.keys().map(String::as_str));
        let end = if near.is_empty() { "." } else { "" };
        format!("{field}: there is no cluster {name:?}{near}{end}")
    });
    said.chain(more.map(|more| format!("The same is true for {more} more names."))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn idle_selectors_say_why() {
        let selector = |extra: Value| -> ResourceSelector {
            let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
            for (key, value) in extra.as_object().unwrap() {
                selector[key] = value.clone();
            }
            serde_json::from_value(selector).unwrap()
        };
        let seen = Seen { skipped: false, objects: Vec::new() };
        let table = [
            (selector(json!({})), None, vec![], "the hub has no kind apps/v1 Deployment"),
            (
                selector(json!({})),
                Some(&seen),
                vec![],
                "there is no apps/v1 Deployment in the namespaces from which the policy selects",
            ),
            (
                selector(json!({"name": "ngin"})),
                Some(&seen),
                vec!["nginx"],
                "called \"ngin\"; did you mean nginx?",
            ),
            (
                selector(json!({"labelSelector": {"matchLabels": {"a": "b"}}})),
                Some(&seen),
                vec!["x", "y"],
                "none of 2 objects",
            ),
        ];
        for (selector, seen, names, want) in table {
            let got = why_idle(&selector, seen, &names, names.len());
            assert!(got.contains(want), "{got}");
        }
    }

    #[test]
    fn clusters_that_do_not_exist_are_named() {
        let names = ["shop-1", "shop-2"];
        let clusters = names.iter().map(|name| ((*name).to_owned(), Cluster::default())).collect();
        let said =
            |placement: Value| unknown_clusters(&serde_json::from_value(placement).unwrap(), &clusters);
        assert_eq!(
            said(json!({"clusterAffinity": {"clusterNames": ["shop-1"], "exclude": ["shop-2"]}})),
            [""; 0]
        );
        assert_eq!(
            said(json!({"clusterAffinity": {"clusterNames": ["shop-1", "shop-3"], "exclude": ["x"]}})),
            [
                "spec.placement.clusterAffinity.clusterNames: there is no cluster \"shop-3\"; did you mean shop-1 or shop-2?",
                "spec.placement.clusterAffinity.exclude: there is no cluster \"x\".",
            ]
        );
        let groups = json!({
            "clusterAffinities": [{"affinityName": "a", "clusterNames": ["gone"]}],
            "replicaScheduling": {"replicaSchedulingType": "Divided", "weightPreference": {"staticWeightList": [
                {"targetCluster": {"clusterNames": ["lost"]}, "weight": 1}]}},
        });
        assert_eq!(
            said(groups),
            [
                "spec.placement.clusterAffinities[0].clusterNames: there is no cluster \"gone\".",
                "spec.placement.replicaScheduling.weightPreference.staticWeightList[0].targetCluster.clusterNames: there \
                 is no cluster \"lost\".",
            ]
        );
        let many: Vec<String> = (0..25).map(|n| format!("lost-{n}")).collect();
        assert_eq!(said(json!({"clusterAffinity": {"clusterNames": many}})).len(), 21);
    }
}
