//! One connection to a server, for a few questions one after the other: before there is a [`Link`](super::Link), or to see
//! whether what it is to show from now on is good.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use tokio::time::timeout;

use super::{
    ATTEMPT_LIMIT, Counters, LinkConfig, LinkError,
    dial::{self, Established, Sender},
    service::{LinkBody, date, relative},
    zip,
};
use crate::rest::chain;
use karmada_env::Env;

/// The longest answer that is read.
const LONGEST: usize = 4 << 20;

/// A connection.
pub struct Contact {
    pub(super) established: Established,
    server: Uri,
    user_agent: HeaderValue,
    limit: Duration,
}

impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contact").field("server", &self.server).finish_non_exhaustive()
    }
}

/// What a server has answered.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Its status code.
    pub code: StatusCode,
    /// The time by the server's clock, in whole seconds, if it tells.
    pub date: Option<SystemTime>,
    /// The body.
    pub body: Bytes,
}

impl Contact {
    /// Makes a connection, by the first way that leads to the server. Its bytes are counted in `counters`.
    ///
    /// # Errors
    /// What failed, in words.
    pub async fn open(config: &LinkConfig, counters: Arc<Counters>, env: Env) -> Result<Self, String> {
        let mut failures = Vec::new();
        for _ in 0..config.dialer.ways() {
            let (counters, dialer) = (Arc::clone(&counters), Arc::clone(&config.dialer));
            let tls = config.tls.clone();
            let open = AtomicBool::new(false);
            let making = dial::establish(dialer, None, tls, config.patience, (counters, &open), env.clone());
            let made = timeout(ATTEMPT_LIMIT, making).await.map(|made| made.map_err(|fault| fault.text));
            match made.unwrap_or_else(|_| Err(format!("no connection within {}s", ATTEMPT_LIMIT.as_secs()))) {
                Ok(established) => {
                    let (server, user_agent) = (config.server.clone(), config.user_agent.clone());
                    return Ok(Self { established, server, user_agent, limit: config.patience.answer });
                }
                Err(error) => failures.push(error),
            }
        }
        Err(failures.join("; "))
    }

    /// Asks, with a bearer token if one is given. JSON is sent, if anything.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        bearer: Option<&str>,
        body: Option<Vec<u8>>,
    ) -> Result<Answered, LinkError> {
        let request = self.request(method, path, bearer, body)?;
        // A token is for a server that has shown who it is. Of any other nothing is inflated: a few bytes may become many.
        let is_proved = bearer.is_some();
        let answering = async {
            let response = match &mut self.established.sender {
                Sender::H2(sender) => sender.send_request(request).await,
                Sender::H1(Some(sender)) => {
                    let mut request = request;
                    relative(&mut request);
                    match sender.ready().await {
                        Ok(()) => sender.send_request(request).await,
                        Err(error) => Err(error),
                    }
                }
                Sender::H1(None) => return Err(LinkError::Connection("it is in use elsewhere".into())),
            };
            let response = response.map_err(|error| LinkError::Connection(chain(&error)))?;
            let (mut parts, incoming) = response.into_parts();
            let inflate = is_proved.then(|| zip::Inflate::of(&mut parts.headers)).flatten();
            let body = LinkBody { incoming, inflate, give_back: None, _busy: None };
            let body = Limited::new(body, LONGEST).collect().await;
            let body = body.map_err(|error| LinkError::Connection(format!("its answer: {error}")))?;
            Ok(Answered { code: parts.status, date: date(&parts.headers), body: body.to_bytes() })
        };
        timeout(self.limit, answering).await.unwrap_or(Err(LinkError::Headers { after: self.limit }))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        bearer: Option<&str>,
        body: Option<Vec<u8>>,
    ) -> Result<Request<Body>, LinkError> {
        let bad = |error: &dyn fmt::Display| LinkError::Request(format!("{}: {error}", self.server));
        let mut parts = self.server.clone().into_parts();
        let prefix = self.server.path().trim_end_matches('/');
        parts.path_and_query = Some(PathAndQuery::try_from(format!("{prefix}{path}")).map_err(|e| bad(&e))?);
        let uri = Uri::from_parts(parts).map_err(|e| bad(&e))?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, self.user_agent.clone());
        if let Some(token) = bearer {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|e| bad(&e))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let mut request = request.body(Body::from(body.unwrap_or_default())).map_err(|e| bad(&e))?;
        if bearer.is_some() {
            zip::ask(request.headers_mut(), false);
        }
        Ok(request)
    }
}
