//! The store file: who may open it, what is found to be wrong with it, and that tomorrow's program reads today's.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use karmada_env::{Env, ManualClock};
use karmada_store::{
    EventKind, Expect, Key, Op, OpenError, Options, Revision, Scope, Store,
    engine::redb::{FORMAT, Redb, SEALED},
};
use redb::TableDefinition;

const FILE: &str = "store.redb";

fn open(dir: &Path) -> Result<Store<()>, OpenError> {
    let env = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 7);
    let options = Options { relaxed: |resource| resource == "leases", ..Options::default() };
    Store::open(Redb::open(dir)?, (), env, options)
}

fn error(dir: &Path) -> String {
    open(dir).err().map_or_else(|| panic!("{} was opened", dir.display()), |e| e.to_string())
}

/// A closed store in which every table has something.
async fn fill(dir: &Path) {
    let store = open(dir).unwrap();
    for i in 0..20 {
        let key = Key::new("works", "karmada-es-a", format!("work-{}", i % 7));
        let value = vec![i as u8; 100 * i];
        store.commit(vec![Op::put(key, Expect::Any, value)]).await.unwrap();
    }
    let lease = || Op::put(Key::new("leases", "karmada-cluster", "a"), Expect::Any, "renewed");
    store.commit(vec![lease(), lease()]).await.unwrap();
    let gone = Key::new("works", "karmada-es-a", "work-6");
    store.commit(vec![Op::delete(gone, Expect::Any, "going")]).await.unwrap();
    store.close().await.unwrap();
}

/// What [`fill`] has left.
fn check(store: &Store<()>) {
    assert_eq!(store.revision(), Revision::new(24));
    let snapshot = store.snapshot();
    assert_eq!((snapshot.count("works", None), snapshot.count("leases", None)), (6, 1));
    let work = snapshot.find("works", "karmada-es-a", "work-5").unwrap();
    assert_eq!((work.revision.get(), work.create_revision.get(), work.value.len()), (21, 7, 1900));
    let mut watch = store.watch(Scope::resource("works"), Revision::new(1)).unwrap();
    let mut events = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        events.push(event);
    }
    assert_eq!(events.len(), 21);
    let last = events.last().unwrap();
    assert_eq!(
        (last.kind, last.entry.value.get().as_ref(), last.revision().get()),
        (EventKind::Delete, &b"going"[..], 24)
    );
}

#[tokio::test]
async fn a_directory_has_one_hub() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let second = error(dir.path());
    assert!(second.starts_with(&format!("data directory {} is in use by another hub", dir.path().display())));
    first.close().await.unwrap();
    open(dir.path()).unwrap().close().await.unwrap();
}

#[tokio::test]
async fn only_the_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path()).await;
    let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn an_interrupted_beginning_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("store.redb.new"), "half a file").unwrap();
    fill(dir.path()).await;
    assert!(!dir.path().join("store.redb.new").exists());
    check(&open(dir.path()).unwrap());
}

/// Damage is told, and the damaged file left as it is.
#[tokio::test]
async fn damaged_files_are_told_and_kept() {
    let whole = tempfile::tempdir().unwrap();
    fill(whole.path()).await;
    let whole = fs::read(whole.path().join(FILE)).unwrap();
    let mut zeroed = whole.clone();
    zeroed[..512].fill(0);
    for (what, content) in [
        ("empty", vec![]),
        ("cut in the header", whole[..100].to_vec()),
        ("cut in half", whole[..whole.len() / 2].to_vec()),
        ("cut at the end", whole[..whole.len() - 4096].to_vec()),
        ("no header", zeroed),
        ("all zeros", vec![0; whole.len()]),
        ("text", b"these are not the bytes you are looking for".repeat(100)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, &content).unwrap();
        let message = error(dir.path());
        assert!(message.contains(" is damaged: ") && message.contains(FILE), "{what}: {message}");
        assert_eq!(fs::read(&path).unwrap(), content, "{what} was changed");
        // And it is not in use after that.
        assert_eq!(error(dir.path()), message);
    }
}

/// One bit anywhere: either it is told, or it was in a place that holds nothing.
#[tokio::test]
async fn no_single_bit_goes_unnoticed() {
    let whole = tempfile::tempdir().unwrap();
    fill(whole.path()).await;
    let whole = fs::read(whole.path().join(FILE)).unwrap();
    let luck = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 3);
    let used = whole.iter().rposition(|b| *b != 0).unwrap() as u64;
    let mut told = 0;
    // Every byte of the header counts most; beyond it, a sample.
    let places = (0..320).chain((0..150).map(|_| luck.below(used)));
    for place in places {
        let dir = tempfile::tempdir().unwrap();
        let mut content = whole.clone();
        content[place as usize] ^= 1 << luck.below(8);
        fs::write(dir.path().join(FILE), &content).unwrap();
        match open(dir.path()) {
            Ok(store) => check(&store),
            Err(OpenError::InUse { .. }) => panic!("the lock outlived its store"),
            Err(_) => told += 1,
        }
    }
    assert!(told > 100, "only {told} of 470 flipped bits were told");
}

#[test]
fn files_of_other_programs_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = redb::Database::create(dir.path().join(FILE)).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(TableDefinition::<u64, u64>::new("theirs")).unwrap();
    txn.commit().unwrap();
    drop(db);
    assert!(error(dir.path()).contains("is not a store file: it is a redb file of another program"));
}

