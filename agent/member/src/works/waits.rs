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
    /// It waits for nothing else: the Work goes, and all that it lists was looked at.
    to_go: bool,
    pause: Duration,
}

impl Waits {
    /// The objects that a Work waits for before it goes, if it waits for nothing else.
    pub(crate) fn of(&self, work: &str) -> Vec<ObjectId> {
        let waits = self.0.lock();
        let wait = waits.get(work).filter(|wait| wait.to_go);
        wait.map(|wait| wait.what.keys().cloned().collect()).unwrap_or_default()
    }

    /// A Work waits for this now; `to_go` for nothing else, before it goes. Answers when to look again; nothing if it waits for nothing.
    pub(crate) fn note(&self, work: &str, what: BTreeMap<ObjectId, String>, to_go: bool) -> Option<Duration> {
        let mut waits = self.0.lock();
        if what.is_empty() {
            waits.remove(work);
            return None;
        }
        let wait = waits.entry(work.to_owned()).or_default();
        wait.pause = if wait.what == what { (wait.pause * 2).min(SELDOM) } else { FIRST };
        (wait.what, wait.to_go) = (what, to_go);
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
            .map(|what| waits.note("w", holds(what), true).unwrap().as_secs())
            .into();
        assert_eq!(pauses, [1, 2, 4, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(waits.of("w"), std::slice::from_ref(&id));
        waits.note("w", holds("b"), false);
        assert!(waits.of("w").is_empty(), "there is more to be looked at");
        assert_eq!(waits.note("w", BTreeMap::new(), true), None);
        assert!(waits.of("w").is_empty());
    }
}
