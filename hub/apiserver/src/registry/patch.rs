//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! A patch is parsed once and applied to the object as it is at each try. The result is decoded as a body would be.

use bytes::Bytes;
use karmada_meta::{
    object,
    path::{FieldError, Path},
    status::{Status, StatusDetails},
};
use karmada_smd::{patch, strategic};
use serde_json::Value;

use super::{Caller, Registry, Target, Written, metadata, modify::Modify};
pub use crate::negotiate::PatchType;
use crate::{
    body,
    builtin::types,
    decode::{self, Expected},
    fields,
    findings::Findings,
    options::{FieldValidation, WriteOptions},
    storage,
};

/// The operation of a JSON patch that makes it grow.
const COPY: &[u8] = b"copy";

impl Registry {
    /// Changes an object by a patch; an apply may create it.
    ///
    /// # Errors
    /// 404, 400 for a patch that cannot be read, 409 for conflicts, 422 for what cannot be patched or is not valid
    /// afterwards.
    pub async fn patch(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        patch_type: PatchType,
        bytes: &Bytes,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let manager = caller.manager(options).to_owned();
        let now = self.now();
        if patch_type == PatchType::Apply {
            let read = || self.read_config(caller, target, bytes, options);
            let config = self.pool.run(caller.weight(), read).await??;
            let mut produce = |live: Option<&Value>| {
                let applied = fields::apply(
                    target.kind,
                    live,
                    &config,
                    &manager,
                    target.subresource,
                    options.force,
                    &now,
                )?;
                finish_apply(target, applied, &config)
            };
            let how = Modify { may_create: target.subresource.is_empty(), ..Modify::default() };
            return self.modify(caller, target, &how, options, &mut produce).await;
        }
        // Copies of copies make much of little.
        if patch_type == PatchType::Json && bytes.windows(COPY.len()).any(|window| window == COPY) {
            caller.weigh(bytes.len() + patch::MAX_COPIED).await?;
        }
        let mut produce = |live: Option<&Value>| {
            let live = live.ok_or_else(|| target.not_found())?;
            let mut findings = Findings::default();
            let patched = apply_patch(target, patch_type, bytes, live, &mut findings)?;
            let shown = || describe(target, patch_type, bytes, live);
            let mut new = decode_patched(caller, target, patched, &shown, findings, options)?;
            for warning in metadata::dedup_owners(&mut new) {
                caller.warn(warning);
            }
            Ok(fields::update(target.kind, Some(live), &new, &manager, target.subresource, &now))
        };
        self.modify(caller, target, &Modify::default(), options, &mut produce).await
    }

    /// Reads the configuration of an apply.
    fn read_config(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        bytes: &Bytes,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let mut findings = Findings::default();
        let mut config = body::yaml(bytes, &mut findings)
            .map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))?;
        if !config.is_object() {
            return Err(Status::bad_request("error decoding YAML: the document is not an object"));
        }
        match options.validation {
            FieldValidation::Strict if !findings.0.is_empty() => {
                let why = decode::strict_error(&findings);
                return Err(Status::bad_request(format!("error strict decoding YAML: {why}")));
            }
            FieldValidation::Warn => findings.0.drain(..).for_each(|finding| caller.warn(finding)),
            _ => {}
        }
        let kind = target.kind;
        let (api_version, name) = (object::api_version(&config), object::kind(&config));
        if *api_version != *kind.api_version || name != kind.gvk.kind {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={name}")));
        }
        decode::check_names(&config, target)?;
        if kind.custom.is_some() {
            decode::whole_numbers(&mut config);
        }
        Ok(config)
    }
}

/// What an apply made is decoded and defaulted like any body; what the schema does not know cannot be in it.
fn finish_apply(target: &Target<'_>, mut applied: Value, config: &Value) -> Result<Value, Status> {
    let kind = target.kind;
    // The version the configuration insists on; without one, the one that was read.
    let version = object::resource_version(config).to_owned();
    if !version.is_empty() {
        object::set_meta(&mut applied, "resourceVersion", version);
    }
    decode::fields(kind, &mut applied, &mut Findings::default()).map_err(|why| unreadable(target, &why))?;
    decode::check_place(&mut applied, target)?;
    kind.shape.default(&mut applied);
    Ok(applied)
}

fn unreadable(target: &Target<'_>, why: &str) -> Status {
    Status::unclassified(format!("failed to convert {} to its type: {why}", target.kind.gvk.kind))
}

