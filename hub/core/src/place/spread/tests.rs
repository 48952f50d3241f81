use serde_json::{Value, json};

use super::*;
use crate::{affinity::tests::cluster, fleet::Fleet};

/// A fleet from `name region zones provider room`.
fn fleet(rows: &[(&str, &str, &[&str], &str, i64)]) -> Fleet {
    Fleet::of(rows.iter().map(|(name, region, zones, provider, room)| {
        let status = json!({"resourceSummary": {"allocatable": {"pods": room.to_string()}}});
        let spec = json!({"region": region, "zones": zones, "provider": provider});
        cluster(name, json!({"rack": region}), spec, status)
    }))
}

fn names(
    fleet: &Fleet,
    scheduling: Value,
    constraints: Value,
    replicas: i32,
    there: &[&str],
) -> Result<Vec<String>, String> {
    let placement: Placement =
        serde_json::from_value(json!({"replicaScheduling": scheduling, "spreadConstraints": constraints}))
            .unwrap();
    let ask = crate::estimate::Ask::replica(None);
    let mut candidates: Vec<_> = fleet
        .members()
        .iter()
        .map(|member| Candidate {
            member,
            tier: 0,
            there: there.contains(&member.name()),
            present: 0,
            room: ask.room(member),
        })
        .collect();
    sort(&mut candidates);
    let chosen = choose(&placement, replicas, candidates).map_err(|error| error.to_string())?;
    Ok(chosen.iter().map(|c| c.name().to_owned()).collect())
}

fn duplicated() -> Value {
    json!({"replicaSchedulingType": "Duplicated"})
}

fn aggregated() -> Value {
    json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"})
}

fn by(field: &str, min: i64, max: i64) -> Value {
    json!({"spreadByField": field, "minGroups": min, "maxGroups": max})
}

