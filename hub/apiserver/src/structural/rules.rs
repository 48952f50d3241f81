//! `x-kubernetes-validations`: the CEL rules of a schema, compiled, and what they say of an object.
//!
//! What a rule may cost is bounded three times, as kube-apiserver has it: a definition is refused when the worst case is too
//! much ([`structural`](super)), a call ends when it has used up its own limit, and all calls for one object share a budget.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use karmada_cel::{Decl, EvalError, Outcome, Program, Scope, Shape, Wanted, escape};
use karmada_meta::path::{FieldError, Path};
use serde_json::{Map, Value};

use super::validate::{Counterparts, MOST_ERRORS};

/// What one call may cost.
const CALL_LIMIT: u64 = 1_000_000;
/// What all calls for one object may cost together.
const BUDGET: u64 = 10_000_000;
/// The longest message an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;
/// Rules whose worst case is below this are run where they are: it takes less than handing them to a thread.
const CHEAP: u64 = 10_000;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// One rule.
#[derive(Debug)]
struct Rule {
    program: Result<Program, String>,
    source: String,
    message: String,
    expression: Option<Program>,
    reason: Option<String>,
    field: Option<Path>,
    optional_old: bool,
}

/// The rules of a schema's node and of what is below it.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Objects and lists are not repeated in messages.
    shows_value: bool,
    /// Map keys: entries of an old list that stands for the same thing.
    keys: Option<Vec<String>>,
    /// The value is replaced as a whole, so nothing in it has an old counterpart.
    atomic: bool,
    items: Option<Box<Self>>,
    additional: Option<Box<Self>>,
    properties: BTreeMap<String, Self>,
    all_of: Vec<Self>,
    /// The worst case, of everything in it.
    cost: u64,
}

/// What rules say.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What is wrong.
    pub errors: Vec<FieldError>,
    /// What is wrong, but was so before.
    pub warnings: Vec<String>,
}

/// The list of rules in a schema's node.
pub(super) fn list_of(schema: &Value) -> &[Value] {
    schema.get("x-kubernetes-validations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What rules of a node see.
pub(super) fn scope_of(decl: &Arc<Decl>, rule: &Value) -> Scope {
    Scope::new(decl.clone(), rule.get("optionalOldSelf") == Some(&Value::Bool(true)))
}

/// A text of a rule.
pub(super) fn text<'a>(rule: &'a Value, field: &str) -> &'a str {
    rule.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The declaration of a schema below `decl`, if CEL sees it at all.
pub(super) fn decl_below(decl: Option<&Arc<Decl>>, name: &str, schema: &Value) -> Option<Arc<Decl>> {
    match escape(name) {
        Some(name) => decl?.fields()?.get(&name).map(|field| field.decl.clone()),
        None => Decl::of(schema, is_embedded(schema)),
    }
}

fn is_embedded(schema: &Value) -> bool {
    schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true))
}

impl Rules {
    /// The rules of a version's schema; `None` if it has none.
    pub fn compile(schema: &Value) -> Option<Self> {
        if !has_rules(schema) {
            return None;
        }
        Self::node(schema, schema, Decl::of(schema, true).as_ref(), Some(1))
    }

