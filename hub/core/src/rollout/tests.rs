use std::{collections::BTreeMap, time::Duration};

use karmada_api::consts::extension::{ROLLOUT, ROLLOUT_GATE};
use karmada_meta::time::Time;
use proptest::prelude::*;

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
                count: 1,
                name: &cluster.name,
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
        let done = command(&mut self.state, what, &self.last.sums, true).map(drop);
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
fn silent_clusters_neither_pass_nor_fail_a_gate() {
    let mut fleet = Fleet::new(20, "tier=pilot soak=0; 100% soak=0", "minHealthy=1 deadline=5m");
    fleet.clusters[0].silent = Some(at(-100));
    fleet.clusters[1].silent = Some(at(-100));
    fleet.change("two");
    fleet.run(100, 60, well);
    assert_eq!(
        (fleet.state.phase, fleet.having("two")),
        (Phase::Running, 2),
        "nobody has tried it: {}",
        fleet.said()
    );
    assert!(fleet.said().contains("2 silent since before"), "{}", fleet.said());
    fleet.clusters[0].silent = None;
    fleet.run(5, 60, well);
    assert_eq!(fleet.having("two"), 20, "one has, and it is well: {}", fleet.said());
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent");
    assert!(fleet.said().contains("1 cluster has not reported it yet"), "{}", fleet.said());
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

#[test]
fn so_many_of_a_wave_change_at_once() {
    let mut fleet = Fleet::new(40, "10% soak=0; 100% soak=0 maxConcurrency=3", "deadline=10m");
    fleet.change("two");
    fleet.run(2, 10, well);
    assert_eq!((fleet.having("two"), fleet.state.open), (4, 1), "{}", fleet.said());
    fleet.run(1, 10, well);
    let changing = |fleet: &Fleet| {
        fleet.clusters.iter().filter(|c| c.has.as_deref() == Some("two") && c.seen != Seen::Well).count()
    };
    // They take their time, but not more than they have.
    fleet.run(5, 60, |_| Seen::Unwell);
    assert_eq!(fleet.having("two"), 4 + 3, "{}", fleet.said());
    assert!(fleet.said().contains("33 waiting for others of their wave"), "{}", fleet.said());
    // Those of the wave before say the same, and are well again.
    fleet.clusters.iter_mut().filter(|c| c.has.as_deref() == Some("two")).for_each(|c| c.seen = Seen::Well);
    let mut looks = 0;
    while fleet.state.phase == Phase::Running && looks < 100 {
        fleet.look(well);
        fleet.now += 300;
        looks += 1;
        assert!(changing(&fleet) <= 3, "{}", fleet.said());
    }
    // That is longer than the deadline: each has its own from its own turn on.
    assert!((12..100).contains(&looks), "{looks}");
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Complete, 40), "{}", fleet.said());
}

#[test]
fn a_wave_with_room_for_some_is_not_kept_by_those_that_say_nothing() {
    let mut fleet = Fleet::new(20, "100% soak=0 maxConcurrency=2", "maxFailures=20 deadline=10m");
    let order: Vec<usize> = {
        let mut all: Vec<usize> = (0..20).collect();
        all.sort_by_key(|at| Place::of("seed", &fleet.clusters[*at].name));
        all
    };
    // The first ones in their order are away, the next hold it back, one never becomes well, and one says nothing.
    for at in &order[..2] {
        fleet.clusters[*at].silent = Some(self::at(-100));
    }
    fleet.change("two");
    fleet.run(2, 10, well);
    for at in &order[2..4] {
        assert_eq!(fleet.clusters[*at].has.as_deref(), Some("two"), "{}", fleet.said());
        fleet.clusters[*at].seen = Seen::Held;
    }
    let (sick, dumb) = (order[4], order[5]);
    fleet.run(40, 60, |at| match at {
        _ if at == sick => Seen::Unwell,
        _ if at == dumb => Seen::Unsaid,
        _ => Seen::Well,
    });
    assert_eq!((fleet.having("two"), fleet.state.phase), (20, Phase::Complete), "{}", fleet.said());
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent");
}

#[test]
fn who_waits_for_others_of_its_wave_is_told_so_and_waits_while_it_is_stopped() {
    let mut fleet = Fleet::new(10, "100% maxConcurrency=1", "");
    fleet.change("two");
    fleet.run(2, 10, |_| Seen::Unsaid);
    let reached = |fleet: &Fleet| {
        let names = fleet.clusters.iter().map(|c| fleet.state.reaches(0, &c.name));
        names.filter(|reached| *reached).count()
    };
    assert_eq!(reached(&fleet), 1);
    let told = words::of_wave(&fleet.state, 0, false);
    assert_eq!(
        told,
        "wave 1 of 1 (100%) has begun, and changes 1 cluster at once: it waits for others of that wave"
    );
    assert_eq!(words::of_wave(&fleet.state, 0, true), "wave 1 of 1 (100%) has begun");
    fleet.command(Command::Pause).unwrap();
    fleet.run(10, 60, well);
    assert_eq!((fleet.having("two"), reached(&fleet)), (1, 1));
    fleet.command(Command::Resume).unwrap();
    fleet.run(3, 10, well);
    assert!(fleet.having("two") > 1, "{}", fleet.said());
    // What begins anew begins with the first one.
    fleet.command(Command::Abort).unwrap();
    fleet.command(Command::Resume).unwrap();
    assert!(fleet.state.waves[0].reach.is_none());
}

