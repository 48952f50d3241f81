//! Certificates over keys of others: what they ask for, signed by the authority.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use karmada_env::Env;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
    SubjectPublicKeyInfo,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{CLUSTER_UNIT, EPOCH_UNIT, Pki, PkiError, subject};

/// Certificates begin this long before they are made, for machines whose clocks are behind: as kube-controller-manager's.
const BACKDATE: Duration = Duration::from_mins(5);

/// Signs for clients.
pub struct Signer {
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
    until: SystemTime,
    env: Env,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

/// Whom a client's certificate names.
#[derive(Clone, Copy, Debug)]
pub struct ClientSubject<'a> {
    /// The user.
    pub common_name: &'a str,
    /// The group, if there is one.
    pub organisation: Option<&'a str>,
    /// The epoch of an agent's credentials; 0 for all others.
    pub epoch: u64,
    /// The cluster whose agent's roles may be made by it; of nobody else.
    pub generates_for: Option<&'a str>,
}

/// What whoever joins compares an authority with: `sha256:` and the digest of its public key, as kubeadm writes it.
///
/// # Errors
/// When there is no certificate in the PEM.
pub fn ca_cert_hash(pem: &[u8]) -> Result<String, String> {
    let der = CertificateDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
    let (_, authority) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
    let digest = Sha256::digest(authority.public_key().raw);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{hex}"))
}

impl Pki {
    /// One who signs by this authority.
    ///
    /// # Errors
    /// When the authority cannot be read anew.
    pub fn signer(&self) -> Result<Signer, PkiError> {
        let crypto = |detail: String| PkiError::Crypto { subject: "clients".to_owned(), detail };
        let now = self.authorities.load();
        let signing = &now.signing;
        let key =
            KeyPair::from_pem(&signing.issuer.key().serialize_pem()).map_err(|e| crypto(e.to_string()))?;
        let issuer = Issuer::from_ca_cert_pem(&signing.pem, key).map_err(|e| crypto(e.to_string()))?;
        let (ca_pem, until) = (now.bundle.clone(), signing.until);
        Ok(Signer { issuer, ca_pem, until, env: self.env.clone() })
    }
}

impl Signer {
    /// The certificates of the authorities that are trusted as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A certificate as PEM over `key`, a SubjectPublicKeyInfo. It ends no later than the authority.
    ///
    /// # Errors
    /// What the crypto library says of key or subject.
    pub fn sign_client(
        &self,
        named: &ClientSubject<'_>,
        key: &[u8],
        encipherment: bool,
        validity: Duration,
    ) -> Result<String, String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(named.common_name, named.organisation);
        if named.epoch > 0 {
            let unit = format!("{EPOCH_UNIT}{}", named.epoch);
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        }
        if let Some(cluster) = named.generates_for {
            let unit = format!("{CLUSTER_UNIT}{cluster}");
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if encipherment {
            params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
        }
        params.use_authority_key_identifier_extension = true;
        // Positive, and another one each time, also for one key.
        let serial = [self.env.random() >> 1 | 1 << 62, self.env.random()].map(u64::to_be_bytes).concat();
        params.serial_number = Some(SerialNumber::from(serial));
        let now = self.env.wall();
        // Of the shortest lives half is enough.
        params.not_before = (now - BACKDATE.min(validity / 2)).into();
        params.not_after = (now + validity).min(self.until).into();
        let key = SubjectPublicKeyInfo::from_der(key).map_err(|error| error.to_string())?;
        params.signed_by(&key, &self.issuer).map(|made| made.pem()).map_err(|error| error.to_string())
    }
}
