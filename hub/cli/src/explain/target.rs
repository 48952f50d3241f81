//! What was named: `KIND/NAME`, `KIND NAME`, or `NAMESPACE/NAME` and `NAME` for everything of that name.

use std::collections::BTreeSet;

use karmada_api::policy::ResourceSelector;
use karmada_client::Resource;
use karmada_meta::object;
use karmada_objects::{
    bindings,
    discovery::{self, Served},
    key::Key,
    kinds,
    policies::PolicyHead,
    scope::{BindingKey, Scope},
};
use serde_json::Value;

use super::super::{
    Failure,
    args::ExplainArgs,
    ask::Server,
    get::find as find_kind,
    known::suggestion,
    placed::{self, Bound},
};

/// One thing to explain.
pub(super) enum Target {
    /// An object that may be propagated.
    Template(Value),
    /// A binding whose object is not there.
    Orphan(Box<Bound>),
    /// A policy.
    Policy(Box<PolicyHead>),
}

/// Kinds that are looked through for a name beside those that policies select.
const USUAL: [(&str, &str); 8] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
];

/// What the arguments name; never nothing.
pub(super) async fn find(
    server: &Server,
    all: &[Served],
    args: &ExplainArgs,
) -> Result<Vec<Target>, Failure> {
    let namespace = server.namespace.as_str();
    match (args.target.split_once('/'), &args.name, &args.resource) {
        (_, Some(_), Some(_)) => Err(Failure::usage("name the kind once: KIND NAME, or --resource KIND")),
        (Some(_), Some(_), None) => Err(Failure::usage("KIND/NAME takes no further NAME")),
        (None, Some(name), None) => of_kind(server, find_kind(all, &args.target)?, namespace, name).await,
        (Some((namespace, name)), None, Some(kind)) => {
            of_kind(server, find_kind(all, kind)?, namespace, name).await
        }
        (None, None, Some(kind)) => of_kind(server, find_kind(all, kind)?, namespace, &args.target).await,
        // A kind before a namespace: no namespace is called deploy, and --resource tells them apart if one is.
        (Some((first, name)), None, None) => match discovery::resolve(all, first) {
            Some(served) => of_kind(server, served, namespace, name).await,
            None => of_name(server, all, first, name).await,
        },
        (None, None, None) => of_name(server, all, namespace, &args.target).await,
    }
}

/// The one object of a kind.
async fn of_kind(
    server: &Server,
    served: &Served,
    namespace: &str,
    name: &str,
) -> Result<Vec<Target>, Failure> {
    let resource = &served.resource;
    let key = if resource.namespaced { Key::new(namespace, name) } else { Key::cluster_scoped(name) };
    if let Some(target) = get(server, resource, &key).await? {
        return Ok(vec![target]);
    }
    // A template that is gone may have left its binding.
    if let Some(bound) =
        placed::binding(server, &BindingKey::of_template(&resource.kind, &key.namespace, name)).await?
    {
        return Ok(vec![Target::Orphan(Box::new(bound))]);
    }
    let names = names(server, resource, &key.namespace).await?;
    let hint = suggestion(name, names.iter().map(String::as_str));
    Err(Failure::not_found(format!("{resource} {:?} not found{hint}", key.to_string())))
}

