//! Taking away: what has left a Work, and what stands in one that is deleted.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karmada_api::{
    conditions::{self, Condition},
    consts::{event, extension},
    work::{ResourceIdentifier, WorkStatus},
};
use karmada_core::{
    delete::{Cause, WorkFacts},
    health::Moment,
};
use karmada_meta::{object, time::Time};
use serde_json::Value;

use super::{Again, Executor, Recorded, SOON, rank, recorded, template};
use crate::{
    apply::{Failure, Removed},
    outline::Stands,
    removals::Removal,
    rights::{is_over, moment},
    works::{
        desired::{DesiredWork, Manifest, ObjectId},
        report::{Outcome, Outcomes},
    },
};

/// What the hub has answered about a Work counts for so long when something is taken away. Longer than most Works take, on
/// a slow member too; one that takes longer asks again.
const FRESH: Duration = Duration::from_secs(30);

impl Executor {
    /// Takes away what the Work held before and no longer lists: only when all that it lists is there, and never on
    /// the word of an empty list.
    pub(super) async fn clear_up(
        &self,
        work: &DesiredWork,
        recorded: &Recorded,
        outcomes: &mut Outcomes,
    ) -> Again {
        let mut again = Again::default();
        let mut leftovers = self.leftovers(work, recorded);
        if leftovers.is_empty() {
            self.removals.may_clear_up(&work.name, &[]);
            return again;
        }
        let settled = !work.manifests.is_empty() && outcomes.manifests.iter().all(|m| m.error.is_none());
        leftovers.sort_by_key(|(id, _)| Reverse(rank(id)));
        if settled && leftovers.iter().any(|(id, _)| self.believes(work, id)) {
            match self.ask(work).await {
                Ok(Some(live)) if is_as_known(&live, work) => {}
                // The watch will tell what is there now.
                Ok(_) => {
                    outcomes.leftovers.extend(leftovers.into_iter().map(|(_, outcome)| outcome));
                    return again;
                }
                Err(error) => {
                    outcomes.leftovers.extend(leftovers.into_iter().map(|(_, outcome)| outcome));
                    return self.is_unanswered(
                        work,
                        &error,
                        "whether the hub still has the Work as it is known here",
                    );
                }
            }
        }
        let answered = moment(&self.env);
        let facts = self.facts(work, Cause::LeftTheWork, false);
        let mut waits = BTreeMap::new();
        let removal = if settled { self.may_clear_up(work, &leftovers) } else { Removal::Held };
        if let Removal::Waits(pause) = removal {
            again = again.and(Again::after(pause));
        }
        for (id, mut outcome) in leftovers {
            if !settled {
                outcomes.leftovers.push(outcome);
                continue;
            }
            if !self.believes(work, &id) {
                // What the hub's record says is as old as the hub; what the member's says is not this hub's word.
                self.tell_spared(
                    work,
                    &id,
                    "the hub was made anew of an older copy, in which its Work does not list it",
                );
                continue;
            }
            if removal != Removal::Goes && !self.fence.guards(&id) {
                outcomes.leftovers.push(outcome);
                continue;
            }
            if !self.may_remove(answered) {
                outcomes.leftovers.push(outcome);
                again = again.and(Again::after(SOON));
                continue;
            }
            let (witnessed, fenced) = (self.desired.has_listed(work, &id), self.fence.guards(&id));
            let facts = WorkFacts { witnessed, fenced, ..facts };
            match self.remove(&facts, &id).await {
                Ok(Removed::Deleted) => self.stats.deletions.add(),
                Ok(Removed::Left | Removed::Released(_)) => {}
                Ok(Removed::Spared(why)) => self.tell_spared(work, &id, &why),
                Ok(Removed::Emptying(what)) => {
                    outcome.error = Some(format!("the Namespace waits for what leaves it: {what}"));
                    outcomes.leftovers.push(outcome);
                    waits.insert(id, what);
                }
                Ok(Removed::Ending) => {
                    outcomes.leftovers.push(outcome);
                    waits.insert(id, String::new());
                }
                Err(failure) => {
                    again = again.and(self.again(&work.name, &failure));
                    outcome.error = Some(failure.message);
                    outcomes.leftovers.push(outcome);
                }
            }
        }
        outcomes.leftovers.sort_by_key(|outcome| outcome.identifier.ordinal);
        again.and(self.waits.note(&work.name, waits, false).map(Again::after).unwrap_or_default())
    }

    /// Whether what has left a Work is not too much to go at once.
    fn may_clear_up(&self, work: &DesiredWork, leftovers: &[(ObjectId, Outcome)]) -> Removal {
        let goes = |id: &&ObjectId| self.believes(work, id) && !self.fence.guards(id);
        let gone: Vec<ObjectId> = leftovers.iter().map(|(id, _)| id).filter(goes).cloned().collect();
        self.removals.may_clear_up(&work.name, &gone)
    }

    /// Whether the hub is believed that an object has left its Work: it is the hub that it always was, or has been seen to
    /// list the object.
    fn believes(&self, work: &DesiredWork, id: &ObjectId) -> bool {
        self.fence.history().another_at().is_none() || self.desired.has_listed(work, id)
    }

