//! What an agent may write of what it may reach, in the manner of kube-apiserver's NodeRestriction.
//!
//! The authoriser says which objects an agent may touch; this says which of their fields. It is judged on the object
//! that results, so that it makes no difference by which verb or kind of patch it came about.
//!
//! | kind | an agent may |
//! |---|---|
//! | Cluster | make and delete its own; of its fields see [`CLUSTER`]; its status but for [`HUB_CONDITIONS`] and `remedyActions` |
//! | Work | let go of it and report its status; make and change those that hold EndpointSlices it has collected (Karmada's controllers for ServiceExports do); delete any in its namespace (`karmadactl unregister` does) |
//! | Lease | its own |
//! | Secret | `<cluster>` and `<cluster>-impersonator`, where a stock karmada-agent reports credentials of its member; of no special type |
//! | CertificateSigningRequest | make them |
//! | Event | about its own Cluster in `default`, about what is in its own namespace there, about templates that its cluster has, in its name; only its own ones again, and a server that can answers as if there were no others |
//!
//! None of it may be of any size, or of a size that says little of what it holds: see [`too_much`].
//!
//! Owners of any of them can only be its own Cluster: an owner that is another's would hold up its deletion.
//!
//! What an agent's flags say about its member (provider, region, zones) is written at every start by a stock
//! karmada-agent, which ends when it is refused. So there another value is not refused: the platform's stays, and a
//! warning says so. Everything else that no agent writes is refused.

mod cluster;
mod event;
pub mod generator;
mod size;
pub mod work;

use karmada_api::consts::{namespace, subject};
use karmada_meta::{
    names::RBAC_GENERATOR,
    object,
    path::{FieldError, Path},
};
use serde_json::Value;

pub use self::{
    cluster::{CLUSTER, HUB_CONDITIONS, May, Otherwise, Row, has_registered},
    event::{MESSAGE_LIMIT, Template, is_nobodys, template},
};
use crate::names;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A new object.
    Create,
    /// A changed one.
    Update,
    /// The object goes.
    Delete,
}

/// A write of an agent's.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Whose agent.
    pub cluster: &'a str,
    /// What is done.
    pub act: Act,
    /// `cluster.karmada.io/Cluster`; `/Event` in the core group.
    pub kind: &'a str,
    /// `status`, …; empty for the object itself.
    pub subresource: &'a str,
    /// Where; empty at the cluster scope.
    pub namespace: &'a str,
    /// What is there.
    pub old: Option<&'a Value>,
    /// The uid of the Cluster, empty if there is none; nothing where nobody has looked.
    pub uid: Option<&'a str>,
    /// Of an event: whether its [`template`] is to be on that cluster.
    pub has_template: bool,
}

/// The cluster whose agent a user is: by the name that certificates bear, or on a stock kube-apiserver by that of the
/// ServiceAccount in `manifests/hub/agent-rbac.yaml`. What only looks like one may be none, but is never less restricted.
pub fn cluster_of_user<'a>(name: &'a str, groups: &[&str]) -> Option<&'a str> {
    if groups.contains(&subject::MASTERS) {
        return None;
    }
    let by_name = name.strip_prefix(subject::AGENT_PREFIX).filter(|_| groups.contains(&subject::AGENTS));
    let account = || {
        let account = name.strip_prefix("system:serviceaccount:")?.strip_prefix(namespace::SYSTEM)?;
        account.strip_prefix(":karmada-agent-")
    };
    by_name.or_else(account).filter(|cluster| !cluster.is_empty() && *cluster != RBAC_GENERATOR)
}

/// Judges a write, and puts back into `object` what is not the agent's to change where that is not refused. Of a deletion
/// `object` is what is there. Answers with what the agent should know.
///
/// # Errors
/// All that an agent may not write, each with its field and with who may.
pub fn judge(write: &Write<'_>, object: &mut Value) -> Result<Vec<String>, Vec<FieldError>> {
    let errors = match (write.kind, write.subresource) {
        ("cluster.karmada.io/Cluster", "") => return cluster::judge(write, object),
        ("cluster.karmada.io/Cluster", "status") => {
            if let Some(error) = cluster::is_hubs(write.old, write.cluster) {
                return Err(vec![error]);
            }
            let errors = cluster::long_texts(object);
            if !errors.is_empty() {
                return Err(errors);
            }
            cluster::keep_status(write.old, object);
            return Ok(Vec::new());
        }
        ("work.karmada.io/Work", "") => work::judge(write, object),
        // What else is in the body is not taken from there.
        ("work.karmada.io/Work", "status") => Vec::new(),
        ("coordination.k8s.io/Lease", "") => lease(write, object),
        ("/Secret", "") => secret(write, object),
        // Whom it is for is for the approver to look at.
        ("certificates.k8s.io/CertificateSigningRequest", "") if write.act == Act::Create => {
            owned(write, object).into_iter().collect()
        }
        ("/Event" | "events.k8s.io/Event", "") => event::judge(write, object),
        _ => vec![FieldError::forbidden(&Path::new("kind"), "agents do not write it")],
    };
    if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) }
}

