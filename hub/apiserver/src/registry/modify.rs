//! Changing objects: the loop that PUT, PATCH, apply and the subresources share.

use std::sync::Arc;

use karmada_meta::{
    object,
    path::{FieldError, Path},
    status::{MODIFIED, Status},
};
use karmada_store::{Expect, Guard, Op, Purpose};
use serde_json::{Map, Value};

use super::{
    Begun, Caller, Registry, Shown, Target, Written, ask::Attempt, escalation, is_deleting, metadata,
    parse_version, renewal::is_renewal, rules, telling,
};
use crate::{
    admission::Operation, certificates, fields, kinds::Kind, node_ports::Promised, options::WriteOptions,
    storage::Object, webhooks::Options,
};

/// So often a change is worked out anew because somebody else was faster. Whoever is unlucky that often meets others who write without
/// end, and each round is work on the whole object.
const ROUNDS: u32 = 16;
/// After so many seconds it is worth trying again.
const AGAIN: u32 = 1;

/// How a change treats an object that is not there, or not the one meant.
#[derive(Clone, Debug, Default)]
pub struct Modify {
    /// A missing object is created.
    pub may_create: bool,
    /// Only the object of this uid.
    pub uid: Option<String>,
    /// Only while this holds.
    pub guards: Vec<Guard>,
}

/// Works out the new object from the one there is (`None`: none). It is asked again when someone else was faster, so
/// it must depend on nothing else. The result has its managed fields and the resourceVersion it insists on, if any.
pub type Produce<'a> = dyn FnMut(Option<&Value>) -> Result<Value, Status> + Send + 'a;

impl Registry {
    /// Replaces an object by `new`, which has been decoded and defaulted (PUT).
    ///
    /// # Errors
    /// 404, 409 when the version or uid it names is not the stored one, 422 for what is not valid.
    pub async fn update(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        mut new: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let dedup = || metadata::dedup_owners(&mut new).into_iter().for_each(|warning| caller.warn(warning));
        self.pool.run(caller.weight(), dedup).await?;
        let uid = Some(object::uid(&new)).filter(|uid| !uid.is_empty()).map(str::to_owned);
        let may_create = target.kind.rules.create_on_update && target.subresource.is_empty();
        let manager = caller.manager(options).to_owned();
        let now = self.now();
        let mut produce = |live: Option<&Value>| {
            Ok(fields::update(target.kind, live, &new, &manager, target.subresource, &now))
        };
        self.modify(caller, target, &Modify { may_create, uid, ..Modify::default() }, options, &mut produce)
            .await
    }

