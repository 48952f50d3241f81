//! Brings the roles and bindings of the [policy](crate::authz::rbac::policy) into the store, at every start.
//!
//! | what is there | what is done |
//! |---|---|
//! | nothing | it is made |
//! | one whose annotation `rbac.authorization.kubernetes.io/autoupdate` is `false` | nothing |
//! | one with less than it should have | rules, subjects, selectors, labels and annotations that are missing are added; nothing is taken away |
//! | a binding to another role | it is made anew |

use std::sync::Arc;

use futures::future::join_all;
use karmada_meta::{object, status::Status};
use serde_json::{Map, Value, json};

use crate::{
    authz::rbac::{
        CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP, ROLE_BINDINGS, covers, policy, rule::PolicyRule,
    },
    fields,
    identity::UserInfo,
    kinds::Kind,
    options::{DeleteOptions, WriteOptions},
    registry::{Caller, Registry, Target, modify::Modify},
    storage::Object,
};

/// Whose these objects are, in managed fields.
const AGENT: &str = "kube-apiserver";

/// So many old bindings are named in the log.
const NAMED: usize = 10;

/// Makes and mends what is missing.
pub(crate) async fn reconcile(registry: &Registry) {
    let objects = match policy::read() {
        Ok(objects) => objects,
        Err(why) => return tracing::error!(why, "the roles that every server has cannot be read"),
    };
    warn_of_old_bindings(registry);
    let user = UserInfo::system("apiserver");
    let caller = Caller::internal(&user, AGENT);
    // Together, so that they share a commit.
    for status in join_all(objects.iter().map(|wanted| ensure(registry, &caller, wanted))).await {
        if let Err(status) = status {
            tracing::error!(%status, "cannot write a role or binding that every server has");
        }
    }
}

/// Says which bindings count from now on that did not before: until roles were in force here they were kept for members
/// alone. Such a store has none of the roles that every server has.
fn warn_of_old_bindings(registry: &Registry) {
    let now = registry.store.snapshot();
    let is_own = |object: &Arc<Object>| object.header.labels.contains_key(policy::LABEL.0);
    if now.range(CLUSTER_ROLES, None, None).any(is_own) {
        return;
    }
    let bindings = [CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS];
    let all = || bindings.iter().flat_map(|resource| now.range(resource, None, None));
    let count = all().count();
    if count > 0 {
        let first: Vec<String> = all().take(NAMED).map(|object| object.key.to_string()).collect();
        tracing::warn!(
            count,
            ?first,
            "role bindings that were stored and not in force count on this hub from now on; look whether they should"
        );
    }
}

async fn ensure(registry: &Registry, caller: &Caller<'_>, wanted: &Value) -> Result<(), Status> {
    let kinds = registry.kinds();
    let resource = format!("{}s", object::kind(wanted).to_ascii_lowercase());
    let Some(kind) = kinds.by_resource(GROUP, "v1", &resource) else { return Ok(()) };
    let (namespace, name) = (object::namespace(wanted), object::name(wanted));
    let target = Target { kind, namespace, name, subresource: "" };
    let Some(there) = registry.read(&target) else { return create(registry, caller, &target, wanted).await };
    if there["roleRef"] != wanted["roleRef"] && !is_protected(&there) {
        return replace(registry, caller, &target, wanted, &there).await;
    }
    if mended(&there, wanted).is_none() {
        return Ok(());
    }
    let now = registry.now();
    let mut produce = |live: Option<&Value>| {
        let live = live.ok_or_else(|| target.not_found())?;
        let new = mended(live, wanted).unwrap_or_else(|| live.clone());
        Ok(fields::update(kind, Some(live), &new, AGENT, "", &now))
    };
    registry
        .modify(caller, &target, &Modify::default(), &WriteOptions::default(), &mut produce)
        .await
        .map(drop)
}

async fn create(
    registry: &Registry,
    caller: &Caller<'_>,
    target: &Target<'_>,
    wanted: &Value,
) -> Result<(), Status> {
    let kind: &Arc<Kind> = target.kind;
    let mut object = wanted.clone();
    kind.shape.default(&mut object);
    match registry.create(caller, kind, target.namespace, object, &WriteOptions::default()).await {
        Err(status) if status.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}

/// A binding keeps its role, so another one takes its place: of this very one, not of one that somebody makes meanwhile.
async fn replace(
    registry: &Registry,
    caller: &Caller<'_>,
    target: &Target<'_>,
    wanted: &Value,
    there: &Value,
) -> Result<(), Status> {
    let uid = Some(object::uid(there).to_owned());
    let options = DeleteOptions { uid, ..DeleteOptions::default() };
    match registry.delete(caller, target, &options).await {
        Err(status) if !status.is_not_found() && !status.is_conflict() => Err(status),
        _ => create(registry, caller, target, wanted).await,
    }
}

fn is_protected(there: &Value) -> bool {
    object::annotation(there, policy::AUTOUPDATE) == Some("false")
}

/// What is to become of an object that is there, if anything.
fn mended(there: &Value, wanted: &Value) -> Option<Value> {
    if is_protected(there) {
        return None;
    }
    let mut new = there.clone();
    for field in ["labels", "annotations"] {
        add_texts(&mut new, wanted, field);
    }
    if wanted.get("aggregationRule").is_none() {
        let have = PolicyRule::all_of(there);
        let missing = |rule: &Value| {
            let rule = PolicyRule::of(rule);
            covers::covers(&have, std::slice::from_ref(&rule)).err().map(|_| rule)
        };
        append(&mut new, wanted, "/rules", |rule| missing(rule).map(|rule| rule.to_value()));
    }
    append(&mut new, wanted, "/aggregationRule/clusterRoleSelectors", |selector| Some(selector.clone()));
    append(&mut new, wanted, "/subjects", |subject| Some(subject.clone()));
    (new != *there).then_some(new)
}

/// Labels or annotations that are not there; those that are stay as they are.
fn add_texts(new: &mut Value, wanted: &Value, field: &str) {
    let Some(Value::Object(wanted)) = object::meta(wanted, field).cloned() else { return };
    let mut all = match object::meta(new, field) {
        Some(Value::Object(there)) => there.clone(),
        _ => Map::new(),
    };
    for (key, value) in wanted {
        all.entry(key).or_insert(value);
    }
    object::set_meta(new, field, Value::Object(all));
}

/// Appends what is wanted of a list and is not in it.
fn append(new: &mut Value, wanted: &Value, path: &str, missing: impl Fn(&Value) -> Option<Value>) {
    let wanted = wanted.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let there: Vec<Value> = new.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let more: Vec<Value> = wanted.filter(|item| !there.contains(item)).filter_map(missing).collect();
    if more.is_empty() {
        return;
    }
    let mut at = new;
    for part in path.split('/').skip(1) {
        if at.is_null() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = there.into_iter().chain(more).collect();
}
