//! Whether removals go on, wait to be counted, or are held. Pure.
//!
//! What counts is a window: what was removed in it, and what is to be removed now, against what there was. So a removal in
//! slices is one removal, and the slice that makes it too large is held. Time is that of a monotonic clock alone: one that is
//! set an hour or a year on lets nothing go.

use std::{collections::VecDeque, time::Duration};

use karmada_meta::duration;
use serde::{Deserialize, Serialize};

/// So many objects are never too much: one of two is no accident.
const FLOOR: usize = 5;

/// Removals that come within this are one.
const WINDOW_MINUTES: i64 = 60;

/// What comes together is counted before it is begun: until nothing more has come for so long, and no longer than that.
const SETTLES: Duration = Duration::from_secs(2);
const SETTLES_AT_MOST: Duration = Duration::from_secs(10);

/// From when on removals are held, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalRule {
    /// A removal of more than this part of what is managed is held; with 100 none is.
    pub percent: u8,
    /// For how long, if nobody confirms it; without it: until somebody does.
    pub wait: Option<Duration>,
}

/// Whoever deletes something means it, unless the owner of the agent says otherwise.
impl Default for RemovalRule {
    fn default() -> Self {
        Self { percent: 100, wait: Some(Duration::from_secs(3600)) }
    }
}

/// How many objects there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// They are to stay.
    pub(super) living: usize,
    /// They are to be removed, and it was not begun.
    pub(super) pending: usize,
}

/// What becomes of what is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Go,
    /// More may come: again after this.
    Settle(Duration),
    Hold,
}

/// What comes together.
#[derive(Clone, Copy, Debug)]
struct Settling {
    /// Times of the monotonic clock.
    since: Duration,
    grown: Duration,
    wanted: usize,
}

/// What is held.
#[derive(Clone, Debug)]
struct Held {
    /// Whoever confirms it says this.
    id: String,
    /// How much there was when the timer was begun.
    counted: usize,
    /// How long it ran before `since`.
    ran: Duration,
    since: Duration,
}

/// What is known of removals.
#[derive(Debug)]
pub(super) struct Hold {
    rule: RemovalRule,
    /// Objects that were removed, by minute of the monotonic clock.
    spent: VecDeque<(i64, usize)>,
    /// Objects whose removal was confirmed, and not begun.
    confirmed: usize,
    settling: Option<Settling>,
    held: Option<Held>,
    /// When a pause of the timer was last written down.
    noted: Duration,
}

/// The same beyond the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Record {
    /// How many minutes ago, and how many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spent: Vec<(i64, usize)>,
    confirmed: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeldRecord {
    id: String,
    counted: usize,
    ran_seconds: u64,
}

fn minute(now: Duration) -> i64 {
    i64::try_from(now.as_secs() / 60).unwrap_or(i64::MAX)
}

impl Hold {
    pub(super) fn new(rule: RemovalRule) -> Self {
        Self { rule, spent: VecDeque::new(), confirmed: 0, settling: None, held: None, noted: Duration::ZERO }
    }

    pub(super) fn rule(&self) -> RemovalRule {
        self.rule
    }

    /// Goes on with what was written down before the start. The time between counts for nothing.
    pub(super) fn recall(&mut self, record: Record, now: Duration) {
        let today = minute(now);
        for (ago, count) in record.spent.into_iter().rev() {
            self.spent.push_front((today.saturating_sub(ago.max(0)), count));
        }
        self.confirmed += record.confirmed;
        if let (None, Some(held)) = (&self.held, record.held) {
            let ran = Duration::from_secs(held.ran_seconds);
            self.held = Some(Held { id: held.id, counted: held.counted, ran, since: now });
        }
    }

    /// Time went on; it counts for what is held, or not.
    pub(super) fn goes_on(&mut self, now: Duration, counts: bool) {
        if let Some(held) = &mut self.held {
            if counts {
                held.ran = held.ran_for(now);
            }
            held.since = now;
        }
    }

    /// What is to be written down.
    pub(super) fn record(&mut self, now: Duration) -> Record {
        self.noted = now;
        let today = minute(now);
        let held = |held: &Held| HeldRecord {
            id: held.id.clone(),
            counted: held.counted,
            ran_seconds: held.ran_for(now).as_secs(),
        };
        Record {
            spent: self.spent.iter().map(|(at, count)| (today - at, *count)).collect(),
            confirmed: self.confirmed,
            held: self.held.as_ref().map(held),
        }
    }

    /// Whether a timer has run for so long since it was written down that this is to be done again.
    pub(super) fn is_old(&self, now: Duration) -> bool {
        let step = self.rule.wait.unwrap_or(Duration::MAX) / 10;
        self.held.is_some() && now.saturating_sub(self.noted) >= step
    }

