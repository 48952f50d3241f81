//! What holds whatever happens.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Move {
    Wait(i64),
    Change,
    Command(usize),
    Silent(usize),
    Back(usize),
    Leave(usize),
    Sick(usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (1i64..400).prop_map(Move::Wait),
        1 => Just(Move::Change),
        1 => (0usize..4).prop_map(Move::Command),
        1 => (0usize..30).prop_map(Move::Silent),
        1 => (0usize..30).prop_map(Move::Back),
        1 => (0usize..30).prop_map(Move::Leave),
        1 => (0usize..30).prop_map(Move::Sick),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_happens_waves_hold(count in 1usize..30, moves in moves(), lenient in any::<bool>()) {
        let gate = if lenient { "maxFailures=50% deadline=2m" } else { "minHealthy=2 deadline=2m" };
        let mut fleet = Fleet::new(count, "tier=pilot soak=1m; 20%; 50% soak=0 approve; 100%", gate);
        let (mut changes, mut anew, mut sick) = (0, false, std::collections::BTreeSet::new());
        for step in moves {
            let n = fleet.clusters.len();
            match step {
                Move::Wait(seconds) => fleet.now += seconds,
                Move::Change => { changes += 1; anew = false; fleet.change(&format!("r{changes}")); }
                Move::Command(which) => {
                    let stopped = matches!(fleet.state.phase, Phase::Aborted | Phase::Returned);
                    anew |= fleet.command(Command::ALL[which].1).is_ok() && stopped;
                }
                Move::Silent(who) => { let now = at(fleet.now); fleet.clusters[who % n].silent.get_or_insert(now); }
                Move::Back(who) => fleet.clusters[who % n].silent = None,
                Move::Leave(who) => if n > 1 { fleet.clusters.remove(who % n); },
                Move::Sick(who) => drop(sick.insert(who)),
            }
            let before: Vec<_> = fleet.clusters.iter().map(|c| c.has.clone().unwrap()).collect();
            let (was, open) = (fleet.state.clone(), fleet.state.open);
            let given = fleet.look(|at| if sick.contains(&at) { Seen::Unwell } else { Seen::Well });
            let state = &fleet.state;
            // Never more than the clusters of the waves that have begun, and none while nothing goes out.
            if state.phase != Phase::Complete {
                let may: usize = state.waves[..state.open].iter().map(|wave| wave.clusters).sum();
                let order = Order::of(state);
                let begun = fleet.clusters.iter().filter(|c| given.contains(&c.name) && c.has.as_ref() == Some(&state.revision));
                let begun: Vec<_> = begun.map(|c| order.wave(&c.name, Some(&c.labels))).collect();
                prop_assert!(begun.len() <= may && begun.iter().all(|wave| *wave < state.open), "{}", fleet.said());
                // The first wave of a new one that nobody was given before has no more than its clusters either.
                let again = anew || was.stopped.contains(&state.revision) || matches!(was.phase, Phase::Aborted | Phase::Returned);
                prop_assert!(again || state.open == 0 || fleet.having(&state.revision) <= may, "{}", fleet.said());
            }
            let stopped = [Phase::Paused, Phase::Breached, Phase::Aborted];
            prop_assert!(!stopped.contains(&was.phase) || given.is_empty() || was.kept != state.kept, "{given:?}");
            prop_assert!(!stopped.contains(&was.phase) || (was.phase == state.phase && was.open == state.open));
            for (cluster, before) in fleet.clusters.iter().zip(&before) {
                // What is given is the newest, or what went everywhere last; never one between.
                let has = cluster.has.as_ref().unwrap();
                prop_assert!(has == before || *has == state.revision || *has == state.base);
                prop_assert!(state.kept.contains(has));
            }
            // One wave more than there are may be in different states.
            let found: std::collections::BTreeSet<_> = fleet.clusters.iter().map(|c| c.has.clone()).collect();
            prop_assert!(found.len() <= state.waves.len() + 1);
            if state.open > open + 1 && state.phase != Phase::Complete {
                let passed = &state.waves[open..state.open - 1];
                let order = Order::of(state);
                for (wave, _) in passed.iter().enumerate().map(|(i, w)| (open + i, w)) {
                    prop_assert!(fleet.clusters.iter().all(|c| order.wave(&c.name, Some(&c.labels)) != wave));
                }
            }
        }
    }
}
