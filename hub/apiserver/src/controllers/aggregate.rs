//! Writes the rules of aggregated ClusterRoles, when those that they select have changed ([`crate::authz::rbac::aggregate`]).

use std::{sync::Arc, time::Duration};

use karmada_meta::status::Status;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    authz::rbac::{CLUSTER_ROLES, GROUP, Rbac, aggregate::union, rule::PolicyRule},
    fields,
    identity::UserInfo,
    options::WriteOptions,
    registry::{Caller, Registry, Target, modify::Modify},
};

/// The controller's name in managed fields: Kubernetes'.
const MANAGER: &str = "clusterrole-aggregation-controller";
/// When what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often one role may have to be written until all are as they should be. Roles that select each other in a ring come
/// to rest long before.
const ROUNDS: usize = 64;

/// Writes the rules of one aggregated ClusterRole, if they are not what they should be.
async fn write(registry: &Registry, name: &str) -> Result<(), Status> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.by_resource(GROUP, "v1", "clusterroles") else { return Ok(()) };
    let now = registry.store.snapshot();
    let Some(role) = now.find(CLUSTER_ROLES, "", name) else { return Ok(()) };
    let Some(rules) = union(name, role, &now) else { return Ok(()) };
    let there: Value = serde_json::from_slice(&role.value.get()).unwrap_or_default();
    if PolicyRule::all_of(&there) == rules {
        return Ok(());
    }
    let rules: Vec<Value> = rules.iter().map(PolicyRule::to_value).collect();
    let user = UserInfo::system(MANAGER);
    let caller = Caller::internal(&user, MANAGER);
    let target = Target { kind, namespace: "", name, subresource: "" };
    // Of another state of the role it is worked out again: that state is a change of its own.
    let at = role.revision.to_string();
    let time = registry.now();
    let mut produce = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        new["rules"] = json!(rules);
        karmada_meta::object::set_meta(&mut new, "resourceVersion", at.as_str());
        Ok(fields::update(kind, live, &new, MANAGER, "", &time))
    };
    let how = Modify { uid: Some(role.header.uid.to_string()), ..Modify::default() };
    match registry.modify(&caller, &target, &how, &WriteOptions::default(), &mut produce).await {
        Err(status) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}

/// Writes what is to be written now. Returns what could not be.
async fn settle(registry: &Registry, rbac: &Rbac) -> Vec<Arc<str>> {
    let mut failed = Vec::new();
    for _ in 0..ROUNDS {
        let stale = rbac.take_stale();
        if stale.is_empty() {
            return failed;
        }
        for name in stale {
            if let Err(status) = write(registry, &name).await {
                tracing::warn!(name = &*name, %status, "cannot write the rules of an aggregated ClusterRole yet");
                failed.push(name);
            }
        }
    }
    failed
}

/// Brings all aggregated ClusterRoles up to date, and keeps them so in a task.
pub(crate) async fn start(
    registry: &Arc<Registry>,
    rbac: &Arc<Rbac>,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let mut failed = settle(registry, rbac).await;
    let (registry, rbac, shutdown) = (registry.clone(), rbac.clone(), shutdown.clone());
    tasks.spawn(async move {
        loop {
            let waits = !failed.is_empty();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = rbac.stale.notified() => {}
                () = tokio::time::sleep(AGAIN), if waits => {}
            }
            rbac.put_stale(failed);
            failed = settle(&registry, &rbac).await;
        }
    });
}