    /// `schema` has the rules, `shape` is what they are about (the same, but within `allOf`); `times`: how often it may
    /// stand in an object.
    fn node(schema: &Value, shape: &Value, decl: Option<&Arc<Decl>>, times: Option<u64>) -> Option<Self> {
        let mut cost = 0_u64;
        let mut rules = Vec::new();
        if let Some(decl) = decl {
            for rule in list_of(schema).iter().filter(|rule| !text(rule, "rule").trim().is_empty()) {
                let rule = Rule::compile(rule, decl, shape);
                let worst = rule.program.as_ref().map_or(0, |p| p.max_cost);
                let times = times.unwrap_or_else(|| decl.cardinality());
                cost = cost.saturating_add(worst.saturating_mul(times));
                rules.push(rule);
            }
        }
        let below = |keyword: &str, schema: &Value, limit: &str| {
            let inner = schema.get(keyword).filter(|v| v.is_object())?;
            let decl = decl.and_then(|decl| decl.element());
            let most = shape.get(limit).and_then(Value::as_u64);
            let shape = shape.get(keyword).unwrap_or(inner);
            let times = times.zip(most).map(|(times, most)| times.saturating_mul(most));
            Self::node(inner, shape, decl, times).map(Box::new)
        };
        let items = below("items", schema, "maxItems");
        let additional = below("additionalProperties", schema, "maxProperties");
        let mut properties = BTreeMap::new();
        for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let Some(shape) = shape.get("properties").and_then(|p| p.get(name)) else { continue };
            let Some(decl) = decl_below(decl, name, shape) else { continue };
            if let Some(rules) = Self::node(inner, shape, Some(&decl), times) {
                properties.insert(name.clone(), rules);
            }
        }
        let all_of = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
        let all_of: Vec<Self> = all_of.filter_map(|inner| Self::node(inner, shape, decl, times)).collect();
        if rules.is_empty()
            && items.is_none()
            && additional.is_none()
            && properties.is_empty()
            && all_of.is_empty()
        {
            return None;
        }
        let inner = items.iter().chain(&additional).map(|b| &**b).chain(properties.values()).chain(&all_of);
        let cost = inner.fold(cost, |sum, rules| sum.saturating_add(rules.cost));
        let keys = shape.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        let keys = keys.filter(|_| text(shape, "x-kubernetes-list-type") == "map");
        let keys = keys.map(|keys| keys.iter().filter_map(|k| k.as_str().map(str::to_owned)).collect());
        let atomic = text(shape, "x-kubernetes-map-type") == "atomic";
        let shows_value =
            decl.is_none_or(|d| !matches!(d.shape, Shape::List(..) | Shape::Map(_) | Shape::Object(_)));
        Some(Self { rules, shows_value, keys, atomic, items, additional, properties, all_of, cost })
    }

    /// As [`Rules::compile`], of a value that stands anywhere.
    pub(super) fn of_value(schema: &Value) -> Option<Self> {
        let decl = has_rules(schema).then(|| Decl::of(schema, is_embedded(schema)))?;
        Self::node(schema, schema, decl.as_ref(), Some(1))
    }

    /// Whether judging may take long enough to be done elsewhere.
    pub fn is_costly(&self) -> bool {
        self.cost > CHEAP
    }

    /// Judges an object; `old` is what stood there before.
    pub fn judge(&self, object: &Value, old: Option<&Value>) -> Verdict {
        self.judge_at(object, old, &Path::root())
    }

    /// As [`Rules::judge`], of a value that stands at `path`.
    pub(super) fn judge_at(&self, object: &Value, old: Option<&Value>, path: &Path) -> Verdict {
        let mut judge = Judge { verdict: Verdict::default(), budget: BUDGET, equal: HashMap::new() };
        let seen = Seen { current: old.map(|old| (object, old)), parent: None };
        // What is left undone has been said.
        let _: Result<(), Spent> = judge.node(self, object, old, path, seen);
        judge.verdict
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| match key.as_str() {
            "x-kubernetes-validations" => value.as_array().is_some_and(|list| !list.is_empty()),
            "default" | "enum" | "example" => false,
            _ => has_rules(value),
        }),
        Value::Array(list) => list.iter().any(has_rules),
        _ => false,
    }
}

impl Rule {
    fn compile(rule: &Value, decl: &Arc<Decl>, shape: &Value) -> Self {
        let scope = scope_of(decl, rule);
        let source = text(rule, "rule").to_owned();
        let expression = Some(text(rule, "messageExpression")).filter(|e| !e.trim().is_empty());
        let field = Some(text(rule, "fieldPath")).filter(|path| !path.is_empty());
        Self {
            program: Program::compile(&source, &scope, Wanted::Bool).map_err(|error| error.0),
            source,
            message: text(rule, "message").trim().to_owned(),
            expression: expression.and_then(|e| Program::compile(e, &scope, Wanted::Text).ok()),
            reason: rule.get("reason").and_then(Value::as_str).map(str::to_owned),
            field: field.and_then(|path| field_path(path, shape).ok()).map(|(path, _)| path),
            optional_old: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
        }
    }

    /// How messages name the rule.
    fn name(&self) -> &str {
        if self.message.is_empty() { self.source.trim() } else { &self.message }
    }
}

/// The rest is left undone.
struct Spent;

/// A value and its old counterpart, and the nearest such pair above it.
#[derive(Clone, Copy)]
struct Seen<'a> {
    current: Option<(&'a Value, &'a Value)>,
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> Seen<'a> {
    fn below(self, new: &'a Value, old: Option<&'a Value>) -> Self {
        match self.current {
            None => self,
            Some(_) => Seen { current: old.map(|old| (new, old)), parent: self.current },
        }
    }
}

