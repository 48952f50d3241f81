//! What a listener shows in the TLS handshake, and what it makes of what the client shows.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use karmada_env::Env;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    server::{
        NoServerSessionStorage, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use tokio_util::sync::CancellationToken;

use super::{Traffic, limits::Limits, pace::Class, places::Places};
use crate::{
    authn::{Peer, PeerCertificate},
    pki::Pki,
};

/// Certificates that a client may show beside its own. This authority signs directly; to look for a way through many takes
/// a signature to verify for each step of each way.
const INTERMEDIATES: usize = 4;

/// TLS for [`serve`](super::serve).
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// Without memory: sessions of strangers would push those of agents out.
    for_strangers: Arc<ServerConfig>,
    trusted: Arc<ArcSwap<Trusted>>,
    /// Whose certificates another API server lets in.
    elsewhere: Arc<ArcSwapOption<Elsewhere>>,
    env: Env,
    pub(super) traffic: Arc<Traffic>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// The TLS configuration could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {0}")]
pub struct TlsError(String);

impl Tls {
    /// The serving certificate of `pki`, and client certificates signed by its authority, judged by `env`'s time.
    ///
    /// # Errors
    /// When the authority's certificate is none.
    pub fn new(pki: &Pki, env: &Env) -> Result<Self, TlsError> {
        let error = |e: &dyn fmt::Display| TlsError(e.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusted = Trusted::of(pki, &BTreeMap::new()).map_err(|e| error(&e))?;
        let judged = JudgedLater(trusted.verifier.clone());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| error(&e))?
            .with_client_cert_verifier(Arc::new(judged))
            .with_cert_resolver(pki.serving());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut for_strangers = config.clone();
        for_strangers.session_storage = Arc::new(NoServerSessionStorage {});
        for_strangers.send_tls13_tickets = 0;
        let (config, for_strangers) = (Arc::new(config), Arc::new(for_strangers));
        let trusted = Arc::new(ArcSwap::from_pointee(trusted));
        let (elsewhere, env, traffic) = (Arc::default(), env.clone(), Arc::default());
        Ok(Self { config, for_strangers, trusted, elsewhere, env, traffic })
    }

    /// Lets clients in whom another API server knows by these authorities (PEM; none where it is empty), and no longer those of
    /// before: a change of them is rare, and whoever is still good comes back.
    ///
    /// # Errors
    /// When one is no certificate; then those of before stay.
    pub fn trust_elsewhere(&self, pem: &str) -> Result<(), TlsError> {
        if self.elsewhere.load().as_ref().map_or("", |elsewhere| &elsewhere.pem) == pem {
            return Ok(());
        }
        let now = Elsewhere::of(pem).map_err(|e| TlsError(e.to_string()))?;
        if let Some(before) = self.elsewhere.swap(now.map(Arc::new)) {
            before.held.cancel();
        }
        Ok(())
    }

    /// Trusts the authorities that there are now. What was let in by one that is none of them ends.
    ///
    /// # Errors
    /// When the certificate of one is none.
    pub fn trust(&self, pki: &Pki) -> Result<(), TlsError> {
        let before = self.trusted.load_full();
        let now = Trusted::of(pki, &before.authorities).map_err(|e| TlsError(e.to_string()))?;
        let gone = before.authorities.iter().filter(|(id, _)| !now.authorities.contains_key(*id));
        let gone: Vec<CancellationToken> = gone.map(|(_, held)| held.clone()).collect();
        self.trusted.store(Arc::new(now));
        gone.iter().for_each(CancellationToken::cancel);
        Ok(())
    }

    /// The same with limits of the caller's, for whoever listens with it.
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Self {
        self.traffic = Arc::new(Traffic { places: Arc::new(Places::new(limits)), ..Traffic::default() });
        self
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.traffic.places.limits
    }

    /// What crosses the sockets of listeners with this configuration, for a page.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// What a client gets whose address is of this class.
    pub(super) fn config(&self, class: Class) -> Arc<ServerConfig> {
        match class {
            Class::Known => self.config.clone(),
            Class::Newcomer | Class::Crowd => self.for_strangers.clone(),
        }
    }

    /// What the client of a finished handshake showed.
    pub(super) fn peer(&self, shown: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some((leaf, intermediates)) = shown.and_then(|chain| chain.split_first()) else {
            return Peer::None;
        };
        if intermediates.len() > INTERMEDIATES {
            return Peer::Refused(
                format!("{} certificates between it and its authority", intermediates.len()).into(),
            );
        }
        // One that has ended is what it was: who shows it is named, and told so, where requests are judged by time.
        let end = PeerCertificate::from_der(leaf).map(|certificate| certificate.until());
        let now = self.env.wall();
        let at =
            end.map_or(now, |end| end.min(now)).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let trusted = self.trusted.load_full();
        let verdict = trusted
            .verifier
            .verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(at))
            .map_err(|e| e.to_string())
            .and_then(|_| PeerCertificate::from_der(leaf));
        match verdict {
            Ok(certificate) => {
                let held = trusted.authorities.get(certificate.authority()).cloned();
                Peer::Certificate(Arc::new(certificate.held_by(held.unwrap_or_default())))
            }
            Err(reason) => match self.known_elsewhere(leaf, intermediates, at) {
                Some(certificate) => Peer::Certificate(Arc::new(certificate)),
                None => Peer::Refused(reason.into()),
            },
        }
    }

    fn known_elsewhere(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        at: Duration,
    ) -> Option<PeerCertificate> {
        let elsewhere = self.elsewhere.load_full()?;
        let at = UnixTime::since_unix_epoch(at);
        elsewhere.verifier.verify_client_cert(leaf, intermediates, at).ok()?;
        let certificate = PeerCertificate::from_der(leaf).ok()?;
        Some(certificate.of_elsewhere().held_by(elsewhere.held.clone()))
    }
}

/// Whose certificates are good.
struct Trusted {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The authorities, by how certificates refer to them, each with what ends when it is trusted no more.
    authorities: BTreeMap<Vec<u8>, CancellationToken>,
}

impl Trusted {
    /// Those of `pki`; `before` is what was held.
    fn of(
        pki: &Pki,
        before: &BTreeMap<Vec<u8>, CancellationToken>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let verifier = verifier(pki.ca_pem().as_bytes())?;
        let held = |id: Vec<u8>| {
            let held = before.get(&id).cloned().unwrap_or_default();
            (id, held)
        };
        Ok(Self { verifier, authorities: pki.trusted().into_iter().map(held).collect() })
    }
}

/// Whose certificates another API server lets in.
struct Elsewhere {
    pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Ends when others are.
    held: CancellationToken,
}

impl Elsewhere {
    fn of(pem: &str) -> Result<Option<Self>, Box<dyn std::error::Error>> {
        if pem.is_empty() {
            return Ok(None);
        }
        let verifier = verifier(pem.as_bytes())?;
        Ok(Some(Self { pem: pem.to_owned(), verifier, held: CancellationToken::new() }))
    }
}

/// Who tells whether one of these authorities (PEM) has signed a client's certificate.
fn verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    Ok(builder.allow_unauthenticated().build()?)
}

/// Lets every certificate through the handshake; proof that the client has its key is still asked for.
#[derive(Debug)]
struct JudgedLater(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for JudgedLater {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A client that looks for one of them would not show a certificate of an authority that comes next.
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
