//! What agents may do on an API server that is not the hub's own: roles and bindings for each, which the hub makes when it lets
//! the agent in, and takes back when its Cluster goes.
//!
//! ```text
//!   request by a token, approved ─▶ grant() ─▶ roles, bound to the agent's user
//!   Cluster goes ─▶ take_back() ─▶ its tokens have ended; what is left is to see that the Cluster is gone
//!   ten minutes later ─▶ sweep() ─▶ nothing is left but a role without rules, for a year: there was one of that name
//! ```
//!
//! A certificate cannot be ended there: what it is good for can. What else is bound to an agent, by its server's owner
//! (`karmada-hub agent-rbac`), is that one's to give and to take.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use karmada_api::consts::label;
use karmada_apiserver::{
    authn::bootstrap,
    authz::agent::{self, Subject},
    certificates::elsewhere::{self, Issued},
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
/// The same as a label, by which those are found.
const LEFT: &str = "hub.karmada.io/left";
/// On a ClusterRole: when another Cluster of that name went before.
const COMES_AFTER: &str = "hub.karmada.io/comes-after";
/// On a ClusterRole: the digests of the certificates that the agent was given, the newest last.
const GIVEN: &str = "hub.karmada.io/certificates";
/// So many of them are kept: an agent renews at half of a certificate's life, and may be several.
const KEPT: usize = 32;
/// How long it is remembered that there was a cluster of a name: for as long as a certificate may last.
const REMEMBERED: Duration = Duration::from_hours(24 * 366);
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
    let left = object::remove_annotation(live, LEFT_AT);
    let mut changed = left.is_some();
    if let Some(at) = left.as_ref().and_then(Value::as_str) {
        object::remove_label(live, LEFT);
        object::set_annotation(live, COMES_AFTER, at);
        object::remove_annotation(live, GIVEN);
    }
    for field in ["rules", "subjects"] {
        if let Some(wanted) = wanted.get(field).filter(|wanted| live[field] != **wanted) {
            live[field] = wanted.clone();
            changed = true;
        }
    }
    changed
}

fn digests(role: &Value) -> Vec<String> {
    object::annotation(role, GIVEN).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// The ClusterRole of a cluster's agent, by its name.
fn own_role(cluster: &str) -> Option<(Resource, Key)> {
    let role = roles(cluster).into_iter().find(|role| role["kind"] == "ClusterRole")?;
    Some((resource("ClusterRole")?, Key::of(&role)))
}

/// The digests of the certificates that were given by a name since another cluster so called went; nothing if none did, or if
/// the hub has not made the roles.
pub(crate) async fn given(objects: &Objects, cluster: &str) -> Result<Option<BTreeSet<String>>, Error> {
    let Some((resource, key)) = own_role(cluster) else { return Ok(None) };
    let role = objects.get(&resource, &key).await?.filter(|live| is_ours(live, cluster));
    let role = role.filter(|role| object::annotation(role, COMES_AFTER).is_some());
    Ok(role.map(|role| digests(&role).into_iter().collect()))
}

/// Takes note of a certificate that was given to the agent of a cluster; not of one that was asked for by the agent of another
/// before.
pub(crate) async fn note(objects: &Objects, issued: &Issued) -> Result<(), Error> {
    let Issued { cluster, digest, asked } = issued;
    let Some((resource, key)) = own_role(cluster) else { return Ok(()) };
    let add = |live: &mut Value| {
        let mut given = digests(live);
        let before = object::annotation(live, COMES_AFTER).or_else(|| object::annotation(live, LEFT_AT));
        let is_before = before.is_some_and(|at| at.parse::<Time>().map_or(true, |at| *asked <= at));
        if is_before || given.contains(digest) || !is_ours(live, cluster) {
            return false;
        }
        given.push(digest.clone());
        given.drain(..given.len().saturating_sub(KEPT));
        object::set_annotation(live, GIVEN, given.join(" "));
        true
    };
    objects.modify(&resource, &key, Part::Main, add).await.map(drop)
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
    let Some((resource, key)) = own_role(cluster) else { return Ok(()) };
    match objects.get(&resource, &key).await? {
        Some(live) if is_ours(&live, cluster) && object::annotation(&live, LEFT_AT).is_none() => {
            grant(objects, cluster).await
        }
        _ => Ok(()),
    }
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
                    object::set_label(live, LEFT, "true");
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

/// Takes away what was left to agents so that they see that their Clusters have gone, and in the end that there were any.
pub(crate) async fn sweep(objects: &Objects, now: SystemTime) -> Result<(), Error> {
    let (Some(all), Some(bindings)) = (resource("ClusterRole"), resource("ClusterRoleBinding")) else {
        return Ok(());
    };
    let mut past = Vec::new();
    objects
        .list(&all, None, LEFT, |page| {
            for role in page {
                let left = object::annotation(&role, LEFT_AT).and_then(|at| at.parse::<Time>().ok());
                match left.map(|at| at.elapsed(now)) {
                    Some(since) if since >= REMEMBERED => past.push((role, true)),
                    // A role without rules is shown with none or with null.
                    Some(since)
                        if since >= FAREWELL
                            && role["rules"].as_array().is_some_and(|all| !all.is_empty()) =>
                    {
                        past.push((role, false))
                    }
                    _ => {}
                }
            }
        })
        .await?;
    for (mut role, forget) in past {
        // As it was read: somebody may have joined by the name since.
        if !forget {
            role["rules"] = json!([]);
            match objects.replace(&all, &role).await {
                Err(error) if !error.is_conflict() && !error.is_not_found() => return Err(error),
                _ => continue,
            }
        }
        let (cluster, key) = (object::label(&role, label::ROLES_OF).unwrap_or_default(), Key::of(&role));
        if let Some(binding) = objects.get(&bindings, &key).await?.filter(|live| is_ours(live, cluster)) {
            objects.delete_uid(&bindings, &key, object::uid(&binding)).await?;
        }
        objects.delete(&all, &role).await?;
    }
    Ok(())
}
