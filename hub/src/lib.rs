//! The hub: policies, bindings and the API that agents pull from.
//!
//! ```text
//!                    ┌─────────────── karmada-hub serve ───────────────┐
//!   users, agents ──▶│ listener ─▶ ApiServer ─▶ store                  │
//!                    │               ▲                                 │
//!                    │               │ kube::Client, in process        │
//!                    │             Hub: controllers                    │
//!                    └─────────────────────────────────────────────────┘
//! ```
//!
//! [`Hub`] is the controllers over any `kube::Client`; it does not know whether a socket lies in between. Each
//! controller is a module of `controllers`. What they remember of the API stands in [`index`]es of small
//! projections ([`heads`]); what they decide is `karmada_core`'s; what they write goes through [`objects`].
//! [`admission`] is what users hear at once when they write to the embedded API, [`admission_client`] asks their own
//! webhooks. [`cli`] is the command line.
//! [`remote`] is what takes the place of the embedded API on a stock kube-apiserver; [`export`] moves from one to the
//! other; [`backup`] keeps a hub in a file.

pub mod admission;
pub mod admission_client;
pub mod backup;
mod bindings;
mod claiming;
pub mod cli;
mod context;
mod controllers;
mod customizations;
mod digest;
pub mod discovery;
pub mod embedded;
mod evictions;
pub mod export;
pub mod heads;
mod hooks;
mod hub;
pub mod index;
mod judgement;
pub mod kinds;
pub mod metrics;
mod needs;
pub mod objects;
mod placing;
mod quotas;
pub mod remote;
mod reporter;
mod templates;
mod works;

pub use hub::{Hub, HubConfig, HubError};
