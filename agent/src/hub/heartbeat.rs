//! The Lease: a sign of life every ten seconds, and the place where two agents of one name notice each other.
//!
//! Which agent holds it stands in an annotation (`holderIdentity` is the cluster's name, for Karmada's hub). Renewals go
//! under the resourceVersion of the last one: whoever finds the Lease changed reads it, and stands by if the change was
//! another's. The other's life is judged by changes seen at times of our own clock.
//!
//! On a line so slow that answers come too late a renewal must not depend on the answer to the last one: then it goes
//! under the condition that the Lease still names us, whatever its version.
//!
//! What an idle link carries is renewals, so one is a merge patch of two fields wherever the hub allows that. An agent
//! that was registered with Karmada's own tools may only get, create and update its Lease; it sends all of it.

use std::{sync::Arc, time::Duration};

use karmada_api::consts::{extension::AGENT_INSTANCE, namespace};
use karmada_client::{Backoff, Error, Patch, Policy, Rest, lease};
use karmada_env::Env;
use karmada_meta::object;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::cluster::ClusterView;
use crate::{
    config::AgentConfig,
    fence::Fence,
    phase::{Phase, Phases},
    stats::Stats,
};

/// After a renewal that failed. Well below the interval: the hub counts what is missing.
const RETRY: Policy = Policy::full(Duration::from_secs(1), Duration::from_secs(4));

/// How often what is fenced is confirmed within the time for which it may run unconfirmed.
const CONFIRMATIONS: u32 = 3;

/// How long giving the Lease back may take at the end.
const RELEASE: Duration = Duration::from_secs(2);

/// The longest Lease of another agent that is waited for: whoever wrote a longer one keeps nobody out for ever.
const LONGEST_RIVAL: Duration = Duration::from_secs(600);

/// Another agent's claim, as it was seen.
#[derive(Debug)]
struct Rival {
    instance: String,
    renewed: String,
    /// [`Env::now`] when it was first seen to be so.
    seen: Duration,
}

/// Renews our Lease.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    hub: Rest,
    env: Env,
    config: AgentConfig,
    instance: String,
    view: Arc<ClusterView>,
    stats: Arc<Stats>,
    /// Hears of every renewal that the hub has taken.
    fence: Arc<Fence>,
    /// The Lease as our last renewal left it.
    held: Option<Value>,
    /// Whether the hub has not refused to patch it.
    may_patch: bool,
    /// The last renewal got no answer: which version the Lease has is not known.
    unanswered: bool,
    rival: Option<Rival>,
}

impl Heartbeat {
    pub(crate) fn new(
        hub: Rest,
        env: Env,
        config: AgentConfig,
        instance: String,
        view: Arc<ClusterView>,
        stats: Arc<Stats>,
        fence: Arc<Fence>,
    ) -> Self {
        Self {
            hub,
            env,
            config,
            instance,
            view,
            stats,
            fence,
            held: None,
            may_patch: true,
            unanswered: false,
            rival: None,
        }
    }

