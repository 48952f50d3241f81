//! Nobody gives away rights that they do not have: what is judged where a role or a binding is about to be stored, as it
//! will be stored.
//!
//! | what | needs, beside the right to write it |
//! |---|---|
//! | a role | all of its rules, or the verb `escalate` on it |
//! | an aggregated ClusterRole | everything there is: its rules may become anything |
//! | a binding | all rules of the role, or the verb `bind` on the role |
//! | a change of owners and finalizers alone | nothing |
//! | where a Cluster's member is ([`reaching`]) | to get the Secrets whose tokens the hub sends there |
//!
//! Rules are those that the writer has in the namespace of the object, at the cluster scope if it has none.

use karmada_meta::{gvk::GroupResource, object, status::Status};
use serde_json::Value;

use super::{Caller, Registry, ask::Attempt, reaching};
use crate::{
    authz::{
        Attributes, Authorizer, Decision, ResourceTarget, Target,
        rbac::{
            CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP, ROLE_BINDINGS, ROLES,
            covers::{self, Uncovered},
            rule::PolicyRule,
        },
    },
    heavy::HEAVY,
    kinds::Kind,
    pki::MASTERS,
    storage,
};

/// How much there is to work on where somebody's object is judged. A few bytes say many rights, and each may be held against
/// many rules.
pub(super) fn weight(caller: &Caller<'_>, kind: &Kind) -> usize {
    let judged = caller.authorizer.is_some()
        && [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS].contains(&&*kind.storage);
    if judged { caller.weight().max(HEAVY) } else { caller.weight() }
}

impl Registry {
    /// Judges a role or binding that is to be stored.
    ///
    /// # Errors
    /// 403 with what the caller does not have, 404 of a role that is not there.
    pub(super) fn judge_escalation(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        new: &Value,
    ) -> Result<(), Status> {
        let storage = &*attempt.target.kind.storage;
        if storage == reaching::CLUSTERS {
            return judge_reaching(caller, attempt, new);
        }
        if ![ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS].contains(&storage) {
            return Ok(());
        }
        let Some(authorizer) = caller.authorizer else { return Ok(()) };
        if caller.user.in_group(MASTERS) || attempt.old.is_some_and(|old| only_let_go(old, new)) {
            return Ok(());
        }
        let writer = Writer { caller, authorizer, attempt, name: object::name(new) };
        match storage {
            ROLES | CLUSTER_ROLES => writer.judge_role(new),
            _ => self.judge_binding(&writer, &new["roleRef"]),
        }
    }

    fn judge_binding(&self, writer: &Writer<'_>, role: &Value) -> Result<(), Status> {
        let text = |field: &str| role[field].as_str().unwrap_or_default();
        let (group, kind, name) = (text("apiGroup"), text("kind"), text("name"));
        let own = writer.attempt.target.namespace;
        let (resource, storage, namespace) = match kind {
            "ClusterRole" => ("clusterroles", CLUSTER_ROLES, ""),
            "Role" => ("roles", ROLES, own),
            other => return Err(writer.forbidden(&format!("unsupported role reference kind: {other:?}"))),
        };
        // The right to bind may be one of the namespace, also for a role that is in none.
        let target = ResourceTarget { group, resource, namespace: own, name, ..ResourceTarget::default() };
        if writer.may("bind", target) {
            return Ok(());
        }
        let Some(stored) = self.store.get(&storage::key_of(storage, namespace, name)) else {
            return Err(Status::not_found(&GroupResource::new(GROUP, resource), name));
        };
        let stored: Value = serde_json::from_slice(&stored.value.get()).map_err(Status::internal)?;
        writer.has(&PolicyRule::all_of(&stored))
    }
}

/// Judges a Cluster that says where the hub sends tokens.
fn judge_reaching(caller: &Caller<'_>, attempt: &Attempt<'_>, new: &Value) -> Result<(), Status> {
    let Some(authorizer) = caller.authorizer else { return Ok(()) };
    if caller.user.in_group(MASTERS) {
        return Ok(());
    }
    let writer = Writer { caller, authorizer, attempt, name: object::name(new) };
    for (namespace, name) in reaching::sent_elsewhere(attempt.old, new) {
        let secret = ResourceTarget { resource: "secrets", namespace, name, ..ResourceTarget::default() };
        if !writer.may("get", secret) {
            return Err(writer.forbidden(&format!(
                "user {:?} is attempting to change where the hub sends the token in Secret {namespace}/{name}, and may not \
                 get that",
                caller.user.name
            )));
        }
    }
    Ok(())
}

/// Who writes what.
struct Writer<'a> {
    caller: &'a Caller<'a>,
    authorizer: &'a dyn Authorizer,
    attempt: &'a Attempt<'a>,
    name: &'a str,
}

impl Writer<'_> {
    fn judge_role(&self, new: &Value) -> Result<(), Status> {
        let target = self.attempt.target;
        // Where it is not there yet no rule is about its name.
        let name = if self.attempt.old.is_some() { target.name } else { "" };
        let escalate = ResourceTarget {
            group: &target.kind.gvr.group,
            resource: &target.kind.gvr.resource,
            namespace: target.namespace,
            name,
            ..ResourceTarget::default()
        };
        let is_aggregated = |role: &Value| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
        // Kubernetes asks for both of who creates one, and for neither of who may escalate.
        if self.may("escalate", escalate) {
            return Ok(());
        }
        self.has(&PolicyRule::all_of(new))?;
        if is_aggregated(new) || self.attempt.old.is_some_and(is_aggregated) {
            self.has(&PolicyRule::everything()).map_err(|_| {
                self.forbidden("must have cluster-admin privileges to use the aggregationRule")
            })?;
        }
        Ok(())
    }

    fn may(&self, verb: &str, target: ResourceTarget<'_>) -> bool {
        let attributes = Attributes { user: self.caller.user, verb, target: Target::Resource(target) };
        self.authorizer.authorize(&attributes) == Decision::Allow
    }

    /// Whether the writer has all of these rules.
    fn has(&self, rules: &[PolicyRule]) -> Result<(), Status> {
        let user = self.caller.user;
        let owned = self.authorizer.rules(user, self.attempt.target.namespace);
        let missing = match covers::covers(&owned, rules) {
            Ok(()) => return Ok(()),
            Err(Uncovered::Rights(missing)) => covers::describe(&missing),
            Err(Uncovered::TooMany) => format!(
                "it takes more than {} rights one by one to tell; use several roles, or have somebody write it who may \
                 escalate",
                covers::LIMIT
            ),
        };
        let groups = covers::quoted(&user.groups);
        Err(self.forbidden(&format!(
            "user {:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{missing}",
            user.name
        )))
    }

    fn forbidden(&self, why: &str) -> Status {
        Status::forbidden(&self.attempt.target.kind.group_resource(), self.name, why)
    }
}

/// Whether nothing is changed but what the garbage collector changes before an object goes.
fn only_let_go(old: &Value, new: &Value) -> bool {
    let rest = |value: &Value| {
        let mut value = value.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            object::remove_meta(&mut value, field);
        }
        value
    };
    rest(old) == rest(new)
}
