//! What people decide.

use serde_json::json;

use super::*;

#[test]
fn a_person_is_asked_where_a_whole_wave_waits() {
    let all_held = |fleet: &mut Fleet| {
        fleet
            .clusters
            .iter_mut()
            .filter(|c| c.has.as_deref() == Some("two"))
            .for_each(|c| c.seen = Seen::Held);
    };
    let held = || {
        let mut fleet = Fleet::new(20, "10% soak=0; 50% soak=0; 100% soak=0", "deadline=5m");
        fleet.change("two");
        fleet.look(well);
        all_held(&mut fleet);
        fleet.run(6, 59, well);
        assert_eq!(fleet.state.phase, Phase::Running, "they are given their time: {}", fleet.said());
        assert!(fleet.last.again.is_some_and(|again| again <= Duration::from_secs(60)));
        fleet.run(1, 10, well);
        fleet
    };
    let mut fleet = held();
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::AwaitsApproval, 2), "{}", fleet.said());
    assert!(
        matches!(&fleet.last.told[..], [(Told::Stopped, said)] if said.contains("resume")),
        "{:?}",
        fleet.last.told
    );
    assert!(
        fleet.said().contains(
            "for 5m0s none of the clusters of wave 1 of 3 (10%) has taken it or is well with it (of 2 clusters: 2 held back on the \
             cluster)"
        ),
        "{}",
        fleet.said()
    );
    // It is said once, and stands after a restart.
    fleet.clocks = Clocks::default();
    fleet.run(3, 10, well);
    assert_eq!((fleet.state.phase, fleet.last.told.len()), (Phase::AwaitsApproval, 0));
    // A person lets the next wave begin; that may wait in its turn.
    fleet.command(Command::Resume).unwrap();
    fleet.look(well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Running, 10), "{}", fleet.said());
    all_held(&mut fleet);
    fleet.run(40, 10, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::AwaitsApproval, 10), "{}", fleet.said());
    // One of them takes it after all.
    let mut fleet = held();
    let one = fleet.clusters.iter().position(|c| c.has.as_deref() == Some("two")).unwrap();
    fleet.clusters[one].seen = Seen::Unwell;
    fleet.look(|_| Seen::Unwell);
    assert_eq!(fleet.state.phase, Phase::Running, "{}", fleet.said());
    fleet.run(20, 10, well);
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent", "{}", fleet.said());
    // Failures that a person has accepted do not make a wave well either.
    let mut fleet = Fleet::new(20, "10% soak=0; 100% soak=0", "deadline=5m");
    fleet.change("two");
    fleet.run(30, 20, |_| Seen::Failed);
    assert_eq!(fleet.state.phase, Phase::Breached);
    fleet.command(Command::Resume).unwrap();
    fleet.run(30, 20, |_| Seen::Failed);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::AwaitsApproval, 2), "{}", fleet.said());
    // In the last wave nothing waits for them.
    let mut fleet = Fleet::new(4, "100% soak=0", "deadline=5m");
    fleet.change("two");
    fleet.look(well);
    all_held(&mut fleet);
    fleet.run(60, 20, well);
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent", "{}", fleet.said());
}

#[test]
fn people_hold_it_let_it_go_on_and_take_it_back() {
    let mut fleet = Fleet::new(20, "10% soak=0; 50% soak=0 approve; 100% soak=0", "");
    assert!(fleet.command(Command::Pause).unwrap_err().contains("no rollout is under way"));
    fleet.change("two");
    fleet.run(5, 10, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::AwaitsApproval, 2));
    fleet.command(Command::Pause).unwrap();
    fleet.run(5, 1000, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Paused, 2));
    fleet.command(Command::Resume).unwrap();
    fleet.run(5, 10, well);
    assert_eq!(fleet.state.phase, Phase::AwaitsApproval, "a pause approves nothing");
    fleet.command(Command::Resume).unwrap();
    fleet.look(well);
    assert_eq!(fleet.having("two"), 10);
    fleet.command(Command::Abort).unwrap();
    fleet.run(5, 1000, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Aborted, 10), "what runs is left alone");
    fleet.command(Command::Return).unwrap();
    fleet.run(2, 10, well);
    assert_eq!((fleet.having("two"), fleet.having("one")), (0, 20));
    assert!(fleet.command(Command::Return).unwrap_err().contains("returned"));
    assert!("stop".parse::<Command>().is_err());
    assert_eq!(Command::read("abort abc"), Ok((Command::Abort, Some("abc"))));
}

#[test]
fn a_return_takes_back_only_what_was_returned() {
    let mut fleet = Fleet::new(20, "tier=pilot soak=0; 50% soak=1h; 100%", "");
    fleet.change("two");
    fleet.run(3, 10, well);
    fleet.change("three");
    fleet.look(well);
    fleet.command(Command::Return).unwrap();
    fleet.run(3, 10, well);
    assert_eq!((fleet.having("three"), fleet.having("two"), fleet.having("one")), (0, 8, 12));
}

#[test]
fn the_last_revisions_that_were_stopped_are_remembered() {
    let mut fleet = Fleet::new(4, "50%; 100%", "");
    for at in 0..9 {
        fleet.change(&format!("r{at}"));
        fleet.look(well);
        fleet.command(Command::Abort).unwrap();
    }
    for (revision, want) in [("r0", Phase::Running), ("r1", Phase::Aborted), ("r8", Phase::Aborted)] {
        let mut later = State { phase: Phase::Running, ..fleet.state.clone() };
        later.revision = "other".to_owned();
        later.stopped = begin(&fleet.state, "other", &fleet.asked, "seed", &[]).stopped;
        assert_eq!(begin(&later, revision, &fleet.asked, "seed", &[]).phase, want, "{revision}");
    }
}

#[test]
fn what_is_not_kept_is_not_returned() {
    let mut fleet = Fleet::new(4, "50%; 100%", "");
    fleet.change("two");
    fleet.look(well);
    let before = fleet.state.clone();
    let refused = command(&mut fleet.state, Command::Return, &fleet.last, false);
    assert!(refused.unwrap_err().contains("is not kept any more"));
    assert_eq!(fleet.state, before);
    command(&mut fleet.state, Command::Abort, &fleet.last, false).unwrap();
}

#[test]
fn what_is_not_through_outlives_the_policy_that_asked_for_waves() {
    let binding = |phase: Phase| {
        let state = State { revision: "one".to_owned(), phase, ..State::default() };
        json!({"metadata": {"annotations": {
            ROLLOUT: "100%", STATE: serde_json::to_string(&state).unwrap(),
        }}})
    };
    let rows = [
        (Phase::Complete, false),
        (Phase::Running, true),
        (Phase::AwaitsApproval, true),
        (Phase::Paused, true),
        (Phase::Breached, true),
        (Phase::Aborted, true),
        (Phase::Returned, true),
    ];
    for (phase, want) in rows {
        assert_eq!(outlives(&binding(phase)), want, "{phase:?}");
    }
    let annotations = |all: Value| json!({"metadata": {"annotations": all}});
    let rows = [
        // Nothing has changed since waves were asked for.
        (annotations(json!({ROLLOUT: "100%"})), false),
        // What cannot be read may have been stopped, until somebody takes it off.
        (annotations(json!({ROLLOUT: "100%", STATE: "{"})), true),
        (annotations(json!({STATE: "{"})), false),
        (json!({"metadata": {}}), false),
    ];
    for (binding, want) in rows {
        assert_eq!(outlives(&binding), want, "{binding}");
    }
}
