//! Pages of a list of all clusters. As long as it fits it is one; where it does not, and the client reads in pages (`limit`), a page
//! ends in front of the first cluster that has no room left in it, and `continue` names that. It says the form of the list, too:
//! where no cluster of a later page answers, that is an empty one, so that what was read before is not lost.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::asked::{decoded, pairs};

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The first cluster of it.
    from: Option<String>,
    /// Group and version, and kind, of the pages before.
    pub(super) form: Option<(String, String)>,
    /// Whether there may be others.
    pub(super) limited: bool,
}

/// What `continue` says.
#[derive(Deserialize, Serialize)]
struct Token {
    from: String,
    form: (String, String),
}

/// The longest part of a form, in bytes.
const FORM: usize = 253;

impl Page {
    /// The page that a query asks for.
    ///
    /// # Errors
    /// When its `continue` is none of ours.
    pub(super) fn of(query: Option<&str>) -> Result<Self, String> {
        let value = |name: &str| {
            let mut values = pairs(query).filter(|(key, value, _)| *key == name && !value.is_empty());
            values.next().map(|(_, value, _)| value)
        };
        let limited = value("limit").is_some_and(|limit| limit != "0");
        let Some(token) = value("continue") else { return Ok(Self { limited, ..Self::default() }) };
        let read = decoded(token).and_then(|token| BASE64_URL_SAFE_NO_PAD.decode(token).ok());
        let read = read.and_then(|json| serde_json::from_slice::<Token>(&json).ok());
        let read = read.filter(|Token { form, .. }| form.0.len() <= FORM && form.1.len() <= FORM);
        let Token { from, form } =
            read.ok_or("continue: it is not of a list of all clusters: leave it out")?;
        Ok(Self { from: Some(from), form: Some(form), limited: true })
    }

    /// The names that it begins with, in order.
    pub(super) fn of_these(&self, mut names: Vec<String>) -> Vec<String> {
        names.retain(|name| self.from.as_ref().is_none_or(|from| name >= from));
        names.sort();
        names
    }
}

/// What names the page that begins with this cluster, of a list of this form.
pub(super) fn token(from: &str, form: &(String, String)) -> String {
    let token = Token { from: from.to_owned(), form: form.clone() };
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::json!(token).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_where_the_one_before_has_ended() {
        let names = || ["c", "a", "b"].map(str::to_owned).to_vec();
        let form = ("v1".to_owned(), "PodList".to_owned());
        let token = |from: &str| token(from, &form);
        for (query, limited, want) in [
            (None, false, "a b c"),
            (Some("limit=0&continue="), false, "a b c"),
            (Some("limit=500"), true, "a b c"),
            (Some("%6cimit=500"), true, "a b c"),
            (Some(&*format!("limit=500&continue={}", token("b"))), true, "b c"),
            (Some(&*format!("continue={}", token("bb"))), true, "c"),
        ] {
            let page = Page::of(query).unwrap();
            assert_eq!(
                (page.limited, page.of_these(names()).join(" ").as_str()),
                (limited, want),
                "{query:?}"
            );
        }
        let page = Page::of(Some(&format!("continue={}", token("b")))).unwrap();
        assert_eq!(page.form, Some(form.clone()));
        let long = super::token("b", &("v1".to_owned(), "x".repeat(FORM + 1)));
        for wrong in ["continue=abc", "continue=e30", "continue=%zz", &format!("continue={long}")] {
            assert!(Page::of(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