    /// Whether something may be taken away by what the hub has answered at that moment: the machine may have slept since,
    /// and another agent have begun, or the Work be another by now.
    fn may_remove(&self, answered: Moment) -> bool {
        let until = Moment { monotonic: answered.monotonic + FRESH, wall: answered.wall + FRESH };
        self.rights.may_delete() && !is_over(until, moment(&self.env))
    }

    async fn remove(&self, facts: &WorkFacts<'_>, id: &ObjectId) -> Result<Removed, Failure> {
        let removed = self.applier.remove(&self.discovery, facts, id).await?;
        if !matches!(removed, Removed::Emptying(_) | Removed::Ending) {
            self.fence.forget(id);
        }
        Ok(removed)
    }

    /// Objects of the Work that none of its manifests names, with how they are recorded.
    pub(super) fn leftovers(&self, work: &DesiredWork, recorded: &Recorded) -> Vec<(ObjectId, Outcome)> {
        let listed: BTreeSet<&ObjectId> = work.manifests.iter().map(|m| &*m.id).collect();
        // A manifest of a kind without namespaces may name one all the same.
        let is_listed = |id: &ObjectId| {
            listed.contains(id)
                || (id.namespace.is_empty()
                    && listed.iter().any(|l| l.group == id.group && l.kind == id.kind && l.name == id.name))
        };
        let known = recorded.keys().cloned();
        let found = self.observer.of_work(&work.name).into_iter().chain(self.applier.of_work(&work.name));
        let ids: BTreeSet<ObjectId> = known.chain(found).filter(|id| !is_listed(id)).collect();
        ids.into_iter()
            .enumerate()
            .map(|(index, id)| {
                let ordinal = (work.manifests.len() + index) as i64;
                let version = recorded.get(&id).map(|r| r.0.version.clone());
                let version = version.or_else(|| {
                    let apis = self.discovery.known()?;
                    apis.preferred(&id.group, &id.kind).map(|resource| resource.version.clone())
                });
                let identifier = ResourceIdentifier {
                    ordinal,
                    group: id.group.clone(),
                    version: version.unwrap_or_default(),
                    kind: id.kind.clone(),
                    resource: String::new(),
                    namespace: id.namespace.clone(),
                    name: id.name.clone(),
                };
                let seen = Some(self.seen(work, &id, recorded).unwrap_or_default());
                (id, Outcome { identifier, error: None, seen })
            })
            .collect()
    }

