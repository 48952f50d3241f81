//! The Work that carries an object to one cluster.
//!
//! ```text
//!   template ─▶ replicas revised ─▶ overridden ─▶ build() ─▶ Work
//!   (interpreter)  (interpreter)    (overrides)     │
//!                                                   └ prune, labels and annotations, stamps
//! ```
//!
//! What stands in a Work is what Karmada writes, key for key, so that its agents apply ours and ours apply its.

use std::collections::BTreeMap;

use karmada_api::{
    KarmadaKind,
    cluster::Cluster,
    conditions::Condition,
    consts::{annotation, condition, extension, finalizer, label, reason},
    policy::{ConflictResolution, ReplicaSchedulingType},
    work::{ClusterResourceBinding, ResourceBinding, ResourceBindingSpec, TargetCluster, Work},
};
use karmada_meta::{object, time::Time};
use serde_json::{Map, Value, json};

use crate::{
    divide::{Share, TieBreak, apportion},
    names,
    overrides::Applied,
};

/// What of a binding goes into its Works.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// Its namespace; `None` for a ClusterResourceBinding.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// Its permanent id.
    pub id: &'a str,
    /// Its spec.
    pub spec: &'a ResourceBindingSpec,
}

impl<'a> From<&'a ResourceBinding> for Binding<'a> {
    fn from(binding: &'a ResourceBinding) -> Self {
        Self {
            namespace: Some(binding.metadata.namespace.as_deref().unwrap_or_default()),
            name: binding.metadata.name.as_deref().unwrap_or_default(),
            id: text(binding.metadata.labels.as_ref(), label::RESOURCE_BINDING_ID),
            spec: &binding.spec,
        }
    }
}

impl<'a> From<&'a ClusterResourceBinding> for Binding<'a> {
    fn from(binding: &'a ClusterResourceBinding) -> Self {
        Self {
            namespace: None,
            name: binding.metadata.name.as_deref().unwrap_or_default(),
            id: text(binding.metadata.labels.as_ref(), label::CLUSTER_RESOURCE_BINDING_ID),
            spec: &binding.spec,
        }
    }
}

fn text<'a>(map: Option<&'a BTreeMap<String, String>>, key: &str) -> &'a str {
    map.and_then(|map| map.get(key)).map_or("", String::as_str)
}

/// The clusters that get a Work: those the binding is scheduled to, then those of bindings that require it.
pub fn targets(spec: &ResourceBindingSpec) -> Vec<TargetCluster> {
    let mut targets = spec.clusters.clone();
    for target in spec.required_by.iter().flat_map(|snapshot| &snapshot.clusters) {
        if !targets.iter().any(|known| known.name == target.name) {
            targets.push(target.clone());
        }
    }
    targets
}

/// The replicas that a target's manifest gets, if the object has replicas at all. What the scheduler decided holds,
/// not what stands in the template.
pub fn replicas(spec: &ResourceBindingSpec, target: &TargetCluster) -> Option<i64> {
    (spec.replicas > 0).then_some(i64::from(target.replicas))
}

/// The completions of a divided Job for each target, in proportion to its parallelism there. `None` where the
/// template names no completions, or the Job is not divided.
pub fn job_completions(spec: &ResourceBindingSpec, template: &Value) -> Option<BTreeMap<String, i64>> {
    let scheduling = spec.placement.as_ref()?.replica_scheduling.as_ref()?;
    let divided = scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided;
    if object::kind(template) != "Job" || spec.replicas <= 0 || !divided {
        return None;
    }
    let completions = template["spec"]["completions"].as_i64()?;
    let targets = targets(spec);
    let shares = targets.iter().map(|target| Share {
        name: &target.name,
        votes: i64::from(target.replicas),
        seats: 0,
    });
    let completions = apportion(completions, shares, TieBreak::Ascending);
    Some(completions.into_iter().map(|(name, completions)| (name.to_owned(), completions)).collect())
}

/// Whether a target's Work is held back.
pub fn suspended(spec: &ResourceBindingSpec, cluster: &str) -> bool {
    let Some(suspension) = &spec.suspension else { return false };
    let on_cluster = suspension.dispatch.dispatching_on_clusters.as_ref();
    suspension.dispatch.dispatching == Some(true)
        || on_cluster.is_some_and(|clusters| clusters.cluster_names.iter().any(|name| name == cluster))
}

