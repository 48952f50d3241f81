//! Where in an object something is, and what is wrong there.

use std::{collections::HashSet, fmt, sync::Arc};

use serde_json::Value;

use crate::go_quote;

/// How many errors of one object are told. What is wrong in a hundred thousand places is not told better by all of them.
const SHOWN: usize = 1_000;
/// After so many bytes no further error is told; the first always is.
const SHOWN_BYTES: usize = 256 << 10;

/// A path into an object as Kubernetes prints it: `spec.rules[0].limits[cpu]`.
///
/// Paths share what is above them, so that a step costs its own name however long the names above it are.
#[derive(Clone, Default)]
pub struct Path(Option<Arc<Step>>);

struct Step {
    above: Path,
    name: Name,
}

enum Name {
    Field(Box<str>),
    Index(usize),
    Key(Box<str>),
}

impl Path {
    /// A path of one field.
    pub fn new(field: impl Into<String>) -> Self {
        let field = field.into();
        if field.is_empty() { Self::root() } else { Self::root().step(Name::Field(field.into())) }
    }

    /// The object itself; children of it have no leading dot.
    pub fn root() -> Self {
        Self::default()
    }

    fn step(&self, name: Name) -> Self {
        Self(Some(Arc::new(Step { above: self.clone(), name })))
    }

    /// A field below.
    #[must_use]
    pub fn child(&self, field: &str) -> Self {
        self.step(Name::Field(field.into()))
    }

    /// An element of a list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.step(Name::Index(index))
    }

    /// An entry of a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.step(Name::Key(key.into()))
    }

    /// Whether it is that of the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut steps, mut at) = (Vec::new(), self);
        while let Some(step) = &at.0 {
            steps.push(&step.name);
            at = &step.above;
        }
        for (i, name) in steps.into_iter().rev().enumerate() {
            match name {
                Name::Field(field) if i == 0 => f.write_str(field)?,
                Name::Field(field) => write!(f, ".{field}")?,
                Name::Index(index) => write!(f, "[{index}]")?,
                Name::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl PartialEq for Path {
    /// As text: a path may have been made in one piece.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Path {}

/// What kind of mistake a [`FieldError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// Missing or empty.
    Required,
    /// Not one of a closed list.
    NotSupported,
    /// May not be set here and now.
    Forbidden,
    /// Stands twice in a set.
    Duplicate,
    /// Too many bytes.
    TooLong,
    /// Too many items.
    TooMany,
    /// Refers to something that is not there.
    NotFound,
    /// The check itself failed.
    Internal,
}

impl ErrorKind {
    /// How a message begins.
    fn text(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    /// The reason of the cause in a Status.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

/// One mistake in an object. Prints as `spec.replicas: Invalid value: -1: must be greater than or equal to 0`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{path}: {}", self.body())]
pub struct FieldError {
    /// What kind of mistake.
    pub kind: ErrorKind,
    /// Where.
    pub path: Path,
    /// What stood there; `None` prints nothing.
    pub value: Option<Value>,
    /// What it should have been; may be empty.
    pub detail: String,
}

impl FieldError {
    fn of(kind: ErrorKind, path: &Path, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self { kind, path: path.clone(), value, detail: detail.into() }
    }

    /// A malformed or impossible value.
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::of(ErrorKind::Invalid, path, Some(value.into()), detail)
    }

    /// A value of the wrong JSON type; `value` is by custom the name of the type found.
    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::of(ErrorKind::TypeInvalid, path, Some(value.into()), detail)
    }

    /// A value that is missing.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::of(ErrorKind::Required, path, None, detail)
    }

    /// A value that is not in a closed list, which the message repeats in the order given.
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|s| go_quote(s)).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::of(ErrorKind::NotSupported, path, Some(value.into()), detail)
    }

    /// Something that may not be set.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::of(ErrorKind::Forbidden, path, None, detail)
    }

    /// A value that stands twice.
    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::of(ErrorKind::Duplicate, path, Some(value.into()), "")
    }

    /// A value of more than `max` bytes.
    pub fn too_long(path: &Path, max: usize) -> Self {
        Self::of(ErrorKind::TooLong, path, None, format!("may not be more than {max} bytes"))
    }

    /// A list of `actual` items where `max` are allowed.
    pub fn too_many(path: &Path, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::of(ErrorKind::TooMany, path, Some(actual.into()), format!("must have at most {max} {items}"))
    }

    /// A reference to something that is not there.
    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::of(ErrorKind::NotFound, path, Some(value.into()), "")
    }

    /// A check that could not be carried out.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::of(ErrorKind::Internal, path, None, detail)
    }

    /// The message without the path, as it stands in a Status' causes.
    pub fn body(&self) -> String {
        let mut out = self.kind.text().to_owned();
        if let Some(value) = self.value.as_ref().filter(|_| self.kind.shows_value()) {
            out.push_str(": ");
            match value {
                Value::String(text) => out.push_str(&go_quote(text)),
                // Go's JSON is fit to stand in HTML.
                other => {
                    for c in other.to_string().chars() {
                        match c {
                            '<' => out.push_str("\\u003c"),
                            '>' => out.push_str("\\u003e"),
                            '&' => out.push_str("\\u0026"),
                            c => out.push(c),
                        }
                    }
                }
            }
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }

    /// The reason of the cause in a Status, such as `FieldValueInvalid`.
    pub fn cause_reason(&self) -> &'static str {
        self.kind.reason()
    }
}

