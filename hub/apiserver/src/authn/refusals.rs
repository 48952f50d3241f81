//! Who has been refused is said in the log, and not at each of their requests: a client tries again every second.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

/// The same is said again after so long.
const AGAIN: Duration = Duration::from_secs(300);
/// So many are told apart. Only those whom the authority once signed for have a name here, all others share one.
const MOST: usize = 256;

/// What was said when, and how often it was not said since.
#[derive(Debug, Default)]
pub struct Refusals {
    said: Mutex<BTreeMap<String, (Duration, u64)>>,
}

impl Refusals {
    /// Whether it is time to say `what`, at `now` by a monotonic clock.
    pub(crate) fn is_news(&self, what: &str, now: Duration) -> bool {
        self.news(what, now).is_some()
    }

    /// The same; how often it has not been said since it was said last. `what` is one of a few, and not what a client says.
    pub fn news(&self, what: &str, now: Duration) -> Option<u64> {
        let mut said = self.said.lock();
        if let Some((at, untold)) = said.get_mut(what) {
            if now.saturating_sub(*at) < AGAIN {
                *untold += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(untold));
        }
        if said.len() >= MOST {
            said.retain(|_, (at, _)| now.saturating_sub(*at) < AGAIN);
            if said.len() >= MOST {
                return None;
            }
        }
        said.insert(what.to_owned(), (now, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_in_a_while_and_never_too_many() {
        let refusals = Refusals::default();
        let at = Duration::from_secs;
        assert!(refusals.is_news("a", at(0)));
        assert!(!refusals.is_news("a", at(299)));
        assert!(refusals.is_news("b", at(299)));
        assert_eq!((refusals.news("a", at(300)), refusals.news("a", at(300))), (Some(1), None));
        let news = (0..10_000).filter(|i| refusals.is_news(&format!("x{i}"), at(301))).count();
        assert_eq!(news, MOST - 2);
        assert!(refusals.is_news("y", at(601 + 300)));
        assert!(refusals.said.lock().len() <= MOST);
    }
}
