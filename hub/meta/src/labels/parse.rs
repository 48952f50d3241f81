//! The grammar of label selectors in a query string:
//!
//! ```text
//!   selector    = requirement *( "," requirement )
//!   requirement = ["!"] key | key set | key exact
//!   set         = ("in" | "notin") "(" value *( "," value ) ")"
//!   exact       = ("=" | "==" | "!=" | ">" | "<") value
//! ```
//!
//! `in` and `notin` are only words of the grammar where an operator may stand; elsewhere they are names.

use super::{Bounds, InvalidSelector, Operator, Requirement};
use crate::{
    names,
    path::{FieldError, Path},
};

/// What a lexeme is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Identifier,
    Comma,
    Open,
    Close,
    Not,
    Binary(Operator),
}

/// What an operator may be, in a message.
const BINARY: &str = "in, notin, =, ==, !=, gt, lt";

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// The longest token of special characters at the start of `text`.
fn special(text: &str) -> Option<(Token, usize)> {
    const TABLE: [(&str, Token); 9] = [
        ("==", Token::Binary(Operator::DoubleEquals)),
        ("!=", Token::Binary(Operator::NotEquals)),
        ("=", Token::Binary(Operator::Equals)),
        (">", Token::Binary(Operator::GreaterThan)),
        ("<", Token::Binary(Operator::LessThan)),
        ("!", Token::Not),
        ("(", Token::Open),
        (")", Token::Close),
        (",", Token::Comma),
    ];
    TABLE
        .iter()
        .find(|(literal, _)| text.starts_with(literal))
        .map(|(literal, token)| (*token, literal.len()))
}

/// The token at the start of a text, with what is left behind it.
fn lex(text: &str) -> ((Token, &str), &str) {
    if text.is_empty() {
        return ((Token::End, ""), text);
    }
    let (token, len) = special(text).unwrap_or_else(|| {
        let len = text.find(|c| is_space(c) || is_special(c)).unwrap_or(text.len());
        let token = match &text[..len] {
            "in" => Token::Binary(Operator::In),
            "notin" => Token::Binary(Operator::NotIn),
            _ => Token::Identifier,
        };
        (token, len)
    });
    let (literal, rest) = text.split_at(len);
    ((token, literal), rest.trim_start_matches(is_space))
}

/// Reads token by token, and nothing behind what is wrong or too much.
struct Parser<'a> {
    ahead: (Token, &'a str),
    rest: &'a str,
    bounds: Bounds,
    /// Values so far.
    values: usize,
}

fn error<T>(message: String) -> Result<T, InvalidSelector> {
    Err(InvalidSelector::Unreadable(message))
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, bounds: Bounds) -> Self {
        let (ahead, rest) = lex(text.trim_start_matches(is_space));
        Self { ahead, rest, bounds, values: 0 }
    }

    /// The next token where an operator may stand.
    fn peek_operator(&self) -> (Token, &'a str) {
        self.ahead
    }

    fn skip(&mut self) {
        (self.ahead, self.rest) = lex(self.rest);
    }

    /// One more value, if there may be one.
    fn add(&mut self, values: &mut Vec<String>, value: &str) -> Result<(), InvalidSelector> {
        self.values += 1;
        let most = self.bounds.values;
        if self.values > most {
            return Err(InvalidSelector::TooLarge { most, what: "values" });
        }
        values.push(value.to_owned());
        Ok(())
    }

    /// The next token where a name may stand.
    fn peek(&self) -> (Token, &'a str) {
        match self.peek_operator() {
            (Token::Binary(Operator::In | Operator::NotIn), literal) => (Token::Identifier, literal),
            other => other,
        }
    }

    fn next(&mut self) -> (Token, &'a str) {
        let token = self.peek();
        self.skip();
        token
    }

    fn requirement(&mut self) -> Result<Requirement, InvalidSelector> {
        let (mut token, mut key) = self.next();
        let absent = token == Token::Not;
        if absent {
            (token, key) = self.next();
        }
        if token != Token::Identifier {
            return error(format!("found '{key}', expected: identifier"));
        }
        // Checked before what follows is looked at, so that a bad key is what the user hears about. There is no
        // path to it here, which Go prints so.
        if let Err(e) = names::qualified_name(key) {
            return error(FieldError::invalid(&Path::new("<nil>"), key, e).to_string());
        }
        if absent {
            return Requirement::new(key, Operator::DoesNotExist, []);
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, []);
        }
        let (token, literal) = self.peek_operator();
        self.skip();
        let Token::Binary(operator) = token else {
            return error(format!("found '{literal}', expected: {BINARY}"));
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn values(&mut self) -> Result<Vec<String>, InvalidSelector> {
        let (token, literal) = self.next();
        if token != Token::Open {
            return error(format!("found '{literal}' expected: '('"));
        }
        match self.peek() {
            (Token::Identifier | Token::Comma, _) => {
                let values = self.identifiers()?;
                self.next();
                Ok(values)
            }
            (Token::Close, _) => {
                self.next();
                Ok(vec![String::new()])
            }
            (_, literal) => error(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
    }

    /// Names between commas, up to but without the closing parenthesis. A missing name is the empty value.
    fn identifiers(&mut self) -> Result<Vec<String>, InvalidSelector> {
        let mut values = Vec::new();
        loop {
            match self.next() {
                (Token::Identifier, literal) => {
                    self.add(&mut values, literal)?;
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, literal) => return error(format!("found '{literal}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        self.add(&mut values, "")?;
                    }
                    match self.peek().0 {
                        Token::Close => {
                            self.add(&mut values, "")?;
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.next();
                            self.add(&mut values, "")?;
                        }
                        _ => {}
                    }
                }
                (_, literal) => return error(format!("found '{literal}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, InvalidSelector> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            (Token::Identifier, literal) => Ok(literal.to_owned()),
            (_, literal) => error(format!("found '{literal}', expected: identifier")),
        }
    }
}

/// The requirements of a selector, in the order written.
pub(super) fn parse(text: &str, bounds: Bounds) -> Result<Vec<Requirement>, InvalidSelector> {
    let mut parser = Parser::new(text, bounds);
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (Token::Identifier | Token::Not, _) if requirements.len() == bounds.requirements => {
                return Err(InvalidSelector::TooLarge { most: bounds.requirements, what: "requirements" });
            }
            (Token::Identifier | Token::Not, _) => {
                let requirement = parser.requirement().map_err(|e| match e {
                    InvalidSelector::Unreadable(why) => {
                        InvalidSelector::Unreadable(format!("unable to parse requirement: {why}"))
                    }
                    too_large @ InvalidSelector::TooLarge { .. } => too_large,
                })?;
                requirements.push(requirement);
                match parser.next() {
                    (Token::End, _) => return Ok(requirements),
                    (Token::Comma, _) => {
                        let (token, literal) = parser.peek();
                        if !matches!(token, Token::Identifier | Token::Not) {
                            return error(format!("found '{literal}', expected: identifier after ','"));
                        }
                    }
                    (_, literal) => {
                        return error(format!("found '{literal}', expected: ',' or 'end of string'"));
                    }
                }
            }
            (Token::End, _) => return Ok(requirements),
            (_, literal) => {
                return error(format!("found '{literal}', expected: !, identifier, or 'end of string'"));
            }
        }
    }
}
