//! A template: which policy has it, and where that sends it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use karmada_api::{
    cluster::Cluster,
    conditions,
    consts::{extension, label},
    policy::{ActivationPreference, DEFAULT_SCHEDULER},
    work::{ObjectReference, ResourceBindingSpec, TargetCluster},
};
use karmada_core::{
    copies::Knowledge,
    judge::grace,
    place,
    rollout::{self, Order, Phase},
    select::{self, Claim, Policy, Standing, Subject},
    skip::Skip,
};
use karmada_interpreter::get_replicas;
use karmada_meta::{object, time::human_age};
use karmada_objects::{bindings::WORKS_SYNCED, kinds, policies::PolicyHead, scope::BindingKey};
use serde_json::Value;

use super::{
    super::{
        Failure,
        ask::Server,
        known,
        placed::{self, Bound, Groups},
    },
    report::{BindingReport, Considered, PlacementReport, TemplateReport, alike},
    target,
};

/// Explains a template.
pub(super) async fn report(
    server: &Server,
    live: &Value,
    clusters: &BTreeMap<String, Cluster>,
) -> Result<TemplateReport, Failure> {
    let subject = Subject::of(live);
    let claim = Claim::of(live);
    let namespace = subject.namespace.as_str();
    let heads = target::policies(server, Some(namespace)).await?;
    let chosen = select::choose(&subject, claim.as_ref(), heads.iter().map(PolicyHead::policy));
    let mut report = TemplateReport {
        object: format!("{} {}", subject.kind, object::key(live)),
        skipped: skipped(live),
        policies: considered(&heads, &subject, claim.as_ref(), chosen),
        ..TemplateReport::default()
    };
    let key = BindingKey::of_template(&subject.kind, namespace, &subject.name);
    let bound = placed::binding(server, &key).await?.filter(|bound| is_of(bound, &subject));
    if bound.is_none()
        && let Some(reason) = &report.skipped
    {
        report.notes.extend(clusters.get(&subject.name).filter(|_| is_cluster(live)).and_then(at_odds_with));
        report.advice.push(format!("Nothing can be done about this object: {reason}."));
        return Ok(report);
    }
    if chosen.is_none() && bound.as_ref().is_none_or(|bound| bound.spec.required_by.is_empty()) {
        report.advice.push(format!(
            "Write a PropagationPolicy in its namespace (or a ClusterPropagationPolicy) whose resourceSelectors mean \
             apiVersion {}, kind {} and name {}, or change one of those above.",
            subject.api_version, subject.kind, subject.name
        ));
    }
    if let Some(policy) = chosen {
        of_policy(policy, &mut report.notes);
    }
    match (bound, chosen) {
        (Some(bound), _) => explain_bound(server, &bound, clusters, &mut report).await?,
        (None, Some(policy)) => explain_unbound(server, live, policy, clusters, &mut report).await?,
        (None, None) => {}
    }
    Ok(report)
}

/// Whether an object is a member cluster.
fn is_cluster(live: &Value) -> bool {
    object::gvk(live)
        .is_some_and(|gvk| kinds::CLUSTERS.kind == gvk.kind && kinds::CLUSTERS.group == gvk.group)
}

/// Explains a binding whose template is gone.
pub(super) async fn orphan(
    server: &Server,
    bound: Bound,
    clusters: &BTreeMap<String, Cluster>,
) -> Result<TemplateReport, Failure> {
    let mut report = TemplateReport { object: bound.object(), ..TemplateReport::default() };
    report.notes.push("The object itself is not on the hub (any more); its binding is.".into());
    explain_bound(server, &bound, clusters, &mut report).await?;
    Ok(report)
}

fn is_of(bound: &Bound, subject: &Subject) -> bool {
    let of = &bound.spec.resource;
    of.kind == subject.kind && of.name == subject.name && of.namespace == subject.namespace
}

