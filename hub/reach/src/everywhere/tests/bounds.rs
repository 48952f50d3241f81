//! How much is put together, and for whom.

use bytes::Bytes;
use karmada_api::consts::annotation;
use tokio::sync::Semaphore;

use super::{
    super::{
        list::all,
        within::{Most, PART, within},
    },
    *,
};

#[tokio::test]
async fn what_is_put_together_is_bounded() {
    let all = Room::of(24, 16);
    let seat = all.seat("jane").unwrap();
    let read = async |bytes: usize, room: &Arc<Semaphore>| {
        let body = Body::from(vec![b' '; bytes]);
        match within(body, Most::Of(room, 16, PART), &seat.share()).await {
            Ok((bytes, held)) => Ok((bytes.len(), held)),
            Err(Missing::TooMuch(status)) => Err(status.code()),
            Err(Missing::Refused(code, _)) => Err(code),
            Err(Missing::Unheard(_) | Missing::Busy(_) | Missing::Reported(_) | Missing::Left) => Err(0),
        }
    };
    let room = Arc::new(Semaphore::new(16));
    let (bytes, held) = read(3000, &room).await.unwrap();
    assert_eq!((bytes, all.left(), room.available_permits()), (3000, 21, 13));
    assert_eq!(read(5000, &room).await.unwrap_err(), 0, "too much for one cluster");
    let broken = Body::from_stream(stream::iter([Ok(Bytes::from(vec![b' '; 3000])), Err("broken")]));
    assert!(within(broken, Most::Of(&room, 16, PART), &seat.share()).await.is_err());
    assert_eq!((all.left(), room.available_permits()), (21, 13), "what is not read takes nothing");
    assert_eq!(read(3000, &Arc::new(Semaphore::new(2))).await.unwrap_err(), 413, "too much for one request");
    let more = [read(4000, &room).await.unwrap(), read(4000, &room).await.unwrap()];
    assert_eq!(read(4000, &room).await.unwrap_err(), 429, "too much for all");
    drop((held, more));
    assert_eq!(all.left(), 24);
    assert!(read(4000, &Arc::new(Semaphore::new(16))).await.is_ok());
}

#[tokio::test]
async fn what_is_too_much_for_one_page_comes_in_several() {
    let log = Log::default();
    let mut members = BTreeMap::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        // Of one no page has room.
        let long: &'static str =
            Box::leak("x".repeat(if name == "c" { 5000 } else { 1500 }).into_boxed_str());
        let pods: &'static [&'static str] = Box::leak(Box::new([long]));
        members.insert(name, member(name, Some(pods), &log).await);
    }
    members.insert("g", "http://127.0.0.1:1".to_owned());
    let mut reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    Arc::get_mut(&mut reach.0).unwrap().room = Room::of(100, 8);
    let hub = answering(Arc::new(reach), ALL).await;
    let (code, said) = ask(hub, request("GET", "/api/v1/pods")).await;
    assert_eq!(code, 413, "whoever asks for all gets no part: {said}");
    let (mut all, mut pages, mut next, mut warnings) = (Vec::new(), 0, String::new(), String::new());
    loop {
        let uri = format!("/api/v1/pods?limit=500&continue={next}");
        let (code, said) = ask(hub, request("GET", &uri)).await;
        assert_eq!(code.as_u16(), 200, "{said}");
        warnings.push_str(said["warnings"].as_str().unwrap());
        let from = |one: &Value| {
            let from = &one["metadata"]["annotations"]["resource.karmada.io/query-from-cluster"];
            from.as_str().unwrap_or_else(|| panic!("{one}")).to_owned()
        };
        all.extend(said["body"]["items"].as_array().unwrap().iter().map(from));
        pages += 1;
        match said["body"]["metadata"]["continue"].as_str() {
            Some(token) => next = token.to_owned(),
            None => break,
        }
    }
    assert_eq!(all, ["a", "b", "d", "e", "f"]);
    assert!((2..=5).contains(&pages), "{pages}");
    for missing in ["cluster c is missing: it answers more than 2 KiB", "cluster g is missing"] {
        assert_eq!(warnings.matches(missing).count(), 1, "{warnings}");
    }
    // A later page without answers is one.
    let token = page::token("g", &("v1".to_owned(), "PodList".to_owned()));
    let (code, said) = ask(hub, request("GET", &format!("/api/v1/pods?limit=500&continue={token}"))).await;
    assert_eq!(code, StatusCode::OK, "{said}");
    let body = &said["body"];
    assert_eq!(
        (&body["kind"], &body["items"], &body["metadata"]["continue"]),
        (&json!("PodList"), &json!([]), &Value::Null)
    );
    assert!(said["warnings"].as_str().unwrap().contains("cluster g is missing"));
    let (code, _) = ask(hub, request("GET", "/api/v1/pods?limit=500&continue=abc")).await;
    assert_eq!(code, 400);
}

