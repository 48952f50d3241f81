//! A few short texts, in one piece of memory: each in a piece of its own takes several times what stands in it. There are as many
//! lists of them as objects.

use std::fmt;

/// Of a length, in one byte: the rest is in the next. Most texts are short.
const MORE: u8 = 0x80;

/// Texts in their order: of each its length, seven bits to a byte, and itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts(Box<[u8]>);

impl Texts {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let (text, after) = sized(rest)?;
            rest = after;
            Some(text)
        })
    }

    /// The one at a place.
    pub fn get(&self, at: usize) -> Option<&str> {
        self.iter().nth(at)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The first text, and what is behind it.
fn sized(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (mut len, mut rest) = (0_usize, bytes);
    for shift in (0..u32::BITS).step_by(7) {
        let (byte, after) = rest.split_first()?;
        rest = after;
        len |= usize::from(byte & !MORE) << shift;
        if byte & MORE == 0 {
            break;
        }
    }
    let (text, rest) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

impl<T: AsRef<str>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut bytes = Vec::new();
        for text in texts {
            let text = text.as_ref();
            // An object has three MiB at most.
            let mut len = u32::try_from(text.len()).unwrap_or(u32::MAX);
            while len >= u32::from(MORE) {
                bytes.push(len as u8 | MORE);
                len >>= 7;
            }
            bytes.push(len as u8);
            bytes.extend_from_slice(text.as_bytes());
        }
        Self(bytes.into())
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_they_were_made_of() {
        let long = "x".repeat(70_000);
        let (edge, beyond) = ("y".repeat(127), "z".repeat(128));
        let all = ["b", "", "\u{e9}", long.as_str(), edge.as_str(), beyond.as_str(), "b"];
        let texts: Texts = all.into_iter().collect();
        assert_eq!(texts.iter().collect::<Vec<_>>(), all);
        assert_eq!((texts.get(2), texts.get(7)), (Some("\u{e9}"), None));
        assert!(!texts.is_empty());
        assert!(!Texts::from_iter([""]).is_empty(), "an empty text is one");
        let none = Texts::default();
        assert!(none.is_empty() && none.get(0).is_none() && none == Texts::from_iter(<[&str; 0]>::default()));
    }
}
