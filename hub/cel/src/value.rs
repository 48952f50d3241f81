//! Values. Objects are looked at where they stand; nothing is copied that a rule does not ask for.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, net::IpAddr, rc::Rc};

use base64::Engine as _;
use jiff::Timestamp;
use karmada_meta::quantity::Quantity;
use serde_json::Value as Json;

use crate::{
    decl::{Decl, Field, Identity, Shape},
    library::{
        net::{Cidr, Url},
        semver::Semver,
        time,
    },
};

/// A key of a map that was made within a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Int(i128),
    Text(String),
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    Bytes(Rc<[u8]>),
    List(List<'a>),
    Map(MapVal<'a>),
    /// Nanoseconds.
    Duration(i64),
    Time(Timestamp),
    Optional(Option<Rc<Self>>),
    Type(Cow<'static, str>),
    Quantity(Rc<Quantity>),
    Url(Rc<Url>),
    Ip(IpAddr),
    Cidr(Cidr),
    Semver(Rc<Semver>),
    Format(&'static str),
}

/// A list.
#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Json(&'a [Json], &'a Decl, &'a Identity),
    Made(Rc<Vec<Val<'a>>>),
}

/// A map or an object.
#[derive(Clone, Debug)]
pub(crate) enum MapVal<'a> {
    Json(&'a serde_json::Map<String, Json>, &'a Decl),
    Object(&'a serde_json::Map<String, Json>, &'a BTreeMap<String, Field>),
    Made(Rc<BTreeMap<Key, Val<'a>>>),
}

pub(crate) const NO_OVERLOAD: &str = "no such overload";

impl<'a> Val<'a> {
    /// A value of an object, as its schema says.
    pub(crate) fn of(json: &'a Json, decl: &'a Decl) -> Result<Self, String> {
        Ok(match (&decl.shape, json) {
            (_, Json::Null) => Val::Null,
            (Shape::Text, Json::String(text)) => Val::Text(Cow::Borrowed(text)),
            (Shape::Duration, Json::String(text)) => {
                Val::Duration(time::parse_format_duration(text).ok_or_else(|| {
                    format!("Invalid duration {text}, expected format is [days]d[hours]h[minutes]m[seconds]s")
                })?)
            }
            (Shape::Timestamp, Json::String(text)) => {
                Val::Time(time::parse_time(text).ok_or_else(|| format!("Invalid time {text}"))?)
            }
            (Shape::Bytes, Json::String(text)) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                Val::Bytes(bytes.map_err(|e| format!("Invalid base64: {e}"))?.into())
            }
            (Shape::Any, Json::Number(n)) if n.is_f64() => Val::Double(n.as_f64().unwrap_or(f64::NAN)),
            (Shape::Double, Json::Number(n)) => Val::Double(n.as_f64().unwrap_or(f64::NAN)),
            (_, Json::Number(n)) => match n.as_i64() {
                Some(n) => Val::Int(n),
                None => match n.as_f64().filter(|n| n.fract() == 0.0) {
                    #[allow(
                        clippy::cast_possible_truncation,
                        reason = "has no fraction; out of range saturates"
                    )]
                    Some(n) => Val::Int(n as i64),
                    None => Val::Double(n.as_f64().unwrap_or(f64::NAN)),
                },
            },
            (_, Json::Bool(b)) => Val::Bool(*b),
            (_, Json::String(text)) => Val::Text(Cow::Borrowed(text)),
            (Shape::List(items, identity), Json::Array(list)) => Val::List(List::Json(list, items, identity)),
            (Shape::Map(values), Json::Object(map)) => Val::Map(MapVal::Json(map, values)),
            (Shape::Any, Json::Array(list)) => Val::List(List::Json(list, decl, &Identity::Place)),
            (Shape::Any, Json::Object(map)) => Val::Map(MapVal::Json(map, decl)),
            (Shape::Object(fields), Json::Object(map)) => Val::Map(MapVal::Object(map, fields)),
            (_, Json::Array(_) | Json::Object(_)) => {
                return Err("invalid data, expected another type".to_owned());
            }
        })
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Val::Text(Cow::Owned(text.into()))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Val::List(List::Made(Rc::new(items)))
    }

    pub(crate) fn some(value: Self) -> Self {
        Val::Optional(Some(Rc::new(value)))
    }

    /// What `type()` says.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::Text(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::List(_) => "list",
            Val::Map(MapVal::Object(..)) => "object",
            Val::Map(_) => "map",
            Val::Duration(_) => "google.protobuf.Duration",
            Val::Time(_) => "google.protobuf.Timestamp",
            Val::Optional(_) => "optional_type",
            Val::Type(_) => "type",
            Val::Quantity(_) => "kubernetes.Quantity",
            Val::Url(_) => "kubernetes.URL",
            Val::Ip(_) => "net.IP",
            Val::Cidr(_) => "net.CIDR",
            Val::Semver(_) => "kubernetes.Semver",
            Val::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// What `size()` says, and 1 for what has no size.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Val::Text(text) => text.chars().count(),
            Val::Bytes(bytes) => bytes.len(),
            Val::List(list) => list.len(),
            Val::Map(map) => map.len(),
            Val::Ip(IpAddr::V4(_)) => 4,
            Val::Ip(IpAddr::V6(_)) => 16,
            Val::Cidr(cidr) => {
                if cidr.base.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            _ => 1,
        };
        size as u64
    }

    /// Whether this is what `optional.ofNonZeroValue` leaves out.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) | Val::Duration(0) => true,
            Val::Double(n) => *n == 0.0,
            Val::Text(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_) => self.size() == 0,
            Val::Optional(inner) => inner.is_none(),
            _ => false,
        }
    }

    /// Equality. Sets do not look at order, nor lists whose elements have keys.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
                numbers(self, other) == Some(Ordering::Equal)
            }
            (Val::Text(a), Val::Text(b)) => a == b,
            (Val::Bytes(a), Val::Bytes(b)) => a == b,
            (Val::Duration(a), Val::Duration(b)) => a == b,
            (Val::Time(a), Val::Time(b)) => a == b,
            (Val::Type(a), Val::Type(b)) => a == b,
            (Val::Quantity(a), Val::Quantity(b)) => a == b,
            (Val::Url(a), Val::Url(b)) => a == b,
            (Val::Ip(a), Val::Ip(b)) => a == b,
            (Val::Cidr(a), Val::Cidr(b)) => a == b,
            (Val::Semver(a), Val::Semver(b)) => a.compare(b) == Ordering::Equal,
            (Val::Format(a), Val::Format(b)) => a == b,
            (Val::Optional(a), Val::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b),
                _ => false,
            },
            (Val::List(a), Val::List(b)) => a.equals(b),
            (Val::Map(a), Val::Map(b)) => a.equals(b),
            _ => false,
        }
    }

    /// Order, where there is one.
    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, String> {
        let order = match (self, other) {
            (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
            (Val::Text(a), Val::Text(b)) => Some(a.cmp(b)),
            (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
            (Val::Duration(a), Val::Duration(b)) => Some(a.cmp(b)),
            (Val::Time(a), Val::Time(b)) => Some(a.cmp(b)),
            (a, b) => numbers(a, b),
        };
        order.ok_or_else(|| NO_OVERLOAD.to_owned())
    }

    pub(crate) fn key(&self) -> Result<Key, String> {
        Ok(match self {
            Val::Bool(b) => Key::Bool(*b),
            Val::Int(n) => Key::Int(i128::from(*n)),
            Val::Uint(n) => Key::Int(i128::from(*n)),
            #[allow(clippy::cast_possible_truncation, reason = "has no fraction")]
            Val::Double(n) if n.fract() == 0.0 => Key::Int(*n as i128),
            Val::Text(text) => Key::Text(text.clone().into_owned()),
            other => return Err(format!("unsupported key type: {}", other.type_name())),
        })
    }
}

/// Numbers of whatever kinds; `None` for a NaN or what is no number.
#[allow(clippy::cast_precision_loss, reason = "a fraction decides before precision does")]
fn numbers(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    let whole = |v: &Val<'_>| match v {
        Val::Int(n) => Some(i128::from(*n)),
        Val::Uint(n) => Some(i128::from(*n)),
        _ => None,
    };
    if let (Some(a), Some(b)) = (whole(a), whole(b)) {
        return Some(a.cmp(&b));
    }
    let real = |v: &Val<'_>| match v {
        Val::Double(n) => Some(*n),
        other => whole(other).map(|n| n as f64),
    };
    real(a)?.partial_cmp(&real(b)?)
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            List::Json(items, ..) => items.len(),
            List::Made(items) => items.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Result<Val<'a>, String>> {
        match self {
            List::Json(items, decl, _) => items.get(index).map(|item| Val::of(item, decl)),
            List::Made(items) => items.get(index).cloned().map(Ok),
        }
    }

    pub(crate) fn items(&self) -> Result<Vec<Val<'a>>, String> {
        (0..self.len()).filter_map(|index| self.get(index)).collect()
    }

    fn identity(&self) -> &Identity {
        match self {
            List::Json(_, _, identity) => identity,
            List::Made(_) => &Identity::Place,
        }
    }

    fn equals(&self, other: &Self) -> bool {
        let (Ok(a), Ok(b)) = (self.items(), other.items()) else { return false };
        if a.len() != b.len() {
            return false;
        }
        match self.identity() {
            Identity::Place => a.iter().zip(&b).all(|(a, b)| a.equals(b)),
            _ => a.iter().all(|a| b.iter().any(|b| a.equals(b))),
        }
    }

    /// `+`: a set takes what it does not have, a list with keys replaces what it has.
    pub(crate) fn concat(&self, other: &Self) -> Result<Val<'a>, String> {
        let mut all = self.items()?;
        let more = other.items()?;
        match self.identity() {
            Identity::Place => all.extend(more),
            Identity::Set => {
                for item in more {
                    if !all.iter().any(|there| there.equals(&item)) {
                        all.push(item);
                    }
                }
            }
            Identity::Keys(keys) => {
                for item in more {
                    let same = |there: &Val<'a>| {
                        keys.iter().all(|key| {
                            field(there, key).zip(field(&item, key)).is_some_and(|(a, b)| a.equals(&b))
                        })
                    };
                    match all.iter_mut().find(|there| same(there)) {
                        Some(there) => *there = item,
                        None => all.push(item),
                    }
                }
            }
        }
        Ok(Val::list(all))
    }
}

