//! What was applied of objects, as it is kept beyond the process, and of which objects that is out of date.

use std::collections::BTreeSet;

use karmada_client::{Wake, wake::Listener};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::works::desired::ObjectId;

/// What was applied of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Applied {
    pub(crate) work: String,
    /// Of the manifest.
    pub(crate) manifest: u64,
    pub(crate) uid: String,
    /// Of the member's answer.
    pub(crate) fingerprint: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_put: bool,
}

impl Applied {
    pub(crate) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("invariant: texts and numbers are JSON")
    }
}

/// Objects of which other things are known than is kept.
#[derive(Debug)]
pub(crate) struct Dirty {
    counts: bool,
    objects: Mutex<BTreeSet<ObjectId>>,
    wake: Wake,
}

impl Dirty {
    /// `counts`: something is kept.
    pub(crate) fn new(counts: bool) -> Self {
        Self { counts, objects: Mutex::default(), wake: Wake::new() }
    }

    /// An ear for what is to be kept.
    pub(crate) fn listen(&self) -> Listener {
        self.wake.listen()
    }

    /// Something else is known otherwise than it is kept.
    pub(crate) fn touch(&self) {
        if self.counts {
            self.wake.wake();
        }
    }

    pub(crate) fn mark(&self, id: &ObjectId) {
        if self.counts {
            self.objects.lock().insert(id.clone());
            self.wake.wake();
        }
    }

    pub(crate) fn take(&self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut *self.objects.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_nowhere_is_not_remembered() {
        let id = |n: usize| ObjectId {
            group: String::new(),
            kind: "Job".into(),
            namespace: "n".into(),
            name: format!("j{n}"),
        };
        for (counts, held) in [(false, 0), (true, 5)] {
            let dirty = Dirty::new(counts);
            (0..5).for_each(|n| dirty.mark(&id(n)));
            assert_eq!(dirty.objects.lock().len(), held, "{counts}");
        }
    }
}
