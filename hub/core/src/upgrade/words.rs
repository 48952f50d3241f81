//! What people are told of an upgrade: the text in the ConfigMap that says how far it is.

use std::collections::{BTreeMap, BTreeSet};

use super::fleet::Skip;
use crate::rollout::{State, Step, words};

/// So many clusters are named.
const NAMED: usize = 10;

/// The version does not go with this hub.
pub const REFUSED: &str = "Refused";
/// The request cannot be read.
pub const UNREADABLE: &str = "Unreadable";
/// What the hub has kept of the upgrade cannot be read.
pub const STATE_UNREADABLE: &str = "StateUnreadable";

/// Whether a status says that the hub offers nothing, whatever it has kept of the upgrade.
pub fn is_refusal(status: &str) -> bool {
    let word = status.split_once(": ").map_or(status, |(word, _)| word);
    [REFUSED, UNREADABLE, STATE_UNREADABLE].contains(&word)
}

/// What there is beside the sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Clusters for which it is none.
    pub skipped: BTreeMap<Skip, BTreeSet<String>>,
    /// Clusters that have gone back, or take it not, and why.
    pub failed: BTreeMap<String, String>,
    /// Clusters that wait, and for what.
    pub waiting: BTreeMap<String, String>,
}

/// A line for each thing that there is to say.
pub fn status(state: &State, step: &Step, beside: &Beside) -> String {
    let mut lines = vec![format!("{}: {}", words::reason(state), words::message(state, step))];
    lines.extend((0..state.waves.len()).map(|at| words::line_of(state, at)));
    for (what, all) in [("failed", &beside.failed), ("waits", &beside.waiting)] {
        lines.extend(all.iter().take(NAMED).map(|(name, why)| format!("{what}: {name}: {why}")));
        if let Some(more) = all.len().checked_sub(NAMED).filter(|more| *more > 0) {
            lines.push(format!("{what}: and {more} more"));
        }
    }
    for (why, all) in &beside.skipped {
        let named: Vec<&str> = all.iter().take(NAMED).map(String::as_str).collect();
        let more = if all.len() > NAMED { ", …" } else { "" };
        lines.push(format!("skipped: {} {why}: {}{more}", all.len(), named.join(", ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::{Asked, Clocks, Fact, Member, Seen, What, Who, begin, step};

    #[test]
    fn it_says_how_far_it_is_who_failed_and_whom_it_passes_over() {
        let asked = Asked::parse("50% soak=1h; 100%", "maxFailures=1").unwrap();
        let names: Vec<String> = (0..4).map(|n| format!("m{n}")).collect();
        let clusters: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
        let before = State { what: What::Agents, ..State::unknown("2026-11-26T01:00:00Z") };
        let mut state = begin(&before, "0.6.0", &asked, "2026-11-26T01:00:00Z", &clusters);
        let order: Vec<usize> = {
            let order = crate::rollout::Order::of(&state);
            names.iter().map(|name| order.wave(name, None)).collect()
        };
        let members = |fact: &dyn Fn(usize) -> Fact| -> Vec<Member<'_>> {
            let member = |(at, name): (usize, &'static str)| Member {
                who: Who::One(name),
                wave: order[at],
                fact: fact(order[at]),
                silent: None,
                leaving: false,
                mute: false,
                copies: None,
            };
            ["m0", "m1", "m2", "m3"].into_iter().enumerate().map(member).collect()
        };
        let (now, mut clocks) = ("2026-11-26T02:00:00Z".parse().unwrap(), Clocks::default());
        let begun = step(&mut state, &asked.gate, &members(&|_| Fact::Old), now, &mut clocks);
        assert_eq!(begun.told[0].1, "Version 0.6.0 goes out: wave 1 of 2 (50%) begins, with 2 clusters.");
        let in_wave = |wave| if wave == 0 { Fact::New(Seen::Failed) } else { Fact::Old };
        let looked = step(&mut state, &asked.gate, &members(&in_wave), now, &mut clocks);
        let why = &looked.told[0].1;
        assert!(why.starts_with("Version 0.6.0 was stopped: 2 of 2 clusters"), "{why}");
        assert!(why.ends_with("says resume, abort or return (karmada-hub upgrade)."), "{why}");
        let beside = Beside {
            skipped: [(Skip::Off, (0..12).map(|n| format!("s{n}")).collect())].into(),
            failed: [("m1".into(), "it may crash".into())].into(),
            waiting: BTreeMap::new(),
        };
        let text = status(&state, &looked, &beside);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("GateBroken: version 0.6.0 is stopped by its gate in wave 1 of 2 (50%)"),
            "{text}"
        );
        assert!(lines[0].ends_with("clusters: 2 not changed yet, 2 failed"), "{text}");
        assert_eq!(lines[1], "wave 1 of 2 (50%), clusters: 2, began 2026-11-26T02:00:00Z");
        assert_eq!(lines[3], "failed: m1: it may crash");
        assert!(
            lines[4].starts_with("skipped: 12 take no versions from the hub") && lines[4].ends_with("s7, …")
        );
    }
}
