//! The lease monitor: which clusters have stopped giving a sign of life, by the hub's own clock.
//!
//! ```text
//!   Lease watch ──▶ renewed() ┐
//!                             ├─▶ Monitor ── tick() ──▶ Expired per cluster ──▶ Ready=Unknown, taint
//!   Clusters ───────────────▶ ┘
//! ```
//!
//! An agent's clock is nobody's business: only that `renewTime` has *changed* counts, and the moment is the hub's
//! monotonic time at which it saw that. The monitor counts time only while it could have seen a renewal. After
//! anything that makes it blind or late (it has just started, it has become leader again, its watch was broken, it
//! was not run in time, the machine slept) everybody gets the startup grace before anybody is judged: it was the
//! hub that was away, not they.

use std::{collections::BTreeMap, time::Duration};

use karmada_api::consts::{lease, reason};

use crate::judge::brake::Cause;

/// The monitor's times; Karmada's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often [`Monitor::tick`] is called (`--cluster-monitor-period`).
    pub period: Duration,
    /// How long a cluster may be silent (`--cluster-monitor-grace-period`).
    pub grace: Duration,
    /// How long a new cluster, and after a blind spell any cluster, may be silent
    /// (`--cluster-startup-grace-period`).
    pub startup_grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period: lease::MONITOR_PERIOD,
            grace: lease::MONITOR_GRACE,
            startup_grace: lease::MONITOR_STARTUP_GRACE,
        }
    }
}

/// The two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time since whenever.
    pub monotonic: Duration,
    /// The time of day since 1970. Used for one thing only: a machine that slept finds that it went on while the
    /// monotonic clock may have stood still.
    pub wall: Duration,
}

/// What stands in a Cluster's Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The agent says so.
    True,
    /// The agent says that its cluster is not.
    False,
    /// The monitor has said so.
    Unknown,
    /// There is no such condition yet.
    Never,
}

impl Ready {
    /// From the `status` of the condition, if there is one.
    pub fn from_status(status: Option<&str>) -> Self {
        match status {
            None => Self::Never,
            Some("True") => Self::True,
            Some("False") => Self::False,
            Some(_) => Self::Unknown,
        }
    }
}

/// What the monitor has decided about a silent cluster: its Ready condition is to become Unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// It has reported once, and stopped.
    Stopped,
    /// It has never reported.
    Never,
}

impl Expired {
    /// The condition's reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Stopped => reason::CLUSTER_STATUS_UNKNOWN,
            Self::Never => reason::CLUSTER_STATUS_NEVER_UPDATED,
        }
    }

    /// The condition's message.
    pub fn message(self) -> &'static str {
        match self {
            Self::Stopped => reason::CLUSTER_STATUS_UNKNOWN_MESSAGE,
            Self::Never => reason::CLUSTER_STATUS_NEVER_UPDATED_MESSAGE,
        }
    }
}

/// A cluster as a tick finds it.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its condition says.
    pub ready: Ready,
    /// How long it may be silent, if that is not what any cluster may.
    pub grace: Option<Duration>,
    /// For how long a sign of life has been expected of it, if that is not always: nothing, while none is.
    pub expected_for: Option<Duration>,
}

impl<'a> From<(&'a str, Ready)> for Listed<'a> {
    fn from((name, ready): (&'a str, Ready)) -> Self {
        Self { name, ready, grace: None, expected_for: None }
    }
}

/// What is known of one cluster.
#[derive(Clone, Debug)]
struct Seen {
    /// When it was first known, or everybody's grace began anew.
    since: Duration,
    /// The last `renewTime`, in whatever form it came.
    renewed: Option<String>,
    /// When that was seen to have changed.
    at: Option<Duration>,
    /// A tick found it with this condition first, before any sign of life.
    found: Option<Ready>,
    /// The watch did not tell of the last sign of life.
    late: bool,
}

impl Seen {
    fn new(now: Moment) -> Self {
        Self { since: now.monotonic, renewed: None, at: None, found: None, late: false }
    }
}

/// The state machine. It is given every change of a Lease and every tick, and the clusters at each.
#[derive(Debug)]
pub struct Monitor {
    settings: Settings,
    clusters: BTreeMap<String, Seen>,
    last: Moment,
    /// Since when the Lease watch is not known to be healthy.
    blind_since: Option<Duration>,
    /// Before this nobody is judged.
    grace_until: Duration,
    /// Why.
    grace_cause: Cause,
    /// Since when every renewal would have been seen when it came.
    sighted_since: Duration,
}

