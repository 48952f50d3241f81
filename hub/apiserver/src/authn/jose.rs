//! JSON Web Tokens: the form is jsonwebtoken's, the arithmetic ring's.
//!
//! What a token says of itself before its signature is checked decides only by which keys it is checked, and whether it is
//! worth it. The algorithm is one that the key is for, never one that the token alone names: `none` and the symmetric ones are
//! in no list.

use std::{collections::BTreeMap, fmt, sync::Once};

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey, Header, Validation,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    dangerous::insecure_decode_claims,
    decode, decode_header, encode,
    errors::{Error, ErrorKind},
    signature::{self, Signer, Verifier},
};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED, EcdsaKeyPair,
        RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
        RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
        RsaPublicKeyComponents, UnparsedPublicKey,
    },
};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

/// What kube-apiserver's `--oidc-signing-algs` may name, and ring can do: all but ES512.
pub(super) const ALGORITHMS: [(&str, Algorithm); 8] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
];

/// What a token says of itself. Nothing of it has been proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) algorithm: Algorithm,
    /// Which key it was signed by.
    pub(super) key: Option<String>,
    pub(super) issuer: String,
}

/// Looks at what has the form of a signed token; nothing if it has not, or wants something to be understood that is not.
pub(super) fn look(token: &str) -> Option<Look> {
    #[derive(Deserialize)]
    struct Claims {
        iss: String,
        /// With others beside it it is read from a map alone, and not from a list of its fields.
        #[serde(flatten)]
        _others: BTreeMap<String, IgnoredAny>,
    }
    let header = decode_header(token).ok()?;
    let understood = header.crit.is_none() && header.enc.is_none() && header.zip.is_none();
    let Claims { iss, .. } = insecure_decode_claims(token).ok().filter(|_| understood)?;
    Some(Look { algorithm: header.alg, key: header.kid, issuer: iss })
}

/// A key that signatures are checked by.
#[derive(Clone)]
pub(super) struct PublicKey {
    /// What tokens call it.
    pub(super) id: Option<String>,
    key: DecodingKey,
    algorithms: Vec<Algorithm>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("id", &self.id).field("algorithms", &self.algorithms).finish()
    }
}

impl PublicKey {
    /// A key that is for these algorithms alone.
    pub(super) fn new(id: Option<String>, key: DecodingKey, algorithms: Vec<Algorithm>) -> Self {
        Self { id, key, algorithms }
    }

    /// Whether a token that looks so may be signed by it.
    pub(super) fn fits(&self, look: &Look) -> bool {
        self.algorithms.contains(&look.algorithm) && (look.key.is_none() || look.key == self.id)
    }

    /// The claims of a token that was signed by it. Times and audiences are the caller's to judge.
    ///
    /// # Errors
    /// When it was not.
    pub(super) fn open<T: DeserializeOwned>(&self, token: &str, look: &Look) -> Result<T, Error> {
        install();
        if !self.fits(look) {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        let mut validation = Validation::new(look.algorithm);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        Ok(decode(token, &self.key, &validation)?.claims)
    }
}

/// Signs claims by ES256 with a PKCS#8 key on the curve P-256.
///
/// # Errors
/// When that is no such key.
pub(super) fn sign<T: Serialize>(claims: &T, id: &str, pkcs8: &[u8]) -> Result<String, Error> {
    install();
    let mut header = Header::new(Algorithm::ES256);
    (header.typ, header.kid) = (None, Some(id.to_owned()));
    encode(&header, claims, &EncodingKey::from_ec_der(pkcs8))
}

/// jsonwebtoken has one provider of arithmetic for a process, and brings none with ring.
fn install() {
    static RING: CryptoProvider = CryptoProvider {
        signer_factory: signer,
        verifier_factory: verifier,
        key_utils: KeyUtils::new_unimplemented(),
    };
    static ONCE: Once = Once::new();
    // Nobody else in this process uses it.
    ONCE.call_once(|| {
        let _ = RING.install_default();
    });
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    if *algorithm != Algorithm::ES256 || key.family() != AlgorithmFamily::Ec {
        return Err(ErrorKind::UnsupportedAlgorithm.into());
    }
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_bytes(), &random)
        .map_err(|_| ErrorKind::InvalidEcdsaKey)?;
    Ok(Box::new(Es256 { pair, random }))
}

struct Es256 {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer<Vec<u8>> for Es256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        let signature = self.pair.sign(&self.random, message).map_err(|_| signature::Error::new())?;
        Ok(signature.as_ref().to_vec())
    }
}

impl JwtSigner for Es256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::ES256
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let known = ALGORITHMS.iter().any(|(_, known)| known == algorithm);
    if !known || key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Check { algorithm: *algorithm, key: key.clone() }))
}

struct Check {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Check {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let curve = |point: &[u8]| match self.algorithm {
            Algorithm::ES256 => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Algorithm::ES384 => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
            _ => Err(ring::error::Unspecified),
        };
        let checked = match self.key.kind() {
            DecodingKeyKind::SecretOrDer(point) => curve(point),
            DecodingKeyKind::RsaModulusExponent { n, e } => match rsa(self.algorithm) {
                Some(rsa) => RsaPublicKeyComponents { n, e }.verify(rsa, message, signature),
                None => Err(ring::error::Unspecified),
            },
        };
        checked.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Check {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}
