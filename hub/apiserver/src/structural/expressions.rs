//! Which CEL rules a definition may have: they compile, mean something where they stand, and cannot cost too much.

use std::sync::Arc;

use karmada_cel::{Decl, Program, Wanted};
use karmada_meta::path::{FieldError, Path};
use serde_json::{Value, json};

use super::rules::{decl_below, field_path, list_of, scope_of, text};

/// What one rule may cost, however large objects get.
const RULE_LIMIT: u64 = 10_000_000;
/// What all rules of a schema may cost together.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// How many rules are named when all of them together cost too much.
const NAMED: usize = 4;
const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What is wrong with the rules of a schema, which stands at `path` and is otherwise fine.
pub(super) fn check(schema: &Value, path: &Path) -> Vec<FieldError> {
    let mut checker = Checker { errors: Vec::new(), total: 0, costs: Vec::new() };
    let decl = Decl::of(schema, true);
    checker.node(schema, Place { shape: schema, decl: decl.as_ref(), times: Some(1), no_old: None }, path);
    if checker.total > SCHEMA_LIMIT {
        checker.costs.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, path) in checker.costs.iter().take(NAMED) {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            checker.errors.push(FieldError::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        checker.errors.push(FieldError::forbidden(path, too_much(what, checker.total, SCHEMA_LIMIT)));
    }
    checker.errors
}

/// Where rules stand.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The schema that says what the value is; another one than that with the rules within `allOf`.
    shape: &'a Value,
    decl: Option<&'a Arc<Decl>>,
    /// How often the value may stand in an object; unknown below what has no bounds.
    times: Option<u64>,
    /// From here on there is no telling which old value a new one comes from.
    no_old: Option<&'a Path>,
}

struct Checker {
    errors: Vec<FieldError>,
    total: u64,
    costs: Vec<(u64, Path)>,
}

