//! Webster's (Sainte-Laguë) apportionment, seat by seat as Karmada gives them.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::names::fnv32a;

/// In which direction equal parties are told apart by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TieBreak {
    /// The lexically smaller name first.
    Ascending,
    /// The lexically larger name first.
    Descending,
}

impl TieBreak {
    /// The direction for the binding of an object: the lowest bit of the hash of the object's uid, so that over
    /// many objects no cluster is always the one with a replica more.
    pub fn of_uid(uid: &str) -> Self {
        if !uid.is_empty() && fnv32a(uid) & 1 == 1 { Self::Descending } else { Self::Ascending }
    }
}

/// One party in the queue of those waiting for a seat.
#[derive(Debug)]
struct Party<'a> {
    name: &'a str,
    votes: i64,
    seats: i64,
    /// What the party bids for its next seat.
    bid: f64,
    ties: TieBreak,
}

impl<'a> Party<'a> {
    fn new(share: Share<'a>, ties: TieBreak) -> Self {
        let mut party =
            Self { name: share.name, votes: share.votes.max(0), seats: share.seats, bid: 0.0, ties };
        party.take(0);
        party
    }

    /// Takes seats and bids for the next. In floating point like Karmada's, since a division in whole numbers would
    /// break other ties.
    fn take(&mut self, seats: i64) {
        self.seats += seats;
        self.bid = self.votes as f64 / (2 * self.seats + 1) as f64;
    }
}

impl Ord for Party<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let names = match self.ties {
            TieBreak::Ascending => other.name.cmp(self.name),
            TieBreak::Descending => self.name.cmp(other.name),
        };
        self.bid.total_cmp(&other.bid).then_with(|| other.seats.cmp(&self.seats)).then(names)
    }
}

impl PartialOrd for Party<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Party<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Party<'_> {}

/// What a party brings along: its votes, and the seats it has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its votes; fewer than none count as none.
    pub votes: i64,
    /// The seats it has.
    pub seats: i64,
}

/// Gives `seats` more seats to parties, on top of those they have, and returns what each party then has, by name. A
/// party without votes comes last. Without parties, nothing is given.
pub fn apportion<'a>(
    seats: i64,
    shares: impl IntoIterator<Item = Share<'a>>,
    ties: TieBreak,
) -> Vec<(&'a str, i64)> {
    let mut result = unsorted(seats, shares, ties);
    result.sort_unstable();
    result
}

/// [`apportion`] for a caller who sorts, or leaves out most of, the result.
pub(super) fn unsorted<'a>(
    seats: i64,
    shares: impl IntoIterator<Item = Share<'a>>,
    ties: TieBreak,
) -> Vec<(&'a str, i64)> {
    let mut parties: Vec<_> = shares.into_iter().map(|share| Party::new(share, ties)).collect();
    let given = head_start(seats, &mut parties);
    one_by_one(seats - given, parties)
}

/// Gives the seats in turn.
fn one_by_one(seats: i64, parties: Vec<Party<'_>>) -> Vec<(&str, i64)> {
    let mut waiting = BinaryHeap::from(parties);
    for _ in 0..seats {
        let Some(mut next) = waiting.peek_mut() else { break };
        next.take(1);
    }
    waiting.into_iter().map(|party| (party.name, party.seats)).collect()
}

