//! Deleting objects: finalizers, preconditions, propagation, grace.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use karmada_meta::{
    gvk::GroupResource,
    object,
    status::{MODIFIED, Status},
};
use karmada_store::{Expect, Op, Purpose};
use serde_json::Value;

use super::{Caller, Registry, Shown, Target, ask::Attempt, list::Page};
use crate::{
    admission::Operation,
    crd,
    kinds::Kind,
    options::{DeleteOptions, Propagation},
    storage::Object,
    webhooks::Options,
};

/// The owner waits for its dependents.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The dependents are let go before the owner goes.
pub const ORPHAN: &str = "orphan";
/// What the garbage collector does not look at.
pub const UNCOLLECTED: &str = "core/events";
/// The longest grace that a time of day can be reckoned with: a hundred years, in seconds.
const LONGEST_GRACE: i64 = 100 * 365 * 24 * 3600;
/// Namespaces that a server without them does not start with.
const PERMANENT: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// What DELETE did.
#[derive(Debug)]
pub enum Deleted {
    /// The object is gone; its last state.
    Gone(Shown),
    /// It stays until its finalizers are gone.
    Pending(Shown),
}

/// What becomes of an object that is deleted.
enum Next {
    /// It goes; its last state.
    Goes(Bytes),
    /// It stays until its finalizers are gone.
    Stays(Bytes),
    /// It does so already.
    IsAsBefore,
}

impl Registry {
    /// Deletes one object, or begins to.
    ///
    /// # Errors
    /// 404, 403 for the namespaces that stay, 409 when a precondition fails.
    pub async fn delete(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let kind = target.kind;
        if &*kind.storage == "core/namespaces" && PERMANENT[..3].contains(&target.name) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(&kind.group_resource(), target.name, why));
        }
        loop {
            let live = self.lookup(target).ok_or_else(|| target.not_found())?;
            check_preconditions(kind, target, options, &live)?;
            caller.weigh(live.value.len()).await?;
            let weight = caller.weight();
            let old = self.pool.run(weight, || self.value_of(kind, &live)).await?;
            let attempt = Attempt {
                operation: Operation::Delete,
                target,
                options: Options::Delete(options),
                old: Some(&old),
            };
            let mut shown = self.pool.run(weight, || old.clone()).await?;
            self.admit(caller, &attempt, &mut shown).await?;
            self.admit_final(caller, &attempt, None).await?;
            if let Some(deleted) = self.delete_once(caller, target, options, &live, old).await? {
                return Ok(deleted);
            }
            if options.resource_version.is_some() || !self.is_current(kind) {
                return Err(Status::conflict(&kind.group_resource(), target.name, MODIFIED));
            }
        }
    }

    async fn delete_once(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        options: &DeleteOptions,
        live: &Arc<Object>,
        old: Value,
    ) -> Result<Option<Deleted>, Status> {
        let kind = target.kind;
        let work_out = move || {
            let mut new = old.clone();
            set_finalizers(kind, &mut new, options.propagation);
            let grace = grace_period(kind, &old, options);
            let holds = grace > 0 || !object::finalizers(&new).is_empty() || kind.shape.holds_deletion(&new);
            if !holds {
                if &*kind.storage != "core/pods" {
                    return Next::Goes(live.value.get());
                }
                // Pods always end gracefully, if only for no time at all.
                self.mark_deleting(kind, &mut new, &old, 0);
                return Next::Goes(Self::encode(kind, new));
            }
            self.mark_deleting(kind, &mut new, &old, grace);
            if new == old { Next::IsAsBefore } else { Next::Stays(Self::encode(kind, new)) }
        };
        match self.pool.run(caller.weight(), work_out).await? {
            Next::IsAsBefore => Ok(Some(Deleted::Pending(Shown::Stored(live.clone())))),
            Next::Goes(last) if options.dry_run => {
                Ok(Some(Deleted::Gone(self.made(target, last, Some(live.revision)))))
            }
            Next::Stays(value) if options.dry_run => {
                Ok(Some(Deleted::Pending(self.made(target, value, Some(live.revision)))))
            }
            Next::Goes(last) => {
                let delete = Op::delete(live.key.clone(), Expect::At(live.revision), last);
                let gone = self.commit(caller, delete, Purpose::Upkeep).await?;
                Ok(gone.map(|last| Deleted::Gone(Shown::Stored(last))))
            }
            Next::Stays(value) => {
                let put = Op::put(live.key.clone(), Expect::At(live.revision), value);
                // It is stored as the schema has it.
                let guards = kind.guard().into_iter().collect();
                let stored = self.commit_if(caller, guards, put, Purpose::Upkeep).await?;
                Ok(stored.map(|stored| Deleted::Pending(Shown::Stored(stored))))
            }
        }
    }

    /// Sets what shows that deletion has begun, if it has not.
    fn mark_deleting(&self, kind: &Kind, new: &mut Value, old: &Value, grace: i64) {
        let begun = object::deletion_timestamp(old).is_some();
        let had: Option<i64> = object::meta(old, "deletionGracePeriodSeconds").and_then(Value::as_i64);
        if begun && had.is_none_or(|had| had <= grace) {
            return;
        }
        let now = self.now();
        let at = if grace > 0 {
            let seconds = std::time::Duration::from_secs(grace.unsigned_abs());
            karmada_meta::time::Time::from_system(self.env.wall() + seconds).to_string()
        } else {
            now.clone()
        };
        let meta = object::metadata_mut(new);
        meta.insert("deletionTimestamp".to_owned(), Value::String(at));
        // The deletion of what holds other objects knows no grace, and does not show any.
        if !matches!(&*kind.storage, "core/namespaces" | crd::STORAGE) {
            meta.insert("deletionGracePeriodSeconds".to_owned(), Value::from(grace));
        }
        if !begun {
            let generation = object::generation(old);
            if generation > 0 {
                object::set_meta(new, "generation", generation + 1);
            }
            kind.shape.prepare_delete(new, &now);
        }
    }

    /// Deletes what `page` shows, one by one.
    ///
    /// # Errors
    /// The first one of a deletion (objects that have gone by themselves aside).
    pub async fn delete_collection(
        &self,
        caller: &Caller<'_>,
        kind: &Arc<Kind>,
        page: &Page,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        for object in &page.items {
            let target =
                Target { kind, namespace: &object.key.namespace, name: &object.key.name, subresource: "" };
            match self.delete(caller, &target, options).await {
                Err(status) if status.is_not_found() => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }
}

fn check_preconditions(
    kind: &Kind,
    target: &Target<'_>,
    options: &DeleteOptions,
    live: &Object,
) -> Result<(), Status> {
    let conflict = |why: String| {
        let by_kind = GroupResource::new(&kind.gvk.group, &kind.gvk.kind);
        Err(Status::conflict(&by_kind, target.name, why))
    };
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != &*live.header.uid) {
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            live.header.uid
        ));
    }
    let current = live.revision.to_string();
    if let Some(version) = options.resource_version.as_deref().filter(|version| *version != current) {
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({current}). The object might have been modified"
        ));
    }
    Ok(())
}

