//! What the answers of many servers, and what is kept of them, may take of this process's memory together.
//!
//! Small answers are not counted: how many of those there are is bounded by how many requests there are. Of what is longer a
//! server has no more than its part, so that one that answers slowly holds up itself; where all parts together are too much
//! a reader waits for others to end. One of those who wait goes on at any time, so that none waits for another that waits
//! for it. Who has waited for a while gives up, and asks for pages that are small: a few servers whose answers never end slow the
//! others down, and stop none.
//!
//! An answer to a write comes in no pages. One that has waited as long is read in a place that is spared for such: one of each
//! server, a few of all together. It is lent for a time, so that nobody keeps it who sends a little now and then.

use std::{fmt, sync::Arc, time::Duration};

use karmada_telemetry::metrics::Counter;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use crate::kept::Shelf;

/// So much of an answer is not counted.
const SMALL: usize = 64 << 10;
/// What is counted is counted in pieces of so many bytes.
const PIECE: usize = 64 << 10;

/// How long an answer waits for room beside those of others. What comes in pieces is asked for in smaller ones then, of which
/// none has to wait.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// What a spared place holds: no object is as long that a server takes.
const SPARE: usize = 2 << 20;
/// So many answers to writes to all servers may be in such places.
const SPARES: usize = 16;
/// For so long a place is lent: 2 MiB come by a line of 300 kbit/s.
const LENT: Duration = Duration::from_secs(60);

/// What all servers' answers may take together, and what is kept of them.
#[derive(Clone)]
pub struct Room {
    bytes: Pool,
    spares: Arc<Semaphore>,
    spared: Spared,
    kept: Shelf,
}

/// How answers to writes have ended that have found no room.
#[derive(Clone, Debug, Default)]
pub struct Spared {
    /// In a place that is spared for them.
    pub lent: Counter,
    /// Unread: there was none either, or it was too small or lent for too long.
    pub unread: Counter,
}

/// What one server's answers may take, within a [`Room`].
#[derive(Clone)]
pub struct Corner {
    own: Pool,
    /// Its one spared place.
    spare: Arc<Semaphore>,
    room: Room,
    kept: Shelf,
}

/// What an answer is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Read,
    Write,
}

/// Pieces of memory, of which one holder at a time may have more than there are.
#[derive(Clone)]
struct Pool {
    pieces: Arc<Semaphore>,
    beyond: Arc<Semaphore>,
}

/// What is held of a pool.
#[derive(Default)]
struct Held {
    pieces: Vec<OwnedSemaphorePermit>,
    count: usize,
    beyond: Option<OwnedSemaphorePermit>,
}

/// What an answer that is being read takes. Given back when it is dropped.
pub(crate) struct Taken {
    corner: Option<Corner>,
    own: Held,
    shared: Held,
    spare: Option<Place>,
}

/// A spared place that is lent.
struct Place {
    until: Instant,
    _held: [OwnedSemaphorePermit; 2],
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl fmt::Debug for Corner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Corner").field("room", &self.room).finish_non_exhaustive()
    }
}

impl Pool {
    fn new(bytes: usize) -> Self {
        let pieces = (bytes / PIECE).clamp(1, Semaphore::MAX_PERMITS);
        Self { pieces: Arc::new(Semaphore::new(pieces)), beyond: Arc::new(Semaphore::new(1)) }
    }

    async fn grow(&self, held: &mut Held, to: usize) {
        let more = to.saturating_sub(held.count);
        if more == 0 || held.beyond.is_some() {
            return;
        }
        let count = u32::try_from(more).unwrap_or(u32::MAX);
        // Neither is ever closed.
        tokio::select! {
            biased;
            Ok(pieces) = self.pieces.clone().acquire_many_owned(count) => {
                held.pieces.push(pieces);
                held.count = to;
            }
            Ok(beyond) = self.beyond.clone().acquire_owned() => held.beyond = Some(beyond),
        }
    }
}

impl Room {
    /// Room for so many bytes of answers, and so many of what is kept.
    pub fn new(bytes: usize, kept: usize) -> Self {
        Self {
            bytes: Pool::new(bytes),
            spares: Arc::new(Semaphore::new(SPARES)),
            spared: Spared::default(),
            kept: Shelf::new("all members together", kept),
        }
    }

