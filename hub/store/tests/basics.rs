//! What the store promises to its callers, on the memory engine and on a file.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use karmada_env::{Env, ManualClock};
use karmada_store::{
    CommitError, Dictionary, Expect, Guard, HistoryLimits, Key, Op, Options, Project, Revision, Scope, Store,
    Terms, WatchEnd,
    engine::{Engine, memory::Memory, redb::Redb},
};

/// Keeps the length of the value.
struct Length;

impl Project for Length {
    type Header = usize;

    fn project(&self, _: &Key, value: &Bytes) -> usize {
        value.len()
    }
}

fn env() -> Env {
    Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 1)
}

fn open(engine: impl Engine) -> Store<Length> {
    let options = Options { relaxed: |resource| resource == "leases", ..Options::default() };
    Store::open(engine, Length, env(), options).unwrap()
}

fn key(name: &str) -> Key {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    Key::new("works", namespace, name)
}

fn put(name: &str, value: &'static str) -> Op {
    Op::put(key(name), Expect::Any, value)
}

async fn commit(store: &Store<Length>, op: Op) -> Revision {
    store.commit(vec![op]).await.unwrap().revision()
}

fn names(store: &Store<Length>, namespace: Option<&str>, after: Option<(&str, &str)>) -> Vec<String> {
    let snapshot = store.snapshot();
    snapshot.range("works", namespace, after).map(|e| format!("{}/{}", e.key.namespace, e.key.name)).collect()
}

#[tokio::test]
async fn names_that_keys_have_in_common_are_kept_once() {
    let memory = Memory::new();
    for again in [false, true] {
        let store = open(memory.clone());
        if !again {
            for name in ["b/x", "a/y", "a/x", "ab/x", "x"] {
                commit(&store, put(name, "1")).await;
            }
        }
        let at = |name: &str| store.get(&key(name)).unwrap().key.clone();
        let of = |name: &str| store.get(&key(name)).unwrap().key.namespace.to_string();
        assert!(Arc::ptr_eq(&at("a/x").namespace, &at("a/y").namespace), "{again}");
        for other in ["b/x", "ab/x", "x"] {
            assert!(Arc::ptr_eq(&at("a/x").resource, &at(other).resource), "{again} {other}");
            assert_ne!(of("a/x"), of(other));
        }
    }
}

#[tokio::test]
async fn values_are_put_read_and_deleted() {
    let store = open(Memory::new());
    assert_eq!(store.revision(), Revision::new(1));
    let made = store.commit(vec![Op::put(key("a/x"), Expect::Absent, "one")]).await.unwrap();
    let made = made.first().unwrap().clone();
    assert_eq!((made.revision, made.create_revision, made.header), (Revision::new(2), Revision::new(2), 3));
    let changed = commit(&store, Op::put(key("a/x"), Expect::At(made.revision), "four")).await;
    let read = store.get(&key("a/x")).unwrap();
    assert_eq!((read.revision, read.create_revision), (changed, made.revision));
    assert_eq!(read.value, "four");
    let gone = store.commit(vec![Op::delete(key("a/x"), Expect::At(changed), "last")]).await.unwrap();
    assert_eq!((gone.revision(), gone.first().unwrap().header), (Revision::new(4), 4));
    assert_eq!(store.get(&key("a/x")), None);
}

#[tokio::test]
async fn preconditions_tell_what_was_found() {
    let store = open(Memory::new());
    let revision = commit(&store, put("a/x", "1")).await;
    for (op, found) in [
        (Op::put(key("a/x"), Expect::Absent, "2"), Some(revision)),
        (Op::put(key("a/x"), Expect::At(Revision::new(1)), "2"), Some(revision)),
        (Op::put(key("a/y"), Expect::At(revision), "2"), None),
        (Op::delete(key("a/y"), Expect::Any, ""), None),
        (Op::delete(key("a/y"), Expect::Absent, ""), None),
    ] {
        match store.commit(vec![op.clone()]).await {
            Err(CommitError::Conflict { op: 0, found: have }) => assert_eq!(have.map(|e| e.revision), found),
            other => panic!("{op:?}: {other:?}"),
        }
    }
    assert_eq!(store.revision(), revision);
}