#[test]
fn held_clusters_are_waited_for_by_nobody() {
    let mut fleet = Fleet::new(10, "50% soak=0; 100% soak=0", "deadline=1m");
    fleet.change("two");
    fleet.look(well);
    let held = fleet.clusters.iter().position(|c| c.has.as_deref() == Some("two")).unwrap();
    fleet.clusters[held].seen = Seen::Held;
    fleet.run(10, 30, well);
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent", "{}", fleet.said());
    assert_eq!(fleet.last.sums.of(Stage::WaitingHeld), 1);
}

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
fn a_change_that_cuts_links_is_noticed() {
    let fall = |changed: usize, others: usize| {
        let mut fleet = Fleet::new(100, "20% soak=1h; 100%", "");
        fleet.change("two");
        fleet.run(3, 10, well);
        let silent = Some(at(fleet.now));
        let (mut of_changed, mut of_others) = (changed, others);
        for cluster in &mut fleet.clusters {
            let left = if cluster.has.as_deref() == Some("two") { &mut of_changed } else { &mut of_others };
            if *left > 0 {
                *left -= 1;
                cluster.silent = silent;
            }
        }
        fleet.now += 10;
        fleet.run(3, 10, well);
        fleet
    };
    // One link may go; of 20, four are 20%; the same share of those that were not changed says that it was something else.
    for (changed, others, want) in
        [(1, 0, Phase::Running), (4, 0, Phase::Breached), (4, 16, Phase::Running), (4, 3, Phase::Breached)]
    {
        let fleet = fall(changed, others);
        assert_eq!(fleet.state.phase, want, "{changed} and {others}: {}", fleet.said());
    }
    let said = fall(4, 3).said();
    assert!(
        said.contains("4 of 20 clusters fell silent after they were changed, and 3 of 80 that were not"),
        "{said}"
    );
}

#[test]
fn silence_needs_enough_others_and_a_change_shortly_before() {
    // How many there are, after how long changed ones fall silent, and what becomes of it.
    let rows = [(100, 60, Phase::Returned), (100, 700, Phase::Running), (24, 60, Phase::Running)];
    for (count, after, want) in rows {
        let mut fleet = Fleet::new(count, "20% soak=1h; 100% soak=1h", "onBreach=Return");
        fleet.change("two");
        fleet.run(3, 1, well);
        fleet.now += after;
        let silent = Some(at(fleet.now));
        let changed = fleet.clusters.iter_mut().filter(|c| c.has.as_deref() == Some("two"));
        changed.take(4).for_each(|cluster| cluster.silent = silent);
        fleet.now += 10;
        fleet.run(3, 10, well);
        assert_eq!(fleet.state.phase, want, "{count} {after}: {}", fleet.said());
    }
    // In the last wave nobody is left to compare with.
    let mut fleet = Fleet::new(100, "100% soak=1h", "onBreach=Return");
    fleet.change("two");
    fleet.run(3, 10, well);
    let silent = Some(at(fleet.now));
    fleet.clusters.iter_mut().take(30).for_each(|cluster| cluster.silent = silent);
    fleet.now += 10;
    fleet.run(3, 10, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Running, 100), "{}", fleet.said());
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
fn what_is_not_kept_is_not_returned() {
    let mut fleet = Fleet::new(4, "50%; 100%", "");
    fleet.change("two");
    fleet.look(well);
    let before = fleet.state.clone();
    let refused = command(&mut fleet.state, Command::Return, &fleet.last.sums, false);
    assert!(refused.unwrap_err().contains("is not kept any more"));
    assert_eq!(fleet.state, before);
    command(&mut fleet.state, Command::Abort, &fleet.last.sums, false).unwrap();
}

#[test]
fn a_state_is_absent_read_or_unreadable() {
    let read = |text: Option<String>| {
        let annotations: BTreeMap<&str, String> = text.map(|text| (STATE, text)).into_iter().collect();
        State::read(&serde_json::json!({"metadata": {"annotations": annotations}}))
    };
    assert_eq!(read(None), Ok(None));
    let state = State::first("one", "seed");
    assert_eq!(read(Some(serde_json::to_string(&state).unwrap())), Ok(Some(state)));
    let unreadable = [
        "",
        "{",
        "{}",
        "null",
        r#"{"revision": "one", "phase": "Later"}"#,
        r#"{"revision": "one", "open": 1}"#,
    ];
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
    }
    // One that was evicted before is given nothing, and is waited for by nobody.
    let mut fleet = Fleet::new(20, "tier=pilot soak=0; 100% soak=0", "");
    fleet.clusters[5].leaving = true;
    fleet.change("two");
    fleet.run(10, 60, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Complete, 19), "{}", fleet.said());
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