impl Monitor {
    /// A monitor that starts now, or whose process has just become leader.
    pub fn new(settings: Settings, now: Moment) -> Self {
        let mut monitor = Self {
            settings,
            clusters: BTreeMap::new(),
            last: now,
            blind_since: None,
            grace_until: Duration::ZERO,
            grace_cause: Cause::HubStarted,
            sighted_since: now.monotonic,
        };
        monitor.restart(now);
        monitor.grace_cause = Cause::HubStarted;
        monitor
    }

    /// Gives everybody the startup grace: leadership regained, or anything else that made the hub miss time.
    pub fn restart(&mut self, now: Moment) {
        self.last = now;
        self.spare_everybody(now);
    }

    fn spare_everybody(&mut self, now: Moment) {
        self.grace_until = now.monotonic + self.settings.startup_grace;
        self.grace_cause = Cause::HubAway;
        self.sighted_since = now.monotonic;
    }

    /// A cluster's Lease as it is now. Seeing the same `renewTime` again is no sign of life; a smaller one is,
    /// since the member's clock may have been put back. Answers how long the cluster had been silent, if the hub was
    /// there all the while.
    pub fn renewed(&mut self, cluster: &str, renew_time: &str, now: Moment) -> Option<Duration> {
        if !self.clusters.contains_key(cluster) {
            self.clusters.insert(cluster.to_owned(), Seen::new(now));
        }
        let seen = self.clusters.get_mut(cluster)?;
        if seen.renewed.as_deref() == Some(renew_time) {
            return None;
        }
        let first = seen.renewed.replace(renew_time.to_owned()).is_none() || std::mem::take(&mut seen.late);
        let before = seen.at.replace(now.monotonic);
        // What is seen first may have been written long ago.
        let watched = before.filter(|at| !first && *at >= self.sighted_since && self.blind_since.is_none());
        watched.map(|at| now.monotonic.saturating_sub(at))
    }

    /// A cluster's Lease as it was found when it was asked for, which the watch had not told. How long the cluster had
    /// been silent is not known then, nor with the next sign of life.
    pub fn found_renewed(&mut self, cluster: &str, renew_time: &str, now: Moment) {
        self.renewed(cluster, renew_time, now);
        if let Some(seen) = self.clusters.get_mut(cluster) {
            seen.late = true;
        }
    }

    /// When a cluster last gave a sign of life; of one that has given none, since when the hub has waited for it.
    pub fn heard(&self, cluster: &str) -> Option<Duration> {
        self.clusters.get(cluster).map(|seen| seen.at.unwrap_or(seen.since))
    }

    /// When a cluster last gave a sign of life, if it has given one. What was there when it was first looked at is none: it may
    /// have been written long ago.
    pub fn sign(&self, cluster: &str) -> Option<Duration> {
        let seen = self.clusters.get(cluster)?;
        seen.at.filter(|at| *at > seen.since)
    }

    /// Whether a cluster was lost already when it was first looked at, and has been silent since.
    pub fn lost_before(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(|seen| {
            seen.at.is_none_or(|at| at <= seen.since) && seen.found == Some(Ready::Unknown)
        })
    }

    /// Why the hub cannot tell at present whether clusters live, if it cannot.
    pub fn blind(&self, now: Moment) -> Option<Cause> {
        let cut_off =
            self.blind_since.is_some_and(|since| now.monotonic.saturating_sub(since) >= self.settings.period);
        if cut_off {
            return Some(Cause::HubCutOff);
        }
        (now.monotonic < self.grace_until).then_some(self.grace_cause)
    }

