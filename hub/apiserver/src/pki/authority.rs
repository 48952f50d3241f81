//! The authority that signs, and while it changes one more that is trusted.
//!
//! ```text
//!   settled     ca.pem                      signs
//!   introduced  ca.pem, ca-next.pem         the first signs; both are trusted, and both are in what others trust
//!   changed     ca.pem, ca-old.pem          what was next signs; both are still trusted
//!   settled     ca.pem                      what was old is trusted no more
//! ```
//!
//! Where a change is stands in the files alone, each step is one rename, and a step that was cut off is done again: a hub
//! that is stopped, or restored from a backup, goes on from there. Once it has changed, the listener shows beside its
//! certificate one that the old authority gives the new one: who knows the old one alone goes on, if its TLS reads
//! chains so (agents do; Go does not where the old authority is one of the hubs of before, which allowed nothing below it).

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use karmada_env::Env;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{
    extensions::ParsedExtension,
    prelude::{FromDer, X509Certificate},
};

use super::{
    CA_VALIDITY, Credential, Leaf, PkiError, RENEW_BEFORE, certified_key, files, set_validity, subject,
};

const SIGNING: &str = "ca.pem";
const NEXT: &str = "ca-next.pem";
const OLD: &str = "ca-old.pem";
/// What all of it is called for those who trust it.
pub(super) const BUNDLE: &str = "ca.crt";

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// There is none.
    Settled,
    /// What comes next is trusted beside what signs.
    Introduced,
    /// The next one signs, and what signed before is still trusted.
    Changed,
}

impl Stage {
    /// A word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Introduced => "introduced",
            Self::Changed => "changed",
        }
    }
}

/// An authority, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its common name.
    pub name: String,
    /// How certificates refer to its key, in hexadecimal.
    pub id: String,
    /// When it ends.
    pub until: SystemTime,
}

/// One authority.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) pem: String,
    pub(super) issuer: Issuer<'static, KeyPair>,
    pub(super) id: Vec<u8>,
    pub(super) until: SystemTime,
    name: String,
}

/// How certificates refer to a key.
pub(super) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Authority {
    fn read(path: &Path) -> Result<Option<Self>, PkiError> {
        let damaged = |detail: String| PkiError::Damaged { path: path.to_path_buf(), detail };
        let Some(credential) = files::read_credential(path)? else { return Ok(None) };
        Self::parse(&credential).map(Some).map_err(damaged)
    }

    fn parse(credential: &Credential) -> Result<Self, String> {
        let until = Leaf::parse(credential)?.not_after;
        let der = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes())
            .map_err(|e| e.to_string())?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
        let id = certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let name = name.unwrap_or_default().to_owned();
        let key = KeyPair::from_pem(&credential.key_pem).map_err(|e| e.to_string())?;
        let issuer = Issuer::from_ca_cert_pem(&credential.certificate_pem, key).map_err(|e| e.to_string())?;
        let pem = credential.certificate_pem.clone();
        Ok(Self { pem, issuer, id: id.ok_or("its certificate does not name its key")?, until, name })
    }

    /// A new one.
    fn make(name: &str, env: &Env) -> Result<Credential, PkiError> {
        let crypto =
            |e: rcgen::Error| PkiError::Crypto { subject: "the authority".to_owned(), detail: e.to_string() };
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name, None);
        // One below it: the one that comes after it.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        params.key_usages = authority_usages();
        set_validity(&mut params, env.wall(), CA_VALIDITY);
        let key = KeyPair::generate().map_err(crypto)?;
        let certificate = params.self_signed(&key).map_err(crypto)?;
        Ok(Credential { key_pem: key.serialize_pem(), certificate_pem: certificate.pem() })
    }

    pub(super) fn described(&self) -> Described {
        Described { name: self.name.clone(), id: hex(&self.id), until: self.until }
    }

    /// A certificate over its key by another one.
    fn certified_by(&self, other: &Self, env: &Env) -> Result<String, PkiError> {
        let crypto = |e: rcgen::Error| PkiError::Crypto { subject: self.name.clone(), detail: e.to_string() };
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(&self.name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = authority_usages();
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, env.wall(), Duration::ZERO);
        params.not_after = self.until.min(other.until).into();
        params.signed_by(self.issuer.key(), &other.issuer).map(|made| made.pem()).map_err(crypto)
    }
}