    /// Changes an object as `produce` says, until nobody else comes between.
    ///
    /// # Errors
    /// As [`Registry::update`], and what `produce` says; 429 when others always were faster.
    pub async fn modify(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        how: &Modify,
        options: &WriteOptions,
        produce: &mut Produce<'_>,
    ) -> Result<Written, Status> {
        let (key, sent) = (target.key(), caller.weight());
        let teller = telling::teller(caller.user, target.kind);
        for _ in 0..ROUNDS {
            let live = self.store.get(&key);
            // Before the change is worked out: what is wrong with it would tell of what is there.
            let live = live.filter(|live| teller.is_none_or(|cluster| self.has_told(cluster, live)));
            let Some(live) = live else {
                if !how.may_create || teller.is_some() {
                    return Err(target.not_found());
                }
                match self.create_by_change(caller, target, how, options, produce).await {
                    // Someone else created it in the meantime: then it is an update.
                    Err(status) if status.is_already_exists() && !options.dry_run => continue,
                    other => return other,
                }
            };
            if let Some(uid) = how.uid.as_deref().filter(|uid| *uid != &*live.header.uid) {
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    live.header.uid
                );
                return Err(Status::conflict(&target.kind.group_resource(), target.name, why));
            }
            match self.change_once(caller, target, how, &live, sent, options, produce).await? {
                Some(written) => return Ok(written),
                // What was made for a former schema is the client's to make again.
                None if how.guards.is_empty() && self.is_current(target.kind) => {}
                None => return Err(Status::conflict(&target.kind.group_resource(), target.name, MODIFIED)),
            }
        }
        let (resource, name) = (target.kind.group_resource(), target.name);
        let why =
            format!("{resource} {name:?} is being changed by others all the time, please try again later.");
        Err(Status::too_many_requests(&why, AGAIN))
    }

    /// A change of an object that is not there.
    async fn create_by_change(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        how: &Modify,
        options: &WriteOptions,
        produce: &mut Produce<'_>,
    ) -> Result<Written, Status> {
        // Judged here, where it is known that the object is not there: it may have gone since anyone looked.
        caller.check_create(target, target.name)?;
        let mut object = self.pool.run(caller.weight(), || produce(None)).await??;
        let uid = how.uid.as_deref().unwrap_or_else(|| object::uid(&object));
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(&target.kind.group_resource(), target.name, why));
        }
        // A version that it insisted on is one of an object that has gone: kube-apiserver creates it all the same.
        object::remove_meta(&mut object, "resourceVersion");
        self.check_open(target)?;
        let attempt =
            Attempt { operation: Operation::Create, target, options: Options::Write(options), old: None };
        self.admit(caller, &attempt, &mut object).await?;
        self.insert(caller, target.kind, target.namespace, object, options).await
    }

    /// One try at changing `live`. `Ok(None)`: someone else was faster, or a guard does not hold.
    #[allow(clippy::too_many_arguments, reason = "the arguments of a request, and what was found")]
    async fn change_once(
        &self,
        caller: &Caller<'_>,
        target: &Target<'_>,
        how: &Modify,
        live: &Arc<Object>,
        sent: usize,
        options: &WriteOptions,
        produce: &mut Produce<'_>,
    ) -> Result<Option<Written>, Status> {
        let kind = target.kind;
        // The body has grown into values already, and what is stored becomes some beside them.
        caller.weigh(sent.saturating_add(live.value.len())).await?;
        let work_out = || {
            let old = self.value_of(kind, live);
            produce(Some(&old)).map(|new| (old, new))
        };
        let (old, mut new) = self.pool.run(caller.weight(), work_out).await??;
        let options = Options::Write(options);
        let attempt = Attempt { operation: Operation::Update, target, options, old: Some(&old) };
        self.admit(caller, &attempt, &mut new).await?;
        check_version(target, &new, live.revision.get())?;
        let promised = match target.subresource {
            "" => self.node_ports.claim(kind, &mut new, Some(&old), &self.env)?,
            _ => Promised::default(),
        };
        let changed = self.store_change(caller, &attempt, how, live, new, &old).await;
        self.node_ports.settle(&promised);
        changed
    }

    /// Judges and stores what `live` is to be.
    async fn store_change(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        how: &Modify,
        live: &Arc<Object>,
        mut new: Value,
        old: &Value,
    ) -> Result<Option<Written>, Status> {
        let (target, kind) = (attempt.target, attempt.target.kind);
        let prepare = || {
            self.judge_escalation(caller, attempt, &new)?;
            object::set_meta(&mut new, "resourceVersion", live.revision.to_string());
            let errors = prepare_update(target, &mut new, old, &self.now());
            self.judge_certificate(caller, attempt, &new)?;
            Ok::<_, Status>(errors)
        };
        let mut errors = self.pool.run(escalation::weight(caller, kind), prepare).await??;
        rules::judge(&self.pool, caller, kind, &new, Some(old), &mut errors).await?;
        let check = || {
            if !errors.is_empty() {
                return Err(Status::invalid(&kind.gvk.kind, kind.error_group(), target.name, errors));
            }
            for warning in kind.shape.warnings(&new, Some(old)) {
                caller.warn(warning);
            }
            Ok(())
        };
        self.pool.run(caller.weight(), check).await??;
        self.admit_final(caller, attempt, Some(&new)).await?;
        let finish = || {
            kind.shape.settle(&mut new);
            karmada_smd::keep_times(old, &mut new);
            if new == *old {
                return Made::Same;
            }
            let gone = is_deleting(old)
                && object::finalizers(&new).is_empty()
                && object::meta(old, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) == 0
                && !kind.shape.holds_deletion(&new);
            let renewal = is_renewal(kind, old, &new);
            let value = Self::encode(kind, new);
            if let Err(status) = caller.check_size(&value, live.value.len()) {
                return Made::TooLarge(status);
            }
            let at = Expect::At(live.revision);
            if attempt.options.dry_run() {
                return Made::Shown(self.made(target, value, Some(live.revision)));
            }
            if gone {
                // The client is shown what it made of the object, watchers the last state that was stored.
                let shown = self.made(target, value, Some(live.revision));
                let delete = Op::delete(live.key.clone(), at, live.value.get());
                let begun = self.begin(caller, how.guards.clone(), delete, Purpose::Upkeep);
                return Made::Begun(begun, Some(shown));
            }
            // Status, and whatever leads to the end of what is being deleted, go on when there is no room left.
            let upkeep = !matches!(target.subresource, "" | "scale") || is_deleting(old);
            let purpose = if upkeep { Purpose::Upkeep } else { Purpose::Growth };
            let put = Op::put(live.key.clone(), at, value);
            // It will be repeated within seconds.
            let put = if renewal { put.relaxed() } else { put };
            // By another schema it might be judged, pruned and defaulted otherwise.
            let guards = how.guards.iter().cloned().chain(kind.guard()).collect();
            Made::Begun(self.begin(caller, guards, put, purpose), None)
        };
        let shown = match self.pool.run(caller.weight(), finish).await? {
            Made::Same => Some(Shown::Stored(live.clone())),
            Made::TooLarge(status) => return Err(status),
            Made::Shown(shown) => Some(shown),
            Made::Begun(begun, last) => {
                self.conclude(caller, begun).await?.map(|stored| last.unwrap_or(Shown::Stored(stored)))
            }
        };
        Ok(shown.map(|shown| Written { shown, created: false }))
    }
}

