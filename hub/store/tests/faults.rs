//! A disk that fails at every step there is, for a moment or for long: reads go on, commits are refused, nothing is half
//! written, and the store goes on by itself when the disk does.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, SystemTime},
};

use common::{LEASES, Model, OpSpec, WORKS, drain, ops, options, values_of};
use karmada_env::{Env, ManualClock};
use karmada_store::{
    CommitError, EventKind, Expect, Failure, Key, Op, Revision, Scope, Store,
    engine::{
        crash::{Content, Disk, Rot},
        redb::Redb,
    },
};
use proptest::{prelude::*, test_runner::TestRunner};

/// Longer than the writer waits before it opens its file again.
const LONG: Duration = Duration::from_secs(60);

/// Where in a file of tables there is more than redb's header.
const BEHIND_HEADER: u64 = 8192;

/// How a store does on a failing disk, against a model that knows what it was told.
struct Run {
    disk: Disk,
    clock: ManualClock,
    store: Store<()>,
    model: Model,
    /// What the model would be if the commit that failed were there.
    doubt: Option<Model>,
    refused: usize,
}

fn open(disk: &Disk, clock: &ManualClock) -> Store<()> {
    let env = Env::seeded(clock.clone(), 1);
    Store::open(disk.engine().unwrap(), (), env, options(6000)).unwrap()
}

impl Run {
    async fn start() -> Self {
        let (disk, clock) = (Disk::new(), ManualClock::new(SystemTime::UNIX_EPOCH));
        let store = open(&disk, &clock);
        Self { disk, clock, store, model: Model::new(), doubt: None, refused: 0 }
    }

    /// Once the store has looked at its disk it says which of the two it is.
    fn settle(&mut self) {
        if let Some(doubt) = self.doubt.take_if(|doubt| self.store.revision().get() == doubt.revision) {
            self.model = doubt;
        } else if self.store.failure().is_none() {
            self.doubt = None;
        }
    }

    async fn commit(&mut self, specs: &[OpSpec]) {
        // If it is time, the store looks at its disk.
        let well = self.store.flush().await.is_ok();
        assert_eq!(well, self.store.failure().is_none());
        self.refused += usize::from(!well);
        self.settle();
        let mut after = self.model.clone();
        let (ops, good) = after.apply(specs);
        match self.store.commit(ops).await {
            Ok(_) => {
                assert!(good, "{specs:?} went through");
                if !well {
                    // The batch that failed never happened; otherwise nothing could be taken behind it.
                    self.doubt = None;
                    let before = self.model.revision;
                    assert!(after.events.iter().all(|e| e.relaxed || e.revision <= before), "{specs:?}");
                }
                self.model = after;
            }
            Err(CommitError::Conflict { .. }) => assert!(well && !good, "{specs:?} did not go through"),
            Err(CommitError::Io(failure)) => {
                assert!(failure.cause.starts_with("writing crash disk failed: "), "{failure}");
                assert_eq!(self.store.failure(), Some(failure));
                self.refused += 1;
                if well && good {
                    self.doubt = Some(after);
                }
            }
            Err(other) => panic!("{other}"),
        }
        self.check();
    }

    /// Whatever the disk does, what was shown is there and goes on being told.
    fn check(&self) {
        let shown = &self.model;
        assert_eq!(self.store.revision().get(), shown.revision);
        assert_eq!(values_of(&self.store.snapshot()), shown.values_at(shown.revision));
        for resource in [WORKS, LEASES] {
            let oldest = self.store.compacted(resource);
            let mut watch = self.store.watch(Scope::resource(resource), oldest).unwrap();
            assert_eq!(drain(&mut watch), shown.since(resource, oldest.get()), "{resource} from {oldest}");
        }
    }

