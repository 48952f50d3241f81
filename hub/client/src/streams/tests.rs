//! Both ends of a connection, in memory.

use std::{future::poll_fn, time::Duration};

use futures::stream;
use h2::{Reason, client, server};
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::*;

/// What may be under way of a stream.
const WINDOW: u32 = 4 << 10;
/// At a time.
const STREAMS: u32 = 8;

type Asked = (Request<Received>, server::SendResponse<Bytes>);

/// A client, what its server is asked, and its connection.
async fn ends()
-> (client::SendRequest<Bytes>, mpsc::UnboundedReceiver<Asked>, JoinHandle<Result<(), h2::Error>>) {
    let (near, far) = duplex(64 << 10);
    let (sender, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut builder = server::Builder::new();
        builder.initial_window_size(WINDOW).max_concurrent_streams(STREAMS).data_frame_budget(BUDGET);
        let mut connection = builder.handshake(Turns::new(far)).await.unwrap();
        while let Some(Ok((request, respond))) = connection.accept().await {
            let length = length(request.headers());
            let _ = sender.send((request.map(|body| Received::new(body, length, |_| Ok(()))), respond));
        }
    });
    let mut builder = client::Builder::new();
    builder.initial_window_size(WINDOW).data_frame_budget(BUDGET);
    builder.reset_stream_duration(Duration::from_secs(60)).max_concurrent_reset_streams(4096);
    builder.max_local_error_reset_streams(Some(10));
    let (sender, connection) = builder.handshake(Turns::new(near)).await.unwrap();
    (sender, asked, tokio::spawn(connection))
}

fn request() -> Request<()> {
    Request::post("https://member/").body(()).unwrap()
}

/// A session, as both ends have it.
async fn session(
    hub: &client::SendRequest<Bytes>,
    asked: &mut mpsc::UnboundedReceiver<Asked>,
) -> (Session, Session) {
    let mut hub = hub.clone().ready().await.unwrap();
    let (answer, stream) = hub.send_request(request(), false).unwrap();
    let (request, mut respond) = asked.recv().await.unwrap();
    let stream_back = respond.send_response(Response::new(()), false).unwrap();
    let theirs = Session::new(request.into_body(), Sending::new(stream_back));
    let ours = Received::new(answer.await.unwrap().into_body(), None, |_| Ok(()));
    (Session::new(ours, Sending::new(stream)), theirs)
}