#[tokio::test]
async fn a_commit_is_all_or_nothing() {
    let store = open(Memory::new());
    let both =
        store.commit(vec![put("a/x", "1"), Op::put(key("a/x"), Expect::At(Revision::new(2)), "2")]).await;
    assert_eq!(both.unwrap().entries.iter().map(|e| e.revision.get()).collect::<Vec<_>>(), [2, 3]);
    let failed = store.commit(vec![put("a/y", "1"), Op::put(key("a/x"), Expect::Absent, "2")]).await;
    assert!(matches!(failed, Err(CommitError::Conflict { op: 1, .. })));
    assert_eq!((store.get(&key("a/y")), store.revision()), (None, Revision::new(3)));
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused() {
    let store = open(Memory::new());
    let big = Op::put(key("a/x"), Expect::Any, vec![0; Options::default().max_value + 1]);
    assert!(matches!(store.commit(vec![big]).await, Err(CommitError::TooLarge { op: 0, .. })));
    for bad in [Key::new("", "a", "b"), Key::new("r", "a", ""), Key::new("r", "a", "x".repeat(3000))] {
        let result = store.commit(vec![Op::put(bad, Expect::Any, "")]).await;
        assert!(matches!(result, Err(CommitError::InvalidKey { op: 0, .. })));
    }
    assert!(store.commit(vec![]).await.unwrap().entries.is_empty());
    assert_eq!(store.revision(), Revision::new(1));
}

#[tokio::test]
async fn ranges_page_in_order() {
    let store = open(Memory::new());
    for name in ["b/2", "a/9", "b/10", "b/1", "c/0", "x"] {
        commit(&store, put(name, "")).await;
    }
    commit(&store, Op::put(Key::new("works2", "b", "3"), Expect::Any, "")).await;
    assert_eq!(names(&store, None, None), ["/x", "a/9", "b/1", "b/10", "b/2", "c/0"]);
    assert_eq!(names(&store, Some("b"), None), ["b/1", "b/10", "b/2"]);
    assert_eq!(names(&store, Some("b"), Some(("b", "1"))), ["b/10", "b/2"]);
    assert_eq!(names(&store, Some("b"), Some(("b", "15"))), ["b/2"]);
    assert_eq!(names(&store, Some("b"), Some(("a", "9"))), ["b/1", "b/10", "b/2"]);
    assert_eq!(names(&store, Some("b"), Some(("c", "0"))), [""; 0]);
    assert_eq!(names(&store, Some(""), None), ["/x"]);
    assert_eq!(names(&store, None, Some(("b", "2"))), ["c/0"]);
    let snapshot = store.snapshot();
    assert_eq!(
        (snapshot.count("works", None), snapshot.count("works", Some("b")), snapshot.len()),
        (6, 3, 7)
    );
    assert_eq!(snapshot.resources().map(|r| &**r).collect::<Vec<_>>(), ["works", "works2"]);
}

#[tokio::test]
async fn snapshots_are_of_their_revision() {
    let store = open(Memory::new());
    let first = commit(&store, put("a/x", "1")).await;
    let before = store.snapshot();
    commit(&store, put("a/y", "2")).await;
    commit(&store, Op::delete(key("a/x"), Expect::Any, "1")).await;
    assert_eq!((before.revision(), before.len()), (first, 1));
    for snapshot in [store.snapshot_at("works", first).unwrap(), store.snapshot_at("works", first).unwrap()] {
        assert_eq!(snapshot.revision(), first);
        assert_eq!(snapshot.range("works", None, None).count(), 1);
        assert_eq!(snapshot.get(&key("a/x")).unwrap().revision, first);
    }
    assert!(store.snapshot_at("works", store.revision().next()).is_err());
}

#[tokio::test]
async fn watches_see_their_scope() {
    let store = open(Memory::new());
    let start = store.revision();
    let mut all = store.watch(Scope::resource("works"), start).unwrap();
    let mut a = store.watch(Scope::namespace("works", "a"), start).unwrap();
    let mut x = store.watch(Scope::object(&key("a/x")), start).unwrap();
    let mut any_x = store.watch(Scope { name: Some("x".into()), ..Scope::resource("works") }, start).unwrap();
    assert_eq!(store.stats().watches, 4);
    for name in ["a/x", "a/y", "b/x", "b/y"] {
        commit(&store, put(name, "")).await;
    }
    let seen = |watch: &mut karmada_store::Watch<usize>| {
        let mut names = Vec::new();
        while let Some(event) = watch.try_next().unwrap() {
            names.push(format!("{}/{}", event.key().namespace, event.key().name));
        }
        assert_eq!(watch.revision(), store.revision());
        names
    };
    assert_eq!(seen(&mut all), ["a/x", "a/y", "b/x", "b/y"]);
    assert_eq!(seen(&mut a), ["a/x", "a/y"]);
    assert_eq!(seen(&mut x), ["a/x"]);
    assert_eq!(seen(&mut any_x), ["a/x", "b/x"]);
    drop((all, a, x, any_x));
    assert_eq!(store.stats().watches, 0);
}

#[tokio::test]
async fn a_waiting_watch_is_woken() {
    let store = open(Memory::new());
    let mut watch = store.watch(Scope::namespace("works", "a"), store.revision()).unwrap();
    let waiting = tokio::spawn(async move { watch.next().await.unwrap().revision() });
    tokio::task::yield_now().await;
    commit(&store, put("b/x", "")).await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let revision = commit(&store, put("a/x", "")).await;
    assert_eq!(waiting.await.unwrap(), revision);
}

#[tokio::test]
async fn a_slow_watch_is_told_and_a_quiet_one_is_not() {
    let options = Options {
        history: HistoryLimits { age: |_| Duration::MAX, bytes: 4000, least: Duration::ZERO, most: 4000 },
        ..Options::default()
    };
    let store = Store::open(Memory::new(), Length, env(), options).unwrap();
    let start = store.revision();
    let mut slow = store.watch(Scope::resource("works"), start).unwrap();
    let mut quiet = store.watch(Scope::namespace("works", "q"), start).unwrap();
    for _ in 0..100 {
        commit(&store, put("a/x", "")).await;
    }
    assert!(store.compacted("works") > start && store.stats().event_bytes <= 4000 + 512);
    assert!(matches!(slow.try_next(), Err(WatchEnd::Compacted(_))));
    assert_eq!(quiet.try_next().unwrap(), None);
    assert_eq!(quiet.revision(), store.revision());
    let last = commit(&store, put("q/x", "")).await;
    assert_eq!(quiet.next().await.unwrap().revision(), last);
    assert!(store.watch(Scope::resource("works"), start).is_err());
    assert!(store.snapshot_at("works", start).is_err());
    assert!(store.snapshot_at("works", store.compacted("works")).is_ok());
}

#[tokio::test]
async fn old_history_is_forgotten_by_age() {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let env = Env::seeded(clock.clone(), 1);
    let store = Store::open(Memory::new(), Length, env, Options::default()).unwrap();
    let old = commit(&store, put("a/x", "")).await;
    clock.advance(Duration::from_secs(3599));
    commit(&store, put("a/x", "")).await;
    assert_eq!(store.compacted("works"), Revision::ZERO);
    clock.advance(Duration::from_secs(2));
    commit(&store, put("a/x", "")).await;
    assert_eq!((store.compacted("works"), store.stats().events), (old, 2));
}

/// One of each resource in turn, a second apart, with values of 1 kB.
async fn seconds(store: &Store<Length>, clock: &ManualClock, resources: &[&'static str], rounds: usize) {
    for round in 0..rounds {
        clock.advance(Duration::from_secs(1));
        for resource in resources {
            let key = Key::new(*resource, "a", format!("x{}", round % 3));
            store.commit(vec![Op::put(key, Expect::Any, vec![0; 1000])]).await.unwrap();
        }
    }
}

/// Whoever writes much shortens their own history: others resume, also after a restart.
#[tokio::test]
async fn what_one_part_writes_pushes_out_nothing_of_others() {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let least = Duration::from_secs(600);
    let day = |_: &str| Duration::from_secs(86_400);
    let history = HistoryLimits { age: day, bytes: 200_000, least, most: 400_000 };
    let options = Options { history, ..Options::default() };
    let memory = Memory::new();
    let open = |memory: Memory| Store::open(memory, Length, Env::seeded(clock.clone(), 1), options).unwrap();
    let store = open(memory.clone());
    let start = store.revision();
    let write = async |resource: &'static str, namespace: &str, name: &str, bytes: usize| {
        clock.advance(Duration::from_secs(1));
        let key = Key::new(resource, namespace, name);
        store.commit(vec![Op::put(key, Expect::Any, vec![0; bytes])]).await.unwrap().revision()
    };
    let others: Vec<String> = (0..20).map(|i| format!("m{i}")).collect();
    for other in &others {
        for _ in 0..3 {
            write("works", other, "w", 500).await;
            write("clusters", "", other, 500).await;
        }
    }
    let mut wide = store.watch(Scope::resource("works"), start).unwrap();
    for (resource, namespace, name) in [("works", "evil", "w"), ("clusters", "", "evil")] {
        for _ in 0..2000 {
            write(resource, namespace, name, 4000).await;
        }
    }
    assert!(store.stats().event_bytes <= 410_000, "{}", store.stats().event_bytes);
    let resumes = |store: &Store<Length>, scope: Scope, events: usize| {
        let mut watch = store.watch(scope, start).unwrap();
        (0..events).for_each(|_| assert!(watch.try_next().unwrap().is_some()));
        assert!(watch.try_next().unwrap().is_none());
    };
    let check = |store: &Store<Length>| {
        for other in &others {
            let theirs = Scope::namespace("works", other.as_str());
            let before = store.snapshot_in(&theirs, start).unwrap();
            assert_eq!(before.range("works", Some(other), None).count(), 0, "as it was at the start");
            let now = store.snapshot_in(&theirs, store.revision()).unwrap();
            assert_eq!(now.range("works", Some(other), None).count(), 1);
            resumes(store, theirs, 3);
            resumes(store, Scope::object(&Key::new("clusters", "", other.as_str())), 3);
        }
        assert!(store.snapshot_at("works", start).is_err(), "not of all");
        assert!(store.snapshot_in(&Scope::namespace("works", "evil"), start).is_err());
        assert!(store.watch(Scope::namespace("works", "evil"), start).is_err());
        assert!(store.watch(Scope::object(&Key::new("clusters", "", "evil")), start).is_err());
        assert!(store.watch(Scope::resource("works"), start).is_err(), "not all of it is there");
        assert!(store.watch(Scope::resource("works"), store.compacted("works")).is_ok());
    };
    check(&store);
    assert!(matches!(wide.try_next(), Err(WatchEnd::Compacted(_))), "nothing is left out");
    drop(wide);
    store.close().await.unwrap();
    let store = open(memory);
    check(&store);
}

#[tokio::test]
async fn what_changes_all_the_time_does_not_push_out_what_may_be_kept_longer() {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let day = |resource: &str| Duration::from_secs(if resource == "works" { 86_400 } else { 3600 });
    let history = HistoryLimits { age: day, bytes: 250_000, least: Duration::from_secs(60), most: 300_000 };
    let options = Options { history, ..Options::default() };
    let memory = Memory::new();
    let open = |memory: Memory| Store::open(memory, Length, Env::seeded(clock.clone(), 1), options).unwrap();
    let store = open(memory.clone());
    let start = store.revision();
    seconds(&store, &clock, &["works"], 20).await;
    let quiet = commit(&store, Op::put(Key::new("quiet", "", "x"), Expect::Any, "")).await;
    seconds(&store, &clock, &["leases", "events"], 1000).await;
    assert!(store.watch(Scope::resource("works"), start).is_ok(), "works are there for a day");
    assert!(store.watch(Scope::resource("quiet"), start).is_ok(), "nothing of it was forgotten");
    let leases = store.compacted("leases");
    assert!(leases > quiet && store.stats().event_bytes <= 251_600, "{:?}", store.stats());
    let kept = store.revision().get() - leases.get();
    assert!((120..=200).contains(&kept), "the last minute at least: {kept}");
    // What was forgotten stays so across a restart, resource by resource.
    store.close().await.unwrap();
    let store = open(memory);
    assert_eq!((store.compacted("leases"), store.compacted("works")), (leases, Revision::ZERO));
    assert!(store.snapshot_at("works", start).unwrap().is_empty());
    // Faster than ten minutes fit: the heaviest gives way, at any age.
    seconds(&store, &clock, &["works"], 1).await;
    for _ in 0..400 {
        commit(&store, Op::put(Key::new("leases", "a", "x0"), Expect::Any, vec![0; 1000])).await;
    }
    assert!(store.stats().event_bytes <= 301_600, "{:?}", store.stats());
    assert!(store.watch(Scope::resource("works"), start).is_ok());
    // A day later works are forgotten too.
    clock.advance(Duration::from_secs(90_000));
    for _ in 0..10 {
        seconds(&store, &clock, &["works"], 1).await;
    }
    assert!(store.watch(Scope::resource("works"), start).is_err());
}

#[tokio::test]
async fn a_closed_store_reads_but_does_not_write() {
    let store = open(Memory::new());
    let start = store.revision();
    let mut watch = store.watch(Scope::resource("works"), start).unwrap();
    commit(&store, put("a/x", "1")).await;
    store.close().await.unwrap();
    assert!(matches!(store.commit(vec![put("a/x", "2")]).await, Err(CommitError::Closed)));
    assert!(matches!(store.close().await, Err(CommitError::Closed)));
    assert!(store.get(&key("a/x")).is_some());
    assert!(watch.next().await.is_ok());
    assert_eq!(watch.next().await.unwrap_err(), WatchEnd::Closed);
}

/// Opens, changes, closes and opens again; `again` opens what was closed.
async fn restarts<E: Engine>(again: impl Fn() -> E) {
    let store = open(again());
    let start = store.revision();
    let first = commit(&store, put("a/x", "1")).await;
    commit(&store, put("a/x", "2")).await;
    commit(&store, put("a/y", "1")).await;
    let last = commit(&store, Op::delete(key("a/y"), Expect::Any, "bye")).await;
    let boot = store.boot_id().to_owned();
    store.close().await.unwrap();

    let store = open(again());
    assert_eq!((store.revision(), store.durable()), (last, last));
    assert_eq!(store.get(&key("a/x")).unwrap().create_revision, first);
    assert_ne!(store.boot_id(), boot);
    assert!(store.knows(&boot, last) && !store.knows(&boot, last.next()) && !store.knows("other", last));
    let mut watch = store.watch(Scope::resource("works"), start).unwrap();
    let mut seen = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        let prev = event.prev.as_ref().map(|p| p.value.get());
        seen.push((event.revision().get(), event.kind, event.entry.value.get(), prev));
    }
    use karmada_store::EventKind::{Delete, Put};
    assert_eq!(
        seen,
        [
            (2, Put, "1".into(), None),
            (3, Put, "2".into(), Some("1".into())),
            (4, Put, "1".into(), None),
            (5, Delete, "bye".into(), Some("1".into())),
        ]
    );
    assert_eq!(store.snapshot_at("works", first).unwrap().get(&key("a/x")).unwrap().value, "1");
    assert_eq!(commit(&store, put("a/x", "3")).await, last.next());
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_memory_store_restarts() {
    let memory = Memory::new();
    restarts(|| memory.clone()).await;
}

#[tokio::test]
async fn a_file_store_restarts() {
    let dir = tempfile::tempdir().unwrap();
    restarts(|| Redb::open(dir.path()).unwrap()).await;
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_write_wakes_only_who_watches_its_scope() {
    let store = open(Memory::new());
    let start = store.revision();
    let scopes = (0..1000).map(|i| Scope::namespace("works", format!("ns{i}")));
    let others = [Scope::resource("leases"), Scope::object(&key("ns7/other"))];
    let mut waiting: Vec<_> = scopes
        .chain(others)
        .map(|scope| {
            let mut watch = store.watch(scope, start).unwrap();
            let wakes = Arc::new(Wakes::default());
            let future = Box::pin(async move { watch.next().await });
            (future, wakes)
        })
        .collect();
    for (future, wakes) in &mut waiting {
        let waker = Waker::from(wakes.clone());
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    for _ in 0..10 {
        commit(&store, put("ns7/x", "")).await;
    }
    for (i, (_, wakes)) in waiting.iter().enumerate() {
        assert_eq!(wakes.0.load(Ordering::SeqCst), usize::from(i == 7), "watcher {i}");
    }
}

#[tokio::test]
async fn a_commit_happens_only_where_its_guards_hold() {
    let store = open(Memory::new());
    let space = Key::new("spaces", "", "n");
    let made = commit(&store, Op::put(space.clone(), Expect::Any, "")).await;
    let resources: Vec<Arc<str>> = vec!["others".into(), "works".into()];
    let nothing_in =
        |namespace: &str| Guard::Empty { namespace: Some(namespace.into()), resources: resources.clone() };
    let (alive, empty) = (Guard::Holds(space.clone(), Expect::At(made)), nothing_in("n"));
    let put = |guards: &[&Guard], name: &'static str| {
        let guards = guards.iter().map(|guard| (*guard).clone()).collect();
        store.commit_if(guards, vec![put(name, "")], Terms::default())
    };
    put(&[&alive, &empty], "n/x").await.unwrap();
    let error = put(&[&alive, &empty], "n/y").await.unwrap_err();
    assert!(matches!(error, CommitError::Unmet { guard: 1 }), "{error}");
    // Neighbours in the order of namespaces are in no one's way.
    for (namespace, is_empty) in [("m", true), ("n", false), ("n1", true), ("", true), ("zz", true)] {
        let checked = store.commit_if(vec![nothing_in(namespace)], Vec::new(), Terms::default()).await;
        assert_eq!(checked.is_ok(), is_empty, "{namespace}");
    }
    for (resource, is_empty) in [("works", false), ("others", true)] {
        let nowhere = Guard::Empty { namespace: None, resources: vec![resource.into()] };
        let checked = store.commit_if(vec![nowhere], Vec::new(), Terms::default()).await;
        assert_eq!(checked.is_ok(), is_empty, "{resource}");
    }
    commit(&store, Op::put(space.clone(), Expect::Any, "ends")).await;
    let before = store.revision();
    assert!(matches!(put(&[&alive], "n/z").await, Err(CommitError::Unmet { guard: 0 })));
    assert_eq!(store.revision(), before, "nothing of it happened");
    assert!(put(&[&Guard::Holds(Key::new("spaces", "", "o"), Expect::Absent)], "n/z").await.is_ok());
}

#[tokio::test]
async fn a_deletion_of_what_is_stored_keeps_it_once() {
    static WORDS: Dictionary = Dictionary::new(b"");
    let key = Key::new("works", "n", "w");
    let weighs = async |packs: fn(&str) -> Option<&'static Dictionary>, last: &'static str| {
        let (memory, options) = (Memory::new(), Options { packs, ..Options::default() });
        let env = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 1);
        let store = Store::open(memory.clone(), (), env.clone(), options).unwrap();
        let put = Op::put(key.clone(), Expect::Any, "what is stored ".repeat(1000));
        store.commit(vec![put]).await.unwrap();
        store.commit(vec![Op::delete(key.clone(), Expect::Any, last.repeat(1000))]).await.unwrap();
        let bytes = store.stats().event_bytes;
        store.close().await.unwrap();
        let again = Store::open(memory, (), env, options).unwrap();
        assert_eq!(again.stats().event_bytes, bytes, "the next run counts as this one");
        let mut watch = again.watch(Scope::resource("works"), Revision::new(2)).unwrap();
        assert_eq!(watch.try_next().unwrap().unwrap().entry.value, last.repeat(1000));
        bytes
    };
    for packs in [|_: &str| None, |_: &str| Some(&WORDS)] {
        let (same, other) = (weighs(packs, "what is stored ").await, weighs(packs, "the last words. ").await);
        assert!(same < 16_000 && other > 30_000, "{same} and {other}");
    }
}
