//! Many watchers, slow ones, late ones.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, Wake, Waker},
};

use http_body::Body as _;
use karmada_apiserver::open_store_with;
use karmada_store::HistoryLimits;

use super::*;

const EXPIRED: (u64, &str) = (410, "Expired");

/// A server with little history, over an engine that outlives it.
async fn forgetful(memory: &Memory) -> Server {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
    let env = Env::seeded(clock.clone(), 7);
    let history =
        HistoryLimits { age: |_| Duration::MAX, bytes: 20_000, least: Duration::ZERO, most: 20_000 };
    let store = open_store_with(memory.clone(), &env, history).unwrap();
    let shutdown = CancellationToken::new();
    let api = ApiServer::new(store, env, Registration::default(), shutdown.clone());
    api.start().await;
    Server { api, clock, shutdown }
}

/// Changes an object until the history of its kind has moved on by far.
async fn churn(server: &Server, rounds: usize) {
    for round in 0..rounds {
        let data = json!({"data": {"k": round.to_string()}});
        assert_eq!(server.patch(&format!("{MAPS}/a"), "merge", data).await.code, 200);
    }
}

fn version(list: &Value) -> u64 {
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn failure(status: &Value) -> (u64, &str) {
    (status["code"].as_u64().unwrap_or_default(), status["reason"].as_str().unwrap_or_default())
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Watcher {
    body: Body,
    wakes: Arc<Wakes>,
}

impl Watcher {
    async fn open(server: &Server, namespace: usize) -> Self {
        let path = format!("/api/v1/namespaces/n{namespace}/configmaps?watch=1&resourceVersion=1");
        Self { body: server.watch(&path).await.body, wakes: Arc::default() }
    }

    /// What there is to be read now.
    fn read(&mut self) -> Option<String> {
        let waker = Waker::from(self.wakes.clone());
        match Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(frame) => {
                let data = frame.unwrap().unwrap().into_data().unwrap();
                Some(String::from_utf8(data.to_vec()).unwrap())
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_ten_thousand_watchers_the_one_is_woken_whom_it_concerns() {
    const WATCHERS: usize = 10_000;
    let server = Server::start().await;
    for namespace in ["n7", "n8"] {
        let object = json!({"metadata": {"name": namespace}});
        assert_eq!(server.call("POST", "/api/v1/namespaces", object).await.code, 201);
    }
    let mut watchers = Vec::new();
    for namespace in 0..WATCHERS {
        let mut watcher = Watcher::open(&server, namespace).await;
        assert_eq!(watcher.read(), None);
        watchers.push(watcher);
    }
    let count = |watchers: &[Watcher]| -> Vec<(usize, usize)> {
        let wakes = watchers.iter().map(|watcher| watcher.wakes.0.load(Ordering::SeqCst));
        wakes.enumerate().filter(|(_, wakes)| *wakes > 0).collect()
    };
    assert_eq!(count(&watchers), []);
    let path = |namespace: usize| format!("/api/v1/namespaces/n{namespace}/configmaps");
    assert_eq!(server.call("POST", &path(7), config_map("a")).await.code, 201);
    assert_eq!(count(&watchers), [(7, 1)]);
    let frame = watchers[7].read().unwrap();
    assert!(
        frame.starts_with("{\"type\":\"ADDED\",\"object\":{\"kind\":\"ConfigMap\",")
            && frame.ends_with("}\n")
    );
    assert_eq!(watchers[7].read(), None);
    // Many events before it looks again are one waking, and are read together.
    for name in ["b", "c", "d"] {
        server.call("POST", &path(7), config_map(name)).await;
        server.call("POST", &path(8), config_map(name)).await;
    }
    assert_eq!(count(&watchers), [(7, 2), (8, 1)]);
    assert_eq!(watchers[7].read().unwrap().lines().count(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_gone_and_a_list_that_was_begun_goes_on_at_the_latest() {
    let server = forgetful(&Memory::new()).await;
    for name in ["a", "b", "c", "d"] {
        server.call("POST", MAPS, config_map(name)).await;
    }
    let first = server.get(&format!("{MAPS}?limit=2")).await.body;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let next = server.get(&format!("{MAPS}?limit=1&continue={token}")).await.body;
    assert_eq!(version(&next), version(&first), "a page of the same version");
    server.call("DELETE", &format!("{MAPS}/c"), Value::Null).await;
    server.call("POST", MAPS, config_map("e")).await;
    churn(&server, 100).await;

    let gone = server.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((gone.code, failure(&gone.body)), (410, EXPIRED));
    // The answer has a token with which the rest is read as it is now.
    let fresh = gone.body["metadata"]["continue"].as_str().unwrap();
    let rest = server.get(&format!("{MAPS}?limit=1&continue={fresh}")).await.body;
    assert_eq!(rest["items"][0]["metadata"]["name"], "d");
    assert!(version(&rest) > version(&first));
    let further = rest["metadata"]["continue"].as_str().unwrap();
    let last = server.get(&format!("{MAPS}?limit=5&continue={further}")).await.body;
    assert_eq!(
        (last["items"].as_array().unwrap().len(), &last["items"][0]["metadata"]["name"]),
        (1, &json!("e"))
    );
    assert_eq!(version(&last), version(&rest), "the rest is of one version again");

    let old = version(&first);
    let exact = server.get(&format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!((exact.code, failure(&exact.body)), (410, EXPIRED));
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={old}")).await;
    let (kind, status) = events.next().await.unwrap();
    assert_eq!((kind.as_str(), failure(&status)), ("ERROR", EXPIRED));
    assert_eq!(events.next().await, None);
    // What does not change is not forgotten, whatever else does.
    server.watch(&format!("/api/v1/namespaces/default/secrets?watch=1&resourceVersion={old}")).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_too_slow_is_cut_off_and_resumes_from_a_list() {
    let server = forgetful(&Memory::new()).await;
    server.call("POST", MAPS, config_map("a")).await;
    let from = version(&server.get(MAPS).await.body);
    let mut slow = server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    churn(&server, 3).await;
    assert_eq!(slow.names(1).await, ["MODIFIED a"]);
    churn(&server, 100).await;
    // What it had taken is told, then that it is too late, and nothing else.
    assert_eq!(slow.names(2).await, ["MODIFIED a", "MODIFIED a"]);
    let (kind, status) = slow.next().await.unwrap();
    assert_eq!((kind.as_str(), failure(&status)), ("ERROR", EXPIRED));
    assert_eq!(slow.next().await, None);
    let from = version(&server.get(MAPS).await.body);
    let mut again = server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    churn(&server, 1).await;
    assert_eq!(again.names(1).await, ["MODIFIED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_across_a_restart() {
    let memory = Memory::new();
    let server = forgetful(&memory).await;
    server.call("POST", MAPS, config_map("a")).await;
    let from = version(&server.get(MAPS).await.body);
    churn(&server, 2).await;
    server.call("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    server.shutdown.cancel();
    server.api.registry().store.close().await.unwrap();

    let server = forgetful(&memory).await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(events.names(3).await, ["MODIFIED a", "MODIFIED a", "DELETED a"]);
}
