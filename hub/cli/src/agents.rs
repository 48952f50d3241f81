//! What agents may do on an API server that is not the hub's own: roles and bindings for each, which the hub makes when it lets
//! the agent in, and takes back when its Cluster goes.
//!
//! ```text
//!   request by a token, approved ─▶ grant() ─▶ roles, bound to the agent's user
//!   the same by another token, and nobody has registered ─▶ what was given before renews nothing, and its tokens have ended
//!   Cluster goes ─▶ take_back() ─▶ its tokens have ended; what is left is to see that the Cluster is gone
//!   revoked ─▶ revoke() ─▶ the same, and nothing is left
//!   ten minutes later ─▶ sweep() ─▶ nothing is left but a role without rules, for a year: there was one of that name
//! ```
//!
//! Whose agent it is, the role says by its Cluster's uid. So what was given is taken back also where the Cluster went without
//! the hub, as an agent or a person may take the hub's finalizer off: [`keep_to`].
//!
//! Whoever decides looks at the role first ([`look`]), then at the token, and writes the role as it was seen: who was let in
//! by a token that has ended meanwhile, or that another one has replaced, gets nothing.
//!
//! A certificate cannot be ended there: what it is good for can. What else is bound to an agent, by its server's owner
//! (`karmada-hub agent-rbac`), is that one's to give and to take.

use std::time::{Duration, SystemTime};

use karmada_api::consts::{finalizer, label};
use karmada_apiserver::{
    authn::{bootstrap, epochs::Grant},
    authz::agent::{self, Subject},
    certificates::elsewhere::{self, Given, Issued},
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
/// On a ClusterRole: when the first of those agents asked for its certificate whose certificates count. By the server's clock, as
/// are the times of the requests that it is compared with.
const COMES_AFTER: &str = "hub.karmada.io/comes-after";
/// On a ClusterRole: the digests of the certificates that the agent was given, the newest last.
const GIVEN: &str = "hub.karmada.io/certificates";
/// On a ClusterRole: those that were given before.
const BEFORE: &str = "hub.karmada.io/certificates-before";
/// On a ClusterRole: the uid of the Cluster for whose agent it is, once there is one, and its own, so that it is not believed of a
/// copy on another server.
const FOR: &str = "hub.karmada.io/cluster-uid";
/// On a ClusterRole: by what the certificate was asked for by which it was given last, and over which key.
const GRANTED: &str = "hub.karmada.io/granted";
/// On a ClusterRole: when the last certificate ends that was given by its name, as far as the hub has seen.
const UNTIL: &str = "hub.karmada.io/certificates-until";
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

fn is_left(role: &Value) -> bool {
    object::annotation(role, LEFT_AT).is_some()
}

/// Somebody who is let in by a token.
#[derive(Clone, Copy, Debug)]
pub struct Join<'a> {
    /// When the certificate was asked for, by the server's clock.
    pub asked: Time,
    /// By what, and for whom.
    pub by: Grant<'a>,
    /// The uid of the Cluster of that name, if there is one.
    pub uid: Option<&'a str>,
    /// Whether its agent has registered.
    pub registered: bool,
}

impl Join<'_> {
    /// Whether what was given before was given to somebody else, and no agent has registered by it.
    fn supersedes(&self, live: &Value) -> bool {
        let last = object::annotation(live, GRANTED).and_then(|last| last.split_once(' '));
        !is_left(live) && !self.registered && last.is_none_or(|(by, to)| self.by.is_of_another(by, to))
    }

    /// Notes on a ClusterRole to whom it is given from now on; whether that is new.
    fn mark(&self, role: &mut Value) -> bool {
        let last = object::annotation(role, GRANTED).and_then(|last| last.split_once(' '));
        // Who may be several is not told apart.
        if last.is_some_and(|(by, to)| by == self.by.by && (self.by.several || Some(to) == self.by.to)) {
            return false;
        }
        object::set_annotation(role, GRANTED, format!("{} {}", self.by.by, self.by.to.unwrap_or_default()));
        true
    }
}

