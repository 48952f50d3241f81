//! Masks what looks like a credential. Nothing that is passed on is meant to hold one; this is for what others have said.

/// What stands in its place.
const MASK: &str = "[masked]";

/// A text without keys, tokens and passwords in URLs.
pub(super) fn scrub(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        if in_key {
            if let Some((_, rest)) = line.split_once("-----END ") {
                in_key = false;
                out.push_str("-----END ");
                out.push_str(&words(rest));
            }
            continue;
        }
        match line.split_once("PRIVATE KEY-----") {
            Some((before, rest)) if before.contains("-----BEGIN ") => {
                out.push_str(&words(before));
                out.push_str("PRIVATE KEY-----");
                out.push_str(MASK);
                // In JSON, and in errors, a key may stand in one line.
                match rest.split_once("-----END ") {
                    Some((_, rest)) => {
                        out.push_str("-----END ");
                        out.push_str(&words(rest));
                    }
                    None => {
                        in_key = true;
                        out.push('\n');
                    }
                }
            }
            _ => out.push_str(&words(line)),
        }
    }
    out
}

/// Masks what looks like a credential among the words of a line.
fn words(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let is_inner =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '/' | '~' | '@' | ':');
    let mut rest = line;
    let mut before = "";
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_inner(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        if before.eq_ignore_ascii_case("bearer") && word.len() >= 8 {
            out.push_str(MASK);
        } else {
            out.push_str(&masked(word));
        }
        if !word.is_empty() {
            before = word;
        }
        let next = tail.find(is_inner).unwrap_or(tail.len());
        out.push_str(&tail[..next]);
        rest = &tail[next..];
    }
    out
}

fn masked(word: &str) -> String {
    // A JSON Web Token: its first part begins with {" in base64.
    if word.contains("eyJ") && word.split('.').count() >= 3 && word.len() >= 40 {
        return MASK.to_owned();
    }
    // A URL with a user.
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((user, host)) = rest.split_once('@')
        && !user.contains('/')
    {
        return format!("{scheme}://{MASK}@{host}");
    }
    // A bootstrap token: ID.SECRET.
    let is = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    match bare.split_once('.') {
        Some((id, secret)) if is(id, 6) && is(secret, 16) => word.replace(secret, MASK),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked_and_nothing_else_is() {
        let rows = [
            ("a=1 https://hub:6443/x, not connected\n", "a=1 https://hub:6443/x, not connected\n"),
            ("token=\"abcdef.0123456789abcdef\"", "token=\"abcdef.[masked]\""),
            ("--token=abcdef.0123456789abcdef --x", "--token=abcdef.[masked] --x"),
            ("abcdef.0123456789abcdef.", "abcdef.[masked]."),
            ("v1.2 apps.karmada.io/v1 web-6c8f9.default", "v1.2 apps.karmada.io/v1 web-6c8f9.default"),
            ("Authorization: Bearer s3cr3t-s3cr3t\n", "Authorization: Bearer [masked]\n"),
            ("a bearer of news", "a bearer of news"),
            ("by http://user:hunter2@proxy:3128/", "by http://[masked]@proxy:3128/"),
            ("x eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJlc2lnbmF0dXJl y", "x [masked] y"),
            (
                "k: -----BEGIN EC PRIVATE KEY-----\nMIGH\nAgEA\n-----END EC PRIVATE KEY-----\nz\n",
                "k: -----BEGIN EC PRIVATE KEY-----[masked]\n-----END EC PRIVATE KEY-----\nz\n",
            ),
            (
                "-----BEGIN PRIVATE KEY-----\\nMIGH\\n-----END PRIVATE KEY-----\\n",
                "-----BEGIN PRIVATE KEY-----[masked]-----END PRIVATE KEY-----\\n",
            ),
            ("-----BEGIN CERTIFICATE-----\nMII\n", "-----BEGIN CERTIFICATE-----\nMII\n"),
            ("ä 🦀 \u{1}\n\n", "ä 🦀 \u{1}\n\n"),
        ];
        for (text, want) in rows {
            assert_eq!(scrub(text), want);
        }
    }
}
