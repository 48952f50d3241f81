//! A fleet that rollouts are played on.

mod at_once;
mod ending;
mod gate;
mod people;
mod properties;
mod scaling;
mod silence;
mod waves;

use std::{collections::BTreeMap, time::Duration};

use karmada_api::consts::extension::{ROLLOUT, ROLLOUT_GATE};
use karmada_meta::time::Time;

use super::*;

const START: i64 = 1_790_000_000;

fn at(seconds: i64) -> Time {
    Time::from_timestamp(jiff::Timestamp::from_second(START + seconds).unwrap())
}

fn asked(waves: &str, gate: &str) -> Asked {
    let annotation = |key: &str| match key {
        ROLLOUT => Some(waves),
        ROLLOUT_GATE => Some(gate),
        _ => None,
    };
    Asked::read(annotation).unwrap().unwrap()
}

/// A fleet that does what a hub and its members would.
struct Fleet {
    state: State,
    asked: Asked,
    clocks: Clocks,
    now: i64,
    clusters: Vec<Cluster>,
    last: Step,
}

struct Cluster {
    name: String,
    labels: BTreeMap<String, String>,
    /// What it was given.
    has: Option<String>,
    seen: Seen,
    silent: Option<Time>,
    concerned: bool,
    leaving: bool,
    mute: bool,
    copies: Option<Copies>,
}

impl Fleet {
    fn new(count: usize, waves: &str, gate: &str) -> Self {
        let cluster = |at: usize| Cluster {
            name: format!("c{at}"),
            labels: BTreeMap::from([("tier".to_owned(), if at < 2 { "pilot" } else { "shop" }.to_owned())]),
            has: Some("one".to_owned()),
            seen: Seen::Well,
            silent: None,
            concerned: true,
            leaving: false,
            mute: false,
            copies: None,
        };
        Self {
            state: State::first("one", "seed"),
            asked: asked(waves, gate),
            clocks: Clocks::default(),
            now: 0,
            clusters: (0..count).map(cluster).collect(),
            last: Step::default(),
        }
    }

    fn change(&mut self, revision: &str) {
        let concerned = self.clusters.iter().filter(|c| c.concerned);
        let clusters: Vec<_> = concerned.map(|c| (c.name.as_str(), Some(&c.labels))).collect();
        self.state = begin(&self.state, revision, &self.asked, "seed", &clusters);
    }

    /// One look, and what follows from it on the clusters; then all of which something is new speak as `says`.
    fn look(&mut self, says: impl Fn(usize) -> Seen) -> Vec<String> {
        // As it would be after a restart.
        self.state = serde_json::from_str(&serde_json::to_string(&self.state).unwrap()).unwrap();
        let mut state = self.state.clone();
        let order = Order::of(&self.state);
        let fact = |cluster: &Cluster| match &cluster.has {
            _ if !cluster.concerned => Fact::Unconcerned,
            Some(has) if *has == self.state.revision => Fact::New(cluster.seen),
            _ => Fact::Old,
        };
        let members: Vec<_> = self
            .clusters
            .iter()
            .map(|cluster| Member {
                who: Who::One(&cluster.name),
                wave: order.wave(&cluster.name, Some(&cluster.labels)),
                fact: fact(cluster),
                silent: cluster.silent,
                leaving: cluster.leaving,
                mute: cluster.mute,
                copies: cluster.copies,
            })
            .collect();
        self.last = step(&mut state, &self.asked.gate, &members, at(self.now), &mut self.clocks);
        self.state = state;
        let order = Order::of(&self.state);
        let mut given = Vec::new();
        for (at, cluster) in self.clusters.iter_mut().enumerate().filter(|(_, c)| c.concerned && !c.leaving) {
            let wave = order.wave(&cluster.name, Some(&cluster.labels));
            let gets = match self
                .state
                .gets((wave, self.state.reaches(wave, &cluster.name)), cluster.has.as_deref())
            {
                Gets::Revision => self.state.revision.clone(),
                Gets::Kept(kept) => kept.to_owned(),
                Gets::Base => self.state.base.clone(),
            };
            if cluster.has.as_ref() != Some(&gets) {
                given.push(cluster.name.clone());
                cluster.has = Some(gets);
                cluster.seen = Seen::Unsaid;
            } else if cluster.silent.is_none() && cluster.seen != Seen::Held {
                cluster.seen = says(at);
            }
        }
        given
    }

    /// Looks until nothing changes, with time going on by `seconds` each.
    fn run(&mut self, looks: usize, seconds: i64, says: impl Fn(usize) -> Seen + Copy) {
        for _ in 0..looks {
            self.look(says);
            self.now += seconds;
        }
    }

    fn having(&self, revision: &str) -> usize {
        self.clusters.iter().filter(|cluster| cluster.has.as_deref() == Some(revision)).count()
    }

    fn command(&mut self, what: Command) -> Result<(), String> {
        let stopped = matches!(self.state.phase, Phase::Aborted | Phase::Returned);
        let done = command(&mut self.state, what, &self.last, true).map(drop);
        if done.is_ok() && stopped {
            self.clocks = Clocks::default();
        }
        done
    }

    fn said(&self) -> String {
        words::message(&self.state, &self.last)
    }
}

fn well(_: usize) -> Seen {
    Seen::Well
}
