//! The server's own certificate authority and what it signs.
//!
//! ```text
//! DIR/pki/ca.pem       the CA: private key, then certificate; made once, replaced by
//!                      `karmada-hub ca rotate` alone, whose steps leave ca-next.pem and
//!                      ca-old.pem beside it ([`Stage`])                                   0600
//! DIR/pki/ca.crt       the CA's certificate alone, for others to trust; two while it changes 0644
//! DIR/pki/serving.pem  key and certificate the listener shows; reissued when the hosts
//!                      changed, when it nears its end, or when another CA signed it       0600
//! DIR/pki/admin.pem    key and certificate of the administrator (group system:masters)    0600
//! DIR/admin.kubeconfig the same, with the server's address, for kubectl                   0600
//! DIR/pki/service-account.pem   the keys of service accounts' tokens: the first signs, all are trusted.
//!                      `karmada-hub ca rotate service-accounts` changes them, by
//!                      service-account-next.pem; service-account.json has until when tokens of each hold  0600
//! DIR/pki/monitoring.pem, DIR/monitoring.kubeconfig   the same for scrapers, where the API is somebody else's
//! ```
//!
//! The last certificates are reissued a month before they end, at a start and while the server runs
//! ([`Pki::keep_current`]): whoever reads the file anew goes on.
//!
//! A key and its certificate stand in one file, so that one rename makes both or neither. What is there but
//! cannot be read is an error that names the file: a new CA in place of a damaged one would lock every agent out
//! without a word.

mod authority;
mod certify;
mod files;
mod kubeconfig;
mod signing;

use std::{
    collections::BTreeSet,
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use karmada_env::Env;
use parking_lot::Mutex;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use sha2::{Digest as _, Sha256};
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    prelude::{FromDer, X509Certificate},
};

use authority::{Authorities, Authority};
pub use authority::{Described, Stage};
pub use certify::{ClientSubject, Signer, ca_cert_hash};
pub use kubeconfig::{CONTEXT, Kubeconfig};
pub use signing::SigningKey;

/// Certificates begin this long before they are made, for members whose clocks are behind.
const BACKDATE: Duration = Duration::from_hours(1);
/// The CA's own life. Replacing a CA touches every agent, so it is long.
const CA_VALIDITY: Duration = Duration::from_hours(24 * 3650);
/// Life of the serving and the administrator's certificate.
const LEAF_VALIDITY: Duration = Duration::from_hours(24 * 365);
/// Both are reissued when less than this is left.
const RENEW_BEFORE: Duration = Duration::from_hours(24 * 30);
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
/// What the organisational unit of an agent's certificate begins with that is not of epoch 0; the number follows.
pub const EPOCH_UNIT: &str = "epoch:";
/// What the organisational unit begins with that names the cluster whose agent's roles may be made by a certificate.
pub const CLUSTER_UNIT: &str = "cluster:";
/// The administrator's user name.
pub const ADMIN: &str = "system:admin";

/// Somebody whose credential stands in the data directory and is kept current there.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// `pki/FILE.pem` and `FILE.kubeconfig`.
    pub file: &'static str,
    /// User name.
    pub user: &'static str,
    /// The one group.
    pub group: &'static str,
    /// What the user is called in the kubeconfig.
    pub entry: &'static str,
}

/// Who may do everything.
pub const ADMINISTRATOR: Holder =
    Holder { file: "admin", user: ADMIN, group: MASTERS, entry: "karmada-admin" };

