//! `karmada-hub rollout`: how far changes are that go out in waves, and what people have to say about it.

use std::collections::BTreeMap;

use karmada_api::{
    conditions,
    consts::{extension, label},
    work::ObjectReference,
};
use karmada_core::{
    names,
    rollout::{self, Command, Phase, State},
};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::{bindings, kinds::WORKS, scope::Scope};
use serde_json::{Value, json};

use super::{
    Failure,
    args::RolloutArgs,
    ask::Server,
    known::suggestion,
    placed::{self, Bound},
    told::Told,
    waves,
};

/// Shows rollouts, or does something about one.
pub(super) async fn run(args: RolloutArgs, env: Env) -> Result<(), Failure> {
    let (command, args) = args.verb.split();
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let (mut meant, mut near) = (Vec::new(), Vec::new());
    let within = (!args.all_namespaces).then_some(server.namespace.as_str());
    let mut take = |bound: Bound| {
        let name = bound.spec.resource.name.clone();
        match args.target.as_deref().is_none_or(|target| means(target, &bound)) {
            true if bound.rollout.is_some() || bound.rollout_unread.is_some() => meant.push(bound),
            true => near.push(format!(
                "{} is there, and its policy asks for no waves ({})",
                bound.object(),
                extension::ROLLOUT
            )),
            false => near.push(name),
        }
    };
    if let Some(forbidden) = placed::each_of(&server, Scope::Namespaced, within, &mut take).await? {
        return Err(forbidden);
    }
    // Whoever has rights in one namespace only has none about these.
    let unseen = placed::each_of(&server, Scope::Cluster, None, &mut take).await?.is_some();
    let place = place(within, unseen);
    let Some(target) = args.target.as_deref() else {
        if meant.is_empty() {
            return Err(Failure::failed(format!("no rollout {place}")));
        }
        for bound in &meant {
            show(&server, bound, args.told).await?;
        }
        return Ok(());
    };
    let bound = match meant.as_slice() {
        [bound] => bound,
        [] => {
            if let Some(why) = near.iter().find(|text| text.contains(' ')) {
                return Err(Failure::failed(why));
            }
            let hint = suggestion(target, near.iter().map(String::as_str));
            return Err(Failure::failed(format!("no rollout of {target:?} {place}{hint}")));
        }
        several => {
            let names: Vec<_> = several.iter().map(Bound::object).collect();
            return Err(Failure::usage(format!(
                "{target:?} is several: {}; name one as KIND/NAME{}",
                names.join(", "),
                if args.all_namespaces { ", with -n NAMESPACE" } else { "" }
            )));
        }
    };
    match command {
        None => show(&server, bound, args.told).await,
        Some(command) => act(&server, bound, command, args.told).await,
    }
}

/// Where was looked.
fn place(namespace: Option<&str>, unseen: bool) -> String {
    let place = match namespace {
        Some(namespace) => format!("in namespace {namespace:?} (-A: in all)"),
        None => "in any namespace".to_owned(),
    };
    match unseen {
        true => format!(
            "{place}; you may not list clusterresourcebindings, so objects without a namespace are not seen"
        ),
        false => format!("{place}, nor of an object without one"),
    }
}

/// How an object is named to these commands.
pub(super) fn named(of: &ObjectReference) -> String {
    let object = format!("{}/{}", of.kind.to_ascii_lowercase(), of.name);
    match of.namespace.as_str() {
        "" => object,
        namespace => format!("{object} -n {namespace}"),
    }
}

/// Whether what was named, `KIND/NAME` or `NAME`, is a binding's object, or the binding.
fn means(target: &str, bound: &Bound) -> bool {
    let of = &bound.spec.resource;
    let (kind, name) = target.split_once('/').map_or((None, target), |(kind, name)| (Some(kind), name));
    let is_kind = |kind: &str| {
        let (kind, own) = (kind.to_ascii_lowercase(), of.kind.to_ascii_lowercase());
        kind == own
            || kind.strip_suffix('s') == Some(own.as_str())
            || own.starts_with(&kind) && kind.len() > 2
    };
    kind.is_none_or(is_kind) && (of.name == name || kind.is_none() && bound.key.key.name == name)
}

/// Leaves a word for the hub on the binding.
async fn act(server: &Server, bound: &Bound, command: Command, told: Told) -> Result<(), Failure> {
    if let Some(why) = deaf(bound) {
        return Err(Failure::failed(format!("{}: {command} does nothing: {why}", bound.object())));
    }
    let revision = bound.rollout.as_ref().map(|state| state.revision.clone()).unwrap_or_default();
    if bound.rollout.as_ref().is_some_and(|state| state.phase == Phase::Complete) {
        return Err(Failure::failed(format!(
            "{}: no rollout is under way: revision {revision} went to every cluster. To go back, change the object back",
            bound.object()
        )));
    }
    let resource = bindings::resource(bound.key.scope);
    if !waves::leave(server, (resource, &bound.key.key), command, &revision).await? {
        return Err(Failure::failed(format!("{}: its binding is gone", bound.object())));
    }
    let line = format!(
        "{}: the hub is asked to {command} revision {revision} (rollout status shows what it does)",
        bound.object()
    );
    told.say(&line, &json!({"object": bound.object(), "command": command.to_string(), "revision": revision}))
}

/// Why the hub takes no command about a rollout, if so.
fn deaf(bound: &Bound) -> Option<&str> {
    let said = conditions::find(&bound.status.conditions, extension::ROLLED_OUT);
    let unkept = said.filter(|condition| condition.reason == extension::REVISION_NOT_KEPT);
    bound.rollout_unread.as_deref().or_else(|| unkept.map(|condition| condition.message.as_str()))
}