/// Brings the ClusterRole of an agent that is let in to what it is to be; whether it was not. What was given before counts no
/// more if it was taken back, or nobody has registered by it.
fn give(live: &mut Value, wanted: &Value, join: &Join<'_>) -> bool {
    let left = is_left(live);
    let mut changed = left || join.supersedes(live);
    if changed {
        object::set_annotation(live, COMES_AFTER, join.asked.to_string());
        let given = digests(live, GIVEN);
        remember(live, BEFORE, given);
        object::remove_annotation(live, GIVEN);
    }
    if left {
        for annotation in [LEFT_AT, FOR] {
            object::remove_annotation(live, annotation);
        }
        object::remove_label(live, LEFT);
        if let Some(uid) = join.uid {
            note_cluster(live, uid);
        }
    }
    changed |= join.mark(live);
    mend(live, wanted) || changed
}

/// Brings a role or binding to what it is to be; whether it was not.
fn mend(live: &mut Value, wanted: &Value) -> bool {
    let mut changed = false;
    for field in ["rules", "subjects"] {
        if let Some(wanted) = wanted.get(field).filter(|wanted| live[field] != **wanted) {
            live[field] = wanted.clone();
            changed = true;
        }
    }
    changed
}

fn digests(role: &Value, annotation: &str) -> Vec<String> {
    object::annotation(role, annotation)
        .map(|all| all.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

fn remember(role: &mut Value, annotation: &str, more: Vec<String>) {
    let mut all = digests(role, annotation);
    all.extend(more);
    all.drain(..all.len().saturating_sub(KEPT));
    if !all.is_empty() {
        object::set_annotation(role, annotation, all.join(" "));
    }
}

fn note_cluster(role: &mut Value, uid: &str) {
    let both = format!("{uid} {}", object::uid(role));
    object::set_annotation(role, FOR, both);
}

/// The uid of the Cluster for whose agent a role is noted to be.
fn noted(role: &Value) -> Option<&str> {
    let (cluster, own) = object::annotation(role, FOR)?.split_once(' ')?;
    (own == object::uid(role)).then_some(cluster)
}

/// The ClusterRole of a cluster's agent, as it is to be.
fn wanted(cluster: &str) -> Option<Value> {
    roles(cluster).into_iter().find(|role| role["kind"] == "ClusterRole")
}

/// The same by its name.
fn own_role(cluster: &str) -> Option<(Resource, Key)> {
    Some((resource("ClusterRole")?, Key::of(&wanted(cluster)?)))
}

/// What the hub lets the agent of a cluster do, as it was when somebody looked.
#[derive(Clone, Debug)]
pub struct Seen(Option<Value>);

/// Looks at what the hub lets the agent of a cluster do.
///
/// # Errors
/// When the server cannot be asked.
pub async fn look(objects: &Objects, cluster: &str) -> Result<Seen, Error> {
    let Some((resource, key)) = own_role(cluster) else { return Ok(Seen(None)) };
    let role = objects.get(&resource, &key).await?;
    Ok(Seen(role.filter(|live| is_ours(live, cluster))))
}

impl Seen {
    /// Whether it may do anything.
    pub fn is_given(&self) -> bool {
        self.0.as_ref().is_some_and(|role| !is_left(role))
    }

    /// When the last certificate ends that was given by its name, as far as the hub has seen.
    pub fn until(&self) -> Option<Time> {
        object::annotation(self.0.as_ref()?, UNTIL)?.parse().ok()
    }

    /// The digests of the certificates that were given by a name, where those of before some time are not to count; nothing if
    /// all do, or if the hub has not made the roles.
    pub fn given(&self) -> Option<Given> {
        let role = self.0.as_ref()?;
        let of = |annotation: &str| digests(role, annotation);
        if is_left(role) {
            let before = of(BEFORE).into_iter().chain(of(GIVEN)).collect();
            return Some(Given { before, since: [].into() });
        }
        let counts = object::annotation(role, COMES_AFTER).is_some();
        counts.then(|| Given {
            before: of(BEFORE).into_iter().collect(),
            since: of(GIVEN).into_iter().collect(),
        })
    }
}

/// Takes note of a certificate that was given to the agent of a cluster, or of one before.
pub async fn note(objects: &Objects, issued: &Issued) -> Result<(), Error> {
    let Issued { cluster, digest, asked, until } = issued;
    let Some((resource, key)) = own_role(cluster) else { return Ok(()) };
    let add = |live: &mut Value| {
        let is_noted = [BEFORE, GIVEN].iter().any(|list| digests(live, list).contains(digest));
        if is_noted || !is_ours(live, cluster) {
            return false;
        }
        let after = object::annotation(live, COMES_AFTER);
        let is_before = after.is_some_and(|at| at.parse::<Time>().map_or(true, |at| *asked < at));
        remember(live, if is_before { BEFORE } else { GIVEN }, vec![digest.clone()]);
        let last = object::annotation(live, UNTIL).and_then(|last| last.parse::<Time>().ok());
        if last.is_none_or(|last| last < *until) {
            object::set_annotation(live, UNTIL, until.to_string());
        }
        true
    };
    objects.modify(&resource, &key, Part::Main, add).await.map(drop)
}

/// Notes for which Cluster what an agent was given is: for the one of this uid, which is there. If it was given for another, or
/// there is none any more, that has gone without the hub: then it is taken back. Whether it is noted.
pub async fn keep_to(
    objects: &Objects,
    cluster: &str,
    uid: Option<&str>,
    now: SystemTime,
) -> Result<bool, Error> {
    let Some((resource, key)) = own_role(cluster) else { return Ok(false) };
    let is_given = |live: &Value| is_ours(live, cluster) && !is_left(live);
    let Some(role) = objects.get(&resource, &key).await?.filter(is_given) else { return Ok(false) };
    match (noted(&role), uid) {
        (noted, uid) if noted == uid => Ok(uid.is_some()),
        (None, Some(uid)) => {
            let set = |live: &mut Value| {
                let missing = is_given(live) && noted(live).is_none();
                if missing {
                    note_cluster(live, uid);
                }
                missing
            };
            objects.modify(&resource, &key, Part::Main, set).await?;
            Ok(true)
        }
        (noted, _) => {
            // What the caller has seen may be older than the note: one that is gone by now is gone for good.
            let there = objects.get(&CLUSTERS, &Key::cluster_scoped(cluster)).await?;
            let stays = |live: &Value| {
                object::deletion_timestamp(live).is_none()
                    || object::finalizers(live).contains(&finalizer::CLUSTER)
            };
            if there.is_some_and(|live| stays(&live) && noted == Some(object::uid(&live))) {
                return Ok(true);
            }
            tracing::warn!(
                cluster,
                "the Cluster has gone without the hub: what its agent could do is taken back"
            );
            take_back(objects, cluster, now).await?;
            Ok(false)
        }
    }
}

/// What came of letting an agent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// It has its rights.
    Given,
    /// It has, and what somebody else was given by its name before, by which no agent has registered, renews nothing any more.
    Superseded,
    /// What it was given was taken back meanwhile.
    TakenBack,
}

/// Gives the agent of a cluster its rights, which is let in by a token that was read after what was `seen`.
///
/// # Errors
/// A conflict if somebody has changed meanwhile what was seen: then all of it is to be looked at again.
pub async fn grant(
    objects: &Objects,
    cluster: &str,
    seen: &Seen,
    join: &Join<'_>,
    now: SystemTime,
) -> Result<Granted, Error> {
    let (mut wanted, mut rest) = (None, Vec::new());
    for object in roles(cluster) {
        if object["kind"] == "ClusterRole" { wanted = Some(object) } else { rest.push(object) }
    }
    let (Some(mut wanted), Some(resource)) = (wanted, resource("ClusterRole")) else {
        return Ok(Granted::TakenBack);
    };
    join.mark(&mut wanted);
    let mut superseded = false;
    match &seen.0 {
        None => match objects.create(&resource, &wanted).await {
            Err(error) if error.is_already_exists() => {
                // Somebody else's, which is let alone; or one that was made a moment ago, for the same.
                let now = look(objects, cluster).await?.0;
                if now.is_some_and(|mut live| give(&mut live, &wanted, join)) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        },
        Some(live) => {
            superseded = join.supersedes(live);
            if superseded {
                // First, since who has one of them would take its turn again.
                let mut steps = Steps::default();
                end_tokens(objects, cluster, Some(join.by.by), now, &mut steps).await;
                steps.0.map_or(Ok(()), Err)?;
            }
            let mut role = live.clone();
            if give(&mut role, &wanted, join) {
                objects.replace(&resource, &role).await?;
            }
        }
    }
    make(objects, cluster, &rest).await?;
    // Who takes it back says so first, and then deletes what was there.
    if look(objects, cluster).await?.0.as_ref().is_some_and(is_left) {
        revoke(objects, cluster, now).await?;
        return Ok(Granted::TakenBack);
    }
    Ok(if superseded { Granted::Superseded } else { Granted::Given })
}

/// Makes what is not there, and brings the rest to what it is to be.
async fn make(objects: &Objects, cluster: &str, all: &[Value]) -> Result<(), Error> {
    for wanted in all {
        let Some(resource) = resource(wanted["kind"].as_str().unwrap_or_default()) else {
            match objects.create(&NAMESPACES, wanted).await {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => continue,
            }
        };
        match objects.create(&resource, wanted).await {
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(error),
            Ok(_) => continue,
        }
        let mend = |live: &mut Value| is_ours(live, cluster) && !is_left(live) && mend(live, wanted);
        objects.modify(&resource, &Key::of(wanted), Part::Main, mend).await?;
    }
    Ok(())
}

/// Gives an agent its rights anew, if it had them of the hub: where its execution namespace was made again, or the rights are
/// not those that agents have now.
pub async fn restore(objects: &Objects, cluster: &str, now: SystemTime) -> Result<(), Error> {
    if !look(objects, cluster).await?.is_given() {
        return Ok(());
    }
    make(objects, cluster, &roles(cluster)).await?;
    if !look(objects, cluster).await?.is_given() {
        revoke(objects, cluster, now).await?;
    }
    Ok(())
}

/// What several steps came to that are all taken.
#[derive(Default)]
struct Steps(Option<Error>);

impl Steps {
    /// What a step brought. Of the errors the first is told: rather one that may pass than a right that is missing.
    fn take<T>(&mut self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                if self.0.as_ref().is_none_or(|first| first.is_forbidden() && !error.is_forbidden()) {
                    self.0 = Some(error);
                }
                None
            }
        }
    }
}

