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
//! [`Hub`] is the controllers over any `kube::Client`; it does not know whether a socket lies in between. The rooms, from
//! the top floor down; each knows only those below it:
//!
//! | room | what stands in it |
//! |---|---|
//! | [`cli`] | the command line, with what `karmada_cli` has of it |
//! | [`engine`] | where the API comes from: embedded, a stock kube-apiserver, a backup, an export |
//! | [`admission`] | what users hear at once when they write to Karmada's kinds |
//! | `page` | what people see of the fleet in a browser |
//! | `push` | an agent of the hub's own for each member that has none |
//! | `reported` | what agents tell of what is searched on their members |
//! | `controllers` | one module each: from what is known to what is written, by what `karmada_core` decides |
//! | `accounts` | what the controllers share and count: room, quotas, needs, judgement, evictions |
//! | `rules` | users' own rules for kinds |
//! | `write` | how anything is written |
//! | [`metrics`] | what is counted for people |
//! | `known` | what is remembered of the API: indexes of small projections |

mod accounts;
pub mod admission;
pub mod cli;
mod controllers;
pub mod engine;
mod hub;
mod known;
pub mod metrics;
mod page;
mod push;
mod reported;
mod rules;
mod write;

pub use hub::{Hub, HubConfig, HubError};
pub use page::Shown;
pub use push::Settings as PushSettings;
