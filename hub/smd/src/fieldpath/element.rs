//! One step of a path: a field, a list element by its keys, a set's value, an index.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use karmada_meta::effort;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// The fields by which a list element is known, sorted by name. Names are shared: a schema has few, sets have many.
pub type KeyFields = Box<[(Arc<str>, Scalar)]>;

/// One step from a value to a part of it. The order is that of `fieldsV1`: fields, keys, values, indexes.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of a struct or a key of a map.
    Field(Arc<str>),
    /// An element of a list of objects by the values of its key fields, sorted by field name.
    Key(KeyFields),
    /// An element of a set, by its value.
    Value(Scalar),
    /// An element of a list by its place. No merge makes these; they are read and kept.
    Index(i64),
}

/// A value that can name a list element. Numbers compare as numbers, so 80 stands before 443.
#[derive(Clone, Debug)]
pub enum Scalar {
    Int(i64),
    Float(f64),
    String(Box<str>),
    Bool(bool),
    /// Anything else, as JSON. The API refuses such elements, but a stored `fieldsV1` may hold them.
    Other(Box<str>),
}

impl Scalar {
    /// The scalar of a JSON value.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::String(s) => Self::String(s.as_str().into()),
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => match n.as_i64() {
                Some(i) => Self::Int(i),
                None => Self::Float(n.as_f64().unwrap_or(f64::MAX)),
            },
            other => Self::Other(other.to_string().into()),
        }
    }

    /// The scalar as JSON.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Int(i) => Value::from(*i),
            Self::Float(f) => Value::from(*f),
            Self::String(s) => Value::String(s.to_string()),
            Self::Bool(b) => Value::Bool(*b),
            Self::Other(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::String(text) => write_json_string(text, out),
            Self::Other(text) => out.push_str(text),
            other => {
                let _ = write!(out, "{}", other.to_value());
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Int(_) | Self::Float(_) => 0,
            Self::String(_) => 1,
            Self::Bool(_) => 2,
            Self::Other(_) => 3,
        }
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Int(a), Self::Float(b)) => (*a as f64).total_cmp(b),
            (Self::Float(a), Self::Int(b)) => a.total_cmp(&(*b as f64)),
            (Self::String(a), Self::String(b)) => a.cmp(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Other(a), Self::Other(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(i) => write!(f, "{i}"),
            Self::Float(x) => write!(f, "{x}"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::String(s) => {
                let mut text = String::new();
                write_json_string(s, &mut text);
                f.write_str(&text)
            }
            Self::Other(v) => write!(f, "{v}"),
        }
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<i64> for Scalar {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::of(&Value::deserialize(deserializer)?))
    }
}

/// The object of a `k:` element, without a map in between.
struct Fields(Vec<(Arc<str>, Scalar)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of key fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields: Vec<(Arc<str>, Scalar)> = Vec::with_capacity(2);
                while let Some((name, value)) = map.next_entry::<String, Scalar>()? {
                    let name: Arc<str> = name.into();
                    fields.push((name, value));
                }
                // Of two of a name the later one counts.
                fields.reverse();
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                fields.dedup_by(|later, kept| later.0 == kept.0);
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A string as JSON; most need no escapes.
fn write_json_string(text: &str, out: &mut String) {
    if text.bytes().any(|b| b < 0x20 || b == b'"' || b == b'\\') {
        out.push_str(&Value::from(text).to_string());
    } else {
        out.push('"');
        out.push_str(text);
        out.push('"');
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        effort::spend(1);
        // Names are mostly shared, so they are mostly the same memory.
        let names = |a: &Arc<str>, b: &Arc<str>| if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.cmp(b) };
        let rank = |e: &Self| match e {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        };
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => names(a, b),
            (Self::Key(a), Self::Key(b)) => {
                let fields = a.iter().zip(b).map(|(a, b)| names(&a.0, &b.0).then_with(|| a.1.cmp(&b.1)));
                fields.into_iter().find(|o| o.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => a.cmp(b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

impl PathElement {
    /// A field of that name.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// A list element with these key fields.
    pub fn key<N: Into<Arc<str>>>(fields: impl IntoIterator<Item = (N, Scalar)>) -> Self {
        let mut fields: Vec<(Arc<str>, Scalar)> =
            fields.into_iter().map(|(name, v)| (name.into(), v)).collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields.into())
    }

    /// How `fieldsV1` writes it: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:3`.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Field(name) => {
                out.reserve(name.len() + 2);
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:");
                for (i, (name, value)) in fields.iter().enumerate() {
                    out.push(if i == 0 { '{' } else { ',' });
                    write_json_string(name, &mut out);
                    out.push(':');
                    value.write(&mut out);
                }
                out.push_str(if fields.is_empty() { "{}" } else { "}" });
            }
            Self::Value(value) => {
                out.push_str("v:");
                value.write(&mut out);
            }
            Self::Index(i) => out = format!("i:{i}"),
        }
        out
    }

    /// Reads what [`encode`](Self::encode) writes. `Ok(None)`: a form of some later version, which a reader skips.
    ///
    /// # Errors
    /// What follows the prefix is not what the prefix promises.
    pub fn decode(text: &str) -> Result<Option<Self>, String> {
        let Some((prefix, rest)) = text.split_once(':') else {
            return Err(format!("missing colon: {text}"));
        };
        let bad = |error: &dyn fmt::Display| format!("bad path element {text}: {error}");
        Ok(Some(match prefix {
            "f" => Self::field(rest),
            "v" => Self::Value(serde_json::from_str(rest).map_err(|e| bad(&e))?),
            "i" => Self::Index(rest.parse().map_err(|e| bad(&e))?),
            "k" => {
                let Fields(fields) = serde_json::from_str(rest).map_err(|e| bad(&e))?;
                Self::key(fields)
            }
            _ => return Ok(None),
        }))
    }
}

impl fmt::Display for PathElement {
    /// As messages show it: `.name`, `[name="x",port=80]`, `[="x"]`, `[3]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(i) => write!(f, "[{i}]"),
        }
    }
}
