//! The Lease on the member: which of several agents of one name acts there.
//!
//! ```text
//!   the agent that acts ── renews ─▶ Lease ◀── looks ── the one that stands by
//!     does not hear the hub: says so ─▶ │ ◀─ has the hub's Lease: asks for this one
//!     gives it away when it is asked ─▶ │
//! ```
//!
//! The hub's Lease says who speaks for the cluster, and goes with this one: an agent asks for it only while it holds this
//! one, or while who holds this one does not hear the hub. Two agents of which only one hears the hub end with both Leases
//! at that one, and at no time do both act. Where neither hears it, the one that acts goes on.
//!
//! Whoever stands at the machine holds changes back by an annotation of it ([`crate::holds`]): a renewal finds that somebody has
//! written it, and reads it.
//!
//! An agent is known by what lies in its folder. Where that was copied, two processes are one agent to all others, and each would
//! take the Lease for its own: so it names the process, too. One that finds its Lease renewed by a later process of its name gives
//! way as to any other agent, and what it has kept counts no more. One of an earlier process is written over: the member was
//! restored from a backup.
//!
//! Where the member has never let an agent see or write its Lease, and goes on refusing for a minute, the agent acts without;
//! then the hub's Lease alone says which of two does. Once there has been one, a refusal is like any other failure: nothing
//! is done after the Lease has run out, for another agent may have it.

use std::{sync::Arc, time::Duration};

use karmada_api::consts::extension::{AGENT_PROCESS, AGENT_STATE, HUB_UNHEARD, WANTED_BY};
use karmada_client::{Backoff, Error, Patch, Policy, Rest, Wake, lease};
use karmada_core::health::Moment;
use karmada_env::Env;
use karmada_meta::{object, time::MicroTime};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    IDENTITY,
    claim::{Rival, bare, may_take, on_member, patience, promised_seconds},
    holds::Holds,
    namespace::make_namespace,
    note::{NONE, Note},
    rights::{Rights, is_over, moment},
};

/// The pause between renewals, if nothing is fenced.
const INTERVAL: Duration = Duration::from_secs(10);

/// How often a Lease is renewed, and looked at by others, within the time that something fenced may run unconfirmed.
const RENEWALS: u32 = 3;

/// After a renewal that failed.
const RETRY: Policy = Policy::full(Duration::from_secs(1), Duration::from_secs(4));

/// A member that has refused for so long takes no Leases.
const REFUSED: Duration = Duration::from_secs(60);

/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// How long what is under way may take before the Lease goes to another agent: longer than a request may.
const HANDOVER: Duration = Duration::from_secs(15);

/// The same at the end, when there is little time.
const AT_REST: Duration = Duration::from_secs(1);

/// How long giving the Lease back may take at the end.
const RELEASE: Duration = Duration::from_secs(2);

/// What keeping it takes.
pub(crate) struct Keeper {
    pub(crate) member: Rest,
    pub(crate) env: Env,
    pub(crate) cluster: String,
    /// Where the Lease is.
    pub(crate) namespace: String,
    pub(crate) instance: String,
    /// When it was started, to the microsecond: no two processes say the same.
    pub(crate) process: String,
    pub(crate) rights: Rights,
    /// What it says of the state that is kept.
    pub(crate) note: Note,
    /// How often the hub's Lease is renewed.
    pub(crate) heartbeats: Duration,
    /// Given when the way to the member is back.
    pub(crate) back: Wake,
    /// The shortest time for which something here may run unconfirmed.
    pub(crate) fenced: Box<dyn Fn() -> Option<Duration> + Send + Sync>,
    /// Hears of what somebody at the machine has written on the Lease.
    pub(crate) holds: Arc<Holds>,
}

/// What a look at the Lease has shown.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It is ours.
    Ours,
    /// It is about to be another's: something is still being done.
    Leaving,
    /// It is another's, which hears the hub or does not.
    Others { unheard: bool },
    /// Another cluster answers in the member's place.
    Stranger,
}

/// Our Lease, and whose else it was.
#[derive(Debug, Default)]
struct Kept {
    /// The Lease as our last renewal left it.
    held: Option<Value>,
    rival: Option<Rival>,
    /// The member has shown the Lease, or taken it.
    was_seen: bool,
    /// This process has had it.
    was_held: bool,
    /// Another process has this agent's name for itself, as was told.
    has_twin: bool,
    /// The member has refused to patch it.
    may_not_patch: bool,
}

