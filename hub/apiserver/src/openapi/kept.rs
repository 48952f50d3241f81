//! Documents that have been made, packed, for as long as they say what is served.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use parking_lot::Mutex;

use crate::respond;

/// All documents together, packed. Those of Kubernetes' own kinds take about a megabyte.
const MOST: usize = 16 << 20;

/// A document in gzip, which most clients ask for.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    pub(super) gzip: Bytes,
    /// Its bytes when it is unpacked.
    pub(super) length: usize,
}

impl Packed {
    fn of(document: &[u8]) -> Self {
        let gzip = respond::gzip(document, flate2::Compression::default()).unwrap_or_default();
        Self { gzip, length: document.len() }
    }

    /// The document itself.
    pub(super) fn unpacked(&self) -> Bytes {
        let mut document = Vec::with_capacity(self.length);
        // It was packed here.
        let _ = GzDecoder::new(&self.gzip[..]).read_to_end(&mut document);
        document.into()
    }
}

/// What has been made, by hash.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Documents>);

#[derive(Debug, Default)]
struct Documents {
    packed: BTreeMap<String, Packed>,
    bytes: usize,
    /// How many have been made.
    made: u64,
}

impl Kept {
    pub(super) fn get(&self, hash: &str) -> Option<Packed> {
        self.0.lock().packed.get(hash).cloned()
    }

    /// The document of a hash, made if it is not there. Those of other hashes than the current ones go then.
    pub(super) fn get_or_make(
        &self,
        hash: &str,
        current: impl FnOnce() -> BTreeSet<String>,
        make: impl FnOnce() -> Bytes,
    ) -> Packed {
        if let Some(packed) = self.get(hash) {
            return packed;
        }
        let packed = Packed::of(&make());
        let (current, mut documents) = (current(), self.0.lock());
        documents.made += 1;
        documents.packed.retain(|hash, _| current.contains(hash));
        documents.packed.insert(hash.to_owned(), packed.clone());
        documents.bytes = documents.packed.values().map(|packed| packed.gzip.len()).sum();
        while documents.bytes > MOST
            && let Some((_, gone)) = documents.packed.pop_first()
        {
            documents.bytes -= gone.gzip.len();
        }
        packed
    }

    #[cfg(test)]
    pub(super) fn made(&self) -> u64 {
        self.0.lock().made
    }
}
