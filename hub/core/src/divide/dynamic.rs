//! Dividing by the room that clusters have, and moving as little as possible when the number changes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use karmada_api::work::TargetCluster;

use super::{
    targets,
    webster::{TieBreak, apportion},
};

/// How many replicas each candidate has room for.
pub type Room = BTreeMap<String, i64>;

/// How much of the present division is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// What runs stays where it is: only what is missing is placed, and what is too much is taken in proportion.
    Steady,
    /// Everything is divided anew; what clusters have already counts as room.
    Fresh,
}

/// Divides `replicas` over the candidates (the keys of `room`). `present`: the division until now, from which
/// clusters that are no candidates any more are left out. `aggregate`: into as few clusters as have room.
///
/// # Errors
/// Karmada's sentence when there is not enough room.
pub fn divide_by_room(
    replicas: i32,
    room: &Room,
    present: &[TargetCluster],
    mode: Mode,
    aggregate: bool,
    ties: TieBreak,
) -> Result<Vec<TargetCluster>, String> {
    let wanted = i64::from(replicas);
    let present: BTreeMap<String, i64> = present
        .iter()
        .filter(|target| room.contains_key(&target.name))
        .map(|target| (target.name.clone(), i64::from(target.replicas)))
        .collect();
    let assigned: i64 = present.values().sum();
    if mode == Mode::Fresh {
        let mut room = room.clone();
        for (name, replicas) in &present {
            *room.entry(name.clone()).or_default() += replicas;
        }
        return Ok(targets(spread(wanted, &room, &BTreeSet::new(), aggregate, ties)?));
    }
    let in_use = present.iter().filter(|(_, n)| **n > 0).map(|(name, _)| name.clone()).collect();
    if assigned > wanted {
        // What runs now is both the room and the weight, so nothing grows.
        return Ok(targets(spread(wanted, &present, &BTreeSet::new(), aggregate, ties)?));
    }
    let mut result = present;
    if assigned < wanted {
        for (name, more) in spread(wanted - assigned, room, &in_use, aggregate, ties)? {
            *result.entry(name).or_default() += more;
        }
    }
    Ok(targets(result))
}

/// Gives `wanted` replicas to clusters by their room; with `aggregate`, only to the first that together have
/// enough, those in use before others and the roomier before others.
fn spread(
    wanted: i64,
    room: &Room,
    in_use: &BTreeSet<String>,
    aggregate: bool,
    ties: TieBreak,
) -> Result<BTreeMap<String, i64>, String> {
    let total: i64 = room.values().sum();
    if total < wanted {
        return Err(format!("Clusters available replicas {total} are not enough to schedule."));
    }
    let mut votes = room.clone();
    if aggregate {
        let mut order: Vec<_> = room.iter().collect();
        order.sort_by_key(|(name, free)| (!in_use.contains(*name), Reverse(**free)));
        let mut sum = 0;
        votes = order
            .into_iter()
            .take_while(|(_, free)| {
                let more = sum < wanted;
                sum += **free;
                more
            })
            .map(|(name, free)| (name.clone(), *free))
            .collect();
    }
    Ok(apportion(wanted, &votes, &BTreeMap::new(), ties))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn room(list: &[(&str, i64)]) -> Room {
        list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    fn present(list: &[(&str, i32)]) -> Vec<TargetCluster> {
        list.iter().map(|(name, n)| TargetCluster::new(*name, *n)).collect()
    }

    type Row<'a> =
        (&'a str, i32, &'a [(&'a str, i64)], &'a [(&'a str, i32)], Mode, bool, &'a [(&'a str, i32)]);

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
        ];
        for (message, replicas, free, now, mode, aggregate, want) in table {
            let got =
                divide_by_room(*replicas, &room(free), &present(now), *mode, *aggregate, TieBreak::Ascending);
            assert_eq!(got, Ok(present(want)), "{message}");
        }
    }

    #[test]
    fn too_little_room_is_said_in_karmadas_words() {
        let got =
            divide_by_room(9, &room(&[("a", 3), ("b", 4)]), &[], Mode::Steady, false, TieBreak::Ascending);
        assert_eq!(got, Err("Clusters available replicas 7 are not enough to schedule.".into()));
    }

    proptest! {
        #[test]
        fn room_is_never_exceeded_and_nothing_is_lost(
            free in prop::collection::btree_map("[a-d]", 0i64..20, 1..5),
            now in prop::collection::btree_map("[a-e]", 0i32..10, 0..5),
            replicas in 0i32..60,
            aggregate in any::<bool>(),
        ) {
            let now: Vec<_> = now.into_iter().map(|(name, n)| TargetCluster::new(name, n)).collect();
            if let Ok(got) = divide_by_room(replicas, &free, &now, Mode::Steady, aggregate, TieBreak::Ascending) {
                prop_assert_eq!(got.iter().map(|t| t.replicas).sum::<i32>(), replicas);
                let before = |name: &str| now.iter().find(|t| t.name == name).map_or(0, |t| i64::from(t.replicas));
                let kept: i64 = now.iter().filter(|t| free.contains_key(&t.name)).map(|t| i64::from(t.replicas)).sum();
                for target in &got {
                    if kept <= i64::from(replicas) {
                        prop_assert!(i64::from(target.replicas) >= before(&target.name), "growing takes none away");
                    } else {
                        prop_assert!(i64::from(target.replicas) <= before(&target.name), "shrinking adds none");
                    }
                }
            }
        }
    }
}
