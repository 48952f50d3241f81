//! Characters to tokens.

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Ident(String),
    /// A name in backquotes, for fields alone.
    Quoted(String),
    Int(i64),
    /// 9223372036854775808, which is a number only behind a minus.
    TooLarge(String),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// A token, where it begins (in characters), and how it was written.
#[derive(Clone, Debug)]
pub(crate) struct Spanned {
    pub(crate) token: Token,
    pub(crate) at: usize,
    pub(crate) raw: String,
}

/// A place and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub(crate) at: usize,
    pub(crate) what: String,
}

const SIGNS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}", "=",
];

/// Splits a source.
///
/// # Errors
/// The first thing that is no token.
pub(crate) fn tokens(source: &str) -> Result<Vec<Spanned>, Issue> {
    let chars: Vec<char> = source.chars().collect();
    let mut lexer = Lexer { chars: &chars, at: 0 };
    let mut all = Vec::new();
    loop {
        lexer.skip_blank();
        let at = lexer.at;
        let token = lexer.token()?;
        let raw: String = chars[at..lexer.at].iter().collect();
        let end = token == Token::End;
        all.push(Spanned { token, at, raw: if end { "<EOF>".to_owned() } else { raw } });
        if end {
            return Ok(all);
        }
    }
}

struct Lexer<'c> {
    chars: &'c [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn skip_blank(&mut self) {
        while self.at < self.chars.len() {
            if self.peek(0).is_whitespace() {
                self.at += 1;
            } else if self.peek(0) == '/' && self.peek(1) == '/' {
                while self.at < self.chars.len() && self.peek(0) != '\n' {
                    self.at += 1;
                }
            } else {
                return;
            }
        }
    }

    fn token(&mut self) -> Result<Token, Issue> {
        if self.at >= self.chars.len() {
            return Ok(Token::End);
        }
        let first = self.peek(0);
        if let Some(text) = self.string()? {
            return Ok(text);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let start = self.at;
            while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == '_' {
                self.at += 1;
            }
            return Ok(Token::Ident(self.chars[start..self.at].iter().collect()));
        }
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_ascii_digit()) {
            return self.number();
        }
        if first == '`' {
            let start = self.at + 1;
            let length = self.chars[start..].iter().position(|c| *c == '`');
            let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ');
            if let Some(length) = length.filter(|n| self.chars[start..start + n].iter().all(allowed)) {
                self.at = start + length + 1;
                return Ok(Token::Quoted(self.chars[start..start + length].iter().collect()));
            }
        }
        for sign in SIGNS {
            let length = sign.chars().count();
            if sign.chars().enumerate().all(|(i, c)| self.peek(i) == c) && sign != "=" {
                self.at += length;
                return Ok(Token::Sign(sign));
            }
        }
        Err(Issue { at: self.at, what: format!("Syntax error: token recognition error at: '{first}'") })
    }

    fn number(&mut self) -> Result<Token, Issue> {
        let start = self.at;
        let bad = |what: &str| Issue { at: start, what: format!("Syntax error: {what}") };
        if self.peek(0) == '0' && matches!(self.peek(1), 'x' | 'X') {
            self.at += 2;
            while self.peek(0).is_ascii_hexdigit() {
                self.at += 1;
            }
            let digits: String = self.chars[start + 2..self.at].iter().collect();
            if matches!(self.peek(0), 'u' | 'U') {
                self.at += 1;
                return u64::from_str_radix(&digits, 16)
                    .map(Token::Uint)
                    .map_err(|_| bad("invalid uint literal"));
            }
            return i64::from_str_radix(&digits, 16).map(Token::Int).map_err(|_| bad("invalid int literal"));
        }
        let digits = |lexer: &mut Self| {
            while lexer.peek(0).is_ascii_digit() {
                lexer.at += 1;
            }
        };
        digits(self);
        let mut float = false;
        if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
            float = true;
            self.at += 1;
            digits(self);
        }
        let signed = usize::from(matches!(self.peek(1), '+' | '-'));
        if matches!(self.peek(0), 'e' | 'E') && self.peek(1 + signed).is_ascii_digit() {
            float = true;
            self.at += 1 + signed;
            digits(self);
        }
        let text: String = self.chars[start..self.at].iter().collect();
        if float {
            return text.parse().map(Token::Double).map_err(|_| bad("invalid double literal"));
        }
        if matches!(self.peek(0), 'u' | 'U') {
            self.at += 1;
            return text.parse().map(Token::Uint).map_err(|_| bad("invalid uint literal"));
        }
        match text.parse() {
            Ok(number) => Ok(Token::Int(number)),
            Err(_) if text == "9223372036854775808" => Ok(Token::TooLarge(text)),
            Err(_) => Err(bad("invalid int literal")),
        }
    }

    /// A string or bytes, if one begins here.
    fn string(&mut self) -> Result<Option<Token>, Issue> {
        let start = self.at;
        let (mut raw, mut bytes, mut prefix) = (false, false, 0);
        while prefix < 2 {
            match self.peek(prefix) {
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes => bytes = true,
                _ => break,
            }
            prefix += 1;
        }
        let quote = self.peek(prefix);
        if !matches!(quote, '"' | '\'') {
            return Ok(None);
        }
        let open = Issue {
            at: start,
            what: format!(
                "Syntax error: token recognition error at: '{}'",
                self.chars[start..].iter().collect::<String>()
            ),
        };
        let long = self.peek(prefix + 1) == quote && self.peek(prefix + 2) == quote;
        self.at += prefix + if long { 3 } else { 1 };
        let mut out: Vec<u8> = Vec::new();
        let push = |out: &mut Vec<u8>, c: char| out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
        loop {
            if self.at >= self.chars.len() || (!long && self.peek(0) == '\n') {
                return Err(open);
            }
            let c = self.peek(0);
            if c == quote && (!long || (self.peek(1) == quote && self.peek(2) == quote)) {
                self.at += if long { 3 } else { 1 };
                break;
            }
            self.at += 1;
            if c != '\\' {
                push(&mut out, c);
            } else if raw {
                push(&mut out, c);
                if self.at < self.chars.len() {
                    push(&mut out, self.peek(0));
                    self.at += 1;
                }
            } else {
                self.escape(&mut out, bytes).ok_or_else(|| open.clone())?;
            }
        }
        Ok(Some(if bytes {
            Token::Bytes(out)
        } else {
            Token::Text(String::from_utf8(out).map_err(|_| open)?)
        }))
    }

    /// What follows a backslash. A number names a character, in bytes a byte.
    fn escape(&mut self, out: &mut Vec<u8>, bytes: bool) -> Option<()> {
        let c = self.peek(0);
        self.at += 1;
        let plain = match c {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' | '\'' | '"' | '`' | '?' => c,
            _ => {
                let (skip, count, radix) = match c {
                    'x' | 'X' => (0, 2, 16),
                    'u' => (0, 4, 16),
                    'U' => (0, 8, 16),
                    '0'..='3' => (1, 3, 8),
                    _ => return None,
                };
                let start = self.at - skip;
                let digits: String = self.chars.get(start..start + count)?.iter().collect();
                let code = u32::from_str_radix(&digits, radix).ok()?;
                self.at = start + count;
                if bytes && count < 4 {
                    out.push(u8::try_from(code).ok()?);
                    return Some(());
                }
                char::from_u32(code)?
            }
        };
        out.extend(plain.encode_utf8(&mut [0; 4]).as_bytes());
        Some(())
    }
}
