//! Budgets: how many evictions one binding, and all of them together, may suffer within a minute.
//!
//! An eviction takes one cluster from one binding. `--eviction-budget-per-binding` (2) keeps a fleet that wobbles from
//! chasing one workload about; `--eviction-budget-per-minute` (100) bounds what a mistake can do before somebody looks.
//! 0 is any number. What has no budget waits its turn (`BindingBudget`, `MinuteBudget` in the binding's condition
//! `FailoverComplete`, in an event about it, and in the metric `karmada_hub_evictions_postponed_total`); nothing is
//! forgotten. Budget is spent before the eviction is written, so that no two share it, and given back if it is not.
//!
#![doc = include_str!("budget.md")]

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

/// The time that a budget is for.
const MINUTE: Duration = Duration::from_secs(60);

/// How many evictions there may be within a minute; 0 is any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of one binding (`--eviction-budget-per-binding`).
    pub per_binding: usize,
    /// Of all (`--eviction-budget-per-minute`).
    pub per_minute: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { per_binding: 2, per_minute: 100 }
    }
}

/// Which budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// The binding's.
    Binding,
    /// The hub's.
    Minute,
}

impl Spent {
    /// In one word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Binding => "BindingBudget",
            Self::Minute => "MinuteBudget",
        }
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binding => {
                "this object was evicted as often as it may be within a minute; it goes on by itself"
            }
            Self::Minute => {
                "there were as many evictions as there may be within a minute; it has its turn after them"
            }
        })
    }
}

/// The evictions of the last minute.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    all: VecDeque<Duration>,
    bindings: BTreeMap<String, VecDeque<Duration>>,
}

impl Budgets {
    /// Whether there is budget for one eviction of a binding: if not, which one is spent and how long to wait.
    ///
    /// # Errors
    /// When a budget is spent.
    pub fn check(
        &mut self,
        binding: &str,
        now: Duration,
        settings: &Settings,
    ) -> Result<(), (Spent, Duration)> {
        self.forget(now);
        let wait = |times: &VecDeque<Duration>, most: usize| {
            let full = most > 0 && times.len() >= most;
            full.then(|| {
                times.get(times.len() - most).map_or(MINUTE, |first| (*first + MINUTE).saturating_sub(now))
            })
        };
        if let Some(wait) = wait(&self.all, settings.per_minute) {
            return Err((Spent::Minute, wait));
        }
        let own = self.bindings.get(binding);
        if let Some(wait) = own.and_then(|own| wait(own, settings.per_binding)) {
            return Err((Spent::Binding, wait));
        }
        Ok(())
    }

    /// The eviction for which this was spent then has not begun after all.
    pub fn give_back(&mut self, binding: &str, at: Duration) {
        for times in self.bindings.get_mut(binding).into_iter().chain([&mut self.all]) {
            if let Some(place) = times.iter().rposition(|time| *time == at) {
                times.remove(place);
            }
        }
    }

    /// An eviction of a binding is about to begin: whoever asks next finds less.
    pub fn spend(&mut self, binding: &str, now: Duration, settings: &Settings) {
        if settings.per_minute > 0 {
            self.all.push_back(now);
        }
        if settings.per_binding > 0 {
            self.bindings.entry(binding.to_owned()).or_default().push_back(now);
        }
    }

    fn forget(&mut self, now: Duration) {
        let old = |time: &Duration| *time + MINUTE <= now;
        while self.all.front().is_some_and(old) {
            self.all.pop_front();
        }
        self.bindings.retain(|_, times| {
            while times.front().is_some_and(old) {
                times.pop_front();
            }
            !times.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::table;

    #[test]
    fn the_table_holds() {
        let event = |text: &str| {
            let (binding, at) = text.split_once('@').unwrap();
            (binding.to_owned(), Duration::from_secs(at.parse().unwrap()))
        };
        for [budget, history, asked, want] in table::rows(include_str!("budget.md")) {
            let (per_binding, per_minute) = budget.split_once(", ").unwrap();
            let settings = Settings {
                per_binding: per_binding.parse().unwrap(),
                per_minute: per_minute.parse().unwrap(),
            };
            let mut budgets = Budgets::default();
            for (binding, at) in history.split_whitespace().map(event) {
                budgets.check(&binding, at, &settings).unwrap();
                budgets.spend(&binding, at, &settings);
            }
            let (binding, at) = event(asked);
            let got = match budgets.check(&binding, at, &settings) {
                Ok(()) => "now".to_owned(),
                Err((spent, wait)) => format!("in {}s: {}", wait.as_secs(), spent.reason()),
            };
            assert_eq!(got, want, "{budget}: {history}, {asked}");
        }
    }

    #[test]
    fn what_did_not_begin_costs_nothing() {
        let second = Duration::from_secs;
        for settings in
            [Settings { per_binding: 1, per_minute: 2 }, Settings { per_binding: 0, per_minute: 2 }]
        {
            let mut budgets = Budgets::default();
            budgets.spend("web", second(0), &settings);
            budgets.spend("shop", second(1), &settings);
            let full = budgets.check("pay", second(2), &settings);
            assert_eq!(full, Err((Spent::Minute, second(58))));
            budgets.give_back("shop", second(1));
            assert_eq!(budgets.check("shop", second(2), &settings), Ok(()));
            budgets.spend("shop", second(3), &settings);
            assert_eq!(budgets.check("pay", second(4), &settings), Err((Spent::Minute, second(56))));
            budgets.give_back("shop", second(9));
            assert_eq!(budgets.check("pay", second(4), &settings), Err((Spent::Minute, second(56))));
        }
    }

    #[test]
    fn only_the_last_minute_is_kept() {
        let (mut budgets, settings) = (Budgets::default(), Settings { per_binding: 1, per_minute: 0 });
        for n in 0..1000 {
            let (binding, now) = (format!("b{n}"), Duration::from_secs(n));
            budgets.check(&binding, now, &settings).unwrap();
            budgets.spend(&binding, now, &settings);
        }
        assert!(budgets.bindings.len() <= 60);
    }
}
