//! What a client showed in the TLS handshake.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use x509_parser::{
    extensions::ParsedExtension,
    prelude::{FromDer, X509Certificate},
};

use super::{epochs::Validity, known::CREDENTIAL_ID};
#[cfg(test)]
use crate::identity::{AGENT_PREFIX, AGENTS};
use crate::{
    identity::{ANONYMOUS, RBAC_GENERATOR, UserInfo},
    pki::{CLUSTER_UNIT, EPOCH_UNIT},
};

/// What the client showed in the TLS handshake. Travels as a request extension from the listener to where requests are
/// authenticated.
#[derive(Clone, Debug, Default)]
pub enum Peer {
    /// Nothing.
    #[default]
    None,
    /// A certificate that our authority signed.
    Certificate(Arc<PeerCertificate>),
    /// A certificate that does not hold; the reason is for the log.
    Refused(Arc<str>),
}

/// A verified client certificate.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    pub(super) user: UserInfo,
    pub(super) validity: Validity,
    pub(super) key: [u8; 32],
    /// The epoch in which it was issued, which matters for agents.
    pub(super) epoch: u64,
    /// The cluster whose agent's roles may be made by it.
    pub(super) generates_for: Option<String>,
    /// How it refers to its authority; empty if it does not.
    pub(super) authority: Vec<u8>,
    /// Ends when that is trusted no more.
    pub(super) held: CancellationToken,
    /// Whether that is another API server's ([`crate::delegate`]).
    pub(super) elsewhere: bool,
}

impl PeerCertificate {
    /// Reads user (CN) and groups (every O) out of a certificate whose chain has been verified.
    ///
    /// # Errors
    /// What is wrong with it, for the log.
    pub fn from_der(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().map(str::to_owned).map_err(|e| format!("its subject: {e}"))
        };
        let subject = certificate.subject();
        let name = match subject.iter_common_name().next() {
            Some(attribute) => text(attribute)?,
            None => return Err("its subject has no common name".to_owned()),
        };
        if name.is_empty() || name == ANONYMOUS {
            return Err(format!("its common name {name:?} cannot be a user's"));
        }
        let groups = subject.iter_organization().map(text).collect::<Result<Vec<_>, _>>()?;
        let (mut epoch, mut generates_for) = (0, None);
        for unit in subject.iter_organizational_unit().map(text) {
            let unit = unit?;
            if let Some(number) = unit.strip_prefix(EPOCH_UNIT) {
                epoch = number.parse().map_err(|_| format!("its epoch {number:?} is no number"))?;
            }
            if let Some(cluster) = unit.strip_prefix(CLUSTER_UNIT).filter(|_| name == RBAC_GENERATOR) {
                generates_for = Some(cluster.to_owned());
            }
        }
        let at = |time: x509_parser::time::ASN1Time| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
        };
        let certified = certificate.validity();
        let authority = certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
            _ => None,
        });
        let digest: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
        let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={digest}")])]);
        Ok(Self {
            user: UserInfo { extra, ..UserInfo::new(name, groups) },
            validity: Validity { from: at(certified.not_before), until: at(certified.not_after) },
            key: Sha256::digest(certificate.public_key().raw).into(),
            epoch,
            generates_for,
            authority: authority.unwrap_or_default(),
            held: CancellationToken::new(),
            elsewhere: false,
        })
    }

    /// The same, signed by an authority of another API server: what this one keeps of its own says nothing about it.
    #[must_use]
    pub fn of_elsewhere(self) -> Self {
        Self { epoch: 0, generates_for: None, elsewhere: true, ..self }
    }

    /// Whether another API server's authority has signed it.
    pub(crate) fn is_of_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// How it refers to its authority; empty if it does not.
    pub(crate) fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// The same, for as long as this is not cancelled.
    pub(crate) fn held_by(self, held: CancellationToken) -> Self {
        Self { held, ..self }
    }

    /// What ends when its authority is trusted no more.
    pub(crate) fn held(&self) -> CancellationToken {
        self.held.clone()
    }

    /// When it ends.
    pub(crate) fn until(&self) -> SystemTime {
        self.validity.until
    }

    /// Whom it names, whether it still holds or not.
    pub(crate) fn user(&self) -> &UserInfo {
        &self.user
    }

    /// Whose connections are counted together with this one's: a certificate that was revoked must not take the places of
    /// the one that came after it.
    pub(crate) fn identity(&self) -> String {
        match (&self.generates_for, self.epoch) {
            _ if self.elsewhere => format!("{} of the API server", self.user.name),
            (Some(cluster), _) => format!("{} for {cluster}", self.user.name),
            (None, 0) => self.user.name.clone(),
            (None, epoch) => format!("{} of epoch {epoch}", self.user.name),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_agent(cluster: &str, epoch: u64) -> Self {
        let user = UserInfo::new(format!("{AGENT_PREFIX}{cluster}"), [AGENTS]);
        let key = Sha256::digest(format!("{cluster} {epoch}")).into();
        let validity = Validity { from: SystemTime::UNIX_EPOCH, until: SystemTime::UNIX_EPOCH };
        Self {
            user,
            validity,
            key,
            epoch,
            generates_for: None,
            authority: Vec::new(),
            held: CancellationToken::new(),
            elsewhere: false,
        }
    }

    /// A digest of its public key.
    pub(crate) fn key(&self) -> [u8; 32] {
        self.key
    }
}
