//! How much goes through at a time.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use karmada_meta::status::Status;
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Requests of one user to one member: `kubectl get` asks for some twenty documents at a time.
pub(crate) const EACH: usize = 64;

/// What is under way.
#[derive(Debug)]
pub(crate) struct Sessions {
    most: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    users: HashMap<Arc<str>, usize>,
    each: HashMap<Place, usize>,
}

/// User and cluster.
type Place = (Arc<str>, Arc<str>);

/// What was given up is late for so long: its agent hears of it later, and what it has sent meanwhile is told from what nobody has asked
/// for only while the hub [remembers](crate::tunnel) the request. Where too many are late, the next [counts](Session) until it is not.
pub(crate) const LATE: Duration = Duration::from_secs(2);

/// One request, until it is dropped; a little longer if it was given up on its way.
#[derive(Debug)]
pub(crate) struct Session {
    sessions: Arc<Sessions>,
    place: Place,
    tunnel: Mutex<Option<ByTunnel>>,
    /// What of it has not come to its end: [`SENT`], [`ANSWERED`].
    under_way: AtomicU8,
}

/// What is sent.
const SENT: u8 = 1;
/// What is answered.
const ANSWERED: u8 = 2;

/// A request's place in a tunnel, and room there for those that are late.
#[derive(Debug)]
pub(crate) struct ByTunnel {
    pub(crate) place: OwnedSemaphorePermit,
    pub(crate) late: Arc<Semaphore>,
}

impl Session {
    /// It is asked by a tunnel.
    pub(crate) fn goes(&self, by: ByTunnel) {
        *self.tunnel.lock() = Some(by);
        self.under_way.store(SENT | ANSWERED, Ordering::Relaxed);
    }

    /// All is sent.
    pub(crate) fn is_sent(&self) {
        self.under_way.fetch_and(!SENT, Ordering::Relaxed);
    }

    /// The answer has come to its end.
    pub(crate) fn is_answered(&self) {
        self.under_way.fetch_and(!ANSWERED, Ordering::Relaxed);
    }

    /// Both ends know that it is over, or nothing was sent.
    pub(crate) fn is_over(&self) {
        self.under_way.store(0, Ordering::Relaxed);
    }
}

impl Sessions {
    /// So many in all, half of them of one user.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(2), counts: Mutex::default() }
    }

    /// One more.
    ///
    /// # Errors
    /// 429 where that would be too many.
    pub(crate) fn begin(self: &Arc<Self>, user: &str, cluster: &str) -> Result<Session, Status> {
        let place: Place = (user.into(), cluster.into());
        let mut counts = self.counts.lock();
        let there = counts.each.get(&place).copied().unwrap_or_default();
        let mine = counts.users.get(&place.0).copied().unwrap_or_default();
        let message = if there >= EACH {
            format!("{there} requests of yours to cluster {cluster} are under way; end some of them")
        } else if mine >= self.most / 2 {
            format!("{mine} requests of yours to members are under way; end some of them")
        } else if counts.all >= self.most {
            "too many requests to members are under way; try again".to_owned()
        } else {
            counts.all += 1;
            *counts.users.entry(place.0.clone()).or_default() += 1;
            *counts.each.entry(place.clone()).or_default() += 1;
            drop(counts);
            return Ok(Session {
                sessions: self.clone(),
                place,
                tunnel: Mutex::default(),
                under_way: AtomicU8::new(0),
            });
        };
        Err(Status::too_many_requests(message, 1))
    }
}

impl Sessions {
    fn end(&self, place: &Place) {
        let mut counts = self.counts.lock();
        counts.all -= 1;
        less(&mut counts.users, &place.0);
        less(&mut counts.each, place);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let tunnel = self.tunnel.get_mut().take().filter(|_| *self.under_way.get_mut() != 0);
        let (Some(ByTunnel { place, late }), Ok(runtime)) = (tunnel, Handle::try_current()) else {
            return self.sessions.end(&self.place);
        };
        if let Ok(late) = late.try_acquire_owned() {
            self.sessions.end(&self.place);
            runtime.spawn(async move {
                tokio::time::sleep(LATE).await;
                drop(late);
            });
            return;
        }
        let (sessions, counted) = (self.sessions.clone(), self.place.clone());
        runtime.spawn(async move {
            tokio::time::sleep(LATE).await;
            sessions.end(&counted);
            drop(place);
        });
    }
}

fn less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_room_and_gives_it_back() {
        let sessions = Arc::new(Sessions::new(1000));
        let mine: Vec<_> = (0..EACH).map(|_| sessions.begin("jane", "m").unwrap()).collect();
        assert_eq!(sessions.begin("jane", "m").unwrap_err().code(), 429);
        let others = [sessions.begin("jane", "n").unwrap(), sessions.begin("joe", "m").unwrap()];
        drop(mine);
        drop(sessions.begin("jane", "m").unwrap());
        drop(others);
        let counts = sessions.counts.lock();
        let left = (counts.all, counts.users.len(), counts.each.len());
        assert_eq!(left, (0, 0, 0), "nothing is kept of whoever has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn where_too_many_were_given_up_the_next_count_a_little_longer() {
        let sessions = Arc::new(Sessions::new(1000));
        let (places, late) = (Arc::new(Semaphore::new(EACH)), Arc::new(Semaphore::new(EACH)));
        let all = || (0..EACH).map(|_| sessions.begin("jane", "m")).collect::<Result<Vec<_>, _>>();
        let go = |end: fn(&Session)| {
            for one in all().unwrap() {
                let place = places.clone().try_acquire_owned().unwrap();
                one.goes(ByTunnel { place, late: late.clone() });
                end(&one);
            }
        };
        go(Session::is_over);
        go(|one| {
            one.is_answered();
            one.is_sent();
        });
        assert_eq!((late.available_permits(), places.available_permits()), (EACH, EACH));
        go(Session::is_sent);
        assert_eq!((late.available_permits(), places.available_permits()), (0, EACH));
        go(Session::is_answered);
        assert_eq!((all().unwrap_err().code(), places.available_permits()), (429, 0));
        tokio::time::sleep(LATE / 2).await;
        assert_eq!((all().unwrap_err().code(), places.available_permits()), (429, 0));
        tokio::time::sleep(LATE).await;
        assert!(all().is_ok());
        assert_eq!((late.available_permits(), places.available_permits()), (EACH, EACH));
    }

    #[test]
    fn all_together_are_bounded_and_nobody_has_more_than_half() {
        let sessions = Arc::new(Sessions::new(10));
        let begin = |user: &str, n: usize| sessions.begin(user, &format!("m{n}"));
        let mut all: Vec<_> = (0..5).map(|n| begin("jane", n).unwrap()).collect();
        assert!(begin("jane", 5).unwrap_err().message.contains("of yours to members"));
        all.extend((0..4).map(|n| begin("joe", n).unwrap()));
        all.push(begin("jim", 0).unwrap());
        assert!(begin("joe", 4).unwrap_err().message.contains("too many requests to members"));
        drop(all);
        assert!(begin("joe", 4).is_ok());
    }
}
