//! The words for a cluster's state: one sentence, by one function, for the page, the command line and whoever else tells
//! people of it.
//!
//! *No news* is a state of its own, with an age, and no fault: nothing here says that a cluster is down because it is silent.
//! Ages are by the hub's clock. A sentence is a template and one time, so that whoever shows it can count on by itself.
//!
//! The table has seconds since the cluster was heard (`-`: this hub has not heard it), its grace in seconds, whether the hub
//! can tell who lives, at which times its link is there, and until when it is held out. `Ready` has been so for ten minutes;
//! the Cluster was made two days ago, and has been being deleted for three minutes; the hub began 40 seconds ago.
//!
#![doc = include_str!("words.md")]

use std::time::{Duration, SystemTime};

use karmada_api::consts::reason;
use karmada_meta::time::Time;

use crate::health::Ready;

/// All templates, with the states that they tell of.
pub const TEMPLATES: [(State, &str); 13] = [
    (State::Ready, HEARD),
    (State::Ready, WELL),
    (State::Quiet, QUIET),
    (State::Expected, EXPECTED),
    (State::Unjudged, UNJUDGED),
    (State::Silent, SILENT),
    (State::Unjudged, BEGAN),
    (State::Api, NO_ANSWER),
    (State::Api, NOT_HEALTHY),
    (State::Api, NOT_COLLECTED),
    (State::Held, HELD),
    (State::New, NEVER),
    (State::Leaving, LEAVING),
];

const HEARD: &str = "Ready, heard {age} ago";
const WELL: &str = "Ready for {age}";
const QUIET: &str = "silent for {age}";
const EXPECTED: &str = "silent for {age}, as expected";
const UNJUDGED: &str = "silence not judged yet";
const SILENT: &str = "silent for {age}";
const BEGAN: &str = "hub began {age} ago; silence not judged yet";
const NO_ANSWER: &str = "agent here, its API not answering for {age}";
const NOT_HEALTHY: &str = "agent here, its API not healthy for {age}";
const NOT_COLLECTED: &str = "its status cannot be collected for {age}";
const HELD: &str = "held until {time}";
const NEVER: &str = "not joined yet ({age})";
const LEAVING: &str = "being removed for {age}";

/// What a cluster is like: each is in one of these, so that counts add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It is heard of, and well.
    Ready,
    /// It says nothing for longer than usual, within its grace.
    Quiet,
    /// It says nothing, at a time at which its link need not be there.
    Expected,
    /// It says nothing for longer than its grace.
    Silent,
    /// It is heard of, and its member's API is not well.
    Api,
    /// It is heard of, and gets nothing new because it comes and goes.
    Held,
    /// It has never been heard of.
    New,
    /// The hub cannot tell yet.
    Unjudged,
    /// Its Cluster is being deleted.
    Leaving,
}

/// How a state is to look: what it asks of whoever sees it. The glyph and the word say the same as the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// All is as it should be.
    Well,
    /// There is no news.
    NoNews,
    /// Something waits.
    Waits,
    /// Somebody should do something.
    Acts,
}

impl State {
    /// All states, those that ask for something first.
    pub const ALL: [Self; 9] = [
        Self::Api,
        Self::Silent,
        Self::Held,
        Self::New,
        Self::Unjudged,
        Self::Leaving,
        Self::Quiet,
        Self::Expected,
        Self::Ready,
    ];

    /// One word for it, as in addresses and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Quiet => "quiet",
            Self::Expected => "expected",
            Self::Silent => "silent",
            Self::Api => "api",
            Self::Held => "held",
            Self::New => "new",
            Self::Unjudged => "unjudged",
            Self::Leaving => "leaving",
        }
    }

    /// How many clusters are so, in words: the heading over a count.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Quiet => "Quiet, within grace",
            Self::Expected => "Silent as expected",
            Self::Silent => "Silent",
            Self::Api => "API not answering",
            Self::Held => "Held",
            Self::New => "Not joined yet",
            Self::Unjudged => "Not judged yet",
            Self::Leaving => "Being removed",
        }
    }

    /// Whether its agent is heard of, as far as is known: it says nothing for no longer than it may.
    pub fn is_heard(self) -> bool {
        matches!(self, Self::Ready | Self::Quiet | Self::Api | Self::Held)
    }

    /// How it is to look.
    pub fn tone(self) -> Tone {
        match self {
            Self::Ready | Self::Quiet => Tone::Well,
            Self::Expected | Self::Silent | Self::Unjudged => Tone::NoNews,
            Self::Held | Self::New | Self::Leaving => Tone::Waits,
            Self::Api => Tone::Acts,
        }
    }
}