/// Why what comes of a write is more than an agent may have stored, if it is.
pub fn too_much(write: &Write<'_>, object: &Value) -> Option<String> {
    (write.act != Act::Delete).then(|| size::too_much(write, object)).flatten()
}

fn lease(write: &Write<'_>, object: &Value) -> Vec<FieldError> {
    let mut errors = named(write, object, |name| name == write.cluster);
    errors.extend(kept_by(object, write.old, &[]));
    errors.extend(owned(write, object));
    errors
}

/// Types of Secrets that others act on (service account tokens, bootstrap tokens) are not an agent's to make.
fn secret(write: &Write<'_>, object: &Value) -> Vec<FieldError> {
    let own = |name: &str| name == write.cluster || name.strip_suffix("-impersonator") == Some(write.cluster);
    let mut errors = named(write, object, own);
    let type_ = object["type"].as_str().unwrap_or_default();
    if !matches!(type_, "" | "Opaque") {
        let detail = "an agent reports credentials of its member in Secrets of type Opaque only";
        errors.push(FieldError::forbidden(&Path::new("type"), detail));
    }
    errors.extend(kept_by(object, write.old, &[]));
    errors.extend(owned(write, object));
    errors
}

/// A new object bears a name of the agent's: of those that are there the authoriser has judged it.
fn named(write: &Write<'_>, object: &Value, own: impl Fn(&str) -> bool) -> Vec<FieldError> {
    if write.act != Act::Create || own(object::name(object)) {
        return Vec::new();
    }
    let detail = format!("the agent of cluster {} may create only what bears that name", write.cluster);
    vec![FieldError::forbidden(&Path::new("metadata").child("name"), detail)]
}

/// Finalizers come and go only if they are those of controllers that an agent runs.
fn kept_by(object: &Value, old: Option<&Value>, own: &[&str]) -> Option<FieldError> {
    let others = |object: &Value| -> Vec<String> {
        let all = object::finalizers(object).into_iter().filter(|finalizer| !own.contains(finalizer));
        let mut all: Vec<String> = all.map(str::to_owned).collect();
        all.sort_unstable();
        all
    };
    (others(object) != old.map(others).unwrap_or_default()).then(|| {
        let detail = match own {
            [] => "an agent neither sets nor removes finalizers here".to_owned(),
            own => format!("an agent sets and removes only {}", own.join(", ")),
        };
        FieldError::forbidden(&Path::new("metadata").child("finalizers"), detail)
    })
}

/// An owner that an agent sets is its own Cluster. What was there before stays as it is.
fn owned(write: &Write<'_>, object: &Value) -> Option<FieldError> {
    let raw =
        |object: &Value| object::meta(object, "ownerReferences").cloned().filter(|list| !is_empty(list));
    let (before, after) = (write.old.and_then(raw), raw(object));
    if before == after || after.is_none() {
        return None;
    }
    let own = object::owner_references(object).iter().all(|owner| {
        owner.kind == "Cluster"
            && owner.api_version.starts_with("cluster.karmada.io/")
            && owner.name == write.cluster
            // What collects goes by the uid, which would be another object's.
            && write.uid.is_none_or(|uid| owner.uid == uid)
    });
    (!own).then(|| {
        let detail = format!("may name only the Cluster {}, by its uid", write.cluster);
        FieldError::forbidden(&Path::new("metadata").child("ownerReferences"), detail)
    })
}

/// Whether a field says as much as one that is not there.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// What says something of two values is the same.
fn is_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let said = |value: Option<&Value>| value.filter(|value| !is_empty(value)).cloned();
    said(a) == said(b)
}

fn is_own_namespace(write: &Write<'_>) -> bool {
    names::cluster_of_namespace(write.namespace) == Some(write.cluster)
}

#[cfg(test)]
mod tests;
