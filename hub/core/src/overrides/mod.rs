//! What differs from cluster to cluster: override policies applied to a manifest.
//!
//! ```text
//!   ClusterOverridePolicies ─┐ closest match last, by name  ┌▶ manifest, changed
//!   OverridePolicies        ─┴▶ rules for this cluster ─────┤
//!                                                           └▶ Applied: the Work's annotations
//! ```
//!
//! The cluster-wide policies come first, so that those of the namespace have the last word; within each, the ones
//! that mean the object less closely come first. A rule's overriders are applied by type: image, command, args,
//! labels, annotations, field, plaintext. If anything cannot be applied, nothing is: the caller keeps the Work as
//! it was and reports [`OverrideError`].

mod image;
mod patch;

use karmada_api::{
    cluster::Cluster,
    consts::annotation,
    policy::{
        ClusterOverridePolicy, CommandArgsOverrider, FieldOverrider, ImageOverrider,
        LabelAnnotationOverrider, OverridePolicy, OverrideSpec, OverriderOperator as Operator, Overriders,
        RuleWithCluster,
    },
};
use karmada_meta::{object, parse_api_version};
use serde::Serialize;
use serde_json::{Value, json};

use self::patch::Language;
pub use self::patch::check_pointer;
use crate::{
    affinity,
    select::{self, Match, Subject},
};

/// Why an override cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy}: {field}: {why}")]
pub struct OverrideError {
    /// `OverridePolicy(shop/web)` or `ClusterOverridePolicy(web)`.
    pub policy: String,
    /// The overrider: `spec.overrideRules[0].overriders.plaintext[1]`.
    pub field: String,
    /// What is wrong with it; names the path in the manifest.
    pub why: String,
}

/// A rule that was applied, as the Work records it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedRule {
    /// The policy's name.
    pub policy_name: String,
    /// What it did.
    pub overriders: Overriders,
}

/// All rules that were applied, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// Those of cluster-wide policies.
    pub cluster: Vec<AppliedRule>,
    /// Those of the namespace's policies.
    pub namespaced: Vec<AppliedRule>,
}

impl Applied {
    /// The annotations by which a Work records what was applied to its manifest; none where nothing was.
    pub fn annotations(&self) -> Vec<(&'static str, String)> {
        let text = |rules: &Vec<AppliedRule>| {
            serde_json::to_string(rules).expect("invariant: overriders have only text keys")
        };
        [
            (annotation::APPLIED_CLUSTER_OVERRIDES, &self.cluster),
            (annotation::APPLIED_OVERRIDES, &self.namespaced),
        ]
        .into_iter()
        .filter(|(_, rules)| !rules.is_empty())
        .map(|(key, rules)| (key, text(rules)))
        .collect()
    }
}

/// A policy of either scope.
struct Policy<'a> {
    label: String,
    name: &'a str,
    spec: &'a OverrideSpec,
}

/// Applies all policies that mean an object and a cluster to the object's manifest.
///
/// # Errors
/// The first overrider that cannot be applied; the manifest is then as it was.
pub fn apply(
    manifest: &mut Value,
    cluster: &Cluster,
    cluster_policies: &[ClusterOverridePolicy],
    policies: &[OverridePolicy],
) -> Result<Applied, OverrideError> {
    let mut changed = manifest.clone();
    // Which policies mean the object is decided once, before any of them has changed its labels.
    let subject = Subject::of(manifest);
    let cluster_wide = cluster_policies.iter().map(|policy| {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        Policy { label: format!("ClusterOverridePolicy({name})"), name, spec: &policy.spec }
    });
    let in_namespace = policies
        .iter()
        .filter(|policy| {
            !subject.namespace.is_empty() && policy.metadata.namespace.as_deref() == Some(&subject.namespace)
        })
        .map(|policy| {
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            Policy {
                label: format!("OverridePolicy({}/{name})", subject.namespace),
                name,
                spec: &policy.spec,
            }
        });
    let applied = Applied {
        cluster: apply_policies(&mut changed, &subject, cluster, cluster_wide.collect())?,
        namespaced: apply_policies(&mut changed, &subject, cluster, in_namespace.collect())?,
    };
    *manifest = changed;
    Ok(applied)
}

/// How closely an override policy means an object. One without selectors means every object in its scope.
pub fn means(spec: &OverrideSpec, subject: &Subject) -> Option<Match> {
    if spec.resource_selectors.is_empty() {
        return Some(Match::Kind);
    }
    select::closest(&spec.resource_selectors, subject)
}

