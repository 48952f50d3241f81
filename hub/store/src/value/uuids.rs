//! UUIDs in JSON as the bytes that they stand for: most of what is left of an object when its words are packed is UUIDs, and no two
//! are alike.

/// No JSON has this byte: in texts it is escaped.
const MARK: u8 = 1;
/// Of a UUID, with its quotes.
const LONG: usize = 38;
/// The same as bytes, behind the mark.
const SHORT: usize = 17;
/// Where a UUID has dashes, behind its first quote.
const DASHES: [usize; 4] = [9, 14, 19, 24];

/// The bytes of a UUID in quotes at the beginning of a text, in the one spelling that it is given again in.
fn read(text: &[u8]) -> Option<u128> {
    let quoted = text.first_chunk::<LONG>()?;
    if quoted[LONG - 1] != b'"' {
        return None;
    }
    let mut number = 0_u128;
    for (at, byte) in quoted.iter().enumerate().take(LONG - 1).skip(1) {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'-' if DASHES.contains(&at) => continue,
            _ => return None,
        };
        if DASHES.contains(&at) {
            return None;
        }
        number = (number << 4) | u128::from(digit);
    }
    Some(number)
}

/// A text with its UUIDs shortened, and how many; nothing where there are none, or the mark stands in it.
pub(super) fn shorten(text: &[u8]) -> Option<(Vec<u8>, u16)> {
    if text.contains(&MARK) {
        return None;
    }
    let (mut out, mut count, mut rest) = (Vec::new(), 0_u16, text);
    while let Some(quote) = rest.iter().position(|byte| *byte == b'"') {
        let (before, from) = rest.split_at(quote);
        out.extend_from_slice(before);
        rest = match read(from).filter(|_| count < u16::MAX) {
            Some(number) => {
                out.push(MARK);
                out.extend_from_slice(&number.to_be_bytes());
                count += 1;
                &from[LONG..]
            }
            None => {
                out.push(b'"');
                &from[1..]
            }
        };
    }
    out.extend_from_slice(rest);
    (count > 0).then_some((out, count))
}

/// By how much so many UUIDs are shorter.
pub(super) fn saved(count: u16) -> usize {
    usize::from(count) * (LONG - SHORT)
}

/// The text again; nothing where it was made by nothing of the kind.
pub(super) fn lengthen(short: &[u8], count: u16) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = Vec::with_capacity(short.len() + saved(count));
    let mut rest = short;
    for _ in 0..count {
        let mark = rest.iter().position(|byte| *byte == MARK)?;
        out.extend_from_slice(&rest[..mark]);
        let bytes = rest[mark + 1..].first_chunk::<{ SHORT - 1 }>()?;
        out.push(b'"');
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                out.push(b'-');
            }
            out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        out.push(b'"');
        rest = &rest[mark + SHORT..];
    }
    out.extend_from_slice(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_short_and_whole_again() {
        let id = "4fc3d51d-0fea-4e5b-b1a1-acf410c17a5c";
        for (text, count) in [
            (format!(r#"{{"uid":"{id}"}}"#), 1),
            (format!(r#"["{id}","{id}",""{id}""]"#), 3),
            (format!(r#""{id}"#), 0),
            (format!(r#""{}""#, id.to_uppercase()), 0),
            (format!(r#""{}""#, id.replace('-', "0")), 0),
            (format!(r#""-{}""#, &id[1..]), 0),
            (format!("\u{1}\"{id}\""), 0),
            (String::new(), 0),
        ] {
            let Some((short, found)) = shorten(text.as_bytes()) else {
                assert_eq!(count, 0, "{text}");
                continue;
            };
            assert_eq!((found, short.len() + usize::from(count) * 21), (count, text.len()), "{text}");
            assert_eq!(lengthen(&short, found).as_deref(), Some(text.as_bytes()));
            assert_eq!(lengthen(&short, found + 1), None);
            assert_eq!(lengthen(&short[..SHORT - 1], found), None);
        }
    }
}
