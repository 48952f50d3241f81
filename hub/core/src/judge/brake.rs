//! The brake on mass outage: when very many clusters vanish at once it is most likely the hub, or its network, that is
//! away, and nothing is moved.
//!
//! A cluster is *missing* once it has been silent for more than half its grace, so that the brake is on before the first
//! of them counts as lost. More than three tenths of the clusters, and three at least, that fell silent within one grace
//! period are a mass outage. It ends when of those so few are still missing that they would be none, or when the
//! operator's time is up (`--eviction-brake-timeout`, an hour; 0: never): what is missing then is really gone, and counts
//! towards no further outage until it has been back. Clusters that were lost before the hub started did not vanish now,
//! but an outage goes on under the next hub, which reads it, and how long it has lasted, from their conditions.
//!
//! While the hub cannot judge anybody (it has just started or taken the lead, it was late, it slept, its watch is
//! broken; a restored hub has just started, too) evictions stop as well, until everybody has had the startup grace.
//!
//! The flags are `--eviction-brake-share`, `--eviction-brake-clusters` and `--eviction-brake-timeout`; the metric is
//! `karmada_hub_evictions_held` by reason; each lost cluster has the condition `EvictionsHeld` meanwhile.
//!
#![doc = include_str!("brake.md")]

use std::{collections::BTreeSet, fmt, time::Duration};

use karmada_api::{
    conditions::{self, Condition, ConditionStatus},
    consts::extension,
};
use karmada_meta::{duration, time::Time};

/// When evictions stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// More than this share of the clusters (`--eviction-brake-share`; 1: never).
    pub share: f64,
    /// And so many at least (`--eviction-brake-clusters`).
    pub least: usize,
    /// Within this time: the hub's grace.
    pub window: Duration,
    /// They resume after this time, whoever is missing (`--eviction-brake-timeout`). Zero: not before they are back.
    pub timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            share: 0.3,
            least: 3,
            window: karmada_api::consts::lease::MONITOR_GRACE,
            timeout: Duration::from_secs(3600),
        }
    }
}

impl Settings {
    /// Whether it is a mass outage when so many `of` all clusters vanish at once.
    pub fn is_outage(&self, vanished: usize, of: usize) -> bool {
        // Counts of clusters are far below what a float holds exactly.
        vanished >= self.least.max(1) && vanished as f64 > self.share * of as f64
    }
}

/// Why evictions are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The hub has just started, or become leader.
    HubStarted,
    /// The hub was late, or slept, or was blind; everybody has the startup grace.
    HubAway,
    /// The hub does not hear Leases at present.
    HubCutOff,
    /// Too many clusters vanished at once.
    MassOutage,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::HubStarted, Self::HubAway, Self::HubCutOff, Self::MassOutage];

    /// In one word: the reason of conditions and events, the label of the metric.
    pub fn reason(self) -> &'static str {
        match self {
            Self::HubStarted => "HubStarted",
            Self::HubAway => "HubAway",
            Self::HubCutOff => "HubCutOff",
            Self::MassOutage => "MassOutage",
        }
    }
}

/// Evictions are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Why.
    pub cause: Cause,
    /// Of a mass outage, how many clusters vanished together and are missing still.
    pub missing: usize,
    /// Of how many.
    pub of: usize,
    /// When they resume whatever happens (monotonic), if they do.
    pub until: Option<Duration>,
    /// This is about clusters in push mode alone.
    pub pushed: bool,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::HubStarted => f.write_str("the hub has just started; clusters have time to report"),
            Cause::HubAway => f.write_str("the hub was away for a while; clusters have time to report"),
            Cause::HubCutOff => f.write_str("the hub does not hear from its API whether clusters live"),
            Cause::MassOutage => write!(
                f,
                "{} of {} clusters{} vanished at the same time; nothing is evicted from lost clusters until some are back",
                self.missing,
                self.of,
                if self.pushed { " in push mode" } else { "" }
            ),
        }
    }
}

/// One cluster, as the brake takes it.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// Its name.
    pub name: &'a str,
    /// When it last gave a sign of life, or since when the hub has waited for one.
    pub heard: Duration,
    /// It has been silent for more than half its grace, and was not so before the hub started, unless it went in the
    /// outage that lasts.
    pub missing: bool,
}

/// The brake.
#[derive(Clone, Debug, Default)]
pub struct Brake {
    outage: Option<Outage>,
    /// Missing, and given up: they count towards no outage until they are back.
    waived: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Outage {
    since: Duration,
    /// How long it had lasted then, under hubs before.
    before: Duration,
    members: BTreeSet<String>,
}

impl Outage {
    fn beginning(now: Duration) -> Self {
        Self { since: now, before: Duration::ZERO, members: BTreeSet::new() }
    }

    /// When it is over whatever happens, if ever.
    fn until(&self, settings: &Settings) -> Option<Duration> {
        (!settings.timeout.is_zero()).then(|| self.since + settings.timeout.saturating_sub(self.before))
    }
}

impl Brake {
    /// A hub before this one has held evictions from a cluster for so long, because many vanished together.
    pub fn recall(&mut self, name: &str, held_for: Duration, now: Duration) {
        let outage = self.outage.get_or_insert_with(|| Outage::beginning(now));
        outage.before = outage.before.max(held_for);
        outage.members.insert(name.to_owned());
    }

