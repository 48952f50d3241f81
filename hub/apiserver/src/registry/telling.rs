//! Events that agents tell beside objects that are not theirs. What else stands there is not theirs to learn.
//!
//! So whether an agent may make one is asked before anybody looks whether the namespace is there. One that it has not told is
//! as if it were not there, whatever it wants to make of it, and a change makes none.

use super::Registry;
use crate::{
    identity::{UserInfo, agent_cluster},
    kinds::Kind,
    pki::MASTERS,
    quota::EVENTS,
    storage::Object,
};

/// The cluster whose agent writes an event, if one does.
pub(super) fn teller<'a>(user: &'a UserInfo, kind: &Kind) -> Option<&'a str> {
    if &*kind.storage != EVENTS || user.in_group(MASTERS) {
        return None;
    }
    agent_cluster(user)
}

impl Registry {
    /// Whether the agent of this cluster has told an event.
    pub(super) fn has_told(&self, cluster: &str, event: &Object) -> bool {
        self.projection.teller(&event.header) == Some(cluster)
    }
}
