//! The keys that tokens of service accounts are signed with.

use std::{fmt, path::Path};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use rcgen::KeyPair;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use sha2::{Digest as _, Sha256};

use super::{PkiError, Stage, authority, files};

/// What stands before the point in a SubjectPublicKeyInfo of P-256.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Half of a point's coordinates.
const COORDINATE: usize = 32;

/// A key on the curve P-256.
#[derive(Clone)]
pub struct SigningKey {
    pkcs8: Vec<u8>,
    point: Vec<u8>,
    id: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SigningKey {
    fn new(pkcs8: &[u8]) -> Result<Self, String> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new())
            .map_err(|error| format!("a key in it is none of the curve P-256 in PKCS#8: {error}"))?;
        let point = pair.public_key().as_ref().to_vec();
        let digest = Sha256::new_with_prefix(SPKI_PREFIX).chain_update(&point).finalize();
        Ok(Self { pkcs8: pkcs8.to_vec(), point, id: URL_SAFE_NO_PAD.encode(digest) })
    }

    /// What tokens call it: the digest of its public half, as kube-apiserver has it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// As PKCS#8.
    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// As PEM.
    fn pem(&self) -> String {
        let text = STANDARD.encode(&self.pkcs8);
        let lines: String =
            text.as_bytes().chunks(64).map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect();
        format!("-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n")
    }

    /// The coordinates of its public half, in base64url.
    pub(crate) fn coordinates(&self) -> [String; 2] {
        // The first byte says that both are there.
        let (x, y) = self.point[1..].split_at(COORDINATE);
        [x, y].map(|half| URL_SAFE_NO_PAD.encode(half))
    }
}

const KEYS: &str = "service-account.pem";
const NEXT: &str = "service-account-next.pem";

/// Makes the PEM of a new one.
fn make() -> Result<String, PkiError> {
    let made = KeyPair::generate().map_err(|e| PkiError::Crypto {
        subject: "tokens of service accounts".to_owned(),
        detail: e.to_string(),
    })?;
    Ok(made.serialize_pem())
}

/// The keys of a file; none if it is not there.
fn read(path: &Path) -> Result<Option<Vec<SigningKey>>, PkiError> {
    let damaged = |detail: String| PkiError::Damaged { path: path.to_path_buf(), detail };
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(PkiError::Io { action: "read", path: path.to_path_buf(), source }),
    };
    let keys = PrivatePkcs8KeyDer::pem_slice_iter(&text)
        .map(|key| SigningKey::new(key.map_err(|e| e.to_string())?.secret_pkcs8_der()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(damaged)?;
    if keys.is_empty() {
        return Err(damaged("it holds no private key in PKCS#8 (BEGIN PRIVATE KEY)".to_owned()));
    }
    Ok(Some(keys))
}

fn write(path: &Path, keys: &[SigningKey]) -> Result<(), PkiError> {
    let text: String = keys.iter().map(SigningKey::pem).collect();
    files::write_atomic(path, text.as_bytes(), files::PRIVATE)
}

/// The keys in use, of which the first signs, and the one that comes next, if there is one.
fn open(folder: &Path) -> Result<(Vec<SigningKey>, Option<SigningKey>), PkiError> {
    let keys = match read(&folder.join(KEYS))? {
        Some(keys) => keys,
        None => {
            files::write_atomic(&folder.join(KEYS), make()?.as_bytes(), files::PRIVATE)?;
            read(&folder.join(KEYS))?.unwrap_or_default()
        }
    };
    let next = read(&folder.join(NEXT))?.and_then(|next| next.into_iter().next());
    // One that is in use has come: the step was cut off behind that.
    let next = next.filter(|next| keys.iter().all(|key| key.id != next.id));
    Ok((keys, next))
}

/// All keys that are trusted: the first signs. Makes one where there is none.
pub(super) fn open_or_create(folder: &Path) -> Result<Vec<SigningKey>, PkiError> {
    let (mut keys, next) = open(folder)?;
    keys.extend(next);
    Ok(keys)
}

/// How far a change of the key is.
pub(super) fn stage(folder: &Path) -> Result<Stage, PkiError> {
    let (keys, next) = open(folder)?;
    Ok(match (next, keys.len()) {
        (Some(_), _) => Stage::Introduced,
        (None, 0 | 1) => Stage::Settled,
        (None, _) => Stage::Changed,
    })
}

/// Goes on to the next stage: another key is trusted, signs, or is alone.
pub(super) fn step(folder: &Path) -> Result<Stage, PkiError> {
    let (keys, next) = open(folder)?;
    match next {
        Some(next) => {
            let keys: Vec<_> = std::iter::once(next).chain(keys).collect();
            write(&folder.join(KEYS), &keys)?;
            authority::remove(&folder.join(NEXT))?;
        }
        None if keys.len() > 1 => write(&folder.join(KEYS), &keys[..1])?,
        None => files::write_atomic(&folder.join(NEXT), make()?.as_bytes(), files::PRIVATE)?,
    }
    stage(folder)
}
