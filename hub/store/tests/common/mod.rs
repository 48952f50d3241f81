//! A model of the store: the list of everything that happened, from which any state can be told.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use karmada_env::{Env, ManualClock};
use karmada_store::{
    CommitError, Dictionary, EventKind, Expect, HistoryLimits, Key, Op, Options, Seal, Snapshot, Store, Watch,
};
use proptest::prelude::*;

/// Updates of this resource may be relaxed.
pub(crate) const LEASES: &str = "leases";
/// Of this one they are not.
pub(crate) const WORKS: &str = "works";

/// What happened at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) revision: u64,
    pub(crate) kind: EventKind,
    pub(crate) key: Key,
    pub(crate) value: Bytes,
    pub(crate) created: u64,
    pub(crate) prev: Option<(u64, Bytes)>,
    /// A crash may take it back.
    pub(crate) relaxed: bool,
}

/// Value, revision and creation revision of each key.
pub(crate) type Values = BTreeMap<Key, (Bytes, u64, u64)>;

/// Everything that happened, and where the next revision comes from.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) events: Vec<Happened>,
    pub(crate) revision: u64,
}

/// One operation, in terms of what the model knows.
#[derive(Clone, Debug)]
pub(crate) struct OpSpec {
    pub(crate) key: Key,
    pub(crate) expect: ExpectSpec,
    pub(crate) delete: bool,
    pub(crate) value: Bytes,
    pub(crate) relaxed: bool,
    /// A deletion whose last value is the stored one.
    pub(crate) as_stored: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectSpec {
    Absent,
    Current,
    Stale,
    Any,
}

pub(crate) fn keys() -> impl Strategy<Value = Key> {
    let parts = (prop::sample::select(vec![WORKS, LEASES]), "[ab]?", "[xy]");
    parts.prop_map(|(resource, namespace, name)| Key::new(resource, namespace, name))
}

pub(crate) fn ops() -> impl Strategy<Value = OpSpec> {
    let expect = prop_oneof![
        1 => Just(ExpectSpec::Absent),
        4 => Just(ExpectSpec::Current),
        1 => Just(ExpectSpec::Stale),
        4 => Just(ExpectSpec::Any),
    ];
    // Mostly small values, some that need several pages.
    let len = prop_oneof![8 => 0..40usize, 1 => 3000..9000usize];
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.7), any::<bool>());
    (keys(), expect, flags, len, any::<u8>()).prop_map(|(key, expect, flags, len, fill)| {
        let (delete, relaxed, as_stored) = flags;
        OpSpec { key, expect, delete, value: vec![fill; len].into(), relaxed, as_stored }
    })
}

/// Seals by something that nobody should rely on: each bit turned, behind a mark and the key that it belongs to.
#[derive(Debug, Default)]
#[allow(dead_code, reason = "not all tests seal")]
pub(crate) struct Toy {
    /// Values of this resource alone; none: of all.
    pub(crate) only: Option<&'static str>,
    /// Without this nothing is unsealed.
    pub(crate) locked: bool,
}

#[allow(dead_code, reason = "not all tests seal")]
const SEALED: &[u8] = b"\0toy";

impl Seal for Toy {
    fn covers(&self, resource: &str) -> bool {
        self.only.is_none_or(|only| only == resource)
    }

    fn seal(&self, key: &Key, value: &Bytes) -> Bytes {
        if !self.covers(&key.resource) {
            return value.clone();
        }
        let key = key.to_string();
        let head = SEALED.iter().copied().chain([key.len() as u8]).chain(key.bytes());
        head.chain(value.iter().map(|byte| !byte)).collect()
    }

    fn unseal(&self, key: &Key, kept: Bytes) -> Result<Bytes, String> {
        let Some(rest) = kept.strip_prefix(SEALED) else { return Ok(kept) };
        let name = key.to_string();
        match rest.get(1..1 + name.len()) {
            Some(of) if of == name.as_bytes() && !self.locked => {
                Ok(rest[1 + name.len()..].iter().map(|byte| !byte).collect())
            }
            _ => Err(format!("{key} cannot be unsealed")),
        }
    }
}

pub(crate) fn env() -> Env {
    Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 1)
}

/// Works that are not short are packed.
static WORDS: Dictionary = Dictionary::new(b"what many values say");

/// Options with little history, so that trimming is always at work, and with values of both forms.
pub(crate) fn options(history_bytes: usize) -> Options {
    Options {
        history: HistoryLimits {
            age: |_| Duration::MAX,
            bytes: usize::MAX,
            least: Duration::ZERO,
            most: history_bytes,
        },
        relaxed: |resource| resource == LEASES,
        packs: |resource| (resource == WORKS).then_some(&WORDS),
        ..Options::default()
    }
}

impl Model {
    pub(crate) fn new() -> Self {
        Self { events: Vec::new(), revision: 1 }
    }

    pub(crate) fn values_at(&self, revision: u64) -> Values {
        let mut values = Values::new();
        for e in self.events.iter().take_while(|e| e.revision <= revision) {
            match e.kind {
                EventKind::Put => {
                    drop(values.insert(e.key.clone(), (e.value.clone(), e.revision, e.created)))
                }
                EventKind::Delete => drop(values.remove(&e.key)),
            }
        }
        values
    }

    /// Whether anything ever happened to a resource.
    #[allow(dead_code, reason = "not all tests ask")]
    pub(crate) fn has(&self, resource: &str) -> bool {
        self.events.iter().any(|e| *e.key.resource == *resource)
    }

