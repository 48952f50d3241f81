//! Audit events to a service outside, as EventLists by POST: kube-apiserver's webhook. What cannot be posted after five
//! attempts, and what the service refuses, is lost, counted and said.
//!
//! Where nobody waits they go in lists, one after the other ([`Webhook`]); where somebody waits for each, each goes alone and
//! beside the others ([`Waited`]), as kube-apiserver does it.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Method, Request, StatusCode, Uri, header};
use karmada_apiserver::audit::queue::{Lines, Lost, Posts};
use karmada_client::{Endpoint, link::client_for};
use karmada_env::Env;
use kube::client::Body;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{sleep, timeout},
};

use super::pace::Pace;

/// What the service's log calls us.
const USER_AGENT: &str = concat!("karmada-hub/", env!("CARGO_PKG_VERSION"));
/// How long one attempt may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How often it is tried, and how much longer each pause is, in tenths.
const ATTEMPTS: u32 = 5;
const LONGER: u32 = 15;
/// The most bytes of one post, if it has more than one event.
const MOST: usize = 10 << 20;

/// How posts are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// How many events one has at most.
    pub(super) events: usize,
    /// How many there are in a second, and at once; nothing if they are not paced.
    pub(super) pace: Option<(f64, u32)>,
    /// How long until one is tried again.
    pub(super) backoff: Duration,
}

/// A service that takes events.
pub(super) struct Webhook {
    client: kube::Client,
    path: String,
    settings: Settings,
    pace: Option<Pace>,
    runtime: Handle,
    env: Env,
}

impl Webhook {
    /// The one at an endpoint. It is asked from another thread than the runtime's.
    pub(super) fn new(endpoint: Endpoint, settings: Settings, env: Env) -> Result<Self, String> {
        let (server, path) = split(&endpoint.server)?;
        let (client, _) = client_for(Endpoint { server, ..endpoint }, USER_AGENT, env.clone());
        let pace = settings.pace.map(|(rate, burst)| Pace::new(rate, burst, env.now()));
        Ok(Self { client, path, settings, pace, runtime: Handle::current(), env })
    }

    /// Posts a list, as often as it takes, five times at most.
    /// With `places`, in one of them; not while it pauses, so that what comes later is not kept waiting by that.
    async fn post(&self, body: &Bytes, places: Option<&Semaphore>) -> Result<(), String> {
        let mut pause = self.settings.backoff;
        let mut attempt = 1;
        loop {
            let place = match places {
                // It is never closed.
                Some(places) => places.acquire().await.ok(),
                None => None,
            };
            let answered = timeout(LIMIT, self.attempt(body.clone())).await;
            drop(place);
            let posted =
                answered.unwrap_or_else(|_| Err((true, format!("no answer within {} s", LIMIT.as_secs()))));
            match posted {
                Ok(()) => return Ok(()),
                Err((true, _)) if attempt < ATTEMPTS => {
                    sleep(pause).await;
                    pause = pause * LONGER / 10;
                    attempt += 1;
                }
                Err((_, why)) => return Err(why),
            }
        }
    }

    /// One attempt; whether another may do better, and what was wrong.
    async fn attempt(&self, body: Bytes) -> Result<(), (bool, String)> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| (false, error.to_string()))?;
        let answer = self.client.send(request).await.map_err(|error| (true, error.to_string()))?;
        let code = answer.status();
        let again = code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS;
        if code.is_success() { Ok(()) } else { Err((again, format!("the webhook answers {code}"))) }
    }
}

impl Lines for Webhook {
    fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
        let mut lost = Lost { lines: 0, why: io::Error::other("") };
        for (events, body) in posts(lines, self.settings.events) {
            if let Some(pace) = &mut self.pace {
                pace.wait(&self.env, &self.runtime);
            }
            if let Err(why) = self.runtime.block_on(self.post(&body, None)) {
                lost = Lost { lines: lost.lines + events, why: io::Error::other(why) };
            }
        }
        if lost.lines == 0 { Ok(()) } else { Err(lost) }
    }
}

/// How many events are posted at a time that somebody waits for.
const PLACES: usize = 100;

/// The same for events that somebody waits for.
pub(super) struct Waited {
    webhook: Webhook,
    places: Semaphore,
}

impl Waited {
    pub(super) fn new(webhook: Webhook) -> Self {
        Self { webhook, places: Semaphore::new(PLACES) }
    }
}

impl Posts for Waited {
    fn post(&self, line: Bytes) -> BoxFuture<'_, Result<(), String>> {
        async move {
            for (_, body) in posts(&line, 1) {
                self.webhook.post(&body, Some(&self.places)).await?;
            }
            Ok(())
        }
        .boxed()
    }
}

/// Where a server is, and the path there with how long it is waited for, as Kubernetes' clients say that.
fn split(server: &Uri) -> Result<(Uri, String), String> {
    let path = match server.path() {
        "" => "/",
        path => path,
    };
    let path = format!("{path}?timeout={}s", LIMIT.as_secs());
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
    Ok((Uri::from_parts(parts).map_err(|error| error.to_string())?, path))
}

