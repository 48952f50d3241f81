//! Random operations against the model, on an engine that loses nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{LEASES, Model, OpSpec, Values, WORKS, commit, drain, env, ops, options, values_of};
use karmada_store::{Revision, Scope, Store, engine::memory::Memory};
use proptest::prelude::*;

/// The values of one resource at a revision.
fn of_at(model: &Model, resource: &str, revision: u64) -> Values {
    let mut values = model.values_at(revision);
    values.retain(|key, _| *key.resource == *resource);
    values
}

/// A store must tell the same as the model: values now and then, and every watch.
fn compare(store: &Store<()>, model: &Model) {
    assert_eq!(values_of(&store.snapshot()), model.values_at(model.revision));
    for from in model.events.iter().map(|e| e.revision).chain([0, 1, model.revision]) {
        let at = Revision::new(from);
        for resource in [WORKS, LEASES] {
            for (namespace, name) in
                [("a", None), ("a", Some("x")), ("b", Some("y")), ("", None), ("", Some("x"))]
            {
                let scope = Scope { name: name.map(Into::into), ..Scope::namespace(resource, namespace) };
                if let Ok(mut watch) = store.watch(scope.clone(), at) {
                    let mut want = model.since(resource, from);
                    want.retain(|happened| scope.contains(&happened.key));
                    assert_eq!(drain(&mut watch), want, "{scope:?} from {from}");
                }
            }
            for namespace in ["a", "b"] {
                let scope = Scope::namespace(resource, namespace);
                let (past, watch) = (store.snapshot_in(&scope, at), store.watch(scope, at));
                assert!(
                    past.is_err() || watch.is_ok(),
                    "{namespace} at {from} is there and cannot be watched"
                );
                if let Ok(past) = past {
                    let mut want = of_at(model, resource, from);
                    want.retain(|key, _| &*key.namespace == namespace);
                    let mut got = values_of(&past);
                    got.retain(|key, _| &*key.namespace == namespace);
                    assert_eq!(got, want, "{resource} in {namespace} at {from}");
                }
            }
            let (past, watch) = (store.snapshot_at(resource, at), store.watch(Scope::resource(resource), at));
            if at < store.compacted(resource) {
                assert!(past.is_err() && watch.is_err(), "{from} is compacted");
                continue;
            }
            assert!(resource == LEASES || past.is_ok() && watch.is_ok(), "{from} is there");
            if let Ok(past) = past {
                assert_eq!(values_of(&past), of_at(model, resource, from), "{resource} at {from}");
            }
            if let Ok(mut watch) = watch {
                assert_eq!(drain(&mut watch), model.since(resource, from), "{resource} from {from}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<OpSpec>),
    Flush,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => prop::collection::vec(ops(), 1..4).prop_map(Step::Commit),
        1 => Just(Step::Flush),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #[test]
    fn the_store_is_its_model(steps in steps(), history in prop::sample::select(vec![1000, 4000, usize::MAX])) {
        block_on(async {
            let (memory, env) = (Memory::new(), env());
            let open = || Store::open(memory.clone(), (), env.clone(), options(history)).unwrap();
            let (mut store, mut model) = (open(), Model::new());
            for step in steps {
                match step {
                    Step::Commit(specs) => commit(&store, &mut model, &specs).await,
                    Step::Flush => {
                        store.flush().await.unwrap();
                        assert_eq!(store.durable(), store.revision());
                    }
                    Step::Restart => {
                        store.close().await.unwrap();
                        store = open();
                    }
                }
                assert_eq!(store.revision(), Revision::new(model.revision));
            }
            compare(&store, &model);
        });
    }

    /// A watcher that reads now and then gets what it would get at once, each event once.
    #[test]
    fn a_watch_misses_nothing_and_repeats_nothing(batches in prop::collection::vec((prop::collection::vec(ops(), 1..3), any::<bool>()), 1..40)) {
        block_on(async {
            let store = Store::open(Memory::new(), (), env(), options(usize::MAX)).unwrap();
            let mut model = Model::new();
            let scopes = [
                Scope::resource("works"),
                Scope::namespace("works", "a"),
                Scope { name: Some("x".into()), ..Scope::namespace("works", "a") },
                Scope { name: Some("x".into()), ..Scope::resource("works") },
            ];
            let mut watches = scopes.clone().map(|s| (store.watch(s, store.revision()).unwrap(), Vec::new()));
            for (specs, read) in batches {
                commit(&store, &mut model, &specs).await;
                if read {
                    watches.iter_mut().for_each(|(watch, seen)| seen.extend(drain(watch)));
                }
            }
            for (scope, (mut watch, mut seen)) in scopes.iter().zip(watches) {
                seen.extend(drain(&mut watch));
                let mut want = model.since("works", 1);
                want.retain(|e| scope.contains(&e.key));
                assert_eq!(seen, want);
                assert_eq!(watch.revision(), store.revision());
            }
        });
    }
}
