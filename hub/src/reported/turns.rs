//! Whose reports come now.
//!
//! One of a cluster comes at a time, and so many of all, in two lanes: words of a few hundred bytes, which keep copies current, do
//! not wait behind what comes for minutes. Whoever is slow has a turn for as long as nobody else needs it. When all are taken, the
//! one gives way whose body has been late for longest; and an older report of a cluster to a newer one of its, whose agent has given
//! the older one up.

use std::{collections::HashMap, sync::Arc, time::Duration};

use karmada_core::search::told::REPORT;
use karmada_env::Env;
use karmada_meta::status::Status;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Up to so many bytes a report is small.
const SMALL: u64 = 32 << 10;
/// How many come at a time: small ones, and others.
const PLACES: [usize; 2] = [128, 32];
/// What is turned away comes again within so many seconds.
const AGAIN: u32 = 10;
/// In this time a body has come, beside that for its bytes. Later it is late.
const COMES: Duration = Duration::from_secs(30);
const A_SECOND: f64 = (16 << 10) as f64;

/// See the module.
#[derive(Debug)]
pub(super) struct Turns {
    places: Mutex<Places>,
    env: Env,
}

#[derive(Debug, Default)]
struct Places {
    of: HashMap<String, Place>,
    taken: [usize; PLACES.len()],
    next: u64,
}

/// One that is taken.
#[derive(Debug)]
struct Place {
    id: u64,
    lane: usize,
    /// From when on its body is late; none once that is there.
    late: Option<Duration>,
    over: CancellationToken,
}

/// For as long as a report is read, whether anybody waits for the answer or not.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    cluster: String,
    id: u64,
    over: CancellationToken,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut places = self.turns.places.lock();
        if places.of.get(&self.cluster).is_some_and(|place| place.id == self.id) {
            places.leave(&self.cluster);
        }
    }
}

impl Turn {
    /// When it is over.
    pub(super) fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// The body is there: it gives way to nobody any more. Whether it has not done so before.
    pub(super) fn arrived(&self) -> bool {
        let mut places = self.turns.places.lock();
        let own = places.of.get_mut(&self.cluster).filter(|place| place.id == self.id);
        own.map(|place| place.late = None).is_some()
    }
}

impl Places {
    /// A place is free again.
    fn leave(&mut self, cluster: &str) {
        if let Some(place) = self.of.remove(cluster) {
            self.taken[place.lane] -= 1;
            place.over.cancel();
        }
    }

    /// Whose body has been late for longest in a lane.
    fn latest(&self, lane: usize, now: Duration) -> Option<String> {
        let late = self.of.iter().filter(|(_, place)| place.lane == lane);
        let late = late.filter_map(|(name, place)| Some((place.late.filter(|late| *late <= now)?, name)));
        late.min().map(|(_, name)| name.clone())
    }
}

impl Turns {
    pub(super) fn new(env: &Env) -> Arc<Self> {
        Arc::new(Self { places: Mutex::default(), env: env.clone() })
    }

    /// A turn for a report of so many bytes, if that is known.
    ///
    /// # Errors
    /// 429 where there is none now.
    pub(super) fn of(self: &Arc<Self>, cluster: &str, length: Option<u64>) -> Result<Turn, Status> {
        // Not all of them again at once.
        let seconds = || u32::try_from(1 + self.env.below(AGAIN.into())).unwrap_or(AGAIN);
        let busy = |why: String| Status::too_many_requests(why, seconds());
        let (now, lane) = (self.env.now(), usize::from(length.is_none_or(|length| length > SMALL)));
        let mut places = self.places.lock();
        match places.of.get(cluster).map(|place| place.late) {
            None => {}
            Some(None) => {
                return Err(busy(format!("another report of what is searched on {cluster} is being read")));
            }
            Some(Some(_)) => places.leave(cluster),
        }
        if places.taken[lane] >= PLACES[lane] {
            let late = places.latest(lane, now);
            let late = late
                .ok_or_else(|| busy("too many agents tell what is searched on their members".to_owned()))?;
            places.leave(&late);
        }
        let length = length.map_or(REPORT as f64, |length| length as f64);
        let late = Some(now + COMES + Duration::from_secs_f64(length.min(REPORT as f64) / A_SECOND));
        let over = CancellationToken::new();
        places.next += 1;
        places.taken[lane] += 1;
        let id = places.next;
        places.of.insert(cluster.to_owned(), Place { id, lane, late, over: over.clone() });
        Ok(Turn { turns: self.clone(), cluster: cluster.to_owned(), id, over })
    }
}

