//! Carrying out one Work: its objects applied, what left it taken away, its status made.

mod removal;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use karmada_api::{
    conditions,
    consts::{annotation, event},
    work::{ResourceIdentifier, WorkStatus},
};
use karmada_client::ObjectRef;
use karmada_core::{hold::Held, install_order};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use serde_json::Value;

use super::{
    desired::{Desired, DesiredWork, Manifest, ObjectId},
    notes::Notes,
    plan::{Planned, as_wanted, while_held},
    report::{Outcome, Outcomes, Seen},
    waits::Waits,
};
use crate::{
    apply::{Applier, Contested, Failure, Hope, Order},
    discovery::Discovery,
    fence::Fence,
    ground::{Ground, Need},
    holds::Holds,
    observe::Observer,
    outline::Stands,
    released::Released,
    removals::Removals,
    revision::is_of_before,
    rights::{Rights, Standing},
    rules::Heard,
    stats::Stats,
    upstream::{Live, Unanswered, Upstream},
};

/// What waits for a deletion or somebody else's change is tried again at least this often.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// When to look at a Work again, beside when something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Again {
    /// Something failed: after the Work's backoff.
    pub(crate) failed: bool,
    /// No later than this.
    pub(crate) after: Option<Duration>,
    /// A failure is not tried again before this: the hub asked for a pause.
    pub(crate) pause: Option<Duration>,
}

impl Again {
    const FAILED: Self = Self { failed: true, after: None, pause: None };
    const SOON: Self = Self { failed: true, after: Some(SOON), pause: None };

    fn after(pause: Duration) -> Self {
        Self { failed: false, after: Some(pause), pause: None }
    }

    fn and(self, other: Self) -> Self {
        let after = self.after.into_iter().chain(other.after).min();
        Self { failed: self.failed || other.failed, after, pause: self.pause.max(other.pause) }
    }
}

/// Carries out Works.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) env: Env,
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) desired: Arc<Desired>,
    pub(crate) applier: Applier,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) observer: Observer,
    pub(crate) stats: Arc<Stats>,
    /// What Works wait for.
    pub(crate) ground: Arc<Ground>,
    /// Namespaces that stay.
    pub(crate) released: Arc<Released>,
    /// What is too much to be removed at once.
    pub(crate) removals: Arc<Removals>,
    /// What may run in one place only.
    pub(crate) fence: Arc<Fence>,
    /// What Works that go wait for.
    pub(crate) waits: Waits,
    /// What is wrong with Works.
    pub(crate) notes: Notes,
    /// What holds changes back.
    pub(crate) holds: Arc<Holds>,
    /// Which of users' rules are known.
    pub(crate) rules: Arc<Heard>,
    pub(crate) rights: Rights,
    /// Questions to the hub that got no answer since one did.
    pub(crate) unanswered: AtomicU32,
}

impl Executor {
    /// Brings the member to what a Work says, and answers when to look again.
    pub(crate) async fn sync(&self, name: &str) -> Again {
        self.ground.forget(name);
        let Some(work) = self.desired.get(name) else {
            self.forget(name);
            return Again::default();
        };
        if work.asks() {
            // Who collects and samples answers it: nothing of it is brought to the member.
            return Again::default();
        }
        if !self.rights.may_apply() {
            // A machine that slept: whether another agent acts here now is known in a moment.
            return Again::after(SOON);
        }
        // Works come again when this may be: see `Executor::regain`.
        let held = self.held(&work);
        let goes = work.deleting && held.is_none();
        if goes && (!self.rights.may_delete() || work.is_recalled()) {
            return Again::default();
        }
        if !goes && !self.rules.all() {
            // It comes again when they are known.
            return Again::default();
        }
        self.stats.syncs.add();
        let begun = self.env.now();
        if held.is_none() {
            self.holds.released(name);
        }
        let again = if goes { self.take_away(&work).await } else { self.bring(&work, held, begun).await };
        self.stats.sync_times.observe(!again.failed, self.env.now().saturating_sub(begun));
        again
    }

    /// A Work is known no more. Not a deletion: what it put here stays, and is found again by its annotations.
    fn forget(&self, name: &str) {
        self.applier.forget_work(name);
        self.waits.forget(name);
        self.notes.forget(name);
        self.holds.released(name);
        self.removals.forget(name);
        self.observer.keep_only(&self.desired.kinds());
    }

    /// Another agent is at work: what is known gets old, and is of no use afterwards.
    pub(crate) fn stand_aside(&self) {
        self.removals.stand_aside();
        for name in self.desired.forget() {
            self.ground.forget(&name);
            self.forget(&name);
        }
    }