/// As much as goes, in parts of this size; how much that was.
async fn stuffs(session: &mut Session, size: usize) -> usize {
    let mut all = 0;
    while let Ok(written) = timeout(Duration::from_secs(1), session.write(&vec![b'x'; size])).await {
        all += written.unwrap();
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_nobody_reads_takes_a_window_however_it_is_cut() {
    let (hub, mut asked, connection) = ends().await;
    let mut open = Vec::new();
    for n in 0..STREAMS - 1 {
        let (mut ours, mut theirs) = session(&hub, &mut asked).await;
        let size = [1, 7, 3000][n as usize % 3];
        for (end, name) in [(&mut ours, "there"), (&mut theirs, "back")] {
            // And what is before the connection.
            let stuffed = stuffs(end, size).await;
            assert!((WINDOW as usize..WINDOW as usize + 1).contains(&stuffed), "{name} {size}: {stuffed}");
        }
        open.push((ours, theirs));
    }
    // Others have theirs.
    let (mut ours, mut theirs) = session(&hub, &mut asked).await;
    ours.write_all(b"question").await.unwrap();
    let mut heard = [0; 8];
    theirs.read_exact(&mut heard).await.unwrap();
    theirs.write_all(b"answer!!").await.unwrap();
    ours.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"answer!!");
    // Nothing is lost, and as much can come again.
    for (mut ours, mut theirs) in open {
        let mut all = vec![0; WINDOW as usize];
        theirs.read_exact(&mut all).await.unwrap();
        ours.read_exact(&mut all).await.unwrap();
        assert!(all.iter().all(|sign| *sign == b'x'));
        assert!(stuffs(&mut ours, 500).await >= WINDOW as usize);
    }
    assert!(!connection.is_finished());
}

#[tokio::test(start_paused = true)]
async fn who_goes_leaves_nothing_that_stands_still() {
    let (hub, mut asked, connection) = ends().await;
    for n in 0..10 * STREAMS {
        let (mut ours, mut theirs) = session(&hub, &mut asked).await;
        stuffs(&mut ours, 900).await;
        stuffs(&mut theirs, 900).await;
        // One end goes, and the other hears of it when it reads, writes, or has both before it.
        match n % 2 {
            0 => drop(ours),
            _ => {
                drop(theirs);
                theirs = ours;
            }
        }
        let writes = timeout(Duration::from_secs(1), theirs.write(b"y")).await.unwrap();
        assert!(writes.is_err(), "{n}");
        let mut rest = Vec::new();
        let reads = timeout(Duration::from_secs(1), theirs.read_to_end(&mut rest)).await.unwrap();
        assert!(reads.is_err() && rest.len() <= WINDOW as usize, "{n}: {reads:?}");
    }
    assert!(!connection.is_finished());
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_somebody_has_gone_ends_nothing() {
    let (hub, mut asked, connection) = ends().await;
    let (mut kept, mut far) = session(&hub, &mut asked).await;
    for _ in 0..50 {
        let (ours, mut theirs) = session(&hub, &mut asked).await;
        tokio::spawn(async move { while theirs.write(b"x").await.is_ok() {} });
        tokio::task::yield_now().await;
        drop(ours);
    }
    far.write_all(b"here").await.unwrap();
    let mut heard = [0; 4];
    kept.read_exact(&mut heard).await.unwrap();
    assert!(&heard == b"here" && !connection.is_finished());
}

#[tokio::test(start_paused = true)]
async fn an_end_is_an_end_and_whatever_breaks_is_none() {
    let (hub, mut asked, _connection) = ends().await;
    let (mut ours, mut theirs) = session(&hub, &mut asked).await;
    ours.write_all(b"all").await.unwrap();
    ours.shutdown().await.unwrap();
    ours.shutdown().await.unwrap();
    assert!(ours.write(b"more").await.is_err());
    let mut heard = Vec::new();
    theirs.read_to_end(&mut heard).await.unwrap();
    assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0);
    // The other half goes on, and what was said before it broke is heard.
    theirs.write_all(b"half").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(theirs);
    let (mut said, mut part) = (Vec::new(), [0; 3]);
    let error = loop {
        match ours.read(&mut part).await {
            Ok(0) => panic!("no end in order"),
            Ok(count) => said.extend_from_slice(&part[..count]),
            Err(error) => break error,
        }
    };
    assert_eq!((heard.as_slice(), said.as_slice()), (&b"all"[..], &b"half"[..]), "{error}");
}

/// Sends a body as an answer; what comes of it.
async fn answered(
    body: impl Body<Data = Bytes, Error = io::Error> + Send + 'static,
) -> (Result<Vec<u8>, io::Error>, bool) {
    let (hub, mut asked, _connection) = ends().await;
    let (answer, _) = hub.ready().await.unwrap().send_request(request(), true).unwrap();
    let (request, mut respond) = asked.recv().await.unwrap();
    assert!(request.body().is_end_stream() && request.body().size_hint().exact() == Some(0));
    let stream = respond.send_response(Response::new(()), false).unwrap();
    let sent = tokio::spawn(send(body, Sending::new(stream)));
    let received = Received::new(answer.await.unwrap().into_body(), None, |_| Ok(()));
    let got = received.collect().await.map(|all| all.to_bytes().to_vec());
    (got, sent.await.unwrap().is_ok())
}

fn parts(
    parts: Vec<io::Result<Frame<Bytes>>>,
) -> impl Body<Data = Bytes, Error = io::Error> + Send + 'static {
    StreamBody::new(stream::iter(parts))
}

#[tokio::test(start_paused = true)]
async fn bodies_go_to_their_end_or_break_off() {
    let data = |text: &'static [u8]| Ok(Frame::data(Bytes::from_static(text)));
    let large = vec![7; 100_000];
    for (body, want) in [
        (vec![], Some(vec![])),
        (vec![data(b""), data(b"a"), data(b""), data(b"b")], Some(b"ab".to_vec())),
        (vec![Ok(Frame::data(Bytes::from(large.clone())))], Some(large.clone())),
        (vec![data(b"a"), Ok(Frame::trailers(http::HeaderMap::new()))], Some(b"a".to_vec())),
        (vec![data(b"a"), Err(io::ErrorKind::Other.into())], None),
    ] {
        let (got, is_sent) = answered(parts(body)).await;
        assert_eq!((got.as_ref().ok(), is_sent), (want.as_ref(), want.is_some()));
    }
    let (got, is_sent) =
        answered(http_body_util::Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {})).await;
    assert!(got.unwrap() == b"{}" && is_sent);
}

