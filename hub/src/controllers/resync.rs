//! A slow second look at everything: what a lost wake-up left behind is mended within hours.
//!
//! ```text
//!   every few seconds: of each index the next few keys ─▶ the queues of the controllers that may have something to do
//! ```
//!
//! Controllers hear of what changes, and that is enough as long as none of them misses anything. Should one, nobody would
//! ever come back to the object. So each object has its turn once in a [`PERIOD`], one after the other: 100,000 bindings
//! are four a second. After a start everything is looked at anyway.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use karmada_client::WorkQueue;
use karmada_env::Env;
use karmada_meta::gvk::GroupVersionKind;
use karmada_objects::{
    key::{Key, TemplateKey},
    scope::BindingKey,
};
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::known::{
    Known,
    heads::BindingHead,
    index::{Index, Page},
    templates::Templates,
};

/// How long it takes until everything has had its turn, at most; each hub is up to a quarter faster.
const PERIOD: Duration = Duration::from_secs(8 * 3600);
/// How often the next few are looked at.
const TICK: Duration = Duration::from_secs(10);

type Walk = Box<dyn FnMut(f64) + Send>;

/// Who is to be told of what.
#[derive(Default)]
pub(crate) struct Resync(Mutex<Vec<Walk>>);

impl fmt::Debug for Resync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resync").field("walks", &self.0.lock().len()).finish()
    }
}

/// Where a walk over an index is.
#[derive(Debug, Default)]
struct Cursor {
    last: Option<Arc<Key>>,
    /// Objects whose turn has come and that were not told, parts of one among them.
    owed: f64,
}

impl Cursor {
    /// The objects whose turn it is when this share of the period has passed.
    fn due<P: PartialEq + Send + Sync + 'static>(&mut self, index: &Index<P>, share: f64) -> Page<P> {
        self.owed += index.len() as f64 * share;
        let due = self.owed.floor().max(0.0);
        self.owed -= due;
        let due = due as usize;
        if due == 0 {
            return Page::new();
        }
        let page = index.page(None, self.last.as_deref(), due);
        // At the end it begins anew, with the next tick.
        self.last = page.last().filter(|_| page.len() == due).map(|(key, _)| key.clone());
        page
    }
}

impl Resync {
    /// Has each object of an index told in its turn.
    pub(crate) fn tell<P: PartialEq + Send + Sync + 'static>(
        &self,
        index: &Arc<Index<P>>,
        tell: impl Fn(&Key, &P) + Send + 'static,
    ) {
        let (index, mut cursor) = (Arc::clone(index), Cursor::default());
        self.0.lock().push(Box::new(move |share| {
            for (key, head) in cursor.due(&index, share) {
                tell(&key, &head);
            }
        }));
    }

    /// Has each binding queued that a controller may have something to do with.
    pub(crate) fn bindings(
        &self,
        known: &Known,
        queue: &WorkQueue<BindingKey>,
        concern: fn(&BindingHead) -> bool,
    ) {
        for (scope, index) in known.bindings.both() {
            let queue = queue.clone();
            self.tell(index, move |key, head| {
                if concern(head) {
                    queue.add(BindingKey { scope, key: key.clone() });
                }
            });
        }
    }

    /// Has each template of all kinds queued.
    pub(crate) fn templates(&self, templates: &Arc<Templates>, queue: &WorkQueue<TemplateKey>) {
        let (templates, queue) = (Arc::clone(templates), queue.clone());
        let mut cursors: BTreeMap<GroupVersionKind, Cursor> = BTreeMap::new();
        self.0.lock().push(Box::new(move |share| {
            let kinds = templates.kinds();
            cursors.retain(|kind, _| kinds.iter().any(|(watched, _)| watched == kind));
            for (kind, watched) in kinds {
                for (key, _) in cursors.entry(kind.clone()).or_default().due(&watched.index, share) {
                    queue.add(TemplateKey { kind: kind.clone(), key: Key::clone(&key) });
                }
            }
        }));
    }

    fn tick(&self, share: f64) {
        for walk in self.0.lock().iter_mut() {
            walk(share);
        }
    }
}

/// Tells everything in its turn, until told to stop.
pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let walking = async {
        context.synced().await;
        let share = share(&context.env);
        loop {
            sleep(TICK).await;
            context.resync.tick(share);
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = walking => {}
    }
}

/// The share of everything that is told each time.
fn share(env: &Env) -> f64 {
    env.jitter(TICK, 0.25).as_secs_f64() / PERIOD.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use karmada_client::Event;
    use karmada_env::ManualClock;

    use super::*;

    #[test]
    fn everything_has_its_turn_once_in_a_period_and_never_much_at_a_time() {
        let share = share(&Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 5));
        for many in [1, 7, 100, 30_000] {
            let (index, told) = (Index::<usize>::new(), Arc::<Mutex<BTreeMap<Key, usize>>>::default());
            for n in 0..many {
                index.apply(Event::Upsert((Key::cluster_scoped(format!("{n:06}")), n)));
            }
            let (resync, sink) = (Resync::default(), Arc::clone(&told));
            resync.tell(&index, move |key, _| *sink.lock().entry(key.clone()).or_default() += 1);
            let ticks = PERIOD.as_secs() / TICK.as_secs();
            let (mut before, mut most) = (0, 0);
            for _ in 0..=ticks + 1 {
                resync.tick(share);
                let now = told.lock().values().sum();
                most = most.max(now - before);
                before = now;
            }
            assert_eq!(told.lock().len(), many, "of {many} all");
            assert!(told.lock().values().all(|times| *times <= 2), "of {many} none often");
            assert!(most <= 1 + many * 13 / 10 / ticks as usize, "of {many} {most} at a time");
        }
    }

    #[test]
    fn what_comes_and_goes_under_way_does_not_stop_the_walk() {
        let index = Index::<usize>::new();
        let put = |n: usize| index.apply(Event::Upsert((Key::cluster_scoped(format!("{n:06}")), n)));
        (0..100).for_each(put);
        let mut cursor = Cursor::default();
        let names = |page: Page<usize>| page.iter().map(|(_, n)| **n).collect::<Vec<_>>();
        assert_eq!(names(cursor.due(&index, 0.03)), [0, 1, 2]);
        index.apply(Event::Delete((Key::cluster_scoped("000002"), 2)));
        index.apply(Event::Delete((Key::cluster_scoped("000003"), 3)));
        assert_eq!(names(cursor.due(&index, 0.03)), [4, 5]);
        assert_eq!(names(cursor.due(&index, 2.0)).len(), 94, "no more than there is");
        assert_eq!(names(cursor.due(&index, 0.011)), [0, 1], "and from the start again");
    }
}
