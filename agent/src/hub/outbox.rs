//! What is to be said to the hub about Works: the newest status of each, and nothing twice. The seam between the applier
//! and the hub.
//!
//! By importance: that a Work may go, what its conditions say, its objects' status; events come last
//! ([`super::telling`]). Where bytes are paid for all of them but the first have an hour's budget together
//! ([`Spending`]). There is one report for each Work that is known, so there are no more of them than Works. They are
//! not kept beyond the process: what is there is looked at anew, and a Work that was carried out to its end is carried out
//! again, which finds nothing to do.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::{conditions::Condition, consts::finalizer, work::WorkStatus};
use karmada_client::{Error, Patch, Policy, Resource, Rest, WorkQueue};
use karmada_core::links::Matter;
use karmada_env::Env;
use karmada_member::{
    Desired, DesiredWork, Stats,
    revision::{Revision, is_of_before},
    rights::Rights,
};
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::json;

use super::spending::Spending;
use crate::config::AgentConfig;

/// Waits after a report that failed. Short, since what fails is the link, whose return wakes all anyway.
const RETRY: Policy = Policy::new(Duration::from_millis(250), Duration::from_secs(8));

/// A report that the hub has refused for what it says is not sent again before so long, unless it says something else: it
/// would be refused again, and may be large.
const REFUSED: Duration = Duration::from_secs(3600);

/// One that the hub says we may not make is tried once more after so long: a server that has just started may not know all
/// rights yet.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// Reports under way at a time. On one connection more would only queue there.
pub(crate) const REPORTERS: usize = 4;

/// Ranks in the queue: what is of none is a status that says nothing new in its conditions.
const LETS_GO: i32 = 2;
const CONDITIONS: i32 = 1;

/// What the hub is to hear.
#[derive(Debug, Default)]
struct Pending {
    statuses: BTreeMap<String, Report>,
    /// By name, Works that are carried out to their end: our finalizer is to go. Of two of a name the first has gone.
    finished: BTreeMap<String, Finished>,
    /// By Work, what the hub has refused, and [`Env::now`] from when on it is tried again.
    refused: BTreeMap<String, (Arc<WorkStatus>, Duration)>,
}

/// What a Work's status is.
#[derive(Clone, Debug)]
struct Report {
    uid: String,
    status: Arc<WorkStatus>,
    /// Its conditions say something new.
    pressing: bool,
}

impl Pending {
    fn rank(&self, name: &str) -> i32 {
        match self.statuses.get(name) {
            _ if self.finished.contains_key(name) => LETS_GO,
            Some(report) if report.pressing => CONDITIONS,
            _ => 0,
        }
    }
}

/// A Work that is carried out to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finished {
    uid: String,
    /// Since when it is deleted, as the hub writes it.
    deleted_at: Option<String>,
    /// In which life of the hub that was heard.
    life: u64,
}

/// The hub has understood, and does not take what was said: too large, not valid, not ours to say.
fn is_refused(error: &Error) -> bool {
    matches!(error.code(), Some(403 | 413 | 422))
}

/// Whether two statuses differ in nothing but the times of their conditions.
fn says_the_same(one: &WorkStatus, other: &WorkStatus) -> bool {
    let word = |c: &Condition| (c.type_.clone(), c.status, c.reason.clone(), c.message.clone());
    one.manifest_statuses == other.manifest_statuses
        && one.conditions.iter().map(word).eq(other.conditions.iter().map(word))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    hub: Rest,
    works: Resource,
    namespace: String,
    env: Env,
    queue: WorkQueue<String>,
    pending: Mutex<Pending>,
    /// A status waits this long for its successor: pods become ready in bursts. What a Work's conditions say does not wait.
    gather: Duration,
    spending: Spending,
}

/// The Work kind.
pub(crate) fn works() -> Resource {
    Resource::new("work.karmada.io", "v1alpha1", "works", "Work", true)
}

impl Outbox {
    pub(crate) fn new(hub: Rest, config: &AgentConfig, env: Env) -> Self {
        let queue = WorkQueue::with_policy(env.clone(), RETRY);
        let (namespace, gather) = (config.execution_namespace(), config.terms.gather);
        let spending = config.spending.clone();
        Self { hub, works: works(), namespace, env, queue, pending: Mutex::default(), gather, spending }
    }

    /// A Work's status is now this; `old` is what the hub has.
    pub(crate) fn status(&self, name: &str, uid: &str, old: &WorkStatus, status: WorkStatus) {
        let pause = if status.conditions == old.conditions { self.gather } else { Duration::ZERO };
        let mut pending = self.pending.lock();
        let pressing = pause.is_zero() || pending.statuses.get(name).is_some_and(|report| report.pressing);
        let report = Report { uid: uid.to_owned(), status: Arc::new(status), pressing };
        pending.statuses.insert(name.to_owned(), report);
        drop(pending);
        self.rank(name);
        self.queue.add_after(name.to_owned(), pause);
    }

