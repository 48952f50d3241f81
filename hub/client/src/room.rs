//! What the answers of many servers, and what is kept of them, may take of this process's memory together.
//!
//! Small answers are not counted: how many of those there are is bounded by how many requests there are. Of what is longer a
//! server has no more than its part, so that one that answers slowly holds up itself; where all parts together are too much
//! a reader waits for others to end. One of those who wait goes on at any time, so that none waits for another that waits
//! for it. Who has waited for a while gives up, and asks for pages that are small: a few servers whose answers never end slow the
//! others down, and stop none.

use std::{fmt, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::kept::Shelf;

/// So much of an answer is not counted.
const SMALL: usize = 64 << 10;
/// What is counted is counted in pieces of so many bytes.
const PIECE: usize = 64 << 10;

/// What all servers' answers may take together, and what is kept of them.
#[derive(Clone)]
pub struct Room {
    bytes: Pool,
    kept: Shelf,
}

/// What one server's answers may take, within a [`Room`].
#[derive(Clone)]
pub struct Corner {
    own: Pool,
    room: Room,
    kept: Shelf,
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
        Self { bytes: Pool::new(bytes), kept: Shelf::new("all members together", kept) }
    }

    /// The part of one server: so many bytes of answers at most, and so many of what is kept.
    pub fn corner(&self, bytes: usize, kept: usize) -> Corner {
        Corner { own: Pool::new(bytes), room: self.clone(), kept: self.kept.ones("this member", kept) }
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
}
