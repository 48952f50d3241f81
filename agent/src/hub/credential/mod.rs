//! By what we show ourselves to the hub: a kubeconfig with a certificate, where it is kept, and how it is replaced.
//!
//! ```text
//!   --karmada-kubeconfig FILE ─┐
//!                              ├─▶ the one issued last ─▶ link to the hub
//!   kept: a Secret or a file ──┘
//! ```
//!
//! [`renew`] replaces it in time; [`standing`] is what can be seen of that.

pub(crate) mod keep;
pub(crate) mod renew;
pub(crate) mod standing;

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use karmada_client::{Endpoint, Kubeconfig, KubeconfigError, kubeconfig::Access};
use x509_parser::prelude::{FromDer, X509Certificate};

pub(crate) use keep::Keep;

/// The context by which Karmada's tools call the hub.
pub(crate) const CONTEXT: &str = "karmada-apiserver";

/// What the user of an agent's certificate begins with.
const AGENT_PREFIX: &str = karmada_api::consts::subject::AGENT_PREFIX;

/// A credential.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    pub(crate) endpoint: Endpoint,
    /// Without who we are.
    pub(crate) access: Access,
    /// What its certificate says; nothing where it has none.
    pub(crate) issued: Option<Issued>,
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issued {
    /// The user.
    pub(crate) user: String,
    pub(crate) from: SystemTime,
    pub(crate) until: SystemTime,
}

impl Issued {
    /// Reads a certificate.
    fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let at = |time: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time).unwrap_or(0));
        let validity = certificate.validity();
        let user = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        Some(Self {
            user,
            from: at(validity.not_before.timestamp()),
            until: at(validity.not_after.timestamp()),
        })
    }

    /// The cluster whose agent it names.
    pub(crate) fn cluster(&self) -> Option<&str> {
        self.user.strip_prefix(AGENT_PREFIX)
    }
}

impl Credential {
    /// Reads a kubeconfig; `path` is what errors name.
    pub(crate) fn parse(path: &Path, text: &str, context: Option<&str>) -> Result<Self, KubeconfigError> {
        Self::of(&Kubeconfig::parse(path, text)?, context)
    }

    /// Of a kubeconfig that was read.
    pub(crate) fn of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<Self, KubeconfigError> {
        let (endpoint, access) = (kubeconfig.endpoint(context)?, kubeconfig.access(context)?);
        let shown = endpoint.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
        let issued = shown.and_then(|certificate| Issued::of(certificate));
        Ok(Self { endpoint, access, issued })
    }

    /// Whether its certificate, if it has one, has not ended.
    pub(crate) fn holds_at(&self, now: SystemTime) -> bool {
        self.issued.as_ref().is_none_or(|issued| now < issued.until)
    }

    /// The one of two that was issued last.
    pub(crate) fn newer(self, other: Option<Self>) -> Self {
        let from = |one: &Self| one.issued.as_ref().map(|issued| issued.from);
        match other {
            Some(other) if from(&other) > from(&self) => other,
            _ => self,
        }
    }
}