/// What is to be written in place of an object.
enum Made<'a> {
    /// Nothing: it is as it was.
    Same,
    /// Nothing: it would be too large.
    TooLarge(Status),
    /// Nothing, but this is shown.
    Shown(Shown),
    /// This; the client is shown what is stored then, or this.
    Begun(Begun<'a>, Option<Shown>),
}

/// Brings a changed object to what may be stored in place of `old`, and says what is wrong with it.
fn prepare_update(target: &Target<'_>, new: &mut Value, old: &Value, now: &str) -> Vec<FieldError> {
    let kind = target.kind;
    if target.subresource.is_empty() || target.subresource == "scale" {
        for path in &kind.rules.reset {
            restore(new, old, path);
        }
    } else {
        keep_all_but(kind, target.subresource, new, old);
        if &*kind.storage == certificates::STORAGE {
            certificates::date(new, old, target.subresource, now);
        }
    }
    prepare_metadata(kind, target.subresource, new, old);
    if matches!(target.subresource, "" | "scale") {
        kind.shape.prepare_update(new, old);
        count_generation(kind, new, old);
    }
    let mut errors = metadata::validate_update(new, old);
    // ConfigMaps and Secrets are judged as new objects on top.
    let rounds = if matches!(&*kind.storage, "core/configmaps" | "core/secrets") { 2 } else { 0 };
    errors.extend(errors.clone());
    (0..rounds).for_each(|_| errors.extend(metadata::common(new)));
    errors.extend(kind.shape.validate_update(new, old, target.subresource));
    errors
}

/// Checks the version that a changed object insists on.
fn check_version(target: &Target<'_>, new: &Value, current: u64) -> Result<(), Status> {
    let kind = target.kind;
    match parse_version(object::resource_version(new))? {
        None if kind.rules.unconditional_update => Ok(()),
        None => {
            let path = Path::new("metadata").child("resourceVersion");
            let error = FieldError::invalid(&path, 0, "must be specified for an update");
            Err(Status::invalid(&kind.gvr.resource, &kind.gvr.group, target.name, vec![error]))
        }
        Some(version) if version == current => Ok(()),
        Some(_) => Err(Status::conflict(&kind.group_resource(), target.name, MODIFIED)),
    }
}

