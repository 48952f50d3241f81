//! Which program an agent is that is no Pod: decided at each start, by what is kept in a file beside the programs.
//!
//! ```text
//!   installed ── began ─▶ trial: the new one ─ proven ─▶ current ── the installed one is replaced ─▶ installed
//!       ▲                   │ started too often, damaged, cannot be run ─▶ what was before
//!       └── what was before ┤
//!                           └ not proven in its time ─▶ what was before rests: once it hears the hub, the new one is started again
//! ```
//!
//! Nobody is beside the new version that could ask the hub for a sign of its own. So a link that is away does not speak against it
//! once, nor twice: it has several goes, and each begins when what was before has heard the hub.
//!
//! The installed program starts all others, and is never written. Whoever replaces it, as a package does, is the owner: it runs.

use std::collections::BTreeSet;

use karmada_meta::duration;
use serde::{Deserialize, Serialize};

use super::{
    Version,
    trial::{Ended, PROOF, Trial},
};

/// So often a new version is started, if need be. A power cut counts as well as a crash: nobody can tell which it was.
pub const GOES: u32 = 3;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// The version of the installed program that was last started.
    #[serde(default)]
    pub installed: String,
    /// The program that runs in its stead, by the digest of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The last trial. What ran before, and what is tried, are digests; the installed program has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// How often what is on trial was started.
    #[serde(default)]
    pub goes: u32,
    /// How often what was before has ended for it to be started.
    #[serde(default)]
    pub asked: u32,
    /// It has had its time, and is started again when the hub is heard.
    #[serde(default)]
    pub rests: bool,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The installed program.
    Installed,
    /// The one with this digest.
    Slot(String),
}

impl Slots {
    /// Whether something is on trial.
    pub fn is_open(&self) -> bool {
        self.trial.as_ref().is_some_and(Trial::is_open)
    }

    /// Decides what runs from now on, and notes it. `is_whole` says whether a program is there, and has the bytes of its digest.
    pub fn start(&mut self, installed: &Version, is_whole: impl Fn(&str) -> bool) -> Runs {
        let installed = installed.to_string();
        if self.installed != installed {
            let first = self.installed.is_empty();
            if let Some(trial) = self.trial.as_mut().filter(|trial| trial.is_open() && !first) {
                trial.end(
                    Ended::Returned,
                    format!(
                        "Somebody installed version {installed} while {} was on trial. The agent runs that and ended the trial. \
                         abort and then resume, or a new request, tries again",
                        trial.version
                    ),
                );
                trial.gave_way = true;
            }
            *self = Self { installed, trial: self.trial.take(), ..Self::default() };
            return Runs::Installed;
        }
        if let Some(trial) = self.trial.as_ref().filter(|trial| trial.is_open() && !self.rests) {
            let (new, version) = (trial.new.clone(), &trial.version);
            if self.goes >= GOES {
                let why = format!(
                    "{version} was started {GOES} times, and ended each time before it had proven itself"
                );
                self.go_back(&why);
            } else if is_whole(&new) {
                self.goes += 1;
                return Runs::Slot(new);
            } else {
                let why = format!("the program of {version} is damaged, or not there any more");
                self.go_back(&why);
            }
        }
        match self.current.as_deref() {
            Some(current) if is_whole(current) => Runs::Slot(current.to_owned()),
            Some(_) => {
                self.current = None;
                Runs::Installed
            }
            None => Runs::Installed,
        }
    }

    /// What was to run cannot be run.
    pub fn cannot_run(&mut self, program: &str, why: &str) {
        if self.is_open() && self.trial.as_ref().is_some_and(|trial| trial.new == program) {
            self.go_back(&format!("its program cannot be run: {why}"));
        } else {
            self.current = None;
        }
    }

    /// Something is tried from the next start on.
    pub fn begin(&mut self, trial: Trial) {
        (self.goes, self.asked, self.rests, self.trial) = (0, 0, false, Some(trial));
    }

