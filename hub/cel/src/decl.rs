//! Structural schemas as CEL sees them: types, and how large values may get, which prices rules.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use serde_json::{Map, Value};

/// A request of this size is the largest there is.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// Names that CEL itself uses; fields of these names are written with underscores around them.
const KEYWORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// How elements of a list are told apart, which decides what `==` and `+` mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// By their place.
    #[default]
    Place,
    /// They are values of a set.
    Set,
    /// By these fields.
    Keys(Vec<String>),
}

/// A field of an object.
#[derive(Debug)]
pub struct Field {
    /// The name in JSON, which CEL may have to spell differently.
    pub json: String,
    /// What it holds.
    pub decl: Arc<Decl>,
}

/// What a value is.
#[derive(Debug)]
pub enum Shape {
    /// Whatever stands there, looked at as it comes: objects are maps.
    Any,
    /// An integer or a string.
    IntOrString,
    /// `boolean`
    Bool,
    /// `integer`
    Int,
    /// `number`
    Double,
    /// `string`
    Text,
    /// A string of format `byte`.
    Bytes,
    /// A string of format `duration`.
    Duration,
    /// A string of format `date` or `date-time`.
    Timestamp,
    /// `array`
    List(Arc<Decl>, Identity),
    /// `object` with `additionalProperties`.
    Map(Arc<Decl>),
    /// `object` with `properties`, by the names CEL has for them.
    Object(BTreeMap<String, Field>),
}

/// A node of a schema.
#[derive(Debug)]
pub struct Decl {
    /// What values are.
    pub shape: Shape,
    /// How many elements, characters or bytes there may be.
    pub max: u64,
    /// The least number of bytes a value takes in JSON.
    pub min_size: u64,
}

impl Decl {
    fn new(shape: Shape, max: u64, min_size: u64) -> Arc<Self> {
        Arc::new(Self { shape, max, min_size })
    }

