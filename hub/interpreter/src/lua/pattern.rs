//! Lua's patterns, with a bound on the work: Lua's own matcher backtracks without looking at a clock.
//!
//! The language is that of Lua 5.1: classes (`%a`), sets, `* + - ?`, captures, `%b`, `%f`, back references, anchors.

/// A capture of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// From here, and not closed yet.
    Open(usize),
    /// The place itself, as `()` asks.
    Position(usize),
    /// From here, that many bytes.
    Span(usize, usize),
}

/// Captures that a pattern may have, as in Lua.
const CAPTURES: usize = 32;
/// How deep matching may recurse.
const DEPTH: u32 = 180;

/// One match: where it begins and ends, and what it captured.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) captures: Vec<Capture>,
}

/// A pattern on a text.
pub(super) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    anchored: bool,
    /// Steps that may still be taken.
    steps: &'a mut u64,
    captures: Vec<Capture>,
    depth: u32,
}

type Found = Result<Option<usize>, String>;

impl<'a> Matcher<'a> {
    /// A matcher that takes at most so many steps. With `anchor`, a leading `^` binds the match to its start.
    pub(super) fn new(text: &'a [u8], pattern: &'a [u8], anchor: bool, steps: &'a mut u64) -> Self {
        let anchored = anchor && pattern.first() == Some(&b'^');
        let pattern = if anchored { &pattern[1..] } else { pattern };
        Self { text, pattern, anchored, steps, captures: Vec::new(), depth: 0 }
    }

    /// The first match that begins at `from` or later.
    pub(super) fn find(&mut self, from: usize) -> Result<Option<Match>, String> {
        for start in from..=self.text.len() {
            self.captures.clear();
            if let Some(end) = self.run(start, 0)? {
                if self.captures.iter().any(|c| matches!(c, Capture::Open(_))) {
                    return Err("unfinished capture".to_owned());
                }
                return Ok(Some(Match { start, end, captures: std::mem::take(&mut self.captures) }));
            }
            if self.anchored {
                break;
            }
        }
        Ok(None)
    }

    fn step(&mut self) -> Result<(), String> {
        *self.steps = self.steps.checked_sub(1).ok_or("matching patterns takes too long")?;
        Ok(())
    }

