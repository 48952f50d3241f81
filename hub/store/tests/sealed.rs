//! Values that are sealed: not to be read in any file or copy, and as they are for everybody who asks the store.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::{fs, path::Path, sync::Arc, time::SystemTime};

use common::Toy;
use karmada_env::{Env, ManualClock};
use karmada_store::{
    Copy, Dictionary, EventKind, Expect, Incoming, Key, Op, OpenError, Options, Revision, Scope, Seal, Store,
    engine::{Memory, redb::Redb},
};

const PLAIN: &str = "correct horse battery staple";
const SECRETS: &str = "secrets";
/// In memory they are packed as well.
static WORDS: Dictionary = Dictionary::new(PLAIN.as_bytes());

fn options() -> Options {
    Options { packs: |resource| (resource == SECRETS).then_some(&WORDS), ..Options::default() }
}

fn env() -> Env {
    Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 7)
}

fn open(dir: &Path, seal: Toy) -> Result<Store<()>, OpenError> {
    Store::open_sealed(Redb::open(dir)?, Arc::new(seal), (), env(), options())
}

fn sealing() -> Toy {
    Toy { only: Some(SECRETS), locked: false }
}

/// Of no resource.
fn idle() -> Toy {
    Toy { only: Some("none"), locked: false }
}

fn key(name: &str) -> Key {
    Key::new(SECRETS, "shop", name)
}

/// Values that come, change and go, so that each way to the disk is taken.
async fn fill(store: &Store<()>) {
    for i in 0..40 {
        let put = Op::put(key(&format!("s{}", i % 5)), Expect::Any, format!("{PLAIN} {i}").repeat(20));
        store
            .commit(vec![put, Op::put(Key::new("maps", "shop", "m"), Expect::Any, "in plain sight")])
            .await
            .unwrap();
    }
    store.commit(vec![Op::delete(key("s4"), Expect::Any, format!("the last {PLAIN}"))]).await.unwrap();
}

/// The files that have this text.
fn found(dir: &Path, text: &str) -> Vec<String> {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<String> = files
        .filter(|path| has(&fs::read(path).unwrap()))
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

/// What a watch of the secrets from the beginning is told.
fn told(store: &Store<()>) -> Vec<(EventKind, String)> {
    let mut watch = store.watch(Scope::resource(SECRETS), Revision::new(1)).unwrap();
    let mut told = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        told.push((event.kind, String::from_utf8(event.entry.value.get().to_vec()).unwrap()));
    }
    told
}

#[tokio::test]
async fn no_file_and_no_copy_has_the_plain_value() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), sealing()).unwrap();
    fill(&store).await;
    let before = told(&store);
    assert_eq!(before.len(), 41);
    assert_eq!(before[40], (EventKind::Delete, format!("the last {PLAIN}")));
    assert_eq!(found(dir.path(), PLAIN), [""; 0], "while it runs, in the journal");
    assert_eq!(found(dir.path(), "in plain sight"), ["store.journal"], "the search finds what is there");
    let running: Vec<u8> = store.copy().flatten().collect();
    store.close().await.unwrap();
    drop(store);
    assert_eq!(found(dir.path(), PLAIN), [""; 0], "and after it, in the tables");
    let stopped: Vec<u8> = Copy::of_engine(&mut Redb::open(dir.path()).unwrap()).unwrap().flatten().collect();
    for copy in [&running, &stopped] {
        assert!(!copy.windows(PLAIN.len()).any(|window| window == PLAIN.as_bytes()));
        let restored = Memory::restore(Incoming::begin(copy.as_slice()).unwrap(), &env()).unwrap();
        let store = Store::open_sealed(restored, Arc::new(sealing()), (), env(), options()).unwrap();
        assert_eq!(store.get(&key("s3")).unwrap().value, format!("{PLAIN} 38").repeat(20));
    }
    let store = open(dir.path(), sealing()).unwrap();
    assert_eq!(told(&store), before, "history is what it was");
}

#[tokio::test]
async fn a_rewrite_leaves_nothing_of_what_stood_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), idle()).unwrap();
    fill(&store).await;
    let (before, revision) = (told(&store), store.revision());
    store.close().await.unwrap();
    drop(store);
    let store = open(dir.path(), sealing()).unwrap();
    assert_eq!(found(dir.path(), PLAIN), ["store.redb"], "what is only opened is as it was");
    store.rewrite().await.unwrap();
    assert_eq!(found(dir.path(), PLAIN), [""; 0]);
    assert_eq!((told(&store), store.revision()), (before.clone(), revision), "nobody notices");
    fill(&store).await;
    assert_eq!(found(dir.path(), PLAIN), [""; 0]);
    store.close().await.unwrap();
    drop(store);
    // And back.
    let store = open(dir.path(), idle()).unwrap();
    assert_eq!(told(&store)[..41], before);
    store.rewrite().await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = Store::open(Redb::open(dir.path()).unwrap(), (), env(), options()).unwrap();
    assert_eq!(told(&store)[..41], before, "no seal is needed any more");
}

