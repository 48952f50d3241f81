//! The Lease: a sign of life every ten seconds, and the place where two agents of one name notice each other.
//!
//! Which agent holds it stands in an annotation (`holderIdentity` is the cluster's name, for Karmada's hub). Renewals go
//! under the resourceVersion of the last one: whoever finds the Lease changed reads it, and stands by if the change was
//! another's. It is asked for by whoever holds the member's Lease, or in the stead of one who does not hear the hub
//! (`karmada_member`'s).
//!
//! On a line so slow that answers come too late a renewal must not depend on the answer to the last one: then it goes
//! under the condition that the Lease still names us, whatever its version. It leaves on the Lease which renewal was there
//! before: one that is older than the last that was answered is an older hub's.
//!
//! What an idle link carries is renewals, so one is as short as the hub allows: a line of its own on a hub of ours
//! ([`Renewal`]), else a merge patch of two fields. An agent that was registered with Karmada's own tools may only get, create
//! and update its Lease; it sends all of it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use karmada_api::consts::{
    extension::{AGENT_INSTANCE, RENEWED_BEFORE},
    namespace,
};
use karmada_client::{Backoff, Error, Patch, Policy, Rest, lease};
use karmada_env::Env;
use karmada_member::{
    Fence, Stats,
    claim::{Rival, bare, may_take, patience, promised_seconds},
    revision::Revision,
    rights::{Claim, Rights, Standing, moment},
};
use karmada_meta::{object, renewal::Renewal, time::MicroTime};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::cluster::ClusterView;
use crate::config::AgentConfig;

/// After a renewal that failed. Well below the interval: the hub counts what is missing.
const RETRY: Policy = Policy::full(Duration::from_secs(1), Duration::from_secs(4));

/// How often what is fenced is confirmed within the time for which it may run unconfirmed.
const CONFIRMATIONS: u32 = 3;

/// How many renewals without an answer are remembered.
const UNANSWERED: usize = 256;

/// How many of them may still arrive after a later one was answered.
const LATE: usize = 8;

/// How long giving the Lease back may take at the end.
const RELEASE: Duration = Duration::from_secs(2);

/// Renews our Lease.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    hub: Rest,
    env: Env,
    config: Arc<AgentConfig>,
    instance: String,
    view: Arc<ClusterView>,
    stats: Arc<Stats>,
    rights: Rights,
    /// Hears of every renewal that the hub has taken.
    fence: Arc<Fence>,
    /// The Lease as our last renewal left it.
    held: Option<Value>,
    /// Whether the hub has not refused to patch it.
    may_patch: bool,
    /// Whether the hub is not known to have no short form of that. Another one may be there after each connection.
    may_be_brief: bool,
    /// The last renewal got no answer: which version the Lease has is not known.
    unanswered: bool,
    times: Times,
    rival: Option<Rival>,
}

/// Which of our renewals the hub may have as its last.
#[derive(Debug, Default)]
struct Times {
    /// The last one that was answered.
    answered: Option<MicroTime>,
    /// Those that were asked for since.
    since: VecDeque<MicroTime>,
    /// There were more.
    more: bool,
}

impl Times {
    fn asked(&mut self, time: Option<MicroTime>) {
        self.since.extend(time);
        if self.since.len() > UNANSWERED {
            self.since.pop_front();
            self.more = true;
        }
    }

    /// Earlier ones may still arrive, by a connection that was given up.
    fn answered(&mut self, time: Option<MicroTime>) {
        (self.answered, self.more) = (time, false);
        while self.since.len() > LATE {
            self.since.pop_front();
        }
    }

    /// What is newer than the last answer, and not ours, is another writer's, and no older hub's.
    fn may_be(&self, time: MicroTime) -> bool {
        self.more || self.answered.is_none_or(|answered| time >= answered) || self.since.contains(&time)
    }
}

impl Heartbeat {
    pub(crate) fn new(
        hub: Rest,
        config: Arc<AgentConfig>,
        instance: String,
        view: Arc<ClusterView>,
        stats: Arc<Stats>,
        rights: Rights,
        fence: Arc<Fence>,
    ) -> Self {
        Self {
            hub,
            env: rights.env().clone(),
            config,
            instance,
            view,
            stats,
            rights,
            fence,
            held: None,
            may_patch: true,
            may_be_brief: true,
            unanswered: false,
            times: Times::default(),
            rival: None,
        }
    }

