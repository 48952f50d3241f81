//! Server-side apply and the book-keeping of every other write.
//!
//! ```text
//!   apply:   live ─┐
//!                  ├─ merge ── drop what was applied before, is left out now and no one else owns ── new object
//!   config ────────┘                              │
//!                             compare(live, new): what changed and another manager owns is a conflict,
//!                             or, forced, taken from it; what is gone is taken from everyone
//!
//!   update:  compare(live, new): what changed is taken from everyone and given to the writer
//! ```

use serde_json::{Map, Value};

use crate::fieldpath::{Path, Set};
use crate::lastapplied;
use crate::managed::{Entry, MAX_MANAGERS, Managed, Manager, Operation, Source, is_reset};
use crate::schema::TypeRef;
use crate::typed::{Comparison, Reconciler, compare, field_set, merge_into, remove, validate};

/// The manager to whom the fields of an object are given that has none when it is first applied to.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager in whom the oldest writers are joined.
pub const ANCIENT_CHANGES: &str = "ancient-changes";
/// How many Update entries an object keeps.
pub const MAX_UPDATE_MANAGERS: usize = 10;

/// Who applies, and how.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions<'a> {
    pub manager: &'a str,
    /// The version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Take fields from other managers instead of reporting conflicts.
    pub force: bool,
    /// RFC 3339, whole seconds.
    pub now: &'a str,
    /// What this endpoint does not write: such fields are not owned.
    pub reset_fields: &'a Set,
}

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub struct UpdateOptions<'a> {
    pub manager: &'a str,
    /// The version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// Empty for the object itself. A subresource cannot set managed fields.
    pub subresource: &'a str,
    /// RFC 3339, whole seconds.
    pub now: &'a str,
    /// What this endpoint does not write: such fields are not owned.
    pub reset_fields: &'a Set,
}

/// A field that is to change and that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    pub path: Path,
}

impl Conflict {
    /// The message of its cause: `conflict with "m" using apps/v1`. The cause's field is `path`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// Why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Another manager owns what would change: 409, one cause for each. Never empty; sorted by manager and path.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// What was sent is no configuration: 400.
    #[error("{0}")]
    BadRequest(String),
    /// It does not fit the schema, or names one element of a list twice: 500, as Kubernetes has it.
    #[error("{0}")]
    Invalid(String),
}

/// The message of a 409 that reports these conflicts.
pub fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", only.message(), only.path);
    }
    let mut lines = Vec::with_capacity(conflicts.len() + 1);
    let mut manager: Option<&Manager> = None;
    for conflict in conflicts {
        if manager.is_none_or(|m| *m != conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            manager = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Applies a configuration to an object, or makes one of it if `live` is none.
///
/// The result is what is to be defaulted, admitted, validated and stored, with its managed fields. If it equals `live`
/// there is nothing to write. Nulls of the configuration are in it, as Kubernetes' decoder would find them.
///
/// # Errors
/// See [`ApplyError`].
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    schema: &TypeRef,
    o: &ApplyOptions<'_>,
) -> Result<Value, ApplyError> {
    check_config(config, o)?;
    let empty;
    let live_or_empty = match live {
        Some(live) => live,
        None => {
            empty = empty_object(config);
            &empty
        }
    };
    let mut managed = Managed::of(live_or_empty)
        .map_err(|e| ApplyError::Invalid(format!("failed to decode managed fields: {e}")))?;
    if managed.is_empty() && live.is_some() {
        let writer = manager(BEFORE_FIRST_APPLY, Operation::Update, o.api_version, o.subresource);
        let nothing = empty_object(live_or_empty);
        track_update(&nothing, live_or_empty, schema, &mut managed, writer, o.now, o.reset_fields);
    }

    // Only kubectl may try a second time.
    let spare = (o.manager == lastapplied::MANAGER).then(|| managed.clone());
    let applied = match (merge_and_own(live_or_empty, config, schema, managed, o, o.force), spare) {
        (Err(ApplyError::Conflicts(conflicts)), Some(managed)) => {
            let Some(allowed) = lastapplied::still_as_applied(live_or_empty, schema, o.api_version) else {
                return Err(ApplyError::Conflicts(conflicts));
            };
            let left: Vec<_> = conflicts.into_iter().filter(|c| !allowed.has(&c.path.0)).collect();
            if !left.is_empty() {
                return Err(ApplyError::Conflicts(left));
            }
            merge_and_own(live_or_empty, config, schema, managed, o, true)
        }
        (other, _) => other,
    };
    let (mut new, changed, mut managed) = applied?;

    let this = manager(o.manager, Operation::Apply, o.api_version, o.subresource);
    if managed.entries.len() > MAX_MANAGERS {
        return Err(ApplyError::BadRequest(format!(
            "the object has {MAX_MANAGERS} field managers, which are as many as it may have"
        )));
    }
    strip_meta(&mut managed, &this);
    if changed && let Some(entry) = managed.entries.iter_mut().find(|e| e.manager.is(&this)) {
        entry.time = Some(o.now.to_owned());
        entry.source = Source::default();
    }
    if o.manager == lastapplied::MANAGER {
        lastapplied::follow(&mut new, config);
    }
    managed.write_back(&mut new);
    Ok(new)
}

/// Gives a written object its managed fields. `live` is what was there before; none for a create.
///
/// The writer may have set `metadata.managedFields` itself; what is malformed there is ignored.
pub fn update(live: Option<&Value>, new: &Value, schema: &TypeRef, o: &UpdateOptions<'_>) -> Value {
    let mut new = new.clone();
    update_in_place(live, &mut new, schema, o);
    new
}

/// [`update`] without a copy.
pub fn update_in_place(live: Option<&Value>, new: &mut Value, schema: &TypeRef, o: &UpdateOptions<'_>) {
    let of_live = || live.and_then(|live| Managed::of(live).ok()).unwrap_or_default();
    let mut managed = if !o.subresource.is_empty() {
        of_live()
    } else if is_reset(new) {
        Managed::default()
    } else {
        Managed::of(new).ok().filter(|m| !m.is_empty()).unwrap_or_else(of_live)
    };
    Managed::default().write(new);
    match live {
        // Whose fields are unknown stays so until it is applied to.
        Some(_) if managed.is_empty() => return,
        Some(live) => {
            let writer = manager(o.manager, Operation::Update, o.api_version, o.subresource);
            track_update(live, new, schema, &mut managed, writer, o.now, o.reset_fields);
        }
        None => {
            let writer = manager(o.manager, Operation::Update, o.api_version, o.subresource);
            track_update(&empty_object(new), new, schema, &mut managed, writer, o.now, o.reset_fields);
        }
    }
    managed.write(new);
}

fn manager(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Manager {
    Manager {
        name: if name.is_empty() { "unknown" } else { name }.to_owned(),
        operation,
        api_version: api_version.to_owned(),
        subresource: subresource.to_owned(),
    }
}

fn check_config(config: &Value, o: &ApplyOptions<'_>) -> Result<(), ApplyError> {
    let version = config.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != o.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            o.api_version
        )));
    }
    match config.pointer("/metadata/managedFields") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned())),
    }
}

