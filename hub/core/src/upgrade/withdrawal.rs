//! When what was offered is given up although nobody has said so: neither the hub nor an agent does that at once.
//!
//! A request that nobody can read is mended a moment later, and of two hubs of different versions that lead by turns one refuses what
//! the other offers. If the offers went and came each time, all agents would begin anew, and fetch again what they had fetched.

use std::time::Duration;

use super::Offer;

/// The hub has been without a request to go by for so long when it takes its offers back.
const REFUSED: Duration = Duration::from_secs(300);
/// An agent goes on fetching a program for so long while it is offered nothing.
const UNOFFERED: Duration = Duration::from_secs(600);

/// Since when the hub has no request to go by, in monotonic time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusal(Option<Duration>);

impl Refusal {
    /// It has none now. Answers how much longer what is offered stays: at zero it is taken back.
    pub fn stands(&mut self, now: Duration) -> Duration {
        let since = *self.0.get_or_insert(now);
        REFUSED.saturating_sub(now.saturating_sub(since))
    }
}

/// A program that is being fetched.
#[derive(Debug)]
pub struct Fetch<'a> {
    offer: &'a Offer,
    /// Since when nothing is offered, in monotonic time.
    unoffered: Option<Duration>,
}

impl<'a> Fetch<'a> {
    /// That of an offer.
    pub fn of(offer: &'a Offer) -> Self {
        Self { offer, unoffered: None }
    }

    /// How much longer it goes on, by what is offered now: at zero it ends. Nothing while that is the same offer.
    pub fn left(&mut self, offered: Option<&Offer>, now: Duration) -> Option<Duration> {
        let Some(offered) = offered else {
            let since = *self.unoffered.get_or_insert(now);
            return Some(UNOFFERED.saturating_sub(now.saturating_sub(since)));
        };
        self.unoffered = None;
        (!is_same(self.offer, offered)).then_some(Duration::ZERO)
    }
}

/// Whether two offers ask for the same program. How starts are spread is nothing to whoever has begun.
fn is_same(one: &Offer, other: &Offer) -> bool {
    (&one.version, one.begun, one.returns, &one.programs)
        == (&other.version, other.begun, other.returns, &other.programs)
}

#[cfg(test)]
mod tests {
    use super::{super::trial::tests::offer, *};

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn offers_are_taken_back_when_a_refusal_has_stood_for_minutes() {
        let mut refusal = Refusal::default();
        assert_eq!(refusal.stands(MINUTE * 100), MINUTE * 5);
        assert_eq!(refusal.stands(MINUTE * 101), MINUTE * 4);
        assert_eq!(refusal.stands(MINUTE * 105), Duration::ZERO);
        assert_eq!(refusal.stands(MINUTE * 900), Duration::ZERO);
        // One that was mended says nothing about the next.
        refusal = Refusal::default();
        assert_eq!(refusal.stands(MINUTE * 900), MINUTE * 5);
    }

    #[test]
    fn fetching_ends_at_once_for_another_offer_and_after_a_while_for_none() {
        let offer = Offer { spread: 900, ..offer() };
        let spread = Offer { spread: 3, ..offer.clone() };
        let others = [
            Offer { version: "0.6.1".to_owned(), ..offer.clone() },
            Offer { begun: offer.begun.next(), ..offer.clone() },
            Offer { returns: true, ..offer.clone() },
        ];
        let mut fetch = Fetch::of(&offer);
        for (minute, offered, left) in [
            (0, Some(&offer), None),
            (1, None, Some(MINUTE * 10)),
            (10, None, Some(MINUTE)),
            (11, Some(&spread), None),
            // Only what lasts without a break counts.
            (12, None, Some(MINUTE * 10)),
            (22, None, Some(Duration::ZERO)),
            (23, None, Some(Duration::ZERO)),
            (24, Some(&offer), None),
        ] {
            assert_eq!(fetch.left(offered, MINUTE * minute), left, "{minute}");
        }
        for other in &others {
            assert_eq!(fetch.left(Some(other), MINUTE * 30), Some(Duration::ZERO), "{other:?}");
        }
    }
}
