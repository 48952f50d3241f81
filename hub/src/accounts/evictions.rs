//! What the controllers that evict share: settings, the pace, who is asked before an eviction begins, and what holds
//! those up that do not.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use karmada_api::{
    consts::event,
    policy::StatePreservation,
    work::{ResourceBindingSpec, ResourceBindingStatus},
};
use karmada_client::{Error, Wake, WorkQueue};
use karmada_core::{
    evict::{self, Allowance, Ask, Cause, Eviction, Pace, Settings, StateError},
    judge::fence,
};
use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_objects::{bindings, key::Key, scope::BindingKey};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    accounts::{Accounts, placing},
    known::heads::ClusterHead,
    write::Writer,
};

/// Who is asked before an eviction begins: a brake, a budget. It answers from what it knows, without waiting.
pub(crate) trait Judge: Send + Sync {
    /// Whether the eviction may begin now.
    fn ask(&self, ask: &Ask<'_>) -> Allowance;
    /// The same, and what it costs is spent: it is written next.
    fn take(&self, ask: &Ask<'_>, now: Duration) -> Allowance;
    /// What was spent then has not been written.
    fn give_back(&self, ask: &Ask<'_>, taken: Duration);
}

/// Lets everything begin.
struct Anything;

impl Judge for Anything {
    fn ask(&self, _: &Ask<'_>) -> Allowance {
        Allowance::Granted
    }

    fn take(&self, _: &Ask<'_>, _: Duration) -> Allowance {
        Allowance::Granted
    }

    fn give_back(&self, _: &Ask<'_>, _: Duration) {}
}

/// Why an eviction does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// One CamelCase word: the reason of the condition FailoverComplete.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    /// When it is looked at again at the latest.
    pub(crate) again: Duration,
}

impl Held {
    fn unless(allowance: Allowance) -> Result<(), Self> {
        match allowance {
            Allowance::Granted => Ok(()),
            Allowance::Held { reason, message, again } => Err(Self { reason, message, again }),
        }
    }
}

/// Why an eviction is held that waits for its turn.
pub(crate) const RATE: &str = "EvictionRate";

/// Why an eviction is held whose new copy would begin without what the old one knows.
pub(crate) const NO_STATE: &str = "StateNotPreserved";

/// How long after one time that all who are held up ask again the next is: each write that fails frees something.
const PACE: Duration = Duration::from_secs(1);

/// When what could not be moved for want of a place is looked at again, if nothing says so earlier.
const PATIENCE: Duration = Duration::from_secs(30);

/// How this hub evicts.
pub(crate) struct Evictions {
    pub(crate) settings: Settings,
    /// Bindings with tasks, or whose eviction is held: their tasks are judged, and their condition is kept.
    pub(crate) to_assess: WorkQueue<BindingKey>,
    pace: Mutex<Slots>,
    judge: RwLock<Arc<dyn Judge>>,
    lifted: Wake,
    /// Who holds up which binding: the controller's name, and why.
    held: Mutex<BTreeMap<(BindingKey, &'static str), Held>>,
}

/// The moments at which evictions may begin, and who has one.
#[derive(Debug)]
struct Slots {
    pace: Pace,
    taken: BTreeMap<(BindingKey, String), Duration>,
}

impl fmt::Debug for Evictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evictions").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Evictions {
    /// Evictions that nobody holds up.
    pub(crate) fn new(settings: Settings, env: &Env) -> Self {
        Self {
            settings,
            to_assess: WorkQueue::new(env.clone()),
            pace: Mutex::new(Slots { pace: Pace::new(settings.rate), taken: BTreeMap::new() }),
            judge: RwLock::new(Arc::new(Anything)),
            lifted: Wake::new(),
            held: Mutex::default(),
        }
    }

    /// From now on `judge` is asked.
    pub(crate) fn judged_by(&self, judge: Arc<dyn Judge>) {
        *self.judge.write() = judge;
    }

    /// Whoever waits because an eviction was held may ask again.
    pub(crate) fn lift(&self) {
        self.lifted.wake();
    }

    /// Queues what a controller holds up whenever it is worth another question. Runs for ever.
    pub(crate) async fn ask_again(&self, who: &'static str, queue: &WorkQueue<BindingKey>) {
        let mut lifted = self.lifted.listen();
        loop {
            lifted.woken().await;
            for key in self.may_begin(who) {
                queue.add(key);
            }
            sleep(PACE).await;
        }
    }

    /// Asks the judge.
    fn ask(&self, ask: &Ask<'_>) -> Result<(), Held> {
        Held::unless(self.judge().ask(ask))
    }

    fn judge(&self) -> Arc<dyn Judge> {
        self.judge.read().clone()
    }

    /// How long an eviction has to wait for its turn. Its moment is kept until [`Evictions::release`].
    pub(crate) fn turn(&self, key: &BindingKey, cluster: &str, now: Duration) -> Duration {
        let mut slots = self.pace.lock();
        let who = (key.clone(), cluster.to_owned());
        let at = match slots.taken.get(&who) {
            Some(at) => *at,
            None => slots.pace.take(now),
        };
        slots.taken.insert(who, at);
        at.saturating_sub(now)
    }

    /// The eviction has begun, or is off: moments that nobody waits for any more are free again.
    pub(crate) fn release(&self, key: &BindingKey, cluster: &str, now: Duration) {
        let mut slots = self.pace.lock();
        slots.taken.remove(&(key.clone(), cluster.to_owned()));
        if slots.taken.is_empty() {
            slots.pace.rewind(now);
        }
    }

    /// Gives back all moments of a binding but those for these clusters.
    pub(crate) fn release_others(&self, key: &BindingKey, clusters: &[&str], now: Duration) {
        let mut slots = self.pace.lock();
        if slots.taken.is_empty() {
            return;
        }
        let taken = slots.taken.range((key.clone(), String::new())..).map(|(who, _)| who);
        let of_it = taken.take_while(|(binding, _)| binding == key);
        let others: Vec<_> =
            of_it.filter(|(_, cluster)| !clusters.contains(&cluster.as_str())).cloned().collect();
        for who in &others {
            slots.taken.remove(who);
        }
        if slots.taken.is_empty() {
            slots.pace.rewind(now);
        }
    }

    /// Writes down what a controller holds up, or that it holds up nothing.
    pub(crate) fn hold(&self, key: &BindingKey, who: &'static str, held: Option<Held>) {
        let entry = (key.clone(), who);
        let mut all = self.held.lock();
        let before = match &held {
            Some(held) => all.insert(entry, held.clone()),
            None => all.remove(&entry),
        };
        drop(all);
        if before.map(|held| (held.reason, held.message)) != held.map(|held| (held.reason, held.message)) {
            self.to_assess.add(key.clone());
        }
    }

    /// What holds up a binding.
    pub(crate) fn held(&self, key: &BindingKey) -> Option<Held> {
        let all = self.held.lock();
        let from = (key.clone(), "");
        all.range(from..).next().filter(|((found, _), _)| found == key).map(|(_, held)| held.clone())
    }

    /// The bindings that a controller holds up, but for those that wait for their turn: it comes when it comes, and there are
    /// as many of them as bindings on all clusters that were lost.
    fn may_begin(&self, who: &'static str) -> Vec<BindingKey> {
        let all = self.held.lock();
        let asked = all.iter().filter(|((_, by), held)| *by == who && held.reason != RATE);
        asked.map(|((key, _), _)| key.clone()).collect()
    }
}

/// A binding as it was read, and what is to leave.
pub(crate) struct Leaving<'a> {
    pub(crate) key: &'a BindingKey,
    pub(crate) binding: Value,
    pub(crate) spec: &'a ResourceBindingSpec,
    pub(crate) status: &'a ResourceBindingStatus,
    /// Who decides.
    pub(crate) component: &'static str,
    /// The producer in the task.
    pub(crate) producer: &'static str,
}

/// What of the departures of a binding has begun.
pub(crate) struct Begun {
    /// The clusters that it has left.
    pub(crate) clusters: Vec<String>,
    /// What holds up the first of the others.
    pub(crate) held: Option<Held>,
}

/// One cluster that a binding is to leave.
pub(crate) struct Departure {
    pub(crate) cluster: String,
    pub(crate) cause: Cause,
    pub(crate) message: String,
}

impl Leaving<'_> {
    /// What the judge is asked about a departure.
    fn asked<'a>(&'a self, accounts: &Accounts, binding: &'a str, departure: &'a Departure) -> Ask<'a> {
        let cluster = accounts.known.clusters.get(&Key::cluster_scoped(departure.cluster.as_str()));
        let there = self.spec.clusters.iter().find(|target| target.name == departure.cluster);
        Ask {
            binding,
            cluster: &departure.cluster,
            cause: departure.cause,
            reachable: cluster.is_some_and(|head| head.answers()),
            replicas: there.map_or(0, |target| target.replicas),
            clusters: self.spec.clusters.len(),
            under_way: self.spec.graceful_eviction_tasks.len(),
        }
    }

    /// Whether other clusters could take all that these departures take away.
    fn covered(&self, accounts: &Accounts, departures: &[Departure]) -> bool {
        let leaves: Vec<_> = departures.iter().map(|departure| departure.cluster.as_str()).collect();
        let schedule = |spec: &ResourceBindingSpec| {
            placing::decide(accounts, self.key, spec, self.status).map(|decision| decision.clusters)
        };
        evict::replace(self.spec, &leaves, schedule).is_ok()
    }

    fn preserved(&self, departure: &Departure) -> Result<BTreeMap<String, String>, StateError> {
        let failover = self.spec.failover.as_ref();
        let rules: Option<&StatePreservation> = match departure.cause {
            Cause::Application => failover.and_then(|f| f.application.as_ref()?.state_preservation.as_ref()),
            Cause::NoExecute | Cause::Failover => {
                failover.and_then(|f| f.cluster.as_ref()?.state_preservation.as_ref())
            }
        };
        let items = &self.status.aggregated_status;
        let item = items.iter().find(|item| item.cluster_name == departure.cluster);
        let rules = rules.map(|rules| rules.rules.as_slice()).unwrap_or_default();
        evict::preserve(rules, &departure.cluster, item.and_then(|item| item.status.as_ref()))
    }

    /// Begins those departures that may begin, and says what holds up the first of the others. What a user has not asked
    /// for begins only where others can take over; `paced` ones wait for their turn.
    pub(crate) async fn begin(
        mut self,
        accounts: &Accounts,
        writer: &Writer,
        departures: Vec<Departure>,
        paced: bool,
    ) -> Result<Begun, Error> {
        let evictions = &accounts.evictions;
        let now = accounts.env.now();
        let name = self.key.to_string();
        let mut held: Option<Held> = None;
        let mut go: Vec<Departure> = Vec::new();
        let (asked, unasked): (Vec<_>, Vec<_>) =
            departures.into_iter().partition(|departure| departure.cause == Cause::NoExecute);
        for departure in asked.into_iter().chain(unasked) {
            if let Err(why) = evictions.ask(&self.asked(accounts, &name, &departure)) {
                held.get_or_insert(why);
                continue;
            }
            if departure.cause != Cause::NoExecute {
                go.push(departure);
                if self.covered(accounts, &go) {
                    continue;
                }
                let left = go.pop().map(|departure| departure.cluster).unwrap_or_default();
                held.get_or_insert_with(|| Held {
                    reason: "NoSpareCluster",
                    message: format!("stays on {left}: no other cluster can take what is there"),
                    again: PATIENCE,
                });
                continue;
            }
            go.push(departure);
        }
        let mut written = Vec::new();
        for departure in go {
            let preserved = match self.preserved(&departure) {
                Ok(preserved) => preserved,
                Err(error) => {
                    let message = format!("stays on {}: {error}", departure.cluster);
                    held.get_or_insert(Held { reason: NO_STATE, message, again: PATIENCE });
                    continue;
                }
            };
            let wait = if paced { evictions.turn(self.key, &departure.cluster, now) } else { Duration::ZERO };
            if !wait.is_zero() {
                let message = format!("leaves {} when it is its turn", departure.cluster);
                held.get_or_insert(Held { reason: RATE, message, again: wait });
                continue;
            }
            // Others may have been granted the same budget meanwhile, and so have the departures before this one.
            let taken = evictions.judge().take(&self.asked(accounts, &name, &departure), now);
            if let Err(why) = Held::unless(taken) {
                held.get_or_insert(why);
                continue;
            }
            let eviction = Eviction {
                cluster: &departure.cluster,
                cause: departure.cause,
                producer: self.producer,
                message: departure.message.clone(),
                purge_mode: evict::purge_mode(
                    self.spec.failover.as_ref(),
                    departure.cause,
                    fence::after(&self.binding).is_some(),
                    &evictions.settings,
                ),
                preserved,
            };
            if evict::begin(&mut self.binding, self.spec, &eviction, Time::now(&accounts.env)) {
                written.push(departure);
            } else {
                evictions.judge().give_back(&self.asked(accounts, &name, &departure), now);
            }
        }
        if !written.is_empty() {
            self.write(accounts, writer, &name, &written, now).await?;
        }
        Ok(Begun { clusters: written.into_iter().map(|departure| departure.cluster).collect(), held })
    }

    async fn write(
        &mut self,
        accounts: &Accounts,
        writer: &Writer,
        name: &str,
        written: &[Departure],
        taken: Duration,
    ) -> Result<(), Error> {
        let answer = writer.objects.replace(bindings::resource(self.key.scope), &self.binding).await;
        let template = bindings::template_reference(self.spec);
        for departure in written {
            let cluster = departure.cluster.as_str();
            for about in [&self.binding, &template] {
                match &answer {
                    Ok(_) => {
                        let text = format!("Evict from cluster {cluster} succeed.");
                        writer.normal(self.component, about, event::EVICT_WORKLOAD_SUCCEED, text);
                    }
                    Err(error) if error.is_conflict() => {}
                    Err(_) => {
                        let text = format!("Evict from cluster {cluster} failed.");
                        writer.warning(self.component, about, event::EVICT_WORKLOAD_FAILED, text);
                    }
                }
            }
            if answer.is_ok() {
                accounts.evictions.release(self.key, cluster, accounts.env.now());
                tracing::info!(
                    kind = %self.spec.resource.kind,
                    namespace = %self.spec.resource.namespace,
                    name = %self.spec.resource.name,
                    cluster,
                    why = %departure.message,
                    "evicted"
                );
            } else {
                accounts.evictions.judge().give_back(&self.asked(accounts, name, departure), taken);
            }
        }
        if answer.is_err() {
            // Somebody may have been refused what is free again.
            accounts.evictions.lift();
        }
        answer.map(drop)
    }
}

