//! JSONPath in Kubernetes' dialect, as printer columns, and rules for state that is to be preserved, use it.
//!
//! `.a.b`, `['a']`, `.a\.b` (a dot within a name), `[0]`, `[-1]`, `[*]`, `.*`, `..name`, and filters with one comparison:
//! `[?(@.type=="Ready")]`.

use serde_json::Value;

/// A compiled expression.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// Counted from the end when negative.
    Index(i64),
    All,
    /// This value and everything below it.
    Descend,
    Filter(Filter),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    /// Without a comparison the value has to be there.
    test: Option<(Comparison, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessEqual),
    (">=", Comparison::GreaterEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl JsonPath {
    /// Reads an expression such as `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { steps: parse_steps(text, 0)? })
    }

    /// Reads a template of one expression in braces, `{.status.jobId}`, as client-go takes it; the braces may be left out.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_template(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let inner = match (text.strip_prefix('{'), text.strip_suffix('}')) {
            (Some(rest), Some(_)) => rest.strip_suffix('}').unwrap_or(rest).trim(),
            (None, None) => text,
            _ => return Err(format!("{text:?} has an unclosed brace")),
        };
        // `$` is the root, where every expression begins anyway.
        Self::parse(inner.strip_prefix('$').unwrap_or(inner))
    }

    /// All values the expression leads to, in their order.
    pub fn all<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        select(&self.steps, value, &mut 0)
    }

    /// The first value the expression leads to.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        select(&self.steps, value, &mut 0).into_iter().next()
    }
}

/// The longest expression, in bytes: each bracket of one is looked through for its end.
const MAX_LENGTH: usize = 4 << 10;
/// How deep filters nest within filters.
const MAX_NESTED: usize = 4;
/// How many values an expression leads past before it leads nowhere: each `..` of one multiplies them.
const MAX_VISITED: usize = 1 << 18;

fn parse_steps(text: &str, nested: usize) -> Result<Vec<Step>, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("is longer than {MAX_LENGTH} bytes"));
    }
    if nested > MAX_NESTED {
        return Err(format!("filters nest deeper than {MAX_NESTED}"));
    }
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        match c {
            '.' if rest.starts_with("..") => {
                steps.push(Step::Descend);
                // A bracket may follow at once; a name is read like one behind a single dot.
                rest = if rest[2..].starts_with('[') { &rest[2..] } else { &rest[1..] };
            }
            '.' => {
                let (name, after) = read_name(&rest[1..]);
                match name.as_str() {
                    "" if after.starts_with('[') || after.is_empty() => {}
                    "" => return Err(format!("unexpected {after:?}")),
                    "*" => steps.push(Step::All),
                    _ => steps.push(Step::Field(name)),
                }
                rest = after;
            }
            '[' => {
                let end = closing(rest)?;
                steps.push(parse_bracket(rest[1..end].trim(), nested)?);
                rest = &rest[end + 1..];
            }
            other => return Err(format!("unexpected {other:?}")),
        }
    }
    Ok(steps)
}

/// A name up to the next dot or bracket; a backslash takes the next character as it is.
fn read_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (name, &text[at..]),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket that `text` begins with ends, quotes and nested brackets apart.
fn closing(text: &str) -> Result<usize, String> {
    let mut depth = 0;
    let mut quote: Option<char> = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
            _ => {}
        }
    }
    Err("unterminated array".to_owned())
}

fn parse_bracket(inner: &str, nested: usize) -> Result<Step, String> {
    if inner == "*" {
        return Ok(Step::All);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|i| i.strip_suffix(')')) {
        return Ok(Step::Filter(parse_filter(filter.trim(), nested)?));
    }
    if let Some(name) = unquote(inner) {
        return Ok(Step::Field(name));
    }
    inner.parse().map(Step::Index).map_err(|_| format!("invalid array index {inner}"))
}

fn parse_filter(text: &str, nested: usize) -> Result<Filter, String> {
    let found = COMPARISONS
        .iter()
        .filter_map(|(sign, comparison)| text.find(sign).map(|at| (at, *sign, *comparison)))
        .min_by_key(|(at, sign, _)| (*at, usize::MAX - sign.len()));
    let (left, test) = match found {
        None => (text, None),
        Some((at, sign, comparison)) => {
            let right = text[at + sign.len()..].trim();
            let value = match unquote(right) {
                Some(text) => Value::String(text),
                None => serde_json::from_str(right).map_err(|_| format!("cannot read {right:?}"))?,
            };
            (text[..at].trim(), Some((comparison, value)))
        }
    };
    let left = left.strip_prefix('@').ok_or_else(|| format!("expected @ in {text:?}"))?;
    Ok(Filter { left: parse_steps(left, nested + 1)?, test })
}

