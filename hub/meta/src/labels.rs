//! Label selectors: the query string's grammar (`app=x,tier in (a, b),!old`) and the JSON form of specs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    go_quote, names,
    path::{FieldError, Path},
};

mod parse;

/// A label selector as objects carry it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements, all of which must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One expression of a [`LabelSelector`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[serde(default)]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[serde(default)]
    pub operator: String,
    /// What `In` and `NotIn` compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub values: Vec<String>,
}

fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

impl LabelSelector {
    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether an object with these labels is selected; one that cannot be read selects nothing. Most objects are told
    /// apart by a label that they must have and do not, before anything is made of the rest.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.to_selector().is_ok_and(|selector| selector.matches(labels))
    }

    /// What is wrong with it, by field below `path`.
    pub fn validate(&self, path: &Path) -> Vec<FieldError> {
        let mut errors = validate_labels(&self.match_labels, &path.child("matchLabels"));
        for (i, expression) in self.match_expressions.iter().enumerate() {
            let path = path.child("matchExpressions").index(i);
            let values = path.child("values");
            match expression.operator.as_str() {
                "In" | "NotIn" if expression.values.is_empty() => errors.push(FieldError::required(
                    &values,
                    "must be specified when `operator` is 'In' or 'NotIn'",
                )),
                "Exists" | "DoesNotExist" if !expression.values.is_empty() => {
                    errors.push(FieldError::forbidden(
                        &values,
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    ))
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => {
                    errors.push(FieldError::invalid(
                        &path.child("operator"),
                        other,
                        "not a valid selector operator",
                    ));
                }
            }
            let key = &path.child("key");
            errors.extend(
                names::qualified_name_errors(&expression.key)
                    .into_iter()
                    .map(|e| FieldError::invalid(key, expression.key.as_str(), e)),
            );
            for (j, value) in expression.values.iter().enumerate() {
                let at = values.index(j);
                errors.extend(
                    names::label_value_errors(value)
                        .into_iter()
                        .map(|e| FieldError::invalid(&at, value.as_str(), e)),
                );
            }
        }
        errors
    }

    /// The selector to match with. An empty one selects everything; a missing one is the caller's to decide.
    pub fn to_selector(&self) -> Result<Selector, InvalidSelector> {
        let mut requirements = Vec::with_capacity(self.match_labels.len() + self.match_expressions.len());
        for (key, value) in &self.match_labels {
            requirements.push(Requirement::new(key, Operator::Equals, [value.clone()])?);
        }
        for expression in &self.match_expressions {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(InvalidSelector::Unreadable(format!(
                        "{} is not a valid label selector operator",
                        go_quote(other)
                    )));
                }
            };
            requirements.push(Requirement::new(
                &expression.key,
                operator,
                expression.values.iter().cloned(),
            )?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Selector { requirements })
    }
}

/// What is wrong with a map of labels; all errors carry the map's own path.
pub fn validate_labels<K: AsRef<str>, V: AsRef<str>>(
    labels: impl IntoIterator<Item = (K, V)>,
    path: &Path,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        let (key, value) = (key.as_ref(), value.as_ref());
        let bad = |text: &str, e| FieldError::invalid(path, text, e);
        errors.extend(names::qualified_name_errors(key).into_iter().map(|e| bad(key, e)));
        errors.extend(names::label_value_errors(value).into_iter().map(|e| bad(value, e)));
    }
    errors
}

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// It is none; the text is kube-apiserver's.
    #[error("{0}")]
    Unreadable(String),
    /// It is larger than what is read ([`Selector::parse_within`]).
    #[error("it has more than {most} {what}")]
    TooLarge {
        /// How many there may be.
        most: usize,
        /// Of what.
        what: &'static str,
    },
}

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// `!=`: also true of objects without the label.
    NotEquals,
    /// `in`
    In,
    /// `notin`: also true of objects without the label.
    NotIn,
    /// The key alone.
    Exists,
    /// `!` before the key.
    DoesNotExist,
    /// `>`: the label is an integer greater than the value.
    GreaterThan,
    /// `<`
    LessThan,
}

/// So much at most is told to be wrong with a requirement.
const WRONG: usize = 16;

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