/// Gives at once most of those seats that are given in any case, and says how many, so that two thousand million
/// replicas do not mean as many rounds.
///
/// The seats that are given are those with the highest bids. Bids above a threshold `t` number at most
/// `sum(votes) / 2t + parties / 2`; with `t = sum(votes) / 2(seats - parties)` that is fewer than `seats`, so all
/// of them are among the given ones, in whatever order. One less per party makes up for rounding.
fn head_start(seats: i64, parties: &mut [Party<'_>]) -> i64 {
    let spare = seats - parties.len() as i64;
    let votes: i128 = parties.iter().map(|party| i128::from(party.votes)).sum();
    if spare < 64 || votes == 0 {
        return 0;
    }
    let threshold = votes as f64 / (2.0 * spare as f64);
    let mut given = 0;
    for party in parties {
        let bids = ((party.votes as f64 / threshold - 1.0) / 2.0).floor() as i64;
        let more = (bids - party.seats).max(0);
        party.take(more);
        given += more;
    }
    given
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Seats = BTreeMap<String, i64>;

    fn parties(list: &[(&str, i64)]) -> Seats {
        list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    fn shares<'a>(votes: &'a Seats, taken: &'a Seats) -> Vec<Share<'a>> {
        let names = votes.keys().chain(taken.keys().filter(|name| !votes.contains_key(*name)));
        let of = |list: &Seats, name: &str| list.get(name).copied().unwrap_or_default();
        names.map(|name| Share { name, votes: of(votes, name), seats: of(taken, name) }).collect()
    }

    fn owned(result: Vec<(&str, i64)>) -> Seats {
        result.into_iter().map(|(name, seats)| (name.to_owned(), seats)).collect()
    }

    fn apportion(seats: i64, votes: &Seats, taken: &Seats, ties: TieBreak) -> Seats {
        owned(super::apportion(seats, shares(votes, taken), ties))
    }

    #[test]
    fn seats_follow_votes() {
        type Row<'a> =
            (&'a str, i64, &'a [(&'a str, i64)], &'a [(&'a str, i64)], TieBreak, &'a [(&'a str, i64)]);
        use TieBreak::{Ascending, Descending};
        let table: &[Row<'_>] = &[
            ("1:2 of 9", 9, &[("a", 1), ("b", 2)], &[], Ascending, &[("a", 3), ("b", 6)]),
            ("1:3 of 9", 9, &[("a", 1), ("b", 3)], &[], Ascending, &[("a", 2), ("b", 7)]),
            ("1:2 of 3", 3, &[("a", 1), ("b", 2)], &[], Ascending, &[("a", 1), ("b", 2)]),
            (
                "a tie goes to the smaller name",
                1,
                &[("a", 1), ("b", 1)],
                &[],
                Ascending,
                &[("a", 1), ("b", 0)],
            ),
            ("or to the larger", 1, &[("a", 1), ("b", 1)], &[], Descending, &[("a", 0), ("b", 1)]),
            // b bids 3/1 = 3 for the first, then 3/3 = 1 against a's 1/1: fewer seats win.
            ("a tie goes to fewer seats", 2, &[("a", 1), ("b", 3)], &[], Descending, &[("a", 1), ("b", 1)]),
            ("no votes at all", 2, &[("a", 0), ("b", 0)], &[], Ascending, &[("a", 1), ("b", 1)]),
            ("what is there counts", 2, &[("a", 1), ("b", 1)], &[("a", 2)], Ascending, &[("a", 2), ("b", 2)]),
            ("without votes comes last", 2, &[("b", 1)], &[("a", 1)], Ascending, &[("a", 1), ("b", 2)]),
            ("nobody there", 2, &[], &[], Ascending, &[]),
        ];
        for (message, seats, votes, taken, ties, want) in table {
            assert_eq!(
                apportion(*seats, &parties(votes), &parties(taken), *ties),
                parties(want),
                "{message}"
            );
        }
    }

    #[test]
    fn the_uid_decides_the_direction() {
        assert_eq!(TieBreak::of_uid(""), TieBreak::Ascending);
        // FNV-1a of "a" is 0xe40c292c, of "b" 0xe70c2de5.
        assert_eq!(TieBreak::of_uid("a"), TieBreak::Ascending);
        assert_eq!(TieBreak::of_uid("b"), TieBreak::Descending);
    }

    #[test]
    fn the_most_replicas_there_can_be_take_no_time() {
        let result = apportion(
            i64::from(i32::MAX),
            &parties(&[("a", 1), ("b", 2)]),
            &BTreeMap::new(),
            TieBreak::Ascending,
        );
        assert_eq!(result.values().sum::<i64>(), i64::from(i32::MAX));
        assert_eq!(result["a"], 715_827_882);
    }

    fn electorate() -> impl Strategy<Value = Seats> {
        prop::collection::btree_map("[a-e][a-e]?", 0i64..50, 1..8)
    }

    fn direction() -> impl Strategy<Value = TieBreak> {
        prop_oneof![Just(TieBreak::Ascending), Just(TieBreak::Descending)]
    }

    proptest! {
        #[test]
        fn every_seat_is_given_once(seats in 0i64..200, votes in electorate(), ties in direction()) {
            let result = apportion(seats, &votes, &BTreeMap::new(), ties);
            prop_assert_eq!(result.values().sum::<i64>(), seats);
            prop_assert!(result.keys().eq(votes.keys()));
        }

        #[test]
        fn a_seat_more_takes_none_away(seats in 0i64..100, votes in electorate(), ties in direction()) {
            let fewer = apportion(seats, &votes, &BTreeMap::new(), ties);
            let more = apportion(seats + 1, &votes, &BTreeMap::new(), ties);
            prop_assert!(fewer.iter().all(|(name, n)| more[name] >= *n), "{fewer:?} {more:?}");
        }

        #[test]
        fn giving_in_two_rounds_is_the_same(a in 0i64..50, b in 0i64..50, votes in electorate(), ties in direction()) {
            let first = apportion(a, &votes, &BTreeMap::new(), ties);
            prop_assert_eq!(apportion(b, &votes, &first, ties), apportion(a + b, &votes, &BTreeMap::new(), ties));
        }

        #[test]
        fn the_head_start_changes_nothing(
            seats in 0i64..5000, votes in electorate(), taken in electorate(), ties in direction()
        ) {
            let parties = shares(&votes, &taken)
                .into_iter()
                .map(|share| Party::new(share, ties))
                .collect();
            prop_assert_eq!(apportion(seats, &votes, &taken, ties), owned(one_by_one(seats, parties)));
        }

        #[test]
        fn shares_are_those_of_the_votes_within_one_seat_for_two(seats in 0i64..500, a in 1i64..99, b in 1i64..99, ties in direction()) {
            // Of more parties, Webster may give one of them two seats more or less than its exact share.
            let votes = parties(&[("a", a), ("b", b)]);
            for (name, got) in apportion(seats, &votes, &Seats::new(), ties) {
                let exact = seats as f64 * votes[&name] as f64 / (a + b) as f64;
                prop_assert!((got as f64 - exact).abs() <= 1.0, "{name}: {got} of {exact}");
            }
        }

        #[test]
        fn equal_weights_are_equal_within_one(seats in 0i64..500, n in 1usize..12, ties in direction()) {
            let votes: Seats = (0..n).map(|i| (format!("c{i}"), 7)).collect();
            let got = apportion(seats, &votes, &Seats::new(), ties);
            let (least, most) = (got.values().min().unwrap(), got.values().max().unwrap());
            prop_assert!(most - least <= 1);
        }

        #[test]
        fn more_votes_never_mean_fewer_seats(seats in 0i64..100, votes in electorate(), ties in direction()) {
            let result = apportion(seats, &votes, &BTreeMap::new(), ties);
            for (a, va) in &votes {
                for (b, vb) in &votes {
                    if va > vb {
                        prop_assert!(result[a] >= result[b], "{a} {b} {result:?}");
                    }
                }
            }
        }
    }
}