/// The rules that mean an object and a cluster, in the order in which they are applied.
pub fn rules_for(
    cluster: &Cluster,
    manifest: &Value,
    cluster_policies: &[ClusterOverridePolicy],
    policies: &[OverridePolicy],
) -> Vec<(String, Overriders)> {
    let subject = Subject::of(manifest);
    let wide = cluster_policies.iter().map(|policy| (policy.metadata.name.as_deref(), &policy.spec));
    let near = policies.iter().map(|policy| (policy.metadata.name.as_deref(), &policy.spec));
    let of = |policies: Vec<(Option<&str>, &OverrideSpec)>| {
        let mut meaning: Vec<_> = policies
            .into_iter()
            .filter_map(|(name, spec)| {
                Some((means(spec, &subject)?, name.unwrap_or_default().to_owned(), spec))
            })
            .collect();
        meaning.sort_by(|(a, p, _), (b, q, _)| a.cmp(b).then_with(|| p.cmp(q)));
        let matching =
            |target: &Option<_>| target.as_ref().is_none_or(|target| affinity::matches(target, cluster));
        let rules = meaning
            .into_iter()
            .flat_map(|(_, name, spec)| rules(spec).into_iter().map(move |(_, rule)| (name.clone(), rule)));
        rules
            .filter(|(_, rule)| matching(&rule.target_cluster))
            .map(|(name, rule)| (name, rule.overriders))
            .collect::<Vec<_>>()
    };
    let mut all = of(wide.collect());
    all.extend(of(near.collect()));
    all
}

fn apply_policies(
    manifest: &mut Value,
    subject: &Subject,
    cluster: &Cluster,
    policies: Vec<Policy<'_>>,
) -> Result<Vec<AppliedRule>, OverrideError> {
    let mut meaning: Vec<_> =
        policies.into_iter().filter_map(|policy| Some((means(policy.spec, subject)?, policy))).collect();
    meaning.sort_by(|(a, p), (b, q)| a.cmp(b).then_with(|| p.name.cmp(q.name)));
    let mut applied = Vec::new();
    for (_, policy) in &meaning {
        for (place, rule) in rules(policy.spec) {
            if rule.target_cluster.as_ref().is_some_and(|target| !affinity::matches(target, cluster)) {
                continue;
            }
            let fault = |field, why| OverrideError { policy: policy.label.clone(), field, why };
            apply_overriders(manifest, &rule.overriders)
                .map_err(|(field, why)| fault(format!("{place}.{field}"), why))?;
            check_identity(manifest, subject).map_err(|why| fault(place, why))?;
            applied.push(AppliedRule { policy_name: policy.name.to_owned(), overriders: rule.overriders });
        }
    }
    Ok(applied)
}

/// The rules of a policy with the places they stand in. The old spelling, `targetCluster` and `overriders` at the
/// top of the spec, is one rule; it counts only where there are no others.
fn rules(spec: &OverrideSpec) -> Vec<(String, RuleWithCluster)> {
    if spec.override_rules.is_empty() {
        if spec.target_cluster.is_none() && spec.overriders == Overriders::default() {
            return Vec::new();
        }
        let rule = RuleWithCluster {
            target_cluster: spec.target_cluster.clone(),
            overriders: spec.overriders.clone(),
        };
        return vec![("spec.overriders".into(), rule)];
    }
    let place = |i| format!("spec.overrideRules[{i}].overriders");
    spec.override_rules.iter().enumerate().map(|(i, rule)| (place(i), rule.clone())).collect()
}

/// An override may not make another object of an object: its Work, its binding and its place on the member go by
/// these. The version may change, for members that serve only an older one; the group may not.
fn check_identity(manifest: &Value, subject: &Subject) -> Result<(), String> {
    let now = Subject::of(manifest);
    let group = |subject: &Subject| parse_api_version(&subject.api_version).map(|(group, _)| group);
    if now.api_version != subject.api_version && (group(&now).is_none() || group(&now) != group(subject)) {
        return Err(format!(
            "apiVersion would become {:?}: an override cannot make another object of one in {:?}; only the version may change",
            now.api_version, subject.api_version
        ));
    }
    for (what, before, after) in [
        ("kind", &subject.kind, &now.kind),
        ("metadata.name", &subject.name, &now.name),
        ("metadata.namespace", &subject.namespace, &now.namespace),
    ] {
        if before != after {
            return Err(format!(
                "{what} would become {after:?}: an override cannot make another object of {before:?}"
            ));
        }
    }
    Ok(())
}

/// The place of an overrider below the rule, and what is wrong with it.
type Fault = (String, String);

/// Applies the overriders of one rule.
fn apply_overriders(manifest: &mut Value, overriders: &Overriders) -> Result<(), Fault> {
    fn at(list: &'static str, i: usize) -> impl FnOnce(String) -> Fault {
        move |why| (format!("{list}[{i}]"), why)
    }
    for (i, overrider) in overriders.image_overrider.iter().enumerate() {
        apply_image(manifest, overrider).map_err(at("imageOverrider", i))?;
    }
    for (i, overrider) in overriders.command_overrider.iter().enumerate() {
        apply_run(manifest, "command", overrider).map_err(at("commandOverrider", i))?;
    }
    for (i, overrider) in overriders.args_overrider.iter().enumerate() {
        apply_run(manifest, "args", overrider).map_err(at("argsOverrider", i))?;
    }
    for overrider in &overriders.labels_overrider {
        apply_map(manifest, "labels", overrider);
    }
    for overrider in &overriders.annotations_overrider {
        apply_map(manifest, "annotations", overrider);
    }
    for (i, overrider) in overriders.field_overrider.iter().enumerate() {
        apply_field(manifest, overrider).map_err(at("fieldOverrider", i))?;
    }
    for (i, overrider) in overriders.plaintext.iter().enumerate() {
        patch::apply(manifest, overrider.operator, &overrider.path, &overrider.value)
            .map_err(at("plaintext", i))?;
    }
    Ok(())
}

