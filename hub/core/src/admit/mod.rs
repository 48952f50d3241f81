//! What may be written of Karmada's kinds, and what stands in an object once it is.
//!
//! ```text
//!   object ─▶ defaults, ids, stamps (on JSON) ─▶ shape (on JSON) ─▶ rules (on types) ─▶ warnings
//!                                                   └─────────────────┴─▶ FieldErrors
//! ```
//!
//! The API server calls this for its users; the controllers call it for what they create themselves, since they
//! may run on an API server that knows nothing of it. It changes only what it knows about, so fields newer than
//! our types survive. Texts are those of Karmada's webhooks.

pub mod agent;
mod annotations;
mod autoscaling;
mod cluster;
mod idle;
mod ingress;
mod networking;
mod overrides;
mod policy;
mod quota;
mod shape;
mod taint_policy;
mod work;

use karmada_api::{
    KarmadaKind, autoscaling as api,
    cluster::Cluster,
    consts::{finalizer, label},
    policy::{
        ClusterAffinity, ClusterOverridePolicy, ClusterPropagationPolicy, ClusterTaintPolicy,
        FederatedResourceQuota, OverridePolicy, PropagationPolicy,
    },
    work::{ClusterResourceBinding, ResourceBinding, Work},
};
use karmada_meta::{
    object,
    path::{FieldError, Path},
};
use serde_json::Value;

use crate::{evict, hold::Whose, services};

pub use self::{
    annotations::offer,
    cluster::{duplicate_id, duplicate_id_for_agent},
    idle::{Found, idle},
    taint_policy::conflicts as taint_conflicts,
};

/// What is done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// It is new.
    Create,
    /// It is changed.
    Update,
}

/// Admits an object of a kind (`policy.karmada.io/PropagationPolicy`; of others only annotations of ours are checked,
/// since any of them may be a template): sets its defaults, ids and stamps, checks it, and answers with what its author
/// should know. Not for subresources. `old` is what is there, for an update;
/// `new_id` makes permanent ids; `now` is the time of day in RFC 3339.
///
/// # Errors
/// All that is wrong with the object, each with its field.
pub fn admit(
    kind: &str,
    verb: Verb,
    old: Option<&Value>,
    obj: &mut Value,
    new_id: &mut dyn FnMut() -> String,
    now: &str,
) -> Result<Vec<String>, Vec<FieldError>> {
    let known = Known::of(kind);
    if verb == Verb::Update && object::deletion_timestamp(obj).is_some() {
        // It only waits for its finalizers; whoever takes one off must not stumble over a rule that came later.
        return Ok(Vec::new());
    }
    let Some(known) = known else {
        let errors = annotations::template(old, obj);
        return if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) };
    };
    if let Some(id) = known.id_label() {
        permanent_id(old, obj, id, new_id);
    }
    if verb == Verb::Create
        && let Some(finalizer) = known.finalizer()
    {
        object::add_finalizer(obj, finalizer);
    }
    if let (Known::ResourceBinding | Known::ClusterResourceBinding, Some(old)) = (known, old) {
        evict::remember(old, obj);
    }
    known.default(obj, now);
    let mut errors = shape::check(obj, known.shape());
    if let (Some(id), Some(old)) = (known.id_label(), old) {
        errors.extend(immutable_id(old, obj, id));
    }
    if matches!(known, Known::PropagationPolicy | Known::ClusterPropagationPolicy) {
        errors.extend(annotations::policy(old, obj));
    }
    errors.extend(match known {
        Known::Cluster => annotations::windows(Whose::Cluster, old, obj),
        Known::Work => annotations::windows(Whose::Work, old, obj),
        _ => Vec::new(),
    });
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut warnings = known.validate(old, obj)?;
    if matches!(known, Known::PropagationPolicy | Known::ClusterPropagationPolicy) {
        warnings.extend(annotations::waves_removed(old, obj));
    }
    Ok(warnings)
}

/// Why an object may not be deleted: it is protected by its label.
pub fn refuse_deletion(object: &Value) -> Option<String> {
    (object::label(object, label::DELETION_PROTECTED) == Some(label::DELETION_PROTECTED_ALWAYS)).then(|| {
        format!(
            "This resource is protected, please make sure to remove the label: {}",
            label::DELETION_PROTECTED
        )
    })
}

/// The kinds that are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    PropagationPolicy,
    ClusterPropagationPolicy,
    OverridePolicy,
    ClusterOverridePolicy,
    ClusterTaintPolicy,
    FederatedResourceQuota,
    ResourceBinding,
    ClusterResourceBinding,
    Work,
    Cluster,
    CronFederatedHpa,
    MultiClusterService,
    MultiClusterIngress,
    FederatedHpa,
}

