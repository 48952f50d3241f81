//! The rest of a document that broke off: what an answer to a request for it gives (RFC 9110, sections 8.8.3, 13.1.5 and 14).
//!
//! ```text
//!   have 1000 bytes, tag "a" ─▶ Range: bytes=1000-  If-Range: "a"
//!
//!   206, Content-Range: bytes 1000-1999/2000   the rest
//!   200                                        all of it: the server takes no ranges, or has another document now
//!   416, Content-Range: bytes */1000           nothing is missing
//!   206 or 416 with anything else              it is asked for as a whole
//! ```
//!
//! Without a strong tag nobody knows whether the rest is of the same document, and nothing is kept.

/// A longer tag is none that is kept.
const LONGEST: usize = 256;

/// A strong entity tag: of two documents with the same one, all bytes are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(String);

impl Tag {
    /// Reads a strong tag; nothing of a weak one, or of what is none.
    pub fn strong(text: &str) -> Option<Self> {
        let opaque = text.strip_prefix('"')?.strip_suffix('"')?;
        let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'"';
        let is_tag = !opaque.is_empty() && text.len() <= LONGEST && opaque.bytes().all(fits);
        is_tag.then(|| Self(text.to_owned()))
    }

    /// As it stands in headers.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is there of a document: its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Have {
    /// So many.
    pub bytes: u64,
    /// Of the document with this tag.
    pub tag: Tag,
}

/// What comes of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begins {
    /// From which byte on: either 0, or how many were there.
    pub from: u64,
    /// How many bytes, where the server says so.
    pub left: Option<u64>,
    /// The document's tag, if it has a strong one.
    pub tag: Option<Tag>,
}

/// What a server has answered, before its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    pub(super) length: Option<u64>,
    pub(super) range: Option<&'a str>,
    pub(super) tag: Option<&'a str>,
}

/// What such an answer gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gives {
    /// These bytes; `whole` is how many the document has, where a rest says so.
    Bytes { begins: Begins, whole: Option<u64> },
    /// What is there is all of it.
    Nothing,
    /// Not the rest that was asked for, and why: it is to be asked for as a whole.
    Other(String),
    /// Nothing, and why.
    Refused(String),
}

/// Judges an answer to whoever has this of the document, and reads so many bytes of it at most.
pub(super) fn judge(have: Option<&Have>, answer: Answer<'_>, limit: u64) -> Gives {
    let Answer { status, length, range, tag } = answer;
    let too_large = || Gives::Refused(format!("its answer is larger than {limit} bytes"));
    let tag = tag.and_then(Tag::strong);
    match (status, have) {
        (206, None) => Gives::Refused("it answered a part of it, and was asked for all".to_owned()),
        (206, Some(have)) => {
            let Some(Range::Part { first, last, whole }) = range.and_then(Range::read) else {
                return Gives::Other(format!("it does not say which part it gives ({range:?})"));
            };
            let left = last - first + 1;
            if first != have.bytes {
                return Gives::Other(format!("it was asked for byte {} on, and gives {range:?}", have.bytes));
            }
            if length.is_some_and(|length| length != left) {
                return Gives::Other(format!("it says {range:?}, and gives {length:?} bytes"));
            }
            if tag.as_ref().is_some_and(|tag| *tag != have.tag) {
                return Gives::Other("it gives a part of another document".to_owned());
            }
            if last >= limit || whole.is_some_and(|whole| whole > limit) {
                return too_large();
            }
            let begins = Begins { from: first, left: Some(left), tag: Some(have.tag.clone()) };
            Gives::Bytes { begins, whole }
        }
        (416, Some(have)) => match range.and_then(Range::read) {
            Some(Range::None { whole }) if whole == have.bytes => Gives::Nothing,
            _ => Gives::Other(format!("it has nothing from byte {} on ({range:?})", have.bytes)),
        },
        (200..=299, _) if length.is_some_and(|length| length > limit) => too_large(),
        (200..=299, _) => Gives::Bytes { begins: Begins { from: 0, left: length, tag }, whole: length },
        _ => Gives::Refused(format!("it answered {status}")),
    }
}