fn authority_usages() -> Vec<KeyUsagePurpose> {
    vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]
}

/// Those of a folder.
#[derive(Debug)]
pub(super) struct Authorities {
    pub(super) signing: Authority,
    pub(super) stage: Stage,
    /// What comes next, or was before.
    pub(super) other: Option<Authority>,
    /// All certificates that are to be trusted, the one that signs first.
    pub(super) bundle: String,
    /// Of the one that signs, by the old one.
    pub(super) crossed: Option<String>,
}

impl Authorities {
    /// Opens them, or makes one if nothing shows that there ever was any.
    pub(super) fn open(folder: &Path, env: &Env) -> Result<Self, PkiError> {
        let path = folder.join(SIGNING);
        let signing = match Authority::read(&path)? {
            Some(signing) => signing,
            None => {
                for witness in ["serving.pem", "admin.pem", BUNDLE] {
                    let witness = folder.join(witness);
                    if witness.exists() {
                        let (missing, folder) = (path, folder.to_path_buf());
                        return Err(PkiError::AuthorityLost { missing, witness, folder });
                    }
                }
                let made = Authority::make("karmada", env)?;
                files::write_credential(&path, &made)?;
                tracing::info!(path = %path.display(), "made a certificate authority");
                Authority::parse(&made).map_err(|detail| PkiError::Damaged { path: path.clone(), detail })?
            }
        };
        let left = signing.until.duration_since(env.wall()).unwrap_or_default();
        if left.is_zero() {
            return Err(PkiError::AuthorityExpired { path });
        }
        if left < RENEW_BEFORE {
            tracing::warn!(path = %path.display(), "the certificate authority ends in {} days: karmada-hub ca rotate", left.as_secs() / 86_400);
        }
        let (next, old) = (Authority::read(&folder.join(NEXT))?, Authority::read(&folder.join(OLD))?);
        let another = |authority: &Authority| authority.id != signing.id;
        let (stage, other) = match (next.filter(another), old.filter(another)) {
            // What was to be old when the change was cut off is what signs.
            (Some(next), _) => (Stage::Introduced, Some(next)),
            (None, Some(old)) => (Stage::Changed, Some(old)),
            (None, None) => (Stage::Settled, None),
        };
        let bundle = format!("{}{}", signing.pem, other.as_ref().map_or("", |other| &other.pem));
        let crossed = match (&other, stage) {
            (Some(old), Stage::Changed) => Some(signing.certified_by(old, env)?),
            _ => None,
        };
        Ok(Self { signing, stage, other, bundle, crossed })
    }

    /// Those that are trusted: the one that signs, and another.
    pub(super) fn trusted(&self) -> impl Iterator<Item = &Authority> {
        std::iter::once(&self.signing).chain(&self.other)
    }

    /// What a listener shows of a certificate: itself, and who vouches for its authority.
    pub(super) fn chain(&self, credential: &Credential) -> Result<rustls::sign::CertifiedKey, String> {
        let mut certified = certified_key(credential)?;
        if let Some(crossed) = &self.crossed {
            let der = CertificateDer::from_pem_slice(crossed.as_bytes()).map_err(|e| e.to_string())?;
            certified.cert.push(der);
        }
        Ok(certified)
    }
}

/// Makes one that comes next.
pub(super) fn introduce(folder: &Path, env: &Env) -> Result<(), PkiError> {
    remove(&folder.join(OLD))?;
    let made = Authority::make(&format!("karmada-{}", env.name_suffix(5)), env)?;
    files::write_credential(&folder.join(NEXT), &made)
}

/// Lets the next one sign.
pub(super) fn change(folder: &Path) -> Result<(), PkiError> {
    let (signing, next) = (folder.join(SIGNING), folder.join(NEXT));
    if let Some(credential) = files::read_credential(&signing)? {
        files::write_credential(&folder.join(OLD), &credential)?;
    }
    fs::rename(&next, &signing)
        .and_then(|()| fs::File::open(folder)?.sync_all())
        .map_err(|source| PkiError::Io { action: "write", path: signing, source })
}

/// Lets go of the old one.
pub(super) fn let_go(folder: &Path) -> Result<(), PkiError> {
    remove(&folder.join(OLD))
}

pub(super) fn remove(path: &Path) -> Result<(), PkiError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(PkiError::Io { action: "write", path: path.to_path_buf(), source })
        }
        _ => Ok(()),
    }
}
