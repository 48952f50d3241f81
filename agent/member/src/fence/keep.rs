//! What is done on the member: clocks are looked at, objects stopped and resumed, the ledger kept.

use std::{sync::atomic::Ordering, time::Duration};

use futures::StreamExt;
use karmada_api::consts::{event, manager::AGENT};
use karmada_client::{Error, Patch};
use karmada_core::judge::{fence, guard::State};
use karmada_meta::{duration, time::Time};
use tokio::time::sleep;

use super::{Fence, Guarded};
use crate::{rights::Rights, works::desired::ObjectId};

/// The clocks are looked at this often at least: a machine that slept must not be believed when it says that only a
/// moment has passed.
const LOOK: Duration = Duration::from_secs(1);

/// How old the ledger may be, beside a renewal.
const LEDGER_AGE: Duration = Duration::from_secs(8);

/// How much later than the agent that acts another one stops what is overdue: the ledger may be as old as [`LEDGER_AGE`].
/// It comes off the time that the hub waits beside an object's own.
const LATE: Duration = Duration::from_secs(10);

/// How often an agent that does not act reads the ledger at least.
const LEDGER_LOOK: Duration = Duration::from_secs(15);

/// What was seen to be stopped is looked at again so often: somebody on the member may have started it.
const WATCH: Duration = Duration::from_secs(5);

/// How many objects are stopped at a time.
const AT_ONCE: usize = 8;

/// What is to be done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Stop,
    Resume,
}

