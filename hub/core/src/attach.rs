//! Dependencies: objects that go where others need them.
//!
//! ```text
//!   binding (propagateDeps) ─▶ what its object refers to ─▶ Need per object
//!                                                              │ all needs of one object
//!                                                              ▼
//!                                            attach() ─▶ the object's binding: requiredBy, no placement
//! ```
//!
//! The binding of a dependency is an attached one: it has no placement, and goes where its `requiredBy` says. If a
//! policy selects the object too, the binding has a placement of its own as well and keeps what the policy says.
//! Names, labels and what wins where needs disagree are Karmada's (pkg/dependenciesdistributor).

use std::collections::BTreeSet;

use karmada_api::{
    KarmadaKind,
    consts::{finalizer, label},
    policy::ConflictResolution,
    work::{BindingSnapshot, ClusterResourceBinding, ResourceBinding, ResourceBindingSpec, TargetCluster},
};
use karmada_meta::object;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::names;

/// A binding that needs another object where its own is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Need {
    /// The binding's namespace; empty for a ClusterResourceBinding.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its permanent id.
    pub id: String,
    /// Where its object is.
    pub clusters: Vec<TargetCluster>,
    /// What its policy says about objects that a member has already.
    pub conflict_resolution: ConflictResolution,
    /// Whether its policy leaves objects on members when templates go.
    pub preserve: bool,
}

impl Need {
    /// The need of a binding. An object that is leaving a cluster still needs what it refers to there: Karmada takes
    /// that away at once.
    pub fn of(binding: &Value, spec: &ResourceBindingSpec) -> Self {
        let mut clusters = spec.clusters.clone();
        for task in &spec.graceful_eviction_tasks {
            if !clusters.iter().any(|target| target.name == task.from_cluster) {
                clusters
                    .push(TargetCluster::new(task.from_cluster.as_str(), task.replicas.unwrap_or_default()));
            }
        }
        let id = match object::namespace(binding) {
            "" => label::CLUSTER_RESOURCE_BINDING_ID,
            _ => label::RESOURCE_BINDING_ID,
        };
        Self {
            namespace: object::namespace(binding).to_owned(),
            name: object::name(binding).to_owned(),
            id: object::label(binding, id).unwrap_or_default().to_owned(),
            clusters,
            conflict_resolution: spec.conflict_resolution,
            preserve: spec.preserve_resources_on_deletion.unwrap_or_default(),
        }
    }

    fn is(&self, snapshot: &BindingSnapshot) -> bool {
        self.namespace == snapshot.namespace && self.name == snapshot.name
    }

    fn snapshot(&self) -> BindingSnapshot {
        BindingSnapshot {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            clusters: self.clusters.clone(),
        }
    }

    fn label(&self) -> String {
        depended_by(&self.namespace, &self.name)
    }
}

/// The label that the binding of a dependency has for a binding that needs it; the value is that one's permanent id.
pub fn depended_by(namespace: &str, name: &str) -> String {
    format!("{}{}", label::DEPENDED_BY_PREFIX, names::binding_reference_key(namespace, name))
}

/// What is to be done about the binding of a dependency.
#[derive(Clone, Debug, PartialEq)]
pub enum Attach {
    /// It is as it should be.
    Nothing,
    /// Make it.
    Create(Value),
    /// Write it as it is here.
    Update(Value),
    /// Nobody needs it any more, and no policy has placed it.
    Delete,
}