#[tokio::test]
async fn other_formats_are_told() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path()).await;
    let db = redb::Database::open(dir.path().join(FILE)).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(TableDefinition::<&str, u64>::new("karmada-store.meta"))
        .unwrap()
        .insert("format", 99)
        .unwrap();
    txn.commit().unwrap();
    drop(db);
    assert!(
        error(dir.path())
            .contains(&format!("has format 99, and this program reads formats up to {SEALED}: run "))
    );
}

#[tokio::test]
async fn log_and_values_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path()).await;
    let db = redb::Database::open(dir.path().join(FILE)).unwrap();
    let txn = db.begin_write().unwrap();
    let table = TableDefinition::<(&str, &str, &str), &[u8]>::new("karmada-store.objects");
    txn.open_table(table).unwrap().remove(("works", "karmada-es-a", "work-1")).unwrap();
    txn.commit().unwrap();
    drop(db);
    let message = error(dir.path());
    assert!(
        message.contains("log and values disagree at revision 17 (works karmada-es-a/work-1)"),
        "{message}"
    );
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let message = error(&dir.path().join("file"));
    assert!(message.contains("file"), "{message}");
}

fn fixture(format: u64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{format}.redb"))
}

/// Every format ever released stays readable: its fixture was written by the program of its time.
#[tokio::test]
async fn fixtures_of_all_formats_are_read() {
    for format in 1..=FORMAT {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(fixture(format), dir.path().join(FILE)).unwrap();
        let store = open(dir.path()).unwrap();
        check(&store);
        assert_eq!(store.boots().len(), 2);
        let next =
            store.commit(vec![Op::put(Key::new("works", "a", "b"), Expect::Absent, "c")]).await.unwrap();
        assert_eq!(next.revision(), Revision::new(25));
        store.close().await.unwrap();
    }
}

/// Writes the fixture of the present format. Run it once, when the format changes, and keep the older ones:
/// `cargo test -p karmada-store --test files -- --ignored`
#[tokio::test]
#[ignore = "writes tests/fixtures; only when the format has changed"]
async fn write_the_fixture_of_this_format() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path()).await;
    let path = fixture(FORMAT);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = dir.path().join(FILE);
    redb::Database::open(&file).unwrap().compact().unwrap();
    fs::copy(file, path).unwrap();
}

/// What a killed process leaves: the tables as they were when it began, and the rest in the journal.
#[tokio::test]
async fn what_only_the_journal_has_is_found_or_missed() {
    let (dir, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(dir.path()).unwrap();
    let key = Key::new("works", "a", "b");
    for value in ["one", "two"] {
        store.commit(vec![Op::put(key.clone(), Expect::Any, value)]).await.unwrap();
    }
    for file in [FILE, "store.journal"] {
        fs::copy(dir.path().join(file), left.path().join(file)).unwrap();
    }
    let mode = std::os::unix::fs::PermissionsExt::mode;
    assert_eq!(mode(&fs::metadata(dir.path().join("store.journal")).unwrap().permissions()) & 0o777, 0o600);
    let found = open(left.path()).unwrap();
    assert_eq!(
        (found.get(&key).unwrap().value.get().as_ref(), found.revision()),
        (&b"two"[..], store.revision())
    );
    found.close().await.unwrap();

    fs::copy(dir.path().join(FILE), left.path().join(FILE)).unwrap();
    fs::remove_file(left.path().join("store.journal")).unwrap();
    let message = error(left.path());
    assert!(message.contains("is damaged") && message.contains("store.journal is missing"), "{message}");
    // After a clean close nobody needs it.
    store.close().await.unwrap();
    fs::remove_file(dir.path().join("store.journal")).unwrap();
    assert_eq!(open(dir.path()).unwrap().get(&key).unwrap().value, "two");
}

/// Both halves of the journal several times over, and values that fit into neither.
#[tokio::test]
async fn the_journal_goes_round() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let value = |i: usize| vec![i as u8; if i % 100 == 7 { 2_200_000 } else { 20_000 }];
    let key = |i: usize| Key::new("works", "a", format!("w{}", i % 300));
    for i in 0..600 {
        store.commit(vec![Op::put(key(i), Expect::Any, value(i))]).await.unwrap();
    }
    let revision = store.revision();
    store.close().await.unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!(store.revision(), revision);
    for i in 300..600 {
        assert_eq!(store.get(&key(i)).unwrap().value, value(i), "{i}");
    }
}

/// A clock that a thread may wait on is not the store's: updates of relaxed resources are on disk after a while
/// without anybody asking.
#[tokio::test]
async fn relaxed_updates_are_written_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { relaxed: |_| true, flush: Duration::from_millis(5), ..Options::default() };
    let store = Store::open(Redb::open(dir.path()).unwrap(), (), Env::system(), options).unwrap();
    let put = || store.commit(vec![Op::put(Key::new("leases", "a", "b"), Expect::Any, "").relaxed()]);
    let created = put().await.unwrap().revision();
    assert_eq!(store.durable(), created);
    for _ in 0..10 {
        put().await.unwrap();
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(180);
    while store.durable() < store.revision() {
        assert!(tokio::time::Instant::now() < deadline, "never written");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.close().await.unwrap();
}