/// Why an object is never propagated.
fn skipped(live: &Value) -> Option<String> {
    if object::deletion_timestamp(live).is_some() {
        return Some("it is being deleted".into());
    }
    if object::label(live, label::MANAGED) == Some(label::MANAGED_VALUE) {
        return Some(format!("its label {} says that it is a copy which a hub manages", label::MANAGED));
    }
    if let Some(by) = object::label(live, label::CLAIMED_BY) {
        return Some(format!("its label {} says that it belongs to {by}", label::CLAIMED_BY));
    }
    let gvk = object::gvk(live)?;
    let skip = Skip::default();
    let namespace = object::namespace(live);
    if skip.kind(&gvk) {
        Some(format!("objects of kind {} are never propagated", gvk.kind))
    } else if !namespace.is_empty() && skip.namespace(namespace) {
        Some(format!(
            "what is in namespace {namespace} is not propagated, unless the hub was started with another \
             --skipped-propagating-namespaces"
        ))
    } else if skip.object(&gvk, namespace, object::name(live)) || Skip::bootstrapped(live) {
        Some("it is one that every cluster makes for itself".into())
    } else {
        None
    }
}

/// How every policy stands to an object: the one that has it first, then those that mean it.
fn considered(
    heads: &[PolicyHead],
    subject: &Subject,
    claim: Option<&Claim>,
    chosen: Option<Policy<'_>>,
) -> Vec<Considered> {
    let mut all: Vec<_> = heads
        .iter()
        .map(|head| {
            let standing = match &head.unreadable {
                Some(why) => Standing::NotMeant(format!("it cannot be read: {why}")),
                None => select::standing(head.policy(), subject, claim, chosen),
            };
            let order = match standing {
                Standing::Chosen(_) => 0,
                Standing::Outranked(..) => 1,
                Standing::NotMeant(_) => 2,
            };
            let has = order == 0;
            (order, Considered { name: name_of(head.policy()), has, standing: standing.to_string() })
        })
        .collect();
    all.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.name.cmp(&other.name)));
    all.into_iter().map(|(_, considered)| considered).collect()
}

/// A policy with its kind.
pub(super) fn name_of(policy: Policy<'_>) -> String {
    match policy {
        Policy::Namespaced(_) => format!("PropagationPolicy {}/{}", policy.namespace(), policy.name()),
        Policy::Cluster(_) => format!("ClusterPropagationPolicy {}", policy.name()),
    }
}

/// What of a policy holds its objects back.
fn of_policy(policy: Policy<'_>, notes: &mut Vec<String>) {
    let spec = policy.spec();
    if spec.activation_preference == Some(ActivationPreference::Lazy) {
        notes.push("The policy is lazy: changes of it wait for the next change of the object.".into());
    }
    if !spec.dependent_overrides.is_empty() {
        notes.push(format!(
            "Nothing is sent before these OverridePolicies exist (spec.dependentOverrides): {}.",
            spec.dependent_overrides.join(", ")
        ));
    }
}

/// What would be decided of a template that has no binding yet.
async fn explain_unbound(
    server: &Server,
    live: &Value,
    policy: Policy<'_>,
    clusters: &BTreeMap<String, Cluster>,
    report: &mut TemplateReport,
) -> Result<(), Failure> {
    let replicas = get_replicas(live).map_err(Failure::failed)?.unwrap_or_default();
    let spec = ResourceBindingSpec {
        resource: ObjectReference {
            api_version: object::api_version(live).to_owned(),
            kind: object::kind(live).to_owned(),
            namespace: object::namespace(live).to_owned(),
            name: object::name(live).to_owned(),
            uid: object::uid(live).to_owned(),
            ..ObjectReference::default()
        },
        replicas: i32::try_from(replicas.replicas).unwrap_or(i32::MAX),
        replica_requirements: replicas.requirements,
        placement: Some(policy.spec().placement.clone()),
        ..ResourceBindingSpec::default()
    };
    if policy.spec().activation_preference == Some(ActivationPreference::Lazy) {
        report.notes.push(
            "It has no binding yet: a lazy policy that comes after an object waits for its next change."
                .into(),
        );
        report
            .advice
            .push("Change the object, if only by an annotation, to have the policy take effect.".into());
    } else {
        report.notes.push(
            "It has no binding yet: the hub has not looked at it, or could not make one (see the events of the object)."
                .into(),
        );
    }
    let fleet = placed::fleet(server, clusters, &spec).await?;
    let explained = place::explain(&place::Request::new(&spec, &fleet));
    let placement = &policy.spec().placement;
    let placement = PlacementReport::of(&explained, placement, Some(spec.replicas), |_| String::new());
    report.notes.extend(at_odds(clusters, &placement, &[]));
    report.placement = Some(placement);
    advise(&explained, &spec.resource.kind, report);
    Ok(())
}