    /// Lets Works that could not be carried out whole have their turn when deleting is allowed again.
    pub(crate) async fn regain(&self, again: impl Fn(String)) {
        loop {
            self.rights.when(Standing::may_delete).await;
            self.desired.names().into_iter().for_each(&again);
            self.rights.when(|standing| !standing.may_delete()).await;
        }
    }

    /// What holds changes of a Work back. What is left to do after the Cluster has gone from the hub waits for nothing, nor
    /// does the end of what may run in one place only: the hub begins it elsewhere when it has gone from here, and confirms it
    /// here no more.
    fn held(&self, work: &DesiredWork) -> Option<Held> {
        let held = self.holds.held(work)?;
        let is_fenced = |work: &DesiredWork| work.manifests.iter().any(|manifest| manifest.fence.is_some());
        let moves = work.deleting
            && (is_fenced(work) || self.holds.in_force(&work.name).is_some_and(|before| is_fenced(&before)));
        (!moves).then_some(held)
    }

    /// A version of a Work is about to be known: the one before it stays in force if changes are held back.
    pub(crate) fn before(&self, new: &DesiredWork) {
        if self.holds.keeps(&new.name) || self.held(new).is_none() {
            return;
        }
        let Some(known) = self.desired.get(&new.name) else { return };
        let is_in_force = known.uid == new.uid
            && !known.deleting
            && !known.suspended
            && known.manifests.iter().all(|manifest| self.applier.has_applied(&known.name, manifest));
        if is_in_force && !known.wants_the_same(new) {
            self.holds.keep_in_force(known);
        }
    }

    /// Lets Works have their turn of which changes wait, when what they wait for is over or another.
    pub(crate) async fn follow_holds(&self, again: impl Fn(String)) {
        let mut changed = self.holds.changes();
        loop {
            for (name, held) in self.holds.due(&mut changed).await {
                if self.desired.get(&name).and_then(|work| self.held(&work)) != Some(held) {
                    again(name);
                }
            }
        }
    }

