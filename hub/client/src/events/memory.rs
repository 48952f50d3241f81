//! What is known of events: of those that wait all that is to be told, of those that were told what tells them when they come
//! again.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{EventKind, Key, LONGEST_REPEAT, REPEAT};

/// So many different messages about one object and reason are written at once, and so many warnings of each teller; further ones
/// wait like repetitions.
const SIMILAR: usize = 4;

/// How long an event is remembered: kube-apiserver forgets Events after an hour.
const MEMORY: Duration = Duration::from_secs(55 * 60);

/// An event that waits to be told, for the first time or again.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// What tells the name of its object in the API from others; none before the first write.
    pub(super) suffix: Option<u64>,
    pub(super) first: SystemTime,
    pub(super) last: SystemTime,
    /// More than were written.
    pub(super) count: u64,
    pub(super) written: u64,
    /// [`Env::now`](karmada_env::Env::now) when it was last seen.
    pub(super) seen: Duration,
    /// [`Env::now`](karmada_env::Env::now) before which a repetition is not written.
    pub(super) not_before: Duration,
    /// How long the one after that waits.
    pub(super) pause: Duration,
    pub(super) resource_version: String,
}

/// An event that was told, so often. There are many, so that times are in microseconds.
#[derive(Debug)]
pub(super) struct Told {
    suffix: u64,
    /// Since 1970.
    first: u64,
    seen: u64,
    not_before: u64,
    /// In milliseconds.
    pause: u32,
    count: u32,
}

impl Told {
    fn of(suffix: u64, known: &Known) -> Self {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self {
            suffix,
            // Before that only when a clock is broken beyond use.
            first: known.first.duration_since(UNIX_EPOCH).map_or(0, micros),
            seen: micros(known.seen),
            not_before: micros(known.not_before),
            pause: u32::try_from(known.pause.as_millis()).unwrap_or(u32::MAX),
            count: u32::try_from(known.count).unwrap_or(u32::MAX),
        }
    }

    fn seen(&self) -> Duration {
        Duration::from_micros(self.seen)
    }

    /// Before when a repetition is not written, and how long the one after that waits.
    fn waits(&self) -> (Duration, Duration) {
        (Duration::from_micros(self.not_before), Duration::from_millis(self.pause.into()))
    }
}

/// Tells an event from others, whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest {
    /// What it is about: object, type and reason, and whose warning it is.
    about: u64,
    message: u64,
}

impl Digest {
    fn of(key: &Key) -> Self {
        Self { about: digest(key.about()), message: digest(&key.message) }
    }
}

pub(super) fn digest(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    /// So many are remembered at most.
    room: usize,
    pub(super) waiting: BTreeMap<Key, Known>,
    pub(super) told: BTreeMap<Digest, Told>,
}

impl Memory {
    pub(super) fn new(room: usize) -> Self {
        Self { room, waiting: BTreeMap::new(), told: BTreeMap::new() }
    }

    /// An event came that is known; false if it is not.
    pub(super) fn comes_again(
        &mut self,
        key: &Key,
        resource_version: &str,
        at: SystemTime,
        now: Duration,
    ) -> bool {
        if let Some(told) = self.told.remove(&Digest::of(key)) {
            let (not_before, pause) = told.waits();
            let resource_version = String::new();
            let known = Known {
                suffix: Some(told.suffix),
                first: UNIX_EPOCH + Duration::from_micros(told.first),
                last: at,
                count: told.count.into(),
                written: told.count.into(),
                seen: told.seen(),
                not_before,
                pause,
                resource_version,
            };
            self.waiting.insert(key.clone(), known);
        }
        let Some(known) = self.waiting.get_mut(key) else { return false };
        if now.saturating_sub(known.seen) > LONGEST_REPEAT {
            known.pause = REPEAT;
        }
        known.count += 1;
        known.last = at;
        known.seen = now;
        resource_version.clone_into(&mut known.resource_version);
        true
    }

    /// An event that waits has been written so often, and its object is there.
    pub(super) fn is_written(&mut self, key: &Key, suffix: u64, count: u64, now: Duration) {
        let Some(known) = self.waiting.get_mut(key) else { return };
        (known.suffix, known.written) = (Some(suffix), count);
        known.not_before = now + known.pause;
        known.pause = (known.pause * 2).min(LONGEST_REPEAT);
        if known.count > count {
            return;
        }
        if let Some(known) = self.waiting.remove(key) {
            self.told.insert(Digest::of(key), Told::of(suffix, &known));
        }
        if self.waiting.is_empty() {
            // A map keeps room for some of its last.
            self.waiting = BTreeMap::new();
        }
    }

    /// Forgets what was told long ago.
    pub(super) fn forget(&mut self, now: Duration) {
        self.told.retain(|_, told| now.saturating_sub(told.seen()) < MEMORY);
    }

    /// Forgets the event that was not seen for longest if there are too many for another of this kind: one that is written if there
    /// is any, and a warning for warnings only, where there is nothing else. Answers how much of it is lost; nothing where the
    /// other has to give way.
    pub(super) fn make_room(&mut self, kind: EventKind) -> Option<u64> {
        if self.waiting.len() + self.told.len() < self.room {
            return Some(0);
        }
        if let Some(oldest) = self.told.iter().min_by_key(|(_, told)| told.seen).map(|(digest, _)| *digest) {
            self.told.remove(&oldest);
            return Some(0);
        }
        let oldest = self.waiting.iter().min_by_key(|(key, known)| (key.kind, known.seen));
        let oldest = oldest.map(|(key, _)| key.clone()).filter(|oldest| oldest.kind <= kind)?;
        self.waiting.remove(&oldest).map(|known| known.count - known.written)
    }

    /// From when on a new event may be written, how long its first repetition waits, and the event like it that waits
    /// already, if it is to wait: what says something else about one thing each time is as good as a repetition.
    pub(super) fn patience(&self, key: &Key, now: Duration) -> (Duration, Duration, Option<Key>) {
        let first = Key { message: String::new(), ..key.clone() };
        let is_similar = |other: &Key| other.about() == key.about();
        let (mut count, mut latest, mut waiting) = (0, (Duration::ZERO, REPEAT), None);
        for (other, known) in self.waiting.range(first..).take_while(|(other, _)| is_similar(other)) {
            count += 1;
            latest = latest.max((known.not_before, known.pause));
            if known.written == 0 && known.not_before > now {
                waiting = Some(other.clone());
            }
        }
        let about = Digest::of(key).about;
        let like = Digest { about, message: 0 }..=Digest { about, message: u64::MAX };
        for told in self.told.range(like).map(|(_, told)| told) {
            count += 1;
            latest = latest.max(told.waits());
        }
        if count < SIMILAR { (Duration::ZERO, REPEAT, None) } else { (latest.0, latest.1, waiting) }
    }
}
