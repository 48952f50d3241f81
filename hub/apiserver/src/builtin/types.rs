//! The Go types of the built-in kinds, as a table, and what decoding a body by them does.
//!
//! kube-apiserver decodes a body into a Go struct and answers with that struct written out again. What a client sees
//! of it: unknown fields go, nulls go, a value of the wrong type is refused with Go's words, empty lists vanish where
//! the field says `omitempty` and are `null` where it does not, structs are always there. [`decode`] does the same
//! walk over a JSON value.
//!
//! `data/types.txt`, one line a fact, made from the `json` and `protobuf` tags of Kubernetes 1.36:
//!
//! ```text
//! kind GROUP VERSION KIND TYPE          alias TYPE MEANING          type TYPE
//!  NUMBER JSON-NAME TYPE WIRE FLAGS     a field; flags: o omitempty, z omitzero, i inline
//! ```

use std::{collections::BTreeMap, fmt::Write as _, sync::LazyLock};

use base64::Engine as _;
use karmada_meta::quantity::Quantity;
use serde_json::{Map, Number, Value};

use crate::shape::Findings;

/// A Go type, as far as JSON shows it.
#[derive(Clone, Debug, PartialEq)]
enum Type {
    /// `string` and named strings; the name is Go's.
    String(String),
    /// Integers; the name is Go's.
    Integer(String),
    Float,
    Bool,
    /// `[]byte`: base64 in JSON.
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// Any JSON value (`RawExtension`, `JSON`, `FieldsV1`).
    Any,
    /// A schema or a bool (`JSONSchemaPropsOrBool`).
    OrBool(Box<Self>),
    /// A schema or a list of schemas.
    OrArray(Box<Self>),
    /// A schema or a list of strings.
    OrStrings(Box<Self>),
    Slice(Box<Self>),
    Map(Box<Self>),
    Pointer(Box<Self>),
    /// Index into [`Table::structs`].
    Struct(usize),
}

#[derive(Debug)]
struct Field {
    json: String,
    ty: Type,
    omitempty: bool,
    omitzero: bool,
}

#[derive(Debug)]
struct Struct {
    /// `core/v1.PodSpec`
    name: String,
    fields: Vec<Field>,
    /// Types whose fields are this one's too, by index.
    inline: Vec<usize>,
    /// Whether it is a kind, with kind and apiVersion of its own.
    is_kind: bool,
}

/// All types. See the module's head.
#[derive(Debug)]
struct Table {
    structs: Vec<Struct>,
    kinds: BTreeMap<String, usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::parse(include_str!("../../data/types.txt"))
        .expect("invariant: data/types.txt is checked by a test")
});

/// A struct type of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(usize);

/// The type of a kind's bodies.
pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    let group = if group.is_empty() { "-" } else { group };
    TABLE.kinds.get(&format!("{group} {version} {kind}")).copied().map(TypeId)
}

/// `metav1.ObjectMeta`.
pub fn object_meta() -> TypeId {
    named("meta.ObjectMeta")
}

fn named(name: &str) -> TypeId {
    let index = TABLE.structs.iter().position(|s| s.name == name);
    TypeId(index.expect("invariant: data/types.txt has the type, as a test checks"))
}

/// A value of the wrong type, in Go's words: what follows `cannot be handled as a …: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeMismatch(pub String);

/// Reads `value` as a `ty` and writes it out again, as Go would. Unknown fields are noted and dropped.
pub fn decode(ty: TypeId, value: &Value, findings: &mut Findings) -> Result<Value, TypeMismatch> {
    let mut walk = Walk { findings, path: String::new(), stored: false };
    let name = TABLE.structs[ty.0].go_name();
    match value {
        Value::Object(map) => walk.object(ty.0, map, name),
        Value::Null => walk.object(ty.0, &Map::new(), name),
        other => Err(TypeMismatch(format!(
            "json: cannot unmarshal {} into Go value of type {name}",
            go_kind(other)
        ))),
    }
}

/// As [`decode`], for an object that has been decoded: what storing it and reading it back does to it.
pub fn settle(ty: TypeId, value: &Value) -> Option<Value> {
    let mut findings = Findings::default();
    let mut walk = Walk { findings: &mut findings, path: String::new(), stored: true };
    walk.object(ty.0, value.as_object()?, "").ok()
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
        Value::Object(map) => walk.object(ty.0, map, name),
        Value::Null => walk.object(ty.0, &Map::new(), name),
        other => Err(walk.mismatch(other, name, name)),
    }
}