/// Everything of a name in a namespace: templates, bindings and policies.
async fn of_name(
    server: &Server,
    all: &[Served],
    namespace: &str,
    name: &str,
) -> Result<Vec<Target>, Failure> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut known = Vec::new();
    let mut bound = Vec::new();
    placed::each_binding(server, Some(namespace), |binding| {
        if binding.key.key.name == name || binding.spec.resource.name == name {
            bound.push(binding);
        } else {
            known.push(binding.spec.resource.name);
        }
    })
    .await?;
    for binding in bound {
        let of = &binding.spec.resource;
        seen.insert((of.api_version.clone(), of.kind.clone(), of.name.clone()));
        found.push(of_binding(server, all, binding).await?);
    }
    let mut selectors: Vec<ResourceSelector> = Vec::new();
    let mut take = |head: PolicyHead, found: &mut Vec<Target>| {
        selectors.extend(head.spec().resource_selectors.iter().cloned());
        if head.policy().name() == name {
            found.push(Target::Policy(Box::new(head)));
        } else {
            known.push(head.policy().name().to_owned());
        }
    };
    for head in policies(server, Some(namespace)).await? {
        take(head, &mut found);
    }
    let selected = selectors.iter().map(|selector| (selector.api_version.as_str(), selector.kind.as_str()));
    let kinds: BTreeSet<_> = selected.chain(USUAL).collect();
    for (api_version, kind) in kinds {
        let served = all
            .iter()
            .find(|served| served.resource.api_version() == api_version && served.resource.kind == kind);
        let Some(served) = served.filter(|served| served.resource.namespaced) else { continue };
        if seen.contains(&(api_version.to_owned(), kind.to_owned(), name.to_owned())) {
            continue;
        }
        match get(server, &served.resource, &Key::new(namespace, name)).await {
            Ok(target) => found.extend(target),
            // What one may not read is not what was meant.
            Err(_) if !found.is_empty() => {}
            Err(failure) => return Err(failure),
        }
    }
    if found.is_empty() {
        let hint = suggestion(name, known.iter().map(String::as_str));
        return Err(Failure::not_found(format!(
            "nothing in namespace {namespace:?} is called {name:?}: no binding, policy or template of the usual kinds; \
             name others as KIND/NAME{hint}"
        )));
    }
    Ok(found)
}

/// The object of a kind and key as what it is.
async fn get(server: &Server, resource: &Resource, key: &Key) -> Result<Option<Target>, Failure> {
    let value = server.objects.get(resource, key).await.map_err(|e| server.failure(&e))?;
    let Some(value) = value else { return Ok(None) };
    Ok(Some(if *resource == *kinds::PROPAGATION_POLICIES {
        Target::Policy(Box::new(PolicyHead::project(&value)))
    } else if *resource == *kinds::CLUSTER_PROPAGATION_POLICIES {
        Target::Policy(Box::new(PolicyHead::project_cluster(&value)))
    } else if let Some(scope) =
        [Scope::Namespaced, Scope::Cluster].into_iter().find(|scope| bindings::resource(*scope) == resource)
    {
        let all = discovery::everything(server.objects.rest()).await.map_err(|e| server.failure(&e))?;
        of_binding(server, &all, Bound::read(scope, &value)?).await?
    } else {
        Target::Template(value)
    }))
}

/// The template of a binding, or the binding where that is gone.
async fn of_binding(server: &Server, all: &[Served], bound: Bound) -> Result<Target, Failure> {
    let of = &bound.spec.resource;
    let served = all
        .iter()
        .find(|served| served.resource.api_version() == of.api_version && served.resource.kind == of.kind);
    let template = match served {
        None => None,
        Some(served) => {
            let key = Key::new(of.namespace.as_str(), of.name.as_str());
            server.objects.get(&served.resource, &key).await.map_err(|e| server.failure(&e))?
        }
    };
    Ok(template.map_or_else(|| Target::Orphan(Box::new(bound)), Target::Template))
}

/// The policies that may mean what is in a namespace: its own and the cluster-wide ones; without a namespace all.
pub(super) async fn policies(server: &Server, namespace: Option<&str>) -> Result<Vec<PolicyHead>, Failure> {
    let mut found = Vec::new();
    if namespace != Some("") {
        let take = |page: Vec<Value>| found.extend(page.iter().map(PolicyHead::project));
        let listed = server.objects.list(&kinds::PROPAGATION_POLICIES, namespace, "", take).await;
        listed.map_err(|e| server.failure(&e))?;
    }
    let take = |page: Vec<Value>| found.extend(page.iter().map(PolicyHead::project_cluster));
    let listed = server.objects.list(&kinds::CLUSTER_PROPAGATION_POLICIES, None, "", take).await;
    listed.map_err(|e| server.failure(&e))?;
    Ok(found)
}

async fn names(server: &Server, resource: &Resource, namespace: &str) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    let take = |page: Vec<Value>| names.extend(page.iter().map(|value| object::name(value).to_owned()));
    server.objects.list(resource, Some(namespace), "", take).await.map_err(|e| server.failure(&e))?;
    Ok(names)
}
