//! What a gate counts as well, late and failed.

use super::*;
use crate::rollout::state::EVICTED;

#[test]
fn what_is_not_well_in_time_stops_it_and_is_not_begun_again_by_itself() {
    let sick = |_| Seen::Unwell;
    let mut fleet = Fleet::new(20, "10%; 100%", "deadline=5m");
    fleet.change("two");
    fleet.run(20, 10, sick);
    assert_eq!(fleet.state.phase, Phase::Running, "it is given its time");
    fleet.run(20, 20, sick);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Breached, 2));
    assert!(
        fleet.said().contains("2 of 2 clusters that were heard were not well within 5m0s"),
        "{}",
        fleet.said()
    );
    // They become well, and still a person decides.
    fleet.run(20, 60, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Breached, 2));
    fleet.change("one");
    fleet.run(2, 10, well);
    assert_eq!(
        (fleet.state.phase, fleet.having("one")),
        (Phase::Complete, 20),
        "what the others have is given back at once"
    );
    fleet.change("two");
    fleet.run(20, 60, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Aborted, 0));
    fleet.command(Command::Resume).unwrap();
    fleet.run(60, 60, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Complete, 20));
    // The same, and it goes back by itself.
    let mut fleet = Fleet::new(20, "10%; 100%", "onBreach=Return");
    fleet.change("two");
    fleet.run(30, 60, sick);
    assert_eq!((fleet.state.phase, fleet.having("one")), (Phase::Returned, 20));
}

#[test]
fn a_share_may_fail_and_a_person_may_accept_more() {
    let mut fleet = Fleet::new(20, "50% soak=0; 100% soak=0", "maxFailures=10% deadline=1m");
    fleet.change("two");
    fleet.look(well);
    let ill: Vec<_> =
        (0..20).filter(|at| fleet.clusters[*at].has.as_deref() == Some("two")).take(2).collect();
    let one = |at: usize| if at == ill[0] { Seen::Unwell } else { Seen::Well };
    let two = |at: usize| if ill.contains(&at) { Seen::Unwell } else { Seen::Well };
    fleet.run(10, 30, two);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Breached, 10));
    fleet.command(Command::Resume).unwrap();
    fleet.run(10, 30, two);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Complete, 20), "{}", fleet.said());
    let mut fleet = Fleet::new(20, "50% soak=0; 100% soak=0", "maxFailures=10% deadline=1m");
    fleet.change("two");
    fleet.run(10, 30, one);
    assert_eq!(fleet.state.phase, Phase::Complete, "{}", fleet.said());
}

#[test]
fn a_reachable_cluster_that_says_nothing_has_failed() {
    let first = |at: usize| if at == 0 { Seen::Well } else { Seen::Unsaid };
    for (mute, gate, want) in [
        (false, "deadline=5m", (Phase::Breached, 10)),
        (true, "deadline=5m", (Phase::Complete, 20)),
        // Some may fail, and one of ten is less than half of those that should have been heard.
        (false, "deadline=5m maxFailures=90%", (Phase::Running, 10)),
        (false, "deadline=5m maxFailures=90% minHealthy=10%", (Phase::Breached, 20)),
    ] {
        let mut fleet = Fleet::new(20, "tier=pilot soak=0; 50% soak=0; 100% soak=0", gate);
        fleet.clusters[0].labels.insert("tier".to_owned(), "shop".to_owned());
        fleet.clusters[1].labels.insert("tier".to_owned(), "shop".to_owned());
        fleet.clusters.iter_mut().for_each(|cluster| cluster.mute = mute);
        fleet.change("two");
        fleet.look(well);
        let one = fleet.clusters.iter().position(|c| c.has.as_deref() == Some("two")).unwrap();
        let one = move |at: usize| first(if at == one { 0 } else { 1 });
        fleet.run(30, 60, one);
        assert_eq!((fleet.state.phase, fleet.having("two")), want, "{mute} {gate}: {}", fleet.said());
    }
}

#[test]
fn a_soak_is_without_a_break_and_a_clock_stands_still_in_silence() {
    let mut fleet = Fleet::new(20, "tier=pilot soak=10m; 100%", "deadline=5m");
    fleet.change("two");
    fleet.run(3, 10, well);
    fleet.now += 300;
    fleet.run(2, 10, |_| Seen::Unwell);
    fleet.run(2, 10, well);
    fleet.now += 400;
    fleet.run(2, 10, well);
    assert_eq!(fleet.having("two"), 2, "it is watched anew: {}", fleet.said());
    // It is well now and then, and silent for a while: what it has used of its time is not given back.
    let mut fleet = Fleet::new(20, "tier=pilot soak=10h; 100%", "deadline=5m");
    fleet.change("two");
    fleet.run(2, 0, well);
    for _ in 0..2 {
        fleet.run(11, 10, |_| Seen::Unwell);
        fleet.clusters[0].silent = Some(at(fleet.now));
        fleet.clusters[0].seen = Seen::Unwell;
        fleet.run(1, 0, well);
        fleet.run(1, 3000, well);
        fleet.clusters[0].silent = None;
        fleet.clusters[1].seen = Seen::Well;
        fleet.run(2, 10, well);
        assert_eq!(fleet.state.phase, Phase::Running, "{}", fleet.said());
    }
    fleet.run(11, 10, |_| Seen::Unwell);
    assert_eq!(fleet.state.phase, Phase::Breached, "{}", fleet.said());
    // It was well for long enough in between.
    let mut fleet = Fleet::new(20, "tier=pilot soak=10h; 100%", "deadline=5m");
    fleet.change("two");
    fleet.run(2, 0, well);
    for _ in 0..4 {
        fleet.run(20, 10, |_| Seen::Unwell);
        fleet.run(40, 10, well);
    }
    assert_eq!(fleet.state.phase, Phase::Running, "{}", fleet.said());
}