/// What went wrong with keys and certificates; each message says which file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write`, `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file is there but holds no usable key and certificate.
    #[error("{} is damaged: {detail}; restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Certificates are there but the authority that signed them is not.
    #[error(
        "{} is missing though {} exists; restore it from a backup, or remove the folder {} to begin with a new \
         authority, which every agent must then be given anew",
        missing.display(), witness.display(), folder.display()
    )]
    AuthorityLost {
        /// The CA's file.
        missing: PathBuf,
        /// A file that the lost CA signed.
        witness: PathBuf,
        /// The folder that holds both.
        folder: PathBuf,
    },
    /// The authority's certificate has ended.
    #[error("the certificate authority in {} expired; remove the folder to begin with a new one, which every agent \
             must then be given anew", path.display())]
    AuthorityExpired {
        /// The CA's file.
        path: PathBuf,
    },
    /// `--advertise` names neither a DNS name nor an IP address.
    #[error("{host:?} is neither a DNS name nor an IP address{}", instead(host))]
    Host {
        /// What was given.
        host: String,
    },
    /// The crypto library refused.
    #[error("cannot make a certificate for {subject}: {detail}")]
    Crypto {
        /// Whose certificate.
        subject: String,
        /// What the library said.
        detail: String,
    },
}

/// A private key and the certificate over it, both as PEM.
#[derive(Clone)]
pub struct Credential {
    /// PKCS#8 private key.
    pub key_pem: String,
    /// The certificate.
    pub certificate_pem: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

/// The authority and the certificates made by it. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
    env: Env,
    authorities: ArcSwap<Authorities>,
    hosts: Hosts,
    serving: Arc<ServingCertificate>,
    /// One step of a change at a time.
    changing: Mutex<()>,
}

impl Pki {
    /// Opens the folder `pki` under `dir`, making authority and serving certificate where they are missing.
    ///
    /// `advertise` are the names and addresses by which others reach this server; `localhost`, the loopback
    /// addresses and the machine's own name are always added.
    ///
    /// # Errors
    /// When a file cannot be read, is damaged, or the authority is lost; never by replacing one that is there.
    pub fn open_or_create(dir: &Path, advertise: &[String], env: &Env) -> Result<Self, PkiError> {
        let folder = dir.join("pki");
        files::create_private_dir(&folder)?;
        let hosts = Hosts::new(advertise)?;
        let pki = Self::of(dir, Authorities::open(&folder, env)?, hosts, env);
        pki.publish()?;
        pki.renew()?;
        Ok(pki)
    }

