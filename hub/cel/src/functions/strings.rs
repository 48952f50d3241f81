//! Strings and regular expressions. Places are counted in characters.

use std::borrow::Cow;

use super::{Answer, Regexes, format, no_overload};
use crate::value::Val;

/// Rewrites Go's RE2 to our dialect: classes are ASCII there.
pub(crate) fn compile(pattern: &str) -> Result<regex::Regex, String> {
    let mut out = String::with_capacity(pattern.len());
    let (mut chars, mut class) = (pattern.chars().peekable(), false);
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('d' | 'w' | 's' | 'D' | 'W' | 'S')) => {
                    let set = match c.to_ascii_lowercase() {
                        'd' => "0-9",
                        'w' => "0-9A-Za-z_",
                        _ => r"\t\n\f\r ",
                    };
                    let not = if c.is_ascii_uppercase() { "^" } else { "" };
                    out.push_str(&if class && not.is_empty() {
                        set.to_owned()
                    } else {
                        format!("[{not}{set}]")
                    });
                }
                Some('b') => out.push_str(r"(?-u:\b)"),
                Some('B') => out.push_str(r"(?-u:\B)"),
                Some('z') => out.push_str(r"\z"),
                Some(c) => {
                    out.push('\\');
                    out.push(c);
                }
                None => out.push('\\'),
            },
            '[' if class && chars.peek() != Some(&':') => out.push_str(r"\["),
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            '[' if !class => {
                class = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.extend(chars.next());
                }
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str(r"\]");
                }
            }
            ']' => {
                class = false;
                out.push(']');
            }
            c => out.push(c),
        }
    }
    regex::RegexBuilder::new(&out).size_limit(1 << 20).build().map_err(|error| error.to_string())
}

/// Functions with a regular expression.
pub(super) fn regex<'a>(name: &str, args: &[Val<'a>], known: &Regexes) -> Answer<'a> {
    let (text, pattern, limit) = match args {
        [Val::Text(text), Val::Text(pattern)] => (text, pattern, -1),
        [Val::Text(text), Val::Text(pattern), Val::Int(limit)] => (text, pattern, *limit),
        _ => return no_overload(),
    };
    let made;
    let regex = match known.get(&**pattern) {
        Some(regex) => regex,
        None => {
            made = compile(pattern)?;
            &made
        }
    };
    Ok(match name {
        "matches" => Val::Bool(regex.is_match(text)),
        "find" => Val::text(regex.find(text).map_or("", |found| found.as_str())),
        _ => {
            let all = regex.find_iter(text).map(|found| Val::text(found.as_str()));
            Val::list(match usize::try_from(limit) {
                Ok(limit) => all.take(limit).collect(),
                Err(_) => all.collect(),
            })
        }
    })
}

fn at(index: i64, length: usize) -> Result<usize, String> {
    usize::try_from(index).ok().filter(|i| *i <= length).ok_or_else(|| format!("index out of range: {index}"))
}

