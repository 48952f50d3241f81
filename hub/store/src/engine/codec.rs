//! How values and log records stand in the file. All numbers are little-endian.
//!
//! ```text
//!   stored  revision u64 | created u64 | value …
//!   log     change u8 | has prev u8 | has last u8 | resource | namespace | name      (each u16 length + bytes)
//!           | if prev: revision u64 | created u64 | value (u32 length + bytes)
//!           | if last: value (u32 length + bytes)
//!   boot    first u64 | last u64 | reserved u64 | id …
//! ```

use bytes::Bytes;

use super::{Change, EngineError, LogRecord, Stored};
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

    fn value(&mut self) -> Option<Bytes> {
        let len = self.u32()?;
        Some(Bytes::copy_from_slice(self.take(len as usize)?))
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

fn put_value(out: &mut Vec<u8>, value: &Bytes) {
    // Values are checked against the store's limit, which is less than a u32 holds.
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value);
}

pub(super) fn encode_stored(stored: &Stored) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + stored.value.len());
    put_revision(&mut out, stored.revision);
    put_revision(&mut out, stored.created);
    out.extend_from_slice(&stored.value);
    out
}

pub(super) fn decode_stored(bytes: &[u8]) -> Result<Stored, EngineError> {
    let mut reader = Reader(bytes);
    (|| {
        let (revision, created) = (reader.revision()?, reader.revision()?);
        Some(Stored { revision, created, value: Bytes::copy_from_slice(reader.0) })
    })()
    .ok_or_else(|| short("value"))
}

pub(super) fn encode_log(record: &LogRecord) -> Vec<u8> {
    let (change, last) = match &record.change {
        Change::Put => (PUT, None),
        Change::Delete(last) => (DELETE, last.as_ref()),
    };
    let values = record.prev.as_ref().map_or(0, |p| p.value.len()) + last.map_or(0, Bytes::len);
    let mut out = Vec::with_capacity(40 + record.key.len() + values);
    out.extend_from_slice(&[change, record.prev.is_some().into(), last.is_some().into()]);
    put_text(&mut out, &record.key.resource);
    put_text(&mut out, &record.key.namespace);
    put_text(&mut out, &record.key.name);
    if let Some(prev) = &record.prev {
        put_revision(&mut out, prev.revision);
        put_revision(&mut out, prev.created);
        put_value(&mut out, &prev.value);
    }
    if let Some(last) = last {
        put_value(&mut out, last);
    }
    out
}

pub(super) fn decode_log(revision: Revision, bytes: &[u8]) -> Result<LogRecord, EngineError> {
    let mut reader = Reader(bytes);
    (|| {
        let (change, has_prev, has_last) = (reader.byte()?, reader.flag()?, reader.flag()?);
        let key = Key::new(reader.text()?, reader.text()?, reader.text()?);
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

pub(super) fn encode_boot(boot: &Boot) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + boot.id.len());
    put_revision(&mut out, boot.first);
    put_revision(&mut out, boot.last);
    put_revision(&mut out, boot.reserved);
    out.extend_from_slice(boot.id.as_bytes());
    out
}

pub(super) fn decode_boot(bytes: &[u8]) -> Result<Boot, EngineError> {
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

    #[test]
    fn boots_are_read_back() {
        let boot = Boot { id: "x".to_owned(), first: 1.into(), last: 2.into(), reserved: 3.into() };
        assert_eq!(decode_boot(&encode_boot(&boot)).unwrap(), boot);
        assert!(decode_boot(&[0; 23]).is_err());
    }
}