fn owned(names: &[&str]) -> Result<Vec<String>, String> {
    Ok(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn clusters_are_exchanged_for_roomier_ones_from_the_last_on() {
    let fleet = fleet(&[("a", "", &[], "", 40), ("b", "", &[], "", 30), ("c", "", &[], "", 60)]);
    let two = json!([by("cluster", 1, 2)]);
    // Karmada's own example: a and b are where it is, but only with c is there room for 80.
    assert_eq!(names(&fleet, aggregated(), two.clone(), 80, &["a", "b"]), owned(&["a", "c"]));
    assert_eq!(names(&fleet, aggregated(), two.clone(), 70, &["a", "b"]), owned(&["a", "b"]));
    assert_eq!(
        names(&fleet, duplicated(), two.clone(), 80, &["a", "b"]),
        owned(&["a", "b"]),
        "room is no matter"
    );
    assert_eq!(names(&fleet, duplicated(), two.clone(), 1, &[]), owned(&["c", "a"]), "but it orders");
    let error = names(&fleet, aggregated(), two, 101, &[]).unwrap_err();
    assert!(error.contains("no enough resource when selecting 2 clusters"), "{error}");
}

#[test]
fn regions_are_chosen_by_score_and_clusters_within_them() {
    let fleet = fleet(&[
        ("a1", "a", &[], "", 10),
        ("a2", "a", &[], "", 20),
        ("b1", "b", &[], "", 30),
        ("c1", "c", &[], "", 5),
        ("c2", "c", &[], "", 5),
        ("c3", "c", &[], "", 5),
    ]);
    let regions = |min, max, clusters: Value| json!([by("region", min, max), clusters]);
    let table = [
        // Duplicated, 5 replicas: all clusters have room, so the region with the most of them is the best.
        ("the region with most clusters", duplicated(), regions(1, 1, by("cluster", 1, 9)), 5, vec![], owned(&["c1", "c2", "c3"])),
        ("two regions, two clusters", duplicated(), regions(2, 2, by("cluster", 2, 2)), 5, vec![], owned(&["c1", "a2"])),
        ("and a third cluster", duplicated(), regions(2, 2, by("cluster", 2, 3)), 5, vec![], owned(&["c1", "a2", "a1"])),
        ("one region is not enough for four clusters", duplicated(), regions(1, 2, by("cluster", 4, 9)), 5, vec![], owned(&["c1", "a2", "a1", "c2", "c3"])),
        // With 15 replicas each, only a2 and b1 have room for all.
        ("where there is room for all", duplicated(), regions(1, 1, by("cluster", 1, 1)), 25, vec![], owned(&["b1"])),
        // Divided over two regions, each has to hold 15, and each can; the pair with the most clusters is the best.
        ("divided", aggregated(), regions(2, 2, by("cluster", 2, 9)), 30, vec![], owned(&["a2", "c1", "a1", "c2", "c3"])),
        // Over one region all 35 have to fit into it: none has room, and a and b are the nearest to it.
        ("divided, none is enough", aggregated(), regions(1, 1, by("cluster", 1, 9)), 35, vec![], owned(&["a2", "a1"])),
        ("divided, where it is", aggregated(), regions(2, 2, by("cluster", 2, 9)), 30, vec!["c1", "c2", "c3"], owned(&["c1", "a2", "c2", "c3", "a1"])),
        ("too few regions", duplicated(), regions(4, 5, by("cluster", 1, 9)), 1, vec![],
            Err("failed to select clusters: the number of feasible region is less than spreadConstraint.MinGroups: 3 of 4".into())),
        ("too few clusters", duplicated(), regions(1, 1, by("cluster", 4, 9)), 1, vec![],
            Err("failed to select clusters: the number of clusters is less than the cluster spreadConstraint.MinGroups: \
                 no choice of 1 to 1 out of 3 groups by region has 4 clusters, all of them have 6".into())),
        ("no greatest number", duplicated(), json!([{"spreadByField": "region", "minGroups": 1}, by("cluster", 1, 9)]), 5, vec![], owned(&["c1", "c2", "c3"])),
    ];
    for (message, scheduling, constraints, replicas, there, want) in table {
        assert_eq!(names(&fleet, scheduling, constraints, replicas, &there), want, "{message}");
    }
}

#[test]
fn providers_and_zones_are_chosen_like_regions() {
    let fleet = fleet(&[
        ("a1", "eu", &["z1", "z2"], "p", 9),
        ("a2", "eu", &["z2"], "p", 9),
        ("b1", "us", &["z3"], "q", 9),
        ("b2", "us", &["z4"], "q", 9),
        ("b3", "us", &["z5"], "r", 9),
    ]);
    let table = [
        ("one provider", json!([by("provider", 1, 1), by("cluster", 1, 9)]), owned(&["a1", "a2"])),
        ("two providers, a cluster each", json!([by("provider", 2, 2), by("cluster", 2, 2)]), owned(&["a1", "b1"])),
        ("three", json!([by("provider", 3, 3), by("cluster", 3, 3)]), owned(&["a1", "b1", "b3"])),
        ("two zones: one cluster may have both", json!([by("zone", 2, 2), by("cluster", 1, 9)]), owned(&["a1", "a2"])),
        ("five zones", json!([by("zone", 5, 5), by("cluster", 1, 9)]), owned(&["a1", "b1", "b2", "b3", "a2"])),
        ("two providers within one region", json!([by("provider", 2, 2), by("region", 1, 1), by("cluster", 2, 9)]), owned(&["b1", "b3", "b2"])),
        ("the same with two clusters", json!([by("provider", 2, 2), by("region", 1, 1), by("cluster", 2, 2)]), owned(&["b1", "b3"])),
        ("six zones", json!([by("zone", 6, 6), by("cluster", 1, 9)]),
            Err("failed to select clusters: the number of feasible zone is less than spreadConstraint.MinGroups: 5 of 6".into())),
        ("by a label", json!([{"spreadByLabel": "rack", "minGroups": 2, "maxGroups": 2}, by("cluster", 2, 2)]), owned(&["b1", "a1"])),
    ];
    for (message, constraints, want) in table {
        assert_eq!(names(&fleet, duplicated(), constraints, 1, &[]), want, "{message}");
    }
}

#[test]
fn combinations_are_ranked_as_karmada_does() {
    let group = |name, score, clusters: usize| Group { name, score, clusters: (0..clusters).collect() };
    let best = |groups: &[Group<'_>], min, max, target| -> Vec<String> {
        let found = best_groups(groups, Bounds { min, max }, target);
        found.first().map(|path| path.iter().map(|g| g.name.to_owned()).collect()).unwrap_or_default()
    };
    // The example of Karmada's comments: R1 to R4 by descending score; R1 with R3 suffices as well as R1 with R4.
    let groups = [group("r1", 40, 1), group("r2", 30, 1), group("r3", 20, 6), group("r4", 10, 6)];
    let table: [(&str, usize, usize, usize, &[&str]); 6] = [
        ("the best pair that suffices", 2, 2, 7, &["r1", "r3"]),
        ("fewer are enough", 1, 2, 1, &["r1"]),
        ("the clusters need two", 1, 2, 12, &["r3", "r4"]),
        ("none", 1, 1, 7, &[]),
        ("all", 4, 4, 1, &["r1", "r2", "r3", "r4"]),
        ("one large group", 1, 1, 6, &["r3"]),
    ];
    for (message, min, max, target, want) in table {
        assert_eq!(best(&groups, min, max, target), want, "{message}");
    }
    let alike = [group("b", 5, 2), group("a", 5, 2), group("c", 5, 3)];
    assert_eq!(best(&alike, 1, 1, 1), ["c"], "more clusters of the same score");
    assert_eq!(best(&alike, 2, 2, 1), ["a", "c"]);
}

#[test]
fn very_many_groups_take_no_time() {
    let names: Vec<_> = (0..200).map(|i| format!("r{i:03}")).collect();
    let groups: Vec<_> =
        names.iter().map(|name| Group { name, score: 7, clusters: vec![0; 1 + name.len() % 3] }).collect();
    let found = best_groups(&groups, Bounds { min: 10, max: 20 }, 10);
    assert_eq!(found[0].len(), 10);
    assert!(best_groups(&groups, Bounds { min: 10, max: 20 }, 10_000).is_empty());
}

proptest::proptest! {
    /// Where the search can be exhaustive and the fewest groups suffice, the short cut finds the same.
    #[test]
    fn the_short_cut_is_the_search(scores in proptest::collection::vec(0i64..4, 1..8), min in 1usize..4) {
        let names: Vec<_> = (0..scores.len()).map(|i| format!("g{i}")).collect();
        let groups: Vec<_> = names.iter().zip(&scores)
            .map(|(name, score)| Group { name, score: *score, clusters: vec![0; 1 + (*score as usize * 7 + name.len()) % 3] })
            .collect();
        let bounds = Bounds { min, max: groups.len().max(min) };
        let searched: Vec<_> = best_groups(&groups, bounds, min).first()
            .map(|path| path.iter().map(|g| g.name).collect()).unwrap_or_default();
        let mut short: Vec<_> = greedy(&groups, bounds, min).map(|c| c.groups).unwrap_or_default();
        short.sort_by_key(|at| (Reverse(groups[*at].score), groups[*at].name));
        let short: Vec<_> = short.into_iter().map(|at| groups[at].name).collect();
        proptest::prop_assert_eq!(searched, short);
    }
}
