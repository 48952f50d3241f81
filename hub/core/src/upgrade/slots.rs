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

use std::{collections::BTreeSet, time::Duration};

use karmada_meta::{duration, time::Time};
use serde::{Deserialize, Serialize};

use super::{
    Version,
    trial::{Ended, PROOF, Part, Trial},
};

/// So often a new version is started, if need be. A power cut counts as well as a crash: nobody can tell which it was.
pub const GOES: u32 = 3;
/// In so many starts in a row a program that had proven itself may be unreadable before it is given up.
pub const MISSES: u32 = 10;
/// What was before ends once more for a start that could not be kept after this time, then after twice that, and so on.
const AGAIN: Duration = Duration::from_secs(30 * 60);
/// And after this at the latest.
const LATEST: Duration = Duration::from_secs(24 * 3600);
/// A fetched program leaves so many bytes of the disk free: the member's own store is usually on the same.
const ROOM: u64 = 256 << 20;
/// What is there of a program that is not offered any more waits so long for it to be offered again.
const WAITS: Duration = Duration::from_secs(24 * 3600);

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
    /// In so many starts in a row the installed program ran because the one that is to run could not be read or run.
    #[serde(default)]
    pub missed: u32,
    /// The fetched program that was last asked what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_of: Option<Fits>,
    /// What was last refused, which is not fetched again for the same offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// The program of which some is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
}

/// A program of which the first bytes are there, because fetching it broke off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// The digest that all of it is to have.
    pub program: String,
    /// What its server calls the document that the bytes are of.
    pub tag: String,
    /// When it was last gone on with, or seen to be offered.
    pub since: Time,
}

/// A program that says it is a version, and takes the agent's arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fits {
    /// The digest of its bytes.
    pub program: String,
    /// The version.
    pub version: String,
    /// A digest of the arguments.
    pub arguments: u64,
}

/// A program that is none for this agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The time of its offer.
    pub begun: Time,
    /// The digest that was offered.
    pub program: String,
    /// Why.
    pub why: String,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The installed program.
    Installed,
    /// The one with this digest.
    Slot(String),
    /// The same, on trial.
    Trial(String),
}

/// How a program is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It has the bytes of its digest.
    Whole,
    /// It has others, or is not there.
    Damaged,
    /// It cannot be read or run now, which may be otherwise with the next start.
    Unknown,
}

/// Whether a program of a size may be fetched to a disk with so many bytes free; only how much is left of it where the size is not
/// known, or all of it is there.
///
/// # Errors
/// Why not, in numbers.
pub fn has_room(free: u64, size: u64) -> Result<(), String> {
    match free.checked_sub(size) {
        Some(left) if left >= ROOM => Ok(()),
        _ => Err(format!(
            "{} MiB are free on the disk of --state-dir: {} MiB are wanted for the program, and {} MiB are left free. Make room",
            free >> 20,
            size.div_ceil(1 << 20),
            ROOM >> 20
        )),
    }
}

impl Slots {
    /// Whether something is on trial.
    pub fn is_open(&self) -> bool {
        self.trial.as_ref().is_some_and(Trial::is_open)
    }

    /// Decides what runs from now on, and notes it. `tries` says whether the agent's owner lets versions be tried, `find` how a
    /// program is found.
    pub fn start(&mut self, installed: &Version, tries: bool, find: impl Fn(&str) -> Found) -> Runs {
        let installed = installed.to_string();
        if self.installed != installed {
            self.give_way(installed);
            return Runs::Installed;
        }
        if self.is_open() && !tries {
            self.go_back("the agent's owner does not let it be upgraded any more (--upgrade=off)");
        }
        if let Some(trial) = self.trial.as_ref().filter(|trial| trial.is_open() && !self.rests) {
            let (new, version) = (trial.new.clone(), &trial.version);
            let found = find(&new);
            if self.goes >= GOES {
                let why = format!(
                    "{version} was started {GOES} times, and ended each time before it had proven itself"
                );
                self.go_back(&why);
            } else if found == Found::Damaged {
                let why = format!("the program of {version} is damaged, or not there any more");
                self.go_back(&why);
            } else {
                self.goes += 1;
                if found == Found::Whole {
                    return Runs::Trial(new);
                }
            }
        }
        let Some(current) = self.current.clone() else { return Runs::Installed };
        let found = find(&current);
        if found == Found::Whole {
            self.missed = 0;
            return Runs::Slot(current);
        }
        self.missed += 1;
        if found == Found::Damaged {
            self.lose(&current, "is damaged, or not there any more");
        } else if self.missed >= MISSES {
            self.lose(&current, &format!("could not be read or run in {MISSES} starts"));
        }
        Runs::Installed
    }

