//! The Common Expression Language as kube-apiserver 1.36 has it for the rules of CustomResourceDefinitions and for the
//! conditions of admission webhooks.
//!
//! ```text
//!   source ─► token ─► parse ─► ast ─► check (types, by the schema) ─► cost (how much at most)
//!                                         │
//!                       object, old ──────┴──► eval, counting what it costs ─► a value, an error, or too expensive
//! ```
//!
//! Why not a crate: of those there are (`cel`, with `kube-cel` on top) none checks types, so a rule with a mistake in it is
//! taken and refuses every object later; none knows what a rule may cost before or while it runs, so a rule can hold a
//! server up; sizes are counted in bytes; and they bring chrono and an ANTLR runtime. What a definition is told here and
//! which rules it may have is what kube-apiserver says.
//!
//! Left out: protobuf messages, the `authorizer` library (not there for definitions either), the `image` functions.

mod ast;
mod check;
mod cost;
mod decl;
mod eval;
mod functions;
mod library;
mod parse;
mod signatures;
mod token;
mod types;
mod value;

use std::{fmt, sync::Arc};

use serde_json::Value as Json;

pub use decl::{Decl, Field, Identity, Shape, escape};

use crate::{
    ast::{Expr, Kind, Literal},
    check::Variable,
    eval::{Run, Stop},
    functions::Regexes,
    token::Issue,
    types::Type,
    value::Val,
};

/// What a rule has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// True or false.
    Bool,
    /// A message.
    Text,
    /// True or false, in the words for conditions of webhooks.
    Condition,
}

/// What rules see: at one place of a schema `self`, and `oldSelf` if there is one, plainly or as an optional; elsewhere
/// variables of any names.
#[derive(Clone, Debug)]
pub struct Scope {
    known: Arc<[Known]>,
}

/// A variable.
#[derive(Debug)]
struct Known {
    name: &'static str,
    decl: Arc<Decl>,
    optional: bool,
}

impl Scope {
    /// The scope of rules on a value.
    pub fn new(decl: Arc<Decl>, optional_old: bool) -> Self {
        let this = Known { name: "self", decl: decl.clone(), optional: false };
        let old = Known { name: "oldSelf", decl, optional: optional_old };
        Self { known: Arc::new([this, old]) }
    }

    /// A scope of these variables.
    pub fn of(variables: impl IntoIterator<Item = (&'static str, Arc<Decl>)>) -> Self {
        let known = variables.into_iter().map(|(name, decl)| Known { name, decl, optional: false });
        Self { known: known.collect() }
    }

    fn variables(&self) -> Vec<Variable> {
        let variable = |known: &Known| {
            let of = Type::of(&known.decl);
            let of = if known.optional { Type::optional(of) } else { of };
            Variable { name: known.name.to_owned(), of, decl: Some(known.decl.clone()) }
        };
        self.known.iter().map(variable).collect()
    }
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError(pub String);

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CompileError {}

/// How an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// The rule has no answer for these values.
    Failed(String),
    /// It costs more than one call may.
    TooExpensive,
}

/// What an evaluation came to, and what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<T> {
    /// The value.
    pub value: Result<T, EvalError>,
    /// The cost, also of what failed.
    pub cost: u64,
}

/// A rule that has been checked.
pub struct Program {
    root: Expr,
    scope: Scope,
    regexes: Regexes,
    /// What it costs at most.
    pub max_cost: u64,
    /// Whether it looks at `oldSelf`, or at the second variable of another scope.
    pub uses_old: bool,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("max_cost", &self.max_cost).finish_non_exhaustive()
    }
}

/// As cel-go shows its issues: each with the line it is in and a pointer.
fn show(source: &str, issues: &[Issue]) -> String {
    let chars: Vec<char> = source.chars().collect();
    let shown = issues.iter().map(|issue| {
        let before = &chars[..issue.at.min(chars.len())];
        let line = before.iter().filter(|c| **c == '\n').count();
        let column = before.iter().rev().take_while(|c| **c != '\n').count();
        let text = source.lines().nth(line).unwrap_or_default();
        format!(
            "ERROR: <input>:{}:{}: {}\n | {text}\n | {}^",
            line + 1,
            column + 1,
            issue.what,
            ".".repeat(column)
        )
    });
    shown.collect::<Vec<_>>().join("\n")
}

