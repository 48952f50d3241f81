//! The `Status` object: what a server answers when it cannot answer with the object asked for.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    go_quote,
    gvk::{GroupKind, GroupResource},
    path::{FieldError, joined, told},
};

/// meta/v1 `Status`. As an error it prints its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Always `Status`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Always `v1`.
    #[serde(default = "version", rename = "apiVersion")]
    pub api_version: String,
    /// Holds the continue token of an expired list, else nothing.
    #[serde(default)]
    pub metadata: StatusMeta,
    /// `Success` or `Failure`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For machines: `NotFound`, `Conflict`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// About which object, which of its fields, and when to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code; 0 (unset) on success.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// List metadata of a Status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusMeta {
    /// Where an expired list may go on, at the latest state.
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_: String,
    /// Revision of the answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

/// What a Status is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its kind, or its resource where the request named no kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Each mistake on its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds to wait before trying again; 0 is unset.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub retry_after_seconds: u32,
}

/// One mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCause {
    /// For machines: `FieldValueInvalid`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Where in the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn kind() -> String {
    "Status".to_owned()
}

fn version() -> String {
    "v1".to_owned()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero(code: &u16) -> bool {
    *code == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero_u32(n: &u32) -> bool {
    *n == 0
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            write!(f, "{} ({})", self.reason, self.code)
        } else {
            f.write_str(&self.message)
        }
    }
}

impl std::error::Error for Status {}