/// Takes from the agent of a Cluster that goes what the hub has given it, and ends the tokens that are for it. It may see for a
/// moment that its Cluster goes. Whether it had rights of the hub.
///
/// # Errors
/// When something of that could not be done. The rest was.
pub async fn take_back(objects: &Objects, cluster: &str, now: SystemTime) -> Result<bool, Error> {
    let farewell = json!([{"apiGroups": [&CLUSTERS.group], "resources": [&CLUSTERS.plural],
        "resourceNames": [cluster], "verbs": ["get", "list", "watch", "delete"]}]);
    withdraw(objects, cluster, now, &farewell).await
}

/// Takes from the agent of a cluster what the hub has given it, at once, and ends the tokens that are for it. Whoever joins by the
/// name with another token has all of it again, and no certificate of before is renewed. Whether it had rights of the hub.
///
/// # Errors
/// When something of that could not be done. The rest was.
pub async fn revoke(objects: &Objects, cluster: &str, now: SystemTime) -> Result<bool, Error> {
    withdraw(objects, cluster, now, &json!([])).await
}

async fn withdraw(objects: &Objects, cluster: &str, now: SystemTime, rules: &Value) -> Result<bool, Error> {
    let mut steps = Steps::default();
    // First, since they would give the roles back.
    end_tokens(objects, cluster, None, now, &mut steps).await;
    let mut had = false;
    for role in roles(cluster) {
        let kind = role["kind"].as_str().unwrap_or_default();
        let Some(resource) = resource(kind) else { continue };
        let key = Key::of(&role);
        if kind == "ClusterRole" {
            let leave = |live: &mut Value| {
                let ours = is_ours(live, cluster);
                had |= ours;
                // What was left once is not given again; it may be taken away.
                if !ours || is_left(live) && (has_rules(rules) || !has_rules(&live["rules"])) {
                    return false;
                }
                live["rules"] = rules.clone();
                if !is_left(live) {
                    object::set_label(live, LEFT, "true");
                    object::set_annotation(live, LEFT_AT, Time::from_system(now).to_string());
                }
                true
            };
            steps.take(objects.modify(&resource, &key, Part::Main, leave).await);
        } else if kind != "ClusterRoleBinding"
            && let Some(live) = steps.take(objects.get(&resource, &key).await).flatten()
            && is_ours(&live, cluster)
        {
            had = true;
            steps.take(objects.delete_uid(&resource, &key, object::uid(&live)).await);
        }
    }
    steps.0.map_or(Ok(had), Err)
}