    /// Renews until shutdown, while there is a Cluster of ours; then lets the next agent begin at once.
    pub(crate) async fn run(mut self, phases: &Phases, shutdown: &CancellationToken) {
        let mut backoff = Backoff::new(RETRY);
        let mut back = self.config.hub_back.listen();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = phases.joined() => {}
            }
            let asked = self.fence.moment();
            let pause = match self.beat().await {
                Ok(true) => {
                    let revision = self.held.as_ref().map(object::resource_version);
                    self.fence.renewed(asked, revision.and_then(|revision| revision.parse().ok()));
                    self.stats.renewals.add();
                    backoff.reset();
                    phases.set(Phase::Active);
                    // Karmada's jitter; keeps a fleet that started together from beating together.
                    self.env.jitter(self.interval(), 0.04)
                }
                Ok(false) => {
                    phases.set(Phase::StandingBy);
                    self.config.lease_interval
                }
                Err(error) => {
                    self.stats.renewal_errors.add();
                    // No longer than usual: the hub counts what is missing.
                    let asked = error.retry_after().unwrap_or_default().min(self.config.lease_interval);
                    let pause = backoff.next(&self.env).max(asked);
                    tracing::warn!(cluster = %self.config.cluster, %error, failures = backoff.failures(), "the lease was not renewed");
                    pause
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = phases.withdrawn() => {}
                () = back.woken() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        if phases.is_active()
            && let Some(mut lease) = self.held.take()
        {
            object::remove_annotation(&mut lease, AGENT_INSTANCE);
            let _ = tokio::time::timeout(RELEASE, self.hub.put(&self.path(), &lease)).await;
        }
    }

    /// The pause before the next renewal: what is fenced must be confirmed often enough, however long the Lease is good.
    fn interval(&self) -> Duration {
        let confirmed = self.fence.shortest().map_or(Duration::MAX, |after| after / CONFIRMATIONS);
        self.config.lease_interval.min(confirmed)
    }

    fn path(&self) -> String {
        lease::resource().object(Some(namespace::CLUSTER), &self.config.cluster)
    }

    /// One renewal. Answers whether the Lease is ours.
    async fn beat(&mut self) -> Result<bool, Error> {
        if let Some(former) = self.held.take() {
            let mut lease = former.clone();
            self.fill(&mut lease);
            match self.renew(&former, &lease).await {
                Ok(revision) => {
                    self.hold(lease, revision);
                    self.unanswered = false;
                    return Ok(true);
                }
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                // The Lease names another agent.
                Err(error) if error.is_invalid() && self.unanswered => {}
                Err(error) => {
                    // It may have been written all the same.
                    self.unanswered = error.is_unreachable();
                    self.held = Some(former);
                    return Err(error);
                }
            }
        }
        self.unanswered = false;
        let mut lease = match self.hub.get(&self.path()).await {
            Ok(lease) => bare(lease),
            Err(error) if error.is_not_found() => {
                let mut lease = lease::new(namespace::CLUSTER, &self.config.cluster);
                self.fill(&mut lease);
                let collection = lease::resource().collection(Some(namespace::CLUSTER));
                let revision = self.hub.post_for_revision(&collection, &lease).await?;
                self.hold(lease, revision);
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        let patience = patience(self.config.lease_interval, lease::duration(&lease));
        if !may_take(&lease, &self.instance, &mut self.rival, self.env.now(), patience) {
            return Ok(false);
        }
        self.fill(&mut lease);
        match self.hub.put_for_revision(&self.path(), &lease).await {
            Ok(revision) => {
                self.hold(lease, revision);
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keeps the Lease as it was written.
    fn hold(&mut self, mut lease: Value, revision: String) {
        object::set_meta(&mut lease, "resourceVersion", revision);
        self.held = Some(lease);
    }

    /// Writes the Lease under the resourceVersion of `former`, or, if that may be out of date, if it still names us.
    /// Answers with the new version.
    async fn renew(&mut self, former: &Value, lease: &Value) -> Result<String, Error> {
        let path = self.path();
        if self.may_patch && differs_in_time_alone(former, lease) {
            let time = lease::renew_time(lease);
            let (kind, patch) = if self.unanswered {
                let holder = format!("/metadata/annotations/{}", AGENT_INSTANCE.replace('/', "~1"));
                let operations = json!([
                    {"op": "test", "path": holder, "value": self.instance},
                    {"op": "replace", "path": "/spec/renewTime", "value": time},
                ]);
                (Patch::Json, operations)
            } else {
                let version = object::resource_version(former);
                (Patch::Merge, json!({"metadata": {"resourceVersion": version}, "spec": {"renewTime": time}}))
            };
            match self.hub.patch_for_revision(&path, kind, &patch).await {
                Err(error) if error.is_forbidden() => {
                    tracing::debug!(cluster = %self.config.cluster, %error, "the lease is sent as a whole");
                    self.may_patch = false;
                }
                answer => return answer,
            }
        }
        self.hub.put_for_revision(&path, lease).await
    }

    fn fill(&self, lease: &mut Value) {
        lease::set_annotation(lease, AGENT_INSTANCE, &self.instance);
        lease::set_spec(lease, "holderIdentity", json!(self.config.cluster));
        lease::set_spec(lease, "leaseDurationSeconds", json!(promised_seconds(self.config.lease_duration)));
        lease::set_spec(lease, "renewTime", json!(lease::micro_time(self.env.wall())));
        if let Some(cluster) = self.view.get() {
            // So that the Lease goes with the Cluster.
            let owner = json!([{
                "apiVersion": super::clusters().api_version(), "kind": "Cluster",
                "name": self.config.cluster, "uid": object::uid(&cluster),
            }]);
            object::set_meta(lease, "ownerReferences", owner);
        }
    }
}

/// A Lease without what the server keeps by itself, which would be most of what a renewal sends.
fn bare(mut lease: Value) -> Value {
    for field in ["managedFields", "creationTimestamp"] {
        object::remove_meta(&mut lease, field);
    }
    lease
}

/// What the Lease says in whole seconds: no less than what is meant.
fn promised_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// How long another agent's Lease must have stood still before it is taken: for longer than it takes that agent, or this
/// one, to miss one renewal and make the next. An agent renews every quarter of what its Lease is good for, every half at
/// most. What nobody would promise counts as [`LONGEST_RIVAL`].
fn patience(interval: Duration, rivals: Option<Duration>) -> Duration {
    let rivals = rivals.unwrap_or_default().min(LONGEST_RIVAL);
    interval.mul_f64(2.5).max(rivals.mul_f64(0.625))
}

/// Whether a renewal changes nothing but `spec.renewTime`.
fn differs_in_time_alone(former: &Value, lease: &Value) -> bool {
    let mut former = former.clone();
    lease::set_spec(&mut former, "renewTime", lease::renew_time(lease).into());
    former == *lease
}

/// Whether a Lease may be taken: it is ours, nobody's, or of an agent that has not renewed it for longer than it would
/// have taken to miss one renewal and make the next.
fn may_take(lease: &Value, me: &str, rival: &mut Option<Rival>, now: Duration, patience: Duration) -> bool {
    let instance = lease::annotation(lease, AGENT_INSTANCE).unwrap_or_default();
    if instance.is_empty() || instance == me {
        *rival = None;
        return true;
    }
    let renewed = lease::renew_time(lease);
    match rival {
        Some(known) if known.instance == instance && known.renewed == renewed => {
            now.saturating_sub(known.seen) >= patience
        }
        _ => {
            *rival = Some(Rival { instance: instance.into(), renewed: renewed.into(), seen: now });
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(instance: Option<&str>, renewed: u32) -> Value {
        let mut lease = lease::new("karmada-cluster", "m");
        if let Some(instance) = instance {
            lease::set_annotation(&mut lease, AGENT_INSTANCE, instance);
        }
        lease::set_spec(&mut lease, "renewTime", json!(format!("2026-01-01T00:00:{renewed:02}.000000Z")));
        lease
    }

    #[test]
    fn another_agent_is_given_its_own_time() {
        // (pause between own renewals, what the other's Lease is good for, patience), in milliseconds
        let rows = [
            (10_000, None, 25_000),
            (10_000, Some(40_000), 25_000),
            (1_000, Some(4_000), 2_500),
            // Started with a shorter lease, beside one that renews every minute.
            (1_000, Some(240_000), 150_000),
            (60_000, Some(4_000), 150_000),
            (10_000, Some(u64::MAX), 375_000),
        ];
        for (interval, rivals, want) in rows {
            let got = patience(Duration::from_millis(interval), rivals.map(Duration::from_millis));
            assert_eq!(got.as_millis(), want, "{interval} {rivals:?}");
        }
    }

    #[test]
    fn a_lease_promises_no_less_than_is_meant() {
        for (millis, seconds) in [(1_000, 1), (1_001, 2), (40_000, 40), (1_900, 2)] {
            assert_eq!(promised_seconds(Duration::from_millis(millis)), seconds);
        }
    }

    #[test]
    fn the_later_agent_stands_by_while_the_other_renews() {
        // (at, holder, renewed at, may take)
        let rows = [
            (0, None, 0, true),
            (0, Some("me"), 0, true),
            (1, Some("other"), 0, false),
            (20, Some("other"), 0, false),
            (25, Some("other"), 20, false),
            (44, Some("other"), 20, false),
            (50, Some("other"), 20, true),
            (51, Some("third"), 20, false),
        ];
        let mut rival = None;
        for (at, holder, renewed, want) in rows {
            let lease = held_by(holder, renewed);
            let got = may_take(&lease, "me", &mut rival, Duration::from_secs(at), Duration::from_secs(25));
            assert_eq!(got, want, "at {at} s, held by {holder:?}, renewed at {renewed}");
        }
    }
}
