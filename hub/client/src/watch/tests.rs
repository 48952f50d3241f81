//! The loop against a scripted server: every list and watch is a step of a script, played under paused time.

use std::{collections::VecDeque, pin::Pin, task::Poll, time::Duration};

use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use http_body::Frame as BodyFrame;
use http_body_util::StreamBody;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::{failures::Failures, testing::env, wake::Wake};

type Chunks = Pin<Box<dyn Stream<Item = Result<BodyFrame<Bytes>, std::io::Error>> + Send>>;

/// One answer of the server.
enum Reply {
    /// A complete answer.
    Json(u16, Value),
    /// A watch: lines, then what happens after them.
    Watch(Vec<String>, Then),
    /// An answer in pieces, with a pause before each; then silence, unless it is whole.
    Slow(Vec<String>, Duration, bool),
    /// No answer at all.
    Hang,
    /// The connection breaks before an answer.
    Refuse,
}

enum Then {
    /// A clean end after some time.
    End(Duration),
    /// The connection breaks.
    Break,
    /// Silence: a black hole.
    Nothing,
}

#[derive(Clone)]
struct Server {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<Mutex<Vec<(Duration, String)>>>,
    env: Env,
}

impl Server {
    fn new(replies: Vec<Reply>) -> Self {
        Self { replies: Arc::new(Mutex::new(replies.into())), asked: Arc::default(), env: env(7) }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                server.asked.lock().push((server.env.now(), request.uri().to_string()));
                let reply = server.replies.lock().pop_front().unwrap_or(Reply::Hang);
                let (code, chunks): (u16, Chunks) = match reply {
                    Reply::Hang => std::future::pending().await,
                    Reply::Refuse => return Err(std::io::Error::other("connection refused")),
                    Reply::Json(code, body) => (code, Box::pin(stream::iter([Ok(data(&body.to_string()))]))),
                    Reply::Slow(pieces, pause, whole) => {
                        let pieces = stream::iter(pieces).then(move |piece| async move {
                            sleep(pause).await;
                            Ok(data(&piece))
                        });
                        let rest = stream::pending().take(usize::from(!whole));
                        (200, Box::pin(pieces.chain(rest)))
                    }
                    Reply::Watch(lines, then) => {
                        let lines: Vec<_> = lines.iter().map(|line| Ok(data(&format!("{line}\n")))).collect();
                        let end = stream::once(async move {
                            match then {
                                Then::End(after) => {
                                    sleep(after).await;
                                    None
                                }
                                Then::Break => Some(Err(std::io::Error::other("reset by peer"))),
                                Then::Nothing => std::future::pending().await,
                            }
                        });
                        (200, Box::pin(stream::iter(lines).chain(end.filter_map(|item| async { item }))))
                    }
                };
                Ok(Response::builder().status(code).body(StreamBody::new(chunks)).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn watcher(&self) -> Watcher<(String, u64)> {
        self.bounded(rest::Bounds::default())
    }

    fn bounded(&self, bounds: rest::Bounds) -> Watcher<(String, u64)> {
        Watcher::over(
            Rest::new(self.client()).bounded(bounds),
            WatchConfig::new("/api/v1/configmaps").labels("a=b"),
            self.env.clone(),
            |text| {
                let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
                let name = value["metadata"]["name"].as_str().ok_or("no name")?.to_owned();
                Ok((name, value["data"]["v"].as_u64().unwrap_or(0)))
            },
        )
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(_, path)| path.clone()).collect()
    }
}

fn data(text: &str) -> BodyFrame<Bytes> {
    BodyFrame::data(Bytes::from(text.to_owned()))
}

fn object(name: &str, revision: u64) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": revision.to_string()}, "data": {"v": revision}})
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn list(revision: u64, token: &str, items: Vec<Value>) -> Reply {
    Reply::Json(
        200,
        json!({"metadata": {"resourceVersion": revision.to_string(), "continue": token}, "items": items}),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn frame(kind: &str, object: Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

fn bookmark(revision: u64) -> String {
    frame("BOOKMARK", json!({"metadata": {"resourceVersion": revision.to_string()}}))
}

fn gone() -> Value {
    json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"})
}

/// Events until nothing comes for five seconds.
async fn drain(watcher: &mut Watcher<(String, u64)>) -> Vec<String> {
    let mut seen = Vec::new();
    while let Ok(event) = timeout(Duration::from_secs(5), watcher.next()).await {
        seen.push(match event {
            Event::Init => "init".to_owned(),
            Event::Synced => "synced".to_owned(),
            Event::Upsert((name, v)) => format!("{name}={v}"),
            Event::Delete((name, _)) => format!("-{name}"),
        });
    }
    seen
}

/// A body of the client's type, from any.
pub(super) async fn wrap_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static,
{
    let body = Mutex::new(Some(body));
    let service = tower::service_fn(move |_: Request<Body>| {
        let body = body.lock().take().expect("asked once");
        async move { Ok::<_, std::io::Error>(Response::new(body)) }
    });
    let request = Request::get("/").body(Body::empty()).unwrap();
    Client::new(service, "default").send(request).await.unwrap().into_body()
}

#[tokio::test(start_paused = true)]
async fn pages_then_frames_with_selectors_and_bookmarks() {
    let server = Server::new(vec![
        list(0, "next page", vec![object("a", 1)]),
        list(5, "", vec![object("b", 2)]),
        Reply::Watch(
            vec![frame("MODIFIED", object("a", 6)), bookmark(8), frame("DELETED", object("b", 9))],
            Then::Nothing,
        ),
    ]);
    let mut watcher = server.watcher();
    assert_eq!(drain(&mut watcher).await, ["init", "a=1", "b=2", "synced", "a=6", "-b"]);
    assert_eq!(watcher.revision(), Some("9"));
    let asked = server.asked();
    assert_eq!(asked[0], "/api/v1/configmaps?limit=100&labelSelector=a%3Db");
    assert_eq!(asked[1], "/api/v1/configmaps?limit=100&labelSelector=a%3Db&continue=next%20page");
    assert!(asked[2].contains("watch=true&allowWatchBookmarks=true&resourceVersion=5&"), "{}", asked[2]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_goes_on_from_where_it_was() {
    for then in [Then::Break, Then::End(Duration::from_secs(60)), Then::End(Duration::ZERO)] {
        let server = Server::new(vec![
            list(5, "", vec![]),
            Reply::Watch(vec![frame("ADDED", object("a", 6)), bookmark(7)], then),
            Reply::Refuse,
            Reply::Json(503, json!({})),
            Reply::Watch(vec![frame("MODIFIED", object("a", 8))], Then::Nothing),
        ]);
        let mut watcher = server.watcher();
        let mut seen = drain(&mut watcher).await;
        sleep(Duration::from_secs(60)).await;
        seen.extend(drain(&mut watcher).await);
        assert_eq!(seen, ["init", "synced", "a=6", "a=8"]);
        let asked = server.asked();
        assert_eq!(asked.len(), 5);
        assert!(asked[2..].iter().all(|path| path.contains("resourceVersion=7&")), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_goes_on_with_its_page() {
    let server = Server::new(vec![
        Reply::Refuse,
        list(0, "p2", vec![object("a", 1)]),
        Reply::Json(500, json!({})),
        list(0, "p3", vec![object("b", 2)]),
        list(9, "", vec![object("c", 3)]),
    ]);
    assert_eq!(drain(&mut server.watcher()).await, ["init", "a=1", "b=2", "c=3", "synced"]);
    assert!(server.asked()[2..4].iter().all(|path| path.ends_with("continue=p2")));
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_too_old_means_a_new_list_wherever_it_is_told() {
    for told in [Reply::Json(410, gone()), Reply::Watch(vec![frame("ERROR", gone())], Then::Nothing)] {
        let server =
            Server::new(vec![list(5, "", vec![object("a", 1)]), told, list(20, "", vec![object("b", 19)])]);
        assert_eq!(drain(&mut server.watcher()).await, ["init", "a=1", "synced", "init", "b=19", "synced"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_expired_starts_the_list_again() {
    let server = Server::new(vec![
        list(0, "p2", vec![object("a", 1)]),
        Reply::Json(410, gone()),
        list(9, "", vec![object("b", 2)]),
    ]);
    assert_eq!(drain(&mut server.watcher()).await, ["init", "a=1", "init", "b=2", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed() {
    let server = Server::new(vec![
        list(5, "", vec![]),
        Reply::Watch(vec![], Then::Nothing),
        Reply::Watch(vec![frame("ADDED", object("a", 6))], Then::Nothing),
    ]);
    let mut watcher = server.watcher();
    assert_eq!(watcher.next().await, Event::Init);
    assert_eq!(watcher.next().await, Event::Synced);
    let begun = server.env.now();
    assert_eq!(watcher.next().await, Event::Upsert(("a".into(), 6)));
    let waited = server.env.now() - begun;
    assert!(waited >= IDLE && waited < IDLE + Duration::from_secs(1), "{waited:?}");
}

/// A server that was restored from an older copy says nothing to whoever watches from its future.
#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_silent_twice_is_listed_anew() {
    let silence = || Reply::Watch(vec![], Then::Nothing);
    let server = Server::new(vec![
        list(90, "", vec![object("a", 80)]),
        Reply::Watch(vec![frame("MODIFIED", object("a", 91))], Then::Nothing),
        silence(),
        // A sound in between: it begins to count anew.
        Reply::Watch(vec![bookmark(95)], Then::Nothing),
        silence(),
        silence(),
        list(50, "", vec![object("a", 40)]),
        Reply::Watch(vec![frame("MODIFIED", object("a", 51))], Then::Nothing),
    ]);
    let mut watcher = server.watcher();
    assert_eq!(drain(&mut watcher).await, ["init", "a=80", "synced", "a=91"]);
    assert_eq!(watcher.history(), 0);
    let begun = server.env.now();
    assert_eq!(watcher.next().await, Event::Init);
    assert_eq!((watcher.history(), watcher.revision()), (1, Some("50")), "revisions count from the start");
    let waited = server.env.now() - begun;
    assert!(waited >= IDLE * 5 - Duration::from_secs(5) && waited < IDLE * 6, "{waited:?}");
    assert_eq!(drain(&mut watcher).await, ["a=40", "synced", "a=51"]);
    assert_eq!((watcher.history(), watcher.revision()), (1, Some("51")));
}

#[tokio::test(start_paused = true)]
async fn a_frame_of_an_older_revision_begins_another_history() {
    for frame in [bookmark(50), frame("MODIFIED", object("a", 50))] {
        let server = Server::new(vec![
            list(90, "", vec![object("a", 80)]),
            Reply::Watch(vec![frame], Then::Nothing),
            list(51, "", vec![object("b", 40)]),
        ]);
        let mut watcher = server.watcher();
        assert_eq!(drain(&mut watcher).await, ["init", "a=80", "synced", "init", "b=40", "synced"]);
        assert_eq!((watcher.history(), watcher.revision()), (1, Some("51")));
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_told_that_the_server_is_another_lists_at_once_in_a_new_history() {
    let server = Server::new(vec![
        list(5, "", vec![object("a", 1)]),
        Reply::Watch(vec![], Then::Nothing),
        // Its revisions have gone further than ours, and mean something else.
        list(9, "", vec![object("b", 8)]),
    ]);
    let another = Wake::new();
    let config = WatchConfig::new("/api/v1/configmaps").anew(&another);
    let parse = |text: &str| {
        let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Ok((value["metadata"]["name"].as_str().unwrap_or_default().to_owned(), 0))
    };
    let mut watcher = Watcher::new(server.client(), config, server.env.clone(), parse);
    assert_eq!(drain(&mut watcher).await, ["init", "a=0", "synced"]);
    let begun = server.env.now();
    another.wake();
    assert_eq!(watcher.next().await, Event::Init);
    assert_eq!((watcher.history(), server.env.now()), (1, begun));
    assert_eq!(drain(&mut watcher).await, ["b=0", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn everything_is_listed_now_and_then_if_that_is_asked_for() {
    let mut replies = vec![list(5, "", vec![object("a", 1)])];
    replies.extend((0..12).map(|_| Reply::Watch(vec![bookmark(6)], Then::End(Duration::from_secs(90)))));
    let server = Server::new(replies);
    let config = WatchConfig::new("/api/v1/configmaps").relist(Duration::from_secs(600));
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
    let mut watcher = Watcher::new(server.client(), config, server.env.clone(), parse);
    for _ in 0..3 {
        watcher.next().await;
    }
    let _ = timeout(Duration::from_secs(2000), watcher.next()).await;
    let asked = server.asked.lock();
    let again =
        asked.iter().skip(1).find(|(_, path)| !path.contains("watch=true")).map(|(at, _)| at.as_secs());
    assert!(again.is_some_and(|at| (600..=1000).contains(&at)), "{asked:?}");
}

/// A text in so many pieces.
fn pieces(text: &str, count: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(chars.len().div_ceil(count)).map(|piece| piece.iter().collect()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_comes_slowly_still_comes() {
    let items: Vec<Value> = (0..20).map(|n| object("a", n)).collect();
    let all = json!({"metadata": {"resourceVersion": "20"}, "items": items}).to_string();
    let line = format!("{}\n", frame("MODIFIED", object("a", 21)));
    let pause = rest::DEADLINE - Duration::from_secs(1);
    let server = Server::new(vec![
        Reply::Slow(pieces(&all, 10), pause, true),
        Reply::Slow(pieces(&line, 9), pause, false),
    ]);
    let mut watcher = server.watcher();
    loop {
        if watcher.next().await == Event::Upsert(("a".into(), 21)) {
            break;
        }
    }
    assert_eq!(server.asked().len(), 2, "nothing was asked for twice");
    assert!(server.env.now() > IDLE + rest::DEADLINE * 9, "{:?}", server.env.now());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stops_halfway_is_not_waited_for() {
    let all = json!({"metadata": {"resourceVersion": "20"}, "items": []}).to_string();
    let half = Reply::Slow(vec![all[..20].to_owned()], Duration::from_secs(3), false);
    let server = Server::new(vec![half, list(20, "", vec![object("a", 20)])]);
    let mut watcher = server.watcher();
    while watcher.next().await != Event::Synced {}
    let asked_again = server.asked.lock()[1].0;
    let least = rest::DEADLINE + Duration::from_secs(3);
    assert!(asked_again >= least && asked_again < least + Duration::from_secs(1), "{asked_again:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_begins_is_not_waited_for() {
    let server =
        Server::new(vec![Reply::Hang, list(5, "", vec![]), Reply::Hang, Reply::Watch(vec![], Then::Nothing)]);
    let mut watcher = server.watcher();
    let health = watcher.health();
    let all = timeout(rest::DEADLINE * 2 + Duration::from_secs(5), async {
        while !health.borrow().live {
            let _ = timeout(Duration::from_millis(100), watcher.next()).await;
        }
    });
    all.await.expect("a hanging list and a hanging watch cost one deadline each");
}

#[tokio::test(start_paused = true)]
async fn one_unreadable_frame_is_asked_for_again_then_listed_over() {
    let bad = || Reply::Watch(vec!["{\"type\":\"ADDED\",\"obj".into()], Then::Nothing);
    let server =
        Server::new(vec![list(5, "", vec![]), bad(), bad(), bad(), list(9, "", vec![object("a", 8)])]);
    assert_eq!(drain(&mut server.watcher()).await, ["init", "synced", "init", "a=8", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_does_not_stop_the_others() {
    let server = Server::new(vec![
        list(5, "", vec![json!({"metadata": {}}), object("a", 1)]),
        Reply::Watch(
            vec![
                frame("ADDED", json!({"metadata": {"resourceVersion": "6"}})),
                frame("ADDED", object("b", 7)),
            ],
            Then::Nothing,
        ),
    ]);
    assert_eq!(drain(&mut server.watcher()).await, ["init", "a=1", "synced", "b=7"]);
}

/// An object of many values, each of two bytes.
fn dense(name: &str, revision: u64) -> Value {
    let mut object = object(name, revision);
    object["x"] = Value::from(vec![0; 100_000]);
    object
}

fn with_a_dense_one() -> Server {
    Server::new(vec![
        list(5, "", vec![object("a", 1), dense("b", 2), object("c", 3)]),
        Reply::Watch(vec![frame("MODIFIED", dense("b", 6)), frame("ADDED", object("d", 7))], Then::Nothing),
    ])
}

#[tokio::test(start_paused = true)]
async fn an_object_of_too_many_values_ends_neither_a_page_nor_a_watch() {
    // What a hub can store is read whatever it holds.
    let server = with_a_dense_one();
    let all = ["init", "a=1", "b=2", "c=3", "synced", "b=6", "d=7"];
    assert_eq!(drain(&mut server.watcher()).await, all);
    // Of anybody else's server that one alone is left out.
    let server = with_a_dense_one();
    let mut watcher = server.bounded(rest::Bounds { dense: rest::STRANGE, ..rest::Bounds::default() });
    assert_eq!(drain(&mut watcher).await, ["init", "a=1", "c=3", "synced", "-b", "d=7"]);
    assert_eq!(server.asked().len(), 2, "one list, one watch");
}

#[tokio::test(start_paused = true)]
async fn what_becomes_or_ends_as_one_of_too_many_values_is_not_known_any_more() {
    for how in ["MODIFIED", "DELETED"] {
        let server = Server::new(vec![
            list(5, "", vec![object("a", 1), object("b", 2)]),
            Reply::Watch(vec![frame(how, dense("a", 6)), frame("ADDED", object("d", 7))], Then::Nothing),
        ]);
        let mut watcher = server.bounded(rest::Bounds { dense: rest::STRANGE, ..rest::Bounds::default() });
        assert_eq!(drain(&mut watcher).await, ["init", "a=1", "b=2", "synced", "-a", "d=7"], "{how}");
    }
    // One without a name is not told of, and what is there is looked through anew.
    let mut nameless = dense("a", 6);
    nameless["metadata"]["name"] = json!({});
    let server = Server::new(vec![
        list(5, "", vec![object("a", 1), object("b", 2)]),
        Reply::Watch(vec![frame("MODIFIED", nameless)], Then::Nothing),
        list(6, "", vec![object("b", 2)]),
        Reply::Watch(vec![], Then::Nothing),
    ]);
    let mut watcher = server.bounded(rest::Bounds { dense: rest::STRANGE, ..rest::Bounds::default() });
    let all = ["init", "a=1", "b=2", "synced", "init", "b=2", "synced"];
    assert_eq!(drain(&mut watcher).await, all);
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_page_are_read_when_they_are_asked_for() {
    let read = Arc::new(Mutex::new(0));
    let server = Server::new(vec![list(5, "", (1..=50).map(|n| object("a", n)).collect())]);
    let count = Arc::clone(&read);
    let config = WatchConfig::new("/api/v1/configmaps");
    let mut watcher = Watcher::new(server.client(), config, server.env.clone(), move |_| {
        *count.lock() += 1;
        Ok(())
    });
    for told in 0..=50 {
        watcher.next().await;
        assert_eq!(*read.lock(), told);
    }
    assert_eq!(watcher.next().await, Event::Synced);
}

#[tokio::test(start_paused = true)]
async fn it_is_known_since_when_nothing_has_succeeded() {
    let server = Server::new(vec![Reply::Json(500, json!({})), Reply::Refuse, list(5, "", vec![])]);
    server.replies.lock().push_back(Reply::Watch(Vec::new(), Then::Nothing));
    let mut watcher = server.watcher();
    let health = watcher.health();
    assert_eq!(health.borrow().failing, None);
    let begun = server.env.now();
    assert_eq!(watcher.next().await, Event::Init);
    let (failing, error) = (health.borrow().failing, health.borrow().error.clone());
    assert!(
        failing.is_some_and(|since| since < server.env.now()) && error.is_some(),
        "{failing:?} {error:?}"
    );
    assert!(failing >= Some(begun));
    assert_eq!(drain(&mut watcher).await, ["synced"]);
    assert_eq!(health.borrow().failing, None);
}

#[tokio::test(start_paused = true)]
async fn each_failure_is_counted_with_its_reason_and_no_end_is_one() {
    let server = Server::new(vec![
        Reply::Json(403, json!({})),
        Reply::Json(503, json!({})),
        Reply::Refuse,
        list(5, "", vec![]),
        Reply::Watch(vec![bookmark(6)], Then::End(Duration::from_secs(60))),
        Reply::Watch(vec!["{".to_owned()], Then::Nothing),
        Reply::Watch(vec![bookmark(7)], Then::Break),
        Reply::Watch(vec![frame("ERROR", gone())], Then::Nothing),
        list(9, "", vec![]),
        Reply::Watch(vec![bookmark(8)], Then::Nothing),
        list(9, "", vec![]),
        Reply::Watch(vec![], Then::Nothing),
    ]);
    let failures = Failures::default();
    let rest = Rest::new(server.client()).counting(&failures);
    let mut watcher =
        Watcher::over(rest, WatchConfig::new("/apis/apps/v1/deployments"), server.env.clone(), |_| Ok(()));
    let watching = async {
        while server.asked().len() < 100 {
            watcher.next().await;
        }
    };
    // The last watch is silent, and asked for again.
    let asked = async {
        while server.asked().len() < 13 {
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        biased;
        asked = timeout(Duration::from_secs(600), asked) => asked.expect("it asks again"),
        () = watching => panic!("{:?}", server.asked()),
    }
    let counted = [
        ("expired", 1),
        ("failed", 2),
        ("refused", 1),
        ("server_error", 1),
        ("silent", 1),
        ("unreadable", 1),
        ("went_back", 1),
    ];
    assert_eq!(
        failures.counts(),
        counted.map(|(reason, count)| format!("deployments.apps {reason} {count}"))
    );
}

#[tokio::test(start_paused = true)]
async fn failures_are_spaced_and_a_wake_cuts_the_wait() {
    let mut replies = vec![list(5, "", vec![])];
    replies.extend((0..200).map(|_| Reply::Refuse));
    let server = Server::new(replies);
    let wake = Wake::new();
    let config = WatchConfig {
        retry: Policy::new(Duration::from_secs(1), Duration::from_secs(300)),
        ..WatchConfig::new("/x").wake(&wake)
    };
    let mut watcher = Watcher::new(server.client(), config, server.env.clone(), |_| Ok(()));
    assert!(
        timeout(Duration::from_secs(600), async {
            watcher.next().await;
            watcher.next().await;
            watcher.next().await
        })
        .await
        .is_err()
    );
    let before = server.asked().len();
    assert!((5..14).contains(&before), "{before} requests in ten minutes");
    wake.wake();
    assert!(timeout(Duration::from_millis(10), watcher.next()).await.is_err());
    assert_eq!(server.asked().len(), before + 1, "the wake was not heard");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let busy =
        json!({"kind": "Status", "code": 429, "message": "busy", "details": {"retryAfterSeconds": 20}});
    let server = Server::new(vec![Reply::Json(429, busy), list(5, "", vec![])]);
    let mut watcher = server.watcher();
    assert_eq!(watcher.next().await, Event::Init);
    assert!(server.env.now() >= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_can_go_on_from_a_revision_it_is_given() {
    let server = Server::new(vec![Reply::Watch(vec![frame("ADDED", object("a", 43))], Then::Nothing)]);
    let mut watcher = server.watcher().resume("42");
    assert_eq!(watcher.next().await, Event::Upsert(("a".into(), 43)));
    assert!(server.asked()[0].contains("resourceVersion=42&"));
}

#[tokio::test(start_paused = true)]
async fn next_may_be_dropped_at_any_point() {
    let replies = || {
        vec![
            list(0, "p2", vec![object("a", 1)]),
            list(5, "", vec![object("b", 2)]),
            Reply::Watch(vec![frame("ADDED", object("c", 6))], Then::End(Duration::from_secs(10))),
            Reply::Watch(vec![frame("ADDED", object("d", 7))], Then::Nothing),
        ]
    };
    let server = Server::new(replies());
    let mut watcher = server.watcher();
    let mut seen = Vec::new();
    for _ in 0..4000 {
        // Polled once, dropped: whatever was under way must go on.
        let mut next = Box::pin(watcher.next());
        let polled = futures::future::poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
        drop(next);
        match polled {
            Poll::Ready(event) => seen.push(event),
            Poll::Pending => sleep(Duration::from_millis(10)).await,
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn who_knows_most_of_it_lists_in_another_way_where_that_goes() {
    let known = Arc::new(Mutex::new(VecDeque::from([
        Err(500),
        Ok(Some(("5", vec![("a".to_owned(), 1)]))),
        Ok(None),
        Ok(Some(("3", vec![]))),
    ])));
    let lister: Lister<(String, u64)> = Arc::new(move || {
        let next = known.lock().pop_front().unwrap_or(Ok(None));
        Box::pin(async move {
            let failed = |code: u16| Error::Api(Box::new(kube::core::Status { code, ..Default::default() }));
            let listed = next.map_err(failed)?;
            Ok(listed.map(|(revision, items)| Listed { revision: revision.to_owned(), items }))
        })
    });
    let server = Server::new(vec![
        Reply::Watch(vec![frame("MODIFIED", object("a", 6)), frame("ERROR", gone())], Then::Nothing),
        list(9, "", vec![object("b", 8)]),
        Reply::Watch(vec![frame("ERROR", gone())], Then::Nothing),
        Reply::Watch(vec![], Then::Nothing),
    ]);
    let mut watcher = server.watcher().list_by(lister);
    let seen = drain(&mut watcher).await;
    assert_eq!(seen, ["init", "a=1", "synced", "a=6", "init", "b=8", "synced", "init", "synced"]);
    assert_eq!((watcher.history(), watcher.revision()), (1, Some("3")), "it went back");
    let asked = server.asked();
    assert!(asked[0].contains("resourceVersion=5&") && asked[1].contains("?limit="), "{asked:?}");
    assert!(asked[3].contains("resourceVersion=3&"), "{asked:?}");
}

#[test]
fn where_the_loop_goes_on() {
    let failed = || Trouble::Failed { text: String::new(), code: None, retry_after: None };
    let silent = || Trouble::Silent { text: String::new() };
    let garbled = || Trouble::Garbled { text: String::new() };
    let page = || Step::List(Some("p".into()));
    let rows = [
        (Trouble::Gone, Step::Watch, 0, (Step::Begin, true)),
        (Trouble::Gone, page(), 0, (Step::Begin, true)),
        (failed(), page(), 0, (page(), true)),
        (failed(), Step::Watch, 0, (Step::Watch, true)),
        (garbled(), Step::Watch, GARBLED_LIMIT - 1, (Step::Watch, true)),
        (garbled(), Step::Watch, GARBLED_LIMIT, (Step::Begin, true)),
        (silent(), Step::Watch, SILENT_LIMIT - 1, (Step::Watch, true)),
        (silent(), Step::Watch, SILENT_LIMIT, (Step::Begin, true)),
        (Trouble::Ended, Step::Watch, 0, (Step::Watch, false)),
    ];
    for (trouble, step, count, want) in rows {
        assert_eq!(after(&trouble, step, count), want, "{trouble:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
    let large = || json!({"metadata": {}, "items": [], "padding": "x".repeat(5000)});
    let replies = vec![
        list(7, "t", vec![object("a", 5)]),
        Reply::Json(200, large()),
        Reply::Json(200, large()),
        list(7, "", vec![object("b", 6)]),
    ];
    let server = Server::new(replies);
    let mut watcher = server.bounded(rest::Bounds { answer: 4096, ..rest::Bounds::default() });
    let mut names = Vec::new();
    loop {
        match watcher.next().await {
            Event::Upsert((name, _)) => names.push(name),
            Event::Synced => break,
            Event::Init | Event::Delete(_) => {}
        }
    }
    assert_eq!(names, ["a", "b"]);
    let limits: Vec<_> = server
        .asked()
        .iter()
        .map(|path| path.split(['=', '&']).nth(1).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(limits, ["100", "100", "20", "4"]);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_beside_others_comes_in_small_pages() {
    let large = || json!({"metadata": {}, "items": [], "padding": "x".repeat(200_000)});
    let room = crate::Room::new(1 << 20, 1 << 20);
    // Another server's answers, and one of this server's own that goes on beyond that, take all there is, and never end.
    let [mut others, mut beyond] = [(); 2].map(|()| Taken::of(Some(&room.corner(4 << 20, 0))));
    timeout(LAGGING, others.grow_to((1 << 20) + (64 << 10))).await.expect("all of it");
    timeout(LAGGING, beyond.grow_to(1 << 20)).await.expect("one may");
    let server = Server::new(vec![
        Reply::Json(200, large()),
        Reply::Json(200, large()),
        list(7, "", vec![object("a", 5)]),
    ]);
    let rest = Rest::new(server.client()).within(Some(room.corner(4 << 20, 1 << 20)));
    let read = |text: &str| Ok(text.len());
    let config = WatchConfig::new("/api/v1/configmaps");
    let mut watcher = Watcher::over(rest, config, server.env.clone(), read);
    assert_eq!(watcher.next().await, Event::Init);
    assert!(matches!(watcher.next().await, Event::Upsert(_)));
    assert_eq!(watcher.next().await, Event::Synced);
    assert!(server.asked()[2].contains("limit=4"), "{:?}", server.asked());
}

/// Bytes that each object takes, of which three have room.
const EACH: usize = 1000;

/// What becomes of these answers: of the names that are known at the end, and why nothing is, if so.
async fn kept(replies: Vec<Reply>) -> (Vec<String>, Vec<(String, String)>, Rest) {
    let server = Server::new(replies);
    let bounds = rest::Bounds { kept: 4 * EACH, ..rest::Bounds::default() };
    let rest = Rest::new(server.client()).bounded(bounds);
    let config = WatchConfig { page_size: 250_000, ..WatchConfig::new("/api/v1/configmaps") };
    let read = |text: &str| {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok((value["metadata"]["name"].as_str().unwrap_or_default().to_owned(), value["data"]["v"].as_u64()))
    };
    let mut watcher = Keeping::new(rest.clone(), config, server.env.clone(), read, |_, _| EACH);
    let mut index = Index::new();
    let all = async {
        loop {
            match watcher.next().await {
                Some(event) => drop(index.apply(event)),
                None => index.lose(),
            }
        }
    };
    assert!(timeout(CROWDED / 2, all).await.is_err());
    let lacks = rest.lacks().all();
    (index.iter().map(|(name, _)| name.clone()).collect(), lacks, rest)
}

#[tokio::test(start_paused = true)]
async fn no_more_is_kept_than_there_is_room_for() {
    let one = || list(7, "", vec![object("a", 1)]);
    let watch = |lines: &[(&str, &str)]| {
        let lines = lines.iter().zip(8..).map(|((kind, name), revision)| frame(kind, object(name, revision)));
        Reply::Watch(lines.collect(), Then::Nothing)
    };
    let changes = |lines: &[(&str, &str)]| vec![one(), watch(lines)];
    let four = ["a", "b", "c", "d"].map(|name| object(name, 1)).to_vec();
    let empty = || list(7, "t", vec![]);
    let again = || list(7, "t", vec![object("a", 1)]);
    // (what is told, which are known then)
    let rows: Vec<(&str, Vec<Reply>, &[&str])> = vec![
        (
            "there is room",
            changes(&[("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a"), ("ADDED", "c")]),
            &["b", "c"],
        ),
        ("too many in a list", vec![list(7, "", four)], &[]),
        ("too many come", changes(&[("ADDED", "b"), ("ADDED", "c"), ("ADDED", "d")]), &[]),
        ("changes of others", changes(&[("MODIFIED", "b"), ("MODIFIED", "c"), ("MODIFIED", "d")]), &[]),
        (
            "what is not there goes",
            changes(&[("DELETED", "x"), ("DELETED", "y"), ("ADDED", "b"), ("ADDED", "c"), ("ADDED", "d")]),
            &[],
        ),
        ("nothing but pages", vec![empty(), empty(), empty(), empty(), empty()], &[]),
        ("the same page, a few times", vec![again(), again(), again(), one()], &["a"]),
    ];
    for (what, replies, known) in rows {
        let (names, lacks, rest) = kept(replies).await;
        assert_eq!(names, known, "{what}");
        assert_eq!(lacks.is_empty(), !known.is_empty(), "{what}: {lacks:?}");
        assert_eq!(
            (rest.shelf().bytes(), rest.lacks().all()),
            (0, vec![]),
            "{what}: nobody wants to know any more"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_collection_that_was_too_large_is_known_again() {
    let bounds = rest::Bounds { kept: 4 * EACH, ..rest::Bounds::default() };
    let names = ["a", "b", "c", "d"].map(|name| object(name, 1));
    let server = Server::new(vec![list(7, "", names.to_vec()), list(8, "", vec![object("c", 8)])]);
    let rest = Rest::new(server.client()).bounded(bounds);
    let read = |text: &str| Ok((text.len(), ()));
    let config = WatchConfig::new("/api/v1/configmaps");
    let mut watcher = Keeping::new(rest.clone(), config, server.env.clone(), read, |_, ()| EACH);
    let begun = Instant::now();
    assert!(watcher.next().await.is_none());
    assert_eq!(rest.shelf().bytes(), 0);
    assert!(rest.lacks().all()[0].1.contains("of this member"));
    assert_eq!(watcher.next().await, Some(Event::Init));
    assert!(begun.elapsed() >= CROWDED);
    assert!(matches!(watcher.next().await, Some(Event::Upsert(_))));
    assert_eq!(watcher.next().await, Some(Event::Synced));
    assert!(rest.lacks().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_is_fed_lists_and_hears_what_is_newer() {
    let share = share::Share::new();
    let refused = Reply::Json(500, json!({"kind": "Status", "code": 500}));
    let server = Server::new(vec![
        list(7, "t", vec![object("a", 3)]),
        refused,
        list(7, "", vec![object("b", 5)]),
        list(20, "", vec![object("a", 9)]),
    ]);
    let config = WatchConfig::new("/api/v1/configmaps").fed(Some(share.part(share::Part::All)));
    let read = |text: &str| {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok((
            value["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            value["data"]["v"].as_u64().unwrap_or(0),
        ))
    };
    let mut watcher = Watcher::new(server.client(), config, server.env.clone(), read);
    let tell = |name: &str, revision: u64, there: bool| {
        let text = object(name, revision).to_string().into();
        share.tell("", name, &News { there, text, revision: Some(revision) });
    };
    // Before the list is there, and while it is made.
    tell("a", 6, true);
    tell("b", 8, true);
    let upsert = |name: &str, revision| Event::Upsert((name.to_owned(), revision));
    assert_eq!(watcher.next().await, Event::Init);
    assert_eq!(watcher.next().await, upsert("a", 3));
    tell("c", 9, true);
    assert_eq!(watcher.next().await, upsert("b", 5));
    assert_eq!(watcher.next().await, Event::Synced);
    assert_eq!(watcher.next().await, upsert("b", 8));
    assert_eq!(watcher.next().await, upsert("c", 9));
    tell("b", 10, true);
    tell("b", 11, false);
    assert_eq!(watcher.next().await, Event::Delete(("b".to_owned(), 11)), "the last alone");
    assert!(timeout(Duration::from_secs(3600), watcher.next()).await.is_err(), "silence is no trouble");
    share.anew();
    tell("c", 12, true);
    for event in [Event::Init, upsert("a", 9), Event::Synced] {
        assert_eq!(watcher.next().await, event);
    }
    assert!(timeout(Duration::from_secs(1), watcher.next()).await.is_err(), "that was listed");
    tell("c", 21, true);
    assert_eq!(watcher.next().await, upsert("c", 21));
    assert!(server.asked().iter().all(|path| !path.contains("watch")), "{:?}", server.asked());
}
