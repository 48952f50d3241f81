//! How values and log records stand in the file. All numbers are little-endian.
//!
//! ```text
//!   stored  revision u64 | created u64 | value …
//!   log     change u8 | has prev u8 | has last u8 | resource | namespace | name      (each u16 length + bytes)
//!           | if prev: revision u64 | created u64 | value (u32 length + bytes)
//!           | if last: value (u32 length + bytes)
//!   boot    first u64 | last u64 | reserved u64 | id …
//!   batch   revision u64 | reserved u64
//!           | number of values u32, each: resource | namespace | name | is there u8 | if so: stored (u32 length + bytes)
//!           | number of log records u32, each: revision u64 | log (u32 length + bytes)
//!           | number of resources that forget u32, each: resource | up to u64 | number of revisions u32, each: u64
//! ```

use bytes::Bytes;

use super::{Batch, Change, EngineError, Forget, LogRecord, Marks, Stored};
use crate::{
    boot::Boot,
    key::{Key, Revision},
};

const PUT: u8 = 0;
const DELETE: u8 = 1;

/// Reads from the front of a slice.
struct Reader<'a>(&'a [u8]);

fn short(what: &str) -> EngineError {
    EngineError::Corrupt(format!("a {what} is cut short or malformed"))
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn revision(&mut self) -> Option<Revision> {
        Some(Revision::new(u64::from_le_bytes(self.take(8)?.try_into().ok()?)))
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.u16()?;
        std::str::from_utf8(self.take(len.into())?).ok()
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn value(&mut self) -> Option<Bytes> {
        self.block().map(Bytes::copy_from_slice)
    }

    fn key(&mut self) -> Option<Key> {
        Some(Key::new(self.text()?, self.text()?, self.text()?))
    }

    fn forget(&mut self) -> Option<Forget> {
        let ((resource, part), up_to) = (Forget::of_mark(self.text()?), self.revision()?);
        let revisions = (0..self.u32()?).map(|_| self.revision()).collect::<Option<_>>()?;
        Some(Forget { resource, part, up_to, revisions })
    }
}

fn put_revision(out: &mut Vec<u8>, revision: Revision) {
    out.extend_from_slice(&revision.get().to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Keys are checked against Key::MAX_LEN, which is less than a u16 holds.
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_key(out: &mut Vec<u8>, key: &Key) {
    put_text(out, &key.resource);
    put_text(out, &key.namespace);
    put_text(out, &key.name);
}

fn put_value(out: &mut Vec<u8>, value: &Bytes) {
    // Values are checked against the store's limit, which is less than a u32 holds.
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value);
}

pub(crate) fn encode_stored(stored: &Stored) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + stored.value.len());
    put_stored(&mut out, stored);
    out
}

fn put_stored(out: &mut Vec<u8>, stored: &Stored) {
    put_revision(out, stored.revision);
    put_revision(out, stored.created);
    out.extend_from_slice(&stored.value);
}

pub(crate) fn decode_stored(bytes: &[u8]) -> Result<Stored, EngineError> {
    let mut reader = Reader(bytes);
    (|| {
        let (revision, created) = (reader.revision()?, reader.revision()?);
        Some(Stored { revision, created, value: Bytes::copy_from_slice(reader.0) })
    })()
    .ok_or_else(|| short("value"))
}

pub(crate) fn encode_log(record: &LogRecord) -> Vec<u8> {
    let last = if let Change::Delete(Some(last)) = &record.change { last.len() } else { 0 };
    let prev = record.prev.as_ref().map_or(0, |p| p.value.len());
    let mut out = Vec::with_capacity(40 + record.key.len() + prev + last);
    put_log(&mut out, record);
    out
}

fn put_log(out: &mut Vec<u8>, record: &LogRecord) {
    let (change, last) = match &record.change {
        Change::Put => (PUT, None),
        Change::Delete(last) => (DELETE, last.as_ref()),
    };
    out.extend_from_slice(&[change, record.prev.is_some().into(), last.is_some().into()]);
    put_key(out, &record.key);
    if let Some(prev) = &record.prev {
        put_revision(out, prev.revision);
        put_revision(out, prev.created);
        put_value(out, &prev.value);
    }
    if let Some(last) = last {
        put_value(out, last);
    }
}

pub(crate) fn decode_log(revision: Revision, bytes: &[u8]) -> Result<LogRecord, EngineError> {
    let mut reader = Reader(bytes);
    (|| {
        let (change, has_prev, has_last) = (reader.byte()?, reader.flag()?, reader.flag()?);
        let key = reader.key()?;
        let prev = if has_prev {
            let (revision, created, value) = (reader.revision()?, reader.revision()?, reader.value()?);
            Some(Stored { revision, created, value })
        } else {
            None
        };
        let last = if has_last { Some(reader.value()?) } else { None };
        let change = match change {
            PUT if last.is_none() => Change::Put,
            DELETE if prev.is_some() => Change::Delete(last),
            _ => return None,
        };
        reader.0.is_empty().then_some(LogRecord { revision, key, change, prev })
    })()
    .ok_or_else(|| short("log record"))
}