/// Applies a patch.
fn apply_patch(
    target: &Target<'_>,
    patch_type: PatchType,
    bytes: &Bytes,
    live: &Value,
    findings: &mut Findings,
) -> Result<Value, Status> {
    match patch_type {
        PatchType::Json => {
            let operations = body::json(bytes, findings).map_err(|why| decoding(&why))?;
            patch::json_patch(live, &operations).map_err(|error| patch_error(&error))
        }
        PatchType::Merge => {
            let change = read_object(bytes, findings)?;
            Ok(patch::merge_patch(live, &change))
        }
        PatchType::Strategic => {
            let change = read_object(bytes, findings).map_err(|status| {
                // Go's decoder is asked directly here.
                let message = status.message.trim_start_matches("error decoding patch: ").to_owned();
                Status { message, ..status }
            })?;
            strategic::strategic_merge(live, &change, target.kind.shape.schema())
                .map_err(|error| patch_error(&error))
        }
        PatchType::Apply => Err(Status::internal("an apply is not a patch of this kind")),
    }
}

/// How an error message shows what a patch made: the outcome, or for a strategic merge the patch.
fn describe(target: &Target<'_>, patch_type: PatchType, bytes: &Bytes, live: &Value) -> String {
    let findings = &mut Findings::default();
    if patch_type == PatchType::Strategic {
        return read_object(bytes, findings).map(|change| karmada_smd::go_text(&change)).unwrap_or_default();
    }
    let mut before = live.clone();
    // In the order of Go's structs.
    target.kind.shape.settle(&mut before);
    let after = apply_patch(target, patch_type, bytes, &before, findings).unwrap_or_default();
    storage::touched_text(&after, Some(&before), true)
}

fn decoding(why: &str) -> Status {
    Status::bad_request(format!("error decoding patch: {why}"))
}

pub(super) fn read_object(bytes: &Bytes, findings: &mut Findings) -> Result<Value, Status> {
    let value = body::json(bytes, findings).map_err(|why| decoding(&why))?;
    if value.is_object() || value.is_null() {
        return Ok(if value.is_null() { Value::Object(Default::default()) } else { value });
    }
    let found = types::go_kind(&value);
    Err(decoding(&format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")))
}

pub(super) fn patch_error(error: &patch::PatchError) -> Status {
    match error {
        patch::PatchError::BadRequest(message) => Status::bad_request(message.clone()),
        patch::PatchError::Rejected(_) => Status {
            reason: "Invalid".to_owned(),
            details: Some(StatusDetails::default()),
            code: 422,
            ..Status::unclassified("the server rejected our request due to an error in our request")
        },
        patch::PatchError::Invalid { value, detail } => invalid_patch(value, detail),
        patch::PatchError::TooLarge(message) => Status::too_large(message),
        patch::PatchError::Internal(message) => Status::unclassified(message.clone()),
    }
}

/// 422 about a patch as a whole, which names no object.
fn invalid_patch(shown: &str, why: &str) -> Status {
    Status::invalid("", "", "", vec![FieldError::invalid(&Path::new("patch"), shown, why)])
}

/// Reads what a patch made as a body would be read.
fn decode_patched(
    caller: &Caller<'_>,
    target: &Target<'_>,
    mut patched: Value,
    shown: &dyn Fn() -> String,
    mut findings: Findings,
    options: &WriteOptions,
) -> Result<Value, Status> {
    let kind = target.kind;
    if !patched.is_object() {
        let why = format!(
            "json: cannot unmarshal {} into Go value of type {}",
            types::go_kind(&patched),
            kind.gvk.kind
        );
        return Err(invalid_patch(&shown(), &why));
    }
    decode::check_kind(kind, &mut patched, Expected::Patched).map_err(|why| invalid_patch(&shown(), &why))?;
    decode::fields(kind, &mut patched, &mut findings).map_err(|why| invalid_patch(&shown(), &why))?;
    match options.validation {
        FieldValidation::Strict if !findings.0.is_empty() => {
            return Err(invalid_patch(
                &shown(),
                &format!("strict decoding error: {}", decode::strict_error(&findings)),
            ));
        }
        FieldValidation::Warn => findings.0.into_iter().for_each(|finding| caller.warn(finding)),
        _ => {}
    }
    decode::check_place(&mut patched, target)?;
    kind.shape.default(&mut patched);
    Ok(patched)
}
