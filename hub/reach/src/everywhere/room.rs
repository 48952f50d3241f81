//! Which requests to all clusters are under way, and what their answers take.
//!
//! Each of so many users has a place of their own and some that all share, so that nobody waits behind whoever is slow. Whoever has
//! no request under way any more, and only still reads, has no place. The ServiceAccounts of a namespace are one user: whoever may
//! make one makes many. Of the room for answers one has no more than is left: alone that is a half, and with others each has as
//! much as they.

use std::{collections::HashMap, sync::Arc};

use karmada_meta::status::Status;
use parking_lot::Mutex;

/// Users who may have requests under way.
const USERS: usize = 64;
/// Requests beside the first of each user, of all of them and of one.
const SHARED: usize = 8;
const MORE: usize = 3;
/// What all answers may take, and those to one request, in KiB.
const ANSWERS: usize = 128 << 10;
const EACH: usize = 64 << 10;

/// See the module.
#[derive(Clone, Debug)]
pub(in super::super) struct Room(Arc<Mutex<Taken>>, usize);

#[derive(Debug)]
struct Taken {
    users: HashMap<Arc<str>, User>,
    /// How many of them have requests under way.
    asking: usize,
    shared: usize,
    /// What is left for answers, in KiB.
    left: usize,
}

#[derive(Debug, Default)]
struct User {
    requests: usize,
    kibibytes: usize,
}

impl User {
    fn is_over(&self) -> bool {
        self.requests == 0 && self.kibibytes == 0
    }
}

/// A request's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat(Share);

/// What a user's answers may take.
#[derive(Clone, Debug)]
pub(super) struct Share {
    room: Room,
    user: Arc<str>,
}

/// What an answer takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    share: Share,
    kibibytes: usize,
}

/// Who counts as one: a user, or all ServiceAccounts of a namespace.
fn party(user: &str) -> &str {
    const ACCOUNTS: &str = "system:serviceaccount:";
    match user.strip_prefix(ACCOUNTS).and_then(|name| name.rsplit_once(':')) {
        Some((namespace, _)) => &user[..ACCOUNTS.len() + namespace.len()],
        None => user,
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::of(ANSWERS, EACH)
    }
}

impl Room {
    /// One with so many KiB for answers, and for those to one request.
    pub(super) fn of(all: usize, each: usize) -> Self {
        Self(Arc::new(Mutex::new(Taken { users: HashMap::new(), asking: 0, shared: 0, left: all })), each)
    }

    /// What the answers to one request may take, in KiB.
    pub(super) fn each(&self) -> usize {
        self.1
    }

    /// A place for one more request of a user's.
    ///
    /// # Errors
    /// 429 where there is none.
    pub(super) fn seat(&self, user: &str) -> Result<Seat, Status> {
        let user = party(user);
        let mut taken = self.0.lock();
        let there = taken.users.get(user).map_or(0, |user| user.requests);
        let shared = there > 0;
        let message = if there > MORE {
            format!("{there} requests of yours to all clusters are under way; end some of them")
        } else if (shared && taken.shared == SHARED) || (!shared && taken.asking == USERS) {
            "too many requests to all clusters are under way; try again".to_owned()
        } else {
            let name: Arc<str> = user.into();
            taken.users.entry(name.clone()).or_default().requests += 1;
            taken.shared += usize::from(shared);
            taken.asking += usize::from(!shared);
            drop(taken);
            return Ok(Seat(Share { room: self.clone(), user: name }));
        };
        Err(Status::too_many_requests(message, 1))
    }

    /// KiB that are left.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.0.lock().left
    }
}

impl Seat {
    /// What its answers may take.
    pub(super) fn share(&self) -> Share {
        self.0.clone()
    }
}

impl Share {
    /// Takes so many KiB, where no more is taken than is left then.
    pub(super) fn take(&self, kibibytes: usize) -> Option<Held> {
        let mut taken = self.room.0.lock();
        let Taken { users, left, .. } = &mut *taken;
        let mine = users.get(&self.user).map_or(0, |user| user.kibibytes);
        let after = left.checked_sub(kibibytes)?;
        if mine + kibibytes > after {
            return None;
        }
        *left = after;
        users.entry(self.user.clone()).or_default().kibibytes += kibibytes;
        Some(Held { share: self.clone(), kibibytes })
    }

