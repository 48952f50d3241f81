//! How fast replicas may follow what metrics ask for: Kubernetes' stabilisation and policies, as Karmada has them.
//!
//! ```text
//!   desired ─ stabilised: neither below what was asked for lately, nor above ─▶ limited by policies ─▶ within min and max
//! ```

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

/// How replicas may change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Behavior {
    /// Upwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<Rules>,
    /// Downwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<Rules>,
}

/// How replicas may change in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rules {
    /// For so long what was asked for counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stabilization_window_seconds: Option<i32>,
    /// Max, Min or Disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select_policy: Option<String>,
    /// By how much they may change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Policy>,
    /// So far from the target nothing is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<serde_json::Value>,
}

/// By how much replicas may change in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// Pods or Percent.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many.
    pub value: i32,
    /// In how long.
    pub period_seconds: i32,
}

/// The bounds of a FederatedHPA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least so many.
    pub min: i64,
    /// At most so many.
    pub max: i64,
}

/// Why replicas are not what metrics ask for: the reason and message of a condition.
pub type Why = (&'static str, &'static str);

/// What was asked for and done lately. It is in memory, as Karmada's; who begins anew with something that was scaled before does
/// not know it, and takes nothing away on the strength of that: see [`History::resume`].
#[derive(Clone, Debug, Default)]
pub struct History {
    asked: VecDeque<(Duration, i64)>,
    /// What there was while nobody knew what to ask for.
    held: VecDeque<(Duration, i64)>,
    /// When, and by how much.
    up: VecDeque<(Duration, i64)>,
    down: VecDeque<(Duration, i64)>,
    /// What was done before is not known.
    resumed: Option<Resumed>,
}

/// From when on a history is known.
#[derive(Clone, Copy, Debug)]
struct Resumed {
    at: Duration,
    /// How long before that replicas were changed last.
    since_scaled: Duration,
}

/// For so long after a begin it may not be known yet that a cluster is silent.
pub const BEGINS: Duration = Duration::from_secs(90);

/// Nothing older counts for anybody.
const LONGEST: Duration = Duration::from_secs(3600);

/// What comes of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The replicas.
    pub replicas: i64,
    /// What AbleToScale says.
    pub able: Why,
    /// What ScalingLimited says, and whether it is so.
    pub limited: (bool, Why),
}

const READY: Why = ("ReadyForNewScale", "recommended size matches current size");
const WITHIN: Why = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FEW: Why = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: Why = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const UP_LIMIT: Why =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: Why =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

impl History {
    /// One of something that has so many replicas, which another process may have scaled: `since_scaled` ago, if it is known to
    /// have been. That they are so many counts as asked for now, as Kubernetes has it. So nothing is scaled down sooner than
    /// if that process had gone on: not within the window, and as if before the begin all had been done that policies allow.
    pub fn resume(now: Duration, current: i64, since_scaled: Option<Duration>) -> Self {
        let resumed = since_scaled.map(|since_scaled| Resumed { at: now, since_scaled });
        Self { asked: [(now, current)].into(), resumed, ..Self::default() }
    }

    /// Whether a change before the begin, of unknown size, may lie within this time.
    fn may_have_scaled(&self, now: Duration, period: Duration) -> bool {
        self.resumed.is_some_and(|Resumed { at, since_scaled }| {
            now.saturating_sub(at).saturating_add(since_scaled) < period
        })
    }

    /// Whether it is too soon to take anything away.
    fn is_beginning(&self, now: Duration) -> bool {
        self.resumed.is_some_and(|resumed| now.saturating_sub(resumed.at) < BEGINS)
    }

    /// Replicas were changed.
    pub fn scaled(&mut self, now: Duration, from: i64, to: i64) {
        let (list, by) = if to > from { (&mut self.up, to - from) } else { (&mut self.down, from - to) };
        list.push_back((now, by));
        forget(list, now);
    }

    /// So many are asked for.
    pub fn ask(&mut self, now: Duration, replicas: i64) {
        self.asked.push_back((now, replicas));
        forget(&mut self.asked, now);
    }

    /// Nobody knows what metrics would ask for, and so many there are. Fewer are not asked for by that, so a silence does not empty
    /// the window of scaling down; nor does it hold up what metrics ask for before and after it.
    pub fn hold(&mut self, now: Duration, current: i64) {
        self.held.push_back((now, current));
        forget(&mut self.held, now);
    }

