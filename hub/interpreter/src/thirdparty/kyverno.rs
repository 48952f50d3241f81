//! Kyverno's policies.

use super::{
    Judge, Known, PLAIN,
    aggregate::Sum::{Conditions, Last, Numbers},
};

/// Both kinds of policy read alike.
const fn policy(kind: &'static str) -> Known {
    Known {
        api_version: "kyverno.io/v1",
        kind,
        status: Some(&["autogen", "conditions", "ready", "rulecount"]),
        sums: &[("autogen", Last), ("ready", Last), ("rulecount", Numbers), ("conditions", Conditions)],
        health: Judge::ReadyField(&["Succeeded"]),
        ..PLAIN
    }
}

pub(super) const KINDS: &[Known] = &[policy("Policy"), policy("ClusterPolicy")];