/// A Content-Range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Part {
        first: u64,
        last: u64,
        whole: Option<u64>,
    },
    /// What was asked for is not there.
    None {
        whole: u64,
    },
}

impl Range {
    fn read(text: &str) -> Option<Self> {
        let (unit, range) = text.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (range, whole) = range.split_once('/')?;
        if range == "*" {
            return Some(Self::None { whole: number(whole)? });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let whole = if whole == "*" { None } else { Some(number(whole)?) };
        // Neither can a part end before it begins, nor behind the end of the whole.
        (first <= last && whole.is_none_or(|whole| last < whole)).then_some(Self::Part { first, last, whole })
    }
}

/// Digits alone: what else Rust reads as a number, such as a plus sign, is none here. Nor is what could overflow where one is added.
fn number(text: &str) -> Option<u64> {
    let is_one = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_strong_tags_are_kept() {
        for (text, want) in [
            ("\"5f-6a\"", true),
            ("\"x!#~\"", true),
            ("W/\"5f\"", false),
            ("w/\"5f\"", false),
            ("5f", false),
            ("\"", false),
            ("\"\"", false),
            ("\"a\"b\"", false),
            ("\"a b\"", false),
            ("\"a\r\nX: y\"", false),
            ("\"ü\"", false),
        ] {
            assert_eq!(Tag::strong(text).is_some_and(|tag| tag.as_str() == text), want, "{text}");
        }
        assert!(Tag::strong(&format!("\"{}\"", "a".repeat(LONGEST))).is_none());
    }

    #[test]
    fn a_content_range_is_read_as_the_rfc_has_it() {
        let part = |first, last, whole| Some(Range::Part { first, last, whole });
        for (text, want) in [
            ("bytes 0-0/1", part(0, 0, Some(1))),
            ("bytes 1000-1999/2000", part(1000, 1999, Some(2000))),
            ("Bytes 1000-1999/*", part(1000, 1999, None)),
            (" bytes 5-9/10 ", part(5, 9, Some(10))),
            ("bytes */2000", Some(Range::None { whole: 2000 })),
            ("bytes 9-5/10", None),
            ("bytes 5-10/10", None),
            ("bytes */*", None),
            ("bytes 5-/10", None),
            ("bytes -5/10", None),
            ("bytes +5-9/10", None),
            ("bytes 5 - 9/10", None),
            ("bytes 5-9", None),
            ("bytes=5-9/10", None),
            ("items 5-9/10", None),
            ("bytes 0-18446744073709551615/*", None),
            ("bytes 0-9/99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(Range::read(text), want, "{text:?}");
        }
    }

    #[test]
    fn an_answer_gives_the_rest_or_all_or_is_not_taken() {
        let tag = |text: &str| Tag::strong(text).unwrap();
        let have = Have { bytes: 1000, tag: tag("\"a\"") };
        let rest = |left, whole| Gives::Bytes {
            begins: Begins { from: 1000, left: Some(left), tag: Some(tag("\"a\"")) },
            whole,
        };
        let all = |left, named: Option<&str>| Gives::Bytes {
            begins: Begins { from: 0, left, tag: named.map(tag) },
            whole: left,
        };
        let other = || Gives::Other(String::new());
        let refused = || Gives::Refused(String::new());
        // What is there, the status, its length, its part, its tag.
        let rows = [
            (false, 200, Some(2000), "", "\"a\"", all(Some(2000), Some("\"a\""))),
            (false, 200, None, "", "", all(None, None)),
            (false, 200, Some(2000), "", "W/\"a\"", all(Some(2000), None)),
            (false, 200, Some(5001), "", "\"a\"", refused()),
            (false, 203, Some(5000), "", "", all(Some(5000), None)),
            (false, 206, Some(1000), "bytes 0-999/1000", "\"a\"", refused()),
            (false, 304, None, "", "", refused()),
            (false, 416, None, "bytes */1000", "", refused()),
            (false, 404, Some(9), "", "", refused()),
            (true, 206, Some(1000), "bytes 1000-1999/2000", "\"a\"", rest(1000, Some(2000))),
            (true, 206, None, "bytes 1000-1999/2000", "", rest(1000, Some(2000))),
            (true, 206, None, "bytes 1000-1999/*", "\"a\"", rest(1000, None)),
            // A server may give less than was asked for.
            (true, 206, Some(1), "bytes 1000-1000/2000", "\"a\"", rest(1, Some(2000))),
            // It lies, or is about something else.
            (true, 206, Some(1000), "bytes 0-999/2000", "\"a\"", other()),
            (true, 206, Some(999), "bytes 1001-1999/2000", "\"a\"", other()),
            (true, 206, Some(2000), "bytes 1000-1999/2000", "\"a\"", other()),
            (true, 206, Some(1000), "bytes 1000-1999/1500", "\"a\"", other()),
            (true, 206, Some(1000), "", "\"a\"", other()),
            (true, 206, Some(1000), "bytes */2000", "\"a\"", other()),
            (true, 206, Some(1000), "bytes 1000-1999/2000", "\"b\"", other()),
            (true, 206, Some(5000), "bytes 1000-5999/6000", "\"a\"", refused()),
            (true, 206, Some(1), "bytes 1000-1000/5001", "\"a\"", refused()),
            // It takes no ranges, or has another document by now.
            (true, 200, Some(2000), "", "\"b\"", all(Some(2000), Some("\"b\""))),
            (true, 200, Some(5001), "", "\"b\"", refused()),
            (true, 416, None, "bytes */1000", "", Gives::Nothing),
            (true, 416, None, "bytes */900", "", other()),
            (true, 416, None, "", "", other()),
            (true, 503, None, "", "", refused()),
        ];
        for (has, status, length, range, tag, want) in rows {
            let named = |text: &'static str| Some(text).filter(|text| !text.is_empty());
            let answer = Answer { status, length, range: named(range), tag: named(tag) };
            let got = judge(has.then_some(&have), answer, 5000);
            let is_same = match (&got, &want) {
                (Gives::Other(why), Gives::Other(_)) | (Gives::Refused(why), Gives::Refused(_)) => {
                    !why.is_empty()
                }
                (got, want) => got == want,
            };
            assert!(is_same, "{has} {answer:?}: {got:?}");
        }
    }

    proptest! {
        /// Whatever a server says: what is taken goes on exactly where it broke off, or begins anew, and is never too large.
        #[test]
        fn nothing_is_put_where_it_does_not_belong(
            bytes in 1_u64..3000, status in prop::sample::select(vec![200_u16, 206, 206, 206, 416, 500]),
            (is_asked, first, more) in (any::<bool>(), 0_u64..3000, 0_u64..3000), whole in prop::option::of(0_u64..6000),
            (says, length) in (any::<bool>(), 0_u64..4000),
        ) {
            let have = Have { bytes, tag: Tag::strong("\"a\"").unwrap() };
            let first = if is_asked { bytes } else { first };
            let named = whole.map_or_else(|| "*".to_owned(), |whole| whole.to_string());
            let range = format!("bytes {first}-{}/{named}", first + more);
            let length = Some(if says { more + 1 } else { length });
            let answer = Answer { status, length, range: Some(&range), tag: None };
            if let Gives::Bytes { begins, whole } = judge(Some(&have), answer, 2500) {
                prop_assert_eq!(begins.from, if status == 206 { bytes } else { 0 });
                let end = begins.from + begins.left.unwrap_or_default();
                prop_assert!(end <= 2500 && whole.is_none_or(|whole| end <= whole && whole <= 2500));
            }
        }
    }
}
