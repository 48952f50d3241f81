//! What Works that go wait for on the member: looked at there, ever more seldom while nothing changes, and without asking
//! the hub. Only when nothing holds them any more is there something to decide.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use super::desired::ObjectId;

/// The first wait; it doubles up to [`SELDOM`] while nothing changes.
const FIRST: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(30);

/// What is waited for, by Work.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<BTreeMap<String, Wait>>);

/// What one Work waits for: objects that are on their way out, each with what holds it.
#[derive(Debug, Default)]
struct Wait {
    what: BTreeMap<ObjectId, String>,
    pause: Duration,
}

impl Waits {
    /// The objects that a Work waits for.
    pub(crate) fn of(&self, work: &str) -> Vec<ObjectId> {
        self.0.lock().get(work).map(|wait| wait.what.keys().cloned().collect()).unwrap_or_default()
    }

    /// A Work waits for this now. Answers when to look again; nothing if it waits for nothing.
    pub(crate) fn note(&self, work: &str, what: BTreeMap<ObjectId, String>) -> Option<Duration> {
        let mut waits = self.0.lock();
        if what.is_empty() {
            waits.remove(work);
            return None;
        }
        let wait = waits.entry(work.to_owned()).or_default();
        wait.pause = if wait.what == what { (wait.pause * 2).min(SELDOM) } else { FIRST };
        wait.what = what;
        Some(wait.pause)
    }

    /// A Work waits for nothing any more.
    pub(crate) fn forget(&self, work: &str) {
        self.0.lock().remove(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_change_is_looked_at_ever_more_seldom() {
        let waits = Waits::default();
        let id = ObjectId { kind: "Namespace".into(), name: "shop".into(), ..ObjectId::default() };
        let holds = |what: &str| BTreeMap::from([(id.clone(), what.to_owned())]);
        let pauses: Vec<u64> = ["a", "a", "a", "b", "b", "b", "b", "b", "b", "b"]
            .map(|what| waits.note("w", holds(what)).unwrap().as_secs())
            .into();
        assert_eq!(pauses, [1, 2, 4, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(waits.of("w"), [id]);
        assert_eq!(waits.note("w", BTreeMap::new()), None);
        assert!(waits.of("w").is_empty());
    }
}
