//! How requests end that nobody wants any more, or that have no body.

use h2::client;
use http::request::Builder;
use karmada_env::Env;

use super::*;

const STUCK_SESSION: &str = "/api/v1/namespaces/n/pods/p/exec?command=stuck";
const STUCK_UPLOAD: &str = "/api/v1/namespaces/n/pods/p/proxy/stuck";

/// A hub that does what it likes.
async fn hub(budget: Toll) -> (client::SendRequest<Bytes>, Far) {
    let (near, far) = far("full", budget, Duration::ZERO);
    let (hub, connection) = client::handshake(near).await.unwrap();
    tokio::spawn(connection);
    (hub, far)
}

fn asks(method: Method, path: &str) -> Builder {
    let uri = format!("http://member{path}");
    Request::builder().method(method).uri(uri).header(USER, user("jane", &["dev", "system:authenticated"]))
}

fn asks_for_session() -> Request<()> {
    let asked = asks(Method::CONNECT, STUCK_SESSION)
        .extension(h2::ext::Protocol::from_static("karmada-session"))
        .header("karmada-method", "GET")
        .header("karmada-upgrade", "websocket");
    asked.body(()).unwrap()
}

/// Sends so many bytes, in parts of this size, and is done when they have left.
async fn sends(to: &mut h2::SendStream<Bytes>, bytes: usize, size: usize) {
    for _ in 0..bytes / size {
        to.send_data(Bytes::from(vec![b'x'; size]), false).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn is_version_answered(hub: &client::SendRequest<Bytes>) {
    let asked = asks(Method::GET, "/api/v1/pods").body(()).unwrap();
    let (answer, _) = hub.clone().ready().await.unwrap().send_request(asked, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
}

/// Whoever carries waits for the member, which says and takes nothing.
#[tokio::test(start_paused = true)]
async fn what_the_hub_gives_up_ends_on_the_member_at_once() {
    let (hub, far) = hub(Toll::default()).await;
    let mut dialled = far.seen.dialled.subscribe();
    for (is_session, has_ended) in [(true, false), (true, true), (false, false)] {
        for _ in 0..200 {
            let asked = match is_session {
                true => asks_for_session(),
                false => asks(Method::POST, STUCK_UPLOAD).body(()).unwrap(),
            };
            let (answer, mut stream) = hub.clone().ready().await.unwrap().send_request(asked, false).unwrap();
            let answer = if is_session { Some(answer.await.unwrap()) } else { None };
            sends(&mut stream, 30 << 10, 1 << 10).await;
            assert_eq!(*dialled.borrow_and_update(), 1);
            if has_ended {
                stream.send_data(Bytes::new(), true).unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            stream.send_reset(h2::Reason::CANCEL);
            drop((answer, stream));
            let left = tokio::time::timeout(Duration::from_secs(1), dialled.wait_for(|open| *open == 0));
            left.await.expect("it goes on").unwrap();
        }
    }
    is_version_answered(&hub).await;
}

/// The hub would take it for an error of the connection's.
#[tokio::test(start_paused = true)]
async fn an_answer_to_head_has_no_body() {
    let mut set = set("read-only").await;
    for path in ["/api/v1/namespaces/n/pods/;", "/api/v1/pods", "/unauthorized"] {
        for _ in 0..3 {
            let answer = set.hub.send_request(request("HEAD", path, "")).await.unwrap();
            let body = answer.into_body().collect().await;
            assert!(body.is_ok_and(|body| body.to_bytes().is_empty()), "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_is_paid_for_though_nobody_reads_it() {
    // Of which a quarter may go at once, and is a share of a half; so much again may be owed.
    let budget = Toll::full(4 << 20, Env::system());
    let (hub, _far) = hub(budget.clone()).await;
    for (asked, is_session) in
        [(asks_for_session(), true), (asks(Method::POST, STUCK_UPLOAD).body(()).unwrap(), false)]
    {
        let paid = budget.share("jane", 0);
        assert!(paid.ask().is_ok());
        let (answer, mut stream) = hub.clone().ready().await.unwrap().send_request(asked, false).unwrap();
        let _answer = if is_session { Some(answer.await.unwrap()) } else { None };
        // With what is around each.
        sends(&mut stream, 3000, 1).await;
        let is_over = paid.ask().is_err();
        assert_eq!(is_over, !is_session, "some 270 KiB of 512, and as much again");
    }
    assert!(budget.share("john", 0).ask().is_ok());
}
