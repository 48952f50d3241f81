//! The scale subresource: replicas and selector of any kind that has them, as an `autoscaling/v1` Scale.

use karmada_meta::{
    labels::LabelSelector,
    object,
    path::{FieldError, Path},
    status::Status,
};
use karmada_smd::{
    ApplyOptions, Managed, Path as FieldPath, Set, TypeRef, UpdateOptions, scale::SCALE_API_VERSION,
};
use serde_json::{Map, Value, json};

use super::{Caller, Registry, Target, Written, modify::Modify};
use crate::{
    body, builtin::types, fields, findings::Findings, kinds::Kind, negotiate::PatchType,
    options::WriteOptions,
};

/// Where a kind keeps what a Scale shows: dotted paths.
struct Paths<'a> {
    wanted: &'a str,
    observed: &'a str,
    /// A selector in string form; absent for built-in kinds, which have `spec.selector`.
    selector: Option<&'a str>,
}

fn paths(kind: &Kind) -> Paths<'_> {
    match kind.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        Some(scale) => Paths {
            wanted: scale.spec_replicas_path.trim_start_matches('.'),
            observed: scale.status_replicas_path.trim_start_matches('.'),
            selector: scale.label_selector_path.as_deref().map(|path| path.trim_start_matches('.')),
        },
        None => Paths { wanted: "spec.replicas", observed: "status.replicas", selector: None },
    }
}

fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| value.get(part))
}

fn set(value: &mut Value, path: &str, to: Value) {
    let mut at = value;
    for part in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[part];
    }
    *at = to;
}

/// The Scale of an object.
pub fn scale_of(kind: &Kind, value: &Value) -> Value {
    let paths = paths(kind);
    let number = |path: &str| get(value, path).and_then(Value::as_i64).unwrap_or(0);
    let selector = match paths.selector {
        Some(path) => get(value, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
        None if kind.custom.is_some() => String::new(),
        None => selector_text(&value["spec"]["selector"]),
    };
    let mut meta = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(found) = object::meta(value, field) {
            meta.insert(field.to_owned(), found.clone());
        }
    }
    let (wanted, observed) = (number(paths.wanted), number(paths.observed));
    let mut spec = Map::new();
    if wanted != 0 {
        spec.insert("replicas".to_owned(), wanted.into());
    }
    let mut status = json!({"replicas": observed});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status})
}

/// Refuses to show a Scale of a custom resource that does not say how many replicas it wants.
///
/// # Errors
/// 500, as kube-apiserver has it.
pub(crate) fn check_wanted(kind: &Kind, value: &Value) -> Result<(), Status> {
    let Some(scale) = kind.custom.as_ref().and_then(|custom| custom.scale.as_ref()) else { return Ok(()) };
    if get(value, paths(kind).wanted).is_some() {
        return Ok(());
    }
    let path = &scale.spec_replicas_path;
    Err(Status::internal(format!("the spec replicas field {path:?} does not exist")))
}

/// A selector in the form of a query: of a label selector, or of a ReplicationController's map.
fn selector_text(selector: &Value) -> String {
    let Some(map) = selector.as_object() else { return String::new() };
    if map.contains_key("matchLabels") || map.contains_key("matchExpressions") {
        let selector: LabelSelector = serde_json::from_value(selector.clone()).unwrap_or_default();
        return selector.to_selector().map(|s| s.to_string()).unwrap_or_default();
    }
    let mut pairs: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.sort();
    pairs.join(",")
}

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

/// An object with the replicas of a Scale.
///
/// # Errors
/// What is wrong with the Scale.
pub(crate) fn with_replicas(target: &Target<'_>, mut object: Value, scale: &Value) -> Result<Value, Status> {
    let wanted = check(scale, target)?;
    set(&mut object, paths(target.kind).wanted, wanted.into());
    Ok(object)
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
            karmada_smd::patch::json_patch(shown, &operations).map_err(|e| super::patch::patch_error(&e))
        }
        // Nothing in a Scale is merged otherwise.
        PatchType::Merge | PatchType::Strategic => {
            let change = super::patch::read_object(bytes, &mut findings)?;
            Ok(karmada_smd::patch::merge_patch(shown, &change))
        }
    }
}

/// Checks a Scale and returns the replicas it wants.
fn check(scale: &Value, target: &Target<'_>) -> Result<i64, Status> {
    let name = object::name(scale);
    if name != target.name {
        return Err(Status::bad_request(if name.is_empty() {
            format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                target.name
            )
        } else {
            format!("the name of the object ({name}) does not match the name on the URL ({})", target.name)
        }));
    }
    let wanted = match scale.pointer("/spec/replicas") {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_i64().filter(|n| i32::try_from(*n).is_ok()).ok_or_else(|| {
            Status::bad_request(format!(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                types::go_kind(value)
            ))
        })?,
    };
    if wanted < 0 {
        let path = Path::new("spec").child("replicas");
        let error = FieldError::invalid(&path, wanted, "must be greater than or equal to 0");
        return Err(Status::invalid("Scale", "autoscaling", target.name, vec![error]));
    }
    Ok(wanted)
}