impl Program {
    /// Compiles a rule.
    ///
    /// # Errors
    /// What is wrong with it, as kube-apiserver says it.
    pub fn compile(source: &str, scope: &Scope, wanted: Wanted) -> Result<Self, CompileError> {
        let prefix = match wanted {
            Wanted::Bool | Wanted::Condition => "compilation failed: ",
            Wanted::Text => "messageExpression compilation failed: ",
        };
        let failed = |issues: &[Issue]| CompileError(format!("{prefix}{}", show(source, issues)));
        let parsed = parse::parse(source).map_err(|issue| failed(&[issue]))?;
        let variables = scope.variables();
        let checked =
            check::check(&parsed.root, parsed.nodes, &variables).map_err(|issues| failed(&issues))?;
        let mut regexes = Regexes::new();
        let mut issues = Vec::new();
        literals(&parsed.root, &mut regexes, &mut issues);
        if !issues.is_empty() {
            return Err(failed(&issues));
        }
        match (&checked.types[parsed.root.id], wanted) {
            (Type::Bool, Wanted::Bool | Wanted::Condition) | (Type::Text, Wanted::Text) => {}
            (_, Wanted::Condition) => return Err(CompileError("must evaluate to bool".to_owned())),
            (_, Wanted::Bool) => {
                return Err(CompileError("cel expression must evaluate to a bool".to_owned()));
            }
            (_, Wanted::Text) => {
                return Err(CompileError("messageExpression must evaluate to a string".to_owned()));
            }
        }
        let max_cost = cost::estimate(&parsed.root, &checked.types, &variables);
        let uses_old = checked.used.get(1) == Some(&true);
        Ok(Self { root: parsed.root, scope: scope.clone(), regexes, max_cost, uses_old })
    }

    fn run<'a>(&'a self, values: &[Option<&'a Json>], limit: u64) -> Outcome<Val<'a>> {
        let mut scope = Vec::with_capacity(values.len());
        for (known, value) in self.scope.known.iter().zip(values) {
            let value = match value.map(|value| Val::of(value, &known.decl)).transpose() {
                Ok(value) => value,
                Err(error) => return Outcome { value: Err(EvalError::Failed(error)), cost: 0 },
            };
            match (value, known.optional) {
                (Some(value), true) => scope.push((known.name, Val::some(value))),
                (Some(value), false) => scope.push((known.name, value)),
                (None, true) => scope.push((known.name, Val::Optional(None))),
                (None, false) => {}
            }
        }
        let mut run = Run::new(scope, &self.regexes, limit);
        let value = run.expr(&self.root).map_err(|stop| match stop {
            Stop::Failed(what) => EvalError::Failed(what),
            Stop::TooExpensive => EvalError::TooExpensive,
        });
        Outcome { value, cost: run.spent() }
    }

    /// Whether the rule holds. It ends as too expensive beyond `limit`.
    pub fn holds(&self, this: &Json, old: Option<&Json>, limit: u64) -> Outcome<bool> {
        let Outcome { value, cost } = self.run(&[Some(this), old], limit);
        let value = value.map(|value| matches!(value, Val::Bool(true)));
        Outcome { value, cost }
    }

    /// Whether the condition holds for the variables of its scope, in their order.
    pub fn holds_for(&self, values: &[&Json], limit: u64) -> Outcome<bool> {
        let values: Vec<Option<&Json>> = values.iter().copied().map(Some).collect();
        let Outcome { value, cost } = self.run(&values, limit);
        let value = value.map(|value| matches!(value, Val::Bool(true)));
        Outcome { value, cost }
    }

    /// The message that the expression makes.
    pub fn text(&self, this: &Json, old: Option<&Json>, limit: u64) -> Outcome<String> {
        let Outcome { value, cost } = self.run(&[Some(this), old], limit);
        let value = value.and_then(|value| match value {
            Val::Text(text) => Ok(text.into_owned()),
            _ => Err(EvalError::Failed("messageExpression failed to convert to string".to_owned())),
        });
        Outcome { value, cost }
    }
}

/// Literals that must make sense by themselves: regular expressions, durations, points in time.
fn literals(expr: &Expr, regexes: &mut Regexes, issues: &mut Vec<Issue>) {
    match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) => {}
        Kind::Select { operand, .. } => literals(operand, regexes, issues),
        Kind::Call { name, args, .. } => {
            let text = |index: usize| match args.get(index).map(|a| (a.at, &a.kind)) {
                Some((at, Kind::Literal(Literal::Text(text)))) => Some((at, text)),
                _ => None,
            };
            match (name.as_str(), text(0), text(1)) {
                ("matches" | "find" | "findAll", _, Some((at, pattern))) => {
                    match functions::compile_regex(pattern) {
                        Ok(regex) => {
                            regexes.insert(pattern.to_string(), regex);
                        }
                        Err(_) if name == "matches" => {
                            issues.push(Issue { at, what: "invalid matches argument".to_owned() });
                        }
                        Err(_) => {}
                    }
                }
                ("duration", Some((at, text)), _) if library::time::parse_duration(text).is_none() => {
                    issues.push(Issue { at, what: "invalid duration argument".to_owned() });
                }
                ("timestamp", Some((at, text)), _) if library::time::parse_timestamp(text).is_none() => {
                    issues.push(Issue { at, what: "invalid timestamp argument".to_owned() });
                }
                _ => {}
            }
            args.iter().for_each(|arg| literals(arg, regexes, issues));
        }
        Kind::List(items) => items.iter().for_each(|(item, _)| literals(item, regexes, issues)),
        Kind::Map(entries) => entries.iter().for_each(|(key, value, _)| {
            literals(key, regexes, issues);
            literals(value, regexes, issues);
        }),
        Kind::Fold(fold) => {
            literals(&fold.range, regexes, issues);
            fold.filter.iter().for_each(|f| literals(f, regexes, issues));
            literals(&fold.body, regexes, issues);
        }
    }
}

#[cfg(test)]
mod tests;
