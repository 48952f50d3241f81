//! How much goes through at a time.

use std::{collections::HashMap, sync::Arc};

use karmada_meta::status::Status;
use parking_lot::Mutex;

/// Requests to all members.
const ALL: usize = 2000;
/// Requests of one user to one member: `kubectl get` asks for some twenty documents at a time.
const EACH: usize = 64;

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    each: HashMap<Place, usize>,
}

/// User and cluster.
type Place = (Arc<str>, Arc<str>);

/// One request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    sessions: Arc<Sessions>,
    place: Place,
}

impl Sessions {
    /// One more.
    ///
    /// # Errors
    /// 429 where that would be too many.
    pub(crate) fn begin(self: &Arc<Self>, user: &str, cluster: &str) -> Result<Session, Status> {
        let place: Place = (user.into(), cluster.into());
        let mut counts = self.0.lock();
        let mine = counts.each.get(&place).copied().unwrap_or_default();
        if mine >= EACH {
            let message =
                format!("{EACH} requests of yours to cluster {cluster} are under way; end some of them");
            return Err(Status::too_many_requests(&message, 1));
        }
        if counts.all >= ALL {
            return Err(Status::too_many_requests("too many requests to members are under way", 1));
        }
        counts.all += 1;
        counts.each.insert(place.clone(), mine + 1);
        drop(counts);
        Ok(Session { sessions: self.clone(), place })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut counts = self.sessions.0.lock();
        counts.all -= 1;
        if let Some(count) = counts.each.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                counts.each.remove(&self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_room_and_gives_it_back() {
        let sessions = Arc::new(Sessions::default());
        let mine: Vec<_> = (0..EACH).map(|_| sessions.begin("jane", "m").unwrap()).collect();
        assert_eq!(sessions.begin("jane", "m").unwrap_err().code(), 429);
        let others = [sessions.begin("jane", "n").unwrap(), sessions.begin("joe", "m").unwrap()];
        drop(mine);
        drop(sessions.begin("jane", "m").unwrap());
        drop(others);
        let counts = sessions.0.lock();
        assert_eq!((counts.all, counts.each.len()), (0, 0), "nothing is kept of whoever has ended");
    }

    #[test]
    fn all_together_are_bounded() {
        let sessions = Arc::new(Sessions::default());
        let all: Vec<_> = (0..ALL).map(|n| sessions.begin("jane", &format!("m{n}")).unwrap()).collect();
        assert_eq!(sessions.begin("joe", "m").unwrap_err().code(), 429);
        drop(all);
        assert!(sessions.begin("joe", "m").is_ok());
    }
}