    /// Renews until shutdown, while this agent may claim the Lease; then lets the next one begin at once.
    pub(crate) async fn run(mut self, shutdown: &CancellationToken) {
        let rights = self.rights.clone();
        let mut backoff = Backoff::new(RETRY);
        let mut back = self.config.hub_back.listen();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = rights.when(Standing::may_claim_hub) => {}
            }
            let asked = moment(&self.env);
            let pause = match self.beat().await {
                Ok(true) => {
                    let revision = self.held.as_ref().map(object::resource_version);
                    self.fence.renewed(asked, revision.and_then(|revision| revision.parse().ok()));
                    self.stats.renewals.add();
                    backoff.reset();
                    rights.hub_is(Claim::Held);
                    // Karmada's jitter; keeps a fleet that started together from beating together.
                    self.env.jitter(self.interval(), 0.04)
                }
                Ok(false) => {
                    rights.hub_is(Claim::Others);
                    self.config.lease_interval
                }
                Err(error) => {
                    self.stats.renewal_errors.add();
                    // While nothing was heard another agent may have been cut off as well.
                    self.rival = None;
                    // No longer than usual: the hub counts what is missing.
                    let asked = error.retry_after().unwrap_or_default().min(self.config.lease_interval);
                    let pause = backoff.next(&self.env).max(asked);
                    let (cluster, failures) = (&self.config.cluster, backoff.failures());
                    // An outage may last for weeks; the Lease of who leaves goes with the Cluster.
                    if backoff.has_doubled() && !rights.leaves() {
                        tracing::warn!(%cluster, %error, failures, "the lease was not renewed");
                    } else {
                        tracing::debug!(%cluster, %error, failures, "the lease was not renewed");
                    }
                    pause
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = rights.withdrawn() => {}
                // Another agent acts on the member, and hears the hub itself.
                () = rights.when(|standing| !standing.may_claim_hub()) => self.give_back().await,
                // The hub may be another than it was. On a new connection there is time to ask.
                () = back.woken() => (self.unanswered, self.may_be_brief) = (false, true),
                () = tokio::time::sleep(pause) => {}
            }
        }
        if rights.may_report() {
            self.give_back().await;
        }
    }

    /// Lets another agent have the Lease at once, if it is ours.
    async fn give_back(&mut self) {
        if let Some(mut lease) = self.held.take() {
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
        let life = self.fence.life();
        let known = self.held.as_ref().map(Revision::of);
        if let Some(former) = self.held.take() {
            let mut lease = former.clone();
            self.fill(&mut lease);
            self.times.asked(renewed(&lease));
            match self.renew(&former, &lease, life).await {
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
                if known.is_some() {
                    // Deleted, or never made as far as this hub knows.
                    self.fence.list_anew();
                }
                let mut lease = lease::new(namespace::CLUSTER, &self.config.cluster);
                self.fill(&mut lease);
                let collection = lease::resource().collection(Some(namespace::CLUSTER));
                let revision = self.hub.post_for_revision(&collection, &lease).await?;
                self.hold(lease, revision);
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        // Nobody else writes a Lease of ours: an older one is an older hub's.
        if known.is_some_and(|known| Revision::of(&lease).is_before(known)) {
            self.fence.went_back(life);
        }
        let patience = patience(self.config.lease_interval, lease::duration(&lease));
        let holder = lease::annotation(&lease, AGENT_INSTANCE).unwrap_or_default();
        // Who has lost the member's Lease to us is not waited for a second time.
        let is_replaced = self.rights.predecessor().is_some_and(|predecessor| predecessor == holder);
        let (me, now) = (self.instance.as_str(), self.env.now());
        if !may_take((holder, &lease), me, &mut self.rival, now, patience) && !is_replaced {
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
        self.times.answered(renewed(&lease));
        self.held = Some(lease);
    }

    /// Writes the Lease under the resourceVersion of `former`, or, if that may be out of date, if it still names us.
    /// Answers with the new version.
    async fn renew(&mut self, former: &Value, lease: &Value, life: u64) -> Result<String, Error> {
        let path = self.path();
        let is_renewal = differs_in_time_alone(former, lease);
        if let Some(brief) = is_renewal.then(|| self.brief(former, lease)).flatten() {
            match self.hub.renew(&brief).await {
                Err(error) if self.is_not_known(&error) => {
                    tracing::debug!(cluster = %self.config.cluster, %error, "the hub has no short renewals");
                    self.may_be_brief = false;
                }
                answer => return answer,
            }
        }
        if self.may_patch && is_renewal {
            let time = lease::renew_time(lease);
            let answer = if self.unanswered {
                self.renew_any(&path, time, life).await
            } else {
                let version = object::resource_version(former);
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"renewTime": time}});
                self.hub.patch_for_revision(&path, Patch::Merge, &patch).await
            };
            match answer {
                Err(error) if error.is_forbidden() => {
                    tracing::debug!(cluster = %self.config.cluster, %error, "the lease is sent as a whole");
                    self.may_patch = false;
                }
                answer => return answer,
            }
        }
        self.hub.put_for_revision(&path, lease).await
    }

    /// The short form of a renewal, where there is one.
    fn brief(&self, former: &Value, lease: &Value) -> Option<String> {
        if self.unanswered || !self.may_be_brief {
            return None;
        }
        let (version, time) = (object::resource_version(former).parse().ok()?, renewed(lease)?);
        Some(Renewal { name: &self.config.cluster, version, time }.path())
    }

    /// Whether a hub has answered that it knows no short form: there is no such path, or whoever is in between lets none
    /// through. That there is no Lease is another answer, and so is that another has written it.
    fn is_not_known(&self, error: &Error) -> bool {
        matches!(error, Error::Answer { .. })
            || matches!(error.code(), Some(400 | 403 | 404 | 405 | 415))
                && !error.is_absence_of(&self.config.cluster)
    }

    /// Renews whatever version of the Lease names us, and looks which one that was.
    async fn renew_any(&self, path: &str, time: &str, life: u64) -> Result<String, Error> {
        let annotation = |name: &str| format!("/metadata/annotations/{}", object::quote_pointer(name));
        let operations = json!([
            {"op": "test", "path": annotation(AGENT_INSTANCE), "value": self.instance},
            {"op": "copy", "from": "/spec/renewTime", "path": annotation(RENEWED_BEFORE)},
            {"op": "replace", "path": "/spec/renewTime", "value": time},
        ]);
        let metadata = self.hub.patch_for_metadata(path, Patch::Json, &operations).await?;
        let before = object::annotation(&metadata, RENEWED_BEFORE).and_then(|time| time.parse().ok());
        if before.is_some_and(|before| !self.times.may_be(before)) {
            self.fence.went_back(life);
        }
        Ok(object::resource_version(&metadata).to_owned())
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

/// When a Lease was renewed, by itself.
fn renewed(lease: &Value) -> Option<MicroTime> {
    lease::renew_time(lease).parse().ok()
}

/// Whether a renewal changes nothing but `spec.renewTime`.
fn differs_in_time_alone(former: &Value, lease: &Value) -> bool {
    let mut former = former.clone();
    lease::set_spec(&mut former, "renewTime", lease::renew_time(lease).into());
    former == *lease
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_renewals_of_before_the_last_answer_are_an_older_hubs() {
        let at = |seconds| MicroTime::from_system(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let mut times = Times::default();
        assert!(times.may_be(at(1)), "nothing is known");
        times.answered(Some(at(10)));
        times.asked(Some(at(20)));
        times.asked(Some(at(30)));
        for (second, may) in [(5, false), (10, true), (20, true), (30, true), (25, true)] {
            assert_eq!(times.may_be(at(second)), may, "{second}");
        }
        times.answered(Some(at(40)));
        for (second, may) in [(10, false), (20, true), (25, false), (30, true), (40, true)] {
            assert_eq!(times.may_be(at(second)), may, "{second} arrived late");
        }
        for second in 0..UNANSWERED as u64 {
            times.asked(Some(at(100 + second)));
        }
        assert!(times.may_be(at(20)), "it may be one that is not remembered");
        times.answered(Some(at(1000)));
        assert!(!times.may_be(at(30)) && times.may_be(at(355)) && times.may_be(at(1000)));
    }
}
