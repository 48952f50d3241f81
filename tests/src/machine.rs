//! The machines of a fleet in one process: each has clocks of its own that can be put wrong, can be paused, and has
//! watches that can be held up.
//!
//! A paused machine is one that SIGSTOP, a hypervisor or a starved scheduler has stopped. Its clocks read the same until
//! it goes on, and then have jumped; nothing that it sends leaves it, and nothing that is sent to it is seen before that.
//! Timers of its tasks do fire meanwhile, since they share the runtime with everybody else's, but all that they can do
//! waits at the gate, as it would behind a timer that fires late.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use karmada_client::latest;
use karmada_env::{Clock, Env, Random};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// When every fleet's time begins: 2026-01-01.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that passes a gate.
pub type Passing = UnsyncBoxBody<Bytes, BoxError>;

/// One machine. Clones are the same.
#[derive(Clone)]
pub struct Machine {
    env: Env,
    time: Arc<Time>,
    gate: Gate,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("gate", &self.gate).finish_non_exhaustive()
    }
}

/// Both clocks follow the runtime's, which a test pauses.
struct Time {
    start: Instant,
    state: Mutex<Wrong>,
}

/// How a machine's clocks differ from the runtime's.
#[derive(Default)]
struct Wrong {
    /// Seconds by which the time of day is ahead.
    ahead: i64,
    /// What both clocks read while the machine stands still.
    still: Option<Duration>,
}

struct MachineClock(Arc<Time>);

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.0.state.lock().still.unwrap_or_else(|| self.0.start.elapsed())
    }

    fn wall(&self) -> SystemTime {
        let now = self.now();
        let ahead = self.0.state.lock().ahead;
        let base = SystemTime::UNIX_EPOCH + EPOCH + now;
        let by = Duration::from_secs(ahead.unsigned_abs());
        if ahead < 0 { base - by } else { base + by }
    }
}

/// One source of randomness for the machines of a fleet.
#[derive(Clone)]
struct Shared(Arc<dyn Random>);

impl Random for Shared {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}

impl Machine {
    /// A machine whose clocks are right. `random` may be that of other machines, too.
    pub fn new(start: Instant, random: Arc<dyn Random>) -> Self {
        let time = Arc::new(Time { start, state: Mutex::default() });
        let env = Env::new(MachineClock(time.clone()), Shared(random));
        Self { env, time, gate: Gate::default() }
    }

    /// Its clocks, and randomness.
    pub const fn env(&self) -> &Env {
        &self.env
    }

    /// What its traffic passes.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Puts its time of day forward or back, by seconds.
    pub fn jump(&self, seconds: i64) {
        self.time.state.lock().ahead += seconds;
    }

    /// Puts its time of day right.
    pub fn set_right(&self) {
        self.time.state.lock().ahead = 0;
    }

    /// Stops it where it stands.
    pub fn pause(&self) {
        let now = self.time.start.elapsed();
        self.time.state.lock().still.get_or_insert(now);
        self.gate.0.send_modify(|held| held.paused = true);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.time.state.lock().still = None;
        self.gate.0.send_modify(|held| held.paused = false);
    }

    /// Whether it stands still.
    pub fn is_paused(&self) -> bool {
        self.gate.0.borrow().paused
    }

    /// A client of this machine's: what goes through it passes the gate.
    pub fn through(&self, client: kube::Client) -> kube::Client {
        let (gate, env) = (self.gate.clone(), self.env.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (gate, env, client) = (gate.clone(), env.clone(), client.clone());
            async move {
                let collection = watched(request.uri());
                gate.open(None).await;
                if gate.breaks(request.uri().path()) {
                    return Err(kube::Error::Service("the connection is broken".into()));
                }
                if let Some(group) = gate.unserved() {
                    let path = request.uri().path().to_owned();
                    if path.strip_prefix("/apis/").is_some_and(|path| path.split('/').next() == Some(group)) {
                        return Ok(page(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()));
                    }
                    if path == "/apis" {
                        return without(group, client.send(request).await?).await;
                    }
                }
                let answer = client.send(request).await?;
                if collection.is_none() {
                    gate.late(&env).await;
                }
                gate.open(None).await;
                Ok::<_, kube::Error>(gate.hold(collection, answer))
            }
        });
        kube::Client::new(service, "default")
    }
}

fn page(code: StatusCode, body: String) -> Response<Passing> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
    Response::builder().status(code).body(body.boxed_unsync()).expect("constants")
}

/// What a server says that it serves, but for one group.
async fn without(group: &str, answer: Response<Body>) -> Result<Response<Passing>, kube::Error> {
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.map_err(|error| kube::Error::Service(error.into()))?.to_bytes();
    let mut apis: Value = serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?;
    let name = |group: &Value| group.pointer("/metadata/name").or_else(|| group.get("name")).cloned();
    for list in ["items", "groups"] {
        if let Some(groups) = apis[list].as_array_mut() {
            groups.retain(|known| name(known).is_none_or(|name| name != group));
        }
    }
    Ok(page(head.status, apis.to_string()))
}