impl Fence {
    /// Keeps the fence for ever: all of it while this agent acts on the member, and else what must not wait for that. It
    /// begins before there is a hub to be reached.
    pub(crate) async fn keep(&self, rights: &Rights) {
        let mut changed = self.changed.listen();
        let mut standing = rights.subscribe();
        let mut said = String::new();
        let mut acted = false;
        loop {
            standing.borrow_and_update();
            let acts = rights.may_apply();
            if !(acts && acted) {
                // Whoever acted meanwhile has written down what it knows.
                self.step_aside();
            }
            acted = acts;
            self.idle.store(!acts, Ordering::Relaxed);
            // Without a Cluster nobody confirms anything, and what is fenced may be begun elsewhere.
            let looked = match acts {
                true => Box::pin(self.look(rights.may_report())).await,
                false => Box::pin(self.stand_guard()).await,
            };
            let pause = match looked {
                Ok(pause) => {
                    said.clear();
                    pause
                }
                // Nothing stands behind the fence: it is enough to try again with the next renewal.
                Err(error) if self.guards_nothing() => {
                    tracing::debug!(cluster = %self.cluster, %error, "cannot write down on the member which hub this is");
                    None
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != said {
                        tracing::warn!(cluster = %self.cluster, %error, "cannot keep the fence on the member");
                    }
                    said = text;
                    Some(LOOK)
                }
            };
            let rest = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = standing.changed() => {}
                () = changed.woken() => {}
                () = rest => {}
            }
        }
    }

    /// Nothing is fenced here, as far as has been read.
    fn guards_nothing(&self) -> bool {
        let inner = self.inner.lock();
        inner.loaded && inner.guards.is_empty()
    }

    /// Another agent may be at work here: what is known is forgotten, and read from the ledger again. That the hub turned out
    /// to be another is not in there before it is written: whoever forgot it would find it out anew each time.
    fn step_aside(&self) {
        self.idle.store(true, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        inner.guards.clear();
        inner.history.set_aside();
        inner.loaded = false;
    }

    /// One look by an agent that does not act here, or does not know whether it does. What is overdue by the ledger is
    /// stopped all the same, a little later: the agent that acts may be gone, and another copy may be begun elsewhere. An
    /// agent that does act has confirmed it there before. Answers when the next look is due.
    async fn stand_guard(&self) -> Result<Option<Duration>, Error> {
        self.load().await?;
        let now = self.moment();
        let mut next = LEDGER_LOOK;
        for guarded in self.inner.lock().guards.values_mut() {
            guarded.change(|guard| {
                let after = guard.after();
                guard.set_after(after + LATE);
                guard.tick(now);
                next = next.min(guard.left(now).unwrap_or(LOOK));
                guard.set_after(after);
            });
        }
        self.carry_out().await;
        Ok(Some(next.max(LOOK)))
    }

    /// One look. Answers when the next is due; none while nothing is fenced.
    async fn look(&self, active: bool) -> Result<Option<Duration>, Error> {
        self.load().await?;
        if self.is_anything_forgotten() {
            // Before something is stopped for that, it is asked whether another agent was at work meanwhile.
            self.learn().await?;
        }
        let now = self.moment();
        for guarded in self.inner.lock().guards.values_mut() {
            guarded.change(|guard| guard.tick(now));
        }
        // An agent that stands guard beside this one reads there that it may run. What is to be stopped waits for nothing.
        let written = match active && self.resumes() && self.is_ledger_old() {
            true => self.write().await,
            false => Ok(()),
        };
        let all = self.carry_out().await;
        written?;
        if active && self.is_ledger_old() {
            self.write().await?;
        }
        let (now, inner) = (self.moment(), self.inner.lock());
        if inner.guards.is_empty() {
            return Ok(None);
        }
        let next = inner.guards.values().filter_map(|guarded| guarded.guard.left(now)).min();
        Ok(Some(if all { next.unwrap_or(LOOK).min(LOOK) } else { LOOK / 2 }))
    }

    /// Whether something is to run again, and nothing to be stopped.
    fn resumes(&self) -> bool {
        let inner = self.inner.lock();
        let resumes = |guarded: &Guarded| guarded.guard.state() == State::Running && !guarded.resumed;
        let rests = |guarded: &Guarded| guarded.guard.state() != State::Held || guarded.stopped.is_some();
        inner.guards.values().any(resumes) && inner.guards.values().all(rests)
    }

    fn is_anything_forgotten(&self) -> bool {
        let now = self.moment();
        let inner = self.inner.lock();
        inner
            .guards
            .values()
            .any(|guarded| guarded.guard.state() == State::Recalled && guarded.guard.clone().tick(now))
    }

    fn is_ledger_old(&self) -> bool {
        let inner = self.inner.lock();
        let Some(renewed) = inner.renewal.wall.filter(|_| inner.renewal.monotonic.is_some()) else {
            return false;
        };
        let age = inner.written.map(|written| renewed.abs_diff(written));
        inner.outdated
            || inner.history.is_unwritten(inner.written_revision)
            || (!inner.guards.is_empty() && age.is_none_or(|age| age >= LEDGER_AGE))
    }

    /// Does what is to be done on the member. Whether all of it was.
    async fn carry_out(&self) -> bool {
        let now = self.env.now();
        let is_old = |seen: Option<Duration>| seen.is_none_or(|seen| now.saturating_sub(seen) >= WATCH);
        let actions: Vec<(ObjectId, String, Action)> = {
            let inner = self.inner.lock();
            let due = inner.guards.iter().filter_map(|(id, guarded)| {
                let action = match guarded.guard.state() {
                    State::Held if is_old(guarded.stopped) => Action::Stop,
                    State::Running if !guarded.resumed => Action::Resume,
                    _ => return None,
                };
                Some((id.clone(), guarded.path.clone(), action))
            });
            due.collect()
        };
        let doing = actions.into_iter().map(|(id, path, action)| async move {
            let done = match action {
                Action::Stop => self.stop(&id, &path).await,
                Action::Resume => self.resume(&path).await,
            };
            (id, action, done)
        });
        let done: Vec<_> = futures::stream::iter(doing).buffered(AT_ONCE).collect().await;
        let mut all = true;
        for (id, action, done) in done {
            match done {
                Ok(written) => self.done(&id, action, written),
                Err(error) => {
                    all = false;
                    if !error.is_conflict() {
                        tracing::warn!(cluster = %self.cluster, kind = %id.kind, namespace = %id.namespace, name = %id.name, %error, ?action, "cannot reach a fenced workload");
                    }
                }
            }
        }
        all
    }

    /// Stops an object. Whether something was written.
    async fn stop(&self, id: &ObjectId, path: &str) -> Result<bool, Error> {
        let live = match self.member.get(path).await {
            Ok(live) => live,
            Err(error) if error.is_absence_of(&id.name) => {
                let unwanted = {
                    let inner = self.inner.lock();
                    inner.guards.get(id).is_some_and(|guarded| self.desired.get(&guarded.work).is_none())
                };
                if unwanted && self.desired.synced() {
                    self.forget(id);
                }
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if !self.is_ours(&live) {
            return Ok(false);
        }
        match fence::stop(&live, &Time::now(&self.env).to_string()) {
            fence::Stop::Patch(patch) => {
                let target = format!("{path}?fieldManager={AGENT}");
                self.member.patch(&target, Patch::Merge, &patch).await.map(|_| true)
            }
            fence::Stop::Already | fence::Stop::Impossible => Ok(false),
        }
    }

    /// Lets an object run as it did before it was stopped. Whether something was written.
    pub(super) async fn resume(&self, path: &str) -> Result<bool, Error> {
        let live = match self.member.get(path).await {
            Ok(live) => live,
            Err(error) if error.is_absence_of(path.rsplit('/').next().unwrap_or(path)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(patch) = fence::resume(&live).filter(|_| self.is_ours(&live)) else { return Ok(false) };
        self.member.patch(&format!("{path}?fieldManager={AGENT}"), Patch::Merge, &patch).await.map(|_| true)
    }

    /// Takes note of what was done, and says so.
    fn done(&self, id: &ObjectId, action: Action, written: bool) {
        let now = self.env.now();
        let mut inner = self.inner.lock();
        let Some(guarded) = inner.guards.get_mut(id) else { return };
        let (work, after) = (guarded.work.clone(), guarded.guard.after());
        let about = guarded.about(&self.execution_namespace, id);
        // What has changed meanwhile is looked at again.
        match (action, guarded.guard.state()) {
            (Action::Stop, State::Held) => guarded.stopped = Some(now),
            (Action::Resume, State::Running) => guarded.resumed = true,
            _ => {}
        }
        drop(inner);
        let cluster = &self.cluster;
        match action {
            Action::Stop if written => {
                self.stats.fence_stops.add();
                let message = format!(
                    "Stopped {} on cluster {cluster}: the hub has not confirmed it for {}.",
                    id.path(),
                    duration::format(after)
                );
                tracing::warn!(%cluster, %work, kind = %id.kind, namespace = %id.namespace, name = %id.name, "stopped: the hub has not confirmed it for too long");
                about.iter().for_each(|about| self.upstream.warning(about, event::FENCED, message.as_str()));
            }
            Action::Resume => {
                if written {
                    let message =
                        format!("{} runs again on cluster {cluster}: the hub has confirmed it.", id.path());
                    tracing::info!(%cluster, %work, kind = %id.kind, namespace = %id.namespace, name = %id.name, "runs again: the hub has confirmed it");
                    about
                        .iter()
                        .for_each(|about| self.upstream.normal(about, event::UNFENCED, message.as_str()));
                }
                (self.notice)(work);
            }
            Action::Stop => {}
        }
    }
}
