//! The keys that tokens of service accounts are signed with.

use std::{fmt, path::Path};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::KeyPair;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use sha2::{Digest as _, Sha256};

use super::{PkiError, files};

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

    /// The coordinates of its public half, in base64url.
    pub(crate) fn coordinates(&self) -> [String; 2] {
        // The first byte says that both are there.
        let (x, y) = self.point[1..].split_at(COORDINATE);
        [x, y].map(|half| URL_SAFE_NO_PAD.encode(half))
    }
}

/// Reads the keys of a file, of which the first signs and all are trusted; makes one where there is no file.
pub(super) fn open_or_create(path: &Path) -> Result<Vec<SigningKey>, PkiError> {
    let damaged = |detail: String| PkiError::Damaged { path: path.to_path_buf(), detail };
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let crypto = |e: rcgen::Error| PkiError::Crypto {
                subject: "tokens of service accounts".to_owned(),
                detail: e.to_string(),
            };
            let made = KeyPair::generate().map_err(crypto)?.serialize_pem();
            files::write_atomic(path, made.as_bytes(), files::PRIVATE)?;
            made.into_bytes()
        }
        Err(source) => return Err(PkiError::Io { action: "read", path: path.to_path_buf(), source }),
    };
    let keys = PrivatePkcs8KeyDer::pem_slice_iter(&text)
        .map(|key| SigningKey::new(key.map_err(|e| e.to_string())?.secret_pkcs8_der()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(damaged)?;
    if keys.is_empty() {
        return Err(damaged("it holds no private key in PKCS#8 (BEGIN PRIVATE KEY)".to_owned()));
    }
    Ok(keys)
}