/// How many clusters carry which revision.
async fn carried(
    server: &Server,
    bound: &Bound,
    state: &State,
) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let id = match bound.key.scope {
        Scope::Namespaced => label::RESOURCE_BINDING_ID,
        Scope::Cluster => label::CLUSTER_RESOURCE_BINDING_ID,
    };
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let take = |page: Vec<Value>| {
        for work in &page {
            let Some(cluster) = names::cluster_of_namespace(object::namespace(work)) else { continue };
            let says = rollout::marked(work);
            let has = match says {
                Some(says) if says == state.revision => says,
                Some(_) => state.carried(says),
                None => "unknown",
            };
            all.entry(has.to_owned()).or_default().push(cluster.to_owned());
        }
    };
    let selector = format!("{id}={}", bound.id);
    server.objects.list(&WORKS, None, &selector, take).await.map_err(|e| server.failure(&e))?;
    Ok(all)
}

async fn show(server: &Server, bound: &Bound, told: Told) -> Result<(), Failure> {
    let Some(state) = &bound.rollout else {
        let Some(why) = &bound.rollout_unread else { return Ok(()) };
        let reason = extension::STATE_UNREADABLE;
        return told.say(
            &format!("{}: {reason}: {why}", bound.object()),
            &json!({"object": bound.object(), "reason": reason, "message": why}),
        );
    };
    let carried = carried(server, bound, state).await?;
    let said = conditions::find(&bound.status.conditions, extension::ROLLED_OUT);
    let (reason, message) = said.map_or_else(
        || (rollout::words::reason(state), "nothing has changed since waves were asked for".to_owned()),
        |condition| (condition.reason.as_str(), condition.message.clone()),
    );
    let mut lines = vec![format!("{}: {reason}: {message}", bound.object())];
    lines.extend(waves::lines(state).map(|line| format!("  {line}")));
    for (revision, clusters) in &carried {
        let is = match revision {
            _ if *revision == state.revision => " (now)",
            _ if *revision == state.base => " (before)",
            _ => "",
        };
        lines.push(format!("  revision {revision}{is}, clusters: {}", clusters.len()));
    }
    lines.extend(waves::next(state).filter(|_| deaf(bound).is_none()).map(|line| format!("  {line}")));
    told.say(
        &lines.join("\n"),
        &json!({
            "object": bound.object(), "reason": reason, "message": message, "state": state, "clusters": carried,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_for_kubectl() {
        let binding = json!({
            "metadata": {"name": "web-deployment", "namespace": "shop"},
            "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"}},
        });
        let bound = Bound::read(Scope::Namespaced, &binding).unwrap();
        let rows = [
            ("web", true),
            ("deployment/web", true),
            ("deployments/web", true),
            ("deploy/web", true),
            ("web-deployment", true),
            ("configmap/web", false),
            ("deployment/till", false),
            ("de/web", false),
        ];
        for (target, want) in rows {
            assert_eq!(means(target, &bound), want, "{target}");
        }
        assert_eq!(named(&bound.spec.resource), "deployment/web -n shop");
    }

    #[test]
    fn what_cannot_be_read_or_kept_is_there_and_takes_no_command() {
        let bound = |state: &str, outlived: Option<&str>, reason: &str| {
            let binding = json!({
                "metadata": {"name": "web-deployment", "namespace": "shop", "annotations": {
                    rollout::STATE: state, rollout::OUTLIVES: outlived,
                }},
                "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"}},
                "status": {"conditions": [{"type": extension::ROLLED_OUT, "status": "False", "reason": reason, "message": "why",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            Bound::read(Scope::Namespaced, &binding).unwrap()
        };
        let unread = bound("{", None, "Progressing");
        assert!(unread.rollout.is_none());
        let said = deaf(&unread).unwrap();
        assert!(said.contains(rollout::STATE) && said.contains("counts as good"), "{said}");
        let outlived = bound("{", Some("true"), "Progressing");
        let said = deaf(&outlived).unwrap();
        assert!(said.contains("reaches all clusters at once") && !said.contains("counts as good"), "{said}");
        let state = json!({"revision": "two", "phase": "Running"}).to_string();
        assert_eq!(deaf(&bound(&state, None, extension::REVISION_NOT_KEPT)), Some("why"));
        assert_eq!(deaf(&bound(&state, None, "Progressing")), None);
    }

    #[test]
    fn what_has_no_namespace_is_named_as_the_page_and_explain_name_it() {
        let binding = json!({
            "metadata": {"name": "plain-reader-clusterrole"},
            "spec": {"resource": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "Plain:Reader"}},
        });
        let bound = Bound::read(Scope::Cluster, &binding).unwrap();
        let name = named(&bound.spec.resource);
        assert_eq!(name, "clusterrole/Plain:Reader");
        assert!(means(&name, &bound));
        assert!(!means("clusterrole/plain:reader", &bound), "names are compared as they are");
        assert_eq!(bound.object(), "ClusterRole Plain:Reader");
        let rows = [
            (Some("shop"), false, "in namespace \"shop\" (-A: in all), nor of an object without one"),
            (None, false, "in any namespace, nor of an object without one"),
            (Some("shop"), true, "you may not list clusterresourcebindings"),
        ];
        for (namespace, unseen, want) in rows {
            let said = place(namespace, unseen);
            assert!(said.contains(want), "{said}");
        }
    }
}
