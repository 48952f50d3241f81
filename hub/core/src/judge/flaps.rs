//! Clusters that come and go: held out of new scheduling for a while.
//!
//! A *loss* is a Ready condition that the monitor made Unknown; what the hub itself missed is none, and a mass outage
//! is nobody's loss in particular. The third loss within half an hour means that a cluster is held out once it is back,
//! for five minutes; each further loss that makes three within half an hour doubles that, up to two hours. Each half
//! hour without a loss after the hold takes one doubling back. What runs on the cluster stays there.
//!
//! The hold is a taint (`cluster.karmada.io/flapping:NoSchedule`), so that `kubectl describe` shows it, tolerations
//! lift it and any scheduler respects it. Times and numbers are the `--cluster-flap-*` flags of `serve`.
//!
#![doc = include_str!("flaps.md")]

use std::{collections::VecDeque, time::Duration};

use karmada_api::{
    cluster::Taint,
    consts::{extension::FLAPPING, taint::NO_SCHEDULE},
};
use karmada_meta::time::Time;

/// When a cluster is held out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// So many losses (`--cluster-flap-losses`; 0: never).
    pub losses: usize,
    /// Within this time (`--cluster-flap-window`).
    pub window: Duration,
    /// The first hold (`--cluster-flap-hold`).
    pub first: Duration,
    /// The longest (`--cluster-flap-max-hold`).
    pub most: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            losses: 3,
            window: Duration::from_secs(30 * 60),
            first: Duration::from_secs(5 * 60),
            most: Duration::from_secs(2 * 3600),
        }
    }
}

impl Settings {
    /// How long the hold of a level lasts.
    fn hold(&self, level: u32) -> Duration {
        let times = 1_u32.checked_shl(level).unwrap_or(u32::MAX);
        self.first.checked_mul(times).unwrap_or(self.most).min(self.most)
    }

    /// The level from which on a hold grows no longer.
    fn highest(&self) -> u32 {
        (0..u32::BITS).find(|level| self.hold(*level) >= self.most).unwrap_or(u32::BITS)
    }
}

/// What is remembered of one cluster's comings and goings. Times are monotonic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flaps {
    /// The last losses, the oldest first; as many as it takes.
    losses: VecDeque<Loss>,
    /// Doublings so far.
    level: u32,
    /// The present or the last hold.
    held_until: Option<Duration>,
    /// It is to be held out once it is back.
    due: bool,
    /// Since when it has been good, as far as that has not been rewarded.
    good_since: Duration,
}

/// What is known of a cluster from another hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Doublings so far.
    pub level: u32,
    /// What is left of the present hold.
    pub left: Duration,
    /// How long ago it was lost each time, the oldest first.
    pub losses: Vec<Duration>,
}

/// One loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loss {
    /// When this hub noted it.
    at: Duration,
    /// How long ago it was then: another hub had noted it.
    ago: Duration,
}

impl Loss {
    fn age(self, now: Duration) -> Duration {
        now.saturating_sub(self.at) + self.ago
    }
}

impl Flaps {
    /// The cluster was lost.
    pub fn lost(&mut self, now: Duration, settings: &Settings) {
        self.decay(now, settings);
        if settings.losses == 0 {
            return;
        }
        self.losses.push_back(Loss { at: now, ago: Duration::ZERO });
        while self.losses.len() > settings.losses {
            self.losses.pop_front();
        }
        self.due = self.is_too_often(now, settings);
        self.good_since = now;
    }

    fn is_too_often(&self, now: Duration, settings: &Settings) -> bool {
        settings.losses > 0 && self.recent(now, settings) >= settings.losses
    }

    /// It is back.
    pub fn back(&mut self, now: Duration, settings: &Settings) {
        self.good_since = self.good_since.max(now);
        if std::mem::take(&mut self.due) {
            let until = now + settings.hold(self.level);
            self.held_until = Some(self.held_until.map_or(until, |before| before.max(until)));
            self.level = (self.level + 1).min(settings.highest());
            self.good_since = until;
        }
    }

    /// Losses since then were not the cluster's own.
    pub fn forgive(&mut self, since: Duration) {
        let before = self.losses.len();
        self.losses.retain(|loss| loss.at < since || !loss.ago.is_zero());
        self.due &= self.losses.len() == before;
    }

    /// Until when it is held out.
    pub fn held_until(&self, now: Duration) -> Option<Duration> {
        self.held_until.filter(|until| *until > now)
    }

    /// How many losses count at present.
    pub fn recent(&self, now: Duration, settings: &Settings) -> usize {
        self.ages(now, settings).count()
    }

    /// How long ago each of them was.
    pub fn ages(&self, now: Duration, settings: &Settings) -> impl Iterator<Item = Duration> {
        let window = settings.window;
        self.losses.iter().map(move |loss| loss.age(now)).filter(move |age| *age <= window)
    }

    /// The doublings that the next hold would have.
    pub fn level(&mut self, now: Duration, settings: &Settings) -> u32 {
        self.decay(now, settings);
        self.level
    }