    /// By what a removal that is held is confirmed.
    pub(super) fn id(&self) -> Option<&str> {
        self.held.as_ref().map(|held| held.id.as_str())
    }

    /// For how long it is still held, if nobody confirms it.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        let wait = self.rule.wait?;
        self.held.as_ref().map(|held| wait.saturating_sub(held.ran_for(now)))
    }

    /// Whether there is anything that time changes.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_none() && self.spent.is_empty() && self.confirmed == 0
    }

    /// Judges the next removal. `id` makes a name for what is held.
    pub(super) fn judge(&mut self, counts: Counts, now: Duration, id: impl FnOnce() -> String) -> Pass {
        self.forget_old(now);
        if counts.pending == 0 {
            self.confirmed = 0;
        }
        let pending = counts.pending.saturating_sub(self.confirmed);
        let (wanted, all) = self.share(counts);
        if self.rule.percent >= 100 || wanted <= FLOOR {
            (self.held, self.settling) = (None, None);
            return Pass::Go;
        }
        if wanted * 100 <= all * usize::from(self.rule.percent) {
            self.held = None;
            return self.settle(wanted, now);
        }
        let Some(held) = &mut self.held else {
            self.held = Some(Held { id: id(), counted: pending, ran: Duration::ZERO, since: now });
            self.noted = now;
            return Pass::Hold;
        };
        if pending > held.counted + FLOOR {
            // Whoever was to look at it in that time has seen something smaller.
            (held.counted, held.ran, held.since) = (pending, Duration::ZERO, now);
        }
        if self.rule.wait.is_some_and(|wait| held.ran_for(now) >= wait) {
            self.confirm(counts);
            return Pass::Go;
        }
        Pass::Hold
    }

    /// Waits until all is counted that comes together.
    fn settle(&mut self, wanted: usize, now: Duration) -> Pass {
        let settling = self.settling.get_or_insert(Settling { since: now, grown: now, wanted });
        if wanted > settling.wanted {
            if now.saturating_sub(settling.grown) >= SETTLES {
                settling.since = now;
            }
            settling.grown = now;
        }
        settling.wanted = wanted;
        let quiet = SETTLES.saturating_sub(now.saturating_sub(settling.grown));
        let most = SETTLES_AT_MOST.saturating_sub(now.saturating_sub(settling.since));
        let pause = quiet.min(most);
        if pause.is_zero() { Pass::Go } else { Pass::Settle(pause) }
    }

    /// Somebody wants it so, or nobody has objected in time: what is pending now goes, and does not count for what follows.
    pub(super) fn confirm(&mut self, counts: Counts) {
        self.confirmed = counts.pending;
        self.spent.clear();
        (self.held, self.settling) = (None, None);
    }

    /// So many of what was pending are begun.
    pub(super) fn spend(&mut self, count: usize, now: Duration) {
        let confirmed = count.min(self.confirmed);
        self.confirmed -= confirmed;
        let count = count - confirmed;
        if count == 0 || self.rule.percent >= 100 {
            // Where nothing is ever held nothing is counted.
            return;
        }
        let today = minute(now);
        match self.spent.back_mut() {
            Some((at, sum)) if *at == today => *sum += count,
            _ => self.spent.push_back((today, count)),
        }
    }

    /// How many objects go within the window, and of how many.
    fn share(&self, counts: Counts) -> (usize, usize) {
        let spent: usize = self.spent.iter().map(|(_, count)| count).sum();
        let wanted = counts.pending.saturating_sub(self.confirmed) + spent;
        (wanted, counts.living + wanted)
    }

    fn forget_old(&mut self, now: Duration) {
        let first = minute(now).saturating_sub(WINDOW_MINUTES);
        while self.spent.front().is_some_and(|(at, _)| *at <= first) {
            self.spent.pop_front();
        }
    }

    /// What to tell people; `until` is when the timer is over, by the time of day.
    pub(super) fn sentence(
        &self,
        counts: Counts,
        cluster: &str,
        annotation: &str,
        until: Option<&str>,
    ) -> Option<String> {
        let held = self.held.as_ref()?;
        let (wanted, all) = self.share(counts);
        let timer = until.map(|until| format!("goes on at {until}, or ")).unwrap_or_default();
        Some(format!(
            "{wanted} of {all} objects of this cluster are to be removed within {}, which is more than {} % \
             (--hold-removals-above): {} of them wait. To keep them, put their templates or policies back. The removal \
             {timer}when it is confirmed: kubectl annotate cluster {cluster} --overwrite {annotation}={}",
            duration::format(Duration::from_secs(60 * WINDOW_MINUTES.unsigned_abs())),
            self.rule.percent,
            counts.pending,
            held.id
        ))
    }
}

