//! Many tasks at once, on a file with its writer thread.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use karmada_env::Env;
use karmada_store::{
    CommitError, Expect, Key, Op, Options, Revision, Scope, Store, WatchEnd, engine::redb::Redb,
};

const TASKS: usize = 8;
const ROUNDS: u64 = 40;

fn open(dir: &std::path::Path) -> Store<()> {
    Store::open(Redb::open(dir).unwrap(), (), Env::system(), Options::default()).unwrap()
}

fn counter() -> Key {
    Key::new("counters", "", "one")
}

/// Adds one, as a client does: read, write if unchanged, again if not.
async fn increment(store: &Store<()>) -> Revision {
    loop {
        let current = store.get(&counter());
        let (expect, count) = match &current {
            None => (Expect::Absent, 0),
            Some(entry) => (
                Expect::At(entry.revision),
                std::str::from_utf8(&entry.value.get()).unwrap().parse::<u64>().unwrap(),
            ),
        };
        match store.commit(vec![Op::put(counter(), expect, (count + 1).to_string())]).await {
            Ok(committed) => return committed.revision(),
            Err(CommitError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_or_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let start = store.revision();
    let watchers: Vec<_> = (0..4)
        .map(|_| {
            let mut watch = store.watch(Scope::resource("counters"), start).unwrap();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while seen.len() < TASKS * ROUNDS as usize {
                    let event = watch.next().await.unwrap();
                    assert_eq!(event.prev.as_ref().map(|p| p.revision), seen.last().map(|(r, _)| *r));
                    seen.push((event.revision(), event.entry.value.get()));
                }
                seen
            })
        })
        .collect();
    let writers: Vec<_> = (0..TASKS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let revision = increment(&store).await;
                    // What is answered is shown: a read that follows is not older.
                    assert!(store.revision() >= revision && store.durable() >= revision);
                    assert!(store.get(&counter()).unwrap().revision >= revision);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for watcher in watchers {
        let seen = watcher.await.unwrap();
        let counts: Vec<u64> =
            seen.iter().map(|(_, v)| std::str::from_utf8(v).unwrap().parse().unwrap()).collect();
        assert_eq!(counts, (1..=TASKS as u64 * ROUNDS).collect::<Vec<_>>());
    }
    store.close().await.unwrap();
}

/// List, then watch from the list's revision, while others write: together exactly what happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lists_and_watches_fit_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0..200 {
                let key = Key::new("works", "a", format!("w{}", i % 20));
                store.commit(vec![Op::put(key, Expect::Any, i.to_string())]).await.unwrap();
            }
        })
    };
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                let snapshot = store.snapshot();
                let mut values: std::collections::BTreeMap<_, _> = snapshot
                    .range("works", Some("a"), None)
                    .map(|e| (e.key.clone(), (e.revision, e.value.get())))
                    .collect();
                let mut watch = store.watch(Scope::namespace("works", "a"), snapshot.revision()).unwrap();
                loop {
                    match watch.next().await {
                        Ok(e) => drop(values.insert(e.key().clone(), (e.revision(), e.entry.value.get()))),
                        Err(WatchEnd::Closed) => return values,
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    writer.await.unwrap();
    store.close().await.unwrap();
    let end = store.snapshot();
    let want: std::collections::BTreeMap<_, _> =
        end.range("works", None, None).map(|e| (e.key.clone(), (e.revision, e.value.get()))).collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), want);
    }
}

/// A caller that is gone leaves a commit that happened or did not, and nothing between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_callers_leave_whole_commits() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for i in 0..100u64 {
        let pair =
            ["left", "right"].map(|name| Op::put(Key::new("pairs", "", name), Expect::Any, i.to_string()));
        let commit = store.commit(pair.into());
        // Cut off at all kinds of moments.
        let _ = tokio::time::timeout(Duration::from_micros(i * 10), commit).await;
    }
    store.flush().await.unwrap();
    let [left, right] = ["left", "right"].map(|name| store.get(&Key::new("pairs", "", name)).unwrap());
    assert_eq!(left.value, right.value);
    assert_eq!(left.revision.next(), right.revision);
    store.close().await.unwrap();
    // And it is on disk as it was shown.
    let store = open(dir.path());
    assert_eq!(store.get(&left.key).unwrap().value, left.value);
    store.close().await.unwrap();
}
