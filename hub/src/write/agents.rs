//! What agents may do on an API server that is not the hub's own: roles and bindings for each, which the hub makes when it lets
//! the agent in, and takes back when its Cluster goes.
//!
//! ```text
//!   request by a token, approved ─▶ grant() ─▶ roles, bound to the agent's user
//!   Cluster goes ─▶ take_back() ─▶ its tokens have ended; what is left is to see that the Cluster is gone
//!   ten minutes later ─▶ sweep() ─▶ nothing is left
//! ```
//!
//! A certificate cannot be ended there: what it is good for can. What else is bound to an agent, by its server's owner
//! (`karmada-hub agent-rbac`), is that one's to give and to take.

use std::time::{Duration, SystemTime};

use karmada_api::consts::label;
use karmada_apiserver::{
    authn::bootstrap,
    authz::agent::{self, Subject},
    certificates::elsewhere,
};
use karmada_client::{Error, Resource};
use karmada_core::names;
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Objects, Part,
    key::Key,
    kinds::{CLUSTERS, NAMESPACES, SECRETS},
};
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";
/// On a ClusterRole: when the Cluster of its agent went.
const LEFT_AT: &str = "hub.karmada.io/left-at";
/// How long the agent of a Cluster that has gone may still see that.
const FAREWELL: Duration = Duration::from_secs(600);

fn resource(kind: &str) -> Option<Resource> {
    let (plural, namespaced) = match kind {
        "ClusterRole" => ("clusterroles", false),
        "ClusterRoleBinding" => ("clusterrolebindings", false),
        "Role" => ("roles", true),
        "RoleBinding" => ("rolebindings", true),
        _ => return None,
    };
    Some(Resource::new(GROUP, "v1", plural, kind, namespaced))
}

/// The objects that give the agent of a cluster its rights: by names of their own, marked as made by the hub.
fn roles(cluster: &str) -> Vec<Value> {
    let mut roles = agent::roles(cluster, &Subject::User(names::agent_user(cluster)));
    let name = format!("karmada-hub:agent:{cluster}");
    for role in roles.iter_mut().filter(|role| role["kind"] != "Namespace") {
        object::set_label(role, label::ROLES_OF, cluster);
        object::set_meta(role, "name", name.as_str());
        if let Some(role) = role.get_mut("roleRef") {
            role["name"] = name.as_str().into();
        }
    }
    roles
}

/// Whether the hub has made an object for the agent of a cluster.
fn is_ours(live: &Value, cluster: &str) -> bool {
    object::label(live, label::ROLES_OF) == Some(cluster)
}

/// Brings a role or binding to what it is to be; whether it was not.
fn mend(live: &mut Value, wanted: &Value) -> bool {
    let mut changed = object::remove_annotation(live, LEFT_AT).is_some();
    for field in ["rules", "subjects"] {
        if let Some(wanted) = wanted.get(field).filter(|wanted| live[field] != **wanted) {
            live[field] = wanted.clone();
            changed = true;
        }
    }
    changed
}

/// Gives the agent of a cluster its rights.
pub(crate) async fn grant(objects: &Objects, cluster: &str) -> Result<(), Error> {
    for wanted in roles(cluster) {
        let Some(resource) = resource(wanted["kind"].as_str().unwrap_or_default()) else {
            match objects.create(&NAMESPACES, &wanted).await {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => continue,
            }
        };
        match objects.create(&resource, &wanted).await {
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(error),
            Ok(_) => continue,
        }
        let mend = |live: &mut Value| is_ours(live, cluster) && mend(live, &wanted);
        objects.modify(&resource, &Key::of(&wanted), Part::Main, mend).await?;
    }
    Ok(())
}

/// Gives an agent its rights in an execution namespace that was made anew, if it had them of the hub.
pub(crate) async fn restore(objects: &Objects, cluster: &str) -> Result<(), Error> {
    for wanted in roles(cluster).iter().filter(|role| role["kind"] == "ClusterRole") {
        let Some(resource) = resource("ClusterRole") else { continue };
        let live = objects.get(&resource, &Key::of(wanted)).await?;
        if live.is_some_and(|live| is_ours(&live, cluster) && object::annotation(&live, LEFT_AT).is_none()) {
            grant(objects, cluster).await?;
        }
    }
    Ok(())
}

/// Takes from the agent of a Cluster that goes what the hub has given it, and ends the tokens that are for it. Whether it had
/// rights of the hub.
pub(crate) async fn take_back(objects: &Objects, cluster: &str, now: SystemTime) -> Result<bool, Error> {
    end_tokens(objects, cluster, now).await?;
    let mut had = false;
    for role in roles(cluster) {
        let kind = role["kind"].as_str().unwrap_or_default();
        let Some(resource) = resource(kind) else { continue };
        let key = Key::of(&role);
        if kind == "ClusterRole" {
            let farewell = json!([{"apiGroups": [&CLUSTERS.group], "resources": [&CLUSTERS.plural],
                "resourceNames": [cluster], "verbs": ["get", "list", "watch", "delete"]}]);
            let leave = |live: &mut Value| {
                had |= is_ours(live, cluster);
                let changes = is_ours(live, cluster) && live["rules"] != farewell;
                if changes {
                    live["rules"] = farewell.clone();
                    object::set_annotation(live, LEFT_AT, Time::from_system(now).to_string());
                }
                changes
            };
            objects.modify(&resource, &key, Part::Main, leave).await?;
        } else if kind != "ClusterRoleBinding"
            && let Some(live) = objects.get(&resource, &key).await?
            && is_ours(&live, cluster)
        {
            objects.delete_uid(&resource, &key, object::uid(&live)).await?;
        }
    }
    Ok(had)
}

/// Ends the bootstrap tokens that are for a cluster.
async fn end_tokens(objects: &Objects, cluster: &str, now: SystemTime) -> Result<(), Error> {
    let mut tokens = Vec::new();
    let of_tokens = format!("type={}", bootstrap::TYPE);
    objects
        .list_by_fields(&SECRETS, Some(bootstrap::NAMESPACE), &of_tokens, |page| {
            let theirs =
                page.into_iter().filter(|secret| elsewhere::end_token(&mut secret.clone(), cluster, now));
            tokens.extend(theirs.map(|secret| Key::of(&secret)));
        })
        .await?;
    for key in tokens {
        objects.modify(&SECRETS, &key, Part::Main, |live| elsewhere::end_token(live, cluster, now)).await?;
    }
    Ok(())
}

/// Deletes what was left to agents so that they see that their Clusters have gone.
pub(crate) async fn sweep(objects: &Objects, now: SystemTime) -> Result<(), Error> {
    let (Some(all), Some(bindings)) = (resource("ClusterRole"), resource("ClusterRoleBinding")) else {
        return Ok(());
    };
    let mut past = Vec::new();
    objects
        .list(&all, None, label::ROLES_OF, |page| {
            let over = page.into_iter().filter(|role| {
                let left = object::annotation(role, LEFT_AT).and_then(|at| at.parse::<Time>().ok());
                left.is_some_and(|at| at.elapsed(now) >= FAREWELL)
            });
            past.extend(over);
        })
        .await?;
    for role in past {
        let cluster = object::label(&role, label::ROLES_OF).unwrap_or_default();
        let key = Key::of(&role);
        if let Some(binding) = objects.get(&bindings, &key).await?.filter(|live| is_ours(live, cluster)) {
            objects.delete_uid(&bindings, &key, object::uid(&binding)).await?;
        }
        // As it was read: somebody may have joined by the name since.
        objects.delete(&all, &role).await?;
    }
    Ok(())
}