impl Known {
    fn of(kind: &str) -> Option<Self> {
        let known = match kind.split_once('/')? {
            (PropagationPolicy::GROUP, PropagationPolicy::KIND) => Self::PropagationPolicy,
            (ClusterPropagationPolicy::GROUP, ClusterPropagationPolicy::KIND) => {
                Self::ClusterPropagationPolicy
            }
            (OverridePolicy::GROUP, OverridePolicy::KIND) => Self::OverridePolicy,
            (ClusterOverridePolicy::GROUP, ClusterOverridePolicy::KIND) => Self::ClusterOverridePolicy,
            (ClusterTaintPolicy::GROUP, ClusterTaintPolicy::KIND) => Self::ClusterTaintPolicy,
            (FederatedResourceQuota::GROUP, FederatedResourceQuota::KIND) => Self::FederatedResourceQuota,
            (ResourceBinding::GROUP, ResourceBinding::KIND) => Self::ResourceBinding,
            (ClusterResourceBinding::GROUP, ClusterResourceBinding::KIND) => Self::ClusterResourceBinding,
            (Work::GROUP, Work::KIND) => Self::Work,
            (Cluster::GROUP, Cluster::KIND) => Self::Cluster,
            (api::GROUP, api::CRON_FEDERATED_HPA) => Self::CronFederatedHpa,
            (api::GROUP, api::FEDERATED_HPA) => Self::FederatedHpa,
            (services::NETWORKING, services::MULTI_CLUSTER_SERVICE) => Self::MultiClusterService,
            (services::NETWORKING, services::MULTI_CLUSTER_INGRESS) => Self::MultiClusterIngress,
            _ => return None,
        };
        Some(known)
    }

    fn id_label(self) -> Option<&'static str> {
        match self {
            Self::PropagationPolicy => Some(label::PROPAGATION_POLICY_ID),
            Self::ClusterPropagationPolicy => Some(label::CLUSTER_PROPAGATION_POLICY_ID),
            Self::ResourceBinding => Some(label::RESOURCE_BINDING_ID),
            Self::ClusterResourceBinding => Some(label::CLUSTER_RESOURCE_BINDING_ID),
            Self::Work => Some(label::WORK_ID),
            Self::MultiClusterService => Some(label::MULTI_CLUSTER_SERVICE_ID),
            Self::ClusterTaintPolicy
            | Self::FederatedResourceQuota
            | Self::OverridePolicy
            | Self::ClusterOverridePolicy
            | Self::CronFederatedHpa
            | Self::FederatedHpa
            | Self::MultiClusterIngress
            | Self::Cluster => None,
        }
    }

    fn finalizer(self) -> Option<&'static str> {
        match self {
            Self::PropagationPolicy => Some(finalizer::PROPAGATION_POLICY),
            Self::ClusterPropagationPolicy => Some(finalizer::CLUSTER_PROPAGATION_POLICY),
            // The end of a Cluster ends its agent's credentials, also when it comes before the controllers have seen it.
            Self::Cluster => Some(finalizer::CLUSTER),
            _ => None,
        }
    }

    fn shape(self) -> &'static shape::Shape {
        match self {
            Self::PropagationPolicy | Self::ClusterPropagationPolicy => &policy::SHAPE,
            Self::OverridePolicy | Self::ClusterOverridePolicy => &overrides::SHAPE,
            Self::ResourceBinding | Self::ClusterResourceBinding => &work::BINDING_SHAPE,
            Self::ClusterTaintPolicy => &taint_policy::SHAPE,
            Self::FederatedResourceQuota => &quota::SHAPE,
            Self::Work => &work::WORK_SHAPE,
            Self::Cluster => &cluster::SHAPE,
            Self::CronFederatedHpa => &autoscaling::CRON_SHAPE,
            Self::FederatedHpa => &autoscaling::HPA_SHAPE,
            Self::MultiClusterService => &networking::SHAPE,
            Self::MultiClusterIngress => &ingress::SHAPE,
        }
    }

    fn default(self, obj: &mut Value, now: &str) {
        match self {
            Self::PropagationPolicy => {
                selector_namespaces(obj);
                policy::default(obj);
            }
            Self::ClusterPropagationPolicy => policy::default(obj),
            Self::OverridePolicy => selector_namespaces(obj),
            Self::Work => work::stamp(obj),
            Self::FederatedHpa => crate::autoscale::hpa::default(obj),
            Self::Cluster => cluster::default(obj, now),
            Self::ClusterTaintPolicy
            | Self::FederatedResourceQuota
            | Self::ClusterOverridePolicy
            | Self::CronFederatedHpa
            | Self::MultiClusterService
            | Self::MultiClusterIngress
            | Self::ResourceBinding
            | Self::ClusterResourceBinding => {}
        }
    }

    fn validate(self, old: Option<&Value>, obj: &Value) -> Result<Vec<String>, Vec<FieldError>> {
        match self {
            Self::PropagationPolicy => {
                let policy: PropagationPolicy = shape::read(obj)?;
                policy::validate(&policy.spec, object::namespace(obj), old)
            }
            Self::ClusterPropagationPolicy => {
                let policy: ClusterPropagationPolicy = shape::read(obj)?;
                policy::validate(&policy.spec, "", old)
            }
            Self::OverridePolicy => {
                let policy: OverridePolicy = shape::read(obj)?;
                overrides::validate(&policy.spec, object::namespace(obj), old)
            }
            Self::ClusterOverridePolicy => {
                overrides::validate(&shape::read::<ClusterOverridePolicy>(obj)?.spec, "", old)
            }
            Self::FederatedResourceQuota => {
                quota::validate(object::name(obj), &shape::read::<FederatedResourceQuota>(obj)?.spec)
            }
            Self::ClusterTaintPolicy => taint_policy::validate(&shape::read::<ClusterTaintPolicy>(obj)?.spec),
            Self::ResourceBinding => {
                work::validate_binding(old, obj, &shape::read::<ResourceBinding>(obj)?.spec)
            }
            Self::ClusterResourceBinding => {
                work::validate_binding(old, obj, &shape::read::<ClusterResourceBinding>(obj)?.spec)
            }
            Self::Work => shape::read::<Work>(obj).map(|_| work::warnings(obj)),
            Self::Cluster => cluster::validate(old, &shape::read(obj)?),
            Self::CronFederatedHpa => autoscaling::validate_cron(old, obj),
            Self::FederatedHpa => autoscaling::validate_hpa(obj),
            Self::MultiClusterService => networking::validate(old, obj),
            Self::MultiClusterIngress => ingress::validate(old, obj),
        }
    }
}