#[allow(clippy::cast_precision_loss, reason = "a factor for people")]
fn too_much(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

impl Checker {
    /// What is below comes first.
    fn node(&mut self, schema: &Value, place: Place<'_>, path: &Path) {
        let bound = |field: &str| {
            let most = place.shape.get(field).and_then(Value::as_u64)?;
            Some(place.times?.saturating_mul(most))
        };
        let uncorrelated = |atomic: bool| place.no_old.or_else(|| Some(path).filter(|_| atomic));
        let atomic = uncorrelated(text(place.shape, "x-kubernetes-map-type") == "atomic");
        if let Some(inner) = schema.get("additionalProperties").filter(|v| v.is_object()) {
            let shape = place.shape.get("additionalProperties").unwrap_or(inner);
            let decl = place.decl.and_then(|decl| decl.element());
            let below = Place { shape, decl, times: bound("maxProperties"), no_old: atomic };
            self.node(inner, below, &path.child("additionalProperties"));
        }
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let mut properties: Vec<_> = properties.collect();
        properties.sort_unstable_by_key(|(name, _)| *name);
        for (name, inner) in properties {
            let Some(shape) = place.shape.get("properties").and_then(|p| p.get(name)) else { continue };
            let decl = decl_below(place.decl, name, shape);
            let below = Place { shape, decl: decl.as_ref(), times: place.times, no_old: atomic };
            self.node(inner, below, &path.child("properties").key(name));
        }
        for (index, inner) in schema.get("allOf").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            self.node(inner, place, &path.child("allOf").index(index));
        }
        if let Some(inner) = schema.get("items").filter(|v| v.is_object()) {
            let shape = place.shape.get("items").unwrap_or(inner);
            let decl = place.decl.and_then(|decl| decl.element());
            let no_old = uncorrelated(text(place.shape, "x-kubernetes-list-type") != "map");
            let below = Place { shape, decl, times: bound("maxItems"), no_old };
            self.node(inner, below, &path.child("items"));
        }
        self.own(schema, place, path);
    }

    fn own(&mut self, schema: &Value, place: Place<'_>, path: &Path) {
        let rules = list_of(schema);
        if rules.is_empty() {
            return;
        }
        let path = path.child("x-kubernetes-validations");
        let before = self.errors.len();
        for (index, rule) in rules.iter().enumerate() {
            self.words(rule, place, &path.index(index));
        }
        if self.errors.len() > before {
            return;
        }
        let Some(decl) = place.decl else {
            let detail = format!(
                "rule declared on schema that does not support validation rules type: '{}' x-kubernetes-preserve-unknown-fields: \
                 '{}'",
                text(place.shape, "type"),
                place.shape.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)),
            );
            self.errors.push(FieldError::internal(&path, detail));
            return;
        };
        for (index, rule) in rules.iter().enumerate() {
            self.rule(rule, decl, place, &path.index(index));
        }
    }

    /// What is said beside the expressions.
    fn words(&mut self, rule: &Value, place: Place<'_>, path: &Path) {
        let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
        let at = path.child("message");
        if source.is_empty() {
            self.errors.push(FieldError::required(&path.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            self.errors.push(FieldError::invalid(&at, message, "message must be non-empty if specified"));
        } else if message.trim().contains('\n') {
            self.errors.push(FieldError::invalid(&at, message, "message must not contain line breaks"));
        } else if source.contains('\n') && message.trim().is_empty() {
            self.errors
                .push(FieldError::required(&at, "message must be specified if rule contains line breaks"));
        }
        let expression = text(rule, "messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.errors.push(FieldError::required(&path.child("messageExpression"), detail));
        }
        if let Some(reason) = rule.get("reason").and_then(Value::as_str)
            && !REASONS.contains(&reason)
        {
            self.errors.push(FieldError::not_supported(&path.child("reason"), reason, REASONS));
        }
        let field = text(rule, "fieldPath");
        let at = path.child("fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            self.errors.push(FieldError::invalid(&at, field, "fieldPath must be non-empty if specified"));
        } else if field.contains('\n') {
            self.errors.push(FieldError::invalid(&at, field, "fieldPath must not contain line breaks"));
        } else if !field.is_empty()
            && let Err(error) = field_path(field, place.shape)
        {
            let detail = format!("fieldPath must be a valid path: {error}");
            self.errors.push(FieldError::invalid(&at, field, detail));
        }
    }

    fn rule(&mut self, rule: &Value, decl: &Arc<Decl>, place: Place<'_>, path: &Path) {
        let scope = scope_of(decl, rule);
        let at = path.child("rule");
        let times = place.times.unwrap_or_else(|| decl.cardinality());
        let shown = || {
            json!({
                "Rule": text(rule, "rule"), "Message": text(rule, "message"),
                "MessageExpression": text(rule, "messageExpression"), "Reason": rule.get("reason"),
                "FieldPath": text(rule, "fieldPath"), "OptionalOldSelf": rule.get("optionalOldSelf"),
            })
        };
        match Program::compile(text(rule, "rule"), &scope, Wanted::Bool) {
            Err(error) => self.errors.push(FieldError::invalid(&at, shown(), error.0)),
            Ok(program) => {
                self.price(program.max_cost.saturating_mul(times), "estimated rule cost", &at);
                let optional = rule.get("optionalOldSelf").filter(|v| !v.is_null());
                if let Some(path) = place.no_old.filter(|_| program.uses_old) {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
                    );
                    self.errors.push(FieldError::invalid(&at, text(rule, "rule"), detail));
                } else if let Some(optional) = optional.filter(|_| !program.uses_old) {
                    let detail = "may not be set if oldSelf is not used in rule";
                    self.errors.push(FieldError::invalid(
                        &path.child("optionalOldSelf"),
                        optional.clone(),
                        detail,
                    ));
                }
            }
        }
        let expression = text(rule, "messageExpression");
        if expression.is_empty() {
            return;
        }
        let at = path.child("messageExpression");
        match Program::compile(expression, &scope, Wanted::Text) {
            Err(error) => self.errors.push(FieldError::invalid(&at, shown(), error.0)),
            Ok(program) => {
                self.price(program.max_cost.saturating_mul(times), "estimated messageExpression cost", &at);
            }
        }
    }

    fn price(&mut self, cost: u64, what: &str, path: &Path) {
        if cost > RULE_LIMIT {
            self.errors.push(FieldError::forbidden(path, too_much(what, cost, RULE_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        self.costs.push((cost, path.clone()));
    }
}