    async fn bring(&self, work: &DesiredWork, held: Option<Held>, begun: Duration) -> Again {
        let old = work.status();
        let recorded = recorded(&old);
        let mut outcomes = Outcomes { suspended: work.suspended, ..Outcomes::default() };
        let mut again = Again::default();
        let mut wrote = false;
        // For the hub's word about something fenced.
        let mut waits = false;
        let before = held.as_ref().and_then(|_| self.holds.in_force(&work.name));
        let (mut plan, mut holds_back) = match held {
            None => (as_wanted(work), false),
            Some(_) => {
                while_held(work, before.as_deref(), |manifest| self.applier.has_applied(&work.name, manifest))
            }
        };
        plan.sort_by_key(|planned| {
            let listed = planned.ordinal.map(|ordinal| &work.manifests[ordinal]);
            planned.manifest.or(listed).map(|manifest| rank(&manifest.id))
        });
        for Planned { ordinal, manifest } in plan {
            if !self.rights.may_apply() {
                // Between two objects a machine may sleep, and another agent begin.
                return Again::after(SOON);
            }
            let Some(ordinal) = ordinal else {
                // What is wanted no more is kept as long as nothing may be taken away.
                if let Some(manifest) = manifest.filter(|_| !work.suspended) {
                    again = again.and(self.keep(work, manifest, &recorded).await);
                }
                continue;
            };
            let listed = &work.manifests[ordinal];
            let identifier = listed.identifier(ordinal);
            // A fence does not wait with the rest: the hub counts on it from now on.
            let fence =
                [manifest.and_then(|manifest| manifest.fence), listed.fence].into_iter().flatten().min();
            let Some(manifest) = manifest else {
                let mut error = None;
                outcomes.untried = true;
                if listed.problem.is_none() {
                    // What becomes of it is seen all the same.
                    self.applier.watch(&self.discovery, &self.observer, listed).await;
                }
                if fence.is_some()
                    && recorded.contains_key(&*listed.id)
                    && let Err(failure) = self.is_fenced(work, listed, fence).await
                {
                    self.failed(listed, &failure);
                    again = again.and(self.again(&work.name, &failure));
                    error = Some(failure.message);
                }
                let seen = self.seen(work, &listed.id, &recorded);
                outcomes.manifests.push(Outcome { identifier, error, seen });
                continue;
            };
            if work.suspended {
                self.applier.watch(&self.discovery, &self.observer, manifest).await;
                let seen = self.seen(work, &manifest.id, &recorded);
                outcomes.manifests.push(Outcome { identifier, error: None, seen });
                continue;
            }
            match self.is_fenced(work, manifest, fence).await {
                Ok(false) => {}
                Ok(true) => {
                    // The fence brings its Work back when the hub has said what it wants.
                    waits = true;
                    let seen = self.seen(work, &manifest.id, &recorded);
                    outcomes.manifests.push(Outcome { identifier, error: None, seen });
                    continue;
                }
                Err(failure) => {
                    self.failed(manifest, &failure);
                    again = again.and(self.again(&work.name, &failure));
                    let seen = self.seen(work, &manifest.id, &recorded);
                    outcomes.manifests.push(Outcome { identifier, error: Some(failure.message), seen });
                    continue;
                }
            }
            let order = Order { work: &work.name, manifest, recorded: recorded.contains_key(&*manifest.id) };
            let correction = self.applier.is_known(&manifest.id, &order);
            match self.applier.apply(&self.discovery, &self.observer, order).await {
                Ok(done) => {
                    if done.written {
                        wrote = true;
                        self.wrote(work, manifest, correction, done.by_put.as_deref());
                    }
                    if let Some(contested) = done.contested {
                        again = again.and(Again::after(contested.later));
                        outcomes.contested.push(self.contested(work, manifest, &contested));
                    }
                    again = again.and(self.until_served(&work.name, manifest));
                    if fence.is_some() {
                        self.fence.is_running(&manifest.id);
                    }
                    outcomes.manifests.push(Outcome { identifier, error: None, seen: Some(done.seen) });
                }
                Err(failure) => {
                    self.failed(manifest, &failure);
                    again = again.and(self.again(&work.name, &failure));
                    let seen = self.seen(work, &manifest.id, &recorded);
                    outcomes.manifests.push(Outcome { identifier, error: Some(failure.message), seen });
                }
            }
        }
        outcomes.manifests.sort_by_key(|outcome| outcome.identifier.ordinal);
        if waits && outcomes.manifests.iter().all(|outcome| outcome.error.is_none() && outcome.seen.is_none())
        {
            // Nothing has been begun; there is nothing to tell yet.
            return again;
        }
        // By what was wanted before the start nothing is taken away.
        if !work.suspended && self.rights.may_delete() && !work.is_recalled() && held.is_none() {
            again = again.and(self.clear_up(work, &recorded, &mut outcomes).await);
        } else {
            outcomes.leftovers =
                self.leftovers(work, &recorded).into_iter().map(|(_, outcome)| outcome).collect();
            holds_back |= held.is_some() && !outcomes.leftovers.is_empty();
        }
        if let Some(held) = held {
            match holds_back {
                true => self.holds.waits(&work.name, &held),
                false => self.holds.released(&work.name),
            }
            outcomes.held = holds_back.then_some((held.reason, self.waits_for(work, &held)));
        }
        self.tell(work, &old, outcomes, wrote, begun);
        again
    }

    /// Keeps an object that is wanted no more as it was wanted, while its removal is held back.
    async fn keep(&self, work: &DesiredWork, manifest: &Manifest, recorded: &Recorded) -> Again {
        if manifest.fence.is_some() || manifest.problem.is_some() {
            // Whether it may run is the hub's to say, and it says no more.
            return Again::default();
        }
        let order = Order { work: &work.name, manifest, recorded: recorded.contains_key(&*manifest.id) };
        let correction = self.applier.is_known(&manifest.id, &order);
        match self.applier.apply(&self.discovery, &self.observer, order).await {
            Ok(done) => {
                if done.written {
                    self.wrote(work, manifest, correction, done.by_put.as_deref());
                }
                done.contested.map(|contested| Again::after(contested.later)).unwrap_or_default()
            }
            Err(failure) => {
                self.failed(manifest, &failure);
                self.again(&work.name, &failure)
            }
        }
    }

    /// What of a Work waits, and for what.
    fn waits_for(&self, work: &DesiredWork, held: &Held) -> String {
        let what = if work.deleting { "its deletion waits" } else { "a change waits" };
        format!("{what}: {}; what was applied before is kept as it is", held.message)
    }

    /// Whether an object must not be applied now, for it may run in one place only.
    async fn is_fenced(
        &self,
        work: &DesiredWork,
        manifest: &Manifest,
        fence: Option<Duration>,
    ) -> Result<bool, Failure> {
        let Some(after) = fence.filter(|_| manifest.problem.is_none()) else {
            self.fence.release(&manifest.id).await?;
            return Ok(false);
        };
        let (group, version, kind) = (&manifest.id.group, &manifest.version, &manifest.id.kind);
        // Of a kind that is not served nothing runs; applying it says so.
        let Some(resource) = self.discovery.resource(group, version, kind).await? else { return Ok(false) };
        self.observer.watch(&resource);
        Ok(!self.fence.may_apply(&work.name, &manifest.id, &resource, after).await?)
    }

