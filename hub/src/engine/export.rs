//! A hub's objects, in a form and order in which another API server takes them without a member noticing.
//!
//! ```text
//!   Works, bindings, policies, templates, Clusters, Namespaces, definitions      read in this order
//!   definitions, Namespaces, Clusters, templates, policies, bindings, Works      written, and applied, in this one
//! ```
//!
//! What an object is on one server is not what it is on another. Its uid changes, so references to uids are left out:
//! an owner reference to an object that never was would have the garbage collector take its dependent, and with a
//! binding its Works, and with them what members run. The hub's controllers set them anew when they have found the
//! owners. What ties objects together across servers stays: permanent ids in labels, names in annotations,
//! finalizers, the ids of Clusters. What the status of Clusters, bindings and Works says is carried along, so that
//! nothing is scheduled anew and nothing that a Work has put on its member is forgotten.
//!
//! What is being deleted cannot be carried along as such: see [`Dump::notes`] for what is said of it.
//!
//! Everything is read after what it causes: a binding that is made meanwhile lacks Works, which is harmless, while a
//! Work without its binding would be taken for an orphan.

pub mod yaml;

use std::{collections::BTreeSet, fmt};

use karmada_api::consts::label;
use karmada_cli::progress::Progress;
use karmada_client::{Error, Resource};
use karmada_core::names;
use karmada_meta::object;
use karmada_objects::{
    Objects,
    discovery::{self, Served},
    kinds,
};
use serde_json::{Value, json};

use crate::{admission::services::is_for_members, engine::remote::definitions, known::heads::WorkHead};

/// What belongs together in the order of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Definitions of kinds: the hub's and the users'.
    Definitions,
    /// Namespaces, with the clusters' execution namespaces.
    Namespaces,
    /// Clusters, with their status.
    Clusters,
    /// Users' objects of any kind.
    Templates,
    /// Propagation and override policies.
    Policies,
    /// Bindings, with their status.
    Bindings,
    /// Works, with their status.
    Works,
}

impl Part {
    /// All, in the order in which they are applied.
    pub const ALL: [Self; 7] = [
        Self::Definitions,
        Self::Namespaces,
        Self::Clusters,
        Self::Templates,
        Self::Policies,
        Self::Bindings,
        Self::Works,
    ];

    /// The name of its file; names sort in the order of an apply.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Definitions => "10-definitions.yaml",
            Self::Namespaces => "20-namespaces.yaml",
            Self::Clusters => "30-clusters.yaml",
            Self::Templates => "40-templates.yaml",
            Self::Policies => "50-policies.yaml",
            Self::Bindings => "60-bindings.yaml",
            Self::Works => "70-works.yaml",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file())
    }
}

/// Everything that a hub holds, ready to be applied elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    objects: Vec<(Part, Value)>,
    /// What somebody should know, a line each: what was left out, and what is not as it was.
    pub notes: Vec<String>,
}

impl Dump {
    /// The objects of one part.
    pub fn part(&self, part: Part) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(of, _)| *of == part).map(|(_, object)| object)
    }
}

/// Everything as it was read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    works: Vec<Value>,
    bindings: Vec<Value>,
    policies: Vec<Value>,
    templates: Vec<Value>,
    clusters: Vec<Value>,
    namespaces: Vec<Value>,
    definitions: Vec<Value>,
}

/// Kinds that every hub has: Works, bindings, policies, Clusters, Namespaces and definitions.
const OWN_KINDS: usize = 10;

