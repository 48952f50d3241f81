//! Tokens to a tree, after CEL's grammar. Messages follow the ANTLR parser that kube-apiserver's have come from.

use crate::{
    ast::{Expr, Fold, FoldKind, Kind, Literal},
    token::{Issue, Spanned, Token, tokens},
};

/// Deeper expressions are refused.
const MAX_DEPTH: usize = 50;
/// Trees with longer ways down are refused, so that no source takes the stack of those who walk them.
const MAX_TREE: usize = 200;
/// The longest source, in characters.
const MAX_LENGTH: usize = 100_000;
const OPERAND: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const RESERVED: [&str; 16] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// A parsed source and how many nodes it has.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) root: Expr,
    pub(crate) nodes: usize,
}

/// Parses a source.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn parse(source: &str) -> Result<Parsed, Issue> {
    let length = source.chars().count();
    if length > MAX_LENGTH {
        let what = format!("expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}");
        return Err(Issue { at: 0, what });
    }
    let mut parser = Parser { tokens: tokens(source)?, next: 0, nodes: 0, depth: 0 };
    let root = parser.expr()?;
    let rest = parser.peek().clone();
    if rest.token != Token::End {
        let what = format!("Syntax error: extraneous input '{}' expecting <EOF>", rest.raw);
        return Err(Issue { at: rest.at, what });
    }
    Ok(Parsed { root, nodes: parser.nodes })
}

fn not_too_deep(expr: &Expr) -> Result<(), Issue> {
    if expr.depth <= MAX_TREE {
        return Ok(());
    }
    Err(Issue { at: expr.at, what: format!("expression recursion limit exceeded: {MAX_TREE}") })
}

struct Parser {
    tokens: Vec<Spanned>,
    next: usize,
    nodes: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Spanned {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> Spanned {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek().token, Token::Sign(s) if s == sign)
    }

    /// Takes a sign if it stands here; where it stood.
    fn eat(&mut self, sign: &str) -> Option<usize> {
        self.is(sign).then(|| self.take().at)
    }

    fn want(&mut self, sign: &str) -> Result<usize, Issue> {
        self.eat(sign).ok_or_else(|| self.mismatch(&format!("'{sign}'")))
    }

    fn mismatch(&self, wanted: &str) -> Issue {
        let token = self.peek();
        Issue {
            at: token.at,
            what: format!("Syntax error: mismatched input '{}' expecting {wanted}", token.raw),
        }
    }

    fn node(&mut self, at: usize, kind: Kind) -> Expr {
        self.nodes += 1;
        Expr { id: self.nodes - 1, at, depth: 1 + kind.depth_below(), kind }
    }

    fn call(&mut self, at: usize, name: &str, member: bool, args: Vec<Expr>) -> Expr {
        self.node(at, Kind::Call { name: name.to_owned(), member, args })
    }

