//! Reviews: questions about identity and rights, asked by creating an object that is answered and not stored.
//!
//! | kind | answers |
//! |---|---|
//! | SelfSubjectReview | who am I (`kubectl auth whoami`) |
//! | TokenReview | whose token is this |
//! | SelfSubjectAccessReview | may I (`kubectl auth can-i`) |
//! | SubjectAccessReview, LocalSubjectAccessReview | may they |
//! | SelfSubjectRulesReview | what may I in a namespace (`kubectl auth can-i --list`) |
//!
//! Everything here is a pure function of the review, the caller and the authoriser.

use std::collections::BTreeMap;

use karmada_meta::{
    fields::FieldSelector,
    object,
    path::{FieldError, Path},
    status::Status,
};
use serde_json::{Map, Value, json};

use crate::{
    authn::{Authenticator, UserInfo},
    authz::{Attributes, Authorizer, Decision, ResourceTarget, Rights, Target},
};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// The kinds of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    SelfSubject,
    Token,
    SelfAccess,
    Access,
    LocalAccess,
    Rules,
}

/// What a review is answered from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knowledge<'a> {
    pub(crate) user: &'a UserInfo,
    pub(crate) authorizer: &'a dyn Authorizer,
    pub(crate) authenticator: &'a Authenticator,
}

impl Review {
    /// The review that a resource is.
    pub(crate) fn of(group: &str, resource: &str) -> Option<Self> {
        Some(match (group, resource) {
            ("authentication.k8s.io", "selfsubjectreviews") => Self::SelfSubject,
            ("authentication.k8s.io", "tokenreviews") => Self::Token,
            (AUTHORIZATION, "selfsubjectaccessreviews") => Self::SelfAccess,
            (AUTHORIZATION, "subjectaccessreviews") => Self::Access,
            (AUTHORIZATION, "localsubjectaccessreviews") => Self::LocalAccess,
            (AUTHORIZATION, "selfsubjectrulesreviews") => Self::Rules,
            _ => return None,
        })
    }

    /// Fills in the answer. `review` has been decoded.
    ///
    /// # Errors
    /// 400 and 422 for what cannot be asked so.
    pub(crate) fn answer(self, review: &mut Value, know: &Knowledge<'_>, now: &str) -> Result<(), Status> {
        let spec = review.get("spec").cloned().unwrap_or(Value::Null);
        let status = match self {
            Self::SelfSubject => {
                object::set_meta(review, "creationTimestamp", now);
                json!({"userInfo": know.user.info()})
            }
            Self::Token => token(&spec, know)?,
            Self::SelfAccess | Self::Access | Self::LocalAccess => {
                let mut errors = self.spec_errors(&spec);
                errors.extend(self.metadata_errors(review));
                if !errors.is_empty() {
                    return Err(Status::invalid("", AUTHORIZATION, "", errors));
                }
                let subject = if self == Self::SelfAccess { know.user.clone() } else { subject(&spec) };
                access(&spec, &subject, know.authorizer)
            }
            Self::Rules => {
                let namespace = spec["namespace"].as_str().unwrap_or_default();
                if namespace.is_empty() {
                    return Err(Status::bad_request("no namespace on request"));
                }
                rules(know.authorizer.rights(know.user, namespace))
            }
        };
        review["status"] = status;
        Ok(())
    }

    fn spec_errors(self, spec: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let mut errors = Vec::new();
        let resource = spec.get("resourceAttributes").filter(|v| !v.is_null());
        let other = spec.get("nonResourceAttributes").filter(|v| !v.is_null());
        match (resource, other) {
            (Some(_), Some(other)) => {
                let detail = "cannot be specified in combination with resourceAttributes";
                errors.push(FieldError::invalid(
                    &path.child("nonResourceAttributes"),
                    go_names(other),
                    detail,
                ));
            }
            (None, None) => {
                let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                errors.push(FieldError::invalid(&path.child("resourceAttributes"), Value::Null, detail));
            }
            _ => {}
        }
        let nobody = |field: &str| {
            spec.get(field).is_none_or(|v| matches!(v, Value::Null) || *v == "" || *v == json!([]))
        };
        if self != Self::SelfAccess && nobody("user") && nobody("groups") {
            let detail = "at least one of user or group must be specified";
            errors.push(FieldError::invalid(&path.child("user"), "", detail));
        }
        if let Some(resource) = resource {
            errors.extend(selector_errors(resource, &path.child("resourceAttributes")));
        }
        errors
    }

