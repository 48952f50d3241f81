//! Judgement: what the hub makes of clusters that fall silent, come back, come and go, or vanish all at once.
//!
//! ```text
//!   Leases ──▶ health::Monitor ── silences ──▶ grace ──┐ (how long may it be silent?)
//!                    ▲  │                              │
//!                    └──┼──────────────────────────────┘
//!                       ├─ losses ──▶ flaps ──▶ held out of new scheduling
//!                       └─ missing ─▶ brake ──▶ evictions held      budget ──▶ evictions postponed
//!
//!   fence: what an agent stops when it cannot ask, and how long the hub waits for that;   guard: of one such workload;
//!   history: whether the hub is the one that the agent knows;   pairs: which settings of a hub do not go together
//! ```
//!
//! Each part is a function of what happened to what is decided, with a table that is its documentation and its test.
//! [`Judge`] puts the first three together, [`Opinion`] says of one cluster what people are to see.

pub mod brake;
pub mod budget;
pub mod day;
pub mod fence;
pub mod flaps;
pub mod grace;
pub mod guard;
pub mod history;
pub mod opinion;
pub mod pairs;
pub mod pushed;
#[cfg(test)]
pub(crate) mod table;
pub mod words;

use std::{collections::BTreeMap, time::Duration};

use karmada_meta::time::Time;
use serde::{Deserialize, Serialize};

use crate::{
    evict::{self, Allowance, Ask},
    health::{self, Expired, Listed, Moment, Monitor, Ready},
    leave,
    links::{self, Expected},
};

pub use opinion::Opinion;
pub use pushed::Pushed;

/// How often a history is written for a silence alone.
const RECORD_PERIOD: Duration = Duration::from_secs(600);

/// How often one is written that has not changed, so that it does not look old to the next hub.
const REFRESH_PERIOD: Duration = Duration::from_secs(12 * 3600);

/// By how much an ordinary silence must differ to be written down.
const RECORD_STEP: u64 = 5;

/// Why nothing is evicted from a cluster that is heard of again before it has reported.
pub const RETURNED: &str = "ClusterReturned";

/// Why nothing is evicted from a cluster in push mode that has just stopped to answer.
pub const VANISHED: &str = "ClusterVanished";

/// When those ask again that the brake holds, if nobody tells them earlier that it is off.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// How often it is said of a cluster that settings do not go together, however often they change.
const SAY_AGAIN: Duration = Duration::from_secs(3600);

/// All settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The monitor's times.
    pub health: health::Settings,
    /// The most that is learnt as a cluster's grace.
    pub most_grace: Duration,
    /// The most that an agent's Lease is honoured as its cluster's grace.
    pub most_lease: Duration,
    /// When clusters are held out.
    pub flaps: flaps::Settings,
    /// When evictions are held; its window is the monitor's grace.
    pub brake: brake::Settings,
    /// How many evictions there may be.
    pub budget: budget::Settings,
    /// By how much longer than an agent the hub waits for what is fenced.
    pub fence_skew: Duration,
    /// For how long an agent that reports is waited for when its Cluster goes.
    pub removal: leave::Patience,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            health: health::Settings::default(),
            most_grace: grace::Settings::MOST,
            most_lease: grace::Settings::MOST_PROMISED,
            flaps: flaps::Settings::default(),
            brake: brake::Settings::default(),
            budget: budget::Settings::default(),
            fence_skew: fence::SKEW,
            removal: leave::Patience::default(),
        }
    }
}

impl Settings {
    fn grace(&self) -> grace::Settings {
        grace::Settings {
            least: self.health.grace,
            most: self.most_grace.max(self.health.grace),
            most_promised: self.most_lease,
            period: self.health.period,
        }
    }
}

