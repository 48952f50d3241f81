//! Swagger 2 in gnostic's protobuf, which Argo CD and older clients ask for.
//!
//! A message that stands twice adds up, so every path and every definition is a part of the document of its own, written
//! one after another without the whole ever being there as a tree.

use serde_json::{Map, Value};

/// A message under way.
#[derive(Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push((number & 0x7f) as u8);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u64, value: Option<&Value>) {
        for text in elements(value).filter_map(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u64, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(field << 3);
            self.varint(1);
        }
    }

    fn integer(&mut self, field: u64, value: Option<&Value>) {
        if let Some(number) = value.and_then(Value::as_i64).filter(|number| *number != 0) {
            self.varint(field << 3);
            self.varint(number.cast_unsigned());
        }
    }

    fn double(&mut self, field: u64, value: Option<&Value>) {
        if let Some(number) = value.and_then(Value::as_f64).filter(|number| *number != 0.0) {
            self.varint(field << 3 | 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// A name and what it stands for.
    fn named(&mut self, field: u64, name: &str, write: impl FnOnce(&mut Self)) {
        self.message(field, |entry| {
            entry.bytes(1, name.as_bytes());
            entry.message(2, write);
        });
    }

    /// `Any`: YAML, of which JSON is a part.
    fn any(&mut self, field: u64, value: &Value) {
        self.message(field, |any| any.bytes(2, value.to_string().as_bytes()));
    }

    fn extensions(&mut self, field: u64, map: &Map<String, Value>) {
        for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
            self.named(field, name, |any| any.bytes(2, value.to_string().as_bytes()));
        }
    }

    /// The beginning of a document.
    pub(crate) fn head(&mut self, title: &str, version: &str) {
        self.bytes(1, b"2.0");
        self.message(2, |info| {
            info.bytes(1, title.as_bytes());
            info.bytes(2, version.as_bytes());
        });
    }

    /// A path of a document.
    pub(crate) fn path(&mut self, path: &str, item: &Value) {
        let Some(item) = item.as_object() else { return };
        self.message(8, |paths| {
            paths.named(2, path, |out| {
                for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
                    if let Some(Value::Object(operation)) = item.get(method) {
                        out.message(field, |out| out.operation(operation));
                    }
                }
                elements(item.get("parameters")).for_each(|parameter| out.parameter(9, parameter));
            });
        });
    }

    fn operation(&mut self, operation: &Map<String, Value>) {
        self.texts(1, operation.get("tags"));
        self.text(3, operation.get("description"));
        self.text(5, operation.get("operationId"));
        self.texts(6, operation.get("produces"));
        self.texts(7, operation.get("consumes"));
        elements(operation.get("parameters")).for_each(|parameter| self.parameter(8, parameter));
        if let Some(Value::Object(responses)) = operation.get("responses") {
            self.message(9, |out| {
                for (code, response) in responses {
                    out.named(1, code, |value| {
                        value.message(1, |out| {
                            out.text(1, response.get("description"));
                            if let Some(Value::Object(schema)) = response.get("schema") {
                                out.message(2, |item| item.message(1, |out| out.schema(schema)));
                            }
                        });
                    });
                }
            });
        }
        self.texts(10, operation.get("schemes"));
        self.extensions(13, operation);
    }

    fn parameter(&mut self, field: u64, parameter: &Value) {
        let of = |key: &str| parameter.get(key);
        // ParametersItem, then Parameter: of the body, or of query (3) and path (4).
        self.message(field, |item| {
            item.message(1, |either| match of("in").and_then(Value::as_str) {
                Some("body") => either.message(1, |out| {
                    out.text(2, of("name"));
                    out.text(3, of("in"));
                    out.flag(4, of("required"));
                    if let Some(Value::Object(schema)) = of("schema") {
                        out.message(5, |out| out.schema(schema));
                    }
                }),
                place => either.message(2, |other| {
                    let (field, ty, unique) = if place == Some("path") { (4, 5, 19) } else { (3, 6, 20) };
                    other.message(field, |out| {
                        out.flag(1, of("required"));
                        out.text(2, of("in"));
                        out.text(3, of("description"));
                        out.text(4, of("name"));
                        out.text(ty, of("type"));
                        out.flag(unique, of("uniqueItems"));
                    });
                }),
            });
        });
    }

    /// A definition of a document.
    pub(crate) fn definition(&mut self, name: &str, schema: &Value) {
        let Some(schema) = schema.as_object() else { return };
        self.message(9, |definitions| definitions.named(1, name, |out| out.schema(schema)));
    }

    fn schema(&mut self, schema: &Map<String, Value>) {
        let of = |key: &str| schema.get(key);
        self.text(1, of("$ref"));
        self.text(2, of("format"));
        self.text(3, of("title"));
        self.text(4, of("description"));
        if let Some(default) = of("default") {
            self.any(5, default);
        }
        for (field, key) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
            self.double(field, of(key));
        }
        for (field, key) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
            self.flag(field, of(key));
        }
        for (field, key) in [
            (11, "maxLength"),
            (12, "minLength"),
            (14, "maxItems"),
            (15, "minItems"),
            (17, "maxProperties"),
            (18, "minProperties"),
        ] {
            self.integer(field, of(key));
        }
        self.text(13, of("pattern"));
        self.texts(19, of("required"));
        elements(of("enum")).for_each(|value| self.any(20, value));
        match of("additionalProperties") {
            Some(Value::Object(inner)) => self.message(21, |item| item.message(1, |out| out.schema(inner))),
            Some(Value::Bool(allowed)) => self.message(21, |item| {
                item.varint(2 << 3);
                item.varint(u64::from(*allowed));
            }),
            _ => {}
        }
        if of("type").is_some() {
            self.message(22, |item| item.text(1, of("type")));
        }
        if let Some(Value::Object(items)) = of("items") {
            self.message(23, |item| item.message(1, |out| out.schema(items)));
        }
        for inner in elements(of("allOf")).filter_map(Value::as_object) {
            self.message(24, |out| out.schema(inner));
        }
        if let Some(Value::Object(properties)) = of("properties") {
            self.message(25, |out| {
                for (name, property) in properties.iter().filter_map(|(n, p)| Some((n, p.as_object()?))) {
                    out.named(1, name, |out| out.schema(property));
                }
            });
        }
        self.extensions(31, schema);
    }

    /// The bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

fn elements(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}
