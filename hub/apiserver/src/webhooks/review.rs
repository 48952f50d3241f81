//! AdmissionReviews: what a webhook is asked, what its answer means, and what the client is told of it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use karmada_meta::{go_quote, gvk::GroupVersionKind, object, status::Status};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::matching::{operation_name, spoken};
use crate::{
    admission::Operation,
    authn::UserInfo,
    kinds::Kind,
    options::{DeleteOptions, FieldValidation, Propagation, WriteOptions},
};

/// The options of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Options<'a> {
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
}

impl Options<'_> {
    pub(crate) const fn dry_run(&self) -> bool {
        match self {
            Self::Write(options) => options.dry_run,
            Self::Delete(options) => options.dry_run,
        }
    }

    /// As a webhook sees them. A patch has the options of what it came to.
    fn object(&self, operation: Operation) -> Value {
        let mut map = Map::new();
        let mut set = |field: &str, value: Value| map.insert(field.to_owned(), value);
        set("apiVersion", "meta.k8s.io/v1".into());
        if self.dry_run() {
            set("dryRun", json!(["All"]));
        }
        match self {
            Self::Write(options) => {
                let kind = if operation == Operation::Create { "CreateOptions" } else { "UpdateOptions" };
                set("kind", kind.into());
                if let Some(manager) = &options.field_manager {
                    set("fieldManager", manager.as_str().into());
                }
                match options.validation {
                    FieldValidation::Strict => set("fieldValidation", "Strict".into()),
                    FieldValidation::Ignore => set("fieldValidation", "Ignore".into()),
                    FieldValidation::Warn => None,
                };
            }
            Self::Delete(options) => {
                set("kind", "DeleteOptions".into());
                if let Some(seconds) = options.grace_period {
                    set("gracePeriodSeconds", seconds.into());
                }
                if let Some(propagation) = options.propagation {
                    let name = match propagation {
                        Propagation::Orphan => "Orphan",
                        Propagation::Background => "Background",
                        Propagation::Foreground => "Foreground",
                    };
                    set("propagationPolicy", name.into());
                }
                let mut preconditions = Map::new();
                for (field, value) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)]
                {
                    if let Some(value) = value {
                        preconditions.insert(field.to_owned(), value.as_str().into());
                    }
                }
                if !preconditions.is_empty() {
                    set("preconditions", preconditions.into());
                }
            }
        }
        map.into()
    }
}

/// What of a request is the same for every webhook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) operation: Operation,
    pub(crate) kind: &'a Kind,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) user: &'a UserInfo,
    pub(crate) options: Options<'a>,
}

/// An AdmissionRequest for a webhook that is asked in the version of `kind`, without uid and objects.
pub(crate) fn request(of: &Request<'_>, kind: &Kind) -> Value {
    let named =
        |gvk: &GroupVersionKind| json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
    let resource = |kind: &Kind| {
        let gvr = &kind.gvr;
        json!({"group": gvr.group, "version": gvr.version, "resource": gvr.resource})
    };
    let mut request = json!({
        "kind": named(&spoken(kind, of.subresource)), "resource": resource(kind),
        "requestKind": named(&spoken(of.kind, of.subresource)), "requestResource": resource(of.kind),
        "operation": operation_name(of.operation), "userInfo": of.user.info(), "dryRun": of.options.dry_run(),
        "options": of.options.object(of.operation),
    });
    let texts = [
        ("subResource", of.subresource),
        ("requestSubResource", of.subresource),
        ("name", of.name),
        ("namespace", of.namespace),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        request[field] = text.into();
    }
    request
}

/// The review around a request.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: String,
    request: Whole<'a>,
}

/// A request with what it is about.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a> {
    #[serde(flatten)]
    request: &'a Value,
    uid: &'a str,
    object: &'a Value,
    old_object: &'a Value,
}

/// The review around a request, as it is sent: the objects are written out and not copied once more.
///
/// # Errors
/// When there is something in it that JSON has no words for.
pub(crate) fn review(
    version: &str,
    uid: &str,
    request: &Value,
    object: &Value,
    old: &Value,
) -> serde_json::Result<Bytes> {
    let request = Whole { request, uid, object, old_object: old };
    let api_version = format!("admission.k8s.io/{version}");
    serde_json::to_vec(&Review { kind: "AdmissionReview", api_version, request }).map(Bytes::from)
}

/// What a webhook answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) warnings: Vec<String>,
    /// It says no; its `status`, if it gave one.
    pub(crate) refused: Option<Value>,
    /// The operations of a JSON patch; empty: nothing is to be changed.
    pub(crate) patch: Vec<Value>,
}