/// The path of the collection that a request watches, if it does.
pub(crate) fn watched(uri: &http::Uri) -> Option<String> {
    let watches = uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
    watches.then(|| uri.path().to_owned())
}

/// What a machine's traffic passes. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(latest::Sender<Held>);

#[derive(Debug, Default)]
struct Held {
    paused: bool,
    stalled: Option<&'static str>,
    broken: Option<&'static str>,
    unserved: Option<&'static str>,
    /// What is asked is answered by so much later, at most. Watches are not.
    late: Duration,
}

impl Held {
    fn holds(&self, collection: Option<&str>) -> bool {
        let stalls = |path: &str| self.stalled.is_some_and(|stalled| path.ends_with(stalled));
        self.paused || collection.is_some_and(stalls)
    }

    fn breaks(&self, path: &str) -> bool {
        self.broken.is_some_and(|broken| path.ends_with(broken))
    }
}

impl Gate {
    /// Holds up all watches of collections whose path ends so; none if nothing is named.
    pub fn stall(&self, collection: Option<&'static str>) {
        self.0.send_modify(|held| held.stalled = collection);
    }

    /// Ends watches of collections whose path ends so, and refuses what is asked of them; none if nothing is named.
    pub fn cut(&self, collection: Option<&'static str>) {
        self.0.send_modify(|held| held.broken = collection);
    }

    /// Lets the server behind it not know an API group, as one that has just started; all again if nothing is named.
    pub fn unserve(&self, group: Option<&'static str>) {
        self.0.send_modify(|held| held.unserved = group);
    }

    fn unserved(&self) -> Option<&'static str> {
        self.0.borrow().unserved
    }

    /// Lets answers come late, each by a time of its own up to this: watches are ahead of them.
    pub fn delay(&self, by: Duration) {
        self.0.send_modify(|held| held.late = by);
    }

    async fn late(&self, env: &Env) {
        let by = self.0.borrow().late;
        if !by.is_zero() {
            let whole = env.jitter(by, 1.0);
            tokio::time::sleep(whole - by).await;
        }
    }

    fn breaks(&self, path: &str) -> bool {
        self.0.borrow().breaks(path)
    }

    /// Waits until what comes next may pass: a part of a watch of `collection`, or anything else.
    pub async fn open(&self, collection: Option<&str>) {
        if !self.0.borrow().holds(collection) {
            return;
        }
        let mut state = self.0.subscribe();
        let _ = state.wait_for(|held| !held.holds(collection)).await;
    }

    /// An answer; if it is a watch of `collection`, its body passes the gate piece by piece.
    pub fn hold<B>(&self, collection: Option<String>, answer: Response<B>) -> Response<Passing>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let gate = self.clone();
        answer.map(|body| {
            let body = body.map_err(Into::into).boxed_unsync();
            let Some(collection) = collection else { return body };
            let mut state = gate.0.subscribe();
            let watched = collection.clone();
            let broken = async move {
                if state.wait_for(|held| held.breaks(&watched)).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let pieces = body.into_data_stream().take_until(Box::pin(broken)).then(move |piece| {
                let (gate, collection) = (gate.clone(), collection.clone());
                async move {
                    gate.open(Some(&collection)).await;
                    piece.map(Frame::data)
                }
            });
            BodyExt::boxed_unsync(StreamBody::new(pieces))
        })
    }
}

#[cfg(test)]
mod tests {
    use karmada_env::SplitMix;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_machine_finds_that_time_went_on() {
        let machine = Machine::new(Instant::now(), Arc::new(SplitMix::new(1)));
        let (env, wall) = (machine.env().clone(), machine.env().wall());
        tokio::time::sleep(Duration::from_secs(1)).await;
        machine.pause();
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(env.now(), Duration::from_secs(1));
        machine.resume();
        assert_eq!(env.now(), Duration::from_secs(10));
        machine.jump(-60);
        assert_eq!(wall.duration_since(env.wall()).unwrap(), Duration::from_secs(50));
        machine.set_right();
        assert_eq!(env.wall().duration_since(wall).unwrap(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_held_waits() {
        let machine = Machine::new(Instant::now(), Arc::new(SplitMix::new(1)));
        let gate = machine.gate().clone();
        gate.stall(Some("/leases"));
        gate.open(None).await;
        gate.open(Some("/apis/x/works")).await;
        let waited = tokio::time::timeout(Duration::from_secs(5), gate.open(Some("/apis/x/leases")));
        assert!(waited.await.is_err());
        gate.stall(None);
        gate.open(Some("/apis/x/leases")).await;
        let watch = "/apis/x/leases?a=b&watch=true".parse().unwrap();
        assert_eq!(watched(&watch).as_deref(), Some("/apis/x/leases"));
        assert_eq!(watched(&"/apis/x/leases?limit=1".parse().unwrap()), None);
    }
}