/// Takes a dotted path's value from the old object.
fn restore(new: &mut Value, old: &Value, path: &str) {
    let parts: Vec<&str> = path.split('.').collect();
    let Some((last, parents)) = parts.split_last() else { return };
    let mut from = Some(old);
    for part in parents {
        from = from.and_then(|value| value.get(part));
    }
    let value = from.and_then(|value| value.get(last)).cloned();
    let mut to = new;
    for part in parents {
        // A parent is made only to hold something.
        if value.is_none() && to.get(part).is_none() {
            return;
        }
        let Some(map) = to.as_object_mut() else { return };
        to = map.entry(*part).or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(map) = to.as_object_mut() else { return };
    match value {
        Some(value) => {
            map.insert((*last).to_owned(), value);
        }
        None => {
            map.remove(*last);
        }
    }
}

/// What a subresource's endpoint does not write is taken from the old object.
fn keep_all_but(kind: &Kind, subresource: &str, new: &mut Value, old: &Value) {
    let (Some(map), Some(before)) = (new.as_object_mut(), old.as_object()) else { return };
    let written: &[&str] = match subresource {
        "status" | "approval" => &["status"],
        "finalize" => {
            let wanted = map.get("spec").and_then(|spec| spec.get("finalizers")).cloned();
            for field in ["spec", "status"] {
                match before.get(field) {
                    Some(value) => map.insert(field.to_owned(), value.clone()),
                    None => map.remove(field),
                };
            }
            let spec = map.entry("spec").or_insert_with(|| Value::Object(Map::new()));
            if let Some(spec) = spec.as_object_mut() {
                match wanted.filter(|list| list.as_array().is_some_and(|list| !list.is_empty())) {
                    Some(list) => spec.insert("finalizers".to_owned(), list),
                    None => spec.remove("finalizers"),
                };
            }
            return;
        }
        // Pods' ephemeralcontainers and resize write the spec.
        _ => &["spec"],
    };
    map.retain(|key, _| key == "metadata" || written.contains(&key.as_str()) || before.contains_key(key));
    for (key, value) in before {
        if key != "metadata" && !written.contains(&key.as_str()) {
            map.insert(key.clone(), value.clone());
        }
    }
    if kind.custom.is_some() {
        // Of metadata only who owns the status is new.
        let managed = map.get_mut("metadata").and_then(|meta| meta.get_mut("managedFields")).map(Value::take);
        let version = object::resource_version(old).to_owned();
        let mut meta = before.get("metadata").cloned().unwrap_or_default();
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("resourceVersion".to_owned(), Value::String(version));
            match managed {
                Some(managed) => meta.insert("managedFields".to_owned(), managed),
                None => meta.remove("managedFields"),
            };
        }
        map.insert("metadata".to_owned(), meta);
    } else if kind.gvr.group == "apps" && kind.gvr.resource == "deployments" {
        restore(new, old, "metadata.labels");
    }
}

/// What an update never changes in metadata.
fn prepare_metadata(kind: &Kind, _subresource: &str, new: &mut Value, old: &Value) {
    let meta = object::metadata_mut(new);
    let take = |meta: &mut Map<String, Value>, field: &str| match object::meta(old, field) {
        Some(value) => {
            meta.insert(field.to_owned(), value.clone());
        }
        None => {
            meta.remove(field);
        }
    };
    for field in ["creationTimestamp", "generation", "selfLink"] {
        take(meta, field);
    }
    if meta.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
        take(meta, "uid");
    }
    if is_deleting(old) {
        take(meta, "deletionTimestamp");
        if !meta.contains_key("deletionGracePeriodSeconds") {
            take(meta, "deletionGracePeriodSeconds");
        }
    }
    if !kind.namespaced {
        meta.remove("namespace");
    }
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    meta.retain(|_, value| !empty(value));
}

/// Counts a change of anything but metadata and status; of a Deployment's annotations, too.
fn count_generation(kind: &Kind, new: &mut Value, old: &Value) {
    if !kind.rules.generation {
        return;
    }
    let has_status = kind.has_status();
    let counted = |value: &Value| -> Vec<(String, Value)> {
        let skip =
            |key: &str| matches!(key, "metadata" | "apiVersion" | "kind") || (key == "status" && has_status);
        let mut fields: Vec<(String, Value)> = value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| !skip(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        fields
    };
    let annotated =
        kind.rules.generation_of_annotations && object::annotations(new) != object::annotations(old);
    if annotated || counted(new) != counted(old) {
        object::set_meta(new, "generation", object::generation(old) + 1);
    }
}
