//! How many replicas a metric asks for: Karmada's arithmetic, on sums that clusters report.
//!
//! ```text
//!   reports of clusters ─▶ Sums: Pods that are ready, unready, missing ─▶ ratio of use to target ─▶ replicas
//!   clusters that are silent ─▶ their replicas are missing Pods ──┘
//! ```
//!
//! Amounts are in thousandths. A Pod is missing that nobody has measured: it takes the whole of what it may take where the rest
//! would ask for less, and nothing where the rest would ask for more. So what is not known never scales down.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Pods of one class. What is nothing is left out where it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pods {
    /// How many.
    #[serde(skip_serializing_if = "is_default")]
    pub pods: i64,
    /// What they use.
    #[serde(skip_serializing_if = "is_default")]
    pub usage: i64,
    /// What they ask for.
    #[serde(skip_serializing_if = "is_default")]
    pub requests: i64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl AddAssign for Pods {
    fn add_assign(&mut self, other: Self) {
        self.pods = self.pods.saturating_add(other.pods);
        self.usage = self.usage.saturating_add(other.usage);
        self.requests = self.requests.saturating_add(other.requests);
    }
}

/// What a metric says of a workload's Pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sums {
    /// Those that count.
    #[serde(skip_serializing_if = "is_default")]
    pub ready: Pods,
    /// Those that are not ready yet: what they use says nothing about what they will.
    #[serde(skip_serializing_if = "is_default")]
    pub unready: Pods,
    /// Those of which there is no sample.
    #[serde(skip_serializing_if = "is_default")]
    pub missing: Pods,
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.ready += other.ready;
        self.unready += other.unready;
        self.missing += other.missing;
    }
}

impl Pods {
    /// So many of them, with what they use and ask for in proportion.
    fn fewer(self, pods: i64) -> Self {
        let of = |amount: i64| if self.pods > 0 { part(amount, pods, self.pods) } else { 0 };
        Self { pods, usage: of(self.usage), requests: of(self.requests) }
    }
}

impl Sums {
    /// All of them.
    pub fn pods(&self) -> i64 {
        self.ready.pods.saturating_add(self.unready.pods).saturating_add(self.missing.pods)
    }

    /// So many at most, in proportion. While there is place for them, some are ready and some are missing if any are.
    pub fn within(self, most: i64) -> Self {
        let (all, most) = (self.pods(), most.max(0));
        if all <= most {
            return self;
        }
        // Rounded up.
        let share = |pods: i64| {
            let all = i128::from(all);
            i64::try_from((i128::from(pods) * i128::from(most) + all - 1) / all).unwrap_or(i64::MAX)
        };
        let ready = i64::from(self.ready.pods > 0);
        let missing = share(self.missing.pods).min((most - ready).max(0));
        let ready = share(self.ready.pods).min(most - missing);
        let unready = share(self.unready.pods).min(most - missing - ready);
        Self {
            ready: self.ready.fewer(ready),
            unready: self.unready.fewer(unready),
            missing: self.missing.fewer(missing),
        }
    }
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// So many percent of what Pods ask for.
    Utilization(i64),
    /// So much for each Pod.
    Average(i64),
}

/// How far what is used may be from its target, as a part of that, before anything is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Above it.
    pub up: f64,
    /// Below it.
    pub down: f64,
}

/// What holds of all metrics of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The template's replicas.
    pub current: i64,
    /// How many run for each of the template's: 3 where all of three clusters have all of them.
    pub calibration: f64,
    /// So far from the target nothing is done.
    pub tolerance: Tolerance,
}

/// Replicas that a metric asks for, and what it measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// How many.
    pub replicas: i64,
    /// Percent, or an amount for each Pod.
    pub measured: i64,
}

/// The clusters' replicas for each of the template's.
pub fn calibration(members: i64, template: i64) -> f64 {
    if members <= 0 || template <= 0 { 1.0 } else { members as f64 / template as f64 }
}

impl Scale {
    fn is_near(&self, ratio: f64) -> bool {
        if ratio > 1.0 { ratio - 1.0 <= self.tolerance.up } else { 1.0 - ratio <= self.tolerance.down }
    }

    fn replicas(&self, amount: f64) -> i64 {
        // A sum of many whole numbers is exact; what it is divided by is not.
        let replicas = amount / self.calibration;
        let whole = replicas.round();
        if (replicas - whole).abs() < 1e-9 { whole as i64 } else { replicas.ceil() as i64 }
    }

