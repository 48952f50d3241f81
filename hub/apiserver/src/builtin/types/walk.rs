//! Reading a JSON value by a type and writing it out again.

use std::fmt::Write as _;

use base64::Engine as _;
use karmada_meta::quantity::Quantity;
use serde_json::{Map, Number, Value};

use super::{Field, Struct, TABLE, Table, Type, TypeId};
use crate::findings::Findings;

/// A value of the wrong type, in Go's words: what follows `cannot be handled as a …: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeMismatch(pub String);

/// Reads `value` as a `ty` and writes it out again, as Go would. Unknown fields are noted and dropped.
pub fn decode(ty: TypeId, value: &Value, findings: &mut Findings) -> Result<Value, TypeMismatch> {
    decode_at(ty, value, "", findings)
}

/// As [`decode`], for an object that has been decoded: what storing it and reading it back does to it.
pub fn settle(ty: TypeId, value: &Value) -> Option<Value> {
    let mut findings = Findings::default();
    let mut walk = Walk { findings: &mut findings, path: String::new(), stored: true };
    walk.object(ty.0, value.as_object()?).ok()
}

/// As [`decode`], for a value that stands at `path` (`metadata`) of a larger object.
pub fn decode_at(
    ty: TypeId,
    value: &Value,
    path: &str,
    findings: &mut Findings,
) -> Result<Value, TypeMismatch> {
    let mut walk = Walk { findings, path: path.to_owned(), stored: false };
    let name = TABLE.structs[ty.0].go_name();
    match value {
        Value::Object(map) => walk.object(ty.0, map),
        Value::Null => walk.object(ty.0, &Map::new()),
        other if path.is_empty() => Err(TypeMismatch(format!(
            "json: cannot unmarshal {} into Go value of type {name}",
            go_kind(other)
        ))),
        other => Err(walk.mismatch(other, name, name)),
    }
}
/// JSON's name for what is there, as `encoding/json` says it.
pub fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

struct Walk<'a> {
    findings: &'a mut Findings,
    /// Where we are, with indices: what unknown fields are named by.
    path: String,
    /// Write as after storing and reading again.
    stored: bool,
}