/// What of a cluster decides about evictions: its taints, and whether it answers.
pub(crate) fn matters(old: Option<&Arc<ClusterHead>>, new: Option<&Arc<ClusterHead>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            old.answers() != new.answers() || old.cluster.spec.taints != new.cluster.spec.taints
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_its_turn_is_not_asked_again_whenever_a_write_fails() {
        let evictions = Evictions::new(Settings::default(), &Env::system());
        let key = |name: &str| BindingKey::of_template("ConfigMap", "shop", name);
        let held = |reason| Held { reason, message: String::new(), again: PATIENCE };
        for name in ["a", "b", "c"] {
            evictions.hold(&key(name), "one", Some(held(RATE)));
        }
        evictions.hold(&key("d"), "one", Some(held("EvictionBudget")));
        evictions.hold(&key("e"), "other", Some(held("EvictionBudget")));
        assert_eq!(evictions.may_begin("one"), [key("d")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_writes_that_fail_let_those_who_wait_ask_twice() {
        let env = Env::system();
        let evictions = Evictions::new(Settings::default(), &env);
        let key = BindingKey::of_template("ConfigMap", "shop", "a");
        let held = Held { reason: "EvictionBudget", message: String::new(), again: PATIENCE };
        evictions.hold(&key, "one", Some(held));
        let (queue, mut asked) = (WorkQueue::<BindingKey>::new(env), 0);
        let writes = async {
            for _ in 0..100 {
                sleep(PACE / 200).await;
                evictions.lift();
            }
            sleep(PACE * 10).await;
        };
        let asks = async {
            while let Some(key) = queue.next().await {
                asked += 1;
                key.done();
            }
        };
        tokio::select! {
            biased;
            () = asks => {}
            () = evictions.ask_again("one", &queue) => {}
            () = writes => {}
        }
        assert_eq!(asked, 2, "at once, and once for all that came meanwhile");
    }
}