/// Puts what `write` writes behind its length.
fn put_block(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// A batch without its list of runs.
pub(super) fn put_batch(out: &mut Vec<u8>, batch: &Batch) {
    put_revision(out, batch.marks.revision);
    put_revision(out, batch.marks.reserved);
    out.extend_from_slice(&(batch.objects.len() as u32).to_le_bytes());
    for (key, stored) in &batch.objects {
        put_key(out, key);
        out.push(stored.is_some().into());
        if let Some(stored) = stored {
            put_block(out, |out| put_stored(out, stored));
        }
    }
    out.extend_from_slice(&(batch.log.len() as u32).to_le_bytes());
    for record in &batch.log {
        put_revision(out, record.revision);
        put_block(out, |out| put_log(out, record));
    }
    out.extend_from_slice(&(batch.forget.len() as u32).to_le_bytes());
    for forget in &batch.forget {
        put_text(out, &forget.mark());
        put_revision(out, forget.up_to);
        out.extend_from_slice(&(forget.revisions.len() as u32).to_le_bytes());
        forget.revisions.iter().for_each(|revision| put_revision(out, *revision));
    }
}

pub(super) fn decode_batch(bytes: &[u8]) -> Result<Batch, EngineError> {
    let cut = || short("batch");
    let mut reader = Reader(bytes);
    let mut batch = Batch::default();
    let marks = |r: &mut Reader<'_>| Some(Marks { revision: r.revision()?, reserved: r.revision()? });
    batch.marks = marks(&mut reader).ok_or_else(cut)?;
    for _ in 0..reader.u32().ok_or_else(cut)? {
        let key = reader.key().ok_or_else(cut)?;
        let stored = match reader.flag().ok_or_else(cut)? {
            true => Some(decode_stored(reader.block().ok_or_else(cut)?)?),
            false => None,
        };
        batch.objects.push((key, stored));
    }
    for _ in 0..reader.u32().ok_or_else(cut)? {
        let revision = reader.revision().ok_or_else(cut)?;
        batch.log.push(decode_log(revision, reader.block().ok_or_else(cut)?)?);
    }
    for _ in 0..reader.u32().ok_or_else(cut)? {
        batch.forget.push(reader.forget().ok_or_else(cut)?);
    }
    if reader.0.is_empty() { Ok(batch) } else { Err(cut()) }
}

pub(crate) fn encode_boot(boot: &Boot) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + boot.id.len());
    put_revision(&mut out, boot.first);
    put_revision(&mut out, boot.last);
    put_revision(&mut out, boot.reserved);
    out.extend_from_slice(boot.id.as_bytes());
    out
}

pub(crate) fn decode_boot(bytes: &[u8]) -> Result<Boot, EngineError> {
    let mut reader = Reader(bytes);
    (|| {
        let (first, last, reserved) = (reader.revision()?, reader.revision()?, reader.revision()?);
        Some(Boot { id: std::str::from_utf8(reader.0).ok()?.to_owned(), first, last, reserved })
    })()
    .ok_or_else(|| short("record of a run"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored() -> impl Strategy<Value = Stored> {
        (any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(
            |(revision, created, value)| Stored {
                revision: revision.into(),
                created: created.into(),
                value: value.into(),
            },
        )
    }

    fn record() -> impl Strategy<Value = LogRecord> {
        let parts = ("[a-z/]{1,8}", "[a-z]{0,8}", "[a-zé]{1,8}");
        let last = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
        (any::<u64>(), parts, prop::option::of(stored()), any::<bool>(), last).prop_map(
            |(revision, (resource, namespace, name), prev, delete, last)| LogRecord {
                revision: revision.into(),
                key: Key::new(resource, namespace, name),
                change: if delete && prev.is_some() {
                    Change::Delete(last.map(Into::into))
                } else {
                    Change::Put
                },
                prev,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(stored in stored(), record in record()) {
            prop_assert_eq!(decode_stored(&encode_stored(&stored)).unwrap(), stored);
            prop_assert_eq!(decode_log(record.revision, &encode_log(&record)).unwrap(), record);
        }

        #[test]
        fn cut_or_garbled_records_are_refused_or_read_but_never_panic(record in record(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let bytes = encode_log(&record);
            let at = at.index(bytes.len());
            prop_assert!(decode_log(record.revision, &bytes[..at]).is_err());
            let mut garbled = bytes;
            garbled[at] ^= 1 << bit;
            let _ = decode_log(record.revision, &garbled);
        }
    }

    fn batch() -> impl Strategy<Value = Batch> {
        let key = ("[a-z/]{1,8}", "[a-z]{0,8}", "[a-zé]{1,8}").prop_map(|(r, n, m)| Key::new(r, n, m));
        let objects = prop::collection::vec((key, prop::option::of(stored())), 0..4);
        let of = ("[a-z/]{1,8}", prop::option::of("[a-z/]{1,8}"));
        let forget = (of, any::<u64>(), prop::collection::vec(any::<u64>(), 0..4)).prop_map(
            |((resource, part), up_to, revisions)| Forget {
                resource: resource.into(),
                part: part.map(Into::into),
                up_to: up_to.into(),
                revisions: revisions.into_iter().map(Into::into).collect(),
            },
        );
        let parts = (objects, prop::collection::vec(record(), 0..4), prop::collection::vec(forget, 0..3));
        (any::<[u64; 2]>(), parts).prop_map(|([revision, reserved], (objects, log, forget))| Batch {
            objects,
            log,
            marks: Marks { revision: revision.into(), reserved: reserved.into() },
            forget,
            boots: None,
        })
    }

    proptest! {
        #[test]
        fn batches_are_read_back_and_cut_ones_refused(batch in batch(), at in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            put_batch(&mut bytes, &batch);
            prop_assert_eq!(format!("{:?}", decode_batch(&bytes).unwrap()), format!("{batch:?}"));
            prop_assert!(decode_batch(&bytes[..at.index(bytes.len())]).is_err());
        }
    }

    #[test]
    fn boots_are_read_back() {
        let boot = Boot { id: "x".to_owned(), first: 1.into(), last: 2.into(), reserved: 3.into() };
        assert_eq!(decode_boot(&encode_boot(&boot)).unwrap(), boot);
        assert!(decode_boot(&[0; 23]).is_err());
    }
}
