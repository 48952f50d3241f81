//! What writes to Karmada's kinds must pass: for users in the embedded API, for the controllers wherever they run.

mod followed;
mod granted;
mod ids;
pub(crate) mod services;
mod usage;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use karmada_api::{
    KarmadaKind,
    cluster::Cluster,
    config::{
        ResourceInterpreterCustomization, ResourceInterpreterCustomizationSpec,
        webhook::ResourceInterpreterWebhookConfiguration,
    },
    consts::subject,
    policy::{
        ClusterPropagationPolicy, ClusterTaintPolicy, ClusterTaintPolicySpec, FederatedResourceQuota,
        FederatedResourceQuotaSpec, PropagationPolicy, PropagationSpec, ResourceList, ResourceSelector,
    },
    work::ResourceBinding,
};
use karmada_apiserver::{
    admission::{Admission, AdmissionRequest, Operation},
    authn::{UserInfo, agent_cluster, epochs::Record, generator_cluster},
    kinds::{Kind, Kinds, storage_name},
    registry::Registry,
    storage::{ApiStore, Object},
};
use karmada_core::{
    admit::{self, Found, Verb, agent},
    delete, quota,
    select::{self, Subject},
};
use karmada_env::Env;
use karmada_interpreter::rules;
use karmada_meta::{
    gvk::GroupVersionKind,
    object,
    path::{FieldError, Path, aggregate},
    status::{Status, StatusCause},
};
use karmada_store::Revision;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    admission::services::unreachable_services,
    rules::hooks,
    write::{checks, claiming::NewTemplates},
};

/// Karmada's rules for writes to the embedded API.
#[derive(Debug)]
pub struct KarmadaAdmission {
    env: Env,
    /// The server's registry, once there is a server: it knows which kinds are served.
    registry: OnceLock<Weak<Registry>>,
    templates: NewTemplates,
    ids: ids::Ids,
    usages: usage::Usages,
}

/// The hub's own controllers, as a component of the system: nobody else can have a certificate or a token of such a user in the group
/// of administrators.
pub(crate) const CONTROLLERS: &str = "karmada-controller-manager";

/// How long a write that was let in may take until it is stored: no request takes longer.
const WRITTEN_BY: Duration = Duration::from_secs(60);

impl KarmadaAdmission {
    /// Rules that know of no kinds yet.
    pub fn new(env: Env) -> Arc<Self> {
        Arc::new(Self {
            env,
            registry: OnceLock::new(),
            templates: NewTemplates::default(),
            ids: ids::Ids::new(&storage_name(Cluster::GROUP, Cluster::PLURAL)),
            usages: usage::Usages::default(),
        })
    }

    /// Lets the rules look up which kinds the server has. Only the first call counts.
    pub fn attach(&self, registry: &Arc<Registry>) {
        // A second server cannot be meant: rules are made for one.
        let _ = self.registry.set(Arc::downgrade(registry));
    }

    /// Where the rules ask which policy means a new object.
    pub fn new_templates(&self) -> &NewTemplates {
        &self.templates
    }