    /// Lets a Work have its turn by what there is to be said about it.
    fn rank(&self, name: &str) {
        let rank = self.pending.lock().rank(name);
        self.queue.rank(&name.to_owned(), rank);
    }

    /// A Work that is being deleted is carried out.
    pub(crate) fn finished(&self, work: &DesiredWork) {
        let mut pending = self.pending.lock();
        pending.statuses.remove(&work.name);
        pending.refused.remove(&work.name);
        let done = Finished { uid: work.uid.clone(), deleted_at: work.deleted_at.clone(), life: work.life() };
        pending.finished.insert(work.name.clone(), done);
        drop(pending);
        self.rank(&work.name);
        self.queue.add(work.name.clone());
    }

    /// Reports that have not been taken yet.
    pub(crate) fn len(&self) -> usize {
        let pending = self.pending.lock();
        pending.statuses.len() + pending.finished.len()
    }

    /// The queue of reports, for metrics.
    pub(crate) fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    /// The way to the hub is back.
    pub(crate) fn hurry(&self) {
        self.queue.retry_all_now();
    }

    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Reports until closed. Run [`REPORTERS`] of them. `went_back` hears of the hub's life that is over: it has shown a
    /// state of before.
    pub(crate) async fn run(
        &self,
        desired: &Desired,
        rights: &Rights,
        stats: &Stats,
        went_back: impl Fn(u64),
    ) {
        while let Some(name) = self.queue.next().await {
            rights.reporting().await;
            let begun = self.env.now();
            let mut sent = None;
            match Box::pin(self.report(&name, desired, stats, &went_back, &mut sent)).await {
                Ok(reported) => {
                    if reported {
                        let duration_ms = self.env.now().saturating_sub(begun).as_millis() as u64;
                        tracing::debug!(work = %*name, namespace = %self.namespace, duration_ms, "reported");
                    }
                    self.rank(&name);
                    name.done();
                }
                Err(error) => {
                    let failures = self.queue.failures(&name);
                    if error.is_unreachable() || failures > 0 {
                        tracing::debug!(work = %*name, %error, "report waits");
                    } else {
                        tracing::warn!(work = %*name, %error, "the hub does not take a report");
                    }
                    let least = if error.is_forbidden() { FORBIDDEN } else { REFUSED };
                    if is_refused(&error) && sent.is_some_and(|sent| self.refuse(&name, sent, least)) {
                        stats.reports_dropped.add();
                        self.rank(&name);
                        name.done();
                    } else {
                        name.retry_after(error.retry_after());
                    }
                }
            }
        }
    }

    /// Lets a report wait that was refused. Not so a finalizer: that it is to go says nothing that could be refused for long.
    /// Whether something waits.
    fn refuse(&self, name: &str, sent: Arc<WorkStatus>, least: Duration) -> bool {
        let mut pending = self.pending.lock();
        if pending.finished.contains_key(name) {
            return false;
        }
        let is_newest = pending.statuses.get(name).is_none_or(|report| says_the_same(&report.status, &sent));
        let before = pending.refused.get(name).is_some_and(|(refused, _)| says_the_same(refused, &sent));
        let wait = if before { REFUSED } else { least };
        pending.refused.insert(name.to_owned(), (sent, self.env.now() + wait));
        drop(pending);
        // What has come since is another word.
        self.queue.add_after(name.to_owned(), if is_newest { wait } else { Duration::ZERO });
        true
    }

    /// Whether there was something that the hub did not have.
    /// `sent` is the status that the hub is told, if it is told any.
    async fn report(
        &self,
        name: &str,
        desired: &Desired,
        stats: &Stats,
        went_back: &impl Fn(u64),
        sent: &mut Option<Arc<WorkStatus>>,
    ) -> Result<bool, Error> {
        let finished = self.pending.lock().finished.get(name).cloned();
        if let Some(done) = finished {
            if self.let_go(name, &done).await? {
                went_back(done.life);
            }
            let mut pending = self.pending.lock();
            if pending.finished.get(name) == Some(&done) {
                pending.finished.remove(name);
            }
        }
        let (uid, status, matter) = {
            let mut pending = self.pending.lock();
            let Some(Report { uid, status, pressing }) = pending.statuses.get(name).cloned() else {
                pending.refused.remove(name);
                return Ok(false);
            };
            match pending.refused.get(name) {
                Some((refused, until)) if says_the_same(refused, &status) && self.env.now() < *until => {
                    // It was added again meanwhile, and sooner.
                    self.queue.add_after(name.to_owned(), until.saturating_sub(self.env.now()));
                    return Ok(false);
                }
                Some((refused, _)) if !says_the_same(refused, &status) => {
                    pending.refused.remove(name);
                }
                _ => {}
            }
            (uid, status, if pressing { Matter::Condition } else { Matter::Status })
        };
        // One that this hub has not told of yet may be another's there. What it is like is told when it has.
        let heard = |work: &Arc<DesiredWork>| work.uid == uid && work.life() == desired.life();
        let current = desired.get(name).filter(heard);
        let known = current.as_ref().is_some_and(|work| *work.status() == *status);
        if let Some(current) = current.filter(|_| !known) {
            let path = self.works.subresource(Some(&self.namespace), name, "status");
            let lists =
                json!({"conditions": status.conditions, "manifestStatuses": status.manifest_statuses});
            if let Err(wait) = self.spending.take(lists.to_string().len(), matter) {
                self.queue.add_after(name.to_owned(), wait);
                return Ok(false);
            }
            *sent = Some(Arc::clone(&status));
            match self.hub.patch_for_revision(&path, Patch::Merge, &json!({"status": lists})).await {
                Ok(revision) => {
                    stats.work_reports.add();
                    desired.reported(&current, &revision, &status);
                }
                Err(error) if error.is_absence_of(name) => stats.reports_dropped.add(),
                Err(error) => return Err(error),
            }
        } else if !known {
            // Its Work has gone, or is another.
            stats.reports_dropped.add();
        }
        let mut pending = self.pending.lock();
        pending.refused.remove(name);
        if pending.statuses.get(name).is_some_and(|report| Arc::ptr_eq(&report.status, &status)) {
            pending.statuses.remove(name);
        }
        Ok(!known)
    }