/// Judges the binding of a dependency. `object`: the dependency as it was read. `needs`: all bindings that are known
/// to need it. `unknown`: whether of a binding in `requiredBy` it is not known yet what it needs; its entry stays.
pub fn attach(
    present: Option<&Value>,
    object: &Value,
    needs: &[Need],
    unknown: impl Fn(&BindingSnapshot) -> bool,
) -> Attach {
    let Some(present) = present else {
        // Where nothing is placed nothing is needed yet.
        let placed = needs.iter().any(|need| !need.clusters.is_empty());
        return if placed { Attach::Create(created(object, needs)) } else { Attach::Nothing };
    };
    if object::deletion_timestamp(present).is_some() {
        return Attach::Nothing;
    }
    let Ok(spec) = ResourceBindingSpec::deserialize(&present["spec"]) else { return Attach::Nothing };
    let kept: Vec<_> = spec
        .required_by
        .iter()
        .filter(|entry| unknown(entry) && !needs.iter().any(|need| need.is(entry)))
        .cloned()
        .collect();
    let required_by = merged(&spec.required_by, needs, &kept);
    let policies = [label::PROPAGATION_POLICY_ID, label::CLUSTER_PROPAGATION_POLICY_ID];
    let placed = spec.placement.is_some() || policies.iter().any(|id| object::label(present, id).is_some());
    let mut wanted = present.clone();
    let attached = relabel(&mut wanted, &required_by, needs);
    if required_by.is_empty() && !placed {
        return if attached || !spec.required_by.is_empty() { Attach::Delete } else { Attach::Nothing };
    }
    if json!(required_by) != json!(spec.required_by) {
        let fields = object::ensure_map(&mut wanted, "spec");
        match required_by.is_empty() {
            true => drop(fields.remove("requiredBy")),
            false => drop(fields.insert("requiredBy".into(), json!(required_by))),
        }
    }
    if !placed {
        wanted["spec"]["resource"] = reference(object);
        if !object::owner_references(&wanted).iter().any(|owner| owner.uid == object::uid(object)) {
            object::set_meta(&mut wanted, "ownerReferences", owners(object));
        }
        // While some of those who need it are not known, nothing weaker than what stands there is decided.
        let agreed = Agreement::of(needs);
        if kept.is_empty() || agreed.conflict_resolution == ConflictResolution::Overwrite {
            wanted["spec"]["conflictResolution"] = json!(agreed.conflict_resolution);
        }
        if kept.is_empty() || agreed.preserve {
            wanted["spec"]["preserveResourcesOnDeletion"] = json!(agreed.preserve);
        }
    }
    if wanted == *present { Attach::Nothing } else { Attach::Update(wanted) }
}

/// The entries as they are to be: those that were there in their order, then the new ones by name.
fn merged(present: &[BindingSnapshot], needs: &[Need], kept: &[BindingSnapshot]) -> Vec<BindingSnapshot> {
    let mut entries = Vec::new();
    for entry in present {
        if let Some(need) = needs.iter().find(|need| need.is(entry)) {
            entries.push(need.snapshot());
        } else if kept.contains(entry) {
            entries.push(entry.clone());
        }
    }
    let mut new: Vec<_> = needs
        .iter()
        .filter(|need| !need.clusters.is_empty() && !present.iter().any(|entry| need.is(entry)))
        .map(Need::snapshot)
        .collect();
    new.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    entries.extend(new);
    entries
}

/// Gives a binding the labels of those that need it, and takes off those of others. Whether it had any.
fn relabel(binding: &mut Value, entries: &[BindingSnapshot], needs: &[Need]) -> bool {
    let had: Vec<String> = object::labels(binding)
        .into_iter()
        .flat_map(serde_json::Map::keys)
        .filter(|key| key.starts_with(label::DEPENDED_BY_PREFIX))
        .cloned()
        .collect();
    let stay: BTreeSet<String> =
        entries.iter().map(|entry| depended_by(&entry.namespace, &entry.name)).collect();
    for key in had.iter().filter(|key| !stay.contains(*key)) {
        object::remove_label(binding, key);
    }
    for need in needs.iter().filter(|need| stay.contains(&need.label())) {
        object::set_label(binding, &need.label(), need.id.as_str());
    }
    !had.is_empty()
}