/// Reads everything that a hub holds.
///
/// # Errors
/// When the server does not answer, or not everything.
pub async fn export(objects: &Objects, progress: &Progress) -> Result<Dump, Error> {
    let mut known = BTreeSet::new();
    let mut templates = discovery::everything(objects.rest()).await?;
    // The first version of a kind is the preferred one.
    templates.retain(|served| {
        let resource = &served.resource;
        is_template(served) && known.insert((resource.group.clone(), resource.plural.clone()))
    });
    let mut read = Read::default();
    let mut reading = Reading { objects, progress, done: 0, total: (OWN_KINDS + templates.len()) as u64 };
    reading.list(&kinds::WORKS, &mut read.works).await?;
    for resource in [&*kinds::CLUSTER_RESOURCE_BINDINGS, &*kinds::RESOURCE_BINDINGS] {
        reading.list(resource, &mut read.bindings).await?;
    }
    for resource in [
        &*kinds::PROPAGATION_POLICIES,
        &*kinds::CLUSTER_PROPAGATION_POLICIES,
        &*kinds::OVERRIDE_POLICIES,
        &*kinds::CLUSTER_OVERRIDE_POLICIES,
    ] {
        reading.list(resource, &mut read.policies).await?;
    }
    for served in &templates {
        reading.list(&served.resource, &mut read.templates).await?;
    }
    reading.list(&kinds::CLUSTERS, &mut read.clusters).await?;
    reading.list(&kinds::NAMESPACES, &mut read.namespaces).await?;
    reading.list(&kinds::CUSTOM_RESOURCE_DEFINITIONS, &mut read.definitions).await?;
    Ok(read.dump())
}

/// Reads kind by kind, and shows how many are done and how many are left.
struct Reading<'a> {
    objects: &'a Objects,
    progress: &'a Progress,
    done: u64,
    total: u64,
}

impl Reading<'_> {
    async fn list(&mut self, resource: &Resource, into: &mut Vec<Value>) -> Result<(), Error> {
        let (before, shown) = (into.len(), |count: usize| {
            self.progress.is_at_of(self.done, self.total, &format!("{}: {count}", resource.plural));
        });
        shown(0);
        let each = |page: Vec<Value>| {
            into.extend(page.into_iter().map(|mut item| {
                // Items of a list may go without.
                item["apiVersion"] = resource.api_version().into();
                item["kind"] = resource.kind.as_str().into();
                item
            }));
            shown(into.len() - before);
        };
        self.objects.list(resource, None, "", each).await?;
        self.done += 1;
        Ok(())
    }
}

/// Whether objects of a kind are users' own: not the hub's, and not what a server or its controllers make.
fn is_template(served: &Served) -> bool {
    const GROUPS: [&str; 9] = [
        "cluster.karmada.io",
        "policy.karmada.io",
        "work.karmada.io",
        "events.k8s.io",
        "coordination.k8s.io",
        "apiregistration.k8s.io",
        "certificates.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "internal.apiserver.k8s.io",
    ];
    const KINDS: [&str; 5] = ["Event", "Namespace", "Node", "ComponentStatus", "CustomResourceDefinition"];
    let resource = &served.resource;
    served.supports(&["list", "create", "patch"])
        && !GROUPS.contains(&resource.group.as_str())
        && !KINDS.contains(&resource.kind.as_str())
}

/// Whether an object is one that every API server makes for itself.
fn is_servers_own(object: &Value) -> bool {
    let (kind, name) = (object::kind(object), object::name(object));
    match kind {
        "ConfigMap" => ["kube-root-ca.crt", "extension-apiserver-authentication"].contains(&name),
        "Service" | "Endpoints" | "EndpointSlice" => {
            name == "kubernetes" && object::namespace(object) == "default"
        }
        "PriorityClass" => name.starts_with("system-"),
        // A hub's own, which lead to it; another registers itself.
        _ if is_registration(object) => object::label(object, label::SYSTEM) == Some(label::SYSTEM_VALUE),
        _ => {
            object::label(object, "kubernetes.io/bootstrapping").is_some()
                || object::label(object, crate::engine::remote::probe::LABEL).is_some()
        }
    }
}

/// Whether an object has a server ask somebody about writes.
fn is_registration(object: &Value) -> bool {
    object::api_version(object).starts_with("admissionregistration.k8s.io/")
}

fn is_vital(namespace: &str) -> bool {
    ["kube-system", "kube-public", "kube-node-lease"].contains(&namespace)
}

fn deleting(object: &Value) -> bool {
    object::deletion_timestamp(object).is_some()
}

/// What an object is, whatever version of its kind it is read in.
fn identity(api_version: &str, kind: &str, namespace: &str, name: &str) -> [String; 4] {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    [group, kind, namespace, name].map(str::to_owned)
}

fn identity_of(object: &Value) -> [String; 4] {
    identity(
        object::api_version(object),
        object::kind(object),
        object::namespace(object),
        object::name(object),
    )
}

