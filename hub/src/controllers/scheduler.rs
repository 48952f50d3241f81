//! The scheduler: bindings get their clusters.
//!
//! What goes where is [`karmada_core::place`]'s decision. A binding is looked at when its spec changes, and when a
//! cluster that it is on, or that its affinity means, joins, leaves, or changes what placement looks at. Those of a
//! higher priority have their turn first. One that found no room is looked at again when there is as much more of it as it
//! lacked ([`karmada_core::place::Waiting`]), and one of a group of objects when another of the group has moved.

mod clusters;
mod groups;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use karmada_api::{
    conditions::{self, Condition},
    consts::{annotation, component, condition, event, extension},
    work::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster},
};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    evict,
    fleet::Fleet,
    place::{self, Decision, PlaceError, Trigger, Waiting},
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part, bindings,
    key::{self, Key},
    scope::{BindingKey, Scope},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use self::{
    clusters::{Later, Stirred},
    groups::Together,
};
use super::{Context, Next, work};
use crate::{
    accounts::{placing, quotas},
    known::{gathered::Gathered, heads::BindingHead},
    metrics::Incoming,
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 8;
/// How long after clusters have told of other resources those that may find room are tried again: clusters come in
/// swarms.
const SECOND_THOUGHT: Duration = Duration::from_secs(1);
/// How long after one look at what clusters concern that have changed the next one is taken.
const PACE: Duration = Duration::from_secs(1);
/// How long a binding that was born with its clusters waits for the scheduler's remark: its Works go first.
const REMARK: Duration = Duration::from_millis(10);
/// Where a binding's status says which group of clusters was taken; Karmada's spelling.
const OBSERVED_AFFINITY: &str = "schedulerObservingAffinityName";

/// What is decided about, and by what.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    spec: &'a ResourceBindingSpec,
    status: &'a ResourceBindingStatus,
    fleet: &'a Arc<Fleet>,
    trigger: Option<Trigger>,
}

/// Gives bindings their clusters.
pub(crate) struct Scheduler {
    context: Arc<Context>,
    queue: WorkQueue<BindingKey>,
    /// Bindings that could not be placed as asked.
    waiting: Arc<Mutex<Waiting<BindingKey>>>,
    /// Clusters that have changed in what placement looks at.
    clusters: Gathered<Stirred>,
    /// Bindings that use less of something than before.
    freed: Gathered,
    together: Together,
    assigned: Arc<Assigned>,
}

/// Bindings that are being given their clusters, by the generation and the digest of metadata that they have then: when
/// the watch brings that, it is no news. An entry lasts until the watch brings another generation or other metadata.
#[derive(Default)]
struct Assigned(Mutex<BTreeMap<BindingKey, (i64, u64)>>);

impl Assigned {
    /// A binding is about to be written; the watch may be faster than the answer.
    fn note(&self, key: &BindingKey, generation: i64, binding: &Value) {
        self.0.lock().insert(key.clone(), (generation, BindingHead::metadata_of(binding)));
    }

    /// It was not written.
    fn forget(&self, key: &BindingKey) {
        self.0.lock().remove(key);
    }

    /// Whether a binding has changed into what was written.
    fn is_ours(&self, key: &BindingKey, head: Option<&Arc<BindingHead>>) -> bool {
        let written = self.0.lock().remove(key);
        written.zip(head).is_some_and(|(written, head)| written == (head.generation, head.metadata))
    }
}

