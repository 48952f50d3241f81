//! A value as it is kept in memory: as it is, or packed.
//!
//! Values of one resource say much the same in the same words, and most are read seldom. [`Options::packs`] names
//! the resources whose values are kept in LZ4's form, with a text that has these words as its beginning, and with UUIDs as bytes: a
//! tenth of the bytes for a few microseconds at each reading. What readers, watchers and files get is the value itself.
//!
//! [`Options::packs`]: crate::Options::packs

mod patient;
mod uuids;

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;

use crate::key::Key;

/// Shorter values are kept as they are.
const LEAST: usize = 512;

/// The same for [`pack`]: nothing of it is read by many.
const LEAST_TEXT: usize = 128;

/// What values of a resource have in common: text that stands in most of them. LZ4 looks back 64 KiB, so that more is of no use.
/// It never reaches a file, and may be another with each version.
pub struct Dictionary(patient::Words);

impl Dictionary {
    /// One of these words.
    pub const fn new(words: &'static [u8]) -> Self {
        Self(patient::Words::new(words))
    }

    /// Its words.
    pub fn words(&self) -> &'static [u8] {
        self.0.text()
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({} bytes)", self.words().len())
    }
}

/// How long a text is, and how many UUIDs in it are shortened: so it begins when it is packed.
const HEAD: usize = size_of::<u32>() + size_of::<u16>();

fn head(packed: &[u8]) -> Option<(usize, u16, &[u8])> {
    let (len, rest) = packed.split_first_chunk()?;
    let (shortened, block) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*len) as usize, u16::from_le_bytes(*shortened), block))
}

/// Packs text that has words in common with others, if that is worth it: [`unpack`] gives it again by the same words.
pub fn pack(plain: &[u8], dictionary: &Dictionary) -> Option<Box<[u8]>> {
    if plain.len() < LEAST_TEXT {
        return None;
    }
    let len = u32::try_from(plain.len()).ok()?;
    let (short, shortened) =
        uuids::shorten(plain).map_or((Cow::Borrowed(plain), 0), |(short, count)| (short.into(), count));
    let mut packed = Vec::with_capacity(HEAD + plain.len() / 4);
    packed.extend_from_slice(&len.to_le_bytes());
    packed.extend_from_slice(&shortened.to_le_bytes());
    if patient::pack(&short, &dictionary.0, &mut packed).is_none() {
        packed.extend(lz4_flex::block::compress_with_dict(&short, dictionary.words()));
    }
    (packed.len() <= plain.len() / 4 * 3).then(|| packed.into())
}

/// What was packed by these words; nothing where it was not.
pub fn unpack(packed: &[u8], dictionary: &Dictionary) -> Option<Vec<u8>> {
    let (len, shortened, block) = head(packed)?;
    let short = len.checked_sub(uuids::saved(shortened))?;
    let short = lz4_flex::block::decompress_with_dict(block, short, dictionary.words()).ok()?;
    let plain = if shortened == 0 { short } else { uuids::lengthen(&short, shortened)? };
    (plain.len() == len).then_some(plain)
}

/// A value in memory.
#[derive(Clone)]
pub struct Value(Form);

#[derive(Clone)]
enum Form {
    Plain(Bytes),
    /// As by [`pack`].
    Packed {
        packed: Arc<[u8]>,
        dictionary: &'static Dictionary,
    },
}

/// The length of what was packed so.
fn len_of(packed: &[u8]) -> usize {
    head(packed).expect("invariant: what was packed here begins with its length").0
}

impl Value {
    /// Keeps a value packed, if that is worth it.
    pub(crate) fn packed(plain: Bytes, dictionary: Option<&'static Dictionary>) -> Self {
        let dictionary = dictionary.filter(|_| plain.len() >= LEAST);
        match dictionary.and_then(|dictionary| Some((pack(&plain, dictionary)?, dictionary))) {
            None => plain.into(),
            Some((packed, dictionary)) => Self(Form::Packed { packed: packed.into(), dictionary }),
        }
    }

    /// The value.
    pub fn get(&self) -> Bytes {
        match &self.0 {
            Form::Plain(plain) => plain.clone(),
            Form::Packed { packed, dictionary } => {
                let plain = unpack(packed, dictionary);
                plain.expect("invariant: what was packed here can be unpacked").into()
            }
        }
    }

    /// Its bytes; not those that it takes in memory.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks whether a value is empty")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Plain(plain) => plain.len(),
            Form::Packed { packed, .. } => len_of(packed),
        }
    }

    /// The bytes that are made to read it: none of one that is kept as it is.
    pub fn made(&self) -> usize {
        match &self.0 {
            Form::Plain(_) => 0,
            Form::Packed { packed, .. } => len_of(packed),
        }
    }

    /// The bytes that it takes in memory, beside itself.
    pub fn kept(&self) -> usize {
        match &self.0 {
            Form::Plain(plain) => plain.len(),
            Form::Packed { packed, .. } => packed.len(),
        }
    }

    /// Whether both are one in memory. If so they are equal; of packed ones this is known without a look into them.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Plain(one), Form::Plain(other)) => {
                one.as_ptr() == other.as_ptr() && one.len() == other.len()
            }
            (Form::Packed { packed: one, .. }, Form::Packed { packed: other, .. }) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// As it is.
