//! From bytes to what a parser may meet: any bytes give something, and bytes that differ a little give something that
//! differs a little.

use serde_json::{Map, Value, json};

/// Names that parsers treat in different ways.
const KEYS: &[&str] = &[
    "a",
    "b",
    "c",
    "name",
    "spec",
    "metadata",
    "labels",
    "data",
    "value",
    "containers",
    "ports",
    "env",
    "finalizers",
    "template",
    "x/y",
    "~",
    "",
    "k:{}",
    "f:a",
    ".",
];

const TEXTS: &[&str] =
    &["", "a", "b", "1", "TCP", "v:1", "null", "x y", "é", "\u{0}", "a/b", "10Mi", "-", "$patch"];

/// Bytes that are used up one after another; behind their end there are zeros.
pub(super) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    /// A number below the bound, which is at most 256.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    pub(super) fn one_of<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[self.below(all.len())]
    }

    /// What was not used.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// A text of its own or a known one.
    pub(super) fn text(&mut self) -> String {
        let length = self.below(48);
        if length < 16 {
            return (*self.one_of(TEXTS)).to_owned();
        }
        let (text, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn leaf(&mut self) -> Value {
        match self.below(8) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(4)),
            3 => json!(i64::from(self.byte()) << 55),
            4 => json!(f64::from(self.byte()) / 4.0),
            _ => Value::from(self.text()),
        }
    }

    /// Any value that nests at most so deep.
    pub(super) fn value(&mut self, depth: usize) -> Value {
        match self.below(4) {
            0 if depth > 0 => {
                let length = self.below(4);
                (0..length).map(|_| self.value(depth - 1)).collect()
            }
            1 | 2 if depth > 0 => self.object(depth),
            _ => self.leaf(),
        }
    }

    /// Any object.
    pub(super) fn object(&mut self, depth: usize) -> Value {
        let length = self.below(5);
        let members = (0..length).map(|_| {
            let key = (*self.one_of(KEYS)).to_owned();
            (key, self.value(depth.saturating_sub(1)))
        });
        Value::Object(members.collect::<Map<_, _>>())
    }

    fn pointer(&mut self) -> String {
        let length = self.below(5);
        let tokens = ["a", "b", "c", "0", "1", "-", "-1", "~0", "~1", "metadata", "", "spec"];
        (0..length).map(|_| format!("/{}", self.one_of(&tokens))).collect()
    }

    /// A list of patch operations, most of them well-formed.
    pub(super) fn operations(&mut self) -> Value {
        let length = self.below(24);
        let operations = ["add", "remove", "replace", "move", "copy", "copy", "test", "odd"];
        (0..length)
            .map(|_| match self.below(16) {
                0 => self.value(2),
                _ => json!({"op": self.one_of(&operations), "path": self.pointer(), "from": self.pointer(),
                    "value": self.value(3)}),
            })
            .collect()
    }

    /// Something like a Deployment: what is a list of named elements, a set or a map there mostly is.
    pub(super) fn deployment(&mut self) -> Value {
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}});
        let bits = self.byte();
        if bits & 1 != 0 {
            object["metadata"]["labels"] = self.strings();
        }
        if bits & 2 != 0 {
            let length = self.below(4);
            object["metadata"]["finalizers"] = (0..length).map(|_| Value::from(self.text())).collect();
        }
        if bits & 4 != 0 {
            object["spec"]["replicas"] = json!(self.below(4));
        }
        if bits & 8 != 0 {
            let length = self.below(4);
            let containers = (0..length).map(|_| self.container()).collect();
            object["spec"]["template"]["spec"]["containers"] = containers;
        }
        if bits & 16 != 0 {
            object["spec"]["template"]["metadata"]["labels"] = self.strings();
        }
        if bits & 32 != 0 {
            object["data"] = self.strings();
        }
        if bits & 64 != 0 {
            object["spec"]["strategy"] = self.value(3);
        }
        object
    }

    fn strings(&mut self) -> Value {
        let length = self.below(4);
        let pairs = (0..length).map(|_| {
            let key = (*self.one_of(KEYS)).to_owned();
            let value = if self.below(8) == 0 { Value::Null } else { Value::from(self.text()) };
            (key, value)
        });
        Value::Object(pairs.collect())
    }

    fn container(&mut self) -> Value {
        let names = ["a", "b", "c"];
        let mut container = json!({"name": self.one_of(&names)});
        let bits = self.byte();
        if bits & 1 != 0 {
            container["image"] = Value::from(self.text());
        }
        if bits & 2 != 0 {
            let length = self.below(4);
            let ports = (0..length).map(|_| {
                let mut port = json!({"containerPort": self.below(3)});
                if self.below(2) == 0 {
                    port["protocol"] = json!(self.one_of(&["TCP", "UDP"]));
                }
                port
            });
            container["ports"] = ports.collect();
        }
        if bits & 4 != 0 {
            let length = self.below(4);
            let env = (0..length).map(|_| json!({"name": self.one_of(&names), "value": self.one_of(TEXTS)}));
            container["env"] = env.collect();
        }
        if bits & 8 != 0 {
            container["args"] = self.value(2);
        }
        if bits & 48 == 48 {
            container = self.value(3);
        }
        container
    }

    /// Puts directives of strategic merge somewhere into a patch.
    pub(super) fn directives(&mut self, patch: &mut Value) {
        for pointer in ["", "/spec", "/metadata", "/spec/template/spec", "/spec/template/spec/containers/0"] {
            let Some(map) = patch.pointer_mut(pointer).and_then(Value::as_object_mut) else { continue };
            match self.below(10) {
                0 => {
                    drop(map.insert(
                        "$patch".to_owned(),
                        json!(self.one_of(&["delete", "replace", "merge", "odd"])),
                    ))
                }
                1 => drop(map.insert("$retainKeys".to_owned(), self.value(2))),
                2 => drop(map.insert("$setElementOrder/containers".to_owned(), self.value(3))),
                3 => {
                    let list = json!([self.one_of(TEXTS), self.one_of(TEXTS)]);
                    map.insert("$deleteFromPrimitiveList/finalizers".to_owned(), list);
                }
                _ => {}
            }
        }
    }

    /// Something like `fieldsV1`.
    pub(super) fn fields(&mut self, depth: usize) -> Value {
        let mut map = Map::new();
        let length = self.below(4);
        for _ in 0..length {
            let key = match self.below(6) {
                0 => ".".to_owned(),
                1 => format!("v:{}", self.leaf()),
                2 => format!("i:{}", self.below(200)),
                3 => format!("k:{}", json!({"name": self.leaf(), "port": self.leaf()})),
                _ => format!("f:{}", self.text()),
            };
            let below = if depth > 0 { self.fields(depth - 1) } else { json!({}) };
            map.insert(key, below);
        }
        map.into()
    }

    /// Something like a selector.
    pub(super) fn selector(&mut self) -> String {
        let length = self.below(12);
        let parts = [
            "a",
            "b",
            "app.kubernetes.io/name",
            "=",
            "==",
            "!=",
            "!",
            " in ",
            " notin ",
            "(",
            ")",
            ",",
            " ",
            ">",
            "<",
            "1",
            "x",
            "in",
            "\\",
            "\\,",
        ];
        (0..length).map(|_| *self.one_of(&parts)).collect()
    }

    /// Something like a structural schema.
    pub(super) fn schema(&mut self, depth: usize) -> Value {
        let types = ["object", "object", "array", "string", "integer", "number", "boolean"];
        let ty = if depth == 0 { "string" } else { *self.one_of(&types) };
        let mut schema = json!({"type": ty});
        match ty {
            "object" => {
                let length = self.below(4);
                for _ in 0..length {
                    let key = *self.one_of(KEYS);
                    schema["properties"][key] = self.schema(depth - 1);
                }
                match self.below(8) {
                    0 => schema["x-kubernetes-preserve-unknown-fields"] = json!(true),
                    1 if length == 0 => schema["additionalProperties"] = self.schema(depth - 1),
                    2 => schema["x-kubernetes-map-type"] = json!("atomic"),
                    3 => schema["required"] = json!([self.one_of(KEYS)]),
                    _ => {}
                }
            }
            "array" => {
                schema["items"] = self.schema(depth - 1);
                match self.below(4) {
                    0 => schema["x-kubernetes-list-type"] = json!("set"),
                    1 => {
                        schema["x-kubernetes-list-type"] = json!("map");
                        schema["x-kubernetes-list-map-keys"] = json!([self.one_of(KEYS)]);
                    }
                    _ => {}
                }
            }
            "string" => match self.below(8) {
                0 => schema["format"] = json!(self.one_of(&["date-time", "byte", "ipv4", "duration", "odd"])),
                1 => schema["pattern"] = Value::from(self.text()),
                2 => schema["enum"] = json!([self.one_of(TEXTS), self.one_of(TEXTS)]),
                3 => schema["maxLength"] = json!(self.below(4)),
                _ => {}
            },
            _ => {
                if self.below(4) == 0 {
                    schema["minimum"] = self.leaf();
                }
            }
        }
        match self.below(10) {
            0 => schema["default"] = self.value(depth),
            1 => schema["nullable"] = json!(true),
            2 => schema = json!({"x-kubernetes-int-or-string": true}),
            3 => schema["anyOf"] = json!([{"required": [self.one_of(KEYS)]}]),
            _ => {}
        }
        schema
    }

    /// Something like a column of a table.
    pub(super) fn column(&mut self) -> Value {
        let types = ["string", "integer", "number", "boolean", "date"];
        let paths =
            [".metadata.name", ".spec.a", ".spec.b[0].c", ".spec.b[*]", ".data['a']", ".metadata.labels"];
        json!({"name": format!("C{}", self.below(4)), "type": self.one_of(&types), "jsonPath": self.one_of(&paths)})
    }

    /// Something like a rule in CEL.
    pub(super) fn rule(&mut self) -> String {
        let parts = [
            "self",
            "oldSelf",
            ".a",
            ".b",
            ".spec",
            ".?a",
            "[0]",
            "['a']",
            "[",
            "]",
            "(",
            ")",
            " + ",
            " - ",
            " * ",
            " % ",
            " == ",
            " != ",
            " < ",
            " in ",
            " && ",
            " || ",
            "!",
            " ? ",
            " : ",
            ", ",
            "x",
            "1",
            "-9223372036854775808",
            "18446744073709551615u",
            "1.5",
            "'a'",
            "'(a+)+$'",
            "b'\\xff'",
            "true",
            "null",
            "{'a': 1}",
            "[1, 2]",
            "size(self)",
            ".size()",
            ".all(x, x == x)",
            ".exists(x, true)",
            ".map(x, [x, x])",
            ".filter(x, x == 1)",
            ".exists_one(x, x > 0)",
            ".matches('(a|b)*c')",
            ".replace('a', 'aaaa')",
            ".split('')",
            ".join(',')",
            ".lowerAscii()",
            ".substring(1)",
            ".sort()",
            ".sum()",
            ".isSorted()",
            ".contains('a')",
            ".format([1])",
            "string(self)",
            "int('1')",
            "duration('1h')",
            "timestamp('2026-01-01T00:00:00Z')",
            "quantity('1Ki')",
            "ip('::1')",
            "cidr('10.0.0.0/8')",
            "url('https://a/b')",
            "semver('1.2.3')",
            "has(self.a)",
            "type(self)",
            "dyn(self)",
            "optional.of(self)",
            "lists.range(4)",
            "sets.contains([1], [1])",
        ];
        let length = self.below(24);
        (0..length).map(|_| *self.one_of(&parts)).collect()
    }
}