/// An object of that kind in which nothing is set.
fn empty_object(of: &Value) -> Value {
    let mut map = Map::new();
    for key in ["apiVersion", "kind"] {
        if let Some(value) = of.get(key) {
            map.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(map)
}

/// The merged object, whether it differs from the live one, and who owns what then.
fn merge_and_own(
    live: &Value,
    config: &Value,
    schema: &TypeRef,
    managed: Managed,
    o: &ApplyOptions<'_>,
    force: bool,
) -> Result<(Value, bool, Managed), ApplyError> {
    let (types, id) = (&*schema.schema, schema.id);
    validate(types, id, config).map_err(|error| {
        ApplyError::Invalid(format!("failed to create typed patch object ({}): {error}", describe(config)))
    })?;
    let mut managed = reconciled(managed, schema, live);
    let mut new = live.clone();
    let mut changed = merge_into(types, id, &mut new, config)
        .map_err(|error| ApplyError::Invalid(format!("failed to merge config: {error}")))?;
    let this = manager(o.manager, Operation::Apply, o.api_version, o.subresource);
    let set = without(field_set(types, id, config), o.reset_fields);
    let last = managed.take(&this).unwrap_or_else(|| Entry::new(this.clone(), Set::new(), None));
    let now = strip(set.clone());
    let source = if now == last.set && last.manager == this { last.source } else { Source::default() };
    let last_set = without(last.set, o.reset_fields);
    let kept_all = last_set.is_subset(&set);
    managed.put(Entry { manager: this.clone(), set, time: last.time, source });
    if !kept_all {
        changed |= prune(&mut new, schema, &last_set, &managed);
    }
    let comparison = if changed {
        compare(types, id, live, &new)
            .map_err(|error| {
                ApplyError::Invalid(format!(
                    "failed to create typed live object ({}): {error}",
                    describe(live)
                ))
            })?
            .without(o.reset_fields)
    } else {
        Comparison::default()
    };
    take_over(&mut managed, &comparison, &this, force)?;
    Ok((new, changed, managed))
}

/// Removes from a merged object what its applier owned and no one owns now.
///
/// Sets of appliers do not have the structs on the way to a field, so those are put in first on all sides: a struct is
/// then owned by whoever owns something in it. Says whether there was anything to remove.
fn prune(merged: &mut Value, schema: &TypeRef, last: &Set, managed: &Managed) -> bool {
    let (types, id) = (&*schema.schema, schema.id);
    let full = |set: &Set| set.with_named_fields(types, Some(id));
    let last = full(last);
    let owned = full(&Set::union_of(managed.entries.iter().map(|entry| &entry.set)));
    let all = full(&field_set(types, id, merged));
    // Everything below what was applied before goes, then comes back if someone owns it, or if it was not the
    // applier's in the first place: nobody's, or a default.
    let without_last = all.recursive_difference(&last);
    let unowned = all.difference(&without_last.union(&owned));
    let kept = all.recursive_difference(&unowned);
    let gone = all.difference(&kept).intersection(&last);
    remove(types, id, merged, &gone);
    !gone.is_empty()
}

/// Settles who owns what changed. Without force, what another manager owns of it is a conflict.
fn take_over(
    managed: &mut Managed,
    changes: &Comparison,
    this: &Manager,
    force: bool,
) -> Result<(), ApplyError> {
    let written = changes.modified.union(&changes.added);
    let mut conflicts = Vec::new();
    let mut taken = Vec::with_capacity(managed.entries.len());
    for entry in &managed.entries {
        let lost = if entry.manager.is(this) { Set::new() } else { entry.set.intersection(&written) };
        if !force {
            conflicts.extend(
                lost.paths().into_iter().map(|path| Conflict { manager: entry.manager.clone(), path }),
            );
        }
        taken.push(lost);
    }
    if !conflicts.is_empty() {
        conflicts.sort_by_cached_key(|c| c.manager.identity());
        return Err(ApplyError::Conflicts(conflicts));
    }
    for (entry, lost) in managed.entries.iter_mut().zip(taken) {
        entry.lose(&lost);
        // What the applier itself removed is not in its new set anyway.
        if !entry.manager.is(this) {
            entry.lose(&changes.removed);
        }
    }
    managed.entries.retain(|e| !e.set.is_empty());
    Ok(())
}

/// Gives a writer what it changed.
fn track_update(
    live: &Value,
    new: &Value,
    schema: &TypeRef,
    managed: &mut Managed,
    writer: Manager,
    now: &str,
    reset_fields: &Set,
) {
    // What cannot be compared (an element without its key) leaves everything as it was: a write must not fail for it.
    let Ok(changes) = compare(&schema.schema, schema.id, live, new) else { return };
    *managed = reconciled(std::mem::take(managed), schema, live);
    let filtered = changes.without(reset_fields);
    let touched = filtered.modified.union(&filtered.added).union(&filtered.removed);
    for entry in &mut managed.entries {
        entry.lose(&touched);
    }
    managed.entries.retain(|e| !e.set.is_empty());
    let own = strip(filtered.modified.union(&filtered.added));
    if !own.is_empty() && managed.entries.len() < 2 * MAX_MANAGERS {
        let set = managed.get(&writer).map_or_else(|| own.clone(), |e| e.set.union(&own));
        managed.put(Entry::new(writer, set, Some(now.to_owned())));
    }
    managed.cap_updates(MAX_UPDATE_MANAGERS, ANCIENT_CHANGES);
}

fn reconciled(mut managed: Managed, schema: &TypeRef, live: &Value) -> Managed {
    if !schema.is_deduced() {
        let reconciler = Reconciler::new(&schema.schema, schema.id, live);
        for entry in &mut managed.entries {
            let applied = entry.manager.operation == Operation::Apply;
            if let Some(set) = reconciler.reconcile(&entry.set, applied) {
                entry.set = set;
                entry.source = Source::default();
            }
        }
    }
    managed
}

fn without(set: Set, excluded: &Set) -> Set {
    if excluded.is_empty() { set } else { set.recursive_difference(excluded) }
}

/// What is never owned: it says which object this is, or the server sets it.
fn strip(mut set: Set) -> Set {
    use std::sync::LazyLock;
    static STRIPPED: LazyLock<Set> = LazyLock::new(|| {
        Set::of_fields(&[
            "apiVersion",
            "kind",
            "metadata",
            "metadata.name",
            "metadata.namespace",
            "metadata.creationTimestamp",
            "metadata.selfLink",
            "metadata.uid",
            "metadata.clusterName",
            "metadata.generation",
            "metadata.managedFields",
            "metadata.resourceVersion",
        ])
    });
    set.subtract(&STRIPPED);
    set
}

fn strip_meta(managed: &mut Managed, of: &Manager) {
    if let Some(entry) = managed.entries.iter_mut().find(|e| e.manager.is(of)) {
        entry.set = strip(std::mem::take(&mut entry.set));
    }
    managed.entries.retain(|e| !e.set.is_empty());
}

/// `namespace/name; group/version, Kind=kind`.
fn describe(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!(
        "{}/{}; {group}/{version}, Kind={}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind")
    )
}

#[cfg(test)]
mod tests;
