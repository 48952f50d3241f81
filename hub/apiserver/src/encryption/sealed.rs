//! What stands in the store in place of a value that is encrypted.
//!
//! ```text
//!   0 "sealed1" | cipher u8 | fingerprint [8] | name (u8 length + bytes)
//!   | of a data key: key id, wrapped key (each u16 length + bytes)
//!   | salt [16] | number u64                                        big endian
//!   | ciphertext | tag [16]
//! ```
//!
//! No object begins with a 0. The key that encrypts is derived (HKDF-SHA256) of the root and a salt that is drawn for each run
//! of the hub, and the nonce is a number that counts up in the run: so no nonce comes twice under a key, however
//! often a hub is started or restored from a backup, and whatever number of values it writes. Everything before the
//! ciphertext is authenticated with it, and so is the object's place: resource, namespace and name.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use karmada_store::Key;
use parking_lot::Mutex;
use ring::{
    aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Prk, Salt},
    rand::{SecureRandom as _, SystemRandom},
};

const MAGIC: &[u8] = b"\0sealed1";
const SALT: usize = 16;
const NUMBER: usize = 8;
/// Derived keys that are kept; there is one for each run that has left values.
const DERIVED: usize = 1024;

/// How values are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM.
    AesGcm,
    /// ChaCha20-Poly1305.
    ChaCha,
    /// AES-256-GCM, with a data key that a command keeps.
    Kms,
}

impl Cipher {
    fn code(self) -> u8 {
        match self {
            Self::AesGcm => 1,
            Self::ChaCha => 2,
            Self::Kms => 3,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        [Self::AesGcm, Self::ChaCha, Self::Kms].into_iter().find(|cipher| cipher.code() == code)
    }

    /// As the file calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AesGcm => "aesgcm",
            Self::ChaCha => "secretbox",
            Self::Kms => "kms",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::AesGcm | Self::Kms => &AES_256_GCM,
            Self::ChaCha => &CHACHA20_POLY1305,
        }
    }
}

/// Tells keys apart, and says nothing about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; 8]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A data key as its command keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// The command's key.
    pub key_id: String,
    /// What it makes the data key of again.
    pub key: Vec<u8>,
}

/// The operating system has no randomness.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system has no randomness")]
pub struct NoRandomness;

/// Random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// What keys are derived of. Prints as its name.
pub struct Root {
    cipher: Cipher,
    name: String,
    fingerprint: Fingerprint,
    wrapped: Option<Wrapped>,
    root: Prk,
    derived: Mutex<Vec<([u8; SALT], Arc<LessSafeKey>)>>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("key", &self.describe()).finish_non_exhaustive()
    }
}

/// So many bytes from HKDF.
fn expand<const N: usize>(root: &Prk, info: &[&[u8]]) -> [u8; N] {
    #[derive(Clone, Copy)]
    struct Len(usize);
    impl ring::hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut out = [0; N];
    root.expand(info, Len(N))
        .and_then(|okm| okm.fill(&mut out))
        .expect("invariant: HKDF gives up to 8160 bytes, and these are fewer");
    out
}

fn describe(cipher: Cipher, name: &str, fingerprint: Fingerprint) -> String {
    format!("key {name:?} ({} {fingerprint})", cipher.as_str())
}

impl Root {
    /// Of a key of the file.
    pub fn of_key(cipher: Cipher, name: &str, secret: &[u8]) -> Self {
        Self::new(cipher, name, secret, None)
    }

    /// Of a data key.
    pub fn of_data_key(name: &str, secret: &[u8], wrapped: Wrapped) -> Self {
        Self::new(Cipher::Kms, name, secret, Some(wrapped))
    }

    fn new(cipher: Cipher, name: &str, secret: &[u8], wrapped: Option<Wrapped>) -> Self {
        let root = Salt::new(HKDF_SHA256, b"karmada-hub encryption at rest").extract(secret);
        let fingerprint = Fingerprint(expand(&root, &[b"fingerprint ", cipher.as_str().as_bytes()]));
        let name = name.to_owned();
        Self { cipher, name, fingerprint, wrapped, root, derived: Mutex::default() }
    }

    /// What tells it apart.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The name of the key, or of the provider.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its command keeps, if it is a data key.
    pub fn wrapped(&self) -> Option<&Wrapped> {
        self.wrapped.as_ref()
    }

    /// For people.
    pub fn describe(&self) -> String {
        describe(self.cipher, &self.name, self.fingerprint)
    }

    /// What a value has to be written anew for when it changes: the key of the file, or the command's.
    pub(super) fn stands_for(&self) -> (&str, String) {
        let key = self
            .wrapped
            .as_ref()
            .map_or_else(|| self.fingerprint.to_string(), |wrapped| wrapped.key_id.clone());
        (&self.name, key)
    }

    fn derive(&self, salt: &[u8; SALT]) -> Arc<LessSafeKey> {
        let mut derived = self.derived.lock();
        if let Some((_, key)) = derived.iter().rev().find(|(of, _)| of == salt) {
            return key.clone();
        }
        let bytes: [u8; 32] = expand(&self.root, &[b"values ", salt]);
        let key = UnboundKey::new(self.cipher.algorithm(), &bytes)
            .expect("invariant: both ciphers have keys of 32 bytes");
        let key = Arc::new(LessSafeKey::new(key));
        if derived.len() >= DERIVED {
            derived.clear();
        }
        derived.push((*salt, key.clone()));
        key
    }