impl Read {
    fn dump(self) -> Dump {
        let mut dump = Dump::default();
        let leaving: BTreeSet<String> =
            self.clusters.iter().filter(|c| deleting(c)).map(|c| object::name(c).to_owned()).collect();
        for cluster in &leaving {
            dump.note(format!(
                "Cluster {cluster} is being deleted and is left out, with its Works; what it runs stays there"
            ));
        }
        let gone: BTreeSet<String> = self
            .namespaces
            .iter()
            .filter(|n| {
                deleting(n)
                    || names::cluster_of_namespace(object::name(n)).is_some_and(|c| leaving.contains(c))
            })
            .map(|n| object::name(n).to_owned())
            .collect();
        let stays = |object: &Value| !gone.contains(object::namespace(object));
        let doomed: BTreeSet<_> =
            self.templates.iter().filter(|t| deleting(t) || !stays(t)).map(identity_of).collect();

        for definition in self.definitions {
            dump.definition(definition);
        }
        for namespace in self.namespaces {
            if deleting(&namespace) {
                dump.note(format!("Namespace {} is being deleted and is left out", object::name(&namespace)));
            } else if !is_vital(object::name(&namespace)) && !gone.contains(object::name(&namespace)) {
                dump.put(Part::Namespaces, namespace, false);
            }
        }
        for cluster in self.clusters.into_iter().filter(|cluster| !deleting(cluster)) {
            dump.put(Part::Clusters, cluster, true);
        }
        let mut present = BTreeSet::new();
        for template in self.templates {
            present.insert(identity_of(&template));
            if !deleting(&template) && stays(&template) && !is_servers_own(&template) {
                dump.template(template);
            }
        }
        for policy in self.policies.into_iter().filter(|policy| !deleting(policy) && stays(policy)) {
            dump.put(Part::Policies, policy, false);
        }
        for binding in self.bindings.into_iter().filter(|binding| !deleting(binding) && stays(binding)) {
            let resource = &binding["spec"]["resource"];
            let text = |field: &str| resource[field].as_str().unwrap_or_default();
            let template = identity(text("apiVersion"), text("kind"), text("namespace"), text("name"));
            if doomed.contains(&template) {
                // It was about to follow its template; so will its Works.
                continue;
            }
            if !present.contains(&template) {
                dump.note(format!(
                    "{} {}: its template is not there; it is kept, with what it placed, and does not go by itself",
                    object::kind(&binding),
                    object::key(&binding)
                ));
            }
            dump.put(Part::Bindings, unbound(binding), true);
        }
        for work in self.works.into_iter().filter(|work| stays(work)) {
            if deleting(&work) && WorkHead::binding_of(&work).is_none() {
                dump.note(format!(
                    "Work {} is being deleted, belongs to no binding and is left out; its objects stay on the member",
                    object::key(&work)
                ));
                continue;
            }
            // One that is being deleted comes back, and goes again as soon as a hub finds that no binding wants it.
            dump.put(Part::Works, work, true);
        }
        dump
    }
}

impl Dump {
    fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    fn put(&mut self, part: Part, object: Value, with_status: bool) {
        self.objects.push((part, portable(object, with_status)));
    }

    fn definition(&mut self, definition: Value) {
        if deleting(&definition) {
            let name = object::name(&definition);
            self.note(format!("CustomResourceDefinition {name} is being deleted and is left out"));
            return;
        }
        let ours = karmada_api::crds().iter().any(|ours| object::name(ours) == object::name(&definition));
        let definition = portable(definition, false);
        // The hub that finds it there knows it for its own.
        let definition = if ours { definitions::marked(definition) } else { definition };
        self.objects.push((Part::Definitions, definition));
    }

