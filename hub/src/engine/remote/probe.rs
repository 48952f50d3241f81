//! Who else works on an API server: Karmada's own controllers, which would fight this hub, and Kubernetes' workload
//! controllers, which would run on the hub what is meant for members.
//!
//! Karmada's controllers show themselves by their leader Leases. Whether such a claim is alive is judged like any
//! other here: by whether it *changes*, on the local monotonic clock; a Lease that a stock Karmada left behind counts
//! once it has stood still for its own duration.
//!
//! Kubernetes' controllers show themselves by what they do: a Deployment of no replicas gets a status from a
//! Deployment controller, and a ConfigMap whose owner never was goes with a garbage collector. Both probes are made
//! in `karmada-system`, from where nothing is ever propagated, and taken away again.

use std::{collections::BTreeMap, time::Duration};

use karmada_api::consts::namespace;
use karmada_client::{Error, Resource, Rest, lease};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::kinds::NAMESPACES;
use serde_json::{Value, json};
use tokio::time::sleep;

/// The controllers of Karmada that do what the hub does, by their leader Leases in `karmada-system`.
pub const FOREIGN: [&str; 2] = ["karmada-controller-manager", "karmada-scheduler"];
/// Between two looks at claims that are not judged yet.
const SOON: Duration = Duration::from_millis(500);
/// Between two looks while the hub leads.
const LATER: Duration = Duration::from_secs(5);
/// A claim without a duration: Karmada's.
const USUAL: Duration = Duration::from_secs(15);
/// How long Kubernetes' controllers get to show themselves.
const WORKLOADS: Duration = Duration::from_secs(15);
/// Between two looks at a probe.
const LOOK: Duration = Duration::from_millis(250);
/// How long a namespace may be on its way out before somebody should look whether anybody takes it away.
const STUCK: Duration = Duration::from_secs(60);
/// The label of everything that a probe makes.
pub(crate) const LABEL: &str = "hub.karmada.io/probe";

/// What is known of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody holds it, or whoever did has stopped.
    Idle,
    /// Somebody holds it; whether they are still there is not known yet.
    Unsure,
    /// Held and renewed by the one of this name.
    Live(String),
}

/// What was seen of leader Leases so far.
#[derive(Debug, Default)]
pub struct Claims {
    seen: BTreeMap<String, Seen>,
}

#[derive(Debug)]
struct Seen {
    holder: String,
    renewed: String,
    at: Duration,
    /// It has changed while it was looked at.
    changed: bool,
}

impl Claims {
    /// Takes in a Lease as it is now (nothing if it is not there), and judges it.
    pub fn look(&mut self, name: &str, lease: Option<&Value>, now: Duration) -> Claim {
        let Some(lease) = lease.filter(|lease| !lease::holder(lease).is_empty()) else {
            self.seen.remove(name);
            return Claim::Idle;
        };
        let (holder, renewed) = (lease::holder(lease), lease::renew_time(lease));
        match self.seen.get(name) {
            Some(seen) if seen.holder == holder && seen.renewed == renewed => {
                if now.saturating_sub(seen.at) >= lease::duration(lease).unwrap_or(USUAL) {
                    Claim::Idle
                } else if seen.changed {
                    Claim::Live(holder.to_owned())
                } else {
                    Claim::Unsure
                }
            }
            before => {
                let changed = before.is_some();
                let (holder, renewed) = (holder.to_owned(), renewed.to_owned());
                let claim = if changed { Claim::Live(holder.clone()) } else { Claim::Unsure };
                self.seen.insert(name.to_owned(), Seen { holder, renewed, at: now, changed });
                claim
            }
        }
    }
}

/// Karmada's own controllers at work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Karmada's own {component} runs on this API server (it renews the Lease {}/{component}, holder {holder}): it and \
     this hub would undo each other's work. Stop it first, or pass --allow-foreign-controllers",
    namespace::SYSTEM
)]
pub struct Foreign {
    /// The Lease's name, which is the program's.
    pub component: String,
    /// Who holds it.
    pub holder: String,
}

/// Looks for Karmada's own controllers until it is certain that there are none.
///
/// # Errors
/// The first that is at work.
pub async fn none_foreign(rest: &Rest, env: &Env) -> Result<(), Foreign> {
    let mut claims = Claims::default();
    while look(rest, env, &mut claims).await? {
        sleep(SOON).await;
    }
    Ok(())
}