/// Where a kind that Karmada knows keeps its pod.
fn pod_path(manifest: &Value) -> Option<&'static str> {
    match object::kind(manifest) {
        "Pod" => Some("/spec"),
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" | "Job" => Some("/spec/template/spec"),
        _ => None,
    }
}

/// Changes images: the one at the predicate's path, or those of all containers of the kinds that are known. Other
/// kinds are left alone.
fn apply_image(manifest: &mut Value, overrider: &ImageOverrider) -> Result<(), String> {
    let change = |image: &mut Value, path: &str| {
        let text = image.as_str().ok_or_else(|| format!("{path:?} does not hold an image"))?;
        let changed = image::change(text, overrider.component, overrider.operator, &overrider.value);
        *image = changed.map_err(|why| format!("{path:?}: {why}"))?.into();
        Ok(())
    };
    if let Some(predicate) = &overrider.predicate {
        let image = manifest.pointer_mut(&predicate.path);
        return change(image.ok_or_else(|| format!("{:?} does not exist", predicate.path))?, &predicate.path);
    }
    let Some(pod) = pod_path(manifest) else { return Ok(()) };
    for list in ["containers", "initContainers"] {
        let path = format!("{pod}/{list}");
        let containers = manifest.pointer_mut(&path).and_then(Value::as_array_mut);
        for (i, container) in containers.into_iter().flatten().enumerate() {
            if let Some(image) = container.get_mut("image") {
                change(image, &format!("{path}/{i}/image"))?;
            }
        }
    }
    Ok(())
}

/// Adds to, or takes from, the command or the arguments of the containers of that name. Operators other than add
/// and remove do nothing, as in Karmada; their schema knows only those.
fn apply_run(manifest: &mut Value, field: &str, overrider: &CommandArgsOverrider) -> Result<(), String> {
    let Some(pod) = pod_path(manifest) else { return Ok(()) };
    let path = format!("{pod}/containers");
    let containers = manifest.pointer_mut(&path).and_then(Value::as_array_mut);
    for (i, container) in containers.into_iter().flatten().enumerate() {
        if container["name"] != overrider.container_name {
            continue;
        }
        let container =
            container.as_object_mut().ok_or_else(|| format!("\"{path}/{i}\" is not a container"))?;
        let words = container.entry(field).or_insert(Value::Null);
        if words.is_null() {
            *words = json!([]);
        }
        let words = words.as_array_mut().ok_or_else(|| format!("\"{path}/{i}/{field}\" is not a list"))?;
        match overrider.operator {
            Operator::Add => words.extend(overrider.value.iter().cloned().map(Value::from)),
            Operator::Remove => words.retain(|word| !overrider.value.iter().any(|value| word == value)),
            Operator::Replace => {}
        }
    }
    Ok(())
}

/// Sets, replaces or takes off labels or annotations.
fn apply_map(manifest: &mut Value, map: &str, overrider: &LabelAnnotationOverrider) {
    for (key, value) in &overrider.value {
        let present = object::meta(manifest, map).is_some_and(|entries| entries.get(key).is_some());
        match overrider.operator {
            Operator::Replace if !present => {}
            Operator::Add | Operator::Replace if map == "labels" => object::set_label(manifest, key, value),
            Operator::Add | Operator::Replace => object::set_annotation(manifest, key, value),
            Operator::Remove if map == "labels" => drop(object::remove_label(manifest, key)),
            Operator::Remove => drop(object::remove_annotation(manifest, key)),
        }
    }
}

/// Changes the document in a text.
fn apply_field(manifest: &mut Value, overrider: &FieldOverrider) -> Result<(), String> {
    let path = &overrider.field_path;
    let field = manifest.pointer_mut(path).ok_or_else(|| format!("{path:?} does not exist"))?;
    let text = field.as_str().ok_or_else(|| format!("{path:?} does not hold a text"))?;
    let (language, operations) = match (overrider.yaml.as_slice(), overrider.json.as_slice()) {
        ([], []) => return Ok(()),
        ([], json) => (Language::Json, json),
        (yaml, []) => (Language::Yaml, yaml),
        _ => return Err("json and yaml exclude each other".into()),
    };
    let changes = operations.iter().map(|change| (change.operator, change.sub_path.as_str(), &change.value));
    *field = patch::apply_in_text(text, language, changes).map_err(|why| format!("{path:?}: {why}"))?.into();
    Ok(())
}

#[cfg(test)]
mod tests;
