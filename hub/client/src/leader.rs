//! One of several: whoever holds a Lease leads.
//!
//! Another's claim is judged by the local monotonic clock alone: it has expired when its record did not change for its
//! whole duration *as seen from here*. What clocks elsewhere say does not matter. The leader stops leading by its own
//! clock before others may start, even if the server cannot be reached meanwhile. What a leader writes can be held
//! to that, too: a [`Fence`] is open only while the claim stands, whatever has become of the tasks that write.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use karmada_env::Env;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    latest, lease,
    rest::{Error, Rest},
};

/// Which Lease, and how fast. Karmada's times: 15 s, 10 s, 2 s.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are; unique among all that may lead.
    pub identity: String,
    /// How long a claim holds after its last renewal.
    pub duration: Duration,
    /// A leader that could not renew for this long stops leading. Shorter than `duration` by what clocks and
    /// scheduling may differ.
    pub deadline: Duration,
    /// Between attempts to acquire or renew.
    pub period: Duration,
}

/// Why times for an election cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimesError {
    /// Others would start before the leader has stopped.
    #[error("the lease duration ({0:?}) must be longer than the renew deadline ({1:?})")]
    DeadlineTooLong(Duration, Duration),
    /// The leader would stop before it has tried twice.
    #[error("the renew deadline ({0:?}) must be longer than 1.2 times the retry period ({1:?})")]
    PeriodTooLong(Duration, Duration),
    /// A Lease's duration is in whole seconds.
    #[error("the lease duration ({0:?}) must be at least a second, in whole seconds")]
    NotSeconds(Duration),
    /// Without a pause the server would be asked without end.
    #[error("the retry period must be longer than 0")]
    NoPeriod,
}

impl LeaderConfig {
    /// Karmada's times for a Lease.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            period: Duration::from_secs(2),
        }
    }

    /// Checks the times against each other.
    ///
    /// # Errors
    /// The rule that they break.
    pub fn check(&self) -> Result<(), TimesError> {
        if self.period.is_zero() {
            return Err(TimesError::NoPeriod);
        }
        if self.duration.as_secs() == 0 || self.duration.subsec_nanos() != 0 {
            return Err(TimesError::NotSeconds(self.duration));
        }
        if self.duration <= self.deadline {
            return Err(TimesError::DeadlineTooLong(self.duration, self.deadline));
        }
        // The pause between attempts is jittered by a fifth.
        if self.deadline <= self.period.mul_f64(1.2) {
            return Err(TimesError::PeriodTooLong(self.deadline, self.period));
        }
        Ok(())
    }
}

/// Whether a leader's claim stands, by its own clocks: for what must not be done a moment too late. A process that was
/// stopped and goes on, or whose election task is stuck, finds it shut; so does a machine that slept, on which the
/// monotonic clock may have stood still, since the claim must stand by the time of day too. Cheap to clone.
#[derive(Clone)]
pub struct Fence {
    until: Arc<Until>,
    env: Env,
}

/// Up to when the claim stands, in milliseconds of both clocks.
#[derive(Debug, Default)]
struct Until {
    monotonic: AtomicU64,
    wall: AtomicU64,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("open", &self.is_open()).finish()
    }
}

impl Fence {
    fn new(env: &Env) -> Self {
        Self { until: Arc::default(), env: env.clone() }
    }

    /// Whether the claim stands.
    pub fn is_open(&self) -> bool {
        let (monotonic, wall) = self.now();
        monotonic < self.until.monotonic.load(Ordering::Acquire)
            && wall < self.until.wall.load(Ordering::Acquire)
    }

    /// The time by both clocks.
    fn now(&self) -> (u64, u64) {
        let wall = self.env.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (millis(self.env.now()), millis(wall))
    }

    /// The claim stands for `span` from `since` on, a time that [`Fence::now`] gave.
    fn open(&self, since: (u64, u64), span: Duration) {
        self.until.wall.store(since.1.saturating_add(millis(span)), Ordering::Release);
        self.until.monotonic.store(since.0.saturating_add(millis(span)), Ordering::Release);
    }