/// Looks for Karmada's own controllers for ever.
pub async fn foreign(rest: &Rest, env: &Env) -> Foreign {
    let mut claims = Claims::default();
    loop {
        match look(rest, env, &mut claims).await {
            Ok(true) => sleep(SOON).await,
            Ok(false) => sleep(LATER).await,
            Err(foreign) => return foreign,
        }
    }
}

/// One look at all claims: whether any is not judged yet.
async fn look(rest: &Rest, env: &Env, claims: &mut Claims) -> Result<bool, Foreign> {
    let mut unsure = false;
    for component in FOREIGN {
        let path = lease::resource().object(Some(namespace::SYSTEM), component);
        let lease = match rest.get(&path).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) if error.is_forbidden() => {
                tracing::warn!(%error, "cannot tell whether Karmada's own controllers run on this API server");
                return Ok(false);
            }
            Err(error) => {
                tracing::debug!(%error, component, "cannot read the leader Lease");
                unsure = true;
                continue;
            }
        };
        match claims.look(component, lease.as_ref(), env.now()) {
            Claim::Idle => {}
            Claim::Unsure => unsure = true,
            Claim::Live(holder) => return Err(Foreign { component: component.to_owned(), holder }),
        }
    }
    Ok(unsure)
}

/// Looks which of Kubernetes' controllers run, says what is amiss, and watches over namespaces that do not go away.
pub async fn surroundings(rest: &Rest, env: &Env) {
    clear(rest).await;
    let mut amiss = false;
    match rest.get("/api/v1/nodes?limit=1").await {
        Ok(nodes) if nodes["items"].as_array().is_some_and(|nodes| !nodes.is_empty()) => {
            amiss = true;
            tracing::warn!(
                "this API server has Nodes: it is a cluster that runs Pods itself. The hub needs a kube-apiserver of \
                 its own, or templates would run here as well as on members"
            );
        }
        _ => {}
    }
    match acts(rest, env, &deployments(), deployment(env), |found| {
        found.is_some_and(|d| d.pointer("/status/observedGeneration").is_some())
    })
    .await
    {
        Ok(true) => {
            amiss = true;
            tracing::warn!(
                "a Deployment controller works on this API server: it would run templates here and overwrite the \
                 status that members report. Run kube-controller-manager with --controllers=namespace,garbagecollector"
            );
        }
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(%error, "cannot tell whether workload controllers run on this API server")
        }
    }
    match acts(rest, env, &config_maps(), orphan(env), |found| found.is_none()).await {
        Ok(true) => {}
        Ok(false) => {
            amiss = true;
            tracing::warn!(
                "no garbage collector works on this API server: the bindings of templates that are deleted stay, and \
                 so does what they placed. Run kube-controller-manager with --controllers=namespace,garbagecollector"
            );
        }
        Err(error) => {
            tracing::warn!(%error, "cannot tell whether a garbage collector runs on this API server")
        }
    }
    if !amiss {
        tracing::info!("the API server collects garbage and runs no workloads, as it should");
    }
    stuck_namespaces(rest, env).await;
}

fn deployments() -> Resource {
    Resource::new("apps", "v1", "deployments", "Deployment", true)
}

fn config_maps() -> Resource {
    Resource::new("", "v1", "configmaps", "ConfigMap", true)
}

fn metadata(env: &Env) -> Value {
    json!({
        "name": format!("karmada-hub-probe-{}", env.name_suffix(5)),
        "namespace": namespace::SYSTEM,
        "labels": {LABEL: "true"},
    })
}

fn deployment(env: &Env) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(env),
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {LABEL: "true"}},
            "template": {
                "metadata": {"labels": {LABEL: "true"}},
                "spec": {"containers": [{"name": "none", "image": "none.invalid/none"}]},
            },
        },
    })
}

/// A ConfigMap whose owner never was.
fn orphan(env: &Env) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(env)});
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "karmada-hub-no-such-owner", "uid": env.uuid()}]);
    object::set_meta(&mut map, "ownerReferences", owner);
    map
}

