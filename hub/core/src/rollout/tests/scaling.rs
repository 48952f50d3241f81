//! Workloads that are scaled while they are watched.

use super::*;

fn copies(available: u32, there: u32, updated: bool) -> Option<Copies> {
    Some(Copies { available, there, wanted: Some(there), updated })
}

/// The place of one that has the change.
fn pilot(fleet: &Fleet) -> usize {
    fleet.clusters.iter().position(|cluster| cluster.has.as_deref() == Some("two")).unwrap()
}

#[test]
fn a_cluster_that_is_scaled_is_watched_on() {
    // What the pilot says when it is not well any more, and whether its soak began anew.
    let rows = [
        // Scaled from 3 to 10: those that were there are there, some of the new ones too.
        (copies(3, 10, true), false),
        (copies(7, 10, true), false),
        // By the member, which the hub does not know yet.
        (Some(Copies { available: 3, there: 4, wanted: Some(3), updated: true }), false),
        // By the hub, of which nothing is made yet.
        (Some(Copies { available: 3, there: 3, wanted: Some(4), updated: true }), false),
        // One of those that were there is gone.
        (copies(2, 10, true), true),
        // Some are still of what was before.
        (copies(3, 10, false), true),
        (copies(9, 10, false), true),
        // Nothing is scaled: it is ill.
        (copies(3, 3, true), true),
        // It does not tell.
        (None, true),
    ];
    for (grown, anew) in rows {
        let mut fleet = Fleet::new(20, "tier=pilot soak=1h; 100%", "deadline=2h");
        fleet.clusters.iter_mut().for_each(|cluster| cluster.copies = copies(3, 3, true));
        fleet.change("two");
        fleet.run(5, 60, well);
        let before = fleet.state.well.unwrap();
        // Again and again, as an autoscaler does.
        for _ in 0..10 {
            (fleet.clusters[0].copies, fleet.clusters[0].seen) = (grown, Seen::Unwell);
            fleet.run(3, 60, |at| if at == 0 { Seen::Unwell } else { Seen::Well });
            (fleet.clusters[0].copies, fleet.clusters[0].seen) = (copies(3, 3, true), Seen::Well);
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
        cluster.copies = copies(0, 3, true);
    }
    fleet.run(20, 60, sick);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Breached, 2), "{}", fleet.said());
}

#[test]
fn an_illness_is_one_whatever_is_scaled() {
    // How it was when it was well, how it stays, and for how many minutes it has not failed yet.
    let rows = [
        // From none to three, which crash: nothing has shown yet that the change is good.
        (copies(0, 0, true), Seen::Unwell, copies(0, 3, true), 10),
        // From one to fifty, of which the others crash.
        (copies(1, 1, true), Seen::Unwell, copies(1, 50, true), 20),
        // What was scaled does not apply.
        (copies(3, 3, true), Seen::Unwell, None, 10),
        // It has another illness.
        (copies(3, 3, true), Seen::Unwell, copies(3, 3, true), 10),
        // It does not say any more what became of it.
        (copies(3, 3, true), Seen::Unsaid, copies(3, 3, true), 17),
    ];
    for (before, seen, after, minutes) in rows {
        let mut fleet = Fleet::new(20, "tier=pilot soak=24h; 100%", "deadline=10m");
        fleet.clusters.iter_mut().for_each(|cluster| cluster.copies = before);
        fleet.change("two");
        fleet.run(5, 60, well);
        (fleet.clusters[0].copies, fleet.clusters[0].seen) = (after, seen);
        fleet.run(minutes, 60, |at| if at == 0 { seen } else { Seen::Well });
        assert_eq!(fleet.state.phase, Phase::Running, "{before:?} {after:?}: {}", fleet.said());
        fleet.run(5, 60, |at| if at == 0 { seen } else { Seen::Well });
        assert_eq!(fleet.state.phase, Phase::Breached, "{before:?} {after:?}: {}", fleet.said());
    }
}

#[test]
fn an_autoscaler_uses_nobodys_time() {
    let mut fleet = Fleet::new(20, "tier=pilot soak=48h; 100%", "deadline=10m");
    fleet.clusters.iter_mut().for_each(|cluster| cluster.copies = copies(3, 3, true));
    fleet.change("two");
    fleet.run(5, 60, well);
    let (scaled, before) = (pilot(&fleet), fleet.state.well.unwrap());
    // Every few minutes for a day; each time the Work is another one, and it takes its time until that is reported.
    for _ in 0..300 {
        fleet.clusters[scaled].seen = Seen::Unsaid;
        fleet.run(2, 30, |at| if at == scaled { Seen::Unsaid } else { Seen::Well });
        fleet.run(4, 55, well);
        assert_eq!(fleet.state.phase, Phase::Running, "{}", fleet.said());
        if fleet.state.open == 1 {
            assert_eq!(fleet.state.well, Some(before), "{}", fleet.said());
        }
    }
    assert_eq!(fleet.state.open, 1, "{}", fleet.said());
}

#[test]
fn one_that_is_scaled_takes_no_place_of_those_that_change() {
    let mut fleet = Fleet::new(5, "100% maxConcurrency=1 soak=0", "deadline=10m");
    fleet.change("two");
    fleet.run(1, 10, well);
    let first = pilot(&fleet);
    fleet.look(well);
    fleet.look(well);
    // It is scaled before the others have had their turns, and says nothing of that yet.
    for _ in 0..20 {
        fleet.clusters[first].seen = Seen::Unsaid;
        fleet.run(1, 10, |at| if at == first { Seen::Unsaid } else { Seen::Well });
    }
    assert_eq!(fleet.having("two"), 5, "{}", fleet.said());
}