    /// Opens an authority that is there, to sign with it beside a server that may be running. Nothing is written.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn open(dir: &Path, env: &Env) -> Result<Self, PkiError> {
        let folder = dir.join("pki");
        let path = folder.join("ca.pem");
        std::fs::metadata(&path).map_err(|source| PkiError::Io { action: "read", path, source })?;
        Ok(Self::of(dir, Authorities::open(&folder, env)?, Hosts::new(&[])?, env))
    }

    fn of(dir: &Path, authorities: Authorities, hosts: Hosts, env: &Env) -> Self {
        let serving = Arc::new(ServingCertificate { current: ArcSwap::from_pointee(None) });
        let authorities = ArcSwap::from_pointee(authorities);
        Self {
            dir: dir.to_path_buf(),
            env: env.clone(),
            authorities,
            hosts,
            serving,
            changing: Mutex::new(()),
        }
    }

    fn folder(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// For others to trust.
    fn publish(&self) -> Result<(), PkiError> {
        let bundle = self.ca_pem();
        files::write_atomic(&self.folder().join(authority::BUNDLE), bundle.as_bytes(), files::PUBLIC)
    }

    /// The certificates of the authorities that are trusted as PEM, that of the one that signs first.
    pub fn ca_pem(&self) -> String {
        self.authorities.load().bundle.clone()
    }

    /// How far a change of the authority is, the one that signs, and the one that is trusted beside it.
    pub fn authorities(&self) -> (Stage, Described, Option<Described>) {
        let now = self.authorities.load();
        (now.stage, now.signing.described(), now.other.as_ref().map(Authority::described))
    }

    /// How certificates refer to the authorities that are trusted.
    pub(crate) fn trusted(&self) -> Vec<Vec<u8>> {
        self.authorities.load().trusted().map(|authority| authority.id.clone()).collect()
    }

    /// Goes on to the next stage of a change of the authority. Certificates of the server's own follow at once; whoever signs,
    /// trusts or shows this authority elsewhere is the caller's to tell.
    ///
    /// # Errors
    /// When a file cannot be read or written. The step may then be done, and can be done again.
    pub fn step_authority(&self) -> Result<Stage, PkiError> {
        let _one = self.changing.lock();
        let folder = self.folder();
        match self.authorities.load().stage {
            Stage::Settled => authority::introduce(&folder, &self.env)?,
            Stage::Introduced => authority::change(&folder)?,
            Stage::Changed => authority::let_go(&folder)?,
        }
        self.authorities.store(Arc::new(Authorities::open(&folder, &self.env)?));
        self.publish()?;
        self.renew()?;
        Ok(self.authorities.load().stage)
    }

    /// Goes on to the next stage of a change of the key that tokens of service accounts are signed with.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn step_service_accounts(&self) -> Result<Stage, PkiError> {
        let _one = self.changing.lock();
        signing::step(&self.folder())
    }

    /// How far that is.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn service_accounts_stage(&self) -> Result<Stage, PkiError> {
        signing::stage(&self.folder())
    }

    /// Where it is kept until when tokens of each key hold.
    pub fn token_ends_file(&self) -> PathBuf {
        self.folder().join("service-account.json")
    }

    /// Writes a file there that only its owner may read, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_private(&self, path: &Path, text: &str) -> Result<(), PkiError> {
        files::write_atomic(path, text.as_bytes(), files::PRIVATE)
    }

    /// The serving certificate, kept current by [`Pki::renew`].
    pub fn serving(&self) -> Arc<ServingCertificate> {
        Arc::clone(&self.serving)
    }

    /// Reissues the serving certificate if it is time; new connections then get the new one. Cheap when it is not.
    ///
    /// # Errors
    /// When the file is damaged or cannot be written.
    pub fn renew(&self) -> Result<(), PkiError> {
        let path = self.dir.join("pki").join("serving.pem");
        let wanted = self.hosts.sans()?;
        let credential = self.kept_or_made(
            &path,
            "the API server",
            |leaf| leaf.hosts == self.hosts.names,
            || {
                let mut params = CertificateParams::default();
                params.distinguished_name = subject("karmada-apiserver", None);
                params.subject_alt_names.clone_from(&wanted);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                params
            },
        )?;
        let certified = self.authorities.load().chain(&credential);
        let certified = certified.map_err(|detail| PkiError::Damaged { path: path.clone(), detail })?;
        self.serving.current.store(Arc::new(Some(Arc::new(certified))));
        Ok(())
    }

    /// A new key and a certificate with which a client shows itself as user `common_name` of group `organisation`.
    ///
    /// # Errors
    /// When the crypto library refuses.
    pub fn issue_client(
        &self,
        common_name: &str,
        organisation: &str,
        validity: Duration,
    ) -> Result<Credential, PkiError> {
        self.sign(client_params(common_name, organisation), common_name, validity)
    }

    /// The same for the agent of a cluster, in an epoch of its credentials ([`crate::authn::epochs`]).
    ///
    /// # Errors
    /// When the crypto library refuses.
    pub fn issue_agent(
        &self,
        common_name: &str,
        organisation: &str,
        epoch: u64,
        validity: Duration,
    ) -> Result<Credential, PkiError> {
        let mut params = client_params(common_name, organisation);
        if epoch > 0 {
            let unit = format!("{EPOCH_UNIT}{epoch}");
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        }
        self.sign(params, common_name, validity)
    }

    /// Writes `DIR/admin.kubeconfig` for the server at `server` (a URL) and returns its path. The administrator's
    /// certificate is kept from start to start and reissued before it ends.
    ///
    /// # Errors
    /// When a file is damaged or cannot be written.
    pub fn write_admin_kubeconfig(&self, server: &str) -> Result<PathBuf, PkiError> {
        self.write_kubeconfig(&ADMINISTRATOR, server)
    }

    /// The same for any holder.
    ///
    /// # Errors
    /// When a file is damaged or cannot be written.
    pub fn write_kubeconfig(&self, holder: &Holder, server: &str) -> Result<PathBuf, PkiError> {
        let path = self.dir.join("pki").join(format!("{}.pem", holder.file));
        let params = || client_params(holder.user, holder.group);
        let credential = self.kept_or_made(&path, holder.user, |_| true, params)?;
        let out = self.dir.join(format!("{}.kubeconfig", holder.file));
        let ca_pem = self.ca_pem();
        let text =
            Kubeconfig { context: CONTEXT, server, user: holder.entry, ca_pem: &ca_pem }.render(&credential);
        files::write_atomic(&out, text.as_bytes(), files::PRIVATE)?;
        Ok(out)
    }

    /// Reissues what nears its end of the serving certificate and a holder's, for a server that runs. Cheap when nothing
    /// does. A failure of one does not keep it from the other.
    ///
    /// # Errors
    /// When a file is damaged or cannot be written.
    pub fn keep_current(&self, holder: &Holder, server: &str) -> Result<(), PkiError> {
        let (serving, held) = (self.renew(), self.write_kubeconfig(holder, server).map(drop));
        serving.and(held)
    }

    /// A secret that whoever has this authority's key knows, and nobody else: the same from start to start, another one for
    /// each purpose.
    pub fn secret(&self, purpose: &str) -> String {
        let key = self.authorities.load().signing.issuer.key().serialize_der();
        let digest = Sha256::new_with_prefix(purpose).chain_update([0]).chain_update(key).finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The keys of `service-account.pem`, which is made where it is missing: the first signs, all are trusted. Behind them the
    /// one that comes next.
    ///
    /// # Errors
    /// When the file cannot be read or written, or holds something else.
    pub fn service_account_keys(&self) -> Result<Vec<SigningKey>, PkiError> {
        signing::open_or_create(&self.folder())
    }

    /// A kubeconfig text with this authority embedded, context [`CONTEXT`].
    pub fn kubeconfig(&self, server: &str, user: &str, credential: &Credential) -> String {
        Kubeconfig { context: CONTEXT, server, user, ca_pem: &self.ca_pem() }.render(credential)
    }

    /// The URL that stands in kubeconfigs: the first advertised host, else the loopback address.
    pub fn server_url(&self, port: u16) -> String {
        match self.hosts.first.as_deref() {
            Some(host) if host.contains(':') => format!("https://[{host}]:{port}"),
            Some(host) => format!("https://{host}:{port}"),
            None => format!("https://127.0.0.1:{port}"),
        }
    }

    /// The credential in `path` if it is still good, else a new one, written there first.
    fn kept_or_made(
        &self,
        path: &Path,
        subject: &str,
        fits: impl Fn(&Leaf) -> bool,
        params: impl Fn() -> CertificateParams,
    ) -> Result<Credential, PkiError> {
        if let Some(credential) = files::read_credential(path)? {
            let leaf = Leaf::parse(&credential)
                .map_err(|detail| PkiError::Damaged { path: path.to_path_buf(), detail })?;
            let ends_soon = leaf.not_after <= self.env.wall() + RENEW_BEFORE;
            if !ends_soon
                && leaf.authority.as_ref() == Some(&self.authorities.load().signing.id)
                && fits(&leaf)
            {
                return Ok(credential);
            }
            tracing::info!(path = %path.display(), ends_soon, "reissuing the certificate of {subject}");
        }
        let credential = self.sign(params(), subject, LEAF_VALIDITY)?;
        files::write_credential(path, &credential)?;
        Ok(credential)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        subject: &str,
        validity: Duration,
    ) -> Result<Credential, PkiError> {
        let crypto =
            |e: rcgen::Error| PkiError::Crypto { subject: subject.to_owned(), detail: e.to_string() };
        set_validity(&mut params, self.env.wall(), validity);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(crypto)?;
        let certificate = params.signed_by(&key, &self.authorities.load().signing.issuer).map_err(crypto)?;
        Ok(Credential { key_pem: key.serialize_pem(), certificate_pem: certificate.pem() })
    }
}

