//! One look at a rollout: what the clusters say, and what follows.

use std::{collections::BTreeMap, time::Duration};

use karmada_meta::time::Time;

use super::{
    asked::{Allowed, Gate},
    clocks::{Clocks, Given, Late, Stood},
    evicted::evicted,
    facts::{Fact, Member, Seen},
    state::{Command, Phase, Place, State, Wave},
    sums::{Stage, Step, Sums, Told},
    words,
};

/// Silence is compared with that of so many unchanged clusters at least.
const BASELINE: usize = 20;
/// A cluster may have been silent for so long before anybody notices.
const UNNOTICED: Duration = Duration::from_secs(60);

/// Looks at a rollout, and takes it further.
pub fn step(state: &mut State, gate: &Gate, members: &[Member<'_>], now: Time, clocks: &mut Clocks) -> Step {
    let mut step = Step::default();
    look(state, gate, members, now, clocks, &mut step);
    if !state.is_under_way() {
        clocks.stuck = None;
        return step;
    }
    if let Some(why) = broken(state, gate, &step, members) {
        state.phase = if gate.returns { Phase::Returned } else { Phase::Breached };
        state.why = why;
        state.well = None;
        step.told.push((Told::Stopped, words::stopped(state, gate.returns)));
        look(state, gate, members, now, clocks, &mut step);
        return step;
    }
    let is_stuck = is_stuck(state, &step.wave) || is_full(state, &step);
    let awaits_them = state.phase == Phase::AwaitsApproval && !state.why.is_empty();
    if awaits_them && !is_stuck && lost(state, members).is_none() {
        // Those that had left are back, or one of those that waited does so no more.
        state.phase = Phase::Running;
        state.why.clear();
    }
    let reach =
        state.open.checked_sub(1).and_then(|last| state.waves.get(last)?.reach).map(|(reach, _)| reach);
    clocks.stuck = (is_stuck && state.phase == Phase::Running)
        .then(|| clocks.stuck.filter(|(was, _)| *was == reach).unwrap_or((reach, now)));
    let before = state.open;
    while state.is_under_way() && passed(state, gate, members, now, clocks, &mut step) {
        let goes_on = advance(state, members, now, &mut step);
        look(state, gate, members, now, clocks, &mut step);
        if !goes_on {
            break;
        }
    }
    if widen(state, members, now, &step) {
        look(state, gate, members, now, clocks, &mut step);
    }
    if let Some((_, since)) = clocks.stuck.filter(|_| state.open == before && state.phase == Phase::Running) {
        // Those that are changing have their time, and may be silent for as long beside it.
        let waits_for_change = is_full(state, &step) && !is_held_up(state, &step);
        let patience = if waits_for_change { gate.deadline * 2 } else { gate.deadline };
        let left = patience.saturating_sub(since.elapsed(now.timestamp().into()));
        if left.is_zero() {
            state.phase = Phase::AwaitsApproval;
            state.well = None;
            state.why = words::stuck(state, &step.wave, patience);
            step.told.push((Told::Stopped, words::awaits(state)));
        } else {
            step.again = Some(step.again.map_or(left, |again| again.min(left)));
        }
    }
    if state.open != before {
        clocks.stuck = None;
        // What the new wave is given is yet to be written; that brings its clusters back here.
        step.again = Some(step.again.map_or(gate.deadline, |again| again.min(gate.deadline)));
    }
    step
}

/// Counts, and runs the clocks of those that are not well.
fn look(
    state: &mut State,
    gate: &Gate,
    members: &[Member<'_>],
    now: Time,
    clocks: &mut Clocks,
    step: &mut Step,
) {
    (step.sums, step.wave, step.again) = (Sums::default(), Sums::default(), None);
    (step.changing, step.at_once) = (0, 0);
    let (mut running, mut stood, mut given) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut soonest = Soonest::default();
    for member in members {
        let Some(name) = member.name() else {
            let stage = stage(state, gate, member, None, clocks.since);
            step.at_once += member.count() * usize::from(stage == Stage::Failed);
            let is_changing = is_changing(state, gate, member, stage, now, &mut soonest);
            step.count(state, member, stage, is_changing);
            continue;
        };
        let got = got(state, gate, member, clocks.given.remove(name), now);
        let mut stage = stage(state, gate, member, got, clocks.since);
        step.at_once += usize::from(stage == Stage::Failed);
        if let Some(got) = got {
            given.insert(name.to_owned(), got);
        }
        let mut is_scaled = false;
        if let Some(mut was) = was_well(member, stage, clocks.stood.remove(name)) {
            if may_be_scaled(member, stage, was) {
                let since = *was.since.get_or_insert(now);
                let left = gate.deadline.saturating_sub(since.elapsed(now.timestamp().into()));
                if soonest.is_left(left) {
                    // What was there before still is.
                    (stage, is_scaled) = (Stage::Healthy, true);
                }
            }
            stood.insert(name.to_owned(), was);
        }
        let late = match stage {
            Stage::Applied => Some((Late::Unwell, Stage::Failed)),
            Stage::Offered if member.mute => Some((Late::Unheard, Stage::Mute)),
            Stage::Due | Stage::Offered => Some((Late::Unheard, Stage::Overdue)),
            _ => None,
        };
        let mut clock = clocks.running.remove(name).unwrap_or_default();
        let used = clock.run(late.map(|(late, _)| late), member.silent, now);
        if !is_scaled {
            clock.is_well(stage == Stage::Healthy, now, gate.deadline);
        }
        if let Some((_, late)) = late
            && !soonest.is_left(gate.deadline.saturating_sub(used))
        {
            stage = late;
        }
        let used = clock.runs.is_some() || clock.unheard + clock.unwell > Duration::ZERO;
        if used && !matches!(stage, Stage::Unconcerned | Stage::NotYet) {
            running.insert(name.to_owned(), clock);
        }
        let is_changing = is_changing(state, gate, member, stage, now, &mut soonest);
        step.count(state, member, stage, is_changing);
    }
    (clocks.running, clocks.stood, clocks.given) = (running, stood, given);
    clocks.since.get_or_insert(now);
    evicted(state, members, clocks, step);
    if state.is_under_way() {
        step.again = soonest.0;
    }
}

/// Whether a member takes a place among those of the last wave that may be changing at once.
fn is_changing(
    state: &State,
    gate: &Gate,
    member: &Member<'_>,
    stage: Stage,
    now: Time,
    soonest: &mut Soonest,
) -> bool {
    if member.wave + 1 != state.open {
        return false;
    }
    let keeps_its_place = match stage {
        Stage::Due | Stage::Offered | Stage::Applied => return true,
        // What has cut its link must not make room for the next one at once.
        Stage::SilentAfterChange => true,
        // Nor must what was never well with it, and is silent now and then.
        Stage::SilentLater => matches!(member.fact, Fact::New(Seen::Unsaid | Seen::Unwell)),
        _ => false,
    };
    member.silent.filter(|_| keeps_its_place).is_some_and(|since| {
        soonest.is_left(gate.deadline.saturating_sub(since.elapsed(now.timestamp().into())))
    })
}

/// When something is otherwise, of all that takes time.
#[derive(Debug, Default)]
struct Soonest(Option<Duration>);

impl Soonest {
    /// Whether there is time left, which is waited for then.
    fn is_left(&mut self, left: Duration) -> bool {
        if left.is_zero() {
            return false;
        }
        self.0 = Some(self.0.map_or(left, |known| known.min(left)));
        true
    }
}

/// Whether a member's turn has come. Those of a crowd wait for none.
fn has_turn(state: &State, member: &Member<'_>) -> bool {
    member.name().is_none_or(|name| state.reaches(member.wave, name))
}

/// When a cluster was given the change, as far as that is looked after.
fn got(state: &State, gate: &Gate, member: &Member<'_>, known: Option<Given>, now: Time) -> Option<Given> {
    match member.fact {
        Fact::Unconcerned => None,
        // It is about to be.
        Fact::Old => {
            let wave = state.waves.get(member.wave).filter(|_| member.wave < state.open)?;
            let is_due = wave.max_concurrency.is_some() && state.is_under_way() && has_turn(state, member);
            is_due.then(|| Given { at: now, heard: member.silent.is_none() })
        }
        // Silence that begins later may be for anything.
        Fact::New(_) => known.filter(|given| {
            member.silent.is_some() || given.at.elapsed(now.timestamp().into()) <= gate.deadline
        }),
    }
}

/// How a cluster was when it was last well with the change, which may be now.
fn was_well(member: &Member<'_>, stage: Stage, before: Option<Stood>) -> Option<Stood> {
    match (member.fact, stage) {
        (Fact::New(_), Stage::Healthy) => Some(Stood { copies: member.copies, since: None }),
        (Fact::New(_), _) => before,
        _ => None,
    }
}

/// Whether a cluster that was well with the change may not be for no other reason than that it is scaled: the Work carries another
/// number, of which nothing is reported yet, or copies are being made.
fn may_be_scaled(member: &Member<'_>, stage: Stage, was: Stood) -> bool {
    match stage {
        Stage::Offered => true,
        Stage::Applied => member.copies.zip(was.copies).is_some_and(|(is, was)| is.are_scaled(was)),
        _ => false,
    }
}

/// Whether a wave has no clusters for which the change is one.
fn is_empty(members: &[Member<'_>], wave: usize) -> bool {
    let concerned = |member: &Member<'_>| match member.fact {
        Fact::Unconcerned => false,
        // It will not be given it any more.
        Fact::Old => !member.leaving,
        Fact::New(_) => true,
    };
    !members.iter().any(|member| member.wave == wave && concerned(member))
}

/// The wave that had clusters and has none any more, so that nobody can say whether it is well: the last that has begun, or
/// the next one.
fn lost(state: &State, members: &[Member<'_>]) -> Option<usize> {
    let lost = |wave: &usize| {
        let had = |wave: &Wave| wave.clusters > 0 || wave.opened.is_some();
        state.waves.get(*wave).is_some_and(had) && is_empty(members, *wave)
    };
    let opened = |wave: &usize| state.waves.get(*wave).is_some_and(|wave| wave.opened.is_some());
    state.open.checked_sub(1).filter(opened).into_iter().chain([state.open]).find(lost)
}

/// Whether no cluster of the last wave that has begun is well, nor about to be, and some hold the change back or have failed: then
/// nothing says whether the next wave may begin, for as long as that is so. Those that are silent come back by themselves.
fn is_stuck(state: &State, wave: &Sums) -> bool {
    let is_last = state.open == state.waves.len();
    let moves = wave.expected() + wave.of(Stage::Queued) + wave.of(Stage::Applied) + wave.of(Stage::Healthy);
    let waits = wave.of(Stage::WaitingHeld) + wave.of(Stage::Mute) + wave.failed();
    !is_last && moves == 0 && waits > 0
}

/// Where only so many of the last wave that has begun may be changing at once: that number.
fn most(state: &State) -> Option<usize> {
    state.waves.get(state.open.checked_sub(1)?)?.max_concurrency
}

/// Whether more of them hold the change back. They begin together when a window opens that they share; a person may let it go on
/// without them.
fn is_held_up(state: &State, step: &Step) -> bool {
    let held = step.wave.of(Stage::WaitingHeld).saturating_sub(state.accepted_held);
    most(state).is_some_and(|most| held > most)
}

/// How many more of that wave may have the change now, where that is bounded.
fn free(state: &State, step: &Step) -> Option<usize> {
    let most = most(state)?;
    Some(if is_held_up(state, step) { 0 } else { most.saturating_sub(step.changing) })
}

/// Whether clusters of that wave wait for their turn, and those before them leave no room.
fn is_full(state: &State, step: &Step) -> bool {
    step.wave.of(Stage::Queued) > 0 && free(state, step) == Some(0)
}

/// How far a cluster is, but for what it is late with. `looked` says since when it is looked.
fn stage(
    state: &State,
    gate: &Gate,
    member: &Member<'_>,
    given: Option<Given>,
    looked: Option<Time>,
) -> Stage {
    let wave = state.waves.get(member.wave).filter(|_| member.wave < state.open);
    let opened = wave.and_then(|wave| wave.opened);
    match (member.fact, member.silent) {
        (Fact::Unconcerned, _) => Stage::Unconcerned,
        // It will not be given it any more, or it was, and is evicted.
        (Fact::Old, _) if member.leaving => Stage::Unconcerned,
        (Fact::New(_), _) if member.leaving => Stage::Failed,
        // Silence changes nothing about that.
        (Fact::New(Seen::Failed), _) => Stage::Failed,
        (Fact::Old, _) if opened.is_none() || !state.is_under_way() => Stage::NotYet,
        (Fact::Old, Some(_)) => Stage::WaitingSilent,
        (Fact::Old, None) if !has_turn(state, member) => Stage::Queued,
        (Fact::Old, None) => Stage::Due,
        (Fact::New(_), Some(since)) => {
            let soon = |from: Time| from.elapsed(since.timestamp().into()) <= gate.deadline;
            // Where each has a turn of its own and none is known, it was long ago, or before it was looked.
            let has_turns = wave.is_some_and(|wave| wave.max_concurrency.is_some());
            match (given, wave.and_then(Wave::last_begun), opened) {
                (Some(given), ..) if !given.heard && since <= given.at => Stage::WaitingSilent,
                (Some(given), ..) if soon(given.at) => Stage::SilentAfterChange,
                (Some(_), ..) => Stage::SilentLater,
                (None, _, Some(opened)) if was_away(since, opened) => Stage::WaitingSilent,
                (None, ..) if has_turns && looked.is_some_and(|looked| !soon(looked)) => Stage::SilentLater,
                (None, Some(begun), _) if soon(begun) => Stage::SilentAfterChange,
                (None, ..) => Stage::SilentLater,
            }
        }
        (Fact::New(Seen::Held), None) => Stage::WaitingHeld,
        (Fact::New(Seen::Unsaid), None) => Stage::Offered,
        (Fact::New(Seen::Unwell), None) => Stage::Applied,
        (Fact::New(Seen::Well), None) => Stage::Healthy,
    }
}

/// Whether a cluster that is silent since some time was known to be when something else happened.
fn was_away(since: Time, then: Time) -> bool {
    since.elapsed(then.timestamp().into()) >= UNNOTICED
}

/// How many may be not well.
fn allowed(state: &State, gate: &Gate, sums: &Sums) -> usize {
    gate.max_failures.of(sums.heard()).saturating_add(state.accepted_failures)
}

/// Why the gate is broken, if it is.
fn broken(state: &State, gate: &Gate, step: &Step, members: &[Member<'_>]) -> Option<String> {
    let sums = &step.sums;
    let (failed, heard) = (sums.failed(), sums.heard());
    if failed > allowed(state, gate, sums) {
        let (at_once, unreported) = (step.at_once, sums.of(Stage::Overdue));
        let failures = words::Failures { at_once, late: failed.saturating_sub(at_once), unreported, heard };
        return Some(failures.told(state.what, gate.deadline));
    }
    let silent = sums.of(Stage::SilentAfterChange);
    // One link goes down now and then.
    if silent < 2 || silent <= state.accepted_silent {
        return None;
    }
    let others = [Stage::Offered, Stage::WaitingHeld, Stage::Mute].map(|stage| sums.of(stage));
    let changed = heard + others.iter().sum::<usize>() + silent;
    // Those of a wave that has begun are unchanged as well while they wait for their turn.
    let waits = |member: &Member<'_>| member.wave >= state.open || !has_turn(state, member);
    let unchanged = members.iter().filter(|member| member.fact == Fact::Old && waits(member));
    let (mut others, mut silent_others) = (0, 0);
    for member in unchanged {
        let since = member.silent;
        if since.is_some_and(|since| state.began.is_some_and(|began| was_away(since, began))) {
            // It was away before.
            continue;
        }
        others += member.count();
        if since.is_some() {
            silent_others += member.count();
        }
    }
    if others < BASELINE.max(silent) {
        // With so few to compare it may be anything.
        return None;
    }
    let share = |part: usize, of: usize| if of == 0 { 0.0 } else { part as f64 / of as f64 };
    let beyond = share(silent, changed) - share(silent_others, others);
    (beyond > gate.silent_after_change.fraction())
        .then(|| words::silent(silent, changed, silent_others, others))
}

/// Whether the last wave that has begun may be followed by the next. Notes since when it is well, and when to look again.
fn passed(
    state: &mut State,
    gate: &Gate,
    members: &[Member<'_>],
    now: Time,
    clocks: &Clocks,
    step: &mut Step,
) -> bool {
    let Some(last) = state.open.checked_sub(1) else { return true };
    let Some(begun) = state.waves.get(last).filter(|wave| wave.opened.is_some()).and_then(Wave::last_begun)
    else {
        return true;
    };
    if members.is_empty() {
        return false;
    }
    if is_empty(members, last) {
        // A person decides.
        return true;
    }
    if state.approved > state.open && is_stuck(state, &step.wave) {
        // A person has.
        return true;
    }
    if step.wave.of(Stage::Queued) > 0 {
        state.well = None;
        return false;
    }
    let mut again = |wait: Duration| step.again = Some(step.again.map_or(wait, |known| known.min(wait)));
    let (open_for, wave, sums) = (begun.elapsed(now.timestamp().into()), &step.wave, &step.sums);
    let of =
        wave.all().filter(|(stage, _)| *stage != Stage::Unconcerned).map(|(_, count)| count).sum::<usize>();
    // Those that could speak are waited for as long as a cluster has to become well; after a restart anew.
    let looked_for = clocks.since.map_or(Duration::ZERO, |since| since.elapsed(now.timestamp().into()));
    let waited = open_for.min(looked_for);
    let waits = sums.expected() > 0 && waited < gate.deadline;
    let is_last = state.open == state.waves.len();
    let wanted = match gate.min_healthy {
        Allowed::Count(count) => count.min(of),
        Allowed::Share(share) => share.up(wave.heard()).max(1),
    };
    let enough = is_last || wave.of(Stage::Healthy) >= wanted;
    let unwell = sums.failed() + sums.of(Stage::Applied);
    if waits {
        if unwell > allowed(state, gate, sums) {
            state.well = None;
        }
        again(gate.deadline.saturating_sub(waited));
        return false;
    }
    let too_many = unwell > allowed(state, gate, sums);
    if too_many || !enough {
        // What has just been scaled is to be reported anew; that alone is no reason to begin to watch it anew.
        if too_many || sums.expected() == 0 {
            state.well = None;
        }
        return false;
    }
    let since = *state.well.get_or_insert(now);
    let soak = state.waves[last].soak();
    let left = soak.saturating_sub(since.elapsed(now.timestamp().into()));
    if !left.is_zero() {
        again(left);
    }
    left.is_zero()
}

/// Begins the next wave that has clusters, or ends. Not where a person has to let it begin.
fn advance(state: &mut State, members: &[Member<'_>], now: Time, step: &mut Step) -> bool {
    if members.is_empty() {
        return false;
    }
    loop {
        if let Some(lost) = lost(state, members).filter(|_| state.approved <= state.open) {
            if state.phase != Phase::AwaitsApproval || state.why.is_empty() {
                state.phase = Phase::AwaitsApproval;
                state.well = None;
                state.why = words::left(state, lost);
                step.told.push((Told::Stopped, words::awaits(state)));
            }
            return false;
        }
        if state.open >= state.waves.len() || !is_empty(members, state.open) {
            break;
        }
        state.open += 1;
    }
    let next = state.open;
    let Some(wave) = state.waves.get_mut(next) else {
        let silent = [
            Stage::WaitingSilent,
            Stage::SilentAfterChange,
            Stage::SilentLater,
            Stage::WaitingHeld,
            Stage::Offered,
            Stage::Due,
            Stage::Mute,
        ];
        let silent = silent.map(|stage| step.sums.of(stage)).iter().sum();
        end(state, silent);
        step.told.push((Told::Ended, words::complete(state, silent)));
        return true;
    };
    if wave.approve && state.approved <= next {
        if state.phase != Phase::AwaitsApproval || !state.why.is_empty() {
            state.phase = Phase::AwaitsApproval;
            state.why.clear();
            step.told.push((Told::Stopped, words::awaits(state)));
        }
        return false;
    }
    state.phase = Phase::Running;
    state.why.clear();
    state.well = None;
    wave.opened = Some(now);
    state.accepted_held = 0;
    state.began.get_or_insert(now);
    state.open += 1;
    step.told.push((Told::Advanced, words::begins(state)));
    true
}

/// Lets further clusters of the last wave that has begun have the change, where only so many may be changing at once. Whether there
/// were such. Silent ones are passed over, and take it when they are back. Those that are counted together have no turn yet: where
/// they are said one by one the next look gives it.
fn widen(state: &mut State, members: &[Member<'_>], now: Time, step: &Step) -> bool {
    let free = free(state, step).filter(|_| state.is_under_way()).unwrap_or_default();
    if free == 0 || step.wave.of(Stage::Queued) == 0 {
        return false;
    }
    let last = state.open - 1;
    let Some(wave) = state.waves.get_mut(last) else { return false };
    let waits = |member: &&Member<'_>| {
        member.wave == last && member.fact == Fact::Old && member.silent.is_none() && !member.leaving
    };
    let names = members.iter().filter(waits).filter_map(Member::name);
    let places = names.map(|name| Place::of(&state.seed, name));
    let mut places: Vec<Place> =
        places.filter(|place| wave.reach.is_none_or(|(reach, _)| *place > reach)).collect();
    if places.is_empty() {
        return false;
    }
    let nth = free.min(places.len()) - 1;
    let (_, reach, _) = places.select_nth_unstable(nth);
    wave.reach = Some((*reach, now));
    true
}

/// It went everywhere; of some clusters nothing was heard.
fn end(state: &mut State, silent: usize) {
    state.phase = Phase::Complete;
    state.well = None;
    state.evicted.clear();
    state.base.clone_from(&state.revision);
    state.kept = vec![state.revision.clone()];
    state.digests.retain(|name, _| *name == state.revision);
    state.why = if silent > 0 { words::except(silent) } else { String::new() };
    state.stopped.retain(|stopped| *stopped != state.revision);
}

/// Carries out what a person wants. `step` is the last look, and `returns` says whether what was before is kept.
///
/// # Errors
/// Why it cannot be done.
pub fn command(
    state: &mut State,
    command: Command,
    step: &Step,
    returns: bool,
) -> Result<(Told, String), String> {
    let was = state.phase;
    match (command, was) {
        (_, Phase::Complete) => return Err(words::nothing_under_way(command)),
        (Command::Return, _) if !returns => return Err(words::no_return().to_owned()),
        (Command::Pause, Phase::Running | Phase::AwaitsApproval | Phase::Breached) => {
            state.phase = Phase::Paused;
            state.why = "somebody paused it".to_owned();
        }
        (Command::Abort, Phase::Running | Phase::AwaitsApproval | Phase::Paused | Phase::Breached) => {
            state.phase = Phase::Aborted;
            state.why = "somebody aborted it".to_owned();
        }
        (Command::Return, was) if was != Phase::Returned => {
            state.phase = Phase::Returned;
            state.why = "somebody returned it".to_owned();
        }
        (Command::Resume, Phase::Paused | Phase::Breached) => {
            state.accepted_failures = step.sums.failed();
            state.accepted_silent = step.sums.of(Stage::SilentAfterChange);
            state.phase = Phase::Running;
            state.why.clear();
        }
        (Command::Resume, Phase::AwaitsApproval) => {
            match step.wave.of(Stage::Queued) {
                0 => state.approved = state.open.saturating_add(1),
                // It is the wave itself that goes on, without those that hold it back.
                _ => state.accepted_held = step.wave.of(Stage::WaitingHeld),
            }
            state.phase = Phase::Running;
            state.why.clear();
        }
        (Command::Resume, Phase::Aborted | Phase::Returned) => {
            // From its first wave on, as if it were new.
            state.waves.iter_mut().for_each(|wave| (wave.opened, wave.reach) = (None, None));
            (state.open, state.approved, state.began) = (0, 0, None);
            (state.accepted_failures, state.accepted_silent, state.accepted_held) = (0, 0, 0);
            state.evicted.clear();
            state.stopped.retain(|stopped| *stopped != state.revision);
            state.phase = Phase::Running;
            state.why.clear();
        }
        _ => return Err(words::already(command, was)),
    }
    if was != Phase::AwaitsApproval {
        state.well = None;
    }
    let told = match command {
        Command::Resume => Told::Advanced,
        Command::Pause | Command::Abort => Told::Stopped,
        Command::Return => Told::Ended,
    };
    Ok((told, words::done(command, state)))
}