impl Tone {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::NoNews => "no-news",
            Self::Waits => "waits",
            Self::Acts => "acts",
        }
    }

    /// The sign before the word.
    pub fn glyph(self) -> &'static str {
        match self {
            Self::Well => "●",
            Self::NoNews => "◌",
            Self::Waits => "◆",
            Self::Acts => "▲",
        }
    }
}

/// What is known of a cluster, as far as its state goes.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// When its Cluster was made.
    pub born: Time,
    /// Since when its Cluster is being deleted.
    pub deleting: Option<Time>,
    /// What its condition Ready says.
    pub ready: Ready,
    /// By which reason.
    pub reason: &'a str,
    /// Since when.
    pub since: Option<Time>,
    /// When this hub last heard of it, if it has.
    pub heard: Option<Time>,
    /// Since when its condition StatusStale says that nothing was heard.
    pub stale: Option<Time>,
    /// How long it may be silent.
    pub grace: Duration,
    /// Until when it is held out of new scheduling.
    pub held_until: Option<Time>,
    /// At which times its link is there, if not always.
    pub windows: Option<&'a str>,
    /// Whether the hub cannot tell at present who lives.
    pub blind: bool,
    /// When the hub began.
    pub hub_began: Time,
}

/// A state, the time that it is told with, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Which.
    pub state: State,
    /// The time.
    pub at: Time,
    /// The sentence, in which `{age}` stands for the time since then, and `{time}` for the time of day.
    pub template: &'static str,
}

impl Told {
    /// The sentence at this time.
    pub fn sentence(&self, now: SystemTime) -> String {
        fill(self.template, self.at, now)
    }
}

/// A template with the age of a time, or the time of day in UTC.
pub fn fill(template: &str, at: Time, now: SystemTime) -> String {
    let time = || at.timestamp().strftime("%H:%M").to_string();
    let text = template.replace("{age}", &age(at.elapsed(now)));
    if text.contains("{time}") { text.replace("{time}", &time()) } else { text }
}

/// A length of time in words: seconds below two minutes, minutes below two hours, hours below two days, then days.
pub fn age(length: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match length.as_secs() {
        s if s < 2 * MINUTE => format!("{s} s"),
        s if s < 2 * HOUR => format!("{} min", s / MINUTE),
        s if s < 2 * DAY => format!("{} h", s / HOUR),
        s => format!("{} d", s / DAY),
    }
}

/// A length of time in words, to the second: `2 min 10 s`.
pub fn length(length: Duration) -> String {
    let (mut left, mut parts) = (length.as_secs(), Vec::new());
    for (unit, seconds) in [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)] {
        if left >= seconds {
            parts.push(format!("{} {unit}", left / seconds));
            left %= seconds;
        }
    }
    if parts.is_empty() { "0 s".to_owned() } else { parts.join(" ") }
}

/// What a cluster is like now.
pub fn tell(known: &Known<'_>, now: SystemTime) -> Told {
    let told = |state, at, template| Told { state, at, template };
    if let Some(at) = known.deleting {
        return told(State::Leaving, at, LEAVING);
    }
    let collected_here = known.ready == Ready::False && known.reason == reason::STATUS_COLLECTION_FAILED;
    if !collected_here {
        let never = known.ready == Ready::Never || known.reason == reason::CLUSTER_STATUS_NEVER_UPDATED;
        if never && known.heard.is_none() {
            let at = known.since.unwrap_or(known.born);
            return told(State::New, at, NEVER);
        }
        if let Some(silent) = silence(known, now) {
            return silent;
        }
    }
    let since = known.since.unwrap_or(known.born);
    match (known.ready, known.held_until) {
        (Ready::False, _) => told(
            State::Api,
            since,
            match known.reason {
                reason::STATUS_COLLECTION_FAILED => NOT_COLLECTED,
                reason::CLUSTER_NOT_READY => NOT_HEALTHY,
                _ => NO_ANSWER,
            },
        ),
        (_, Some(until)) => told(State::Held, until, HELD),
        _ => match known.heard {
            Some(heard) => told(State::Ready, heard, HEARD),
            // The hub itself works on it.
            None => told(State::Ready, since, WELL),
        },
    }
}

