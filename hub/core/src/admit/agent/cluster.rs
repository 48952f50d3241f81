//! An agent's own Cluster.
//!
//! What decides where workloads go is the platform's. An agent says once, when it registers, what its flags know of the
//! member; whoever steals its credential later must not draw other tenants' workloads (or, by an own name for a
//! finalizer, hold up its removal).

use std::collections::BTreeMap;

use karmada_api::consts::{extension, finalizer};
use karmada_meta::{
    object,
    path::{FieldError, Path},
};
use serde_json::{Map, Value, json};

use super::{Act, Write, is_same, named};

/// When an agent may set a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// When it makes its Cluster.
    Create,
    /// Then, and when it takes over a Cluster that the platform has made, which has no `spec.id` yet, if nothing stands
    /// there.
    Register,
    /// The same, if nothing at all is said about where the member's API is.
    Place,
    /// As with [`May::Register`], if it names the agent's own Secret; it may take that away at any time.
    OwnSecret,
    /// Never.
    Never,
}

/// What becomes of another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The write is refused.
    Refused,
    /// The platform's stays, and a warning says so: a stock agent writes it at every start and ends when refused.
    Kept,
}

/// A field of a Cluster.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// `metadata` or `spec`.
    pub part: &'static str,
    /// The field.
    pub field: &'static str,
    /// When an agent may set it.
    pub may: May,
    /// What becomes of another value.
    pub otherwise: Otherwise,
    /// How the platform team changes it; `NAME` stands for the cluster.
    pub instead: &'static str,
}

const fn row(
    part: &'static str,
    field: &'static str,
    may: May,
    otherwise: Otherwise,
    instead: &'static str,
) -> Row {
    Row { part, field, may, otherwise, instead }
}

const EDIT: &str = "kubectl edit cluster NAME";
const AGAIN: &str = "kubectl delete cluster NAME, before another member joins under its name";

/// What an agent may set of its Cluster's metadata and spec. A field of the spec that is not here is never an agent's.
pub const CLUSTER: &[Row] = &[
    row("metadata", "labels", May::Create, Otherwise::Refused, "kubectl label cluster NAME KEY=VALUE"),
    row(
        "metadata",
        "annotations",
        May::Create,
        Otherwise::Refused,
        "kubectl annotate cluster NAME KEY=VALUE",
    ),
    row("metadata", "finalizers", May::Never, Otherwise::Refused, EDIT),
    row("metadata", "ownerReferences", May::Never, Otherwise::Refused, EDIT),
    row("spec", "id", May::Register, Otherwise::Refused, AGAIN),
    row("spec", "syncMode", May::Create, Otherwise::Refused, EDIT),
    row("spec", "apiEndpoint", May::Place, Otherwise::Kept, EDIT),
    row("spec", "insecureSkipTLSVerification", May::Place, Otherwise::Kept, EDIT),
    row("spec", "proxyURL", May::Place, Otherwise::Kept, EDIT),
    row("spec", "proxyHeader", May::Place, Otherwise::Kept, EDIT),
    row("spec", "secretRef", May::OwnSecret, Otherwise::Refused, EDIT),
    row("spec", "impersonatorSecretRef", May::OwnSecret, Otherwise::Refused, EDIT),
    row("spec", "provider", May::Register, Otherwise::Kept, EDIT),
    row("spec", "region", May::Register, Otherwise::Kept, EDIT),
    row("spec", "zone", May::Register, Otherwise::Kept, EDIT),
    row("spec", "zones", May::Register, Otherwise::Kept, EDIT),
    row("spec", "taints", May::Create, Otherwise::Refused, "karmada-hub taint NAME KEY=VALUE:EFFECT"),
    row("spec", "resourceModels", May::Create, Otherwise::Refused, EDIT),
];

/// Conditions that the hub alone sets and removes.
pub const HUB_CONDITIONS: [&str; 6] = [
    extension::LINK_GRACE,
    extension::LINK_SCHEDULED,
    extension::LINK_FLAPPING,
    extension::STATUS_STALE,
    extension::EVICTIONS_HELD,
    extension::CREDENTIAL_EXPIRING,
];

