//! What the tests here share: a server that is a function, and an environment on tokio's clock.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use karmada_env::{Clock, Env};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// A request as the scripted server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) body: Value,
}

type Answer = dyn Fn(&Seen) -> (u16, Value) + Send + Sync;

/// A server that answers by a function and remembers what it was asked.
#[derive(Clone)]
pub(crate) struct Script {
    answer: Arc<Answer>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

pub(crate) fn script(answer: impl Fn(&Seen) -> (u16, Value) + Send + Sync + 'static) -> Script {
    Script { answer: Arc::new(answer), seen: Arc::default() }
}

impl Script {
    pub(crate) fn client(&self) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(|e| std::io::Error::other(e.to_string()))?.to_bytes();
                let seen = Seen {
                    method: parts.method.to_string(),
                    path: parts.uri.to_string(),
                    body: serde_json::from_slice(&body).unwrap_or(Value::Null),
                };
                let (code, answer) = (script.answer)(&seen);
                script.seen.lock().push(seen);
                let body = Full::new(Bytes::from(answer.to_string()));
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

/// Tokio's clock, which tests pause.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000) + self.now()
    }
}

pub(crate) fn env(seed: u64) -> Env {
    Env::seeded(TokioClock(Instant::now()), seed)
}
