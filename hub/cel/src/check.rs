//! Finds the type of every node, in the words of cel-go.

use std::sync::Arc;

use crate::{
    ast::{Expr, Fold, FoldKind, Kind, Literal},
    decl::Decl,
    signatures,
    token::Issue,
    types::{Bindings, Type},
};

/// Names of types, which are values too.
pub(crate) const TYPE_NAMES: [&str; 12] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
];

/// A variable: its name, its type, and where it comes from if that is a schema.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) of: Type,
    pub(crate) decl: Option<Arc<Decl>>,
}

/// Checks a tree. The type of each node by its id, and which of the given variables it uses.
///
/// # Errors
/// Everything that is wrong, in the order it was met.
pub(crate) fn check(root: &Expr, nodes: usize, variables: &[Variable]) -> Result<Checked, Vec<Issue>> {
    let mut checker = Checker {
        scope: variables.to_vec(),
        outer: variables.len(),
        used: vec![false; variables.len()],
        types: vec![Type::Dyn; nodes],
        bindings: Bindings::default(),
        issues: Vec::new(),
    };
    checker.expr(root);
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let types = checker.types.iter().map(|t| checker.bindings.settle(t)).collect();
    Ok(Checked { types, used: checker.used })
}

/// What the checker found.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) types: Vec<Type>,
    pub(crate) used: Vec<bool>,
}

struct Checker {
    scope: Vec<Variable>,
    outer: usize,
    used: Vec<bool>,
    types: Vec<Type>,
    bindings: Bindings,
    issues: Vec<Issue>,
}

/// `a.b.c` if an expression is nothing but names.
pub(crate) fn dotted(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.clone()),
        Kind::Select { operand, field, test: false, optional: false } => {
            Some(format!("{}.{field}", dotted(operand)?))
        }
        _ => None,
    }
}

impl Checker {
    fn issue(&mut self, at: usize, what: String) -> Type {
        self.issues.push(Issue { at, what });
        Type::Dyn
    }

    fn expr(&mut self, expr: &Expr) -> Type {
        let found = match &expr.kind {
            Kind::Literal(literal) => literal_type(literal),
            Kind::Ident(name) => self.ident(expr.at, name),
            Kind::Select { operand, field, test, optional } => {
                self.select(expr, operand, field, *test, *optional)
            }
            Kind::Call { name, member, args } => self.call(expr.at, name, *member, args),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => {
                let (key, value) = (self.bindings.fresh(), self.bindings.fresh());
                for (k, v, optional) in entries {
                    let found = self.expr(k);
                    self.want(k.at, &key, &found);
                    let found = self.expr(v);
                    let found = if *optional { self.inner(v.at, &found) } else { found };
                    self.want(v.at, &value, &found);
                }
                Type::map(key, value)
            }
            Kind::Fold(fold) => self.fold(expr.at, fold),
        };
        self.types[expr.id] = found.clone();
        found
    }

    fn want(&mut self, at: usize, wanted: &Type, found: &Type) {
        if !self.bindings.assign(wanted, found) {
            let (wanted, found) = (self.bindings.settle(wanted), self.bindings.settle(found));
            self.issue(at, format!("expected type '{wanted}' but found '{found}'"));
        }
    }