impl Walk<'_> {
    fn mismatch(&self, value: &Value, owner: &str, ty: &str) -> TypeMismatch {
        // Go names the innermost struct and the path of names that leads to the field, without indices.
        let mut path = String::new();
        let mut inside = false;
        for c in self.path.chars() {
            match c {
                '[' => inside = true,
                ']' => inside = false,
                _ if !inside => path.push(c),
                _ => {}
            }
        }
        let what = match value {
            Value::Number(n) if !n.is_i64() && !n.is_u64() => format!("number {n}"),
            other => go_kind(other).to_owned(),
        };
        TypeMismatch(format!(
            "json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {ty}"
        ))
    }

    fn object(&mut self, index: usize, map: &Map<String, Value>) -> Result<Value, TypeMismatch> {
        let table = &*TABLE;
        let mut known = 0;
        let mut out = Map::new();
        if !self.path.is_empty() && table.structs[index].is_kind {
            // A whole object within another says what it is.
            for field in ["kind", "apiVersion"] {
                match map.get(field) {
                    Some(Value::String(text)) => {
                        known += 1;
                        if !text.is_empty() {
                            out.insert(field.to_owned(), Value::String(text.clone()));
                        }
                    }
                    Some(Value::Null) => known += 1,
                    _ => {}
                }
            }
        }
        self.fields(&table.structs[index], map, &mut out, &mut known)?;
        if known < map.len() {
            for key in map.keys() {
                if self.findings.is_full() {
                    break;
                }
                if !has_field(table, index, key) && !out.contains_key(key) {
                    let mut path = self.path.clone();
                    join(&mut path, key);
                    self.findings.unknown(&path);
                }
            }
        }
        Ok(Value::Object(out))
    }

    fn fields(
        &mut self,
        this: &Struct,
        map: &Map<String, Value>,
        out: &mut Map<String, Value>,
        known: &mut usize,
    ) -> Result<(), TypeMismatch> {
        let length = self.path.len();
        for &(_, inner) in &this.inline {
            self.fields(&TABLE.structs[inner], map, out, known)?;
        }
        for field in &this.fields {
            let value = match map.get(&field.json) {
                None => None,
                Some(value) => {
                    *known += 1;
                    join(&mut self.path, &field.json);
                    let value = self.value(&field.ty, value, this.go_name())?;
                    self.path.truncate(length);
                    Some(value)
                }
            };
            if let Some(value) = field.written(value, self.stored) {
                out.insert(field.json.clone(), value);
            }
        }
        Ok(())
    }

    fn value(&mut self, ty: &Type, value: &Value, owner: &str) -> Result<Value, TypeMismatch> {
        if value.is_null() {
            return Ok(ty.zero());
        }
        let mismatch = |walk: &Self| Err(walk.mismatch(value, owner, &ty.go_name()));
        match (ty, value) {
            (Type::Pointer(inner), _) => self.value(inner, value, owner),
            (Type::Any(_), _)
            | (Type::String(_), Value::String(_))
            | (Type::Bool | Type::OrBool(_), Value::Bool(_))
            | (Type::Float, Value::Number(_))
            | (Type::IntOrString, Value::String(_)) => Ok(value.clone()),
            (Type::Integer(name), Value::Number(n)) => integer(name, n).ok_or_else(|| {
                let what = Value::Number(n.clone());
                let TypeMismatch(text) = self.mismatch(&what, owner, &ty.go_name());
                TypeMismatch(text.replacen("unmarshal number into", &format!("unmarshal number {n} into"), 1))
            }),
            (Type::IntOrString, Value::Number(n)) => match integer("int32", n) {
                Some(n) => Ok(n),
                None => mismatch(self),
            },
            (Type::Bytes, Value::String(text)) => canonical_base64(text).map(Value::String),
            (Type::Quantity, Value::String(_) | Value::Number(_)) => quantity(value),
            (Type::Time, Value::String(text)) => {
                time(text, "%Y-%m-%dT%H:%M:%SZ", "2006-01-02T15:04:05Z07:00")
            }
            (Type::MicroTime, Value::String(text)) => {
                six_digits(text)?;
                time(text, "%Y-%m-%dT%H:%M:%S.%6fZ", "2006-01-02T15:04:05.000000Z07:00")
            }
            (Type::Slice(inner), Value::Array(list)) => self.list(inner, list, owner),
            (Type::OrArray(inner), Value::Array(list)) => self.list(inner, list, owner),
            (Type::OrStrings(_), Value::Array(list)) => {
                self.list(&Type::String("string".to_owned()), list, owner)
            }
            (Type::OrBool(inner) | Type::OrArray(inner) | Type::OrStrings(inner), Value::Object(_)) => {
                self.value(inner, value, owner)
            }
            (Type::Map(inner), Value::Object(map)) => {
                let length = self.path.len();
                let mut out = Map::new();
                for (key, value) in map {
                    // Go's message stops at the map; the path of unknown fields below does not.
                    let value = if matches!(**inner, Type::Struct(_) | Type::Map(_) | Type::Pointer(_)) {
                        join(&mut self.path, key);
                        let value = self.value(inner, value, owner);
                        self.path.truncate(length);
                        value?
                    } else {
                        self.value(inner, value, owner)?
                    };
                    out.insert(key.clone(), value);
                }
                Ok(Value::Object(out))
            }
            (Type::Struct(index), Value::Object(map)) => self.object(*index, map),
            _ => mismatch(self),
        }
    }

    fn list(&mut self, inner: &Type, list: &[Value], owner: &str) -> Result<Value, TypeMismatch> {
        let length = self.path.len();
        let mut out = Vec::with_capacity(list.len());
        for (i, value) in list.iter().enumerate() {
            let _ = write!(self.path, "[{i}]");
            out.push(self.value(inner, value, owner)?);
            self.path.truncate(length);
        }
        Ok(Value::Array(out))
    }
}

