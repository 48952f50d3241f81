//! What a stand-in refuses that a bare API server would not.

use karmada_apiserver::{
    admission::{Admission, AdmissionRequest, Operation},
    kinds::storage_name,
};
use karmada_meta::status::Status;
use serde_json::Value;

/// The account of a pod that names none; the stand-in has no controller that makes it.
const DEFAULT: &str = "default";

/// Kubernetes' ServiceAccount admission: no pod without the account that it names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accounts;

impl Admission for Accounts {
    fn admit(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<Vec<String>, Status> {
        let kind = &request.kind.gvk;
        let is_new_pod = request.operation == Operation::Create
            && request.subresource.is_empty()
            && kind.group.is_empty()
            && kind.kind == "Pod";
        let name = object.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
        if !is_new_pod || matches!(name, "" | DEFAULT) {
            return Ok(Vec::new());
        }
        let snapshot = request.store.snapshot();
        if snapshot.find(&storage_name("", "serviceaccounts"), request.namespace, name).is_some() {
            return Ok(Vec::new());
        }
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
            request.namespace
        );
        Err(Status::forbidden(&request.kind.group_resource(), request.name, why))
    }
}