/// Sets the garbage collector's finalizers as the options want them; without a wish, as they stand.
fn set_finalizers(kind: &Kind, new: &mut Value, propagation: Option<Propagation>) {
    // The collector would take its finalizers off none of what it does not follow.
    let propagation = if &*kind.storage == UNCOLLECTED { Some(Propagation::Background) } else { propagation };
    let had: Vec<String> = object::finalizers(new).into_iter().map(str::to_owned).collect();
    let has = |name: &str| had.iter().any(|f| f == name);
    let (orphan, foreground) = match propagation {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None => (has(ORPHAN) || (kind.rules.orphans_by_default && !has(FOREGROUND)), has(FOREGROUND)),
    };
    let mut wanted: Vec<String> = had.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    if orphan {
        wanted.push(ORPHAN.to_owned());
    }
    if foreground {
        wanted.push(FOREGROUND.to_owned());
    }
    let same = wanted.len() == had.len() && {
        let had: HashSet<&String> = had.iter().collect();
        wanted.iter().all(|f| had.contains(f))
    };
    if same {
        return;
    }
    let meta = object::metadata_mut(new);
    if wanted.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".to_owned(), Value::from(wanted));
    }
}

/// How many seconds the object gets to end; only Pods on a node get any.
fn grace_period(kind: &Kind, old: &Value, options: &DeleteOptions) -> i64 {
    let ended = matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let assigned = old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if &*kind.storage != "core/pods" || ended || !assigned {
        return 0;
    }
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    options.grace_period.unwrap_or(own).clamp(0, LONGEST_GRACE)
}
