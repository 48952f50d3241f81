//! Judges custom resources by their schema, in the words of kube-apiserver.
//!
//! What is said twice there is said twice here (a number that is no integer gets two errors), since clients and people
//! read these messages. On an update a value that did not change is let pass ("ratcheting"), so that a stricter schema
//! does not lock up objects that were fine before it.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use karmada_meta::{
    effort::{self, Counted},
    path::{FieldError, Path},
};
use serde_json::{Map, Number, Value};

use super::{
    format::Format,
    schema::{Additional, Checks, JsonType, ListType, Schema},
};

/// Where a value is, as a chain of stack frames; rendered only for an error.
#[derive(Clone, Copy)]
struct At<'a> {
    parent: Option<&'a Self>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    /// What everything below is named after; may be empty.
    Root(&'a str),
    Field(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    /// The value itself, under a name that may be empty.
    fn root(name: &'a str) -> Self {
        Self { parent: None, step: Step::Root(name) }
    }

    fn field(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Field(name) }
    }

    fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, self.parent) {
            (Step::Root(name), _) => f.write_str(name),
            (Step::Field(name), Some(parent)) => match parent.to_string().as_str() {
                "" => f.write_str(name),
                above => write!(f, "{above}.{name}"),
            },
            (Step::Field(name), None) => f.write_str(name),
            (Step::Index(index), parent) => {
                if let Some(parent) = parent {
                    parent.fmt(f)?;
                }
                write!(f, "[{index}]")
            }
        }
    }
}

/// After so many errors of one object the rest of it is not looked at: they would not be told.
pub(super) const MOST_ERRORS: usize = 2_000;
/// The same in bytes of their paths and details; what they show of the object is besides that.
const MOST_BYTES: usize = 1 << 20;

/// What is wrong with `value`. Errors stand at `prefix` and below; `old` is what stood there before, if anything did.
pub fn validate(value: &Value, old: Option<&Value>, schema: &Schema, prefix: &Path) -> Vec<FieldError> {
    let mut judge = Judge::new(prefix);
    judge.value(value, old, schema, &At::root(""));
    judge.errors
}

struct Judge<'p> {
    prefix: &'p Path,
    errors: Vec<FieldError>,
    /// Of their paths and details.
    bytes: usize,
}

impl<'p> Judge<'p> {
    fn new(prefix: &'p Path) -> Self {
        Self { prefix, errors: Vec::new(), bytes: 0 }
    }

    fn path(&mut self, at: &At<'_>) -> Path {
        let text = at.to_string();
        self.bytes += text.len();
        if text.is_empty() { self.prefix.clone() } else { self.prefix.child(&text) }
    }

    fn invalid(&mut self, at: &At<'_>, value: &Value, detail: impl fmt::Display) {
        let path = self.path(at);
        let detail = format!("{at} in body {detail}");
        self.bytes += detail.len();
        self.errors.push(FieldError::invalid(&path, value.clone(), detail));
    }

    /// An error that kube-apiserver gives no field.
    fn nowhere(&mut self, detail: String) {
        self.bytes += detail.len();
        self.errors.push(FieldError::invalid(&Path::new("<nil>"), "", detail));
    }

    /// Whether what else is wrong would not be told.
    fn is_full(&self) -> bool {
        self.errors.len() >= MOST_ERRORS || self.bytes >= MOST_BYTES
    }

    fn value(&mut self, value: &Value, old: Option<&Value>, schema: &Schema, at: &At<'_>) {
        effort::spend(1);
        if self.is_full() || old == Some(value) || (value.is_null() && schema.nullable) {
            return;
        }
        if !self.fits_type(value, schema, at) {
            return;
        }
        self.logic(value, &schema.checks, at);
        match value {
            Value::String(text) => self.string(text, value, &schema.checks, at),
            Value::Number(number) => self.number(number, value, schema, at),
            Value::Array(items) => self.array(items, value, old, schema, at),
            _ => {}
        }
        self.one_of_values(value, &schema.checks, at);
        if let Value::Object(map) = value {
            self.object(map, value, old, schema, at);
        }
    }

    fn fits_type(&mut self, value: &Value, schema: &Schema, at: &At<'_>) -> bool {
        let found = type_name(value);
        if schema.int_or_string {
            if matches!(found, "integer" | "string") {
                return true;
            }
            let detail = format!("{at} in body must be of type integer,string: \"{found}\"");
            let path = self.path(at);
            self.errors.push(FieldError::type_invalid(&path, found, detail));
            return false;
        }
        let Some(wanted) = schema.json_type else { return true };
        let fits = match wanted {
            JsonType::Number => matches!(found, "integer" | "number"),
            wanted => wanted.as_str() == found,
        };
        if !fits {
            let detail = format!("{at} in body must be of type {}: \"{found}\"", wanted.as_str());
            let path = self.path(at);
            self.errors.push(FieldError::type_invalid(&path, found, detail));
            if wanted == JsonType::Integer && found == "number" {
                self.nowhere(format!("Checked value must be of type integer (default format) in {at}"));
            }
        }
        fits
    }