    /// The same, and answers to writes that find no room are counted here.
    #[must_use]
    pub fn counting(self, spared: &Spared) -> Self {
        Self { spared: spared.clone(), ..self }
    }

    /// The same for answers, with so many bytes of its own for what is kept: of that no part takes from parts of this one.
    #[must_use]
    pub fn beside(&self, kept: usize) -> Self {
        Self { kept: Shelf::new("all members together", kept), ..self.clone() }
    }

    /// The part of one server: so many bytes of answers at most, and so many of what is kept.
    pub fn corner(&self, bytes: usize, kept: usize) -> Corner {
        Corner {
            own: Pool::new(bytes),
            spare: Arc::new(Semaphore::new(1)),
            room: self.clone(),
            kept: self.kept.ones("this member", kept),
        }
    }
}

impl Corner {
    /// Where what is kept of the server has its place.
    pub(crate) const fn shelf(&self) -> &Shelf {
        &self.kept
    }
}

impl Taken {
    pub(crate) fn of(corner: Option<&Corner>) -> Self {
        Self { corner: corner.cloned(), own: Held::default(), shared: Held::default(), spare: None }
    }

    /// Waits until there is room for so many bytes of an answer in all; whether there is.
    pub(crate) async fn holds(&mut self, bytes: usize, to: To) -> bool {
        if self.spare.is_none() {
            if timeout(WAIT, self.grow_to(bytes)).await.is_ok() {
                return true;
            }
            if to == To::Read {
                return false;
            }
            // What it had so far is for others then.
            if bytes <= SPARE && self.lend().await {
                (self.own, self.shared) = (Held::default(), Held::default());
            }
        }
        let holds = self.spare.as_ref().is_some_and(|place| bytes <= SPARE && Instant::now() < place.until);
        if let Some(corner) = self.corner.as_ref().filter(|_| !holds) {
            corner.room.spared.unread.inc();
        }
        holds
    }

    /// Waits for a spared place: for the server's own first, so that one server has no more than one.
    async fn lend(&mut self) -> bool {
        let Some(corner) = &self.corner else { return false };
        let both = async {
            // Neither is ever closed.
            let own = corner.spare.clone().acquire_owned().await.ok()?;
            Some([own, corner.room.spares.clone().acquire_owned().await.ok()?])
        };
        let Ok(Some(held)) = timeout(WAIT, both).await else { return false };
        corner.room.spared.lent.inc();
        self.spare = Some(Place { until: Instant::now() + LENT, _held: held });
        true
    }

    /// Waits until there is room for so many bytes in all. Cancel-safe: what is held stays so.
    pub(crate) async fn grow_to(&mut self, bytes: usize) {
        let Some(corner) = &self.corner else { return };
        if self.shared.beyond.is_some() {
            // The one that goes on: it waits for nobody.
            return;
        }
        let pieces = bytes.saturating_sub(SMALL).div_ceil(PIECE);
        corner.own.grow(&mut self.own, pieces).await;
        corner.room.bytes.grow(&mut self.shared, pieces).await;
    }