/// Gives an object its permanent id, once and for all. Where a client has dropped it, the old one comes back.
fn permanent_id(old: Option<&Value>, obj: &mut Value, key: &str, new_id: &mut dyn FnMut() -> String) {
    if object::label(obj, key).is_some_and(|id| !id.is_empty()) {
        return;
    }
    let before = old.and_then(|old| object::label(old, key)).filter(|id| !id.is_empty());
    let id = before.map_or_else(new_id, str::to_owned);
    object::set_label(obj, key, id);
}

/// A permanent id does not change.
fn immutable_id(old: &Value, obj: &Value, key: &str) -> Option<FieldError> {
    let before = object::label(old, key).filter(|id| !id.is_empty())?;
    let path = Path::new("metadata").child("labels").key(key);
    let detail = format!("label {key} is immutable, it can only be set by the system during creation");
    let now = object::label(obj, key).unwrap_or_default();
    (now != before).then(|| FieldError::invalid(&path, now, detail))
}

/// Selectors of a policy of a namespace mean that namespace.
fn selector_namespaces(obj: &mut Value) {
    let namespace = object::namespace(obj).to_owned();
    let selectors = obj.pointer_mut("/spec/resourceSelectors").and_then(Value::as_array_mut);
    for selector in selectors.into_iter().flatten().filter_map(Value::as_object_mut) {
        let empty = selector.get("namespace").and_then(Value::as_str).unwrap_or_default().is_empty();
        if empty && !namespace.is_empty() {
            selector.insert("namespace".into(), namespace.clone().into());
        }
    }
}

/// What is wrong with an affinity.
fn affinity_errors(affinity: &ClusterAffinity, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(labels) = &affinity.label_selector {
        errors.extend(labels.validate(&path.child("labelSelector")));
    }
    let fields = affinity.field_selector.as_ref();
    let path = path.child("fieldSelector").child("matchExpressions");
    for (i, expression) in fields.into_iter().flat_map(|fields| &fields.match_expressions).enumerate() {
        let path = path.index(i);
        if !["provider", "region", "zone"].contains(&expression.key.as_str()) {
            let detail = format!("unsupported key {:?}, must be provider, region, or zone", expression.key);
            errors.push(FieldError::invalid(&path.child("key"), expression.key.as_str(), detail));
        }
        if !["In", "NotIn"].contains(&expression.operator.as_str()) {
            let detail = format!("unsupported operator {:?}, must be In or NotIn", expression.operator);
            errors.push(FieldError::invalid(&path.child("operator"), expression.operator.as_str(), detail));
        } else if expression.values.is_empty() {
            errors.push(FieldError::required(
                &path.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ));
        }
    }
    errors
}

/// What is wrong with resource selectors.
///
/// A policy of a namespace selects there alone; what says otherwise is refused, unless it stands in `old` already.
fn selector_errors(
    selectors: &[karmada_api::policy::ResourceSelector],
    namespace: &str,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let known = |i: usize| old.and_then(|old| old["spec"]["resourceSelectors"][i]["namespace"].as_str());
    let path = Path::new("spec").child("resourceSelectors");
    let mut errors = Vec::new();
    for (i, selector) in selectors.iter().enumerate() {
        let path = path.index(i);
        if karmada_meta::parse_api_version(&selector.api_version).is_none() {
            let detail = "must be group/version, or the version alone for the core group";
            errors.push(FieldError::invalid(
                &path.child("apiVersion"),
                selector.api_version.as_str(),
                detail,
            ));
        }
        if let Some(labels) = &selector.label_selector {
            errors.extend(labels.validate(&path.child("labelSelector")));
        }
        let elsewhere = !namespace.is_empty() && selector.namespace != namespace;
        if elsewhere && known(i) != Some(selector.namespace.as_str()) {
            let detail = format!("must be the policy's own namespace {namespace:?}");
            errors.push(FieldError::invalid(&path.child("namespace"), selector.namespace.as_str(), detail));
        }
    }
    errors
}

/// The value of a field as JSON, for a message.
fn shown(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