    fn shut(&self) {
        self.until.monotonic.store(0, Ordering::Release);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The last record seen, and when it was first seen to be so.
#[derive(Debug)]
struct Observed {
    record: (String, String, u64),
    at: Duration,
}

/// Takes part in an election.
pub struct Leader {
    rest: Rest,
    config: LeaderConfig,
    env: Env,
    leading: latest::Sender<bool>,
    /// Who holds the Lease; empty while that is not known.
    holder: latest::Sender<String>,
    fence: Fence,
    observed: Option<Observed>,
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader")
            .field("config", &self.config)
            .field("leading", &*self.leading.borrow())
            .finish()
    }
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// The Lease is ours, renewed just now.
    Ours,
    /// Somebody else holds it, or was faster.
    Theirs,
}

impl Leader {
    /// A candidate.
    pub fn new(client: kube::Client, config: LeaderConfig, env: Env) -> Self {
        Self {
            rest: Rest::new(client),
            config,
            fence: Fence::new(&env),
            env,
            leading: latest::Sender::new(false),
            holder: latest::Sender::new(String::new()),
            observed: None,
        }
    }

    /// Open while we lead.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Who holds the Lease; empty while that is not known, because the server does not answer, say.
    pub fn holder(&self) -> latest::Receiver<String> {
        self.holder.subscribe()
    }

    /// Whether we lead. Controllers run while it is true and stop when it turns false.
    pub fn leading(&self) -> latest::Receiver<bool> {
        self.leading.subscribe()
    }

    /// Takes part until shutdown, then gives the Lease back so that another need not wait.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut renewed = Duration::ZERO;
        loop {
            let (asked, fence_from) = (self.env.now(), self.fence.now());
            let limit = if *self.leading.borrow() {
                // Stop in time whatever the server does.
                (renewed + self.config.deadline).saturating_sub(asked).max(Duration::from_millis(1))
            } else {
                self.config.deadline
            };
            let attempt = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                attempt = timeout(limit, self.attempt()) => attempt,
            };
            match attempt {
                Ok(Ok(Attempt::Ours)) => {
                    // Counted from before the request: others may have seen it any time since.
                    renewed = asked;
                    self.fence.open(fence_from, self.config.deadline);
                    self.held_by(&self.config.identity);
                    self.set(true);
                }
                Ok(Ok(Attempt::Theirs)) => self.set(false),
                Ok(Err(error)) => {
                    self.held_by("");
                    tracing::debug!(%error, lease = %self.config.name, "election");
                }
                Err(_) => {
                    self.held_by("");
                    tracing::debug!(lease = %self.config.name, "election: no answer");
                }
            }
            if *self.leading.borrow() && self.env.now() >= renewed + self.config.deadline {
                self.set(false);
            }
            let pause = self.env.jitter(self.config.period, 0.2);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        if *self.leading.borrow() {
            self.set(false);
            let _ = timeout(self.config.period, self.release()).await;
        }
    }

    fn held_by(&self, holder: &str) {
        let changed = self.holder.send_if_modified(|known| {
            let changed = known != holder;
            if changed {
                holder.clone_into(known);
            }
            changed
        });
        if changed && !holder.is_empty() && holder != self.config.identity {
            tracing::info!(lease = %self.config.name, leader = holder, "another leads");
        }
    }

    fn set(&self, leading: bool) {
        if !leading {
            self.fence.shut();
        }
        let changed = self.leading.send_if_modified(|was| std::mem::replace(was, leading) != leading);
        if changed {
            tracing::info!(lease = %self.config.name, identity = %self.config.identity, leading, "leadership");
        }
    }

    fn path(&self) -> String {
        lease::resource().object(Some(&self.config.namespace), &self.config.name)
    }