#[cfg(test)]
mod tests {
    use karmada_env::ManualClock;

    use super::*;

    const LARGE: Option<u64> = Some(256 << 10);
    const WORD: Option<u64> = Some(500);

    fn turns() -> (Arc<Turns>, ManualClock) {
        let clock = ManualClock::new(std::time::SystemTime::UNIX_EPOCH);
        (Turns::new(&Env::seeded(clock.clone(), 1)), clock)
    }

    fn code(turns: &Arc<Turns>, cluster: &str, length: Option<u64>) -> Result<(), u16> {
        turns.of(cluster, length).map(drop).map_err(|status| status.code())
    }

    /// So many of large reports.
    fn all(turns: &Arc<Turns>, prefix: &str, length: Option<u64>, many: usize) -> Vec<Turn> {
        (0..many).map(|n| turns.of(&format!("{prefix}-{n}"), length).expect("a turn")).collect()
    }

    #[test]
    fn few_come_at_a_time_and_small_ones_do_not_wait_for_large_ones() {
        let (turns, _) = turns();
        for (lane, [own, other]) in
            [[Some(SMALL), Some(SMALL + 1)], [None, Some(SMALL)]].into_iter().enumerate()
        {
            let held = all(&turns, "m", own, PLACES[lane]);
            assert_eq!(
                (code(&turns, "other", own), code(&turns, "other", other)),
                (Err(429), Ok(())),
                "{lane}"
            );
            drop(held);
            assert_eq!(code(&turns, "other", own), Ok(()));
        }
        let places = turns.places.lock();
        assert_eq!((places.of.len(), places.taken), (0, [0, 0]));
    }

    #[test]
    fn who_is_late_gives_way_to_others_and_to_nobody_else() {
        let (turns, clock) = turns();
        let mut held = vec![turns.of("first", LARGE).expect("a turn")];
        clock.advance(Duration::from_secs(1));
        held.extend(all(&turns, "m", LARGE, PLACES[1] - 1));
        // 30 s, and 16 for 256 KiB.
        clock.advance(Duration::from_secs(44));
        assert_eq!(code(&turns, "other", LARGE), Err(429));
        clock.advance(Duration::from_secs(1));
        assert!(!held[0].over().is_cancelled(), "nobody else has come");
        let other = turns.of("other", LARGE).expect("the turn of the one that is late");
        assert!(held[0].over().is_cancelled() && !held[0].arrived());
        assert!(held[1..].iter().all(|turn| !turn.over().is_cancelled()));
        assert_eq!(turns.places.lock().taken, [0, PLACES[1]]);
        // What has come is read to its end.
        assert!(held[1..].iter().all(Turn::arrived) && other.arrived());
        clock.advance(Duration::from_secs(600));
        assert_eq!(code(&turns, "more", LARGE), Err(429));
        // Whose turn was over before has none to leave.
        held.remove(0);
        assert_eq!(turns.places.lock().taken, [0, PLACES[1]]);
        held.clear();
        assert_eq!(turns.places.lock().taken, [0, 1]);
    }

    /// A link that went silent in the middle of a report.
    #[test]
    fn a_newer_report_of_a_cluster_ends_one_that_comes_still() {
        let (turns, _) = turns();
        let older = turns.of("m", LARGE).expect("a turn");
        let newer = turns.of("m", WORD).expect("a turn");
        assert!(older.over().is_cancelled() && !older.arrived());
        assert!(newer.arrived());
        drop(older);
        assert_eq!(code(&turns, "m", WORD), Err(429), "one is being read");
        drop(newer);
        assert_eq!(code(&turns, "m", WORD), Ok(()));
        assert_eq!(turns.places.lock().taken, [0, 0]);
    }
}
