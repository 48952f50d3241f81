//! Reading a protobuf message by the table of types, into the JSON that the same Go value is.
//!
//! The outcome is as a client would send it in JSON: what was not on the wire is absent, and Go's zero values, which
//! generated code always writes, are there. Decoding it ([`super::decode`]) makes both the same.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

use super::{Field, TABLE, Type, TypeId};
use crate::{
    body,
    builtin::protobuf::wire::{self, Payload, WireError},
    findings::Findings,
};

/// Deeper nesting than any real object has would only exhaust the stack.
const MAX_DEPTH: u32 = 150;
/// An empty message takes two bytes on the wire and a thousand times that in memory.
const MAX_MESSAGES: u32 = 1 << 18;
/// The years 0 to 9999, which RFC 3339 can write.
const YEARS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;
/// The first second of the year 1: Go's zero time.
const GO_ZERO: i64 = -62_135_596_800;

/// Reads a message of this type.
///
/// # Errors
/// See [`WireError`].
pub(crate) fn read(ty: TypeId, bytes: &[u8]) -> Result<Value, WireError> {
    let mut reader = Reader { messages: 0, depth: 0 };
    let mut object = Map::new();
    reader.structure(ty.0, bytes, &mut object)?;
    Ok(Value::Object(object))
}

struct Reader {
    /// Read so far.
    messages: u32,
    depth: u32,
}