    /// Looks at all clusters (those in pull mode) with their Ready conditions, and names those that have been
    /// silent for too long and whose condition does not say so yet. Clusters that are no longer listed are
    /// forgotten. `watching`: the Lease watch is known to have been alive until now.
    pub fn tick<'a>(
        &mut self,
        now: Moment,
        watching: bool,
        clusters: impl IntoIterator<Item = impl Into<Listed<'a>>>,
    ) -> Vec<(&'a str, Expired)> {
        if self.missed_time(now) {
            self.restart(now);
        }
        self.last = now;
        self.watch_state(now, watching);

        let mut listed = BTreeMap::new();
        let mut expired = Vec::new();
        for cluster in clusters {
            let Listed { name, ready, grace, expected_for } = cluster.into();
            let mut seen = self.clusters.remove(name).unwrap_or_else(|| Seen::new(now));
            seen.found.get_or_insert(ready);
            let expected_since = expected_for.map(|length| now.monotonic.saturating_sub(length));
            let deadline = self.deadline(&seen, ready, grace, expected_since.unwrap_or_default());
            listed.insert(name.to_owned(), seen);
            if !watching || ready == Ready::Unknown || now.monotonic <= deadline {
                continue;
            }
            expired.push((name, if ready == Ready::Never { Expired::Never } else { Expired::Stopped }));
        }
        self.clusters = listed;
        expired
    }

    /// Until when a cluster is taken to be alive.
    fn deadline(
        &self,
        seen: &Seen,
        ready: Ready,
        own: Option<Duration>,
        expected_since: Duration,
    ) -> Duration {
        let silent_since = seen.at.unwrap_or(seen.since).max(expected_since);
        let grace = own.unwrap_or(self.settings.grace);
        let grace = match ready {
            Ready::Never => self.settings.startup_grace.max(own.unwrap_or_default()),
            _ if seen.at.is_none() => self.settings.startup_grace.max(own.unwrap_or_default()),
            _ => grace,
        };
        // What the hub could not have heard was no silence.
        (silent_since.max(self.sighted_since) + grace).max(self.grace_until)
    }

    /// Whether this tick comes so late that renewals may have waited unseen, by either clock.
    fn missed_time(&self, now: Moment) -> bool {
        let limit = 2 * self.settings.period;
        let monotonic = now.monotonic.saturating_sub(self.last.monotonic);
        let wall = now.wall.saturating_sub(self.last.wall);
        monotonic > limit || wall > monotonic + limit
    }

    /// A watch that was broken for longer than a period was, as likely as not, an API that was down, where no
    /// agent could renew anything.
    fn watch_state(&mut self, now: Moment, watching: bool) {
        if !watching {
            self.blind_since.get_or_insert(now.monotonic);
        } else if let Some(since) = self.blind_since.take()
            && now.monotonic.saturating_sub(since) >= self.settings.period
        {
            self.spare_everybody(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_000_000 + seconds) }
    }

    /// A monitor that ticks every five seconds over one cluster.
    struct Run {
        monitor: Monitor,
        now: u64,
        ready: Ready,
    }

    impl Run {
        fn new(ready: Ready) -> Self {
            Self { monitor: Monitor::new(Settings::default(), at(0)), now: 0, ready }
        }

        fn renew(&mut self) {
            let time = format!("t{}", self.now);
            self.monitor.renewed("m", &time, at(self.now));
        }

        /// Ticks until `end` and says when the cluster expired.
        fn until(&mut self, end: u64, watching: bool, renew: bool) -> Option<(u64, Expired)> {
            while self.now < end {
                self.now += 5;
                if renew && self.now.is_multiple_of(10) {
                    self.renew();
                }
                let expired = self.monitor.tick(at(self.now), watching, [("m", self.ready)]);
                if let Some((_, expired)) = expired.first() {
                    self.ready = Ready::Unknown;
                    return Some((self.now, *expired));
                }
            }
            None
        }
    }

    #[test]
    fn a_silent_cluster_expires_after_the_grace() {
        let mut run = Run::new(Ready::True);
        assert_eq!(run.until(100, true, true), None, "it renews");
        assert_eq!(
            run.until(300, true, false),
            Some((145, Expired::Stopped)),
            "40 s after the last renewal at 100"
        );
        assert_eq!(run.until(600, true, false), None, "said once");
    }

    #[test]
    fn a_fresh_monitor_gives_the_startup_grace() {
        let mut run = Run::new(Ready::True);
        assert_eq!(run.until(300, true, false), Some((70, Expired::Stopped)), "60 s after it was seen at 5");
        let mut run = Run::new(Ready::False);
        run.renew();
        assert_eq!(
            run.until(300, true, false),
            Some((65, Expired::Stopped)),
            "a Lease that was there is no sign"
        );
    }

    #[test]
    fn a_cluster_that_never_reported_gets_the_startup_grace_from_its_birth() {
        let mut run = Run::new(Ready::Never);
        run.now = 100;
        run.monitor.restart(at(100));
        run.now = 200;
        run.monitor.restart(at(130));
        run.monitor.last = at(200);
        assert_eq!(run.until(400, true, false), Some((270, Expired::Never)), "first seen at 205");
    }

    #[test]
    fn the_same_renew_time_is_no_sign_and_a_smaller_one_is() {
        let mut run = Run::new(Ready::True);
        assert_eq!(run.until(100, true, true), None);
        for _ in 0..5 {
            run.monitor.renewed("m", "t100", at(120));
        }
        assert_eq!(run.until(300, true, false).map(|(t, _)| t), Some(145));

        let mut run = Run::new(Ready::True);
        assert_eq!(run.until(100, true, true), None);
        run.monitor.renewed("m", "t1", at(120));
        assert_eq!(run.until(300, true, false).map(|(t, _)| t), Some(165));
    }

    #[test]
    fn a_late_tick_a_sleep_and_a_new_term_give_everybody_time() {
        let mut run = Run::new(Ready::True);
        run.until(100, true, true);
        run.now = 150;
        assert_eq!(run.until(400, true, false).map(|(t, _)| t), Some(220), "the tick at 155 came 55 s late");

        let mut run = Run::new(Ready::True);
        run.until(100, true, true);
        // The machine slept for an hour; the monotonic clock did not notice.
        let woken = Moment { monotonic: Duration::from_secs(105), wall: Duration::from_secs(1_003_705) };
        assert!(run.monitor.tick(woken, true, [("m", Ready::True)]).is_empty());
        assert_eq!(run.monitor.grace_until, Duration::from_secs(165));

        let mut run = Run::new(Ready::True);
        run.until(100, true, true);
        run.monitor.restart(at(100));
        assert_eq!(run.until(400, true, false).map(|(t, _)| t), Some(165));
    }

    #[test]
    fn nobody_is_judged_by_a_broken_watch() {
        let mut run = Run::new(Ready::True);
        run.until(100, true, true);
        assert_eq!(run.until(400, false, false), None, "blind");
        assert_eq!(
            run.until(700, true, false).map(|(t, _)| t),
            Some(470),
            "60 s after 405, when it could see again"
        );
        let mut run = Run::new(Ready::True);
        run.until(100, true, true);
        assert!(run.monitor.tick(at(105), false, [("m", Ready::True)]).is_empty());
        run.now = 105;
        assert_eq!(run.until(400, true, true), None);
    }

    #[test]
    fn deleted_clusters_are_forgotten() {
        let mut monitor = Monitor::new(Settings::default(), at(0));
        monitor.renewed("gone", "t", at(1));
        monitor.tick(at(5), true, [("m", Ready::True)]);
        assert!(!monitor.clusters.contains_key("gone"));
    }

    #[test]
    fn conditions_read_as_they_stand() {
        assert_eq!(Ready::from_status(None), Ready::Never);
        assert_eq!(Ready::from_status(Some("True")), Ready::True);
        assert_eq!(Ready::from_status(Some("Unknown")), Ready::Unknown);
    }

    proptest! {
        /// Whatever the hub goes through, a cluster that renews within the grace is never judged.
        #[test]
        fn who_renews_lives(steps in prop::collection::vec((1u64..40, any::<bool>(), 0u64..3), 1..60)) {
            let mut monitor = Monitor::new(Settings::default(), at(0));
            let (mut now, mut watching) = (0, true);
            for (i, (seconds, flips, ticks)) in steps.into_iter().enumerate() {
                now += seconds;
                watching ^= flips;
                if watching {
                    monitor.renewed("m", &format!("t{i}"), at(now));
                }
                for _ in 0..ticks {
                    prop_assert!(monitor.tick(at(now), watching, [("m", Ready::True)]).is_empty(), "at {now}");
                }
            }
        }

        /// And one that falls silent is found within the grace and a period, once the hub has seen long enough.
        #[test]
        fn who_is_silent_is_found(renewals in 7u64..30, offset in 0u64..5) {
            let mut run = Run::new(Ready::True);
            run.until(renewals * 10, true, true);
            run.monitor.renewed("m", "last", at(run.now + offset));
            let silent_since = run.now + offset;
            let (found, how) = run.until(silent_since + 300, true, false).expect("it is found");
            prop_assert_eq!(how, Expired::Stopped);
            prop_assert!((silent_since + 40..=silent_since + 45).contains(&found), "{silent_since} {found}");
        }
    }
}