    /// What another hub knew: how many doublings, how much of a hold was left, and how long ago losses were, the oldest
    /// first. `lost`: the cluster has not been back since the last.
    pub fn recall(&mut self, known: &Known, lost: bool, now: Duration, settings: &Settings) {
        let Known { level, left, losses } = known;
        self.level = (*level).min(settings.highest());
        let newest = losses.len().saturating_sub(settings.losses);
        self.losses = losses.iter().skip(newest).map(|ago| Loss { at: now, ago: *ago }).collect();
        self.due = lost && self.is_too_often(now, settings);
        self.held_until = (!left.is_zero()).then(|| now + (*left).min(settings.most));
        self.good_since = self.held_until.unwrap_or(now);
    }

    /// Nothing is to be remembered.
    pub fn is_clean(&self) -> bool {
        self.losses.is_empty() && self.level == 0 && self.held_until.is_none()
    }

    fn decay(&mut self, now: Duration, settings: &Settings) {
        let good = now.saturating_sub(self.good_since);
        let whole = good.as_millis().checked_div(settings.window.as_millis()).unwrap_or(0);
        let whole = u32::try_from(whole).unwrap_or(u32::MAX);
        self.level = self.level.saturating_sub(whole);
        self.good_since += settings.window.saturating_mul(whole);
    }
}

/// The taints that a cluster should have, or `None` if it has them: the hold's own while it is held out.
pub fn taints(taints: &[Taint], held: bool, now: Time) -> Option<Vec<Taint>> {
    let ours = |taint: &Taint| taint.effect == NO_SCHEDULE && taint.key == FLAPPING;
    if taints.iter().any(ours) == held {
        return None;
    }
    let mut result: Vec<_> = taints.iter().filter(|taint| !ours(taint)).cloned().collect();
    if held {
        result.push(Taint { time_added: Some(now), ..Taint::new(FLAPPING, NO_SCHEDULE) });
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::table;

    fn minutes(number: u64) -> Duration {
        Duration::from_secs(60 * number)
    }

    #[test]
    fn the_table_holds() {
        let settings = Settings::default();
        for [history, asked, want] in table::rows(include_str!("flaps.md")) {
            let (mut flaps, mut lost) = (Flaps::default(), false);
            for event in history.split_whitespace() {
                let (sign, at) = event.split_at(1);
                lost = sign == "-";
                let at = minutes(at.parse().unwrap());
                if lost { flaps.lost(at, &settings) } else { flaps.back(at, &settings) }
            }
            let got = match flaps.held_until(minutes(asked.parse().unwrap())) {
                _ if lost => "lost".to_owned(),
                Some(until) => format!("held until {}", until.as_secs() / 60),
                None => "free".to_owned(),
            };
            assert_eq!(got, want, "{history}");
        }
    }

    #[test]
    fn good_behaviour_takes_doublings_back() {
        let (settings, mut flaps) = (Settings::default(), Flaps::default());
        let known = Known { level: 5, left: minutes(10), losses: Vec::new() };
        flaps.recall(&known, false, minutes(0), &settings);
        for (at, level) in [(0, 5), (39, 5), (40, 4), (70, 3), (160, 0), (1000, 0)] {
            assert_eq!(flaps.level(minutes(at), &settings), level, "after {at} minutes");
        }
    }

    #[test]
    fn losses_count_under_the_next_hub() {
        let settings = Settings::default();
        // (minutes ago, whether it is lost now, the next loss if there is one) → when it is held from minute 2 on
        let rows: [(&[u64], bool, Option<u64>, Option<u64>); 5] = [
            (&[20, 10, 1], true, None, Some(7)),
            (&[20, 10, 1], false, None, None),
            (&[20, 10], false, Some(1), Some(7)),
            (&[29, 10], false, Some(1), Some(7)),
            (&[40, 10], false, Some(1), None),
        ];
        for (ago, lost, next, want) in rows {
            let mut flaps = Flaps::default();
            let losses = ago.iter().copied().map(minutes).collect();
            flaps.recall(&Known { losses, ..Known::default() }, lost, Duration::ZERO, &settings);
            next.into_iter().for_each(|at| flaps.lost(minutes(at), &settings));
            flaps.back(minutes(2), &settings);
            assert_eq!(flaps.held_until(minutes(2)), want.map(minutes), "{ago:?} {lost} {next:?}");
        }
    }

    #[test]
    fn what_was_everybodys_is_forgiven() {
        let (settings, mut flaps) = (Settings::default(), Flaps::default());
        for at in [0, 5, 10] {
            flaps.back(minutes(at), &settings);
            flaps.lost(minutes(at), &settings);
        }
        flaps.forgive(minutes(10));
        flaps.back(minutes(11), &settings);
        assert_eq!(flaps.held_until(minutes(11)), None);
        assert_eq!(flaps.recent(minutes(11), &settings), 2);
    }

    #[test]
    fn the_taint_comes_and_goes_and_leaves_others_alone() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let users = Taint::new("mine", NO_SCHEDULE);
        let held = taints(std::slice::from_ref(&users), true, now).unwrap();
        assert_eq!(held.len(), 2);
        assert_eq!(taints(&held, true, now), None);
        assert_eq!(taints(&held, false, now), Some(vec![users.clone()]));
        assert_eq!(taints(&[users], false, now), None);
    }
}