/// A cluster as a tick finds it.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its condition says.
    pub ready: Ready,
    /// What its user and its agent say of its grace.
    pub grace: grace::Said<'a>,
    /// Since when its condition says that it is lost, if it does.
    pub lost_since: Option<Time>,
    /// What a hub wrote down of its link.
    pub history: Option<&'a str>,
    /// Since when evictions from it are held because many vanished with it, by its condition.
    pub held: Option<Time>,
    /// At which times its link is there, if not always: the Cluster's annotation.
    pub windows: Option<&'a str>,
}

/// What a hub writes down of a link, as JSON in an annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// When it was written.
    pub at: Time,
    /// The longest ordinary silence, in seconds, if it is worth mentioning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinary_silence_seconds: Option<u64>,
    /// How often the next hold is doubled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doublings: Option<u32>,
    /// The end of the present hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Time>,
    /// When it was lost of late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Time>,
}

/// Two times of one loss differ by less: the clocks are read anew for each.
const SAME_LOSS: Duration = Duration::from_secs(3);

impl Record {
    /// Whether it tells of no loss that `other` does not tell of.
    fn has_no_loss_beyond(&self, other: &Self) -> bool {
        let is_known = |loss: &Time| {
            let gap = |known: &Time| loss.timestamp().duration_since(known.timestamp()).unsigned_abs();
            other.losses.iter().any(|known| gap(known) < SAME_LOSS)
        };
        self.losses.iter().all(is_known)
    }

    /// Without losses that count no more: that they do not is no news.
    fn but_recent(&self, now: Moment, flaps: &flaps::Settings) -> Self {
        let wall = std::time::UNIX_EPOCH + now.wall;
        let mut recent = self.clone();
        recent.losses.retain(|loss| loss.elapsed(wall) + SAME_LOSS < flaps.window);
        recent
    }
}

/// What is remembered of one cluster.
#[derive(Clone, Debug, Default)]
struct Link {
    silences: grace::Silences,
    flaps: flaps::Flaps,
    /// The monitor has found it lost, and it has not been back.
    lost: bool,
    /// When the monitor found that, as long as the condition does not say so.
    unconfirmed: Option<Duration>,
    /// When it was first heard of again, since it was lost.
    returned: Option<Duration>,
    /// The present hold's end, and how people read it.
    held: Option<(Duration, Time)>,
    grace: Option<grace::Grace>,
    /// Its last day.
    day: day::Day,
    /// What is said of the times at which its link is there, and whether that can be read.
    schedule: Option<Result<String, String>>,
    /// What was last said not to go together, and when.
    said: Option<(grace::Conflict, Duration)>,
    record: Option<Record>,
}

/// What a tick decided.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Whose Ready condition is to become Unknown.
    pub expired: Vec<(String, Expired)>,
    /// Whether evictions are held: by what is known of the hub, and of clusters in pull mode; and from those in push mode alone.
    pub held: [Option<brake::Held>; 2],
    /// Of which clusters it is to be said now, and not with the next tick again, that settings of the hub and of the
    /// agent do not go together.
    pub conflicts: Vec<(String, grace::Grace)>,
}

/// Whether the brake and the budgets are for an eviction at all: what a user has asked for on a cluster that answers is
/// neither stopped nor counted. A drain is no mistake of the hub's.
pub fn counts(ask: &Ask<'_>) -> bool {
    ask.cause != evict::Cause::NoExecute || !ask.reachable
}

/// What is seen of a cluster at one moment, for whoever shows many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// When it was last heard of, if this hub knows.
    pub heard: Option<Time>,
    /// How long it may be silent.
    pub grace: Duration,
    /// Until when it is held out of new scheduling.
    pub held_until: Option<Time>,
    /// Losses that count at present.
    pub losses: usize,
    /// Whether its link is there at certain times alone.
    pub scheduled: bool,
}

/// The state machine over all clusters.
#[derive(Debug)]
pub struct Judge {
    settings: Settings,
    monitor: Monitor,
    links: BTreeMap<String, Link>,
    brake: brake::Brake,
    held: Option<brake::Held>,
    reach: pushed::Reach,
}

