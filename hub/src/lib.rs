//! The hub: policies, bindings and the API that agents pull from.