    /// The declaration of a schema; `None` where CEL sees nothing. `is_object`: the root of an object, which has
    /// apiVersion, kind and metadata whatever the schema says.
    pub fn of(schema: &Value, is_object: bool) -> Option<Arc<Self>> {
        let map = schema.as_object()?;
        let count = |key: &str| map.get(key).and_then(Value::as_i64).map(|n| u64::try_from(n).unwrap_or(0));
        if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
            let max = count("maxLength").map_or(MAX_REQUEST - 2, |n| n.saturating_mul(4));
            return Some(Self::new(Shape::IntOrString, max, 1));
        }
        match map.get("type").and_then(Value::as_str).unwrap_or_default() {
            _ if is_object => Self::object(map, true),
            "object" => Self::object(map, false),
            "array" => {
                let items = map.get("items").filter(|v| v.is_object())?;
                let items = Self::of(items, is_embedded(items))?;
                let max = count("maxItems").unwrap_or((MAX_REQUEST - 2) / (items.min_size + 1));
                Some(Self::new(Shape::List(items, identity(map)), max, 2))
            }
            "string" => Some(Self::string(map, count("maxLength"))),
            "boolean" => Some(Self::new(Shape::Bool, 1, 4)),
            "number" => Some(Self::new(Shape::Double, 1, 1)),
            "integer" => Some(Self::new(Shape::Int, 1, 1)),
            _ => None,
        }
    }

    /// The declaration of an object with these fields, which CEL spells as JSON does.
    pub fn of_fields(fields: impl IntoIterator<Item = (&'static str, Arc<Self>)>) -> Arc<Self> {
        let field = |(name, decl): (&str, _)| (name.to_owned(), Field { json: name.to_owned(), decl });
        Self::new(Shape::Object(fields.into_iter().map(field).collect()), u64::MAX >> 1, 2)
    }

    /// The declaration of what has no schema.
    pub fn any() -> Arc<Self> {
        Self::new(Shape::Any, MAX_REQUEST, 1)
    }

    fn string(map: &Map<String, Value>, max: Option<u64>) -> Arc<Self> {
        match map.get("format").and_then(Value::as_str).unwrap_or_default() {
            "byte" => Self::new(Shape::Bytes, max.unwrap_or(MAX_REQUEST - 2), 2),
            "duration" => Self::new(Shape::Duration, 62, 5),
            "date" => Self::new(Shape::Timestamp, 12, 12),
            "date-time" => Self::new(Shape::Timestamp, 37, 22),
            _ => {
                let listed = map.get("enum").and_then(Value::as_array).filter(|l| !l.is_empty());
                let longest = |list: &Vec<Value>| {
                    list.iter().filter_map(Value::as_str).map(str::len).max().unwrap_or(0) as u64
                };
                let max = match (max, listed) {
                    (Some(max), _) => max.saturating_mul(4),
                    (None, Some(list)) => longest(list),
                    (None, None) => MAX_REQUEST - 2,
                };
                Self::new(Shape::Text, max, 2)
            }
        }
    }

    fn object(map: &Map<String, Value>, is_object: bool) -> Option<Arc<Self>> {
        if let Some(values) = map.get("additionalProperties").filter(|v| v.is_object()) {
            let values = Self::of(values, is_embedded(values))?;
            let max = map.get("maxProperties").and_then(Value::as_u64);
            let max = max.unwrap_or((MAX_REQUEST - 2) / (values.min_size + 6));
            return Some(Self::new(Shape::Map(values), max, 2));
        }
        let required = map.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
        let (mut fields, mut min_size) = (BTreeMap::new(), 2);
        let properties = map.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            let Some(decl) = Self::of(schema, is_embedded(schema)) else { continue };
            if required.contains(name.as_str()) && schema.get("default").is_none() {
                min_size += name.len() as u64 + decl.min_size + 4;
            }
            if let Some(escaped) = escape(name) {
                fields.insert(escaped, Field { json: name.clone(), decl });
            }
        }
        if is_object {
            for name in ["apiVersion", "kind"] {
                fields.insert(name.to_owned(), Field { json: name.to_owned(), decl: text() });
            }
            let named = ["name", "generateName"]
                .map(|name| (name.to_owned(), Field { json: name.to_owned(), decl: text() }));
            let metadata = Self::new(Shape::Object(named.into()), 0, 2);
            fields.insert("metadata".to_owned(), Field { json: "metadata".to_owned(), decl: metadata });
        }
        Some(Self::new(Shape::Object(fields), u64::MAX >> 1, min_size))
    }

    /// The fields of an object.
    pub fn fields(&self) -> Option<&BTreeMap<String, Field>> {
        match &self.shape {
            Shape::Object(fields) => Some(fields),
            _ => None,
        }
    }

    /// What a list's items or a map's values are.
    pub fn element(&self) -> Option<&Arc<Self>> {
        match &self.shape {
            Shape::List(items, _) => Some(items),
            Shape::Map(values) => Some(values),
            _ => None,
        }
    }

    /// Whether two declarations are of one shape, as those of `self` and `oldSelf` are.
    pub(crate) fn same_shape(&self, other: &Self) -> bool {
        match (self.fields(), other.fields()) {
            (Some(a), Some(b)) => a.keys().eq(b.keys()),
            _ => false,
        }
    }

    /// How often a value with at least this size may stand in one request.
    pub fn cardinality(&self) -> u64 {
        MAX_REQUEST / (self.min_size + 1)
    }
}

fn text() -> Arc<Decl> {
    Decl::new(Shape::Text, MAX_REQUEST - 2, 2)
}

fn is_embedded(schema: &Value) -> bool {
    schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true))
}

fn identity(map: &Map<String, Value>) -> Identity {
    match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Identity::Set,
        Some("map") => {
            let keys = map.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(|k| k.as_str().map(str::to_owned));
            Identity::Keys(keys.collect())
        }
        _ => Identity::Place,
    }
}

/// How CEL spells a field's name; `None` for names that it cannot.
pub fn escape(name: &str) -> Option<String> {
    if KEYWORDS.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '_' if rest.peek() == Some(&'_') => {
                rest.next();
                out.push_str("__underscores__");
            }
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}
