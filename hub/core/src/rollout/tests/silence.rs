//! Clusters that are silent, or hold the change back.

use super::*;

#[test]
fn silent_clusters_neither_pass_nor_fail_a_gate() {
    let mut fleet = Fleet::new(20, "tier=pilot soak=0; 100% soak=0", "minHealthy=1 deadline=5m");
    fleet.clusters[0].silent = Some(at(-100));
    fleet.clusters[1].silent = Some(at(-100));
    fleet.change("two");
    fleet.run(100, 60, well);
    assert_eq!(
        (fleet.state.phase, fleet.having("two")),
        (Phase::Running, 2),
        "nobody has tried it: {}",
        fleet.said()
    );
    assert!(fleet.said().contains("2 silent since before"), "{}", fleet.said());
    fleet.clusters[0].silent = None;
    fleet.run(5, 60, well);
    assert_eq!(fleet.having("two"), 20, "one has, and it is well: {}", fleet.said());
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent");
    assert!(fleet.said().contains("1 cluster has not reported it yet"), "{}", fleet.said());
}

#[test]
fn held_clusters_are_waited_for_by_nobody() {
    let mut fleet = Fleet::new(10, "50% soak=0; 100% soak=0", "deadline=1m");
    fleet.change("two");
    fleet.look(well);
    let held = fleet.clusters.iter().position(|c| c.has.as_deref() == Some("two")).unwrap();
    fleet.clusters[held].seen = Seen::Held;
    fleet.run(10, 30, well);
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent", "{}", fleet.said());
    assert_eq!(fleet.last.sums.of(Stage::WaitingHeld), 1);
}

#[test]
fn a_change_that_cuts_links_is_noticed() {
    let fall = |changed: usize, others: usize| {
        let mut fleet = Fleet::new(100, "20% soak=1h; 100%", "");
        fleet.change("two");
        fleet.run(3, 10, well);
        let silent = Some(at(fleet.now));
        let (mut of_changed, mut of_others) = (changed, others);
        for cluster in &mut fleet.clusters {
            let left = if cluster.has.as_deref() == Some("two") { &mut of_changed } else { &mut of_others };
            if *left > 0 {
                *left -= 1;
                cluster.silent = silent;
            }
        }
        fleet.now += 10;
        fleet.run(3, 10, well);
        fleet
    };
    // One link may go; of 20, four are 20%; the same share of those that were not changed says that it was something else.
    for (changed, others, want) in
        [(1, 0, Phase::Running), (4, 0, Phase::Breached), (4, 16, Phase::Running), (4, 3, Phase::Breached)]
    {
        let fleet = fall(changed, others);
        assert_eq!(fleet.state.phase, want, "{changed} and {others}: {}", fleet.said());
    }
    let said = fall(4, 3).said();
    assert!(
        said.contains("4 of 20 clusters fell silent after they were changed, and 3 of 80 that were not"),
        "{said}"
    );
}

#[test]
fn silence_needs_enough_others_and_a_change_shortly_before() {
    // How many there are, after how long changed ones fall silent, and what becomes of it.
    let rows = [(100, 60, Phase::Returned), (100, 700, Phase::Running), (24, 60, Phase::Running)];
    for (count, after, want) in rows {
        let mut fleet = Fleet::new(count, "20% soak=1h; 100% soak=1h", "onBreach=Return");
        fleet.change("two");
        fleet.run(3, 1, well);
        fleet.now += after;
        let silent = Some(at(fleet.now));
        let changed = fleet.clusters.iter_mut().filter(|c| c.has.as_deref() == Some("two"));
        changed.take(4).for_each(|cluster| cluster.silent = silent);
        fleet.now += 10;
        fleet.run(3, 10, well);
        assert_eq!(fleet.state.phase, want, "{count} {after}: {}", fleet.said());
    }
    // In the last wave nobody is left to compare with.
    let mut fleet = Fleet::new(100, "100% soak=1h", "onBreach=Return");
    fleet.change("two");
    fleet.run(3, 10, well);
    let silent = Some(at(fleet.now));
    fleet.clusters.iter_mut().take(30).for_each(|cluster| cluster.silent = silent);
    fleet.now += 10;
    fleet.run(3, 10, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Running, 100), "{}", fleet.said());
}