    /// Looks at all clusters. `hub`: why the hub itself cannot tell. Answers whether evictions are held.
    pub fn look(
        &mut self,
        now: Duration,
        hub: Option<Cause>,
        fleet: &[Sighting<'_>],
        settings: &Settings,
    ) -> Option<Held> {
        let missing = || fleet.iter().filter(|sighting| sighting.missing);
        let still: BTreeSet<_> = missing().map(|sighting| sighting.name).collect();
        self.waived.retain(|name| still.contains(name.as_str()));
        if let Some(outage) = &mut self.outage {
            outage.members.retain(|name| still.contains(name.as_str()));
        }
        let together = self.together(missing(), settings);
        let many = |count: usize| settings.is_outage(count, fleet.len());
        if many(together.len()) {
            let outage = self.outage.get_or_insert_with(|| Outage::beginning(now));
            outage.members.extend(together.into_iter().map(str::to_owned));
        }
        if let Some(outage) = self.outage.take_if(|outage| {
            !many(outage.members.len()) || outage.until(settings).is_some_and(|until| now >= until)
        }) && many(outage.members.len())
        {
            self.waived.extend(outage.members);
        }
        if let Some(cause) = hub {
            return Some(Held { cause, missing: still.len(), of: fleet.len(), until: None, pushed: false });
        }
        let outage = self.outage.as_ref()?;
        Some(Held {
            cause: Cause::MassOutage,
            missing: outage.members.len(),
            of: fleet.len(),
            until: outage.until(settings),
            pushed: false,
        })
    }

    /// Since when there is a mass outage, and who vanished in it.
    pub fn outage(&self) -> Option<(Duration, &BTreeSet<String>)> {
        self.outage.as_ref().map(|outage| (outage.since, &outage.members))
    }

    /// The most that fell silent within one window.
    fn together<'a>(
        &self,
        missing: impl Iterator<Item = &'a Sighting<'a>>,
        settings: &Settings,
    ) -> Vec<&'a str> {
        let mut silent: Vec<_> = missing.filter(|s| !self.waived.contains(s.name)).collect();
        silent.sort_unstable_by_key(|sighting| sighting.heard);
        let (mut first, mut best) = (0, 0..0);
        for last in 0..silent.len() {
            while silent[last].heard - silent[first].heard > settings.window {
                first += 1;
            }
            if last + 1 - first > best.len() {
                best = first..last + 1;
            }
        }
        silent[best].iter().map(|sighting| sighting.name).collect()
    }
}

/// Since when a Cluster's conditions say that a mass outage holds evictions from it, if they do.
pub fn held_since(list: &[Condition]) -> Option<Time> {
    let held = conditions::find(list, extension::EVICTIONS_HELD)?;
    let outage = held.status == ConditionStatus::True && held.reason == Cause::MassOutage.reason();
    outage.then_some(held.last_transition_time)
}

/// One line about evictions that are held, with the longest that this lasts. It names no time that passes: it stands in
/// the conditions of all that wait, and is written when it changes.
pub fn message(held: &Held, settings: &Settings) -> String {
    match held.until {
        Some(_) => format!("{held}, or for {} at most", duration::format(settings.timeout)),
        None => held.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::table;

    /// Clusters that give a sign of life every ten seconds unless the history says otherwise, looked at every five.
    fn story(clusters: usize, history: &str, end: u64) -> Option<Held> {
        let settings = Settings::default();
        let names: Vec<_> = (0..clusters).map(|n| format!("m{n}")).collect();
        let (mut heard, mut silent, mut brake) =
            (vec![0_u64; clusters], vec![false; clusters], Brake::default());
        let events: Vec<(bool, usize, u64)> = history
            .split_whitespace()
            .map(|event| {
                let (count, at) = event.split_once('@').unwrap();
                (count.starts_with('+'), count.trim_start_matches('+').parse().unwrap(), at.parse().unwrap())
            })
            .collect();
        let mut held = None;
        for now in (0..=end).step_by(5) {
            for (back, count, _) in events.iter().filter(|(.., at)| *at == now) {
                let some = (0..clusters).filter(|n| silent[*n] == *back).take(*count).collect::<Vec<_>>();
                some.into_iter().for_each(|n| silent[n] = !back);
            }
            for n in (0..clusters).filter(|n| !silent[*n] && now % 10 == 0) {
                heard[n] = now;
            }
            let seconds = Duration::from_secs;
            let fleet: Vec<_> = (0..clusters)
                .map(|n| Sighting { name: &names[n], heard: seconds(heard[n]), missing: now - heard[n] > 20 })
                .collect();
            let hub = (now < 60).then_some(Cause::HubStarted);
            held = brake.look(seconds(now), hub, &fleet, &settings);
        }
        held
    }

    #[test]
    fn the_table_holds() {
        for [clusters, history, asked, want] in table::rows(include_str!("brake.md")) {
            let held = story(clusters.parse().unwrap(), history, asked.parse().unwrap());
            let got =
                held.map_or_else(|| "allowed".to_owned(), |held| format!("held: {}", held.cause.reason()));
            assert_eq!(got, want, "{clusters} clusters, {history}, at {asked}");
        }
    }

    #[test]
    fn it_says_why_and_until_when() {
        let held = story(10, "4@100", 125).unwrap();
        assert_eq!(
            message(&held, &Settings::default()),
            "4 of 10 clusters vanished at the same time; nothing is evicted from lost clusters until some are back, or \
             for 1h0m0s at most"
        );
    }
}
