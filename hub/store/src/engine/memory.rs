//! Keeps batches in memory. Clones share what is kept, so a store opened on a clone is the same store restarted.

use std::{collections::BTreeMap, io::Read, sync::Arc};

use karmada_env::Env;
use parking_lot::Mutex;

use super::{Batch, Engine, EngineError, Found, Image, Keep, LogRecord, Marks, Stored, sealed};
use crate::{
    boot::Boot,
    copy::{CopyError, Incoming},
    key::{Key, Revision},
};

#[derive(Debug, Default)]
struct Kept {
    objects: BTreeMap<Key, Stored>,
    log: BTreeMap<Revision, LogRecord>,
    marks: Marks,
    base: Revision,
    forgotten: BTreeMap<Arc<str>, Revision>,
    boots: Vec<Boot>,
}

/// An engine in memory.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Kept>>);

impl Memory {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Memory {
    /// One that holds what a copy has.
    ///
    /// # Errors
    /// When the copy cannot be read, or is not whole.
    pub fn restore<R: Read>(mut from: Incoming<R>, env: &Env) -> Result<Self, CopyError> {
        let (marks, boots) = from.begin_anew(env)?;
        let objects = from.by_ref().collect::<Result<_, _>>()?;
        let kept = Kept { objects, marks, base: marks.revision, boots, ..Kept::default() };
        Ok(Self(Arc::new(Mutex::new(kept))))
    }

    /// One of its own that holds what this one does now, and whose revisions go on from here: as an etcd is that was
    /// restored, which gives the revisions that were seen since to something else. A store of ours never is.
    pub fn as_it_is(&self) -> Self {
        let Kept { objects, log, marks, base, forgotten, boots } = &*self.0.lock();
        let marks = Marks { reserved: marks.revision, ..*marks };
        let kept = Kept {
            objects: objects.clone(),
            log: log.clone(),
            marks,
            base: *base,
            forgotten: forgotten.clone(),
            boots: boots.clone(),
        };
        Self(Arc::new(Mutex::new(kept)))
    }
}

impl Engine for Memory {
    fn location(&self) -> String {
        "in memory".to_owned()
    }

    fn load(&mut self, keep: Keep<'_>) -> Result<Image, EngineError> {
        let kept = self.0.lock();
        Ok(Image {
            objects: kept.objects.iter().map(|(k, v)| (k.clone(), v.clone().keep(k, keep))).collect(),
            log: kept.log.values().map(|record| record.clone().keep(keep)).collect(),
            marks: kept.marks,
            base: kept.base,
            forgotten: kept.forgotten.iter().map(|(name, up_to)| (name.clone(), *up_to)).collect(),
            boots: kept.boots.clone(),
            sealed: false,
            seal: None,
        })
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        let mut kept = self.0.lock();
        for (key, stored) in &batch.objects {
            match stored {
                Some(stored) => kept.objects.insert(key.clone(), stored.clone()),
                None => kept.objects.remove(key),
            };
        }
        kept.log.extend(batch.log.iter().map(|r| (r.revision, r.clone())));
        for forget in &batch.forget {
            for revision in &forget.revisions {
                kept.log.remove(revision);
            }
            let up_to = kept.forgotten.entry(forget.mark()).or_default();
            *up_to = forget.up_to.max(*up_to);
        }
        kept.marks = batch.marks;
        if let Some(boots) = &batch.boots {
            kept.boots.clone_from(boots);
        }
        Ok(())
    }

    fn in_doubt(&self) -> bool {
        false
    }

    fn reopen(&mut self) -> Result<Found, EngineError> {
        Ok(Found::At(self.0.lock().marks))
    }

    fn renew(&mut self, image: Image) -> Result<(), EngineError> {
        let Image { objects, log, marks, base, forgotten, boots, seal, .. } = image;
        *self.0.lock() = Kept {
            objects: objects
                .into_iter()
                .map(|(key, stored)| {
                    let stored = stored.plain();
                    let stored = match &seal {
                        Some(seal) => sealed::value(&**seal, &key, stored),
                        None => stored,
                    };
                    (key, stored)
                })
                .collect(),
            log: log
                .into_iter()
                .map(LogRecord::plain)
                .map(|record| match &seal {
                    Some(seal) => sealed::record(&**seal, record),
                    None => record,
                })
                .map(|record| (record.revision, record))
                .collect(),
            marks,
            base,
            forgotten: forgotten.into_iter().collect(),
            boots,
        };
        Ok(())
    }

    fn blocks(&self) -> bool {
        false
    }
}