    /// By what the Pods use.
    ///
    /// # Errors
    /// When that says nothing.
    pub fn by_pods(&self, sums: &Sums, target: Target) -> Result<Proposal, String> {
        let mut counted = sums.ready;
        let (ratio, measured) = target.ratio(&counted)?;
        let up_with_unready = sums.unready.pods > 0 && ratio > 1.0;
        if !up_with_unready && sums.missing.pods == 0 {
            let replicas = match self.is_near(ratio) {
                true => self.current,
                false => self.replicas(ratio * counted.pods as f64),
            };
            return Ok(Proposal { replicas, measured });
        }
        if sums.missing.pods > 0 && ratio != 1.0 {
            let usage = if ratio < 1.0 { target.whole(&sums.missing) } else { 0 };
            counted += Pods { usage, ..sums.missing };
        }
        if up_with_unready {
            counted += Pods { usage: 0, ..sums.unready };
        }
        let (anew, _) = target.ratio(&counted)?;
        let turned = (ratio < 1.0 && anew > 1.0) || (ratio > 1.0 && anew < 1.0);
        if self.is_near(anew) || turned {
            return Ok(Proposal { replicas: self.current, measured });
        }
        let replicas = self.replicas(anew * counted.pods as f64);
        let backwards = (anew < 1.0 && replicas > self.current) || (anew > 1.0 && replicas < self.current);
        Ok(Proposal { replicas: if backwards { self.current } else { replicas }, measured })
    }

    /// By one value that all Pods together are to keep at a target; `ready` of them run.
    ///
    /// # Errors
    /// When there is no target.
    pub fn by_value(&self, value: i64, target: i64, ready: i64) -> Result<Proposal, String> {
        let ratio = ratio(value, target)?;
        let replicas = match (self.current, self.is_near(ratio)) {
            (0, _) => ratio.ceil() as i64,
            (current, true) => current,
            (_, false) => self.replicas(ratio * ready as f64),
        };
        Ok(Proposal { replicas, measured: value })
    }

    /// By one value of which each of the Pods that run is to have a share; `running` of them do.
    ///
    /// # Errors
    /// When there is no target.
    pub fn by_average(&self, value: i64, target: i64, running: i64) -> Result<Proposal, String> {
        let share = ratio(value, target)?;
        let near = running > 0 && self.is_near(share / running as f64);
        let replicas = if near { self.current } else { self.replicas(share) };
        Ok(Proposal { replicas, measured: if running > 0 { value / running } else { value } })
    }
}

impl Target {
    /// What those Pods use of whom it is known: percent, or an amount for each.
    pub fn measured(self, ready: &Pods) -> Option<i64> {
        self.ratio(ready).ok().map(|(_, measured)| measured)
    }

