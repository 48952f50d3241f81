//! Dividing by the room that clusters have, and moving as little as possible when the number changes.

use std::{cmp::Reverse, collections::BTreeMap};

use karmada_api::work::TargetCluster;

use super::{
    targets,
    webster::{Share, TieBreak, unsorted},
};

/// One cluster that may get replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// The cluster.
    pub name: &'a str,
    /// How many more replicas it has room for.
    pub room: i64,
    /// The replicas it has.
    pub present: i64,
}

/// How much of the present division is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// What runs stays where it is: only what is missing is placed, and what is too much is taken in proportion.
    Steady,
    /// Everything is divided anew; what clusters have already counts as room.
    Fresh,
}

/// There is not enough room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: Clusters available replicas {room} are not enough to schedule.")]
pub struct TooLittle {
    /// What was attempted, as Karmada names it.
    pub step: &'static str,
    /// How many replicas there is room for.
    pub room: i64,
    /// How many were to be placed.
    pub wanted: i64,
}

/// Divides `replicas` over clusters, given in the order of preference (it tells those apart that have equal room).
/// `aggregate`: into as few clusters as have room. The result is by name, without
/// clusters that get nothing.
///
/// # Errors
/// When there is not enough room.
pub fn divide_by_room(
    replicas: i32,
    slots: &[Slot<'_>],
    mode: Mode,
    aggregate: bool,
    ties: TieBreak,
) -> Result<Vec<TargetCluster>, TooLittle> {
    let wanted = i64::from(replicas);
    let assigned: i64 = slots.iter().map(|slot| slot.present).sum();
    if mode == Mode::Fresh {
        let step = "failed to do fresh scale";
        let all =
            slots.iter().map(|slot| (slot.name, slot.room.saturating_add(slot.present), false)).collect();
        return Ok(targets(spread(step, wanted, all, aggregate, ties)?));
    }
    let now = slots.iter().filter(|slot| slot.present > 0).map(|slot| (slot.name, slot.present));
    let mut now: BTreeMap<_, _> = now.collect();
    if assigned > wanted {
        // What runs now is both the room and the weight, so nothing grows.
        let now = now.into_iter().map(|(name, present)| (name, present, false)).collect();
        return Ok(targets(spread("failed to scale down", wanted, now, aggregate, ties)?));
    }
    if assigned < wanted {
        let free = slots.iter().map(|slot| (slot.name, slot.room, slot.present > 0)).collect();
        for (name, more) in spread("failed to scale up", wanted - assigned, free, aggregate, ties)? {
            *now.entry(name).or_default() += more;
        }
    }
    Ok(targets(now))
}

/// Gives `wanted` replicas to clusters (name, room, in use) by their room; with `aggregate`, only to the first that
/// together have enough, those in use before others and the roomier before others.
fn spread<'a>(
    step: &'static str,
    wanted: i64,
    mut clusters: Vec<(&'a str, i64, bool)>,
    aggregate: bool,
    ties: TieBreak,
) -> Result<Vec<(&'a str, i64)>, TooLittle> {
    let room = clusters.iter().map(|(_, room, _)| *room).fold(0_i64, i64::saturating_add);
    if room < wanted {
        return Err(TooLittle { step, room, wanted });
    }
    if aggregate {
        clusters.sort_by_key(|(_, room, in_use)| (!in_use, Reverse(*room)));
        let mut sum = 0_i64;
        let enough = clusters.iter().position(|(_, room, _)| {
            sum = sum.saturating_add(*room);
            sum >= wanted
        });
        clusters.truncate(enough.map_or(clusters.len(), |last| last + 1));
    }
    let share = |(name, votes, _)| Share { name, votes, seats: 0 };
    let mut given = unsorted(wanted, clusters.into_iter().map(share), ties);
    given.retain(|(_, replicas)| *replicas > 0);
    given.sort_unstable();
    Ok(given)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Numbers = BTreeMap<String, i64>;

    fn numbers(list: &[(&str, i64)]) -> Numbers {
        list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    fn slots<'a>(room: &'a Numbers, present: &Numbers) -> Vec<Slot<'a>> {
        let has = |name: &str| present.get(name).copied().unwrap_or_default();
        room.iter().map(|(name, room)| Slot { name, room: *room, present: has(name) }).collect()
    }

    fn divide(
        replicas: i32,
        room: &Numbers,
        present: &Numbers,
        mode: Mode,
        aggregate: bool,
    ) -> Result<Numbers, TooLittle> {
        let got = divide_by_room(replicas, &slots(room, present), mode, aggregate, TieBreak::Ascending)?;
        assert!(got.is_sorted_by_key(|target| target.name.clone()));
        Ok(got.into_iter().map(|target| (target.name, i64::from(target.replicas))).collect())
    }

    fn without_empty(mut numbers: Numbers) -> Numbers {
        numbers.retain(|_, n| *n > 0);
        numbers
    }

    type Row<'a> =
        (&'a str, i32, &'a [(&'a str, i64)], &'a [(&'a str, i64)], Mode, bool, &'a [(&'a str, i64)]);

    #[test]
    fn as_little_as_possible_moves() {
        use Mode::{Fresh, Steady};
        let table: &[Row<'_>] = &[
            (
                "by room",
                12,
                &[("a", 6), ("b", 12), ("c", 18)],
                &[],
                Steady,
                false,
                &[("a", 2), ("b", 4), ("c", 6)],
            ),
            (
                "only the missing",
                12,
                &[("a", 6), ("b", 12)],
                &[("a", 9)],
                Steady,
                false,
                &[("a", 10), ("b", 2)],
            ),
            (
                "proportionally fewer",
                6,
                &[("a", 1), ("b", 1)],
                &[("a", 8), ("b", 4)],
                Steady,
                false,
                &[("a", 4), ("b", 2)],
            ),
            (
                "just right",
                6,
                &[("a", 0), ("b", 0)],
                &[("a", 5), ("b", 1)],
                Steady,
                false,
                &[("a", 5), ("b", 1)],
            ),
            ("anew", 6, &[("a", 0), ("b", 6)], &[("a", 6)], Fresh, false, &[("a", 3), ("b", 3)]),
            ("a cluster that is gone", 4, &[("b", 9)], &[("a", 4)], Steady, false, &[("b", 4)]),
            ("few", 5, &[("a", 3), ("b", 6), ("c", 2)], &[], Steady, true, &[("b", 5)]),
            ("few, but two", 8, &[("a", 3), ("b", 6), ("c", 2)], &[], Steady, true, &[("a", 3), ("b", 5)]),
            ("few, in use first", 4, &[("a", 2), ("b", 9)], &[("a", 2)], Steady, true, &[("a", 4)]),
            (
                "few, scaled down",
                4,
                &[("a", 9), ("b", 9), ("c", 9)],
                &[("a", 2), ("b", 5), ("c", 3)],
                Steady,
                true,
                &[("b", 4)],
            ),
            (
                "few, scaled down, two are needed",
                7,
                &[("a", 9), ("b", 9), ("c", 9)],
                &[("a", 2), ("b", 5), ("c", 3)],
                Steady,
                true,
                &[("b", 4), ("c", 3)],
            ),
            (
                "few, anew: the roomiest, wherever it is now",
                4,
                &[("a", 2), ("b", 9)],
                &[("a", 2)],
                Fresh,
                true,
                &[("b", 4)],
            ),
            ("nothing left", 0, &[("a", 1), ("b", 1)], &[("a", 2), ("b", 1)], Steady, false, &[]),
        ];
        for (message, replicas, free, now, mode, aggregate, want) in table {
            let got = divide(*replicas, &numbers(free), &numbers(now), *mode, *aggregate).map(without_empty);
            assert_eq!(got, Ok(numbers(want)), "{message}");
        }
    }

    #[test]
    fn of_equal_room_the_first_is_taken() {
        let slots = [("b", 4), ("a", 4), ("c", 4)].map(|(name, room)| Slot { name, room, present: 0 });
        let got = divide_by_room(6, &slots, Mode::Steady, true, TieBreak::Ascending).unwrap();
        assert_eq!(
            crate::divide::without_empty(got),
            [TargetCluster::new("a", 3), TargetCluster::new("b", 3)]
        );
    }

    #[test]
    fn too_little_room_is_said_in_karmadas_words() {
        let room = numbers(&[("a", 3), ("b", 4)]);
        let error = divide(9, &room, &Numbers::new(), Mode::Steady, false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to scale up: Clusters available replicas 7 are not enough to schedule."
        );
        assert_eq!(error.wanted, 9);
        let error = divide(10, &room, &numbers(&[("a", 2)]), Mode::Fresh, false).unwrap_err();
        assert_eq!((error.room, error.wanted), (9, 10));
    }

    fn fleet() -> impl Strategy<Value = Numbers> {
        prop::collection::btree_map("[a-e]", 0i64..20, 1..6)
    }

    proptest! {
        #[test]
        fn room_is_never_exceeded_and_nothing_is_lost(
            free in fleet(), now in prop::collection::btree_map("[a-f]", 0i64..10, 0..5),
            replicas in 0i32..60, aggregate: bool,
        ) {
            let before = |name: &str| now.get(name).copied().unwrap_or_default();
            let kept: i64 = now.iter().filter(|(name, _)| free.contains_key(*name)).map(|(_, n)| n).sum();
            let room: i64 = free.values().sum();
            match divide(replicas, &free, &now, Mode::Steady, aggregate) {
                Err(error) => prop_assert!(error.room < error.wanted && room < i64::from(replicas) - kept),
                Ok(got) => {
                    prop_assert_eq!(got.values().sum::<i64>(), i64::from(replicas), "the sum is exact");
                    for (name, n) in &got {
                        if kept <= i64::from(replicas) {
                            prop_assert!(*n >= before(name), "growing takes none away");
                            prop_assert!(*n <= before(name) + free[name], "no more than there is room for");
                        } else {
                            prop_assert!(*n <= before(name), "shrinking adds none");
                        }
                    }
                    let after = |name: &str| got.get(name).copied().unwrap_or_default();
                    let moved: i64 = free.keys().map(|name| (after(name) - before(name)).abs()).sum();
                    let change = (i64::from(replicas) - kept).abs();
                    prop_assert_eq!(moved, change, "nothing else moves");
                }
            }
        }

        #[test]
        fn anew_stays_within_the_room(
            free in fleet(), now in prop::collection::btree_map("[a-e]", 0i64..10, 0..5),
            replicas in 0i32..60, aggregate: bool,
        ) {
            if let Ok(got) = divide(replicas, &free, &now, Mode::Fresh, aggregate) {
                prop_assert_eq!(got.values().sum::<i64>(), i64::from(replicas));
                for (name, n) in &got {
                    prop_assert!(*n <= free[name] + now.get(name).copied().unwrap_or_default());
                }
            }
        }

        #[test]
        fn the_order_of_clusters_is_irrelevant_without_ties(free in fleet(), turn in 0usize..5, replicas in 0i32..40, aggregate: bool) {
            // Equal room is told apart by the order of preference; everything else is not.
            let distinct: Numbers = free.iter().enumerate().map(|(i, (name, n))| (name.clone(), n * 6 + i as i64)).collect();
            let mut slots = slots(&distinct, &Numbers::new());
            let forwards = divide_by_room(replicas, &slots, Mode::Steady, aggregate, TieBreak::Ascending);
            let by = turn % slots.len();
            slots.rotate_left(by);
            prop_assert_eq!(divide_by_room(replicas, &slots, Mode::Steady, aggregate, TieBreak::Ascending), forwards);
        }

        #[test]
        fn more_room_never_takes_a_replica_away(
            free in fleet(), now in prop::collection::btree_map("[a-e]", 0i64..10, 0..5),
            replicas in 0i32..60, more in 0i64..9, aggregate: bool,
        ) {
            let mut roomier = free.clone();
            *roomier.values_mut().next().unwrap() += more;
            if let Ok(got) = divide(replicas, &free, &now, Mode::Steady, aggregate) {
                let with = divide(replicas, &roomier, &now, Mode::Steady, aggregate);
                prop_assert_eq!(with.map(|w| w.values().sum::<i64>()), Ok(got.values().sum()), "it is placed all the same");
            }
        }

        #[test]
        fn aggregated_uses_no_more_clusters_than_it_has_to(free in fleet(), replicas in 1i32..60) {
            if let Ok(got) = divide(replicas, &free, &Numbers::new(), Mode::Steady, true) {
                let mut largest: Vec<_> = free.values().copied().collect();
                largest.sort_unstable_by_key(|n| Reverse(*n));
                let (mut sum, mut least) = (0, 0);
                while sum < i64::from(replicas) {
                    sum += largest[least];
                    least += 1;
                }
                prop_assert!(without_empty(got).len() <= least);
            }
        }
    }
}
