//! A client that asks a server no more often, and for no more at a time, than it was told to: what is too much waits.
//!
//! Watches count for how often alone. Everything else is under way until its answer was read, or is not wanted any more. Whether
//! the server is well, and the one Lease by which others know who works on it, have places of their own, and their turn at once:
//! neither waits behind answers that take long.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use karmada_meta::query::watches;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use tower::{BoxError, Service, ServiceExt as _};

/// Requests of those that wait for nothing, under way at a time.
const VITAL: usize = 4;

/// How often, and how much at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Requests in a second, in the long run; infinite: any number.
    pub per_second: f64,
    /// So many may come at once after a rest.
    pub burst: u32,
    /// Requests under way, watches aside.
    pub at_once: usize,
}

/// When the next one may go.
#[derive(Debug)]
pub struct Turns {
    /// What each has to wait for, in the long run.
    each: Duration,
    /// What may be saved up of that.
    saved: Duration,
    /// When all of before are paid for.
    paid: Instant,
}

impl Turns {
    /// So many in a second in the long run, any number if that is infinite; so many at once after a rest.
    pub fn new(per_second: f64, burst: u32, now: Instant) -> Self {
        let each = Some(1.0 / per_second).filter(|each| each.is_finite() && *each > 0.0);
        let each = each.map_or(Duration::ZERO, |each| Duration::from_secs_f64(each.min(3600.0)));
        Self { each, saved: each * burst.max(1).saturating_sub(1), paid: now }
    }

    /// When the next turn comes.
    pub fn next(&self, now: Instant) -> Instant {
        self.paid.max(now).checked_sub(self.saved).map_or(now, |at| at.max(now))
    }

    /// Takes a turn: when it comes.
    pub fn take(&mut self, now: Instant) -> Instant {
        let turn = self.next(now);
        self.paid = self.paid.max(now) + self.each;
        turn
    }
}

/// A client over a service, usually a [`Link`](crate::link::Link), at a pace. `lease`: the path of the Lease by which others know
/// who works on the server.
pub fn paced<S, B>(over: S, namespace: &str, pace: Pace, lease: &str) -> Client
where
    S: Service<Request<Body>, Response = Response<B>, Future: Send, Error: Into<BoxError>>,
    S: Clone + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let lease = Arc::<str>::from(lease);
    let turns = Arc::new(Mutex::new(Turns::new(pace.per_second, pace.burst, Instant::now())));
    let places = Arc::new(Semaphore::new(pace.at_once.clamp(1, Semaphore::MAX_PERMITS)));
    let vital = Arc::new(Semaphore::new(VITAL));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (over, turns) = (over.clone(), turns.clone());
        let lane = Lane::of(&request, &lease);
        let places = match lane {
            Lane::Vital => Some(vital.clone()),
            Lane::Usual => Some(places.clone()),
            Lane::Watch => None,
        };
        async move {
            let place = match places {
                None => None,
                Some(places) => Some(places.acquire_owned().await.map_err(BoxError::from)?),
            };
            // What waits for nothing has nobody wait for it.
            if lane != Lane::Vital {
                let turn = turns.lock().take(Instant::now());
                sleep_until(turn).await;
            }
            let response = over.oneshot(request).await.map_err(Into::into)?;
            Ok::<_, BoxError>(response.map(|body| held(body, place)))
        }
    });
    Client::new(service, namespace)
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Its turn.
    Watch,
    /// Its turn, and a place.
    Usual,
    /// A place among few.
    Vital,
}

impl Lane {
    fn of(request: &Request<Body>, lease: &str) -> Self {
        if watches(request.uri().query()) {
            return Self::Watch;
        }
        match request.uri().path() {
            "/readyz" | "/healthz" | "/livez" => Self::Vital,
            path if path == lease => Self::Vital,
            _ => Self::Usual,
        }
    }
}