/// A field by its JSON name.
fn field<'a>(of: &Val<'a>, name: &str) -> Option<Val<'a>> {
    let Val::Map(map) = of else { return None };
    let escaped = crate::decl::escape(name)?;
    map.get(&Val::text(escaped)).ok().flatten()
}

impl<'a> MapVal<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            MapVal::Json(map, _) => map.len(),
            MapVal::Object(..) => self.keys().len(),
            MapVal::Made(map) => map.len(),
        }
    }

    /// The value of a key or field; `None` if it has none.
    pub(crate) fn get(&self, key: &Val<'_>) -> Result<Option<Val<'a>>, String> {
        let name = match key {
            Val::Text(text) => Some(text.as_ref()),
            _ => None,
        };
        match self {
            MapVal::Json(map, decl) => name.and_then(|n| map.get(n)).map(|v| Val::of(v, decl)).transpose(),
            MapVal::Object(map, fields) => {
                let Some(field) = name.and_then(|n| fields.get(n)) else { return Ok(None) };
                map.get(&field.json).map(|v| Val::of(v, &field.decl)).transpose()
            }
            MapVal::Made(map) => Ok(map.get(&key.key()?).cloned()),
        }
    }

    /// Keys in order, so that what a rule does is always the same.
    pub(crate) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            MapVal::Json(map, _) => {
                let mut keys: Vec<&'a String> = map.keys().collect();
                keys.sort_unstable();
                keys.into_iter().map(|k| Val::Text(Cow::Borrowed(k.as_str()))).collect()
            }
            MapVal::Object(map, fields) => fields
                .iter()
                .filter(|(_, field)| map.contains_key(&field.json))
                .map(|(name, _)| Val::Text(Cow::Borrowed(name.as_str())))
                .collect(),
            MapVal::Made(map) => map
                .keys()
                .map(|key| match key {
                    Key::Bool(b) => Val::Bool(*b),
                    Key::Int(n) => i64::try_from(*n)
                        .map_or_else(|_| Val::Uint(u64::try_from(*n).unwrap_or(u64::MAX)), Val::Int),
                    Key::Text(text) => Val::text(text.clone()),
                })
                .collect(),
        }
    }

    fn equals(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.keys().iter().all(|key| match (self.get(key), other.get(key)) {
                (Ok(Some(a)), Ok(Some(b))) => a.equals(&b),
                _ => false,
            })
    }
}