struct Judge {
    verdict: Verdict,
    budget: u64,
    /// Which pairs of values, by where they are, were found equal or not: many elements may have the same parents.
    equal: HashMap<(*const Value, *const Value), bool>,
}

impl Judge {
    /// Nothing changed here, so what is wrong was wrong before.
    fn unchanged(&mut self, seen: &Seen<'_>) -> bool {
        let Some((new, old)) = seen.current.or(seen.parent) else { return false };
        *self.equal.entry((std::ptr::from_ref(new), std::ptr::from_ref(old))).or_insert_with(|| new == old)
    }

    fn node<'a>(
        &mut self,
        rules: &Rules,
        value: &'a Value,
        old: Option<&'a Value>,
        path: &Path,
        seen: Seen<'a>,
    ) -> Result<(), Spent> {
        if value.is_null() {
            return Ok(());
        }
        self.own(rules, value, old.filter(|old| !old.is_null()), path, seen)?;
        for inner in &rules.all_of {
            self.node(inner, value, old, path, Seen { current: None, parent: seen.parent })?;
        }
        match value {
            Value::Array(list) => {
                let Some(inner) = &rules.items else { return Ok(()) };
                let before = rules.keys.as_ref().zip(old.and_then(Value::as_array));
                let before = before.map(|(keys, before)| Counterparts::of(before, keys));
                for (index, item) in list.iter().enumerate() {
                    let old = before.as_ref().and_then(|before| before.get(item));
                    self.node(inner, item, old, &path.index(index), seen.below(item, old))?;
                }
            }
            Value::Object(map) => {
                let before = old.and_then(Value::as_object).filter(|_| !rules.atomic);
                for (key, value) in sorted(map) {
                    let old = before.and_then(|before| before.get(key));
                    let seen = seen.below(value, old);
                    match (rules.properties.get(key), &rules.additional) {
                        (Some(inner), _) => self.node(inner, value, old, &path.child(key), seen)?,
                        (None, Some(inner)) => self.node(inner, value, old, &path.key(key), seen)?,
                        (None, None) => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn own(
        &mut self,
        rules: &Rules,
        value: &Value,
        old: Option<&Value>,
        path: &Path,
        seen: Seen<'_>,
    ) -> Result<(), Spent> {
        let shown = || rules.shows_value.then(|| value.clone());
        for rule in &rules.rules {
            if self.verdict.errors.len() + self.verdict.warnings.len() >= MOST_ERRORS {
                return Err(Spent);
            }
            if self.budget == 0 {
                return self.give_up(error(path, shown(), OUT_OF_BUDGET));
            }
            let program = match &rule.program {
                Ok(program) => program,
                Err(why) => {
                    self.verdict.errors.push(error(path, shown(), &format!("rule compile error: {why}")));
                    continue;
                }
            };
            if program.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            let Outcome { value: holds, cost } = program.holds(value, old, CALL_LIMIT);
            if cost > self.budget {
                return self.give_up(error(path, shown(), OUT_OF_BUDGET));
            }
            self.budget -= cost;
            match holds {
                Ok(true) => continue,
                Ok(false) => {}
                Err(EvalError::TooExpensive) => {
                    let detail = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                         call cost exceeds limit for rule: {}",
                        rule.name()
                    );
                    return self.give_up(error(path, shown(), &detail));
                }
                Err(EvalError::Failed(why)) => {
                    let detail = if why.starts_with("no such overload") {
                        format!(
                            "'{why}': call arguments did not match a supported operator, function or macro signature for \
                             rule: {}",
                            rule.name()
                        )
                    } else {
                        format!("{why} evaluating rule: {}", rule.name())
                    };
                    self.verdict.errors.push(error(path, shown(), &detail));
                    continue;
                }
            }
            let at = match &rule.field {
                Some(field) if path.is_root() => field.clone(),
                Some(field) => path.child(&field.to_string()),
                None => path.clone(),
            };
            let ratchets = !program.uses_old && self.unchanged(&seen);
            let detail = match self.message(rule, value, old) {
                Ok(detail) => detail,
                Err(detail) => {
                    self.say(error(&at, shown(), &detail), ratchets);
                    return Err(Spent);
                }
            };
            let found = match rule.reason.as_deref() {
                Some("FieldValueForbidden") => FieldError::forbidden(&at, detail),
                Some("FieldValueRequired") => FieldError::required(&at, detail),
                Some("FieldValueDuplicate") => {
                    FieldError { value: shown(), ..FieldError::duplicate(&at, Value::Null) }
                }
                _ => error(&at, shown(), &detail),
            };
            self.say(found, ratchets);
        }
        Ok(())
    }

    /// The words for a rule that does not hold.
    ///
    /// # Errors
    /// Making them costs too much.
    fn message(&mut self, rule: &Rule, value: &Value, old: Option<&Value>) -> Result<String, String> {
        let plain = || match rule.message.as_str() {
            "" => format!("failed rule: {}", rule.source.trim()),
            message => message.to_owned(),
        };
        let Some(program) = &rule.expression else { return Ok(plain()) };
        let Outcome { value: made, cost } = program.text(value, old, CALL_LIMIT);
        if cost > self.budget {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation \
                        rules will be run"
                .to_owned());
        }
        self.budget -= cost;
        match made {
            Err(EvalError::TooExpensive) => Err(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression".to_owned(),
            ),
            Err(EvalError::Failed(_)) => Ok(plain()),
            Ok(text) => {
                let text = text.trim();
                let usable = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
                Ok(if usable { text.to_owned() } else { plain() })
            }
        }
    }

    fn say(&mut self, found: FieldError, ratchets: bool) {
        if ratchets {
            self.verdict.warnings.push(found.to_string());
        } else {
            self.verdict.errors.push(found);
        }
    }

    fn give_up(&mut self, found: FieldError) -> Result<(), Spent> {
        self.verdict.errors.push(found);
        Err(Spent)
    }
}

/// An error with or without the value; one of the whole object has no path.
fn error(path: &Path, value: Option<Value>, detail: &str) -> FieldError {
    let path = if path.is_root() { Path::new("<nil>") } else { path.clone() };
    FieldError { value, ..FieldError::invalid(&path, Value::Null, detail) }
}

fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut all: Vec<_> = map.iter().collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    all
}

/// Where a path such as `.spec.name` or `.spec['a.b']` leads, and the schema there.
///
/// # Errors
/// Why it leads nowhere.
pub(crate) fn field_path<'s>(text: &str, schema: &'s Value) -> Result<(Path, &'s Value), String> {
    let (mut rest, mut schema, mut path) = (text, schema, Path::root());
    while !rest.is_empty() {
        let name: String;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            if end == 0 {
                return Err(match after.chars().next() {
                    None => "unexpected end of JSON path".to_owned(),
                    Some(_) => "does not refer to a valid field".to_owned(),
                });
            }
            name = after[..end].to_owned();
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let quoted = after.strip_prefix('\'').ok_or_else(|| {
                let end = after.find(['.', '[', ']']).unwrap_or(after.len());
                match &after[..end] {
                    "" => "unexpected end of JSON path".to_owned(),
                    found => format!("expected single quoted string but got {found}"),
                }
            })?;
            let mut unescaped = String::new();
            let mut chars = quoted.char_indices();
            let end = loop {
                match chars.next() {
                    None => return Err("unexpected end of JSON path".to_owned()),
                    Some((at, '\'')) => break at + 1,
                    Some((_, '\\')) => match chars.next() {
                        Some((_, c @ ('\'' | '\\'))) => unescaped.push(c),
                        Some((_, 'n')) => unescaped.push('\n'),
                        Some((_, 't')) => unescaped.push('\t'),
                        Some((_, c)) => {
                            return Err(format!("invalid string literal: invalid escape char \\{c}"));
                        }
                        None => return Err("unexpected end of JSON path".to_owned()),
                    },
                    Some((_, c)) => unescaped.push(c),
                }
            };
            rest = quoted[end..].strip_prefix(']').ok_or_else(|| match quoted[end..].chars().next() {
                None => "unexpected end of JSON path".to_owned(),
                Some(c) => format!("expected ] but got {c}"),
            })?;
            name = unescaped;
        } else {
            let end = rest.find(['.', '[', ']']).filter(|end| *end > 0).unwrap_or(rest.len());
            return Err(format!("expected [ or . but got: {}", &rest[..end]));
        }
        let wrong = || "does not refer to a valid field".to_owned();
        if schema.get("properties").is_some_and(Value::is_object) {
            schema = schema["properties"].get(&name).ok_or_else(wrong)?;
            path = path.child(&name);
        } else {
            schema = schema.get("additionalProperties").filter(|v| v.is_object()).ok_or_else(wrong)?;
            path = path.key(&name);
        }
    }
    Ok((path, schema))
}

#[cfg(test)]
mod tests;