/// Members whose answers are of no use take room while these are read, and no more.
#[tokio::test]
async fn rubbish_does_not_make_what_others_answer_too_much() {
    let log = Log::default();
    let mut members = BTreeMap::new();
    // They end when all four have taken their parts of the room.
    let met = Arc::new(tokio::sync::Barrier::new(PART));
    for name in ["a", "b", "c", "d"] {
        let met = met.clone();
        let address = serve(move |_| {
            let met = met.clone();
            let rubbish = stream::once(async { Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 2 << 10])) });
            let end = stream::once(async move {
                met.wait().await;
                // What the others send is read in the meantime.
                tokio::time::sleep(Duration::from_millis(200)).await;
                Ok(Bytes::new())
            });
            Box::pin(ready(Response::new(Body::from_stream(rubbish.chain(end)))))
        })
        .await;
        members.insert(name, format!("http://{address}"));
    }
    for name in ["e", "f"] {
        members.insert(name, member(name, Some(&["web"]), &log).await);
    }
    let mut reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    Arc::get_mut(&mut reach.0).unwrap().room = Room::of(100, 8);
    let hub = answering(Arc::new(reach), ALL).await;
    let (code, said) = ask(hub, request("GET", "/api/v1/pods")).await;
    assert_eq!(code, StatusCode::OK, "{said}");
    let from = |one: &Value| one["metadata"]["annotations"][annotation::QUERY_FROM_CLUSTER].clone();
    let all: Vec<Value> = said["body"]["items"].as_array().unwrap().iter().map(from).collect();
    assert_eq!(all, ["e", "f"]);
    let warnings = said["warnings"].as_str().unwrap();
    for name in ["a", "b", "c", "d"] {
        assert_eq!(warnings.matches(&format!("cluster {name} is missing")).count(), 1, "{warnings}");
    }
}

/// However many of them there are, and however long they take: the rest is answered in time.
#[tokio::test]
async fn whoever_keeps_the_room_makes_it_too_much_for_nobody() {
    let log = Log::default();
    let mut members = BTreeMap::new();
    // They end never.
    for name in ["a", "b", "c", "d", "e"] {
        let address = serve(move |_| {
            let rubbish = stream::once(async { Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 2 << 10])) });
            Box::pin(ready(Response::new(Body::from_stream(rubbish.chain(stream::pending())))))
        })
        .await;
        members.insert(name, format!("http://{address}"));
    }
    members.insert("0", member("0", Some(&["web"]), &log).await);
    let mut reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    Arc::get_mut(&mut reach.0).unwrap().room = Room::of(100, 9);
    let seat = reach.0.room.seat("jane").unwrap();
    let call = Call {
        user: UserInfo::new("jane", ["dev"]),
        asked_by: "jane".to_owned(),
        name: ALL.to_owned(),
        path: String::new(),
        request: request("GET", "/"),
        audit_id: "id-1".to_owned(),
        held: Arc::new(()),
        ends: Box::pin(std::future::pending()),
    };
    let asker = Asker::of(&call, &seat);
    let begun = Instant::now();
    let question =
        Question::new(&reach.0, &asker, &Among::All, "/api/v1/pods".to_owned(), "application/json");
    let question = Question { until: begun + EACH / 4, ..question };
    let names = question.names().await.unwrap();
    let whole = all(&question, names, None).await;
    let whole = whole.unwrap_or_else(|status| panic!("{}", status.message));
    assert!(begun.elapsed() < EACH, "{:?}", begun.elapsed());
    assert_eq!(whole.all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["0"]);
    let missing: Vec<&str> = whole.silent.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(missing, ["a", "b", "c", "d", "e"]);
    assert!(whole.silent.iter().all(|(_, missing)| matches!(missing, Missing::Unheard(_))));
}