/// The certificate the listener shows; swapped whole, so a handshake sees one or the other.
pub struct ServingCertificate {
    current: ArcSwap<Option<Arc<CertifiedKey>>>,
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate").finish_non_exhaustive()
    }
}

impl ServingCertificate {
    /// When the one that is shown now ends.
    pub fn until(&self) -> Option<SystemTime> {
        let current = self.current.load();
        let leaf = current.as_ref().as_ref()?.cert.first()?;
        not_after(leaf)
    }
}

/// When a certificate ends; none if it is none.
fn not_after(der: &[u8]) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load().as_ref().clone()
    }
}

fn client_params(common_name: &str, organisation: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(common_name, Some(organisation));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn subject(common_name: &str, organisation: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organisation) = organisation {
        name.push(DnType::OrganizationName, organisation);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn set_validity(params: &mut CertificateParams, now: SystemTime, validity: Duration) {
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + validity).into();
}

/// A credential in the form rustls shows it.
fn certified_key(credential: &Credential) -> Result<CertifiedKey, String> {
    let certificate = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes())
        .map_err(|e| format!("its certificate: {e}"))?;
    let key = PrivateKeyDer::from_pem_slice(credential.key_pem.as_bytes())
        .map_err(|e| format!("its private key: {e}"))?;
    CertifiedKey::from_der(vec![certificate], key, &rustls::crypto::ring::default_provider())
        .map_err(|e| e.to_string())
}

