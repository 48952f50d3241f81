//! Workloads that are scaled while they are watched.

use super::*;

#[test]
fn a_cluster_that_is_scaled_is_watched_on() {
    let copies = |available, updated| Some(Copies { available, updated });
    // What the pilot says when it is not well any more, and whether its soak began anew.
    let rows = [
        // Scaled from 3 to 10: those that were there are there, some of the new ones too.
        (copies(3, true), false),
        (copies(7, true), false),
        // One of those that were there is gone.
        (copies(2, true), true),
        // Some are still of what was before.
        (copies(3, false), true),
        (copies(9, false), true),
        // It does not tell.
        (None, true),
    ];
    for (grown, anew) in rows {
        let mut fleet = Fleet::new(20, "tier=pilot soak=1h; 100%", "deadline=2h");
        fleet.clusters.iter_mut().for_each(|cluster| cluster.copies = copies(3, true));
        fleet.change("two");
        fleet.run(5, 60, well);
        let before = fleet.state.well.unwrap();
        // Again and again, as an autoscaler does.
        for _ in 0..10 {
            (fleet.clusters[0].copies, fleet.clusters[0].seen) = (grown, Seen::Unwell);
            fleet.run(3, 60, |at| if at == 0 { Seen::Unwell } else { Seen::Well });
            (fleet.clusters[0].copies, fleet.clusters[0].seen) = (copies(3, true), Seen::Well);
            fleet.run(2, 60, well);
        }
        let is_anew = fleet.state.well.is_none_or(|since| since > before);
        assert_eq!(is_anew, anew, "{grown:?}: {}", fleet.said());
        fleet.run(20, 60, well);
        assert_eq!(fleet.having("two"), if anew { 2 } else { 20 }, "{grown:?}: {}", fleet.said());
    }
}

#[test]
fn what_was_never_well_is_not_being_scaled() {
    let mut fleet = Fleet::new(20, "tier=pilot; 100%", "deadline=10m");
    fleet.change("two");
    let sick = |_| Seen::Unwell;
    for cluster in &mut fleet.clusters {
        cluster.copies = Some(Copies { available: 0, updated: true });
    }
    fleet.run(20, 60, sick);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Breached, 2), "{}", fleet.said());
}
