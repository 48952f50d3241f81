//! A service of paths alone.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use karmada_meta::status::Status;

use super::{Answers, Exchange, Front};
use crate::{
    carried::{Way, Ways},
    identity::UserInfo,
    paths::{Paths, Turn},
    request::{Class, RequestInfo},
};

/// A service of paths alone, for a listener without an API.
#[derive(Clone, Debug)]
pub struct PathService {
    front: Arc<Front>,
    there: Arc<There>,
}

/// What there is on a listener without an API.
#[derive(Clone, Debug)]
struct There {
    paths: Paths,
    ways: Ways,
}

impl PathService {
    /// These paths behind this front.
    pub fn new(front: Arc<Front>, paths: Paths) -> Self {
        Self { front, there: Arc::new(There { paths, ways: Ways::default() }) }
    }

    /// The same, where something is carried on besides. The front has to know who may ([`Front::delegate_to`]).
    #[must_use]
    pub fn carrying(self, ways: Ways) -> Self {
        let paths = self.there.paths.clone();
        Self { there: Arc::new(There { paths, ways }), ..self }
    }
}

impl Answers for There {
    fn way(&self, info: &RequestInfo) -> Option<Way> {
        self.ways.find(info)
    }

    fn class(&self, info: &RequestInfo) -> Option<Class> {
        (!info.is_resource).then(|| self.paths.class(&info.path))?
    }

    fn is_own(&self, info: &RequestInfo) -> bool {
        !info.is_resource && self.paths.is_own(&info.path)
    }

    fn knows(&self, _: &RequestInfo) -> bool {
        false
    }

    fn turn(&self, info: &RequestInfo, user: &UserInfo, length: Option<u64>) -> Result<Option<Turn>, Status> {
        self.paths.turn(&info.path, user, length)
    }

    fn body_limit(&self, info: &RequestInfo, _: &UserInfo) -> usize {
        self.paths.body_limit(&info.path)
    }

    async fn answer(&self, exchange: &Exchange<'_>, body: Bytes) -> Result<Response<Body>, Status> {
        exchange.answer_from(&self.paths, body).await.unwrap_or_else(|| Ok(self.paths.unknown()))
    }
}

impl<B> tower::Service<Request<B>> for PathService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (front, there) = (self.front.clone(), self.there.clone());
        let request = request.map(Body::new);
        Box::pin(async move { Ok(front.answer(request, &*there).await) })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Duration,
    };

    use http::{Method, StatusCode};
    use karmada_env::Env;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        authz::{Attributes, Authorizer, Decision},
        limits::Limits,
        respond,
    };

    #[derive(Debug)]
    struct Everyone;

    impl Authorizer for Everyone {
        fn authorize(&self, _: &Attributes<'_>) -> Decision {
            Decision::Allow
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_turn_is_sent_away_before_the_body_and_who_has_one_takes_no_seat() {
        let is_free = Arc::new(AtomicBool::new(false));
        let turns = is_free.clone();
        let holds = Arc::new(());
        let (held, over) = (holds.clone(), CancellationToken::new());
        let turn = over.clone();
        let paths = Paths::default()
            .with("/seat", &[Method::POST], async |_| {
                std::future::pending::<()>().await;
                Err(Status::internal("never"))
            })
            .with("/tell", &[Method::POST], async |request: Request<Body>| {
                let has_turn = request.extensions().get::<Turn>().is_some();
                Ok(respond::text(StatusCode::OK, has_turn.to_string()))
            })
            .in_turn(move |user, length| match turns.load(Ordering::Relaxed) && user.name == "agent" {
                true if length == Some(2) => Ok(Turn::new(held.clone(), CancellationToken::new())),
                true => Ok(Turn::new(held.clone(), turn.clone())),
                false => Err(Status::too_many_requests("later", 3)),
            });
        // One seat for Leases, and one for all other writes.
        let limits = Limits { writing: 2, ..Limits::default() };
        let service =
            PathService::new(Arc::new(Front::new(Arc::new(Everyone), limits, Env::system())), paths);
        let ask = |path: &str, body: Body| {
            let mut request = Request::post(path).body(body).expect("a request");
            request.extensions_mut().insert(UserInfo::new("agent", ["g"]));
            service.clone().oneshot(request)
        };
        let full = tokio::spawn(ask("/seat", Body::from("{}")));
        tokio::task::yield_now().await;
        let slow = Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>());
        let begun = tokio::time::Instant::now();
        let answer = ask("/tell", slow).await.expect("an answer");
        assert_eq!((answer.status().as_u16(), begun.elapsed()), (429, Duration::ZERO));
        assert_eq!(answer.headers()["retry-after"], "3");
        is_free.store(true, Ordering::Relaxed);
        let answer = ask("/tell", Body::from("{}")).await.expect("an answer");
        assert_eq!((answer.status().as_u16(), begun.elapsed()), (200, Duration::ZERO));
        let told = axum::body::to_bytes(answer.into_body(), 16).await.expect("a body");
        assert_eq!((&told[..], Arc::strong_count(&holds)), (&b"true"[..], 2), "the turn is over");
        // Who sends slowly has the turn until others need it.
        let slow = Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>());
        let sending = tokio::spawn(ask("/tell", slow));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!sending.is_finished());
        over.cancel();
        let answer = sending.await.expect("no panic").expect("an answer");
        assert_eq!((answer.status().as_u16(), begun.elapsed().as_secs()), (429, 20));
        assert_eq!(Arc::strong_count(&holds), 2);
        full.abort();
    }
}
