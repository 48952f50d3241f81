//! An engine that is given sealed values. Everything that an engine keeps comes by here: current values, what they took
//! the place of, and the last values of what was deleted.

use std::sync::Arc;

use super::{Batch, Change, Engine, EngineError, Found, Image, Keep, LogRecord, Stored};
use crate::{key::Key, seal::Seal};

pub(crate) struct Sealed {
    engine: Box<dyn Engine>,
    seal: Arc<dyn Seal>,
    /// The engine knows that values may be sealed.
    noted: bool,
    /// What is being written anew is sealed.
    anew: bool,
}

impl Sealed {
    pub(crate) fn new(engine: Box<dyn Engine>, seal: Arc<dyn Seal>) -> Self {
        Self { engine, seal, noted: false, anew: false }
    }

    /// What is to be kept, with how.
    fn to_seal(&self, mut image: Image) -> Image {
        let covers = |key: &Key| self.seal.covers(&key.resource);
        image.sealed = image.objects.iter().any(|(key, _)| covers(key))
            || image.log.iter().any(|record| covers(&record.key));
        image.seal = Some(self.seal.clone());
        image
    }

    fn note(&mut self) -> Result<(), EngineError> {
        if !self.noted {
            self.engine.seals()?;
            self.noted = true;
        }
        Ok(())
    }
}

fn stored(seal: &dyn Seal, key: &Key, stored: &Stored) -> Stored {
    let Stored { revision, created, value } = stored;
    Stored { revision: *revision, created: *created, value: seal.seal(key, value) }
}

/// A record of the log as it is to be kept.
pub(super) fn record(seal: &dyn Seal, record: LogRecord) -> LogRecord {
    if !seal.covers(&record.key.resource) {
        return record;
    }
    let LogRecord { revision, key, change, prev } = record;
    let change = match change {
        Change::Delete(Some(last)) => Change::Delete(Some(seal.seal(&key, &last))),
        other => other,
    };
    let prev = prev.map(|prev| stored(seal, &key, &prev));
    LogRecord { revision, key, change, prev }
}

/// A value as it is to be kept.
pub(super) fn value(seal: &dyn Seal, key: &Key, kept: Stored) -> Stored {
    if seal.covers(&key.resource) { stored(seal, key, &kept) } else { kept }
}

/// What could not be unsealed of everything there is.
#[derive(Default)]
struct Refused {
    first: Option<String>,
    more: usize,
}

impl Refused {
    /// The value, or something in its place: nothing is made of it, since the whole is refused.
    fn take(&mut self, value: Result<bytes::Bytes, String>) -> bytes::Bytes {
        value.unwrap_or_else(|why| {
            match self.first {
                None => self.first = Some(why),
                Some(_) => self.more += 1,
            }
            bytes::Bytes::new()
        })
    }
}

impl Engine for Sealed {
    fn location(&self) -> String {
        self.engine.location()
    }

    fn load(&mut self, keep: Keep<'_>) -> Result<Image, EngineError> {
        let mut refused = Refused::default();
        let seal = &self.seal;
        let image = self.engine.load(&mut |key, kept| keep(key, refused.take(seal.unseal(key, kept))))?;
        // One that sealed them before that was noted may have done so.
        self.noted = image.sealed;
        if refused.first.is_none() && image.objects.iter().any(|(key, _)| self.seal.covers(&key.resource)) {
            self.note()?;
        }
        match (refused.first, refused.more) {
            (None, _) => Ok(image),
            (Some(why), 0) => Err(EngineError::Sealed(why)),
            (Some(why), more) => Err(EngineError::Sealed(format!("{why} (and {more} more values)"))),
        }
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        let covers = |key: &Key| self.seal.covers(&key.resource);
        let any = batch.objects.iter().any(|(key, _)| covers(key))
            || batch.log.iter().any(|record| covers(&record.key));
        if !any {
            return self.engine.write(batch);
        }
        self.note()?;
        let seal = &*self.seal;
        let batch = Batch {
            objects: batch
                .objects
                .iter()
                .cloned()
                .map(|(key, kept)| {
                    let kept = kept.map(|kept| value(seal, &key, kept));
                    (key, kept)
                })
                .collect(),
            log: batch.log.iter().cloned().map(|kept| record(seal, kept)).collect(),
            marks: batch.marks,
            forget: batch.forget.clone(),
            boots: batch.boots.clone(),
        };
        self.engine.write(&batch)
    }

    fn in_doubt(&self) -> bool {
        self.engine.in_doubt()
    }

    fn reopen(&mut self) -> Result<Found, EngineError> {
        self.noted = false;
        self.engine.reopen()
    }

    fn renew(&mut self, image: Image) -> Result<(), EngineError> {
        let image = self.to_seal(image);
        self.noted = image.sealed;
        self.engine.renew(image)
    }

    fn begin_anew(&mut self, image: Image) -> Result<(), EngineError> {
        let image = self.to_seal(image);
        self.anew = image.sealed;
        // Of both it has to be known before anything sealed is written to them.
        self.noted &= self.anew;
        self.engine.begin_anew(image)
    }

    fn go_on(&mut self) -> Result<bool, EngineError> {
        let more = self.engine.go_on()?;
        self.noted |= !more && self.anew;
        Ok(more)
    }

    fn give_up(&mut self) {
        self.engine.give_up();
    }

    fn stands(&self) -> bool {
        self.engine.stands()
    }

    fn blocks(&self) -> bool {
        self.engine.blocks()
    }

    fn seals(&mut self) -> Result<(), EngineError> {
        self.note()
    }
}
