//! The Kubernetes API over a store.

pub mod authn;
pub mod authz;
pub mod listener;
pub mod pki;
pub mod crd;
pub mod discovery;
pub mod kinds;
pub mod shape;
pub mod table;