/// Nobody waits for all of it, agents that renew their Leases least of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_go_on_while_all_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), idle()).unwrap();
    for i in 0..20 {
        let put = |n| Op::put(key(&format!("large-{i}-{n}")), Expect::Any, PLAIN.repeat(2000));
        store.commit((0..10).map(put).collect()).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let store = open(dir.path(), sealing()).unwrap();
    let clone = store.clone();
    let rewriting = tokio::spawn(async move { clone.rewrite().await });
    let mut meanwhile = 0;
    while !rewriting.is_finished() {
        // One that is written already, or not yet, and one that comes.
        let name = format!("large-{}-{}", meanwhile % 20, meanwhile % 10);
        let ops = vec![
            Op::put(key(&name), Expect::Any, format!("{PLAIN} {meanwhile}")),
            Op::put(key(&format!("new-{meanwhile}")), Expect::Any, PLAIN),
        ];
        store.commit(ops).await.unwrap();
        meanwhile += 1;
    }
    rewriting.await.unwrap().unwrap();
    assert!(meanwhile > 5, "{meanwhile} commits");
    assert_eq!(found(dir.path(), PLAIN), [""; 0]);
    let (count, revision) = (store.snapshot().count(SECRETS, None), store.revision());
    assert_eq!(count, 200 + meanwhile);
    store.close().await.unwrap();
    drop(store);
    let store = open(dir.path(), sealing()).unwrap();
    assert_eq!(store.snapshot().count(SECRETS, None), count);
    assert!(store.revision() >= revision);
    let last = meanwhile - 1;
    let name = format!("large-{}-{}", last % 20, last % 10);
    assert_eq!(store.get(&key(&name)).unwrap().value, format!("{PLAIN} {last}"));
}

/// It takes as much room as the store.
#[tokio::test]
async fn what_was_written_anew_in_vain_is_let_go_of() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), sealing()).unwrap();
    fill(&store).await;
    // No file takes the place of a directory.
    let (place, beside) = (dir.path().join("store.redb"), dir.path().join("store.redb.new"));
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    store.rewrite().await.unwrap_err();
    assert!(!beside.exists());
}

#[tokio::test]
async fn what_cannot_be_unsealed_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), sealing()).unwrap();
    fill(&store).await;
    store.close().await.unwrap();
    drop(store);
    let error = open(dir.path(), Toy { locked: true, ..sealing() }).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, OpenError::Sealed { .. }), "{text}");
    assert!(
        text.contains("secrets shop/s0 cannot be unsealed (and ") && text.ends_with("Nothing is lost"),
        "{text}"
    );
    let store = open(dir.path(), sealing()).unwrap();
    assert_eq!((store.snapshot().count(SECRETS, None), told(&store).len()), (4, 41));
}

/// What the file says of its format.
fn format(dir: &Path) -> u64 {
    let db = redb::Database::open(dir.join("store.redb")).unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("karmada-store.meta");
    let txn = redb::ReadableDatabase::begin_read(&db).unwrap();
    txn.open_table(meta).unwrap().get("format").unwrap().unwrap().value()
}

/// A program that knows nothing of seals would take sealed values for damaged objects, and act on them.
#[tokio::test]
async fn an_older_program_is_told_by_the_format() {
    let dir = tempfile::tempdir().unwrap();
    let version = |copy: &[u8]| copy["karmada-store copy\n".len()];
    for (seal, rewrite, want, copied) in [
        (idle(), false, 3, 1),
        (sealing(), false, 4, 2),
        // It may be sealed in part, until it was written anew.
        (idle(), false, 4, 1),
        (idle(), true, 3, 1),
        (sealing(), true, 4, 2),
    ] {
        let store = open(dir.path(), seal).unwrap();
        fill(&store).await;
        if rewrite {
            store.rewrite().await.unwrap();
        }
        let running: Vec<u8> = store.copy().flatten().collect();
        assert_eq!(version(&running), copied, "{want}");
        store.close().await.unwrap();
        drop(store);
        assert_eq!(format(dir.path()), want);
        let stopped: Vec<u8> =
            Copy::of_engine(&mut Redb::open(dir.path()).unwrap()).unwrap().flatten().collect();
        assert_eq!(version(&stopped), if want == 4 { 2 } else { 1 });
        let restored = tempfile::tempdir().unwrap();
        Redb::restore(restored.path(), Incoming::begin(stopped.as_slice()).unwrap(), &env()).unwrap();
        assert_eq!(format(restored.path()), want);
    }
    // Only opened by one that is to seal what is there, it is closed to older ones before anything is written.
    let old = tempfile::tempdir().unwrap();
    let store = open(old.path(), idle()).unwrap();
    fill(&store).await;
    store.close().await.unwrap();
    drop(store);
    open(old.path(), sealing()).unwrap().close().await.unwrap();
    assert_eq!(format(old.path()), 4);
}

/// A value belongs to its key.
#[test]
fn a_toy_is_good_enough() {
    let (toy, value) = (sealing(), bytes::Bytes::from_static(b"x"));
    let kept = toy.seal(&key("a"), &value);
    assert_eq!(toy.unseal(&key("a"), kept.clone()), Ok(value));
    assert!(toy.unseal(&key("b"), kept).is_err());
}
