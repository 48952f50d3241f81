//! Changes that come together, looked at off the watch's task.
//!
//! ```text
//!   watch task ─▶ listener: does it concern us? ─▶ one entry per key ─▶ a task of the controller ─▶ its queue
//! ```
//!
//! A listener runs in the task that everything about a kind comes through, so it does no more than what one change is worth:
//! it notes the key here. What follows from it (all bindings of a cluster, say) is found by the controller's own task, for
//! what has come since the last time at once.

use std::{collections::BTreeMap, fmt, mem, sync::Arc, time::Duration};

use karmada_objects::key::Key;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    task::yield_now,
    time::{Instant, sleep_until},
};

use super::index::{Change, Index};

/// Keys that have changed, each with what is to be remembered of its changes. One task takes them.
pub(crate) struct Gathered<V = ()> {
    shared: Arc<Shared<V>>,
    /// How long after one batch the next is taken at the earliest.
    pace: Duration,
    next: Mutex<Option<Instant>>,
}

struct Shared<V> {
    waiting: Mutex<BTreeMap<Key, V>>,
    came: Notify,
}

impl<V> fmt::Debug for Gathered<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.shared.waiting.lock().len();
        f.debug_struct("Gathered").field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl Gathered {
    /// The keys of an index whose changes `concern` us, from now on.
    pub(crate) fn keys<P: PartialEq + Send + Sync + 'static>(
        index: &Index<P>,
        concern: impl Fn(&Change<'_, P>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::of(index, Duration::ZERO, concern, |(), _| {})
    }
}

impl<V: Default + Send + 'static> Gathered<V> {
    /// The same with what `note` writes down of each change. A batch is taken a `pace` after the last at the earliest.
    pub(crate) fn of<P: PartialEq + Send + Sync + 'static>(
        index: &Index<P>,
        pace: Duration,
        concern: impl Fn(&Change<'_, P>) -> bool + Send + Sync + 'static,
        note: impl Fn(&mut V, &Change<'_, P>) + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared { waiting: Mutex::default(), came: Notify::new() });
        let ear = Arc::clone(&shared);
        index.listen(move |change| {
            if !concern(change) {
                return;
            }
            let mut waiting = ear.waiting.lock();
            match waiting.get_mut(change.key) {
                Some(noted) => note(noted, change),
                None => note(waiting.entry(change.key.clone()).or_default(), change),
            }
            drop(waiting);
            ear.came.notify_one();
        });
        Self { shared, pace, next: Mutex::default() }
    }

    /// What has come so far is known already.
    pub(crate) fn forget(&self) {
        self.shared.waiting.lock().clear();
    }

    /// What has come since the last time; waits until there is something. Cancel-safe.
    pub(crate) async fn next(&self) -> BTreeMap<Key, V> {
        loop {
            let next = *self.next.lock();
            if let Some(next) = next {
                sleep_until(next).await;
            }
            let batch = mem::take(&mut *self.shared.waiting.lock());
            if !batch.is_empty() {
                *self.next.lock() = (!self.pace.is_zero()).then(|| Instant::now() + self.pace);
                return batch;
            }
            self.shared.came.notified().await;
        }
    }

    /// Tells each key, with what was noted of it, and lets others run between two. Runs for ever.
    pub(crate) async fn each(&self, tell: impl Fn(&Key, V)) {
        loop {
            for (key, noted) in self.next().await {
                tell(&key, noted);
                yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use karmada_client::Event;
    use tokio::time::timeout;

    use super::*;

    fn put(index: &Index<u32>, name: &str, value: u32) {
        index.apply(Event::Upsert((Key::cluster_scoped(name), value)));
    }

    fn told(batch: BTreeMap<Key, Vec<u32>>) -> Vec<(String, Vec<u32>)> {
        batch.into_iter().map(|(key, values)| (key.name, values)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_together_is_one_batch_and_batches_keep_their_pace() {
        let index = Index::<u32>::new();
        let second = Duration::from_secs(1);
        let gathered = Gathered::of(
            &index,
            second,
            |change| change.last().is_multiple_of(2),
            |values: &mut Vec<u32>, change| values.push(**change.last()),
        );
        put(&index, "early", 2);
        gathered.forget();
        let begun = Instant::now();
        for (name, value) in [("a", 2), ("b", 3), ("a", 4), ("c", 6)] {
            put(&index, name, value);
        }
        assert_eq!(told(gathered.next().await), [("a".into(), vec![2, 4]), ("c".into(), vec![6])]);
        assert!(begun.elapsed().is_zero(), "the first waits for nobody");
        put(&index, "d", 8);
        assert_eq!(told(gathered.next().await), [("d".into(), vec![8])]);
        assert_eq!(begun.elapsed(), second);
        assert!(timeout(second * 60, gathered.next()).await.is_err(), "nothing has come");
        put(&index, "e", 10);
        assert_eq!(told(gathered.next().await), [("e".into(), vec![10])], "nothing was lost by that");
    }
}
