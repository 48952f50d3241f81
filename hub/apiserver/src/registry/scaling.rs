//! Writes through the scale subresource.

use karmada_meta::{object, status::Status};
use karmada_smd::{
    ApplyOptions, Managed, Path as FieldPath, Set, TypeRef, UpdateOptions, scale::SCALE_API_VERSION,
};
use serde_json::Value;

use super::{
    Caller, Registry, Target, Written,
    modify::Modify,
    patch::{patch_error, read_object},
    scale::{check, paths, scale_of, set},
};
use crate::{body, fields, findings::Findings, negotiate::PatchType, options::WriteOptions};

/// What a request to a scale endpoint carries.
#[derive(Clone, Copy, Debug)]
pub enum ScaleWrite<'a> {
    /// A whole Scale, decoded.
    Update(&'a Value),
    /// A patch of one.
    Patch(PatchType, &'a bytes::Bytes),
}

impl Registry {
    /// Writes an object's replicas through its Scale.
    ///
    /// # Errors
    /// As an update of the object itself.
    pub async fn write_scale(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        write: ScaleWrite<'_>,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let kind = target.kind;
        let manager = caller.manager(options).to_owned();
        let now = self.now();
        let schema = TypeRef::builtin("autoscaling", "v1", "Scale").unwrap_or_else(TypeRef::deduced);
        let wanted_path = paths(kind).wanted;
        let replicas = |_: &str| Some(FieldPath::of_fields(&wanted_path.split('.').collect::<Vec<_>>()));
        let mut produce = |live: Option<&Value>| {
            let live = live.ok_or_else(|| target.not_found())?;
            let owners = Managed::of(live).unwrap_or_default();
            // The Scale as it is, with the owners of what it shows.
            let mut shown = scale_of(kind, live);
            karmada_smd::scale::to_scale(&owners, &replicas).write(&mut shown);
            let reset = Set::new();
            let (api_version, subresource) = (SCALE_API_VERSION, "scale");
            let new = match write {
                ScaleWrite::Patch(PatchType::Apply, bytes) => {
                    let config = patched(&shown, PatchType::Apply, bytes)?;
                    check_kind(&config)?;
                    let options = ApplyOptions {
                        manager: &manager,
                        api_version,
                        subresource,
                        force: options.force,
                        now: &now,
                        reset_fields: &reset,
                    };
                    karmada_smd::apply(Some(&shown), &config, &schema, &options)
                        .map_err(fields::apply_error)?
                }
                write => {
                    let scale = match write {
                        ScaleWrite::Update(scale) => scale.clone(),
                        ScaleWrite::Patch(patch_type, bytes) => patched(&shown, patch_type, bytes)?,
                    };
                    let options = UpdateOptions {
                        manager: &manager,
                        api_version,
                        subresource,
                        now: &now,
                        reset_fields: &reset,
                    };
                    karmada_smd::update(Some(&shown), &scale, &schema, &options)
                }
            };
            let wanted = check(&new, target)?;
            let new_owners = Managed::of(&new).unwrap_or_default();
            let mut parent = live.clone();
            set(&mut parent, wanted_path, wanted.into());
            karmada_smd::scale::to_parent(&owners, &new_owners, &kind.api_version, &replicas)
                .write(&mut parent);
            // A Scale without a version overwrites, also of kinds that otherwise insist on one.
            let version = match object::resource_version(&new) {
                "" => object::resource_version(live),
                version => version,
            };
            object::set_meta(&mut parent, "resourceVersion", version);
            Ok(parent)
        };
        self.modify(caller, target, &Modify::default(), options, &mut produce).await
    }
}

/// An apply says of what kind it is.
fn check_kind(config: &Value) -> Result<(), Status> {
    let (api_version, kind) = (object::api_version(config), object::kind(config));
    if api_version == SCALE_API_VERSION && kind == "Scale" {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")))
}

fn patched(shown: &Value, patch_type: PatchType, bytes: &bytes::Bytes) -> Result<Value, Status> {
    let mut findings = Findings::default();
    let decoding = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    match patch_type {
        PatchType::Apply => body::yaml(bytes, &mut findings)
            .map_err(|why| Status::bad_request(format!("error decoding YAML: {why}"))),
        PatchType::Json => {
            let operations = body::json(bytes, &mut findings).map_err(decoding)?;
            karmada_smd::patch::json_patch(shown, &operations).map_err(|e| patch_error(&e))
        }
        // Nothing in a Scale is merged otherwise.
        PatchType::Merge | PatchType::Strategic => {
            let change = read_object(bytes, &mut findings)?;
            Ok(karmada_smd::patch::merge_patch(shown, &change))
        }
    }
}
