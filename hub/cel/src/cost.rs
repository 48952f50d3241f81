//! What a rule may cost at most, before it is ever run: by the types of its nodes and the bounds of the schema. The
//! arithmetic is cel-go's, since which rules a definition may have depends on it.

use std::sync::Arc;

use crate::{
    ast::{Expr, Fold, FoldKind, Kind, Literal},
    check::{Variable, dotted},
    decl::{Decl, Shape},
    signatures,
    types::Type,
};

/// What it costs to look at one character or byte.
pub(crate) const TRAVERSE: f64 = 0.1;
/// What one character of a regular expression costs.
pub(crate) const REGEX: f64 = 0.25;

/// From … to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Range {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    const NOTHING: Self = Self { min: 0, max: 0 };

    fn fixed(n: u64) -> Self {
        Self { min: n, max: n }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn by(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// `n * factor`, rounded up.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "costs are estimates"
)]
pub(crate) fn scale(n: u64, factor: f64) -> u64 {
    // A cast saturates, which is what is wanted of an unknown size.
    (n as f64 * factor).ceil() as u64
}

/// What is known of a node.
#[derive(Clone, Debug)]
struct Info {
    cost: Range,
    size: Option<Range>,
    decl: Option<Arc<Decl>>,
    /// Sizes of the elements of what was made within the rule.
    element: Option<Range>,
}

impl Info {
    fn new(cost: Range) -> Self {
        Self { cost, size: None, decl: None, element: None }
    }

    fn sized(cost: Range, size: Range) -> Self {
        Self { size: Some(size), ..Self::new(cost) }
    }
}

/// The greatest cost of a checked tree.
pub(crate) fn estimate(root: &Expr, types: &[Type], variables: &[Variable]) -> u64 {
    let scope =
        variables.iter().map(|v| (v.name.clone(), Local { decl: v.decl.clone(), size: None })).collect();
    Coster { types, scope }.expr(root).cost.max
}

struct Local {
    decl: Option<Arc<Decl>>,
    size: Option<Range>,
}

struct Coster<'t> {
    types: &'t [Type],
    scope: Vec<(String, Local)>,
}

