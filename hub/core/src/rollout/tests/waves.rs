//! Waves: who is in which, and which follows which.

use super::*;

#[test]
fn waves_take_exactly_the_clusters_that_they_say() {
    let mut fleet = Fleet::new(40, "tier=pilot; 10%; 33%; 100%", "");
    fleet.change("two");
    let counts: Vec<_> = fleet.state.waves.iter().map(|wave| wave.clusters).collect();
    assert_eq!(counts, [2, 2, 10, 26]);
    let order = Order::of(&fleet.state);
    let mut found = [0; 4];
    fleet.clusters.iter().for_each(|c| found[order.wave(&c.name, Some(&c.labels))] += 1);
    assert_eq!(found, [2, 2, 10, 26]);
    // The same clusters come first in every rollout of a policy, whoever else has come or gone.
    let first: Vec<_> = fleet.clusters.iter().map(|c| order.wave(&c.name, Some(&c.labels))).collect();
    fleet.clusters.pop();
    let order = Order::of(&fleet.state);
    let again: Vec<_> = fleet.clusters.iter().map(|c| order.wave(&c.name, Some(&c.labels))).collect();
    assert_eq!(first[..39], again);
}

#[test]
fn each_wave_soaks_before_the_next() {
    let mut fleet = Fleet::new(20, "tier=pilot soak=1h; 50% soak=10m; 100% soak=0", "");
    fleet.change("two");
    fleet.run(5, 10, well);
    assert_eq!((fleet.having("two"), fleet.state.phase), (2, Phase::Running));
    assert!(
        fleet.said().contains("wave 1 of 3 (tier=pilot) is well, and is watched until "),
        "{}",
        fleet.said()
    );
    assert!(fleet.said().ends_with("clusters: 18 not changed yet, 2 healthy"), "{}", fleet.said());
    assert!(fleet.last.again.unwrap() <= Duration::from_secs(3600));
    fleet.now += 3500;
    fleet.run(1, 10, well);
    assert_eq!(fleet.having("two"), 2);
    fleet.now += 100;
    fleet.run(3, 10, well);
    assert_eq!(fleet.having("two"), 10);
    fleet.now += 600;
    fleet.run(4, 10, well);
    assert_eq!((fleet.having("two"), fleet.state.phase), (20, Phase::Complete));
    assert_eq!(fleet.state.base, "two");
    assert_eq!(fleet.state.kept, ["two"]);
    assert_eq!(words::reason(&fleet.state), "Complete");
}

#[test]
fn a_new_revision_replaces_the_one_under_way() {
    let mut fleet = Fleet::new(20, "tier=pilot soak=0; 50% soak=1h; 100%", "");
    fleet.change("two");
    fleet.run(3, 10, well);
    assert_eq!(fleet.having("two"), 10);
    fleet.change("three");
    assert_eq!(fleet.state.kept, ["one", "two", "three"]);
    fleet.look(well);
    assert_eq!((fleet.having("three"), fleet.having("two"), fleet.having("one")), (2, 8, 10));
    fleet.run(3, 10, well);
    assert_eq!(
        (fleet.having("three"), fleet.having("two"), fleet.having("one")),
        (10, 0, 10),
        "nobody goes through two"
    );
    // A pause holds for what comes after it.
    fleet.command(Command::Pause).unwrap();
    fleet.change("four");
    fleet.run(3, 1000, well);
    assert_eq!((fleet.state.phase, fleet.having("four")), (Phase::Paused, 0));
}

#[test]
fn empty_waves_are_passed_over() {
    let mut fleet =
        Fleet::new(10, "tier=none approve soak=5h; tier=pilot soak=0; 10% soak=5h; 100% soak=0", "");
    fleet.change("two");
    fleet.run(6, 10, well);
    assert_eq!(fleet.state.phase, Phase::Complete, "{}", fleet.said());
    // A change that is none for anybody is over at once.
    fleet.clusters.iter_mut().for_each(|cluster| cluster.concerned = false);
    fleet.change("three");
    fleet.look(well);
    assert_eq!(fleet.state.phase, Phase::Complete, "{}", fleet.said());
}

#[test]
fn a_state_is_absent_read_or_unreadable() {
    let read = |text: Option<String>| {
        let annotations: BTreeMap<&str, String> = text.map(|text| (STATE, text)).into_iter().collect();
        State::read(&serde_json::json!({"metadata": {"annotations": annotations}}))
    };
    assert_eq!(read(None), Ok(None));
    assert_eq!(read(Some(String::new())), Ok(None), "it has ended");
    let state = State::first("one", "seed");
    assert_eq!(read(Some(serde_json::to_string(&state).unwrap())), Ok(Some(state)));
    let unreadable =
        ["{", "{}", "null", r#"{"revision": "one", "phase": "Later"}"#, r#"{"revision": "one", "open": 1}"#];
    for text in unreadable {
        assert!(read(Some(text.to_owned())).is_err(), "{text:?}");
    }
}

#[test]
fn what_nobody_knows_is_rolled_out_without_a_base() {
    let mut fleet = Fleet::new(20, "tier=pilot soak=0; 100% soak=0", "");
    fleet.state = State::unknown("seed");
    fleet.change("two");
    fleet.look(well);
    assert_eq!((fleet.state.phase, fleet.state.base.as_str()), (Phase::Running, ""));
    assert_eq!(fleet.state.gets((1, true), Some("")), Gets::Base);
    assert!(fleet.state.kept == ["two"] && fleet.state.open == 1);
}

#[test]
fn a_wave_whose_clusters_leave_waits_for_a_person() {
    // It had begun; it had not; it is the last one.
    for (begun, waves) in
        [(true, "tier=pilot soak=1h; 100%"), (false, "10% soak=1h; tier=pilot soak=0; 100%")]
    {
        let mut fleet = Fleet::new(20, waves, "");
        fleet.change("two");
        fleet.run(2, 10, well);
        let had = fleet.having("two");
        fleet.clusters.drain(..2);
        fleet.run(5, 3600, well);
        assert_eq!(fleet.state.phase, Phase::AwaitsApproval, "{}", fleet.said());
        assert!(fleet.having("two") <= had, "{begun}");
        assert!(fleet.said().contains("(tier=pilot) have left"), "{}", fleet.said());
        fleet.command(Command::Resume).unwrap();
        fleet.run(3, 10, well);
        fleet.run(5, 3600, well);
        assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Complete, 18), "{}", fleet.said());
    }
    // It is at no end as long as there is nobody.
    let mut fleet = Fleet::new(3, "100%", "");
    fleet.change("two");
    fleet.run(2, 10, well);
    fleet.clusters.clear();
    fleet.run(3, 3600, well);
    assert_ne!(fleet.state.phase, Phase::Complete);
}

#[test]
fn clusters_that_come_take_what_the_others_of_their_wave_have() {
    let mut fleet = Fleet::new(10, "tier=pilot soak=1h; 100%", "");
    fleet.change("two");
    fleet.look(well);
    for (wave, want) in [(0, Gets::Revision), (1, Gets::Base)] {
        assert_eq!(fleet.state.gets((wave, true), None), want);
    }
    fleet.state.phase = Phase::Paused;
    assert_eq!(fleet.state.gets((0, true), None), Gets::Base, "nothing goes out");
    assert_eq!(fleet.state.gets((0, true), Some("two")), Gets::Revision);
    assert_eq!(fleet.state.gets((0, true), Some("lost")), Gets::Base, "nobody knows what that was");
}
