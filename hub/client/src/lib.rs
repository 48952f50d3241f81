//! How to reach a Kubernetes API over a link that may be bad, for hub and agent alike.
//!
//! ```text
//!   kubeconfig ──▶ Endpoint ──▶ Link ──▶ kube::Client ──┬──▶ Rest      one request, one deadline, typed errors
//!   (file, pod)    CA, keys     one h2    (any service:  ├──▶ Watcher   list + watch, as events, for ever
//!                               connection in process    ├──▶ Recorder  Kubernetes Events, counted, never in the way
//!                               + Wake    too)           └──▶ Leader    one holder of a Lease
//!                                  │                          │
//!                                  └── "the link is back" ────┘      WorkQueue: what to do next, once each, with patience
//! ```
//!
//! Beside all that, [`webhook`] posts to services of users, which are no Kubernetes API; [`names`] looks hosts up for both; and
//! [`head`] says what headers cost in a tunnel, [`joined`] puts small parts of bodies together there, and [`streams`] is how both
//! its ends use HTTP/2.
//!
//! [`Link`] is the transport: it dials, holds one connection and tells when it came back. Everything above it takes a
//! `kube::Client` and does not care whether requests cross a satellite or stay in the process.
//!
//! Waiting is `tokio::time` (so that tests run under paused time); random values come from [`karmada_env::Env`].

pub mod backoff;
pub mod events;
pub mod failures;
pub mod fetch;
pub mod head;
pub mod joined;
pub mod kept;
pub mod kubeconfig;
pub mod latest;
pub mod leader;
pub mod lease;
pub mod link;
pub mod metrics;
pub mod names;
pub mod paced;
pub mod place;
pub mod probe;
pub mod queue;
pub mod rest;
pub mod room;
pub mod streams;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod wake;
pub mod watch;
pub mod webhook;

pub use backoff::{Backoff, Policy};
pub use events::{EventKind, ObjectRef, Recorder, Waiting};
pub use failures::Failures;
pub use kubeconfig::{Endpoint, Kubeconfig, KubeconfigError};
pub use leader::{Fence, Leader, LeaderConfig};
pub use link::{Link, LinkConfig, LinkState, LinkStatus, contact::Contact};
pub use queue::{Item, WorkQueue};
pub use rest::{Error, Patch, Resource, Rest};
pub use room::Room;
pub use wake::Wake;
pub use watch::{Event, WatchConfig, Watcher};