    fn metadata_errors(self, review: &Value) -> Vec<FieldError> {
        let local = self == Self::LocalAccess;
        let mut meta: Map<String, Value> = review["metadata"].as_object().cloned().unwrap_or_default();
        let namespace = meta.get("namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
        meta.remove("managedFields");
        if local {
            meta.remove("namespace");
        }
        let mut errors = Vec::new();
        if !meta.is_empty() {
            let detail = if local { "must be empty except for namespace" } else { "must be empty" };
            errors.push(FieldError::invalid(&Path::new("metadata"), Value::Object(meta), detail));
        }
        let spec = &review["spec"];
        if local {
            let path = Path::new("spec");
            if let Some(resource) = spec.get("resourceAttributes") {
                let asked = resource["namespace"].as_str().unwrap_or_default();
                if asked != namespace {
                    let path = path.child("resourceAttributes").child("namespace");
                    errors.push(FieldError::invalid(&path, asked, "must match metadata.namespace"));
                }
            }
            if let Some(other) = spec.get("nonResourceAttributes") {
                let path = path.child("nonResourceAttributes");
                errors.push(FieldError::invalid(
                    &path,
                    go_names(other),
                    "disallowed on this kind of request",
                ));
            }
        }
        errors
    }
}

/// Whose token it is.
fn token(spec: &Value, know: &Knowledge<'_>) -> Result<Value, Status> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences: Vec<&str> = spec["audiences"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let asked = (!audiences.is_empty()).then_some(audiences.as_slice());
    Ok(match know.authenticator.token(token, asked) {
        Ok(accepted) => {
            json!({"authenticated": true, "user": accepted.known.user.info(), "audiences": accepted.audiences})
        }
        Err(why) => json!({"user": {}, "error": why.for_review()}),
    })
}

/// Fields as Go names them, for values that an error shows of a type without JSON names.
fn go_names(value: &Value) -> Value {
    let Value::Object(map) = value else { return value.clone() };
    let capital = |key: &String| {
        let mut letters = key.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().chain(letters).collect::<String>())
            .unwrap_or_default()
    };
    Value::Object(map.iter().map(|(key, value)| (capital(key), value.clone())).collect())
}

/// The user that a review is about. Their groups are those that it names, and no others.
fn subject(spec: &Value) -> UserInfo {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let extra: BTreeMap<String, Vec<String>> = spec["extra"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, values)| (key.to_ascii_lowercase(), texts(values)))
        .collect();
    UserInfo { name: text("user"), groups: texts(&spec["groups"]), uid: text("uid"), extra }
}

fn selector_errors(resource: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["fieldSelector", "labelSelector"] {
        let Some(selector) = resource.get(field).filter(|v| !v.is_null()) else { continue };
        let path = path.child(field);
        let raw = selector["rawSelector"].as_str().unwrap_or_default();
        let requirements = selector["requirements"].as_array().map_or(0, Vec::len);
        if !raw.is_empty() && requirements > 0 {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(&path.child("rawSelector"), raw, detail));
        }
        if raw.is_empty() && requirements == 0 {
            let path = path.child("requirements");
            errors.push(FieldError::required(
                &path,
                "when fieldSelector is specified, requirements or rawSelector is required"
                    .replace("fieldSelector", field),
            ));
        }
    }
    errors
}

/// The field selector that a review speaks of, as far as it is one of equality.
fn field_selector(resource: &Value) -> Option<FieldSelector> {
    let selector = resource.get("fieldSelector")?;
    if let Some(raw) = selector["rawSelector"].as_str() {
        return FieldSelector::parse(raw).ok();
    }
    let terms: Option<Vec<String>> = selector["requirements"]
        .as_array()?
        .iter()
        .map(|requirement| {
            let value = requirement["values"].as_array().filter(|v| v.len() == 1)?.first()?.as_str()?;
            let key = requirement["key"].as_str()?;
            match requirement["operator"].as_str()? {
                "In" => Some(format!("{key}={value}")),
                "NotIn" => Some(format!("{key}!={value}")),
                _ => None,
            }
        })
        .collect();
    // One that cannot be told narrows nothing.
    FieldSelector::parse(&terms?.join(",")).ok()
}

/// Whether the user may.
fn access(spec: &Value, user: &UserInfo, authorizer: &dyn Authorizer) -> Value {
    let decide = |verb: &str, target| authorizer.explain(&Attributes { user, verb, target });
    let text = |value: &'_ Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (decision, reason) = match spec.get("resourceAttributes") {
        Some(asked) => {
            let fields = field_selector(asked);
            let field = |name: &str| text(asked, name);
            let (group, resource, subresource) = (field("group"), field("resource"), field("subresource"));
            let (namespace, name) = (field("namespace"), field("name"));
            let target = ResourceTarget {
                group: &group,
                resource: &resource,
                subresource: &subresource,
                namespace: &namespace,
                name: &name,
                fields: fields.as_ref(),
            };
            decide(&field("verb"), Target::Resource(target))
        }
        None => {
            let asked = &spec["nonResourceAttributes"];
            decide(&text(asked, "verb"), Target::Path(&text(asked, "path")))
        }
    };
    let mut status = match decision {
        Decision::Allow => json!({"allowed": true}),
        Decision::NoOpinion => json!({"allowed": false}),
        Decision::Deny(_) => json!({"allowed": false, "denied": true}),
    };
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

/// What a user may, as a review tells it.
fn rules(rights: Rights) -> Value {
    let resources: Vec<Value> = rights
        .resources
        .into_iter()
        .map(|right| {
            let mut rule =
                json!({"verbs": right.verbs, "apiGroups": right.groups, "resources": right.resources});
            if !right.names.is_empty() {
                rule["resourceNames"] = json!(right.names);
            }
            rule
        })
        .collect();
    let paths: Vec<Value> = rights
        .paths
        .into_iter()
        .map(|(verbs, paths)| json!({"verbs": verbs, "nonResourceURLs": paths}))
        .collect();
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": !rights.untold.is_empty()});
    if !rights.untold.is_empty() {
        status["evaluationError"] = rights.untold.into();
    }
    status
}