    fn give(&self, requests: usize, kibibytes: usize) {
        let mut taken = self.room.0.lock();
        let Taken { users, asking, shared, left } = &mut *taken;
        *left += kibibytes;
        let Some(user) = users.get_mut(&self.user) else { return };
        // Whichever of a user's requests ends, the last has the place of its own.
        match user.requests > 1 {
            true => *shared -= requests,
            false => *asking -= requests,
        }
        user.requests -= requests;
        user.kibibytes -= kibibytes;
        if user.is_over() {
            users.remove(&self.user);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.give(1, 0);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.share.give(0, self.kibibytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_place_whoever_is_slow() {
        let room = Room::default();
        let code = |seat: Result<Seat, Status>| seat.map(drop).map_err(|status| status.code());
        let mut slow: Vec<Seat> = Vec::new();
        for user in ["a", "b"] {
            slow.extend((0..=MORE).map(|_| room.seat(user).unwrap()));
            assert_eq!(code(room.seat(user)), Err(429), "one user has so many");
        }
        slow.extend((0..3).map(|_| room.seat("c").unwrap()));
        assert_eq!(code(room.seat("c")), Err(429), "and all so many together");
        let others: Vec<Seat> = (3..USERS).map(|n| room.seat(&n.to_string()).unwrap()).collect();
        assert_eq!(code(room.seat("last")), Err(429));
        drop(others);
        assert_eq!(code(room.seat("last")), Ok(()));
        drop(slow.remove(0));
        assert_eq!(code(room.seat("c")), Ok(()));
        drop(slow);
        let taken = room.0.lock();
        assert_eq!((taken.users.len(), taken.asking, taken.shared, taken.left), (0, 0, 0, ANSWERS));
    }

    #[test]
    fn who_only_still_reads_has_no_place() {
        let room = Room::default();
        let reading: Vec<Held> =
            (0..USERS).map(|n| room.seat(&format!("slow-{n}")).unwrap().share().take(1).unwrap()).collect();
        let of = |room: &Room| {
            let taken = room.0.lock();
            (taken.users.len(), taken.asking)
        };
        assert_eq!(of(&room), (USERS, 0));
        let seats: Vec<Seat> = (0..USERS).map(|n| room.seat(&format!("new-{n}")).unwrap()).collect();
        assert!(room.seat("one more").is_err() && room.seat("slow-0").is_err());
        drop((reading, seats));
        let taken = room.0.lock();
        assert_eq!((taken.users.len(), taken.asking, taken.left), (0, 0, ANSWERS));
    }

    #[test]
    fn service_accounts_of_a_namespace_are_one() {
        for (user, one) in [
            ("jane", "jane"),
            ("system:serviceaccount:shop:a", "system:serviceaccount:shop"),
            ("system:serviceaccount:shop", "system:serviceaccount:shop"),
            ("system:serviceaccounts:shop", "system:serviceaccounts:shop"),
        ] {
            assert_eq!(party(user), one);
        }
        let room = Room::default();
        let seat = |namespace: &str, n: usize| room.seat(&format!("system:serviceaccount:{namespace}:{n}"));
        let seats: Vec<Seat> = (0..=MORE).map(|n| seat("shop", n).unwrap()).collect();
        assert!(seat("shop", MORE + 1).is_err() && seat("till", 0).is_ok());
        drop(seats);
        assert!(room.0.lock().users.is_empty());
    }

    #[test]
    fn nobody_takes_what_others_need() {
        let room = Room::of(120, 60);
        let (a, b) = (room.seat("a").unwrap(), room.seat("b").unwrap());
        let alone = a.share().take(60).unwrap();
        assert!(a.share().take(1).is_none(), "a half");
        let mut theirs = vec![b.share().take(20).unwrap(), b.share().take(10).unwrap()];
        assert!(b.share().take(1).is_none());
        assert_eq!(room.left(), 30);
        drop(alone);
        theirs.push(b.share().take(15).unwrap());
        // What is read still counts when its request has ended.
        drop(b);
        assert_eq!(room.left(), 75);
        drop(theirs);
        assert_eq!((room.left(), room.0.lock().users.len()), (120, 1));
    }
}
