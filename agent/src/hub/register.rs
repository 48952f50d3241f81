//! Becoming a cluster of the hub's: our Cluster object, made or found.
//!
//! A cluster's identity is the uid of the member's `kube-system` namespace. A name on the hub that stands for another
//! identity is not taken over: two members under one name would delete each other's work.

use std::{sync::Arc, time::Duration};

use karmada_api::{
    conditions::{self, Condition, ConditionStatus},
    consts::{condition, extension, reason},
};
use karmada_client::{Backoff, Error, Patch, Policy, Rest};
use karmada_env::Env;
use karmada_member::{
    IDENTITY,
    health::Health,
    rights::{Registration, Rights},
};
use karmada_meta::{object, time::Time};
use serde_json::{Value, json};

use super::{cluster::ClusterView, clusters};
use crate::config::{AgentConfig, Facts};

/// While the hub or the member cannot be reached, or does not let us in yet.
const RETRY: Policy = Policy::full(Duration::from_millis(500), Duration::from_secs(5));

/// A refusal is looked at again now and then: somebody may have resolved it.
const REFUSED: Duration = Duration::from_secs(20);

/// Somebody else may write the Cluster in between; then we look again, so often.
const TRIES: u32 = 4;

/// What to do about our Cluster.
#[derive(Debug, PartialEq)]
enum Plan {
    /// Make it.
    Create,
    /// It is ours; this part of its spec is behind (none if it is not).
    Keep(Option<Value>),
    /// It may not be taken.
    Refuse(String),
}

/// Judges the Cluster that stands on the hub under our name.
fn plan(live: Option<&Value>, name: &str, id: &str, config: &AgentConfig) -> Plan {
    let (facts, hosted) = (&config.facts, config.is_hosted());
    let Some(live) = live else {
        return match hosted {
            true => Plan::Refuse(format!("the hub has no Cluster {name} any more")),
            false => Plan::Create,
        };
    };
    let spec = &live["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    if !text("id").is_empty() && text("id") != id {
        return Plan::Refuse(format!(
            "the hub's Cluster {name} has the id {}, but this member's id is {id} (the uid of its kube-system \
             namespace): it is another member, or this one made anew. Give this agent another --cluster-name, or, \
             if that member is gone, delete the Cluster: kubectl delete cluster {name}",
            text("id"),
        ));
    }
    if hosted && text("syncMode") != "Push" {
        return Plan::Refuse(format!(
            "the hub's Cluster {name} is in Pull mode now: an agent works on this member"
        ));
    }
    if !hosted && text("syncMode") == "Push" {
        return Plan::Refuse(format!(
            "the hub's Cluster {name} is in Push mode: the hub itself works on this member. Give this agent another \
             --cluster-name, or unjoin the cluster first"
        ));
    }
    let mut behind = serde_json::Map::new();
    for (field, value) in wanted(id, facts) {
        if spec.get(field) != Some(&value) {
            behind.insert(field.to_owned(), value);
        }
    }
    Plan::Keep((!behind.is_empty()).then_some(Value::Object(behind)))
}

/// What we say of the member; a fact that we were not told is not said.
fn wanted(id: &str, facts: &Facts) -> Vec<(&'static str, Value)> {
    let mut fields = vec![("id", json!(id))];
    for (field, value) in
        [("apiEndpoint", &facts.api_endpoint), ("provider", &facts.provider), ("region", &facts.region)]
    {
        if !value.is_empty() {
            fields.push((field, json!(value)));
        }
    }
    if !facts.zones.is_empty() {
        fields.push(("zones", json!(facts.zones)));
    }
    fields
}

/// The Cluster as it is made.
fn cluster(name: &str, id: &str, facts: &Facts) -> Value {
    let mut spec = json!({"syncMode": "Pull"});
    for (field, value) in wanted(id, facts) {
        spec[field] = value;
    }
    let mut cluster = json!({
        "apiVersion": clusters().api_version(), "kind": "Cluster",
        "metadata": {"name": name}, "spec": spec,
    });
    if !facts.link_windows.is_empty() {
        object::set_annotation(&mut cluster, extension::LINK_WINDOWS, facts.link_windows.clone());
    }
    cluster
}

/// Who registers.
#[derive(Clone, Debug)]
pub(crate) struct Registrar {
    pub(crate) hub: Rest,
    pub(crate) member: Rest,
    pub(crate) config: Arc<AgentConfig>,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) rights: Rights,
    pub(crate) env: Env,
}

