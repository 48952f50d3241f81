//! What `karmadactl register` may make before an agent has a certificate, and take back when it fails half way: the
//! namespaces (which stay), roles and bindings of that agent, as Karmada's template has them. Which names and rights they
//! may have the API server judges; this says that they are nobody else's, collect nothing and are held up by nothing.

use karmada_api::consts::{label, subject};
use karmada_meta::{
    object,
    path::{FieldError, Path},
};
use serde_json::{Value, json};

use super::{Act, Write, is_empty};

/// The largest such object. Those of Karmada have 2 kB.
const LARGEST: usize = 16 * 1024;

/// Judges a write of whoever makes the roles of a cluster's agent.
///
/// # Errors
/// All that it may not write, each with its field.
pub fn judge(write: &Write<'_>, object: &Value) -> Result<(), Vec<FieldError>> {
    let metadata = Path::new("metadata");
    let mut errors = Vec::new();
    let mut refuse = |path: Path, why: String| errors.push(FieldError::forbidden(&path, why));
    match (write.kind, write.act) {
        // Its own request, and what it has made for that agent and takes back: the authoriser has seen whose they are.
        (
            "certificates.k8s.io/CertificateSigningRequest"
            | "rbac.authorization.k8s.io/ClusterRole"
            | "rbac.authorization.k8s.io/ClusterRoleBinding"
            | "rbac.authorization.k8s.io/Role"
            | "rbac.authorization.k8s.io/RoleBinding",
            Act::Delete,
        ) => return Ok(()),
        ("/Namespace", Act::Create) => {
            // A finalizer of it would hold the namespace, and with it the Cluster, for ever.
            let spec = &object["spec"];
            let is_plain = is_empty(spec) || *spec == json!({"finalizers": ["kubernetes"]});
            if !is_plain {
                refuse(Path::new("spec"), "there is none on what karmadactl register makes".to_owned());
            }
        }
        ("rbac.authorization.k8s.io/ClusterRole" | "rbac.authorization.k8s.io/Role", Act::Create) => {
            if object.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
                refuse(Path::new("aggregationRule"), "the role of an agent gathers no others".to_owned());
            }
        }
        (
            "rbac.authorization.k8s.io/ClusterRoleBinding" | "rbac.authorization.k8s.io/RoleBinding",
            Act::Create,
        ) => {
            let user = format!("{}{}", subject::AGENT_PREFIX, write.cluster);
            let own = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]);
            if object["subjects"] != own {
                refuse(Path::new("subjects"), format!("must be the User {user} alone"));
            }
            let kind = if write.kind.ends_with("/RoleBinding") { "Role" } else { "ClusterRole" };
            let role = &object["roleRef"];
            if role["kind"] != kind || role["name"] != object::name(object) {
                refuse(Path::new("roleRef"), format!("must be the {kind} of the same name"));
            }
        }
        _ => refuse(Path::new("kind"), "karmadactl register does not write it".to_owned()),
    }
    for field in ["annotations", "finalizers", "ownerReferences"] {
        if object::meta(object, field).is_some_and(|value| !is_empty(value)) {
            refuse(metadata.child(field), "there are none on what karmadactl register makes".to_owned());
        }
    }
    // A label may make a role part of others, and an object a template of policies.
    let strange = |(key, value): &(&String, &Value)| {
        (key.as_str(), value.as_str()) != (label::SYSTEM, Some(label::SYSTEM_VALUE))
            && (key.as_str(), value.as_str()) != ("kubernetes.io/metadata.name", Some(object::name(object)))
    };
    let labels = object::meta(object, "labels").and_then(Value::as_object);
    if let Some((key, _)) = labels.into_iter().flatten().find(strange) {
        refuse(metadata.child("labels").key(key), format!("may be {} alone", label::SYSTEM));
    }
    let size = object.to_string().len();
    if size > LARGEST {
        refuse(Path::new("rules"), format!("the object has {size} bytes, and may have {LARGEST}"));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