#[test]
fn a_cluster_that_is_evicted_with_the_change_has_failed() {
    for gone in [false, true] {
        let mut fleet = Fleet::new(20, "tier=pilot soak=1h; 100%", "maxFailures=1");
        fleet.change("two");
        fleet.run(2, 10, well);
        fleet.clusters[0].leaving = true;
        fleet.run(1, 10, well);
        assert_eq!((fleet.state.phase, fleet.last.sums.of(Stage::Failed)), (Phase::Running, 1));
        fleet.clusters[1].leaving = true;
        if gone {
            fleet.run(1, 0, well);
            fleet.clusters.remove(0);
        }
        fleet.run(1, 10, well);
        assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Breached, if gone { 1 } else { 2 }));
        let said = fleet.said();
        assert!(said.contains("2 of 2 clusters that were heard were evicted with the change"), "{said}");
    }
    // One that was evicted before is given nothing, and is waited for by nobody.
    let mut fleet = Fleet::new(20, "tier=pilot soak=0; 100% soak=0", "");
    fleet.clusters[5].leaving = true;
    fleet.change("two");
    fleet.run(10, 60, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Complete, 19), "{}", fleet.said());
}

/// A fleet of which one cluster was evicted with the change, and is gone.
fn without_one_that_was_evicted() -> Fleet {
    let mut fleet = Fleet::new(20, "tier=pilot soak=1h; 100%", "maxFailures=1");
    fleet.change("two");
    fleet.run(2, 10, well);
    fleet.clusters[0].leaving = true;
    fleet.run(1, 10, well);
    fleet.clusters.remove(0);
    fleet
}

#[test]
fn a_restart_forgets_no_cluster_that_was_evicted_with_the_change() {
    let mut fleet = without_one_that_was_evicted();
    fleet.clocks = Clocks::default();
    fleet.run(1, 10, well);
    assert_eq!((fleet.state.phase, fleet.last.sums.of(Stage::Failed)), (Phase::Running, 1));
    fleet.clusters[0].leaving = true;
    fleet.run(1, 10, well);
    assert_eq!(fleet.state.phase, Phase::Breached, "{}", fleet.said());
    // So many as a person lets go on, and as the gate does, and not as many more as were forgotten.
    fleet.command(Command::Resume).unwrap();
    fleet.clocks = Clocks::default();
    fleet.run(1, 10, well);
    assert_eq!((fleet.state.phase, fleet.last.sums.of(Stage::Failed)), (Phase::Running, 2));
    // One that is back, and stays, has not failed.
    fleet.clusters[0].leaving = false;
    fleet.run(1, 10, well);
    assert_eq!((fleet.last.sums.of(Stage::Failed), fleet.state.evicted.len()), (1, 1));
    // What begins anew, or is another change, knows nothing of them.
    let mut anew = fleet.state.clone();
    command(&mut anew, Command::Abort, &fleet.last, true).unwrap();
    assert_eq!(anew.evicted.len(), 1);
    command(&mut anew, Command::Resume, &fleet.last, true).unwrap();
    fleet.change("three");
    assert_eq!((anew.evicted.len(), fleet.state.evicted.len()), (0, 0));
}

#[test]
fn what_was_returned_keeps_no_cluster_that_was_evicted() {
    let mut fleet = without_one_that_was_evicted();
    fleet.run(1, 10, well);
    assert_eq!((fleet.state.evicted.len(), fleet.last.sums.of(Stage::Failed)), (1, 1));
    fleet.command(Command::Return).unwrap();
    fleet.run(3, 10, well);
    assert_eq!((fleet.state.phase, fleet.having("one")), (Phase::Returned, 19));
    assert_eq!((fleet.state.evicted.len(), fleet.last.sums.of(Stage::Failed)), (0, 0));
}

#[test]
fn no_more_evicted_clusters_are_kept_than_there_is_room_for() {
    let mut fleet = Fleet::new(EVICTED + 20, "100% soak=10h", "maxFailures=100%");
    fleet.change("two");
    fleet.run(3, 10, well);
    fleet.clusters.iter_mut().take(EVICTED + 5).for_each(|cluster| cluster.leaving = true);
    fleet.run(1, 10, well);
    fleet.clusters.drain(..EVICTED + 5);
    fleet.run(1, 10, well);
    let failed = |fleet: &Fleet| fleet.last.sums.of(Stage::Failed);
    assert_eq!((failed(&fleet), fleet.state.evicted.len()), (EVICTED + 5, EVICTED));
    fleet.clocks = Clocks::default();
    fleet.run(1, 10, well);
    assert_eq!((failed(&fleet), fleet.state.phase), (EVICTED, Phase::Running));
}
