//! Runs a checked tree, and counts what it costs as it goes.

use std::{borrow::Cow, collections::BTreeMap, rc::Rc};

use crate::{
    ast::{Expr, Fold, FoldKind, Kind, Literal},
    check::{TYPE_NAMES, dotted},
    cost::Steps,
    functions, signatures,
    value::{Key, List, MapVal, NO_OVERLOAD, Val},
};

/// How a run ended without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The rule cannot be answered for these values.
    Failed(String),
    /// It costs too much.
    TooExpensive,
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Failed(what)
    }
}

type Result<'a> = std::result::Result<Val<'a>, Stop>;

/// One run.
pub(crate) struct Run<'a> {
    scope: Vec<(&'a str, Val<'a>)>,
    regexes: &'a functions::Regexes,
    spent: u64,
    limit: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(scope: Vec<(&'a str, Val<'a>)>, regexes: &'a functions::Regexes, limit: u64) -> Self {
        Self { scope, regexes, spent: 0, limit }
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    fn spend(&mut self, cost: u64) -> std::result::Result<(), Stop> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit { Err(Stop::TooExpensive) } else { Ok(()) }
    }

    pub(crate) fn expr(&mut self, expr: &'a Expr) -> Result<'a> {
        match &expr.kind {
            Kind::Literal(literal) => Ok(constant(literal)),
            Kind::Ident(name) => {
                self.spend(1)?;
                self.ident(name)
            }
            Kind::Select { operand, field, test, optional } => {
                if let Some(name) = dotted(expr).filter(|name| TYPE_NAMES.contains(&name.as_str())) {
                    return Ok(Val::Type(Cow::Owned(name)));
                }
                let of = self.expr(operand)?;
                if !test {
                    self.spend(1)?;
                }
                select(of, field, *test, *optional)
            }
            Kind::List(items) => {
                self.spend(10)?;
                let mut all = Vec::with_capacity(items.len());
                for (item, optional) in items {
                    match (self.expr(item)?, optional) {
                        (Val::Optional(inner), true) => all.extend(inner.as_deref().cloned()),
                        (value, _) => all.push(value),
                    }
                }
                Ok(Val::list(all))
            }
            Kind::Map(entries) => {
                self.spend(30)?;
                let mut all = BTreeMap::new();
                for (key, value, optional) in entries {
                    let key = self.expr(key)?.key()?;
                    match (self.expr(value)?, optional) {
                        (Val::Optional(inner), true) => {
                            if let Some(value) = inner {
                                all.insert(key, (*value).clone());
                            }
                        }
                        (value, _) => {
                            all.insert(key, value);
                        }
                    }
                }
                Ok(Val::Map(MapVal::Made(Rc::new(all))))
            }
            Kind::Call { name, member, args } => self.call(name, *member, args),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn ident(&self, name: &str) -> Result<'a> {
        if let Some((_, value)) = self.scope.iter().rev().find(|(n, _)| *n == name) {
            return Ok(value.clone());
        }
        match TYPE_NAMES.iter().find(|known| **known == name) {
            Some(known) => Ok(Val::Type(Cow::Borrowed(known))),
            None => Err(Stop::Failed(format!("no such attribute(s): {name}"))),
        }
    }

    fn call(&mut self, name: &'a str, member: bool, args: &'a [Expr]) -> Result<'a> {
        match name {
            "_&&_" => return self.logic(args, false),
            "_||_" => return self.logic(args, true),
            "_?_:_" => {
                return match self.expr(&args[0])? {
                    Val::Bool(true) => self.expr(&args[1]),
                    Val::Bool(false) => self.expr(&args[2]),
                    _ => Err(Stop::Failed(NO_OVERLOAD.to_owned())),
                };
            }
            _ => {}
        }
        let (full, args): (Cow<'_, str>, &[Expr]) = match args.first().filter(|_| member).and_then(dotted) {
            Some(space)
                if !self.scope.iter().any(|(n, _)| *n == space.split('.').next().unwrap_or_default())
                    && !signatures::of(&format!("{space}.{name}")).is_empty() =>
            {
                (Cow::Owned(format!("{space}.{name}")), &args[1..])
            }
            _ => (Cow::Borrowed(name), args),
        };
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(self.expr(arg)?);
        }
        self.spend(functions::cost(&full, &values))?;
        let result = functions::call(&full, &values, self.regexes)?;
        self.spend(functions::cost_of_result(&full, &result))?;
        Ok(result)
    }

    /// `||` (`decides` is true) and `&&`: one side that decides makes the other's failure not matter.
    fn logic(&mut self, args: &'a [Expr], decides: bool) -> Result<'a> {
        let left = match self.expr(&args[0]) {
            Ok(Val::Bool(b)) if b == decides => return Ok(Val::Bool(decides)),
            Ok(Val::Bool(_)) => None,
            Ok(_) => Some(Stop::Failed(NO_OVERLOAD.to_owned())),
            Err(Stop::TooExpensive) => return Err(Stop::TooExpensive),
            Err(failed) => Some(failed),
        };
        match (self.expr(&args[1])?, left) {
            (Val::Bool(b), _) if b == decides => Ok(Val::Bool(decides)),
            (_, Some(failed)) => Err(failed),
            (Val::Bool(b), None) => Ok(Val::Bool(b)),
            _ => Err(Stop::Failed(NO_OVERLOAD.to_owned())),
        }
    }

    fn fold(&mut self, fold: &'a Fold) -> Result<'a> {
        let steps = Steps::of(fold.kind);
        let range = self.expr(&fold.range)?;
        self.spend(steps.around)?;
        if let FoldKind::OptMap | FoldKind::OptFlatMap = fold.kind {
            let Val::Optional(inner) = range else { return Err(Stop::Failed(NO_OVERLOAD.to_owned())) };
            let Some(value) = inner else { return Ok(Val::Optional(None)) };
            self.scope.push((&fold.var, (*value).clone()));
            let out = self.expr(&fold.body);
            self.scope.pop();
            return Ok(if fold.kind == FoldKind::OptMap { Val::some(out?) } else { out? });
        }
        let entries: Vec<(Val<'a>, Val<'a>)> = match &range {
            Val::List(list) => {
                let items = list.items()?.into_iter().enumerate();
                items.map(|(i, v)| (Val::Int(i64::try_from(i).unwrap_or(i64::MAX)), v)).collect()
            }
            Val::Map(map) => {
                let mut all = Vec::new();
                for key in map.keys() {
                    if let Some(value) = map.get(&key)? {
                        all.push((key, value));
                    }
                }
                all
            }
            _ => return Err(Stop::Failed(NO_OVERLOAD.to_owned())),
        };
        let is_list = matches!(range, Val::List(_));
        let depth = self.scope.len();
        let mut folded = Folded {
            fold,
            failed: None,
            matched: 0,
            list: Vec::new(),
            map: BTreeMap::new(),
            keys: Vec::new(),
        };
        for (key, value) in entries {
            self.scope.truncate(depth);
            self.spend(steps.condition)?;
            let element = if is_list || fold.var2.is_some() { value.clone() } else { key.clone() };
            match &fold.var2 {
                Some(second) => {
                    self.scope.push((&fold.var, key.clone()));
                    self.scope.push((second, value));
                }
                None => self.scope.push((&fold.var, element.clone())),
            }
            if let Some(filter) = &fold.filter {
                match self.expr(filter)? {
                    Val::Bool(true) => {}
                    Val::Bool(false) => {
                        self.spend(1)?;
                        continue;
                    }
                    _ => return Err(Stop::Failed(NO_OVERLOAD.to_owned())),
                }
            }
            let body = self.expr(&fold.body);
            if matches!(body, Err(Stop::TooExpensive)) {
                return Err(Stop::TooExpensive);
            }
            let taken = !matches!(fold.kind, FoldKind::Filter | FoldKind::ExistsOne)
                || matches!(body, Ok(Val::Bool(true)));
            self.spend(if taken { steps.step } else { 1 })?;
            if let Some(done) = folded.take(body, &key, element)? {
                self.scope.truncate(depth);
                return Ok(done);
            }
        }
        self.scope.truncate(depth);
        folded.done()
    }
}

/// What a loop has gathered.
struct Folded<'a> {
    fold: &'a Fold,
    failed: Option<Stop>,
    matched: usize,
    list: Vec<Val<'a>>,
    map: BTreeMap<Key, Val<'a>>,
    keys: Vec<Val<'a>>,
}