    /// Somebody has installed a version: it runs, whatever was tried or taken before.
    fn give_way(&mut self, installed: String) {
        let first = self.installed.is_empty();
        let taken = |trial: &Trial| {
            trial.ended == Some(Ended::Committed) && self.current.as_deref() == Some(&trial.new)
        };
        let mut trial = self.trial.take();
        if let Some(trial) = trial.as_mut().filter(|trial| !first && (trial.is_open() || taken(trial))) {
            let (ended, when) = match trial.ended {
                Some(Ended::Committed) => (Ended::Committed, "had been taken"),
                _ => (Ended::Returned, "was on trial"),
            };
            trial.end(
                ended,
                format!(
                    "Somebody installed version {installed} while {} {when}. The agent runs what is installed. abort and then \
                     resume, or a new request, tries again",
                    trial.version
                ),
            );
            trial.gave_way = true;
        }
        *self = Self { installed, trial, ..Self::default() };
    }

    /// The program that is to run is lost: the installed one runs, and nothing of what stood on it goes on.
    fn lose(&mut self, program: &str, why: &str) {
        (self.current, self.missed) = (None, 0);
        if let Some(trial) = &mut self.trial {
            let is_new = trial.new == program;
            if trial.is_open() || is_new {
                let what = if is_new { &trial.version } else { &trial.was };
                let why = format!("the program of {what} {why}, and the installed one runs");
                trial.end(Ended::Returned, why);
                self.rests = false;
            }
        }
    }

    /// What is on trial cannot be run.
    pub fn cannot_run(&mut self, program: &str, why: &str) {
        if self.is_open() && self.trial.as_ref().is_some_and(|trial| trial.new == program) {
            self.go_back(&format!("its program cannot be run: {why}"));
        }
    }

    /// Which part what runs has in the last trial: a program, or the installed one.
    pub fn part(&self, runs: Option<&str>) -> Part {
        let Some(trial) = &self.trial else { return Part::Neither };
        match runs.unwrap_or_default() {
            runs if runs == trial.new => Part::New,
            runs if runs == trial.old => Part::Old,
            _ => Part::Neither,
        }
    }

    /// Whether the installed program runs in the stead of one that could not be read or run, and is to be once more.
    pub fn is_missed(&self, runs: Option<&str>, version: &Version) -> bool {
        runs.is_none() && self.current.is_some() && self.installed == version.to_string()
    }

    /// Something is tried from the next start on.
    pub fn begin(&mut self, trial: Trial) {
        (self.goes, self.asked, self.rests, self.trial) = (0, 0, false, Some(trial));
        (self.asked_of, self.partial) = (None, None);
    }

