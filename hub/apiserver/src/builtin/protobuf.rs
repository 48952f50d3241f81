//! Bodies in `application/vnd.kubernetes.protobuf`, which typed Go clients send for built-in kinds.
//!
//! ```text
//!   "k8s\0" Unknown { typeMeta { apiVersion, kind }, raw, contentEncoding, contentType }
//!                                                      └─ the object's message, read by the table of types
//! ```
//!
//! Answers stay JSON: every such client takes what the answer says it is. What stands in `contentEncoding` and
//! `contentType` is looked at by nobody, neither by us.

pub(crate) mod wire;

use karmada_meta::gvk::parse_api_version;
use serde_json::{Map, Value};

use self::wire::WireError;
use super::types::{self, TypeId};

const PREFIX: &[u8] = b"k8s\0";

/// What is wrong with a body before it says what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvelopeError {
    /// Nothing at all.
    #[error("empty data")]
    Empty,
    /// It does not begin as it should.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// Nothing behind the prefix.
    #[error("empty body")]
    EmptyBody,
    /// The envelope is no message.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// A body that says what it is, not yet read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens a body.
    ///
    /// # Errors
    /// See [`EnvelopeError`].
    pub(crate) fn open(body: &'a [u8]) -> Result<Self, EnvelopeError> {
        if body.is_empty() {
            return Err(EnvelopeError::Empty);
        }
        let mut bytes = body.strip_prefix(PREFIX).ok_or(EnvelopeError::Prefix)?;
        if bytes.is_empty() {
            return Err(EnvelopeError::EmptyBody);
        }
        let mut this = Self::default();
        while let Some((number, payload)) = wire::field(&mut bytes, "Unknown")? {
            match number {
                1 => this.type_meta(payload.bytes("TypeMeta")?)?,
                2 => this.raw = payload.bytes("Raw")?,
                3 => drop(payload.bytes("ContentEncoding")?),
                4 => drop(payload.bytes("ContentType")?),
                _ => {}
            }
        }
        Ok(this)
    }

    fn type_meta(&mut self, mut bytes: &[u8]) -> Result<(), WireError> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        while let Some((number, payload)) = wire::field(&mut bytes, "TypeMeta")? {
            match number {
                1 => self.api_version = text(payload.bytes("APIVersion")?),
                2 => self.kind = text(payload.bytes("Kind")?),
                _ => {}
            }
        }
        Ok(())
    }

    /// The object with no more than what it says it is.
    pub(crate) fn head(&self) -> Value {
        let mut head = Map::new();
        for (field, text) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            if !text.is_empty() {
                head.insert(field.to_owned(), Value::from(text.as_str()));
            }
        }
        Value::Object(head)
    }

    /// The object. What it does not say of itself, it is by the path: `default` is group, version and kind of that.
    /// Of a kind that nobody knows there is the head alone.
    ///
    /// # Errors
    /// See [`WireError`].
    pub(crate) fn object(&self, default: (&str, &str, &str)) -> Result<Value, WireError> {
        let mut object = self.head();
        if let Some(ty) = self.ty(default)
            && let (Value::Object(object), Value::Object(fields)) =
                (&mut object, types::read_message(ty, self.raw)?)
        {
            object.extend(fields);
        }
        Ok(object)
    }

    fn ty(&self, (group, version, kind): (&str, &str, &str)) -> Option<TypeId> {
        let kind = if self.kind.is_empty() { kind } else { &self.kind };
        let (group, version) = match parse_api_version(&self.api_version) {
            Some(parsed) if !self.api_version.is_empty() => parsed,
            _ => (group.to_owned(), version.to_owned()),
        };
        // Of every group and version are the kinds that belong to requests.
        types::of_kind(&group, &version, kind).or_else(|| types::of_kind("meta.k8s.io", "v1", kind))
    }
}

#[cfg(test)]
mod tests;