    /// What a watch of a resource from a revision is told.
    pub(crate) fn since(&self, resource: &str, from: u64) -> Vec<Happened> {
        let told = self.events.iter().filter(|e| *e.key.resource == *resource && e.revision > from);
        told.map(|e| Happened { relaxed: false, ..e.clone() }).collect()
    }

    /// Whether this may be on disk when everything up to `durable` is, and everything up to `flushed` relaxed updates
    /// included.
    #[allow(dead_code, reason = "not all tests have disks")]
    pub(crate) fn may_leave(&self, found: &Values, durable: u64, flushed: u64) -> bool {
        let mut sure = Values::new();
        let mut perhaps: BTreeMap<Key, Vec<(Bytes, u64, u64)>> = BTreeMap::new();
        for e in self.events.iter().take_while(|e| e.revision <= durable) {
            let now = (e.value.clone(), e.revision, e.created);
            if e.relaxed && e.revision > flushed {
                perhaps.entry(e.key.clone()).or_default().push(now);
                continue;
            }
            perhaps.remove(&e.key);
            match e.kind {
                EventKind::Put => drop(sure.insert(e.key.clone(), now)),
                EventKind::Delete => drop(sure.remove(&e.key)),
            }
        }
        sure.len() == found.len()
            && sure.iter().all(|(key, value)| {
                let later = perhaps.get(key).into_iter().flatten();
                found
                    .get(key)
                    .is_some_and(|found| found == value || later.clone().any(|later| later == found))
            })
    }

    /// The operations as the store takes them, and whether they should go through; applies them if so.
    pub(crate) fn apply(&mut self, specs: &[OpSpec]) -> (Vec<Op>, bool) {
        let mut values = self.values_at(self.revision);
        let (mut revision, mut events, mut ops, mut good) = (self.revision, Vec::new(), Vec::new(), true);
        let mut relaxed = true;
        for spec in specs {
            let found = values.get(&spec.key).cloned();
            let current = found.as_ref().map(|(_, revision, _)| *revision);
            let (expect, holds) = match spec.expect {
                ExpectSpec::Absent => (Expect::Absent, found.is_none()),
                ExpectSpec::Current => {
                    current.map_or((Expect::Absent, true), |r| (Expect::At(r.into()), true))
                }
                ExpectSpec::Stale => (Expect::At(current.map_or(1, |r| r - 1).into()), false),
                ExpectSpec::Any => (Expect::Any, true),
            };
            let value = match &found {
                Some((stored, ..)) if spec.delete && spec.as_stored => stored.clone(),
                _ => spec.value.clone(),
            };
            let (key, last) = (spec.key.clone(), value.clone());
            let op = if spec.delete { Op::delete(key, expect, last) } else { Op::put(key, expect, last) };
            ops.push(if spec.relaxed { op.relaxed() } else { op });
            relaxed &= spec.relaxed && !spec.delete && found.is_some() && *spec.key.resource == *LEASES;
            good &= holds && !(spec.delete && found.is_none());
            if !good {
                continue;
            }
            revision += 1;
            let created = found.as_ref().map_or(revision, |(_, _, created)| *created);
            let kind = if spec.delete { EventKind::Delete } else { EventKind::Put };
            match kind {
                EventKind::Put => {
                    drop(values.insert(spec.key.clone(), (spec.value.clone(), revision, created)))
                }
                EventKind::Delete => drop(values.remove(&spec.key)),
            }
            let prev = found.map(|(value, revision, _)| (revision, value));
            events.push(Happened {
                revision,
                kind,
                key: spec.key.clone(),
                value,
                created,
                prev,
                relaxed: false,
            });
        }
        if good {
            self.revision = revision;
            self.events.extend(events.into_iter().map(|event| Happened { relaxed, ..event }));
        }
        (ops, good)
    }
}

pub(crate) fn values_of(snapshot: &Snapshot<()>) -> Values {
    let entries = snapshot.resources().flat_map(|resource| snapshot.range(resource, None, None));
    entries.map(|e| (e.key.clone(), (e.value.get(), e.revision.get(), e.create_revision.get()))).collect()
}

/// Reads what a watch has to tell now.
pub(crate) fn drain(watch: &mut Watch<()>) -> Vec<Happened> {
    let mut out = Vec::new();
    while let Ok(Some(e)) = watch.try_next() {
        out.push(Happened {
            revision: e.revision().get(),
            kind: e.kind,
            key: e.key().clone(),
            value: e.entry.value.get(),
            created: e.entry.create_revision.get(),
            prev: e.prev.as_ref().map(|p| (p.revision.get(), p.value.get())),
            relaxed: false,
        });
    }
    out
}

/// Commits to both; they must agree on whether it goes through and on the revisions.
pub(crate) async fn commit(store: &Store<()>, model: &mut Model, specs: &[OpSpec]) {
    let before = model.revision;
    let (ops, good) = model.apply(specs);
    match store.commit(ops).await {
        Ok(committed) => {
            assert!(good, "{specs:?} went through");
            let revisions: Vec<u64> = committed.entries.iter().map(|e| e.revision.get()).collect();
            assert_eq!(revisions, (before + 1..=model.revision).collect::<Vec<_>>());
        }
        Err(CommitError::Conflict { .. }) => assert!(!good, "{specs:?} did not go through"),
        Err(other) => panic!("{other}"),
    }
}