    /// Nobody has looked for longer than `pause`: what metrics asked for meanwhile is not known.
    pub fn resumes(&mut self, now: Duration, current: i64, pause: Duration) {
        let last = [&self.asked, &self.held].into_iter().filter_map(VecDeque::back).map(|(at, _)| *at).max();
        if last.is_some_and(|at| now.saturating_sub(at) > pause) {
            self.hold(now, current);
        }
    }

    fn lately(
        list: &VecDeque<(Duration, i64)>,
        now: Duration,
        window: Duration,
    ) -> impl Iterator<Item = i64> + '_ {
        list.iter().filter(move |(at, _)| now.saturating_sub(*at) < window || *at == now).map(|(_, n)| *n)
    }

    /// The fewest that were asked for within a window.
    fn lowest(&self, now: Duration, window: Duration) -> Option<i64> {
        Self::lately(&self.asked, now, window).min()
    }

    /// The most that were asked for within a window, or were there.
    fn highest(&self, now: Duration, window: Duration) -> Option<i64> {
        Self::lately(&self.asked, now, window).chain(Self::lately(&self.held, now, window)).max()
    }

    fn within(list: &VecDeque<(Duration, i64)>, now: Duration, period: i32) -> i64 {
        let period = seconds(period);
        list.iter().filter(|(at, _)| now.saturating_sub(*at) < period).map(|(_, by)| by).sum()
    }

    /// What comes of a wish at a moment of a clock that only goes forward. `window` is that of scaling down where nothing is said
    /// about it.
    pub fn decide(
        &mut self,
        now: Duration,
        behavior: Option<&Behavior>,
        window: Duration,
        bounds: Bounds,
        (current, desired): (i64, i64),
    ) -> Outcome {
        self.ask(now, desired);
        let desired = if self.is_beginning(now) { desired.max(current) } else { desired };
        match behavior {
            None => self.without_behavior(now, window, bounds, current, desired),
            Some(behavior) => self.with_behavior(now, behavior, window, bounds, current, desired),
        }
    }

    fn without_behavior(
        &self,
        now: Duration,
        window: Duration,
        bounds: Bounds,
        current: i64,
        desired: i64,
    ) -> Outcome {
        let highest = self.highest(now, window).unwrap_or(desired).max(desired);
        let able = match highest != desired {
            true => (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ),
            false => READY,
        };
        let limit = (2 * current).max(4);
        let most = bounds.max.min(limit);
        let (replicas, limited) = if highest < bounds.min {
            (bounds.min, (true, TOO_FEW))
        } else if highest > most {
            (most, (true, if bounds.max > limit { UP_LIMIT } else { TOO_MANY }))
        } else {
            (highest, (false, WITHIN))
        };
        Outcome { replicas, able, limited }
    }

    fn with_behavior(
        &self,
        now: Duration,
        behavior: &Behavior,
        window: Duration,
        bounds: Bounds,
        current: i64,
        desired: i64,
    ) -> Outcome {
        let none = Rules::default();
        let (up, down) =
            (behavior.scale_up.as_ref().unwrap_or(&none), behavior.scale_down.as_ref().unwrap_or(&none));
        let window_of =
            |rules: &Rules, default: Duration| rules.stabilization_window_seconds.map_or(default, seconds);
        let lowest = self.lowest(now, window_of(up, Duration::ZERO)).unwrap_or(desired).min(desired);
        let highest = self.highest(now, window_of(down, window)).unwrap_or(desired).max(desired);
        let stable = current.max(lowest).min(highest);
        let able = if stable == desired {
            READY
        } else if desired >= current {
            (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            )
        } else {
            (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            )
        };
        let (replicas, limited) = if stable > current {
            let limit = self.up_limit(now, up, current).max(current);
            let most = bounds.max.min(limit);
            match stable > most {
                true => (most, (true, if bounds.max > limit { UP_LIMIT } else { TOO_MANY })),
                false => (stable, (false, WITHIN)),
            }
        } else if stable < current {
            let limit = self.down_limit(now, down, current).min(current);
            let least = bounds.min.max(limit);
            match stable < least {
                true => (least, (true, if bounds.min < limit { DOWN_LIMIT } else { TOO_FEW })),
                false => (stable, (false, WITHIN)),
            }
        } else {
            (stable, (false, WITHIN))
        };
        Outcome { replicas, able, limited }
    }

    fn up_limit(&self, now: Duration, rules: &Rules, current: i64) -> i64 {
        let limits = rules.policies.iter().map(|policy| {
            let (added, removed) = (
                Self::within(&self.up, now, policy.period_seconds),
                Self::within(&self.down, now, policy.period_seconds),
            );
            let begin = current - added + removed;
            match policy.kind.as_str() {
                "Percent" => (begin as f64 * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i64,
                _ => begin + i64::from(policy.value),
            }
        });
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => limits.min().unwrap_or(i64::MAX),
            _ => limits.max().unwrap_or(i64::MAX),
        }
    }

    fn down_limit(&self, now: Duration, rules: &Rules, current: i64) -> i64 {
        let limits = rules.policies.iter().map(|policy| {
            let (added, removed) = (
                Self::within(&self.up, now, policy.period_seconds),
                Self::within(&self.down, now, policy.period_seconds),
            );
            let begin = current - added + removed;
            if self.may_have_scaled(now, seconds(policy.period_seconds)) {
                return current;
            }
            match policy.kind.as_str() {
                "Percent" => (begin as f64 * (1.0 - f64::from(policy.value) / 100.0)) as i64,
                _ => begin - i64::from(policy.value),
            }
        });
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            // The largest change leaves the fewest.
            Some("Min") => limits.max().unwrap_or(i64::MIN),
            _ => limits.min().unwrap_or(i64::MIN),
        }
    }
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn forget(list: &mut VecDeque<(Duration, i64)>, now: Duration) {
    while list.front().is_some_and(|(at, _)| now.saturating_sub(*at) > LONGEST) {
        list.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const WINDOW: Duration = Duration::from_secs(300);
    const BOUNDS: Bounds = Bounds { min: 1, max: 100 };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(10_000 + seconds)
    }

    fn behavior(value: Value) -> Behavior {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_silence_holds_up_nothing_that_is_asked_for_before_and_after_it() {
        let at = Duration::from_secs;
        let behavior: Behavior =
            serde_json::from_value(serde_json::json!({"scaleUp": {"stabilizationWindowSeconds": 300}}))
                .unwrap();
        for (what, asked, replicas) in [("known", true, 10), ("silent", false, 20)] {
            let mut history = History::default();
            for seconds in (0..300).step_by(15) {
                match (seconds, asked) {
                    (150, false) => history.hold(at(seconds), 10),
                    (150, true) => history.ask(at(seconds), 10),
                    _ => history.ask(at(seconds), 20),
                }
            }
            let bounds = Bounds { min: 1, max: 100 };
            let outcome = history.decide(at(300), Some(&behavior), at(300), bounds, (10, 20));
            assert_eq!(outcome.replicas, replicas, "{what}");
        }
    }

    #[test]
    fn without_behavior_it_is_kubernetes_first_arithmetic() {
        let mut history = History::default();
        let mut decide = |seconds: u64, current: i64, desired: i64, bounds: Bounds| {
            let outcome = history.decide(at(seconds), None, WINDOW, bounds, (current, desired));
            (outcome.replicas, outcome.able.0, outcome.limited.1.0)
        };
        assert_eq!(decide(0, 10, 12, BOUNDS), (12, "ReadyForNewScale", "DesiredWithinRange"));
        assert_eq!(decide(15, 12, 3, BOUNDS), (12, "ScaleDownStabilized", "DesiredWithinRange"));
        assert_eq!(decide(299, 12, 3, BOUNDS), (12, "ScaleDownStabilized", "DesiredWithinRange"));
        assert_eq!(decide(301, 12, 3, BOUNDS), (3, "ReadyForNewScale", "DesiredWithinRange"));
        assert_eq!(decide(2000, 1, 9, BOUNDS), (4, "ReadyForNewScale", "ScaleUpLimit"));
        assert_eq!(decide(4000, 10, 50, BOUNDS), (20, "ReadyForNewScale", "ScaleUpLimit"));
        assert_eq!(
            decide(6000, 10, 50, Bounds { min: 1, max: 15 }),
            (15, "ReadyForNewScale", "TooManyReplicas")
        );
        assert_eq!(
            decide(8000, 10, 0, Bounds { min: 2, max: 15 }),
            (2, "ReadyForNewScale", "TooFewReplicas")
        );
    }

    #[test]
    fn windows_hold_in_both_directions() {
        let behavior = behavior(
            json!({"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 120}}),
        );
        let mut history = History::default();
        let mut decide = |seconds: u64, current: i64, desired: i64| {
            let outcome = history.decide(at(seconds), Some(&behavior), WINDOW, BOUNDS, (current, desired));
            (outcome.replicas, outcome.able.0)
        };
        assert_eq!(decide(0, 5, 5), (5, "ReadyForNewScale"));
        assert_eq!(decide(15, 5, 9), (5, "ScaleUpStabilized"));
        assert_eq!(decide(59, 5, 9), (5, "ScaleUpStabilized"));
        assert_eq!(decide(61, 5, 8), (8, "ReadyForNewScale"));
        assert_eq!(decide(90, 8, 2), (8, "ScaleDownStabilized"));
        assert_eq!(decide(182, 8, 2), (2, "ReadyForNewScale"));
    }

    #[test]
    fn policies_limit_how_fast_it_goes() {
        let policies = |select: &str| {
            let rules = json!({"selectPolicy": select, "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 100, "periodSeconds": 60}]});
            behavior(
                json!({"scaleUp": rules, "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 15, "periodSeconds": 60}]}}),
            )
        };
        // (selected, current, desired, changed within the minute, replicas, why)
        let rows = [
            ("Max", 10, 50, 0, 20, "ScaleUpLimit"),
            ("Min", 10, 50, 0, 14, "ScaleUpLimit"),
            ("Disabled", 10, 50, 0, 10, "ScaleUpLimit"),
            ("Max", 2, 50, 0, 6, "ScaleUpLimit"),
            ("Max", 20, 50, 10, 20, "ScaleUpLimit"),
            ("Max", 18, 50, 8, 20, "ScaleUpLimit"),
            ("Max", 40, 5, 0, 34, "ScaleDownLimit"),
            ("Min", 40, 5, 0, 36, "ScaleDownLimit"),
            ("Disabled", 40, 5, 0, 40, "ScaleDownLimit"),
            ("Max", 36, 5, -4, 34, "ScaleDownLimit"),
            ("Max", 7, 5, 0, 5, "DesiredWithinRange"),
        ];
        for (select, current, desired, changed, want, why) in rows {
            let mut history = History::default();
            if changed != 0 {
                history.scaled(at(0), current - changed, current);
            }
            let outcome = history.decide(at(30), Some(&policies(select)), WINDOW, BOUNDS, (current, desired));
            assert_eq!(
                (outcome.replicas, outcome.limited.1.0),
                (want, why),
                "{select} {current} {desired} {changed}"
            );
        }
        // What was done longer ago does not count.
        let mut history = History::default();
        history.scaled(at(0), 10, 20);
        let outcome = history.decide(at(61), Some(&policies("Max")), WINDOW, BOUNDS, (20, 90));
        assert_eq!(outcome.replicas, 40);
        let few = Bounds { min: 3, max: 12 };
        let outcome = history.decide(at(200), Some(&policies("Max")), WINDOW, few, (10, 90));
        assert_eq!((outcome.replicas, outcome.limited.1.0), (12, "TooManyReplicas"));
        let outcome = history.decide(at(300), Some(&policies("Max")), WINDOW, few, (5, 1));
        assert_eq!((outcome.replicas, outcome.limited.1.0), (3, "TooFewReplicas"));
    }
    /// A process that begins anew takes nothing away sooner than the one before it would have.
    #[test]
    fn a_restart_takes_nothing_away_sooner() {
        let quick = behavior(json!({"scaleDown": {"stabilizationWindowSeconds": 0, "policies": [
            {"type": "Percent", "value": 10, "periodSeconds": 600}]}}));
        // (behaviour, seconds since it was scaled before the begin, seconds after it, replicas of 20 of which 2 are wanted)
        let rows = [
            (None, Some(3600), 0, 20),
            (None, Some(3600), 299, 20),
            (None, Some(3600), 301, 2),
            (None, None, 299, 20),
            (Some(&quick), Some(3600), 30, 20),
            (Some(&quick), Some(3600), 91, 18),
            (Some(&quick), Some(60), 91, 20),
            (Some(&quick), Some(60), 539, 20),
            (Some(&quick), Some(60), 541, 18),
            // Nobody has scaled it before: there is nothing that was forgotten.
            (Some(&quick), None, 1, 18),
        ];
        for (behavior, since, after, want) in rows {
            let since = since.map(Duration::from_secs);
            let mut history = History::resume(at(1000), 20, since);
            let outcome = history.decide(at(1000 + after), behavior, WINDOW, BOUNDS, (20, 2));
            assert_eq!(outcome.replicas, want, "{since:?} {after}");
        }
        let mut history = History::resume(at(1000), 20, Some(Duration::ZERO));
        assert_eq!(history.decide(at(1001), None, WINDOW, BOUNDS, (20, 30)).replicas, 30, "up at once");
    }
}