    /// Takes our finalizer off a Work: by a small patch, since a Work may be large and the line slow. Nearly always it is
    /// the only one. Where it is not, or an agent may not patch Works, as under Karmada's own rules, the Work is read
    /// first. Answers whether the hub has a state of it of before.
    async fn let_go(&self, name: &str, done: &Finished) -> Result<bool, Error> {
        let uid = done.uid.as_str();
        let path = self.works.object(Some(&self.namespace), name);
        let list = "/metadata/finalizers";
        let only = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            // A hub that was restored may know it alive.
            {"op": "test", "path": "/metadata/deletionTimestamp", "value": done.deleted_at},
            {"op": "test", "path": list, "value": [finalizer::EXECUTION]},
            {"op": "remove", "path": list},
        ]);
        match self.hub.patch_for_revision(&path, Patch::Json, &only).await {
            Ok(_) => return Ok(false),
            Err(error) if error.is_absence_of(name) => return Ok(false),
            // 403: not by a patch; 422: what was tested is not so.
            Err(error) if matches!(error.code(), Some(403 | 422)) => {}
            Err(error) => return Err(error),
        }
        let mut work = match self.hub.get(&path).await {
            Ok(work) => work,
            Err(error) if error.is_absence_of(name) => return Ok(false),
            Err(error) => return Err(error),
        };
        if is_of_before(&work, uid, Revision::UNKNOWN, true) {
            return Ok(true);
        }
        if object::uid(&work) != uid || !object::remove_finalizer(&mut work, finalizer::EXECUTION) {
            return Ok(false);
        }
        match self.hub.put(&path, &work).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_absence_of(name) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use karmada_client::Rest;
    use karmada_env::Env;
    use kube::client::Body;

    use super::*;

    const GATHER: Duration = Duration::from_millis(60);

    fn outbox() -> Outbox {
        let service =
            tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
        let hub = Rest::new(kube::Client::new(service, "default"));
        Outbox::new(hub, &AgentConfig::new("m1"), Env::system())
    }

    fn work(name: &str, uid: &str) -> DesiredWork {
        let text =
            json!({"metadata": {"name": name, "uid": uid, "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        DesiredWork::parse(&text.to_string()).unwrap()
    }

    #[tokio::test]
    async fn of_two_of_a_name_the_first_has_gone() {
        let outbox = outbox();
        outbox.finished(&work("w", "2"));
        outbox.finished(&work("w", "1"));
        assert_eq!(outbox.len(), 1);
        assert_eq!(outbox.pending.lock().finished["w"].uid, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_important_goes_out_first() {
        let outbox = outbox();
        let old = WorkStatus::default();
        let condition = |reason: &'static str| {
            let now = karmada_meta::time::Time::from_system(std::time::UNIX_EPOCH);
            Condition::new("Applied", true, reason, "", now)
        };
        let said = WorkStatus { conditions: vec![condition("AppliedSuccessful")], ..WorkStatus::default() };
        outbox.status("status", "1", &old, old.clone());
        // What has something new in its conditions stays pressing until that is said.
        outbox.status("condition", "2", &old, said.clone());
        outbox.status("condition", "2", &said, said.clone());
        outbox.finished(&work("gone", "3"));
        tokio::time::sleep(GATHER * 2).await;
        let mut order = Vec::new();
        for _ in 0..3 {
            order.push(outbox.queue.next().await.unwrap().clone());
        }
        assert_eq!(order, ["gone", "condition", "status"]);
        assert_eq!(outbox.len(), 3);
    }
}