impl<'a> Folded<'a> {
    /// Takes one element; a value ends the loop.
    fn take(
        &mut self,
        body: Result<'a>,
        key: &Val<'a>,
        element: Val<'a>,
    ) -> std::result::Result<Option<Val<'a>>, Stop> {
        let truth = |body: Result<'a>| match body? {
            Val::Bool(b) => Ok(b),
            _ => Err(Stop::Failed(NO_OVERLOAD.to_owned())),
        };
        match self.fold.kind {
            FoldKind::All | FoldKind::Exists => {
                let decides = self.fold.kind == FoldKind::Exists;
                match truth(body) {
                    Ok(b) if b == decides => return Ok(Some(Val::Bool(decides))),
                    Ok(_) => {}
                    Err(failed) => self.failed = self.failed.take().or(Some(failed)),
                }
            }
            FoldKind::ExistsOne => self.matched += usize::from(truth(body)?),
            FoldKind::Filter => {
                if truth(body)? {
                    self.list.push(element);
                }
            }
            FoldKind::Map => self.list.push(body?),
            FoldKind::SortBy => {
                self.keys.push(body?);
                self.list.push(element);
            }
            FoldKind::TransformMap => {
                self.map.insert(key.key()?, body?);
            }
            FoldKind::TransformMapEntry => {
                let Val::Map(entry) = body? else { return Err(Stop::Failed(NO_OVERLOAD.to_owned())) };
                for key in entry.keys() {
                    let Some(value) = entry.get(&key)? else { continue };
                    if self.map.insert(key.key()?, value).is_some() {
                        return Err(Stop::Failed("insert failed: key already exists".to_owned()));
                    }
                }
            }
            FoldKind::OptMap | FoldKind::OptFlatMap => {}
        }
        Ok(None)
    }

    fn done(self) -> Result<'a> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        Ok(match self.fold.kind {
            FoldKind::All => Val::Bool(true),
            FoldKind::Exists => Val::Bool(false),
            FoldKind::ExistsOne => Val::Bool(self.matched == 1),
            FoldKind::TransformMap | FoldKind::TransformMapEntry => Val::Map(MapVal::Made(Rc::new(self.map))),
            FoldKind::SortBy => functions::lists::sort_by(&self.list, &self.keys)?,
            _ => Val::list(self.list),
        })
    }
}