    /// What was before is about to end, for what is on trial to be started: whether it may, which has run for so long. Where it has
    /// ended for that before and the start could not be kept it stays for longer each time: otherwise it would do nothing else.
    pub fn again(&mut self, after: Duration) -> bool {
        let pause = match self.asked.saturating_sub(self.goes) {
            0 => Duration::ZERO,
            missed => AGAIN.saturating_mul(1 << (missed - 1).min(16)).min(LATEST),
        };
        let may = self.is_open() && after >= pause;
        if may {
            self.asked = self.asked.saturating_add(1);
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

    /// The hub takes back what it gave: whether that is what is to run.
    pub fn take_back(&mut self, why: &str) -> bool {
        let gave = |trial: &Trial| {
            trial.ended == Some(Ended::Committed) && self.current.as_deref() == Some(&trial.new)
        };
        let may = self.trial.as_ref().is_some_and(gave);
        if may {
            self.go_back(why);
        }
        may
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

    /// Forgets what is there of a program that is neither offered nor was a day ago, and answers whether it did. A window that has
    /// closed, or a pause, does not begin it anew, however long it was offered before.
    pub fn forget(&mut self, offered: Option<&str>, now: Time) -> bool {
        if let Some(partial) =
            self.partial.as_mut().filter(|partial| offered == Some(partial.program.as_str()))
        {
            partial.since = now;
            return false;
        }
        let is_stale = |partial: &Partial| {
            // A clock that was set back says nothing of when that was.
            let age = now.timestamp().duration_since(partial.since.timestamp());
            let is_fresh = Duration::try_from(age).is_ok_and(|age| age < WAITS);
            !is_fresh
        };
        self.partial.take_if(|partial| is_stale(partial)).is_some()
    }

    /// The programs that may still be wanted.
    pub fn keeps(&self) -> BTreeSet<&str> {
        let trial = self.trial.iter().flat_map(|trial| [trial.old.as_str(), trial.new.as_str()]);
        let asked_of = self.asked_of.iter().map(|fits| fits.program.as_str());
        trial.chain(self.current.as_deref()).chain(asked_of).filter(|program| !program.is_empty()).collect()
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

    #[test]
    fn what_is_there_of_a_program_waits_while_it_is_offered_and_a_day() {
        let partial = Partial {
            program: "b".into(),
            tag: "\"t\"".into(),
            since: "2026-11-26T02:00:00Z".parse().unwrap(),
        };
        for (offered, now, want) in [
            (Some("b"), "2026-11-26T02:00:00Z", false),
            (Some("b"), "2026-12-26T02:00:00Z", false),
            (Some("b"), "2026-11-01T02:00:00Z", false),
            (None, "2026-11-26T02:00:00Z", false),
            (None, "2026-11-27T01:59:59Z", false),
            (None, "2026-11-27T02:00:00Z", true),
            (Some("c"), "2026-11-27T01:59:59Z", false),
            (Some("c"), "2026-11-27T02:00:00Z", true),
            (None, "2026-11-26T01:59:59Z", true),
        ] {
            let mut slots = Slots { partial: Some(partial.clone()), ..Slots::default() };
            assert_eq!(slots.forget(offered, now.parse().unwrap()), want, "{offered:?} {now}");
            assert_eq!(slots.partial.is_none(), want, "{offered:?} {now}");
        }
        // The day begins when it is not offered any more.
        let mut slots = Slots { partial: Some(partial.clone()), ..Slots::default() };
        for (offered, now, want) in [
            (Some("b"), "2026-11-29T02:00:00Z", false),
            (None, "2026-11-29T02:00:01Z", false),
            (Some("c"), "2026-11-30T01:59:59Z", false),
            (None, "2026-11-30T02:00:00Z", true),
        ] {
            assert_eq!(slots.forget(offered, now.parse().unwrap()), want, "{offered:?} {now}");
        }
        let mut slots = Slots { partial: Some(partial), ..Slots::default() };
        slots.begin(trial());
        assert_eq!(slots.partial, None, "what was fetched is there");
        assert!(!slots.forget(None, "2027-01-01T00:00:00Z".parse().unwrap()));
    }

    /// Those whose names end with a question mark cannot be read.
    fn found(program: &str, there: &[&str]) -> Found {
        match () {
            () if there.contains(&program) => Found::Whole,
            () if there.contains(&format!("{program}?").as_str()) => Found::Unknown,
            () => Found::Damaged,
        }
    }

    fn start(slots: &mut Slots, installed: &str, there: &[&str]) -> Runs {
        let runs = slots.start(&installed.parse().unwrap(), true, |program| found(program, there));
        // As it is after a power cut.
        *slots = serde_json::from_str(&serde_json::to_string(&slots).unwrap()).unwrap();
        runs
    }

    fn tried(program: &str) -> Runs {
        Runs::Trial(program.to_owned())
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
        let (all, unread): (&[&str], &[&str]) = (&["a", "b"], &["a?", "b?"]);
        // What is kept, what is installed, what is whole; what runs, and how the trial has ended then.
        let rows = [
            (Slots::default(), "0.5.0", all, Runs::Installed, None),
            (kept("a"), "0.5.0", all, slot("a"), None),
            (kept("a"), "0.5.0", &[][..], Runs::Installed, None),
            (kept("a"), "0.5.1", all, Runs::Installed, None),
            (kept("a"), "0.5.0", unread, Runs::Installed, None),
            (on_trial(""), "0.5.0", all, tried("b"), None),
            (on_trial("a"), "0.5.0", all, tried("b"), None),
            // It counts as a go, and is no verdict.
            (on_trial("a"), "0.5.0", &["a", "b?"], slot("a"), None),
            (on_trial("a"), "0.5.0", unread, Runs::Installed, None),
            (on_trial("a"), "0.5.0", &["a"], slot("a"), Some(Ended::Returned)),
            (on_trial("a"), "0.5.0", &[], Runs::Installed, Some(Ended::Returned)),
            (on_trial("a"), "0.6.0", all, Runs::Installed, Some(Ended::Returned)),
            (rests.clone(), "0.5.0", all, slot("a"), None),
            // Nothing is left that could have it started again: it does not stay open for ever.
            (rests.clone(), "0.5.0", &["b"], Runs::Installed, Some(Ended::Returned)),
            (rests, "0.5.0", unread, Runs::Installed, None),
            (ended(Ended::Committed), "0.5.0", &["a"], Runs::Installed, Some(Ended::Returned)),
            (ended(Ended::Committed), "0.5.0", unread, Runs::Installed, Some(Ended::Committed)),
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
    fn what_was_before_ends_for_nothing_ever_more_seldom() {
        let minute = Duration::from_secs(60);
        let mut slots = on_trial("a");
        assert!(slots.again(Duration::ZERO));
        // The disk is full whenever the supervisor starts it: so it runs itself, and stays.
        for (soon, late) in [(29, 30), (59, 60), (119, 120), (239, 240), (479, 480), (959, 960), (1439, 1440)]
        {
            assert!(!slots.clone().again(minute * soon), "{soon}");
            assert!(slots.again(minute * late), "{late}");
        }
        slots.asked = u32::MAX;
        assert!(!slots.clone().again(minute * 1439) && slots.clone().again(minute * 1440));
        // There is room.
        slots.asked = 1;
        for go in 1..GOES {
            assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), tried("b"));
            slots.time_is_over();
            assert!(slots.again(Duration::ZERO), "{go}");
        }
        assert!(!Slots::default().again(minute * 1440));
    }

    #[test]
    fn one_that_cannot_be_read_is_given_up_late_and_runs_when_it_can() {
        for unread in [1, MISSES - 1, MISSES] {
            let mut slots = Slots::default();
            start(&mut slots, "0.5.0", &[]);
            slots.begin(Trial { old: String::new(), new: "b".into(), ..trial() });
            slots.commit();
            assert_eq!(start(&mut slots, "0.5.0", &["b"]), slot("b"));
            for _ in 0..unread {
                assert_eq!(start(&mut slots, "0.5.0", &["b?"]), Runs::Installed);
                assert_eq!(slots.is_missed(None, &"0.5.0".parse().unwrap()), slots.current.is_some());
                assert!(!slots.is_missed(Some("b"), &"0.5.0".parse().unwrap()));
                assert!(!slots.is_missed(None, &"0.5.1".parse().unwrap()), "a package is there");
            }
            let back = if unread < MISSES { slot("b") } else { Runs::Installed };
            assert_eq!(start(&mut slots, "0.5.0", &["b"]), back, "{unread}");
            assert_eq!(slots.missed, 0);
            let trial = slots.trial.unwrap();
            assert_eq!(trial.ended == Some(Ended::Returned), unread == MISSES, "{unread}");
            assert!(
                unread < MISSES || trial.why.contains("could not be read or run in 10 starts"),
                "{}",
                trial.why
            );
        }
    }

    #[test]
    fn an_owner_who_does_not_want_it_any_more_ends_a_trial_and_keeps_what_runs() {
        let all = |_: &str| Found::Whole;
        let installed = "0.5.0".parse().unwrap();
        let mut slots = on_trial("a");
        assert_eq!(slots.start(&installed, false, all), slot("a"));
        assert!(slots.trial.as_ref().unwrap().why.contains("--upgrade=off"));
        let mut slots = on_trial("a");
        slots.commit();
        assert_eq!(slots.start(&installed, false, all), slot("b"));
    }

    #[test]
    fn the_hub_takes_back_only_what_it_gave() {
        let committed = || {
            let mut slots = on_trial("a");
            slots.commit();
            slots
        };
        let mut slots = committed();
        assert!(slots.take_back("why"));
        assert_eq!(slots.current.as_deref(), Some("a"));
        // A package of the same version has been installed, or another one, since.
        let mut slots = committed();
        assert_eq!(start(&mut slots, "0.6.0", &["a", "b"]), Runs::Installed);
        assert!(!slots.take_back("why"));
        let trial = slots.trial.clone().unwrap();
        assert!(trial.gave_way && trial.ended == Some(Ended::Committed), "{trial:?}");
        assert!(trial.why.contains("installed version 0.6.0 while 0.6.0 had been taken"), "{}", trial.why);
        assert_eq!(start(&mut slots, "0.6.0", &["a", "b"]), Runs::Installed);
        // What had been given up before is as it was.
        let mut slots = on_trial("a");
        slots.go_back("it crashed");
        start(&mut slots, "0.6.0", &["a", "b"]);
        assert!(slots.trial.as_ref().is_some_and(|trial| !trial.gave_way && trial.why == "it crashed"));
        assert!(!on_trial("a").take_back("why"));
    }

    #[test]
    fn parts_are_those_of_programs() {
        let slots = on_trial("a");
        for (runs, part) in [(None, Part::Neither), (Some("a"), Part::Old), (Some("b"), Part::New)] {
            assert_eq!(slots.part(runs), part, "{runs:?}");
        }
        assert_eq!(on_trial("").part(None), Part::Old);
        assert_eq!(Slots::default().part(None), Part::Neither);
    }

    #[test]
    fn a_disk_is_not_filled() {
        let mib = 1 << 20;
        for (free, size, fits) in [
            (300 * mib, 44 * mib, true),
            (300 * mib, 45 * mib, false),
            (255 * mib, 0, false),
            (256 * mib, 0, true),
            (10 * mib, 20 * mib, false),
            (u64::MAX, u64::MAX, false),
        ] {
            assert_eq!(has_room(free, size).is_ok(), fits, "{free} {size}");
        }
        let why = has_room(300 * mib, 100 * mib).unwrap_err();
        assert!(why.starts_with("300 MiB are free") && why.contains("100 MiB are wanted"), "{why}");
    }

    #[test]
    fn one_that_crashes_is_started_so_often_and_not_again() {
        for old in ["", "a"] {
            let mut slots = on_trial(old);
            for _ in 0..GOES {
                assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), tried("b"));
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
            assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), tried("b"));
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
        assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), tried("b"));
        slots.cannot_run("b", "permission denied");
        assert!(slots.trial.as_ref().unwrap().why.contains("cannot be run: permission denied"));
        assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("a"));
        // Of what runs only the next starts say that.
        slots.cannot_run("a", "permission denied");
        assert_eq!(start(&mut slots, "0.5.0", &["a", "b"]), slot("a"));
    }

    #[test]
    fn only_what_may_be_wanted_is_kept() {
        let mut slots = on_trial("a");
        assert_eq!(slots.keeps(), BTreeSet::from(["a", "b"]));
        slots.commit();
        assert_eq!(slots.keeps(), BTreeSet::from(["a", "b"]), "the way back");
        slots.begin(Trial { old: "b".into(), new: "c".into(), ..trial() });
        assert_eq!(slots.keeps(), BTreeSet::from(["b", "c"]));
        slots.go_back("why");
        slots.asked_of = Some(Fits { program: "d".into(), version: "0.7.0".into(), arguments: 0 });
        assert_eq!(slots.keeps(), BTreeSet::from(["b", "c", "d"]), "what is about to be tried");
        assert!(on_trial("").keeps().into_iter().eq(["b"]));
        assert!(Slots::default().keeps().is_empty());
    }
}