/// Lines as EventLists of so many at most, with their number.
fn posts(lines: &[u8], most: usize) -> Vec<(usize, Bytes)> {
    const HEAD: &[u8] = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
    let (mut posts, mut events, mut body) = (Vec::new(), 0, HEAD.to_vec());
    let mut end = |events: &mut usize, body: &mut Vec<u8>| {
        if *events > 0 {
            body.extend_from_slice(b"]}");
            posts.push((*events, Bytes::from(std::mem::replace(body, HEAD.to_vec()))));
            *events = 0;
        }
    };
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if events == most || body.len() + line.len() > MOST {
            end(&mut events, &mut body);
        }
        if events > 0 {
            body.push(b',');
        }
        body.extend_from_slice(line);
        events += 1;
    }
    end(&mut events, &mut body);
    posts
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn lines_are_posted_in_lists_of_a_bounded_size() {
        let events = |posts: &[(usize, Bytes)]| -> Vec<usize> {
            let count = |(events, body): &(usize, Bytes)| {
                let list: Value = serde_json::from_slice(body).expect("JSON");
                assert_eq!(
                    (&list["kind"], &list["apiVersion"]),
                    (&"EventList".into(), &"audit.k8s.io/v1".into())
                );
                assert_eq!(list["items"].as_array().map(Vec::len), Some(*events));
                *events
            };
            posts.iter().map(count).collect()
        };
        let line = |bytes: usize| format!("{{\"a\":\"{}\"}}\n", "x".repeat(bytes));
        assert!(posts(b"", 2).is_empty());
        assert_eq!(events(&posts(line(1).repeat(5).as_bytes(), 2)), [2, 2, 1]);
        let large = [line(1), line(MOST), line(1), line(1)].concat();
        assert_eq!(events(&posts(large.as_bytes(), 10)), [1, 1, 2], "what is too large goes alone");
    }

    /// What a service does with the posts that come to it, one after the other: the code that it answers.
    async fn service(codes: &'static [u16]) -> (String, tokio::task::JoinHandle<Vec<(String, Value)>>) {
        use axum::{Router, extract::Request as Asked, response::IntoResponse as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let answer = move |asked: Asked| {
            let sender = sender.clone();
            async move {
                let path = asked.uri().to_string();
                let body = axum::body::to_bytes(asked.into_body(), 1 << 20).await.expect("a body");
                let (given, code) = tokio::sync::oneshot::channel::<u16>();
                let _ = sender.send((path, serde_json::from_slice(&body).expect("JSON"), given));
                StatusCode::from_u16(code.await.expect("a code")).expect("a code").into_response()
            }
        };
        tokio::spawn(async move {
            let _ = axum::serve(listener, Router::new().fallback(answer)).await;
        });
        let story = tokio::spawn(async move {
            let mut told = Vec::new();
            for code in codes {
                let (path, body, given) = seen.recv().await.expect("a post");
                let _ = given.send(*code);
                told.push((path, body));
            }
            told
        });
        (format!("http://{address}/events"), story)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_post_that_fails_is_made_again_and_one_that_is_refused_is_lost() {
        let (server, story) = service(&[503, 429, 200, 400, 200]).await;
        let endpoint = Endpoint {
            server: server.parse().expect("a URI"),
            tls: None,
            credentials: karmada_client::kubeconfig::Credentials::None,
            namespace: String::new(),
            proxy: None,
            others: Vec::new(),
        };
        let settings = Settings { events: 2, pace: Some((1000.0, 1)), backoff: Duration::from_millis(1) };
        let mut webhook = Webhook::new(endpoint, settings, Env::system()).expect("a webhook");
        let writing = std::thread::spawn(move || {
            let lost = webhook
                .write(b"{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n{\"a\":4}\n{\"a\":5}\n")
                .expect_err("two are refused");
            (lost.lines, lost.why.to_string())
        });
        let told = timeout(LIMIT, story).await.expect("in time").expect("a task");
        let items: Vec<String> = told.iter().map(|(_, list)| list["items"].to_string()).collect();
        let first = r#"[{"a":1},{"a":2}]"#;
        assert_eq!(items, [first, first, first, r#"[{"a":3},{"a":4}]"#, r#"[{"a":5}]"#]);
        assert!(told.iter().all(|(path, _)| path == "/events?timeout=30s"), "{told:?}");
        let (lost, why) =
            tokio::task::spawn_blocking(|| writing.join().expect("a thread")).await.expect("a task");
        assert_eq!((lost, &*why), (2, "the webhook answers 400 Bad Request"));
    }

    #[test]
    fn the_server_is_asked_at_its_path() {
        for (server, want) in [
            ("https://a:1", "/?timeout=30s"),
            ("https://a:1/", "/?timeout=30s"),
            ("https://a:1/x/y", "/x/y?timeout=30s"),
        ] {
            let (root, path) = split(&server.parse().expect("a URI")).expect("parts");
            assert_eq!((root.to_string().as_str(), path.as_str()), ("https://a:1/", want));
        }
    }
}