impl Table {
    fn parse(text: &str) -> Result<Self, String> {
        let mut kinds = BTreeMap::new();
        let mut aliases: BTreeMap<&str, &str> = BTreeMap::new();
        let mut indices: BTreeMap<&str, usize> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("type") => {
                    let next = indices.len();
                    indices.insert(words.next().ok_or("a type without a name")?, next);
                }
                Some("alias") => {
                    let (name, meaning) =
                        words.next().zip(words.next()).ok_or("an alias without a meaning")?;
                    aliases.insert(name, meaning);
                }
                _ => {}
            }
        }
        let reader = Reader { aliases: &aliases, indices: &indices };
        let mut structs: Vec<Struct> = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["kind", group, version, kind, ty] => {
                    let index = *indices.get(ty).ok_or_else(|| format!("kind {kind}: no type {ty}"))?;
                    kinds.insert(format!("{group} {version} {kind}"), index);
                }
                ["type", name] => {
                    structs.push(Struct {
                        name: name.to_owned(),
                        fields: Vec::new(),
                        inline: Vec::new(),
                        is_kind: false,
                    });
                }
                ["", _number, json, ty, _wire, ref flags @ ..] => {
                    let owner = structs.last_mut().ok_or("a field before any type")?;
                    let flags = flags.first().copied().unwrap_or_default();
                    let ty = reader.ty(ty, owner.package())?;
                    if flags.contains('i') {
                        let inner = if let Type::Pointer(inner) = &ty { inner } else { &ty };
                        let Type::Struct(index) = *inner else {
                            return Err(format!("{}: inline {ty:?}", owner.name));
                        };
                        owner.inline.push(index);
                    } else {
                        owner.fields.push(Field {
                            json: json.to_owned(),
                            ty,
                            omitempty: flags.contains('o'),
                            omitzero: flags.contains('z'),
                        });
                    }
                }
                _ => {}
            }
        }
        for index in kinds.values() {
            structs[*index].is_kind = true;
        }
        Ok(Self { structs, kinds })
    }
}

/// Reads type names.
struct Reader<'a> {
    aliases: &'a BTreeMap<&'a str, &'a str>,
    indices: &'a BTreeMap<&'a str, usize>,
}

impl Reader<'_> {
    fn ty(&self, text: &str, package: &str) -> Result<Type, String> {
        if let Some(inner) = text.strip_prefix('*') {
            return Ok(Type::Pointer(Box::new(self.ty(inner, package)?)));
        }
        if text == "[]byte" {
            return Ok(Type::Bytes);
        }
        if let Some(inner) = text.strip_prefix("[]") {
            return Ok(Type::Slice(Box::new(self.ty(inner, package)?)));
        }
        if let Some((_, inner)) = text.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Ok(Type::Map(Box::new(self.ty(inner, package)?)));
        }
        let schema = || self.ty("apiextensions/v1.JSONSchemaProps", package).map(Box::new);
        let name = if text.starts_with('.') { format!("{package}{text}") } else { text.to_owned() };
        Ok(match name.as_str() {
            "string" => Type::String("string".to_owned()),
            "m/types.UID" => Type::String("types.UID".to_owned()),
            "int32" | "int64" | "uint32" | "uint64" | "int" | "byte" => Type::Integer(name),
            "float64" => Type::Float,
            "bool" => Type::Bool,
            "m/api/resource.Quantity" => Type::Quantity,
            "m/util/intstr.IntOrString" => Type::IntOrString,
            "meta.Time" | "metav1.Time" => Type::Time,
            "meta.MicroTime" => Type::MicroTime,
            "metav1.ObjectMeta" => self.ty("meta.ObjectMeta", package)?,
            "m/runtime.RawExtension" | "meta.FieldsV1" | "apiextensions/v1.JSON" => Type::Any,
            "apiextensions/v1.JSONSchemaPropsOrBool" => Type::OrBool(schema()?),
            "apiextensions/v1.JSONSchemaPropsOrArray" => Type::OrArray(schema()?),
            "apiextensions/v1.JSONSchemaPropsOrStringArray" => Type::OrStrings(schema()?),
            // A struct without fields.
            "apiextensions/v1.CustomResourceSubresourceStatus" => Type::Map(Box::new(Type::Any)),
            _ => {
                if let Some(index) = self.indices.get(name.as_str()) {
                    Type::Struct(*index)
                } else if let Some(meaning) = self.aliases.get(name.as_str()) {
                    let package = name.rsplit_once('.').map_or(package, |(package, _)| package);
                    match self.ty(meaning, package)? {
                        Type::String(_) => Type::String(go_name(&name)),
                        Type::Integer(_) => Type::Integer(go_name(&name)),
                        other => other,
                    }
                } else {
                    return Err(format!("unknown type {name}"));
                }
            }
        })
    }
}

