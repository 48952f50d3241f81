//! From a body to an object that may be stored: the kind it says it is, its metadata, its fields, its place.

use bytes::Bytes;
use karmada_meta::{
    object,
    path::{FieldError, Path},
    status::Status,
};
use serde_json::Value;

use crate::{
    body,
    builtin::{
        protobuf::Envelope,
        types::{self, go_kind},
    },
    caller::{Caller, Target},
    findings::Findings,
    kinds::{Kind, Kinds},
    negotiate::BodyType,
    options::FieldValidation,
};

/// Where an object comes from, which decides how much of it is forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A body, which may leave kind and apiVersion to the path.
    Body,
    /// The outcome of a patch.
    Patched,
}

/// The Go struct by which kube-apiserver looks for kind and apiVersion.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// The beginning of a body, as an error message shows it.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let (head, more) = if bytes.len() > SHOWN { (&bytes[..SHOWN], " ...") } else { (bytes, "") };
    if head.first() == Some(&b'{') {
        format!("{}{more}", String::from_utf8_lossy(head))
    } else {
        let hex: String = head.iter().map(|b| format!("{b:02x}")).collect();
        format!("{hex}{more}")
    }
}

/// Parses a body into an object.
///
/// # Errors
/// What Go says about it, without telling which object it was to be.
pub(crate) fn parse(bytes: &Bytes, body_type: BodyType, findings: &mut Findings) -> Result<Value, String> {
    let value = match body_type {
        BodyType::Json => body::json(bytes, findings)
            .map_err(|why| format!("couldn't get version/kind; json parse error: {why}")),
        BodyType::Yaml => body::yaml(bytes, findings),
        BodyType::Protobuf => {
            let envelope = Envelope::open(bytes).map_err(|error| error.to_string())?;
            envelope.object(("", "", "")).map_err(|error| error.to_string())
        }
    }?;
    if value.is_object() {
        return Ok(value);
    }
    Err(format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {TYPE_META}",
        go_kind(&value)
    ))
}

/// Reads the body of a create or update into the stored form of a kind: decoded, in its place, defaulted.
///
/// # Errors
/// 400.
pub(crate) fn object(
    caller: &Caller<'_>,
    kinds: &Kinds,
    target: &Target<'_>,
    bytes: &Bytes,
    body_type: BodyType,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let kind = target.kind;
    let expected = &kind.gvk.kind;
    let mut findings = Findings::default();
    let unrecognized = |why: String| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {expected}): {why} ({})",
            summary(bytes)
        ))
    };
    let envelope = match body_type {
        BodyType::Protobuf => Some(Envelope::open(bytes).map_err(|error| unrecognized(error.to_string()))?),
        BodyType::Json | BodyType::Yaml => None,
    };
    let mut value = match &envelope {
        Some(envelope) => envelope.head(),
        None => parse(bytes, body_type, &mut findings).map_err(unrecognized)?,
    };
    let named = object::kind(&value).to_owned();
    let named = if named.is_empty() { expected.clone() } else { named };
    let named_version = match object::api_version(&value) {
        "" => kind.gvk.version.clone(),
        api_version => api_version.rsplit('/').next().unwrap_or_default().to_owned(),
    };
    let refuse = |why: String| {
        Status::bad_request(format!(
            "{named} in version {named_version:?} cannot be handled as a {expected}: {why}"
        ))
    };
    if let Some(envelope) = envelope {
        let default = (kind.gvk.group.as_str(), kind.gvk.version.as_str(), expected.as_str());
        value = envelope.object(default).map_err(|error| refuse(error.to_string()))?;
    }
    check_versions(kinds, kind, &value)?;
    if kind.custom.is_some() {
        check_custom_kind(kind, &value)?;
    }
    check_kind(kind, &mut value, Expected::Body).map_err(&refuse)?;
    fields(kind, &mut value, &mut findings).map_err(&refuse)?;
    match validation {
        FieldValidation::Strict if !findings.0.is_empty() => {
            return Err(refuse(format!("strict decoding error: {}", strict_error(&findings))));
        }
        FieldValidation::Warn => findings.0.into_iter().for_each(|finding| caller.warn(finding)),
        _ => {}
    }
    check_place(&mut value, target)?;
    kind.shape.default(&mut value);
    Ok(value)
}

/// The findings as one message.
pub(crate) fn strict_error(findings: &Findings) -> String {
    let (yaml, other): (Vec<&String>, Vec<&String>) = findings.0.iter().partition(|f| f.starts_with("line "));
    let mut parts: Vec<String> = Vec::new();
    if !yaml.is_empty() {
        let lines: Vec<String> = yaml.iter().map(|line| format!("\n  {line}")).collect();
        parts.push(format!("yaml: unmarshal errors:{}", lines.concat()));
    }
    parts.extend(other.into_iter().cloned());
    parts.join(", ")
}

/// A body of the right kind in another version of its group.
fn check_versions(kinds: &Kinds, kind: &Kind, value: &Value) -> Result<(), Status> {
    let (api_version, named) = (object::api_version(value), object::kind(value));
    let Some((group, _)) = karmada_meta::gvk::parse_api_version(api_version) else { return Ok(()) };
    let same = *api_version == *kind.api_version || api_version.is_empty();
    // Of a custom resource anything can be read, and is looked at then.
    let may_be_read = || {
        group == kind.gvk.group && (named == kind.gvk.kind || kinds.of_group_kind(&group, named).is_some())
    };
    if same || (kind.custom.is_none() && !may_be_read()) {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the API version in the data ({api_version}) does not match the expected API version ({})",
        kind.api_version
    )))
}

