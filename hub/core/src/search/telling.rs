//! What an agent tells of all its kinds together: whose turn it is, and what it may say is current. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Followed,
    told::{Answer, Outgoing, Part, Report},
};

/// What is lost for a shorter time is not worth a word.
const LOST: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub struct Telling {
    /// Whether anything is asked for.
    asked: bool,
    /// The hub has heard something since.
    greeted: bool,
    kinds: BTreeMap<Followed, Kind>,
    /// Of which the hub is to hear that nothing is told of them.
    withdrawn: BTreeSet<Followed>,
    /// What it was told is current.
    said: BTreeSet<Followed>,
    /// Whose part was the last.
    last: Option<Followed>,
    number: u64,
}

/// A kind that is told of.
#[derive(Debug)]
pub struct Kind {
    /// What of it.
    pub outgoing: Outgoing,
    /// The member's resourceVersion.
    pub revision: String,
    /// Since when its changes are not heard, if they are not.
    lost: Option<Duration>,
}

impl Kind {
    /// Whether its changes are heard at this time.
    pub fn hears(&mut self, hears: bool, now: Duration) {
        self.lost = if hears { None } else { self.lost.or(Some(now)) };
    }

    /// Whether all there is is told with what is under way.
    fn is_current(&self) -> bool {
        self.lost.is_none() && self.outgoing.is_told()
    }
}

impl Telling {
    /// One that begins with a number above those that others had before.
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// These are asked for, and no others.
    pub fn asked(&mut self, wanted: &BTreeSet<Followed>) {
        self.asked = !wanted.is_empty();
        self.greeted &= self.asked;
        self.kinds.retain(|what, _| wanted.contains(what));
        self.withdrawn.retain(|what| wanted.contains(what));
        self.said.retain(|what| wanted.contains(what));
    }

    /// Whether anything is.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// A course begins whose changes are not heard yet.
    pub fn begin(&mut self, outgoing: Outgoing, now: Duration) {
        let kind = Kind { outgoing, revision: String::new(), lost: Some(now) };
        self.kinds.insert(kind.outgoing.what().clone(), kind);
    }

    /// What is told of a kind.
    pub fn kind(&mut self, what: &Followed) -> Option<&mut Kind> {
        self.kinds.get_mut(what)
    }

    /// Nothing is told of a kind, and nothing is to be kept of it.
    pub fn withdraw(&mut self, what: &Followed) {
        self.kinds.remove(what);
        self.withdrawn.insert(what.clone());
    }

    /// Bytes that wait to be told.
    pub fn waiting(&self) -> usize {
        self.kinds.values().map(|kind| kind.outgoing.bytes()).sum()
    }

    /// Whether there are parts to tell.
    pub fn has_news(&self) -> bool {
        self.kinds.values().any(|kind| kind.outgoing.has_news())
    }

    /// The parts that are told next, of so many bytes together, or one that has more. Kinds have their turns.
    pub fn parts(&mut self, room: usize) -> Vec<Part> {
        let (mut parts, mut left) = (Vec::new(), room);
        let behind = |what: &Followed| self.last.as_ref().is_none_or(|last| what > last);
        let (mut turns, first): (Vec<&Followed>, Vec<&Followed>) =
            self.kinds.keys().partition(|what| behind(what));
        turns.extend(first);
        // What is under way comes before all.
        turns.sort_by_key(|what| !self.kinds[*what].outgoing.is_under_way());
        let turns: Vec<Followed> = turns.into_iter().cloned().collect();
        for what in turns {
            let Some(kind) = self.kinds.get_mut(&what).filter(|kind| kind.outgoing.has_news()) else {
                continue;
            };
            if !parts.is_empty() && !kind.outgoing.fits(left) {
                continue;
            }
            let Some(part) = kind.outgoing.next(left, &kind.revision) else { continue };
            left = left.saturating_sub(part.bytes());
            parts.push(part.clone());
            if left == 0 {
                break;
            }
        }
        parts
    }

    /// How many words a report has.
    pub fn words(&self) -> usize {
        self.kinds.len() + self.withdrawn.len()
    }

    /// A report with these parts, of which the words count for so long.
    pub fn report(&mut self, parts: Vec<Part>, holds: Duration) -> Report {
        self.number = self.number.saturating_add(1);
        // One may have waited longer than its course has lasted.
        let goes_on =
            |part: &Part| self.kinds.get(&part.what).is_some_and(|kind| kind.outgoing.is_sending(part));
        let parts: Vec<Part> = parts.into_iter().filter(goes_on).collect();
        let words = self.kinds.iter().filter_map(|(what, kind)| {
            let goes = parts.iter().any(|part| part.what == *what);
            let is_under_way = kind.outgoing.is_under_way();
            // Where a part is under way and does not go with it, nobody knows what the hub has.
            if is_under_way && !goes {
                return None;
            }
            kind.outgoing.word(kind.is_current())
        });
        let kinds = words.collect();
        let withdrawn = self.withdrawn.iter().cloned().collect();
        Report { number: self.number, holds: holds.as_secs(), kinds, withdrawn, parts }
    }

    /// This was answered so: what is to be told from the start, or not, is told of no more.
    pub fn answered(&mut self, report: &Report, answer: &Answer) {
        if let Some(behind) = answer.behind {
            self.number = self.number.max(behind);
            self.said.clear();
            self.greeted = false;
            return;
        }
        self.greeted = true;
        for part in &report.parts {
            if let Some(kind) = self.kinds.get_mut(&part.what) {
                kind.outgoing.taken(part);
            }
            self.last = Some(part.what.clone());
        }
        self.withdrawn.retain(|what| !report.withdrawn.contains(what));
        let said = report.kinds.iter().filter(|word| word.current).map(|word| word.what.clone());
        self.said = said.collect();
        for what in answer.again.iter().chain(&answer.unwanted) {
            self.kinds.remove(what);
            self.said.remove(what);
        }
    }

    /// When the hub is to hear something beside what it is told with parts; now where that is past.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        if !self.asked {
            return None;
        }
        let gone = |what: &Followed| !self.kinds.contains_key(what);
        let unsaid = |(what, kind): (&Followed, &Kind)| {
            kind.is_current() && !kind.outgoing.is_under_way() && !self.said.contains(what)
        };
        if !self.greeted
            || !self.withdrawn.is_empty()
            || self.said.iter().any(gone)
            || self.kinds.iter().any(unsaid)
        {
            return Some(now);
        }
        let lost = self.said.iter().filter_map(|what| Some(self.kinds.get(what)?.lost? + LOST));
        lost.min().map(|due| due.max(now))
    }

    /// Whether the hub was told that something is current which is not.
    pub fn overstates(&self) -> bool {
        let is_current = |what: &Followed| {
            self.kinds.get(what).is_some_and(|kind| kind.is_current() && !kind.outgoing.is_under_way())
        };
        !self.said.iter().all(is_current)
    }
}

#[cfg(test)]
mod tests;
