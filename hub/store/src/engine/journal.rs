//! A journal of batches: one write and one sync make a batch durable, where a tree would have to write a page for
//! every level of every table.
//!
//! ```text
//!   DIR/store.journal   two halves of one length, written in turn, each from its start
//!   record   magic 4 bytes | length u32 | CRC-32 of what follows u32 | sequence u64 | batch …
//! ```
//!
//! The file is written full of zeros when it is made and never grows, so that a sync has no size and no block map
//! to write. Sequences count on over halves, runs and years and are never used twice: what a half still holds from
//! its last turn is told from what was written after it by its sequence.

use redb::StorageBackend;

use super::{Batch, EngineError, codec};

/// Not text in any encoding: no value of an API object can contain a record.
const MAGIC: [u8; 4] = [0xFF, 0xC0, b'K', b'J'];
const HEADER: usize = 20;

/// The journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    disk: Box<dyn StorageBackend>,
    /// Length of a half.
    half: usize,
    /// The half being written.
    turn: u64,
    /// Where in it the next record goes.
    at: usize,
    /// The next record's sequence.
    next: u64,
    /// The last batch failed, and may be there all the same.
    in_doubt: bool,
    record: Vec<u8>,
}

/// Whether a record had room in the half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    Durable,
    /// Nothing was written. It fits into an empty half.
    Full,
    /// Nothing was written, and it fits nowhere.
    TooLong,
}

impl Journal {
    /// Over a disk that is twice `half` long; a disk that is empty is made so.
    pub(super) fn over(disk: Box<dyn StorageBackend>, half: usize) -> Result<Self, EngineError> {
        let len = disk.len().map_err(io)?;
        if len == 0 {
            disk.set_len(2 * half as u64).map_err(io)?;
            disk.write(0, &vec![0; 2 * half]).map_err(io)?;
            disk.sync_data().map_err(io)?;
        } else if len != 2 * half as u64 {
            return Err(damaged(&format!("it is {len} bytes long instead of {}", 2 * half)));
        }
        Ok(Self { disk, half, turn: 0, at: 0, next: 1, in_doubt: false, record: Vec::new() })
    }

    /// The sequence of the record that comes next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the last batch failed, and may be there all the same.
    pub(super) fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Begins with this sequence, in the first half.
    pub(super) fn begin(&mut self, next: u64) {
        (self.turn, self.at, self.next) = (0, 0, next);
    }

    /// Goes on in the other half, whose records are no longer needed.
    pub(super) fn turn(&mut self) {
        (self.turn, self.at) = (1 - self.turn, 0);
    }

    /// Makes a batch durable if it has room. Its list of runs is not kept.
    pub(super) fn append(&mut self, batch: &Batch) -> Result<Appended, EngineError> {
        let record = &mut self.record;
        record.clear();
        record.extend_from_slice(&MAGIC);
        record.extend_from_slice(&[0; 8]);
        record.extend_from_slice(&self.next.to_le_bytes());
        codec::put_batch(record, batch);
        if record.len() > self.half {
            // It was a large one; the memory is not kept for the next.
            *record = Vec::new();
            return Ok(Appended::TooLong);
        }
        if self.at + record.len() > self.half {
            return Ok(Appended::Full);
        }
        let len = (record.len() - HEADER) as u32;
        record[4..8].copy_from_slice(&len.to_le_bytes());
        let sum = crc32fast::hash(&record[12..]);
        record[8..12].copy_from_slice(&sum.to_le_bytes());
        self.in_doubt = true;
        let written = self.disk.write(self.turn * self.half as u64 + self.at as u64, record).map_err(io);
        // There was no space for all of it, and a part of a record is none.
        self.in_doubt = !matches!(written, Err(EngineError::Full(_)));
        written?;
        self.disk.sync_data().map_err(io)?;
        self.in_doubt = false;
        self.at += record.len();
        self.next += 1;
        Ok(Appended::Durable)
    }

    /// The batches from sequence `first` on, in order. What a crash left of the last write is no batch; a damaged
    /// batch with another behind it is an error.
    pub(super) fn recover(&self, first: u64) -> Result<Vec<Batch>, EngineError> {
        let mut content = vec![0; 2 * self.half];
        self.disk.read(0, &mut content).map_err(io)?;
        let mut found = Vec::new();
        for half in content.chunks(self.half) {
            let mut rest = half;
            let mut expected = None;
            while let Some((sequence, payload)) = record(rest) {
                if expected.is_some_and(|expected| expected != sequence) {
                    break;
                }
                expected = Some(sequence + 1);
                rest = &rest[HEADER + payload.len()..];
                if sequence >= first {
                    found.push((sequence, payload));
                }
            }
        }
        found.sort_by_key(|(sequence, _)| *sequence);
        let end = first + found.len() as u64;
        if found.iter().map(|(sequence, _)| *sequence).ne(first..end) {
            return Err(damaged(&format!("batches are missing behind number {first}")));
        }
        // A record is written when the one before it is durable: a later one proves that this is no torn write.
        let beyond = (0..content.len()).filter(|at| content[*at..].starts_with(&MAGIC));
        if let Some((sequence, _)) =
            beyond.filter_map(|at| record(&content[at..])).find(|(sequence, _)| *sequence >= end)
        {
            return Err(damaged(&format!("batch {end} cannot be read, and batch {sequence} is there")));
        }
        found.into_iter().map(|(_, payload)| codec::decode_batch(payload)).collect()
    }
}