    /// So many bytes are held no more than these.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if bytes <= SMALL {
            (self.own, self.shared) = (Held::default(), Held::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn grows(taken: &mut Taken, pieces: usize) -> bool {
        taken.grow_to(SMALL + pieces * PIECE).now_or_never().is_some()
    }

    #[test]
    fn one_server_has_its_part_and_one_of_those_who_wait_goes_on() {
        let room = Room::new(8 * PIECE, 0);
        let corner = room.corner(4 * PIECE, 0);
        let [mut one, mut two, mut three] = [(); 3].map(|()| Taken::of(Some(&corner)));
        assert!(grows(&mut one, 4), "all of its part");
        assert!(grows(&mut one, 0), "no more is asked for");
        assert!(grows(&mut two, 3), "one may go beyond it");
        assert!(!grows(&mut three, 1));
        assert!(grows(&mut three, 0), "what is small is not counted");
        let mut other = Taken::of(Some(&room.corner(4 * PIECE, 0)));
        assert!(grows(&mut other, 1), "another server has its own");
        drop(two);
        assert!(grows(&mut three, 3));
        drop((one, three));
        // What all take together.
        let corners = [(); 4].map(|()| room.corner(4 * PIECE, 0));
        let mut all = corners.map(|corner| Taken::of(Some(&corner)));
        assert_eq!(all.each_mut().map(|taken| grows(taken, 4)), [true, true, false, false]);
        all[0].shrink_to(SMALL);
        assert!(grows(&mut all[2], 4));
        assert!(!grows(&mut all[3], 4));
    }

    /// All of a corner, and its one answer beyond that.
    async fn fill(corner: &Corner) -> [Taken; 2] {
        let mut all = [(); 2].map(|()| Taken::of(Some(corner)));
        for taken in &mut all {
            assert!(taken.holds(SMALL + 4 * PIECE, To::Read).await);
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_write_is_read_however_many_lists_there_are() {
        let spared = Spared::default();
        let room = Room::new(1 << 30, 0).counting(&spared);
        let corner = room.corner(4 * PIECE, 0);
        let lists = fill(&corner).await;
        let write = || Taken::of(Some(&corner));
        let (mut read, mut one) = (write(), write());
        let begun = Instant::now();
        assert!(!read.holds(SMALL + 1, To::Read).await, "a list comes in pages");
        assert!(one.holds(SMALL, To::Write).await, "what is small is not counted");
        assert_eq!(begun.elapsed(), WAIT);
        assert!(one.holds(SMALL + 1, To::Write).await);
        assert_eq!((begun.elapsed(), spared.lent.get()), (2 * WAIT, 1));
        assert!(one.holds(SPARE, To::Write).await, "nothing is waited for any more");
        assert_eq!(begun.elapsed(), 2 * WAIT);
        // Another one waits for the same place.
        let mut two = write();
        assert!(!two.holds(SMALL + 1, To::Write).await);
        assert_eq!((spared.lent.get(), spared.unread.get()), (1, 1));
        let (mut next, drops) = (write(), async {
            tokio::time::sleep(WAIT + WAIT / 2).await;
            drop(one);
        });
        let (came, ()) = tokio::join!(next.holds(SMALL + 1, To::Write), drops);
        assert!(came);
        assert!(!next.holds(SPARE + 1, To::Write).await, "that is no object");
        drop(next);
        // Whoever is slow gives it back.
        let mut slow = write();
        assert!(slow.holds(SMALL + 1, To::Write).await);
        tokio::time::sleep(LENT).await;
        assert!(!slow.holds(SMALL + 1, To::Write).await);
        assert_eq!((spared.lent.get(), spared.unread.get()), (3, 3));
        drop((slow, lists));
        assert!(write().holds(SMALL + 4 * PIECE, To::Write).await, "there is room again");
        assert_eq!(spared.lent.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_spared_for_all_is_bounded() {
        let spared = Spared::default();
        let room = Room::new(1 << 30, 0).counting(&spared);
        let corners: Vec<_> = (0..=SPARES).map(|_| room.corner(4 * PIECE, 0)).collect();
        let mut lists = Vec::new();
        for corner in &corners {
            lists.push(fill(corner).await);
        }
        let mut writes: Vec<_> = corners.iter().map(|corner| Taken::of(Some(corner))).collect();
        let came =
            futures::future::join_all(writes.iter_mut().map(|taken| taken.holds(SMALL + 1, To::Write)));
        assert_eq!(came.await.into_iter().filter(|came| *came).count(), SPARES);
        assert_eq!((spared.lent.get(), spared.unread.get()), (SPARES as u64, 1));
        writes.clear();
        let mut last = Taken::of(corners.last());
        assert!(last.holds(SMALL + 1, To::Write).await);
        assert!(last.own.pieces.is_empty() && last.shared.pieces.is_empty(), "its other room is for others");
    }

    #[test]
    fn what_is_kept_beside_takes_nothing_from_the_rest() {
        const MIB: usize = 1 << 20;
        let room = Room::new(PIECE, 75 * MIB);
        let beside = room.beside(25 * MIB);
        let workers = [(); 2].map(|()| room.corner(PIECE, 40 * MIB));
        let _places = workers.each_ref().map(|corner| corner.shelf().take(35 * MIB).unwrap());
        let copies = [(); 2].map(|()| beside.corner(PIECE, 40 * MIB));
        let filled =
            copies.iter().flat_map(|corner| std::iter::from_fn(move || corner.shelf().take(MIB).ok()));
        let filled: Vec<_> = filled.collect();
        assert!(filled.len() >= 25, "{}", filled.len());
        assert!(copies[0].shelf().take(MIB).is_err());
        assert!(workers[0].shelf().take(5 * MIB).is_ok());
    }
}
