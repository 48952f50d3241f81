//! Clusters that were evicted after they were given the change: they have failed, also when they are gone.

use std::collections::BTreeSet;

use super::{
    clocks::Clocks,
    facts::{Fact, Member},
    state::{EVICTED, Phase, State},
    sums::{Stage, Step},
};

/// Notes those that are evicted with the change, and counts those of them that are gone by now.
pub(super) fn evicted(state: &mut State, members: &[Member<'_>], clocks: &mut Clocks, step: &mut Step) {
    if matches!(state.phase, Phase::Complete | Phase::Returned) {
        // Nothing depends on how many failed any more, and what begins again begins without them.
        state.evicted.clear();
        clocks.evicted.clear();
        return;
    }
    let named = || members.iter().filter_map(|member| Some((member.name()?, member)));
    for (name, member) in named() {
        if !matches!((member.fact, member.leaving), (Fact::New(_), true)) {
            state.evicted.remove(name);
            clocks.evicted.remove(name);
        } else if state.evicted.contains_key(name) || state.evicted.len() < EVICTED {
            clocks.evicted.remove(name);
            state.evicted.insert(name.to_owned(), member.wave);
        } else {
            clocks.evicted.insert(name.to_owned(), member.wave);
        }
    }
    if state.evicted.is_empty() && clocks.evicted.is_empty() {
        return;
    }
    let there: BTreeSet<&str> = named().map(|(name, _)| name).collect();
    let all = state.evicted.iter().chain(&clocks.evicted);
    for (_, wave) in all.filter(|(name, _)| !there.contains(name.as_str())) {
        step.sums.add(Stage::Failed, 1);
        step.at_once += 1;
        if wave + 1 == state.open {
            step.wave.add(Stage::Failed, 1);
        }
    }
}
