//! The Kubernetes API over a store.
