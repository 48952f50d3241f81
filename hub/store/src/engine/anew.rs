//! Tables that are written beside those in use, a piece at a time, and take their place when they have everything.
//!
//! ```text
//!   image ─▶ piece ─▶ piece ─▶ … ─▶ piece ─▶ last batches, in their place
//!               ▲        ▲            ▲
//!   batches that are written meanwhile, with the next piece
//! ```
//!
//! What a batch has stored or deleted since the image was made is not in a later piece, and of the log no record that one
//! has forgotten.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use redb::{Database, StorageBackend};

use super::{
    Batch, EngineError, Forget, Image, LogRecord, Marks, Stored,
    opening::beside,
    sealed,
    tables::{self, Mark},
    trust::Trust,
};
use crate::{
    key::{Key, Revision},
    seal::Seal,
    value::Value,
};

/// What an entry of a piece costs beside its value.
const OVERHEAD: usize = 128;

/// Tables on their way.
pub(super) struct Anew {
    pub(super) db: Database,
    /// Of their own disk: what goes wrong there says nothing of the one in use.
    pub(super) trust: Trust,
    log: VecDeque<LogRecord<Value>>,
    objects: std::vec::IntoIter<(Key, Stored<Value>)>,
    seal: Option<Arc<dyn Seal>>,
    /// What goes with the first piece.
    first: Option<Batch>,
    /// Written since the last piece.
    batches: Vec<Batch>,
    /// The numbers of the last batch.
    marks: Marks,
    touched: BTreeSet<Key>,
    forgotten: BTreeSet<Revision>,
}

impl Anew {
    /// Begins on an empty disk.
    pub(super) fn begin(disk: Box<dyn StorageBackend>, image: Image) -> Result<Self, EngineError> {
        let Image { objects, log, marks, base, forgotten, boots, sealed, seal } = image;
        let trust = Trust::default();
        let db = beside(trust.over(disk))?;
        tables::format(&db)?;
        if sealed {
            tables::set_sealed(&db)?;
        }
        tables::set_base(&db, base)?;
        let forget = forgotten.into_iter().map(|(mark, up_to)| {
            let (resource, part) = Forget::of_mark(&mark);
            Forget { resource, part, up_to, revisions: Vec::new() }
        });
        let first = Batch { marks, boots: Some(boots), forget: forget.collect(), ..Batch::default() };
        Ok(Self {
            db,
            trust,
            log: log.into(),
            objects: objects.into_iter(),
            seal,
            first: Some(first),
            batches: Vec::new(),
            marks,
            touched: BTreeSet::new(),
            forgotten: BTreeSet::new(),
        })
    }

    /// A batch was written to the tables in use.
    pub(super) fn also(&mut self, batch: &Batch) {
        if !self.has_image() {
            self.touched.extend(batch.objects.iter().map(|(key, _)| key.clone()));
            self.forgotten.extend(batch.forget.iter().flat_map(|forget| forget.revisions.iter().copied()));
        }
        self.marks = batch.marks;
        self.batches.push(batch.clone());
    }

    /// Whether nothing of the image is left to write.
    pub(super) fn has_image(&self) -> bool {
        self.first.is_none() && self.log.is_empty() && self.objects.len() == 0
    }

    /// Writes a piece of so many bytes, and what has been written since the last one.
    pub(super) fn piece(&mut self, bytes: usize) -> Result<(), EngineError> {
        let mut piece = self.first.take().unwrap_or_default();
        piece.marks = self.marks;
        let mut left = bytes;
        while left > 0 {
            let Some(record) = self.log.pop_front() else { break };
            if self.forgotten.contains(&record.revision) {
                continue;
            }
            let record = record.plain();
            let record = match &self.seal {
                Some(seal) => sealed::record(&**seal, record),
                None => record,
            };
            left = left.saturating_sub(record.weight() + OVERHEAD);
            piece.log.push(record);
        }
        while left > 0 {
            let Some((key, stored)) = self.objects.next() else { break };
            if self.touched.contains(&key) {
                continue;
            }
            let stored = stored.plain();
            let stored = match &self.seal {
                Some(seal) => sealed::value(&**seal, &key, stored),
                None => stored,
            };
            left = left.saturating_sub(stored.value.len() + key.len() + OVERHEAD);
            piece.objects.push((key, Some(stored)));
        }
        if self.has_image() {
            // What comes now is newer than all that is written.
            (self.touched, self.forgotten) = (BTreeSet::new(), BTreeSet::new());
        }
        let mut batches = vec![piece];
        batches.append(&mut self.batches);
        tables::write(&self.db, &batches, Mark { next: 1, open: false })
    }

    /// Writes what is left. The journal from `next` on does not count for it.
    pub(super) fn end(&mut self, next: u64) -> Result<(), EngineError> {
        debug_assert!(self.has_image(), "the image is written first");
        let batches = std::mem::take(&mut self.batches);
        tables::write(&self.db, &batches, Mark { next, open: false })
    }

    /// Values may be sealed from now on.
    pub(super) fn seals(&self) -> Result<(), EngineError> {
        tables::set_sealed(&self.db)
    }
}