impl Reader {
    /// Does it one level further down.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, WireError>) -> Result<T, WireError> {
        self.messages += 1;
        if self.messages > MAX_MESSAGES {
            return Err(WireError::Size);
        }
        if self.depth >= MAX_DEPTH {
            return Err(WireError::Depth);
        }
        self.depth += 1;
        let outcome = read(self);
        self.depth -= 1;
        outcome
    }

    /// Reads a struct into an object, which holds what was read of it before: parts of a message add up.
    fn structure(
        &mut self,
        index: usize,
        mut bytes: &[u8],
        object: &mut Map<String, Value>,
    ) -> Result<(), WireError> {
        let this = &TABLE.structs[index];
        while let Some((number, payload)) = wire::field(&mut bytes, this.go_name())? {
            if let Some(field) = this.fields.iter().find(|field| field.number == number) {
                self.field(field, payload, object)?;
            } else if let Some((_, inner)) = this.inline.iter().find(|(at, _)| *at == number) {
                let bytes = payload.bytes(TABLE.structs[*inner].go_name())?;
                self.deeper(|reader| reader.structure(*inner, bytes, object))?;
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &Field,
        payload: Payload<'_>,
        object: &mut Map<String, Value>,
    ) -> Result<(), WireError> {
        let name = field.json.as_str();
        let ty = if let Type::Pointer(inner) = &field.ty { inner } else { &field.ty };
        match ty {
            Type::Slice(inner) => {
                let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    self.element(inner, payload, name, list)?;
                }
            }
            // A struct without fields, which the table takes for a map.
            Type::Map(inner) if matches!(**inner, Type::Any(_)) => {
                payload.bytes(name)?;
                object.entry(name).or_insert_with(|| Value::Object(Map::new()));
            }
            Type::Map(inner) => {
                let map = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    self.entry(inner, payload.bytes(name)?, name, map)?;
                }
            }
            Type::Struct(index) => {
                let bytes = payload.bytes(name)?;
                let inner = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(inner) = inner {
                    self.deeper(|reader| reader.structure(*index, bytes, inner))?;
                }
            }
            single => {
                let value = self.single(single, payload, name)?;
                object.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    /// One more element of a list, or several numbers packed into one field.
    fn element(
        &mut self,
        ty: &Type,
        payload: Payload<'_>,
        name: &str,
        list: &mut Vec<Value>,
    ) -> Result<(), WireError> {
        match (ty, payload) {
            (Type::Integer(_) | Type::Bool, Payload::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    let number = Payload::Varint(wire::varint(&mut packed)?);
                    list.push(self.single(ty, number, name)?);
                }
            }
            _ => list.push(self.single(ty, payload, name)?),
        }
        Ok(())
    }

    /// One entry of a map: a message of a key and a value.
    fn entry(
        &mut self,
        ty: &Type,
        mut bytes: &[u8],
        name: &str,
        map: &mut Map<String, Value>,
    ) -> Result<(), WireError> {
        let (mut key, mut value) = (String::new(), None);
        while let Some((number, payload)) = wire::field(&mut bytes, name)? {
            match number {
                1 => key = text(payload.bytes(name)?),
                2 => value = Some(self.single(ty, payload, name)?),
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            None => match ty {
                Type::Bytes => Value::String(String::new()),
                Type::Struct(_) => Value::Object(Map::new()),
                other => other.zero(),
            },
        };
        map.insert(key, value);
        Ok(())
    }

    /// A value that stands for itself: in a field, in a list or in a map.
    fn single(&mut self, ty: &Type, payload: Payload<'_>, name: &str) -> Result<Value, WireError> {
        Ok(match ty {
            Type::Pointer(inner) => self.single(inner, payload, name)?,
            Type::String(_) => Value::String(text(payload.bytes(name)?)),
            Type::Bytes => Value::String(BASE64_STANDARD.encode(payload.bytes(name)?)),
            Type::Bool => Value::Bool(payload.varint(name)? != 0),
            Type::Integer(go) => integer(go, payload.varint(name)?),
            Type::Float => match payload {
                Payload::Fixed64(bytes) => serde_json::Number::from_f64(f64::from_le_bytes(bytes))
                    .map(Value::Number)
                    .ok_or_else(|| WireError::Value(format!("{name}: json: unsupported value")))?,
                other => return Err(other.wrong(name)),
            },
            Type::Struct(index) => {
                let bytes = payload.bytes(name)?;
                let mut object = Map::new();
                self.deeper(|reader| reader.structure(*index, bytes, &mut object))?;
                Value::Object(object)
            }
            // A named list: a message of its items.
            Type::Slice(inner) => {
                let mut list = Vec::new();
                self.parts(payload, name, |reader, number, payload| {
                    if number == 1 { reader.element(inner, payload, name, &mut list) } else { Ok(()) }
                })?;
                Value::Array(list)
            }
            Type::Map(inner) => {
                let mut map = Map::new();
                self.parts(payload, name, |reader, number, payload| {
                    if number == 1 {
                        reader.entry(inner, payload.bytes(name)?, name, &mut map)
                    } else {
                        Ok(())
                    }
                })?;
                Value::Object(map)
            }
            Type::Quantity => {
                let mut quantity = "0".to_owned();
                self.parts(payload, name, |_, number, payload| {
                    if number == 1 {
                        quantity = text(payload.bytes(name)?);
                    }
                    Ok(())
                })?;
                Value::String(quantity)
            }
            Type::IntOrString => self.int_or_string(payload, name)?,
            Type::Time => self.time(payload, name, false)?,
            Type::MicroTime => self.time(payload, name, true)?,
            Type::Any(_) => self.raw(payload, name)?,
            Type::OrBool(inner) => {
                let (mut allows, mut schema) = (false, None);
                self.parts(payload, name, |reader, number, payload| {
                    match number {
                        1 => allows = payload.varint(name)? != 0,
                        2 => schema = Some(reader.single(inner, payload, name)?),
                        _ => {}
                    }
                    Ok(())
                })?;
                schema.unwrap_or(Value::Bool(allows))
            }
            Type::OrArray(inner) => self.schema_or_list(inner, inner, payload, name)?,
            Type::OrStrings(inner) => {
                self.schema_or_list(inner, &Type::String("string".to_owned()), payload, name)?
            }
        })
    }

    /// Every field of a message within.
    fn parts<'a>(
        &mut self,
        payload: Payload<'a>,
        name: &str,
        mut part: impl FnMut(&mut Self, u32, Payload<'a>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let mut bytes = payload.bytes(name)?;
        self.deeper(|reader| {
            while let Some((number, payload)) = wire::field(&mut bytes, name)? {
                part(reader, number, payload)?;
            }
            Ok(())
        })
    }

    fn schema_or_list(
        &mut self,
        schema: &Type,
        element: &Type,
        payload: Payload<'_>,
        name: &str,
    ) -> Result<Value, WireError> {
        let (mut one, mut list) = (Value::Null, Vec::new());
        self.parts(payload, name, |reader, number, payload| {
            match number {
                1 => one = reader.single(schema, payload, name)?,
                2 => list.push(reader.single(element, payload, name)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(if list.is_empty() { one } else { Value::Array(list) })
    }

    fn int_or_string(&mut self, payload: Payload<'_>, name: &str) -> Result<Value, WireError> {
        let (mut kind, mut number, mut string) = (0, 0.into(), String::new());
        self.parts(payload, name, |_, at, payload| {
            match at {
                1 => kind = payload.varint(name)?,
                2 => number = integer("int32", payload.varint(name)?),
                3 => string = text(payload.bytes(name)?),
                _ => {}
            }
            Ok(())
        })?;
        match kind {
            0 => Ok(number),
            1 => Ok(Value::String(string)),
            _ => Err(WireError::Value("impossible IntOrString.Type".to_owned())),
        }
    }

    /// A point in time; the empty message is Go's zero time, which JSON has no value for.
    fn time(&mut self, payload: Payload<'_>, name: &str, micro: bool) -> Result<Value, WireError> {
        let (mut seconds, mut nanos) = (0, 0);
        self.parts(payload, name, |_, number, payload| {
            match number {
                1 => seconds = payload.varint(name)?.cast_signed(),
                2 => nanos = int32(payload.varint(name)?),
                _ => {}
            }
            Ok(())
        })?;
        if payload == Payload::Bytes(&[]) {
            return Ok(Value::Null);
        }
        let nanos = if micro { nanos / 1000 * 1000 } else { 0 };
        let stamp = jiff::Timestamp::new(seconds, nanos).ok().filter(|_| YEARS.contains(&seconds));
        let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
        match stamp {
            // Go's zero time, from a client that writes out its seconds.
            Some(_) if seconds == GO_ZERO && nanos == 0 => Ok(Value::Null),
            Some(stamp) => Ok(Value::String(stamp.strftime(format).to_string())),
            None => Err(WireError::Value("Time.MarshalJSON: year outside of range [0,9999]".to_owned())),
        }
    }

    /// JSON within a message.
    fn raw(&mut self, payload: Payload<'_>, name: &str) -> Result<Value, WireError> {
        let mut raw: &[u8] = &[];
        self.parts(payload, name, |_, number, payload| {
            if number == 1 {
                raw = payload.bytes(name)?;
            }
            Ok(())
        })?;
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        body::json(raw, &mut Findings::default()).map_err(|why| WireError::Value(format!("{name}: {why}")))
    }
}

/// Text as JSON can have it.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The low half of a number, as Go reads an int32.
#[expect(clippy::cast_possible_truncation, reason = "negative numbers are written with 64 bits")]
fn int32(number: u64) -> i32 {
    number as i32
}

fn integer(go: &str, number: u64) -> Value {
    match go {
        "int64" => number.cast_signed().into(),
        "uint64" => number.into(),
        #[expect(clippy::cast_possible_truncation, reason = "as Go cuts it")]
        "uint32" => (number as u32).into(),
        "byte" => (number & 0xff).into(),
        _ => int32(number).into(),
    }
}