fn int<'a>(n: usize) -> Val<'a> {
    Val::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Where `part` begins in `text`, looked for from `from` on, or back from there.
fn find(text: &str, part: &str, from: Option<i64>, last: bool) -> Result<i64, String> {
    let chars: Vec<char> = text.chars().collect();
    let part: Vec<char> = part.chars().collect();
    let from = from.map(|i| at(i, chars.len())).transpose()?;
    let fits = |start: usize| chars.get(start..start + part.len()) == Some(&part[..]);
    let end = chars.len().checked_sub(part.len());
    let found = end.and_then(|end| {
        if last {
            (0..=from.unwrap_or(end).min(end)).rev().find(|i| fits(*i))
        } else {
            (from.unwrap_or(0)..=end).find(|i| fits(*i))
        }
    });
    Ok(found.map_or(-1, |i| i64::try_from(i).unwrap_or(i64::MAX)))
}

fn cut(text: &str, from: i64, to: Option<i64>) -> Result<String, String> {
    let chars: Vec<char> = text.chars().collect();
    let from = at(from, chars.len())?;
    let to = to.map_or(Ok(chars.len()), |to| at(to, chars.len()))?;
    if from > to {
        return Err(format!("invalid substring range. start: {from}, end: {to}"));
    }
    Ok(chars[from..to].iter().collect())
}

pub(super) fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    let (text, rest) = match args.split_first()? {
        (Val::Text(text), rest) => (text, rest),
        (Val::List(_), _) if name == "join" => return Some(join(args)),
        _ => return None,
    };
    let made = |text: Result<String, String>| text.map(Val::text);
    Some(match (name, rest) {
        ("contains", [Val::Text(part)]) => Ok(Val::Bool(text.contains(&**part))),
        ("startsWith", [Val::Text(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::Text(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("charAt", [Val::Int(index)]) => {
            let chars: Vec<char> = text.chars().collect();
            made(at(*index, chars.len()).map(|i| chars.get(i).map(char::to_string).unwrap_or_default()))
        }
        ("indexOf", [Val::Text(part)]) => find(text, part, None, false).map(Val::Int),
        ("indexOf", [Val::Text(part), Val::Int(from)]) => find(text, part, Some(*from), false).map(Val::Int),
        ("lastIndexOf", [Val::Text(part)]) => find(text, part, None, true).map(Val::Int),
        ("lastIndexOf", [Val::Text(part), Val::Int(from)]) => {
            find(text, part, Some(*from), true).map(Val::Int)
        }
        ("lowerAscii", []) => Ok(Val::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(text.trim())),
        ("replace", [Val::Text(from), Val::Text(to)]) => Ok(Val::text(text.replace(&**from, to))),
        ("replace", [Val::Text(from), Val::Text(to), Val::Int(limit)]) => {
            Ok(Val::text(match usize::try_from(*limit) {
                Ok(limit) => text.replacen(&**from, to, limit),
                Err(_) => text.replace(&**from, to),
            }))
        }
        ("split", [Val::Text(by)]) => Ok(split(text, by, -1)),
        ("split", [Val::Text(by), Val::Int(limit)]) => Ok(split(text, by, *limit)),
        ("substring", [Val::Int(from)]) => made(cut(text, *from, None)),
        ("substring", [Val::Int(from), Val::Int(to)]) => made(cut(text, *from, Some(*to))),
        ("format", [Val::List(list)]) => {
            list.items().and_then(|items| format::format(text, &items)).map(Val::text)
        }
        ("strings.quote", []) => Ok(Val::text(quote(text))),
        ("reverse", []) => Ok(Val::text(text.chars().rev().collect::<String>())),
        ("size", []) => Ok(int(text.chars().count())),
        _ => return None,
    })
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str(r"\a"),
            '\u{8}' => out.push_str(r"\b"),
            '\u{c}' => out.push_str(r"\f"),
            '\n' => out.push_str(r"\n"),
            '\r' => out.push_str(r"\r"),
            '\t' => out.push_str(r"\t"),
            '\u{b}' => out.push_str(r"\v"),
            '\\' => out.push_str(r"\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn split<'a>(text: &str, by: &str, limit: i64) -> Val<'a> {
    let parts: Vec<Cow<'_, str>> = match (limit, by.is_empty()) {
        (0, _) => Vec::new(),
        (1, _) => vec![Cow::Borrowed(text)],
        (n, true) => {
            let count = usize::try_from(n).unwrap_or(usize::MAX);
            let mut all: Vec<Cow<'_, str>> = Vec::new();
            let mut rest = text;
            while let Some(c) = rest.chars().next() {
                if all.len() + 1 == count {
                    break;
                }
                all.push(Cow::Borrowed(&rest[..c.len_utf8()]));
                rest = &rest[c.len_utf8()..];
            }
            if !rest.is_empty() {
                all.push(Cow::Borrowed(rest));
            }
            all
        }
        (n, false) => match usize::try_from(n) {
            Ok(n) => text.splitn(n, by).map(Cow::Borrowed).collect(),
            Err(_) => text.split(by).map(Cow::Borrowed).collect(),
        },
    };
    Val::list(parts.into_iter().map(Val::text).collect())
}

fn join<'a>(args: &[Val<'a>]) -> Answer<'a> {
    let (list, between) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::Text(between)] => (list, &**between),
        _ => return no_overload(),
    };
    let mut parts = Vec::new();
    for item in list.items()? {
        match item {
            Val::Text(text) => parts.push(text),
            _ => return no_overload(),
        }
    }
    Ok(Val::text(parts.join(between)))
}