impl Judge {
    /// One that starts now, or whose process has just become leader.
    pub fn new(settings: Settings, now: Moment) -> Self {
        let mut settings = settings;
        settings.brake.window = settings.health.grace;
        let monitor = Monitor::new(settings.health, now);
        let held = monitor.blind(now).map(|cause| brake::Held {
            cause,
            missing: 0,
            of: 0,
            until: None,
            pushed: false,
        });
        Self {
            settings,
            monitor,
            links: BTreeMap::new(),
            brake: brake::Brake::default(),
            held,
            reach: pushed::Reach::default(),
        }
    }

    /// A cluster's Lease as it is now.
    pub fn renewed(&mut self, cluster: &str, renew_time: &str, now: Moment) {
        let before = self.monitor.heard(cluster);
        let silence = self.monitor.renewed(cluster, renew_time, now);
        if let Some((link, silence)) = self.links.get_mut(cluster).zip(silence) {
            link.silences.ended(silence, now.monotonic, &self.settings.grace());
        }
        self.back(cluster, before, now);
    }

    /// A cluster's Lease as it was found when it was asked for: the watch had not told. If that is why the cluster was
    /// found lost, it was no loss.
    pub fn found_renewed(&mut self, cluster: &str, renew_time: &str, now: Moment) {
        let before = self.monitor.heard(cluster);
        self.monitor.found_renewed(cluster, renew_time, now);
        if let Some(link) = self.links.get_mut(cluster)
            && let Some(since) = link.unconfirmed.take()
        {
            link.lost = false;
            link.flaps.forgive(since);
        }
        self.back(cluster, before, now);
    }

    /// Notes that a lost cluster is heard of again. `before`: when it had been heard last.
    fn back(&mut self, cluster: &str, before: Option<Duration>, now: Moment) {
        let heard = self.monitor.heard(cluster);
        let Some(link) = self.links.get_mut(cluster) else { return };
        let since = before.map_or(Duration::ZERO, |before| now.monotonic.saturating_sub(before));
        let patience = link.grace.as_ref().map_or(self.settings.health.grace, |grace| grace.length);
        if link.lost && heard != before && (link.returned.is_none() || since > patience) {
            link.returned = heard;
        }
    }

    /// Whether an eviction may begin now. Nothing is spent.
    ///
    /// | an eviction | is held while |
    /// |---|---|
    /// | that a user has asked for, from a cluster that reports | never |
    /// | any other | the hub cannot tell who lives: `HubStarted`, `HubAway`, `HubCutOff` |
    /// | from a cluster that does not report | there is a mass outage: `MassOutage` |
    /// | from one in push mode that has just stopped to answer | others may do so, too: `ClusterVanished` |
    /// | from a cluster that is heard of again and has not reported yet | it has its time to: `ClusterReturned` |
    /// | any other | a budget is spent: `BindingBudget`, `MinuteBudget` |
    pub fn allow(&self, ask: &Ask<'_>, budgets: &mut budget::Budgets, now: Duration) -> Allowance {
        if !counts(ask) {
            return Allowance::Granted;
        }
        // A mass outage says nothing of an application on a cluster that answers.
        let stands = |held: &&brake::Held| !(ask.reachable && held.cause == brake::Cause::MassOutage);
        let is_pushed = self.reach.has(ask.cluster);
        let held = match &self.held {
            Some(held) if is_pushed && held.cause == brake::Cause::MassOutage => self.reach.held(),
            None if is_pushed => self.reach.held(),
            held => held.as_ref(),
        };
        if let Some(held) = held.filter(stands) {
            let message = brake::message(held, &self.settings.brake);
            return Allowance::Held { reason: held.cause.reason(), message, again: ASK_AGAIN };
        }
        if let Some(again) = self.reports_soon(ask.cluster, now).filter(|_| !ask.reachable) {
            let message =
                format!("stays on {}: it has just been heard of again, and has time to report", ask.cluster);
            return Allowance::Held { reason: RETURNED, message, again };
        }
        let unclear = self.reach.unclear_for(ask.cluster, now, &self.settings.brake);
        if let Some(again) = unclear.filter(|_| !ask.reachable) {
            let message = format!(
                "stays on {}: it has just stopped to answer, and it is not clear yet whether others have, too",
                ask.cluster
            );
            return Allowance::Held { reason: VANISHED, message, again };
        }
        match budgets.check(ask.binding, now, &self.settings.budget) {
            Ok(()) => Allowance::Granted,
            Err((spent, again)) => {
                Allowance::Held { reason: spent.reason(), message: spent.to_string(), again }
            }
        }
    }

