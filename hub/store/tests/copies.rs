//! Copies of a store: whole or refused, and what is made of one cannot be taken for its original.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::time::SystemTime;

use common::{LEASES, Model, Values, WORKS, commit, drain, env, ops, options, values_of};
use karmada_env::{Env, ManualClock};
use karmada_store::{
    Copy, CopyError, Expect, Incoming, Key, Op, Options, Revision, Scope, Store,
    engine::{Engine, Memory, redb::Redb},
};
use proptest::prelude::*;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn bytes(copy: Copy) -> Vec<u8> {
    copy.flatten().collect()
}

/// The environment of whoever restores: ids of its own.
fn later() -> Env {
    Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 99)
}

fn restore(copy: &[u8]) -> Result<Memory, CopyError> {
    Memory::restore(Incoming::begin(copy)?, &later())
}

/// Values as they are when what was at one revision is at another: in the same order.
fn anew(mut values: Values, from: Revision, to: Revision) -> Values {
    let moved = |revision: &mut u64| *revision += to.get() - from.get();
    values.values_mut().for_each(|(_, revision, created)| [revision, created].into_iter().for_each(moved));
    values
}

/// What the copy of a model's store must have become.
async fn check(store: &Store<()>, original: &Store<()>, model: &Model, at: Revision) {
    let first = store.revision();
    let values = model.values_at(at.get());
    assert_eq!(
        values_of(&store.snapshot()),
        anew(values, at, first),
        "newer than any that was seen, and in the same order"
    );
    let (boot, first) = (original.boot_id(), store.revision());
    assert!(first.get() > at.get() + (1 << 39), "revisions jump");
    assert!(store.knows(boot, at) && !store.knows(boot, at.next()), "an older copy is known as one");
    assert!(!store.knows(boot, original.revision().next()));
    assert_ne!(store.boot_id(), boot);
    for resource in [WORKS, LEASES] {
        for from in [Revision::ZERO, at, at.next(), original.revision()] {
            let watch = store.watch(Scope::resource(resource), from);
            assert_eq!(watch.unwrap_err().oldest, first, "{resource} from {from}");
            assert!(store.snapshot_at(resource, from).is_err());
        }
        assert!(store.snapshot_at(resource, first).is_ok());
    }
    let mut watch = store.watch(Scope::resource(WORKS), first).unwrap();
    let key = Key::new(WORKS, "a", "x");
    let created = store.get(&key).map(|e| e.create_revision);
    let put = store.commit(vec![Op::put(key.clone(), Expect::Any, "new")]).await.unwrap();
    assert_eq!(put.revision(), first.next());
    assert_eq!(drain(&mut watch).len(), 1);
    assert_eq!(store.get(&key).unwrap().create_revision, created.unwrap_or_else(|| first.next()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_is_everything_at_one_revision(before in prop::collection::vec(prop::collection::vec(ops(), 1..4), 0..30),
                                            after in prop::collection::vec(prop::collection::vec(ops(), 1..4), 1..8)) {
        block_on(async {
            let memory = Memory::new();
            let original = Store::open(memory.clone(), (), env(), options(4000)).unwrap();
            let mut model = Model::new();
            for specs in before {
                commit(&original, &mut model, &specs).await;
            }
            // What happens while it is taken is not in it.
            let mut copy = original.copy();
            let at = copy.revision();
            let mut taken = copy.next().unwrap().to_vec();
            for specs in after {
                commit(&original, &mut model, &specs).await;
            }
            taken.extend(copy.flatten());
            let store = Store::open(restore(&taken).unwrap(), (), later(), options(4000)).unwrap();
            check(&store, &original, &model, at).await;

            // Of a store that is not open, too.
            let end = original.revision();
            original.close().await.unwrap();
            let taken = bytes(Copy::of_engine(&mut memory.clone()).unwrap());
            let dir = tempfile::tempdir().unwrap();
            Redb::restore(dir.path(), Incoming::begin(&*taken).unwrap(), &later()).unwrap();
            let store = Store::open(Redb::open(dir.path()).unwrap(), (), later(), options(4000)).unwrap();
            check(&store, &original, &model, end).await;
            store.close().await.unwrap();
        });
    }
}

#[tokio::test]
async fn many_pages_are_in_order_and_complete() {
    let store = Store::open(Memory::new(), (), env(), Options::default()).unwrap();
    for resource in ["a", "b", "c"] {
        let put = |i| {
            Op::put(Key::new(resource, format!("n{}", i % 7), format!("x{i}")), Expect::Any, vec![7; 999])
        };
        store.commit((0..300).map(put).collect()).await.unwrap();
    }
    let copy = bytes(store.copy());
    assert!(copy.len() > 900 * 999);
    let again = Store::open(restore(&copy).unwrap(), (), later(), Options::default()).unwrap();
    assert_eq!(
        values_of(&again.snapshot()),
        anew(values_of(&store.snapshot()), store.revision(), again.revision())
    );
    // The copy of a copy is the copy, but for where it begins.
    let memory = restore(&bytes(again.copy())).unwrap();
    let third = Store::open(memory, (), later(), Options::default()).unwrap();
    assert_eq!(
        values_of(&third.snapshot()),
        anew(values_of(&store.snapshot()), store.revision(), third.revision())
    );
    assert!(third.revision() > again.revision());
}

#[tokio::test]
async fn what_is_cut_short_or_newer_is_refused() {
    let store = Store::open(Memory::new(), (), env(), Options::default()).unwrap();
    for i in 0..5 {
        store
            .commit(vec![Op::put(Key::new(WORKS, "a", format!("x{i}")), Expect::Any, "value")])
            .await
            .unwrap();
    }
    let copy = bytes(store.copy());
    for len in 0..copy.len() {
        let error = restore(&copy[..len]).map(|_| ()).unwrap_err();
        assert!(matches!(error, CopyError::Damaged(_)), "{len}: {error}");
    }
    let mut newer = copy.clone();
    newer[b"karmada-store copy\n".len()] = 9;
    assert!(matches!(restore(&newer), Err(CopyError::Format { found: 9 })));
    // Garbled ones are refused or read, and never a panic or a gigabyte.
    for at in 0..copy.len() {
        let mut garbled = copy.clone();
        garbled[at] ^= 0x81;
        let _ = restore(&garbled);
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(Redb::restore(dir.path(), Incoming::begin(&copy[..copy.len() - 1]).unwrap(), &later()).is_err());
    assert!(!dir.path().join("store.redb").exists());
    Redb::restore(dir.path(), Incoming::begin(&*copy).unwrap(), &later()).unwrap();
    let again = Redb::restore(dir.path(), Incoming::begin(&*copy).unwrap(), &later());
    assert!(again.unwrap_err().to_string().ends_with("is there already"));
    assert_eq!(Redb::open(dir.path()).unwrap().load(&mut |_, plain| plain.into()).unwrap().objects.len(), 5);
}
