//! What is stored is counted exactly, whatever happens, and stays within what may be stored.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{collections::BTreeMap, time::SystemTime};

use bytes::Bytes;
use karmada_env::{Env, ManualClock};
use karmada_store::{
    Account, CommitError, Exceeded, Expect, Key, Op, Options, Project, Purpose, Store, Terms, Usage,
    VALUE_OVERHEAD, engine::memory::Memory,
};
use proptest::prelude::*;

/// What each namespace may be made by guests.
const LIMIT: u64 = 8_000;
const WHOLE: u64 = 16_000;

/// A namespace is an account, but for `x`.
#[derive(Debug)]
struct Namespaces;

impl Project for Namespaces {
    type Header = ();

    fn project(&self, _: &Key, _: &Bytes) {}

    fn account(&self, key: &Key, (): &()) -> Option<Account> {
        (&*key.namespace != "x").then(|| Account { name: key.namespace.clone(), limit: LIMIT })
    }
}

fn open(memory: &Memory, quota: u64) -> Store<Namespaces> {
    let env = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 1);
    Store::open(memory.clone(), Namespaces, env, Options { quota, ..Options::default() }).unwrap()
}

/// What is there, counted one by one.
fn recount(store: &Store<Namespaces>) -> (Usage, BTreeMap<String, Usage>, BTreeMap<String, Usage>) {
    let add = |usage: &mut Usage, bytes: u64| {
        usage.values += 1;
        usage.bytes += bytes;
    };
    let (mut whole, mut resources, mut accounts) = (Usage::default(), BTreeMap::new(), BTreeMap::new());
    let snapshot = store.snapshot();
    for resource in snapshot.resources() {
        for entry in snapshot.range(resource, None, None) {
            let bytes = VALUE_OVERHEAD + (entry.key.len() + entry.value.len()) as u64;
            add(&mut whole, bytes);
            add(resources.entry(resource.to_string()).or_default(), bytes);
            if &*entry.key.namespace != "x" {
                add(accounts.entry(entry.key.namespace.to_string()).or_default(), bytes);
            }
        }
    }
    (whole, resources, accounts)
}

fn counted(store: &Store<Namespaces>) -> (Usage, BTreeMap<String, Usage>, BTreeMap<String, Usage>) {
    let used = store.used();
    let table = |table: &imbl::OrdMap<std::sync::Arc<str>, Usage>| {
        table.iter().map(|(name, usage)| (name.to_string(), *usage)).collect()
    };
    (used.whole, table(&used.resources), table(&used.accounts))
}

#[derive(Clone, Debug)]
enum Step {
    Commit { ops: Vec<(Key, Option<usize>)>, terms: Terms },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = ("[rs]", "[abx]", "[mno]")
        .prop_map(|(resource, namespace, name)| Key::new(resource, namespace, name));
    let op = (key, prop::option::weighted(0.8, 0..3_500usize));
    let terms = (any::<bool>(), any::<bool>()).prop_map(|(upkeep, guest)| Terms {
        purpose: if upkeep { Purpose::Upkeep } else { Purpose::Growth },
        guest,
    });
    let commit =
        (prop::collection::vec(op, 1..4), terms).prop_map(|(ops, terms)| Step::Commit { ops, terms });
    prop::collection::vec(prop_oneof![12 => commit, 1 => Just(Step::Reopen)], 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn counts_are_exact_and_limits_hold(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let memory = Memory::new();
        let mut store = open(&memory, WHOLE);
        for step in steps {
            let before = store.used();
            match step {
                Step::Reopen => {
                    runtime.block_on(store.close()).unwrap();
                    store = open(&memory, WHOLE);
                    prop_assert_eq!(&store.used(), &before);
                }
                Step::Commit { ops, terms } => {
                    let only_deletes = ops.iter().all(|(_, len)| len.is_none());
                    let ops = ops.into_iter().map(|(key, len)| match len {
                        Some(len) => Op::put(key, Expect::Any, vec![b'v'; len]),
                        None => Op::delete(key, Expect::Any, Vec::new()),
                    });
                    let result = runtime.block_on(store.commit_on(ops.collect(), terms));
                    let after = store.used();
                    match result {
                        Err(CommitError::Quota(Exceeded { account, used, limit })) => {
                            prop_assert!(!only_deletes, "a deletion always goes on");
                            prop_assert!(account.is_none() || terms.guest);
                            let there = account.as_ref().map_or(before.whole, |name| before.account(name));
                            prop_assert_eq!(used, there.bytes);
                            prop_assert!(limit > 0);
                            prop_assert_eq!(&after, &before, "nothing of it happened");
                        }
                        Err(CommitError::Conflict { .. }) => prop_assert_eq!(&after, &before),
                        Err(other) => panic!("{other}"),
                        Ok(_) => {
                            let grown = after.whole.bytes > before.whole.bytes;
                            prop_assert!(!grown || after.whole.bytes <= WHOLE + WHOLE / 8);
                            if terms == Terms::default() {
                                prop_assert!(!grown || after.whole.bytes <= WHOLE);
                            }
                            for (name, usage) in &after.accounts {
                                let grown = usage.bytes > before.account(name).bytes;
                                prop_assert!(!(grown && terms.guest) || usage.bytes <= LIMIT + LIMIT / 8);
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(counted(&store), recount(&store));
        }
    }
}

#[tokio::test]
async fn a_store_over_a_lowered_quota_opens_and_takes_what_makes_it_smaller() {
    let memory = Memory::new();
    let store = open(&memory, 0);
    let key = |n: usize| Key::new("r", "x", format!("n{n}"));
    for n in 0..20 {
        store.commit(vec![Op::put(key(n), Expect::Any, vec![0; 1_000])]).await.unwrap();
    }
    store.close().await.unwrap();
    let store = open(&memory, WHOLE / 2);
    assert!(store.used().whole.bytes > WHOLE / 2);
    let refused = store.commit(vec![Op::put(key(20), Expect::Any, "new")]).await;
    assert!(matches!(refused, Err(CommitError::Quota(Exceeded { account: None, .. }))), "{refused:?}");
    assert_eq!(store.stats().refused.whole, 1);
    store.commit(vec![Op::put(key(0), Expect::Any, vec![0; 999])]).await.unwrap();
    store.commit(vec![Op::put(key(1), Expect::Any, vec![1; 1_000])]).await.unwrap();
    for n in 0..18 {
        store.commit(vec![Op::delete(key(n), Expect::Any, "")]).await.unwrap();
    }
    store.commit(vec![Op::put(key(20), Expect::Any, "new")]).await.unwrap();
}