impl Held {
    fn ran_for(&self, now: Duration) -> Duration {
        self.ran + now.saturating_sub(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: RemovalRule = RemovalRule { percent: 50, wait: Some(Duration::from_secs(3600)) };
    const MINUTE: u64 = 60;
    const HOUR: u64 = 3600;

    fn at(second: u64) -> Duration {
        // A process may have begun just now, or long ago.
        Duration::from_secs(100_000 + second)
    }

    fn judged(hold: &mut Hold, living: usize, pending: usize, second: u64) -> Pass {
        hold.judge(Counts { living, pending }, at(second), || "id".to_owned())
    }

    #[test]
    fn what_is_too_much_depends_on_what_there_is() {
        // (percent, objects that stay, objects that go, what becomes of them in the end)
        let rows = [
            (50, 1, 1, Pass::Go),
            (50, 0, 2, Pass::Go),
            (50, 0, 5, Pass::Go),
            (50, 0, 6, Pass::Hold),
            (50, 6, 6, Pass::Go),
            (50, 5, 6, Pass::Hold),
            (50, 500, 499, Pass::Go),
            (50, 500, 501, Pass::Hold),
            (10, 95, 5, Pass::Go),
            (10, 90, 10, Pass::Go),
            (10, 89, 11, Pass::Hold),
            (0, 1000, 5, Pass::Go),
            (0, 1000, 6, Pass::Hold),
            (100, 0, 1000, Pass::Go),
        ];
        for (percent, living, pending, want) in rows {
            let mut hold = Hold::new(RemovalRule { percent, ..HALF });
            judged(&mut hold, living, pending, 0);
            assert_eq!(judged(&mut hold, living, pending, 3), want, "{percent} {living} {pending}");
            assert_eq!(hold.id().is_some(), want == Pass::Hold);
        }
    }

    #[test]
    fn slices_are_one_removal() {
        let mut hold = Hold::new(HALF);
        let mut living = 100;
        // Ten every five minutes: each is little.
        let mut passed = 0;
        for slice in 0..12 {
            let second = slice * 5 * MINUTE;
            living -= 10;
            judged(&mut hold, living, 10, second);
            if judged(&mut hold, living, 10, second + 5) == Pass::Hold {
                break;
            }
            hold.spend(10, at(second + 5));
            passed += 10;
        }
        assert_eq!(passed, 50);
        // One object at a time, all at once.
        let mut hold = Hold::new(HALF);
        let mut passed = 0;
        while passed < 100 && judged(&mut hold, 100 - passed - 1, 1, passed as u64 * 20) != Pass::Hold {
            judged(&mut hold, 100 - passed - 1, 1, passed as u64 * 20 + 5);
            hold.spend(1, at(passed as u64 * 20 + 5));
            passed += 1;
        }
        assert_eq!(passed, 50);
        // What was removed long ago is over.
        let mut hold = Hold::new(HALF);
        hold.spend(50, at(0));
        assert_eq!(judged(&mut hold, 40, 10, 59 * MINUTE), Pass::Hold);
        judged(&mut hold, 40, 10, 61 * MINUTE);
        assert_eq!(judged(&mut hold, 40, 10, 61 * MINUTE + 5), Pass::Go);
        assert!(hold.id().is_none());
    }

    #[test]
    fn what_comes_together_is_counted_before_it_is_begun() {
        let mut hold = Hold::new(HALF);
        assert_eq!(judged(&mut hold, 98, 2, 0), Pass::Go, "little waits for nothing");
        hold.spend(2, at(0));
        assert_eq!(judged(&mut hold, 90, 8, 0), Pass::Settle(SETTLES));
        assert_eq!(judged(&mut hold, 70, 28, 1), Pass::Settle(SETTLES));
        assert_eq!(judged(&mut hold, 10, 88, 2), Pass::Hold);
        // It never stops coming, and is not much.
        let mut hold = Hold::new(HALF);
        let passes: Vec<_> =
            (0..12).map(|second| judged(&mut hold, 1000, 10 + second as usize, second)).collect();
        assert_eq!(passes[9], Pass::Settle(Duration::from_secs(1)));
        assert_eq!(passes[10..], [Pass::Go, Pass::Go]);
        // What begins after that is counted anew.
        judged(&mut hold, 1000, 21, 20);
        assert_eq!(judged(&mut hold, 1000, 40, 21), Pass::Settle(SETTLES));
    }

    #[test]
    fn the_timer_begins_anew_when_much_joins() {
        let mut hold = Hold::new(HALF);
        assert_eq!(judged(&mut hold, 0, 60, 0), Pass::Hold);
        assert_eq!(hold.left(at(60)), Some(Duration::from_secs(HOUR - 60)));
        assert_eq!(judged(&mut hold, 0, 65, HOUR - 10), Pass::Hold, "a little joins it");
        assert_eq!(judged(&mut hold, 0, 66, HOUR - 5), Pass::Hold);
        assert_eq!(hold.left(at(HOUR - 5)), Some(Duration::from_secs(HOUR)));
        assert_eq!(judged(&mut hold, 0, 66, 2 * HOUR - 6), Pass::Hold);
        assert_eq!(judged(&mut hold, 0, 66, 2 * HOUR - 5), Pass::Go);
        let forever = RemovalRule { wait: None, ..HALF };
        let mut hold = Hold::new(forever);
        for day in 0..400 {
            assert_eq!(judged(&mut hold, 0, 60, day * 24 * HOUR), Pass::Hold);
        }
        assert_eq!(hold.left(at(0)), None);
    }

    #[test]
    fn time_counts_only_where_it_is_said_to() {
        let mut hold = Hold::new(HALF);
        hold.goes_on(at(0), true);
        assert_eq!(judged(&mut hold, 0, 60, 0), Pass::Hold);
        let mut goes_on = |second: u64, counts: bool| {
            hold.goes_on(at(second), counts);
            (judged(&mut hold, 0, 60, second), hold.left(at(second)).map(|left| left.as_secs() / MINUTE))
        };
        assert_eq!(goes_on(10 * MINUTE, true), (Pass::Hold, Some(50)));
        assert_eq!(goes_on(5 * HOUR, false), (Pass::Hold, Some(50)));
        assert_eq!(goes_on(9 * HOUR, false), (Pass::Hold, Some(50)));
        assert_eq!(goes_on(9 * HOUR + 49 * MINUTE, true), (Pass::Hold, Some(1)));
        assert_eq!(goes_on(9 * HOUR + 50 * MINUTE, true), (Pass::Go, None));
    }

    #[test]
    fn what_is_confirmed_goes_and_what_follows_counts_for_itself() {
        let mut hold = Hold::new(HALF);
        assert_eq!(judged(&mut hold, 20, 60, 0), Pass::Hold);
        hold.confirm(Counts { living: 20, pending: 60 });
        for done in 0..60 {
            assert_eq!(judged(&mut hold, 20, 60 - done, 1), Pass::Go, "{done}");
            hold.spend(1, at(1));
        }
        assert_eq!(judged(&mut hold, 15, 5, 2), Pass::Go);
        hold.spend(5, at(2));
        assert_eq!(judged(&mut hold, 9, 6, 3), Pass::Hold, "11 of 20");
        // What is taken back before it was begun is not held against others.
        let mut hold = Hold::new(HALF);
        assert_eq!(judged(&mut hold, 20, 60, 0), Pass::Hold);
        assert_eq!(judged(&mut hold, 80, 0, 1), Pass::Go);
        assert!(hold.is_idle());
        hold.confirm(Counts { living: 20, pending: 60 });
        assert_eq!(judged(&mut hold, 80, 0, 1), Pass::Go);
        assert_eq!(judged(&mut hold, 20, 60, 2), Pass::Hold);
    }

    #[test]
    fn it_goes_on_after_a_restart() {
        let mut hold = Hold::new(HALF);
        hold.spend(30, at(0));
        assert_eq!(judged(&mut hold, 40, 30, 10 * MINUTE), Pass::Hold);
        let text = serde_json::to_string(&hold.record(at(40 * MINUTE))).unwrap();
        // Another process: its clock begins anew, and time has passed, or not.
        let now = Duration::from_secs(5);
        let mut hold = Hold::new(HALF);
        hold.recall(serde_json::from_str(&text).unwrap(), now);
        assert_eq!(hold.id(), Some("id"));
        assert_eq!(hold.left(now), Some(Duration::from_secs(30 * MINUTE)));
        let counts = Counts { living: 40, pending: 30 };
        let mut judge = |second| hold.judge(counts, now + Duration::from_secs(second), || "other".to_owned());
        assert_eq!(judge(0), Pass::Hold, "what was removed before counts");
        // What was removed 40 minutes ago when it was written down.
        assert_eq!(judge(19 * MINUTE), Pass::Hold);
        judge(21 * MINUTE);
        assert_eq!(judge(21 * MINUTE + 5), Pass::Go);
        // What was confirmed stays so.
        let mut hold = Hold::new(HALF);
        hold.confirm(Counts { living: 0, pending: 60 });
        let record = hold.record(at(0));
        let mut hold = Hold::new(HALF);
        hold.recall(record, now);
        assert_eq!(hold.judge(Counts { living: 0, pending: 60 }, now, || "id".to_owned()), Pass::Go);
    }
}