impl Requirement {
    /// A requirement, checked.
    pub fn new(
        key: &str,
        operator: Operator,
        values: impl IntoIterator<Item = String>,
    ) -> Result<Self, InvalidSelector> {
        let values: BTreeSet<String> = values.into_iter().collect();
        let mut errors = Vec::new();
        // A requirement has no place in an object, hence paths that begin with its own fields.
        let values_at = Path::new("values");
        if let Err(e) = names::qualified_name(key) {
            errors.push(FieldError::invalid(&Path::new("key"), key, e));
        }
        let list = || Value::from(values.iter().cloned().collect::<Vec<_>>());
        let mut wrong_number = |detail: &str| errors.push(FieldError::invalid(&values_at, list(), detail));
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                wrong_number("for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                wrong_number("exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                wrong_number("values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    wrong_number("for 'Gt', 'Lt' operators, exactly one value is required");
                }
                for (i, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(FieldError::invalid(&values_at.index(i), value.as_str(), detail));
                }
            }
            _ => {}
        }
        for (i, value) in values.iter().enumerate() {
            // What is told of each is longer than the shortest of them many times over.
            if errors.len() == WRONG {
                break;
            }
            if let Err(e) = names::label_value(value) {
                errors.push(FieldError::invalid(&values_at.index(i).key(key), value.as_str(), e));
            }
        }
        if errors.is_empty() {
            Ok(Self { key: key.to_owned(), operator, values })
        } else {
            Err(InvalidSelector::Unreadable(crate::path::aggregate(&errors)))
        }
    }

    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How it compares.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// What it compares with, in order.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(String::as_str)
    }

    /// Whether it holds for a label's value (`None`: the object has no such label).
    pub fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => {
                value.is_some_and(|v| self.values.contains(v))
            }
            Operator::NotEquals | Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compares(value, |have, want| have > want),
            Operator::LessThan => self.compares(value, |have, want| have < want),
        }
    }

    fn compares(&self, value: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let have = value.and_then(|v| v.parse().ok());
        let want = self.values.first().and_then(|v| v.parse().ok());
        have.zip(want).is_some_and(|(have, want)| holds(have, want))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = || self.values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match self.operator {
            Operator::Exists => f.write_str(&self.key),
            Operator::DoesNotExist => write!(f, "!{}", self.key),
            Operator::Equals => write!(f, "{}={}", self.key, values()),
            Operator::DoubleEquals => write!(f, "{}=={}", self.key, values()),
            Operator::NotEquals => write!(f, "{}!={}", self.key, values()),
            Operator::GreaterThan => write!(f, "{}>{}", self.key, values()),
            Operator::LessThan => write!(f, "{}<{}", self.key, values()),
            Operator::In => write!(f, "{} in ({})", self.key, values()),
            Operator::NotIn => write!(f, "{} notin ({})", self.key, values()),
        }
    }
}

/// How large a selector may be that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Requirements.
    pub requirements: usize,
    /// Values to compare with, of all requirements together.
    pub values: usize,
}

impl Bounds {
    /// As large as it is.
    pub const NONE: Self = Self { requirements: usize::MAX, values: usize::MAX };
}

/// What a text takes in memory beside its bytes: where it is, how long it is, its place in a set.
const TEXT: usize = 48;