fn created(object: &Value, needs: &[Need]) -> Value {
    let namespace = object::namespace(object);
    let (api_version, kind, finalizer) = match namespace {
        "" => (
            ClusterResourceBinding::API_VERSION,
            ClusterResourceBinding::KIND,
            finalizer::CLUSTER_RESOURCE_BINDING,
        ),
        _ => (ResourceBinding::API_VERSION, ResourceBinding::KIND, finalizer::BINDING),
    };
    let agreed = Agreement::of(needs);
    let mut binding = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": names::binding_name(object::kind(object), object::name(object)),
            "finalizers": [finalizer],
            "ownerReferences": owners(object),
        },
        "spec": {
            "resource": reference(object),
            "requiredBy": merged(&[], needs, &[]),
            "conflictResolution": agreed.conflict_resolution,
            "preserveResourcesOnDeletion": agreed.preserve,
        },
    });
    if !namespace.is_empty() {
        object::set_meta(&mut binding, "namespace", namespace);
    }
    for need in needs.iter().filter(|need| !need.clusters.is_empty()) {
        object::set_label(&mut binding, &need.label(), need.id.as_str());
    }
    binding
}

fn reference(object: &Value) -> Value {
    let mut reference = json!({
        "apiVersion": object::api_version(object),
        "kind": object::kind(object),
        "name": object::name(object),
        "uid": object::uid(object),
        "resourceVersion": object::resource_version(object),
    });
    if !object::namespace(object).is_empty() {
        reference["namespace"] = object::namespace(object).into();
    }
    reference
}

