//! References to images: `registry/repository:tag` or `registry/repository@digest`.

use std::{fmt, sync::LazyLock};

use karmada_api::policy::{ImageComponent as Component, OverriderOperator as Operator};
use regex::Regex;

/// The grammar of distribution's references.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    let host = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?";
    let domain = format!(r"(?:{host}(?:\.{host})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let path = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    compiled(&format!(r"^((?:{domain}/)?{path}(?:/{path})*)(?::({TAG}))?(?:@({DIGEST}))?$"))
});
static ONLY_TAG: LazyLock<Regex> = LazyLock::new(|| compiled(&format!("^{TAG}$")));
static ONLY_DIGEST: LazyLock<Regex> = LazyLock::new(|| compiled(&format!("^{DIGEST}$")));

const TAG: &str = r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}";
const DIGEST: &str = r"[a-zA-Z][a-zA-Z0-9]*(?:[-_+.][a-zA-Z][a-zA-Z0-9]*)*:[0-9a-fA-F]{32,}";

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("invariant: the pattern is a constant that the tests compile")
}

/// A reference in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    registry: String,
    repository: String,
    version: Version,
}

/// What follows the repository. Of an image with both, Karmada keeps the tag.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    None,
    Tag(String),
    Digest(String),
}

impl Version {
    fn text(&self) -> &str {
        match self {
            Self::None => "",
            Self::Tag(text) | Self::Digest(text) => text,
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        if ONLY_TAG.is_match(text) {
            Ok(Self::Tag(text.to_owned()))
        } else if ONLY_DIGEST.is_match(text) {
            Ok(Self::Digest(text.to_owned()))
        } else {
            Err(format!("{text:?} is neither a tag nor a digest"))
        }
    }
}

impl Image {
    fn parse(text: &str) -> Result<Self, String> {
        let found = REFERENCE.captures(text).ok_or_else(|| format!("{text:?} is not an image reference"))?;
        let part = |i| found.get(i).map(|m| m.as_str().to_owned());
        let name = &found[1];
        // The first part is a registry if it looks like a host; else it is the first part of a path.
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => ("", name),
        };
        let version = match (part(2), part(3)) {
            (Some(tag), _) => Version::Tag(tag),
            (None, Some(digest)) => Version::Digest(digest),
            (None, None) => Version::None,
        };
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), version })
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.registry.is_empty() {
            write!(f, "{}/", self.registry)?;
        }
        f.write_str(&self.repository)?;
        match &self.version {
            Version::None => Ok(()),
            Version::Tag(tag) => write!(f, ":{tag}"),
            Version::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

/// The reference that `operator` with `value` makes of `image`: `add` appends text to the component, `replace`
/// sets it, `remove` takes it away.
///
/// # Errors
/// A sentence, if `image` is not a reference or would not be one any more.
pub(super) fn change(
    image: &str,
    component: Component,
    operator: Operator,
    value: &str,
) -> Result<String, String> {
    let mut parsed = Image::parse(image)?;
    let changed = |old: &str| match operator {
        Operator::Add => format!("{old}{value}"),
        Operator::Replace => value.to_owned(),
        Operator::Remove => String::new(),
    };
    match component {
        Component::Registry => parsed.registry = changed(&parsed.registry),
        Component::Repository => parsed.repository = changed(&parsed.repository),
        Component::Tag if operator == Operator::Remove => parsed.version = Version::None,
        Component::Tag => parsed.version = Version::parse(&changed(parsed.version.text()))?,
    }
    let result = parsed.to_string();
    if REFERENCE.is_match(&result) {
        Ok(result)
    } else {
        Err(format!("{image:?} would become {result:?}, which is not an image reference"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHA: &str = "sha256:50d858e0985ecc7f60418aaf0cc5ab587f42c2570a884095a9e8ccacd0f6545c";

    #[test]
    fn components_change_alone() {
        use Component::{Registry, Repository, Tag};
        use Operator::{Add, Remove, Replace};
        let pinned = format!("example.com/app@{SHA}");
        let table = [
            ("nginx", Registry, Replace, "mirror.example.com", "mirror.example.com/nginx"),
            (
                "library/nginx:1",
                Registry,
                Replace,
                "mirror.example.com",
                "mirror.example.com/library/nginx:1",
            ),
            ("example.com:5000/a/b:1", Registry, Replace, "m.example.com", "m.example.com/a/b:1"),
            ("localhost/a:1", Registry, Remove, "", "a:1"),
            ("example.com/a", Registry, Add, ":5000", "example.com:5000/a"),
            ("a/b", Registry, Remove, "", "a/b"),
            ("example.com/a/b:1", Repository, Replace, "c", "example.com/c:1"),
            ("a/b:1", Repository, Add, "-arm", "a/b-arm:1"),
            ("nginx", Tag, Replace, "1.27", "nginx:1.27"),
            ("nginx:1.27", Tag, Add, "-alpine", "nginx:1.27-alpine"),
            ("nginx:1.27", Tag, Remove, "", "nginx"),
            (&pinned, Tag, Replace, "v2", "example.com/app:v2"),
            (&pinned, Tag, Remove, "", "example.com/app"),
            ("example.com/app:v2", Tag, Replace, SHA, &pinned),
        ];
        for (image, component, operator, value, want) in table {
            let got = change(image, component, operator, value);
            assert_eq!(got.as_deref(), Ok(want), "{image} {component:?} {operator:?} {value}");
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        let table = [
            ("Not An Image", Component::Tag, Operator::Replace, "1"),
            ("", Component::Tag, Operator::Replace, "1"),
            ("nginx", Component::Tag, Operator::Replace, "a b"),
            ("nginx", Component::Repository, Operator::Remove, ""),
            ("nginx", Component::Registry, Operator::Replace, "ex ample"),
        ];
        for (image, component, operator, value) in table {
            assert!(change(image, component, operator, value).is_err(), "{image} {component:?} {value}");
        }
        assert!(ONLY_DIGEST.is_match(SHA));
    }

    proptest! {
        #[test]
        fn references_survive_a_round_trip(
            text in "([a-z]{1,5}\\.[a-z]{1,3}(:[0-9]{1,4})?/)?[a-z0-9]{1,6}(/[a-z0-9]{1,6})?(:[a-zA-Z0-9_][a-zA-Z0-9_.]{0,7})?"
        ) {
            prop_assert_eq!(Image::parse(&text).unwrap().to_string(), text);
        }

        #[test]
        fn replacing_twice_is_replacing_once(tag in "[a-z0-9]{1,8}", other in "[a-z0-9]{1,8}") {
            let once = change("example.com/a:1", Component::Tag, Operator::Replace, &tag).unwrap();
            let first = change("example.com/a:1", Component::Tag, Operator::Replace, &other).unwrap();
            let twice = change(&first, Component::Tag, Operator::Replace, &tag).unwrap();
            prop_assert_eq!(once, twice);
        }
    }
}