/// A body that has a place for as long as it is there.
fn held<B>(body: B, place: Option<OwnedSemaphorePermit>) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let body = body.map_err(Into::into);
    match place {
        None => body.boxed_unsync(),
        Some(place) => body
            .map_frame(move |frame| {
                let _ = &place;
                frame
            })
            .boxed_unsync(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use futures::future::join_all;

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/a";

    #[test]
    fn turns_come_at_their_pace_after_a_burst() {
        let begun = Instant::now();
        let mut turns = Turns::new(10.0, 3, begun);
        let mut take = |after: u64| {
            let at = turns.take(begun + Duration::from_millis(after));
            u64::try_from((at - begun).as_millis()).unwrap()
        };
        assert_eq!([0, 0, 0, 0, 0].map(&mut take), [0, 0, 0, 100, 200]);
        assert_eq!([10_000, 10_000, 10_000, 10_000].map(&mut take), [10_000, 10_000, 10_000, 10_100]);
        let mut turns = Turns::new(f64::INFINITY, 1, begun);
        assert_eq!([begun, begun].map(|now| turns.take(now)), [begun, begun]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_under_way_than_there_are_places() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, peak) = (now.clone(), most.clone());
        let service = tower::service_fn(move |_: Request<Body>| {
            let (count, peak) = (count.clone(), peak.clone());
            async move {
                peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                count.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, std::io::Error>(Response::new(Body::from(b"ok".to_vec())))
            }
        });
        let pace = Pace { per_second: f64::INFINITY, burst: 1, at_once: 2 };
        let client = paced(service, "default", pace, LEASE);
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            client.send(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
        };
        let begun = Instant::now();
        let answers = join_all(["/a", "/b", "/c", "/d"].map(&ask)).await;
        assert!(answers.iter().all(|answer| answer.as_ref() == b"ok"));
        assert_eq!((most.load(Ordering::SeqCst), begun.elapsed().as_secs()), (2, 2));
        // An answer that nobody reads holds its place; a watch has none.
        let request = |path: &str| Request::get(path).body(Body::empty()).unwrap();
        let unread = [client.send(request("/a")).await.unwrap(), client.send(request("/b")).await.unwrap()];
        ask("/c?watch=true").await;
        let waits = tokio::time::timeout(Duration::from_secs(9), ask("/c")).await;
        assert!(waits.is_err());
        // Who asks whether it is well, or renews a Lease, does not wait behind others, but for its like.
        let mut vital = Vec::new();
        for path in ["/readyz", LEASE, "/livez", "/healthz"] {
            vital.push(client.send(request(path)).await.unwrap());
        }
        assert!(tokio::time::timeout(Duration::from_secs(9), ask(LEASE)).await.is_err());
        drop(vital);
        ask(LEASE).await;
        drop(unread);
        ask("/c").await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_vital_has_its_turn_at_once() {
        let service = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, std::io::Error>(Response::new(Body::empty()))
        });
        let pace = Pace { per_second: 1.0, burst: 1, at_once: 100 };
        let client = paced(service, "default", pace, LEASE);
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            drop(client.send(request).await.unwrap());
            Instant::now()
        };
        let begun = Instant::now();
        let all = join_all(["/a", "/b"].map(&ask));
        let (_, well) = tokio::join!(all, join_all(["/readyz", LEASE, LEASE, "/livez"].map(&ask)));
        assert!(well.iter().all(|well| *well == begun));
        assert_eq!((ask("/c").await - begun).as_secs(), 2, "others have not waited for it");
        let rows = [
            (LEASE, Lane::Vital),
            ("/healthz", Lane::Vital),
            ("/apis/coordination.k8s.io/v1/namespaces/n/leases/a?watch=true", Lane::Watch),
            // What Works carry.
            ("/apis/coordination.k8s.io/v1/namespaces/n/leases/b", Lane::Usual),
            ("/apis/coordination.k8s.io/v1/namespaces/m/leases/a", Lane::Usual),
            ("/apis/coordination.k8s.io/v1/namespaces/n/leases", Lane::Usual),
            ("/apis/coordination.k8s.io/v1/leases", Lane::Usual),
            ("/version", Lane::Usual),
        ];
        for (path, lane) in rows {
            assert_eq!(Lane::of(&Request::get(path).body(Body::empty()).unwrap(), LEASE), lane, "{path}");
        }
    }
}
