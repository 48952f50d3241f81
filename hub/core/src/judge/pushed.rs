//! Members in push mode, of which the hub itself knows whether they answer.
//!
//! They have no Lease, so they count apart: when the hub's own way to the members is away, all of these fall silent together,
//! and no cluster in pull mode does. The [`brake`](super::brake) on them has the same settings. One is *missing* as soon as it
//! does not answer any more, which is said of it only after a while (`--cluster-failure-threshold`); evictions from it wait
//! until it would be known whether it has vanished together with others.
//!
//! A hub that begins looks at its members one after another, and knows of the others what a hub before it has found. Those are
//! nobody's witnesses: they count neither as there nor as missing until it has looked at them itself, however long that takes. Who is found
//! missing then has vanished when the hub began, with all others of which that is found out later.
//!
#![doc = include_str!("pushed.md")]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karmada_meta::time::Time;

use super::brake::{Brake, Held, Settings, Sighting};
use crate::health::Moment;

/// Whether a member answers is looked at every so often, and asking takes its time: so much longer they may vanish one by one.
const SLOWER: u32 = 2;

/// A cluster in push mode, as a tick finds it.
#[derive(Clone, Copy, Debug)]
pub struct Pushed<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it answers, as far as is known.
    pub answers: bool,
    /// Since when evictions from it are held because many vanished with it, by its condition.
    pub held: Option<Time>,
}

/// What is remembered of them.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// When each was last found to answer; nothing of one that never was.
    members: BTreeMap<String, Option<Duration>>,
    /// Where the hub itself looks at them: at which it has.
    looked_at: Option<BTreeSet<String>>,
    brake: Brake,
    held: Option<Held>,
}

impl Reach {
    /// The hub itself looks at them, and has looked at none yet.
    pub(super) fn begins(&mut self) {
        self.looked_at = Some(BTreeSet::new());
    }

    /// The hub has looked at one: what is said of it is what it has found.
    pub(super) fn looked_at(&mut self, name: &str) {
        if let Some(looked_at) = &mut self.looked_at {
            looked_at.insert(name.to_owned());
        }
    }

    /// Looks at all of them.
    pub(super) fn look<'a>(
        &mut self,
        now: Moment,
        fleet: impl IntoIterator<Item = Pushed<'a>>,
        settings: &Settings,
    ) {
        let settings = window(settings);
        let mut members = BTreeMap::new();
        let mut sightings = Vec::new();
        for Pushed { name, answers, held } in fleet {
            let known = self.members.get(name).copied();
            if let (Some(since), None, false) = (held, known, answers) {
                let held_for = since.elapsed(std::time::UNIX_EPOCH + now.wall);
                self.brake.recall(name, held_for, now.monotonic);
            }
            let recalled = self.brake.outage().is_some_and(|(_, members)| members.contains(name));
            let looked_at = self.looked_at.as_ref().is_none_or(|all| all.contains(name));
            // What a hub before has found was so when this one began.
            let answered = match answers {
                true if looked_at => Some(now.monotonic),
                true => Some(known.flatten().unwrap_or(now.monotonic)),
                false => known.flatten(),
            };
            let missing = !answers && (answered.is_some() || recalled);
            if looked_at || missing {
                sightings.push(Sighting { name, heard: answered.unwrap_or(now.monotonic), missing });
            }
            members.insert(name.to_owned(), answered);
        }
        if let Some(looked_at) = &mut self.looked_at {
            looked_at.retain(|name| members.contains_key(name));
        }
        self.held = self.brake.look(now.monotonic, None, &sightings, &settings);
        if let Some(held) = &mut self.held {
            held.pushed = true;
        }
        self.members = members;
    }

    /// Whether it is one of them.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// Whether evictions from those that do not answer are held.
    pub(super) const fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// For how long it may turn out yet that one has vanished together with others.
    pub(super) fn unclear_for(&self, name: &str, now: Duration, settings: &Settings) -> Option<Duration> {
        let answered = (*self.members.get(name)?)?;
        let left = (answered + window(settings).window).saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }
}