/// The Work of a binding for one cluster. `manifest` is the template, revised and overridden, with its metadata as
/// it was read. `existing` is the Work that is there, which keeps its id and whatever others wrote on it; without
/// one, `new_id` makes an id. Nothing has to be written if the result equals `existing`.
pub fn build(
    binding: &Binding<'_>,
    manifest: Value,
    applied: &Applied,
    cluster: &str,
    existing: Option<&Value>,
    new_id: impl FnOnce() -> String,
) -> Value {
    let mut work = begin(&manifest, cluster, existing, new_id);
    let mut manifest = manifest;
    let generation = object::generation(&manifest);
    if generation > 0 {
        object::set_annotation(&mut manifest, annotation::TEMPLATE_GENERATION, generation.to_string());
    }
    let conflict = conflict_resolution(&manifest, binding.spec.conflict_resolution);
    let (id_label, mut marks) = match binding.namespace {
        Some(namespace) => (
            label::RESOURCE_BINDING_ID,
            vec![
                (annotation::RESOURCE_BINDING_NAMESPACE, namespace),
                (annotation::RESOURCE_BINDING_NAME, binding.name),
            ],
        ),
        None => (
            label::CLUSTER_RESOURCE_BINDING_ID,
            vec![(annotation::CLUSTER_RESOURCE_BINDING_NAME, binding.name)],
        ),
    };
    marks.push((annotation::CONFLICT_RESOLUTION, conflict));
    for object in [&mut work, &mut manifest] {
        object::set_label(object, id_label, binding.id);
        for (key, value) in &marks {
            object::set_annotation(object, key, *value);
        }
    }
    record(&mut work, applied);
    // It is wanted, whatever was thought of it while its cluster was away.
    object::remove_annotation(&mut work, extension::UNWANTED_SINCE);
    finish(&mut work, manifest);
    work["spec"]["suspendDispatching"] = json!(suspended(binding.spec, cluster));
    work["spec"]["preserveResourcesOnDeletion"] =
        json!(binding.spec.preserve_resources_on_deletion.unwrap_or_default());
    work
}

