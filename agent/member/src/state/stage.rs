//! What is to be written, and what is.

use std::collections::BTreeMap;

use karmada_core::names::fnv64a;

use super::{contents::work_key, engine::Engine, seal::Seal};
use crate::works::desired::DesiredWork;

/// A key's value from now on, with what tells it from others.
pub(super) type Staged = (String, Option<(Vec<u8>, u64)>);

/// What is open to be written.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) engine: Box<dyn Engine>,
    pub(super) seal: Option<Seal>,
    /// Of each key's value, what tells it from others.
    pub(super) digests: BTreeMap<String, u64>,
}

impl Open {
    pub(super) fn differs(&self, key: &str, digest: u64) -> bool {
        self.digests.get(key) != Some(&digest)
    }

    /// What is to be kept of a Work, if that is other than what is.
    pub(super) fn changed(&self, work: &DesiredWork) -> Option<Staged> {
        let (key, digest) = (work_key(&work.name), work.digest());
        self.differs(&key, digest).then(|| (key, Some((work.text().into_bytes(), digest))))
    }
}

pub(super) fn staged(key: &str, value: Vec<u8>) -> Staged {
    let digest = fnv64a(&value);
    (key.to_owned(), Some((value, digest)))
}
