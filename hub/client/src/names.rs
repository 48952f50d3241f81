//! Names of hosts to addresses, without a queue that a day away fills.
//!
//! The system's lookup blocks its thread, for half a minute and more while nobody answers it, and cannot be told that
//! nobody wants its answer any more. So a name is looked up once at a time, whoever asks meanwhile has the same answer,
//! and what waits for a thread is bounded. Each [`Names`] has threads of its own, which end when there is nothing to do:
//! a webhook whose name hangs does not hold up the way to the hub.

use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use futures::future::{FutureExt, Shared};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Addresses, or why there are none. Ports are 0.
type Found = Result<Arc<[SocketAddr]>, Arc<str>>;
type Answer = Shared<oneshot::Receiver<Found>>;
type Look = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up.
#[derive(Clone)]
pub struct Names {
    inner: Arc<Inner>,
}

struct Inner {
    look: Box<Look>,
    /// Lookups at a time.
    threads: usize,
    /// Names that are looked up or wait for it.
    most: usize,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    answers: HashMap<Box<str>, (oneshot::Sender<Found>, Answer)>,
    waiting: VecDeque<Box<str>>,
    running: usize,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.inner.asked.lock();
        f.debug_struct("Names").field("asked", &asked.answers.len()).finish_non_exhaustive()
    }
}

impl Names {
    /// The system's, with so many lookups at a time, of at most so many names that wait.
    pub fn system(threads: usize, most: usize) -> Self {
        Self::new(threads, most, |host| Ok((host, 0).to_socket_addrs()?.collect()))
    }

    fn new(
        threads: usize,
        most: usize,
        look: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self { inner: Arc::new(Inner { look: Box::new(look), threads, most, asked: Mutex::default() }) }
    }

    /// The addresses of a host, in the resolver's order, with port 0. Whoever drops this has not stopped the lookup,
    /// and gets its answer by asking again.
    ///
    /// # Errors
    /// Those of the lookup; [`io::ErrorKind::ResourceBusy`] when too many names wait.
    pub async fn addresses(&self, host: &str) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(address, 0)].into());
        }
        match self.ask(host)?.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(why)) => Err(io::Error::other(format!("looking up {host}: {why}"))),
            Err(_) => Err(io::Error::other(format!("looking up {host} failed"))),
        }
    }

    fn ask(&self, host: &str) -> io::Result<Answer> {
        let mut asked = self.inner.asked.lock();
        if let Some((_, answer)) = asked.answers.get(host) {
            return Ok(answer.clone());
        }
        if asked.answers.len() >= self.inner.most {
            let why = format!("looking up {host}: {} other names wait for their addresses", self.inner.most);
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        if asked.running < self.inner.threads {
            let inner = Arc::clone(&self.inner);
            std::thread::Builder::new().name("name lookup".to_owned()).spawn(move || inner.work())?;
            asked.running += 1;
        }
        let (sender, receiver) = oneshot::channel();
        let answer = receiver.shared();
        asked.answers.insert(host.into(), (sender, answer.clone()));
        asked.waiting.push_back(host.into());
        Ok(answer)
    }
}

impl Inner {
    /// Looks up what waits, one after the other, until nothing does.
    fn work(&self) {
        loop {
            let host = {
                let mut asked = self.asked.lock();
                let Some(host) = asked.waiting.pop_front() else {
                    asked.running -= 1;
                    return;
                };
                host
            };
            let found = (self.look)(&host).map(Into::into).map_err(|error| error.to_string().into());
            let asked = self.asked.lock().answers.remove(&host);
            if let Some((sender, _)) = asked {
                // Nobody may wait for it any more.
                let _ = sender.send(found);
            }
        }
    }
}

/// For HTTP clients of reqwest's.
impl reqwest::dns::Resolve for Names {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let names = self.clone();
        Box::pin(async move {
            let found = names.addresses(name.as_str()).await?.to_vec();
            Ok(Box::new(found.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use super::*;

    /// Lookups that end one by one, when they are let.
    fn held(threads: usize, most: usize) -> (Names, mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (let_go, held) = mpsc::channel();
        let (held, begun) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&begun);
        let names = Names::new(threads, most, move |host| {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = held.lock().recv();
            if host == "none.test" {
                Err(io::Error::other("no such name"))
            } else {
                Ok(vec![([10, 0, 0, 1], 0).into()])
            }
        });
        (names, let_go, begun)
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_at_a_time_and_all_have_the_answer() {
        let (names, let_go, begun) = held(2, 8);
        // A day away: one attempt each second, all of them given up.
        for _ in 0..10_000 {
            assert!(names.addresses("hub.test").now_or_never().is_none());
        }
        let mut asked = [0; 2].map(|_| Box::pin(names.addresses("hub.test")));
        for one in &mut asked {
            assert!(one.now_or_never().is_none());
        }
        let_go.send(()).unwrap();
        for found in futures::future::join_all(asked).await {
            assert_eq!(*found.unwrap(), [SocketAddr::from(([10, 0, 0, 1], 0))]);
        }
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        let again = names.addresses("hub.test");
        let_go.send(()).unwrap();
        again.await.expect("it is asked anew");
        assert_eq!(begun.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn threads_and_what_waits_are_bounded_and_errors_told() {
        let (names, let_go, begun) = held(1, 2);
        let (first, second) = (names.addresses("a.test"), names.addresses("none.test"));
        let (mut first, mut second) = (Box::pin(first), Box::pin(second));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        let refused = names.addresses("c.test").await.unwrap_err();
        assert_eq!(refused.to_string(), "looking up c.test: 2 other names wait for their addresses");
        assert_eq!(*names.addresses("::1").await.unwrap(), ["[::1]:0".parse().unwrap()], "no name at all");
        let_go.send(()).unwrap();
        first.await.unwrap();
        let_go.send(()).unwrap();
        let error = second.await.unwrap_err();
        assert_eq!(error.to_string(), "looking up none.test: no such name");
        assert_eq!(begun.load(Ordering::SeqCst), 2);
    }
}
