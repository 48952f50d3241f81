//! What is to be written, and what is.

use std::{collections::BTreeMap, sync::Arc};

use karmada_core::names::fnv64a;

use super::{
    Change,
    contents::{About, applied_key, force_key, work_key},
    engine::Engine,
    seal::{Seal, pack},
};
use crate::{
    note::Tenure,
    works::desired::{DesiredWork, ObjectId},
};

/// A key's value from now on, with what tells it from others.
pub(super) type Staged = (String, Option<(Vec<u8>, u64)>);

/// What is open to be written.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) engine: Box<dyn Engine>,
    pub(super) seal: Option<Seal>,
    /// Whose it is.
    pub(super) about: About,
    /// By what right it was opened.
    pub(super) tenure: Tenure,
    /// Of each key's value, what tells it from others.
    pub(super) digests: BTreeMap<String, u64>,
}

impl Open {
    pub(super) fn differs(&self, key: &str, digest: u64) -> bool {
        self.digests.get(key) != Some(&digest)
    }

    /// What is to be kept of a Work, if that is other than what is.
    pub(super) fn changed(&self, work: &DesiredWork) -> Option<Staged> {
        self.differs(&work_key(&work.name), work.digest()).then(|| self::work(work))
    }

    /// Values as they are kept.
    pub(super) fn packed(&self, changes: &[Staged]) -> Result<Vec<Change>, String> {
        let one = |(key, value): &Staged| {
            let packed = value.as_ref().map(|(value, _)| {
                if self.engine.compresses() {
                    Ok(value.clone())
                } else {
                    pack(self.seal.as_ref(), key, value)
                }
            });
            Ok((key.clone(), packed.transpose()?))
        };
        changes.iter().map(one).collect()
    }

    /// These are kept from now on.
    pub(super) fn kept(&mut self, changes: Vec<Staged>) {
        for (key, value) in changes {
            match value {
                Some((_, digest)) => drop(self.digests.insert(key, digest)),
                None => drop(self.digests.remove(&key)),
            }
        }
    }

    /// Whether it says whose it is: before that nothing in it counts.
    pub(super) fn counts(&self) -> bool {
        self.digests.contains_key(About::KEY)
    }
}

/// A Work as it was told.
pub(super) fn work(work: &DesiredWork) -> Staged {
    (work_key(&work.name), Some((work.text().into_bytes(), work.digest())))
}

/// The version of a Work that is in force while another one waits.
pub(super) fn in_force(work: &DesiredWork) -> Staged {
    (force_key(&work.name), Some((work.text().into_bytes(), work.digest())))
}

pub(super) fn staged(key: &str, value: Vec<u8>) -> Staged {
    let digest = fnv64a(&value);
    (key.to_owned(), Some((value, digest)))
}

/// Something that is known otherwise than it is kept.
#[derive(Debug)]
pub(super) enum Item {
    Work(Arc<DesiredWork>),
    /// One that is in force while another one waits.
    InForce(Arc<DesiredWork>),
    Rules(String, Vec<u8>),
    Applied(ObjectId),
    Gone(String),
    About,
}

impl Item {
    pub(super) fn key(&self) -> String {
        match self {
            Self::Work(work) => work_key(&work.name),
            Self::InForce(work) => force_key(&work.name),
            Self::Rules(key, _) | Self::Gone(key) => key.clone(),
            Self::Applied(id) => applied_key(id),
            Self::About => About::KEY.to_owned(),
        }
    }
}