fn window(settings: &Settings) -> Settings {
    Settings { window: settings.window * SLOWER, ..*settings }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::table;

    fn at(seconds: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_767_225_600 + seconds) }
    }

    /// Clusters of which so many stop to answer, looked at every five seconds.
    #[test]
    fn the_table_holds() {
        let settings = Settings::default();
        for [clusters, history, asked, want] in table::rows(include_str!("pushed.md")) {
            let (clusters, asked): (usize, u64) = (clusters.parse().unwrap(), asked.parse().unwrap());
            let (mut reach, mut away) = (Reach::default(), vec![false; clusters]);
            let names: Vec<_> = (0..clusters).map(|n| format!("m{n}")).collect();
            for now in (0..=asked).step_by(5) {
                for event in history.split_whitespace() {
                    let (count, when) = event.split_once('@').unwrap();
                    if when.parse::<u64>().unwrap() == now {
                        let back = count.starts_with('+');
                        let some = (0..clusters).filter(|n| away[*n] == back).collect::<Vec<_>>();
                        let count: usize = count.trim_start_matches('+').parse().unwrap();
                        some.into_iter().take(count).for_each(|n| away[n] = !back);
                    }
                }
                let fleet = names.iter().zip(&away);
                let fleet = fleet.map(|(name, away)| Pushed { name, answers: !away, held: None });
                reach.look(at(now), fleet, &settings);
            }
            let lost = away.iter().position(|away| *away).map(|n| names[n].as_str());
            let unclear =
                lost.is_some_and(|name| reach.unclear_for(name, at(asked).monotonic, &settings).is_some());
            let got = match reach.held() {
                Some(held) => format!("held: {}", held.cause.reason()),
                None if unclear => "wait".to_owned(),
                None => "allowed".to_owned(),
            };
            assert_eq!(got, want, "{clusters} clusters, {history}, at {asked}");
        }
    }

    #[test]
    fn an_outage_goes_on_under_the_next_hub_and_what_was_lost_before_does_not_begin_one() {
        let settings = Settings::default();
        let names: Vec<_> = (0..4).map(|n| format!("m{n}")).collect();
        let held_since: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        for (held, want) in [(Some(held_since), true), (None, false)] {
            let mut reach = Reach::default();
            for now in [100, 200] {
                let fleet = names.iter().map(|name| Pushed { name, answers: false, held });
                reach.look(at(now), fleet, &settings);
            }
            assert_eq!(reach.held().is_some(), want, "{held:?}");
        }
    }

    /// A hub that begins without a network, or with one, and looks at so many members a second.
    #[test]
    fn it_does_not_matter_how_long_it_takes_to_look_at_all() {
        let settings = Settings::default();
        let names: Vec<_> = (0..2_000).map(|n| format!("m{n}")).collect();
        // (members looked at in a second, which of a hundred are away, whether that is an outage)
        for (rate, away, outage) in
            [(2, 100, true), (2, 40, true), (2, 10, false), (100, 100, true), (100, 10, false)]
        {
            let mut reach = Reach::default();
            reach.begins();
            let (mut looked, mut held) = (0, Vec::new());
            for now in (0..).step_by(5) {
                let next = names.len().min(usize::try_from(now).unwrap() * rate);
                names[looked..next].iter().for_each(|name| reach.looked_at(name));
                looked = next;
                let is_away = |n: usize| n % 100 < away && n < looked;
                let fleet = names.iter().enumerate();
                let fleet = fleet.map(|(n, name)| Pushed { name, answers: !is_away(n), held: None });
                reach.look(at(now), fleet, &settings);
                let lost = (0..looked).find(|n| is_away(*n)).map(|n| names[n].as_str());
                let unclear =
                    lost.is_some_and(|name| reach.unclear_for(name, at(now).monotonic, &settings).is_some());
                // From the last that was found missing nothing may go, either.
                let last = (0..looked).rev().find(|n| is_away(*n));
                if last.is_some() && !unclear {
                    held.push(reach.held().is_some());
                }
                if looked == names.len() && !unclear {
                    break;
                }
            }
            assert!(
                !held.is_empty() && held.iter().all(|held| *held == outage),
                "{rate}/s, {away}%: {held:?}"
            );
        }
    }

    #[test]
    fn one_that_was_looked_at_vanishes_when_it_does() {
        let settings = Settings::default();
        let mut reach = Reach::default();
        reach.begins();
        let look = |reach: &mut Reach, now: u64, away: usize| {
            let names = ["a", "b", "c", "d"];
            let fleet = names.iter().enumerate();
            let fleet = fleet.map(|(n, name)| Pushed { name, answers: n >= away, held: None });
            reach.look(at(now), fleet, &settings);
            reach.held().is_some()
        };
        assert!(!look(&mut reach, 0, 0));
        ["a", "b", "c", "d"].iter().for_each(|name| reach.looked_at(name));
        // One by one, days apart.
        for (now, away) in
            [(5, 0), (90_000, 0), (90_005, 1), (180_000, 1), (180_005, 2), (270_000, 2), (270_005, 3)]
        {
            assert!(!look(&mut reach, now, away), "at {now}");
        }
        assert_eq!(
            reach.unclear_for("c", Duration::from_secs(270_005), &settings),
            Some(Duration::from_secs(75))
        );
    }
}
