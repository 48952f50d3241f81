//! What the answers of many servers may take of this process's memory together.
//!
//! Small answers are not counted: how many of those there are is bounded by how many requests there are. Of what is longer a
//! server has no more than its part, so that one that answers slowly holds up itself; where all parts together are too much
//! a reader waits for others to end. One of those who wait goes on at any time, so that none waits for another that waits
//! for it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So much of an answer is not counted.
const SMALL: usize = 64 << 10;
/// What is counted is counted in pieces of so many bytes.
const PIECE: usize = 64 << 10;
/// A collection of no more objects is watched, however many there are elsewhere.
const FEW: usize = 10_000;
/// One server has this many objects in any case.
const OF_ONE: usize = 200_000;

/// What all servers' answers may take together.
#[derive(Clone)]
pub struct Room {
    bytes: Pool,
    objects: Arc<AtomicUsize>,
    most: usize,
}

/// What one server's answers may take, within a [`Room`].
#[derive(Clone)]
pub struct Corner {
    own: Pool,
    room: Room,
    objects: Arc<AtomicUsize>,
    most: usize,
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
}

/// Objects of a collection that are counted. They count no more when it is dropped.
pub(crate) struct Crowd {
    corner: Option<Corner>,
    counted: usize,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("objects", &self.objects).finish_non_exhaustive()
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
    /// Room for so many bytes of answers, and so many objects that are watched.
    pub fn new(bytes: usize, objects: usize) -> Self {
        Self { bytes: Pool::new(bytes), objects: Arc::default(), most: objects }
    }

    /// The part of one server: so many bytes at most, and an eighth of all that there is for objects.
    pub fn corner(&self, bytes: usize) -> Corner {
        let most = (self.most / 8).max(OF_ONE);
        Corner { own: Pool::new(bytes), room: self.clone(), objects: Arc::default(), most }
    }
}

impl Taken {
    pub(crate) fn of(corner: Option<&Corner>) -> Self {
        Self { corner: corner.cloned(), own: Held::default(), shared: Held::default() }
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

impl Crowd {
    pub(crate) fn of(corner: Option<&Corner>) -> Self {
        Self { corner: corner.cloned(), counted: 0 }
    }

    /// There are so many objects in the collection; whether there is room for them beside what others have.
    pub(crate) fn holds(&mut self, objects: usize) -> bool {
        let Some(corner) = &self.corner else { return true };
        let count = |all: &AtomicUsize| match objects.checked_sub(self.counted) {
            Some(more) => all.fetch_add(more, Ordering::Relaxed) - self.counted,
            None => all.fetch_sub(self.counted - objects, Ordering::Relaxed) - self.counted,
        };
        let (own, others) = (count(&corner.objects), count(&corner.room.objects));
        self.counted = objects;
        // One that has too many takes nothing from others.
        own.saturating_add(objects) <= corner.most.max(FEW)
            && (objects <= FEW || others.saturating_add(objects) <= corner.room.most)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.holds(0);
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
        let corner = room.corner(4 * PIECE);
        let [mut one, mut two, mut three] = [(); 3].map(|()| Taken::of(Some(&corner)));
        assert!(grows(&mut one, 4), "all of its part");
        assert!(grows(&mut one, 0), "no more is asked for");
        assert!(grows(&mut two, 3), "one may go beyond it");
        assert!(!grows(&mut three, 1));
        assert!(grows(&mut three, 0), "what is small is not counted");
        let mut other = Taken::of(Some(&room.corner(4 * PIECE)));
        assert!(grows(&mut other, 1), "another server has its own");
        drop(two);
        assert!(grows(&mut three, 3));
        drop((one, three));
        // What all take together.
        let corners = [(); 4].map(|()| room.corner(4 * PIECE));
        let mut all = corners.map(|corner| Taken::of(Some(&corner)));
        assert_eq!(all.each_mut().map(|taken| grows(taken, 4)), [true, true, false, false]);
        all[0].shrink_to(SMALL);
        assert!(grows(&mut all[2], 4));
        assert!(!grows(&mut all[3], 4));
    }

    #[test]
    fn large_collections_give_way() {
        let room = Room::new(0, 30_000);
        let corner = room.corner(0);
        let [mut one, mut two] = [(); 2].map(|()| Crowd::of(Some(&corner)));
        assert!(one.holds(25_000) && !two.holds(11_000), "they are too many together");
        assert!(two.holds(FEW), "few are watched in any case");
        assert!(one.holds(20_000) && two.holds(FEW));
        drop(one);
        assert!(two.holds(30_000) && !two.holds(30_001));
        drop(two);
        assert_eq!(room.objects.load(Ordering::Relaxed), 0);
        assert!(Crowd::of(None).holds(usize::MAX));
    }

    #[test]
    fn one_server_has_no_more_objects_than_its_part() {
        let room = Room::new(0, 2_000_000);
        let [greedy, other] = [(); 2].map(|()| room.corner(0));
        let mut kinds = [(); 3].map(|()| Crowd::of(Some(&greedy)));
        assert_eq!(kinds.each_mut().map(|kind| kind.holds(100_000)), [true, true, false], "250,000 in all");
        kinds[2].holds(0);
        assert!(Crowd::of(Some(&other)).holds(200_000));
    }
}
