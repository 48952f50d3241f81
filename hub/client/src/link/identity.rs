//! Changes by what a link shows itself while it is used.

use std::{
    fmt,
    sync::{Arc, Weak, atomic::Ordering},
};

use http::{Method, StatusCode};

use super::{LinkConfig, Shared, contact::Contact};
use crate::kubeconfig::{Credentials, Endpoint};

/// By what a link shows itself. Does not keep it alive.
#[derive(Clone)]
pub struct Identity {
    shared: Weak<Shared>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Why a link goes on as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// No answer came.
    #[error("{0}")]
    Unreachable(String),
    /// The server answered, and does not accept what was shown.
    #[error("the server answers {code}: {message}")]
    Refused {
        /// With what code.
        code: u16,
        /// In what words.
        message: String,
    },
    /// The server takes what was shown, and is not the one that is meant.
    #[error("{0}")]
    Unmeant(String),
    /// The link has been dropped.
    #[error("the link is closed")]
    Closed,
}

impl Identity {
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::downgrade(shared) }
    }

    /// Where the link goes, and by what it shows itself now; nothing once it has been dropped.
    pub fn endpoint(&self) -> Option<Endpoint> {
        let config = self.shared.upgrade()?.config();
        Some(Endpoint {
            server: config.server.clone(),
            tls: config.tls.clone(),
            credentials: config.credentials.clone(),
            namespace: String::new(),
            proxy: config.proxy.clone(),
            others: config.others.clone(),
        })
    }

    /// Leads to `endpoint` from now on, whether or not anybody answers there: for a link that led nowhere. A link that has a
    /// connection keeps it.
    ///
    /// # Errors
    /// The link has been dropped.
    pub fn lead(&self, endpoint: Endpoint) -> Result<(), NotTaken> {
        let shared = self.shared.upgrade().ok_or(NotTaken::Closed)?;
        let before = shared.config();
        let dialer = super::dialer(&endpoint, before.refuses);
        *shared.config.lock() = Arc::new(LinkConfig { dialer, ..before.like(endpoint) });
        shared.generation.fetch_add(1, Ordering::Relaxed);
        *shared.token.lock() = None;
        shared.kick.wake();
        Ok(())
    }

    /// Shows itself as `endpoint` has it from now on, if the server answers `path` to one who does. New requests then go
    /// to the connection on which it has; what is under way ends as it began, and watches have to be asked for again.
    ///
    /// # Errors
    /// Why the link goes on as it was.
    pub async fn change(&self, endpoint: Endpoint, path: &str) -> Result<(), NotTaken> {
        self.change_if(endpoint, path, |_, _| Ok(())).await
    }

    /// The same, if `is_meant` does not say by the answer's code and body that another server is meant.
    ///
    /// # Errors
    /// Why the link goes on as it was.
    pub async fn change_if(
        &self,
        endpoint: Endpoint,
        path: &str,
        is_meant: impl FnOnce(u16, &[u8]) -> Result<(), String>,
    ) -> Result<(), NotTaken> {
        let shared = self.shared.upgrade().ok_or(NotTaken::Closed)?;
        let config = shared.config().like(endpoint);
        let bearer = match &config.credentials {
            Credentials::Token(token) => Some(token.clone()),
            Credentials::TokenFile(file) => {
                std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
            }
            Credentials::None | Credentials::Basic(..) => None,
        };
        let opened = Contact::open(&config, Arc::clone(&shared.counters), shared.env.clone()).await;
        let mut contact = opened.map_err(NotTaken::Unreachable)?;
        let answered = contact.ask(Method::GET, path, bearer.as_deref(), None).await;
        let answered = answered.map_err(|error| NotTaken::Unreachable(error.to_string()))?;
        // Who may not see it is known all the same.
        if !answered.code.is_success()
            && !matches!(answered.code, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
        {
            let status: serde_json::Value = serde_json::from_slice(&answered.body).unwrap_or_default();
            let said = status["message"].as_str().unwrap_or_default().chars().take(500).collect();
            return Err(NotTaken::Refused { code: answered.code.as_u16(), message: said });
        }
        is_meant(answered.code.as_u16(), &answered.body).map_err(NotTaken::Unmeant)?;
        *shared.config.lock() = Arc::new(config);
        shared.generation.fetch_add(1, Ordering::Relaxed);
        *shared.token.lock() = None;
        shared.idle.lock().clear();
        *shared.successor.lock() = Some(contact.established);
        shared.succeeded.notify_one();
        Ok(())
    }
}
