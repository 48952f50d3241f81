//! Values as Go prints them: message texts and annotations of Kubernetes hold such.

use serde_json::{Map, Value};

/// JSON as Go's encoder writes it: keys sorted, `<`, `>` and `&` escaped.
pub(crate) fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => write_object(map, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::String(text) => write_string(text, out),
        other => out.push_str(&other.to_string()),
    }
}

fn write_object(map: &Map<String, Value>, out: &mut String) {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort();
    out.push('{');
    for (i, key) in keys.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(key, out);
        out.push(':');
        write_json(&map[key], out);
    }
    out.push('}');
}

fn write_string(text: &str, out: &mut String) {
    for c in Value::from(text).to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
}

/// A value as `%v` prints it: `map[a:1 b:[x y]]`.
pub fn print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => print_map(map),
        other => other.to_string(),
    }
}

/// A map as `%v` prints it, sorted by key.
pub(crate) fn print_map(map: &Map<String, Value>) -> String {
    let mut fields: Vec<(&String, &Value)> = map.iter().collect();
    fields.sort_by_key(|f| f.0);
    let fields: Vec<String> = fields.into_iter().map(|(k, v)| format!("{k}:{}", print(v))).collect();
    format!("map[{}]", fields.join(" "))
}

/// The reflect.Kind of what Go decodes a JSON value to.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}