    /// The value again, if it is this key's, of this place, and whole.
    pub(super) fn open(&self, key: &Key, sealed: &Sealed<'_>) -> Option<Bytes> {
        let mut body = sealed.body.to_vec();
        let derived = self.derive(&sealed.salt);
        let len = derived.open_in_place(nonce(sealed.number), aad(sealed.head, key), &mut body).ok()?.len();
        body.truncate(len);
        // Kept for long.
        Some(body.into_boxed_slice().into())
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// What is authenticated with a value: all that stands before it, and its place. No part of a place has a 0 in it.
fn aad(head: &[u8], key: &Key) -> Aad<Vec<u8>> {
    let Key { resource, namespace, name } = key;
    Aad::from(
        [head, b"\0", resource.as_bytes(), b"\0", namespace.as_bytes(), b"\0", name.as_bytes()].concat(),
    )
}

/// Encrypts with one root, for one run.
#[derive(Debug)]
pub(super) struct Sealer {
    root: Arc<Root>,
    /// Up to the salt, which it ends with.
    head: Vec<u8>,
    key: Arc<LessSafeKey>,
    next: AtomicU64,
}

fn put(head: &mut Vec<u8>, bytes: &[u8]) {
    // Bounded where they come from.
    head.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    head.extend_from_slice(bytes);
}

impl Sealer {
    pub(super) fn new(root: Arc<Root>) -> Result<Self, NoRandomness> {
        let salt: [u8; SALT] = random()?;
        let mut head = MAGIC.to_vec();
        head.push(root.cipher.code());
        head.extend_from_slice(&root.fingerprint.0);
        // No longer than what the file may have.
        head.push(root.name.len() as u8);
        head.extend_from_slice(root.name.as_bytes());
        if let Some(Wrapped { key_id, key }) = &root.wrapped {
            put(&mut head, key_id.as_bytes());
            put(&mut head, key);
        }
        head.extend_from_slice(&salt);
        let key = root.derive(&salt);
        Ok(Self { root, head, key, next: AtomicU64::new(0) })
    }

    pub(super) fn root(&self) -> &Arc<Root> {
        &self.root
    }

    pub(super) fn seal(&self, key: &Key, value: &[u8]) -> Bytes {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut out = Vec::with_capacity(self.head.len() + NUMBER + value.len() + 16);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&number.to_be_bytes());
        let aad = aad(&out, key);
        let begin = out.len();
        out.extend_from_slice(value);
        let tag = self.key.seal_in_place_separate_tag(nonce(number), aad, &mut out[begin..]).expect(
            "invariant: both ciphers take values of 64 GiB, and the store none of more than some MiB",
        );
        out.extend_from_slice(tag.as_ref());
        out.into()
    }
}

/// A value as it stands in the store.
#[derive(Debug)]
pub(super) struct Sealed<'a> {
    pub(super) cipher: Cipher,
    pub(super) fingerprint: Fingerprint,
    pub(super) name: &'a str,
    pub(super) wrapped: Option<Wrapped>,
    salt: [u8; SALT],
    number: u64,
    head: &'a [u8],
    body: &'a [u8],
}

impl<'a> Sealed<'a> {
    /// What it says of itself; none: it is not encrypted.
    pub(super) fn read(value: &'a [u8]) -> Option<Result<Self, &'static str>> {
        value
            .starts_with(MAGIC)
            .then(|| Self::parse(value).ok_or("is encrypted in a way that is not known here"))
    }

    fn parse(value: &'a [u8]) -> Option<Self> {
        fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
            let (part, others) = rest.split_first_chunk()?;
            *rest = others;
            Some(*part)
        }
        fn some<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
            let (part, others) = rest.split_at_checked(len)?;
            *rest = others;
            Some(part)
        }
        let mut rest = value.strip_prefix(MAGIC)?;
        let cipher = Cipher::of_code(take::<1>(&mut rest)?[0])?;
        let fingerprint = Fingerprint(take(&mut rest)?);
        let len = take::<1>(&mut rest)?[0];
        let name = std::str::from_utf8(some(&mut rest, len.into())?).ok()?;
        let wrapped = match cipher {
            Cipher::AesGcm | Cipher::ChaCha => None,
            Cipher::Kms => {
                let len = u16::from_be_bytes(take(&mut rest)?);
                let key_id = std::str::from_utf8(some(&mut rest, len.into())?).ok()?.to_owned();
                let len = u16::from_be_bytes(take(&mut rest)?);
                Some(Wrapped { key_id, key: some(&mut rest, len.into())?.to_vec() })
            }
        };
        let salt = take(&mut rest)?;
        let number = u64::from_be_bytes(take::<NUMBER>(&mut rest)?);
        let head = &value[..value.len() - rest.len()];
        Some(Self { cipher, fingerprint, name, wrapped, salt, number, head, body: rest })
    }

    /// Its key, for people.
    pub(super) fn describe(&self) -> String {
        match &self.wrapped {
            None => describe(self.cipher, self.name, self.fingerprint),
            Some(wrapped) => {
                format!("key {:?} of kms {:?} ({})", wrapped.key_id, self.name, self.fingerprint)
            }
        }
    }
}
