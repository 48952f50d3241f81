//! An engine that is given sealed values. Everything that an engine keeps comes by here: current values, what they took
//! the place of, and the last values of what was deleted.

use std::sync::Arc;

use super::{Batch, Change, Engine, EngineError, Found, Image, LogRecord, Stored};
use crate::{key::Key, seal::Seal};

pub(crate) struct Sealed {
    engine: Box<dyn Engine>,
    seal: Arc<dyn Seal>,
}

impl Sealed {
    pub(crate) fn new(engine: Box<dyn Engine>, seal: Arc<dyn Seal>) -> Self {
        Self { engine, seal }
    }

    fn stored(&self, key: &Key, stored: &Stored) -> Stored {
        let Stored { revision, created, value } = stored;
        Stored { revision: *revision, created: *created, value: self.seal.seal(key, value) }
    }

    fn record(&self, record: LogRecord) -> LogRecord {
        if !self.seal.covers(&record.key.resource) {
            return record;
        }
        let LogRecord { revision, key, change, prev } = record;
        let change = match change {
            Change::Delete(Some(last)) => Change::Delete(Some(self.seal.seal(&key, &last))),
            other => other,
        };
        let prev = prev.map(|prev| self.stored(&key, &prev));
        LogRecord { revision, key, change, prev }
    }

    fn object(&self, (key, stored): (Key, Option<Stored>)) -> (Key, Option<Stored>) {
        let stored = match stored {
            Some(stored) if self.seal.covers(&key.resource) => Some(self.stored(&key, &stored)),
            other => other,
        };
        (key, stored)
    }
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

    fn load(&mut self) -> Result<Image, EngineError> {
        let mut image = self.engine.load()?;
        let mut refused = Refused::default();
        for (key, stored) in &mut image.objects {
            stored.value = refused.take(self.seal.unseal(key, std::mem::take(&mut stored.value)));
        }
        for LogRecord { key, change, prev, .. } in &mut image.log {
            if let Some(prev) = prev {
                prev.value = refused.take(self.seal.unseal(key, std::mem::take(&mut prev.value)));
            }
            if let Change::Delete(Some(last)) = change {
                *last = refused.take(self.seal.unseal(key, std::mem::take(last)));
            }
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
        let batch = Batch {
            objects: batch.objects.iter().cloned().map(|object| self.object(object)).collect(),
            log: batch.log.iter().cloned().map(|record| self.record(record)).collect(),
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
        self.engine.reopen()
    }

    fn renew(&mut self, image: Image) -> Result<(), EngineError> {
        let Image { objects, log, marks, base, forgotten, boots } = image;
        let sealed = |(key, stored)| match self.object((key, Some(stored))) {
            (key, Some(stored)) => Some((key, stored)),
            (_, None) => None,
        };
        let objects = objects.into_iter().filter_map(sealed).collect();
        let log = log.into_iter().map(|record| self.record(record)).collect();
        self.engine.renew(Image { objects, log, marks, base, forgotten, boots })
    }

    fn blocks(&self) -> bool {
        self.engine.blocks()
    }
}