    fn template(&mut self, template: Value) {
        let (kind, key) = (object::kind(&template).to_owned(), object::key(&template));
        if is_vital(object::namespace(&template)) {
            self.note(format!("{kind} {key} is left out: its namespace is every server's own"));
            return;
        }
        if kind == "Secret" && template["type"] == "kubernetes.io/service-account-token" {
            self.note(format!("Secret {key} is left out: its token means nothing to another server"));
            return;
        }
        if is_registration(&template) {
            let what = match is_for_members(&template) {
                true => "it is for members alone, which a stock API server does not know",
                false => "see that it can be called from there, too",
            };
            self.note(format!("{kind} {key}: on a stock API server it takes effect; {what}"));
        }
        // What a server puts into a Job to find its Pods fits that server's Job alone. A Job's time to live is its
        // author's.
        let lives = template.pointer("/spec/ttlSecondsAfterFinished").cloned();
        let mut template = portable(template, false);
        karmada_interpreter::prune(&mut template);
        if let Some(lives) = lives {
            object::ensure_map(&mut template, "spec").insert("ttlSecondsAfterFinished".to_owned(), lives);
        }
        self.objects.push((Part::Templates, template));
    }
}

/// A binding without what it knows of its template on this server.
fn unbound(mut binding: Value) -> Value {
    if let Some(resource) = binding.pointer_mut("/spec/resource").and_then(Value::as_object_mut) {
        resource.shift_remove("uid");
        resource.shift_remove("resourceVersion");
    }
    if let Some(status) = binding.get_mut("status").and_then(Value::as_object_mut) {
        // Generations begin anew.
        status.shift_remove("schedulerObservedGeneration");
    }
    binding
}

/// An object without what only means something on the server that it was read from.
fn portable(mut value: Value, with_status: bool) -> Value {
    for field in object::SERVER_METADATA.into_iter().chain(["ownerReferences"]) {
        object::remove_meta(&mut value, field);
    }
    if object::kind(&value) == "Namespace" && object::api_version(&value) == "v1" {
        // Its finalizers, which are the server's.
        if let Some(map) = value.as_object_mut() {
            map.shift_remove("spec");
        }
    }
    let empty =
        value.get("status").is_none_or(|status| status.as_object().is_none_or(serde_json::Map::is_empty));
    if let Some(map) = value.as_object_mut()
        && (!with_status || empty)
    {
        map.shift_remove("status");
    }
    in_order(value)
}

