//! What people are told of rollouts.

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_meta::{duration, time::Time};

use super::{
    STATE,
    state::{Command, Phase, State, What},
    sums::{Stage, Step, Sums},
};

/// `1 cluster`, `7 clusters`.
fn clusters(count: usize) -> String {
    match count {
        1 => "1 cluster".to_owned(),
        count => format!("{count} clusters"),
    }
}

/// `wave 2 of 4 (10%)`, by its place from 0 on.
pub(super) fn wave(state: &State, wave: usize) -> String {
    let name = state.waves.get(wave).map_or("", |wave| wave.name.as_str());
    format!("wave {} of {} ({name})", wave.saturating_add(1), state.waves.len())
}

/// A wave in a line: `wave 2 of 4 (10%), clusters: 7, began 2026-11-26T02:00:00Z`.
pub fn line_of(state: &State, at: usize) -> String {
    let Some(known) = state.waves.get(at) else { return wave(state, at) };
    let stands = match known.opened {
        Some(opened) => format!("began {opened}"),
        None if at < state.open || state.phase == Phase::Complete => "had no clusters".to_owned(),
        None if known.approve => "waits for its turn, and for somebody who lets it begin".to_owned(),
        None => "waits for its turn".to_owned(),
    };
    format!("{}, clusters: {}, {stands}", wave(state, at), known.clusters)
}

/// Whether it goes no further before a person says something. What comes after a change that was aborted goes on by itself.
pub fn waits(state: &State) -> bool {
    match state.phase {
        Phase::Paused | Phase::Breached | Phase::AwaitsApproval => true,
        Phase::Aborted => state.what == What::Agents,
        Phase::Complete | Phase::Running | Phase::Returned => false,
    }
}

/// Why a cluster of a wave has the change, or waits for it.
pub fn of_wave(state: &State, at: usize, reached: bool) -> String {
    let known = state.waves.get(at).and_then(|wave| wave.max_concurrency);
    let wave = wave(state, at);
    match state.phase {
        Phase::Complete => String::new(),
        Phase::Returned => format!("{wave}: the change was returned"),
        Phase::Running | Phase::AwaitsApproval if at < state.open && !reached => format!(
            "{wave} has begun, and changes {} at once: it waits for others of that wave",
            clusters(known.unwrap_or_default())
        ),
        _ if at < state.open => format!("{wave} has begun"),
        Phase::AwaitsApproval if at == state.open => format!("{wave} waits for an approval"),
        Phase::Running | Phase::AwaitsApproval => format!("waits for {wave}"),
        Phase::Paused => format!("waits for {wave}: the change is paused"),
        Phase::Breached => format!("waits for {wave}: the change was stopped by its gate"),
        Phase::Aborted => format!("keeps what it has: the change was aborted before {wave}"),
    }
}

/// `Revision web-5f`, `Version 0.6.0`: what goes out, at the beginning of a sentence.
fn named(state: &State) -> String {
    format!("{} {}", capital(state.what.noun()), state.revision)
}

pub(super) fn begins(state: &State) -> String {
    let last = state.open.saturating_sub(1);
    let count = state.waves.get(last).map_or(0, |wave| wave.clusters);
    format!("{} goes out: {} begins, with {}.", named(state), wave(state, last), clusters(count))
}

/// Why a person has to decide: nobody of a wave is left.
pub(super) fn left(state: &State, at: usize) -> String {
    format!("all clusters of {} have left, so nobody can say whether it is well", wave(state, at))
}

/// Why a person has to decide: nobody of a wave takes it, or those that have it keep the others waiting.
pub(super) fn stuck(state: &State, sums: &Sums, deadline: Duration) -> String {
    let last = wave(state, state.open.saturating_sub(1));
    let concerned = || sums.all().filter(|(stage, _)| *stage != Stage::Unconcerned);
    let of = clusters(concerned().map(|(_, count)| count).sum());
    let parts: Vec<_> = concerned().map(|(stage, count)| format!("{count} {}", said(stage))).collect();
    let parts = parts.join(", ");
    let deadline = duration::format(deadline);
    let (what, when) = match sums.of(Stage::Queued) {
        0 => (format!("none of the clusters of {last} has taken it or is well with it"), "when one does"),
        _ => (
            format!(
                "no further cluster of {last} has had its turn, since too many before it are not through"
            ),
            "when fewer are",
        ),
    };
    format!("for {deadline} {what} (of {of}: {parts}); it goes on by itself {when}")
}