    fn write(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<Vec<String>, Status> {
        let verb = if request.operation == Operation::Create { Verb::Create } else { Verb::Update };
        let (group, kind) = (request.kind.gvk.group.as_str(), request.kind.gvk.kind.as_str());
        if is::<Cluster>(request)
            && !is_hub(request)
            && let Some(error) = admit::offer(request.old, object)
        {
            return Err(Status::invalid(kind, group, object::name(object), vec![error]));
        }
        let mut warnings = checks::admit(group, kind, verb, request.old, object, &self.env)
            .map_err(|errors| Status::invalid(kind, group, object::name(object), errors))?;
        if is::<Cluster>(request) {
            self.unique_id(request, object)?;
        }
        if is::<ResourceBinding>(request) {
            self.within_quota(request, object)?;
        }
        if is::<ClusterTaintPolicy>(request) {
            own_taints(request, object)?;
        }
        if is::<ResourceInterpreterCustomization>(request) {
            self.scripts(request, object)?;
        }
        if is::<ResourceInterpreterWebhookConfiguration>(request) {
            let errors = hooks::check(object);
            if !errors.is_empty() {
                return Err(Status::invalid(kind, group, object::name(object), errors));
            }
        }
        if group == "admissionregistration.k8s.io" {
            warnings.extend(unreachable_services(request.store, object));
        }
        if is::<PropagationPolicy>(request) || is::<ClusterPropagationPolicy>(request) {
            warnings.extend(self.idle_policy(request, object));
        }
        if request.operation == Operation::Create {
            self.templates.claim(&request.kind.gvk, object);
        }
        Ok(warnings)
    }

    /// Judges what an agent writes, whatever it is, and who makes its roles: see [`agent`].
    fn by_agent(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<Vec<String>, Status> {
        by_agent(request, object, |cluster, template| self.templates.has(request.store, cluster, template))
    }

    /// One member has one name: a second one for its id is a conflict.
    fn unique_id(&self, request: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
        let id = object.pointer("/spec/id").and_then(Value::as_str).unwrap_or_default();
        let before = request.old.and_then(|old| old.pointer("/spec/id")).and_then(Value::as_str);
        if id.is_empty() || before == Some(id) {
            return Ok(());
        }
        let name = object::name(object);
        // A new one of a name that is taken is refused: it gets no id.
        let is_taken = || request.store.snapshot().find(&request.kind.storage, "", name).is_some();
        let takes = !request.dry_run && (request.operation != Operation::Create || !is_taken());
        let other = self.ids.other_with(request.store, id, name, takes, self.env.now());
        match admit::duplicate_id(name, id, other.iter().map(|other| (&**other, id))) {
            Some(why) => {
                let told = match is_agent(request) {
                    true => {
                        tracing::warn!(cluster = name, why, "an agent is refused: one member has one name");
                        admit::duplicate_id_for_agent(id)
                    }
                    false => why,
                };
                Err(Status::conflict(&request.kind.group_resource(), name, told))
            }
            None => Ok(()),
        }
    }

    /// A binding uses no more than the quotas of its namespace leave it.
    fn within_quota(&self, request: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
        let (namespace, name) = (object::namespace(object), object::name(object));
        let of_quotas = storage_name(FederatedResourceQuota::GROUP, FederatedResourceQuota::PLURAL);
        let quotas: Vec<(String, FederatedResourceQuotaSpec)> = request
            .store
            .snapshot()
            .range(&of_quotas, Some(namespace), None)
            .filter(|entry| !entry.header.deleting)
            .filter_map(|entry| {
                let quota = serde_json::from_slice::<Value>(&entry.value.get()).ok()?;
                let spec = FederatedResourceQuotaSpec::deserialize(&quota["spec"]).ok()?;
                Some((format!("{namespace}/{}", entry.key.name), spec))
            })
            .collect();
        if quotas.is_empty() {
            self.usages.forget(namespace);
            return Ok(());
        }
        let (before, wanted) = (request.old.map(usage::of).unwrap_or_default(), usage::of(object));
        if before == wanted || object::deletion_timestamp(object).is_some() {
            return Ok(());
        }
        let replaces = request.old.and_then(|old| object::resource_version(old).parse::<u64>().ok());
        let asking = usage::Asking {
            namespace,
            name,
            replaces: Revision::new(replaces.unwrap_or_default()),
            wanted: &wanted,
            stored: !request.dry_run,
        };
        let refuse = |others: &ResourceList| {
            let specs = quotas.iter().map(|(name, spec)| (name.as_str(), spec));
            quota::refusal(specs, &[others], &before, &wanted)
        };
        match self.usages.ask(request.store, &request.kind.storage, asking, self.env.now(), refuse) {
            Some(why) => {
                let status = Status::forbidden(&request.kind.group_resource(), name, "");
                Err(Status { message: quota::denied(&why), ..status })
            }
            None => Ok(()),
        }
    }

    /// Scripts that cannot be loaded, and questions that another customization answers already, are refused.
    fn scripts(&self, request: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
        let (group, kind) = (request.kind.gvk.group.as_str(), request.kind.gvk.kind.as_str());
        let name = object::name(object);
        let unchanged = request.old.is_some_and(|old| old.get("spec") == object.get("spec"));
        if unchanged || object::deletion_timestamp(object).is_some() {
            return Ok(());
        }
        let refused = |errors| Status::invalid(kind, group, name, errors);
        let spec = ResourceInterpreterCustomizationSpec::deserialize(&object["spec"]).map_err(|error| {
            refused(vec![FieldError::invalid(&Path::new("spec"), Value::Null, error.to_string())])
        })?;
        let snapshot = request.store.snapshot();
        let others: Vec<(String, ResourceInterpreterCustomizationSpec)> = snapshot
            .range(&request.kind.storage, None, None)
            .filter_map(|entry| {
                let other: Value = serde_json::from_slice(&entry.value.get()).ok()?;
                let spec = ResourceInterpreterCustomizationSpec::deserialize(&other["spec"]).ok()?;
                Some((entry.key.name.to_string(), spec))
            })
            .collect();
        let others = others.iter().map(|(name, spec)| (name.as_str(), spec));
        let errors = rules::validate(name, &spec, others, &self.env);
        if errors.is_empty() { Ok(()) } else { Err(refused(errors)) }
    }

    /// What to tell the author of a policy that selects nothing at present.
    fn idle_policy(&self, request: &AdmissionRequest<'_>, policy: &Value) -> Vec<String> {
        let unchanged = request.old.is_some_and(|old| {
            old.pointer("/spec/resourceSelectors") == policy.pointer("/spec/resourceSelectors")
        });
        let deleting = object::deletion_timestamp(policy).is_some();
        let (false, false, Some(registry)) =
            (unchanged, deleting, self.registry.get().and_then(Weak::upgrade))
        else {
            return Vec::new();
        };
        let Ok(spec) = PropagationSpec::deserialize(&policy["spec"]) else { return Vec::new() };
        let namespace = is::<PropagationPolicy>(request).then(|| object::namespace(policy));
        idle(&spec, namespace, &registry.kinds(), request.store)
    }
}

impl Admission for KarmadaAdmission {
    fn admit(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<Vec<String>, Status> {
        // Before anything is filled in: what an agent has not said is not held against it.
        let mut warnings = self.by_agent(request, object)?;
        epochs_only_grow(request, object)?;
        match request.operation {
            Operation::Delete => refuse_deletion(request, object).map_or(Ok(()), Err)?,
            Operation::Create | Operation::Update if request.subresource.is_empty() => {
                warnings.extend(self.write(request, object)?);
            }
            Operation::Create | Operation::Update => {}
        }
        Ok(warnings)
    }

    /// Scripts are run once to see whether they can be; policies are held against what there is.
    fn is_long(&self, kind: &Kind) -> bool {
        let is = |group: &str, name: &str| kind.gvk.group == group && kind.gvk.kind == name;
        is(ResourceInterpreterCustomization::GROUP, ResourceInterpreterCustomization::KIND)
            || is(PropagationPolicy::GROUP, PropagationPolicy::KIND)
            || is(ClusterPropagationPolicy::GROUP, ClusterPropagationPolicy::KIND)
    }
}

fn is<K: KarmadaKind>(request: &AdmissionRequest<'_>) -> bool {
    request.kind.gvk.group == K::GROUP && request.kind.gvk.kind == K::KIND
}

fn is_agent(request: &AdmissionRequest<'_>) -> bool {
    agent_cluster(request.user).is_some() && !request.user.in_group(subject::MASTERS)
}

/// Whether the hub itself asks.
fn is_hub(request: &AdmissionRequest<'_>) -> bool {
    *request.user == UserInfo::system(CONTROLLERS)
}

/// A taint is one policy's: another one that names it is refused.
fn own_taints(request: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
    if object::deletion_timestamp(object).is_some() {
        return Ok(());
    }
    let spec = |policy: &Value| ClusterTaintPolicySpec::deserialize(&policy["spec"]).ok();
    let Some(new) = spec(object) else { return Ok(()) };
    let name = object::name(object);
    let snapshot = request.store.snapshot();
    let others: Vec<(String, ClusterTaintPolicySpec)> = snapshot
        .range(&request.kind.storage, None, None)
        .filter(|entry| &*entry.key.name != name)
        .filter_map(|entry| {
            Some((entry.key.name.to_string(), spec(&serde_json::from_slice(&entry.value.get()).ok()?)?))
        })
        .collect();
    let others = others.iter().map(|(name, spec)| (name.as_str(), spec));
    let errors = admit::taint_conflicts(&new, request.old.and_then(spec).as_ref(), others);
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid(&request.kind.gvk.kind, &request.kind.gvk.group, name, errors)),
    }
}

/// See [`KarmadaAdmission::by_agent`]; `has` tells of a template whether a cluster has it.
fn by_agent(
    request: &AdmissionRequest<'_>,
    object: &mut Value,
    has: impl FnOnce(&str, &agent::Template<'_>) -> bool,
) -> Result<Vec<String>, Status> {
    let is_event = &*request.kind.storage == "core/events";
    let (agent, generator) = match request.user.in_group(subject::MASTERS) {
        true => (None, None),
        false => (agent_cluster(request.user), generator_cluster(request.user)),
    };
    let Some(cluster) = agent.or(generator) else {
        if is_event && request.operation != Operation::Delete {
            agent::is_nobodys(request.old, object);
        }
        return Ok(Vec::new());
    };
    let has_template = is_event
        && agent::template(request.namespace, object).is_some_and(|template| has(cluster, &template));
    let snapshot = request.store.snapshot();
    let there = snapshot.find(&storage_name(Cluster::GROUP, Cluster::PLURAL), "", cluster);
    let write = agent::Write {
        cluster,
        act: match request.operation {
            Operation::Create => agent::Act::Create,
            Operation::Update => agent::Act::Update,
            Operation::Delete => agent::Act::Delete,
        },
        kind: &format!("{}/{}", request.kind.gvk.group, request.kind.gvk.kind),
        subresource: request.subresource,
        namespace: request.namespace,
        old: request.old,
        uid: Some(there.map_or("", |cluster| &*cluster.header.uid)),
        has_template,
    };
    if let Some(why) = agent.and_then(|_| agent::too_much(&write, object)) {
        let (kind, name) = (&request.kind.gvk.kind, request.name);
        let what = format!("{kind} {name} as the agent of cluster {cluster} writes it: {why}");
        tracing::debug!(cluster, why = what, "an agent is refused");
        return Err(Status::too_large(what));
    }
    let (who, judged) = match agent {
        Some(_) => (format!("the agent of cluster {cluster}"), agent::judge(&write, object)),
        None => (
            format!("who makes the roles of the agent of cluster {cluster}"),
            agent::generator::judge(&write, object).map(|()| Vec::new()),
        ),
    };
    judged.map_err(|errors| {
        let why = format!("{who} may not write this: {}", aggregate(&errors));
        let mut status = Status::forbidden(&request.kind.group_resource(), request.name, why);
        let causes = errors.iter().map(|error| StatusCause {
            reason: error.cause_reason().to_owned(),
            message: error.body(),
            field: error.path.to_string(),
        });
        status.details.get_or_insert_default().causes.extend(causes);
        status
    })
}

/// Credentials that have ended do not hold again because somebody tidies up.
fn epochs_only_grow(request: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
    if &*request.kind.storage != "core/secrets"
        || Record::cluster_of(request.namespace, request.name).is_none()
    {
        return Ok(());
    }
    let why = match (request.operation, request.old) {
        (Operation::Delete, _) => Record::refuse_change(object, None),
        (Operation::Update, Some(old)) => Record::refuse_change(old, Some(object)),
        (Operation::Create | Operation::Update, _) => Record::read(object).err(),
    };
    match why {
        None => Ok(()),
        Some(why) => {
            let why = format!("{why}; it is kept by karmada-hub cluster revoke");
            Err(Status::forbidden(&request.kind.group_resource(), request.name, why))
        }
    }
}

/// Why an object may not be deleted.
fn refuse_deletion(request: &AdmissionRequest<'_>, object: &Value) -> Option<Status> {
    let gr = request.kind.group_resource();
    if let Some(why) = admit::refuse_deletion(object) {
        return Some(Status::forbidden(&gr, request.name, why));
    }
    if request.kind.gvk.kind != "Namespace" || !request.kind.gvk.group.is_empty() {
        return None;
    }
    let snapshot = request.store.snapshot();
    let clusters = storage_name(Cluster::GROUP, Cluster::PLURAL);
    let lives =
        |cluster: &str| snapshot.find(&clusters, "", cluster).is_some_and(|entry| !entry.header.deleting);
    let any = || snapshot.count(&clusters, None) > 0;
    let why = delete::refuse_namespace_deletion(request.name, lives, any)?;
    Some(Status::forbidden(&gr, request.name, why))
}

/// How many objects all selectors of a policy are held against to tell whether it means any.
const MOST_LOOKED_AT: usize = 10_000;

/// What is to be said of selectors that mean no object at present; where that takes too long, nothing.
fn idle(spec: &PropagationSpec, namespace: Option<&str>, kinds: &Kinds, store: &ApiStore) -> Vec<String> {
    let mut left = MOST_LOOKED_AT;
    let mut found = |selector: &ResourceSelector| {
        let gvk = GroupVersionKind::from_api_version(&selector.api_version, selector.kind.as_str());
        let kind = gvk.as_ref().and_then(|gvk| kinds.by_kind(&gvk.group, &gvk.version, &gvk.kind));
        let Some(kind) = kind else { return Found::NoKind };
        let snapshot = store.snapshot();
        let named = Some(selector.namespace.as_str()).filter(|name| !name.is_empty());
        let within = namespace.or(named).filter(|_| kind.namespaced);
        for entry in snapshot.range(&kind.storage, within, None) {
            if left == 0 || selects(selector, entry) {
                return Found::Something;
            }
            left -= 1;
        }
        Found::Nothing
    };
    admit::idle(spec.resource_selectors.iter().map(|selector| (selector, found(selector))))
}

fn selects(selector: &ResourceSelector, entry: &Object) -> bool {
    let labels: BTreeMap<String, String> =
        entry.header.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let subject = Subject {
        api_version: selector.api_version.clone(),
        kind: selector.kind.clone(),
        namespace: entry.key.namespace.to_string(),
        name: entry.key.name.to_string(),
        labels,
    };
    !entry.header.deleting && select::selects(selector, &subject).is_some()
}

#[cfg(test)]
mod tests;
