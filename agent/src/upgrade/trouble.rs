//! Why an agent cannot be replaced.

use karmada_client::Error;

/// What is wrong with the place where the agent is installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// It is tried again.
    #[error(transparent)]
    Passing(#[from] Error),
    /// Somebody has to do something.
    #[error("{0}")]
    Lasting(String),
    /// A program cannot be had now: that is tried again, and whoever offered it hears why.
    #[error("{0}")]
    Fetch(String),
    /// A program broke off, and what came of it is kept: it is gone on with soon.
    #[error("{0}")]
    Broke(String),
}

impl Trouble {
    pub(super) fn disk(error: &std::io::Error) -> Self {
        Self::Fetch(format!("the agent's folder cannot be written: {error}"))
    }
}
