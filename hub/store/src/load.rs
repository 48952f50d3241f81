//! From what an engine has kept to what readers see: the state, the history rebuilt from the undo log, and where
//! the new run begins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_env::Env;

use crate::{
    boot::{Boot, Boots},
    engine::{Batch, Change, Engine, EngineError, Forget, Image, Marks, Stored},
    entry::{Account, Entry, Event, EventKind, Project},
    history::{History, Trimmed},
    key::{Key, Revision},
    state::State,
    value::{self, Packs, Value},
};

/// A store as it was read back.
pub(crate) struct Loaded<H> {
    pub(crate) state: State<H>,
    pub(crate) history: History<H>,
    pub(crate) boots: Boots,
    pub(crate) marks: Marks,
}

/// Where an empty store begins: 0 means "anything" to Kubernetes' clients.
const FIRST: Revision = Revision::new(1);

/// Reads the store back and begins a new run.
pub(crate) fn load<P: Project>(
    engine: &mut dyn Engine,
    projection: &P,
    env: &Env,
    (relaxed, packs): (fn(&str) -> bool, Packs),
) -> Result<Loaded<P::Header>, EngineError> {
    let Image { objects, log, marks: kept, base, forgotten, boots, .. } =
        engine.load(&mut |key, plain| value::keep(packs, key, plain))?;
    // Of resources with relaxed updates nobody knows what was lost: their history begins anew with the run.
    let known = forgotten.iter().map(|(mark, _)| Forget::of_mark(mark).0);
    let known = known.chain(objects.iter().map(|(key, _)| key.resource.clone()));
    let mut unlogged: BTreeMap<Arc<str>, Vec<Revision>> =
        known.filter(|resource| relaxed(resource)).map(|resource| (resource, Vec::new())).collect();
    let mut trimmed = Trimmed::new(base, forgotten);
    let furthest = trimmed.furthest();
    if furthest > kept.revision {
        let at = kept.revision;
        return Err(EngineError::Corrupt(format!("it is at revision {at} and has forgotten {furthest}")));
    }
    let (marks, boots) = begin(kept, boots, env)?;
    let mut accounts: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut entry =
        |key: &Key, Stored { revision, created, value }: Stored<Value>, after: Option<&Entry<P::Header>>| {
            let mut header = projection.project(key, &value.get());
            if let Some(after) = after {
                projection.share(&mut header, &after.header);
            }
            let account = projection.account(key, &header).map(|Account { name, .. }| {
                // One name for all that counts for it.
                let known = accounts.get(&name).cloned();
                known.unwrap_or_else(|| {
                    accounts.insert(name.clone());
                    name
                })
            });
            Arc::new(Entry { key: key.clone(), revision, create_revision: created, value, header, account })
        };

    let mut state = State::empty(marks.revision);
    for (key, stored) in objects {
        if stored.revision > kept.revision || stored.created > stored.revision {
            return Err(disagree(&key, stored.revision));
        }
        let key = state.sharing(key);
        state.insert(entry(&key, stored, None));
    }

    // Backwards through the log: what a put stored is what the key has now, and after taking the put back the key
    // has what the log says was there before.
    let mut past = state.clone();
    let mut events = Vec::with_capacity(log.len());
    for record in log.into_iter().rev() {
        let (key, revision) = (&record.key, record.revision);
        if relaxed(&key.resource) {
            unlogged.entry(key.resource.clone()).or_default().push(revision);
            continue;
        }
        if revision <= trimmed.of_key(key) || revision > kept.revision {
            return Err(disagree(key, revision));
        }
        let prev = record.prev.map(|stored| entry(key, stored, past.get_key(key).map(|after| &**after)));
        let (kind, new) = match (record.change, &prev) {
            (Change::Put, _) => {
                let new = past.get_key(key).filter(|e| e.revision == revision).cloned();
                (EventKind::Put, new.ok_or_else(|| disagree(key, revision))?)
            }
            (Change::Delete(last), Some(prev)) if past.get_key(key).is_none() => {
                // A last value that is the one before is kept once.
                let value = last.unwrap_or_else(|| prev.value.clone());
                let created = prev.create_revision;
                (EventKind::Delete, entry(key, Stored { revision, created, value }, Some(&**prev)))
            }
            (Change::Delete(_), _) => return Err(disagree(key, revision)),
        };
        let event = Arc::new(Event { kind, entry: new, prev });
        past.undo(&event);
        events.push(event);
    }
    let forget: Vec<Forget> = unlogged
        .into_iter()
        .map(|(resource, revisions)| Forget { resource, part: None, up_to: marks.revision, revisions })
        .collect();
    trimmed.forget(&forget);
    let mut history = History::new(trimmed);
    events.into_iter().rev().for_each(|event| history.push(event, env.now()));

    engine.write(&Batch { marks, forget, boots: Some(boots.0.clone()), ..Batch::default() })?;
    Ok(Loaded { state, history, boots, marks })
}

fn disagree(key: &Key, revision: Revision) -> EngineError {
    EngineError::Corrupt(format!("log and values disagree at revision {revision} ({key})"))
}

/// The numbers and the list of runs with which a new run begins.
fn begin(kept: Marks, mut boots: Vec<Boot>, env: &Env) -> Result<(Marks, Boots), EngineError> {
    if kept.revision > kept.reserved {
        return Err(EngineError::Corrupt(format!(
            "its revisions are out of order: {}, {}",
            kept.revision, kept.reserved
        )));
    }
    let revision = match boots.last_mut() {
        None => FIRST,
        Some(last) => {
            last.last = kept.revision;
            last.reserved = kept.reserved;
            // Revisions up to the reserved one may have been seen; the state of this one has not.
            if kept.reserved > kept.revision { kept.reserved.next() } else { kept.revision }
        }
    };
    // Drawn again if it was there before, as in a test that restarts from the same seed.
    let fresh = |id: &String| boots.iter().all(|b| b.id != *id);
    let id = std::iter::repeat_with(|| env.uuid())
        .find(fresh)
        .expect("an endless sequence of random ids has a new one");
    boots.push(Boot { id, first: revision, last: revision, reserved: revision });
    let excess = boots.len().saturating_sub(Boots::KEPT);
    boots.drain(..excess);
    Ok((Marks { revision, reserved: revision }, Boots(boots)))
}
