//! What a source means, before types are known. Macros are nodes of their own ([`Fold`]): that is shorter, faster and
//! easier to price than the loops they stand for.

use std::sync::Arc;

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    /// Index into what the checker found.
    pub(crate) id: usize,
    /// Where it is, in characters.
    pub(crate) at: usize,
    /// How many nodes the longest way down has.
    pub(crate) depth: usize,
    pub(crate) kind: Kind,
}

impl Kind {
    /// The greatest depth of what is below.
    pub(crate) fn depth_below(&self) -> usize {
        let deepest = |all: &mut dyn Iterator<Item = &Expr>| all.map(|e| e.depth).max().unwrap_or(0);
        match self {
            Self::Literal(_) | Self::Ident(_) => 0,
            Self::Select { operand, .. } => operand.depth,
            Self::Call { args, .. } => deepest(&mut args.iter()),
            Self::List(items) => deepest(&mut items.iter().map(|(item, _)| item)),
            Self::Map(entries) => deepest(&mut entries.iter().flat_map(|(key, value, _)| [key, value])),
            Self::Fold(fold) => deepest(&mut [&fold.range, &fold.body].into_iter().chain(&fold.filter)),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(String),
    /// `operand.field`; `test`: within `has()`; `optional`: `operand.?field`.
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
        optional: bool,
    },
    /// A function or an operator; the target of a member function is the first argument.
    Call {
        name: String,
        member: bool,
        args: Vec<Expr>,
    },
    /// Elements, and whether each is `?element`.
    List(Vec<(Expr, bool)>),
    /// Entries, and whether each is `?key`.
    Map(Vec<(Expr, Expr, bool)>),
    Fold(Box<Fold>),
}

/// Which macro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `transformList`
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
    OptMap,
    OptFlatMap,
    SortBy,
}

/// `range.macro(var, var2, filter, body)`
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Expr,
    pub(crate) var: String,
    pub(crate) var2: Option<String>,
    pub(crate) filter: Option<Expr>,
    pub(crate) body: Expr,
}