impl Registrar {
    /// Registers, and waits for whatever that takes. Returns once the hub has a Cluster that is ours.
    pub(crate) async fn register(&self) {
        let Self { hub, member, config, view, rights, env } = self;
        let mut backoff = Backoff::new(RETRY);
        let (mut hub_back, mut member_back) = (config.hub_back.listen(), config.member_back.listen());
        loop {
            // In a box: it is over once, and waited for ever after.
            let pause = match Box::pin(attempt(hub, member, config, view, env)).await {
                Ok(None) => return,
                Ok(Some(refusal)) => {
                    if config.is_hosted() {
                        let failed = reason::STATUS_COLLECTION_FAILED;
                        let now = Time::now(env);
                        let told =
                            Condition::new(condition::READY, ConditionStatus::False, failed, &*refusal, now);
                        Box::pin(tell(hub, &view.path(), told, now)).await;
                    }
                    rights.cluster_is(Registration::Refused(Arc::from(refusal)));
                    REFUSED
                }
                Err(error) => {
                    let pause = backoff.next(env).max(error.retry_after().unwrap_or_default());
                    if backoff.failures() == 1 || backoff.failures().is_multiple_of(20) {
                        tracing::warn!(%error, "cannot register yet, trying again");
                    }
                    pause
                }
            };
            tokio::select! {
                biased;
                () = hub_back.woken() => {}
                () = member_back.woken() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Registers again whenever another, which had the name, has lost it.
    pub(crate) async fn take_back(&self) {
        loop {
            self.rights.vacant().await;
            self.register().await;
        }
    }
}

/// One attempt: none if it succeeded, else why it may not.
async fn attempt(
    hub: &Rest,
    member: &Rest,
    config: &AgentConfig,
    view: &ClusterView,
    env: &Env,
) -> Result<Option<String>, Error> {
    let name = config.cluster.as_str();
    let system = match member.small().get(IDENTITY).await {
        Err(error) if config.is_hosted() => return unknown(hub, member, config, view, env, error).await,
        system => system?,
    };
    let id = object::uid(&system);
    if config.is_hosted() && id.is_empty() {
        return Ok(Some(
            "what answers at apiEndpoint has no uid in its Namespace kube-system, by which members are known"
                .to_owned(),
        ));
    }
    if let Some(why) = view.meets_member(id) {
        return Ok(Some(why.to_string()));
    }
    let live = match hub.get(&view.path()).await {
        Ok(live) => Some(live),
        Err(error) if error.is_absence_of(name) => None,
        Err(error) => return Err(error),
    };
    match plan(live.as_ref(), name, id, config) {
        Plan::Refuse(why) => return Ok(Some(why)),
        Plan::Create => {
            if let Some(why) = name_of_id(hub, name, id).await? {
                return Ok(Some(why));
            }
            match hub.post(&clusters().collection(None), &cluster(name, id, &config.facts)).await {
                Ok(created) => {
                    tracing::info!(cluster = name, id, "registered");
                    view.set(created);
                }
                // The hub knows this id under another name, or will not have the name at all.
                Err(error) if error.is_invalid() || (error.is_conflict() && !error.is_already_exists()) => {
                    return Ok(Some(format!(
                        "the hub does not take the Cluster {name} (id {id}): {error}. If this member is registered \
                         under another name, start the agent with that name or delete that Cluster"
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        Plan::Keep(behind) => {
            let mut live = live.unwrap_or_default();
            if let Some(behind) = behind {
                let patch = json!({"metadata": {"uid": object::uid(&live)}, "spec": behind});
                match hub.patch(&view.path(), Patch::Merge, &patch).await {
                    Ok(patched) => {
                        if let Plan::Keep(Some(kept)) = plan(Some(&patched), name, id, config) {
                            tracing::warn!(
                                cluster = name,
                                wanted = %kept,
                                "the hub keeps what it has of the Cluster's spec: once a cluster has registered that is \
                                 its owner's to change, with kubectl edit cluster {name}"
                            );
                        }
                        live = patched;
                    }
                    // A stock Karmada gives its agents no right to change a Cluster.
                    Err(error) if error.is_forbidden() => {
                        tracing::warn!(%error, "the Cluster's spec stays as it is on the hub");
                    }
                    Err(error) => return Err(error),
                }
            }
            tracing::info!(cluster = name, id, "registered before");
            view.set(live);
        }
    }
    Ok(None)
}

/// What comes of it that the hub's own agent cannot tell which member it is on: nothing is done there before it can, and
/// why that is so stands in the Cluster. An address or a Secret may have been mistaken for another's.
async fn unknown(
    hub: &Rest,
    member: &Rest,
    config: &AgentConfig,
    view: &ClusterView,
    env: &Env,
    error: Error,
) -> Result<Option<String>, Error> {
    let name = config.cluster.as_str();
    tracing::warn!(cluster = name, %error, "it cannot be told which member this is");
    let live = hub.get(&view.path()).await?;
    let id = live["spec"]["id"].as_str().unwrap_or_default();
    if let Plan::Refuse(why) = plan(Some(&live), name, id, config) {
        return Ok(Some(why));
    }
    if matches!(error.code(), Some(401 | 403)) {
        return Ok(Some(format!(
            "the member does not let the hub's account get the Namespace kube-system, by whose uid it is known to be this \
             cluster's and no other's: {error}"
        )));
    }
    let now = Time::now(env);
    let mut health = Health::ask(member).await;
    if health == Health::Ready {
        health = if error.is_unreachable() { Health::NotReachable } else { Health::NotReady };
    }
    tell(hub, &view.path(), health.condition(now), now).await;
    Err(error)
}

/// Says in a Cluster in push mode how its member is, while nobody has registered who does that.
async fn tell(hub: &Rest, path: &str, ready: Condition, now: Time) {
    for _ in 0..TRIES {
        let written = async {
            let mut live = hub.get(path).await?;
            if !show(&mut live, ready.clone(), now) {
                return Ok(());
            }
            hub.put(&format!("{path}/status"), &live).await.map(drop)
        };
        match written.await {
            Err(error) if error.is_conflict() => {}
            Err(error) => return tracing::warn!(%error, "the cluster's status was not reported"),
            Ok(()) => return,
        }
    }
}

/// Makes a Cluster in push mode show a condition; whether it has changed.
fn show(live: &mut Value, ready: Condition, now: Time) -> bool {
    if live["spec"]["syncMode"] != "Push" {
        return false;
    }
    let list = live.pointer("/status/conditions").cloned().unwrap_or_else(|| json!([]));
    let Ok(mut list) = serde_json::from_value::<Vec<Condition>>(list) else { return false };
    let changed = conditions::set(&mut list, ready, now);
    if changed {
        live["status"]["conditions"] = json!(list);
    }
    changed
}

/// Whether the hub knows this id under another name, where it lets us ask; a hub of ours answers the creation with
/// 409 instead.
async fn name_of_id(hub: &Rest, name: &str, id: &str) -> Result<Option<String>, Error> {
    let list = match hub.get(&clusters().collection(None)).await {
        Ok(list) => list,
        Err(error) if error.is_forbidden() => return Ok(None),
        Err(error) => return Err(error),
    };
    let items = list["items"].as_array().into_iter().flatten();
    let other = items.filter(|c| c["spec"]["id"] == id).map(object::name).find(|other| *other != name);
    Ok(other.map(|other| {
        format!(
            "this member (id {id}) is registered as Cluster {other}. Start the agent with --cluster-name {other}, \
             or delete that Cluster: kubectl delete cluster {other}"
        )
    }))
}

#[cfg(test)]
mod tests {

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::config::Feed;

    fn config(facts: Facts) -> AgentConfig {
        AgentConfig { facts, ..AgentConfig::new("m") }
    }

    #[test]
    fn the_hubs_own_agent_makes_no_cluster_and_takes_none_of_an_agents() {
        let config = AgentConfig { hosted: Some(Feed::default()), ..AgentConfig::new("m") };
        let pushed = json!({"spec": {"id": "u", "syncMode": "Push"}});
        assert_eq!(plan(Some(&pushed), "m", "u", &config), Plan::Keep(None));
        for other in [
            None,
            Some(json!({"spec": {"id": "u", "syncMode": "Pull"}})),
            Some(json!({"spec": {"id": "v", "syncMode": "Push"}})),
        ] {
            assert!(matches!(plan(other.as_ref(), "m", "u", &config), Plan::Refuse(_)), "{other:?}");
        }
    }

    fn facts() -> Facts {
        Facts { region: "eu".into(), zones: vec!["a".into(), "b".into()], ..Facts::default() }
    }

    #[test]
    fn what_stands_on_the_hub_decides() {
        let ours = json!({"spec": {"id": "u", "syncMode": "Pull", "region": "eu", "zones": ["a", "b"],
                                   "provider": "set by hand", "taints": [{"key": "k"}]}});
        let moved = json!({"spec": {"id": "u", "syncMode": "Pull", "region": "us"}});
        let unnamed = json!({"spec": {"syncMode": "Pull", "region": "eu", "zones": ["a", "b"]}});
        assert_eq!(plan(None, "m", "u", &config(facts())), Plan::Create);
        assert_eq!(plan(Some(&ours), "m", "u", &config(facts())), Plan::Keep(None));
        assert_eq!(
            plan(Some(&moved), "m", "u", &config(facts())),
            Plan::Keep(Some(json!({"region": "eu", "zones": ["a", "b"]})))
        );
        assert_eq!(plan(Some(&unnamed), "m", "u", &config(facts())), Plan::Keep(Some(json!({"id": "u"}))));
        assert_eq!(
            plan(Some(&ours), "m", "u", &config(Facts::default())),
            Plan::Keep(None),
            "nothing said, nothing changed"
        );
        for (live, want) in [
            (json!({"spec": {"id": "v", "syncMode": "Pull"}}), "kubectl delete cluster m"),
            (json!({"spec": {"id": "u", "syncMode": "Push"}}), "Push mode"),
        ] {
            match plan(Some(&live), "m", "u", &config(facts())) {
                Plan::Refuse(why) => assert!(why.contains(want), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(plan(Some(&json!(3)), "m", "u", &config(facts())), Plan::Keep(Some(_))));
    }

    /// What Ready says when the hub's own agent has looked at a member that answers so to who it is.
    async fn hosted(code: u16, uid: &'static str) -> String {
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m", "uid": "c", "resourceVersion": "1"}, "spec": {"id": "u", "syncMode": "Push"},
        });
        let stored = Arc::new(Mutex::new(cluster));
        let there = stored.clone();
        let hub = tower::service_fn(move |request: Request<Body>| {
            let there = there.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                match (head.method.as_str(), head.uri.path()) {
                    ("PUT", path) if path.ends_with("/clusters/m/status") => {
                        *there.lock() = serde_json::from_slice(&body).unwrap();
                    }
                    (_, path) if path.ends_with("/clusters/m") => {}
                    _ => return Ok(answer(404, &json!({"kind": "Status", "code": 404, "message": "no"}))),
                }
                Ok::<_, std::io::Error>(answer(200, &there.lock()))
            }
        });
        let member = tower::service_fn(move |request: Request<Body>| async move {
            Ok::<_, std::io::Error>(match request.uri().path() {
                IDENTITY if code == 200 => {
                    answer(200, &json!({"metadata": {"name": "kube-system", "uid": uid}}))
                }
                IDENTITY => answer(code, &json!({"kind": "Status", "code": code, "message": "not you"})),
                "/readyz" => answer(200, &json!("ok")),
                _ => answer(404, &json!({"kind": "Status", "code": 404, "message": "no"})),
            })
        });
        let env = Env::system();
        let config = AgentConfig { hosted: Some(Feed::default()), ..AgentConfig::new("m") };
        let agent = crate::Agent::new(
            config,
            kube::Client::new(hub, "default"),
            kube::Client::new(member, "default"),
            env.clone(),
            crate::State::fresh(&env),
        );
        let stop = tokio_util::sync::CancellationToken::new();
        let running = tokio::spawn(agent.run(stop.clone()));
        tokio::time::sleep(Duration::from_secs(30)).await;
        stop.cancel();
        running.await.unwrap().unwrap();
        let stored = stored.lock();
        let all = stored.pointer("/status/conditions").and_then(Value::as_array);
        let ready = all.into_iter().flatten().find(|one| one["type"] == "Ready");
        let said = ready.map(|one| format!("{} {} {}", one["status"], one["reason"], one["message"]));
        said.unwrap_or_default()
    }

    fn answer(code: u16, body: &Value) -> Response<Body> {
        Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_hubs_own_agent_begins_nothing_on_a_member_that_it_does_not_know() {
        for (code, uid, says, ready) in [
            (200, "u", "ClusterReady", r#""True""#),
            (200, "other", "it is another member", r#""False""#),
            (403, "", "get the Namespace kube-system", r#""False""#),
            (503, "", "ClusterNotReady", r#""False""#),
        ] {
            let said = hosted(code, uid).await;
            assert!(said.contains(says) && said.starts_with(ready), "{code} {uid}: {said}");
        }
    }

    #[test]
    fn a_cluster_is_made_in_pull_mode() {
        let cluster = cluster("m", "u", &facts());
        assert_eq!(
            cluster["spec"],
            json!({"syncMode": "Pull", "id": "u", "region": "eu", "zones": ["a", "b"]})
        );
    }
}