impl Scheduler {
    /// A scheduler that hears the context's bindings and clusters from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue = WorkQueue::new(context.env.clone());
        context.figures.queue("scheduler", &queue);
        context.resync.bindings(&context.known, &queue, |head| head.placement.is_some());
        let assigned: Arc<Assigned> = Arc::default();
        for (scope, index) in context.known.bindings.both() {
            let ours = assigned.clone();
            let (queue, figures): (WorkQueue<BindingKey>, _) = (queue.clone(), context.figures.clone());
            let shared = Arc::downgrade(context);
            index.listen(move |change| {
                let key = BindingKey { scope, key: change.key.clone() };
                if let Some(context) = shared.upgrade() {
                    let fleet = &context.accounts.fleet;
                    if change.old.zip(change.new).is_some_and(|(old, new)| old.uid != new.uid) {
                        fleet.not_placed(&key);
                    }
                    match change.new {
                        Some(head) => fleet.shown(&key, head.generation),
                        None => fleet.left_by(&context.env, &key),
                    }
                }
                if change.differs(|head| &head.priority) {
                    queue.rank(&key, change.new.map_or(0, |head| head.priority));
                }
                let differs =
                    change.differs(|head| &head.generation) || change.differs(|head| &head.metadata);
                if differs && !ours.is_ours(&key, change.new) {
                    figures.incoming(if change.old.is_none() { Incoming::Added } else { Incoming::Updated });
                    let born_placed =
                        change.old.is_none() && change.new.is_some_and(|new| !new.wanted.is_empty());
                    queue.add_after(key, if born_placed { REMARK } else { Duration::ZERO });
                }
            });
        }
        let waiting: Arc<Mutex<Waiting<BindingKey>>> = Arc::default();
        // What the quotas of a namespace did not allow, they may allow now.
        let freed = Gathered::of(&context.known.bindings.namespaced, PACE, quotas::frees, |(), _| {});
        let (allowed, refused, env) = (queue.clone(), waiting.clone(), context.env.clone());
        context.accounts.quotas.listen(move |change| {
            allow(&allowed, &refused, &change.key.namespace, true, env.now());
        });
        let shared = Arc::downgrade(context);
        context.known.clusters.listen(move |change| {
            if let Some(context) = shared.upgrade()
                && clusters::matters(change)
            {
                context.accounts.fleet.forget(&change.key.name, change.new.is_none());
            }
        });
        let clusters = Gathered::of(&context.known.clusters, PACE, clusters::matters, Stirred::note);
        let together = Together::of(context);
        Self { context: context.clone(), queue, clusters, freed, together, waiting, assigned }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // With half of the clusters known, bindings would leave the other half.
        self.context.known.clusters.synced().await;
        self.context.known.works.synced().await;
        self.context.accounts.quotas.synced().await;
        self.context.known.bindings.synced().await;
        // All bindings are queued by now.
        self.clusters.forget();
        self.together.forget();
        let working = work("scheduler", &self.queue, WORKERS, &stop, |key: BindingKey| self.reconcile(key));
        tokio::select! {
            biased;
            ((), ()) = async { tokio::join!(working, self.look_for_room(&stop)) } => {}
            () = self.hear_clusters() => {}
            () = self.hear_freed() => {}
            () = self.together.follow(&self.context, |key| self.queue.add(key)) => {}
        }
    }

    /// Lets the bindings have their turn that wait for what others of their namespace used. Runs for ever.
    async fn hear_freed(&self) {
        loop {
            let batch = self.freed.next().await;
            let namespaces: BTreeSet<&str> = batch.keys().map(|key| key.namespace.as_str()).collect();
            for namespace in namespaces {
                allow(&self.queue, &self.waiting, namespace, false, self.context.env.now());
                yield_now().await;
            }
        }
    }

    /// Lets the bindings that wait for room have their turn when there may be enough.
    async fn look_for_room(&self, stop: &CancellationToken) {
        let news = async {
            loop {
                self.context.accounts.fleet.other_room().await;
                tokio::time::sleep(SECOND_THOUGHT).await;
                if self.waiting.lock().is_empty() {
                    continue;
                }
                let fleet = self.context.accounts.fleet.get(&self.context.accounts, true);
                for (key, wait) in self.waiting.lock().look(&fleet, self.context.env.now()) {
                    self.queue.add_after(key, wait);
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = news => {}
        }
    }

    /// Lets the bindings have their turn that clusters which have changed concern. Runs for ever.
    async fn hear_clusters(&self) {
        let mut later = Later::default();
        loop {
            let wait = later.next(self.context.env.now());
            let held = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => pending().await,
                }
            };
            let batch = tokio::select! {
                biased;
                batch = self.clusters.next() => batch,
                () = held => BTreeMap::new(),
            };
            let batch = later.sift(batch, self.context.env.now());
            clusters::affected_by(&self.context, &batch, &self.queue, |key| {
                self.context.figures.incoming(Incoming::ClusterChanged);
                self.queue.add(key);
            })
            .await;
        }
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        let outcome = self.schedule(key.clone()).await;
        self.context.settled(&key, outcome)
    }

    async fn schedule(&self, key: BindingKey) -> Result<Next, Error> {
        let live = self.context.binding(&key).await?;
        let Some(binding) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            self.waiting.lock().end(&key);
            return Ok(Next::Done);
        };
        let (Some(spec), Some(status)) = (
            key::read::<ResourceBindingSpec>(&binding, "spec"),
            key::read::<ResourceBindingStatus>(&binding, "status"),
        ) else {
            return Ok(Next::Done);
        };
        let Some(_) = placing::placement_of(&spec) else {
            self.waiting.lock().end(&key);
            return Ok(Next::Done);
        };
        let timer = self.context.figures.timer();
        let gone = |name: &str| {
            self.context.known.clusters.get(&Key::cluster_scoped(name)).is_none_or(|head| head.deleting)
        };
        let applied = object::annotation(&binding, annotation::APPLIED_PLACEMENT);
        let trigger = place::need_schedule(&spec, &status, applied, gone);
        // A binding that was born with its clusters has them, and nothing that says why.
        if trigger.is_none() && conditions::find(&status.conditions, condition::SCHEDULED).is_some() {
            self.waiting.lock().end(&key);
            return self.observe(&key, &binding, &status).await;
        }
        // The next one of a group, which is of the same namespace, has to see where this one went.
        let in_turn = match &spec.workload_affinity_groups {
            Some(_) => Some(self.context.accounts.groups.turn(&key.key.namespace).await),
            None => None,
        };
        let left = placing::Left {
            clusters: evict::evicted_from(&binding),
            goes_back: place::goes_back(&spec, trigger),
        };
        let generation = object::generation(&binding);
        let accounts = &self.context.accounts;
        let room_turn = accounts.fleet.turn(&spec).await;
        let fleet = accounts.fleet.get(accounts, place::asks_for_room(&spec));
        let result = placing::decide_anew(accounts, &fleet, &key, generation, &spec, &status, &left);
        drop(room_turn);
        let quota_turn = match quotas::limited(accounts, &key) {
            true => Some(accounts.granted.turn(&key.key.namespace).await),
            false => None,
        };
        let mut too_much = None;
        let result = result.and_then(|decision| {
            let wanted = ResourceBindingSpec { clusters: decision.clusters.clone(), ..spec.clone() };
            match quotas::refusal(accounts, &key, &spec, &wanted) {
                Some(why) => {
                    too_much = Some(wanted);
                    Err(PlaceError::Quota(why))
                }
                None => Ok(decision),
            }
        });
        let scaling = trigger == Some(Trigger::ReplicasChanged);
        let attempt = Attempt { spec: &spec, status: &status, fleet: &fleet, trigger };
        let assigned = self.assign(&key, binding, &attempt, result.as_ref()).await;
        if result.is_err() || assigned.is_err() {
            accounts.fleet.take_back(&self.context.env, &key, &spec, &status);
        }
        drop((in_turn, quota_turn));
        self.context.figures.scheduled(result.is_ok() && assigned.is_ok(), scaling, &timer);
        if assigned? {
            let about = &spec.resource;
            match &result {
                Ok(decision) => {
                    let clusters: Vec<_> =
                        decision.clusters.iter().map(|target| target.name.as_str()).collect();
                    tracing::info!(
                        kind = %about.kind,
                        namespace = %about.namespace,
                        name = %about.name,
                        clusters = %clusters.join(","),
                        duration_ms = timer.ms(),
                        "scheduled"
                    );
                }
                Err(error) => tracing::warn!(
                    kind = %about.kind,
                    namespace = %about.namespace,
                    name = %about.name,
                    %error,
                    "not scheduled"
                ),
            }
        }
        let next = self.next(&key, generation, &attempt, result.as_ref().err());
        // What others gave back before it was known to wait nobody has told it.
        if let Some(wanted) = too_much
            && quotas::refusal(accounts, &key, &spec, &wanted).is_none()
        {
            return Ok(Next::After(SECOND_THOUGHT));
        }
        Ok(next)
    }

    /// When a binding is tried again though nothing that it depends on has changed.
    fn next(
        &self,
        key: &BindingKey,
        generation: i64,
        attempt: &Attempt<'_>,
        error: Option<&PlaceError>,
    ) -> Next {
        let mut waiting = self.waiting.lock();
        let now = self.context.env.now();
        let again =
            error.and_then(|error| waiting.refused(key, generation, attempt.spec, error, attempt.fleet, now));
        match again {
            None => waiting.end(key),
            // Clusters may have got other room since it was decided.
            Some(_) => self.context.accounts.fleet.look_again(),
        }
        again.map_or(Next::Done, Next::After)
    }

    /// The present clusters hold; only the generation was not seen yet.
    async fn observe(
        &self,
        key: &BindingKey,
        binding: &Value,
        status: &ResourceBindingStatus,
    ) -> Result<Next, Error> {
        let generation = object::generation(binding);
        if status.scheduler_observed_generation == generation {
            return Ok(Next::Done);
        }
        let seen = |live: &mut Value| {
            if object::generation(live) != generation
                || live["status"]["schedulerObservedGeneration"] == generation
            {
                return false;
            }
            object::ensure_map(live, "status")
                .insert("schedulerObservedGeneration".into(), generation.into());
            true
        };
        self.context
            .writer
            .objects
            .modify(bindings::resource(key.scope), &key.key, Part::Status, seen)
            .await?;
        Ok(Next::Done)
    }

    /// Writes a decision, or the lack of one, into the binding and its status. Whether it is another one than before.
    async fn assign(
        &self,
        key: &BindingKey,
        mut binding: Value,
        attempt: &Attempt<'_>,
        result: Result<&Decision, &PlaceError>,
    ) -> Result<bool, Error> {
        let Attempt { spec, status, fleet, trigger } = *attempt;
        let now = Time::now(&self.context.env);
        let targets = match result {
            Ok(decision) => Some(decision.clusters.as_slice()),
            Err(error) if error.empties() => Some([].as_slice()),
            Err(_) => None,
        };
        let mut moved = false;
        if let (Some(targets), Some(placement)) = (targets, &spec.placement) {
            let applied = place::applied_placement(placement);
            moved = !same(&spec.clusters, targets);
            let returned =
                trigger.is_some_and(Trigger::is_asked_for) && !evict::evicted_from(&binding).is_empty();
            if returned {
                evict::set_evicted_from(&mut binding, &BTreeSet::new());
            }
            if moved
                || returned
                || object::annotation(&binding, annotation::APPLIED_PLACEMENT) != Some(&applied)
            {
                object::set_annotation(&mut binding, annotation::APPLIED_PLACEMENT, applied);
                if moved {
                    placing::set_targets(&mut binding, targets);
                }
                let (accounts, generation) =
                    (&self.context.accounts, object::generation(&binding) + i64::from(moved));
                // The watch may be faster than the answer, and says when to forget all this.
                self.assigned.note(key, generation, &binding);
                if spec.workload_affinity_groups.is_some() {
                    accounts.fleet.placed(key, generation, targets);
                }
                if moved && quotas::limited(accounts, key) {
                    let granted = ResourceBindingSpec { clusters: targets.to_vec(), ..spec.clone() };
                    accounts.granted.grant(key, generation, &granted);
                }
                let written =
                    self.context.writer.objects.replace(bindings::resource(key.scope), &binding).await;
                binding = written.inspect_err(|_| {
                    self.assigned.forget(key);
                    accounts.fleet.not_placed(key);
                    accounts.granted.withdraw(key);
                })?;
            }
        }
        let generation = object::generation(&binding);
        let observed_generation = result.is_err().then_some(generation);
        let condition = Condition { observed_generation, ..place::condition(result, now) };
        let condition = place::unless_numbers(&status.conditions, condition);
        let there = |type_| conditions::find(&status.conditions, type_);
        let before = there(condition::SCHEDULED);
        let told = before.is_some_and(|b| b.status == condition.status && b.message == condition.message);
        let same = before == Some(&condition);
        // Karmada's sentence counts the clusters that refuse; people want to know which, and what each lacks. Where it is
        // refused for the same as before, and only the room of clusters is another one, that has been said.
        let its_turn = || self.waiting.lock().is_its_turn(key, generation, self.context.env.now());
        let short = match result.err() {
            None => None,
            Some(PlaceError::Quota(_)) => None,
            Some(_) if same && its_turn() => there(extension::PLACEMENT_EXPLAINED).cloned(),
            Some(error) => {
                let why = placing::explain(&self.context.accounts, fleet, key, spec, status, error);
                let short = place::explained_condition(&why, now);
                short.map(|short| place::unless_numbers(&status.conditions, short))
            }
        };
        self.conclude(key, &binding, [Some(condition.clone()), short], result.ok(), moved, now).await?;
        if moved || !told {
            self.tell(&binding, spec, result, &condition);
        }
        Ok(moved || !told)
    }

    async fn conclude(
        &self,
        key: &BindingKey,
        binding: &Value,
        [condition, short]: [Option<Condition>; 2],
        decision: Option<&Decision>,
        moved: bool,
        now: Time,
    ) -> Result<(), Error> {
        let generation = object::generation(binding);
        let asks = |binding: &Value| {
            binding["spec"]["rescheduleTriggeredAt"].as_str().and_then(|at| at.parse().ok())
        };
        let answered = asks(binding);
        let conclude = |live: &mut Value| {
            let Some(mut list) = key::conditions(live) else { return false };
            let mut changed = false;
            let scheduled = place::scheduled_time(now, answered, asks(live));
            for condition in [&condition, &short].into_iter().flatten() {
                changed |= conditions::set(&mut list, condition.clone(), now);
            }
            if short.is_none() {
                changed |= conditions::remove(&mut list, extension::PLACEMENT_EXPLAINED);
            }
            let status = object::ensure_map(live, "status");
            status.insert("conditions".into(), json!(list));
            if let Some(decision) = decision {
                let seen = status.insert("schedulerObservedGeneration".into(), generation.into());
                let fresh = moved || seen != Some(generation.into());
                changed |= fresh;
                if fresh {
                    status.insert("lastScheduledTime".into(), json!(scheduled));
                }
                let affinity =
                    (!decision.affinity.is_empty()).then(|| Value::from(decision.affinity.as_str()));
                let taken = match &affinity {
                    Some(name) => status.insert(OBSERVED_AFFINITY.into(), name.clone()),
                    None => status.remove(OBSERVED_AFFINITY),
                };
                changed |= taken != affinity;
            }
            changed
        };
        // The answer to our own write is as fresh as a read, so the first attempt needs none.
        let mut live = binding.clone();
        if !conclude(&mut live) {
            return Ok(());
        }
        let resource = bindings::resource(key.scope);
        match self.context.writer.objects.replace_status(resource, &live).await {
            Err(error) if error.is_conflict() => {
                self.context.writer.objects.modify(resource, &key.key, Part::Status, conclude).await?;
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    fn tell(
        &self,
        binding: &Value,
        spec: &ResourceBindingSpec,
        result: Result<&Decision, &PlaceError>,
        condition: &Condition,
    ) {
        let template = bindings::template_reference(spec);
        for about in [binding, &template] {
            match result {
                Ok(decision) => {
                    let namespaced = !object::namespace(binding).is_empty();
                    let text = place::event_message(&decision.clusters, namespaced);
                    self.context.writer.normal(
                        component::SCHEDULER,
                        about,
                        event::SCHEDULE_BINDING_SUCCEED,
                        text,
                    );
                }
                Err(_) => {
                    let text = condition.message.clone();
                    self.context.writer.warning(
                        component::SCHEDULER,
                        about,
                        event::SCHEDULE_BINDING_FAILED,
                        text,
                    );
                }
            }
        }
    }
}

/// The quotas of a namespace may allow more than they did, because somebody `asked` for it or others use less.
fn allow(
    queue: &WorkQueue<BindingKey>,
    waiting: &Mutex<Waiting<BindingKey>>,
    namespace: &str,
    asked: bool,
    now: Duration,
) {
    let first = BindingKey { scope: Scope::Namespaced, key: Key::new(namespace, "") };
    let is = |key: &BindingKey| key.key.namespace == namespace;
    for (key, wait) in waiting.lock().may_use_more(first.., is, asked, now) {
        queue.add_after(key, wait.max(SECOND_THOUGHT));
    }
}

/// Whether two lists place alike; their order means nothing.
fn same(present: &[TargetCluster], wanted: &[TargetCluster]) -> bool {
    let sorted = |targets: &[TargetCluster]| {
        let mut sorted = targets.to_vec();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        sorted
    };
    sorted(present) == sorted(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_is_as_it_was_written_until_it_changes_again() {
        let key = BindingKey::of_template("ConfigMap", "shop", "a");
        let binding = |generation: i64, note: &str| json!({"metadata": {"name": "a-configmap", "generation": generation, "annotations": {"note": note}}});
        let head = |generation, note: &str| Arc::new(BindingHead::project(&binding(generation, note)));
        let assigned = Assigned::default();
        // (what was written, what the watch brings, whether it is ours)
        let rows = [
            (Some((2, "x")), Some((2, "x")), true),
            (None, Some((2, "x")), false),
            (Some((3, "x")), Some((4, "x")), false),
            (Some((3, "x")), Some((3, "y")), false),
            (Some((3, "x")), None, false),
        ];
        for (written, brought, want) in rows {
            if let Some((generation, note)) = written {
                assigned.note(&key, generation, &binding(generation - 1, note));
            }
            let brought = brought.map(|(generation, note)| head(generation, note));
            assert_eq!(assigned.is_ours(&key, brought.as_ref()), want, "{written:?} and {brought:?}");
            assert!(assigned.0.lock().is_empty(), "nothing is left behind");
        }
        assigned.note(&key, 5, &binding(4, "x"));
        assigned.forget(&key);
        assert!(!assigned.is_ours(&key, Some(&head(5, "x"))), "it was not written");
    }

    #[test]
    fn the_order_of_targets_means_nothing() {
        let targets = |names: &[(&str, i32)]| -> Vec<_> {
            names.iter().map(|(name, replicas)| TargetCluster::new(*name, *replicas)).collect()
        };
        assert!(same(&targets(&[("b", 1), ("a", 2)]), &targets(&[("a", 2), ("b", 1)])));
        assert!(!same(&targets(&[("a", 1)]), &targets(&[("a", 2)])));
        assert!(!same(&targets(&[("a", 1)]), &[]));
    }
}
