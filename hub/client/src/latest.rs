//! The latest value of something, for many observers, woken in the order in which they began to wait.
//!
//! What tokio's `watch` is, but for one thing: that one spreads its waiters over several lists by a random number of
//! the runtime's, so that the same fleet under the same seed would run in another order each time.

use std::{
    fmt,
    ops::Deref,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{RwLock, RwLockReadGuard};
use thiserror::Error;
use tokio::sync::Notify;

/// Nobody is left who could change the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no sender is left")]
pub struct Closed;

struct Shared<T> {
    value: RwLock<Versioned<T>>,
    changed: Notify,
    senders: AtomicUsize,
}

struct Versioned<T> {
    value: T,
    version: u64,
}

/// Holds the value and changes it. Clones hold the same one.
pub struct Sender<T>(Arc<Shared<T>>);

/// Sees the value, and waits for another.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value, borrowed. Not to be held for long: it keeps it from changing.
pub struct Ref<'a, T>(RwLockReadGuard<'a, Versioned<T>>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Sender<T> {
    /// A value that nobody observes yet.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: RwLock::new(Versioned { value, version: 0 }),
            changed: Notify::new(),
            senders: AtomicUsize::new(1),
        }))
    }

    /// An observer, to whom the present value is no news.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.value.read().version;
        Receiver { shared: Arc::clone(&self.0), seen }
    }

    /// The present value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.value.read())
    }

    /// Puts another value there, and tells everybody. Returns the former one.
    pub fn send_replace(&self, value: T) -> T {
        let mut former = value;
        self.send_modify(|current| std::mem::swap(current, &mut former));
        former
    }

    /// Changes the value in place, and tells everybody.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value in place, and tells everybody if `change` says that it did. Returns what it said.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = {
            let mut held = self.0.value.write();
            let modified = change(&mut held.value);
            held.version += u64::from(modified);
            modified
        };
        if modified {
            self.0.changed.notify_waiters();
        }
        modified
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.borrow()).finish()
    }
}

impl<T> Receiver<T> {
    /// The present value. Whether it is news stays open.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.value.read())
    }

    /// The present value, which is no news from here on.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let held = self.shared.value.read();
        self.seen = held.version;
        Ref(held)
    }

    /// Takes the present value for seen.
    pub fn mark_unchanged(&mut self) {
        self.borrow_and_update();
    }

    /// Resolves once there is a value that was not seen; it counts as seen then. Cancel-safe.
    ///
    /// # Errors
    /// When no sender is left and the last value has been seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        news(&self.shared, &mut self.seen).await
    }

    /// Resolves once the value is as wanted, now or later, and returns it. Cancel-safe.
    ///
    /// # Errors
    /// When no sender is left to make it so.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        let Self { shared, seen } = self;
        let mut closed = false;
        loop {
            // A block, for the lock must not be held over the wait.
            {
                let held = shared.value.read();
                *seen = held.version;
                if wanted(&held.value) {
                    return Ok(Ref(held));
                }
            }
            if closed {
                return Err(Closed);
            }
            closed = news(shared, seen).await.is_err();
        }
    }
}

/// Waits for a version other than the one seen.
async fn news<T>(shared: &Shared<T>, seen: &mut u64) -> Result<(), Closed> {
    loop {
        let mut changed = pin!(shared.changed.notified());
        // In line before looking, so that no change falls between.
        changed.as_mut().enable();
        // The senders first: what the last of them wrote before it went is seen below.
        let closed = shared.senders.load(Ordering::Acquire) == 0;
        let version = shared.value.read().version;
        if version != *seen {
            *seen = version;
            return Ok(());
        }
        if closed {
            return Err(Closed);
        }
        changed.await;
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn observers_wake_in_the_order_in_which_they_wait() {
        let sender = Sender::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for n in 0..40 {
            let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
            waiting.spawn(async move {
                receiver.changed().await.unwrap();
                woken.lock().push(n);
            });
        }
        tokio::task::yield_now().await;
        sender.send_replace(1);
        while waiting.join_next().await.is_some() {}
        assert_eq!(*woken.lock(), (0..40).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_once_and_the_last_value_counts() {
        let sender = Sender::new(0);
        let mut receiver = sender.subscribe();
        assert!(timeout(Duration::from_secs(1), receiver.changed()).await.is_err(), "no news yet");
        sender.send_replace(1);
        assert_eq!(sender.send_replace(2), 1);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow(), 2);
        assert!(timeout(Duration::from_secs(1), receiver.changed()).await.is_err(), "it was seen");
        assert!(!sender.send_if_modified(|_| false));
        sender.send_modify(|value| *value = 3);
        receiver.mark_unchanged();
        assert!(timeout(Duration::from_secs(1), receiver.changed()).await.is_err(), "taken for seen");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_sender_closes_it_after_its_last_value() {
        let sender = Sender::new(0);
        let (mut late, mut waiting) = (sender.subscribe(), sender.subscribe());
        let other = sender.clone();
        let waits =
            tokio::spawn(async move { waiting.wait_for(|value| *value == 9).await.map(|value| *value) });
        drop(sender);
        tokio::task::yield_now().await;
        other.send_replace(5);
        drop(other);
        assert_eq!(waits.await.unwrap(), Err(Closed));
        assert_eq!(late.wait_for(|value| *value == 5).await.map(|value| *value), Ok(5));
        assert_eq!(late.changed().await, Err(Closed));
    }
}