    /// What an optional holds.
    fn inner(&mut self, at: usize, of: &Type) -> Type {
        match self.bindings.resolve(of) {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                let other = self.bindings.settle(&other);
                self.issue(at, format!("expected type 'optional_type(dyn)' but found '{other}'"))
            }
        }
    }

    fn variable(&mut self, name: &str) -> Option<Type> {
        let index = self.scope.iter().rposition(|v| v.name == name)?;
        if index < self.outer {
            self.used[index] = true;
        }
        Some(self.scope[index].of.clone())
    }

    fn ident(&mut self, at: usize, name: &str) -> Type {
        if let Some(found) = self.variable(name) {
            return found;
        }
        if TYPE_NAMES.contains(&name) {
            return Type::Meta;
        }
        self.issue(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool, optional: bool) -> Type {
        if let Some(name) = dotted(expr).filter(|name| TYPE_NAMES.contains(&name.as_str())) {
            let _ = name;
            return Type::Meta;
        }
        let of = self.expr(operand);
        let resolved = self.bindings.resolve(&of);
        let (target, lifted) = match &resolved {
            Type::Optional(inner) => (self.bindings.resolve(inner), true),
            other => (other.clone(), false),
        };
        let found = match &target {
            Type::Object(decl) => match decl.fields().and_then(|fields| fields.get(field)) {
                Some(field) => Type::of(&field.decl),
                None => return self.issue(expr.at, format!("undefined field '{field}'")),
            },
            Type::Map(_, value) => (**value).clone(),
            Type::Dyn | Type::Param(_) => Type::Dyn,
            other => {
                let other = self.bindings.settle(other);
                return self.issue(expr.at, format!("type '{other}' does not support field selection"));
            }
        };
        match (test, lifted || optional) {
            (true, _) => Type::Bool,
            (false, true) => Type::optional(found),
            (false, false) => found,
        }
    }

    fn list(&mut self, items: &[(Expr, bool)]) -> Type {
        let of = self.bindings.fresh();
        for (item, optional) in items {
            let found = self.expr(item);
            let found = if *optional { self.inner(item.at, &found) } else { found };
            self.want(item.at, &of, &found);
        }
        Type::list(of)
    }

    fn call(&mut self, at: usize, name: &str, member: bool, args: &[Expr]) -> Type {
        // A "member" of a name that is no variable is a function of a library: optional.of(…).
        if member
            && let Some(space) = args.first().and_then(dotted)
            && !self.scope.iter().any(|v| v.name == space.split('.').next().unwrap_or_default())
        {
            let full = format!("{space}.{name}");
            if !signatures::of(&full).is_empty() {
                let found: Vec<Type> = args[1..].iter().map(|a| self.expr(a)).collect();
                return self.resolve(at, &full, false, &found);
            }
        }
        let mut found = Vec::with_capacity(args.len());
        for (index, arg) in args.iter().enumerate() {
            found.push(match &arg.kind {
                // The one list whose elements may be of several types.
                Kind::List(items) if member && name == "format" && index == 1 => {
                    items.iter().for_each(|(item, _)| drop(self.expr(item)));
                    self.types[arg.id] = Type::list(Type::Dyn);
                    Type::list(Type::Dyn)
                }
                _ => self.expr(arg),
            });
        }
        self.resolve(at, name, member, &found)
    }

    /// Which ways to call a function fit; the result is `dyn` if they differ.
    fn resolve(&mut self, at: usize, name: &str, member: bool, args: &[Type]) -> Type {
        let all = signatures::of(name);
        if all.is_empty() {
            return self.issue(at, format!("undeclared reference to '{name}' (in container '')"));
        }
        let mut result: Option<Type> = None;
        for signature in all.iter().filter(|s| s.member == member && s.arity() == args.len()) {
            let mut bindings = self.bindings.clone();
            let (wanted, gives) = signature.instantiate(&mut bindings);
            if !wanted.iter().zip(args).all(|(wanted, found)| bindings.assign(wanted, found)) {
                continue;
            }
            self.bindings = bindings;
            let gives = self.bindings.resolve(&gives);
            result = Some(match result {
                None => gives,
                Some(before) if before.to_string() == gives.to_string() => before,
                Some(_) => Type::Dyn,
            });
        }
        result.unwrap_or_else(|| {
            let args: Vec<String> = args.iter().map(|a| self.bindings.settle(a).to_string()).collect();
            let args = match (member, args.split_first()) {
                (true, Some((target, rest))) => format!("{target}.({})", rest.join(", ")),
                _ => format!("({})", args.join(", ")),
            };
            self.issue(at, format!("found no matching overload for '{name}' applied to '{args}'"))
        })
    }

    fn fold(&mut self, at: usize, fold: &Fold) -> Type {
        let range = self.expr(&fold.range);
        let range = self.bindings.resolve(&range);
        let (first, second) = match &range {
            _ if matches!(fold.kind, FoldKind::OptMap | FoldKind::OptFlatMap) => {
                (self.inner(fold.range.at, &range), Type::Dyn)
            }
            Type::List(item) if fold.var2.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(key, value) if fold.kind != FoldKind::SortBy => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Param(_) => (Type::Dyn, Type::Dyn),
            other => {
                let other = self.bindings.settle(other);
                let what = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                (self.issue(fold.range.at, what), Type::Dyn)
            }
        };
        let depth = self.scope.len();
        self.scope.push(Variable { name: fold.var.clone(), of: first.clone(), decl: None });
        if let Some(name) = &fold.var2 {
            self.scope.push(Variable { name: name.clone(), of: second, decl: None });
        }
        if let Some(filter) = &fold.filter {
            let found = self.expr(filter);
            if !self.bindings.assign(&Type::Bool, &found) {
                let found = self.bindings.settle(&found);
                let what = format!(
                    "found no matching overload for '_?_:_' applied to '({found}, list(dyn), list(dyn))'"
                );
                self.issue(at, what);
            }
        }
        let body = self.expr(&fold.body);
        self.scope.truncate(depth);
        let mut predicate = |operator: &str| {
            if !self.bindings.assign(&Type::Bool, &body) {
                let body = self.bindings.settle(&body);
                let what = format!("found no matching overload for '{operator}' applied to '(bool, {body})'");
                self.issue(at, what);
            }
        };
        match fold.kind {
            FoldKind::All => predicate("_&&_"),
            FoldKind::Exists => predicate("_||_"),
            FoldKind::ExistsOne | FoldKind::Filter => predicate("_?_:_"),
            _ => {}
        }
        let key = match &range {
            Type::Map(key, _) => (**key).clone(),
            Type::List(_) => Type::Int,
            _ => Type::Dyn,
        };
        match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => Type::Bool,
            FoldKind::Map => Type::list(body),
            FoldKind::Filter => Type::list(first),
            FoldKind::SortBy => range,
            FoldKind::TransformMap => Type::map(key, body),
            FoldKind::TransformMapEntry => body,
            FoldKind::OptMap => Type::optional(body),
            FoldKind::OptFlatMap => body,
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::Text(_) => Type::Text,
        Literal::Bytes(_) => Type::Bytes,
    }
}