#[tokio::test]
async fn a_page_that_is_full_asks_nobody_beyond() {
    let log = Log::default();
    let mut members = BTreeMap::new();
    let long: &'static str = Box::leak("x".repeat(1500).into_boxed_str());
    let pods: &'static [&'static str] = Box::leak(Box::new([long]));
    for n in 0..4 * AT_ONCE {
        let name: &'static str = Box::leak(format!("m{n:03}").into_boxed_str());
        members.insert(name, member(name, Some(pods), &log).await);
    }
    let mut reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 1000, Env::system());
    Arc::get_mut(&mut reach.0).unwrap().room = Room::of(100, 8);
    let hub = answering(Arc::new(reach), ALL).await;
    let (code, said) = ask(hub, request("GET", "/api/v1/pods?limit=500")).await;
    assert_eq!(code, StatusCode::OK, "{said}");
    let asked = log.lock().len();
    assert!(asked <= 2 * AT_ONCE, "{asked}");
}

/// One that measures too much is missing, and takes nothing from others.
#[tokio::test]
async fn an_answer_that_is_too_long_takes_no_room() {
    let all = Room::of(1000, 500);
    let share = all.seat("jane").unwrap().share();
    let room = Arc::new(Semaphore::new(8));
    let most = 4 * PART;
    let read = async |bytes: usize| {
        let parts = (0..bytes >> 10).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 10]));
        within(Body::from_stream(stream::iter(parts)), Most::Of(&room, most, PART), &share)
            .await
            .map(|(bytes, held)| (bytes.len(), held))
    };
    assert!(matches!(read(5 << 10).await, Err(Missing::Unheard(why)) if why.contains("more than 4 KiB")));
    assert_eq!((room.available_permits(), all.left()), (8, 1000));
    let broken = stream::iter([Ok(vec![b' '; 3 << 10]), Err(std::io::Error::other("gone"))]);
    let broken = within(Body::from_stream(broken), Most::Of(&room, most, PART), &share).await;
    assert!(matches!(broken, Err(Missing::Unheard(_))));
    assert_eq!(room.available_permits(), 8);
    // One that comes too late is dropped while it is read, one that is rubbish when it has been.
    let slow = stream::iter([Ok::<_, std::io::Error>(vec![b' '; 3 << 10])]).chain(stream::pending());
    assert!(within(Body::from_stream(slow), Most::Of(&room, most, PART), &share).now_or_never().is_none());
    drop(read(4 << 10).await);
    assert_eq!((room.available_permits(), all.left()), (8, 1000));
    let (one, two) = (read(4 << 10).await, read(4 << 10).await);
    assert!(matches!((&one, &two), (Ok((4096, _)), Ok((4096, _)))));
    assert!(matches!(read(1 << 10).await, Err(Missing::TooMuch(_))), "all of them within their own bounds");
    drop((one, two));
    // Pieces cost more than their bytes.
    let wide = Room::of(64 << 10, 32 << 10);
    let wide_share = wide.seat("jane").unwrap().share();
    for (size, is_read) in [(1000, true), (200, true), (1, false), (0, false)] {
        let pieces = stream::iter((0..3000).map(move |_| Ok::<_, std::io::Error>(vec![b' '; size])));
        let room = Arc::new(Semaphore::new(16 << 10));
        let read = within(Body::from_stream(pieces), Most::Of(&room, 16 << 10, PART), &wide_share).await;
        assert_eq!(read.is_ok(), is_read, "{size}");
        if let Ok((_, takes)) = &read {
            assert!(takes.of_all.len() <= (size * 3000).div_ceil(1 << 10), "{size}: {}", takes.of_all.len());
        }
    }
    assert_eq!(wide.left(), 64 << 10);
    // Of some the beginning will do, and nobody waits for what follows.
    for (bytes, want) in [(3 << 10, 3 << 10), (4 << 10, 4 << 10), (9000, 4 << 10)] {
        let parts = stream::iter([Ok::<_, std::io::Error>(vec![b' '; 1000]), Ok(vec![b' '; bytes - 1000])]);
        let goes_on = parts.chain(stream::iter((bytes == 9000).then(|| Err(std::io::Error::other("gone")))));
        let (read, _) = within(Body::from_stream(goes_on), Most::First(4), &share).await.ok().unwrap();
        assert_eq!(read.len(), want, "of {bytes}");
    }
}