/// Explains what a binding says, and what would be decided of it now.
async fn explain_bound(
    server: &Server,
    bound: &Bound,
    clusters: &BTreeMap<String, Cluster>,
    report: &mut TemplateReport,
) -> Result<(), Failure> {
    let scheduled = bound.scheduled();
    report.binding = Some(BindingReport {
        name: format!("{} {}", bound.key.kind(), bound.key.key),
        clusters: bound.placed().to_vec(),
        last_scheduled: bound.status.last_scheduled_time,
        scheduled: scheduled.map(|condition| condition.message.clone()).unwrap_or_default(),
    });
    of_binding(bound, report);
    let Some(placement) = &bound.spec.placement else { return Ok(()) };
    let mut groups = Groups::default();
    if bound.spec.workload_affinity_groups.is_some() {
        placed::each_binding(server, Some(&bound.key.key.namespace), |other| groups.note(&other)).await?;
    }
    let knowledge = known::knowledge(server, clusters).await?;
    let now = server.now();
    let (spec, peers) = (bound.with_where_it_is(), groups.peers_of(bound));
    let fleet = placed::fleet(server, clusters, &spec).await?;
    let request = bound.request(&spec, &fleet, &peers);
    let mut explained = place::explain(&request);
    if explained.result.is_err() && request.left.is_some() {
        // Where nothing else can take it, it goes back after all.
        explained = place::explain(&place::Request { left: None, ..request });
    }
    let rolls = waves(bound, clusters);
    let state = |cluster: &str| {
        let state = state(bound, cluster, knowledge.get(cluster), now);
        let wave = rolls.get(cluster).filter(|_| bound.placed().iter().any(|target| target.name == cluster));
        match wave {
            Some(wave) => [state, wave.clone()]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(", "),
            None => state,
        }
    };
    let placement = PlacementReport::of(&explained, placement, Some(bound.spec.replicas), state);
    if let Some(decided) = &placement.clusters
        && !alike(decided, bound.placed())
    {
        report.notes.push(
            "What would be decided now is not what is placed: what runs stays where it is until something asks for a \
             decision. `karmada-hub failback` does."
                .into(),
        );
    }
    report.notes.extend(at_odds(clusters, &placement, bound.placed()));
    report.placement = Some(placement);
    advise(&explained, &bound.spec.resource.kind, report);
    Ok(())
}

/// How each cluster stands to a change that goes out in waves and is not everywhere.
fn waves(bound: &Bound, clusters: &BTreeMap<String, Cluster>) -> BTreeMap<String, String> {
    let rolling = bound.rollout.as_ref().filter(|state| state.phase != Phase::Complete);
    let Some(state) = rolling else { return BTreeMap::new() };
    let order = Order::of(state);
    let said = |(name, cluster): (&String, &Cluster)| {
        let wave = order.wave(name, cluster.metadata.labels.as_ref());
        (name.clone(), rollout::words::of_wave(state, wave, state.reaches(wave, name)))
    };
    clusters.iter().map(said).collect()
}

/// What is said of the clusters that have an object or may get it: that settings of the hub and of their agents do not go
/// together.
pub(super) fn at_odds(
    clusters: &BTreeMap<String, Cluster>,
    placement: &PlacementReport,
    placed: &[TargetCluster],
) -> Vec<String> {
    let named = placement.verdicts.iter().filter(|row| row.verdict != "no").map(|row| row.cluster.as_str());
    let all: BTreeSet<&str> = named.chain(placed.iter().map(|target| target.name.as_str())).collect();
    all.into_iter().filter_map(|name| at_odds_with(clusters.get(name)?)).collect()
}

fn at_odds_with(cluster: &Cluster) -> Option<String> {
    let grace = conditions::find(&cluster.status.as_ref()?.conditions, extension::LINK_GRACE)?;
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    grace::AT_ODDS.contains(&grace.reason.as_str()).then(|| format!("{name}: {}.", grace.message))
}

