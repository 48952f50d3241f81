//! What was written and acknowledged, kept outside of everything that is killed: in this process, and in a file.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    path::Path,
    sync::mpsc,
    thread::JoinHandle,
};

use karmada_env::Env;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What a revision of the hub meant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Meaning {
    /// Collection and name.
    object: String,
    deleted: bool,
    /// Of the object's content.
    print: u64,
}

/// What an acknowledgement promised.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    /// The collection, as feeds call it.
    pub scope: &'static str,
    pub name: String,
    pub revision: u64,
}

#[derive(Default)]
struct Kept {
    revisions: BTreeMap<u64, Meaning>,
    newest: u64,
    values: BTreeSet<String>,
    deletions: BTreeMap<String, u64>,
    promises: Vec<Promise>,
    wrong: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
}

/// See the module.
pub(super) struct Journal {
    kept: Mutex<Kept>,
    failed: CancellationToken,
    env: Env,
    lines: Option<mpsc::Sender<String>>,
    file: Option<JoinHandle<io::Result<()>>>,
}

impl Journal {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let (lines, queue) = mpsc::channel::<String>();
        // A thread of its own: one sync for all lines that came during the last one.
        let file = std::thread::spawn(move || {
            while let Ok(first) = queue.recv() {
                let text: String = std::iter::once(first).chain(queue.try_iter()).collect();
                file.write_all(text.as_bytes())?;
                file.sync_data()?;
            }
            Ok(())
        });
        Ok(Self {
            kept: Mutex::default(),
            failed: CancellationToken::new(),
            env: Env::system(),
            lines: Some(lines),
            file: Some(file),
        })
    }

    /// Writes a line to the file.
    pub(super) fn line(&self, mut entry: Value) {
        entry["ms"] = json!(self.env.now().as_millis() as u64);
        if let Some(lines) = &self.lines {
            // The thread ends early only if the disk is full; the journal in memory goes on.
            let _ = lines.send(format!("{entry}\n"));
        }
    }

    /// Something is not as it must be. The first ends the run.
    pub(super) fn wrong(&self, what: impl Into<String>) {
        let what = what.into();
        self.line(json!({ "wrong": what }));
        self.kept.lock().wrong.push(what);
        self.failed.cancel();
    }

    /// Cancelled when something was wrong.
    pub(super) const fn failed(&self) -> &CancellationToken {
        &self.failed
    }

    pub(super) fn all_wrong(&self) -> Vec<String> {
        self.kept.lock().wrong.clone()
    }

    pub(super) fn count(&self, what: &'static str) {
        *self.kept.lock().counts.entry(what).or_default() += 1;
    }

    pub(super) fn counted(&self, what: &str) -> u64 {
        self.kept.lock().counts.get(what).copied().unwrap_or_default()
    }

    /// A write is about to be sent. Answers the newest revision that anybody has seen: the write's must be newer.
    pub(super) fn begin(&self, writer: usize, verb: &str, object: &str, value: &str) -> u64 {
        self.line(json!({ "writer": writer, "verb": verb, "object": object, "value": value }));
        let mut kept = self.kept.lock();
        kept.values.insert(value.to_owned());
        if verb == "delete" {
            *kept.deletions.entry(object.to_owned()).or_default() += 1;
        }
        kept.newest
    }

    /// It was acknowledged: from now on it must be there.
    pub(super) fn acknowledged(&self, writer: usize, value: &str, promise: Option<Promise>) {
        let revision = promise.as_ref().map(|p| p.revision);
        self.line(json!({ "writer": writer, "value": value, "acknowledged": revision }));
        self.count("acknowledged");
        self.kept.lock().promises.extend(promise);
    }

    /// It has no answer: it may have happened or not.
    pub(super) fn unanswered(&self, writer: usize, value: &str, why: &str) {
        self.line(json!({ "writer": writer, "value": value, "unanswered": why }));
        self.count("unanswered");
    }

    /// It was refused: it has not happened.
    pub(super) fn refused(&self, writer: usize, value: &str, why: &str) {
        self.line(json!({ "writer": writer, "value": value, "refused": why }));
        self.count("refused");
    }

    pub(super) fn promises(&self) -> Vec<Promise> {
        self.kept.lock().promises.clone()
    }

    /// Whether some writer ever wrote, or began to write, this value.
    pub(super) fn knows(&self, value: &str) -> bool {
        self.kept.lock().values.contains(value)
    }

    /// How many deletions of an object were begun.
    pub(super) fn deletions(&self, object: &str) -> u64 {
        self.kept.lock().deletions.get(object).copied().unwrap_or_default()
    }

    /// The newest revision of the hub that anybody has seen.
    pub(super) fn newest(&self) -> u64 {
        self.kept.lock().newest
    }

    /// The hub said where it stands.
    pub(super) fn stands_at(&self, revision: u64) {
        let mut kept = self.kept.lock();
        kept.newest = kept.newest.max(revision);
    }

    /// The hub showed an object at a revision. A revision means one thing, for ever and for everybody.
    pub(super) fn seen(&self, scope: &str, object: &Value, deleted: bool) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let Some(revision) = revision_of(object) else {
            return self.wrong(format!("{scope}/{name} has no revision"));
        };
        let meaning = Meaning { object: format!("{scope}/{name}"), deleted, print: fingerprint(object) };
        let before = {
            let mut kept = self.kept.lock();
            kept.newest = kept.newest.max(revision);
            match kept.revisions.entry(revision) {
                btree_map::Entry::Vacant(free) => {
                    free.insert(meaning);
                    return;
                }
                btree_map::Entry::Occupied(taken) if *taken.get() == meaning => return,
                btree_map::Entry::Occupied(taken) => taken.get().clone(),
            }
        };
        self.wrong(format!("revision {revision} was {before:?} and is {meaning:?}: {object}"));
    }

    /// How many revisions were seen.
    pub(super) fn revisions(&self) -> usize {
        self.kept.lock().revisions.len()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(Err(error)) = self.file.take().and_then(|thread| thread.join().ok()) {
            eprintln!("the journal's file is not complete: {error}");
        }
    }
}

/// The revision that an object, or a list, carries.
pub(super) fn revision_of(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// A number of an object's content, whatever the order of its fields. Items of lists carry no type.
fn fingerprint(object: &Value) -> u64 {
    fn feed(value: &Value, into: &mut DefaultHasher) {
        match value {
            Value::Object(fields) => {
                let sorted: BTreeMap<_, _> = fields.iter().collect();
                sorted.len().hash(into);
                for (field, value) in sorted {
                    field.hash(into);
                    feed(value, into);
                }
            }
            Value::Array(items) => {
                items.len().hash(into);
                items.iter().for_each(|item| feed(item, into));
            }
            other => other.to_string().hash(into),
        }
    }
    let mut hasher = DefaultHasher::new();
    for (field, value) in object.as_object().into_iter().flatten().collect::<BTreeMap<_, _>>() {
        if field != "apiVersion" && field != "kind" {
            field.hash(&mut hasher);
            feed(value, &mut hasher);
        }
    }
    hasher.finish()
}