fn unquote(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(inner.replace("\\.", "."))
}

fn select<'a>(steps: &[Step], value: &'a Value, visited: &mut usize) -> Vec<&'a Value> {
    let mut current = vec![value];
    for step in steps {
        let mut next = Vec::new();
        for value in current {
            if *visited > MAX_VISITED {
                return Vec::new();
            }
            let found = apply(step, value, visited);
            *visited += 1 + found.len();
            crate::effort::spend(1 + found.len());
            next.extend(found);
        }
        current = next;
    }
    current
}

fn apply<'a>(step: &Step, value: &'a Value, visited: &mut usize) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => {
            let Some(items) = value.as_array() else { return Vec::new() };
            let at = if *index < 0 { index + items.len() as i64 } else { *index };
            usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
        }
        Step::All => children(value),
        Step::Descend => {
            let mut all = vec![value];
            let mut next = 0;
            while let Some(value) = all.get(next).copied() {
                all.extend(children(value));
                next += 1;
            }
            all
        }
        Step::Filter(filter) => {
            children(value).into_iter().filter(|item| filter.holds(item, visited)).collect()
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

impl Filter {
    fn holds(&self, item: &Value, visited: &mut usize) -> bool {
        let Some(left) = select(&self.left, item, visited).into_iter().next() else { return false };
        let Some((comparison, right)) = &self.test else { return true };
        let order = match (left, right) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (a, b) if a == b => Some(std::cmp::Ordering::Equal),
            _ => None,
        };
        match comparison {
            Comparison::Equal => order.is_some_and(|o| o.is_eq()),
            Comparison::NotEqual => !order.is_some_and(|o| o.is_eq()),
            Comparison::Less => order.is_some_and(|o| o.is_lt()),
            Comparison::LessEqual => order.is_some_and(|o| o.is_le()),
            Comparison::Greater => order.is_some_and(|o| o.is_gt()),
            Comparison::GreaterEqual => order.is_some_and(|o| o.is_ge()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each `..` of an expression multiplies what it leads to, and so does a filter within one.
    #[test]
    fn an_expression_gives_up_before_it_leads_past_too_much() {
        let mut nested = json!(1);
        for _ in 0..90 {
            nested = json!({ "a": nested });
        }
        for expression in [format!("{}a", ".".repeat(40)), "..[?(@..[?(@..a)])]..[?(@..a)]..a".to_owned()] {
            let path = JsonPath::parse(&expression).unwrap();
            let mut visited = 0;
            let _ = select(&path.steps, &nested, &mut visited);
            assert!(visited <= MAX_VISITED + 1024, "{expression}: {visited}");
        }
        let filters = format!("{}{}", "[?(@".repeat(600), ")]".repeat(600));
        assert_eq!(JsonPath::parse(&filters), Err("filters nest deeper than 4".to_owned()));
        assert!(JsonPath::parse(&"[0]".repeat(2_000)).is_err());
    }

    #[test]
    fn expressions_lead_where_kubectl_finds_them() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "dotted"}},
            "spec": {"n": 3, "list": ["x", "y"], "items": [{"k": 1, "v": "one"}, {"k": 2, "v": "two"}]},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        let cases = [
            (".spec.n", Some(json!(3))),
            (".spec.missing.deep", None),
            (".spec.list", Some(json!(["x", "y"]))),
            (".spec.list[0]", Some(json!("x"))),
            (".spec.list[-1]", Some(json!("y"))),
            (".spec.list[*]", Some(json!("x"))),
            (".spec.list[9]", None),
            (r".metadata.labels.a\.b/c", Some(json!("dotted"))),
            (".metadata.labels['a.b/c']", Some(json!("dotted"))),
            (r#".status.conditions[?(@.type=="Ready")].status"#, Some(json!("True"))),
            (".status.conditions[?(@.type=='Ready')].status", Some(json!("True"))),
            (r#".status.conditions[?(@.type!="Ready")].status"#, Some(json!("False"))),
            (r#".status.conditions[?(@.type=="None")].status"#, None),
            (".spec.items[?(@.k>1)].v", Some(json!("two"))),
            (".spec.items[?(@.v)].k", Some(json!(1))),
            ("..v", Some(json!("one"))),
        ];
        for (text, expected) in cases {
            assert_eq!(JsonPath::parse(text).unwrap().first(&object), expected.as_ref(), "{text}");
        }
        for text in ["spec", ".a[", ".a[x]", ".a[?(b)]", ".a[?(@.b==)]"] {
            assert!(JsonPath::parse(text).is_err(), "{text}");
        }
    }
}