/// What to do about a decision: something where there is none, or else what would bring the object elsewhere.
fn advise(explained: &place::Explained, kind: &str, report: &mut TemplateReport) {
    let advice = place::advice(explained, kind);
    match explained.result {
        Ok(_) => report.elsewhere.extend(advice),
        Err(_) => report.advice.extend(advice),
    }
}

/// What a cluster has of a binding's object now.
fn state(bound: &Bound, cluster: &str, known: Option<&Knowledge>, now: SystemTime) -> String {
    let leaving = bound.spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == cluster);
    let item = bound.status.aggregated_status.iter().find(|item| item.cluster_name == cluster);
    let Some(item) = item else {
        let wanted = bound.placed().iter().any(|target| target.name == cluster);
        return if wanted { "on its way".into() } else { String::new() };
    };
    let mut words = vec![match (item.applied, item.applied_message.as_str()) {
        (true, _) => "applied".to_owned(),
        (false, "") => "not applied yet".to_owned(),
        (false, why) => format!("not applied: {why}"),
    }];
    words.extend(item.health.filter(|_| item.applied).map(|health| health.to_string()));
    if leaving {
        words.push("leaving".into());
    }
    if let Some(Knowledge { at, .. }) = known.filter(|known| known.stale) {
        words.push(format!("stale since {}", human_age(*at, now)));
    }
    words.join(", ")
}

/// What a binding itself says beside where it is.
fn of_binding(bound: &Bound, report: &mut TemplateReport) {
    let spec = &bound.spec;
    if bound.deleting {
        report.notes.push("The binding is being deleted.".into());
    }
    if let Some(suspension) = &spec.suspension {
        if suspension.scheduling == Some(true) {
            report.notes.push("Scheduling is suspended (spec.suspension.scheduling).".into());
            report.advice.push("End the suspension of its scheduling.".into());
        }
        if suspension.dispatch.dispatching == Some(true) {
            report.notes.push("Nothing is sent to any cluster (spec.suspension.dispatching).".into());
            report.advice.push("End the suspension in the policy: spec.suspension.dispatching.".into());
        }
        if let Some(on) = &suspension.dispatch.dispatching_on_clusters {
            report.notes.push(format!(
                "Nothing is sent to {} (spec.suspension.dispatchingOnClusters).",
                on.cluster_names.join(", ")
            ));
        }
    }
    if !spec.scheduler_name.is_empty() && spec.scheduler_name != DEFAULT_SCHEDULER {
        report.notes.push(format!(
            "Scheduler {:?} places it, not this hub (spec.schedulerName).",
            spec.scheduler_name
        ));
    }
    if let Some(rolled) = conditions::find(&bound.status.conditions, extension::ROLLED_OUT) {
        report
            .notes
            .push(format!("Its last change goes out in waves: {}: {}.", rolled.reason, rolled.message));
        if ["Paused", "GateBroken", "AwaitsApproval"].contains(&rolled.reason.as_str()) {
            report.advice.push(format!(
                "Say what becomes of the change: karmada-hub rollout resume, abort or return {}.",
                crate::rollout::named(&spec.resource)
            ));
        }
    }
    if !spec.required_by.is_empty() {
        let by: Vec<_> = spec.required_by.iter().map(|by| format!("{}/{}", by.namespace, by.name)).collect();
        report.notes.push(format!("It follows what refers to it: {}.", by.join(", ")));
    } else if spec.placement.is_none() {
        report.notes.push("The binding has no placement: no policy has it.".into());
    }
    for task in &spec.graceful_eviction_tasks {
        report.notes.push(format!(
            "It is leaving {} ({} by {}){}.",
            task.from_cluster,
            task.reason,
            task.producer,
            if task.message.is_empty() { String::new() } else { format!(": {}", task.message) }
        ));
    }
    for type_ in [WORKS_SYNCED, extension::TEMPLATE_INTERPRETED, extension::ANNOTATIONS_UNDERSTOOD] {
        if let Some(condition) = conditions::find(&bound.status.conditions, type_) {
            report.advice.push(format!("{}: {}", condition.reason, condition.message));
        }
    }
    for item in bound.status.aggregated_status.iter().filter(|item| !item.applied_message.is_empty()) {
        let what = if item.applied { "" } else { " does not apply it" };
        report.advice.push(format!("{}{what}: {}", item.cluster_name, item.applied_message));
    }
}

