//! TLS towards one server: whom to believe, and who we are.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::Uri;
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{ServerName, UnixTime},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// TLS towards one server.
#[derive(Clone)]
pub struct Tls {
    /// Roots, client certificate, ALPN.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must have.
    pub server_name: ServerName<'static>,
    /// Our own certificate, if there is one.
    pub certificate: Option<CertificateDer<'static>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Whom to believe.
pub(crate) enum Trust {
    /// PEM of certificate authorities, and the field they came from.
    Roots(Vec<u8>, String),
    /// The machine's own list.
    System,
    /// Any server: `insecure-skip-tls-verify`.
    Anything,
}

/// Lists of certificate authorities on the usual systems, in the order in which Go looks for them.
const SYSTEM_ROOTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A field, where it is known, and what is wrong with it.
pub(crate) type Problem = (Option<String>, String);

/// Client certificate and key in PEM, each with the field it came from.
pub(crate) type Identity = (Vec<u8>, String, Vec<u8>, String);

/// Sessions that can be taken up again: those that one server has given. Room for the usual ones, of many servers, is made at once.
const SESSIONS: usize = 8;

pub(crate) fn tls(
    server: &Uri,
    server_name: Option<String>,
    trust: Trust,
    identity: Option<Identity>,
) -> Result<Tls, Problem> {
    let host = server_name.unwrap_or_else(|| {
        server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned()
    });
    let server_name = ServerName::try_from(host.clone())
        .map_err(|error| (None, format!("{host:?} cannot be a certificate's name: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| (None, error.to_string()))?;
    let builder = match trust {
        Trust::Anything => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(insecure::Anything::new(provider)))
        }
        Trust::Roots(pem, field) => {
            let certificates = certificates(&pem).map_err(|problem| (Some(field.clone()), problem))?;
            let mut roots = RootCertStore::empty();
            for certificate in certificates {
                roots.add(certificate).map_err(|error| (Some(field.clone()), error.to_string()))?;
            }
            builder.with_root_certificates(roots)
        }
        Trust::System => {
            let mut roots = RootCertStore::empty();
            if let Some(pem) = SYSTEM_ROOTS.iter().find_map(|path| std::fs::read(path).ok()) {
                roots.add_parsable_certificates(certificates(&pem).unwrap_or_default());
            }
            if roots.is_empty() {
                let problem =
                    "no certificate authority given, and this system has no list of its own".to_owned();
                return Err((None, problem));
            }
            builder.with_root_certificates(roots)
        }
    };
    let mut own = None;
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, certificate_field, key, key_field)) => {
            let chain =
                certificates(&certificate).map_err(|problem| (Some(certificate_field.clone()), problem))?;
            own = chain.first().cloned();
            let key = PrivateKeyDer::from_pem_slice(&key)
                .map_err(|error| (Some(key_field.clone()), format!("not a PEM private key: {error}")))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                (Some(certificate_field), format!("certificate and key do not fit: {error}"))
            })?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(Tls { config: Arc::new(config), server_name, certificate: own })
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("not PEM certificates: {error}"))?;
    if certificates.is_empty() { Err("holds no PEM certificate".into()) } else { Ok(certificates) }
}

/// TLS towards a server of which nothing is known yet: it proves that it has the key of the certificate that it shows, and
/// whose certificate that is can be asked when it is known whom to believe. Nothing secret may be said to it before.
///
/// # Errors
/// When the server's name is none that a certificate can have.
pub fn unproved(server: &Uri) -> Result<(Tls, Shown), String> {
    let made = tls(server, None, Trust::Anything, None).map_err(|(_, problem)| problem)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(insecure::Anything::new(provider));
    let shown = Shown { chain: Arc::clone(&verifier.shown), name: made.server_name.clone() };
    let mut config = ClientConfig::clone(&made.config);
    config.dangerous().set_certificate_verifier(verifier);
    // A resumed session shows no certificate.
    config.resumption = Resumption::disabled();
    Ok((Tls { config: Arc::new(config), ..made }, shown))
}

/// What a server has shown for itself.
#[derive(Clone, Debug)]
pub struct Shown {
    chain: Arc<Mutex<Vec<CertificateDer<'static>>>>,
    name: ServerName<'static>,
}

/// Why a server is not the one that is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproved {
    /// Its certificate does not hold at our time; so many seconds are missing.
    NotNow {
        /// It has ended; else it has not begun.
        ended: bool,
        /// How long ago, or in how long.
        by: Duration,
    },
    /// Its certificate is for other names.
    OtherName,
    /// Anything else, above all: of another authority.
    Other(String),
}

impl Shown {
    /// Whether one of the authorities has certified the server under a name, if not under that by which it was dialed.
    ///
    /// # Errors
    /// Why not.
    pub fn is_certified_by(&self, ca: &[u8], name: Option<&str>, now: SystemTime) -> Result<(), Unproved> {
        let other = |text: &dyn fmt::Display| Unproved::Other(text.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca).map_err(|e| other(&e))? {
            roots.add(certificate).map_err(|e| other(&e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| other(&e))?;
        let name = match name {
            Some(name) => ServerName::try_from(name.to_owned()).map_err(|e| other(&e))?,
            None => self.name.clone(),
        };
        let chain = self.chain.lock().clone();
        let Some((leaf, between)) = chain.split_first() else {
            return Err(other(&"it has shown no certificate"));
        };
        let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        verifier
            .verify_server_cert(leaf, between, &name, &[], now)
            .map(drop)
            .map_err(|error| unproved_by(&error))
    }
}

/// What an error of the handshake means.
fn unproved_by(error: &rustls::Error) -> Unproved {
    use rustls::CertificateError as Why;
    let by = |later: UnixTime, earlier: UnixTime| {
        Duration::from_secs(later.as_secs().saturating_sub(earlier.as_secs()))
    };
    match error {
        rustls::Error::InvalidCertificate(Why::ExpiredContext { time, not_after }) => {
            Unproved::NotNow { ended: true, by: by(*time, *not_after) }
        }
        rustls::Error::InvalidCertificate(Why::NotValidYetContext { time, not_before }) => {
            Unproved::NotNow { ended: false, by: by(*not_before, *time) }
        }
        rustls::Error::InvalidCertificate(Why::NotValidForName | Why::NotValidForNameContext { .. }) => {
            Unproved::OtherName
        }
        other => Unproved::Other(other.to_string()),
    }
}

/// `insecure-skip-tls-verify`, which people ask for by name, and the first look at a server: kept apart so that nothing else
/// finds it.
mod insecure {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rustls::{
        DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    /// Nobody needs a longer way to an authority.
    const LONGEST_CHAIN: usize = 8;

    #[derive(Debug)]
    pub(super) struct Anything {
        provider: Arc<CryptoProvider>,
        /// What was shown last, the server's own certificate first.
        pub(super) shown: Arc<Mutex<Vec<CertificateDer<'static>>>>,
    }

    impl Anything {
        pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
            Self { provider, shown: Arc::default() }
        }
    }

    impl ServerCertVerifier for Anything {
        fn verify_server_cert(
            &self,
            leaf: &CertificateDer<'_>,
            between: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            let chain = std::iter::once(leaf).chain(between).take(LONGEST_CHAIN);
            *self.shown.lock() = chain.map(|certificate| certificate.clone().into_owned()).collect();
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(
                message,
                certificate,
                signature,
                &self.provider.signature_verification_algorithms,
            )
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(
                message,
                certificate,
                signature,
                &self.provider.signature_verification_algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    }
}