/// That it says nothing, if so.
fn silence(known: &Known<'_>, now: SystemTime) -> Option<Told> {
    let told = |state, at, template| Some(Told { state, at, template });
    let Some(heard) = known.heard else {
        if known.ready == Ready::Unknown {
            let at = known.stale.or(known.since).unwrap_or(known.born);
            return told(State::Silent, at, SILENT);
        }
        return if known.blind { told(State::Unjudged, known.hub_began, BEGAN) } else { None };
    };
    let silent = heard.elapsed(now);
    // As the brake has it: half of the grace is more than a renewal that is late.
    if silent <= known.grace / 2 {
        return None;
    }
    if silent <= known.grace && known.ready != Ready::Unknown {
        // What else is wrong with it is worth more than that.
        let well = known.ready == Ready::True && known.held_until.is_none();
        return if well { told(State::Quiet, heard, QUIET) } else { None };
    }
    if known.blind && known.ready != Ready::Unknown {
        return told(State::Unjudged, heard, UNJUDGED);
    }
    if known.windows.is_some() && known.ready != Ready::Unknown {
        return told(State::Expected, heard, EXPECTED);
    }
    told(State::Silent, heard, SILENT)
}

/// What there is to say beside the sentence: what it means, and what not.
pub fn detail(known: &Known<'_>, told: &Told, losses: usize, shown: Option<Time>) -> String {
    match told.state {
        State::Quiet => format!("up to {} is normal here", length(known.grace)),
        State::Expected => {
            format!(
                "its link is there {}; at other times silence is no loss",
                known.windows.unwrap_or_default()
            )
        }
        State::Silent => {
            let as_of = shown.map(|at| format!(" Shown: {}.", at.timestamp().strftime("%H:%M UTC")));
            format!("Workloads go on as last told.{}", as_of.unwrap_or_default())
        }
        State::Held => {
            let times = if losses == 1 { "once".to_owned() } else { format!("{losses} times") };
            format!(
                "it was lost {times} of late; what is there stays, nothing new is placed on it until then"
            )
        }
        State::New => "nobody has joined by this name; its agent has not been heard of".to_owned(),
        State::Api => "the link is well; the member's own API is not".to_owned(),
        State::Ready | State::Unjudged | State::Leaving => String::new(),
    }
}

/// What there is to say of an agent's certificate: nothing while it lasts long enough.
pub fn certificate(until: Time, soon: bool, now: SystemTime) -> Option<String> {
    let left = until.timestamp().as_second() - Time::from_system(now).timestamp().as_second();
    if left <= 0 {
        let day = until.timestamp().strftime("%-d %b");
        return Some(format!("certificate ended {day}: agent cannot log in"));
    }
    let left = Duration::from_secs(u64::try_from(left).unwrap_or_default());
    soon.then(|| format!("certificate ends in {}, renewal overdue", age(left)))
}

