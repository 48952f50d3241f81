//! What a tunnel lets through to the member: judged on the agent, by its owner's word.
//!
//! Requests of the hub's users reach members that the hub cannot dial by `clusters/NAME/proxy`. Judging them is all that is
//! here:
//!
//! ```text
//!   kubectl ─► hub ══ what there is already: Lease, Works, reports, watches ══ agent
//!               │      └─ the metadata watch of its Cluster: "dial, by this number"
//!               └──── a second TLS connection, dialled by the agent ────────── agent ─ judge ─► member's API
//!                      the hub is the HTTP/2 client on it, once it is open
//! ```
//!
//! - A connection of its own, since streams in the other one would share its windows and its place in the kernel's queue:
//!   a Lease would wait behind a log. It is open only while somebody uses it, so a tunnel that nobody uses costs nothing.
//! - The hub asks for it by an annotation of the Cluster, which the agent's watch brings anyway. Whoever forges one gets
//!   a connection to the hub that the agent trusts, and nothing else. The number in it is answered once.
//! - The agent shows its own certificate. Its cluster is what that says, not what a request says.
//! - The hub judges first: who, as whom, whether they may. The agent believes the name and the groups, and judges
//!   what is done ([`Limits`]): a hub that was taken over gets no further than the member's owner has said.
//! - In the user's name always, by an account that may only impersonate; never by the agent's own.
//!
//! A path is taken apart once ([`Asked`]), and refused where another reader could take it apart in another way. What
//! was taken apart is what is sent.

mod asked;
mod limits;
mod who;

pub use self::{
    asked::{Asked, Object, Target, Verb},
    limits::{Limits, Mode, Pattern},
    who::{Guests, Who},
};

/// Why a request is not passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be understood in one way only, or means nothing: 400.
    Unclear(String),
    /// It is understood, and the member's owner does not want it: 403.
    Forbidden(String),
}

impl Refusal {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Unclear(_) => 400,
            Self::Forbidden(_) => 403,
        }
    }

    /// What is told to whoever asked.
    pub fn message(&self) -> &str {
        let (Self::Unclear(message) | Self::Forbidden(message)) = self;
        message
    }
}