/// What an apply conflict's cause and the conflict's Status have as their reason.
pub const FIELD_MANAGER_CONFLICT: &str = "FieldManagerConflict";
/// The cause by which clients know that they asked for a revision that does not exist yet.
pub const RESOURCE_VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";
/// What a write over a stale resourceVersion is told.
pub const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Status {
    fn failure(code: u16, reason: &str, message: impl Into<String>, details: Option<StatusDetails>) -> Self {
        Self {
            kind: kind(),
            api_version: version(),
            metadata: StatusMeta::default(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.to_owned(),
            details,
            code,
        }
    }

    fn about(gr: &GroupResource, name: &str) -> StatusDetails {
        StatusDetails {
            name: name.to_owned(),
            group: gr.group.clone(),
            kind: gr.resource.clone(),
            ..StatusDetails::default()
        }
    }

    /// The HTTP status code; 200 when none is set.
    pub fn code(&self) -> u16 {
        if self.code == 0 { 200 } else { self.code }
    }

    /// Whether the reason is `NotFound`.
    pub fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    /// Whether the reason is `Conflict`.
    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    /// Whether the reason is `AlreadyExists`.
    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// What a delete answers whose kind does not return the object.
    pub fn success(gr: &GroupResource, name: &str, uid: &str) -> Self {
        Self {
            status: "Success".to_owned(),
            details: Some(StatusDetails { uid: uid.to_owned(), ..Self::about(gr, name) }),
            ..Self::failure(0, "", "", None)
        }
    }

    /// 404 of one object.
    pub fn not_found(gr: &GroupResource, name: &str) -> Self {
        let message = format!("{gr} {} not found", go_quote(name));
        Self::failure(404, "NotFound", message, Some(Self::about(gr, name)))
    }

    /// 404 of a path that names no resource.
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::failure(404, "NotFound", message, Some(StatusDetails::default()))
    }

    /// 409: the name is taken.
    pub fn already_exists(gr: &GroupResource, name: &str) -> Self {
        let message = format!("{gr} {} already exists", go_quote(name));
        Self::failure(409, "AlreadyExists", message, Some(Self::about(gr, name)))
    }

    /// 409: no free name was found below a generateName; worth another try.
    pub fn generate_name_conflict(gr: &GroupResource, name: &str) -> Self {
        let message = format!(
            "{gr} {} already exists, the server was not able to generate a unique name for the object",
            go_quote(name)
        );
        let details = StatusDetails { retry_after_seconds: 1, ..Self::about(gr, name) };
        Self::failure(409, "AlreadyExists", message, Some(details))
    }

    /// 409: a precondition does not hold. [`MODIFIED`] is the usual text.
    pub fn conflict(gr: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {gr} {}: {why}", go_quote(name));
        Self::failure(409, "Conflict", message, Some(Self::about(gr, name)))
    }

    /// 409 of a server-side apply. Each cause's message begins with `conflict with "manager"`; the Status'
    /// message groups the causes by it.
    pub fn apply_conflict(causes: Vec<StatusCause>) -> Self {
        let message = match &causes[..] {
            [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
            many => {
                let mut managers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for cause in many {
                    managers.entry(&cause.message).or_default().push(&cause.field);
                }
                let mut lines = Vec::with_capacity(many.len() + managers.len());
                for (manager, fields) in managers {
                    let who = manager.strip_prefix("conflict with ").unwrap_or(manager);
                    lines.push(format!("conflicts with {who}:"));
                    lines.extend(fields.into_iter().map(|field| format!("- {field}")));
                }
                format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
            }
        };
        Self::failure(409, "Conflict", message, Some(StatusDetails { causes, ..StatusDetails::default() }))
    }

    /// 422: the object breaks its kind's rules.
    #[expect(clippy::needless_pass_by_value, reason = "callers build the list for this")]
    pub fn invalid(kind: &str, group: &str, name: &str, errors: Vec<FieldError>) -> Self {
        let (told, left) = told(&errors);
        let all = joined(told.iter().map(|(_, text)| text.as_str()), left);
        let message = format!("{} {} is invalid: {all}", GroupKind::new(group, kind), go_quote(name));
        let causes = told
            .iter()
            .map(|(e, _)| StatusCause {
                reason: e.cause_reason().to_owned(),
                message: e.body(),
                field: e.path.to_string(),
            })
            .collect();
        let details = StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..StatusDetails::default()
        };
        Self::failure(422, "Invalid", message, Some(details))
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message, None)
    }

    /// 403 about a resource; without a resource (`forbidden: …`) about a path.
    pub fn forbidden(gr: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = match (gr.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{gr} is forbidden: {why}"),
            (false, false) => format!("{gr} {} is forbidden: {why}", go_quote(name)),
        };
        Self::failure(403, "Forbidden", message, Some(Self::about(gr, name)))
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized", None)
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed(gr: &GroupResource, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind {}", go_quote(&gr.to_string()));
        Self::failure(405, "MethodNotAllowed", message, Some(Self::about(gr, "")))
    }

    /// 405 of a path, as a server's router answers it.
    pub fn method_not_allowed_here() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, "MethodNotAllowed", message, Some(StatusDetails::default()))
    }

    /// 406: none of the accepted media types can be served.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::failure(406, "NotAcceptable", message, None)
    }

    /// 415: the body is in a format the endpoint does not read.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(415, "UnsupportedMediaType", message, None)
    }

    /// 413.
    pub fn too_large(message: impl fmt::Display) -> Self {
        Self::failure(413, "RequestEntityTooLarge", format!("Request entity too large: {message}"), None)
    }

    /// 410: the revision asked for is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message, None)
    }

    /// 410 of a watch or list at a revision older than what is kept.
    pub fn too_old_resource_version(asked: impl fmt::Display, oldest: impl fmt::Display) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// 504.
    pub fn timeout(message: impl fmt::Display, retry_after_seconds: u32) -> Self {
        let details = StatusDetails { retry_after_seconds, ..StatusDetails::default() };
        Self::failure(504, "Timeout", format!("Timeout: {message}"), Some(details))
    }

    /// 504 of a revision that does not exist yet. Reflectors look for its cause.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let mut status = Self::timeout(format!("Too large resource version: {asked}, current: {current}"), 1);
        let cause = StatusCause {
            reason: RESOURCE_VERSION_TOO_LARGE.to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        status.details.get_or_insert_default().causes.push(cause);
        status
    }

    /// 500 with a cause.
    pub fn internal(message: impl fmt::Display) -> Self {
        let cause = StatusCause { message: message.to_string(), ..StatusCause::default() };
        let details = StatusDetails { causes: vec![cause], ..StatusDetails::default() };
        Self::failure(500, "InternalError", format!("Internal error occurred: {message}"), Some(details))
    }

    /// 500 without a reason: what kube-apiserver answers where an error of its own was never made a Status.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::failure(500, "", message, None)
    }

    /// 507: there is no space for what was to be stored.
    pub fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::failure(507, "InsufficientStorage", message, None)
    }

    /// 503.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message, None)
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let details = StatusDetails { retry_after_seconds, ..StatusDetails::default() };
        Self::failure(429, "TooManyRequests", message, Some(details))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::path::Path;

    fn cause(message: &str, field: &str) -> StatusCause {
        StatusCause {
            reason: FIELD_MANAGER_CONFLICT.to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        }
    }

    /// Each answer as kube-apiserver 1.36.2 was recorded to give it.
    #[test]
    fn answers_have_the_recorded_shape() {
        let apps = GroupResource::new("apps", "deployments");
        let maps = GroupResource::new("", "configmaps");
        let none = GroupResource::default();
        let head = |rest: serde_json::Value| {
            let mut value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}});
            value.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            value
        };
        for (status, want) in [
            (
                Status::not_found(&apps, "none"),
                json!({"status": "Failure", "message": "deployments.apps \"none\" not found", "reason": "NotFound",
                    "details": {"name": "none", "group": "apps", "kind": "deployments"}, "code": 404}),
            ),
            (
                Status::success(&maps, "a", "u"),
                json!({"status": "Success", "details": {"name": "a", "kind": "configmaps", "uid": "u"}}),
            ),
            (
                Status::already_exists(&maps, "a"),
                json!({"status": "Failure", "message": "configmaps \"a\" already exists", "reason": "AlreadyExists",
                    "details": {"name": "a", "kind": "configmaps"}, "code": 409}),
            ),
            (
                Status::conflict(&maps, "a", MODIFIED),
                json!({"status": "Failure", "message": format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}"),
                    "reason": "Conflict", "details": {"name": "a", "kind": "configmaps"}, "code": 409}),
            ),
            (
                Status::invalid(
                    "Deployment",
                    "apps",
                    "x",
                    vec![FieldError::required(&Path::new("spec").child("selector"), "")],
                ),
                json!({"status": "Failure", "message": "Deployment.apps \"x\" is invalid: spec.selector: Required value",
                    "reason": "Invalid", "details": {"name": "x", "group": "apps", "kind": "Deployment",
                    "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"}]},
                    "code": 422}),
            ),
            (
                Status::forbidden(&maps, "", "no"),
                json!({"status": "Failure", "message": "configmaps is forbidden: no", "reason": "Forbidden",
                    "details": {"kind": "configmaps"}, "code": 403}),
            ),
            (
                Status::forbidden(&none, "", "User \"u\" cannot get path \"/logs\""),
                json!({"status": "Failure", "message": "forbidden: User \"u\" cannot get path \"/logs\"",
                    "reason": "Forbidden", "details": {}, "code": 403}),
            ),
            (
                Status::unauthorized(),
                json!({"status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}),
            ),
            (
                Status::too_large_resource_version(900, 812),
                json!({"status": "Failure", "message": "Timeout: Too large resource version: 900, current: 812",
                    "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge",
                    "message": "Too large resource version"}], "retryAfterSeconds": 1}, "code": 504}),
            ),
            (
                Status::too_old_resource_version(1, 812),
                json!({"status": "Failure", "message": "too old resource version: 1 (812)", "reason": "Expired", "code": 410}),
            ),
            (
                Status::too_large("limit is 3145728"),
                json!({"status": "Failure", "message": "Request entity too large: limit is 3145728",
                    "reason": "RequestEntityTooLarge", "code": 413}),
            ),
            (
                Status::unclassified("resourceVersion should not be set on objects to be created"),
                json!({"status": "Failure", "message": "resourceVersion should not be set on objects to be created", "code": 500}),
            ),
        ] {
            let text = serde_json::to_string(&status).unwrap();
            assert_eq!(text, head(want).to_string());
            assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
        }
    }

    #[test]
    fn apply_conflicts_are_grouped_by_manager() {
        let a = "conflict with \"mgr-a\"";
        let one = Status::apply_conflict(vec![cause(a, ".data.k")]);
        assert_eq!(one.message, "Apply failed with 1 conflict: conflict with \"mgr-a\": .data.k");
        let many = Status::apply_conflict(vec![
            cause(a, ".data.k"),
            cause("conflict with \"mgr-b\" using v1", ".data.k"),
            cause(a, ".data.l"),
        ]);
        assert_eq!(
            many.message,
            "Apply failed with 3 conflicts: conflicts with \"mgr-a\":\n- .data.k\n- .data.l\nconflicts with \"mgr-b\" using v1:\n- .data.k"
        );
        assert_eq!(many.code(), 409);
    }

    #[test]
    fn a_status_of_another_server_may_lack_anything() {
        let status: Status = serde_json::from_str("{}").unwrap();
        assert_eq!(status.code(), 200);
        assert_eq!(status.kind, "Status");
    }
}