/// Whether a role says anything; one that does not is shown with none or with null.
fn has_rules(rules: &Value) -> bool {
    rules.as_array().is_some_and(|all| !all.is_empty())
}

/// Ends the bootstrap tokens that are for a cluster, but for the one of this uid.
async fn end_tokens(objects: &Objects, cluster: &str, but: Option<&str>, now: SystemTime, steps: &mut Steps) {
    let mut tokens = Vec::new();
    let of_tokens = format!("type={}", bootstrap::TYPE);
    let end =
        |secret: &mut Value| Some(object::uid(secret)) != but && elsewhere::end_token(secret, cluster, now);
    let listed = objects
        .list_by_fields(&SECRETS, Some(bootstrap::NAMESPACE), &of_tokens, |page| {
            let theirs = page.into_iter().filter(|secret| end(&mut secret.clone()));
            tokens.extend(theirs.map(|secret| Key::of(&secret)));
        })
        .await;
    steps.take(listed);
    for key in tokens {
        steps.take(objects.modify(&SECRETS, &key, Part::Main, end).await);
    }
}

/// Takes away what was left to agents so that they see that their Clusters have gone, and in the end that there were any; and what
/// was given to those whose Clusters went without the hub. Brings the others' rights to what they are to be. `stands` says of a Cluster and a uid whether it is known to be there.
pub async fn sweep(
    objects: &Objects,
    now: SystemTime,
    stands: impl Fn(&str, &str) -> bool,
) -> Result<(), Error> {
    let (Some(all), Some(bindings)) = (resource("ClusterRole"), resource("ClusterRoleBinding")) else {
        return Ok(());
    };
    let (mut past, mut unsure, mut stale) = (Vec::new(), Vec::new(), Vec::new());
    objects
        .list(&all, None, label::ROLES_OF, |page| {
            for role in page {
                let Some(cluster) = object::label(&role, label::ROLES_OF) else { continue };
                let left = object::annotation(&role, LEFT_AT);
                match left.map(|at| at.parse::<Time>().map(|at| at.elapsed(now))) {
                    None if noted(&role).is_some_and(|uid| !stands(cluster, uid)) => {
                        unsure.push(cluster.to_owned());
                    }
                    Some(Ok(since)) if since >= REMEMBERED => past.push((role, true)),
                    Some(Ok(since)) if since >= FAREWELL && has_rules(&role["rules"]) => {
                        past.push((role, false));
                    }
                    None if wanted(cluster).is_some_and(|wanted| role["rules"] != wanted["rules"]) => {
                        stale.push(cluster.to_owned());
                    }
                    _ => {}
                }
            }
        })
        .await?;
    let mut steps = Steps::default();
    for cluster in stale {
        // A hub of before gave other rights.
        steps.take(restore(objects, &cluster, now).await);
    }
    for cluster in unsure {
        // As it is now: what is known may be late.
        let Some(live) = steps.take(objects.get(&CLUSTERS, &Key::cluster_scoped(cluster.as_str())).await)
        else {
            continue;
        };
        steps.take(keep_to(objects, &cluster, live.as_ref().map(object::uid), now).await);
    }
    for (role, forget) in past {
        steps.take(forgo(objects, (&all, &bindings), role, forget).await);
    }
    steps.0.map_or(Ok(()), Err)
}

/// Takes away what was left to an agent, or the role altogether.
async fn forgo(
    objects: &Objects,
    (roles, bindings): (&Resource, &Resource),
    mut role: Value,
    forget: bool,
) -> Result<(), Error> {
    // As it was read: somebody may have joined by the name since.
    if !forget {
        role["rules"] = json!([]);
        return match objects.replace(roles, &role).await {
            Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error),
            _ => Ok(()),
        };
    }
    let (cluster, key) = (object::label(&role, label::ROLES_OF).unwrap_or_default(), Key::of(&role));
    if let Some(binding) = objects.get(bindings, &key).await?.filter(|live| is_ours(live, cluster)) {
        objects.delete_uid(bindings, &key, object::uid(&binding)).await?;
    }
    objects.delete(roles, &role).await.map(drop)
}