/// How far an agent is behind its hub, or before it; nothing where they go together, or one of them says nothing readable.
pub fn skew(agent: &str, hub: &str) -> Option<String> {
    let minor = |version: &str| -> Option<(u64, u64)> {
        let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let ((a, b), (c, d)) = (minor(agent)?, minor(hub)?);
    let short = format!("agent {a}.{b}, hub {c}.{d}");
    if a != c {
        return Some(format!("{short}: not supported"));
    }
    let word = |n: u64| match n {
        1 => "one".to_owned(),
        2 => "two".to_owned(),
        n => n.to_string(),
    };
    match d.checked_sub(b) {
        Some(0) => None,
        Some(behind) if behind <= 2 => Some(format!("{short}: {} behind, supported", word(behind))),
        Some(behind) => Some(format!("{short}: {} behind, not supported", word(behind))),
        None => Some(format!("{short}: agent newer than hub; upgrade the hub first")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::table;

    const NOW: &str = "2026-01-03T14:02:00Z";

    fn ago(seconds: u64) -> Time {
        let now: Time = NOW.parse().unwrap();
        Time::from_system(SystemTime::from(now.timestamp()) - Duration::from_secs(seconds))
    }

    fn now() -> SystemTime {
        SystemTime::from(ago(0).timestamp())
    }

    #[test]
    fn the_table_holds() {
        for [deleting, ready, reason, heard, grace, told, windows, held, state, sentence] in
            table::rows(include_str!("words.md"))
        {
            let some = |text: &'static str| Some(text).filter(|text| *text != "-");
            let known = Known {
                born: ago(2 * 86_400),
                deleting: some(deleting).map(|_| ago(180)),
                ready: Ready::from_status(some(ready)),
                reason,
                since: some(ready).map(|_| ago(600)),
                heard: some(heard).map(|seconds| ago(seconds.parse().unwrap())),
                stale: None,
                grace: Duration::from_secs(grace.parse().unwrap()),
                held_until: some(held).map(|at| format!("2026-01-03T{at}:00Z").parse().unwrap()),
                windows: some(windows),
                blind: told == "blind",
                hub_began: ago(40),
            };
            let told = tell(&known, now());
            assert_eq!((told.state.name(), &*told.sentence(now())), (state, sentence), "{known:?}");
            // Words that say what nobody knows are in no sentence.
            let all = format!("{sentence} {}", detail(&known, &told, 3, known.heard)).to_lowercase();
            for never in ["down", "dead", "offline", "lost,", "unhealthy", "failed", "warning", "online"] {
                assert!(!all.contains(never), "{all}");
            }
        }
    }

    #[test]
    fn every_state_is_told() {
        let mut names: Vec<_> = State::ALL.iter().map(|state| state.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), State::ALL.len());
        let told: Vec<_> =
            table::rows::<10>(include_str!("words.md")).into_iter().map(|row| row[8]).collect();
        assert!(names.iter().all(|name| told.contains(name)), "{names:?} {told:?}");
    }

    #[test]
    fn ages_have_one_unit_and_lengths_all() {
        for (seconds, of_age, of_length) in [
            (0, "0 s", "0 s"),
            (119, "119 s", "1 min 59 s"),
            (130, "2 min", "2 min 10 s"),
            (7199, "119 min", "1 h 59 min 59 s"),
            (7200, "2 h", "2 h"),
            (172_799, "47 h", "1 d 23 h 59 min 59 s"),
            (172_800, "2 d", "2 d"),
        ] {
            let seconds = Duration::from_secs(seconds);
            assert_eq!((&*age(seconds), &*length(seconds)), (of_age, of_length));
        }
    }

    #[test]
    fn certificates_and_versions() {
        let until = |text: &str| text.parse::<Time>().unwrap();
        for (end, soon, want) in [
            ("2026-01-30T00:00:00Z", false, None),
            ("2026-01-09T15:00:00Z", true, Some("certificate ends in 6 d, renewal overdue")),
            ("2025-11-03T00:00:00Z", false, Some("certificate ended 3 Nov: agent cannot log in")),
        ] {
            assert_eq!(certificate(until(end), soon, now()).as_deref(), want);
        }
        for (agent, hub, want) in [
            ("0.5.1", "0.5.0", None),
            ("v0.3.0", "0.5.0", Some("agent 0.3, hub 0.5: two behind, supported")),
            ("0.4.0-rc1", "0.5.0", Some("agent 0.4, hub 0.5: one behind, supported")),
            ("0.1.0", "0.5.0", Some("agent 0.1, hub 0.5: 4 behind, not supported")),
            ("0.6.0", "0.5.0", Some("agent 0.6, hub 0.5: agent newer than hub; upgrade the hub first")),
            ("1.0.0", "0.9.0", Some("agent 1.0, hub 0.9: not supported")),
            ("", "0.5.0", None),
            ("main", "0.5.0", None),
        ] {
            assert_eq!(skew(agent, hub).as_deref(), want, "{agent} {hub}");
        }
    }
}
