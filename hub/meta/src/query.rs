//! Query strings, as Kubernetes' API servers read them: keys and values are decoded, and of several values of one key the
//! first counts. A pair with a `;` or with a `%` that two hexadecimal digits do not follow is none (Go's `url.ParseQuery`): what
//! it is part of is read as if it were not there.

use std::borrow::Cow;

/// What a boolean parameter that is there says (Go's `Convert_Slice_string_To_bool`): everything is yes, an empty value too,
/// but `0` and `false`.
pub fn is_yes(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// Whether a query asks for a watch.
pub fn watches(query: Option<&str>) -> bool {
    first(query.unwrap_or_default(), "watch").is_some_and(|value| is_yes(&value))
}

/// The first value of a key.
pub fn first<'a>(query: &'a str, key: &str) -> Option<Cow<'a, str>> {
    query.split('&').filter(|pair| is_pair(pair)).find_map(|pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decode(found, true) == key).then(|| percent_decode(value, true))
    })
}

/// Whether what stands between two `&` is read.
fn is_pair(text: &str) -> bool {
    let is_escaped = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    !text.is_empty() && !text.contains(';') && text.split('%').skip(1).all(is_escaped)
}

/// Decodes `%XX`, and `+` as a space where `plus` (queries). What is not UTF-8 then is replaced.
pub fn percent_decode(text: &str, plus: bool) -> Cow<'_, str> {
    let encoded = |c: char| c == '%' || (plus && c == '+');
    if !text.contains(encoded) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
        match bytes[i] {
            b'%' => match (hex(i + 1), hex(i + 2)) {
                (Some(high), Some(low)) => {
                    out.push((high * 16 + low) as u8);
                    i += 2;
                }
                _ => out.push(b'%'),
            },
            b'+' if plus => out.push(b' '),
            b => out.push(b),
        }
        i += 1;
    }
    Cow::Owned(String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_asked_for_in_many_ways() {
        for (query, want) in [
            (None, false),
            (Some(""), false),
            (Some("a=b"), false),
            (Some("watch"), true),
            (Some("watch="), true),
            (Some("watch=1"), true),
            (Some("watch=true"), true),
            (Some("watch=T"), true),
            (Some("watch=foo"), true),
            (Some("watch=00"), true),
            (Some("watch=+0"), true),
            (Some("watch=0"), false),
            (Some("watch=false"), false),
            (Some("watch=False"), false),
            (Some("watch=FALSE"), false),
            (Some("watch=%30"), false),
            (Some("watch=fals%65"), false),
            (Some("a=b&watch=1"), true),
            (Some("&&watch"), true),
            (Some("watch=0&watch=1"), false),
            (Some("watch=1&watch=0"), true),
            (Some("%77atch=1"), true),
            (Some("w%61tc%68"), true),
            (Some("%77atch=0&watch=1"), false),
            (Some("Watch=1"), false),
            (Some("watch+=1"), false),
            (Some("a=watch=1"), false),
            (Some("watching=1"), false),
            // What Go does not read.
            (Some("watch=%zz"), false),
            (Some("watch=1%"), false),
            (Some("watch=1%3"), false),
            (Some("watch=%%31"), false),
            (Some("%zwatch&watch%4"), false),
            (Some("watch;"), false),
            (Some("watch=1;a=b"), false),
            (Some("a=b;watch=1"), false),
            (Some("watch=%zz&watch=0"), false),
            (Some("watch=0;&watch=1"), true),
            (Some("watch=%zz&watch"), true),
            (Some("a=%zz&b;c&watch=1"), true),
            (Some("watch=%3b"), true),
            (Some("watch=%F0"), true),
        ] {
            assert_eq!(watches(query), want, "{query:?}");
        }
    }
}
