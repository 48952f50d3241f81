//! What there is to say of Works, and since when, for whoever asks the agent at the machine. Most have no note.

use std::collections::BTreeMap;

use karmada_meta::time::Time;
use parking_lot::Mutex;

use crate::outline::Stands;

/// How much of a reason is kept: lists of hundreds of manifests may fail, each in its own words.
const LONGEST: usize = 1024;

/// What there is to say of one Work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// How it stands.
    pub(crate) stands: Stands,
    /// Since when it stands so, with whatever reason.
    pub(crate) since: Time,
    /// Why it does, as of the last look.
    pub(crate) why: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<BTreeMap<String, Note>>);

impl Notes {
    /// A Work was looked at, and there is this to say of it.
    pub(crate) fn note(&self, work: &str, said: Option<(Stands, String)>, now: Time) {
        let mut notes = self.0.lock();
        let Some((stands, mut why)) = said else {
            notes.remove(work);
            return;
        };
        cut(&mut why, LONGEST);
        match notes.get_mut(work) {
            Some(note) if note.stands == stands => note.why = why,
            _ => drop(notes.insert(work.to_owned(), Note { stands, since: now, why })),
        }
    }

    /// A Work is known no more.
    pub(crate) fn forget(&self, work: &str) {
        self.0.lock().remove(work);
    }

    /// What there is to say of a Work.
    pub(crate) fn of(&self, work: &str) -> Option<Note> {
        self.0.lock().get(work).cloned()
    }
}

/// Cuts a text to so many bytes.
fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        let end = (0..=limit - 3).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_work_fails_since_it_first_did_and_until_it_does_not() {
        let fails = |why: &str| Some((Stands::Failing, why.to_owned()));
        let at = |second| Time::from_system(UNIX_EPOCH + Duration::from_secs(second));
        let notes = Notes::default();
        notes.note("w", fails("no"), at(1));
        notes.note("w", fails(&"ü".repeat(LONGEST)), at(2));
        let note = notes.of("w").unwrap();
        assert_eq!(note.since, at(1));
        assert!(note.why.len() <= LONGEST && note.why.ends_with("ü..."), "{}", note.why);
        notes.note("w", None, at(3));
        assert_eq!(notes.of("w"), None);
        notes.note("w", fails("no"), at(4));
        notes.note("w", Some((Stands::Contested, "x".to_owned())), at(5));
        assert_eq!(notes.of("w").unwrap().since, at(5));
        notes.forget("w");
        assert_eq!(notes.of("w"), None);
    }
}