/// The record at the front of these bytes: its sequence and its batch.
fn record(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let number = |at: usize| header[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let payload = rest.get(..number(4)? as usize)?;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&header[12..]);
    sum.update(payload);
    (header.starts_with(&MAGIC) && number(8)? == sum.finalize())
        .then_some((u64::from_le_bytes(header[12..].try_into().ok()?), payload))
}

fn damaged(why: &str) -> EngineError {
    EngineError::Corrupt(format!("its journal: {why}"))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn io(error: std::io::Error) -> EngineError {
    EngineError::io(&error)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        engine::{Marks, Stored},
        key::Key,
    };

    const HALF: usize = 1024;

    /// A disk that outlives the journal over it.
    #[derive(Clone, Debug, Default)]
    struct Shared(std::sync::Arc<redb::backends::InMemoryBackend>);

    impl StorageBackend for Shared {
        fn len(&self) -> std::io::Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.0.read(offset, out)
        }
        fn set_len(&self, len: u64) -> std::io::Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> std::io::Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
            self.0.write(offset, data)
        }
    }

    fn batch(n: u64, len: usize) -> Batch {
        let stored = Stored { revision: n.into(), created: n.into(), value: Bytes::from(vec![n as u8; len]) };
        let marks = Marks { revision: n.into(), reserved: n.into() };
        Batch { objects: vec![(Key::new("works", "a", "b"), Some(stored))], marks, ..Batch::default() }
    }

    fn over(disk: &Shared) -> Journal {
        Journal::over(Box::new(disk.clone()), HALF).unwrap()
    }

    /// Batches 1 to 15, three to a half; the tables have those up to 9.
    fn filled() -> Shared {
        let disk = Shared::default();
        let mut journal = over(&disk);
        journal.begin(1);
        for n in 1..=15 {
            if journal.append(&batch(n, 250)).unwrap() == Appended::Full {
                journal.turn();
                assert_eq!(journal.append(&batch(n, 250)).unwrap(), Appended::Durable);
            }
        }
        assert_eq!((journal.next(), journal.turn, journal.at % 15), (16, 0, journal.at % 15));
        disk
    }

    fn revisions(disk: &Shared, first: u64) -> Result<Vec<u64>, String> {
        let found = over(disk).recover(first).map_err(|e| e.to_string())?;
        Ok(found.iter().map(|b| b.marks.revision.get()).collect())
    }

    fn flip(disk: &Shared, at: usize) {
        let mut byte = [0];
        disk.read(at as u64, &mut byte).unwrap();
        disk.write(at as u64, &[byte[0] ^ 4]).unwrap();
    }

    #[test]
    fn what_the_tables_do_not_have_is_found_in_order() {
        let disk = filled();
        assert_eq!(revisions(&disk, 10).unwrap(), [10, 11, 12, 13, 14, 15]);
        assert_eq!(revisions(&disk, 15).unwrap(), [15]);
        assert!(revisions(&disk, 16).unwrap().is_empty());
        assert_eq!(
            revisions(&disk, 9).unwrap_err(),
            "damaged: its journal: batches are missing behind number 9"
        );
    }

    #[test]
    fn a_torn_last_batch_is_none_and_a_damaged_one_before_it_is_told() {
        let record = over(&filled()).half / 3 - 20;
        // The halves: 13, 14, 15 and 10, 11, 12.
        for (place, expected) in [
            (2 * record, Ok(vec![10, 11, 12, 13, 14])),
            (record, Err("batch 14 cannot be read, and batch 15 is there")),
            (0, Err("batch 13 cannot be read, and batch 14 is there")),
            (HALF, Err("batches are missing behind number 10")),
        ] {
            let disk = filled();
            flip(&disk, place + HEADER + 8);
            let found = revisions(&disk, 10);
            match expected {
                Ok(expected) => assert_eq!(found.unwrap(), expected),
                Err(why) => assert_eq!(found.unwrap_err(), format!("damaged: its journal: {why}")),
            }
        }
    }

    #[test]
    fn no_record_is_longer_than_a_half() {
        let disk = Shared::default();
        let mut journal = over(&disk);
        journal.begin(7);
        assert_eq!(journal.append(&batch(1, HALF)).unwrap(), Appended::TooLong);
        assert_eq!(journal.append(&batch(1, 500)).unwrap(), Appended::Durable);
        assert_eq!(journal.append(&batch(2, 500)).unwrap(), Appended::Full);
        assert_eq!((journal.next(), revisions(&disk, 7).unwrap()), (8, vec![1]));
        disk.set_len(100).unwrap();
        let cut = Journal::over(Box::new(disk), HALF).unwrap_err();
        assert!(cut.to_string().ends_with("it is 100 bytes long instead of 2048"), "{cut}");
    }
}