/// With apiVersion, kind and metadata first, as people expect them.
fn in_order(value: Value) -> Value {
    let Value::Object(mut map) = value else { return value };
    let mut ordered = json!({});
    for field in ["apiVersion", "kind", "metadata"] {
        if let Some(first) = map.shift_remove(field) {
            ordered[field] = first;
        }
    }
    let status = map.shift_remove("status");
    for (field, rest) in map {
        ordered[field] = rest;
    }
    if let Some(status) = status {
        ordered["status"] = status;
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
        json!({
            "kind": kind, "status": {"phase": "x"}, "apiVersion": api_version,
            "metadata": {
                "name": name, "namespace": namespace, "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}], "labels": {"kept": "yes"},
                "finalizers": ["kept"], "ownerReferences": [{"uid": "o"}],
            },
            "spec": {"kept": true},
        })
    }

    fn doomed(mut value: Value) -> Value {
        object::set_meta(&mut value, "deletionTimestamp", "2026-01-02T00:00:00Z");
        value
    }

    fn binding(name: &str, template: &str) -> Value {
        let mut binding = object("work.karmada.io/v1alpha2", "ResourceBinding", "shop", name);
        binding["spec"] = json!({"resource": {
            "apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": template, "uid": "t",
            "resourceVersion": "9",
        }});
        binding["status"] = json!({"schedulerObservedGeneration": 3, "conditions": []});
        binding
    }

    fn work(cluster: &str, name: &str, bound: bool) -> Value {
        let mut work = object("work.karmada.io/v1alpha1", "Work", &format!("karmada-es-{cluster}"), name);
        if bound {
            object::set_annotation(&mut work, "resourcebinding.karmada.io/namespace", "shop");
            object::set_annotation(&mut work, "resourcebinding.karmada.io/name", "b");
        }
        work
    }

    fn names(dump: &Dump, part: Part) -> Vec<String> {
        dump.part(part).map(|object| object::name(object).to_owned()).collect()
    }

    #[test]
    fn what_only_one_server_knows_is_left_out() {
        let read = Read {
            bindings: vec![binding("b", "c")],
            templates: vec![object("v1", "ConfigMap", "shop", "c")],
            namespaces: vec![
                object("v1", "Namespace", "", "shop"),
                object("v1", "Namespace", "", "kube-system"),
            ],
            ..Read::default()
        };
        let dump = read.dump();
        assert_eq!(
            dump.part(Part::Templates).cloned().collect::<Vec<_>>(),
            [json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "c", "namespace": "shop", "labels": {"kept": "yes"}, "finalizers": ["kept"]},
                "spec": {"kept": true},
            })]
        );
        let binding = dump.part(Part::Bindings).next().unwrap();
        assert_eq!(
            binding["spec"]["resource"],
            json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "c"})
        );
        assert_eq!(binding["status"], json!({"conditions": []}));
        assert_eq!(names(&dump, Part::Namespaces), ["shop"]);
        assert!(dump.part(Part::Namespaces).next().unwrap().get("spec").is_none());
        assert_eq!(dump.notes, Vec::<String>::new());
    }

    #[test]
    fn what_is_going_stays_gone_and_what_it_placed_is_not_lost_by_mistake() {
        let mut leaving = doomed(object("cluster.karmada.io/v1alpha1", "Cluster", "", "away"));
        leaving["spec"] = json!({});
        let read = Read {
            works: vec![
                work("here", "kept", true),
                doomed(work("here", "orphan", true)),
                doomed(work("here", "users", false)),
                work("away", "lost", true),
            ],
            bindings: vec![
                binding("b", "c"),
                doomed(binding("gone", "c")),
                binding("follows", "going"),
                binding("alone", "nowhere"),
            ],
            policies: vec![doomed(object("policy.karmada.io/v1alpha1", "PropagationPolicy", "shop", "p"))],
            templates: vec![
                object("v1", "ConfigMap", "shop", "c"),
                doomed(object("v1", "ConfigMap", "shop", "going")),
                object("v1", "ConfigMap", "closing", "inside"),
                object("v1", "ConfigMap", "shop", "kube-root-ca.crt"),
            ],
            clusters: vec![leaving, object("cluster.karmada.io/v1alpha1", "Cluster", "", "here")],
            namespaces: vec![
                object("v1", "Namespace", "", "shop"),
                object("v1", "Namespace", "", "karmada-es-here"),
                object("v1", "Namespace", "", "karmada-es-away"),
                doomed(object("v1", "Namespace", "", "closing")),
            ],
            definitions: vec![],
        };
        let dump = read.dump();
        assert_eq!(names(&dump, Part::Namespaces), ["shop", "karmada-es-here"]);
        assert_eq!(names(&dump, Part::Clusters), ["here"]);
        assert_eq!(names(&dump, Part::Templates), ["c"]);
        assert_eq!(names(&dump, Part::Policies), Vec::<String>::new());
        assert_eq!(names(&dump, Part::Bindings), ["b", "alone"]);
        assert_eq!(names(&dump, Part::Works), ["kept", "orphan"]);
        for part in [Part::Clusters, Part::Works] {
            assert!(dump.part(part).all(|object| object.get("status").is_some()), "{part}");
        }
        for what in
            ["Cluster away", "Namespace closing", "ResourceBinding shop/alone", "Work karmada-es-here/users"]
        {
            assert!(dump.notes.iter().any(|note| note.starts_with(what)), "{what}: {:?}", dump.notes);
        }
        assert_eq!(dump.notes.len(), 4, "{:?}", dump.notes);
    }

    #[test]
    fn a_jobs_own_selector_does_not_travel() {
        let mut job = object("batch/v1", "Job", "shop", "j");
        let uid = "batch.kubernetes.io/controller-uid";
        job["spec"] = json!({
            "ttlSecondsAfterFinished": 60, "selector": {"matchLabels": {uid: "u"}},
            "template": {"metadata": {"labels": {uid: "u", "app": "a"}}},
        });
        let dump = Read { templates: vec![job], ..Read::default() }.dump();
        assert_eq!(
            dump.part(Part::Templates).next().unwrap()["spec"],
            json!({"template": {"metadata": {"labels": {"app": "a"}}}, "ttlSecondsAfterFinished": 60})
        );
    }

    #[test]
    fn files_sort_as_they_are_applied() {
        let mut files: Vec<_> = Part::ALL.iter().map(|part| part.file()).collect();
        let order = files.clone();
        files.sort_unstable();
        assert_eq!(files, order);
    }
}