/// The Work by which a Namespace is provided on a cluster. It belongs to the Namespace on the hub and goes with it.
pub fn build_namespace(
    namespace: &Value,
    applied: &Applied,
    cluster: &str,
    existing: Option<&Value>,
    new_id: impl FnOnce() -> String,
) -> Value {
    let mut work = begin(namespace, cluster, existing, new_id);
    record(&mut work, applied);
    object::remove_annotation(&mut work, extension::UNWANTED_SINCE);
    let owner = json!([{
        "apiVersion": object::api_version(namespace), "kind": object::kind(namespace),
        "name": object::name(namespace), "uid": object::uid(namespace),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    object::set_meta(&mut work, "ownerReferences", owner);
    finish(&mut work, namespace.clone());
    work
}

/// The Work by which a cluster gets its part of a FederatedResourceQuota: `manifest` is a ResourceQuota with the uid of
/// that one.
pub fn build_quota(
    manifest: &Value,
    cluster: &str,
    existing: Option<&Value>,
    new_id: impl FnOnce() -> String,
) -> Value {
    let mut work = begin(manifest, cluster, existing, new_id);
    object::remove_annotation(&mut work, extension::UNWANTED_SINCE);
    let (namespace, name) = (object::namespace(manifest), object::name(manifest));
    object::set_label(&mut work, label::FEDERATED_RESOURCE_QUOTA_NAMESPACE, namespace);
    object::set_label(&mut work, label::FEDERATED_RESOURCE_QUOTA_NAME, name);
    object::set_label(&mut work, label::MANAGED, label::MANAGED_VALUE);
    finish(&mut work, manifest.clone());
    work
}

/// The Work by which a cluster gets an object that is made for it alone. It belongs to the Cluster on the hub, by its uid, and
/// goes with it.
pub fn build_for_cluster(
    manifest: &Value,
    cluster: &str,
    uid: &str,
    existing: Option<&Value>,
    new_id: impl FnOnce() -> String,
) -> Value {
    let mut work = begin(manifest, cluster, existing, new_id);
    object::remove_annotation(&mut work, extension::UNWANTED_SINCE);
    let owner = json!([{
        "apiVersion": Cluster::API_VERSION, "kind": Cluster::KIND, "name": cluster, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    object::set_meta(&mut work, "ownerReferences", owner);
    finish(&mut work, manifest.clone());
    work
}

/// Records in a Work which overrides its manifest has seen.
fn record(work: &mut Value, applied: &Applied) {
    for key in [annotation::APPLIED_CLUSTER_OVERRIDES, annotation::APPLIED_OVERRIDES] {
        object::remove_annotation(work, key);
    }
    for (key, value) in applied.annotations() {
        object::set_annotation(work, key, value);
    }
}

/// The shell of a Work, with its id.
fn begin(
    manifest: &Value,
    cluster: &str,
    existing: Option<&Value>,
    new_id: impl FnOnce() -> String,
) -> Value {
    let mut work = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": Work::API_VERSION,
            "kind": Work::KIND,
            "metadata": {
                "name": names::work_name(object::kind(manifest), object::namespace(manifest), object::name(manifest)),
                "namespace": names::execution_namespace(cluster),
            },
            "spec": {},
        })
    });
    object::add_finalizer(&mut work, finalizer::EXECUTION);
    if object::label(&work, label::WORK_ID).is_none_or(str::is_empty) {
        object::set_label(&mut work, label::WORK_ID, new_id());
    }
    work
}

/// Puts the manifest into the Work, with the marks by which it leads back to it.
pub(crate) fn finish(work: &mut Value, mut manifest: Value) {
    let uid = object::uid(&manifest).to_owned();
    object::set_label(&mut manifest, label::MANAGED, label::MANAGED_VALUE);
    object::set_annotation(&mut manifest, annotation::TEMPLATE_UID, uid);
    object::set_annotation(&mut manifest, annotation::WORK_NAMESPACE, object::namespace(work));
    object::set_annotation(&mut manifest, annotation::WORK_NAME, object::name(work));
    stamp(&mut manifest, object::label(work, label::WORK_ID).unwrap_or_default());
    let spec = object::ensure_map(work, "spec");
    spec.insert("workload".into(), json!({"manifests": [manifest]}));
}

/// What admission does to each manifest of a Work, and [`build`] too: takes off what only means something on the
/// hub, puts the Work's id on, and records which labels and annotations are ours.
pub fn stamp(manifest: &mut Value, work_id: &str) {
    prune(manifest);
    // The record of annotations names both records, also the one that is not there yet.
    let own = [annotation::MANAGED_ANNOTATIONS, annotation::MANAGED_LABELS];
    let annotations = keys(object::annotations(manifest), &own);
    object::set_annotation(manifest, annotation::MANAGED_ANNOTATIONS, annotations);
    if !work_id.is_empty() {
        object::set_label(manifest, label::WORK_ID, work_id);
    }
    let labels = keys(object::labels(manifest), &[]);
    object::set_annotation(manifest, annotation::MANAGED_LABELS, labels);
}

/// The keys of a map and some others, sorted, in one text.
fn keys(map: Option<&Map<String, Value>>, others: &[&str]) -> String {
    let mut keys: Vec<_> =
        map.into_iter().flat_map(Map::keys).map(String::as_str).chain(others.iter().copied()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.join(",")
}

/// Takes off a manifest what only means something on the hub. What more a kind needs, the interpreter takes off.
pub fn prune(manifest: &mut Value) {
    for field in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
        "ownerReferences",
        "finalizers",
    ] {
        object::remove_meta(manifest, field);
    }
    if let Some(manifest) = manifest.as_object_mut() {
        manifest.shift_remove("status");
    }
}

/// What happens to an object of the same name that is not ours: what the template's annotation says, else what the
/// policy says.
fn conflict_resolution(manifest: &Value, of_binding: ConflictResolution) -> &'static str {
    let known = [annotation::CONFLICT_RESOLUTION_ABORT, annotation::CONFLICT_RESOLUTION_OVERWRITE];
    let on_template = object::annotation(manifest, annotation::CONFLICT_RESOLUTION);
    if let Some(known) = known.into_iter().find(|known| on_template == Some(known)) {
        return known;
    }
    match of_binding {
        ConflictResolution::Abort => annotation::CONFLICT_RESOLUTION_ABORT,
        ConflictResolution::Overwrite => annotation::CONFLICT_RESOLUTION_OVERWRITE,
    }
}

/// The Applied condition of a Work after its manifests were tried: how many there are, and what went wrong.
pub fn applied_condition(manifests: usize, errors: &[String], now: Time) -> Condition {
    let message = match errors {
        [] => {
            let (reason, message) = (reason::APPLIED_SUCCESSFUL, reason::APPLIED_SUCCESSFUL_MESSAGE);
            return Condition::new(condition::APPLIED, true, reason, message, now);
        }
        [error] => error.clone(),
        errors => format!("[{}]", errors.join(", ")),
    };
    let good = manifests.saturating_sub(errors.len());
    let message = format!("Failed to apply all manifests ({good}/{manifests}): {message}");
    Condition::new(condition::APPLIED, false, reason::APPLIED_FAILED, message, now)
}

/// The Dispatching condition of a Work.
pub fn dispatching_condition(suspended: bool, now: Time) -> Condition {
    let (reason, message) = if suspended {
        (reason::SUSPEND_DISPATCHING, reason::SUSPEND_DISPATCHING_MESSAGE)
    } else {
        (reason::DISPATCHING, reason::DISPATCHING_MESSAGE)
    };
    Condition::new(condition::DISPATCHING, !suspended, reason, message, now)
}

/// Whether two objects that would have the same Work name are different objects: names hold no group, so kinds of
/// one name in two groups collide. Answers what the Work already carries.
pub fn collision(existing: &Value, manifest: &Value) -> Option<String> {
    let first = existing.pointer("/spec/workload/manifests/0")?;
    let group = |object: &Value| object::gvk(object).map(|gvk| gvk.group_kind());
    let same = group(first) == group(manifest)
        && object::name(first) == object::name(manifest)
        && object::namespace(first) == object::namespace(manifest);
    (!same).then(|| {
        let kind = group(first).map_or_else(|| object::kind(first).to_owned(), |kind| kind.to_string());
        format!("{kind} {}", object::key(first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(extra: Value) -> ResourceBinding {
        let mut spec = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"},
            "replicas": 3,
            "clusters": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}],
        });
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({
            "metadata": {"name": "web-deployment", "namespace": "shop", "labels": {label::RESOURCE_BINDING_ID: "rb"}},
            "spec": spec,
        }))
        .unwrap()
    }

    fn template() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "generation": 2, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"], "labels": {"app": "web"},
                "managedFields": [], "ownerReferences": [],
            },
            "spec": {"replicas": 1},
            "status": {"replicas": 3},
        })
    }

    fn built(binding: &ResourceBinding, existing: Option<&Value>) -> Value {
        build(&binding.into(), template(), &Applied::default(), "a", existing, || "id".into())
    }

    #[test]
    fn a_manifest_leads_back_to_its_work() {
        let work = built(&binding(json!({})), None);
        assert_eq!(object::key(&work), "karmada-es-a/web-56d6c779bb");
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert_eq!(object::annotation(manifest, annotation::WORK_NAME), Some("web-56d6c779bb"));
        assert_eq!(object::annotation(manifest, annotation::TEMPLATE_GENERATION), Some("2"));
        assert_eq!(
            object::annotation(manifest, annotation::MANAGED_LABELS),
            Some(
                "app,karmada.io/managed,resourcebinding.karmada.io/permanent-id,work.karmada.io/permanent-id"
            )
        );
        let fields: Vec<_> = manifest["metadata"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, ["name", "namespace", "labels", "annotations"], "the rest is the hub's");
        assert!(manifest.get("status").is_none());
    }

    #[test]
    fn an_unchanged_work_is_not_written() {
        let plain = binding(json!({}));
        let mut there = built(&plain, None);
        there["metadata"]["resourceVersion"] = json!("9");
        there["status"] = json!({"conditions": []});
        object::set_annotation(&mut there, "mine", "kept");
        assert_eq!(built(&plain, Some(&there)), there);

        let mut marked = there.clone();
        object::set_annotation(&mut marked, extension::UNWANTED_SINCE, "2026-01-01T00:00:00Z");
        object::set_annotation(&mut marked, annotation::APPLIED_OVERRIDES, "[]");
        assert_eq!(built(&plain, Some(&marked)), there, "wanted again, and no longer overridden");

        let suspended = binding(json!({"suspension": {"dispatching": true}}));
        assert_ne!(built(&suspended, Some(&there)), there);
    }

    #[test]
    fn works_are_held_back_where_it_is_said() {
        let table = [
            ("nothing said", json!({}), false),
            ("everywhere", json!({"suspension": {"dispatching": true}}), true),
            ("here", json!({"suspension": {"dispatchingOnClusters": {"clusterNames": ["a"]}}}), true),
            ("elsewhere", json!({"suspension": {"dispatchingOnClusters": {"clusterNames": ["b"]}}}), false),
            ("only the scheduler", json!({"suspension": {"scheduling": true}}), false),
        ];
        for (message, extra, want) in table {
            assert_eq!(built(&binding(extra), None)["spec"]["suspendDispatching"], want, "{message}");
        }
    }

    #[test]
    fn conflicts_are_resolved_as_the_template_says_or_the_policy() {
        let table = [
            (None, ConflictResolution::Abort, "abort"),
            (None, ConflictResolution::Overwrite, "overwrite"),
            (Some("abort"), ConflictResolution::Overwrite, "abort"),
            (Some("overwrite"), ConflictResolution::Abort, "overwrite"),
            (Some("nonsense"), ConflictResolution::Overwrite, "overwrite"),
        ];
        for (on_template, of_binding, want) in table {
            let mut manifest = template();
            if let Some(value) = on_template {
                object::set_annotation(&mut manifest, annotation::CONFLICT_RESOLUTION, value);
            }
            assert_eq!(conflict_resolution(&manifest, of_binding), want, "{on_template:?} {of_binding}");
        }
    }

    #[test]
    fn required_clusters_get_a_work_too() {
        let binding = binding(json!({"requiredBy": [
            {"name": "x", "clusters": [{"name": "b", "replicas": 9}, {"name": "c", "replicas": 4}]}]}));
        let names: Vec<_> = targets(&binding.spec).into_iter().map(|t| (t.name, t.replicas)).collect();
        assert_eq!(names, [("a".into(), 1), ("b".into(), 2), ("c".into(), 4)]);
        assert_eq!(replicas(&binding.spec, &binding.spec.clusters[1]), Some(2));
    }

    #[test]
    fn completions_follow_parallelism() {
        let divided = json!({"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}});
        let job = json!({"kind": "Job", "spec": {"completions": 6}});
        let completions = job_completions(&binding(divided.clone()).spec, &job).unwrap();
        assert_eq!(completions, BTreeMap::from([("a".into(), 2), ("b".into(), 4)]));
        assert_eq!(job_completions(&binding(divided).spec, &json!({"kind": "Job", "spec": {}})), None);
        assert_eq!(job_completions(&binding(json!({})).spec, &job), None, "duplicated");
    }

    #[test]
    fn conditions_are_karmadas() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let message = |errors: &[&str]| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            applied_condition(2, &errors, now).message
        };
        assert_eq!(message(&[]), "Manifest has been successfully applied");
        assert_eq!(message(&["a"]), "Failed to apply all manifests (1/2): a");
        assert_eq!(message(&["a", "b"]), "Failed to apply all manifests (0/2): [a, b]");
        assert_eq!(dispatching_condition(true, now).reason, "SuspendDispatching");
        assert_eq!(dispatching_condition(false, now).reason, "Dispatching");
    }

    #[test]
    fn kinds_of_one_name_in_two_groups_collide() {
        let work = built(&binding(json!({})), None);
        let mut other = template();
        assert_eq!(collision(&work, &other), None);
        other["apiVersion"] = json!("apps/v2");
        assert_eq!(collision(&work, &other), None, "another version of the same");
        other["apiVersion"] = json!("example.com/v1");
        assert_eq!(collision(&work, &other).as_deref(), Some("Deployment.apps shop/web"));
    }
}