    /// The disk is well again: the store goes on, and a restart finds what was shown.
    async fn heal(mut self) {
        self.disk.heal();
        self.clock.advance(LONG);
        let last = OpSpec {
            key: Key::new(WORKS, "z", "last"),
            expect: common::ExpectSpec::Any,
            delete: false,
            value: "well".into(),
            relaxed: false,
            as_stored: false,
        };
        self.commit(&[last]).await;
        assert_eq!(self.store.failure(), None);
        assert_eq!(self.store.durable(), self.store.revision());
        let shown = (self.store.revision(), values_of(&self.store.snapshot()));
        self.store.close().await.unwrap();
        let store = open(&Disk::with_image(self.disk.image(self.disk.steps())), &self.clock);
        assert_eq!((store.revision(), values_of(&store.snapshot())), shown);
    }
}

/// The steps that a run without failures takes.
async fn steps_of(batches: &[Vec<OpSpec>]) -> usize {
    let mut run = Run::start().await;
    let begun = run.disk.tried();
    for specs in batches {
        run.commit(specs).await;
    }
    run.disk.tried() - begun
}

/// How a disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// There is no space.
    Full,
    /// With an error, and what had been written may still be written later.
    Broken,
    /// What a failed sync should have written never is, and later syncs succeed.
    Forgetful,
    /// There is no space, and what is there cannot be read.
    Rotten,
}

/// `count` steps fail from the `nth` on; every now and then so much time passes that the store looks again.
async fn failing_at(batches: &[Vec<OpSpec>], how: How, nth: usize, count: usize) {
    let mut run = Run::start().await;
    match how {
        How::Full => run.disk.fill(nth, count),
        How::Broken => run.disk.fail(nth, count),
        How::Forgetful => {
            run.disk.forget_failed_syncs();
            run.disk.fail(nth, count);
        }
        How::Rotten => {
            run.disk.fill(nth, count);
            run.disk.rot(if nth.is_multiple_of(2) { 0 } else { BEHIND_HEADER }, Rot::Fails);
        }
    }
    let luck = Env::seeded(run.clock.clone(), nth as u64);
    for (i, specs) in batches.iter().enumerate() {
        run.commit(specs).await;
        if i % 3 == 0 {
            run.clock.advance(LONG);
        }
        // What a crash leaves now has all that was durable, and nothing by half.
        let (model, doubt) = (&run.model, run.doubt.as_ref());
        let steps = run.disk.steps();
        for image in [run.disk.image(steps), run.disk.torn_image(steps, &luck)] {
            let found = open(&Disk::with_image(image), &run.clock);
            let at = found.boots().iter().rev().nth(1).map_or(Revision::ZERO, |boot| boot.last);
            let found = values_of(&found.snapshot());
            assert!(
                model.may_leave(&found, at.get(), 0)
                    || doubt.is_some_and(|doubt| doubt.may_leave(&found, at.get(), 0)),
                "half of something is there"
            );
            assert!(at >= run.store.durable(), "an acknowledged change is gone");
        }
    }
    assert!(
        run.refused > 0 || count == 1 || matches!(how, How::Full | How::Rotten),
        "nothing was refused at step {nth}"
    );
    run.heal().await;
}