    fn expr(&mut self) -> Result<Expr, Issue> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let what = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            return Err(Issue { at: self.peek().at, what });
        }
        let condition = self.chain(0)?;
        let out = match self.eat("?") {
            Some(at) => {
                let yes = self.chain(0)?;
                self.want(":")?;
                let no = self.expr()?;
                self.call(at, "_?_:_", false, vec![condition, yes, no])
            }
            None => condition,
        };
        self.depth -= 1;
        Ok(out)
    }

    /// `||`, `&&`, relations, sums, products: each binds tighter than the one before.
    fn chain(&mut self, level: usize) -> Result<Expr, Issue> {
        const LEVELS: [&[(&str, &str)]; 5] = [
            &[("||", "_||_")],
            &[("&&", "_&&_")],
            &[
                ("<=", "_<=_"),
                ("<", "_<_"),
                (">=", "_>=_"),
                (">", "_>_"),
                ("==", "_==_"),
                ("!=", "_!=_"),
                ("in", "@in"),
            ],
            &[("+", "_+_"), ("-", "_-_")],
            &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
        ];
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.chain(level + 1)?;
        loop {
            let found = operators.iter().find(|(sign, _)| match &self.peek().token {
                Token::Sign(s) => s == sign,
                Token::Ident(name) => name == sign,
                _ => false,
            });
            let Some((_, function)) = found else { return Ok(left) };
            let at = self.take().at;
            let right = self.chain(level + 1)?;
            left = self.call(at, function, false, vec![left, right]);
            not_too_deep(&left)?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Issue> {
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let Some(at) = self.eat(sign) else { continue };
            let mut count = 1;
            // A minus before a number belongs to it.
            if sign == "-" {
                match self.peek().token.clone() {
                    Token::Int(number) => {
                        self.take();
                        let literal = self.node(at, Kind::Literal(Literal::Int(-number)));
                        return self.member(literal);
                    }
                    Token::TooLarge(_) => {
                        self.take();
                        let literal = self.node(at, Kind::Literal(Literal::Int(i64::MIN)));
                        return self.member(literal);
                    }
                    Token::Double(number) => {
                        self.take();
                        let literal = self.node(at, Kind::Literal(Literal::Double(-number)));
                        return self.member(literal);
                    }
                    _ => {}
                }
            }
            while self.eat(sign).is_some() {
                count += 1;
            }
            let primary = self.primary()?;
            let operand = self.member(primary)?;
            return Ok(if count % 2 == 1 { self.call(at, function, false, vec![operand]) } else { operand });
        }
        let primary = self.primary()?;
        self.member(primary)
    }

    fn member(&mut self, mut expr: Expr) -> Result<Expr, Issue> {
        loop {
            not_too_deep(&expr)?;
            if let Some(at) = self.eat(".") {
                let optional = self.eat("?").is_some();
                let name = self.take();
                let (Token::Ident(field) | Token::Quoted(field)) = name.token else {
                    self.next -= 1;
                    return Err(self.mismatch("IDENTIFIER"));
                };
                if !optional && let Some(open) = self.eat("(") {
                    let args = self.arguments(")")?;
                    expr = self.method(open, expr, &field, args)?;
                } else {
                    let operand = Box::new(expr);
                    expr = self.node(at, Kind::Select { operand, field, test: false, optional });
                }
            } else if let Some(at) = self.eat("[") {
                let name = if self.eat("?").is_some() { "_[?_]" } else { "_[_]" };
                let index = self.expr()?;
                self.want("]")?;
                expr = self.call(at, name, false, vec![expr, index]);
            } else {
                return Ok(expr);
            }
        }
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>, Issue> {
        let mut all = Vec::new();
        while !self.is(close) {
            all.push(self.expr()?);
            if self.eat(",").is_none() {
                break;
            }
        }
        self.want(close)?;
        Ok(all)
    }

    fn primary(&mut self) -> Result<Expr, Issue> {
        let token = self.take();
        let at = token.at;
        let literal = match token.token {
            Token::Int(number) => Literal::Int(number),
            Token::TooLarge(_) => {
                return Err(Issue { at, what: "Syntax error: invalid int literal".to_owned() });
            }
            Token::Uint(number) => Literal::Uint(number),
            Token::Double(number) => Literal::Double(number),
            Token::Text(text) => Literal::Text(text.into()),
            Token::Bytes(bytes) => Literal::Bytes(bytes.into()),
            Token::Ident(name) => match name.as_str() {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "null" => Literal::Null,
                _ => return self.ident(at, name),
            },
            Token::Sign(".") => match self.take().token {
                Token::Ident(name) => return self.ident(at, name),
                _ => {
                    self.next -= 1;
                    return Err(self.mismatch("IDENTIFIER"));
                }
            },
            Token::Sign("(") => {
                let inner = self.expr()?;
                self.want(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => {
                let mut items = Vec::new();
                while !self.is("]") {
                    let optional = self.eat("?").is_some();
                    items.push((self.expr()?, optional));
                    if self.eat(",").is_none() {
                        break;
                    }
                }
                self.want("]")?;
                return Ok(self.node(at, Kind::List(items)));
            }
            Token::Sign("{") => {
                let mut entries = Vec::new();
                while !self.is("}") {
                    let optional = self.eat("?").is_some();
                    let key = self.expr()?;
                    self.want(":")?;
                    entries.push((key, self.expr()?, optional));
                    if self.eat(",").is_none() {
                        break;
                    }
                }
                self.want("}")?;
                return Ok(self.node(at, Kind::Map(entries)));
            }
            _ => {
                self.next -= 1;
                return Err(self.mismatch(OPERAND));
            }
        };
        Ok(self.node(at, Kind::Literal(literal)))
    }

    fn ident(&mut self, at: usize, name: String) -> Result<Expr, Issue> {
        if RESERVED.contains(&name.as_str()) {
            return Err(Issue { at, what: format!("Syntax error: reserved identifier: {name}") });
        }
        let Some(open) = self.eat("(") else { return Ok(self.node(at, Kind::Ident(name))) };
        let mut args = self.arguments(")")?;
        if name == "has" && args.len() == 1 {
            return match args.remove(0) {
                Expr { kind: Kind::Select { operand, field, test: false, optional }, at, .. } => {
                    Ok(self.node(at, Kind::Select { operand, field, test: true, optional }))
                }
                other => Err(Issue { at: other.at, what: "invalid argument to has() macro".to_owned() }),
            };
        }
        Ok(self.call(open, &name, false, args))
    }

    /// A member function, or one of the macros.
    fn method(&mut self, at: usize, target: Expr, name: &str, mut args: Vec<Expr>) -> Result<Expr, Issue> {
        use FoldKind::{
            All, Exists, ExistsOne, Filter, Map, OptFlatMap, OptMap, SortBy, TransformMap, TransformMapEntry,
        };
        // Kind, how many variables, whether a filter may come before the body.
        let (kind, variables, filtered) = match (name, args.len()) {
            ("all", 2) => (All, 1, false),
            ("all", 3) => (All, 2, false),
            ("exists", 2) => (Exists, 1, false),
            ("exists", 3) => (Exists, 2, false),
            ("exists_one" | "existsOne", 2) => (ExistsOne, 1, false),
            ("exists_one" | "existsOne", 3) => (ExistsOne, 2, false),
            ("map", 2) => (Map, 1, false),
            ("map", 3) => (Map, 1, true),
            ("filter", 2) => (Filter, 1, false),
            ("transformList", 3) => (Map, 2, false),
            ("transformList", 4) => (Map, 2, true),
            ("transformMap", 3) => (TransformMap, 2, false),
            ("transformMap", 4) => (TransformMap, 2, true),
            ("transformMapEntry", 3) => (TransformMapEntry, 2, false),
            ("transformMapEntry", 4) => (TransformMapEntry, 2, true),
            ("optMap", 2) => (OptMap, 1, false),
            ("optFlatMap", 2) => (OptFlatMap, 1, false),
            ("sortBy", 2) => (SortBy, 1, false),
            _ => {
                args.insert(0, target);
                return Ok(self.call(at, name, true, args));
            }
        };
        let mut names = Vec::new();
        for variable in args.drain(..variables) {
            match variable.kind {
                Kind::Ident(name) => names.push(name),
                _ => {
                    let what = "argument must be a simple name".to_owned();
                    return Err(Issue { at: variable.at, what });
                }
            }
        }
        let mut names = names.into_iter();
        let var = names.next().unwrap_or_default();
        let mut args = args.into_iter();
        let filter = if filtered { args.next() } else { None };
        let Some(body) = args.next() else {
            return Err(Issue { at, what: "a macro without a body".to_owned() });
        };
        let fold = Fold { kind, range: target, var, var2: names.next(), filter, body };
        Ok(self.node(at, Kind::Fold(Box::new(fold))))
    }
}