    /// What was before is about to end, for what is on trial to be started: whether it may. It may not where it has ended for that
    /// and the start could not be kept: it would end for ever.
    pub fn again(&mut self) -> bool {
        let may = self.is_open() && self.asked <= self.goes;
        if may {
            self.asked += 1;
            self.rests = false;
        }
        may
    }

    /// What is on trial has proven itself, and stays.
    pub fn commit(&mut self) {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.is_open()) {
            trial.end(Ended::Committed, "");
            self.current = Some(trial.new.clone());
            self.rests = false;
        }
    }

    /// What was before the last trial runs from the next start on.
    pub fn go_back(&mut self, why: &str) {
        if let Some(trial) = &mut self.trial {
            trial.end(Ended::Returned, why);
            self.current = Some(trial.old.clone()).filter(|old| !old.is_empty());
            self.rests = false;
        }
    }

    /// What is on trial has not proven itself in its time.
    pub fn time_is_over(&mut self) {
        let Some(trial) = self.trial.as_ref().filter(|trial| trial.is_open()) else { return };
        if self.goes < GOES {
            self.rests = true;
            return;
        }
        let why = format!(
            "{} did not renew its Lease on the hub and carry out all Works in {GOES} goes of {}; before each but the first the \
             version before it heard the hub",
            trial.version,
            duration::format(PROOF)
        );
        self.go_back(&why);
    }

    /// The programs that may still be wanted.
    pub fn keeps(&self) -> BTreeSet<&str> {
        let trial = self.trial.iter().flat_map(|trial| [trial.old.as_str(), trial.new.as_str()]);
        trial.chain(self.current.as_deref()).filter(|program| !program.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::trial::tests::trial, *};

    fn on_trial(old: &str) -> Slots {
        let current = Some(old.to_owned()).filter(|old| !old.is_empty());
        let mut slots = Slots { installed: "0.5.0".into(), current, ..Slots::default() };
        slots.begin(Trial { old: old.into(), new: "b".into(), ..trial() });
        slots
    }

    fn start(slots: &mut Slots, installed: &str, whole: &[&str]) -> Runs {
        let runs = slots.start(&installed.parse().unwrap(), |program| whole.contains(&program));
        // As it is after a power cut.
        *slots = serde_json::from_str(&serde_json::to_string(&slots).unwrap()).unwrap();
        runs
    }

    fn slot(program: &str) -> Runs {
        Runs::Slot(program.to_owned())
    }

    #[test]
    fn what_runs_is_decided_by_what_is_kept() {
        let kept = |current: &str| Slots {
            installed: "0.5.0".into(),
            current: Some(current.into()),
            ..Slots::default()
        };
        let rests = Slots { rests: true, goes: 1, ..on_trial("a") };
        let ended = |how| {
            let mut slots = on_trial("a");
            match how {
                Ended::Committed => slots.commit(),
                Ended::Returned => slots.go_back("why"),
            }
            slots
        };
        let all: &[&str] = &["a", "b"];
        // What is kept, what is installed, what is whole; what runs, and how the trial has ended then.
        let rows = [
            (Slots::default(), "0.5.0", all, Runs::Installed, None),
            (kept("a"), "0.5.0", all, slot("a"), None),
            (kept("a"), "0.5.0", &[][..], Runs::Installed, None),
            (kept("a"), "0.5.1", all, Runs::Installed, None),
            (on_trial(""), "0.5.0", all, slot("b"), None),
            (on_trial("a"), "0.5.0", all, slot("b"), None),
            (on_trial("a"), "0.5.0", &["a"], slot("a"), Some(Ended::Returned)),
            (on_trial("a"), "0.5.0", &[], Runs::Installed, Some(Ended::Returned)),
            (on_trial("a"), "0.6.0", all, Runs::Installed, Some(Ended::Returned)),
            (rests.clone(), "0.5.0", all, slot("a"), None),
            (rests, "0.5.0", &["b"], Runs::Installed, None),
            (ended(Ended::Committed), "0.5.0", all, slot("b"), Some(Ended::Committed)),
            (ended(Ended::Returned), "0.5.0", all, slot("a"), Some(Ended::Returned)),
        ];
        for (mut slots, installed, whole, want, how) in rows {
            let before = slots.clone();
            assert_eq!(start(&mut slots, installed, whole), want, "{before:?}");
            assert_eq!(slots.trial.and_then(|trial| trial.ended), how, "{before:?}");
        }
    }

    #[test]
    fn what_was_before_ends_for_nothing_once_at_most() {
        let mut slots = on_trial("a");
        assert!(slots.again());
        let kept = slots.clone();
        // The disk is full when the supervisor starts it: so it runs itself, and stays.
        assert_eq!(slots.start(&"0.5.0".parse().unwrap(), |_| true), slot("b"));
        slots = kept;
        assert!(!slots.again());
        // With the next start there is room again.
        for go in 1..GOES {
            assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("b"));
            slots.time_is_over();
            assert!(slots.again(), "{go}");
        }
        let mut none = Slots::default();
        assert!(!none.again());
    }

    #[test]
    fn one_that_crashes_is_started_so_often_and_not_again() {
        for old in ["", "a"] {
            let mut slots = on_trial(old);
            for _ in 0..GOES {
                assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("b"));
            }
            let back = if old.is_empty() { Runs::Installed } else { slot("a") };
            for _ in 0..2 {
                assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), back);
            }
            let ended = slots.trial.unwrap();
            assert!(ended.why.contains("was started 3 times") && !ended.gave_way, "{}", ended.why);
        }
    }

    #[test]
    fn a_link_that_is_away_does_not_speak_against_it_at_once() {
        let mut slots = on_trial("a");
        for go in 1..=GOES {
            assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("b"));
            slots.time_is_over();
            // However often what was before is started meanwhile.
            for _ in 0..5 {
                assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("a"));
            }
            assert_eq!(slots.is_open(), go < GOES);
            // The hub is heard.
            slots.rests = false;
        }
        assert!(slots.trial.as_ref().unwrap().why.contains("in 3 goes of 10m0s"), "{slots:?}");
        assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("a"));
        slots.time_is_over();
        assert!(!slots.rests, "a trial that is over has no time");
    }

    #[test]
    fn who_installs_another_version_is_given_way() {
        let mut slots = on_trial("a");
        assert_eq!(start(&mut slots, "0.5.1", &["a", "b"]), Runs::Installed);
        let trial = slots.trial.clone().unwrap();
        assert!(trial.gave_way && trial.why.contains("installed version 0.5.1"), "{}", trial.why);
        assert_eq!((slots.installed.as_str(), slots.current.as_deref()), ("0.5.1", None));
        assert_eq!(start(&mut slots, "0.5.1", &["a", "b"]), Runs::Installed);
    }

    #[test]
    fn what_cannot_be_run_is_not_tried_again() {
        let mut slots = on_trial("a");
        assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("b"));
        slots.cannot_run("b", "permission denied");
        assert!(slots.trial.as_ref().unwrap().why.contains("cannot be run: permission denied"));
        assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("a"));
        slots.cannot_run("a", "permission denied");
        assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), Runs::Installed);
    }

    #[test]
    fn only_what_may_be_wanted_is_kept() {
        let mut slots = on_trial("a");
        assert_eq!(slots.keeps(), BTreeSet::from(["a", "b"]));
        slots.commit();
        assert_eq!(slots.keeps(), BTreeSet::from(["a", "b"]), "the way back");
        slots.begin(Trial { old: "b".into(), new: "c".into(), ..trial() });
        assert_eq!(slots.keeps(), BTreeSet::from(["b", "c"]));
        assert!(on_trial("").keeps().into_iter().eq(["b"]));
        assert!(Slots::default().keeps().is_empty());
    }
}