pub(super) fn awaits(state: &State) -> String {
    if !state.why.is_empty() {
        return format!(
            "{} waits for somebody who lets it go on ({} resume): {}.",
            named(state),
            state.what.tool(),
            state.why
        );
    }
    format!(
        "{} is well so far. {} waits for somebody who lets it begin ({} resume).",
        named(state),
        capital(&wave(state, state.open)),
        state.what.tool()
    )
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

pub(super) fn stopped(state: &State, returned: bool) -> String {
    let what = match returned {
        true => "The clusters that have it go back to what they had.".to_owned(),
        false => format!(
            "No more clusters are changed until somebody says resume, abort or return ({}).",
            state.what.tool()
        ),
    };
    format!("{} was stopped: {}. {what}", named(state), state.why)
}

/// The clusters for which a gate is broken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failures {
    /// Those that waited for no deadline: they were evicted, or said themselves that they will not be well with it.
    pub(super) at_once: usize,
    /// Those that were not well in time.
    pub(super) late: usize,
    /// Those of them that have said nothing of the change.
    pub(super) unreported: usize,
    /// All that the gate asks.
    pub(super) heard: usize,
}

impl Failures {
    pub(super) fn told(self, what: What, deadline: Duration) -> String {
        let Self { at_once, late, unreported, heard } = self;
        let were = |count: usize| if count == 1 { "was" } else { "were" };
        let late_are = format!("{} not well within {}", were(late), duration::format(deadline));
        let ended = match what {
            What::Change => format!("{} evicted with the change", were(at_once)),
            What::Agents => "gave it up or refused it".to_owned(),
        };
        let who = match (unreported, heard) {
            (0, heard) => format!("{} that {} heard", clusters(heard), were(heard)),
            (_, 1) => format!("{} that is reachable", clusters(1)),
            (_, heard) => format!("{} that are reachable", clusters(heard)),
        };
        let told = match (at_once, late) {
            (0, _) => format!("{late} of {who} {late_are}"),
            (_, 0) => format!("{at_once} of {who} {ended}"),
            _ => {
                format!(
                    "{} of {who} failed: {at_once} {ended}, and {late} {late_are}",
                    at_once.saturating_add(late)
                )
            }
        };
        match unreported {
            0 => told,
            1 => format!("{told}; 1 of them has not reported the {}", what.change()),
            _ => format!("{told}; {unreported} of them have not reported the {}", what.change()),
        }
    }
}

pub(super) fn silent(silent: usize, changed: usize, others: usize, of: usize) -> String {
    format!(
        "{silent} of {} fell silent after they were changed, and {others} of {of} that were not changed",
        clusters(changed)
    )
}

pub(super) fn complete(state: &State, silent: usize) -> String {
    match silent {
        0 => format!("{} has reached every cluster.", named(state)),
        _ => format!("{} has gone to every cluster; {}.", named(state), except(silent)),
    }
}

pub(super) fn except(silent: usize) -> String {
    let have = if silent == 1 { "has" } else { "have" };
    format!("{} {have} not reported it yet", clusters(silent))
}

pub(super) fn nothing_under_way(command: Command) -> String {
    match command {
        Command::Return => {
            "the last change has gone everywhere, and what was before it is not kept: change the template back".to_owned()
        }
        _ => "no rollout is under way".to_owned(),
    }
}

pub(super) fn already(command: Command, phase: Phase) -> String {
    let is = match phase {
        Phase::Running => "running",
        Phase::AwaitsApproval => "waiting for an approval",
        Phase::Paused => "paused",
        Phase::Breached => "stopped by its gate",
        Phase::Aborted => "aborted",
        Phase::Returned => "returned",
        Phase::Complete => "complete",
    };
    format!("the rollout is {is}, and {command} changes nothing")
}

pub(super) fn done(command: Command, state: &State) -> String {
    let what = named(state);
    match command {
        Command::Pause => format!("{what} is paused: no more clusters are changed."),
        Command::Resume => format!("{what} goes on."),
        Command::Abort => {
            format!("{what} is aborted: the clusters that have it keep it, no others get it.")
        }
        Command::Return => {
            format!("{what} is taken back: its clusters get what they had before.")
        }
    }
}

/// Why nothing can be returned.
pub fn no_return() -> &'static str {
    "it cannot be returned, since what was everywhere before is not kept any more"
}

/// What happens where the policy asks for no waves any more.
pub fn outlives() -> &'static str {
    "The policy asks for no waves (any more), but the last change has not reached every cluster. Its waves and its gate stay in \
     force until it is complete. If it waits for a person, say what becomes of it: karmada-hub rollout resume, abort or return."
}

/// The same, in a condition.
pub fn outlived(message: &str) -> String {
    format!("{message}; its policy asks for no waves any more, and these stay in force until it is complete")
}

/// Why nothing goes on where how far a change is cannot be read, and what helps.
pub fn unreadable(why: &str, outlived: bool) -> String {
    let helps = match outlived {
        false => "Take the annotation off: what is on the clusters then counts as good".to_owned(),
        true => format!(
            "Its policy asks for no waves any more: if you take the annotation off, the change reaches all clusters at once. To \
             keep waves, put {} back on the policy first",
            extension::ROLLOUT
        ),
    };
    format!("the annotation {STATE} of the binding cannot be read, so no cluster is changed: {why}. {helps}")
}