/// Every step of `cases` random runs of so many commits.
fn fail_everywhere(cases: u32, commits: std::ops::Range<usize>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let batches = prop::collection::vec(prop::collection::vec(ops(), 1..4), commits);
    TestRunner::new(config)
        .run(&batches, |batches| {
            runtime.block_on(async {
                let steps = steps_of(&batches).await;
                for nth in 0..steps {
                    for count in [1, 7, usize::MAX] {
                        for how in [How::Full, How::Broken, How::Forgetful, How::Rotten] {
                            failing_at(&batches, how, nth, count).await;
                        }
                    }
                }
            });
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_disk_may_fail_at_every_step() {
    fail_everywhere(2, 5..8);
}

#[test]
#[ignore = "takes minutes: cargo test -p karmada-store --release --test faults -- --ignored"]
fn many_disks_may_fail_at_every_step() {
    fail_everywhere(100, 6..20);
}

/// A commit that failed is there when the store goes on, as a whole and for watchers too, or it never happened.
#[tokio::test]
async fn a_batch_that_failed_is_shown_or_never_happened() {
    let run = Run::start().await;
    let put =
        |value: &'static str| run.store.commit(vec![Op::put(Key::new(WORKS, "a", "x"), Expect::Any, value)]);
    let first = put("one").await.unwrap().revision();
    let mut watch = run.store.watch(Scope::resource(WORKS), first).unwrap();
    let (mut there, mut not) = (0, 0);
    for nth in 0.. {
        let before = run.store.revision();
        run.disk.fail(nth, 1);
        let answer = put("two").await;
        if answer.is_ok() {
            assert!(nth > 1, "a commit is several steps");
            break;
        }
        assert_eq!((run.store.revision(), watch.try_next().unwrap()), (before, None));
        run.disk.heal();
        assert!(put("early").await.is_err(), "it is not looked at again at once");
        run.clock.advance(LONG);
        let next = put("three").await.unwrap().revision();
        let mut seen = Vec::new();
        while let Some(event) = watch.try_next().unwrap() {
            assert_eq!((event.kind, event.prev.is_some()), (EventKind::Put, true));
            seen.push((event.revision(), event.entry.value.get()));
        }
        let (after, two) = (before.next(), bytes::Bytes::from("two"));
        if seen[0].1 == two {
            assert_eq!(seen, [(after, two), (after.next(), "three".into())]);
            there += 1;
        } else {
            assert_eq!(seen, [(after, "three".into())]);
            not += 1;
        }
        assert_eq!(run.store.revision(), next);
    }
    assert!(not > 0, "{there} were there, {not} were not");
}

/// Relaxed updates that were shown before the disk failed are kept until it is well.
#[tokio::test]
async fn what_was_shown_outlives_a_failure() {
    let run = Run::start().await;
    let lease = |value: &'static str| {
        run.store.commit(vec![Op::put(Key::new(LEASES, "a", "x"), Expect::Any, value).relaxed()])
    };
    for value in ["made", "reserved"] {
        lease(value).await.unwrap();
    }
    let shown = lease("shown").await.unwrap().revision();
    assert!(run.store.durable() < shown);
    run.disk.fail_after(0);
    assert!(run.store.flush().await.is_err());
    assert_eq!(run.store.revision(), shown);
    run.disk.heal();
    run.store.close().await.unwrap();
    let store = open(&Disk::with_image(run.disk.image(run.disk.steps())), &run.clock);
    assert_eq!(store.get(&Key::new(LEASES, "a", "x")).unwrap().value, "shown");
    assert_eq!(store.revision(), shown);
}

/// A step of a migration is like any other: before it or after it, and the store is whole.
#[tokio::test]
async fn a_crash_while_the_format_is_raised_does_no_harm() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.redb");
    let disk = Disk::with_image(Content::tables(std::fs::read(fixture).unwrap()));
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let whole = open(&disk, &clock).snapshot();
    for steps in 0..=disk.steps() {
        let luck = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), steps as u64);
        for image in [disk.image(steps), disk.torn_image(steps, &luck)] {
            let store = open(&Disk::with_image(image), &clock);
            assert_eq!(values_of(&store.snapshot()), values_of(&whole), "after {steps} steps");
            assert!(store.watch(Scope::resource("works"), Revision::new(1)).is_ok());
        }
    }
}

/// Nothing that a failed sync has dropped is taken for written, however often later syncs succeed.
#[tokio::test]
async fn after_a_failed_sync_everything_is_written_anew() {
    let run = Run::start().await;
    run.disk.forget_failed_syncs();
    let put = |name: &'static str| {
        run.store.commit(vec![Op::put(Key::new(WORKS, "a", name), Expect::Any, name.as_bytes().to_vec())])
    };
    put("before").await.unwrap();
    // The write goes well, the sync does not, and only once.
    run.disk.fail(1, 1);
    put("refused").await.unwrap_err();
    let early = put("early").await.unwrap_err();
    assert!(matches!(early, CommitError::Io(Failure { full: false, .. })), "{early}");
    assert!(run.store.get(&Key::new(WORKS, "a", "before")).is_some(), "reads go on");
    run.clock.advance(LONG);
    put("after").await.unwrap();
    let image = run.disk.image(run.disk.steps());
    let store = open(&Disk::with_image(image), &run.clock);
    let names: Vec<_> = store.snapshot().range(WORKS, None, None).map(|e| e.key.name.to_string()).collect();
    assert_eq!(names, ["after", "before"]);
    assert!(store.watch(Scope::resource(WORKS), Revision::new(1)).is_ok(), "with its history");
}