/// A parsed selector: all requirements must hold. They stand in order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    /// Selects everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Reads the query string's grammar; an empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        Self::parse_within(text, Bounds::NONE)
    }

    /// The same of a selector that may only be so large. Of one that is larger no more is read than shows it.
    pub fn parse_within(text: &str, bounds: Bounds) -> Result<Self, InvalidSelector> {
        let mut requirements = parse::parse(text, bounds)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// The requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// About how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        let of = |text: &str| text.len() + TEXT;
        self.requirements.iter().map(|r| of(&r.key) + r.values().map(of).sum::<usize>()).sum()
    }

    /// Whether all requirements hold.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Whether all requirements hold for the labels that `get` looks up.
    pub fn matches_with<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| r.matches(get(&r.key)))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn selectors_match_as_kubernetes_does() {
        let set = labels(&[("app", "x"), ("n", "5"), ("empty", "")]);
        for (text, want) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("app=x", true),
            ("app==x", true),
            ("app!=x", false),
            ("none!=x", true),
            (" app = x , n in ( 4 , 5 ) ", true),
            ("app in (y)", false),
            ("app notin (y,z)", true),
            ("none notin (y)", true),
            ("none in (y)", false),
            ("n>4", true),
            ("n>5", false),
            ("n<6,n>4", true),
            ("app>4", false),
            ("empty=", true),
            ("empty in ()", true),
            ("empty in (,a)", true),
            ("app=,n", false),
            ("in in (in)", false),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(&set), want, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_in_kubernetes_words() {
        for (text, want) in [
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a b=c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("app===x", "unable to parse requirement: found '=', expected: identifier"),
            ("app in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("app in x", "unable to parse requirement: found 'x' expected: '('"),
            ("a,", "found '', expected: identifier after ','"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
        ] {
            assert_eq!(Selector::parse(text).unwrap_err().to_string(), want, "{text}");
        }
        let bad = Selector::parse("a=b_").unwrap_err().to_string();
        assert!(
            bad.starts_with(
                "unable to parse requirement: values[0][a]: Invalid value: \"b_\": a valid label"
            ),
            "{bad}"
        );
        let bad = Selector::parse("a_ b").unwrap_err().to_string();
        assert!(
            bad.starts_with("unable to parse requirement: <nil>: Invalid value: \"a_\": name part must"),
            "{bad}"
        );
        let bad = Selector::parse("n>x").unwrap_err().to_string();
        assert!(bad.contains("for 'Gt', 'Lt' operators, the value must be an integer"), "{bad}");
    }

    #[test]
    fn what_is_too_large_is_not_read() {
        let bounds = Bounds { requirements: 2, values: 3 };
        let read = |text: &str| Selector::parse_within(text, bounds).map_err(|e| e.to_string());
        for text in ["a,b", "a in (1,1,1)", "a in (1,),b=3", "a!=1,b!=2"] {
            assert_eq!(read(text), Ok(Selector::parse(text).unwrap()), "{text}");
        }
        for (text, what) in
            [("a,b,c", "2 requirements"), ("a in (1,2,3,4)", "3 values"), ("a in (,,,,,,)", "3 values")]
        {
            let why = read(text).unwrap_err();
            assert_eq!(why, format!("it has more than {what}"), "{text}");
        }
        // What comes behind is not looked at.
        assert_eq!(read("a,b,c ((("), read("a,b,c"));
        let many = format!("a in ({})", (0..5_000).map(|i| format!("{i}_")).collect::<Vec<_>>().join(","));
        let why = Selector::parse(&many).unwrap_err().to_string();
        assert_eq!(why.matches("Invalid value").count(), WRONG, "{why:.300}");
    }

    #[test]
    fn the_json_form_converts() {
        let s: LabelSelector = serde_json::from_value(json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [
                {"key": "t", "operator": "In", "values": ["y", "x"]},
                {"key": "u", "operator": "DoesNotExist", "values": null}]}))
        .unwrap();
        assert_eq!(s.validate(&Path::new("spec")), []);
        assert_eq!(s.to_selector().unwrap().to_string(), "a=b,t in (x,y),!u");
        assert!(serde_json::from_value::<LabelSelector>(json!({"matchLabels": null})).unwrap().is_empty());
    }

    #[test]
    fn the_json_form_is_validated() {
        let s: LabelSelector = serde_json::from_value(json!({
            "matchLabels": {"a b": "c_"},
            "matchExpressions": [
                {"key": "t", "operator": "In"},
                {"key": "t", "operator": "Exists", "values": ["x"]},
                {"key": "t", "operator": "Near"}]}))
        .unwrap();
        let errors: Vec<String> = s.validate(&Path::new("s")).iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 5, "{errors:#?}");
        assert!(errors[0].starts_with("s.matchLabels: Invalid value: \"a b\": name part must consist"));
        assert!(errors[1].starts_with("s.matchLabels: Invalid value: \"c_\": a valid label must be"));
        assert_eq!(
            errors[2],
            "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
        );
        assert_eq!(
            errors[3],
            "s.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        );
        assert_eq!(
            errors[4],
            "s.matchExpressions[2].operator: Invalid value: \"Near\": not a valid selector operator"
        );
        assert_eq!(
            LabelSelector { match_labels: BTreeMap::new(), ..s }.to_selector().unwrap_err().to_string(),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        );
    }

    fn requirements() -> impl Strategy<Value = Requirement> {
        use Operator::{
            DoesNotExist, DoubleEquals, Equals, Exists, GreaterThan, In, LessThan, NotEquals, NotIn,
        };
        let all =
            vec![Equals, DoubleEquals, NotEquals, In, NotIn, Exists, DoesNotExist, GreaterThan, LessThan];
        (
            "[a-z]{1,3}(/[a-z]{1,3})?",
            prop::sample::select(all),
            prop::collection::vec("[a-z0-9]{0,3}", 1..4),
            0..9i64,
        )
            .prop_filter_map("must be valid", |(key, operator, values, n)| {
                let values = match operator {
                    Equals | DoubleEquals | NotEquals => values[..1].to_vec(),
                    Exists | DoesNotExist => vec![],
                    GreaterThan | LessThan => vec![n.to_string()],
                    In | NotIn => values,
                };
                Requirement::new(&key, operator, values).ok()
            })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(mut all in prop::collection::vec(requirements(), 0..5)) {
            all.sort_by(|a, b| a.key.cmp(&b.key));
            let selector = Selector { requirements: all };
            prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
        }

        #[test]
        fn nothing_makes_it_panic(text in "[a-z =!<>(),/éin]{0,30}") {
            let _ = Selector::parse(&text);
        }
    }
}