/// Makes a probe and watches whether somebody acts upon it.
async fn acts(
    rest: &Rest,
    env: &Env,
    resource: &Resource,
    probe: Value,
    acted: impl Fn(Option<&Value>) -> bool,
) -> Result<bool, Error> {
    rest.post(&resource.collection(Some(namespace::SYSTEM)), &probe).await?;
    let path = resource.object(Some(namespace::SYSTEM), object::name(&probe));
    let end = env.now() + WORKLOADS;
    let outcome = loop {
        match rest.get(&path).await {
            Ok(found) if acted(Some(&found)) => break Ok(true),
            Ok(_) if env.now() >= end => break Ok(false),
            Ok(_) => sleep(LOOK).await,
            Err(error) if error.is_not_found() => break Ok(acted(None)),
            Err(error) => break Err(error),
        }
    };
    match rest.delete(&path, &json!({})).await {
        Err(error) if !error.is_not_found() => {
            tracing::warn!(%error, probe = object::name(&probe), "cannot take the probe away");
        }
        _ => {}
    }
    outcome
}

/// Takes away what probes left behind that did not come to their end.
pub async fn clear(rest: &Rest) {
    for resource in [deployments(), config_maps()] {
        let path = format!("{}?labelSelector={LABEL}%3Dtrue", resource.collection(Some(namespace::SYSTEM)));
        let Ok(list) = rest.get(&path).await else { continue };
        for left in list["items"].as_array().into_iter().flatten() {
            // Its successor tries again if this fails.
            let path = resource.object(Some(namespace::SYSTEM), object::name(left));
            let _ = rest.delete(&path, &json!({})).await;
        }
    }
}

/// Says of namespaces that stay on their way out that nobody may be there to take them away.
async fn stuck_namespaces(rest: &Rest, env: &Env) {
    let mut since: BTreeMap<String, Duration> = BTreeMap::new();
    loop {
        sleep(STUCK / 2).await;
        // A filter of the server's, so that a thousand namespaces cost nothing.
        let path = format!("{}?fieldSelector=status.phase%3DTerminating", NAMESPACES.collection(None));
        let Ok(list) = rest.get(&path).await else { continue };
        let mut now = BTreeMap::new();
        for namespace in list["items"].as_array().into_iter().flatten() {
            let at = since.get(object::uid(namespace)).copied().unwrap_or_else(|| env.now());
            now.insert(object::uid(namespace).to_owned(), at);
            // A namespace controller says in conditions what it waits for.
            let attended = namespace.pointer("/status/conditions").and_then(Value::as_array);
            if attended.is_none_or(Vec::is_empty) && env.now().saturating_sub(at) >= STUCK {
                tracing::warn!(
                    namespace = object::name(namespace),
                    "the namespace is being deleted and nobody takes it away: does kube-controller-manager run its \
                     namespace controller on this API server?"
                );
            }
        }
        since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, renewed: &str) -> Value {
        json!({"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}})
    }

    #[test]
    fn a_claim_counts_while_it_changes() {
        let mut claims = Claims::default();
        let mut look = |lease: Option<Value>, second: u64| {
            claims.look("karmada-scheduler", lease.as_ref(), Duration::from_secs(second))
        };
        assert_eq!(look(None, 0), Claim::Idle);
        assert_eq!(look(Some(lease("", "")), 0), Claim::Idle, "given back");
        assert_eq!(look(Some(lease("a", "1")), 1), Claim::Unsure, "it may be years old");
        assert_eq!(look(Some(lease("a", "1")), 10), Claim::Unsure);
        assert_eq!(look(Some(lease("a", "1")), 16), Claim::Idle, "it stood still for its whole duration");
        assert_eq!(look(Some(lease("a", "2")), 20), Claim::Live("a".to_owned()));
        assert_eq!(look(Some(lease("a", "2")), 22), Claim::Live("a".to_owned()));
        assert_eq!(look(Some(lease("b", "2")), 24), Claim::Live("b".to_owned()), "another took it");
        assert_eq!(look(Some(lease("b", "2")), 39), Claim::Idle, "and stopped");
        assert_eq!(look(None, 40), Claim::Idle);
        assert_eq!(look(Some(lease("c", "9")), 41), Claim::Unsure);
    }
}