/// The same where a revision cannot be kept.
pub fn unkept(why: &str) -> String {
    format!(
        "the change goes nowhere, because it cannot be kept to be gone back to: {why}. Make it smaller. Or, to send it to all \
         clusters at once, take {} off the policy, and {STATE} off the binding if an earlier change is not complete",
        extension::ROLLOUT
    )
}

/// The reason of the condition.
pub fn reason(state: &State) -> &'static str {
    match state.phase {
        Phase::Complete if !state.why.is_empty() => "CompleteExceptSilent",
        Phase::Complete => "Complete",
        Phase::Running => "Progressing",
        Phase::AwaitsApproval => "AwaitsApproval",
        Phase::Paused => "Paused",
        Phase::Breached => "GateBroken",
        Phase::Aborted => "Aborted",
        Phase::Returned => "Returned",
    }
}

/// Its message: how far a rollout is. Sums are always in it.
pub fn message(state: &State, step: &Step) -> String {
    let revision = format!("{} {}", state.what.noun(), state.revision);
    let last = state.open.checked_sub(1);
    let head = match state.phase {
        Phase::Complete if state.why.is_empty() => format!("{revision} has reached every cluster"),
        Phase::Complete => format!("{revision} has gone to every cluster; {}", state.why),
        Phase::Running => {
            let at = last.map_or_else(|| "begins".to_owned(), |last| wave(state, last));
            format!("{revision}: {at}{}", soaks(state, last))
        }
        Phase::AwaitsApproval if !state.why.is_empty() => {
            format!("{revision} waits for an approval: {}", state.why)
        }
        Phase::AwaitsApproval => {
            format!("{revision}: {} waits for an approval", wave(state, state.open))
        }
        Phase::Paused | Phase::Breached | Phase::Aborted | Phase::Returned => {
            let at = last.map_or_else(
                || "before its first wave".to_owned(),
                |last| format!("in {}", wave(state, last)),
            );
            let is = match state.phase {
                Phase::Paused => "paused",
                Phase::Breached => "stopped by its gate",
                Phase::Aborted => "aborted",
                _ => "returned",
            };
            format!("{revision} is {is} {at}: {}", state.why)
        }
    };
    let sums = sums(step);
    if sums.is_empty() { head } else { format!("{head}; {sums}") }
}

fn soaks(state: &State, last: Option<usize>) -> String {
    let until = state.well.zip(last).and_then(|(well, last)| {
        let soak = jiff::SignedDuration::try_from(state.waves.get(last)?.soak()).ok()?;
        Some(Time::from_timestamp(well.timestamp().checked_add(soak).ok()?))
    });
    until.map_or_else(String::new, |until| format!(" is well, and is watched until {until}"))
}

/// `clusters: 45 healthy, 2 silent since before, 900 wait for a later wave`.
pub fn sums(step: &Step) -> String {
    let parts: Vec<_> = step.sums.all().map(|(stage, count)| format!("{count} {}", said(stage))).collect();
    if parts.is_empty() { String::new() } else { format!("clusters: {}", parts.join(", ")) }
}

/// A stage in words.
pub fn said(stage: Stage) -> &'static str {
    match stage {
        Stage::Unconcerned => "unchanged by it",
        Stage::NotYet => "not changed yet",
        Stage::Due => "about to be changed",
        Stage::Queued => "waiting for others of their wave",
        Stage::WaitingSilent => "silent since before",
        Stage::SilentAfterChange => "silent since they were changed",
        Stage::SilentLater => "silent",
        Stage::WaitingHeld => "held back on the cluster",
        Stage::Offered => "not reported yet",
        Stage::Applied => "applied and not well yet",
        Stage::Healthy => "healthy",
        Stage::Failed => "failed",
        Stage::Overdue => "not reported in time",
        Stage::Mute => "whose agent cannot report it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_says_who_was_late_and_who_was_not() {
        let told = |what, at_once, late, unreported, heard| {
            Failures { at_once, late, unreported, heard }.told(what, Duration::from_secs(300))
        };
        let rows = [
            (told(What::Change, 0, 1, 0, 1), "1 of 1 cluster that was heard was not well within 5m0s"),
            (told(What::Change, 0, 2, 0, 9), "2 of 9 clusters that were heard were not well within 5m0s"),
            (
                told(What::Change, 0, 2, 1, 9),
                "2 of 9 clusters that are reachable were not well within 5m0s; 1 of them has not reported the change",
            ),
            (told(What::Change, 1, 0, 0, 9), "1 of 9 clusters that were heard was evicted with the change"),
            (told(What::Agents, 2, 0, 0, 9), "2 of 9 clusters that were heard gave it up or refused it"),
            (
                told(What::Agents, 1, 2, 2, 9),
                "3 of 9 clusters that are reachable failed: 1 gave it up or refused it, and 2 were not well within 5m0s; 2 of them \
                 have not reported the version",
            ),
        ];
        for (said, want) in rows {
            assert_eq!(said, want);
        }
    }
}
