//! Which runs of the store there have been.
//!
//! Each opening draws a random id. With the last durable revision of each run it answers a question that
//! revisions alone cannot: is this the store that told me of revision N, or an older copy of it, or another one?

use crate::key::Revision;

/// One run of the store, from an opening to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Drawn at the opening.
    pub id: String,
    /// The store's revision when it was opened.
    pub first: Revision,
    /// The last revision of the run that is on disk. Of the present run: the one it began with.
    pub last: Revision,
    /// The last revision of the run that anybody can have seen. Greater than `last` only if the run ended without
    /// closing the store, when relaxed updates may have been unwritten.
    pub reserved: Revision,
}

/// The runs, oldest first; the last is the present one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Boots(pub(crate) Vec<Boot>);

impl Boots {
    /// How many are remembered. An agent that was away for more restarts than this has to be told by other means.
    pub(crate) const KEPT: usize = 4096;

    /// The id of the present run.
    pub(crate) fn current(&self) -> &str {
        self.0.last().map_or("", |b| &b.id)
    }

    /// Whether the run of this id had this revision on disk. `durable` is the last durable revision of the
    /// present run.
    pub(crate) fn known(&self, id: &str, revision: Revision, durable: Revision) -> bool {
        let index = self.0.iter().rposition(|b| b.id == id);
        index.is_some_and(|i| {
            let last = if i + 1 == self.0.len() { durable } else { self.0[i].last };
            revision <= last
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boots() -> Boots {
        let boot = |id: &str, first, last, reserved| Boot {
            id: id.to_owned(),
            first: Revision::new(first),
            last: Revision::new(last),
            reserved: Revision::new(reserved),
        };
        Boots(vec![boot("a", 1, 10, 10), boot("b", 10, 20, 100), boot("c", 101, 101, 101)])
    }

    #[test]
    fn a_run_is_known_up_to_what_it_had_on_disk() {
        for (id, revision, durable, want) in [
            ("a", 10, 150, true),
            ("a", 11, 150, false),
            ("b", 20, 150, true),
            ("b", 21, 150, false),
            ("c", 150, 150, true),
            ("c", 151, 150, false),
            ("z", 1, 150, false),
        ] {
            assert_eq!(
                boots().known(id, Revision::new(revision), Revision::new(durable)),
                want,
                "{id} {revision}"
            );
        }
    }
}