    fn logic(&mut self, value: &Value, checks: &Checks, at: &At<'_>) {
        if !checks.any_of.is_empty() {
            let attempts = self.attempts(value, &checks.any_of, at);
            if attempts.iter().all(|errors| !errors.is_empty()) {
                self.nowhere(format!("\"{at}\" must validate at least one schema (anyOf)"));
                self.errors.extend(attempts.into_iter().next().unwrap_or_default());
            }
        }
        if !checks.exactly_one_of.is_empty() {
            let attempts = self.attempts(value, &checks.exactly_one_of, at);
            let valid = attempts.iter().filter(|errors| errors.is_empty()).count();
            let found = match valid {
                0 => "none valid".to_owned(),
                n => format!("{n} valid alternatives"),
            };
            if valid != 1 {
                self.nowhere(format!(
                    "\"{at}\" must validate one and only one schema (oneOf). Found {found}"
                ));
            }
            if valid == 0 {
                self.errors.extend(attempts.into_iter().next().unwrap_or_default());
            }
        }
        if !checks.all_of.is_empty() {
            let errors: Vec<FieldError> =
                self.attempts(value, &checks.all_of, at).into_iter().flatten().collect();
            if !errors.is_empty() {
                self.errors.extend(errors);
                self.nowhere(format!("\"{at}\" must validate all the schemas (allOf)"));
            }
        }
        if let Some(not) = &checks.not
            && self.attempt(value, not, at).is_empty()
        {
            self.nowhere(format!("\"{at}\" must not validate the schema (not)"));
        }
    }

    fn attempts(&self, value: &Value, schemas: &[Schema], at: &At<'_>) -> Vec<Vec<FieldError>> {
        schemas.iter().map(|schema| self.attempt(value, schema, at)).collect()
    }

    fn attempt(&self, value: &Value, schema: &Schema, at: &At<'_>) -> Vec<FieldError> {
        let mut judge = Judge::new(self.prefix);
        judge.value(value, None, schema, at);
        judge.errors
    }

    fn string(&mut self, text: &str, value: &Value, checks: &Checks, at: &At<'_>) {
        let length = text.chars().count() as u64;
        if let Some(max) = checks.max_length.filter(|max| length > *max) {
            let path = self.path(at);
            self.errors.push(FieldError::too_long(&path, usize::try_from(max).unwrap_or(usize::MAX)));
        }
        if let Some(min) = checks.min_length.filter(|min| length < *min) {
            self.invalid(at, value, format_args!("should be at least {min} chars long"));
        }
        if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
            self.invalid(at, value, format_args!("should match '{}'", pattern.source()));
        }
        if let Some(format) = checks.format.filter(|format| !format.accepts(text)) {
            let detail = format!("{at} in body must be of type {}: {value}", format.as_str());
            let path = self.path(at);
            self.errors.push(FieldError::type_invalid(&path, value.clone(), detail));
        }
    }

    fn number(&mut self, number: &Number, value: &Value, schema: &Schema, at: &At<'_>) {
        let checks = &schema.checks;
        let fits = match checks.format {
            Some(Format::Int32) => {
                number.as_i64().is_none_or(|n| i32::try_from(n).is_ok()) && !number.is_u64_only()
            }
            Some(Format::Int64) => !number.is_u64_only(),
            _ => true,
        };
        if !fits {
            let format = checks.format.map_or("", Format::as_str);
            self.nowhere(format!("Checked value must be of type integer with format {format} in {at}"));
        }
        let Some(n) = number.as_f64() else { return };
        if let Some(step) = checks.multiple_of.filter(|step| !is_multiple(n, *step)) {
            self.invalid(at, value, format_args!("should be a multiple of {}", plain(step)));
        }
        match checks.maximum {
            Some((max, false)) if n > max => {
                self.invalid(at, value, format_args!("should be less than or equal to {}", plain(max)));
            }
            Some((max, true)) if n >= max => {
                self.invalid(at, value, format_args!("should be less than {}", plain(max)));
            }
            _ => {}
        }
        match checks.minimum {
            Some((min, false)) if n < min => {
                self.invalid(at, value, format_args!("should be greater than or equal to {}", plain(min)));
            }
            Some((min, true)) if n <= min => {
                self.invalid(at, value, format_args!("should be greater than {}", plain(min)));
            }
            _ => {}
        }
    }

    fn array(&mut self, items: &[Value], value: &Value, old: Option<&Value>, schema: &Schema, at: &At<'_>) {
        if let Some(below) = &schema.items {
            let before = match (&schema.list, old.and_then(Value::as_array)) {
                (ListType::Map(keys), Some(old)) => Some(Counterparts::of(old, keys)),
                _ => None,
            };
            for (index, item) in items.iter().enumerate() {
                let before = before.as_ref().and_then(|before| before.get(item));
                self.value(item, before, below, &at.index(index));
            }
        }
        let count = items.len() as u64;
        if let Some(min) = schema.checks.min_items.filter(|min| count < *min) {
            self.invalid(at, value, format_args!("should have at least {min} items"));
        }
        if let Some(max) = schema.checks.max_items.filter(|max| count > *max) {
            self.too_many(items.len(), max, at);
        }
    }

    fn too_many(&mut self, count: usize, max: u64, at: &At<'_>) {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let path = self.path(at);
        self.errors.push(FieldError::too_many(&path, count, max));
    }

    fn one_of_values(&mut self, value: &Value, checks: &Checks, at: &At<'_>) {
        let allowed = &checks.one_of_values;
        if allowed.is_empty() || allowed.iter().any(|v| same(v, value)) {
            return;
        }
        let texts: Vec<String> = allowed
            .iter()
            .map(|v| match v {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let path = self.path(at);
        self.errors.push(FieldError::not_supported(&path, value.clone(), &texts));
    }

    fn object(
        &mut self,
        map: &Map<String, Value>,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        at: &At<'_>,
    ) {
        let count = map.len() as u64;
        if let Some(min) = schema.checks.min_properties.filter(|min| count < *min) {
            self.invalid(at, value, format_args!("should have at least {min} properties"));
        }
        if let Some(max) = schema.checks.max_properties.filter(|max| count > *max) {
            self.too_many(map.len(), max, at);
        }
        for name in schema.checks.required.iter().filter(|name| !map.contains_key(*name)) {
            if self.is_full() {
                break;
            }
            let path = self.path(&at.field(name));
            self.errors.push(FieldError::required(&path, ""));
        }
        let mut keys: Vec<&String> = map.keys().collect();
        keys.sort_unstable();
        for key in keys {
            let below = match (schema.properties.get(key), &schema.additional) {
                (Some(property), _) => property,
                (None, Some(Additional::Schema(schema))) => schema,
                _ => continue,
            };
            self.value(&map[key], old.and_then(|old| old.get(key)), below, &at.field(key));
        }
    }
}

/// The name of a value's type as errors give it. A number without a fraction is an integer, however it was written.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() || n.is_u64() || n.as_f64().is_some_and(|n| n.fract() == 0.0) => {
            "integer"
        }
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