/// A file that cannot be read any more, or reads as something else, is written anew: everything is in memory.
#[tokio::test]
async fn tables_that_rot_are_written_anew() {
    for (rot, from) in [Rot::Fails, Rot::Garbles].into_iter().flat_map(|rot| [(rot, 0), (rot, BEHIND_HEADER)])
    {
        let run = Run::start().await;
        let put = |name: &'static str| {
            run.store.commit(vec![Op::put(Key::new(WORKS, "a", name), Expect::Any, name)])
        };
        put("before").await.unwrap();
        // It is found out when the file is opened again, for whatever reason.
        run.disk.rot(from, rot);
        run.disk.fill(0, 1);
        put("refused").await.unwrap_err();
        run.clock.advance(LONG);
        put("after").await.unwrap_or_else(|error| panic!("{rot:?} from {from}: {error}"));
        let store = open(&Disk::with_image(run.disk.image(run.disk.steps())), &run.clock);
        let names: Vec<_> =
            store.snapshot().range(WORKS, None, None).map(|e| e.key.name.to_string()).collect();
        assert_eq!(names, ["after", "before"], "{rot:?} from {from}");
        assert!(store.watch(Scope::resource(WORKS), Revision::new(1)).is_ok(), "with its history");
    }
}

/// The same in a directory, found out by a checkpoint's thread and by a commit that goes into the tables by itself:
/// redb may assert in both.
#[tokio::test]
async fn a_file_that_rots_under_a_store_is_written_anew() {
    for len in [100_000, 3 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let open = || {
            let env = Env::seeded(clock.clone(), 1);
            Store::open(Redb::open(dir.path()).unwrap(), (), env, options(6000)).unwrap()
        };
        let store = open();
        let put = |i: usize, len: usize| {
            let key = Key::new(WORKS, "a", format!("w{i}"));
            store.commit(vec![Op::put(key, Expect::Any, vec![i as u8; len])])
        };
        // More than redb keeps in memory.
        for i in 0..120 {
            put(i, 100_000).await.unwrap();
        }
        let file = File::options().write(true).open(dir.path().join("store.redb")).unwrap();
        let behind = file.metadata().unwrap().len() - BEHIND_HEADER;
        file.write_all_at(&vec![0xA5; behind as usize], BEHIND_HEADER).unwrap();
        let mut failed = None;
        for i in 120..220 {
            if let Err(error) = put(i, len).await {
                failed = Some((i, error));
                break;
            }
        }
        let (failed, error) = failed.expect("nobody noticed");
        assert!(matches!(error, CommitError::Io(_)), "{error}");
        clock.advance(LONG);
        put(1000, 10).await.unwrap_or_else(|error| panic!("values of {len} bytes: {error}"));
        assert_eq!(store.failure(), None);
        let shown = values_of(&store.snapshot());
        assert_eq!(shown.len(), failed + 1);
        store.close().await.unwrap();
        drop(store);
        assert_eq!(values_of(&open().snapshot()), shown);
    }
}