fn constant(literal: &Literal) -> Val<'_> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(b) => Val::Bool(*b),
        Literal::Int(n) => Val::Int(*n),
        Literal::Uint(n) => Val::Uint(*n),
        Literal::Double(n) => Val::Double(*n),
        Literal::Text(text) => Val::Text(Cow::Borrowed(text)),
        Literal::Bytes(bytes) => Val::Bytes(Rc::from(&**bytes)),
    }
}

fn select<'a>(of: Val<'a>, field: &str, test: bool, optional: bool) -> Result<'a> {
    let (map, lifted) = match of {
        Val::Map(map) => (map, optional),
        Val::Optional(None) => return Ok(if test { Val::Bool(false) } else { Val::Optional(None) }),
        Val::Optional(Some(inner)) => match &*inner {
            Val::Map(map) => (map.clone(), true),
            _ => return Err(Stop::Failed(NO_OVERLOAD.to_owned())),
        },
        _ => return Err(Stop::Failed(NO_OVERLOAD.to_owned())),
    };
    let found = map.get(&Val::text(field))?;
    match (found, test, lifted) {
        (found, true, _) => Ok(Val::Bool(found.is_some())),
        (found, false, true) => Ok(Val::Optional(found.map(Rc::new))),
        (Some(found), false, false) => Ok(found),
        (None, false, false) => Err(Stop::Failed(format!("no such key: {field}"))),
    }
}

impl<'a> From<List<'a>> for Val<'a> {
    fn from(list: List<'a>) -> Self {
        Self::List(list)
    }
}