/// Reads an answer.
///
/// # Errors
/// Why it is none.
pub(crate) fn reply(version: &str, uid: &str, mutates: bool, answer: &Value) -> Result<Reply, String> {
    let invalid = |why: String| Err(format!("received invalid webhook response: {why}"));
    let wanted = format!("admission.k8s.io/{version}");
    let (api_version, kind) = (object::api_version(answer), object::kind(answer));
    if api_version != wanted || kind != "AdmissionReview" {
        let got = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        return invalid(format!(
            "expected webhook response of {wanted}, Kind=AdmissionReview, got {got}, Kind={kind}"
        ));
    }
    let Some(response) = answer.get("response").filter(|response| response.is_object()) else {
        return invalid("webhook response was absent".to_owned());
    };
    let older = version == "v1beta1";
    let echoed = response["uid"].as_str().unwrap_or_default();
    if echoed != uid && !(older && echoed.is_empty()) {
        return invalid(format!("expected response.uid={}, got {}", go_quote(uid), go_quote(echoed)));
    }
    let (patch, patch_type) = (&response["patch"], &response["patchType"]);
    let has_patch = patch.as_str().is_some_and(|patch| !patch.is_empty());
    let patch = if mutates {
        match (has_patch, patch_type.as_str()) {
            (false, None) => Vec::new(),
            (true, None) if older => operations(patch)?,
            (false, Some(_)) if older => Vec::new(),
            (true, None) => {
                return invalid("webhook returned response.patch but not response.patchType".to_owned());
            }
            (false, Some(_)) => {
                return invalid("webhook returned response.patchType but not response.patch".to_owned());
            }
            (true, Some("")) => {
                return invalid("webhook returned invalid response.patchType of \"\"".to_owned());
            }
            (true, Some("JSONPatch")) => operations(patch)?,
            (true, Some(other)) => return Err(format!("unsupported patch type {}", go_quote(other))),
        }
    } else if older {
        Vec::new()
    } else if has_patch {
        return invalid("validating webhook may not return response.patch".to_owned());
    } else if !patch_type.is_null() {
        return invalid("validating webhook may not return response.patchType".to_owned());
    } else {
        Vec::new()
    };
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.filter_map(|warning| warning.as_str().map(str::to_owned)).collect();
    let refused = (response["allowed"] != true).then(|| response["status"].clone());
    Ok(Reply { warnings, refused, patch })
}

fn operations(patch: &Value) -> Result<Vec<Value>, String> {
    let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
    let text = patch.as_str().unwrap_or_default();
    let bytes = BASE64_STANDARD.decode(text).map_err(|error| undecodable(error.to_string()))?;
    let operations: Option<Vec<Value>> =
        serde_json::from_slice(&bytes).map_err(|error| undecodable(error.to_string()))?;
    Ok(operations.unwrap_or_default())
}

/// What the client is told of a refusal: the webhook's own status, which may not look like a success.
pub(crate) fn denied(name: &str, status: &Value) -> Status {
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let by = format!("admission webhook {} denied the request", go_quote(name));
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", why) | (why, _) => format!("{by}: {why}"),
    };
    let code = match status["code"].as_u64() {
        Some(code @ 400..=599) => u16::try_from(code).unwrap_or(500),
        Some(600..) => 500,
        _ => 400,
    };
    let details = Some(&status["details"]).filter(|details| details.is_object());
    Status {
        reason: text("reason").to_owned(),
        // Details that are none are left out; they are for machines, which the webhook's author then finds out.
        details: details.and_then(|details| serde_json::from_value(details.clone()).ok()),
        code,
        ..Status::unclassified(message)
    }
}

/// What the client is told when a webhook that may not fail did.
pub(crate) fn failed(name: &str, why: &str) -> Status {
    Status::internal(failure(name, why))
}

/// The same for logs.
pub(crate) fn failure(name: &str, why: &str) -> String {
    format!("failed calling webhook {}: {why}", go_quote(name))
}

/// What the client is told when a webhook that has side effects would have to be asked though nothing is stored.
pub(crate) fn no_dry_run(name: &str) -> Status {
    Status::bad_request(format!("admission webhook {} does not support dry run", go_quote(name)))
}

/// What the client is told when a webhook means to change what is deleted.
pub(crate) fn nothing_to_change(name: &str) -> Status {
    Status::internal(format!(
        "admission webhook {} attempted to modify the object, which is not supported for this operation",
        go_quote(name)
    ))
}

#[cfg(test)]
mod tests;