impl Field {
    /// The value as Go writes it, or nothing.
    fn written(&self, value: Option<Value>, stored: bool) -> Option<Value> {
        let value = match value {
            // Nothing tells an empty list from none once it has been stored.
            Some(value)
                if stored && matches!(self.ty, Type::Slice(_) | Type::Map(_)) && self.ty.is_empty(&value) =>
            {
                Value::Null
            }
            Some(value) => value,
            None => self.ty.zero(),
        };
        let absent = (self.omitempty && self.ty.is_empty(&value))
            || (self.omitzero && value.is_null())
            || (self.omitempty
                && matches!(self.ty, Type::OrBool(_) | Type::OrArray(_) | Type::OrStrings(_))
                && value.is_null());
        (!absent).then_some(value)
    }
}
fn has_field(table: &Table, index: usize, key: &str) -> bool {
    let this = &table.structs[index];
    this.fields.iter().any(|f| f.json == key)
        || this.inline.iter().any(|&(_, inner)| has_field(table, inner, key))
}

fn join(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn integer(name: &str, n: &Number) -> Option<Value> {
    // Go takes 1.0 nowhere; neither do we.
    let fits = match name {
        "int64" => n.is_i64(),
        "uint64" => n.is_u64(),
        "uint32" => n.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
        "byte" => n.as_u64().is_some_and(|n| u8::try_from(n).is_ok()),
        _ => n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
    };
    fits.then(|| Value::Number(n.clone()))
}

fn canonical_base64(text: &str) -> Result<String, TypeMismatch> {
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    const GO: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
            .with_decode_allow_trailing_bits(true),
    );
    // Go skips line breaks.
    let clean: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match GO.decode(&clean) {
        Ok(bytes) => Ok(GO.encode(bytes)),
        Err(error) => {
            let offset = match error {
                base64::DecodeError::InvalidByte(offset, _)
                | base64::DecodeError::InvalidLastSymbol(offset, _) => offset,
                _ => clean.len() / 4 * 4,
            };
            Err(TypeMismatch(format!("illegal base64 data at input byte {offset}")))
        }
    }
}

fn quantity(value: &Value) -> Result<Value, TypeMismatch> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.parse::<Quantity>() {
        Ok(quantity) => Ok(Value::String(quantity.to_string())),
        Err(_) => Err(TypeMismatch(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned(),
        )),
    }
}

/// Go reads six digits of a second or nothing.
fn six_digits(text: &str) -> Result<(), TypeMismatch> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    const SECONDS: usize = "2006-01-02T15:04:05".len();
    let Some(rest) = text.get(SECONDS..) else { return Ok(()) };
    let digits = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    if digits == 6 {
        return Ok(());
    }
    Err(TypeMismatch(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as \".000000\"")))
}