    async fn attempt(&mut self) -> Result<Attempt, Error> {
        let now = lease::micro_time(self.env.wall());
        let mut record = match self.rest.get(&self.path()).await {
            Ok(record) => record,
            Err(error) if error.is_not_found() => {
                let mut record = lease::new(&self.config.namespace, &self.config.name);
                self.claim(&mut record, &now, 0);
                let collection = lease::resource().collection(Some(&self.config.namespace));
                return match self.rest.post(&collection, &record).await {
                    Ok(_) => Ok(Attempt::Ours),
                    Err(error) if error.is_already_exists() => Ok(Attempt::Theirs),
                    Err(error) => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let holder = lease::holder(&record).to_owned();
        if holder != self.config.identity && !holder.is_empty() && !self.expired(&record) {
            self.held_by(&holder);
            return Ok(Attempt::Theirs);
        }
        let transitions = lease::transitions(&record);
        if holder == self.config.identity {
            lease::set_spec(&mut record, "renewTime", now.as_str().into());
        } else {
            self.claim(&mut record, &now, transitions + 1);
        }
        match self.rest.put(&self.path(), &record).await {
            Ok(_) => Ok(Attempt::Ours),
            Err(error) if error.is_conflict() => Ok(Attempt::Theirs),
            Err(error) => Err(error),
        }
    }

    fn claim(&self, record: &mut Value, now: &str, transitions: u64) {
        for (name, value) in [
            ("holderIdentity", json!(self.config.identity)),
            ("leaseDurationSeconds", json!(self.config.duration.as_secs())),
            ("acquireTime", json!(now)),
            ("renewTime", json!(now)),
            ("leaseTransitions", json!(transitions)),
        ] {
            lease::set_spec(record, name, value);
        }
    }

    /// Whether a claim of another's has stood unchanged for its whole duration.
    fn expired(&mut self, record: &Value) -> bool {
        let seen = (
            lease::holder(record).to_owned(),
            lease::renew_time(record).to_owned(),
            lease::transitions(record),
        );
        let now = self.env.now();
        match &self.observed {
            Some(observed) if observed.record == seen => {
                let duration = lease::duration(record).unwrap_or(self.config.duration);
                now.saturating_sub(observed.at) >= duration
            }
            _ => {
                self.observed = Some(Observed { record: seen, at: now });
                false
            }
        }
    }

    async fn release(&self) -> Result<(), Error> {
        let mut record = self.rest.get(&self.path()).await?;
        if lease::holder(&record) != self.config.identity {
            return Ok(());
        }
        lease::set_spec(&mut record, "holderIdentity", "".into());
        lease::set_spec(&mut record, "leaseDurationSeconds", json!(1));
        self.rest.put(&self.path(), &record).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::testing::{Script, env, script};

    /// One Lease with optimistic locking; answers nothing but 503 while `away`.
    fn server(away: Arc<Mutex<bool>>) -> Script {
        let lease: Mutex<Option<Value>> = Mutex::new(None);
        let revision = Mutex::new(0u64);
        script(move |request| {
            if *away.lock() {
                return (503, json!({}));
            }
            let mut lease = lease.lock();
            match (request.method.as_str(), &*lease) {
                ("GET", None) => (404, json!({"reason": "NotFound", "message": "no lease"})),
                ("GET", Some(lease)) => (200, lease.clone()),
                ("POST", Some(_)) => (409, json!({"reason": "AlreadyExists", "message": "there"})),
                ("PUT", Some(old))
                    if old["metadata"]["resourceVersion"] != request.body["metadata"]["resourceVersion"] =>
                {
                    (409, json!({"reason": "Conflict", "message": "changed"}))
                }
                _ => {
                    *revision.lock() += 1;
                    let mut new = request.body.clone();
                    new["metadata"]["resourceVersion"] = json!(revision.lock().to_string());
                    *lease = Some(new.clone());
                    (200, new)
                }
            }
        })
    }

    struct Candidate {
        leading: latest::Receiver<bool>,
        shutdown: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    fn candidate(script: &Script, name: &str, seed: u64) -> Candidate {
        let leader =
            Leader::new(script.client(), LeaderConfig::new("karmada-system", "hub", name), env(seed));
        let (leading, shutdown) = (leader.leading(), CancellationToken::new());
        let task = tokio::spawn(leader.run(shutdown.clone()));
        Candidate { leading, shutdown, task }
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_and_hands_over_when_it_leaves() {
        let script = server(Arc::default());
        let mut a = candidate(&script, "a", 1);
        a.leading.wait_for(|leading| *leading).await.unwrap();
        let mut b = candidate(&script, "b", 2);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((*a.leading.borrow(), *b.leading.borrow()), (true, false));
        a.shutdown.cancel();
        a.task.await.unwrap();
        timeout(Duration::from_secs(4), b.leading.wait_for(|leading| *leading))
            .await
            .expect("in time")
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_killed_is_followed_after_its_claim_expired() {
        let script = server(Arc::default());
        let mut a = candidate(&script, "a", 1);
        a.leading.wait_for(|leading| *leading).await.unwrap();
        let mut b = candidate(&script, "b", 2);
        tokio::time::sleep(Duration::from_secs(5)).await;
        a.task.abort();
        let early = timeout(Duration::from_secs(12), b.leading.wait_for(|leading| *leading)).await.is_err();
        assert!(early, "b led before a's claim had expired");
        timeout(Duration::from_secs(10), b.leading.wait_for(|leading| *leading))
            .await
            .expect("in time")
            .unwrap();
    }

    #[test]
    fn times_must_fit_each_other() {
        let seconds = Duration::from_secs_f64;
        let check = |duration: f64, deadline: f64, period: f64| {
            let usual = LeaderConfig::new("karmada-system", "hub", "a");
            let (duration, deadline, period) = (seconds(duration), seconds(deadline), seconds(period));
            LeaderConfig { duration, deadline, period, ..usual }.check()
        };
        assert_eq!(LeaderConfig::new("karmada-system", "hub", "a").check(), Ok(()));
        assert_eq!(check(3.0, 2.0, 0.5), Ok(()));
        assert!(matches!(check(10.0, 10.0, 2.0), Err(TimesError::DeadlineTooLong(..))));
        assert!(matches!(check(15.0, 2.0, 2.0), Err(TimesError::PeriodTooLong(..))));
        assert!(matches!(check(1.5, 1.0, 0.5), Err(TimesError::NotSeconds(_))));
        assert!(matches!(check(15.0, 10.0, 0.0), Err(TimesError::NoPeriod)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_fence_shuts_by_the_clock_alone() {
        let script = server(Arc::default());
        let clock = env(1);
        let leader =
            Leader::new(script.client(), LeaderConfig::new("karmada-system", "hub", "a"), clock.clone());
        let (mut leading, holder, fence) = (leader.leading(), leader.holder(), leader.fence());
        assert!(!fence.is_open());
        let task = tokio::spawn(leader.run(CancellationToken::new()));
        leading.wait_for(|leading| *leading).await.unwrap();
        assert!(fence.is_open());
        assert_eq!(*holder.borrow(), "a");
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(fence.is_open(), "it is renewed");
        // As if the task were stuck: nobody says that the claim has ended.
        task.abort();
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert!(!fence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_without_a_server_stops_before_another_may_start() {
        let away = Arc::new(Mutex::new(false));
        let script = server(Arc::clone(&away));
        let mut a = candidate(&script, "a", 1);
        a.leading.wait_for(|leading| *leading).await.unwrap();
        tokio::time::sleep(Duration::from_secs(9)).await;
        *away.lock() = true;
        let stopped = timeout(Duration::from_secs(13), a.leading.wait_for(|leading| !*leading)).await;
        stopped.expect("stopped within deadline and period").unwrap();
        *away.lock() = false;
        timeout(Duration::from_secs(4), a.leading.wait_for(|leading| *leading))
            .await
            .expect("leads again")
            .unwrap();
    }
}
