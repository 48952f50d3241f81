//! The API in process: requests against the service over a memory store, under paused time.
//!
//! What Kubernetes answers in detail is held by the recordings that `replay.py` plays; here stands what a reader of the
//! crate should be able to rely on, one test for each promise.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod audit;
mod auth;
mod certificates;
mod corners;
mod crds;
mod durability;
mod following;
mod lifecycle;
mod limits;
mod node_ports;
mod objects;
mod openapi;
mod protobuf;
mod quota;
mod rbac;
mod scale;
mod sums;
mod watches;
mod webhooks;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use karmada_apiserver::{
    ApiServer, Registration,
    admission::{Admission, AdmitAll},
    authn::UserInfo,
    authz::{Authorization, Authorizer},
    limits::Limits,
    open_store,
    storage::ApiStore,
};
use karmada_env::{Env, ManualClock};
use karmada_store::engine::{Engine, memory::Memory};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// A server with its background controllers.
struct Server {
    api: ApiServer,
    clock: ManualClock,
    shutdown: CancellationToken,
}

/// An answer, its body read as JSON.
#[derive(Debug)]
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Server {
    async fn start() -> Self {
        Self::limited(Limits::default()).await
    }

    async fn limited(limits: Limits) -> Self {
        Self::over(Memory::new(), limits).await
    }

    /// A server with an authoriser of the caller's.
    async fn judged(authorizer: Arc<dyn Authorizer>) -> Self {
        Self::made(Memory::new(), Limits::default(), Authorization::By(authorizer)).await
    }

    async fn over(engine: impl Engine, limits: Limits) -> Self {
        Self::made(engine, limits, Authorization::Roles).await
    }

    async fn made(engine: impl Engine, limits: Limits, authorizer: Authorization) -> Self {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
        let store = open_store(engine, &Env::seeded(clock.clone(), 7)).unwrap();
        Self::with(store, clock, limits, authorizer).await
    }

    async fn with(store: ApiStore, clock: ManualClock, limits: Limits, authorizer: Authorization) -> Self {
        Self::admitting(store, clock, limits, authorizer, Arc::new(AdmitAll)).await
    }

    async fn admitting(
        store: ApiStore,
        clock: ManualClock,
        limits: Limits,
        authorizer: Authorization,
        admission: Arc<dyn Admission>,
    ) -> Self {
        let env = Env::seeded(clock.clone(), 7);
        let shutdown = CancellationToken::new();
        let registration = Registration { admission, authorizer, ..Registration::default() };
        let api = ApiServer::with_limits(store, env, registration, limits, shutdown.clone());
        api.start().await;
        Self { api, clock, shutdown }
    }

    fn admin() -> UserInfo {
        UserInfo::new("admin", ["system:masters"])
    }

    async fn send(
        &self,
        user: Option<UserInfo>,
        method: &str,
        path: &str,
        media: &str,
        body: &Value,
    ) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.send_bytes(user, method, path, media, bytes).await
    }

    async fn send_bytes(
        &self,
        user: Option<UserInfo>,
        method: &str,
        path: &str,
        media: &str,
        bytes: Vec<u8>,
    ) -> Answer {
        let headers: &[(&str, &str)] = if bytes.is_empty() { &[] } else { &[("content-type", media)] };
        let mut request = Self::request(method, path, headers, bytes);
        if let Some(user) = user {
            request.extensions_mut().insert(user);
        }
        self.answer(request).await
    }

    fn request(method: &str, path: &str, headers: &[(&str, &str)], bytes: Vec<u8>) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).header("user-agent", "test/1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::from(bytes)).unwrap()
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let response = self.api.service().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let warnings =
            response.headers().get_all("warning").iter().map(|v| v.to_str().unwrap().to_owned()).collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { code, body: serde_json::from_slice(&bytes).unwrap_or(Value::String(text)), warnings }
    }

    /// A request with these headers and a body of bytes.
    async fn send_body(
        &self,
        user: UserInfo,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        bytes: Vec<u8>,
    ) -> Answer {
        let mut request = Self::request(method, path, headers, bytes);
        request.extensions_mut().insert(user);
        self.answer(request).await
    }

    /// A request with these headers and no body.
    async fn send_with(&self, user: UserInfo, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send_body(user, method, path, headers, Vec::new()).await
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        self.send(Some(Self::admin()), method, path, "application/json", &body).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Value::Null).await
    }

    async fn patch(&self, path: &str, kind: &str, body: Value) -> Answer {
        let media = match kind {
            "apply" => "application/apply-patch+yaml".to_owned(),
            kind => format!("application/{kind}-patch+json"),
        };
        self.send(Some(Self::admin()), "PATCH", path, &media, &body).await
    }

    /// Asks until the answer is as wanted. Time is paused, so waiting costs none.
    async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        self.until_within(50, path, wanted).await
    }

    /// [`Server::until`] for what takes so many seconds.
    async fn until_within(&self, seconds: usize, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        for _ in 0..seconds * 20 {
            let answer = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{path} never became what was wanted: {:?}", self.get(path).await);
    }

    /// Pieces of large work that were done beside everybody's; none is on a runtime of one thread.
    async fn done_aside(&self) -> f64 {
        let page = self.get("/metrics").await.body;
        let mut lines = page.as_str().unwrap().lines();
        let line = lines.find_map(|line| line.strip_prefix("karmada_apiserver_heavy_work_total"));
        line.unwrap().trim_start_matches("{}").trim().parse().unwrap()
    }

    /// Opens a watch and reads its events.
    async fn watch(&self, path: &str) -> Events {
        let mut request = Request::builder().uri(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(Self::admin());
        let response = self.api.service().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Events { body: response.into_body(), buffer: Vec::new() }
    }
}

/// Defines a kind in `v1alpha1` that may have any fields, and waits until it is served.
async fn define(server: &Server, group: &str, names: &Value, scope: &str) {
    let plural = names["plural"].as_str().unwrap();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": scope, "names": names,
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let made =
        server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    assert_eq!(made.code, 201, "{made:?}");
    server.until(&format!("/apis/{group}/v1alpha1/{plural}"), |answer| answer.code == 200).await;
}

/// The events of a watch.
struct Events {
    body: Body,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event as (type, object); `None` when the watch has ended.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                return Some((event["type"].as_str().unwrap().to_owned(), event["object"].clone()));
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// The types and names of the next events.
    async fn names(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            let (kind, object) = self.next().await.unwrap();
            names.push(format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or_default()));
        }
        names
    }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
