//! A value as it is kept in memory: as it is, or packed.
//!
//! Values of one resource say much the same in the same words, and most are read seldom. [`Options::packs`] names
//! the resources whose values are kept in LZ4's form, with a text that has these words as its beginning: a tenth of the bytes for a few
//! microseconds at each reading. What readers, watchers and files get is the value itself.
//!
//! [`Options::packs`]: crate::Options::packs

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::key::Key;

/// Shorter values are kept as they are.
const LEAST: usize = 512;

/// The same for [`pack`]: nothing of it is read by many.
const LEAST_TEXT: usize = 128;

/// What values of a resource have in common: text that stands in most of them. LZ4 looks back 64 KiB, so that more is of no use.
/// It never reaches a file, and may be another with each version.
pub struct Dictionary(pub &'static [u8]);

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({} bytes)", self.0.len())
    }
}

/// Packs text that has words in common with others, if that is worth it: [`unpack`] gives it again by the same words.
pub fn pack(plain: &[u8], dictionary: &Dictionary) -> Option<Box<[u8]>> {
    if plain.len() < LEAST_TEXT || u32::try_from(plain.len()).is_err() {
        return None;
    }
    let packed = lz4_flex::block::compress_prepend_size_with_dict(plain, dictionary.0);
    (packed.len() <= plain.len() / 4 * 3).then(|| packed.into())
}

/// What was packed by these words; nothing where it was not.
pub fn unpack(packed: &[u8], dictionary: &Dictionary) -> Option<Vec<u8>> {
    lz4_flex::block::decompress_size_prepended_with_dict(packed, dictionary.0).ok()
}

/// A value in memory.
#[derive(Clone)]
pub struct Value(Form);

#[derive(Clone)]
enum Form {
    Plain(Bytes),
    Packed { packed: Arc<[u8]>, len: u32, dictionary: &'static Dictionary },
}

impl Value {
    /// Keeps a value packed, if that is worth it.
    pub(crate) fn packed(plain: Bytes, dictionary: Option<&'static Dictionary>) -> Self {
        let Some(dictionary) = dictionary.filter(|_| plain.len() >= LEAST) else { return plain.into() };
        let Ok(len) = u32::try_from(plain.len()) else { return plain.into() };
        let packed = lz4_flex::block::compress_with_dict(&plain, dictionary.0);
        if packed.len() > plain.len() / 4 * 3 {
            return plain.into();
        }
        Self(Form::Packed { packed: packed.into(), len, dictionary })
    }

    /// The value.
    pub fn get(&self) -> Bytes {
        match &self.0 {
            Form::Plain(plain) => plain.clone(),
            Form::Packed { packed, len, dictionary } => {
                let plain = lz4_flex::block::decompress_with_dict(packed, *len as usize, dictionary.0);
                plain.expect("invariant: what was packed here can be unpacked").into()
            }
        }
    }

    /// Its bytes; not those that it takes in memory.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks whether a value is empty")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Plain(plain) => plain.len(),
            Form::Packed { len, .. } => *len as usize,
        }
    }

    /// The bytes that are made to read it: none of one that is kept as it is.
    pub fn made(&self) -> usize {
        match &self.0 {
            Form::Plain(_) => 0,
            Form::Packed { len, .. } => *len as usize,
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

    static WORDS: Dictionary = Dictionary(br#"{"addresses":["10.0.0.1"],"conditions":{"ready":true}},"#);
    static NONE: Dictionary = Dictionary(b"");

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
}
