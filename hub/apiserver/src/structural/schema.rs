//! A structural schema (`openAPIV3Schema` of a definition's version), compiled for use on every write.
//!
//! Compiling never fails: [`structural`](super) has refused what cannot be used before a definition is stored, and a
//! keyword that slipped through (a definition stored by an older server) is left out rather than refused for good.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{format::Format, pattern::Pattern};

/// What `type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

impl JsonType {
    /// Reads the keyword's value.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// The keyword's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// What keys beside `properties` may hold.
#[derive(Debug)]
pub enum Additional {
    /// Anything (`additionalProperties: true`).
    Any,
    /// Values of one schema.
    Schema(Box<Schema>),
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Elements have no identity.
    #[default]
    Atomic,
    /// Scalars, each once.
    Set,
    /// Objects told apart by these fields.
    Map(Vec<String>),
}

/// One node of a schema.
#[derive(Debug, Default)]
pub struct Schema {
    /// `type`; none for int-or-string, for free-form nodes and within `anyOf` and its like.
    pub json_type: Option<JsonType>,
    /// `null` is a value of its own.
    pub nullable: bool,
    /// Known fields.
    pub properties: BTreeMap<String, Self>,
    /// Other fields.
    pub additional: Option<Additional>,
    /// Elements.
    pub items: Option<Box<Self>>,
    /// Unknown fields stay.
    pub preserve_unknown: bool,
    /// The value is a Kubernetes object: has apiVersion, kind and metadata.
    pub embedded: bool,
    /// The value is an integer or a string.
    pub int_or_string: bool,
    /// What a missing value becomes.
    pub default: Option<Value>,
    /// How elements are told apart.
    pub list: ListType,
    /// What values must fulfil.
    pub checks: Checks,
}

/// The keywords that judge a value and do not shape it.
#[derive(Debug, Default)]
pub struct Checks {
    /// `enum`
    pub one_of_values: Vec<Value>,
    /// `pattern`
    pub pattern: Option<Pattern>,
    /// `format`, where it is one that is checked.
    pub format: Option<Format>,
    /// `minLength`, in characters.
    pub min_length: Option<u64>,
    /// `maxLength`, in characters.
    pub max_length: Option<u64>,
    /// `minimum`, and whether the bound itself is excluded.
    pub minimum: Option<(f64, bool)>,
    /// `maximum`, and whether the bound itself is excluded.
    pub maximum: Option<(f64, bool)>,
    /// `multipleOf`
    pub multiple_of: Option<f64>,
    /// `minItems`
    pub min_items: Option<u64>,
    /// `maxItems`
    pub max_items: Option<u64>,
    /// `minProperties`
    pub min_properties: Option<u64>,
    /// `maxProperties`
    pub max_properties: Option<u64>,
    /// `required`
    pub required: Vec<String>,
    /// `allOf`
    pub all_of: Vec<Schema>,
    /// `anyOf`
    pub any_of: Vec<Schema>,
    /// `oneOf`
    pub exactly_one_of: Vec<Schema>,
    /// `not`
    pub not: Option<Box<Schema>>,
}

impl Schema {
    /// Compiles a schema as it stands in a definition.
    pub fn compile(value: &Value) -> Self {
        let Some(map) = value.as_object() else { return Self::default() };
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
        Self {
            json_type: text("type").and_then(JsonType::parse),
            nullable: flag("nullable"),
            properties: map
                .get("properties")
                .and_then(Value::as_object)
                .map(schemas_by_name)
                .unwrap_or_default(),
            additional: match map.get("additionalProperties") {
                Some(Value::Bool(true)) => Some(Additional::Any),
                Some(schema @ Value::Object(_)) => Some(Additional::Schema(Box::new(Self::compile(schema)))),
                _ => None,
            },
            items: map.get("items").filter(|v| v.is_object()).map(|v| Box::new(Self::compile(v))),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            default: map.get("default").cloned(),
            list: match text("x-kubernetes-list-type") {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(strings(map.get("x-kubernetes-list-map-keys"))),
                _ => ListType::Atomic,
            },
            checks: Checks::compile(map),
        }
    }
}

impl Checks {
    fn compile(map: &Map<String, Value>) -> Self {
        let number = |key: &str| map.get(key).and_then(Value::as_f64);
        let count = |key: &str| map.get(key).and_then(Value::as_u64);
        let excluded = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
        Self {
            one_of_values: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            pattern: map.get("pattern").and_then(Value::as_str).and_then(|p| Pattern::compile(p).ok()),
            format: map.get("format").and_then(Value::as_str).and_then(Format::parse),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            minimum: number("minimum").map(|n| (n, excluded("exclusiveMinimum"))),
            maximum: number("maximum").map(|n| (n, excluded("exclusiveMaximum"))),
            multiple_of: number("multipleOf").filter(|n| *n > 0.0),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: strings(map.get("required")),
            all_of: schemas(map.get("allOf")),
            any_of: schemas(map.get("anyOf")),
            exactly_one_of: schemas(map.get("oneOf")),
            not: map.get("not").filter(|v| v.is_object()).map(|v| Box::new(Schema::compile(v))),
        }
    }
}

fn schemas_by_name(map: &Map<String, Value>) -> BTreeMap<String, Schema> {
    map.iter().map(|(name, schema)| (name.clone(), Schema::compile(schema))).collect()
}

fn schemas(list: Option<&Value>) -> Vec<Schema> {
    list.and_then(Value::as_array).map(|list| list.iter().map(Schema::compile).collect()).unwrap_or_default()
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}
