//! The Go types of the built-in kinds, as a table, and what decoding a body by them does.
//!
//! kube-apiserver decodes a body into a Go struct and answers with that struct written out again. What a client sees
//! of it: unknown fields go, nulls go, a value of the wrong type is refused with Go's words, empty lists vanish where
//! the field says `omitempty` and are `null` where it does not, structs are always there. [`decode`] does the same
//! walk over a JSON value, and `message` reads the same types from protobuf.
//!
//! `data/types.txt`, one line a fact, made from the `json` and `protobuf` tags of Kubernetes 1.36:
//!
//! ```text
//! kind GROUP VERSION KIND TYPE          alias TYPE MEANING          type TYPE
//!  NUMBER JSON-NAME TYPE WIRE FLAGS     a field; flags: o omitempty, z omitzero, i inline
//! ```

mod message;
mod walk;

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value};

pub(crate) use message::read as read_message;
pub use walk::{TypeMismatch, decode, decode_at, go_kind, settle};

use crate::findings::Findings;

/// A Go type, as far as JSON shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
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
    /// Any JSON value.
    Any(Raw),
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

/// What Go calls any JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// `RawExtension`: an object.
    Extension,
    /// `FieldsV1`: a set of fields.
    Fields,
    /// `JSON`: whatever stands in a schema.
    Json,
}

#[derive(Debug)]
pub(crate) struct Field {
    /// In protobuf.
    pub(crate) number: u32,
    pub(crate) json: String,
    pub(crate) ty: Type,
    pub(crate) omitempty: bool,
    pub(crate) omitzero: bool,
}

#[derive(Debug)]
pub(crate) struct Struct {
    /// `core/v1.PodSpec`
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
    /// Types whose fields are this one's too, by index, each with its number in protobuf, where it is a message within.
    pub(crate) inline: Vec<(u32, usize)>,
    /// Whether it is a kind, with kind and apiVersion of its own.
    pub(crate) is_kind: bool,
}

/// All types. See the module's head.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) structs: Vec<Struct>,
    kinds: BTreeMap<String, usize>,
}

/// The table as text.
pub(crate) const TEXT: &str = include_str!("../../data/types.txt");

pub(crate) static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::parse(TEXT).expect("invariant: data/types.txt is checked by a test"));

/// A struct type of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(pub(crate) usize);

/// The type of a kind's bodies.
pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    let group = if group.is_empty() { "-" } else { group };
    TABLE.kinds.get(&format!("{group} {version} {kind}")).copied().map(TypeId)
}

/// A kind of `meta/v1`, which requests to every group may hold.
pub(crate) fn request_kind(kind: &str) -> TypeId {
    of_kind("meta.k8s.io", "v1", kind).expect("invariant: data/types.txt has the kind, as a test checks")
}

/// `metav1.ObjectMeta`.
pub fn object_meta() -> TypeId {
    named("meta.ObjectMeta")
}

fn named(name: &str) -> TypeId {
    let index = TABLE.structs.iter().position(|s| s.name == name);
    TypeId(index.expect("invariant: data/types.txt has the type, as a test checks"))
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
                ["", number, json, ty, _wire, ref flags @ ..] => {
                    let number =
                        number.parse().map_err(|_| format!("{json}: {number:?} is no field number"))?;
                    let owner = structs.last_mut().ok_or("a field before any type")?;
                    let flags = flags.first().copied().unwrap_or_default();
                    let ty = reader.ty(ty, owner.package())?;
                    if flags.contains('i') {
                        let inner = if let Type::Pointer(inner) = &ty { inner } else { &ty };
                        let Type::Struct(index) = *inner else {
                            return Err(format!("{}: inline {ty:?}", owner.name));
                        };
                        owner.inline.push((number, index));
                    } else {
                        owner.fields.push(Field {
                            number,
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
            "m/runtime.RawExtension" => Type::Any(Raw::Extension),
            "meta.FieldsV1" => Type::Any(Raw::Fields),
            "apiextensions/v1.JSON" => Type::Any(Raw::Json),
            "apiextensions/v1.JSONSchemaPropsOrBool" => Type::OrBool(schema()?),
            "apiextensions/v1.JSONSchemaPropsOrArray" => Type::OrArray(schema()?),
            "apiextensions/v1.JSONSchemaPropsOrStringArray" => Type::OrStrings(schema()?),
            // A struct without fields.
            "apiextensions/v1.CustomResourceSubresourceStatus" => {
                Type::Map(Box::new(Type::Any(Raw::Extension)))
            }
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
            Self::Any(_) => "runtime.RawExtension".to_owned(),
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
            | Self::Any(_)
            | Self::OrBool(_)
            | Self::OrArray(_)
            | Self::OrStrings(_)
            | Self::Slice(_)
            | Self::Map(_)
            | Self::Pointer(_) => Value::Null,
            Self::Struct(index) => decode(TypeId(*index), &Value::Null, &mut Findings::default())
                .expect("invariant: an empty object has no value of a wrong type"),
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
            Self::Any(_) => value.is_null(),
        }
    }
}
