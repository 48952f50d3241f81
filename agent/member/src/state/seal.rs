//! Values as they lie on a disk: compressed, and sealed with a key that does not lie beside them.

use std::io::{Read, Write};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};

/// How long a key is.
pub(crate) const KEY: usize = 32;

/// The longest value, unpacked: a Work is 1.5 MiB on a hub at most.
pub(crate) const LONGEST: u64 = 64 << 20;

/// A key.
pub(crate) struct Seal(LessSafeKey);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// None if the key has another length.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        Some(Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?)))
    }

    /// A new key.
    pub(crate) fn fresh() -> Result<[u8; KEY], String> {
        let mut key = [0; KEY];
        SystemRandom::new().fill(&mut key).map_err(|_| "the machine has no randomness".to_owned())?;
        Ok(key)
    }

    /// `name` is what the value is kept under: under another it is not opened.
    fn close(&self, name: &str, mut value: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| "the machine has no randomness".to_owned())?;
        let sealed = self.0.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name.as_bytes()),
            &mut value,
        );
        sealed.map_err(|_| "it cannot be sealed".to_owned())?;
        value.splice(..0, nonce);
        Ok(value)
    }

    fn open(&self, name: &str, mut sealed: Vec<u8>) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = sealed.get(..NONCE_LEN)?.try_into().ok()?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from(name.as_bytes());
        let opened = self.0.open_within(nonce, aad, &mut sealed, NONCE_LEN..).ok()?;
        Some(opened.to_vec())
    }
}

/// A value as it is kept.
pub(crate) fn pack(seal: Option<&Seal>, name: &str, value: &[u8]) -> Result<Vec<u8>, String> {
    let mut packer = DeflateEncoder::new(Vec::new(), Compression::fast());
    let packed = packer.write_all(value).and_then(|()| packer.finish());
    let packed = packed.map_err(|error| error.to_string())?;
    match seal {
        Some(seal) => seal.close(name, packed),
        None => Ok(packed),
    }
}

/// The value again; nothing if it is not as it was packed.
pub(crate) fn unpack(seal: Option<&Seal>, name: &str, kept: Vec<u8>) -> Option<Vec<u8>> {
    unpack_within(LONGEST, seal, name, kept)
}

/// The same of one that may be so long.
pub(crate) fn unpack_within(room: u64, seal: Option<&Seal>, name: &str, kept: Vec<u8>) -> Option<Vec<u8>> {
    let packed = match seal {
        Some(seal) => seal.open(name, kept)?,
        None => kept,
    };
    let mut value = Vec::new();
    DeflateDecoder::new(packed.as_slice()).take(room + 1).read_to_end(&mut value).ok()?;
    (value.len() as u64 <= room).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_opens_what_it_sealed() {
        let (one, other) = (Seal::new(&[1; KEY]).unwrap(), Seal::new(&[2; KEY]).unwrap());
        let value = b"a secret, a secret, a secret, a secret, a secret".as_slice();
        let kept = pack(Some(&one), "work/a", value).unwrap();
        assert!(!kept.windows(6).any(|bytes| bytes == b"secret"));
        assert_eq!(unpack(Some(&one), "work/a", kept.clone()).as_deref(), Some(value));
        assert_eq!(unpack(Some(&other), "work/a", kept.clone()), None);
        assert_eq!(unpack(Some(&one), "work/b", kept.clone()), None, "moved under another name");
        assert_eq!(unpack(Some(&one), "work/a", kept[..20].to_vec()), None);
        assert_eq!(unpack(Some(&one), "work/a", Vec::new()), None);
        assert_ne!(pack(Some(&one), "work/a", value).unwrap(), kept, "no nonce is used twice");
        let plain = pack(None, "work/a", value).unwrap();
        assert!(plain.len() < value.len());
        assert_eq!(unpack(None, "work/a", plain).as_deref(), Some(value));
        assert_eq!(unpack(None, "work/a", vec![0xff; 9]), None);
        assert!(Seal::new(&[0; 31]).is_none());
    }
}