fn owners(object: &Value) -> Value {
    json!([{
        "apiVersion": object::api_version(object), "kind": object::kind(object),
        "name": object::name(object), "uid": object::uid(object),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// What comes of several needs of one object: what is not the default wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Overwrite, if any says so.
    pub conflict_resolution: ConflictResolution,
    /// Whether any wants it preserved.
    pub preserve: bool,
    /// In what they disagree, in Karmada's words; empty when they do not.
    pub conflicts: Vec<&'static str>,
}

impl Agreement {
    /// What these needs come to.
    pub fn of(needs: &[Need]) -> Self {
        let overwrite = |need: &Need| need.conflict_resolution == ConflictResolution::Overwrite;
        let mut agreed = Self::default();
        if needs.iter().any(overwrite) {
            agreed.conflict_resolution = ConflictResolution::Overwrite;
            if !needs.iter().all(overwrite) {
                agreed.conflicts.push("ConflictResolution conflicted (Overwrite vs Abort)");
            }
        }
        if needs.iter().any(|need| need.preserve) {
            agreed.preserve = true;
            if !needs.iter().all(|need| need.preserve) {
                agreed.conflicts.push("PreserveResourcesOnDeletion conflicted (true vs false)");
            }
        }
        agreed
    }

    /// What a person is told: in what they disagree, who says what, and what holds. Nothing when they agree.
    pub fn message(&self, needs: &[Need]) -> Option<String> {
        if self.conflicts.is_empty() {
            return None;
        }
        let said: Vec<String> = needs
            .iter()
            .take(NAMED)
            .map(|need| {
                let key = match need.namespace.as_str() {
                    "" => need.name.clone(),
                    namespace => format!("{namespace}/{}", need.name),
                };
                format!("{key} says {}, preserve {}", need.conflict_resolution.as_str(), need.preserve)
            })
            .collect();
        Some(format!(
            "Dependency policy conflict detected: {}. {}. What holds is {}, preserve {}.",
            self.conflicts.join("; "),
            said.join("; "),
            self.conflict_resolution.as_str(),
            self.preserve
        ))
    }
}

/// How many bindings a message names.
const NAMED: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn need(name: &str, clusters: &[&str]) -> Need {
        Need {
            namespace: "shop".into(),
            name: name.into(),
            id: format!("id-{name}"),
            clusters: clusters.iter().map(|name| TargetCluster::new(*name, 1)).collect(),
            ..Need::default()
        }
    }

    fn config(version: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "shop", "uid": "u", "resourceVersion": version},
        })
    }

    fn made(needs: &[Need]) -> Value {
        match attach(None, &config("1"), needs, |_| false) {
            Attach::Create(binding) => binding,
            other => panic!("{other:?}"),
        }
    }

    fn update(present: &Value, version: &str, needs: &[Need], unknown: bool) -> Value {
        match attach(Some(present), &config(version), needs, |_| unknown) {
            Attach::Update(binding) => binding,
            other => panic!("{other:?}"),
        }
    }

    fn required_by(binding: &Value) -> Vec<(String, Vec<String>)> {
        let entries = Vec::<BindingSnapshot>::deserialize(&binding["spec"]["requiredBy"]).unwrap_or_default();
        let names = |targets: Vec<TargetCluster>| targets.into_iter().map(|target| target.name).collect();
        entries.into_iter().map(|entry| (entry.name, names(entry.clusters))).collect()
    }

    fn labels(binding: &Value) -> Vec<(String, String)> {
        let prefix = label::DEPENDED_BY_PREFIX;
        object::label_map(binding).into_iter().filter(|(key, _)| key.starts_with(prefix)).collect()
    }

    fn entry(name: &str, clusters: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), clusters.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn it_goes_where_it_is_needed() {
        let binding = made(&[need("b", &["m2"]), need("a", &["m1", "m2"]), need("unplaced", &[])]);
        assert_eq!(object::key(&binding), "shop/c-configmap");
        assert_eq!(required_by(&binding), [entry("a", &["m1", "m2"]), entry("b", &["m2"])]);
        assert_eq!(labels(&binding).len(), 2);
        assert!(labels(&binding).contains(&(depended_by("shop", "a"), "id-a".into())));
        assert_eq!(attach(None, &config("1"), &[need("a", &[])], |_| false), Attach::Nothing);
        assert_eq!(attach(None, &config("1"), &[], |_| false), Attach::Nothing);
    }

    #[test]
    fn it_follows_and_is_shared() {
        let one = made(&[need("a", &["m1"])]);
        let same = attach(Some(&one), &config("1"), &[need("a", &["m1"])], |_| false);
        assert_eq!(same, Attach::Nothing);
        let moved = update(&one, "1", &[need("a", &["m3"])], false);
        assert_eq!(required_by(&moved), [entry("a", &["m3"])]);
        let shared = update(&one, "1", &[need("0", &["m2"]), need("a", &["m1"])], false);
        assert_eq!(required_by(&shared), [entry("a", &["m1"]), entry("0", &["m2"])], "the old ones first");
        let left = update(&shared, "1", &[need("0", &["m2"])], false);
        assert_eq!(required_by(&left), [entry("0", &["m2"])]);
        assert_eq!(labels(&left), [(depended_by("shop", "0"), "id-0".to_owned())]);
        let without = update(&one, "1", &[need("a", &[])], false);
        assert_eq!(required_by(&without), [entry("a", &[])], "its workload has lost its place for now");
        let changed = update(&one, "2", &[need("a", &["m1"])], false);
        assert_eq!(changed["spec"]["resource"]["resourceVersion"], "2", "another content goes out");
    }

    #[test]
    fn the_last_need_takes_it_along() {
        let one = made(&[need("a", &["m1"])]);
        assert_eq!(attach(Some(&one), &config("1"), &[], |_| false), Attach::Delete);
        assert_eq!(attach(Some(&one), &config("1"), &[], |_| true), Attach::Nothing, "not known yet");
        let both = update(&one, "1", &[need("b", &["m2"])], true);
        assert_eq!(required_by(&both), [entry("a", &["m1"]), entry("b", &["m2"])]);
        let mut foreign = one.clone();
        object::ensure_map(&mut foreign, "spec").remove("requiredBy");
        object::remove_label(&mut foreign, &depended_by("shop", "a"));
        assert_eq!(attach(Some(&foreign), &config("1"), &[], |_| false), Attach::Nothing, "somebody else's");
        let mut going = one;
        object::set_meta(&mut going, "deletionTimestamp", "2026-01-01T00:00:00Z");
        assert_eq!(attach(Some(&going), &config("1"), &[], |_| false), Attach::Nothing);
    }

    #[test]
    fn what_a_policy_places_stays_as_the_policy_says() {
        let mut placed = made(&[need("a", &["m1"])]);
        object::remove_label(&mut placed, &depended_by("shop", "a"));
        object::remove_meta(&mut placed, "labels");
        placed["spec"] = json!({
            "resource": reference(&config("1")), "placement": {"clusterAffinity": {"clusterNames": ["m9"]}},
            "clusters": [{"name": "m9"}], "conflictResolution": "Abort",
        });
        let overwriting =
            Need { conflict_resolution: ConflictResolution::Overwrite, preserve: true, ..need("a", &["m1"]) };
        let both = update(&placed, "2", &[overwriting], false);
        assert_eq!(required_by(&both), [entry("a", &["m1"])]);
        let mut spec = both["spec"].clone();
        spec.as_object_mut().unwrap().remove("requiredBy");
        assert_eq!(spec, placed["spec"], "nothing else");
        let mut alone = update(&both, "2", &[], false);
        object::remove_meta(&mut alone, "labels");
        assert_eq!(alone, placed);
    }

    fn made_by_policies(needs: &[(&str, ConflictResolution, bool)]) -> Vec<Need> {
        needs
            .iter()
            .map(|(name, conflict_resolution, preserve)| Need {
                conflict_resolution: *conflict_resolution,
                preserve: *preserve,
                ..need(name, &["m1"])
            })
            .collect()
    }

    #[test]
    fn what_is_not_the_default_wins() {
        use ConflictResolution::{Abort, Overwrite};
        let table = [
            (vec![("a", Abort, false)], Abort, false, 0),
            (vec![("a", Overwrite, true)], Overwrite, true, 0),
            (vec![("a", Abort, false), ("b", Overwrite, false)], Overwrite, false, 1),
            (vec![("a", Abort, true), ("b", Overwrite, false)], Overwrite, true, 2),
            (vec![], Abort, false, 0),
        ];
        for (needs, conflict_resolution, preserve, conflicts) in table {
            let needs = made_by_policies(&needs);
            let agreed = Agreement::of(&needs);
            assert_eq!((agreed.conflict_resolution, agreed.preserve), (conflict_resolution, preserve));
            assert_eq!(agreed.conflicts.len(), conflicts);
            assert_eq!(agreed.message(&needs).is_some(), conflicts > 0);
        }
        let needs = made_by_policies(&[("a", Abort, false), ("b", Overwrite, false)]);
        assert_eq!(
            Agreement::of(&needs).message(&needs).unwrap(),
            "Dependency policy conflict detected: ConflictResolution conflicted (Overwrite vs Abort). \
             shop/a says Abort, preserve false; shop/b says Overwrite, preserve false. \
             What holds is Overwrite, preserve false."
        );
        let binding = made(&needs);
        assert_eq!(binding["spec"]["conflictResolution"], "Overwrite");
        let weaker = update(&binding, "1", &made_by_policies(&[("a", Abort, false)]), false);
        assert_eq!(weaker["spec"]["conflictResolution"], "Abort");
        let unknown = update(&binding, "2", &made_by_policies(&[("a", Abort, false)]), true);
        assert_eq!(unknown["spec"]["conflictResolution"], "Overwrite", "b has not said anything else");
    }

    #[test]
    fn what_leaves_a_cluster_needs_its_things_there_until_it_has_left() {
        let spec = ResourceBindingSpec::deserialize(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "namespace": "shop"},
            "clusters": [{"name": "m2", "replicas": 2}],
            "gracefulEvictionTasks": [{"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "p"}],
        }))
        .unwrap();
        let binding = json!({"metadata": {"name": "d-deployment", "namespace": "shop",
            "labels": {"resourcebinding.karmada.io/permanent-id": "x"}}});
        let need = Need::of(&binding, &spec);
        assert_eq!(need.id, "x");
        let clusters: Vec<_> = need.clusters.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(clusters, ["m2", "m1"]);
    }
}