    fn facts<'a>(
        &'a self,
        work: &'a DesiredWork,
        cause: Cause,
        namespace_terminating: bool,
    ) -> WorkFacts<'a> {
        WorkFacts {
            namespace: &self.namespace,
            name: &work.name,
            id: &work.id,
            cause,
            preserve: work.preserve,
            fenced: false,
            namespace_terminating,
            cluster_terminating: self.upstream.cluster_is_going(),
            hub_is_known: self.fence.history().another_at().is_none(),
            witnessed: cause == Cause::WorkDeleted && self.desired.was_alive(work),
            recent: false,
        }
    }

    /// A Work that is being deleted: its objects go, then our finalizer does.
    pub(super) async fn take_away(&self, work: &DesiredWork) -> Again {
        if !work.held {
            return Again::default();
        }
        match self.removals.may_take_down(work) {
            Removal::Goes => {}
            Removal::Waits(pause) => return Again::after(pause),
            Removal::Held => return Again::default(),
        }
        match self.still_waits(work).await {
            Ok(None) => {}
            Ok(Some(pause)) => return Again::after(pause),
            Err(failure) => {
                tracing::debug!(cluster = %self.cluster, work = %work.name, error = %failure, "cannot tell what the Work still waits for");
                return Again::FAILED;
            }
        }
        let namespace_terminating = match self.upstream.namespace_is_going().await {
            Ok(terminating) => terminating,
            Err(error) => {
                return self.is_unanswered(work, &error, "whether the execution namespace is going");
            }
        };
        // Asked after the namespace: an execution namespace that was deleted and made again is not on its way out, but
        // the Work that we know went with the first one.
        let revision = match self.ask(work).await {
            Ok(Some(live)) if object::deletion_timestamp(&live).is_some() => {
                object::resource_version(&live).parse::<u64>().ok()
            }
            // The watch will tell what is there now; a Work that is missing is no deletion.
            Ok(_) => return Again::default(),
            Err(error) => return self.is_unanswered(work, &error, "whether the Work is still being deleted"),
        };
        let answered = moment(&self.env);
        let old = work.status();
        let recorded = recorded(&old);
        let first = self.fence.history().first();
        let recent = first.zip(revision).is_some_and(|(first, revision)| revision > first);
        let facts = WorkFacts { recent, ..self.facts(work, Cause::WorkDeleted, namespace_terminating) };
        let listed = work.manifests.iter().filter(|m| m.problem.is_none()).map(|m| ObjectId::clone(&m.id));
        let left = self.leftovers(work, &recorded).into_iter().map(|(id, _)| id);
        let mut ids: Vec<ObjectId> = listed.rev().chain(left).collect();
        ids.sort_by_key(|id| Reverse(rank(id)));
        let mut failed = None;
        let mut waits = BTreeMap::new();
        for id in ids {
            if !self.may_remove(answered) {
                return Again::after(SOON);
            }
            // What the agent does not reach it has not put there, unless that is on record: then the member says why not.
            if !self.applier.reaches(&id) && !recorded.contains_key(&id) {
                continue;
            }
            let is_fenced = |m: &Manifest| *m.id == id && m.fence.is_some();
            let fenced = self.fence.guards(&id) || work.manifests.iter().any(is_fenced);
            match self.remove(&WorkFacts { fenced, ..facts }, &id).await {
                Ok(Removed::Deleted) => self.stats.deletions.add(),
                Ok(Removed::Left) => {}
                Ok(Removed::Spared(why)) => self.tell_spared(work, &id, &why),
                Ok(Removed::Released(why)) => {
                    if id.group.is_empty() && id.kind == "Namespace" {
                        self.tell_released(work, &old, &id, &why).await;
                    }
                }
                Ok(Removed::Emptying(what)) => {
                    let message = format!("Namespace {} waits for what leaves it: {what}", id.name);
                    let status = removal(&old, extension::NAMESPACE_EMPTYING, message, Time::now(&self.env));
                    self.upstream.report(work, &old, status);
                    waits.insert(id, what);
                }
                Ok(Removed::Ending) => {
                    waits.insert(id, String::new());
                }
                Err(failure) => {
                    self.stats.sync_errors.add();
                    let message = format!(
                        "Failed to delete resource({}) from cluster({}): {failure}",
                        id.path(),
                        self.cluster
                    );
                    tracing::warn!(cluster = %self.cluster, work = %work.name, %message);
                    self.upstream.warning(&self.reference(work), event::SYNC_FAILED, message.clone());
                    failed = Some(message);
                }
            }
        }
        let pause = self.waits.note(&work.name, waits, failed.is_none());
        let has_failed = failed.is_some();
        self.notes.note(&work.name, failed.map(|why| (Stands::Failing, why)), Time::now(&self.env));
        if has_failed {
            return Again::FAILED;
        }
        if let Some(pause) = pause {
            return Again::after(pause);
        }
        self.applier.forget_work(&work.name);
        self.upstream.finished(work);
        Again::default()
    }

    /// Looks on the member whether all that a Work waited for there is still as it was, or nearly so: then there is nothing
    /// to be decided yet, nor to be asked of the hub. Answers when to look again.
    async fn still_waits(&self, work: &DesiredWork) -> Result<Option<Duration>, Failure> {
        let mut what = BTreeMap::new();
        for id in self.waits.of(&work.name) {
            let Some(holds) = self.applier.waits(&self.discovery, &id).await? else { return Ok(None) };
            what.insert(id, holds);
        }
        Ok(if what.is_empty() { None } else { self.waits.note(&work.name, what, true) })
    }

    /// Says that an object stays although the hub wants it gone.
    fn tell_spared(&self, work: &DesiredWork, id: &ObjectId, why: &str) {
        let (cluster, path) = (&self.cluster, id.path());
        let message = format!(
            "{} {path} stays on cluster({cluster}): {why}. Apply its template again to keep it, or delete it there",
            id.kind
        );
        tracing::warn!(%cluster, work = %work.name, kind = %id.kind, namespace = %id.namespace, name = %id.name, why, "not deleted");
        self.upstream.warning(&self.reference(work), event::OBJECT_SPARED, message);
    }

    /// Says that a Namespace stays: in the condition of its Work, before that goes, in one of the Cluster, for as long as it
    /// stays, and in an event about the Namespace. Whether the hub hears it or not, the Namespace is let go.
    async fn tell_released(&self, work: &DesiredWork, old: &WorkStatus, id: &ObjectId, why: &str) {
        let cluster = &self.cluster;
        self.released.note(&id.name, why);
        let message = format!("Namespace {} stays on cluster({cluster}): {why}", id.name);
        let status = removal(old, extension::NAMESPACE_RELEASED, message.clone(), Time::now(&self.env));
        if let Err(error) = self.upstream.last_words(work, &status.conditions).await {
            tracing::warn!(%cluster, work = %work.name, %error, "the hub was not told that the Namespace stays");
        }
        if let Some(manifest) = work.manifests.iter().find(|manifest| *manifest.id == *id) {
            self.upstream.warning(&template(manifest), event::NAMESPACE_RELEASED, message);
        }
    }
}

/// Whether a Work, as the hub has it, lists what it is known to list, and is there to stay.
fn is_as_known(live: &Value, work: &DesiredWork) -> bool {
    object::deletion_timestamp(live).is_none() && object::generation(live) == work.generation
}

/// The status of a Work whose Namespace is not gone.
fn removal(old: &WorkStatus, reason: &'static str, message: String, now: Time) -> WorkStatus {
    let mut status = old.clone();
    let condition = Condition::new(extension::NAMESPACE_REMOVED, false, reason, message, now);
    conditions::set(&mut status.conditions, condition, now);
    conditions::remove(&mut status.conditions, extension::CHANGES_HELD);
    status
}