    /// Of a definition: waits until its kinds are served.
    fn until_served(&self, work: &str, manifest: &Manifest) -> Again {
        if manifest.id.kind != "CustomResourceDefinition" {
            return Again::default();
        }
        let kinds = Need::of_definition(&manifest.text.get());
        let waits = kinds.iter().filter_map(|kind| self.ground.wait(kind, work));
        waits.map(Again::after).fold(Again::default(), Again::and)
    }

    /// When a Work of which something failed is looked at again.
    fn again(&self, work: &str, failure: &Failure) -> Again {
        match &failure.hope {
            Hope::Soon => Again::SOON,
            Hope::After(need) => self.ground.wait(need, work).map_or(Again::SOON, Again::after),
            Hope::Sometime => Again::FAILED,
        }
    }

    /// What is seen of a Work's object, or what the hub was last told of it while its kind has not been looked at yet.
    fn seen(&self, work: &DesiredWork, id: &ObjectId, recorded: &Recorded) -> Option<Seen> {
        if let Some(sight) = self.observer.get(id) {
            return (sight.work.as_deref() == Some(&work.name)).then_some(sight.seen);
        }
        if self.observer.synced(&id.group, &id.kind) {
            return None;
        }
        recorded.get(id).map(|(_, seen)| seen.clone())
    }

    /// A question about a Work got no answer. It is asked again ever more seldom, until there is a connection; of an outage of
    /// days with many Works a few lines are said.
    fn is_unanswered(&self, work: &DesiredWork, error: &Unanswered, question: &str) -> Again {
        let failures = self.unanswered.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let (cluster, work) = (&self.cluster, &work.name);
        if failures.is_power_of_two() {
            tracing::warn!(%cluster, %work, %error, failures, "cannot tell {question}");
        } else {
            tracing::debug!(%cluster, %work, %error, failures, "cannot tell {question}");
        }
        Again { pause: error.retry_after(), ..Again::FAILED }
    }

    /// The very Work that we know, as the hub has it now; nothing if that is gone. Whether this is the hub that it was is
    /// known afterwards.
    async fn ask(&self, work: &DesiredWork) -> Result<Option<Value>, Unanswered> {
        self.fence.load().await?;
        let (before, known) = (self.fence.history(), work.revision());
        let Live { revision, work: live } = self.upstream.work(&work.name).await?;
        self.unanswered.store(0, Ordering::Relaxed);
        if let Some(revision) = revision {
            self.fence.answered(before, revision);
        }
        if live.as_ref().is_some_and(|live| is_of_before(live, &work.uid, known, work.deleting)) {
            self.fence.went_back(work.life());
        }
        Ok(live.filter(|live| object::uid(live) == work.uid))
    }

    fn wrote(&self, work: &DesiredWork, manifest: &Manifest, correction: bool, by_put: Option<&str>) {
        self.stats.applies.add();
        if correction {
            self.stats.corrections.add();
        }
        if manifest.id.group.is_empty() && manifest.id.kind == "Namespace" {
            self.ground.made_namespace(&manifest.id.name);
            self.released.forget(&manifest.id.name);
        }
        let message =
            format!("Successfully applied resource({}) to cluster {}", manifest.id.path(), self.cluster);
        self.upstream.normal(&template(manifest), event::SYNC_SUCCEED, message);
        if let Some(why) = by_put {
            let message =
                format!("{} was written by update, since apply does not take it: {why}", manifest.id.path());
            tracing::warn!(cluster = %self.cluster, work = %work.name, %message);
            self.upstream.warning(&self.reference(work), event::SYNC_SUCCEED, message);
        }
    }

    /// Says that an object is fought over.
    fn contested(&self, work: &DesiredWork, manifest: &Manifest, contested: &Contested) -> String {
        let (id, by) = (&manifest.id, &contested.by);
        let message =
            format!("{} {} is changed back by {by} as often as it is corrected", id.kind, id.path());
        if contested.is_new {
            tracing::warn!(cluster = %self.cluster, work = %work.name, kind = %id.kind, namespace = %id.namespace, name = %id.name, %by, "changed back as often as it is corrected: corrected ever more seldom until that ends");
            self.upstream.warning(&self.reference(work), event::OBJECTS_CONTESTED, message.clone());
        }
        message
    }