    /// For how long a cluster that was lost and is heard of again is given time to report.
    fn reports_soon(&self, cluster: &str, now: Duration) -> Option<Duration> {
        let link = self.links.get(cluster)?;
        let returned = link.returned.filter(|_| link.lost)?;
        let silent = now.saturating_sub(self.monitor.heard(cluster)?);
        let patience = link.grace.as_ref().map_or(self.settings.health.grace, |grace| grace.length);
        let left = (returned + self.settings.health.startup_grace).saturating_sub(now);
        (silent <= patience && !left.is_zero()).then_some(left)
    }

    /// Looks at all clusters, those in push mode apart. `watching`: the Lease watch is known to have been alive until now.
    pub fn tick<'a>(
        &mut self,
        now: Moment,
        watching: bool,
        clusters: impl IntoIterator<Item = Cluster<'a>>,
        pushed: impl IntoIterator<Item = Pushed<'a>>,
    ) -> Verdict {
        let settings = self.settings;
        self.reach.look(now, pushed, &settings.brake);
        let mut links = BTreeMap::new();
        let mut listed = Vec::new();
        let mut conflicts = Vec::new();
        for cluster in clusters {
            let known = self.links.remove(cluster.name);
            if let Some(since) = cluster.held
                && known.is_none()
                && cluster.ready == Ready::Unknown
            {
                let held_for = since.elapsed(std::time::UNIX_EPOCH + now.wall);
                self.brake.recall(cluster.name, held_for, now.monotonic);
            }
            let mut link = known.unwrap_or_else(|| Link::recall(&cluster, now, &settings));
            let grace = link.silences.grace(cluster.grace, now.monotonic, &settings.grace());
            // The hub's own is the monitor's, with its rules for beginners.
            let own = (grace.length != settings.health.grace).then_some(grace.length);
            let expected = links::expected(cluster.windows, std::time::UNIX_EPOCH + now.wall);
            let expected_for = match &expected {
                Expected::Always | Expected::Unreadable(_) => None,
                Expected::For(length) => Some(*length),
                Expected::From(_) => Some(Duration::ZERO),
            };
            link.schedule = cluster.windows.map(|windows| match expected {
                Expected::Unreadable(why) => Err(why),
                _ => Ok(windows.to_owned()),
            });
            listed.push(Listed { name: cluster.name, ready: cluster.ready, grace: own, expected_for });
            if link.has_news(grace.conflict, now.monotonic) {
                conflicts.push((cluster.name.to_owned(), grace.clone()));
            }
            link.grace = Some(grace);
            links.insert(cluster.name.to_owned(), link);
        }
        self.links = links;
        let expired = self.monitor.tick(now, watching, listed.iter().copied());
        self.look(now, &listed);
        let held = [self.held.clone(), self.reach.held().cloned()];
        self.note_day(now, &listed);
        self.count_losses(now, &listed, &expired);
        let expired = expired.into_iter().map(|(name, how)| (name.to_owned(), how)).collect();
        Verdict { expired, held, conflicts }
    }

    /// Whether this is a mass outage.
    fn look(&mut self, now: Moment, listed: &[Listed<'_>]) {
        let sightings: Vec<_> = listed
            .iter()
            .map(|cluster| {
                let expected = cluster.expected_for.map(|length| now.monotonic.saturating_sub(length));
                let heard = self.monitor.heard(cluster.name).unwrap_or(now.monotonic);
                let heard = heard.max(expected.unwrap_or_default());
                let grace = cluster.grace.unwrap_or(self.settings.health.grace);
                let silent = now.monotonic.saturating_sub(heard) > grace / 2;
                let lost_before = self.monitor.lost_before(cluster.name);
                let recalled = lost_before
                    && self.brake.outage().is_some_and(|(_, members)| members.contains(cluster.name));
                let vanished = cluster.ready != Ready::Never && !lost_before;
                brake::Sighting { name: cluster.name, heard, missing: recalled || (silent && vanished) }
            })
            .collect();
        let before = self.brake.outage().is_some();
        let blind = self.monitor.blind(now);
        self.held = self.brake.look(now.monotonic, blind, &sightings, &self.settings.brake);
        if let Some((_, members)) = self.brake.outage()
            && !before
        {
            // Those that were found lost a moment earlier went with the others.
            let since = now.monotonic.saturating_sub(self.settings.brake.window);
            for member in members {
                if let Some(link) = self.links.get_mut(member) {
                    link.flaps.forgive(since);
                }
            }
        }
    }

    fn count_losses(&mut self, now: Moment, listed: &[Listed<'_>], expired: &[(&str, Expired)]) {
        let settings = &self.settings.flaps;
        let everybodys = self.brake.outage().is_some();
        for (name, how) in expired {
            if let Some(link) = self.links.get_mut(*name)
                && !std::mem::replace(&mut link.lost, true)
            {
                link.unconfirmed = Some(now.monotonic);
                if *how == Expired::Stopped && !everybodys {
                    link.flaps.lost(now.monotonic, settings);
                }
            }
        }
        for cluster in listed {
            let Some(link) = self.links.get_mut(cluster.name) else { continue };
            match cluster.ready {
                Ready::Unknown => (link.lost, link.unconfirmed) = (true, None),
                Ready::True | Ready::False
                    if link.lost && !expired.iter().any(|(name, _)| *name == cluster.name) =>
                {
                    (link.lost, link.unconfirmed, link.returned) = (false, None, None);
                    link.flaps.back(now.monotonic, settings);
                }
                _ => {}
            }
            let until = link.flaps.held_until(now.monotonic);
            if until != link.held.map(|(until, _)| until) {
                link.held = until.map(|until| (until, wall_of(until, now)));
            }
        }
    }

    /// Whether the hub cannot tell at present which clusters live.
    pub fn is_blind(&self, now: Moment) -> bool {
        self.monitor.blind(now).is_some()
    }

    /// Whether evictions are held, as of the last tick.
    pub fn held(&self) -> Option<&brake::Held> {
        let [first, second] = self.held_each();
        first.or(second)
    }

    /// The same, by each as in a [`Verdict`].
    pub fn held_each(&self) -> [Option<&brake::Held>; 2] {
        [self.held.as_ref(), self.reach.held()]
    }

    /// The hub itself looks at clusters in push mode: what is known of them counts only once it has.
    pub fn looks_at_pushed(&mut self) {
        self.reach.begins();
    }

    /// The hub has looked at a cluster in push mode for the first time, and its Cluster says what it has found.
    pub fn looked_at(&mut self, cluster: &str) {
        self.reach.looked_at(cluster);
    }

    /// When a cluster last gave a sign of life (monotonic), or since when the hub has waited for one.
    pub fn heard(&self, cluster: &str) -> Option<Duration> {
        self.monitor.heard(cluster)
    }

    /// What is to be shown of a cluster.
    pub fn opinion(&self, cluster: &str, ready: Ready, now: Moment) -> Opinion {
        let link = self.links.get(cluster);
        let known = !self.monitor.lost_before(cluster);
        Opinion {
            grace: link.and_then(|link| link.grace.clone()),
            schedule: link.and_then(|link| link.schedule.clone()),
            held_until: link.and_then(|link| link.held).map(|(_, until)| until),
            losses: link.map_or(0, |link| link.flaps.recent(now.monotonic, &self.settings.flaps)),
            stale: ready == Ready::Unknown,
            heard: self.monitor.heard(cluster).filter(|_| known).map(|heard| wall_of(heard, now)),
            evictions_held: ready == Ready::Unknown && self.brake.outage().is_some(),
        }
    }

    /// What is to be shown of one in push mode: nobody thinks anything of its link.
    pub fn opinion_of_pushed(&self, cluster: &str, answers: bool) -> Opinion {
        let evictions_held = !answers && self.reach.has(cluster) && self.reach.held().is_some();
        Opinion { evictions_held, ..Opinion::default() }
    }

    /// What is seen of a cluster; the same as its [`Judge::opinion`], without texts.
    pub fn sighting(&self, cluster: &str, now: Moment) -> Sighting {
        let link = self.links.get(cluster);
        let known = link.is_some() && !self.monitor.lost_before(cluster);
        Sighting {
            heard: self.monitor.sign(cluster).filter(|_| known).map(|heard| wall_of(heard, now)),
            grace: link
                .and_then(|link| link.grace.as_ref())
                .map_or(self.settings.health.grace, |grace| grace.length),
            held_until: link.and_then(|link| link.held).map(|(_, until)| until),
            losses: link.map_or(0, |link| link.flaps.recent(now.monotonic, &self.settings.flaps)),
            scheduled: link.is_some_and(|link| matches!(link.schedule, Some(Ok(_)))),
        }
    }

    /// The last day of a cluster's link, as [`day::Day::strip`] writes it.
    pub fn strip(&self, cluster: &str, now: Moment) -> Option<String> {
        self.links.get(cluster).map(|link| link.day.strip(now.wall))
    }

    /// Notes for the record of the day what a look finds; nothing while nobody can tell.
    fn note_day(&mut self, now: Moment, listed: &[Listed<'_>]) {
        let blind = self.monitor.blind(now).is_some();
        for cluster in listed {
            let signed = self.monitor.sign(cluster.name);
            let silent = signed.map(|signed| now.monotonic.saturating_sub(signed));
            let grace = cluster.grace.unwrap_or(self.settings.health.grace);
            let look = match (cluster.ready, silent) {
                (Ready::Never, _) => continue,
                (Ready::Unknown, _) => day::Look::Lost,
                (_, None) => continue,
                (_, Some(silent)) if silent <= grace / 2 => day::Look::Seen,
                _ if blind => continue,
                (_, Some(silent)) if silent <= grace || cluster.expected_for.is_some() => day::Look::Silent,
                _ => day::Look::Lost,
            };
            if let Some(link) = self.links.get_mut(cluster.name) {
                link.day.note(now.wall, look);
            }
        }
    }

    /// What is to be written down of a cluster's link instead of what was: `Some(None)` is nothing.
    pub fn record(&mut self, cluster: &str, now: Moment) -> Option<Option<Record>> {
        let (flaps, grace) = (self.settings.flaps, self.settings.grace());
        self.links.get_mut(cluster)?.revise(now, &flaps, &grace)
    }
}

impl Link {
    /// What a hub wrote down. An annotation that cannot be read is no history.
    fn recall(cluster: &Cluster<'_>, now: Moment, settings: &Settings) -> Self {
        let (mut link, lost) = (Self::default(), cluster.ready == Ready::Unknown);
        let record = cluster.history.and_then(|text| serde_json::from_str::<Record>(text).ok());
        let since_1970 =
            |time: &Time| u64::try_from(time.timestamp().as_second()).ok().map(Duration::from_secs);
        let losses = record.iter().flat_map(|record| &record.losses).filter_map(since_1970);
        let lost_since = cluster.lost_since.filter(|_| lost).as_ref().and_then(since_1970);
        link.day.recall(losses, lost_since, now.wall);
        let Some(record) = record else { return link };
        let wall = std::time::UNIX_EPOCH + now.wall;
        // A time that is yet to come was written by a clock that was wrong, or is read by one.
        let ago = record.at.elapsed(wall);
        if let Some(seconds) = record.ordinary_silence_seconds {
            let silence = Duration::from_secs(seconds);
            link.silences.recall(silence, ago, now.monotonic, &settings.grace());
        }
        let left = record.held_until.map_or(Duration::ZERO, |until| {
            let passed = until.elapsed(wall);
            if passed.is_zero() { left_until(until, now) } else { Duration::ZERO }
        });
        let known = flaps::Known {
            level: record.doublings.unwrap_or(0),
            left,
            losses: record.losses.iter().map(|loss| loss.elapsed(wall)).collect(),
        };
        link.flaps.recall(&known, lost, now.monotonic, &settings.flaps);
        let until = link.flaps.held_until(now.monotonic);
        link.held = until.zip(record.held_until);
        link.record = Some(record);
        link
    }

    /// Whether a conflict is to be said: it was not yet. An agent that says something else with each renewal fills no log.
    fn has_news(&mut self, conflict: Option<grace::Conflict>, now: Duration) -> bool {
        let rests = self.said.is_some_and(|(_, at)| now.saturating_sub(at) < SAY_AGAIN);
        let news = conflict.filter(|new| !rests && self.said.is_none_or(|(said, _)| said != *new));
        match (news, conflict) {
            (Some(new), _) => self.said = Some((new, now)),
            // What is mended, and comes back some day, is news then.
            (None, None) if !rests => self.said = None,
            _ => {}
        }
        news.is_some()
    }

    fn revise(
        &mut self,
        now: Moment,
        flaps: &flaps::Settings,
        grace: &grace::Settings,
    ) -> Option<Option<Record>> {
        let ordinary = self.silences.ordinary(now.monotonic).filter(|_| grace.most > grace.least);
        let rounded = ordinary.map(|silence| silence.as_secs().div_ceil(RECORD_STEP) * RECORD_STEP);
        let level = self.flaps.level(now.monotonic, flaps);
        let new = Record {
            at: wall_of(now.monotonic, now),
            ordinary_silence_seconds: rounded,
            doublings: Some(level).filter(|level| *level > 0),
            held_until: self.held.map(|(_, until)| until),
            losses: self
                .flaps
                .ages(now.monotonic, flaps)
                .map(|ago| Time::from_system(std::time::UNIX_EPOCH + now.wall.saturating_sub(ago)))
                .collect(),
        };
        let says_nothing = new.ordinary_silence_seconds.is_none()
            && new.doublings.is_none()
            && new.held_until.is_none()
            && new.losses.is_empty();
        let Some(old) = &self.record else {
            if says_nothing {
                return None;
            }
            self.record = Some(new.clone());
            return Some(Some(new));
        };
        if says_nothing {
            self.record = None;
            return Some(None);
        }
        let age = old.at.elapsed(std::time::UNIX_EPOCH + now.wall);
        let same_flaps = new.doublings == old.doublings
            && new.held_until == old.held_until
            && new.has_no_loss_beyond(old)
            && old.but_recent(now, flaps).has_no_loss_beyond(&new);
        let same_silence = new.ordinary_silence_seconds == old.ordinary_silence_seconds;
        let rests = match (same_flaps, same_silence) {
            (true, true) => age < REFRESH_PERIOD,
            (true, false) => age < RECORD_PERIOD,
            (false, _) => false,
        };
        if rests {
            return None;
        }
        self.record = Some(new.clone());
        Some(Some(new))
    }
}

/// The time of day of a monotonic time.
fn wall_of(at: Duration, now: Moment) -> Time {
    let wall = if at >= now.monotonic {
        now.wall + (at - now.monotonic)
    } else {
        now.wall.saturating_sub(now.monotonic - at)
    };
    Time::from_system(std::time::UNIX_EPOCH + wall)
}

/// How long it is until then.
fn left_until(then: Time, now: Moment) -> Duration {
    let since_epoch = Duration::from_secs(u64::try_from(then.timestamp().as_second()).unwrap_or(0));
    since_epoch.saturating_sub(now.wall)
}

#[cfg(test)]
mod tests;