/// `core/v1.PodSpec` as Go prints it: `v1.PodSpec`.
fn go_name(name: &str) -> String {
    match name.strip_prefix("meta.") {
        Some(rest) => format!("v1.{rest}"),
        None => name.rsplit('/').next().unwrap_or(name).to_owned(),
    }
}

impl Struct {
    fn package(&self) -> &str {
        self.name.rsplit_once('.').map_or("", |(package, _)| package)
    }

    /// The bare name: `PodSpec`.
    fn go_name(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(_, name)| name)
    }
}

impl Type {
    fn go_name(&self) -> String {
        match self {
            Self::String(name) | Self::Integer(name) => name.clone(),
            Self::Float => "float64".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Bytes => "[]uint8".to_owned(),
            Self::Quantity => "resource.Quantity".to_owned(),
            Self::IntOrString => "intstr.IntOrString".to_owned(),
            Self::Time => "v1.Time".to_owned(),
            Self::MicroTime => "v1.MicroTime".to_owned(),
            Self::Any => "runtime.RawExtension".to_owned(),
            Self::OrBool(_) => "v1.JSONSchemaPropsOrBool".to_owned(),
            Self::OrArray(_) => "v1.JSONSchemaPropsOrArray".to_owned(),
            Self::OrStrings(_) => "v1.JSONSchemaPropsOrStringArray".to_owned(),
            Self::Slice(inner) => format!("[]{}", inner.go_name()),
            Self::Map(inner) => format!("map[string]{}", inner.go_name()),
            Self::Pointer(inner) => inner.go_name(),
            Self::Struct(index) => go_name(&TABLE.structs[*index].name),
        }
    }

    /// Go's zero value, written out.
    fn zero(&self) -> Value {
        match self {
            Self::String(_) => Value::String(String::new()),
            Self::Integer(_) | Self::Float | Self::IntOrString => Value::Number(0.into()),
            Self::Bool => Value::Bool(false),
            Self::Quantity => Value::String("0".to_owned()),
            Self::Bytes
            | Self::Time
            | Self::MicroTime
            | Self::Any
            | Self::OrBool(_)
            | Self::OrArray(_)
            | Self::OrStrings(_)
            | Self::Slice(_)
            | Self::Map(_)
            | Self::Pointer(_) => Value::Null,
            Self::Struct(index) => {
                let mut findings = Findings::default();
                let mut walk = Walk { findings: &mut findings, path: String::new(), stored: false };
                let zero = walk.object(*index, &Map::new(), "");
                zero.expect("invariant: an empty object has no value of a wrong type")
            }
        }
    }

    /// Whether `omitempty` leaves the value out.
    fn is_empty(&self, value: &Value) -> bool {
        match self {
            Self::String(_) => value.as_str() == Some(""),
            Self::Integer(_) | Self::Float => value.as_f64() == Some(0.0),
            Self::Bool => value == &Value::Bool(false),
            Self::Slice(_) => value.is_null() || value.as_array().is_some_and(Vec::is_empty),
            Self::Map(_) => value.is_null() || value.as_object().is_some_and(Map::is_empty),
            Self::Bytes => value.is_null() || value.as_str() == Some(""),
            Self::Pointer(_) => value.is_null(),
            // Structs in Go's eyes: never empty.
            Self::Quantity
            | Self::IntOrString
            | Self::Time
            | Self::MicroTime
            | Self::OrBool(_)
            | Self::OrArray(_)
            | Self::OrStrings(_)
            | Self::Struct(_) => false,
            Self::Any => value.is_null(),
        }
    }
}

/// JSON's name for what is there, as `encoding/json` says it.
fn go_kind(value: &Value) -> &'static str {
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

    fn object(
        &mut self,
        index: usize,
        map: &Map<String, Value>,
        _owner: &str,
    ) -> Result<Value, TypeMismatch> {
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
        for &inner in &this.inline {
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
            (Type::Any, _)
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
            (Type::Struct(index), Value::Object(map)) => self.object(*index, map, owner),
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
    this.fields.iter().any(|f| f.json == key) || this.inline.iter().any(|&inner| has_field(table, inner, key))
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
    use serde_json::json;

    use super::*;

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
