//! What worlds may share: keys, and a hub's store as it is before anybody has come.

use std::{fmt, net::Ipv4Addr, sync::Arc};

use karmada_api::consts::subject;
use karmada_apiserver::pki::{CONTEXT, Credential, Kubeconfig};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, SanType, SerialNumber,
};
use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::inprocess::World;

/// Where wires say that the hub is.
const SERVER: &str = "https://127.0.0.1:6443";

/// See the module.
///
/// The keys are Ed25519, whose signatures are all of one length, and so are the serial numbers: on a slow line a
/// handshake then takes as long in each run. With ECDSA it would be a few bytes more or less.
pub struct Ground {
    /// How a hub shows itself.
    pub(crate) tls: Arc<ServerConfig>,
    /// For all agents; who one is, its wire says.
    pub(crate) kubeconfig: String,
    pub(crate) copy: Option<Vec<u8>>,
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").finish_non_exhaustive()
    }
}

impl Ground {
    /// Keys alone.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn bare() -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key is made");
        let mut params = params(1, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_pem = params.self_signed(&key).expect("an authority is made").pem();
        let issuer = Issuer::new(params, key);
        let serving = issued(&issuer, 2, "hub", ExtendedKeyUsagePurpose::ServerAuth);
        let fleet = issued(&issuer, 3, "fleet", ExtendedKeyUsagePurpose::ClientAuth);
        let kubeconfig = Kubeconfig { context: CONTEXT, server: SERVER, user: "fleet", ca_pem: &ca_pem };
        Self { tls: Arc::new(tls(&serving)), kubeconfig: kubeconfig.render(&fleet), copy: None }
    }

    /// With a hub's store that has all definitions: to install them is most of what a start costs.
    ///
    /// # Panics
    /// When a hub does not come up.
    pub async fn installed() -> Self {
        let mut world = World::hub_alone(0).await;
        let copy = world.copy();
        world.stop_hub().await;
        Self { copy: Some(copy), ..Self::bare() }
    }
}

fn params(serial: u64, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, subject::AGENTS);
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    params
}

fn issued(
    issuer: &Issuer<'_, KeyPair>,
    serial: u64,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> Credential {
    let mut params = params(serial, name);
    params.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key is made");
    let certificate = params.signed_by(&key, issuer).expect("a certificate is issued");
    Credential { key_pem: key.serialize_pem(), certificate_pem: certificate.pem() }
}

fn tls(serving: &Credential) -> ServerConfig {
    let chain = CertificateDer::from_pem_slice(serving.certificate_pem.as_bytes()).expect("of our own");
    let key = PrivateKeyDer::from_pem_slice(serving.key_pem.as_bytes()).expect("of our own");
    let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("a certificate and its key");
    tls.alpn_protocols = vec![b"h2".to_vec()];
    tls
}