/// The errors that are told of an object, with the text of each, and how many are left out.
pub(crate) fn told(errors: &[FieldError]) -> (Vec<(&FieldError, String)>, usize) {
    let (mut told, mut bytes) = (Vec::new(), 0);
    for error in errors.iter().take(SHOWN) {
        if bytes > SHOWN_BYTES {
            break;
        }
        let text = error.to_string();
        bytes += text.len();
        told.push((error, text));
    }
    let left = errors.len() - told.len();
    (told, left)
}

/// Several errors as one message: each text once, in brackets if there is more than one. Of very many only the first are
/// told, and how many more there are.
pub fn aggregate(errors: &[FieldError]) -> String {
    let (told, left) = told(errors);
    joined(told.iter().map(|(_, text)| text.as_str()), left)
}

/// The texts of errors as one message.
pub(crate) fn joined<'a>(texts: impl Iterator<Item = &'a str>, left: usize) -> String {
    let mut seen = HashSet::new();
    let mut texts: Vec<&str> = texts.filter(|text| seen.insert(*text)).collect();
    let more;
    if left > 0 {
        more = format!("and {left} more");
        texts.push(&more);
    }
    match texts.as_slice() {
        [only] => (*only).to_owned(),
        texts => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_print_as_kubernetes_does() {
        assert_eq!(Path::new("spec").child("x").index(0).key("k").to_string(), "spec.x[0][k]");
        assert_eq!(Path::root().child("kind").to_string(), "kind");
    }

    #[test]
    fn errors_print_as_kubernetes_does() {
        let path = Path::new("spec").child("x");
        for (error, want, reason) in [
            (
                FieldError::invalid(&path, -1, "must be greater than or equal to 0"),
                "spec.x: Invalid value: -1: must be greater than or equal to 0",
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid(&path, "a\"b", "no"),
                r#"spec.x: Invalid value: "a\"b": no"#,
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid(&path, Value::Null, "no"),
                "spec.x: Invalid value: null: no",
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid(&path, json!({"matchLabels": {"a": "c"}}), "field is immutable"),
                r#"spec.x: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable"#,
                "FieldValueInvalid",
            ),
            (FieldError::required(&path, ""), "spec.x: Required value", "FieldValueRequired"),
            (FieldError::required(&path, "why"), "spec.x: Required value: why", "FieldValueRequired"),
            (
                FieldError::not_supported(&path, "Near", &["Exact", ""]),
                r#"spec.x: Unsupported value: "Near": supported values: "Exact", """#,
                "FieldValueNotSupported",
            ),
            (FieldError::forbidden(&path, "not now"), "spec.x: Forbidden: not now", "FieldValueForbidden"),
            (FieldError::duplicate(&path, "a"), r#"spec.x: Duplicate value: "a""#, "FieldValueDuplicate"),
            (
                FieldError::too_long(&path, 128),
                "spec.x: Too long: may not be more than 128 bytes",
                "FieldValueTooLong",
            ),
            (
                FieldError::too_many(&path, 5, 4),
                "spec.x: Too many: 5: must have at most 4 items",
                "FieldValueTooMany",
            ),
            (FieldError::internal(&path, "oops"), "spec.x: Internal error: oops", "InternalError"),
        ] {
            assert_eq!(error.to_string(), want);
            assert_eq!(error.cause_reason(), reason);
        }
    }

    #[test]
    fn several_errors_stand_in_brackets_once_each() {
        let (a, b) = (FieldError::required(&Path::new("a"), ""), FieldError::required(&Path::new("b"), ""));
        assert_eq!(aggregate(&[a.clone(), a.clone()]), "a: Required value");
        assert_eq!(aggregate(&[a.clone(), b, a]), "[a: Required value, b: Required value]");
    }

    #[test]
    fn very_many_errors_are_told_in_part() {
        let spec = Path::new("spec");
        let errors: Vec<FieldError> =
            (0..100_000).map(|i| FieldError::required(&spec.index(i), "")).collect();
        let text = aggregate(&errors);
        assert!(text.ends_with("spec[999]: Required value, and 99000 more]"), "{}", &text[text.len() - 80..]);
        let status = crate::status::Status::invalid("Thing", "", "a", errors);
        assert_eq!(status.details.expect("details").causes.len(), 1_000);

        // What stands below a long name costs no more than its own.
        let below = Path::new("spec").child(&"k".repeat(1 << 20));
        let errors: Vec<FieldError> =
            (0..100_000).map(|i| FieldError::required(&below.index(i), "")).collect();
        assert!(aggregate(&errors).len() < 2 << 20);
    }
}