#[cfg(test)]
mod tests {
    use karmada_objects::scope::Scope;
    use serde_json::json;

    use super::{super::report::Row, *};

    #[test]
    fn clusters_whose_settings_do_not_go_together_are_named_once() {
        let cluster = |name: &str, reason: &str| {
            let cluster = json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
                "spec": {"syncMode": "Pull"},
                "status": {"conditions": [{"type": "LinkGrace", "status": "True", "reason": reason,
                    "message": "it may be silent for 40s", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            (name.to_owned(), serde_json::from_value::<Cluster>(cluster).unwrap())
        };
        let clusters = BTreeMap::from([
            cluster("a", "GraceRaised"),
            cluster("b", "GraceLearnt"),
            cluster("c", "LeaseTooLong"),
            cluster("d", "GraceRaised"),
        ]);
        let row = |cluster: &str, verdict| Row {
            cluster: cluster.to_owned(),
            verdict,
            replicas: None,
            state: String::new(),
            rule: String::new(),
            observed: String::new(),
        };
        let placement = PlacementReport {
            division: String::new(),
            groups: vec![],
            clusters: None,
            error: String::new(),
            verdicts: vec![row("a", "yes"), row("b", "yes"), row("c", "no"), row("d", "no")],
        };
        let got = at_odds(&clusters, &placement, &[TargetCluster::new("a", 1), TargetCluster::new("c", 1)]);
        assert_eq!(got, ["a: it may be silent for 40s.", "c: it may be silent for 40s."]);
    }

    #[test]
    fn a_cluster_that_waits_for_its_wave_says_so() {
        let state = |phase: &str| {
            json!({
                "revision": "two", "base": "one", "kept": ["one", "two"], "phase": phase, "seed": "s", "open": 1,
                "waves": [{"name": "tier=pilot", "labels": "tier=pilot", "clusters": 1, "soak": 60},
                          {"name": "100%", "upto": "ffffffffffffffff", "clusters": 1, "soak": 60}],
            })
        };
        let cluster = |name: &str, tier: &str| {
            let cluster =
                json!({"metadata": {"name": name, "labels": {"tier": tier}}, "spec": {"syncMode": "Pull"}});
            (name.to_owned(), serde_json::from_value::<Cluster>(cluster).unwrap())
        };
        let clusters = BTreeMap::from([cluster("a", "pilot"), cluster("b", "shop")]);
        let said = |phase: &str| {
            let annotations = json!({ rollout::STATE: state(phase).to_string() });
            let binding = json!({
                "metadata": {"name": "web-deployment", "namespace": "shop", "annotations": annotations},
                "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
            });
            let said = waves(&Bound::read(Scope::Namespaced, &binding).unwrap(), &clusters);
            said.into_values().collect::<Vec<_>>().join("; ")
        };
        assert_eq!(said("Running"), "wave 1 of 2 (tier=pilot) has begun; waits for wave 2 of 2 (100%)");
        assert_eq!(
            said("AwaitsApproval"),
            "wave 1 of 2 (tier=pilot) has begun; wave 2 of 2 (100%) waits for an approval"
        );
        assert_eq!(
            said("Breached"),
            "wave 1 of 2 (tier=pilot) has begun; waits for wave 2 of 2 (100%): the change was stopped by its gate"
        );
        assert_eq!(said("Complete"), "");
    }

    #[test]
    fn what_is_never_propagated() {
        let table = [
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "w"}}),
                None,
            ),
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "kube-system", "name": "w"}}),
                Some("namespace kube-system"),
            ),
            (
                json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"namespace": "shop", "name": "w"}}),
                Some("kind Work"),
            ),
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "kube-root-ca.crt"}}),
                Some("makes for itself"),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "shop", "name": "w", "labels": {"karmada.io/managed": "true"}}}),
                Some("a copy"),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "shop", "name": "w", "deletionTimestamp": "x"}}),
                Some("deleted"),
            ),
        ];
        for (object, want) in table {
            let got = skipped(&object);
            assert_eq!(got.is_some(), want.is_some(), "{object}: {got:?}");
            assert!(got.unwrap_or_default().contains(want.unwrap_or_default()), "{object}");
        }
    }
}
