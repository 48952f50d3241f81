//! A template as one cluster gets it.

use std::collections::BTreeMap;

use karmada_api::{
    cluster::Cluster,
    consts::{annotation, extension},
    policy::{ClusterOverridePolicy, OverridePolicy},
    work::{ResourceBindingSpec, TargetCluster},
};
use karmada_core::{
    evict,
    hold::Whose,
    names,
    overrides::{self, Applied},
    rollout,
    select::Subject,
    work,
};
use karmada_interpreter::Interpreter;
use karmada_meta::object;
use karmada_objects::{
    bindings,
    scope::{BindingKey, Scope},
};
use serde_json::Value;

use super::{Context, staged::Overriding};
use crate::known::{Known, heads::OverrideHead};

/// What is the same for all clusters of a binding.
pub(super) struct Render<'a> {
    key: &'a BindingKey,
    id: &'a str,
    spec: &'a ResourceBindingSpec,
    template: &'a Value,
    /// For how long a copy may run unconfirmed, as the binding says.
    fence: Option<&'a str>,
    /// When changes may be made on members, as the binding has it from its policy.
    held: Vec<(&'static str, Option<&'a str>)>,
    interpreter: &'a Interpreter,
    /// Completions of a divided Job, per cluster.
    completions: Option<BTreeMap<String, i64>>,
    /// The policies that mean the template.
    cluster_policies: Vec<ClusterOverridePolicy>,
    policies: Vec<OverridePolicy>,
}

/// A manifest, and the overrides that made it so.
#[derive(Debug)]
pub(super) struct Rendered {
    pub manifest: Value,
    pub applied: Applied,
}

/// An override that cannot be applied, or a user's rule that fails.
#[derive(Debug)]
pub(super) struct Override(pub String);

impl<'a> Render<'a> {
    /// Gathers what is needed for a binding and its template.
    pub(super) fn new(
        context: &'a Context,
        key: &'a BindingKey,
        binding: &'a Value,
        spec: &'a ResourceBindingSpec,
        template: &'a Value,
        (cluster_policies, policies): Overriding,
    ) -> Self {
        Self {
            key,
            id: object::label(binding, bindings::id_label(key.scope)).unwrap_or_default(),
            spec,
            template,
            fence: object::annotation(binding, extension::FENCE_AFTER),
            held: Whose::Policy.keys().map(|key| (key, object::annotation(binding, key))).into(),
            interpreter: &context.rules.interpreter,
            completions: work::job_completions(spec, template),
            cluster_policies,
            policies,
        }
    }

    /// The name of the Works that carry the template, the same on every cluster.
    pub(super) fn work_name(&self) -> String {
        names::work_name(
            object::kind(self.template),
            object::namespace(self.template),
            object::name(self.template),
        )
    }

    /// The template for one cluster: its replicas there, then the overrides, which have the last word.
    pub(super) async fn manifest(
        &self,
        cluster: &Cluster,
        target: &TargetCluster,
    ) -> Result<Rendered, Override> {
        let generation = object::meta(self.template, "generation").cloned();
        let uid = object::uid(self.template).to_owned();
        let mut manifest = self.template.clone();
        karmada_interpreter::prune(&mut manifest);
        if let Some(replicas) = work::replicas(self.spec, target) {
            let revised = self.interpreter.revise_replicas(&mut manifest, replicas).await;
            revised.map_err(|error| Override(error.to_string()))?;
        }
        if let Some(completions) = self.completions.as_ref().and_then(|all| all.get(&target.name)) {
            karmada_interpreter::revise_completions(&mut manifest, *completions);
        }
        for (label, value) in evict::inherited(self.spec, &target.name).into_iter().flatten() {
            object::set_label(&mut manifest, label, value.as_str());
        }
        let applied = overrides::apply(&mut manifest, cluster, &self.cluster_policies, &self.policies)
            .map_err(|error| Override(error.to_string()))?;
        if let Some(after) = self.fence {
            object::set_annotation(&mut manifest, extension::FENCE_AFTER, after);
        }
        // The stamps of the Work are taken from these two, which never travel.
        object::set_meta(&mut manifest, "uid", uid);
        if let Some(generation) = generation {
            object::set_meta(&mut manifest, "generation", generation);
        }
        Ok(Rendered { manifest, applied })
    }

    /// The template's generation, if a report about the Work that is there will name it, and does not yet.
    pub(super) fn will_be_told(&self, existing: &Value) -> Option<i64> {
        let carried = existing.pointer("/spec/workload/manifests/0")?;
        let carried = object::annotation(carried, annotation::TEMPLATE_GENERATION)?.parse::<i64>().ok()?;
        let generation = object::generation(self.template);
        (karmada_interpreter::reports_generations(self.template) && generation > carried)
            .then_some(generation)
    }

    /// The Work that carries a manifest to a cluster.
    pub(super) fn work(
        &self,
        manifest: &Value,
        applied: &Applied,
        cluster: &str,
        existing: Option<&Value>,
        id: &str,
        revision: Option<&str>,
    ) -> Value {
        let binding = work::Binding {
            namespace: (self.key.scope == Scope::Namespaced).then_some(self.key.key.namespace.as_str()),
            name: &self.key.key.name,
            id: self.id,
            spec: self.spec,
        };
        let mut work = work::build(&binding, manifest.clone(), applied, cluster, existing, || id.to_owned());
        for (key, text) in &self.held {
            match text {
                Some(text) => object::set_annotation(&mut work, key, *text),
                None => drop(object::remove_annotation(&mut work, key)),
            }
        }
        rollout::mark(&mut work, revision);
        work
    }

    /// Whether a Work that was made from this generation of the template may carry it as it is now.
    pub(super) fn may_be_carried(&self, of_generation: i64) -> bool {
        of_generation == object::generation(self.template)
    }

    /// Whether a Work carries this manifest.
    pub(super) fn is_carried(
        &self,
        manifest: &Value,
        applied: &Applied,
        cluster: &str,
        live: &Value,
    ) -> bool {
        let made = self.work(manifest, applied, cluster, Some(live), "", None);
        made.pointer("/spec/workload") == live.pointer("/spec/workload")
    }
}

/// The override policies that mean an object.
pub(crate) fn overriding(
    known: &Known,
    subject: &Subject,
) -> (Vec<ClusterOverridePolicy>, Vec<OverridePolicy>) {
    let (mut cluster_policies, mut policies) = (Vec::new(), Vec::new());
    let near = match subject.namespace.as_str() {
        "" => Vec::new(),
        namespace => known.overrides.namespaced.in_namespace(namespace),
    };
    for (_, head) in known.overrides.cluster.all().into_iter().chain(near) {
        if overrides::means(head.spec(), subject).is_none() {
            continue;
        }
        match &*head {
            OverrideHead::Cluster(policy) => cluster_policies.push(policy.clone()),
            OverrideHead::Namespaced(policy) => policies.push(policy.clone()),
        }
    }
    (cluster_policies, policies)
}
