//! What the owner of an agent has given it for new versions: plain data.

use karmada_core::upgrade::{Mode, Version};
use tokio_util::sync::CancellationToken;

use super::programs::Programs;

/// What the owner of an agent lets be done with it.
#[derive(Clone, Debug)]
pub struct Upgrade {
    /// When it takes new versions.
    pub mode: Mode,
    /// How it is replaced.
    pub installed: Installed,
    /// What images begin with that an agent may run that is a Pod; nothing for the repository of its present one.
    pub images: Vec<String>,
    /// It takes no version below this one.
    pub not_below: Option<Version>,
    /// Cancelled when another version is to act: this process looks after it, or ends.
    pub aside: CancellationToken,
}

/// How an agent is installed.
#[derive(Clone, Debug)]
pub enum Installed {
    /// It is a Pod of a Deployment, of this namespace and name.
    Deployment(String, String),
    /// It is a program on a machine.
    Program(Programs),
}
