//! The Kubernetes API over a store.

pub mod authn;
pub mod authz;
pub mod listener;
pub mod pki;
