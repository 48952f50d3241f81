//! Where the API comes from: a store of our own or a stock kube-apiserver, and the ways from one to the other.

pub mod backup;
pub mod embedded;
pub mod export;
mod members;
pub mod remote;
