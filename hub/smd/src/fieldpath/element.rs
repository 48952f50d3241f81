//! One step of a path: a field, a list element by its keys, a set's value, an index.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

/// One step from a value to a part of it. The order is that of `fieldsV1`: fields, keys, values, indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// A field of a struct or a key of a map.
    Field(Box<str>),
    /// An element of a list of objects by the values of its key fields, sorted by field name.
    Key(Box<[(Box<str>, Scalar)]>),
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
    /// Anything else. The API refuses such elements, but a stored `fieldsV1` may hold them.
    Other(Box<Value>),
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
            other => Self::Other(Box::new(other.clone())),
        }
    }

    /// The scalar as JSON.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Int(i) => Value::from(*i),
            Self::Float(f) => Value::from(*f),
            Self::String(s) => Value::String(s.to_string()),
            Self::Bool(b) => Value::Bool(*b),
            Self::Other(v) => (**v).clone(),
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
            (Self::Other(a), Self::Other(b)) => a.to_string().cmp(&b.to_string()),
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
            Self::String(s) => f.write_str(&Value::from(&**s).to_string()),
            Self::Other(v) => write!(f, "{v}"),
        }
    }
}

impl PathElement {
    /// A field of that name.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// A list element with these key fields.
    pub fn key<'a>(fields: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Self {
        let mut fields: Vec<_> = fields.into_iter().map(|(k, v)| (Box::from(k), Scalar::of(v))).collect();
        fields.sort_by(|a: &(Box<str>, Scalar), b| a.0.cmp(&b.0));
        Self::Key(fields.into())
    }

    /// How `fieldsV1` writes it: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:3`.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let object: Map<String, Value> =
                    fields.iter().map(|(k, v)| (k.to_string(), v.to_value())).collect();
                format!("k:{}", Value::Object(object))
            }
            Self::Value(value) => format!("v:{}", value.to_value()),
            Self::Index(i) => format!("i:{i}"),
        }
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
            "v" => Self::Value(Scalar::of(&serde_json::from_str(rest).map_err(|e| bad(&e))?)),
            "i" => Self::Index(rest.parse().map_err(|e| bad(&e))?),
            "k" => {
                let object: Map<String, Value> = serde_json::from_str(rest).map_err(|e| bad(&e))?;
                Self::key(object.iter().map(|(k, v)| (k.as_str(), v)))
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