/// A fleet goes on renewing its Leases while the disk is full, and nothing else goes on.
#[tokio::test]
async fn renewals_need_no_disk() {
    let run = Run::start().await;
    let (lease, work) = (Key::new(LEASES, "a", "x"), Key::new(WORKS, "a", "x"));
    let renewal = |value: &'static str| Op::put(lease.clone(), Expect::Any, value).relaxed();
    let other = |value: &'static str| Op::put(work.clone(), Expect::Any, value);
    let commit = |ops: Vec<Op>| run.store.commit(ops);
    for value in ["made", "reserved"] {
        commit(vec![renewal(value)]).await.unwrap();
    }
    commit(vec![other("durable")]).await.unwrap();
    run.disk.fill(0, usize::MAX);
    let full = |error| matches!(error, CommitError::Io(Failure { full: true, .. }));
    assert!(full(commit(vec![other("refused")]).await.unwrap_err()));
    let mut watch = run.store.watch(Scope::resource(LEASES), run.store.revision()).unwrap();
    for value in ["first", "second"] {
        let shown = commit(vec![renewal(value)]).await.unwrap().revision();
        assert_eq!(
            (run.store.get(&lease).unwrap().value.get().as_ref(), run.store.revision()),
            (value.as_bytes(), shown)
        );
        assert_eq!(watch.try_next().unwrap().unwrap().revision(), shown);
        for ops in [
            vec![renewal("with another"), other("refused")],
            vec![Op::put(lease.clone(), Expect::Any, "another's")],
            vec![Op::delete(lease.clone(), Expect::Any, "")],
            vec![Op::put(Key::new(LEASES, "a", "new"), Expect::Any, "").relaxed()],
        ] {
            assert!(full(commit(ops).await.unwrap_err()));
        }
        // The store looks at its disk, in vain.
        run.clock.advance(LONG);
    }
    assert!(run.store.failure().is_some());
    let left = open(&Disk::with_image(run.disk.image(run.disk.steps())), &run.clock);
    assert!(left.revision() > run.store.revision(), "no revision is given twice");
    assert_eq!(left.get(&work).unwrap().value, "durable");
    // As many as revisions are reserved.
    let many = |value| std::iter::repeat_with(|| renewal(value)).take(40_000).collect();
    commit(many("third")).await.unwrap();
    assert!(full(commit(many("too many")).await.unwrap_err()));
    run.disk.heal();
    run.clock.advance(LONG);
    commit(vec![other("after")]).await.unwrap();
    let steps = run.disk.steps();
    let left = open(&Disk::with_image(run.disk.image(steps)), &run.clock);
    let value = |key: &Key| left.get(key).unwrap().value.clone();
    assert_eq!([value(&lease), value(&work)], ["third", "after"]);
}

/// Behind a batch that may be on disk nothing is shown: after a crash, a watcher that is past it would never be told.
#[tokio::test]
async fn renewals_wait_for_a_batch_in_doubt() {
    let run = Run::start().await;
    let renewal = |value: &'static str| {
        run.store.commit(vec![Op::put(Key::new(LEASES, "a", "x"), Expect::Any, value).relaxed()])
    };
    for value in ["made", "reserved"] {
        renewal(value).await.unwrap();
    }
    // The write goes well, the sync does not.
    run.disk.fail(1, 1);
    let work = Op::put(Key::new(WORKS, "a", "x"), Expect::Any, "");
    run.store.commit(vec![work]).await.unwrap_err();
    renewal("refused").await.unwrap_err();
    run.clock.advance(LONG);
    renewal("after").await.unwrap();
    assert_eq!(run.store.failure(), None);
}

/// A crash may find it for as long as there is no other file.
#[tokio::test]
async fn renewals_wait_for_a_batch_in_doubt_while_no_new_file_can_be_written() {
    let run = Run::start().await;
    let renewal = |value: &'static str| {
        run.store.commit(vec![Op::put(Key::new(LEASES, "a", "x"), Expect::Any, value).relaxed()])
    };
    for value in ["made", "reserved"] {
        renewal(value).await.unwrap();
    }
    run.disk.fail(1, usize::MAX);
    let work = Op::put(Key::new(WORKS, "a", "x"), Expect::Any, "");
    run.store.commit(vec![work]).await.unwrap_err();
    for _ in 0..3 {
        run.clock.advance(LONG);
        renewal("refused").await.unwrap_err();
    }
    run.disk.heal();
    run.clock.advance(LONG);
    renewal("after").await.unwrap();
    assert_eq!(run.store.failure(), None);
}