/// Annotations that are a report of the agent's.
const REPORTS: [&str; 7] = [
    extension::NODES,
    extension::QUOTAS,
    extension::TUNNEL,
    extension::SEARCH_COPIES,
    extension::LINK,
    extension::VERSION,
    extension::AGENT_UPGRADE,
];

/// Annotations that say what the agent's flags know of the member: they are its own when it makes its Cluster.
const FACTS: [&str; 1] = [extension::LINK_WINDOWS];

/// How far an agent has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It makes its Cluster.
    Creating,
    /// It takes over one that the platform has made.
    Registering,
    /// It has registered.
    Later,
}

/// Why an agent has no business with a Cluster, if it has none.
pub(super) fn is_hubs(old: Option<&Value>, cluster: &str) -> Option<FieldError> {
    old.filter(|old| old["spec"]["syncMode"] == "Push").map(|_| {
        let detail = format!(
            "the hub itself works on {cluster}, with a credential that goes where the Cluster says: {}",
            EDIT.replace("NAME", cluster)
        );
        FieldError::forbidden(&Path::new("spec").child("syncMode"), detail)
    })
}

pub(super) fn judge(write: &Write<'_>, object: &mut Value) -> Result<Vec<String>, Vec<FieldError>> {
    if let Some(error) = is_hubs(write.old, write.cluster) {
        return Err(vec![error]);
    }
    if write.act == Act::Delete {
        // A member leaves with the credential that it joined with.
        return Ok(Vec::new());
    }
    let nothing = Value::Null;
    let old = write.old.unwrap_or(&nothing);
    let stage = match write.act {
        Act::Create => Stage::Creating,
        _ if old["spec"]["id"].as_str().unwrap_or_default().is_empty() => Stage::Registering,
        _ => Stage::Later,
    };
    let mut errors = named(write, object, |name| name == write.cluster);
    let mut warnings = Vec::new();
    for row in CLUSTER {
        let (before, after) = (old[row.part].get(row.field), object[row.part].get(row.field));
        let problem = match row.field {
            "labels" | "annotations" => entries(row, stage, write, before, after),
            _ if is_same(before, after) || allowed(row, stage, write.cluster, old, after) => None,
            _ => Some(FieldError::forbidden(&path(row), detail(row, write.cluster))),
        };
        match (problem, otherwise(row, write.cluster, after)) {
            (None, _) => {}
            (Some(error), Otherwise::Refused) => errors.push(error),
            (Some(error), Otherwise::Kept) => {
                warnings.push(format!("{}: the hub's value stays; {}", path(row), error.detail));
                keep(object, row, before.cloned());
            }
        }
    }
    let path = Path::new("spec").child("id");
    errors.extend(too_long(&path, &object["spec"]["id"], ID_LIMIT));
    let known = |field: &str| CLUSTER.iter().any(|row| row.part == "spec" && row.field == field);
    let unknown = |value: &Value| -> BTreeMap<String, Value> {
        let fields = value["spec"].as_object().into_iter().flatten();
        let unknown = fields.filter(|(field, value)| !known(field) && !super::is_empty(value));
        unknown.map(|(field, value)| (field.clone(), value.clone())).collect()
    };
    let (before, after) = (unknown(old), unknown(object));
    for field in before.keys().chain(after.keys().filter(|field| !before.contains_key(*field))) {
        if before.get(field) != after.get(field) {
            let detail = format!("it is the platform's: {}", EDIT.replace("NAME", write.cluster));
            errors.push(FieldError::forbidden(&Path::new("spec").child(field), detail));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if !warnings.is_empty() {
        disown(old, object);
    }
    if stage != Stage::Later {
        object::set_annotation(object, extension::REPORTED_BY, write.cluster);
    }
    Ok(warnings)
}

/// The longest id of a member: those of Kubernetes have 36 bytes.
const ID_LIMIT: usize = 128;
/// The longest version that a member tells.
const VERSION_LIMIT: usize = 256;
/// The longest other text in a status. Messages of conditions may have what the definition gives them.
const TEXT_LIMIT: usize = 4 << 10;

fn too_long(path: &Path, value: &Value, limit: usize) -> Option<FieldError> {
    let length = value.as_str().map_or(0, str::len);
    (length > limit).then(|| {
        FieldError::forbidden(path, format!("it has {length} bytes, and an agent may report {limit} there"))
    })
}

/// The texts of a Cluster's status that are longer than anything that a member is or has is called. People look at them
/// in columns.
pub(super) fn long_texts(object: &Value) -> Vec<FieldError> {
    let status = Path::new("status");
    let mut errors: Vec<FieldError> = Vec::new();
    let version = object["status"].get("kubernetesVersion");
    errors.extend(
        version.and_then(|version| too_long(&status.child("kubernetesVersion"), version, VERSION_LIMIT)),
    );
    // The first is enough.
    errors.extend(object.get("status").and_then(|value| long_text(&status, value)));
    errors
}

fn long_text(path: &Path, value: &Value) -> Option<FieldError> {
    match value {
        Value::String(_) => too_long(path, value, TEXT_LIMIT),
        Value::Array(list) => list.iter().enumerate().find_map(|(i, item)| long_text(&path.index(i), item)),
        Value::Object(map) => {
            map.iter().filter(|(field, _)| *field != "message").find_map(|(field, value)| {
                if field.len() > TEXT_LIMIT {
                    return Some(FieldError::forbidden(
                        path,
                        format!("a key has more than {TEXT_LIMIT} bytes"),
                    ));
                }
                long_text(&path.child(field), value)
            })
        }
        _ => None,
    }
}

fn allowed(row: &Row, stage: Stage, cluster: &str, old: &Value, after: Option<&Value>) -> bool {
    let is_vacant = |row: &Row| super::is_empty(&old[row.part][row.field]);
    let vacant = is_vacant(row);
    match row.may {
        May::Create if row.field == "syncMode" => {
            // The hub works on a member in Push mode by itself: an agent has no business there.
            stage == Stage::Creating && after.is_some_and(|mode| mode == "Pull")
        }
        May::Create => stage == Stage::Creating,
        May::Register => stage == Stage::Creating || (stage == Stage::Registering && vacant),
        // All of it or nothing: the hub dials what stands there, and shows what the Secrets hold, which may be the platform's.
        // Never later: users' requests would go where whoever has stolen the agent's credential wants them.
        May::Place => {
            let nowhere = || CLUSTER.iter().filter(|row| row.may == May::Place).all(is_vacant);
            stage == Stage::Creating || (stage == Stage::Registering && nowhere())
        }
        May::OwnSecret if after.is_none_or(super::is_empty) => true,
        May::OwnSecret => {
            let is_first = stage == Stage::Creating || (stage == Stage::Registering && vacant);
            is_first && is_own_secret(row, cluster, after)
        }
        // Admission puts it there; a stock kube-apiserver asks about the agent after that.
        May::Never if row.field == "finalizers" => {
            stage == Stage::Creating && after == Some(&json!([finalizer::CLUSTER]))
        }
        May::Never => false,
    }
}

/// Whether a reference names the Secret in which this cluster's agent reports a credential of its member.
fn is_own_secret(row: &Row, cluster: &str, reference: Option<&Value>) -> bool {
    let suffix = if row.field == "impersonatorSecretRef" { "-impersonator" } else { "" };
    reference.is_some_and(|secret| {
        secret["namespace"] == karmada_api::consts::namespace::CLUSTER
            && secret["name"].as_str().and_then(|name| name.strip_suffix(suffix)) == Some(cluster)
    })
}

/// What becomes of a value that may not be set. A stock agent that is told to report its credentials later names its Secret at
/// every start; one that names another's is refused.
fn otherwise(row: &Row, cluster: &str, after: Option<&Value>) -> Otherwise {
    match row.may {
        May::OwnSecret if is_own_secret(row, cluster, after) => Otherwise::Kept,
        _ => row.otherwise,
    }
}

/// Judges labels or annotations key by key; an agent's reports are its own at any time.
fn entries(
    row: &Row,
    stage: Stage,
    write: &Write<'_>,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Option<FieldError> {
    let map = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (before, after): (Map<_, _>, Map<_, _>) = (map(before), map(after));
    let changed = before.keys().chain(after.keys()).find(|key| {
        let report = row.field == "annotations" && REPORTS.contains(&key.as_str());
        let fact = row.field == "annotations" && FACTS.contains(&key.as_str());
        let own = stage == Stage::Creating && (fact || !is_reserved(key));
        // Set below; whoever judges again finds it.
        let mark = key.as_str() == extension::REPORTED_BY
            && stage != Stage::Later
            && after.get(*key).is_some_and(|value| value == write.cluster);
        before.get(*key) != after.get(*key) && !report && !own && !mark
    })?;
    let path = path(row).key(changed);
    if is_reserved(changed) {
        let detail =
            format!("keys of Karmada and Kubernetes are the platform's; {}", detail(row, write.cluster));
        return Some(FieldError::forbidden(&path, detail));
    }
    Some(FieldError::forbidden(&path, detail(row, write.cluster)))
}

/// Keys by which Karmada, Kubernetes and this hub are told what to do.
fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    ["karmada.io", "kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain == *own || domain.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
}

fn path(row: &Row) -> Path {
    Path::new(row.part).child(row.field)
}

fn detail(row: &Row, cluster: &str) -> String {
    let when = match row.may {
        May::Create | May::Register => "it is the platform's once the cluster has registered",
        May::OwnSecret => "an agent may name its own Secret only, and only when it registers",
        May::Place => {
            "where the member's API is, an agent says only when it registers, and only where nobody has said it"
        }
        May::Never => "it is the platform's",
    };
    format!("{when}: {}", row.instead.replace("NAME", cluster))
}

/// Whether an agent has ever registered as a Cluster, or reported for it: then its credential goes with the Cluster.
pub fn has_registered(cluster: &Value) -> bool {
    let reports = ["kubernetesVersion", "apiEnablements", "nodeSummary", "resourceSummary"];
    object::annotation(cluster, extension::REPORTED_BY).is_some()
        || reports.iter().any(|field| !super::is_empty(&cluster["status"][*field]))
}

/// Puts back what stood in a field.
fn keep(object: &mut Value, row: &Row, before: Option<Value>) {
    let map = object::ensure_map(object, row.part);
    match before {
        Some(value) => drop(map.insert(row.field.to_owned(), value)),
        None => drop(map.shift_remove(row.field)),
    }
}

/// Who owns the fields is as before if nothing else has changed: a value that was not taken is not its author's.
fn disown(old: &Value, object: &mut Value) {
    let bare = |value: &Value| {
        let mut value = value.clone();
        object::remove_meta(&mut value, "managedFields");
        object::remove_meta(&mut value, "resourceVersion");
        value
    };
    if bare(old) == bare(object)
        && let Some(owners) = object::meta(old, "managedFields")
    {
        object::set_meta(object, "managedFields", owners.clone());
    }
}

/// Keeps of a status what is the hub's. An agent sends the whole of it back, at times an older one: that is no offence.
pub(super) fn keep_status(old: Option<&Value>, object: &mut Value) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    let before = old.and_then(|old| old.get("status"));
    match before.and_then(|before| before.get("remedyActions")) {
        Some(actions) => drop(status.insert("remedyActions".into(), actions.clone())),
        None => drop(status.shift_remove("remedyActions")),
    }
    fn is_hubs(condition: &Value) -> bool {
        condition["type"].as_str().is_some_and(|type_| HUB_CONDITIONS.contains(&type_))
    }
    let of = |value: Option<&Value>| -> Vec<Value> {
        value
            .and_then(|status| status.get("conditions"))
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let mut ours: Vec<Value> = of(before).into_iter().filter(is_hubs).collect();
    let reported = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut kept = Vec::with_capacity(reported.len() + ours.len());
    for condition in reported {
        if !is_hubs(&condition) {
            kept.push(condition);
        } else if let Some(at) = ours.iter().position(|own| own["type"] == condition["type"]) {
            // Where it stood, so that nothing has changed if nothing has.
            kept.push(ours.remove(at));
        }
    }
    kept.append(&mut ours);
    if !kept.is_empty() || status.contains_key("conditions") {
        status.insert("conditions".into(), kept.into());
    }
}