impl Coster<'_> {
    fn expr(&mut self, expr: &Expr) -> Info {
        match &expr.kind {
            Kind::Literal(literal) => Info::sized(Range::fixed(0), Range::fixed(literal_size(literal))),
            Kind::Ident(name) => {
                let local = self.scope.iter().rev().find(|(n, _)| n == name).map(|(_, local)| local);
                let mut info = Info::new(Range::fixed(1));
                if let Some(local) = local {
                    info.size = local.size;
                    info.decl = local.decl.clone();
                }
                info
            }
            Kind::Select { operand, field, test, .. } => {
                let of = self.expr(operand);
                if *test {
                    return Info::sized(of.cost, Range::fixed(1));
                }
                let decl = of.decl.as_ref().and_then(|decl| match &decl.shape {
                    Shape::Map(values) => Some(values.clone()),
                    _ => decl.fields()?.get(field).map(|f| f.decl.clone()),
                });
                Info { decl, size: of.element, ..Info::new(of.cost.plus(Range::fixed(1))) }
            }
            Kind::List(items) => {
                let (mut cost, mut element) = (Range::fixed(10), None);
                for (item, _) in items {
                    let info = self.expr(item);
                    cost = cost.plus(info.cost);
                    let size = self.size(item, &info);
                    element = Some(element.map_or(size, |before: Range| before.or(size)));
                }
                let element = Some(element.unwrap_or(Range::NOTHING));
                Info { element, ..Info::sized(cost, Range::fixed(items.len() as u64)) }
            }
            Kind::Map(entries) => {
                let (mut cost, mut element) = (Range::fixed(30), None);
                for (key, value, _) in entries {
                    let (key, info) = (self.expr(key), self.expr(value));
                    cost = cost.plus(key.cost).plus(info.cost);
                    let size = self.size(value, &info);
                    element = Some(element.map_or(size, |before: Range| before.or(size)));
                }
                let element = Some(element.unwrap_or(Range::NOTHING));
                Info { element, ..Info::sized(cost, Range::fixed(entries.len() as u64)) }
            }
            Kind::Call { name, member, args } => self.call(name, *member, args),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn size(&self, expr: &Expr, info: &Info) -> Range {
        if let Some(size) = info.size {
            return size;
        }
        if let Some(decl) = &info.decl {
            return Range { min: 0, max: decl.max };
        }
        match &self.types[expr.id] {
            Type::Text
            | Type::Bytes
            | Type::List(_)
            | Type::Map(..)
            | Type::Dyn
            | Type::Optional(_)
            | Type::Object(_) => Range::UNKNOWN,
            _ => Range::fixed(1),
        }
    }

    fn fold(&mut self, fold: &Fold) -> Info {
        let range = self.expr(&fold.range);
        let count = match fold.kind {
            FoldKind::OptMap | FoldKind::OptFlatMap => Range::fixed(1),
            _ => self.size(&fold.range, &range),
        };
        let element =
            || Local { decl: range.decl.as_ref().and_then(|d| d.element().cloned()), size: range.element };
        let is_list = matches!(self.types[fold.range.id], Type::List(_))
            || range.decl.as_ref().is_some_and(|d| matches!(d.shape, Shape::List(..)));
        let depth = self.scope.len();
        let key = || Local {
            decl: None,
            size: Some(if is_list {
                Range::fixed(1)
            } else {
                Range { min: 0, max: i64::MAX.unsigned_abs() }
            }),
        };
        match &fold.var2 {
            Some(second) => {
                self.scope.push((fold.var.clone(), key()));
                self.scope.push((second.clone(), element()));
            }
            None => {
                let local = match fold.kind {
                    FoldKind::OptMap | FoldKind::OptFlatMap => {
                        Local { decl: range.decl.clone(), size: range.element }
                    }
                    _ if is_list => element(),
                    _ => key(),
                };
                self.scope.push((fold.var.clone(), local));
            }
        }
        let filter = fold.filter.as_ref().map(|f| self.expr(f).cost);
        let body = self.expr(&fold.body);
        let body_size = self.size(&fold.body, &body);
        self.scope.truncate(depth);
        let steps = Steps::of(fold.kind);
        // What the loop around the body does with its result.
        let step = match fold.kind {
            FoldKind::All | FoldKind::Exists => Range { min: 1, max: body.cost.max.saturating_add(1) },
            FoldKind::ExistsOne => body.cost.plus(Range { min: 1, max: 2 }),
            FoldKind::Filter => body.cost.plus(Range { min: 1, max: 13 }),
            _ => match filter {
                Some(filter) => filter.plus(body.cost.plus(Range::fixed(steps.step)).or(Range::fixed(1))),
                None => body.cost.plus(Range::fixed(steps.step)),
            },
        };
        let each = step.plus(Range::fixed(steps.condition));
        let cost = range.cost.plus(Range::fixed(steps.around)).plus(count.times(each));
        let mut info = Info::new(cost);
        match fold.kind {
            FoldKind::Map | FoldKind::TransformMap | FoldKind::TransformMapEntry => {
                info.size = Some(count);
                info.element = Some(body_size);
            }
            FoldKind::Filter | FoldKind::SortBy => {
                info.size = Some(count);
                info.decl = range.decl;
                info.element = range.element;
            }
            FoldKind::OptMap | FoldKind::OptFlatMap => info.element = Some(body_size),
            _ => info.size = Some(Range::fixed(1)),
        }
        info
    }

    #[allow(clippy::too_many_lines, reason = "one table")]
    fn call(&mut self, name: &str, member: bool, args: &[Expr]) -> Info {
        if member
            && let Some(space) = args.first().and_then(dotted)
            && !self.scope.iter().any(|(n, _)| n == space.split('.').next().unwrap_or_default())
            && !signatures::of(&format!("{space}.{name}")).is_empty()
        {
            let full = format!("{space}.{name}");
            return self.priced(&full, &args[1..]);
        }
        self.priced(name, args)
    }

    #[allow(clippy::too_many_lines, reason = "one table")]
    fn priced(&mut self, name: &str, args: &[Expr]) -> Info {
        let infos: Vec<Info> = args.iter().map(|a| self.expr(a)).collect();
        let sizes: Vec<Range> = args.iter().zip(&infos).map(|(a, i)| self.size(a, i)).collect();
        let size = |index: usize| sizes.get(index).copied().unwrap_or(Range::UNKNOWN);
        let sum = infos.iter().fold(Range::fixed(0), |sum, info| sum.plus(info.cost));
        let kind = args.first().map_or(&Type::Dyn, |a| &self.types[a.id]);
        let of_text = matches!(kind, Type::Text | Type::Bytes);
        let element = || {
            let first = infos.first()?;
            first.element.or_else(|| {
                let decl = first.decl.as_ref()?.element()?;
                Some(Range { min: 0, max: decl.max })
            })
        };
        let one = Range::fixed(1);
        let plain = |cost: Range| Info::new(sum.plus(cost));
        let sized = |cost: Range, size: Range| Info::sized(sum.plus(cost), size);
        match name {
            "_&&_" | "_||_" => {
                let (left, right) = (infos[0].cost, infos[1].cost);
                Info::sized(Range { min: left.min, max: left.plus(right).max }, one)
            }
            "_?_:_" => {
                let cost = infos[0].cost.plus(infos[1].cost.or(infos[2].cost));
                Info::sized(cost, size(1).or(size(2)))
            }
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => {
                let ordered = !matches!(name, "_==_" | "_!=_");
                if ordered && !of_text && !matches!(kind, Type::Dyn) {
                    return sized(one, one);
                }
                let max = size(0).max.min(size(1).max);
                sized(Range { min: u64::from(max > 0), max }.by(TRAVERSE), one)
            }
            "_+_" if of_text => {
                let both = size(0).plus(size(1));
                sized(both.by(TRAVERSE), both)
            }
            "_+_" if matches!(kind, Type::List(_)) => {
                let element = infos[0].element.zip(infos[1].element).map(|(a, b)| a.or(b));
                Info { element, ..sized(one, size(0).plus(size(1))) }
            }
            "@in" if matches!(self.types[args[1].id], Type::List(_) | Type::Dyn) => sized(size(1), one),
            "_[_]" | "_[?_]" => {
                let decl = infos[0].decl.as_ref().and_then(|d| d.element().cloned());
                Info { decl, size: infos[0].element, ..plain(one) }
            }
            "dyn" => Info { cost: sum.plus(one), ..infos[0].clone() },
            "startsWith" | "endsWith" => plain(size(1).by(TRAVERSE)),
            "matches" => plain(size(0).plus(one).by(TRAVERSE).times(size(1).by(REGEX))),
            "find" | "findAll" => {
                let cost = size(0).plus(one).by(TRAVERSE).times(size(1).by(REGEX));
                sized(cost, Range { min: 0, max: size(0).max })
            }
            "contains" => plain(size(0).by(TRAVERSE).times(size(1).by(TRAVERSE))),
            "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" if !of_text => {
                let texts = matches!(kind, Type::List(of) if matches!(**of, Type::Text | Type::Bytes));
                let each =
                    if texts { one.plus(element().unwrap_or(Range::UNKNOWN).by(TRAVERSE)) } else { one };
                plain(size(0).times(each))
            }
            "indexOf" | "lastIndexOf" | "isURL" => plain(size(0).by(TRAVERSE)),
            "url" | "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver"
                if of_text =>
            {
                plain(size(0).by(TRAVERSE))
            }
            "ip.isCanonical" => plain(size(0).by(2.0 * TRAVERSE)),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => sized(size(0).by(TRAVERSE), size(0)),
            "replace" => {
                let (text, with) = (size(0), size(2));
                let max = text.max.saturating_add(1).saturating_mul(with.max).saturating_add(text.max);
                let max = if size(1).min > 0 && with.max <= size(1).min { text.max } else { max };
                sized(text.by(2.0 * TRAVERSE), Range { min: 0, max })
            }
            "split" => {
                let limit = match args.get(2).map(|a| &a.kind) {
                    Some(Kind::Literal(Literal::Int(n))) => u64::try_from(*n).unwrap_or_else(|_| size(0).max),
                    _ => size(0).max,
                };
                let element = Some(Range { min: 0, max: size(0).max });
                Info { element, ..sized(size(0).by(2.0 * TRAVERSE), Range { min: 0, max: limit }) }
            }
            "join" => {
                let count = size(0);
                let between = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                let mut out = count.times(element().unwrap_or(Range::UNKNOWN));
                if args.len() > 1 {
                    out = out.plus(size(1).times(between));
                }
                sized(out.by(TRAVERSE), out)
            }
            "lists.range" => {
                let count = match args.first().map(|a| &a.kind) {
                    Some(Kind::Literal(Literal::Int(n))) => Range::fixed(u64::try_from(*n).unwrap_or(0)),
                    _ => Range::UNKNOWN,
                };
                Info { element: Some(one), ..sized(count.plus(one), count) }
            }
            "format" => sized(size(0).by(TRAVERSE), size(0).plus(size(1))),
            "strings.quote" => sized(
                size(0).by(TRAVERSE),
                Range { min: size(0).min + 2, max: size(0).max.saturating_mul(2) },
            ),
            "string" | "bytes" if of_text => sized(size(0).by(TRAVERSE), size(0)),
            "sets.contains" | "sets.intersects" => plain(size(0).times(size(1)).plus(one)),
            "sets.equivalent" => plain(size(0).times(size(1)).times(Range::fixed(2)).plus(one)),
            "containsIP" | "containsCIDR" => {
                let bytes = Range { min: 4, max: 16 };
                let mut cost = bytes.plus(bytes).by(TRAVERSE);
                if name == "containsCIDR" {
                    cost = cost.plus(bytes.by(TRAVERSE)).plus(one);
                }
                if matches!(args.get(1).map(|a| &self.types[a.id]), Some(Type::Text)) {
                    cost = cost.plus(size(1).by(TRAVERSE));
                }
                plain(cost)
            }
            "slice" | "reverse" | "distinct" | "sort" | "flatten" => {
                let cost = match name {
                    "distinct" => size(0).times(size(0)),
                    _ => size(0),
                };
                Info {
                    decl: infos[0].decl.clone(),
                    element: infos[0].element,
                    ..sized(cost.plus(Range::fixed(10)), size(0))
                }
            }
            "validate" => plain(size(1).by(TRAVERSE).times(Range::fixed(2))),
            "value" | "orValue" | "optional.of" | "or" => {
                Info { cost: sum.plus(one), ..infos.first().cloned().unwrap_or_else(|| Info::new(one)) }
            }
            _ => plain(one),
        }
    }
}

/// What the loop that a macro stands for costs beside what is written in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    /// Once.
    pub(crate) around: u64,
    /// Before each element.
    pub(crate) condition: u64,
    /// With each element that is taken.
    pub(crate) step: u64,
}

impl Steps {
    pub(crate) fn of(kind: FoldKind) -> Self {
        let (around, condition, step) = match kind {
            FoldKind::All => (1, 2, 1),
            FoldKind::Exists => (1, 3, 1),
            FoldKind::ExistsOne => (2, 0, 1),
            FoldKind::Map | FoldKind::SortBy => (11, 0, 12),
            FoldKind::Filter => (11, 0, 13),
            FoldKind::TransformMap | FoldKind::TransformMapEntry => (31, 0, 3),
            FoldKind::OptMap | FoldKind::OptFlatMap => (2, 0, 1),
        };
        Self { around, condition, step }
    }
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::Text(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    }
}