/// What of a certificate decides whether it is kept.
struct Leaf {
    not_after: SystemTime,
    hosts: BTreeSet<String>,
    authority: Option<Vec<u8>>,
}

impl Leaf {
    fn parse(credential: &Credential) -> Result<Self, String> {
        certified_key(credential)?
            .keys_match()
            .map_err(|e| format!("key and certificate do not fit: {e}"))?;
        let der = CertificateDer::from_pem_slice(credential.certificate_pem.as_bytes())
            .map_err(|e| e.to_string())?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
        let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
        let mut leaf = Self {
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            hosts: BTreeSet::new(),
            authority: None,
        };
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => {
                    leaf.hosts.extend(names.general_names.iter().filter_map(host_of));
                }
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    leaf.authority = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                _ => {}
            }
        }
        Ok(leaf)
    }
}

fn host_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?).to_string()),
            16 => Some(IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// The names and addresses in the serving certificate.
#[derive(Debug)]
struct Hosts {
    names: BTreeSet<String>,
    first: Option<String>,
}

impl Hosts {
    fn new(advertise: &[String]) -> Result<Self, PkiError> {
        let given = advertise.iter().map(|h| normal_host(h)).collect::<Result<Vec<_>, _>>()?;
        let mut names: BTreeSet<String> =
            ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
                .map(str::to_owned)
                .into();
        names.extend(machine_name().and_then(|name| normal_host(&name).ok()));
        names.extend(given.iter().cloned());
        Ok(Self { names, first: given.into_iter().next() })
    }

    fn sans(&self) -> Result<Vec<SanType>, PkiError> {
        self.names
            .iter()
            .map(|host| match IpAddr::from_str(host) {
                Ok(ip) => Ok(SanType::IpAddress(ip)),
                Err(_) => host
                    .as_str()
                    .try_into()
                    .map(SanType::DnsName)
                    .map_err(|_| PkiError::Host { host: host.clone() }),
            })
            .collect()
    }
}

/// A host in the one spelling in which it is compared: lower case, addresses as Rust prints them.
fn normal_host(host: &str) -> Result<String, PkiError> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = IpAddr::from_str(bare) {
        return Ok(ip.to_string());
    }
    let name = bare.to_ascii_lowercase();
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.len() <= 253 && name.split('.').all(label) {
        Ok(name)
    } else {
        Err(PkiError::Host { host: host.to_owned() })
    }
}

/// What to say instead of a URL, or of a name with a port.
fn instead(given: &str) -> String {
    let rest = given.split_once("://").map_or(given, |(_, rest)| rest);
    let rest = rest.split('/').next().unwrap_or(rest);
    let bare = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    match normal_host(bare) {
        Ok(host) if bare != given => format!("; give it without scheme and port: {host}"),
        _ => String::new(),
    }
}

fn machine_name() -> Option<String> {
    let text = ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