    /// What is used for what is to be used, and what that is.
    fn ratio(self, counted: &Pods) -> Result<(f64, i64), String> {
        if counted.pods <= 0 {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        let (measured, target) = match self {
            Self::Utilization(percent) => {
                if counted.requests <= 0 {
                    return Err("no metrics returned matched known pods: they ask for nothing".to_owned());
                }
                (part(counted.usage, 100, counted.requests), percent)
            }
            Self::Average(amount) => (counted.usage / counted.pods, amount),
        };
        Ok((ratio(measured, target)?, measured))
    }

    /// What Pods take of which nobody knows, if that is to be no less than it may be.
    fn whole(self, pods: &Pods) -> i64 {
        match self {
            Self::Utilization(percent) => part(pods.requests, percent.max(100), 100),
            Self::Average(amount) => pods.pods.saturating_mul(amount),
        }
    }
}

/// A part of an amount, which may be bytes of thousands of Pods.
fn part(amount: i64, of: i64, whole: i64) -> i64 {
    let part = i128::from(amount) * i128::from(of) / i128::from(whole);
    i64::try_from(part).unwrap_or(i64::MAX)
}

fn ratio(measured: i64, target: i64) -> Result<f64, String> {
    if target <= 0 {
        Err("the target is not positive".to_owned())
    } else {
        Ok(measured as f64 / target as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(pods: i64, usage: i64, requests: i64) -> Pods {
        Pods { pods, usage, requests }
    }

    fn scale(current: i64, members: i64) -> Scale {
        let tolerance = Tolerance { up: 0.1, down: 0.1 };
        Scale { current, calibration: calibration(members, current), tolerance }
    }

    /// As Kubernetes' own tables have it (replica_calculator_test), and Karmada's for several clusters.
    #[test]
    fn replicas_follow_what_pods_use() {
        let u = Target::Utilization;
        // what, current, members', sums (ready, unready, missing), target, replicas
        let rows = [
            ("up", 3, 3, (pods(3, 300 + 500 + 700, 3000), pods(0, 0, 0), pods(0, 0, 0)), u(30), 5),
            ("up, one unready", 3, 3, (pods(2, 500 + 700, 2000), pods(1, 0, 1000), pods(0, 0, 0)), u(30), 4),
            ("up, two unready: not", 3, 3, (pods(1, 500, 1000), pods(2, 0, 2000), pods(0, 0, 0)), u(30), 3),
            (
                "down",
                5,
                5,
                (pods(5, 100 + 300 + 500 + 250 + 250, 5000), pods(0, 0, 0), pods(0, 0, 0)),
                u(50),
                3,
            ),
            (
                "down, unready do not matter",
                5,
                5,
                (pods(3, 100 + 300 + 500, 3000), pods(2, 0, 2000), pods(0, 0, 0)),
                u(50),
                2,
            ),
            (
                "near enough",
                3,
                3,
                (pods(3, 1010 + 1030 + 1020, 3000), pods(0, 0, 0), pods(0, 0, 0)),
                u(100),
                3,
            ),
            (
                "down, missing take all",
                5,
                5,
                (pods(3, 100 + 300 + 500, 3000), pods(0, 0, 0), pods(2, 0, 2000)),
                u(50),
                5,
            ),
            (
                "up, missing take nothing",
                3,
                3,
                (pods(2, 300 + 400, 600), pods(0, 0, 0), pods(1, 0, 300)),
                u(30),
                3 + 5,
            ),
            ("missing turn it: not", 3, 3, (pods(2, 400, 2000), pods(0, 0, 0), pods(1, 0, 1000)), u(30), 3),
            ("a target above all", 2, 2, (pods(1, 900, 1000), pods(0, 0, 0), pods(1, 0, 1000)), u(150), 2),
            // Three clusters have all of it each.
            ("duplicated, up", 2, 6, (pods(6, 6 * 600, 6000), pods(0, 0, 0), pods(0, 0, 0)), u(30), 4),
            ("duplicated, down", 4, 12, (pods(12, 12 * 150, 12_000), pods(0, 0, 0), pods(0, 0, 0)), u(30), 2),
            // Divided, and one of two clusters is silent with half of the replicas.
            ("silent: never down", 4, 4, (pods(2, 20, 2000), pods(0, 0, 0), pods(2, 0, 2000)), u(60), 4),
            ("silent, and up", 4, 4, (pods(2, 2 * 1500, 2000), pods(0, 0, 0), pods(2, 0, 2000)), u(50), 6),
            (
                "by values, up",
                3,
                3,
                (pods(3, 20_000 + 10_000 + 30_000, 0), pods(0, 0, 0), pods(0, 0, 0)),
                Target::Average(15_000),
                4,
            ),
            (
                "by values, down",
                5,
                5,
                (pods(5, 5 * 12_000, 0), pods(0, 0, 0), pods(0, 0, 0)),
                Target::Average(20_000),
                3,
            ),
            (
                "by values, missing at the target",
                5,
                5,
                (pods(3, 3 * 12_000, 0), pods(0, 0, 0), pods(2, 0, 0)),
                Target::Average(20_000),
                4,
            ),
        ];
        for (what, current, members, (ready, unready, missing), target, want) in rows {
            let found = scale(current, members).by_pods(&Sums { ready, unready, missing }, target);
            assert_eq!(found.map(|proposal| proposal.replicas), Ok(want), "{what}");
        }
        let none = scale(3, 3).by_pods(&Sums { missing: pods(3, 0, 3000), ..Sums::default() }, u(50));
        assert!(none.unwrap_err().contains("did not receive metrics"));
        assert!(scale(3, 3).by_pods(&Sums { ready: pods(3, 9, 0), ..Sums::default() }, u(50)).is_err());
    }

    #[test]
    fn replicas_follow_a_value() {
        assert_eq!(scale(3, 3).by_value(20_000, 15_000, 3), Ok(Proposal { replicas: 4, measured: 20_000 }));
        assert_eq!(scale(3, 3).by_value(15_100, 15_000, 3).unwrap().replicas, 3);
        assert_eq!(scale(2, 6).by_value(30_000, 15_000, 6).unwrap().replicas, 4, "on three clusters");
        assert_eq!(scale(5, 5).by_average(60_000, 20_000, 5), Ok(Proposal { replicas: 3, measured: 12_000 }));
        assert_eq!(scale(3, 3).by_average(61_000, 20_000, 3).unwrap().replicas, 3);
        assert_eq!(scale(2, 6).by_average(240_000, 20_000, 6).unwrap().replicas, 4);
        assert!(scale(3, 3).by_value(1, 0, 3).is_err());
    }

    /// What is not known is never a reason to have less.
    #[test]
    fn silence_never_scales_down() {
        for used in (0..2000).step_by(37) {
            for silent in 1..6 {
                let (heard, template) = (4, 4 + silent);
                let requests = 1000;
                let all = Sums {
                    ready: pods(heard, heard * used, heard * requests),
                    missing: pods(silent, 0, silent * requests),
                    ..Sums::default()
                };
                for percent in [30, 80, 100, 150] {
                    let found = scale(template, template)
                        .by_pods(&all, Target::Utilization(percent))
                        .unwrap()
                        .replicas;
                    let if_busy = Sums {
                        ready: pods(
                            template,
                            heard * used + silent * requests * percent.max(100) / 100,
                            template * requests,
                        ),
                        ..Sums::default()
                    };
                    let worst = scale(template, template)
                        .by_pods(&if_busy, Target::Utilization(percent))
                        .unwrap()
                        .replicas;
                    assert!(found >= worst.min(template), "{used} {silent} {percent}: {found} < {worst}");
                }
            }
        }
    }
}