/// A body of another kind than the definition's is not valid: what it says it is stands in the answer.
fn check_custom_kind(kind: &Kind, value: &Value) -> Result<(), Status> {
    let named = object::kind(value);
    if named.is_empty() || named == kind.gvk.kind {
        return Ok(());
    }
    let error = FieldError::invalid(&Path::new("kind"), named, format!("must be {}", kind.gvk.kind));
    Err(Status::invalid(named, &kind.gvk.group, object::name(value), vec![error]))
}

/// Checks that an object is of the kind, and says so in it.
///
/// # Errors
/// What is wrong, in kube-apiserver's words.
pub(crate) fn check_kind(kind: &Kind, value: &mut Value, expected: Expected) -> Result<(), String> {
    for field in ["apiVersion", "kind"] {
        match value.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                return Err(format!(
                    "json: cannot unmarshal {} into Go struct field {}.{field} of type string",
                    go_kind(other),
                    kind.gvk.kind
                ));
            }
        }
    }
    let (api_version, named) = (object::api_version(value).to_owned(), object::kind(value).to_owned());
    let version_fits = api_version.is_empty() || *api_version == *kind.api_version;
    let kind_fits = named.is_empty() || named == kind.gvk.kind;
    if !(version_fits && kind_fits) {
        let named = if named.is_empty() { kind.gvk.kind.clone() } else { named };
        let api_version = if api_version.is_empty() { kind.api_version.to_string() } else { api_version };
        if kind.custom.is_some() {
            return Err(format!(
                "no kind \"{named}\" is registered for version \"{api_version}\" in scheme \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:1338\""
            ));
        }
        let (group, version) = karmada_meta::gvk::parse_api_version(&api_version).unwrap_or_default();
        // Of every group and version are the kinds that belong to requests.
        let known =
            types::of_kind(&group, &version, &named).or_else(|| types::of_kind("meta.k8s.io", "v1", &named));
        if let Some(other) = known.filter(|_| version_fits || expected == Expected::Body) {
            // Another kind is decoded as that kind before it turns out to be the wrong one.
            types::decode(other, &without_head(value), &mut Findings::default()).map_err(|error| error.0)?;
        }
        let package =
            |group: &str| group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core").to_owned();
        return Err(if known.is_some() && (expected == Expected::Body || version_fits) {
            format!(
                "converting ({version}.{named}) to ({}.{}): unknown conversion",
                package(&kind.gvk.group),
                kind.gvk.kind
            )
        } else {
            format!(
                "no kind \"{named}\" is registered for version \"{api_version}\" in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\""
            )
        });
    }
    value["apiVersion"] = Value::from(&*kind.api_version);
    value["kind"] = Value::from(kind.gvk.kind.as_str());
    Ok(())
}

fn without_head(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    value
}

/// Decodes an object of the kind.
///
/// # Errors
/// A value of the wrong type, in Go's words.
pub(crate) fn fields(kind: &Kind, value: &mut Value, findings: &mut Findings) -> Result<(), String> {
    // Patches that are shallow each may nest what no body could, and what nobody could read back.
    if body::is_too_deep(value) {
        return Err(body::TOO_DEEP.to_owned());
    }
    // An empty list here means something: nobody is to own anything any more.
    let reset =
        value.pointer("/metadata/managedFields").filter(|list| **list == Value::Array(Vec::new())).cloned();
    if kind.custom.is_some() {
        // Built-in kinds decode their metadata with the rest.
        let meta = value.get("metadata").cloned().unwrap_or_default();
        let meta = types::decode_at(types::object_meta(), &meta, "metadata", findings).map_err(|e| e.0)?;
        value["metadata"] = meta;
        whole_numbers(value);
    }
    kind.shape.decode(value, findings)?;
    if let Some(reset) = reset {
        object::set_meta(value, "managedFields", reset);
    }
    Ok(())
}

/// Writes whole numbers as such, however they were sent: `1.0` and `1e3` are 1 and 1000 in what Go writes out.
pub(crate) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(whole) {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

/// A number without a fraction; what is too large for it stays as it is.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and within the bounds")]
fn whole(number: f64) -> Option<i64> {
    // From here on not every whole number is a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

/// Checks that an object's name and namespace are those of the path, and fills in the namespace.
///
/// # Errors
/// 400.
pub(crate) fn check_place(value: &mut Value, target: &Target<'_>) -> Result<(), Status> {
    if !value["metadata"].is_object() {
        value["metadata"] = Value::Object(Default::default());
    }
    check_names(value, target)?;
    if target.kind.namespaced {
        object::set_meta(value, "namespace", target.namespace);
    } else {
        object::remove_meta(value, "namespace");
    }
    Ok(())
}

/// As [`check_place`], without filling anything in.
///
/// # Errors
/// 400.
pub(crate) fn check_names(value: &Value, target: &Target<'_>) -> Result<(), Status> {
    if !target.name.is_empty() {
        match object::name(value) {
            "" => {
                return Err(Status::bad_request(format!(
                    "the name of the object ({} based on URL) was undeterminable: name must be provided",
                    target.name
                )));
            }
            name if name != target.name => {
                return Err(Status::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    target.name
                )));
            }
            _ => {}
        }
    }
    let namespace = object::namespace(value);
    if target.kind.namespaced && !namespace.is_empty() && namespace != target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