impl Keeper {
    /// Keeps the Lease until shutdown, then lets the next agent begin at once.
    pub(crate) async fn run(self, shutdown: &CancellationToken) {
        let member = self.member.with_deadline(DEADLINE);
        let mut kept = Kept::default();
        let mut backoff = Backoff::new(RETRY);
        let (mut back, mut urgent) = (self.back.listen(), self.note.urgent.listen());
        // Until when it is ours.
        let mut until: Option<Moment> = None;
        // Since when nothing else has come of it than errors, and whether that was told.
        let (mut failing, mut is_told) = (None::<Duration>, false);
        loop {
            let (asked, interval) = (moment(&self.env), self.interval());
            let pause = match Box::pin(self.beat(&member, &mut kept, interval)).await {
                Ok(Found::Ours) => {
                    backoff.reset();
                    let end =
                        Moment { monotonic: asked.monotonic + interval * 2, wall: asked.wall + interval * 2 };
                    (until, failing, is_told) = (Some(end), None, false);
                    if let Some(lease) = &kept.held {
                        self.note.held(lease);
                    }
                    self.rights.member_held(until);
                    // There is one agent on the member, and so no herd.
                    self.env.beat(&self.cluster, interval)
                }
                Ok(Found::Others { unheard }) => {
                    backoff.reset();
                    (until, failing, is_told) = (None, None, false);
                    self.note.forget();
                    self.rights.member_lost(unheard);
                    self.env.jitter(interval / 2, 0.04)
                }
                Ok(Found::Leaving) => {
                    until = None;
                    backoff.next(&self.env)
                }
                Ok(Found::Stranger) => {
                    until = None;
                    self.rights.member_unknown();
                    interval
                }
                Err(error) => {
                    let pause = backoff.next(&self.env);
                    let now = self.env.now();
                    let lasts = now.saturating_sub(*failing.get_or_insert(now));
                    let refuses = matches!(error.code(), Some(400 | 403 | 422)) && !kept.was_seen;
                    if lasts >= REFUSED && !std::mem::replace(&mut is_told, true) {
                        let then = if refuses {
                            "the agent acts without: a second agent of this name would not notice it by this"
                        } else {
                            "nothing is applied on the member until this works again, for another agent may act there"
                        };
                        tracing::warn!(
                            cluster = %self.cluster, namespace = %self.namespace, name = %self.name(), %error,
                            "the agent cannot keep its Lease on the member: {then}"
                        );
                    }
                    if refuses && lasts >= REFUSED {
                        self.note.leaseless();
                        self.rights.member_held(None);
                        interval
                    } else {
                        tracing::debug!(cluster = %self.cluster, %error, failures = backoff.failures(), "the member's Lease was not renewed");
                        pause
                    }
                }
            };
            let left = until.map_or(Duration::MAX, |until| until.monotonic.saturating_sub(self.env.now()));
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = back.woken() => {}
                // Whoever waits for it does so with the Lease in hand.
                () = urgent.woken(), if until.is_some() => {}
                () = sleep(pause.min(left)) => {}
            }
            if until.is_some_and(|until| is_over(until, moment(&self.env))) {
                until = None;
                self.rights.member_unknown();
            }
        }
        // What is still under way counts as ours until it can have ended.
        if self.rights.at_rest(AT_REST).await
            && let Some(mut lease) = kept.held.take()
        {
            lease::set_spec(&mut lease, "holderIdentity", Value::Null);
            self.note.fill(&mut lease);
            let _ = tokio::time::timeout(RELEASE, Box::pin(member.put(&self.path(), &lease))).await;
        }
    }

    fn interval(&self) -> Duration {
        (self.fenced)().map_or(INTERVAL, |after| INTERVAL.min(after / RENEWALS))
    }

    fn name(&self) -> String {
        on_member(&self.cluster)
    }

    fn path(&self) -> String {
        lease::resource().object(Some(&self.namespace), &self.name())
    }

    /// Whether the hub has not been heard for as long as another agent waits before it takes the hub's Lease.
    fn is_unheard(&self) -> bool {
        self.rights.is_unheard_for(patience(self.heartbeats, None))
    }

    /// One renewal, or one look at who else holds it.
    async fn beat(&self, member: &Rest, kept: &mut Kept, interval: Duration) -> Result<Found, Error> {
        let path = self.path();
        if let Some(former) = kept.held.take() {
            let mut lease = former.clone();
            self.fill(&mut lease, interval);
            let mut patch = json!({
                "metadata": {
                    "resourceVersion": object::resource_version(&former),
                    "annotations": {HUB_UNHEARD: lease::annotation(&lease, HUB_UNHEARD)},
                },
                "spec": lease["spec"],
            });
            if let Some(state) = lease::annotation(&lease, AGENT_STATE)
                && lease::annotation(&former, AGENT_STATE) != Some(state)
            {
                lease::set_annotation(&mut patch, AGENT_STATE, state);
            }
            let renewed = match kept.may_not_patch {
                true => member.put_for_revision(&path, &lease).await,
                false => member.patch_for_revision(&path, Patch::Merge, &patch).await,
            };
            let renewed = match renewed {
                // Some accounts may get, create and update Leases alone: they send all of it.
                Err(error) if error.is_forbidden() && !kept.may_not_patch => {
                    let put = member.put_for_revision(&path, &lease).await;
                    // Otherwise it may update nothing just now, which may pass.
                    kept.may_not_patch = put.is_ok();
                    put
                }
                renewed => renewed,
            };
            match renewed {
                Ok(revision) => return Ok(kept.hold(lease, revision)),
                // A member without our Lease may be another one.
                Err(error) if error.is_conflict() || error.is_not_found() => {
                    match self.is_member(member).await {
                        Ok(true) => {}
                        Ok(false) => {
                            kept.held = Some(former);
                            return Ok(Found::Stranger);
                        }
                        Err(error) => {
                            kept.held = Some(former);
                            return Err(error);
                        }
                    }
                }
                Err(error) => {
                    kept.held = Some(former);
                    return Err(error);
                }
            }
        }
        let mut lease = match member.get(&path).await {
            Ok(lease) => {
                kept.was_seen = true;
                self.holds.lease_is(Some(&lease));
                bare(lease)
            }
            Err(error) if error.is_absence_of(&self.name()) => {
                self.holds.lease_is(None);
                return self.make(member, kept, interval).await;
            }
            Err(error) => return Err(error),
        };
        let holder = lease::holder(&lease).to_owned();
        let is_twins = self.is_twins(&lease, kept);
        let wanted = lease::annotation(&lease, WANTED_BY).filter(|wanted| *wanted != self.instance);
        let wanted = wanted.map(str::to_owned);
        if holder == self.instance
            && !is_twins
            && self.is_unheard()
            && let Some(wanted) = wanted
        {
            tracing::info!(cluster = %self.cluster, to = %wanted, "another agent of this name hears the hub, and this one does not: it acts from now on");
            // Whether the answer comes or not: nothing more is begun, and what was begun ends first.
            self.rights.member_unknown();
            if !self.rights.at_rest(HANDOVER).await {
                return Ok(Found::Leaving);
            }
            lease::set_spec(&mut lease, "holderIdentity", json!(wanted));
            let transitions = lease::transitions(&lease) + 1;
            lease::set_spec(&mut lease, "leaseTransitions", json!(transitions));
            object::remove_annotation(&mut lease, WANTED_BY);
            // Whoever gets it back one day must not take it for its twin's.
            object::remove_annotation(&mut lease, AGENT_PROCESS);
            self.note.fill(&mut lease);
            member.put(&path, &lease).await?;
            return Ok(Found::Others { unheard: false });
        }
        let patience = patience(interval, lease::duration(&lease));
        let me = if is_twins { "" } else { self.instance.as_str() };
        if !may_take((&holder, &lease), me, &mut kept.rival, self.env.now(), patience) {
            return self.look_at(member, &lease).await;
        }
        if holder != self.instance || is_twins {
            self.rights.member_taken_from(&holder);
            self.note.forget();
            let transitions = lease::transitions(&lease) + 1;
            lease::set_spec(&mut lease, "leaseTransitions", json!(transitions));
            lease::set_spec(&mut lease, "acquireTime", json!(lease::micro_time(self.env.wall())));
        }
        if is_twins || kept.has_twin {
            // Both have gone on from the same state: what the Lease says of it holds for none of the two.
            lease::set_annotation(&mut lease, AGENT_STATE, NONE);
        }
        object::remove_annotation(&mut lease, WANTED_BY);
        self.fill(&mut lease, interval);
        let revision = member.put_for_revision(&path, &lease).await?;
        Ok(kept.hold(lease, revision))
    }

    /// Whether this is the member that it was. One that does not let the agent see that is taken for it.
    async fn is_member(&self, member: &Rest) -> Result<bool, Error> {
        match member.get(IDENTITY).await {
            Ok(system) => Ok(self.rights.meets_member(object::uid(&system)).is_none()),
            Err(error) if error.is_forbidden() || error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether the Lease is a later process' that has our name: this one has had it, and did not write it last.
    fn is_twins(&self, lease: &Value, kept: &mut Kept) -> bool {
        let process = lease::annotation(lease, AGENT_PROCESS);
        let is_later = process.is_some_and(|process| is_later(process, &self.process));
        let is_twins = kept.was_held && lease::holder(lease) == self.instance && is_later;
        if is_twins && !std::mem::replace(&mut kept.has_twin, true) {
            tracing::warn!(
                cluster = %self.cluster, instance = %self.instance,
                "another process acts as this very agent: its folder (--state-dir) was copied. This one stands by; give each agent a \
                 folder of its own, without a copy of the file `instance`"
            );
        }
        is_twins
    }

    /// Another agent's Lease: one that has the hub's asks for it if its holder does not hear the hub.
    async fn look_at(&self, member: &Rest, lease: &Value) -> Result<Found, Error> {
        let unheard = lease::annotation(lease, HUB_UNHEARD).is_some();
        let asked = lease::annotation(lease, WANTED_BY) == Some(self.instance.as_str());
        if unheard && !asked && self.rights.may_report() {
            let patch = json!({"metadata": {
                "resourceVersion": object::resource_version(lease), "annotations": {WANTED_BY: self.instance},
            }});
            match member.patch(&self.path(), Patch::Merge, &patch).await {
                Err(error) if error.is_forbidden() => {
                    let mut lease = lease.clone();
                    lease::set_annotation(&mut lease, WANTED_BY, &self.instance);
                    member.put(&self.path(), &lease).await?;
                }
                answer => drop(answer?),
            }
        }
        Ok(Found::Others { unheard })
    }

    /// Makes the Lease, and the Namespace if that is missing: an agent that does not run in the member itself may be the
    /// first there.
    async fn make(&self, member: &Rest, kept: &mut Kept, interval: Duration) -> Result<Found, Error> {
        if !self.rights.may_apply() {
            self.note.forget();
        }
        let mut lease = lease::new(&self.namespace, &self.name());
        lease::set_spec(&mut lease, "acquireTime", json!(lease::micro_time(self.env.wall())));
        self.fill(&mut lease, interval);
        let collection = lease::resource().collection(Some(&self.namespace));
        let made = match member.post(&collection, &lease).await {
            Err(error) if error.is_not_found() => {
                make_namespace(member, &self.namespace).await?;
                member.post(&collection, &lease).await?
            }
            answer => answer?,
        };
        let revision = object::resource_version(&made).to_owned();
        Ok(kept.hold(bare(made), revision))
    }

    /// Fills in what this agent says now.
    fn fill(&self, lease: &mut Value, interval: Duration) {
        lease::set_spec(lease, "holderIdentity", json!(self.instance));
        lease::set_annotation(lease, AGENT_PROCESS, &self.process);
        lease::set_spec(lease, "leaseDurationSeconds", json!(promised_seconds(interval * 4)));
        lease::set_spec(lease, "renewTime", json!(lease::micro_time(self.env.wall())));
        if self.is_unheard() {
            lease::set_annotation(lease, HUB_UNHEARD, "true");
        } else {
            object::remove_annotation(lease, HUB_UNHEARD);
        }
        self.note.fill(lease);
    }
}

impl Kept {
    /// Keeps the Lease as it was written.
    fn hold(&mut self, mut lease: Value, revision: String) -> Found {
        object::set_meta(&mut lease, "resourceVersion", revision);
        self.held = Some(lease);
        (self.was_seen, self.was_held, self.has_twin) = (true, true, false);
        Found::Ours
    }
}

/// Whether a process was started after ours. What is no time is taken for one, if it is not ours.
fn is_later(process: &str, ours: &str) -> bool {
    match (process.parse::<MicroTime>(), ours.parse::<MicroTime>()) {
        (Ok(process), Ok(ours)) => process > ours,
        _ => process != ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_later_by_its_time() {
        let ours = "2026-01-02T03:04:05.000006Z";
        let rows = [
            (ours, ours, false),
            ("2026-01-02T03:04:05.000007Z", ours, true),
            ("2026-01-02T03:04:05.000005Z", ours, false),
            ("2026-01-02T04:04:05.000005+01:00", ours, false),
            ("", ours, true),
            ("another", ours, true),
            ("2026-01-02T03:04:05.000005Z", "odd", true),
            ("odd", "odd", false),
        ];
        for (process, ours, want) in rows {
            assert_eq!(is_later(process, ours), want, "{process:?} {ours:?}");
        }
    }
}
