//! What commits come to, and what makes it durable. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Made, Prepared};
use crate::{
    boot::Boot,
    engine::{Batch, Change, Forget, Image, LogRecord, Marks, Stored},
    entry::{Committed, Entry, Event, EventKind, Guard},
    error::CommitError,
    history::History,
    key::{Key, Revision},
    quota::{Terms, Used},
    state::State,
    value::Value,
};

/// Whether all of these hold.
pub(super) fn check<H>(state: &State<H>, guards: &[Guard]) -> Result<(), CommitError<H>> {
    let holds = |guard: &Guard| match guard {
        Guard::Holds(key, expect) => expect.holds(state.get_key(key).map(|entry| entry.revision)),
        Guard::Empty { namespace, resources } => {
            resources.iter().all(|resource| state.is_empty_in(resource, namespace.as_deref()))
        }
    };
    match guards.iter().position(|guard| !holds(guard)) {
        Some(guard) => Err(CommitError::Unmet { guard }),
        None => Ok(()),
    }
}

type Applied<H> = ((State<H>, Used), Committed<H>, Vec<Made<H>>);

/// The state after a commit and what it takes, or why it cannot be.
pub(super) fn apply<H>(
    (state, before): (&State<H>, &Used),
    ops: Vec<Prepared<H>>,
    quota: u64,
    terms: Terms,
) -> Result<Applied<H>, CommitError<H>> {
    let (mut state, mut used) = (state.clone(), before.clone());
    let mut accounts = Vec::new();
    let mut entries = Vec::with_capacity(ops.len());
    let mut events = Vec::with_capacity(ops.len());
    // As a whole or not at all, also after a crash.
    let mut relaxed = true;
    for (op, prepared) in ops.into_iter().enumerate() {
        let found = state.get_key(&prepared.key).cloned();
        let holds = prepared.expect.holds(found.as_ref().map(|entry| entry.revision));
        // There is nothing to delete where there is nothing.
        if !holds || (prepared.kind == EventKind::Delete && found.is_none()) {
            return Err(CommitError::Conflict { op, found });
        }
        relaxed &= prepared.relaxed && prepared.kind == EventKind::Put && found.is_some();
        let revision = state.revision().next();
        state.set_revision(revision);
        let entry = Arc::new(Entry {
            // All revisions of a value share one key.
            key: found.as_ref().map_or_else(|| state.sharing(prepared.key), |e| e.key.clone()),
            revision,
            create_revision: found.as_ref().map_or(revision, |e| e.create_revision),
            value: prepared.value,
            header: prepared.header,
            account: prepared.account.as_ref().map(|account| used.named(&account.name)),
        });
        accounts.extend(prepared.account);
        if let Some(found) = &found {
            used.take(found);
        }
        match prepared.kind {
            EventKind::Put => {
                used.add(&entry);
                state.insert(entry.clone());
            }
            EventKind::Delete => drop(state.remove(&entry.key)),
        }
        events.push(Arc::new(Event { kind: prepared.kind, entry: entry.clone(), prev: found }));
        entries.push(entry);
    }
    before.allow(&used, quota, terms, &accounts).map_err(CommitError::Quota)?;
    let made = events.into_iter().map(|event| Made { event, relaxed }).collect();
    Ok(((state, used), Committed { entries }, made))
}

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Draft {
    objects: BTreeMap<Key, Option<Stored>>,
    log: Vec<LogRecord>,
    /// Of these resources changes up to there are not in the log.
    unlogged: BTreeMap<Arc<str>, Revision>,
}

fn stored<H>(entry: &Entry<H>) -> Stored<Value> {
    Stored { revision: entry.revision, created: entry.create_revision, value: entry.value.clone() }
}

/// What the log says of a change.
fn record<H>(event: &Event<H>) -> LogRecord<Value> {
    let change = match event.kind {
        EventKind::Put => Change::Put,
        EventKind::Delete => {
            let stored_last = event.prev.as_ref().is_some_and(|p| p.value.is(&event.entry.value));
            Change::Delete((!stored_last).then(|| event.entry.value.clone()))
        }
    };
    let prev = event.prev.as_deref().map(stored);
    LogRecord { revision: event.revision(), key: event.key().clone(), change, prev }
}

impl Draft {
    /// These changes. Of resources that may have relaxed updates nothing is logged: a log with gaps is none.
    pub(super) fn of<'a, H: 'a>(
        events: impl IntoIterator<Item = &'a Event<H>>,
        relaxed: fn(&str) -> bool,
    ) -> Self {
        let mut draft = Self::default();
        for event in events {
            let key = event.key();
            let now = (event.kind == EventKind::Put).then(|| stored(&event.entry).plain());
            draft.objects.insert(key.clone(), now);
            if relaxed(&key.resource) {
                draft.skip_log(key, event.revision());
            } else {
                draft.log.push(record(event).plain());
            }
        }
        draft
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// A value whose changes are not logged.
    pub(super) fn put_without_log<H>(&mut self, entry: &Entry<H>) {
        self.objects.insert(entry.key.clone(), Some(stored(entry).plain()));
        self.skip_log(&entry.key, entry.revision);
    }

    fn skip_log(&mut self, key: &Key, revision: Revision) {
        let up_to = self.unlogged.entry(key.resource.clone()).or_default();
        *up_to = revision.max(*up_to);
    }

    pub(super) fn into_batch(self, marks: Marks, forget: &[Forget]) -> Batch {
        let skipped = self.unlogged.into_iter().map(|(resource, up_to)| Forget {
            resource,
            part: None,
            up_to,
            revisions: Vec::new(),
        });
        Batch {
            objects: self.objects.into_iter().collect(),
            log: self.log,
            marks,
            forget: forget.iter().cloned().chain(skipped).collect(),
            boots: None,
        }
    }
}

/// Everything there is, as memory has it: what is packed takes no more room for it.
pub(super) fn image<H>(
    state: &State<H>,
    history: &History<H>,
    marks: Marks,
    boots: Vec<Boot>,
    relaxed: fn(&str) -> bool,
) -> Image {
    let (base, mut forgotten) = history.trimmed().marks();
    // What has no log is forgotten up to now, whatever can still be watched.
    forgotten.retain(|(mark, _)| !relaxed(&Forget::of_mark(mark).0));
    let unlogged = state.resources().chain(history.resources()).filter(|resource| relaxed(resource));
    let unlogged: BTreeSet<_> = unlogged.cloned().collect();
    forgotten.extend(unlogged.into_iter().map(|resource| (resource, marks.revision)));
    let logged = history.events().filter(|event| !relaxed(&event.key().resource));
    Image {
        objects: state.entries().map(|entry| (entry.key.clone(), stored(entry))).collect(),
        log: logged.map(|event| record(event)).collect(),
        marks,
        base,
        forgotten,
        boots,
        sealed: false,
        seal: None,
    }
}