#[tokio::test(start_paused = true)]
async fn whoever_sends_hears_that_nobody_wants_it() {
    let (hub, mut asked, _connection) = ends().await;
    let (answer, stream) = hub.ready().await.unwrap().send_request(request(), false).unwrap();
    let sending = tokio::spawn(send(parts_for_ever(), Sending::new(stream)));
    let (request, mut respond) = asked.recv().await.unwrap();
    // It says nothing meanwhile.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!sending.is_finished());
    respond.send_reset(Reason::CANCEL);
    drop(request);
    assert!(timeout(Duration::from_secs(1), sending).await.unwrap().unwrap().is_err());
    assert!(answer.await.is_err());
}

/// One part, and then nothing more.
fn parts_for_ever() -> impl Body<Data = Bytes, Error = io::Error> + Send + 'static {
    StreamBody::new(stream::unfold(0, |n| async move {
        if n > 0 {
            std::future::pending::<()>().await;
        }
        Some((Ok(Frame::data(Bytes::from_static(b"a"))), n + 1))
    }))
}

#[tokio::test(start_paused = true)]
async fn a_known_length_is_told_until_all_has_come() {
    let (hub, mut asked, _connection) = ends().await;
    let with_length =
        Request::builder().method(Method::PUT).uri("https://member/").header("content-length", "10");
    let (_answer, mut stream) =
        hub.ready().await.unwrap().send_request(with_length.body(()).unwrap(), false).unwrap();
    let (request, _respond) = asked.recv().await.unwrap();
    let mut body = request.into_body();
    assert_eq!(body.size_hint().exact(), Some(10));
    stream.send_data(Bytes::from_static(b"12345"), false).unwrap();
    body.frame().await.unwrap().unwrap();
    assert!(body.size_hint().exact() == Some(5) && !body.is_end_stream());
    stream.send_data(Bytes::from_static(b"67890"), true).unwrap();
    body.frame().await.unwrap().unwrap();
    assert!(body.size_hint().exact() == Some(0) && body.is_end_stream());
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn headers_at_the_end_of_what_comes_are_its_end() {
    let (hub, mut asked, _connection) = ends().await;
    let (_answer, mut stream) = hub.ready().await.unwrap().send_request(request(), false).unwrap();
    let (request, _respond) = asked.recv().await.unwrap();
    stream.send_data(Bytes::from_static(b"12345"), false).unwrap();
    let trailers = [(http::HeaderName::from_static("x-a"), http::HeaderValue::from_static("b"))];
    stream.send_trailers(trailers.into_iter().collect()).unwrap();
    let sent = request.into_body().collect().await.unwrap();
    assert!(sent.trailers().is_none() && sent.to_bytes() == "12345");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_there_any_more_is_noticed() {
    let (near, far) = duplex(64 << 10);
    let begun = Instant::now();
    // It takes what comes, and says nothing.
    tokio::spawn(async move {
        let (mut far, mut part) = (far, [0; 1024]);
        while far.read(&mut part).await.is_ok_and(|count| count > 0) {}
    });
    let (_hub, mut connection) = client::Builder::new().handshake::<_, Bytes>(near).await.unwrap();
    let ping = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    let why = alive(ping, (Duration::from_secs(10), Duration::from_secs(60))).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(70), "{why}");
}

#[tokio::test]
async fn others_have_their_turn() {
    let (near, mut far) = duplex(1 << 20);
    far.write_all(&vec![0; 300 << 10]).await.unwrap();
    let mut io = Turns::new(near);
    let mut read = Vec::new();
    let mut part = vec![0; 16 << 10];
    for _ in 0..5 {
        let mut count = 0;
        poll_fn(|context| {
            loop {
                let mut buffer = ReadBuf::new(&mut part);
                match Pin::new(&mut io).poll_read(context, &mut buffer) {
                    Poll::Ready(Ok(())) => count += buffer.filled().len(),
                    _ => return Poll::Ready(()),
                }
            }
        })
        .await;
        read.push(count >> 10);
    }
    assert_eq!(read, [64, 64, 64, 64, 44]);
}