trait Range {
    fn is_u64_only(&self) -> bool;
}

impl Range for Number {
    /// Too large for 64 bits with a sign.
    fn is_u64_only(&self) -> bool {
        self.is_u64() && !self.is_i64()
    }
}

/// A bound as Go prints it: no fraction where there is none.
fn plain(n: f64) -> String {
    if n.fract() == 0.0 && n.abs() < 1e21 { format!("{n:.0}") } else { n.to_string() }
}

fn is_multiple(n: f64, step: f64) -> bool {
    let quotient = n / step;
    quotient.fract() == 0.0
}

/// Equality that does not tell 1 from 1.0.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

/// The elements of a list by the values of the fields that tell them apart.
pub(super) struct Counterparts<'a> {
    keys: &'a [String],
    first: HashMap<Identity<'a>, &'a Value>,
}

impl<'a> Counterparts<'a> {
    pub(super) fn of(list: &'a [Value], keys: &'a [String]) -> Self {
        let mut first = HashMap::with_capacity(list.len());
        for item in list {
            first.entry(identity(item, keys)).or_insert(item);
        }
        Self { keys, first }
    }

    /// The element that stood for `item` before.
    pub(super) fn get(&self, item: &Value) -> Option<&'a Value> {
        self.first.get(&identity(item, self.keys)).copied()
    }
}

/// What tells an element apart. A key may be missing: then it takes part as missing.
type Identity<'a> = Counted<Vec<Option<&'a Value>>>;

fn identity<'a>(item: &'a Value, keys: &[String]) -> Identity<'a> {
    Counted(keys.iter().map(|key| item.get(key)).collect())
}

/// Elements that stand twice in a set or a map list.
pub fn duplicates(value: &Value, schema: &Schema, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    duplicates_below(value, schema, path, &mut errors);
    errors
}

fn duplicates_below(value: &Value, schema: &Schema, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (schema.properties.get(key), &schema.additional) {
                    (Some(below), _) => duplicates_below(value, below, &path.child(key), errors),
                    (None, Some(Additional::Schema(below))) => {
                        duplicates_below(value, below, &path.key(key), errors);
                    }
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            match &schema.list {
                ListType::Atomic => {}
                ListType::Set => {
                    let mut seen = HashSet::with_capacity(items.len());
                    for (index, item) in
                        items.iter().enumerate().filter(|(_, item)| !seen.insert(Counted(*item)))
                    {
                        errors.push(FieldError::duplicate(&path.index(index), item.clone()));
                    }
                }
                ListType::Map(keys) => {
                    let mut seen = HashSet::with_capacity(items.len());
                    let objects = items.iter().enumerate().filter(|(_, item)| item.is_object());
                    for (index, item) in objects.filter(|(_, item)| !seen.insert(identity(item, keys))) {
                        let pairs = keys.iter().filter_map(|k| Some((k.clone(), item.get(k)?.clone())));
                        errors
                            .push(FieldError::duplicate(&path.index(index), Value::Object(pairs.collect())));
                    }
                }
            }
            if let Some(below) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    duplicates_below(item, below, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
