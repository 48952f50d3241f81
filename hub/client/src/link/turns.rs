//! Several addresses of one server: each attempt goes to the next, and the first one after an answer to where that came from.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::{dial::Dial, io::Io};

/// See the module.
pub(super) struct Turns {
    ways: Vec<Arc<dyn Dial>>,
    /// Whose turn it is.
    next: AtomicUsize,
    /// The peer that each way has led to last.
    peers: Arc<Mutex<Vec<Option<String>>>>,
}

impl Turns {
    /// The first goes first.
    pub(super) fn new(ways: Vec<Arc<dyn Dial>>) -> Self {
        let peers = Arc::new(Mutex::new(vec![None; ways.len()]));
        Self { ways, next: AtomicUsize::new(0), peers }
    }

    fn way_to(&self, peer: &str) -> Option<usize> {
        self.peers.lock().iter().position(|known| known.as_deref() == Some(peer))
    }
}

impl Dial for Turns {
    fn dial(&self) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.ways.len().max(1);
        let Some(way) = self.ways.get(at) else {
            return Box::pin(async { Err(io::Error::new(io::ErrorKind::NotFound, "there is no address")) });
        };
        let (dialing, peers) = (way.dial(), Arc::clone(&self.peers));
        Box::pin(async move {
            let (io, peer) = dialing.await?;
            peers.lock()[at] = Some(peer.clone());
            Ok((io, peer))
        })
    }

    fn dial_like(&self, peer: &str) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>> {
        let way = self.way_to(peer).and_then(|at| self.ways.get(at));
        way.map_or_else(|| self.dial(), |way| way.dial_like(peer))
    }

    fn ways(&self) -> usize {
        self.ways.len()
    }

    fn worked(&self, peer: &str) {
        if let Some(at) = self.way_to(peer) {
            self.next.store(at, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Leads to a peer of that name, or nowhere.
    struct Way(&'static str, bool);

    impl Dial for Way {
        fn dial(&self) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>> {
            let Self(name, opens) = *self;
            Box::pin(async move {
                if opens {
                    Ok((Box::new(tokio::io::duplex(1).0) as Box<dyn Io>, name.to_owned()))
                } else {
                    Err(io::Error::other(name))
                }
            })
        }
    }

    #[test]
    fn each_has_its_turn_and_the_one_that_worked_the_next() {
        let ways: Vec<Arc<dyn Dial>> =
            vec![Arc::new(Way("a", false)), Arc::new(Way("b", true)), Arc::new(Way("c", true))];
        let turns = Turns::new(ways);
        let dial = || match turns.dial().now_or_never().unwrap() {
            Ok((_, peer)) => peer,
            Err(error) => format!("not {error}"),
        };
        assert_eq!([dial(), dial(), dial(), dial()], ["not a", "b", "c", "not a"]);
        // Something answers at b that is not the server.
        assert_eq!([dial(), dial()], ["b", "c"]);
        turns.worked("c");
        assert_eq!([dial(), dial(), dial()], ["c", "not a", "b"]);
        turns.worked("somebody else");
        assert_eq!(dial(), "c");
        // One more to where there is a connection takes nobody's turn.
        let like = |peer| turns.dial_like(peer).now_or_never().unwrap().unwrap().1;
        assert_eq!([like("b"), like("b"), dial()], ["b".to_owned(), "b".to_owned(), "not a".to_owned()]);
    }
}