impl From<Bytes> for Value {
    fn from(plain: Bytes) -> Self {
        Self(Form::Plain(plain))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || self.len() == other.len() && self.get() == other.get()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        self.len() == other.as_ref().len() && *self.get() == *other.as_ref()
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Which resources' values are kept packed, and with what.
pub(crate) type Packs = fn(&str) -> Option<&'static Dictionary>;

/// Keeps the value of a key as that resource's are kept.
pub(crate) fn keep(packs: Packs, key: &Key, plain: Bytes) -> Value {
    Value::packed(plain, packs(&key.resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    static WORDS: Dictionary = Dictionary::new(br#"{"addresses":["10.0.0.1"],"conditions":{"ready":true}},"#);
    static NONE: Dictionary = Dictionary::new(b"");

    fn text(len: usize) -> Bytes {
        (0..len / 55)
            .map(|n| format!(r#"{{"addresses":["10.0.{n}.1"],"conditions":{{"ready":true}}}},"#))
            .collect::<String>()
            .into()
    }

    #[test]
    fn what_is_packed_is_the_value_again() {
        for plain in [text(LEAST * 2), text(200_000), Bytes::from(vec![0; LEAST])] {
            for dictionary in [&WORDS, &NONE] {
                let value = Value::packed(plain.clone(), Some(dictionary));
                assert!(value.kept() < plain.len() / 4, "{} of {}", value.kept(), plain.len());
                assert_eq!((value.get(), value.len()), (plain.clone(), plain.len()));
                assert_eq!((value.made(), Value::from(plain.clone()).made()), (plain.len(), 0));
                assert_eq!(value, Value::from(plain.clone()));
                assert_eq!(value, Value::packed(plain.clone(), Some(&NONE)));
                assert_ne!(value, Value::packed(plain.slice(1..), Some(dictionary)));
                assert!(value.is(&value.clone()) && !value.is(&plain.clone().into()));
                let whole = Value::from(plain.clone());
                assert!(!whole.is(&plain.slice(..plain.len() - 1).into()), "the beginning is another value");
            }
        }
    }

    #[test]
    fn text_is_packed_and_unpacked_by_the_same_words() {
        let plain = text(LEAST * 2);
        let packed = pack(&plain, &WORDS).unwrap();
        assert!(packed.len() < plain.len() / 4, "{}", packed.len());
        assert_eq!(unpack(&packed, &WORDS).as_deref(), Some(&*plain));
        assert_eq!(pack(&plain[..LEAST_TEXT - 1], &WORDS), None);
        assert_ne!(unpack(&packed[..packed.len() - 1], &WORDS).as_deref(), Some(&*plain));
    }

    #[test]
    fn what_is_not_worth_it_stays_as_it_is() {
        // Nothing in it comes twice.
        let noise: Bytes =
            (0..4096u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<_>>().into();
        let short = text(LEAST - 60);
        for (plain, dictionary) in [(noise, Some(&WORDS)), (short, Some(&WORDS)), (text(4096), None)] {
            let value = Value::packed(plain.clone(), dictionary);
            assert_eq!((value.kept(), value.get()), (plain.len(), plain));
        }
    }

    /// Texts of words, digits and noise, of all lengths, with UUIDs or without: what is found is the same again, by words of all
    /// lengths, too.
    #[test]
    fn whatever_is_packed_is_the_same_again() {
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let words = ["addresses", "\"conditions\":", "10.0.0.1", "{", "ready", "\u{1}", "\"", "aaaaaaaa"];
        let mut packs = 0;
        for round in 0..3000_u64 {
            let dictionary: &'static Dictionary = if round % 3 == 0 { &NONE } else { &WORDS };
            let (len, sort) = (next(600) + 100 * (round % 10), next(4));
            let mut plain = Vec::new();
            while (plain.len() as u64) < len {
                match next(if sort == 0 { 1 } else { 4 }) {
                    0 => plain.push(next(1 << (2 * sort + 2)) as u8),
                    1 => plain
                        .extend_from_slice(words[next(if sort == 1 { 5 } else { 8 }) as usize].as_bytes()),
                    2 => {
                        let id = (next(1 << 31), next(1 << 16), next(1 << 31), next(1 << 31));
                        let id =
                            format!("\"{:08x}-{:04x}-4000-{:04x}-{:012x}\"", id.0, id.1, id.2 >> 16, id.3);
                        plain.extend_from_slice(id.as_bytes());
                    }
                    _ => plain.extend(std::iter::repeat_n(b'x', next(600) as usize)),
                }
            }
            if let Some(packed) = pack(&plain, dictionary) {
                packs += 1;
                assert_eq!(unpack(&packed, dictionary), Some(plain), "{round}");
            }
        }
        assert!(packs > 1000, "{packs}");
    }

    #[test]
    fn a_text_that_is_long_is_packed_too() {
        for len in [60_000, 65_000, 66_000, 200_000] {
            let plain = text(len);
            let packed = pack(&plain, &WORDS).unwrap();
            assert!(packed.len() < len / 4, "{len}: {}", packed.len());
            assert_eq!(unpack(&packed, &WORDS).as_deref(), Some(&*plain), "{len}");
        }
    }
}
