//! Pages of a list of all clusters. As long as it fits it is one; where it does not, and the client reads in pages (`limit`), a page
//! ends in front of the first cluster that has no room left in it, and `continue` names that.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::asked::{decoded, pairs};

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The first cluster of it.
    from: Option<String>,
    /// Whether there may be others.
    pub(super) limited: bool,
}

/// What `continue` says.
#[derive(Deserialize, Serialize)]
struct Token {
    from: String,
}

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
        let Some(token) = value("continue") else { return Ok(Self { from: None, limited }) };
        let read = decoded(token).and_then(|token| BASE64_URL_SAFE_NO_PAD.decode(token).ok());
        let read = read.and_then(|json| serde_json::from_slice::<Token>(&json).ok());
        let Token { from } = read.ok_or("continue: it is not of a list of all clusters: leave it out")?;
        Ok(Self { from: Some(from), limited: true })
    }

    /// The names that it begins with, in order.
    pub(super) fn of_these(&self, mut names: Vec<String>) -> Vec<String> {
        names.retain(|name| self.from.as_ref().is_none_or(|from| name >= from));
        names.sort();
        names
    }
}

/// What names the page that begins with this cluster.
pub(super) fn token(from: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::json!(Token { from: from.to_owned() }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_where_the_one_before_has_ended() {
        let names = || ["c", "a", "b"].map(str::to_owned).to_vec();
        for (query, limited, want) in [
            (None, false, "a b c"),
            (Some("limit=0&continue="), false, "a b c"),
            (Some("limit=500"), true, "a b c"),
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
        for wrong in ["continue=abc", "continue=e30", "continue=%zz"] {
            assert!(Page::of(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