    fn run(&mut self, s: usize, p: usize) -> Found {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("pattern too complex".to_owned());
        }
        let found = self.follow(s, p);
        self.depth -= 1;
        found
    }

    fn follow(&mut self, mut s: usize, mut p: usize) -> Found {
        loop {
            self.step()?;
            let Some(&c) = self.pattern.get(p) else { return Ok(Some(s)) };
            match (c, self.pattern.get(p + 1)) {
                (b'(', Some(b')')) => return self.capture(Capture::Position(s), s, p + 2),
                (b'(', _) => return self.capture(Capture::Open(s), s, p + 1),
                (b')', _) => return self.close(s, p + 1),
                (b'$', None) => return Ok((s == self.text.len()).then_some(s)),
                (b'%', Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    if self.pattern.get(p + 2) != Some(&b'[') {
                        return Err("missing '[' after '%f' in pattern".to_owned());
                    }
                    let end = self.class_end(p + 2)?;
                    let before = s.checked_sub(1).map_or(0, |i| self.text[i]);
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.in_set(before, p + 2, end) || !self.in_set(here, p + 2, end) {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', Some(digit @ b'0'..=b'9')) => match self.back_reference(s, *digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(p)?;
                    let fits = self.fits(s, p, end);
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if fits && let Some(found) = self.run(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.longest(s, p, end),
                        Some(b'+') => return if fits { self.longest(s + 1, p, end) } else { Ok(None) },
                        Some(b'-') => return self.shortest(s, p, end),
                        _ if fits => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Found {
        let mut count = 0;
        while self.fits(s + count, p, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.run(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.fits(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn capture(&mut self, capture: Capture, s: usize, p: usize) -> Found {
        if self.captures.len() >= CAPTURES {
            return Err("too many captures".to_owned());
        }
        self.captures.push(capture);
        let depth = self.captures.len();
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures.truncate(depth - 1);
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Found {
        let open = self.captures.iter().rposition(|c| matches!(c, Capture::Open(_)));
        let Some(index) = open else { return Err("invalid pattern capture".to_owned()) };
        let Capture::Open(start) = self.captures[index] else { return Ok(None) };
        self.captures[index] = Capture::Span(start, s - start);
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[index] = Capture::Open(start);
        }
        Ok(found)
    }

    fn balanced(&mut self, s: usize, p: usize) -> Found {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err("unbalanced pattern".to_owned());
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            let c = self.text[at];
            if c == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if c == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Found {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        match index.and_then(|i| self.captures.get(i)) {
            Some(Capture::Span(start, length)) => {
                let wanted = &self.text[*start..start + length];
                Ok(self.text[s..].starts_with(wanted).then_some(s + length))
            }
            Some(Capture::Position(_)) => Ok(None),
            _ => Err("invalid capture index".to_owned()),
        }
    }

    /// Where the single-character class that begins at `p` ends.
    fn class_end(&self, p: usize) -> Result<usize, String> {
        match self.pattern.get(p) {
            Some(b'%') if p + 1 >= self.pattern.len() => Err("malformed pattern (ends with '%')".to_owned()),
            Some(b'%') => Ok(p + 2),
            Some(b'[') => {
                let mut at = p + 1 + usize::from(self.pattern.get(p + 1) == Some(&b'^'));
                loop {
                    match self.pattern.get(at) {
                        None => return Err("malformed pattern (missing ']')".to_owned()),
                        Some(b'%') => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the character at `s` is of the class at `p`.
    fn fits(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&c) = self.text.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => is_class(c, self.pattern[p + 1]),
            b'[' => self.in_set(c, p, end),
            literal => literal == c,
        }
    }

    /// Whether a character is of the set that stands from `p` to before `end`.
    fn in_set(&self, c: u8, p: usize, end: usize) -> bool {
        let negated = self.pattern.get(p + 1) == Some(&b'^');
        let mut at = p + 1 + usize::from(negated);
        let last = end - 1;
        let mut found = false;
        while at < last {
            let here = self.pattern[at];
            if here == b'%' && at + 1 < last {
                found |= is_class(c, self.pattern[at + 1]);
                at += 2;
            } else if at + 2 < last && self.pattern[at + 1] == b'-' {
                found |= (here..=self.pattern[at + 2]).contains(&c);
                at += 3;
            } else {
                found |= here == c;
                at += 1;
            }
        }
        found != negated
    }
}

/// Whether a character is of a class such as `%a`; the upper-case letter means all others.
fn is_class(c: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => c.is_ascii_alphabetic(),
        b'c' => c.is_ascii_control(),
        b'd' => c.is_ascii_digit(),
        b'l' => c.is_ascii_lowercase(),
        b'p' => c.is_ascii_punctuation(),
        b's' => c.is_ascii_whitespace() || c == 0x0b,
        b'u' => c.is_ascii_uppercase(),
        b'w' => c.is_ascii_alphanumeric(),
        b'x' => c.is_ascii_hexdigit(),
        b'z' => c == 0,
        _ => return class == c,
    };
    is != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, pattern: &str) -> Result<Option<(usize, usize, Vec<Capture>)>, String> {
        let mut steps = 100_000;
        let found = Matcher::new(text.as_bytes(), pattern.as_bytes(), true, &mut steps).find(0)?;
        Ok(found.map(|m| (m.start, m.end, m.captures)))
    }

    #[test]
    fn patterns_match_as_in_lua() {
        use Capture::{Position, Span};
        for (text, pattern, expected) in [
            ("hello world", "o w", Some((4, 7, vec![]))),
            ("hello", "l+", Some((2, 4, vec![]))),
            ("hello", "^ell", None),
            ("hello", "lo$", Some((3, 5, vec![]))),
            ("key = value", "(%w+)%s*=%s*(%w+)", Some((0, 11, vec![Span(0, 3), Span(6, 5)]))),
            ("<<a>b>", "<(.-)>", Some((0, 4, vec![Span(1, 2)]))),
            ("f(a(b)c)d", "%b()", Some((1, 8, vec![]))),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some((0, 3, vec![]))),
            ("say \"hi\" x", "([\"'])(.-)%1", Some((4, 8, vec![Span(4, 1), Span(5, 2)]))),
            ("abc", "()b()", Some((1, 2, vec![Position(1), Position(2)]))),
            ("a-b", "[a%-]+", Some((0, 2, vec![]))),
            ("x]y", "[]]", Some((1, 2, vec![]))),
            ("123abc", "[^%d]+", Some((3, 6, vec![]))),
            ("colour", "colou?r", Some((0, 6, vec![]))),
            ("", "", Some((0, 0, vec![]))),
            ("a.b", "%.", Some((1, 2, vec![]))),
            ("0x1F", "^0x%x+$", Some((0, 4, vec![]))),
        ] {
            assert_eq!(find(text, pattern).unwrap(), expected, "{text} {pattern}");
        }
    }

    #[test]
    fn malformed_patterns_are_told() {
        for (pattern, message) in [
            ("[a", "malformed pattern (missing ']')"),
            ("%", "malformed pattern (ends with '%')"),
            ("(a", "unfinished capture"),
            ("a)", "invalid pattern capture"),
            ("%1", "invalid capture index"),
            ("%f", "missing '[' after '%f' in pattern"),
            ("%b", "unbalanced pattern"),
        ] {
            assert_eq!(find("aaa", pattern).unwrap_err(), message, "{pattern}");
        }
        assert_eq!(find(&"a".repeat(200), "a-a-a-a-a-a-b").unwrap_err(), "matching patterns takes too long");
    }

    proptest::proptest! {
        #[test]
        fn no_pattern_panics(text in "[ab%(]{0,12}", pattern in "[\\[\\]ab%()*+\\-?.^$1bf]{0,10}") {
            let _ = find(&text, &pattern);
        }
    }
}