    fn failed(&self, manifest: &Manifest, failure: &Failure) {
        self.stats.sync_errors.add();
        let (path, cluster) = (manifest.id.path(), &self.cluster);
        let message =
            format!("Failed to create or update resource({path}) in member cluster({cluster}): {failure}");
        self.upstream.warning(&template(manifest), event::SYNC_FAILED, message);
    }

    /// Says what became of the Work: its status to the outbox if it changed, events for people.
    fn tell(&self, work: &DesiredWork, old: &WorkStatus, outcomes: Outcomes, wrote: bool, begun: Duration) {
        let duration_ms = self.env.now().saturating_sub(begun).as_millis() as u64;
        let about = work.manifests.first().map(|manifest| &manifest.id);
        let reference = self.reference(work);
        let (name, cluster) = (format!("{}/{}", self.namespace, work.name), &self.cluster);
        let shown = outcomes.shown();
        let fails = shown.clone().map(|why| (Stands::Failing, why));
        let fought =
            || (!outcomes.contested.is_empty()).then(|| (Stands::Contested, outcomes.contested.join("; ")));
        let waits = || outcomes.held.as_ref().map(|(_, why)| (Stands::Held, why.clone()));
        self.notes.note(&work.name, fails.or_else(waits).or_else(fought), Time::now(&self.env));
        if let Some(error) = outcomes.error() {
            let message = format!("Failed to sync work({name}) to cluster({cluster}), err: {error}");
            tracing::warn!(
                cluster = %self.cluster,
                work = %work.name,
                kind = about.map(|id| id.kind.as_str()),
                namespace = about.map(|id| id.namespace.as_str()),
                name = about.map(|id| id.name.as_str()),
                duration_ms,
                error = shown.unwrap_or_default(),
                "not carried out"
            );
            self.upstream.warning(&reference, event::SYNC_FAILED, message);
        } else if wrote {
            tracing::info!(
                cluster = %self.cluster,
                work = %work.name,
                kind = about.map(|id| id.kind.as_str()),
                namespace = about.map(|id| id.namespace.as_str()),
                name = about.map(|id| id.name.as_str()),
                duration_ms,
                "carried out"
            );
            let message = format!("Sync work({name}) to cluster({cluster}) successful.");
            self.upstream.normal(&reference, event::SYNC_SUCCEED, message);
        }
        if work.is_recalled() {
            // What the hub has of it is not known. When it is there the Work is looked at again.
            return;
        }
        for (kind, reason, message) in outcomes.news(old) {
            self.upstream.event(&reference, kind, reason, message);
        }
        let observed = work.staged.then_some(work.generation);
        let status = Outcomes { observed, ..outcomes }.status(old, Time::now(&self.env));
        let dispatching = |status: &WorkStatus| {
            let condition =
                conditions::find(&status.conditions, karmada_api::consts::condition::DISPATCHING)?;
            Some((condition.status, condition.message.clone()))
        };
        if let (before, Some(after)) = (dispatching(old), dispatching(&status))
            && before.as_ref() != Some(&after)
        {
            self.upstream.normal(&reference, event::WORK_DISPATCHING, after.1);
        }
        self.upstream.report(work, old, status);
    }

    fn reference(&self, work: &DesiredWork) -> ObjectRef {
        ObjectRef {
            api_version: "work.karmada.io/v1alpha1".into(),
            kind: "Work".into(),
            namespace: self.namespace.clone(),
            name: work.name.clone(),
            uid: work.uid.clone(),
            resource_version: String::new(),
        }
    }
}

/// The place of an object in the order of applying.
fn rank(id: &ObjectId) -> usize {
    install_order::rank(&id.group, &id.kind)
}

/// What the hub's record of a Work says of its objects.
type Recorded = BTreeMap<ObjectId, (ResourceIdentifier, Seen)>;

fn recorded(status: &WorkStatus) -> Recorded {
    let entry = |manifest: &karmada_api::work::ManifestStatus| {
        let seen = Seen {
            status: manifest.status.clone(),
            health: manifest.health.unwrap_or_default(),
            ..Seen::default()
        };
        (ObjectId::from(&manifest.identifier), (manifest.identifier.clone(), seen))
    };
    status.manifest_statuses.iter().map(entry).collect()
}

/// The template that a manifest was made from, for events on the hub.
fn template(manifest: &Manifest) -> ObjectRef {
    let value: Value = serde_json::from_str(&manifest.text.get()).unwrap_or_default();
    ObjectRef {
        uid: object::annotation(&value, annotation::TEMPLATE_UID).unwrap_or_default().to_owned(),
        resource_version: String::new(),
        ..ObjectRef::of(&value)
    }
}