fn time(text: &str, format: &str, layout: &str) -> Result<Value, TypeMismatch> {
    match text.parse::<jiff::Timestamp>() {
        Ok(stamp) => Ok(Value::String(stamp.strftime(format).to_string())),
        Err(_) => Err(TypeMismatch(format!(
            "parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""
        ))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::{
        super::{object_meta, of_kind},
        *,
    };

    /// Any JSON, with names that occur in the types.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z0-9.=]{0,6}".prop_map(Value::from),
        ];
        let name = prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "template",
            "containers",
            "name",
            "labels",
            "replicas",
            "selector",
            "resources",
            "limits",
            "cpu",
            "ports",
            "data",
            "nothing",
        ]);
        leaf.prop_recursive(6, 48, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name.clone(), inner), 0..6).prop_map(|pairs| Value::Object(
                    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
                )),
            ]
        })
    }

    proptest! {
        /// Whatever comes in, decoding neither panics nor finds anything to do in what it made, and settling is final.
        #[test]
        fn what_was_decoded_stays_as_it_is(value in any_json()) {
            for (group, kind) in [("apps", "Deployment"), ("", "ConfigMap"), ("", "Pod")] {
                let ty = of_kind(group, "v1", kind).unwrap();
                let Ok(once) = decode(ty, &value, &mut Findings::default()) else { continue };
                let mut findings = Findings::default();
                prop_assert_eq!(&decode(ty, &once, &mut findings).unwrap(), &once);
                prop_assert_eq!(findings, Findings::default());
                let settled = settle(ty, &once).unwrap();
                prop_assert_eq!(settle(ty, &settled).unwrap(), settled);
            }
        }
    }

    fn read(
        group: &str,
        version: &str,
        kind: &str,
        value: &Value,
    ) -> (Result<Value, TypeMismatch>, Vec<String>) {
        let mut findings = Findings::default();
        let ty = of_kind(group, version, kind).unwrap();
        (decode(ty, value, &mut findings), findings.0)
    }

    #[test]
    fn the_table_parses_and_has_every_kind() {
        for spec in crate::kinds::built_in_specs() {
            assert!(
                of_kind(&spec.group, &spec.version, &spec.kind).is_some(),
                "{} {}",
                spec.group,
                spec.kind
            );
        }
        assert_eq!(TABLE.structs[object_meta().0].go_name(), "ObjectMeta");
    }

    #[test]
    fn wrong_types_are_refused_in_go_words() {
        for (value, message) in [
            (
                json!({"data": {"k": 1}}),
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (
                json!({"metadata": {"name": 5}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
            ),
            (
                json!({"metadata": {"labels": ["x"]}}),
                "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
        ] {
            assert_eq!(read("", "v1", "ConfigMap", &value).0, Err(TypeMismatch(message.to_owned())));
        }
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let (value, findings) = read(
            "apps",
            "v1",
            "Deployment",
            &json!({"nothing": 1, "spec": {"template": {"spec": {"containers": [{"name": "c", "foo": 1}]}}}}),
        );
        assert_eq!(
            findings,
            ["unknown field \"spec.template.spec.containers[0].foo\"", "unknown field \"nothing\""]
        );
        let value = value.unwrap();
        assert_eq!(value["spec"]["template"]["spec"]["containers"], json!([{"name": "c", "resources": {}}]));
        assert_eq!(value["status"], json!({}));
    }

    #[test]
    fn nulls_empties_and_times_are_written_as_go_writes_them() {
        let (event, _) = read("", "v1", "Event", &json!({"involvedObject": {"name": "x"}, "count": null}));
        assert_eq!(
            event.unwrap(),
            json!({"metadata": {}, "involvedObject": {"name": "x"}, "source": {}, "firstTimestamp": null,
                   "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": ""})
        );
        let (role, _) = read("rbac.authorization.k8s.io", "v1", "Role", &json!({"rules": []}));
        let role = role.unwrap();
        assert_eq!(role, json!({"metadata": {}, "rules": []}));
        let ty = of_kind("rbac.authorization.k8s.io", "v1", "Role").unwrap();
        assert_eq!(settle(ty, &role), Some(json!({"metadata": {}, "rules": null})));
        let (lease, _) = read(
            "coordination.k8s.io",
            "v1",
            "Lease",
            &json!({"metadata": {"creationTimestamp": null}, "spec": {"renewTime": "2026-01-02T05:04:05.000000+02:00"}}),
        );
        assert_eq!(
            lease.unwrap(),
            json!({"metadata": {}, "spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}})
        );
    }

    #[test]
    fn decoding_twice_changes_nothing_more() {
        let body = json!({"metadata": {"name": "a"}, "spec": {"selector": {}, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}}, "ports": []}]}}}});
        let once = read("apps", "v1", "Deployment", &body).0.unwrap();
        assert_eq!(read("apps", "v1", "Deployment", &once).0.unwrap(), once);
    }
}
