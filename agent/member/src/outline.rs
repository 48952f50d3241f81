//! What is wanted of the member and how far it is, for whoever asks the agent at the machine: computed when it is asked for,
//! of what is known anyway. Nothing of manifests' contents is in it, only what objects are called.

use std::sync::Arc;

use karmada_meta::time::Time;
use serde::{Deserialize, Serialize};

use crate::{
    Member,
    works::desired::{DesiredWork, Manifest},
};

/// How many of a Work's objects are named.
const NAMED: usize = 4;

/// How a Work stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stands {
    /// Something of it could not be done, and is tried again.
    Failing,
    /// A change of it waits, or its deletion.
    Held,
    /// Somebody on the member changes it back as often as it is corrected.
    Contested,
    /// It is to go, and has not yet.
    Going,
    /// It was not carried out yet.
    Waiting,
    /// The hub wants it left as it is.
    Suspended,
    /// All of it was applied as it is wanted.
    Applied,
}

impl Stands {
    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Held => "held",
            Self::Contested => "contested",
            Self::Going => "going",
            Self::Waiting => "waiting",
            Self::Suspended => "suspended",
            Self::Applied => "applied",
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// So many Works at most.
    pub limit: usize,
    /// Those that come after this one, by name.
    pub after: Option<String>,
    /// Also those that are applied.
    pub all: bool,
}

/// How many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub works: usize,
    /// Objects that Works hold.
    pub objects: usize,
    /// Of these, those that were applied as they are wanted.
    pub objects_applied: usize,
    pub applied: usize,
    pub failing: usize,
    pub held: usize,
    pub contested: usize,
    pub waiting: usize,
    pub going: usize,
    pub suspended: usize,
}

/// One Work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub work: String,
    pub stands: Stands,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// How many objects it holds.
    pub objects: usize,
    /// How many of them were applied as they are wanted.
    pub applied: usize,
    /// What the first of them are called: `Deployment shop/web`.
    pub names: Vec<String>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    pub counts: Counts,
    /// By name.
    pub works: Vec<Row>,
    /// After which Work the list goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Member {
    /// How what is wanted stands.
    pub fn outline(&self, ask: &Ask) -> Outline {
        let mut outline = Outline::default();
        for work in self.executor.desired.all() {
            let row = self.row(&work);
            outline.counts.add(&row);
            let is_asked_for = (ask.all || row.stands != Stands::Applied)
                && ask.after.as_ref().is_none_or(|after| row.work > *after);
            if !is_asked_for {
                continue;
            }
            if outline.works.len() < ask.limit {
                outline.works.push(row);
            } else if outline.next.is_none() {
                outline.next = outline.works.last().map(|last| last.work.clone());
            }
        }
        outline
    }

    fn row(&self, work: &Arc<DesiredWork>) -> Row {
        let executor = &self.executor;
        let applied =
            work.manifests.iter().filter(|manifest| executor.applier.has_applied(&work.name, manifest));
        let (applied, objects) = (applied.count(), work.manifests.len());
        let note = executor.notes.of(&work.name);
        let stands = if let Some(note) = &note {
            note.stands
        } else if work.deleting {
            Stands::Going
        } else if work.suspended {
            Stands::Suspended
        } else if applied == objects {
            Stands::Applied
        } else {
            Stands::Waiting
        };
        let since = note.as_ref().map(|note| note.since);
        let why = note.map(|note| note.why).unwrap_or_default();
        let names = work.manifests.iter().take(NAMED).map(name).collect();
        Row { work: work.name.clone(), stands, why, since, objects, applied, names }
    }
}

fn name(manifest: &Manifest) -> String {
    format!("{} {}", manifest.id.kind, manifest.id.path())
}

impl Counts {
    fn add(&mut self, row: &Row) {
        self.works += 1;
        self.objects += row.objects;
        self.objects_applied += row.applied;
        *match row.stands {
            Stands::Failing => &mut self.failing,
            Stands::Held => &mut self.held,
            Stands::Contested => &mut self.contested,
            Stands::Going => &mut self.going,
            Stands::Waiting => &mut self.waiting,
            Stands::Suspended => &mut self.suspended,
            Stands::Applied => &mut self.applied,
        } += 1;
    }
}
